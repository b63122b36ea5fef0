//! Workloads in one line each.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{AGE, Column, NAME, NONE, human_duration, since, text};
use crate::rules::value::{list, word};
use crate::selector::object as selector;
use crate::{meta, time};

const CONTAINERS: Column = Column("Containers", "string", "", 1, "Names of the containers in the template.");
const IMAGES: Column = Column("Images", "string", "", 1, "Images of the containers in the template.");
const SELECTOR: Column = Column("Selector", "string", "", 1, "Which pods belong to it.");

pub(super) const DEPLOYMENT: [Column; 8] = [
    NAME,
    Column("Ready", "string", "", 0, "Ready pods of those wanted."),
    Column("Up-to-date", "integer", "", 0, "Pods of the newest template."),
    Column("Available", "integer", "", 0, "Pods that have been ready for long enough."),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
pub(super) const REPLICA_SET: [Column; 8] = [
    NAME,
    Column("Desired", "integer", "", 0, "Pods wanted."),
    Column("Current", "integer", "", 0, "Pods there are."),
    Column("Ready", "integer", "", 0, "Pods that are ready."),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
pub(super) const SCALE: [Column; 4] = [
    NAME,
    Column("Desired", "integer", "", 0, "Pods wanted."),
    Column("Available", "integer", "", 0, "Pods there are."),
    AGE,
];
pub(super) const STATEFUL_SET: [Column; 5] =
    [NAME, Column("Ready", "string", "", 0, "Ready pods of those wanted."), AGE, CONTAINERS, IMAGES];
pub(super) const DAEMON_SET: [Column; 11] = [
    NAME,
    Column("Desired", "integer", "", 0, "Nodes that should run a pod."),
    Column("Current", "integer", "", 0, "Nodes that run one."),
    Column("Ready", "integer", "", 0, "Nodes whose pod is ready."),
    Column("Up-to-date", "integer", "", 0, "Nodes whose pod is of the newest template."),
    Column("Available", "integer", "", 0, "Nodes whose pod has been ready for long enough."),
    Column("Node Selector", "string", "", 0, "Which nodes are meant."),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
pub(super) const JOB: [Column; 8] = [
    NAME,
    Column("Status", "string", "", 0, "Where the job stands."),
    Column("Completions", "string", "", 0, "Pods that succeeded of those wanted."),
    Column("Duration", "string", "", 0, "How long it has been running, or ran."),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
pub(super) const CRON_JOB: [Column; 10] = [
    NAME,
    Column("Schedule", "string", "", 0, "When jobs are made."),
    Column("Timezone", "string", "", 0, "The time zone of the schedule."),
    Column("Suspend", "boolean", "", 0, "Whether it makes none for now."),
    Column("Active", "integer", "", 0, "Jobs that run."),
    Column("Last Schedule", "string", "", 0, "When the last job was made."),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

fn of_containers(template: &Value, key: &str) -> Value {
    let words: Vec<&str> = list(&template["spec"], "containers").iter().map(|container| word(container, key)).collect();
    json!(words.join(","))
}

/// A selector for people: `<none>` takes nothing in particular.
pub(super) fn selector_text(own: &Value) -> String {
    let bare = own.get("matchLabels").is_none() && own.get("matchExpressions").is_none();
    let text = if bare { selector::to_text(&json!({ "matchLabels": own })) } else { selector::to_text(own) };
    if text.is_empty() { NONE.to_owned() } else { text }
}

/// Name, age, containers, images and selector, which every workload shows.
struct Common {
    name: Value,
    age: Value,
    containers: Value,
    images: Value,
    selector: Value,
}

impl Common {
    fn of(object: &Value, template: &Value, now: Timestamp) -> Self {
        Self {
            name: json!(meta::name(object)),
            age: json!(since(meta::creation_timestamp(object), now)),
            containers: of_containers(template, "name"),
            images: of_containers(template, "image"),
            selector: json!(selector_text(&object["spec"]["selector"])),
        }
    }
}

pub(super) fn cells(collection: &str, object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let template =
        if collection == "cronjobs.batch" { &spec["jobTemplate"]["spec"]["template"] } else { &spec["template"] };
    let Common { name, age, containers, images, selector } = Common::of(object, template, now);
    let ready = json!(format!("{}/{}", number(&status["readyReplicas"]), number(&spec["replicas"])));
    let count = |key: &str| json!(number(&status[key]));
    match collection {
        "deployments.apps" => {
            vec![name, ready, count("updatedReplicas"), count("availableReplicas"), age, containers, images, selector]
        }
        "scales.autoscaling" => vec![name, json!(number(&spec["replicas"])), count("replicas"), age],
        "statefulsets.apps" => vec![name, ready, age, containers, images],
        "daemonsets.apps" => {
            let nodes = selector_text(&json!({ "matchLabels": template["spec"]["nodeSelector"] }));
            vec![
                name,
                count("desiredNumberScheduled"),
                count("currentNumberScheduled"),
                count("numberReady"),
                count("updatedNumberScheduled"),
                count("numberAvailable"),
                json!(nodes),
                age,
                containers,
                images,
                selector,
            ]
        }
        "jobs.batch" => {
            vec![
                name,
                json!(job_status(object)),
                json!(completions(object)),
                json!(duration(object, now)),
                age,
                containers,
                images,
                selector,
            ]
        }
        "cronjobs.batch" => {
            let last = time::parse(text(&status["lastScheduleTime"]));
            let zone = text(&spec["timeZone"]);
            vec![
                name,
                json!(text(&spec["schedule"])),
                json!(if zone.is_empty() { NONE } else { zone }),
                json!(if spec["suspend"] == json!(true) { "True" } else { "False" }),
                json!(list(status, "active").len()),
                json!(last.map_or_else(|| NONE.to_owned(), |last| since(Some(last), now))),
                age,
                containers,
                images,
                json!(selector_text(&spec["jobTemplate"]["spec"]["selector"])),
            ]
        }
        // ReplicaSets and ReplicationControllers.
        _ => vec![
            name,
            json!(number(&spec["replicas"])),
            count("replicas"),
            count("readyReplicas"),
            age,
            containers,
            images,
            selector,
        ],
    }
}

fn has(object: &Value, condition: &str) -> bool {
    list(&object["status"], "conditions").iter().any(|c| c["type"] == condition && c["status"] == "True")
}

fn job_status(job: &Value) -> &'static str {
    if has(job, "Complete") {
        "Complete"
    } else if has(job, "Failed") {
        "Failed"
    } else if meta::deletion_timestamp(job).is_some() {
        "Terminating"
    } else if has(job, "Suspended") {
        "Suspended"
    } else if has(job, "FailureTarget") {
        "FailureTarget"
    } else if has(job, "SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}

fn completions(job: &Value) -> String {
    let (spec, done) = (&job["spec"], number(&job["status"]["succeeded"]));
    match (spec["completions"].as_i64(), number(&spec["parallelism"])) {
        (Some(wanted), _) => format!("{done}/{wanted}"),
        (None, parallel) if parallel > 1 => format!("{done}/1 of {parallel}"),
        (None, _) => format!("{done}/1"),
    }
}

fn duration(job: &Value, now: Timestamp) -> String {
    let status = &job["status"];
    match (time::parse(text(&status["startTime"])), time::parse(text(&status["completionTime"]))) {
        (None, _) => String::new(),
        (Some(start), end) => human_duration(end.unwrap_or(now).duration_since(start)),
    }
}
