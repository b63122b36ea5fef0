//! Programs that end with whoever asked for them, and everything they started with them.
//!
//! The one who asks keeps one end of a pipe and the shim the other. Giving up, forgetting and dying all close it, so
//! that nobody has to say so, and a program that is still on its way is held already.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use super::child::PendingRequest;
use super::serve::Shim;
use crate::cgroup;

/// What a shim holds of one such program.
#[derive(Debug)]
pub(super) struct Tether {
    pub(super) asker: PendingRequest,
    /// Its own group below its container's: killing it ends all the program started, and nothing else.
    pub(super) group: PathBuf,
    /// Until whoever asked lets go, or is gone.
    pub(super) held: Option<OwnedFd>,
}

impl Tether {
    pub(super) fn make(asker: PendingRequest, held: OwnedFd, container: &Path) -> io::Result<Self> {
        let group = container.join(format!("exec-{}-{}", asker.client, asker.number));
        fs::create_dir_all(&group)?;
        Ok(Self { asker, group, held: Some(held) })
    }
}

impl Shim {
    /// Whoever asked let go of what is left, or is gone, and all of it with them.
    pub(super) fn tether_pulled(&mut self, asker: PendingRequest) {
        let Some(tether) = self.tethers.iter_mut().find(|tether| tether.asker == asker) else { return };
        let Some(held) = tether.held.take() else { return };
        let let_go = rustix::io::read(&held, &mut [0u8; 1]).is_ok_and(|count| count > 0);
        if !let_go && let Err(error) = cgroup::kill(&tether.group) {
            super::say(&format_args!("cannot kill {}: {error}", tether.group.display()));
        }
    }

    /// Removes the groups of those who were let go. One that is busy has members on their way out, or some that are the
    /// container's to keep: it is tried again at each wake-up, and goes with the container at the latest.
    pub(super) fn settle_tethers(&mut self) {
        self.tethers.retain(|tether| {
            let busy = |error: io::Error| error.raw_os_error() == Some(libc::EBUSY);
            tether.held.is_some() || fs::remove_dir(&tether.group).is_err_and(busy)
        });
    }
}
