//! Percentiles of what was measured.

use std::time::Duration;

use serde_json::{Value, json};

use crate::pod::Times;

/// Everything measured so far.
#[derive(Default, Debug)]
pub(crate) struct Figures {
    all: Vec<Times>,
}

impl Figures {
    /// One more.
    pub(crate) fn add(&mut self, times: Times) {
        self.all.push(times);
    }

    /// The median and the 99th percentile of one of the figures, in milliseconds with one decimal.
    pub(crate) fn summary(&self, which: impl Fn(&Times) -> Duration) -> Value {
        let mut sorted: Vec<Duration> = self.all.iter().map(which).collect();
        sorted.sort_unstable();
        json!({ "p50": percentile(&sorted, 50), "p99": percentile(&sorted, 99), "count": sorted.len() })
    }
}

/// The smallest value that at least `percent` of all are not above.
fn percentile(sorted: &[Duration], percent: usize) -> Option<f64> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).map(|d| (d.as_secs_f64() * 10_000.0).round() / 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let sorted: Vec<Duration> = (1..=10).map(Duration::from_millis).collect();
        assert_eq!(percentile(&sorted, 50), Some(5.0));
        assert_eq!(percentile(&sorted, 99), Some(10.0));
        assert_eq!(percentile(&[], 50), None);
    }
}
