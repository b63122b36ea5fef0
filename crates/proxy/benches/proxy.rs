//! How long it takes until a change of one endpoint is in the kernel, and what a Service costs beside dialling its pod.
//!
//! In network namespaces of its own, in about half a minute: `cargo bench -p proxy`. Rounds through the Service and to the
//! pod alternate, so that both meet the same machine.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc as channel;
use std::time::{Duration, Instant};

use client::Change;
use k8s_openapi::api::core::v1::{ObjectReference, Service, ServicePort, ServiceSpec};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use proxy::{CutMode, Event, PodEndpoint, Proxy, Settings};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const PATIENCE: Duration = Duration::from_secs(60);
const ENDPOINTS: u32 = 3;
const PODS: u32 = 110;
const COMMITS: u64 = 300;
const ROUNDS: usize = 5;
const CONNECTIONS: u32 = 1_000;
const BULK: Duration = Duration::from_millis(500);

fn main() -> Result<()> {
    println!("{:44} {:>9} {:>9}", "", "p50", "p99");
    for services in [100, 10_000] {
        in_a_namespace(move || commits(services))?;
        in_a_namespace(move || cuts(services))?;
    }
    in_a_namespace(data_path)
}

fn in_a_namespace(work: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
    let thread = std::thread::spawn(move || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)?;
        work()
    });
    thread.join().map_err(|_| "a thread broke")?
}

fn settings() -> Result<Settings> {
    Ok(Settings {
        prefix: "adbench".into(),
        pods: ("10.86.0.0".parse()?, 16, "10.86.0.1".parse()?),
        services: Some(("10.87.0.0".parse()?, 16)),
        node_addresses: vec!["10.86.0.1".parse()?],
        external_ips: Vec::new(),
    })
}

fn service(number: u32) -> Service {
    let mut service = Service::default();
    let [_, _, high, low] = (number + 1).to_be_bytes();
    service.metadata.namespace = Some("bench".into());
    service.metadata.name = Some(format!("svc-{number}"));
    service.spec = Some(ServiceSpec {
        cluster_ips: Some(vec![format!("10.87.{high}.{low}")]),
        ports: Some(vec![ServicePort { port: 80, ..ServicePort::default() }]),
        ..ServiceSpec::default()
    });
    service
}

fn slice(number: u32, revision: u64, addresses: impl Iterator<Item = String>) -> EndpointSlice {
    let mut slice = EndpointSlice { address_type: "IPv4".into(), ..EndpointSlice::default() };
    slice.metadata.namespace = Some("bench".into());
    slice.metadata.name = Some(format!("svc-{number}-1"));
    slice.metadata.resource_version = Some(revision.to_string());
    slice.metadata.labels = Some([("kubernetes.io/service-name".to_owned(), format!("svc-{number}"))].into());
    slice.ports = Some(vec![EndpointPort { port: Some(8080), ..EndpointPort::default() }]);
    let endpoint = |address: String| Endpoint {
        target_ref: Some(ObjectReference { uid: Some(address.clone()), ..ObjectReference::default() }),
        addresses: vec![address],
        node_name: Some("bench".into()),
        ..Endpoint::default()
    };
    slice.endpoints = Some(addresses.map(endpoint).collect());
    slice
}

fn addresses(service: u32, count: u32) -> impl Iterator<Item = String> {
    (0..count).map(move |number| {
        let [_, low, high, rest] = (service * ENDPOINTS + number + 2).to_be_bytes();
        format!("10.{}.{high}.{rest}", 100 + low)
    })
}

/// Answers how long it took.
async fn tell(proxy: &Proxy, event: Event, revision: u64) -> Result<Duration> {
    let mut applied = proxy.handle().applied_revision();
    let since = Instant::now();
    proxy.events().send(event).await.map_err(|_| "the proxy does not listen")?;
    tokio::time::timeout(PATIENCE, applied.wait_for(|it| *it >= revision)).await??;
    Ok(since.elapsed())
}

