//! The published messages, field by field: protobuf number, JSON name, type, and how patches treat it.
//!
//! Facts of Kubernetes v1.36.3, written by `cargo xtask schema-table`; the vocabulary is explained in
//! [`super`]. Do not edit.

use super::Type::{Bool, Bytes, Int, IntOrString, MicroTime, Msg, Quantity, Raw, Str, Strings, Time};
use super::{Message, Root, atomic_message, inline, list, map, message, one, root};

pub(super) static ROOTS: &[Root] = &[
    root("", "v1", "DeleteOptions", &META_DELETE_OPTIONS),
    root("", "v1", "PersistentVolume", &CORE_PERSISTENT_VOLUME),
    root("", "v1", "PersistentVolumeClaim", &CORE_PERSISTENT_VOLUME_CLAIM),
    root("", "v1", "Pod", &CORE_POD),
    root("", "v1", "PodTemplate", &CORE_POD_TEMPLATE),
    root("", "v1", "ReplicationController", &CORE_REPLICATION_CONTROLLER),
    root("", "v1", "Service", &CORE_SERVICE),
    root("", "v1", "ServiceAccount", &CORE_SERVICE_ACCOUNT),
    root("", "v1", "Endpoints", &CORE_ENDPOINTS),
    root("", "v1", "Node", &CORE_NODE),
    root("", "v1", "Namespace", &CORE_NAMESPACE),
    root("", "v1", "Binding", &CORE_BINDING),
    root("", "v1", "Event", &CORE_EVENT),
    root("", "v1", "LimitRange", &CORE_LIMIT_RANGE),
    root("", "v1", "ResourceQuota", &CORE_RESOURCE_QUOTA),
    root("", "v1", "Secret", &CORE_SECRET),
    root("", "v1", "ConfigMap", &CORE_CONFIG_MAP),
    root("apps", "v1", "StatefulSet", &APPS_STATEFUL_SET),
    root("apps", "v1", "Deployment", &APPS_DEPLOYMENT),
    root("apps", "v1", "DaemonSet", &APPS_DAEMON_SET),
    root("apps", "v1", "ReplicaSet", &APPS_REPLICA_SET),
    root("apps", "v1", "ControllerRevision", &APPS_CONTROLLER_REVISION),
    root("authentication.k8s.io", "v1", "TokenReview", &AUTHENTICATION_TOKEN_REVIEW),
    root("authentication.k8s.io", "v1", "TokenRequest", &AUTHENTICATION_TOKEN_REQUEST),
    root("authentication.k8s.io", "v1", "SelfSubjectReview", &AUTHENTICATION_SELF_SUBJECT_REVIEW),
    root("authorization.k8s.io", "v1", "SubjectAccessReview", &AUTHORIZATION_SUBJECT_ACCESS_REVIEW),
    root("authorization.k8s.io", "v1", "SelfSubjectAccessReview", &AUTHORIZATION_SELF_SUBJECT_ACCESS_REVIEW),
    root("authorization.k8s.io", "v1", "LocalSubjectAccessReview", &AUTHORIZATION_LOCAL_SUBJECT_ACCESS_REVIEW),
    root("authorization.k8s.io", "v1", "SelfSubjectRulesReview", &AUTHORIZATION_SELF_SUBJECT_RULES_REVIEW),
    root("autoscaling", "v1", "HorizontalPodAutoscaler", &AUTOSCALING_HORIZONTAL_POD_AUTOSCALER),
    root("autoscaling", "v1", "Scale", &AUTOSCALING_SCALE),
    root("autoscaling", "v2", "HorizontalPodAutoscaler", &AUTOSCALING2_HORIZONTAL_POD_AUTOSCALER),
    root("batch", "v1", "Job", &BATCH_JOB),
    root("batch", "v1", "CronJob", &BATCH_CRON_JOB),
    root("certificates.k8s.io", "v1", "CertificateSigningRequest", &CERTIFICATES_CERTIFICATE_SIGNING_REQUEST),
    root("coordination.k8s.io", "v1", "Lease", &COORDINATION_LEASE),
    root("discovery.k8s.io", "v1", "EndpointSlice", &DISCOVERY_ENDPOINT_SLICE),
    root("events.k8s.io", "v1", "Event", &EVENTS_EVENT),
    root("flowcontrol.apiserver.k8s.io", "v1", "FlowSchema", &FLOWCONTROL_FLOW_SCHEMA),
    root("flowcontrol.apiserver.k8s.io", "v1", "PriorityLevelConfiguration", &FLOWCONTROL_PRIORITY_LEVEL_CONFIGURATION),
    root("networking.k8s.io", "v1", "NetworkPolicy", &NETWORKING_NETWORK_POLICY),
    root("networking.k8s.io", "v1", "Ingress", &NETWORKING_INGRESS),
    root("networking.k8s.io", "v1", "IngressClass", &NETWORKING_INGRESS_CLASS),
    root("networking.k8s.io", "v1", "IPAddress", &NETWORKING_IP_ADDRESS),
    root("networking.k8s.io", "v1", "ServiceCIDR", &NETWORKING_SERVICE_CIDR),
    root("node.k8s.io", "v1", "RuntimeClass", &NODE_RUNTIME_CLASS),
    root("policy", "v1", "PodDisruptionBudget", &POLICY_POD_DISRUPTION_BUDGET),
    root("policy", "v1", "Eviction", &POLICY_EVICTION),
    root("rbac.authorization.k8s.io", "v1", "Role", &RBAC_ROLE),
    root("rbac.authorization.k8s.io", "v1", "RoleBinding", &RBAC_ROLE_BINDING),
    root("rbac.authorization.k8s.io", "v1", "ClusterRole", &RBAC_CLUSTER_ROLE),
    root("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", &RBAC_CLUSTER_ROLE_BINDING),
    root("resource.k8s.io", "v1", "ResourceSlice", &RESOURCE_RESOURCE_SLICE),
    root("resource.k8s.io", "v1", "ResourceClaim", &RESOURCE_RESOURCE_CLAIM),
    root("resource.k8s.io", "v1", "DeviceClass", &RESOURCE_DEVICE_CLASS),
    root("resource.k8s.io", "v1", "ResourceClaimTemplate", &RESOURCE_RESOURCE_CLAIM_TEMPLATE),
    root("scheduling.k8s.io", "v1", "PriorityClass", &SCHEDULING_PRIORITY_CLASS),
    root("storage.k8s.io", "v1", "StorageClass", &STORAGE_STORAGE_CLASS),
    root("storage.k8s.io", "v1", "VolumeAttachment", &STORAGE_VOLUME_ATTACHMENT),
    root("storage.k8s.io", "v1", "CSIDriver", &STORAGE_CSI_DRIVER),
    root("storage.k8s.io", "v1", "CSINode", &STORAGE_CSI_NODE),
    root("storage.k8s.io", "v1", "CSIStorageCapacity", &STORAGE_CSI_STORAGE_CAPACITY),
    root("storage.k8s.io", "v1", "VolumeAttributesClass", &STORAGE_VOLUME_ATTRIBUTES_CLASS),
];

static APPS_CONTROLLER_REVISION: Message = message("io.k8s.api.apps.v1", "ControllerRevision", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "data", Raw).omitted(),
    one(3, "revision", Int).always(),
]);

static APPS_DAEMON_SET: Message = message("io.k8s.api.apps.v1", "DaemonSet", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&APPS_DAEMON_SET_SPEC)).always(),
    one(3, "status", Msg(&APPS_DAEMON_SET_STATUS)).always(),
]);

static APPS_DAEMON_SET_CONDITION: Message = message("io.k8s.api.apps.v1", "DaemonSetCondition", &[
    one(1, "type", Str).always(),
    one(2, "status", Str).always(),
    one(3, "lastTransitionTime", Time).omitted(),
    one(4, "reason", Str).omitted(),
    one(5, "message", Str).omitted(),
]);

static APPS_DAEMON_SET_SPEC: Message = message("io.k8s.api.apps.v1", "DaemonSetSpec", &[
    one(1, "selector", Msg(&META_LABEL_SELECTOR)),
    one(2, "template", Msg(&CORE_POD_TEMPLATE_SPEC)).always(),
    one(3, "updateStrategy", Msg(&APPS_DAEMON_SET_UPDATE_STRATEGY)).always(),
    one(4, "minReadySeconds", Int).omitted(),
    one(6, "revisionHistoryLimit", Int),
]);

static APPS_DAEMON_SET_STATUS: Message = message("io.k8s.api.apps.v1", "DaemonSetStatus", &[
    one(1, "currentNumberScheduled", Int).always(),
    one(2, "numberMisscheduled", Int).always(),
    one(3, "desiredNumberScheduled", Int).always(),
    one(4, "numberReady", Int).always(),
    one(5, "observedGeneration", Int).omitted(),
    one(6, "updatedNumberScheduled", Int).omitted(),
    one(7, "numberAvailable", Int).omitted(),
    one(8, "numberUnavailable", Int).omitted(),
    one(9, "collisionCount", Int),
    list(10, "conditions", Msg(&APPS_DAEMON_SET_CONDITION)).keyed(&["type"]).merged("type"),
]);

static APPS_DAEMON_SET_UPDATE_STRATEGY: Message = message("io.k8s.api.apps.v1", "DaemonSetUpdateStrategy", &[
    one(1, "type", Str).omitted(),
    one(2, "rollingUpdate", Msg(&APPS_ROLLING_UPDATE_DAEMON_SET)),
]);

static APPS_DEPLOYMENT: Message = message("io.k8s.api.apps.v1", "Deployment", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&APPS_DEPLOYMENT_SPEC)).always(),
    one(3, "status", Msg(&APPS_DEPLOYMENT_STATUS)).always(),
]);

static APPS_DEPLOYMENT_CONDITION: Message = message("io.k8s.api.apps.v1", "DeploymentCondition", &[
    one(1, "type", Str).always(),
    one(2, "status", Str).always(),
    one(4, "reason", Str).omitted(),
    one(5, "message", Str).omitted(),
    one(6, "lastUpdateTime", Time).omitted(),
    one(7, "lastTransitionTime", Time).omitted(),
]);

static APPS_DEPLOYMENT_SPEC: Message = message("io.k8s.api.apps.v1", "DeploymentSpec", &[
    one(1, "replicas", Int),
    one(2, "selector", Msg(&META_LABEL_SELECTOR)),
    one(3, "template", Msg(&CORE_POD_TEMPLATE_SPEC)).always(),
    one(4, "strategy", Msg(&APPS_DEPLOYMENT_STRATEGY)).always(),
    one(5, "minReadySeconds", Int).omitted(),
    one(6, "revisionHistoryLimit", Int),
    one(7, "paused", Bool).omitted(),
    one(9, "progressDeadlineSeconds", Int),
]);

static APPS_DEPLOYMENT_STATUS: Message = message("io.k8s.api.apps.v1", "DeploymentStatus", &[
    one(1, "observedGeneration", Int).omitted(),
    one(2, "replicas", Int).omitted(),
    one(3, "updatedReplicas", Int).omitted(),
    one(4, "availableReplicas", Int).omitted(),
    one(5, "unavailableReplicas", Int).omitted(),
    list(6, "conditions", Msg(&APPS_DEPLOYMENT_CONDITION)).keyed(&["type"]).merged("type"),
    one(7, "readyReplicas", Int).omitted(),
    one(8, "collisionCount", Int),
    one(9, "terminatingReplicas", Int),
]);

static APPS_DEPLOYMENT_STRATEGY: Message = message("io.k8s.api.apps.v1", "DeploymentStrategy", &[
    one(1, "type", Str).omitted(),
    one(2, "rollingUpdate", Msg(&APPS_ROLLING_UPDATE_DEPLOYMENT)),
]);

static APPS_REPLICA_SET: Message = message("io.k8s.api.apps.v1", "ReplicaSet", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&APPS_REPLICA_SET_SPEC)).always(),
    one(3, "status", Msg(&APPS_REPLICA_SET_STATUS)).always(),
]);

static APPS_REPLICA_SET_CONDITION: Message = message("io.k8s.api.apps.v1", "ReplicaSetCondition", &[
    one(1, "type", Str).always(),
    one(2, "status", Str).always(),
    one(3, "lastTransitionTime", Time).omitted(),
    one(4, "reason", Str).omitted(),
    one(5, "message", Str).omitted(),
]);

static APPS_REPLICA_SET_SPEC: Message = message("io.k8s.api.apps.v1", "ReplicaSetSpec", &[
    one(1, "replicas", Int),
    one(2, "selector", Msg(&META_LABEL_SELECTOR)),
    one(3, "template", Msg(&CORE_POD_TEMPLATE_SPEC)).always(),
    one(4, "minReadySeconds", Int).omitted(),
]);

static APPS_REPLICA_SET_STATUS: Message = message("io.k8s.api.apps.v1", "ReplicaSetStatus", &[
    one(1, "replicas", Int).always(),
    one(2, "fullyLabeledReplicas", Int).omitted(),
    one(3, "observedGeneration", Int).omitted(),
    one(4, "readyReplicas", Int).omitted(),
    one(5, "availableReplicas", Int).omitted(),
    list(6, "conditions", Msg(&APPS_REPLICA_SET_CONDITION)).keyed(&["type"]).merged("type"),
    one(7, "terminatingReplicas", Int),
]);

static APPS_ROLLING_UPDATE_DAEMON_SET: Message = message("io.k8s.api.apps.v1", "RollingUpdateDaemonSet", &[
    one(1, "maxUnavailable", IntOrString),
    one(2, "maxSurge", IntOrString),
]);

static APPS_ROLLING_UPDATE_DEPLOYMENT: Message = message("io.k8s.api.apps.v1", "RollingUpdateDeployment", &[
    one(1, "maxUnavailable", IntOrString),
    one(2, "maxSurge", IntOrString),
]);

static APPS_ROLLING_UPDATE_STATEFUL_SET_STRATEGY: Message = message("io.k8s.api.apps.v1", "RollingUpdateStatefulSetStrategy", &[
    one(1, "partition", Int),
    one(2, "maxUnavailable", IntOrString),
]);

static APPS_STATEFUL_SET: Message = message("io.k8s.api.apps.v1", "StatefulSet", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&APPS_STATEFUL_SET_SPEC)).always(),
    one(3, "status", Msg(&APPS_STATEFUL_SET_STATUS)).always(),
]);

static APPS_STATEFUL_SET_CONDITION: Message = message("io.k8s.api.apps.v1", "StatefulSetCondition", &[
    one(1, "type", Str).always(),
    one(2, "status", Str).always(),
    one(3, "lastTransitionTime", Time).omitted(),
    one(4, "reason", Str).omitted(),
    one(5, "message", Str).omitted(),
]);

static APPS_STATEFUL_SET_ORDINALS: Message = message("io.k8s.api.apps.v1", "StatefulSetOrdinals", &[
    one(1, "start", Int).always(),
]);

static APPS_STATEFUL_SET_PERSISTENT_VOLUME_CLAIM_RETENTION_POLICY: Message = message("io.k8s.api.apps.v1", "StatefulSetPersistentVolumeClaimRetentionPolicy", &[
    one(1, "whenDeleted", Str).omitted(),
    one(2, "whenScaled", Str).omitted(),
]);

static APPS_STATEFUL_SET_SPEC: Message = message("io.k8s.api.apps.v1", "StatefulSetSpec", &[
    one(1, "replicas", Int),
    one(2, "selector", Msg(&META_LABEL_SELECTOR)),
    one(3, "template", Msg(&CORE_POD_TEMPLATE_SPEC)).always(),
    list(4, "volumeClaimTemplates", Msg(&CORE_PERSISTENT_VOLUME_CLAIM)),
    one(5, "serviceName", Str).always(),
    one(6, "podManagementPolicy", Str).omitted(),
    one(7, "updateStrategy", Msg(&APPS_STATEFUL_SET_UPDATE_STRATEGY)).always(),
    one(8, "revisionHistoryLimit", Int),
    one(9, "minReadySeconds", Int).omitted(),
    one(10, "persistentVolumeClaimRetentionPolicy", Msg(&APPS_STATEFUL_SET_PERSISTENT_VOLUME_CLAIM_RETENTION_POLICY)),
    one(11, "ordinals", Msg(&APPS_STATEFUL_SET_ORDINALS)),
]);

static APPS_STATEFUL_SET_STATUS: Message = message("io.k8s.api.apps.v1", "StatefulSetStatus", &[
    one(1, "observedGeneration", Int).omitted(),
    one(2, "replicas", Int).always(),
    one(3, "readyReplicas", Int).omitted(),
    one(4, "currentReplicas", Int).omitted(),
    one(5, "updatedReplicas", Int).omitted(),
    one(6, "currentRevision", Str).omitted(),
    one(7, "updateRevision", Str).omitted(),
    one(9, "collisionCount", Int),
    list(10, "conditions", Msg(&APPS_STATEFUL_SET_CONDITION)).keyed(&["type"]).merged("type"),
    one(11, "availableReplicas", Int).always(),
]);

static APPS_STATEFUL_SET_UPDATE_STRATEGY: Message = message("io.k8s.api.apps.v1", "StatefulSetUpdateStrategy", &[
    one(1, "type", Str).omitted(),
    one(2, "rollingUpdate", Msg(&APPS_ROLLING_UPDATE_STATEFUL_SET_STRATEGY)),
]);

static AUTHENTICATION_BOUND_OBJECT_REFERENCE: Message = message("io.k8s.api.authentication.v1", "BoundObjectReference", &[
    one(1, "kind", Str).omitted(),
    one(2, "apiVersion", Str).omitted(),
    one(3, "name", Str).omitted(),
    one(4, "uid", Str).omitted(),
]);

static AUTHENTICATION_SELF_SUBJECT_REVIEW: Message = message("io.k8s.api.authentication.v1", "SelfSubjectReview", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "status", Msg(&AUTHENTICATION_SELF_SUBJECT_REVIEW_STATUS)).always(),
]);

static AUTHENTICATION_SELF_SUBJECT_REVIEW_STATUS: Message = message("io.k8s.api.authentication.v1", "SelfSubjectReviewStatus", &[
    one(1, "userInfo", Msg(&AUTHENTICATION_USER_INFO)).always(),
]);

static AUTHENTICATION_TOKEN_REQUEST: Message = message("io.k8s.api.authentication.v1", "TokenRequest", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&AUTHENTICATION_TOKEN_REQUEST_SPEC)).always(),
    one(3, "status", Msg(&AUTHENTICATION_TOKEN_REQUEST_STATUS)).always(),
]);

static AUTHENTICATION_TOKEN_REQUEST_SPEC: Message = message("io.k8s.api.authentication.v1", "TokenRequestSpec", &[
    list(1, "audiences", Str).always(),
    one(3, "boundObjectRef", Msg(&AUTHENTICATION_BOUND_OBJECT_REFERENCE)),
    one(4, "expirationSeconds", Int),
]);

static AUTHENTICATION_TOKEN_REQUEST_STATUS: Message = message("io.k8s.api.authentication.v1", "TokenRequestStatus", &[
    one(1, "token", Str).always(),
    one(2, "expirationTimestamp", Time).always(),
]);

static AUTHENTICATION_TOKEN_REVIEW: Message = message("io.k8s.api.authentication.v1", "TokenReview", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&AUTHENTICATION_TOKEN_REVIEW_SPEC)).always(),
    one(3, "status", Msg(&AUTHENTICATION_TOKEN_REVIEW_STATUS)).always(),
]);

static AUTHENTICATION_TOKEN_REVIEW_SPEC: Message = message("io.k8s.api.authentication.v1", "TokenReviewSpec", &[
    one(1, "token", Str).omitted(),
    list(2, "audiences", Str),
]);

static AUTHENTICATION_TOKEN_REVIEW_STATUS: Message = message("io.k8s.api.authentication.v1", "TokenReviewStatus", &[
    one(1, "authenticated", Bool).omitted(),
    one(2, "user", Msg(&AUTHENTICATION_USER_INFO)).always(),
    one(3, "error", Str).omitted(),
    list(4, "audiences", Str),
]);

static AUTHENTICATION_USER_INFO: Message = message("io.k8s.api.authentication.v1", "UserInfo", &[
    one(1, "username", Str).omitted(),
    one(2, "uid", Str).omitted(),
    list(3, "groups", Str),
    map(4, "extra", Strings),
]);

static AUTHORIZATION_FIELD_SELECTOR_ATTRIBUTES: Message = message("io.k8s.api.authorization.v1", "FieldSelectorAttributes", &[
    one(1, "rawSelector", Str).omitted(),
    list(2, "requirements", Msg(&META_FIELD_SELECTOR_REQUIREMENT)),
]);

static AUTHORIZATION_LABEL_SELECTOR_ATTRIBUTES: Message = message("io.k8s.api.authorization.v1", "LabelSelectorAttributes", &[
    one(1, "rawSelector", Str).omitted(),
    list(2, "requirements", Msg(&META_LABEL_SELECTOR_REQUIREMENT)),
]);

static AUTHORIZATION_LOCAL_SUBJECT_ACCESS_REVIEW: Message = message("io.k8s.api.authorization.v1", "LocalSubjectAccessReview", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&AUTHORIZATION_SUBJECT_ACCESS_REVIEW_SPEC)).always(),
    one(3, "status", Msg(&AUTHORIZATION_SUBJECT_ACCESS_REVIEW_STATUS)).always(),
]);

static AUTHORIZATION_NON_RESOURCE_ATTRIBUTES: Message = message("io.k8s.api.authorization.v1", "NonResourceAttributes", &[
    one(1, "path", Str).omitted(),
    one(2, "verb", Str).omitted(),
]);

static AUTHORIZATION_NON_RESOURCE_RULE: Message = message("io.k8s.api.authorization.v1", "NonResourceRule", &[
    list(1, "verbs", Str).always(),
    list(2, "nonResourceURLs", Str),
]);

