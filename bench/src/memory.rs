//! How much memory processes hold, by the kernel's own account.

use std::time::Duration;

use anyhow::{Context, Result};

/// A program that has just started has all of itself in memory that it read to start. So long after that it is at rest: beyond the
/// moment when it gives memory back, and beyond the first round of whatever it does again and again.
const REST: Duration = Duration::from_secs(30);

/// The resident memory of all `pids` together once they are at rest; `None` if there are none.
pub(crate) async fn at_rest_kib(pids: &[i32]) -> Result<Option<u64>> {
    if !pids.is_empty() {
        eprintln!("waiting {REST:?} for the program to come to rest");
        tokio::time::sleep(REST).await;
    }
    resident_kib(pids)
}

/// The resident memory of all `pids` together; `None` if there are none.
pub(crate) fn resident_kib(pids: &[i32]) -> Result<Option<u64>> {
    if pids.is_empty() {
        return Ok(None);
    }
    pids.iter().map(|pid| one(*pid)).sum::<Result<u64>>().map(Some)
}

fn one(pid: i32) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).with_context(|| format!("no process {pid}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("the kernel does not say")?;
    Ok(line.split_whitespace().next().context("a number")?.parse()?)
}
