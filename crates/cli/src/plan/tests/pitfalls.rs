//! What a plan warns of, and what it does not.

use super::*;

#[test]
fn each_pitfall_is_warned_of_and_nothing_else() {
    let none = json!({});
    let hook = |handler: Value| json!({ "lifecycle": { "preStop": handler } });
    let probe = json!({ "livenessProbe": { "tcpSocket": { "port": 80 } } });
    let killed = json!({ "lifecycle": { "stopSignal": "SIGKILL" } });
    let grace = |seconds: i64| json!({ "terminationGracePeriodSeconds": seconds });
    for (spec, container, expected) in [
        (none.clone(), none.clone(), vec![]),
        (grace(0), none.clone(), vec!["grace-zero"]),
        (grace(3600), none.clone(), vec!["grace-long"]),
        (grace(120), probe.clone(), vec!["liveness-without-grace"]),
        (none.clone(), probe, vec![]),
        (none.clone(), hook(json!({ "sleep": { "seconds": 15 } })), vec![]),
        (none.clone(), hook(json!({ "exec": { "command": ["sh", "-c", "sleep 15 &"] } })), vec![]),
        (none.clone(), json!({ "command": ["while true; do sleep 1; done"] }), vec!["command-without-shell"]),
        (none.clone(), json!({ "command": ["sh -c './server'"] }), vec!["command-without-shell"]),
        (none.clone(), hook(json!({ "exec": { "command": ["nginx", "-s", "quit"] } })), vec![]),
        (none.clone(), hook(json!({ "exec": { "command": ["nginx -s quit"] } })), vec!["hook-without-shell"]),
        (none.clone(), hook(json!({ "exec": { "command": ["a", "&&", "b"] } })), vec!["hook-without-shell"]),
        (none.clone(), hook(json!({ "exec": { "command": ["sh", "-c", "a && b"] } })), vec![]),
        (none.clone(), hook(json!({ "httpGet": { "port": "http" } })), vec!["hook-port-unknown"]),
        (none.clone(), hook(json!({ "httpGet": { "port": 8080 } })), vec![]),
        (
            none.clone(),
            hook(json!({ "exec": { "command": ["sh", "-c", "while :; do sleep 1; done"] } })),
            vec!["hook-longer-than-grace"],
        ),
        (
            none.clone(),
            hook(json!({ "exec": { "command": ["sh", "-c", "x; sleep 31"] } })),
            vec!["hook-longer-than-grace"],
        ),
        (none.clone(), hook(json!({ "tcpSocket": { "port": 80 } })), vec!["hook-tcp-socket"]),
        (none.clone(), json!({ "command": ["sh", "-c", "a; b"] }), vec!["shell-swallows-signal"]),
        (none.clone(), json!({ "command": ["bash", "-c", "a; server"] }), vec!["shell-may-swallow-signal"]),
        (none.clone(), json!({ "command": ["sh", "-c", "a; exec b"] }), vec![]),
        (none.clone(), json!({ "command": ["tail", "-f", "/dev/null"] }), vec!["no-handler"]),
        (json!({ "shareProcessNamespace": true }), json!({ "command": ["sleep", "9"] }), vec![]),
        (json!({ "os": { "name": "linux" } }), killed, vec!["stop-signal-kill"]),
    ] {
        assert_eq!(warnings(&report_of(&[], &pod(&spec, &container))), expected, "{spec} {container}");
    }
    assert_eq!(warnings(&report_of(&["--app", "ignores-term"], &pod(&none, &none))), ["killed"]);
    let shell_hook = |image: &str| {
        let mut container = hook(json!({ "exec": { "command": ["/bin/sh", "-c", "drain"] } }));
        container["image"] = json!(image);
        warnings(&report_of(&[], &pod(&json!({}), &container))).join(" ")
    };
    assert_eq!(shell_hook("gcr.io/distroless/java17"), "hook-needs-shell");
    assert_eq!(shell_hook("gcr.io/distroless/java17:debug"), "");
    assert_eq!(shell_hook("example.com/app"), "");
    let mut startup = pod(&grace(120), &none);
    startup = startup.replace("\"image\"", "\"startupProbe\":{\"tcpSocket\":{\"port\":1}},\"image\"");
    assert_eq!(warnings(&report_of(&[], &startup)), ["startup-without-grace"]);
    let quit = hook(json!({ "exec": { "command": ["nginx", "-s", "quit"] } }));
    let options = ["--hook", "takes=25s", "--app", "exits-after=6s"];
    assert_eq!(warnings(&report_of(&options, &pod(&none, &quit))), ["hook-leaves-too-little"]);
}

