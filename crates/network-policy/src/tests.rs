//! Policies without a kernel, and with one in network namespaces of their own.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use nft::Direction;
use serde_json::{Value, json};

use crate::facts::PodFacts;
use crate::interpreter::{Interpreter, Passing, link_of};
use crate::judge::Packet;
use crate::model::Model;
use crate::policy::Policy;
use crate::selector::Labels;
use crate::skeleton::Settings;

mod beside_others;
mod commits;
mod data_path;
mod matrix;
mod random;

pub(crate) fn settings() -> Settings {
    Settings { prefix: "adtest".into(), cluster_dns: vec!["10.86.0.1".parse().unwrap()] }
}

pub(crate) fn labels(of: &[(&str, &str)]) -> Labels {
    of.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

pub(crate) fn policy(namespace: &str, name: &str, spec: Value) -> NetworkPolicy {
    serde_json::from_value(json!({"metadata": {"namespace": namespace, "name": name}, "spec": spec})).unwrap()
}

/// A pod with ports `http` and `dns`, whose addresses end with that number.
pub(crate) fn pod(namespace: &str, name: &str, number: u8, version: u64) -> Pod {
    serde_json::from_value(json!({
        "metadata": {
            "namespace": namespace, "name": name, "uid": format!("{namespace}/{name}"),
            "resourceVersion": version.to_string(), "labels": {"pod": name},
        },
        "spec": {"containers": [{"name": "app", "ports": [
            {"name": "http", "containerPort": if name == "c" { 8080 } else { 80 }},
            {"name": "dns", "containerPort": 53, "protocol": "UDP"},
        ]}]},
        "status": {"phase": "Running", "podIPs": addresses(number).map(|ip| json!({"ip": ip.to_string()}))},
    }))
    .unwrap()
}

pub(crate) fn addresses(number: u8) -> [IpAddr; 2] {
    [format!("10.86.0.{number}"), format!("fd00:86::{number:x}")].map(|text| text.parse().unwrap())
}

/// Three namespaces with three pods each, of which all but those of `z` are here, as upstream's tests have them.
pub(crate) struct Cluster {
    pub(crate) model: Model,
    pub(crate) numbers: BTreeMap<String, u8>,
    version: u64,
}

impl Cluster {
    pub(crate) fn new() -> Self {
        let mut model = Model::new(settings().dns_facts());
        let mut namespaces = BTreeMap::new();
        for name in ["x", "y", "z", "kube-system"] {
            namespaces.insert(name.to_owned(), (labels(&[("kubernetes.io/metadata.name", name)]), false));
        }
        model.list_namespaces(namespaces);
        model.list_policies(BTreeMap::new());
        let mut cluster = Self { model, numbers: BTreeMap::new(), version: 1 };
        cluster.model.list_pods(BTreeMap::new());
        let mut number = 10;
        for namespace in ["x", "y", "z"] {
            for name in ["a", "b", "c"] {
                number += 1;
                cluster.numbers.insert(format!("{namespace}/{name}"), number);
                cluster.set_pod(namespace, name, |_| {});
            }
        }
        cluster
    }

    pub(crate) fn is_local(of: &str) -> bool {
        !of.starts_with('z')
    }

    pub(crate) fn facts(&mut self, namespace: &str, name: &str) -> Pod {
        self.version += 1;
        pod(namespace, name, self.numbers[&format!("{namespace}/{name}")], self.version)
    }

    pub(crate) fn set_pod(&mut self, namespace: &str, name: &str, change: impl FnOnce(&mut Pod)) {
        let mut pod = self.facts(namespace, name);
        change(&mut pod);
        let uid = format!("{namespace}/{name}");
        let facts = PodFacts::of(&pod);
        if Self::is_local(namespace) {
            let addresses = addresses(self.numbers[&uid]);
            self.model.admit(&uid, facts.clone(), self.version, &addresses, &link_of(addresses[0]));
        }
        self.model.set_pod(&uid, facts, self.version);
    }

    pub(crate) fn apply(&mut self, namespace: &str, name: &str, spec: Value) {
        let policy = policy(namespace, name, spec);
        self.model.set_policy(&Policy::key(&policy), Some(Policy::read(&policy)));
    }

    pub(crate) fn address(&self, of: &str, is_ipv6: bool) -> IpAddr {
        match self.numbers.get(of) {
            Some(number) => addresses(*number)[usize::from(is_ipv6)],
            None => of.parse().unwrap(),
        }
    }

    fn link(&self, of: &str) -> String {
        let is_local = self.numbers.contains_key(of) && Self::is_local(of);
        if is_local { link_of(self.address(of, false)) } else { "eth0".to_owned() }
    }

    /// Whether a packet passes by the rules, and by the judge, who must agree.
    pub(crate) fn passes(&self, from: &str, to: &str, is_ipv6: bool, protocol: u8, port: u16) -> bool {
        let passing = self.passing(from, to, is_ipv6, protocol, port);
        let packet = passing.packet;
        let settings = settings();
        let interpreter = Interpreter::new(&settings, &self.model.wanted.tables);
        let by_rules = interpreter.passes(&["check_source", "check_pod", "leave_pod", "enter_pod"], &passing);
        assert_eq!(by_rules, self.model.world().lets_pass(packet), "rules and judge differ about {packet:?}");
        by_rules
    }

    /// A packet that opens a connection.
    pub(crate) fn passing(&self, from: &str, to: &str, is_ipv6: bool, protocol: u8, port: u16) -> Passing {
        let packet =
            Packet { source: self.address(from, is_ipv6), destination: self.address(to, is_ipv6), protocol, port };
        Passing { packet, input: self.link(from), output: self.link(to), direction: Direction::Original }
    }

    /// Whether a pod's packet to the node itself passes.
    pub(crate) fn reaches_node(&self, from: &str, node: &str, protocol: u8, port: u16) -> bool {
        let packet = Packet { source: self.address(from, false), destination: node.parse().unwrap(), protocol, port };
        let passing = Passing { packet, input: self.link(from), output: String::new(), direction: Direction::Original };
        let settings = settings();
        let interpreter = Interpreter::new(&settings, &self.model.wanted.tables);
        let by_rules = interpreter.passes(&["check_source", "leave_to_node"], &passing);
        assert_eq!(by_rules, self.model.world().lets_pass(packet), "rules and judge differ about {packet:?}");
        by_rules
    }

    /// Who reaches whom by TCP, of all pods: `from>to` for each pair that does, without a pod and itself.
    pub(crate) fn reached(&self, to: &str, port: u16) -> String {
        let pods = self.numbers.keys().filter(|from| *from != to);
        let passing = pods.filter(|from| self.passes(from, to, false, 6, port));
        passing.map(String::as_str).collect::<Vec<_>>().join(" ")
    }

    /// Whom a pod reaches by TCP.
    pub(crate) fn reaches(&self, from: &str, port: u16) -> String {
        let pods = self.numbers.keys().filter(|to| *to != from);
        let passing = pods.filter(|to| self.passes(from, to, false, 6, port));
        passing.map(String::as_str).collect::<Vec<_>>().join(" ")
    }
}
