//! An API container as the runtime runs it: environment resolved and expanded, mounts by host path.

use std::collections::BTreeMap;

use api::pod::{self, QosClass};

use super::{find_ephemeral, unmet};
use crate::volumes::Prepared;
use k8s_openapi::api::core::v1::{
    Container, EnvVarSource, Pod, PodSecurityContext, ResourceRequirements, SecurityContext,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use runtime_api::{ContainerId, ContainerSpec, Mount, Propagation, Resources, Seccomp};

/// Configuration objects the container refers to, already read.
#[derive(Clone, Default, Debug)]
pub struct Lookups {
    /// ConfigMaps by name; text values.
    pub config_maps: BTreeMap<String, BTreeMap<String, String>>,
    /// Secrets by name; text values.
    pub secrets: BTreeMap<String, BTreeMap<String, String>>,
    /// The variables that tell where services are.
    pub services: BTreeMap<String, String>,
}

/// What is known of the pod only at run time.
#[derive(Default, Debug, Clone)]
pub struct RunFacts {
    /// The pod's address.
    pub pod_ip: Option<String>,
    /// The node's address.
    pub host_ip: String,
    /// The node's name.
    pub node_name: String,
    /// How much memory the node has.
    pub memory_bytes: u64,
    /// How many thousandths of a processor the node has.
    pub cpu_millis: u64,
}

/// Why a container cannot be described to the runtime (`CreateContainerConfigError`).
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum ConfigError {
    /// A referenced object or key is missing.
    #[error("{0}")]
    Missing(String),
    /// Something the node cannot do yet; said aloud rather than ignored.
    #[error("{0} is not supported yet")]
    Unsupported(String),
    /// Something that cannot be had as it is asked for.
    #[error("{0}")]
    Refused(String),
}

/// Describes one run of a container.
pub fn container_spec(
    pod: &Pod,
    container: &Container,
    id: ContainerId,
    image_id: String,
    volumes: &BTreeMap<String, Prepared>,
    lookups: &Lookups,
    facts: &RunFacts,
) -> Result<ContainerSpec, ConfigError> {
    unmet::refuse(pod, container)?;
    let pod_security = pod.spec.as_ref().and_then(|s| s.security_context.as_ref());
    let security = container.security_context.as_ref();
    let env = environment(pod, container, lookups, facts)?;
    let known: BTreeMap<&str, &str> = env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let expanded = |words: &Option<Vec<String>>| words.iter().flatten().map(|w| expand(w, &known)).collect();
    Ok(ContainerSpec {
        id,
        image_id,
        command: expanded(&container.command),
        args: expanded(&container.args),
        working_dir: container.working_dir.clone(),
        tty: container.tty.unwrap_or(false),
        stdin: container.stdin.unwrap_or(false),
        stdin_once: container.stdin_once.unwrap_or(false),
        log: runtime_api::LogLimits::default(),
        mounts: mounts(container, volumes, &known)?,
        user: user(security, pod_security),
        group: group(security, pod_security),
        groups: groups(pod_security),
        strict_groups: pod_security.and_then(|p| p.supplemental_groups_policy.as_deref()) == Some("Strict"),
        read_only_root: security.and_then(|s| s.read_only_root_filesystem).unwrap_or(false),
        privileged: security.and_then(|s| s.privileged).unwrap_or(false),
        no_new_privileges: security.and_then(|s| s.allow_privilege_escalation) == Some(false),
        cap_add: security.and_then(|s| s.capabilities.as_ref()?.add.clone()).unwrap_or_default(),
        cap_drop: security.and_then(|s| s.capabilities.as_ref()?.drop.clone()).unwrap_or_default(),
        resources: resources(container.resources.as_ref()),
        termination_message_path: container.termination_message_path.clone(),
        oom_score_adj: Some(oom_score(pod, container, facts.memory_bytes)),
        unmasked_proc: security.and_then(|s| s.proc_mount.as_deref()) == Some("Unmasked"),
        must_not_be_root: security
            .and_then(|s| s.run_as_non_root)
            .or_else(|| pod_security.and_then(|p| p.run_as_non_root))
            .unwrap_or(false),
        seccomp: seccomp(security, pod_security)?,
        beside: find_ephemeral(pod, &container.name).and_then(|own| own.target_container_name.clone()),
        env,
    })
}

/// What a container finds in its environment. What it asks for by itself counts more than what it is told of services.
fn environment(
    pod: &Pod,
    container: &Container,
    lookups: &Lookups,
    facts: &RunFacts,
) -> Result<Vec<(String, String)>, ConfigError> {
    let mut env: Vec<(String, String)> = lookups.services.clone().into_iter().collect();
    let mut known = lookups.services.clone();
    let mut set = |name: String, value: String, known: &mut BTreeMap<String, String>| {
        known.insert(name.clone(), value.clone());
        env.retain(|(n, _)| *n != name);
        env.push((name, value));
    };
    for from in container.env_from.iter().flatten() {
        let prefix = from.prefix.clone().unwrap_or_default();
        let (what, name, optional, all) = if let Some(r) = &from.config_map_ref {
            ("configmap", &r.name, r.optional, &lookups.config_maps)
        } else if let Some(r) = &from.secret_ref {
            ("secret", &r.name, r.optional, &lookups.secrets)
        } else {
            continue;
        };
        match all.get(name) {
            Some(data) => {
                for (key, value) in data {
                    set(format!("{prefix}{key}"), value.clone(), &mut known);
                }
            }
            None if optional == Some(true) => {}
            None => return Err(ConfigError::Missing(format!("{what} {name:?} not found"))),
        }
    }
    for var in container.env.iter().flatten() {
        // A variable that is named like a service's does not mean that one by its own name.
        if lookups.services.get(&var.name).is_some_and(|told| known.get(&var.name) == Some(told)) {
            known.remove(&var.name);
        }
        let value = match &var.value_from {
            None => {
                let view = known.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
                Some(expand(var.value.as_deref().unwrap_or_default(), &view))
            }
            Some(source) => value_from(pod, container, source, lookups, facts)?,
        };
        if let Some(value) = value {
            set(var.name.clone(), value, &mut known);
        }
    }
    Ok(env)
}

/// `None` when an optional reference has no target.
fn value_from(
    pod: &Pod,
    container: &Container,
    source: &EnvVarSource,
    lookups: &Lookups,
    facts: &RunFacts,
) -> Result<Option<String>, ConfigError> {
    let keyed =
        |what: &str, all: &BTreeMap<String, BTreeMap<String, String>>, name: &str, key: &str, optional| match all
            .get(name)
            .map(|data| data.get(key))
        {
            Some(Some(value)) => Ok(Some(value.clone())),
            _ if optional == Some(true) => Ok(None),
            None => Err(ConfigError::Missing(format!("{what} {name:?} not found"))),
            Some(None) => Err(ConfigError::Missing(format!("couldn't find key {key} in {what} {name}"))),
        };
    if let Some(r) = &source.config_map_key_ref {
        return keyed("configmap", &lookups.config_maps, &r.name, &r.key, r.optional);
    }
    if let Some(r) = &source.secret_key_ref {
        return keyed("secret", &lookups.secrets, &r.name, &r.key, r.optional);
    }
    if let Some(r) = &source.field_ref {
        return field(pod, &r.field_path, facts).map(Some);
    }
    if let Some(r) = &source.resource_field_ref {
        return resource_field(container, &r.resource, r.divisor.as_ref(), facts).map(Some);
    }
    Err(ConfigError::Unsupported("this env valueFrom source".to_owned()))
}

/// The downward API's `fieldRef`.
pub fn field(pod: &Pod, path: &str, facts: &RunFacts) -> Result<String, ConfigError> {
    let meta = &pod.metadata;
    let spec = pod.spec.as_ref();
    let keyed = |map: Option<&BTreeMap<String, String>>, rest: &str| {
        let key = rest.trim_end_matches("']");
        map.and_then(|m| m.get(key)).cloned().unwrap_or_default()
    };
    if let Some(rest) = path.strip_prefix("metadata.labels['") {
        return Ok(keyed(meta.labels.as_ref(), rest));
    }
    if let Some(rest) = path.strip_prefix("metadata.annotations['") {
        return Ok(keyed(meta.annotations.as_ref(), rest));
    }
    Ok(match path {
        "metadata.name" => meta.name.clone().unwrap_or_default(),
        "metadata.namespace" => meta.namespace.clone().unwrap_or_default(),
        "metadata.uid" => meta.uid.clone().unwrap_or_default(),
        "spec.nodeName" => facts.node_name.clone(),
        "spec.serviceAccountName" => spec.and_then(|s| s.service_account_name.clone()).unwrap_or_default(),
        "status.hostIP" | "status.hostIPs" => facts.host_ip.clone(),
        "status.podIP" | "status.podIPs" => facts.pod_ip.clone().unwrap_or_else(|| facts.host_ip.clone()),
        other => return Err(ConfigError::Unsupported(format!("fieldRef {other:?}"))),
    })
}

/// In units of `divisor`, rounded up; whole units if there is none. Who has no limit may use all that the node has.
pub fn resource_field(
    container: &Container,
    resource: &str,
    divisor: Option<&Quantity>,
    facts: &RunFacts,
) -> Result<String, ConfigError> {
    let resources = container.resources.as_ref();
    let (map, name) = match resource.split_once('.') {
        Some(("limits", name)) => (resources.and_then(|r| r.limits.as_ref()), name),
        Some(("requests", name)) => (resources.and_then(|r| r.requests.as_ref()), name),
        _ => return Err(ConfigError::Unsupported(format!("resourceFieldRef {resource:?}"))),
    };
    let whole_node = match resource {
        "limits.cpu" => u128::from(facts.cpu_millis),
        "limits.memory" => u128::from(facts.memory_bytes) * 1000,
        _ => 0,
    };
    let asked = map.and_then(|m| m.get(name)).and_then(quantity_millis).filter(|millis| *millis > 0);
    let millis = asked.unwrap_or(whole_node);
    let unit = divisor.and_then(quantity_millis).filter(|unit| *unit > 0).unwrap_or(1000);
    Ok(millis.div_ceil(unit).to_string())
}

/// Replaces `$(NAME)` by the variable's value; `$$(NAME)` stays as `$(NAME)`; unknown names stay as written.
pub fn expand(text: &str, known: &BTreeMap<&str, &str>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("$$") {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix("$(").and_then(|r| r.split_once(')')) {
            match known.get(name) {
                Some(value) => out.push_str(value),
                None => out.push_str(&rest[..name.len() + 3]),
            }
            rest = after;
        } else {
            out.push('$');
            rest = &rest[1..];
        }
    }
    out.push_str(rest);
    out
}

/// What a subPath must not be is known only once its variables are; upstream's words.
fn check_sub_path(path: &str) -> Result<(), ConfigError> {
    if path.starts_with('/') {
        return Err(ConfigError::Refused(format!("error SubPath `{path}` must not be an absolute path")));
    }
    if path.split('/').any(|step| step == "..") {
        return Err(ConfigError::Refused(format!("unable to provision SubPath `{path}`: must not contain '..'")));
    }
    Ok(())
}

fn mounts(
    container: &Container,
    volumes: &BTreeMap<String, Prepared>,
    known: &BTreeMap<&str, &str>,
) -> Result<Vec<Mount>, ConfigError> {
    let mut mounts = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        let prepared = volumes
            .get(&mount.name)
            .ok_or_else(|| ConfigError::Missing(format!("volume {:?} is not mounted on the node", mount.name)))?;
        let sub_path = match (&mount.sub_path_expr, &mount.sub_path) {
            (Some(expression), _) => {
                let path = expand(expression, known);
                // Upstream refuses what it cannot expand, rather than mounting a directory named `$(NAME)`.
                if path.contains("$(") {
                    return Err(ConfigError::Missing(format!("subPathExpr {expression:?} names an unknown variable")));
                }
                Some(path)
            }
            (None, path) => path.clone(),
        };
        if let Some(path) = &sub_path {
            check_sub_path(path)?;
        }
        mounts.push(Mount {
            source: prepared.source.clone(),
            sub_path: sub_path.filter(|path| !path.is_empty()),
            target: mount.mount_path.clone(),
            read_only: prepared.read_only || mount.read_only.unwrap_or(false),
            propagation: match mount.mount_propagation.as_deref() {
                Some("HostToContainer") => Propagation::HostToContainer,
                Some("Bidirectional") => Propagation::Bidirectional,
                _ => Propagation::None,
            },
        });
    }
    Ok(mounts)
}

