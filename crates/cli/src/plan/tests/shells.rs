//! What commands make of a stop signal: what is played, and what is warned of.

use super::*;

/// How a container with that command leaves: `clean`, `forced`, its exit code, when it was gone, and the warnings.
fn leaves(spec: &Value, container: &Value) -> (String, i64, i64, Vec<String>) {
    let report = report_of(&[], &pod(spec, container));
    let pod = &report["pods"][0];
    let end = &pod["containers"][0]["end"];
    let codes = warnings(&report).iter().map(|code| (*code).to_owned()).collect();
    let verdict = pod["verdict"]["word"].as_str().unwrap().to_owned();
    (verdict, end["code"].as_i64().unwrap(), end["atMillis"].as_i64().unwrap(), codes)
}

#[test]
fn a_script_leaves_as_its_shell_would() {
    let sh = |script: &str| json!({ "command": ["sh", "-c", script] });
    let bash = |script: &str| json!({ "command": ["bash", "-c", script] });
    let killed = 30_001;
    for (container, verdict, code, at, warned) in [
        // Somebody in front who keeps the signal, for sure or in some images.
        (sh("migrate && server"), "forced", 137, killed, &["shell-swallows-signal"][..]),
        (sh("server --flag"), "forced", 137, killed, &["shell-swallows-signal"]),
        (sh("server | tee log"), "forced", 137, killed, &["shell-swallows-signal"]),
        (sh("exec server | tee log"), "forced", 137, killed, &["shell-swallows-signal"]),
        (sh("server & wait"), "forced", 137, killed, &["shell-swallows-signal"]),
        (sh("exec >log 2>&1; migrate; server"), "forced", 137, killed, &["shell-swallows-signal"]),
        (bash("server --flag"), "clean", 0, 1_000, &[]),
        (bash("migrate && server"), "clean", 0, 1_000, &["shell-may-swallow-signal"]),
        (bash("server > log"), "forced", 137, killed, &["shell-swallows-signal"]),
        (bash("warm-up & server"), "forced", 137, killed, &["shell-swallows-signal"]),
        (bash("if [ -f x ]; then a; else b; fi"), "forced", 137, killed, &["shell-swallows-signal"]),
        (sh("if [ -f x ]; then a; fi; (server)"), "forced", 137, killed, &["shell-swallows-signal"]),
        (json!({ "command": ["sh", "-c"], "args": ["a; b"] }), "forced", 137, killed, &["shell-swallows-signal"]),
        (
            json!({ "image": "node:22-alpine", "command": ["sh", "-c", "a; b"] }),
            "clean",
            0,
            1_000,
            &["shell-may-swallow-signal"],
        ),
        // exec, where it is one.
        (sh("migrate; exec server"), "clean", 0, 1_000, &[]),
        (sh("cd /srv && exec ./server \"$@\" # not; this"), "clean", 0, 1_000, &[]),
        (sh("exec server; echo never"), "clean", 0, 1_000, &[]),
        (sh("echo 'a; b' && exec server --opt 'x; y'"), "clean", 0, 1_000, &[]),
        (sh("prepare; exec sleep infinity"), "forced", 137, killed, &["no-handler"]),
        // Nobody who would handle it.
        (sh("sleep 3600"), "forced", 137, killed, &["no-handler"]),
        (sh("while true; do sleep 1; done"), "forced", 137, killed, &["no-handler"]),
        (sh("while sleep 1; do :; done"), "forced", 137, killed, &["no-handler"]),
        (json!({ "command": ["sleep", "infinity"] }), "forced", 137, killed, &["no-handler"]),
        (json!({ "command": ["/usr/bin/tail", "-f", "/dev/null"] }), "forced", 137, killed, &["no-handler"]),
        // Traps.
        (sh("trap 'exit 0' TERM; while :; do sleep 1; done"), "clean", 0, 1_000, &[]),
        (sh("trap 'exit 5' TERM; while :; do sleep 2; done"), "clean", 5, 2_000, &[]),
        (sh("trap 'exit 5' TERM; while :; do sleep 7; done"), "clean", 5, 7_000, &["trap-waits"]),
        (sh("trap 'exit 5' TERM; while :; do sleep 60; done"), "forced", 137, killed, &["trap-waits"]),
        (sh("trap 'exit 5' TERM; while :; do sleep 60 & wait $!; done"), "clean", 5, 1, &[]),
        (sh("trap \"echo $(date); exit 3\" TERM; while :; do sleep 1; done"), "clean", 3, 1_000, &[]),
        (sh("trap \"echo $HOSTNAME; exit 3\" TERM; while :; do sleep 1; done"), "clean", 3, 1_000, &[]),
        (sh("trap \"echo `date`\" TERM; while :; do sleep 1; done"), "forced", 137, killed, &["trap-goes-on"]),
        (sh("trap 'echo not yet' TERM; while :; do sleep 1; done"), "forced", 137, killed, &["trap-goes-on"]),
        (sh("trap '' TERM; while :; do sleep 1; done"), "forced", 137, killed, &["signal-ignored"]),
        (sh("trap 'exit 0' TERM; server"), "forced", 137, killed, &["trap-waits"]),
        (sh("trap 'exit 0' TERM; sleep 3600"), "forced", 137, killed, &["trap-waits"]),
        (
            sh("trap 'sleep 99; exit 0' TERM; while :; do sleep 9; done"),
            "forced",
            137,
            killed,
            &["trap-waits", "killed"],
        ),
        (sh("trap 'kill $p' TERM; server & p=$!; wait $p"), "forced", 143, 1, &["shell-does-not-wait"]),
        (sh("trap 'kill $p; wait $p' TERM; server & p=$!; wait $p"), "clean", 143, 1_000, &[]),
        (sh("trap 'kill $p; wait $p; exit $?' TERM; server & p=$!; wait $p"), "clean", 0, 1_000, &[]),
        (sh("trap 'kill $p' TERM; server & p=$!; wait $p; wait $p"), "clean", 0, 1_000, &[]),
        (sh("trap 'exit 0' TERM; sleep infinity & wait"), "clean", 0, 1, &[]),
        (sh("trap 'exit 0' INT; while :; do sleep 1; done"), "forced", 137, killed, &["no-handler"]),
        (sh("go=1; trap 'go=0' TERM; while [ $go = 1 ]; do sleep 1; done"), "clean", 0, 1_000, &[]),
        // In doubt it says so, and plays the worst where a script leaves the doubt.
        (json!({ "command": ["sh", "/start.sh"] }), "clean", 0, 1_000, &[]),
        (json!({ "command": ["server", "-c", "config; yes"] }), "clean", 0, 1_000, &[]),
        (sh("if [ -f x ]; then exec a; else exec b; fi"), "clean", 0, 1_000, &[]),
        (sh("an 'unfinished quote"), "forced", 137, killed, &["cannot-tell"]),
        (sh("if [ -f x ]; then exec a; else b; fi"), "forced", 137, killed, &["cannot-tell"]),
        (
            json!({ "image": "alpine", "command": ["sh", "-c", "server\n"] }),
            "forced",
            137,
            killed,
            &["shell-swallows-signal"],
        ),
        (
            json!({ "image": "debian", "command": ["sh", "-c", "trap 'exit 0' SIGTERM; while :; do sleep 1; done"] }),
            "forced",
            137,
            killed,
            &["signal-name-refused"],
        ),
        (sh("trap 'exit 0' SIGINT TERM; while :; do sleep 1; done"), "forced", 137, killed, &["signal-name-refused"]),
        (
            sh("trap 'kill -SIGTERM $p; wait $p; exit' TERM; server & p=$!; wait $p"),
            "forced",
            137,
            killed,
            &["signal-name-refused"],
        ),
        (
            json!({ "image": "alpine", "command": ["sh", "-c", "trap 'exit 0' SIGTERM; while :; do sleep 1; done"] }),
            "clean",
            0,
            1_000,
            &[],
        ),
        // `--` between the flags and the script.
        (
            json!({ "command": ["/bin/bash", "-c", "--"], "args": ["while :; do sleep 9; done;"] }),
            "forced",
            137,
            killed,
            &["no-handler"],
        ),
        // Images that run what they are told, and nothing in front of it.
        (json!({ "image": "busybox:1.36", "args": ["sleep", "1000"] }), "forced", 137, killed, &["no-handler"]),
        (json!({ "image": "busybox", "stdin": true }), "forced", 137, killed, &["no-handler"]),
        // Somebody who handles it, and says so with its code.
        (json!({ "command": ["java", "-jar", "app.jar"] }), "clean", 143, 1_000, &[]),
        (sh("exec java -jar app.jar"), "clean", 143, 1_000, &[]),
        // Somebody who tells a shell, which tells nobody.
        (json!({ "image": "node:22", "command": ["npm", "start"] }), "forced", 1, 1, &["runner-in-front"]),
        (json!({ "image": "node:22-alpine", "command": ["npm", "start"] }), "clean", 0, 1_000, &[]),
        // A signal that its image names.
        (
            json!({ "image": "nginx", "command": ["bash", "-c", "trap 'exit 3' TERM; while :; do sleep 1; done"] }),
            "forced",
            137,
            killed,
            &["no-handler"],
        ),
        (
            json!({ "image": "nginx", "command": ["bash", "-c", "trap 'exit 3' QUIT; while :; do sleep 1; done"] }),
            "clean",
            3,
            1_000,
            &[],
        ),
        (json!({}), "clean", 0, 1_000, &[]),
        // Somebody first who passes signals on.
        (json!({ "command": ["tini", "--", "sleep", "9"] }), "forced", 143, 1, &[]),
    ] {
        let (is, exit, when, codes) = leaves(&json!({}), &container);
        // Not killed, but died: what has no handler has nothing to lose.
        let verdict = if code == 143 && warned.is_empty() { "clean" } else { verdict };
        assert_eq!((is.as_str(), exit, when), (verdict, code, at), "{container}");
        assert_eq!(codes, warned, "{container}");
    }
}

