//! The agent's connection to one shim.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;

use crate::cgroup::Group;
use crate::shim;
use crate::shim::protocol::{Answer, Ask, Request, ShimMessage};
use crate::sys::signal;
use crate::sys::watch::watch;
use crate::wire::{self, Received};

/// A shim that is alive says hello within milliseconds.
const HELLO_WAIT_MAX: Duration = Duration::from_secs(5);
/// A shim answers from what it knows, in microseconds; only a disk that is slow to sync holds it up.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(5);
/// An exec is answered once its program runs, which a cold image on a busy disk may delay.
const EXEC_WAIT_MAX: Duration = Duration::from_secs(30);
/// So is a start, which mounts all volumes before, remote ones among them.
const START_WAIT_MAX: Duration = Duration::from_secs(60);
/// A shim that was asked something and stays silent is told to go on, after so long and ever less often.
const WAKE_FIRST: Duration = Duration::from_millis(100);
const WAKE_LONGEST: Duration = Duration::from_secs(1);
const CONTINUE: u8 = 18;
const SOCKET: &str = "shim.sock";

/// A connection; dropping it hangs up.
#[derive(Debug)]
pub(super) struct Link {
    connection: Arc<Connection>,
    reader: AbortHandle,
    closed: watch::Receiver<bool>,
    /// The shim itself.
    shim: Arc<ShimProcess>,
}

/// The shim's process: that one, whoever else may have its number one day.
#[derive(Debug)]
struct ShimProcess {
    pid: i32,
    pidfd: OwnedFd,
}

#[derive(Debug)]
struct Connection {
    socket: AsyncFd<OwnedFd>,
    waiting: Mutex<Waiting>,
}

/// An answer with its descriptors.
type Answered = (Answer, Vec<OwnedFd>);

#[derive(Debug, Default)]
struct Waiting {
    asked: u64,
    answers: BTreeMap<u64, oneshot::Sender<Answered>>,
    execs: BTreeMap<u64, oneshot::Sender<u8>>,
    closed: bool,
}

/// Why there is no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NoAnswer {
    /// The shim went away instead.
    Gone,
    /// It is there and did not answer in time: it is stopped, stuck, or what was asked takes for ever.
    TooLate,
}

/// The answer to an exec.
pub(super) struct ExecAnswer {
    pub(super) answer: Answer,
    pub(super) streams: Vec<OwnedFd>,
    pub(super) exit: oneshot::Receiver<u8>,
}

impl Link {
    /// Connects to the shim of a pod and waits for its hello. `hear` is called with all it tells unasked, and with
    /// `None` when it is gone.
    ///
    /// A shim that somebody stopped goes on first; `group` is where it is.
    pub(super) async fn connect(
        pod: &Path,
        group: &Group,
        hear: impl Fn(Option<ShimMessage>) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let socket = open_socket()?;
        at_socket(pod, |address| rustix::net::connect(&socket, address))?;
        wire::widen(&socket);
        let connection = Arc::new(Connection {
            socket: watch(socket, Interest::READABLE | Interest::WRITABLE)?,
            waiting: Mutex::default(),
        });
        let hello = patiently(HELLO_WAIT_MAX, connection.next(), || go_on(group));
        let hello =
            hello.await.ok_or_else(|| io::Error::new(io::ErrorKind::TimedOut, "the shim does not say hello"))??;
        let gone = || io::Error::new(io::ErrorKind::UnexpectedEof, "the shim ended before its hello");
        let Some((ShimMessage::Hello { pid }, _)) = hello else { return Err(gone()) };
        let pidfd = pidfd_open(Pid::from_raw(pid).ok_or_else(gone)?, PidfdFlags::empty())?;
        // It said hello, and has not hung up: so the number is still its own.
        if has_hung_up(connection.socket.get_ref())? {
            return Err(gone());
        }
        let shim = Arc::new(ShimProcess { pid, pidfd });
        let (closing, closed) = watch::channel(false);
        let reader = tokio::spawn({
            let connection = connection.clone();
            async move {
                let hearing = async {
                    while let Ok(Some((told, fds))) = connection.next().await {
                        if let Some(told) = connection.dispatch(told, fds) {
                            hear(Some(told));
                        }
                    }
                };
                // However it ends, whoever waits for the shim is told, and it is asked anew what there is.
                if let Err(panic) = supervision::catch("shim-link", hearing).await {
                    tracing::error!(%panic, "what a shim told broke the connection to it");
                }
                connection.close();
                closing.send_replace(true);
                hear(None);
            }
        });
        Ok(Self { connection, reader: reader.abort_handle(), closed, shim })
    }