static AUTHORIZATION_RESOURCE_ATTRIBUTES: Message = message("io.k8s.api.authorization.v1", "ResourceAttributes", &[
    one(1, "namespace", Str).omitted(),
    one(2, "verb", Str).omitted(),
    one(3, "group", Str).omitted(),
    one(4, "version", Str).omitted(),
    one(5, "resource", Str).omitted(),
    one(6, "subresource", Str).omitted(),
    one(7, "name", Str).omitted(),
    one(8, "fieldSelector", Msg(&AUTHORIZATION_FIELD_SELECTOR_ATTRIBUTES)),
    one(9, "labelSelector", Msg(&AUTHORIZATION_LABEL_SELECTOR_ATTRIBUTES)),
]);

static AUTHORIZATION_RESOURCE_RULE: Message = message("io.k8s.api.authorization.v1", "ResourceRule", &[
    list(1, "verbs", Str).always(),
    list(2, "apiGroups", Str),
    list(3, "resources", Str),
    list(4, "resourceNames", Str),
]);

static AUTHORIZATION_SELF_SUBJECT_ACCESS_REVIEW: Message = message("io.k8s.api.authorization.v1", "SelfSubjectAccessReview", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&AUTHORIZATION_SELF_SUBJECT_ACCESS_REVIEW_SPEC)).always(),
    one(3, "status", Msg(&AUTHORIZATION_SUBJECT_ACCESS_REVIEW_STATUS)).always(),
]);

static AUTHORIZATION_SELF_SUBJECT_ACCESS_REVIEW_SPEC: Message = message("io.k8s.api.authorization.v1", "SelfSubjectAccessReviewSpec", &[
    one(1, "resourceAttributes", Msg(&AUTHORIZATION_RESOURCE_ATTRIBUTES)),
    one(2, "nonResourceAttributes", Msg(&AUTHORIZATION_NON_RESOURCE_ATTRIBUTES)),
]);

static AUTHORIZATION_SELF_SUBJECT_RULES_REVIEW: Message = message("io.k8s.api.authorization.v1", "SelfSubjectRulesReview", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&AUTHORIZATION_SELF_SUBJECT_RULES_REVIEW_SPEC)).always(),
    one(3, "status", Msg(&AUTHORIZATION_SUBJECT_RULES_REVIEW_STATUS)).always(),
]);

static AUTHORIZATION_SELF_SUBJECT_RULES_REVIEW_SPEC: Message = message("io.k8s.api.authorization.v1", "SelfSubjectRulesReviewSpec", &[
    one(1, "namespace", Str).omitted(),
]);

static AUTHORIZATION_SUBJECT_ACCESS_REVIEW: Message = message("io.k8s.api.authorization.v1", "SubjectAccessReview", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&AUTHORIZATION_SUBJECT_ACCESS_REVIEW_SPEC)).always(),
    one(3, "status", Msg(&AUTHORIZATION_SUBJECT_ACCESS_REVIEW_STATUS)).always(),
]);

static AUTHORIZATION_SUBJECT_ACCESS_REVIEW_SPEC: Message = message("io.k8s.api.authorization.v1", "SubjectAccessReviewSpec", &[
    one(1, "resourceAttributes", Msg(&AUTHORIZATION_RESOURCE_ATTRIBUTES)),
    one(2, "nonResourceAttributes", Msg(&AUTHORIZATION_NON_RESOURCE_ATTRIBUTES)),
    one(3, "user", Str).omitted(),
    list(4, "groups", Str),
    map(5, "extra", Strings),
    one(6, "uid", Str).omitted(),
]);

static AUTHORIZATION_SUBJECT_ACCESS_REVIEW_STATUS: Message = message("io.k8s.api.authorization.v1", "SubjectAccessReviewStatus", &[
    one(1, "allowed", Bool).always(),
    one(2, "reason", Str).omitted(),
    one(3, "evaluationError", Str).omitted(),
    one(4, "denied", Bool).omitted(),
]);

static AUTHORIZATION_SUBJECT_RULES_REVIEW_STATUS: Message = message("io.k8s.api.authorization.v1", "SubjectRulesReviewStatus", &[
    list(1, "resourceRules", Msg(&AUTHORIZATION_RESOURCE_RULE)).always(),
    list(2, "nonResourceRules", Msg(&AUTHORIZATION_NON_RESOURCE_RULE)).always(),
    one(3, "incomplete", Bool).always(),
    one(4, "evaluationError", Str).omitted(),
]);

static AUTOSCALING2_CONTAINER_RESOURCE_METRIC_SOURCE: Message = message("io.k8s.api.autoscaling.v2", "ContainerResourceMetricSource", &[
    one(1, "name", Str).always(),
    one(2, "target", Msg(&AUTOSCALING2_METRIC_TARGET)).always(),
    one(3, "container", Str).always(),
]);

static AUTOSCALING2_CONTAINER_RESOURCE_METRIC_STATUS: Message = message("io.k8s.api.autoscaling.v2", "ContainerResourceMetricStatus", &[
    one(1, "name", Str).always(),
    one(2, "current", Msg(&AUTOSCALING2_METRIC_VALUE_STATUS)).always(),
    one(3, "container", Str).always(),
]);

static AUTOSCALING2_CROSS_VERSION_OBJECT_REFERENCE: Message = message("io.k8s.api.autoscaling.v2", "CrossVersionObjectReference", &[
    one(1, "kind", Str).always(),
    one(2, "name", Str).always(),
    one(3, "apiVersion", Str).omitted(),
]);

static AUTOSCALING2_EXTERNAL_METRIC_SOURCE: Message = message("io.k8s.api.autoscaling.v2", "ExternalMetricSource", &[
    one(1, "metric", Msg(&AUTOSCALING2_METRIC_IDENTIFIER)).always(),
    one(2, "target", Msg(&AUTOSCALING2_METRIC_TARGET)).always(),
]);

static AUTOSCALING2_EXTERNAL_METRIC_STATUS: Message = message("io.k8s.api.autoscaling.v2", "ExternalMetricStatus", &[
    one(1, "metric", Msg(&AUTOSCALING2_METRIC_IDENTIFIER)).always(),
    one(2, "current", Msg(&AUTOSCALING2_METRIC_VALUE_STATUS)).always(),
]);

static AUTOSCALING2_HORIZONTAL_POD_AUTOSCALER: Message = message("io.k8s.api.autoscaling.v2", "HorizontalPodAutoscaler", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&AUTOSCALING2_HORIZONTAL_POD_AUTOSCALER_SPEC)).always(),
    one(3, "status", Msg(&AUTOSCALING2_HORIZONTAL_POD_AUTOSCALER_STATUS)).always(),
]);

static AUTOSCALING2_HORIZONTAL_POD_AUTOSCALER_BEHAVIOR: Message = message("io.k8s.api.autoscaling.v2", "HorizontalPodAutoscalerBehavior", &[
    one(1, "scaleUp", Msg(&AUTOSCALING2_HPA_SCALING_RULES)),
    one(2, "scaleDown", Msg(&AUTOSCALING2_HPA_SCALING_RULES)),
]);

static AUTOSCALING2_HORIZONTAL_POD_AUTOSCALER_CONDITION: Message = message("io.k8s.api.autoscaling.v2", "HorizontalPodAutoscalerCondition", &[
    one(1, "type", Str).always(),
    one(2, "status", Str).always(),
    one(3, "lastTransitionTime", Time).omitted(),
    one(4, "reason", Str).omitted(),
    one(5, "message", Str).omitted(),
]);

static AUTOSCALING2_HORIZONTAL_POD_AUTOSCALER_SPEC: Message = message("io.k8s.api.autoscaling.v2", "HorizontalPodAutoscalerSpec", &[
    one(1, "scaleTargetRef", Msg(&AUTOSCALING2_CROSS_VERSION_OBJECT_REFERENCE)).always(),
    one(2, "minReplicas", Int),
    one(3, "maxReplicas", Int).always(),
    list(4, "metrics", Msg(&AUTOSCALING2_METRIC_SPEC)),
    one(5, "behavior", Msg(&AUTOSCALING2_HORIZONTAL_POD_AUTOSCALER_BEHAVIOR)),
]);

static AUTOSCALING2_HORIZONTAL_POD_AUTOSCALER_STATUS: Message = message("io.k8s.api.autoscaling.v2", "HorizontalPodAutoscalerStatus", &[
    one(1, "observedGeneration", Int),
    one(2, "lastScaleTime", Time),
    one(3, "currentReplicas", Int).omitted(),
    one(4, "desiredReplicas", Int).always(),
    list(5, "currentMetrics", Msg(&AUTOSCALING2_METRIC_STATUS)).always(),
    list(6, "conditions", Msg(&AUTOSCALING2_HORIZONTAL_POD_AUTOSCALER_CONDITION)).keyed(&["type"]).merged("type"),
]);

static AUTOSCALING2_HPA_SCALING_POLICY: Message = message("io.k8s.api.autoscaling.v2", "HPAScalingPolicy", &[
    one(1, "type", Str).always(),
    one(2, "value", Int).always(),
    one(3, "periodSeconds", Int).always(),
]);

static AUTOSCALING2_HPA_SCALING_RULES: Message = message("io.k8s.api.autoscaling.v2", "HPAScalingRules", &[
    one(1, "selectPolicy", Str),
    list(2, "policies", Msg(&AUTOSCALING2_HPA_SCALING_POLICY)),
    one(3, "stabilizationWindowSeconds", Int),
    one(4, "tolerance", Quantity),
]);

static AUTOSCALING2_METRIC_IDENTIFIER: Message = message("io.k8s.api.autoscaling.v2", "MetricIdentifier", &[
    one(1, "name", Str).always(),
    one(2, "selector", Msg(&META_LABEL_SELECTOR)),
]);

static AUTOSCALING2_METRIC_SPEC: Message = message("io.k8s.api.autoscaling.v2", "MetricSpec", &[
    one(1, "type", Str).always(),
    one(2, "object", Msg(&AUTOSCALING2_OBJECT_METRIC_SOURCE)),
    one(3, "pods", Msg(&AUTOSCALING2_PODS_METRIC_SOURCE)),
    one(4, "resource", Msg(&AUTOSCALING2_RESOURCE_METRIC_SOURCE)),
    one(5, "external", Msg(&AUTOSCALING2_EXTERNAL_METRIC_SOURCE)),
    one(7, "containerResource", Msg(&AUTOSCALING2_CONTAINER_RESOURCE_METRIC_SOURCE)),
]);

static AUTOSCALING2_METRIC_STATUS: Message = message("io.k8s.api.autoscaling.v2", "MetricStatus", &[
    one(1, "type", Str).always(),
    one(2, "object", Msg(&AUTOSCALING2_OBJECT_METRIC_STATUS)),
    one(3, "pods", Msg(&AUTOSCALING2_PODS_METRIC_STATUS)),
    one(4, "resource", Msg(&AUTOSCALING2_RESOURCE_METRIC_STATUS)),
    one(5, "external", Msg(&AUTOSCALING2_EXTERNAL_METRIC_STATUS)),
    one(7, "containerResource", Msg(&AUTOSCALING2_CONTAINER_RESOURCE_METRIC_STATUS)),
]);

static AUTOSCALING2_METRIC_TARGET: Message = message("io.k8s.api.autoscaling.v2", "MetricTarget", &[
    one(1, "type", Str).always(),
    one(2, "value", Quantity),
    one(3, "averageValue", Quantity),
    one(4, "averageUtilization", Int),
]);

static AUTOSCALING2_METRIC_VALUE_STATUS: Message = message("io.k8s.api.autoscaling.v2", "MetricValueStatus", &[
    one(1, "value", Quantity),
    one(2, "averageValue", Quantity),
    one(3, "averageUtilization", Int),
]);

static AUTOSCALING2_OBJECT_METRIC_SOURCE: Message = message("io.k8s.api.autoscaling.v2", "ObjectMetricSource", &[
    one(1, "describedObject", Msg(&AUTOSCALING2_CROSS_VERSION_OBJECT_REFERENCE)).always(),
    one(2, "target", Msg(&AUTOSCALING2_METRIC_TARGET)).always(),
    one(3, "metric", Msg(&AUTOSCALING2_METRIC_IDENTIFIER)).always(),
]);

static AUTOSCALING2_OBJECT_METRIC_STATUS: Message = message("io.k8s.api.autoscaling.v2", "ObjectMetricStatus", &[
    one(1, "metric", Msg(&AUTOSCALING2_METRIC_IDENTIFIER)).always(),
    one(2, "current", Msg(&AUTOSCALING2_METRIC_VALUE_STATUS)).always(),
    one(3, "describedObject", Msg(&AUTOSCALING2_CROSS_VERSION_OBJECT_REFERENCE)).always(),
]);

static AUTOSCALING2_PODS_METRIC_SOURCE: Message = message("io.k8s.api.autoscaling.v2", "PodsMetricSource", &[
    one(1, "metric", Msg(&AUTOSCALING2_METRIC_IDENTIFIER)).always(),
    one(2, "target", Msg(&AUTOSCALING2_METRIC_TARGET)).always(),
]);

static AUTOSCALING2_PODS_METRIC_STATUS: Message = message("io.k8s.api.autoscaling.v2", "PodsMetricStatus", &[
    one(1, "metric", Msg(&AUTOSCALING2_METRIC_IDENTIFIER)).always(),
    one(2, "current", Msg(&AUTOSCALING2_METRIC_VALUE_STATUS)).always(),
]);

static AUTOSCALING2_RESOURCE_METRIC_SOURCE: Message = message("io.k8s.api.autoscaling.v2", "ResourceMetricSource", &[
    one(1, "name", Str).always(),
    one(2, "target", Msg(&AUTOSCALING2_METRIC_TARGET)).always(),
]);

static AUTOSCALING2_RESOURCE_METRIC_STATUS: Message = message("io.k8s.api.autoscaling.v2", "ResourceMetricStatus", &[
    one(1, "name", Str).always(),
    one(2, "current", Msg(&AUTOSCALING2_METRIC_VALUE_STATUS)).always(),
]);

static AUTOSCALING_CROSS_VERSION_OBJECT_REFERENCE: Message = atomic_message("io.k8s.api.autoscaling.v1", "CrossVersionObjectReference", &[
    one(1, "kind", Str).always(),
    one(2, "name", Str).always(),
    one(3, "apiVersion", Str).omitted(),
]);

static AUTOSCALING_HORIZONTAL_POD_AUTOSCALER: Message = message("io.k8s.api.autoscaling.v1", "HorizontalPodAutoscaler", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&AUTOSCALING_HORIZONTAL_POD_AUTOSCALER_SPEC)).always(),
    one(3, "status", Msg(&AUTOSCALING_HORIZONTAL_POD_AUTOSCALER_STATUS)).always(),
]);

static AUTOSCALING_HORIZONTAL_POD_AUTOSCALER_SPEC: Message = message("io.k8s.api.autoscaling.v1", "HorizontalPodAutoscalerSpec", &[
    one(1, "scaleTargetRef", Msg(&AUTOSCALING_CROSS_VERSION_OBJECT_REFERENCE)).always(),
    one(2, "minReplicas", Int),
    one(3, "maxReplicas", Int).always(),
    one(4, "targetCPUUtilizationPercentage", Int),
]);

static AUTOSCALING_HORIZONTAL_POD_AUTOSCALER_STATUS: Message = message("io.k8s.api.autoscaling.v1", "HorizontalPodAutoscalerStatus", &[
    one(1, "observedGeneration", Int),
    one(2, "lastScaleTime", Time),
    one(3, "currentReplicas", Int).always(),
    one(4, "desiredReplicas", Int).always(),
    one(5, "currentCPUUtilizationPercentage", Int),
]);

static AUTOSCALING_SCALE: Message = message("io.k8s.api.autoscaling.v1", "Scale", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&AUTOSCALING_SCALE_SPEC)).always(),
    one(3, "status", Msg(&AUTOSCALING_SCALE_STATUS)).always(),
]);

static AUTOSCALING_SCALE_SPEC: Message = message("io.k8s.api.autoscaling.v1", "ScaleSpec", &[
    one(1, "replicas", Int).omitted(),
]);

static AUTOSCALING_SCALE_STATUS: Message = message("io.k8s.api.autoscaling.v1", "ScaleStatus", &[
    one(1, "replicas", Int).always(),
    one(2, "selector", Str).omitted(),
]);

static BATCH_CRON_JOB: Message = message("io.k8s.api.batch.v1", "CronJob", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&BATCH_CRON_JOB_SPEC)).always(),
    one(3, "status", Msg(&BATCH_CRON_JOB_STATUS)).always(),
]);

static BATCH_CRON_JOB_SPEC: Message = message("io.k8s.api.batch.v1", "CronJobSpec", &[
    one(1, "schedule", Str).always(),
    one(2, "startingDeadlineSeconds", Int),
    one(3, "concurrencyPolicy", Str).omitted(),
    one(4, "suspend", Bool),
    one(5, "jobTemplate", Msg(&BATCH_JOB_TEMPLATE_SPEC)).always(),
    one(6, "successfulJobsHistoryLimit", Int),
    one(7, "failedJobsHistoryLimit", Int),
    one(8, "timeZone", Str),
]);

static BATCH_CRON_JOB_STATUS: Message = message("io.k8s.api.batch.v1", "CronJobStatus", &[
    list(1, "active", Msg(&CORE_OBJECT_REFERENCE)),
    one(4, "lastScheduleTime", Time),
    one(5, "lastSuccessfulTime", Time),
]);

static BATCH_JOB: Message = message("io.k8s.api.batch.v1", "Job", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&BATCH_JOB_SPEC)).always(),
    one(3, "status", Msg(&BATCH_JOB_STATUS)).always(),
]);

static BATCH_JOB_CONDITION: Message = message("io.k8s.api.batch.v1", "JobCondition", &[
    one(1, "type", Str).always(),
    one(2, "status", Str).always(),
    one(3, "lastProbeTime", Time).omitted(),
    one(4, "lastTransitionTime", Time).omitted(),
    one(5, "reason", Str).omitted(),
    one(6, "message", Str).omitted(),
]);

static BATCH_JOB_SPEC: Message = message("io.k8s.api.batch.v1", "JobSpec", &[
    one(1, "parallelism", Int),
    one(2, "completions", Int),
    one(3, "activeDeadlineSeconds", Int),
    one(4, "selector", Msg(&META_LABEL_SELECTOR)),
    one(5, "manualSelector", Bool),
    one(6, "template", Msg(&CORE_POD_TEMPLATE_SPEC)).always(),
    one(7, "backoffLimit", Int),
    one(8, "ttlSecondsAfterFinished", Int),
    one(9, "completionMode", Str),
    one(10, "suspend", Bool),
    one(11, "podFailurePolicy", Msg(&BATCH_POD_FAILURE_POLICY)),
    one(12, "backoffLimitPerIndex", Int),
    one(13, "maxFailedIndexes", Int),
    one(14, "podReplacementPolicy", Str),
    one(15, "managedBy", Str),
    one(16, "successPolicy", Msg(&BATCH_SUCCESS_POLICY)),
]);

static BATCH_JOB_STATUS: Message = message("io.k8s.api.batch.v1", "JobStatus", &[
    list(1, "conditions", Msg(&BATCH_JOB_CONDITION)).merged("type"),
    one(2, "startTime", Time),
    one(3, "completionTime", Time),
    one(4, "active", Int).omitted(),
    one(5, "succeeded", Int).omitted(),
    one(6, "failed", Int).omitted(),
    one(7, "completedIndexes", Str).omitted(),
    one(8, "uncountedTerminatedPods", Msg(&BATCH_UNCOUNTED_TERMINATED_PODS)),
    one(9, "ready", Int),
    one(10, "failedIndexes", Str),
    one(11, "terminating", Int),
]);

static BATCH_JOB_TEMPLATE_SPEC: Message = message("io.k8s.api.batch.v1", "JobTemplateSpec", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&BATCH_JOB_SPEC)).always(),
]);

static BATCH_POD_FAILURE_POLICY: Message = message("io.k8s.api.batch.v1", "PodFailurePolicy", &[
    list(1, "rules", Msg(&BATCH_POD_FAILURE_POLICY_RULE)).always(),
]);

static BATCH_POD_FAILURE_POLICY_ON_EXIT_CODES_REQUIREMENT: Message = message("io.k8s.api.batch.v1", "PodFailurePolicyOnExitCodesRequirement", &[
    one(1, "containerName", Str),
    one(2, "operator", Str).always(),
    list(3, "values", Int).always().set(),
]);

static BATCH_POD_FAILURE_POLICY_ON_POD_CONDITIONS_PATTERN: Message = message("io.k8s.api.batch.v1", "PodFailurePolicyOnPodConditionsPattern", &[
    one(1, "type", Str).always(),
    one(2, "status", Str).always(),
]);

static BATCH_POD_FAILURE_POLICY_RULE: Message = message("io.k8s.api.batch.v1", "PodFailurePolicyRule", &[
    one(1, "action", Str).always(),
    one(2, "onExitCodes", Msg(&BATCH_POD_FAILURE_POLICY_ON_EXIT_CODES_REQUIREMENT)),
    list(3, "onPodConditions", Msg(&BATCH_POD_FAILURE_POLICY_ON_POD_CONDITIONS_PATTERN)),
]);

static BATCH_SUCCESS_POLICY: Message = message("io.k8s.api.batch.v1", "SuccessPolicy", &[
    list(1, "rules", Msg(&BATCH_SUCCESS_POLICY_RULE)).always(),
]);

static BATCH_SUCCESS_POLICY_RULE: Message = message("io.k8s.api.batch.v1", "SuccessPolicyRule", &[
    one(1, "succeededIndexes", Str),
    one(2, "succeededCount", Int),
]);

