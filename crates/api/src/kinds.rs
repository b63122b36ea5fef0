//! The table of kinds we serve. Routing, discovery, tables and rules all read it; a new kind is a row here plus
//! its [`crate::rules`].

use std::fmt;

use crate::rules::{self, Rules};

/// One served kind: its names, what may be done with it, and (privately) its rules.
pub struct Kind {
    /// API group; `""` is the core group.
    pub group: &'static str,
    /// API version inside the group.
    pub version: &'static str,
    /// `Pod`.
    pub kind: &'static str,
    /// `pods`: the word in the path.
    pub plural: &'static str,
    /// `pod`.
    pub singular: &'static str,
    /// `po`.
    pub short_names: &'static [&'static str],
    /// `all`: groups of kinds that `kubectl get` knows by one word.
    pub categories: &'static [&'static str],
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// Verbs of the main resource, in discovery order.
    pub verbs: &'static [&'static str],
    /// What else can be reached below an object.
    pub subresources: &'static [Subresource],
    /// Whether `metadata.generation` counts changes of the spec.
    pub has_generation: bool,
    /// Whether a delete first marks the object and leaves it to somebody else to finish (pods).
    pub graceful_delete: bool,
    /// Whether a delete that removed the object answers the object, rather than a `Status`.
    pub delete_returns_object: bool,
    /// Whether a PUT to a free name creates.
    pub create_on_update: bool,
    /// Whether a PUT without a resource version is refused.
    pub update_needs_version: bool,
    pub(crate) collection: &'static str,
    /// Field selectors beyond `metadata.name` and `metadata.namespace`, each with the path it reads.
    pub(crate) fields: &'static [(&'static str, &'static str)],
    pub(crate) rules: &'static dyn Rules,
}

/// Something below an object, such as `pods/log`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subresource {
    /// `log`.
    pub name: &'static str,
    /// The kind it speaks.
    pub kind: &'static str,
    /// The group of that kind.
    pub group: &'static str,
    /// The version of that kind.
    pub version: &'static str,
    /// What may be done with it.
    pub verbs: &'static [&'static str],
}

impl Kind {
    /// `v1`, or `coordination.k8s.io/v1`.
    pub fn api_version(&self) -> String {
        group_version(self.group, self.version)
    }

    /// The store's collection: `pods`, or `leases.coordination.k8s.io`.
    pub fn collection(&self) -> &'static str {
        self.collection
    }

    /// `PodList`.
    pub fn list_kind(&self) -> String {
        format!("{}List", self.kind)
    }

    /// The resource as error texts name it: `pods`, or `leases.coordination.k8s.io`.
    pub fn resource(&self) -> String {
        self.collection.to_owned()
    }

    /// The subresource called `name`.
    pub fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kind({} {})", self.api_version(), self.kind)
    }
}

impl PartialEq for Kind {
    /// Kinds are rows of one table, so two are the same when they name the same resource.
    fn eq(&self, other: &Self) -> bool {
        (self.group, self.version, self.plural) == (other.group, other.version, other.plural)
    }
}

impl Eq for Kind {}

/// `v1`, or `apps/v1`.
pub(crate) fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// The kind served below `/apis/{group}/{version}/.../{plural}` (or `/api/{version}` for the core group).
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|k| k.group == group && k.version == version && k.plural == plural)
}

/// The kind an object names with `apiVersion` and `kind`.
pub fn by_kind(group: &str, version: &str, kind: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|k| k.group == group && k.version == version && k.kind == kind)
}

const ALL_VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const NO_COLLECTION_DELETE: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];
const STATUS_VERBS: &[&str] = &["get", "patch", "update"];

const fn core(name: &'static str, kind: &'static str, verbs: &'static [&'static str]) -> Subresource {
    Subresource { name, kind, group: "", version: "v1", verbs }
}

/// What most kinds have in common; a row states the differences.
const PLAIN: Kind = Kind {
    group: "",
    version: "v1",
    kind: "",
    plural: "",
    singular: "",
    short_names: &[],
    categories: &[],
    namespaced: true,
    verbs: ALL_VERBS,
    subresources: &[],
    has_generation: false,
    graceful_delete: false,
    delete_returns_object: false,
    create_on_update: false,
    update_needs_version: false,
    collection: "",
    fields: &[],
    rules: &rules::data::ConfigMapRules,
};

