//! OpenAPI v2: everything in one document, made from those of v3. kubectl before 1.27 asks for nothing else, and takes
//! from it what `explain` says, what `create` checks, and whether a kind can be written without being stored.

use serde_json::{Map, Value, json};

use super::openapi::{Document, TITLE, VERSION};

mod wire;

pub use wire::protobuf;

/// The document in the making.
#[derive(Default)]
pub struct OpenApiV2 {
    paths: Map<String, Value>,
    definitions: Map<String, Value>,
}

impl OpenApiV2 {
    /// Takes over what a document of v3 says.
    pub fn add(&mut self, document: &Document) {
        for (path, item) in document.value["paths"].as_object().into_iter().flatten() {
            self.paths.insert(path.clone(), path_item(item));
        }
        for (name, schema) in document.value["components"]["schemas"].as_object().into_iter().flatten() {
            // The same in every document that has it, but only one knows a kind by its name.
            if !self.definitions.contains_key(name) || schema.get("x-kubernetes-group-version-kind").is_some() {
                self.definitions.insert(name.clone(), definition(schema));
            }
        }
    }

    /// `GET /openapi/v2`.
    pub fn finish(self) -> Value {
        json!({
            "swagger": "2.0", "info": { "title": TITLE, "version": VERSION },
            "paths": self.paths, "definitions": self.definitions,
        })
    }
}

fn path_item(item: &Value) -> Value {
    let fields = item.as_object().into_iter().flatten();
    let converted = fields.map(|(name, value)| match name.as_str() {
        "parameters" => (name.clone(), value.as_array().into_iter().flatten().map(parameter).collect()),
        _ => (name.clone(), operation(value)),
    });
    Value::Object(converted.collect())
}

fn parameter(parameter: &Value) -> Value {
    let mut out = parameter.clone();
    if let Some(schema) = out.as_object_mut().and_then(|fields| fields.remove("schema")) {
        out["type"] = schema["type"].clone();
    }
    out
}

fn operation(operation: &Value) -> Value {
    let mut out = operation.clone();
    let Some(fields) = out.as_object_mut() else { return out };
    let mut parameters: Vec<Value> = operation["parameters"].as_array().into_iter().flatten().map(parameter).collect();
    if let Some(body) = fields.remove("requestBody") {
        let content = body["content"].as_object();
        let schema =
            content.and_then(|media| media.values().next()).map_or(json!({}), |one| definition(&one["schema"]));
        parameters.push(json!({ "name": "body", "in": "body", "required": body["required"], "schema": schema }));
        fields.insert("consumes".to_owned(), content.into_iter().flatten().map(|(media, _)| json!(media)).collect());
    }
    fields.insert("parameters".to_owned(), json!(parameters));
    let responses = operation["responses"].as_object().into_iter().flatten().map(|(code, response)| {
        let content = response["content"].as_object();
        let schema = content.and_then(|media| media.values().next()).map(|one| definition(&one["schema"]));
        (code.clone(), json!({ "description": response["description"], "schema": schema }))
    });
    fields.insert("responses".to_owned(), Value::Object(responses.collect()));
    fields.insert("produces".to_owned(), json!(["application/json"]));
    out
}

/// A schema in the older words: a reference stands by itself, and nothing is one of several types.
fn definition(schema: &Value) -> Value {
    let Some(fields) = schema.as_object() else { return schema.clone() };
    let mut out = Map::new();
    for (name, value) in fields {
        match name.as_str() {
            "allOf" => {
                let target = value[0]["$ref"].as_str().unwrap_or_default();
                out.insert("$ref".to_owned(), json!(target.replace("#/components/schemas/", "#/definitions/")));
            }
            "oneOf" => {
                out.insert("type".to_owned(), json!("string"));
            }
            "items" | "additionalProperties" => {
                out.insert(name.clone(), definition(value));
            }
            "properties" => {
                let properties = value.as_object().into_iter().flatten();
                out.insert(name.clone(), properties.map(|(name, value)| (name.clone(), definition(value))).collect());
            }
            _ => {
                out.insert(name.clone(), value.clone());
            }
        }
    }
    Value::Object(out)
}
