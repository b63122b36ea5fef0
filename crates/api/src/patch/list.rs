//! How strategic merge puts two lists together: elements matched by key, directives obeyed, the order kept sensible.
//!
//! The order: elements the patch names follow the patch (or its `$setElementOrder`), the others keep theirs, and where
//! both have a place in the original list, the original decides who goes first.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::strategic::{Directive, merged_object, take_directive};
use super::unprocessable;
use crate::schema::Message;
use crate::status::Status;

/// What a patch says about one list.
#[derive(Clone, Default)]
pub(super) struct ListPatch {
    /// Elements to merge in.
    pub(super) items: Vec<Value>,
    /// Scalars to take out.
    pub(super) delete: Vec<Value>,
    /// The order asked for; elements of a keyed list are named by their key.
    pub(super) order: Option<Vec<Value>>,
}

/// A list of scalars as a set: what is new is added, what is to go is taken out.
pub(super) fn merged_scalars(original: Vec<Value>, change: ListPatch) -> Result<Vec<Value>, Status> {
    let ListPatch { items, delete, order } = change;
    if items.iter().any(|item| item.is_array() || item.is_object()) {
        return Err(unprocessable());
    }
    let before = original.clone();
    let gone: HashSet<String> = delete.iter().map(Value::to_string).collect();
    let mut merged = original;
    merged.extend(items.iter().cloned());
    let mut seen = HashSet::new();
    merged.retain(|item| seen.insert(item.to_string()) && !gone.contains(&item.to_string()));
    Ok(ordered(merged, &order.unwrap_or(items), &before, &Identity::Value))
}

/// A list of objects, matched by `key`: known ones are merged, new ones added, marked ones deleted.
pub(super) fn merged_objects(
    original: Vec<Value>,
    change: ListPatch,
    key: &'static str,
    message: Option<&'static Message>,
) -> Result<Vec<Value>, Status> {
    let identity = Identity::Key(key);
    let before = original.clone();
    let Sorted { items, deleted, replace } = Sorted::by_directive(change.items, key)?;
    if let Some(order) = &change.order {
        check_order(&items, order, &identity)?;
    }
    let mut merged = if replace { Vec::new() } else { original };
    merged.retain(|item| !deleted.contains(&identity.of(item)));
    let mut places: HashMap<String, usize> = HashMap::new();
    for (at, item) in merged.iter().enumerate() {
        places.entry(identity.of(item)).or_insert(at);
    }
    let mut patch_order = Vec::new();
    for item in items {
        patch_order.push(Value::Object(item.clone()));
        let name = identity.of(patch_order.last().unwrap_or(&Value::Null));
        match places.get(&name).and_then(|at| merged.get_mut(*at)) {
            Some(slot) => {
                let known = slot.as_object_mut().map(std::mem::take).unwrap_or_default();
                *slot = Value::Object(merged_object(known, item, message)?);
            }
            None => {
                places.insert(name, merged.len());
                merged.push(Value::Object(merged_object(Map::new(), item, message)?));
            }
        }
    }
    Ok(ordered(merged, &change.order.unwrap_or(patch_order), &before, &identity))
}

/// The elements of a patch, sorted by what they ask for.
#[derive(Default)]
struct Sorted {
    items: Vec<Map<String, Value>>,
    /// The keys of the elements that are to go.
    deleted: HashSet<String>,
    /// The patch replaces the list.
    replace: bool,
}

impl Sorted {
    fn by_directive(elements: Vec<Value>, key: &'static str) -> Result<Self, Status> {
        let mut sorted = Self::default();
        for element in elements {
            let Value::Object(mut item) = element else { return Err(unprocessable()) };
            let directive = take_directive(&mut item)?;
            if directive == Some(Directive::Replace) {
                sorted.replace = true;
                continue;
            }
            let Some(name) = item.get(key) else {
                // Upstream answers 500 here; the mistake is the client's, and repeating the request cannot help.
                let shown = go_words(&Value::Object(item));
                return Err(Status::bad_request(format!("map: {shown} does not contain declared merge key: {key}")));
            };
            match directive {
                Some(Directive::Delete) => drop(sorted.deleted.insert(name.to_string())),
                Some(Directive::Merge | Directive::Replace) | None => sorted.items.push(item),
            }
        }
        Ok(sorted)
    }
}

/// A value as upstream prints it: `map[image:x ports:[80]]`.
fn go_words(value: &Value) -> String {
    let joined = |words: Vec<String>| words.join(" ");
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(list) => format!("[{}]", joined(list.iter().map(go_words).collect())),
        Value::Object(map) => {
            let sorted: std::collections::BTreeMap<_, _> = map.iter().collect();
            format!(
                "map[{}]",
                joined(sorted.into_iter().map(|(key, own)| format!("{key}:{}", go_words(own))).collect())
            )
        }
        plain @ (Value::Bool(_) | Value::Number(_)) => plain.to_string(),
    }
}

/// The elements of a patch must be named by the order it asks for, and come in it.
fn check_order(items: &[Map<String, Value>], order: &[Value], identity: &Identity) -> Result<(), Status> {
    let mut expected = order.iter().map(|item| identity.of(item));
    for item in items {
        let name = identity.of_object(item);
        if !expected.any(|next| next == name) {
            let (items, order) = (Value::from(items.to_vec()), Value::from(order.to_vec()));
            let text = format!("The order in patch list:\n{items}\n doesn't match $setElementOrder list:\n{order}\n");
            return Err(Status::bad_request(text));
        }
    }
    Ok(())
}

/// What tells the elements of a list apart.
enum Identity {
    Value,
    Key(&'static str),
}

impl Identity {
    fn of(&self, item: &Value) -> String {
        match self {
            Self::Value => item.to_string(),
            Self::Key(key) => item.get(key).unwrap_or(&Value::Null).to_string(),
        }
    }

    fn of_object(&self, item: &Map<String, Value>) -> String {
        match self {
            Self::Value => Value::Object(item.clone()).to_string(),
            Self::Key(key) => item.get(*key).unwrap_or(&Value::Null).to_string(),
        }
    }

    fn places(&self, list: &[Value]) -> HashMap<String, usize> {
        list.iter().enumerate().rev().map(|(at, item)| (self.of(item), at)).collect()
    }
}

/// `merged` in its final order; `patch` is the order the patch asks for, `before` the order that was there.
fn ordered(merged: Vec<Value>, patch: &[Value], before: &[Value], identity: &Identity) -> Vec<Value> {
    let (patch, before) = (identity.places(patch), identity.places(before));
    let named = merged.into_iter().map(|item| (identity.of(&item), item));
    let (mut patched, mut others): (Vec<_>, Vec<_>) = named.partition(|(name, _)| patch.contains_key(name));
    patched.sort_by_key(|(name, _)| patch.get(name).copied());
    others.sort_by_key(|(name, _)| before.get(name).copied());
    let (mut patched, mut others) = (patched.into_iter().peekable(), others.into_iter().peekable());
    let mut out = Vec::with_capacity(patched.len() + others.len());
    loop {
        let other_first = match (patched.peek(), others.peek()) {
            (None, None) => return out,
            (None, Some(_)) => true,
            (Some(_), None) => false,
            (Some((patched, _)), Some((other, _))) => {
                matches!((before.get(other), before.get(patched)), (Some(other), Some(patched)) if other < patched)
            }
        };
        let next = if other_first { others.next() } else { patched.next() };
        out.extend(next.map(|(_, item)| item));
    }
}
