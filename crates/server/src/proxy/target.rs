//! Where a proxied request goes: a pod's own address, one of a service's pods, a node.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use api::Status;
use rustls::pki_types::ServerName;
use serde_json::Value;
use store::Object;
use tls::{AcceptAnyCertificate, Signatures};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::node::{self, Stream};
use crate::random;
use crate::request::{ResourceAddress, key};
use crate::state::{State, core_kind};

/// How long a backend may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(30);
const KUBELET: u16 = 10250;
const HTTP: u16 = 80;
const HTTPS: u16 = 443;

/// Whom to ask.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A node's own API.
    Node { name: String },
    /// Whatever listens there.
    Socket { at: SocketAddr, encrypted: bool },
}

impl Target {
    /// The address as links spell it.
    pub(super) fn host(&self) -> String {
        match self {
            Self::Node { name } => name.clone(),
            Self::Socket { at, .. } => at.to_string(),
        }
    }
}

/// `name`, `name:port` or `scheme:name:port`.
#[derive(Debug, PartialEq, Eq)]
struct Parts<'a> {
    scheme: &'a str,
    name: &'a str,
    port: &'a str,
}

/// Takes apart what a path calls the object.
fn split<'a>(resource: &str, id: &'a str) -> Result<Parts<'a>, Status> {
    let words: Vec<&str> = id.split(':').collect();
    let parts = match words.as_slice() {
        [name] => Some(Parts { scheme: "", name, port: "" }),
        [name, port] => Some(Parts { scheme: "", name, port }),
        [scheme, name, port] => Some(Parts { scheme, name, port }),
        _ => None,
    };
    let what = resource.trim_end_matches('s');
    parts
        .filter(|parts| !parts.name.is_empty() && matches!(parts.scheme, "" | "http" | "https"))
        .ok_or_else(|| Status::bad_request(format!("invalid {what} request {id:?}")))
}

/// Where the object of a path listens.
pub(super) fn find(state: &State, address: &ResourceAddress) -> Result<Target, Status> {
    let parts = split(&address.resource, &address.name)?;
    match address.resource.as_str() {
        "pods" => pod(&get(state, "pods", &address.namespace, parts.name)?.value(), &parts),
        "services" => service(state, &address.namespace, &address.name, &parts),
        _ => node(&get(state, "nodes", "", parts.name)?.value(), &parts),
    }
}

fn get(state: &State, plural: &str, namespace: &str, name: &str) -> Result<Arc<Object>, Status> {
    let kind = core_kind(plural);
    state.store.get(&key(kind, namespace, name)).ok_or_else(|| Status::not_found(kind, name))
}

fn pod(pod: &Value, parts: &Parts<'_>) -> Result<Target, Status> {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let mut ports = containers.flat_map(|container| container["ports"].as_array().into_iter().flatten());
    let number = |port: &Value| port["containerPort"].as_u64().and_then(|port| u16::try_from(port).ok());
    let encrypted = parts.scheme == "https";
    let port = match parts.port {
        "" => Some(ports.next().and_then(number).unwrap_or(if encrypted { HTTPS } else { HTTP })),
        text => text.parse().ok().or_else(|| ports.find(|port| port["name"] == text).and_then(number)),
    };
    let port = port.ok_or_else(|| Status::bad_request(format!("no port {:?} found for the pod", parts.port)))?;
    let ip = pod["status"]["podIP"].as_str().and_then(|ip| ip.parse().ok()).filter(may_be_asked);
    let ip = ip.ok_or_else(not_allowed)?;
    Ok(Target::Socket { at: SocketAddr::new(ip, port), encrypted })
}

fn not_allowed() -> Status {
    Status::bad_request("address not allowed")
}

/// What this machine keeps for itself is nobody's backend.
fn may_be_asked(ip: &IpAddr) -> bool {
    let ip = ip.to_canonical();
    let link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !(ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || link_local)
}

fn service(state: &State, namespace: &str, id: &str, parts: &Parts<'_>) -> Result<Target, Status> {
    let object = get(state, "services", namespace, parts.name)?;
    // Endpoints know ports by their names; a number is the service's own.
    let name = match parts.port.parse::<u64>() {
        Err(_) => parts.port.to_owned(),
        Ok(number) => {
            let value = object.value();
            let mut ports = value["spec"]["ports"].as_array().into_iter().flatten();
            let port = ports
                .find(|port| port["port"].as_u64() == Some(number))
                .ok_or_else(|| unavailable(format!("no service port {number} found for service {:?}", parts.name)))?;
            port["name"].as_str().unwrap_or_default().to_owned()
        }
    };
    let mut known = from_slices(state, namespace, parts.name, &name);
    if known.is_empty() {
        known = from_endpoints(state, namespace, parts.name, &name);
    }
    known.retain(|at| may_be_asked(&at.ip()));
    if known.is_empty() {
        return Err(unavailable(format!("no endpoints available for service {id:?}")));
    }
    let chosen = random::number() as usize % known.len();
    Ok(Target::Socket { at: known[chosen], encrypted: parts.scheme == "https" })
}

