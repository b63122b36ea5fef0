//! A pod in one line: the complete rule of api-deletion 16.2 and 16.3.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{AGE, Column, NAME, or_none, since, text};
use crate::pod::{condition, has_condition, is_ready, is_terminal, is_terminating};
use crate::{meta, time};

pub(super) const COLUMNS: [Column; 9] = [
    NAME,
    Column("Ready", "string", "", 0, "How many of the pod's containers are ready."),
    Column("Status", "string", "", 0, "Where the pod stands."),
    Column("Restarts", "string", "", 0, "How often its containers were restarted, and when last."),
    AGE,
    Column("IP", "string", "", 1, "The pod's address."),
    Column("Node", "string", "", 1, "The node the pod runs on."),
    Column("Nominated Node", "string", "", 1, "The node that makes room for the pod."),
    Column("Readiness Gates", "string", "", 1, "How many of the pod's extra conditions are true."),
];

pub(super) fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let line = PodSummary::of(pod);
    let restarts = match line.last_restart {
        Some(at) if line.restarts > 0 => format!("{} ({} ago)", line.restarts, since(Some(at), now)),
        Some(_) | None => line.restarts.to_string(),
    };
    let status = &pod["status"];
    vec![
        json!(meta::name(pod)),
        json!(format!("{}/{}", line.ready, line.total)),
        json!(line.reason),
        json!(restarts),
        json!(since(meta::creation_timestamp(pod), now)),
        or_none(first_ip(status)),
        or_none(text(&pod["spec"]["nodeName"])),
        or_none(text(&status["nominatedNodeName"])),
        or_none(&readiness_gates(pod)),
    ]
}

fn first_ip(status: &Value) -> &str {
    let first = text(&status["podIPs"][0]["ip"]);
    if first.is_empty() { text(&status["podIP"]) } else { first }
}

fn readiness_gates(pod: &Value) -> String {
    let gates = list(&pod["spec"]["readinessGates"]);
    if gates.is_empty() {
        return String::new();
    }
    let open = gates.iter().filter(|gate| has_condition(pod, text(&gate["conditionType"]))).count();
    format!("{open}/{}", gates.len())
}

/// What is found by walking the container statuses.
struct PodSummary {
    ready: usize,
    total: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
    reason: String,
}

impl PodSummary {
    fn of(pod: &Value) -> Self {
        let (spec, status) = (&pod["spec"], &pod["status"]);
        let sidecars = list(&spec["initContainers"]).iter().filter(|c| is_sidecar(c)).count();
        let phase = text(&status["phase"]);
        let told = text(&status["reason"]);
        let mut line = Self {
            ready: 0,
            total: list(&spec["containers"]).len() + sidecars,
            restarts: 0,
            last_restart: None,
            reason: if told.is_empty() { phase } else { told }.to_owned(),
        };
        let gated = condition(pod, "PodScheduled").is_some_and(|it| it.reason == "SchedulingGated");
        if gated {
            line.reason = "SchedulingGated".to_owned();
        }
        let of_sidecars = line.walk_init(spec, status);
        if let Initializing::No(restarts, last) = of_sidecars.unless(has_condition(pod, "Initialized")) {
            line.restarts = restarts;
            line.last_restart = last;
            line.walk_main(pod, status);
        }
        if is_terminating(pod) {
            if told == "NodeLost" {
                line.reason = "Unknown".to_owned();
            } else if !is_terminal(pod) {
                line.reason = "Terminating".to_owned();
            }
        }
        line
    }

    fn walk_init(&mut self, spec: &Value, status: &Value) -> InitWalk {
        let containers = list(&spec["initContainers"]);
        let mut walk = InitWalk { initializing: false, restarts: 0, last: None };
        for (index, container) in list(&status["initContainerStatuses"]).iter().enumerate() {
            self.count_restarts(container);
            let sidecar = containers.iter().any(|c| c["name"] == container["name"] && is_sidecar(c));
            if sidecar {
                walk.restarts += container["restartCount"].as_i64().unwrap_or(0);
                walk.last = walk.last.max(last_end(container));
            }
            let (ended, waiting) = (&container["state"]["terminated"], &container["state"]["waiting"]);
            if ended.is_object() && ended["exitCode"].as_i64().unwrap_or(0) == 0 {
                continue;
            }
            if sidecar && container["started"] == json!(true) {
                self.ready += usize::from(container["ready"] == json!(true));
                continue;
            }
            self.reason = if ended.is_object() {
                format!("Init:{}", end_reason(ended))
            } else if !matches!(text(&waiting["reason"]), "" | "PodInitializing") {
                format!("Init:{}", text(&waiting["reason"]))
            } else {
                format!("Init:{index}/{}", containers.len())
            };
            walk.initializing = true;
            break;
        }
        walk
    }

    /// From last to first, so that the first container has the last word.
    fn walk_main(&mut self, pod: &Value, status: &Value) {
        let mut running = false;
        let mut error = None;
        for container in list(&status["containerStatuses"]).iter().rev() {
            self.count_restarts(container);
            let (ended, waiting) = (&container["state"]["terminated"], &container["state"]["waiting"]);
            if !text(&waiting["reason"]).is_empty() {
                text(&waiting["reason"]).clone_into(&mut self.reason);
            } else if ended.is_object() {
                self.reason = end_reason(ended);
                if ended["exitCode"].as_i64().unwrap_or(0) != 0 {
                    error = Some(self.reason.clone());
                }
            } else if container["ready"] == json!(true) && container["state"]["running"].is_object() {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" {
            if running && is_ready(pod) {
                self.reason = "Running".to_owned();
            } else if let Some(error) = error {
                self.reason = error;
            } else if running {
                self.reason = "NotReady".to_owned();
            }
        }
    }

    fn count_restarts(&mut self, container: &Value) {
        self.restarts += container["restartCount"].as_i64().unwrap_or(0);
        self.last_restart = self.last_restart.max(last_end(container));
    }
}

struct InitWalk {
    initializing: bool,
    restarts: i64,
    last: Option<Timestamp>,
}

enum Initializing {
    Yes,
    /// Counting starts over with what sidecars contributed.
    No(i64, Option<Timestamp>),
}

impl InitWalk {
    fn unless(self, initialized: bool) -> Initializing {
        if self.initializing && !initialized { Initializing::Yes } else { Initializing::No(self.restarts, self.last) }
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn is_sidecar(container: &Value) -> bool {
    text(&container["restartPolicy"]) == "Always"
}

fn last_end(container: &Value) -> Option<Timestamp> {
    time::parse(text(&container["lastState"]["terminated"]["finishedAt"]))
}

fn end_reason(ended: &Value) -> String {
    match (text(&ended["reason"]), ended["signal"].as_i64().unwrap_or(0)) {
        ("", 0) => format!("ExitCode:{}", ended["exitCode"].as_i64().unwrap_or(0)),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}
