//! Answers, question by question, from one small cluster.

#![allow(clippy::unwrap_used, clippy::field_reassign_with_default, reason = "tests")]

use super::*;
use crate::packet::{PacketError, UDP_MAX};
use crate::records::Protocol;

fn zone() -> Zone {
    Zone::new("cluster.local", vec![("10.87.0.0".parse().unwrap(), 16), ("10.86.0.0".parse().unwrap(), 16)]).unwrap()
}

fn packet(name: &str, kind: u16, extended: Option<u16>) -> Vec<u8> {
    let mut packet = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(extended.is_some())];
    for label in name.split('.') {
        packet.push(u8::try_from(label.len()).unwrap());
        packet.extend(label.as_bytes());
    }
    packet.push(0);
    packet.extend(kind.to_be_bytes());
    packet.extend([0, 1]);
    if let Some(size) = extended {
        packet.extend([0, 0, 41]);
        packet.extend(size.to_be_bytes());
        packet.extend([0; 6]);
    }
    packet
}

const A: u16 = 1;
const CNAME: u16 = 5;
const PTR: u16 = 12;
const TXT: u16 = 16;
const AAAA: u16 = 28;
const SRV: u16 = 33;

fn port(name: &str, number: u16) -> Port {
    Port { name: name.to_owned(), protocol: Protocol::Tcp, number }
}

fn endpoint(address: &str, hostname: Option<&str>) -> Endpoint {
    let ports = vec![port("http", 8080)];
    let (address, hostname) = (address.parse().unwrap(), hostname.map(str::to_owned));
    Endpoint { address, hostname, ports, by_name_only: false }
}

fn cluster() -> Snapshot {
    let mut known = Snapshot::default();
    known.serial = 7;
    let addresses = ServiceKind::Addresses(vec!["10.87.0.9".parse().unwrap()]);
    known.add_service("shop", "web", Service { kind: addresses, ports: vec![port("http", 80)] });
    let behind = vec![endpoint("10.86.0.7", Some("db-0")), endpoint("10.86.0.8", None), endpoint("10.86.0.8", None)];
    known.add_service("shop", "db", Service { kind: ServiceKind::Headless(behind), ports: vec![] });
    known.add_service("shop", "none", Service { kind: ServiceKind::Headless(vec![]), ports: vec![] });
    known.add_service("shop", "out", Service { kind: ServiceKind::External("example.org".into()), ports: vec![] });
    known.add_pod("shop", "10.86.0.7".parse().unwrap());
    known.add_namespace("empty");
    known
}

fn ask(name: &str, kind: u16) -> Outcome {
    answer(&Request::read(&packet(name, kind, None)).unwrap(), &zone(), Some(&cluster()))
}

/// Code, answers, and how long it is remembered that there is none.
fn told(name: &str, kind: u16) -> (ResponseCode, Vec<String>, Option<u32>) {
    let Outcome::Answered(reply) = ask(name, kind) else { panic!("{name} is the cluster's") };
    let text = |record: &Record| {
        let RData::SRV(srv) = &record.data else { return record.data.to_string() };
        format!("{} {} {}", srv.weight, srv.port, srv.target)
    };
    let remembered = reply.authority.first().map(|record| record.ttl);
    (reply.code, reply.answers.iter().map(text).collect(), remembered)
}

fn is(answers: &[&str]) -> (ResponseCode, Vec<String>, Option<u32>) {
    (ResponseCode::NoError, answers.iter().map(ToString::to_string).collect(), None)
}

fn nothing() -> (ResponseCode, Vec<String>, Option<u32>) {
    (ResponseCode::NoError, vec![], Some(5))
}

fn unknown(ttl: u32) -> (ResponseCode, Vec<String>, Option<u32>) {
    (ResponseCode::NXDomain, vec![], Some(ttl))
}

