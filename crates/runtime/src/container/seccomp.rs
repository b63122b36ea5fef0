//! The default seccomp profile: what a container may ask of the kernel.
//!
//! Two filters. The first lets the everyday calls through and answers everything else "no such call", so that
//! programs built for newer kernels fall back gracefully. The second answers "not permitted" to calls that exist
//! but are not for containers. Compiled once per set of capabilities and kept on disk for every start and exec.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use super::capabilities::Capabilities;
use super::{Doing, SetupError};

macro_rules! calls {
    ($($name:ident)*) => { &[$(libc::$name),*] };
}

/// Every container may use these, whatever its capabilities.
const EVERYDAY: &[i64] = calls! {
    SYS_accept SYS_accept4 SYS_adjtimex SYS_bind SYS_brk SYS_capget SYS_capset SYS_chdir
    SYS_clock_adjtime SYS_clone SYS_clock_getres SYS_clock_gettime SYS_clock_nanosleep SYS_close SYS_close_range SYS_connect
    SYS_copy_file_range SYS_dup SYS_dup3 SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2
    SYS_eventfd2 SYS_execve SYS_execveat SYS_exit SYS_exit_group SYS_faccessat SYS_faccessat2 SYS_fadvise64
    SYS_fallocate SYS_fanotify_mark SYS_fchdir SYS_fchmod SYS_fchmodat SYS_fchmodat2 SYS_fchown SYS_fchownat
    SYS_fcntl SYS_fdatasync SYS_fgetxattr SYS_flistxattr SYS_flock SYS_fremovexattr SYS_fsetxattr SYS_fstat
    SYS_fstatfs SYS_fsync SYS_ftruncate SYS_futex SYS_futex_waitv
    SYS_get_robust_list SYS_getcpu SYS_getcwd SYS_getdents64 SYS_getegid SYS_geteuid SYS_getgid SYS_getgroups
    SYS_getitimer SYS_getpeername SYS_getpgid SYS_getpid SYS_getppid SYS_getpriority SYS_getrandom SYS_getresgid
    SYS_getresuid SYS_getrlimit SYS_getrusage SYS_getsid SYS_getsockname SYS_getsockopt SYS_gettid
    SYS_gettimeofday SYS_getuid SYS_getxattr SYS_inotify_add_watch SYS_inotify_init1 SYS_inotify_rm_watch
    SYS_io_cancel SYS_io_destroy SYS_io_getevents SYS_io_setup SYS_io_submit SYS_ioctl
    SYS_ioprio_get SYS_ioprio_set SYS_kill SYS_landlock_add_rule SYS_landlock_create_ruleset
    SYS_landlock_restrict_self SYS_lgetxattr SYS_linkat SYS_listen SYS_listxattr SYS_llistxattr SYS_lremovexattr
    SYS_lseek SYS_lsetxattr SYS_madvise SYS_membarrier SYS_memfd_create SYS_memfd_secret
    SYS_mincore SYS_mkdirat SYS_mknodat SYS_mlock SYS_mlock2 SYS_mlockall SYS_mmap SYS_mprotect SYS_mq_getsetattr
    SYS_mq_notify SYS_mq_open SYS_mq_timedreceive SYS_mq_timedsend SYS_mq_unlink SYS_mremap SYS_msgctl SYS_msgget
    SYS_msgrcv SYS_msgsnd SYS_msync SYS_munlock SYS_munlockall SYS_munmap SYS_name_to_handle_at SYS_nanosleep
    SYS_newfstatat SYS_openat SYS_openat2 SYS_pidfd_open SYS_pidfd_send_signal SYS_pipe2 SYS_pkey_alloc
    SYS_pkey_free SYS_pkey_mprotect SYS_ppoll SYS_prctl SYS_pread64 SYS_preadv SYS_preadv2 SYS_prlimit64
    SYS_process_mrelease SYS_process_vm_readv SYS_process_vm_writev SYS_pselect6 SYS_ptrace SYS_pwrite64
    SYS_pwritev SYS_pwritev2 SYS_read SYS_readahead SYS_readlinkat SYS_readv SYS_recvfrom SYS_recvmmsg SYS_recvmsg
    SYS_remap_file_pages SYS_removexattr SYS_renameat SYS_renameat2 SYS_restart_syscall SYS_rseq SYS_rt_sigaction
    SYS_rt_sigpending SYS_rt_sigprocmask SYS_rt_sigqueueinfo SYS_rt_sigreturn SYS_rt_sigsuspend
    SYS_rt_sigtimedwait SYS_rt_tgsigqueueinfo SYS_sched_get_priority_max SYS_sched_get_priority_min
    SYS_sched_getaffinity SYS_sched_getattr SYS_sched_getparam SYS_sched_getscheduler SYS_sched_rr_get_interval
    SYS_sched_setaffinity SYS_sched_setattr SYS_sched_setparam SYS_sched_setscheduler SYS_sched_yield SYS_seccomp
    SYS_semctl SYS_semget SYS_semop SYS_semtimedop SYS_sendfile SYS_sendmmsg SYS_sendmsg SYS_sendto
    SYS_set_robust_list SYS_set_tid_address SYS_setfsgid SYS_setfsuid SYS_setgid SYS_setgroups SYS_setitimer
    SYS_setpgid SYS_setpriority SYS_setregid SYS_setresgid SYS_setresuid SYS_setreuid SYS_setrlimit SYS_setsid
    SYS_setsockopt SYS_setuid SYS_setxattr SYS_shmat SYS_shmctl SYS_shmdt SYS_shmget SYS_shutdown SYS_sigaltstack
    SYS_signalfd4 SYS_socket SYS_socketpair SYS_splice SYS_statfs SYS_statx SYS_symlinkat SYS_sync SYS_sync_file_range
    SYS_syncfs SYS_sysinfo SYS_tee SYS_tgkill SYS_timer_create SYS_timer_delete SYS_timer_getoverrun
    SYS_timer_gettime SYS_timer_settime SYS_timerfd_create SYS_timerfd_gettime SYS_timerfd_settime SYS_times
    SYS_tkill SYS_truncate SYS_umask SYS_uname SYS_unlinkat SYS_utimensat SYS_vmsplice SYS_wait4 SYS_waitid
    SYS_write SYS_writev
};

