//! The loop: one thread that waits for children, requests and output.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::SocketFlags;

use super::child::{Child, Container, PendingRequest, Phase};
use super::hook_output::HookOutput;
use super::protocol::{Answer, Ask, ShimMessage};
use super::records::{PodDir, SandboxRecord};
use super::retry::Retry;
use super::tether::Tether;
use crate::container::SetupError;
use crate::contract::{ContainerId, HookRecord};
use crate::sys::process::Spawned;
use crate::sys::rest::ProgramPages;
use crate::sys::signal;
use crate::wire::{self, Received};

/// How soon to look again at a container whose last processes are still on their way out.
const SETTLING: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };

/// How long nothing must have happened before memory is given back.
const QUIET: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// How long the loop rests after a step that broke.
const BREATH: Duration = Duration::from_millis(100);

const KILL: u8 = 9;

/// Everything one shim knows.
#[derive(Debug)]
pub(super) struct Shim {
    pub(super) pod: PodDir,
    pub(super) record: SandboxRecord,
    listener: OwnedFd,
    signals: OwnedFd,
    clients: BTreeMap<u64, OwnedFd>,
    clients_seen: u64,
    pub(super) containers: BTreeMap<ContainerId, Container>,
    pub(super) children: BTreeMap<i32, Child>,
    /// Of execs that end with whoever asked for them.
    pub(super) tethers: Vec<Tether>,
    /// What hooks write.
    pub(super) hook_outputs: Vec<HookOutput>,
    /// The mount namespace this shim was born in.
    pub(super) host_mounts: OwnedFd,
    /// The first process of the pid namespace that all containers share, while there is one.
    pub(super) first_of_pod: Option<Spawned>,
    /// Nothing new is started; the shim exits when the last child is collected.
    pub(super) closing: bool,
    /// Outcomes of hooks that the disk did not take yet; nobody is told of them before.
    pub(super) unrecorded_hooks: Vec<(ContainerId, String, HookRecord)>,
    /// When they, and the ends of containers that wait for the same, are tried again.
    pub(super) retry: Retry,
    program: ProgramPages,
}

/// Whom a wake-up is for.
#[derive(Clone, PartialEq, Debug)]
enum Waker {
    Listener,
    Signals,
    Client(u64),
    Progress(i32),
    Output(ContainerId, usize),
    /// By its place.
    HookOutput(usize),
    Oom(ContainerId),
    Tether(PendingRequest),
}

impl Shim {
    pub(super) fn new(
        pod: PodDir,
        record: SandboxRecord,
        listener: OwnedFd,
        signals: OwnedFd,
        host_mounts: OwnedFd,
    ) -> Self {
        Self {
            host_mounts,
            first_of_pod: None,
            pod,
            record,
            listener,
            signals,
            clients: BTreeMap::new(),
            clients_seen: 0,
            containers: BTreeMap::new(),
            children: BTreeMap::new(),
            tethers: Vec::new(),
            hook_outputs: Vec::new(),
            closing: false,
            unrecorded_hooks: Vec::new(),
            retry: Retry::default(),
            program: ProgramPages::find(),
        }
    }

    /// Serves until the pod is shut down and everything in it has ended.
    pub(super) fn serve(mut self) -> Result<(), SetupError> {
        loop {
            for waker in self.wait()? {
                self.go_on_after(|shim| shim.attend(waker));
            }
            self.go_on_after(Self::tell_detached);
            self.go_on_after(Self::settle_ooms);
            self.go_on_after(Self::settle_hooks);
            self.go_on_after(Self::settle_ended);
            self.go_on_after(Self::settle_hook_outputs);
            self.go_on_after(Self::settle_tethers);
            if self.closing && self.containers.is_empty() && self.unrecorded_hooks.is_empty() {
                if self.children.is_empty() {
                    return Ok(());
                }
                if let Some(first) = &self.first_of_pod {
                    let _ = signal::send(&first.pidfd, KILL);
                }
            }
        }
    }

    fn attend(&mut self, waker: Waker) {
        match waker {
            Waker::Listener => self.accept(),
            Waker::Signals => self.collect(),
            Waker::Client(client) => self.hear(client),
            Waker::Progress(pid) => self.progress(pid),
            Waker::Oom(id) => self.expect_oom(&id),
            // Places stay as they are until the outputs are settled.
            Waker::HookOutput(hook) => {
                if let Some(output) = self.hook_outputs.get_mut(hook) {
                    output.read();
                }
            }
            Waker::Tether(asker) => self.tether_pulled(asker),
            Waker::Output(id, stream) => {
                if let Some(container) = self.containers.get_mut(&id) {
                    container.pump(stream);
                }
            }
        }
    }

    /// Takes a step, and goes on whatever breaks in it: with the shim its pod would be lost. True if nothing broke.
    fn go_on_after(&mut self, step: impl FnOnce(&mut Self)) -> bool {
        let is_whole = catch_unwind(AssertUnwindSafe(|| step(self))).is_ok();
        if !is_whole {
            // What woke us may still be there; it does not take a whole processor.
            std::thread::sleep(BREATH);
        }
        is_whole
    }

