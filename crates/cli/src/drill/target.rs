//! What is drilled: the workload, the Service in front of it, and the address that clients would use.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result, bail, ensure};
use http::Uri;
use runtime::image::Resolver;
use serde_json::Value;

use super::DrillArgs;
use super::observations::Way;
use crate::cluster::{Cluster, ObjectName};
use crate::pod_end::word;
use crate::verbs::{Call, Resource, Resources, labels_of, path_segment};

/// A workload, or a single pod.
pub(super) struct Target {
    /// Its kind.
    pub resource: Resource,
    /// Its name.
    pub name: String,
    /// As the API has it.
    pub object: Value,
    /// Selects its pods, or a pod and its siblings; nothing for a pod without labels.
    pub labels: Option<String>,
    /// How its pods are made to leave.
    pub way: Way,
}

impl Target {
    /// Looks it up, and says why it cannot be drilled.
    pub(super) async fn find(cluster: &Cluster, what: &ObjectName, args: &DrillArgs) -> Result<Self> {
        let resource = Resources::default().find(cluster, &what.resource).await?;
        let shown = resource.object_name(&what.name);
        let call = Call::get(resource.object(&cluster.namespace, &what.name)?, format!("get {shown}"));
        let object = cluster.ask(&call).await?.value;
        let way = way(&resource.kind, &object, args).with_context(|| format!("{shown} cannot be drilled"))?;
        let labels = if resource.kind == "Pod" { labels_of_pod(&object) } else { labels_of(&object) };
        ensure!(resource.kind == "Pod" || labels.is_some(), "{shown} selects no pods");
        Ok(Self { resource, name: what.name.clone(), object, labels, way })
    }

    /// `deployment.apps/web`.
    pub(super) fn shown(&self) -> String {
        self.resource.object_name(&self.name)
    }

    /// Whether a restart replaces every pod of it.
    pub(super) fn replaces_all(&self) -> bool {
        self.object["spec"]["updateStrategy"]["rollingUpdate"]["partition"].as_i64().unwrap_or(0) == 0
    }
}

/// The labels of a pod as a query, for it and its siblings.
fn labels_of_pod(pod: &Value) -> Option<String> {
    let labels = pod["metadata"]["labels"].as_object().filter(|labels| !labels.is_empty())?;
    let pairs: Option<Vec<String>> =
        labels.iter().map(|(key, value)| Some(format!("{key}={}", value.as_str()?))).collect();
    Some(pairs?.join(","))
}

fn way(kind: &str, object: &Value, args: &DrillArgs) -> Result<Way> {
    let is_owned = object["metadata"]["ownerReferences"].as_array().is_some_and(|owners| !owners.is_empty());
    match kind {
        "Pod" if is_owned || args.yes => Ok(Way::Kill),
        "Pod" => bail!("it has no controller, so nobody would make it again; say --yes if that is what you want"),
        "ReplicaSet" | "ReplicationController" => Ok(Way::Kill),
        "Deployment" | "StatefulSet" | "DaemonSet" if args.kill => Ok(Way::Kill),
        "Deployment" if object["spec"]["paused"] == true => {
            bail!("it is paused, so a restart would not begin; resume it, or use --kill")
        }
        "StatefulSet" | "DaemonSet" if object["spec"]["updateStrategy"]["type"] == "OnDelete" => {
            bail!("it is rolled out by deleting its pods (OnDelete); use --kill")
        }
        "Deployment" | "StatefulSet" | "DaemonSet" => Ok(Way::Restart),
        _ => bail!("only Deployments, StatefulSets, DaemonSets, ReplicaSets and pods can be"),
    }
}

/// Where requests go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Goal {
    /// What clients in the cluster dial; nothing for a URL's host that only this machine dials.
    pub inside: Option<SocketAddr>,
    /// What clients of this machine may dial, in this order.
    pub outside: Vec<SocketAddr>,
    /// `Host` of a request.
    pub host: String,
    /// The path of a request.
    pub path: String,
    /// For people.
    pub shown: String,
}

/// Where a URL leads.
pub(super) async fn of_url(url: &str) -> Result<Goal> {
    let uri: Uri = url.parse().with_context(|| format!("--url {url:?} cannot be read"))?;
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") => bail!("--url {url}: requests are sent without TLS; name an http address behind it"),
        _ => bail!("--url {url}: write it as http://HOST[:PORT][/PATH]"),
    }
    let authority = uri.authority().with_context(|| format!("--url {url} names no host"))?;
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let port = authority.port_u16().unwrap_or(80);
    let addresses = match host.parse::<IpAddr>() {
        Ok(address) => vec![address],
        Err(_) => Resolver::default().addresses(host).await.with_context(|| format!("--url {url}"))?,
    };
    ensure!(!addresses.is_empty(), "--url {url}: the host has no address");
    Ok(Goal {
        inside: None,
        outside: addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect(),
        host: authority.as_str().to_owned(),
        path: uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
        shown: url.to_owned(),
    })
}

