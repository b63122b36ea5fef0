//! Requests for certificates, in one line each.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{AGE, Column, NAME, NONE, human_duration, since};
use crate::meta;
use crate::rules::value::{list, word};

pub(super) const SIGNING_REQUEST: [Column; 6] = [
    NAME,
    AGE,
    Column("SignerName", "string", "", 0, "Who is to sign it."),
    Column("Requestor", "string", "", 0, "Who asks for it."),
    Column("RequestedDuration", "string", "", 0, "For how long the certificate is to be good."),
    Column("Condition", "string", "", 0, "What was decided, and whether the certificate is there."),
];

pub(super) fn signing_request(object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let asked = spec["expirationSeconds"].as_i64().map(SignedDuration::from_secs);
    let has = |kind: &str| list(status, "conditions").iter().any(|condition| word(condition, "type") == kind);
    let decided = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    };
    let failed = if has("Failed") { ",Failed" } else { "" };
    let issued = if word(status, "certificate").is_empty() { "" } else { ",Issued" };
    vec![
        json!(meta::name(object)),
        json!(since(meta::creation_timestamp(object), now)),
        json!(word(spec, "signerName")),
        json!(word(spec, "username")),
        json!(asked.map_or_else(|| NONE.to_owned(), human_duration)),
        json!(format!("{decided}{failed}{issued}")),
    ]
}
