//! Strategic merge patch: a merge patch that knows which lists are keyed, and obeys directives (api-surface 15.2).
//!
//! ```text
//!  "$patch": "replace" | "merge" | "delete"     in an object, or in an element of a keyed list
//!  "$retainKeys": [..]                          drop every other key of the object first
//!  "$deleteFromPrimitiveList/x": [..]           take these out of the list x of scalars
//!  "$setElementOrder/x": [..]                   bring the list x into this order
//! ```
//!
//! Which list is keyed by what comes from [`crate::schema`]. The lists themselves are merged in [`super::list`]; this
//! file walks the objects.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::list::{self, ListPatch};
use super::{object_in, unprocessable};
use crate::schema::{Field, Message, Strategy};
use crate::status::Status;

/// Merges the object in `body` into `document`, a value of `message`.
pub(super) fn patch(message: Option<&'static Message>, document: &mut Value, body: &[u8]) -> Result<(), Status> {
    let change = object_in(body)?;
    let original = match document.take() {
        Value::Object(original) => original,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    };
    *document = Value::Object(merged_object(original, change, message)?);
    Ok(())
}

/// `original` changed by `change`; `message` says what is known about its fields.
pub(super) fn merged_object(
    mut original: Map<String, Value>,
    mut change: Map<String, Value>,
    message: Option<&'static Message>,
) -> Result<Map<String, Value>, Status> {
    match take_directive(&mut change)? {
        None | Some(Directive::Merge) => {}
        Some(Directive::Delete) => return Ok(Map::new()),
        Some(Directive::Replace) => original = Map::new(),
    }
    retain_keys(&mut original, &mut change)?;
    let lists = take_list_directives(&mut change)?;
    for (key, value) in change {
        let field = message.and_then(|message| message.field(&key));
        match value {
            Value::Null => drop(original.remove(&key)),
            Value::Object(change) => {
                let kept = match original.remove(&key) {
                    Some(Value::Object(object)) if !is_replaced(field) => object,
                    _ => Map::new(),
                };
                let merged = merged_object(kept, change, field.and_then(Field::message))?;
                original.insert(key, Value::Object(merged));
            }
            Value::Array(items) => {
                let directives = lists.get(&key);
                let change = ListPatch { items, ..directives.cloned().unwrap_or_default() };
                merge_list(&mut original, key, field, change)?;
            }
            scalar @ (Value::Bool(_) | Value::Number(_) | Value::String(_)) => drop(original.insert(key, scalar)),
        }
    }
    for (key, change) in lists {
        // A list that also has elements to merge has been dealt with above; going over it again changes nothing.
        let field = message.and_then(|message| message.field(&key));
        if original.get(&key).is_some_and(Value::is_array) && is_merged_list(field) {
            merge_list(&mut original, key, field, change)?;
        }
    }
    Ok(original)
}

fn merge_list(
    original: &mut Map<String, Value>,
    key: String,
    field: Option<&'static Field>,
    change: ListPatch,
) -> Result<(), Status> {
    let Some(Strategy::List(merge_key)) = field.map(|field| field.strategy) else {
        original.insert(key, Value::Array(change.items));
        return Ok(());
    };
    let items = match original.remove(&key) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    };
    let merged = if merge_key.is_empty() {
        list::merged_scalars(items, change)?
    } else {
        list::merged_objects(items, change, merge_key, field.and_then(Field::message))?
    };
    original.insert(key, Value::Array(merged));
    Ok(())
}

fn is_replaced(field: Option<&Field>) -> bool {
    field.is_some_and(|field| field.strategy == Strategy::Replace)
}

fn is_merged_list(field: Option<&Field>) -> bool {
    field.is_some_and(|field| matches!(field.strategy, Strategy::List(_)))
}

/// The value of `$patch`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Directive {
    Merge,
    Replace,
    Delete,
}

/// Takes `$patch` out of an object.
pub(super) fn take_directive(change: &mut Map<String, Value>) -> Result<Option<Directive>, Status> {
    match change.remove("$patch") {
        None => Ok(None),
        Some(word) => match word.as_str() {
            Some("merge") => Ok(Some(Directive::Merge)),
            Some("replace") => Ok(Some(Directive::Replace)),
            Some("delete") => Ok(Some(Directive::Delete)),
            Some(_) | None => Err(unprocessable()),
        },
    }
}

/// Obeys `$retainKeys`: everything the object has besides is dropped. The patch itself may name no other key.
fn retain_keys(original: &mut Map<String, Value>, change: &mut Map<String, Value>) -> Result<(), Status> {
    let Some(keys) = change.remove("$retainKeys") else { return Ok(()) };
    let keys: BTreeSet<String> = serde_json::from_value(keys)
        .map_err(|_not_a_list_of_words| Status::bad_request("invalid patch format of retainKeys"))?;
    let stray = |(key, value): (&String, &Value)| !key.starts_with('$') && !value.is_null() && !keys.contains(key);
    if change.iter().any(stray) {
        return Err(Status::bad_request("patch content doesn't match retainKeys list"));
    }
    original.retain(|key, _| keys.contains(key));
    Ok(())
}

/// Takes the directives about lists out of an object, by the name of the list.
fn take_list_directives(change: &mut Map<String, Value>) -> Result<BTreeMap<String, ListPatch>, Status> {
    let mut lists: BTreeMap<String, ListPatch> = BTreeMap::new();
    let directives: Vec<String> = change.keys().filter(|key| key.starts_with('$')).cloned().collect();
    for directive in directives {
        let value = change.remove(&directive);
        if let Some(name) = directive.strip_prefix("$deleteFromPrimitiveList/") {
            let Some(Value::Array(values)) = value else {
                return Err(Status::bad_request("invalid patch format of primitive list"));
            };
            lists.entry(name.to_owned()).or_default().delete = values;
        } else if let Some(name) = directive.strip_prefix("$setElementOrder/") {
            let Some(Value::Array(values)) = value else {
                return Err(Status::bad_request("invalid patch format of setElementOrder list"));
            };
            lists.entry(name.to_owned()).or_default().order = Some(values);
        } else if let Some(value) = value {
            // `$ref` and the like are ordinary fields.
            change.insert(directive, value);
        }
    }
    Ok(lists)
}

#[cfg(test)]
mod tests;
