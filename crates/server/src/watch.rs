//! Watches: one line of JSON per change, on an answer that stays open.
//!
//! A line is the event's type around the stored object's own bytes, made once for everybody ([`crate::watch_event_cache`]); only a
//! synthetic event (an object that stops matching) or another form (table, metadata) is built anew. A watch that finds
//! several changes sends them together.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use api::{Kind, Status};
use bytes::Bytes;
use frame::Clock;
use futures::future::OptionFuture;
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::StreamBody;
use serde_json::{Value, json};
use store::{Change, HistoryError, Object, Revision, WatchEnd};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::body::{Body, HeadRoom};
use crate::encoding;
use crate::list::{self, Selection};
use crate::metrics::OpenWatch;
use crate::negotiate::{Form, Media};
use crate::random;
use crate::request::Request;
use crate::respond;
use crate::state::State;
use crate::table::{self, Include};
use crate::watch_event_cache::{self, Event, WatchEventCache};

const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// Watches without a limit of their own live once to twice this long.
const DEFAULT_LIFE: Duration = Duration::from_secs(30 * 60);
/// No watch lives longer, whatever it asks for.
const LONGEST_LIFE: Duration = Duration::from_secs(24 * 60 * 60);
/// About how much goes into one frame, of the initial state and of changes that came together.
const FRAME: usize = 64 * 1024;

pub(crate) fn handle(state: &State, request: &Request) -> Result<Response<Body>, Status> {
    let form = request.accept.for_objects()?;
    if request.accept.media() == Media::Yaml {
        return Err(Status::not_acceptable());
    }
    let query = &request.query;
    list::check_options(query)?;
    let selection = Selection::parse(&request.kind, &request.query)?;
    let version = list::parse_version(query)?;
    let bookmarks = query.flag("allowWatchBookmarks");
    let asked_for_initial = query.get("sendInitialEvents").is_some() && query.flag("sendInitialEvents");
    let refused_initial = query.get("sendInitialEvents").is_some() && !asked_for_initial;

    let collection = request.kind.collection();
    let namespace = request.namespace.as_str();
    let from_version = version.filter(|version| *version != 0);
    let (initial, watch) = if asked_for_initial || (from_version.is_none() && !refused_initial) {
        if let Some(asked) = from_version {
            list::check_not_future(state, asked)?;
        }
        let (page, watch) = state.store.list_and_watch(collection, namespace);
        let selected = page.items.into_iter().filter(|object| selection.takes(object)).collect();
        // Without a version the objects that are there come first, asked for or not, and whoever can be told where
        // they end is told.
        let end = bookmarks.then_some(page.revision);
        (Initial { objects: selected, end, room: HeadRoom::default() }, watch)
    } else {
        match state.store.watch(collection, namespace, from_version.map(Revision)) {
            Ok(watch) => (Initial::default(), watch),
            Err(error) => return Ok(error_event(&history_status(error))),
        }
    };

    let life = match query.number("timeoutSeconds")? {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds.unsigned_abs()).min(LONGEST_LIFE),
        Some(_) | None => random::jittered(DEFAULT_LIFE),
    };
    // Objects are the store's, but each watch has a list of its own of those that it sends first.
    let (held, room) = (initial.objects.capacity() * size_of::<Arc<Object>>(), initial.room.clone());
    let removal = state.kinds.removal(&request.kind).map(|removed| Box::pin(removed.cancelled_owned()));
    let now = Instant::now();
    let (next_bookmark, deadline) = (now + BOOKMARK_EVERY, now + life);
    // In a box: it is handed from frame to frame.
    let stream = Box::new(Stream {
        lines: EventEncoder {
            shared: Arc::clone(&state.watch_events),
            kind: Arc::clone(&request.kind),
            form,
            include: Include::parse(query)?,
            selection,
            clock: state.clock,
            first: true,
        },
        initial,
        watch,
        bookmarks,
        next_bookmark,
        deadline,
        wake: Box::pin(tokio::time::sleep_until(next_bookmark.min(deadline))),
        stopping: Box::pin(request.stopping.clone().cancelled_owned()),
        removed: OptionFuture::from(removal),
        ended: false,
        _open: state.metrics.watch_opened(),
    });
    let frames = futures::stream::unfold(stream, |mut stream| async move {
        let bytes = stream.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(bytes)), stream))
    });
    Ok(lines_of(Body::watch(StreamBody::new(frames), held, room)))
}

