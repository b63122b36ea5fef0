//! One spelling per object: what two clients mean alike is stored alike.
//!
//! Walks an object along [`crate::schema`] before its typed view is taken: nulls go, empty lists and maps and plain
//! zero values go where upstream leaves them out, quantities get their one spelling. A value of the wrong type is
//! left as it is; the typed view refuses it with a better sentence.

use serde_json::{Map, Value};

use super::path::Path;
use crate::quantity::{NotAQuantity, Quantity};
use crate::schema::{Field, Message, Presence, Shape, Type};

/// Rewrites `object`; names the first field that should be a quantity and is none.
pub(super) fn rewrite(
    message: &'static Message,
    object: &mut Map<String, Value>,
    path: &Path<'_>,
) -> Result<(), String> {
    object.retain(|_, value| !value.is_null());
    for (key, value) in object.iter_mut() {
        if let Some(field) = message.field(key) {
            rewrite_field(field, value, &path.key(key))?;
        }
    }
    object.retain(|key, value| message.field(key).is_none_or(|field| is_kept(field, value)));
    // A quantity that is always there is none of something; the typed view would write it as an empty word, which nobody can read.
    let is_missing = |field: &&Field| field.presence == Presence::Always && matches!(field.of, Type::Quantity);
    for field in message.fields.iter().filter(is_missing).filter(|field| matches!(field.shape, Shape::One { .. })) {
        object.entry(field.name).or_insert_with(|| Value::from("0"));
    }
    Ok(())
}

fn rewrite_field(field: &'static Field, value: &mut Value, path: &Path<'_>) -> Result<(), String> {
    match (field.shape, value) {
        (Shape::One { .. } | Shape::Inline, value) => rewrite_value(field.of, value, path),
        (Shape::List | Shape::Set | Shape::Keyed(_), Value::Array(list)) => {
            list.iter_mut().for_each(|item| fill_null(field.of, item));
            list.iter_mut().enumerate().try_for_each(|(i, item)| rewrite_value(field.of, item, &path.index(i)))
        }
        (Shape::Map { .. }, Value::Object(map)) => {
            for (key, value) in map.iter_mut() {
                fill_null(field.of, value);
                rewrite_value(field.of, value, &path.key(key))?;
            }
            Ok(())
        }
        (Shape::List | Shape::Set | Shape::Keyed(_) | Shape::Map { .. }, _) => Ok(()),
    }
}

/// `key:` and `-` without a value are common in hand-written files, and mean the empty word, or none of something.
fn fill_null(of: Type, value: &mut Value) {
    if !value.is_null() {
        return;
    }
    match of {
        Type::Str | Type::Bytes => *value = Value::from(""),
        Type::Quantity => *value = Value::from("0"),
        Type::Int | Type::Bool | Type::Time | Type::MicroTime | Type::IntOrString | Type::Strings | Type::Raw => {}
        Type::Msg(_) => {}
    }
}

fn rewrite_value(of: Type, value: &mut Value, path: &Path<'_>) -> Result<(), String> {
    match (of, value) {
        (Type::Msg(message), Value::Object(object)) => rewrite(message, object, path),
        (Type::Quantity, value @ (Value::String(_) | Value::Number(_))) => {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let quantity: Quantity = text.parse().map_err(|error: NotAQuantity| format!("{path}: {error}"))?;
            *value = Value::from(quantity.to_string());
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Whether a value is told from an absent one when it is written.
fn is_kept(field: &Field, value: &Value) -> bool {
    if field.presence == Presence::Always {
        return true;
    }
    match (field.shape, value) {
        // Clients reset the record of owners by sending an empty list.
        (_, Value::Array(list)) => !list.is_empty() || field.name == "managedFields",
        (Shape::Map { .. }, Value::Object(map)) => !map.is_empty(),
        (Shape::One { .. }, value) if field.presence == Presence::Omitted => match (field.of, value) {
            (Type::Str | Type::Bytes, Value::String(text)) => !text.is_empty(),
            (Type::Int, Value::Number(number)) => number.as_i64() != Some(0),
            (Type::Bool, Value::Bool(flag)) => *flag,
            _ => true,
        },
        _ => true,
    }
}
