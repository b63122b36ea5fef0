//! Making processes straight into their cgroup, and collecting them.
#![allow(unsafe_code, reason = "clone3 and waitid have no safe wrapper that tells the pid")]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use rustix::process::Rlimit;

use super::signal;

/// A child of this process.
#[derive(Debug)]
pub(crate) struct Spawned {
    pub(crate) pid: i32,
    pub(crate) pidfd: OwnedFd,
}

/// How a child ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ended {
    pub(crate) pid: i32,
    /// 0..=255, or 128 + signal.
    pub(crate) code: u8,
    pub(crate) signal: Option<u8>,
}

/// Clones this process into `cgroup`, with new namespaces as `flags` say, and runs `child` in the copy.
///
/// Only for single-threaded processes: the copy has one thread and whatever locks others held, for ever.
/// `child` answers the exit code of a copy that could not become another program.
pub(crate) fn clone_into(flags: i32, cgroup: BorrowedFd<'_>, child: impl FnOnce() -> u8) -> io::Result<Spawned> {
    let (pid, pidfd) = clone3(flags, cgroup)?;
    if pid == 0 {
        // A panic must not unwind into the parent's loop in the copy.
        let code = catch_unwind(AssertUnwindSafe(child)).unwrap_or(255);
        // SAFETY: ends the copy without running the parent's exit handlers.
        unsafe { libc::_exit(i32::from(code)) }
    }
    // SAFETY: fresh from the kernel, owned by nobody else.
    Ok(Spawned { pid, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } })
}

fn clone3(flags: i32, cgroup: BorrowedFd<'_>) -> io::Result<(i32, RawFd)> {
    let mut pidfd: RawFd = -1;
    let flags = flags | libc::CLONE_PIDFD;
    let mut arguments = libc::clone_args {
        flags: u64::from(flags.cast_unsigned()) | CLONE_INTO_CGROUP,
        pidfd: (&raw mut pidfd).addr() as u64,
        child_tid: 0,
        parent_tid: 0,
        exit_signal: libc::SIGCHLD as u64,
        stack: 0,
        stack_size: 0,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: cgroup.as_raw_fd() as u64,
    };
    // SAFETY: without CLONE_VM the copy has its own memory; the structure and `pidfd` outlive the call.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw mut arguments, size_of::<libc::clone_args>()) };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((i32::try_from(pid).expect("the kernel's pids fit"), pidfd))
}

/// Of the kernel's header; `libc` has it in a type too narrow for it.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// A program to be run with a fixed layout of descriptors: 0, 1, 2, and a listening socket at 3.
pub(crate) struct Program<'a> {
    /// An open program file; closed by the `execve` that runs it.
    pub(crate) file: BorrowedFd<'a>,
    pub(crate) arguments: Vec<CString>,
    pub(crate) stdin: BorrowedFd<'a>,
    pub(crate) output: BorrowedFd<'a>,
    pub(crate) listener: BorrowedFd<'a>,
    /// How many descriptors it may have.
    pub(crate) descriptors: Rlimit,
}

/// Runs a program from a process with many threads, straight in `cgroup`, in a session of its own.
///
/// Between clone and `execve` the copy makes system calls only: no allocation, no lock, no C library state.
/// All descriptors of `program` must be above 3.
pub(crate) fn spawn(program: &Program<'_>, cgroup: BorrowedFd<'_>) -> io::Result<Spawned> {
    let path = CString::new(format!("/proc/self/fd/{}", program.file.as_raw_fd())).expect("no zero byte");
    let mut arguments: Vec<*const libc::c_char> = program.arguments.iter().map(|text| text.as_ptr()).collect();
    arguments.push(ptr::null());
    let environment: [*const libc::c_char; 1] = [ptr::null()];
    let layout = [
        (program.stdin.as_raw_fd(), 0),
        (program.output.as_raw_fd(), 1),
        (program.output.as_raw_fd(), 2),
        (program.listener.as_raw_fd(), 3),
    ];
    let most = |limit: Option<u64>| limit.unwrap_or(libc::RLIM_INFINITY);
    let descriptors =
        libc::rlimit { rlim_cur: most(program.descriptors.current), rlim_max: most(program.descriptors.maximum) };
    debug_assert!(layout.iter().all(|(from, _)| *from > 3));
    // With every signal waiting, no handler of ours can run in the copy.
    signal::with_all_blocked(|| {
        let (pid, pidfd) = clone3(libc::CLONE_VFORK, cgroup)?;
        if pid == 0 {
            // SAFETY: system calls only, on memory prepared above; ends in execve or _exit.
            unsafe {
                libc::setsid();
                for (from, to) in layout {
                    if libc::dup2(from, to) < 0 {
                        libc::_exit(126);
                    }
                }
                if libc::setrlimit(libc::RLIMIT_NOFILE, &raw const descriptors) < 0 {
                    libc::_exit(126);
                }
                libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr());
                libc::_exit(127)
            }
        }
        // SAFETY: fresh from the kernel, owned by nobody else.
        Ok(Spawned { pid, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } })
    })
}

/// Collects any one child that has ended, known or not; `None` when no child has.
pub(crate) fn collect_any() -> Option<Ended> {
    loop {
        // SAFETY: all zeroes is a valid siginfo.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let options = libc::WEXITED | libc::WNOHANG | libc::__WALL;
        // SAFETY: `info` outlives the call.
        let done = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, options) };
        if done < 0 {
            if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return None;
        }
        // SAFETY: waitid filled in the fields of a child's end, or left the pid zero.
        let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
        if pid == 0 {
            return None;
        }
        let status = u8::try_from(status & 0xff).expect("masked");
        return Some(if info.si_code == libc::CLD_EXITED {
            Ended { pid, code: status, signal: None }
        } else {
            Ended { pid, code: 128u8.wrapping_add(status), signal: Some(status) }
        });
    }
}
