//! Ports of the node that lead to pods, against a real kernel, each test on a host of its own.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, dead_code, reason = "tests")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::time::Duration;

use crate::network_support::{PodNamespace, attach, ip, on_a_host};
use runtime::network::Network;
use runtime::{HostPort, PodUid, Protocol};

const PATIENCE: Duration = Duration::from_secs(60);
const LOOPBACK: Ipv4Addr = Ipv4Addr::LOCALHOST;
const UPLINK: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

fn pod(name: &str) -> PodUid {
    PodUid(format!("uid-of-{name}"))
}

fn tcp(host_port: u16) -> HostPort {
    HostPort { protocol: Protocol::Tcp, host_ip: Ipv4Addr::UNSPECIFIED.into(), host_port, container_port: 80 }
}

async fn open(dir: &Path) -> Network {
    Network::open(dir, "instance-1", "10.86.0.0/16".parse().unwrap()).await.unwrap()
}

/// Answers every connection with a name and the address it came from.
fn serve(name: &'static str, address: Ipv4Addr) {
    let listener = TcpListener::bind((address, 80)).unwrap();
    std::thread::spawn(move || {
        for mut connection in listener.incoming().map(Result::unwrap) {
            let from = connection.peer_addr().unwrap().ip();
            connection.write_all(format!("{name} {from}").as_bytes()).unwrap();
        }
    });
}

fn call(address: Ipv4Addr, port: u16) -> Result<String, std::io::ErrorKind> {
    let connected = TcpStream::connect_timeout(&SocketAddr::from((address, port)), PATIENCE);
    let mut connection = connected.map_err(|error| error.kind())?;
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut said = String::new();
    connection.read_to_string(&mut said).map_err(|error| error.kind())?;
    Ok(said)
}

/// A machine beyond an uplink, that knows nothing of pods and has no route to them.
fn outside() -> PodNamespace {
    let outside = PodNamespace::new();
    ip(&["link", "set", "lo", "up"]);
    ip(&["link", "add", "uplink", "type", "veth", "peer", "name", "far"]);
    let thread = outside.run(|| rustix::thread::gettid().as_raw_nonzero().to_string());
    ip(&["link", "set", "far", "netns", &thread]);
    ip(&["addr", "add", "192.0.2.1/24", "dev", "uplink"]);
    ip(&["link", "set", "uplink", "up"]);
    outside.run(|| {
        ip(&["addr", "add", "192.0.2.2/24", "dev", "far"]);
        ip(&["link", "set", "far", "up"]);
    });
    outside
}

fn tables() -> String {
    let output = std::process::Command::new("nft").args(["list", "tables"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_port_of_the_node_leads_to_its_pod_from_everywhere_and_goes_with_it() {
    on_a_host(async || {
        let dir = tempfile::tempdir().unwrap();
        let outside = outside();
        let network = open(dir.path()).await;
        let (a, b) = (PodNamespace::new(), PodNamespace::new());
        let at_a = attach(&network, &pod("a"), a.path()).await;
        let at_b = attach(&network, &pod("b"), b.path()).await;
        a.run(move || serve("a", at_a));
        network.publish(&pod("a"), &[tcp(8080)]).await.unwrap();
        let from = |who: &str| Ok(format!("a {who}"));
        assert_eq!(outside.run(|| call(UPLINK, 8080)), from("192.0.2.2"), "under its own address");
        assert_eq!(b.run(|| call(UPLINK, 8080)), from(&at_b.to_string()), "from another pod");
        assert_eq!(call(LOOPBACK, 8080), from("10.86.0.1"), "over loopback, as the node");
        assert_eq!(call(UPLINK, 8080), from("192.0.2.1"), "from the node itself");
        assert_eq!(a.run(|| call(UPLINK, 8080)), from("10.86.0.1"), "from the pod itself");
        // A restart writes the same again, and drops what belongs to nobody.
        let again = open(dir.path()).await;
        assert_eq!(outside.run(|| call(UPLINK, 8080)), from("192.0.2.2"), "nothing is missing meanwhile");
        again.republish(vec![(pod("a"), vec![tcp(8080)]), (pod("gone"), vec![tcp(8081)])]).await.unwrap();
        assert_eq!(outside.run(|| call(UPLINK, 8080)), from("192.0.2.2"));
        again.release(&pod("a")).await.unwrap();
        let refused = Err(std::io::ErrorKind::ConnectionRefused);
        assert_eq!(outside.run(|| call(UPLINK, 8080)), refused);
        assert_eq!(call(LOOPBACK, 8080), refused);
        let prefix = again.link_prefix();
        assert_eq!(tables(), format!("table ip {prefix}\ntable ip {prefix}-inside\n"), "no table without ports");
        again.tear_down().await.unwrap();
        assert_eq!(tables(), "");
    });
}

#[test]
fn a_port_at_one_address_is_not_at_others_and_protocols_do_not_meet() {
    on_a_host(async || {
        let dir = tempfile::tempdir().unwrap();
        let outside = outside();
        let network = open(dir.path()).await;
        let (a, b) = (PodNamespace::new(), PodNamespace::new());
        let at_a = attach(&network, &pod("a"), a.path()).await;
        let at_b = attach(&network, &pod("b"), b.path()).await;
        a.run(move || serve("a", at_a));
        b.run(move || {
            let socket = UdpSocket::bind((at_b, 53)).unwrap();
            std::thread::spawn(move || {
                let mut buffer = [0; 64];
                while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                    socket.send_to(&buffer[..length], from).unwrap();
                }
            });
        });
        network.publish(&pod("a"), &[HostPort { host_ip: UPLINK.into(), ..tcp(8080) }]).await.unwrap();
        let udp = HostPort { protocol: Protocol::Udp, container_port: 53, ..tcp(8080) };
        network.publish(&pod("b"), std::slice::from_ref(&udp)).await.unwrap();
        assert_eq!(outside.run(|| call(UPLINK, 8080)), Ok("a 192.0.2.2".to_owned()));
        assert_eq!(call(LOOPBACK, 8080), Err(std::io::ErrorKind::ConnectionRefused));
        let echoed = outside.run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket.connect((UPLINK, 8080)).unwrap();
            socket.send(b"hello").unwrap();
            let mut buffer = [0; 64];
            let length = socket.recv(&mut buffer).unwrap();
            buffer[..length].to_vec()
        });
        assert_eq!(echoed, b"hello");
        network.tear_down().await.unwrap();
    });
}

