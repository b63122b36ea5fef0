//! The proxy against a real kernel, in network namespaces of its own.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::mpsc as channel;
use std::time::{Duration, Instant};

use client::Change;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::core::v1::{
    LoadBalancerIngress, LoadBalancerStatus, Service, ServicePort, ServiceSpec, ServiceStatus,
};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};

use crate::driver::Event;
use crate::{CutMode, PodEndpoint, Proxy, Settings};

mod data_path;
mod model;
mod ruleset;

const PATIENCE: Duration = Duration::from_secs(20);
const VIP: &str = "10.87.0.9";

fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A network namespace with a thread in it that does what it is told.
struct Namespace(channel::Sender<Box<dyn FnOnce() + Send>>);

impl Namespace {
    fn new() -> Self {
        let (work, works) = channel::channel::<Box<dyn FnOnce() + Send>>();
        std::thread::spawn(move || {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            works.into_iter().for_each(|work| work());
        });
        Self(work)
    }

    fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, told) = channel::channel();
        self.0.send(Box::new(move || drop(tell.send(work())))).unwrap();
        told.recv().unwrap()
    }
}

/// A routed pod, wired as the runtime does it, that answers with its number and the client's address.
fn pod(number: u8) -> Namespace {
    let namespace = Namespace::new();
    let link = format!("adtest{number}");
    let thread = namespace.run(|| {
        let own = std::fs::read_link("/proc/thread-self").unwrap();
        own.file_name().unwrap().to_str().unwrap().to_owned()
    });
    ip(&format!("link add {link} type veth peer name eth0 netns {thread}"));
    ip(&format!("link set {link} up"));
    ip(&format!("route add 10.86.0.{number}/32 dev {link} src 10.86.0.1"));
    namespace.run(move || {
        ip("link set lo up");
        ip(&format!("addr add 10.86.0.{number}/32 dev eth0"));
        ip("link set eth0 up");
        ip("route add 10.86.0.1/32 dev eth0");
        ip("route add default via 10.86.0.1 dev eth0");
        let echo = UdpSocket::bind("[::]:8080").unwrap();
        std::thread::spawn(move || {
            let mut said = [0; 64];
            while let Ok((_, from)) = echo.recv_from(&mut said) {
                let _ = echo.send_to(number.to_string().as_bytes(), from);
            }
        });
        let listener = TcpListener::bind("[::]:8080").unwrap();
        std::thread::spawn(move || {
            for mut connection in listener.incoming().map(Result::unwrap) {
                std::thread::spawn(move || {
                    let from = connection.peer_addr().unwrap().ip().to_canonical();
                    let mut byte = [0];
                    while connection.write_all(format!("{number} {from}\n").as_bytes()).is_ok() {
                        if connection.read(&mut byte).unwrap_or(0) == 0 {
                            return;
                        }
                    }
                });
            }
        });
    });
    namespace
}

/// A connection, and what it is told each time it asks.
struct Call(TcpStream);

impl Call {
    fn open(to: &str) -> Result<Self, ErrorKind> {
        let to: SocketAddr = to.parse().unwrap();
        let stream = TcpStream::connect_timeout(&to, Duration::from_secs(3)).map_err(|error| error.kind())?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Ok(Self(stream))
    }

    fn hear(&mut self) -> String {
        let mut said = Vec::new();
        let mut byte = [0];
        while self.0.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
            said.push(byte[0]);
        }
        String::from_utf8(said).unwrap()
    }

    fn again(&mut self) -> String {
        self.0.write_all(b"x").unwrap();
        self.hear()
    }
}

fn call(to: &str) -> Result<String, ErrorKind> {
    Call::open(to).map(|mut call| call.hear())
}

fn answers(to: &'static str, times: usize) -> impl FnOnce() -> std::collections::BTreeSet<String> + Send {
    move || (0..times).map(|_| call(to).unwrap().split(' ').next().unwrap().to_owned()).collect()
}

