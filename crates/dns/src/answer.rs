//! The answer to one question.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::rdata::{CNAME, PTR, SOA, SRV, TXT};
use hickory_resolver::proto::rr::{DNSClass, Name, RData, Record, RecordType};

use crate::packet::{Reply, Request};
use crate::records::{Endpoint, Port, Service, ServiceKind, Snapshot, Zone, labels};

/// Of addresses that stay, of those that come and go, and of what is not there.
const SERVICE_TTL: u32 = 30;
const ENDPOINT_TTL: u32 = 5;
const NEGATIVE_TTL: u32 = 5;
/// How many names may lead on to others before it is taken for a circle.
const ALIASES_MAX: usize = 8;
/// Of the zone's record, for whom no other server is there to ask.
const REFRESH: i32 = 7200;
const RETRY: i32 = 1800;
const EXPIRE: i32 = 86_400;
/// What upstream's schema of names is at.
const SCHEMA: &str = "1.1.0";

/// What becomes of a question.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// It is answered.
    Answered(Reply),
    /// The name is not of the cluster.
    Forward,
    /// The name leads to one that is not of the cluster: the answer so far, and the name to ask for.
    Follow(Reply, Name),
}

/// Answers from what is known of the cluster; `None` is known before it was listed: no name of it is denied then.
pub fn answer(request: &Request, zone: &Zone, known: Option<&Snapshot>) -> Outcome {
    let question = match request.question() {
        Ok(question) => question,
        Err(code) => return Outcome::Answered(Reply::empty(code)),
    };
    let record_type = question.query_type();
    if question.query_class() != DNSClass::IN || matches!(record_type, RecordType::AXFR | RecordType::IXFR) {
        return Outcome::Answered(Reply::empty(ResponseCode::Refused));
    }
    let mut name = question.name().clone();
    let mut aliases = Vec::new();
    for _ in 0..ALIASES_MAX {
        let (mut reply, target) = match answer_name(&name, record_type, zone, known) {
            Outcome::Forward => return Outcome::Forward,
            Outcome::Answered(reply) => (reply, None),
            Outcome::Follow(reply, target) => (reply, Some(target)),
        };
        aliases.append(&mut reply.answers);
        match target {
            Some(target) if is_of_cluster(&target, zone) => name = target,
            Some(target) => return Outcome::Follow(Reply { answers: aliases, ..reply }, target),
            None => return Outcome::Answered(Reply { answers: aliases, ..reply }),
        }
    }
    Outcome::Answered(Reply::empty(ResponseCode::ServFail))
}

fn is_of_cluster(name: &Name, zone: &Zone) -> bool {
    let labels = labels(name);
    zone.within(&labels).is_some() || reversed(&labels).is_some_and(|address| zone.has_address(address))
}

fn answer_name(name: &Name, record_type: RecordType, zone: &Zone, known: Option<&Snapshot>) -> Outcome {
    let labels = labels(name);
    let reverse = reversed(&labels).filter(|address| zone.has_address(*address));
    let within = zone.within(&labels);
    if reverse.is_none() && within.is_none() {
        return Outcome::Forward;
    }
    let Some(snapshot) = known else { return Outcome::Answered(Reply::empty(ResponseCode::ServFail)) };
    let answering = Answering { name, record_type, zone, snapshot };
    if let Some(address) = reverse {
        return Outcome::Answered(answering.name_of(address));
    }
    answering.in_zone(within.unwrap_or_default())
}

/// The address that a name such as `4.3.2.1.in-addr.arpa` is about.
fn reversed(labels: &[String]) -> Option<IpAddr> {
    match labels {
        [d, c, b, a, inverse, arpa] if inverse == "in-addr" && arpa == "arpa" => {
            format!("{a}.{b}.{c}.{d}").parse::<Ipv4Addr>().ok().map(IpAddr::V4)
        }
        [digits @ .., ip6, arpa] if ip6 == "ip6" && arpa == "arpa" && digits.len() == 32 => {
            let mut bits = 0_u128;
            for digit in digits.iter().rev() {
                let digit = u8::from_str_radix(digit, 16).ok().filter(|_| digit.len() == 1)?;
                bits = bits << 4 | u128::from(digit);
            }
            Some(Ipv6Addr::from_bits(bits).into())
        }
        _ => None,
    }
}

