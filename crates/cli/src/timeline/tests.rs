//! Drawings of ends, as text and as pictures.
#![allow(clippy::unwrap_used, reason = "tests")]

use api::termination::{EndedPod, TerminationRequest, TerminationStep, step};
use serde_json::json;

use super::*;

fn at(after: i64, kind: &str) -> TerminationStep {
    TerminationStep {
        after_milliseconds: after,
        type_: kind.into(),
        container: "app".into(),
        ..TerminationStep::default()
    }
}

fn forced() -> TerminationRecord {
    let signal = |own: TerminationStep| TerminationStep { signal: "SIGTERM".into(), ..own };
    let hook = |own: TerminationStep| TerminationStep { hook: "preStop".into(), ..own };
    TerminationRecord {
        pod: EndedPod { name: "web-0".into(), ..EndedPod::default() },
        node_name: "n1".into(),
        verdict: "forced".into(),
        summary: "Deleted by alice with 10 s; app had to be killed; over after 10.020 s".into(),
        barrier: "LocalCut".into(),
        requests: vec![TerminationRequest { deadline_milliseconds: Some(10_000), ..TerminationRequest::default() }],
        took_milliseconds: Some(10_020),
        steps: vec![
            TerminationStep { message: "delete requested, grace 10s".into(), ..at(0, step::REQUESTED) },
            TerminationStep { container: String::new(), ..at(0, step::CUT_ASKED) },
            TerminationStep {
                container: String::new(),
                result: "LocalCut".into(),
                connections: Some(2),
                ..at(6, step::DRAINED)
            },
            hook(at(6, step::HOOK_STARTED)),
            hook(TerminationStep {
                result: "Failed".into(),
                output: "first\nsecond".into(),
                ..at(2_006, step::HOOK_ENDED)
            }),
            signal(at(2_006, step::SIGNAL_ASKED)),
            signal(TerminationStep { result: "Delivered".into(), ..at(2_007, step::SIGNAL_DELIVERED) }),
            at(10_000, step::KILL_ASKED),
            TerminationStep {
                exit_code: Some(137),
                message: "app.0 ended by KILL, exit code 137".into(),
                ..at(10_004, step::EXITED)
            },
            at(10_004, step::SANDBOX_REMOVAL_ASKED),
            at(10_015, step::SANDBOX_REMOVED),
            at(10_015, step::DELETE_ASKED),
            at(10_020, step::DELETED),
        ],
        ..TerminationRecord::default()
    }
}

#[test]
fn end_is_drawn_as_bars_and_lines() {
    let drawn = draw("shop", &forced(), "", 100);
    let lines: Vec<&str> = drawn.lines().collect();
    assert_eq!(lines[0], "pod/web-0 in namespace shop on n1, forced");
    for word in [
        "drain",
        "preStop app",
        "stop app",
        "clear up",
        "object",
        "7.998 s  SIGTERM, KILL, exit code 137",
        "     0.006  new connections go elsewhere, or are not waited for (LocalCut) (2 connections open)",
        "     2.006  preStop hook of app: Failed\n            | first\n            | second",
        "    10.000  -> SIGKILL to app",
        "    10.004  app.0 ended by KILL, exit code 137",
        "    10.020  the object is gone",
    ] {
        assert!(drawn.contains(word), "{word:?} in\n{drawn}");
    }
    assert!(lines.iter().all(|line| line.chars().count() <= 110), "{drawn}");
    let stop = lines.iter().find(|line| line.contains("stop app")).unwrap();
    let drain = lines.iter().find(|line| line.contains("drain")).unwrap();
    let width = |line: &str, letter| line.chars().filter(|own| *own == letter).count();
    assert!(width(stop, '▓') > 30 && width(drain, '░') == 1, "{drawn}");
}

#[test]
fn end_that_goes_on_is_drawn_to_where_it_is() {
    let mut record = forced();
    record.steps.truncate(4);
    (record.took_milliseconds, record.summary) = (None, String::new());
    let drawn = draw("shop", &record, "it is still leaving", 100);
    assert!(drawn.contains("goes on") && drawn.contains("(it is still leaving)"), "{drawn}");
}

#[test]
fn record_of_any_shape_is_drawn() {
    let odd = TerminationStep { after_milliseconds: i64::MIN, type_: "Odd".into(), ..TerminationStep::default() };
    for record in [
        TerminationRecord::default(),
        TerminationRecord {
            took_milliseconds: Some(-5),
            steps: vec![odd, at(i64::MAX, step::SIGNAL_ASKED)],
            ..forced()
        },
    ] {
        assert!(!draw("shop", &record, "", 0).is_empty());
        assert!(picture("shop", &record, "").ends_with("</svg>\n"));
    }
}

#[test]
fn picture_is_well_formed_whatever_names_and_messages_say() {
    let mut record = forced();
    record.summary = "<script>\"&\u{1}".into();
    record.steps[5].container = "a<b".into();
    let svg = picture("shop", &record, "");
    assert!(svg.contains("&lt;script&gt;&quot;&amp;") && !svg.contains("<script"), "{svg}");
    assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    assert!(svg.contains("deadline") && svg.contains("KILL"));
}

#[test]
fn foreign_cluster_is_drawn_from_the_object_and_its_events_and_says_so() {
    let pod = json!({
        "metadata": { "name": "web", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": 30 },
        "spec": { "nodeName": "n1" },
        "status": { "containerStatuses": [
            { "name": "app", "state": { "terminated": { "finishedAt": "2026-01-01T00:00:12Z", "exitCode": 0 } } }] },
    });
    let killing =
        json!({ "reason": "Killing", "message": "Stopping container app", "lastTimestamp": "2026-01-01T00:00:01Z" });
    let facts = PodFacts { name: "web".into(), pod: Some(pod), events: vec![killing.clone()], ..PodFacts::default() };
    let (record, source) = timeline(&facts).unwrap();
    assert_eq!(source, Source::Events);
    let steps: Vec<String> = record.steps.iter().map(step_text).collect();
    assert_eq!(
        steps,
        [
            "     0.000  delete requested, grace 30 s",
            "     1.000  Killing: Stopping container app",
            "    12.000  app exited with code 0",
        ]
    );
    let drawn = draw("shop", &record, source.remark(), 100);
    assert!(drawn.contains("object and events alone"), "{drawn}");
    let alive = PodFacts { pod: Some(json!({ "metadata": {} })), ..PodFacts::default() };
    assert!(timeline(&alive).is_none());
    let gone = PodFacts { name: "web".into(), events: vec![killing], ..PodFacts::default() };
    assert_eq!(timeline(&gone).map(|(record, source)| (record.steps.len(), source)), Some((1, Source::Events)));
}
