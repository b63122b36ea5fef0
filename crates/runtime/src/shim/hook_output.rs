//! What hooks write: the last of it is kept for the record of one that fails, the rest is nobody's.
//!
//! A hook may leave something running, which may go on writing. It is read for as long as the container lives: who finds
//! nobody at the other end of a pipe is killed, and who finds a full one stands still.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use super::serve::Shim;
use crate::contract::ContainerId;

/// Of what a hook wrote, so much is kept.
const KEPT_BYTES_MAX: usize = 2048;
/// The most that a pipe holds without privileges: what a hook left there when it ended.
const PIPE_BYTES_MAX: usize = 1 << 20;

/// The output of one hook.
#[derive(Debug)]
pub(super) struct HookOutput {
    id: ContainerId,
    hook: String,
    /// Both its streams, while anybody can write there. Reading never waits.
    source: Option<OwnedFd>,
    /// The end of it; `None` once the hook has ended.
    last: Option<Vec<u8>>,
}

impl HookOutput {
    pub(super) fn new(id: &ContainerId, hook: &str, source: OwnedFd) -> Self {
        Self { id: id.clone(), hook: hook.to_owned(), source: Some(source), last: Some(Vec::new()) }
    }

    /// What to poll.
    pub(super) fn source(&self) -> Option<BorrowedFd<'_>> {
        self.source.as_ref().map(AsFd::as_fd)
    }

    /// Reads what there is, or some of it; tells how much.
    pub(super) fn read(&mut self) -> usize {
        let Some(source) = &self.source else { return 0 };
        let mut buffer = [0u8; 16 * 1024];
        match rustix::io::read(source, &mut buffer) {
            Ok(count @ 1..) => {
                if let Some(last) = &mut self.last {
                    last.extend_from_slice(&buffer[..count]);
                    last.drain(..last.len().saturating_sub(KEPT_BYTES_MAX));
                }
                count
            }
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Ok(0) | Err(_) => {
                self.source = None;
                0
            }
        }
    }

    /// The hook has ended: all it wrote is there by now. Answers the end of it, as text.
    fn last_output(&mut self) -> Option<String> {
        let mut left = PIPE_BYTES_MAX;
        while left > 0
            && let count @ 1.. = self.read()
        {
            left = left.saturating_sub(count);
        }
        let last = self.last.take()?;
        // A letter that was cut in two at the front is left out.
        let cut = last.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
        let text = String::from_utf8_lossy(&last[cut..]).trim_end().to_owned();
        (!text.is_empty()).then_some(text)
    }
}

impl Shim {
    /// The last words of a hook that has ended.
    pub(super) fn last_output_of(&mut self, id: &ContainerId, hook: &str) -> Option<String> {
        let output = self.hook_outputs.iter_mut().find(|output| &output.id == id && output.hook == hook);
        output.and_then(HookOutput::last_output)
    }

    /// Lets go of what nobody writes any more.
    pub(super) fn settle_hook_outputs(&mut self) {
        let containers = &self.containers;
        self.hook_outputs
            .retain(|output| (output.last.is_some() || output.source.is_some()) && containers.contains_key(&output.id));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use rustix::pipe::{PipeFlags, pipe_with};

    #[test]
    fn the_end_is_kept_and_a_writer_that_stays_is_heard_out() {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
        let id = ContainerId { name: "app".into(), attempt: 0 };
        let mut output = HookOutput::new(&id, "preStop", read);
        rustix::io::write(&write, "ü".repeat(KEPT_BYTES_MAX).as_bytes()).unwrap();
        rustix::io::write(&write, b"last words\n").unwrap();
        let words = output.last_output().unwrap();
        assert!(words.ends_with("ülast words") && words.starts_with('ü'), "{words:?}");
        assert!((KEPT_BYTES_MAX - 2..KEPT_BYTES_MAX).contains(&words.len()), "{}", words.len());
        rustix::io::write(&write, b"more").unwrap();
        assert_eq!(output.read(), 4);
        assert_eq!(output.last_output(), None, "only what came before its end is its");
        assert!(output.source().is_some(), "it may be written to again");
        drop(write);
        output.read();
        assert!(output.source().is_none());
    }
}
