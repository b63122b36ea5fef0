//! What Services and slices come to, without a kernel; hostile ones among them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::api::discovery::v1::{EndpointPort, EndpointSlice};

use super::{READY, VIP, at, endpoint, service, slice};
use crate::model::{Model, NodeFacts};
use crate::wanted::{Space, Wanted};
use crate::{CutMode, Protocol};

fn model() -> Model {
    Model::new(NodeFacts {
        name: "node-1".into(),
        addresses: vec!["10.86.0.1".parse().unwrap()],
        inside: vec![("10.86.0.0".parse().unwrap(), 16), ("10.87.0.0".parse().unwrap(), 16)],
        external_ips: vec![("203.0.113.0".parse().unwrap(), 24)],
    })
}

fn named(name: &str, namespace: &str, vip: &str) -> Service {
    let mut service = service();
    service.metadata.name = Some(name.into());
    service.metadata.namespace = Some(namespace.into());
    let spec = service.spec.as_mut().unwrap();
    (spec.cluster_ip, spec.cluster_ips) = (Some(vip.into()), Some(vec![vip.into()]));
    spec.ports.as_mut().unwrap()[0].node_port = None;
    service
}

fn slice_of(name: &str, namespace: &str, pods: &[u8]) -> EndpointSlice {
    let all: Vec<_> = pods.iter().map(|number| at(*number, READY)).collect();
    let mut slice = slice(2, &all);
    slice.metadata.name = Some(format!("{name}-1"));
    slice.metadata.namespace = Some(namespace.into());
    slice.metadata.labels = Some([("kubernetes.io/service-name".to_owned(), name.to_owned())].into());
    slice
}

fn key(namespace: &str, name: &str) -> (String, String) {
    (namespace.to_owned(), name.to_owned())
}

/// Where connections to a frontend go, by the last part of the address.
fn backends(wanted: &Wanted, space: Space) -> BTreeSet<String> {
    let lists = wanted.lists.iter().filter(|(frontend, _)| frontend.space == space);
    lists.flat_map(|(_, targets)| &targets.backends).map(|backend| backend.address.to_string()).collect()
}

/// [TR-20]
#[test]
fn cut_pod_of_two_services_is_stood_in_for_by_endpoints_of_both() {
    let mut model = model();
    model.set_service(named("a", "shop", "10.87.0.2"));
    model.set_service(named("b", "shop", "10.87.0.3"));
    model.set_slice(&slice_of("a", "shop", &[11, 12, 13]));
    model.set_slice(&slice_of("b", "shop", &[11, 13, 14]));
    model.cut(endpoint(11), CutMode::Divert);
    assert_eq!(backends(&model.wanted_by_cut("uid-11"), Space::Cut), BTreeSet::from(["10.86.0.13".to_owned()]));
    // Nobody is in both: the pod is served itself.
    model.set_slice(&slice_of("b", "shop", &[11, 14]));
    assert!(backends(&model.wanted_by_cut("uid-11"), Space::Cut).is_empty());
}

#[test]
fn slice_of_another_namespace_has_no_say_about_a_pod() {
    let mut model = model();
    model.set_service(named("a", "shop", "10.87.0.2"));
    model.set_slice(&slice_of("a", "shop", &[11, 12]));
    model.set_service(named("evil", "thief", "10.87.0.66"));
    let mut evil = slice_of("evil", "thief", &[11]);
    evil.endpoints.as_mut().unwrap()[0].addresses = vec!["10.86.0.99".into()];
    model.set_slice(&evil);
    model.cut(endpoint(11), CutMode::Divert);
    let wanted = model.wanted_by_cut("uid-11");
    assert_eq!(backends(&wanted, Space::Cut), BTreeSet::from(["10.86.0.12".to_owned()]), "its siblings are its own");
    let at: BTreeSet<_> = wanted.lists.keys().filter_map(|frontend| frontend.address).collect();
    assert_eq!(at, BTreeSet::from(["10.86.0.11".parse::<IpAddr>().unwrap()]), "nobody else is diverted");
    model.cut(endpoint(11), CutMode::Refuse);
    let refused: BTreeSet<_> = model.wanted_by_cut("uid-11").nobody.keys().map(|(address, ..)| *address).collect();
    assert_eq!(refused, BTreeSet::from(["10.86.0.11".parse::<IpAddr>().unwrap()]), "nobody else is refused");
    assert_eq!(backends(&model.wanted(&key("thief", "evil")), Space::Service).len(), 1, "and it is not cut there");
}

