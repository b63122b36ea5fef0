//! Those who listen to a container's output as it comes, and may speak to its input.
//!
//! A listener has a pipe that holds a good deal. One that lets it fill up is sent away: no listener ever holds up a
//! container, and none is given output with holes in it.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

use super::child::{Container, PendingRequest, Phase};
use super::logs::Pump;
use super::protocol::{Answer, ShimMessage};
use super::serve::Shim;
use crate::container::{Doing, SetupError};
use crate::contract::{ContainerId, ExecSpec};

/// The most a pipe may hold without a privilege; less if that was lowered.
const PIPE_BYTES: usize = 1 << 20;

/// One listener.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) asker: PendingRequest,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
}

impl Attached {
    /// Passes output on; false if the listener is gone or too far behind.
    fn hear(&self, stream: &str, bytes: &[u8]) -> bool {
        let pipe = if stream == "stdout" { &self.stdout } else { &self.stderr };
        pipe.as_ref().is_none_or(|pipe| rustix::io::write(pipe, bytes).is_ok_and(|count| count == bytes.len()))
    }
}

impl Attached {
    /// Whether nobody reads from it any more.
    fn is_gone(&self) -> bool {
        let gone = |pipe: &OwnedFd| {
            let mut polled = [PollFd::new(pipe, PollFlags::empty())];
            let looked = rustix::event::poll(&mut polled, Some(&Timespec::default()));
            looked.is_ok() && polled[0].revents().contains(PollFlags::ERR)
        };
        let mut pipes = self.stdout.iter().chain(&self.stderr).peekable();
        pipes.peek().is_some() && pipes.all(gone)
    }
}

impl Container {
    /// Moves one pipe full of output into the log and to all listeners; returns whether there may be more at once.
    pub(super) fn pump(&mut self, stream: usize) -> bool {
        let Self { pumps, log, attached, detached, .. } = self;
        let Some(pump) = pumps.get_mut(stream) else { return false };
        let name = pump.name();
        pump.run(log, |bytes| {
            let (stay, leave): (Vec<_>, Vec<_>) = attached.drain(..).partition(|listener| listener.hear(name, bytes));
            *attached = stay;
            detached.extend(leave.into_iter().map(|listener| listener.asker));
        })
    }

    /// Takes what is left of an output whose container has ended, and ends it.
    ///
    /// Somebody else may hold the other side, who was handed it or opened it by `/proc`, and write on for ever. So no more
    /// is read than can be under way at once.
    pub(super) fn drain(&mut self, stream: usize) {
        let reads = self.pumps.get(stream).map_or(0, Pump::reads_to_empty);
        for _ in 0..reads {
            if !self.pump(stream) {
                break;
            }
        }
        let Self { pumps, log, .. } = self;
        if let Some(pump) = pumps.get_mut(stream) {
            pump.close(log);
        }
    }

    fn attach(&mut self, asker: PendingRequest, spec: &ExecSpec) -> Result<Vec<OwnedFd>, SetupError> {
        let mut theirs = Vec::new();
        if spec.stdin {
            theirs.push(self.stdin(self.plan.spec.stdin_once)?);
        }
        let mut output = |wanted: bool| {
            if !wanted {
                return Ok(None);
            }
            let (read, write) = pipe_with(PipeFlags::CLOEXEC).doing(|| "make a pipe".to_owned())?;
            let _ = fcntl_setpipe_size(&write, PIPE_BYTES);
            rustix::io::ioctl_fionbio(&write, true).doing(|| "make a pipe non-blocking".to_owned())?;
            theirs.push(read);
            Ok(Some(write))
        };
        let stdout = output(spec.stdout)?;
        // A terminal has one output.
        let stderr = output(spec.stderr && !self.plan.spec.tty)?;
        // Of a silent container nobody notices who has left, but the next one to come.
        let (gone, stay): (Vec<_>, Vec<_>) = self.attached.drain(..).partition(Attached::is_gone);
        self.attached = stay;
        self.detached.extend(gone.into_iter().map(|listener| listener.asker));
        self.attached.push(Attached { asker, stdout, stderr });
        Ok(theirs)
    }

    /// What to write to: the terminal, the container's input (given away for good if it is to end with its first user),
    /// or nothing.
    fn stdin(&mut self, once: bool) -> Result<OwnedFd, SetupError> {
        let copy = |fd: &OwnedFd| fd.try_clone().doing(|| "copy the input".to_owned());
        if self.plan.spec.tty && self.plan.spec.stdin {
            let terminal = self.pumps.first().and_then(|pump| pump.source());
            return match terminal {
                Some(terminal) => terminal.try_clone_to_owned().doing(|| "copy the terminal".to_owned()),
                None => null(),
            };
        }
        match self.stdin.take() {
            Some(input) if once => Ok(input),
            Some(input) => {
                let given = copy(&input)?;
                self.stdin = Some(input);
                Ok(given)
            }
            None => null(),
        }
    }
}

/// Something to write to that forgets everything. For whoever asked, outside the container.
fn null() -> Result<OwnedFd, SetupError> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    rustix::fs::open("/dev/null", flags, Mode::empty()).doing(|| "open /dev/null".to_owned())
}

impl Shim {
    pub(super) fn attach(&mut self, asker: PendingRequest, id: &ContainerId, spec: &ExecSpec) {
        let container = self.containers.get_mut(id).filter(|container| container.phase == Phase::Running);
        let Some(container) = container else { return self.answer(asker, Answer::NotRunning) };
        match container.attach(asker, spec) {
            Ok(streams) => {
                let fds: Vec<_> = streams.iter().map(AsFd::as_fd).collect();
                self.tell(asker.client, &ShimMessage::Answer { number: asker.number, answer: Answer::Exec }, &fds);
            }
            Err(error) => self.answer(asker, Answer::Refused { message: error.0 }),
        }
    }

    /// Tells listeners that were sent away.
    pub(super) fn tell_detached(&mut self) {
        let detached: Vec<_> = self.containers.values_mut().flat_map(|one| std::mem::take(&mut one.detached)).collect();
        for asker in detached {
            self.tell(asker.client, &ShimMessage::Detached { number: asker.number }, &[]);
        }
    }
}
