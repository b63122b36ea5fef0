//! The first process of a container.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::pipe::PipeFlags;
use rustix::thread::{ThreadNameSpaceType, UnshareFlags};

use super::identity::Identity;
use super::last_steps::LastSteps;
use super::plan::ContainerPlan;
use super::progress::{self, Progress};
use super::stdio::{self, ChildEnds};
use super::{Doing, SetupError, keyring, mounts, rootfs, seccomp, words};
use crate::cgroup::ContainerCgroup;
use crate::contract::{Propagation, SandboxSpec};
use crate::shim::records::PodDir;
use crate::sys::process::Spawned;
use crate::sys::{descriptors, mount, process, signal};

/// A first process on its way; [`Progress`] messages tell how far it is.
#[derive(Debug)]
pub(crate) struct Created {
    pub(crate) process: Spawned,
    pub(crate) progress: OwnedFd,
    /// Read ends to be kept in the log; a terminal's master comes by [`Progress::Terminal`] instead.
    pub(crate) output: Option<(OwnedFd, OwnedFd)>,
    /// Held so that the container's standard input stays open.
    pub(crate) stdin: Option<OwnedFd>,
    /// Filters to be installed in every exec too.
    pub(crate) seccomp: Vec<Vec<u8>>,
}

/// The pod a container is made in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surroundings<'a> {
    pub(crate) pod: &'a PodDir,
    pub(crate) sandbox: &'a SandboxSpec,
    /// The mount namespace the shim was born in.
    pub(crate) host_mounts: BorrowedFd<'a>,
    /// A process of the pid namespace that it is born into, if not into one of its own: the first of the pod or of
    /// another container.
    pub(crate) beside: Option<BorrowedFd<'a>>,
    /// Which devices it may use is for its control group to say.
    pub(crate) devices_are_confined: bool,
}

/// Starts making a container: clones this process into the container's cgroup and namespaces.
///
/// The pod's network, IPC and host name namespaces are the shim's own, so the child has them by birth.
pub(crate) fn create(
    around: &Surroundings<'_>,
    plan: &ContainerPlan,
    cgroup: &ContainerCgroup,
) -> Result<Created, SetupError> {
    let seccomp = plan.seccomp.iter().map(|file| seccomp::read(file)).collect::<Result<Vec<_>, _>>()?;
    let (ours, theirs) = progress::channel()?;
    let (ends, output, stdin) = if plan.spec.tty {
        (ChildEnds::placeholders()?, None, None)
    } else {
        let streams = pipes(plan.spec.stdin)?;
        (streams.child, Some(streams.output), streams.stdin)
    };
    let directory = cgroup.open().doing(|| "open the container's cgroup".to_owned())?;
    let own_pids = !around.sandbox.host_pid && around.beside.is_none();
    let namespaces = libc::CLONE_NEWNS | if own_pids { libc::CLONE_NEWPID } else { 0 };
    // Nothing of the host is within reach of a child that does not need it.
    let host_mounts = needs_host_mounts(plan).then_some(around.host_mounts);
    let clone = || {
        process::clone_into(namespaces, directory.as_fd(), || {
            let error = match stdio::lay_out(&ends, theirs.as_fd(), host_mounts) {
                Ok(()) => set_up(around, plan, cgroup, &seccomp),
                Err(error) => error,
            };
            progress::tell(descriptors::agreed(stdio::PROGRESS), &Progress::failed(error));
            1
        })
        .doing(|| "clone".to_owned())
    };
    let process = match around.beside {
        Some(other) => born_beside(other, clone)?,
        None => clone()?,
    };
    Ok(Created { process, progress: ours, output, stdin, seccomp })
}

/// Runs in the child; returns only with the reason why the program does not run.
fn set_up(
    around: &Surroundings<'_>,
    plan: &ContainerPlan,
    cgroup: &ContainerCgroup,
    seccomp: &[Vec<u8>],
) -> SetupError {
    match enter_container(around, plan, cgroup) {
        Ok(identity) => LastSteps {
            argv: &plan.argv,
            env: &plan.env,
            cwd: &plan.cwd,
            identity: &identity,
            capabilities: plan.capabilities,
            no_new_privileges: plan.spec.no_new_privileges,
            seccomp,
        }
        .take(),
        Err(error) => error,
    }
}