/// One endpoint of one Service among so many leaves and comes back, again and again.
fn commits(services: u32) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let proxy = Proxy::open("bench", settings()?)?;
        let all = (0..services).map(service).collect();
        proxy
            .events()
            .send(Event::Service(Change::Listed(all, Some(1))))
            .await
            .map_err(|_| "the proxy does not listen")?;
        let all = (0..services).map(|number| slice(number, 2, addresses(number, ENDPOINTS))).collect();
        let loaded = tell(&proxy, Event::Slice(Change::Listed(all, Some(2))), 2).await?;
        println!("{:44} {loaded:>9.1?}", format!("{services} Services x {ENDPOINTS}: first load"));
        let mut times = Vec::new();
        for round in 0..COMMITS {
            let number = u32::try_from(round).unwrap_or(0) * 7919 % services;
            for count in [ENDPOINTS - 1, ENDPOINTS] {
                let revision = 3 + round * 2 + u64::from(count == ENDPOINTS);
                let changed = slice(number, revision, addresses(number, count));
                // Events wait for others only behind a commit: each of these finds the proxy at rest.
                tokio::time::sleep(Duration::from_millis(6)).await;
                times.push(tell(&proxy, Event::Slice(Change::Changed(changed)), revision).await?);
            }
        }
        times.sort_unstable();
        let (p50, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
        println!("{:44} {p50:>9.1?} {p99:>9.1?}", format!("{services} Services: one endpoint, told -> in force"));
        Ok(())
    })
}

/// The pods of a full node are behind so many Services, each behind many, and every one of them is followed: one pod after the other
/// is cut and restored.
fn cuts(services: u32) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let proxy = Proxy::open("bench", settings()?)?;
        let address = |pod: u32| format!("10.86.{}.{}", 1 + pod / 250, 1 + pod % 250);
        let endpoint = |pod: u32| -> Result<PodEndpoint> {
            let addresses = vec![address(pod).parse()?];
            Ok(PodEndpoint { uid: address(pod), namespace: "bench".into(), name: format!("pod-{pod}"), addresses })
        };
        let handle = proxy.handle();
        let followed: Vec<_> = (0..PODS).map(|pod| Ok(handle.reach(&endpoint(pod)?))).collect::<Result<_>>()?;
        let all = (0..services).map(service).collect();
        let listed = Event::Service(Change::Listed(all, Some(1)));
        proxy.events().send(listed).await.map_err(|_| "the proxy does not listen")?;
        let behind = |number: u32| {
            let pods: std::collections::BTreeSet<_> = (0..ENDPOINTS).map(|it| (number + it * 37) % PODS).collect();
            slice(number, 2, pods.into_iter().map(address))
        };
        tell(&proxy, Event::Slice(Change::Listed((0..services).map(behind).collect(), Some(2))), 2).await?;
        let (mut times, mut changes) = (Vec::new(), Vec::new());
        for round in 0..COMMITS {
            let pod = u32::try_from(round).unwrap_or(0) % PODS;
            tokio::time::sleep(Duration::from_millis(6)).await;
            let since = Instant::now();
            handle.cut(endpoint(pod)?, CutMode::Divert).await?;
            times.push(since.elapsed());
            handle.restore(&endpoint(pod)?.uid).await?;
            let number = u32::try_from(round).unwrap_or(0) * 7919 % services;
            let (first, revision) = (number % PODS, 3 + round * 2);
            for (count, revision) in [(1, revision), (2, revision + 1)] {
                let changed = slice(number, revision, (first..).take(count).map(|pod| address(pod % PODS)));
                tokio::time::sleep(Duration::from_millis(6)).await;
                changes.push(tell(&proxy, Event::Slice(Change::Changed(changed)), revision).await?);
            }
        }
        drop(followed);
        for (mut times, what) in
            [(times, "a pod is cut, asked -> in force"), (changes, "one endpoint, told -> in force")]
        {
            times.sort_unstable();
            let (p50, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
            println!("{:44} {p50:>9.1?} {p99:>9.1?}", format!("{services} Services, {PODS} pods: {what}"));
        }
        Ok(())
    })
}

