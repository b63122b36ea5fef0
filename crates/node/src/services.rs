//! The services of the cluster, as far as containers find them in their environment.
//!
//! A container is told where the services of its namespace are when it starts, and never again. So nothing of a pod from
//! the API starts before the services were listed once; pods of files may be what the API itself needs, and do not wait. The
//! last list is kept, for an agent that comes up while the API is away.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use client::WatchUpdate;
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::Api;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};
use tracing::warn;

use crate::files::Files;

/// How many changes may wait to be looked at.
const BACKLOG: usize = 64;
/// How long a fresh list is waited for where there is one of an earlier agent.
const LIST_WAIT_MAX: Duration = Duration::from_secs(2);

/// Every pod is told where the API is, whatever it says of other services.
const API_SERVICE: (&str, &str) = ("default", "kubernetes");

/// What a container is told of one service.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Entry {
    address: String,
    ports: Vec<Port>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Port {
    name: Option<String>,
    protocol: String,
    number: i32,
}

impl Entry {
    /// A service that has no address of its own is none that an environment could name.
    fn of(service: &Service) -> Option<Self> {
        let spec = service.spec.as_ref()?;
        let address = spec.cluster_ip.clone().filter(|ip| !ip.is_empty() && ip != "None")?;
        let port = |port: &k8s_openapi::api::core::v1::ServicePort| Port {
            name: port.name.clone().filter(|name| !name.is_empty()),
            protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
            number: port.port,
        };
        Some(Self { address, ports: spec.ports.iter().flatten().map(port).collect() })
    }

    /// Adds the variables of a service called `name`: Kubernetes' own, then those that linked docker containers had.
    fn variables(&self, name: &str, into: &mut BTreeMap<String, String>) {
        let name = variable(name);
        into.insert(format!("{name}_SERVICE_HOST"), self.address.clone());
        for (at, port) in self.ports.iter().enumerate() {
            let number = port.number.to_string();
            if at == 0 {
                into.insert(format!("{name}_SERVICE_PORT"), number.clone());
            }
            if let Some(port_name) = &port.name {
                into.insert(format!("{name}_SERVICE_PORT_{}", variable(port_name)), number.clone());
            }
            let protocol = port.protocol.to_lowercase();
            let url = format!("{protocol}://{}:{number}", host(&self.address));
            if at == 0 {
                into.insert(format!("{name}_PORT"), url.clone());
            }
            let link = format!("{name}_PORT_{number}_{}", port.protocol.to_uppercase());
            into.insert(format!("{link}_PROTO"), protocol);
            into.insert(format!("{link}_PORT"), number);
            into.insert(format!("{link}_ADDR"), self.address.clone());
            into.insert(link, url);
        }
    }
}

/// A name as part of a variable's.
fn variable(name: &str) -> String {
    name.to_uppercase().replace('-', "_")
}

/// An address as it stands before a port.
fn host(address: &str) -> String {
    match address.parse() {
        Ok(IpAddr::V6(_)) => format!("[{address}]"),
        _ => address.to_owned(),
    }
}

/// The known services by namespace and name.
type ServiceTable = BTreeMap<(String, String), Entry>;

/// A view of all services; cheap to clone.
#[derive(Clone, Debug)]
pub struct Services {
    /// Nothing before the first list.
    known: watch::Receiver<Option<ServiceTable>>,
    /// What an earlier agent knew.
    remembered: Option<ServiceTable>,
}

impl Services {
    /// A view, and the work of keeping it up to date. What is known is kept in `file`.
    pub async fn start(client: kube::Client, file: PathBuf, files: Files) -> (Self, impl Future<Output = ()> + Send) {
        let remembered = recall(&files, &file).await;
        let (told, known) = watch::channel(None);
        let (out, updates) = mpsc::channel(BACKLOG);
        let following = client::follow(Api::<Service>::all(client), None, out);
        let keeping = async move {
            let state = (updates, told, file, files);
            let keeping = supervision::keep_on("services", state, |(updates, told, file, files)| {
                keep(updates, told, file, files).boxed()
            });
            tokio::join!(following, keeping);
        };
        (Self { known, remembered }, keeping)
    }

