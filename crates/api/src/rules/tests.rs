//! The two doors, kind by kind.
#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;
use crate::decode::{FieldValidation, decode_object};
use crate::{built_in, time};

fn kind(plural: &str) -> &'static Kind {
    let group = if plural == "leases" { "coordination.k8s.io" } else { "" };
    built_in(group, "v1", plural).unwrap()
}

fn now() -> Timestamp {
    time::parse("2026-11-15T17:58:21.5Z").unwrap()
}

fn try_create(plural: &str, object: Value) -> Result<(Value, Vec<String>), Status> {
    let kind = kind(plural);
    let decoded = decode_object(kind, None, object.to_string().as_bytes(), FieldValidation::Strict)?;
    let mut object = decoded.value;
    let warnings = prepare_create(kind, &mut object, "n", now(), "u1".to_owned(), || "x7k2m".to_owned())?;
    meta::set_resource_version(&mut object, "7");
    Ok((object, warnings))
}

fn create(plural: &str, object: Value) -> Value {
    try_create(plural, object).unwrap().0
}

/// Fields and messages of what was refused.
fn causes(error: &Status) -> Vec<(String, String)> {
    assert_eq!(error.code, 422, "{error}");
    error.details.as_ref().unwrap().causes.iter().map(|c| (c.field.clone(), c.message.clone())).collect()
}

fn refused(plural: &str, object: Value) -> Vec<(String, String)> {
    causes(&try_create(plural, object).unwrap_err())
}

fn cause(field: &str, message: &str) -> (String, String) {
    (field.to_owned(), message.to_owned())
}

fn pod(containers: Value) -> Value {
    json!({"metadata": {"name": "p"}, "spec": {"containers": containers}})
}

fn small_pod() -> Value {
    pod(json!([{"name": "a", "image": "busybox:1.36"}]))
}

/// What an update with `change` applied to a stored object gives.
fn update(plural: &str, sub: Option<&str>, old: &Value, change: impl FnOnce(&mut Value)) -> Result<Value, Status> {
    let mut new = old.clone();
    change(&mut new);
    prepare_update(kind(plural), sub, old, &mut new)?;
    Ok(new)
}