fn enter_container(
    around: &Surroundings<'_>,
    plan: &ContainerPlan,
    cgroup: &ContainerCgroup,
) -> Result<Identity, SetupError> {
    signal::reset_all().doing(|| "reset signals".to_owned())?;
    rustix::process::setsid().doing(|| "make a session".to_owned())?;
    keyring::leave_inherited()?;
    let _ = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    cgroup.join_v1()?;
    // Only after joining: the namespace's root is wherever the process stands.
    mount::unshare(UnshareFlags::NEWCGROUP).doing(|| "make a cgroup namespace".to_owned())?;
    let progress = descriptors::agreed(stdio::PROGRESS);
    if let Err(message) = set_oom_score(plan) {
        progress::tell(progress, &Progress::Warning { message });
    }
    let layers: Vec<_> = plan.layers.iter().chain([&plan.base]).collect();
    let root = rootfs::mount(&around.pod.container(&plan.spec.id).path, &layers, plan.spec.privileged)?;
    let null = mounts::mount_all(&root, around, plan, cgroup)?;
    if needs_host_mounts(plan) {
        descriptors::close_agreed(stdio::HOST_MOUNTS);
    }
    crate::wire::send(progress, &Progress::Null, &[null.as_fd()]).doing(|| "pass /dev/null on".to_owned())?;
    if !plan.spec.tty && !plan.spec.stdin {
        rustix::stdio::dup2_stdin(&null).doing(|| "use /dev/null".to_owned())?;
    }
    rootfs::enter(&root, plan.spec.read_only_root, &plan.cwd)?;
    drop(root);
    let identity = Identity::resolve(&plan.user, &plan.spec)?;
    progress::tell(progress, &Progress::Identity(identity.clone()));
    if plan.spec.tty {
        stdio::open_terminal(&identity, progress)?;
    } else {
        stdio::give_to(&identity);
    }
    Ok(identity)
}

/// Whether a volume is to pass mounts on to the host, which only a mount of the host's own can.
fn needs_host_mounts(plan: &ContainerPlan) -> bool {
    plan.spec.mounts.iter().any(|mount| mount.propagation == Propagation::Bidirectional)
}

/// Tells the kernel how readily to kill this process. Lowering needs a privilege that few machines withhold.
pub(crate) fn set_oom_score(plan: &ContainerPlan) -> Result<(), String> {
    // Never the shim's own, which it is born with.
    let score = plan.spec.oom_score_adj.unwrap_or(0);
    let written = std::fs::write("/proc/self/oom_score_adj", score.to_string());
    if plan.spec.oom_score_adj.is_none() {
        return Ok(());
    }
    written.map_err(|error| format!("oom_score_adj={score} is not applied: {}", words(&error)))
}

/// Has a child born into the pid namespace of another process.
///
/// Entering a pid namespace changes only where future children are born, so it is undone right after the birth.
pub(crate) fn born_beside<T>(
    process: BorrowedFd<'_>,
    birth: impl FnOnce() -> Result<T, SetupError>,
) -> Result<T, SetupError> {
    let own = rustix::fs::open("/proc/self/ns/pid", rustix::fs::OFlags::CLOEXEC, rustix::fs::Mode::empty())
        .doing(|| "open own pid namespace".to_owned())?;
    let enter =
        |space: BorrowedFd<'_>| rustix::thread::move_into_thread_name_spaces(space, ThreadNameSpaceType::PROCESS_ID);
    enter(process).doing(|| "enter the container's pid namespace".to_owned())?;
    let born = birth();
    enter(own.as_fd()).doing(|| "return to own pid namespace".to_owned())?;
    born
}

struct Pipes {
    child: ChildEnds,
    output: (OwnedFd, OwnedFd),
    stdin: Option<OwnedFd>,
}

fn pipes(keep_stdin: bool) -> Result<Pipes, SetupError> {
    let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC).doing(|| "make a pipe".to_owned());
    let (stdout, stdout_end) = pipe()?;
    let (stderr, stderr_end) = pipe()?;
    for read_end in [&stdout, &stderr] {
        rustix::io::ioctl_fionbio(read_end, true).doing(|| "make a pipe non-blocking".to_owned())?;
    }
    let (stdin_end, stdin) = if keep_stdin {
        let (read, write) = pipe()?;
        (read, Some(write))
    } else {
        // The container's own /dev/null takes its place once there is one.
        (stdio::placeholder()?, None)
    };
    let child = ChildEnds { stdin: stdin_end, stdout: stdout_end, stderr: stderr_end };
    Ok(Pipes { child, output: (stdout, stderr), stdin })
}
