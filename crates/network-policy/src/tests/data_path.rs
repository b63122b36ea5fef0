//! Policies against a real kernel: pods in network namespaces of their own, with policies in force between them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, SocketAddrV6, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::mpsc as channel;
use std::time::{Duration, Instant};

use client::Change;
use k8s_openapi::api::core::v1::{Namespace as ApiNamespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::core::PartialObjectMeta;
use nft::{Nftables, Rule, Verdict};
use serde_json::{Value, json};

use super::random::Dice;
use super::{addresses, labels, pod, policy, settings};
use crate::driver::{Event, Holders};
use crate::interpreter::link_of;
use crate::skeleton::table;
use crate::{Policies, PolicyError};

pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// How long a packet is waited for that should not come.
pub(super) const BLOCKED: Duration = Duration::from_millis(500);

pub(super) fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A network namespace with a thread in it that does what it is told.
pub(super) struct Namespace(channel::Sender<Box<dyn FnOnce() + Send>>);

impl Namespace {
    pub(super) fn new() -> Self {
        let (work, works) = channel::channel::<Box<dyn FnOnce() + Send>>();
        std::thread::spawn(move || {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            works.into_iter().for_each(|work| work());
        });
        Self(work)
    }

    pub(super) fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, told) = channel::channel();
        self.0.send(Box::new(move || drop(tell.send(work())))).unwrap();
        told.recv().unwrap()
    }
}

/// A pod of both families, wired as the runtime does it. It answers by TCP at ports 80 and 81 with the client's address, echoes
/// by UDP at 80, and tells which datagrams came to 90.
pub(super) struct PodNamespace {
    pub(super) namespace: Namespace,
    pub(super) heard: channel::Receiver<u32>,
}

pub(super) fn wire(number: u8) -> PodNamespace {
    let namespace = Namespace::new();
    let [ipv4, ipv6] = addresses(number);
    let link = link_of(ipv4);
    let thread = namespace.run(|| {
        let own = std::fs::read_link("/proc/thread-self").unwrap();
        own.file_name().unwrap().to_str().unwrap().to_owned()
    });
    ip(&format!("link add {link} type veth peer name eth0 netns {thread}"));
    ip(&format!("link set {link} up"));
    ip(&format!("route add {ipv4}/32 dev {link} src 10.86.0.1"));
    ip(&format!("-6 addr add fe80::1/64 dev {link} nodad"));
    ip(&format!("-6 route add {ipv6}/128 dev {link}"));
    let (tell, heard) = channel::channel();
    namespace.run(move || {
        ip("link set lo up");
        ip(&format!("addr add {ipv4}/32 dev eth0"));
        ip(&format!("-6 addr add {ipv6}/128 dev eth0 nodad"));
        ip("link set eth0 up");
        ip("route add 10.86.0.1/32 dev eth0");
        ip("route add default via 10.86.0.1 dev eth0");
        ip("-6 route add default via fe80::1 dev eth0");
        for port in [80, 81] {
            let listener = TcpListener::bind(format!("[::]:{port}")).unwrap();
            std::thread::spawn(move || {
                for mut connection in listener.incoming().map(Result::unwrap) {
                    std::thread::spawn(move || {
                        let from = connection.peer_addr().unwrap().ip().to_canonical();
                        let mut byte = [0];
                        while connection.write_all(format!("{from}\n").as_bytes()).is_ok() {
                            if connection.read(&mut byte).unwrap_or(0) == 0 {
                                return;
                            }
                        }
                    });
                }
            });
        }
        let echo = UdpSocket::bind("[::]:80").unwrap();
        std::thread::spawn(move || {
            let mut said = [0; 64];
            while let Ok((length, from)) = echo.recv_from(&mut said) {
                let _ = echo.send_to(&said[..length], from);
            }
        });
        let listening = UdpSocket::bind("[::]:90").unwrap();
        std::thread::spawn(move || {
            let mut number = [0; 4];
            while listening.recv_from(&mut number).is_ok() {
                if tell.send(u32::from_be_bytes(number)).is_err() {
                    return;
                }
            }
        });
    });
    PodNamespace { namespace, heard }
}

