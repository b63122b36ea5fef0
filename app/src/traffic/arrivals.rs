//! New connections to the pods of this node, as the kernel counts them. It tells when it is asked, so it is asked at a bounded pace.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Steering;

/// How long a pod counts as busy after a new connection.
const BUSY: Duration = Duration::from_secs(60);
/// How often the counts are read for that.
pub(super) const SAMPLED_EVERY: Duration = Duration::from_secs(10);
/// A count that is no older is not read again when something happens, and when only time has passed.
pub(super) const FRESH: Duration = Duration::from_millis(100);
pub(super) const RECENT: Duration = Duration::from_secs(5);

/// What was counted so far.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// Held while the kernel is asked, so that it is asked once for all who want to know.
    reading: tokio::sync::Mutex<Option<Instant>>,
    counts: Mutex<BTreeMap<String, Count>>,
}

#[derive(Clone, Copy, Debug)]
struct Count {
    /// As the kernel said.
    said: u64,
    /// Since we look, whatever became of the kernel's counter.
    sum: u64,
    grew: Option<Instant>,
}

impl Arrivals {
    /// Reads the counts, unless they are known and no older than that. What cannot be read is as it was.
    pub(super) async fn read(&self, proxy: &dyn Steering, no_older: Duration) {
        let mut read = self.reading.lock().await;
        let now = Instant::now();
        if read.is_some_and(|read| now.duration_since(read) < no_older) {
            return;
        }
        let Ok(said) = proxy.new_connections().await else { return };
        *read = Some(now);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.retain(|uid, _| said.contains_key(uid));
        for (uid, said) in said {
            let count = counts.entry(uid).or_insert(Count { said: 0, sum: 0, grew: None });
            // A counter that went back was made anew.
            let more = said.checked_sub(count.said).unwrap_or(said);
            if more > 0 {
                count.grew = Some(now);
            }
            (count.said, count.sum) = (said, count.sum + more);
        }
    }

    /// How many came since we look; `None` of a pod that nobody counts for.
    pub(super) fn sum(&self, uid: &str) -> Option<u64> {
        Some(self.counts.lock().unwrap_or_else(PoisonError::into_inner).get(uid)?.sum)
    }

    /// Whether one came within the last minute, as far as the counts were read.
    pub(super) fn is_busy(&self, uid: &str) -> bool {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.get(uid).and_then(|count| count.grew).is_some_and(|grew| grew.elapsed() < BUSY)
    }
}
