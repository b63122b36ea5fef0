//! NetworkPolicies: what upstream refuses, and what of one is not enforced here.

use std::net::IpAddr;

use k8s_openapi::api::networking::v1::NetworkPolicy;
use serde_json::{Value, json};

use super::value::{each_mut, list, put, word};
use super::{Rules, names, typed_as};
use crate::meta;
use crate::selector::object as selector;
use crate::status::Cause;

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const TYPES: [&str; 2] = ["Egress", "Ingress"];
/// Nodes look at no more of one policy.
const RULES_MAX: usize = 1_000;
const ITEMS_MAX: usize = 20_000;

pub(crate) struct NetworkPolicyRules;

impl Rules for NetworkPolicyRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_as::<NetworkPolicy>(object)
    }

    fn default(&self, object: &mut Value) {
        let spec = meta::child_mut(object, "spec");
        if spec.get("policyTypes").and_then(Value::as_array).is_none_or(Vec::is_empty) {
            let has_egress = spec.get("egress").and_then(Value::as_array).is_some_and(|rules| !rules.is_empty());
            let types = if has_egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
            spec.insert("policyTypes".to_owned(), types);
        }
        for rules in ["ingress", "egress"] {
            for rule in each_mut(spec, rules) {
                each_mut(rule, "ports").for_each(|port| put(port, "protocol", "TCP"));
            }
        }
    }

    fn validate(&self, object: &Value, causes: &mut Vec<Cause>) {
        validate(object, &Value::Null, causes);
    }

    fn validate_update(&self, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
        // Those that were there already are taken as they are.
        let is_old_block =
            |cause: &Cause| cause.field.contains(".ipBlock.cidr") || cause.field.contains(".ipBlock.except");
        causes.retain(|cause| !is_old_block(cause));
        validate_blocks(new, old, causes);
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        let spec = &object["spec"];
        let rules = || WAYS.iter().flat_map(|(rules, peers)| list(spec, rules).iter().map(|rule| (rule, *peers)));
        let items: usize = rules()
            .map(|(rule, peers)| {
                let except = |peer: &Value| list(&peer["ipBlock"], "except").len();
                let of_peers: usize = list(rule, peers).iter().map(|peer| 1 + except(peer) + labels(peer)).sum();
                of_peers + list(rule, "ports").len()
            })
            .sum();
        let mut warnings = Vec::new();
        if rules().count() > RULES_MAX || items > ITEMS_MAX {
            warnings.push(format!(
                "spec: at most {RULES_MAX} rules with {ITEMS_MAX} peers, ports and labels are enforced; this policy isolates the \
                 pods that it selects, and allows nothing"
            ));
        }
        for (index, (rule, peers)) in rules().enumerate() {
            let is_named = list(rule, "ports").iter().any(|port| port["port"].is_string());
            let blocks = list(rule, peers).iter().filter(|peer| peer["ipBlock"].is_object()).count();
            if peers == "to" && is_named && blocks > 0 && warnings.len() < WARNINGS_MAX {
                let egress = index - list(spec, "ingress").len();
                warnings.push(format!(
                    "spec.egress[{egress}]: a port's name means nothing at addresses of an ipBlock; only ports given by number are open \
                     there"
                ));
            }
        }
        warnings
    }
}

const WARNINGS_MAX: usize = 8;
/// Where rules are, and where their peers.
const WAYS: [(&str, &str); 2] = [("ingress", "from"), ("egress", "to")];

fn labels(peer: &Value) -> usize {
    let size = |selector: &Value| {
        let equal = selector["matchLabels"].as_object().map_or(0, |labels| 2 * labels.len());
        let expressions = list(selector, "matchExpressions").iter().map(|it| 1 + list(it, "values").len());
        equal + expressions.sum::<usize>()
    };
    size(&peer["podSelector"]) + size(&peer["namespaceSelector"])
}

