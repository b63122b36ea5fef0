//! Since when something is so, and from when on a ready pod counts as available.
//!
//! What is stored has a date on the wall; what must take a while is measured on a clock that only goes forward. [`Since`] joins them:
//! the wall is believed once, when a date is first heard of, and people who set it afterwards neither shorten nor lengthen a wait.

use std::time::Duration;

use frame::Now;
use jiff::Timestamp;
use tokio::time::Instant;

use crate::pod::PodView;

/// A date that was heard of this long ago or less, and is new, is taken to be that of the news itself: dates have whole seconds.
const NEWS: Duration = Duration::from_secs(2);

/// Since when something is so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Since {
    /// As it is stored.
    pub(crate) stamp: Timestamp,
    /// By the clock that only goes forward.
    pub(crate) instant: Instant,
}

impl Since {
    /// Hears of a date; `known` is what was known about it before. A date that has not come yet is now.
    pub(crate) fn heard(stamp: Timestamp, known: Option<Self>, now: Now) -> Self {
        if let Some(known) = known.filter(|known| known.stamp == stamp) {
            return known;
        }
        let ago = Duration::try_from(now.timestamp.duration_since(stamp)).unwrap_or_default();
        let ago = if ago <= NEWS && known.is_some() { Duration::ZERO } else { ago };
        Self { stamp, instant: now.instant.checked_sub(ago).unwrap_or(now.instant) }
    }

    /// When it will have been so for this many seconds.
    pub(crate) fn plus_seconds(&self, seconds: i32) -> Instant {
        self.instant + Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    }
}

/// Since when a pod has been ready, if it is; `known` is what was answered for this pod before.
pub(crate) fn ready_since(pod: &PodView, known: Option<Since>, now: Now) -> Option<Since> {
    let ready = pod.status.conditions.iter().find(|it| it.type_ == "Ready" && it.status == "True")?;
    let stamp = ready.last_transition_time.as_ref().map_or(now.timestamp, |time| time.0);
    Some(Since::heard(stamp, known, now))
}

/// When a pod that has been ready `since` becomes available; if that is over, it is.
pub(crate) fn available_at(since: Since, min_ready_seconds: i32) -> Instant {
    since.plus_seconds(min_ready_seconds)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn now() -> Now {
        Now {
            instant: Instant::now() + 10_000 * SECOND,
            timestamp: Timestamp::from_second(1_800_000_000).expect("a time"),
        }
    }

    fn ready(at: Timestamp) -> PodView {
        let condition = json!({ "type": "Ready", "status": "True", "lastTransitionTime": at.to_string() });
        serde_json::from_value(json!({ "metadata": {}, "status": { "conditions": [condition] } })).unwrap()
    }

    /// [WL-19] [WL-20]
    #[test]
    fn availability_follows_real_time_whatever_happens_to_the_wall_clock() {
        let now = now();
        let pod = ready(now.timestamp);
        let since = ready_since(&pod, None, now).unwrap();
        assert_eq!(available_at(since, 30), now.instant + 30 * SECOND);
        for moved in [-3600, 3600] {
            let later = Now {
                instant: now.instant + 5 * SECOND,
                timestamp: now.timestamp + jiff::SignedDuration::from_secs(5 + moved),
            };
            let again = ready_since(&pod, Some(since), later).unwrap();
            assert_eq!(available_at(again, 30), now.instant + 30 * SECOND, "{moved}");
        }
        assert_eq!(available_at(since, 0), now.instant);
    }

    /// Whoever starts anew has nothing but the date.
    #[test]
    fn ready_time_of_a_pod_that_is_first_seen_counts() {
        let now = now();
        let since = ready_since(&ready(now.timestamp - 20 * SECOND), None, now).unwrap();
        assert_eq!(available_at(since, 30), now.instant + 10 * SECOND);
        let from_the_future = ready_since(&ready(now.timestamp + 3600 * SECOND), None, now).unwrap();
        assert_eq!(available_at(from_the_future, 30), now.instant + 30 * SECOND);
        let unready: PodView = serde_json::from_value(
            json!({ "metadata": {}, "status": { "conditions": [{ "type": "Ready", "status": "False" }] } }),
        )
        .unwrap();
        assert_eq!(ready_since(&unready, Some(since), now), None);
    }
}
