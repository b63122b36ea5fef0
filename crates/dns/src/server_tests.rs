//! The resolver on real sockets of the loopback, with a stand-in for the machine's resolvers.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::net::Ipv4Addr;

use client::Change;
use hickory_resolver::proto::op::{Message, Query};
use hickory_resolver::proto::rr::{RData, Record};
use serde_json::{Value, json};

use super::*;

/// Reached only when something is broken.
const SOON: Duration = Duration::from_secs(60);

/// Somebody who answers every name below `there.example` with one address, says that others are not there, and counts.
struct Resolver {
    port: u16,
    asked: Arc<AtomicUsize>,
    _running: tokio::task::JoinHandle<()>,
}

impl Resolver {
    async fn start(address: Ipv4Addr, answers: bool) -> Self {
        let socket = UdpSocket::bind((address, 0)).await.unwrap();
        let port = socket.local_addr().unwrap().port();
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let _running = tokio::spawn(async move {
            let mut packet = [0; 4096];
            loop {
                let (length, from) = socket.recv_from(&mut packet).await.unwrap();
                let query = Message::from_vec(&packet[..length]).unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                if !answers {
                    continue;
                }
                // Long enough for others to ask the same.
                tokio::time::sleep(Duration::from_millis(50)).await;
                let mut reply = Message::response(query.metadata.id, query.metadata.op_code);
                let question = query.queries[0].clone();
                if question.name().to_ascii().to_lowercase().ends_with("there.example.") {
                    let data = RData::A(Ipv4Addr::new(192, 0, 2, 7).into());
                    reply.add_answer(Record::from_rdata(question.name().clone(), 300, data));
                } else {
                    reply.metadata.response_code = ResponseCode::NXDomain;
                }
                reply.add_query(question);
                socket.send_to(&reply.to_vec().unwrap(), from).await.unwrap();
            }
        });
        Self { port, asked, _running }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

struct Stage {
    dns: Dns,
    _file: tempfile::NamedTempFile,
}

impl Stage {
    async fn set(upstream: (Ipv4Addr, u16), clients: (IpAddr, u8)) -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), format!("nameserver {}\n", upstream.0)).unwrap();
        let dns = Dns::open(Settings {
            zone: Zone::new("cluster.local", vec![(Ipv4Addr::new(10, 86, 0, 0).into(), 16)]).unwrap(),
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            clients: vec![clients],
            own: vec![],
            resolv_conf: file.path().to_owned(),
            upstream_port: upstream.1,
            pod_records: PodRecords::Insecure,
        });
        Self { dns: dns.await.unwrap(), _file: file }
    }

    async fn of(upstream: &Resolver, address: Ipv4Addr) -> Self {
        Self::set((address, upstream.port), (Ipv4Addr::LOCALHOST.into(), 8)).await
    }

    fn hear(&self, services: Value, slices: Value) {
        let read = |value: Value| serde_json::from_value(value).unwrap();
        self.dns.hear(Event::Service(Change::Listed(read(services), None)));
        self.dns.hear(Event::Slice(Change::Listed(serde_json::from_value(slices).unwrap(), None)));
    }

    async fn udp(&self, name: &str, record_type: RecordType) -> Message {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        socket.send_to(&question(name, record_type), self.dns.address()).await.unwrap();
        let mut packet = [0; 4096];
        let length = timeout(SOON, socket.recv(&mut packet)).await.unwrap().unwrap();
        Message::from_vec(&packet[..length]).unwrap()
    }

    async fn tcp(&self, name: &str, record_type: RecordType) -> Message {
        let mut stream = TcpStream::connect(self.dns.address()).await.unwrap();
        let question = question(name, record_type);
        // In pieces, as a network may bring it.
        let length = u16::try_from(question.len()).unwrap().to_be_bytes();
        for piece in [&length[..1], &length[1..], &question[..5], &question[5..]] {
            stream.write_all(piece).await.unwrap();
            stream.flush().await.unwrap();
        }
        let length = timeout(SOON, stream.read_u16()).await.unwrap().unwrap();
        let mut packet = vec![0; length.into()];
        timeout(SOON, stream.read_exact(&mut packet)).await.unwrap().unwrap();
        Message::from_vec(&packet).unwrap()
    }

    fn metrics(&self) -> String {
        self.dns.metrics()()
    }
}

fn question(name: &str, record_type: RecordType) -> Vec<u8> {
    let mut message = Message::query();
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), record_type));
    message.to_vec().unwrap()
}

