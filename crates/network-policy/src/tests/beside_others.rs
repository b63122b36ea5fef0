//! Policies beside what else changes packets: Services, cuts and masquerade, and what other programs do to connections.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use nft::{Batch, Conntrack, Element, Family, Field, Nftables, Set};
use serde_json::json;

use super::data_path::{BLOCKED, Namespace, Node, PATIENCE, PodNamespace, call, deny, hear, ip, on_a_node, wire};
use super::{addresses, pod, settings};
use crate::interpreter::link_of;
use crate::kernel;
use crate::render::Rendered;

pub(super) fn nft(rules: &str) {
    let mut nft = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    nft.stdin.take().unwrap().write_all(rules.as_bytes()).unwrap();
    assert!(nft.wait().unwrap().success(), "{rules}");
}

/// A machine beside the node.
fn outside() -> Namespace {
    let namespace = Namespace::new();
    let thread = namespace.run(|| {
        let own = std::fs::read_link("/proc/thread-self").unwrap();
        own.file_name().unwrap().to_str().unwrap().to_owned()
    });
    ip(&format!("link add out0 type veth peer name eth0 netns {thread}"));
    ip("addr add 198.51.100.1/24 dev out0");
    ip("link set out0 up");
    namespace.run(|| {
        ip("link set lo up");
        ip("addr add 198.51.100.2/24 dev eth0");
        ip("link set eth0 up");
    });
    namespace
}

/// A Service that leads to x/a, a node port that does, hairpin and masquerade, as the proxy has them.
const SERVICE: &str = "
    table ip service {
        chain pre {
            type nat hook prerouting priority -105;
            ip daddr 10.87.0.9 tcp dport 80 dnat to 10.86.0.11:80
            iifname out0 tcp dport 30080 dnat to 10.86.0.11:80
        }
        chain post {
            type nat hook postrouting priority 95;
            ip saddr 10.86.0.11 ip daddr 10.86.0.11 snat to 10.86.0.1
            ip saddr 198.51.100.0/24 snat to 10.86.0.1
        }
    }";

/// Who dials x/b is sent on to x/a.
const CUT: &str = "
    table ip cut {
        chain pre {
            type nat hook prerouting priority -106;
            ip daddr 10.86.0.12 tcp dport 80 dnat to 10.86.0.11:80
        }
    }";

/// Packets of pods are tracked by nobody.
const UNTRACKED: &str = "
    table ip untracked {
        chain pre {
            type filter hook prerouting priority -301;
            iifname \"adtest*\" notrack
        }
    }";

/// [NP-4] [NP-31] Policies see the pod behind a Service and the client as it is, whatever the pod sees.
#[test]
fn policies_judge_the_pod_behind_a_service_and_the_client_itself() {
    on_a_node(async |mut node| {
        nft(SERVICE);
        let outside = outside();
        let by_service = |node: &Node, from: &str| node.pods[from].namespace.run(|| call("10.87.0.9:80".into()));
        let by_node_port = || outside.run(|| call("198.51.100.1:30080".into()));
        assert_eq!(by_service(&node, "y/a").as_deref(), Some("10.86.0.14"));
        assert_eq!(by_node_port().as_deref(), Some("10.86.0.1"));
        node.apply("x", "deny", deny(&["Ingress"])).await;
        assert_eq!((by_service(&node, "y/a"), by_node_port()), (None, None));
        assert_eq!(by_service(&node, "x/a").as_deref(), Some("10.86.0.1"), "itself, by its own Service");
        let ingress = |block: &str| json!({"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": block}}]}]});
        node.apply("x", "node", ingress("10.86.0.1/32")).await;
        assert_eq!(by_node_port(), None, "its address is not the node's");
        node.apply("x", "client", ingress("198.51.100.2/32")).await;
        assert_eq!(by_node_port().as_deref(), Some("10.86.0.1"));
        let from = json!([{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "y"}}}]);
        node.apply("x", "y", json!({"podSelector": {}, "ingress": [{"from": from}]})).await;
        assert_eq!(by_service(&node, "y/a").as_deref(), Some("10.86.0.14"));
        let egress = |block: &str| {
            let to = json!([{"ipBlock": {"cidr": block}}]);
            json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": to}]})
        };
        node.apply("y", "out", egress("10.87.0.9/32")).await;
        assert_eq!(by_service(&node, "y/a"), None, "nobody is at the address of a Service");
        node.apply("y", "out", egress("10.86.0.11/32")).await;
        assert_eq!(by_service(&node, "y/a").as_deref(), Some("10.86.0.14"));
    });
}

