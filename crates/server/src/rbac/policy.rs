//! The roles and bindings every cluster has: the usual ones for people, and those our own parts need.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use api::Status;
use futures::future::try_join_all;
use serde_json::{Value, json};

use super::GROUP;
use crate::bootstrap::{is_stored, known, make};
use crate::change;
use crate::request::key;
use crate::state::State;

const CERTIFICATES: &str = "certificates.k8s.io";
const READ: [&str; 3] = ["get", "list", "watch"];
const WRITE: [&str; 5] = ["create", "delete", "deletecollection", "patch", "update"];

/// Lets a node's requests for its own client certificate be approved.
const SELF_NODE_CLIENT: &str = "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient";

/// On a default role: `true` lets the server give back rules that it lost.
const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// Makes the default roles and bindings. Those that are there get back rules that they lost; what was added stays, except in
/// roles that gather ([`super::aggregate`]).
pub(crate) async fn bootstrap(state: &State) -> Result<(), Status> {
    let made = default_roles().map(|(name, rules, aggregates)| role(state, name, rules, aggregates));
    try_join_all(made).await?;
    let bound = bindings().into_iter().map(|(name, subjects)| {
        let binding = json!({
            "metadata": metadata(name),
            "roleRef": { "kind": "ClusterRole", "name": name, "apiGroup": GROUP },
            "subjects": subjects,
        });
        make(state, known(GROUP, "clusterrolebindings"), "", binding)
    });
    try_join_all(bound).await.map(|_| ())
}

fn metadata(name: &str) -> Value {
    json!({
        "name": name,
        "labels": { "kubernetes.io/bootstrapping": "rbac-defaults" },
        "annotations": { AUTO_UPDATE: "true" },
    })
}

/// Every cluster role that is made at start: those for people, and those of the controllers.
fn default_roles() -> impl Iterator<Item = (&'static str, Vec<Value>, Option<&'static str>)> {
    let own = controllers().into_iter().map(|(_, name, rules)| (name, rules, None));
    cluster_roles().into_iter().chain(own)
}

/// Whether one of our controllers acts as this service account of `kube-system`.
pub(crate) fn is_controller(account: &str) -> bool {
    static ACCOUNTS: LazyLock<BTreeSet<&'static str>> =
        LazyLock::new(|| controllers().into_iter().map(|(account, ..)| account).collect());
    ACCOUNTS.contains(account)
}

/// The rules that the cluster role called `name` has by default; none if it is no default one.
pub(super) fn default_rules(name: &str) -> Vec<Value> {
    let named = default_roles().find(|(own, ..)| *own == name);
    named.map(|(_, rules, _)| rules).unwrap_or_default()
}

/// The rules that `role`, a cluster role, has again after the next start whatever it has before.
pub(super) fn restored_rules(role: &Value) -> Vec<Value> {
    if is_restored(role) { default_rules(api::meta::name(role)) } else { Vec::new() }
}

fn is_restored(role: &Value) -> bool {
    role["metadata"]["annotations"][AUTO_UPDATE] == "true"
}

async fn role(state: &State, name: &str, rules: Vec<Value>, aggregates: Option<&str>) -> Result<(), Status> {
    let kind = known(GROUP, "clusterroles");
    let key = key(kind, "", name);
    if !is_stored(state, &key).await? {
        let mut role = json!({ "metadata": metadata(name), "rules": rules });
        if let Some(label) = aggregates {
            let selector = json!({ "matchLabels": { label: "true" } });
            role["aggregationRule"] = json!({ "clusterRoleSelectors": [selector] });
        }
        return make(state, kind, "", role).await;
    }
    change::modify(state, kind, &key, false, |current| {
        let mut new = current.to_value();
        if is_restored(&new) {
            restore(&mut new, &rules);
        }
        Ok(new)
    })
    .await
    .map(|_| ())
}

/// Adds what `role` lost of `rules`; one that was emptied may have no list at all.
fn restore(role: &mut Value, rules: &[Value]) {
    let stored = role["rules"].as_array().cloned().unwrap_or_default();
    let lost: Vec<Value> = rules.iter().filter(|rule| !stored.contains(rule)).cloned().collect();
    if !lost.is_empty() {
        role["rules"] = Value::from([stored, lost].concat());
    }
}

