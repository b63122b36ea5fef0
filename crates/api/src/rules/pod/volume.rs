//! Mistakes in a pod's volumes.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{downward, list, word};
use crate::rules::names;
use crate::status::Cause;

/// Adds what is wrong; answers the names that mounts may refer to.
pub(super) fn validate<'a>(volumes: &'a [Value], causes: &mut Vec<Cause>) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    for (index, volume) in volumes.iter().enumerate() {
        let field = format!("spec.volumes[{index}]");
        let name = word(volume, "name");
        if name.is_empty() {
            causes.push(Cause::required(format!("{field}.name"), ""));
        } else if let Some(text) = names::label(name) {
            causes.push(Cause::invalid(format!("{field}.name"), name, &text));
        } else if !seen.insert(name) {
            causes.push(Cause::duplicate(format!("{field}.name"), name));
        }
        let sources = volume.as_object().into_iter().flatten().filter(|(key, _)| *key != "name");
        for (extra, _) in sources.skip(1) {
            causes.push(Cause::forbidden(format!("{field}.{extra}"), "may not specify more than 1 volume type"));
        }
        files(&volume["downwardAPI"], &format!("{field}.downwardAPI"), causes);
        for (at, source) in list(&volume["projected"], "sources").iter().enumerate() {
            files(&source["downwardAPI"], &format!("{field}.projected.sources[{at}].downwardAPI"), causes);
        }
        if volume["hostPath"].is_object() && word(&volume["hostPath"], "path").is_empty() {
            causes.push(Cause::required(format!("{field}.hostPath.path"), ""));
        }
        if volume["secret"].is_object() && word(&volume["secret"], "secretName").is_empty() {
            causes.push(Cause::required(format!("{field}.secret.secretName"), ""));
        }
        if volume["configMap"].is_object() && word(&volume["configMap"], "name").is_empty() {
            causes.push(Cause::required(format!("{field}.configMap.name"), ""));
        }
    }
    seen
}

fn files(source: &Value, field: &str, causes: &mut Vec<Cause>) {
    for (index, item) in list(source, "items").iter().enumerate() {
        downward::file(&item["fieldRef"], &format!("{field}.items[{index}].fieldRef"), causes);
    }
}
