//! Protobuf as clients write it, over the same table that reads it. The product only reads, so this is for tests.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;

use crate::kinds::Kind;
use crate::schema::{Field, Message, Shape, Type};

/// The envelope around an object.
pub(crate) fn envelope(kind: &Kind, message: &'static Message, object: &Value) -> Vec<u8> {
    let (mut meta, mut out) = (Vec::new(), b"k8s\0".to_vec());
    bytes(&mut meta, 1, kind.api_version().as_bytes());
    bytes(&mut meta, 2, kind.kind.as_bytes());
    bytes(&mut out, 1, &meta);
    bytes(&mut out, 2, &encoded(message, object));
    out
}

fn encoded(message: &'static Message, object: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for field in message.fields {
        if field.shape == Shape::Inline {
            let inlined = encoded(field.message().expect("only messages are inlined"), object);
            if !inlined.is_empty() {
                bytes(&mut out, field.number, &inlined);
            }
        } else if let Some(value) = object.get(field.name) {
            write_field(&mut out, field, value);
        }
    }
    out
}

fn write_field(out: &mut Vec<u8>, field: &'static Field, value: &Value) {
    match (field.shape, value) {
        (Shape::List | Shape::Set | Shape::Keyed(_), Value::Array(items)) => {
            items.iter().for_each(|item| write_value(out, field.number, field.of, item));
        }
        (Shape::Map { .. }, Value::Object(entries)) => {
            for (key, value) in entries {
                let mut entry = Vec::new();
                bytes(&mut entry, 1, key.as_bytes());
                write_value(&mut entry, 2, field.of, value);
                bytes(out, field.number, &entry);
            }
        }
        (_, value) => write_value(out, field.number, field.of, value),
    }
}

fn write_value(out: &mut Vec<u8>, number: u32, of: Type, value: &Value) {
    let text = || value.as_str().expect("a string");
    match of {
        Type::Str => bytes(out, number, text().as_bytes()),
        Type::Int => varint(out, number, value.as_i64().expect("a number").cast_unsigned()),
        Type::Bool => varint(out, number, u64::from(value == &Value::Bool(true))),
        Type::Bytes => bytes(out, number, &STANDARD.decode(text()).expect("base64")),
        Type::Quantity => message(out, number, |inner| bytes(inner, 1, text().as_bytes())),
        Type::IntOrString => message(out, number, |inner| match value.as_str() {
            Some(text) => {
                varint(inner, 1, 1);
                bytes(inner, 3, text.as_bytes());
            }
            None => varint(inner, 2, value.as_i64().expect("a number").cast_unsigned()),
        }),
        Type::Time | Type::MicroTime => message(out, number, |inner| {
            let at: Timestamp = text().parse().expect("a time");
            varint(inner, 1, at.as_second().cast_unsigned());
            varint(inner, 2, u64::try_from(at.subsec_nanosecond()).expect("after 1970"));
        }),
        Type::Raw => message(out, number, |inner| bytes(inner, 1, value.to_string().as_bytes())),
        Type::Strings => message(out, number, |inner| {
            for text in value.as_array().into_iter().flatten() {
                bytes(inner, 1, text.as_str().expect("a string").as_bytes());
            }
        }),
        Type::Msg(of) => bytes(out, number, &encoded(of, value)),
    }
}

fn message(out: &mut Vec<u8>, number: u32, fill: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    fill(&mut inner);
    bytes(out, number, &inner);
}

fn bytes(out: &mut Vec<u8>, number: u32, content: &[u8]) {
    raw(out, u64::from(number) << 3 | 2);
    raw(out, content.len() as u64);
    out.extend_from_slice(content);
}

fn varint(out: &mut Vec<u8>, number: u32, value: u64) {
    raw(out, u64::from(number) << 3);
    raw(out, value);
}

fn raw(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).expect("seven bits") | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).expect("seven bits"));
}
