//! How much memory processes hold, by the kernel's own account.

use anyhow::{Context, Result};

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
