//! The Kubernetes API over HTTP: list, watch, patch, graceful delete.
//!
//! One request, one path through the crate:
//!
//! ```text
//!  serve (TLS, HTTP) ─▶ service ─▶ authenticate ─▶ authorize ─▶ request (path + table of kinds) ─▶ one handler per verb
//!                                                                                                  │
//!      respond, table, negotiate ◀──────────────────────────────────────────────────────────────── store
//! ```
//!
//! What an object may look like and how a delete is decided is `api`'s; what is stored and in which order is `store`'s.
//! Here those meet a client. The server never polls: namespaces leave, and watches speak, because the store changed.

mod account_secrets;
mod admission;
mod audit;
mod audit_policy;
mod authenticate;
mod authorize;
mod background;
mod binding;
mod body;
mod bootstrap;
mod byte_budget;
mod certificates;
mod change;
mod collection;
mod connections;
mod create;
mod custom;
mod delete;
mod discovery;
mod dns_service;
mod encoding;
mod events;
mod evict_surge;
mod fair_queue;
mod get;
mod health;
mod identity;
mod inflight;
mod kinds;
mod list;
mod logs_exec;
mod metrics;
mod mountable_secrets;
mod namespaces;
mod negotiate;
mod node;
mod node_rules;
mod openapi;
mod own_service;
mod patch;
pub mod pki;
mod policies;
mod protection;
mod proxy;
mod query;
mod quotas;
mod random;
mod rbac;
mod request;
mod respond;
mod reviews;
mod scale;
mod serve;
mod service;
mod service_cidr;
mod socket;
mod state;
mod table;
mod termination_records;
mod tickets;
mod tokens;
mod update;
mod usage;
mod watch;
mod watch_event_cache;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use frame::Clock;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use api::rules::allocation::ServiceRange;
pub use audit::AuditLog;
pub use audit_policy::{AuditPolicy, AuditPolicyError};
pub use body::{Body, BoxError};
pub use identity::Identity;
pub use node::{Dialing, NoNodes, NodeDialer, RemoteNodes, Stream};
pub use service::ApiService;
pub use tokens::TokenKey;

use state::State;

/// What a server is made of.
pub struct ServerConfig {
    /// Where objects live.
    pub store: store::Store,
    /// The address clients are told.
    pub advertise: SocketAddr,
    /// `v1.36.4+adieu.0.1.0`: what `/version` answers.
    pub version: String,
    /// How nodes are reached for logs and exec.
    pub nodes: Arc<dyn NodeDialer>,
    /// Where the addresses of services come from; the default is `10.87.0.0/16`.
    pub service_range: ServiceRange,
    /// What service account tokens are signed with.
    pub token_key: TokenKey,
}

impl std::fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerConfig").field("advertise", &self.advertise).field("version", &self.version).finish()
    }
}

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The objects every cluster has could not be made.
    #[error("cannot make the objects that must exist at start")]
    Bootstrap(#[source] api::Status),
}

/// The API server, cheap to clone. Dropping the last clone ends its background work; services made from it keep
/// answering.
#[derive(Clone)]
pub struct Server {
    state: Arc<State>,
    _background: Arc<DropGuard>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

/// Starts one part of the server's own work, which goes on until it is told to stop, whatever breaks in it.
fn background<F>(
    part: &'static str,
    state: &Arc<State>,
    stop: &CancellationToken,
    work: impl Fn(Arc<State>, CancellationToken) -> F + Send + 'static,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let (state, stop) = (Arc::clone(state), stop.clone());
    tokio::spawn(supervision::keep(part, move || work(Arc::clone(&state), stop.clone())));
}

impl Server {
    /// Makes the objects that must exist at start and begins to look after them.
    pub async fn new(config: ServerConfig) -> Result<Self, ServerError> {
        Self::with_clock(config, Clock::system()).await
    }

