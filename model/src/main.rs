//! Prints what the models hold: `cargo run --release -p model`, or with `-- --large` for the large ones.

fn main() {
    for m in model::catalogue::small() {
        let f = model::check::explore(m, 2);
        println!(
            "{:<20} {:>9} {:>10} {:>3} {:>2} {:>2} {:?}",
            f.name, f.states, f.transitions, f.depth, f.always, f.sometimes, f.took
        );
        for x in f.failures {
            println!("  FAILED {}\n{}", x.sentence, x.trace);
        }
    }
}