/// The older spellings that only this architecture has.
#[cfg(target_arch = "x86_64")]
const EVERYDAY_HERE: &[i64] = calls! {
    SYS_access SYS_alarm SYS_arch_prctl SYS_chmod SYS_chown SYS_creat SYS_dup2 SYS_epoll_create SYS_epoll_wait
    SYS_eventfd SYS_fork SYS_futimesat SYS_get_thread_area SYS_getdents SYS_getpgrp SYS_inotify_init SYS_lchown
    SYS_link SYS_lstat SYS_mkdir SYS_mknod SYS_modify_ldt SYS_open SYS_pause SYS_pipe SYS_poll SYS_readlink SYS_rename
    SYS_rmdir SYS_select SYS_set_thread_area SYS_signalfd SYS_stat SYS_symlink SYS_time SYS_unlink SYS_utime
    SYS_utimes SYS_vfork
};
#[cfg(not(target_arch = "x86_64"))]
const EVERYDAY_HERE: &[i64] = &[];

/// Calls that come with a capability.
const BY_CAPABILITY: &[(&str, &[i64])] = &[
    ("DAC_READ_SEARCH", calls! { SYS_open_by_handle_at }),
    (
        "SYS_ADMIN",
        calls! {
            SYS_bpf SYS_clone3 SYS_clone SYS_fanotify_init SYS_fsconfig SYS_fsmount SYS_fsopen SYS_fspick SYS_lookup_dcookie
            SYS_mount SYS_mount_setattr SYS_move_mount SYS_open_tree SYS_perf_event_open SYS_quotactl
            SYS_setdomainname SYS_sethostname SYS_setns SYS_syslog SYS_umount2 SYS_unshare
        },
    ),
    ("SYS_BOOT", calls! { SYS_reboot }),
    ("SYS_CHROOT", calls! { SYS_chroot }),
    ("SYS_MODULE", calls! { SYS_delete_module SYS_init_module SYS_finit_module }),
    ("SYS_PACCT", calls! { SYS_acct }),
    ("SYS_PTRACE", calls! { SYS_kcmp SYS_pidfd_getfd SYS_process_madvise }),
    ("SYS_TIME", calls! { SYS_settimeofday SYS_clock_settime }),
    ("SYS_TTY_CONFIG", calls! { SYS_vhangup }),
    ("SYS_NICE", calls! { SYS_get_mempolicy SYS_mbind SYS_set_mempolicy SYS_migrate_pages SYS_move_pages }),
    #[cfg(target_arch = "x86_64")]
    ("SYS_RAWIO", calls! { SYS_ioperm SYS_iopl }),
    ("SYSLOG", calls! { SYS_syslog }),
    ("BPF", calls! { SYS_bpf }),
    ("PERFMON", calls! { SYS_perf_event_open }),
];

