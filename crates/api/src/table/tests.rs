//! Rows as `kubectl get` shows them.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::built_in;

fn kind(plural: &str) -> &'static Kind {
    let group = if plural == "leases" { "coordination.k8s.io" } else { "" };
    built_in(group, "v1", plural).unwrap()
}

fn now() -> Timestamp {
    time::parse("2026-11-15T18:00:00Z").unwrap()
}

fn row(plural: &str, object: &Value) -> Vec<String> {
    let cells = cells(kind(plural), object, now());
    assert_eq!(cells.len(), columns(kind(plural)).as_array().unwrap().len(), "a cell per column");
    cells.iter().map(|cell| cell.as_str().unwrap().to_owned()).collect()
}

/// Ready, status, restarts.
fn line(pod: &Value) -> (String, String, String) {
    let row = row("pods", pod);
    (row[1].clone(), row[2].clone(), row[3].clone())
}

fn is(ready: &str, status: &str, restarts: &str) -> (String, String, String) {
    (ready.to_owned(), status.to_owned(), restarts.to_owned())
}

fn pod(containers: usize, phase: &str) -> Value {
    let containers: Vec<Value> = (0..containers).map(|i| json!({"name": format!("c{i}")})).collect();
    json!({
        "metadata": {"name": "p", "creationTimestamp": "2026-11-15T17:55:00Z"},
        "spec": {"containers": containers, "nodeName": "w1"},
        "status": {"phase": phase, "podIP": "10.86.0.4"},
    })
}

fn running(ready: bool) -> Value {
    json!({"ready": ready, "restartCount": 0, "state": {"running": {}}})
}

fn ended(code: i64, reason: &str) -> Value {
    json!({"restartCount": 0, "state": {"terminated": {"exitCode": code, "reason": reason}}})
}

#[test]
fn a_running_pod_in_one_line() {
    let mut pod = pod(1, "Running");
    pod["status"]["containerStatuses"] = json!([running(true)]);
    assert_eq!(row("pods", &pod), ["p", "1/1", "Running", "0", "5m", "10.86.0.4", "w1", "<none>", "<none>"]);
}

/// [AD-84]
#[test]
fn a_leaving_pod_is_terminating_and_keeps_counting_ready() {
    let mut pod = pod(2, "Running");
    pod["metadata"]["deletionTimestamp"] = json!("2026-11-15T18:00:20Z");
    pod["status"]["containerStatuses"] = json!([running(true), running(false)]);
    assert_eq!(line(&pod), is("1/2", "Terminating", "0"));
    pod["status"]["reason"] = json!("NodeLost");
    assert_eq!(line(&pod).1, "Unknown");
}

/// [AD-7] (the printing)
#[test]
fn a_finished_pod_held_by_a_finalizer_keeps_its_word() {
    let mut pod = pod(1, "Failed");
    pod["metadata"]["deletionTimestamp"] = json!("2026-11-15T18:00:20Z");
    pod["status"]["containerStatuses"] = json!([ended(1, "Error")]);
    assert_eq!(line(&pod), is("0/1", "Error", "0"));
    assert_eq!(row_conditions(kind("pods"), &pod).unwrap()[0]["reason"], "Failed");
    pod["status"]["phase"] = json!("Running");
    assert!(row_conditions(kind("pods"), &pod).is_none());
}

#[test]
fn restarts_say_when_the_last_one_was() {
    let mut pod = pod(3, "Running");
    let waiting = |count: i64, at: &str| {
        json!({"restartCount": count, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
               "lastState": {"terminated": {"finishedAt": at, "exitCode": 1}}})
    };
    pod["status"]["containerStatuses"] =
        json!([running(true), waiting(5, "2026-11-15T17:50:00Z"), waiting(3, "2026-11-15T17:58:57Z")]);
    assert_eq!(line(&pod), is("1/3", "CrashLoopBackOff", "8 (63s ago)"));
}