/// Endpoints that leave and serve are used only while nobody who stays is there (KEP-1669), and never those who do not serve.
#[test]
fn terminating_endpoints_stand_in_only_when_nobody_stays() {
    let mut model = model();
    model.set_service(service());
    let leaving = (false, true, true);
    let unready = (false, false, false);
    let silent = (false, false, true);
    for (pods, taken) in [
        (vec![at(11, READY), at(12, leaving), at(13, unready)], vec!["10.86.0.11"]),
        (vec![at(11, unready), at(12, leaving), at(13, silent)], vec!["10.86.0.12"]),
        (vec![at(11, unready), at(13, silent)], vec![]),
        // `publishNotReadyAddresses` says ready of whoever leaves, too.
        (vec![at(11, (true, true, true)), at(12, READY)], vec!["10.86.0.12"]),
        (vec![at(11, (true, true, true))], vec!["10.86.0.11"]),
    ] {
        model.set_slice(&slice(3, &pods));
        let taken: BTreeSet<String> = taken.into_iter().map(str::to_owned).collect();
        assert_eq!(backends(&model.wanted(&key("shop", "web")), Space::Service), taken, "{pods:?}");
    }
}

#[test]
fn headless_and_external_name_services_want_no_rules() {
    let mut model = model();
    model.set_slice(&slice(3, &[at(11, READY)]));
    for (kind, ips) in [("ClusterIP", vec!["None".to_owned()]), ("ExternalName", vec![VIP.to_owned()])] {
        let mut service = service();
        let spec = service.spec.as_mut().unwrap();
        (spec.type_, spec.cluster_ips) = (Some(kind.into()), Some(ips));
        model.set_service(service);
        assert_eq!(model.wanted(&key("shop", "web")), Wanted::default(), "{kind}");
    }
}

#[test]
fn service_with_thousands_of_ports_and_endpoints_is_bounded() {
    let mut model = model();
    let mut service = service();
    let port = |number: i32| ServicePort {
        name: Some(format!("p{number}")),
        port: number,
        protocol: Some(if number % 2 == 0 { "UDP" } else { "TCP" }.into()),
        ..ServicePort::default()
    };
    // Numbers that are none are passed over.
    let numbers = (1..=2_000).chain([0, -1, 70_000, i32::MAX]);
    service.spec.as_mut().unwrap().ports = Some(numbers.clone().map(port).collect());
    model.set_service(service);
    let mut slice = slice(3, &[at(11, READY)]);
    let one = slice.endpoints.as_ref().unwrap()[0].clone();
    let endpoints = (0..5_500_u32).map(|number| {
        let [_, _, high, low] = number.to_be_bytes();
        let mut endpoint = one.clone();
        endpoint.addresses = vec![format!("10.99.{high}.{low}")];
        endpoint
    });
    slice.endpoints = Some(endpoints.collect());
    let target = |number: i32| EndpointPort {
        name: Some(format!("p{number}")),
        port: Some(number),
        protocol: Some(if number % 2 == 0 { "UDP" } else { "TCP" }.into()),
        ..EndpointPort::default()
    };
    slice.ports = Some(numbers.map(target).collect());
    model.set_slice(&slice);
    let wanted = model.wanted(&key("shop", "web"));
    let vip = wanted.lists.iter().filter(|(frontend, _)| frontend.address == Some(VIP.parse().unwrap()));
    let sizes: Vec<_> = vip.map(|(_, targets)| targets.backends.len()).collect();
    assert_eq!((sizes.len(), sizes.iter().sum::<usize>()), (2_000, 2_000 * 49), "a share of what one may have");
    assert!(wanted.lists.keys().all(|frontend| matches!(frontend.protocol, Protocol::Tcp | Protocol::Udp)));
}
