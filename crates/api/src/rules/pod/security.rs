//! Mistakes in who a pod's processes run as, and what they may tune.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{CONTAINER_LISTS, list, word};
use crate::status::Cause;

const SYSCTL_MAX: usize = 253;
const SYSCTL_FORMAT: &str = "^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";

/// Everything that is wrong with the security contexts of a pod and of its containers.
pub(super) fn validate(spec: &Value, causes: &mut Vec<Cause>) {
    let own = &spec["securityContext"];
    ids(own, "spec.securityContext", &["fsGroup", "runAsUser", "runAsGroup"], causes);
    for (index, group) in list(own, "supplementalGroups").iter().enumerate() {
        id(group, &format!("spec.securityContext.supplementalGroups[{index}]"), causes);
    }
    sysctls(own, causes);
    for key in CONTAINER_LISTS {
        for (index, container) in list(spec, key).iter().enumerate() {
            let field = format!("spec.{key}[{index}].securityContext");
            let context = &container["securityContext"];
            ids(context, &field, &["runAsUser", "runAsGroup"], causes);
            if context["allowPrivilegeEscalation"] == false && context["privileged"] == true {
                let text = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
                causes.push(Cause::invalid(field, context.clone(), text));
            }
        }
    }
}

fn ids(context: &Value, field: &str, keys: &[&str], causes: &mut Vec<Cause>) {
    for key in keys {
        id(&context[*key], &format!("{field}.{key}"), causes);
    }
}

fn id(value: &Value, field: &str, causes: &mut Vec<Cause>) {
    if let Some(number) = value.as_i64().filter(|number| !(0..=i64::from(i32::MAX)).contains(number)) {
        causes.push(Cause::invalid(field, number, "must be between 0 and 2147483647, inclusive"));
    }
}

fn sysctls(context: &Value, causes: &mut Vec<Cause>) {
    let mut seen = BTreeSet::new();
    for (index, sysctl) in list(context, "sysctls").iter().enumerate() {
        let field = format!("spec.securityContext.sysctls[{index}].name");
        let name = word(sysctl, "name");
        if name.is_empty() {
            causes.push(Cause::required(field, ""));
        } else if !is_sysctl(name) {
            let text = format!("must have at most {SYSCTL_MAX} characters and match regex {SYSCTL_FORMAT}");
            causes.push(Cause::invalid(field, name, &text));
        } else if !seen.insert(name) {
            causes.push(Cause::duplicate(field, name));
        }
    }
}

fn is_sysctl(name: &str) -> bool {
    let end = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let segment = |text: &str| {
        text.starts_with(end) && text.ends_with(end) && text.chars().all(|c| end(c) || matches!(c, '-' | '_'))
    };
    name.len() <= SYSCTL_MAX && name.split(['.', '/']).all(segment)
}
