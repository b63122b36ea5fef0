//! Lines that many watches send alike, made once.
//!
//! Everybody who watches a collection in its stored form is sent the same bytes, so the lines of what changed last are kept
//! and shared. Who has fallen behind makes its own: what is kept is for those who keep up.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use api::Kind;
use bytes::Bytes;
use store::Object;

use crate::respond;

/// How many lines are kept, and about how many bytes. At least one is.
const KEPT: usize = 256;
const KEPT_BYTES: usize = 1 << 20;

/// What happened to an object, in the words of a watch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    Added,
    Modified,
    Deleted,
}

impl Event {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// Begins a line, up to its object.
pub(crate) fn open(out: &mut Vec<u8>, event: Event) {
    out.extend_from_slice(br#"{"type":""#);
    out.extend_from_slice(event.as_str().as_bytes());
    out.extend_from_slice(br#"","object":"#);
}

/// Ends a line.
pub(crate) fn close(out: &mut Vec<u8>) {
    out.extend_from_slice(b"}\n");
}

/// Appends the line of a stored object, with the object's own bytes.
pub(crate) fn write(out: &mut Vec<u8>, event: Event, kind: &Kind, api_version: &str, object: &Object) {
    out.reserve(object.json.len() + 96);
    open(out, event);
    respond::write_framed(out, kind.kind, api_version, &object.json);
    close(out);
}

/// The lines of what changed last.
#[derive(Default)]
pub(crate) struct WatchEventCache(Mutex<CachedEvents>);

#[derive(Default)]
struct CachedEvents {
    /// Oldest first.
    lines: VecDeque<CachedEvent>,
    bytes: usize,
}

struct CachedEvent {
    revision: u64,
    event: Event,
    kind: &'static Kind,
    bytes: Bytes,
}

impl CachedEvent {
    /// A revision belongs to one object of a kind; the kind says under which of its names it is shown.
    fn is_of(&self, event: Event, kind: &'static Kind, object: &Object) -> bool {
        self.revision == object.revision.0 && self.event == event && std::ptr::eq(self.kind, kind)
    }
}

impl WatchEventCache {
    /// The line of a stored object: the one that is kept, or a new one.
    pub(crate) fn line(&self, event: Event, kind: &'static Kind, api_version: &str, object: &Object) -> Bytes {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Most ask for the newest.
        if let Some(line) = kept.lines.iter().rev().find(|line| line.is_of(event, kind, object)) {
            return line.bytes.clone();
        }
        let mut line = Vec::new();
        write(&mut line, event, kind, api_version, object);
        let bytes = Bytes::from(line);
        kept.bytes += bytes.len();
        kept.lines.push_back(CachedEvent { revision: object.revision.0, event, kind, bytes: bytes.clone() });
        while kept.lines.len() > KEPT || (kept.bytes > KEPT_BYTES && kept.lines.len() > 1) {
            let gone = kept.lines.pop_front().map_or(0, |line| line.bytes.len());
            kept.bytes -= gone;
        }
        bytes
    }
}
