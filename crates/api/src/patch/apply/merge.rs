//! Puts an applied document over a value, and takes fields out of a value again.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::managed_fields::set::FieldSet;
use crate::managed_fields::walk::{self, Node, element_node, element_step, field_step};

/// `wish` laid over `live`: objects and maps by key, keyed lists and sets by element, everything else replaced.
pub(super) fn merged(node: Node, live: Option<&Value>, wish: &Value) -> Value {
    match (node, live, wish) {
        (Node::Struct(_) | Node::Map(_), Some(Value::Object(live)), Value::Object(wish)) => {
            let mut object = live.clone();
            for (key, value) in wish {
                let value = merged(node.below(key), live.get(key), value);
                object.insert(key.clone(), value);
            }
            Value::Object(object)
        }
        (Node::Set | Node::Keyed(..), Some(Value::Array(live)), Value::Array(wish)) => {
            Value::Array(merged_list(node, live, wish))
        }
        _ => wish.clone(),
    }
}

/// Elements of the wish come in its order; elements only the live list has keep their place among their neighbours.
fn merged_list(node: Node, live: &[Value], wish: &[Value]) -> Vec<Value> {
    let wished: BTreeSet<String> = wish.iter().map(|element| element_step(node, element)).collect();
    let mut known: BTreeMap<String, &Value> = BTreeMap::new();
    for element in live {
        known.entry(element_step(node, element)).or_insert(element);
    }
    let mut placed = BTreeSet::new();
    let mut list = Vec::with_capacity(live.len().max(wish.len()));
    let mut wish = wish.iter();
    for element in live {
        let step = element_step(node, element);
        if !wished.contains(&step) {
            list.push(element.clone());
            continue;
        }
        // Everything the wish puts before this element goes before it.
        while !placed.contains(&step) {
            let Some(next) = wish.next() else { break };
            let next_step = element_step(node, next);
            list.push(merged(element_node(node), known.get(&next_step).copied(), next));
            placed.insert(next_step);
        }
    }
    for next in wish {
        let live = known.get(&element_step(node, next)).copied();
        list.push(merged(element_node(node), live, next));
    }
    list
}

/// `value` without the fields in `gone`. An object or a list that loses its last part goes with it.
pub(super) fn without(node: Node, mut value: Value, gone: &FieldSet) -> Value {
    remove(node, &mut value, gone);
    value
}

fn remove(node: Node, value: &mut Value, gone: &FieldSet) {
    match (node, value) {
        (Node::Struct(_) | Node::Map(_), Value::Object(object)) => {
            object.retain(|key, value| keeps(node.below(key), value, gone.child(&field_step(key))));
        }
        (Node::Set | Node::Keyed(..), Value::Array(list)) => {
            list.retain_mut(|element| {
                let step = walk::element_step(node, element);
                keeps(element_node(node), element, gone.child(&step))
            });
        }
        _ => {}
    }
}

fn keeps(node: Node, value: &mut Value, gone: Option<&FieldSet>) -> bool {
    let Some(gone) = gone else { return true };
    if gone.member {
        return false;
    }
    remove(node, value, gone);
    let is_emptied = value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty);
    !is_emptied
}
