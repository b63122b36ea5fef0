//! Addresses and node ports of services: which one a service gets, told what the others have.
//!
//! Pure: the caller reads the other services, holds whatever keeps two allocations apart, and stores the answer.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use serde_json::{Map, Value, json};

use super::takes_node_ports;
use crate::meta;
use crate::rules::value::{list, put, word};
use crate::status::Cause;

/// Ports that nodes may open for services.
const NODE_PORTS: std::ops::RangeInclusive<i64> = 30000..=32767;

/// The addresses that services are given: an IPv4 network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceRange {
    network: u32,
    prefix: u32,
}

impl Default for ServiceRange {
    fn default() -> Self {
        Self::new(Ipv4Addr::new(10, 87, 0, 0), 16).expect("a /16 holds services")
    }
}

impl std::fmt::Display for ServiceRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from(self.network), self.prefix)
    }
}

/// A text that names no usable range of service addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("service range {text:?} is not valid: {why}; write it like \"10.87.0.0/16\"")]
pub struct InvalidServiceRange {
    text: String,
    why: &'static str,
}

impl std::str::FromStr for ServiceRange {
    type Err = InvalidServiceRange;

    fn from_str(text: &str) -> Result<Self, InvalidServiceRange> {
        let read = || {
            let (address, prefix) = text.split_once('/').ok_or("it has no prefix length")?;
            let address: Ipv4Addr = address.parse().map_err(|_| "it is no IPv4 network")?;
            let prefix = prefix.parse().map_err(|_| "its prefix length is no number")?;
            let range = Self::new(address, prefix).ok_or("its prefix length must be from 8 to 28")?;
            if range.network != u32::from(address) {
                return Err("its address has bits beyond the prefix");
            }
            let is_usual = !(address.is_loopback() || address.is_multicast() || address.is_link_local());
            if is_usual && address.octets()[0] != 0 {
                Ok(range)
            } else {
                Err("these addresses have a meaning of their own")
            }
        };
        read().map_err(|why| InvalidServiceRange { text: text.to_owned(), why })
    }
}

impl ServiceRange {
    /// The network of `address`; `None` unless it can hold services (between a /8 and a /28).
    pub fn new(address: Ipv4Addr, prefix: u32) -> Option<Self> {
        (8..=28).contains(&prefix).then(|| Self { network: u32::from(address) & (u32::MAX << (32 - prefix)), prefix })
    }

    /// The first usable address: the API server's own service, `default/kubernetes`, has it and nobody else.
    pub fn first(self) -> Ipv4Addr {
        Ipv4Addr::from(self.network + 1)
    }

    /// The tenth: what clusters have their DNS at. Given to others only if there is no other left, or by their own wish.
    pub fn dns(self) -> Ipv4Addr {
        Ipv4Addr::from(self.network + 10)
    }

    /// How many bits of an address are the range's.
    pub fn prefix_length(self) -> u8 {
        u8::try_from(self.prefix).unwrap_or(32)
    }

    /// Whether it shares addresses with the network of that many bits.
    pub fn overlaps(self, network: Ipv4Addr, prefix: u8) -> bool {
        let common = u32::from(prefix).min(self.prefix);
        let mask = u32::MAX.checked_shl(32_u32.saturating_sub(common)).unwrap_or(0);
        self.network & mask == u32::from(network) & mask
    }

    /// How many addresses there are to give: not the network's own, not the broadcast.
    fn size(self) -> u32 {
        (1 << (32 - self.prefix)) - 2
    }

    /// Whether it can give that address.
    pub fn holds(self, address: Ipv4Addr) -> bool {
        let offset = u32::from(address).wrapping_sub(self.network);
        (1..=self.size()).contains(&offset)
    }
}

/// What services have already, and how many have it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taken {
    addresses: BTreeMap<String, usize>,
    node_ports: BTreeMap<(String, i64), usize>,
}

impl Taken {
    /// Adds what `service` has.
    pub fn add(&mut self, service: &Value) {
        for address in addresses(service) {
            *self.addresses.entry(address).or_default() += 1;
        }
        for port in numbers(service) {
            *self.node_ports.entry(port).or_default() += 1;
        }
    }

    /// Takes away what `service` had when it was added.
    pub fn remove(&mut self, service: &Value) {
        addresses(service).for_each(|address| take_one(&mut self.addresses, &address));
        numbers(service).for_each(|port| take_one(&mut self.node_ports, &port));
    }
}

