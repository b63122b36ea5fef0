//! One conversation with one process: the client's bytes go in, its output comes back, and its end is told.
//!
//! The loop below is the same for every stream protocol; a protocol is a [`Channels`]. Nothing is buffered beyond
//! one chunk in each direction: a client that does not read stops the process, and a process that does not read
//! stops the client, as a pipe between them would.

use std::io;
use std::mem;
use std::time::Duration;

use bytes::{Buf, Bytes};
use runtime_api::{ExecSession, ExecSpec};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior};
use tracing::debug;

use super::fd::{Input, Output};
use super::{ContainerRef, Containers, StreamError};

/// How much output is carried at a time.
const CHUNK: usize = 32 * 1024;
/// What a process wrote before its end is already in the pipe, so this much silence after the end means that
/// only a process it left behind still holds the other side, and that one is not waited for. An answer to a client's last words
/// is waited for as long.
const LINGER: Duration = Duration::from_millis(500);
/// The most that a pipe can hold unless someone enlarged it beyond the system's limit for users.
const DRAIN_MAX: usize = 1 << 20;
/// How often an otherwise silent connection is written to, to notice a client that went away without a word.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// What a client may say.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// Bytes for the standard input.
    Stdin(Bytes),
    /// There will be no more input.
    StdinClosed,
    /// The client's window has this size.
    Resize { columns: u16, rows: u16 },
    /// Something of the protocol that is no matter of ours.
    Nothing,
    /// The client is gone.
    Gone,
}

/// Which output a chunk comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Stdout,
    Stderr,
}

/// How a conversation ended.
#[derive(Debug)]
pub(super) enum Ending {
    /// The process ended with this code.
    Exited { code: u8, command: Vec<String> },
    /// The process could not be started, or its end was lost.
    Failed(StreamError),
}

impl Ending {
    /// The `Status` that `kubectl` derives its own exit code from.
    pub(super) fn status(&self) -> Value {
        match self {
            Self::Exited { code: 0, .. } => json!({ "metadata": {}, "status": "Success" }),
            Self::Exited { code, .. } => json!({
                "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
                "message": self.sentence().unwrap_or_default(),
                "details": { "causes": [{ "reason": "ExitCode", "message": code.to_string() }] },
            }),
            Self::Failed(error) => error.status(),
        }
    }

    /// What went wrong, for the old protocols that carry only a text; `None` if nothing did.
    pub(super) fn sentence(&self) -> Option<String> {
        match self {
            Self::Exited { code: 0, .. } => None,
            Self::Exited { code, command } => Some(format!(
                "command terminated with non-zero exit code: error executing command [{}], exit code {code}",
                command.join(" ")
            )),
            Self::Failed(error) => Some(error.sentence()),
        }
    }
}

/// A stream protocol, once its connection is open.
pub(super) trait Channels: Send {
    /// Waits for the next thing the client says. Must lose nothing when dropped while it waits.
    fn receive(&mut self) -> impl Future<Output = io::Result<Received>> + Send;
    /// Sends a chunk of output.
    fn send(&mut self, source: Source, chunk: &[u8]) -> impl Future<Output = io::Result<()>> + Send;
    /// Writes something harmless, so that a dead connection shows itself.
    fn keep_alive(&mut self) -> impl Future<Output = io::Result<()>> + Send;
    /// Tells how it ended and closes the connection in good order.
    fn finish(self, ending: Ending) -> impl Future<Output = io::Result<()>> + Send;
}

/// With whom a conversation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum With {
    /// A program that is run for it.
    NewProgram,
    /// The container's first process.
    FirstProcess,
}

/// Carries streams of a container's process until it ends or the client leaves.
pub(super) async fn run<C: Containers>(
    containers: &C,
    which: &ContainerRef,
    with: With,
    spec: ExecSpec,
    mut channels: impl Channels,
) -> io::Result<()> {
    let (tty, command) = (spec.tty, spec.command.clone());
    // Whose input goes on without this client has nothing more to say to it: such a client would wait for the container's end.
    let leaves_with_input = with == With::FirstProcess && spec.stdin && (tty || !containers.is_stdin_once(which));
    let session = match with {
        With::NewProgram => containers.exec(which, spec).await,
        With::FirstProcess => containers.attach(which, spec).await,
    };
    let ending = match session {
        Err(error) => Ending::Failed(error),
        Ok(session) => match converse(containers, session, (tty, leaves_with_input), &mut channels).await? {
            Conversation::HungUp => {
                debug!(pod = which.pod, container = which.container, "client left before its command ended");
                return Ok(());
            }
            Conversation::Left => Ending::Exited { code: 0, command },
            // How a container ended is the pod's to tell, not its listeners'.
            Conversation::Ended(Ok(_)) if with == With::FirstProcess => Ending::Exited { code: 0, command },
            Conversation::Ended(Ok(code)) => Ending::Exited { code, command },
            Conversation::Ended(Err(error)) => Ending::Failed(error),
        },
    };
    channels.finish(ending).await
}