#[test]
fn init_containers_come_first() {
    let mut pod = pod(1, "Pending");
    pod["spec"]["initContainers"] = json!([{"name": "i0"}, {"name": "i1"}]);
    pod["status"]["containerStatuses"] =
        json!([{"restartCount": 7, "state": {"waiting": {"reason": "PodInitializing"}}}]);
    let with = |second: Value| {
        let mut pod = pod.clone();
        let mut first = ended(0, "Completed");
        first["name"] = json!("i0");
        pod["status"]["initContainerStatuses"] = json!([first, second]);
        line(&pod)
    };
    assert_eq!(with(json!({"name": "i1", "state": {"running": {}}})), is("0/1", "Init:1/2", "0"));
    assert_eq!(with(json!({"name": "i1", "state": {"terminated": {"exitCode": 2}}})).1, "Init:ExitCode:2");
    assert_eq!(with(json!({"name": "i1", "state": {"terminated": {"exitCode": 137, "signal": 9}}})).1, "Init:Signal:9");
    let looping = json!({"name": "i1", "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 1, "finishedAt": "2026-11-15T17:17:00Z"}}});
    assert_eq!(with(looping), is("0/1", "Init:CrashLoopBackOff", "3 (43m ago)"));
}

#[test]
fn a_sidecar_counts_as_a_container() {
    let mut pod = pod(1, "Running");
    pod["spec"]["initContainers"] = json!([{"name": "s", "restartPolicy": "Always"}]);
    pod["status"]["initContainerStatuses"] =
        json!([{"name": "s", "started": true, "ready": true, "restartCount": 2, "state": {"running": {}}}]);
    pod["status"]["containerStatuses"] = json!([running(true)]);
    assert_eq!(line(&pod), is("2/2", "Running", "2"));
}

#[test]
fn a_pod_with_some_containers_done_is_judged_by_what_still_runs() {
    let mut pod = pod(2, "Running");
    pod["status"]["containerStatuses"] = json!([ended(0, "Completed"), running(true)]);
    assert_eq!(line(&pod), is("1/2", "NotReady", "0"));
    pod["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    assert_eq!(line(&pod).1, "Running");
    pod["status"]["phase"] = json!("Succeeded");
    pod["status"]["containerStatuses"] = json!([ended(0, "Completed"), ended(143, "Error")]);
    assert_eq!(line(&pod), is("0/2", "Error", "0"));
    pod["status"] = json!({"phase": "Failed", "reason": "Evicted"});
    assert_eq!(line(&pod).1, "Evicted");
    pod["status"] = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]});
    assert_eq!(line(&pod).1, "SchedulingGated");
}

#[test]
fn readiness_gates_are_counted() {
    let mut pod = pod(1, "Running");
    pod["spec"]["readinessGates"] = json!([{"conditionType": "a"}, {"conditionType": "b"}]);
    pod["status"]["conditions"] = json!([{"type": "a", "status": "True"}]);
    assert_eq!(row("pods", &pod)[8], "1/2");
}

#[test]
fn a_node_shows_whether_it_takes_pods() {
    let mut node = json!({
        "metadata": {"name": "w1", "creationTimestamp": "2026-11-15T17:59:00Z",
                     "labels": {"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/control-plane": ""}},
        "spec": {"unschedulable": true},
        "status": {"conditions": [{"type": "Ready", "status": "True"}],
                   "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                   "nodeInfo": {"kubeletVersion": "v1.36.4", "osImage": "Debian", "kernelVersion": "6.18"}},
    });
    assert_eq!(
        row("nodes", &node),
        [
            "w1",
            "Ready,SchedulingDisabled",
            "control-plane,worker",
            "60s",
            "v1.36.4",
            "10.0.0.1",
            "<none>",
            "Debian",
            "6.18",
            "<unknown>"
        ]
    );
    node["status"] = json!({});
    node["metadata"]["labels"] = json!({});
    assert_eq!(row("nodes", &node)[1..3], ["Unknown,SchedulingDisabled", "<none>"]);
}

#[test]
fn an_event_tells_who_what_and_when() {
    let event = json!({
        "metadata": {"name": "p.1"}, "type": "Normal", "reason": "Killing", "message": "Stopping container a\n",
        "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec.containers{a}"},
        "source": {"component": "kubelet", "host": "w1"}, "count": 2,
        "firstTimestamp": "2026-11-15T17:59:00Z", "lastTimestamp": "2026-11-15T17:59:50Z",
    });
    assert_eq!(
        row("events", &event),
        [
            "10s",
            "Normal",
            "Killing",
            "pod/p",
            "spec.containers{a}",
            "kubelet, w1",
            "Stopping container a",
            "60s",
            "2",
            "p.1"
        ]
    );
    assert_eq!(row("events", &json!({}))[0], "<unknown>");
}

#[test]
fn short_tables_of_the_other_kinds_are_printed() {
    let meta = json!({"name": "x", "creationTimestamp": "2026-11-15T17:59:00Z"});
    assert_eq!(
        row("configmaps", &json!({"metadata": meta, "data": {"a": ""}, "binaryData": {"b": ""}})),
        ["x", "2", "60s"]
    );
    assert_eq!(row("secrets", &json!({"metadata": meta, "type": "Opaque"})), ["x", "Opaque", "0", "60s"]);
    assert_eq!(row("serviceaccounts", &json!({"metadata": meta})), ["x", "60s"]);
    assert_eq!(row("leases", &json!({"metadata": meta, "spec": {"holderIdentity": "w1"}})), ["x", "w1", "60s"]);
    assert_eq!(row("namespaces", &json!({"metadata": meta, "status": {"phase": "Active"}})), ["x", "Active", "60s"]);
}

