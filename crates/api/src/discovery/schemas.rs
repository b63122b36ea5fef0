//! OpenAPI schemas, from the same table that reads bodies and merges patches: what they say is what the server does.
//! The words beside them are Kubernetes' own.

use serde_json::{Map, Value, json};

use crate::kinds::Kind;
use crate::schema::{self, Descriptions, Field, Message, Shape, Strategy, Type};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// The schemas of one document, by their published names.
pub(super) struct Schemas<'a> {
    descriptions: &'a Descriptions,
    made: Map<String, Value>,
}

impl<'a> Schemas<'a> {
    pub(super) fn new(descriptions: &'a Descriptions) -> Self {
        Self { descriptions, made: Map::new() }
    }

    pub(super) fn finish(self) -> Map<String, Value> {
        self.made
    }

    /// A reference to the schema of a kind, which is added with everything it reaches.
    pub(super) fn kind(&mut self, group: &str, version: &str, kind: &str) -> Option<Value> {
        let message = schema::message_of(group, version, kind)?;
        let name = name_of(message);
        self.message(message);
        let named = json!({ "group": group, "version": version, "kind": kind });
        let schema = self.made.get_mut(&name)?;
        schema["x-kubernetes-group-version-kind"] = json!([named]);
        // Every object says what it is; on the wire of protobuf the envelope does.
        self.type_fields(&name);
        Some(reference(&name))
    }

    /// The same for a kind that is served, whether anything is published about its fields or not.
    pub(super) fn of(&mut self, kind: &Kind) -> Option<Value> {
        if kind.message.is_some() {
            return self.kind(&kind.group, &kind.version, &kind.kind);
        }
        let schema = json!({
            "type": "object", "properties": { "metadata": self.object_metadata() },
            "x-kubernetes-preserve-unknown-fields": true,
        });
        Some(self.add_kind(&published_name(kind), schema, (&kind.group, &kind.version, &kind.kind)))
    }

    /// A reference to the schema of a list of a kind.
    pub(super) fn list(&mut self, kind: &Kind) -> Option<Value> {
        let item = self.of(kind)?;
        let metadata = self.list_metadata();
        let name = format!("{}List", kind.message.map_or_else(|| published_name(kind), name_of));
        let schema = json!({
            "type": "object",
            "properties": { "items": { "type": "array", "items": item }, "metadata": metadata },
            "required": ["items"],
        });
        Some(self.add_kind(&name, schema, (&kind.group, &kind.version, kind.list_kind())))
    }

    /// A reference to the schema of a refusal, or of an answer that is no object.
    pub(super) fn status(&mut self) -> Value {
        let metadata = self.list_metadata();
        let causes = self.written("StatusCause", &[("field", "string"), ("message", "string"), ("reason", "string")]);
        let details = [
            ("group", "string"),
            ("kind", "string"),
            ("name", "string"),
            ("retryAfterSeconds", "integer"),
            ("uid", "string"),
        ];
        let details = self.written("StatusDetails", &details);
        self.made[&format!("{META}.StatusDetails")]["properties"]["causes"] =
            json!({ "type": "array", "items": causes, "x-kubernetes-list-type": "atomic" });
        let fields = [("code", "integer"), ("message", "string"), ("reason", "string"), ("status", "string")];
        let status = self.written("Status", &fields);
        let name = format!("{META}.Status");
        self.made[&name]["properties"]["details"] = details;
        self.made[&name]["properties"]["metadata"] = metadata;
        self.made[&name]["x-kubernetes-group-version-kind"] =
            json!([{ "group": "", "version": "v1", "kind": "Status" }]);
        self.type_fields(&name);
        status
    }

    /// Adds a schema that the table does not know, and answers a reference to it.
    pub(super) fn add(&mut self, name: &str, schema: Value) -> Value {
        self.made.insert(name.to_owned(), schema);
        reference(name)
    }

    /// The same for one of a whole object, of this group, version and kind.
    pub(super) fn add_kind(&mut self, name: &str, mut schema: Value, named: (&str, &str, &str)) -> Value {
        let (group, version, kind) = named;
        schema["x-kubernetes-group-version-kind"] = json!([{ "group": group, "version": version, "kind": kind }]);
        let reference = self.add(name, schema);
        self.type_fields(name);
        reference
    }

    /// A reference to the metadata that every object has.
    pub(super) fn object_metadata(&mut self) -> Value {
        let field = schema::message_of("", "v1", "Pod").and_then(|pod| pod.field("metadata"));
        let mut property = self.value(field.expect("a pod has metadata").of);
        self.describe_field("io.k8s.api.core.v1.Pod", "metadata", &mut property);
        property
    }

    pub(super) fn quantity(&mut self) -> Value {
        self.value(Type::Quantity)
    }

    pub(super) fn list_metadata(&mut self) -> Value {
        let fields = [("continue", "string"), ("remainingItemCount", "integer"), ("resourceVersion", "string")];
        self.written("ListMeta", &fields)
    }

