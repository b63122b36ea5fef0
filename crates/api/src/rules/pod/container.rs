//! Mistakes in one container of a pod.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{downward, handler, list, word};
use crate::quantity::Quantity;
use crate::rules::names;
use crate::status::Cause;

const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];
const MESSAGE_POLICIES: [&str; 2] = ["File", "FallbackToLogsOnError"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const STANDARD: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
const ENV_SOURCES: [&str; 5] = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];

const RESTART_ACTIONS: [&str; 2] = ["Restart", "RestartAllContainers"];
const EXIT_CODE_OPERATORS: [&str; 2] = ["In", "NotIn"];
/// Of restart rules, and of the exit codes that one of them names, so many are taken.
const RESTART_RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;

/// What a container is for, which decides what it may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Runs for the pod's life.
    Main,
    /// Runs to its end before the next one starts.
    Init,
    /// An init container that keeps running: `restartPolicy: Always`.
    Sidecar,
    /// Added later, to look around.
    Ephemeral,
}

impl Role {
    pub(super) fn of(list: &str, container: &Value) -> Self {
        match (list, word(container, "restartPolicy")) {
            ("initContainers", "Always") => Self::Sidecar,
            ("initContainers", _) => Self::Init,
            ("ephemeralContainers", _) => Self::Ephemeral,
            _ => Self::Main,
        }
    }
}

/// One container, where it stands and what is around it.
pub(super) struct Check<'a> {
    pub(super) spec: &'a Value,
    pub(super) field: String,
    pub(super) kind: Role,
    pub(super) volumes: &'a BTreeSet<&'a str>,
}

