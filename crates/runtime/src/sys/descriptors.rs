//! Putting descriptors at agreed numbers, closing all others, and how many there may be.
#![allow(unsafe_code, reason = "descriptor numbers are shared with the kernel, not owned by one value")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Allows this process as many descriptors as it may have, once. Returns the limits it was started with, which are
/// for its children: programs that use `select`, or close every number up to the limit, rely on a low one.
pub(crate) fn allow_most() -> io::Result<Rlimit> {
    static STARTED_WITH: Mutex<Option<Rlimit>> = Mutex::new(None);
    let mut started_with = STARTED_WITH.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(limits) = &*started_with {
        return Ok(*limits);
    }
    let limits = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, maximum: limits.maximum })?;
    Ok(*started_with.insert(limits))
}

/// Duplicates `fd` to exactly `number`, to be closed by `execve`.
pub(crate) fn place(fd: impl AsFd, number: RawFd) -> io::Result<()> {
    // SAFETY: plain system call on numbers; whoever calls this laid out the numbers of this process.
    let done = unsafe { libc::dup3(fd.as_fd().as_raw_fd(), number, libc::O_CLOEXEC) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Closes every descriptor from `first` on.
///
/// To be called only where no Rust value still owns one of them and will be dropped: at the start of a
/// process, or in a cloned child that ends by `execve` or `_exit`.
pub(crate) fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: plain system call; see above for who may call it.
    let done = unsafe { libc::close_range(first, u32::MAX, 0) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The descriptor that was put at `number` by agreement, valid until this process ends or executes a program.
pub(crate) fn agreed(number: RawFd) -> BorrowedFd<'static> {
    // SAFETY: by the layouts in `container` the number is open for the rest of the process.
    unsafe { BorrowedFd::borrow_raw(number) }
}

/// Closes what was put at `number` by agreement; nobody may use [`agreed`] for it afterwards.
pub(crate) fn close_agreed(number: RawFd) {
    // SAFETY: by the layouts in `container` no Rust value owns the number.
    unsafe { libc::close(number) };
}

/// Takes ownership of a descriptor that was handed to this process at `number`.
pub(crate) fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: F_GETFD only asks whether the number is open.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: open, and by the calling convention of the shim owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