#[test]
fn wide_columns_are_marked() {
    let wide: Vec<Value> =
        columns(kind("pods")).as_array().unwrap().iter().map(|column| column["priority"].clone()).collect();
    assert_eq!(wide, [0, 0, 0, 0, 0, 1, 1, 1, 1].map(Value::from));
}

/// Every kind's row has a cell for each of its columns, whatever the object holds.
#[test]
fn a_row_is_as_long_as_its_table() {
    for kind in crate::Registry::built_in().kinds() {
        let columns = columns(kind);
        let cells = cells(kind, &json!({"metadata": {"name": "x"}}), "2026-01-01T00:00:00Z".parse().unwrap());
        assert_eq!(columns.as_array().unwrap().len(), cells.len(), "{kind:?}");
    }
}

fn shown(group: &str, plural: &str, object: &Value) -> Vec<String> {
    let kind = crate::built_in(group, "v1", plural).unwrap();
    let cells = cells(kind, object, "2026-01-01T01:00:00Z".parse().unwrap());
    cells.iter().map(|cell| cell.as_str().map_or_else(|| cell.to_string(), ToOwned::to_owned)).collect()
}

#[test]
fn a_service_shows_how_it_is_reached() {
    let mut service = json!({"metadata": {"name": "s", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {
        "type": "NodePort", "clusterIP": "10.0.0.1", "selector": {"app": "s"},
        "ports": [{"port": 80, "nodePort": 31000, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}});
    assert_eq!(
        shown("", "services", &service),
        ["s", "NodePort", "10.0.0.1", "<none>", "80:31000/TCP,53/UDP", "60m", "app=s"]
    );
    service["spec"]["type"] = json!("LoadBalancer");
    assert_eq!(shown("", "services", &service)[3], "<pending>");
}

#[test]
fn workloads_show_what_is_there_of_what_is_wanted() {
    let object = json!({"metadata": {"name": "w", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "w"}},
            "template": {"spec": {"containers": [{"name": "a", "image": "i:1"}, {"name": "b", "image": "j:2"}]}}},
        "status": {"replicas": 3, "readyReplicas": 2, "updatedReplicas": 1, "availableReplicas": 2}});
    assert_eq!(shown("apps", "deployments", &object), ["w", "2/3", "1", "2", "60m", "a,b", "i:1,j:2", "app=w"]);
    assert_eq!(shown("apps", "replicasets", &object), ["w", "3", "3", "2", "60m", "a,b", "i:1,j:2", "app=w"]);
    let job = json!({"metadata": {"name": "j"}, "spec": {"parallelism": 3},
        "status": {"startTime": "2026-01-01T00:59:00Z", "conditions": [{"type": "Suspended", "status": "True"}]}});
    assert_eq!(shown("batch", "jobs", &job)[1..4], ["Suspended", "0/1 of 3", "60s"]);
}

#[test]
fn an_autoscaler_shows_what_is_measured_against_what_is_aimed_at() {
    let kind = built_in("autoscaling", "v2", "horizontalpodautoscalers").unwrap();
    let metric = |name: &str, target: Value| json!({"type": "Resource", "resource": {"name": name, "target": target}});
    let now = |name: &str, current: Value| json!({"type": "Resource", "resource": {"name": name, "current": current}});
    let mut scaler = json!({"metadata": {"name": "h"}, "spec": {"maxReplicas": 3, "metrics": [
        metric("cpu", json!({"averageUtilization": 80})), metric("memory", json!({"averageValue": "1Gi"}))]}});
    let shown = |scaler: &Value| cells(kind, scaler, super::tests::now())[2].as_str().unwrap().to_owned();
    assert_eq!(shown(&scaler), "cpu: <unknown>/80%, memory: <unknown>/1Gi");
    scaler["status"] = json!({"currentMetrics": [now("cpu", json!({"averageUtilization": 20, "averageValue": "1m"})),
        now("memory", json!({"averageValue": "512Mi"}))]});
    assert_eq!(shown(&scaler), "cpu: 20%/80%, memory: 512Mi/1Gi");
}

#[test]
fn endpoints_are_listed_port_by_port() {
    let object = json!({"metadata": {"name": "e"}, "subsets": [
        {"addresses": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}], "ports": [{"port": 80}, {"port": 443}]}]});
    assert_eq!(row("endpoints", &object)[1], "10.0.0.1:80,10.0.0.2:80,10.0.0.1:443 + 1 more...");
}
