//! Signal masks and dispositions.
#![allow(unsafe_code, reason = "signal masks are raw C structures")]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

fn set_of(signals: &[i32]) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the whole set before it is read.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), *signal);
        }
        set.assume_init()
    }
}

/// Makes exactly these signals wait, in the calling thread.
pub(crate) fn block_only(signals: &[i32]) -> io::Result<()> {
    let set = set_of(signals);
    // SAFETY: the set is initialised and outlives the call.
    let error = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, ptr::null_mut()) };
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

/// Runs `work` with every signal waiting, and restores the mask behind it.
pub(crate) fn with_all_blocked<T>(work: impl FnOnce() -> T) -> T {
    let mut before = set_of(&[]);
    let mut all = set_of(&[]);
    // SAFETY: both sets are initialised and outlive the calls.
    unsafe {
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
    }
    let result = work();
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
    result
}

/// Ignores a signal in this process.
pub(crate) fn ignore(signal: i32) {
    // SAFETY: SIG_IGN runs no code of ours.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// A descriptor that becomes readable when one of these (blocked) signals waits.
pub(crate) fn descriptor(signals: &[i32]) -> io::Result<OwnedFd> {
    let set = set_of(signals);
    // SAFETY: the set is initialised; a fresh descriptor is asked for.
    let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fresh from the kernel, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sends a signal, real-time ones included, to exactly the process behind a pidfd.
pub(crate) fn send(process: impl AsFd, signal: u8) -> io::Result<()> {
    // SAFETY: plain system call; no information is attached to the signal.
    let done = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            process.as_fd().as_raw_fd(),
            i32::from(signal),
            ptr::null_mut::<libc::siginfo_t>(),
            0,
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The kernel's `sigaction`, which is not the C library's.
#[repr(C)]
struct KernelAction {
    handler: usize,
    flags: usize,
    restorer: usize,
    mask: u64,
}

/// Sets every signal to its default and blocks none, so that a program starts with a clean slate.
///
/// By raw system call, because the C library refuses to touch signals 32 and 33.
pub(crate) fn reset_all() -> io::Result<()> {
    let default = KernelAction { handler: libc::SIG_DFL, flags: 0, restorer: 0, mask: 0 };
    for signal in 1..=64 {
        if signal == libc::SIGKILL || signal == libc::SIGSTOP {
            continue;
        }
        // SAFETY: the structure has the kernel's layout and the default disposition runs no code of ours.
        unsafe {
            libc::syscall(libc::SYS_rt_sigaction, signal, &raw const default, ptr::null_mut::<KernelAction>(), 8usize)
        };
    }
    block_only(&[])
}
