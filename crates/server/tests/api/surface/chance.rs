//! Requests by chance, from what an OpenAPI document announces, and what their answers must be like.
//!
//! Shared by two tests: one asks the service in its own process, the other the shipped program over HTTPS.

use std::sync::Arc;

use http::Method;
use serde_json::{Map, Value, json};

/// How answers are asked for.
pub const ACCEPTS: [&str; 6] = [
    "application/json",
    "application/json",
    "application/json;as=Table;g=meta.k8s.io;v=v1,application/json",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    "application/vnd.kubernetes.protobuf",
    "*/*;q=0.1",
];

/// One thing that may be asked.
pub struct Operation {
    pub method: Method,
    path: String,
    described: Value,
    document: Arc<Value>,
}

/// A xorshift generator, and the odd values it throws in.
pub struct Dice {
    state: u64,
    /// Throws nothing odd: what is asked for can be done, mostly.
    pub tame: bool,
}

impl Dice {
    /// Falls as `SEED` says, which must not be 0; the same way every time if it says nothing.
    pub fn seeded() -> Self {
        let seed = std::env::var("SEED").ok().map(|seed| seed.parse().expect("SEED is a number"));
        let seed = seed.unwrap_or(0x9e37_79b9_7f4a_7c15);
        println!("chance is repeated with SEED={seed}");
        Self { state: seed, tame: false }
    }

    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    /// Once in `of` times.
    fn once_in(&mut self, of: u64) -> bool {
        self.next().is_multiple_of(of)
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let count = u64::try_from(from.len()).expect("few");
        &from[usize::try_from(self.next() % count).expect("few")]
    }

    fn word(&mut self) -> String {
        let words = [
            "a",
            "b",
            "app",
            "default",
            "kubernetes",
            "10.87.0.9",
            "1",
            "100m",
            "TCP",
            "Always",
            "2026-11-15T18:00:00Z",
        ];
        let odd = ["", "Ä", "A_B", "..", "a/b", "-x", "\u{0}", "%", "\u{1f680}", "18446744073709551616", "\"", "\\"];
        match self.next() % 12 {
            _ if self.tame => (*self.pick(&words)).to_owned(),
            0 => (*self.pick(&odd)).to_owned(),
            1 => "x".repeat(usize::try_from(self.next() % 300).expect("few")),
            _ => (*self.pick(&words)).to_owned(),
        }
    }

    fn number(&mut self) -> Value {
        let numbers =
            [json!(0), json!(1), json!(80), json!(600), json!(-1), json!(i64::MAX), json!(i64::MIN), json!(0.5)];
        if self.tame { self.pick(&numbers[1..4]).clone() } else { self.pick(&numbers).clone() }
    }

    /// Something that nobody asked for.
    fn odd(&mut self) -> Value {
        let mut deep = json!([]);
        // Two levels each: some are deeper than is taken.
        for _ in 0..*self.pick(&[40, 63, 64, 65, 400]) {
            deep = json!({ "a": [deep] });
        }
        let values = [json!(null), json!([]), json!({}), json!("odd"), json!(7), json!(true), json!([null]), deep];
        self.pick(&values).clone()
    }

    /// A value that fits `schema`, mostly.
    fn value(&mut self, schema: &Value, document: &Value, depth: u64) -> Value {
        if !self.tame && self.once_in(60) {
            return self.odd();
        }
        let schema = resolved(schema, document);
        match schema["type"].as_str() {
            Some("string") => json!(self.word()),
            Some("integer" | "number") => self.number(),
            Some("boolean") => json!(self.once_in(2)),
            Some("array") => {
                let count = self.next() % 3;
                (0..count).map(|_| self.value(&schema["items"], document, depth + 1)).collect()
            }
            Some("object") => self.object(schema, document, depth),
            _ => json!(self.word()),
        }
    }

