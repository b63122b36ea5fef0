//! What a panic says goes the way of every other line.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::{self, PanicHookInfo};
use std::thread;
use std::time::Duration;

use crate::stderr;

/// A panic may be the last that happens: as long its words are waited for, if the log flows.
const LAST_WORDS: Duration = Duration::from_millis(50);

/// Writes the words of every panic to the log, in place of what is done about them, which waits for a reader.
pub fn log_panics() {
    panic::set_hook(Box::new(|info| {
        let log = stderr();
        let flows = log.flows();
        log.say(&words(info));
        if flows {
            log.flush_within(LAST_WORDS);
        }
    }));
}

fn words(info: &PanicHookInfo<'_>) -> Vec<u8> {
    let thread = thread::current();
    let name = thread.name().unwrap_or("<unnamed>");
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    let message = info.payload_as_str().unwrap_or("a panic without words");
    let mut words = format!("thread '{name}' panicked at {place}:\n{message}\n");
    let trace = Backtrace::capture();
    if trace.status() == BacktraceStatus::Captured {
        words.push_str(&format!("stack backtrace:\n{trace}\n"));
    }
    words.into_bytes()
}
