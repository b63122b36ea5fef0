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
        (sh("trap 'exit 5' TERM; while :; do sleep 7; done"), "clean", 5, 7_000, &[]),
        (sh("trap 'echo not yet' TERM; while :; do sleep 1; done"), "forced", 137, killed, &["trap-goes-on"]),
        (sh("trap '' TERM; while :; do sleep 1; done"), "forced", 137, killed, &["signal-ignored"]),
        (sh("trap 'exit 0' TERM; server"), "forced", 137, killed, &["trap-waits"]),
        (sh("trap 'exit 0' TERM; sleep 3600"), "forced", 137, killed, &["killed"]),
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
            &["no-handler"],
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
fn in_a_shared_process_namespace_nobody_is_protected_from_signals() {
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
    assert!(text.contains("app exits at once, code 143; what it started is killed"), "{text}");
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
    assert_eq!(report["pods"][0]["containers"][0]["end"], json!({ "atMillis": 30_001, "code": 137, "killed": true }));
    assert_eq!(warnings(&report), ["stop-signal-kill"]);
}

#[test]
fn what_is_not_known_is_said() {
    let joined = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = joined(text_of(&[], &pod(&json!({}), &json!({}))));
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
fn what_the_command_line_says_is_played_and_the_shell_still_warned_of() {
    let manifest = pod(&json!({}), &json!({ "command": ["sh", "-c", "a; b"] }));
    let report = report_of(&["--app", "exits-after=3s"], &manifest);
    assert_eq!(report["pods"][0]["verdict"]["word"], "clean");
    let reason = report["pods"][0]["warnings"][0]["reason"].as_str().unwrap();
    assert!(reason.ends_with("(the timeline follows --app instead)"), "{reason}");
    assert_eq!(report_of(&["--app", "hangs"], &manifest)["pods"][0]["verdict"]["word"], "forced");
}