    fn object(&mut self, schema: &Value, document: &Value, depth: u64) -> Value {
        let mut out = Map::new();
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let wanted = required.contains(&name.as_str()) && !self.once_in(30);
            // What is said about an object's own writing is for the server to say.
            let own = matches!(name.as_str(), "apiVersion" | "kind" | "managedFields" | "resourceVersion");
            let rarely = if self.tame { 6 } else { 2 };
            if wanted || !own && depth < 9 && self.once_in(rarely + depth) {
                let value = self.value(property, document, depth + 1);
                out.insert(name.clone(), value);
            }
        }
        if let Some(values) = schema.get("additionalProperties") {
            for _ in 0..self.next() % 3 {
                let name = self.word();
                out.insert(name, self.value(values, document, depth + 1));
            }
        }
        if !self.tame && self.once_in(40) {
            out.insert("unheard".to_owned(), self.odd());
        }
        Value::Object(out)
    }

    fn name(&mut self) -> &'static str {
        const NAMES: &[&str] =
            &["a", "b", "c", "kubernetes", "kube-root-ca.crt", "admin", "absent", "%2e%2e", "A%20b", "%ff"];
        let name: &&str = self.pick(NAMES);
        name
    }

    /// The address and its query, and whether it asks for a watch.
    pub fn address(&mut self, operation: &Operation) -> (String, bool) {
        let namespace = self.pick(&["default", "default", "default", "kube-system", "absent", "B%C3%A4d"]);
        let name = self.name();
        let mut path = operation.path.replace("{namespace}", namespace).replace("{name}", name);
        let mut watches = false;
        let mut separator = '?';
        for parameter in operation.described["parameters"].as_array().into_iter().flatten() {
            if !self.once_in(8) {
                continue;
            }
            let name = parameter["name"].as_str().unwrap();
            let known: &[&str] = match name {
                "dryRun" => &["All", "Some"],
                "fieldValidation" => &["Strict", "Warn", "Ignore", "Perhaps"],
                "propagationPolicy" => &["Background", "Orphan", "Sideways"],
                "labelSelector" => &["a=b", "a%20in%20(b,c)", "!a", "a%20in", ",,", "%00"],
                "fieldSelector" => &["metadata.name=a", "metadata.name!=a", "x=y", "=", "status.phase=Running"],
                "resourceVersion" => &["0", "1", "", "junk", "-1", "01"],
                "resourceVersionMatch" => &["Exact", "NotOlderThan", "Perhaps"],
                "continue" => &["junk", "eyJ2IjoiIn0", ""],
                "fieldManager" => &["me", "", "%0a"],
                _ => match parameter["schema"]["type"].as_str() {
                    Some("integer") => &["0", "1", "500", "-1", "junk", "99999999999999999999"],
                    Some("boolean") => &["true", "false", "1", "perhaps"],
                    _ => &["a", "", "%25"],
                },
            };
            let value = match !self.tame && self.once_in(50) {
                // Each is longer when it is encoded than a URI may be.
                true => self.pick(&[",", "%2C", "%25", "+", "%C3%A4"]).repeat(9_000),
                false => (*self.pick(known)).to_owned(),
            };
            watches |= name == "watch";
            path.push_str(&format!("{separator}{name}={value}"));
            separator = '&';
        }
        (path, watches)
    }

    /// A body and what it says it is.
    pub fn body(&mut self, operation: &Operation) -> (Option<String>, Vec<u8>) {
        let Some(content) = operation.described["requestBody"]["content"].as_object() else {
            return (None, Vec::new());
        };
        let media: Vec<&String> = content.keys().collect();
        let media = if self.once_in(30) { "text/plain".to_owned() } else { (*self.pick(&media)).clone() };
        let mut value = match content.get(&media).map(|each| &each["schema"]) {
            Some(schema) if schema.get("allOf").is_some() => self.value(schema, &operation.document, 0),
            _ => self.patch(&media, operation),
        };
        if value.is_object() && operation.method == Method::POST && !self.once_in(10) {
            let name = self.pick(&["a", "b", "c", "A", ""]);
            let metadata = value.as_object_mut().map(|fields| fields.entry("metadata").or_insert_with(|| json!({})));
            if let Some(fields) = metadata.and_then(Value::as_object_mut) {
                fields.insert("name".to_owned(), json!(name));
            }
        }
        let bytes = match (media.as_str(), self.next() % 20) {
            (_, 0) => value.to_string().into_bytes()[1..].to_vec(),
            ("application/vnd.kubernetes.protobuf", _) => {
                let mut bytes = b"k8s\0".to_vec();
                bytes.extend((0..self.next() % 64).map(|_| self.next().to_le_bytes()[0]));
                bytes
            }
            _ => value.to_string().into_bytes(),
        };
        (Some(media), bytes)
    }

    /// A part of the object, or steps to it.
    fn patch(&mut self, media: &str, operation: &Operation) -> Value {
        if media.contains("json-patch") {
            let steps = self.next() % 4;
            let step = |dice: &mut Self| {
                let paths =
                    ["/metadata/labels/a", "/spec", "/metadata/name", "/spec/containers/0", "", "/", "a", "/data/-"];
                let verbs = ["add", "remove", "replace", "move", "copy", "test", "unheard"];
                json!({ "op": dice.pick(&verbs), "path": dice.pick(&paths), "from": dice.pick(&paths), "value": dice.odd() })
            };
            return (0..steps).map(|_| step(self)).collect();
        }
        let named = &operation.described["x-kubernetes-group-version-kind"];
        let schemas = operation.document["components"]["schemas"].as_object().unwrap();
        let schema = schemas.values().find(|schema| schema["x-kubernetes-group-version-kind"][0] == *named);
        let mut value = match schema {
            Some(schema) => self.value(schema, &operation.document, 0),
            None => self.odd(),
        };
        if let (true, Some(fields)) = (media.contains("apply"), value.as_object_mut()) {
            let (group, version) = (named["group"].as_str().unwrap(), named["version"].as_str().unwrap());
            let whole = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
            fields.insert("apiVersion".to_owned(), json!(whole));
            fields.insert("kind".to_owned(), named["kind"].clone());
        }
        if let (true, Some(fields)) = (self.once_in(5), value.pointer_mut("/spec").and_then(Value::as_object_mut)) {
            fields.insert("$patch".to_owned(), json!(self.pick(&["delete", "replace", "merge", "unheard"])));
            fields.insert("$retainKeys".to_owned(), self.odd());
            fields.insert("$setElementOrder/containers".to_owned(), self.odd());
        }
        value
    }
}

