//! What became of the barriers of this node's pods, for metrics.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Upper bounds of the buckets, in milliseconds.
const BUCKETS: [u64; 9] = [1, 2, 5, 10, 25, 50, 100, 1000, 5000];

/// Counts since the start of the process.
#[derive(Debug, Default)]
pub(super) struct Counters {
    released: Mutex<BTreeMap<String, u64>>,
    late: AtomicU64,
    failed: AtomicU64,
    commits: [AtomicU64; BUCKETS.len() + 1],
    commit_micros: AtomicU64,
}

impl Counters {
    pub(super) fn released(&self, reason: &str) {
        let mut released = self.released.lock().unwrap_or_else(PoisonError::into_inner);
        *released.entry(reason.to_owned()).or_default() += 1;
    }

    /// So many more connections came late.
    pub(super) fn late(&self, more: u64) {
        self.late.fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn cut_failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// The rules of a cut were in force after so long.
    pub(super) fn cut_done(&self, after: Duration) {
        let millis = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        let bucket = BUCKETS.iter().position(|most| millis < *most).unwrap_or(BUCKETS.len());
        self.commits[bucket].fetch_add(1, Ordering::Relaxed);
        self.commit_micros.fetch_add(u64::try_from(after.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// As Prometheus reads it.
    pub(super) fn lines(&self) -> String {
        let mut out = String::new();
        let head = |out: &mut String, name: &str, kind: &str, help: &str| {
            // Writing to a string cannot fail.
            let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        };
        let released = "adieu_drain_barrier_released_total";
        head(&mut out, released, "counter", "Barriers of leaving pods that were opened, by reason.");
        for (reason, count) in &*self.released.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = writeln!(out, "{released}{{reason=\"{reason}\"}} {count}");
        }
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let late = "adieu_late_connections_total";
        head(&mut out, late, "counter", "New connections that came to a pod after its barrier was opened.");
        let _ = writeln!(out, "{late} {}", count(&self.late));
        let failed = "adieu_endpoint_withdraw_failures_total";
        head(&mut out, failed, "counter", "Cuts of pods that the kernel or the proxy did not take at once.");
        let _ = writeln!(out, "{failed} {}", count(&self.failed));
        let commit = "adieu_endpoint_withdraw_seconds";
        head(&mut out, commit, "histogram", "From the ask to cut a pod to the rules in force.");
        let mut sum = 0;
        for (bucket, most) in self.commits.iter().zip(BUCKETS) {
            sum += count(bucket);
            let _ = writeln!(
                out,
                "{commit}_bucket{{stage=\"commit\",le=\"{}\"}} {sum}",
                Duration::from_millis(most).as_secs_f64()
            );
        }
        sum += self.commits.last().map_or(0, count);
        let seconds = Duration::from_micros(count(&self.commit_micros)).as_secs_f64();
        let _ = writeln!(out, "{commit}_bucket{{stage=\"commit\",le=\"+Inf\"}} {sum}");
        let _ = writeln!(out, "{commit}_sum{{stage=\"commit\"}} {seconds}\n{commit}_count{{stage=\"commit\"}} {sum}");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_told_as_prometheus_reads_them() {
        let counters = Counters::default();
        counters.released("LocalCut");
        counters.released("LocalCut");
        counters.cut_done(Duration::from_micros(1500));
        counters.cut_done(Duration::from_secs(9));
        counters.late(3);
        let lines = counters.lines();
        for line in [
            "adieu_drain_barrier_released_total{reason=\"LocalCut\"} 2",
            "adieu_late_connections_total 3",
            "adieu_endpoint_withdraw_seconds_bucket{stage=\"commit\",le=\"0.001\"} 0",
            "adieu_endpoint_withdraw_seconds_bucket{stage=\"commit\",le=\"0.002\"} 1",
            "adieu_endpoint_withdraw_seconds_bucket{stage=\"commit\",le=\"+Inf\"} 2",
            "adieu_endpoint_withdraw_seconds_count{stage=\"commit\"} 2",
        ] {
            assert!(lines.lines().any(|it| it == line), "{line} is not in\n{lines}");
        }
    }
}
