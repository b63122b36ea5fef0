//! The table of kinds we serve. Routing, discovery, tables and rules all read it; a new kind is a row here plus
//! its [`crate::rules`].

use std::fmt;

use serde_json::Value;

use crate::deletion::Propagation;
use crate::rules::Rules;

mod table;

pub use table::KINDS;
pub(crate) use table::SCALE;

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
    /// What becomes of dependents when neither the request nor a finalizer says; `None`: the collector leaves the
    /// kind alone.
    pub propagation: Option<Propagation>,
    /// Whether a PUT to a free name creates.
    pub create_on_update: bool,
    /// Whether a PUT without a resource version is refused.
    pub update_needs_version: bool,
    /// What a client is told, with every answer, who still uses the kind.
    pub deprecated: Option<&'static str>,
    /// Another face of objects that are stored as another kind.
    pub face: Option<&'static Face>,
    pub(crate) collection: &'static str,
    /// Field selectors beyond `metadata.name` and `metadata.namespace`, each with the path it reads.
    pub(crate) fields: &'static [(&'static str, &'static str)],
    pub(crate) rules: &'static dyn Rules,
}

/// How a kind that is only another face of a stored kind is read and written.
pub struct Face {
    /// Group, version and plural of the kind that is stored.
    pub(crate) of: (&'static str, &'static str, &'static str),
    /// A stored object as it is shown here.
    pub(crate) shown: fn(&Value) -> Value,
    /// What was sent here as it is stored.
    pub(crate) stored: fn(Value) -> Value,
    /// Puts back what the stored kind has and this one cannot say.
    pub(crate) keep: fn(&Value, &mut Value),
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

    /// The kind whose rules hold for what is stored: itself, unless it is only a face.
    pub fn stored_kind(&'static self) -> &'static Self {
        self.face.and_then(|face| find(face.of.0, face.of.1, face.of.2)).unwrap_or(self)
    }

    /// A decoded object as it is stored.
    pub fn to_stored(&self, object: Value) -> Value {
        match self.face {
            Some(face) => (face.stored)(object),
            None => object,
        }
    }

    /// The same for what takes the place of `old`: what this face cannot say stays as it is.
    pub fn to_successor(&self, old: &Value, object: Value) -> Value {
        let mut stored = self.to_stored(object);
        if let Some(face) = self.face {
            (face.keep)(old, &mut stored);
        }
        stored
    }

    /// A stored object as this kind shows it; `None` when that is as it is stored.
    pub fn to_shown(&self, object: &Value) -> Option<Value> {
        self.face.map(|face| (face.shown)(object))
    }

    /// Whether objects of this kind are kept, rather than answered.
    pub fn is_stored(&self) -> bool {
        self.verbs.contains(&"list")
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

/// What `serviceaccounts/token` speaks; it has no path of its own.
pub fn token_request() -> &'static Kind {
    &table::TOKEN_REQUEST
}

/// The kind an object names with `apiVersion` and `kind`.
pub fn by_kind(group: &str, version: &str, kind: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|k| k.group == group && k.version == version && k.kind == kind)
}

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
            assert!(!kind.collection.is_empty());
            assert!(kind.face.is_some() || collections.insert(kind.collection), "{kind:?}");
            assert_eq!(kind.stored_kind().collection, kind.collection);
        }
        assert!(find("", "v1", "podz").is_none());
    }

    #[test]
    fn kind_names_are_built_as_the_api_spells_them() {
        let lease = find("coordination.k8s.io", "v1", "leases").expect("leases are served");
        assert_eq!(lease.api_version(), "coordination.k8s.io/v1");
        assert_eq!(lease.list_kind(), "LeaseList");
        assert_eq!(lease.collection(), "leases.coordination.k8s.io");
        let pods = find("", "v1", "pods").expect("pods are served");
        assert_eq!(pods.api_version(), "v1");
        assert_eq!(pods.subresource("eviction").map(|s| s.group), Some("policy"));
    }
}
