//! From observations to reports: verdicts, counts, advice, and how they are printed.
#![allow(clippy::unwrap_used, reason = "tests")]

use api::TerminationRecord;
use api::termination::{EndedContainer, ProcessSignals, TerminationPhases, TerminationStep, step};
use clap::Parser;
use serde_json::{Value, json};

use super::ends::PodVerdict;
use super::observations::{LoadSeen, Observations, PodSeen};
use super::report::{DrillResult, Report, of};
use super::*;
use crate::load::{ConnectionKind, Counts, KindCounts, Loss, LostRequest};

fn pod(name: &str, statuses: Value) -> PodSeen {
    let pod = json!({
        "metadata": { "name": name, "uid": format!("uid-{name}"), "namespace": "shop" },
        "spec": { "nodeName": "n1", "terminationGracePeriodSeconds": 30, "containers": [{ "name": "app",
            "readinessProbe": { "tcpSocket": { "port": 80 } } }] },
        "status": { "containerStatuses": statuses },
    });
    let pod = serde_json::from_value(pod).unwrap();
    PodSeen { pod, asked_ms: Some(1_000), gone_ms: Some(1_040), ..PodSeen::default() }
}

fn recorded(name: &str, verdict: &str, took: i64, steps: Vec<TerminationStep>) -> PodSeen {
    let record = TerminationRecord {
        verdict: verdict.to_owned(),
        summary: "the story in one sentence.".to_owned(),
        grace_period_seconds: Some(30),
        took_milliseconds: Some(took),
        phases: Some(TerminationPhases { to_signal_milliseconds: Some(6), ..TerminationPhases::default() }),
        steps,
        containers: vec![EndedContainer { name: "app".to_owned(), exit_code: Some(0), ..EndedContainer::default() }],
        ..TerminationRecord::default()
    };
    PodSeen { record: Some(record), ..pod(name, json!([])) }
}

fn killed_at(after: i64) -> Vec<TerminationStep> {
    let (type_, container) = (step::KILL_ASKED.to_owned(), "app".to_owned());
    vec![TerminationStep { after_milliseconds: after, type_, container, ..TerminationStep::default() }]
}

fn warning(message: &str) -> Vec<TerminationStep> {
    vec![TerminationStep { type_: step::WARNING.to_owned(), message: message.to_owned(), ..TerminationStep::default() }]
}

fn counts(lost: &[(ConnectionKind, Loss, u64)]) -> Counts {
    let mut counts = Counts { status: Some(200), is_final: true, ..Counts::default() };
    for kind in [ConnectionKind::New, ConnectionKind::Kept] {
        counts.kinds.insert(kind, KindCounts { answered: 500, ..KindCounts::default() });
    }
    for (kind, loss, times) in lost {
        counts.kinds.entry(*kind).or_default().lost.insert(*loss, *times);
        counts.lost.insert(format!("{} somehow", loss.text()), *times);
        counts.first_lost.push(LostRequest { at_ms: 6_040, kind: *kind, loss: *loss, reason: "somehow".to_owned() });
    }
    counts
}

fn seen(pods: Vec<PodSeen>) -> Observations {
    Observations {
        workload: "deployment.apps/web".to_owned(),
        namespace: "shop".to_owned(),
        way: Way::Restart,
        ending: Ending::Done,
        load: Some(LoadSeen {
            from: "from a pod in the cluster".to_owned(),
            to: "Service web (10.87.0.9:80)".to_owned(),
            rate: 200,
            counts: counts(&[]),
            clock_ms: 5_000,
        }),
        ready: pods.len(),
        pods,
        keeps_records: true,
        unknown: Vec::new(),
    }
}

fn losing(lost: &[(ConnectionKind, Loss, u64)], pods: Vec<PodSeen>) -> Report {
    let mut seen = seen(pods);
    seen.load.as_mut().unwrap().counts = counts(lost);
    of(&seen)
}

fn codes(report: &Report) -> Vec<&str> {
    report.findings.iter().map(|finding| finding.code).collect()
}

fn good() -> Vec<PodSeen> {
    [("web-a", 40), ("web-b", 60), ("web-c", 900)].map(|(name, took)| recorded(name, "clean", took, vec![])).into()
}

#[test]
fn drill_without_losses_and_kills_passes_and_tells_its_times() {
    let report = of(&seen(good()));
    assert_eq!((report.result, report.findings.len(), report.forced_kills), (DrillResult::Passed, 0, 0));
    let gone = report.to_gone.unwrap();
    assert_eq!((gone.p50_ms, gone.max_ms, gone.pods), (60, 900, 3));
    assert_eq!(report.to_stop_signal.unwrap().max_ms, 6);
    assert_eq!(report.late_connections, Some(0));
    let text = show::text(&report);
    assert!(text.ends_with("\npassed: 1,000 requests, 0 lost, 0 pods killed by force\n"), "{text}");
}