fn unavailable(message: String) -> Status {
    Status::new(503, "ServiceUnavailable", message)
}

/// Ready addresses of the service's slices that have the port.
fn from_slices(state: &State, namespace: &str, service: &str, port: &str) -> Vec<SocketAddr> {
    let Some(kind) = api::built_in("discovery.k8s.io", "v1", "endpointslices") else { return Vec::new() };
    let slices = state.store.list(kind.collection(), namespace, None).map(|page| page.items).unwrap_or_default();
    let mut out = Vec::new();
    for slice in &slices {
        let slice = slice.value();
        if slice["metadata"]["labels"]["kubernetes.io/service-name"] != service {
            continue;
        }
        let Some(port) = port_named(&slice["ports"], port) else { continue };
        let ready = slice["endpoints"].as_array().into_iter().flatten().filter(|of| of["conditions"]["ready"] != false);
        for endpoint in ready {
            let address = endpoint["addresses"][0].as_str().unwrap_or_default();
            out.extend(checked(state, namespace, address, &endpoint["targetRef"]).map(|ip| SocketAddr::new(ip, port)));
        }
    }
    out
}

/// The same, of the older kind.
fn from_endpoints(state: &State, namespace: &str, service: &str, port: &str) -> Vec<SocketAddr> {
    let Some(object) = state.store.get(&key(core_kind("endpoints"), namespace, service)) else { return Vec::new() };
    let object = object.value();
    let mut out = Vec::new();
    for subset in object["subsets"].as_array().into_iter().flatten() {
        let Some(port) = port_named(&subset["ports"], port) else { continue };
        for address in subset["addresses"].as_array().into_iter().flatten() {
            let ip = address["ip"].as_str().unwrap_or_default();
            out.extend(checked(state, namespace, ip, &address["targetRef"]).map(|ip| SocketAddr::new(ip, port)));
        }
    }
    out
}

fn port_named(ports: &Value, name: &str) -> Option<u16> {
    let port = ports.as_array()?.iter().find(|port| port["name"].as_str().unwrap_or_default() == name)?;
    port["port"].as_u64().and_then(|port| u16::try_from(port).ok())
}

/// An address counts if it is that of the pod it is said to be: endpoints are written by people, too, and this server reaches
/// more than they do.
fn checked(state: &State, namespace: &str, address: &str, target: &Value) -> Option<IpAddr> {
    let name = target["name"].as_str().filter(|_| target["kind"] == "Pod")?;
    let pod = state.store.get(&key(core_kind("pods"), namespace, name))?;
    let pod = pod.value();
    let mut ips = pod["status"]["podIPs"].as_array().into_iter().flatten().map(|ip| &ip["ip"]);
    let is_its_own = pod["status"]["podIP"] == address || ips.any(|ip| ip == address);
    let is_same = target["uid"].as_str().is_none_or(|uid| pod["metadata"]["uid"] == uid);
    if is_its_own && is_same { address.parse().ok() } else { None }
}

fn node(node: &Value, parts: &Parts<'_>) -> Result<Target, Status> {
    // By the port that every kubelet has people mean the node itself, although it may listen elsewhere, and one in this
    // process nowhere.
    let own = [Some(KUBELET), node::listens_at(node).map(|at| at.port())];
    let is_own = |text: &str| own.iter().flatten().any(|own| own.to_string() == text);
    if parts.port.is_empty() || is_own(parts.port) {
        return Ok(Target::Node { name: parts.name.to_owned() });
    }
    let port = parts.port.parse().map_err(|_| Status::bad_request(format!("invalid port {:?}", parts.port)))?;
    let ip = node::internal_ip(node).filter(may_be_asked).ok_or_else(not_allowed)?;
    Ok(Target::Socket { at: SocketAddr::new(ip, port), encrypted: parts.scheme == "https" })
}

/// Connects, or says why not in words that clients know from upstream.
pub(super) async fn dial(at: SocketAddr, encrypted: bool) -> Result<Box<dyn Stream>, String> {
    let connecting = async {
        let stream = TcpStream::connect(at).await?;
        stream.set_nodelay(true)?;
        if !encrypted {
            return Ok(Box::new(stream) as Box<dyn Stream>);
        }
        let stream = TlsConnector::from(ANYBODY.clone()).connect(ServerName::IpAddress(at.ip().into()), stream).await?;
        Ok(Box::new(stream) as Box<dyn Stream>)
    };
    match tokio::time::timeout(CONNECT, connecting).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(format!("dial tcp {at}: {}", words(&error))),
        Err(_) => Err(format!("dial tcp {at}: i/o timeout")),
    }
}

