//! What upstream refuses or takes and we must too: the cases that people meet in manifests of others.
#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;
use crate::decode::{FieldValidation, decode_object};
use crate::{Registry, time};

fn kind(word: &str) -> &'static Kind {
    Registry::built_in().kinds().iter().find(|kind| kind.plural == word && kind.face.is_none()).unwrap()
}

fn try_create(plural: &str, object: Value) -> Result<(Value, Vec<String>), Status> {
    let kind = kind(plural);
    let mut object = decode_object(kind, None, object.to_string().as_bytes(), FieldValidation::Strict)?.value;
    let now = time::parse("2026-11-15T17:58:21Z").unwrap();
    let warnings = prepare_create(kind, &mut object, "n", now, "u1".to_owned(), || "x7k2m".to_owned())?;
    meta::set_resource_version(&mut object, "7");
    Ok((object, warnings))
}

#[track_caller]
fn create(plural: &str, object: Value) -> Value {
    try_create(plural, object).unwrap().0
}

/// `field: message` of everything that was refused.
#[track_caller]
fn lines(error: &Status) -> Vec<String> {
    assert_eq!(error.code, 422, "{error}");
    error.details.as_ref().unwrap().causes.iter().map(|c| format!("{}: {}", c.field, c.message)).collect()
}

#[track_caller]
fn refused(plural: &str, object: Value) -> Vec<String> {
    lines(&try_create(plural, object).map(|(made, _)| made).unwrap_err())
}

fn pod(change: impl FnOnce(&mut Value)) -> Value {
    let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
    change(&mut pod["spec"]);
    pod
}

