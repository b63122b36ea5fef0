//! What packets meet: affinity, UDP, policies, external addresses, source ranges, health checks, both families, restarts.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use client::Change;
use k8s_openapi::api::core::v1::{
    ClientIPConfig, LoadBalancerIngress, LoadBalancerStatus, Service, ServicePort, ServiceSpec, ServiceStatus,
    SessionAffinityConfig,
};
use k8s_openapi::api::discovery::v1::{EndpointPort, EndpointSlice};
use nft::{Family, Nftables, Table};

use super::{
    Call, Namespace, Node, PATIENCE, READY, VIP, answers, at, call, endpoint, ip, numbers, on_a_node, pod, service,
    settings, slice,
};
use crate::driver::Event;
use crate::{CutMode, Proxy};

/// The node's address outside, and a machine there.
const NODE: &str = "198.51.100.1";

/// A machine beside the node, that sends it whatever is for other addresses.
fn outside() -> Namespace {
    let namespace = Namespace::new();
    let thread = namespace.run(|| {
        let own = std::fs::read_link("/proc/thread-self").unwrap();
        own.file_name().unwrap().to_str().unwrap().to_owned()
    });
    ip(&format!("link add out0 type veth peer name eth0 netns {thread}"));
    ip("addr add 198.51.100.1/24 dev out0");
    ip("link set out0 up");
    // What no rule takes leaves the node, as on a machine with a way out.
    ip("route add default dev out0");
    namespace.run(|| {
        ip("link set lo up");
        ip("addr add 198.51.100.2/24 dev eth0");
        ip("link set eth0 up");
        ip("route add default via 198.51.100.1 dev eth0");
    });
    namespace
}

fn changed(change: impl FnOnce(&mut Service, &mut ServiceSpec)) -> Event {
    let mut service = service();
    let mut spec = service.spec.take().unwrap();
    change(&mut service, &mut spec);
    service.spec = Some(spec);
    Event::Service(Change::Changed(service))
}

fn balanced_at(service: &mut Service, addresses: &[&str]) {
    let entry = |ip: &&str| LoadBalancerIngress { ip: Some((*ip).into()), ..LoadBalancerIngress::default() };
    let balancer = LoadBalancerStatus { ingress: Some(addresses.iter().map(entry).collect()) };
    service.status = Some(ServiceStatus { load_balancer: Some(balancer), ..ServiceStatus::default() });
}