static BATCH_UNCOUNTED_TERMINATED_PODS: Message = message("io.k8s.api.batch.v1", "UncountedTerminatedPods", &[
    list(1, "succeeded", Str).set(),
    list(2, "failed", Str).set(),
]);

static CERTIFICATES_CERTIFICATE_SIGNING_REQUEST: Message = message("io.k8s.api.certificates.v1", "CertificateSigningRequest", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&CERTIFICATES_CERTIFICATE_SIGNING_REQUEST_SPEC)).always(),
    one(3, "status", Msg(&CERTIFICATES_CERTIFICATE_SIGNING_REQUEST_STATUS)).always(),
]);

static CERTIFICATES_CERTIFICATE_SIGNING_REQUEST_CONDITION: Message = message("io.k8s.api.certificates.v1", "CertificateSigningRequestCondition", &[
    one(1, "type", Str).always(),
    one(2, "reason", Str).omitted(),
    one(3, "message", Str).omitted(),
    one(4, "lastUpdateTime", Time).omitted(),
    one(5, "lastTransitionTime", Time).omitted(),
    one(6, "status", Str).always(),
]);

static CERTIFICATES_CERTIFICATE_SIGNING_REQUEST_SPEC: Message = message("io.k8s.api.certificates.v1", "CertificateSigningRequestSpec", &[
    one(1, "request", Bytes).always(),
    one(2, "username", Str).omitted(),
    one(3, "uid", Str).omitted(),
    list(4, "groups", Str),
    list(5, "usages", Str),
    map(6, "extra", Strings),
    one(7, "signerName", Str).always(),
    one(8, "expirationSeconds", Int),
]);

static CERTIFICATES_CERTIFICATE_SIGNING_REQUEST_STATUS: Message = message("io.k8s.api.certificates.v1", "CertificateSigningRequestStatus", &[
    list(1, "conditions", Msg(&CERTIFICATES_CERTIFICATE_SIGNING_REQUEST_CONDITION)).keyed(&["type"]),
    one(2, "certificate", Bytes).omitted(),
]);

static COORDINATION_LEASE: Message = message("io.k8s.api.coordination.v1", "Lease", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&COORDINATION_LEASE_SPEC)).always(),
]);

static COORDINATION_LEASE_SPEC: Message = message("io.k8s.api.coordination.v1", "LeaseSpec", &[
    one(1, "holderIdentity", Str),
    one(2, "leaseDurationSeconds", Int),
    one(3, "acquireTime", MicroTime),
    one(4, "renewTime", MicroTime),
    one(5, "leaseTransitions", Int),
    one(6, "strategy", Str),
    one(7, "preferredHolder", Str),
]);

static CORE_AFFINITY: Message = message("io.k8s.api.core.v1", "Affinity", &[
    one(1, "nodeAffinity", Msg(&CORE_NODE_AFFINITY)),
    one(2, "podAffinity", Msg(&CORE_POD_AFFINITY)),
    one(3, "podAntiAffinity", Msg(&CORE_POD_ANTI_AFFINITY)),
]);

static CORE_APP_ARMOR_PROFILE: Message = message("io.k8s.api.core.v1", "AppArmorProfile", &[
    one(1, "type", Str).always(),
    one(2, "localhostProfile", Str),
]);

static CORE_ATTACHED_VOLUME: Message = message("io.k8s.api.core.v1", "AttachedVolume", &[
    one(1, "name", Str).always(),
    one(2, "devicePath", Str).always(),
]);

static CORE_AWS_ELASTIC_BLOCK_STORE_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "AWSElasticBlockStoreVolumeSource", &[
    one(1, "volumeID", Str).always(),
    one(2, "fsType", Str).omitted(),
    one(3, "partition", Int).omitted(),
    one(4, "readOnly", Bool).omitted(),
]);

static CORE_AZURE_DISK_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "AzureDiskVolumeSource", &[
    one(1, "diskName", Str).always(),
    one(2, "diskURI", Str).always(),
    one(3, "cachingMode", Str),
    one(4, "fsType", Str),
    one(5, "readOnly", Bool),
    one(6, "kind", Str),
]);

static CORE_AZURE_FILE_PERSISTENT_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "AzureFilePersistentVolumeSource", &[
    one(1, "secretName", Str).always(),
    one(2, "shareName", Str).always(),
    one(3, "readOnly", Bool).omitted(),
    one(4, "secretNamespace", Str),
]);

static CORE_AZURE_FILE_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "AzureFileVolumeSource", &[
    one(1, "secretName", Str).always(),
    one(2, "shareName", Str).always(),
    one(3, "readOnly", Bool).omitted(),
]);

static CORE_BINDING: Message = message("io.k8s.api.core.v1", "Binding", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "target", Msg(&CORE_OBJECT_REFERENCE)).always(),
]);

static CORE_CAPABILITIES: Message = message("io.k8s.api.core.v1", "Capabilities", &[
    list(1, "add", Str),
    list(2, "drop", Str),
]);

static CORE_CEPH_FS_PERSISTENT_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "CephFSPersistentVolumeSource", &[
    list(1, "monitors", Str).always(),
    one(2, "path", Str).omitted(),
    one(3, "user", Str).omitted(),
    one(4, "secretFile", Str).omitted(),
    one(5, "secretRef", Msg(&CORE_SECRET_REFERENCE)),
    one(6, "readOnly", Bool).omitted(),
]);

static CORE_CEPH_FS_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "CephFSVolumeSource", &[
    list(1, "monitors", Str).always(),
    one(2, "path", Str).omitted(),
    one(3, "user", Str).omitted(),
    one(4, "secretFile", Str).omitted(),
    one(5, "secretRef", Msg(&CORE_LOCAL_OBJECT_REFERENCE)),
    one(6, "readOnly", Bool).omitted(),
]);

static CORE_CINDER_PERSISTENT_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "CinderPersistentVolumeSource", &[
    one(1, "volumeID", Str).always(),
    one(2, "fsType", Str).omitted(),
    one(3, "readOnly", Bool).omitted(),
    one(4, "secretRef", Msg(&CORE_SECRET_REFERENCE)),
]);

static CORE_CINDER_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "CinderVolumeSource", &[
    one(1, "volumeID", Str).always(),
    one(2, "fsType", Str).omitted(),
    one(3, "readOnly", Bool).omitted(),
    one(4, "secretRef", Msg(&CORE_LOCAL_OBJECT_REFERENCE)),
]);

static CORE_CLIENT_IP_CONFIG: Message = message("io.k8s.api.core.v1", "ClientIPConfig", &[
    one(1, "timeoutSeconds", Int),
]);

static CORE_CLUSTER_TRUST_BUNDLE_PROJECTION: Message = message("io.k8s.api.core.v1", "ClusterTrustBundleProjection", &[
    one(1, "name", Str),
    one(2, "signerName", Str),
    one(3, "labelSelector", Msg(&META_LABEL_SELECTOR)),
    one(4, "path", Str).always(),
    one(5, "optional", Bool),
]);

static CORE_CONFIG_MAP: Message = message("io.k8s.api.core.v1", "ConfigMap", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    map(2, "data", Str),
    map(3, "binaryData", Bytes),
    one(4, "immutable", Bool),
]);

static CORE_CONFIG_MAP_ENV_SOURCE: Message = message("io.k8s.api.core.v1", "ConfigMapEnvSource", &[
    inline(1, Msg(&CORE_LOCAL_OBJECT_REFERENCE)),
    one(2, "optional", Bool),
]);

static CORE_CONFIG_MAP_KEY_SELECTOR: Message = atomic_message("io.k8s.api.core.v1", "ConfigMapKeySelector", &[
    inline(1, Msg(&CORE_LOCAL_OBJECT_REFERENCE)),
    one(2, "key", Str).always(),
    one(3, "optional", Bool),
]);

static CORE_CONFIG_MAP_NODE_CONFIG_SOURCE: Message = message("io.k8s.api.core.v1", "ConfigMapNodeConfigSource", &[
    one(1, "namespace", Str).always(),
    one(2, "name", Str).always(),
    one(3, "uid", Str).omitted(),
    one(4, "resourceVersion", Str).omitted(),
    one(5, "kubeletConfigKey", Str).always(),
]);

static CORE_CONFIG_MAP_PROJECTION: Message = message("io.k8s.api.core.v1", "ConfigMapProjection", &[
    inline(1, Msg(&CORE_LOCAL_OBJECT_REFERENCE)),
    list(2, "items", Msg(&CORE_KEY_TO_PATH)),
    one(4, "optional", Bool),
]);

static CORE_CONFIG_MAP_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "ConfigMapVolumeSource", &[
    inline(1, Msg(&CORE_LOCAL_OBJECT_REFERENCE)),
    list(2, "items", Msg(&CORE_KEY_TO_PATH)),
    one(3, "defaultMode", Int),
    one(4, "optional", Bool),
]);

static CORE_CONTAINER: Message = message("io.k8s.api.core.v1", "Container", &[
    one(1, "name", Str).always(),
    one(2, "image", Str).omitted(),
    list(3, "command", Str),
    list(4, "args", Str),
    one(5, "workingDir", Str).omitted(),
    list(6, "ports", Msg(&CORE_CONTAINER_PORT)).keyed(&["containerPort", "protocol"]).merged("containerPort"),
    list(7, "env", Msg(&CORE_ENV_VAR)).keyed(&["name"]).merged("name"),
    one(8, "resources", Msg(&CORE_RESOURCE_REQUIREMENTS)).always(),
    list(9, "volumeMounts", Msg(&CORE_VOLUME_MOUNT)).keyed(&["mountPath"]).merged("mountPath"),
    one(10, "livenessProbe", Msg(&CORE_PROBE)),
    one(11, "readinessProbe", Msg(&CORE_PROBE)),
    one(12, "lifecycle", Msg(&CORE_LIFECYCLE)),
    one(13, "terminationMessagePath", Str).omitted(),
    one(14, "imagePullPolicy", Str).omitted(),
    one(15, "securityContext", Msg(&CORE_SECURITY_CONTEXT)),
    one(16, "stdin", Bool).omitted(),
    one(17, "stdinOnce", Bool).omitted(),
    one(18, "tty", Bool).omitted(),
    list(19, "envFrom", Msg(&CORE_ENV_FROM_SOURCE)),
    one(20, "terminationMessagePolicy", Str).omitted(),
    list(21, "volumeDevices", Msg(&CORE_VOLUME_DEVICE)).keyed(&["devicePath"]).merged("devicePath"),
    one(22, "startupProbe", Msg(&CORE_PROBE)),
    list(23, "resizePolicy", Msg(&CORE_CONTAINER_RESIZE_POLICY)),
    one(24, "restartPolicy", Str),
    list(25, "restartPolicyRules", Msg(&CORE_CONTAINER_RESTART_RULE)),
]);

static CORE_CONTAINER_EXTENDED_RESOURCE_REQUEST: Message = message("io.k8s.api.core.v1", "ContainerExtendedResourceRequest", &[
    one(1, "containerName", Str).always(),
    one(2, "resourceName", Str).always(),
    one(3, "requestName", Str).always(),
]);

static CORE_CONTAINER_IMAGE: Message = message("io.k8s.api.core.v1", "ContainerImage", &[
    list(1, "names", Str).always(),
    one(2, "sizeBytes", Int).omitted(),
]);

static CORE_CONTAINER_PORT: Message = message("io.k8s.api.core.v1", "ContainerPort", &[
    one(1, "name", Str).omitted(),
    one(2, "hostPort", Int).omitted(),
    one(3, "containerPort", Int).always(),
    one(4, "protocol", Str).omitted().defaulting("TCP"),
    one(5, "hostIP", Str).omitted(),
]);

static CORE_CONTAINER_RESIZE_POLICY: Message = message("io.k8s.api.core.v1", "ContainerResizePolicy", &[
    one(1, "resourceName", Str).always(),
    one(2, "restartPolicy", Str).always(),
]);

static CORE_CONTAINER_RESTART_RULE: Message = message("io.k8s.api.core.v1", "ContainerRestartRule", &[
    one(1, "action", Str).omitted(),
    one(2, "exitCodes", Msg(&CORE_CONTAINER_RESTART_RULE_ON_EXIT_CODES)),
]);

static CORE_CONTAINER_RESTART_RULE_ON_EXIT_CODES: Message = message("io.k8s.api.core.v1", "ContainerRestartRuleOnExitCodes", &[
    one(1, "operator", Str).omitted(),
    list(2, "values", Int).set(),
]);

static CORE_CONTAINER_STATE: Message = message("io.k8s.api.core.v1", "ContainerState", &[
    one(1, "waiting", Msg(&CORE_CONTAINER_STATE_WAITING)),
    one(2, "running", Msg(&CORE_CONTAINER_STATE_RUNNING)),
    one(3, "terminated", Msg(&CORE_CONTAINER_STATE_TERMINATED)),
]);

static CORE_CONTAINER_STATE_RUNNING: Message = message("io.k8s.api.core.v1", "ContainerStateRunning", &[
    one(1, "startedAt", Time).omitted(),
]);

static CORE_CONTAINER_STATE_TERMINATED: Message = message("io.k8s.api.core.v1", "ContainerStateTerminated", &[
    one(1, "exitCode", Int).always(),
    one(2, "signal", Int).omitted(),
    one(3, "reason", Str).omitted(),
    one(4, "message", Str).omitted(),
    one(5, "startedAt", Time).omitted(),
    one(6, "finishedAt", Time).omitted(),
    one(7, "containerID", Str).omitted(),
]);

static CORE_CONTAINER_STATE_WAITING: Message = message("io.k8s.api.core.v1", "ContainerStateWaiting", &[
    one(1, "reason", Str).omitted(),
    one(2, "message", Str).omitted(),
]);

static CORE_CONTAINER_STATUS: Message = message("io.k8s.api.core.v1", "ContainerStatus", &[
    one(1, "name", Str).always(),
    one(2, "state", Msg(&CORE_CONTAINER_STATE)).always(),
    one(3, "lastState", Msg(&CORE_CONTAINER_STATE)).always(),
    one(4, "ready", Bool).always(),
    one(5, "restartCount", Int).always(),
    one(6, "image", Str).always(),
    one(7, "imageID", Str).always(),
    one(8, "containerID", Str).omitted(),
    one(9, "started", Bool),
    map(10, "allocatedResources", Quantity),
    one(11, "resources", Msg(&CORE_RESOURCE_REQUIREMENTS)),
    list(12, "volumeMounts", Msg(&CORE_VOLUME_MOUNT_STATUS)).keyed(&["mountPath"]).merged("mountPath"),
    one(13, "user", Msg(&CORE_CONTAINER_USER)),
    list(14, "allocatedResourcesStatus", Msg(&CORE_RESOURCE_STATUS)).keyed(&["name"]).merged("name"),
    one(15, "stopSignal", Str),
]);

static CORE_CONTAINER_USER: Message = message("io.k8s.api.core.v1", "ContainerUser", &[
    one(1, "linux", Msg(&CORE_LINUX_CONTAINER_USER)),
]);

static CORE_CSI_PERSISTENT_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "CSIPersistentVolumeSource", &[
    one(1, "driver", Str).always(),
    one(2, "volumeHandle", Str).always(),
    one(3, "readOnly", Bool).omitted(),
    one(4, "fsType", Str).omitted(),
    map(5, "volumeAttributes", Str),
    one(6, "controllerPublishSecretRef", Msg(&CORE_SECRET_REFERENCE)),
    one(7, "nodeStageSecretRef", Msg(&CORE_SECRET_REFERENCE)),
    one(8, "nodePublishSecretRef", Msg(&CORE_SECRET_REFERENCE)),
    one(9, "controllerExpandSecretRef", Msg(&CORE_SECRET_REFERENCE)),
    one(10, "nodeExpandSecretRef", Msg(&CORE_SECRET_REFERENCE)),
]);

static CORE_CSI_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "CSIVolumeSource", &[
    one(1, "driver", Str).always(),
    one(2, "readOnly", Bool),
    one(3, "fsType", Str),
    map(4, "volumeAttributes", Str),
    one(5, "nodePublishSecretRef", Msg(&CORE_LOCAL_OBJECT_REFERENCE)),
]);

static CORE_DAEMON_ENDPOINT: Message = message("io.k8s.api.core.v1", "DaemonEndpoint", &[
    one(1, "Port", Int).always(),
]);

static CORE_DOWNWARD_API_PROJECTION: Message = message("io.k8s.api.core.v1", "DownwardAPIProjection", &[
    list(1, "items", Msg(&CORE_DOWNWARD_API_VOLUME_FILE)),
]);

static CORE_DOWNWARD_API_VOLUME_FILE: Message = message("io.k8s.api.core.v1", "DownwardAPIVolumeFile", &[
    one(1, "path", Str).always(),
    one(2, "fieldRef", Msg(&CORE_OBJECT_FIELD_SELECTOR)),
    one(3, "resourceFieldRef", Msg(&CORE_RESOURCE_FIELD_SELECTOR)),
    one(4, "mode", Int),
]);

static CORE_DOWNWARD_API_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "DownwardAPIVolumeSource", &[
    list(1, "items", Msg(&CORE_DOWNWARD_API_VOLUME_FILE)),
    one(2, "defaultMode", Int),
]);

static CORE_EMPTY_DIR_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "EmptyDirVolumeSource", &[
    one(1, "medium", Str).omitted(),
    one(2, "sizeLimit", Quantity),
]);

static CORE_ENDPOINTS: Message = message("io.k8s.api.core.v1", "Endpoints", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    list(2, "subsets", Msg(&CORE_ENDPOINT_SUBSET)),
]);

static CORE_ENDPOINT_ADDRESS: Message = atomic_message("io.k8s.api.core.v1", "EndpointAddress", &[
    one(1, "ip", Str).always(),
    one(2, "targetRef", Msg(&CORE_OBJECT_REFERENCE)),
    one(3, "hostname", Str).omitted(),
    one(4, "nodeName", Str),
]);

static CORE_ENDPOINT_PORT: Message = atomic_message("io.k8s.api.core.v1", "EndpointPort", &[
    one(1, "name", Str).omitted(),
    one(2, "port", Int).always(),
    one(3, "protocol", Str).omitted(),
    one(4, "appProtocol", Str),
]);

static CORE_ENDPOINT_SUBSET: Message = message("io.k8s.api.core.v1", "EndpointSubset", &[
    list(1, "addresses", Msg(&CORE_ENDPOINT_ADDRESS)),
    list(2, "notReadyAddresses", Msg(&CORE_ENDPOINT_ADDRESS)),
    list(3, "ports", Msg(&CORE_ENDPOINT_PORT)),
]);

static CORE_ENV_FROM_SOURCE: Message = message("io.k8s.api.core.v1", "EnvFromSource", &[
    one(1, "prefix", Str).omitted(),
    one(2, "configMapRef", Msg(&CORE_CONFIG_MAP_ENV_SOURCE)),
    one(3, "secretRef", Msg(&CORE_SECRET_ENV_SOURCE)),
]);

static CORE_ENV_VAR: Message = message("io.k8s.api.core.v1", "EnvVar", &[
    one(1, "name", Str).always(),
    one(2, "value", Str).omitted(),
    one(3, "valueFrom", Msg(&CORE_ENV_VAR_SOURCE)),
]);

static CORE_ENV_VAR_SOURCE: Message = message("io.k8s.api.core.v1", "EnvVarSource", &[
    one(1, "fieldRef", Msg(&CORE_OBJECT_FIELD_SELECTOR)),
    one(2, "resourceFieldRef", Msg(&CORE_RESOURCE_FIELD_SELECTOR)),
    one(3, "configMapKeyRef", Msg(&CORE_CONFIG_MAP_KEY_SELECTOR)),
    one(4, "secretKeyRef", Msg(&CORE_SECRET_KEY_SELECTOR)),
    one(5, "fileKeyRef", Msg(&CORE_FILE_KEY_SELECTOR)),
]);

static CORE_EPHEMERAL_CONTAINER: Message = message("io.k8s.api.core.v1", "EphemeralContainer", &[
    inline(1, Msg(&CORE_EPHEMERAL_CONTAINER_COMMON)),
    one(2, "targetContainerName", Str).omitted(),
]);

static CORE_EPHEMERAL_CONTAINER_COMMON: Message = message("io.k8s.api.core.v1", "EphemeralContainerCommon", &[
    one(1, "name", Str).always(),
    one(2, "image", Str).omitted(),
    list(3, "command", Str),
    list(4, "args", Str),
    one(5, "workingDir", Str).omitted(),
    list(6, "ports", Msg(&CORE_CONTAINER_PORT)).keyed(&["containerPort", "protocol"]).merged("containerPort"),
    list(7, "env", Msg(&CORE_ENV_VAR)).keyed(&["name"]).merged("name"),
    one(8, "resources", Msg(&CORE_RESOURCE_REQUIREMENTS)).always(),
    list(9, "volumeMounts", Msg(&CORE_VOLUME_MOUNT)).keyed(&["mountPath"]).merged("mountPath"),
    one(10, "livenessProbe", Msg(&CORE_PROBE)),
    one(11, "readinessProbe", Msg(&CORE_PROBE)),
    one(12, "lifecycle", Msg(&CORE_LIFECYCLE)),
    one(13, "terminationMessagePath", Str).omitted(),
    one(14, "imagePullPolicy", Str).omitted(),
    one(15, "securityContext", Msg(&CORE_SECURITY_CONTEXT)),
    one(16, "stdin", Bool).omitted(),
    one(17, "stdinOnce", Bool).omitted(),
    one(18, "tty", Bool).omitted(),
    list(19, "envFrom", Msg(&CORE_ENV_FROM_SOURCE)),
    one(20, "terminationMessagePolicy", Str).omitted(),
    list(21, "volumeDevices", Msg(&CORE_VOLUME_DEVICE)).keyed(&["devicePath"]).merged("devicePath"),
    one(22, "startupProbe", Msg(&CORE_PROBE)),
    list(23, "resizePolicy", Msg(&CORE_CONTAINER_RESIZE_POLICY)),
    one(24, "restartPolicy", Str),
    list(25, "restartPolicyRules", Msg(&CORE_CONTAINER_RESTART_RULE)),
]);