#[test]
fn first_process_in_a_shared_pid_namespace_is_not_protected_from_signals() {
    let shared = json!({ "shareProcessNamespace": true });
    let sh = |script: &str| json!({ "command": ["sh", "-c", script] });
    for (container, expected) in [
        (json!({ "command": ["sleep", "9"] }), ("clean", 143, 1, &[][..])),
        (sh("while :; do sleep 1; done"), ("clean", 143, 1, &[])),
        (sh("migrate; server"), ("forced", 143, 1, &["shell-dies-first"])),
        (sh("migrate; exec server"), ("clean", 0, 1_000, &[])),
    ] {
        let (verdict, code, at, codes) = leaves(&shared, &container);
        assert_eq!((verdict.as_str(), code, at), (expected.0, expected.1, expected.2), "{container}");
        assert_eq!(codes, expected.3, "{container}");
    }
    let text = text_of(&[], &pod(&shared, &sh("migrate; server")));
    let text = joined(&text);
    assert!(text.contains("app dies of SIGTERM; what it started is killed 0/1 Error"), "{text}");
    assert!(text.contains("verdict: forced: what runs in app was killed unasked"), "{text}");
}

#[test]
fn a_trap_is_looked_for_under_the_name_of_the_stop_signal() {
    let spec = json!({ "os": { "name": "linux" } });
    let container = |trap: &str| {
        json!({
            "command": ["sh", "-c", format!("trap 'exit 0' {trap}; while :; do sleep 1; done")],
            "lifecycle": { "stopSignal": "SIGQUIT" },
        })
    };
    assert_eq!(leaves(&spec, &container("QUIT")).0, "clean");
    assert_eq!(leaves(&spec, &container("TERM")).3, ["no-handler"]);
}