/// A hook is to blame only for what its program would have had time for without it.
#[test]
fn a_hook_that_leaves_what_is_needed_is_not_blamed() {
    let hook = json!({ "lifecycle": { "preStop": { "exec": { "command": ["drain"] } } } });
    let warned = |hook_takes: &str, app: &str, grace: u64| {
        let spec = json!({ "terminationGracePeriodSeconds": grace });
        warnings(&report_of(&["--hook", hook_takes, "--app", app], &pod(&spec, &hook))).join(" ")
    };
    assert_eq!(warned("takes=25s", "exits-after=5s", 30), "");
    assert_eq!(warned("takes=25s", "exits-after=5100ms", 30), "hook-leaves-too-little");
    // Two seconds are left to everybody.
    assert_eq!(warned("takes=29s", "exits-after=2s", 30), "");
    assert_eq!(warned("takes=1s", "ignores-term", 30), "killed");
    assert_eq!(warned("takes=1s", "exits-after=31s", 30), "killed");
    assert_eq!(warned("hangs", "exits-after=5s", 30), "hook-longer-than-grace");
    let report = report_of(&["--hook", "takes=1s", "--app", "exits-after=60s"], &pod(&json!({}), &hook));
    let remedy = report["pods"][0]["warnings"][0]["remedy"].as_str().unwrap();
    assert!(remedy.starts_with("set terminationGracePeriodSeconds above 61"), "{remedy}");
    let swallowed = json!({ "image": "debian", "command": ["sh", "-c", "server"], "lifecycle": hook["lifecycle"] });
    assert_eq!(warnings(&report_of(&[], &pod(&json!({}), &swallowed))), ["shell-swallows-signal"]);
}

#[test]
fn a_hook_that_its_image_cannot_run_fails() {
    let with = |image: &str, command: &[&str]| {
        pod(&json!({}), &json!({ "image": image, "lifecycle": { "preStop": { "exec": { "command": command } } } }))
    };
    for (image, command) in
        [("gcr.io/distroless/static", &["sh", "-c", "sleep 5"][..]), ("registry.k8s.io/pause:3.10", &["sleep", "5"])]
    {
        let manifest = with(image, command);
        let report = report_of(&[], &manifest);
        assert_eq!(warnings(&report), ["hook-needs-shell"]);
        let facts = report["pods"][0]["timeline"].as_array().unwrap();
        let finished = facts.iter().find(|fact| fact["what"] == "hookFinished").unwrap();
        assert_eq!((&finished["succeeded"], &finished["tookMillis"]), (&json!(false), &json!(0)));
        let because = report["pods"][0]["verdict"]["because"].as_str().unwrap();
        assert!(because.ends_with("; the preStop hook of app failed"), "{because}");
        assert!(text_of(&[], &manifest).contains("           preStop hook of app fails at once\n"));
        // Whoever knows better says so.
        let told = report_of(&["--hook", "takes=5s"], &manifest);
        assert_eq!(told["pods"][0]["containers"][0]["spans"][0]["toMillis"], 5_000);
    }
    assert_eq!(warnings(&report_of(&[], &with("gcr.io/distroless/static", &["/drain"]))), [""; 0]);
}

/// A hook that stops the program itself: no signal is sent to who is gone.
#[test]
fn a_hook_that_ends_its_program_needs_no_signal() {
    let container = json!({
        "image": "nginx", "lifecycle": { "preStop": { "exec": { "command": ["sh", "-c", "sleep 5; nginx -s quit; sleep 9"] } } },
    });
    let report = report_of(&["--app", "exits-after=3s"], &pod(&json!({}), &container));
    let planned = &report["pods"][0];
    assert_eq!(planned["verdict"]["word"], "clean");
    assert_eq!(planned["containers"][0]["end"]["atMillis"], 8_000);
    assert!(!planned["timeline"].to_string().contains("signalled"), "{planned}");
    assert_eq!(warnings(&report), [""; 0]);
    let text = text_of(&["--hook", "takes=1s"], &pod(&json!({}), &container));
    assert!(text.contains("-> SIGQUIT to app: please exit"), "{text}");
}

