//! What is looked at in a pod, one row each: from which level on, since which version, and what it says.
//!
//! Rows stand in the order in which their complaints are told: those of the baseline first, each group by its id.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Level, Violation};
use crate::meta;
use crate::rules::value::{list, word};

/// A pod that is looked at, as of a version.
pub(super) struct Pod<'a> {
    pub(super) pod: &'a Value,
    pub(super) minor: u32,
}

/// One row.
pub(super) struct Check {
    pub(super) id: &'static str,
    pub(super) level: Level,
    /// The minor version that brought it.
    pub(super) since: u32,
    /// The row of the baseline that it takes the place of.
    pub(super) replaces: Option<&'static str>,
    pub(super) broken: fn(&Pod<'_>) -> Option<Violation>,
}

const fn baseline(id: &'static str, since: u32, broken: fn(&Pod<'_>) -> Option<Violation>) -> Check {
    Check { id, level: Level::Baseline, since, replaces: None, broken }
}

const fn restricted(
    id: &'static str,
    since: u32,
    replaces: Option<&'static str>,
    broken: fn(&Pod<'_>) -> Option<Violation>,
) -> Check {
    Check { id, level: Level::Restricted, since, replaces, broken }
}

pub(super) static ALL: [Check; 19] = [
    baseline("appArmorProfile", 0, app_armor),
    baseline("capabilities_baseline", 0, added_capabilities),
    baseline("hostNamespaces", 0, host_namespaces),
    baseline("hostPathVolumes", 0, host_paths),
    baseline("hostPorts", 0, host_ports),
    baseline("hostProbesAndHostLifecycle", 34, probed_hosts),
    baseline("privileged", 0, privileged),
    baseline("procMount", 0, unmasked_proc_of_the_host),
    baseline("seLinuxOptions", 0, se_linux),
    baseline("seccompProfile_baseline", 0, bad_seccomp),
    baseline("sysctls", 0, sysctls),
    baseline("windowsHostProcess", 0, host_process),
    restricted("allowPrivilegeEscalation", 8, None, escalation),
    restricted("capabilities_restricted", 22, Some("capabilities_baseline"), kept_capabilities),
    restricted("procMount_restricted", 35, Some("procMount"), unmasked_proc),
    restricted("restrictedVolumes", 0, Some("hostPathVolumes"), volume_types),
    restricted("runAsNonRoot", 0, None, run_as_root),
    restricted("runAsUser", 23, None, run_as_user_zero),
    restricted("seccompProfile_restricted", 19, Some("seccompProfile_baseline"), missing_seccomp),
];

const ADDABLE: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
const VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];
/// What may be set without harm to others, and since when it is known to be so.
const SYSCTLS: [(&str, u32); 12] = [
    ("kernel.shm_rmid_forced", 0),
    ("net.ipv4.ip_local_port_range", 0),
    ("net.ipv4.tcp_syncookies", 0),
    ("net.ipv4.ping_group_range", 0),
    ("net.ipv4.ip_unprivileged_port_start", 0),
    ("net.ipv4.ip_local_reserved_ports", 27),
    ("net.ipv4.tcp_keepalive_time", 29),
    ("net.ipv4.tcp_fin_timeout", 29),
    ("net.ipv4.tcp_keepalive_intvl", 29),
    ("net.ipv4.tcp_keepalive_probes", 29),
    ("net.ipv4.tcp_rmem", 32),
    ("net.ipv4.tcp_wmem", 32),
];
const SE_LINUX_TYPES: [(&str, u32); 5] =
    [("", 0), ("container_t", 0), ("container_init_t", 0), ("container_kvm_t", 0), ("container_engine_t", 31)];
const PROFILES: [&str; 2] = ["Localhost", "RuntimeDefault"];

impl<'a> Pod<'a> {
    fn spec(&self) -> &'a Value {
        &self.pod["spec"]
    }

    fn containers(&self) -> impl Iterator<Item = &'a Value> + use<'a> {
        let spec = self.spec();
        ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(move |key| list(spec, key))
    }

    /// The names of containers that `are` what they should not be.
    fn those(&self, mut are: impl FnMut(&'a Value) -> bool) -> Vec<&'a str> {
        self.containers().filter(|container| are(&container["securityContext"])).map(|c| word(c, "name")).collect()
    }

    fn own(&self) -> &'a Value {
        &self.spec()["securityContext"]
    }

    fn is_windows(&self) -> bool {
        self.spec()["os"]["name"] == "windows"
    }

    /// Whether root in the pod is nobody outside of it.
    fn has_own_users(&self) -> bool {
        self.spec()["hostUsers"] == false
    }

    /// The pod and the containers whose security context `is` wrong, as a sentence's subject.
    fn setters(&self, mut is: impl FnMut(&'a Value) -> bool) -> Option<String> {
        let pod = is(self.own()).then(|| "pod".to_owned());
        let containers = self.those(is);
        let containers = (!containers.is_empty()).then(|| counted("container", &containers));
        let all: Vec<String> = pod.into_iter().chain(containers).collect();
        (!all.is_empty()).then(|| all.join(" and "))
    }
}

fn violation(reason: &str, detail: String) -> Option<Violation> {
    Some(Violation { reason: reason.to_owned(), detail })
}

/// `"a", "b"`.
fn quoted<'a>(items: impl IntoIterator<Item = &'a str>) -> String {
    let items: Vec<&str> = items.into_iter().collect();
    format!("\"{}\"", items.join("\", \""))
}

