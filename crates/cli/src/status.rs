//! `adieu status`: what an instance says of itself, for people and for programs.

use std::io::{self, Write};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::Output;

/// So many pods are named; the rest is counted.
const NAMED_MOST: usize = 10;

/// An instance that is up.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// What this build calls itself.
    pub version: String,
    /// The process.
    pub pid: u32,
    /// Since when it has been ready.
    pub since: Timestamp,
    /// Where the API is.
    pub api: String,
    /// What clients use to get there.
    pub kubeconfig: String,
    /// The node, if there is one.
    pub node: Option<NodeStatus>,
    /// Every pod.
    pub pods: Vec<PodStatus>,
}

/// The node as the API shows it.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// Whether it says that it can run pods.
    pub ready: bool,
    /// What it is short of.
    pub pressures: Vec<String>,
}

/// A pod as the API shows it.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(rename_all = "camelCase")]
pub struct PodStatus {
    /// Where it is.
    pub namespace: String,
    /// What it is called.
    pub name: String,
    /// Its phase.
    pub phase: String,
    /// When its grace ends, once it is leaving: deleted, or sent away by its node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// Nothing of it is left to end: these finalizers alone keep its object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_by: Vec<String>,
}

/// Writes that no instance answers, and `why`.
pub fn show_absent(why: &str, output: Output, out: &mut impl Write) -> io::Result<()> {
    match output {
        Output::Json => {
            serde_json::to_writer_pretty(&mut *out, &serde_json::json!({ "up": false, "message": why }))?;
            writeln!(out)
        }
        Output::Table => writeln!(out, "{why}"),
    }
}

/// Writes what `status` says at `now`.
pub fn show(status: &Status, now: Timestamp, output: Output, out: &mut impl Write) -> io::Result<()> {
    if output == Output::Json {
        #[derive(Serialize)]
        struct Up<'a> {
            up: bool,
            #[serde(flatten)]
            status: &'a Status,
        }
        serde_json::to_writer_pretty(&mut *out, &Up { up: true, status })?;
        return writeln!(out);
    }
    let Status { version, pid, since, api, kubeconfig, node, pods } = status;
    writeln!(out, "adieu is up for {} (process {pid}, {version})", span(now.duration_since(*since)))?;
    writeln!(out, "  api   {api}")?;
    writeln!(out, "        export KUBECONFIG={kubeconfig}")?;
    match node {
        Some(node) => {
            let ready = if node.ready { "ready" } else { "not ready" };
            let short = node.pressures.iter().map(|pressure| format!(", {pressure}")).collect::<String>();
            writeln!(out, "  node  {}: {ready}{short}", node.name)?;
        }
        None => writeln!(out, "  node  none in this process")?,
    }
    writeln!(out, "  pods  {}", count(pods))?;
    let leaving: Vec<_> = pods.iter().filter_map(|pod| Some((pod, pod.deadline?))).collect();
    for (pod, deadline) in leaving.iter().take(NAMED_MOST) {
        let left = deadline.duration_since(now);
        let when = match (pod.held_by.as_slice(), left.is_negative()) {
            ([one], _) => format!("it has ended, and only its finalizer {one} keeps it"),
            ([_, _, ..], _) => format!("it has ended, and only its finalizers {} keep it", pod.held_by.join(", ")),
            ([], false) => format!("{} of its grace left", span(left)),
            ([], true) => format!("its grace was over {} ago", span(-left)),
        };
        writeln!(out, "        {}/{} is leaving: {when}", pod.namespace, pod.name)?;
    }
    if leaving.len() > NAMED_MOST {
        writeln!(out, "        and {} more", leaving.len() - NAMED_MOST)?;
    }
    Ok(())
}

/// `3: 2 running, 1 leaving`.
fn count(pods: &[PodStatus]) -> String {
    if pods.is_empty() {
        return "none".to_owned();
    }
    let state = |pod: &PodStatus| if pod.deadline.is_some() { "leaving".to_owned() } else { pod.phase.to_lowercase() };
    let mut states: Vec<(String, usize)> = Vec::new();
    for state in pods.iter().map(state) {
        match states.iter_mut().find(|(known, _)| *known == state) {
            Some((_, count)) => *count += 1,
            None => states.push((state, 1)),
        }
    }
    states.sort();
    let states: Vec<_> = states.iter().map(|(state, count)| format!("{count} {state}")).collect();
    format!("{}: {}", pods.len(), states.join(", "))
}