    /// Asks, and waits for the answer, never longer than the kind of request may take.
    pub(super) async fn ask(&self, request: Request) -> Result<Answer, NoAnswer> {
        let (sender, receiver) = oneshot::channel();
        let number = self.connection.waiting()?.number(sender);
        self.answer(Ask { number, request }, &[], receiver).await.map(|(answer, _)| answer)
    }

    /// Asks for an exec, and passes descriptors along.
    pub(super) async fn exec(&self, request: Request, fds: &[BorrowedFd<'_>]) -> Result<ExecAnswer, NoAnswer> {
        let (sender, receiver) = oneshot::channel();
        let (exit_sender, exit) = oneshot::channel();
        let number = {
            let mut waiting = self.connection.waiting()?;
            let number = waiting.number(sender);
            // Registered before asking: a short program may end before its answer is looked at.
            waiting.execs.insert(number, exit_sender);
            number
        };
        let (answer, streams) = self.answer(Ask { number, request }, fds, receiver).await?;
        Ok(ExecAnswer { answer, streams, exit })
    }

    async fn answer(
        &self,
        ask: Ask,
        fds: &[BorrowedFd<'_>],
        receiver: oneshot::Receiver<Answered>,
    ) -> Result<Answered, NoAnswer> {
        // Sending counts too: a shim that does not listen fills its socket.
        let asked = async {
            self.connection.send(&ask, fds).await?;
            receiver.await.map_err(|_| NoAnswer::Gone)
        };
        let answered = patiently(wait_max(&ask.request), asked, || {
            // It may be slow, or somebody has stopped it: then it goes on, and so do the signals it is to send.
            let _ = signal::send(&self.shim.pidfd, CONTINUE);
        });
        answered.await.unwrap_or_else(|| {
            self.connection.forget(ask.number);
            Err(NoAnswer::TooLate)
        })
    }

    /// The number of the shim's process, for people.
    pub(super) fn pid(&self) -> i32 {
        self.shim.pid
    }

    /// The pod's network, which is the shim's.
    pub(super) fn network_namespace(&self) -> io::Result<File> {
        let namespace = File::open(format!("/proc/{}/ns/net", self.shim.pid))?;
        // Opened by its number, which was the shim's if the shim is still there.
        match has_ended(&self.shim.pidfd)? {
            false => Ok(namespace),
            true => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Stops listening to a shim that was given up: whoever waits for it, waits no longer.
    pub(super) fn hang_up(&self) {
        self.reader.abort();
        self.connection.close();
    }

    /// Whether the shim is known to be gone.
    pub(super) fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    /// Waits until the shim is gone.
    pub(super) async fn closed(&self) {
        let mut closed = self.closed.clone();
        let _ = closed.wait_for(|closed| *closed).await;
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Connection {
    /// What is waited for, while the shim is there.
    fn waiting(&self) -> Result<std::sync::MutexGuard<'_, Waiting>, NoAnswer> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.closed { Err(NoAnswer::Gone) } else { Ok(waiting) }
    }

    /// Nobody waits for this answer any more; one that still comes is dropped, streams and all.
    fn forget(&self, number: u64) {
        if let Ok(mut waiting) = self.waiting() {
            waiting.answers.remove(&number);
            waiting.execs.remove(&number);
        }
    }

    fn close(&self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        *waiting = Waiting { closed: true, ..Waiting::default() };
    }

    async fn next(&self) -> io::Result<Option<(ShimMessage, Vec<OwnedFd>)>> {
        loop {
            let mut ready = self.socket.readable().await?;
            match wire::receive(self.socket.get_ref())? {
                Received::Message(told, fds) => return Ok(Some((told, fds))),
                Received::Nothing => ready.clear_ready(),
                Received::Closed => return Ok(None),
            }
        }
    }

    async fn send(&self, ask: &Ask, fds: &[BorrowedFd<'_>]) -> Result<(), NoAnswer> {
        let sent = self.socket.async_io(Interest::WRITABLE, |socket| wire::send(socket, ask, fds)).await;
        sent.map_err(|_| NoAnswer::Gone)
    }

    /// Hands an answer to whoever waits for it; returns what nobody in particular waits for.
    fn dispatch(&self, told: ShimMessage, fds: Vec<OwnedFd>) -> Option<ShimMessage> {
        let mut waiting = self.waiting().ok()?;
        match told {
            ShimMessage::Answer { number, answer } => {
                if answer != Answer::Exec {
                    waiting.execs.remove(&number);
                }
                if let Some(asker) = waiting.answers.remove(&number) {
                    // Whoever stopped waiting hangs up by dropping what it would have been given.
                    let _ = asker.send((answer, fds));
                }
                None
            }
            ShimMessage::ExecEnded { number, code } => {
                if let Some(exit) = waiting.execs.remove(&number) {
                    let _ = exit.send(code);
                }
                None
            }
            ShimMessage::Detached { number } => {
                waiting.execs.remove(&number);
                None
            }
            ShimMessage::Hello { .. } => None,
            told @ (ShimMessage::Exited { .. } | ShimMessage::HookEnded { .. }) => Some(told),
        }
    }
}

impl Waiting {
    fn number(&mut self, asker: oneshot::Sender<Answered>) -> u64 {
        self.asked += 1;
        self.answers.insert(self.asked, asker);
        self.asked
    }
}

/// Waits for something, and does something about it while it does not come, ever less often.
async fn patiently<T>(limit: Duration, work: impl Future<Output = T>, wake: impl Fn()) -> Option<T> {
    let deadline = tokio::time::Instant::now() + limit;
    let mut pause = WAKE_FIRST;
    let mut work = std::pin::pin!(work);
    loop {
        let until = deadline.min(tokio::time::Instant::now() + pause);
        match tokio::time::timeout_at(until, &mut work).await {
            Ok(done) => return Some(done),
            Err(_) if until == deadline => return None,
            Err(_) => wake(),
        }
        pause = (pause * 2).min(WAKE_LONGEST);
    }
}

/// Lets the shim of a pod go on, if it was stopped.
fn go_on(group: &Group) {
    let shim = group.below(shim::COMMAND);
    for pid in shim.processes().unwrap_or_default() {
        let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { continue };
        let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        // It was that one if it is still there.
        if shim
            .processes()
            .is_ok_and(|now| now.iter().any(|one| i64::from(*one) == i64::from(pid.as_raw_nonzero().get())))
        {
            let _ = signal::send(&pidfd, CONTINUE);
        }
    }
}

fn has_hung_up(socket: impl AsFd) -> io::Result<bool> {
    let mut polled = [PollFd::new(&socket, PollFlags::empty())];
    rustix::event::poll(&mut polled, Some(&Timespec::default()))?;
    Ok(polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR))
}

/// Whether a process has ended, collected or not.
fn has_ended(pidfd: impl AsFd) -> io::Result<bool> {
    let mut polled = [PollFd::new(&pidfd, PollFlags::IN)];
    rustix::event::poll(&mut polled, Some(&Timespec::default()))?;
    Ok(!polled[0].revents().is_empty())
}

fn wait_max(request: &Request) -> Duration {
    match request {
        Request::Start { .. } => START_WAIT_MAX,
        Request::Exec { .. } => EXEC_WAIT_MAX,
        Request::Attach { .. }
        | Request::Signal { .. }
        | Request::SetResources { .. }
        | Request::Kill { .. }
        | Request::RunHook { .. }
        | Request::CancelHook { .. }
        | Request::Shutdown => ANSWER_WAIT_MAX,
    }
}

/// A socket that listens in the pod's directory, to be handed to its shim.
pub(super) fn listen(pod: &Path) -> io::Result<OwnedFd> {
    let socket = open_socket()?;
    match std::fs::remove_file(pod.join(SOCKET)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    at_socket(pod, |address| rustix::net::bind(&socket, address))?;
    rustix::net::listen(&socket, 64)?;
    Ok(socket)
}

fn open_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// The address of a pod's socket, however long its path: addresses have room for 107 bytes only.
fn at_socket(pod: &Path, act: impl FnOnce(&SocketAddrUnix) -> rustix::io::Result<()>) -> io::Result<()> {
    let directory = rustix::fs::open(pod, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let address = SocketAddrUnix::new(format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd()))?;
    Ok(act(&address)?)
}
