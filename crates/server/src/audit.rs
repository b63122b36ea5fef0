//! Who did what: a line of JSON for every request from outside, as `audit.k8s.io/v1` events. How much of a request is in its line is
//! what the policy says (`audit_policy`).
//!
//! No request waits for the disk: lines go through a queue, and those for which it has no room are left out and counted. A body that
//! is too long is left out of its line, which says so.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use frame::Clock;
use http::{HeaderMap, Method, Uri, header};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::audit_policy::{AuditDecision, AuditPolicy, AuditTarget, Level};
use crate::body::Body;
use crate::identity::Identity;
use crate::proxy::Peer;
use crate::request::Address;

/// How many lines may wait for the disk.
const QUEUE: usize = 4096;
/// How many bytes of them may.
const QUEUE_BYTES: usize = 32 << 20;
/// Longest body that is written down.
const BODY_MAX: usize = 100 << 10;
/// Says of an event that bodies are missing in it.
const TRUNCATED: &str = "audit.k8s.io/truncated";
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
    backlog: Arc<Backlog>,
    policy: AuditPolicy,
}

/// What the queue and its writer count together.
#[derive(Debug, Default)]
struct Backlog {
    bytes: AtomicUsize,
    lost: AtomicU64,
}

impl AuditLog {
    /// Opens the log at `path`, readable by its owner only, and goes on where it ends.
    pub fn open(path: &Path, policy: AuditPolicy) -> io::Result<Self> {
        let file = Pages::open(path.to_owned(), FILE_MAX)?;
        let (queue, lines) = sync_channel(QUEUE);
        let backlog = Arc::new(Backlog::default());
        let of_writer = Arc::clone(&backlog);
        std::thread::Builder::new().name("audit".to_owned()).spawn(move || write_all(file, &lines, &of_writer))?;
        Ok(Self { queue, written: AtomicU64::new(0), backlog, policy })
    }

    /// How many lines were taken, and how many of them and of others were left out.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.written.load(Ordering::Relaxed), self.backlog.lost.load(Ordering::Relaxed))
    }

    pub(crate) fn tell(&self, event: &Value) {
        let line = format!("{event}\n");
        let length = line.len();
        let before = self.backlog.bytes.fetch_add(length, Ordering::Relaxed);
        let sent = match before + length <= QUEUE_BYTES {
            true => self.queue.try_send(line),
            false => Err(TrySendError::Full(line)),
        };
        match sent {
            Ok(()) => _ = self.written.fetch_add(1, Ordering::Relaxed),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.backlog.bytes.fetch_sub(length, Ordering::Relaxed);
                if self.backlog.lost.fetch_add(1, Ordering::Relaxed) == 0 {
                    tracing::warn!("the audit log cannot keep up: what happens is not written down any more");
                }
            }
        }
    }
}