#[test]
fn signals_nobody_can_handle_do_what_the_kernel_says() {
    let with =
        |signal: &str| pod(&json!({ "os": { "name": "linux" } }), &json!({ "lifecycle": { "stopSignal": signal } }));
    let text = text_of(&["--app", "exits-after=3s"], &with("SIGKILL"));
    assert!(text.contains("-> SIGKILL to app: its stop signal") && !text.contains("please exit"), "{text}");
    let report = report_of(&["--app", "exits-after=3s"], &with("SIGSTOP"));
    assert_eq!(
        report["pods"][0]["containers"][0]["end"],
        json!({ "atMillis": 30_001, "code": 137, "killed": true, "signal": "SIGKILL" })
    );
    assert_eq!(warnings(&report), ["stop-signal-kill"]);
}

#[test]
fn plan_names_its_assumptions_in_the_verdict() {
    let text = joined(&text_of(&[], &pod(&json!({}), &json!({}))));
    assert!(text.contains("verdict: clean, if app does exit when it is asked to: everything exited"), "{text}");
    let sure = text_of(&["--app", "exits-after=3s"], &pod(&json!({}), &json!({})));
    assert!(sure.contains("verdict: clean: everything exited"), "{sure}");
    assert!(
        text.contains("app exits 1s after its stop signal: what it runs is in its image, which is not looked into")
    );
    let text = text_of(&[], &pod(&json!({}), &json!({ "command": ["sh", "-c", "migrate; exec server"] })));
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("its script has come to `exec`; before that, its shell hears nothing"), "{text}");
    let text = text_of(&[], &pod(&json!({}), &json!({ "command": ["sh", "-c", "cd / && exec server"] })));
    assert!(!text.contains("has come to"), "{text}");
}

