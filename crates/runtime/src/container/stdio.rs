//! Standard streams and the other descriptors of a child, at agreed numbers.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Gid, Mode, OFlags, Uid};
use rustix::pipe::PipeFlags;

use super::identity::Identity;
use super::progress::Progress;
use super::{Doing, SetupError};
use crate::sys::descriptors;

/// Where a child keeps its progress channel until `execve` closes it.
pub(crate) const PROGRESS: i32 = 3;
/// Where an exec's child keeps the pidfd of the container it joins.
pub(crate) const CONTAINER: i32 = 4;
/// Where a container's first process keeps the host's mount namespace until `execve` closes it.
pub(crate) const HOST_MOUNTS: i32 = 4;

/// The child's ends of its streams.
///
/// Nothing of the host is ever among them, as a container can change mode and owner of whatever it has open: they are
/// pipes, or the container's own `/dev/null`.
#[derive(Debug)]
pub(crate) struct ChildEnds {
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

impl ChildEnds {
    /// What stands in for all streams until the child has opened a terminal.
    pub(crate) fn placeholders() -> Result<Self, SetupError> {
        Ok(Self { stdin: placeholder()?, stdout: placeholder()?, stderr: placeholder()? })
    }
}

/// A stream that has ended, for a number to be taken until there is something better.
pub(crate) fn placeholder() -> Result<OwnedFd, SetupError> {
    rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map(|(read, _)| read).doing(|| "make a pipe".to_owned())
}

/// Lays out this child's descriptors (0, 1, 2, the progress channel, what it joins) and closes all others, so
/// that nothing of the shim is within reach of anything that follows.
pub(crate) fn lay_out(ends: &ChildEnds, progress: BorrowedFd<'_>, joined: BorrowedFd<'_>) -> Result<(), SetupError> {
    let doing = || "lay out descriptors".to_owned();
    rustix::stdio::dup2_stdin(&ends.stdin).doing(doing)?;
    rustix::stdio::dup2_stdout(&ends.stdout).doing(doing)?;
    rustix::stdio::dup2_stderr(&ends.stderr).doing(doing)?;
    descriptors::place(progress, PROGRESS).doing(doing)?;
    descriptors::place(joined, CONTAINER).doing(doing)?;
    descriptors::close_from(CONTAINER.cast_unsigned() + 1).doing(doing)
}

/// Gives the streams to the user that will use them: `/dev/stdout` can then be opened again by name.
pub(crate) fn give_to(identity: &Identity) {
    for fd in [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()] {
        // Not /dev/null, which is everybody's in the container.
        if rustix::fs::fstat(fd).is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_fifo()) {
            let _ = rustix::fs::fchown(fd, Some(Uid::from_raw(identity.uid)), Some(Gid::from_raw(identity.gid)));
        }
    }
}

/// Opens a terminal inside the container, makes it this session's, and sends its master to the shim.
pub(crate) fn open_terminal(identity: &Identity, progress: BorrowedFd<'_>) -> Result<(), SetupError> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let master = rustix::fs::open("/dev/ptmx", flags, Mode::empty()).doing(|| "open /dev/ptmx".to_owned())?;
    rustix::pty::unlockpt(&master).doing(|| "unlock the terminal".to_owned())?;
    let open_flags = rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY;
    let peer = rustix::pty::ioctl_tiocgptpeer(&master, open_flags).doing(|| "open the terminal".to_owned())?;
    let _ = rustix::fs::fchown(&peer, Some(Uid::from_raw(identity.uid)), None);
    rustix::process::ioctl_tiocsctty(&peer).doing(|| "take the terminal".to_owned())?;
    rustix::stdio::dup2_stdin(&peer).doing(|| "use the terminal".to_owned())?;
    rustix::stdio::dup2_stdout(&peer).doing(|| "use the terminal".to_owned())?;
    rustix::stdio::dup2_stderr(&peer).doing(|| "use the terminal".to_owned())?;
    crate::wire::send(progress, &Progress::Terminal, &[master.as_fd()]).doing(|| "pass the terminal on".to_owned())
}
