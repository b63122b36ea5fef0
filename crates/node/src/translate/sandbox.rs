//! An API pod as the runtime's sandbox.

use std::net::{IpAddr, Ipv4Addr};

use api::pod::{self, HostIp, QosClass, ResourceOptions};
use api::quantity::Quantity;
use k8s_openapi::api::core::v1::{Pod, PodSpec, ResourceRequirements};
use runtime_api::{HostPort, PodUid, Protocol, Resources, SandboxSpec};

use super::resolv_conf::CLUSTER_DOMAIN;

/// The longest part of a name that is made of parts.
const HOSTNAME_MAX: usize = 63;
/// The longest host name Linux takes.
const FQDN_MAX: usize = 64;

/// What the runtime needs to make the pod's shared part.
pub fn sandbox_spec(pod: &Pod) -> SandboxSpec {
    let meta = &pod.metadata;
    let spec = pod.spec.as_ref();
    let name = meta.name.clone().unwrap_or_default();
    let (hostname, fqdn) = host_names(pod);
    let flag = |read: fn(&PodSpec) -> Option<bool>| spec.and_then(read).unwrap_or(false);
    SandboxSpec {
        uid: PodUid(meta.uid.clone().unwrap_or_default()),
        name,
        namespace: meta.namespace.clone().unwrap_or_default(),
        hostname,
        fqdn,
        host_network: flag(|s| s.host_network),
        host_pid: flag(|s| s.host_pid),
        host_ipc: flag(|s| s.host_ipc),
        share_pids: flag(|s| s.share_process_namespace),
        sysctls: spec.map(sysctls).unwrap_or_default(),
        host_aliases: spec.map(host_aliases).unwrap_or_default(),
        memory_volumes: crate::volumes::in_memory(pod),
        host_ports: asked_ports(pod).filter_map(|port| published(port).ok()).collect(),
        // The node's to say.
        resolv_conf: None,
        pids_max: None,
        resources: pod_resources(pod),
        best_effort: spec.is_some() && pod::qos_class(pod) == QosClass::BestEffort,
    }
}

/// What all containers of the pod are given together: what they ask for, and a limit of what every one of them limits.
pub fn pod_resources(pod: &Pod) -> Resources {
    let Some(spec) = &pod.spec else { return Resources::default() };
    let (requests, limits) = (pod::requests(pod, ResourceOptions::SPEC), pod::limits(pod, ResourceOptions::SPEC));
    let all_limit = |name: &str| {
        let is_limited = |of: Option<&ResourceRequirements>| {
            let limit = of.and_then(|of| of.limits.as_ref()?.get(name)?.0.parse::<Quantity>().ok());
            limit.is_some_and(|limit| !limit.is_zero())
        };
        let mut containers = spec.init_containers.iter().flatten().chain(&spec.containers);
        is_limited(spec.resources.as_ref()) || containers.all(|own| is_limited(own.resources.as_ref()))
    };
    let whole = |amount: i64| u64::try_from(amount).ok().filter(|amount| *amount > 0);
    Resources {
        memory_bytes: limits.get("memory").filter(|_| all_limit("memory")).and_then(|limit| whole(limit.ceil())),
        cpu_limit_millis: limits.get("cpu").filter(|_| all_limit("cpu")).and_then(|limit| whole(limit.milli_ceil())),
        cpu_request_millis: requests.get("cpu").and_then(|request| whole(request.milli_ceil())),
        ..Resources::default()
    }
}

/// What the pod calls itself, and its full name if it has one. On the host's network it is called like the host.
fn host_names(pod: &Pod) -> (String, Option<String>) {
    let spec = pod.spec.as_ref();
    if spec.and_then(|s| s.host_network).unwrap_or(false) {
        return (rustix::system::uname().nodename().to_string_lossy().into_owned(), None);
    }
    if let Some(only) = spec.and_then(|s| s.hostname_override.clone()) {
        return (only, None);
    }
    let hostname = spec.and_then(|s| s.hostname.clone()).or_else(|| pod.metadata.name.clone()).unwrap_or_default();
    let hostname = hostname.chars().take(HOSTNAME_MAX).collect::<String>().trim_end_matches(['-', '.']).to_owned();
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let subdomain = spec.and_then(|s| s.subdomain.as_ref()).filter(|subdomain| !subdomain.is_empty());
    let fqdn = subdomain.map(|subdomain| format!("{hostname}.{subdomain}.{namespace}.svc.{CLUSTER_DOMAIN}"));
    let called_fully = spec.and_then(|s| s.set_hostname_as_fqdn).unwrap_or(false);
    let full = fqdn.clone().filter(|fqdn| called_fully && fqdn.len() <= FQDN_MAX);
    (full.unwrap_or(hostname), fqdn)
}

