//! OpenAPI v3: for every group and version one document with all paths and schemas. `kubectl explain` reads the
//! schemas, `create` and `apply` look for a PATCH that takes `fieldValidation` and then leave validation to the server.

use serde_json::{Map, Value, json};

use super::{paths, schemas::Schemas, usage};
use crate::kinds::Registry;
use crate::schema::Descriptions;

pub(super) const TITLE: &str = "Kubernetes";
pub(super) const VERSION: &str = "v1.36.4";

/// A document, where it is served below `/openapi/v3/`, and what it is about.
pub struct Document {
    /// API group.
    pub group: String,
    /// API version.
    pub version: String,
    /// The document itself.
    pub value: Value,
}

impl Document {
    /// `api/v1`, or `apis/apps/v1`.
    pub fn path(&self) -> String {
        paths::prefix(&self.group, &self.version)
    }
}

/// Every document, one at a time: they are large, and only what is made of them is kept.
pub fn openapi_v3(registry: &Registry) -> impl Iterator<Item = Document> {
    let descriptions = Descriptions::unpack();
    let document = move |(group, version): (&str, &str)| Document {
        group: group.to_owned(),
        version: version.to_owned(),
        value: document(registry, group, version, &descriptions),
    };
    super::group_versions(registry).into_iter().chain([super::METRICS]).map(document)
}

/// `GET /openapi/v3`: which documents there are. The fingerprint of each is in its address, which so changes with it.
pub fn openapi_v3_index(documents: &[(String, u64)]) -> Value {
    let entry = |(path, hash): &(String, u64)| {
        (path.clone(), json!({ "serverRelativeURL": format!("/openapi/v3/{path}?hash={hash:016X}") }))
    };
    json!({ "paths": documents.iter().map(entry).collect::<Map<String, Value>>() })
}

fn document(registry: &Registry, group: &str, version: &str, descriptions: &Descriptions) -> Value {
    let (mut paths, mut schemas) = (Map::new(), Schemas::new(descriptions));
    super::kinds_of(registry, group, version).for_each(|kind| paths::add(kind, &mut paths, &mut schemas));
    if (group, version) == super::METRICS {
        usage::add(&mut paths, &mut schemas);
    }
    json!({
        "openapi": "3.0.0", "info": { "title": TITLE, "version": VERSION }, "paths": paths,
        "components": { "schemas": schemas.finish() },
    })
}

/// FNV-1a: tells documents of one build from those of another, and guards nothing.
pub fn fingerprint(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}