/// The two largest units of a time.
fn span(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().max(0);
    let (days, hours, minutes, seconds) = (seconds / 86400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {seconds} s"),
        (0, ..) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, phase: &str, deadline: Option<&str>) -> PodStatus {
        PodStatus {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            phase: phase.to_owned(),
            deadline: deadline.map(|deadline| deadline.parse().expect("a time")),
            held_by: Vec::new(),
        }
    }

    fn status(pods: Vec<PodStatus>) -> Status {
        Status {
            version: "v1".to_owned(),
            pid: 7,
            since: "2026-01-01T00:00:00Z".parse().expect("a time"),
            api: "https://127.0.0.1:6443".to_owned(),
            kubeconfig: "/d/admin.kubeconfig".to_owned(),
            node: Some(NodeStatus { name: "n".to_owned(), ready: true, pressures: vec!["DiskPressure".to_owned()] }),
            pods,
        }
    }

    fn shown(status: &Status) -> String {
        let mut out = Vec::new();
        let now = "2026-01-01T02:03:04Z".parse().expect("a time");
        show(status, now, Output::Table, &mut out).expect("memory");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn status_shows_leaving_pods_and_their_time_left() {
        let pods = vec![
            pod("a", "Running", None),
            pod("b", "Running", Some("2026-01-01T02:03:24Z")),
            pod("c", "Pending", Some("2026-01-01T02:00:00Z")),
            pod("d", "Running", None),
        ];
        let expected = "\
adieu is up for 2 h 3 min (process 7, v1)
  api   https://127.0.0.1:6443
        export KUBECONFIG=/d/admin.kubeconfig
  node  n: ready, DiskPressure
  pods  4: 2 leaving, 2 running
        default/b is leaving: 20 s of its grace left
        default/c is leaving: its grace was over 3 min 4 s ago
";
        assert_eq!(shown(&status(pods)), expected);
    }

    #[test]
    fn status_of_a_pod_held_by_finalizers_shows_no_grace() {
        let mut pods = vec![pod("a", "Failed", Some("2026-01-01T02:00:00Z")); 2];
        pods[0].held_by = vec!["x.io/one".to_owned()];
        pods[1].held_by = ["x.io/one", "x.io/two"].map(str::to_owned).to_vec();
        let text = shown(&status(pods));
        let lines = "  pods  2: 2 leaving\n        default/a is leaving: it has ended, and only its finalizer x.io/one keeps it\n        \
                     default/a is leaving: it has ended, and only its finalizers x.io/one, x.io/two keep it\n";
        assert!(text.ends_with(lines), "{text}");
    }

    /// Programs read one kind of answer, whoever gives it.
    #[test]
    fn status_of_an_absent_instance_keeps_the_output_format() {
        let said = |output| {
            let mut out = Vec::new();
            show_absent("adieu is down on /d", output, &mut out).expect("memory");
            String::from_utf8(out).expect("text")
        };
        assert_eq!(said(Output::Table), "adieu is down on /d\n");
        let answer: serde_json::Value = serde_json::from_str(&said(Output::Json)).expect("JSON");
        assert_eq!(answer, serde_json::json!({ "up": false, "message": "adieu is down on /d" }));
        let mut out = Vec::new();
        show(&status(Vec::new()), Timestamp::UNIX_EPOCH, Output::Json, &mut out).expect("memory");
        let answer: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
        assert_eq!((&answer["up"], &answer["version"]), (&serde_json::json!(true), &serde_json::json!("v1")));
    }

    #[test]
    fn status_counts_many_leaving_pods() {
        let pods = (0..12).map(|number| pod(&format!("p{number}"), "Running", Some("2026-01-01T02:03:24Z"))).collect();
        let text = shown(&status(pods));
        assert!(
            text.contains("default/p9 ") && !text.contains("p10") && text.ends_with("        and 2 more\n"),
            "{text}"
        );
        assert!(shown(&status(Vec::new())).contains("  pods  none\n"));
    }
}