/// The full name the pod asks to be called by, if it is longer than any host name.
pub fn too_long_name(pod: &Pod) -> Option<String> {
    let asked = pod.spec.as_ref().and_then(|s| s.set_hostname_as_fqdn).unwrap_or(false);
    host_names(pod).1.filter(|fqdn| asked && fqdn.len() > FQDN_MAX)
}

/// What the pod asks of the node's ports and does not get, in words.
pub fn ports_not_mapped(pod: &Pod) -> Vec<String> {
    asked_ports(pod).filter_map(|port| published(port).err()).collect()
}

/// The ports of all containers that run side by side. On the host's network they are the node's already.
fn asked_ports(pod: &Pod) -> impl Iterator<Item = pod::HostPort> {
    let own_network = !pod.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or(false);
    pod::host_ports(pod).filter(move |_| own_network)
}

fn published(asked: pod::HostPort) -> Result<HostPort, String> {
    let pod::HostPort { port: host_port, ip, protocol, container_port } = asked;
    let protocol = match protocol {
        pod::Protocol::Tcp => Protocol::Tcp,
        pod::Protocol::Udp => Protocol::Udp,
        pod::Protocol::Sctp => Protocol::Sctp,
    };
    let host_ip = match ip {
        HostIp::All => Ipv4Addr::UNSPECIFIED.into(),
        HostIp::At(address @ IpAddr::V4(_)) => address,
        HostIp::At(address @ IpAddr::V6(_)) => {
            return Err(format!("hostPort {host_port} at {address} is not applied: only IPv4 addresses can be"));
        }
        HostIp::Invalid => return Err(format!("hostPort {host_port} is not applied: its hostIP is no address")),
    };
    Ok(HostPort { protocol, host_ip, host_port, container_port })
}

fn sysctls(spec: &PodSpec) -> Vec<(String, String)> {
    let asked = spec.security_context.iter().flat_map(|security| security.sysctls.iter().flatten());
    asked.map(|sysctl| (sysctl.name.clone(), sysctl.value.clone())).collect()
}