static CORE_EPHEMERAL_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "EphemeralVolumeSource", &[
    one(1, "volumeClaimTemplate", Msg(&CORE_PERSISTENT_VOLUME_CLAIM_TEMPLATE)),
]);

static CORE_EVENT: Message = message("io.k8s.api.core.v1", "Event", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "involvedObject", Msg(&CORE_OBJECT_REFERENCE)).always(),
    one(3, "reason", Str).omitted(),
    one(4, "message", Str).omitted(),
    one(5, "source", Msg(&CORE_EVENT_SOURCE)).always(),
    one(6, "firstTimestamp", Time).omitted(),
    one(7, "lastTimestamp", Time).omitted(),
    one(8, "count", Int).omitted(),
    one(9, "type", Str).omitted(),
    one(10, "eventTime", MicroTime).omitted(),
    one(11, "series", Msg(&CORE_EVENT_SERIES)),
    one(12, "action", Str).omitted(),
    one(13, "related", Msg(&CORE_OBJECT_REFERENCE)),
    one(14, "reportingComponent", Str).always(),
    one(15, "reportingInstance", Str).always(),
]);

static CORE_EVENT_SERIES: Message = message("io.k8s.api.core.v1", "EventSeries", &[
    one(1, "count", Int).omitted(),
    one(2, "lastObservedTime", MicroTime).omitted(),
]);

static CORE_EVENT_SOURCE: Message = message("io.k8s.api.core.v1", "EventSource", &[
    one(1, "component", Str).omitted(),
    one(2, "host", Str).omitted(),
]);

static CORE_EXEC_ACTION: Message = message("io.k8s.api.core.v1", "ExecAction", &[
    list(1, "command", Str),
]);

static CORE_FC_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "FCVolumeSource", &[
    list(1, "targetWWNs", Str),
    one(2, "lun", Int),
    one(3, "fsType", Str).omitted(),
    one(4, "readOnly", Bool).omitted(),
    list(5, "wwids", Str),
]);

static CORE_FILE_KEY_SELECTOR: Message = atomic_message("io.k8s.api.core.v1", "FileKeySelector", &[
    one(1, "volumeName", Str).always(),
    one(2, "path", Str).always(),
    one(3, "key", Str).always(),
    one(4, "optional", Bool),
]);

static CORE_FLEX_PERSISTENT_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "FlexPersistentVolumeSource", &[
    one(1, "driver", Str).always(),
    one(2, "fsType", Str).omitted(),
    one(3, "secretRef", Msg(&CORE_SECRET_REFERENCE)),
    one(4, "readOnly", Bool).omitted(),
    map(5, "options", Str),
]);

static CORE_FLEX_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "FlexVolumeSource", &[
    one(1, "driver", Str).always(),
    one(2, "fsType", Str).omitted(),
    one(3, "secretRef", Msg(&CORE_LOCAL_OBJECT_REFERENCE)),
    one(4, "readOnly", Bool).omitted(),
    map(5, "options", Str),
]);

static CORE_FLOCKER_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "FlockerVolumeSource", &[
    one(1, "datasetName", Str).omitted(),
    one(2, "datasetUUID", Str).omitted(),
]);

static CORE_GCE_PERSISTENT_DISK_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "GCEPersistentDiskVolumeSource", &[
    one(1, "pdName", Str).always(),
    one(2, "fsType", Str).omitted(),
    one(3, "partition", Int).omitted(),
    one(4, "readOnly", Bool).omitted(),
]);

static CORE_GIT_REPO_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "GitRepoVolumeSource", &[
    one(1, "repository", Str).always(),
    one(2, "revision", Str).omitted(),
    one(3, "directory", Str).omitted(),
]);

static CORE_GLUSTERFS_PERSISTENT_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "GlusterfsPersistentVolumeSource", &[
    one(1, "endpoints", Str).always(),
    one(2, "path", Str).always(),
    one(3, "readOnly", Bool).omitted(),
    one(4, "endpointsNamespace", Str),
]);

static CORE_GLUSTERFS_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "GlusterfsVolumeSource", &[
    one(1, "endpoints", Str).always(),
    one(2, "path", Str).always(),
    one(3, "readOnly", Bool).omitted(),
]);

static CORE_GRPC_ACTION: Message = message("io.k8s.api.core.v1", "GRPCAction", &[
    one(1, "port", Int).always(),
    one(2, "service", Str),
]);

static CORE_HOST_ALIAS: Message = message("io.k8s.api.core.v1", "HostAlias", &[
    one(1, "ip", Str).always(),
    list(2, "hostnames", Str),
]);

static CORE_HOST_IP: Message = message("io.k8s.api.core.v1", "HostIP", &[
    one(1, "ip", Str).always(),
]);

static CORE_HOST_PATH_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "HostPathVolumeSource", &[
    one(1, "path", Str).always(),
    one(2, "type", Str),
]);

static CORE_HTTP_GET_ACTION: Message = message("io.k8s.api.core.v1", "HTTPGetAction", &[
    one(1, "path", Str).omitted(),
    one(2, "port", IntOrString).always(),
    one(3, "host", Str).omitted(),
    one(4, "scheme", Str).omitted(),
    list(5, "httpHeaders", Msg(&CORE_HTTP_HEADER)),
]);

static CORE_HTTP_HEADER: Message = message("io.k8s.api.core.v1", "HTTPHeader", &[
    one(1, "name", Str).always(),
    one(2, "value", Str).always(),
]);

static CORE_IMAGE_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "ImageVolumeSource", &[
    one(1, "reference", Str).omitted(),
    one(2, "pullPolicy", Str).omitted(),
]);

static CORE_IMAGE_VOLUME_STATUS: Message = message("io.k8s.api.core.v1", "ImageVolumeStatus", &[
    one(1, "imageRef", Str).omitted(),
]);

static CORE_ISCSI_PERSISTENT_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "ISCSIPersistentVolumeSource", &[
    one(1, "targetPortal", Str).always(),
    one(2, "iqn", Str).always(),
    one(3, "lun", Int).always(),
    one(4, "iscsiInterface", Str).omitted(),
    one(5, "fsType", Str).omitted(),
    one(6, "readOnly", Bool).omitted(),
    list(7, "portals", Str),
    one(8, "chapAuthDiscovery", Bool).omitted(),
    one(10, "secretRef", Msg(&CORE_SECRET_REFERENCE)),
    one(11, "chapAuthSession", Bool).omitted(),
    one(12, "initiatorName", Str),
]);

static CORE_ISCSI_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "ISCSIVolumeSource", &[
    one(1, "targetPortal", Str).always(),
    one(2, "iqn", Str).always(),
    one(3, "lun", Int).always(),
    one(4, "iscsiInterface", Str).omitted(),
    one(5, "fsType", Str).omitted(),
    one(6, "readOnly", Bool).omitted(),
    list(7, "portals", Str),
    one(8, "chapAuthDiscovery", Bool).omitted(),
    one(10, "secretRef", Msg(&CORE_LOCAL_OBJECT_REFERENCE)),
    one(11, "chapAuthSession", Bool).omitted(),
    one(12, "initiatorName", Str),
]);

static CORE_KEY_TO_PATH: Message = message("io.k8s.api.core.v1", "KeyToPath", &[
    one(1, "key", Str).always(),
    one(2, "path", Str).always(),
    one(3, "mode", Int),
]);

static CORE_LIFECYCLE: Message = message("io.k8s.api.core.v1", "Lifecycle", &[
    one(1, "postStart", Msg(&CORE_LIFECYCLE_HANDLER)),
    one(2, "preStop", Msg(&CORE_LIFECYCLE_HANDLER)),
    one(3, "stopSignal", Str),
]);

static CORE_LIFECYCLE_HANDLER: Message = message("io.k8s.api.core.v1", "LifecycleHandler", &[
    one(1, "exec", Msg(&CORE_EXEC_ACTION)),
    one(2, "httpGet", Msg(&CORE_HTTP_GET_ACTION)),
    one(3, "tcpSocket", Msg(&CORE_TCP_SOCKET_ACTION)),
    one(4, "sleep", Msg(&CORE_SLEEP_ACTION)),
]);

static CORE_LIMIT_RANGE: Message = message("io.k8s.api.core.v1", "LimitRange", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&CORE_LIMIT_RANGE_SPEC)).always(),
]);

static CORE_LIMIT_RANGE_ITEM: Message = message("io.k8s.api.core.v1", "LimitRangeItem", &[
    one(1, "type", Str).always(),
    map(2, "max", Quantity),
    map(3, "min", Quantity),
    map(4, "default", Quantity),
    map(5, "defaultRequest", Quantity),
    map(6, "maxLimitRequestRatio", Quantity),
]);

static CORE_LIMIT_RANGE_SPEC: Message = message("io.k8s.api.core.v1", "LimitRangeSpec", &[
    list(1, "limits", Msg(&CORE_LIMIT_RANGE_ITEM)).always(),
]);

static CORE_LINUX_CONTAINER_USER: Message = message("io.k8s.api.core.v1", "LinuxContainerUser", &[
    one(1, "uid", Int).always(),
    one(2, "gid", Int).always(),
    list(3, "supplementalGroups", Int),
]);

static CORE_LOAD_BALANCER_INGRESS: Message = message("io.k8s.api.core.v1", "LoadBalancerIngress", &[
    one(1, "ip", Str).omitted(),
    one(2, "hostname", Str).omitted(),
    one(3, "ipMode", Str),
    list(4, "ports", Msg(&CORE_PORT_STATUS)),
]);

static CORE_LOAD_BALANCER_STATUS: Message = message("io.k8s.api.core.v1", "LoadBalancerStatus", &[
    list(1, "ingress", Msg(&CORE_LOAD_BALANCER_INGRESS)),
]);

static CORE_LOCAL_OBJECT_REFERENCE: Message = atomic_message("io.k8s.api.core.v1", "LocalObjectReference", &[
    one(1, "name", Str).omitted(),
]);

static CORE_LOCAL_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "LocalVolumeSource", &[
    one(1, "path", Str).always(),
    one(2, "fsType", Str),
]);

static CORE_MODIFY_VOLUME_STATUS: Message = message("io.k8s.api.core.v1", "ModifyVolumeStatus", &[
    one(1, "targetVolumeAttributesClassName", Str).omitted(),
    one(2, "status", Str).always(),
]);

static CORE_NAMESPACE: Message = message("io.k8s.api.core.v1", "Namespace", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&CORE_NAMESPACE_SPEC)).always(),
    one(3, "status", Msg(&CORE_NAMESPACE_STATUS)).always(),
]);

static CORE_NAMESPACE_CONDITION: Message = message("io.k8s.api.core.v1", "NamespaceCondition", &[
    one(1, "type", Str).always(),
    one(2, "status", Str).always(),
    one(4, "lastTransitionTime", Time).omitted(),
    one(5, "reason", Str).omitted(),
    one(6, "message", Str).omitted(),
]);

static CORE_NAMESPACE_SPEC: Message = message("io.k8s.api.core.v1", "NamespaceSpec", &[
    list(1, "finalizers", Str),
]);

static CORE_NAMESPACE_STATUS: Message = message("io.k8s.api.core.v1", "NamespaceStatus", &[
    one(1, "phase", Str).omitted(),
    list(2, "conditions", Msg(&CORE_NAMESPACE_CONDITION)).keyed(&["type"]).merged("type"),
]);

static CORE_NFS_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "NFSVolumeSource", &[
    one(1, "server", Str).always(),
    one(2, "path", Str).always(),
    one(3, "readOnly", Bool).omitted(),
]);

static CORE_NODE: Message = message("io.k8s.api.core.v1", "Node", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&CORE_NODE_SPEC)).always(),
    one(3, "status", Msg(&CORE_NODE_STATUS)).always(),
]);

static CORE_NODE_ADDRESS: Message = message("io.k8s.api.core.v1", "NodeAddress", &[
    one(1, "type", Str).always(),
    one(2, "address", Str).always(),
]);

static CORE_NODE_AFFINITY: Message = message("io.k8s.api.core.v1", "NodeAffinity", &[
    one(1, "requiredDuringSchedulingIgnoredDuringExecution", Msg(&CORE_NODE_SELECTOR)),
    list(2, "preferredDuringSchedulingIgnoredDuringExecution", Msg(&CORE_PREFERRED_SCHEDULING_TERM)),
]);

static CORE_NODE_ALLOCATABLE_RESOURCE_CLAIM_STATUS: Message = message("io.k8s.api.core.v1", "NodeAllocatableResourceClaimStatus", &[
    one(1, "resourceClaimName", Str).always(),
    list(2, "containers", Str).set(),
    map(3, "resources", Quantity),
]);

static CORE_NODE_CONDITION: Message = message("io.k8s.api.core.v1", "NodeCondition", &[
    one(1, "type", Str).always(),
    one(2, "status", Str).always(),
    one(3, "lastHeartbeatTime", Time).omitted(),
    one(4, "lastTransitionTime", Time).omitted(),
    one(5, "reason", Str).omitted(),
    one(6, "message", Str).omitted(),
]);

static CORE_NODE_CONFIG_SOURCE: Message = message("io.k8s.api.core.v1", "NodeConfigSource", &[
    one(2, "configMap", Msg(&CORE_CONFIG_MAP_NODE_CONFIG_SOURCE)),
]);

static CORE_NODE_CONFIG_STATUS: Message = message("io.k8s.api.core.v1", "NodeConfigStatus", &[
    one(1, "assigned", Msg(&CORE_NODE_CONFIG_SOURCE)),
    one(2, "active", Msg(&CORE_NODE_CONFIG_SOURCE)),
    one(3, "lastKnownGood", Msg(&CORE_NODE_CONFIG_SOURCE)),
    one(4, "error", Str).omitted(),
]);

static CORE_NODE_DAEMON_ENDPOINTS: Message = message("io.k8s.api.core.v1", "NodeDaemonEndpoints", &[
    one(1, "kubeletEndpoint", Msg(&CORE_DAEMON_ENDPOINT)).always(),
]);

static CORE_NODE_FEATURES: Message = message("io.k8s.api.core.v1", "NodeFeatures", &[
    one(1, "supplementalGroupsPolicy", Bool),
]);

static CORE_NODE_RUNTIME_HANDLER: Message = message("io.k8s.api.core.v1", "NodeRuntimeHandler", &[
    one(1, "name", Str).always(),
    one(2, "features", Msg(&CORE_NODE_RUNTIME_HANDLER_FEATURES)),
]);

static CORE_NODE_RUNTIME_HANDLER_FEATURES: Message = message("io.k8s.api.core.v1", "NodeRuntimeHandlerFeatures", &[
    one(1, "recursiveReadOnlyMounts", Bool),
    one(2, "userNamespaces", Bool),
]);

static CORE_NODE_SELECTOR: Message = atomic_message("io.k8s.api.core.v1", "NodeSelector", &[
    list(1, "nodeSelectorTerms", Msg(&CORE_NODE_SELECTOR_TERM)).always(),
]);

static CORE_NODE_SELECTOR_REQUIREMENT: Message = message("io.k8s.api.core.v1", "NodeSelectorRequirement", &[
    one(1, "key", Str).always(),
    one(2, "operator", Str).always(),
    list(3, "values", Str),
]);

static CORE_NODE_SELECTOR_TERM: Message = atomic_message("io.k8s.api.core.v1", "NodeSelectorTerm", &[
    list(1, "matchExpressions", Msg(&CORE_NODE_SELECTOR_REQUIREMENT)),
    list(2, "matchFields", Msg(&CORE_NODE_SELECTOR_REQUIREMENT)),
]);

static CORE_NODE_SPEC: Message = message("io.k8s.api.core.v1", "NodeSpec", &[
    one(1, "podCIDR", Str).omitted(),
    one(2, "externalID", Str).omitted(),
    one(3, "providerID", Str).omitted(),
    one(4, "unschedulable", Bool).omitted(),
    list(5, "taints", Msg(&CORE_TAINT)),
    one(6, "configSource", Msg(&CORE_NODE_CONFIG_SOURCE)),
    list(7, "podCIDRs", Str).set().merged(""),
]);

static CORE_NODE_STATUS: Message = message("io.k8s.api.core.v1", "NodeStatus", &[
    map(1, "capacity", Quantity),
    map(2, "allocatable", Quantity),
    one(3, "phase", Str).omitted(),
    list(4, "conditions", Msg(&CORE_NODE_CONDITION)).keyed(&["type"]).merged("type"),
    list(5, "addresses", Msg(&CORE_NODE_ADDRESS)).keyed(&["type"]).merged("type"),
    one(6, "daemonEndpoints", Msg(&CORE_NODE_DAEMON_ENDPOINTS)).always(),
    one(7, "nodeInfo", Msg(&CORE_NODE_SYSTEM_INFO)).always(),
    list(8, "images", Msg(&CORE_CONTAINER_IMAGE)),
    list(9, "volumesInUse", Str),
    list(10, "volumesAttached", Msg(&CORE_ATTACHED_VOLUME)),
    one(11, "config", Msg(&CORE_NODE_CONFIG_STATUS)),
    list(12, "runtimeHandlers", Msg(&CORE_NODE_RUNTIME_HANDLER)),
    one(13, "features", Msg(&CORE_NODE_FEATURES)),
    list(14, "declaredFeatures", Str),
]);

static CORE_NODE_SWAP_STATUS: Message = message("io.k8s.api.core.v1", "NodeSwapStatus", &[
    one(1, "capacity", Int),
]);

static CORE_NODE_SYSTEM_INFO: Message = message("io.k8s.api.core.v1", "NodeSystemInfo", &[
    one(1, "machineID", Str).always(),
    one(2, "systemUUID", Str).always(),
    one(3, "bootID", Str).always(),
    one(4, "kernelVersion", Str).always(),
    one(5, "osImage", Str).always(),
    one(6, "containerRuntimeVersion", Str).always(),
    one(7, "kubeletVersion", Str).always(),
    one(8, "kubeProxyVersion", Str).always(),
    one(9, "operatingSystem", Str).always(),
    one(10, "architecture", Str).always(),
    one(11, "swap", Msg(&CORE_NODE_SWAP_STATUS)),
]);

static CORE_OBJECT_FIELD_SELECTOR: Message = atomic_message("io.k8s.api.core.v1", "ObjectFieldSelector", &[
    one(1, "apiVersion", Str).omitted(),
    one(2, "fieldPath", Str).always(),
]);

static CORE_OBJECT_REFERENCE: Message = atomic_message("io.k8s.api.core.v1", "ObjectReference", &[
    one(1, "kind", Str).omitted(),
    one(2, "namespace", Str).omitted(),
    one(3, "name", Str).omitted(),
    one(4, "uid", Str).omitted(),
    one(5, "apiVersion", Str).omitted(),
    one(6, "resourceVersion", Str).omitted(),
    one(7, "fieldPath", Str).omitted(),
]);

static CORE_PERSISTENT_VOLUME: Message = message("io.k8s.api.core.v1", "PersistentVolume", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&CORE_PERSISTENT_VOLUME_SPEC)).always(),
    one(3, "status", Msg(&CORE_PERSISTENT_VOLUME_STATUS)).always(),
]);

static CORE_PERSISTENT_VOLUME_CLAIM: Message = message("io.k8s.api.core.v1", "PersistentVolumeClaim", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&CORE_PERSISTENT_VOLUME_CLAIM_SPEC)).always(),
    one(3, "status", Msg(&CORE_PERSISTENT_VOLUME_CLAIM_STATUS)).always(),
]);

static CORE_PERSISTENT_VOLUME_CLAIM_CONDITION: Message = message("io.k8s.api.core.v1", "PersistentVolumeClaimCondition", &[
    one(1, "type", Str).always(),
    one(2, "status", Str).always(),
    one(3, "lastProbeTime", Time).omitted(),
    one(4, "lastTransitionTime", Time).omitted(),
    one(5, "reason", Str).omitted(),
    one(6, "message", Str).omitted(),
]);

static CORE_PERSISTENT_VOLUME_CLAIM_SPEC: Message = message("io.k8s.api.core.v1", "PersistentVolumeClaimSpec", &[
    list(1, "accessModes", Str),
    one(2, "resources", Msg(&CORE_VOLUME_RESOURCE_REQUIREMENTS)).always(),
    one(3, "volumeName", Str).omitted(),
    one(4, "selector", Msg(&META_LABEL_SELECTOR)),
    one(5, "storageClassName", Str),
    one(6, "volumeMode", Str),
    one(7, "dataSource", Msg(&CORE_TYPED_LOCAL_OBJECT_REFERENCE)),
    one(8, "dataSourceRef", Msg(&CORE_TYPED_OBJECT_REFERENCE)),
    one(9, "volumeAttributesClassName", Str),
]);

static CORE_PERSISTENT_VOLUME_CLAIM_STATUS: Message = message("io.k8s.api.core.v1", "PersistentVolumeClaimStatus", &[
    one(1, "phase", Str).omitted(),
    list(2, "accessModes", Str),
    map(3, "capacity", Quantity),
    list(4, "conditions", Msg(&CORE_PERSISTENT_VOLUME_CLAIM_CONDITION)).keyed(&["type"]).merged("type"),
    map(5, "allocatedResources", Quantity),
    map(7, "allocatedResourceStatuses", Str),
    one(8, "currentVolumeAttributesClassName", Str),
    one(9, "modifyVolumeStatus", Msg(&CORE_MODIFY_VOLUME_STATUS)),
]);

static CORE_PERSISTENT_VOLUME_CLAIM_TEMPLATE: Message = message("io.k8s.api.core.v1", "PersistentVolumeClaimTemplate", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&CORE_PERSISTENT_VOLUME_CLAIM_SPEC)).always(),
]);