#[test]
fn app_option_overrides_the_timeline_and_keeps_the_shell_warning() {
    let manifest = pod(&json!({}), &json!({ "command": ["sh", "-c", "a; b"] }));
    let report = report_of(&["--app", "exits-after=3s"], &manifest);
    assert_eq!(report["pods"][0]["verdict"]["word"], "clean");
    let reason = report["pods"][0]["warnings"][0]["reason"].as_str().unwrap();
    assert!(reason.ends_with("(the timeline follows --app instead)"), "{reason}");
    assert_eq!(report_of(&["--app", "hangs"], &manifest)["pods"][0]["verdict"]["word"], "forced");
}

/// Each shape of script has a remedy that works in it: `exec` is none for a pipeline, or where something follows.
#[test]
fn the_remedy_for_a_swallowed_signal_can_be_done() {
    let with = |script: &str| pod(&json!({}), &json!({ "image": "debian", "command": ["sh", "-c", script] }));
    for (script, remedy, mended) in [
        ("server", "start the program with `exec` as the last command", "exec server"),
        ("migrate; server; exit $?", "start the program with `exec` as the last command", "migrate; exec server"),
        (
            "server; rm lock",
            "`exec` would leave out what follows",
            "trap 'kill $pid; wait $pid' TERM; server & pid=$!; wait $pid; rm lock",
        ),
        (
            "if server; then rm lock; fi",
            "`exec` would leave out what follows",
            "trap 'kill $pid; wait $pid' TERM; server & pid=$!; if wait $pid; then rm lock; fi",
        ),
        (
            "server | tee log",
            "`exec` does not reach out of a pipeline",
            "mkfifo /tmp/out; tee log </tmp/out & server >/tmp/out & pid=$!; trap 'kill $pid; wait' TERM; wait $pid; \
             code=$?; wait; exit $code",
        ),
        (
            "server & wait",
            "start a single program with `exec`, in the foreground",
            "trap 'kill $pid; wait $pid; exit $?' TERM; server & pid=$!; wait $pid",
        ),
        ("while :; do server; done", "start the program with `exec`, without the loop", "exec server"),
        (
            "while :; do server; done",
            "Where the loop has to stay, pass the signal on and wait",
            "trap 'kill $pid; wait $pid; exit $?' TERM; while :; do server & pid=$!; wait $pid; done",
        ),
    ] {
        let report = report_of(&[], &with(script));
        assert_eq!(warnings(&report), ["shell-swallows-signal"], "{script}");
        let said = report["pods"][0]["warnings"][0]["remedy"].as_str().unwrap();
        assert!(said.contains(remedy), "{script}: {said}");
        let report = report_of(&[], &with(mended));
        assert_eq!((warnings(&report), &report["pods"][0]["verdict"]["word"]), (vec![], &json!("clean")), "{mended}");
    }
}

