//! Which kernel parameters pods may set: those that touch nobody else, and those that the node's owner allows.

use std::fmt;

use k8s_openapi::api::core::v1::Pod;

/// Parameters of the pod's own namespaces that take nothing from other pods.
const SAFE: [&str; 14] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_notsent_lowat",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
];

/// The longest name of a parameter.
const NAME_MAX: usize = 253;

/// The reason in the status of a pod that asks for a parameter it may not set.
pub const FORBIDDEN: &str = "SysctlForbidden";

/// What a parameter is kept per.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Namespace {
    Ipc,
    Net,
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipc => "IPC",
            Self::Net => "Net",
        })
    }
}

impl Namespace {
    /// The namespace of a parameter, or of all whose names begin so. `None` if the whole machine shares it.
    fn of(name: &str) -> Option<Self> {
        const IPC: [&str; 10] = [
            "kernel.sem",
            "kernel.shmall",
            "kernel.shmmax",
            "kernel.shmmni",
            "kernel.shm_rmid_forced",
            "kernel.shm",
            "kernel.msgmax",
            "kernel.msgmnb",
            "kernel.msgmni",
            "kernel.msg",
        ];
        if IPC.contains(&name) || name.starts_with("fs.mqueue.") {
            Some(Self::Ipc)
        } else {
            name.starts_with("net.").then_some(Self::Net)
        }
    }
}

/// Why a name or pattern cannot be allowed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Not a name, nor the beginning of names and a `*`.
    #[error("{0:?} is neither the name of a sysctl nor the beginning of names with a * at its end")]
    NoName(String),
    /// Setting it would change the machine.
    #[error("the sysctls {0:?} are not known to be namespaced")]
    NotNamespaced(String),
}

/// What pods of this node may set beside the safe ones.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AllowedSysctls {
    names: Vec<String>,
    prefixes: Vec<String>,
}

impl AllowedSysctls {
    /// Reads names, and beginnings of names that end with `*`.
    pub fn new<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, PatternError> {
        let mut allowed = Self::default();
        for pattern in patterns.into_iter().map(str::trim).filter(|pattern| !pattern.is_empty()) {
            let written = normal(pattern);
            let (name, is_prefix) = written.strip_suffix('*').map_or((written.as_str(), false), |name| (name, true));
            let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-' | '/');
            if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(is_part) {
                return Err(PatternError::NoName(pattern.to_owned()));
            }
            if Namespace::of(name).is_none() {
                return Err(PatternError::NotNamespaced(name.to_owned()));
            }
            let list = if is_prefix { &mut allowed.prefixes } else { &mut allowed.names };
            list.push(name.to_owned());
        }
        Ok(allowed)
    }

    /// Why a pod is turned away for the parameters it asks for, if it is.
    pub fn refusal(&self, pod: &Pod) -> Option<String> {
        let spec = pod.spec.as_ref()?;
        let asked = spec.security_context.as_ref()?.sysctls.as_ref()?;
        let (host_net, host_ipc) = (spec.host_network.unwrap_or(false), spec.host_ipc.unwrap_or(false));
        asked.iter().find_map(|sysctl| {
            let name = normal(&sysctl.name);
            if !self.allows(&name) {
                return Some(format!("forbidden sysctl: {name:?} not allowlisted"));
            }
            let of_host = match Namespace::of(&name)? {
                namespace @ Namespace::Net => host_net.then_some(namespace),
                namespace @ Namespace::Ipc => host_ipc.then_some(namespace),
            };
            of_host.map(|namespace| format!("forbidden sysctl: {name:?} not allowed with host {namespace} enabled"))
        })
    }

    fn allows(&self, name: &str) -> bool {
        let is_named = SAFE.contains(&name) || self.names.iter().any(|allowed| allowed == name);
        is_named || self.prefixes.iter().any(|prefix| name.starts_with(prefix.as_str()))
    }
}

/// A name with dots between its parts, though it may be written with slashes. In `net/ipv4/conf/eth0.1/x` a dot is part
/// of a part: whichever comes first separates.
fn normal(name: &str) -> String {
    match name.find(['.', '/']).map(|at| &name[at..=at]) {
        Some("/") => {
            let swapped = |c| match c {
                '/' => '.',
                '.' => '/',
                other => other,
            };
            name.chars().map(swapped).collect()
        }
        Some(_) | None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unsafe_sysctl_is_forbidden_unless_allowed() {
        let none = AllowedSysctls::default();
        let some = AllowedSysctls::new(["kernel.msg*", " net.core.somaxconn", ""]).expect("both are namespaced");
        let (net, ipc, own) = (json!({ "hostNetwork": true }), json!({ "hostIPC": true }), json!({}));
        let refused = |name: &str| Some(format!("forbidden sysctl: {name:?} not allowlisted"));
        let shared =
            |name: &str, with: &str| Some(format!("forbidden sysctl: {name:?} not allowed with host {with} enabled"));
        for (allowed, host, name, expected) in [
            (&none, &own, "net.ipv4.tcp_syncookies", None),
            (&none, &own, "net/ipv4/tcp_syncookies", None),
            (&none, &net, "net.ipv4.tcp_syncookies", shared("net.ipv4.tcp_syncookies", "Net")),
            (&none, &ipc, "net.ipv4.tcp_syncookies", None),
            (&none, &own, "kernel.shm_rmid_forced", None),
            (&none, &ipc, "kernel.shm_rmid_forced", shared("kernel.shm_rmid_forced", "IPC")),
            (&none, &own, "kernel.msgmax", refused("kernel.msgmax")),
            (&none, &own, "net.core.somaxconn", refused("net.core.somaxconn")),
            (&none, &net, "net.core.somaxconn", refused("net.core.somaxconn")),
            (&some, &own, "kernel.msgmax", None),
            (&some, &ipc, "kernel.msgmax", shared("kernel.msgmax", "IPC")),
            (&some, &own, "net.core.somaxconn", None),
            (&some, &own, "net.core.somaxconn2", refused("net.core.somaxconn2")),
            (&some, &own, "kernel.sem", refused("kernel.sem")),
        ] {
            let mut spec = host.clone();
            spec["containers"] = json!([]);
            spec["securityContext"] = json!({ "sysctls": [{ "name": name, "value": "1" }] });
            let pod: Pod = serde_json::from_value(json!({ "spec": spec })).expect("a pod");
            assert_eq!(allowed.refusal(&pod), expected, "{name} with {host}");
        }
        assert_eq!(none.refusal(&Pod::default()), None);
    }

    #[test]
    fn only_namespaced_sysctls_can_be_allowed() {
        for (pattern, expected) in [
            ("kernel.panic", PatternError::NotNamespaced("kernel.panic".into())),
            ("vm.*", PatternError::NotNamespaced("vm.".into())),
            ("kernel.*", PatternError::NotNamespaced("kernel.".into())),
            ("*", PatternError::NoName("*".into())),
            ("net.*.conf", PatternError::NoName("net.*.conf".into())),
            ("net.core.SOMAX", PatternError::NoName("net.core.SOMAX".into())),
        ] {
            assert_eq!(AllowedSysctls::new([pattern]), Err(expected));
        }
        assert!(AllowedSysctls::new(["kernel.shm*", "kernel.sem", "fs.mqueue.*", "net.*"]).is_ok());
    }
}