static CORE_PERSISTENT_VOLUME_CLAIM_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "PersistentVolumeClaimVolumeSource", &[
    one(1, "claimName", Str).always(),
    one(2, "readOnly", Bool).omitted(),
]);

static CORE_PERSISTENT_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "PersistentVolumeSource", &[
    one(1, "gcePersistentDisk", Msg(&CORE_GCE_PERSISTENT_DISK_VOLUME_SOURCE)),
    one(2, "awsElasticBlockStore", Msg(&CORE_AWS_ELASTIC_BLOCK_STORE_VOLUME_SOURCE)),
    one(3, "hostPath", Msg(&CORE_HOST_PATH_VOLUME_SOURCE)),
    one(4, "glusterfs", Msg(&CORE_GLUSTERFS_PERSISTENT_VOLUME_SOURCE)),
    one(5, "nfs", Msg(&CORE_NFS_VOLUME_SOURCE)),
    one(6, "rbd", Msg(&CORE_RBD_PERSISTENT_VOLUME_SOURCE)),
    one(7, "iscsi", Msg(&CORE_ISCSI_PERSISTENT_VOLUME_SOURCE)),
    one(8, "cinder", Msg(&CORE_CINDER_PERSISTENT_VOLUME_SOURCE)),
    one(9, "cephfs", Msg(&CORE_CEPH_FS_PERSISTENT_VOLUME_SOURCE)),
    one(10, "fc", Msg(&CORE_FC_VOLUME_SOURCE)),
    one(11, "flocker", Msg(&CORE_FLOCKER_VOLUME_SOURCE)),
    one(12, "flexVolume", Msg(&CORE_FLEX_PERSISTENT_VOLUME_SOURCE)),
    one(13, "azureFile", Msg(&CORE_AZURE_FILE_PERSISTENT_VOLUME_SOURCE)),
    one(14, "vsphereVolume", Msg(&CORE_VSPHERE_VIRTUAL_DISK_VOLUME_SOURCE)),
    one(15, "quobyte", Msg(&CORE_QUOBYTE_VOLUME_SOURCE)),
    one(16, "azureDisk", Msg(&CORE_AZURE_DISK_VOLUME_SOURCE)),
    one(17, "photonPersistentDisk", Msg(&CORE_PHOTON_PERSISTENT_DISK_VOLUME_SOURCE)),
    one(18, "portworxVolume", Msg(&CORE_PORTWORX_VOLUME_SOURCE)),
    one(19, "scaleIO", Msg(&CORE_SCALE_IO_PERSISTENT_VOLUME_SOURCE)),
    one(20, "local", Msg(&CORE_LOCAL_VOLUME_SOURCE)),
    one(21, "storageos", Msg(&CORE_STORAGE_OS_PERSISTENT_VOLUME_SOURCE)),
    one(22, "csi", Msg(&CORE_CSI_PERSISTENT_VOLUME_SOURCE)),
]);

static CORE_PERSISTENT_VOLUME_SPEC: Message = message("io.k8s.api.core.v1", "PersistentVolumeSpec", &[
    map(1, "capacity", Quantity),
    inline(2, Msg(&CORE_PERSISTENT_VOLUME_SOURCE)),
    list(3, "accessModes", Str),
    one(4, "claimRef", Msg(&CORE_OBJECT_REFERENCE)),
    one(5, "persistentVolumeReclaimPolicy", Str).omitted(),
    one(6, "storageClassName", Str).omitted(),
    list(7, "mountOptions", Str),
    one(8, "volumeMode", Str),
    one(9, "nodeAffinity", Msg(&CORE_VOLUME_NODE_AFFINITY)),
    one(10, "volumeAttributesClassName", Str),
]);

static CORE_PERSISTENT_VOLUME_STATUS: Message = message("io.k8s.api.core.v1", "PersistentVolumeStatus", &[
    one(1, "phase", Str).omitted(),
    one(2, "message", Str).omitted(),
    one(3, "reason", Str).omitted(),
    one(4, "lastPhaseTransitionTime", Time),
]);

static CORE_PHOTON_PERSISTENT_DISK_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "PhotonPersistentDiskVolumeSource", &[
    one(1, "pdID", Str).always(),
    one(2, "fsType", Str).omitted(),
]);

static CORE_POD: Message = message("io.k8s.api.core.v1", "Pod", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&CORE_POD_SPEC)).always(),
    one(3, "status", Msg(&CORE_POD_STATUS)).always(),
]);

static CORE_POD_AFFINITY: Message = message("io.k8s.api.core.v1", "PodAffinity", &[
    list(1, "requiredDuringSchedulingIgnoredDuringExecution", Msg(&CORE_POD_AFFINITY_TERM)),
    list(2, "preferredDuringSchedulingIgnoredDuringExecution", Msg(&CORE_WEIGHTED_POD_AFFINITY_TERM)),
]);

static CORE_POD_AFFINITY_TERM: Message = message("io.k8s.api.core.v1", "PodAffinityTerm", &[
    one(1, "labelSelector", Msg(&META_LABEL_SELECTOR)),
    list(2, "namespaces", Str),
    one(3, "topologyKey", Str).always(),
    one(4, "namespaceSelector", Msg(&META_LABEL_SELECTOR)),
    list(5, "matchLabelKeys", Str),
    list(6, "mismatchLabelKeys", Str),
]);

static CORE_POD_ANTI_AFFINITY: Message = message("io.k8s.api.core.v1", "PodAntiAffinity", &[
    list(1, "requiredDuringSchedulingIgnoredDuringExecution", Msg(&CORE_POD_AFFINITY_TERM)),
    list(2, "preferredDuringSchedulingIgnoredDuringExecution", Msg(&CORE_WEIGHTED_POD_AFFINITY_TERM)),
]);

static CORE_POD_CERTIFICATE_PROJECTION: Message = message("io.k8s.api.core.v1", "PodCertificateProjection", &[
    one(1, "signerName", Str).omitted(),
    one(2, "keyType", Str).omitted(),
    one(3, "maxExpirationSeconds", Int),
    one(4, "credentialBundlePath", Str).omitted(),
    one(5, "keyPath", Str).omitted(),
    one(6, "certificateChainPath", Str).omitted(),
    map(7, "userAnnotations", Str),
]);

static CORE_POD_CONDITION: Message = message("io.k8s.api.core.v1", "PodCondition", &[
    one(1, "type", Str).always(),
    one(2, "status", Str).always(),
    one(3, "lastProbeTime", Time).omitted(),
    one(4, "lastTransitionTime", Time).omitted(),
    one(5, "reason", Str).omitted(),
    one(6, "message", Str).omitted(),
    one(7, "observedGeneration", Int).omitted(),
]);

static CORE_POD_DNS_CONFIG: Message = message("io.k8s.api.core.v1", "PodDNSConfig", &[
    list(1, "nameservers", Str),
    list(2, "searches", Str),
    list(3, "options", Msg(&CORE_POD_DNS_CONFIG_OPTION)),
]);

static CORE_POD_DNS_CONFIG_OPTION: Message = message("io.k8s.api.core.v1", "PodDNSConfigOption", &[
    one(1, "name", Str).omitted(),
    one(2, "value", Str),
]);

static CORE_POD_EXTENDED_RESOURCE_CLAIM_STATUS: Message = message("io.k8s.api.core.v1", "PodExtendedResourceClaimStatus", &[
    list(1, "requestMappings", Msg(&CORE_CONTAINER_EXTENDED_RESOURCE_REQUEST)).always(),
    one(2, "resourceClaimName", Str).always(),
]);

static CORE_POD_IP: Message = message("io.k8s.api.core.v1", "PodIP", &[
    one(1, "ip", Str).always(),
]);

static CORE_POD_OS: Message = message("io.k8s.api.core.v1", "PodOS", &[
    one(1, "name", Str).always(),
]);

static CORE_POD_READINESS_GATE: Message = message("io.k8s.api.core.v1", "PodReadinessGate", &[
    one(1, "conditionType", Str).always(),
]);

static CORE_POD_RESOURCE_CLAIM: Message = message("io.k8s.api.core.v1", "PodResourceClaim", &[
    one(1, "name", Str).always(),
    one(3, "resourceClaimName", Str),
    one(4, "resourceClaimTemplateName", Str),
]);

static CORE_POD_RESOURCE_CLAIM_STATUS: Message = message("io.k8s.api.core.v1", "PodResourceClaimStatus", &[
    one(1, "name", Str).always(),
    one(2, "resourceClaimName", Str),
]);

static CORE_POD_SCHEDULING_GATE: Message = message("io.k8s.api.core.v1", "PodSchedulingGate", &[
    one(1, "name", Str).always(),
]);

static CORE_POD_SCHEDULING_GROUP: Message = message("io.k8s.api.core.v1", "PodSchedulingGroup", &[
    one(1, "podGroupName", Str),
]);

static CORE_POD_SECURITY_CONTEXT: Message = message("io.k8s.api.core.v1", "PodSecurityContext", &[
    one(1, "seLinuxOptions", Msg(&CORE_SE_LINUX_OPTIONS)),
    one(2, "runAsUser", Int),
    one(3, "runAsNonRoot", Bool),
    list(4, "supplementalGroups", Int),
    one(5, "fsGroup", Int),
    one(6, "runAsGroup", Int),
    list(7, "sysctls", Msg(&CORE_SYSCTL)),
    one(8, "windowsOptions", Msg(&CORE_WINDOWS_SECURITY_CONTEXT_OPTIONS)),
    one(9, "fsGroupChangePolicy", Str),
    one(10, "seccompProfile", Msg(&CORE_SECCOMP_PROFILE)),
    one(11, "appArmorProfile", Msg(&CORE_APP_ARMOR_PROFILE)),
    one(12, "supplementalGroupsPolicy", Str),
    one(13, "seLinuxChangePolicy", Str),
]);

static CORE_POD_SPEC: Message = message("io.k8s.api.core.v1", "PodSpec", &[
    list(1, "volumes", Msg(&CORE_VOLUME)).keyed(&["name"]).merged("name"),
    list(2, "containers", Msg(&CORE_CONTAINER)).always().keyed(&["name"]).merged("name"),
    one(3, "restartPolicy", Str).omitted(),
    one(4, "terminationGracePeriodSeconds", Int),
    one(5, "activeDeadlineSeconds", Int),
    one(6, "dnsPolicy", Str).omitted(),
    map(7, "nodeSelector", Str).atomic(),
    one(8, "serviceAccountName", Str).omitted(),
    one(9, "serviceAccount", Str).omitted(),
    one(10, "nodeName", Str).omitted(),
    one(11, "hostNetwork", Bool).omitted(),
    one(12, "hostPID", Bool).omitted(),
    one(13, "hostIPC", Bool).omitted(),
    one(14, "securityContext", Msg(&CORE_POD_SECURITY_CONTEXT)),
    list(15, "imagePullSecrets", Msg(&CORE_LOCAL_OBJECT_REFERENCE)).keyed(&["name"]).merged("name"),
    one(16, "hostname", Str).omitted(),
    one(17, "subdomain", Str).omitted(),
    one(18, "affinity", Msg(&CORE_AFFINITY)),
    one(19, "schedulerName", Str).omitted(),
    list(20, "initContainers", Msg(&CORE_CONTAINER)).keyed(&["name"]).merged("name"),
    one(21, "automountServiceAccountToken", Bool),
    list(22, "tolerations", Msg(&CORE_TOLERATION)),
    list(23, "hostAliases", Msg(&CORE_HOST_ALIAS)).keyed(&["ip"]).merged("ip"),
    one(24, "priorityClassName", Str).omitted(),
    one(25, "priority", Int),
    one(26, "dnsConfig", Msg(&CORE_POD_DNS_CONFIG)),
    one(27, "shareProcessNamespace", Bool),
    list(28, "readinessGates", Msg(&CORE_POD_READINESS_GATE)),
    one(29, "runtimeClassName", Str),
    one(30, "enableServiceLinks", Bool),
    one(31, "preemptionPolicy", Str),
    map(32, "overhead", Quantity),
    list(33, "topologySpreadConstraints", Msg(&CORE_TOPOLOGY_SPREAD_CONSTRAINT)).keyed(&["topologyKey", "whenUnsatisfiable"]).merged("topologyKey"),
    list(34, "ephemeralContainers", Msg(&CORE_EPHEMERAL_CONTAINER)).keyed(&["name"]).merged("name"),
    one(35, "setHostnameAsFQDN", Bool),
    one(36, "os", Msg(&CORE_POD_OS)),
    one(37, "hostUsers", Bool),
    list(38, "schedulingGates", Msg(&CORE_POD_SCHEDULING_GATE)).keyed(&["name"]).merged("name"),
    list(39, "resourceClaims", Msg(&CORE_POD_RESOURCE_CLAIM)).keyed(&["name"]).merged("name"),
    one(40, "resources", Msg(&CORE_RESOURCE_REQUIREMENTS)),
    one(41, "hostnameOverride", Str),
    one(43, "schedulingGroup", Msg(&CORE_POD_SCHEDULING_GROUP)),
]);

static CORE_POD_STATUS: Message = message("io.k8s.api.core.v1", "PodStatus", &[
    one(1, "phase", Str).omitted(),
    list(2, "conditions", Msg(&CORE_POD_CONDITION)).keyed(&["type"]).merged("type"),
    one(3, "message", Str).omitted(),
    one(4, "reason", Str).omitted(),
    one(5, "hostIP", Str).omitted(),
    one(6, "podIP", Str).omitted(),
    one(7, "startTime", Time),
    list(8, "containerStatuses", Msg(&CORE_CONTAINER_STATUS)),
    one(9, "qosClass", Str).omitted(),
    list(10, "initContainerStatuses", Msg(&CORE_CONTAINER_STATUS)),
    one(11, "nominatedNodeName", Str).omitted(),
    list(12, "podIPs", Msg(&CORE_POD_IP)).keyed(&["ip"]).merged("ip"),
    list(13, "ephemeralContainerStatuses", Msg(&CORE_CONTAINER_STATUS)),
    one(14, "resize", Str).omitted(),
    list(15, "resourceClaimStatuses", Msg(&CORE_POD_RESOURCE_CLAIM_STATUS)).keyed(&["name"]).merged("name"),
    list(16, "hostIPs", Msg(&CORE_HOST_IP)).merged("ip"),
    one(17, "observedGeneration", Int).omitted(),
    one(18, "extendedResourceClaimStatus", Msg(&CORE_POD_EXTENDED_RESOURCE_CLAIM_STATUS)),
    map(19, "allocatedResources", Quantity),
    one(20, "resources", Msg(&CORE_RESOURCE_REQUIREMENTS)),
    list(21, "nodeAllocatableResourceClaimStatuses", Msg(&CORE_NODE_ALLOCATABLE_RESOURCE_CLAIM_STATUS)),
]);

static CORE_POD_TEMPLATE: Message = message("io.k8s.api.core.v1", "PodTemplate", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "template", Msg(&CORE_POD_TEMPLATE_SPEC)).always(),
]);

static CORE_POD_TEMPLATE_SPEC: Message = message("io.k8s.api.core.v1", "PodTemplateSpec", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&CORE_POD_SPEC)).always(),
]);

static CORE_PORTWORX_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "PortworxVolumeSource", &[
    one(1, "volumeID", Str).always(),
    one(2, "fsType", Str).omitted(),
    one(3, "readOnly", Bool).omitted(),
]);

static CORE_PORT_STATUS: Message = message("io.k8s.api.core.v1", "PortStatus", &[
    one(1, "port", Int).always(),
    one(2, "protocol", Str).always(),
    one(3, "error", Str),
]);

static CORE_PREFERRED_SCHEDULING_TERM: Message = message("io.k8s.api.core.v1", "PreferredSchedulingTerm", &[
    one(1, "weight", Int).always(),
    one(2, "preference", Msg(&CORE_NODE_SELECTOR_TERM)).always(),
]);

static CORE_PROBE: Message = message("io.k8s.api.core.v1", "Probe", &[
    inline(1, Msg(&CORE_PROBE_HANDLER)),
    one(2, "initialDelaySeconds", Int).omitted(),
    one(3, "timeoutSeconds", Int).omitted(),
    one(4, "periodSeconds", Int).omitted(),
    one(5, "successThreshold", Int).omitted(),
    one(6, "failureThreshold", Int).omitted(),
    one(7, "terminationGracePeriodSeconds", Int),
]);

static CORE_PROBE_HANDLER: Message = message("io.k8s.api.core.v1", "ProbeHandler", &[
    one(1, "exec", Msg(&CORE_EXEC_ACTION)),
    one(2, "httpGet", Msg(&CORE_HTTP_GET_ACTION)),
    one(3, "tcpSocket", Msg(&CORE_TCP_SOCKET_ACTION)),
    one(4, "grpc", Msg(&CORE_GRPC_ACTION)),
]);

static CORE_PROJECTED_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "ProjectedVolumeSource", &[
    list(1, "sources", Msg(&CORE_VOLUME_PROJECTION)).always(),
    one(2, "defaultMode", Int),
]);

static CORE_QUOBYTE_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "QuobyteVolumeSource", &[
    one(1, "registry", Str).always(),
    one(2, "volume", Str).always(),
    one(3, "readOnly", Bool).omitted(),
    one(4, "user", Str).omitted(),
    one(5, "group", Str).omitted(),
    one(6, "tenant", Str).omitted(),
]);

static CORE_RBD_PERSISTENT_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "RBDPersistentVolumeSource", &[
    list(1, "monitors", Str).always(),
    one(2, "image", Str).always(),
    one(3, "fsType", Str).omitted(),
    one(4, "pool", Str).omitted(),
    one(5, "user", Str).omitted(),
    one(6, "keyring", Str).omitted(),
    one(7, "secretRef", Msg(&CORE_SECRET_REFERENCE)),
    one(8, "readOnly", Bool).omitted(),
]);

static CORE_RBD_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "RBDVolumeSource", &[
    list(1, "monitors", Str).always(),
    one(2, "image", Str).always(),
    one(3, "fsType", Str).omitted(),
    one(4, "pool", Str).omitted(),
    one(5, "user", Str).omitted(),
    one(6, "keyring", Str).omitted(),
    one(7, "secretRef", Msg(&CORE_LOCAL_OBJECT_REFERENCE)),
    one(8, "readOnly", Bool).omitted(),
]);

static CORE_REPLICATION_CONTROLLER: Message = message("io.k8s.api.core.v1", "ReplicationController", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&CORE_REPLICATION_CONTROLLER_SPEC)).always(),
    one(3, "status", Msg(&CORE_REPLICATION_CONTROLLER_STATUS)).always(),
]);

static CORE_REPLICATION_CONTROLLER_CONDITION: Message = message("io.k8s.api.core.v1", "ReplicationControllerCondition", &[
    one(1, "type", Str).always(),
    one(2, "status", Str).always(),
    one(3, "lastTransitionTime", Time).omitted(),
    one(4, "reason", Str).omitted(),
    one(5, "message", Str).omitted(),
]);

static CORE_REPLICATION_CONTROLLER_SPEC: Message = message("io.k8s.api.core.v1", "ReplicationControllerSpec", &[
    one(1, "replicas", Int),
    map(2, "selector", Str).atomic(),
    one(3, "template", Msg(&CORE_POD_TEMPLATE_SPEC)),
    one(4, "minReadySeconds", Int).omitted(),
]);

static CORE_REPLICATION_CONTROLLER_STATUS: Message = message("io.k8s.api.core.v1", "ReplicationControllerStatus", &[
    one(1, "replicas", Int).always(),
    one(2, "fullyLabeledReplicas", Int).omitted(),
    one(3, "observedGeneration", Int).omitted(),
    one(4, "readyReplicas", Int).omitted(),
    one(5, "availableReplicas", Int).omitted(),
    list(6, "conditions", Msg(&CORE_REPLICATION_CONTROLLER_CONDITION)).keyed(&["type"]).merged("type"),
]);

static CORE_RESOURCE_CLAIM: Message = message("io.k8s.api.core.v1", "ResourceClaim", &[
    one(1, "name", Str).always(),
    one(2, "request", Str).omitted(),
]);

static CORE_RESOURCE_FIELD_SELECTOR: Message = atomic_message("io.k8s.api.core.v1", "ResourceFieldSelector", &[
    one(1, "containerName", Str).omitted(),
    one(2, "resource", Str).always(),
    one(3, "divisor", Quantity).omitted(),
]);

static CORE_RESOURCE_HEALTH: Message = message("io.k8s.api.core.v1", "ResourceHealth", &[
    one(1, "resourceID", Str).always(),
    one(2, "health", Str).omitted(),
    one(6, "message", Str),
]);

static CORE_RESOURCE_QUOTA: Message = message("io.k8s.api.core.v1", "ResourceQuota", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&CORE_RESOURCE_QUOTA_SPEC)).always(),
    one(3, "status", Msg(&CORE_RESOURCE_QUOTA_STATUS)).always(),
]);

static CORE_RESOURCE_QUOTA_SPEC: Message = message("io.k8s.api.core.v1", "ResourceQuotaSpec", &[
    map(1, "hard", Quantity),
    list(2, "scopes", Str),
    one(3, "scopeSelector", Msg(&CORE_SCOPE_SELECTOR)),
]);

static CORE_RESOURCE_QUOTA_STATUS: Message = message("io.k8s.api.core.v1", "ResourceQuotaStatus", &[
    map(1, "hard", Quantity),
    map(2, "used", Quantity),
]);

static CORE_RESOURCE_REQUIREMENTS: Message = message("io.k8s.api.core.v1", "ResourceRequirements", &[
    map(1, "limits", Quantity),
    map(2, "requests", Quantity),
    list(3, "claims", Msg(&CORE_RESOURCE_CLAIM)).keyed(&["name"]),
]);

