//! NetworkPolicies of this node: no pod starts before its rules are in force, and none keeps them longer than its address.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use client::Recorder;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use lifecycle::Routes;
use network_policy::{Policies, PolicyHandle, Settings};
use node::traffic::{Traffic, TrafficReporter, TrafficRequest};
use runtime::embedded::Embedded;
use runtime_api::PodUid;
use supervision::error_chain;
use tokio::sync::watch;

use crate::cluster_dns::ClusterDns;
use crate::config::Config;

/// Who tells people of policies.
const COMPONENT: &str = "network-policy";

/// Enforces policies, if this kernel can and this instance serves anybody.
pub(crate) struct NetworkPolicies {
    policies: Option<Policies>,
    settings: Settings,
}

impl NetworkPolicies {
    /// Before the first pod starts. Rules of a former run are in force all the time.
    pub(crate) fn open(config: &Config, runtime: &Arc<Embedded>, dns: &ClusterDns) -> Self {
        // Behind translation it is where it listens.
        let cluster_dns = match dns.dns {
            Some(_) => vec![config.inside_address()],
            None => dns.addresses.clone(),
        };
        let settings = Settings { prefix: runtime.network().link_prefix().to_owned(), cluster_dns };
        let of = runtime.clone();
        let holders = move || {
            let network = of.network();
            let holders = network.holders().into_iter();
            holders.map(|pod| (pod.0.clone(), network.addresses(&pod).into_iter().collect())).collect()
        };
        let opened = config.serves.then(|| Policies::open(settings.clone(), Box::new(holders)));
        let opened = opened.transpose().inspect_err(|error| {
            tracing::warn!(error = error_chain(error), "NetworkPolicies are not enforced on this node");
        });
        Self { policies: opened.ok().flatten(), settings }
    }

    /// Follows policies, and what they are about, through `client`.
    pub(crate) fn follow(&self, client: kube::Client, node: &str, sees_all_pods: bool) {
        let Some(policies) = &self.policies else { return };
        let (recorder, recording) =
            Recorder::start(client.clone(), COMPONENT, Some(node.to_owned()), Arc::new(Timestamp::now));
        tokio::spawn(recording);
        policies.follow(client, (!sees_all_pods).then(|| node.to_owned()), recorder);
    }

    /// The same traffic, with pods that wait for their rules.
    pub(crate) fn guard(&self, traffic: Arc<dyn Traffic>, runtime: &Arc<Embedded>) -> Arc<dyn Traffic> {
        match &self.policies {
            Some(policies) => {
                Arc::new(PolicedTraffic { traffic, policies: policies.handle(), runtime: runtime.clone() })
            }
            None => traffic,
        }
    }

    /// Takes all rules away, for good.
    pub(crate) async fn remove(&self) -> Result<()> {
        let removed = match &self.policies {
            Some(policies) => policies.close().await,
            None => Policies::remove(&self.settings),
        };
        removed.context("cannot remove the rules of NetworkPolicies")
    }
}

/// Traffic of pods that policies are about.
struct PolicedTraffic {
    traffic: Arc<dyn Traffic>,
    policies: PolicyHandle,
    runtime: Arc<Embedded>,
}

impl fmt::Debug for PolicedTraffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicedTraffic").field("traffic", &self.traffic).finish_non_exhaustive()
    }
}

impl Traffic for PolicedTraffic {
    fn perform(&self, pod: Pod, request: TrafficRequest, reporter: TrafficReporter) -> BoxFuture<'static, ()> {
        self.traffic.perform(pod, request, reporter)
    }

    /// Beside what is told of its routes, what the node knows of a pod is told to its policies: also of one that the API has forgotten,
    /// and of one that was here before this process.
    fn follow(&self, mut pods: watch::Receiver<Arc<Pod>>, reporter: TrafficReporter) -> BoxFuture<'static, ()> {
        let following = self.traffic.follow(pods.clone(), reporter);
        let (policies, runtime) = (self.policies.clone(), self.runtime.clone());
        let telling = async move {
            loop {
                let pod = pods.borrow_and_update().clone();
                let uid = uid(&pod);
                let addresses = runtime.network().addresses(&uid);
                if let Some(link) = runtime.network().link(&uid).filter(|_| !addresses.is_empty()) {
                    policies.know(&uid.0, &pod, &addresses, &link);
                }
                if pods.changed().await.is_err() {
                    return;
                }
            }
        };
        async move {
            tokio::join!(following, telling);
        }
        .boxed()
    }

    fn leaves(&self, pod: &Pod) -> Option<Routes> {
        self.traffic.leaves(pod)
    }

    fn admit(&self, pod: &Pod, addresses: &[IpAddr]) -> BoxFuture<'static, Result<(), String>> {
        let uid = uid(pod);
        let Some(link) = self.runtime.network().link(&uid) else {
            return futures::future::ready(Err("the pod has no link to the node's network".to_owned())).boxed();
        };
        let admitted = self.policies.admit(&uid.0, pod, addresses, &link);
        async move { admitted.await.map_err(|error| error_chain(&error)) }.boxed()
    }

    fn released(&self, reason: &str) {
        self.traffic.released(reason);
    }

    fn departed(&self, pod: &Pod) {
        self.policies.release(&uid(pod).0);
        self.traffic.departed(pod);
    }
}

fn uid(pod: &Pod) -> PodUid {
    PodUid(pod.metadata.uid.clone().unwrap_or_default())
}
