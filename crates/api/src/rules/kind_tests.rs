//! What each kind besides pods is filled in with, and refuses.
#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;
use crate::decode::{FieldValidation, decode_object};
use crate::{Registry, time};

fn kind(word: &str) -> &'static Kind {
    Registry::built_in().kinds().iter().find(|kind| kind.plural == word && kind.face.is_none()).unwrap()
}

fn try_create(plural: &str, object: Value) -> Result<Value, Status> {
    let kind = kind(plural);
    let mut object = decode_object(kind, None, object.to_string().as_bytes(), FieldValidation::Strict)?.value;
    let now = time::parse("2026-11-15T17:58:21Z").unwrap();
    prepare_create(kind, &mut object, "n", now, "u1".to_owned(), || "x7k2m".to_owned())?;
    meta::set_resource_version(&mut object, "7");
    // What is stored reads back as itself, and an update with it changes nothing.
    let again = decode_object(kind, None, object.to_string().as_bytes(), FieldValidation::Strict)?.value;
    assert_eq!(again, object);
    let mut updated = object.clone();
    prepare_update(kind, None, &object, &mut updated)?;
    assert_eq!(updated, object);
    Ok(object)
}

fn create(plural: &str, object: Value) -> Value {
    try_create(plural, object).unwrap()
}

/// `field: message` of everything that was refused.
fn refused(plural: &str, object: Value) -> Vec<String> {
    lines(&try_create(plural, object).unwrap_err())
}

fn lines(error: &Status) -> Vec<String> {
    assert_eq!(error.code, 422, "{error}");
    error.details.as_ref().unwrap().causes.iter().map(|c| format!("{}: {}", c.field, c.message)).collect()
}

fn change(plural: &str, old: &Value, change: impl FnOnce(&mut Value)) -> Result<Value, Status> {
    let mut new = old.clone();
    change(&mut new);
    prepare_update(kind(plural), None, old, &mut new)?;
    Ok(new)
}

fn template(policy: &str) -> Value {
    json!({"metadata": {"labels": {"app": "w"}},
           "spec": {"restartPolicy": policy, "containers": [{"name": "c", "image": "i:1"}]}})
}

fn workload(extra: Value) -> Value {
    let mut object = json!({"metadata": {"name": "w"}, "spec": {
        "selector": {"matchLabels": {"app": "w"}}, "template": template("Always")}});
    object["spec"].as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    object
}

#[test]
fn a_deployment_is_filled_in_like_upstream_does() {
    let made = create("deployments", workload(json!({})));
    let mut spec = made["spec"].clone();
    let pod = spec["template"]["spec"].take();
    assert_eq!(
        spec,
        json!({"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
               "selector": {"matchLabels": {"app": "w"}},
               "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
               "template": {"metadata": {"labels": {"app": "w"}}, "spec": null}})
    );
    assert_eq!(pod["terminationGracePeriodSeconds"], 30);
    assert!(pod.get("enableServiceLinks").is_none() && pod.get("tolerations").is_none());
    assert_eq!((made["status"].clone(), made["metadata"]["generation"].clone()), (json!({}), json!(1)));
}

#[test]
fn a_selector_must_take_its_own_template_and_stays() {
    let mut other = workload(json!({}));
    other["spec"]["selector"] = json!({"matchLabels": {"app": "x"}});
    for plural in ["deployments", "replicasets", "statefulsets", "daemonsets"] {
        let causes = refused(plural, other.clone());
        assert_eq!(causes.len(), 1, "{causes:?}");
        assert!(causes[0].contains("`selector` does not match template `labels`"), "{causes:?}");
    }
    let made = create("deployments", workload(json!({})));
    let error = change("deployments", &made, |new| new["spec"]["selector"] = json!({"matchLabels": {"a": "b"}}));
    assert!(lines(&error.unwrap_err()).iter().any(|line| line.ends_with("field is immutable")));
}