fn validate(object: &Value, old: &Value, causes: &mut Vec<Cause>) {
    let spec = &object["spec"];
    selector::validate(&spec["podSelector"], "spec.podSelector", causes);
    for (rules, peers) in WAYS {
        for (index, rule) in list(spec, rules).iter().enumerate() {
            let at = format!("spec.{rules}[{index}]");
            for (index, port) in list(rule, "ports").iter().enumerate() {
                validate_port(port, &format!("{at}.ports[{index}]"), causes);
            }
            for (index, peer) in list(rule, peers).iter().enumerate() {
                validate_peer(peer, &format!("{at}.{peers}[{index}]"), causes);
            }
        }
    }
    validate_blocks(object, old, causes);
    let types = list(spec, "policyTypes");
    if types.len() > TYPES.len() {
        let text = "may not specify more than two policyTypes";
        causes.push(Cause::invalid("spec.policyTypes", types.to_vec(), text));
        return;
    }
    for (index, kind) in types.iter().enumerate() {
        let kind = kind.as_str().unwrap_or_default();
        if !TYPES.contains(&kind) {
            causes.push(Cause::not_supported(format!("spec.policyTypes[{index}]"), kind, &TYPES));
        }
    }
}

fn validate_port(port: &Value, at: &str, causes: &mut Vec<Cause>) {
    let protocol = port["protocol"].as_str();
    if let Some(protocol) = protocol.filter(|protocol| !PROTOCOLS.contains(protocol)) {
        causes.push(Cause::not_supported(format!("{at}.protocol"), protocol, &PROTOCOLS));
    }
    let out_of_range =
        |number: i64| (!(1..=65_535).contains(&number)).then_some("must be between 1 and 65535, inclusive");
    let end = port["endPort"].as_i64();
    let mut refuse_end = |end: i64, text: &str| causes.push(Cause::invalid(format!("{at}.endPort"), end, text));
    match &port["port"] {
        Value::Number(first) => {
            let first = first.as_i64().unwrap_or_default();
            if let Some(end) = end {
                if end < first {
                    refuse_end(end, "must be greater than or equal to `port`");
                }
                if let Some(text) = out_of_range(end) {
                    refuse_end(end, text);
                }
            }
            if let Some(text) = out_of_range(first) {
                causes.push(Cause::invalid(format!("{at}.port"), first, text));
            }
        }
        Value::String(name) => {
            if let Some(end) = end {
                refuse_end(end, "may not be specified when `port` is non-numeric");
            }
            if let Some(text) = names::port_name(name) {
                causes.push(Cause::invalid(format!("{at}.port"), name.as_str(), &text));
            }
        }
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
            if let Some(end) = end {
                refuse_end(end, "may not be specified when `port` is not specified");
            }
        }
    }
}

fn validate_peer(peer: &Value, at: &str, causes: &mut Vec<Cause>) {
    let selectors = ["podSelector", "namespaceSelector"].into_iter().filter(|key| peer[key].is_object());
    let mut count = 0;
    for key in selectors {
        count += 1;
        selector::validate(&peer[key], &format!("{at}.{key}"), causes);
    }
    match (count, peer["ipBlock"].is_object()) {
        (0, false) => causes.push(Cause::required(at, "must specify a peer")),
        (1.., true) => causes.push(Cause::forbidden(at, "may not specify both ipBlock and another peer")),
        _ => {}
    }
}

/// Blocks of a policy, but for texts that the old one has: those stay as they are.
fn validate_blocks(object: &Value, old: &Value, causes: &mut Vec<Cause>) {
    let before: Vec<&str> = blocks(old).flat_map(|(_, block)| texts(block)).collect();
    for (at, block) in blocks(object) {
        let cidr = word(block, "cidr");
        if cidr.is_empty() {
            causes.push(Cause::required(format!("{at}.cidr"), ""));
            continue;
        }
        let mut read = |field: String, text: &str| {
            let network = network(text);
            if network.is_none() && !before.contains(&text) {
                let words = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
                causes.push(Cause::invalid(field, text, words));
            }
            network
        };
        let outer = read(format!("{at}.cidr"), cidr);
        let except: Vec<_> = list(block, "except").iter().filter_map(Value::as_str).collect();
        let inner: Vec<_> =
            except.iter().enumerate().map(|(index, text)| read(format!("{at}.except[{index}]"), text)).collect();
        for (index, (text, inner)) in except.iter().zip(inner).enumerate() {
            if let (Some(outer), Some(inner)) = (outer, inner)
                && !is_strictly_within(inner, outer)
            {
                let words = "must be a strict subset of `cidr`";
                causes.push(Cause::invalid(format!("{at}.except[{index}]"), *text, words));
            }
        }
    }
}