fn addresses(service: &Value) -> impl Iterator<Item = String> {
    list(&service["spec"], "clusterIPs").iter().filter_map(Value::as_str).map(ToOwned::to_owned)
}

fn numbers(service: &Value) -> impl Iterator<Item = (String, i64)> {
    let spec = &service["spec"];
    let of_ports =
        list(spec, "ports").iter().map(|port| (word(port, "protocol").to_owned(), port["nodePort"].as_i64()));
    let of_health = ("TCP".to_owned(), spec["healthCheckNodePort"].as_i64());
    let all = of_ports.chain([of_health]);
    all.filter_map(|(protocol, number)| Some((protocol, number.filter(|number| *number != 0)?)))
}

fn take_one<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

/// Gives `service` what it needs and does not have. `old` is what is stored of it, so that what it has already counts
/// as its own; `start` is a random number that keeps recently freed addresses from being given out at once.
pub fn allocate(
    service: &mut Value,
    old: Option<&Value>,
    taken: &Taken,
    range: ServiceRange,
    start: u32,
) -> Vec<Cause> {
    let mut causes = Vec::new();
    address(service, old, taken, range, start, &mut causes);
    node_ports(service, old, taken, start, &mut causes);
    health_port(service, old, taken, start, &mut causes);
    causes
}

fn address(
    service: &mut Value,
    old: Option<&Value>,
    taken: &Taken,
    range: ServiceRange,
    start: u32,
    causes: &mut Vec<Cause>,
) {
    let asked = word(&service["spec"], "clusterIP").to_owned();
    let is_own = meta::namespace(service) == "default" && meta::name(service) == "kubernetes";
    let spec = meta::child_mut(service, "spec");
    if spec.get("type").is_some_and(|kind| kind == "ExternalName") {
        for key in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            spec.remove(key);
        }
        return;
    }
    put(spec, "ipFamilies", json!(["IPv4"]));
    put(spec, "ipFamilyPolicy", "SingleStack");
    // What has no address and selects nothing may be of any family: somebody else says where it leads.
    if asked != "None" || spec.get("selector").and_then(Value::as_object).is_some_and(|selector| !selector.is_empty()) {
        families(spec, causes);
    }
    if asked == "None" || (!asked.is_empty() && old.is_some_and(|old| word(&old["spec"], "clusterIP") == asked)) {
        return;
    }
    let refused = |text: String| {
        Cause::invalid("spec.clusterIPs", json!([asked]), &format!("failed to allocate IP {asked}: {text}"))
    };
    let chosen = match asked.parse::<Ipv4Addr>() {
        Ok(address) if !range.holds(address) => {
            let text = format!("the provided network does not match the current range: {range}");
            causes.push(refused(text));
            return;
        }
        // The first is always taken, also while its service is being put back.
        Ok(address) if taken.addresses.contains_key(&asked) || (address == range.first() && !is_own) => {
            causes.push(refused("provided IP is already allocated".to_owned()));
            return;
        }
        Ok(address) => address,
        Err(_) if !asked.is_empty() => return,
        Err(_) => {
            // The first address belongs to the API server, so the search leaves it alone.
            let mut free = (0..range.size() - 1)
                .map(|step| {
                    Ipv4Addr::from(range.network + 2 + (start % (range.size() - 1) + step) % (range.size() - 1))
                })
                .filter(|address| !taken.addresses.contains_key(&address.to_string()));
            let Some(free) = free.clone().find(|address| *address != range.dns()).or_else(|| free.next()) else {
                let text = "failed to allocate a serviceIP: range is full";
                causes.push(Cause::invalid("spec.clusterIPs", json!([""]), text));
                return;
            };
            free
        }
    };
    spec.insert("clusterIP".to_owned(), json!(chosen.to_string()));
    spec.insert("clusterIPs".to_owned(), json!([chosen.to_string()]));
}

/// There is one family here.
fn families(spec: &Map<String, Value>, causes: &mut Vec<Cause>) {
    if spec.get("ipFamilyPolicy").is_some_and(|policy| policy == "RequireDualStack") {
        let text = "this cluster is not configured for dual-stack services";
        causes.push(Cause::invalid("spec.ipFamilyPolicy", "RequireDualStack", text));
    }
    let families = spec.get("ipFamilies").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    for (index, family) in families.enumerate() {
        let field = format!("spec.ipFamilies[{index}]");
        match family {
            "IPv4" => {}
            "IPv6" => causes.push(Cause::invalid(field, family, "not configured on this cluster")),
            other => causes.push(Cause::not_supported(field, other, &["IPv4", "IPv6"])),
        }
    }
}