/// Says who should be there, and waits until something that needs it works: changes of Services have no revision to wait for.
async fn until(node: &Node, event: Event, is_so: impl Fn(&Node) -> bool) {
    node.tell(event).await;
    let since = Instant::now();
    while !is_so(node) {
        assert!(since.elapsed() < PATIENCE, "it does not come to be");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Whether nobody answers, not even with a refusal.
fn is_dropped(to: &'static str) -> bool {
    let connected = TcpStream::connect_timeout(&to.parse().unwrap(), Duration::from_millis(700));
    connected.is_err_and(|error| error.kind() == ErrorKind::TimedOut)
}

/// [TR-67]
#[test]
fn affinity_keeps_a_client_at_one_endpoint_until_that_leaves() {
    on_a_node(async |node| {
        let affine = |spec: &mut ServiceSpec| {
            spec.session_affinity = Some("ClientIP".into());
            let client_ip = Some(ClientIPConfig { timeout_seconds: Some(600) });
            spec.session_affinity_config = Some(SessionAffinityConfig { client_ip });
        };
        node.tell(changed(|_, spec| affine(spec))).await;
        node.slice(3, &[11, 12, 13].map(|number| at(number, READY))).await;
        for to in ["10.87.0.9:80", "10.86.0.1:30080", "192.0.2.77:80"] {
            assert_eq!(node.client.run(answers(to, 20)).len(), 1, "{to}");
        }
        assert_eq!(answers("10.87.0.9:80", 20)().len(), 1, "the node is a client, too");
        let first = node.client.run(answers("10.87.0.9:80", 1)).pop_first().unwrap();
        // Others joined and left meanwhile.
        let others: Vec<u8> = [11, 12, 13].into_iter().filter(|number| number.to_string() != first).collect();
        let own: u8 = first.parse().unwrap();
        node.slice(4, &[at(own, READY), at(others[0], READY)]).await;
        assert_eq!(node.client.run(answers("10.87.0.9:80", 20)), numbers(&[&first]));
        // A restart does not forget who had whom.
        let Node { proxy, pods, client } = node;
        drop(proxy);
        let node = Node { proxy: Proxy::open("node-1", settings()).unwrap(), pods, client };
        let mut service = service();
        affine(service.spec.as_mut().unwrap());
        node.tell(Event::Service(Change::Listed(vec![service], Some(5)))).await;
        let all = [at(own, READY), at(others[0], READY), at(others[1], READY)];
        node.tell(Event::Slice(Change::Listed(vec![slice(6, &all)], Some(6)))).await;
        node.applied(6).await;
        assert_eq!(node.client.run(answers("10.87.0.9:80", 20)), numbers(&[&first]));
        // It leaves: the next connection goes elsewhere, and stays there.
        node.slice(7, &[at(own, (false, true, true)), at(others[0], READY), at(others[1], READY)]).await;
        let second = node.client.run(answers("10.87.0.9:80", 20));
        assert!(second.len() == 1 && !second.contains(&first), "{second:?}");
        node.slice(8, &all).await;
        assert_eq!(node.client.run(answers("10.87.0.9:80", 20)), second, "it stays when the first is back");
        // Only the first is left.
        node.slice(9, &[at(own, READY)]).await;
        assert_eq!(node.client.run(answers("10.87.0.9:80", 5)), numbers(&[&first]));
        // Without affinity connections go anywhere again.
        node.tell(Event::Service(Change::Changed(super::service()))).await;
        node.slice(10, &all).await;
        assert_eq!(node.client.run(answers("10.87.0.9:80", 60)).len(), 3);
    });
}

fn udp_slice(revision: u64, pods: &[(u8, bool, bool, bool)]) -> EndpointSlice {
    let mut slice = slice(revision, pods);
    slice.ports =
        Some(vec![EndpointPort { port: Some(8080), protocol: Some("UDP".into()), ..EndpointPort::default() }]);
    slice
}

fn udp_service() -> Service {
    let mut service = service();
    let spec = service.spec.as_mut().unwrap();
    let port = ServicePort { port: 80, protocol: Some("UDP".into()), node_port: Some(30080), ..ServicePort::default() };
    spec.ports = Some(vec![port]);
    service
}

fn ask(socket: &UdpSocket) -> Result<String, ErrorKind> {
    let mut said = [0; 16];
    socket.send(b"who").map_err(|error| error.kind())?;
    let length = socket.recv(&mut said).map_err(|error| error.kind())?;
    Ok(String::from_utf8_lossy(&said[..length]).into_owned())
}

/// [TR-71]
#[test]
fn udp_flow_stays_with_who_serves_and_moves_from_who_does_not() {
    on_a_node(async |node| {
        node.tell(Event::Service(Change::Changed(udp_service()))).await;
        let told =
            |revision, pods: Vec<(u8, bool, bool, bool)>| Event::Slice(Change::Changed(udp_slice(revision, &pods)));
        node.tell(told(3, [11, 12, 13].map(|number| at(number, READY)).into())).await;
        node.applied(3).await;
        let socket = node.client.run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
            socket.connect((VIP, 80)).unwrap();
            socket
        });
        let first = ask(&socket).unwrap();
        let own: u8 = first.parse().unwrap();
        let other = if own == 11 { 12 } else { 11 };
        assert!((0..10).all(|_| ask(&socket).unwrap() == first), "one flow, one pod");
        // It leaves and serves: the flow stays, although new ones go elsewhere.
        node.tell(told(4, vec![at(own, (false, true, true)), at(other, READY)])).await;
        node.applied(4).await;
        assert!((0..10).all(|_| ask(&socket).unwrap() == first), "it serves");
        // A restart clears no flow that is valid.
        let Node { proxy, pods, client } = node;
        drop(proxy);
        let node = Node { proxy: Proxy::open("node-1", settings()).unwrap(), pods, client };
        node.tell(Event::Service(Change::Listed(vec![udp_service()], Some(5)))).await;
        let slice = udp_slice(6, &[at(own, (false, true, true)), at(other, READY)]);
        node.tell(Event::Slice(Change::Listed(vec![slice], Some(6)))).await;
        node.applied(6).await;
        assert!((0..10).all(|_| ask(&socket).unwrap() == first), "it serves");
        // It does not serve any more.
        node.tell(told(7, vec![at(own, (false, false, true)), at(other, READY)])).await;
        node.applied(7).await;
        let since = Instant::now();
        // A packet that is under way may be lost.
        while ask(&socket) != Ok(other.to_string()) {
            assert!(since.elapsed() < PATIENCE, "the flow does not move");
        }
        // Nobody is left, and somebody comes again.
        node.tell(told(8, vec![])).await;
        node.applied(8).await;
        let since = Instant::now();
        while ask(&socket) != Err(ErrorKind::ConnectionRefused) {
            assert!(since.elapsed() < PATIENCE, "the flow is kept at nobody");
        }
        node.tell(told(9, vec![at(13, READY)])).await;
        node.applied(9).await;
        let since = Instant::now();
        while ask(&socket) != Ok("13".to_owned()) {
            assert!(since.elapsed() < PATIENCE, "the flow does not begin anew");
        }
    });
}