/// Writes lines until nobody sends any.
fn write_all(mut pages: Pages, lines: &Receiver<String>, backlog: &Backlog) {
    let mut fails = false;
    while let Ok(line) = lines.recv() {
        // What has come meanwhile goes along: one call for all of it.
        let mut batch = line;
        while batch.len() < (1 << 20)
            && let Ok(line) = lines.try_recv()
        {
            batch.push_str(&line);
        }
        backlog.bytes.fetch_sub(batch.len(), Ordering::Relaxed);
        match pages.write(&batch) {
            Ok(()) => fails = false,
            Err(error) => {
                backlog.lost.fetch_add(batch.lines().count() as u64, Ordering::Relaxed);
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
    policy: AuditPolicy,
    pub(crate) caller: OnceLock<Caller>,
    pub(crate) allowed: AtomicBool,
    sent: OnceLock<Written>,
    answered: OnceLock<Written>,
}

/// What is written down of a body.
enum Written {
    /// It is no object.
    Nothing,
    Object(Value),
    TooLong,
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
    pub(crate) fn new<B>(log: &'a AuditLog, id: &'a str, request: &http::Request<B>, clock: Clock) -> Self {
        Self { log, id, record: Record::of(request, clock, log.policy.clone()), is_told: false }
    }

    /// It was answered; `goes_on` if the end of the answer is not known.
    pub(crate) fn answered(mut self, code: u16, goes_on: bool) {
        self.is_told = true;
        self.tell(code, goes_on);
    }

    fn tell(&self, code: u16, goes_on: bool) {
        if let Some(event) = self.record.event(self.id, code, goes_on) {
            self.log.tell(&event);
        }
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if !self.is_told {
            self.tell(0, false);
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
    fn of<B>(request: &http::Request<B>, clock: Clock, policy: AuditPolicy) -> Self {
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
            policy,
            caller: OnceLock::new(),
            allowed: AtomicBool::new(false),
            sent: OnceLock::new(),
            answered: OnceLock::new(),
        }
    }

    /// What the policy says of it. Who asks is the one who came, whomever it acts as.
    fn decision(&self) -> AuditDecision {
        let (address, query) = Address::of(&self.uri);
        let method = self.method.as_str().to_ascii_lowercase();
        let (verb, target) = match &address {
            Address::Path(path) => (method, AuditTarget::Path(path)),
            Address::Resource(at) => {
                let verb = at.verb(&self.method, &query).map_or(method, |verb| verb.as_str().to_owned());
                (verb, AuditTarget::Resource(at))
            }
        };
        self.policy.decide(self.caller.get().map(|caller| &caller.user), &verb, &target)
    }

    /// Notes what was sent, if it is to be written down.
    pub(crate) fn note_sent(&self, headers: &HeaderMap, body: &Bytes) {
        if !self.policy.takes_bodies() || body.is_empty() {
            return;
        }
        let decision = self.decision();
        if decision.level >= Level::Request {
            let media = headers.get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok()).unwrap_or_default();
            let _ = self.sent.set(match body.len() {
                0..=BODY_MAX => written(sent(media, body), &decision),
                _ => Written::TooLong,
            });
        }
    }

    /// Notes what is answered, if it is to be written down.
    pub(crate) fn note_answer(&self, answer: &http::Response<Body>) {
        if !self.policy.takes_bodies() {
            return;
        }
        let is_json = answer.headers().get(header::CONTENT_TYPE).is_some_and(|media| media == "application/json");
        let decision = self.decision();
        if decision.level < Level::RequestResponse || !is_json || answer.body().lasts() {
            return;
        }
        let _ = self.answered.set(match answer.body().copy(BODY_MAX) {
            Some(text) => written(serde_json::from_slice(&text).ok(), &decision),
            None => Written::TooLong,
        });
    }

    /// The event, once there is an answer; `goes_on` if its end is not. None if the policy wants none.
    fn event(&self, id: &str, code: u16, goes_on: bool) -> Option<Value> {
        let decision = self.decision();
        let stage = if goes_on { "ResponseStarted" } else { "ResponseComplete" };
        if decision.omits(stage) {
            return None;
        }
        let (address, query) = Address::of(&self.uri);
        let uri = self.uri.path_and_query().map_or("", http::uri::PathAndQuery::as_str);
        let uri: String = uri.chars().take(URI_MAX).collect();
        let mut event = json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": decision.level.name(), "auditID": id,
            "stage": stage,
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
        for (name, body) in [("requestObject", self.sent.get()), ("responseObject", self.answered.get())] {
            match body {
                Some(Written::Object(value)) => event[name] = value.clone(),
                Some(Written::TooLong) => event["annotations"][TRUNCATED] = json!("true"),
                Some(Written::Nothing) | None => {}
            }
        }
        Some(event)
    }
}

/// What was sent, in whatever words.
fn sent(media: &str, body: &[u8]) -> Option<Value> {
    let media = media.split(';').next().unwrap_or_default().trim();
    if media.is_empty() || media.ends_with("json") {
        return serde_json::from_slice(body).ok();
    }
    let media = if media.ends_with("+yaml") { "application/yaml" } else { media };
    let read = api::decode::read_body(Some(media), body, "object").ok()?;
    let Value::Object(mut fields) = read.value else { return None };
    for (name, word) in [("apiVersion", read.api_version), ("kind", read.kind)] {
        if !word.is_empty() {
            fields.insert(name.to_owned(), json!(word));
        }
    }
    Some(Value::Object(fields))
}

fn written(value: Option<Value>, decision: &AuditDecision) -> Written {
    let Some(mut value) = value else { return Written::Nothing };
    if decision.omits_managed_fields {
        let forget = |object: &mut Value| {
            if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.remove("managedFields");
            }
        };
        forget(&mut value);
        value.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten().for_each(forget);
    }
    Written::Object(value)
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
    fn event_for_which_there_is_no_room_is_counted_and_nobody_waits() {
        let (queue, lines) = sync_channel(QUEUE);
        let log =
            AuditLog { queue, written: AtomicU64::new(0), backlog: Arc::default(), policy: AuditPolicy::default() };
        let event = json!({ "requestObject": "x".repeat(BODY_MAX) });
        // Nobody writes.
        (0..1_000).for_each(|_| log.tell(&event));
        let (written, lost) = log.counts();
        assert_eq!(written + lost, 1_000);
        assert!((300..=328).contains(&written), "{written}");
        drop(lines);
        log.tell(&json!({}));
        assert_eq!(log.counts(), (written, lost + 1));
    }

    #[test]
    fn body_is_written_down_in_whatever_words_it_came() {
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" } });
        let text = pod.to_string();
        for media in ["", "application/json", "application/yaml", "application/json; charset=utf-8"] {
            assert_eq!(sent(media, text.as_bytes()).as_ref(), Some(&pod), "{media}");
        }
        assert_eq!(
            sent("application/apply-patch+yaml", b"metadata: {name: p}"),
            Some(json!({ "metadata": { "name": "p" } }))
        );
        assert_eq!(sent("application/json-patch+json", b"[]"), Some(json!([])));
        for (media, body) in
            [("application/json", &b"{"[..]), ("text/plain", b"x"), ("application/vnd.kubernetes.protobuf", b"k8s")]
        {
            assert_eq!(sent(media, body), None, "{media}");
        }
    }

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
