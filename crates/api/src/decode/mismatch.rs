//! Which field of a refused body has the wrong type: the typed view knows that something is wrong, the schema where.

use serde_json::{Map, Value};

use super::path::Path;
use super::{literal, syntax};
use crate::schema::{Field, Message, Shape, Type};

/// What the typed view says of the value that it could not take.
pub(super) struct Expected {
    /// The width of the number that it wanted.
    integer: &'static str,
    /// The number that it got and that does not fit into one.
    too_wide: Option<i128>,
}

impl Expected {
    /// Reads the complaint of the typed view, which knows types but not where it met them.
    pub(super) fn of(error: &serde_json::Error) -> Self {
        let text = error.to_string();
        let too_wide = text.strip_prefix("invalid value: integer `").and_then(|rest| rest.split('`').next());
        Self {
            integer: if text.contains("i32") { "int32" } else { "int64" },
            too_wide: too_wide.and_then(|number| number.parse().ok()),
        }
    }

    /// The first field below `object` whose value is not of its type, in upstream's words.
    pub(super) fn find(
        &self,
        message: &'static Message,
        object: &Map<String, Value>,
        path: &Path<'_>,
    ) -> Option<String> {
        object.iter().find_map(|(key, value)| {
            let field = message.field(key)?;
            self.in_field(message, field, value, &path.key(key))
        })
    }

    fn in_field(
        &self,
        message: &'static Message,
        field: &'static Field,
        value: &Value,
        path: &Path<'_>,
    ) -> Option<String> {
        match (field.shape, value) {
            (_, Value::Null) => None,
            (Shape::One { .. } | Shape::Inline, value) => self.in_value(message, field.of, value, path),
            (Shape::List | Shape::Set | Shape::Keyed(_), Value::Array(list)) => {
                let mut items = list.iter().enumerate();
                items.find_map(|(index, item)| self.in_value(message, field.of, item, &path.index(index)))
            }
            (Shape::Map { .. }, Value::Object(map)) => {
                map.iter().find_map(|(key, value)| self.in_value(message, field.of, value, &path.key(key)))
            }
            (Shape::List | Shape::Set | Shape::Keyed(_), value) => {
                Some(sentence(message, value, path, &format!("[]{}", self.type_word(field.of))))
            }
            (Shape::Map { .. }, value) => {
                Some(sentence(message, value, path, &format!("map[string]{}", self.type_word(field.of))))
            }
        }
    }

    fn in_value(&self, message: &'static Message, of: Type, value: &Value, path: &Path<'_>) -> Option<String> {
        if let (Type::Msg(inner), Value::Object(object)) = (of, value) {
            return self.find(inner, object, path);
        }
        if let Some(why) = value.as_str().and_then(|text| not_a_literal(of, text)) {
            return Some(format!("{path}: {why}"));
        }
        let fits = match of {
            Type::Msg(_) => false,
            Type::Str | Type::Bytes | Type::Time | Type::MicroTime => value.is_string(),
            Type::Int => {
                let number = value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from));
                number.is_some() && (self.too_wide.is_none() || self.too_wide != number)
            }
            Type::Bool => value.is_boolean(),
            Type::Quantity => value.is_string() || value.is_number(),
            Type::IntOrString => value.is_string() || value.is_i64(),
            Type::Strings => value.is_array(),
            Type::Raw => true,
        };
        (!fits).then(|| sentence(message, value, path, self.type_word(of)))
    }

    fn type_word(&self, of: Type) -> &'static str {
        if matches!(of, Type::Int) { self.integer } else { type_word(of) }
    }
}

/// Why a word cannot be read as what it stands for.
fn not_a_literal(of: Type, text: &str) -> Option<String> {
    match of {
        Type::Time | Type::MicroTime => {
            let is_one = text.parse::<jiff::Timestamp>().is_ok();
            (!is_one).then(|| literal::of_time(text, matches!(of, Type::MicroTime)))
        }
        Type::Bytes => literal::of_bytes(text),
        Type::Str | Type::Int | Type::Bool | Type::Quantity | Type::IntOrString => None,
        Type::Strings | Type::Raw | Type::Msg(_) => None,
    }
}

fn sentence(message: &Message, value: &Value, path: &Path<'_>, expected: &str) -> String {
    // A number that is of the right kind and does not fit is shown.
    let found = match value.as_number().filter(|_| expected.starts_with("int")) {
        Some(number) => format!("number {number}"),
        None => syntax::type_of(value).to_owned(),
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
