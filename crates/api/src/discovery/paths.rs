//! Every path of a kind and what may be done there, as OpenAPI describes it.

use serde_json::{Map, Value, json};

use super::schemas::Schemas;
use crate::kinds::{Kind, Subresource, group_version};

/// `api/v1`, or `apis/apps/v1`.
pub(super) fn prefix(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{}", group_version(group, version)) }
}

/// What a body may be written in.
const BODIES: [&str; 3] = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

/// What a patch may be written in.
const PATCHES: [&str; 4] = [
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

const PRETTY: &[(&str, &str)] = &[("pretty", "string")];
const WRITING: &[(&str, &str)] = &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")];
const FORCING: &[(&str, &str)] = &[("force", "boolean")];
const DELETING: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];
const CHOOSING: &[(&str, &str)] = &[
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
];
const WATCHING: &[(&str, &str)] = &[("allowWatchBookmarks", "boolean"), ("watch", "boolean")];

/// Adds the paths of `kind` to `paths`, and what their operations speak of to `schemas`.
pub(super) fn add(kind: &Kind, paths: &mut Map<String, Value>, schemas: &mut Schemas<'_>) {
    let root = format!("/{}", prefix(&kind.group, &kind.version));
    let (within, scope) = match kind.namespaced {
        true => (format!("{root}/namespaces/{{namespace}}/{}", kind.plural), &["namespace"][..]),
        false => (format!("{root}/{}", kind.plural), &[][..]),
    };
    let mut writer = Writer { kind, schemas };
    let collection = writer.item(scope, &["list", "create", "deletecollection"]);
    paths.insert(within.clone(), collection);
    if kind.namespaced && kind.is_stored() {
        let everywhere = writer.item(&[], &["list"]);
        paths.insert(format!("{root}/{}", kind.plural), everywhere);
    }
    if kind.is_stored() {
        let names = [scope, &["name"]].concat();
        let object = writer.item(&names, &["get", "update", "patch", "delete"]);
        paths.insert(format!("{within}/{{name}}"), object);
        for sub in &kind.subresources {
            let below = writer.below(&names, sub);
            paths.insert(format!("{within}/{{name}}/{}", sub.name), below);
            if sub.name == "proxy" {
                let below = writer.below(&[&names[..], &["path"]].concat(), sub);
                paths.insert(format!("{within}/{{name}}/proxy/{{path}}"), below);
            }
        }
    }
}

struct Writer<'a, 'b> {
    kind: &'a Kind,
    schemas: &'a mut Schemas<'b>,
}

impl Writer<'_, '_> {
    /// One path with those of `verbs` that the kind knows. `names` are the words that the path leaves open.
    fn item(&mut self, names: &[&str], verbs: &[&str]) -> Value {
        let mut item = path_item(names);
        for verb in verbs.iter().filter(|verb| self.kind.verbs.contains(verb)) {
            let id = format!("{}{}", verb, self.id(names.contains(&"namespace"), ""));
            let own = self.schemas.of(self.kind);
            let named = named(&self.kind.group, &self.kind.version, &self.kind.kind);
            let lists = matches!(*verb, "list" | "deletecollection");
            let list = if lists { self.schemas.list(self.kind) } else { None };
            item[method(verb)] = self.operation(verb, &id, own, list, named);
        }
        item
    }

    fn below(&mut self, names: &[&str], sub: &Subresource) -> Value {
        let mut item = path_item(names);
        for verb in sub.verbs {
            let deeper = if names.contains(&"path") { "WithPath" } else { "" };
            let id = format!("{}{}{deeper}", verb, self.id(names.contains(&"namespace"), &sub.name));
            let own = self.below_schema(sub);
            let named = named(&sub.group, &sub.version, &sub.kind);
            item[method(verb)] = match own {
                Some(_) if sub.name != "log" => self.operation(verb, &id, own, None, named),
                // What comes back is no object: a log, or a conversation.
                _ => json!({
                    "operationId": id,
                    "responses": self.responses("200", json!({ "*/*": { "schema": { "type": "string" } } })),
                    "x-kubernetes-action": if sub.name == "log" { "get" } else { "connect" },
                    "x-kubernetes-group-version-kind": named,
                }),
            };
        }
        item
    }

    /// What a subresource speaks: the object itself, or something of its own.
    fn below_schema(&mut self, sub: &Subresource) -> Option<Value> {
        let is_own =
            (&*sub.group, &*sub.version, &*sub.kind) == (&*self.kind.group, &*self.kind.version, &*self.kind.kind);
        if is_own { self.schemas.of(self.kind) } else { self.schemas.kind(&sub.group, &sub.version, &sub.kind) }
    }

