//! What the node counts of ends, as Prometheus reads it. Verdicts and causes are a fixed vocabulary, so no pod makes up a label.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use api::TerminationRecord;

/// Upper bounds, in seconds: from what a barrier takes to what a long drain does.
const BUCKETS: [f64; 14] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 30.0, 120.0, 600.0];

/// The parts of an end, each with its name and what is said of it.
const PHASES: [(&str, &str); 5] = [
    ("adieu_pod_termination_drain_seconds", "From the first request until new connections went elsewhere."),
    ("adieu_pod_termination_hooks_seconds", "From the begin of the first hook to the end of the last."),
    ("adieu_pod_termination_time_to_signal_seconds", "From the first request to the first stop signal."),
    ("adieu_pod_termination_exit_wait_seconds", "From the first stop signal to the last exit."),
    ("adieu_pod_termination_exit_to_gone_seconds", "From the last exit until nothing was left."),
];

/// Counters that live as long as the node's agent.
#[derive(Debug, Default)]
pub struct TerminationMetrics(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// By verdict and cause.
    ends: BTreeMap<(String, String), u64>,
    phases: [Histogram; PHASES.len()],
    whole: Histogram,
    stored: u64,
    refused: u64,
}

#[derive(Debug, Default)]
struct Histogram {
    buckets: [u64; BUCKETS.len()],
    count: u64,
    seconds: f64,
}

impl Histogram {
    fn add(&mut self, millis: i64) {
        let seconds = std::time::Duration::from_millis(u64::try_from(millis).unwrap_or(0)).as_secs_f64();
        for (bucket, limit) in self.buckets.iter_mut().zip(BUCKETS) {
            *bucket += u64::from(seconds <= limit);
        }
        self.count += 1;
        self.seconds += seconds;
    }

    fn write(&self, name: &str, said: &str, out: &mut String) {
        let _ = writeln!(out, "# HELP {name} {said}\n# TYPE {name} histogram");
        for (bucket, limit) in self.buckets.iter().zip(BUCKETS) {
            let _ = writeln!(out, "{name}_bucket{{le=\"{limit}\"}} {bucket}");
        }
        let Self { count, seconds, .. } = self;
        let _ = writeln!(out, "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum {seconds}\n{name}_count {count}");
    }
}

impl TerminationMetrics {
    /// Counts an end.
    pub fn count(&self, record: &TerminationRecord) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.ends.entry((record.verdict.clone(), record.cause.clone())).or_default() += 1;
        if let Some(took) = record.took_milliseconds {
            counts.whole.add(took);
        }
        let Some(phases) = &record.phases else { return };
        let lengths = [
            phases.drain_milliseconds,
            phases.hooks_milliseconds,
            phases.to_signal_milliseconds,
            phases.exit_milliseconds,
            phases.cleanup_milliseconds,
        ];
        for (histogram, length) in counts.phases.iter_mut().zip(lengths) {
            if let Some(length) = length {
                histogram.add(length);
            }
        }
    }

    /// A record is in the API.
    pub fn stored(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).stored += 1;
    }

    /// A record will never be in the API.
    pub fn refused(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).refused += 1;
    }

    /// All of it as text.
    pub fn text(&self) -> String {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = String::new();
        let name = "adieu_pod_terminations_total";
        let _ = writeln!(out, "# HELP {name} Pods that ended on this node.\n# TYPE {name} counter");
        for ((verdict, cause), count) in &counts.ends {
            let _ = writeln!(out, "{name}{{verdict=\"{verdict}\",cause=\"{cause}\"}} {count}");
        }
        for (histogram, (name, said)) in counts.phases.iter().zip(PHASES) {
            histogram.write(name, said, &mut out);
        }
        let said = "From the first request until the pod was gone.";
        counts.whole.write("adieu_pod_termination_duration_seconds", said, &mut out);
        let name = "adieu_termination_records_total";
        let _ = writeln!(out, "# HELP {name} Records of terminations by what became of them.\n# TYPE {name} counter");
        let _ = writeln!(
            out,
            "{name}{{result=\"stored\"}} {}\n{name}{{result=\"refused\"}} {}",
            counts.stored, counts.refused
        );
        out
    }
}

#[cfg(test)]
mod tests {
    use api::termination::TerminationPhases;

    use super::*;

    #[test]
    fn ends_are_counted_by_verdict_and_cause_with_the_length_of_their_parts() {
        let metrics = TerminationMetrics::default();
        let record = TerminationRecord {
            verdict: "clean".to_owned(),
            cause: "Deleted".to_owned(),
            took_milliseconds: Some(1_200),
            phases: Some(TerminationPhases { to_signal_milliseconds: Some(6), ..TerminationPhases::default() }),
            ..TerminationRecord::default()
        };
        metrics.count(&record);
        metrics.count(&record);
        let text = metrics.text();
        for line in [
            "adieu_pod_terminations_total{verdict=\"clean\",cause=\"Deleted\"} 2",
            "adieu_pod_termination_time_to_signal_seconds_bucket{le=\"0.005\"} 0",
            "adieu_pod_termination_time_to_signal_seconds_bucket{le=\"0.01\"} 2",
            "adieu_pod_termination_time_to_signal_seconds_count 2",
            "adieu_pod_termination_hooks_seconds_count 0",
            "adieu_pod_termination_duration_seconds_bucket{le=\"5\"} 2",
            "adieu_pod_termination_duration_seconds_sum 2.4",
            "adieu_termination_records_total{result=\"stored\"} 0",
        ] {
            assert!(text.lines().any(|told| told == line), "{line} in\n{text}");
        }
    }
}