static CORE_RESOURCE_STATUS: Message = message("io.k8s.api.core.v1", "ResourceStatus", &[
    one(1, "name", Str).always(),
    list(2, "resources", Msg(&CORE_RESOURCE_HEALTH)).keyed(&["resourceID"]),
]);

static CORE_SCALE_IO_PERSISTENT_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "ScaleIOPersistentVolumeSource", &[
    one(1, "gateway", Str).always(),
    one(2, "system", Str).always(),
    one(3, "secretRef", Msg(&CORE_SECRET_REFERENCE)),
    one(4, "sslEnabled", Bool).omitted(),
    one(5, "protectionDomain", Str).omitted(),
    one(6, "storagePool", Str).omitted(),
    one(7, "storageMode", Str).omitted(),
    one(8, "volumeName", Str).omitted(),
    one(9, "fsType", Str).omitted(),
    one(10, "readOnly", Bool).omitted(),
]);

static CORE_SCALE_IO_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "ScaleIOVolumeSource", &[
    one(1, "gateway", Str).always(),
    one(2, "system", Str).always(),
    one(3, "secretRef", Msg(&CORE_LOCAL_OBJECT_REFERENCE)),
    one(4, "sslEnabled", Bool).omitted(),
    one(5, "protectionDomain", Str).omitted(),
    one(6, "storagePool", Str).omitted(),
    one(7, "storageMode", Str).omitted(),
    one(8, "volumeName", Str).omitted(),
    one(9, "fsType", Str).omitted(),
    one(10, "readOnly", Bool).omitted(),
]);

static CORE_SCOPED_RESOURCE_SELECTOR_REQUIREMENT: Message = message("io.k8s.api.core.v1", "ScopedResourceSelectorRequirement", &[
    one(1, "scopeName", Str).always(),
    one(2, "operator", Str).always(),
    list(3, "values", Str),
]);

static CORE_SCOPE_SELECTOR: Message = atomic_message("io.k8s.api.core.v1", "ScopeSelector", &[
    list(1, "matchExpressions", Msg(&CORE_SCOPED_RESOURCE_SELECTOR_REQUIREMENT)),
]);

static CORE_SECCOMP_PROFILE: Message = message("io.k8s.api.core.v1", "SeccompProfile", &[
    one(1, "type", Str).always(),
    one(2, "localhostProfile", Str),
]);

static CORE_SECRET: Message = message("io.k8s.api.core.v1", "Secret", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    map(2, "data", Bytes),
    one(3, "type", Str).omitted(),
    map(4, "stringData", Str),
    one(5, "immutable", Bool),
]);

static CORE_SECRET_ENV_SOURCE: Message = message("io.k8s.api.core.v1", "SecretEnvSource", &[
    inline(1, Msg(&CORE_LOCAL_OBJECT_REFERENCE)),
    one(2, "optional", Bool),
]);

static CORE_SECRET_KEY_SELECTOR: Message = atomic_message("io.k8s.api.core.v1", "SecretKeySelector", &[
    inline(1, Msg(&CORE_LOCAL_OBJECT_REFERENCE)),
    one(2, "key", Str).always(),
    one(3, "optional", Bool),
]);

static CORE_SECRET_PROJECTION: Message = message("io.k8s.api.core.v1", "SecretProjection", &[
    inline(1, Msg(&CORE_LOCAL_OBJECT_REFERENCE)),
    list(2, "items", Msg(&CORE_KEY_TO_PATH)),
    one(4, "optional", Bool),
]);

static CORE_SECRET_REFERENCE: Message = atomic_message("io.k8s.api.core.v1", "SecretReference", &[
    one(1, "name", Str).omitted(),
    one(2, "namespace", Str).omitted(),
]);

static CORE_SECRET_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "SecretVolumeSource", &[
    one(1, "secretName", Str).omitted(),
    list(2, "items", Msg(&CORE_KEY_TO_PATH)),
    one(3, "defaultMode", Int),
    one(4, "optional", Bool),
]);

static CORE_SECURITY_CONTEXT: Message = message("io.k8s.api.core.v1", "SecurityContext", &[
    one(1, "capabilities", Msg(&CORE_CAPABILITIES)),
    one(2, "privileged", Bool),
    one(3, "seLinuxOptions", Msg(&CORE_SE_LINUX_OPTIONS)),
    one(4, "runAsUser", Int),
    one(5, "runAsNonRoot", Bool),
    one(6, "readOnlyRootFilesystem", Bool),
    one(7, "allowPrivilegeEscalation", Bool),
    one(8, "runAsGroup", Int),
    one(9, "procMount", Str),
    one(10, "windowsOptions", Msg(&CORE_WINDOWS_SECURITY_CONTEXT_OPTIONS)),
    one(11, "seccompProfile", Msg(&CORE_SECCOMP_PROFILE)),
    one(12, "appArmorProfile", Msg(&CORE_APP_ARMOR_PROFILE)),
]);

static CORE_SERVICE: Message = message("io.k8s.api.core.v1", "Service", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&CORE_SERVICE_SPEC)).always(),
    one(3, "status", Msg(&CORE_SERVICE_STATUS)).always(),
]);

static CORE_SERVICE_ACCOUNT: Message = message("io.k8s.api.core.v1", "ServiceAccount", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    list(2, "secrets", Msg(&CORE_OBJECT_REFERENCE)).keyed(&["name"]).merged("name"),
    list(3, "imagePullSecrets", Msg(&CORE_LOCAL_OBJECT_REFERENCE)),
    one(4, "automountServiceAccountToken", Bool),
]);

static CORE_SERVICE_ACCOUNT_TOKEN_PROJECTION: Message = message("io.k8s.api.core.v1", "ServiceAccountTokenProjection", &[
    one(1, "audience", Str).omitted(),
    one(2, "expirationSeconds", Int),
    one(3, "path", Str).always(),
]);

static CORE_SERVICE_PORT: Message = message("io.k8s.api.core.v1", "ServicePort", &[
    one(1, "name", Str).omitted(),
    one(2, "protocol", Str).omitted().defaulting("TCP"),
    one(3, "port", Int).always(),
    one(4, "targetPort", IntOrString).omitted(),
    one(5, "nodePort", Int).omitted(),
    one(6, "appProtocol", Str),
]);

static CORE_SERVICE_SPEC: Message = message("io.k8s.api.core.v1", "ServiceSpec", &[
    list(1, "ports", Msg(&CORE_SERVICE_PORT)).keyed(&["port", "protocol"]).merged("port"),
    map(2, "selector", Str).atomic(),
    one(3, "clusterIP", Str).omitted(),
    one(4, "type", Str).omitted(),
    list(5, "externalIPs", Str),
    one(7, "sessionAffinity", Str).omitted(),
    one(8, "loadBalancerIP", Str).omitted(),
    list(9, "loadBalancerSourceRanges", Str),
    one(10, "externalName", Str).omitted(),
    one(11, "externalTrafficPolicy", Str).omitted(),
    one(12, "healthCheckNodePort", Int).omitted(),
    one(13, "publishNotReadyAddresses", Bool).omitted(),
    one(14, "sessionAffinityConfig", Msg(&CORE_SESSION_AFFINITY_CONFIG)),
    one(17, "ipFamilyPolicy", Str),
    list(18, "clusterIPs", Str),
    list(19, "ipFamilies", Str),
    one(20, "allocateLoadBalancerNodePorts", Bool),
    one(21, "loadBalancerClass", Str),
    one(22, "internalTrafficPolicy", Str),
    one(23, "trafficDistribution", Str),
]);

static CORE_SERVICE_STATUS: Message = message("io.k8s.api.core.v1", "ServiceStatus", &[
    one(1, "loadBalancer", Msg(&CORE_LOAD_BALANCER_STATUS)).always(),
    list(2, "conditions", Msg(&META_CONDITION)).keyed(&["type"]).merged("type"),
]);

static CORE_SESSION_AFFINITY_CONFIG: Message = message("io.k8s.api.core.v1", "SessionAffinityConfig", &[
    one(1, "clientIP", Msg(&CORE_CLIENT_IP_CONFIG)),
]);

static CORE_SE_LINUX_OPTIONS: Message = message("io.k8s.api.core.v1", "SELinuxOptions", &[
    one(1, "user", Str).omitted(),
    one(2, "role", Str).omitted(),
    one(3, "type", Str).omitted(),
    one(4, "level", Str).omitted(),
]);

static CORE_SLEEP_ACTION: Message = message("io.k8s.api.core.v1", "SleepAction", &[
    one(1, "seconds", Int).always(),
]);

static CORE_STORAGE_OS_PERSISTENT_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "StorageOSPersistentVolumeSource", &[
    one(1, "volumeName", Str).omitted(),
    one(2, "volumeNamespace", Str).omitted(),
    one(3, "fsType", Str).omitted(),
    one(4, "readOnly", Bool).omitted(),
    one(5, "secretRef", Msg(&CORE_OBJECT_REFERENCE)),
]);

static CORE_STORAGE_OS_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "StorageOSVolumeSource", &[
    one(1, "volumeName", Str).omitted(),
    one(2, "volumeNamespace", Str).omitted(),
    one(3, "fsType", Str).omitted(),
    one(4, "readOnly", Bool).omitted(),
    one(5, "secretRef", Msg(&CORE_LOCAL_OBJECT_REFERENCE)),
]);

static CORE_SYSCTL: Message = message("io.k8s.api.core.v1", "Sysctl", &[
    one(1, "name", Str).always(),
    one(2, "value", Str).always(),
]);

static CORE_TAINT: Message = message("io.k8s.api.core.v1", "Taint", &[
    one(1, "key", Str).always(),
    one(2, "value", Str).omitted(),
    one(3, "effect", Str).always(),
    one(4, "timeAdded", Time),
]);

static CORE_TCP_SOCKET_ACTION: Message = message("io.k8s.api.core.v1", "TCPSocketAction", &[
    one(1, "port", IntOrString).always(),
    one(2, "host", Str).omitted(),
]);

static CORE_TOLERATION: Message = message("io.k8s.api.core.v1", "Toleration", &[
    one(1, "key", Str).omitted(),
    one(2, "operator", Str).omitted(),
    one(3, "value", Str).omitted(),
    one(4, "effect", Str).omitted(),
    one(5, "tolerationSeconds", Int),
]);

static CORE_TOPOLOGY_SELECTOR_LABEL_REQUIREMENT: Message = message("io.k8s.api.core.v1", "TopologySelectorLabelRequirement", &[
    one(1, "key", Str).always(),
    list(2, "values", Str).always(),
]);

static CORE_TOPOLOGY_SELECTOR_TERM: Message = atomic_message("io.k8s.api.core.v1", "TopologySelectorTerm", &[
    list(1, "matchLabelExpressions", Msg(&CORE_TOPOLOGY_SELECTOR_LABEL_REQUIREMENT)),
]);

static CORE_TOPOLOGY_SPREAD_CONSTRAINT: Message = message("io.k8s.api.core.v1", "TopologySpreadConstraint", &[
    one(1, "maxSkew", Int).always(),
    one(2, "topologyKey", Str).always(),
    one(3, "whenUnsatisfiable", Str).always(),
    one(4, "labelSelector", Msg(&META_LABEL_SELECTOR)),
    one(5, "minDomains", Int),
    one(6, "nodeAffinityPolicy", Str),
    one(7, "nodeTaintsPolicy", Str),
    list(8, "matchLabelKeys", Str),
]);

static CORE_TYPED_LOCAL_OBJECT_REFERENCE: Message = atomic_message("io.k8s.api.core.v1", "TypedLocalObjectReference", &[
    one(1, "apiGroup", Str),
    one(2, "kind", Str).always(),
    one(3, "name", Str).always(),
]);

static CORE_TYPED_OBJECT_REFERENCE: Message = message("io.k8s.api.core.v1", "TypedObjectReference", &[
    one(1, "apiGroup", Str),
    one(2, "kind", Str).always(),
    one(3, "name", Str).always(),
    one(4, "namespace", Str),
]);

static CORE_VOLUME: Message = message("io.k8s.api.core.v1", "Volume", &[
    one(1, "name", Str).always(),
    inline(2, Msg(&CORE_VOLUME_SOURCE)),
]);

static CORE_VOLUME_DEVICE: Message = message("io.k8s.api.core.v1", "VolumeDevice", &[
    one(1, "name", Str).always(),
    one(2, "devicePath", Str).always(),
]);

static CORE_VOLUME_MOUNT: Message = message("io.k8s.api.core.v1", "VolumeMount", &[
    one(1, "name", Str).always(),
    one(2, "readOnly", Bool).omitted(),
    one(3, "mountPath", Str).always(),
    one(4, "subPath", Str).omitted(),
    one(5, "mountPropagation", Str),
    one(6, "subPathExpr", Str).omitted(),
    one(7, "recursiveReadOnly", Str),
]);

static CORE_VOLUME_MOUNT_STATUS: Message = message("io.k8s.api.core.v1", "VolumeMountStatus", &[
    one(1, "name", Str).always(),
    one(2, "mountPath", Str).always(),
    one(3, "readOnly", Bool).omitted(),
    one(4, "recursiveReadOnly", Str),
    one(5, "volumeStatus", Msg(&CORE_VOLUME_STATUS)),
]);

static CORE_VOLUME_NODE_AFFINITY: Message = message("io.k8s.api.core.v1", "VolumeNodeAffinity", &[
    one(1, "required", Msg(&CORE_NODE_SELECTOR)),
]);

static CORE_VOLUME_PROJECTION: Message = message("io.k8s.api.core.v1", "VolumeProjection", &[
    one(1, "secret", Msg(&CORE_SECRET_PROJECTION)),
    one(2, "downwardAPI", Msg(&CORE_DOWNWARD_API_PROJECTION)),
    one(3, "configMap", Msg(&CORE_CONFIG_MAP_PROJECTION)),
    one(4, "serviceAccountToken", Msg(&CORE_SERVICE_ACCOUNT_TOKEN_PROJECTION)),
    one(5, "clusterTrustBundle", Msg(&CORE_CLUSTER_TRUST_BUNDLE_PROJECTION)),
    one(6, "podCertificate", Msg(&CORE_POD_CERTIFICATE_PROJECTION)),
]);

static CORE_VOLUME_RESOURCE_REQUIREMENTS: Message = message("io.k8s.api.core.v1", "VolumeResourceRequirements", &[
    map(1, "limits", Quantity),
    map(2, "requests", Quantity),
]);

static CORE_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "VolumeSource", &[
    one(1, "hostPath", Msg(&CORE_HOST_PATH_VOLUME_SOURCE)),
    one(2, "emptyDir", Msg(&CORE_EMPTY_DIR_VOLUME_SOURCE)),
    one(3, "gcePersistentDisk", Msg(&CORE_GCE_PERSISTENT_DISK_VOLUME_SOURCE)),
    one(4, "awsElasticBlockStore", Msg(&CORE_AWS_ELASTIC_BLOCK_STORE_VOLUME_SOURCE)),
    one(5, "gitRepo", Msg(&CORE_GIT_REPO_VOLUME_SOURCE)),
    one(6, "secret", Msg(&CORE_SECRET_VOLUME_SOURCE)),
    one(7, "nfs", Msg(&CORE_NFS_VOLUME_SOURCE)),
    one(8, "iscsi", Msg(&CORE_ISCSI_VOLUME_SOURCE)),
    one(9, "glusterfs", Msg(&CORE_GLUSTERFS_VOLUME_SOURCE)),
    one(10, "persistentVolumeClaim", Msg(&CORE_PERSISTENT_VOLUME_CLAIM_VOLUME_SOURCE)),
    one(11, "rbd", Msg(&CORE_RBD_VOLUME_SOURCE)),
    one(12, "flexVolume", Msg(&CORE_FLEX_VOLUME_SOURCE)),
    one(13, "cinder", Msg(&CORE_CINDER_VOLUME_SOURCE)),
    one(14, "cephfs", Msg(&CORE_CEPH_FS_VOLUME_SOURCE)),
    one(15, "flocker", Msg(&CORE_FLOCKER_VOLUME_SOURCE)),
    one(16, "downwardAPI", Msg(&CORE_DOWNWARD_API_VOLUME_SOURCE)),
    one(17, "fc", Msg(&CORE_FC_VOLUME_SOURCE)),
    one(18, "azureFile", Msg(&CORE_AZURE_FILE_VOLUME_SOURCE)),
    one(19, "configMap", Msg(&CORE_CONFIG_MAP_VOLUME_SOURCE)),
    one(20, "vsphereVolume", Msg(&CORE_VSPHERE_VIRTUAL_DISK_VOLUME_SOURCE)),
    one(21, "quobyte", Msg(&CORE_QUOBYTE_VOLUME_SOURCE)),
    one(22, "azureDisk", Msg(&CORE_AZURE_DISK_VOLUME_SOURCE)),
    one(23, "photonPersistentDisk", Msg(&CORE_PHOTON_PERSISTENT_DISK_VOLUME_SOURCE)),
    one(24, "portworxVolume", Msg(&CORE_PORTWORX_VOLUME_SOURCE)),
    one(25, "scaleIO", Msg(&CORE_SCALE_IO_VOLUME_SOURCE)),
    one(26, "projected", Msg(&CORE_PROJECTED_VOLUME_SOURCE)),
    one(27, "storageos", Msg(&CORE_STORAGE_OS_VOLUME_SOURCE)),
    one(28, "csi", Msg(&CORE_CSI_VOLUME_SOURCE)),
    one(29, "ephemeral", Msg(&CORE_EPHEMERAL_VOLUME_SOURCE)),
    one(30, "image", Msg(&CORE_IMAGE_VOLUME_SOURCE)),
]);

static CORE_VOLUME_STATUS: Message = message("io.k8s.api.core.v1", "VolumeStatus", &[
    one(1, "image", Msg(&CORE_IMAGE_VOLUME_STATUS)),
]);

static CORE_VSPHERE_VIRTUAL_DISK_VOLUME_SOURCE: Message = message("io.k8s.api.core.v1", "VsphereVirtualDiskVolumeSource", &[
    one(1, "volumePath", Str).always(),
    one(2, "fsType", Str).omitted(),
    one(3, "storagePolicyName", Str).omitted(),
    one(4, "storagePolicyID", Str).omitted(),
]);

static CORE_WEIGHTED_POD_AFFINITY_TERM: Message = message("io.k8s.api.core.v1", "WeightedPodAffinityTerm", &[
    one(1, "weight", Int).always(),
    one(2, "podAffinityTerm", Msg(&CORE_POD_AFFINITY_TERM)).always(),
]);

static CORE_WINDOWS_SECURITY_CONTEXT_OPTIONS: Message = message("io.k8s.api.core.v1", "WindowsSecurityContextOptions", &[
    one(1, "gmsaCredentialSpecName", Str),
    one(2, "gmsaCredentialSpec", Str),
    one(3, "runAsUserName", Str),
    one(4, "hostProcess", Bool),
]);

static DISCOVERY_ENDPOINT: Message = message("io.k8s.api.discovery.v1", "Endpoint", &[
    list(1, "addresses", Str).always().set(),
    one(2, "conditions", Msg(&DISCOVERY_ENDPOINT_CONDITIONS)).always(),
    one(3, "hostname", Str),
    one(4, "targetRef", Msg(&CORE_OBJECT_REFERENCE)),
    map(5, "deprecatedTopology", Str),
    one(6, "nodeName", Str),
    one(7, "zone", Str),
    one(8, "hints", Msg(&DISCOVERY_ENDPOINT_HINTS)),
]);

static DISCOVERY_ENDPOINT_CONDITIONS: Message = message("io.k8s.api.discovery.v1", "EndpointConditions", &[
    one(1, "ready", Bool),
    one(2, "serving", Bool),
    one(3, "terminating", Bool),
]);

static DISCOVERY_ENDPOINT_HINTS: Message = message("io.k8s.api.discovery.v1", "EndpointHints", &[
    list(1, "forZones", Msg(&DISCOVERY_FOR_ZONE)),
    list(2, "forNodes", Msg(&DISCOVERY_FOR_NODE)),
]);

static DISCOVERY_ENDPOINT_PORT: Message = atomic_message("io.k8s.api.discovery.v1", "EndpointPort", &[
    one(1, "name", Str),
    one(2, "protocol", Str),
    one(3, "port", Int),
    one(4, "appProtocol", Str),
]);

static DISCOVERY_ENDPOINT_SLICE: Message = message("io.k8s.api.discovery.v1", "EndpointSlice", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    list(2, "endpoints", Msg(&DISCOVERY_ENDPOINT)).always(),
    list(3, "ports", Msg(&DISCOVERY_ENDPOINT_PORT)).always(),
    one(4, "addressType", Str).always(),
]);

static DISCOVERY_FOR_NODE: Message = message("io.k8s.api.discovery.v1", "ForNode", &[
    one(1, "name", Str).always(),
]);

static DISCOVERY_FOR_ZONE: Message = message("io.k8s.api.discovery.v1", "ForZone", &[
    one(1, "name", Str).always(),
]);

static EVENTS_EVENT: Message = message("io.k8s.api.events.v1", "Event", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "eventTime", MicroTime).always(),
    one(3, "series", Msg(&EVENTS_EVENT_SERIES)),
    one(4, "reportingController", Str).omitted(),
    one(5, "reportingInstance", Str).omitted(),
    one(6, "action", Str).omitted(),
    one(7, "reason", Str).omitted(),
    one(8, "regarding", Msg(&CORE_OBJECT_REFERENCE)).always(),
    one(9, "related", Msg(&CORE_OBJECT_REFERENCE)),
    one(10, "note", Str).omitted(),
    one(11, "type", Str).omitted(),
    one(12, "deprecatedSource", Msg(&CORE_EVENT_SOURCE)).always(),
    one(13, "deprecatedFirstTimestamp", Time).omitted(),
    one(14, "deprecatedLastTimestamp", Time).omitted(),
    one(15, "deprecatedCount", Int).omitted(),
]);

