//! A set of fields, as a tree: what `fieldsV1` says on the wire.
//!
//! ```text
//!  {"f:spec": {"f:containers": {"k:{\"name\":\"a\"}": {".": {}, "f:image": {}}}}}
//! ```
//!
//! A step is `f:<field>`, `k:<the keys of a list element>`, `v:<a value of a list>` or `i:<an index>`; `.` says that
//! the node itself is in the set, besides what is below it. Steps stay in their wire form: they are compared far more
//! often than they are taken apart.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// A node of the tree; the root stands for the object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSet {
    /// Whether this very path is in the set.
    pub(crate) member: bool,
    /// No child is empty.
    children: BTreeMap<String, FieldSet>,
}

impl FieldSet {
    /// The set of just this path.
    pub(crate) fn leaf() -> Self {
        Self { member: true, children: BTreeMap::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }

    /// Adds everything in `below`, one step down.
    pub(crate) fn attach(&mut self, step: impl Into<String>, below: Self) {
        if !below.is_empty() {
            let step = step.into();
            match self.children.get_mut(&step) {
                Some(child) => child.unite(&below),
                None => drop(self.children.insert(step, below)),
            }
        }
    }

    pub(crate) fn child(&self, step: &str) -> Option<&Self> {
        self.children.get(step)
    }

    pub(crate) fn children_mut(&mut self) -> impl Iterator<Item = (&String, &mut Self)> {
        self.children.iter_mut()
    }

    /// Adds everything in `other`.
    pub(crate) fn unite(&mut self, other: &Self) {
        self.member |= other.member;
        for (step, theirs) in &other.children {
            match self.children.get_mut(step) {
                Some(ours) => ours.unite(theirs),
                None => drop(self.children.insert(step.clone(), theirs.clone())),
            }
        }
    }

    /// Takes out exactly the paths in `other`; what is below them stays.
    pub(crate) fn subtract(&mut self, other: &Self) {
        self.member &= !other.member;
        for (step, theirs) in &other.children {
            if let Some(ours) = self.children.get_mut(step) {
                ours.subtract(theirs);
                if ours.is_empty() {
                    self.children.remove(step);
                }
            }
        }
    }

    /// The paths that are in both.
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let mut both = Self { member: self.member && other.member, children: BTreeMap::new() };
        for (step, ours) in &self.children {
            if let Some(theirs) = other.children.get(step) {
                both.attach(step.as_str(), ours.intersection(theirs));
            }
        }
        both
    }

    /// Every path, as people read it: `.spec.containers[name="a"].image`.
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect(&mut String::new(), &mut paths);
        paths
    }

    fn collect(&self, path: &mut String, paths: &mut Vec<String>) {
        if self.member {
            paths.push(path.clone());
        }
        let length = path.len();
        for (step, child) in &self.children {
            path.push_str(&shown(step));
            child.collect(path, paths);
            path.truncate(length);
        }
    }

    /// Reads `fieldsV1`; `None` if it is none.
    pub(crate) fn from_json(value: &Value) -> Option<Self> {
        if value.is_null() {
            return Some(Self::default());
        }
        Self::read(value, true)
    }

    fn read(value: &Value, is_root: bool) -> Option<Self> {
        let object = value.as_object()?;
        let mut set = Self { member: !is_root && object.is_empty(), children: BTreeMap::new() };
        for (step, below) in object {
            if step == "." {
                set.member = true;
            } else if matches!(step.as_bytes(), [b'f' | b'k' | b'v' | b'i', b':', ..]) {
                set.children.insert(step.clone(), Self::read(below, false)?);
            } else {
                return None;
            }
        }
        Some(set)
    }

    /// The wire form.
    pub(crate) fn into_json(self) -> Value {
        let mut object = Map::new();
        if self.member && !self.children.is_empty() {
            object.insert(".".to_owned(), Value::Object(Map::new()));
        }
        object.extend(self.children.into_iter().map(|(step, child)| (step, child.into_json())));
        Value::Object(object)
    }
}

/// One step as people read it.
fn shown(step: &str) -> String {
    let Some((kind, rest)) = step.split_once(':') else { return step.to_owned() };
    match kind {
        "f" => format!(".{rest}"),
        "v" => format!("[={rest}]"),
        "k" => {
            let keys: Map<String, Value> = serde_json::from_str(rest).unwrap_or_default();
            let keys: Vec<String> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!("[{}]", keys.join(","))
        }
        _ => format!("[{rest}]"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    fn set(value: Value) -> FieldSet {
        FieldSet::from_json(&value).unwrap()
    }

    #[test]
    fn the_wire_form_is_read_and_written_back() {
        let wire = json!({
            "f:metadata": {"f:labels": {".": {}, "f:app": {}}, "f:finalizers": {"v:\"x/y\"": {}}},
            "f:spec": {"f:containers": {"k:{\"name\":\"a\"}": {".": {}, "f:image": {}}}},
        });
        assert_eq!(set(wire.clone()).into_json(), wire);
        assert!(set(json!({})).is_empty());
        assert_eq!(FieldSet::from_json(&json!({"x:a": {}})), None);
        assert_eq!(FieldSet::from_json(&json!({"f:a": 1})), None);
    }

    #[test]
    fn sets_obey_their_algebra() {
        let mut a = set(json!({"f:a": {}, "f:b": {".": {}, "f:c": {}}}));
        let b = set(json!({"f:b": {"f:c": {}, "f:d": {}}}));
        assert_eq!(a.intersection(&b).into_json(), json!({"f:b": {"f:c": {}}}));
        let mut without = a.clone();
        without.subtract(&b);
        assert_eq!(without.into_json(), json!({"f:a": {}, "f:b": {}}), "b itself stays");
        a.unite(&b);
        assert_eq!(a.clone().into_json(), json!({"f:a": {}, "f:b": {".": {}, "f:c": {}, "f:d": {}}}));
        a.subtract(&a.clone());
        assert!(a.is_empty());
    }

    #[test]
    fn paths_read_as_people_write_them() {
        let wire = json!({
            "f:spec": {"f:containers": {"k:{\"name\":\"a\"}": {
                "f:image": {}, "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {}},
            }}},
            "f:metadata": {"f:finalizers": {"v:\"x\"": {}}},
        });
        assert_eq!(
            set(wire).paths(),
            [
                ".metadata.finalizers[=\"x\"]",
                ".spec.containers[name=\"a\"].image",
                ".spec.containers[name=\"a\"].ports[containerPort=80,protocol=\"TCP\"]",
            ]
        );
    }
}
