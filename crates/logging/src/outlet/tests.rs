//! An outlet whose reader reads, stops reading or leaves.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs::File;
use std::io::Read as _;

use super::*;

const SOON: Duration = Duration::from_secs(30);

fn pipe() -> (File, File) {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    (File::from(reader), File::from(writer))
}

#[test]
fn lines_are_written_in_order_and_flushed_before_an_end() {
    let (mut reader, writer) = pipe();
    let outlet = Outlet::new("test", writer);
    for number in 0..100 {
        outlet.say(format!("line {number}\n").as_bytes());
    }
    assert!(outlet.flush_within(SOON));
    let mut said = [0; 4096];
    let count = reader.read(&mut said).unwrap();
    let wanted: String = (0..100).map(|number| format!("line {number}\n")).collect();
    assert_eq!(std::str::from_utf8(&said[..count]).unwrap(), wanted);
    assert_eq!(outlet.dropped(), 0);
}

#[test]
fn unread_pipe_holds_up_nobody_and_the_count_is_told_when_it_flows_again() {
    let (mut reader, writer) = pipe();
    let outlet = Outlet::new("test", writer);
    let line = [b"x".repeat(99), b"\n".to_vec()].concat();
    // Far more than pipe and queue hold.
    for _ in 0..20_000 {
        outlet.say(&line);
    }
    let dropped = outlet.dropped();
    assert!(dropped > 10_000, "{dropped}");
    assert!(!outlet.flush_within(Duration::from_millis(20)), "it cannot be written, and a flush ends all the same");
    let reading = thread::spawn(move || {
        let mut text = String::new();
        let mut piece = [0; 4096];
        while !text.contains("last") {
            let count = reader.read(&mut piece).unwrap();
            text.push_str(std::str::from_utf8(&piece[..count]).unwrap());
        }
        text
    });
    assert!(outlet.flush_within(SOON));
    outlet.say(b"last\n");
    let text = reading.join().unwrap();
    let told: u64 = text
        .lines()
        .filter_map(|line| line.strip_prefix("adieu: ")?.strip_suffix(" lines were dropped here: nobody read them"))
        .map(|count| count.parse::<u64>().unwrap())
        .sum();
    let written = text.lines().filter(|line| line.starts_with('x')).count() as u64;
    assert_eq!((told, told + written), (outlet.dropped(), 20_000));
}

#[test]
fn closed_pipe_loses_lines_and_nothing_else() {
    let (reader, writer) = pipe();
    drop(reader);
    let outlet = Outlet::new("test", writer);
    for number in 0..3 {
        writeln!(outlet.clone(), "line {number}").unwrap();
        assert!(outlet.flush_within(SOON));
    }
    assert!(outlet.dropped() >= 3);
}

#[test]
fn long_line_is_cut() {
    let (mut reader, writer) = pipe();
    let outlet = Outlet::new("test", writer);
    outlet.say(&b"y".repeat(10 * LINE_MAX));
    assert!(outlet.flush_within(SOON));
    let mut said = vec![0; 2 * LINE_MAX];
    let count = reader.read(&mut said).unwrap();
    assert_eq!((count, &said[count - 5..count]), (LINE_MAX + 4, &b"y...\n"[..]));
}
