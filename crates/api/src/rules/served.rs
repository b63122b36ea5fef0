//! Kinds that are served as data for programs that look for them: storage drivers, devices, addresses, flow control. Nothing here acts
//! on them, and whoever writes one is told so.

use std::marker::PhantomData;
use std::net::IpAddr;

use k8s_openapi::api::flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration};
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, VolumeAttachment, VolumeAttributesClass};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::value::{child, list, put, word};
use super::workload::immutable;
use super::{Rules, names, typed_with_conditions};
use crate::meta;
use crate::status::Cause;

/// What whoever writes such an object is told.
pub(super) fn stored_only(kind: &str) -> Vec<String> {
    vec![format!("{kind} is stored, but nothing in this cluster acts on it")]
}

/// The rules of a kind that are no more than a list.
pub(crate) struct Served<T> {
    kind: &'static str,
    name: names::Rule,
    default: fn(&mut Value),
    validate: fn(&Value, &mut Vec<Cause>),
    /// Fields that stay what they were.
    fixed: &'static [&'static str],
    /// What decoding leaves to be put right.
    decoded: fn(&mut Value),
    /// The status of a new object, if it has one.
    status: Option<fn() -> Value>,
    of: PhantomData<fn() -> T>,
}

impl<T> Served<T> {
    const fn new(kind: &'static str) -> Self {
        Self {
            kind,
            name: names::Rule::Subdomain,
            default: |_| {},
            validate: |_, _| {},
            fixed: &[],
            decoded: |_| {},
            status: None,
            of: PhantomData,
        }
    }
}

impl<T: DeserializeOwned + Serialize> Rules for Served<T> {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        let mut typed = typed_with_conditions::<T>(object)?;
        (self.decoded)(&mut typed);
        Ok(typed)
    }

    fn name_rule(&self) -> names::Rule {
        self.name
    }

    fn default(&self, object: &mut Value) {
        (self.default)(object);
    }

    fn before_create(&self, object: &mut Value) -> Result<(), String> {
        if let Some(status) = self.status {
            object["status"] = status();
        }
        Ok(())
    }

    fn validate(&self, object: &Value, causes: &mut Vec<Cause>) {
        (self.validate)(object, causes);
    }

    fn validate_update(&self, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
        self.fixed.iter().for_each(|field| immutable(old, new, field, causes));
    }

    fn warnings(&self, _object: &Value) -> Vec<String> {
        stored_only(self.kind)
    }
}

/// Complains of words that are missing.
fn required(object: &Value, fields: &[&str], causes: &mut Vec<Cause>) {
    for field in fields {
        let found = object.pointer(&format!("/{}", field.replace('.', "/")));
        if found.is_none_or(|found| found.is_null() || found == "") {
            causes.push(Cause::required(*field, ""));
        }
    }
}

/// Complains of a word that is none of these.
fn one_of(object: &Value, field: &str, words: &[&str], causes: &mut Vec<Cause>) {
    let found = object.pointer(&format!("/{}", field.replace('.', "/"))).and_then(Value::as_str);
    if let Some(found) = found.filter(|found| !words.contains(found)) {
        causes.push(Cause::not_supported(field, found, words));
    }
}

