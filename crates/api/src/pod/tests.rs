//! The answers, and that every view of a pod gives the same one.
#![allow(clippy::unwrap_used, reason = "tests")]

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use testkit::Dice;
use testkit::dice::storms;

use super::*;

fn typed(pod: &Value) -> Pod {
    serde_json::from_value(pod.clone()).unwrap()
}

/// Asks both views.
fn both<T: PartialEq + std::fmt::Debug>(pod: &Value, json: fn(&Value) -> T, of: fn(&Pod) -> T) -> T {
    let (answer, other) = (json(pod), of(&typed(pod)));
    assert_eq!(answer, other, "{pod}");
    answer
}

macro_rules! ask {
    ($pod:expr, $question:expr) => {
        both($pod, |pod| $question(pod), |pod| $question(pod))
    };
}

macro_rules! requested {
    ($pod:expr, $options:expr) => {
        both($pod, |pod| requests(pod, $options).to_string(), |pod| requests(pod, $options).to_string())
    };
}

macro_rules! limited {
    ($pod:expr, $options:expr) => {
        both($pod, |pod| limits(pod, $options).to_string(), |pod| limits(pod, $options).to_string())
    };
}

fn asks(name: &str, cpu: &str) -> Value {
    json!({ "name": name, "resources": { "requests": { "cpu": cpu } } })
}

fn sidecar(name: &str, cpu: &str) -> Value {
    let mut container = asks(name, cpu);
    container["restartPolicy"] = json!("Always");
    container
}

fn pod(spec: Value) -> Value {
    json!({ "metadata": { "name": "p" }, "spec": spec })
}

#[test]
fn pod_requests_are_the_peak_of_init_and_main_containers() {
    let mut pod = pod(json!({ "initContainers": [asks("a", "300m"), sidecar("b", "100m"), asks("c", "700m")],
        "containers": [asks("d", "200m"), asks("e", "200m")] }));
    assert_eq!(requested!(&pod, ResourceOptions::SPEC), "cpu=800m");
    pod["spec"]["containers"][0] = asks("d", "2");
    assert_eq!(requested!(&pod, ResourceOptions::SPEC), "cpu=2300m");
    pod["spec"]["overhead"] = json!({ "cpu": "50m", "memory": "10Mi" });
    assert_eq!(requested!(&pod, ResourceOptions::SPEC), "cpu=2350m,memory=10Mi");
    assert_eq!(requested!(&pod, ResourceOptions::WITHOUT_OVERHEAD), "cpu=2300m");
    assert_eq!(limited!(&pod, ResourceOptions::SPEC), "");
    pod["spec"]["resources"] = json!({ "requests": { "cpu": "4" } });
    assert_eq!(requested!(&pod, ResourceOptions::SPEC), "cpu=4050m,memory=10Mi");
    assert_eq!(requested!(&pod, ResourceOptions::CONTAINERS), "cpu=2300m");
}

/// A sidecar after an init container does not run beside it.
#[test]
fn init_container_counts_beside_the_sidecars_before_it_only() {
    let pod =
        pod(json!({ "initContainers": [sidecar("a", "1"), asks("b", "2"), sidecar("c", "500m")], "containers": [] }));
    assert_eq!(requested!(&pod, ResourceOptions::SPEC), "cpu=3");
}

#[test]
fn overhead_adds_to_limits_that_are_set_and_not_zero() {
    let limits = json!({ "cpu": "0", "memory": "1Gi" });
    let pod = pod(json!({ "containers": [{ "name": "a", "resources": { "limits": limits } }],
        "overhead": { "cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi" } }));
    assert_eq!(limited!(&pod, ResourceOptions::SPEC), "cpu=0,memory=2Gi");
}

