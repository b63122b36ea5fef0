//! Services of the server itself: `kubernetes`, by which pods find the API (the first address of the range, and where it leads), and
//! whatever else this process serves to pods ([`crate::dns_service`]).
//!
//! Their names and addresses are the server's own. Whatever others make of them, or of their endpoints, is put right as soon
//! as the store tells; labels and annotations that people add stay.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use api::{Kind, Status};
use futures::FutureExt as _;
use serde_json::{Value, json};
use store::Object;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::background::{keep_right, source};
use crate::bootstrap::{is_stored, known, make};
use crate::change::Outcome;
use crate::request::key;
use crate::state::{State, core_kind};
use crate::tickets::Held;
use crate::{admission, change};

/// A service whose name and address are the server's own, and where it leads.
pub(crate) struct OwnService {
    pub(crate) namespace: &'static str,
    pub(crate) name: &'static str,
    /// Whose service it is, for people.
    pub(crate) of: &'static str,
    pub(crate) labels: Value,
    /// The address that it should have.
    pub(crate) address: String,
    /// Name, protocol and number of each port, and its number where the service leads.
    pub(crate) ports: &'static [(&'static str, &'static str, u16)],
    /// Where it leads; every port leads to that one.
    pub(crate) leads_to: SocketAddr,
}

fn of_api(state: &State) -> OwnService {
    OwnService {
        namespace: "default",
        name: "kubernetes",
        of: "the API",
        labels: json!({ "component": "apiserver", "provider": "kubernetes" }),
        address: state.service_range.first().to_string(),
        ports: &[("https", "TCP", 443)],
        leads_to: state.advertise,
    }
}

/// Keeps the service `kubernetes` and its endpoints as they should be until `stop`.
pub(crate) async fn keep(state: Arc<State>, stop: CancellationToken) {
    let own = of_api(&state);
    keep_own("kubernetes-service", own, state, stop).await;
}

/// Keeps a service of the server and its endpoints as they should be until `stop`.
pub(crate) async fn keep_own(part: &'static str, own: OwnService, state: Arc<State>, stop: CancellationToken) {
    let watch = |kind: &'static Kind, namespace| source(&state.store, kind.collection(), namespace, |_| ());
    let sources = vec![
        // Of every namespace: the service that goes may be the one that has our address.
        watch(core_kind("services"), ""),
        watch(core_kind("endpoints"), own.namespace),
        watch(known("discovery.k8s.io", "endpointslices"), own.namespace),
    ];
    let (clock, told, own) = (state.clock, Arc::new(Mutex::new(None)), Arc::new(own));
    let restore = move || {
        let (state, told, own) = (Arc::clone(&state), Arc::clone(&told), Arc::clone(&own));
        async move { own.restore(&state, &mut *told.lock().await).await }.boxed()
    };
    keep_right(part, (clock, stop), sources, restore).await;
}

/// Puts back what is missing or different of the service `kubernetes`.
pub(crate) async fn restore(state: &State) -> Result<(), Status> {
    of_api(state).restore(state, &mut None).await
}

impl OwnService {
    /// Puts back what is missing or different. `told` is who has our address, so that a person is told once.
    pub(crate) async fn restore(&self, state: &State, told: &mut Option<String>) -> Result<(), Status> {
        self.service(state, told).await?;
        let (address, to) = (self.leads_to.ip().to_string(), self.leads_to.port());
        let ports: Vec<Value> = self
            .ports
            .iter()
            .map(|(name, protocol, _)| json!({ "name": name, "port": to, "protocol": protocol }))
            .collect();
        let endpoints = json!({
            "metadata": { "name": self.name, "labels": { "endpointslice.kubernetes.io/skip-mirror": "true" } },
            "subsets": [{ "addresses": [{ "ip": address }], "ports": ports }],
        });
        self.ensure(state, core_kind("endpoints"), endpoints).await?;
        let family = if self.leads_to.is_ipv4() { "IPv4" } else { "IPv6" };
        let slice = json!({
            "metadata": { "name": self.name, "labels": { "kubernetes.io/service-name": self.name } },
            "addressType": family,
            "endpoints": [{ "addresses": [address], "conditions": { "ready": true } }],
            "ports": ports,
        });
        self.ensure(state, known("discovery.k8s.io", "endpointslices"), slice).await
    }

