//! What a child tells the shim on its way to becoming a program.
//!
//! The channel is closed by `execve` itself, so its end after [`Progress::Ready`] is the kernel's own word
//! that the program runs.

use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};

use super::identity::Identity;
use super::{Doing, SetupError};

/// Of longer ones the middle is left out.
const MESSAGE_BYTES_MAX: usize = 8 * 1024;

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

impl Progress {
    /// Why the program does not run, in as many words as people read: a name of a program may be as long as any argument.
    pub(crate) fn failed(error: SetupError) -> Self {
        let mut message = error.0;
        if message.len() > MESSAGE_BYTES_MAX {
            // What went wrong is said at the end.
            let (from, to) =
                (message.floor_char_boundary(MESSAGE_BYTES_MAX / 2), message.len() - MESSAGE_BYTES_MAX / 2);
            message.replace_range(from..message.ceil_char_boundary(to), "…");
        }
        Self::Failed { message }
    }
}

/// Both ends: the shim's, the child's. A process may be in tens of thousands of groups, which are told in one message.
pub(crate) fn channel() -> Result<(OwnedFd, OwnedFd), SetupError> {
    let ends = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .doing(|| "make a progress channel".to_owned())?;
    crate::wire::widen(&ends.1);
    Ok(ends)
}

/// Tells the shim. Nobody listening means the shim is gone; the child's own end then follows by the pod's cgroup.
pub(crate) fn tell(channel: impl AsFd, step: &Progress) {
    let _ = crate::wire::send(channel, step, &[]);
}