    /// The same, by another clock than the machine's.
    pub async fn with_clock(config: ServerConfig, clock: Clock) -> Result<Self, ServerError> {
        let state = Arc::new(State::new(config, clock));
        bootstrap::run(&state).await.map_err(ServerError::Bootstrap)?;
        let stop = CancellationToken::new();
        background("namespaces", &state, &stop, namespaces::keep);
        background("events", &state, &stop, events::expire);
        background("termination-records", &state, &stop, termination_records::expire);
        background("quotas", &state, &stop, quotas::keep);
        background("rbac", &state, &stop, rbac::aggregate::keep);
        background("own-service", &state, &stop, own_service::keep);
        background("service-cidr", &state, &stop, service_cidr::keep);
        background("dns-service", &state, &stop, dns_service::keep);
        background("account-secrets", &state, &stop, account_secrets::keep);
        background("protection", &state, &stop, protection::keep);
        background("certificates", &state, &stop, certificates::keep);
        Ok(Self { state, _background: Arc::new(stop.drop_guard()) })
    }

    /// Tells the CA that pods are to trust; every namespace then has it in `kube-root-ca.crt`. The first call counts.
    pub fn publish_root_ca(&self, pem: &str) {
        if self.state.root_ca.set(pem.to_owned()).is_ok() {
            self.state.root_ca_set.notify_one();
        }
    }

    /// Signs requests for certificates by `keys` from now on, and approves those of nodes for themselves. The first call counts.
    pub fn sign_certificates_by(&self, keys: &pki::Pki) {
        // Another authority would be a mistake of the wiring.
        let _ = self.state.authority.set(keys.clone());
    }

    /// Tells where this process serves the cluster DNS: `kube-system/kube-dns` then leads there. Answers the address of that service;
    /// none if it cannot be made. The first call counts.
    pub async fn publish_dns(&self, address: SocketAddr) -> Option<IpAddr> {
        let found = dns_service::restore(&self.state, address).await;
        // A second DNS would be a mistake of the wiring.
        let _ = self.state.dns.set(address);
        found
    }

    /// Shows these lines with the metrics of the server.
    pub fn add_metrics(&self, lines: impl Fn() -> String + Send + Sync + 'static) {
        self.state.metrics.add(lines);
    }

    /// Writes every request that comes over the network to `log`. The first call counts.
    pub fn audit_to(&self, log: AuditLog) {
        // A second log would be a mistake of the wiring.
        let _ = self.state.audit.set(log);
    }

    /// Serves one kind more from now on. Its objects may be in the store already.
    pub fn add_kind(&self, kind: api::Kind) -> Result<(), api::RefusedKind> {
        self.state.kinds.add(kind)
    }

    /// Serves an added kind no longer: its watches end, and its paths are no more. Answers whether it was there. Its
    /// objects stay in the store, so whoever wants them gone deletes them first.
    pub fn remove_kind(&self, group: &str, plural: &str) -> bool {
        let Some(kind) = self.state.kinds.remove(group, plural) else { return false };
        self.state.quotas.forget_kind(kind.collection());
        self.state.metrics.forget_kind(&kind);
        true
    }

    /// The kinds that are served, and what they become.
    pub fn kinds(&self) -> tokio::sync::watch::Receiver<Arc<api::Registry>> {
        self.state.kinds.follow()
    }

    /// The whole API as a service on `http` types. The caller's identity is the [`Identity`] extension of the request;
    /// without one the caller is anonymous.
    pub fn service(&self) -> ApiService {
        ApiService { state: Arc::clone(&self.state), identity: None }
    }

    /// The same for one part of the process, which always acts as `identity`. Fit for `kube::Client::new`.
    pub fn service_as(&self, identity: Identity) -> ApiService {
        ApiService { state: Arc::clone(&self.state), identity: Some(identity) }
    }

    /// Rung when a client had something done: memory may be free that was not before.
    pub fn worked(&self) -> Arc<Notify> {
        Arc::clone(&self.state.worked)
    }

    /// Accepts TLS connections until `shutdown` resolves, then stops accepting, ends watches, and lets connections
    /// finish within a deadline.
    pub async fn serve(
        &self,
        listener: TcpListener,
        tls: Arc<rustls::ServerConfig>,
        shutdown: impl Future<Output = ()> + Send,
    ) -> io::Result<()> {
        serve::serve(self.service(), listener, tls, shutdown).await
    }
}
