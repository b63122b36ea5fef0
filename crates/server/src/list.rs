//! GET of a collection: consistent lists, in chunks if asked.

use std::sync::Arc;

use api::protobuf::{ListBody, Unwritable};
use api::selector::excerpt;
use api::{Cause, FieldSelector, Kind, LabelSelector, Status};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::{HistoryError, Object, Revision};

use crate::body::Body;
use crate::encoding;
use crate::inflight::SMALL_ANSWER;
use crate::negotiate::{Form, Media};
use crate::query::Query;
use crate::request::Request;
use crate::respond;
use crate::state::State;
use crate::table::{self, Include};

/// Which objects of a collection are meant.
pub(crate) struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
    /// What both ask about.
    paths: Vec<String>,
}

impl Selection {
    pub(crate) fn parse(kind: &Kind, query: &Query) -> Result<Self, Status> {
        let labels = LabelSelector::parse(query.get("labelSelector").unwrap_or_default())?;
        let fields = FieldSelector::parse(kind, query.get("fieldSelector").unwrap_or_default())?;
        let paths = labels.paths().map(ToOwned::to_owned).chain(fields.paths().map(ToOwned::to_owned)).collect();
        Ok(Self { labels, fields, paths })
    }

    pub(crate) fn takes_all(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn takes(&self, object: &Object) -> bool {
        if self.takes_all() {
            return true;
        }
        if self.fields.name().is_some_and(|name| *name != *object.key.name) {
            return false;
        }
        let matches = |value: &Value| self.labels.matches(value) && self.fields.matches(value);
        match object.parsed() {
            Some(value) => matches(&value),
            None => matches(&excerpt(&object.json, &self.paths)),
        }
    }
}

/// A list to be answered.
pub(crate) struct Listed {
    pub(crate) items: Vec<Arc<Object>>,
    revision: Revision,
    next: Option<String>,
    remaining: Option<usize>,
}

/// Where a chunked list continues. Opaque to clients.
#[derive(Serialize, Deserialize)]
struct Token {
    v: String,
    /// The first chunk's revision; -1: wherever the store is.
    rv: i64,
    namespace: String,
    name: String,
}

const TOKEN_VERSION: &str = "meta.k8s.io/v1";

impl Token {
    fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).expect("strings and numbers serialise"))
    }

    fn decode(text: &str) -> Result<Self, Status> {
        let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok();
        let token: Option<Self> = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        token
            .filter(|token| token.v == TOKEN_VERSION && token.rv >= -1 && token.rv != 0)
            .ok_or_else(|| Status::bad_request("continue key is not valid"))
    }
}

pub(crate) async fn handle(state: &State, request: &Request) -> Result<Response<Body>, Status> {
    let form = request.accept.for_objects()?;
    check_options(&request.query)?;
    let selection = Selection::parse(&request.kind, &request.query)?;
    let listed = page(state, request, &selection)?;
    if is_written_piece_by_piece(request) && (listed.items.len() > MANY || is_stored_form(request, form)) {
        return answer(request, form, listed);
    }
    // The whole answer is in memory until it is sent.
    let bytes = listed.items.iter().map(|object| object.json.len()).sum();
    if bytes <= SMALL_ANSWER {
        return answer(request, form, listed);
    }
    let room = state.inflight.reserve_answer(&request.identity, bytes).await?;
    let mut answer = answer(request, form, listed)?;
    answer.body_mut().reserve(room);
    Ok(answer)
}

/// A longer list is written as it is sent, if its form allows that.
const MANY: usize = 500;

fn is_written_piece_by_piece(request: &Request) -> bool {
    request.accept.media() == Media::Json && !request.pretty
}

/// Whether the items are sent as they are stored.
fn is_stored_form(request: &Request, form: Form) -> bool {
    matches!(form, Form::Object | Form::Discovery { .. }) && request.kind.face.is_none()
}

/// Reads what the request's list options ask for.
pub(crate) fn page(state: &State, request: &Request, selection: &Selection) -> Result<Listed, Status> {
    let query = &request.query;
    let limit = usize::try_from(query.number("limit")?.unwrap_or(0)).unwrap_or(0);
    let version = parse_version(query)?;
    let token = query.get("continue").map(Token::decode).transpose()?;
    let at = match &token {
        Some(_) if version.is_some_and(|version| version != 0) => {
            return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
        }
        Some(token) => u64::try_from(token.rv).ok().map(Revision),
        None => exactly(state, query, version, limit)?,
    };
    let collection = request.kind.collection();
    let page = state.store.list(collection, &request.namespace, at).map_err(|error| refused(error, token.as_ref()))?;
    // An unlimited list at revision 0 is how informers start; upstream ignores their limit.
    let limit = if version == Some(0) && token.is_none() { 0 } else { limit };
    let mut items = page.items;
    if let Some(token) = &token {
        let done = items.partition_point(|object| {
            (&*object.key.namespace, &*object.key.name) <= (token.namespace.as_str(), token.name.as_str())
        });
        items.drain(..done);
    }
    items.retain(|object| selection.takes(object));
    let rest = if limit > 0 { items.len().saturating_sub(limit) } else { 0 };
    items.truncate(items.len() - rest);
    // A page keeps nothing of what it is a page of.
    items.shrink_to_fit();
    let next = items.last().filter(|_| rest > 0).map(|last| {
        let (namespace, name) = (last.key.namespace.to_string(), last.key.name.to_string());
        let rv = i64::try_from(page.revision.0).unwrap_or(i64::MAX);
        Token { v: TOKEN_VERSION.to_owned(), rv, namespace, name }.encode()
    });
    let remaining = (rest > 0 && selection.takes_all()).then_some(rest);
    Ok(Listed { items, revision: page.revision, next, remaining })
}

