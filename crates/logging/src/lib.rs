//! What the program says while it runs: nothing that reads it, or does not, decides over the program.
//!
//! A line is put into a bounded queue and written by a thread of its own ([`Outlet`]). Who says something never waits and never
//! fails. Lines that nobody takes are dropped and counted, and the log says how many once it flows again. A closed pipe loses
//! lines, and nothing else. [`flush`] gives the last lines before an end a bounded time.
//!
//! The shim has one thread and writes to a file: it does not use this.

mod outlet;
mod panics;
mod standard;

use std::sync::LazyLock;
use std::time::{Duration, Instant};

pub use outlet::Outlet;
pub use panics::log_panics;

/// How long the last lines may take when the program ends.
pub const LAST_LINES: Duration = Duration::from_secs(1);

static STDERR: LazyLock<Outlet> = LazyLock::new(|| Outlet::new("log", standard::Stream::Err));
static STDOUT: LazyLock<Outlet> = LazyLock::new(|| Outlet::new("out", standard::Stream::Out));

/// Standard error, where the log goes.
pub fn stderr() -> Outlet {
    STDERR.clone()
}

/// Standard output, for the few lines that whoever started the program waits for.
pub fn stdout() -> Outlet {
    STDOUT.clone()
}

/// Waits until everything that was said is written, at most `limit` in all. `false` if something is left.
pub fn flush(limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    // Both, even if the first is stuck: the second then has no time left, but may have nothing to write.
    let rest = || deadline.saturating_duration_since(Instant::now());
    let out = STDOUT.flush_within(rest());
    STDERR.flush_within(rest()) && out
}

/// How many lines were dropped, of both streams.
pub fn dropped() -> u64 {
    STDERR.dropped().saturating_add(STDOUT.dropped())
}
