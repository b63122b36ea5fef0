//! The whole API as one `tower` service: who asks, may they, what for, and the answer.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use api::selector::FieldSelector;
use api::{Registry, Status};
use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use tokio::time::Instant;

use crate::audit::{Pending, Record};
use crate::authenticate::authenticate;
use crate::authorize::{Attributes, Target, authorize};
use crate::body::{self, Body, BoxError};
use crate::byte_budget::Reservation;
use crate::connections::Asker;
use crate::identity::Identity;
use crate::inflight::SMALL_ANSWER;
use crate::metrics::{self, RequestLabels};
use crate::negotiate::{Accept, Media};
use crate::proxy::Peer;
use crate::query::{self, Query};
use crate::request::{Address, Request, ResourceAddress, Verb};
use crate::state::State;
use crate::tokens;
use crate::{
    binding, collection, create, custom, delete, discovery, encoding, get, health, inflight, list, logs_exec,
    node_rules, patch, proxy, random, respond, reviews, scale, socket, update, usage, watch,
};

/// A request that is not a stream or a watch must be answered within this.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// One that changes something, within this.
const WRITE_LIMIT: Duration = Duration::from_secs(34);
/// What a client is told of a panic.
const BROKEN: &str = "the server broke on this request";
/// What panics of requests are counted as.
const PART: &str = "api";
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// The API as a service over `http` types, for any request body. Made by [`crate::Server::service`].
#[derive(Clone)]
pub struct ApiService {
    pub(crate) state: Arc<State>,
    /// Every request is made as this user, whatever its extensions say.
    pub(crate) identity: Option<Identity>,
}

impl std::fmt::Debug for ApiService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiService").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl<B> tower::Service<http::Request<B>> for ApiService
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: http::Request<B>) -> Self::Future {
        let state = Arc::clone(&self.state);
        if let Some(identity) = &self.identity {
            request.extensions_mut().insert(identity.clone());
            // Our own parts are one program; it signs for what they write.
            let agent = HeaderValue::from_static(concat!("adieu/", env!("CARGO_PKG_VERSION")));
            request.headers_mut().entry(header::USER_AGENT).or_insert(agent);
        }
        Box::pin(async move { Ok(supervision::catch(PART, answer(&state, request)).await.unwrap_or_else(broken)) })
    }
}

/// Answers every request, even one whose handler breaks.
async fn answer<B>(state: &Arc<State>, request: http::Request<B>) -> Response<Body>
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let registry = state.kinds.now();
    let (what, began) = (what(&registry, &request), Instant::now());
    let (media, gzip) = (encoding::wanted(request.headers()), encoding::takes_gzip(request.headers()));
    // What our own parts do is what they are there for; who asked for it from outside is written down.
    let audit = state.audit.get().filter(|_| request.extensions().get::<Peer>().is_some());
    let id = random::uid();
    let pending = audit.map(|audit| Pending::new(audit, &id, &request, state.clock));
    let record = pending.as_ref().map(|pending| &pending.record);
    let (remote, client) = (request.extensions().get::<Peer>().is_some(), OnceLock::new());
    let outcome = supervision::catch(PART, dispatch(state, registry, request, record, &client)).await;
    let mut response = match outcome {
        Ok(Ok(response)) => response,
        Ok(Err(status)) => {
            // Not the message: it may quote what was sent.
            tracing::debug!(%method, path, code = status.code, reason = status.reason, "request refused");
            respond::status(&status)
        }
        Err(panic) => {
            tracing::error!(%method, path, "the handler of a request panicked");
            broken(panic)
        }
    };
    if let Some(record) = record {
        // Nobody has to be told of a panic but the log of the server: the answer is what it is.
        if let Err(panic) = supervision::catch_blocking(PART, || record.note_answer(&response)) {
            tracing::error!(%panic, "an answer could not be written down");
        }
    }
    let ours = response.extensions().get::<proxy::Verbatim>().is_none();
    response = match media {
        Media::Yaml if ours => encoding::as_yaml(response).await,
        Media::Protobuf if ours => encoding::as_protobuf(response).await,
        Media::Json | Media::Yaml | Media::Protobuf => response,
    };
    if remote && (!response.body().lasts() || response.body().unreserved() > 0) {
        let client = client.into_inner().unwrap_or_else(Identity::anonymous);
        response = counted(state, &client, &method, response).await.unwrap_or_else(|refused| respond::status(&refused));
    }
    if gzip && ours {
        response = encoding::packed(response);
    }
    if method == Method::HEAD {
        response = without_body(response);
    }
    state.metrics.answered(what, response.status().as_u16(), began.elapsed());
    if let Some(pending) = pending {
        let goes_on = http_body::Body::size_hint(response.body()).exact().is_none();
        pending.answered(response.status().as_u16(), goes_on);
    }
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(&id) {
        headers.insert(AUDIT_ID, id);
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
    response
}