/// [DN-1] [DN-2] [DN-4] [DN-5] [DN-11] [DN-12] [DN-13] [DN-14]
#[test]
fn names_of_the_cluster_lead_where_the_specification_says() {
    for (name, kind, expected) in [
        ("web.shop.svc.cluster.local", A, is(&["10.87.0.9"])),
        ("web.shop.svc.cluster.local", AAAA, nothing()),
        ("db.shop.svc.cluster.local", A, is(&["10.86.0.7", "10.86.0.8"])),
        ("db-0.db.shop.svc.cluster.local", A, is(&["10.86.0.7"])),
        ("10-86-0-8.db.shop.svc.cluster.local", A, is(&["10.86.0.8"])),
        ("db-1.db.shop.svc.cluster.local", A, unknown(5)),
        ("db-0.gone.shop.svc.cluster.local", A, unknown(5)),
        ("none.shop.svc.cluster.local", A, unknown(0)),
        ("10-86-0-7.shop.pod.cluster.local", A, is(&["10.86.0.7"])),
        ("10-86-0-7.empty.pod.cluster.local", A, unknown(5)),
        ("shop.svc.cluster.local", A, nothing()),
        ("empty.svc.cluster.local", A, nothing()),
        ("nowhere.svc.cluster.local", A, unknown(5)),
        ("_tcp.web.shop.svc.cluster.local", A, nothing()),
        ("svc.cluster.local", A, nothing()),
        ("cluster.local", A, nothing()),
        ("dns-version.cluster.local", TXT, is(&["1.1.0"])),
        ("out.shop.svc.cluster.local", CNAME, is(&["example.org."])),
    ] {
        assert_eq!(told(name, kind), expected, "{name} {kind}");
    }
}

/// [DN-6] [DN-7]
#[test]
fn named_ports_have_targets_that_resolve_and_others_have_none() {
    let one = told("_http._tcp.web.shop.svc.cluster.local", SRV);
    assert_eq!(one, is(&["100 80 web.shop.svc.cluster.local."]));
    let both = told("_http._tcp.db.shop.svc.cluster.local", SRV).1;
    assert_eq!(both[0], "50 8080 db-0.db.shop.svc.cluster.local.");
    assert_eq!(both[1], "50 8080 10-86-0-8.db.shop.svc.cluster.local.");
    let Outcome::Answered(reply) = ask("_http._tcp.db.shop.svc.cluster.local", SRV) else { panic!() };
    assert_eq!((reply.answers.len(), reply.additional.len()), (2, 2));
    for name in [
        "_dns._tcp.web.shop.svc.cluster.local",
        "_http._udp.web.shop.svc.cluster.local",
        "http._tcp.web.shop.svc.cluster.local",
    ] {
        assert_eq!(told(name, SRV), unknown(5), "{name}");
    }
}

/// [DN-8] [DN-9] [DN-42]
#[test]
fn addresses_of_the_cluster_have_names_and_those_of_others_are_forwarded() {
    assert_eq!(told("9.0.87.10.in-addr.arpa", PTR), is(&["web.shop.svc.cluster.local."]));
    assert_eq!(told("7.0.86.10.in-addr.arpa", PTR), is(&["db-0.db.shop.svc.cluster.local."]));
    assert_eq!(told("8.0.86.10.in-addr.arpa", PTR), unknown(5));
    assert_eq!(ask("1.1.1.1.in-addr.arpa", PTR), Outcome::Forward);
}

/// [DN-27] [TR-92]
#[test]
fn pod_that_leaves_and_keeps_its_record_is_found_by_its_own_name_alone() {
    let leaving = Endpoint { by_name_only: true, ..endpoint("10.86.0.7", Some("db-0")) };
    let mut known = cluster();
    let told = |known: &Snapshot, name: &str, kind: u16| {
        let query = Request::read(&packet(name, kind, None)).unwrap();
        let Outcome::Answered(reply) = answer(&query, &zone(), Some(known)) else { panic!() };
        (reply.code, reply.answers.len())
    };
    for (others, (code, count)) in
        [(vec![], (ResponseCode::NXDomain, 0)), (vec![endpoint("10.86.0.8", None)], (ResponseCode::NoError, 1))]
    {
        let kind = ServiceKind::Headless([others, vec![leaving.clone()]].concat());
        known.add_service("shop", "db", Service { kind, ports: vec![] });
        assert_eq!(told(&known, "db.shop.svc.cluster.local", A), (code, count));
        assert_eq!(told(&known, "_http._tcp.db.shop.svc.cluster.local", SRV), (code, count));
        assert_eq!(told(&known, "db-0.db.shop.svc.cluster.local", A), (ResponseCode::NoError, 1));
        assert_eq!(told(&known, "7.0.86.10.in-addr.arpa", PTR), (ResponseCode::NoError, 1));
    }
}

