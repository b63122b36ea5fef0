//! Containers for these tests: plain processes of this machine, with real pipes and real terminals.

use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use node::streams::{ContainerRef, Containers, LogSource, StreamError, serve_connection};
use runtime_api::{ExecSession, ExecSpec};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::io::DuplexStream;
use tokio::sync::{oneshot, watch};

/// One pod `web` with one container `app` in `default`.
pub(crate) struct Local {
    log: PathBuf,
    ended: watch::Receiver<bool>,
    stdin_once: bool,
    /// Inputs that go on when a client leaves.
    kept: Mutex<Vec<OwnedFd>>,
}

impl Local {
    /// Without a log.
    pub(crate) fn new() -> Self {
        Self::with_log(PathBuf::from("/nonexistent"), watch::channel(true).1)
    }

    /// With a log at `log` that is complete when `ended` says so.
    pub(crate) fn with_log(log: PathBuf, ended: watch::Receiver<bool>) -> Self {
        Self { log, ended, stdin_once: false, kept: Mutex::default() }
    }

    /// Whose input ends with its first client.
    pub(crate) fn stdin_once() -> Self {
        Self { stdin_once: true, ..Self::new() }
    }

    /// The client's end of a fresh connection that is being served.
    pub(crate) fn connect(self) -> DuplexStream {
        let (client, server) = tokio::io::duplex(64 * 1024);
        tokio::spawn(serve_connection(server, Arc::new(self)));
        client
    }
}

impl Containers for Local {
    fn now(&self) -> jiff::Timestamp {
        timeline::Clock::of_machine().system_time().try_into().expect("it is no other millennium")
    }

    async fn check(&self, which: &ContainerRef) -> Result<(), StreamError> {
        if (which.namespace.as_str(), which.pod.as_str(), which.container.as_str()) == ("default", "web", "app") {
            return Ok(());
        }
        Err(StreamError::not_found(format!("container {:?} not found", which.container)))
    }

    async fn exec(&self, which: &ContainerRef, spec: ExecSpec) -> Result<ExecSession, StreamError> {
        self.check(which).await?;
        let started = if spec.tty { with_terminal(&spec) } else { with_pipes(&spec) };
        started.map_err(|error| StreamError::internal(format!("cannot run {:?}", spec.command), error))
    }

    async fn attach(&self, which: &ContainerRef, spec: ExecSpec) -> Result<ExecSession, StreamError> {
        // Its first process says what it hears.
        let command = ["sh", "-c", "echo attached; cat; echo over; exit 3"].map(String::from).to_vec();
        let session = self.exec(which, ExecSpec { command, ..spec }).await?;
        if let Some(input) = session.stdin.as_ref().filter(|_| !self.stdin_once) {
            self.kept.lock().unwrap().push(input.try_clone().unwrap());
        }
        Ok(session)
    }

    fn is_stdin_once(&self, _which: &ContainerRef) -> bool {
        self.stdin_once
    }

    async fn check_pod(&self, namespace: &str, pod: &str) -> Result<(), StreamError> {
        if (namespace, pod) == ("default", "web") {
            return Ok(());
        }
        Err(StreamError::not_found(format!("pod {pod:?} not found")))
    }

    async fn connect(&self, _namespace: &str, _pod: &str, port: u16) -> Result<std::net::TcpStream, StreamError> {
        std::net::TcpStream::connect(("127.0.0.1", port))
            .map_err(|error| StreamError::internal(format!("cannot connect to port {port}"), error))
    }

    async fn summary(&self) -> Result<serde_json::Value, StreamError> {
        Err(StreamError::not_found("nothing is counted here"))
    }

    async fn termination(&self, _: &str, pod: &str) -> Result<api::termination::TerminationProgress, StreamError> {
        Err(StreamError::not_found(format!("pod {pod:?} is not on this node")))
    }

    fn metrics(&self) -> String {
        "adieu_pod_terminations_total 0\n".to_owned()
    }

    fn pods(&self) -> serde_json::Value {
        serde_json::json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [] })
    }

    fn resize(&self, session: &ExecSession, columns: u16, rows: u16) {
        let terminal = session.stdout.as_ref().or(session.stdin.as_ref()).expect("a terminal");
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(terminal, size).expect("the size of a terminal can be set");
    }

    async fn log(&self, which: &ContainerRef, previous: bool) -> Result<LogSource, StreamError> {
        self.check(which).await?;
        if previous {
            return Err(StreamError::bad_request("there was no earlier run"));
        }
        Ok(LogSource { path: self.log.clone(), ended: self.ended.clone() })
    }
}

fn with_pipes(spec: &ExecSpec) -> std::io::Result<ExecSession> {
    let pipe = |wanted| if wanted { Stdio::piped() } else { Stdio::null() };
    let mut child = Command::new(&spec.command[0])
        .args(&spec.command[1..])
        .stdin(pipe(spec.stdin))
        .stdout(pipe(spec.stdout))
        .stderr(pipe(spec.stderr))
        .spawn()?;
    Ok(ExecSession {
        stdin: child.stdin.take().map(OwnedFd::from),
        stdout: child.stdout.take().map(OwnedFd::from),
        stderr: child.stderr.take().map(OwnedFd::from),
        exit: exit_of(child),
        tether: None,
    })
}

fn with_terminal(spec: &ExecSpec) -> std::io::Result<ExecSession> {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let name = ptsname(&master, Vec::new())?;
    let slave = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
    // Whoever runs the tests in the background may ignore SIGINT, and a shell that finds a signal ignored leaves it so.
    let child = Command::new("env")
        .args(["--default-signal", "setsid", "--ctty"])
        .args(&spec.command)
        .stdin(slave.try_clone()?)
        .stdout(slave.try_clone()?)
        .stderr(slave)
        .spawn()?;
    Ok(ExecSession {
        stdin: spec.stdin.then(|| master.try_clone()).transpose()?,
        stdout: Some(master),
        stderr: None,
        exit: exit_of(child),
        tether: None,
    })
}

fn exit_of(mut child: Child) -> oneshot::Receiver<u8> {
    let (tell, exit) = oneshot::channel();
    let code = |status: ExitStatus| status.code().unwrap_or_else(|| 128 + status.signal().expect("code or signal"));
    thread::spawn(move || tell.send(u8::try_from(code(child.wait().expect("our child"))).expect("a byte")));
    exit
}
