//! The chores of the tree, one subcommand each.

mod reference;
mod scenarios;
mod schema_table;
mod simulate;
mod sources;
mod test;
mod tidy;

use std::env;
use std::path::Path;

use anyhow::{Result, bail};

const CHORES: &str = "test (every test), tidy (papers and tree agree), scenarios (which are shown by which tests), schema-table, \
                      simulate [--release] [--seeds N] [--seed S] [--scenario TEXT]";

fn main() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    let mut arguments = env::args().skip(1);
    match arguments.next().as_deref() {
        Some("test") => test::run(root, arguments),
        Some("tidy") => tidy::run(root),
        Some("scenarios") => scenarios::run(root),
        Some("schema-table") => schema_table::run(arguments),
        Some("simulate") => simulate::run(root, arguments),
        Some(other) => bail!("no chore is called {other:?}; try: {CHORES}"),
        None => bail!("which chore? try: {CHORES}"),
    }
}
