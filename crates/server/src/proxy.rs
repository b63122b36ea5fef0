//! `pods/proxy`, `services/proxy`, `nodes/proxy`: a request that is passed on to what listens there, and its answer.
//!
//! The path below `proxy`, the query, the body and the method are the backend's; so are upgrades (WebSocket). Who asks is ours
//! to know: credentials go no further than this server. What the backend says of its own paths is told in the words of the
//! path by which the client came ([`links`]).

mod html;
mod leaving;
mod links;
mod target;

use std::net::IpAddr;
use std::sync::Arc;

use api::Status;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use tokio_util::sync::CancellationToken;

use crate::authorize::{Attributes, Target as ProxyTarget, authorize};
use crate::body::{Body, BoxError};
use crate::identity::Identity;
use crate::inflight::Share;
use crate::logs_exec::join;
use crate::node;
use crate::request::{ResourceAddress, Stopping};
use crate::state::State;

use leaving::{by_then, cut_off};
use links::Links;
use target::Target;

/// Where a request came from, in its extensions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// In the extensions of an answer that is another's: its bytes are passed on as they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Verbatim;

/// Headers that are about one connection, not about the request.
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// What a backend says about origins is about its own address, not about this server's.
const CORS: [&str; 4] = [
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
];
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");

/// Whether a path leads to something that is to be passed on.
pub(crate) fn is_asked(address: &ResourceAddress) -> bool {
    let at_home = match address.resource.as_str() {
        "pods" | "services" => !address.namespace.is_empty(),
        "nodes" => address.namespace.is_empty(),
        _ => false,
    };
    let core = address.group.is_empty() && address.version == "v1";
    core && at_home && address.subresource == "proxy" && !address.name.is_empty()
}

/// What the authoriser is asked for a method; nothing is a right to what has no name.
fn verb(method: &Method) -> Result<&'static str, Status> {
    match *method {
        Method::GET | Method::HEAD => Ok("get"),
        Method::POST => Ok("create"),
        Method::PUT => Ok("update"),
        Method::PATCH => Ok("patch"),
        Method::DELETE => Ok("delete"),
        Method::OPTIONS => Ok(""),
        _ => Err(Status::method_not_allowed()),
    }
}

/// Passes a request on and answers what comes back; says so when it is `allowed`. The wait for it is the backend's and the client's to end.
pub(crate) async fn handle<B>(
    state: &Arc<State>,
    identity: &Identity,
    address: &ResourceAddress,
    mut parts: Parts,
    sent: B,
    allowed: impl Fn(),
    lasting: Option<Share>,
) -> Result<Response<Body>, Status>
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let verb = verb(&parts.method)?;
    // A right to one object names it as the path does, with scheme and port.
    let may = |verb: &str| {
        let asked = ProxyTarget::Resource {
            group: "",
            resource: &address.resource,
            subresource: "proxy",
            namespace: &address.namespace,
            name: &address.name,
        };
        authorize(state, identity, &Attributes { verb, target: asked })
    };
    may(verb)?;
    allowed();
    let upgrade = if wants_upgrade(&parts.headers) { parts.extensions.remove::<OnUpgrade>() } else { None };
    // A node runs programs for whoever opens a stream to it; a right to read is none to that.
    if upgrade.is_some() && address.resource == "nodes" {
        may("create")?;
    }
    let (before, path) = split_path(parts.uri.path(), if address.namespace.is_empty() { 5 } else { 7 });
    let target = target::find(state, address)?;
    if path.is_empty() && upgrade.is_none() && matches!(parts.method, Method::GET | Method::HEAD) {
        return moved(&parts);
    }
    let links = Links {
        prefix: before.trim_end_matches('/').to_owned(),
        backend: target.host(),
        client: client_host(&parts).unwrap_or_default(),
    };
    let mut asked = http::Request::new(sent.map_err(Into::into).boxed_unsync());
    *asked.method_mut() = parts.method.clone();
    *asked.uri_mut() = backend_uri(path, parts.uri.query())?;
    *asked.headers_mut() = passed_on(&parts, upgrade.is_some());
    let stopping = parts.extensions.get::<Stopping>().map(|stopping| stopping.0.clone()).unwrap_or_default();
    let answer = tokio::select! {
        answer = ask(state, &target, asked) => answer?,
        () = by_then(&stopping) => return Err(unreached("this server is stopping")),
    };
    match upgrade {
        Some(upgrade) => upgraded(answer, upgrade, stopping, lasting),
        None => {
            let mut answer = passed_back(answer, &links, stopping)?;
            answer.body_mut().hold(lasting);
            Ok(answer)
        }
    }
}