/// Where a balancer asks whether this node has a pod of the service: only of use if others do not help out.
fn health_port(service: &mut Value, old: Option<&Value>, taken: &Taken, start: u32, causes: &mut Vec<Cause>) {
    let needed = needs_health_port(&service["spec"]);
    let held = old.and_then(|old| old["spec"]["healthCheckNodePort"].as_i64()).filter(|number| *number != 0);
    let asked = service["spec"]["healthCheckNodePort"].as_i64().filter(|number| *number != 0);
    let own: BTreeSet<i64> =
        list(&service["spec"], "ports").iter().filter_map(|port| port["nodePort"].as_i64()).collect();
    let spec = meta::child_mut(service, "spec");
    let field = "spec.healthCheckNodePort";
    let is_taken = |number: i64| taken.node_ports.contains_key(&("TCP".to_owned(), number)) || own.contains(&number);
    match (needed, asked) {
        (false, Some(number)) if held == Some(number) => {
            spec.remove("healthCheckNodePort");
        }
        (false, Some(number)) => {
            let text = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            causes.push(Cause::invalid(field, number, text));
        }
        (true, Some(number)) if held == Some(number) => {}
        (true, Some(number)) if held.is_some() => {
            causes.push(Cause::invalid(field, number, "field is immutable"));
        }
        (true, Some(number)) if is_taken(number) => {
            causes.push(Cause::invalid(field, number, "provided port is already allocated"));
        }
        (true, None) => match held.or_else(|| candidates(start).find(|number| !is_taken(*number))) {
            Some(free) => {
                spec.insert("healthCheckNodePort".to_owned(), json!(free));
            }
            None => causes.push(Cause::invalid(field, 0, "failed to allocate a nodePort: range is full")),
        },
        (true, Some(_)) | (false, None) => {}
    }
}

fn needs_health_port(spec: &Value) -> bool {
    word(spec, "type") == "LoadBalancer" && word(spec, "externalTrafficPolicy") == "Local"
}

/// Every node port once, from a random one on.
fn candidates(start: u32) -> impl Iterator<Item = i64> {
    let size = NODE_PORTS.end() - NODE_PORTS.start() + 1;
    (0..size).map(move |step| NODE_PORTS.start() + (i64::from(start) + step) % size)
}

fn node_ports(service: &mut Value, old: Option<&Value>, taken: &Taken, start: u32, causes: &mut Vec<Cause>) {
    let kind = word(&service["spec"], "type").to_owned();
    let spec = meta::child_mut(service, "spec");
    let unwanted = kind == "LoadBalancer" && spec.get("allocateLoadBalancerNodePorts") == Some(&json!(false));
    if !takes_node_ports(&kind) {
        return;
    }
    let mut own = Taken::default();
    if let Some(old) = old {
        own.add(old);
    }
    let mut given = BTreeSet::new();
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten();
    for (index, port) in ports.enumerate() {
        let protocol = word(port, "protocol").to_owned();
        let field = format!("spec.ports[{index}].nodePort");
        let held = |number: i64| {
            let key = (protocol.clone(), number);
            taken.node_ports.contains_key(&key) && !own.node_ports.contains_key(&key)
        };
        match port["nodePort"].as_i64().unwrap_or(0) {
            0 if unwanted => {}
            0 => {
                let free =
                    candidates(start).find(|number| !held(*number) && !given.contains(&(protocol.clone(), *number)));
                match free {
                    Some(free) => {
                        port["nodePort"] = json!(free);
                        given.insert((protocol, free));
                    }
                    None => causes.push(Cause::invalid(field, 0, "failed to allocate a nodePort: range is full")),
                }
            }
            number if !NODE_PORTS.contains(&number) => {
                let text = "provided port is not in the valid range. The range of valid ports is 30000-32767";
                causes.push(Cause::invalid(field, number, text));
            }
            number if held(number) || !given.insert((protocol.clone(), number)) => {
                causes.push(Cause::invalid(field, number, "provided port is already allocated"));
            }
            _ => {}
        }
    }
}

