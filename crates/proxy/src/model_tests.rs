//! What Services, slices and cuts say together, without a kernel.
#![allow(clippy::unwrap_used, reason = "tests")]

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::{EndpointPort, EndpointSlice};
use serde_json::json;

use crate::model::{Model, NodeFacts};
use crate::{CutMode, PodEndpoint, Protocol, Reach};

fn service(name: &str, cluster_ip: &str, internal_policy: &str) -> Service {
    serde_json::from_value(json!({
        "metadata": { "namespace": "shop", "name": name },
        "spec": { "clusterIP": cluster_ip, "clusterIPs": [cluster_ip], "internalTrafficPolicy": internal_policy,
            "ports": [{ "port": 80 }] },
    }))
    .unwrap()
}

/// Of pods by number, on which node, and whether they are ready.
fn slice(of: &str, pods: &[(u8, &str, bool)]) -> EndpointSlice {
    let endpoint = |(number, node, ready): &(u8, &str, bool)| {
        json!({ "addresses": [format!("10.86.0.{number}")], "nodeName": node, "targetRef": { "uid": format!("uid-{number}") },
            "conditions": { "ready": ready, "serving": ready, "terminating": false } })
    };
    serde_json::from_value(json!({
        "metadata": { "namespace": "shop", "name": format!("{of}-1"), "labels": { "kubernetes.io/service-name": of } },
        "addressType": "IPv4", "ports": [{ "port": 8080 }],
        "endpoints": pods.iter().map(endpoint).collect::<Vec<_>>(),
    }))
    .unwrap()
}

fn model(services: &[Service], slices: &[EndpointSlice]) -> Model {
    let mut model = Model::new(NodeFacts {
        name: "here".into(),
        addresses: vec!["192.0.2.7".parse().unwrap()],
        inside: Vec::new(),
        external_ips: Vec::new(),
    });
    services.iter().for_each(|service| model.set_service(service.clone()));
    slices.iter().for_each(|slice| model.set_slice(slice));
    model
}

fn endpoint(number: u8) -> PodEndpoint {
    let addresses = vec![format!("10.86.0.{number}").parse().unwrap()];
    PodEndpoint { uid: format!("uid-{number}"), namespace: "shop".into(), name: format!("web-{number}"), addresses }
}

fn diverted_to(model: &Model, number: u8) -> Vec<String> {
    let lists = model.wanted_by_cut(&format!("uid-{number}")).lists;
    lists.values().flat_map(|targets| &targets.backends).map(|backend| backend.address.to_string()).collect()
}

#[test]
fn service_that_is_labelled_for_another_proxy_is_served_until_then_and_afterwards() {
    let web = slice("web", &[(1, "here", true)]);
    let mut model = model(&[service("web", "10.87.0.1", "Cluster")], &[web]);
    let key = ("shop".to_owned(), "web".to_owned());
    for label in ["service.kubernetes.io/service-proxy-name", "service.kubernetes.io/headless"] {
        assert!(!model.wanted(&key).lists.is_empty());
        let mut anothers = service("web", "10.87.0.1", "Cluster");
        anothers.metadata.labels = Some([(label.to_owned(), String::new())].into());
        model.set_service(anothers);
        assert!(model.wanted(&key).lists.is_empty() && model.wanted(&key).marks.is_empty(), "{label}");
        model.set_service(service("web", "10.87.0.1", "Cluster"));
    }
}

