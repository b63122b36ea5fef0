//! Refuses a document that cannot be owned field by field: unknown fields, wrong shapes, elements nobody can tell apart.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::managed_fields::walk::{self, Node};
use crate::schema::Message;

/// Drops fields that are null: saying nothing, and saying "nothing", are the same wish.
pub(super) fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.retain(|_, value| !value.is_null());
            object.values_mut().for_each(drop_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(drop_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// `Err` with the first mistake, and where it is.
pub(super) fn fits(message: &'static Message, document: &Value) -> Result<(), String> {
    fits_node(Node::Struct(message), document, &mut String::new())
}

fn fits_node(node: Node, value: &Value, path: &mut String) -> Result<(), String> {
    let length = path.len();
    match (node, value) {
        (Node::Leaf, _) => {}
        (Node::Struct(_) | Node::Map(_), Value::Object(object)) => {
            for (key, value) in object {
                path.push('.');
                path.push_str(key);
                if matches!(node, Node::Struct(message) if message.field(key).is_none()) {
                    return Err(format!("{path}: field not declared in schema"));
                }
                fits_node(node.below(key), value, path)?;
                path.truncate(length);
            }
        }
        (Node::Set | Node::Keyed(..), Value::Array(list)) => {
            let mut seen = BTreeSet::new();
            for element in list {
                let step = walk::element_step(node, element);
                let shown = shown_step(&step);
                if step == "k:{}" {
                    return Err(format!(
                        "{path}: element {}: associative list with keys has an element that omits \
                         all key fields",
                        seen.len()
                    ));
                }
                if !seen.insert(step) {
                    return Err(format!("{path}: duplicate entries for key {shown}"));
                }
                path.push_str(&shown);
                fits_node(walk::element_node(node), element, path)?;
                path.truncate(length);
            }
        }
        (Node::Struct(_) | Node::Map(_), other) => return Err(format!("{path}: expected map, got &{{{other}}}")),
        (Node::Set | Node::Keyed(..), other) => return Err(format!("{path}: expected list, got &{{{other}}}")),
    }
    Ok(())
}

fn shown_step(step: &str) -> String {
    let mut set = crate::managed_fields::set::FieldSet::default();
    set.attach(step, crate::managed_fields::set::FieldSet::leaf());
    set.paths().concat()
}