pub(super) fn call(to: String) -> Option<String> {
    let to: SocketAddr = to.parse().unwrap();
    let mut stream = TcpStream::connect_timeout(&to, BLOCKED).ok()?;
    stream.set_read_timeout(Some(4 * BLOCKED)).unwrap();
    hear(&mut stream)
}

pub(super) fn hear(stream: &mut TcpStream) -> Option<String> {
    let (mut said, mut byte) = (Vec::new(), [0]);
    while stream.read(&mut byte).ok()? == 1 && byte[0] != b'\n' {
        said.push(byte[0]);
    }
    String::from_utf8(said).ok()
}

/// A node with pods of namespaces `x` and `y`: x/a is 11, x/b 12, x/c 13, y/a 14 and y/b 15.
pub(super) struct Node {
    pub(super) policies: Policies,
    pub(super) pods: BTreeMap<&'static str, PodNamespace>,
    version: u64,
}

const PODS: [(&str, u8); 5] = [("x/a", 11), ("x/b", 12), ("x/c", 13), ("y/a", 14), ("y/b", 15)];

fn number(uid: &str) -> u8 {
    PODS.iter().find(|(of, _)| *of == uid).unwrap().1
}

fn object(uid: &str, version: u64) -> Pod {
    let (namespace, name) = uid.split_once('/').unwrap();
    pod(namespace, name, number(uid), version)
}

fn namespace(name: &str, of: &[(&str, &str)]) -> PartialObjectMeta<ApiNamespace> {
    let mut labels = labels(of);
    labels.insert("kubernetes.io/metadata.name".into(), name.into());
    let metadata = kube::api::ObjectMeta { name: Some(name.into()), labels: Some(labels), ..Default::default() };
    PartialObjectMeta { metadata, ..Default::default() }
}

fn nobody() -> Holders {
    Box::new(BTreeMap::new)
}

fn all_pods() -> BTreeMap<String, BTreeSet<IpAddr>> {
    PODS.iter().map(|(uid, number)| ((*uid).to_owned(), addresses(*number).into())).collect()
}

impl Node {
    /// What there is of the node before its policies.
    fn wire() {
        ip("link set lo up");
        ip("addr add 10.86.0.1/32 dev lo");
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
        std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
        // Connections are tracked in a namespace with a rule that looks at them.
        ip("-6 addr add fd00:86::1/128 dev lo nodad");
    }

    async fn start() -> Self {
        Self::wire();
        let policies = Policies::open(settings(), nobody()).unwrap();
        let pods = PODS.iter().map(|(uid, number)| (*uid, wire(*number))).collect();
        let mut node = Self { policies, pods, version: 1 };
        node.list(Vec::new()).await;
        for (uid, _) in PODS {
            node.admit(uid).await.unwrap();
        }
        node
    }

    pub(super) async fn list(&mut self, policies: Vec<NetworkPolicy>) {
        let namespaces = ["x", "y", "kube-system"].map(|name| namespace(name, &[])).into();
        self.tell(Event::Namespace(Change::Listed(namespaces, None))).await;
        self.tell(Event::Policy(Change::Listed(policies, None))).await;
        self.tell(Event::Pod(Change::Listed(Vec::new(), None))).await;
    }

    pub(super) async fn tell(&self, event: Event) {
        self.policies.events().send(event).await.unwrap();
    }

    /// Returns when what was told before is in force: events come before a later question in the same thread's order.
    pub(super) async fn admit(&mut self, uid: &str) -> Result<(), PolicyError> {
        self.version += 1;
        let pod = object(uid, self.version);
        let addresses = addresses(number(uid));
        self.policies.handle().admit(uid, &pod, &addresses, &link_of(addresses[0])).await
    }

    pub(super) async fn apply(&mut self, of: &str, name: &str, spec: Value) {
        self.tell(Event::Policy(Change::Changed(policy(of, name, spec)))).await;
        self.settle().await;
    }