/// [DN-10]
#[test]
fn external_name_is_answered_and_followed() {
    let Outcome::Follow(reply, target) = ask("out.shop.svc.cluster.local", A) else { panic!() };
    assert_eq!((reply.answers.len(), target.to_string()), (1, "example.org.".to_owned()));
    assert_eq!(ask("example.org", A), Outcome::Forward);
}

/// [DN-15]
#[test]
fn letters_do_not_matter_and_are_echoed() {
    let query = Request::read(&packet("WeB.Shop.SVC.cluster.LOCAL", A, None)).unwrap();
    let Outcome::Answered(reply) = answer(&query, &zone(), Some(&cluster())) else { panic!() };
    let written = reply.write(&query, query.udp_limit());
    assert_eq!(&written[..2], [0x12, 0x34]);
    assert!(written.windows(4).any(|letters| letters == b"\x03WeB"), "{written:?}");
    assert_eq!(&written[written.len() - 4..], [10, 87, 0, 9]);
}

/// [DN-30]
#[test]
fn names_are_not_denied_before_the_cluster_was_listed() {
    let query = Request::read(&packet("web.shop.svc.cluster.local", A, None)).unwrap();
    let Outcome::Answered(reply) = answer(&query, &zone(), None) else { panic!() };
    assert_eq!(reply.code, ResponseCode::ServFail);
    let outside = Request::read(&packet("example.org", A, None)).unwrap();
    assert_eq!(answer(&outside, &zone(), None), Outcome::Forward);
}

/// [DN-24] [DN-25]
#[test]
fn answer_that_is_too_long_for_a_packet_is_cut_and_said_to_be() {
    let many: Vec<_> =
        (0..1000_u32).map(|n| endpoint(&Ipv4Addr::from_bits(0x0a56_0002 + n).to_string(), None)).collect();
    let mut known = cluster();
    known.add_service("shop", "many", Service { kind: ServiceKind::Headless(many), ports: vec![] });
    for (extended, limit) in [(None, 512), (Some(4096), UDP_MAX), (Some(100), 512)] {
        let query = Request::read(&packet("many.shop.svc.cluster.local", A, extended)).unwrap();
        let Outcome::Answered(reply) = answer(&query, &zone(), Some(&known)) else { panic!() };
        assert_eq!(query.udp_limit(), limit);
        let udp = reply.write(&query, query.udp_limit());
        let limit = usize::from(limit);
        assert!(udp.len() <= limit && udp.len() > limit - 32 && udp[2] & 2 != 0, "{} of {limit}", udp.len());
        assert_eq!(u16::from_be_bytes([udp[10], udp[11]]), u16::from(extended.is_some()), "what we take is said");
        let tcp = reply.write(&query, u16::MAX);
        assert_eq!((u16::from_be_bytes([tcp[6], tcp[7]]), tcp[2] & 2), (1000, 0));
    }
}

/// [DN-45]
#[test]
fn packets_that_are_no_questions_are_refused_whatever_they_are() {
    let whole = packet("web.shop.svc.cluster.local", A, Some(1232));
    for end in 0..whole.len() {
        drop(Request::read(&whole[..end]));
    }
    let mut seed = 0x9e37_79b9_u32;
    for _ in 0..100_000 {
        let mut broken = whole.clone();
        for _ in 0..3 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let at = seed as usize % broken.len();
            broken[at] = seed.to_be_bytes()[0];
        }
        if let Ok(query) = Request::read(&broken)
            && let Outcome::Answered(reply) = answer(&query, &zone(), Some(&cluster_once()))
        {
            assert!(reply.write(&query, query.udp_limit()).len() <= UDP_MAX.into());
        }
    }
    let mut reply = whole.clone();
    reply[2] |= 0x80;
    assert_eq!(Request::read(&reply), Err(PacketError::NotAQuery));
    let mut loops = whole.clone();
    loops[12] = 0xc0;
    assert_eq!(Request::read(&loops), Err(PacketError::Malformed));
    let mut update = whole;
    update[2] |= 5 << 3;
    let query = Request::read(&update).unwrap();
    assert_eq!(answer(&query, &zone(), None), Outcome::Answered(Reply::empty(ResponseCode::NotImp)));
}

fn cluster_once() -> std::sync::MutexGuard<'static, Snapshot> {
    static CLUSTER: std::sync::LazyLock<std::sync::Mutex<Snapshot>> = std::sync::LazyLock::new(|| cluster().into());
    CLUSTER.lock().unwrap()
}
