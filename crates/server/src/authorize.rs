//! May this user do this? The administrators' group and the nodes are known here; everybody else is judged by the
//! stored roles ([`crate::rbac`]).

use api::Status;
use api::rbac::RequestedAccess;

use crate::identity::Identity;
use crate::node_rules;
use crate::rbac;
use crate::request::Request;
use crate::state::State;

/// What is asked of the authoriser: one verb on one resource, or on one path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes<'a> {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; lower-case method for paths.
    pub(crate) verb: &'a str,
    pub(crate) target: Target<'a>,
}

/// What the verb is about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target<'a> {
    Path(&'a str),
    Resource { group: &'a str, resource: &'a str, subresource: &'a str, namespace: &'a str, name: &'a str },
}

struct Rule {
    verbs: &'static [&'static str],
    groups: &'static [&'static str],
    /// `pods`, `pods/status`.
    resources: &'static [&'static str],
}

const READ: &[&str] = &["get", "list", "watch"];

const NODE_RULES: &[Rule] = &[
    Rule { verbs: &["get", "list", "watch", "create", "update", "patch"], groups: &[""], resources: &["nodes"] },
    Rule { verbs: &["update", "patch"], groups: &[""], resources: &["nodes/status", "pods/status"] },
    Rule { verbs: &["get", "list", "watch", "create", "delete"], groups: &[""], resources: &["pods"] },
    Rule { verbs: &["create"], groups: &[""], resources: &["pods/eviction", "serviceaccounts/token"] },
    Rule { verbs: &["create", "update", "patch"], groups: &["", "events.k8s.io"], resources: &["events"] },
    Rule {
        verbs: READ,
        groups: &[""],
        resources: &[
            "secrets",
            "configmaps",
            "services",
            "namespaces",
            "serviceaccounts",
            "persistentvolumeclaims",
            "persistentvolumes",
        ],
    },
    Rule { verbs: &["patch"], groups: &[""], resources: &["persistentvolumes"] },
    Rule {
        verbs: &["get", "create", "update", "patch", "delete"],
        groups: &["coordination.k8s.io"],
        resources: &["leases"],
    },
    Rule {
        verbs: READ,
        groups: &["node.k8s.io", "discovery.k8s.io"],
        resources: &["runtimeclasses", "endpointslices"],
    },
    // What its own rules let pass.
    Rule { verbs: &["list", "watch"], groups: &["networking.k8s.io"], resources: &["networkpolicies"] },
    // How its pods ended. That they are its own is checked beside the object.
    Rule { verbs: &["get", "create", "update"], groups: &["adieu.dev"], resources: &["terminationrecords"] },
    // Its own, when it renews them; who signs looks at what is asked for.
    Rule {
        verbs: &["create", "get", "list", "watch"],
        groups: &["certificates.k8s.io"],
        resources: &["certificatesigningrequests"],
    },
    // Whether the last endpoint of a Service is replaced when it leaves: how many their owners want, and nothing else of them.
    Rule {
        verbs: &["get"],
        groups: &["", "apps"],
        resources: &["replicationcontrollers/scale", "replicasets/scale", "deployments/scale"],
    },
];

/// What came of asking.
pub(crate) struct Decision {
    pub(crate) allowed: bool,
    /// Which binding allows it, or what was missing.
    pub(crate) reason: String,
}

/// Lets the request through or says why not, in upstream's words.
pub(crate) fn authorize(state: &State, identity: &Identity, attributes: &Attributes<'_>) -> Result<(), Status> {
    let decision = decide(state, identity, attributes);
    if decision.allowed { Ok(()) } else { Err(refusal(identity, attributes, &decision.reason)) }
}

/// An update or an apply that makes its object needs the right to create it as well.
pub(crate) fn authorize_create(state: &State, request: &Request) -> Result<(), Status> {
    let kind = &request.kind;
    let target = Target::Resource {
        group: &kind.group,
        resource: &kind.plural,
        subresource: "",
        namespace: &request.namespace,
        name: &request.name,
    };
    authorize(state, &request.identity, &Attributes { verb: "create", target })
}