/// The answer to a request that something broke on. What the panic said is for the log alone.
fn broken(_panic: supervision::Panic) -> Response<Body> {
    respond::status(&Status::internal(BROKEN))
}

/// The answer to a HEAD. HTTP/1 leaves a body out by itself; in HTTP/2 it would break the stream.
fn without_body(mut response: Response<Body>) -> Response<Body> {
    let length = http_body::Body::size_hint(response.body()).exact();
    *response.body_mut() = Body::empty();
    if let Some(length) = length {
        response.headers_mut().entry(header::CONTENT_LENGTH).or_insert(length.into());
    }
    response
}

/// What a request is, in the words of the table of kinds.
fn what<B>(registry: &Registry, request: &http::Request<B>) -> RequestLabels {
    let (Address::Resource(address), query) = Address::of(request.uri()) else {
        return RequestLabels {
            verb: if request.method() == Method::GET { "GET" } else { "other" },
            ..RequestLabels::default()
        };
    };
    let verb = address.verb(request.method(), &query);
    RequestLabels { verb: verb.map_or("other", Verb::as_str), kind: address.kind(registry).cloned() }
}

async fn dispatch<B>(
    state: &Arc<State>,
    registry: Arc<Registry>,
    request: http::Request<B>,
    record: Option<&Record>,
    client: &OnceLock<Identity>,
) -> Result<Response<Body>, Status>
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let (mut parts, sent) = request.into_parts();
    let identity = authenticate(state, &mut parts, record)?;
    if parts.extensions.get::<Peer>().is_some() {
        if let Some(asker) = parts.extensions.get::<Asker>() {
            asker.is(inflight::flow(&identity));
        }
        state.inflight.check_unread(client.get_or_init(|| identity.clone()))?;
    }
    let allowed = || {
        if let Some(record) = record {
            record.allowed.store(true, Ordering::Relaxed);
        }
    };
    let (address, query) = Address::of(&parts.uri);
    match address {
        Address::Path(path) => {
            let verb = parts.method.as_str().to_ascii_lowercase();
            authorize(state, &identity, &Attributes { verb: &verb, target: Target::Path(&path) })?;
            allowed();
            let limit = time_limit(Verb::Get, &query)?;
            match tokio::time::timeout(limit, not_a_resource(state, &registry, &parts, &path, &query)).await {
                Ok(answer) => answer,
                Err(_) => Err(too_late()),
            }
        }
        Address::Resource(address) if proxy::is_asked(&address) => {
            let lasting = state.inflight.begin_lasting(&identity)?;
            proxy::handle(state, &identity, &address, parts, sent, allowed, lasting).await
        }
        Address::Resource(address) => {
            let verb = address.verb(&parts.method, &query)?;
            let selected = selected(&registry, &address, verb, &query);
            let asked = address.attributes(verb, selected.name().unwrap_or_default());
            authorize(state, &identity, &asked)?;
            allowed();
            node_rules::check_list(&identity, &asked, &selected, query.get("labelSelector"))?;
            if let Some(answer) = custom::answer(&address, verb) {
                return answer;
            }
            let limit = time_limit(verb, &query)?;
            if usage::is_asked(&address) {
                let answer = async {
                    let _seat = state.inflight.take(&identity, verb).await?;
                    usage::answer(state, &address, verb, &query).await
                };
                return tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| Err(too_late()));
            }
            let takes_over = logs_exec::is_stream(&parts.method, &address.subresource);
            let has_body = !takes_over && !matches!(verb, Verb::Get | Verb::List | Verb::Watch);
            // Only the answer's beginning is limited; a watch or a log may go on for as long as it likes.
            let answer = async {
                let (body, room) =
                    if has_body { receive(state, &parts, &identity, sent).await? } else { Default::default() };
                if let Some(record) = record {
                    record.note_sent(&parts.headers, &body);
                }
                let request = Request::new(&parts, (&registry, state.now()), address, verb, query, identity, body)?;
                let streams = takes_over || request.subresource_name() == Some("log");
                // Whoever waits for one of the few places of large bodies takes no seat from the others meanwhile.
                let large = state.inflight.take_large(&request.identity, request.body.len()).await?;
                let seat = if streams { None } else { state.inflight.take(&request.identity, verb).await? };
                let lasts = streams || verb == Verb::Watch;
                let lasting = if lasts { state.inflight.begin_lasting(&request.identity)? } else { None };
                match takes_over {
                    true => logs_exec::stream(state, &request, &mut parts, lasting).await,
                    false if has_body => finished(Arc::clone(state), request, (seat, large, room)).await,
                    false => {
                        let mut answer = warned(&request.kind, route(state, &request).await);
                        if let Ok(answer) = &mut answer {
                            answer.body_mut().hold(lasting);
                        }
                        match answer {
                            Ok(answer) if socket::is_asked(&request, &parts.headers) => {
                                if request.accept.media() == Media::Protobuf {
                                    return Err(Status::not_acceptable());
                                }
                                socket::answer(answer, &request, &mut parts)
                            }
                            answer => answer,
                        }
                    }
                }
            };
            match tokio::time::timeout(limit, answer).await {
                Ok(answer) => answer,
                Err(_) => Err(too_late()),
            }
        }
    }
}

