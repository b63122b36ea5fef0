//! What each level takes and refuses, in upstream's words.
#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;

fn at(word: &str) -> LevelAt {
    let (level, version) = word.split_once(':').unwrap();
    LevelAt { level: level_of(level).unwrap(), minor: minor_of(version).unwrap() }
}

fn told(spec: Value, level: &str) -> String {
    violations(&json!({ "metadata": { "name": "p" }, "spec": spec }), at(level)).to_string()
}

/// One container called `app`, with this security context.
fn one(context: Value) -> Value {
    json!({ "containers": [{ "name": "app", "image": "a", "securityContext": context }] })
}

/// The smallest pod that `restricted` takes.
fn hardened() -> Value {
    json!({ "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
        "containers": [{ "name": "app", "image": "a",
            "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } } }] })
}

#[test]
fn a_plain_pod_is_good_enough_for_the_baseline_and_not_for_restricted() {
    let plain = json!({ "containers": [{ "name": "app", "image": "a" }] });
    assert_eq!(told(plain.clone(), "baseline:latest"), "");
    assert_eq!(
        told(plain.clone(), "restricted:latest"),
        "allowPrivilegeEscalation != false (container \"app\" must set securityContext.allowPrivilegeEscalation=false), \
         unrestricted capabilities (container \"app\" must set securityContext.capabilities.drop=[\"ALL\"]), \
         runAsNonRoot != true (pod or container \"app\" must set securityContext.runAsNonRoot=true), \
         seccompProfile (pod or container \"app\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \
         \"Localhost\")"
    );
    assert_eq!(told(plain, "privileged:latest"), "");
    assert_eq!(told(hardened(), "restricted:latest"), "");
}

#[test]
fn every_row_of_the_baseline_complains_in_its_own_words() {
    let with = |key: &str, value: Value| {
        let mut spec = one(json!({}));
        spec[key] = value;
        spec
    };
    let ported = json!({ "containers": [
        { "name": "a", "ports": [{ "containerPort": 1, "hostPort": 80 }] },
        { "name": "b", "ports": [{ "containerPort": 1, "hostPort": 443 }] }] });
    let probed = json!({ "containers": [{ "name": "a", "livenessProbe": { "httpGet": { "host": "10.0.0.1" } } }] });
    for (spec, expected) in [
        (
            one(json!({ "appArmorProfile": { "type": "Unconfined" } })),
            "forbidden AppArmor profile (container \"app\" must not set AppArmor profile type to \"Unconfined\")",
        ),
        (
            one(json!({ "capabilities": { "add": ["NET_ADMIN", "KILL", "SYS_TIME"] } })),
            "non-default capabilities (container \"app\" must not include \"NET_ADMIN\", \"SYS_TIME\" in \
          securityContext.capabilities.add)",
        ),
        (with("hostPID", json!(true)), "host namespaces (hostPID=true)"),
        (with("volumes", json!([{ "name": "v", "hostPath": { "path": "/" } }])), "hostPath volumes (volume \"v\")"),
        (ported, "hostPort (containers \"a\", \"b\" use hostPorts 443, 80)"),
        (probed, "probe or lifecycle host (container \"a\" uses probe or lifecycle host \"10.0.0.1\")"),
        (
            one(json!({ "privileged": true })),
            "privileged (container \"app\" must not set securityContext.privileged=true)",
        ),
        (
            one(json!({ "procMount": "Unmasked" })),
            "procMount (container \"app\" must not set securityContext.procMount to \"Unmasked\")",
        ),
        (
            with("securityContext", json!({ "seLinuxOptions": { "type": "spc_t", "user": "u" } })),
            "seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type \"spc_t\"; user may not be set)",
        ),
        (
            one(json!({ "seccompProfile": { "type": "Unconfined" } })),
            "seccompProfile (container \"app\" must not set securityContext.seccompProfile.type to \"Unconfined\")",
        ),
        (
            with(
                "securityContext",
                json!({ "sysctls": [{ "name": "kernel.msgmax" }, { "name": "net.ipv4.tcp_rmem" }] }),
            ),
            "forbidden sysctls (kernel.msgmax)",
        ),
        (
            with("securityContext", json!({ "windowsOptions": { "hostProcess": true } })),
            "hostProcess (pod must not set securityContext.windowsOptions.hostProcess=true)",
        ),
    ] {
        assert_eq!(told(spec, "baseline:latest"), expected);
    }
}

#[test]
fn restricted_says_more_than_the_baseline_and_nothing_twice() {
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut spec = hardened();
        change(&mut spec);
        told(spec, "restricted:latest")
    };
    let expected = [
        (
            changed(&|spec| spec["volumes"] = json!([{ "name": "v", "hostPath": {} }, { "name": "w", "nfs": {} }])),
            "restricted volume types (volumes \"v\", \"w\" use restricted volume types \"hostPath\", \"nfs\")",
        ),
        (
            changed(&|spec| spec["containers"][0]["securityContext"]["capabilities"]["add"] = json!(["CHOWN"])),
            "unrestricted capabilities (container \"app\" must not include \"CHOWN\" in securityContext.capabilities.add)",
        ),
        (
            changed(&|spec| spec["securityContext"]["runAsUser"] = json!(0)),
            "runAsUser=0 (pod must not set runAsUser=0)",
        ),
        (
            changed(&|spec| spec["containers"][0]["securityContext"]["runAsNonRoot"] = json!(false)),
            "runAsNonRoot != true (container \"app\" must not set securityContext.runAsNonRoot=false)",
        ),
        (
            changed(&|spec| spec["containers"][0]["securityContext"]["procMount"] = json!("Unmasked")),
            "procMount (container \"app\" must not set securityContext.procMount to \"Unmasked\")",
        ),
        (
            changed(&|spec| {
                spec["ephemeralContainers"] = json!([{ "name": "d", "securityContext": {
            "allowPrivilegeEscalation": false } }])
            }),
            "unrestricted capabilities (container \"d\" must set securityContext.capabilities.drop=[\"ALL\"])",
        ),
    ];
    for (told, expected) in expected {
        assert_eq!(told, expected);
    }
}

#[test]
fn pod_security_of_an_older_version_checks_what_it_checked_then() {
    let with = |name: &str| json!({ "securityContext": { "sysctls": [{ "name": name }] } });
    assert_eq!(told(with("net.ipv4.tcp_rmem"), "baseline:v1.31"), "forbidden sysctls (net.ipv4.tcp_rmem)");
    assert_eq!(told(with("net.ipv4.tcp_rmem"), "baseline:v1.99"), "");
    let own_users = json!({ "hostUsers": false, "containers": [{ "name": "a", "securityContext": {
        "procMount": "Unmasked" } }] });
    assert_eq!(told(own_users.clone(), "baseline:latest"), "");
    assert!(told(own_users, "baseline:v1.34").starts_with("procMount"));
    let annotated = json!({ "metadata": { "annotations": { "seccomp.security.alpha.kubernetes.io/pod": "unconfined" } },
        "spec": one(json!({})) });
    let old = violations(&annotated, at("baseline:v1.18")).to_string();
    let annotation = "seccomp.security.alpha.kubernetes.io/pod=\"unconfined\"";
    assert_eq!(old, format!("seccompProfile (forbidden annotation {annotation})"));
    assert!(violations(&annotated, at("baseline:v1.19")).is_empty());
}

#[test]
fn labels_say_what_a_namespace_wants() {
    let policy = |labels: Value| {
        let policy = Policy::of(&json!({ "metadata": { "labels": labels } }));
        [policy.enforce, policy.audit, policy.warn].map(|at| at.to_string()).join(" ")
    };
    let free = "privileged:latest privileged:latest privileged:latest";
    assert_eq!(policy(json!({})), free);
    let label = |mode: &str| format!("{PREFIX}{mode}");
    // Whoever is going to be refused is warned, also where only workloads can be.
    let enforced = json!({ label("enforce"): "baseline", label("enforce-version"): "v1.30" });
    assert_eq!(policy(enforced), "baseline:v1.30 privileged:latest baseline:v1.30");
    let mixed = json!({ label("enforce"): "restricted", label("warn"): "baseline", label("audit"): "restricted" });
    assert_eq!(policy(mixed), "restricted:latest restricted:latest baseline:latest");

    let mut causes = Vec::new();
    let bad = json!({ "metadata": { "labels": { label("enforce"): "strict", label("warn-version"): "v1.09" } } });
    validate_labels(&bad, &mut causes);
    let causes: Vec<String> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
    assert_eq!(
        causes,
        [
            "metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"strict\": must be one of privileged, \
         baseline, restricted",
            "metadata.labels[pod-security.kubernetes.io/warn-version]: Invalid value: \"v1.09\": must be \"latest\" or \
         \"v1.x\"",
        ]
    );
}

#[test]
fn pods_that_are_there_already_are_told_of_in_groups() {
    let bad = violations(&json!({ "spec": one(json!({ "privileged": true })) }), at("baseline:latest"));
    let worse = violations(&json!({ "spec": { "hostIPC": true } }), at("baseline:latest"));
    let unfit = [("c", bad.clone()), ("b", bad.clone()), ("d", bad), ("a", worse)];
    assert_eq!(
        existing("prod", at("baseline:latest"), unfit),
        [
            "existing pods in namespace \"prod\" violate the new PodSecurity enforce level \"baseline:latest\"",
            "a: host namespaces",
            "b (and 2 other pods): privileged",
        ]
    );
    assert!(existing("prod", at("baseline:latest"), []).is_empty());
}
