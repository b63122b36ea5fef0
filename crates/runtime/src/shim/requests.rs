//! What a shim does when asked.

use super::child::{Child, Container, PendingRequest, Phase, Role};
use super::first_of_pod;
use super::hook_output::HookOutput;
use super::logs::{Log, Pump};
use super::protocol::{Answer, Request, ShimMessage};
use super::records::{self, StartedRecord, directory_name};
use super::serve::Shim;
use super::spares::{self, Spare};
use super::tether::Tether;
use crate::cgroup::{self, ContainerCgroup};
use crate::container::create::{self, Surroundings};
use crate::container::plan::ContainerPlan;
use crate::container::volume::shows_devices;
use crate::container::{Doing, SetupError, exec};
use crate::contract::{ContainerId, Delivery, ExecSpec, HookRecord, Resources};
use crate::sys::process::Spawned;
use crate::sys::signal;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

impl Shim {
    /// Does what is asked; descriptors that came along are for an exec.
    pub(super) fn handle(&mut self, asker: PendingRequest, request: Request, fds: Vec<OwnedFd>) {
        match request {
            Request::Start { id } => self.start(asker, &id),
            Request::Signal { id, signal, dated } => {
                let answer = self.signal(&id, signal);
                let answer = if dated { answer } else { without_date(answer) };
                self.answer(asker, answer);
            }
            Request::SetResources { id, resources } => {
                let answer = self.set_resources(&id, resources);
                self.answer(asker, answer);
            }
            Request::Kill { id } => {
                let killed = self.containers.get_mut(&id).map_or(Ok(()), Container::kill);
                self.answer(asker, done(killed.doing(|| "kill the container's cgroup".to_owned())));
            }
            Request::Exec { id, spec } => self.exec(asker, &id, &spec, fds.into_iter().next()),
            Request::Attach { id, spec } => self.attach(asker, &id, &spec),
            Request::RunHook { id, hook, command } => self.run_hook(asker, &id, &hook, command),
            Request::CancelHook { id, hook } => self.cancel_hook(asker, &id, &hook),
            Request::Shutdown => {
                self.closing = true;
                for container in self.containers.values_mut() {
                    let _ = container.kill();
                }
                self.answer(asker, Answer::Done);
            }
        }
    }

    fn start(&mut self, asker: PendingRequest, id: &ContainerId) {
        // Asked before, by this agent or by one that died: the answer is the same. The disk may not have taken it.
        let known = self.containers.get(id).and_then(|container| container.started.clone());
        let known = known.or_else(|| self.pod.container(id).begun());
        if let Some(StartedRecord { wall_ms, warnings }) = known {
            return self.answer(asker, Answer::Started { wall_ms, warnings });
        }
        if let Some(container) = self.containers.get(id) {
            if let Some(child) = self.children.get_mut(&container.process.pid) {
                child.askers.push(asker);
            }
            return;
        }
        if let Err(error) = self.make_container(asker, id) {
            self.answer(asker, Answer::Refused { message: error.0 });
        }
    }

    fn make_container(&mut self, asker: PendingRequest, id: &ContainerId) -> Result<(), SetupError> {
        if self.closing {
            return Err(SetupError("the pod is being removed".to_owned()));
        }
        let directory = self.pod.container(id);
        let plan: ContainerPlan = records::read(&directory.plan())
            .ok_or_else(|| SetupError(format!("cannot read {}", directory.plan().display())))?;
        if plan.spec.beside.as_ref().is_some_and(|name| self.running(name).is_none()) {
            self.answer(asker, Answer::NotRunning);
            return Ok(());
        }
        let log = Log::open(&self.pod.log(id), plan.spec.log).doing(|| "open the log".to_owned())?;
        // Before there is anything that ends.
        spares::make(&directory);
        let group = self.record.cgroup.below(&directory_name(id));
        let cgroup = ContainerCgroup::make(group, &plan.spec.resources, self.record.spec.pids_max)?;
        let shows_devices = plan.spec.mounts.iter().any(shows_devices);
        let devices_are_confined =
            !plan.spec.privileged && (plan.seccomp.is_empty() || plan.capabilities.exceed_default() || shows_devices);
        if devices_are_confined {
            cgroup.confine_devices()?;
        }
        self.share_pids()?;
        // Where processes are shared already, by the pod or with the host, there is nothing more to see.
        let other =
            plan.spec.beside.as_ref().filter(|_| !self.record.spec.host_pid).and_then(|name| self.running(name));
        let around = Surroundings {
            pod: &self.pod,
            sandbox: &self.record.spec,
            host_mounts: self.host_mounts.as_fd(),
            devices_are_confined,
            beside: self.first_of_pod.as_ref().or(other).map(|first| first.pidfd.as_fd()),
        };
        let created = match create::create(&around, &plan, &cgroup) {
            Ok(created) => created,
            Err(error) => {
                cgroup.remove();
                return Err(error);
            }
        };
        let mut child = Child::new(Role::First(id.clone()), created.progress);
        child.askers.push(asker);
        self.children.insert(created.process.pid, child);
        let pumps = created
            .output
            .map(|(stdout, stderr)| vec![Pump::new("stdout", stdout), Pump::new("stderr", stderr)])
            .unwrap_or_default();
        self.containers.insert(
            id.clone(),
            Container {
                plan,
                warnings: cgroup.warnings.clone(),
                oom_events: cgroup.oom_events(),
                oom_expected: None,
                cgroup,
                process: created.process,
                identity: None,
                seccomp: created.seccomp,
                null: None,
                log,
                pumps,
                stdin: created.stdin,
                attached: Vec::new(),
                detached: Vec::new(),
                phase: Phase::Starting { signals: Vec::new() },
                started: None,
                unrecorded: false,
                sent: BTreeMap::new(),
                killed: false,
            },
        );
        Ok(())
    }