    async fn service(&self, state: &State, told: &mut Option<String>) -> Result<(), Status> {
        let kind = core_kind("services");
        let key = key(kind, self.namespace, self.name);
        is_stored(state, &key).await?;
        let own = state.store.get(&key);
        let address = if own.as_deref().is_some_and(|own| has(own, &self.address)) {
            Some(self.address.clone())
        } else {
            // Nobody is given this address but by their own wish, or in a store that was filled in another way.
            let all = state.store.list(kind.collection(), "", None).map(|page| page.items).unwrap_or_default();
            let holder = all.iter().find(|service| service.key != key && has(service, &self.address));
            let holder = holder.map(|holder| format!("{}/{}", holder.key.namespace, holder.key.name));
            if let Some(service) = holder.as_deref().filter(|_| *told != holder) {
                tracing::warn!(
                    service,
                    address = self.address,
                    "this service has the address that is reserved for {}'s own service, {}/{}, which has another one \
                     until it is deleted",
                    self.of,
                    self.namespace,
                    self.name
                );
            }
            *told = holder;
            let stored =
                || own.as_deref().and_then(|own| own.value()["spec"]["clusterIP"].as_str().map(ToOwned::to_owned));
            let is_free = told.is_none();
            if is_free { Some(self.address.clone()) } else { stored().filter(|it| !matches!(&**it, "" | "None")) }
        };
        let to = self.leads_to.port();
        let port = |(name, protocol, port): &(&str, &str, u16)| json!({ "name": name, "port": port, "protocol": protocol, "targetPort": to });
        let mut spec = json!({
            "type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "ports": self.ports.iter().map(port).collect::<Vec<_>>(),
        });
        if let Some(address) = address {
            spec["clusterIPs"] = json!([&address]);
            spec["clusterIP"] = json!(address);
        }
        let metadata = json!({ "name": self.name, "namespace": self.namespace, "labels": self.labels });
        let wanted = json!({ "metadata": metadata, "spec": spec });
        let Some(own) = own else { return make(state, kind, self.namespace, wanted).await };
        if is_right(&own, &wanted) {
            return Ok(());
        }
        // What has no right address gets any that is free.
        let mut held = Held::of(state, kind, self.namespace, None, false).await;
        let adjusted = change::modify_holding(state, kind, &own.key, false, &mut held, |current| {
            let mut allocated = wanted.clone();
            admission::allocate(state, kind, &mut allocated, Some(&wanted))?;
            Ok(put_right(current.to_value(), &allocated))
        });
        unless_gone(adjusted.await)
    }

    /// The address that the service has.
    pub(crate) fn stored_address(&self, state: &State) -> Option<IpAddr> {
        let stored = state.store.get(&key(core_kind("services"), self.namespace, self.name))?;
        stored.value()["spec"]["clusterIP"].as_str()?.parse().ok()
    }

    /// Makes `wanted` in its namespace, or makes the one that is there like it.
    async fn ensure(&self, state: &State, kind: &Arc<Kind>, wanted: Value) -> Result<(), Status> {
        let key = key(kind, self.namespace, self.name);
        is_stored(state, &key).await?;
        match state.store.get(&key) {
            None => make(state, kind, self.namespace, wanted).await,
            Some(found) if is_right(&found, &wanted) => Ok(()),
            Some(_) => {
                let adjusted =
                    change::modify(state, kind, &key, false, |current| Ok(put_right(current.to_value(), &wanted)));
                unless_gone(adjusted.await)
            }
        }
    }
}

fn has(service: &Object, address: &str) -> bool {
    let value = service.value();
    let all = value["spec"]["clusterIPs"].as_array().into_iter().flatten();
    all.filter_map(Value::as_str).any(|own| own == address)
}

fn is_right(found: &Object, wanted: &Value) -> bool {
    *found.value() == put_right(found.to_value(), wanted)
}

/// What is deleted in between is told as well, and made anew then.
pub(crate) fn unless_gone(changed: Result<Outcome, Status>) -> Result<(), Status> {
    match changed {
        Err(status) if status.code == 404 => Ok(()),
        changed => changed.map(|_| ()),
    }
}

/// `value` with everything that `wanted` says, and nothing else beside it in what is not metadata.
fn put_right(mut value: Value, wanted: &Value) -> Value {
    for (name, part) in wanted.as_object().into_iter().flatten().filter(|(name, _)| *name != "metadata") {
        value[name] = part.clone();
    }
    let labels = wanted["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    let stored = &mut value["metadata"]["labels"];
    if !stored.is_object() {
        *stored = json!({});
    }
    if let Some(stored) = stored.as_object_mut() {
        stored.extend(labels);
    }
    value
}
