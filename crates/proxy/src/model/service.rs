//! What a Service wants to have in the kernel: for each of its addresses and ports, who takes new connections.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};

use super::{Claims, Endpoint, Model, ServiceKey};
use crate::Protocol;
use crate::addresses::{contains, is_endpoint_address, parse_network};
use crate::host_listeners::HostListeners;
use crate::wanted::{Backend, Frontend, HealthCheck, Mark, Nobody, Space, Targets, Wanted};

/// Endpoints of one port of a Service beyond these are left out.
const ENDPOINTS_MAX: usize = 5_000;
/// Endpoints of all ports of a Service together: a Service with very many ports has fewer of each.
const ENDPOINTS_OF_ALL_PORTS_MAX: usize = 100_000;
/// For how long a client comes back to the same endpoint if its Service does not say.
const AFFINITY_SECONDS: u32 = 10_800;
const AFFINITY_SECONDS_MAX: u32 = 86_400;

/// One port of a Service, in one family.
struct Port<'a> {
    spec: &'a ServiceSpec,
    protocol: Protocol,
    number: u16,
    node_port: Option<u16>,
    is_ipv6: bool,
    cluster: Targets,
    local: Targets,
    serving: BTreeSet<Backend>,
}

impl Port<'_> {
    fn targets(&self, is_local: bool) -> &Targets {
        if is_local { &self.local } else { &self.cluster }
    }

    /// What is told to whoever finds no endpoint in its list: one elsewhere may take the next try.
    fn nobody(&self) -> Nobody {
        if self.cluster.backends.is_empty() { Nobody::Reject } else { Nobody::Drop }
    }

    fn frontend(&self, space: Space, address: Option<IpAddr>, port: u16) -> Frontend {
        Frontend { space, is_ipv6: self.is_ipv6, address, protocol: self.protocol, port }
    }

    fn list(&self, wanted: &mut Wanted, frontend: Frontend, targets: &Targets) {
        if self.protocol == Protocol::Udp {
            wanted.serving.insert(frontend, self.serving.clone());
        }
        if let (Some(address), true) = (frontend.address, targets.backends.is_empty()) {
            wanted.nobody.insert((address, self.protocol, frontend.port), self.nobody());
        }
        wanted.lists.insert(frontend, targets.clone());
    }
}

impl Model {
    /// What a Service wants to have in the kernel: nothing if it is not there.
    pub(crate) fn wanted(&self, key: &ServiceKey) -> Wanted {
        let mut wanted = Wanted::default();
        let Some(service) = self.services.get(key) else { return wanted };
        let Some(spec) = service.spec.as_ref() else { return wanted };
        let cluster_ips: Vec<IpAddr> = spec.cluster_ips.iter().flatten().filter_map(|ip| ip.parse().ok()).collect();
        if spec.type_.as_deref() == Some("ExternalName") || cluster_ips.is_empty() {
            return wanted;
        }
        wanted.since = service.metadata.creation_timestamp.as_ref().map(|time| time.0.to_string()).unwrap_or_default();
        wanted.marks.extend(cluster_ips.iter().map(|ip| Mark::Vip(*ip)));
        let ports: Vec<&ServicePort> = spec.ports.iter().flatten().collect();
        let resolved = self.resolved(key);
        let endpoints = &resolved.endpoints;
        let each_max = (ENDPOINTS_OF_ALL_PORTS_MAX / ports.len().max(1)).clamp(1, ENDPOINTS_MAX);
        for port in ports {
            for is_ipv6 in [false, true] {
                let Some(port) = self.port(spec, port, is_ipv6, endpoints, each_max, &mut wanted) else { continue };
                for ip in cluster_ips.iter().filter(|ip| ip.is_ipv6() == is_ipv6) {
                    let is_local = spec.internal_traffic_policy.as_deref() == Some("Local");
                    let frontend = port.frontend(Space::Service, Some(*ip), port.number);
                    port.list(&mut wanted, frontend, port.targets(is_local));
                }
                self.outside(service, &port, &mut wanted);
                self.at_node(&port, &mut wanted);
            }
        }
        wanted.health = self.health(key, spec, endpoints);
        wanted
    }

