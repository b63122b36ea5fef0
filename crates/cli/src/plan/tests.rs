//! Plans of the examples, word for word; and of manifests that are wrong, unusual, or wise to warn about.
#![allow(clippy::unwrap_used, reason = "tests")]

mod formats;
mod mistakes;
mod odd;
mod pitfalls;
mod shells;
mod traffic;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;
use serde_json::{Value, json};

use super::{Outcome, Paint, run};
use crate::{Cli, Command};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");

/// Runs `adieu plan ARGUMENTS` with `input` on its standard input.
fn planned(arguments: &[&str], input: &str) -> Result<(String, Outcome), String> {
    coloured(arguments, input, false)
}

fn coloured(arguments: &[&str], input: &str, colours: bool) -> Result<(String, Outcome), String> {
    let cli = Cli::try_parse_from(["adieu", "plan"].iter().chain(arguments)).map_err(|error| error.to_string())?;
    let Command::Plan(args) = cli.command else { panic!("`plan` is not `plan`") };
    let mut out = Vec::new();
    let outcome =
        run(&args, &mut input.as_bytes(), &mut out, Paint { colours }).map_err(|error| format!("{error:#}"))?;
    Ok((String::from_utf8(out).unwrap(), outcome))
}

fn text_of(arguments: &[&str], input: &str) -> String {
    planned(&[&["-f", "-"], arguments].concat(), input).unwrap().0
}

fn report_of(arguments: &[&str], input: &str) -> Value {
    serde_json::from_str(&text_of(&[arguments, &["-o", "json"]].concat(), input)).unwrap()
}

/// A text as one line, wherever it was broken.
fn joined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn warnings(report: &Value) -> Vec<&str> {
    report["pods"][0]["warnings"].as_array().unwrap().iter().map(|warning| warning["code"].as_str().unwrap()).collect()
}

/// A pod of one container, given the rest of its spec and of its container.
fn pod(spec: &Value, container: &Value) -> String {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p", "labels": { "app": "p" } },
        "spec": { "containers": [{ "name": "app", "image": "app" }] },
    });
    for (key, value) in spec.as_object().unwrap() {
        pod["spec"][key] = value.clone();
    }
    for (key, value) in container.as_object().unwrap() {
        pod["spec"]["containers"][0][key] = value.clone();
    }
    pod.to_string()
}