/// An answer of events, one a line.
fn lines_of(body: impl Into<Body>) -> Response<Body> {
    let mut response = respond::json(StatusCode::OK, body);
    response.extensions_mut().insert(encoding::Watched);
    response
}

fn history_status(error: HistoryError) -> Status {
    match error {
        HistoryError::Compacted { asked, oldest } => {
            Status::expired(format!("too old resource version: {} ({})", asked.0, oldest.0))
        }
        HistoryError::Future { asked, newest } => Status::too_large_resource_version(asked.0, newest.0),
    }
}

/// A watch that cannot start answers 200 with one ERROR event, which is what clients expect.
fn error_event(status: &Status) -> Response<Body> {
    lines_of(error_line(status))
}

fn error_line(status: &Status) -> Bytes {
    let mut line = json!({ "type": "ERROR", "object": status.to_json() }).to_string();
    line.push('\n');
    line.into()
}

/// What is there when the watch starts.
#[derive(Default)]
struct Initial {
    objects: VecDeque<Arc<Object>>,
    /// Announces the end of the initial state, once.
    end: Option<Revision>,
    room: HeadRoom,
}

/// One open watch.
struct Stream {
    lines: EventEncoder,
    initial: Initial,
    watch: store::Watch,
    bookmarks: bool,
    next_bookmark: Instant,
    deadline: Instant,
    /// Rings at the first of the two. Kept, as is `stopping`, so that an event costs no timer.
    wake: Pin<Box<Sleep>>,
    stopping: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Its kind is no more, if it is one that can go.
    removed: OptionFuture<Pin<Box<WaitForCancellationFutureOwned>>>,
    ended: bool,
    _open: OpenWatch,
}

impl Stream {
    /// The next lines to send; `None` ends the answer.
    async fn next(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        if let Some(frame) = self.initial_frame() {
            return Some(frame);
        }
        loop {
            tokio::select! {
                biased;
                change = self.watch.next() => {
                    let Some(change) = change else { return self.cut_off() };
                    if let Some(frame) = self.changes_frame(&change) {
                        return Some(frame);
                    }
                }
                () = self.stopping.as_mut() => return self.final_bookmark(),
                Some(()) = &mut self.removed => {
                    self.ended = true;
                    return None;
                }
                () = self.wake.as_mut() => {
                    if Instant::now() >= self.deadline {
                        return self.final_bookmark();
                    }
                    self.next_bookmark = Instant::now() + BOOKMARK_EVERY;
                    self.wake.as_mut().reset(self.next_bookmark.min(self.deadline));
                    if self.bookmarks {
                        return Some(self.lines.bookmark(self.watch.progress(), false));
                    }
                }
            }
        }
    }

    /// The lines of `change` and of those that came with it; nothing if this watcher sees none of them. A frame ends
    /// between revisions, however long it gets: a client that is cut off after it resumes with the next.
    fn changes_frame(&mut self, change: &Change) -> Option<Bytes> {
        let mut frame = self.lines.change(change);
        let mut joined = Vec::new();
        let mut last = change.revision();
        while (frame.as_ref().map_or(0, Bytes::len) + joined.len() < FRAME || self.watch.ready_revision() == Some(last))
            && let Some(change) = self.watch.next_ready()
        {
            last = change.revision();
            let Some(line) = self.lines.change(&change) else { continue };
            match &frame {
                // One line alone is sent as it is shared.
                None => frame = Some(line),
                Some(first) => {
                    if joined.is_empty() {
                        joined.extend_from_slice(first);
                    }
                    joined.extend_from_slice(&line);
                }
            }
        }
        if joined.is_empty() { frame } else { Some(joined.into()) }
    }

    fn initial_frame(&mut self) -> Option<Bytes> {
        let mut frame = Vec::new();
        while frame.len() < FRAME {
            let Some(object) = self.initial.objects.pop_front() else { break };
            self.lines.write(&mut frame, Event::Added, &object);
        }
        if self.initial.objects.is_empty() && self.initial.objects.capacity() > 0 {
            self.initial.objects = VecDeque::new();
            self.initial.room.release();
        }
        if self.initial.objects.is_empty()
            && let Some(revision) = self.initial.end.take()
        {
            frame.extend_from_slice(&self.lines.bookmark(revision, true));
        }
        (!frame.is_empty()).then(|| Bytes::from(frame))
    }

