//! Finds fields in objects: which ones an object has ([`fields_of`]), and which ones differ between two ([`compare`]).
//!
//! How far ownership reaches into a value is a [`Node`], read off [`crate::schema`]: objects are owned field by field,
//! keyed lists element by element, everything atomic as a whole.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::set::FieldSet;
use crate::schema::{Field, Message, Presence, Shape, Type};

/// Metadata nobody owns: the server writes it, or it cannot change.
const UNOWNED_METADATA: &[&str] = &[
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "name",
    "namespace",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// A value that is there, and empty.
static EMPTY: Value = Value::Null;

/// The part of an object that a write may own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Everything but the status.
    Main,
    /// Everything but the spec.
    Status,
}

impl Scope {
    pub(crate) fn of(subresource: Option<&str>) -> Self {
        if subresource == Some("status") { Self::Status } else { Self::Main }
    }

    /// Whether a field at the top of an object is out of scope.
    pub(crate) fn skips(self, key: &str) -> bool {
        let other = match self {
            Self::Main => "status",
            Self::Status => "spec",
        };
        key == other || key == "apiVersion" || key == "kind"
    }
}

/// How a value is owned.
#[derive(Clone, Copy)]
pub(crate) enum Node {
    /// As a whole.
    Leaf,
    /// By its known fields.
    Struct(&'static Message),
    /// By its keys.
    Map(Type),
    /// By its values.
    Set,
    /// By its elements, told apart by these fields.
    Keyed(&'static [&'static str], &'static Message),
}

impl Node {
    pub(crate) fn of_field(field: &'static Field) -> Self {
        match field.shape {
            Shape::One { atomic: false } => Self::of_type(field.of),
            Shape::Map { atomic: false } => Self::Map(field.of),
            Shape::Set => Self::Set,
            Shape::Keyed(keys) => field.message().map_or(Self::Leaf, |message| Self::Keyed(keys, message)),
            Shape::One { atomic: true } | Shape::Map { atomic: true } | Shape::List | Shape::Inline => Self::Leaf,
        }
    }

    fn of_type(of: Type) -> Self {
        of.message().map_or(Self::Leaf, Self::of_message)
    }

    /// An object of `message`, which may ask to be owned as a whole.
    pub(crate) fn of_message(message: &'static Message) -> Self {
        if message.atomic { Self::Leaf } else { Self::Struct(message) }
    }