/// [TR-20]
#[test]
fn cut_pod_is_stood_in_for_by_those_only_whom_every_service_of_it_lists() {
    let services = [service("web", "10.87.0.1", "Cluster"), service("api", "10.87.0.2", "Cluster")];
    let web = slice("web", &[(1, "here", true), (2, "here", true), (3, "here", true)]);
    let api = slice("api", &[(1, "here", true), (3, "here", true), (4, "here", true)]);
    let mut model = model(&services, &[web, api]);
    assert_eq!(model.reach("uid-1").siblings, 1);
    model.cut(endpoint(1), CutMode::Divert);
    assert_eq!(diverted_to(&model, 1), ["10.86.0.3"]);
    // The pod leaves the slices before it leaves the node; whoever has its address does not know.
    model.set_slice(&slice("web", &[(2, "here", true), (3, "here", true)]));
    model.set_slice(&slice("api", &[(3, "here", true), (4, "here", true)]));
    assert_eq!(diverted_to(&model, 1), ["10.86.0.3"]);
    model.remove_service(&("shop".into(), "api".into()));
    assert_eq!(diverted_to(&model, 1), ["10.86.0.2", "10.86.0.3"], "what is gone does not bind");
}

#[test]
fn pod_is_the_last_where_nobody_else_takes_its_connections_and_only_if_it_serves() {
    let last = |policy: &str, pods: &[(u8, &str, bool)]| {
        model(&[service("web", "10.87.0.1", policy)], &[slice("web", pods)]).reach("uid-1").last
    };
    assert!(!last("Cluster", &[(1, "here", true), (2, "there", true)]));
    assert!(last("Cluster", &[(1, "here", true), (2, "there", false)]));
    assert!(last("Local", &[(1, "here", true), (2, "there", true)]), "the other is on another node");
    assert!(!last("Local", &[(1, "here", true), (2, "here", true)]));
    assert!(!last("Cluster", &[(1, "here", false)]), "nobody is sent to it");
    assert!(!last("Cluster", &[(2, "here", true)]), "it is on no list");
}

/// Two pods that are cut at the same moment: neither takes the other's connections, and both are told so.
#[test]
fn cut_pods_do_not_stand_in_for_each_other() {
    let pods = slice("web", &[(1, "here", true), (2, "here", true)]);
    let mut model = model(&[service("web", "10.87.0.1", "Cluster")], &[pods]);
    model.cut(endpoint(1), CutMode::Divert);
    assert!(!model.reach("uid-1").last && model.reach("uid-2").last);
    model.cut(endpoint(2), CutMode::Divert);
    for number in [1, 2] {
        let Reach { last, siblings, target_ports, .. } = model.reach(&format!("uid-{number}"));
        assert_eq!((last, siblings, target_ports), (true, 0, [(Protocol::Tcp, 8080)].into()));
        assert!(diverted_to(&model, number).is_empty(), "it is served itself");
    }
    // Refused, it stays the last: whoever asked for that does not change its mind.
    model.cut(endpoint(2), CutMode::Refuse);
    assert!(model.reach("uid-2").last);
}

#[test]
fn model_that_begins_again_keeps_the_cuts_of_pods_that_are_here() {
    let pods = slice("web", &[(1, "here", true), (2, "here", true)]);
    let mut model = model(&[service("web", "10.87.0.1", "Cluster")], &[pods]);
    model.services_listed();
    model.slices_listed();
    model.cut(endpoint(1), CutMode::Divert);
    model.cut(endpoint(2), CutMode::Divert);
    assert!(model.departed("uid-2") && !model.departed("uid-3"));
    model.begin_again();
    assert_eq!((model.cut_uids(), model.is_listed()), (vec!["uid-1".to_owned()], false));
}

