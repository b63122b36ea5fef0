//! Protobuf request bodies, read straight into JSON by one generic reader over `schema`, and answers written the same way.
//!
//! Typed clients send every built-in kind this way and have no fallback (api-surface 1). Unknown fields are skipped, as the
//! format wants; anything malformed is a 400. Nearly all of them read JSON answers too; [`encode`] is for those that do not.

mod encode;
mod wire;

pub use encode::{ListBody, Unwritable, encode_envelope, encode_event};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value};
use wire::{Malformed, Payload, Wire};

use crate::schema::{self, Field, Message, Presence, Shape, Type};
use crate::{status::Status, time};

/// What every body starts with.
const MAGIC: &[u8] = b"k8s\0";

/// Reads a whole body: the envelope, and the object inside it as JSON (without `apiVersion` and `kind`).
///
/// Answers `(apiVersion, kind, object)`; a 400 when the body is not an envelope, is malformed, or holds a kind that is
/// never sent to us.
pub fn decode_envelope(body: &[u8]) -> Result<(String, String, Value), Status> {
    let Some(unknown) = body.strip_prefix(MAGIC) else {
        let text = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]";
        return Err(Status::bad_request(text));
    };
    let envelope = Envelope::read(unknown).map_err(refused)?;
    let message = envelope.message()?;
    let mut object = Map::new();
    fill(message, envelope.raw, &mut object).map_err(refused)?;
    Ok((envelope.api_version, envelope.kind, Value::Object(object)))
}

fn refused(malformed: Malformed) -> Status {
    Status::bad_request(format!("the protobuf body cannot be read: {malformed}"))
}

/// The message around every object: its type, and its bytes.
#[derive(Default)]
struct Envelope<'a> {
    api_version: String,
    kind: String,
    raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut envelope = Self::default();
        for part in Wire::new(bytes) {
            match part? {
                (1, payload) => {
                    for part in Wire::new(payload.bytes()?) {
                        match part? {
                            (1, payload) => envelope.api_version = payload.text()?,
                            (2, payload) => envelope.kind = payload.text()?,
                            _ => {}
                        }
                    }
                }
                (2, payload) => envelope.raw = payload.bytes()?,
                _ => {}
            }
        }
        Ok(envelope)
    }

    fn message(&self) -> Result<&'static Message, Status> {
        // Any group and version may label the options of a delete (api-deletion 1.2).
        if self.kind == "DeleteOptions" {
            return Ok(schema::delete_options());
        }
        let (group, version) = self.api_version.split_once('/').unwrap_or(("", &self.api_version));
        schema::message_of(group, version, &self.kind).ok_or_else(|| {
            let Self { api_version, kind, .. } = self;
            Status::bad_request(format!("no kind {kind:?} is registered for version {api_version:?}"))
        })
    }
}

/// Adds every known field of `bytes` to `object`. A field that comes twice is merged or replaced, as the format asks.
fn fill(message: &'static Message, bytes: &[u8], object: &mut Map<String, Value>) -> Result<(), Malformed> {
    for part in Wire::new(bytes) {
        let (number, payload) = part?;
        if let Some(field) = message.numbered(number) {
            fill_field(field, payload, object)?;
        }
    }
    Ok(())
}

fn fill_field(field: &'static Field, payload: Payload<'_>, object: &mut Map<String, Value>) -> Result<(), Malformed> {
    match field.shape {
        Shape::Inline => {
            let message = field.message().expect("only messages are inlined");
            fill(message, payload.bytes()?, object)?;
        }
        Shape::One { .. } => match field.message() {
            Some(message) => fill(message, payload.bytes()?, child(object, field.name))?,
            None => match value(field.of, payload)?.filter(|value| is_kept(field, value)) {
                Some(value) => drop(object.insert(field.name.to_owned(), value)),
                None => drop(object.remove(field.name)),
            },
        },
        Shape::List | Shape::Set | Shape::Keyed(_) => {
            let entry = object.entry(field.name).or_insert_with(|| Value::Array(Vec::new()));
            let items = entry.as_array_mut().expect("a field has one shape");
            match (field.of, payload) {
                (Type::Int, Payload::Bytes(packed)) => wire::packed(packed, |number| items.push(integer(number)))?,
                (of, payload) => items.push(value_or_zero(of, payload)?),
            }
        }
        Shape::Map { .. } => {
            let (key, value) = map_entry(field.of, payload.bytes()?)?;
            child(object, field.name).insert(key, value);
        }
    }
    Ok(())
}

/// The object below `name`, made if it is not there.
fn child<'a>(object: &'a mut Map<String, Value>, name: &str) -> &'a mut Map<String, Value> {
    let entry = object.entry(name).or_insert_with(|| Value::Object(Map::new()));
    entry.as_object_mut().expect("a field has one shape")
}