/// Only cpu, memory and huge pages can be said of a pod as a whole.
#[test]
fn pod_level_resources_replace_the_sum_of_their_kind_alone() {
    let own = json!({ "cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi", "hugepages-2Mi": "2Mi" });
    let whole = json!({ "cpu": "3", "ephemeral-storage": "9Gi", "hugepages-2Mi": "4Mi" });
    let pod = pod(json!({ "containers": [{ "name": "a", "resources": { "requests": own, "limits": own } }],
        "resources": { "requests": whole, "limits": whole } }));
    let expected = "cpu=3,ephemeral-storage=1Gi,hugepages-2Mi=4Mi,memory=1Gi";
    assert_eq!(requested!(&pod, ResourceOptions::SPEC), expected);
    assert_eq!(limited!(&pod, ResourceOptions::SPEC), expected);
}

fn resized(asked: &str, allocated: &str, actual: Option<&str>, reason: &str) -> Value {
    let mut pod = pod(json!({ "containers": [asks("app", asked)] }));
    let resources = actual.map(|cpu| json!({ "requests": { "cpu": cpu }, "limits": { "cpu": cpu } }));
    pod["status"] = json!({
        "containerStatuses": [{ "name": "app", "image": "", "imageID": "", "ready": true, "restartCount": 0,
            "allocatedResources": { "cpu": allocated }, "resources": resources }],
        "conditions": [{ "type": "PodResizePending", "status": "True", "reason": reason }],
    });
    pod
}

#[test]
fn resized_pod_counts_what_it_has_and_not_what_is_infeasible() {
    let cpus = |asked, allocated, actual, reason| {
        requested!(&resized(asked, allocated, actual, reason), ResourceOptions::WITH_STATUS)
    };
    assert_eq!(cpus("2", "3", None, "Deferred"), "cpu=3", "it is to have less, and has not yet");
    assert_eq!(cpus("2", "1", None, "Deferred"), "cpu=2", "it is to have more as soon as that can be");
    assert_eq!(cpus("2", "1", Some("4"), "Deferred"), "cpu=4", "it was granted less, and its container has not got it");
    assert_eq!(cpus("2", "1", None, "Infeasible"), "cpu=1", "it will never have more");
    assert_eq!(cpus("4", "1", Some("3"), "Infeasible"), "cpu=3");
    let pod = resized("2", "3", Some("4"), "Deferred");
    assert_eq!(requested!(&pod, ResourceOptions::SPEC), "cpu=2");
    assert_eq!(
        limited!(&pod, ResourceOptions::WITH_STATUS),
        "cpu=4",
        "it has no limit to come, and one that it still has"
    );
    assert_eq!(limited!(&pod, ResourceOptions::SPEC), "");
}

/// What one container gives up and another gets is not counted twice: each state of the pod is a whole.
#[test]
fn resize_that_moves_cpu_between_containers_counts_once() {
    let mut pod = pod(json!({ "containers": [asks("a", "1"), asks("b", "3")] }));
    let status = |name: &str, cpu: &str| {
        json!({ "name": name, "image": "", "imageID": "", "ready": true,
        "restartCount": 0, "allocatedResources": { "cpu": cpu } })
    };
    pod["status"] = json!({ "containerStatuses": [status("a", "3"), status("b", "1")] });
    assert_eq!(requested!(&pod, ResourceOptions::WITH_STATUS), "cpu=4");
}

#[test]
fn qos_class_follows_requests_and_limits() {
    let class = |containers: Value, whole: Value| {
        ask!(&pod(json!({ "containers": containers, "resources": whole })), computed_qos_class).as_str()
    };
    let of = |requests: Value, limits: Value| json!({ "name": "a", "resources": { "requests": requests, "limits": limits } });
    let full = json!({ "cpu": "1", "memory": "1Gi" });
    let same = json!({ "cpu": "1000m", "memory": "1024Mi" });
    let nothing = json!({ "name": "b" });
    assert_eq!(class(json!([]), json!(null)), "BestEffort");
    assert_eq!(class(json!([of(full.clone(), same.clone())]), json!(null)), "Guaranteed");
    assert_eq!(class(json!([of(full.clone(), same.clone()), nothing]), json!(null)), "Burstable");
    assert_eq!(class(json!([of(json!({ "cpu": "1" }), json!({ "cpu": "1" }))]), json!(null)), "Burstable");
    assert_eq!(class(json!([of(json!({ "cpu": "0" }), json!({ "example.com/gpu": "1" }))]), json!(null)), "BestEffort");
    let whole = json!({ "requests": full, "limits": same });
    assert_eq!(class(json!([nothing]), whole.clone()), "Guaranteed", "the pod says it of all");
    // Upstream: who says anything of the pod as a whole is judged by that alone, even by nothing of it.
    assert_eq!(class(json!([of(full.clone(), full)]), json!({ "requests": { "cpu": "0" } })), "BestEffort");
}