fn examples() -> Vec<PathBuf> {
    let files = fs::read_dir(Path::new(ROOT).join("examples/plan")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.collect();
    files.sort();
    files
}

/// The command an example's own comment gives.
fn command_of(example: &str) -> Vec<String> {
    let line = example.lines().find_map(|line| line.strip_prefix("#   adieu plan ")).expect("it says how to run it");
    line.split_whitespace().map(|word| word.replace("examples/", &format!("{ROOT}examples/"))).collect()
}

#[test]
fn every_example_run_as_it_says_leaves_as_it_is_written_down() {
    let examples = examples();
    assert_eq!(examples.len(), 4, "one for each story");
    for path in examples {
        let command = command_of(&fs::read_to_string(&path).unwrap());
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let text = planned(&command, "").unwrap().0.replace(ROOT, "");
        let name = path.file_stem().unwrap().to_str().unwrap();
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("plans").join(name).with_extension("txt");
        if std::env::var_os("UPDATE_PLANS").is_some() {
            fs::create_dir_all(golden.parent().unwrap()).unwrap();
            fs::write(&golden, &text).unwrap();
        }
        let kept = fs::read_to_string(&golden).unwrap_or_default();
        assert!(kept == text, "{} differs (UPDATE_PLANS=1 keeps this):\n{text}", golden.display());
    }
}

/// With the barrier, which is on by default where they run.
#[test]
fn manifest_of_every_other_example_is_planned_to_end_clean_and_the_naive_shell_to_be_forced() {
    let planned = |path: &Path| report_of(&["-f", path.to_str().unwrap(), "--traffic", "steered"], "");
    let folders = fs::read_dir(Path::new(ROOT).join("examples")).unwrap().map(|entry| entry.unwrap().path());
    let manifests: Vec<PathBuf> = folders.map(|it| it.join("manifest.yaml")).filter(|path| path.exists()).collect();
    assert_eq!(manifests.len(), 9, "{manifests:?}");
    for path in manifests {
        let report = planned(&path);
        assert_eq!(report["pods"][0]["verdict"]["word"], "clean", "{}: {report:#}", path.display());
        assert!(warnings(&report).is_empty(), "{}: {report:#}", path.display());
    }
    let naive = planned(&Path::new(ROOT).join("examples/shell/naive.yaml"));
    assert_eq!(naive["pods"][0]["verdict"]["word"], "forced", "{naive:#}");
}

/// The short names of all warnings, as the source has them.
fn codes() -> Vec<String> {
    let sources = [include_str!("advice.rs"), include_str!("advice/hook.rs"), include_str!("advice/signal.rs")];
    let quoted = sources.iter().flat_map(|source| source.split('"').skip(1).step_by(2));
    let is_code = |text: &&str| {
        text.contains('-')
            && !text.starts_with('-')
            && text.chars().all(|c| c.is_ascii_lowercase() || c == '-')
            && !super::advice::HELPERS.contains(text)
    };
    let mut codes: Vec<String> = quoted.filter(is_code).map(str::to_owned).collect();
    // What annotations are called is no warning's name.
    codes.retain(|code| !code.ends_with("-seconds") && code != "elide-sleep");
    codes.push("killed".to_owned());
    codes.sort();
    codes.dedup();
    codes
}

#[test]
fn the_page_about_plans_shows_them_as_they_are() {
    let page = fs::read_to_string(Path::new(ROOT).join("docs/plan.md")).unwrap();
    for name in ["sidecar", "ignores-term", "well-behaved"] {
        let plan = fs::read_to_string(format!("{ROOT}crates/cli/plans/{name}.txt")).unwrap();
        assert!(page.contains(&plan), "docs/plan.md shows another plan of {name}");
    }
    // Whatever a timeline may tell programs of is on the page, too.
    let what = include_str!("story.rs").split_once("enum FactKind {").unwrap().1.split_once("\n}").unwrap().0;
    let variants =
        what.lines().filter_map(|line| line.strip_prefix("    ")).filter(|line| line.starts_with(char::is_uppercase));
    let variants: Vec<&str> = variants.map(|line| line.split([' ', ',']).next().unwrap()).collect();
    assert!(variants.len() > 20, "{variants:?}");
    for variant in variants {
        let name = variant[..1].to_lowercase() + &variant[1..];
        assert!(page.contains(&format!("`{name}`")), "docs/plan.md does not know {name}");
    }
    for code in codes() {
        assert!(super::advice::code(&code).is_ok(), "--accept does not know {code}");
        assert!(page.contains(&format!("`{code}`")), "docs/plan.md does not know {code}");
    }
}

#[test]
fn the_four_stories_end_as_their_verdicts_say() {
    let verdict = |name: &str| {
        let path = Path::new(ROOT).join("examples/plan").join(name);
        let command = command_of(&fs::read_to_string(path).unwrap()).join(" ") + " -o json";
        let report = planned(&command.split(' ').collect::<Vec<_>>(), "").unwrap().0;
        let report: Value = serde_json::from_str(&report).unwrap();
        report["pods"][0]["verdict"]["word"].as_str().unwrap().to_owned()
    };
    assert_eq!(verdict("well-behaved.yaml"), "clean");
    assert_eq!(verdict("sidecar.yaml"), "clean");
    assert_eq!(verdict("ignores-term.yaml"), "forced");
    assert_eq!(verdict("slow-prestop.yaml"), "forced");
}

#[test]
fn colours_come_only_when_asked_for_and_change_no_word() {
    let manifest = pod(&json!({}), &json!({ "command": ["sleep", "1d"] }));
    let plain = coloured(&["-f", "-"], &manifest, false).unwrap().0;
    let painted = coloured(&["-f", "-"], &manifest, true).unwrap().0;
    assert!(!plain.contains('\u{1b}') && painted.contains("\u{1b}[31m"));
    let mut washed = painted;
    for code in [0, 1, 2, 31, 32, 33, 36] {
        washed = washed.replace(&format!("\u{1b}[{code}m"), "");
    }
    let trimmed = |text: &str| text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
    assert_eq!(trimmed(&washed), trimmed(&plain));
}

#[test]
fn every_kind_that_has_pods_is_planned_and_the_others_are_named() {
    let template = |restart: &str| {
        format!(
            "{{metadata: {{labels: {{a: b}}}}, spec: {{restartPolicy: {restart}, containers: [{{name: a, image: x}}]}}}}"
        )
    };
    let workload = |version: &str, kind: &str, restart: &str| {
        let template = template(restart);
        let selector = match kind {
            "ReplicationController" => "selector: {a: b}, ",
            "Job" => "",
            _ => "selector: {matchLabels: {a: b}}, ",
        };
        format!(
            "apiVersion: {version}\nkind: {kind}\nmetadata: {{name: w}}\nspec: {{{selector}template: {template}}}\n"
        )
    };
    let list = format!(
        "apiVersion: v1\nkind: List\nitems:\n- {{apiVersion: v1, kind: Pod, metadata: {{name: p}}, spec: {}}}\n",
        "{containers: [{name: a, image: x}]}"
    );
    let cron = format!(
        "apiVersion: batch/v1\nkind: CronJob\nmetadata: {{name: c}}\nspec: {{schedule: '* * * * *', jobTemplate: {{spec: \
         {{template: {}}}}}}}\n",
        template("Never")
    );
    let manifest = [
        workload("apps/v1", "Deployment", "Always"),
        workload("apps/v1", "StatefulSet", "Always"),
        workload("apps/v1", "DaemonSet", "Always"),
        workload("apps/v1", "ReplicaSet", "Always"),
        workload("v1", "ReplicationController", "Always"),
        workload("batch/v1", "Job", "OnFailure"),
        cron,
        list,
        "apiVersion: apps/v1\nkind: DeploymentList\nitems:\n- metadata: {name: d}\n  spec: {selector: {matchLabels: {a: \
         b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: x}]}}}\n"
            .to_owned(),
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n".to_owned(),
    ]
    .join("---\n");
    let report = report_of(&[], &manifest);
    let kinds: Vec<&str> = report["pods"].as_array().unwrap().iter().map(|pod| pod["kind"].as_str().unwrap()).collect();
    assert_eq!(
        kinds,
        [
            "Deployment",
            "StatefulSet",
            "DaemonSet",
            "ReplicaSet",
            "ReplicationController",
            "Job",
            "CronJob",
            "Pod",
            "Deployment"
        ]
    );
    assert!(report["skipped"][0].as_str().unwrap().starts_with("ConfigMap settings (standard input:"));
}

#[test]
fn a_program_can_read_the_plan() {
    let hook = json!({ "lifecycle": { "preStop": { "httpGet": { "path": "/drain", "port": 80 } } } });
    let report = report_of(&["--hook", "takes=4s", "--app", "exits-after=3s,exit-code=7"], &pod(&json!({}), &hook));
    let pod = &report["pods"][0];
    assert_eq!((&pod["graceSeconds"], &pod["phase"]), (&json!(30), &json!("Failed")));
    assert_eq!(pod["verdict"]["word"], "clean");
    assert_eq!(
        pod["containers"],
        json!([{
            "name": "app",
            "spans": [
                { "on": "preStop", "fromMillis": 0, "toMillis": 4000 },
                { "on": "stopping", "fromMillis": 4000, "toMillis": 7000 },
            ],
            "end": { "atMillis": 7000, "code": 7, "killed": false },
        }])
    );
    let signalled = pod["timeline"].as_array().unwrap().iter().find(|fact| fact["what"] == "signalled").unwrap();
    assert_eq!(signalled["leftMillis"], 26_000);
    assert_eq!(signalled["kubectl"], json!({ "ready": "1/1", "status": "Terminating" }));
    assert_eq!(pod["timeline"].as_array().unwrap().last().unwrap()["what"], "gone");
}

#[test]
fn strict_lets_no_warning_pass() {
    let good = pod(&json!({}), &json!({}));
    let bad = pod(&json!({ "terminationGracePeriodSeconds": 0 }), &json!({}));
    assert_eq!(planned(&["-f", "-", "--strict"], &good).unwrap().1, Outcome::Planned);
    assert_eq!(planned(&["-f", "-", "--strict"], &bad).unwrap().1, Outcome::Refused);
    assert_eq!(planned(&["-f", "-"], &bad).unwrap().1, Outcome::Planned);
}

/// Worked example G7 of node-termination 3.7, a force delete: TERM at once, KILL after the two seconds everybody gets.
#[test]
fn a_forced_pod_is_signalled_at_once_and_killed_after_two_seconds() {
    let text = text_of(&["--grace", "0", "--app", "ignores-term"], &pod(&json!({}), &json!({})));
    for line in [
        "     0.0s  deleted with grace 0: the object goes at once",
        "             -> SIGTERM to app: please exit, SIGKILL in 2s",
        "     2.0s  the 2s that app had after its stop signal are over",
        "             -> SIGKILL to app: it did not exit in time",
        "           nothing of it is left on the node",
    ] {
        assert!(text.lines().any(|told| told.starts_with(line)), "{line:?} in\n{text}");
    }
}

#[test]
fn a_force_delete_is_never_called_clean() {
    let text = text_of(&["--grace", "0"], &pod(&json!({}), &json!({})));
    assert!(text.contains("verdict: forced: deleted by force") && !text.contains("is lost"), "{text}");
}

/// The floors are told in words; the ruler begins where the grace ends.
#[test]
fn a_grace_of_0_is_drawn_as_0() {
    let hook = json!({ "lifecycle": { "preStop": { "sleep": { "seconds": 9 } } } });
    let text = text_of(&["--grace", "0"], &pod(&json!({}), &hook));
    for line in [
        "     1.0s  the 1s that hooks have even at grace 0 is over",
        "         |-----------------------------+-----------------------------+",
        "         at grace 0, hooks have 1s all the same, and a program has 2s from its",
    ] {
        assert!(text.lines().any(|told| told == line), "{line:?} in\n{text}");
    }
    assert!(text.contains("a preStop hook that outlasts the 1s that hooks have at grace 0"), "{text}");
}

#[test]
fn a_delete_may_come_before_everything_is_ready() {
    let probe = json!({ "readinessProbe": { "initialDelaySeconds": 10, "tcpSocket": { "port": 80 } } });
    let text = text_of(&["--delete-at", "4s"], &pod(&json!({}), &probe));
    assert!(text.contains("    -4.0s  the node begins to run the pod"), "{text}");
    assert!(text.contains("0/1 Terminating") && !text.contains("everything is Ready"), "{text}");
}

#[test]
fn a_hook_cut_short_makes_a_hurried_end() {
    let hook = json!({ "lifecycle": { "preStop": { "httpGet": { "port": 80 } } } });
    let report = report_of(&["--hook", "hangs"], &pod(&json!({}), &hook));
    assert_eq!(report["pods"][0]["verdict"]["word"], "hurried");
    assert_eq!(report["pods"][0]["containers"][0]["end"]["atMillis"], 31_000);
}

/// What nobody widens fits a terminal of 80 columns; what is told by a manifest (names, files) is not counted.
#[test]
fn plans_fit_a_terminal() {
    let mut files: Vec<PathBuf> = examples();
    files.sort();
    let long = pod(&json!({}), &json!({ "name": "a-container-with-a-long-name", "command": ["sh", "-c", "a | b"] }));
    let over = pod(&json!({}), &json!({ "command": ["echo", "hello"] }));
    let manifests = files.iter().map(|file| fs::read_to_string(file).unwrap()).chain([long, over]);
    for manifest in manifests {
        for arguments in [&[][..], &["--grace", "0"], &["--traffic", "steered"], &["--app", "ignores-term"]] {
            for line in text_of(arguments, &manifest).lines() {
                assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
            }
        }
    }
}