async fn ask<B>(state: &State, target: &Target, request: http::Request<B>) -> Result<Response<Incoming>, Status>
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let answer = match target {
        Target::Node { name } => node::ask(state, name, request).await.map_err(|error| {
            let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            format!("{error}: {source}")
        }),
        Target::Socket { at, encrypted } => {
            let stream = target::dial(*at, *encrypted).await.map_err(|error| unreached(&error))?;
            node::converse(stream, request).await.map_err(|error| error.to_string())
        }
    };
    answer.map_err(|error| unreached(&error))
}

/// Upstream's words for a backend that is not there.
fn unreached(error: &str) -> Status {
    Status::new(503, "ServiceUnavailable", format!("error trying to reach service: {error}"))
}

/// Whether the client wants to go on in another protocol.
fn wants_upgrade(headers: &HeaderMap) -> bool {
    headers.contains_key(header::UPGRADE) && connection_words(headers).any(|word| word == "upgrade")
}

fn connection_words(headers: &HeaderMap) -> impl Iterator<Item = String> + '_ {
    let lines = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(|word| word.trim().to_ascii_lowercase())
}

/// The path through its first `segments`, and what follows them, as it was written.
fn split_path(path: &str, segments: usize) -> (&str, &str) {
    let (mut left, mut inside) = (segments, false);
    for (at, byte) in path.bytes().enumerate() {
        match (byte == b'/', inside) {
            (true, true) if left == 0 => return path.split_at(at),
            (true, _) => inside = false,
            (false, false) => (left, inside) = (left.saturating_sub(1), true),
            (false, true) => {}
        }
    }
    (path, "")
}

/// Without a slash at its end, a page's own links would lead out of the backend.
fn moved(parts: &Parts) -> Result<Response<Body>, Status> {
    let query = parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let place = HeaderValue::from_str(&format!("{}/{query}", parts.uri.path()));
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    let place = place.map_err(|_| Status::bad_request("the path cannot be written down"))?;
    response.headers_mut().insert(header::LOCATION, place);
    Ok(response)
}

fn backend_uri(path: &str, query: Option<&str>) -> Result<http::Uri, Status> {
    let path = if path.is_empty() { "/" } else { path };
    let text = query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
    text.parse().map_err(|error| Status::bad_request(format!("the path cannot be passed on: {error}")))
}

fn client_host(parts: &Parts) -> Option<String> {
    let named = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok()).map(ToOwned::to_owned);
    // HTTP/2 has no header for it.
    named.or_else(|| parts.uri.authority().map(ToString::to_string))
}

/// The client's headers as the backend gets them.
fn passed_on(parts: &Parts, upgrades: bool) -> HeaderMap {
    let dropped: Vec<String> = connection_words(&parts.headers).collect();
    let is_ours = |name: &str| {
        matches!(name, "authorization" | "expect") || name.starts_with("impersonate-") || name.starts_with(':')
    };
    let mut out = HeaderMap::new();
    for (name, value) in &parts.headers {
        let word = name.as_str();
        let hops = HOP_BY_HOP.contains(&word) || dropped.iter().any(|dropped| dropped == word);
        let carries = upgrades && matches!(*name, header::CONNECTION | header::UPGRADE);
        if !is_ours(word) && (!hops || carries) {
            out.append(name.clone(), value.clone());
        }
    }
    // HTTP/2 clients may send one by one what HTTP/1 knows as one line.
    let cookies: Vec<&[u8]> = parts.headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if cookies.len() > 1
        && out.contains_key(header::COOKIE)
        && let Ok(line) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        out.insert(header::COOKIE, line);
    }
    if !out.contains_key(header::HOST)
        && let Some(host) = client_host(parts).and_then(|host| HeaderValue::from_str(&host).ok())
    {
        out.insert(header::HOST, host);
    }
    if let Ok(uri) = HeaderValue::from_str(parts.uri.path()) {
        out.insert(FORWARDED_URI, uri);
    }
    if let Some(Peer(peer)) = parts.extensions.get::<Peer>() {
        let before = parts.headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
        let chain: Vec<String> = before.map(ToOwned::to_owned).chain([peer.to_string()]).collect();
        if let Ok(chain) = HeaderValue::from_str(&chain.join(", ")) {
            out.insert(FORWARDED_FOR, chain);
        }
    }
    out
}