fn map_entry(of: Type, bytes: &[u8]) -> Result<(String, Value), Malformed> {
    let (mut key, mut held) = (String::new(), None);
    for part in Wire::new(bytes) {
        match part? {
            (1, payload) => key = payload.text()?,
            (2, payload) => held = Some(value_or_zero(of, payload)?),
            _ => {}
        }
    }
    Ok((key, held.unwrap_or_else(|| zero(of))))
}

/// Whether a value is told from an absent one. Senders write every plain field, empty or not.
fn is_kept(field: &Field, value: &Value) -> bool {
    match (field.presence, field.of) {
        (Presence::Optional | Presence::Always, _) => true,
        (Presence::Omitted, Type::Quantity | Type::IntOrString) => true,
        (Presence::Omitted, of) => *value != zero(of),
    }
}

fn zero(of: Type) -> Value {
    match of {
        Type::Str | Type::Bytes => Value::String(String::new()),
        Type::Quantity => Value::String("0".to_owned()),
        Type::Int | Type::IntOrString => Value::from(0),
        Type::Bool => Value::Bool(false),
        Type::Strings => Value::Array(Vec::new()),
        Type::Time | Type::MicroTime | Type::Raw => Value::Null,
        Type::Msg(_) => Value::Object(Map::new()),
    }
}

fn value_or_zero(of: Type, payload: Payload<'_>) -> Result<Value, Malformed> {
    Ok(value(of, payload)?.unwrap_or_else(|| zero(of)))
}

/// One value as JSON; `None` where an empty message stands for no value.
fn value(of: Type, payload: Payload<'_>) -> Result<Option<Value>, Malformed> {
    let value = match of {
        Type::Str => Value::String(payload.text()?),
        Type::Int => integer(payload.varint()?),
        Type::Bool => Value::Bool(payload.varint()? != 0),
        Type::Bytes => Value::String(STANDARD.encode(payload.bytes()?)),
        Type::Quantity => {
            let text = last(payload, 1, Payload::text)?.unwrap_or_default();
            return Ok((!text.is_empty()).then_some(Value::String(text)));
        }
        Type::IntOrString => int_or_string(payload.bytes()?)?,
        Type::Time | Type::MicroTime => match moment(payload.bytes()?)? {
            None => return Ok(None),
            Some(at) if matches!(of, Type::Time) => Value::String(time::seconds(at)),
            Some(at) => Value::String(time::micros(at)),
        },
        Type::Raw => match last(payload, 1, Payload::bytes)? {
            None | Some([]) => return Ok(None),
            Some(json) => serde_json::from_slice(json).map_err(|_not_json| Malformed::NotJson)?,
        },
        Type::Strings => {
            let parts = Wire::new(payload.bytes()?).filter(|part| !matches!(part, Ok((number, _)) if *number != 1));
            Value::Array(parts.map(|part| Ok(Value::String(part?.1.text()?))).collect::<Result<_, Malformed>>()?)
        }
        Type::Msg(message) => {
            let mut object = Map::new();
            fill(message, payload.bytes()?, &mut object)?;
            Value::Object(object)
        }
    };
    Ok(Some(value))
}

fn integer(number: u64) -> Value {
    Value::from(number.cast_signed())
}

/// The last field `number` of a small message, read by `read`.
fn last<'a, T>(
    message: Payload<'a>,
    number: u32,
    read: impl Fn(Payload<'a>) -> Result<T, Malformed>,
) -> Result<Option<T>, Malformed> {
    let mut found = None;
    for part in Wire::new(message.bytes()?) {
        let (at, payload) = part?;
        if at == number {
            found = Some(read(payload)?);
        }
    }
    Ok(found)
}

fn int_or_string(bytes: &[u8]) -> Result<Value, Malformed> {
    let (mut is_text, mut number, mut text) = (false, 0, String::new());
    for part in Wire::new(bytes) {
        match part? {
            (1, payload) => is_text = payload.varint()? != 0,
            (2, payload) => number = payload.varint()?,
            (3, payload) => text = payload.text()?,
            _ => {}
        }
    }
    Ok(if is_text { Value::String(text) } else { integer(number) })
}

/// A time; the empty message is no time.
fn moment(bytes: &[u8]) -> Result<Option<Timestamp>, Malformed> {
    let (mut seconds, mut nanos) = (0, 0);
    for part in Wire::new(bytes) {
        match part? {
            (1, payload) => seconds = payload.varint()?.cast_signed(),
            (2, payload) => nanos = payload.varint()?.cast_signed(),
            _ => {}
        }
    }
    if bytes.is_empty() {
        return Ok(None);
    }
    let nanos = i32::try_from(nanos).map_err(|_too_large| Malformed::NotATime)?;
    Timestamp::new(seconds, nanos).map(Some).map_err(|_out_of_range| Malformed::NotATime)
}

#[cfg(test)]
mod tests;
