//! What a manifest can ask for and this node does not do. None of it is passed over in silence: it is told by an event
//! (`SettingNotApplied`), or refused where a container without it would not be what was asked for.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::{Container, Pod};
use runtime_api::is_capability;

use super::container::ConfigError;
use super::sandbox::too_long_name;

/// Where a container's AppArmor profile was written before there was a field for it.
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

const EPHEMERAL: &str = "ephemeral-storage";
const WINDOWS: &str = "windowsOptions are not applied: this node runs Linux";

/// Files of `/proc` that containers may cover: what they tell of the machine is not for every container.
const PROC_FILES: [&str; 9] = [
    "/proc/cpuinfo",
    "/proc/diskstats",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/net/dev",
    "/proc/slabinfo",
    "/proc/stat",
    "/proc/swaps",
    "/proc/uptime",
];

/// What the pod as a whole does not get, in words.
pub fn of_pod(pod: &Pod) -> Vec<String> {
    let Some(spec) = pod.spec.as_ref() else { return Vec::new() };
    let mut told = Vec::new();
    for (name, most) in spec.resources.iter().filter_map(|r| r.limits.as_ref()).flatten() {
        if ![EPHEMERAL, "cpu", "memory"].contains(&name.as_str()) {
            told.push(format!("limit {name}={} of the whole pod is not enforced", most.0));
        }
    }
    for constraint in spec.topology_spread_constraints.iter().flatten() {
        told.push(format!("topologySpreadConstraint {:?} is not applied", constraint.topology_key));
    }
    if spec.scheduling_group.is_some() {
        told.push("schedulingGroup is not applied: pods are scheduled one by one".to_owned());
    }
    if spec.security_context.as_ref().is_some_and(|s| s.windows_options.is_some()) {
        told.push(WINDOWS.to_owned());
    }
    told
}

/// What the container does not get and runs without, in words.
pub fn of_container(pod: &Pod, container: &Container) -> Vec<String> {
    let pod_security = pod.spec.as_ref().and_then(|s| s.security_context.as_ref());
    let security = container.security_context.as_ref();
    let mut told = Vec::new();
    if app_armor(pod, container).is_some_and(|profile| profile == AppArmor::RuntimeDefault) {
        told.push("appArmorProfile RuntimeDefault is not applied: there is no default profile".to_owned());
    }
    let labels = security.and_then(|s| s.se_linux_options.as_ref());
    if labels.or_else(|| pod_security.and_then(|p| p.se_linux_options.as_ref())).is_some() {
        told.push("seLinuxOptions are not applied: containers get no SELinux label".to_owned());
    }
    for (name, most) in container.resources.iter().filter_map(|r| r.limits.as_ref()).flatten() {
        if name != "cpu" && name != "memory" && name != EPHEMERAL {
            told.push(format!("limit {name}={} is not enforced", most.0));
        }
    }
    if security.is_some_and(|s| s.windows_options.is_some()) {
        told.push(WINDOWS.to_owned());
    }
    told
}