#[test]
fn a_job_whose_pod_fails_when_asked_to_leave_is_warned_of() {
    let job = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {template: {spec: {restartPolicy: Never, \
               containers: [{name: a, image: x}]}}}\n";
    assert_eq!(warnings(&report_of(&["--app", "exit-code=1"], job)), ["job-counts-failure"]);
    assert_eq!(warnings(&report_of(&["--app", "exit-code=0"], job)), ["job-counts-success"]);
    // Nobody said with which code.
    assert_eq!(warnings(&report_of(&["--app", "exits-after=3s"], job)), [""; 0]);
    assert_eq!(warnings(&report_of(&[], job)), [""; 0]);
    let text = joined(&text_of(&["--app", "exits-after=3s"], job));
    assert!(text.contains("job it ends by itself when its work is done"), "{text}");
    assert!(text.contains("the Job goes by the exit code") && !text.contains("finished its work"), "{text}");
}

/// What is over by itself is not there to be asked: a Job's pod is done, another is started again and again.
#[test]
fn container_that_ends_by_itself_is_not_asked_to_exit() {
    let over = json!({ "image": "busybox", "command": ["sh", "-c", "date; echo hello"] });
    let told = |report: &Value| -> Vec<String> {
        let facts = report["pods"][0]["timeline"].as_array().unwrap();
        facts.iter().map(|fact| fact["what"].as_str().unwrap().to_owned()).collect()
    };
    let done = report_of(&[], &pod(&json!({ "restartPolicy": "Never" }), &over));
    assert_eq!(told(&done), ["begun", "started", "ready", "exited", "removedAtOnce", "sandboxRemoved"]);
    let planned = &done["pods"][0];
    assert_eq!((&planned["containers"], &planned["phase"]), (&json!([]), &json!("Succeeded")));
    assert_eq!(planned["verdict"]["because"], "it was over before it was deleted");
    assert_eq!(warnings(&done), [""; 0]);
    let again = report_of(&[], &pod(&json!({}), &over));
    assert_eq!(warnings(&again), ["ends-by-itself"]);
    let facts = again["pods"][0]["timeline"].as_array().unwrap();
    assert!(facts.iter().any(|fact| fact["kubectl"]["status"] == "CrashLoopBackOff"), "{facts:?}");
    assert!(!told(&again).contains(&"signalled".to_owned()));
    // A container's own policy counts before its pod's.
    let mine = |policy: &str| {
        let mut over = over.clone();
        over["restartPolicy"] = json!(policy);
        over
    };
    assert_eq!(warnings(&report_of(&[], &pod(&json!({}), &mine("Never")))), [""; 0]);
    assert_eq!(
        warnings(&report_of(&[], &pod(&json!({ "restartPolicy": "Never" }), &mine("Always")))),
        ["ends-by-itself"]
    );
    // However it is that something fails again and again, the delete does not wait for it to get better.
    let failing = json!({ "image": "busybox", "command": ["sh", "-c", "exit 3"] });
    let init = json!({ "initContainers": [{ "name": "i", "image": "busybox", "command": ["sh", "-c", "exit 1"] }] });
    let hook = json!({
        "image": "gcr.io/distroless/static", "lifecycle": { "postStart": { "exec": { "command": ["sh", "-c", "x"] } } },
    });
    for (manifest, status, warned) in [
        (pod(&json!({ "restartPolicy": "OnFailure" }), &failing), Some("CrashLoopBackOff"), &[][..]),
        (pod(&init, &json!({})), Some("Init:CrashLoopBackOff"), &[]),
        (pod(&json!({}), &hook), None, &["hook-needs-shell"]),
    ] {
        let report = report_of(&[], &manifest);
        assert_eq!(warnings(&report), warned, "{manifest}");
        let facts = report["pods"][0]["timeline"].as_array().unwrap();
        let shown = |status: &str| facts.iter().any(|fact| fact["kubectl"]["status"] == status);
        assert!(status.is_none_or(shown), "{facts:?}");
        assert!(facts.len() < 25 && facts[0]["atMillis"].as_i64() > Some(-60_000), "{facts:?}");
    }
    // A shell that nobody can type into is over, too.
    for shell in [json!({ "command": ["/bin/sh"] }), json!({ "image": "alpine" }), json!({ "command": ["cat"] })] {
        assert_eq!(warnings(&report_of(&[], &pod(&json!({}), &shell))), ["ends-by-itself"], "{shell}");
    }
}