/// Every kind we serve, in the order discovery lists them.
pub static KINDS: &[Kind] = &[
    Kind {
        kind: "ConfigMap",
        plural: "configmaps",
        singular: "configmap",
        short_names: &["cm"],
        collection: "configmaps",
        rules: &rules::data::ConfigMapRules,
        ..PLAIN
    },
    Kind {
        kind: "Event",
        plural: "events",
        singular: "event",
        short_names: &["ev"],
        create_on_update: true,
        collection: "events",
        fields: &[
            ("involvedObject.kind", "involvedObject.kind"),
            ("involvedObject.namespace", "involvedObject.namespace"),
            ("involvedObject.name", "involvedObject.name"),
            ("involvedObject.uid", "involvedObject.uid"),
            ("involvedObject.apiVersion", "involvedObject.apiVersion"),
            ("involvedObject.resourceVersion", "involvedObject.resourceVersion"),
            ("involvedObject.fieldPath", "involvedObject.fieldPath"),
            ("reason", "reason"),
            ("reportingComponent", "reportingComponent"),
            ("source", "source.component|reportingComponent"),
            ("type", "type"),
        ],
        rules: &rules::event::EventRules,
        ..PLAIN
    },
    Kind {
        kind: "Namespace",
        plural: "namespaces",
        singular: "namespace",
        short_names: &["ns"],
        namespaced: false,
        verbs: NO_COLLECTION_DELETE,
        subresources: &[core("finalize", "Namespace", &["update"]), core("status", "Namespace", STATUS_VERBS)],
        delete_returns_object: true,
        collection: "namespaces",
        fields: &[("status.phase", "status.phase")],
        rules: &rules::namespace::NamespaceRules,
        ..PLAIN
    },
    Kind {
        kind: "Node",
        plural: "nodes",
        singular: "node",
        short_names: &["no"],
        namespaced: false,
        subresources: &[core("status", "Node", STATUS_VERBS)],
        collection: "nodes",
        fields: &[("spec.unschedulable", "spec.unschedulable")],
        rules: &rules::node::NodeRules,
        ..PLAIN
    },
    Kind {
        kind: "Pod",
        plural: "pods",
        singular: "pod",
        short_names: &["po"],
        categories: &["all"],
        subresources: &[
            core("attach", "PodAttachOptions", &["create", "get"]),
            core("binding", "Binding", &["create"]),
            Subresource { name: "eviction", kind: "Eviction", group: "policy", version: "v1", verbs: &["create"] },
            core("exec", "PodExecOptions", &["create", "get"]),
            core("log", "Pod", &["get"]),
            core("status", "Pod", STATUS_VERBS),
        ],
        has_generation: true,
        graceful_delete: true,
        delete_returns_object: true,
        collection: "pods",
        fields: &[
            ("spec.nodeName", "spec.nodeName"),
            ("spec.host", "spec.nodeName"),
            ("spec.restartPolicy", "spec.restartPolicy"),
            ("spec.schedulerName", "spec.schedulerName"),
            ("spec.serviceAccountName", "spec.serviceAccountName"),
            ("spec.hostNetwork", "spec.hostNetwork"),
            ("status.phase", "status.phase"),
            ("status.podIP", "status.podIP"),
            ("status.podIPs", ""),
            ("status.nominatedNodeName", "status.nominatedNodeName"),
        ],
        rules: &rules::pod::PodRules,
        ..PLAIN
    },
    Kind {
        kind: "Secret",
        plural: "secrets",
        singular: "secret",
        collection: "secrets",
        fields: &[("type", "type")],
        rules: &rules::data::SecretRules,
        ..PLAIN
    },
    Kind {
        kind: "ServiceAccount",
        plural: "serviceaccounts",
        singular: "serviceaccount",
        short_names: &["sa"],
        delete_returns_object: true,
        collection: "serviceaccounts",
        rules: &rules::account::ServiceAccountRules,
        ..PLAIN
    },
    Kind {
        group: "coordination.k8s.io",
        kind: "Lease",
        plural: "leases",
        singular: "lease",
        create_on_update: true,
        update_needs_version: true,
        collection: "leases.coordination.k8s.io",
        rules: &rules::lease::LeaseRules,
        ..PLAIN
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_row_is_reachable_by_path_and_by_kind_and_owns_its_collection() {
        let mut collections = BTreeSet::new();
        for kind in KINDS {
            assert_eq!(find(kind.group, kind.version, kind.plural), Some(kind));
            assert_eq!(by_kind(kind.group, kind.version, kind.kind), Some(kind));
            assert!(!kind.collection.is_empty() && collections.insert(kind.collection), "{kind:?}");
        }
        assert!(find("", "v1", "podz").is_none());
    }

    #[test]
    fn words_are_built_as_the_wire_spells_them() {
        let lease = find("coordination.k8s.io", "v1", "leases").expect("leases are served");
        assert_eq!(lease.api_version(), "coordination.k8s.io/v1");
        assert_eq!(lease.list_kind(), "LeaseList");
        assert_eq!(lease.collection(), "leases.coordination.k8s.io");
        let pods = find("", "v1", "pods").expect("pods are served");
        assert_eq!(pods.api_version(), "v1");
        assert_eq!(pods.subresource("eviction").map(|s| s.group), Some("policy"));
    }
}
