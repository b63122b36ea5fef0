//! Who may do what. A small fixed table in the shape RBAC will fill: verbs, groups, resources, paths per subject.

use api::Status;

use crate::identity::Identity;

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

/// Paths everyone may read, known or not.
const PUBLIC_PATHS: &[&str] = &["/healthz", "/livez", "/readyz", "/version"];
/// Paths any known user may read: discovery.
const DISCOVERY_PATHS: &[&str] = &["/api", "/apis", "/openapi"];

const NODE_RULES: &[Rule] = &[
    Rule { verbs: &["get", "list", "watch", "create", "update", "patch"], groups: &[""], resources: &["nodes"] },
    Rule { verbs: &["update", "patch"], groups: &[""], resources: &["nodes/status", "pods/status"] },
    Rule { verbs: &["get", "list", "watch", "create", "delete"], groups: &[""], resources: &["pods"] },
    Rule { verbs: &["create"], groups: &[""], resources: &["pods/eviction", "serviceaccounts/token"] },
    Rule { verbs: &["create", "update", "patch"], groups: &["", "events.k8s.io"], resources: &["events"] },
    Rule {
        verbs: READ,
        groups: &[""],
        resources: &["secrets", "configmaps", "services", "namespaces", "serviceaccounts"],
    },
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
];

const SCHEDULER_RULES: &[Rule] = &[
    Rule { verbs: READ, groups: &[""], resources: &["pods", "nodes", "namespaces"] },
    Rule { verbs: &["create"], groups: &[""], resources: &["pods/binding", "bindings"] },
    Rule { verbs: &["update", "patch"], groups: &[""], resources: &["pods/status"] },
    Rule { verbs: &["create", "update", "patch"], groups: &["", "events.k8s.io"], resources: &["events"] },
];

/// Lets the request through or says why not, in upstream's words.
pub(crate) fn authorize(identity: &Identity, attributes: &Attributes<'_>) -> Result<(), Status> {
    if allowed(identity, attributes) { Ok(()) } else { Err(refusal(identity, attributes)) }
}

fn allowed(identity: &Identity, attributes: &Attributes<'_>) -> bool {
    if identity.is_in("system:masters") {
        return true;
    }
    match attributes.target {
        Target::Path(path) => {
            let under = |roots: &[&str]| {
                roots
                    .iter()
                    .any(|root| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
            };
            attributes.verb == "get"
                && (under(PUBLIC_PATHS) || (identity.is_in("system:authenticated") && under(DISCOVERY_PATHS)))
        }
        Target::Resource { .. } => {
            let node = identity.is_in("system:nodes") && identity.user.starts_with("system:node:");
            let scheduler = identity.user == "system:kube-scheduler" && identity.is_in("system:authenticated");
            (node && grants(NODE_RULES, attributes)) || (scheduler && grants(SCHEDULER_RULES, attributes))
        }
    }
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

fn refusal(identity: &Identity, attributes: &Attributes<'_>) -> Status {
    let verb = attributes.verb;
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
                 in API group {group:?} {place}",
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

    use super::*;

    fn on<'a>(
        verb: &'a str,
        resource: &'a str,
        subresource: &'a str,
        namespace: &'a str,
        name: &'a str,
    ) -> Attributes<'a> {
        Attributes { verb, target: Target::Resource { group: "", resource, subresource, namespace, name } }
    }

    #[test]
    fn refusals_are_upstreams_sentences() {
        let bob = Identity::new("bob", &[]);
        let refused = |attributes: Attributes<'_>| authorize(&bob, &attributes).unwrap_err().message;
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

    #[test]
    fn a_node_does_its_work_and_no_more() {
        let node = Identity::node("n1");
        assert!(authorize(&node, &on("patch", "pods", "status", "default", "x")).is_ok());
        assert!(authorize(&node, &on("delete", "pods", "", "default", "x")).is_ok());
        assert!(authorize(&node, &on("patch", "pods", "", "default", "x")).is_err());
        assert!(authorize(&node, &on("delete", "secrets", "", "default", "x")).is_err());
        // The group alone does not make a node.
        let stray = Identity::new("mallory", &["system:nodes"]);
        assert!(authorize(&stray, &on("delete", "pods", "", "default", "x")).is_err());
    }

    #[test]
    fn the_anonymous_read_health_and_version_only() {
        let anonymous = Identity::anonymous();
        for (path, allowed) in
            [("/healthz", true), ("/readyz/ping", true), ("/version", true), ("/api", false), ("/healthzz", false)]
        {
            let asked = Attributes { verb: "get", target: Target::Path(path) };
            assert_eq!(authorize(&anonymous, &asked).is_ok(), allowed, "{path}");
        }
    }
}