    /// Makes sure of the first process of a pid namespace that is shared.
    fn share_pids(&mut self) -> Result<(), SetupError> {
        if self.record.spec.share_pids && !self.record.spec.host_pid && self.first_of_pod.is_none() {
            let first = first_of_pod::start(&self.pod, &self.record.cgroup)?;
            self.children.insert(first.pid, Child::without_progress(Role::FirstOfPod));
            self.first_of_pod = Some(first);
        }
        Ok(())
    }

    fn signal(&mut self, id: &ContainerId, number: u8) -> Answer {
        let Some(container) = self.containers.get_mut(id) else {
            let known = self.pod.container(id).exit().exists();
            return if known { Answer::Signalled(Delivery::AlreadyGone) } else { Answer::NotRunning };
        };
        let (is_news, is_ending) = (!container.sent.contains_key(&number), container.is_ending());
        match &mut container.phase {
            Phase::Starting { signals } => {
                if !signals.contains(&number) {
                    signals.push(number);
                }
                Answer::Signalled(Delivery::Delivered)
            }
            Phase::Ending(_) => Answer::Signalled(Delivery::AlreadyGone),
            // On its way out already, by itself or by its hook: the kernel would take a signal that nobody can hear.
            Phase::Running if is_news && is_ending => Answer::Signalled(Delivery::AlreadyGone),
            Phase::Running => deliver(container, number),
        }
    }

    /// On disk before it is told: an agent that comes back looks there for what a container has.
    fn set_resources(&mut self, id: &ContainerId, resources: Resources) -> Answer {
        let running = self.containers.get_mut(id).filter(|container| container.phase == Phase::Running);
        let Some(container) = running else { return Answer::NotRunning };
        let mut plan = container.plan.clone();
        let before = std::mem::replace(&mut plan.spec.resources, resources);
        let changed = container.cgroup.change(&before, &plan.spec.resources);
        let recorded = changed.and_then(|warnings| {
            let written = records::write(&self.pod.container(id).plan(), &plan);
            written.doing(|| "record what the container was given".to_owned()).map(|()| warnings)
        });
        match recorded {
            Ok(warnings) => {
                container.plan = plan;
                container.oom_events = container.oom_events.take().or_else(|| container.cgroup.oom_events());
                Answer::ResourcesSet { warnings }
            }
            Err(error) => {
                // What is not on disk is not what it has; of a change that failed half-way, too.
                let _ = container.cgroup.change(&plan.spec.resources, &before);
                Answer::Refused { message: error.0 }
            }
        }
    }

    fn exec(&mut self, asker: PendingRequest, id: &ContainerId, spec: &ExecSpec, held: Option<OwnedFd>) {
        let Some(host) = self.containers.get(id).and_then(Container::host) else {
            return self.answer(asker, Answer::NotRunning);
        };
        let tether = held.map(|held| Tether::make(asker, held, &host.cgroup.v2())).transpose();
        let joined = tether.doing(|| "make a cgroup for the program".to_owned()).and_then(|tether| {
            let group = tether.as_ref().map_or_else(|| host.cgroup.v2(), |tether| tether.group.clone());
            // Kept whether or not it can be joined: a group that stayed empty is removed like any other.
            let joined = exec::join(&host, &group, spec);
            self.tethers.extend(tether);
            joined
        });
        match joined {
            Ok(joined) => {
                let mut child = Child::new(Role::Exec(asker), joined.progress);
                child.askers.push(asker);
                child.streams = joined.streams;
                self.children.insert(joined.process.pid, child);
            }
            Err(error) => self.answer(asker, Answer::Refused { message: error.0 }),
        }
    }