    /// The value below a key of an object or a map.
    pub(crate) fn below(self, key: &str) -> Self {
        match self {
            Self::Struct(message) => message.field(key).map_or(Self::Leaf, Self::of_field),
            Self::Map(of) => Self::of_type(of),
            Self::Leaf | Self::Set | Self::Keyed(..) => Self::Leaf,
        }
    }
}

/// The step to an element of a keyed list. A key the element lacks has its default, if it has one.
pub(crate) fn key_step(keys: &[&str], message: &'static Message, element: &Value) -> String {
    let mut named = BTreeMap::new();
    for &key in keys {
        if let Some(value) = element.get(key) {
            named.insert(key, value.to_string());
        } else if let Some(default) = message.field(key).and_then(|field| field.default) {
            named.insert(key, Value::from(default).to_string());
        }
    }
    let named: Vec<String> = named.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
    format!("k:{{{}}}", named.join(","))
}

/// The step to an element of a set.
pub(crate) fn value_step(element: &Value) -> String {
    format!("v:{element}")
}

/// The step to a field, or to a key of a map.
pub(crate) fn field_step(key: &str) -> String {
    format!("f:{key}")
}

/// What differs between two objects.
#[derive(Debug, Default)]
pub(crate) struct Change {
    pub(crate) added: FieldSet,
    pub(crate) modified: FieldSet,
    pub(crate) removed: FieldSet,
}

impl Change {
    pub(crate) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    fn attach(&mut self, step: &str, below: Self) {
        self.added.attach(step, below.added);
        self.modified.attach(step, below.modified);
        self.removed.attach(step, below.removed);
    }
}

/// What differs between two objects of `message`, as far as anybody may own it.
pub(crate) fn compare(message: &'static Message, scope: Scope, old: &Value, new: &Value) -> Change {
    let mut change = Change::default();
    for key in keys_of(old, new).filter(|key| !scope.skips(key)) {
        let (below, old, new) = children(Node::Struct(message), key, Some(old), Some(new));
        let found = if key == "metadata" {
            let (old, new) = (old.unwrap_or(&EMPTY), new.unwrap_or(&EMPTY));
            let keys = keys_of(old, new).filter(|key| !UNOWNED_METADATA.contains(&key.as_str()));
            compare_keys(below, keys, Some(old), Some(new))
        } else {
            compare_node(below, old, new)
        };
        change.attach(&field_step(key), found);
    }
    change
}

fn compare_node(node: Node, old: Option<&Value>, new: Option<&Value>) -> Change {
    if old == new {
        return Change::default();
    }
    match node {
        Node::Leaf => compare_leaf(old, new),
        Node::Struct(_) | Node::Map(_) if is_object(old) && is_object(new) => {
            if is_empty(old) && is_empty(new) {
                return compare_leaf(old.map(|_| &EMPTY), new.map(|_| &EMPTY));
            }
            let keys = keys_of(old.unwrap_or(&EMPTY), new.unwrap_or(&EMPTY));
            with_ends(compare_keys(node, keys, old, new), old, new)
        }
        Node::Struct(_) | Node::Map(_) => compare_leaf(old, new),
        Node::Set | Node::Keyed(..) => match (list(old), list(new)) {
            (Some(old_list), Some(new_list)) if !(old_list.is_empty() && new_list.is_empty()) => {
                with_ends(compare_lists(node, old_list, new_list), old, new)
            }
            (Some(_), Some(_)) => compare_leaf(old.map(|_| &EMPTY), new.map(|_| &EMPTY)),
            _ => compare_leaf(old, new),
        },
    }
}

fn compare_leaf(old: Option<&Value>, new: Option<&Value>) -> Change {
    let mut change = Change::default();
    match (old, new) {
        (None, Some(_)) => change.added.member = true,
        (Some(_), None) => change.removed.member = true,
        (old, new) => change.modified.member = old != new,
    }
    change
}

/// A whole object or list that came or went did so itself, besides what was in it.
fn with_ends(mut change: Change, old: Option<&Value>, new: Option<&Value>) -> Change {
    change.added.member = old.is_none();
    change.removed.member = new.is_none();
    change
}

fn compare_keys<'a>(
    node: Node,
    keys: impl Iterator<Item = &'a String>,
    old: Option<&'a Value>,
    new: Option<&'a Value>,
) -> Change {
    let mut change = Change::default();
    for key in keys {
        let (below, old, new) = children(node, key, old, new);
        let found = compare_node(below, old, new);
        if !found.is_empty() {
            change.attach(&field_step(key), found);
        }
    }
    change
}

/// The values below `key`. A part that every sender writes, empty or not, is never missing where its parent is there.
fn children<'a>(
    node: Node,
    key: &str,
    old: Option<&'a Value>,
    new: Option<&'a Value>,
) -> (Node, Option<&'a Value>, Option<&'a Value>) {
    let field = match node {
        Node::Struct(message) => message.field(key),
        Node::Leaf | Node::Map(_) | Node::Set | Node::Keyed(..) => None,
    };
    let below = match (node, field) {
        (Node::Struct(_), field) => field.map_or(Node::Leaf, Node::of_field),
        (node, _) => node.below(key),
    };
    let is_always = field.is_some_and(|field| field.presence == Presence::Always) && !matches!(below, Node::Leaf);
    let child = |parent: Option<&'a Value>| {
        let found = parent.and_then(|parent| parent.get(key));
        found.or_else(|| (is_always && parent.is_some()).then_some(&EMPTY))
    };
    (below, child(old), child(new))
}

fn compare_lists(node: Node, old: &[Value], new: &[Value]) -> Change {
    let (old, new) = (elements(node, old), elements(node, new));
    let mut change = Change::default();
    for (step, new) in &new {
        let found = match (old.get(step).map(Vec::as_slice), new.as_slice()) {
            (None, [new]) => compare_node(element_node(node), None, Some(new)),
            (Some([old]), [new]) => compare_node(element_node(node), Some(old), Some(new)),
            // Elements that share a key cannot be told apart, so they are owned together.
            (old, new) => Change {
                added: if old.is_none() { FieldSet::leaf() } else { FieldSet::default() },
                modified: if old.is_some_and(|old| old != new) { FieldSet::leaf() } else { FieldSet::default() },
                removed: FieldSet::default(),
            },
        };
        change.attach(step, found);
    }
    for (step, old) in old.iter().filter(|(step, _)| !new.contains_key(*step)) {
        let found = match old.as_slice() {
            [old] => compare_node(element_node(node), Some(old), None),
            _ => Change { removed: FieldSet::leaf(), ..Change::default() },
        };
        change.attach(step, found);
    }
    change
}