fn on(verbs: &[&str], groups: &[&str], resources: &[&str]) -> Value {
    json!({ "verbs": verbs, "apiGroups": groups, "resources": resources })
}

fn paths(paths: &[&str]) -> Value {
    json!({ "verbs": ["get"], "nonResourceURLs": paths })
}

fn user(name: &str) -> Value {
    json!([{ "kind": "User", "name": name, "apiGroup": GROUP }])
}

fn groups(names: &[&str]) -> Value {
    names.iter().map(|name| json!({ "kind": "Group", "name": name, "apiGroup": GROUP })).collect()
}

/// Who has which role, cluster-wide. Each binding is called like its role.
fn bindings() -> Vec<(&'static str, Value)> {
    let account = |name: &str| json!([{ "kind": "ServiceAccount", "name": name, "namespace": "kube-system" }]);
    let mut bindings = vec![
        ("cluster-admin", groups(&["system:masters"])),
        ("system:basic-user", groups(&["system:authenticated"])),
        ("system:discovery", groups(&["system:authenticated"])),
        ("system:public-info-viewer", groups(&["system:authenticated", "system:unauthenticated"])),
        ("system:service-account-issuer-discovery", groups(&["system:serviceaccounts"])),
        ("system:web-timeline", groups(&["system:authenticated", "system:unauthenticated"])),
        ("system:monitoring", groups(&["system:monitoring"])),
        ("system:kube-scheduler", user("system:kube-scheduler")),
        ("system:kube-controller-manager", user("system:kube-controller-manager")),
        ("system:node-proxier", user("system:kube-proxy")),
        ("system:kube-dns", account("kube-dns")),
        ("system:network-policy", account("network-policy")),
        // Nodes renew their certificates by themselves; without a subject here somebody has to approve that.
        (SELF_NODE_CLIENT, groups(&["system:nodes"])),
    ];
    bindings.extend(controllers().into_iter().map(|(name, role, _)| (role, account(name))));
    bindings
}

/// What people work with inside a namespace, besides access itself.
fn workloads(verbs: &[&str]) -> Vec<Value> {
    vec![
        on(
            verbs,
            &[""],
            &[
                "configmaps",
                "persistentvolumeclaims",
                "pods",
                "replicationcontrollers",
                "replicationcontrollers/scale",
                "serviceaccounts",
                "services",
            ],
        ),
        on(
            verbs,
            &["apps"],
            &[
                "daemonsets",
                "deployments",
                "deployments/rollback",
                "deployments/scale",
                "replicasets",
                "replicasets/scale",
                "statefulsets",
                "statefulsets/scale",
            ],
        ),
        on(verbs, &["batch"], &["cronjobs", "jobs"]),
        on(verbs, &["autoscaling"], &["horizontalpodautoscalers"]),
        on(verbs, &["policy"], &["poddisruptionbudgets"]),
        on(verbs, &["networking.k8s.io"], &["ingresses", "networkpolicies"]),
    ]
}

fn view() -> Vec<Value> {
    let mut rules = workloads(&READ);
    rules.push(on(
        &READ,
        &[""],
        &[
            "bindings",
            "endpoints",
            "events",
            "limitranges",
            "namespaces/status",
            "persistentvolumeclaims/status",
            "pods/log",
            "pods/status",
            "replicationcontrollers/status",
            "resourcequotas",
            "resourcequotas/status",
            "services/status",
        ],
    ));
    rules.push(on(&READ, &[""], &["namespaces"]));
    rules.push(on(&READ, &["events.k8s.io"], &["events"]));
    rules.push(on(&READ, &["discovery.k8s.io"], &["endpointslices"]));
    // Nobody but nodes and the server writes them.
    rules.push(on(&READ, &["adieu.dev"], &["terminationrecords"]));
    rules.push(on(
        &READ,
        &["apps"],
        &[
            "controllerrevisions",
            "daemonsets/status",
            "deployments/status",
            "replicasets/status",
            "statefulsets/status",
        ],
    ));
    rules.push(on(&READ, &["batch"], &["cronjobs/status", "jobs/status"]));
    rules.push(on(&READ, &["autoscaling"], &["horizontalpodautoscalers/status"]));
    rules.push(on(&READ, &["policy"], &["poddisruptionbudgets/status"]));
    rules.push(on(&READ, &["networking.k8s.io"], &["ingresses/status"]));
    rules.push(metrics());
    rules
}

