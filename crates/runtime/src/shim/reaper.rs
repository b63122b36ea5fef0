//! How things end: children are collected, records written, and only then is anyone told.
//!
//! Every child is collected, known or not. A pid namespace's first process cannot be collected while any process
//! of its namespace is left uncollected, so one forgotten exec would keep its container "running" for ever.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use super::child::{Child, Container, Phase, Role};
use super::logs::Pump;
use super::protocol::{Answer, ShimMessage};
use super::records::{self, StartedRecord, wall_ms};
use super::requests::deliver;
use super::say;
use super::serve::Shim;
use super::spares::{self, Spare};
use crate::container::progress::Progress;
use crate::contract::{ContainerId, ExitRecord, HookRecord};
use crate::sys::process::{Ended, collect_any};
use crate::wire::{self, Received};

/// A victim is chosen and killed within milliseconds, unless memory was freed meanwhile.
const OOM_VICTIM_WAIT_MAX: Duration = Duration::from_secs(1);

impl Shim {
    /// Collects all children that have ended.
    pub(super) fn collect(&mut self) {
        self.acknowledge_signals();
        while let Some(ended) = collect_any() {
            // What it said before it ended comes first: a short-lived program still has run.
            self.progress(ended.pid);
            if let Some(child) = self.children.remove(&ended.pid) {
                self.child_ended(child, ended);
            }
        }
    }

    /// Reads what a child says on its way to `execve`.
    pub(super) fn progress(&mut self, pid: i32) {
        while let Some(child) = self.children.get_mut(&pid)
            && let Some(channel) = &child.progress
        {
            match wire::receive::<Progress>(channel) {
                Ok(Received::Message(step, fds)) => self.step(pid, step, fds),
                Ok(Received::Nothing) => return,
                Ok(Received::Closed) | Err(_) => {
                    child.progress = None;
                    if child.ready && child.failure.is_none() {
                        self.program_runs(pid);
                    }
                }
            }
        }
    }

    fn step(&mut self, pid: i32, step: Progress, fds: Vec<OwnedFd>) {
        let Some(child) = self.children.get_mut(&pid) else { return };
        let container = match &child.role {
            Role::First(id) => self.containers.get_mut(id),
            Role::Exec(_) | Role::Hook { .. } | Role::FirstOfPod => None,
        };
        match (step, container) {
            (Progress::Ready, _) => child.ready = true,
            (Progress::Failed { message }, _) => child.failure = Some(message),
            (Progress::Identity(identity), Some(container)) => container.identity = Some(identity),
            (Progress::Terminal, Some(container)) => {
                for master in fds {
                    let _ = rustix::io::ioctl_fionbio(&master, true);
                    container.pumps.push(Pump::new("stdout", master));
                }
            }
            (Progress::Terminal, None) => child.streams = fds,
            (Progress::Null, Some(container)) => container.null = fds.into_iter().next(),
            (Progress::Warning { message }, Some(container)) => container.warnings.push(message),
            (Progress::Identity(_) | Progress::Null | Progress::Warning { .. }, None) => {}
        }
    }

    /// `execve` closed a child's channel: its program runs.
    fn program_runs(&mut self, pid: i32) {
        let Some(child) = self.children.get_mut(&pid) else { return };
        let (askers, streams) = (std::mem::take(&mut child.askers), std::mem::take(&mut child.streams));
        match child.role.clone() {
            Role::First(id) => {
                let Some(container) = self.containers.get_mut(&id) else { return };
                let warnings = container.warnings.clone();
                let started = StartedRecord { wall_ms: wall_ms(), warnings: warnings.clone() };
                if let Err(error) = records::write(&self.pod.container(&id).started(), &started) {
                    say(&format_args!("cannot record the start of {}.{}: {error}", id.name, id.attempt));
                }
                container.started = Some(started.clone());
                if let Phase::Starting { signals } = std::mem::replace(&mut container.phase, Phase::Running) {
                    for signal in signals {
                        deliver(container, signal);
                    }
                }
                for asker in askers {
                    self.answer(asker, Answer::Started { wall_ms: started.wall_ms, warnings: warnings.clone() });
                }
            }
            Role::Exec(asker) => {
                let fds: Vec<_> = streams.iter().map(AsFd::as_fd).collect();
                self.tell(asker.client, &ShimMessage::Answer { number: asker.number, answer: Answer::Exec }, &fds);
            }
            Role::Hook { .. } | Role::FirstOfPod => {}
        }
    }

    fn child_ended(&mut self, child: Child, ended: Ended) {
        // Never having been ready, it was ended by someone else before there was a program.
        let failure = match (child.failure, child.ready) {
            (Some(message), _) => Some(message),
            (None, true) => None,
            (None, false) => Some(format!("ended with code {} while it was being set up", ended.code)),
        };
        match (child.role, failure) {
            (Role::First(id), Some(message)) => {
                if let Some(container) = self.containers.remove(&id) {
                    container.cgroup.remove();
                }
                for asker in child.askers {
                    self.answer(asker, Answer::Refused { message: message.clone() });
                }
            }
            (Role::First(id), None) => {
                if let Some(container) = self.containers.get_mut(&id) {
                    container.phase = Phase::Ending(ExitRecord {
                        code: ended.code,
                        signal: ended.signal,
                        oom: container.cgroup.met_oom(),
                        wall_ms: wall_ms(),
                        seen: true,
                    });
                }
            }
            // Its namespace and all in it end with it; the next container brings a new one.
            (Role::FirstOfPod, _) => self.first_of_pod = None,
            (Role::Exec(asker), Some(message)) => self.answer(asker, Answer::Refused { message }),
            (Role::Exec(asker), None) => {
                let told = ShimMessage::ExecEnded { number: asker.number, code: ended.code };
                self.tell(asker.client, &told, &[]);
            }
            (Role::Hook { id, hook, cancelled }, failure) => {
                // Whoever dies with its container was ended by that; whoever is killed otherwise failed.
                let with_its_container = self.closing || self.containers.get(&id).is_none_or(Container::is_ending);
                let outcome = match failure {
                    _ if (cancelled || with_its_container) && ended.signal == Some(9) => HookRecord::Cancelled,
                    Some(message) => HookRecord::Failed { message },
                    None => {
                        // Of one that did well nobody asks.
                        let output = self.last_output_of(&id, &hook).filter(|_| ended.code != 0);
                        HookRecord::Exited { code: ended.code, output }
                    }
                };
                self.hook_ended(&id, &hook, outcome);
            }
        }
    }