fn workload(extra: Value) -> Value {
    let mut object = json!({"metadata": {"name": "w"}, "spec": {"selector": {"matchLabels": {"app": "w"}},
        "template": {"metadata": {"labels": {"app": "w"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}});
    object["spec"].as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    object
}

#[test]
fn bidirectional_mount_propagation_is_for_privileged_containers_alone() {
    let with = |propagation: &str, privileged: bool| {
        pod(|spec| {
            spec["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
            spec["containers"][0]["volumeMounts"] =
                json!([{"name": "v", "mountPath": "/v", "mountPropagation": propagation}]);
            spec["containers"][0]["securityContext"] = json!({"privileged": privileged});
        })
    };
    let complaint = "spec.containers[0].volumeMounts[0].mountPropagation: Forbidden: Bidirectional mount propagation is available \
                     only to privileged containers";
    assert_eq!(refused("pods", with("Bidirectional", false)), [complaint]);
    create("pods", with("Bidirectional", true));
    create("pods", with("HostToContainer", false));
}

#[test]
fn a_stateful_set_mounts_its_claims() {
    let mut set = workload(json!({"serviceName": "w", "volumeClaimTemplates": [{"metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]}));
    let mount = |name: &str| json!([{"name": name, "mountPath": "/data"}]);
    set["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = mount("data");
    create("statefulsets", set.clone());
    set["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = mount("other");
    let field = "spec.template.spec.containers[0].volumeMounts[0].name";
    assert_eq!(refused("statefulsets", set), [format!("{field}: Not found: \"other\"")]);
}

#[test]
fn stateful_set_max_unavailable_is_a_number_or_percentage_above_nothing() {
    let rolling = |value: Value| workload(json!({"updateStrategy": {"rollingUpdate": {"maxUnavailable": value}}}));
    for fine in [json!(2), json!("30%"), json!("100%")] {
        let made = create("statefulsets", rolling(fine.clone()));
        assert_eq!(made["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"], fine);
    }
    for wrong in [json!(0), json!("0%"), json!(-1), json!("101%"), json!("two")] {
        let found = refused("statefulsets", rolling(wrong));
        assert!(found[0].starts_with("spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value"), "{found:?}");
    }
    let found = refused("statefulsets", workload(json!({"ordinals": {"start": -1}})));
    assert!(found[0].starts_with("spec.ordinals.start: Invalid value"), "{found:?}");
}

/// [WL-90]
#[test]
fn daemon_set_with_surge_and_host_ports_is_warned_about() {
    let set = |surge: Value, port: u16| {
        let rolling = json!({"maxSurge": surge, "maxUnavailable": if surge == 0 { 1 } else { 0 }});
        let mut set = workload(json!({"updateStrategy": {"rollingUpdate": rolling}}));
        set["spec"]["template"]["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": port}]);
        try_create("daemonsets", set).unwrap().1
    };
    assert!(set(json!(1), 8080)[0].starts_with("spec.updateStrategy.rollingUpdate.maxSurge: "));
    assert!(set(json!("10%"), 8080).len() == 1 && set(json!(0), 8080).is_empty() && set(json!(1), 0).is_empty());
}

#[test]
fn an_account_of_a_binding_in_a_namespace_lives_there() {
    let binding = |kind: &str| {
        json!({"metadata": {"name": "b"}, "subjects": [{"kind": "ServiceAccount", "name": "a"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "r"}})
    };
    create("rolebindings", binding("Role"));
    assert_eq!(refused("clusterrolebindings", binding("ClusterRole")), ["subjects[0].namespace: Required value"]);
}

#[test]
fn a_secret_is_as_large_as_its_bytes() {
    let of = |bytes: usize| {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(vec![7; bytes])
    };
    let secret = |bytes: usize| json!({"metadata": {"name": "s"}, "data": {"k": of(bytes)}});
    create("secrets", secret(1024 * 1024));
    assert_eq!(refused("secrets", secret(1024 * 1024 + 1)).len(), 1);
    let map = |bytes: usize| json!({"metadata": {"name": "m"}, "binaryData": {"k": of(bytes)}});
    create("configmaps", map(1024 * 1024 - 1));
    assert_eq!(refused("configmaps", map(1024 * 1024 + 1)).len(), 1);
    let plain = |bytes: usize| json!({"metadata": {"name": "m"}, "data": {"k": "x".repeat(bytes)}});
    create("configmaps", plain(1024 * 1024));
    assert_eq!(refused("configmaps", plain(1024 * 1024 + 1)).len(), 1);
}

#[test]
fn a_secret_of_a_known_type_holds_what_that_needs() {
    let secret =
        |of: &str, data: Value| json!({"metadata": {"name": "s"}, "type": format!("kubernetes.io/{of}"), "data": data});
    let both = refused("secrets", secret("tls", json!({})));
    assert_eq!(both, ["data[tls.crt]: Required value", "data[tls.key]: Required value"]);
    create("secrets", secret("tls", json!({"tls.crt": "", "tls.key": ""})));
    let broken = refused("secrets", secret("dockerconfigjson", json!({".dockerconfigjson": "ew=="})));
    assert!(
        broken[0].starts_with("data[.dockerconfigjson]: Invalid value: \"<secret contents redacted>\""),
        "{broken:?}"
    );
    create("secrets", secret("dockerconfigjson", json!({".dockerconfigjson": "e30="})));
    assert_eq!(refused("secrets", secret("dockercfg", json!({}))), ["data[.dockercfg]: Required value"]);
    assert_eq!(refused("secrets", secret("ssh-auth", json!({}))), ["data[ssh-privatekey]: Required value"]);
    assert_eq!(refused("secrets", secret("basic-auth", json!({}))).len(), 2);
    create("secrets", secret("basic-auth", json!({"username": ""})));
    assert_eq!(refused("secrets", secret("service-account-token", json!({}))).len(), 1);
    create("secrets", secret("whatever", json!({})));
}

#[test]
fn null_quantity_reads_as_zero_and_null_argument_as_empty() {
    let made = create(
        "pods",
        pod(|spec| {
            spec["containers"][0]["resources"] = json!({"requests": {"cpu": null}});
            spec["containers"][0]["args"] = json!(["a", null]);
        }),
    );
    assert_eq!(made["spec"]["containers"][0]["resources"]["requests"]["cpu"], "0");
    assert_eq!(made["spec"]["containers"][0]["args"], json!(["a", ""]));
}

/// [AD-10] A pod's negative grace becomes one second in silence; a template keeps what was written, with a warning, and
/// its pods get the second.
#[test]
fn a_negative_grace_reads_as_one_second() {
    let negative = |spec: &mut Value| spec["terminationGracePeriodSeconds"] = json!(-7);
    let (made, warnings) = try_create("pods", pod(negative)).unwrap();
    assert_eq!((&made["spec"]["terminationGracePeriodSeconds"], warnings.len()), (&json!(1), 0));
    for plural in ["deployments", "replicasets", "statefulsets", "daemonsets"] {
        let mut set = workload(json!({}));
        negative(&mut set["spec"]["template"]["spec"]);
        let (made, warnings) = try_create(plural, set).unwrap();
        let template = &made["spec"]["template"]["spec"];
        assert_eq!(template["terminationGracePeriodSeconds"], -7, "{plural}");
        let text = "must be >= 0; negative values are invalid and will be treated as 1";
        assert_eq!(warnings, [format!("spec.template.spec.terminationGracePeriodSeconds: {text}")]);
        let of_it = create("pods", json!({"metadata": {"name": "p"}, "spec": template}));
        assert_eq!(of_it["spec"]["terminationGracePeriodSeconds"], 1);
    }
}

#[test]
fn a_pod_that_could_never_run_is_refused() {
    type Change = fn(&mut Value);
    let cases: [(Change, &str); 16] = [
        (
            |spec| spec["securityContext"] = json!({"sysctls": [{"name": "foo-", "value": "a"}, {"name": "kernel.shmmax", "value": "1"}, {"name": "bar..", "value": "2"}]}),
            "spec.securityContext.sysctls[0].name: Invalid value: \"foo-\": must have at most 253 characters and match regex",
        ),
        (
            |spec| spec["ephemeralContainers"] = json!([{"name": "e", "image": "i:1"}]),
            "spec.ephemeralContainers: Forbidden: cannot be set on create",
        ),
        (
            |spec| spec["containers"][0]["resources"] = json!({"requests": {"foo": "1"}}),
            "spec.containers[0].resources.requests.foo: Invalid value: \"foo\": must be a standard resource type or fully qualified",
        ),
        (
            |spec| {
                spec["containers"][0]["env"] =
                    json!([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.foo"}}}])
            },
            "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: \"metadata.foo\": error converting fieldPath: field label not supported: metadata.foo",
        ),
        (
            |spec| {
                spec["containers"][0]["env"] =
                    json!([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels"}}}])
            },
            "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Unsupported value: \"metadata.labels\"",
        ),
        (
            |spec| spec["volumes"] = json!([{"name": "v", "downwardAPI": {"items": [{"path": "a", "fieldRef": {"fieldPath": "status.podIP"}}]}}]),
            "spec.volumes[0].downwardAPI.items[0].fieldRef.fieldPath: Unsupported value: \"status.podIP\"",
        ),
        (
            |spec| spec["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Nope"}]}]}}}),
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].operator: Invalid value: \"Nope\": not a valid selector operator",
        ),
        (
            |spec| spec["securityContext"] = json!({"runAsUser": -5}),
            "spec.securityContext.runAsUser: Invalid value: -5: must be between 0 and 2147483647, inclusive",
        ),
        (
            |spec| spec["containers"][0]["securityContext"] = json!({"runAsUser": -5}),
            "spec.containers[0].securityContext.runAsUser: Invalid value: -5: must be between 0 and 2147483647, inclusive",
        ),
        (
            |spec| spec["hostAliases"] = json!([{"ip": "nope", "hostnames": ["a"]}]),
            "spec.hostAliases[0].ip: Invalid value: \"nope\": must be a valid IP address",
        ),
        (
            |spec| {
                spec["topologySpreadConstraints"] =
                    json!([{"maxSkew": 0, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}])
            },
            "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
        ),
        (
            |spec| {
                let rule = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"});
                spec["topologySpreadConstraints"] = json!([rule, rule]);
            },
            "spec.topologySpreadConstraints[1].{topologyKey, whenUnsatisfiable}: Duplicate value: \"{zone, ScheduleAnyway}\"",
        ),
        (
            |spec| {
                spec["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": "zone", "minDomains": 2,
                    "whenUnsatisfiable": "ScheduleAnyway"}])
            },
            "spec.topologySpreadConstraints[0].minDomains: Invalid value: 2: can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway",
        ),
        (
            |spec| {
                spec["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": "zone", "nodeTaintsPolicy": "Mind",
                    "whenUnsatisfiable": "DoNotSchedule"}])
            },
            "spec.topologySpreadConstraints[0].nodeTaintsPolicy: Unsupported value: \"Mind\": supported values: \"Honor\", \"Ignore\"",
        ),
        (
            |spec| {
                spec["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": "zone", "matchLabelKeys": ["a"],
                    "whenUnsatisfiable": "DoNotSchedule"}])
            },
            "spec.topologySpreadConstraints[0].matchLabelKeys: Forbidden: must not be specified when labelSelector is not set",
        ),
        (|spec| spec["nodeSelector"] = json!({"a b": "c"}), "spec.nodeSelector: Invalid value: \"a b\": "),
    ];
    for (change, expected) in cases {
        let found = refused("pods", pod(change));
        assert!(found[0].starts_with(expected), "{found:?}\nis not {expected}");
    }
    let sysctls = refused("pods", pod(cases[0].0));
    assert!(sysctls.len() == 2 && sysctls[1].contains("\"bar..\""), "{sysctls:?}");
    // What is right is taken.
    create(
        "pods",
        pod(|spec| {
            spec["securityContext"] =
                json!({"runAsUser": 0, "fsGroup": 1, "sysctls": [{"name": "net/ipv4.ip_forward", "value": "1"}]});
            spec["containers"][0]["resources"] =
                json!({"requests": {"cpu": "1", "example.com/gpu": "1", "hugepages-2Mi": "2Mi"}});
            spec["containers"][0]["env"] =
                json!([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}}]);
            spec["hostAliases"] = json!([{"ip": "::1", "hostnames": ["a.b"]}]);
        }),
    );
}