    /// Who takes connections to a port of a Service, in one family.
    fn port<'a>(
        &self,
        spec: &'a ServiceSpec,
        port: &ServicePort,
        is_ipv6: bool,
        endpoints: &[Endpoint],
        endpoints_max: usize,
        wanted: &mut Wanted,
    ) -> Option<Port<'a>> {
        let protocol = Protocol::of_name(port.protocol.as_deref())?;
        let number = u16::try_from(port.port).ok().filter(|number| *number > 0)?;
        let name = port.name.clone().unwrap_or_default();
        let of_port: Vec<_> = endpoints
            .iter()
            .filter(|endpoint| endpoint.address.is_ipv6() == is_ipv6)
            .filter_map(|endpoint| endpoint.at(&name, protocol).map(|port| (endpoint, port)))
            .take(endpoints_max)
            .collect();
        let here = || of_port.iter().copied().filter(|(endpoint, _)| self.is_here(endpoint));
        for (endpoint, target) in here() {
            wanted.marks.insert(Mark::Watch(endpoint.address, protocol, target));
            wanted.marks.insert(Mark::Hairpin(endpoint.address));
        }
        let affinity_seconds = affinity_seconds(spec);
        let targets = |backends| Targets { backends, affinity_seconds };
        let serves = |endpoint: &Endpoint| endpoint.ready || endpoint.serving;
        Some(Port {
            spec,
            protocol,
            number,
            node_port: port.node_port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0),
            is_ipv6,
            cluster: targets(eligible(of_port.iter().copied(), |staying| self.keep_near(staying))),
            local: targets(eligible(here(), |_| {})),
            serving: of_port.iter().filter(|(endpoint, _)| serves(endpoint)).map(|it| backend(*it)).collect(),
        })
    }

    /// Keeps those that are meant for this node, or for its zone, as upstream does: if all say whom they are meant for, and one is meant
    /// for us.
    fn keep_near(&self, endpoints: &mut Vec<(&Endpoint, u16)>) {
        let is_for_node = |endpoint: &Endpoint| endpoint.for_this_node == Some(true);
        let is_for_zone =
            |endpoint: &Endpoint| self.zone.as_ref().is_some_and(|zone| endpoint.for_zones.contains(zone));
        if endpoints.iter().all(|it| it.0.for_this_node.is_some()) && endpoints.iter().any(|it| is_for_node(it.0)) {
            endpoints.retain(|it| is_for_node(it.0));
        } else if endpoints.iter().all(|it| !it.0.for_zones.is_empty()) && endpoints.iter().any(|it| is_for_zone(it.0))
        {
            endpoints.retain(|it| is_for_zone(it.0));
        }
    }

    /// The addresses that a Service has outside: those of its load balancer, and those that its author claims.
    fn outside(&self, service: &Service, port: &Port<'_>, wanted: &mut Wanted) {
        let is_local = port.spec.external_traffic_policy.as_deref() == Some("Local");
        let is_balanced = port.spec.type_.as_deref() == Some("LoadBalancer");
        let of_family = |ip: &IpAddr| ip.is_ipv6() == port.is_ipv6;
        let balanced: BTreeSet<IpAddr> = if is_balanced { ingress(service) } else { BTreeSet::new() };
        let claimed = port.spec.external_ips.iter().flatten().filter_map(|ip| ip.parse().ok());
        let claimed: BTreeSet<IpAddr> = claimed.filter(|ip| self.may_be_claimed(*ip)).collect();
        let balanced = balanced.into_iter().filter(|ip| self.may_be_balanced(*ip, port.protocol, port.number));
        let balanced: BTreeSet<IpAddr> = balanced.collect();
        for ip in balanced.union(&claimed).copied().filter(of_family) {
            port.list(wanted, port.frontend(Space::Service, Some(ip), port.number), port.targets(is_local));
            if is_local {
                wanted.lists.insert(port.frontend(Space::Short, Some(ip), port.number), port.cluster.clone());
            } else {
                wanted.marks.insert(Mark::Masquerade(ip, port.protocol, port.number));
            }
        }
        let ranges = port.spec.load_balancer_source_ranges.iter().flatten().filter(|range| !range.trim().is_empty());
        let mut ranges = ranges.peekable();
        if ranges.peek().is_none() {
            return;
        }
        let ranges: BTreeSet<_> = ranges.filter_map(|range| parse_network(range)).collect();
        let ranges: BTreeSet<_> = ranges.into_iter().filter(|(ip, _)| of_family(ip)).collect();
        for ip in balanced.difference(&claimed).copied().filter(of_family) {
            wanted.sources.insert((ip, port.protocol, port.number), ranges.clone());
        }
    }

    fn at_node(&self, port: &Port<'_>, wanted: &mut Wanted) {
        let is_local = port.spec.external_traffic_policy.as_deref() == Some("Local");
        let Some(node_port) = port.node_port else { return };
        let targets = port.targets(is_local);
        port.list(wanted, port.frontend(Space::NodePort, None, node_port), targets);
        if is_local {
            wanted.lists.insert(port.frontend(Space::ShortNodePort, None, node_port), port.cluster.clone());
        }
        for ip in self.node.addresses.iter().filter(|ip| ip.is_ipv6() == port.is_ipv6) {
            if targets.backends.is_empty() && port.nobody() == Nobody::Drop {
                wanted.nobody.insert((*ip, port.protocol, node_port), Nobody::Drop);
            }
            if !is_local {
                wanted.marks.insert(Mark::Masquerade(*ip, port.protocol, node_port));
            }
        }
    }

    /// Whether an author of a Service may have connections to that address.
    fn may_be_claimed(&self, address: IpAddr) -> bool {
        let is_allowed = self.node.external_ips.iter().any(|network| contains(network, address));
        is_allowed && self.may_be_outside(address) && !self.node.addresses.contains(&address)
    }

    /// Whether a load balancer may hand over connections to that address: one of the node's own only where no program listens.
    fn may_be_balanced(&self, address: IpAddr, protocol: Protocol, port: u16) -> bool {
        self.may_be_outside(address)
            && !(self.node.addresses.contains(&address) && self.listeners.has(address, protocol, port))
    }

    fn may_be_outside(&self, address: IpAddr) -> bool {
        is_endpoint_address(address) && !self.node.inside.iter().any(|network| contains(network, address))
    }

    fn health(&self, key: &ServiceKey, spec: &ServiceSpec, endpoints: &[Endpoint]) -> Option<HealthCheck> {
        let is_local = spec.external_traffic_policy.as_deref() == Some("Local");
        let port = spec.health_check_node_port.filter(|_| is_local && spec.type_.as_deref() == Some("LoadBalancer"))?;
        let port = u16::try_from(port).ok().filter(|port| *port > 0)?;
        let ready = endpoints.iter().filter(|endpoint| endpoint.takes_new() && self.is_here(endpoint));
        let local_endpoints = ready.map(|endpoint| endpoint.address).collect::<BTreeSet<_>>().len();
        Some(HealthCheck { port, namespace: key.0.clone(), name: key.1.clone(), local_endpoints })
    }

    /// Whether what changed lately wants other ports of this machine than it did: who has them is to be looked up. Endpoints come and
    /// go without.
    pub(crate) fn asks_for_listeners(&self) -> bool {
        let claims = self.touched.iter().filter_map(|key| Some((key, self.claims(key)?)));
        claims.into_iter().any(|(key, claims)| self.judged.get(key) != Some(&claims))
    }

    /// The ports of the node that a Service wants, and the node's addresses at which it is balanced; nothing if it wants none.
    fn claims(&self, key: &ServiceKey) -> Option<Claims> {
        let service = self.services.get(key)?;
        let ports: BTreeSet<_> = service
            .spec
            .iter()
            .flat_map(|spec| spec.ports.iter().flatten())
            .map(|port| (port.node_port, port.port))
            .collect();
        let at: BTreeSet<_> = ingress(service).into_iter().filter(|ip| self.node.addresses.contains(ip)).collect();
        let has_node_port = ports.iter().any(|(node_port, _)| node_port.is_some());
        (has_node_port || !at.is_empty()).then_some((ports, at))
    }

    pub(crate) fn set_listeners(&mut self, listeners: HostListeners) {
        self.listeners = listeners;
        let judged: Vec<_> = self.touched.iter().map(|key| (key.clone(), self.claims(key))).collect();
        for (key, claims) in judged {
            match claims {
                Some(claims) => drop(self.judged.insert(key, claims)),
                None => drop(self.judged.remove(&key)),
            }
        }
    }

    /// The ports that what changed lately shares with programs of this machine, in words.
    pub(crate) fn taken_ports(&self) -> Vec<String> {
        let mut taken = Vec::new();
        for (key, spec) in self.touched.iter().filter_map(|key| Some((key, self.services.get(key)?.spec.as_ref()?))) {
            let balanced = self.services.get(key).map(ingress).unwrap_or_default();
            for port in spec.ports.iter().flatten() {
                let Some(protocol) = Protocol::of_name(port.protocol.as_deref()) else { continue };
                let numbers = [(port.node_port, true), (Some(port.port), false)];
                for (number, is_node_port) in numbers {
                    let Some(number) = number.and_then(|number| u16::try_from(number).ok()) else { continue };
                    let mut at = self.node.addresses.iter().filter(|ip| is_node_port || balanced.contains(ip));
                    if at.any(|ip| self.listeners.has(*ip, protocol, number)) {
                        taken.push(format!("{}/{} wants {number}/{protocol}", key.0, key.1));
                    }
                }
            }
        }
        taken
    }
}