/// Puts back what was allocated and left out of an update; takes away what the new type has no use for.
pub(super) fn carry_over(old: &Value, new: &mut Value) {
    let (was, is) = (word(&old["spec"], "type").to_owned(), word(&new["spec"], "type").to_owned());
    let is = if is.is_empty() { "ClusterIP".to_owned() } else { is };
    if is != "ExternalName" && was != "ExternalName" && word(&new["spec"], "clusterIP").is_empty() {
        let spec = meta::child_mut(new, "spec");
        for key in ["clusterIP", "clusterIPs"] {
            if let Some(value) = old["spec"].get(key) {
                spec.insert(key.to_owned(), value.clone());
            }
        }
    }
    if is == "ExternalName" && was != "ExternalName" && new["spec"]["clusterIP"] == old["spec"]["clusterIP"] {
        let spec = meta::child_mut(new, "spec");
        spec.remove("clusterIP");
        spec.remove("clusterIPs");
    }
    let stored = list(&old["spec"], "ports").to_vec();
    for port in new.pointer_mut("/spec/ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let same = |other: &&Value| {
            let protocol = |port: &Value| match word(port, "protocol") {
                "" => "TCP".to_owned(),
                other => other.to_owned(),
            };
            other["port"] == port["port"] && protocol(other) == protocol(port)
        };
        let held = stored.iter().find(same).and_then(|port| port["nodePort"].as_i64());
        let Some(port) = port.as_object_mut() else { continue };
        if takes_node_ports(&is) && takes_node_ports(&was) {
            if let Some(number) = held {
                put(port, "nodePort", number);
            }
        } else if !takes_node_ports(&is) && held.is_some() && port.get("nodePort").and_then(Value::as_i64) == held {
            port.remove("nodePort");
        }
    }
    let no_longer_outside = takes_node_ports(&was) && !takes_node_ports(&is);
    if no_longer_outside && list(&new["spec"], "externalIPs").is_empty() {
        let spec = meta::child_mut(new, "spec");
        for key in ["externalTrafficPolicy", "allocateLoadBalancerNodePorts", "healthCheckNodePort"] {
            spec.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn service(spec: Value) -> Value {
        json!({ "metadata": { "name": "s" }, "spec": spec })
    }

    fn given(spec: Value, taken: &Taken) -> Value {
        let mut service = service(spec);
        assert_eq!(allocate(&mut service, None, taken, ServiceRange::default(), 7), []);
        service["spec"].clone()
    }

    #[test]
    fn a_service_gets_an_address_nobody_has() {
        let mut taken = Taken::default();
        let first = given(json!({ "type": "ClusterIP" }), &taken);
        assert_eq!(first["clusterIP"], "10.87.0.9");
        assert_eq!(first["clusterIPs"], json!(["10.87.0.9"]));
        taken.add(&service(first));
        assert_eq!(given(json!({ "type": "ClusterIP" }), &taken)["clusterIP"], "10.87.0.11", "the tenth is kept");
        assert_eq!(given(json!({ "type": "ClusterIP", "clusterIP": "None" }), &taken)["clusterIP"], "None");
        assert!(given(json!({ "type": "ExternalName" }), &taken).get("clusterIP").is_none());
    }

    #[test]
    fn a_full_range_says_so_and_the_search_covers_all_of_it() {
        let range = ServiceRange::new(Ipv4Addr::new(10, 0, 0, 0), 28).unwrap();
        let mut taken = Taken::default();
        for _ in 0..13 {
            let mut new = service(json!({ "type": "ClusterIP" }));
            assert_eq!(allocate(&mut new, None, &taken, range, u32::MAX), []);
            taken.add(&new);
        }
        assert_eq!(taken.addresses.len(), 13, "fourteen hosts, the first is the API server's");
        let causes = allocate(&mut service(json!({ "type": "ClusterIP" })), None, &taken, range, 3);
        assert!(causes[0].message.contains("range is full"), "{causes:?}");
    }

    #[test]
    fn requested_cluster_ip_and_node_port_must_be_free_and_in_range() {
        let mut taken = Taken::default();
        taken.add(&service(
            json!({ "clusterIPs": ["10.87.0.10"], "ports": [{ "protocol": "TCP", "nodePort": 30080 }] }),
        ));
        let refused =
            |spec: Value| allocate(&mut service(spec), None, &taken, ServiceRange::default(), 7)[0].message.clone();
        assert!(refused(json!({ "clusterIP": "10.87.0.10" })).contains("already allocated"));
        assert!(refused(json!({ "clusterIP": "10.87.0.1" })).contains("already allocated"), "the first is the API's");
        assert!(refused(json!({ "clusterIP": "10.9.0.1" })).contains("does not match the current range: 10.87.0.0/16"));
        let port =
            |number| json!({ "type": "NodePort", "ports": [{ "protocol": "TCP", "port": 80, "nodePort": number }] });
        assert!(refused(port(30080)).contains("already allocated"));
        assert!(refused(port(80)).contains("30000-32767"));
        let chosen = given(json!({ "type": "NodePort", "ports": [{ "protocol": "TCP", "port": 80 }] }), &taken);
        assert_eq!(chosen["ports"][0]["nodePort"], 30007);
    }

    #[test]
    fn service_takes_ipv4_addresses_only() {
        let refused = |spec: Value| -> Vec<String> {
            let causes = allocate(&mut service(spec), None, &Taken::default(), ServiceRange::default(), 7);
            causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
        };
        let other = refused(json!({ "type": "ClusterIP", "ipFamilies": ["IPv6"] }));
        assert_eq!(other, ["spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster"]);
        let both = refused(json!({ "type": "ClusterIP", "ipFamilyPolicy": "RequireDualStack" }));
        assert!(both[0].ends_with("this cluster is not configured for dual-stack services"), "{both:?}");
        assert_eq!(refused(json!({ "type": "ClusterIP", "ipFamilyPolicy": "PreferDualStack" })), [""; 0]);
        assert_eq!(refused(json!({ "type": "ClusterIP", "clusterIP": "None", "ipFamilies": ["IPv6"] })), [""; 0]);
    }

    #[test]
    fn a_local_balancer_is_told_where_to_ask() {
        let ports = json!([{ "protocol": "TCP", "port": 80 }]);
        let local = json!({ "type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": ports });
        let mut taken = Taken::default();
        let first = given(local.clone(), &taken);
        assert_eq!(
            (first["ports"][0]["nodePort"].as_i64(), first["healthCheckNodePort"].as_i64()),
            (Some(30007), Some(30008))
        );
        taken.add(&service(first.clone()));
        assert_eq!(given(local, &taken)["healthCheckNodePort"], 30010);
        let mut cluster = service(first.clone());
        cluster["spec"]["externalTrafficPolicy"] = json!("Cluster");
        let old = service(first.clone());
        assert_eq!(allocate(&mut cluster, Some(&old), &taken, ServiceRange::default(), 7), []);
        assert!(cluster["spec"].get("healthCheckNodePort").is_none(), "given back");
        let mut kept = service(first);
        kept["spec"].as_object_mut().unwrap().remove("healthCheckNodePort");
        assert_eq!(allocate(&mut kept, Some(&old), &taken, ServiceRange::default(), 7), []);
        assert_eq!(kept["spec"]["healthCheckNodePort"], 30008, "and kept");
    }

    #[test]
    fn an_update_keeps_what_was_given_and_returns_what_it_has_no_use_for() {
        let old = service(json!({ "type": "NodePort", "clusterIP": "10.87.0.9", "clusterIPs": ["10.87.0.9"],
            "externalTrafficPolicy": "Cluster", "ports": [{ "port": 80, "protocol": "TCP", "nodePort": 30001 }] }));
        let mut same = service(json!({ "type": "NodePort", "ports": [{ "port": 80 }] }));
        carry_over(&old, &mut same);
        assert_eq!(same["spec"]["clusterIP"], "10.87.0.9");
        assert_eq!(same["spec"]["ports"][0]["nodePort"], 30001);
        let mut inside = old.clone();
        inside["spec"]["type"] = json!("ClusterIP");
        carry_over(&old, &mut inside);
        assert!(
            inside["spec"]["ports"][0].get("nodePort").is_none()
                && inside["spec"].get("externalTrafficPolicy").is_none()
        );
        let mut elsewhere = old.clone();
        elsewhere["spec"]["type"] = json!("ExternalName");
        carry_over(&old, &mut elsewhere);
        assert!(elsewhere["spec"].get("clusterIP").is_none());
    }
}
