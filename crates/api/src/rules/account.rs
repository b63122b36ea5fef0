//! Service accounts: who a pod is. Tokens are not made here.

use k8s_openapi::api::core::v1::ServiceAccount;
use serde_json::Value;

use super::{Rules, typed_as};

pub(crate) struct ServiceAccountRules;

impl Rules for ServiceAccountRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_as::<ServiceAccount>(object)
    }
}
