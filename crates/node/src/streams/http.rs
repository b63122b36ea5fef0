//! The node API's routes, and the one connection they are served on.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Path, Query, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{HeaderMap, HeaderName, Method, header};
use hyper::server::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tracing::debug;

use super::exec::With;
use super::query::{self, LogOptions, Pairs};
use super::spdy::exec::SpdyChannels;
use super::websocket::WebSocketChannels;
use super::{ContainerRef, Containers, StreamError, exec, forward, logs, ports, spdy, tunnel, websocket};
use crate::effects::lock;

/// What goes on with a connection once HTTP is done with it.
type Session = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;

struct Api<C> {
    containers: Arc<C>,
    /// Set by the request that upgrades the connection, run when the upgrade has happened. So there is no task
    /// apart from the connection's own: dropping that ends everything.
    session: Arc<Mutex<Option<Session>>>,
}

impl<C> Clone for Api<C> {
    fn clone(&self) -> Self {
        Self { containers: Arc::clone(&self.containers), session: Arc::clone(&self.session) }
    }
}

/// Serves one connection from its first request to its last byte, an upgraded stream included.
pub async fn serve_connection<C, S>(stream: S, containers: Arc<C>)
where
    C: Containers,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let session = Arc::new(Mutex::new(None));
    let api = Api { containers, session: Arc::clone(&session) };
    let served = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router(api)))
        .with_upgrades()
        .await;
    if let Err(error) = served {
        debug!(%error, "connection to the node API broke off");
        return;
    }
    let session = lock(&session).take();
    if let Some(session) = session
        && let Err(error) = session.await
    {
        debug!(%error, "stream broke off");
    }
}

fn router<C: Containers>(api: Api<C>) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok"))
        .route("/containerLogs/{namespace}/{pod}/{container}", get(container_logs::<C>))
        .route("/exec/{namespace}/{pod}/{container}", get(run_exec::<C>).post(run_exec::<C>))
        .route("/attach/{namespace}/{pod}/{container}", get(run_attach::<C>).post(run_attach::<C>))
        .route("/portForward/{namespace}/{pod}", get(port_forward::<C>).post(port_forward::<C>))
        .route("/stats/summary", get(summary::<C>))
        .route("/metrics", get(metrics::<C>))
        .route("/terminations/{namespace}/{pod}", get(termination::<C>))
        .route("/pods", get(pods::<C>))
        .fallback(async || StreamError::not_found("the node does not serve this path"))
        .with_state(api)
}

type Target = (String, String, String);

fn container((namespace, pod, container): Target) -> ContainerRef {
    ContainerRef { namespace, pod, container }
}

async fn container_logs<C: Containers>(
    State(api): State<Api<C>>,
    Path(target): Path<Target>,
    Query(pairs): Query<Pairs>,
) -> Result<Response, StreamError> {
    let options = LogOptions::parse(&pairs, api.containers.now())?;
    let source = api.containers.log(&container(target), options.previous).await?;
    Ok(([(header::CONTENT_TYPE, "text/plain")], logs::body(source, options).await?).into_response())
}

async fn summary<C: Containers>(State(api): State<Api<C>>) -> Result<Response, StreamError> {
    let summary = api.containers.summary().await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], summary.to_string()).into_response())
}

async fn termination<C: Containers>(
    State(api): State<Api<C>>,
    Path((namespace, pod)): Path<(String, String)>,
) -> Result<Response, StreamError> {
    let progress = api.containers.termination(&namespace, &pod).await?;
    let text = serde_json::to_string(&progress).unwrap_or_default();
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

async fn metrics<C: Containers>(State(api): State<Api<C>>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], api.containers.metrics()).into_response()
}

async fn pods<C: Containers>(State(api): State<Api<C>>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], api.containers.pods().to_string()).into_response()
}

async fn run_exec<C: Containers>(
    State(api): State<Api<C>>,
    Path(target): Path<Target>,
    Query(pairs): Query<Pairs>,
    request: Request,
) -> Result<Response, StreamError> {
    let spec = query::exec_spec(&pairs)?;
    converse(&api, container(target), With::NewProgram, spec, request).await
}