    /// The first process of the container of that name, if its program runs.
    fn running(&self, name: &str) -> Option<&Spawned> {
        let run = self.containers.iter().find(|(id, container)| id.name == name && container.phase == Phase::Running);
        run.map(|(_, container)| &container.process)
    }

    fn run_hook(&mut self, asker: PendingRequest, id: &ContainerId, hook: &str, command: Vec<String>) {
        let directory = self.pod.container(id);
        if let Some(outcome) = records::read::<HookRecord>(&directory.hook_outcome(hook)) {
            self.answer(asker, Answer::Done);
            let told = ShimMessage::HookEnded { id: id.clone(), hook: hook.to_owned(), outcome };
            return self.tell(asker.client, &told, &[]);
        }
        if directory.hook_asked(hook).exists() {
            return self.answer(asker, Answer::Done);
        }
        let Some(host) = self.containers.get(id).and_then(Container::host) else {
            return self.answer(asker, Answer::NotRunning);
        };
        // Its own group below the container's: ending the hook ends all it started, and nothing else.
        let group = host.cgroup.v2().join(format!("hook-{hook}"));
        spares::make(&directory);
        let asked = directory.hook_asked(hook);
        let asked = std::fs::create_dir_all(&group)
            .and_then(|()| records::write(&asked, &command))
            // That it was asked for is what counts.
            .or_else(|error| spares::instead(&directory, Spare::Hook, &asked, &[""; 0], error))
            .doing(|| "record that the hook was asked for".to_owned());
        if asked.is_err() {
            return self.answer(asker, done(asked));
        }
        let joined = exec::join_with_one_output(&host, &group, command);
        self.answer(asker, Answer::Done);
        match joined {
            Ok((joined, output)) => {
                self.hook_outputs.push(HookOutput::new(id, hook, output));
                let role = Role::Hook { id: id.clone(), hook: hook.to_owned(), cancelled: false };
                self.children.insert(joined.process.pid, Child::new(role, joined.progress));
            }
            Err(error) => self.hook_ended(id, hook, HookRecord::Failed { message: error.0 }),
        }
    }

    /// Ends a hook. One that was not begun is recorded as ended: a request to begin it that comes late finds that.
    fn cancel_hook(&mut self, asker: PendingRequest, id: &ContainerId, hook: &str) {
        let mut killed = Ok(());
        let directory = self.pod.container(id);
        if self.containers.contains_key(id) && !directory.hook_asked(hook).exists() {
            spares::make(&directory);
            let asked = directory.hook_asked(hook);
            let recorded = records::write(&asked, &[""; 0])
                .or_else(|error| spares::instead(&directory, Spare::Hook, &asked, &[""; 0], error))
                .doing(|| "record that the hook is not wanted any more".to_owned());
            if recorded.is_ok() {
                self.hook_ended(id, hook, HookRecord::Cancelled);
            }
            return self.answer(asker, done(recorded));
        }
        for child in self.children.values_mut() {
            if let Role::Hook { id: of, hook: name, cancelled } = &mut child.role
                && (&*of, name.as_str()) == (id, hook)
                && let Some(container) = self.containers.get(id)
            {
                *cancelled = true;
                killed = cgroup::kill(&container.cgroup.v2().join(format!("hook-{hook}")));
            }
        }
        self.answer(asker, done(killed.doing(|| "kill the hook".to_owned())));
    }
}

/// Sends a signal to a container's first process, once: like every verb, asking twice is asking once.
pub(super) fn deliver(container: &mut Container, number: u8) -> Answer {
    if let Some(boot_ms) = container.sent.get(&number) {
        return Answer::Signalled(Delivery::DeliveredBefore { boot_ms: *boot_ms });
    }
    match signal::send(&container.process.pidfd, number) {
        Ok(()) => {
            container.sent.insert(number, records::boot_ms());
            Answer::Signalled(Delivery::Delivered)
        }
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Answer::Signalled(Delivery::AlreadyGone),
        Err(error) => Answer::Refused { message: SetupError::new(format!("send signal {number}"), error).0 },
    }
}

/// The answer for an agent of a version that knows of no dates.
fn without_date(answer: Answer) -> Answer {
    if let Answer::Signalled(Delivery::DeliveredBefore { boot_ms: _ }) = answer {
        return Answer::Signalled(Delivery::Delivered);
    }
    answer
}

fn done(result: Result<(), SetupError>) -> Answer {
    result.map_or_else(|error| Answer::Refused { message: error.0 }, |()| Answer::Done)
}