fn plural(one: &str, count: usize) -> String {
    if count == 1 { one.to_owned() } else { format!("{one}s") }
}

/// `container "a"`, or `containers "a", "b"`.
fn counted(one: &str, names: &[&str]) -> String {
    format!("{} {}", plural(one, names.len()), quoted(names.iter().copied()))
}

/// `uses`, or `use`.
fn uses(count: usize) -> &'static str {
    if count == 1 { "uses" } else { "use" }
}

fn words(list_of: &Value, key: &str) -> impl Iterator<Item = String> {
    list(list_of, key).iter().filter_map(Value::as_str).map(ToOwned::to_owned)
}

fn app_armor(pod: &Pod<'_>) -> Option<Violation> {
    let mut values = BTreeSet::new();
    let setters = pod.setters(|context| {
        let profile = &context["appArmorProfile"];
        let kind = word(profile, "type");
        profile.is_object() && !PROFILES.contains(&kind) && (values.insert(kind.to_owned()), true).1
    });
    let prefix = "container.apparmor.security.beta.kubernetes.io/";
    let fine = |value: &str| matches!(value, "" | "runtime/default") || value.starts_with("localhost/");
    let annotated = meta::annotations(pod.pod).filter(|(key, value)| key.starts_with(prefix) && !fine(value));
    let annotated: Vec<String> = annotated.map(|(key, value)| format!("{key}={value:?}")).collect();
    let annotation = (!annotated.is_empty()).then(|| plural("annotation", annotated.len()));
    let setters: Vec<String> = setters.into_iter().chain(annotation).collect();
    if setters.is_empty() {
        return None;
    }
    let values: Vec<&str> = values.iter().chain(&annotated).map(String::as_str).collect();
    let text =
        format!("{} must not set AppArmor profile type to {}", setters.join(" and "), quoted(values.iter().copied()));
    violation(&plural("forbidden AppArmor profile", values.len()), text)
}

/// Containers that add capabilities beyond `allowed`, in a sentence.
fn adding(pod: &Pod<'_>, allowed: &[&str]) -> Option<String> {
    let mut others = BTreeSet::new();
    let adding = pod.those(|context| {
        let own: Vec<String> =
            words(&context["capabilities"], "add").filter(|c| !allowed.contains(&c.as_str())).collect();
        let bad = !own.is_empty();
        others.extend(own);
        bad
    });
    let others = quoted(others.iter().map(String::as_str));
    let text = |who| format!("{who} must not include {others} in securityContext.capabilities.add");
    (!adding.is_empty()).then(|| text(counted("container", &adding)))
}

fn added_capabilities(pod: &Pod<'_>) -> Option<Violation> {
    violation("non-default capabilities", adding(pod, &ADDABLE)?)
}

