//! The pod network against a real kernel, each test on a host of its own that vanishes with it.

#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(missing_docs, unreachable_pub, reason = "tests")]

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::network_support::{PodNamespace, attach, inventory, ip, on_a_host};
use runtime::PodUid;
use runtime::network::{Network, NetworkError};

const PORT: u16 = 8080;
const PATIENCE: Duration = Duration::from_secs(60);

fn pod(name: &str) -> PodUid {
    PodUid(format!("0b5e2c1e-uid-of-{name}"))
}

async fn open(dir: &Path) -> Network {
    open_as(dir, "instance-1", "10.86.0.0/16").await.unwrap()
}

async fn open_as(dir: &Path, instance: &str, range: &str) -> Result<Network, NetworkError> {
    Network::open(dir, instance, range.parse().unwrap()).await
}

/// Waits for what the kernel does in its own time.
async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}; {:#?}", inventory());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Listens and answers every connection with the address it came from.
fn serve(address: impl Into<IpAddr>) {
    let listener = TcpListener::bind((address.into(), PORT)).unwrap();
    std::thread::spawn(move || {
        for mut connection in listener.incoming().map(Result::unwrap) {
            let from = connection.peer_addr().unwrap().ip().to_string();
            connection.write_all(from.as_bytes()).unwrap();
        }
    });
}

/// Connects, and returns the address that the other side saw.
fn call(address: impl Into<IpAddr>) -> std::io::Result<String> {
    let mut connection = TcpStream::connect_timeout(&SocketAddr::from((address.into(), PORT)), PATIENCE)?;
    let mut from = String::new();
    connection.read_to_string(&mut from)?;
    Ok(from)
}

#[test]
fn pods_and_node_reach_each_other_under_their_own_addresses() {
    on_a_host(async || {
        let dir = tempfile::tempdir().unwrap();
        let network = open(dir.path()).await;
        let (a, b) = (PodNamespace::new(), PodNamespace::new());
        let at_a = attach(&network, &pod("a"), a.path()).await;
        let at_b = attach(&network, &pod("b"), b.path()).await;
        let node = Ipv4Addr::new(10, 86, 0, 1);
        assert_eq!((at_a, at_b), (Ipv4Addr::new(10, 86, 0, 2), Ipv4Addr::new(10, 86, 0, 3)));
        assert_eq!(network.addresses(&pod("a")), [IpAddr::V4(at_a)]);
        assert!(network.addresses(&pod("c")).is_empty());

        a.run(move || serve(at_a));
        serve(node);
        assert_eq!(call(at_a).unwrap(), node.to_string(), "node to pod: probes come from the first address");
        assert_eq!(a.run(move || call(node)).unwrap(), at_a.to_string(), "pod to node");
        assert_eq!(b.run(move || call(at_a)).unwrap(), at_b.to_string(), "pod to pod");
        assert_eq!(a.run(move || call(at_a)).unwrap(), at_a.to_string(), "pod to itself");
        b.run(|| serve(Ipv4Addr::LOCALHOST));
        assert_eq!(b.run(|| call(Ipv4Addr::LOCALHOST)).unwrap(), "127.0.0.1", "loopback inside the pod");
    });
}

#[test]
fn connection_to_an_absent_pod_address_fails_at_once() {
    on_a_host(async || {
        let dir = tempfile::tempdir().unwrap();
        let network = open(dir.path()).await;
        let namespace = PodNamespace::new();
        attach(&network, &pod("a"), namespace.path()).await;
        for error in [call(Ipv4Addr::new(10, 86, 9, 9)), namespace.run(|| call(Ipv4Addr::new(10, 86, 9, 9)))] {
            assert_ne!(error.unwrap_err().kind(), std::io::ErrorKind::TimedOut, "refused by a route, not by patience");
        }
    });
}

/// A pod that could would be this machine's next router.
#[test]
fn a_pod_cannot_advertise_itself_as_a_router() {
    on_a_host(async || {
        let dir = tempfile::tempdir().unwrap();
        let network = open(dir.path()).await;
        let a = PodNamespace::new();
        attach(&network, &pod("a"), a.path()).await;
        let speaking = ip(&["-6", "-oneline", "address", "show", "up"]);
        assert!(speaking.lines().all(|line| line.contains(": lo ")), "{speaking}");
    });
}

#[test]
fn a_pod_cannot_speak_under_another_address() {
    on_a_host(async || {
        let dir = tempfile::tempdir().unwrap();
        let network = open(dir.path()).await;
        let (a, b) = (PodNamespace::new(), PodNamespace::new());
        let at_a = attach(&network, &pod("a"), a.path()).await;
        let at_b = attach(&network, &pod("b"), b.path()).await;
        let node = Ipv4Addr::new(10, 86, 0, 1);
        let heard = std::net::UdpSocket::bind((node, PORT)).unwrap();
        heard.set_read_timeout(Some(PATIENCE)).unwrap();
        b.run(move || {
            ip(&["addr", "add", &format!("{at_a}/32"), "dev", "eth0"]);
            for (from, word) in [(at_a, b"forged"), (at_b, b"honest")] {
                std::net::UdpSocket::bind((from, 0)).unwrap().send_to(word, (node, PORT)).unwrap();
            }
        });
        let mut word = [0; 6];
        let (_, from) = heard.recv_from(&mut word).unwrap();
        assert_eq!((&word, from.ip()), (b"honest", at_b.into()), "the forged one was sent first and must be lost");
    });
}

#[test]
fn attaching_again_changes_nothing() {
    on_a_host(async || {
        let dir = tempfile::tempdir().unwrap();
        let network = open(dir.path()).await;
        let namespace = PodNamespace::new();
        let first = attach(&network, &pod("a"), namespace.path()).await;
        let (host, inside) = (inventory(), namespace.run(inventory));
        for _ in 0..3 {
            assert_eq!(attach(&network, &pod("a"), namespace.path()).await, first);
        }
        assert_eq!((inventory(), namespace.run(inventory)), (host, inside));
    });
}

#[test]
fn half_attached_pod_network_is_completed_after_a_crash() {
    on_a_host(async || {
        let dir = tempfile::tempdir().unwrap();
        let network = open(dir.path()).await;
        let namespace = PodNamespace::new();
        let address = attach(&network, &pod("a"), namespace.path()).await;
        let (host, inside) = (inventory(), namespace.run(inventory));
        let link = format!("{}0a560002", network.link_prefix());
        let link = link.as_str();
        let damages: [(&str, &[&str]); 4] = [
            ("no route", &["route", "del", "10.86.0.2/32", "dev", link]),
            ("host side down", &["link", "set", link, "down"]),
            ("no neighbour", &["neigh", "flush", "dev", link, "nud", "permanent"]),
            ("no link", &["link", "del", link]),
        ];
        for (damage, arguments) in damages {
            ip(arguments);
            assert_eq!(attach(&network, &pod("a"), namespace.path()).await, address);
            assert_eq!((inventory(), namespace.run(inventory)), (host.clone(), inside.clone()), "{damage}");
        }
        // A link of the same name that leads elsewhere, as one does whose pod is gone but whose namespace is not yet.
        ip(&["link", "del", link]);
        ip(&["link", "add", link, "type", "veth", "peer", "name", "elsewhere"]);
        assert_eq!(attach(&network, &pod("a"), namespace.path()).await, address);
        assert_eq!(inventory(), host);
        namespace.run(move || serve(address));
        assert!(call(address).is_ok());
    });
}

#[test]
fn a_restart_of_the_agent_is_not_noticed() {
    on_a_host(async || {
        let dir = tempfile::tempdir().unwrap();
        let network = open(dir.path()).await;
        let (a, b) = (PodNamespace::new(), PodNamespace::new());
        let at_a = attach(&network, &pod("a"), a.path()).await;
        a.run(move || serve(at_a));
        let before = inventory();
        drop(network);

        let network = open(dir.path()).await;
        assert_eq!(inventory(), before);
        assert_eq!(network.addresses(&pod("a")), [IpAddr::V4(at_a)]);
        assert!(call(at_a).is_ok());
        assert_eq!(attach(&network, &pod("b"), b.path()).await, Ipv4Addr::new(10, 86, 0, 3));
        network.release(&pod("b")).await.unwrap();
        drop(network);
        let network = open(dir.path()).await;
        let c = PodNamespace::new();
        assert_eq!(attach(&network, &pod("c"), c.path()).await, Ipv4Addr::new(10, 86, 0, 4), "3 rests");
    });
}

#[test]
fn a_released_link_goes_with_its_namespace_or_after_it() {
    on_a_host(async || {
        let dir = tempfile::tempdir().unwrap();
        let network = open(dir.path()).await;
        let bare = inventory();
        let short_lived = PodNamespace::new();
        let long_lived = PodNamespace::new();
        let at_short = attach(&network, &pod("short"), short_lived.path()).await;
        attach(&network, &pod("long"), long_lived.path()).await;

        drop(short_lived);
        network.release(&pod("short")).await.unwrap();
        network.release(&pod("short")).await.unwrap();
        assert_eq!(network.addresses(&pod("short")), Vec::<IpAddr>::new());
        network.release(&pod("long")).await.unwrap();
        eventually("the routes are cut", || inventory().routes == bare.routes).await;
        assert!(call(at_short).is_err(), "no way to a pod that is gone");
        eventually("both links are gone, though one namespace lives on", || inventory() == bare).await;
        assert_eq!(long_lived.run(inventory).links, ["lo"]);
    });
}

#[test]
fn a_link_left_by_a_crash_between_release_and_removal_is_found() {
    on_a_host(async || {
        let dir = tempfile::tempdir().unwrap();
        let network = open(dir.path()).await;
        let bare = inventory();
        let (gone, stays) = (PodNamespace::new(), PodNamespace::new());
        attach(&network, &pod("gone"), gone.path()).await;
        let at = attach(&network, &pod("stays"), stays.path()).await;
        network.release(&pod("gone")).await.unwrap();
        drop(network);
        let network = open(dir.path()).await;
        eventually("the leftover is gone", || inventory().links.len() == bare.links.len() + 1).await;
        stays.run(move || serve(at));
        assert!(call(at).is_ok());
        drop(network);
    });
}

#[test]
fn an_address_that_is_the_only_one_rests_before_it_is_used_again_and_its_old_link_is_in_nobodys_way() {
    on_a_host(async || {
        let dir = tempfile::tempdir().unwrap();
        let network = open_as(dir.path(), "tiny", "10.86.0.0/30").await.unwrap();
        let (old, new) = (PodNamespace::new(), PodNamespace::new());
        let address = attach(&network, &pod("old"), old.path()).await;
        assert!(matches!(network.attach(&pod("new"), new.path()).await, Err(NetworkError::Exhausted { .. })));
        let released = Instant::now();
        network.release(&pod("old")).await.unwrap();
        assert_eq!(attach(&network, &pod("new"), new.path()).await, address);
        assert!(released.elapsed() >= Duration::from_secs(2), "{:?}", released.elapsed());
        new.run(move || serve(address));
        // The reaper of the old link wakes up in the meantime, and must leave the new one alone.
        let end = Instant::now() + Duration::from_millis(1500);
        while Instant::now() < end {
            assert!(call(address).is_ok());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(old.run(inventory).links, ["lo"]);
    });
}

#[test]
fn tear_down_leaves_nothing_and_touches_nobody_else() {
    on_a_host(async || {
        let untouched = inventory();
        let (dir_1, dir_2) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let one = open_as(dir_1.path(), "one", "10.86.0.0/16").await.unwrap();
        let two = open_as(dir_2.path(), "two", "10.96.0.0/16").await.unwrap();
        assert_ne!(one.link_prefix(), two.link_prefix());
        let namespaces: Vec<_> = (0..6).map(|_| PodNamespace::new()).collect();
        for (number, namespace) in namespaces.iter().enumerate() {
            let network = if number % 2 == 0 { &one } else { &two };
            attach(network, &pod(&number.to_string()), namespace.path()).await;
        }
        let at_1 = one.addresses(&pod("0"))[0];
        let at_2 = two.addresses(&pod("1"))[0];
        namespaces[0].run(move || serve(at_1));
        namespaces[1].run(move || serve(at_2));
        assert_eq!(namespaces[0].run(move || call(at_2)).unwrap(), at_1.to_string(), "instances reach each other");

        one.tear_down().await.unwrap();
        one.tear_down().await.unwrap();
        assert!(one.addresses(&pod("0")).is_empty());
        let left = inventory();
        assert!(!left.links.iter().any(|link| link.starts_with(one.link_prefix())), "{left:#?}");
        assert!(!format!("{left:?}").contains("10.86."), "{left:#?}");
        assert!(call(at_2).is_ok(), "the other instance is untouched");

        two.tear_down().await.unwrap();
        let left = inventory();
        assert_eq!((left.links, left.routes), (untouched.links, untouched.routes));
        assert!(!format!("{:?}", left.addresses).contains("10."), "{:?}", left.addresses);

        let one = open_as(dir_1.path(), "one", "10.86.0.0/16").await.unwrap();
        assert!(one.attach(&pod("0"), namespaces[0].path()).await.is_ok(), "and it can be opened again");
    });
}

#[test]
fn a_range_that_is_in_use_is_refused_with_a_way_out() {
    on_a_host(async || {
        let dir = tempfile::tempdir().unwrap();
        let refused = async |range: &str, by: &str| {
            let error = open_as(dir.path(), "late", range).await.unwrap_err().to_string();
            assert!(error.contains("is not free") && error.contains(by) && error.contains("--pod-cidr"), "{error}");
        };
        ip(&["link", "add", "lan0", "type", "veth", "peer", "name", "lan1"]);
        ip(&["addr", "add", "10.86.7.1/24", "dev", "lan0"]);
        refused("10.86.0.0/16", "lan0").await;
        ip(&["addr", "del", "10.86.7.1/24", "dev", "lan0"]);
        ip(&["link", "set", "lan0", "up"]);
        ip(&["route", "add", "10.86.7.0/24", "dev", "lan0"]);
        refused("10.86.0.0/16", "10.86.7.0/24").await;
        ip(&["route", "del", "10.86.7.0/24"]);

        let first_dir = tempfile::tempdir().unwrap();
        let first = open_as(first_dir.path(), "first", "10.86.0.0/16").await.unwrap();
        refused("10.86.0.0/16", &format!("lo:{}", first.link_prefix())).await;
        // A wider route, as a company network has, is no hindrance: the pod range is the better match.
        ip(&["route", "add", "10.0.0.0/8", "dev", "lan0"]);
        open_as(dir.path(), "late", "10.96.0.0/16").await.unwrap();
    });
}

#[test]
fn pods_take_the_mtu_of_the_uplink() {
    on_a_host(async || {
        for (name, mtu, metric) in [("slow0", "1300", "200"), ("fast0", "1400", "100")] {
            ip(&["link", "add", name, "mtu", mtu, "type", "veth", "peer", "name", &format!("{name}p")]);
            ip(&["link", "set", name, "up"]);
            ip(&["route", "add", "default", "dev", name, "metric", metric]);
        }
        let dir = tempfile::tempdir().unwrap();
        let network = open(dir.path()).await;
        let namespace = PodNamespace::new();
        attach(&network, &pod("a"), namespace.path()).await;
        let show = |link: String| ip(&["-o", "link", "show", &link]);
        let outer = show(format!("{}0a560002", network.link_prefix()));
        let inner = namespace.run(move || show("eth0".into()));
        for shown in [outer, inner] {
            assert!(shown.contains("mtu 1400"), "{shown}");
        }
    });
}

#[test]
fn a_namespace_that_is_not_one_is_told_so() {
    on_a_host(async || {
        let dir = tempfile::tempdir().unwrap();
        let network = open(dir.path()).await;
        for path in ["/nowhere", "/dev/null"] {
            let error = network.attach(&pod("a"), Path::new(path)).await.unwrap_err();
            assert!(matches!(&error, NetworkError::Namespace { .. }) && error.to_string().contains(path), "{error}");
        }
        network.release(&pod("a")).await.unwrap();
    });
}

#[test]
fn many_pods_at_once_get_different_addresses() {
    on_a_host(async || {
        let dir = tempfile::tempdir().unwrap();
        let network = open(dir.path()).await;
        let namespaces: Vec<_> = (0..40).map(|_| PodNamespace::new()).collect();
        let attached = namespaces.iter().enumerate().map(|(number, namespace)| {
            let network = network.clone();
            async move { attach(&network, &pod(&number.to_string()), namespace.path()).await }
        });
        let addresses = futures::future::join_all(attached).await;
        let mut distinct = addresses.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), 40);
        drop(network);
        let network = open(dir.path()).await;
        for (number, address) in addresses.iter().enumerate() {
            assert_eq!(
                network.addresses(&pod(&number.to_string())),
                [IpAddr::V4(*address)],
                "every answer was durable"
            );
        }
    });
}