#[test]
fn a_port_that_somebody_has_is_refused_by_name_and_changes_nothing() {
    on_a_host(async || {
        let dir = tempfile::tempdir().unwrap();
        let outside = outside();
        let network = open(dir.path()).await;
        let (a, b) = (PodNamespace::new(), PodNamespace::new());
        let at_a = attach(&network, &pod("a"), a.path()).await;
        attach(&network, &pod("b"), b.path()).await;
        a.run(move || serve("a", at_a));
        network.publish(&pod("a"), &[tcp(8080)]).await.unwrap();
        network.publish(&pod("a"), &[tcp(8080)]).await.unwrap();
        for asked in [tcp(8080), HostPort { host_ip: UPLINK.into(), ..tcp(8080) }] {
            let error = network.publish(&pod("b"), &[tcp(8081), asked.clone()]).await.unwrap_err();
            assert_eq!(error.to_string(), format!("host port {asked} is taken by pod uid-of-a"));
        }
        assert_eq!(outside.run(|| call(UPLINK, 8081)), Err(std::io::ErrorKind::ConnectionRefused), "none of them");
        let listener = TcpListener::bind((LOOPBACK, 0)).unwrap();
        let held = tcp(listener.local_addr().unwrap().port());
        let error = network.publish(&pod("b"), std::slice::from_ref(&held)).await.unwrap_err();
        assert_eq!(error.to_string(), format!("host port {held} is taken by a program on this machine"));
        drop(listener);
        network.publish(&pod("b"), &[held]).await.unwrap();
        assert_eq!(outside.run(|| call(UPLINK, 8080)), Ok("a 192.0.2.2".to_owned()), "the first is not disturbed");
        network.release(&pod("a")).await.unwrap();
        network.publish(&pod("b"), &[tcp(8080)]).await.unwrap();
        network.tear_down().await.unwrap();
    });
}

#[test]
fn packet_from_a_pod_to_the_nodes_loopback_is_dropped() {
    on_a_host(async || {
        let dir = tempfile::tempdir().unwrap();
        let _outside = outside();
        let network = open(dir.path()).await;
        let a = PodNamespace::new();
        let at_a = attach(&network, &pod("a"), a.path()).await;
        network.publish(&pod("a"), &[tcp(8080)]).await.unwrap();
        let secret = UdpSocket::bind((LOOPBACK, 9999)).unwrap();
        let node = UdpSocket::bind((UPLINK, 9999)).unwrap();
        node.set_read_timeout(Some(PATIENCE)).unwrap();
        secret.set_nonblocking(true).unwrap();
        a.run(move || {
            // As one with NET_ADMIN could: 127.0.0.1 is not its own any more, but behind its link.
            ip(&["addr", "flush", "dev", "lo"]);
            ip(&["route", "flush", "table", "local", "dev", "lo"]);
            std::fs::write("/proc/thread-self/root/proc/sys/net/ipv4/conf/all/route_localnet", "1").unwrap();
            ip(&[
                "route",
                "add",
                "127.0.0.1/32",
                "via",
                "169.254.1.1",
                "dev",
                "eth0",
                "src",
                &at_a.to_string(),
                "onlink",
            ]);
            let socket = UdpSocket::bind((at_a, 0)).unwrap();
            socket.send_to(b"for the loopback", (LOOPBACK, 9999)).unwrap();
            socket.send_to(b"for the node", (UPLINK, 9999)).unwrap();
        });
        let mut buffer = [0; 64];
        let length = node.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"for the node");
        // Sent before, on the same way: it would be here.
        assert_eq!(secret.recv(&mut buffer).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        network.tear_down().await.unwrap();
    });
}