/// The backend's answer as the client gets it.
fn passed_back(
    answer: Response<Incoming>,
    links: &Links,
    stopping: CancellationToken,
) -> Result<Response<Body>, Status> {
    let (mut parts, body) = answer.into_parts();
    let dropped: Vec<String> = connection_words(&parts.headers).collect();
    for name in HOP_BY_HOP.iter().chain(&CORS).copied().chain(dropped.iter().map(String::as_str)) {
        parts.headers.remove(name);
    }
    let place = parts.headers.get(header::LOCATION).and_then(|place| place.to_str().ok()).map(ToOwned::to_owned);
    let body = match place {
        Some(place) => {
            let place = links.rewritten(&place).unwrap_or(place);
            let place = HeaderValue::from_str(&place)
                .map_err(|_| Status::internal("error trying to parse Location header: it cannot be written down"))?;
            parts.headers.insert(header::LOCATION, place);
            Body::stream(cut_off(body, stopping))
        }
        None => match html::Packing::of_page(&parts.headers) {
            Some(packing) => {
                parts.headers.remove(header::CONTENT_LENGTH);
                parts.headers.remove(header::CONTENT_ENCODING);
                Body::stream(html::Rewritten::new(cut_off(body, stopping), packing, links.clone()))
            }
            None => Body::stream(cut_off(body, stopping)),
        },
    };
    let mut response = Response::new(body);
    *response.status_mut() = parts.status;
    *response.headers_mut() = parts.headers;
    response.extensions_mut().insert(Verbatim);
    Ok(response)
}

/// Joins client and backend once both have changed the protocol. A refusal is passed on as it is.
fn upgraded(
    answer: Response<Incoming>,
    upgrade: OnUpgrade,
    stopping: CancellationToken,
    lasting: Option<Share>,
) -> Result<Response<Body>, Status> {
    let code = answer.status();
    if code != StatusCode::SWITCHING_PROTOCOLS && code.as_u16() < 400 {
        return Err(Status::internal(&format!("invalid upgrade response: status code {}", code.as_u16())));
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = code;
    *response.headers_mut() = answer.headers().clone();
    response.extensions_mut().insert(Verbatim);
    if code != StatusCode::SWITCHING_PROTOCOLS {
        for name in HOP_BY_HOP {
            response.headers_mut().remove(name);
        }
        *response.body_mut() = Body::stream(cut_off(answer.into_body(), stopping));
        return Ok(response);
    }
    tokio::spawn(async move {
        let _lasting = lasting;
        if let Err(error) = join(upgrade, hyper::upgrade::on(answer), stopping).await {
            tracing::debug!(%error, "an upgraded connection did not get through");
        }
    });
    Ok(response)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn the_rest_of_a_path_is_kept_as_it_was_written() {
        let pod = "/api/v1/namespaces/a/pods/p/proxy";
        assert_eq!(split_path(pod, 7), (pod, ""));
        assert_eq!(split_path(&format!("{pod}/"), 7), (pod, "/"));
        assert_eq!(split_path(&format!("{pod}/a%2Fb//c/"), 7), (pod, "/a%2Fb//c/"));
        assert_eq!(split_path("//api/v1/nodes/n:10250/proxy//x", 5), ("//api/v1/nodes/n:10250/proxy", "//x"));
    }

    #[test]
    fn credentials_stay_here_and_the_way_is_told() {
        let request = http::Request::get("/api/v1/namespaces/a/pods/p/proxy/x?y=z")
            .header("authorization", "Bearer secret")
            .header("impersonate-user", "bob")
            .header("connection", "keep-alive, x-once")
            .header("x-once", "1")
            .header("x-kept", "2")
            .header("host", "api:6443")
            .header("x-forwarded-for", "10.0.0.9")
            .extension(Peer([192, 0, 2, 1].into()));
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let mut told: Vec<String> = passed_on(&parts, false)
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        told.sort();
        let expected = [
            "host: api:6443",
            "x-forwarded-for: 10.0.0.9, 192.0.2.1",
            "x-forwarded-uri: /api/v1/namespaces/a/pods/p/proxy/x",
            "x-kept: 2",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn a_right_has_the_name_of_its_method() {
        let verbs =
            [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];
        let verbs: Vec<&str> = verbs.iter().map(|method| verb(method).unwrap()).collect();
        assert_eq!(verbs, ["get", "get", "create", "update", "patch", "delete", ""]);
        assert_eq!(verb(&Method::TRACE).unwrap_err().code, 405);
    }
}