/// [TR-65] [LB-5] [LB-7]
#[test]
fn local_policy_keeps_the_client_address_and_drops_outside_without_a_local_endpoint() {
    on_a_node(async |node| {
        let outside = outside();
        let local = changed(|service, spec| {
            spec.external_traffic_policy = Some("Local".into());
            balanced_at(service, &["192.0.2.77"]);
        });
        node.tell(local).await;
        node.slice(3, &[at(11, READY)]).await;
        let told = outside.run(|| call("192.0.2.77:80")).unwrap();
        assert_eq!(told, "11 198.51.100.2", "who is outside is seen as they are");
        let mut elsewhere = slice(4, &[at(12, READY)]);
        elsewhere.endpoints.iter_mut().flatten().for_each(|endpoint| endpoint.node_name = Some("node-2".into()));
        node.tell(Event::Slice(Change::Changed(elsewhere))).await;
        node.applied(4).await;
        assert!(outside.run(|| is_dropped("192.0.2.77:80")), "another node may have one");
        assert_eq!(node.client.run(answers("192.0.2.77:80", 5)), numbers(&["12"]), "pods are served wherever it is");
        assert_eq!(answers("192.0.2.77:80", 5)(), numbers(&["12"]), "and so is the node");
        assert_eq!(node.client.run(answers("10.86.0.1:30080", 5)), numbers(&["12"]), "by node port, too");
        node.slice(5, &[]).await;
        assert_eq!(outside.run(|| call("192.0.2.77:80")), Err(ErrorKind::ConnectionRefused), "nobody has one");
        // Inside, the same policy is a choice of its own.
        let inside = changed(|_, spec| spec.internal_traffic_policy = Some("Local".into()));
        node.tell(inside).await;
        let mut both = slice(6, &[at(11, READY), at(12, READY)]);
        both.endpoints.as_mut().unwrap()[1].node_name = Some("node-2".into());
        node.tell(Event::Slice(Change::Changed(both))).await;
        node.applied(6).await;
        assert_eq!(node.client.run(answers("10.87.0.9:80", 20)), numbers(&["11"]));
        // Who leaves serves if nobody else here does, although somebody elsewhere would.
        let mut leaving = slice(7, &[at(11, (false, true, true)), at(12, READY)]);
        leaving.endpoints.as_mut().unwrap()[1].node_name = Some("node-2".into());
        node.tell(Event::Slice(Change::Changed(leaving))).await;
        node.applied(7).await;
        assert_eq!(node.client.run(answers("10.87.0.9:80", 10)), numbers(&["11"]));
    });
}