/// Whoever may write slices of a namespace names pods of it, and any address: a cut covers what the pod's node says that it has, and
/// nothing that the node itself has.
#[test]
fn cut_covers_the_addresses_of_its_pod_and_no_others() {
    let mut forged = slice("web", &[(1, "here", true), (2, "here", true)]);
    forged.endpoints.iter_mut().flatten().next().unwrap().addresses = vec!["203.0.113.5".into()];
    for (of, mode) in [(1, CutMode::Divert), (1, CutMode::Refuse)] {
        let mut model = model(&[service("web", "10.87.0.1", "Cluster")], std::slice::from_ref(&forged));
        model.cut(endpoint(of), mode);
        let wanted = model.wanted_by_cut("uid-1");
        let covered: Vec<String> = (wanted.lists.keys().filter_map(|frontend| frontend.address))
            .chain(wanted.nobody.keys().map(|(address, ..)| *address))
            .map(|address| address.to_string())
            .collect();
        assert_eq!(covered, ["10.86.0.1"], "{mode:?}");
    }
    let mut model = model(&[service("web", "10.87.0.1", "Cluster")], &[forged]);
    model.cut(PodEndpoint { addresses: vec!["192.0.2.7".parse().unwrap()], ..endpoint(1) }, CutMode::Refuse);
    assert!(model.wanted_by_cut("uid-1").nobody.is_empty(), "an address of the node");
}

/// Whoever writes slices of another namespace, or of none, says nothing about a pod: neither that somebody else takes its connections
/// nor whose a connection is.
#[test]
fn pod_is_judged_by_the_services_of_its_own_namespace() {
    let mut foreign = slice("web", &[(1, "here", true)]);
    foreign.metadata.namespace = Some("thief".into());
    // It has a port that no Service of theirs has.
    let mut spoiling = slice("bait", &[(1, "here", true), (2, "here", true)]);
    spoiling.metadata.namespace = Some("thief".into());
    let of_bait = EndpointPort { name: Some("bait".into()), port: Some(9090), ..EndpointPort::default() };
    spoiling.ports.as_mut().unwrap().push(of_bait);
    // It says of the address of another pod that it is this one's.
    spoiling.endpoints.iter_mut().flatten().for_each(|it| it.target_ref.as_mut().unwrap().uid = Some("uid-1".into()));
    let mut alone = service("web", "10.87.0.9", "Local");
    alone.metadata.namespace = Some("thief".into());
    let own = slice("web", &[(1, "here", true), (3, "here", true)]);
    let mut model = model(&[service("web", "10.87.0.1", "Cluster"), alone], &[own, foreign, spoiling]);
    for number in [1, 2, 3] {
        model.know(&endpoint(number));
    }
    let Reach { last, node_local, siblings, .. } = model.reach("uid-1");
    assert_eq!((last, node_local, siblings), (false, false, 1));
    assert_eq!(model.reach("uid-2"), Reach::default(), "no Service of its namespace has it");
    let counted = [(1, 8080), (1, 9090), (2, 8080), (4, 8080)]
        .map(|(number, port)| model.counted_for([10, 86, 0, number].into(), Protocol::Tcp, port));
    assert_eq!(counted, [Some("uid-1".to_owned()), None, None, None]);
}

/// A pod whose slice names nobody is behind its Service all the same.
#[test]
fn pod_is_behind_a_service_that_lists_its_address_only() {
    let mut unnamed = slice("web", &[(1, "here", true), (2, "here", true)]);
    unnamed.endpoints.iter_mut().flatten().for_each(|it| it.target_ref = None);
    let mut model = model(&[service("web", "10.87.0.1", "Cluster")], &[unnamed]);
    assert_eq!(model.reach("uid-1"), Reach::default(), "nobody said where it is");
    model.take_touched();
    model.know(&endpoint(1));
    assert!(model.take_touched().1.contains("uid-1"));
    let Reach { by_vip, siblings, last, .. } = model.reach("uid-1");
    assert_eq!((by_vip, siblings, last), (true, 1, false));
    model.cut(endpoint(1), CutMode::Divert);
    assert_eq!(diverted_to(&model, 1), ["10.86.0.2"]);
    model.restore("uid-1");
    model.keep_known(|_| false);
    assert_eq!(model.reach("uid-1"), Reach::default(), "it is forgotten with its last follower");
}