fn service() -> Service {
    let mut service = Service::default();
    service.metadata.namespace = Some("shop".into());
    service.metadata.name = Some("web".into());
    service.spec = Some(ServiceSpec {
        type_: Some("LoadBalancer".into()),
        cluster_ip: Some(VIP.into()),
        cluster_ips: Some(vec![VIP.into()]),
        ports: Some(vec![ServicePort { port: 80, node_port: Some(30080), ..ServicePort::default() }]),
        ..ServiceSpec::default()
    });
    let ingress = LoadBalancerIngress { ip: Some("192.0.2.77".into()), ..LoadBalancerIngress::default() };
    let balancer = LoadBalancerStatus { ingress: Some(vec![ingress]) };
    service.status = Some(ServiceStatus { load_balancer: Some(balancer), ..ServiceStatus::default() });
    service
}

fn slice(revision: u64, pods: &[(u8, bool, bool, bool)]) -> EndpointSlice {
    let mut slice = EndpointSlice { address_type: "IPv4".into(), ..EndpointSlice::default() };
    slice.metadata.namespace = Some("shop".into());
    slice.metadata.name = Some("web-1".into());
    slice.metadata.resource_version = Some(revision.to_string());
    slice.metadata.labels = Some([("kubernetes.io/service-name".to_owned(), "web".to_owned())].into());
    slice.ports = Some(vec![EndpointPort { port: Some(8080), ..EndpointPort::default() }]);
    let endpoints = pods.iter().map(|(number, ready, serving, terminating)| Endpoint {
        addresses: vec![format!("10.86.0.{number}")],
        node_name: Some("node-1".into()),
        conditions: Some(EndpointConditions {
            ready: Some(*ready),
            serving: Some(*serving),
            terminating: Some(*terminating),
        }),
        target_ref: Some(ObjectReference { uid: Some(format!("uid-{number}")), ..ObjectReference::default() }),
        ..Endpoint::default()
    });
    slice.endpoints = Some(endpoints.collect());
    slice
}

fn endpoint(number: u8) -> PodEndpoint {
    PodEndpoint {
        uid: format!("uid-{number}"),
        namespace: "shop".into(),
        name: format!("web-{number}"),
        addresses: vec![format!("10.86.0.{number}").parse().unwrap()],
    }
}

const READY: (bool, bool, bool) = (true, true, false);

fn at(number: u8, (ready, serving, terminating): (bool, bool, bool)) -> (u8, bool, bool, bool) {
    (number, ready, serving, terminating)
}

/// A node with three pods behind one Service, and a fourth that is a client.
struct Node {
    proxy: Proxy,
    pods: Vec<Namespace>,
    client: Namespace,
}

fn settings() -> Settings {
    Settings {
        prefix: "adtest".into(),
        pods: ("10.86.0.0".parse().unwrap(), 16, "10.86.0.1".parse().unwrap()),
        services: Some(("10.87.0.0".parse().unwrap(), 16)),
        node_addresses: vec!["10.86.0.1".parse().unwrap()],
        external_ips: vec![("203.0.113.0".parse().unwrap(), 24)],
    }
}

impl Node {
    /// What there is of the node before its proxy.
    fn wire() {
        ip("link set lo up");
        ip("addr add 10.86.0.1/32 dev lo");
        ip("route add 10.87.0.0/16 dev lo src 10.86.0.1");
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
    }

    async fn start() -> Self {
        Self::wire();
        let proxy = Proxy::open("node-1", settings()).unwrap();
        let pods = [11, 12, 13].map(pod).into();
        let node = Self { proxy, pods, client: pod(20) };
        node.list().await;
        node
    }

    async fn list(&self) {
        self.tell(Event::Service(Change::Listed(vec![service()], Some(1)))).await;
        let all = [11, 12, 13].map(|number| at(number, READY));
        self.tell(Event::Slice(Change::Listed(vec![slice(2, &all)], Some(2)))).await;
        self.applied(2).await;
    }