/// How readily the kernel kills the container: what is guaranteed last, what asked for nothing first, and in between
/// whoever asked for less of the node's memory first.
fn oom_score(pod: &Pod, container: &Container, memory_bytes: u64) -> i32 {
    const GUARANTEED: i32 = -997;
    const BEST_EFFORT: i32 = 1000;
    match pod::qos_class(pod) {
        QosClass::Guaranteed => GUARANTEED,
        QosClass::BestEffort => BEST_EFFORT,
        QosClass::Burstable => {
            let requests = container.resources.as_ref().and_then(|r| r.requests.as_ref());
            let asked = requests.and_then(|r| r.get("memory")).and_then(quantity_millis).unwrap_or(0) / 1000;
            let share = (1000 * asked).checked_div(u128::from(memory_bytes)).unwrap_or(0).min(1000);
            let score = 1000 - i32::try_from(share).unwrap_or(1000);
            // Never as safe as what is guaranteed, never as exposed as what asked for nothing.
            score.clamp(1000 + GUARANTEED, BEST_EFFORT - 1)
        }
    }
}

fn seccomp(security: Option<&SecurityContext>, pod: Option<&PodSecurityContext>) -> Result<Seccomp, ConfigError> {
    let profile = security
        .and_then(|s| s.seccomp_profile.as_ref())
        .or_else(|| pod.and_then(|p| p.seccomp_profile.as_ref()))
        .map(|profile| profile.type_.as_str());
    match profile {
        None | Some("RuntimeDefault") => Ok(Seccomp::Default),
        Some("Unconfined") => Ok(Seccomp::Unconfined),
        Some(other) => Err(ConfigError::Unsupported(format!("seccomp profile {other:?}"))),
    }
}