    /// Does what somebody asked for; who asks for something that we break on is told so.
    fn answer_after(&mut self, asker: PendingRequest, step: impl FnOnce(&mut Self)) {
        if !self.go_on_after(step) {
            self.answer(asker, Answer::Refused { message: "the pod's shim broke on this request".to_owned() });
        }
    }

    fn wait(&self) -> Result<Vec<Waker>, SetupError> {
        let mut sources: Vec<(Waker, BorrowedFd<'_>)> =
            vec![(Waker::Signals, self.signals.as_fd()), (Waker::Listener, self.listener.as_fd())];
        for (pid, child) in &self.children {
            sources.extend(child.progress.as_ref().map(|channel| (Waker::Progress(*pid), channel.as_fd())));
        }
        for (id, container) in &self.containers {
            sources.extend(container.oom_events.as_ref().map(|events| (Waker::Oom(id.clone()), events.as_fd())));
            for (stream, pump) in container.pumps.iter().enumerate() {
                sources.extend(pump.source().map(|source| (Waker::Output(id.clone(), stream), source)));
            }
        }
        for (hook, output) in self.hook_outputs.iter().enumerate() {
            sources.extend(output.source().map(|source| (Waker::HookOutput(hook), source)));
        }
        sources.extend(self.tethers.iter().filter_map(|t| Some((Waker::Tether(t.asker), t.held.as_ref()?.as_fd()))));
        sources.extend(self.clients.iter().map(|(client, socket)| (Waker::Client(*client), socket.as_fd())));
        let mut polled: Vec<_> = sources.iter().map(|(_, fd)| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        let waited = if self.is_settling() {
            rustix::event::poll(&mut polled, Some(&SETTLING))
        } else if let Some(wait) = self.retry.wait() {
            rustix::event::poll(&mut polled, Some(&wait))
        } else {
            match rustix::event::poll(&mut polled, Some(&QUIET)) {
                // The last thing done before a long wait, as whatever is done after it brings its pages back.
                Ok(0) => {
                    self.program.give_back();
                    rustix::event::poll(&mut polled, None)
                }
                waited => waited,
            }
        };
        match waited {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(SetupError::new("poll", errno)),
        }
        let woken: Vec<bool> = polled.iter().map(|poll| !poll.revents().is_empty()).collect();
        Ok(sources.into_iter().zip(woken).filter(|(_, woken)| *woken).map(|((waker, _), _)| waker).collect())
    }

    /// Whether something is on its way that nobody announces.
    fn is_settling(&self) -> bool {
        let mut containers = self.containers.values();
        containers.any(|container| {
            let ending = matches!(container.phase, Phase::Ending(_)) && !container.unrecorded;
            ending || container.oom_expected.is_some()
        })
    }

    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let Ok(socket) = rustix::net::accept_with(&self.listener, flags) else { return };
        // The directory keeps others out; this keeps them out should its mode ever be changed.
        if rustix::net::sockopt::socket_peercred(&socket).is_ok_and(|peer| peer.uid == rustix::process::geteuid()) {
            wire::widen(&socket);
            self.clients_seen += 1;
            self.clients.insert(self.clients_seen, socket);
            let pid = rustix::process::getpid().as_raw_nonzero().get();
            self.tell(self.clients_seen, &ShimMessage::Hello { pid }, &[]);
        }
    }

    /// Takes every request that waits on a connection.
    fn hear(&mut self, client: u64) {
        while let Some(socket) = self.clients.get(&client) {
            match wire::receive::<Ask>(socket) {
                Ok(Received::Message(ask, fds)) => {
                    let asker = PendingRequest { client, number: ask.number };
                    self.answer_after(asker, |shim| shim.handle(asker, ask.request, fds));
                }
                Ok(Received::Nothing) => return,
                Ok(Received::Closed) | Err(_) => {
                    self.clients.remove(&client);
                }
            }
        }
    }

    /// Tells one client. Whoever does not keep up is dropped: it can connect again and read the disk.
    pub(super) fn tell(&mut self, client: u64, told: &ShimMessage, fds: &[BorrowedFd<'_>]) {
        if let Some(socket) = self.clients.get(&client)
            && wire::send(socket, told, fds).is_err()
        {
            self.clients.remove(&client);
        }
    }

    /// Tells everyone.
    pub(super) fn announce(&mut self, told: &ShimMessage) {
        for client in self.clients.keys().copied().collect::<Vec<_>>() {
            self.tell(client, told, &[]);
        }
    }

    pub(super) fn answer(&mut self, asker: PendingRequest, answer: Answer) {
        self.tell(asker.client, &ShimMessage::Answer { number: asker.number, answer }, &[]);
    }

    /// Empties the signal descriptor: one wake-up may stand for many children.
    pub(super) fn acknowledge_signals(&self) {
        let mut buffer = [0u8; 1024];
        while rustix::io::read(&self.signals, &mut buffer).is_ok_and(|count| count == buffer.len()) {}
    }
}
