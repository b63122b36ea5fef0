//! The Endpoints object of a service, for those who read no slices: one object, the main family, at most a thousand addresses.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::endpoint::{hostname, protocol, target, target_port};
use super::views::{Family, PodFacts, ServiceView, Uid};

/// Who made an Endpoints object.
pub(super) const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
pub(super) const MANAGER: &str = "endpoint-controller";
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
const ADDRESSES_MAX: usize = 1000;

/// Whether this controller made it.
pub(super) fn is_ours(endpoints: &Endpoints) -> bool {
    endpoints.metadata.labels.as_ref().and_then(|labels| labels.get(MANAGED_BY)).is_some_and(|own| own == MANAGER)
}

/// The Endpoints of `service` as they should be, if that is not what `found` is.
pub(super) fn plan<'a>(
    service: &ServiceView,
    pods: impl Iterator<Item = (&'a Uid, &'a PodFacts)>,
    found: Option<&Endpoints>,
) -> Option<Endpoints> {
    let mut subsets = subsets(service, pods);
    let truncated = truncate(&mut subsets);
    let mut labels = service.given_labels();
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    let old = found.map(|found| found.metadata.clone()).unwrap_or_default();
    let mut annotations = old.annotations.clone().unwrap_or_default();
    match truncated {
        true => drop(annotations.insert(OVER_CAPACITY.to_owned(), "truncated".to_owned())),
        false => drop(annotations.remove(OVER_CAPACITY)),
    }
    let metadata = ObjectMeta {
        name: service.metadata.name.clone(),
        namespace: service.metadata.namespace.clone(),
        labels: Some(labels),
        annotations: (!annotations.is_empty()).then_some(annotations),
        ..old
    };
    let next = Endpoints { metadata, subsets: (!subsets.is_empty()).then_some(subsets) };
    let is_same = |found: &Endpoints| {
        let same_subsets = found.subsets.iter().flatten().eq(next.subsets.iter().flatten());
        same_subsets
            && found.metadata.labels == next.metadata.labels
            && found.metadata.annotations.iter().flatten().eq(next.metadata.annotations.iter().flatten())
    };
    (!found.is_some_and(is_same)).then_some(next)
}

/// Addresses with the same ports, in one order.
fn subsets<'a>(service: &ServiceView, pods: impl Iterator<Item = (&'a Uid, &'a PodFacts)>) -> Vec<EndpointSubset> {
    let (family, publishes_all) = (service.families().first().copied(), service.spec.publish_not_ready_addresses);
    let mut by_ports: BTreeMap<BTreeSet<PortKey>, [Vec<EndpointAddress>; 2]> = BTreeMap::new();
    for (uid, pod) in pods {
        if pod.terminal || (pod.terminating && !publishes_all) {
            continue;
        }
        let Some(ip) = pod.addresses.iter().find(|own| Some(Family::of(**own)) == family) else { continue };
        let ports: BTreeSet<PortKey> = service
            .spec
            .ports
            .iter()
            .filter_map(|port| {
                let number = target_port(port, pod)?;
                Some((
                    port.name.clone().unwrap_or_default(),
                    protocol(port).to_owned(),
                    number,
                    port.app_protocol.clone(),
                ))
            })
            .collect();
        // Only a headless service may do without ports.
        if ports.is_empty() && !(service.spec.ports.is_empty() && service.is_headless()) {
            continue;
        }
        let address = EndpointAddress {
            ip: ip.to_string(),
            hostname: hostname(service, pod).map(ToOwned::to_owned),
            node_name: pod.node.as_deref().map(ToOwned::to_owned),
            target_ref: Some(target(uid, pod)),
        };
        let [ready, not_ready] = by_ports.entry(ports).or_default();
        if publishes_all || pod.ready { ready.push(address) } else { not_ready.push(address) }
    }
    let to_subset = |(ports, mut addresses): (BTreeSet<PortKey>, [Vec<EndpointAddress>; 2])| {
        let order = |address: &EndpointAddress| (address.ip.clone(), address.target_ref.clone().and_then(|to| to.uid));
        addresses.iter_mut().for_each(|list| list.sort_by_key(order));
        let [ready, not_ready] = addresses.map(|list| (!list.is_empty()).then_some(list));
        let ports: Vec<EndpointPort> = ports
            .into_iter()
            .map(|(name, protocol, port, app_protocol)| EndpointPort {
                app_protocol,
                name: (!name.is_empty()).then_some(name),
                port,
                protocol: Some(protocol),
            })
            .collect();
        EndpointSubset { addresses: ready, not_ready_addresses: not_ready, ports: (!ports.is_empty()).then_some(ports) }
    };
    by_ports.into_iter().map(to_subset).collect()
}

type PortKey = (String, String, i32, Option<String>);

/// Leaves at most a thousand addresses, ready ones before others. Answers whether that took any away.
fn truncate(subsets: &mut Vec<EndpointSubset>) -> bool {
    let (mut room, mut truncated) = (ADDRESSES_MAX, false);
    let mut cut = |list: &mut Option<Vec<EndpointAddress>>| {
        let Some(addresses) = list else { return };
        truncated |= addresses.len() > room;
        addresses.truncate(room);
        room -= addresses.len();
        if addresses.is_empty() {
            *list = None;
        }
    };
    subsets.iter_mut().for_each(|subset| cut(&mut subset.addresses));
    subsets.iter_mut().for_each(|subset| cut(&mut subset.not_ready_addresses));
    subsets.retain(|subset| subset.addresses.is_some() || subset.not_ready_addresses.is_some());
    truncated
}