/// The user that a container is to run as, if it or its pod says so.
pub(crate) fn user(security: Option<&SecurityContext>, pod: Option<&PodSecurityContext>) -> Option<u32> {
    id(security.and_then(|s| s.run_as_user).or_else(|| pod.and_then(|p| p.run_as_user)))
}

fn group(security: Option<&SecurityContext>, pod: Option<&PodSecurityContext>) -> Option<u32> {
    id(security.and_then(|s| s.run_as_group).or_else(|| pod.and_then(|p| p.run_as_group)))
}

fn groups(pod: Option<&PodSecurityContext>) -> Vec<u32> {
    let Some(pod) = pod else { return Vec::new() };
    pod.supplemental_groups.iter().flatten().copied().chain(pod.fs_group).filter_map(|g| id(Some(g))).collect()
}

fn id(number: Option<i64>) -> Option<u32> {
    number.and_then(|n| u32::try_from(n).ok())
}

/// What a container is given of cpu and memory.
pub(super) fn resources(map: Option<&ResourceRequirements>) -> Resources {
    // Nothing is no limit, and no request.
    let some = |number: i64| u64::try_from(number).ok().filter(|number| *number > 0);
    let amount = |which: Option<&BTreeMap<String, Quantity>>, name: &str| read(which?.get(name)?);
    let limits = map.and_then(|r| r.limits.as_ref());
    let requests = map.and_then(|r| r.requests.as_ref());
    Resources {
        memory_bytes: amount(limits, "memory").and_then(|bytes| some(bytes.ceil())),
        cpu_limit_millis: amount(limits, "cpu").and_then(|cpus| some(cpus.milli_ceil())),
        cpu_request_millis: amount(requests, "cpu").and_then(|cpus| some(cpus.milli_ceil())),
        memory_request_bytes: amount(requests, "memory").and_then(|bytes| some(bytes.ceil())),
        pids: None,
    }
}

