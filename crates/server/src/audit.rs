//! Who did what: a line of JSON for every request from outside, as `audit.k8s.io/v1` events of level `Metadata`.
//!
//! Bodies are never written, so neither are secrets. No request waits for the disk: lines go through a queue, and those for which
//! it has no room are left out and counted.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};

use frame::Clock;
use http::{HeaderMap, Method, Uri, header};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::identity::Identity;
use crate::proxy::Peer;
use crate::request::Address;
use crate::ui;

/// How many lines may wait for the disk.
const QUEUE: usize = 4096;
/// How long a file becomes, and how many older ones are kept: `FILE.1` is the newest of them.
const FILE_MAX: u64 = 100 << 20;
const OLDER: usize = 10;
/// Longest address of a request that is written down.
const URI_MAX: usize = 4096;
/// Longest name, of an object or a client, that is written.
const WORD_MAX: usize = 512;

/// A log that requests are written to, see [`crate::Server::audit_to`].
#[derive(Debug)]
pub struct AuditLog {
    queue: SyncSender<String>,
    written: AtomicU64,
    lost: Arc<AtomicU64>,
}

impl AuditLog {
    /// Opens the log at `path`, readable by its owner only, and goes on where it ends.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::open_with(path, FILE_MAX)
    }

    fn open_with(path: &Path, most: u64) -> io::Result<Self> {
        let file = Pages::open(path.to_owned(), most)?;
        let (queue, lines) = sync_channel(QUEUE);
        let lost = Arc::new(AtomicU64::new(0));
        let lost_by_writer = Arc::clone(&lost);
        std::thread::Builder::new().name("audit".to_owned()).spawn(move || write_all(file, &lines, &lost_by_writer))?;
        Ok(Self { queue, written: AtomicU64::new(0), lost })
    }

    /// How many lines were taken, and how many of them and of others were left out.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.written.load(Ordering::Relaxed), self.lost.load(Ordering::Relaxed))
    }

    pub(crate) fn tell(&self, event: &Value) {
        match self.queue.try_send(format!("{event}\n")) {
            Ok(()) => _ = self.written.fetch_add(1, Ordering::Relaxed),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                if self.lost.fetch_add(1, Ordering::Relaxed) == 0 {
                    tracing::warn!("the audit log cannot keep up: what happens is not written down any more");
                }
            }
        }
    }
}

/// Writes lines until nobody sends any.
fn write_all(mut pages: Pages, lines: &Receiver<String>, lost: &AtomicU64) {
    let mut fails = false;
    while let Ok(line) = lines.recv() {
        // What has come meanwhile goes along: one call for all of it.
        let mut batch = line;
        while batch.len() < (1 << 20)
            && let Ok(line) = lines.try_recv()
        {
            batch.push_str(&line);
        }
        match pages.write(&batch) {
            Ok(()) => fails = false,
            Err(error) => {
                lost.fetch_add(batch.lines().count() as u64, Ordering::Relaxed);
                if !std::mem::replace(&mut fails, true) {
                    tracing::warn!(%error, path = %pages.path.display(), "cannot write the audit log");
                }
            }
        }
    }
}

/// The log's files.
struct Pages {
    path: PathBuf,
    file: File,
    length: u64,
    most: u64,
}