    /// Waits until all that was told is in force.
    pub(super) async fn settle(&mut self) {
        while self.policies.events().capacity() < self.policies.events().max_capacity() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // What was taken from the queue is written at the latest with this.
        let (uid, _) = PODS[0];
        self.version += 1;
        let addresses = addresses(number(uid));
        let again = object(uid, 1);
        self.policies.handle().admit(uid, &again, &addresses, &link_of(addresses[0])).await.unwrap();
    }

    pub(super) fn reaches(&self, from: &str, to: &str, port: u16) -> bool {
        let to = SocketAddr::new(addresses(number(to))[0], port).to_string();
        self.pods[from].namespace.run(move || call(to)).is_some()
    }

    pub(super) fn reaches_by_ipv6(&self, from: &str, to: &str, port: u16) -> bool {
        let to = SocketAddr::new(addresses(number(to))[1], port).to_string();
        self.pods[from].namespace.run(move || call(to)).is_some()
    }
}

pub(super) fn on_a_node<F: Future<Output = ()>>(test: impl FnOnce(Node) -> F + Send + 'static) {
    let thread = std::thread::spawn(|| {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { test(Node::start().await).await });
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

pub(super) fn deny(types: &[&str]) -> Value {
    json!({"podSelector": {}, "policyTypes": types})
}

/// [NP-1] [NP-2] [NP-3] [NP-57] Pods are closed to each other by a policy, and open to their node and after it.
#[test]
fn isolated_pod_is_reached_by_its_node_alone() {
    on_a_node(async |mut node| {
        assert!(node.reaches("y/a", "x/a", 80) && node.reaches_by_ipv6("y/a", "x/a", 80));
        node.apply("x", "deny", deny(&["Ingress"])).await;
        assert!(!node.reaches("y/a", "x/a", 80) && !node.reaches("x/b", "x/a", 80));
        assert!(!node.reaches_by_ipv6("y/a", "x/a", 80), "at its other address, too");
        assert!(node.reaches("x/a", "y/a", 80), "it may leave, and is answered");
        assert_eq!(call("10.86.0.11:80".into()).as_deref(), Some("10.86.0.1"), "a probe");
        assert!(call("[fd00:86::b]:80".into()).is_some(), "a probe");
        node.tell(Event::Policy(Change::Removed(policy("x", "deny", deny(&["Ingress"]))))).await;
        node.settle().await;
        assert!(node.reaches("y/a", "x/a", 80) && node.reaches_by_ipv6("y/a", "x/a", 80));
        let mut nftables = Nftables::open().unwrap();
        let chains = nftables.chains(&table(&settings(), nft::Family::Ip)).unwrap();
        assert!(chains.iter().all(|chain| !chain.name.contains("_") || chain.is_base), "{chains:?}");
    });
}

/// [NP-5] [NP-27] Egress: to pods, to the node, and the ingress of the other end.
#[test]
fn pod_leaves_as_far_as_both_ends_let_it() {
    on_a_node(async |mut node| {
        let listener = TcpListener::bind("10.86.0.1:6443").unwrap();
        std::thread::spawn(move || {
            listener.incoming().map(Result::unwrap).for_each(|mut it| drop(it.write_all(b"api\n")))
        });
        let api = |node: &Node| node.pods["x/a"].namespace.run(|| call("10.86.0.1:6443".into()));
        assert_eq!(api(&node).as_deref(), Some("api"));
        node.apply("x", "out", deny(&["Egress"])).await;
        assert!(!node.reaches("x/a", "y/a", 80) && !node.reaches("x/a", "x/b", 80) && api(&node).is_none());
        assert!(node.reaches("y/a", "x/a", 80), "who dials it is answered");
        let to = json!([{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "y"}}}]);
        node.apply("x", "some", json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": to}]})).await;
        assert!(node.reaches("x/a", "y/a", 80) && !node.reaches("x/a", "x/b", 80) && api(&node).is_none());
        node.apply("y", "in", deny(&["Ingress"])).await;
        assert!(!node.reaches("x/a", "y/a", 80), "accepted on its way out, refused on its way in");
        let block = json!([{"to": [{"ipBlock": {"cidr": "10.86.0.1/32"}}], "ports": [{"port": 6443}]}]);
        node.apply("x", "api", json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": block})).await;
        assert_eq!(api(&node).as_deref(), Some("api"));
    });
}

/// [NP-8] [NP-16] [NP-17] [NP-19] [NP-21] Ports, ranges, names, blocks and their exceptions.
#[test]
fn ports_and_blocks_are_what_they_say_in_the_kernel() {
    on_a_node(async |mut node| {
        let with = |rule: Value| json!({"podSelector": {}, "ingress": [rule]});
        node.apply("x", "p", with(json!({"ports": [{"port": 80}]}))).await;
        assert!(node.reaches("y/a", "x/a", 80) && !node.reaches("y/a", "x/a", 81));
        node.apply("x", "q", with(json!({"ports": [{"port": 81, "endPort": 65535}]}))).await;
        assert!(node.reaches("y/a", "x/a", 80) && node.reaches("y/a", "x/a", 81));
        node.tell(Event::Policy(Change::Removed(policy("x", "q", json!({}))))).await;
        node.apply("x", "p", with(json!({"ports": [{"port": "http"}]}))).await;
        assert!(node.reaches("y/a", "x/a", 80) && !node.reaches("y/a", "x/a", 81) && !node.reaches("y/a", "x/c", 80));
        let block = json!({"cidr": "10.86.0.0/16", "except": ["10.86.0.14/32"]});
        let overlapping = json!({"cidr": "10.86.0.0/28"});
        node.apply("x", "p", with(json!({"from": [{"ipBlock": block}]}))).await;
        assert!(node.reaches("y/b", "x/a", 80) && !node.reaches("y/a", "x/a", 80));
        node.apply("x", "p", with(json!({"from": [{"ipBlock": block}, {"ipBlock": overlapping}]}))).await;
        assert!(node.reaches("y/a", "x/a", 80), "the other block has it");
        let all = json!([{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.86.0.15/32"]}}]);
        node.apply("x", "p", with(json!({"from": all}))).await;
        assert!(
            node.reaches("y/a", "x/a", 80)
                && !node.reaches("y/b", "x/a", 80)
                && !node.reaches_by_ipv6("y/a", "x/a", 80)
        );
        let all = json!([{"ipBlock": {"cidr": "::/0", "except": ["fd00:86::f/128"]}}]);
        node.apply("x", "p", with(json!({"from": all}))).await;
        assert!(
            node.reaches_by_ipv6("y/a", "x/a", 80)
                && !node.reaches_by_ipv6("y/b", "x/a", 80)
                && !node.reaches("y/a", "x/a", 80)
        );
    });
}

/// [NP-13] A connection that is not allowed any more ends, and its answers with it; one that still is goes on.
#[test]
fn open_connection_ends_when_it_is_not_allowed_any_more() {
    on_a_node(async |mut node| {
        let from = json!([{"podSelector": {}}, {"namespaceSelector": {"matchLabels": {"team": "shop"}}}]);
        node.apply("x", "p", json!({"podSelector": {"matchLabels": {"pod": "a"}}, "ingress": [{"from": from}]})).await;
        node.tell(Event::Namespace(Change::Changed(namespace("y", &[("team", "shop")])))).await;
        node.settle().await;
        let open = |from: &str| {
            node.pods[from].namespace.run(|| {
                let mut stream = TcpStream::connect_timeout(&"10.86.0.11:80".parse().unwrap(), PATIENCE).unwrap();
                stream.set_read_timeout(Some(BLOCKED)).unwrap();
                hear(&mut stream).unwrap();
                let echo = UdpSocket::bind("0.0.0.0:0").unwrap();
                echo.set_read_timeout(Some(BLOCKED)).unwrap();
                echo.connect("10.86.0.11:80").unwrap();
                (stream, echo)
            })
        };
        let again = |(stream, echo): &mut (TcpStream, UdpSocket)| {
            let by_tcp = stream.write_all(b"x").is_ok() && hear(stream).is_some();
            let by_udp = echo.send(b"x").is_ok() && echo.recv(&mut [0; 8]).is_ok();
            (by_tcp, by_udp)
        };
        let (mut stays, mut ends) = (open("x/b"), open("y/a"));
        assert_eq!((again(&mut stays), again(&mut ends)), ((true, true), (true, true)));
        node.tell(Event::Namespace(Change::Changed(namespace("y", &[])))).await;
        node.settle().await;
        assert_eq!((again(&mut stays), again(&mut ends)), ((true, true), (false, false)));
    });
}

/// [NP-15] Who only ever answers is stopped, too.
#[test]
fn stream_of_answers_ends_when_its_client_is_not_allowed_any_more() {
    on_a_node(async |mut node| {
        let from = json!([{"namespaceSelector": {"matchLabels": {"team": "shop"}}}]);
        let both = json!({"podSelector": {"matchLabels": {"pod": "a"}}, "policyTypes": ["Ingress", "Egress"], "ingress": [{"from": from}]});
        node.tell(Event::Namespace(Change::Changed(namespace("y", &[("team", "shop")])))).await;
        node.apply("x", "p", both).await;
        let server = node.pods["x/a"].namespace.run(|| UdpSocket::bind("0.0.0.0:91").unwrap());
        let client = node.pods["y/a"].namespace.run(|| {
            let client = UdpSocket::bind("0.0.0.0:0").unwrap();
            client.connect("10.86.0.11:91").unwrap();
            client.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            client.send(b"subscribe").unwrap();
            client
        });
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        let (_, subscriber) = server.recv_from(&mut [0; 16]).unwrap();
        let told = || server.send_to(b"news", subscriber).is_ok() && client.recv(&mut [0; 16]).is_ok();
        assert!(told() && told());
        node.tell(Event::Namespace(Change::Changed(namespace("y", &[])))).await;
        node.settle().await;
        let since = Instant::now();
        while told() {
            assert!(since.elapsed() < PATIENCE, "the stream goes on");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(!told(), "it is over");
    });
}

/// [NP-37] Nothing passes to or from a pod that is wired and not admitted, and none is admitted before policies are known.
#[test]
fn pod_that_is_not_admitted_neither_sends_nor_receives() {
    on_a_node(async |node| {
        let newcomer = wire(40);
        let at = addresses(40);
        let reaches = |to: &str| {
            let to = to.to_owned();
            newcomer.namespace.run(move || call(to)).is_some()
        };
        let listener = TcpListener::bind("[::]:99").unwrap();
        std::thread::spawn(move || listener.incoming().for_each(drop));
        for to in ["10.86.0.11:80", "[fd00:86::b]:80", "10.86.0.1:99", "[fd00:86::1]:99"] {
            assert!(!reaches(to), "{to}");
        }
        assert!(node.pods["x/a"].namespace.run(|| call("10.86.0.40:80".into())).is_none());
        node.policies.handle().admit("y/new", &pod("y", "new", 40, 9), &at, &link_of(at[0])).await.unwrap();
        assert!(reaches("10.86.0.11:80") && reaches("[fd00:86::b]:80"));
        // It is known, and again it is not: as if its address were nobody's.
        node.policies.handle().release("y/new");
        let since = Instant::now();
        while reaches("10.86.0.11:80") {
            assert!(since.elapsed() < PATIENCE, "its address is free and still sends");
        }
        // Whoever begins knows nothing, and admits nobody.
        let Node { policies, pods: _pods, .. } = node;
        drop(policies);
        let policies = Policies::open(settings(), Box::new(all_pods)).unwrap();
        let asked = policies.handle().admit("y/new", &pod("y", "new", 40, 9), &at, &link_of(at[0]));
        let refused = tokio::time::timeout(Duration::from_millis(500), asked).await;
        assert!(refused.is_err(), "policies are not known yet");
        assert!(!reaches("10.86.0.11:80"));
    });
}

/// [NP-46] [NP-47] Rules stay while nobody runs; whoever comes next takes them over, and removes nothing that is still meant.
#[test]
fn rules_stay_when_their_owner_is_gone_and_are_taken_over() {
    on_a_node(async |mut node| {
        let from = json!([{"podSelector": {"matchLabels": {"pod": "b"}}}]);
        let spec = json!({"podSelector": {"matchLabels": {"pod": "a"}}, "ingress": [{"from": from}]});
        node.apply("x", "p", spec.clone()).await;
        let check = |node: &Node, when: &str| {
            assert!(
                node.reaches("x/b", "x/a", 80) && !node.reaches("x/c", "x/a", 80) && node.reaches("y/a", "y/b", 80),
                "{when}"
            );
        };
        check(&node, "before");
        let Node { policies, pods, version } = node;
        drop(policies);
        let handles = |name: &str| {
            let rules = Nftables::open().unwrap().rules(&table(&settings(), nft::Family::Ip)).unwrap();
            rules.into_iter().filter(|rule| rule.chain.starts_with(name)).map(|rule| rule.handle).collect::<Vec<_>>()
        };
        let before = (handles("rules"), handles("pods"));
        let policies = Policies::open(settings(), Box::new(all_pods)).unwrap();
        let mut node = Node { policies, pods, version };
        check(&node, "nobody told anything");
        node.list(vec![policy("x", "p", spec)]).await;
        tokio::time::sleep(BLOCKED).await;
        check(&node, "the pods here are not known yet");
        for (uid, _) in PODS {
            node.admit(uid).await.unwrap();
            check(&node, uid);
        }
        assert_eq!((handles("rules"), handles("pods")), before, "the same rules");
        node.policies.handle().break_owner();
        let mut lives = node.policies.lives();
        tokio::time::timeout(PATIENCE, lives.wait_for(|lives| *lives == 1)).await.unwrap().unwrap();
        check(&node, "they broke");
        node.list(Vec::new()).await;
        node.settle().await;
        assert!(node.reaches("x/c", "x/a", 80), "the policy is gone");
    });
}

/// The agent is replaced by one that has other tables: no pod that is here loses its network before it is known.
#[test]
fn tables_are_made_anew_when_every_pod_is_known() {
    on_a_node(async |node| {
        let Node { policies, pods, version } = node;
        drop(policies);
        assert!(Command::new("nft").args(["flush", "ruleset"]).status().unwrap().success());
        let policies = Policies::open(settings(), Box::new(all_pods)).unwrap();
        let mut node = Node { policies, pods, version };
        node.list(vec![policy("x", "p", deny(&["Ingress"]))]).await;
        let admit = async |uid: &str| {
            let at = addresses(number(uid));
            node.policies.handle().admit(uid, &object(uid, 9), &at, &link_of(at[0])).await.unwrap();
        };
        let mut first = std::pin::pin!(admit("x/a"));
        assert!(tokio::time::timeout(BLOCKED, &mut first).await.is_err(), "written before every pod is known");
        assert!(node.reaches("y/a", "y/b", 80), "a pod that is not known yet has lost its network");
        let all = async { tokio::join!(first, admit("x/b"), admit("x/c"), admit("y/a"), admit("y/b")) };
        tokio::time::timeout(PATIENCE, all).await.unwrap();
        assert!(node.reaches("y/a", "y/b", 80) && !node.reaches("y/a", "x/a", 80));
    });
}

/// [NP-49] Rules that another program takes away come back, and the whole can be listed by everybody.
#[test]
fn rules_return_after_a_foreign_flush() {
    on_a_node(async |mut node| {
        node.apply("x", "p", deny(&["Ingress"])).await;
        let listed = Command::new("nft").args(["list", "ruleset"]).output().unwrap();
        assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
        assert!(Command::new("nft").args(["flush", "ruleset"]).status().unwrap().success());
        let since = Instant::now();
        while node.reaches("y/a", "x/a", 80) {
            assert!(since.elapsed() < PATIENCE, "the rules do not return");
        }
        let own = table(&settings(), nft::Family::Ip);
        let mut nftables = Nftables::open().unwrap();
        let mut batch = nft::Batch::new();
        batch.flush_chain(&own, "enter_pod");
        batch.add_rule(&own, "enter_pod", &Rule::new().verdict(Verdict::Accept));
        nftables.commit(batch).unwrap();
        let since = Instant::now();
        while node.reaches("y/a", "x/a", 80) {
            assert!(since.elapsed() < PATIENCE, "the rules do not return");
        }
        node.policies.close().await.unwrap();
        assert!(!nftables.tables().unwrap().iter().any(|it| it.table == own));
    });
}

/// [NP-39] [NP-40] A pod sends under its own addresses only; neighbours are found all the same.
#[test]
fn pod_that_sends_under_another_address_is_not_heard() {
    on_a_node(async |node| {
        // The kernel's own check of the way back would drop it, too.
        for file in ["all", "default", &link_of(addresses(11)[0])] {
            std::fs::write(format!("/proc/sys/net/ipv4/conf/{file}/rp_filter"), "0").unwrap();
        }
        let heard = UdpSocket::bind("[::]:92").unwrap();
        heard.set_read_timeout(Some(BLOCKED)).unwrap();
        let send = |node: &Node, from: &'static str, to: &'static str| {
            node.pods["x/a"].namespace.run(move || {
                let socket = UdpSocket::bind(from).unwrap();
                socket.send_to(b"x", to).is_ok()
            })
        };
        assert!(send(&node, "10.86.0.11:0", "10.86.0.1:92") && heard.recv(&mut [0; 4]).is_ok());
        node.pods["x/a"].namespace.run(|| {
            ip("addr add 10.86.0.12/32 dev eth0");
            ip("-6 addr add fd00:86::c/128 dev eth0 nodad");
            ip("-6 addr add fe80::abc/64 dev eth0 nodad");
        });
        for (from, to) in [("10.86.0.12:0", "10.86.0.1:92"), ("[fd00:86::c]:0", "[fd00:86::1]:92")] {
            assert!(send(&node, from, to));
            assert!(heard.recv(&mut [0; 4]).is_err(), "{from}");
        }
        let from_its_link = node.pods["x/a"].namespace.run(|| {
            let told = Command::new("ip").args(["-o", "link", "show", "eth0"]).output().unwrap();
            let index = String::from_utf8(told.stdout).unwrap().split(':').next().unwrap().parse().unwrap();
            let at = |address: &str, port| SocketAddrV6::new(address.parse().unwrap(), port, 0, index);
            let socket = UdpSocket::bind(at("fe80::abc", 0)).unwrap();
            socket.send_to(b"x", at("fe80::1", 92)).is_ok()
        });
        assert!(from_its_link && heard.recv(&mut [0; 4]).is_err(), "under an address of its link");
        node.pods["x/a"].namespace.run(|| {
            ip("addr del 10.86.0.12/32 dev eth0");
            ip("-6 addr del fd00:86::c/128 dev eth0");
        });
        assert!(node.reaches_by_ipv6("x/a", "y/a", 80));
    });
}

/// [NP-41] Neighbours are found whatever policies say.
#[test]
fn neighbour_of_an_isolated_pod_is_found() {
    on_a_node(async |mut node| {
        let from = json!([{"podSelector": {"matchLabels": {"pod": "b"}}}]);
        node.apply(
            "x",
            "p",
            json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "ingress": [{"from": from}]}),
        )
        .await;
        node.apply("y", "p", json!({"podSelector": {}, "policyTypes": ["Ingress"]})).await;
        for (uid, number) in PODS {
            ip(&format!("-6 neigh flush dev {}", link_of(addresses(number)[0])));
            node.pods[uid].namespace.run(|| ip("-6 neigh flush dev eth0"));
        }
        assert!(call("[fd00:86::b]:80".into()).is_some(), "by its node");
        assert!(node.reaches_by_ipv6("y/b", "x/a", 80) == node.reaches("y/b", "x/a", 80));
        let block = json!([{"to": [{"ipBlock": {"cidr": "::/0"}}]}]);
        node.apply("x", "out", json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": block})).await;
        assert!(node.reaches_by_ipv6("x/b", "x/a", 80) && !node.reaches_by_ipv6("x/c", "x/a", 80));
    });
}

/// [NP-53] Whoever floods a closed pod is dropped, and fills nothing without end.
#[test]
fn flood_of_refused_packets_is_dropped_and_remembered_within_bounds() {
    on_a_node(async |mut node| {
        node.apply("x", "in", deny(&["Ingress"])).await;
        node.pods["y/a"].namespace.run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            for port in 1..12_000_u32 {
                let address = [11, 12, 13][port as usize % 3];
                let to = SocketAddr::new([10, 86, 0, address].into(), u16::try_from(port).unwrap());
                let _ = socket
                    .send_to(&0_u32.to_be_bytes(), if port % 50 == 0 { "10.86.0.11:90".parse().unwrap() } else { to });
            }
        });
        assert!(node.pods["x/a"].heard.recv_timeout(BLOCKED).is_err(), "one came through");
        let denied = Nftables::open().unwrap().elements(&table(&settings(), nft::Family::Ip), "denied").unwrap();
        assert!((1_000..=4_096).contains(&denied.len()), "{}", denied.len());
    });
}

/// [NP-60] Random policies, in the kernel: what arrives is what the judge lets pass.
#[test]
fn packets_arrive_as_the_judge_says_under_random_policies() {
    on_a_node(async |mut node| {
        let mut judged = super::Cluster::new().model;
        for uid in ["x/a", "x/b", "x/c", "y/a", "y/b", "y/c", "z/a", "z/b", "z/c"] {
            judged.remove_pod(uid);
            judged.release(uid);
        }
        for (uid, number) in PODS {
            let facts = crate::PodFacts::of(&object(uid, 1));
            judged.admit(uid, facts, 1, &addresses(number), &link_of(addresses(number)[0]));
        }
        let mut count = 0_u32;
        for seed in 0..25 {
            let mut dice = Dice::new(seed);
            for _ in 0..3 {
                let policy = dice.policy();
                judged.set_policy(&crate::policy::Policy::key(&policy), Some(crate::policy::Policy::read(&policy)));
                node.tell(Event::Policy(Change::Changed(policy))).await;
            }
            node.settle().await;
            let mut expected: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
            let mut sent = Vec::new();
            for (from, at) in PODS {
                for (to, of) in PODS {
                    for family in [0, 1] {
                        count += 1;
                        let (source, destination) = (addresses(at)[family], addresses(of)[family]);
                        let packet = crate::judge::Packet { source, destination, protocol: 17, port: 90 };
                        if judged.world().lets_pass(packet) {
                            expected.entry(to).or_default().insert(count);
                        }
                        sent.push(count);
                        let number = count;
                        node.pods[from].namespace.run(move || {
                            let socket = UdpSocket::bind(SocketAddr::new(source, 0)).unwrap();
                            let _ = socket.send_to(&number.to_be_bytes(), SocketAddr::new(destination, 90));
                        });
                    }
                }
            }
            // Those that pass have arrived when a datagram of a pod to itself has, which passes always.
            for (uid, pod) in &node.pods {
                let mut missing = expected.remove(uid).unwrap_or_default();
                while !missing.is_empty() {
                    let arrived = pod
                        .heard
                        .recv_timeout(PATIENCE)
                        .unwrap_or_else(|_| panic!("seed {seed}: {uid} misses {missing:?}"));
                    assert!(missing.remove(&arrived), "seed {seed}: {uid} heard {arrived}");
                }
                assert_eq!(pod.heard.try_recv().ok(), None, "seed {seed}: {uid}");
            }
        }
    });
}
