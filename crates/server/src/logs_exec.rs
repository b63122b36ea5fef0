//! `pods/log`, `pods/exec`, `pods/attach`, `pods/portforward`: passed on to the pod's node.
//!
//! Here it is decided which container is meant and whether it makes sense to ask; the node speaks the stream protocols
//! (WebSocket, SPDY), of which this file sees only bytes.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use api::{Cause, Status};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use store::Object;
use tokio::io::AsyncWriteExt as _;
use tokio_util::sync::CancellationToken;

use crate::body::Body;
use crate::inflight::Share;
use crate::node::{self, AskError};
use crate::query::{self, Query};
use crate::request::Request;
use crate::state::State;

/// How long a client may keep its half of a finished stream open.
const LINGER: Duration = Duration::from_secs(10);
/// Longest refusal of a node that is passed on.
const REFUSAL_MAX: usize = 64 * 1024;
/// Longest address that HTTP libraries take, ours among them.
const URI_MAX: usize = u16::MAX as usize - 1;
/// So much is repeated of a value that cannot be read.
const SHOWN_MAX: usize = 64;

/// `pods/log`.
pub(crate) async fn log(state: &State, request: &Request) -> Result<Response<Body>, Status> {
    let pod = find(state, request)?.value();
    check_log_options(&request.query)?;
    let container = container(&pod, request)?;
    let node = word(&pod["spec"]["nodeName"]);
    if node.is_empty() {
        // Nothing has run, so there is nothing to read: upstream says so with an empty answer.
        let mut nothing = Response::new(Body::empty());
        *nothing.status_mut() = StatusCode::NO_CONTENT;
        return Ok(nothing);
    }
    check_has_logs(&pod, container, request.query.flag("previous"))?;
    let names = ["follow", "previous", "timestamps", "sinceSeconds", "sinceTime", "tailLines", "limitBytes", "stream"];
    let written = request.query.written();
    let passed = written.filter(|(name, value)| names.contains(&name.as_str()) && !value.is_empty());
    let uri = uri(&["containerLogs", &request.namespace, &request.name, container], passed)?;
    let asked =
        http::Request::get(uri).header(header::HOST, node).body(Empty::<bytes::Bytes>::new()).map_err(unbuildable)?;
    let answer = node::ask(state, node, asked).await.map_err(unreachable)?;
    if !answer.status().is_success() {
        return Err(refusal(answer).await);
    }
    let (parts, body) = answer.into_parts();
    let mut response = Response::new(Body::stream(until_stopped(body, request.stopping.clone())));
    let kind = parts.headers.get(header::CONTENT_TYPE).cloned();
    response.headers_mut().insert(header::CONTENT_TYPE, kind.unwrap_or(HeaderValue::from_static("text/plain")));
    Ok(response)
}

/// `pods/exec`, `pods/attach` and `pods/portforward`. `parts` are the client's own, upgrade and all. `lasting` is kept until the
/// stream ends.
pub(crate) async fn stream(
    state: &State,
    request: &Request,
    parts: &mut Parts,
    lasting: Option<Share>,
) -> Result<Response<Body>, Status> {
    let subresource = request.subresource_name().unwrap_or_default();
    let pod = find(state, request)?.value();
    let node = word(&pod["spec"]["nodeName"]).to_owned();
    if node.is_empty() {
        return Err(Status::bad_request(format!("pod {} does not have a host assigned", request.name)));
    }
    let uri = match subresource {
        "portforward" => {
            let ports = request.query.written().filter(|(name, _)| name == "ports");
            uri(&["portForward", &request.namespace, &request.name], ports.map(|(_, port)| ("port", port)))?
        }
        _ => {
            let container = container(&pod, request)?;
            check_runs(&pod, subresource)?;
            let parameters = stream_parameters(subresource, &request.query)?;
            uri(&[subresource, &request.namespace, &request.name, container], parameters.into_iter())?
        }
    };
    let Some(upgrade) = parts.extensions.remove::<OnUpgrade>() else {
        return Err(Status::bad_request("Upgrade request required"));
    };
    let mut asked = http::Request::new(Empty::<bytes::Bytes>::new());
    *asked.method_mut() = parts.method.clone();
    *asked.uri_mut() = uri;
    *asked.headers_mut() = upgrade_headers(&parts.headers);
    asked.headers_mut().insert(header::HOST, HeaderValue::from_str(&node).unwrap_or(HeaderValue::from_static("node")));
    let answer = node::ask(state, &node, asked).await.map_err(unreachable)?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(refusal(answer).await);
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *response.headers_mut() = upgrade_headers(answer.headers());
    let stopping = request.stopping.clone();
    tokio::spawn(async move {
        let _lasting = lasting;
        if let Err(error) = join(upgrade, hyper::upgrade::on(answer), stopping).await {
            tracing::debug!(%error, "a stream to a node did not get through");
        }
    });
    Ok(response)
}

