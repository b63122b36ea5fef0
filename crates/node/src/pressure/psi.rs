//! Memory pressure as the kernel reports it: a trigger on `/proc/pressure/memory` (PSI), where the kernel has it.
//!
//! The monitor also reads the available memory every two seconds. The trigger reports memory that is used up between two of these
//! readings.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::streams::registered;

/// The pressure file of the whole machine.
const SOURCE: &str = "/proc/pressure/memory";

/// Fires when some task waited for 100 ms within a window of two seconds, at most once per window. Shorter windows need
/// `CAP_SYS_RESOURCE`, which root in a container may lack.
const TRIGGER: &[u8] = b"some 100000 2000000\0";

/// A PSI trigger for memory.
#[derive(Debug)]
pub struct MemoryPressureTrigger {
    file: AsyncFd<OwnedFd>,
}

impl MemoryPressureTrigger {
    /// Registers the trigger. Fails on a kernel without PSI.
    pub fn of_whole_machine() -> io::Result<Self> {
        Self::on_file(Path::new(SOURCE))
    }

    fn on_file(path: &Path) -> io::Result<Self> {
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let mut file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
        file.write_all(TRIGGER)?;
        Ok(Self { file: registered(file.into(), Interest::PRIORITY)? })
    }

    /// Resolves when the trigger fires.
    pub async fn next(&self) -> io::Result<()> {
        self.file.ready(Interest::PRIORITY).await?.clear_ready();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    use super::*;

    /// A cgroup (v1 or v2) with a very small memory limit.
    struct SmallCgroup(std::path::PathBuf);

    impl SmallCgroup {
        fn new() -> Self {
            let name = format!("adieu-stall-{}", std::process::id());
            let (root, limit) = match Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
                true => ("/sys/fs/cgroup", "memory.max"),
                false => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            };
            let path = Path::new(root).join(name);
            std::fs::create_dir(&path).unwrap();
            let narrow = Self(path);
            std::fs::write(narrow.0.join(limit), "4M").unwrap();
            narrow
        }

        /// Reads more than fits, over and over.
        fn thrash(&self, file: &Path) -> Child {
            let script = "echo $$ > \"$0/cgroup.procs\" && while :; do cat \"$1\" > /dev/null; done";
            Command::new("sh").args(["-c", script]).args([&*self.0, file]).stdin(Stdio::null()).spawn().unwrap()
        }
    }

    impl Drop for SmallCgroup {
        fn drop(&mut self) {
            while std::fs::remove_dir(&self.0).is_err_and(|error| error.kind() == io::ErrorKind::ResourceBusy) {
                std::thread::yield_now();
            }
        }
    }

    #[tokio::test]
    async fn psi_trigger_fires_when_a_cgroup_waits_for_memory() {
        let memory_trigger = match MemoryPressureTrigger::of_whole_machine() {
            Ok(memory_trigger) => memory_trigger,
            Err(error) => return eprintln!("SKIPPED: this kernel does not count who waits for memory: {error}"),
        };
        // Beside the test itself, which is on a disk. Nobody has read the file, so each page is the reader's to pay for:
        // pages that the writer has paid for are read for nothing.
        let file = tempfile::NamedTempFile::new_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap();
        file.as_file().set_len(64 << 20).unwrap();
        let narrow = SmallCgroup::new();
        let mut children: Vec<Child> = (0..4).map(|_| narrow.thrash(file.path())).collect();
        let heard = tokio::time::timeout(Duration::from_secs(60), memory_trigger.next()).await;
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        heard.expect("the kernel tells").unwrap();
    }

    #[tokio::test]
    async fn a_kernel_that_does_not_count_is_an_error() {
        assert!(MemoryPressureTrigger::on_file(Path::new("/proc/no/pressure")).is_err());
    }
}