/// Decides without refusing: the group that may do everything, then nodes, then what the stored roles say.
pub(crate) fn decide(state: &State, identity: &Identity, attributes: &Attributes<'_>) -> Decision {
    let node_may = |node: &str| grants(NODE_RULES, attributes) && node_rules::owns(state, node, attributes);
    if identity.is_in("system:masters") || node_rules::node_of(identity).is_some_and(node_may) {
        return Decision { allowed: true, reason: String::new() };
    }
    let (asked, namespace) = match attributes.target {
        Target::Path(path) => (RequestedAccess::Path(path), ""),
        Target::Resource { group, resource, subresource, namespace, name } => {
            (RequestedAccess::Resource { group, resource, subresource, name }, namespace)
        }
    };
    let verdict = rbac::judge(state, identity, attributes.verb, asked, namespace);
    let missing =
        || if verdict.missing.is_empty() { String::new() } else { format!("RBAC: {}", verdict.missing.join(", ")) };
    Decision { allowed: verdict.allowed.is_some(), reason: verdict.allowed.clone().unwrap_or_else(missing) }
}

fn grants(rules: &[Rule], attributes: &Attributes<'_>) -> bool {
    let Target::Resource { group, resource, subresource, .. } = attributes.target else { return false };
    let is_named = |entry: &&'static str| match entry.split_once('/') {
        Some((parent, child)) => parent == resource && child == subresource,
        None => **entry == *resource && subresource.is_empty(),
    };
    rules.iter().any(|rule| {
        rule.verbs.contains(&attributes.verb) && rule.groups.contains(&group) && rule.resources.iter().any(is_named)
    })
}