async fn run_attach<C: Containers>(
    State(api): State<Api<C>>,
    Path(target): Path<Target>,
    Query(pairs): Query<Pairs>,
    request: Request,
) -> Result<Response, StreamError> {
    let spec = query::attach_spec(&pairs)?;
    converse(&api, container(target), With::FirstProcess, spec, request).await
}

async fn port_forward<C: Containers>(
    State(api): State<Api<C>>,
    Path((namespace, pod)): Path<(String, String)>,
    Query(pairs): Query<Pairs>,
    mut request: Request,
) -> Result<Response, StreamError> {
    let containers = Arc::clone(&api.containers);
    containers.check_pod(&namespace, &pod).await?;
    let headers = request.headers();
    let tunnelled = websocket::is_asked_for(headers) && request.method() == Method::GET;
    if tunnelled && let Some((asked, response)) = ports::accept(headers, &pairs)? {
        let upgrade = upgrade(&mut request)?;
        api.then(async move {
            let stream = TokioIo::new(upgrade.await.map_err(io::Error::other)?);
            ports::run(&*containers, &namespace, &pod, stream, asked).await
        });
        return Ok(response);
    }
    let response = match tunnelled {
        true => tunnel::accept(headers)?,
        false if spdy::is_asked_for(headers) => match forward::accept(headers) {
            Ok(response) => response,
            Err(refusal) => return Ok(*refusal),
        },
        false => return Err(StreamError::bad_request("port-forward needs an upgrade to a WebSocket or to SPDY/3.1")),
    };
    let upgrade = upgrade(&mut request)?;
    api.then(async move {
        let stream = TokioIo::new(upgrade.await.map_err(io::Error::other)?);
        match tunnelled {
            true => forward::run(&*containers, &namespace, &pod, tunnel::Tunnel::open(stream).await).await,
            false => forward::run(&*containers, &namespace, &pod, stream).await,
        }
    });
    Ok(response)
}

async fn converse<C: Containers>(
    api: &Api<C>,
    which: ContainerRef,
    with: With,
    spec: runtime_api::ExecSpec,
    mut request: Request,
) -> Result<Response, StreamError> {
    let containers = Arc::clone(&api.containers);
    let headers = request.headers();
    // Refused before the upgrade, so that the client is told why in a form it understands.
    if websocket::is_asked_for(headers) && request.method() == Method::GET {
        let (protocol, response) = websocket::accept(headers)?;
        containers.check(&which).await?;
        let upgrade = upgrade(&mut request)?;
        api.then(async move {
            let stream = TokioIo::new(upgrade.await.map_err(io::Error::other)?);
            let channels = WebSocketChannels::open(stream, protocol, &spec).await?;
            exec::run(&*containers, &which, with, spec, channels).await
        });
        Ok(response)
    } else if spdy::is_asked_for(headers) {
        let (protocol, response) = match spdy::exec::accept(headers) {
            Ok(accepted) => accepted,
            Err(refusal) => return Ok(*refusal),
        };
        containers.check(&which).await?;
        let upgrade = upgrade(&mut request)?;
        api.then(async move {
            let stream = TokioIo::new(upgrade.await.map_err(io::Error::other)?);
            let channels = SpdyChannels::open(stream, protocol, &spec).await?;
            exec::run(&*containers, &which, with, spec, channels).await
        });
        Ok(response)
    } else {
        Err(StreamError::bad_request("this needs an upgrade to a WebSocket or to SPDY/3.1"))
    }
}

fn upgrade(request: &mut Request) -> Result<OnUpgrade, StreamError> {
    request
        .extensions_mut()
        .remove::<OnUpgrade>()
        .ok_or_else(|| StreamError::bad_request("this connection cannot be upgraded"))
}

impl<C> Api<C> {
    fn then(&self, session: impl Future<Output = io::Result<()>> + Send + 'static) {
        *lock(&self.session) = Some(Box::pin(session));
    }
}

/// The values of a list header, whether it came as one line with commas or as several.
pub(super) fn listed(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|value| !value.is_empty())
}