static EVENTS_EVENT_SERIES: Message = message("io.k8s.api.events.v1", "EventSeries", &[
    one(1, "count", Int).always(),
    one(2, "lastObservedTime", MicroTime).always(),
]);

static FLOWCONTROL_EXEMPT_PRIORITY_LEVEL_CONFIGURATION: Message = message("io.k8s.api.flowcontrol.v1", "ExemptPriorityLevelConfiguration", &[
    one(1, "nominalConcurrencyShares", Int),
    one(2, "lendablePercent", Int),
]);

static FLOWCONTROL_FLOW_DISTINGUISHER_METHOD: Message = message("io.k8s.api.flowcontrol.v1", "FlowDistinguisherMethod", &[
    one(1, "type", Str).always(),
]);

static FLOWCONTROL_FLOW_SCHEMA: Message = message("io.k8s.api.flowcontrol.v1", "FlowSchema", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&FLOWCONTROL_FLOW_SCHEMA_SPEC)).always(),
    one(3, "status", Msg(&FLOWCONTROL_FLOW_SCHEMA_STATUS)).always(),
]);

static FLOWCONTROL_FLOW_SCHEMA_CONDITION: Message = message("io.k8s.api.flowcontrol.v1", "FlowSchemaCondition", &[
    one(1, "type", Str).omitted(),
    one(2, "status", Str).omitted(),
    one(3, "lastTransitionTime", Time).omitted(),
    one(4, "reason", Str).omitted(),
    one(5, "message", Str).omitted(),
]);

static FLOWCONTROL_FLOW_SCHEMA_SPEC: Message = message("io.k8s.api.flowcontrol.v1", "FlowSchemaSpec", &[
    one(1, "priorityLevelConfiguration", Msg(&FLOWCONTROL_PRIORITY_LEVEL_CONFIGURATION_REFERENCE)).always(),
    one(2, "matchingPrecedence", Int).always(),
    one(3, "distinguisherMethod", Msg(&FLOWCONTROL_FLOW_DISTINGUISHER_METHOD)),
    list(4, "rules", Msg(&FLOWCONTROL_POLICY_RULES_WITH_SUBJECTS)),
]);

static FLOWCONTROL_FLOW_SCHEMA_STATUS: Message = message("io.k8s.api.flowcontrol.v1", "FlowSchemaStatus", &[
    list(1, "conditions", Msg(&FLOWCONTROL_FLOW_SCHEMA_CONDITION)).keyed(&["type"]).merged("type"),
]);

static FLOWCONTROL_GROUP_SUBJECT: Message = message("io.k8s.api.flowcontrol.v1", "GroupSubject", &[
    one(1, "name", Str).always(),
]);

static FLOWCONTROL_LIMITED_PRIORITY_LEVEL_CONFIGURATION: Message = message("io.k8s.api.flowcontrol.v1", "LimitedPriorityLevelConfiguration", &[
    one(1, "nominalConcurrencyShares", Int),
    one(2, "limitResponse", Msg(&FLOWCONTROL_LIMIT_RESPONSE)).always(),
    one(3, "lendablePercent", Int),
    one(4, "borrowingLimitPercent", Int),
]);

static FLOWCONTROL_LIMIT_RESPONSE: Message = message("io.k8s.api.flowcontrol.v1", "LimitResponse", &[
    one(1, "type", Str).always(),
    one(2, "queuing", Msg(&FLOWCONTROL_QUEUING_CONFIGURATION)),
]);

static FLOWCONTROL_NON_RESOURCE_POLICY_RULE: Message = message("io.k8s.api.flowcontrol.v1", "NonResourcePolicyRule", &[
    list(1, "verbs", Str).always().set(),
    list(6, "nonResourceURLs", Str).always().set(),
]);

static FLOWCONTROL_POLICY_RULES_WITH_SUBJECTS: Message = message("io.k8s.api.flowcontrol.v1", "PolicyRulesWithSubjects", &[
    list(1, "subjects", Msg(&FLOWCONTROL_SUBJECT)).always(),
    list(2, "resourceRules", Msg(&FLOWCONTROL_RESOURCE_POLICY_RULE)),
    list(3, "nonResourceRules", Msg(&FLOWCONTROL_NON_RESOURCE_POLICY_RULE)),
]);

static FLOWCONTROL_PRIORITY_LEVEL_CONFIGURATION: Message = message("io.k8s.api.flowcontrol.v1", "PriorityLevelConfiguration", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&FLOWCONTROL_PRIORITY_LEVEL_CONFIGURATION_SPEC)).always(),
    one(3, "status", Msg(&FLOWCONTROL_PRIORITY_LEVEL_CONFIGURATION_STATUS)).always(),
]);

static FLOWCONTROL_PRIORITY_LEVEL_CONFIGURATION_CONDITION: Message = message("io.k8s.api.flowcontrol.v1", "PriorityLevelConfigurationCondition", &[
    one(1, "type", Str).omitted(),
    one(2, "status", Str).omitted(),
    one(3, "lastTransitionTime", Time).omitted(),
    one(4, "reason", Str).omitted(),
    one(5, "message", Str).omitted(),
]);

static FLOWCONTROL_PRIORITY_LEVEL_CONFIGURATION_REFERENCE: Message = message("io.k8s.api.flowcontrol.v1", "PriorityLevelConfigurationReference", &[
    one(1, "name", Str).always(),
]);

static FLOWCONTROL_PRIORITY_LEVEL_CONFIGURATION_SPEC: Message = message("io.k8s.api.flowcontrol.v1", "PriorityLevelConfigurationSpec", &[
    one(1, "type", Str).always(),
    one(2, "limited", Msg(&FLOWCONTROL_LIMITED_PRIORITY_LEVEL_CONFIGURATION)),
    one(3, "exempt", Msg(&FLOWCONTROL_EXEMPT_PRIORITY_LEVEL_CONFIGURATION)),
]);

static FLOWCONTROL_PRIORITY_LEVEL_CONFIGURATION_STATUS: Message = message("io.k8s.api.flowcontrol.v1", "PriorityLevelConfigurationStatus", &[
    list(1, "conditions", Msg(&FLOWCONTROL_PRIORITY_LEVEL_CONFIGURATION_CONDITION)).keyed(&["type"]).merged("type"),
]);

static FLOWCONTROL_QUEUING_CONFIGURATION: Message = message("io.k8s.api.flowcontrol.v1", "QueuingConfiguration", &[
    one(1, "queues", Int).always(),
    one(2, "handSize", Int).always(),
    one(3, "queueLengthLimit", Int).always(),
]);

static FLOWCONTROL_RESOURCE_POLICY_RULE: Message = message("io.k8s.api.flowcontrol.v1", "ResourcePolicyRule", &[
    list(1, "verbs", Str).always().set(),
    list(2, "apiGroups", Str).always().set(),
    list(3, "resources", Str).always().set(),
    one(4, "clusterScope", Bool).omitted(),
    list(5, "namespaces", Str).always().set(),
]);

static FLOWCONTROL_SERVICE_ACCOUNT_SUBJECT: Message = message("io.k8s.api.flowcontrol.v1", "ServiceAccountSubject", &[
    one(1, "namespace", Str).always(),
    one(2, "name", Str).always(),
]);

static FLOWCONTROL_SUBJECT: Message = message("io.k8s.api.flowcontrol.v1", "Subject", &[
    one(1, "kind", Str).always(),
    one(2, "user", Msg(&FLOWCONTROL_USER_SUBJECT)),
    one(3, "group", Msg(&FLOWCONTROL_GROUP_SUBJECT)),
    one(4, "serviceAccount", Msg(&FLOWCONTROL_SERVICE_ACCOUNT_SUBJECT)),
]);

static FLOWCONTROL_USER_SUBJECT: Message = message("io.k8s.api.flowcontrol.v1", "UserSubject", &[
    one(1, "name", Str).always(),
]);

static META_CONDITION: Message = message("io.k8s.apimachinery.pkg.apis.meta.v1", "Condition", &[
    one(1, "type", Str).always(),
    one(2, "status", Str).always(),
    one(3, "observedGeneration", Int).omitted(),
    one(4, "lastTransitionTime", Time).always(),
    one(5, "reason", Str).always(),
    one(6, "message", Str).always(),
]);

static META_DELETE_OPTIONS: Message = message("io.k8s.apimachinery.pkg.apis.meta.v1", "DeleteOptions", &[
    one(1, "gracePeriodSeconds", Int),
    one(2, "preconditions", Msg(&META_PRECONDITIONS)),
    one(3, "orphanDependents", Bool),
    one(4, "propagationPolicy", Str),
    list(5, "dryRun", Str),
    one(6, "ignoreStoreReadErrorWithClusterBreakingPotential", Bool),
]);

static META_FIELD_SELECTOR_REQUIREMENT: Message = message("io.k8s.apimachinery.pkg.apis.meta.v1", "FieldSelectorRequirement", &[
    one(1, "key", Str).always(),
    one(2, "operator", Str).always(),
    list(3, "values", Str),
]);

static META_LABEL_SELECTOR: Message = atomic_message("io.k8s.apimachinery.pkg.apis.meta.v1", "LabelSelector", &[
    map(1, "matchLabels", Str),
    list(2, "matchExpressions", Msg(&META_LABEL_SELECTOR_REQUIREMENT)),
]);

static META_LABEL_SELECTOR_REQUIREMENT: Message = message("io.k8s.apimachinery.pkg.apis.meta.v1", "LabelSelectorRequirement", &[
    one(1, "key", Str).always(),
    one(2, "operator", Str).always(),
    list(3, "values", Str),
]);

static META_MANAGED_FIELDS_ENTRY: Message = message("io.k8s.apimachinery.pkg.apis.meta.v1", "ManagedFieldsEntry", &[
    one(1, "manager", Str).omitted(),
    one(2, "operation", Str).omitted(),
    one(3, "apiVersion", Str).omitted(),
    one(4, "time", Time),
    one(6, "fieldsType", Str).omitted(),
    one(7, "fieldsV1", Raw),
    one(8, "subresource", Str).omitted(),
]);

static META_OBJECT_META: Message = message("io.k8s.apimachinery.pkg.apis.meta.v1", "ObjectMeta", &[
    one(1, "name", Str).omitted(),
    one(2, "generateName", Str).omitted(),
    one(3, "namespace", Str).omitted(),
    one(4, "selfLink", Str).omitted(),
    one(5, "uid", Str).omitted(),
    one(6, "resourceVersion", Str).omitted(),
    one(7, "generation", Int).omitted(),
    one(8, "creationTimestamp", Time).omitted(),
    one(9, "deletionTimestamp", Time),
    one(10, "deletionGracePeriodSeconds", Int),
    map(11, "labels", Str),
    map(12, "annotations", Str),
    list(13, "ownerReferences", Msg(&META_OWNER_REFERENCE)).keyed(&["uid"]).merged("uid"),
    list(14, "finalizers", Str).set().merged(""),
    list(17, "managedFields", Msg(&META_MANAGED_FIELDS_ENTRY)),
]);

static META_OWNER_REFERENCE: Message = atomic_message("io.k8s.apimachinery.pkg.apis.meta.v1", "OwnerReference", &[
    one(1, "kind", Str).always(),
    one(3, "name", Str).always(),
    one(4, "uid", Str).always(),
    one(5, "apiVersion", Str).always(),
    one(6, "controller", Bool),
    one(7, "blockOwnerDeletion", Bool),
]);

static META_PRECONDITIONS: Message = message("io.k8s.apimachinery.pkg.apis.meta.v1", "Preconditions", &[
    one(1, "uid", Str),
    one(2, "resourceVersion", Str),
]);

static NETWORKING_HTTP_INGRESS_PATH: Message = message("io.k8s.api.networking.v1", "HTTPIngressPath", &[
    one(1, "path", Str).omitted(),
    one(2, "backend", Msg(&NETWORKING_INGRESS_BACKEND)).always(),
    one(3, "pathType", Str),
]);

static NETWORKING_HTTP_INGRESS_RULE_VALUE: Message = message("io.k8s.api.networking.v1", "HTTPIngressRuleValue", &[
    list(1, "paths", Msg(&NETWORKING_HTTP_INGRESS_PATH)).always(),
]);

static NETWORKING_INGRESS: Message = message("io.k8s.api.networking.v1", "Ingress", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&NETWORKING_INGRESS_SPEC)).always(),
    one(3, "status", Msg(&NETWORKING_INGRESS_STATUS)).always(),
]);

static NETWORKING_INGRESS_BACKEND: Message = message("io.k8s.api.networking.v1", "IngressBackend", &[
    one(3, "resource", Msg(&CORE_TYPED_LOCAL_OBJECT_REFERENCE)),
    one(4, "service", Msg(&NETWORKING_INGRESS_SERVICE_BACKEND)),
]);

static NETWORKING_INGRESS_CLASS: Message = message("io.k8s.api.networking.v1", "IngressClass", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&NETWORKING_INGRESS_CLASS_SPEC)).always(),
]);

static NETWORKING_INGRESS_CLASS_PARAMETERS_REFERENCE: Message = message("io.k8s.api.networking.v1", "IngressClassParametersReference", &[
    one(1, "apiGroup", Str),
    one(2, "kind", Str).always(),
    one(3, "name", Str).always(),
    one(4, "scope", Str),
    one(5, "namespace", Str),
]);

static NETWORKING_INGRESS_CLASS_SPEC: Message = message("io.k8s.api.networking.v1", "IngressClassSpec", &[
    one(1, "controller", Str).omitted(),
    one(2, "parameters", Msg(&NETWORKING_INGRESS_CLASS_PARAMETERS_REFERENCE)),
]);

static NETWORKING_INGRESS_LOAD_BALANCER_INGRESS: Message = message("io.k8s.api.networking.v1", "IngressLoadBalancerIngress", &[
    one(1, "ip", Str).omitted(),
    one(2, "hostname", Str).omitted(),
    list(4, "ports", Msg(&NETWORKING_INGRESS_PORT_STATUS)),
]);

static NETWORKING_INGRESS_LOAD_BALANCER_STATUS: Message = message("io.k8s.api.networking.v1", "IngressLoadBalancerStatus", &[
    list(1, "ingress", Msg(&NETWORKING_INGRESS_LOAD_BALANCER_INGRESS)),
]);

static NETWORKING_INGRESS_PORT_STATUS: Message = message("io.k8s.api.networking.v1", "IngressPortStatus", &[
    one(1, "port", Int).always(),
    one(2, "protocol", Str).always(),
    one(3, "error", Str),
]);

static NETWORKING_INGRESS_RULE: Message = message("io.k8s.api.networking.v1", "IngressRule", &[
    one(1, "host", Str).omitted(),
    inline(2, Msg(&NETWORKING_INGRESS_RULE_VALUE)),
]);

static NETWORKING_INGRESS_RULE_VALUE: Message = message("io.k8s.api.networking.v1", "IngressRuleValue", &[
    one(1, "http", Msg(&NETWORKING_HTTP_INGRESS_RULE_VALUE)),
]);

static NETWORKING_INGRESS_SERVICE_BACKEND: Message = message("io.k8s.api.networking.v1", "IngressServiceBackend", &[
    one(1, "name", Str).always(),
    one(2, "port", Msg(&NETWORKING_SERVICE_BACKEND_PORT)).always(),
]);

static NETWORKING_INGRESS_SPEC: Message = message("io.k8s.api.networking.v1", "IngressSpec", &[
    one(1, "defaultBackend", Msg(&NETWORKING_INGRESS_BACKEND)),
    list(2, "tls", Msg(&NETWORKING_INGRESS_TLS)),
    list(3, "rules", Msg(&NETWORKING_INGRESS_RULE)),
    one(4, "ingressClassName", Str),
]);

static NETWORKING_INGRESS_STATUS: Message = message("io.k8s.api.networking.v1", "IngressStatus", &[
    one(1, "loadBalancer", Msg(&NETWORKING_INGRESS_LOAD_BALANCER_STATUS)).always(),
]);

static NETWORKING_INGRESS_TLS: Message = message("io.k8s.api.networking.v1", "IngressTLS", &[
    list(1, "hosts", Str),
    one(2, "secretName", Str).omitted(),
]);

static NETWORKING_IP_ADDRESS: Message = message("io.k8s.api.networking.v1", "IPAddress", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&NETWORKING_IP_ADDRESS_SPEC)).always(),
]);

static NETWORKING_IP_ADDRESS_SPEC: Message = message("io.k8s.api.networking.v1", "IPAddressSpec", &[
    one(1, "parentRef", Msg(&NETWORKING_PARENT_REFERENCE)),
]);

static NETWORKING_IP_BLOCK: Message = message("io.k8s.api.networking.v1", "IPBlock", &[
    one(1, "cidr", Str).always(),
    list(2, "except", Str),
]);

static NETWORKING_NETWORK_POLICY: Message = message("io.k8s.api.networking.v1", "NetworkPolicy", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&NETWORKING_NETWORK_POLICY_SPEC)).always(),
]);

static NETWORKING_NETWORK_POLICY_EGRESS_RULE: Message = message("io.k8s.api.networking.v1", "NetworkPolicyEgressRule", &[
    list(1, "ports", Msg(&NETWORKING_NETWORK_POLICY_PORT)),
    list(2, "to", Msg(&NETWORKING_NETWORK_POLICY_PEER)),
]);

static NETWORKING_NETWORK_POLICY_INGRESS_RULE: Message = message("io.k8s.api.networking.v1", "NetworkPolicyIngressRule", &[
    list(1, "ports", Msg(&NETWORKING_NETWORK_POLICY_PORT)),
    list(2, "from", Msg(&NETWORKING_NETWORK_POLICY_PEER)),
]);

static NETWORKING_NETWORK_POLICY_PEER: Message = message("io.k8s.api.networking.v1", "NetworkPolicyPeer", &[
    one(1, "podSelector", Msg(&META_LABEL_SELECTOR)),
    one(2, "namespaceSelector", Msg(&META_LABEL_SELECTOR)),
    one(3, "ipBlock", Msg(&NETWORKING_IP_BLOCK)),
]);

static NETWORKING_NETWORK_POLICY_PORT: Message = message("io.k8s.api.networking.v1", "NetworkPolicyPort", &[
    one(1, "protocol", Str),
    one(2, "port", IntOrString),
    one(3, "endPort", Int),
]);

static NETWORKING_NETWORK_POLICY_SPEC: Message = message("io.k8s.api.networking.v1", "NetworkPolicySpec", &[
    one(1, "podSelector", Msg(&META_LABEL_SELECTOR)).always(),
    list(2, "ingress", Msg(&NETWORKING_NETWORK_POLICY_INGRESS_RULE)),
    list(3, "egress", Msg(&NETWORKING_NETWORK_POLICY_EGRESS_RULE)),
    list(4, "policyTypes", Str),
]);

static NETWORKING_PARENT_REFERENCE: Message = message("io.k8s.api.networking.v1", "ParentReference", &[
    one(1, "group", Str).omitted(),
    one(2, "resource", Str).omitted(),
    one(3, "namespace", Str).omitted(),
    one(4, "name", Str).omitted(),
]);

static NETWORKING_SERVICE_BACKEND_PORT: Message = atomic_message("io.k8s.api.networking.v1", "ServiceBackendPort", &[
    one(1, "name", Str).omitted(),
    one(2, "number", Int).omitted(),
]);

static NETWORKING_SERVICE_CIDR: Message = message("io.k8s.api.networking.v1", "ServiceCIDR", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&NETWORKING_SERVICE_CIDR_SPEC)).always(),
    one(3, "status", Msg(&NETWORKING_SERVICE_CIDR_STATUS)).always(),
]);

static NETWORKING_SERVICE_CIDR_SPEC: Message = message("io.k8s.api.networking.v1", "ServiceCIDRSpec", &[
    list(1, "cidrs", Str),
]);

static NETWORKING_SERVICE_CIDR_STATUS: Message = message("io.k8s.api.networking.v1", "ServiceCIDRStatus", &[
    list(1, "conditions", Msg(&META_CONDITION)).keyed(&["type"]).merged("type"),
]);

static NODE_OVERHEAD: Message = message("io.k8s.api.node.v1", "Overhead", &[
    map(1, "podFixed", Quantity),
]);

static NODE_RUNTIME_CLASS: Message = message("io.k8s.api.node.v1", "RuntimeClass", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "handler", Str).always(),
    one(3, "overhead", Msg(&NODE_OVERHEAD)),
    one(4, "scheduling", Msg(&NODE_SCHEDULING)),
]);

static NODE_SCHEDULING: Message = message("io.k8s.api.node.v1", "Scheduling", &[
    map(1, "nodeSelector", Str).atomic(),
    list(2, "tolerations", Msg(&CORE_TOLERATION)),
]);

static POLICY_EVICTION: Message = message("io.k8s.api.policy.v1", "Eviction", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "deleteOptions", Msg(&META_DELETE_OPTIONS)),
]);

static POLICY_POD_DISRUPTION_BUDGET: Message = message("io.k8s.api.policy.v1", "PodDisruptionBudget", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&POLICY_POD_DISRUPTION_BUDGET_SPEC)).always(),
    one(3, "status", Msg(&POLICY_POD_DISRUPTION_BUDGET_STATUS)).always(),
]);

static POLICY_POD_DISRUPTION_BUDGET_SPEC: Message = message("io.k8s.api.policy.v1", "PodDisruptionBudgetSpec", &[
    one(1, "minAvailable", IntOrString),
    one(2, "selector", Msg(&META_LABEL_SELECTOR)).replaced(),
    one(3, "maxUnavailable", IntOrString),
    one(4, "unhealthyPodEvictionPolicy", Str),
]);

