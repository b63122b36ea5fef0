//! The rows themselves.

use super::{Kind, Subresource};
use crate::deletion::Propagation;
use crate::rules;

const ALL_VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const NO_COLLECTION_DELETE: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];
const STATUS_VERBS: &[&str] = &["get", "patch", "update"];
/// Whatever a backend understands.
const PROXY_VERBS: &[&str] = &["create", "delete", "get", "patch", "update"];

/// Kinds that are asked, not kept.
const ASKED: &[&str] = &["create"];

/// `scale`, of everything that has replicas.
const SCALE_BELOW: Subresource =
    Subresource { name: "scale", kind: "Scale", group: "autoscaling", version: "v1", verbs: STATUS_VERBS };

const fn own_status(group: &'static str, version: &'static str, kind: &'static str) -> Subresource {
    Subresource { name: "status", kind, group, version, verbs: STATUS_VERBS }
}

const fn core(name: &'static str, kind: &'static str, verbs: &'static [&'static str]) -> Subresource {
    Subresource { name, kind, group: "", version: "v1", verbs }
}

/// What most kinds have in common; a row states the differences.
const PLAIN: Kind = Kind {
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
pub static KINDS: &[Kind] = &[
    Kind {
        kind: "ConfigMap",
        plural: "configmaps",
        singular: "configmap",
        short_names: &["cm"],
        collection: "configmaps",
        rules: &rules::data::ConfigMapRules,
        ..PLAIN
    },
    Kind {
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
    Kind {
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
    Kind {
        kind: "LimitRange",
        plural: "limitranges",
        singular: "limitrange",
        short_names: &["limits"],
        create_on_update: true,
        collection: "limitranges",
        rules: &rules::policy::LimitRangeRules,
        ..PLAIN
    },
    Kind {
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
    Kind {
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
    Kind {
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
    Kind {
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
    Kind {
        kind: "Pod",
        plural: "pods",
        singular: "pod",
        short_names: &["po"],
        categories: &["all"],
        subresources: &[
            core("attach", "PodAttachOptions", &["create", "get"]),
            core("binding", "Binding", &["create"]),
            core("ephemeralcontainers", "Pod", STATUS_VERBS),
            Subresource { name: "eviction", kind: "Eviction", group: "policy", version: "v1", verbs: &["create"] },
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
    Kind {
        kind: "PodTemplate",
        plural: "podtemplates",
        singular: "podtemplate",
        has_generation: true,
        delete_returns_object: true,
        collection: "podtemplates",
        rules: &rules::workload::revision::PodTemplateRules,
        ..PLAIN
    },
    Kind {
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
    Kind {
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
    Kind {
        kind: "Secret",
        plural: "secrets",
        singular: "secret",
        collection: "secrets",
        fields: &[("type", "type")],
        rules: &rules::data::SecretRules,
        ..PLAIN
    },
    Kind {
        kind: "ServiceAccount",
        plural: "serviceaccounts",
        singular: "serviceaccount",
        short_names: &["sa"],
        subresources: &[Subresource {
            name: "token",
            kind: "TokenRequest",
            group: "authentication.k8s.io",
            version: "v1",
            verbs: &["create"],
        }],
        delete_returns_object: true,
        collection: "serviceaccounts",
        rules: &rules::account::ServiceAccountRules,
        ..PLAIN
    },
    Kind {
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
    Kind {
        group: "apps",
        kind: "ControllerRevision",
        plural: "controllerrevisions",
        singular: "controllerrevision",
        collection: "controllerrevisions.apps",
        rules: &rules::workload::revision::ControllerRevisionRules,
        ..PLAIN
    },
    Kind {
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
    Kind {
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
    Kind {
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
    Kind {
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
    Kind {
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
    Kind {
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
    Kind {
        group: "authorization.k8s.io",
        kind: "LocalSubjectAccessReview",
        plural: "localsubjectaccessreviews",
        singular: "localsubjectaccessreview",
        verbs: ASKED,
        collection: "localsubjectaccessreviews.authorization.k8s.io",
        rules: &rules::review::LOCAL_SUBJECT_ACCESS,
        ..PLAIN
    },
    Kind {
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
    Kind {
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
    Kind {
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
    Kind {
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
    Kind {
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
    Kind {
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
    Kind {
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
    Kind {
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
    Kind {
        group: "discovery.k8s.io",
        kind: "EndpointSlice",
        plural: "endpointslices",
        singular: "endpointslice",
        has_generation: true,
        collection: "endpointslices.discovery.k8s.io",
        rules: &rules::endpoints::EndpointSliceRules,
        ..PLAIN
    },
    Kind {
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
    Kind {
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
    Kind {
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
    Kind {
        group: "networking.k8s.io",
        kind: "NetworkPolicy",
        plural: "networkpolicies",
        singular: "networkpolicy",
        short_names: &["netpol"],
        has_generation: true,
        collection: "networkpolicies.networking.k8s.io",
        rules: &rules::plain::NetworkPolicyRules,
        ..PLAIN
    },
    Kind {
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
    Kind {
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
    Kind {
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
    Kind {
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
    Kind {
        group: "rbac.authorization.k8s.io",
        kind: "RoleBinding",
        plural: "rolebindings",
        singular: "rolebinding",
        create_on_update: true,
        collection: "rolebindings.rbac.authorization.k8s.io",
        rules: &rules::rbac::RoleBindingRules,
        ..PLAIN
    },
    Kind {
        group: "rbac.authorization.k8s.io",
        kind: "Role",
        plural: "roles",
        singular: "role",
        create_on_update: true,
        collection: "roles.rbac.authorization.k8s.io",
        rules: &rules::rbac::RoleRules,
        ..PLAIN
    },
    Kind {
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
    Kind {
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
pub(crate) static SCALE: Kind = Kind {
    group: "autoscaling",
    kind: "Scale",
    plural: "scales",
    singular: "scale",
    collection: "scales.autoscaling",
    rules: &rules::review::SCALE,
    ..PLAIN
};

/// What `serviceaccounts/token` speaks.
pub(crate) static TOKEN_REQUEST: Kind = Kind {
    group: "authentication.k8s.io",
    kind: "TokenRequest",
    plural: "tokenrequests",
    singular: "tokenrequest",
    collection: "tokenrequests.authentication.k8s.io",
    rules: &rules::review::TOKEN_REQUEST,
    ..PLAIN
};