#[test]
fn a_service_needs_a_readiness_probe_on_the_pods_it_selects() {
    let service = |label: &str| {
        format!(
            "\n---\napiVersion: v1\nkind: Service\nmetadata: {{name: s}}\nspec: {{ports: [{{port: 80}}], selector: {{app: {label}}}}}\n"
        )
    };
    let bare = pod(&json!({}), &json!({}));
    let probed = pod(&json!({}), &json!({ "readinessProbe": { "tcpSocket": { "port": 80 } } }));
    let report_of = |arguments: &[&str], input: &str| {
        report_of(&[arguments, &["--accept", "traffic-still-arrives"]].concat(), input)
    };
    assert_eq!(warnings(&report_of(&[], &(bare.clone() + &service("p")))), ["no-readiness"]);
    assert_eq!(warnings(&report_of(&[], &(bare + &service("other")))), [""; 0]);
    assert_eq!(warnings(&report_of(&[], &(probed + &service("p")))), [""; 0]);
}

#[test]
fn a_grace_that_the_command_line_gave_is_not_blamed_on_the_manifest() {
    let manifest = pod(&json!({ "terminationGracePeriodSeconds": 600 }), &json!({}));
    let warning = &report_of(&["--grace", "0"], &manifest)["pods"][0]["warnings"][0];
    assert_eq!(
        (&warning["code"], &warning["field"], &warning["line"]),
        (&json!("grace-zero"), &json!("--grace"), &Value::Null)
    );
    assert!(text_of(&["--grace", "0"], &manifest).contains("warning: a grace of 0\n         [grace-zero]  --grace\n"));
    // What a probe waits for is the pod's own grace, whatever a delete says.
    let probe = json!({ "livenessProbe": { "tcpSocket": { "port": 80 } } });
    let long = pod(&json!({ "terminationGracePeriodSeconds": 120 }), &probe);
    assert_eq!(warnings(&report_of(&["--grace", "5"], &long)), ["liveness-without-grace"]);
    assert_eq!(warnings(&report_of(&["--grace", "120"], &pod(&json!({}), &probe))), [""; 0]);
    // Nor is its remedy to change the manifest.
    let hook =
        pod(&json!({}), &json!({ "lifecycle": { "preStop": { "exec": { "command": ["sh", "-c", "x; sleep 9"] } } } }));
    let remedy = &report_of(&["--grace", "5"], &hook)["pods"][0]["warnings"][0]["remedy"];
    assert_eq!(remedy, "shorten the hook, or delete it with a longer grace");
}

#[test]
fn a_program_that_needs_longer_than_it_has_is_told_how_long() {
    let report = report_of(&["--app", "exits-after=45s"], &pod(&json!({}), &json!({})));
    let warning = &report["pods"][0]["warnings"][0];
    assert_eq!(warning["code"], "killed");
    assert!(warning["reason"].as_str().unwrap().starts_with("it needs 45s after its stop signal and had 30s"));
    assert_eq!(warning["remedy"], "set terminationGracePeriodSeconds above 45, or make it faster");
}

#[test]
fn plan_advises_to_make_a_helper_container_a_sidecar() {
    let with = |image: &str, first: &str| {
        let helper = json!([{ "name": "app", "image": first }, { "name": "helper", "image": image }]);
        warnings(&report_of(&[], &pod(&json!({ "containers": helper }), &json!({})))).join(" ")
    };
    assert_eq!(with("gcr.io/cloud-sql-connectors/cloud-sql-proxy:2", "app"), "sidecar-as-container");
    assert_eq!(with("redis", "app"), "");
    let alone = pod(&json!({}), &json!({ "image": "envoyproxy/envoy:v1.31" }));
    assert_eq!(warnings(&report_of(&[], &alone)), [""; 0], "a pod of its own serves nobody beside it");
}

#[test]
fn annotations_that_say_nothing_are_told() {
    let with = |name: &str, value: &str| {
        let mut object: Value = serde_json::from_str(&pod(&json!({}), &json!({}))).unwrap();
        object["metadata"]["annotations"] = json!({ format!("adieu.dev/{name}"): value });
        warnings(&report_of(&[], &object.to_string())).join(" ")
    };
    assert_eq!(with("drain-barrier", "sometimes"), "annotation-not-understood");
    assert_eq!(with("drain-barrier", "acks"), "");
    assert_eq!(with("drain-budget-seconds", "1800"), "drain-budget-beyond-grace");
    assert_eq!(with("drain-budget-seconds", "20"), "");
    assert_eq!(with("somebody-elses", "x"), "");
}