#[test]
fn pods_reach_the_outside_under_the_nodes_address_and_each_other_under_their_own() {
    on_a_host(async || {
        let dir = tempfile::tempdir().unwrap();
        let outside = PodNamespace::new();
        // An uplink to a machine that knows nothing of pods and has no route to them.
        ip(&["link", "add", "uplink", "type", "veth", "peer", "name", "far"]);
        let process = std::process::id();
        let thread: u32 = outside.run(|| rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
        assert_ne!(process, thread);
        ip(&["link", "set", "far", "netns", &thread.to_string()]);
        ip(&["addr", "add", "192.0.2.1/24", "dev", "uplink"]);
        ip(&["link", "set", "uplink", "up"]);
        outside.run(|| {
            ip(&["addr", "add", "192.0.2.2/24", "dev", "far"]);
            ip(&["link", "set", "far", "up"]);
        });
        let network = open(dir.path()).await;
        let (a, b) = (PodNamespace::new(), PodNamespace::new());
        let at_a = attach(&network, &pod("a"), a.path()).await;
        let at_b = attach(&network, &pod("b"), b.path()).await;
        let far = Ipv4Addr::new(192, 0, 2, 2);
        outside.run(move || serve(far));
        b.run(move || serve(at_b));
        assert_eq!(a.run(move || call(far)).unwrap(), "192.0.2.1", "outside sees the node");
        assert_eq!(a.run(move || call(at_b)).unwrap(), at_a.to_string(), "pods see each other");
        // Opening again changes nothing, and the end leaves nothing.
        let again = open(dir.path()).await;
        assert_eq!(a.run(move || call(far)).unwrap(), "192.0.2.1");
        let tables = || {
            let output = std::process::Command::new("nft").args(["list", "tables"]).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        let prefix = again.link_prefix();
        assert_eq!(tables(), format!("table ip {prefix}\ntable ip {prefix}-inside\n"));
        again.tear_down().await.unwrap();
        assert_eq!(tables(), "");
    });
}

/// A stranger out there has the address of a service: no pod ever reaches them, and the machine itself does. Another instance
/// with the same range of services neither adds to that nor takes from it.
#[test]
fn connection_from_a_pod_to_the_service_range_is_refused_and_from_the_host_is_not() {
    on_a_host(async || {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let outside = PodNamespace::new();
        ip(&["link", "add", "uplink", "type", "veth", "peer", "name", "far"]);
        let thread: u32 = outside.run(|| rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
        ip(&["link", "set", "far", "netns", &thread.to_string()]);
        ip(&["addr", "add", "192.0.2.1/24", "dev", "uplink"]);
        ip(&["link", "set", "uplink", "up"]);
        let (far, service) = (Ipv4Addr::new(192, 0, 2, 2), Ipv4Addr::new(10, 87, 3, 4));
        outside.run(move || {
            ip(&["addr", "add", "192.0.2.2/24", "dev", "far"]);
            ip(&["addr", "add", "10.87.3.4/32", "dev", "far"]);
            ip(&["link", "set", "far", "up"]);
            serve(far);
            serve(service);
        });
        ip(&["route", "add", "default", "via", "192.0.2.2"]);
        let services = "10.87.0.0/16".parse().unwrap();
        let network = open(dirs[0].path()).await;
        let a = PodNamespace::new();
        let own = attach(&network, &pod("a"), a.path()).await;
        a.run(move || serve(own));
        outside.run(move || ip(&["route", "add", &own.to_string(), "via", "192.0.2.1", "src", "10.87.3.4"]));
        assert_eq!(a.run(move || call(service)).unwrap(), "192.0.2.1", "the stranger is there");
        network.refuse_services(services).await.unwrap();
        let is_refused = || {
            let error = a.run(move || call(service)).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused, "{error}");
            assert_eq!(a.run(move || call(far)).unwrap(), "192.0.2.1", "the rest of the world is where it was");
            assert_eq!(call(service).unwrap(), "192.0.2.1", "the machine has its own ways");
            assert_eq!(outside.run(move || call(own)).unwrap(), "10.87.3.4", "who asks a pod is answered");
        };
        is_refused();
        let other = open_as(dirs[1].path(), "instance-2", "10.88.0.0/16").await.unwrap();
        let b = PodNamespace::new();
        attach(&other, &pod("b"), b.path()).await;
        assert_eq!(b.run(move || call(service)).unwrap(), "192.0.2.1", "each refuses for its own pods alone");
        other.refuse_services(services).await.unwrap();
        b.run(move || call(service)).unwrap_err();
        other.tear_down().await.unwrap();
        is_refused();
        // Whoever is killed leaves it as it is, and whoever comes after writes the same again.
        drop(network);
        is_refused();
        let network = open(dirs[0].path()).await;
        network.refuse_services(services).await.unwrap();
        is_refused();
        let tables = || {
            let output = std::process::Command::new("nft").args(["list", "tables"]).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        assert!(tables().contains("-services"), "{}", tables());
        network.tear_down().await.unwrap();
        assert_eq!(tables(), "");
    });
}

/// [TR-70] The machine's own programs reach addresses of services also where no route leads anywhere; see the proxy's tests.
#[test]
fn service_range_has_a_route_where_no_other_leads_there() {
    on_a_host(async || {
        let dir = tempfile::tempdir().unwrap();
        let network = open(dir.path()).await;
        let services = "10.87.0.0/16".parse().unwrap();
        let route = || {
            let output = std::process::Command::new("ip").args(["route", "show", "10.87.0.0/16"]).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        network.reach_services(services).await.unwrap();
        let source = format!("src {}", network.node_address());
        assert!(route().contains("dev lo") && route().contains(&source), "{}", route());
        network.reach_services(services).await.unwrap();
        network.tear_down().await.unwrap();
        assert_eq!(route(), "", "it goes with the address");
        ip(&["link", "add", "uplink", "type", "veth", "peer", "name", "far"]);
        ip(&["addr", "add", "192.0.2.1/24", "dev", "uplink"]);
        ip(&["link", "set", "uplink", "up"]);
        ip(&["link", "set", "far", "up"]);
        ip(&["route", "add", "default", "via", "192.0.2.2"]);
        let network = open(dir.path()).await;
        network.reach_services(services).await.unwrap();
        assert_eq!(route(), "", "the default route leads there");
        network.tear_down().await.unwrap();
    });
}

/// Runs the `nft` program, as an administrator or a firewall would.
fn nft(arguments: &[&str]) {
    let output = std::process::Command::new("nft").args(arguments).output().unwrap();
    assert!(output.status.success(), "nft {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// All tables, by their names: the kernel has them in the order in which they were made.
fn ruleset() -> String {
    let output = std::process::Command::new("nft").args(["list", "ruleset"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut tables: Vec<_> = text.split_inclusive("\n}\n").collect();
    tables.sort_unstable();
    tables.concat()
}

/// A machine beyond an uplink that shows pods under which address they come.
fn outside(at: Ipv4Addr) -> PodNamespace {
    let outside = PodNamespace::new();
    ip(&["link", "add", "uplink", "type", "veth", "peer", "name", "far"]);
    let thread: u32 = outside.run(|| rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
    ip(&["link", "set", "far", "netns", &thread.to_string()]);
    ip(&["addr", "add", "192.0.2.1/24", "dev", "uplink"]);
    ip(&["link", "set", "uplink", "up"]);
    outside.run(move || {
        ip(&["addr", "add", &format!("{at}/24"), "dev", "far"]);
        ip(&["link", "set", "far", "up"]);
        serve(at);
    });
    outside
}

/// A reload of a firewall takes away everybody's rules, an administrator one of them: whatever it is, it is back without a
/// restart.
#[test]
fn packet_rules_that_another_program_removes_are_written_again_without_a_restart() {
    on_a_host(async || {
        let dir = tempfile::tempdir().unwrap();
        let far = Ipv4Addr::new(192, 0, 2, 2);
        let _outside = outside(far);
        let network = open(dir.path()).await;
        network.refuse_services("10.87.0.0/16".parse().unwrap()).await.unwrap();
        let a = PodNamespace::new();
        attach(&network, &pod("a"), a.path()).await;
        assert_eq!(a.run(move || call(far)).unwrap(), "192.0.2.1");
        let table = network.link_prefix().to_owned();
        let (table, services) = (table.as_str(), format!("{table}-services"));
        let whole = ruleset();
        assert!(whole.contains("masquerade") && whole.contains("reject"), "{whole}");
        nft(&["add", "table", "ip", "firewall"]);
        let with_firewall = ruleset();
        nft(&["delete", "table", "ip", "firewall"]);
        assert_eq!(network.rule_repairs(), 0, "other tables are other people's");

        nft(&["add", "table", "ip6", table]);
        nft(&["delete", "table", "ip6", table]);
        let edits: [&[&str]; 8] = [
            &["flush", "ruleset"],
            &["delete", "table", "ip", table],
            &["delete", "table", "ip", &services],
            &["flush", "chain", "ip", table, "outgoing"],
            &["flush", "table", "ip", &services],
            &["insert", "rule", "ip", table, "outgoing", "counter", "accept"],
            &["add", "chain", "ip", &services, "another"],
            &["flush", "ruleset"],
        ];
        for (number, edit) in edits.iter().enumerate() {
            let repairs = network.rule_repairs();
            nft(edit);
            eventually("the rules are whole again", || network.rule_repairs() > repairs && ruleset() == whole).await;
            if number == 0 {
                assert_eq!(network.rule_repairs(), 3, "each table once, and none for tables of others");
            }
        }
        assert_eq!(a.run(move || call(far)).unwrap(), "192.0.2.1", "pods reach the outside under the node's address");

        // A firewall that is reloaded in one piece, from a ruleset that was saved when ours was another.
        let saved = dir.path().join("saved");
        let stale = with_firewall.replace("10.86.0.0/16", "10.85.0.0/16");
        std::fs::write(&saved, format!("flush ruleset\n{stale}")).unwrap();
        nft(&["-f", saved.to_str().unwrap()]);
        eventually("rules that were saved are replaced by current ones", || ruleset() == with_firewall).await;
        nft(&["delete", "table", "ip", "firewall"]);

        network.tear_down().await.unwrap();
        nft(&["add", "table", "ip", table]);
        nft(&["flush", "ruleset"]);
        assert_eq!(ruleset(), "", "what was given up is not kept");
    });
}

/// Two programs that each want the last word would keep the machine busy for ever.
#[test]
fn packet_rules_under_a_burst_of_edits_are_written_again_seldom_and_in_the_end() {
    on_a_host(async || {
        let dir = tempfile::tempdir().unwrap();
        let network = open(dir.path()).await;
        let whole = ruleset();
        let table = nft::Table::new(nft::Family::Ip, network.link_prefix());
        let mut stranger = nft::Nftables::open().unwrap();
        let start = Instant::now();
        let mut edits = 0;
        while edits < 2000 {
            let mut batch = nft::Batch::new();
            batch.add_rule(&table, "outgoing", &nft::Rule::new());
            stranger.commit(batch).unwrap();
            edits += 1;
            if edits % 20 == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        eventually("the rules are whole again", || ruleset() == whole).await;
        // After 10 ms, then twice as long each time, up to a second.
        let (mut waited, mut most) = (Duration::from_millis(10), 1);
        while waited < start.elapsed() {
            waited += Duration::from_millis(10 << most.min(7)).min(Duration::from_secs(1));
            most += 1;
        }
        let repairs = network.rule_repairs();
        assert!((1..=most).contains(&repairs), "{repairs} repairs for {edits} edits within {:?}", start.elapsed());
        network.tear_down().await.unwrap();
    });
}

/// The tables have the names of the instance: whoever is left of a former run must not take them back.
#[test]
fn packet_rules_are_left_to_a_later_run_of_the_same_instance() {
    on_a_host(async || {
        let dir = tempfile::tempdir().unwrap();
        let former = open(dir.path()).await;
        let later = open(dir.path()).await;
        let whole = ruleset();
        for _ in 0..3 {
            let repairs = later.rule_repairs();
            nft(&["flush", "ruleset"]);
            eventually("the later one repairs", || later.rule_repairs() > repairs && ruleset() == whole).await;
        }
        assert_eq!(former.rule_repairs(), 0);
        later.tear_down().await.unwrap();
        assert_eq!(ruleset(), "");
    });
}

/// What the node serves to its pods, nobody else reaches: not a neighbour of the machine who knows the way, not pods of others.
#[test]
fn node_address_of_the_pod_range_answers_pods_and_the_machine_and_nobody_else() {
    on_a_host(async || {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let outside = PodNamespace::new();
        ip(&["link", "add", "uplink", "type", "veth", "peer", "name", "far"]);
        let thread: u32 = outside.run(|| rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
        ip(&["link", "set", "far", "netns", &thread.to_string()]);
        ip(&["addr", "add", "192.0.2.1/24", "dev", "uplink"]);
        ip(&["link", "set", "uplink", "up"]);
        outside.run(|| {
            ip(&["addr", "add", "192.0.2.2/24", "dev", "far"]);
            ip(&["link", "set", "far", "up"]);
            ip(&["route", "add", "10.86.0.0/16", "via", "192.0.2.1"]);
        });
        let (network, other) =
            (open(dirs[0].path()).await, open_as(dirs[1].path(), "instance-2", "10.88.0.0/16").await.unwrap());
        let (a, b) = (PodNamespace::new(), PodNamespace::new());
        let own = attach(&network, &pod("a"), a.path()).await;
        attach(&other, &pod("b"), b.path()).await;
        let node = network.node_address();
        let machine = Ipv4Addr::new(192, 0, 2, 1);
        serve(node);
        serve(machine);
        assert_eq!(a.run(move || call(node)).unwrap(), own.to_string(), "a pod");
        assert_eq!(call(node).unwrap(), node.to_string(), "the machine");
        let at_once = |address| {
            let connection = TcpStream::connect_timeout(&SocketAddr::from((address, PORT)), Duration::from_millis(300));
            connection.map(drop).map_err(|error| error.kind())
        };
        assert_eq!(outside.run(move || call(machine)).unwrap(), "192.0.2.2", "the neighbour is there");
        assert_eq!(outside.run(move || at_once(node)), Err(std::io::ErrorKind::TimedOut), "a neighbour");
        assert_eq!(b.run(move || at_once(node)), Err(std::io::ErrorKind::TimedOut), "another instance's pod");
        // As a Service does whose slice somebody wrote by hand.
        nft(&["add table ip lead"]);
        nft(&["add chain ip lead in { type nat hook prerouting priority -100; }"]);
        nft(&[&format!("add rule ip lead in ip daddr {machine} tcp dport {PORT} dnat to {node}")]);
        assert_eq!(
            outside.run(move || at_once(machine)),
            Err(std::io::ErrorKind::TimedOut),
            "a neighbour who is led there"
        );
        assert_eq!(a.run(move || call(machine)).unwrap(), own.to_string(), "a pod that is led there");
        nft(&["delete table ip lead"]);
        network.tear_down().await.unwrap();
        other.tear_down().await.unwrap();
    });
}