/// The one revision a list must be true at, if it is not "now". Everything else is answered from the newest state,
/// which is never older than what was asked for.
fn exactly(state: &State, query: &Query, version: Option<u64>, limit: usize) -> Result<Option<Revision>, Status> {
    let Some(version) = version.filter(|version| *version != 0) else { return Ok(None) };
    check_not_future(state, version)?;
    let exact = match query.get("resourceVersionMatch") {
        Some("Exact") => true,
        Some(_) => false,
        // The older meaning of a version together with a limit.
        None => limit > 0,
    };
    Ok(exact.then_some(Revision(version)))
}

fn refused(error: HistoryError, token: Option<&Token>) -> Status {
    match (error, token) {
        (HistoryError::Compacted { .. }, Some(token)) => {
            let mut status = Status::expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new \
                 list without the continue parameter, or use the continue token in this response to retrieve the \
                 remainder of the results. Continuing with the provided token results in an inconsistent list - \
                 objects that were created, modified, or deleted between the time the first chunk was returned and \
                 now may show up in the list.",
            );
            let (namespace, name) = (token.namespace.clone(), token.name.clone());
            status.metadata_continue = Some(Token { v: TOKEN_VERSION.to_owned(), rv: -1, namespace, name }.encode());
            status
        }
        (HistoryError::Compacted { .. }, None) => {
            Status::expired("The resourceVersion for the provided list is too old.")
        }
        (HistoryError::Future { asked, newest }, _) => Status::too_large_resource_version(asked.0, newest.0),
    }
}

