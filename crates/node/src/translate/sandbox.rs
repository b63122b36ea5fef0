//! An API pod as the runtime's sandbox.

use k8s_openapi::api::core::v1::Pod;
use runtime::{PodUid, SandboxSpec};

/// The longest host name Linux takes.
const HOSTNAME_MAX: usize = 63;

/// What the runtime needs to make the pod's shared part.
pub fn sandbox_spec(pod: &Pod) -> SandboxSpec {
    let meta = &pod.metadata;
    let spec = pod.spec.as_ref();
    let name = meta.name.clone().unwrap_or_default();
    let hostname = spec.and_then(|s| s.hostname.clone()).unwrap_or_else(|| name.clone());
    SandboxSpec {
        uid: PodUid(meta.uid.clone().unwrap_or_default()),
        namespace: meta.namespace.clone().unwrap_or_default(),
        hostname: hostname.chars().take(HOSTNAME_MAX).collect::<String>().trim_end_matches(['-', '.']).to_owned(),
        name,
        host_network: spec.and_then(|s| s.host_network).unwrap_or(false),
        resolv_conf: spec.and_then(resolv_conf),
    }
}

/// `dnsPolicy: None` writes exactly what `dnsConfig` says; everything else uses the node's resolver until the
/// cluster has a DNS of its own.
fn resolv_conf(spec: &k8s_openapi::api::core::v1::PodSpec) -> Option<String> {
    if spec.dns_policy.as_deref() != Some("None") {
        return None;
    }
    let config = spec.dns_config.as_ref()?;
    let mut lines: Vec<String> =
        config.nameservers.iter().flatten().map(|server| format!("nameserver {server}\n")).collect();
    if let Some(searches) = config.searches.as_ref().filter(|s| !s.is_empty()) {
        lines.push(format!("search {}\n", searches.join(" ")));
    }
    let options: Vec<String> = config
        .options
        .iter()
        .flatten()
        .filter_map(|o| {
            let name = o.name.as_ref()?;
            Some(o.value.as_ref().map_or_else(|| name.clone(), |value| format!("{name}:{value}")))
        })
        .collect();
    if !options.is_empty() {
        lines.push(format!("options {}\n", options.join(" ")));
    }
    Some(lines.concat())
}
