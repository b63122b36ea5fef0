//! How `adieu down`, `adieu status` and `adieu store backup` speak to a running instance: one word over a socket in its folder, lines back.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream as StdStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use logging::Outlet;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader as AsyncReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::warn;

use crate::status::Reporter;

const SOCKET: &str = "control.sock";
const DOWN: &str = "down";
const STATUS: &str = "status";
const BACKUP: &str = "backup";
/// How long to wait for someone to say what they want.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long an instance may take to say how it is. It may be just starting.
const ANSWER: Duration = Duration::from_secs(10);
/// How long the next line of a backup may take.
const BETWEEN_LINES: Duration = Duration::from_secs(60);
/// The last line of a conversation that went well.
const DONE: &str = "done";

/// Someone who asked this instance to go down and waits to hear how it goes.
pub(crate) struct ShutdownRequester {
    stream: UnixStream,
    /// How long a pod may have at most, if anything was said of that.
    pub grace_most: Option<Duration>,
}

impl ShutdownRequester {
    /// Tells one line. An asker who left is not waited for.
    pub(crate) async fn tell(&mut self, line: &str) {
        let _ = self.stream.write_all(format!("{line}\n").as_bytes()).await;
    }

    /// Tells that everything is done.
    pub(crate) async fn done(mut self) {
        self.tell(DONE).await;
        let _ = self.stream.shutdown().await;
    }
}

/// The socket of a running instance.
pub(crate) struct Control {
    listener: UnixListener,
    path: PathBuf,
}

impl Control {
    /// Listens in `dir`; the folder's lock makes sure that nobody else does. Whoever asks waits for [`Self::answer`].
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        let path = dir.join(SOCKET);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        Ok(Self { listener, path })
    }

    /// Answers from now on: how we are with what `reporter` says, and whoever asks for the end through what comes back.
    pub(crate) fn answer(self, reporter: Reporter) -> Answering {
        let (down, asked_down) = mpsc::channel(1);
        let reporter = Arc::new(reporter);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut askers = JoinSet::new();
            loop {
                while askers.try_join_next().is_some() {}
                match self.listener.accept().await {
                    // Someone who says nothing must not keep others from being heard.
                    Ok((stream, _)) => drop(askers.spawn(hear(stream, down.clone(), reporter.clone()))),
                    Err(error) => {
                        warn!(%error, "cannot read a control request");
                        tokio::time::sleep(PATIENCE).await;
                    }
                }
            }
        });
        Answering { asked_down, _tasks: tasks }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // Best effort: a socket left behind is replaced by the next instance.
        let _ = std::fs::remove_file(&self.path);
    }
}

async fn hear(stream: UnixStream, down: mpsc::Sender<ShutdownRequester>, reporter: Arc<Reporter>) {
    let mut reader = AsyncReader::new(stream);
    let mut word = String::new();
    if !matches!(tokio::time::timeout(PATIENCE, reader.read_line(&mut word)).await, Ok(Ok(_))) {
        return;
    }
    let mut asker = ShutdownRequester { stream: reader.into_inner(), grace_most: None };
    let (word, rest) = word.trim().split_once(' ').unwrap_or((word.trim(), ""));
    match word {
        // Only the first is answered; the others hear from the end itself.
        DOWN => {
            asker.grace_most = rest.parse().ok().map(Duration::from_secs);
            drop(down.send(asker).await);
        }
        STATUS => {
            asker.tell(&reporter.report().await).await;
            asker.done().await;
        }
        BACKUP => {
            if let Some(backup) = reporter.backup() {
                for line in backup.lines() {
                    if asker.stream.write_all(&line).await.is_err() {
                        return;
                    }
                }
            }
            asker.done().await;
        }
        _ => {}
    }
}

/// A socket that is listened to.
pub(crate) struct Answering {
    asked_down: mpsc::Receiver<ShutdownRequester>,
    _tasks: JoinSet<()>,
}

impl Answering {
    /// Waits until someone asks for the end.
    pub(crate) async fn asked_down(&mut self) -> ShutdownRequester {
        match self.asked_down.recv().await {
            Some(asker) => asker,
            None => std::future::pending().await,
        }
    }
}

/// How an instance that was asked to go down answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DownAnswer {
    /// It is down.
    Done,
    /// None answers there, or it ended before it was done.
    Nobody,
}

/// Asks the instance on `dir` to go down, with so much grace for each pod at most, showing its progress to `out`.
pub(crate) async fn ask_down(dir: &Path, grace_most: Option<Duration>, out: &Outlet) -> Result<DownAnswer> {
    let Ok(mut stream) = UnixStream::connect(dir.join(SOCKET)).await else { return Ok(DownAnswer::Nobody) };
    let grace = grace_most.map_or_else(String::new, |most| format!(" {}", most.as_secs()));
    let asked = format!("{DOWN}{grace}\n");
    stream.write_all(asked.as_bytes()).await.context("the running instance does not listen")?;
    let mut lines = AsyncReader::new(stream).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if line == DONE {
            return Ok(DownAnswer::Done);
        }
        out.say(format!("{line}\n").as_bytes());
    }
    Ok(DownAnswer::Nobody)
}

/// Asks the instance on `dir` for everything that it has stored, which goes to `out`. `false` if none answers there.
pub(crate) fn ask_backup(dir: &Path, out: &mut impl Write) -> Result<bool> {
    let Ok(mut stream) = StdStream::connect(dir.join(SOCKET)) else { return Ok(false) };
    let silent = "the running instance does not answer";
    stream.set_read_timeout(Some(BETWEEN_LINES)).context(silent)?;
    writeln!(stream, "{BACKUP}").context(silent)?;
    let mut reader = BufReader::new(stream);
    let (mut line, mut has_any) = (Vec::new(), false);
    loop {
        line.clear();
        reader.read_until(b'\n', &mut line).context(silent)?;
        if line == format!("{DONE}\n").as_bytes() {
            anyhow::ensure!(has_any, "the instance on {} stores nothing; ask its server", dir.display());
            return Ok(true);
        }
        anyhow::ensure!(!line.is_empty(), "the running instance ended, or is of another version");
        has_any = true;
        out.write_all(&line).context("cannot write the backup")?;
    }
}

/// Asks the instance on `dir` how it is; `None` if nobody answers in time.
pub(crate) fn ask_status(dir: &Path) -> Option<String> {
    let mut stream = StdStream::connect(dir.join(SOCKET)).ok()?;
    stream.set_read_timeout(Some(ANSWER)).ok()?;
    writeln!(stream, "{STATUS}").ok()?;
    BufReader::new(stream).lines().next()?.ok()
}
