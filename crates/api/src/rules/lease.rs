//! Leases: who is alive, or in charge, and since when.

use k8s_openapi::api::coordination::v1::Lease;
use serde_json::Value;

use super::{Rules, names, typed_as};
use crate::status::Cause;

pub(crate) struct LeaseRules;

impl Rules for LeaseRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_as::<Lease>(object)
    }

    fn name_rule(&self) -> names::Rule {
        names::Rule::PathSegment
    }

    fn default(&self, object: &mut Value) {
        crate::meta::child_mut(object, "spec");
    }

    fn validate(&self, object: &Value, causes: &mut Vec<Cause>) {
        let spec = &object["spec"];
        if let Some(seconds) = spec["leaseDurationSeconds"].as_i64().filter(|s| *s <= 0) {
            causes.push(Cause::invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"));
        }
        if let Some(count) = spec["leaseTransitions"].as_i64().filter(|n| *n < 0) {
            let text = "must be greater than or equal to 0";
            causes.push(Cause::invalid("spec.leaseTransitions", count, text));
        }
    }
}