/// Copies both ways until both ends are done, or we are asked to stop.
pub(crate) async fn join(client: OnUpgrade, node: OnUpgrade, stopping: CancellationToken) -> Result<(), hyper::Error> {
    let (client, node) = tokio::try_join!(client, node)?;
    let (mut from_client, mut to_client) = tokio::io::split(TokioIo::new(client));
    let (mut from_node, mut to_node) = tokio::io::split(TokioIo::new(node));
    // An error on either half means that its peer is gone; the other half then ends by itself.
    let up = async {
        let _ = tokio::io::copy(&mut from_client, &mut to_node).await;
        let _ = to_node.shutdown().await;
    };
    let down = async {
        let _ = tokio::io::copy(&mut from_node, &mut to_client).await;
        let _ = to_client.shutdown().await;
    };
    let both = async {
        tokio::pin!(up, down);
        tokio::select! {
            () = &mut down => {
                // What ran has ended; the client gets a moment to say goodbye.
                let _ = tokio::time::timeout(LINGER, up).await;
            }
            () = &mut up => down.await,
        }
    };
    tokio::select! {
        () = both => {}
        () = stopping.cancelled() => {}
    }
    Ok(())
}

/// Ends a followed log when the server stops, cleanly.
fn until_stopped(
    body: Incoming,
    stopping: CancellationToken,
) -> impl http_body::Body<Data = bytes::Bytes, Error = hyper::Error> {
    let frames = futures::stream::unfold((body, stopping), |(mut body, stopping)| async move {
        let frame = tokio::select! {
            frame = body.frame() => frame?,
            () = stopping.cancelled() => return None,
        };
        Some((frame, (body, stopping)))
    });
    http_body_util::StreamBody::new(frames)
}

fn find(state: &State, request: &Request) -> Result<Arc<Object>, Status> {
    state.store.get(&request.key()).ok_or_else(|| Status::not_found(&request.kind, &request.name))
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn names<'a>(pod: &'a Value, list: &str) -> Vec<&'a str> {
    let containers = pod["spec"][list].as_array().map(Vec::as_slice).unwrap_or_default();
    containers.iter().map(|container| word(&container["name"])).collect()
}

/// Which container is meant: the named one, or the only one.
fn container<'a>(pod: &'a Value, request: &'a Request) -> Result<&'a str, Status> {
    let name = &request.name;
    let containers = names(pod, "containers");
    let others = [("init", names(pod, "initContainers")), ("ephemeral", names(pod, "ephemeralContainers"))];
    match request.query.get("container") {
        Some(asked) => {
            let known = containers.contains(&asked) || others.iter().any(|(_, names)| names.contains(&asked));
            known
                .then_some(asked)
                .ok_or_else(|| Status::bad_request(format!("container {asked} is not valid for pod {name}")))
        }
        None => match containers.as_slice() {
            [only] => Ok(*only),
            several => {
                let mut text = format!(
                    "a container name must be specified for pod {name}, choose one of: [{}]",
                    several.join(" ")
                );
                for (what, names) in others.iter().filter(|(_, names)| !names.is_empty()) {
                    let _ = write!(text, " or one of the {what} containers: [{}]", names.join(" "));
                }
                Err(Status::bad_request(text))
            }
        },
    }
}

fn status_of<'a>(pod: &'a Value, container: &str) -> Option<&'a Value> {
    ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"]
        .iter()
        .filter_map(|list| pod["status"][*list].as_array())
        .flatten()
        .find(|status| word(&status["name"]) == container)
}

/// A container that never ran has no logs, and one that never ended has no previous ones.
fn check_has_logs(pod: &Value, container: &str, previous: bool) -> Result<(), Status> {
    let name = api::meta::name(pod);
    let status = status_of(pod, container);
    let ended_before = status.is_some_and(|status| status["lastState"]["terminated"].is_object());
    if previous {
        return if ended_before {
            Ok(())
        } else {
            Err(Status::bad_request(format!("previous terminated container {container:?} in pod {name:?} not found")))
        };
    }
    let started = status
        .is_some_and(|status| status["state"]["running"].is_object() || status["state"]["terminated"].is_object());
    if started || ended_before {
        return Ok(());
    }
    let reason = status.map(|status| word(&status["state"]["waiting"]["reason"])).filter(|reason| !reason.is_empty());
    let reason = reason.unwrap_or("ContainerCreating");
    Err(Status::bad_request(format!("container {container:?} in pod {name:?} is waiting to start: {reason}")))
}

fn check_runs(pod: &Value, subresource: &str) -> Result<(), Status> {
    let cannot = if subresource == "attach" { "attach" } else { "exec into" };
    if !api::pod::is_terminal(pod) {
        return Ok(());
    }
    let phase = word(&pod["status"]["phase"]);
    Err(Status::bad_request(format!("cannot {cannot} a container in a completed pod; current phase is {phase}")))
}