#[test]
fn a_template_is_judged_where_it_stands() {
    let mut bad = workload(json!({}));
    bad["spec"]["template"] = json!({"metadata": {"labels": {"app": "w"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c"}]}});
    assert_eq!(
        refused("deployments", bad),
        [
            "spec.template.spec.containers[0].image: Required value",
            "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\""
        ]
    );
    let both = json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}}});
    assert!(refused("deployments", workload(both))[0].contains("may not be 0 when `maxSurge` is 0"));
}

#[test]
fn a_generation_counts_what_is_asked_for() {
    let made = create("deployments", workload(json!({})));
    let scaled = change("deployments", &made, |new| new["spec"]["replicas"] = json!(2)).unwrap();
    assert_eq!(scaled["metadata"]["generation"], 2);
    let labelled = change("deployments", &made, |new| new["metadata"]["labels"] = json!({"a": "b"})).unwrap();
    assert_eq!(labelled["metadata"]["generation"], 1);
    let told = change("deployments", &made, |new| new["metadata"]["annotations"] = json!({"a": "b"})).unwrap();
    assert_eq!(told["metadata"]["generation"], 2);
}

/// The controller writes the revision of a Deployment with its status.
#[test]
fn deployment_status_takes_annotations_and_asks_for_nothing_by_them() {
    let old = create("deployments", workload(json!({})));
    let mut new = old.clone();
    new["metadata"]["annotations"] = json!({"deployment.kubernetes.io/revision": "1"});
    new["metadata"]["labels"] = json!({"not": "here"});
    new["spec"]["replicas"] = json!(7);
    new["status"] = json!({"collisionCount": 2});
    prepare_update(kind("deployments"), Some("status"), &old, &mut new).unwrap();
    assert_eq!(new["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "1");
    assert_eq!((&new["metadata"]["generation"], &new["spec"]["replicas"]), (&json!(1), &json!(1)));
    assert!(new["metadata"]["labels"].is_null());
    let mut fewer = new.clone();
    fewer["status"]["collisionCount"] = json!(1);
    let error = prepare_update(kind("deployments"), Some("status"), &new, &mut fewer).unwrap_err();
    assert_eq!(lines(&error), ["status.collisionCount: Invalid value: 1: cannot be decremented"]);
}

#[test]
fn stateful_sets_and_daemon_sets_have_their_own_defaults_and_limits() {
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    let made = create("statefulsets", workload(json!({"serviceName": "w", "volumeClaimTemplates": [claim]})));
    assert_eq!(made["spec"]["updateStrategy"], json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}));
    assert_eq!(made["spec"]["volumeClaimTemplates"][0]["spec"]["volumeMode"], "Filesystem");
    assert_eq!(made["status"], json!({"replicas": 0, "availableReplicas": 0}));
    let error = change("statefulsets", &made, |new| new["spec"]["serviceName"] = json!("x")).unwrap_err();
    assert!(lines(&error)[0].starts_with("spec: Forbidden: updates to statefulset spec for fields other than"));
    let made = create("daemonsets", workload(json!({})));
    let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}});
    assert_eq!(made["spec"]["updateStrategy"], rolling);
}