fn host_aliases(spec: &PodSpec) -> Vec<(String, Vec<String>)> {
    let asked = spec.host_aliases.iter().flatten();
    asked.map(|alias| (alias.ip.clone(), alias.hostnames.clone().unwrap_or_default())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_ports_are_those_of_all_that_run_side_by_side() {
        let container = |name: &str, ports: serde_json::Value| serde_json::json!({ "name": name, "ports": ports });
        let mut sidecar =
            container("sidecar", serde_json::json!([{ "containerPort": 53, "hostPort": 5353, "protocol": "UDP" }]));
        sidecar["restartPolicy"] = "Always".into();
        let init = container("init", serde_json::json!([{ "containerPort": 1, "hostPort": 1 }]));
        let app = container(
            "app",
            serde_json::json!([
                { "containerPort": 80, "hostPort": 8080, "hostIP": "192.0.2.1" },
                { "containerPort": 81 },
                { "containerPort": 82, "hostPort": 8082, "hostIP": "2001:db8::1" },
            ]),
        );
        let mut pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": { "name": "web", "uid": "1" },
            "spec": { "containers": [app], "initContainers": [init, sidecar] },
        }))
        .expect("a pod");
        let ports: Vec<String> = sandbox_spec(&pod).host_ports.iter().map(ToString::to_string).collect();
        assert_eq!(ports, ["192.0.2.1:8080/TCP", "0.0.0.0:5353/UDP"]);
        assert_eq!(ports_not_mapped(&pod), ["hostPort 8082 at 2001:db8::1 is not applied: only IPv4 addresses can be"]);
        pod.spec.as_mut().expect("a spec").host_network = Some(true);
        assert!(sandbox_spec(&pod).host_ports.is_empty() && ports_not_mapped(&pod).is_empty());
    }

    /// Where the scheduler sees room for two pods their node has it, too.
    #[test]
    fn host_ports_that_do_not_collide_are_published_together() {
        let pod = |ip: &str| -> Pod {
            let port = serde_json::json!({ "containerPort": 80, "hostPort": 8080, "hostIP": ip });
            let spec = serde_json::json!({ "containers": [{ "name": "app", "ports": [port] }] });
            serde_json::from_value(serde_json::json!({ "metadata": {}, "spec": spec })).expect("a pod")
        };
        let first = |pod: &Pod| asked_ports(pod).next().expect("a port");
        let addresses = ["", "0.0.0.0", "::", "192.0.2.1", "192.0.2.2", "::ffff:192.0.2.1", "2001:db8::1", "nowhere"];
        for (one, other) in addresses.iter().flat_map(|one| addresses.iter().map(move |other| (one, other))) {
            let (one, other) = (first(&pod(one)), first(&pod(other)));
            let refused =
                published(one).ok().zip(published(other).ok()).is_some_and(|(one, other)| one.collides(&other));
            assert!(one.collides(&other) || !refused, "{one:?} {other:?}");
        }
    }

    /// The shares of upstream's rules: sidecars count with the containers, an init container if it is more; what the pod says as a
    /// whole comes first; a limit is one of the pod if everybody has it.
    #[test]
    fn a_pod_is_given_what_its_containers_are_together() {
        let own = |request: &str, limit: Option<&str>| {
            let mut resources = serde_json::json!({ "requests": { "cpu": request } });
            if let Some(limit) = limit {
                resources["limits"] = serde_json::json!({ "cpu": limit, "memory": "64Mi" });
            }
            serde_json::json!({ "name": "x", "resources": resources })
        };
        let given = |spec: serde_json::Value| {
            let pod = serde_json::from_value(serde_json::json!({ "metadata": {}, "spec": spec })).expect("a pod");
            let spec = sandbox_spec(&pod);
            let Resources { cpu_request_millis, cpu_limit_millis, memory_bytes, .. } = spec.resources;
            (cpu_request_millis, cpu_limit_millis, memory_bytes.map(|bytes| bytes >> 20), spec.best_effort)
        };
        let mut sidecar = own("100m", Some("200m"));
        sidecar["restartPolicy"] = "Always".into();
        let (app, init) = (own("200m", Some("1")), own("900m", Some("900m")));
        let all = serde_json::json!({ "initContainers": [sidecar, init], "containers": [app, app] });
        assert_eq!(given(all.clone()), (Some(1000), Some(2200), Some(192), false));
        let mut one_without = all.clone();
        one_without["containers"][1] = own("1m", None);
        assert_eq!(given(one_without.clone()), (Some(1000), None, None, false));
        one_without["resources"] = serde_json::json!({ "requests": { "cpu": "3" }, "limits": { "cpu": "4" } });
        assert_eq!(given(one_without), (Some(3000), Some(4000), None, false), "the pod says so itself");
        let nothing = serde_json::json!({ "containers": [own("0", None), { "name": "y" }] });
        assert_eq!(given(nothing), (None, None, None, true));
        let memory = serde_json::json!({ "name": "x", "resources": { "limits": { "memory": "1Gi" } } });
        assert_eq!(given(serde_json::json!({ "containers": [memory] })), (None, None, Some(1024), false));
    }

    #[test]
    fn a_pod_is_called_as_it_asks_to_be_or_like_the_node_whose_network_it_is_on() {
        let names = |spec: serde_json::Value| {
            let metadata = serde_json::json!({ "name": "web-1", "namespace": "shop", "uid": "1" });
            let pod = serde_json::from_value(serde_json::json!({ "metadata": metadata, "spec": spec })).expect("a pod");
            (sandbox_spec(&pod).hostname, sandbox_spec(&pod).fqdn, too_long_name(&pod))
        };
        let spec = |more: serde_json::Value| {
            let mut spec = serde_json::json!({ "containers": [], "subdomain": "web" });
            spec.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
            spec
        };
        let full = "web-1.web.shop.svc.cluster.local".to_owned();
        assert_eq!(names(spec(serde_json::json!({}))), ("web-1".to_owned(), Some(full.clone()), None));
        let called_fully = names(spec(serde_json::json!({ "setHostnameAsFQDN": true })));
        assert_eq!(called_fully, (full.clone(), Some(full), None));
        let long = format!("{}.web.shop.svc.cluster.local", "x".repeat(40));
        let asked = spec(serde_json::json!({ "setHostnameAsFQDN": true, "hostname": "x".repeat(40) }));
        assert_eq!(names(asked), ("x".repeat(40), Some(long.clone()), Some(long)));
        let only = names(spec(serde_json::json!({ "hostnameOverride": "only.example" })));
        assert_eq!(only, ("only.example".to_owned(), None, None));
        let node = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name").trim().to_owned();
        let on_host = names(spec(serde_json::json!({ "hostNetwork": true, "setHostnameAsFQDN": true })));
        assert_eq!(on_host, (node, None, None));
    }
}