    fn operation(&mut self, verb: &str, id: &str, own: Option<Value>, list: Option<Value>, named: Value) -> Value {
        let own = own.unwrap_or_else(|| json!({}));
        let parameters: &[&[(&str, &str)]] = match verb {
            "list" => &[PRETTY, CHOOSING, WATCHING],
            "create" | "update" => &[PRETTY, WRITING],
            "patch" => &[PRETTY, WRITING, FORCING],
            "delete" => &[PRETTY, DELETING],
            "deletecollection" => &[PRETTY, DELETING, CHOOSING],
            _ => &[PRETTY],
        };
        let parameters: Vec<Value> = parameters.concat().iter().map(|(name, kind)| query(name, kind)).collect();
        let json_of = |schema: &Value| json!({ "application/json": { "schema": schema } });
        let answer = match verb {
            "list" => {
                let schema = list.unwrap_or_else(|| own.clone());
                json!({ "application/json": { "schema": schema }, "application/json;stream=watch": { "schema": schema } })
            }
            "deletecollection" => json_of(&list.unwrap_or_else(|| own.clone())),
            "delete" => json_of(&json!({})),
            _ => json_of(&own),
        };
        let code = if verb == "create" { "201" } else { "200" };
        let mut operation = json!({
            "operationId": id,
            "parameters": parameters,
            "responses": self.responses(code, answer),
            "x-kubernetes-action": action(verb),
            "x-kubernetes-group-version-kind": named,
        });
        match verb {
            "create" | "update" => operation["requestBody"] = body(self.bodies(), &own, true),
            "patch" => {
                // A patch is a part of the object, or a list of steps: any JSON.
                operation["requestBody"] = body(self.patches(), &json!({}), true);
            }
            "delete" | "deletecollection" => {
                let options = self.schemas.kind("", "v1", "DeleteOptions").unwrap_or_else(|| json!({}));
                operation["requestBody"] = body(&BODIES, &options, false);
            }
            _ => {}
        }
        // What exists already is answered, what did not is made, and a delete may go on after its answer.
        let also: &[&str] = match verb {
            "create" => &["200", "202"],
            "update" | "patch" => &["201"],
            "delete" => &["202"],
            _ => &[],
        };
        for code in also {
            operation["responses"][*code] =
                operation["responses"][if verb == "create" { "201" } else { "200" }].clone();
        }
        operation
    }

    /// Without published fields there is nothing to number, to merge by or to own.
    fn bodies(&self) -> &'static [&'static str] {
        if self.kind.has_protobuf() { &BODIES } else { &BODIES[..2] }
    }

    fn patches(&self) -> &'static [&'static str] {
        if self.kind.has_protobuf() { &PATCHES } else { &PATCHES[1..3] }
    }

    fn responses(&mut self, code: &str, content: Value) -> Value {
        let refusal = json!({ "application/json": { "schema": self.schemas.status() } });
        json!({
            code: { "description": "OK", "content": content },
            "default": { "description": "Refused", "content": refusal },
        })
    }

    /// `CoreV1NamespacedPodStatus`.
    fn id(&self, namespaced: bool, sub: &str) -> String {
        let group = self.kind.group.trim_end_matches(".k8s.io");
        let group: String = if group.is_empty() { "Core".to_owned() } else { group.split('.').map(capital).collect() };
        let scope = match (self.kind.namespaced, namespaced) {
            (true, true) => "Namespaced",
            (true, false) => "EveryNamespaces",
            (false, _) => "",
        };
        format!("{group}{}{scope}{}{}", capital(&self.kind.version), self.kind.kind, capital(sub))
    }
}

pub(super) fn path_item(names: &[&str]) -> Value {
    let open: Vec<Value> = names
        .iter()
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect();
    if open.is_empty() { json!({}) } else { json!({ "parameters": open }) }
}

fn named(group: &str, version: &str, kind: &str) -> Value {
    json!({ "group": group, "version": version, "kind": kind })
}

pub(super) fn query(name: &str, kind: &str) -> Value {
    json!({ "name": name, "in": "query", "schema": { "type": kind, "uniqueItems": true } })
}

fn body(media: &[&str], schema: &Value, required: bool) -> Value {
    let content: Map<String, Value> =
        media.iter().map(|media| ((*media).to_owned(), json!({ "schema": schema }))).collect();
    json!({ "content": content, "required": required })
}

fn method(verb: &str) -> &'static str {
    match verb {
        "create" => "post",
        "update" => "put",
        "patch" => "patch",
        "delete" | "deletecollection" => "delete",
        _ => "get",
    }
}

/// The published word for a verb.
fn action(verb: &str) -> &str {
    match verb {
        "create" => "post",
        "update" => "put",
        other => other,
    }
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