static POLICY_POD_DISRUPTION_BUDGET_STATUS: Message = message("io.k8s.api.policy.v1", "PodDisruptionBudgetStatus", &[
    one(1, "observedGeneration", Int).omitted(),
    map(2, "disruptedPods", Time),
    one(3, "disruptionsAllowed", Int).always(),
    one(4, "currentHealthy", Int).always(),
    one(5, "desiredHealthy", Int).always(),
    one(6, "expectedPods", Int).always(),
    list(7, "conditions", Msg(&META_CONDITION)).keyed(&["type"]).merged("type"),
]);

static RBAC_AGGREGATION_RULE: Message = message("io.k8s.api.rbac.v1", "AggregationRule", &[
    list(1, "clusterRoleSelectors", Msg(&META_LABEL_SELECTOR)),
]);

static RBAC_CLUSTER_ROLE: Message = message("io.k8s.api.rbac.v1", "ClusterRole", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    list(2, "rules", Msg(&RBAC_POLICY_RULE)).always(),
    one(3, "aggregationRule", Msg(&RBAC_AGGREGATION_RULE)),
]);

static RBAC_CLUSTER_ROLE_BINDING: Message = message("io.k8s.api.rbac.v1", "ClusterRoleBinding", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    list(2, "subjects", Msg(&RBAC_SUBJECT)),
    one(3, "roleRef", Msg(&RBAC_ROLE_REF)).always(),
]);

static RBAC_POLICY_RULE: Message = message("io.k8s.api.rbac.v1", "PolicyRule", &[
    list(1, "verbs", Str).always(),
    list(2, "apiGroups", Str),
    list(3, "resources", Str),
    list(4, "resourceNames", Str),
    list(5, "nonResourceURLs", Str),
]);

static RBAC_ROLE: Message = message("io.k8s.api.rbac.v1", "Role", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    list(2, "rules", Msg(&RBAC_POLICY_RULE)).always(),
]);

static RBAC_ROLE_BINDING: Message = message("io.k8s.api.rbac.v1", "RoleBinding", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    list(2, "subjects", Msg(&RBAC_SUBJECT)),
    one(3, "roleRef", Msg(&RBAC_ROLE_REF)).always(),
]);

static RBAC_ROLE_REF: Message = atomic_message("io.k8s.api.rbac.v1", "RoleRef", &[
    one(1, "apiGroup", Str).always(),
    one(2, "kind", Str).always(),
    one(3, "name", Str).always(),
]);

static RBAC_SUBJECT: Message = atomic_message("io.k8s.api.rbac.v1", "Subject", &[
    one(1, "kind", Str).always(),
    one(2, "apiGroup", Str).omitted(),
    one(3, "name", Str).always(),
    one(4, "namespace", Str).omitted(),
]);

static RESOURCE_ALLOCATED_DEVICE_STATUS: Message = message("io.k8s.api.resource.v1", "AllocatedDeviceStatus", &[
    one(1, "driver", Str).always(),
    one(2, "pool", Str).always(),
    one(3, "device", Str).always(),
    list(4, "conditions", Msg(&META_CONDITION)).always().keyed(&["type"]),
    one(5, "data", Raw),
    one(6, "networkData", Msg(&RESOURCE_NETWORK_DEVICE_DATA)),
    one(7, "shareID", Str),
]);

static RESOURCE_ALLOCATION_RESULT: Message = message("io.k8s.api.resource.v1", "AllocationResult", &[
    one(1, "devices", Msg(&RESOURCE_DEVICE_ALLOCATION_RESULT)).always(),
    one(3, "nodeSelector", Msg(&CORE_NODE_SELECTOR)),
    one(5, "allocationTimestamp", Time),
]);

static RESOURCE_CAPACITY_REQUEST_POLICY: Message = message("io.k8s.api.resource.v1", "CapacityRequestPolicy", &[
    one(1, "default", Quantity),
    list(3, "validValues", Quantity),
    one(4, "validRange", Msg(&RESOURCE_CAPACITY_REQUEST_POLICY_RANGE)),
]);

static RESOURCE_CAPACITY_REQUEST_POLICY_RANGE: Message = message("io.k8s.api.resource.v1", "CapacityRequestPolicyRange", &[
    one(1, "min", Quantity).always(),
    one(2, "max", Quantity),
    one(3, "step", Quantity),
]);

static RESOURCE_CAPACITY_REQUIREMENTS: Message = message("io.k8s.api.resource.v1", "CapacityRequirements", &[
    map(1, "requests", Quantity),
]);

static RESOURCE_CEL_DEVICE_SELECTOR: Message = message("io.k8s.api.resource.v1", "CELDeviceSelector", &[
    one(1, "expression", Str).always(),
]);

static RESOURCE_COUNTER: Message = message("io.k8s.api.resource.v1", "Counter", &[
    one(1, "value", Quantity).always(),
]);

static RESOURCE_COUNTER_SET: Message = message("io.k8s.api.resource.v1", "CounterSet", &[
    one(1, "name", Str).always(),
    map(2, "counters", Msg(&RESOURCE_COUNTER)),
]);

static RESOURCE_DEVICE: Message = message("io.k8s.api.resource.v1", "Device", &[
    one(1, "name", Str).always(),
    map(2, "attributes", Msg(&RESOURCE_DEVICE_ATTRIBUTE)),
    map(3, "capacity", Msg(&RESOURCE_DEVICE_CAPACITY)),
    list(4, "consumesCounters", Msg(&RESOURCE_DEVICE_COUNTER_CONSUMPTION)),
    one(5, "nodeName", Str),
    one(6, "nodeSelector", Msg(&CORE_NODE_SELECTOR)),
    one(7, "allNodes", Bool),
    list(8, "taints", Msg(&RESOURCE_DEVICE_TAINT)),
    one(9, "bindsToNode", Bool),
    list(10, "bindingConditions", Str),
    list(11, "bindingFailureConditions", Str),
    one(12, "allowMultipleAllocations", Bool),
    map(13, "nodeAllocatableResourceMappings", Msg(&RESOURCE_NODE_ALLOCATABLE_RESOURCE_MAPPING)),
]);

static RESOURCE_DEVICE_ALLOCATION_CONFIGURATION: Message = message("io.k8s.api.resource.v1", "DeviceAllocationConfiguration", &[
    one(1, "source", Str).always(),
    list(2, "requests", Str),
    inline(3, Msg(&RESOURCE_DEVICE_CONFIGURATION)),
]);

static RESOURCE_DEVICE_ALLOCATION_RESULT: Message = message("io.k8s.api.resource.v1", "DeviceAllocationResult", &[
    list(1, "results", Msg(&RESOURCE_DEVICE_REQUEST_ALLOCATION_RESULT)),
    list(2, "config", Msg(&RESOURCE_DEVICE_ALLOCATION_CONFIGURATION)),
]);

static RESOURCE_DEVICE_ATTRIBUTE: Message = message("io.k8s.api.resource.v1", "DeviceAttribute", &[
    one(2, "int", Int),
    one(3, "bool", Bool),
    one(4, "string", Str),
    one(5, "version", Str),
    list(6, "ints", Int),
    list(7, "bools", Bool),
    list(8, "strings", Str),
    list(9, "versions", Str),
]);

static RESOURCE_DEVICE_CAPACITY: Message = message("io.k8s.api.resource.v1", "DeviceCapacity", &[
    one(1, "value", Quantity).always(),
    one(2, "requestPolicy", Msg(&RESOURCE_CAPACITY_REQUEST_POLICY)),
]);

static RESOURCE_DEVICE_CLAIM: Message = message("io.k8s.api.resource.v1", "DeviceClaim", &[
    list(1, "requests", Msg(&RESOURCE_DEVICE_REQUEST)).always(),
    list(2, "constraints", Msg(&RESOURCE_DEVICE_CONSTRAINT)),
    list(3, "config", Msg(&RESOURCE_DEVICE_CLAIM_CONFIGURATION)),
]);

static RESOURCE_DEVICE_CLAIM_CONFIGURATION: Message = message("io.k8s.api.resource.v1", "DeviceClaimConfiguration", &[
    list(1, "requests", Str),
    inline(2, Msg(&RESOURCE_DEVICE_CONFIGURATION)),
]);

static RESOURCE_DEVICE_CLASS: Message = message("io.k8s.api.resource.v1", "DeviceClass", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&RESOURCE_DEVICE_CLASS_SPEC)).always(),
]);

static RESOURCE_DEVICE_CLASS_CONFIGURATION: Message = message("io.k8s.api.resource.v1", "DeviceClassConfiguration", &[
    inline(1, Msg(&RESOURCE_DEVICE_CONFIGURATION)),
]);

static RESOURCE_DEVICE_CLASS_SPEC: Message = message("io.k8s.api.resource.v1", "DeviceClassSpec", &[
    list(1, "selectors", Msg(&RESOURCE_DEVICE_SELECTOR)),
    list(2, "config", Msg(&RESOURCE_DEVICE_CLASS_CONFIGURATION)),
    one(4, "extendedResourceName", Str),
]);

static RESOURCE_DEVICE_CONFIGURATION: Message = message("io.k8s.api.resource.v1", "DeviceConfiguration", &[
    one(1, "opaque", Msg(&RESOURCE_OPAQUE_DEVICE_CONFIGURATION)),
]);

static RESOURCE_DEVICE_CONSTRAINT: Message = message("io.k8s.api.resource.v1", "DeviceConstraint", &[
    list(1, "requests", Str),
    one(2, "matchAttribute", Str),
    one(3, "distinctAttribute", Str),
]);

static RESOURCE_DEVICE_COUNTER_CONSUMPTION: Message = message("io.k8s.api.resource.v1", "DeviceCounterConsumption", &[
    one(1, "counterSet", Str).always(),
    map(2, "counters", Msg(&RESOURCE_COUNTER)),
]);

static RESOURCE_DEVICE_REQUEST: Message = message("io.k8s.api.resource.v1", "DeviceRequest", &[
    one(1, "name", Str).always(),
    one(2, "exactly", Msg(&RESOURCE_EXACT_DEVICE_REQUEST)),
    list(3, "firstAvailable", Msg(&RESOURCE_DEVICE_SUB_REQUEST)),
]);

static RESOURCE_DEVICE_REQUEST_ALLOCATION_RESULT: Message = message("io.k8s.api.resource.v1", "DeviceRequestAllocationResult", &[
    one(1, "request", Str).always(),
    one(2, "driver", Str).always(),
    one(3, "pool", Str).always(),
    one(4, "device", Str).always(),
    one(5, "adminAccess", Bool),
    list(6, "tolerations", Msg(&RESOURCE_DEVICE_TOLERATION)),
    list(7, "bindingConditions", Str),
    list(8, "bindingFailureConditions", Str),
    one(9, "shareID", Str),
    map(10, "consumedCapacity", Quantity),
]);

static RESOURCE_DEVICE_SELECTOR: Message = message("io.k8s.api.resource.v1", "DeviceSelector", &[
    one(1, "cel", Msg(&RESOURCE_CEL_DEVICE_SELECTOR)),
]);

static RESOURCE_DEVICE_SUB_REQUEST: Message = message("io.k8s.api.resource.v1", "DeviceSubRequest", &[
    one(1, "name", Str).always(),
    one(2, "deviceClassName", Str).always(),
    list(3, "selectors", Msg(&RESOURCE_DEVICE_SELECTOR)),
    one(4, "allocationMode", Str).omitted(),
    one(5, "count", Int).omitted(),
    list(6, "tolerations", Msg(&RESOURCE_DEVICE_TOLERATION)),
    one(7, "capacity", Msg(&RESOURCE_CAPACITY_REQUIREMENTS)),
]);

static RESOURCE_DEVICE_TAINT: Message = message("io.k8s.api.resource.v1", "DeviceTaint", &[
    one(1, "key", Str).always(),
    one(2, "value", Str).omitted(),
    one(3, "effect", Str).always(),
    one(4, "timeAdded", Time),
]);

static RESOURCE_DEVICE_TOLERATION: Message = message("io.k8s.api.resource.v1", "DeviceToleration", &[
    one(1, "key", Str).omitted(),
    one(2, "operator", Str).omitted(),
    one(3, "value", Str).omitted(),
    one(4, "effect", Str).omitted(),
    one(5, "tolerationSeconds", Int),
]);

static RESOURCE_EXACT_DEVICE_REQUEST: Message = message("io.k8s.api.resource.v1", "ExactDeviceRequest", &[
    one(1, "deviceClassName", Str).always(),
    list(2, "selectors", Msg(&RESOURCE_DEVICE_SELECTOR)),
    one(3, "allocationMode", Str).omitted(),
    one(4, "count", Int).omitted(),
    one(5, "adminAccess", Bool),
    list(6, "tolerations", Msg(&RESOURCE_DEVICE_TOLERATION)),
    one(7, "capacity", Msg(&RESOURCE_CAPACITY_REQUIREMENTS)),
]);

static RESOURCE_NETWORK_DEVICE_DATA: Message = message("io.k8s.api.resource.v1", "NetworkDeviceData", &[
    one(1, "interfaceName", Str).omitted(),
    list(2, "ips", Str),
    one(3, "hardwareAddress", Str).omitted(),
]);

static RESOURCE_NODE_ALLOCATABLE_RESOURCE_MAPPING: Message = message("io.k8s.api.resource.v1", "NodeAllocatableResourceMapping", &[
    one(1, "capacityKey", Str),
    one(2, "allocationMultiplier", Quantity),
]);

static RESOURCE_OPAQUE_DEVICE_CONFIGURATION: Message = message("io.k8s.api.resource.v1", "OpaqueDeviceConfiguration", &[
    one(1, "driver", Str).always(),
    one(2, "parameters", Raw).always(),
]);

static RESOURCE_RESOURCE_CLAIM: Message = message("io.k8s.api.resource.v1", "ResourceClaim", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&RESOURCE_RESOURCE_CLAIM_SPEC)).always(),
    one(3, "status", Msg(&RESOURCE_RESOURCE_CLAIM_STATUS)).always(),
]);

static RESOURCE_RESOURCE_CLAIM_CONSUMER_REFERENCE: Message = message("io.k8s.api.resource.v1", "ResourceClaimConsumerReference", &[
    one(1, "apiGroup", Str).omitted(),
    one(3, "resource", Str).always(),
    one(4, "name", Str).always(),
    one(5, "uid", Str).always(),
]);

static RESOURCE_RESOURCE_CLAIM_SPEC: Message = message("io.k8s.api.resource.v1", "ResourceClaimSpec", &[
    one(1, "devices", Msg(&RESOURCE_DEVICE_CLAIM)).always(),
]);

static RESOURCE_RESOURCE_CLAIM_STATUS: Message = message("io.k8s.api.resource.v1", "ResourceClaimStatus", &[
    one(1, "allocation", Msg(&RESOURCE_ALLOCATION_RESULT)),
    list(2, "reservedFor", Msg(&RESOURCE_RESOURCE_CLAIM_CONSUMER_REFERENCE)).keyed(&["uid"]).merged("uid"),
    list(4, "devices", Msg(&RESOURCE_ALLOCATED_DEVICE_STATUS)).keyed(&["driver", "device", "pool", "shareID"]),
]);

static RESOURCE_RESOURCE_CLAIM_TEMPLATE: Message = message("io.k8s.api.resource.v1", "ResourceClaimTemplate", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&RESOURCE_RESOURCE_CLAIM_TEMPLATE_SPEC)).always(),
]);

static RESOURCE_RESOURCE_CLAIM_TEMPLATE_SPEC: Message = message("io.k8s.api.resource.v1", "ResourceClaimTemplateSpec", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&RESOURCE_RESOURCE_CLAIM_SPEC)).always(),
]);

static RESOURCE_RESOURCE_POOL: Message = message("io.k8s.api.resource.v1", "ResourcePool", &[
    one(1, "name", Str).always(),
    one(2, "generation", Int).always(),
    one(3, "resourceSliceCount", Int).always(),
]);

static RESOURCE_RESOURCE_SLICE: Message = message("io.k8s.api.resource.v1", "ResourceSlice", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&RESOURCE_RESOURCE_SLICE_SPEC)).always(),
]);

static RESOURCE_RESOURCE_SLICE_SPEC: Message = message("io.k8s.api.resource.v1", "ResourceSliceSpec", &[
    one(1, "driver", Str).always(),
    one(2, "pool", Msg(&RESOURCE_RESOURCE_POOL)).always(),
    one(3, "nodeName", Str),
    one(4, "nodeSelector", Msg(&CORE_NODE_SELECTOR)),
    one(5, "allNodes", Bool),
    list(6, "devices", Msg(&RESOURCE_DEVICE)),
    one(7, "perDeviceNodeSelection", Bool),
    list(8, "sharedCounters", Msg(&RESOURCE_COUNTER_SET)),
]);

static SCHEDULING_PRIORITY_CLASS: Message = message("io.k8s.api.scheduling.v1", "PriorityClass", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "value", Int).always(),
    one(3, "globalDefault", Bool).omitted(),
    one(4, "description", Str).omitted(),
    one(5, "preemptionPolicy", Str),
]);

static STORAGE_CSI_DRIVER: Message = message("io.k8s.api.storage.v1", "CSIDriver", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&STORAGE_CSI_DRIVER_SPEC)).always(),
]);

static STORAGE_CSI_DRIVER_SPEC: Message = message("io.k8s.api.storage.v1", "CSIDriverSpec", &[
    one(1, "attachRequired", Bool),
    one(2, "podInfoOnMount", Bool),
    list(3, "volumeLifecycleModes", Str).set(),
    one(4, "storageCapacity", Bool),
    one(5, "fsGroupPolicy", Str),
    list(6, "tokenRequests", Msg(&STORAGE_TOKEN_REQUEST)),
    one(7, "requiresRepublish", Bool),
    one(8, "seLinuxMount", Bool),
    one(9, "nodeAllocatableUpdatePeriodSeconds", Int),
    one(10, "serviceAccountTokenInSecrets", Bool),
    one(11, "preventPodSchedulingIfMissing", Bool),
]);

static STORAGE_CSI_NODE: Message = message("io.k8s.api.storage.v1", "CSINode", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&STORAGE_CSI_NODE_SPEC)).always(),
]);

static STORAGE_CSI_NODE_DRIVER: Message = message("io.k8s.api.storage.v1", "CSINodeDriver", &[
    one(1, "name", Str).always(),
    one(2, "nodeID", Str).always(),
    list(3, "topologyKeys", Str).always(),
    one(4, "allocatable", Msg(&STORAGE_VOLUME_NODE_RESOURCES)),
]);

static STORAGE_CSI_NODE_SPEC: Message = message("io.k8s.api.storage.v1", "CSINodeSpec", &[
    list(1, "drivers", Msg(&STORAGE_CSI_NODE_DRIVER)).always().keyed(&["name"]).merged("name"),
]);

static STORAGE_CSI_STORAGE_CAPACITY: Message = message("io.k8s.api.storage.v1", "CSIStorageCapacity", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "nodeTopology", Msg(&META_LABEL_SELECTOR)),
    one(3, "storageClassName", Str).always(),
    one(4, "capacity", Quantity),
    one(5, "maximumVolumeSize", Quantity),
]);

static STORAGE_STORAGE_CLASS: Message = message("io.k8s.api.storage.v1", "StorageClass", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "provisioner", Str).always(),
    map(3, "parameters", Str),
    one(4, "reclaimPolicy", Str),
    list(5, "mountOptions", Str),
    one(6, "allowVolumeExpansion", Bool),
    one(7, "volumeBindingMode", Str),
    list(8, "allowedTopologies", Msg(&CORE_TOPOLOGY_SELECTOR_TERM)),
]);

static STORAGE_TOKEN_REQUEST: Message = message("io.k8s.api.storage.v1", "TokenRequest", &[
    one(1, "audience", Str).always(),
    one(2, "expirationSeconds", Int),
]);

static STORAGE_VOLUME_ATTACHMENT: Message = message("io.k8s.api.storage.v1", "VolumeAttachment", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "spec", Msg(&STORAGE_VOLUME_ATTACHMENT_SPEC)).always(),
    one(3, "status", Msg(&STORAGE_VOLUME_ATTACHMENT_STATUS)).always(),
]);

static STORAGE_VOLUME_ATTACHMENT_SOURCE: Message = message("io.k8s.api.storage.v1", "VolumeAttachmentSource", &[
    one(1, "persistentVolumeName", Str),
    one(2, "inlineVolumeSpec", Msg(&CORE_PERSISTENT_VOLUME_SPEC)),
]);

static STORAGE_VOLUME_ATTACHMENT_SPEC: Message = message("io.k8s.api.storage.v1", "VolumeAttachmentSpec", &[
    one(1, "attacher", Str).always(),
    one(2, "source", Msg(&STORAGE_VOLUME_ATTACHMENT_SOURCE)).always(),
    one(3, "nodeName", Str).always(),
]);

static STORAGE_VOLUME_ATTACHMENT_STATUS: Message = message("io.k8s.api.storage.v1", "VolumeAttachmentStatus", &[
    one(1, "attached", Bool).always(),
    map(2, "attachmentMetadata", Str),
    one(3, "attachError", Msg(&STORAGE_VOLUME_ERROR)),
    one(4, "detachError", Msg(&STORAGE_VOLUME_ERROR)),
]);

static STORAGE_VOLUME_ATTRIBUTES_CLASS: Message = message("io.k8s.api.storage.v1", "VolumeAttributesClass", &[
    one(1, "metadata", Msg(&META_OBJECT_META)).always(),
    one(2, "driverName", Str).always(),
    map(3, "parameters", Str),
]);

static STORAGE_VOLUME_ERROR: Message = message("io.k8s.api.storage.v1", "VolumeError", &[
    one(1, "time", Time).omitted(),
    one(2, "message", Str).omitted(),
    one(3, "errorCode", Int),
]);

static STORAGE_VOLUME_NODE_RESOURCES: Message = message("io.k8s.api.storage.v1", "VolumeNodeResources", &[
    one(1, "count", Int),
]);