pub(crate) static CSI_DRIVER: Served<CSIDriver> = Served {
    default: |object| {
        let spec = meta::child_mut(object, "spec");
        put(spec, "attachRequired", true);
        put(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
        put(spec, "podInfoOnMount", false);
        put(spec, "requiresRepublish", false);
        put(spec, "seLinuxMount", false);
        put(spec, "storageCapacity", false);
        if spec.get("volumeLifecycleModes").and_then(Value::as_array).is_none_or(Vec::is_empty) {
            spec.insert("volumeLifecycleModes".to_owned(), json!(["Persistent"]));
        }
    },
    validate: |object, causes| {
        one_of(object, "spec.fsGroupPolicy", &["File", "None", "ReadWriteOnceWithFSType"], causes);
        for mode in list(&object["spec"], "volumeLifecycleModes").iter().filter_map(Value::as_str) {
            if !["Ephemeral", "Persistent"].contains(&mode) {
                causes.push(Cause::not_supported("spec.volumeLifecycleModes", mode, &["Ephemeral", "Persistent"]));
            }
        }
    },
    fixed: &["spec.attachRequired", "spec.volumeLifecycleModes"],
    ..Served::new("CSIDriver")
};

pub(crate) static CSI_NODE: Served<CSINode> = Served {
    validate: |object, causes| {
        let mut seen = std::collections::BTreeSet::new();
        for (index, driver) in list(&object["spec"], "drivers").iter().enumerate() {
            for key in ["name", "nodeID"] {
                if word(driver, key).is_empty() {
                    causes.push(Cause::required(format!("spec.drivers[{index}].{key}"), ""));
                }
            }
            if !seen.insert(word(driver, "name")) {
                causes.push(Cause::duplicate(format!("spec.drivers[{index}].name"), word(driver, "name")));
            }
        }
    },
    ..Served::new("CSINode")
};

pub(crate) static CSI_STORAGE_CAPACITY: Served<CSIStorageCapacity> = Served {
    validate: |object, causes| required(object, &["storageClassName"], causes),
    fixed: &["nodeTopology", "storageClassName"],
    ..Served::new("CSIStorageCapacity")
};

pub(crate) static VOLUME_ATTACHMENT: Served<VolumeAttachment> = Served {
    validate: |object, causes| {
        required(object, &["spec.attacher", "spec.nodeName"], causes);
        let source = &object["spec"]["source"];
        match (source["persistentVolumeName"].is_null(), source["inlineVolumeSpec"].is_null()) {
            (true, true) => {
                let text = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
                causes.push(Cause::required("spec.source", text));
            }
            (false, false) => {
                let text = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
                causes.push(Cause::forbidden("spec.source", text));
            }
            (true, false) | (false, true) => {}
        }
    },
    fixed: &["spec"],
    status: Some(|| json!({ "attached": false })),
    ..Served::new("VolumeAttachment")
};

pub(crate) static VOLUME_ATTRIBUTES_CLASS: Served<VolumeAttributesClass> = Served {
    validate: |object, causes| {
        required(object, &["driverName"], causes);
        if object["parameters"].as_object().is_none_or(serde_json::Map::is_empty) {
            causes.push(Cause::required("parameters", "must contain at least one key/value pair"));
        }
    },
    fixed: &["driverName", "parameters"],
    ..Served::new("VolumeAttributesClass")
};

pub(crate) static SERVICE_CIDR: Served<ServiceCIDR> = Served {
    validate: |object, causes| {
        let cidrs = list(&object["spec"], "cidrs");
        match cidrs.len() {
            0 => causes.push(Cause::required("spec.cidrs", "at least one CIDR required")),
            1 | 2 => {}
            _ => {
                let text = "may only hold up to 2 values";
                causes.push(Cause::invalid("spec.cidrs", cidrs.to_vec(), text));
            }
        }
        for (index, cidr) in cidrs.iter().enumerate().filter(|(_, cidr)| !is_cidr(cidr.as_str().unwrap_or_default())) {
            let text = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
            causes.push(Cause::invalid(format!("spec.cidrs[{index}]"), cidr.clone(), text));
        }
    },
    fixed: &["spec.cidrs"],
    status: Some(|| json!({})),
    ..Served::new("ServiceCIDR")
};

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let most = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    bits.parse::<u8>().is_ok_and(|bits| bits <= most)
}

pub(crate) static IP_ADDRESS: Served<IPAddress> = Served {
    name: names::Rule::PathSegment,
    validate: |object, causes| {
        let name = meta::name(object);
        if name.parse::<IpAddr>().is_ok_and(|address| address.to_string() == name) {
            required(object, &["spec.parentRef", "spec.parentRef.resource", "spec.parentRef.name"], causes);
        } else {
            causes.push(Cause::invalid("metadata.name", name, "must be a valid IP address in canonical form"));
        }
    },
    fixed: &["spec.parentRef"],
    ..Served::new("IPAddress")
};