/// The list in the form the client wants.
pub(crate) fn answer(request: &Request, form: Form, listed: Listed) -> Result<Response<Body>, Status> {
    let kind = &request.kind;
    let mut metadata = json!({ "resourceVersion": listed.revision.0.to_string() });
    if let Some(next) = listed.next {
        metadata["continue"] = Value::from(next);
    }
    if let Some(remaining) = listed.remaining {
        metadata["remainingItemCount"] = Value::from(remaining);
    }
    if request.accept.media() == Media::Protobuf {
        return in_protobuf(kind, form, &metadata, &listed.items);
    }
    let bytes = match form {
        _ if !request.pretty && is_stored_form(request, form) => {
            let mut head = Vec::with_capacity(128);
            let frame = json!({ "metadata": metadata }).to_string();
            respond::write_framed(&mut head, kind.list_kind(), kind.api_version(), frame.as_bytes());
            head.pop();
            head.extend_from_slice(br#","items":["#);
            return Ok(respond::json(StatusCode::OK, Body::items(head, listed.items, b"]}")));
        }
        _ if listed.items.len() > MANY && is_written_piece_by_piece(request) => {
            return Ok(respond::json(StatusCode::OK, piece_by_piece(request, form, &metadata, listed.items)?));
        }
        Form::Object | Form::Discovery { .. } => {
            let show = |value: &Value| kind.to_shown(value).unwrap_or_else(|| value.clone());
            let items: Vec<Value> = listed.items.iter().map(|object| show(&object.value())).collect();
            respond::to_bytes(&json!({
                "kind": kind.list_kind(), "apiVersion": kind.api_version(), "metadata": metadata, "items": items,
            }))
        }
        Form::Table { version } => {
            let include = Include::parse(&request.query)?;
            let values = listed.items.iter().map(|object| object.value());
            respond::to_bytes(&table::table(kind, version, values, metadata, include, request.now))
        }
        Form::Partial => {
            let items: Vec<Value> = listed.items.iter().map(|object| table::partial(&object.value())).collect();
            respond::to_bytes(&json!({
                "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
                "items": items,
            }))
        }
    };
    Ok(respond::json(StatusCode::OK, respond::prettied(request.pretty, bytes)))
}

/// The body of a list whose objects are not sent as they are stored, each written when it is sent.
fn piece_by_piece(request: &Request, form: Form, metadata: &Value, items: Vec<Arc<Object>>) -> Result<Body, Status> {
    let kind = Arc::clone(&request.kind);
    let list = |kind: &str, api_version: &str| json!({ "kind": kind, "apiVersion": api_version, "metadata": metadata });
    let write = |out: &mut Vec<u8>, value: &Value| {
        // Writing to memory cannot fail.
        let _ = serde_json::to_writer(out, value);
    };
    Ok(match form {
        Form::Object | Form::Discovery { .. } => {
            let head = open(&list(kind.list_kind(), kind.api_version()), "items");
            Body::written_items(head, items, b"]}", move |out, object| {
                let value = object.value();
                write(out, kind.to_shown(&value).as_ref().unwrap_or(&value));
            })
        }
        Form::Table { version } => {
            let (include, now) = (Include::parse(&request.query)?, request.now);
            let mut empty = table::assemble(version, metadata.clone(), Some(api::table::columns(&kind)), Vec::new());
            empty.as_object_mut().map(|table| table.remove("rows"));
            Body::written_items(open(&empty, "rows"), items, b"]}", move |out, object| {
                write(out, &table::row(&kind, &object.value(), now, include));
            })
        }
        Form::Partial => {
            let head = open(&list("PartialObjectMetadataList", "meta.k8s.io/v1"), "items");
            Body::written_items(head, items, b"]}", |out, object| table::write_partial(out, &object.value()))
        }
    })
}

/// The JSON of `object`, open for the elements of one more field.
fn open(object: &Value, field: &str) -> Vec<u8> {
    let mut head = object.to_string().into_bytes();
    head.pop();
    head.extend_from_slice(format!(",\"{field}\":[").as_bytes());
    head
}

/// The list for those who read nothing but protobuf.
fn in_protobuf(kind: &Kind, form: Form, metadata: &Value, items: &[Arc<Object>]) -> Result<Response<Body>, Status> {
    let broken = |unwritable: Unwritable| Status::internal(&unwritable.to_string());
    let partial = form == Form::Partial;
    let began = if partial {
        ListBody::new("meta.k8s.io/v1", "PartialObjectMetadataList", "PartialObjectMetadata", metadata)
    } else {
        ListBody::new(kind.api_version(), kind.list_kind(), &kind.kind, metadata)
    };
    let mut list = began.map_err(broken)?.ok_or_else(Status::not_acceptable)?;
    for object in items {
        let value = object.value();
        let shown = if partial { Some(table::partial(&value)) } else { kind.to_shown(&value) };
        list.push(shown.as_ref().unwrap_or(&value)).map_err(broken)?;
    }
    Ok(respond::with_type(StatusCode::OK, encoding::PROTOBUF, list.finish()))
}

/// `resourceVersion`, which must be a number.
pub(crate) fn parse_version(query: &Query) -> Result<Option<u64>, Status> {
    let Some(text) = query.get("resourceVersion") else { return Ok(None) };
    let parsed = text.parse().map_err(|_| {
        Status::bad_request(format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        ))
    })?;
    Ok(Some(parsed))
}

/// 504 for a version that has not happened yet; clients retry by themselves.
pub(crate) fn check_not_future(state: &State, asked: u64) -> Result<(), Status> {
    let newest = state.store.revision().0;
    if asked > newest { Err(Status::too_large_resource_version(asked, newest)) } else { Ok(()) }
}

/// Which combinations of version, match, continue and initial events mean something.
pub(crate) fn check_options(query: &Query) -> Result<(), Status> {
    let refuse = |cause| Err(Status::invalid_of("ListOptions", "meta.k8s.io", "", vec![cause]));
    let matching = query.get("resourceVersionMatch");
    let version = query.get("resourceVersion");
    let forbidden = |text: &str| Cause::forbidden("resourceVersionMatch", text);
    if query.flag("watch") {
        return match (query.get("sendInitialEvents"), matching) {
            (None, None) | (Some(_), Some("NotOlderThan")) => Ok(()),
            (None, Some(_)) => {
                refuse(forbidden("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"))
            }
            (Some(_), None) => {
                refuse(forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"))
            }
            (Some(_), Some(other)) => refuse(Cause::not_supported("resourceVersionMatch", other, &["NotOlderThan"])),
        };
    }
    if query.get("sendInitialEvents").is_some() {
        return refuse(Cause::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    let Some(matching) = matching else { return Ok(()) };
    if query.get("continue").is_some() {
        return refuse(forbidden("resourceVersionMatch is forbidden when continue is provided"));
    }
    match (matching, version) {
        (_, None) => refuse(forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided")),
        ("Exact", Some("0")) => {
            refuse(forbidden("resourceVersionMatch \"Exact\" is forbidden for resourceVersion \"0\""))
        }
        ("Exact" | "NotOlderThan", Some(_)) => Ok(()),
        (other, Some(_)) => refuse(Cause::not_supported("resourceVersionMatch", other, &["", "Exact", "NotOlderThan"])),
    }
}
