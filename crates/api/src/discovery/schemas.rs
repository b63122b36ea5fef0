//! OpenAPI schemas, from the same table that reads bodies and merges patches: what they say is what the server does.

use serde_json::{Map, Value, json};

use crate::kinds::Kind;
use crate::schema::{self, Field, Message, Presence, Shape, Strategy, Type};

/// The schemas of `kind` and of everything it reaches, added to `into` under their published names.
pub(super) fn add(kind: &Kind, into: &mut Map<String, Value>) {
    let Some(message) = schema::message_of(kind.group, kind.version, kind.kind) else { return };
    add_message(message, into);
    let Some(Value::Object(schema)) = into.get_mut(&name_of(message)) else { return };
    let named = json!({ "group": kind.group, "version": kind.version, "kind": kind.kind });
    schema.insert("x-kubernetes-group-version-kind".to_owned(), json!([named]));
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        // Every object says what it is; on the wire of protobuf the envelope does.
        properties.insert("apiVersion".to_owned(), json!({ "type": "string" }));
        properties.insert("kind".to_owned(), json!({ "type": "string" }));
    }
}

/// The name a kind's schema has.
pub(super) fn published_name(kind: &Kind) -> Option<String> {
    schema::message_of(kind.group, kind.version, kind.kind).map(name_of)
}

fn name_of(message: &Message) -> String {
    format!("{}.{}", message.package, message.name)
}

fn add_message(message: &'static Message, into: &mut Map<String, Value>) {
    if into.contains_key(&name_of(message)) {
        return;
    }
    // Holds the place while what is below is added.
    into.insert(name_of(message), Value::Null);
    let mut properties = Map::new();
    let mut required = Vec::new();
    add_fields(message, &mut properties, &mut required, into);
    let mut schema = json!({ "type": "object", "properties": properties });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    if message.atomic {
        schema["x-kubernetes-map-type"] = json!("atomic");
    }
    into.insert(name_of(message), schema);
}

fn add_fields(
    message: &'static Message,
    properties: &mut Map<String, Value>,
    required: &mut Vec<&'static str>,
    into: &mut Map<String, Value>,
) {
    for field in message.fields {
        if let (Shape::Inline, Some(inlined)) = (field.shape, field.message()) {
            add_fields(inlined, properties, required, into);
            continue;
        }
        properties.insert(field.name.to_owned(), property(field, into));
        // Senders write it even when it is empty; a struct, though, may be left out.
        if field.presence == Presence::Always && field.message().is_none() {
            required.push(field.name);
        }
    }
}

fn property(field: &Field, into: &mut Map<String, Value>) -> Value {
    let value = value(field.of, into);
    let mut schema = match field.shape {
        Shape::One { atomic } => {
            let mut schema = value;
            if atomic {
                schema["x-kubernetes-map-type"] = json!("atomic");
            }
            schema
        }
        Shape::Inline => value,
        Shape::List => json!({ "type": "array", "items": value, "x-kubernetes-list-type": "atomic" }),
        Shape::Set => json!({ "type": "array", "items": value, "x-kubernetes-list-type": "set" }),
        Shape::Keyed(keys) => json!({
            "type": "array", "items": value, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys,
        }),
        Shape::Map { atomic } => {
            let mut schema = json!({ "type": "object", "additionalProperties": value });
            if atomic {
                schema["x-kubernetes-map-type"] = json!("atomic");
            }
            schema
        }
    };
    match field.strategy {
        Strategy::Default => {}
        Strategy::Replace => schema["x-kubernetes-patch-strategy"] = json!("replace"),
        Strategy::List(key) => {
            schema["x-kubernetes-patch-strategy"] = json!("merge");
            if !key.is_empty() {
                schema["x-kubernetes-patch-merge-key"] = json!(key);
            }
        }
    }
    schema
}

fn value(of: Type, into: &mut Map<String, Value>) -> Value {
    match of {
        Type::Str => json!({ "type": "string" }),
        Type::Int => json!({ "type": "integer" }),
        Type::Bool => json!({ "type": "boolean" }),
        Type::Bytes => json!({ "type": "string", "format": "byte" }),
        // Named, because their names say more than their types.
        Type::Quantity => {
            let either = json!({ "oneOf": [{ "type": "string" }, { "type": "number" }] });
            named("io.k8s.apimachinery.pkg.api.resource.Quantity", either, into)
        }
        Type::IntOrString => {
            let either = json!({ "oneOf": [{ "type": "integer" }, { "type": "string" }], "format": "int-or-string" });
            named("io.k8s.apimachinery.pkg.util.intstr.IntOrString", either, into)
        }
        Type::Time | Type::MicroTime => json!({ "type": "string", "format": "date-time" }),
        Type::Raw => json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true }),
        Type::Strings => json!({ "type": "array", "items": { "type": "string" } }),
        Type::Msg(message) => {
            add_message(message, into);
            reference(&name_of(message))
        }
    }
}

fn named(name: &str, schema: Value, into: &mut Map<String, Value>) -> Value {
    into.entry(name).or_insert(schema);
    reference(name)
}

fn reference(name: &str) -> Value {
    json!({ "allOf": [{ "$ref": format!("#/components/schemas/{name}") }] })
}
