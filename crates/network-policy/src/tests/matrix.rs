//! The matrices of upstream's own tests: three namespaces, three pods in each, who reaches whom.

use serde_json::json;

use super::{Cluster, labels};

const ALL_BUT_X_A: &str = "x/b x/c y/a y/b y/c z/a z/b z/c";

/// [NP-1] [NP-2] [NP-57] Without a policy all is open, with one that allows nothing all is closed, without it all is open again.
#[test]
fn pod_is_open_until_a_policy_isolates_it_and_after_it_is_gone() {
    let mut cluster = Cluster::new();
    let before = cluster.model.wanted.tables.clone();
    assert_eq!(cluster.reached("x/a", 80), ALL_BUT_X_A);
    cluster.apply("x", "deny", json!({"podSelector": {}, "policyTypes": ["Ingress"]}));
    assert_eq!(cluster.reached("x/a", 80), "");
    assert_eq!(cluster.reached("y/a", 80), "x/a x/b x/c y/b y/c z/a z/b z/c", "other namespaces are open");
    assert!(
        cluster.passes("198.51.100.9", "y/a", false, 6, 80) && !cluster.passes("198.51.100.9", "x/a", false, 6, 80)
    );
    cluster.model.set_policy(&("x".into(), "deny".into()), None);
    assert_eq!(cluster.reached("x/a", 80), ALL_BUT_X_A);
    assert_eq!(cluster.model.wanted.tables, before, "its chains and sets are gone");
}

/// [NP-5] [NP-34] Nothing leaves a pod whose egress is denied, not even to its node and the cluster DNS.
#[test]
fn pod_that_may_not_leave_reaches_nobody_and_not_its_node() {
    let mut cluster = Cluster::new();
    assert!(cluster.reaches_node("x/a", "10.86.0.1", 17, 53));
    cluster.apply("x", "deny", json!({"podSelector": {"matchLabels": {"pod": "a"}}, "policyTypes": ["Egress"]}));
    assert_eq!(cluster.reaches("x/a", 80), "");
    assert!(!cluster.passes("x/a", "198.51.100.9", false, 6, 443));
    assert!(!cluster.reaches_node("x/a", "10.86.0.1", 17, 53) && !cluster.reaches_node("x/a", "10.86.0.1", 6, 6443));
    assert_eq!(cluster.reached("x/a", 80), ALL_BUT_X_A, "who dials it is served");
}

/// [NP-8] [NP-9] What one of several policies allows is allowed.
#[test]
fn policies_of_a_pod_allow_together_what_each_allows() {
    let mut cluster = Cluster::new();
    let at = |port: u16| json!({"podSelector": {}, "ingress": [{"ports": [{"port": port}]}]});
    cluster.apply("x", "one", at(80));
    assert!(cluster.passes("y/a", "x/a", false, 6, 80) && !cluster.passes("y/a", "x/a", false, 6, 81));
    cluster.apply("x", "two", at(81));
    assert!(cluster.passes("y/a", "x/a", false, 6, 80) && cluster.passes("y/a", "x/a", false, 6, 81));
    assert!(!cluster.passes("y/a", "x/a", false, 6, 82));
    cluster.apply("x", "all", json!({"podSelector": {}, "ingress": [{}]}));
    assert!(cluster.passes("y/a", "x/a", false, 6, 82));
}

