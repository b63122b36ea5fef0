//! What a child tells the shim on its way to becoming a program.
//!
//! The channel is closed by `execve` itself, so its end after [`Progress::Ready`] is the kernel's own word
//! that the program runs.

use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};

use super::identity::Identity;
use super::{Doing, SetupError};

/// One step, told by the child.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum Progress {
    /// Who the container's processes are; execs become the same.
    Identity(Identity),
    /// The container's own `/dev/null` is attached to this message; execs read and write it where no stream is asked for.
    Null,
    /// Something that was asked for cannot be had; the program runs without.
    Warning { message: String },
    /// The master of the terminal is attached to this message.
    Terminal,
    /// Only `execve` is left to do.
    Ready,
    /// It will not be; the child exits after this.
    Failed { message: String },
}

/// Both ends: the shim's, the child's.
pub(crate) fn channel() -> Result<(OwnedFd, OwnedFd), SetupError> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .doing(|| "make a progress channel".to_owned())
}

/// Tells the shim. Nobody listening means the shim is gone; the child's own end then follows by the pod's cgroup.
pub(crate) fn tell(channel: impl AsFd, step: &Progress) {
    let _ = crate::wire::send(channel, step, &[]);
}