impl Check<'_> {
    fn at(&self, key: &str) -> String {
        format!("{}.{key}", self.field)
    }

    /// Adds everything that is wrong. `host_ports` collects what the pod's containers take of the host.
    pub(super) fn run(&self, container: &Value, host_ports: &mut BTreeSet<(String, i64)>, causes: &mut Vec<Cause>) {
        match word(container, "name") {
            "" => causes.push(Cause::required(self.at("name"), "")),
            name => {
                if let Some(text) = names::label(name) {
                    causes.push(Cause::invalid(self.at("name"), name, &text));
                }
            }
        }
        match word(container, "image") {
            "" => causes.push(Cause::required(self.at("image"), "")),
            image if image.trim() != image => {
                causes.push(Cause::invalid(self.at("image"), image, "must not have leading or trailing whitespace"));
            }
            _ => {}
        }
        self.one_of(container, "imagePullPolicy", &PULL_POLICIES, causes);
        self.one_of(container, "terminationMessagePolicy", &MESSAGE_POLICIES, causes);
        self.ports(container, host_ports, causes);
        self.env(container, causes);
        self.mounts(container, causes);
        self.resources(&container["resources"], causes);
        self.resize_policy(container, causes);
        self.restart_policy(container, causes);
        self.probes_and_hooks(container, causes);
    }

    fn one_of(&self, container: &Value, key: &str, words: &[&str], causes: &mut Vec<Cause>) {
        let value = word(container, key);
        if !value.is_empty() && !words.contains(&value) {
            causes.push(Cause::not_supported(self.at(key), value, words));
        }
    }

    fn resize_policy(&self, container: &Value, causes: &mut Vec<Cause>) {
        let field = || self.at("resizePolicy");
        let runs_once = word(self.spec, "restartPolicy") == "Never";
        let mut seen = BTreeSet::new();
        for (index, policy) in list(container, "resizePolicy").iter().enumerate() {
            let (resource, restart) = (word(policy, "resourceName"), word(policy, "restartPolicy"));
            if !seen.insert(resource) {
                causes.push(Cause::duplicate(format!("{}[{index}]", field()), resource));
            }
            for (value, known) in [(resource, ["cpu", "memory"]), (restart, ["NotRequired", "RestartContainer"])] {
                match value {
                    "" => causes.push(Cause::required(field(), "")),
                    value if known.contains(&value) => {}
                    value => causes.push(Cause::not_supported(field(), value, &known)),
                }
            }
            if runs_once && restart != "NotRequired" {
                let text = "must be 'NotRequired' when `restartPolicy` is 'Never'";
                causes.push(Cause::invalid(field(), restart, text));
            }
        }
    }

    fn restart_policy(&self, container: &Value, causes: &mut Vec<Cause>) {
        let policy = word(container, "restartPolicy");
        let rules = list(container, "restartPolicyRules");
        if self.kind == Role::Ephemeral {
            let text = "cannot be set for an Ephemeral Container";
            if !policy.is_empty() {
                causes.push(Cause::forbidden(self.at("restartPolicy"), text));
            }
            if !rules.is_empty() {
                causes.push(Cause::forbidden(self.at("restartPolicyRules"), text));
            }
            return;
        }
        self.one_of(container, "restartPolicy", &["Always", "Never", "OnFailure"], causes);
        if policy.is_empty() && !rules.is_empty() {
            let text = "must specify restartPolicy when restart rules are used";
            causes.push(Cause::required(self.at("restartPolicy"), text));
        }
        if rules.len() > RESTART_RULES_MAX {
            causes.push(Cause::too_many(self.at("restartPolicyRules"), rules.len(), RESTART_RULES_MAX));
        }
        for (index, rule) in rules.iter().take(RESTART_RULES_MAX).enumerate() {
            self.restart_rule(&format!("restartPolicyRules[{index}]"), rule, causes);
        }
    }

    fn restart_rule(&self, field: &str, rule: &Value, causes: &mut Vec<Cause>) {
        let at = |key: &str| self.at(&format!("{field}.{key}"));
        let action = word(rule, "action");
        if !RESTART_ACTIONS.contains(&action) {
            causes.push(Cause::not_supported(at("action"), action, &RESTART_ACTIONS));
        }
        let codes = &rule["exitCodes"];
        if !codes.is_object() {
            causes.push(Cause::required(at("exitCodes"), "must be specified"));
            return;
        }
        let operator = word(codes, "operator");
        if !EXIT_CODE_OPERATORS.contains(&operator) {
            causes.push(Cause::not_supported(at("exitCodes.operator"), operator, &EXIT_CODE_OPERATORS));
        }
        let values = list(codes, "values").len();
        if values > EXIT_CODES_MAX {
            causes.push(Cause::too_many(at("exitCodes.values"), values, EXIT_CODES_MAX));
        }
    }

    fn ports(&self, container: &Value, host_ports: &mut BTreeSet<(String, i64)>, causes: &mut Vec<Cause>) {
        let mut seen = BTreeSet::new();
        for (index, port) in list(container, "ports").iter().enumerate() {
            let field = |key: &str| format!("{}.ports[{index}].{key}", self.field);
            let name = word(port, "name");
            if !name.is_empty() {
                if let Some(text) = names::port_name(name) {
                    causes.push(Cause::invalid(field("name"), name, &text));
                } else if !seen.insert(name) {
                    causes.push(Cause::duplicate(field("name"), name));
                }
            }
            match port["containerPort"].as_i64().unwrap_or_default() {
                0 => causes.push(Cause::required(field("containerPort"), "")),
                number => in_port_range(&field("containerPort"), number, causes),
            }
            let protocol = word(port, "protocol");
            if !PROTOCOLS.contains(&protocol) {
                causes.push(Cause::not_supported(field("protocol"), protocol, &PROTOCOLS));
            }
            if let Some(number) = port["hostPort"].as_i64().filter(|n| *n != 0) {
                in_port_range(&field("hostPort"), number, causes);
                if !host_ports.insert((format!("{protocol}/{}", word(port, "hostIP")), number)) {
                    let text = format!("{protocol}/{}/{number}", word(port, "hostIP"));
                    causes.push(Cause::duplicate(field("hostPort"), text));
                }
                if self.spec["hostNetwork"] == Value::Bool(true) && port["containerPort"].as_i64() != Some(number) {
                    let text = "must match `hostPort` when `hostNetwork` is true";
                    causes.push(Cause::invalid(field("containerPort"), port["containerPort"].clone(), text));
                }
            }
        }
    }

    fn env(&self, container: &Value, causes: &mut Vec<Cause>) {
        for (index, env) in list(container, "env").iter().enumerate() {
            let field = format!("{}.env[{index}]", self.field);
            let name = word(env, "name");
            if name.is_empty() {
                causes.push(Cause::required(format!("{field}.name"), ""));
            } else if !name.chars().all(|c| c.is_ascii_graphic() && c != '=' || c == ' ') {
                let text = "a valid environment variable name must consist only of printable ASCII characters other \
                            than '='";
                causes.push(Cause::invalid(format!("{field}.name"), name, text));
            }
            let Some(source) = env["valueFrom"].as_object() else { continue };
            downward::env(&env["valueFrom"]["fieldRef"], &format!("{field}.valueFrom.fieldRef"), causes);
            let chosen = ENV_SOURCES.iter().filter(|key| source.contains_key(**key)).count();
            let field = format!("{field}.valueFrom");
            if chosen == 0 {
                causes.push(Cause::invalid(
                    field,
                    "",
                    "must specify one of: `fieldRef`, `resourceFieldRef`, \
                                                       `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
                ));
            } else if chosen > 1 {
                causes.push(Cause::invalid(field, "", "may not have more than one field specified at a time"));
            } else if !word(env, "value").is_empty() {
                causes.push(Cause::invalid(field, "", "may not be specified when `value` is not empty"));
            }
        }
    }

    fn mounts(&self, container: &Value, causes: &mut Vec<Cause>) {
        let mut paths = BTreeSet::new();
        for (index, mount) in list(container, "volumeMounts").iter().enumerate() {
            let field = |key: &str| format!("{}.volumeMounts[{index}].{key}", self.field);
            match word(mount, "name") {
                "" => causes.push(Cause::required(field("name"), "")),
                name if !self.volumes.contains(name) => {
                    causes.push(Cause {
                        reason: "FieldValueNotFound",
                        message: format!("Not found: {name:?}"),
                        field: field("name"),
                    });
                }
                _ => {}
            }
            match word(mount, "mountPath") {
                "" => causes.push(Cause::required(field("mountPath"), "")),
                path if !paths.insert(path) => {
                    causes.push(Cause::invalid(field("mountPath"), path, "must be unique"));
                }
                path if path.contains(':') => {
                    causes.push(Cause::invalid(field("mountPath"), path, "must not contain ':'"));
                }
                _ => {}
            }
            let sub_path = word(mount, "subPath");
            if sub_path.starts_with('/') {
                causes.push(Cause::invalid(field("subPath"), sub_path, "must be a relative path"));
            } else if sub_path.split('/').any(|part| part == "..") {
                causes.push(Cause::invalid(field("subPath"), sub_path, "must not contain '..'"));
            }
            // Whoever shares mounts with the node changes the node's own.
            if word(mount, "mountPropagation") == "Bidirectional" && container["securityContext"]["privileged"] != true
            {
                let text = "Bidirectional mount propagation is available only to privileged containers";
                causes.push(Cause::forbidden(field("mountPropagation"), text));
            }
        }
    }

    fn resources(&self, resources: &Value, causes: &mut Vec<Cause>) {
        let amount = |side: &str, name: &str| resources[side][name].as_str()?.parse::<Quantity>().ok();
        for side in ["limits", "requests"] {
            for name in resources[side].as_object().into_iter().flat_map(|map| map.keys()) {
                resource_name(name, &format!("{}.resources.{side}.{name}", self.field), causes);
                if let Some(quantity) = amount(side, name).filter(|q| q.is_negative()) {
                    let field = format!("{}.resources.{side}.{name}", self.field);
                    let text = "must be greater than or equal to 0";
                    causes.push(Cause::invalid(field, quantity.to_string(), text));
                }
            }
        }
        for name in resources["requests"].as_object().into_iter().flat_map(|map| map.keys()) {
            if let (Some(request), Some(limit)) = (amount("requests", name), amount("limits", name))
                && request > limit
            {
                let field = format!("{}.resources.requests", self.field);
                let text = format!("must be less than or equal to {name} limit of {limit}");
                causes.push(Cause::invalid(field, request.to_string(), &text));
            }
        }
    }

    fn probes_and_hooks(&self, container: &Value, causes: &mut Vec<Cause>) {
        let kept_from = |key: &str| {
            match self.kind {
                Role::Init => Some("may not be set for init containers without restartPolicy=Always"),
                Role::Ephemeral => Some("cannot be set for an Ephemeral Container"),
                Role::Main | Role::Sidecar => None,
            }
            .filter(|_| container[key].is_object())
        };
        for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
            if let Some(text) = kept_from(probe) {
                causes.push(Cause::forbidden(self.at(probe), text));
            } else if container[probe].is_object() {
                handler::probe(&container[probe], probe, &self.at(probe), causes);
            }
        }
        if let Some(text) = kept_from("lifecycle") {
            causes.push(Cause::forbidden(self.at("lifecycle"), text));
        } else if container["lifecycle"].is_object() {
            handler::lifecycle(&container["lifecycle"], self.spec, &self.at("lifecycle"), causes);
        }
    }
}

/// What a container may have so much of: what every node has, or what somebody else counts under their own domain.
fn resource_name(name: &str, field: &str, causes: &mut Vec<Cause>) {
    if let Some(text) = names::qualified(name) {
        causes.push(Cause::invalid(field, name, &text));
    } else if !name.contains('/') && !STANDARD.contains(&name) && !name.starts_with("hugepages-") {
        causes.push(Cause::invalid(field, name, "must be a standard resource type or fully qualified"));
        causes.push(Cause::invalid(field, name, "must be a standard resource for containers"));
    }
}

/// A port number is a port number.
pub(super) fn in_port_range(field: &str, number: i64, causes: &mut Vec<Cause>) {
    if !(1..=65535).contains(&number) {
        causes.push(Cause::invalid(field, number, "must be between 1 and 65535, inclusive"));
    }
}