#[test]
fn lost_request_fails_the_drill_is_tied_to_the_pod_that_left_and_gets_the_advice_of_its_way() {
    let report = losing(&[(ConnectionKind::Kept, Loss::Reset, 3)], good());
    assert_eq!((report.result, codes(&report)), (DrillResult::Failed, vec!["requests-lost"]));
    let found = &report.findings[0];
    // The clock of the load began 5 s before that of the drill; the pod was asked at 1.000.
    let expected = "3 of 1003 requests were lost: 3 reset; the first 40 ms after web-a was asked to leave (somehow)";
    assert_eq!(found.finding, expected);
    assert!(found.advice.iter().any(|advice| advice.contains("`Connection: close`")), "{found:?}");
    for (kind, loss, word) in [
        (ConnectionKind::New, Loss::Refused, "drain-barrier"),
        (ConnectionKind::New, Loss::Reset, "drain-barrier"),
        (ConnectionKind::Kept, Loss::ServerError, "5xx"),
        (ConnectionKind::New, Loss::TimedOut, "in time"),
        (ConnectionKind::New, Loss::WrongAnswer, "another status"),
    ] {
        let report = losing(&[(kind, loss, 1)], good());
        assert!(report.findings[0].advice.iter().any(|advice| advice.contains(word)), "{:?}", report.findings);
    }
    let alone = losing(&[(ConnectionKind::New, Loss::Refused, 1)], vec![recorded("web-a", "clean", 4, vec![])]);
    assert!(alone.findings[0].advice[0].contains("two or more"), "{:?}", alone.findings);
}

#[test]
fn refused_connections_of_a_foreign_cluster_are_met_with_a_sleep_before_the_signal() {
    let mut seen = seen(vec![pod("web-a", json!([])), pod("web-b", json!([]))]);
    seen.keeps_records = false;
    seen.load.as_mut().unwrap().counts = counts(&[(ConnectionKind::New, Loss::Refused, 1)]);
    let report = of(&seen);
    assert!(report.findings[0].advice.iter().any(|advice| advice.contains("preStop.sleep")), "{:?}", report.findings);
    assert_eq!(report.late_connections, None);
    assert!(report.unknown.iter().any(|unknown| unknown.contains("keeps no termination records")));
}

#[test]
fn pods_that_ignore_their_stop_signal_are_forced_and_told_together_with_the_cure() {
    let shell = |name: &str| {
        let process = ProcessSignals {
            container: "app".to_owned(),
            name: "sh".to_owned(),
            pid: 1,
            signal: "SIGTERM".to_owned(),
            disposition: "Default".to_owned(),
        };
        PodSeen { processes: vec![process], ..recorded(name, "forced", 30_012, killed_at(30_000)) }
    };
    let report = of(&seen(vec![shell("web-a"), shell("web-b"), recorded("web-c", "clean", 5, vec![])]));
    assert_eq!((report.result, report.forced_kills, codes(&report)), (DrillResult::Failed, 2, vec!["forced"]));
    let said = report.findings[0].sentence();
    let begin =
        "web-a, web-b: app ignored SIGTERM and was killed after 30 s: sh (process 1 of container app) has no handler";
    assert!(said.starts_with(begin), "{said}");
    assert!(report.findings[0].advice.iter().any(|advice| advice.contains("trap 'exit' TERM")), "{report:?}");
}

#[test]
fn kill_of_an_unknown_program_is_explained_by_its_manifest_else_by_its_grace() {
    let mut told = recorded("web-a", "forced", 30_012, killed_at(30_000));
    told.written = crate::plan::advice_on(&json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web-a" },
        "spec": { "containers": [{ "name": "app", "image": "debian:12", "command": ["sh", "-c", "server; echo over"] }] },
    }));
    assert!(told.written.iter().any(|written| written.code == "shell-swallows-signal"), "{:?}", told.written);
    let report = of(&seen(vec![told]));
    assert!(report.findings[0].finding.contains("shell as first process"), "{:?}", report.findings);
    let report = of(&seen(vec![recorded("web-a", "forced", 30_012, killed_at(30_000))]));
    assert!(report.findings[0].finding.contains("its grace of 30 s was spent"), "{:?}", report.findings);
    assert!(report.findings[0].advice[1].contains("terminationGracePeriodSeconds above 30"), "{:?}", report.findings);
}