impl Pages {
    fn open(path: PathBuf, most: u64) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path)?;
        let length = file.metadata()?.len();
        Ok(Self { path, file, length, most })
    }

    fn write(&mut self, lines: &str) -> io::Result<()> {
        if self.length > 0 && self.length + lines.len() as u64 > self.most {
            self.turn()?;
        }
        self.file.write_all(lines.as_bytes())?;
        self.length += lines.len() as u64;
        Ok(())
    }

    /// Begins a new file; the oldest goes.
    fn turn(&mut self) -> io::Result<()> {
        let older = |number: usize| {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        };
        // Somebody has put it away already, or we did and then could not go on.
        if !self.path.exists() {
            *self = Self::open(self.path.clone(), self.most)?;
            return Ok(());
        }
        for number in (1..OLDER).rev() {
            match fs::rename(older(number), older(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        fs::rename(&self.path, older(1))?;
        *self = Self::open(self.path.clone(), self.most)?;
        Ok(())
    }
}

/// What is known of a request before it is answered; who asks, and whether they may, comes to be known on the way.
pub(crate) struct Record {
    clock: Clock,
    received: Timestamp,
    uri: Uri,
    method: Method,
    agent: String,
    sources: Vec<String>,
    pub(crate) caller: OnceLock<Caller>,
    pub(crate) allowed: AtomicBool,
}

/// A request that is written down whatever becomes of it: who hangs up before the answer may have changed something all the
/// same, and is then told of with the code 0.
pub(crate) struct Pending<'a> {
    log: &'a AuditLog,
    id: &'a str,
    pub(crate) record: Record,
    is_told: bool,
}

impl<'a> Pending<'a> {
    pub(crate) fn new(log: &'a AuditLog, id: &'a str, record: Record) -> Self {
        Self { log, id, record, is_told: false }
    }

    /// It was answered; `goes_on` if the end of the answer is not known.
    pub(crate) fn answered(mut self, code: u16, goes_on: bool) {
        self.is_told = true;
        self.log.tell(&self.record.event(self.id, code, goes_on));
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if !self.is_told {
            self.log.tell(&self.record.event(self.id, 0, false));
        }
    }
}

/// The caller, and the user it impersonates.
pub(crate) struct Caller {
    pub(crate) user: Identity,
    pub(crate) acts_as: Option<Identity>,
}

/// Nobody is to fill the log with one long word.
fn cut(word: &str) -> String {
    word.chars().take(WORD_MAX).collect()
}

impl Record {
    pub(crate) fn of<B>(request: &http::Request<B>, clock: Clock) -> Self {
        let text = |headers: &HeaderMap, name| {
            headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
        };
        let peer = request.extensions().get::<Peer>().map(|peer| peer.0.to_string());
        Self {
            clock,
            received: clock.now().timestamp,
            uri: request.uri().clone(),
            method: request.method().clone(),
            agent: cut(&text(request.headers(), header::USER_AGENT)),
            sources: peer.into_iter().collect(),
            caller: OnceLock::new(),
            allowed: AtomicBool::new(false),
        }
    }

    /// The event, once there is an answer; `goes_on` if its end is not.
    pub(crate) fn event(&self, id: &str, code: u16, goes_on: bool) -> Value {
        let (address, query) = Address::of(&self.uri);
        let uri: String = ui::without_secret(&self.uri).chars().take(URI_MAX).collect();
        let mut event = json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": id,
            "stage": if goes_on { "ResponseStarted" } else { "ResponseComplete" },
            "requestURI": uri, "sourceIPs": self.sources, "userAgent": self.agent,
            "verb": self.method.as_str().to_ascii_lowercase(),
            "responseStatus": { "metadata": {}, "code": code },
            "requestReceivedTimestamp": micros(self.received), "stageTimestamp": micros(self.clock.now().timestamp),
        });
        if let Address::Resource(address) = &address {
            if let Ok(verb) = address.verb(&self.method, &query) {
                event["verb"] = json!(verb.as_str());
            }
            let words = [
                ("resource", &address.resource),
                ("namespace", &address.namespace),
                ("name", &address.name),
                ("apiGroup", &address.group),
                ("apiVersion", &address.version),
                ("subresource", &address.subresource),
            ];
            let said = words.into_iter().filter(|(_, word)| !word.is_empty());
            event["objectRef"] = said.map(|(name, word)| (name.to_owned(), json!(cut(word)))).collect();
        }
        if let Some(caller) = self.caller.get() {
            event["user"] = user(&caller.user);
            if let Some(acts_as) = &caller.acts_as {
                event["impersonatedUser"] = user(acts_as);
            }
            let decision = if self.allowed.load(Ordering::Relaxed) { "allow" } else { "forbid" };
            event["annotations"] = json!({ "authorization.k8s.io/decision": decision });
        }
        event
    }
}

fn micros(time: Timestamp) -> String {
    format!("{time:.6}")
}

fn user(identity: &Identity) -> Value {
    let mut user = json!({ "username": identity.user, "groups": identity.groups });
    if !identity.uid.is_empty() {
        user["uid"] = json!(identity.uid);
    }
    if !identity.extra.is_empty() {
        user["extra"] = json!(identity.extra);
    }
    user
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_full_file_is_put_aside_and_the_oldest_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let mut pages = Pages::open(path.clone(), 10).unwrap();
        for number in 0..15 {
            pages.write(&format!("line {number:02}\n")).unwrap();
        }
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!((read("audit.log").as_str(), read("audit.log.1").as_str()), ("line 14\n", "line 13\n"));
        assert_eq!(read("audit.log.10"), "line 04\n");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 11);
        drop(pages);
        Pages::open(path, 100).unwrap().write("more\n").unwrap();
        assert_eq!(read("audit.log"), "line 14\nmore\n", "it goes on where it ended");
    }
}