fn kept_capabilities(pod: &Pod<'_>) -> Option<Violation> {
    if pod.minor >= 25 && pod.is_windows() {
        return None;
    }
    let keeping = pod.those(|context| !words(&context["capabilities"], "drop").any(|dropped| dropped == "ALL"));
    let keeping = (!keeping.is_empty())
        .then(|| format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", counted("container", &keeping)));
    let details: Vec<String> = keeping.into_iter().chain(adding(pod, &["NET_BIND_SERVICE"])).collect();
    if details.is_empty() { None } else { violation("unrestricted capabilities", details.join("; ")) }
}

fn host_namespaces(pod: &Pod<'_>) -> Option<Violation> {
    let shared = ["hostNetwork", "hostPID", "hostIPC"].into_iter().filter(|key| pod.spec()[*key] == true);
    let shared: Vec<String> = shared.map(|key| format!("{key}=true")).collect();
    if shared.is_empty() { None } else { violation("host namespaces", shared.join(", ")) }
}

fn host_paths(pod: &Pod<'_>) -> Option<Violation> {
    let volumes = list(pod.spec(), "volumes").iter().filter(|volume| volume["hostPath"].is_object());
    let volumes: Vec<&str> = volumes.map(|volume| word(volume, "name")).collect();
    if volumes.is_empty() { None } else { violation("hostPath volumes", counted("volume", &volumes)) }
}

fn volume_types(pod: &Pod<'_>) -> Option<Violation> {
    let allowed = |volume: &&Value| VOLUMES.iter().any(|kind| volume[*kind].is_object());
    let others: Vec<&Value> = list(pod.spec(), "volumes").iter().filter(|volume| !allowed(volume)).collect();
    let source = |volume: &Value| volume.as_object()?.keys().find(|key| *key != "name").cloned();
    let kinds: BTreeSet<String> = others.iter().map(|volume| source(volume).unwrap_or("unknown".to_owned())).collect();
    let names: Vec<&str> = others.iter().map(|volume| word(volume, "name")).collect();
    if names.is_empty() {
        return None;
    }
    let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
    let text =
        format!("{} {} {}", counted("volume", &names), uses(names.len()), counted("restricted volume type", &kinds));
    violation("restricted volume types", text)
}

fn host_ports(pod: &Pod<'_>) -> Option<Violation> {
    let own = |container: &Value| -> Vec<String> {
        let ports = list(container, "ports").iter().filter_map(|port| port["hostPort"].as_i64());
        ports.filter(|port| *port != 0).map(|port| port.to_string()).collect()
    };
    let users: Vec<&str> = pod.containers().filter(|c| !own(c).is_empty()).map(|c| word(c, "name")).collect();
    if users.is_empty() {
        return None;
    }
    let ports: Vec<String> = pod.containers().flat_map(own).collect::<BTreeSet<_>>().into_iter().collect();
    let (who, ports_word) = (counted("container", &users), plural("hostPort", ports.len()));
    violation("hostPort", format!("{who} {} {ports_word} {}", uses(users.len()), ports.join(", ")))
}

fn probed_hosts(pod: &Pod<'_>) -> Option<Violation> {
    let places = ["/livenessProbe", "/readinessProbe", "/startupProbe", "/lifecycle/postStart", "/lifecycle/preStop"];
    let own = |container: &Value| -> Vec<String> {
        let handlers = places.iter().filter_map(|place| container.pointer(place));
        let hosts =
            handlers.flat_map(|handler| [word(&handler["httpGet"], "host"), word(&handler["tcpSocket"], "host")]);
        hosts.filter(|host| !host.is_empty()).map(ToOwned::to_owned).collect()
    };
    let users: BTreeSet<&str> = pod.containers().filter(|c| !own(c).is_empty()).map(|c| word(c, "name")).collect();
    if users.is_empty() {
        return None;
    }
    let users: Vec<&str> = users.into_iter().collect();
    let hosts: BTreeSet<String> = pod.containers().flat_map(own).collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let what = counted("probe or lifecycle host", &hosts);
    violation("probe or lifecycle host", format!("{} {} {what}", counted("container", &users), uses(users.len())))
}

fn privileged(pod: &Pod<'_>) -> Option<Violation> {
    let those = pod.those(|context| context["privileged"] == true);
    let text = || format!("{} must not set securityContext.privileged=true", counted("container", &those));
    if those.is_empty() { None } else { violation("privileged", text()) }
}

fn unmasked_proc(pod: &Pod<'_>) -> Option<Violation> {
    let mut kinds = BTreeSet::new();
    let those = pod.those(|context| {
        let kind = context["procMount"].as_str().filter(|kind| *kind != "Default");
        kind.is_some_and(|kind| (kinds.insert(kind), true).1)
    });
    let who = counted("container", &those);
    let text = || format!("{who} must not set securityContext.procMount to {}", quoted(kinds.iter().copied()));
    if those.is_empty() { None } else { violation("procMount", text()) }
}

fn unmasked_proc_of_the_host(pod: &Pod<'_>) -> Option<Violation> {
    if pod.minor >= 35 && pod.has_own_users() { None } else { unmasked_proc(pod) }
}

fn se_linux(pod: &Pod<'_>) -> Option<Violation> {
    let (mut kinds, mut user, mut role) = (BTreeSet::new(), false, false);
    let setters = pod.setters(|context| {
        let options = &context["seLinuxOptions"];
        let kind = word(options, "type");
        let allowed = SE_LINUX_TYPES.iter().any(|(known, since)| *known == kind && *since <= pod.minor);
        if !allowed {
            kinds.insert(kind);
        }
        let (has_user, has_role) = (!word(options, "user").is_empty(), !word(options, "role").is_empty());
        (user, role) = (user | has_user, role | has_role);
        !allowed || has_user || has_role
    })?;
    let kinds: Vec<&str> = kinds.into_iter().collect();
    let said = [
        (!kinds.is_empty()).then(|| counted("type", &kinds)),
        user.then(|| "user may not be set".to_owned()),
        role.then(|| "role may not be set".to_owned()),
    ];
    let said: Vec<String> = said.into_iter().flatten().collect();
    violation("seLinuxOptions", format!("{setters} set forbidden securityContext.seLinuxOptions: {}", said.join("; ")))
}

/// Those who name a profile that nobody may have.
fn unconfined(pod: &Pod<'_>) -> Option<Violation> {
    let mut kinds = BTreeSet::new();
    let setters = pod.setters(|context| {
        let profile = &context["seccompProfile"];
        let kind = word(profile, "type");
        profile.is_object() && !PROFILES.contains(&kind) && (kinds.insert(kind), true).1
    })?;
    let kinds = quoted(kinds);
    violation("seccompProfile", format!("{setters} must not set securityContext.seccompProfile.type to {kinds}"))
}

/// Before there was a field for it, an annotation named the profile.
fn bad_seccomp(pod: &Pod<'_>) -> Option<Violation> {
    if pod.minor >= 19 {
        return unconfined(pod);
    }
    let fine = |value: &str| matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/");
    let names: BTreeSet<&str> = pod.containers().map(|container| word(container, "name")).collect();
    let is_one = |key: &str| {
        let of_container = key.strip_prefix("container.seccomp.security.alpha.kubernetes.io/");
        key == "seccomp.security.alpha.kubernetes.io/pod" || of_container.is_some_and(|name| names.contains(name))
    };
    let bad = meta::annotations(pod.pod).filter(|(key, value)| is_one(key) && !fine(value));
    let bad: Vec<String> = bad.map(|(key, value)| format!("{key}={value:?}")).collect();
    let text = || format!("forbidden {} {}", plural("annotation", bad.len()), bad.join(", "));
    if bad.is_empty() { None } else { violation("seccompProfile", text()) }
}

fn missing_seccomp(pod: &Pod<'_>) -> Option<Violation> {
    if pod.minor >= 25 && pod.is_windows() {
        return None;
    }
    if let Some(violation) = unconfined(pod) {
        return Some(violation);
    }
    let without = pod.those(|context| !context["seccompProfile"].is_object());
    if pod.own()["seccompProfile"].is_object() || without.is_empty() {
        return None;
    }
    let text = "must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"";
    violation("seccompProfile", format!("pod or {} {text}", counted("container", &without)))
}

fn sysctls(pod: &Pod<'_>) -> Option<Violation> {
    let names = list(pod.own(), "sysctls").iter().map(|sysctl| word(sysctl, "name"));
    let allowed = |name: &str| SYSCTLS.iter().any(|(known, since)| *known == name && *since <= pod.minor);
    let others: Vec<&str> = names.filter(|name| !allowed(name)).collect();
    if others.is_empty() { None } else { violation("forbidden sysctls", others.join(", ")) }
}

fn host_process(pod: &Pod<'_>) -> Option<Violation> {
    let setters = pod.setters(|context| context["windowsOptions"]["hostProcess"] == true)?;
    violation("hostProcess", format!("{setters} must not set securityContext.windowsOptions.hostProcess=true"))
}

fn escalation(pod: &Pod<'_>) -> Option<Violation> {
    if pod.minor >= 25 && pod.is_windows() {
        return None;
    }
    let those = pod.those(|context| context["allowPrivilegeEscalation"] != false);
    let who = counted("container", &those);
    let text = || format!("{who} must set securityContext.allowPrivilegeEscalation=false");
    if those.is_empty() { None } else { violation("allowPrivilegeEscalation != false", text()) }
}

fn run_as_root(pod: &Pod<'_>) -> Option<Violation> {
    let reason = "runAsNonRoot != true";
    if pod.minor >= 35 && pod.has_own_users() {
        return None;
    }
    if let Some(setters) = pod.setters(|context| context["runAsNonRoot"] == false) {
        return violation(reason, format!("{setters} must not set securityContext.runAsNonRoot=false"));
    }
    let silent = pod.those(|context| !context["runAsNonRoot"].is_boolean());
    if pod.own()["runAsNonRoot"] == true || silent.is_empty() {
        return None;
    }
    violation(reason, format!("pod or {} must set securityContext.runAsNonRoot=true", counted("container", &silent)))
}

fn run_as_user_zero(pod: &Pod<'_>) -> Option<Violation> {
    if pod.minor >= 35 && pod.has_own_users() {
        return None;
    }
    let setters = pod.setters(|context| context["runAsUser"] == 0)?;
    violation("runAsUser=0", format!("{setters} must not set runAsUser=0"))
}