fn affinity_seconds(spec: &ServiceSpec) -> Option<u32> {
    if spec.session_affinity.as_deref() != Some("ClientIP") {
        return None;
    }
    let config = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
    let seconds = config.and_then(|config| config.timeout_seconds).and_then(|seconds| u32::try_from(seconds).ok());
    Some(seconds.unwrap_or(AFFINITY_SECONDS).clamp(1, AFFINITY_SECONDS_MAX))
}

fn backend((endpoint, port): (&Endpoint, u16)) -> Backend {
    Backend { address: endpoint.address, port }
}

/// Who takes new connections: whoever is ready and stays, as far as `choose` keeps them; if nobody does, whoever leaves and still serves.
fn eligible<'a>(
    endpoints: impl Iterator<Item = (&'a Endpoint, u16)> + Clone,
    choose: impl FnOnce(&mut Vec<(&'a Endpoint, u16)>),
) -> BTreeSet<Backend> {
    let mut staying: Vec<_> = endpoints.clone().filter(|(it, _)| it.takes_new()).collect();
    if !staying.is_empty() {
        choose(&mut staying);
        return staying.into_iter().map(backend).collect();
    }
    endpoints.filter(|(it, _)| it.terminating && (it.ready || it.serving)).map(backend).collect()
}

/// The addresses at which a load balancer hands connections to this node.
fn ingress(service: &Service) -> BTreeSet<IpAddr> {
    let entries =
        service.status.iter().flat_map(|status| &status.load_balancer).flat_map(|it| it.ingress.iter().flatten());
    let entries = entries.filter(|entry| entry.ip_mode.as_deref() != Some("Proxy"));
    entries.filter_map(|entry| entry.ip.as_ref()?.parse().ok()).collect()
}