#[test]
fn program_killed_by_its_stop_signal_is_warned_of() {
    let spec = json!({ "os": { "name": "linux" }, "shareProcessNamespace": true });
    let container = json!({ "command": ["sleep", "3600"], "lifecycle": { "stopSignal": "SIGUSR1" } });
    let manifest = pod(&spec, &container);
    let text = joined(&text_of(&[], &manifest));
    assert!(text.contains("app dies of SIGUSR1, exit code 138: 128 + 10"), "{text}");
    assert!(text.contains("verdict: clean: app died of its stop signal, which it does not handle"), "{text}");
    assert!(text.contains("x died of its stop signal") && !text.contains("finished its work"), "{text}");
    let report = report_of(&[], &manifest);
    let end = &report["pods"][0]["containers"][0]["end"];
    assert_eq!((&end["signal"], &end["killed"]), (&json!("SIGUSR1"), &json!(false)));
    // The first process of a namespace of its own does not even die of it.
    let alone = pod(&json!({ "os": { "name": "linux" } }), &container);
    assert_eq!(warnings(&report_of(&[], &alone)), ["no-handler"]);
    // Nor has one that did not hear it, and was done by chance.
    let chance = pod(&json!({}), &json!({ "image": "debian", "command": ["sh", "-c", "sleep 5; exit 0"] }));
    let text = joined(&text_of(&[], &chance));
    assert!(text.contains("app is over by itself, exit code 0"), "{text}");
    assert!(text.contains("clean: app heard no stop signal, and was over by itself, 5s into 30s"), "{text}");
    assert!(text.contains("longer work would have been killed") && !text.contains("finished its work"), "{text}");
}

#[test]
fn a_container_that_cannot_start_is_never_shown_as_running() {
    for (container, why, warned) in [
        (json!({ "command": ["while true; do sleep 1; done"] }), "no program has that name", "command-without-shell"),
        (
            json!({ "image": "gcr.io/distroless/static", "command": ["sh", "-c", "exec /server"] }),
            "its image holds no sh",
            "command-needs-shell",
        ),
    ] {
        let report = report_of(&[], &pod(&json!({}), &container));
        assert_eq!(warnings(&report), [warned]);
        let planned = &report["pods"][0];
        assert_eq!((&planned["containers"], &planned["phase"]), (&json!([]), &json!("Failed")), "{container}");
        let told: Vec<&str> =
            planned["timeline"].as_array().unwrap().iter().map(|fact| fact["what"].as_str().unwrap()).collect();
        assert_eq!(told, ["begun", "cannotStart", "deleteRequested", "sandboxRemoved", "gone"], "{container}");
        assert_eq!(planned["timeline"][1]["why"], why);
        let text = joined(&text_of(&[], &pod(&json!({}), &container)));
        assert!(text.contains("verdict: clean: nothing of it ever ran"), "{text}");
    }
    // Whoever else is in the pod leaves as usual, and in its own time.
    let mut both: Value = serde_json::from_str(&pod(&json!({}), &json!({ "command": ["a && b"] }))).unwrap();
    both["spec"]["containers"].as_array_mut().unwrap().push(json!({ "name": "b", "image": "x" }));
    let report = report_of(&[], &both.to_string());
    assert_eq!(report["pods"][0]["containers"][0]["name"], "b");
    assert_eq!(report["pods"][0]["containers"][0]["end"]["atMillis"], 1_000);
    assert!(report["pods"][0]["verdict"]["because"].as_str().unwrap().contains("app never ran"));
}