    /// The variables that a container of `pod` is given.
    pub async fn variables(&self, pod: &Pod) -> BTreeMap<String, String> {
        let mut known = self.known.clone();
        if !api::pod::is_static(pod) {
            // Ends with a list, or with the node and all who wait here.
            let listed = known.wait_for(Option::is_some);
            if self.remembered.is_some() {
                let _ = tokio::time::timeout(LIST_WAIT_MAX, listed).await;
            } else {
                let _ = listed.await;
            }
        }
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let linked = pod.spec.as_ref().and_then(|spec| spec.enable_service_links).unwrap_or(true);
        let known = known.borrow();
        let known = known.as_ref().or(self.remembered.as_ref());
        known.map(|known| variables(known, namespace, linked)).unwrap_or_default()
    }
}

fn variables(known: &ServiceTable, namespace: &str, linked: bool) -> BTreeMap<String, String> {
    let (default, api) = API_SERVICE;
    let of_api = known.get(&(default.to_owned(), api.to_owned())).map(|entry| (api, entry));
    let first = (namespace.to_owned(), String::new());
    let own = known.range(first..).take_while(|((of, _), _)| of == namespace && linked);
    // By name: one of its own that is called like the API's takes the whole of its place.
    let told: BTreeMap<&str, &Entry> =
        of_api.into_iter().chain(own.map(|((_, name), entry)| (name.as_str(), entry))).collect();
    let mut variables = BTreeMap::new();
    for (name, entry) in told {
        entry.variables(name, &mut variables);
    }
    variables
}

async fn keep(
    updates: &mut mpsc::Receiver<WatchUpdate<Service>>,
    told: &watch::Sender<Option<ServiceTable>>,
    file: &Path,
    files: &Files,
) {
    while let Some(update) = updates.recv().await {
        if told.send_if_modified(|known| see(known, update)) {
            let known = told.borrow().clone().unwrap_or_default();
            if let Err(error) = remember(files, file, known).await {
                warn!(%error, "services cannot be remembered; pods that start while the API is away may not know them");
            }
        }
    }
}

async fn remember(files: &Files, file: &Path, known: ServiceTable) -> std::io::Result<()> {
    let text = serde_json::to_vec(&known.into_iter().collect::<Vec<_>>())?;
    files.replace(file, file.with_extension("new"), text, false).await
}

/// What was remembered; nothing if that cannot be read.
async fn recall(files: &Files, file: &Path) -> Option<ServiceTable> {
    let text = files.read(file).await.ok()?;
    let known: Vec<_> = serde_json::from_slice(&text).ok()?;
    Some(known.into_iter().collect())
}