#[test]
fn hurried_and_lost_pods_late_connections_and_failed_hooks_are_findings() {
    let failed = TerminationStep {
        type_: step::HOOK_ENDED.to_owned(),
        hook: "preStop".to_owned(),
        container: "app".to_owned(),
        result: "Failed".to_owned(),
        output: "no such file\n".to_owned(),
        ..TerminationStep::default()
    };
    let report = of(&seen(vec![
        recorded("web-a", "hurried", 5, vec![]),
        recorded("web-b", "lost", 5, vec![]),
        recorded("web-c", "clean", 5, warning("LateConnections: 2 connections came after the barrier was released")),
        recorded("web-d", "clean", 5, vec![failed]),
    ]));
    assert_eq!(codes(&report), ["hurried", "lost", "late-connections", "hook-failed"]);
    assert_eq!(report.late_connections, Some(2));
    assert!(report.findings[3].finding.ends_with("preStop hook of app failed: no such file"));
}

#[test]
fn end_on_a_cluster_without_records_is_judged_by_exit_codes() {
    let ended = |code: i32, reason: &str| {
        json!([{ "name": "app", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "terminated": { "exitCode": code, "reason": reason } } }])
    };
    let mut seen = seen(vec![
        pod("web-a", ended(137, "Error")),
        pod("web-b", ended(143, "Error")),
        pod("web-c", ended(137, "OOMKilled")),
        pod("web-d", json!([])),
        PodSeen { gone_ms: None, ..pod("web-e", json!([])) },
        PodSeen { gone_ms: None, asked_ms: None, ..pod("web-f", json!([])) },
    ]);
    seen.keeps_records = false;
    let report = of(&seen);
    let verdicts: Vec<PodVerdict> = report.pods.iter().map(|pod| pod.verdict).collect();
    use PodVerdict::{Exited, Forced, Leaving, Unknown, Untouched};
    assert_eq!(verdicts, [Forced, Exited, Exited, Unknown, Leaving, Untouched]);
    assert_eq!(codes(&report), ["forced", "oom-killed"]);
    assert_eq!(
        (report.pods[0].ended.as_str(), report.pods[1].ended.as_str()),
        ("app 137 (SIGKILL)", "app 143 (SIGTERM)")
    );
    assert!(report.notes.iter().any(|note| note.starts_with("web-b: app died of SIGTERM")), "{:?}", report.notes);
    assert!(report.to_stop_signal.is_none());
}

#[test]
fn drill_that_is_called_off_or_takes_too_long_is_no_success() {
    let mut called_off = seen(good());
    called_off.ending = Ending::Interrupted(2);
    let report = of(&called_off);
    assert_eq!(report.result, DrillResult::Incomplete);
    assert!(report.notes.iter().any(|note| note.contains("adieu rollout status deployment/web -n shop")), "{report:?}");
    let mut late = seen(vec![PodSeen { gone_ms: None, record: None, ..recorded("web-a", "", 0, vec![]) }]);
    late.ending = Ending::TimedOut("every pod is replaced".to_owned());
    let report = of(&late);
    assert_eq!((report.result, codes(&report)), (DrillResult::Failed, vec!["unfinished"]));
    assert!(report.findings[0].advice[0].contains("adieu why pod/web-a -n shop"), "{:?}", report.findings);
}

#[test]
fn drill_whose_client_died_in_the_middle_is_no_success_and_says_so() {
    let mut seen = seen(good());
    seen.load.as_mut().unwrap().counts.is_final = false;
    let report = of(&seen);
    assert_eq!((report.result, report.incomplete_because), (DrillResult::Incomplete, Some(report::CLIENT_ENDED)));
    let (text, xml) = (show::text(&report), junit::xml(&report));
    let last = text.lines().last().unwrap();
    assert!(last.contains("the client ended before the drill did") && !last.contains("called off"), "{text}");
    assert!(xml.contains("<skipped message=\"the client ended before the drill did: its last"), "{xml}");
    seen.load.as_mut().unwrap().counts.lost.insert("reset".to_owned(), 1);
    seen.load.as_mut().unwrap().counts.kinds.entry(ConnectionKind::New).or_default().lost.insert(Loss::Reset, 1);
    let report = of(&seen);
    assert_eq!((report.result, report.incomplete_because), (DrillResult::Failed, None), "what was found counts");
    seen.load = None;
    assert_eq!(of(&seen).result, DrillResult::Passed);
}

#[test]
fn report_for_people_cannot_move_the_cursor() {
    let mut seen = seen(vec![recorded("web-a", "hurried", 5, vec![])]);
    seen.pods[0].record.as_mut().unwrap().summary = "a\u{1b}[2Jb".to_owned();
    let text = show::text(&of(&seen));
    assert!(!text.contains('\u{1b}') && text.contains("found: web-a: a"), "{text}");
}