/// In any of the spellings that the API takes.
fn read(quantity: &Quantity) -> Option<api::quantity::Quantity> {
    quantity.0.parse().ok()
}

/// A quantity in thousandths: `1500m` is 1500, `2Ki` is 2048000.
pub fn quantity_millis(quantity: &Quantity) -> Option<u128> {
    u128::try_from(read(quantity)?.milli_ceil()).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn dollar_parentheses_are_expanded_and_doubled_dollars_are_not() {
        let known = BTreeMap::from([("A", "1"), ("B", "two")]);
        assert_eq!(expand("$(A)-$(B)$", &known), "1-two$");
        assert_eq!(expand("$$(A) $(NOPE) $A", &known), "$(A) $(NOPE) $A");
        assert_eq!(expand("$(A", &known), "$(A");
    }

    #[test]
    fn oom_score_follows_the_qos_class() {
        let score = |class: &str, memory: &str| {
            let requests = BTreeMap::from([("memory".to_owned(), Quantity(memory.to_owned()))]);
            let resources =
                k8s_openapi::api::core::v1::ResourceRequirements { requests: Some(requests), ..Default::default() };
            let status =
                k8s_openapi::api::core::v1::PodStatus { qos_class: Some(class.to_owned()), ..Default::default() };
            let pod = Pod { status: Some(status), ..Pod::default() };
            let container = Container { resources: Some(resources), ..Container::default() };
            oom_score(&pod, &container, 4 << 30)
        };
        assert_eq!(score("Guaranteed", "1Gi"), -997);
        assert_eq!(score("BestEffort", "0"), 1000);
        assert_eq!(score("Burstable", "1Gi"), 750);
        assert_eq!((score("Burstable", "1Ki"), score("Burstable", "64Gi")), (999, 3));
    }

    #[test]
    fn quantities_are_read_in_thousandths() {
        let read = |text: &str| quantity_millis(&Quantity(text.to_owned()));
        assert_eq!(read("250m"), Some(250));
        assert_eq!(read("1.5"), Some(1500));
        assert_eq!(read("2Ki"), Some(2_048_000));
        assert_eq!(read("nonsense"), None);
    }

    /// However a limit is written it is one, and a limit of nothing is none.
    #[test]
    fn limits_are_read_in_every_spelling() {
        let given = |memory: &str, cpu: &str| {
            let amounts = [("memory", memory), ("cpu", cpu)];
            let limits = amounts.map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned()))).into();
            let read = resources(Some(&ResourceRequirements { limits: Some(limits), ..Default::default() }));
            (read.memory_bytes, read.cpu_limit_millis)
        };
        assert_eq!(given("129e6", "100000u"), (Some(129_000_000), Some(100)));
        assert_eq!(given("1P", "5e-1"), (Some(1_000_000_000_000_000), Some(500)));
        assert_eq!(given("1Pi", "1n"), (Some(1 << 50), Some(1)));
        assert_eq!(given("0", "0"), (None, None));
    }
}
