//! The Kubernetes words we speak: kinds, defaults, validation, patches, selectors, tables, errors.
//!
//! No I/O, no clock: time comes in as a value. Objects are `serde_json::Value`s; `k8s-openapi` structs are
//! views on them. A new kind is a row in [`kinds`] plus its rules.
