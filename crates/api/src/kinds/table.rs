//! The built-in kinds, one row each: a new kind is a row here plus its [`crate::rules`].

mod served;

use std::borrow::Cow;
use std::sync::Arc;

use super::{Face, Kind, KindRules, Names, Subresource};
use crate::deletion::Propagation;
use crate::rules::{self, Rules};

pub(super) use served::SERVED;

/// A kind as it is written in the table: constants only. The fields are those of [`Kind`].
pub(super) struct Row {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    singular: &'static str,
    short_names: &'static [&'static str],
    categories: &'static [&'static str],
    namespaced: bool,
    verbs: &'static [&'static str],
    subresources: &'static [Subresource],
    has_generation: bool,
    graceful_delete: bool,
    delete_returns_object: bool,
    propagation: Option<Propagation>,
    create_on_update: bool,
    update_needs_version: bool,
    deprecated: Option<&'static str>,
    pub(super) face: Option<&'static Face>,
    collection: &'static str,
    fields: &'static [(&'static str, &'static str)],
    rules: &'static dyn Rules,
}

impl Row {
    /// The kind of this row. One that is only a face is given the kind that is stored.
    pub(super) fn to_kind(&self, stored_as: Option<Arc<Kind>>) -> Kind {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let names = Names {
            group: self.group.to_owned(),
            version: self.version.to_owned(),
            kind: self.kind.to_owned(),
            plural: self.plural.to_owned(),
            singular: self.singular.to_owned(),
            short_names: owned(self.short_names),
            categories: owned(self.categories),
        };
        let plain = Kind::plain(names, self.collection, KindRules::BuiltIn(self.rules));
        let path = |(field, path): &(&'static str, &'static str)| (Cow::Borrowed(*field), Cow::Borrowed(*path));
        Kind {
            namespaced: self.namespaced,
            verbs: self.verbs,
            subresources: self.subresources.to_vec(),
            has_generation: self.has_generation,
            graceful_delete: self.graceful_delete,
            delete_returns_object: self.delete_returns_object,
            propagation: self.propagation,
            create_on_update: self.create_on_update,
            update_needs_version: self.update_needs_version,
            deprecated: self.deprecated.map(ToOwned::to_owned),
            face: self.face,
            stored_as,
            fields: self.fields.iter().map(path).collect(),
            ..plain
        }
    }
}

pub(super) const ALL_VERBS: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const NO_COLLECTION_DELETE: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];
pub(super) const STATUS_VERBS: &[&str] = &["get", "patch", "update"];
/// Whatever a backend understands.
const PROXY_VERBS: &[&str] = &["create", "delete", "get", "patch", "update"];

/// Kinds that are asked, not kept.
const ASKED: &[&str] = &["create"];

/// `scale`, of everything that has replicas.
const SCALE_BELOW: Subresource = below("scale", "Scale", ("autoscaling", "v1"), STATUS_VERBS);

const fn below(
    name: &'static str,
    kind: &'static str,
    (group, version): (&'static str, &'static str),
    verbs: &'static [&'static str],
) -> Subresource {
    let (group, version) = (Cow::Borrowed(group), Cow::Borrowed(version));
    Subresource { name: Cow::Borrowed(name), kind: Cow::Borrowed(kind), group, version, verbs }
}

const fn own_status(group: &'static str, version: &'static str, kind: &'static str) -> Subresource {
    below("status", kind, (group, version), STATUS_VERBS)
}

const fn core(name: &'static str, kind: &'static str, verbs: &'static [&'static str]) -> Subresource {
    below(name, kind, ("", "v1"), verbs)
}

/// What most kinds have in common; a row states the differences.
const PLAIN: Row = Row {
    group: "",
    version: "v1",
    kind: "",
    plural: "",
    singular: "",
    short_names: &[],
    categories: &[],
    namespaced: true,
    verbs: ALL_VERBS,
    subresources: &[],
    has_generation: false,
    graceful_delete: false,
    delete_returns_object: false,
    propagation: Some(Propagation::Background),
    create_on_update: false,
    update_needs_version: false,
    deprecated: None,
    face: None,
    collection: "",
    fields: &[],
    rules: &rules::data::ConfigMapRules,
};