#[test]
fn a_small_pod_is_filled_in_like_upstream_does() {
    let pod = create("pods", small_pod());
    assert_eq!(
        pod["metadata"],
        json!({"name": "p", "namespace": "n", "uid": "u1", "generation": 1, "resourceVersion": "7",
               "creationTimestamp": "2026-11-15T17:58:21Z"})
    );
    assert_eq!(pod["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
    let tolerates =
        |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    assert_eq!(
        pod["spec"],
        json!({
            "containers": [{
                "name": "a", "image": "busybox:1.36", "imagePullPolicy": "IfNotPresent", "resources": {},
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            }],
            "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
            "terminationGracePeriodSeconds": 30, "securityContext": {}, "enableServiceLinks": true,
            "serviceAccountName": "default", "serviceAccount": "default",
            "preemptionPolicy": "PreemptLowerPriority", "priority": 0,
            "tolerations": [tolerates("node.kubernetes.io/not-ready"), tolerates("node.kubernetes.io/unreachable")],
        })
    );
}

#[test]
fn stored_pod_is_unchanged_by_decoding_and_no_op_update() {
    let pod = create("pods", small_pod());
    let again = decode_object(kind("pods"), None, pod.to_string().as_bytes(), FieldValidation::Strict).unwrap().value;
    assert_eq!(again, pod);
    assert_eq!(update("pods", None, &pod, |_| ()).unwrap(), pod, "a no-op update changes nothing");
    assert_eq!(update("pods", Some("status"), &pod, |_| ()).unwrap(), pod);
}

#[test]
fn probes_ports_hooks_and_volumes_have_defaults() {
    let pod = create(
        "pods",
        json!({
            "metadata": {"name": "p"},
            "spec": {
                "hostNetwork": true,
                "containers": [{
                    "name": "a", "image": "r/i", "ports": [{"containerPort": 80}],
                    "resources": {"limits": {"cpu": "1000m", "memory": "64Mi"}, "requests": {"memory": "32Mi"}},
                    "readinessProbe": {"httpGet": {"port": 80}},
                    "lifecycle": {"preStop": {"httpGet": {"port": 80, "path": "/bye"}}},
                    "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                }],
                "volumes": [{"name": "v"}, {"name": "c", "configMap": {"name": "c"}}, {"name": "h", "hostPath": {"path": "/"}}],
            },
        }),
    );
    let container = &pod["spec"]["containers"][0];
    assert_eq!(container["imagePullPolicy"], "Always");
    assert_eq!(container["ports"][0], json!({"containerPort": 80, "hostPort": 80, "protocol": "TCP"}));
    assert_eq!(container["resources"]["requests"], json!({"cpu": "1", "memory": "32Mi"}));
    assert_eq!(
        container["readinessProbe"],
        json!({"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10,
               "successThreshold": 1, "failureThreshold": 3})
    );
    assert_eq!(container["lifecycle"]["preStop"]["httpGet"], json!({"port": 80, "path": "/bye", "scheme": "HTTP"}));
    assert_eq!(container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"], "v1");
    assert_eq!(
        pod["spec"]["volumes"],
        json!([{"name": "v", "emptyDir": {}}, {"name": "c", "configMap": {"name": "c", "defaultMode": 420}},
               {"name": "h", "hostPath": {"path": "/", "type": ""}}])
    );
    assert_eq!(pod["status"]["qosClass"], "Burstable");
}

#[test]
fn a_pull_policy_follows_the_tag() {
    for (image, policy) in [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("localhost:5000/nginx", "Always"),
        ("localhost:5000/nginx:1", "IfNotPresent"),
        ("nginx@sha256:0000000000000000000000000000000000000000000000000000000000000000", "IfNotPresent"),
    ] {
        let made = create("pods", pod(json!([{"name": "a", "image": image}])));
        assert_eq!(made["spec"]["containers"][0]["imagePullPolicy"], policy, "{image}");
    }
}

#[test]
fn a_class_is_guaranteed_only_when_everything_is_limited() {
    let both = json!({"limits": {"cpu": "1", "memory": "1Gi"}});
    let class = |resources: Value| {
        let made = create("pods", pod(json!([{"name": "a", "image": "x", "resources": resources}])));
        made["status"]["qosClass"].as_str().unwrap().to_owned()
    };
    assert_eq!(class(both), "Guaranteed");
    assert_eq!(class(json!({"requests": {"cpu": "1"}})), "Burstable");
    assert_eq!(class(json!({})), "BestEffort");
}

#[test]
fn a_priority_comes_from_a_class_that_exists() {
    let with = |key: &str, value: Value, class: Option<&Value>| {
        let mut object = small_pod();
        object["spec"][key] = value;
        prioritise(&mut object, class).map(|()| object["spec"]["priority"].clone())
    };
    let gold = json!({"metadata": {"name": "gold"}, "value": 900, "preemptionPolicy": "Never"});
    assert_eq!(with("priorityClassName", json!("gold"), Some(&gold)).unwrap(), 900);
    let error = with("priorityClassName", json!("gold"), None).unwrap_err();
    assert_eq!(error, "no PriorityClass with name gold was found");
    assert!(with("priority", json!(7), None).is_err());
    assert_eq!(with("priority", json!(0), None).unwrap(), 0);
    assert!(with("preemptionPolicy", json!("PreemptLowerPriority"), Some(&gold)).is_err());
}

#[test]
fn tolerations_that_are_there_are_not_added_again() {
    let mut object = small_pod();
    object["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    assert_eq!(create("pods", object)["spec"]["tolerations"], json!([{"operator": "Exists"}]));
}

#[test]
fn a_lease_keeps_its_microseconds() {
    let lease = create("leases", json!({"metadata": {"name": "w1"}, "spec": {"renewTime": "2026-11-15T18:00:00Z"}}));
    assert_eq!(lease["spec"], json!({"renewTime": "2026-11-15T18:00:00.000000Z"}));
    assert!(try_create("leases", json!({"metadata": {"name": "a/b"}})).is_err());
}

#[test]
fn system_fields_sent_by_a_client_are_wiped() {
    let mut object = small_pod();
    object["metadata"]["uid"] = json!("mine");
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    object["metadata"]["deletionGracePeriodSeconds"] = json!(5);
    object["metadata"]["generation"] = json!(9);
    object["status"] = json!({"phase": "Running"});
    let pod = create("pods", object);
    assert_eq!((meta::uid(&pod), meta::generation(&pod)), ("u1", 1));
    assert!(meta::deletion_timestamp(&pod).is_none() && meta::deletion_grace_seconds(&pod).is_none());
    assert_eq!(pod["status"]["phase"], "Pending");
}

#[test]
fn names_are_generated_or_required_and_namespaces_agree() {
    let long = "g".repeat(70);
    let mut object = small_pod();
    object["metadata"] = json!({"generateName": long});
    assert_eq!(meta::name(&create("pods", object)), format!("{}x7k2m", &long[..58]));
    let nameless = json!({"spec": {"containers": [{"name": "a", "image": "x"}]}});
    assert_eq!(refused("pods", nameless), [cause("metadata.name", "Required value: name or generateName is required")]);
    let mut elsewhere = small_pod();
    elsewhere["metadata"]["namespace"] = json!("other");
    assert_eq!(try_create("pods", elsewhere).unwrap_err().code, 400);
    let mut versioned = small_pod();
    versioned["metadata"]["resourceVersion"] = json!("5");
    let error = try_create("pods", versioned).unwrap_err();
    assert_eq!((error.code, error.reason), (500, ""));
    let mut dotted = small_pod();
    dotted["metadata"]["name"] = json!("a.b");
    assert_eq!(try_create("pods", dotted).unwrap().1.len(), 1, "a name that is no DNS label is warned about");
}

#[test]
fn one_mistake_and_several_are_told_in_one_sentence() {
    let error = try_create("pods", pod(json!([{"name": "a"}]))).unwrap_err();
    assert_eq!(error.message, r#"Pod "p" is invalid: spec.containers[0].image: Required value"#);
    assert_eq!(error.to_json()["details"]["kind"], "Pod");
    let error = try_create("pods", pod(json!([{"name": "A"}]))).unwrap_err();
    assert!(error.message.starts_with(r#"Pod "p" is invalid: [spec.containers[0].name: Invalid value: "A": a lower"#));
    assert!(error.message.ends_with("spec.containers[0].image: Required value]"), "{error}");
    let lease = json!({"metadata": {"name": "l"}, "spec": {"leaseDurationSeconds": 0}});
    let error = try_create("leases", lease).unwrap_err();
    assert!(error.message.starts_with(r#"Lease.coordination.k8s.io "l" is invalid: "#), "{error}");
}

#[test]
fn containers_are_checked() {
    let fields = |containers: Value| refused("pods", pod(containers)).into_iter().map(|c| c.0).collect::<Vec<_>>();
    assert_eq!(fields(json!([])), ["spec.containers"]);
    assert_eq!(fields(json!([{"name": "a", "image": "x"}, {"name": "a", "image": "x"}])), ["spec.containers[1].name"]);
    let with = |key: &str, value: Value| {
        let mut container = json!({"name": "a", "image": "x"});
        container[key] = value;
        fields(json!([container]))
    };
    assert_eq!(with("imagePullPolicy", json!("Sometimes")), ["spec.containers[0].imagePullPolicy"]);
    assert_eq!(with("ports", json!([{"containerPort": 70000}])), ["spec.containers[0].ports[0].containerPort"]);
    assert_eq!(with("ports", json!([{"containerPort": 1, "protocol": "X"}])), ["spec.containers[0].ports[0].protocol"]);
    assert_eq!(
        with("ports", json!([{"containerPort": 1, "hostPort": 9}, {"containerPort": 2, "hostPort": 9}])),
        ["spec.containers[0].ports[1].hostPort"]
    );
    let mut whole = pod(json!([{"name": "a", "image": "x", "resources": {"requests": {"cpu": "250m"}}}]));
    whole["spec"]["resources"] = json!({"limits": {"cpu": "1", "memory": "20Mi"}});
    let (whole, _) = try_create("pods", whole).unwrap();
    assert_eq!(whole["spec"]["resources"]["requests"], json!({"cpu": "250m", "memory": "20Mi"}));
    let mut gated = pod(json!([{"name": "a", "image": "x"}]));
    gated["spec"]["nodeName"] = json!("n");
    gated["spec"]["schedulingGates"] = json!([{"name": "example.com/later"}]);
    assert_eq!(refused("pods", gated)[0].0, "spec.nodeName");
    let resized = |policies: &[(&str, &str)]| {
        let policy = |(resource, restart): &(&str, &str)| json!({"resourceName": resource, "restartPolicy": restart});
        with("resizePolicy", policies.iter().map(policy).collect())
    };
    let policy = "spec.containers[0].resizePolicy";
    let mut either = pod(json!([{"name": "a", "image": "x"}]));
    either["spec"]["containers"][0]["resizePolicy"] = json!([
        {"resourceName": "cpu", "restartPolicy": "RestartContainer"}, {"resourceName": "memory", "restartPolicy": "NotRequired"},
    ]);
    try_create("pods", either.clone()).unwrap();
    either["spec"]["restartPolicy"] = json!("Never");
    assert_eq!(refused("pods", either)[0].0, policy, "what runs once is not run again");
    assert_eq!(resized(&[("disk", "NotRequired")]), [policy]);
    assert_eq!(resized(&[("cpu", "Sometimes")]), [policy]);
    assert_eq!(resized(&[("", "NotRequired")]), [policy]);
    assert_eq!(resized(&[("cpu", "NotRequired"), ("cpu", "NotRequired")]), [format!("{policy}[1]")]);
    assert_eq!(
        with("volumeMounts", json!([{"name": "v", "mountPath": "/a"}])),
        ["spec.containers[0].volumeMounts[0].name"]
    );
    assert_eq!(with("env", json!([{"name": ""}])), ["spec.containers[0].env[0].name"]);
    assert_eq!(
        with("resources", json!({"limits": {"cpu": "1"}, "requests": {"cpu": "2"}})),
        ["spec.containers[0].resources.requests"]
    );
    assert_eq!(with("livenessProbe", json!({})), ["spec.containers[0].livenessProbe"]);
    assert_eq!(
        with("livenessProbe", json!({"exec": {"command": ["x"]}, "successThreshold": 2})),
        ["spec.containers[0].livenessProbe.successThreshold"]
    );
    assert_eq!(
        with("readinessProbe", json!({"tcpSocket": {"port": 1}, "terminationGracePeriodSeconds": 3})),
        ["spec.containers[0].readinessProbe.terminationGracePeriodSeconds"]
    );
}

#[test]
fn hooks_must_fit_and_a_stop_signal_needs_an_os() {
    let with = |lifecycle: Value, os: Option<&str>| {
        let mut object = pod(json!([{"name": "a", "image": "x", "lifecycle": lifecycle}]));
        if let Some(os) = os {
            object["spec"]["os"] = json!({"name": os});
        }
        try_create("pods", object).map(|_| ()).map_err(|error| causes(&error))
    };
    let sleep = |seconds: i64| json!({"preStop": {"sleep": {"seconds": seconds}}});
    assert_eq!(with(sleep(30), None), Ok(()));
    assert_eq!(
        with(sleep(31), None),
        Err(vec![cause(
            "spec.containers[0].lifecycle.preStop.sleep",
            "Invalid value: 31: must be non-negative and less than terminationGracePeriodSeconds (30)"
        )])
    );
    let two = json!({"preStop": {"exec": {"command": ["x"]}, "httpGet": {"port": 1}}});
    assert_eq!(with(two, None).unwrap_err()[0].0, "spec.containers[0].lifecycle.preStop.httpGet");
    assert_eq!(
        with(json!({"stopSignal": "SIGUSR1"}), None).unwrap_err()[0].0,
        "spec.containers[0].lifecycle.stopSignal"
    );
    for signal in ["SIGUSR1", "SIGRTMIN", "SIGRTMIN+15", "SIGRTMAX-1"] {
        assert_eq!(with(json!({"stopSignal": signal}), Some("linux")), Ok(()), "{signal}");
    }
    for nonsense in ["TERM", "SIGRTMIN+16", "SIGRTMAX+1", "SIGODD"] {
        assert!(with(json!({"stopSignal": nonsense}), Some("linux")).is_err(), "{nonsense}");
    }
}

#[test]
fn only_a_sidecar_may_have_probes_among_init_containers() {
    let with = |policy: Option<&str>| {
        let mut init = json!({"name": "i", "image": "x", "livenessProbe": {"exec": {"command": ["x"]}}});
        if let Some(policy) = policy {
            init["restartPolicy"] = json!(policy);
        }
        let mut object = small_pod();
        object["spec"]["initContainers"] = json!([init]);
        try_create("pods", object)
    };
    assert!(with(Some("Always")).is_ok());
    assert_eq!(causes(&with(None).unwrap_err())[0].0, "spec.initContainers[0].livenessProbe");
}

#[test]
fn restart_rules_of_a_container_need_a_policy_codes_and_known_words() {
    let rule = |action: &str, operator: &str, values: usize| {
        let values: Vec<usize> = (0..values).collect();
        json!({"action": action, "exitCodes": {"operator": operator, "values": values}})
    };
    let with = |list: &str, policy: Option<&str>, rules: Vec<Value>| {
        let mut object = small_pod();
        let mut container = json!({"name": "i", "image": "x", "restartPolicyRules": rules});
        if let Some(policy) = policy {
            container["restartPolicy"] = json!(policy);
        }
        object["spec"][list] = json!([container]);
        let answer = try_create("pods", object);
        answer.map(drop).map_err(|error| causes(&error).into_iter().map(|(field, _)| field).collect::<Vec<_>>())
    };
    for list in ["containers", "initContainers"] {
        let refused = |fields: &[&str]| Err(fields.iter().map(|field| format!("spec.{list}[0].{field}")).collect());
        for policy in ["Always", "Never", "OnFailure"] {
            let both = vec![rule("Restart", "In", 255), rule("RestartAllContainers", "NotIn", 1)];
            assert_eq!(with(list, Some(policy), both), Ok(()), "{list} {policy}");
        }
        assert_eq!(with(list, None, vec![rule("Restart", "In", 1)]), refused(&["restartPolicy"]));
        assert_eq!(with(list, Some("Sometimes"), vec![]), refused(&["restartPolicy"]));
        let nonsense = vec![rule("Dance", "Near", 256)];
        let fields =
            ["action", "exitCodes.operator", "exitCodes.values"].map(|it| format!("restartPolicyRules[0].{it}"));
        assert_eq!(with(list, Some("Never"), nonsense), refused(&fields.each_ref().map(String::as_str)));
        let bare = vec![json!({"action": "Restart"})];
        assert_eq!(with(list, Some("Never"), bare), refused(&["restartPolicyRules[0].exitCodes"]));
        let many = vec![rule("Restart", "In", 1); 21];
        assert_eq!(with(list, Some("Never"), many), refused(&["restartPolicyRules"]));
    }
}

#[test]
fn only_a_few_fields_of_a_pod_may_change() {
    let old = create("pods", small_pod());
    let image = update("pods", None, &old, |p| p["spec"]["containers"][0]["image"] = json!("busybox:2")).unwrap();
    assert_eq!(meta::generation(&image), 2);
    let deadline = update("pods", None, &old, |p| p["spec"]["activeDeadlineSeconds"] = json!(60)).unwrap();
    assert!(update("pods", None, &deadline, |p| p["spec"]["activeDeadlineSeconds"] = json!(30)).is_ok());
    let later = update("pods", None, &deadline, |p| p["spec"]["activeDeadlineSeconds"] = json!(90)).unwrap_err();
    assert_eq!(causes(&later)[0].0, "spec.activeDeadlineSeconds");
    let tolerant = update("pods", None, &old, |p| {
        p["spec"]["tolerations"].as_array_mut().unwrap().push(json!({"key": "own", "operator": "Exists"}));
    })
    .unwrap();
    let error = update("pods", None, &tolerant, |p| p["spec"]["tolerations"] = json!([])).unwrap_err();
    assert_eq!(causes(&error)[0].0, "spec.tolerations");
    let error = update("pods", None, &old, |p| p["spec"]["terminationGracePeriodSeconds"] = json!(5)).unwrap_err();
    assert!(
        error.message.starts_with(
            r#"Pod "p" is invalid: spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"#
        ),
        "{error}"
    );
    assert!(error.message.ends_with("\n  spec.terminationGracePeriodSeconds: 30 -> 5"), "{error}");
    let error = update("pods", None, &old, |p| p["spec"]["containers"] = json!([])).unwrap_err();
    assert!(error.message.contains("may not add or remove containers"), "{error}");
}

#[test]
fn spec_and_status_endpoints_write_their_own_half() {
    let old = create("pods", small_pod());
    let both = |p: &mut Value| {
        p["spec"]["containers"][0]["image"] = json!("busybox:2");
        p["status"]["phase"] = json!("Running");
        p["metadata"]["labels"] = json!({"a": "b"});
        p["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "x"}]);
    };
    let main = update("pods", None, &old, both).unwrap();
    assert_eq!(main["status"], old["status"]);
    assert_eq!((meta::generation(&main), meta::label(&main, "a")), (2, Some("b")));
    let status = update("pods", Some("status"), &old, both).unwrap();
    assert_eq!(status["spec"], old["spec"]);
    assert_eq!(status["status"], json!({"phase": "Running", "qosClass": "BestEffort"}));
    assert_eq!((meta::generation(&status), meta::label(&status, "a")), (1, Some("b")));
    assert!(status["metadata"].get("ownerReferences").is_none());
    let error = update("pods", Some("status"), &old, |p| p["status"]["qosClass"] = json!("Burstable")).unwrap_err();
    assert_eq!(causes(&error)[0].0, "status.qosClass");
}

#[test]
fn a_container_that_ended_for_good_does_not_come_back() {
    let mut object = small_pod();
    object["spec"]["restartPolicy"] = json!("Never");
    let mut old = create("pods", object);
    old["status"]["containerStatuses"] = json!([{"name": "a", "state": {"terminated": {"exitCode": 1}}}]);
    let error = update("pods", Some("status"), &old, |p| {
        p["status"]["containerStatuses"][0]["state"] = json!({"running": {}});
    });
    assert!(error.unwrap_err().message.contains("may not be transitioned to non-terminated state"));
    // Unless its own policy lets it.
    old["spec"]["containers"][0]["restartPolicy"] = json!("OnFailure");
    let again = update("pods", Some("status"), &old, |p| {
        p["status"]["containerStatuses"][0]["state"] = json!({"running": {}});
    });
    assert!(again.is_ok(), "{again:?}");
}

fn leaving() -> Value {
    let mut pod = create("pods", small_pod());
    meta::set_deletion_timestamp(&mut pod, now());
    meta::set_deletion_grace_seconds(&mut pod, 30);
    meta::set_finalizers(&mut pod, &["x/y".to_owned()]);
    pod
}

/// [AD-34]
#[test]
fn finalizer_cannot_be_added_to_an_object_being_deleted() {
    let old = leaving();
    let error = update("pods", None, &old, |p| p["metadata"]["finalizers"] = json!(["x/y", "a.b/c"])).unwrap_err();
    assert_eq!(
        causes(&error),
        [cause(
            "metadata.finalizers",
            "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers \
             []string{\"a.b/c\"}"
        )]
    );
    assert!(update("pods", None, &old, |p| meta::set_finalizers(p, &[])).is_ok());
}

/// [AD-35] [AD-36]
#[test]
fn deletion_timestamp_cannot_be_removed_by_an_update() {
    let old = leaving();
    let same = update("pods", None, &old, |p| {
        meta::meta_mut(p).remove("deletionTimestamp");
        meta::meta_mut(p).remove("deletionGracePeriodSeconds");
    });
    assert_eq!(same.unwrap(), old);
    let error = update("pods", None, &old, |p| meta::set_deletion_grace_seconds(p, 99)).unwrap_err();
    let [(field, message)] = &causes(&error)[..] else { panic!("one cause: {error}") };
    assert_eq!(field, "metadata.deletionGracePeriodSeconds");
    assert!(message.contains("field is immutable"), "{message}");
}

/// [AD-37] [AD-38]
#[test]
fn a_leaving_pod_changes_by_the_usual_rules() {
    let old = leaving();
    let image = update("pods", None, &old, |p| p["spec"]["containers"][0]["image"] = json!("busybox:2")).unwrap();
    assert_eq!(meta::generation(&image), 2);
    let ended = update("pods", Some("status"), &old, |p| p["status"]["phase"] = json!("Succeeded")).unwrap();
    assert_eq!(ended["status"]["phase"], "Succeeded");
}

#[test]
fn an_update_must_be_about_the_stored_object() {
    let old = create("pods", small_pod());
    let code = |change: fn(&mut Value)| update("pods", None, &old, change).unwrap_err();
    let error = code(|p| meta::set_resource_version(p, "6"));
    assert_eq!(
        error.message,
        "Operation cannot be fulfilled on pods \"p\": the object has been modified; please apply your changes to the \
         latest version and try again"
    );
    assert_eq!(code(|p| meta::set_uid(p, "u0")).code, 409);
    let error = code(|p| meta::set_name(p, "x6"));
    assert_eq!(error.message, "the name of the object (x6) does not match the name on the URL (p)");
    let unconditional = update("pods", None, &old, |p| meta::set_resource_version(p, "")).unwrap();
    assert_eq!(unconditional, old);
    let lease = create("leases", json!({"metadata": {"name": "l"}}));
    let error = update("leases", None, &lease, |l| meta::set_resource_version(l, "")).unwrap_err();
    assert_eq!(causes(&error)[0].0, "metadata.resourceVersion");
}

#[test]
fn a_namespace_is_labelled_active_and_held() {
    let namespace = create("namespaces", json!({"metadata": {"name": "n1", "namespace": "n"}}));
    assert_eq!(namespace["metadata"]["labels"], json!({"kubernetes.io/metadata.name": "n1"}));
    assert!(namespace["metadata"].get("namespace").is_none());
    assert_eq!(namespace["spec"], json!({"finalizers": ["kubernetes"]}));
    assert_eq!(namespace["status"], json!({"phase": "Active"}));
    let kept = update("namespaces", None, &namespace, |n| {
        n["spec"] = json!({});
        n["metadata"]["labels"] = json!({});
        n["status"]["phase"] = json!("Odd");
    });
    assert_eq!(kept.unwrap(), namespace);
    let finalized = update("namespaces", Some("finalize"), &namespace, |n| n["spec"] = json!({})).unwrap();
    assert_eq!(finalized["spec"], json!({}));
    assert_eq!(refused("namespaces", json!({"metadata": {"name": "a.b"}}))[0].0, "metadata.name");
}

#[test]
fn node_allocatable_defaults_to_capacity() {
    let node =
        create("nodes", json!({"metadata": {"name": "w1"}, "status": {"capacity": {"cpu": "2", "pods": "110"}}}));
    assert_eq!(node["status"]["allocatable"], json!({"cpu": "2", "pods": "110"}));
    let status = update("nodes", Some("status"), &node, |n| {
        n["spec"]["unschedulable"] = json!(true);
        n["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    });
    let status = status.unwrap();
    assert_eq!((&status["spec"], &status["status"]["conditions"][0]["type"]), (&json!({}), &json!("Ready")));
    let taint = json!({"metadata": {"name": "w"}, "spec": {"taints": [{"key": "k", "effect": "Odd"}]}});
    assert_eq!(refused("nodes", taint)[0].0, "spec.taints[0].effect");
}

#[test]
fn secrets_and_config_maps_keep_good_keys() {
    let secret = create("secrets", json!({"metadata": {"name": "s"}, "stringData": {"a": "hi"}}));
    assert_eq!((&secret["type"], &secret["data"]), (&json!("Opaque"), &json!({"a": "aGk="})));
    assert!(secret.get("stringData").is_none());
    let error = update("secrets", None, &secret, |s| s["type"] = json!("other")).unwrap_err();
    assert_eq!(causes(&error)[0].0, "type");
    assert_eq!(refused("configmaps", json!({"metadata": {"name": "c"}, "data": {"a/b": "x"}}))[0].0, "data[a/b]");
    let fixed = create("configmaps", json!({"metadata": {"name": "c"}, "data": {"a": "x"}, "immutable": true}));
    let error = update("configmaps", None, &fixed, |c| c["data"]["a"] = json!("y")).unwrap_err();
    assert_eq!(causes(&error), [cause("data", "Forbidden: field is immutable when `immutable` is set")]);
}

#[test]
fn an_event_lives_beside_what_it_is_about() {
    let event =
        |namespace: &str| json!({"metadata": {"name": "e"}, "involvedObject": {"namespace": namespace, "name": "p"}});
    let made = create("events", event("n"));
    assert_eq!((&made["source"], &made["reportingComponent"]), (&json!({}), &json!("")));
    assert_eq!(refused("events", event("other"))[0].0, "involvedObject.namespace");
}

#[test]
fn metadata_is_checked_for_every_kind() {
    let bad = json!({"metadata": {"name": "c", "labels": {"a b": "c"}, "annotations": {"UPPER": "fine", "x/": "no"},
        "finalizers": ["bare"], "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "", "uid": "u"}]}});
    let fields: Vec<String> = refused("configmaps", bad).into_iter().map(|c| c.0).collect();
    assert_eq!(
        fields,
        ["metadata.labels", "metadata.annotations", "metadata.finalizers", "metadata.ownerReferences[0].name"]
    );
}

/// [AD-40]
#[test]
fn a_pod_is_bound_once_and_not_while_it_leaves() {
    let pods = kind("pods");
    let pod = create("pods", small_pod());
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "w1"}});
    let bound = bind(pods, &pod, &binding, now()).unwrap();
    assert_eq!(bound["spec"]["nodeName"], "w1");
    assert_eq!(
        bound["status"]["conditions"],
        json!([{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-15T17:58:21Z"}])
    );
    assert_eq!(bind(pods, &bound, &binding, now()).unwrap_err().code, 409);
    let error = bind(pods, &leaving(), &binding, now()).unwrap_err();
    assert!(error.message.ends_with("pod p is being deleted, cannot be assigned to a host"), "{error}");
    assert_eq!(bind(pods, &pod, &json!({}), now()).unwrap_err().code, 422);
}

/// [AD-51] (the writes), [AD-60]
#[test]
fn an_eviction_says_why_and_deletes_by_its_own_options() {
    let eviction = json!({"metadata": {"name": "p"}, "deleteOptions": {"gracePeriodSeconds": 3}});
    assert_eq!(delete_options_of_eviction(&eviction, "p").unwrap().grace_seconds, Some(3));
    assert_eq!(delete_options_of_eviction(&eviction, "q").unwrap_err().code, 400);
    let marked = mark_evicted(&create("pods", small_pod()), now());
    assert_eq!(marked["status"]["conditions"][0]["reason"], "EvictionByEvictionAPI");
    let later = time::parse("2026-11-15T18:00:00Z").unwrap();
    assert_eq!(mark_evicted(&marked, later), marked, "told twice is told once");
}
