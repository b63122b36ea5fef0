//! The small process that stays with a pod when the agent is away.
//!
//! One per pod, our own binary run again, one thread. It *is* the pod's sandbox: it lives in the pod's network,
//! IPC and host name namespaces, containers are born into them, and they vanish with the last process of the pod.
//! It collects every child, keeps output flowing into logs and writes exits to disk before it tells of them.
//!
//! Read next: `protocol` for what it can be asked, `serve` for its loop, `reaper` for how things end.

mod attach;
mod child;
mod first_of_pod;
mod hook_output;
pub(crate) mod logs;
pub(crate) mod protocol;
mod reaper;
pub(crate) mod records;
mod requests;
mod retry;
mod serve;
pub(crate) mod spares;
mod sysctl;
mod tether;

use std::ffi::{CString, OsString};
use std::fs;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::thread::UnshareFlags;

use crate::container::{Doing, SetupError};
use crate::sys::{descriptors, mount, signal};
use records::{PodDir, SandboxRecord};
use serve::Shim;

/// The word that turns our binary into a shim.
pub(crate) const COMMAND: &str = "shim";
/// The last to be killed for want of memory, as upstream has it for its own parts.
const OOM_SCORE: &str = "-999";

/// Where the shim finds its listening socket.
const LISTENER: i32 = 3;

/// Serves as a shim if this process was started as one (`PROGRAM shim DIRECTORY`).
///
/// To be called first in `main`, before any thread, async runtime or logging exists: a shim clones itself, which only
/// a process with one thread can do well, and every page it does not touch is shared by all pods.
pub(crate) fn run_if_asked() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != COMMAND {
        return None;
    }
    Some(match run(arguments.next()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    })
}

fn run(directory: Option<OsString>) -> Result<(), SetupError> {
    // Where its pod is short of memory, a process of a container ends and not the sandbox with all of them. Who may not say so
    // takes the chance.
    let _ = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE);
    let listener =
        descriptors::inherited(LISTENER).doing(|| "take over the listening socket".to_owned()).inspect_err(say)?;
    // Said while the socket is open: once it closes the agent looks for the reason.
    let (pod, record, signals, host_mounts) = make_sandbox(directory, &listener).inspect_err(say)?;
    Shim::new(pod, record, listener, signals, host_mounts).serve().inspect_err(say)
}

/// Standard error is the pod's shim.log; the agent reads it if the shim never says hello.
///
/// What cannot be said, for want of room on the disk, is not worth a pod: `eprintln!` would end this process.
fn say(words: &impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{words}");
}

fn make_sandbox(
    directory: Option<OsString>,
    listener: &OwnedFd,
) -> Result<(PodDir, SandboxRecord, OwnedFd, OwnedFd), SetupError> {
    let directory = directory.map(PathBuf::from).ok_or_else(|| SetupError("no pod directory given".to_owned()))?;
    descriptors::close_from(LISTENER.cast_unsigned() + 1).doing(|| "close descriptors".to_owned())?;
    rustix::io::fcntl_setfd(listener, rustix::io::FdFlags::CLOEXEC).doing(|| "keep the socket".to_owned())?;
    rustix::process::chdir(&directory).doing(|| format!("enter {}", directory.display()))?;
    let pod = PodDir { path: directory };
    let record: SandboxRecord =
        records::read(&pod.sandbox()).ok_or_else(|| SetupError(format!("cannot read {}", pod.sandbox().display())))?;
    let signals = settle()?;
    let host_mounts = rustix::fs::open("/proc/self/ns/mnt", rustix::fs::OFlags::CLOEXEC, rustix::fs::Mode::empty())
        .doing(|| "open the host's mount namespace".to_owned())?;
    make_namespaces(&pod, &record)?;
    Ok((pod, record, signals, host_mounts))
}

/// Makes this process deaf to everything but its children, and closed to the curious.
fn settle() -> Result<OwnedFd, SetupError> {
    for ignored in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGPIPE] {
        signal::ignore(ignored);
    }
    signal::block_only(&[libc::SIGCHLD]).doing(|| "block SIGCHLD".to_owned())?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).doing(|| "become a subreaper".to_owned())?;
    // A process that joins a container must not be traced from inside it.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
        .doing(|| "become undumpable".to_owned())?;
    let _ = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let _ = rustix::thread::set_name(c"adieu-shim");
    signal::descriptor(&[libc::SIGCHLD]).doing(|| "watch SIGCHLD".to_owned())
}

fn make_namespaces(pod: &PodDir, record: &SandboxRecord) -> Result<(), SetupError> {
    let mut spaces = UnshareFlags::NEWNS | UnshareFlags::NEWUTS;
    spaces.set(UnshareFlags::NEWNET, !record.spec.host_network);
    spaces.set(UnshareFlags::NEWIPC, !record.spec.host_ipc);
    mount::unshare(spaces).doing(|| "make the pod's namespaces".to_owned())?;
    // Mounts of the host come in, ours never go out.
    rustix::mount::mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM)
        .doing(|| "make the mount namespace private".to_owned())?;
    let in_memory = |at: &Path, options: &str| {
        records::make_dir(at).doing(|| format!("make {}", at.display()))?;
        let options = CString::new(options).map_err(|_| SetupError("zero byte in mount options".to_owned()))?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        let flags = if at == pod.shm() { flags | MountFlags::NOEXEC } else { flags };
        rustix::mount::mount("tmpfs", at, "tmpfs", flags, options.as_c_str())
            .doing(|| format!("mount {} in memory", at.display()))
    };
    if !record.spec.host_ipc {
        in_memory(&pod.shm(), "mode=1777,size=65536k")?;
    }
    for volume in &record.spec.memory_volumes {
        let size = volume.size_bytes.map(|bytes| format!(",size={bytes}")).unwrap_or_default();
        let group = volume.group.map(|group| format!(",gid={group}")).unwrap_or_default();
        // Sticky, as a file system in memory is when nobody says otherwise: in it, what is one user's only that user removes.
        let mode = if volume.group.is_some() { "3777" } else { "1777" };
        in_memory(&pod.memory_volume(&volume.name), &format!("mode={mode}{size}{group}"))?;
    }
    rustix::system::sethostname(record.spec.hostname.as_bytes()).doing(|| "set the host name".to_owned())?;
    if !record.spec.host_network {
        // Ports below 1024 and ping need no privilege in a network of one's own. Older kernels know one less.
        let _ = fs::write(Path::new("/proc/sys/net/ipv4/ip_unprivileged_port_start"), "0");
        let _ = fs::write(Path::new("/proc/sys/net/ipv4/ping_group_range"), "0 2147483647");
    }
    record.spec.sysctls.iter().try_for_each(|(name, value)| sysctl::set(&record.spec, name, value))
}