#[test]
fn junit_has_a_case_for_the_requests_and_for_each_pod_and_is_sound_xml() {
    let mut bad = good();
    bad[1] = recorded("web-b", "forced", 30_012, killed_at(30_000));
    let report = losing(&[(ConnectionKind::New, Loss::Refused, 2)], bad);
    let xml = junit::xml(&report);
    assert!(xml.contains("tests=\"5\" failures=\"2\" errors=\"0\" skipped=\"0\""), "{xml}");
    assert!(
        xml.contains("<testcase classname=\"deployment.apps/web\" name=\"web-b leaves well\" time=\"30.012\">"),
        "{xml}"
    );
    assert!(xml.contains("<failure message=\"2 of 1002 requests were lost: 2 refused;"), "{xml}");
    // Every element that begins ends.
    let (begun, ended) = (xml.matches("<testcase ").count(), xml.matches("</testcase>").count());
    assert_eq!((begun, ended, xml.matches("<failure ").count()), (5, 5, xml.matches("</failure>").count()));
    let mut called_off = seen(good());
    called_off.ending = Ending::Interrupted(2);
    assert!(junit::xml(&of(&called_off)).contains("<skipped message=\"it was called off\"/>"));
}

#[test]
fn report_for_programs_names_every_fate() {
    let report = losing(&[(ConnectionKind::New, Loss::ServerError, 2)], good());
    let value = serde_json::to_value(&report).unwrap();
    assert_eq!(value["result"], "failed");
    assert_eq!(value["requests"]["byConnection"]["new"]["lost"]["serverError"], 2);
    assert_eq!(value["requests"]["byConnection"]["kept"]["answered"], 500);
    assert_eq!((&value["findings"][0]["code"], &value["pods"][2]["toGoneMs"]), (&json!("requests-lost"), &json!(900)));
}

#[test]
fn consent_is_asked_of_people_and_refused_in_pipes_unless_the_cluster_is_ones_own() {
    use Consent::{Given, Missing, ToBeAsked};
    for ((is_local, yes, stdin_is_terminal), expected) in [
        ((true, false, false), Given),
        ((false, true, false), Given),
        ((false, false, true), ToBeAsked),
        ((false, false, false), Missing),
    ] {
        assert_eq!(needed_consent(is_local, yes, stdin_is_terminal), expected);
    }
}

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: DrillArgs,
}

#[test]
fn command_line_refuses_what_does_not_go_together() {
    let is_taken = |line: &str| Line::try_parse_from(std::iter::once("drill").chain(line.split_whitespace())).is_ok();
    for line in ["deploy/web", "deploy/web --kill --pods 2", "--save-client-image x.tar", "pod/web --timeout 90s"] {
        assert!(is_taken(line), "{line}");
    }
    for line in [
        "",
        "web",
        "deploy/web --pods 2",
        "deploy/web --kill --pods 0",
        "deploy/web --url http://a --service b",
        "deploy/web --rate 0",
        "deploy/web --rate 5001",
        "deploy/web --path health",
        "deploy/web --timeout 0",
        "deploy/web --no-load --from pod",
    ] {
        assert!(!is_taken(line), "{line}");
    }
}

fn arguments(line: &str) -> DrillArgs {
    Line::parse_from(std::iter::once("drill").chain(line.split_whitespace())).args
}

#[test]
fn junit_file_that_cannot_be_written_to_is_told_before_anything_else_is_done() {
    let (environment, mut out) = (Environment::default(), Vec::new());
    let surroundings = Surroundings {
        environment: &environment,
        program: Path::new("/absent"),
        is_root: false,
        screen: progress::Screen::Lines,
        now: || Timestamp::UNIX_EPOCH,
    };
    let args = arguments("deploy/web --kubeconfig /absent/kubeconfig --junit /absent/drill.xml");
    let refused = run(&args, surroundings, &mut out).unwrap_err().to_string();
    assert_eq!(refused, "cannot write to /absent/drill.xml");
}

#[test]
fn report_is_shown_before_it_is_written_to_a_file_whose_former_text_it_replaces() {
    let (args, report, dir) = (arguments("deploy/web"), of(&seen(good())), tempfile::tempdir().unwrap());
    let mut out = Vec::new();
    let full = junit_file(Path::new("/dev/full")).unwrap();
    print(&args, &report, Some(full), &mut out).unwrap_err();
    assert_eq!(String::from_utf8(out).unwrap(), show::text(&report));
    let file = dir.path().join("drill.xml");
    std::fs::write(&file, "x".repeat(1 << 16)).unwrap();
    let opened = junit_file(&file).unwrap();
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 1 << 16, "kept until there is a report");
    print(&args, &report, Some(opened), &mut Vec::new()).unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), junit::xml(&report));
}