/// Takes in what was seen; says whether that changed anything.
fn see(known: &mut Option<ServiceTable>, update: WatchUpdate<Service>) -> bool {
    let key = |service: &Service| {
        let meta = &service.metadata;
        (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
    };
    match update {
        WatchUpdate::Listed(all) => {
            let listed = all.iter().filter_map(|service| Some((key(service), Entry::of(service)?))).collect();
            known.replace(listed) != *known
        }
        WatchUpdate::Changed(service) => {
            let known = known.get_or_insert_default();
            match Entry::of(&service) {
                Some(entry) => known.insert(key(&service), entry.clone()) != Some(entry),
                None => known.remove(&key(&service)).is_some(),
            }
        }
        WatchUpdate::Removed(service) => known.as_mut().is_some_and(|known| known.remove(&key(&service)).is_some()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    fn service(namespace: &str, name: &str, address: &str, ports: serde_json::Value) -> Service {
        let spec = json!({ "clusterIP": address, "ports": ports });
        serde_json::from_value(json!({ "metadata": { "namespace": namespace, "name": name }, "spec": spec })).unwrap()
    }

    fn listed(services: Vec<Service>) -> Option<ServiceTable> {
        let mut known = None;
        assert!(see(&mut known, WatchUpdate::Listed(services)));
        known
    }

    fn https(port: u16) -> serde_json::Value {
        json!([{ "name": "https", "port": port, "protocol": "TCP" }])
    }

    #[test]
    fn every_port_is_told_in_both_ways() {
        let ports = json!([{ "name": "web-1", "port": 80 }, { "name": "dns", "port": 53, "protocol": "UDP" }]);
        let known = listed(vec![service("n", "my-app", "fd00::7", ports)]).unwrap();
        let expected = [
            ("MY_APP_PORT", "tcp://[fd00::7]:80"),
            ("MY_APP_PORT_53_UDP", "udp://[fd00::7]:53"),
            ("MY_APP_PORT_53_UDP_ADDR", "fd00::7"),
            ("MY_APP_PORT_53_UDP_PORT", "53"),
            ("MY_APP_PORT_53_UDP_PROTO", "udp"),
            ("MY_APP_PORT_80_TCP", "tcp://[fd00::7]:80"),
            ("MY_APP_PORT_80_TCP_ADDR", "fd00::7"),
            ("MY_APP_PORT_80_TCP_PORT", "80"),
            ("MY_APP_PORT_80_TCP_PROTO", "tcp"),
            ("MY_APP_SERVICE_HOST", "fd00::7"),
            ("MY_APP_SERVICE_PORT", "80"),
            ("MY_APP_SERVICE_PORT_DNS", "53"),
            ("MY_APP_SERVICE_PORT_WEB_1", "80"),
        ];
        let told = variables(&known, "n", true);
        let told: Vec<_> = told.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(told, expected);
    }

    #[test]
    fn a_pod_hears_of_its_own_namespace_and_of_the_api() {
        let services = vec![
            service("default", "kubernetes", "10.0.0.1", https(443)),
            service("default", "other", "10.0.0.2", https(1)),
            service("n", "mine", "10.0.0.3", https(2)),
            service("n", "headless", "None", https(3)),
            service("n", "external", "", https(4)),
            service("nn", "theirs", "10.0.0.5", https(5)),
        ];
        let known = listed(services).unwrap();
        let hosts = |namespace, linked| {
            let all = variables(&known, namespace, linked).into_keys();
            all.filter(|name| name.ends_with("_SERVICE_HOST")).collect::<Vec<_>>()
        };
        assert_eq!(hosts("n", true), ["KUBERNETES_SERVICE_HOST", "MINE_SERVICE_HOST"]);
        assert_eq!(hosts("n", false), ["KUBERNETES_SERVICE_HOST"]);
        assert_eq!(hosts("default", true), ["KUBERNETES_SERVICE_HOST", "OTHER_SERVICE_HOST"]);
    }

    #[test]
    fn a_service_named_like_the_api_takes_its_place() {
        let ports = json!([{ "port": 7 }]);
        let services = vec![
            service("default", "kubernetes", "10.0.0.1", https(443)),
            service("n", "kubernetes", "10.0.0.9", ports),
            service("n", "a", "10.0.0.4", https(1)),
        ];
        let known = listed(services).unwrap();
        let told = variables(&known, "n", true);
        assert_eq!(told["KUBERNETES_SERVICE_HOST"], "10.0.0.9");
        assert!(!told.contains_key("KUBERNETES_SERVICE_PORT_HTTPS"), "{told:?}");
        assert!(told.contains_key("A_SERVICE_HOST"), "{told:?}");
        assert_eq!(variables(&known, "n", false)["KUBERNETES_SERVICE_HOST"], "10.0.0.1");
    }

    #[tokio::test]
    async fn known_services_are_read_back_from_their_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("services.json");
        assert_eq!(recall(&Files::Threads, &file).await, None);
        let known = listed(vec![service("n", "a", "10.0.0.1", https(1))]).unwrap();
        remember(&Files::Threads, &file, known.clone()).await.unwrap();
        assert_eq!(recall(&Files::Threads, &file).await, Some(known));
        std::fs::write(&file, "{").unwrap();
        assert_eq!(recall(&Files::Threads, &file).await, None);
    }

    #[test]
    fn service_changes_update_the_service_table() {
        let mut known = listed(vec![service("n", "a", "10.0.0.1", https(1))]);
        assert!(!see(&mut known, WatchUpdate::Changed(service("n", "a", "10.0.0.1", https(1)))));
        assert!(see(&mut known, WatchUpdate::Changed(service("n", "b", "10.0.0.2", https(2)))));
        assert!(see(&mut known, WatchUpdate::Changed(service("n", "a", "None", https(1)))), "it became headless");
        assert!(see(&mut known, WatchUpdate::Removed(service("n", "b", "10.0.0.2", https(2)))));
        assert_eq!(known, Some(ServiceTable::new()));
    }
}
