//! `DeleteOptions`: from the body if there is one, otherwise from the query, never from both.

use serde_json::Value;

use super::body::read_body;
use super::syntax;
use crate::deletion::{DeleteOptions, Propagation};
use crate::status::{Cause, Status};

/// Reads and checks the options of a delete (api-deletion 1.2, 1.3). Unknown fields and any API version are fine.
pub fn decode_delete_options(
    content_type: Option<&str>,
    body: &[u8],
    query: &[(String, String)],
) -> Result<DeleteOptions, Status> {
    if body.is_empty() {
        return from_query(query);
    }
    let sent = read_body(content_type, body, "DeleteOptions")?;
    if !sent.kind.is_empty() && sent.kind != "DeleteOptions" {
        let version = sent.api_version.rsplit('/').next().unwrap_or_default();
        return Err(Status::bad_request(format!(
            "{0} in version {version:?} cannot be handled as a DeleteOptions: converting ({version}.{0}) to \
             (v1.DeleteOptions): unknown conversion",
            sent.kind
        )));
    }
    from_value(&sent.value)
}

/// Reads options that are already a value, such as the `deleteOptions` of an eviction.
pub(crate) fn from_value(value: &Value) -> Result<DeleteOptions, Status> {
    let text = |value: &Value| value.as_str().filter(|s| !s.is_empty()).map(str::to_owned);
    let set = |key: &'static str| value.get(key).filter(|v| !v.is_null()).map(|v| (key, v));
    let grace_seconds = set("gracePeriodSeconds")
        .map(|(key, number)| number.as_i64().ok_or_else(|| wrong_type(key, number)))
        .transpose()?;
    let orphan_dependents =
        set("orphanDependents").map(|(key, flag)| flag.as_bool().ok_or_else(|| wrong_type(key, flag))).transpose()?;
    // What cannot be read must not be passed over: it may be what keeps the object.
    for (key, word) in ["propagationPolicy"].into_iter().filter_map(set) {
        word.as_str().ok_or_else(|| wrong_type(key, word))?;
    }
    if let Some((key, conditions)) = set("preconditions") {
        let fields = conditions.as_object().ok_or_else(|| wrong_type(key, conditions))?;
        for (name, word) in fields.iter().filter(|(name, _)| matches!(name.as_str(), "uid" | "resourceVersion")) {
            let path = format!("preconditions.{name}");
            word.as_str().or(word.is_null().then_some("")).ok_or_else(|| wrong_type(&path, word))?;
        }
    }
    let mut dry_run = Vec::new();
    if let Some((key, words)) = set("dryRun") {
        for word in words.as_array().ok_or_else(|| wrong_type(key, words))? {
            dry_run.push(word.as_str().ok_or_else(|| wrong_type(key, word))?);
        }
    }
    checked(
        DeleteOptions {
            grace_seconds,
            uid: text(&value["preconditions"]["uid"]),
            resource_version: text(&value["preconditions"]["resourceVersion"]),
            orphan_dependents,
            ..DeleteOptions::default()
        },
        value["propagationPolicy"].as_str(),
        &dry_run,
    )
}

fn from_query(query: &[(String, String)]) -> Result<DeleteOptions, Status> {
    let get = |key: &str| query.iter().find(|(k, v)| k == key && !v.is_empty()).map(|(_, v)| v.as_str());
    let grace_seconds = get("gracePeriodSeconds")
        .map(|word| {
            word.parse::<i64>()
                .map_err(|_| Status::bad_request(format!("strconv.ParseInt: parsing {word:?}: invalid syntax")))
        })
        .transpose()?;
    let orphan_dependents = get("orphanDependents").map(|word| !matches!(word, "false" | "0"));
    let dry_run: Vec<&str> = query.iter().filter(|(k, _)| k == "dryRun").map(|(_, v)| v.as_str()).collect();
    checked(
        DeleteOptions { grace_seconds, orphan_dependents, ..DeleteOptions::default() },
        get("propagationPolicy"),
        &dry_run,
    )
}

fn checked(mut options: DeleteOptions, policy: Option<&str>, dry_run: &[&str]) -> Result<DeleteOptions, Status> {
    let mut causes = Vec::new();
    if let Some(word) = policy {
        options.propagation = Propagation::parse(word);
        if options.orphan_dependents.is_some() {
            let message = "orphanDependents and deletionPropagation cannot be both set";
            causes.push(Cause::invalid("propagationPolicy", word, message));
        } else if options.propagation.is_none() {
            let words = ["Foreground", "Background", "Orphan", "nil"];
            causes.push(Cause::not_supported("propagationPolicy", word, &words));
        }
    }
    for word in dry_run.iter().filter(|word| !word.is_empty()) {
        if *word == "All" {
            options.dry_run = true;
        } else {
            causes.push(Cause::not_supported("dryRun", *word, &["All"]));
        }
    }
    if causes.is_empty() { Ok(options) } else { Err(Status::invalid_of("DeleteOptions", "meta.k8s.io", "", causes)) }
}

fn wrong_type(field: &str, value: &Value) -> Status {
    let (found, wanted) = match (field, value) {
        ("gracePeriodSeconds", Value::Number(number)) => (format!("number {number}"), "int64"),
        ("gracePeriodSeconds", _) => (syntax::type_of(value).to_owned(), "int64"),
        ("orphanDependents", _) => (syntax::type_of(value).to_owned(), "bool"),
        ("preconditions", _) => (syntax::type_of(value).to_owned(), "Preconditions"),
        ("dryRun", Value::String(_)) => ("string".to_owned(), "[]string"),
        (_, _) => (syntax::type_of(value).to_owned(), "string"),
    };
    Status::bad_request(format!(
        "DeleteOptions in version \"v1\" cannot be handled as a DeleteOptions: json: cannot unmarshal {found} into Go \
         struct field DeleteOptions.{field} of type {wanted}"
    ))
}