#[test]
fn a_job_owns_its_pods_by_uid() {
    let made = create("jobs", json!({"metadata": {"name": "j"}, "spec": {"template": template("Never")}}));
    let spec = &made["spec"];
    assert_eq!(spec["selector"], json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u1"}}));
    assert_eq!(spec["template"]["metadata"]["labels"]["job-name"], "j");
    assert_eq!((&spec["completions"], &spec["parallelism"], &spec["backoffLimit"]), (&json!(1), &json!(1), &json!(6)));
    let always = refused("jobs", json!({"metadata": {"name": "j"}, "spec": {"template": template("Always")}}));
    assert_eq!(always, ["spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\""]);
    let error = change("jobs", &made, |new| new["spec"]["template"]["metadata"]["labels"]["x"] = json!("y"));
    assert!(lines(&error.unwrap_err())[0].starts_with("spec.template: Invalid value"));
}

#[test]
fn job_with_policies_that_contradict_each_other_is_refused() {
    let job = |spec: Value| {
        let mut job = json!({"metadata": {"name": "j"}, "spec": spec});
        job["spec"]["template"] = template("Never");
        job
    };
    let made = create("jobs", job(json!({"completionMode": "Indexed", "completions": 3, "backoffLimitPerIndex": 1})));
    assert_eq!(
        (&made["spec"]["backoffLimit"], &made["spec"]["podReplacementPolicy"]),
        (&json!(i32::MAX), &json!("TerminatingOrFailed"))
    );
    let failing = json!([{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]);
    let made = create("jobs", job(json!({"podFailurePolicy": {"rules": failing}})));
    assert_eq!(made["spec"]["podReplacementPolicy"], "Failed");
    let never = json!([{"action": "Ignore"}]);
    for (spec, complaint) in [
        (
            json!({"backoffLimitPerIndex": 1}),
            "spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode",
        ),
        (
            json!({"completionMode": "Indexed", "completions": 1, "maxFailedIndexes": 1}),
            "spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified",
        ),
        (
            json!({"completionMode": "Indexed", "completions": 200_000, "parallelism": 100_001}),
            "spec.parallelism: Invalid value: 100001: must be less than or equal to 100000 when completion mode is Indexed",
        ),
        (
            json!({"podFailurePolicy": {"rules": []}, "podReplacementPolicy": "TerminatingOrFailed"}),
            "spec.podReplacementPolicy: Unsupported value: \"TerminatingOrFailed\": supported values: \"Failed\"",
        ),
        (
            json!({"managedBy": "me"}),
            "spec.managedBy: Invalid value: \"me\": must be a domain-prefixed path (such as \"acme.io/foo\") of at most 63 characters",
        ),
    ] {
        assert_eq!(refused("jobs", job(spec.clone())), [complaint], "{spec}");
    }
    assert!(refused("jobs", job(json!({"podFailurePolicy": {"rules": never}})))[0].contains("exactly one of"));
    let mut indexed = job(json!({"completionMode": "Indexed", "completions": 10}));
    indexed["metadata"]["name"] = json!("j".repeat(62));
    assert!(refused("jobs", indexed)[0].starts_with("metadata.name: Invalid value"));
    let error = change("jobs", &made, |new| new["spec"]["managedBy"] = json!("example.com/x"));
    assert!(lines(&error.unwrap_err())[0].starts_with("spec.managedBy: Invalid value"));
}

#[test]
fn time_zone_of_a_cron_job_must_be_one_that_everybody_knows() {
    let cron = |zone: &str| {
        json!({"metadata": {"name": "c"}, "spec": {"schedule": "@daily", "timeZone": zone,
               "jobTemplate": {"spec": {"template": template("OnFailure")}}}})
    };
    create("cronjobs", cron("Europe/Berlin"));
    for bad in ["", "Local", "Mars/Olympus"] {
        assert!(refused("cronjobs", cron(bad))[0].starts_with("spec.timeZone: Invalid value"), "{bad}");
    }
}

#[test]
fn a_schedule_is_checked_when_it_is_written() {
    let cron = |schedule: &str| {
        json!({"metadata": {"name": "c"}, "spec": {"schedule": schedule,
               "jobTemplate": {"spec": {"template": template("OnFailure")}}}})
    };
    for good in ["*/5 * * * *", "0 2 * * MON-FRI", "@hourly", "1,2 0-4/2 1 jan ?"] {
        create("cronjobs", cron(good));
    }
    for bad in ["* * * *", "60 * * * *", "* * * * * *", "@sometimes", "*/0 * * * *", "x * * * *", "TZ=UTC * * * * *"] {
        assert!(refused("cronjobs", cron(bad))[0].starts_with("spec.schedule: Invalid value"), "{bad}");
    }
    let made = create("cronjobs", cron("@daily"));
    assert_eq!(made["spec"]["concurrencyPolicy"], "Allow");
    assert_eq!(made["spec"]["successfulJobsHistoryLimit"], 3);
}

#[test]
fn a_service_is_filled_in_and_judged() {
    let made = create("services", json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}));
    assert_eq!(
        made["spec"],
        json!({"type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
               "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]})
    );
    assert_eq!(made["status"], json!({"loadBalancer": {}}));
    // Go's clients write what nobody said.
    for nothing in [json!(0), json!("")] {
        let ports = json!([{"port": 80, "targetPort": nothing}]);
        let made = create("services", json!({"metadata": {"name": "s"}, "spec": {"ports": ports}}));
        assert_eq!(made["spec"]["ports"][0]["targetPort"], 80, "{nothing}");
    }
    let s = |spec: Value| json!({"metadata": {"name": "s"}, "spec": spec});
    assert_eq!(refused("services", s(json!({}))), ["spec.ports: Required value"]);
    create("services", s(json!({"clusterIP": "None"})));
    create("services", s(json!({"type": "ExternalName", "externalName": "example.com"})));
    let two = refused("services", s(json!({"ports": [{"port": 80}, {"port": 81, "nodePort": 30000}]})));
    assert_eq!(
        two,
        [
            "spec.ports[0].name: Required value",
            "spec.ports[1].name: Required value",
            "spec.ports[1].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"
        ]
    );
}

#[test]
fn access_and_policy_kinds_refuse_what_means_nothing() {
    let role = |rules: Value| json!({"metadata": {"name": "system:r"}, "rules": rules});
    create("clusterroles", role(json!([{"verbs": ["get"], "nonResourceURLs": ["/metrics"]}])));
    assert_eq!(refused("roles", role(json!([{"verbs": ["get"], "nonResourceURLs": ["/metrics"]}]))).len(), 1);
    assert_eq!(refused("clusterroles", role(json!([{"verbs": []}]))).len(), 3);
    let made = create(
        "rolebindings",
        json!({"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": "bob"}, {"kind": "ServiceAccount", "name": "a", "namespace": "n"}]}),
    );
    assert_eq!(made["roleRef"]["apiGroup"], "rbac.authorization.k8s.io");
    assert_eq!(made["subjects"][0]["apiGroup"], "rbac.authorization.k8s.io");
    let error = change("rolebindings", &made, |new| new["roleRef"]["name"] = json!("admin")).unwrap_err();
    assert!(lines(&error)[0].contains("cannot change roleRef"));
    let pdb = |spec: Value| json!({"metadata": {"name": "p"}, "spec": spec});
    assert_eq!(refused("poddisruptionbudgets", pdb(json!({"minAvailable": 1, "maxUnavailable": "10%"}))).len(), 1);
    assert_eq!(create("poddisruptionbudgets", pdb(json!({"minAvailable": 1})))["status"]["disruptionsAllowed"], 0);
    let class = |name: &str, value: i64| json!({"metadata": {"name": name}, "value": value});
    create("priorityclasses", class("gold", 1_000_000_000));
    create("priorityclasses", class("system-node-critical", 2_000_001_000));
    assert_eq!(refused("priorityclasses", class("system-mine", 5)).len(), 1);
    assert_eq!(refused("priorityclasses", class("gold", 1_000_000_001)).len(), 1);
}