#[test]
fn a_gated_pod_may_only_become_choosier() {
    let gated = create(
        "pods",
        pod(|spec| {
            spec["schedulingGates"] = json!([{"name": "example.com/wait"}]);
            spec["nodeSelector"] = json!({"disk": "ssd"});
        }),
    );
    let change = |old: &Value, change: &dyn Fn(&mut Value)| {
        let mut new = old.clone();
        change(&mut new["spec"]);
        prepare_update(kind("pods"), None, old, &mut new)
    };
    change(&gated, &|spec| spec["nodeSelector"] = json!({"disk": "ssd", "zone": "a"})).unwrap();
    let terms = |expressions: Value| {
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": expressions}]}}})
    };
    let one = json!({"key": "zone", "operator": "Exists"});
    let two = json!({"key": "rack", "operator": "Exists"});
    change(&gated, &|spec| spec["affinity"] = terms(json!([one]))).unwrap();
    let error = change(&gated, &|spec| spec["nodeSelector"] = json!({"zone": "a"})).unwrap_err();
    assert!(lines(&error)[0].ends_with("only additions to spec.nodeSelector are allowed (no mutations or deletions)"));
    let mut bound = gated.clone();
    bound["spec"]["affinity"] = terms(json!([one]));
    change(&bound, &|spec| spec["affinity"] = terms(json!([one, two]))).unwrap();
    assert_eq!(lines(&change(&bound, &|spec| spec["affinity"] = terms(json!([two]))).unwrap_err()).len(), 1);
    // Once the gate is open, the choice is made.
    let mut open = gated.clone();
    open["spec"].as_object_mut().unwrap().remove("schedulingGates");
    assert!(change(&open, &|spec| spec["nodeSelector"] = json!({"disk": "ssd", "zone": "a"})).is_err());
}