/// Refuses what a container cannot do without.
pub fn refuse(pod: &Pod, container: &Container) -> Result<(), ConfigError> {
    let refused = |words: String| Err(ConfigError::Refused(words));
    if pod.spec.as_ref().and_then(|s| s.host_users) == Some(false) {
        return Err(ConfigError::Unsupported("a user namespace (hostUsers: false)".to_owned()));
    }
    if let Some(class) = pod.spec.as_ref().and_then(|s| s.runtime_class_name.as_ref()).filter(|name| !name.is_empty()) {
        return Err(ConfigError::Unsupported(format!("a runtime of its own (runtimeClassName {class:?})")));
    }
    if let Some(os) = pod.spec.as_ref().and_then(|s| s.os.as_ref()).filter(|os| os.name != "linux") {
        return refused(format!("the pod is for {}, this node is not", os.name));
    }
    if let Some(claim) = pod.spec.iter().flat_map(|s| s.resource_claims.iter().flatten()).next() {
        return Err(ConfigError::Unsupported(format!("the resource claim {:?}", claim.name)));
    }
    if let Some(name) = too_long_name(pod) {
        let most = "64 characters is the max";
        return refused(format!("FQDN {name} is too long to be a host name ({most}, {} requested)", name.len()));
    }
    if let Some(AppArmor::Localhost(profile)) = app_armor(pod, container) {
        return refused(format!("AppArmor profile {profile:?} is not loaded"));
    }
    let capabilities = container.security_context.as_ref().and_then(|s| s.capabilities.as_ref());
    let named = capabilities.into_iter().flat_map(|c| c.add.iter().chain(&c.drop).flatten());
    if let Some(unknown) = named.into_iter().find(|name| !is_capability(name)) {
        return refused(format!("unknown capability {unknown:?}"));
    }
    if let Some(device) = container.volume_devices.iter().flatten().next() {
        return Err(ConfigError::Unsupported(format!("the block device {:?} (volumeDevices)", device.device_path)));
    }
    if let Some(claim) = container.resources.iter().flat_map(|r| r.claims.iter().flatten()).next() {
        return Err(ConfigError::Unsupported(format!("the resource claim {:?}", claim.name)));
    }
    for mount in container.volume_mounts.iter().flatten() {
        let target = plain(&mount.mount_path);
        if target == "/" {
            return refused(format!("volume {:?} cannot be mounted over the container's root", mount.name));
        }
        let in_proc = target == "/proc" || target.starts_with("/proc/");
        if in_proc && !PROC_FILES.contains(&target.as_str()) {
            return refused(format!("volume {:?} cannot be mounted at {target:?}: it is inside /proc", mount.name));
        }
    }
    Ok(())
}

#[derive(PartialEq)]
enum AppArmor<'a> {
    RuntimeDefault,
    Localhost(Cow<'a, str>),
}

/// The profile a container asks for; `None` if it asks for none.
fn app_armor<'a>(pod: &'a Pod, container: &'a Container) -> Option<AppArmor<'a>> {
    let own = container.security_context.as_ref().and_then(|s| s.app_armor_profile.as_ref());
    let of_pod = || pod.spec.as_ref()?.security_context.as_ref()?.app_armor_profile.as_ref();
    let annotation = || pod.metadata.annotations.as_ref()?.get(&format!("{APP_ARMOR}{}", container.name));
    if let Some(profile) = own.or_else(of_pod) {
        return match profile.type_.as_str() {
            "Unconfined" => None,
            "RuntimeDefault" => Some(AppArmor::RuntimeDefault),
            _ => Some(AppArmor::Localhost(profile.localhost_profile.as_deref().unwrap_or_default().into())),
        };
    }
    match annotation()?.as_str() {
        "" | "unconfined" => None,
        "runtime/default" => Some(AppArmor::RuntimeDefault),
        other => Some(AppArmor::Localhost(other.trim_start_matches("localhost/").into())),
    }
}