/// Calls that exist and are refused: programs expect to hear "not permitted".
const REFUSED: &[i64] = calls! {
    SYS_add_key SYS_keyctl SYS_request_key SYS_kexec_file_load SYS_kexec_load SYS_nfsservctl SYS_pivot_root SYS_swapoff
    SYS_swapon SYS_userfaultfd
};

/// Those of them that only this architecture has.
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[i64] = calls! { SYS_ioperm SYS_iopl SYS_sysfs SYS_uselib SYS_ustat };
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[i64] = &[];

/// The namespaces `clone` could make: only for those who may administrate.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];
/// Sockets that no container gets: of the hypervisor, which knows no namespaces, and of the kernel's ciphers, which work on
/// pages of files that containers share (CVE-2026-31431).
const FAMILIES_REFUSED: [i32; 2] = [libc::AF_VSOCK, libc::AF_ALG];
/// Persona of ordinary programs, of 32-bit ones, without address randomisation, and the question "which?".
const PERSONAS: [u64; 5] = [0, 8, 0x2_0000, 0x2_0008, 0xffff_ffff];

/// The filters of this instance, on disk where shims can read them.
#[derive(Debug)]
pub(crate) struct Filters {
    dir: PathBuf,
    made: Mutex<BTreeMap<u64, Vec<PathBuf>>>,
}

impl Filters {
    /// Filters that are kept in `dir`, which is made when first needed.
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir, made: Mutex::default() }
    }

    /// The filters for these capabilities, in the order they are to be installed. Compiled once; named by their
    /// content, so that an upgraded agent and a shim of old never mean different filters by one name.
    pub(crate) fn for_capabilities(&self, capabilities: Capabilities) -> io::Result<Vec<PathBuf>> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(files) = made.get(&capabilities.0) {
            return Ok(files.clone());
        }
        crate::shim::records::make_dir(&self.dir)?;
        let mut files = Vec::new();
        for program in compile(capabilities).map_err(io::Error::other)? {
            let bytes = bytes(&program);
            let file = self.dir.join(format!("{}.bpf", crate::image::Digest::of(&bytes).hex()));
            crate::shim::records::replace(&file, &bytes)?;
            files.push(file);
        }
        made.insert(capabilities.0, files.clone());
        Ok(files)
    }
}

/// Reads a compiled filter, which must still be what its name says: half a filter would let through what it should not.
pub(super) fn read(file: &Path) -> Result<Vec<u8>, SetupError> {
    let bytes = std::fs::read(file).doing(|| format!("read seccomp filter {}", file.display()))?;
    let name = file.file_stem().and_then(|name| name.to_str());
    match name == Some(crate::image::Digest::of(&bytes).hex().as_str()) {
        true => Ok(bytes),
        false => Err(SetupError(format!("seccomp filter {} is damaged", file.display()))),
    }
}