#[test]
fn owners_are_named_once_and_are_no_events() {
    let owner = |kind: &str| json!({"apiVersion": "v1", "kind": kind, "name": "o", "uid": "u9"});
    let mut twice = pod(|_| {});
    twice["metadata"]["ownerReferences"] = json!([owner("ConfigMap"), owner("ConfigMap")]);
    let (made, warnings) = try_create("pods", twice).unwrap();
    assert_eq!(made["metadata"]["ownerReferences"], json!([owner("ConfigMap")]));
    assert!(warnings[0].starts_with(".metadata.ownerReferences contains duplicate entries; "), "{warnings:?}");
    assert!(warnings[0].ends_with("duplicate UID(s) observed: u9"), "{warnings:?}");
    let mut event = pod(|_| {});
    event["metadata"]["ownerReferences"] = json!([owner("Event")]);
    assert!(refused("pods", event)[0].ends_with("/v1, Kind=Event is disallowed from being an owner"));
}

#[test]
fn workloads_ask_for_what_can_be_done() {
    let rolling = |value: Value| json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": value}});
    let found = refused("deployments", workload(rolling(json!({"maxUnavailable": "150%"}))));
    let field = "spec.strategy.rollingUpdate.maxUnavailable";
    assert_eq!(found, [format!("{field}: Invalid value: \"150%\": must not be greater than 100%")]);
    create("deployments", workload(rolling(json!({"maxSurge": "150%"}))));
    let daemons = |value: Value| json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": value}});
    let found = refused("daemonsets", workload(daemons(json!({"maxUnavailable": 1, "maxSurge": 1}))));
    assert!(found[0].ends_with("may not be set when maxUnavailable is non-zero"), "{found:?}");
    let found = refused("daemonsets", workload(daemons(json!({"maxUnavailable": 0, "maxSurge": 0}))));
    assert!(found[0].ends_with("cannot be 0 when maxSurge is 0"), "{found:?}");
    let job = |extra: Value| {
        let mut job = workload(extra);
        job["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
        job
    };
    assert!(refused("jobs", job(json!({})))[0].ends_with("`selector` not auto-generated"));
    create("jobs", job(json!({"manualSelector": true})));
    for (plural, word) in [("deployments", "deployment"), ("statefulsets", "statefulset"), ("daemonsets", "daemonset")]
    {
        let found = refused(plural, workload(json!({"selector": {}})));
        assert!(found[0].ends_with(&format!("empty selector is invalid for {word}")), "{found:?}");
    }
}

#[test]
fn a_volume_stays_where_it_is() {
    let volume = json!({"metadata": {"name": "v"}, "spec": {"capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/a"}}});
    let old = create("persistentvolumes", volume);
    let mut new = old.clone();
    new["spec"]["hostPath"]["path"] = json!("/b");
    let error = prepare_update(kind("persistentvolumes"), None, &old, &mut new).unwrap_err();
    assert!(lines(&error)[0].starts_with("spec.persistentvolumesource: Forbidden: "), "{error}");
    let mut grown = old.clone();
    grown["spec"]["capacity"]["storage"] = json!("2Gi");
    prepare_update(kind("persistentvolumes"), None, &old, &mut grown).unwrap();
}