    /// A message that no request consists of, and the table does not know.
    fn written(&mut self, name: &str, fields: &[(&str, &str)]) -> Value {
        let name = format!("{META}.{name}");
        let mut properties = Map::new();
        for (field, kind) in fields {
            let mut property = json!({ "type": kind });
            self.describe_field(&name, field, &mut property);
            properties.insert((*field).to_owned(), property);
        }
        let mut schema = json!({ "type": "object", "properties": properties });
        self.describe(&name, &mut schema);
        self.made.insert(name.clone(), schema);
        reference(&name)
    }

    fn type_fields(&mut self, name: &str) {
        for field in ["apiVersion", "kind"] {
            let mut property = json!({ "type": "string" });
            self.describe_field(&format!("{META}.DeleteOptions"), field, &mut property);
            self.made[name]["properties"][field] = property;
        }
    }

    fn message(&mut self, message: &'static Message) {
        let name = name_of(message);
        if self.made.contains_key(&name) {
            return;
        }
        // Holds the place while what is below is added.
        self.made.insert(name.clone(), Value::Null);
        let (mut properties, mut required) = (Map::new(), Vec::new());
        self.fields(message, &name, &mut properties, &mut required);
        let mut schema = json!({ "type": "object", "properties": properties });
        self.describe(&name, &mut schema);
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        if message.atomic {
            schema["x-kubernetes-map-type"] = json!("atomic");
        }
        self.made.insert(name, schema);
    }

    /// The fields of `message` as they stand in the message called `owner`.
    fn fields(
        &mut self,
        message: &'static Message,
        owner: &str,
        properties: &mut Map<String, Value>,
        required: &mut Vec<&'static str>,
    ) {
        for field in message.fields {
            if let (Shape::Inline, Some(inlined)) = (field.shape, field.message()) {
                self.fields(inlined, owner, properties, required);
                continue;
            }
            let mut property = self.property(field);
            let said = self.descriptions.field(owner, field.name);
            if said.is_some_and(|said| said.required) {
                required.push(field.name);
            }
            if let (Some(said), Type::Int) = (said, field.of) {
                let number = match field.shape {
                    Shape::List | Shape::Set | Shape::Keyed(_) => &mut property["items"],
                    Shape::One { .. } | Shape::Inline | Shape::Map { .. } => &mut property,
                };
                if !said.width.is_empty() {
                    number["format"] = json!(said.width);
                }
            }
            self.describe_field(owner, field.name, &mut property);
            properties.insert(field.name.to_owned(), property);
        }
    }

    fn describe(&self, name: &str, schema: &mut Value) {
        if let Some(said) = self.descriptions.message(name) {
            schema["description"] = json!(said.text);
        }
    }

    fn describe_field(&self, owner: &str, field: &str, schema: &mut Value) {
        if let Some(said) = self.descriptions.field(owner, field) {
            schema["description"] = json!(said.text);
        }
    }

    fn property(&mut self, field: &Field) -> Value {
        let value = self.value(field.of);
        let mut schema = match field.shape {
            Shape::One { .. } | Shape::Inline => value,
            Shape::List => json!({ "type": "array", "items": value, "x-kubernetes-list-type": "atomic" }),
            Shape::Set => json!({ "type": "array", "items": value, "x-kubernetes-list-type": "set" }),
            Shape::Keyed(keys) => json!({
                "type": "array", "items": value, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys,
            }),
            Shape::Map { .. } => json!({ "type": "object", "additionalProperties": value }),
        };
        if let Shape::One { atomic: true } | Shape::Map { atomic: true } = field.shape {
            schema["x-kubernetes-map-type"] = json!("atomic");
        }
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

    fn value(&mut self, of: Type) -> Value {
        match of {
            Type::Str => json!({ "type": "string" }),
            Type::Int => json!({ "type": "integer" }),
            Type::Bool => json!({ "type": "boolean" }),
            Type::Bytes => json!({ "type": "string", "format": "byte" }),
            // Named, because their names say more than their types.
            Type::Quantity => {
                let either = json!({ "oneOf": [{ "type": "string" }, { "type": "number" }] });
                self.named("io.k8s.apimachinery.pkg.api.resource.Quantity", either)
            }
            Type::IntOrString => {
                let either =
                    json!({ "oneOf": [{ "type": "integer" }, { "type": "string" }], "format": "int-or-string" });
                self.named("io.k8s.apimachinery.pkg.util.intstr.IntOrString", either)
            }
            Type::Time | Type::MicroTime => json!({ "type": "string", "format": "date-time" }),
            Type::Raw => json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true }),
            Type::Strings => json!({ "type": "array", "items": { "type": "string" } }),
            Type::Msg(message) => {
                self.message(message);
                reference(&name_of(message))
            }
        }
    }

    fn named(&mut self, name: &str, mut schema: Value) -> Value {
        self.describe(name, &mut schema);
        self.made.entry(name).or_insert(schema);
        reference(name)
    }
}

fn name_of(message: &Message) -> String {
    format!("{}.{}", message.package, message.name)
}

/// `com.example.v1.Widget`: upstream's name for a kind that was added.
fn published_name(kind: &Kind) -> String {
    let group: Vec<&str> = kind.group.rsplit('.').collect();
    format!("{}.{}.{}", group.join("."), kind.version, kind.kind)
}

fn reference(name: &str) -> Value {
    json!({ "allOf": [{ "$ref": format!("#/components/schemas/{name}") }] })
}