fn check_log_options(query: &Query) -> Result<(), Status> {
    let mut causes = Vec::new();
    for (name, least) in [("tailLines", 0), ("limitBytes", 1), ("sinceSeconds", 1)] {
        if let Some(value) = query.number(name)?
            && value < least
        {
            causes.push(Cause::invalid(name, value, &format!("must be greater than or equal to {least}")));
        }
    }
    if let Some(text) = query.get("sinceTime")
        && text.parse::<jiff::Timestamp>().is_err()
    {
        let shown: String = text.chars().take(SHOWN_MAX).collect();
        return Err(Status::bad_request(format!(
            "sinceTime: cannot read {shown:?} as a time like 2006-01-02T15:04:05Z"
        )));
    }
    if query.get("sinceSeconds").is_some() && query.get("sinceTime").is_some() {
        causes.push(Cause::forbidden("", "at most one of `sinceTime` or `sinceSeconds` may be specified"));
    }
    if causes.is_empty() { Ok(()) } else { Err(Status::invalid_of("PodLogOptions", "", "", causes)) }
}

/// The node's names for what the client calls stdin, stdout, stderr and tty; values as they are written in a URI.
fn stream_parameters<'a>(subresource: &str, query: &'a Query) -> Result<Vec<(&'static str, &'a str)>, Status> {
    let commands = query.written().filter(|(name, _)| name == "command");
    let mut parameters: Vec<_> = commands.map(|(_, command)| ("command", command)).collect();
    if subresource == "exec" && parameters.is_empty() {
        return Err(Status::bad_request("you must specify at least 1 command for execution"));
    }
    // Without a word about streams, output is what people want to see.
    let mentioned = ["stdin", "stdout", "stderr"].iter().any(|name| query.flag(name));
    let tty = query.flag("tty");
    for (asked, told) in [("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty")] {
        let wanted = query.flag(asked) || (!mentioned && matches!(asked, "stdout" | "stderr"));
        // A terminal has one output.
        if wanted && !(asked == "stderr" && tty) {
            parameters.push((told, "1"));
        }
    }
    Ok(parameters)
}

/// Where to ask the node. The values are sent on as the client wrote them: what could be sent to us is hardly ever too long to be
/// sent to a node, and what is we say.
fn uri<'a, N: AsRef<str>>(path: &[&str], parameters: impl Iterator<Item = (N, &'a str)>) -> Result<http::Uri, Status> {
    let mut text = String::new();
    for part in path {
        text.push('/');
        text.push_str(&query::encode(part));
    }
    for (at, (name, value)) in parameters.enumerate() {
        text.push(if at == 0 { '?' } else { '&' });
        let _ = write!(text, "{}={value}", name.as_ref());
    }
    if text.len() > URI_MAX {
        return Err(Status::uri_too_long(URI_MAX));
    }
    text.parse().map_err(|error| Status::bad_request(format!("the node cannot be asked this: {error}")))
}

/// The headers that carry an upgrade and its protocol, in either direction.
fn upgrade_headers(headers: &HeaderMap) -> HeaderMap {
    let passed = |name: &HeaderName| {
        matches!(*name, header::CONNECTION | header::UPGRADE)
            || name.as_str().starts_with("sec-websocket-")
            || name.as_str() == "x-stream-protocol-version"
    };
    let mut out = HeaderMap::new();
    for (name, value) in headers.iter().filter(|(name, _)| passed(name)) {
        out.append(name.clone(), value.clone());
    }
    out
}

fn unbuildable(error: http::Error) -> Status {
    Status::internal(&format!("cannot ask the node: {error}"))
}

fn unreachable(error: AskError) -> Status {
    let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    Status::internal(&format!("{error}: {source}"))
}

/// The node's refusal: its own `Status`, or its text in one of ours.
async fn refusal(answer: Response<Incoming>) -> Status {
    let code = answer.status().as_u16();
    let body = Limited::new(answer.into_body(), REFUSAL_MAX).collect().await;
    let text = body.map(|body| String::from_utf8_lossy(&body.to_bytes()).trim().to_owned()).unwrap_or_default();
    let sent: Option<Value> = serde_json::from_str(&text).ok();
    let message = sent.as_ref().and_then(|status| status["message"].as_str()).map_or(text.clone(), ToOwned::to_owned);
    let (code, reason) = match code {
        400 => (400, "BadRequest"),
        403 => (403, "Forbidden"),
        404 => (404, "NotFound"),
        405 => (405, "MethodNotAllowed"),
        500 => (500, "InternalError"),
        503 => (503, "ServiceUnavailable"),
        other if other >= 400 => (other, "InternalError"),
        _ => (500, "InternalError"),
    };
    Status::new(code, reason, if message.is_empty() { "the node refused the request".to_owned() } else { message })
}

/// Whether a request opens a stream, so that its body must be left alone.
pub(crate) fn is_stream(method: &Method, subresource: &str) -> bool {
    matches!(*method, Method::GET | Method::POST) && matches!(subresource, "exec" | "attach" | "portforward")
}
