//! Rows of kinds that are served as data: nothing here acts on them.

use super::{PLAIN, Row, own_status};
use crate::rules::served;

const STORAGE: &str = "storage.k8s.io";
const NETWORKING: &str = "networking.k8s.io";
const FLOW_CONTROL: &str = "flowcontrol.apiserver.k8s.io";
const RESOURCE: &str = "resource.k8s.io";

/// The rows.
pub(in crate::kinds) static SERVED: &[Row] = &[
    Row {
        group: STORAGE,
        kind: "CSIDriver",
        plural: "csidrivers",
        singular: "csidriver",
        namespaced: false,
        has_generation: true,
        delete_returns_object: true,
        collection: "csidrivers.storage.k8s.io",
        rules: &served::CSI_DRIVER,
        ..PLAIN
    },
    Row {
        group: STORAGE,
        kind: "CSINode",
        plural: "csinodes",
        singular: "csinode",
        namespaced: false,
        delete_returns_object: true,
        collection: "csinodes.storage.k8s.io",
        rules: &served::CSI_NODE,
        ..PLAIN
    },
    Row {
        group: STORAGE,
        kind: "CSIStorageCapacity",
        plural: "csistoragecapacities",
        singular: "csistoragecapacity",
        collection: "csistoragecapacities.storage.k8s.io",
        rules: &served::CSI_STORAGE_CAPACITY,
        ..PLAIN
    },
    Row {
        group: STORAGE,
        kind: "VolumeAttachment",
        plural: "volumeattachments",
        singular: "volumeattachment",
        namespaced: false,
        delete_returns_object: true,
        subresources: &[own_status(STORAGE, "v1", "VolumeAttachment")],
        collection: "volumeattachments.storage.k8s.io",
        rules: &served::VOLUME_ATTACHMENT,
        ..PLAIN
    },
    Row {
        group: STORAGE,
        kind: "VolumeAttributesClass",
        plural: "volumeattributesclasses",
        singular: "volumeattributesclass",
        short_names: &["vac"],
        namespaced: false,
        delete_returns_object: true,
        collection: "volumeattributesclasses.storage.k8s.io",
        rules: &served::VOLUME_ATTRIBUTES_CLASS,
        ..PLAIN
    },
    Row {
        group: NETWORKING,
        kind: "ServiceCIDR",
        plural: "servicecidrs",
        singular: "servicecidr",
        namespaced: false,
        subresources: &[own_status(NETWORKING, "v1", "ServiceCIDR")],
        collection: "servicecidrs.networking.k8s.io",
        rules: &served::SERVICE_CIDR,
        ..PLAIN
    },
    Row {
        group: NETWORKING,
        kind: "IPAddress",
        plural: "ipaddresses",
        singular: "ipaddress",
        short_names: &["ip"],
        namespaced: false,
        collection: "ipaddresses.networking.k8s.io",
        rules: &served::IP_ADDRESS,
        ..PLAIN
    },
    Row {
        group: FLOW_CONTROL,
        kind: "FlowSchema",
        plural: "flowschemas",
        singular: "flowschema",
        namespaced: false,
        has_generation: true,
        subresources: &[own_status(FLOW_CONTROL, "v1", "FlowSchema")],
        collection: "flowschemas.flowcontrol.apiserver.k8s.io",
        rules: &served::FLOW_SCHEMA,
        ..PLAIN
    },
    Row {
        group: FLOW_CONTROL,
        kind: "PriorityLevelConfiguration",
        plural: "prioritylevelconfigurations",
        singular: "prioritylevelconfiguration",
        namespaced: false,
        has_generation: true,
        subresources: &[own_status(FLOW_CONTROL, "v1", "PriorityLevelConfiguration")],
        collection: "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
        rules: &served::PRIORITY_LEVEL,
        ..PLAIN
    },
    Row {
        group: RESOURCE,
        kind: "DeviceClass",
        plural: "deviceclasses",
        singular: "deviceclass",
        namespaced: false,
        has_generation: true,
        delete_returns_object: true,
        collection: "deviceclasses.resource.k8s.io",
        rules: &served::DEVICE_CLASS,
        ..PLAIN
    },
    Row {
        group: RESOURCE,
        kind: "ResourceClaim",
        plural: "resourceclaims",
        singular: "resourceclaim",
        delete_returns_object: true,
        subresources: &[own_status(RESOURCE, "v1", "ResourceClaim")],
        collection: "resourceclaims.resource.k8s.io",
        rules: &served::RESOURCE_CLAIM,
        ..PLAIN
    },
    Row {
        group: RESOURCE,
        kind: "ResourceClaimTemplate",
        plural: "resourceclaimtemplates",
        singular: "resourceclaimtemplate",
        delete_returns_object: true,
        collection: "resourceclaimtemplates.resource.k8s.io",
        rules: &served::RESOURCE_CLAIM_TEMPLATE,
        ..PLAIN
    },
    Row {
        group: RESOURCE,
        kind: "ResourceSlice",
        plural: "resourceslices",
        singular: "resourceslice",
        namespaced: false,
        has_generation: true,
        delete_returns_object: true,
        collection: "resourceslices.resource.k8s.io",
        fields: &[("spec.driver", "spec.driver"), ("spec.nodeName", "spec.nodeName")],
        rules: &served::RESOURCE_SLICE,
        ..PLAIN
    },
];