fn cluster(stage: &Stage) {
    let service = |name: &str, spec: Value| json!({ "metadata": { "namespace": "shop", "name": name }, "spec": spec });
    let address = |n: u32| Ipv4Addr::from_bits(0x0a56_0100 + n).to_string();
    let endpoints: Vec<Value> = (0..1000).map(|n| json!({ "addresses": [address(n)] })).collect();
    let labels = json!({ "kubernetes.io/service-name": "many" });
    let slice = json!({
        "metadata": { "namespace": "shop", "name": "many-1", "labels": labels },
        "addressType": "IPv4", "endpoints": endpoints, "ports": [],
    });
    let services = json!([
        service("web", json!({ "clusterIP": "10.87.0.9" })),
        service("many", json!({ "clusterIP": "None" })),
        service("out", json!({ "type": "ExternalName", "externalName": "www.there.example" })),
        service("alias", json!({ "type": "ExternalName", "externalName": "web.shop.svc.cluster.local" })),
        service("circle", json!({ "type": "ExternalName", "externalName": "circle.shop.svc.cluster.local" })),
    ]);
    stage.hear(services, json!([slice]));
}

/// What is answered, and how.
fn told(message: &Message) -> (ResponseCode, Vec<String>) {
    (message.metadata.response_code, message.answers.iter().map(|record| record.data.to_string()).collect())
}

fn is(answers: &[&str]) -> (ResponseCode, Vec<String>) {
    (ResponseCode::NoError, answers.iter().map(ToString::to_string).collect())
}

/// [DN-24] [DN-10]
#[tokio::test(flavor = "multi_thread")]
async fn names_of_the_cluster_are_answered_by_udp_and_by_tcp() {
    let upstream = Resolver::start([127, 0, 1, 1].into(), true).await;
    let stage = Stage::of(&upstream, [127, 0, 1, 1].into()).await;
    let early = stage.udp("web.shop.svc.cluster.local.", RecordType::A).await;
    assert_eq!(told(&early).0, ResponseCode::ServFail, "nothing is denied before it is known");
    cluster(&stage);
    let web = stage.udp("web.shop.svc.cluster.local.", RecordType::A).await;
    assert_eq!((told(&web), web.metadata.authoritative), (is(&["10.87.0.9"]), true));
    assert_eq!(told(&stage.tcp("web.shop.svc.cluster.local.", RecordType::A).await), is(&["10.87.0.9"]));
    assert_eq!(told(&stage.udp("web.shop.svc.cluster.local.", RecordType::AAAA).await), is(&[]));
    let alias = stage.udp("alias.shop.svc.cluster.local.", RecordType::A).await;
    assert_eq!(told(&alias), is(&["web.shop.svc.cluster.local.", "10.87.0.9"]));
    let circle = stage.udp("circle.shop.svc.cluster.local.", RecordType::A).await;
    assert_eq!(told(&circle).0, ResponseCode::ServFail);
    let out = stage.udp("out.shop.svc.cluster.local.", RecordType::A).await;
    assert_eq!(told(&out), is(&["www.there.example.", "192.0.2.7"]));
    let many = stage.udp("many.shop.svc.cluster.local.", RecordType::A).await;
    assert!(many.metadata.truncation && many.answers.len() < 40, "{}", many.answers.len());
    let many = stage.tcp("many.shop.svc.cluster.local.", RecordType::A).await;
    assert_eq!((many.metadata.truncation, many.answers.len()), (false, 1000));
    assert_eq!(upstream.asked(), 1, "for the one name that is not of the cluster");
    assert!(stage.metrics().contains("{proto=\"tcp\",source=\"local\",rcode=\"NOERROR\"} 2"), "{}", stage.metrics());
}

/// [DN-36] [DN-37]
#[tokio::test(flavor = "multi_thread")]
async fn name_of_the_world_is_asked_once_for_all_and_remembered() {
    let mut upstream = Some(Resolver::start([127, 0, 1, 2].into(), true).await);
    let stage = Arc::new(Stage::of(upstream.as_ref().unwrap(), [127, 0, 1, 2].into()).await);
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let stage = Arc::clone(&stage);
        asking.spawn(async move { told(&stage.udp("a.there.example.", RecordType::A).await) });
    }
    let all = asking.join_all().await;
    assert!(all.iter().all(|told| *told == is(&["192.0.2.7"])), "{all:?}");
    assert_eq!(upstream.as_ref().unwrap().asked(), 1);
    let again = stage.tcp("a.there.example.", RecordType::A).await;
    assert_eq!((told(&again), again.metadata.authoritative), (is(&["192.0.2.7"]), false));
    let absent = stage.udp("not.example.", RecordType::A).await;
    assert_eq!(told(&absent), (ResponseCode::NXDomain, vec![]));
    assert_eq!(upstream.as_ref().unwrap().asked(), 2);
    // What was heard before is there when the resolver is not.
    let gone = upstream.take().unwrap();
    gone._running.abort();
    assert!(gone._running.await.unwrap_err().is_cancelled());
    assert_eq!(told(&stage.udp("a.there.example.", RecordType::A).await), is(&["192.0.2.7"]));
    assert_eq!(told(&stage.udp("b.there.example.", RecordType::A).await).0, ResponseCode::ServFail);
    assert!(stage.metrics().contains("adieu_dns_upstream_up 0"), "{}", stage.metrics());
}