/// [NP-10] Pods of namespaces, pods and namespaces, and both in one item.
#[test]
fn peers_are_met_by_item() {
    let mut cluster = Cluster::new();
    let b = json!({"matchLabels": {"pod": "b"}});
    let y = json!({"matchLabels": {"kubernetes.io/metadata.name": "y"}});
    let not_x =
        json!({"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["x"]}]});
    for (from, expected) in [
        (json!([{"podSelector": b}]), "x/b"),
        (json!([{"podSelector": {}}]), "x/b x/c"),
        (json!([{"namespaceSelector": y}]), "y/a y/b y/c"),
        (json!([{"namespaceSelector": {}}]), ALL_BUT_X_A),
        (json!([{"namespaceSelector": {}, "podSelector": b}]), "x/b y/b z/b"),
        (json!([{"namespaceSelector": y, "podSelector": b}]), "y/b"),
        (json!([{"namespaceSelector": y}, {"podSelector": b}]), "x/b y/a y/b y/c"),
        (json!([{"namespaceSelector": not_x, "podSelector": b}]), "y/b z/b"),
    ] {
        cluster.apply("x", "p", json!({"podSelector": {"matchLabels": {"pod": "a"}}, "ingress": [{"from": from}]}));
        assert_eq!(cluster.reached("x/a", 80), expected, "{from}");
        assert_eq!(cluster.reached("x/b", 80), "x/a x/c y/a y/b y/c z/a z/b z/c", "another pod");
    }
}

/// [NP-11] Labels of a namespace change: elements of sets follow, and no chain.
#[test]
fn labels_of_a_namespace_are_followed_by_elements_alone() {
    let mut cluster = Cluster::new();
    let team = json!([{"namespaceSelector": {"matchLabels": {"team": "shop"}}}]);
    cluster.apply("x", "p", json!({"podSelector": {}, "ingress": [{"from": team}]}));
    assert_eq!(cluster.reached("x/a", 80), "");
    cluster.model.wanted.touched = Default::default();
    cluster.model.set_namespace("y".into(), labels(&[("team", "shop")]), false);
    assert_eq!(cluster.reached("x/a", 80), "y/a y/b y/c");
    let touched = &cluster.model.wanted.touched;
    assert!(touched.chains.is_empty() && touched.sets.is_empty());
    assert_eq!(touched.elements.len(), 6, "three pods with two addresses each");
    cluster.model.set_namespace("y".into(), labels(&[]), false);
    assert_eq!(cluster.reached("x/a", 80), "");
}

/// [NP-12] Labels of pods change, on either side.
#[test]
fn labels_of_pods_are_followed_as_subjects_and_as_peers() {
    let mut cluster = Cluster::new();
    let peers = json!([{"podSelector": {"matchLabels": {"pod": "b"}}}]);
    cluster.apply("x", "p", json!({"podSelector": {"matchLabels": {"pod": "a"}}, "ingress": [{"from": peers}]}));
    assert_eq!(cluster.reached("x/a", 80), "x/b");
    let relabel = |to: &str| {
        let labels = labels(&[("pod", to)]);
        move |pod: &mut k8s_openapi::api::core::v1::Pod| pod.metadata.labels = Some(labels)
    };
    cluster.set_pod("x", "c", relabel("b"));
    assert_eq!(cluster.reached("x/a", 80), "x/b x/c");
    cluster.set_pod("x", "b", relabel("other"));
    assert_eq!(cluster.reached("x/a", 80), "x/c");
    cluster.set_pod("x", "a", relabel("free"));
    assert_eq!(cluster.reached("x/a", 80), ALL_BUT_X_A, "it is not selected any more");
    assert_eq!(cluster.model.wanted.tables.chains.len(), 0, "a policy that selects nobody is not rendered");
}

/// [NP-16] [NP-18] Blocks, what is excepted of them, and policies that allow it all the same.
#[test]
fn blocks_mean_addresses_of_their_family_without_exceptions() {
    let mut cluster = Cluster::new();
    let egress = |block: serde_json::Value| {
        let to = json!([{"ipBlock": block}]);
        json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": to}]})
    };
    cluster.apply("x", "net", egress(json!({"cidr": "198.51.0.0/16", "except": ["198.51.100.9/32"]})));
    assert!(cluster.passes("x/a", "198.51.100.8", false, 6, 1) && !cluster.passes("x/a", "198.51.100.9", false, 6, 1));
    assert!(!cluster.passes("x/a", "198.52.0.1", false, 6, 1) && !cluster.passes("x/a", "y/a", false, 6, 80));
    cluster.apply("x", "one", egress(json!({"cidr": "198.51.100.9/32"})));
    assert!(cluster.passes("x/a", "198.51.100.9", false, 6, 1), "another policy allows it");
    cluster.apply("x", "world", egress(json!({"cidr": "0.0.0.0/0"})));
    assert!(
        cluster.passes("x/a", "y/a", false, 6, 80) && !cluster.passes("x/a", "y/a", true, 6, 80),
        "of its family only"
    );
    cluster.apply("x", "world", egress(json!({"cidr": "::/0", "except": ["fd00:86::/64"]})));
    assert!(cluster.passes("x/a", "2001:db8::1", true, 6, 80) && !cluster.passes("x/a", "y/a", true, 6, 80));
}

/// [NP-19] A named port is the number that each pod has for it; a pod without it is not meant.
#[test]
fn named_port_is_the_number_of_each_pod() {
    let mut cluster = Cluster::new();
    let ports = json!([{"port": "http"}]);
    cluster.apply("x", "in", json!({"podSelector": {}, "ingress": [{"ports": ports}]}));
    assert!(cluster.passes("y/a", "x/b", false, 6, 80) && !cluster.passes("y/a", "x/b", false, 6, 8080));
    assert!(cluster.passes("y/a", "x/c", false, 6, 8080) && !cluster.passes("y/a", "x/c", false, 6, 80));
    assert!(!cluster.passes("y/a", "x/b", false, 17, 80), "by its protocol");
    let to = json!([{"podSelector": {}}, {"ipBlock": {"cidr": "198.51.100.0/24"}}]);
    let egress = json!([{"to": to, "ports": [{"port": "http"}]}]);
    cluster.apply("y", "out", json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": egress}));
    assert!(cluster.passes("y/a", "y/c", false, 6, 8080) && !cluster.passes("y/a", "y/c", false, 6, 80));
    assert!(!cluster.passes("y/a", "198.51.100.9", false, 6, 80), "a name means nothing outside");
    cluster.set_pod("x", "b", |pod| pod.spec.as_mut().unwrap().containers[0].ports = None);
    assert!(!cluster.passes("z/a", "x/b", false, 6, 80), "it has no such port");
}

/// [NP-21] [NP-22] [NP-23] [NP-24] [NP-25] Ranges and protocols.
#[test]
fn ports_are_open_within_their_ranges_and_protocols() {
    let mut cluster = Cluster::new();
    let mut open = |ports: serde_json::Value, tried: &[(u8, u16)]| -> Vec<bool> {
        cluster.apply("x", "p", json!({"podSelector": {}, "ingress": [{"ports": ports}]}));
        tried.iter().map(|(protocol, port)| cluster.passes("y/a", "x/a", false, *protocol, *port)).collect()
    };
    let tcp = [7999, 8000, 8100, 8101].map(|port| (6, port));
    assert_eq!(open(json!([{"port": 8000, "endPort": 8100}]), &tcp), [false, true, true, false]);
    let overlap = json!([{"port": 80, "endPort": 90}, {"port": 85, "endPort": 95}]);
    assert_eq!(open(overlap, &[79, 80, 95, 96].map(|port| (6, port))), [false, true, true, false]);
    assert_eq!(open(json!([{"port": 80, "protocol": "SCTP"}]), &[(6, 80), (132, 80), (17, 80)]), [false, true, false]);
    assert_eq!(open(json!([{"port": 80, "protocol": "UDP"}]), &[(6, 80), (17, 80)]), [false, true]);
    let any_tcp = json!([{"protocol": "TCP"}]);
    assert_eq!(open(any_tcp, &[(6, 1), (6, 65_535), (17, 80)]), [true, true, false]);
    assert_eq!(open(json!([{"port": 65535}]), &[(6, 65_534), (6, 65_535)]), [false, true]);
}

/// [NP-26] What has no ports passes by rules without ports alone.
#[test]
fn icmp_passes_by_rules_without_ports() {
    let mut cluster = Cluster::new();
    cluster.apply(
        "x",
        "p",
        json!({"podSelector": {}, "ingress": [{"ports": [{"protocol": "TCP"}, {"protocol": "UDP"}]}]}),
    );
    assert!(!cluster.passes("y/a", "x/a", false, 1, 0));
    cluster.apply("x", "p", json!({"podSelector": {}, "ingress": [{}]}));
    assert!(cluster.passes("y/a", "x/a", false, 1, 0));
}

/// [NP-27] Both ends have to allow it.
#[test]
fn connection_needs_the_leave_of_both_ends() {
    let mut cluster = Cluster::new();
    let types = |way: &str, rule: serde_json::Value| {
        let mut spec = json!({"podSelector": {}, "policyTypes": [way]});
        spec[way.to_lowercase()] = rule;
        spec
    };
    cluster.apply("x", "in", types("Ingress", json!([{"from": [{"namespaceSelector": {}}]}])));
    cluster.apply("y", "out", types("Egress", json!([{"to": [{"podSelector": {}}]}])));
    assert!(!cluster.passes("y/a", "x/a", false, 6, 80) && cluster.passes("z/a", "x/a", false, 6, 80));
    cluster.apply("y", "out", types("Egress", json!([{}])));
    assert!(cluster.passes("y/a", "x/a", false, 6, 80));
    cluster.apply("x", "in", types("Ingress", json!([])));
    assert!(!cluster.passes("y/a", "x/a", false, 6, 80), "accepted on its way out, refused on its way in");
}

/// [NP-4] A pod reaches itself whatever policies say.
#[test]
fn pod_reaches_itself_under_any_policy() {
    let mut cluster = Cluster::new();
    cluster.apply("x", "deny", json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}));
    assert!(cluster.passes("x/a", "x/a", false, 6, 80) && cluster.passes("x/a", "x/a", true, 17, 53));
}

/// [NP-30] A pod on its node's network is neither isolated nor meant by selectors.
#[test]
fn pod_on_the_network_of_its_node_is_no_peer() {
    let mut cluster = Cluster::new();
    cluster.apply(
        "x",
        "p",
        json!({"podSelector": {"matchLabels": {"pod": "a"}}, "ingress": [{"from": [{"podSelector": {}}]}]}),
    );
    assert_eq!(cluster.reached("x/a", 80), "x/b x/c");
    let mut host = cluster.facts("z", "a");
    host.metadata.namespace = Some("x".into());
    host.spec.as_mut().unwrap().host_network = Some(true);
    cluster.model.set_pod("x/host", crate::facts::PodFacts::of(&host), 99);
    assert_eq!(cluster.reached("x/a", 80), "x/b x/c", "its address is that of a node");
}

/// [NP-33] The usual policy for the cluster DNS opens it, and nothing else at its address.
#[test]
fn cluster_dns_is_met_as_the_pod_that_it_is_elsewhere() {
    let mut cluster = Cluster::new();
    cluster.apply("x", "deny", json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}));
    let peer = json!({
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
    });
    let node = "10.86.0.1";
    for ports in [
        json!([{"port": 53, "protocol": "UDP"}, {"port": 53}]),
        json!([{"port": "dns", "protocol": "UDP"}, {"port": "dns-tcp"}]),
        json!([]),
    ] {
        let egress = json!([{"to": [peer], "ports": ports}]);
        cluster.apply("x", "dns", json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": egress}));
        assert!(cluster.reaches_node("x/a", node, 17, 53) && cluster.reaches_node("x/a", node, 6, 53), "{ports}");
        for (protocol, port) in [(6, 6443), (17, 54), (1, 0), (132, 53)] {
            assert!(!cluster.reaches_node("x/a", node, protocol, port), "{ports} opens {port}");
        }
    }
    let everybody =
        json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": [{"namespaceSelector": {}}]}]});
    cluster.apply("x", "dns", everybody);
    assert!(cluster.reaches_node("x/a", node, 17, 53) && !cluster.reaches_node("x/a", node, 6, 6443));
}

