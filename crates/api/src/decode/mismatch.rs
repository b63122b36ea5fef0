//! Which field of a refused body has the wrong type: the typed view knows that something is wrong, the schema where.

use serde_json::{Map, Value};

use super::path::Path;
use crate::schema::{Field, Message, Shape, Type};

/// The first field below `object` whose value is not of its type, in upstream's words.
pub(super) fn find(message: &'static Message, object: &Map<String, Value>, path: &Path<'_>) -> Option<String> {
    object.iter().find_map(|(key, value)| {
        let field = message.field(key)?;
        in_field(message, field, value, &path.key(key))
    })
}

fn in_field(message: &'static Message, field: &'static Field, value: &Value, path: &Path<'_>) -> Option<String> {
    match (field.shape, value) {
        (_, Value::Null) => None,
        (Shape::One { .. } | Shape::Inline, value) => in_value(message, field.of, value, path),
        (Shape::List | Shape::Set | Shape::Keyed(_), Value::Array(list)) => {
            list.iter().enumerate().find_map(|(index, item)| in_value(message, field.of, item, &path.index(index)))
        }
        (Shape::Map { .. }, Value::Object(map)) => {
            map.iter().find_map(|(key, value)| in_value(message, field.of, value, &path.key(key)))
        }
        (Shape::List | Shape::Set | Shape::Keyed(_), value) => {
            Some(sentence(message, value, path, &format!("[]{}", type_word(field.of))))
        }
        (Shape::Map { .. }, value) => {
            Some(sentence(message, value, path, &format!("map[string]{}", type_word(field.of))))
        }
    }
}

fn in_value(message: &'static Message, of: Type, value: &Value, path: &Path<'_>) -> Option<String> {
    if let (Type::Msg(inner), Value::Object(object)) = (of, value) {
        return find(inner, object, path);
    }
    let fits = match of {
        Type::Msg(_) => false,
        Type::Str | Type::Bytes | Type::Time | Type::MicroTime => value.is_string(),
        Type::Int => value.is_i64() || value.is_u64(),
        Type::Bool => value.is_boolean(),
        Type::Quantity => value.is_string() || value.is_number(),
        Type::IntOrString => value.is_string() || value.is_i64(),
        Type::Strings => value.is_array(),
        Type::Raw => true,
    };
    (!fits).then(|| sentence(message, value, path, type_word(of)))
}

fn sentence(message: &Message, value: &Value, path: &Path<'_>, expected: &str) -> String {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    format!("json: cannot unmarshal {found} into Go struct field {}.{path} of type {expected}", message.name)
}

fn type_word(of: Type) -> &'static str {
    match of {
        Type::Str | Type::Time | Type::MicroTime => "string",
        Type::Int => "int64",
        Type::Bool => "bool",
        Type::Bytes => "[]uint8",
        Type::Quantity => "resource.Quantity",
        Type::IntOrString => "intstr.IntOrString",
        Type::Strings => "[]string",
        Type::Raw => "runtime.RawExtension",
        Type::Msg(message) => message.name,
    }
}