#[test]
fn event_is_served_under_two_groups_with_one_stored_form() {
    let new = kind_in("events.k8s.io", "events");
    let sent = json!({"metadata": {"name": "e", "namespace": "n"}, "note": "hello", "reason": "R", "type": "Normal",
        "action": "A", "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "c",
        "reportingInstance": "i", "regarding": {"kind": "Pod", "name": "p", "namespace": "n"}});
    let decoded = decode_object(new, None, sent.to_string().as_bytes(), FieldValidation::Strict).unwrap().value;
    let stored = new.to_stored(decoded.clone());
    assert_eq!((&stored["message"], &stored["involvedObject"]["name"]), (&json!("hello"), &json!("p")));
    assert_eq!(stored["reportingComponent"], "c");
    assert_eq!(new.to_shown(&stored).unwrap(), decoded);
    assert_eq!(new.stored_kind().group, "");
}

#[test]
fn an_old_autoscaler_is_a_new_one_with_one_metric() {
    let old = kind_in("autoscaling", "horizontalpodautoscalers");
    let sent = json!({"metadata": {"name": "h"}, "spec": {"maxReplicas": 5, "targetCPUUtilizationPercentage": 60,
        "scaleTargetRef": {"kind": "Deployment", "name": "d"}}});
    let decoded = decode_object(old, None, sent.to_string().as_bytes(), FieldValidation::Strict).unwrap().value;
    let stored = old.to_stored(decoded);
    assert_eq!(stored["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 60);
    assert_eq!(old.to_shown(&stored).unwrap()["spec"]["targetCPUUtilizationPercentage"], 60);
}

/// [WL-145] in part: what may be asked for.
#[test]
fn autoscaler_behavior_is_filled_in_and_bounded() {
    let scaler = |behavior: Value| {
        json!({"metadata": {"name": "h"}, "spec": {"maxReplicas": 5, "behavior": behavior,
            "scaleTargetRef": {"kind": "Deployment", "name": "d"}}})
    };
    let made = create("horizontalpodautoscalers", scaler(json!({"scaleDown": {"stabilizationWindowSeconds": 3600}})));
    let policy = |kind: &str, value: i64| json!({"type": kind, "value": value, "periodSeconds": 15});
    assert_eq!(
        made["spec"]["behavior"],
        json!({
            "scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": "Max",
                "policies": [policy("Pods", 4), policy("Percent", 100)]},
            "scaleDown": {"stabilizationWindowSeconds": 3600, "selectPolicy": "Max", "policies": [policy("Percent", 100)]},
        })
    );
    let with = |policy: Value| json!({"scaleUp": {"policies": [policy]}});
    for (behavior, cause) in [
        (
            json!({"scaleUp": {"stabilizationWindowSeconds": 3601}}),
            "spec.behavior.scaleUp.stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to 3600",
        ),
        (
            json!({"scaleDown": {"stabilizationWindowSeconds": -1}}),
            "spec.behavior.scaleDown.stabilizationWindowSeconds: Invalid value: -1: must be greater than or equal to zero",
        ),
        (
            json!({"scaleUp": {"selectPolicy": "Most"}}),
            "spec.behavior.scaleUp.selectPolicy: Unsupported value: \"Most\": supported values: \"Disabled\", \"Max\", \"Min\"",
        ),
        (
            with(policy("Share", 1)),
            "spec.behavior.scaleUp.policies[0].type: Unsupported value: \"Share\": supported values: \"Percent\", \"Pods\"",
        ),
        (
            with(policy("Pods", 0)),
            "spec.behavior.scaleUp.policies[0].value: Invalid value: 0: must be greater than zero",
        ),
        (
            with(json!({"type": "Pods", "value": 1, "periodSeconds": 1801})),
            "spec.behavior.scaleUp.policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to 1800",
        ),
        (
            json!({"scaleUp": {"tolerance": "-1m"}}),
            "spec.behavior.scaleUp.tolerance: Invalid value: \"-1m\": must be greater than or equal to 0",
        ),
    ] {
        assert_eq!(refused("horizontalpodautoscalers", scaler(behavior)), [cause]);
    }
}

fn kind_in(group: &str, plural: &str) -> &'static std::sync::Arc<Kind> {
    crate::built_in(group, "v1", plural).unwrap()
}