/// [LB-2] [LB-9] [LB-10] [LB-14] [LB-21]
#[test]
fn external_addresses_are_served_unless_they_are_somebody_elses() {
    on_a_node(async |node| {
        let outside = outside();
        let Node { proxy, pods, client } = node;
        drop(proxy);
        let mut own = settings();
        own.node_addresses.push(NODE.parse().unwrap());
        let proxy = Proxy::open("node-1", own).unwrap();
        let node = Node { proxy, pods, client };
        let _ssh = TcpListener::bind((NODE, 22)).unwrap();
        let claims = |service: &mut Service, spec: &mut ServiceSpec| {
            let port = |name: &str, port| ServicePort { name: Some(name.into()), port, ..ServicePort::default() };
            spec.ports = Some(vec![port("a", 80), port("b", 22), port("c", 6443)]);
            let claimed = ["203.0.113.5", "10.86.0.1", "127.0.0.1", "8.8.8.8", NODE, "169.254.1.1", "10.87.0.1"];
            spec.external_ips = Some(claimed.map(str::to_owned).into());
            balanced_at(service, &[NODE, "10.86.0.12", "127.0.0.1", "10.87.0.1"]);
        };
        let mut service = service();
        let mut spec = service.spec.take().unwrap();
        claims(&mut service, &mut spec);
        service.spec = Some(spec);
        node.tell(Event::Service(Change::Listed(vec![service], Some(3)))).await;
        let mut slice = slice(4, &[at(11, READY)]);
        let port = |name: &str| EndpointPort { name: Some(name.into()), port: Some(8080), ..EndpointPort::default() };
        slice.ports = Some(vec![port("a"), port("b"), port("c")]);
        node.tell(Event::Slice(Change::Listed(vec![slice], Some(4)))).await;
        node.applied(4).await;
        assert_eq!(outside.run(|| call("203.0.113.5:80")).unwrap(), "11 198.51.100.2", "a local pod sees who it is");
        assert_eq!(outside.run(|| call("198.51.100.1:80")).unwrap(), "11 198.51.100.2", "the node as its own balancer");
        // Whoever listens on the node is not taken over.
        let connected = outside.run(|| {
            let mut stream = TcpStream::connect((NODE, 22)).unwrap();
            stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            stream.read(&mut [0]).unwrap_err().kind()
        });
        assert_eq!(connected, ErrorKind::WouldBlock, "that is the program's own");
        for address in ["10.86.0.1:6443", "10.86.0.12:80", "10.87.0.1:80"] {
            let refused = node.client.run(move || call(address)).unwrap_err();
            assert!(
                matches!(refused, ErrorKind::ConnectionRefused | ErrorKind::HostUnreachable),
                "{address}: {refused}"
            );
        }
        for address in ["127.0.0.1:80", "127.0.0.1:6443", "127.0.0.1:30080"] {
            assert_eq!(call(address), Err(ErrorKind::ConnectionRefused), "{address}");
        }
        assert!(node.client.run(|| is_dropped("8.8.8.8:80")), "it leaves the node");
        // Only from there.
        let ranged = changed(|service, spec| {
            spec.load_balancer_source_ranges = Some(vec!["192.0.2.0/24".into(), " 198.51.100.2/32 ".into()]);
            balanced_at(service, &["192.0.2.77"]);
        });
        node.tell(ranged).await;
        node.slice(5, &[at(11, READY)]).await;
        assert_eq!(outside.run(|| call("192.0.2.77:80")).unwrap(), "11 198.51.100.2");
        assert!(node.client.run(|| is_dropped("192.0.2.77:80")));
        assert_eq!(node.client.run(answers("10.87.0.9:80", 3)), numbers(&["11"]), "ranges are for the balancer");
        let others = changed(|_, spec| spec.load_balancer_source_ranges = Some(vec!["10.86.0.20".into()]));
        node.tell(others).await;
        node.slice(6, &[at(12, READY)]).await;
        assert!(outside.run(|| is_dropped("192.0.2.77:80")));
        assert_eq!(node.client.run(answers("192.0.2.77:80", 3)), numbers(&["12"]));
        // A balancer that is to be passed is no address of ours.
        let by_proxy = changed(|service, _| {
            let balancer = service.status.as_mut().unwrap().load_balancer.as_mut().unwrap();
            balancer.ingress.as_mut().unwrap()[0].ip_mode = Some("Proxy".into());
        });
        until(&node, by_proxy, |node| node.client.run(|| is_dropped("192.0.2.77:80"))).await;
    });
}

