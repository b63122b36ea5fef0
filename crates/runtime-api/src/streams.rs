//! Programs inside containers and the streams of both.

use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

/// Something to run inside a running container.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ExecSpec {
    /// Program and arguments; no shell.
    pub command: Vec<String>,
    /// With a terminal (then there is no stderr).
    pub tty: bool,
    /// With standard input.
    pub stdin: bool,
    /// With standard output.
    pub stdout: bool,
    /// With standard error.
    pub stderr: bool,
    /// Everything it starts ends when the session is dropped, or the one who asked dies; see [`Tether`].
    #[serde(default)]
    pub tethered: bool,
}

/// A running exec (or attach). Dropping the ends hangs up; the process is then left to its container, unless it is
/// tethered.
#[derive(Debug)]
pub struct ExecSession {
    /// Write end of its standard input; the terminal's master when there is a terminal.
    pub stdin: Option<OwnedFd>,
    /// Read end of its standard output; the terminal's master when there is a terminal.
    pub stdout: Option<OwnedFd>,
    /// Read end of its standard error.
    pub stderr: Option<OwnedFd>,
    /// Its exit code, once; an error if the runtime lost it.
    pub exit: oneshot::Receiver<u8>,
    /// What holds all it started, if that was asked for.
    pub tether: Option<Tether>,
}

/// Holds a program and everything it started. Dropped, by whatever cause, it kills all of them and nothing else.
#[derive(Debug)]
pub struct Tether(OwnedFd);

impl Tether {
    /// What holds on to this end of a socket: whoever has the other ends its program when this one is closed.
    pub fn new(end: OwnedFd) -> Self {
        Self(end)
    }

    /// The program ended by itself: what it left running is its container's to keep.
    pub fn let_go(self) {
        // A shim that is gone holds nothing.
        let _ = rustix::io::write(&self.0, &[0]);
    }
}