/// [NP-43] Whoever is sent on to a sibling is judged by the sibling's policies, under its own address.
#[test]
fn client_that_is_sent_to_a_sibling_is_judged_by_the_siblings_policies() {
    on_a_node(async |mut node| {
        let from = json!([{"podSelector": {"matchLabels": {"pod": "c"}}}]);
        node.apply("x", "p", json!({"podSelector": {}, "ingress": [{"from": from}]})).await;
        nft(CUT);
        let dial = |node: &Node, from: &str| node.pods[from].namespace.run(|| call("10.86.0.12:80".into()));
        assert_eq!(dial(&node, "y/a"), None);
        assert_eq!(dial(&node, "x/c").as_deref(), Some("10.86.0.13"));
    });
}

/// [NP-51] [NP-52] What other programs do to the list of connections neither ends what is allowed nor opens what is not.
#[test]
fn verdicts_stay_when_others_empty_the_list_of_connections_or_keep_packets_off_it() {
    on_a_node(async |mut node| {
        let from = json!([{"podSelector": {}}]);
        let both = json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "ingress": [{"from": from}], "egress": [{"to": from}]});
        node.apply("x", "p", both).await;
        let mut open = node.pods["x/b"].namespace.run(|| {
            let mut stream = TcpStream::connect_timeout(&"10.86.0.11:80".parse().unwrap(), PATIENCE).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            hear(&mut stream).unwrap();
            stream
        });
        let mut conntrack = Conntrack::open().unwrap();
        let flows = conntrack.flows(Family::Ip, |_| true).unwrap();
        assert!(!flows.is_empty());
        flows.iter().for_each(|flow| assert!(conntrack.forget(flow).is_ok()));
        open.write_all(b"x").unwrap();
        assert!(hear(&mut open).is_some(), "it goes on");
        nft(UNTRACKED);
        assert!(
            !node.reaches("y/a", "x/a", 80) && !node.reaches("x/a", "y/a", 80),
            "nobody tracks it, and it is judged"
        );
        nft("delete table ip untracked");
        assert!(node.reaches("x/b", "x/a", 80));
    });
}

/// Sends from x/b to a newcomer and from the newcomer to x/a, without a pause, until it is dropped.
struct Flood {
    newcomer: PodNamespace,
    is_over: Arc<AtomicBool>,
    sent: Arc<AtomicU32>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

/// The number of the newcomer's addresses.
const NEWCOMER: u8 = 40;

impl Flood {
    fn start(node: &Node) -> Self {
        let newcomer = wire(NEWCOMER);
        let (is_over, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let flood = |namespace: &Namespace, to: [u8; 4]| {
            let (is_over, sent) = (is_over.clone(), sent.clone());
            let socket = namespace.run(|| UdpSocket::bind("0.0.0.0:0").unwrap());
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    if socket.send_to(&7_u32.to_be_bytes(), SocketAddr::new(to.into(), 90)).is_ok() {
                        sent.fetch_add(1, Ordering::Relaxed);
                    }
                    std::thread::yield_now();
                }
            })
        };
        let threads =
            vec![flood(&newcomer.namespace, [10, 86, 0, 11]), flood(&node.pods["x/b"].namespace, [10, 86, 0, 40])];
        Self { newcomer, is_over, sent, threads }
    }

    /// How much was sent: also a slow machine has to send something while something changes.
    fn sent(&self) -> u32 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Lets the newcomer in where nothing selects it: nothing was heard before, and what was sent all the time is heard now.
    async fn end(self, node: &Node) {
        let heard = |from_pod: &PodNamespace| from_pod.heard.try_iter().count();
        assert_eq!((heard(&node.pods["x/a"]), heard(&self.newcomer)), (0, 0), "of {} packets", self.sent());
        admit(node, "x", "x/new").await;
        let is_heard = |by: &PodNamespace| by.heard.recv_timeout(PATIENCE).is_ok();
        assert!(is_heard(&node.pods["x/a"]) && is_heard(&self.newcomer));
        self.is_over.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

/// Returns when the newcomer's policies are in force.
async fn admit(node: &Node, namespace: &str, uid: &str) {
    let at = addresses(NEWCOMER);
    let mut object = pod(namespace, "new", NEWCOMER, 1);
    object.metadata.uid = Some(uid.to_owned());
    node.policies.handle().admit(uid, &object, &at, &link_of(at[0])).await.unwrap();
}

/// [NP-36] A thousand pods come and go under a policy that lets nothing out or in. Each of them sends from before its start until after
/// its end, and is sent to; nothing arrives. The rules of every second of them are made and removed with it.
#[test]
fn thousand_pods_start_without_a_packet_that_passes() {
    on_a_node(async |mut node| {
        node.apply("y", "deny", deny(&["Ingress", "Egress"])).await;
        let nobody = json!([{"podSelector": {"matchLabels": {"pod": "nobody"}}}]);
        let both = json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "ingress": [{"from": nobody}], "egress": [{"to": nobody}]});
        node.apply("w", "own", both).await;
        let flood = Flood::start(&node);
        let (mut number, since) = (0, Instant::now());
        while number < 1_000 || flood.sent() < 1_000 {
            assert!(since.elapsed() < 4 * PATIENCE, "nobody sends");
            number += 1;
            let namespace = if number % 2 == 0 { "w" } else { "y" };
            let uid = format!("{namespace}/new-{number}");
            admit(&node, namespace, &uid).await;
            node.policies.handle().release(&uid);
            // Its end and the next start are two commits.
            node.admit("x/a").await.unwrap();
        }
        flood.end(&node).await;
    });
}

