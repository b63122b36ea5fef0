//! What a shim knows of its containers and of each child it has.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::Instant;

use crate::cgroup::ContainerCgroup;
use crate::container::exec::Host;
use crate::container::identity::Identity;
use crate::container::plan::ContainerPlan;
use crate::contract::{ContainerId, ExitRecord};
use crate::shim::attach::Attached;
use crate::shim::logs::{Log, Pump};
use crate::shim::records::StartedRecord;
use crate::sys::process::Spawned;

/// A container that has not been reported as exited.
#[derive(Debug)]
pub(super) struct Container {
    pub(super) plan: ContainerPlan,
    pub(super) cgroup: ContainerCgroup,
    pub(super) process: Spawned,
    pub(super) identity: Option<Identity>,
    pub(super) seccomp: Vec<Vec<u8>>,
    /// Its `/dev/null`, for execs.
    pub(super) null: Option<OwnedFd>,
    pub(super) log: Log,
    pub(super) pumps: Vec<Pump>,
    /// Held so that standard input stays open.
    pub(super) stdin: Option<OwnedFd>,
    /// Who listens to its output.
    pub(super) attached: Vec<Attached>,
    /// Who did until a moment ago, and has yet to be told.
    pub(super) detached: Vec<PendingRequest>,
    /// Where the kernel tells that it lacks memory; see [`Shim::settle_ooms`](super::serve::Shim).
    pub(super) oom_events: Option<OwnedFd>,
    /// It was told so, and may be about to kill one process of many: until then the victim is looked for.
    pub(super) oom_expected: Option<Instant>,
    pub(super) phase: Phase,
    /// Since when its program runs; also known where the disk had no room for it.
    pub(super) started: Option<StartedRecord>,
    /// Its end could not be written to disk yet.
    pub(super) unrecorded: bool,
    /// What was asked for and could not be applied.
    pub(super) warnings: Vec<String>,
    /// Signals it was sent, and when, on the boot clock. An agent that did not live to hear the answer asks again, and is told.
    pub(super) sent: BTreeMap<u8, u64>,
    /// All of it was killed, by us.
    pub(super) killed: bool,
}

/// Where a container stands.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Phase {
    /// Being set up; signals wait until there is a program to take them. Left when `execve` succeeds or fails.
    Starting { signals: Vec<u8> },
    /// Its program runs. Left when its first process is collected.
    Running,
    /// Its first process ended. Left when nothing else of it lives and the record is on disk.
    Ending(ExitRecord),
}

impl Container {
    /// Kills all of it.
    pub(super) fn kill(&mut self) -> std::io::Result<()> {
        self.killed = true;
        self.cgroup.kill()
    }

    /// It was killed, or its first process is on its way out. The kernel kills all others of a process namespace before
    /// the first one can be collected, so that their ends are seen before its own.
    pub(super) fn is_ending(&self) -> bool {
        self.killed || matches!(self.phase, Phase::Ending(_)) || is_exiting(self.process.pid)
    }

    /// What an exec needs to join it; `None` unless it runs.
    pub(super) fn host(&self) -> Option<Host<'_>> {
        use std::os::fd::AsFd;
        match &self.phase {
            Phase::Running => Some(Host {
                plan: &self.plan,
                identity: self.identity.as_ref()?,
                first_process: self.process.pidfd.as_fd(),
                null: self.null.as_ref()?.as_fd(),
                cgroup: &self.cgroup,
                seccomp: &self.seccomp,
            }),
            Phase::Starting { .. } | Phase::Ending(_) => None,
        }
    }
}

/// A connection and the number of the request it waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PendingRequest {
    pub(super) client: u64,
    pub(super) number: u64,
}

/// A process this shim made.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) role: Role,
    /// Open until `execve` or the child's end.
    pub(super) progress: Option<OwnedFd>,
    /// It said that only `execve` is left.
    pub(super) ready: bool,
    pub(super) failure: Option<String>,
    /// Who waits to hear that it runs.
    pub(super) askers: Vec<PendingRequest>,
    /// To be passed on with the answer.
    pub(super) streams: Vec<OwnedFd>,
}

impl Child {
    pub(super) fn new(role: Role, progress: OwnedFd) -> Self {
        Self { progress: Some(progress), ..Self::without_progress(role) }
    }

    /// A child that becomes no program and says nothing.
    pub(super) fn without_progress(role: Role) -> Self {
        Self { role, progress: None, ready: false, failure: None, askers: Vec::new(), streams: Vec::new() }
    }
}

/// What a child is for.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Role {
    /// The first process of a container.
    First(ContainerId),
    /// An exec, for whoever asked.
    Exec(PendingRequest),
    /// The first process of the pid namespace that all containers share.
    FirstOfPod,
    /// A hook, for whoever will be there to hear of it.
    Hook { id: ContainerId, hook: String, cancelled: bool },
}

/// Whether the kernel has begun to end a process, which may take until all others of its namespace are dead.
fn is_exiting(pid: i32) -> bool {
    const PF_EXITING: u64 = 0x4;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in brackets may hold anything; the flags are the seventh word after it.
    let flags = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(6)?.parse::<u64>().ok());
    // Whoever cannot be found has ended.
    flags.is_none_or(|flags| flags & PF_EXITING != 0)
}