/// The elements of a keyed list or a set, by their step.
pub(crate) fn elements(node: Node, list: &[Value]) -> BTreeMap<String, Vec<&Value>> {
    let mut elements: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    for element in list {
        elements.entry(element_step(node, element)).or_default().push(element);
    }
    elements
}

/// The step to an element of a list that is owned element by element.
pub(crate) fn element_step(node: Node, element: &Value) -> String {
    match node {
        Node::Keyed(keys, message) => key_step(keys, message, element),
        Node::Leaf | Node::Struct(_) | Node::Map(_) | Node::Set => value_step(element),
    }
}

/// How the elements of a list are owned.
pub(crate) fn element_node(list: Node) -> Node {
    match list {
        Node::Keyed(_, message) => Node::of_message(message),
        Node::Leaf | Node::Struct(_) | Node::Map(_) | Node::Set => Node::Leaf,
    }
}

/// Every field an object of `message` has, as far as anybody may own it.
pub(crate) fn fields_of(message: &'static Message, scope: Scope, object: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    for (key, value) in object.as_object().into_iter().flatten().filter(|(key, _)| !scope.skips(key)) {
        let below = Node::Struct(message).below(key);
        if key == "metadata" {
            let mut metadata = FieldSet::default();
            let owned = |(key, _): &(&String, &Value)| !UNOWNED_METADATA.contains(&key.as_str());
            for (key, value) in value.as_object().into_iter().flatten().filter(owned) {
                metadata.attach(field_step(key), fields(below.below(key), value));
            }
            set.attach(field_step(key), metadata);
        } else {
            set.attach(field_step(key), fields(below, value));
        }
    }
    set
}

/// Every field of a value, whatever it is about.
pub(crate) fn fields(node: Node, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    match (node, value) {
        (Node::Struct(_) | Node::Map(_), Value::Object(object)) if !object.is_empty() => {
            for (key, value) in object {
                let mut below = fields(node.below(key), value);
                // The keys of a map are somebody's choice, the fields of an object are not.
                below.member |= matches!(node, Node::Map(_));
                set.attach(field_step(key), below);
            }
        }
        (Node::Set | Node::Keyed(..), Value::Array(list)) => {
            for element in list {
                let mut below = fields(element_node(node), element);
                below.member = true;
                set.attach(element_step(node, element), below);
            }
        }
        (Node::Leaf | Node::Struct(_) | Node::Map(_) | Node::Set | Node::Keyed(..), _) => set.member = true,
    }
    set
}

/// The same set with every known field above a member made a member too, so that a field all of whose parts go, goes.
pub(crate) fn with_known_fields(mut set: FieldSet, node: Node) -> FieldSet {
    add_known_fields(&mut set, node);
    set
}

fn add_known_fields(set: &mut FieldSet, node: Node) {
    for (step, child) in set.children_mut() {
        let below = match (node, step.strip_prefix("f:")) {
            (Node::Struct(_) | Node::Map(_), Some(key)) => {
                child.member |= matches!(node, Node::Struct(message) if message.field(key).is_some());
                node.below(key)
            }
            _ => element_node(node),
        };
        add_known_fields(child, below);
    }
}

fn keys_of<'a>(old: &'a Value, new: &'a Value) -> impl Iterator<Item = &'a String> {
    let (old, new) = (old.as_object(), new.as_object());
    let only_old = old.into_iter().flatten().filter(move |(key, _)| new.is_none_or(|new| !new.contains_key(*key)));
    new.into_iter().flatten().chain(only_old).map(|(key, _)| key)
}

/// Whether a value is an object; what is absent or null is an empty one.
fn is_object(value: Option<&Value>) -> bool {
    value.is_none_or(|value| value.is_object() || value.is_null())
}

fn is_empty(value: Option<&Value>) -> bool {
    value.and_then(Value::as_object).is_none_or(Map::is_empty)
}

/// The list a value is; what is absent or null is an empty one.
fn list(value: Option<&Value>) -> Option<&[Value]> {
    match value {
        None | Some(Value::Null) => Some(&[]),
        Some(value) => value.as_array().map(Vec::as_slice),
    }
}