/// [NP-35] The API is met by the address at which it is, whatever Service leads there.
#[test]
fn api_is_met_by_the_address_of_its_node() {
    let mut cluster = Cluster::new();
    let to = json!([{"ipBlock": {"cidr": "192.0.2.10/32"}}]);
    let egress = json!([{"to": to, "ports": [{"port": 6443}]}]);
    cluster.apply("x", "api", json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": egress}));
    assert!(cluster.reaches_node("x/a", "192.0.2.10", 6, 6443) && !cluster.reaches_node("x/a", "192.0.2.10", 6, 22));
}

/// [NP-38] An address that another pod has is not its former holder's.
#[test]
fn address_that_another_pod_has_opens_nothing_that_its_former_holder_could() {
    let mut cluster = Cluster::new();
    let from = json!([{"podSelector": {"matchLabels": {"pod": "b"}}}]);
    cluster.apply("x", "p", json!({"podSelector": {"matchLabels": {"pod": "a"}}, "ingress": [{"from": from}]}));
    assert_eq!(cluster.reached("x/a", 80), "x/b");
    // The former holder is not released yet, as far as this knows, and its object is gone.
    cluster.model.remove_pod("x/b");
    let number = cluster.numbers["x/b"];
    let other = crate::facts::PodFacts::of(&super::pod("y", "new", number, 500));
    let at = super::addresses(number);
    cluster.model.admit("y/new", other, 500, &at, &crate::interpreter::link_of(at[0]));
    assert_eq!(cluster.reached("x/a", 80), "");
    let locals: Vec<_> = cluster.model.locals().map(|(uid, _)| uid.as_str()).collect();
    assert!(!locals.contains(&"x/b") && locals.contains(&"y/new"));
}

/// [NP-42] A pod that leaves keeps its policies, and is a peer, until its address is released; one that is over is no peer.
#[test]
fn pod_that_leaves_keeps_its_policies_until_its_address_is_released() {
    let mut cluster = Cluster::new();
    let peers = json!([{"podSelector": {"matchLabels": {"pod": "b"}}}]);
    cluster.apply("x", "p", json!({"podSelector": {}, "ingress": [{"from": peers}]}));
    cluster.model.remove_pod("x/a");
    cluster.model.remove_pod("x/b");
    assert_eq!(cluster.reached("x/a", 80), "x/b", "both are still here");
    let mut over = cluster.facts("x", "b");
    over.status.as_mut().unwrap().phase = Some("Succeeded".into());
    cluster.model.set_pod("x/b", crate::facts::PodFacts::of(&over), 900);
    assert_eq!(cluster.reached("x/a", 80), "", "its address may be another's soon");
    assert!(!cluster.passes("y/a", "x/b", false, 6, 80), "and it is isolated as long as it has it");
    cluster.model.release("x/a");
    let to_pods = (nft::Family::Ip, crate::model::TO_PODS.to_owned());
    assert_eq!(cluster.model.wanted.tables.elements[&to_pods].len(), 5);
}

/// [NP-58] A namespace goes with all that is in it: its pods are isolated to their end, whatever goes first.
#[test]
fn pods_of_a_namespace_that_is_deleted_stay_isolated() {
    let mut cluster = Cluster::new();
    cluster.apply("x", "deny", json!({"podSelector": {}}));
    cluster.model.set_namespace("x".into(), labels(&[]), true);
    cluster.model.set_policy(&("x".into(), "deny".into()), None);
    cluster.model.list_policies(Default::default());
    assert_eq!(cluster.reached("x/a", 80), "");
    for name in ["a", "b", "c"] {
        cluster.model.remove_pod(&format!("x/{name}"));
    }
    assert_eq!(cluster.reached("x/a", 80), "", "their containers are still here");
    cluster.model.remove_namespace("x");
    assert!(cluster.model.wanted.tables.chains.is_empty());
    cluster.model.set_namespace("x".into(), labels(&[]), false);
    assert_eq!(cluster.reached("x/a", 80), ALL_BUT_X_A, "another namespace of the name");
}

/// A namespace with more rules than there is room for closes pods of its own, and nobody else's.
#[test]
fn namespace_with_too_many_rules_closes_its_own_pods_alone() {
    let mut cluster = Cluster::new();
    cluster.apply("y", "friends", json!({"podSelector": {}, "ingress": [{"from": [{"podSelector": {}}]}]}));
    let rules: Vec<_> = (1..=1_000).map(|port| json!({"ports": [{"port": port}]})).collect();
    for number in 0..30 {
        // Each of them is another text.
        let rules: Vec<_> = rules.iter().skip(number).collect();
        cluster.apply("x", &format!("p{number:02}"), json!({"podSelector": {}, "ingress": rules}));
    }
    let problem = |cluster: &Cluster, name: &str| cluster.model.problem(&("x".into(), name.into()));
    assert!(problem(&cluster, "p00").is_none() && problem(&cluster, "p29").is_some());
    assert!(cluster.passes("z/a", "x/a", false, 6, 1_000), "the first ones count");
    assert_eq!(cluster.reached("y/a", 80), "y/b y/c");
    for number in 0..29 {
        cluster.model.set_policy(&("x".into(), format!("p{number:02}")), None);
    }
    assert!(cluster.model.retry_crowded_out().contains(&("x".into(), "p29".into())));
    assert_eq!(problem(&cluster, "p29"), None, "there is room");
    let closed = cluster.model.wanted.tables.clone();
    cluster.model.set_policy(&("x".into(), "p29".into()), None);
    assert!(cluster.model.wanted.tables.chains.len() < closed.chains.len());
}

/// [NP-55] Only policies that select pods of this node are in its tables.
#[test]
fn policies_of_other_nodes_pods_are_not_rendered() {
    let mut cluster = Cluster::new();
    for number in 0..500 {
        let from = json!([{"podSelector": {"matchLabels": {"n": number.to_string()}}}]);
        cluster.apply("z", &format!("p{number}"), json!({"podSelector": {}, "ingress": [{"from": from}]}));
    }
    assert!(cluster.model.wanted.tables.chains.is_empty() && cluster.model.wanted.tables.sets.is_empty());
    cluster.apply("x", "p", json!({"podSelector": {}, "ingress": [{"from": [{"podSelector": {}}]}]}));
    assert!(cluster.model.wanted.tables.chains.len() <= 4);
}

/// [NP-59] A pod has the same verdict at both of its addresses.
#[test]
fn pod_with_two_addresses_has_one_verdict() {
    let mut cluster = Cluster::new();
    let from = json!([{"namespaceSelector": {}, "podSelector": {"matchLabels": {"pod": "b"}}}]);
    cluster.apply("x", "p", json!({"podSelector": {}, "ingress": [{"from": from, "ports": [{"port": "http"}]}]}));
    for from in ["x/b", "y/a", "y/b", "z/b", "z/c"] {
        for port in [80, 81] {
            let verdicts = [false, true].map(|is_ipv6| cluster.passes(from, "x/a", is_ipv6, 6, port));
            assert_eq!(verdicts, [from.ends_with('b') && port == 80; 2], "{from} at {port}");
        }
    }
}