#[test]
fn qos_class_that_was_given_stays() {
    let mut pod = pod(json!({ "containers": [] }));
    pod["status"] = json!({ "qosClass": "Guaranteed" });
    assert_eq!(ask!(&pod, qos_class), QosClass::Guaranteed);
    assert_eq!(ask!(&pod, computed_qos_class), QosClass::BestEffort);
}

#[test]
fn toleration_matches_key_value_and_effect() {
    let taint = Taint { key: "k", value: "v", effect: "NoSchedule" };
    for (toleration, tolerated) in [
        (json!({ "key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule" }), true),
        (json!({ "key": "k", "value": "v" }), true),
        (json!({ "key": "k", "value": "w" }), false),
        (json!({ "key": "k" }), false),
        (json!({ "key": "k", "operator": "Exists" }), true),
        (json!({ "key": "k", "operator": "Exists", "effect": "NoExecute" }), false),
        (json!({ "key": "other", "operator": "Exists" }), false),
        (json!({ "operator": "Exists" }), true),
        (json!({ "operator": "Exists", "effect": "NoExecute" }), false),
        (json!({ "key": "k", "operator": "Gt", "value": "v" }), false),
        (json!({}), false),
    ] {
        let pod = pod(json!({ "containers": [], "tolerations": [toleration] }));
        assert_eq!((tolerates(&pod, taint), tolerates(&typed(&pod), taint)), (tolerated, tolerated), "{pod}");
    }
    let both = json!([{ "key": "k", "operator": "Exists", "tolerationSeconds": 3 }, { "operator": "Exists" }]);
    let pod = pod(json!({ "containers": [], "tolerations": both }));
    assert_eq!(toleration(&pod, taint).unwrap().seconds, Some(3), "the first one counts");
}

#[test]
fn host_ports_collide_by_port_protocol_and_address() {
    let port = |ip: &str, port: i32, protocol: &str| {
        let port = json!({ "containerPort": 1, "hostPort": port, "hostIP": ip, "protocol": protocol });
        let pod = pod(json!({ "containers": [{ "name": "a", "ports": [port] }] }));
        let ports: Vec<HostPort> = host_ports(&pod).collect();
        assert_eq!(ports, host_ports(&typed(&pod)).collect::<Vec<_>>());
        ports[0]
    };
    for (one, other, collide) in [
        ("", "192.0.2.1", true),
        ("0.0.0.0", "192.0.2.1", true),
        ("0.0.0.0", "2001:db8::1", true),
        ("", "::", true),
        ("::", "2001:db8::1", true),
        ("::", "192.0.2.1", true),
        ("192.0.2.1", "192.0.2.1", true),
        ("192.0.2.1", "192.0.2.2", false),
        ("2001:db8::1", "2001:db8:0::1", true),
        ("2001:db8::1", "192.0.2.1", false),
    ] {
        let (one, other) = (port(one, 80, "TCP"), port(other, 80, ""));
        assert_eq!((one.collides(&other), other.collides(&one)), (collide, collide), "{one:?} {other:?}");
    }
    assert!(!port("", 80, "TCP").collides(&port("", 81, "TCP")));
    assert!(!port("", 80, "TCP").collides(&port("", 80, "UDP")));
}

