//! A report for people.

use std::fmt::Write as _;

use super::report::{DrillResult, Report, Requests, Spread};
use crate::demo::screen::number;
use crate::load::{ConnectionKind, Loss};
use crate::table::{aligned, plain};

/// So many pods have a line each.
const PODS_MOST: usize = 50;

/// All of it.
pub(super) fn text(report: &Report) -> String {
    let Report { workload, namespace, pods, .. } = report;
    let way = if report.way == "restart" { "rolling restart" } else { "one pod after the other" };
    let mut text = format!("drill of {workload} in namespace {namespace}: {way}, {}\n", count(pods.len(), "pod"));
    if let Some(requests) = &report.requests {
        text.push('\n');
        text.push_str(&requests_text(requests));
    }
    text.push('\n');
    text.push_str(&pods_text(report));
    for (name, spread) in [("stop signal", report.to_stop_signal), ("gone", report.to_gone)] {
        if let Some(Spread { p50_ms, max_ms, pods }) = spread {
            let _ =
                writeln!(text, "delete to {name}: p50 {}, max {} (of {})", ms(p50_ms), ms(max_ms), count(pods, "pod"));
        }
    }
    for (name, said) in [("note", &report.notes), ("unknown", &report.unknown)] {
        for line in said {
            let _ = writeln!(text, "{name}: {}", plain(line));
        }
    }
    for finding in &report.findings {
        let _ = writeln!(text, "\nfound: {} [{}]", plain(&finding.sentence()), finding.code);
        for advice in &finding.advice {
            let _ = writeln!(text, "   do: {}", plain(advice));
        }
    }
    let _ = writeln!(text, "\n{}", verdict(report));
    text
}

fn requests_text(requests: &Requests) -> String {
    let Requests { from, to, rate_per_second, .. } = requests;
    let mut text = format!("{rate_per_second} requests a second {from} to {to}\n");
    let shown: Vec<Loss> =
        Loss::ALL.into_iter().filter(|loss| *loss != Loss::Other || requests.lost_by(*loss) > 0).collect();
    let mut head = vec!["connections".to_owned(), "answered".to_owned()];
    head.extend(shown.iter().map(|loss| loss.text().to_owned()));
    head.push("closed idle".to_owned());
    let mut rows = vec![head];
    for (kind, counts) in &requests.by_connection {
        let name = match kind {
            ConnectionKind::New => "new",
            ConnectionKind::Kept => "kept",
            ConnectionKind::Download => "download",
        };
        let mut row = vec![name.to_owned(), number(counts.answered)];
        row.extend(shown.iter().map(|loss| number(counts.lost.get(loss).copied().unwrap_or(0))));
        row.push(number(counts.idle_closes));
        rows.push(row);
    }
    text.push_str(&aligned(&rows));
    for (reason, times) in &requests.reasons {
        let _ = writeln!(text, "lost: {} ({reason})", number(*times));
    }
    text
}

fn pods_text(report: &Report) -> String {
    let head = ["pod", "verdict", "grace", "stop signal", "gone", "exit codes"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let time = |time: Option<u64>| time.map_or_else(|| "-".to_owned(), ms);
    for pod in report.pods.iter().take(PODS_MOST) {
        let ended = if pod.ended.is_empty() { "-" } else { &pod.ended };
        rows.push(vec![
            pod.name.clone(),
            pod.verdict.text().to_owned(),
            format!("{} s", pod.grace_seconds),
            time(pod.to_stop_signal_ms),
            time(pod.to_gone_ms),
            ended.to_owned(),
        ]);
    }
    let more = report.pods.len().saturating_sub(PODS_MOST);
    let more = if more > 0 { format!("and {}\n", count(more, "more pod")) } else { String::new() };
    aligned(&rows) + &more
}

/// The last line.
pub(super) fn verdict(report: &Report) -> String {
    let lost = match &report.requests {
        Some(requests) => format!("{} requests, {} lost", number(requests.total), number(requests.lost)),
        None => "no requests sent".to_owned(),
    };
    let forced = format!("{} killed by force", count(report.forced_kills, "pod"));
    let word = match report.result {
        DrillResult::Passed => "passed".to_owned(),
        DrillResult::Failed => format!("failed, {}", count(report.findings.len(), "finding")),
        DrillResult::Incomplete => {
            format!("incomplete, nothing was found so far; {}", report.incomplete_because.unwrap_or_default())
        }
    };
    format!("{word}: {lost}, {forced}")
}

/// `1 pod`, `3 pods`.
pub(super) fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// `6 ms`, `3.1 s`.
pub(super) fn ms(time: u64) -> String {
    if time < 1000 { format!("{time} ms") } else { format!("{}.{} s", time / 1000, time % 1000 / 100) }
}
