//! Kinds that are added while the server runs. Their metadata is like everybody's; the rest is theirs.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize as _;
use serde::de::Error as _;
use serde_json::{Map, Value};

use super::Rules;

pub(crate) struct CustomRules {
    /// Whether the status is written apart from the rest.
    pub(crate) has_status: bool,
}

impl Rules for CustomRules {
    /// Only the metadata has a typed view.
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        let mut kept = object.as_object().cloned().ok_or_else(|| serde_json::Error::custom("must be an object"))?;
        let metadata = match kept.remove("metadata") {
            None | Some(Value::Null) => ObjectMeta::default(),
            Some(metadata) => ObjectMeta::deserialize(metadata)?,
        };
        kept.insert("metadata".to_owned(), serde_json::to_value(metadata)?);
        Ok(Value::Object(kept))
    }

    fn before_create(&self, object: &mut Value) -> Result<(), String> {
        if self.has_status
            && let Some(fields) = object.as_object_mut()
        {
            fields.remove("status");
        }
        Ok(())
    }

    /// Everything but metadata is asked for; the status too, unless it is written apart.
    fn counts_as_change(&self, old: &Value, new: &Value) -> bool {
        let asked = |object: &Value| {
            let fields = object.as_object().into_iter().flatten();
            let asked = fields.filter(|(name, _)| *name != "metadata" && (!self.has_status || *name != "status"));
            asked.map(|(name, value)| (name.clone(), value.clone())).collect::<Map<_, _>>()
        };
        asked(old) != asked(new)
    }

    /// What is not the status has its own endpoint.
    fn before_status_update(&self, old: &Value, new: &mut Value) {
        let mut kept = old.clone();
        match new.get("status") {
            Some(status) => kept["status"] = status.clone(),
            None => drop(kept.as_object_mut().and_then(|fields| fields.remove("status"))),
        }
        kept["metadata"] = new["metadata"].take();
        *new = kept;
    }
}
