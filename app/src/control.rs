//! How `adieu down` speaks to a running instance: one word over a socket in its folder, lines of progress back.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream as StdStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader as AsyncReader};
use tokio::net::{UnixListener, UnixStream};
use tracing::warn;

const SOCKET: &str = "control.sock";
const DOWN: &str = "down";
/// How long to wait for someone to say what they want.
const PATIENCE: Duration = Duration::from_secs(1);
/// The last line of a conversation that went well.
const DONE: &str = "done";

/// Someone who asked this instance to go down and waits to hear how it goes.
pub(crate) struct Asker {
    stream: UnixStream,
}

impl Asker {
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
    /// Listens in `dir`; the folder's lock makes sure that nobody else does.
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        let path = dir.join(SOCKET);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        Ok(Self { listener, path })
    }

    /// Waits until someone asks for the end.
    pub(crate) async fn asked_down(&self) -> Asker {
        loop {
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    warn!(%error, "cannot hear who asks for the end");
                    tokio::time::sleep(PATIENCE).await;
                    continue;
                }
            };
            let mut reader = AsyncReader::new(stream);
            let mut word = String::new();
            // Someone who says nothing must not keep others from being heard.
            let said = tokio::time::timeout(PATIENCE, reader.read_line(&mut word)).await;
            if matches!(said, Ok(Ok(_))) && word.trim() == DOWN {
                return Asker { stream: reader.into_inner() };
            }
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // Best effort: a socket left behind is replaced by the next instance.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Asks the instance on `dir` to go down, showing its progress to `out`. `false` if none answers there, or it ended before
/// it was done.
pub(crate) fn ask_down(dir: &Path, out: &mut impl Write) -> Result<bool> {
    let Ok(mut stream) = StdStream::connect(dir.join(SOCKET)) else { return Ok(false) };
    writeln!(stream, "{DOWN}").context("the running instance does not listen")?;
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { break };
        if line == DONE {
            return Ok(true);
        }
        writeln!(out, "{line}")?;
    }
    Ok(false)
}