pub(crate) static FLOW_SCHEMA: Served<FlowSchema> = Served {
    default: |object| put(meta::child_mut(object, "spec"), "matchingPrecedence", 1000),
    validate: |object, causes| {
        required(object, &["spec.priorityLevelConfiguration.name"], causes);
        let precedence = object["spec"]["matchingPrecedence"].as_i64().unwrap_or_default();
        if precedence < 1 {
            causes.push(Cause::invalid("spec.matchingPrecedence", precedence, "must be a positive value"));
        } else if precedence > 10_000 {
            let text = "must not be greater than 10000";
            causes.push(Cause::invalid("spec.matchingPrecedence", precedence, text));
        }
        one_of(object, "spec.distinguisherMethod.type", &["ByNamespace", "ByUser"], causes);
    },
    status: Some(|| json!({})),
    ..Served::new("FlowSchema")
};

pub(crate) static PRIORITY_LEVEL: Served<PriorityLevelConfiguration> = Served {
    default: |object| {
        let spec = meta::child_mut(object, "spec");
        match spec.get("type").and_then(Value::as_str) {
            Some("Limited") if spec.contains_key("limited") => {
                let limited = child(spec, "limited");
                put(limited, "lendablePercent", 0);
                put(limited, "nominalConcurrencyShares", 30);
                if limited.get("limitResponse").is_some_and(|own| own["type"] == "Queue") {
                    let queuing = child(child(limited, "limitResponse"), "queuing");
                    put(queuing, "handSize", 8);
                    put(queuing, "queueLengthLimit", 50);
                    put(queuing, "queues", 64);
                }
            }
            Some("Exempt") => {
                let exempt = child(spec, "exempt");
                put(exempt, "lendablePercent", 0);
                put(exempt, "nominalConcurrencyShares", 0);
            }
            Some(_) | None => {}
        }
    },
    validate: |object, causes| {
        required(object, &["spec.type"], causes);
        one_of(object, "spec.type", &["Exempt", "Limited"], causes);
        let spec = &object["spec"];
        match word(spec, "type") {
            "Limited" if spec["limited"].is_null() => {
                causes.push(Cause::required("spec.limited", "must not be empty when type is Limited"));
            }
            "Limited" => {
                required(object, &["spec.limited.limitResponse.type"], causes);
                one_of(object, "spec.limited.limitResponse.type", &["Queue", "Reject"], causes);
            }
            "Exempt" if !spec["limited"].is_null() => {
                let text = "must be nil if the type is not Limited";
                causes.push(Cause::forbidden("spec.limited", text));
            }
            _ => {}
        }
    },
    status: Some(|| json!({})),
    ..Served::new("PriorityLevelConfiguration")
};

pub(crate) static DEVICE_CLASS: Served<DeviceClass> = Served::new("DeviceClass");

pub(crate) static RESOURCE_CLAIM: Served<ResourceClaim> =
    Served { fixed: &["spec"], status: Some(|| json!({})), ..Served::new("ResourceClaim") };

pub(crate) static RESOURCE_CLAIM_TEMPLATE: Served<ResourceClaimTemplate> =
    Served { fixed: &["spec"], ..Served::new("ResourceClaimTemplate") };

pub(crate) static RESOURCE_SLICE: Served<ResourceSlice> = Served {
    validate: |object, causes| required(object, &["spec.driver", "spec.pool.name"], causes),
    fixed: &["spec.driver", "spec.pool.name", "spec.nodeName"],
    decoded: |object| zero_amounts(&mut object["spec"]),
    ..Served::new("ResourceSlice")
};

/// Amounts that were left out are zero: these types cannot leave them out.
fn zero_amounts(value: &mut Value) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(zero_amounts),
        Value::Object(fields) => {
            for (key, inside) in fields.iter_mut() {
                let amounts = matches!(key.as_str(), "counters" | "capacity").then(|| inside.as_object_mut()).flatten();
                match amounts {
                    Some(amounts) => amounts.values_mut().for_each(|amount| {
                        if amount.get("value").is_some_and(|own| own == "") {
                            amount["value"] = json!("0");
                        }
                    }),
                    None => zero_amounts(inside),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