    /// Records how a hook ended, then tells everyone; later if the disk does not take it now.
    pub(super) fn hook_ended(&mut self, id: &ContainerId, hook: &str, outcome: HookRecord) {
        if let Some(container) = self.containers.get(id) {
            // Busy if the hook left something running, which is then the container's to keep.
            let _ = fs::remove_dir(container.cgroup.v2().join(format!("hook-{hook}")));
        }
        if let Err(error) = self.record_hook(id, hook, &outcome) {
            say(&format_args!("cannot record the outcome of hook {hook} yet: {error}"));
            self.unrecorded_hooks.push((id.clone(), hook.to_owned(), outcome));
            self.retry.failed();
        }
    }

    fn record_hook(&mut self, id: &ContainerId, hook: &str, outcome: &HookRecord) -> std::io::Result<()> {
        let directory = self.pod.container(id);
        spares::write_durably(&directory, Spare::Hook, &directory.hook_outcome(hook), outcome)?;
        self.announce(&ShimMessage::HookEnded { id: id.clone(), hook: hook.to_owned(), outcome: outcome.clone() });
        Ok(())
    }

    /// Tries again to write the hooks' outcomes that the disk did not take.
    pub(super) fn settle_hooks(&mut self) {
        if !self.retry.is_due() {
            return;
        }
        for (id, hook, outcome) in std::mem::take(&mut self.unrecorded_hooks) {
            if self.record_hook(&id, &hook, &outcome).is_err() {
                self.unrecorded_hooks.push((id, hook, outcome));
                self.retry.failed();
            }
        }
    }

    /// The kernel lacks memory in a container, and will kill a process of it unless some is freed at once.
    pub(super) fn expect_oom(&mut self, id: &ContainerId) {
        if let Some(container) = self.containers.get_mut(id)
            && let Some(events) = &container.oom_events
        {
            let _ = rustix::io::read(events, &mut [0u8; 8]);
            container.oom_expected = Some(Instant::now() + OOM_VICTIM_WAIT_MAX);
        }
    }

    /// Kills containers that lost a process for want of memory: what is left of one is of no use to anybody.
    pub(super) fn settle_ooms(&mut self) {
        for container in self.containers.values_mut() {
            let Some(until) = container.oom_expected else { continue };
            if container.cgroup.met_oom() {
                let _ = container.kill();
            }
            if container.cgroup.met_oom() || Instant::now() > until {
                container.oom_expected = None;
            }
        }
    }

    /// Reports containers whose first process has ended, once nothing else of them lives and their end is on disk.
    pub(super) fn settle_ended(&mut self) {
        let due = self.retry.is_due();
        let ending: Vec<_> = self
            .containers
            .iter()
            .filter_map(|(id, container)| match &container.phase {
                Phase::Ending(exit) => Some((id.clone(), *exit)),
                Phase::Starting { .. } | Phase::Running => None,
            })
            .collect();
        for (id, exit) in ending {
            let Some(container) = self.containers.get_mut(&id) else { continue };
            if container.unrecorded && !due {
                continue;
            }
            if container.cgroup.is_populated() {
                let _ = container.kill();
                continue;
            }
            // Output precedes the end: nobody is left to write more of it.
            for stream in 0..container.pumps.len() {
                container.drain(stream);
            }
            // Its hooks have ended before it, and are told before it.
            let recorded = if self.unrecorded_hooks.iter().any(|(of, ..)| of == &id) {
                Err(std::io::ErrorKind::WouldBlock.into())
            } else {
                let directory = self.pod.container(&id);
                spares::write_durably(&directory, Spare::Exit, &directory.exit(), &exit)
            };
            if let Err(error) = recorded {
                // Told only once it is recorded. Until then it is kept here, and tried again.
                if !std::mem::replace(&mut container.unrecorded, true) {
                    say(&format_args!("cannot record the exit of {}.{} yet: {error}", id.name, id.attempt));
                }
                self.retry.failed();
                continue;
            }
            self.announce(&ShimMessage::Exited { id: id.clone(), exit });
            if let Some(container) = self.containers.remove(&id) {
                container.cgroup.remove();
                for asker in container.attached.iter().map(|listener| listener.asker) {
                    self.tell(asker.client, &ShimMessage::ExecEnded { number: asker.number, code: exit.code }, &[]);
                }
            }
        }
        if self.unrecorded_hooks.is_empty() && !self.containers.values().any(|container| container.unrecorded) {
            self.retry.all_written();
        }
    }
}
