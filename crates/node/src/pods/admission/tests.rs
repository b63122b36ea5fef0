//! Every decision about a pod that wants to begin, without a node.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};

use super::*;

const CRITICAL: i32 = lifecycle::eviction::CRITICAL;

/// A pod that asks for so much of the processor.
fn pod(cpu_millis: i64, priority: i32, more: Value) -> Pod {
    let requests = json!({ "requests": { "cpu": format!("{cpu_millis}m") } });
    let mut spec = json!({ "priority": priority, "containers": [{ "name": "app", "resources": requests }] });
    spec.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    let metadata = json!({ "uid": "own", "resourceVersion": "1" });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec, "status": { "qosClass": "Burstable" } }))
        .unwrap()
}

fn claim(cpu_millis: i64, importance: i32) -> Claim {
    Claim::of(&pod(cpu_millis, importance, Value::Null))
}

fn capacity(pods: u32, cpu_millis: i64) -> NodeResources {
    let amounts = [("pods", pods.to_string()), ("cpu", format!("{cpu_millis}m"))];
    let amounts: BTreeMap<_, _> = amounts.map(|(name, amount)| (name.to_owned(), Quantity(amount))).into();
    NodeResources::of_node(&amounts)
}

/// A calm node with a whole processor.
fn node(allowed_sysctls: &AllowedSysctls) -> NodeSnapshot<'_> {
    NodeSnapshot {
        mode: Mode::Open,
        capacity: capacity(10, 1000),
        health: Health::default(),
        allowed_sysctls,
        reserved: NodeResources::default(),
        holders: Vec::new(),
    }
}

fn holder(uid: &str, claim: Claim, is_leaving: bool) -> Holder<'_> {
    Holder { uid, claim, host_ports: Vec::new(), is_leaving }
}

fn new(pod: &Pod) -> Applicant<'_> {
    Applicant { pod, claim: Claim::of(pod), placed: Placed::Unasked, is_queued: false }
}

fn rejected(decision: &Decision) -> (&str, &str) {
    let Decision::Reject { reason, message } = decision else { panic!("rejected, not {decision:?}") };
    (reason, message)
}

#[test]
fn pod_that_fits_is_admitted() {
    let sysctls = AllowedSysctls::default();
    let own = pod(400, 0, Value::Null);
    let mut node = node(&sysctls);
    assert_eq!(decide(&node, &new(&own)), Decision::Admit);
    node.holders = vec![holder("a", claim(600, 0), false)];
    assert_eq!(decide(&node, &new(&own)), Decision::Admit, "to the last of it");
}

#[test]
fn pod_that_fits_without_terminating_pods_waits() {
    let sysctls = AllowedSysctls::default();
    let own = pod(400, 0, Value::Null);
    let mut node = node(&sysctls);
    node.holders = vec![holder("a", claim(500, 0), false), holder("b", claim(500, 0), true)];
    let Decision::Wait(WaitFor::Resources(missing)) = decide(&node, &new(&own)) else { panic!("it waits") };
    let used = "Node didn't have enough resource: cpu, requested: 400, used: 1000, capacity: 1000";
    assert_eq!(missing.reason_and_message(), ("OutOfcpu".to_owned(), used.to_owned()));
}

/// What those before it in the queue ask for is not given to it, and it is not sent away for what they take either way.
#[test]
fn pod_behind_waiting_pods_does_not_get_their_resources() {
    let sysctls = AllowedSysctls::default();
    let own = pod(400, 0, Value::Null);
    let mut node = node(&sysctls);
    node.holders = vec![holder("b", claim(300, 0), true)];
    node.reserved = claim(500, 0).asks;
    assert!(matches!(decide(&node, &new(&own)), Decision::Wait(WaitFor::Resources(_))));
    node.reserved = claim(700, 0).asks;
    let decision = decide(&node, &new(&own));
    assert_eq!(
        rejected(&decision),
        ("OutOfcpu", "Node didn't have enough resource: cpu, requested: 400, used: 700, capacity: 1000")
    );
}