/// Slices that lead to the node's own addresses lead nowhere.
#[test]
fn endpoint_at_loopback_or_link_local_address_is_never_sent_to() {
    on_a_node(async |node| {
        let _secret = TcpListener::bind("127.0.0.1:8080").unwrap();
        for (revision, address) in
            (3..).zip(["127.0.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.1", "255.255.255.255"])
        {
            let mut hostile = slice(revision, &[at(11, READY)]);
            hostile.endpoints.as_mut().unwrap()[0].addresses = vec![address.into()];
            node.tell(Event::Slice(Change::Changed(hostile))).await;
            node.applied(revision).await;
            assert_eq!(node.client.run(|| call("10.87.0.9:80")), Err(ErrorKind::ConnectionRefused), "{address}");
            assert_eq!(call("10.87.0.9:80"), Err(ErrorKind::ConnectionRefused), "{address}, from the node");
        }
    });
}

/// [LB-19] [LB-3]
#[test]
fn older_service_has_an_address_that_two_claim() {
    on_a_node(async |node| {
        let _outside = outside();
        let itself = node.pods[0].run(|| (0..60).map(|_| call("10.86.0.1:30080").unwrap()).collect::<BTreeSet<_>>());
        assert!(itself.contains("11 10.86.0.1"), "a pod meets itself by node port: {itself:?}");
        let mut second = service();
        second.metadata.name = Some("also".into());
        let created = |time: &str| k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(time.parse().unwrap());
        second.metadata.creation_timestamp = Some(created("2026-01-02T00:00:00Z"));
        let mut first = service();
        first.metadata.creation_timestamp = Some(created("2026-01-01T00:00:00Z"));
        for service in [&mut first, &mut second] {
            balanced_at(service, &["192.0.2.77"]);
        }
        let spec = second.spec.as_mut().unwrap();
        spec.cluster_ips = Some(vec!["10.87.0.10".into()]);
        spec.ports.as_mut().unwrap()[0].node_port = Some(30081);
        node.tell(Event::Service(Change::Changed(first.clone()))).await;
        node.tell(Event::Service(Change::Changed(second))).await;
        let mut other = slice(3, &[at(13, READY)]);
        other.metadata.name = Some("also-1".into());
        other.metadata.labels = Some([("kubernetes.io/service-name".to_owned(), "also".to_owned())].into());
        node.tell(Event::Slice(Change::Changed(other))).await;
        node.slice(4, &[at(11, READY)]).await;
        assert_eq!(node.client.run(answers("10.87.0.10:80", 5)), numbers(&["13"]));
        assert_eq!(node.client.run(answers("192.0.2.77:80", 10)), numbers(&["11"]), "the older one has it");
        node.slice(5, &[]).await;
        let refused = node.client.run(|| call("192.0.2.77:80"));
        assert_eq!(refused, Err(ErrorKind::ConnectionRefused), "also when it has nobody");
        let gone = Event::Service(Change::Removed(first));
        until(&node, gone, |node| node.client.run(|| call("192.0.2.77:80")).is_ok_and(|told| told.starts_with("13")))
            .await;
    });
}

/// [LB-8]
#[test]
fn health_check_port_answers_for_local_endpoints_that_stay() {
    fn status(port: u16) -> Option<String> {
        let mut stream = TcpStream::connect(("10.86.0.1", port)).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: node\r\n\r\n").ok()?;
        let mut said = String::new();
        stream.read_to_string(&mut said).ok()?;
        Some(said)
    }
    on_a_node(async |node| {
        let checked = changed(|_, spec| {
            spec.external_traffic_policy = Some("Local".into());
            spec.health_check_node_port = Some(31999);
        });
        until(&node, checked, |_| status(31999).is_some_and(|said| said.contains("\"localEndpoints\":3"))).await;
        assert!(status(31999).unwrap().starts_with("HTTP/1.1 200 "));
        node.slice(3, &[at(11, (false, true, true))]).await;
        let said = status(31999).unwrap();
        assert!(said.starts_with("HTTP/1.1 503 ") && said.contains("\"localEndpoints\":0"), "{said}");
        let told = node.client.run(|| call("192.0.2.77:80")).unwrap();
        assert!(told.starts_with("11 "), "it is served all the same");
        until(&node, Event::Service(Change::Changed(service())), |_| status(31999).is_none()).await;
    });
}