fn resolved<'a>(schema: &'a Value, document: &'a Value) -> &'a Value {
    let Some(reference) = schema["allOf"][0]["$ref"].as_str() else { return schema };
    document.pointer(reference.trim_start_matches('#')).unwrap_or_else(|| panic!("{reference} is not there"))
}

/// Everything that `document` announces.
pub fn operations(document: Value) -> Vec<Operation> {
    let document = Arc::new(document);
    let mut found = Vec::new();
    // Proxies lead to whatever address chance has written into an object, and nobody there has asked for that.
    let leads_away = |path: &str| path.split('/').any(|step| step == "proxy");
    for (path, item) in document["paths"].as_object().unwrap().iter().filter(|(path, _)| !leads_away(path)) {
        for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            if let Some(described) = item.get(method.as_str().to_lowercase()) {
                let (path, document) = (path.clone(), document.clone());
                found.push(Operation { method, path, described: described.clone(), document });
            }
        }
    }
    found
}

/// What is wrong with an answer; nothing, it is hoped.
pub fn complaint(operation: &Operation, accept: &str, code: u16, media: &str, body: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(body);
    // Upstream answers 500 to these, and clients know them by their words.
    let is_known = text.contains("resourceVersion should not be set on objects to be created")
        || text.contains("This pod has more than one PodDisruptionBudget");
    if code >= 500 && code != 504 && !is_known {
        return Some(format!("{code}: {text}"));
    }
    if media == "text/plain; charset=utf-8" || media == "text/plain" {
        return None;
    }
    if media.split(';').next() == Some("application/vnd.kubernetes.protobuf") {
        // A watch has only begun; everything else is an object in its envelope, or the refusal of one.
        let begun = accept == "watch" && code < 400;
        let asked = accept == "watch" || accept.starts_with("application/vnd.kubernetes.protobuf");
        let is_one = asked && (begun || body.starts_with(b"k8s\0"));
        return (!is_one).then(|| format!("{code} with {media}: {text}"));
    }
    if media.split(';').next() != Some("application/json") {
        return Some(format!("{code} with {media}"));
    }
    let Ok(value) = serde_json::from_slice::<Value>(body) else { return Some(format!("{code}, not JSON: {text}")) };
    if code >= 400 {
        let is_status = value["kind"] == "Status" && value["code"] == code && value["status"] == "Failure";
        return (!is_status || value["message"].as_str().is_none_or(str::is_empty)).then(|| format!("{code}: {text}"));
    }
    if accept != "application/json" {
        return None;
    }
    let responses = &operation.described["responses"];
    let Some(response) = responses.get(code.to_string()) else { return Some(format!("{code} was not announced")) };
    let schema = &response["content"]["application/json"]["schema"];
    let mut problems = Vec::new();
    fits(&value, schema, &operation.document, "", &mut problems);
    // A subresource may answer with a status where there is nothing else to say.
    let is_status = value["kind"] == "Status";
    (!problems.is_empty() && !is_status).then(|| format!("{}: {text}", problems.join(", ")))
}

/// Whether `value` is what `schema` says.
fn fits(value: &Value, schema: &Value, document: &Value, path: &str, problems: &mut Vec<String>) {
    let schema = resolved(schema, document);
    let wrong = match schema["type"].as_str() {
        Some("string") => !value.is_string(),
        Some("integer") => !value.is_i64(),
        Some("boolean") => !value.is_boolean(),
        Some("array") => !value.is_array(),
        Some("object") => !value.is_object(),
        _ => false,
    };
    if wrong && !value.is_null() {
        problems.push(format!("{path} is {value}, not of type {}", schema["type"]));
    }
    for item in value.as_array().into_iter().flatten() {
        fits(item, &schema["items"], document, &format!("{path}[]"), problems);
    }
    let Some(properties) = schema["properties"].as_object() else { return };
    for (name, value) in value.as_object().into_iter().flatten() {
        match properties.get(name) {
            Some(property) => fits(value, property, document, &format!("{path}.{name}"), problems),
            None => problems.push(format!("{path}.{name} was not announced")),
        }
    }
}
