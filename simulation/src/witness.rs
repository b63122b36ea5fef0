//! Who sees what the API has: on the store itself, with no wire in between; and what the node hears of it.

use serde_json::Value;
use store::{Change, Object, Store};

use crate::clock::ms_of_wall;
use crate::machine::Life;
use crate::trace::{JobShown, Member, Run, Shown, TraceEvent};
use crate::workload::ROLLOUT;

/// Notes every change of a pod from now on, and what is there already.
pub async fn watch(life: Life, store: Store) {
    let (page, mut watch) = store.list_and_watch("pods", "");
    let there = page.items.iter().map(|object| label(&life, &object.value())).collect();
    for gone in life.machine.gone_unseen(&there) {
        life.machine.note(&gone, TraceEvent::ApiGone);
    }
    for object in page.items {
        note(&life, &object);
    }
    while let Some(change) = watch.next().await {
        match change {
            Change::Added(object) | Change::Modified { after: object, .. } => note(&life, &object),
            Change::Deleted { last, .. } => {
                let value = last.value();
                life.machine.note(&label(&life, &value), TraceEvent::ApiGone);
            }
        }
    }
}

/// Notes every record of an end, from now on and what is there already.
pub async fn watch_records(life: Life, store: Store) {
    let (page, mut watch) = store.list_and_watch("terminationrecords.adieu.dev", "");
    for object in page.items {
        note_record(&life, &object);
    }
    while let Some(change) = watch.next().await {
        match change {
            Change::Added(object) | Change::Modified { after: object, .. } => note_record(&life, &object),
            Change::Deleted { .. } => {}
        }
    }
}

/// Notes what becomes of Jobs.
pub async fn watch_jobs(life: Life, store: Store) {
    let (page, mut watch) = store.list_and_watch("jobs.batch", "");
    for object in page.items {
        note_job(&life, &object);
    }
    while let Some(change) = watch.next().await {
        match change {
            Change::Added(object) | Change::Modified { after: object, .. } => note_job(&life, &object),
            Change::Deleted { .. } => {}
        }
    }
}

fn note_job(life: &Life, object: &Object) {
    let value = object.value();
    let conditions = value["status"]["conditions"].as_array().into_iter().flatten();
    let complete = conditions.into_iter().any(|it| it["type"] == "Complete" && it["status"] == "True");
    let succeeded = value["status"]["succeeded"].as_u64().unwrap_or(0);
    life.machine.note(&object.key.name, TraceEvent::Job(JobShown { succeeded, complete }));
}

fn note_record(life: &Life, object: &Object) {
    let value = object.value();
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (uid, name) = (word(&value["pod"]["uid"]), word(&value["pod"]["name"]));
    let recorded = TraceEvent::Recorded(object.key.name.to_string(), word(&value["verdict"]));
    life.machine.note(&life.machine.label(&uid, &name), recorded);
}

fn note(life: &Life, object: &Object) {
    let value = object.value();
    life.machine.note(&label(life, &value), TraceEvent::Api(shown(&value, object.revision.0)));
}

/// A mirror goes by the UID of the pod that it shows.
fn label(life: &Life, pod: &Value) -> String {
    let meta = &pod["metadata"];
    let mirrored = &meta["annotations"]["kubernetes.io/config.mirror"];
    let name = meta["name"].as_str().unwrap_or_default();
    match mirrored.as_str() {
        Some(_) => format!("mirror:{}", crate::machine::plan_name(name)),
        None => life.machine.label(meta["uid"].as_str().unwrap_or_default(), name),
    }
}

fn shown(pod: &Value, revision: u64) -> Shown {
    let (meta, status) = (&pod["metadata"], &pod["status"]);
    let time = |text: &Value| text.as_str().and_then(millis);
    let deletion =
        time(&meta["deletionTimestamp"]).map(|at| (at, meta["deletionGracePeriodSeconds"].as_i64().unwrap_or(0)));
    let (mut ended, mut running) = (Vec::new(), Vec::new());
    let lists = ["initContainerStatuses", "containerStatuses"];
    for container in lists.iter().flat_map(|list| status[*list].as_array().into_iter().flatten()) {
        let attempt = u32::try_from(container["restartCount"].as_u64().unwrap_or(0)).unwrap_or(0);
        let run = |attempt| Run { container: container["name"].as_str().unwrap_or_default().to_owned(), attempt };
        let code = |state: &Value| state["terminated"]["exitCode"].as_i64().and_then(|code| i32::try_from(code).ok());
        if container["state"]["running"].is_object() {
            running.push(run(attempt));
        }
        ended.extend(code(&container["state"]).map(|code| (run(attempt), code)));
        if let (Some(code), Some(before)) = (code(&container["lastState"]), attempt.checked_sub(1)) {
            ended.push((run(before), code));
        }
    }
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let ready = conditions.into_iter().any(|it| it["type"] == "Ready" && it["status"] == "True");
    let phase = status["phase"].as_str().unwrap_or("-").to_owned();
    let node = pod["spec"]["nodeName"].as_str().map(str::to_owned);
    Shown { phase, deletion, ended, running, ready, node, revision, member: member(meta) }
}

fn member(meta: &Value) -> Option<Member> {
    let annotations = &meta["annotations"];
    let rollout = annotations[ROLLOUT].as_str()?.parse().ok()?;
    let index = annotations["batch.kubernetes.io/job-completion-index"].as_str();
    let name = meta["name"].as_str().unwrap_or_default().to_owned();
    Some(Member { name, rollout, index: index.and_then(|index| index.parse().ok()) })
}

/// `2026-11-18T00:00:05Z` in milliseconds of the world.
fn millis(text: &str) -> Option<i64> {
    let time: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time = serde_json::from_value(text.into()).ok()?;
    Some(ms_of_wall(time.0.as_millisecond()))
}

/// The node was given a part of a watch.
pub fn heard(life: &Life, frame: &[u8]) {
    for line in frame.split(|byte| *byte == b'\n') {
        // Most say nothing of a deletion.
        if !line.windows(17).any(|part| part == b"deletionTimestamp") {
            continue;
        }
        let Ok(event) = serde_json::from_slice::<Value>(line) else { continue };
        let object = &event["object"];
        if object["kind"] == "Pod" && object["metadata"]["deletionTimestamp"].is_string() {
            life.machine.note(&label(life, object), TraceEvent::Heard);
        }
    }
}
