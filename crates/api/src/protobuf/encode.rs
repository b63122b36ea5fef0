//! Protobuf answers, for clients that read nothing else: JSON written by the table that reads requests.
//!
//! Zero values are left out wherever JSON leaves them out; readers take an absent field for its zero, so both say the same.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::MAGIC;
use crate::schema::{self, Field, Message, Shape, Type};
use crate::time;

/// A value that the published message has no place for. Whatever went through the decoder has one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the value of field {field:?} cannot be written as protobuf")]
pub struct Unwritable {
    field: String,
}

/// The whole body of an answer: `object`, which names its kind, in its envelope. `None` for a kind without a message.
pub fn encode_envelope(object: &Value) -> Result<Option<Vec<u8>>, Unwritable> {
    let name = |key| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (name("apiVersion"), name("kind"));
    let Some(message) = schema::answer_of(api_version, kind) else { return Ok(None) };
    Ok(Some(envelope(api_version, kind, &encoded(message, object)?)))
}

/// One event of a watch, whose `object` is a whole body: a frame, which begins with its length.
pub fn encode_event(event: &str, object: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(object.len() + 32);
    bytes(&mut message, 1, event.as_bytes());
    nested(&mut message, 2, |raw| bytes(raw, 1, object));
    let length = u32::try_from(message.len()).expect("an object is smaller than four gigabytes");
    [&length.to_be_bytes()[..], &message].concat()
}

/// A list on its way: item after item, so that no more than what is sent is ever in memory.
pub struct ListBody {
    api_version: String,
    kind: String,
    item: &'static Message,
    raw: Vec<u8>,
}

impl ListBody {
    /// Begins the list `kind` of items of kind `item`, `None` if those have no message.
    pub fn new(api_version: &str, kind: &str, item: &str, metadata: &Value) -> Result<Option<Self>, Unwritable> {
        let Some(item) = schema::answer_of(api_version, item) else { return Ok(None) };
        let (mut raw, metadata) = (Vec::new(), encoded(schema::list_meta(), metadata)?);
        bytes(&mut raw, 1, &metadata);
        Ok(Some(Self { api_version: api_version.to_owned(), kind: kind.to_owned(), item, raw }))
    }

    /// Adds one item.
    pub fn push(&mut self, object: &Value) -> Result<(), Unwritable> {
        bytes(&mut self.raw, 2, &encoded(self.item, object)?);
        Ok(())
    }

    /// The whole body.
    pub fn finish(self) -> Vec<u8> {
        envelope(&self.api_version, &self.kind, &self.raw)
    }
}

fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len() + 64);
    out.extend_from_slice(MAGIC);
    nested(&mut out, 1, |meta| {
        bytes(meta, 1, api_version.as_bytes());
        bytes(meta, 2, kind.as_bytes());
    });
    bytes(&mut out, 2, raw);
    // How the bytes are packed and what they are: not at all, and what the envelope says. Upstream writes both.
    bytes(&mut out, 3, b"");
    bytes(&mut out, 4, b"");
    out
}

fn encoded(message: &'static Message, object: &Value) -> Result<Vec<u8>, Unwritable> {
    let mut out = Vec::new();
    for field in message.fields {
        if field.shape == Shape::Inline {
            let inlined = encoded(field.message().expect("only messages are inlined"), object)?;
            if !inlined.is_empty() {
                bytes(&mut out, field.number, &inlined);
            }
        } else if let Some(value) = object.get(field.name).filter(|value| !value.is_null()) {
            write_field(&mut out, field, value)?;
        }
    }
    Ok(out)
}

fn write_field(out: &mut Vec<u8>, field: &'static Field, value: &Value) -> Result<(), Unwritable> {
    match (field.shape, value) {
        (Shape::List | Shape::Set | Shape::Keyed(_), Value::Array(items)) => {
            items.iter().try_for_each(|item| write_value(out, field.number, field, item))
        }
        (Shape::Map { .. }, Value::Object(entries)) => entries.iter().try_for_each(|(key, value)| {
            let mut entry = Vec::new();
            bytes(&mut entry, 1, key.as_bytes());
            write_value(&mut entry, 2, field, value)?;
            bytes(out, field.number, &entry);
            Ok(())
        }),
        (Shape::One { .. }, value) => write_value(out, field.number, field, value),
        (Shape::Inline | Shape::List | Shape::Set | Shape::Keyed(_) | Shape::Map { .. }, _) => Err(unwritable(field)),
    }
}

fn unwritable(field: &Field) -> Unwritable {
    Unwritable { field: field.name.to_owned() }
}

fn write_value(out: &mut Vec<u8>, number: u32, field: &Field, value: &Value) -> Result<(), Unwritable> {
    let none = || unwritable(field);
    let text = || value.as_str().ok_or_else(none);
    let integer = || value.as_i64().map(i64::cast_unsigned).ok_or_else(none);
    match field.of {
        Type::Str => bytes(out, number, text()?.as_bytes()),
        Type::Int => varint(out, number, integer()?),
        Type::Bool => varint(out, number, u64::from(value.as_bool().ok_or_else(none)?)),
        Type::Bytes => bytes(out, number, &STANDARD.decode(text()?).map_err(|_not_base64| none())?),
        Type::Quantity => {
            let text = text()?.as_bytes();
            nested(out, number, |inner| bytes(inner, 1, text));
        }
        Type::IntOrString => {
            let number_held = if value.is_string() { 0 } else { integer()? };
            nested(out, number, |inner| {
                varint(inner, 1, u64::from(value.is_string()));
                varint(inner, 2, number_held);
                bytes(inner, 3, value.as_str().unwrap_or_default().as_bytes());
            });
        }
        Type::Time | Type::MicroTime => {
            let at = time::parse(text()?).ok_or_else(none)?;
            // Readers count the fraction forward from the second, also before 1970.
            let second = time::truncated(at).as_second();
            let nanos = at.as_nanosecond().rem_euclid(1_000_000_000);
            nested(out, number, |inner| {
                varint(inner, 1, second.cast_unsigned());
                varint(inner, 2, u64::try_from(nanos).expect("a remainder is not negative"));
            });
        }
        Type::Raw => nested(out, number, |inner| bytes(inner, 1, value.to_string().as_bytes())),
        Type::Strings => {
            let texts: Option<Vec<&str>> = value.as_array().ok_or_else(none)?.iter().map(Value::as_str).collect();
            let texts = texts.ok_or_else(none)?;
            nested(out, number, |inner| texts.iter().for_each(|text| bytes(inner, 1, text.as_bytes())));
        }
        Type::Msg(message) if value.is_object() => bytes(out, number, &encoded(message, value)?),
        Type::Msg(_) => return Err(none()),
    }
    Ok(())
}

fn nested(out: &mut Vec<u8>, number: u32, fill: impl FnOnce(&mut Vec<u8>)) {
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
