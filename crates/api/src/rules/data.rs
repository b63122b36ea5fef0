//! ConfigMaps and Secrets: bytes under good keys, of a bounded size, and final once they are said to be.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::{Map, Value, json};

use super::{Rules, names, typed_as};
use crate::decode::syntax;
use crate::status::Cause;

const DATA_MAX: usize = 1024 * 1024;

pub(crate) struct ConfigMapRules;

impl Rules for ConfigMapRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_as::<ConfigMap>(object)
    }

    fn validate(&self, object: &Value, causes: &mut Vec<Cause>) {
        let plain = object["data"].as_object();
        for key in object["binaryData"].as_object().into_iter().flat_map(Map::keys) {
            if plain.is_some_and(|data| data.contains_key(key)) {
                let text = format!("duplicate of key present in data: {key}");
                causes.push(Cause::invalid(format!("binaryData[{key}]"), key.as_str(), &text));
            }
        }
        validate_data(object, &["data", "binaryData"], causes);
    }

    fn validate_update(&self, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
        validate_immutable(old, new, &["data", "binaryData"], causes);
    }
}

pub(crate) struct SecretRules;

impl Rules for SecretRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_as::<Secret>(object)
    }

    /// `stringData` is for writing only: it is merged into `data` and never stored.
    fn default(&self, object: &mut Value) {
        if object["type"].as_str().unwrap_or_default().is_empty() {
            object["type"] = json!("Opaque");
        }
        let plain = object.as_object_mut().and_then(|map| map.remove("stringData"));
        if let Some(Value::Object(plain)) = plain {
            use base64::Engine as _;
            let data = crate::meta::child_mut(object, "data");
            for (key, value) in plain {
                let bytes = value.as_str().unwrap_or_default();
                data.insert(key, json!(base64::engine::general_purpose::STANDARD.encode(bytes)));
            }
        }
    }

    fn validate(&self, object: &Value, causes: &mut Vec<Cause>) {
        validate_data(object, &["data"], causes);
        validate_type(object, causes);
    }

    fn validate_update(&self, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
        if old["type"] != new["type"] {
            causes.push(Cause::invalid("type", new["type"].clone(), "field is immutable"));
        }
        validate_immutable(old, new, &["data"], causes);
    }
}

/// Whether the values of `map` are bytes, written in base64: all but a ConfigMap's plain data.
fn is_encoded(object: &Value, map: &str) -> bool {
    map == "binaryData" || object["type"].is_string()
}

/// How many bytes a text in base64 stands for.
fn decoded_len(text: &str) -> usize {
    let padding = text.bytes().rev().take(2).filter(|byte| *byte == b'=').count();
    (text.len() / 4 * 3).saturating_sub(padding)
}

fn validate_data(object: &Value, maps: &[&str], causes: &mut Vec<Cause>) {
    let mut size = 0;
    for map in maps {
        for (key, value) in object[*map].as_object().into_iter().flatten() {
            if let Some(text) = names::data_key(key) {
                causes.push(Cause::invalid(format!("{map}[{key}]"), key.as_str(), &text));
            }
            let text = value.as_str().unwrap_or_default();
            size += if is_encoded(object, map) { decoded_len(text) } else { text.len() };
        }
    }
    if size > DATA_MAX {
        causes.push(Cause::too_long("", DATA_MAX));
    }
}

/// A secret of a known type holds what is expected of that type.
fn validate_type(secret: &Value, causes: &mut Vec<Cause>) {
    let has = |key: &str| secret["data"].get(key).is_some();
    let mut require = |key: &str| causes.push(Cause::required(format!("data[{key}]"), ""));
    match secret["type"].as_str().unwrap_or_default() {
        "kubernetes.io/tls" => ["tls.crt", "tls.key"].into_iter().filter(|key| !has(key)).for_each(require),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            ["username", "password"].into_iter().for_each(require);
        }
        "kubernetes.io/ssh-auth" if bytes(secret, "ssh-privatekey").is_empty() => require("ssh-privatekey"),
        "kubernetes.io/dockercfg" => docker_config(secret, ".dockercfg", causes),
        "kubernetes.io/dockerconfigjson" => docker_config(secret, ".dockerconfigjson", causes),
        "kubernetes.io/service-account-token" => {
            let key = "kubernetes.io/service-account.name";
            let named = crate::meta::annotations(secret).any(|(own, value)| own == key && !value.is_empty());
            if !named {
                causes.push(Cause::required(format!("metadata.annotations[{key}]"), ""));
            }
        }
        _ => {}
    }
}

/// Not what is in it: that is secret.
fn docker_config(secret: &Value, key: &str, causes: &mut Vec<Cause>) {
    if secret["data"].get(key).is_none() {
        causes.push(Cause::required(format!("data[{key}]"), ""));
        return;
    }
    let bytes = bytes(secret, key);
    let why = match serde_json::from_slice::<Value>(&bytes) {
        Ok(Value::Object(_)) => return,
        Ok(other) => syntax::not_an_object(&other, syntax::ANY_OBJECT),
        Err(error) => syntax::words(&bytes, &error),
    };
    causes.push(Cause::invalid(format!("data[{key}]"), "<secret contents redacted>", &why));
}

fn bytes(secret: &Value, key: &str) -> Vec<u8> {
    use base64::Engine as _;
    let text = secret["data"][key].as_str().unwrap_or_default();
    base64::engine::general_purpose::STANDARD.decode(text).unwrap_or_default()
}

/// `immutable: true` is final.
fn validate_immutable(old: &Value, new: &Value, fields: &[&str], causes: &mut Vec<Cause>) {
    if old["immutable"] != json!(true) {
        return;
    }
    if new["immutable"] != json!(true) {
        causes.push(Cause::forbidden("immutable", "field is immutable when `immutable` is set"));
    }
    for field in fields.iter().filter(|field| old[**field] != new[**field]) {
        causes.push(Cause::forbidden(*field, "field is immutable when `immutable` is set"));
    }
}