#[test]
fn volumes_claims_and_limits_are_data_with_a_shape() {
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    let made = create("persistentvolumeclaims", claim);
    assert_eq!((&made["status"]["phase"], &made["spec"]["volumeMode"]), (&json!("Pending"), &json!("Filesystem")));
    change("persistentvolumeclaims", &made, |new| new["spec"]["volumeName"] = json!("v")).unwrap();
    assert!(
        change("persistentvolumeclaims", &made, |new| new["spec"]["accessModes"] = json!(["ReadOnlyMany"])).is_err()
    );
    let resized = |claim: &Value, size: &str| {
        let size = json!(size);
        change("persistentvolumeclaims", claim, |new| new["spec"]["resources"]["requests"]["storage"] = size.clone())
    };
    // Nobody knows what an unbound claim is going to get, so it stays what it is.
    for size in ["500Mi", "2Gi"] {
        let refusal = resized(&made, size).unwrap_err().to_string();
        assert!(refusal.contains("spec: Forbidden: spec is immutable after creation except"), "{refusal}");
    }
    let mut bound = made;
    bound["status"] = json!({"phase": "Bound", "capacity": {"storage": "1Gi"}});
    let grown = resized(&bound, "3Gi").unwrap();
    resized(&grown, "2Gi").unwrap();
    let refusal = resized(&grown, "1Gi").unwrap_err().to_string();
    assert!(refusal.contains("spec.resources.requests.storage: Forbidden: field can not be less than"), "{refusal}");
    let volume = json!({"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/data"}}});
    let made = create("persistentvolumes", volume);
    assert_eq!(made["spec"]["persistentVolumeReclaimPolicy"], "Retain");
    assert_eq!(made["status"]["phase"], "Available");
    assert_eq!(
        create("storageclasses", json!({"metadata": {"name": "s"}, "provisioner": "x/y"}))["reclaimPolicy"],
        "Delete"
    );
    let limits = json!({"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}}]}});
    let made = create("limitranges", limits);
    assert_eq!(made["spec"]["limits"][0]["defaultRequest"], json!({"cpu": "2"}));
    create("resourcequotas", json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "10"}}}));
    create(
        "endpoints",
        json!({"metadata": {"name": "e"}, "subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]}),
    );
    let slice = json!({"metadata": {"name": "e"}, "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 80}]});
    assert_eq!(create("endpointslices", slice)["ports"][0], json!({"name": "", "port": 80, "protocol": "TCP"}));
    let scaler = json!({"metadata": {"name": "h"}, "spec": {"maxReplicas": 5, "scaleTargetRef": {"kind": "Deployment", "name": "d"}}});
    assert_eq!(create("horizontalpodautoscalers", scaler)["spec"]["metrics"][0]["resource"]["name"], "cpu");
}

/// Kinds that are served as data: filled in, checked, and said to be no more.
#[test]
fn served_kinds_are_filled_in_and_checked() {
    let driver = create("csidrivers", json!({"metadata": {"name": "d.example.com"}, "spec": {}}));
    assert_eq!(
        driver["spec"],
        json!({"attachRequired": true, "fsGroupPolicy": "ReadWriteOnceWithFSType",
        "podInfoOnMount": false, "requiresRepublish": false, "seLinuxMount": false, "storageCapacity": false,
        "volumeLifecycleModes": ["Persistent"]})
    );
    let refused_change = change("csidrivers", &driver, |new| new["spec"]["attachRequired"] = json!(false)).unwrap_err();
    assert_eq!(lines(&refused_change)[0], "spec.attachRequired: Invalid value: false: field is immutable");
    assert!(
        !refused("csinodes", json!({"metadata": {"name": "n"}, "spec": {"drivers": [{"name": "a", "nodeID": ""}]}}))
            .is_empty()
    );
    create("csinodes", json!({"metadata": {"name": "n"}, "spec": {"drivers": [{"name": "a", "nodeID": "x"}]}}));
    create("csistoragecapacities", json!({"metadata": {"name": "c"}, "storageClassName": "s", "capacity": "1Gi"}));
    let attachment = |source: Value| {
        json!({"metadata": {"name": "a"},
        "spec": {"attacher": "d", "nodeName": "n", "source": source}})
    };
    assert_eq!(
        create("volumeattachments", attachment(json!({"persistentVolumeName": "v"})))["status"],
        json!({"attached": false})
    );
    assert!(refused("volumeattachments", attachment(json!({})))[0].starts_with("spec.source: Required value"));
    create("volumeattributesclasses", json!({"metadata": {"name": "v"}, "driverName": "d", "parameters": {"a": "b"}}));
    assert!(
        refused("volumeattributesclasses", json!({"metadata": {"name": "v"}, "driverName": "d"}))[0]
            .starts_with("parameters")
    );
    create("servicecidrs", json!({"metadata": {"name": "s"}, "spec": {"cidrs": ["10.0.0.0/16", "fd00::/64"]}}));
    assert!(
        !refused("servicecidrs", json!({"metadata": {"name": "s"}, "spec": {"cidrs": ["10.0.0.0/99"]}})).is_empty()
    );
    let parent = json!({"parentRef": {"resource": "services", "namespace": "d", "name": "k"}});
    create("ipaddresses", json!({"metadata": {"name": "fd00::1"}, "spec": parent.clone()}));
    assert!(
        refused("ipaddresses", json!({"metadata": {"name": "010.0.0.1"}, "spec": parent}))[0]
            .contains("canonical form")
    );
    let flow = create(
        "flowschemas",
        json!({"metadata": {"name": "f"}, "spec": {"priorityLevelConfiguration": {"name": "p"}}}),
    );
    assert_eq!(flow["spec"]["matchingPrecedence"], 1000);
    let level = create(
        "prioritylevelconfigurations",
        json!({"metadata": {"name": "p"}, "spec": {"type": "Limited",
        "limited": {"limitResponse": {"type": "Queue"}}}}),
    );
    assert_eq!(
        level["spec"]["limited"]["limitResponse"]["queuing"],
        json!({"handSize": 8, "queueLengthLimit": 50, "queues": 64})
    );
    assert!(
        !refused("prioritylevelconfigurations", json!({"metadata": {"name": "p"}, "spec": {"type": "Limited"}}))
            .is_empty()
    );
    create("deviceclasses", json!({"metadata": {"name": "d"}, "spec": {}}));
    let spec = json!({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "d"}}]}});
    let claim = create("resourceclaims", json!({"metadata": {"name": "r"}, "spec": spec.clone()}));
    assert!(change("resourceclaims", &claim, |new| new["spec"]["devices"] = json!({})).is_err());
    create("resourceclaimtemplates", json!({"metadata": {"name": "r"}, "spec": {"spec": spec}}));
    let pool = json!({"name": "p", "generation": 1, "resourceSliceCount": 1});
    create(
        "resourceslices",
        json!({"metadata": {"name": "r"}, "spec": {"driver": "d", "pool": pool, "nodeName": "n"}}),
    );
}

/// Whoever writes what nothing acts on is told so; whoever writes anything else is not.
#[test]
fn objects_that_nothing_acts_on_are_stored_with_a_warning() {
    let warned = |plural: &str, object: Value| kind(plural).rules.warnings(&object);
    let text = |kind: &str| vec![format!("{kind} is stored, but nothing in this cluster acts on it")];
    assert_eq!(warned("ingresses", json!({})), text("Ingress"));
    assert_eq!(warned("networkpolicies", json!({})), Vec::<String>::new());
    assert_eq!(warned("csidrivers", json!({})), text("CSIDriver"));
    assert!(warned("storageclasses", json!({"provisioner": "ebs.csi.aws.com"}))[0].contains("ebs.csi.aws.com"));
    for own in ["adieu.dev/local-path", "kubernetes.io/no-provisioner"] {
        assert_eq!(warned("storageclasses", json!({"provisioner": own})), Vec::<String>::new());
    }
}