struct Answering<'a> {
    name: &'a Name,
    record_type: RecordType,
    zone: &'a Zone,
    snapshot: &'a Snapshot,
}

impl Answering<'_> {
    fn in_zone(&self, labels: &[String]) -> Outcome {
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        let service = |namespace: &str, name: &str| self.snapshot.service(namespace, name);
        match labels[..] {
            ["dns-version"] => {
                let schema = RData::TXT(TXT::new(vec![SCHEMA.to_owned()]));
                Outcome::Answered(self.found(RecordType::TXT, vec![self.own(SERVICE_TTL, schema)]))
            }
            [] | ["svc" | "pod"] => Outcome::Answered(self.nothing_of_it()),
            [namespace, "svc" | "pod"] if self.snapshot.has_namespace(namespace) => {
                Outcome::Answered(self.nothing_of_it())
            }
            [address, namespace, "pod"] => {
                Outcome::Answered(match self.snapshot.pod_called(self.zone, namespace, address) {
                    Some(address) => self.addresses(&[address], ENDPOINT_TTL),
                    None => self.no_such_name(NEGATIVE_TTL),
                })
            }
            [name, namespace, "svc"] => match service(namespace, name) {
                Some(service) => self.service(service),
                None => Outcome::Answered(self.no_such_name(NEGATIVE_TTL)),
            },
            [label, name, namespace, "svc"] => Outcome::Answered(match service(namespace, name) {
                Some(found) => self.below_service(label, found),
                None => self.no_such_name(NEGATIVE_TTL),
            }),
            [port, protocol, name, namespace, "svc"] => Outcome::Answered(match service(namespace, name) {
                Some(found) => self.ports(port, protocol, (name, namespace), found),
                None => self.no_such_name(NEGATIVE_TTL),
            }),
            _ => Outcome::Answered(self.no_such_name(NEGATIVE_TTL)),
        }
    }

    fn service(&self, service: &Service) -> Outcome {
        Outcome::Answered(match &service.kind {
            ServiceKind::Addresses(addresses) => self.addresses(addresses, SERVICE_TTL),
            ServiceKind::Headless(endpoints) => {
                let mut staying = endpoints.iter().filter(|endpoint| !endpoint.by_name_only).peekable();
                // Of one that is there a moment without anybody nothing is to be remembered.
                if staying.peek().is_none() { self.no_such_name(0) } else { self.endpoints(staying) }
            }
            ServiceKind::External(target) => {
                let Ok(mut target) = Name::from_ascii(target) else {
                    return Outcome::Answered(Reply::empty(ResponseCode::ServFail));
                };
                target.set_fqdn(true);
                let record = self.own(ENDPOINT_TTL, RData::CNAME(CNAME(target.clone())));
                let reply = Reply { answers: vec![record], ..Reply::empty(ResponseCode::NoError) };
                return if self.record_type == RecordType::CNAME {
                    Outcome::Answered(reply)
                } else {
                    Outcome::Follow(reply, target)
                };
            }
        })
    }

    /// One of those behind a headless service, or where names of ports begin.
    fn below_service(&self, label: &str, service: &Service) -> Reply {
        let ServiceKind::Headless(endpoints) = &service.kind else {
            let has_ports = service.ports.iter().any(|port| port.protocol.label() == label);
            return if has_ports { self.nothing_of_it() } else { self.no_such_name(NEGATIVE_TTL) };
        };
        let mut named = endpoints.iter().filter(|endpoint| endpoint.label() == label).peekable();
        if named.peek().is_some() {
            return self.endpoints(named);
        }
        let has_ports =
            endpoints.iter().flat_map(|endpoint| &endpoint.ports).any(|port| port.protocol.label() == label);
        if has_ports {
            self.nothing_of_it()
        } else {
            self.no_such_name(if endpoints.is_empty() { 0 } else { NEGATIVE_TTL })
        }
    }

    fn ports(&self, port: &str, protocol: &str, (name, namespace): (&str, &str), service: &Service) -> Reply {
        let Some(port) = port.strip_prefix('_') else { return self.no_such_name(NEGATIVE_TTL) };
        let is_asked = |known: &&Port| known.name == port && known.protocol.label() == protocol;
        let (mut found, mut seen) = (Vec::new(), HashSet::new());
        match &service.kind {
            ServiceKind::Addresses(addresses) => {
                if let Some(known) = service.ports.iter().find(is_asked) {
                    found.push((self.zone.below(&[name, namespace, "svc"]), known.number, addresses.clone()));
                }
            }
            ServiceKind::Headless(endpoints) => {
                for endpoint in endpoints.iter().filter(|endpoint| !endpoint.by_name_only) {
                    if let Some(known) = endpoint.ports.iter().find(is_asked) {
                        let label = endpoint.label();
                        let target = self.zone.below(&[&label, name, namespace, "svc"]);
                        // Several slices may have the same one.
                        if seen.insert((label, known.number, endpoint.address)) {
                            found.push((target, known.number, vec![endpoint.address]));
                        }
                    }
                }
            }
            ServiceKind::External(_) => {}
        }
        if found.is_empty() {
            return self.no_such_name(NEGATIVE_TTL);
        }
        let weight = u16::try_from(100 / found.len()).unwrap_or(1).max(1);
        let srv = |(target, port, _): &(Name, u16, Vec<IpAddr>)| {
            self.own(ENDPOINT_TTL, RData::SRV(SRV::new(0, weight, *port, target.clone())))
        };
        let mut reply = self.found(RecordType::SRV, found.iter().map(srv).collect());
        if !reply.answers.is_empty() {
            let of = |(name, _, addresses): (Name, u16, Vec<IpAddr>)| {
                let record = move |address| Record::from_rdata(name.clone(), ENDPOINT_TTL, data(address));
                addresses.into_iter().map(record)
            };
            reply.additional = found.into_iter().flat_map(of).collect();
        }
        reply
    }

    fn name_of(&self, address: IpAddr) -> Reply {
        let Some((namespace, service, host)) = self.snapshot.name_of(address) else {
            return self.no_such_name(NEGATIVE_TTL);
        };
        let labels: Vec<&str> = host.into_iter().chain([service, namespace, "svc"]).collect();
        let name = RData::PTR(PTR(self.zone.below(&labels)));
        self.found(RecordType::PTR, vec![self.own(ENDPOINT_TTL, name)])
    }

    fn endpoints<'e>(&self, endpoints: impl Iterator<Item = &'e Endpoint>) -> Reply {
        let mut addresses: Vec<IpAddr> = endpoints.map(|endpoint| endpoint.address).collect();
        addresses.sort_unstable();
        addresses.dedup();
        self.addresses(&addresses, ENDPOINT_TTL)
    }

    /// Those of the family that is asked for. A name that has only the other one is there all the same.
    fn addresses(&self, addresses: &[IpAddr], ttl: u32) -> Reply {
        let is_asked = |address: &&IpAddr| match address {
            IpAddr::V4(_) => self.record_type == RecordType::A,
            IpAddr::V6(_) => self.record_type == RecordType::AAAA,
        };
        let records: Vec<Record> =
            addresses.iter().filter(is_asked).map(|address| self.own(ttl, data(*address))).collect();
        if records.is_empty() {
            self.nothing_of_it()
        } else {
            Reply { answers: records, ..Reply::empty(ResponseCode::NoError) }
        }
    }

    fn found(&self, record_type: RecordType, answers: Vec<Record>) -> Reply {
        if self.record_type != record_type {
            return self.nothing_of_it();
        }
        Reply { answers, ..Reply::empty(ResponseCode::NoError) }
    }

    fn own(&self, ttl: u32, data: RData) -> Record {
        Record::from_rdata(self.name.clone(), ttl, data)
    }

    fn nothing_of_it(&self) -> Reply {
        self.negative(ResponseCode::NoError, NEGATIVE_TTL)
    }

    fn no_such_name(&self, ttl: u32) -> Reply {
        self.negative(ResponseCode::NXDomain, ttl)
    }

    fn negative(&self, code: ResponseCode, ttl: u32) -> Reply {
        let [server, person] = [["ns", "dns"], ["hostmaster", "dns"]].map(|labels| self.zone.below(&labels));
        let data = SOA::new(server, person, self.snapshot.serial, REFRESH, RETRY, EXPIRE, ttl);
        let record = Record::from_rdata(self.zone.name().clone(), ttl, RData::SOA(data));
        Reply { authority: vec![record], ..Reply::empty(code) }
    }
}

fn data(address: IpAddr) -> RData {
    match address {
        IpAddr::V4(address) => RData::A(address.into()),
        IpAddr::V6(address) => RData::AAAA(address.into()),
    }
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