/// The Service in front of a pod, by its name or as the only one that selects the pod.
pub(super) async fn service(cluster: &Cluster, args: &DrillArgs, pod_labels: &Value) -> Result<Value> {
    let path = format!("/api/v1/namespaces/{}/services", path_segment(&cluster.namespace)?);
    if let Some(name) = &args.service {
        let call = Call::get(format!("{path}/{}", path_segment(name)?), format!("get service/{name}"));
        return Ok(cluster.ask(&call).await?.value);
    }
    let list = cluster.ask(&Call::get(path, "list services")).await?.value;
    let all = list["items"].as_array().cloned().unwrap_or_default();
    choose(all, pod_labels)
}

fn choose(all: Vec<Value>, pod_labels: &Value) -> Result<Value> {
    let is_headless = |service: &Value| matches!(word(&service["spec"], "clusterIP"), "" | "None");
    let selecting: Vec<Value> = all.into_iter().filter(|service| selects(service, pod_labels)).collect();
    let mut routed: Vec<Value> = selecting.iter().filter(|service| !is_headless(service)).cloned().collect();
    let name = |service: &Value| word(&service["metadata"], "name").to_owned();
    match (routed.len(), selecting.first()) {
        (1, _) => Ok(routed.remove(0)),
        (0, None) => bail!(
            "no Service selects its pods: name one with --service, or an address with --url, or say --no-load to look at \
             the ends of the pods alone"
        ),
        (0, Some(headless)) => bail!(
            "the Service {} is headless: it has no address of its own. Name an address with --url, or say --no-load",
            name(headless)
        ),
        (_, _) => {
            let names: Vec<String> = routed.iter().map(name).collect();
            bail!("several Services select its pods ({}): name one with --service", names.join(", "))
        }
    }
}

fn selects(service: &Value, labels: &Value) -> bool {
    let selector = service["spec"]["selector"].as_object().filter(|selector| !selector.is_empty());
    selector.is_some_and(|selector| selector.iter().all(|(key, value)| labels[key] == *value))
}

/// Where a Service is reached. `nodes` are the addresses of the cluster's nodes, `is_node` whether this machine is one of them.
pub(super) fn of_service(service: &Value, args: &DrillArgs, nodes: &[IpAddr], is_node: bool) -> Result<Goal> {
    let name = word(&service["metadata"], "name");
    let port = port(service, args.port.as_deref()).with_context(|| format!("the Service {name} cannot be asked"))?;
    let number = port["port"].as_u64().and_then(|port| u16::try_from(port).ok()).context("its port has no number")?;
    let is_tls = port["appProtocol"] == "https" || port["name"] == "https" || number == 443;
    ensure!(
        !is_tls || args.port.is_some(),
        "port {number} of the Service {name} looks like TLS, and requests are sent without it; name another with --port"
    );
    let cluster_ip: IpAddr = word(&service["spec"], "clusterIP")
        .parse()
        .ok()
        .with_context(|| format!("the Service {name} has no address of its own; name one with --url"))?;
    let inside = SocketAddr::new(cluster_ip, number);
    let balancers = service["status"]["loadBalancer"]["ingress"].as_array().into_iter().flatten();
    let balancers = balancers.filter_map(|ingress| ingress["ip"].as_str()?.parse().ok());
    let mut outside: Vec<SocketAddr> = balancers.map(|address: IpAddr| SocketAddr::new(address, number)).collect();
    if let Some(node_port) =
        port["nodePort"].as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0)
    {
        outside.extend(nodes.iter().map(|node| SocketAddr::new(*node, node_port)));
    }
    // Elsewhere the same address may be somebody else's.
    if is_node {
        outside.insert(0, inside);
    }
    let namespace = word(&service["metadata"], "namespace");
    Ok(Goal {
        inside: Some(inside),
        outside,
        host: format!("{name}.{namespace}"),
        path: args.path.clone(),
        shown: format!("Service {name} ({inside})"),
    })
}

