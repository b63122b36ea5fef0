//! Requests for certificates: what they may say, and which endpoint may change what of them.
//!
//! Who asks is written in by the server; that the request itself can be read, and is signed by its own key, is checked there, too.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use serde_json::{Value, json};

use super::value::{list, word};
use super::{Rules, keep, names, typed_as};
use crate::meta;
use crate::status::Cause;

/// Conditions that only the approval endpoint sets.
const DECISIONS: [&str; 2] = ["Approved", "Denied"];
const FAILED: &str = "Failed";
/// No certificate is good for less.
const LIFE_LEAST: i64 = 600;
const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

pub(crate) struct SigningRequestRules;

impl Rules for SigningRequestRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_as::<CertificateSigningRequest>(object)
    }

    fn name_rule(&self) -> names::Rule {
        names::Rule::PathSegment
    }

    fn before_create(&self, object: &mut Value) -> Result<(), String> {
        object["status"] = json!({});
        Ok(())
    }

    fn before_update(&self, old: &Value, new: &mut Value) {
        keep(new, old, "spec");
    }

    fn before_status_update(&self, old: &Value, new: &mut Value) {
        // Who signs passes on what was decided, and changes nothing of it.
        for decision in DECISIONS {
            let stored = conditions(old).iter().find(|condition| word(condition, "type") == decision);
            let sent = new["status"]["conditions"].as_array_mut().into_iter().flatten();
            if let Some(stored) = stored {
                sent.filter(|condition| word(condition, "type") == decision).for_each(|own| *own = stored.clone());
            }
        }
    }

    fn before_part_update(&self, _part: &str, old: &Value, new: &mut Value) {
        keep(new, old, "spec");
        let sent = new["status"]["conditions"].take();
        keep(new, old, "status");
        let status = meta::child_mut(new, "status");
        if sent.is_null() {
            status.remove("conditions");
        } else {
            status.insert("conditions".to_owned(), sent);
        }
    }

    fn counts_as_change(&self, _old: &Value, _new: &Value) -> bool {
        false
    }

    fn validate(&self, object: &Value, causes: &mut Vec<Cause>) {
        validate_spec(&object["spec"], causes);
        validate_conditions(object, causes);
    }

    fn validate_part_update(&self, _part: &str, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
        // What was decided stays decided.
        refuse_removal(old, new, &[DECISIONS[0], DECISIONS[1], FAILED], causes);
    }

    fn validate_status_update(&self, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
        validate_conditions(new, causes);
        refuse_removal(old, new, &[DECISIONS[0], DECISIONS[1], FAILED], causes);
        for decision in DECISIONS.into_iter().filter(|decision| has(new, decision) && !has(old, decision)) {
            let text = format!("updates may not add a condition of type {decision:?}");
            causes.push(Cause::forbidden("status.conditions", &text));
        }
        let (before, after) = (word(&old["status"], "certificate"), word(&new["status"], "certificate"));
        if !before.is_empty() && before != after {
            causes.push(Cause::forbidden("status.certificate", "updates may not modify existing certificate content"));
        } else if before != after && !holds_certificates(after) {
            let text = "must be PEM with certificates and nothing else";
            causes.push(Cause::invalid("status.certificate", after, text));
        }
    }
}

fn validate_spec(spec: &Value, causes: &mut Vec<Cause>) {
    let usages = list(spec, "usages");
    if usages.is_empty() {
        causes.push(Cause::required("spec.usages", ""));
    }
    for (index, usage) in usages.iter().enumerate() {
        let (field, text) = (format!("spec.usages[{index}]"), usage.as_str().unwrap_or_default());
        if !USAGES.contains(&text) {
            causes.push(Cause::not_supported(field, text, &USAGES));
        } else if usages[..index].contains(usage) {
            causes.push(Cause::duplicate(field, text));
        }
    }
    let signer = word(spec, "signerName");
    let (domain, path) = signer.split_once('/').unwrap_or((signer, ""));
    if signer.is_empty() {
        causes.push(Cause::required("spec.signerName", ""));
    } else if signer == LEGACY_SIGNER {
        let text = "the legacy signerName is not allowed via this API version";
        causes.push(Cause::invalid("spec.signerName", signer, text));
    } else if path.is_empty()
        || path.contains('/')
        || !domain.contains('.')
        || names::subdomain(domain).is_some()
        || names::subdomain(path).is_some()
    {
        let text = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        causes.push(Cause::invalid("spec.signerName", signer, text));
    }
    if let Some(seconds) = spec["expirationSeconds"].as_i64().filter(|seconds| *seconds < LIFE_LEAST) {
        let text = "may not specify a duration less than 600 seconds (10 minutes)";
        causes.push(Cause::invalid("spec.expirationSeconds", seconds, text));
    }
}

fn validate_conditions(object: &Value, causes: &mut Vec<Cause>) {
    let conditions = conditions(object);
    for (index, condition) in conditions.iter().enumerate() {
        let (field, kind) = (format!("status.conditions[{index}]"), word(condition, "type"));
        let is_known = DECISIONS.contains(&kind) || kind == FAILED;
        if kind.is_empty() {
            causes.push(Cause::required(format!("{field}.type"), ""));
        } else if conditions[..index].iter().any(|before| word(before, "type") == kind) {
            causes.push(Cause::duplicate(format!("{field}.type"), kind));
        }
        match word(condition, "status") {
            "" => causes.push(Cause::required(format!("{field}.status"), "")),
            "True" => {}
            "False" | "Unknown" if !is_known => {}
            other if is_known => causes.push(Cause::not_supported(format!("{field}.status"), other, &["True"])),
            other => {
                causes.push(Cause::not_supported(format!("{field}.status"), other, &["False", "True", "Unknown"]));
            }
        }
    }
    let decided = conditions.iter().position(|condition| word(condition, "type") == DECISIONS[1]);
    if let Some(index) = decided.filter(|_| has(object, DECISIONS[0])) {
        let text = "Approved and Denied conditions are mutually exclusive";
        causes.push(Cause::invalid(format!("status.conditions[{index}].type"), DECISIONS[1], text));
    }
}

fn refuse_removal(old: &Value, new: &Value, kinds: &[&str], causes: &mut Vec<Cause>) {
    for kind in kinds.iter().filter(|kind| has(old, kind) && !has(new, kind)) {
        let text = format!("updates may not remove a condition of type {kind:?}");
        causes.push(Cause::forbidden("status.conditions", &text));
    }
}

fn conditions(object: &Value) -> &[Value] {
    list(&object["status"], "conditions")
}

fn has(object: &Value, kind: &str) -> bool {
    conditions(object).iter().any(|condition| word(condition, "type") == kind)
}

/// Whether these are certificates in PEM, in base64.
fn holds_certificates(encoded: &str) -> bool {
    let Ok(bytes) = STANDARD.decode(encoded) else { return false };
    let Ok(text) = String::from_utf8(bytes) else { return false };
    let labels: Vec<&str> = text.lines().filter(|line| line.starts_with("-----")).collect();
    !labels.is_empty()
        && labels.chunks(2).all(|pair| pair == ["-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"])
}
