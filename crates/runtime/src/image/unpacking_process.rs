//! The process that unpacks one layer, and what it gives up before it reads the first byte of it.
//!
//! Its root becomes the directory that the layer goes into, so that there is nothing else it could write to. It has no
//! network, no other capabilities than those that make files of any owner and kind, no way to gain more, no other system
//! calls than those it needs, a bound on its memory and on its files, and it ends with whoever asked for it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use rustix::fs::CWD;
use rustix::mount::{MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags};
use rustix::process::{DumpableBehavior, Resource, Rlimit, Signal};
use rustix::thread::UnshareFlags;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

use super::error::ImageError;
use super::incoming::{Limits, Section};
use super::layer;
use super::tree::Tree;
use super::unpacker::{COMMAND, Task, Told};
use crate::container::capabilities::Capabilities;
use crate::sys::{descriptors, mount, signal};

/// Decoders keep a window of what they wrote; nothing else here is large.
const MEMORY_BYTES_MAX: u64 = 256 << 20;
/// The directories on the way to a file that is deleted, and a few.
const DESCRIPTORS_MAX: u64 = 128;
/// Files of any owner, mode and kind, with their attributes. The last one is for the mark of a directory that hides what is
/// below it; of what else it allows, nothing passes the filter.
const CAPABILITIES: [&str; 7] = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "MKNOD", "SETFCAP", "SYS_ADMIN"];

/// Whoever makes another kills the process.
const CALLS: [i64; 48] = [
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fchdir,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_futex,
    libc::SYS_getdents64,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_linkat,
    libc::SYS_lseek,
    libc::SYS_lsetxattr,
    libc::SYS_madvise,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_pread64,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_renameat2,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_yield,
    libc::SYS_sigaltstack,
    libc::SYS_statx,
    libc::SYS_symlinkat,
    libc::SYS_tgkill,
    libc::SYS_umask,
    libc::SYS_unlinkat,
    libc::SYS_utimensat,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Unpacks a layer if this process was started for that (`PROGRAM unpack-layer TASK`).
pub(crate) fn run_if_asked() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != COMMAND {
        return None;
    }
    let task = arguments.next().and_then(|text| serde_json::from_str::<Task>(text.to_str()?).ok());
    Some(task.map_or(ExitCode::FAILURE, |task| run(&task)))
}

fn run(task: &Task) -> ExitCode {
    let told = match confine(&task.into, task.limits) {
        Ok((blob, tree)) => {
            let blob = Section::new(Arc::new(blob), task.start, task.length);
            match layer::unpack(blob, task.layer, tree, task.limits, &|advance| tell(&Told::Advanced(advance))) {
                Ok(unpacked) => Told::Unpacked(unpacked),
                Err(error) => of_error(error),
            }
        }
        Err(error) => Told::Unconfined { why: error.to_string() },
    };
    tell(&told);
    ExitCode::SUCCESS
}

fn of_error(error: ImageError) -> Told {
    match error {
        ImageError::Hostile { path, why, .. } => Told::Hostile { path, why },
        ImageError::Layer { why, .. } => Told::Broken { why },
        ImageError::TooLarge { what, limit_bytes } => Told::TooLarge { what, limit: limit_bytes },
        other @ (ImageError::Name { .. }
        | ImageError::Absent { .. }
        | ImageError::NotAnArchive { .. }
        | ImageError::Broken { .. }
        | ImageError::Platform { .. }
        | ImageError::Mismatch { .. }
        | ImageError::Unpacker { .. }
        | ImageError::NoRoom { .. }
        | ImageError::InUse { .. }
        | ImageError::Uses { .. }
        | ImageError::Input { .. }
        | ImageError::Store { .. }
        | ImageError::Broke { .. }) => Told::Broken { why: other.to_string() },
    }
}

/// Whoever does not listen any more has ended, and this process with it.
fn tell(told: &Told) {
    let Ok(mut line) = serde_json::to_vec(told) else { return };
    line.push(b'\n');
    let _ = io::stdout().lock().write_all(&line).and_then(|()| io::stdout().flush());
}

/// Becomes a process that can do nothing but unpack into `into`. Returns the blob and the tree.
fn confine(into: &Path, limits: Limits) -> io::Result<(File, Tree)> {
    descriptors::close_from(3)?;
    signal::reset_all()?;
    // What exceeds the limit of a file is an error, not the end.
    signal::ignore(libc::SIGXFSZ);
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let _ = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let blob = File::from(descriptors::inherited(0)?);
    bound(limits)?;
    let filter = filter().map_err(io::Error::other)?;
    enter(into)?;
    let tree = Tree::open(Path::new("/"))?;
    let capabilities = Capabilities::named(&CAPABILITIES);
    capabilities.limit().and_then(|()| capabilities.assume()).map_err(io::Error::other)?;
    rustix::thread::set_no_new_privs(true)?;
    // A change of capabilities takes it back, so this comes behind it.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    seccompiler::apply_filter(&filter).map_err(io::Error::other)?;
    Ok((blob, tree))
}

fn bound(limits: Limits) -> io::Result<()> {
    for (resource, most) in [
        (Resource::Data, MEMORY_BYTES_MAX),
        (Resource::Fsize, limits.bytes_max),
        (Resource::Nofile, DESCRIPTORS_MAX),
        (Resource::Core, 0),
        (Resource::Memlock, 0),
    ] {
        rustix::process::setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    Ok(())
}

/// Makes `into` the root of this process, in namespaces that hold nothing else.
fn enter(into: &Path) -> io::Result<()> {
    mount::unshare(
        UnshareFlags::NEWNS
            | UnshareFlags::NEWNET
            | UnshareFlags::NEWIPC
            | UnshareFlags::NEWUTS
            | UnshareFlags::NEWCGROUP,
    )?;
    rustix::mount::mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    let root = rustix::mount::open_tree(CWD, into, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
    let nothing_special = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOEXEC;
    mount::set_attributes(&root, nothing_special, libc::MS_PRIVATE, false)?;
    rustix::mount::move_mount(root.as_fd(), "", CWD, into, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    rustix::process::fchdir(&root)?;
    rustix::process::pivot_root(".", ".")?;
    rustix::mount::unmount(".", UnmountFlags::DETACH)?;
    rustix::process::chdir("/")?;
    Ok(())
}

fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let allowed: BTreeMap<_, _> = CALLS.iter().map(|call| (*call, vec![])).collect();
    let architecture = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(allowed, SeccompAction::KillProcess, SeccompAction::Allow, architecture)?.try_into()
}