/// The body of a request, with what its bytes are reserved by. What comes from this process is in memory already.
async fn receive<B>(
    state: &State,
    parts: &Parts,
    identity: &Identity,
    sent: B,
) -> Result<(Bytes, Option<Reservation>), Status>
where
    B: http_body::Body,
    B::Error: Into<BoxError>,
{
    let announced = body::announced(&sent, &parts.headers)?;
    let room = match parts.extensions.get::<Peer>() {
        Some(_) => Some(state.inflight.reserve(identity, announced).await?),
        None => None,
    };
    Ok((body::read(sent, announced, room.as_ref()).await?, room))
}

/// An answer whose bytes are counted while they wait for the client, in whatever form they are sent. A long one waits until
/// there is room for it.
async fn counted(
    state: &State,
    client: &Identity,
    method: &Method,
    mut answer: Response<Body>,
) -> Result<Response<Body>, Status> {
    let bytes = answer.body().unreserved();
    if bytes <= SMALL_ANSWER {
        answer.body_mut().keep(state.inflight.count_answer(client, bytes));
        return Ok(answer);
    }
    match state.inflight.reserve_answer(client, bytes).await {
        Ok(room) => answer.body_mut().reserve(room),
        Err(refused) if matches!(*method, Method::GET | Method::HEAD) => return Err(refused),
        // What was written stays written; the client does not know, as after any time-out.
        Err(_) => return Err(too_late()),
    }
    Ok(answer)
}

fn too_late() -> Status {
    Status::timeout("request did not complete within the allotted timeout")
}

/// Answers a request that changes something, which goes on although nobody waits for the answer any more: what it holds until it
/// is stored (room in a quota, an address) must not be let go before. Nor must its `places`.
async fn finished(state: Arc<State>, request: Request, places: impl Send + 'static) -> Result<Response<Body>, Status> {
    let work = tokio::spawn(async move {
        let answer = supervision::catch(PART, async { warned(&request.kind, route(&state, &request).await) }).await;
        drop((request, places));
        answer
    });
    match work.await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) | Err(_) => Err(Status::internal(BROKEN)),
    }
}

/// How long the answer may take: what the client says, but no longer than is right for the verb.
fn time_limit(verb: Verb, query: &Query) -> Result<Duration, Status> {
    let most = match verb {
        Verb::Get | Verb::List | Verb::Watch | Verb::DeleteCollection => TIME_LIMIT,
        Verb::Create | Verb::Update | Verb::Patch | Verb::Delete => WRITE_LIMIT,
    };
    let Some(text) = query.get("timeout") else { return Ok(most) };
    match query::duration(text) {
        Some(asked) if asked.is_zero() => Ok(most),
        Some(asked) => Ok(asked.min(most)),
        None => Err(Status::bad_request(format!("invalid timeout specified in the request URL: {text:?}"))),
    }
}