#[test]
fn pod_that_never_fits_is_rejected_for_what_stays() {
    let sysctls = AllowedSysctls::default();
    let own = pod(400, 1000, Value::Null);
    let mut node = node(&sysctls);
    node.holders = vec![holder("a", claim(900, 0), false), holder("b", claim(100, 0), true)];
    let decision = decide(&node, &new(&own));
    assert_eq!(
        rejected(&decision),
        ("OutOfcpu", "Node didn't have enough resource: cpu, requested: 400, used: 900, capacity: 1000"),
        "a pod that is not critical preempts nobody"
    );
    node.capacity = capacity(2, 10_000);
    node.holders = vec![holder("a", claim(1, 0), false), holder("b", claim(1, 0), false)];
    assert_eq!(rejected(&decide(&node, &new(&own))).0, "OutOfpods");
}

#[test]
fn critical_pod_preempts_less_important_pods_that_stay() {
    let sysctls = AllowedSysctls::default();
    let own = pod(400, CRITICAL, Value::Null);
    let mut node = node(&sysctls);
    node.holders = vec![
        holder("equal", claim(300, CRITICAL), false),
        holder("leaving", claim(100, 0), true),
        holder("less", claim(300, CRITICAL - 1), false),
        holder("least", claim(300, 0), false),
    ];
    let Decision::Preempt { victims, .. } = decide(&node, &new(&own)) else { panic!("it preempts") };
    let uids: Vec<&str> = victims.iter().map(|victim| victim.uid.as_str()).collect();
    assert_eq!(uids.len(), 1, "{uids:?}: what the leaving one gives back is enough with one of them");
    assert!(["least", "less"].contains(&uids[0]), "{uids:?}");
    node.holders = vec![holder("equal", claim(900, CRITICAL), false), holder("least", claim(100, 0), false)];
    assert_eq!(rejected(&decide(&node, &new(&own))).0, "OutOfcpu", "nobody leaves for nothing");
}

/// A pod that names its node has not been asked by the scheduler.
#[test]
fn pod_whose_host_port_stays_taken_is_rejected_and_one_whose_port_becomes_free_waits() {
    let sysctls = AllowedSysctls::default();
    let with_port = |port: u16, protocol: &str| {
        let ports = json!([{ "containerPort": 80, "hostPort": port, "protocol": protocol }]);
        pod(100, 0, json!({ "containers": [{ "name": "app", "ports": ports }] }))
    };
    let holder = |other: &Pod, is_leaving| Holder {
        host_ports: pod::host_ports(other).collect(),
        ..holder("other", claim(100, 0), is_leaving)
    };
    let (own, mut node) = (with_port(8080, "TCP"), node(&sysctls));
    node.holders = vec![holder(&with_port(8080, "TCP"), true), holder(&with_port(8080, "TCP"), false)];
    let decision = decide(&node, &new(&own));
    let words = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
    assert_eq!(rejected(&decision), ("NodePorts", words), "whoever else leaves");
    assert_eq!(rejected(&decide(&node, &Applicant { is_queued: true, ..new(&own) })), ("NodePorts", words));
    node.holders.pop();
    assert_eq!(decide(&node, &new(&own)), Decision::Wait(WaitFor::HostPort(8080)));
    node.holders = vec![holder(&with_port(8080, "UDP"), false), holder(&with_port(8081, "TCP"), false)];
    assert_eq!(decide(&node, &new(&own)), Decision::Admit);
}

#[test]
fn node_that_goes_down_rejects_and_node_that_only_ends_pods_admits() {
    let sysctls = AllowedSysctls::default();
    let own = pod(4000, 0, json!({ "nodeSelector": { "disk": "ssd" } }));
    let mut node = node(&sysctls);
    node.mode = Mode::ShuttingDown;
    assert_eq!(rejected(&decide(&node, &new(&own))), REJECTION);
    node.mode = Mode::Closed;
    assert_eq!(decide(&node, &new(&own)), Decision::Admit);
}