fn words(error: &io::Error) -> String {
    const KNOWN: [(io::ErrorKind, &str); 4] = [
        (io::ErrorKind::ConnectionRefused, "connect: connection refused"),
        (io::ErrorKind::HostUnreachable, "connect: no route to host"),
        (io::ErrorKind::NetworkUnreachable, "connect: network is unreachable"),
        (io::ErrorKind::TimedOut, "i/o timeout"),
    ];
    let known = KNOWN.iter().find(|(kind, _)| *kind == error.kind());
    known.map_or_else(|| error.to_string(), |(_, words)| (*words).to_owned())
}

/// TLS to a pod: encrypted, but nobody can say by which certificate it would be known, so that any will do.
static ANYBODY: LazyLock<Arc<rustls::ClientConfig>> = LazyLock::new(|| {
    let config = AcceptAnyCertificate::client_config(Signatures::Checked);
    Arc::new(config.expect("the provider knows the usual versions of TLS"))
});

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_is_named_with_scheme_and_port_or_without() {
        let parts = |scheme, name, port| Parts { scheme, name, port };
        assert_eq!(split("pods", "p").unwrap(), parts("", "p", ""));
        assert_eq!(split("pods", "p:80").unwrap(), parts("", "p", "80"));
        assert_eq!(split("pods", "https:p:").unwrap(), parts("https", "p", ""));
        assert_eq!(split("pods", "http:p:web").unwrap(), parts("http", "p", "web"));
        for wrong in ["", ":80", "ftp:p:21", "a:b:c:d", "https::1"] {
            let refused = split("services", wrong).unwrap_err();
            assert_eq!((refused.code, refused.message), (400, format!("invalid service request {wrong:?}")));
        }
    }

    #[test]
    fn a_node_is_asked_itself_at_its_own_port_and_at_every_kubelets() {
        let object = |ip: &str, port: Option<u16>| {
            let endpoints = port.map(|port| json!({ "kubeletEndpoint": { "Port": port } }));
            json!({ "status": { "daemonEndpoints": endpoints,
                "addresses": [{ "type": "InternalIP", "address": ip }] } })
        };
        let itself = Target::Node { name: "n1".to_owned() };
        for listens in [None, Some(4444)] {
            for id in ["n1", "n1:10250", "https:n1:", "https:n1:10250"] {
                let found = node(&object("127.0.0.1", listens), &split("nodes", id).unwrap()).unwrap();
                assert_eq!(found, itself, "{id}, {listens:?}");
            }
        }
        let at = |ip: &str, id: &str| node(&object(ip, Some(4444)), &split("nodes", id).unwrap());
        assert_eq!(at("127.0.0.1", "n1:4444").unwrap(), itself);
        for ip in ["127.0.0.1", "169.254.0.1", "::1"] {
            assert_eq!(at(ip, "n1:4445").unwrap_err().message, "address not allowed", "{ip}");
        }
        assert_eq!(at("192.0.2.7", "n1:9100").unwrap().host(), "192.0.2.7:9100");
        assert_eq!(at("192.0.2.7", "n1:web").unwrap_err().code, 400);
    }

    #[test]
    fn a_pod_is_asked_at_its_first_port_unless_another_is_named() {
        let ports = json!([{ "containerPort": 8080, "name": "web" }, { "containerPort": 9090, "name": "more" }]);
        let object = json!({ "spec": { "containers": [{ "name": "a" }, { "name": "b", "ports": ports }] },
            "status": { "podIP": "10.0.0.2" } });
        let at = |id: &str| match pod(&object, &split("pods", id).unwrap()) {
            Ok(target) => target.host(),
            Err(status) => status.message,
        };
        assert_eq!(at("p"), "10.0.0.2:8080");
        assert_eq!(at("p:81"), "10.0.0.2:81");
        assert_eq!(at("p:more"), "10.0.0.2:9090");
        assert_eq!(at("p:none"), "no port \"none\" found for the pod");
        let bare = |ip: &str| {
            let object = json!({ "spec": { "containers": [{ "name": "a" }] }, "status": { "podIP": ip } });
            pod(&object, &split("pods", "https:p:").unwrap()).map(|target| target.host()).map_err(|s| s.message)
        };
        assert_eq!(bare("10.0.0.2").unwrap(), "10.0.0.2:443");
        for own in ["127.0.0.1", "169.254.169.254", "0.0.0.0", "::1", "fe80::1", "224.0.0.1", ""] {
            assert_eq!(bare(own).unwrap_err(), "address not allowed", "{own}");
        }
    }
}