#[test]
fn host_ports_are_those_of_containers_and_sidecars() {
    let container =
        |name: &str, port: i32| json!({ "name": name, "ports": [{ "containerPort": 1, "hostPort": port }] });
    let mut side = container("side", 2);
    side["restartPolicy"] = json!("Always");
    let pod = pod(json!({ "initContainers": [container("init", 1), side], "containers": [container("app", 3),
        container("none", 0)] }));
    assert_eq!(host_ports(&pod).map(|port| port.port).collect::<Vec<_>>(), [3, 2]);
}

#[test]
fn mirror_and_static_pods_are_told_by_their_annotations() {
    let with = |annotations: Value, version: Value| {
        let mut pod = pod(json!({ "containers": [] }));
        pod["metadata"]["annotations"] = annotations;
        pod["metadata"]["resourceVersion"] = version;
        (ask!(&pod, is_static), ask!(&pod, is_mirror))
    };
    assert_eq!(with(json!(null), json!(null)), (false, false));
    assert_eq!(with(json!({ SOURCE_ANNOTATION: "file" }), json!(null)), (true, false));
    assert_eq!(with(json!({ SOURCE_ANNOTATION: "file" }), json!("1")), (false, false), "anybody can write that");
    assert_eq!(with(json!({ SOURCE_ANNOTATION: "file", MIRROR_ANNOTATION: "" }), json!(null)), (false, true));
    assert_eq!(with(json!({ SOURCE_ANNOTATION: "api" }), json!(null)), (false, false));
}

/// Any pod: every question has one answer, whatever the pod is borrowed from.
#[test]
fn json_and_typed_views_of_a_pod_answer_alike() {
    for seed in 0..storms() {
        let pod = arbitrary(&mut Dice::seeded(seed));
        for options in [
            ResourceOptions::SPEC,
            ResourceOptions::WITH_STATUS,
            ResourceOptions::WITHOUT_OVERHEAD,
            ResourceOptions::CONTAINERS,
        ] {
            let typed = typed(&pod);
            assert_eq!(requests(&pod, options), requests(&typed, options), "seed {seed}: {pod}");
            assert_eq!(limits(&pod, options), limits(&typed, options), "seed {seed}: {pod}");
            assert_eq!(requests(&pod, options).to_string(), requests(&typed, options).to_string(), "seed {seed}");
        }
        ask!(&pod, qos_class);
        ask!(&pod, computed_qos_class);
        ask!(&pod, is_terminal);
        ask!(&pod, is_terminating);
        ask!(&pod, is_ready);
        ask!(&pod, priority);
        ask!(&pod, is_mirror);
        ask!(&pod, is_static);
        both(&pod, |pod| host_ports(pod).collect::<Vec<_>>(), |pod| host_ports(pod).collect());
        for taint in TAINTS {
            assert_eq!(toleration(&pod, taint), toleration(&typed(&pod), taint), "seed {seed}: {pod}");
        }
    }
}

const TAINTS: [Taint<'_>; 3] = [
    Taint { key: "a", value: "", effect: "NoSchedule" },
    Taint { key: "a", value: "v", effect: "NoExecute" },
    Taint { key: "b", value: "v", effect: "PreferNoSchedule" },
];

