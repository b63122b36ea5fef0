//! Standard streams and the other descriptors of a child, at agreed numbers.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Uid, makedev};
use rustix::pipe::PipeFlags;

use super::file_system::{self, FileSystem};
use super::identity::Identity;
use super::progress::Progress;
use super::rootfs::o_path;
use super::{Doing, SetupError};
use crate::sys::descriptors;

/// Where a child keeps its progress channel until `execve` closes it.
pub(crate) const PROGRESS: i32 = 3;
/// Where an exec's child keeps the pidfd of the container it joins.
pub(crate) const CONTAINER: i32 = 4;
/// Where a container's first process keeps the host's mount namespace until all is mounted, if a volume needs it.
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
pub(crate) fn lay_out(
    ends: &ChildEnds,
    progress: BorrowedFd<'_>,
    joined: Option<BorrowedFd<'_>>,
) -> Result<(), SetupError> {
    let doing = || "lay out descriptors".to_owned();
    rustix::stdio::dup2_stdin(&ends.stdin).doing(doing)?;
    rustix::stdio::dup2_stdout(&ends.stdout).doing(doing)?;
    rustix::stdio::dup2_stderr(&ends.stderr).doing(doing)?;
    descriptors::place(progress, PROGRESS).doing(doing)?;
    let Some(joined) = joined else { return descriptors::close_from(CONTAINER.cast_unsigned()).doing(doing) };
    descriptors::place(joined, CONTAINER).doing(doing)?;
    descriptors::close_from(CONTAINER.cast_unsigned() + 1).doing(doing)
}

/// Gives the streams to the user that will use them: `/dev/stdout` can then be opened again by name.
pub(crate) fn give_to(identity: &Identity) {
    for fd in [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()] {
        // Not /dev/null, which is everybody's in the container.
        if rustix::fs::fstat(fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_fifo()) {
            let _ = rustix::fs::fchown(fd, Some(Uid::from_raw(identity.uid)), Some(Gid::from_raw(identity.gid)));
        }
    }
}

/// Opens the device that makes terminals. Whatever the container has put at `/dev/ptmx` is not looked at: only a devpts has
/// this file, where nobody can replace it, and nothing mounted over it is entered.
fn open_ptmx() -> Result<OwnedFd, SetupError> {
    let doing = || "open /dev/pts/ptmx".to_owned();
    let no_terminals = || SetupError("/dev/pts is no file system of terminals".to_owned());
    let path = o_path() | OFlags::DIRECTORY;
    let resolve = ResolveFlags::NO_MAGICLINKS;
    let terminals = rustix::fs::openat2(CWD, "/dev/pts", path, Mode::empty(), resolve).doing(doing)?;
    if FileSystem::of(&terminals).doing(doing)?.kind != file_system::DEVPTS {
        return Err(no_terminals());
    }
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let master = rustix::fs::openat2(&terminals, "ptmx", flags, Mode::empty(), resolve).doing(doing)?;
    let stat = rustix::fs::fstat(&master).doing(doing)?;
    let is_ptmx = FileType::from_raw_mode(stat.st_mode).is_char_device() && stat.st_rdev == makedev(5, 2);
    if is_ptmx { Ok(master) } else { Err(no_terminals()) }
}

/// Opens a terminal inside the container, makes it this session's, and sends its master to the shim.
pub(crate) fn open_terminal(identity: &Identity, progress: BorrowedFd<'_>) -> Result<(), SetupError> {
    let master = open_ptmx()?;
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