fn refusal(identity: &Identity, attributes: &Attributes<'_>, reason: &str) -> Status {
    let verb = attributes.verb;
    let because = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    match attributes.target {
        Target::Path(path) => Status::forbidden_path(&identity.user, verb, path),
        Target::Resource { group, resource, subresource, namespace, name } => {
            let qualified = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
            let subject = if name.is_empty() { qualified } else { format!("{qualified} {name:?}") };
            let slash = if subresource.is_empty() { "" } else { "/" };
            let place = if namespace.is_empty() {
                "at the cluster scope".to_owned()
            } else {
                format!("in the namespace {namespace:?}")
            };
            let message = format!(
                "{subject} is forbidden: User {:?} cannot {verb} resource \"{resource}{slash}{subresource}\" \
                 in API group {group:?} {place}{because}",
                identity.user
            );
            let mut status = Status::new(403, "Forbidden", message);
            status.details = Some(Box::new(api::status::Details {
                name: name.to_owned(),
                group: group.to_owned(),
                kind: resource.to_owned(),
                ..api::status::Details::default()
            }));
            status
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::Arc;

    use store::Store;

    use super::*;

    /// The default policy on a fresh store.
    async fn fresh() -> (State, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let state = State::new(
            crate::ServerConfig {
                store: Store::open(&dir.path().join("store")).await.unwrap(),
                advertise: ([127, 0, 0, 1], 6443).into(),
                version: String::new(),
                nodes: Arc::new(crate::NoNodes),
                service_range: crate::ServiceRange::default(),
                token_key: crate::TokenKey::fresh(),
            },
            frame::Clock::system(),
        );
        rbac::bootstrap(&state).await.unwrap();
        (state, dir)
    }

    fn on<'a>(
        verb: &'a str,
        resource: &'a str,
        subresource: &'a str,
        namespace: &'a str,
        name: &'a str,
    ) -> Attributes<'a> {
        Attributes { verb, target: Target::Resource { group: "", resource, subresource, namespace, name } }
    }

    #[tokio::test]
    async fn refusals_are_upstreams_sentences() {
        let (state, _dir) = fresh().await;
        let bob = Identity::new("bob", &[]);
        let refused = |attributes: Attributes<'_>| authorize(&state, &bob, &attributes).unwrap_err().message;
        assert_eq!(
            refused(on("list", "pods", "", "default", "")),
            r#"pods is forbidden: User "bob" cannot list resource "pods" in API group "" in the namespace "default""#
        );
        assert_eq!(
            refused(on("get", "pods", "log", "default", "x")),
            r#"pods "x" is forbidden: User "bob" cannot get resource "pods/log" in API group "" in the namespace "default""#
        );
        assert_eq!(
            refused(on("list", "nodes", "", "", "")),
            r#"nodes is forbidden: User "bob" cannot list resource "nodes" in API group "" at the cluster scope"#
        );
        let path = Attributes { verb: "get", target: Target::Path("/metrics") };
        assert_eq!(refused(path), r#"forbidden: User "bob" cannot get path "/metrics""#);
    }

    #[tokio::test]
    async fn a_node_does_its_work_and_no_more() {
        let (state, _dir) = fresh().await;
        let node = Identity::node("n1");
        assert!(authorize(&state, &node, &on("patch", "pods", "status", "default", "x")).is_ok());
        assert!(authorize(&state, &node, &on("delete", "pods", "", "default", "x")).is_ok());
        assert!(authorize(&state, &node, &on("patch", "pods", "", "default", "x")).is_err());
        assert!(authorize(&state, &node, &on("delete", "secrets", "", "default", "x")).is_err());
        // The group alone does not make a node.
        let stray = Identity::new("mallory", &["system:nodes"]);
        assert!(authorize(&state, &stray, &on("delete", "pods", "", "default", "x")).is_err());
    }

    #[tokio::test]
    async fn the_anonymous_read_health_and_version_only() {
        let (state, _dir) = fresh().await;
        let anonymous = Identity::anonymous();
        for (path, allowed) in
            [("/healthz", true), ("/readyz/ping", true), ("/version", true), ("/api", false), ("/healthzz", false)]
        {
            let asked = Attributes { verb: "get", target: Target::Path(path) };
            assert_eq!(authorize(&state, &anonymous, &asked).is_ok(), allowed, "{path}");
        }
    }

    #[tokio::test]
    async fn built_in_components_are_authorized_by_their_roles() {
        let (state, _dir) = fresh().await;
        let scheduler = Identity::new("system:kube-scheduler", &[]);
        assert!(authorize(&state, &scheduler, &on("create", "pods", "binding", "default", "x")).is_ok());
        assert!(authorize(&state, &scheduler, &on("create", "pods", "", "default", "")).is_err());
        // All controllers read as one, who writes nothing; each writes what it has to, and nothing else.
        let manager = Identity::new("system:kube-controller-manager", &[]);
        assert!(authorize(&state, &manager, &on("watch", "pods", "", "", "")).is_ok());
        for verb in ["create", "update", "patch", "delete"] {
            assert!(authorize(&state, &manager, &on(verb, "pods", "", "default", "x")).is_err(), "{verb}");
        }
        let may = |account: &str, verb, resource, subresource| {
            let identity = Identity::service_account("kube-system", account);
            authorize(&state, &identity, &on(verb, resource, subresource, "default", "x")).is_ok()
        };
        for account in ["pod-garbage-collector", "taint-eviction-controller"] {
            assert!(may(account, "delete", "pods", "") && may(account, "patch", "pods", "status"), "{account}");
        }
        assert!(may("node-controller", "patch", "nodes", "status") && may("node-controller", "patch", "nodes", ""));
        assert!(may("generic-garbage-collector", "delete", "secrets", ""));
        for account in ["node-controller", "disruption-controller"] {
            assert!(!may(account, "delete", "pods", ""), "{account}");
            assert!(may(account, "create", "events", ""), "{account}");
        }
        for account in
            ["pod-garbage-collector", "taint-eviction-controller", "node-controller", "disruption-controller"]
        {
            assert!(!may(account, "get", "secrets", "") && !may(account, "create", "pods", ""), "{account}");
        }
        assert!(!may("node-controller", "create", "nodes", "") && !may("unknown", "get", "pods", ""));
    }
}
