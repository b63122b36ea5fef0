//! Watches: one line of JSON per change, on an answer that stays open.
//!
//! A line is the event's type around the stored object's own bytes; only a synthetic event (an object that starts or
//! stops matching) or another form (table, metadata) is built anew.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use api::{Kind, Status};
use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::StreamBody;
use serde_json::{Value, json};
use store::{Change, HistoryError, Object, Revision, WatchEnd};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::body::Body;
use crate::list::{self, Selection};
use crate::metrics::OpenWatch;
use crate::negotiate::Form;
use crate::random;
use crate::request::Request;
use crate::respond;
use crate::state::State;
use crate::table::{self, Include};

const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// Watches without a limit of their own live once to twice this long.
const DEFAULT_LIFE: Duration = Duration::from_secs(30 * 60);
/// No watch lives longer, whatever it asks for.
const LONGEST_LIFE: Duration = Duration::from_secs(24 * 60 * 60);
/// About how much of the initial state goes into one frame.
const FRAME: usize = 64 * 1024;

pub(crate) fn handle(state: &State, request: &Request) -> Result<Response<Body>, Status> {
    let form = request.accept.for_objects()?;
    if request.accept.prefers_yaml() {
        return Err(Status::not_acceptable());
    }
    let query = &request.query;
    list::check_options(query)?;
    let selection = Selection::parse(request)?;
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
        let takes = |object: &Arc<Object>| selection.takes_all() || selection.takes(&object.value());
        let selected = page.items.into_iter().filter(takes).collect();
        // Without a version the objects that are there come first, asked for or not, and whoever can be told where
        // they end is told.
        let end = bookmarks.then_some(page.revision);
        (Initial { objects: selected, end }, watch)
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
    let now = Instant::now();
    let stream = Stream {
        lines: Lines {
            kind: request.kind,
            api_version: request.kind.api_version(),
            form,
            include: Include::parse(query)?,
            selection,
            first: true,
        },
        initial,
        watch,
        bookmarks,
        next_bookmark: now + BOOKMARK_EVERY,
        deadline: now + life,
        stopping: request.stopping.clone(),
        ended: false,
        _open: state.metrics.watch_opened(),
    };
    let frames = futures::stream::unfold(stream, |mut stream| async move {
        let bytes = stream.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(bytes)), stream))
    });
    Ok(respond::json(StatusCode::OK, Body::stream(StreamBody::new(frames))))
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
    respond::json(StatusCode::OK, error_line(status))
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
}

/// One open watch.
struct Stream {
    lines: Lines,
    initial: Initial,
    watch: store::Watch,
    bookmarks: bool,
    next_bookmark: Instant,
    deadline: Instant,
    stopping: CancellationToken,
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
            let wake = self.deadline.min(self.next_bookmark);
            tokio::select! {
                biased;
                change = self.watch.next() => {
                    let Some(change) = change else { return self.cut_off() };
                    if let Some(line) = self.lines.change(&change) {
                        return Some(line);
                    }
                }
                () = self.stopping.cancelled() => return self.last_words(),
                () = tokio::time::sleep_until(wake) => {
                    if Instant::now() >= self.deadline {
                        return self.last_words();
                    }
                    self.next_bookmark = Instant::now() + BOOKMARK_EVERY;
                    if self.bookmarks {
                        return Some(self.lines.bookmark(self.watch.progress(), false));
                    }
                }
            }
        }
    }

    fn initial_frame(&mut self) -> Option<Bytes> {
        let mut frame = Vec::new();
        while frame.len() < FRAME {
            let Some(object) = self.initial.objects.pop_front() else { break };
            self.lines.write(&mut frame, "ADDED", &object);
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
    fn last_words(&mut self) -> Option<Bytes> {
        self.ended = true;
        self.bookmarks.then(|| self.lines.bookmark(self.watch.progress(), false))
    }
}

fn open_event(out: &mut Vec<u8>, event: &str) {
    out.extend_from_slice(br#"{"type":""#);
    out.extend_from_slice(event.as_bytes());
    out.extend_from_slice(br#"","object":"#);
}

const CLOSE_EVENT: &[u8] = b"}\n";

/// How changes become lines.
struct Lines {
    kind: &'static Kind,
    api_version: String,
    form: Form,
    include: Include,
    selection: Selection,
    /// Nothing was sent yet: the first table carries the columns.
    first: bool,
}

impl Lines {
    /// The line for a change, or nothing if this watcher does not see it.
    fn change(&mut self, change: &Change) -> Option<Bytes> {
        let takes =
            |lines: &Self, object: &Object| lines.selection.takes_all() || lines.selection.takes(&object.value());
        let mut out = Vec::new();
        match change {
            Change::Added(object) => {
                takes(self, object).then(|| self.write(&mut out, "ADDED", object))?;
            }
            Change::Modified { before, after } => match (takes(self, before), takes(self, after)) {
                (true, true) => self.write(&mut out, "MODIFIED", after),
                (false, true) => self.write(&mut out, "ADDED", after),
                // It leaves the selection: shown as it last matched, at the revision that made it leave.
                (true, false) => {
                    let mut last = before.to_value();
                    api::meta::set_resource_version(&mut last, &after.revision.0.to_string());
                    self.write_made(&mut out, "DELETED", &last);
                }
                (false, false) => return None,
            },
            Change::Deleted { last, .. } => {
                takes(self, last).then(|| self.write(&mut out, "DELETED", last))?;
            }
        }
        Some(out.into())
    }

    /// Appends one event about a stored object, with the object's own bytes wherever its form is the stored one.
    fn write(&mut self, out: &mut Vec<u8>, event: &str, object: &Object) {
        match self.form {
            Form::Object | Form::Discovery { .. } if self.kind.face.is_none() => {
                out.reserve(object.json.len() + 96);
                open_event(out, event);
                respond::write_framed(out, self.kind.kind, &self.api_version, &object.json);
                out.extend_from_slice(CLOSE_EVENT);
            }
            Form::Object | Form::Discovery { .. } | Form::Table { .. } | Form::Partial => {
                self.write_made(out, event, &object.value());
            }
        }
    }

    /// Appends one event about a value that is not stored like this.
    fn write_made(&mut self, out: &mut Vec<u8>, event: &str, value: &Value) {
        open_event(out, event);
        match self.form {
            Form::Object | Form::Discovery { .. } => {
                let json = respond::to_bytes(self.kind.to_shown(value).as_ref().unwrap_or(value));
                respond::write_framed(out, self.kind.kind, &self.api_version, &json);
            }
            Form::Table { version } => {
                let first = std::mem::take(&mut self.first);
                out.extend(respond::to_bytes(&table::event(self.kind, version, value, self.include, first)));
            }
            Form::Partial => out.extend(respond::to_bytes(&table::partial(value))),
        }
        out.extend_from_slice(CLOSE_EVENT);
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
        json!({ "kind": self.kind.kind, "apiVersion": self.api_version, "metadata": metadata })
    }
}