fn ip(arguments: &str) -> Result<()> {
    let output = Command::new("ip").args(arguments.split(' ')).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

type Work = Box<dyn FnOnce() + Send>;

/// A pod: a network namespace with a link to the node, and a thread in it that does what it is told.
fn pod(number: u8) -> Result<channel::Sender<Work>> {
    let (work, works) = channel::channel::<Work>();
    let (tell, told) = channel::channel();
    std::thread::spawn(move || -> Result<()> {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)?;
        tell.send(std::fs::read_link("/proc/thread-self")?)?;
        works.into_iter().for_each(|work| work());
        Ok(())
    });
    let thread = told.recv()?.file_name().and_then(|name| name.to_str()).ok_or("a thread has a number")?.to_owned();
    ip(&format!("link add adbench{number} type veth peer name eth0 netns {thread}"))?;
    ip(&format!("link set adbench{number} up"))?;
    ip(&format!("route add 10.86.0.{number}/32 dev adbench{number} src 10.86.0.1"))?;
    run(&work, move || {
        ip("link set lo up")?;
        ip(&format!("addr add 10.86.0.{number}/32 dev eth0"))?;
        ip("link set eth0 up")?;
        ip("route add 10.86.0.1/32 dev eth0")?;
        ip("route add default via 10.86.0.1 dev eth0")
    })?;
    Ok(work)
}

fn run<T: Send + 'static>(pod: &channel::Sender<Work>, work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let (tell, told) = channel::channel();
    pod.send(Box::new(move || drop(tell.send(work())))).map_err(|_| "a pod is gone")?;
    told.recv()?
}

/// Takes connections: sends one byte on those that ask for it, and takes whatever the others send.
fn serve(listener: TcpListener) {
    for mut stream in listener.incoming().flatten() {
        let mut first = [0];
        match stream.read(&mut first) {
            Ok(1) if first == *b"b" => {
                std::thread::spawn(move || {
                    let mut room = vec![0; 1 << 16];
                    while stream.read(&mut room).is_ok_and(|read| read > 0) {}
                });
            }
            Ok(1) => drop(stream.write_all(b"x")),
            _ => {}
        }
    }
}

fn connections_per_second(to: SocketAddr) -> Result<f64> {
    let since = Instant::now();
    for _ in 0..CONNECTIONS {
        let mut stream = TcpStream::connect(to)?;
        stream.write_all(b"c")?;
        stream.read_exact(&mut [0])?;
    }
    Ok(f64::from(CONNECTIONS) / since.elapsed().as_secs_f64())
}

fn megabytes_per_second(to: SocketAddr) -> Result<f64> {
    let mut stream = TcpStream::connect(to)?;
    stream.write_all(b"b")?;
    let (since, part, mut parts) = (Instant::now(), vec![0; 1 << 16], 0_u32);
    while since.elapsed() < BULK {
        stream.write_all(&part)?;
        parts += 1;
    }
    Ok(f64::from(parts) * 65_536.0 / 1e6 / since.elapsed().as_secs_f64())
}

/// A client in one pod, a server in another, with a Service between them and without.
fn data_path() -> Result<()> {
    ip("link set lo up")?;
    ip("addr add 10.86.0.1/32 dev lo")?;
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let proxy = Proxy::open("bench", settings()?)?;
    let (client, server) = (pod(20)?, pod(11)?);
    run(&server, || {
        let listener = TcpListener::bind("0.0.0.0:8080")?;
        std::thread::spawn(move || serve(listener));
        Ok(())
    })?;
    runtime.block_on(async {
        let listed = Event::Service(Change::Listed(vec![service(8)], Some(1)));
        proxy.events().send(listed).await.map_err(|_| "the proxy does not listen")?;
        let slices = vec![slice(8, 2, ["10.86.0.11".to_owned()].into_iter())];
        tell(&proxy, Event::Slice(Change::Listed(slices, Some(2))), 2).await
    })?;
    let targets: [SocketAddr; 2] = ["10.86.0.11:8080".parse()?, "10.87.0.9:80".parse()?];
    for (what, measure) in [
        ("new connections per second", connections_per_second as fn(SocketAddr) -> Result<f64>),
        ("MB/s of one connection", megabytes_per_second),
    ] {
        let mut figures = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (figures, target) in figures.iter_mut().zip(targets) {
                figures.push(run(&client, move || measure(target))?);
            }
        }
        let [direct, by_service] = figures.map(|mut figures| {
            figures.sort_unstable_by(f64::total_cmp);
            figures[ROUNDS / 2]
        });
        let ratio = by_service / direct;
        println!("{what:44} pod {direct:>8.0}  Service {by_service:>8.0}  ratio {ratio:.2}");
    }
    Ok(())
}
