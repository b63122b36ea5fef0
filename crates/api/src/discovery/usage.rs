//! What pods and nodes use, as OpenAPI describes it: the one group that is in no table, because nothing of it is stored.

use serde_json::{Map, Value, json};

use super::schemas::Schemas;
use super::{METRICS, METRICS_KINDS, paths};

const PACKAGE: &str = "io.k8s.metrics.pkg.apis.metrics.v1beta1";

/// Adds the paths of both kinds to `paths`, and what their answers consist of to `schemas`.
pub(super) fn add(paths: &mut Map<String, Value>, schemas: &mut Schemas<'_>) {
    let root = format!("/{}", paths::prefix(METRICS.0, METRICS.1));
    let usage = described(
        json!({ "type": "object", "additionalProperties": schemas.quantity() }),
        "What is used of each resource: cpu in cores, memory in bytes that cannot be given back at once.",
    );
    let container = json!({
        "type": "object", "required": ["name", "usage"],
        "description": "What one container of a pod uses.",
        "properties": {
            "name": described(json!({ "type": "string" }), "Name of the container, as in the pod's spec."),
            "usage": usage,
        },
    });
    let container = schemas.add(&format!("{PACKAGE}.ContainerMetrics"), container);
    for (plural, kind, namespaced) in METRICS_KINDS {
        let mut properties = json!({
            "metadata": schemas.object_metadata(),
            "timestamp": described(
                json!({ "type": "string", "format": "date-time" }),
                "When the window ended over which use was measured.",
            ),
            "window": described(json!({ "type": "string" }), "How long the window was, such as 10s."),
        });
        if namespaced {
            let list = json!({ "type": "array", "items": container, "x-kubernetes-list-type": "atomic" });
            properties["containers"] = described(list, "What each container uses.");
        } else {
            properties["usage"] = usage.clone();
        }
        let said = format!("What a {} uses, as its node measured it last.", plural.trim_end_matches('s'));
        let one = json!({ "type": "object", "description": said, "properties": properties });
        let own = schemas.add_kind(&format!("{PACKAGE}.{kind}"), one, (METRICS.0, METRICS.1, kind));
        let list = json!({
            "type": "object", "required": ["items"], "description": format!("A list of {kind}."),
            "properties": { "metadata": schemas.list_metadata(), "items": { "type": "array", "items": own } },
        });
        let list_kind = format!("{kind}List");
        let list = schemas.add_kind(&format!("{PACKAGE}.{list_kind}"), list, (METRICS.0, METRICS.1, &list_kind));
        let mut operation = |verb: &str, scope: &str, schema: &Value| {
            let answer = json!({ "description": "OK", "content": { "application/json": { "schema": schema } } });
            let refusal = json!({ "application/json": { "schema": schemas.status() } });
            let mut operation = json!({
                "operationId": format!("{verb}MetricsV1beta1{scope}{kind}"),
                "responses": { "200": answer, "default": { "description": "Refused", "content": refusal } },
                "x-kubernetes-action": verb,
                "x-kubernetes-group-version-kind": { "group": METRICS.0, "version": METRICS.1, "kind": kind },
            });
            if verb == "list" {
                operation["parameters"] =
                    ["fieldSelector", "labelSelector"].iter().map(|name| paths::query(name, "string")).collect();
            }
            operation
        };
        let (within, scope, names): (String, &str, &[&str]) = match namespaced {
            true => (format!("{root}/namespaces/{{namespace}}/{plural}"), "Namespaced", &["namespace"]),
            false => (format!("{root}/{plural}"), "", &[]),
        };
        let mut put = |path: String, names: &[&str], operation: Value| {
            let mut item = paths::path_item(names);
            item["get"] = operation;
            paths.insert(path, item);
        };
        if namespaced {
            put(format!("{root}/{plural}"), &[], operation("list", "EveryNamespaces", &list));
        }
        put(within.clone(), names, operation("list", scope, &list));
        put(format!("{within}/{{name}}"), &[names, &["name"]].concat(), operation("get", scope, &own));
    }
}

fn described(mut schema: Value, text: &str) -> Value {
    schema["description"] = json!(text);
    schema
}
