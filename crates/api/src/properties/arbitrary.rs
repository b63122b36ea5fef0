//! Any object of any kind: what the schema allows, with values that are often reasonable and sometimes not.

use serde_json::{Map, Value, json};
use testkit::Dice;

use crate::kinds::{Kind, Registry};
use crate::schema::{Field, Message, Shape, Strategy, Type};

/// Deeper than this nothing is added.
const DEPTH: usize = 7;

/// A kind whose messages are known.
pub(crate) fn kind(dice: &mut Dice) -> &'static Kind {
    loop {
        let kinds = Registry::built_in().kinds();
        let kind = &kinds[below(dice, kinds.len())];
        if message(kind).is_some() {
            return kind;
        }
    }
}

pub(crate) fn message(kind: &Kind) -> Option<&'static Message> {
    kind.message
}

/// An object of `kind` with a name, in a namespace if it needs one.
pub(crate) fn object(dice: &mut Dice, kind: &Kind) -> Value {
    let mut object = fields(dice, message(kind).expect("a kind that is known"), 0);
    // What the server writes itself is not a client's to choose at random.
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    if let Some(metadata) = metadata.as_object_mut() {
        for key in ["managedFields", "resourceVersion", "uid", "deletionTimestamp", "generation", "namespace"] {
            metadata.remove(key);
        }
        metadata.insert("name".to_owned(), json!(dice.pick(&["web", "db", "a-b"])));
    }
    Value::Object(object)
}

fn fields(dice: &mut Dice, message: &'static Message, depth: usize) -> Map<String, Value> {
    let mut object = Map::new();
    // Few of many fields, so that objects stay small and different.
    let chance = (message.fields.len() as u64 / 4).max(2) + depth as u64;
    for field in message.fields {
        match (field.shape, field.message()) {
            (Shape::Inline, Some(inlined)) if depth < DEPTH => object.extend(fields(dice, inlined, depth + 1)),
            (Shape::Inline, _) => {}
            _ if matches!(field.name, "metadata" | "spec" | "template") || dice.once_in(chance) => {
                if let Some(value) = field_value(dice, field, depth) {
                    object.insert(field.name.to_owned(), value);
                }
            }
            _ => {}
        }
    }
    object
}

fn field_value(dice: &mut Dice, field: &'static Field, depth: usize) -> Option<Value> {
    if depth >= DEPTH && matches!(field.of, Type::Msg(_)) {
        return None;
    }
    Some(match field.shape {
        Shape::One { .. } | Shape::Inline => value(dice, field, depth),
        Shape::List | Shape::Set | Shape::Keyed(_) => {
            let mut items: Vec<Value> = Vec::new();
            for at in 0..=dice.below(2) {
                let mut item = value(dice, field, depth);
                set_keys(field, &mut item, at);
                if !items.contains(&item) {
                    items.push(item);
                }
            }
            Value::Array(items)
        }
        Shape::Map { .. } => {
            let keys = (0..=dice.below(2)).map(|_| dice.pick(&["app", "example.com/tier", "cpu", "memory"]).to_owned());
            let keys: Vec<String> = keys.collect();
            Value::Object(keys.into_iter().map(|key| (key, value(dice, field, depth))).collect())
        }
    })
}

/// Gives an element of a list whose elements are told apart by some fields values of its own there.
fn set_keys(field: &'static Field, item: &mut Value, at: u64) {
    let keyed = match field.shape {
        Shape::Keyed(keys) => keys,
        Shape::One { .. } | Shape::Inline | Shape::List | Shape::Set | Shape::Map { .. } => &[],
    };
    let merged = match field.strategy {
        Strategy::List(key) => key,
        Strategy::Default | Strategy::Replace => "",
    };
    let (Some(object), Some(message)) = (item.as_object_mut(), field.message()) else { return };
    for key in keyed.iter().copied().chain([merged]) {
        let value = match message.field(key).map(|field| field.of) {
            Some(Type::Str) => json!(format!("key-{at}")),
            Some(Type::Int) => json!(1000 + at),
            _ => continue,
        };
        object.insert(key.to_owned(), value);
    }
}

fn value(dice: &mut Dice, field: &'static Field, depth: usize) -> Value {
    match field.of {
        Type::Str => json!(word(dice)),
        Type::Int => json!(dice.pick(&[0_i64, 1, 2, 30, 8080, -1, i64::from(i32::MAX)])),
        Type::Bool => json!(dice.once_in(2)),
        Type::Bytes => json!(dice.pick(&["", "aGFsbG8=", "AA=="])),
        Type::Quantity => json!(dice.pick(&["0", "100m", "1", "64Mi", "1.5Gi", "1e3", "0.1"])),
        Type::IntOrString if dice.once_in(2) => json!(dice.below(100)),
        Type::IntOrString => json!(dice.pick(&["http", "25%", ""])),
        Type::Time => json!("2026-01-02T03:04:05Z"),
        Type::MicroTime => json!("2026-01-02T03:04:05.000006Z"),
        Type::Raw => json!({ "a": [1, "b"] }),
        Type::Strings => json!(["x", "y"]),
        Type::Msg(message) => Value::Object(fields(dice, message, depth + 1)),
    }
}

fn word(dice: &mut Dice) -> &'static str {
    dice.pick(&[
        "web",
        "a",
        "Always",
        "TCP",
        "",
        "Ünïcödé",
        "http://x/?y=\"z\"",
        "1",
        "true",
        "-",
        "a.b/c",
        "default",
        "Never",
    ])
}

pub(crate) fn below(dice: &mut Dice, limit: usize) -> usize {
    usize::try_from(dice.below(limit as u64)).expect("an index fits")
}

/// Bytes that were a body before some of them were changed, cut off or said twice.
pub(crate) fn hurt(dice: &mut Dice, bytes: &[u8]) -> Vec<u8> {
    let mut hurt = bytes.to_vec();
    for _ in 0..=dice.below(4) {
        if hurt.is_empty() {
            break;
        }
        let at = below(dice, hurt.len());
        match dice.below(5) {
            0 => hurt[at] ^= 1 << dice.below(8),
            1 => hurt.truncate(at),
            2 => hurt.insert(at, u8::try_from(dice.below(256)).expect("a byte")),
            3 => drop(hurt.remove(at)),
            _ => {
                let again: Vec<u8> = hurt[at..].iter().copied().take(40).collect();
                hurt.splice(at..at, again);
            }
        }
    }
    hurt
}
