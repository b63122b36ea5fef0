//! The `/etc/resolv.conf` of a pod, as its `dnsPolicy` and `dnsConfig` say.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;

use k8s_openapi::api::core::v1::{Pod, PodDNSConfig};

/// The domain of all names in the cluster.
pub const CLUSTER_DOMAIN: &str = "cluster.local";

/// C libraries look at no more.
const NAMESERVERS_MAX: usize = 3;
const SEARCHES_MAX: usize = 32;
const SEARCH_CHARACTERS_MAX: usize = 2048;
/// So that names of services are tried below the search list first.
const NDOTS: &str = "ndots:5";
/// Where systemd-resolved names the servers behind its own stub.
const UPLINKS: &str = "/run/systemd/resolve/resolv.conf";

/// What a pod's file is made of, besides the pod.
#[derive(Clone, Copy, Debug)]
pub struct DnsFacts<'a> {
    /// Where pods find the cluster DNS; nowhere if there is none.
    pub cluster_dns: &'a [IpAddr],
    /// The machine's own file.
    pub host: &'a Path,
}

/// A pod's file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResolvConf {
    /// Its lines.
    pub text: String,
    /// What a person should know of it: reason and message.
    pub warnings: Vec<(&'static str, String)>,
}

/// The file of a pod.
pub fn of_pod(pod: &Pod, facts: DnsFacts<'_>) -> ResolvConf {
    let host = || {
        let text = std::fs::read_to_string(facts.host).unwrap_or_default();
        Resolver::of_host(&text, || std::fs::read_to_string(UPLINKS).ok())
    };
    made(pod, facts.cluster_dns, host)
}

fn made(pod: &Pod, cluster_dns: &[IpAddr], host: impl FnOnce() -> Resolver) -> ResolvConf {
    let Some(spec) = &pod.spec else { return Resolver::default().limited(Vec::new()) };
    let mut warnings = Vec::new();
    let is_on_host = spec.host_network.unwrap_or(false);
    let policy = spec.dns_policy.as_deref().unwrap_or("ClusterFirst");
    let resolver = match policy {
        "None" => Resolver::default(),
        "ClusterFirstWithHostNet" | "ClusterFirst" if policy != "ClusterFirst" || !is_on_host => {
            if cluster_dns.is_empty() {
                let (namespace, name) = (pod.metadata.namespace.as_deref(), pod.metadata.name.as_deref());
                warnings.push((
                    "MissingClusterDNS",
                    format!(
                        "pod: \"{}/{}\". the node does not have a cluster DNS and cannot create Pod using {policy:?} policy. \
                         Falling back to \"Default\" policy.",
                        namespace.unwrap_or_default(),
                        name.unwrap_or_default()
                    ),
                ));
                host()
            } else {
                host().of_cluster(cluster_dns, pod.metadata.namespace.as_deref().unwrap_or_default())
            }
        }
        _ => host(),
    };
    resolver.with(spec.dns_config.as_ref()).limited(warnings)
}

/// The lines of a `resolv.conf` that pods care for.
#[derive(Clone, Default, Debug)]
struct Resolver {
    nameservers: Vec<String>,
    searches: Vec<String>,
    options: Vec<String>,
}

impl Resolver {
    fn read(text: &str) -> Self {
        let mut resolver = Self::default();
        for line in text.lines() {
            let mut words = line.split_whitespace().map(str::to_owned);
            match words.next().as_deref() {
                Some("nameserver") => resolver.nameservers.extend(words.next()),
                // The last such line counts.
                Some("search" | "domain") => {
                    let stripped = words.map(|word| word.strip_suffix('.').map(str::to_owned).unwrap_or(word));
                    resolver.searches = stripped.filter(|word| !word.is_empty()).collect();
                }
                Some("options") => resolver.options = words.collect(),
                _ => {}
            }
        }
        resolver
    }

    /// The machine's own. A stub on its loopback is not to be reached from a pod: the servers behind it are, if they are known.
    fn of_host(text: &str, uplinks: impl FnOnce() -> Option<String>) -> Self {
        let host = Self::read(text);
        let is_stub = |server: &String| server.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        if host.nameservers.is_empty() || !host.nameservers.iter().all(is_stub) {
            return host;
        }
        let behind = uplinks().map(|text| Self::read(&text)).filter(|behind| !behind.nameservers.is_empty());
        behind.map(|behind| Self { nameservers: behind.nameservers, ..host.clone() }).unwrap_or(host)
    }

