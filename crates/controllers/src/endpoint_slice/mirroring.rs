//! Slices made from an Endpoints object that somebody keeps by hand, for a service that selects nothing.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{EndpointAddress, Endpoints};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::endpoint::Candidate;
use super::packing::{Group, PortSet, SliceOwner, SliceWrites, TRIGGER_TIME, port_set};
use super::views::{Family, MANAGED_BY, SERVICE_NAME};

pub(super) const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
/// So many addresses of a subset are mirrored.
const ADDRESSES_MAX: usize = 1000;

/// Whether somebody wants these mirrored.
pub(super) fn is_mirrored(endpoints: &Endpoints) -> bool {
    let said =
        |words: &Option<BTreeMap<String, String>>, key: &str| words.as_ref().and_then(|all| all.get(key).cloned());
    said(&endpoints.metadata.labels, "endpointslice.kubernetes.io/skip-mirror").as_deref() != Some("true")
        && said(&endpoints.metadata.annotations, "control-plane.alpha.kubernetes.io/leader").is_none()
}

/// Makes the mirrored slices like `endpoints`; takes them all away if there is nothing to mirror. Answers how many addresses are too many.
pub(super) fn plan(
    endpoints: Option<&Endpoints>,
    existing: &[&EndpointSlice],
    slice_max: usize,
) -> (SliceWrites, usize) {
    let mut writes = SliceWrites::default();
    let Some(endpoints) = endpoints else {
        writes.deletes.extend(existing.iter().map(|slice| (*slice).clone()));
        writes.withdraws = !writes.deletes.is_empty();
        return (writes, 0);
    };
    let owner = owner(endpoints, slice_max);
    let mut groups: BTreeMap<Family, BTreeMap<PortSet, Group>> = BTreeMap::new();
    let mut skipped = 0;
    for subset in endpoints.subsets.iter().flatten() {
        let ports: Vec<EndpointPort> = subset
            .ports
            .iter()
            .flatten()
            .map(|port| EndpointPort {
                app_protocol: port.app_protocol.clone(),
                name: Some(port.name.clone().unwrap_or_default()),
                port: Some(port.port),
                protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
            })
            .collect();
        let ready = subset.addresses.iter().flatten().map(|address| (address, true));
        let not_ready = subset.not_ready_addresses.iter().flatten().map(|address| (address, false));
        let all = ready.chain(not_ready);
        skipped += all.clone().count().saturating_sub(ADDRESSES_MAX);
        for (address, ready) in all.take(ADDRESSES_MAX) {
            let Ok(ip) = address.ip.parse::<IpAddr>() else { continue };
            let group = groups.entry(Family::of(ip)).or_default().entry(port_set(&ports)).or_default();
            group.ports.clone_from(&ports);
            group.candidates.push(Candidate { endpoint: endpoint(address, ready), trigger: None });
        }
    }
    for family in Family::ALL {
        let here: Vec<&EndpointSlice> =
            existing.iter().copied().filter(|slice| slice.address_type == family.name()).collect();
        writes.extend(owner.pack(family, &here, groups.remove(&family).unwrap_or_default()));
    }
    (writes, skipped)
}

fn endpoint(address: &EndpointAddress, ready: bool) -> Endpoint {
    Endpoint {
        addresses: vec![address.ip.clone()],
        conditions: Some(EndpointConditions { ready: Some(ready), ..EndpointConditions::default() }),
        hostname: address.hostname.clone(),
        node_name: address.node_name.clone(),
        target_ref: address.target_ref.clone(),
        ..Endpoint::default()
    }
}

fn owner(endpoints: &Endpoints, slice_max: usize) -> SliceOwner {
    let metadata = &endpoints.metadata;
    let name = metadata.name.clone().unwrap_or_default();
    let mut labels = metadata.labels.clone().unwrap_or_default();
    labels.insert(SERVICE_NAME.to_owned(), name.clone());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    let mut annotations = metadata.annotations.clone().unwrap_or_default();
    annotations.remove(TRIGGER_TIME);
    annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    SliceOwner {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        reference: OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Endpoints".to_owned(),
            name: name.clone(),
            uid: metadata.uid.clone().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        },
        name,
        labels,
        annotations: Some(annotations),
        slice_max,
        placeholder: false,
    }
}