/// [TR-73] [LB-20]
#[test]
fn both_families_of_a_service_are_in_force_with_one_acknowledgement() {
    on_a_node(async |node| {
        std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
        let _outside = outside();
        ip("addr add fd86::1/128 dev lo");
        ip("route add fd87::/64 dev out0");
        let wire = |pod: &Namespace, number: u8| {
            let link = format!("adtest{number}");
            ip(&format!("addr add fe80::1/64 dev {link} nodad"));
            ip(&format!("route add fd86::{number}/128 dev {link}"));
            pod.run(move || {
                ip(&format!("addr add fd86::{number}/128 dev eth0 nodad"));
                ip("route add default via fe80::1 dev eth0");
            });
        };
        wire(&node.pods[0], 11);
        wire(&node.client, 20);
        node.tell(changed(|_, spec| spec.cluster_ips = Some(vec![VIP.into(), "fd87::9".into()]))).await;
        let mut six = slice(3, &[at(11, READY)]);
        six.metadata.name = Some("web-6".into());
        six.address_type = "IPv6".into();
        six.endpoints.as_mut().unwrap()[0].addresses = vec!["fd86::11".into()];
        node.tell(Event::Slice(Change::Changed(six.clone()))).await;
        node.slice(4, &[at(12, READY)]).await;
        assert_eq!(node.client.run(answers("[fd87::9]:80", 10)), numbers(&["11"]));
        assert_eq!(node.client.run(answers("10.87.0.9:80", 10)), numbers(&["12"]));
        assert_eq!(node.client.run(|| call("[fd87::9]:81")), Err(ErrorKind::ConnectionRefused));
        six.endpoints = None;
        six.metadata.resource_version = Some("5".into());
        node.tell(Event::Slice(Change::Changed(six))).await;
        node.applied(5).await;
        assert_eq!(node.client.run(|| call("[fd87::9]:80")), Err(ErrorKind::ConnectionRefused));
        assert_eq!(node.client.run(answers("10.87.0.9:80", 10)), numbers(&["12"]));
    });
}

/// [TR-68] [LB-23]
#[test]
fn restart_keeps_the_tables_their_counters_and_open_connections() {
    fn handles() -> Vec<u64> {
        let mut nftables = Nftables::open().unwrap();
        let tables = nftables.tables().unwrap();
        let own = [Family::Ip, Family::Ip6].map(|family| Table::new(family, "adtest-proxy"));
        tables.iter().filter(|it| own.contains(&it.table)).map(|it| it.handle).collect()
    }
    on_a_node(async |node| {
        let (before, mut open) = (handles(), node.client.run(|| Call::open("10.87.0.9:80").unwrap()));
        let who = open.hear();
        let follow = |node: &Node| [11, 12, 13].map(|number| node.proxy.handle().reach(&endpoint(number)));
        let _followed = follow(&node);
        let counted = node.proxy.handle().new_connections().await.unwrap();
        assert_eq!(counted.values().sum::<u64>(), 1);
        let Node { proxy, pods, client } = node;
        drop(proxy);
        let node = Node { proxy: Proxy::open("node-1", settings()).unwrap(), pods, client };
        let _followed = follow(&node);
        let generation = Nftables::open().unwrap().generation().unwrap();
        node.tell(Event::Service(Change::Listed(vec![service()], Some(3)))).await;
        let all = [11, 12, 13].map(|number| at(number, READY));
        node.tell(Event::Slice(Change::Listed(vec![slice(4, &all)], Some(4)))).await;
        node.applied(4).await;
        assert_eq!(Nftables::open().unwrap().generation().unwrap(), generation, "nothing had to be written");
        assert_eq!(handles(), before, "they are the same tables");
        assert_eq!(node.proxy.handle().new_connections().await.unwrap(), counted, "counts go on");
        assert_eq!(open.again(), who);
        // What is left over is removed, and what is missing is added, without another table.
        let broken = "delete element ip adtest-proxy vips { 10.87.0.9 }; \
                      add element ip adtest-proxy vips { 10.87.0.77 }";
        assert!(std::process::Command::new("nft").arg(broken).status().unwrap().success());
        let since = Instant::now();
        let table = Table::new(Family::Ip, "adtest-proxy");
        let vips = || Nftables::open().unwrap().elements(&table, "vips").unwrap();
        while vips().len() != 1 || vips()[0].key != [10, 87, 0, 9] {
            assert!(since.elapsed() < PATIENCE, "{:?}", vips());
        }
        assert_eq!(handles(), before, "they are the same tables");
        // A rule that somebody else took is back, too.
        assert!(std::process::Command::new("nft").arg("flush chain ip adtest-proxy pre").status().unwrap().success());
        let since = Instant::now();
        while node.client.run(|| call("10.87.0.9:80")).is_err() {
            assert!(since.elapsed() < PATIENCE, "the rules do not return");
        }
        assert_eq!(open.again(), who);
    });
}