/// Far more than the usual send buffer of a socket holds rules for. They are written in one piece: none leads nowhere meanwhile.
#[test]
fn a_thousand_host_ports_on_one_node_lead_to_their_pods() {
    on_a_host(async || {
        let dir = tempfile::tempdir().unwrap();
        let outside = outside();
        let network = open(dir.path()).await;
        let (a, b) = (PodNamespace::new(), PodNamespace::new());
        let at_a = attach(&network, &pod("a"), a.path()).await;
        let at_b = attach(&network, &pod("b"), b.path()).await;
        a.run(move || serve("a", at_a));
        b.run(move || serve("b", at_b));
        let ports = |range: std::ops::Range<u16>| range.map(tcp).collect::<Vec<_>>();
        network.publish(&pod("a"), &ports(10_000..10_500)).await.unwrap();
        let here: Vec<_> = (10_500..11_000).map(|port| HostPort { host_ip: UPLINK.into(), ..tcp(port) }).collect();
        network.publish(&pod("b"), &here).await.unwrap();
        let ways = [(10_000, "a"), (10_250, "a"), (10_499, "a"), (10_500, "b"), (10_999, "b")];
        let reached = |port, name: &str| {
            assert_eq!(outside.run(move || call(UPLINK, port)), Ok(format!("{name} 192.0.2.2")), "{port}");
        };
        ways.iter().for_each(|(port, name)| reached(*port, name));
        assert_eq!(outside.run(|| call(UPLINK, 11_000)), Err(std::io::ErrorKind::ConnectionRefused));
        // All of them are back after somebody took them away.
        nft(&["flush", "ruleset"]);
        restored(&network, 1).await;
        ways.iter().for_each(|(port, name)| reached(*port, name));
        // So they are after a restart; and the ports of one pod go without those of the other.
        drop(network);
        let network = open(dir.path()).await;
        let all = vec![(pod("a"), ports(10_000..10_500)), (pod("b"), here)];
        network.republish(all).await.unwrap();
        ways.iter().for_each(|(port, name)| reached(*port, name));
        network.release(&pod("a")).await.unwrap();
        assert_eq!(outside.run(|| call(UPLINK, 10_000)), Err(std::io::ErrorKind::ConnectionRefused));
        reached(10_999, "b");
        network.tear_down().await.unwrap();
        assert_eq!(tables(), "");
    });
}

/// One port among many: the way is open again, and the others were not touched.
#[test]
fn a_host_port_that_another_program_removes_is_back_without_a_restart() {
    on_a_host(async || {
        let dir = tempfile::tempdir().unwrap();
        let outside = outside();
        let network = open(dir.path()).await;
        let a = PodNamespace::new();
        let at_a = attach(&network, &pod("a"), a.path()).await;
        a.run(move || serve("a", at_a));
        network.publish(&pod("a"), &[tcp(8080), tcp(8081)]).await.unwrap();
        let reached = |port| outside.run(move || call(UPLINK, port));
        assert_eq!(reached(8080), Ok("a 192.0.2.2".to_owned()));
        let table = format!("{}-ports", network.link_prefix());
        let edits: [&[&str]; 4] = [
            &["delete", "element", "ip", &table, "any", "{ tcp . 8080 }"],
            &["flush", "chain", "ip", &table, "in"],
            &["flush", "map", "ip", &table, "any"],
            &["delete", "table", "ip", &table],
        ];
        for (before, edit) in (0..).zip(edits) {
            assert_eq!(network.rule_repairs(), before);
            nft(edit);
            restored(&network, before + 1).await;
            for port in [8080, 8081] {
                assert_eq!(reached(port), Ok("a 192.0.2.2".to_owned()), "{edit:?}");
            }
        }
        network.tear_down().await.unwrap();
    });
}

/// Runs the `nft` program, as an administrator or a firewall would.
fn nft(arguments: &[&str]) {
    let output = std::process::Command::new("nft").args(arguments).output().unwrap();
    assert!(output.status.success(), "nft {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Waits until rules were written again that often, and all tables are there.
async fn restored(network: &Network, repairs: u64) {
    let start = std::time::Instant::now();
    while network.rule_repairs() < repairs || !tables().contains("-ports") {
        assert!(
            start.elapsed() < PATIENCE,
            "not within {PATIENCE:?}: {} repairs, {}",
            network.rule_repairs(),
            tables()
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