#[test]
fn pod_that_names_nodes_waits_for_the_labels_and_is_rejected_where_it_is_not_wanted() {
    let sysctls = AllowedSysctls::default();
    let own = pod(4000, 0, json!({ "nodeSelector": { "disk": "ssd" } }));
    let (node, mut applicant) = (node(&sysctls), new(&own));
    assert_eq!(decide(&node, &applicant), Decision::Wait(WaitFor::Placement));
    applicant.placed = Placed::Asked;
    assert_eq!(decide(&node, &applicant), Decision::Wait(WaitFor::Placement));
    applicant.placed = Placed::Elsewhere;
    assert_eq!(rejected(&decide(&node, &applicant)).0, "NodeAffinity");
    applicant.placed = Placed::Here;
    assert_eq!(rejected(&decide(&node, &applicant)).0, "OutOfcpu", "then all else counts");
    let mut of_file = own.clone();
    of_file.metadata.resource_version = None;
    of_file.metadata.annotations = Some([(api::pod::SOURCE_ANNOTATION.to_owned(), "file".to_owned())].into());
    assert_eq!(rejected(&decide(&node, &new(&of_file))).0, "OutOfcpu", "what a file asks for is for this node");
}

#[test]
fn pod_that_sets_a_forbidden_sysctl_is_rejected() {
    let sysctls = AllowedSysctls::default();
    let asked = json!({ "securityContext": { "sysctls": [{ "name": "kernel.msgmax", "value": "1" }] } });
    let own = pod(1, 0, asked);
    let decision = decide(&node(&sysctls), &new(&own));
    assert_eq!(rejected(&decision), (FORBIDDEN, "forbidden sysctl: \"kernel.msgmax\" not allowlisted"));
}

/// A toleration is for a taint with its value and its effect, not for a key.
#[test]
fn memory_pressure_is_borne_by_a_toleration_of_its_taint_only() {
    let sysctls = AllowedSysctls::default();
    let mut node = node(&sysctls);
    node.health.memory_pressure = true;
    let key = "node.kubernetes.io/memory-pressure";
    for (toleration, admitted) in [
        (json!({ "key": key, "operator": "Exists" }), true),
        (json!({ "key": key, "operator": "Exists", "effect": "NoSchedule" }), true),
        (json!({ "operator": "Exists" }), true),
        (json!({ "key": key, "operator": "Exists", "effect": "NoExecute" }), false),
        (json!({ "key": key, "operator": "Equal", "value": "x" }), false),
        (json!({ "operator": "Exists", "effect": "NoExecute" }), false),
    ] {
        let mut own = pod(0, 0, json!({ "tolerations": [toleration] }));
        own.status.as_mut().unwrap().qos_class = Some("BestEffort".to_owned());
        assert_eq!(decide(&node, &new(&own)) == Decision::Admit, admitted, "{toleration}");
    }
}

#[test]
fn node_under_pressure_rejects_pods_that_it_could_evict() {
    let sysctls = AllowedSysctls::default();
    let best_effort = |tolerations: Value| {
        let mut own = pod(0, 0, json!({ "tolerations": tolerations }));
        own.status.as_mut().unwrap().qos_class = Some("BestEffort".to_owned());
        own
    };
    let tolerant = best_effort(json!([{ "key": "node.kubernetes.io/memory-pressure", "operator": "Exists" }]));
    let (plain, burstable, critical) = (best_effort(json!([])), pod(1, 0, Value::Null), pod(1, CRITICAL, Value::Null));
    let mut node = node(&sysctls);
    node.health.memory_pressure = true;
    let decision = decide(&node, &new(&plain));
    assert_eq!(rejected(&decision), ("Evicted", "The node had condition: [MemoryPressure]. "));
    for admitted in [&tolerant, &burstable, &critical] {
        assert_eq!(decide(&node, &new(admitted)), Decision::Admit);
    }
    (node.health.disk_pressure, node.health.pid_pressure) = (true, true);
    let decision = decide(&node, &new(&burstable));
    assert_eq!(rejected(&decision), ("Evicted", "The node had condition: [DiskPressure PIDPressure]. "));
    assert_eq!(decide(&node, &new(&critical)), Decision::Admit);
    let queued = Applicant { is_queued: true, ..new(&burstable) };
    assert_eq!(decide(&node, &queued), Decision::Admit, "it was let in before");
}