#[test]
fn event_of_events_k8s_io_needs_every_field() {
    let events = crate::built_in("events.k8s.io", "v1", "events").unwrap();
    let check = |event: Value| check_sent(events, &event);
    let found = lines(&check(json!({"metadata": {"name": "e", "namespace": "default"}})).unwrap_err());
    for field in ["reportingController", "reportingInstance", "action", "reason", "eventTime"] {
        assert!(found.contains(&format!("{field}: Required value")), "{field}: {found:?}");
    }
    let whole = json!({"metadata": {"name": "e"}, "eventTime": "2026-01-01T00:00:00.000000Z", "reason": "R",
        "action": "A", "type": "Normal", "reportingController": "example.com/c", "reportingInstance": "c-1"});
    check(whole.clone()).unwrap();
    for (key, value) in [("deprecatedCount", json!(1)), ("type", json!("Loud")), ("series", json!({"count": 1}))] {
        let mut odd = whole.clone();
        odd[key] = value;
        assert!(check(odd).is_err(), "{key}");
    }
}

#[test]
fn a_patch_cannot_mean_another_object() {
    let old = create("pods", pod(|_| {}));
    let mut other = old.clone();
    other["metadata"]["uid"] = json!("another");
    let error = check_patched_uid(kind("pods"), &old, &other).unwrap_err();
    assert_eq!(lines(&error), ["metadata.uid: Invalid value: \"another\": field is immutable"]);
    // A PUT says which object it means.
    assert_eq!(prepare_update(kind("pods"), None, &old, &mut other).unwrap_err().code, 409);
}

#[test]
fn a_runtime_class_must_be_there_and_brings_its_cost() {
    let class = json!({"metadata": {"name": "sandboxed"}, "handler": "h", "overhead": {"podFixed": {"memory": "64Mi"}},
        "scheduling": {"nodeSelector": {"sandbox": "yes"}, "tolerations": [{"key": "s", "operator": "Exists"}]}});
    let named = || pod(|spec| spec["runtimeClassName"] = json!("sandboxed"));
    let missing = take_runtime_class(&mut named(), None).unwrap_err();
    assert_eq!(missing, "pod rejected: RuntimeClass \"sandboxed\" not found");
    let mut made = named();
    take_runtime_class(&mut made, Some(&class)).unwrap();
    assert_eq!(made["spec"]["overhead"], json!({"memory": "64Mi"}));
    assert_eq!(made["spec"]["nodeSelector"], json!({"sandbox": "yes"}));
    assert_eq!(made["spec"]["tolerations"], json!([{"key": "s", "operator": "Exists"}]));
    let mut other = named();
    other["spec"]["overhead"] = json!({"memory": "1Mi"});
    assert!(take_runtime_class(&mut other, Some(&class)).is_err());
    let mut contrary = named();
    contrary["spec"]["nodeSelector"] = json!({"sandbox": "no"});
    assert!(take_runtime_class(&mut contrary, Some(&class)).unwrap_err().starts_with("conflict: runtimeClass"));
    let mut plain = pod(|_| {});
    take_runtime_class(&mut plain, None).unwrap();
    assert_eq!(plain, pod(|_| {}));
}