/// Every kind we serve, in the order discovery lists them.
pub(super) static ROWS: &[Row] = &[
    Row {
        kind: "ConfigMap",
        plural: "configmaps",
        singular: "configmap",
        short_names: &["cm"],
        collection: "configmaps",
        rules: &rules::data::ConfigMapRules,
        ..PLAIN
    },
    Row {
        kind: "Endpoints",
        plural: "endpoints",
        singular: "endpoints",
        short_names: &["ep"],
        deprecated: Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
        create_on_update: true,
        collection: "endpoints",
        rules: &rules::endpoints::EndpointsRules,
        ..PLAIN
    },
    Row {
        kind: "Event",
        propagation: None,
        plural: "events",
        singular: "event",
        short_names: &["ev"],
        create_on_update: true,
        collection: "events",
        fields: &[
            ("involvedObject.kind", "involvedObject.kind"),
            ("involvedObject.namespace", "involvedObject.namespace"),
            ("involvedObject.name", "involvedObject.name"),
            ("involvedObject.uid", "involvedObject.uid"),
            ("involvedObject.apiVersion", "involvedObject.apiVersion"),
            ("involvedObject.resourceVersion", "involvedObject.resourceVersion"),
            ("involvedObject.fieldPath", "involvedObject.fieldPath"),
            ("reason", "reason"),
            ("reportingComponent", "reportingComponent"),
            ("source", "source.component|reportingComponent"),
            ("type", "type"),
        ],
        rules: &rules::event::EventRules,
        ..PLAIN
    },
    Row {
        kind: "LimitRange",
        plural: "limitranges",
        singular: "limitrange",
        short_names: &["limits"],
        create_on_update: true,
        collection: "limitranges",
        rules: &rules::policy::LimitRangeRules,
        ..PLAIN
    },
    Row {
        kind: "Namespace",
        plural: "namespaces",
        singular: "namespace",
        short_names: &["ns"],
        namespaced: false,
        verbs: NO_COLLECTION_DELETE,
        subresources: &[core("finalize", "Namespace", &["update"]), core("status", "Namespace", STATUS_VERBS)],
        delete_returns_object: true,
        collection: "namespaces",
        fields: &[("status.phase", "status.phase")],
        rules: &rules::namespace::NamespaceRules,
        ..PLAIN
    },
    Row {
        kind: "Node",
        plural: "nodes",
        singular: "node",
        short_names: &["no"],
        namespaced: false,
        subresources: &[core("proxy", "NodeProxyOptions", PROXY_VERBS), core("status", "Node", STATUS_VERBS)],
        collection: "nodes",
        fields: &[("spec.unschedulable", "spec.unschedulable")],
        rules: &rules::node::NodeRules,
        ..PLAIN
    },
    Row {
        kind: "PersistentVolumeClaim",
        plural: "persistentvolumeclaims",
        singular: "persistentvolumeclaim",
        short_names: &["pvc"],
        subresources: &[own_status("", "v1", "PersistentVolumeClaim")],
        delete_returns_object: true,
        collection: "persistentvolumeclaims",
        rules: &rules::storage::ClaimRules,
        ..PLAIN
    },
    Row {
        kind: "PersistentVolume",
        plural: "persistentvolumes",
        singular: "persistentvolume",
        short_names: &["pv"],
        namespaced: false,
        subresources: &[own_status("", "v1", "PersistentVolume")],
        delete_returns_object: true,
        collection: "persistentvolumes",
        rules: &rules::storage::VolumeRules,
        ..PLAIN
    },
    Row {
        kind: "Pod",
        plural: "pods",
        singular: "pod",
        short_names: &["po"],
        categories: &["all"],
        subresources: &[
            core("attach", "PodAttachOptions", &["create", "get"]),
            core("binding", "Binding", &["create"]),
            core("ephemeralcontainers", "Pod", STATUS_VERBS),
            below("eviction", "Eviction", ("policy", "v1"), &["create"]),
            core("exec", "PodExecOptions", &["create", "get"]),
            core("log", "Pod", &["get"]),
            core("portforward", "PodPortForwardOptions", &["create", "get"]),
            core("proxy", "PodProxyOptions", PROXY_VERBS),
            core("resize", "Pod", STATUS_VERBS),
            core("status", "Pod", STATUS_VERBS),
        ],
        has_generation: true,
        graceful_delete: true,
        delete_returns_object: true,
        collection: "pods",
        fields: &[
            ("spec.nodeName", "spec.nodeName"),
            ("spec.host", "spec.nodeName"),
            ("spec.restartPolicy", "spec.restartPolicy"),
            ("spec.schedulerName", "spec.schedulerName"),
            ("spec.serviceAccountName", "spec.serviceAccountName"),
            ("spec.hostNetwork", "spec.hostNetwork"),
            ("status.phase", "status.phase"),
            ("status.podIP", "status.podIP"),
            ("status.podIPs", ""),
            ("status.nominatedNodeName", "status.nominatedNodeName"),
        ],
        rules: &rules::pod::PodRules,
        ..PLAIN
    },
    Row {
        kind: "PodTemplate",
        plural: "podtemplates",
        singular: "podtemplate",
        has_generation: true,
        delete_returns_object: true,
        collection: "podtemplates",
        rules: &rules::workload::revision::PodTemplateRules,
        ..PLAIN
    },
    Row {
        kind: "ReplicationController",
        propagation: Some(Propagation::Orphan),
        plural: "replicationcontrollers",
        singular: "replicationcontroller",
        short_names: &["rc"],
        categories: &["all"],
        subresources: &[SCALE_BELOW, own_status("", "v1", "ReplicationController")],
        has_generation: true,
        collection: "replicationcontrollers",
        fields: &[("status.replicas", "status.replicas")],
        rules: &rules::workload::replica_set::ReplicationControllerRules,
        ..PLAIN
    },
    Row {
        kind: "ResourceQuota",
        plural: "resourcequotas",
        singular: "resourcequota",
        short_names: &["quota"],
        subresources: &[own_status("", "v1", "ResourceQuota")],
        delete_returns_object: true,
        collection: "resourcequotas",
        rules: &rules::policy::QuotaRules,
        ..PLAIN
    },
    Row {
        kind: "Secret",
        plural: "secrets",
        singular: "secret",
        collection: "secrets",
        fields: &[("type", "type")],
        rules: &rules::data::SecretRules,
        ..PLAIN
    },
    Row {
        kind: "ServiceAccount",
        plural: "serviceaccounts",
        singular: "serviceaccount",
        short_names: &["sa"],
        subresources: &[below("token", "TokenRequest", ("authentication.k8s.io", "v1"), &["create"])],
        delete_returns_object: true,
        collection: "serviceaccounts",
        rules: &rules::account::ServiceAccountRules,
        ..PLAIN
    },
    Row {
        kind: "Service",
        plural: "services",
        singular: "service",
        short_names: &["svc"],
        categories: &["all"],
        subresources: &[core("proxy", "ServiceProxyOptions", PROXY_VERBS), own_status("", "v1", "Service")],
        delete_returns_object: true,
        create_on_update: true,
        collection: "services",
        fields: &[("spec.clusterIP", "spec.clusterIP"), ("spec.type", "spec.type")],
        rules: &rules::service::ServiceRules,
        ..PLAIN
    },
    Row {
        group: "adieu.dev",
        version: "v1alpha1",
        kind: "TerminationRecord",
        plural: "terminationrecords",
        singular: "terminationrecord",
        short_names: &["tr"],
        categories: &["adieu"],
        collection: "terminationrecords.adieu.dev",
        fields: &[
            ("pod.name", "pod.name"),
            ("pod.uid", "pod.uid"),
            ("nodeName", "nodeName"),
            ("verdict", "verdict"),
            ("cause", "cause"),
        ],
        rules: &rules::termination_record::TerminationRecordRules,
        ..PLAIN
    },
    Row {
        group: "apps",
        kind: "ControllerRevision",
        plural: "controllerrevisions",
        singular: "controllerrevision",
        collection: "controllerrevisions.apps",
        rules: &rules::workload::revision::ControllerRevisionRules,
        ..PLAIN
    },
    Row {
        group: "apps",
        kind: "DaemonSet",
        plural: "daemonsets",
        singular: "daemonset",
        short_names: &["ds"],
        categories: &["all"],
        subresources: &[own_status("apps", "v1", "DaemonSet")],
        has_generation: true,
        collection: "daemonsets.apps",
        rules: &rules::workload::daemon_set::DaemonSetRules,
        ..PLAIN
    },
    Row {
        group: "apps",
        kind: "Deployment",
        plural: "deployments",
        singular: "deployment",
        short_names: &["deploy"],
        categories: &["all"],
        subresources: &[SCALE_BELOW, own_status("apps", "v1", "Deployment")],
        has_generation: true,
        collection: "deployments.apps",
        rules: &rules::workload::deployment::DeploymentRules,
        ..PLAIN
    },
    Row {
        group: "apps",
        kind: "ReplicaSet",
        plural: "replicasets",
        singular: "replicaset",
        short_names: &["rs"],
        categories: &["all"],
        subresources: &[SCALE_BELOW, own_status("apps", "v1", "ReplicaSet")],
        has_generation: true,
        collection: "replicasets.apps",
        fields: &[("status.replicas", "status.replicas")],
        rules: &rules::workload::replica_set::ReplicaSetRules,
        ..PLAIN
    },
    Row {
        group: "apps",
        kind: "StatefulSet",
        plural: "statefulsets",
        singular: "statefulset",
        short_names: &["sts"],
        categories: &["all"],
        subresources: &[SCALE_BELOW, own_status("apps", "v1", "StatefulSet")],
        has_generation: true,
        collection: "statefulsets.apps",
        rules: &rules::workload::stateful_set::StatefulSetRules,
        ..PLAIN
    },
    Row {
        group: "authentication.k8s.io",
        kind: "SelfSubjectReview",
        plural: "selfsubjectreviews",
        singular: "selfsubjectreview",
        namespaced: false,
        verbs: ASKED,
        collection: "selfsubjectreviews.authentication.k8s.io",
        rules: &rules::review::SELF_SUBJECT_REVIEW,
        ..PLAIN
    },
    Row {
        group: "authentication.k8s.io",
        kind: "TokenReview",
        plural: "tokenreviews",
        singular: "tokenreview",
        namespaced: false,
        verbs: ASKED,
        collection: "tokenreviews.authentication.k8s.io",
        rules: &rules::review::TOKEN_REVIEW,
        ..PLAIN
    },
    Row {
        group: "authorization.k8s.io",
        kind: "LocalSubjectAccessReview",
        plural: "localsubjectaccessreviews",
        singular: "localsubjectaccessreview",
        verbs: ASKED,
        collection: "localsubjectaccessreviews.authorization.k8s.io",
        rules: &rules::review::LOCAL_SUBJECT_ACCESS,
        ..PLAIN
    },
    Row {
        group: "authorization.k8s.io",
        kind: "SelfSubjectAccessReview",
        plural: "selfsubjectaccessreviews",
        singular: "selfsubjectaccessreview",
        namespaced: false,
        verbs: ASKED,
        collection: "selfsubjectaccessreviews.authorization.k8s.io",
        rules: &rules::review::SELF_SUBJECT_ACCESS,
        ..PLAIN
    },
    Row {
        group: "authorization.k8s.io",
        kind: "SelfSubjectRulesReview",
        plural: "selfsubjectrulesreviews",
        singular: "selfsubjectrulesreview",
        namespaced: false,
        verbs: ASKED,
        collection: "selfsubjectrulesreviews.authorization.k8s.io",
        rules: &rules::review::SELF_SUBJECT_RULES,
        ..PLAIN
    },
    Row {
        group: "authorization.k8s.io",
        kind: "SubjectAccessReview",
        plural: "subjectaccessreviews",
        singular: "subjectaccessreview",
        namespaced: false,
        verbs: ASKED,
        collection: "subjectaccessreviews.authorization.k8s.io",
        rules: &rules::review::SUBJECT_ACCESS,
        ..PLAIN
    },
    Row {
        group: "autoscaling",
        kind: "HorizontalPodAutoscaler",
        plural: "horizontalpodautoscalers",
        singular: "horizontalpodautoscaler",
        short_names: &["hpa"],
        categories: &["all"],
        subresources: &[own_status("autoscaling", "v1", "HorizontalPodAutoscaler")],
        face: Some(&rules::plain::OLD_FACE),
        collection: "horizontalpodautoscalers.autoscaling",
        rules: &rules::plain::OldAutoscalerRules,
        ..PLAIN
    },
    Row {
        group: "autoscaling",
        version: "v2",
        kind: "HorizontalPodAutoscaler",
        plural: "horizontalpodautoscalers",
        singular: "horizontalpodautoscaler",
        short_names: &["hpa"],
        categories: &["all"],
        subresources: &[own_status("autoscaling", "v2", "HorizontalPodAutoscaler")],
        collection: "horizontalpodautoscalers.autoscaling",
        rules: &rules::plain::AutoscalerRules,
        ..PLAIN
    },
    Row {
        group: "batch",
        kind: "CronJob",
        plural: "cronjobs",
        singular: "cronjob",
        short_names: &["cj"],
        categories: &["all"],
        subresources: &[own_status("batch", "v1", "CronJob")],
        has_generation: true,
        collection: "cronjobs.batch",
        rules: &rules::workload::batch::CronJobRules,
        ..PLAIN
    },
    Row {
        group: "batch",
        kind: "Job",
        propagation: Some(Propagation::Orphan),
        plural: "jobs",
        singular: "job",
        categories: &["all"],
        subresources: &[own_status("batch", "v1", "Job")],
        has_generation: true,
        collection: "jobs.batch",
        fields: &[("status.successful", "status.succeeded")],
        rules: &rules::workload::batch::JobRules,
        ..PLAIN
    },
    Row {
        group: "certificates.k8s.io",
        kind: "CertificateSigningRequest",
        plural: "certificatesigningrequests",
        singular: "certificatesigningrequest",
        short_names: &["csr"],
        namespaced: false,
        subresources: &[
            below("approval", "CertificateSigningRequest", ("certificates.k8s.io", "v1"), STATUS_VERBS),
            own_status("certificates.k8s.io", "v1", "CertificateSigningRequest"),
        ],
        collection: "certificatesigningrequests.certificates.k8s.io",
        fields: &[("spec.signerName", "spec.signerName")],
        rules: &rules::certificates::SigningRequestRules,
        ..PLAIN
    },
    Row {
        group: "coordination.k8s.io",
        kind: "Lease",
        plural: "leases",
        singular: "lease",
        create_on_update: true,
        update_needs_version: true,
        collection: "leases.coordination.k8s.io",
        rules: &rules::lease::LeaseRules,
        ..PLAIN
    },
    Row {
        group: "discovery.k8s.io",
        kind: "EndpointSlice",
        plural: "endpointslices",
        singular: "endpointslice",
        has_generation: true,
        collection: "endpointslices.discovery.k8s.io",
        rules: &rules::endpoints::EndpointSliceRules,
        ..PLAIN
    },
    Row {
        group: "events.k8s.io",
        kind: "Event",
        propagation: None,
        plural: "events",
        singular: "event",
        short_names: &["ev"],
        create_on_update: true,
        face: Some(&rules::event::NEW_FACE),
        collection: "events",
        fields: &[
            ("regarding.kind", "involvedObject.kind"),
            ("regarding.namespace", "involvedObject.namespace"),
            ("regarding.name", "involvedObject.name"),
            ("regarding.uid", "involvedObject.uid"),
            ("regarding.apiVersion", "involvedObject.apiVersion"),
            ("regarding.resourceVersion", "involvedObject.resourceVersion"),
            ("regarding.fieldPath", "involvedObject.fieldPath"),
            ("reason", "reason"),
            ("reportingController", "reportingComponent"),
            ("type", "type"),
        ],
        rules: &rules::event::NewEventRules,
        ..PLAIN
    },
    Row {
        group: "networking.k8s.io",
        kind: "IngressClass",
        plural: "ingressclasses",
        singular: "ingressclass",
        namespaced: false,
        has_generation: true,
        collection: "ingressclasses.networking.k8s.io",
        rules: &rules::plain::IngressClassRules,
        ..PLAIN
    },
    Row {
        group: "networking.k8s.io",
        kind: "Ingress",
        plural: "ingresses",
        singular: "ingress",
        short_names: &["ing"],
        subresources: &[own_status("networking.k8s.io", "v1", "Ingress")],
        has_generation: true,
        collection: "ingresses.networking.k8s.io",
        rules: &rules::plain::IngressRules,
        ..PLAIN
    },
    Row {
        group: "networking.k8s.io",
        kind: "NetworkPolicy",
        plural: "networkpolicies",
        singular: "networkpolicy",
        short_names: &["netpol"],
        has_generation: true,
        collection: "networkpolicies.networking.k8s.io",
        rules: &rules::network_policy::NetworkPolicyRules,
        ..PLAIN
    },
    Row {
        group: "node.k8s.io",
        kind: "RuntimeClass",
        plural: "runtimeclasses",
        singular: "runtimeclass",
        namespaced: false,
        create_on_update: true,
        collection: "runtimeclasses.node.k8s.io",
        rules: &rules::policy::RuntimeClassRules,
        ..PLAIN
    },
    Row {
        group: "policy",
        kind: "PodDisruptionBudget",
        plural: "poddisruptionbudgets",
        singular: "poddisruptionbudget",
        short_names: &["pdb"],
        subresources: &[own_status("policy", "v1", "PodDisruptionBudget")],
        has_generation: true,
        update_needs_version: true,
        collection: "poddisruptionbudgets.policy",
        rules: &rules::policy::BudgetRules,
        ..PLAIN
    },
    Row {
        group: "rbac.authorization.k8s.io",
        kind: "ClusterRoleBinding",
        plural: "clusterrolebindings",
        singular: "clusterrolebinding",
        namespaced: false,
        create_on_update: true,
        collection: "clusterrolebindings.rbac.authorization.k8s.io",
        rules: &rules::rbac::ClusterRoleBindingRules,
        ..PLAIN
    },
    Row {
        group: "rbac.authorization.k8s.io",
        kind: "ClusterRole",
        plural: "clusterroles",
        singular: "clusterrole",
        namespaced: false,
        create_on_update: true,
        collection: "clusterroles.rbac.authorization.k8s.io",
        rules: &rules::rbac::ClusterRoleRules,
        ..PLAIN
    },
    Row {
        group: "rbac.authorization.k8s.io",
        kind: "RoleBinding",
        plural: "rolebindings",
        singular: "rolebinding",
        create_on_update: true,
        collection: "rolebindings.rbac.authorization.k8s.io",
        rules: &rules::rbac::RoleBindingRules,
        ..PLAIN
    },
    Row {
        group: "rbac.authorization.k8s.io",
        kind: "Role",
        plural: "roles",
        singular: "role",
        create_on_update: true,
        collection: "roles.rbac.authorization.k8s.io",
        rules: &rules::rbac::RoleRules,
        ..PLAIN
    },
    Row {
        group: "scheduling.k8s.io",
        kind: "PriorityClass",
        plural: "priorityclasses",
        singular: "priorityclass",
        short_names: &["pc"],
        namespaced: false,
        has_generation: true,
        collection: "priorityclasses.scheduling.k8s.io",
        rules: &rules::policy::PriorityClassRules,
        ..PLAIN
    },
    Row {
        group: "storage.k8s.io",
        kind: "StorageClass",
        plural: "storageclasses",
        singular: "storageclass",
        short_names: &["sc"],
        namespaced: false,
        delete_returns_object: true,
        collection: "storageclasses.storage.k8s.io",
        rules: &rules::storage::StorageClassRules,
        ..PLAIN
    },
];

/// What `scale` speaks: never stored, never listed.
pub(super) static SCALE: Row = Row {
    group: "autoscaling",
    kind: "Scale",
    plural: "scales",
    singular: "scale",
    collection: "scales.autoscaling",
    rules: &rules::review::SCALE,
    ..PLAIN
};

/// What `serviceaccounts/token` speaks.
pub(super) static TOKEN_REQUEST: Row = Row {
    group: "authentication.k8s.io",
    kind: "TokenRequest",
    plural: "tokenrequests",
    singular: "tokenrequest",
    collection: "tokenrequests.authentication.k8s.io",
    rules: &rules::review::TOKEN_REQUEST,
    ..PLAIN
};
