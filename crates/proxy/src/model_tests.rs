//! What Services, slices and cuts say together, without a kernel.
#![allow(clippy::unwrap_used, reason = "tests")]

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
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
    let mut spoiling = slice("bait", &[(1, "here", true), (2, "here", true)]);
    spoiling.metadata.namespace = Some("thief".into());
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
    let counted_for = model.counted_for();
    let counted = [1, 2, 4].map(|number| counted_for([10, 86, 0, number].into(), Protocol::Tcp, 8080));
    assert_eq!(counted, [Some("uid-1".to_owned()), Some("uid-2".to_owned()), None]);
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