/// What pods and nodes use.
fn metrics() -> Value {
    on(&READ, &["metrics.k8s.io"], &["pods", "nodes"])
}

fn edit() -> Vec<Value> {
    let mut rules = view();
    rules.extend(workloads(&WRITE));
    let into = ["pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "services/proxy"];
    rules.push(on(&READ, &[""], &[&into[..], &["secrets"]].concat()));
    rules.push(on(&WRITE, &[""], &[&into[..], &["secrets", "events"]].concat()));
    rules.push(on(&WRITE, &["events.k8s.io"], &["events"]));
    rules.push(on(&["create"], &[""], &["pods/eviction", "serviceaccounts/token"]));
    rules.push(on(&["get", "patch", "update"], &[""], &["pods/resize"]));
    rules.push(on(&["impersonate"], &[""], &["serviceaccounts"]));
    let mut lease_verbs = READ.to_vec();
    lease_verbs.extend(WRITE);
    rules.push(on(&lease_verbs, &["coordination.k8s.io"], &["leases"]));
    rules
}

fn admin() -> Vec<Value> {
    let mut rules = edit();
    let mut all = READ.to_vec();
    all.extend(WRITE);
    rules.push(on(&["create"], &["authorization.k8s.io"], &["localsubjectaccessreviews"]));
    rules.push(on(&all, &[GROUP], &["roles", "rolebindings"]));
    rules
}

/// Name, rules, and the label by which others add to it.
fn cluster_roles() -> Vec<(&'static str, Vec<Value>, Option<&'static str>)> {
    let everything = vec![on(&["*"], &["*"], &["*"]), json!({ "verbs": ["*"], "nonResourceURLs": ["*"] })];
    let health = ["/healthz", "/livez", "/readyz"];
    let known_paths = ["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"];
    let public = ["/healthz/*", "/livez/*", "/readyz/*", "/version", "/version/"];
    vec![
        ("cluster-admin", everything, None),
        ("admin", admin(), Some("rbac.authorization.k8s.io/aggregate-to-admin")),
        ("edit", edit(), Some("rbac.authorization.k8s.io/aggregate-to-edit")),
        ("view", view(), Some("rbac.authorization.k8s.io/aggregate-to-view")),
        (
            "system:basic-user",
            vec![
                on(&["create"], &["authorization.k8s.io"], &["selfsubjectaccessreviews", "selfsubjectrulesreviews"]),
                on(&["create"], &["authentication.k8s.io"], &["selfsubjectreviews"]),
            ],
            None,
        ),
        ("system:discovery", vec![paths(&[&known_paths[..], &health, &public].concat())], None),
        ("system:public-info-viewer", vec![paths(&[&health[..], &public].concat())], None),
        // Its files, which say nothing of the cluster. A link, and with it a session, needs `post` on `/ui/links` besides.
        (
            "system:web-timeline",
            vec![
                json!({ "verbs": ["get", "head"], "nonResourceURLs": ["/ui", "/ui/*"] }),
                json!({ "verbs": ["post"], "nonResourceURLs": ["/ui/end"] }),
            ],
            None,
        ),
        (
            "system:service-account-issuer-discovery",
            vec![paths(&["/.well-known/openid-configuration", "/openid/v1/jwks"])],
            None,
        ),
        ("system:monitoring", vec![paths(&[&health[..], &public, &["/metrics", "/metrics/slis"]].concat())], None),
        (
            "system:auth-delegator",
            vec![
                on(&["create"], &["authentication.k8s.io"], &["tokenreviews"]),
                on(&["create"], &["authorization.k8s.io"], &["subjectaccessreviews"]),
            ],
            None,
        ),
        (
            "system:kubelet-api-admin",
            vec![
                on(&READ, &[""], &["nodes"]),
                on(&["proxy"], &[""], &["nodes"]),
                on(&["*"], &[""], &["nodes/log", "nodes/metrics", "nodes/proxy", "nodes/stats"]),
            ],
            None,
        ),
        ("system:aggregated-metrics-reader", vec![metrics()], None),
        ("system:kube-scheduler", scheduler(), None),
        ("system:kube-controller-manager", vec![on(&READ, &["*"], &["*"])], None),
        ("system:node", node(), None),
        (
            "system:kube-dns",
            vec![
                on(&["list", "watch"], &[""], &["endpoints", "namespaces", "pods", "services"]),
                on(&["list", "watch"], &["discovery.k8s.io"], &["endpointslices"]),
            ],
            None,
        ),
        (
            "system:network-policy",
            vec![
                on(&["list", "watch"], &[""], &["namespaces", "pods"]),
                on(&["list", "watch"], &["networking.k8s.io"], &["networkpolicies"]),
                on(&["create", "patch", "update"], &["", "events.k8s.io"], &["events"]),
            ],
            None,
        ),
        (
            SELF_NODE_CLIENT,
            vec![on(&["create"], &[CERTIFICATES], &["certificatesigningrequests/selfnodeclient"])],
            None,
        ),
        (
            "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
            vec![on(&["create"], &[CERTIFICATES], &["certificatesigningrequests/nodeclient"])],
            None,
        ),
        (
            "system:certificates.k8s.io:kube-apiserver-client-approver",
            approver("kubernetes.io/kube-apiserver-client"),
            None,
        ),
        (
            "system:certificates.k8s.io:kube-apiserver-client-kubelet-approver",
            approver("kubernetes.io/kube-apiserver-client-kubelet"),
            None,
        ),
        ("system:certificates.k8s.io:kubelet-serving-approver", approver("kubernetes.io/kubelet-serving"), None),
        (
            "system:node-proxier",
            vec![
                on(&READ, &[""], &["endpoints", "nodes", "services"]),
                on(&READ, &["discovery.k8s.io"], &["endpointslices"]),
                on(&["create", "patch", "update"], &["", "events.k8s.io"], &["events"]),
            ],
            None,
        ),
    ]
}

/// Who approves for one signer, besides the right to write approvals.
fn approver(signer: &str) -> Vec<Value> {
    let (groups, resources) = ([CERTIFICATES], ["signers"]);
    vec![json!({ "verbs": ["approve"], "apiGroups": groups, "resources": resources, "resourceNames": [signer] })]
}

/// What a node does. Nodes are let through by their name and group; the role is here for those who look for it.
fn node() -> Vec<Value> {
    vec![
        on(&["create", "get", "list", "watch", "update", "patch"], &[""], &["nodes"]),
        on(&["update", "patch"], &[""], &["nodes/status", "pods/status"]),
        on(&["get", "list", "watch", "create", "delete"], &[""], &["pods"]),
        on(&["create"], &[""], &["pods/eviction", "serviceaccounts/token"]),
        on(&["create", "update", "patch"], &["", "events.k8s.io"], &["events"]),
        on(&READ, &[""], &["configmaps", "secrets", "services", "persistentvolumes", "persistentvolumeclaims"]),
        on(&["patch"], &[""], &["persistentvolumes"]),
        on(&["get", "create", "update", "patch", "delete"], &["coordination.k8s.io"], &["leases"]),
        on(&READ, &["node.k8s.io"], &["runtimeclasses"]),
        on(&["get", "create", "update"], &["adieu.dev"], &["terminationrecords"]),
        on(&["create", "get", "list", "watch"], &[CERTIFICATES], &["certificatesigningrequests"]),
        on(&["get"], &["", "apps"], &["replicationcontrollers/scale", "replicasets/scale", "deployments/scale"]),
        // Its own proxy, resolver and policies.
        on(&["list", "watch"], &["discovery.k8s.io"], &["endpointslices"]),
        on(&["list", "watch"], &[""], &["namespaces"]),
        on(&["list", "watch"], &["networking.k8s.io"], &["networkpolicies"]),
    ]
}

fn scheduler() -> Vec<Value> {
    vec![
        on(
            &READ,
            &[""],
            &[
                "namespaces",
                "nodes",
                "persistentvolumeclaims",
                "persistentvolumes",
                "pods",
                "replicationcontrollers",
                "services",
            ],
        ),
        on(&READ, &["apps"], &["replicasets", "statefulsets"]),
        on(&READ, &["policy"], &["poddisruptionbudgets"]),
        on(&READ, &["scheduling.k8s.io"], &["priorityclasses"]),
        on(&READ, &["storage.k8s.io"], &["storageclasses"]),
        on(&["create"], &[""], &["bindings", "pods/binding"]),
        on(&["delete"], &[""], &["pods"]),
        on(&["patch", "update"], &[""], &["pods/status"]),
        on(&["patch", "update"], &[""], &["persistentvolumeclaims", "persistentvolumes"]),
        on(&["create", "patch", "update"], &["", "events.k8s.io"], &["events"]),
        on(&["create", "get", "list", "update", "watch"], &["coordination.k8s.io"], &["leases"]),
    ]
}

/// What each controller does, by its service account in `kube-system`: that, its role, and the rules. What they only read is read
/// for all of them by the user `system:kube-controller-manager`, who writes nothing.
fn controllers() -> Vec<(&'static str, &'static str, Vec<Value>)> {
    let events = || on(&["create", "patch", "update"], &["", "events.k8s.io"], &["events"]);
    let delete_pods = || [on(&["delete", "get", "list"], &[""], &["pods"]), on(&["patch"], &[""], &["pods/status"])];
    let own_pods = || [on(&["create", "delete", "get", "list", "patch", "watch"], &[""], &["pods"])];
    let slices = || {
        let verbs = ["create", "delete", "get", "list", "update"];
        on(&verbs, &["discovery.k8s.io"], &["endpointslices", "endpointslices/restricted"])
    };
    // Whoever names an owner that its deletion waits for may change the owner's finalizers.
    let owners = || on(&["update"], &[""], &["services/finalizers", "endpoints/finalizers"]);
    let controller = |account, role, pods: &[Value], others: &[Value]| (account, role, [pods, others].concat());
    vec![
        controller(
            "pod-garbage-collector",
            "system:controller:pod-garbage-collector",
            &delete_pods(),
            &[on(&["get", "list"], &[""], &["nodes"])],
        ),
        controller(
            "taint-eviction-controller",
            "system:controller:taint-eviction-controller",
            &delete_pods(),
            &[on(&["get"], &[""], &["nodes"]), events()],
        ),
        controller(
            "node-controller",
            "system:controller:node-controller",
            &[on(&["get", "list"], &[""], &["pods"]), on(&["patch", "update"], &[""], &["pods/status"])],
            &[
                on(&["get", "list", "patch", "update"], &[""], &["nodes"]),
                on(&["patch", "update"], &[""], &["nodes/status"]),
                events(),
            ],
        ),
        controller(
            "disruption-controller",
            "system:controller:disruption-controller",
            &[on(&READ, &[""], &["pods"]), on(&["patch", "update"], &[""], &["pods/status"])],
            &[
                on(&READ, &["policy"], &["poddisruptionbudgets"]),
                on(&["update"], &["policy"], &["poddisruptionbudgets/status"]),
                events(),
            ],
        ),
        controller(
            "replicaset-controller",
            "system:controller:replicaset-controller",
            &own_pods(),
            &[
                on(&READ, &["apps"], &["replicasets"]),
                on(&["patch", "update"], &["apps"], &["replicasets/status"]),
                on(&["update"], &["apps"], &["replicasets/finalizers"]),
                events(),
            ],
        ),
        controller(
            "deployment-controller",
            "system:controller:deployment-controller",
            &[],
            &[
                on(&["get", "patch"], &["apps"], &["deployments"]),
                on(&["patch"], &["apps"], &["deployments/status"]),
                on(&["update"], &["apps"], &["deployments/finalizers"]),
                on(&["create", "delete", "get", "patch"], &["apps"], &["replicasets"]),
                events(),
            ],
        ),
        controller(
            "replication-controller",
            "system:controller:replication-controller",
            &own_pods(),
            &[
                on(&READ, &[""], &["replicationcontrollers"]),
                on(&["patch", "update"], &[""], &["replicationcontrollers/status"]),
                on(&["update"], &[""], &["replicationcontrollers/finalizers"]),
                events(),
            ],
        ),
        controller(
            "job-controller",
            "system:controller:job-controller",
            &own_pods(),
            &[
                on(&READ, &["batch"], &["jobs"]),
                on(&["patch", "update"], &["batch"], &["jobs/status"]),
                on(&["update"], &["batch"], &["jobs/finalizers"]),
                events(),
            ],
        ),
        controller(
            "ttl-after-finished-controller",
            "system:controller:ttl-after-finished-controller",
            &[],
            &[on(&["delete", "get", "list", "watch"], &["batch"], &["jobs"])],
        ),
        controller(
            "cronjob-controller",
            "system:controller:cronjob-controller",
            &[],
            &[
                on(&["get", "list", "patch", "update", "watch"], &["batch"], &["cronjobs"]),
                on(&["create", "delete", "get", "list", "watch"], &["batch"], &["jobs"]),
                on(&["patch", "update"], &["batch"], &["cronjobs/status"]),
                on(&["update"], &["batch"], &["cronjobs/finalizers"]),
                events(),
            ],
        ),
        controller(
            "service-controller",
            "system:controller:service-controller",
            &[],
            &[on(&["patch", "update"], &[""], &["services/status"])],
        ),
        controller(
            "statefulset-controller",
            "system:controller:statefulset-controller",
            &own_pods(),
            &[
                on(&READ, &["apps"], &["statefulsets"]),
                on(&["patch", "update"], &["apps"], &["statefulsets/status"]),
                on(&["update"], &["apps"], &["statefulsets/finalizers"]),
                // Claims that go with a pod wait for it.
                on(&["update"], &[""], &["pods/finalizers"]),
                on(
                    &["create", "delete", "get", "list", "patch", "update", "watch"],
                    &["apps"],
                    &["controllerrevisions"],
                ),
                on(&["create", "get", "patch"], &[""], &["persistentvolumeclaims"]),
                events(),
            ],
        ),
        controller(
            "daemon-set-controller",
            "system:controller:daemon-set-controller",
            &own_pods(),
            &[
                on(&READ, &["apps"], &["daemonsets"]),
                on(&["patch", "update"], &["apps"], &["daemonsets/status"]),
                on(&["update"], &["apps"], &["daemonsets/finalizers"]),
                on(
                    &["create", "delete", "get", "list", "patch", "update", "watch"],
                    &["apps"],
                    &["controllerrevisions"],
                ),
                events(),
            ],
        ),
        controller(
            "horizontal-pod-autoscaler",
            "system:controller:horizontal-pod-autoscaler",
            &[on(&["list"], &[""], &["pods"]), on(&["list"], &["metrics.k8s.io"], &["pods"])],
            &[
                on(&READ, &["autoscaling"], &["horizontalpodautoscalers"]),
                on(&["patch", "update"], &["autoscaling"], &["horizontalpodautoscalers/status"]),
                on(&["get", "patch", "update"], &["*"], &["*/scale"]),
                events(),
            ],
        ),
        controller(
            "endpointslice-controller",
            "system:controller:endpointslice-controller",
            &[],
            &[slices(), owners()],
        ),
        controller(
            "endpointslicemirroring-controller",
            "system:controller:endpointslicemirroring-controller",
            &[],
            &[slices(), owners()],
        ),
        controller(
            "endpoint-controller",
            "system:controller:endpoint-controller",
            &[],
            &[on(&["create", "delete", "get", "list", "update"], &[""], &["endpoints", "endpoints/restricted"])],
        ),
        controller(
            "persistent-volume-binder",
            "system:controller:persistent-volume-binder",
            &[],
            &[
                on(&["create", "delete", "get", "patch", "update"], &[""], &["persistentvolumes"]),
                on(&["get", "patch", "update"], &[""], &["persistentvolumeclaims"]),
                on(&["patch", "update"], &[""], &["persistentvolumeclaims/status", "persistentvolumes/status"]),
                events(),
            ],
        ),
        controller(
            "ephemeral-volume-controller",
            "system:controller:ephemeral-volume-controller",
            &[on(&["update"], &[""], &["pods/finalizers"])],
            &[on(&["create", "get", "list"], &[""], &["persistentvolumeclaims"]), events()],
        ),
        controller(
            "generic-garbage-collector",
            "system:controller:generic-garbage-collector",
            &[on(&["delete", "get", "list", "patch", "update", "watch"], &["*"], &["*"])],
            &[events()],
        ),
    ]
}
