//! The kinds that are served, and what may be done with each. Routing, discovery, tables and rules all ask a
//! [`Registry`]: the built-in kinds are rows of a table, others are added and removed while the server runs.
//!
//! A kind is its group and resource, never a place in memory: the same kind may be added again.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use serde_json::Value;

use crate::deletion::Propagation;
use crate::rules::Rules;
use crate::schema::{self, Message};

mod custom;
mod registry;
mod table;

pub use custom::{CustomKind, DefinitionError};
pub use registry::{RefusedKind, Registry};

/// What a kind is called.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// API group; `""` is the core group.
    pub group: String,
    /// API version inside the group.
    pub version: String,
    /// `Pod`.
    pub kind: String,
    /// `pods`: the word in the path.
    pub plural: String,
    /// `pod`.
    pub singular: String,
    /// `po`.
    pub short_names: Vec<String>,
    /// `all`: groups of kinds that `kubectl get` knows by one word.
    pub categories: Vec<String>,
}

/// One served kind: its names, what may be done with it, and (privately) its rules.
pub struct Kind {
    /// API group; `""` is the core group.
    pub group: String,
    /// API version inside the group.
    pub version: String,
    /// `Pod`.
    pub kind: String,
    /// `pods`: the word in the path.
    pub plural: String,
    /// `pod`.
    pub singular: String,
    /// `po`.
    pub short_names: Vec<String>,
    /// `all`: groups of kinds that `kubectl get` knows by one word.
    pub categories: Vec<String>,
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// Verbs of the main resource, in discovery order.
    pub verbs: &'static [&'static str],
    /// What else can be reached below an object.
    pub subresources: Vec<Subresource>,
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
    pub deprecated: Option<String>,
    /// Another face of objects that are stored as another kind.
    pub face: Option<&'static Face>,
    /// The kind that is stored, if this is only a face of it.
    stored_as: Option<Arc<Kind>>,
    collection: Arc<str>,
    api_version: String,
    list_kind: String,
    /// Field selectors beyond `metadata.name` and `metadata.namespace`, each with the path it reads.
    pub(crate) fields: Vec<(Cow<'static, str>, Cow<'static, str>)>,
    /// What is published about its fields; nothing for kinds that are added.
    pub(crate) message: Option<&'static Message>,
    pub(crate) rules: KindRules,
}

/// The rules of a kind: a built-in kind's last as long as the program, an added kind brings its own.
#[derive(Clone)]
pub(crate) enum KindRules {
    BuiltIn(&'static dyn Rules),
    Added(Arc<dyn Rules>),
}

impl Deref for KindRules {
    type Target = dyn Rules;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::BuiltIn(rules) => *rules,
            Self::Added(rules) => &**rules,
        }
    }
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subresource {
    /// `log`.
    pub name: Cow<'static, str>,
    /// The kind it speaks.
    pub kind: Cow<'static, str>,
    /// The group of that kind.
    pub group: Cow<'static, str>,
    /// The version of that kind.
    pub version: Cow<'static, str>,
    /// What may be done with it.
    pub verbs: &'static [&'static str],
}

impl Kind {
    /// A kind without particulars.
    fn plain(names: Names, collection: &str, rules: KindRules) -> Self {
        let Names { group, version, kind, plural, singular, short_names, categories } = names;
        Self {
            namespaced: true,
            verbs: table::ALL_VERBS,
            subresources: Vec::new(),
            has_generation: false,
            graceful_delete: false,
            delete_returns_object: false,
            propagation: Some(Propagation::Background),
            create_on_update: false,
            update_needs_version: false,
            deprecated: None,
            face: None,
            stored_as: None,
            collection: collection.into(),
            api_version: group_version(&group, &version),
            list_kind: format!("{kind}List"),
            fields: Vec::new(),
            message: schema::message_of(&group, &version, &kind),
            rules,
            group,
            version,
            kind,
            plural,
            singular,
            short_names,
            categories,
        }
    }

    /// `v1`, or `coordination.k8s.io/v1`.
    pub fn api_version(&self) -> &str {
        &self.api_version
    }

    /// The store's collection: `pods`, or `leases.coordination.k8s.io`.
    pub fn collection(&self) -> &str {
        &self.collection
    }

    /// The same, shared.
    pub fn shared_collection(&self) -> Arc<str> {
        Arc::clone(&self.collection)
    }

    /// The kind whose rules hold for what is stored: itself, unless it is only a face.
    pub fn stored_kind(self: &Arc<Self>) -> &Arc<Self> {
        self.stored_as.as_ref().unwrap_or(self)
    }

    /// Whether it came while the server ran, and can go again.
    pub fn is_added(&self) -> bool {
        matches!(self.rules, KindRules::Added(_))
    }

    /// Whether its objects can be written as protobuf, which needs numbered fields.
    pub fn has_protobuf(&self) -> bool {
        self.message.is_some()
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
    pub fn list_kind(&self) -> &str {
        &self.list_kind
    }

    /// The resource as error texts name it: `pods`, or `leases.coordination.k8s.io`.
    pub fn resource(&self) -> String {
        self.collection.as_ref().to_owned()
    }

    /// The subresource called `name`.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kind({} {})", self.api_version(), self.kind)
    }
}

impl PartialEq for Kind {
    /// A kind is what it is called, wherever and however often it was made.
    fn eq(&self, other: &Self) -> bool {
        (&self.plural, &self.group, &self.version) == (&other.plural, &other.group, &other.version)
    }
}

impl Eq for Kind {}

/// `v1`, or `apps/v1`.
pub(crate) fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// The built-in kind served below `/apis/{group}/{version}/.../{plural}` (or `/api/{version}` for the core group). It
/// is in every registry, for ever.
pub fn built_in(group: &str, version: &str, plural: &str) -> Option<&'static Arc<Kind>> {
    Registry::built_in().find(group, version, plural)
}

/// What `serviceaccounts/token` speaks; it has no path of its own.
pub fn token_request() -> &'static Kind {
    static KIND: LazyLock<Kind> = LazyLock::new(|| table::TOKEN_REQUEST.to_kind(None));
    &KIND
}

/// What `scale` speaks; it has no path of its own.
pub(crate) fn scale() -> &'static Kind {
    static KIND: LazyLock<Kind> = LazyLock::new(|| table::SCALE.to_kind(None));
    &KIND
}

#[cfg(test)]
mod tests;