/// [DN-37] A silent resolver is not waited for longer than a client waits.
#[tokio::test(flavor = "multi_thread")]
async fn question_fails_within_a_bound_when_the_machines_resolver_is_silent() {
    let upstream = Resolver::start([127, 0, 1, 3].into(), false).await;
    let stage = Stage::of(&upstream, [127, 0, 1, 3].into()).await;
    cluster(&stage);
    let start = Instant::now();
    let (failed, local) = tokio::join!(
        stage.udp("a.there.example.", RecordType::A),
        stage.udp("web.shop.svc.cluster.local.", RecordType::A)
    );
    assert_eq!((told(&failed).0, told(&local)), (ResponseCode::ServFail, is(&["10.87.0.9"])));
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    assert!(upstream.asked() > 0);
}

/// [DN-43] [DN-44]
#[tokio::test(flavor = "multi_thread")]
async fn strangers_and_too_many_connections_are_turned_away() {
    let nobody = (Ipv4Addr::new(127, 0, 1, 4), 1);
    let stage = Stage::set(nobody, (Ipv4Addr::new(10, 86, 0, 0).into(), 16)).await;
    let mut stranger = TcpStream::connect(stage.dns.address()).await.unwrap();
    assert_eq!(timeout(SOON, stranger.read(&mut [0])).await.unwrap().unwrap_or(0), 0, "it is closed");
    assert!(stage.metrics().contains("{reason=\"stranger\"} 1"), "{}", stage.metrics());

    let stage = Stage::set(nobody, (Ipv4Addr::LOCALHOST.into(), 8)).await;
    let mut open = Vec::new();
    let is_closed = |metrics: &str| metrics.contains("{reason=\"connections\"} 1");
    while !is_closed(&stage.metrics()) {
        assert!(open.len() <= 64, "the last one is closed");
        let mut next = TcpStream::connect(stage.dns.address()).await.unwrap();
        // It is answered if it has a place.
        let question = question("web.shop.svc.cluster.local.", RecordType::A);
        let _ = next.write_u16(u16::try_from(question.len()).unwrap()).await;
        let _ = next.write_all(&question).await;
        let _ = timeout(SOON, next.read_u16()).await.unwrap();
        open.push(next);
    }
    assert!(open.len() > 16, "{}", open.len());
    // Others are answered all the same, and the one that leaves makes room.
    assert_eq!(told(&stage.udp("web.shop.svc.cluster.local.", RecordType::A).await).0, ResponseCode::ServFail);
    open.drain(..2);
    let is_answered = async {
        loop {
            let mut stream = TcpStream::connect(stage.dns.address()).await.unwrap();
            let question = question("web.shop.svc.cluster.local.", RecordType::A);
            let _ = stream.write_u16(u16::try_from(question.len()).unwrap()).await;
            let _ = stream.write_all(&question).await;
            if stream.read_u16().await.is_ok() {
                return;
            }
        }
    };
    timeout(SOON, is_answered).await.unwrap();
}

#[tokio::test]
async fn packets_that_are_no_questions_are_not_answered_and_break_nothing() {
    let stage = Stage::set((Ipv4Addr::new(127, 0, 1, 5), 1), (Ipv4Addr::LOCALHOST.into(), 8)).await;
    cluster(&stage);
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let whole = question("web.shop.svc.cluster.local.", RecordType::A);
    let mut seed = 0x1234_5678_u32;
    for n in 0..1000 {
        let mut packet = whole.clone();
        for _ in 0..4 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let at = (seed >> 8) as usize % packet.len();
            packet[at] = seed.to_be_bytes()[0];
        }
        packet.truncate((seed >> 4) as usize % (whole.len() + 1));
        socket.send_to(&packet, stage.dns.address()).await.unwrap();
        // No more at once than the kernel keeps.
        if n % 50 == 0 {
            assert_eq!(told(&stage.udp("web.shop.svc.cluster.local.", RecordType::A).await), is(&["10.87.0.9"]));
        }
    }
    let mut many = [0; 12];
    many[4] = 0xff;
    socket.send_to(&many, stage.dns.address()).await.unwrap();
    assert_eq!(told(&stage.udp("web.shop.svc.cluster.local.", RecordType::A).await), is(&["10.87.0.9"]));
}

/// [DN-48]
#[tokio::test(start_paused = true)]
async fn address_that_another_program_has_is_told() {
    let held = StdUdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let refused = bind(held.local_addr().unwrap()).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
    drop(held);
}