fn port<'a>(service: &'a Value, wanted: Option<&str>) -> Result<&'a Value> {
    let is_tcp = |port: &&Value| matches!(word(port, "protocol"), "" | "TCP");
    let ports: Vec<&Value> = service["spec"]["ports"].as_array().into_iter().flatten().filter(is_tcp).collect();
    let told = |port: &Value| match port["name"].as_str() {
        Some(name) => format!("{} ({name})", port["port"]),
        None => port["port"].to_string(),
    };
    let shown = || ports.iter().map(|port| told(port)).collect::<Vec<_>>().join(", ");
    if let Some(wanted) = wanted {
        let is_wanted = |port: &&&Value| port["name"] == wanted || port["port"].as_u64() == wanted.parse().ok();
        return ports
            .iter()
            .find(is_wanted)
            .copied()
            .with_context(|| format!("it has no port {wanted}, only {}", shown()));
    }
    let is_http = |port: &&&Value| port["name"] == "http" || port["port"] == 80;
    let best = ports.iter().find(is_http).or(ports.first());
    best.copied().context("it has no TCP port")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use clap::Parser;
    use serde_json::json;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: DrillArgs,
    }

    fn args(line: &str) -> DrillArgs {
        let words = ["drill", "deploy/web"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words).unwrap().args
    }

    fn web(name: &str, cluster_ip: &str, ports: Value) -> Value {
        json!({ "metadata": { "name": name, "namespace": "shop" }, "spec": {
            "clusterIP": cluster_ip, "selector": { "app": "web" }, "ports": ports,
        } })
    }

    #[test]
    fn service_is_the_only_one_with_an_address_that_selects_the_pods() {
        let labels = json!({ "app": "web", "tier": "front" });
        let (one, two) = (web("one", "10.0.0.1", json!([])), web("two", "10.0.0.2", json!([])));
        let headless = web("headless", "None", json!([]));
        let mut other = web("other", "10.0.0.3", json!([]));
        other["spec"]["selector"] = json!({ "app": "db" });
        let mut selectorless = web("empty", "10.0.0.4", json!([]));
        selectorless["spec"]["selector"] = json!({});
        let chosen = choose(vec![other.clone(), headless.clone(), one.clone(), selectorless], &labels).unwrap();
        assert_eq!(chosen["metadata"]["name"], "one");
        for (services, word) in [
            (vec![one, two], "several Services select its pods (one, two)"),
            (vec![headless], "headless"),
            (vec![other], "--no-load"),
        ] {
            let refused = choose(services, &labels).unwrap_err().to_string();
            assert!(refused.contains(word), "{refused}");
        }
    }

    #[test]
    fn port_is_the_named_one_else_http_else_the_first_and_tls_is_refused() {
        let ports = json!([
            { "name": "metrics", "port": 9090 }, { "name": "http", "port": 8080, "nodePort": 30080 },
            { "name": "dns", "port": 53, "protocol": "UDP" },
        ]);
        let service = web("web", "10.0.0.1", ports);
        let node: IpAddr = "192.0.2.1".parse().unwrap();
        let goal = |line: &str, is_node| of_service(&service, &args(line), &[node], is_node);
        let usual = goal("--path /health", false).unwrap();
        assert_eq!(usual.inside, Some("10.0.0.1:8080".parse().unwrap()));
        assert_eq!(usual.outside, ["192.0.2.1:30080".parse().unwrap()], "its address may be another's elsewhere");
        assert_eq!((usual.path.as_str(), usual.host.as_str()), ("/health", "web.shop"));
        assert_eq!(goal("", true).unwrap().outside[0], "10.0.0.1:8080".parse().unwrap());
        assert_eq!(goal("--port 9090", true).unwrap().inside.unwrap().port(), 9090);
        assert_eq!(goal("--port metrics", true).unwrap().inside.unwrap().port(), 9090);
        let refused = format!("{:#}", goal("--port dns", true).unwrap_err());
        assert!(refused.contains("it has no port dns, only 9090 (metrics), 8080 (http)"), "{refused}");
        let secure = web("web", "10.0.0.1", json!([{ "port": 443 }]));
        let refused = of_service(&secure, &args(""), &[], true).unwrap_err().to_string();
        assert!(refused.contains("TLS") && refused.contains("--port"), "{refused}");
    }

    #[tokio::test]
    async fn url_is_taken_apart_and_what_cannot_be_asked_is_refused() {
        let goal = of_url("http://127.0.0.1:8080/x?y=1").await.unwrap();
        assert_eq!(goal.outside, ["127.0.0.1:8080".parse().unwrap()]);
        assert_eq!((goal.host.as_str(), goal.path.as_str()), ("127.0.0.1:8080", "/x?y=1"));
        assert_eq!(of_url("http://[::1]").await.unwrap().outside, ["[::1]:80".parse().unwrap()]);
        for (url, word) in [("https://a", "TLS"), ("a:80", "http://HOST"), ("/x", "http://HOST"), ("http://", "--url")]
        {
            let refused = format!("{:#}", of_url(url).await.unwrap_err());
            assert!(refused.contains(word), "{url}: {refused}");
        }
    }

    #[test]
    fn workload_is_restarted_or_killed_as_its_kind_allows() {
        let of = |kind: &str, object: Value, line: &str| way(kind, &object, &args(line)).map_err(|why| why.to_string());
        assert_eq!(of("Deployment", json!({}), ""), Ok(Way::Restart));
        assert_eq!(of("Deployment", json!({}), "--kill"), Ok(Way::Kill));
        assert!(of("Deployment", json!({ "spec": { "paused": true } }), "").is_err_and(|why| why.contains("paused")));
        let by_hand = json!({ "spec": { "updateStrategy": { "type": "OnDelete" } } });
        assert!(of("DaemonSet", by_hand.clone(), "").is_err_and(|why| why.contains("--kill")));
        assert_eq!(of("DaemonSet", by_hand, "--kill"), Ok(Way::Kill));
        let owned = json!({ "metadata": { "ownerReferences": [{ "name": "web" }] } });
        assert_eq!(of("Pod", owned, ""), Ok(Way::Kill));
        assert!(of("Pod", json!({}), "").is_err_and(|why| why.contains("--yes")));
        assert_eq!(of("Pod", json!({}), "--yes"), Ok(Way::Kill));
        assert!(of("Service", json!({}), "").is_err());
    }
}
