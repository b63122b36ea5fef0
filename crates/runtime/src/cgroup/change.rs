//! Other limits for a container that runs.
//!
//! On a machine with v1 hierarchies a container is only in the groups that it joined when it began. One that is given a limit
//! in another is moved there, with everything it started.

use std::fs;
use std::io;
use std::path::Path;

use super::{ContainerCgroup, processes, write_to};
use crate::container::{Doing, SetupError};
use crate::contract::Resources;

/// How often processes that are born meanwhile are moved after the others.
const ROUNDS_MAX: usize = 100;

impl ContainerCgroup {
    /// Gives it these limits instead of those of `before`. Returns those that this machine has no means for, in words.
    ///
    /// A limit of memory below what is in use is refused: the kernel would kill for it. What was set before something
    /// failed stays set: asking again goes on from there.
    pub(crate) fn change(&mut self, before: &Resources, limits: &Resources) -> Result<Vec<String>, SetupError> {
        let told = self.warnings.len();
        if before.memory_bytes != limits.memory_bytes {
            self.change_memory(limits.memory_bytes)?;
        }
        let if_changed = |old: Option<u64>, new: Option<u64>| new.filter(|_| old != new);
        self.limit(&Resources {
            cpu_limit_millis: if_changed(before.cpu_limit_millis, limits.cpu_limit_millis),
            cpu_request_millis: if_changed(before.cpu_request_millis, limits.cpu_request_millis),
            ..Resources::default()
        });
        let is_unified = self.is_unified();
        if before.cpu_limit_millis.is_some() && limits.cpu_limit_millis.is_none() {
            let (file, value) = if is_unified { ("cpu.max", "max") } else { ("cpu.cfs_quota_us", "-1") };
            self.set("cpu", file, value);
        }
        if before.cpu_request_millis.is_some() && limits.cpu_request_millis.is_none() {
            self.weigh(None);
        }
        self.gather()?;
        Ok(self.warnings.split_off(told))
    }

    fn change_memory(&mut self, bytes: Option<u64>) -> Result<(), SetupError> {
        let Some(directory) = self.group.hierarchies.place("memory", &self.group.path) else {
            self.warnings.push("the limit of memory is not changed: no memory controller".to_owned());
            return Ok(());
        };
        fs::create_dir_all(&directory).doing(|| "make a group for the limit of memory".to_owned())?;
        let is_unified = self.is_unified();
        let (limit, used, swap) = match is_unified {
            true => ("memory.max", "memory.current", "memory.swap.max"),
            false => ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.memsw.limit_in_bytes"),
        };
        let (limit, swap) = (directory.join(limit), directory.join(swap));
        if !limit.exists() {
            self.warnings.push("the limit of memory is not changed: its controller is not enabled".to_owned());
            return Ok(());
        }
        let Some(bytes) = bytes else {
            // Both together cannot be less than the one: this goes first, where swap is counted at all.
            let none = if is_unified { "max" } else { "-1" };
            let _ = write_to(&swap, none);
            return write_to(&limit, none).doing(|| "lift the limit of memory".to_owned());
        };
        let in_use: Option<u64> = number(&directory.join(used));
        if let Some(in_use) = in_use.filter(|in_use| *in_use >= bytes) {
            let words = "cannot decrease memory limits: attempting to set memory limit";
            return Err(SetupError(format!("{words} ({bytes}) below current usage ({in_use})")));
        }
        if !is_unified && number(&swap).is_some_and(|both| both < bytes) {
            write_to(&swap, &bytes.to_string()).doing(|| "raise the limit of memory and swap".to_owned())?;
        }
        write_to(&limit, &bytes.to_string()).doing(|| format!("set {}={bytes}", limit.display()))?;
        self.join("memory");
        self.forbid_swap(bytes);
        Ok(())
    }

    /// Moves everything of it into the v1 groups that carry its limits.
    fn gather(&self) -> Result<(), SetupError> {
        let all = self.group.v2();
        self.v1.iter().try_for_each(|group| gather(&all, group).doing(|| format!("move it to {}", group.display())))
    }
}

/// Moves every process of a v2 group, and of those below it, into a v1 group. What they start is born there, so that at last
/// none is left.
fn gather(all: &Path, group: &Path) -> io::Result<()> {
    for _ in 0..ROUNDS_MAX {
        let there = processes(group)?;
        let missing: Vec<u32> = processes(all)?.into_iter().filter(|pid| !there.contains(pid)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        for pid in missing {
            match write_to(&group.join("cgroup.procs"), &pid.to_string()) {
                // It has ended.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                moved => moved?,
            }
        }
    }
    Err(io::Error::other("new processes keep coming"))
}

fn number(file: &Path) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    match text.trim() {
        "max" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}