/// [NP-36] A pod that is isolated stays so while its policies are exchanged for others that let nothing pass either.
#[test]
fn policies_of_a_pod_change_without_a_packet_that_passes() {
    on_a_node(async |mut node| {
        let deny_all = |peer: &str| {
            let nobody = json!([{"podSelector": {"matchLabels": {"pod": peer}}}]);
            json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "ingress": [{"from": nobody}], "egress": [{"to": nobody}]})
        };
        node.apply("y", "deny", deny_all("nobody")).await;
        let flood = Flood::start(&node);
        admit(&node, "y", "y/new").await;
        let (mut number, since) = (0, Instant::now());
        while number < 500 || flood.sent() < 1_000 {
            assert!(since.elapsed() < 4 * PATIENCE, "nobody sends");
            number += 1;
            node.apply("y", "deny", deny_all(&format!("nobody-{number}"))).await;
        }
        node.policies.handle().release("y/new");
        flood.end(&node).await;
    });
}

/// What the kernel does not take is found out without a trace, and so is what it takes.
#[test]
fn trial_tells_what_the_kernel_refuses_and_leaves_nothing_behind() {
    on_a_node(async |_| {
        let mut nftables = Nftables::open().unwrap();
        let tried = |nftables: &mut Nftables, ranges: &[(u16, u16)]| {
            let set = Set::of("ports_x", &[Field::Port]).with_ranges();
            let ends = ranges.iter().flat_map(|(first, end)| {
                [Element::key(first.to_be_bytes().to_vec()), Element::range_end(end.to_be_bytes().to_vec())]
            });
            let mut rendered = Rendered::default();
            rendered.constant.insert((Family::Ip, "ports_x".into()), (set, ends.collect()));
            let mut batch = Batch::new();
            kernel::trial(&mut batch, &settings(), &[&rendered]);
            nftables.commit(batch)
        };
        let before = nftables.tables().unwrap().len();
        assert!(tried(&mut nftables, &[(80, 90), (100, 101)]).is_ok());
        assert!(tried(&mut nftables, &[(80, 90), (85, 95)]).is_err(), "ranges that overlap");
        assert_eq!(nftables.tables().unwrap().len(), before);
    });
}

/// [NP-29] Whoever is on the node's own network is the node: to pods of that node always let in, to others an address like any.
#[test]
fn client_on_the_network_of_a_node_is_that_node() {
    on_a_node(async |mut node| {
        let outside = outside();
        outside.run(|| ip("route add default via 198.51.100.1 dev eth0"));
        node.apply("x", "deny", deny(&["Ingress"])).await;
        assert!(call("10.86.0.11:80".into()).is_some(), "on the same node");
        let from_there = || outside.run(|| call("10.86.0.11:80".into()));
        assert_eq!(from_there(), None);
        let block = json!([{"from": [{"ipBlock": {"cidr": "198.51.100.2/32"}}]}]);
        node.apply("x", "node", json!({"podSelector": {}, "ingress": block})).await;
        assert_eq!(from_there().as_deref(), Some("198.51.100.2"));
        let listener = TcpListener::bind("10.86.0.1:6444").unwrap();
        listener.set_nonblocking(true).unwrap();
        let connected =
            node.pods["x/a"].namespace.run(|| TcpStream::connect_timeout(&"10.86.0.1:6444".parse().unwrap(), BLOCKED));
        assert!(connected.is_ok(), "and a pod reaches its node while its egress is open");
    });
}