enum Conversation {
    HungUp,
    /// The client has said what it had to say, and the process goes on.
    Left,
    Ended(Result<u8, StreamError>),
}

/// The descriptors of a session, ready for use. With a terminal the session keeps its own, for resizing.
struct Ends {
    stdin: Option<Input>,
    stdout: Option<Output>,
    stderr: Option<Output>,
}

impl Ends {
    fn of(session: &mut ExecSession, tty: bool) -> io::Result<Self> {
        let take = |fd: &mut Option<_>| match fd {
            Some(fd) if tty => std::os::fd::OwnedFd::try_clone(fd).map(Some),
            fd => Ok(fd.take()),
        };
        Ok(Self {
            stdin: take(&mut session.stdin)?.map(Input::new).transpose()?,
            stdout: take(&mut session.stdout)?.map(Output::new).transpose()?,
            stderr: take(&mut session.stderr)?.map(Output::new).transpose()?,
        })
    }

    /// Passes on what is left in the pipes. On a busy machine the silence may have been our own.
    async fn drain(&self, channels: &mut impl Channels, buffer: &mut [u8]) -> io::Result<()> {
        for (output, source) in [(&self.stdout, Source::Stdout), (&self.stderr, Source::Stderr)] {
            let Some(output) = output else { continue };
            // No more than a pipe holds: what comes beyond is not from the process that ended.
            let mut left = DRAIN_MAX;
            while let Some(read) = output.read_now(buffer) {
                left = left.saturating_sub(*read.as_ref().unwrap_or(&0));
                if !pass_on(channels, source, read.map(|count| &buffer[..count])).await? || left == 0 {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Passes a chunk on; false if it was the end.
async fn pass_on(channels: &mut impl Channels, source: Source, read: io::Result<&[u8]>) -> io::Result<bool> {
    match read {
        Ok([]) | Err(_) => Ok(false),
        Ok(chunk) => channels.send(source, chunk).await.map(|()| true),
    }
}

async fn converse<C: Containers>(
    containers: &C,
    mut session: ExecSession,
    (tty, leaves_with_input): (bool, bool),
    channels: &mut impl Channels,
) -> io::Result<Conversation> {
    let mut ends = match Ends::of(&mut session, tty) {
        Ok(ends) => ends,
        Err(error) => return Ok(Conversation::Ended(Err(StreamError::internal("cannot carry the streams", error)))),
    };
    // The session stays whole for `resize`; its exit is awaited here.
    let mut exit = mem::replace(&mut session.exit, oneshot::channel().1);
    let mut exited = None;
    let mut quiet_until = Instant::now();
    let mut leaves_at = None;
    let (mut out, mut err) = (vec![0; CHUNK], vec![0; CHUNK]);
    let mut pending = Bytes::new();
    let mut keep_alive = tokio::time::interval_at(Instant::now() + KEEP_ALIVE, KEEP_ALIVE);
    keep_alive.set_missed_tick_behavior(MissedTickBehavior::Delay);

    loop {
        if ends.stdout.is_none() && ends.stderr.is_none() && exited.is_some() {
            break;
        }
        tokio::select! {
            received = channels.receive(), if pending.is_empty() => match received? {
                Received::Stdin(bytes) => pending = bytes,
                Received::StdinClosed => {
                    ends.stdin = None;
                    if leaves_with_input && leaves_at.is_none() {
                        leaves_at = Some(Instant::now() + LINGER);
                    }
                }
                Received::Resize { columns, rows } => containers.resize(&session, columns, rows),
                Received::Nothing => {}
                Received::Gone => return Ok(Conversation::HungUp),
            },
            written = write(ends.stdin.as_ref(), &pending), if !pending.is_empty() => match written {
                Ok(count) => pending.advance(count),
                // The process closed its input. What else comes for it is dropped, as a shell does.
                Err(_) => {
                    ends.stdin = None;
                    pending.clear();
                }
            },
            read = read(ends.stdout.as_ref(), &mut out), if ends.stdout.is_some() => {
                if !pass_on(channels, Source::Stdout, read.map(|count| &out[..count])).await? {
                    ends.stdout = None;
                }
                quiet_until = Instant::now() + LINGER;
            }
            read = read(ends.stderr.as_ref(), &mut err), if ends.stderr.is_some() => {
                if !pass_on(channels, Source::Stderr, read.map(|count| &err[..count])).await? {
                    ends.stderr = None;
                }
                quiet_until = Instant::now() + LINGER;
            }
            code = &mut exit, if exited.is_none() => {
                exited = Some(code);
                quiet_until = Instant::now() + LINGER;
            }
            () = tokio::time::sleep_until(quiet_until), if exited.is_some() => {
                ends.drain(channels, &mut out).await?;
                break;
            }
            () = sleep_until(leaves_at), if exited.is_none() && leaves_at.is_some() => {
                ends.drain(channels, &mut out).await?;
                return Ok(Conversation::Left);
            }
            _ = keep_alive.tick() => channels.keep_alive().await?,
        }
    }
    let code = exited.expect("the loop ends only after the exit is known");
    Ok(Conversation::Ended(code.map_err(|error| StreamError::internal("lost the exit code of the command", error))))
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

async fn write(stdin: Option<&Input>, bytes: &[u8]) -> io::Result<usize> {
    match stdin {
        Some(stdin) => stdin.write(bytes).await,
        None => Ok(bytes.len()),
    }
}

async fn read(output: Option<&Output>, buffer: &mut [u8]) -> io::Result<usize> {
    match output {
        Some(output) => output.read(buffer).await,
        None => std::future::pending().await,
    }
}

/// The sizes in a stream of `{"Width":80,"Height":24}` values, which may be cut anywhere.
#[derive(Debug, Default)]
pub(super) struct ResizeParser {
    rest: Vec<u8>,
}

impl ResizeParser {
    /// More than any sane size takes; what does not parse within it is forgotten.
    const LIMIT: usize = 1024;

    /// Takes the next bytes; returns the last size that is complete with them, since only that one counts.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Received {
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Size {
            width: u16,
            height: u16,
        }
        self.rest.extend_from_slice(bytes);
        let mut values = serde_json::Deserializer::from_slice(&self.rest).into_iter::<Size>();
        let mut received = Received::Nothing;
        let mut used = 0;
        loop {
            match values.next() {
                Some(Ok(size)) => {
                    received = Received::Resize { columns: size.width, rows: size.height };
                    used = values.byte_offset();
                }
                Some(Err(error)) if error.is_eof() => break,
                Some(Err(_)) => {
                    used = self.rest.len();
                    break;
                }
                None => {
                    used = self.rest.len();
                    break;
                }
            }
        }
        self.rest.drain(..used);
        if self.rest.len() > Self::LIMIT {
            self.rest.clear();
        }
        received
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(columns: u16, rows: u16) -> Received {
        Received::Resize { columns, rows }
    }

    #[test]
    fn sizes_are_found_wherever_the_stream_is_cut() {
        let mut parser = ResizeParser::default();
        assert_eq!(parser.push(br#"{"Width":80,"#), Received::Nothing);
        assert_eq!(parser.push(br#""Height":24}{"Width":1"#), size(80, 24));
        assert_eq!(parser.push(b"00,\"Height\":50}\n"), size(100, 50));
        assert_eq!(parser.push(br#"{"Width":1,"Height":2}{"Width":3,"Height":4}"#), size(3, 4));
    }

    #[test]
    fn terminal_resize_garbage_is_dropped_and_not_buffered() {
        let mut parser = ResizeParser::default();
        assert_eq!(parser.push(b"nonsense"), Received::Nothing);
        assert_eq!(parser.push(br#"{"Width":70000,"Height":24}"#), Received::Nothing);
        for _ in 0..100 {
            assert_eq!(parser.push(b"{\"Width\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["), Received::Nothing);
            assert!(parser.rest.len() <= ResizeParser::LIMIT);
        }
        parser.rest.clear();
        assert_eq!(parser.push(br#"{"Width":80,"Height":24}"#), size(80, 24));
    }

    #[test]
    fn the_status_names_the_exit_code() {
        let ending = Ending::Exited { code: 7, command: vec!["sh".into(), "-c".into(), "exit 7".into()] };
        let status = ending.status();
        assert_eq!(status["reason"], "NonZeroExitCode");
        assert_eq!(status["details"]["causes"][0], json!({ "reason": "ExitCode", "message": "7" }));
        let ending = Ending::Exited { code: 0, command: vec!["true".into()] };
        assert_eq!(ending.status().to_string(), r#"{"metadata":{},"status":"Success"}"#);
        assert_eq!(ending.sentence(), None);
    }
}