fn arbitrary(dice: &mut Dice) -> Value {
    let mut pod = json!({ "metadata": { "name": "p" }, "spec": { "containers": containers(dice, 3) } });
    for (key, value) in [("resourceVersion", "7"), ("deletionTimestamp", "2026-01-01T00:00:00Z")] {
        if dice.once_in(2) {
            pod["metadata"][key] = json!(value);
        }
    }
    for (key, value) in [(SOURCE_ANNOTATION, "file"), (MIRROR_ANNOTATION, "hash")] {
        if dice.once_in(3) {
            pod["metadata"]["annotations"][key] = json!(value);
        }
    }
    let spec = &mut pod["spec"];
    if dice.once_in(2) {
        spec["initContainers"] = containers(dice, 4);
    }
    if dice.once_in(3) {
        spec["resources"] = resources(dice);
    }
    if dice.once_in(3) {
        spec["overhead"] = amounts(dice);
    }
    if dice.once_in(2) {
        spec["priority"] = json!(dice.pick(&[-5, 0, 7, 2_000_001_000]));
    }
    spec["tolerations"] = (0..dice.below(4)).map(|_| toleration_of(dice)).collect();
    if dice.once_in(4) {
        return pod;
    }
    let mut status = json!({ "conditions": (0..dice.below(3)).map(|_| json!({
        "type": dice.pick(&["Ready", "PodResizePending", "PodScheduled"]), "status": dice.pick(&["True", "False"]),
        "reason": dice.pick(&["Infeasible", "Deferred", ""]) })).collect::<Vec<_>>() });
    if dice.once_in(2) {
        status["phase"] = json!(dice.pick(&["Pending", "Running", "Succeeded", "Failed", "Unknown"]));
    }
    if dice.once_in(2) {
        status["qosClass"] = json!(dice.pick(&["BestEffort", "Burstable", "Guaranteed", "", "Other"]));
    }
    for key in ["containerStatuses", "initContainerStatuses"] {
        status[key] = (0..dice.below(4)).map(|_| status_of(dice)).collect();
    }
    pod["status"] = status;
    pod
}

fn name(dice: &mut Dice) -> &'static str {
    dice.pick(&["a", "b", "c", "d"])
}

fn containers(dice: &mut Dice, most: u64) -> Value {
    let one = |dice: &mut Dice| {
        let mut container = json!({ "name": name(dice) });
        if dice.once_in(2) {
            container["restartPolicy"] = json!(dice.pick(&["Always", "Never"]));
        }
        if !dice.once_in(4) {
            container["resources"] = resources(dice);
        }
        if dice.once_in(2) {
            container["ports"] = (0..dice.below(3)).map(|_| port(dice)).collect();
        }
        container
    };
    (0..dice.below(most + 1)).map(|_| one(dice)).collect()
}

fn resources(dice: &mut Dice) -> Value {
    let mut resources = json!({});
    for side in ["requests", "limits"] {
        if !dice.once_in(3) {
            resources[side] = amounts(dice);
        }
    }
    resources
}

fn amounts(dice: &mut Dice) -> Value {
    let mut amounts = json!({});
    for _ in 0..dice.below(4) {
        let name = dice.pick(&["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/gpu", "pods"]);
        amounts[name] =
            json!(dice.pick(&["0", "1", "1500m", "1000m", "2Gi", "2048Mi", "1e3", "0.5", "100n", "many", ""]));
    }
    amounts
}

fn port(dice: &mut Dice) -> Value {
    let mut port = json!({ "containerPort": dice.pick(&[0, 80, 65_535, 70_000]) });
    if !dice.once_in(4) {
        port["hostPort"] = json!(dice.pick(&[0, 1, 80, 65_535, 70_000]));
    }
    for (key, words) in [
        ("hostIP", ["", "0.0.0.0", "::", "192.0.2.1", "2001:db8::1", "nowhere"]),
        ("protocol", ["", "TCP", "UDP", "SCTP", "tcp", "TCP"]),
    ] {
        if dice.once_in(2) {
            port[key] = json!(dice.pick(&words));
        }
    }
    port
}

fn toleration_of(dice: &mut Dice) -> Value {
    let mut toleration = json!({});
    for (key, words) in [
        ("key", ["", "a", "b"]),
        ("operator", ["", "Equal", "Exists"]),
        ("value", ["", "v", "w"]),
        ("effect", ["", "NoSchedule", "NoExecute"]),
    ] {
        if dice.once_in(2) {
            toleration[key] = json!(dice.pick(&words));
        }
    }
    if dice.once_in(3) {
        toleration["tolerationSeconds"] = json!(dice.below(100));
    }
    toleration
}

fn status_of(dice: &mut Dice) -> Value {
    let mut status = json!({ "name": name(dice), "image": "", "imageID": "", "ready": true, "restartCount": 0 });
    if dice.once_in(2) {
        status["allocatedResources"] = amounts(dice);
    }
    if dice.once_in(2) {
        status["resources"] = resources(dice);
    }
    status
}