    async fn tell(&self, event: Event) {
        self.proxy.events().send(event).await.unwrap();
    }

    async fn slice(&self, revision: u64, pods: &[(u8, bool, bool, bool)]) {
        self.tell(Event::Slice(Change::Changed(slice(revision, pods)))).await;
        self.applied(revision).await;
    }

    async fn applied(&self, revision: u64) {
        let mut applied = self.proxy.handle().applied_revision();
        tokio::time::timeout(PATIENCE, applied.wait_for(|it| *it >= revision)).await.unwrap().unwrap();
    }
}

fn on_a_node<F: Future<Output = ()>>(test: impl FnOnce(Node) -> F + Send + 'static) {
    let thread = std::thread::spawn(|| {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { test(Node::start().await).await });
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn numbers(of: &[&str]) -> std::collections::BTreeSet<String> {
    of.iter().map(|it| (*it).to_owned()).collect()
}

/// [TR-64] [TR-66] [TR-70]
#[test]
fn service_leads_to_every_ready_pod_from_pods_and_node_and_refuses_without_any() {
    on_a_node(async |node| {
        let all = numbers(&["11", "12", "13"]);
        assert_eq!(node.client.run(answers("10.87.0.9:80", 60)), all);
        assert_eq!(answers("10.87.0.9:80", 60)(), all, "from the node itself");
        assert_eq!(answers("10.86.0.1:30080", 60)(), all, "by node port");
        assert_eq!(node.client.run(answers("10.86.0.1:30080", 60)), all, "by node port, from a pod");
        assert_eq!(node.client.run(answers("192.0.2.77:80", 60)), all, "by the load balancer's address");
        assert_eq!(
            node.client.run(|| call("10.87.0.9:80")).unwrap().split(' ').nth(1),
            Some("10.86.0.20"),
            "client kept"
        );
        assert_eq!(node.client.run(|| call("10.87.0.9:81")), Err(ErrorKind::ConnectionRefused), "no such port");
        let itself = node.pods[0].run(|| (0..60).map(|_| call("10.87.0.9:80").unwrap()).collect::<Vec<_>>());
        assert!(itself.contains(&"11 10.86.0.1".to_owned()), "it meets itself as the node: {itself:?}");
        assert_eq!(call("10.87.44.44:80").unwrap_err(), ErrorKind::ConnectionRefused, "no such Service");
        node.slice(3, &[at(11, (false, false, false)), at(12, READY)]).await;
        assert_eq!(node.client.run(answers("10.87.0.9:80", 30)), numbers(&["12"]));
        node.slice(4, &[at(11, (false, true, true)), at(12, (false, false, true))]).await;
        assert_eq!(
            node.client.run(answers("10.87.0.9:80", 30)),
            numbers(&["11"]),
            "who leaves serves if nobody else does"
        );
        node.slice(5, &[]).await;
        assert_eq!(node.client.run(|| call("10.87.0.9:80")), Err(ErrorKind::ConnectionRefused));
        assert_eq!(call("10.87.0.9:80").unwrap_err(), ErrorKind::ConnectionRefused, "from the node itself");
    });
}

/// [TR-21] [TR-23]
#[test]
fn cut_pod_keeps_its_connections_and_new_ones_go_to_siblings() {
    on_a_node(async |node| {
        let handle = node.proxy.handle();
        let mut open: Vec<_> = node.client.run(|| (0..5).map(|_| Call::open("10.86.0.11:8080").unwrap()).collect());
        open.iter_mut().for_each(|call| assert_eq!(call.hear(), "11 10.86.0.20"));
        let followed = handle.reach(&endpoint(11));
        let reach = followed.borrow().clone().unwrap();
        assert!(reach.by_vip && !reach.last && reach.siblings == 2, "{reach:?}");
        let before = handle.new_connections().await.unwrap()["uid-11"];
        assert!(before >= 5, "{before}");
        assert_eq!(handle.cut(endpoint(11), CutMode::Divert).await.unwrap(), 2);
        assert_eq!(node.client.run(answers("10.87.0.9:80", 40)), numbers(&["12", "13"]));
        assert_eq!(node.client.run(answers("10.86.0.11:8080", 40)), numbers(&["12", "13"]), "dialled itself");
        let told = node.client.run(|| call("10.86.0.11:8080")).unwrap();
        assert!(told.ends_with(" 10.86.0.20"), "the sibling sees the client: {told}");
        open.iter_mut().for_each(|call| assert_eq!(call.again(), "11 10.86.0.20", "it goes on"));
        assert_eq!(handle.new_connections().await.unwrap()["uid-11"], before, "nobody new came");
        // Nobody is left: the pod is served again rather than refused.
        node.slice(3, &[at(11, READY)]).await;
        assert!(handle.reach(&endpoint(11)).borrow().as_ref().unwrap().last);
        assert_eq!(node.client.run(answers("10.87.0.9:80", 10)), numbers(&["11"]));
        handle.cut(endpoint(11), CutMode::Refuse).await.unwrap();
        assert_eq!(node.client.run(|| call("10.87.0.9:80")), Err(ErrorKind::ConnectionRefused));
        assert_eq!(node.client.run(|| call("10.86.0.11:8080")), Err(ErrorKind::ConnectionRefused));
        handle.restore("uid-11").await.unwrap();
        assert_eq!(node.client.run(answers("10.86.0.11:8080", 10)), numbers(&["11"]));
    });
}

/// [TR-68] [TR-69]
#[test]
fn rules_survive_a_restart_and_return_after_a_foreign_flush() {
    on_a_node(async |node| {
        let Node { proxy, pods, client } = node;
        drop(proxy);
        assert_eq!(client.run(answers("10.87.0.9:80", 40)), numbers(&["11", "12", "13"]), "nobody runs");
        let proxy = Proxy::open("node-1", settings()).unwrap();
        assert_eq!(client.run(answers("10.87.0.9:80", 40)), numbers(&["11", "12", "13"]), "nothing is known yet");
        let node = Node { proxy, pods, client };
        node.tell(Event::Service(Change::Listed(vec![service()], Some(3)))).await;
        node.tell(Event::Slice(Change::Listed(vec![slice(4, &[at(12, READY)])], Some(4)))).await;
        node.applied(4).await;
        assert_eq!(node.client.run(answers("10.87.0.9:80", 20)), numbers(&["12"]));
        assert!(Command::new("nft").args(["flush", "ruleset"]).status().unwrap().success());
        let since = Instant::now();
        while node.client.run(|| call("10.87.0.9:80")).is_err() {
            assert!(since.elapsed() < PATIENCE, "the rules do not return");
        }
        assert!(Command::new("nft").args(["list", "ruleset"]).output().unwrap().status.success(), "it can be listed");
        Proxy::remove(&settings()).unwrap();
    });
}

/// Whoever cached the address of a pod is served by a sibling while the pod lingers, and refused afterwards.
#[test]
fn departed_pod_is_stood_in_for_until_its_linger_ends() {
    on_a_node(async |node| {
        let handle = node.proxy.handle();
        handle.cut(endpoint(11), CutMode::Divert).await.unwrap();
        node.slice(3, &[at(12, READY), at(13, READY)]).await;
        assert_eq!(node.client.run(answers("10.86.0.11:8080", 30)), numbers(&["12", "13"]), "no slice lists it");
        let lingering = tokio::spawn({
            let handle = handle.clone();
            async move { handle.departed("uid-11", Duration::from_secs(3600)).await }
        });
        node.slice(4, &[at(13, READY)]).await;
        assert_eq!(node.client.run(answers("10.86.0.11:8080", 10)), numbers(&["13"]), "siblings are followed");
        assert!(!lingering.is_finished(), "its address is not free");
        handle.cut(endpoint(12), CutMode::Refuse).await.unwrap();
        handle.departed("uid-12", Duration::ZERO).await;
        assert_eq!(node.client.run(answers("10.86.0.12:8080", 5)), numbers(&["12"]), "the address is as it was");
        // Nothing was taken from this one.
        handle.departed("uid-14", PATIENCE).await;
    });
}

/// Annotations ask for long lingers: of very many pods that are gone only so many are stood in for.
#[test]
fn departed_pod_that_would_end_first_makes_room_for_more() {
    on_a_node(async |node| {
        let handle = node.proxy.handle();
        let gone = |number: u16| {
            let [high, low] = number.to_be_bytes();
            PodEndpoint { uid: format!("gone-{number}"), addresses: vec![[10, 90, high, low].into()], ..endpoint(11) }
        };
        let asked: Vec<_> = (0..1025).map(|number| handle.cut(gone(number), CutMode::Divert)).collect();
        for cut in asked {
            cut.await.unwrap();
        }
        let lingers = |number: u64| {
            let (handle, linger) = (handle.clone(), Duration::from_secs(3600 + number));
            tokio::spawn(async move { handle.departed(&format!("gone-{number}"), linger).await })
        };
        let mut all: Vec<_> = (0..1024).map(lingers).collect();
        handle.cut(endpoint(11), CutMode::Divert).await.unwrap();
        assert!(all.iter().all(|it| !it.is_finished()));
        all.push(lingers(1024));
        tokio::time::timeout(PATIENCE, &mut all[0]).await.unwrap().unwrap();
        assert_eq!(all.iter().filter(|it| it.is_finished()).count(), 1);
    });
}

/// A cut that is asked for before anything is known of Services is not waited for without end, and is in force with the first rules.
#[test]
fn cut_before_the_first_lists_is_bounded_and_kept() {
    on_a_node(async |node| {
        let Node { proxy, pods, client } = node;
        drop(proxy);
        let proxy = Proxy::open("node-1", settings()).unwrap();
        let handle = proxy.handle();
        assert!(handle.reach(&endpoint(11)).borrow().is_none(), "nothing can be said of it yet");
        let refused = handle.cut(endpoint(11), CutMode::Divert).await.unwrap_err().to_string();
        assert!(refused.contains("has not listed"), "{refused}");
        assert_eq!(client.run(answers("10.87.0.9:80", 40)), numbers(&["11", "12", "13"]), "the former rules");
        let node = Node { proxy, pods, client };
        node.tell(Event::Service(Change::Listed(vec![service()], Some(3)))).await;
        let all = [11, 12, 13].map(|number| at(number, READY));
        node.tell(Event::Slice(Change::Listed(vec![slice(4, &all)], Some(4)))).await;
        node.applied(4).await;
        assert_eq!(node.client.run(answers("10.87.0.9:80", 40)), numbers(&["12", "13"]));
    });
}

/// A pod is asked to leave before its slice says that it is there, or that it leaves: it takes no connections when that comes late.
#[test]
fn leaving_pod_takes_no_connections_although_its_slice_says_that_it_stays() {
    on_a_node(async |node| {
        let handle = node.proxy.handle();
        node.slice(3, &[at(12, READY), at(13, READY)]).await;
        let reach = handle.leaves(&endpoint(11)).unwrap();
        assert!(!reach.by_vip, "no Service leads to it: {reach:?}");
        node.slice(4, &[at(11, READY), at(12, READY), at(13, READY)]).await;
        assert_eq!(node.client.run(answers("10.87.0.9:80", 40)), numbers(&["12", "13"]));
        assert!(handle.leaves(&endpoint(11)).unwrap().by_vip, "now one does");
        assert_eq!(node.client.run(answers("10.86.0.11:8080", 5)), numbers(&["11"]), "who dials it is served");
        node.slice(5, &[at(11, READY)]).await;
        assert_eq!(
            node.client.run(answers("10.87.0.9:80", 10)),
            numbers(&["11"]),
            "it goes on while nobody else is there"
        );
        node.slice(6, &[at(11, READY), at(12, READY)]).await;
        assert_eq!(node.client.run(answers("10.87.0.9:80", 30)), numbers(&["12"]));
        handle.forget("uid-11");
        node.slice(7, &[at(11, READY), at(12, READY)]).await;
        assert_eq!(node.client.run(answers("10.87.0.9:80", 40)), numbers(&["11", "12"]));
    });
}

/// Whoever steers the pods says only after a restart which are cut: until then the cuts of the former run hold, for a bounded time.
#[test]
fn cuts_of_a_former_run_hold_until_somebody_says_what_becomes_of_them() {
    on_a_node(async |node| {
        for number in [11, 12] {
            node.proxy.handle().cut(endpoint(number), CutMode::Divert).await.unwrap();
        }
        let Node { proxy, pods, client } = node;
        drop(proxy);
        let node = Node { proxy: Proxy::open("node-1", settings()).unwrap(), pods, client };
        node.list().await;
        let handle = node.proxy.handle();
        assert_eq!(node.client.run(answers("10.87.0.9:80", 30)), numbers(&["13"]));
        assert_eq!(node.client.run(answers("10.86.0.11:8080", 10)), numbers(&["13"]), "dialled itself");
        let _followed = handle.reach(&endpoint(12));
        handle.restore("uid-12").await.unwrap();
        assert_eq!(node.client.run(answers("10.87.0.9:80", 40)), numbers(&["12", "13"]), "this one is said to stay");
        assert_eq!(node.client.run(answers("10.86.0.12:8080", 10)), numbers(&["12"]));
        let since = Instant::now();
        while node.client.run(answers("10.87.0.9:80", 40)) != numbers(&["11", "12", "13"]) {
            assert!(since.elapsed() < PATIENCE, "nobody speaks of this one");
        }
        assert_eq!(node.client.run(answers("10.86.0.11:8080", 10)), numbers(&["11"]));
    });
}

/// The owner of the tables breaks: its rules stay, whoever waits is told, and it begins again with its cuts and new lists.
#[test]
fn owner_that_breaks_begins_again_with_its_cuts() {
    on_a_node(async |node| {
        let handle = node.proxy.handle();
        handle.cut(endpoint(11), CutMode::Divert).await.unwrap();
        let mut lives = node.proxy.lives();
        handle.break_owner();
        let asked = handle.cut(endpoint(12), CutMode::Divert);
        tokio::time::timeout(PATIENCE, lives.wait_for(|lives| *lives == 1)).await.unwrap().unwrap();
        assert_eq!(node.client.run(answers("10.87.0.9:80", 40)), numbers(&["12", "13"]), "the rules are still there");
        assert!(asked.await.is_err(), "nothing is known yet");
        node.tell(Event::Service(Change::Listed(vec![service()], Some(3)))).await;
        let all = [11, 12, 13].map(|number| at(number, READY));
        node.tell(Event::Slice(Change::Listed(vec![slice(4, &all)], Some(4)))).await;
        node.applied(4).await;
        assert_eq!(node.client.run(answers("10.87.0.9:80", 30)), numbers(&["13"]), "both are cut");
    });
}

/// Only what Services send counts as new connections: not the node's own probes of a pod.
#[test]
fn probes_of_the_node_are_no_new_connections() {
    on_a_node(async |node| {
        let handle = node.proxy.handle();
        let _followed = [11, 12, 13].map(|number| handle.reach(&endpoint(number)));
        let sum = async || handle.new_connections().await.unwrap().values().sum::<u64>();
        let before = sum().await;
        (0..5).for_each(|_| drop(call("10.86.0.11:8080").unwrap()));
        assert_eq!(sum().await, before, "as a probe dials");
        (0..5).for_each(|_| drop(call("10.87.0.9:80").unwrap()));
        assert_eq!(sum().await, before + 5, "through the Service");
    });
}