fn blocks(object: &Value) -> impl Iterator<Item = (String, &Value)> {
    WAYS.into_iter().flat_map(move |(rules, peers)| {
        list(&object["spec"], rules).iter().enumerate().flat_map(move |(rule, of_rule)| {
            list(of_rule, peers).iter().enumerate().filter(|(_, peer)| peer["ipBlock"].is_object()).map(
                move |(peer, of_peer)| (format!("spec.{rules}[{rule}].{peers}[{peer}].ipBlock"), &of_peer["ipBlock"]),
            )
        })
    })
}

fn texts(block: &Value) -> impl Iterator<Item = &str> {
    let except = list(block, "except").iter().filter_map(Value::as_str);
    [word(block, "cidr")].into_iter().chain(except)
}

fn network(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let length: u8 = length.parse().ok()?;
    (length <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, length))
}

fn is_strictly_within((inner, long): (IpAddr, u8), (outer, short): (IpAddr, u8)) -> bool {
    let shared = match (inner, outer) {
        (IpAddr::V4(inner), IpAddr::V4(outer)) => (inner.to_bits() ^ outer.to_bits()).leading_zeros(),
        (IpAddr::V6(inner), IpAddr::V6(outer)) => (inner.to_bits() ^ outer.to_bits()).leading_zeros(),
        _ => return false,
    };
    short < long && shared >= u32::from(short)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(spec: Value) -> Vec<(String, String)> {
        let mut causes = Vec::new();
        NetworkPolicyRules.validate(&json!({"spec": spec}), &mut causes);
        causes.into_iter().map(|cause| (cause.field, cause.message)).collect()
    }

    /// Each refusal has upstream's field and words.
    #[test]
    fn policy_that_upstream_refuses_is_refused_at_its_field() {
        let ingress = |rule: Value| json!({"podSelector": {}, "ingress": [rule]});
        let egress = |rule: Value| json!({"podSelector": {}, "egress": [{}, rule]});
        for (spec, field, words) in [
            (ingress(json!({"from": [{}]})), "spec.ingress[0].from[0]", "must specify a peer"),
            (
                egress(json!({"to": [{"podSelector": {}, "ipBlock": {"cidr": "10.0.0.0/8"}}]})),
                "spec.egress[1].to[0]",
                "may not specify both ipBlock and another peer",
            ),
            (ingress(json!({"from": [{"ipBlock": {}}]})), "spec.ingress[0].from[0].ipBlock.cidr", "Required value"),
            (
                egress(json!({"to": [{"ipBlock": {"cidr": "10.0.0.1"}}]})),
                "spec.egress[1].to[0].ipBlock.cidr",
                "must be a valid CIDR value",
            ),
            (
                ingress(
                    json!({"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16", "11.0.0.0/16"]}}]}),
                ),
                "spec.ingress[0].from[0].ipBlock.except[1]",
                "must be a strict subset of `cidr`",
            ),
            (
                ingress(json!({"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.0/8"]}}]})),
                "spec.ingress[0].from[0].ipBlock.except[0]",
                "must be a strict subset of `cidr`",
            ),
            (
                ingress(json!({"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["fd00::/16"]}}]})),
                "spec.ingress[0].from[0].ipBlock.except[0]",
                "must be a strict subset of `cidr`",
            ),
            (ingress(json!({"ports": [{"port": 0}]})), "spec.ingress[0].ports[0].port", "between 1 and 65535"),
            (ingress(json!({"ports": [{"port": "Web"}]})), "spec.ingress[0].ports[0].port", "alpha-numeric"),
            (
                ingress(json!({"ports": [{"port": 80, "endPort": 79}]})),
                "spec.ingress[0].ports[0].endPort",
                "must be greater than or equal to `port`",
            ),
            (
                ingress(json!({"ports": [{"port": 80, "endPort": 65536}]})),
                "spec.ingress[0].ports[0].endPort",
                "between 1 and 65535",
            ),
            (
                ingress(json!({"ports": [{"port": "web", "endPort": 80}]})),
                "spec.ingress[0].ports[0].endPort",
                "may not be specified when `port` is non-numeric",
            ),
            (
                egress(json!({"ports": [{"endPort": 80}]})),
                "spec.egress[1].ports[0].endPort",
                "may not be specified when `port` is not specified",
            ),
            (
                ingress(json!({"ports": [{"protocol": "ICMP"}]})),
                "spec.ingress[0].ports[0].protocol",
                "supported values: \"SCTP\", \"TCP\", \"UDP\"",
            ),
            (json!({"policyTypes": ["Ingress", "Both"]}), "spec.policyTypes[1]", "supported values"),
            (
                json!({"policyTypes": ["Ingress", "Egress", "Ingress"]}),
                "spec.policyTypes",
                "may not specify more than two policyTypes",
            ),
            (
                ingress(json!({"from": [{"podSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}]})),
                "spec.ingress[0].from[0].podSelector.matchExpressions[0].operator",
                "not a valid selector operator",
            ),
        ] {
            let found = refused(spec.clone());
            assert_eq!(found.len(), 1, "{spec}: {found:?}");
            assert_eq!(found[0].0, field, "{spec}");
            assert!(found[0].1.contains(words), "{spec}: {found:?}");
        }
    }

    #[test]
    fn policy_that_upstream_takes_is_taken() {
        let block = json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.0/9", "10.255.255.255/32"]}});
        let all = json!({"ipBlock": {"cidr": "::/0", "except": ["fd00::/8"]}});
        let ports =
            json!([{"protocol": "SCTP"}, {"port": "http"}, {"port": 80, "endPort": 80}, {"port": 1, "endPort": 65535}]);
        for spec in [
            json!({"podSelector": {}}),
            json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": [block, all], "ports": ports}]}),
            json!({"podSelector": {}, "ingress": [{}, {"from": [{"podSelector": {}, "namespaceSelector": {}}]}]}),
        ] {
            assert_eq!(refused(spec.clone()), [], "{spec}");
        }
    }

    /// [NP-6] [NP-7] What is left out is filled in as upstream does.
    #[test]
    fn types_and_protocols_are_filled_in() {
        let defaulted = |spec: Value| {
            let mut object = json!({"spec": spec});
            NetworkPolicyRules.default(&mut object);
            object["spec"].clone()
        };
        assert_eq!(defaulted(json!({}))["policyTypes"], json!(["Ingress"]));
        assert_eq!(defaulted(json!({"egress": []}))["policyTypes"], json!(["Ingress"]));
        assert_eq!(defaulted(json!({"egress": [{}]}))["policyTypes"], json!(["Ingress", "Egress"]));
        assert_eq!(defaulted(json!({"egress": [{}], "policyTypes": ["Egress"]}))["policyTypes"], json!(["Egress"]));
        let ports = defaulted(json!({"ingress": [{"ports": [{"port": 80}, {"protocol": "UDP"}]}]}));
        assert_eq!(ports["ingress"][0]["ports"], json!([{"port": 80, "protocol": "TCP"}, {"protocol": "UDP"}]));
    }

    /// A text that cannot be read and was there before does not keep a policy from being changed.
    #[test]
    fn old_block_that_cannot_be_read_may_stay() {
        let with = |cidr: &str| json!({"spec": {"ingress": [{"from": [{"ipBlock": {"cidr": cidr}}]}]}});
        for (old, new, expected) in [("010.0.0.0/8", "010.0.0.0/8", 0), ("10.0.0.0/8", "010.0.0.0/8", 1)] {
            let (mut causes, old, new) = (Vec::new(), with(old), with(new));
            NetworkPolicyRules.validate(&new, &mut causes);
            NetworkPolicyRules.validate_update(&old, &new, &mut causes);
            assert_eq!(causes.len(), expected, "{causes:?}");
        }
    }

    /// What is not enforced as it may be meant is told.
    #[test]
    fn policy_that_is_not_enforced_as_written_is_warned_of() {
        let warned = |spec: Value| NetworkPolicyRules.warnings(&json!({"spec": spec}));
        assert_eq!(warned(json!({"ingress": [{}], "egress": [{}]})), [""; 0]);
        let rules: Vec<_> = (0..=RULES_MAX).map(|_| json!({})).collect();
        assert!(warned(json!({"ingress": rules}))[0].contains("allows nothing"));
        let peers: Vec<_> = (0..=ITEMS_MAX).map(|_| json!({"podSelector": {}})).collect();
        assert!(warned(json!({"egress": [{"to": peers}]}))[0].contains("allows nothing"));
        let to = json!([{"ipBlock": {"cidr": "10.0.0.0/8"}}]);
        let named = warned(json!({"ingress": [{}], "egress": [{}, {"to": to, "ports": [{"port": "http"}]}]}));
        assert!(named[0].starts_with("spec.egress[1]: "), "{named:?}");
    }
}
