//! Tells people whom policies refuse: an event on the pod whose policies do, with their names.
//!
//! Packets that are refused leave a trace in a set of the tables, which is bounded and forgets. It is read now and then, while policies
//! select pods of this node. Nobody is told of everything: what floods a pod is told once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;

use crate::facts::Protocol;
use crate::judge::Packet;
use crate::model::Model;
use crate::policy::Way;

/// How often the set is read.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How long the same packets are not told of again.
const AGAIN: Duration = Duration::from_secs(300);
/// How many are told of at once; one of each pod.
const TOLD_MAX: usize = 8;
/// How many are looked at for that.
const JUDGED_MAX: usize = 256;
/// How many policies are named.
const NAMED_MAX: usize = 4;

/// Whom people were told of, and when.
#[derive(Default, Debug)]
pub(crate) struct Told(BTreeMap<Vec<u8>, Instant>);

impl Told {
    /// What is to be told of the packets that were refused: about whom, and the words.
    pub(crate) fn news(&mut self, model: &Model, refused: &[Vec<u8>], now: Instant) -> Vec<(ObjectReference, String)> {
        let there: BTreeSet<_> = refused.iter().collect();
        self.0.retain(|key, at| there.contains(key) && now.saturating_duration_since(*at) < AGAIN);
        let new: Vec<_> = refused.iter().filter(|key| !self.0.contains_key(*key)).take(JUDGED_MAX).collect();
        if new.is_empty() {
            return Vec::new();
        }
        let world = model.world();
        let mut of_pods = BTreeMap::new();
        for key in new {
            if of_pods.len() == TOLD_MAX {
                break;
            }
            // By now it may be allowed, or its pod gone.
            let Some(packet) = packet(key) else { continue };
            let Some((address, way)) = world.refuses(packet) else { continue };
            let Some((about, policies)) = model.isolated_by(address, way) else { continue };
            of_pods.entry(about.uid.clone()).or_insert_with(|| (key.clone(), about, words(packet, way, &policies)));
        }
        self.0.extend(of_pods.values().map(|(key, ..)| (key.clone(), now)));
        of_pods.into_values().map(|(_, about, words)| (about, words)).collect()
    }
}

fn words(packet: Packet, way: Way, policies: &[String]) -> String {
    let Packet { source, destination, protocol, port } = packet;
    let protocol = Protocol::of_number(protocol).map_or("?", Protocol::name);
    let way = match way {
        Way::Ingress => "in",
        Way::Egress => "out",
    };
    let named: Vec<_> = policies.iter().take(NAMED_MAX).map(String::as_str).collect();
    let more = policies.len() - named.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!(
        "packets from {source} to {destination}, port {port}/{protocol}, are refused on their way {way}: the pod is isolated by {}{more}, \
         and none of these allows them",
        named.join(", ")
    )
}

/// As the set has it: source, destination, protocol and port.
fn packet(key: &[u8]) -> Option<Packet> {
    let bytes = if key.len() == 40 { 16 } else { 4 };
    let (source, rest) = key.split_at_checked(bytes)?;
    let (destination, rest) = rest.split_at_checked(bytes)?;
    let &[protocol, _, _, _, high, low, ..] = rest else { return None };
    let (source, destination) = (address(source)?, address(destination)?);
    Some(Packet { source, destination, protocol, port: u16::from_be_bytes([high, low]) })
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into()),
        _ => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()),
    }
}

#[cfg(test)]
mod tests {
    use nft::concatenated;
    use serde_json::json;

    use super::*;
    use crate::render::octets;
    use crate::tests::Cluster;

    fn key(cluster: &Cluster, from: &str, to: &str, port: u16) -> Vec<u8> {
        let at = |of: &str| octets(cluster.address(of, false));
        concatenated(&[&at(from), &at(to), &[6], &port.to_be_bytes()])
    }

    /// Once for each pod, by the names of those who isolate it, and not again for a while.
    #[test]
    fn pod_whose_policies_refuse_packets_is_told_of_with_their_names() {
        let mut cluster = Cluster::new();
        cluster.apply("x", "deny", json!({"podSelector": {}}));
        cluster.apply("x", "friends", json!({"podSelector": {}, "ingress": [{"from": [{"podSelector": {}}]}]}));
        cluster.apply("y", "out", json!({"podSelector": {}, "policyTypes": ["Egress"]}));
        let mut told = Told::default();
        let start = Instant::now();
        let refused =
            [key(&cluster, "z/a", "x/a", 80), key(&cluster, "z/b", "x/a", 81), key(&cluster, "y/a", "z/a", 1)];
        let news = told.news(&cluster.model, &refused, start);
        let found: Vec<_> = news.iter().map(|(about, words)| (about.name.as_deref(), words.as_str())).collect();
        let of_x = "packets from 10.86.0.17 to 10.86.0.11, port 80/TCP, are refused on their way in: the pod is isolated by deny, \
                    friends, and none of these allows them";
        let of_y = "packets from 10.86.0.14 to 10.86.0.17, port 1/TCP, are refused on their way out: the pod is isolated by out, and \
                    none of these allows them";
        assert_eq!(found, [(Some("a"), of_x), (Some("a"), of_y)]);
        assert_eq!(told.news(&cluster.model, &refused[..1], start).len(), 0, "nothing new");
        assert_eq!(told.news(&cluster.model, &refused, start + AGAIN).len(), 2, "and again after a while");
        assert_eq!(told.news(&cluster.model, &[key(&cluster, "x/b", "x/a", 80)], start).len(), 0, "it is allowed");
        assert_eq!(told.news(&cluster.model, &[vec![1, 2, 3]], start).len(), 0);
    }
}