/// [TR-24]
#[test]
fn connection_that_was_never_tracked_stays_where_it_is_when_its_pod_is_cut() {
    let thread = std::thread::spawn(|| {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            Node::wire();
            let (pods, client) = ([11, 12, 13].map(pod).into(), pod(20));
            let mut open = client.run(|| Call::open("10.86.0.11:8080").unwrap());
            assert_eq!(open.hear(), "11 10.86.0.20");
            let node = Node { proxy: Proxy::open("node-1", settings()).unwrap(), pods, client };
            node.list().await;
            node.proxy.handle().cut(endpoint(11), CutMode::Divert).await.unwrap();
            assert_eq!(open.again(), "11 10.86.0.20", "it goes on");
            assert_eq!(node.client.run(answers("10.86.0.11:8080", 20)), numbers(&["12", "13"]));
            assert_eq!(open.again(), "11 10.86.0.20");
        });
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Slices that people write name no pod, and Services of any namespace may lead to any address: a cut holds where connections arrive.
#[test]
fn cut_pod_gets_no_connections_from_slices_that_do_not_name_it() {
    on_a_node(async |node| {
        let handle = node.proxy.handle();
        let mut other = service();
        let spec = other.spec.as_mut().unwrap();
        (spec.cluster_ip, spec.cluster_ips) = (Some("10.87.0.10".into()), Some(vec!["10.87.0.10".into()]));
        spec.ports.as_mut().unwrap()[0].node_port = None;
        other.metadata.namespace = Some("elsewhere".into());
        let mut unnamed = slice(3, &[at(11, READY), at(12, READY)]);
        unnamed.metadata.namespace = Some("elsewhere".into());
        let [first, second] = &mut unnamed.endpoints.as_mut().unwrap()[..] else { panic!("two") };
        first.target_ref = None;
        second.target_ref.as_mut().unwrap().uid = Some("uid-11".into());
        node.tell(Event::Service(Change::Changed(other))).await;
        node.tell(Event::Slice(Change::Changed(unnamed))).await;
        node.applied(3).await;
        assert_eq!(node.client.run(answers("10.87.0.10:80", 30)), numbers(&["11", "12"]));
        handle.cut(endpoint(11), CutMode::Divert).await.unwrap();
        assert_eq!(node.client.run(answers("10.87.0.10:80", 30)), numbers(&["12"]));
        assert_eq!(
            node.client.run(answers("10.86.0.11:8080", 30)),
            numbers(&["12", "13"]),
            "its own Service stands in"
        );
        handle.restore("uid-11").await.unwrap();
        assert_eq!(node.client.run(answers("10.87.0.10:80", 30)), numbers(&["11", "12"]));
    });
}

/// What conntrack takes for no part of a connection is not translated. It is lost and sent again; whoever got it would reset the connection.
#[test]
fn packet_beyond_its_window_costs_no_connection() {
    fn nft(commands: &str) -> String {
        let output = std::process::Command::new("nft").arg(commands).output().unwrap();
        assert!(output.status.success(), "nft {commands}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
    on_a_node(async |node| {
        let mut open = node.client.run(|| Call::open("10.87.0.9:80").unwrap());
        let said = open.hear();
        let number: usize = said.split(' ').next().unwrap().parse().unwrap();
        let pod = &node.pods[number - 11];
        pod.run(|| {
            nft("add table ip bad; add chain ip bad out { type filter hook output priority 0; }");
            nft("add rule ip bad out tcp sport 8080 tcp flags & psh == psh tcp sequence set tcp sequence ^ 0x80000000 counter")
        });
        let since = Instant::now();
        let mut open = node.client.run(move || {
            open.0.write_all(b"x").unwrap();
            open
        });
        // One is on its way; what the client made of it would come back at once.
        while pod.run(|| nft("list table ip bad")).contains("counter packets 0") {
            assert!(since.elapsed() < PATIENCE, "the pod sends nothing");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        pod.run(|| nft("delete table ip bad"));
        assert_eq!(open.hear(), said, "it is sent again");
    });
}