/// A path without `.`, `..` and doubled slashes.
fn plain(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(spec: Value, container: Value, annotations: Value) -> (Pod, Container) {
        let mut spec = spec;
        spec["containers"] = json!([]);
        let pod =
            json!({ "metadata": { "name": "web", "namespace": "shop", "annotations": annotations }, "spec": spec });
        let mut container = container;
        container["name"] = "app".into();
        (serde_json::from_value(pod).expect("a pod"), serde_json::from_value(container).expect("a container"))
    }

    #[test]
    fn unsupported_setting_is_reported_or_refused() {
        let mount = |path: &str| json!({ "volumeMounts": [{ "name": "data", "mountPath": path }] });
        let secured = |context: Value| json!({ "securityContext": context });
        let armored = |kind: &str| json!({ "appArmorProfile": { "type": kind, "localhostProfile": "mine" } });
        let limited = |name: &str| json!({ "resources": { "limits": { name: "1Gi" } } });
        let default = "told: appArmorProfile RuntimeDefault is not applied: there is no default profile";
        let labels = "told: seLinuxOptions are not applied: containers get no SELinux label";
        let proc = |path: &str| format!("refused: volume \"data\" cannot be mounted at {path:?}: it is inside /proc");
        let root = "refused: volume \"data\" cannot be mounted over the container's root";
        let none = || json!({});
        let long = "y".repeat(50);
        let too_long = format!(
            "refused: FQDN {long}.x.shop.svc.cluster.local is too long to be a host name (64 characters is the max, \
             {} requested)",
            long.len() + 25
        );
        let (devices, claims) = (json!([{ "name": "disk", "devicePath": "/dev/x" }]), json!([{ "name": "gpu" }]));
        let spread = json!([{ "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule" }]);
        let named = json!({ "setHostnameAsFQDN": true, "subdomain": "x", "hostname": long });
        for (spec, container, expected) in [
            (none(), none(), ""),
            (
                json!({ "hostUsers": false }),
                none(),
                "refused: a user namespace (hostUsers: false) is not supported yet",
            ),
            (named, none(), &too_long),
            (limited("memory"), none(), ""),
            (limited("hugepages-2Mi"), none(), "told: limit hugepages-2Mi=1Gi of the whole pod is not enforced"),
            (none(), limited("memory"), ""),
            (limited("ephemeral-storage"), limited("ephemeral-storage"), ""),
            (
                json!({ "runtimeClassName": "gvisor" }),
                none(),
                "refused: a runtime of its own (runtimeClassName \"gvisor\") is not supported yet",
            ),
            (json!({ "os": { "name": "linux" } }), none(), ""),
            (json!({ "os": { "name": "windows" } }), none(), "refused: the pod is for windows, this node is not"),
            (
                json!({ "resourceClaims": [{ "name": "gpu" }] }),
                none(),
                "refused: the resource claim \"gpu\" is not supported yet",
            ),
            (
                json!({ "topologySpreadConstraints": spread }),
                none(),
                "told: topologySpreadConstraint \"zone\" is not applied",
            ),
            (secured(json!({ "windowsOptions": {} })), none(), &format!("told: {WINDOWS}")),
            (none(), secured(json!({ "windowsOptions": {} })), &format!("told: {WINDOWS}")),
            (none(), limited("hugepages-2Mi"), "told: limit hugepages-2Mi=1Gi is not enforced"),
            (
                none(),
                json!({ "resources": { "claims": claims } }),
                "refused: the resource claim \"gpu\" is not supported yet",
            ),
            (none(), secured(armored("Localhost")), "refused: AppArmor profile \"mine\" is not loaded"),
            (secured(armored("Localhost")), none(), "refused: AppArmor profile \"mine\" is not loaded"),
            (secured(armored("Localhost")), secured(armored("Unconfined")), ""),
            (none(), secured(armored("RuntimeDefault")), default),
            (secured(armored("RuntimeDefault")), none(), default),
            (none(), secured(json!({ "seLinuxOptions": { "level": "s0" } })), labels),
            (secured(json!({ "seLinuxOptions": { "level": "s0" } })), none(), labels),
            (none(), secured(json!({ "capabilities": { "add": ["CAP_KILL", "chown"], "drop": ["ALL"] } })), ""),
            (none(), secured(json!({ "capabilities": { "add": ["KIL"] } })), "refused: unknown capability \"KIL\""),
            (none(), secured(json!({ "capabilities": { "drop": ["KIL"] } })), "refused: unknown capability \"KIL\""),
            (
                none(),
                json!({ "volumeDevices": devices }),
                "refused: the block device \"/dev/x\" (volumeDevices) is not supported yet",
            ),
            (none(), mount("/data"), ""),
            (none(), mount("/"), root),
            (none(), mount("/data/.."), root),
            (none(), mount("/proc"), &proc("/proc")),
            (none(), mount("//proc/./sys"), &proc("/proc/sys")),
            (none(), mount("/proc/meminfo"), ""),
            (none(), mount("/process"), ""),
        ] {
            let (pod, container) = pod(spec.clone(), container, none());
            assert_eq!(outcome(&pod, &container), expected, "{spec} {container:?}");
        }
        for (written, expected) in [
            ("unconfined", ""),
            ("runtime/default", default),
            ("localhost/mine", "refused: AppArmor profile \"mine\" is not loaded"),
        ] {
            let (pod, container) = pod(none(), none(), json!({ format!("{APP_ARMOR}app"): written }));
            assert_eq!(outcome(&pod, &container), expected, "{written}");
        }
    }

    fn outcome(pod: &Pod, container: &Container) -> String {
        match refuse(pod, container) {
            Err(error) => format!("refused: {error}"),
            Ok(()) => {
                let told = of_pod(pod).into_iter().chain(of_container(pod, container));
                told.map(|message| format!("told: {message}")).collect()
            }
        }
    }
}