/// An address that was given to another pod is no longer cut, although its former pod is.
#[test]
fn address_of_another_pod_is_not_cut_with_its_former_one() {
    let pods = slice("web", &[(1, "here", true), (2, "here", true)]);
    let mut model = model(&[service("web", "10.87.0.1", "Cluster")], &[pods]);
    model.cut(endpoint(1), CutMode::Divert);
    model.departed("uid-1");
    assert_eq!(diverted_to(&model, 1), ["10.86.0.2"]);
    model.know(&PodEndpoint { uid: "uid-9".into(), ..endpoint(1) });
    assert!(diverted_to(&model, 1).is_empty());
}

/// Every pod of a large rollout is cut for a while: what each costs does not grow with the others.
#[test]
fn cut_pod_is_stood_in_for_by_a_few_of_many_and_by_the_same_ones_while_they_stay() {
    let all: Vec<_> = (1..=200).map(|number| (number, "here", true)).collect();
    let mut model = model(&[service("web", "10.87.0.1", "Cluster")], &[slice("web", &all)]);
    model.cut(endpoint(1), CutMode::Divert);
    let before = diverted_to(&model, 1);
    assert_eq!(before.len(), 8);
    let left: Vec<_> = all.iter().copied().filter(|(number, ..)| format!("10.86.0.{number}") != before[0]).collect();
    model.set_slice(&slice("web", &left));
    let after = diverted_to(&model, 1);
    assert_eq!((after.len(), after.iter().filter(|it| before.contains(it)).count()), (8, 7));
    model.cut(endpoint(2), CutMode::Divert);
    assert_ne!(diverted_to(&model, 2), after, "others than for the first");
}

/// Numbers that look random, the same for the same seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u8) -> u8 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u8::try_from((self.0 >> 33) % u64::from(bound)).unwrap()
    }
}

/// What is said of a pod, and what its cut wants, after changes one by one: the same as after all of them at once, and whoever is
/// not named as touched is as before.
#[test]
fn touched_pods_are_all_whose_reach_or_cut_changes() {
    let names = ["web", "api", "old"];
    let uids: Vec<String> = (1..7).map(|number| format!("uid-{number}")).collect();
    for seed in 0..300 {
        let mut numbers = Numbers(seed);
        let services =
            names.map(|name| service(name, "10.87.0.1", if numbers.below(4) == 0 { "Local" } else { "Cluster" }));
        let mut model = model(&services, &[]);
        let mut known: Vec<_> = uids.iter().map(|uid| (model.reach(uid), model.wanted_by_cut(uid))).collect();
        for step in 0..40 {
            let name = names[usize::from(numbers.below(3))];
            let pod = 1 + numbers.below(6);
            match numbers.below(9) {
                0 => model.remove_service(&("shop".into(), name.into())),
                1 => model.set_service(service(name, "10.87.0.1", "Cluster")),
                2 => model.cut(endpoint(pod), CutMode::Divert),
                3 => model.cut(endpoint(pod), if numbers.below(2) == 0 { CutMode::Refuse } else { CutMode::Withdraw }),
                4 => drop(model.restore(&format!("uid-{pod}"))),
                5 => drop(model.departed(&format!("uid-{pod}"))),
                6 => model.remove_slice(&("shop".into(), format!("{name}-1"))),
                _ => {
                    let pods: Vec<_> = (1..7)
                        .filter_map(|number| {
                            let node = if numbers.below(3) == 0 { "there" } else { "here" };
                            (numbers.below(2) == 0).then_some((number, node, numbers.below(4) > 0))
                        })
                        .collect();
                    model.set_slice(&slice(name, &pods));
                }
            }
            let (_, touched) = model.take_touched();
            for (uid, known) in uids.iter().zip(&mut known) {
                let cached = (model.reach(uid), model.wanted_by_cut(uid));
                model.forget_resolved();
                let new = (model.reach(uid), model.wanted_by_cut(uid));
                assert_eq!(cached, new, "seed {seed}, step {step}: {uid}");
                assert!(touched.contains(uid) || new == *known, "seed {seed}, step {step}: {uid} {known:?} -> {new:?}");
                let diverted = new.1.lists.values().next().map_or(0, |targets| targets.backends.len());
                let count = usize::try_from(new.0.siblings).unwrap();
                assert!(
                    diverted == 0 || new.0.target_ports.is_empty() || diverted == count,
                    "seed {seed}: {uid} {new:?}"
                );
                *known = new;
            }
        }
    }
}