fn compile(capabilities: Capabilities) -> Result<[BpfProgram; 2], seccompiler::BackendError> {
    let mut allowed: BTreeMap<i64, Vec<SeccompRule>> =
        EVERYDAY.iter().chain(EVERYDAY_HERE).map(|call| (*call, vec![])).collect();
    let personas = PERSONAS.iter().map(|persona| argument(0, SeccompCmpOp::Eq, *persona));
    allowed.insert(libc::SYS_personality, personas.collect::<Result<_, _>>()?);

    let mut refused: BTreeMap<i64, Vec<SeccompRule>> =
        REFUSED.iter().chain(REFUSED_HERE).map(|call| (*call, vec![])).collect();
    let is_family = |family: i32| argument(0, SeccompCmpOp::Eq, bits(family));
    refused.insert(libc::SYS_socket, FAMILIES_REFUSED.into_iter().map(is_family).collect::<Result<_, _>>()?);
    let has_flag = |flag: i32| argument(0, SeccompCmpOp::MaskedEq(bits(flag)), bits(flag));
    refused.insert(libc::SYS_clone, NAMESPACES.into_iter().map(has_flag).collect::<Result<_, _>>()?);
    // Pipes, sockets and files may be made by mknod; devices may not, or any disk could be read by its number.
    let device = |index| -> Result<Vec<_>, _> {
        let kind = |kind: u32| argument(index, SeccompCmpOp::MaskedEq(libc::S_IFMT.into()), kind.into());
        [libc::S_IFCHR, libc::S_IFBLK].into_iter().map(kind).collect()
    };
    #[cfg(target_arch = "x86_64")]
    refused.insert(libc::SYS_mknod, device(1)?);
    refused.insert(libc::SYS_mknodat, device(2)?);

    for (name, calls) in BY_CAPABILITY {
        for call in *calls {
            if capabilities.has(name) {
                allowed.insert(*call, vec![]);
                refused.remove(call);
            } else if !allowed.contains_key(call) && *call != libc::SYS_clone3 {
                // clone3 passes its flags by pointer, where no filter can look. "No such call" makes the C library
                // use clone instead.
                refused.insert(*call, vec![]);
            }
        }
    }
    let architecture = std::env::consts::ARCH.try_into()?;
    let no_such_call = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    let not_permitted = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let allow = SeccompFilter::new(allowed, no_such_call, SeccompAction::Allow, architecture)?;
    let refuse = SeccompFilter::new(refused, SeccompAction::Allow, not_permitted, architecture)?;
    Ok([allow.try_into()?, refuse.try_into()?])
}

fn argument(index: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(vec![SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, value)?])
}

fn bits(flag: i32) -> u64 {
    flag.cast_unsigned().into()
}

fn bytes(program: &BpfProgram) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(program.len() * 8);
    for instruction in program {
        bytes.extend(instruction.code.to_ne_bytes());
        bytes.extend([instruction.jt, instruction.jf]);
        bytes.extend(instruction.k.to_ne_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::plan::tests::spec;
    use super::*;

    #[test]
    fn the_profile_compiles_and_fits_the_kernel() {
        for capabilities in [Capabilities::of(&spec()), Capabilities::all(), Capabilities(0)] {
            for program in compile(capabilities).unwrap() {
                assert!(program.len() < 4096, "{} instructions", program.len());
            }
        }
    }

    #[test]
    fn files_are_shared_by_containers_that_need_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let filters = Filters::new(dir.path().join("seccomp"));
        let usual = filters.for_capabilities(Capabilities::of(&spec())).unwrap();
        let fewer = filters.for_capabilities(Capabilities(Capabilities::of(&spec()).0 & !1)).unwrap();
        let other = filters.for_capabilities(Capabilities::all()).unwrap();
        assert_eq!(usual, fewer, "CHOWN opens no call");
        assert_ne!(usual, other);
        assert!(std::fs::read(&usual[0]).unwrap().len().is_multiple_of(8));
    }

    /// [SE-111] A filter that is not what it was written as is not installed.
    #[test]
    fn filter_that_is_cut_or_changed_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = Filters::new(dir.path().join("seccomp")).for_capabilities(Capabilities(0)).unwrap().remove(0);
        let whole = std::fs::read(&file).unwrap();
        assert_eq!(read(&file).unwrap(), whole);
        let mut flipped = whole.clone();
        flipped[9] ^= 1;
        for damaged in [&whole[..whole.len() - 8], &flipped, &[]] {
            std::fs::write(&file, damaged).unwrap();
            assert_eq!(read(&file).unwrap_err().to_string(), format!("seccomp filter {} is damaged", file.display()));
        }
    }
}
