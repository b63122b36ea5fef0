//! One more process in a running container: for `kubectl exec`, for probes and for hooks.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::pipe::PipeFlags;
use rustix::thread::ThreadNameSpaceType;

use super::create::{born_beside, set_oom_score};
use super::identity::Identity;
use super::last_steps::LastSteps;
use super::plan::ContainerPlan;
use super::progress::{self, Progress};
use super::stdio::{self, ChildEnds};
use super::{Doing, SetupError, keyring};
use crate::cgroup::ContainerCgroup;
use crate::contract::ExecSpec;
use crate::sys::process::Spawned;
use crate::sys::{descriptors, process, signal};

/// The running container that is joined.
#[derive(Debug)]
pub(crate) struct Host<'a> {
    pub(crate) plan: &'a ContainerPlan,
    pub(crate) identity: &'a Identity,
    pub(crate) first_process: BorrowedFd<'a>,
    /// Its own `/dev/null` as it was made: whatever the container puts in its place is nobody's to open from here.
    pub(crate) null: BorrowedFd<'a>,
    pub(crate) cgroup: &'a ContainerCgroup,
    pub(crate) seccomp: &'a [Vec<u8>],
}

/// An exec on its way.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) process: Spawned,
    pub(crate) progress: OwnedFd,
    /// The asker's ends of the streams that were asked for, in order; a terminal's master comes by
    /// [`Progress::Terminal`] instead.
    pub(crate) streams: Vec<OwnedFd>,
}

/// Starts a program in the container, in `cgroup` (the container's own, or one below it).
pub(crate) fn join(host: &Host<'_>, cgroup: &Path, spec: &ExecSpec) -> Result<Joined, SetupError> {
    let (ends, streams) = if spec.tty { (ChildEnds::placeholders()?, Vec::new()) } else { pipes(spec, host.null)? };
    join_with(host, cgroup, spec, &ends, streams)
}

/// The same, with all it writes in one stream, in the order in which it is written.
pub(crate) fn join_with_one_output(
    host: &Host<'_>,
    cgroup: &Path,
    command: Vec<String>,
) -> Result<(Joined, OwnedFd), SetupError> {
    let spec = ExecSpec { command, tty: false, stdin: false, stdout: false, stderr: false, tethered: false };
    let (mut ends, streams) = pipes(&spec, host.null)?;
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).doing(|| "make a pipe".to_owned())?;
    rustix::io::ioctl_fionbio(&read, true).doing(|| "make a pipe non-blocking".to_owned())?;
    ends.stdout = write.try_clone().doing(|| "use a pipe twice".to_owned())?;
    ends.stderr = write;
    Ok((join_with(host, cgroup, &spec, &ends, streams)?, read))
}

fn join_with(
    host: &Host<'_>,
    cgroup: &Path,
    spec: &ExecSpec,
    ends: &ChildEnds,
    streams: Vec<OwnedFd>,
) -> Result<Joined, SetupError> {
    let (ours, theirs) = progress::channel()?;
    let directory = crate::cgroup::open(cgroup).doing(|| "open the cgroup".to_owned())?;
    let process = born_beside(host.first_process, || {
        process::clone_into(0, directory.as_fd(), || {
            let error = match stdio::lay_out(ends, theirs.as_fd(), Some(host.first_process)) {
                Ok(()) => become_program(host, spec),
                Err(error) => error,
            };
            progress::tell(descriptors::agreed(stdio::PROGRESS), &Progress::failed(error));
            1
        })
        .doing(|| "clone".to_owned())
    })?;
    Ok(Joined { process, progress: ours, streams })
}

/// Runs in the child; returns only with the reason why the program does not run.
fn become_program(host: &Host<'_>, spec: &ExecSpec) -> SetupError {
    let mut env = host.plan.env.clone();
    if spec.tty && !env.iter().any(|(name, _)| name == "TERM") {
        env.push(("TERM".to_owned(), "xterm".to_owned()));
    }
    match enter_container(host, spec) {
        Ok(()) => LastSteps {
            argv: &spec.command,
            env: &env,
            cwd: &host.plan.cwd,
            identity: host.identity,
            capabilities: host.plan.capabilities,
            no_new_privileges: host.plan.spec.no_new_privileges,
            seccomp: host.seccomp,
        }
        .take(),
        Err(error) => error,
    }
}

fn enter_container(host: &Host<'_>, spec: &ExecSpec) -> Result<(), SetupError> {
    signal::reset_all().doing(|| "reset signals".to_owned())?;
    rustix::process::setsid().doing(|| "make a session".to_owned())?;
    keyring::leave_inherited()?;
    host.cgroup.join_v1()?;
    // What cannot be applied was told when the container was started.
    let _ = set_oom_score(host.plan);
    // The pod's other namespaces are the shim's own; these two are the container's.
    let spaces = ThreadNameSpaceType::MOUNT | ThreadNameSpaceType::CONTROL_GROUP;
    rustix::thread::move_into_thread_name_spaces(descriptors::agreed(stdio::CONTAINER), spaces)
        .doing(|| "enter the container's namespaces".to_owned())?;
    if spec.tty {
        stdio::open_terminal(host.identity, descriptors::agreed(stdio::PROGRESS))
    } else {
        stdio::give_to(host.identity);
        Ok(())
    }
}

fn pipes(spec: &ExecSpec, null: BorrowedFd<'_>) -> Result<(ChildEnds, Vec<OwnedFd>), SetupError> {
    let null = || null.try_clone_to_owned().doing(|| "use /dev/null".to_owned());
    let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC).doing(|| "make a pipe".to_owned());
    let mut streams = Vec::new();
    let stdin = if spec.stdin {
        let (read, write) = pipe()?;
        streams.push(write);
        read
    } else {
        null()?
    };
    let mut output = |wanted: bool| {
        if wanted {
            let (read, write) = pipe()?;
            streams.push(read);
            Ok(write)
        } else {
            null()
        }
    };
    let stdout = output(spec.stdout)?;
    let stderr = output(spec.stderr)?;
    Ok((ChildEnds { stdin, stdout, stderr }, streams))
}