/// Where a Service leads to, by the numbers of its pods.
fn led_to(model: &Model) -> Vec<u8> {
    let lists = model.wanted(&("shop".into(), "web".into())).lists;
    let backends = lists.values().flat_map(|targets| &targets.backends);
    let number = |address: std::net::IpAddr| match address {
        std::net::IpAddr::V4(address) => address.octets()[3],
        std::net::IpAddr::V6(_) => 0,
    };
    backends.map(|backend| number(backend.address)).collect()
}

/// As upstream: who is meant for this node, or else for its zone, if every ready endpoint says whom it is meant for.
#[test]
fn endpoints_that_are_meant_for_this_node_or_zone_are_preferred_if_all_say_whom_they_are_meant_for() {
    let nodes = [(1, "here", true), (2, "near", true), (3, "far", true), (4, "here", false)];
    let hinted = |hints: &[serde_json::Value]| {
        let mut slice = slice("web", &nodes);
        for (endpoint, hints) in slice.endpoints.iter_mut().flatten().zip(hints) {
            endpoint.hints = serde_json::from_value(hints.clone()).unwrap();
        }
        slice
    };
    let of_node = |node: &str, zone: &str| json!({ "forNodes": [{ "name": node }], "forZones": [{ "name": zone }] });
    let of_zone = |zone: &str| json!({ "forZones": [{ "name": zone }] });
    let web = || service("web", "10.87.0.1", "Cluster");
    let node = |zone: &str| -> Node {
        serde_json::from_value(
            json!({ "metadata": { "name": "here", "labels": { "topology.kubernetes.io/zone": zone } } }),
        )
        .unwrap()
    };
    let none = json!(null);
    let mut same_node = model(&[web()], &[hinted(&[of_node("here", "a"), of_node("near", "a"), of_node("far", "b")])]);
    assert_eq!(led_to(&same_node), [1]);
    // It leaves: the zone is next, and then anybody.
    same_node.cut(endpoint(1), CutMode::Divert);
    assert_eq!(led_to(&same_node), [2, 3], "the zone of this node is not known");
    same_node.take_touched();
    same_node.set_node(&node("a"));
    assert_eq!(same_node.take_touched().0.len(), 1);
    assert_eq!(led_to(&same_node), [2]);
    same_node.set_node(&Node {
        metadata: kube::api::ObjectMeta { name: Some("far".into()), ..node("b").metadata },
        ..node("b")
    });
    assert_eq!(led_to(&same_node), [2], "another node's zone");
    let mut same_zone = model(&[web()], &[hinted(&[of_zone("a"), of_zone("a"), of_zone("b")])]);
    assert_eq!(led_to(&same_zone), [1, 2, 3]);
    same_zone.set_node(&node("b"));
    assert_eq!(led_to(&same_zone), [3]);
    same_zone.set_node(&node("c"));
    assert_eq!(led_to(&same_zone), [1, 2, 3], "nobody is meant for it");
    let mut unsaid = model(&[web()], &[hinted(&[of_zone("a"), none, of_zone("b")])]);
    unsaid.set_node(&node("a"));
    assert_eq!(led_to(&unsaid), [1, 2, 3], "one does not say");
    let local = service("web", "10.87.0.1", "Local");
    let local = model(&[local], &[hinted(&[of_node("far", "b"), of_node("near", "b"), of_node("near", "b")])]);
    assert_eq!(led_to(&local), [1], "a policy comes before hints");
}