    /// The cluster's in its place: names of services first, those of the machine after them.
    fn of_cluster(self, servers: &[IpAddr], namespace: &str) -> Self {
        let own =
            [format!("{namespace}.svc.{CLUSTER_DOMAIN}"), format!("svc.{CLUSTER_DOMAIN}"), CLUSTER_DOMAIN.to_owned()];
        let mut searches = Vec::from(own);
        add(&mut searches, &self.searches);
        Self {
            nameservers: servers.iter().map(ToString::to_string).collect(),
            searches,
            options: vec![NDOTS.to_owned()],
        }
    }

    fn with(mut self, config: Option<&PodDNSConfig>) -> Self {
        let Some(config) = config else { return self };
        add(&mut self.nameservers, config.nameservers.iter().flatten());
        add(&mut self.searches, config.searches.iter().flatten());
        for option in config.options.iter().flatten() {
            let Some(name) = &option.name else { continue };
            // An option of the pod replaces the node's of that name.
            self.options.retain(|known| known.split(':').next() != Some(name));
            self.options.push(option.value.as_ref().map_or_else(|| name.clone(), |value| format!("{name}:{value}")));
        }
        self
    }

    /// No more than C libraries take.
    fn limited(mut self, mut warnings: Vec<(&'static str, String)>) -> ResolvConf {
        if self.nameservers.len() > NAMESERVERS_MAX {
            self.nameservers.truncate(NAMESERVERS_MAX);
            let applied = self.nameservers.join(" ");
            warnings.push((
                "DNSConfigForming",
                format!(
                    "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: {applied}"
                ),
            ));
        }
        let asked = self.searches.len();
        self.searches.truncate(SEARCHES_MAX);
        while self.searches.join(" ").len() > SEARCH_CHARACTERS_MAX {
            self.searches.pop();
        }
        if self.searches.len() < asked {
            let applied = self.searches.join(" ");
            warnings.push((
                "DNSConfigForming",
                format!(
                    "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {applied}"
                ),
            ));
        }
        ResolvConf { text: self.text(), warnings }
    }

    fn text(&self) -> String {
        let mut lines: String = self.nameservers.iter().map(|server| format!("nameserver {server}\n")).collect();
        for (word, values) in [("search", &self.searches), ("options", &self.options)] {
            if !values.is_empty() {
                lines.push_str(&format!("{word} {}\n", values.join(" ")));
            }
        }
        lines
    }
}

/// Adds those that are not there yet.
fn add<'a>(to: &mut Vec<String>, new: impl IntoIterator<Item = &'a String>) {
    let mut known: BTreeSet<String> = to.iter().cloned().collect();
    for word in new.into_iter().filter(|word| !word.is_empty()) {
        if known.insert(word.clone()) {
            to.push(word.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const HOST: &str = "# comment\nnameserver 10.0.0.1\nsearch old\nsearch host.example. .\noptions ndots:2 rotate\n";

    fn pod(spec: Value) -> Pod {
        let metadata = json!({ "name": "web", "namespace": "shop" });
        let mut pod = json!({ "metadata": metadata, "spec": { "containers": [] } });
        pod["spec"].as_object_mut().expect("a map").extend(spec.as_object().expect("a map").clone());
        serde_json::from_value(pod).expect("a pod")
    }

    fn of(spec: Value, cluster_dns: &[IpAddr]) -> (String, Vec<&'static str>) {
        let made = made(&pod(spec), cluster_dns, || Resolver::of_host(HOST, || None));
        (made.text, made.warnings.iter().map(|(reason, _)| *reason).collect())
    }

    /// [DN-16] Every row of the table of upstream's policies.
    #[test]
    fn resolv_conf_is_what_the_dns_policy_says() {
        let dns: [IpAddr; 1] = [[10, 87, 0, 10].into()];
        let cluster = "nameserver 10.87.0.10\nsearch shop.svc.cluster.local svc.cluster.local cluster.local host.example\n\
                       options ndots:5\n";
        let host = "nameserver 10.0.0.1\nsearch host.example\noptions ndots:2 rotate\n";
        for (spec, expected) in [
            (json!({}), cluster),
            (json!({ "dnsPolicy": "ClusterFirst" }), cluster),
            (json!({ "dnsPolicy": "ClusterFirst", "hostNetwork": true }), host),
            (json!({ "dnsPolicy": "ClusterFirstWithHostNet" }), cluster),
            (json!({ "dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": true }), cluster),
            (json!({ "dnsPolicy": "Default" }), host),
            (json!({ "dnsPolicy": "Default", "hostNetwork": true }), host),
            (json!({ "dnsPolicy": "None", "dnsConfig": { "nameservers": ["192.0.2.1"] } }), "nameserver 192.0.2.1\n"),
        ] {
            assert_eq!(of(spec.clone(), &dns), (expected.to_owned(), vec![]), "{spec}");
        }
    }

    #[test]
    fn resolv_conf_is_the_machines_when_there_is_no_cluster_dns() {
        let (text, warnings) = of(json!({ "dnsPolicy": "ClusterFirst" }), &[]);
        assert_eq!(text, "nameserver 10.0.0.1\nsearch host.example\noptions ndots:2 rotate\n");
        assert_eq!(warnings, ["MissingClusterDNS"]);
        assert_eq!(of(json!({ "dnsPolicy": "ClusterFirst", "hostNetwork": true }), &[]).1, [""; 0]);
    }

    #[test]
    fn dns_config_of_a_pod_adds_to_its_policy() {
        let config = json!({
            "nameservers": ["1.1.1.1", "10.0.0.1", "2.2.2.2", "3.3.3.3"],
            "searches": ["pod.example", "host.example"],
            "options": [{ "name": "ndots", "value": "3" }, { "name": "edns0" }],
        });
        let (text, warnings) = of(json!({ "dnsPolicy": "Default", "dnsConfig": config }), &[]);
        assert_eq!(
            text,
            "nameserver 10.0.0.1\nnameserver 1.1.1.1\nnameserver 2.2.2.2\nsearch host.example pod.example\n\
             options rotate ndots:3 edns0\n"
        );
        assert_eq!(warnings, ["DNSConfigForming"]);
        let (text, _) =
            of(json!({ "dnsConfig": { "options": [{ "name": "ndots", "value": "1" }] } }), &[[10, 87, 0, 10].into()]);
        assert!(text.ends_with("options ndots:1\n"), "{text}");
    }

    /// [DN-17]
    #[test]
    fn searches_beyond_the_limits_are_left_out_with_a_warning() {
        let many: Vec<String> = (0..40).map(|n| format!("s{n}.example")).collect();
        let (text, warnings) = of(json!({ "dnsConfig": { "searches": many } }), &[[10, 87, 0, 10].into()]);
        let searches = text.lines().find_map(|line| line.strip_prefix("search ")).expect("a line");
        assert_eq!((searches.split(' ').count(), warnings), (32, vec!["DNSConfigForming"]));
        let long: Vec<String> = (0..20).map(|n| format!("{n}{}", "x".repeat(200))).collect();
        let (text, warnings) = of(json!({ "dnsConfig": { "searches": long } }), &[[10, 87, 0, 10].into()]);
        let searches = text.lines().find_map(|line| line.strip_prefix("search ")).expect("a line");
        assert!(searches.len() <= 2048 && searches.len() > 1800 && warnings == ["DNSConfigForming"], "{searches}");
    }

    /// [DN-19]
    #[test]
    fn pod_gets_the_servers_behind_a_stub_on_the_machines_loopback() {
        let stub = "nameserver 127.0.0.53\noptions edns0 trust-ad\nsearch lan\n";
        let uplinks = || Some("nameserver 192.0.2.53\nnameserver 192.0.2.54\n".to_owned());
        let text = |text: &str, uplinks: Option<String>| Resolver::of_host(text, || uplinks).text();
        let behind = "nameserver 192.0.2.53\nnameserver 192.0.2.54\nsearch lan\noptions edns0 trust-ad\n";
        assert_eq!(text(stub, uplinks()), behind);
        assert!(text(stub, None).starts_with("nameserver 127.0.0.53\n"), "it is all there is");
        assert!(text(HOST, uplinks()).starts_with("nameserver 10.0.0.1\n"));
    }
}
