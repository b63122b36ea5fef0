//! Encoded watch events, shared by all watches that send them in the same form.
//!
//! Watches of a collection in its stored form send the same bytes, so the newest events are encoded once and cached. A watch that
//! has fallen behind the cache encodes its own.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use api::Kind;
use bytes::Bytes;
use store::Object;

use crate::respond;

/// Bounds of the cache: events, and about how many bytes. At least one event is kept.
const KEPT: usize = 256;
const KEPT_BYTES: usize = 1 << 20;

/// The type of a watch event.
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

/// Begins an encoded event, up to its object.
pub(crate) fn open(out: &mut Vec<u8>, event: Event) {
    out.extend_from_slice(br#"{"type":""#);
    out.extend_from_slice(event.as_str().as_bytes());
    out.extend_from_slice(br#"","object":"#);
}

/// Ends an encoded event.
pub(crate) fn close(out: &mut Vec<u8>) {
    out.extend_from_slice(b"}\n");
}

/// Appends the event of a stored object, with the object's own bytes.
pub(crate) fn write(out: &mut Vec<u8>, event: Event, kind: &Kind, object: &Object) {
    out.reserve(object.json.len() + 96);
    open(out, event);
    respond::write_framed(out, &kind.kind, kind.api_version(), &object.json);
    close(out);
}

/// The encoded events of the newest changes.
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
    kind: Arc<Kind>,
    bytes: Bytes,
}

impl CachedEvent {
    /// A revision belongs to one object of a kind; the kind says under which of its names it is shown.
    fn is_of(&self, event: Event, kind: &Kind, object: &Object) -> bool {
        self.revision == object.revision.0 && self.event == event && *self.kind == *kind
    }
}

impl WatchEventCache {
    /// The encoded event of a stored object, from the cache or new.
    pub(crate) fn line(&self, event: Event, kind: &Arc<Kind>, object: &Object) -> Bytes {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Most ask for the newest.
        if let Some(line) = kept.lines.iter().rev().find(|line| line.is_of(event, kind, object)) {
            return line.bytes.clone();
        }
        let mut line = Vec::new();
        write(&mut line, event, kind, object);
        let bytes = Bytes::from(line);
        kept.bytes += bytes.len();
        kept.lines.push_back(CachedEvent {
            revision: object.revision.0,
            event,
            kind: Arc::clone(kind),
            bytes: bytes.clone(),
        });
        while kept.lines.len() > KEPT || (kept.bytes > KEPT_BYTES && kept.lines.len() > 1) {
            let gone = kept.lines.pop_front().map_or(0, |line| line.bytes.len());
            kept.bytes -= gone;
        }
        bytes
    }
}