    /// The store has no more for this watch. A client that was too slow is told that what it has not read is gone, so
    /// that it lists again; if the store closes, it resumes from what it has.
    fn cut_off(&mut self) -> Option<Bytes> {
        self.ended = true;
        if self.watch.end() != Some(WatchEnd::Lagged) {
            return None;
        }
        let seen = self.watch.progress();
        Some(error_line(&Status::expired(format!("too old resource version: {seen}; the watch did not keep up"))))
    }

    /// A last bookmark spares the client from reading again what it has seen.
    fn final_bookmark(&mut self) -> Option<Bytes> {
        self.ended = true;
        self.bookmarks.then(|| self.lines.bookmark(self.watch.progress(), false))
    }
}

/// Encodes changes as the events of one watch.
struct EventEncoder {
    shared: Arc<WatchEventCache>,
    kind: Arc<Kind>,
    form: Form,
    include: Include,
    selection: Selection,
    /// Dates the rows of tables.
    clock: Clock,
    /// Nothing was sent yet: the first table carries the columns.
    first: bool,
}

impl EventEncoder {
    /// The encoded event of a change, or `None` if this watch does not select it.
    fn change(&mut self, change: &Change) -> Option<Bytes> {
        match change {
            Change::Added(object) => self.selection.takes(object).then(|| self.line(Event::Added, object)),
            Change::Modified { before, after } => match (self.selection.takes(before), self.selection.takes(after)) {
                (true, true) => Some(self.line(Event::Modified, after)),
                (false, true) => Some(self.line(Event::Added, after)),
                // It leaves the selection: shown as it last matched, at the revision that made it leave.
                (true, false) => {
                    let mut last = before.to_value();
                    api::meta::set_resource_version(&mut last, &after.revision.0.to_string());
                    let mut out = Vec::new();
                    self.write_made(&mut out, Event::Deleted, &last);
                    Some(out.into())
                }
                (false, false) => None,
            },
            Change::Deleted { last, .. } => self.selection.takes(last).then(|| self.line(Event::Deleted, last)),
        }
    }

    /// One event about a stored object, shared with everybody else wherever its form is the stored one.
    fn line(&mut self, event: Event, object: &Object) -> Bytes {
        if self.shows_stored_bytes() {
            return self.shared.line(event, &self.kind, object);
        }
        let mut out = Vec::new();
        self.write_made(&mut out, event, &object.value());
        out.into()
    }

    /// Appends one event about a stored object.
    fn write(&mut self, out: &mut Vec<u8>, event: Event, object: &Object) {
        if self.shows_stored_bytes() {
            watch_event_cache::write(out, event, &self.kind, object);
        } else {
            self.write_made(out, event, &object.value());
        }
    }

    fn shows_stored_bytes(&self) -> bool {
        match self.form {
            Form::Object | Form::Discovery { .. } => self.kind.face.is_none(),
            Form::Table { .. } | Form::Partial => false,
        }
    }

    /// Appends one event about a value that is not stored like this.
    fn write_made(&mut self, out: &mut Vec<u8>, event: Event, value: &Value) {
        watch_event_cache::open(out, event);
        match self.form {
            Form::Object | Form::Discovery { .. } => {
                let json = respond::to_bytes(self.kind.to_shown(value).as_ref().unwrap_or(value));
                respond::write_framed(out, &self.kind.kind, self.kind.api_version(), &json);
            }
            Form::Table { version } => {
                let first = std::mem::take(&mut self.first);
                out.extend(respond::to_bytes(&table::event(
                    &self.kind,
                    version,
                    value,
                    self.include,
                    first,
                    self.clock.now().timestamp,
                )));
            }
            Form::Partial => table::write_partial(out, value),
        }
        watch_event_cache::close(out);
    }

    /// A promise that everything up to `revision` was sent; `initial` says that this was the state at the start.
    fn bookmark(&self, revision: Revision, initial: bool) -> Bytes {
        let mut metadata = json!({ "resourceVersion": revision.0.to_string() });
        if initial {
            metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        let object = match self.form {
            Form::Partial => table::partial(&json!({ "metadata": metadata })),
            Form::Object | Form::Discovery { .. } => self.bare(metadata),
            Form::Table { version } => table::bookmark(version, &self.bare(metadata)),
        };
        let mut line = json!({ "type": "BOOKMARK", "object": object }).to_string();
        line.push('\n');
        line.into()
    }

    fn bare(&self, metadata: Value) -> Value {
        json!({ "kind": self.kind.kind, "apiVersion": self.kind.api_version(), "metadata": metadata })
    }
}