/// What a list, a watch or a delete of many selects by fields. One of a single object by its name is judged as if it
/// named the object: a right to that one object is enough. Read by the parser that the handler uses, so that what is
/// judged is what is done; what it cannot read selects nothing, and the handler says so to those who may list at all.
fn selected(registry: &Registry, address: &ResourceAddress, verb: Verb, query: &Query) -> FieldSelector {
    let many = matches!(verb, Verb::List | Verb::Watch | Verb::DeleteCollection);
    let kind = address.kind(registry).filter(|_| many);
    let text = query.get("fieldSelector").unwrap_or_default();
    kind.and_then(|kind| FieldSelector::parse(kind, text).ok()).unwrap_or_default()
}

/// The answer, with a word for those who use a kind that is on its way out.
fn warned(kind: &api::Kind, answer: Result<Response<Body>, Status>) -> Result<Response<Body>, Status> {
    respond::warned(answer, kind.deprecated.as_slice())
}

/// One verb, one handler; subresources that are not a part of their object have their own.
async fn route(state: &State, request: &Request) -> Result<Response<Body>, Status> {
    request.check_field_manager()?;
    let mut warnings = Vec::new();
    match (request.verb, request.subresource_name()) {
        (Verb::Get, Some("log")) => logs_exec::log(state, request).await,
        (Verb::Create, Some("binding")) => binding::bind(state, request).await,
        (Verb::Create, Some("eviction")) => binding::evict(state, request).await,
        (Verb::Get | Verb::Update | Verb::Patch, Some("scale")) => scale::handle(state, request).await,
        (Verb::Get, None | Some("status" | "approval" | "ephemeralcontainers" | "resize")) => {
            get::handle(state, request)
        }
        (Verb::List, None) => list::handle(state, request).await,
        (Verb::Watch, None) => watch::handle(state, request),
        (Verb::Create, Some("token")) => {
            let answer = reviews::token(state, request, &mut warnings);
            respond::warned(answer, &warnings)
        }
        (Verb::Create, None) if !request.kind.is_stored() => reviews::handle(state, request),
        (Verb::Create, None) => {
            let answer = create::handle(state, request, &mut warnings).await;
            respond::warned(answer, &warnings)
        }
        (Verb::Update, None | Some("status" | "approval" | "finalize" | "ephemeralcontainers" | "resize")) => {
            let answer = update::handle(state, request, &mut warnings).await;
            respond::warned(answer, &warnings)
        }
        (Verb::Patch, None | Some("status" | "approval" | "ephemeralcontainers" | "resize")) => {
            let answer = patch::handle(state, request, &mut warnings).await;
            respond::warned(answer, &warnings)
        }
        (Verb::Delete, None) => delete::handle(state, request).await,
        (Verb::DeleteCollection, None) => collection::handle(state, request).await,
        // The table may name more than is served yet.
        (_, Some(_)) => Err(Status::no_such_path()),
    }
}

async fn not_a_resource(
    state: &State,
    registry: &Arc<Registry>,
    parts: &Parts,
    path: &str,
    query: &Query,
) -> Result<Response<Body>, Status> {
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return Err(Status::method_not_allowed());
    }
    let pretty = query.flag("pretty");
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    match first {
        ".well-known" if path == "/.well-known/openid-configuration" => {
            Ok(respond::json(StatusCode::OK, respond::to_bytes(&tokens::discovery())))
        }
        "openid" if path == "/openid/v1/jwks" => {
            let keys = respond::to_bytes(&state.token_key.key_set());
            Ok(respond::with_type(StatusCode::OK, "application/jwk-set+json", keys))
        }
        "metrics" if path == "/metrics" => {
            let media = "text/plain; version=0.0.4; charset=utf-8";
            Ok(respond::with_type(StatusCode::OK, media, metrics::page(state)))
        }
        // The published description spells it with a slash, and generated clients ask as it is written there.
        "version" if matches!(path, "/version" | "/version/") => Ok(health::version(state, pretty)),
        "healthz" | "livez" | "readyz" => health::check(state, path, query).ok_or_else(Status::no_such_path),
        "" | "api" | "apis" | "openapi" => {
            discovery::handle(state, registry, &parts.headers, &Accept::parse(&parts.headers), path).await
        }
        _ => Err(Status::no_such_path()),
    }
}
