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
    let mut arguments = arguments(flags, &mut pidfd, cgroup);
    // SAFETY: without CLONE_VM the copy has its own memory; the structure and `pidfd` outlive the call.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw mut arguments, size_of::<libc::clone_args>()) };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((i32::try_from(pid).expect("the kernel's pids fit"), pidfd))
}

fn arguments(flags: i32, pidfd: &mut RawFd, cgroup: BorrowedFd<'_>) -> libc::clone_args {
    let flags = flags | libc::CLONE_PIDFD;
    libc::clone_args {
        flags: u64::from(flags.cast_unsigned()) | CLONE_INTO_CGROUP,
        pidfd: (&raw mut *pidfd).addr() as u64,
        child_tid: 0,
        parent_tid: 0,
        exit_signal: libc::SIGCHLD as u64,
        stack: 0,
        stack_size: 0,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: cgroup.as_raw_fd() as u64,
    }
}

/// Of the kernel's header; `libc` has it in a type too narrow for it.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Lets a child run `become_other` in this process's own memory, on a stack of its own, while this thread waits
/// until it has become another program or ended.
///
/// A copy of the memory would cost the agent a third of its time when many pods start: the tables are copied, and
/// every page that any thread then writes to is copied too, with an interrupt to every other processor.
///
/// # Safety
/// `become_other` makes system calls only, on memory that `state` points to and that outlives this call, and
/// never returns. No signal may reach the child.
unsafe fn clone_sharing(
    cgroup: BorrowedFd<'_>,
    become_other: unsafe extern "C" fn(*const ()) -> !,
    state: *const (),
) -> io::Result<(i32, RawFd)> {
    const STACK: usize = 16 * 1024;
    let mut stack = Vec::<u128>::with_capacity(STACK / size_of::<u128>());
    let mut pidfd: RawFd = -1;
    let mut arguments = arguments(libc::CLONE_VM | libc::CLONE_VFORK, &mut pidfd, cgroup);
    arguments.stack = stack.as_mut_ptr().addr() as u64;
    arguments.stack_size = STACK as u64;
    let answer: i64;
    // SAFETY: the child leaves this frame at once for its own stack, of which it is the only user, and the parent
    // is held until it has let go of the memory; the call clobbers what is said.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r13",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone3 => answer,
            in("rdi") &raw mut arguments,
            in("rsi") size_of::<libc::clone_args>(),
            in("r12") state,
            in("r13") become_other,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x0, {state}",
            "blr {become_other}",
            "brk 1",
            "2:",
            state = in(reg) state,
            become_other = in(reg) become_other,
            in("x8") libc::SYS_clone3,
            inlateout("x0") (&raw mut arguments).expose_provenance().cast_signed() as i64 => answer,
            in("x1") size_of::<libc::clone_args>(),
        );
    }
    match i32::try_from(answer).expect("the kernel's pids and errors fit") {
        error if error < 0 => Err(io::Error::from_raw_os_error(-error)),
        pid => Ok((pid, pidfd)),
    }
}

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
/// All descriptors of `program` must be above 3.
pub(crate) fn spawn(program: &Program<'_>, cgroup: BorrowedFd<'_>) -> io::Result<Spawned> {
    let path = CString::new(format!("/proc/self/fd/{}", program.file.as_raw_fd())).expect("no zero byte");
    let mut arguments: Vec<*const libc::c_char> = program.arguments.iter().map(|text| text.as_ptr()).collect();
    arguments.push(ptr::null());
    let most = |limit: Option<u64>| limit.unwrap_or(libc::RLIM_INFINITY);
    let next = Next {
        path: path.as_ptr(),
        arguments: arguments.as_ptr(),
        layout: [
            (program.stdin.as_raw_fd(), 0),
            (program.output.as_raw_fd(), 1),
            (program.output.as_raw_fd(), 2),
            (program.listener.as_raw_fd(), 3),
        ],
        descriptors: libc::rlimit {
            rlim_cur: most(program.descriptors.current),
            rlim_max: most(program.descriptors.maximum),
        },
    };
    debug_assert!(next.layout.iter().all(|(from, _)| *from > 3));
    // With every signal waiting, no handler of ours can run in the child.
    let (pid, pidfd) = signal::with_all_blocked(|| {
        // SAFETY: `become_program` makes system calls only, on `next` and what it points to, which live here.
        unsafe { clone_sharing(cgroup, become_program, (&raw const next).cast()) }
    })?;
    // SAFETY: fresh from the kernel, owned by nobody else.
    Ok(Spawned { pid, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } })
}

/// What a child needs that becomes a [`Program`], prepared where memory may still be allocated.
struct Next {
    path: *const libc::c_char,
    arguments: *const *const libc::c_char,
    layout: [(RawFd, RawFd); 4],
    descriptors: libc::rlimit,
}

/// # Safety
/// `next` points to a [`Next`] whose pointers are valid; runs in a child that is to become another program.
unsafe extern "C" fn become_program(next: *const ()) -> ! {
    // SAFETY: as asked of the caller; system calls only, and all of them end in execve or _exit.
    unsafe {
        let next = &*next.cast::<Next>();
        let environment: [*const libc::c_char; 1] = [ptr::null()];
        libc::setsid();
        for (from, to) in next.layout {
            if libc::dup2(from, to) < 0 {
                libc::_exit(126);
            }
        }
        if libc::setrlimit(libc::RLIMIT_NOFILE, &raw const next.descriptors) < 0 {
            libc::_exit(126);
        }
        libc::execve(next.path, next.arguments, environment.as_ptr());
        libc::_exit(127)
    }
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
