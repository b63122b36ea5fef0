//! What the rules are told when the object of a pod is seen: only what is news to them.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use lifecycle::{DeleteSighting, Input};

use crate::flaws::{self, Flaw};
use crate::record::PodRecord;
use reading::{seconds, spec_changes};

/// What a worker was last told of its object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Sightings {
    /// Of a deletion: grace and timestamp.
    deletion: Option<(i64, Timestamp)>,
    /// The generation last told, or first seen. What an earlier agent told may not have been written down.
    generation: Option<i64>,
}

/// What one sight of an object means.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct News {
    /// For the rules, in this order.
    pub(super) inputs: Vec<Input>,
    /// The spec is another: the next agent has to compare with this one.
    pub(super) is_changed: bool,
}

impl Sightings {
    pub(super) fn new(generation: Option<i64>) -> Self {
        Self { deletion: None, generation }
    }

    /// What is new in `pod`, seen at `now`, beside what `record` holds.
    pub(super) fn see(&mut self, record: &PodRecord, pod: &Pod, is_live: bool, now: Timestamp) -> News {
        let mut inputs = Vec::new();
        // Our own word comes back as well; what the worker already says of itself is no news to it.
        if api::pod::is_terminal(pod) && !record.is_over() {
            inputs.push(Input::TerminalPhaseSeen { succeeded: has_succeeded(pod) });
        }
        let changes = spec_changes(&record.pod, pod);
        let is_changed = !changes.is_empty();
        inputs.extend(changes.into_iter().map(|change| Input::SpecChanged { change }));
        if let Some(generation) = pod.metadata.generation.filter(|new| self.generation != Some(*new)) {
            self.generation = Some(generation);
            inputs.push(Input::GenerationSeen { generation });
        }
        if let Some(deletion) = pod.metadata.deletion_timestamp.as_ref().map(|time| time.0) {
            let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
            let hears = self.deletion.is_none() || !flaws::has(Flaw::HearsOneDeletion);
            if self.deletion != Some((grace, deletion)) && hears {
                self.deletion = Some((grace, deletion));
                let sighting = if is_live { DeleteSighting::Live } else { found(deletion, now) };
                inputs.push(Input::DeleteRequested { grace: seconds(grace), sighting });
            }
        }
        News { inputs, is_changed }
    }
}

/// How much of a deletion is left that was found rather than seen. A stored time has lost its fraction of a second.
fn found(deletion: Timestamp, now: Timestamp) -> DeleteSighting {
    let left = deletion.as_millisecond() + 1000 - now.as_millisecond();
    let left = if flaws::has(Flaw::FoundIsOver) { 0 } else { left };
    DeleteSighting::Found { left: Duration::from_millis(u64::try_from(left).unwrap_or(0)) }
}

fn has_succeeded(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Succeeded")
}

/// Whether somebody said that the pod is not ready because they had not heard of us. They hear of us as soon as we see that.
pub(super) fn is_denied(pod: &Pod) -> bool {
    api::pod::condition(pod, "Ready").is_some_and(|condition| condition.reason == "NodeNotReady")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lifecycle::PodWorker;
    use serde_json::{Value, json};

    use super::*;
    use reading::pod_spec;

    fn pod(metadata: Value, image: &str, phase: &str) -> Pod {
        let spec = json!({ "containers": [{ "name": "app", "image": image }] });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec, "status": { "phase": phase } }))
            .expect("a pod")
    }

    fn deletion(time: &str, grace: i64) -> Value {
        json!({ "generation": 1, "deletionTimestamp": time, "deletionGracePeriodSeconds": grace })
    }

    /// A pod of generation 1 whose object was `pod`.
    fn known(pod: Pod) -> (Sightings, PodRecord) {
        let worker = PodWorker::new(pod_spec(&pod).expect("a spec"));
        (Sightings::new(Some(1)), PodRecord::new(Arc::new(pod), &worker, String::new(), None))
    }

    fn at(time: &str) -> Timestamp {
        time.parse().expect("a time")
    }

    #[test]
    fn object_that_says_nothing_new_is_no_news() {
        let same = || pod(json!({ "generation": 1 }), "a", "Pending");
        let (mut sightings, record) = known(same());
        let news = sightings.see(&record, &same(), true, at("2026-01-01T00:00:00Z"));
        assert_eq!(news, News { inputs: vec![], is_changed: false });
    }

    #[test]
    fn deletion_is_told_once_and_again_when_its_grace_or_time_changes() {
        let (mut sightings, record) = known(pod(json!({ "generation": 1 }), "a", "Running"));
        let now = at("2026-01-01T00:00:00Z");
        let mut deleted = |time: &str, grace: i64| {
            let news = sightings.see(&record, &pod(deletion(time, grace), "a", "Running"), true, now);
            news.inputs
        };
        let told = |grace: i64| vec![Input::DeleteRequested { grace: seconds(grace), sighting: DeleteSighting::Live }];
        assert_eq!(deleted("2026-01-01T00:00:30Z", 30), told(30));
        assert_eq!(deleted("2026-01-01T00:00:30Z", 30), vec![]);
        assert_eq!(deleted("2026-01-01T00:00:05Z", 5), told(5));
        assert_eq!(deleted("2026-01-01T00:00:02Z", 5), told(5));
    }

    #[test]
    fn deletion_that_was_found_has_what_is_left_of_it() {
        let found = |now: &str| {
            let (mut sightings, record) = known(pod(json!({ "generation": 1 }), "a", "Running"));
            let seen = pod(deletion("2026-01-01T00:00:30Z", 30), "a", "Running");
            let inputs = sightings.see(&record, &seen, false, at(now)).inputs;
            let [Input::DeleteRequested { sighting, .. }] = &inputs[..] else { panic!("{inputs:?}") };
            *sighting
        };
        let left = |millis| DeleteSighting::Found { left: Duration::from_millis(millis) };
        assert_eq!(found("2026-01-01T00:00:10Z"), left(21_000), "with the fraction that was cut off");
        assert_eq!(found("2026-01-01T00:01:00Z"), left(0));
    }

    #[test]
    fn news_come_in_the_order_in_which_the_rules_need_them() {
        let (mut sightings, record) = known(pod(json!({ "generation": 1 }), "a", "Running"));
        let metadata = json!({
            "generation": 2, "deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": 30 });
        let News { inputs, is_changed } =
            sightings.see(&record, &pod(metadata, "b", "Failed"), true, at("2026-01-01T00:00:00Z"));
        assert!(is_changed);
        let [
            Input::TerminalPhaseSeen { succeeded: false },
            Input::SpecChanged { .. },
            Input::GenerationSeen { generation: 2 },
            Input::DeleteRequested { .. },
        ] = &inputs[..]
        else {
            panic!("another order: {inputs:?}")
        };
    }
}
