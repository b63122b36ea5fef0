//! What every handler shares.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use api::rules::allocation::ServiceRange;
use api::{Kind, Status, bounds};
use frame::Clock;
use jiff::Timestamp;
use store::{Key, Object, Refusal, Store, WriteError};
use tokio::sync::{Notify, SetOnce};

use crate::ServerConfig;
use crate::audit::AuditLog;
use crate::connections::Connections;
use crate::inflight::InflightLimits;
use crate::kinds::Kinds;
use crate::metrics::Metrics;
use crate::node::NodeDialer;
use crate::node_rules::NodeNeeds;
use crate::openapi::OpenApiCache;
use crate::pki::Pki;
use crate::quotas::Quotas;
use crate::service_allocations::ServiceAllocations;
use crate::tickets::Tickets;
use crate::tokens::TokenKey;
use crate::ui::Sessions;
use crate::watch_event_cache::WatchEventCache;

/// The server's shared parts. Handlers borrow it; background tasks hold it.
pub(crate) struct State {
    pub(crate) store: Store,
    /// Tells the time.
    pub(crate) clock: Clock,
    /// What is served.
    pub(crate) kinds: Kinds,
    /// What is published about it.
    pub(crate) openapi: OpenApiCache,
    pub(crate) advertise: SocketAddr,
    pub(crate) version: String,
    pub(crate) nodes: Arc<dyn NodeDialer>,
    /// Where the addresses of services come from.
    pub(crate) service_range: ServiceRange,
    /// Which of them are given away, with the node ports.
    pub(crate) service_allocations: ServiceAllocations,
    /// Who decides, where several servers could decide differently.
    pub(crate) tickets: Tickets,
    /// The CA that pods trust, once the process has told us.
    pub(crate) root_ca: OnceLock<String>,
    /// Rung when `root_ca` is set.
    pub(crate) root_ca_set: Notify,
    /// Where this process serves the cluster DNS, once it does.
    pub(crate) dns: SetOnce<SocketAddr>,
    /// What certificates are signed by, once that is known.
    pub(crate) authority: SetOnce<Pki>,
    /// What service account tokens are signed with.
    pub(crate) token_key: TokenKey,
    pub(crate) metrics: Metrics,
    /// Where requests are written down, if they are.
    pub(crate) audit: OnceLock<AuditLog>,
    /// What changed last, as watches send it.
    pub(crate) watch_events: Arc<WatchEventCache>,
    /// Which node needs which secrets and configmaps.
    pub(crate) node_needs: NodeNeeds,
    /// Who is let into namespaces with quotas.
    pub(crate) quotas: Quotas,
    /// Rung when a request from the network was answered, or a connection ended.
    pub(crate) worked: Arc<Notify>,
    /// How many requests are worked on at once.
    pub(crate) inflight: InflightLimits,
    /// Who is connected, at whichever of our addresses; known when the first of them is served.
    pub(crate) connections: OnceLock<Connections>,
    /// Who looks at the web timeline.
    pub(crate) ui: Sessions,
}

impl State {
    pub(crate) fn new(config: ServerConfig, clock: Clock) -> Self {
        Self {
            tickets: Tickets::new(&config.store),
            store: config.store,
            clock,
            kinds: Kinds::default(),
            openapi: OpenApiCache::default(),
            advertise: config.advertise,
            version: config.version,
            nodes: config.nodes,
            service_range: config.service_range,
            service_allocations: ServiceAllocations::default(),
            root_ca: OnceLock::new(),
            root_ca_set: Notify::new(),
            dns: SetOnce::new(),
            authority: SetOnce::new(),
            token_key: config.token_key,
            metrics: Metrics::default(),
            audit: OnceLock::new(),
            watch_events: Arc::default(),
            node_needs: NodeNeeds::default(),
            quotas: Quotas::default(),
            worked: Arc::default(),
            inflight: InflightLimits::default(),
            connections: OnceLock::new(),
            ui: Sessions::default(),
        }
    }

    /// What time it is.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now().timestamp
    }
}

/// The row of a kind the server itself cannot do without.
pub(crate) fn core_kind(plural: &str) -> &'static Arc<Kind> {
    api::built_in("", "v1", plural).expect("the table of kinds has the core kinds")
}

/// A write that did not happen, and that no other try would make happen. Conflicts are decided where they happen.
pub(crate) fn write_failure(state: &State, error: WriteError) -> Status {
    if let WriteError::Refused(refusal) = &error {
        return refused(state, refusal);
    }
    let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    tracing::error!(error = %error, source, "the store refused a write");
    Status::internal(&format!("{error}: {source}"))
}

/// What the store takes from nobody.
fn refused(state: &State, refusal: &Refusal) -> Status {
    let registry = state.kinds.now();
    let of = |key: &Key| registry.by_collection(&key.collection);
    let internal = || Status::internal(&refusal.to_string());
    match refusal {
        Refusal::TooDeep { key, path, limit } => {
            of(key).map_or_else(internal, |kind| bounds::too_deep(kind, &key.name, path, *limit))
        }
        Refusal::TooLarge { key, size, limit } => {
            of(key).map_or_else(internal, |kind| Status::object_too_large(kind, &key.name, *size, *limit))
        }
        Refusal::NotAnObject { .. } => Status::bad_request(refusal.to_string()),
        Refusal::SameKey { .. } | Refusal::SameCollection { .. } | Refusal::TooManyOperations { .. } => internal(),
    }
}

/// The object, unless nothing of it can be read.
pub(crate) fn readable(kind: &Kind, object: Arc<Object>) -> Result<Arc<Object>, Status> {
    match object.unreadable() {
        Some(reason) => Err(Status::unreadable(kind, &object.key.name, reason)),
        None => Ok(object),
    }
}
