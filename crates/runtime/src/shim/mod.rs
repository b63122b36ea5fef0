//! The small process that stays with a pod when the agent is away.
//!
//! One per pod, our own binary run again, one thread. It *is* the pod's sandbox: it lives in the pod's network,
//! IPC and host name namespaces, containers are born into them, and they vanish with the last process of the pod.
//! It collects every child, keeps output flowing into logs and writes exits to disk before it tells of them.
//!
//! Read next: `protocol` for what it can be asked, `serve` for its loop, `reaper` for how things end.

mod child;
pub(crate) mod logs;
pub(crate) mod protocol;
mod reaper;
pub(crate) mod records;
mod requests;
mod serve;

use std::ffi::OsString;
use std::fs;
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
/// Where the shim finds its listening socket.
const LISTENER: i32 = 3;

/// Serves as a shim if this process was started as one (`PROGRAM shim DIRECTORY`).
///
/// To be called first in `main`, before any thread, async runtime or logging exists: a shim clones itself, which only
/// a process with one thread can do well, and every page it does not touch is shared by all pods.
pub fn run_if_asked() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != COMMAND {
        return None;
    }
    Some(match run(arguments.next()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Standard error is the pod's shim.log; the agent reads it if the shim never says hello.
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    })
}

fn run(directory: Option<OsString>) -> Result<(), SetupError> {
    let directory = directory.map(PathBuf::from).ok_or_else(|| SetupError("no pod directory given".to_owned()))?;
    let listener = descriptors::inherited(LISTENER).doing(|| "take over the listening socket".to_owned())?;
    descriptors::close_from(LISTENER.cast_unsigned() + 1).doing(|| "close descriptors".to_owned())?;
    rustix::io::fcntl_setfd(&listener, rustix::io::FdFlags::CLOEXEC).doing(|| "keep the socket".to_owned())?;
    rustix::process::chdir(&directory).doing(|| format!("enter {}", directory.display()))?;
    let pod = PodDir { path: directory };
    let record: SandboxRecord =
        records::read(&pod.sandbox()).ok_or_else(|| SetupError(format!("cannot read {}", pod.sandbox().display())))?;

    let signals = settle()?;
    make_namespaces(&pod, &record)?;
    Shim::new(pod, record, listener, signals).serve()
}

/// Makes this process deaf to everything but its children, and closed to the curious.
fn settle() -> Result<std::os::fd::OwnedFd, SetupError> {
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
    let mut spaces = UnshareFlags::NEWNS | UnshareFlags::NEWIPC | UnshareFlags::NEWUTS;
    spaces.set(UnshareFlags::NEWNET, !record.spec.host_network);
    mount::unshare(spaces).doing(|| "make the pod's namespaces".to_owned())?;
    // Mounts of the host come in, ours never go out.
    rustix::mount::mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM)
        .doing(|| "make the mount namespace private".to_owned())?;
    records::make_dir(&pod.shm()).doing(|| "make the pod's shared memory".to_owned())?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("shm", pod.shm(), "tmpfs", flags, c"mode=1777,size=65536k")
        .doing(|| "mount the pod's shared memory".to_owned())?;
    rustix::system::sethostname(record.spec.hostname.as_bytes()).doing(|| "set the host name".to_owned())?;
    if !record.spec.host_network {
        // Ports below 1024 and ping need no privilege in a network of one's own. Older kernels know one less.
        let _ = fs::write(Path::new("/proc/sys/net/ipv4/ip_unprivileged_port_start"), "0");
        let _ = fs::write(Path::new("/proc/sys/net/ipv4/ping_group_range"), "0 2147483647");
    }
    Ok(())
}
