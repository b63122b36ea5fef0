//! What happened to a pod of the demo, to the millisecond: the platform's events, and what the demo itself did and saw.
//!
//! Events keep whole seconds; their names end with the nanosecond at which they were told, as everywhere in Kubernetes.

use std::fmt::Write as _;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;

/// Reasons of events from before a pod was asked to leave.
const BEFORE: [&str; 5] = ["Scheduled", "Pulling", "Pulled", "Created", "Started"];

/// One thing that happened.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Moment {
    /// When.
    pub at: Timestamp,
    /// What.
    pub what: String,
}

/// The end of one pod, as far as it was noted here.
#[derive(Clone, Debug)]
pub(super) struct Story {
    /// Which pod.
    pub pod: String,
    /// What was done to it.
    pub title: String,
    /// What the demo did and saw.
    pub noted: Vec<Moment>,
}

impl Story {
    /// For people: a heading, then a line for each thing that happened, with the time since the first.
    pub(super) fn show(&self, events: &[Event]) -> String {
        let told = events.iter().filter(|event| event.involved_object.name.as_deref() == Some(&self.pod));
        let mut moments: Vec<Moment> = told.filter_map(moment).chain(self.noted.iter().cloned()).collect();
        moments.sort();
        let mut text = format!("{}: {}\n", self.pod, self.title);
        let Some(first) = moments.first().map(|moment| moment.at) else { return text };
        for Moment { at, what } in &moments {
            let since = at.duration_since(first).as_secs_f64();
            let _ = writeln!(text, "  {since:7.3} s  {what}");
        }
        text
    }
}

/// How often `reason` was told of `pod`.
pub(super) fn count(events: &[Event], pod: &str, reason: &str) -> i32 {
    let of_pod = events.iter().filter(|event| event.involved_object.name.as_deref() == Some(pod));
    of_pod.filter(|event| event.reason.as_deref() == Some(reason)).map(|event| event.count.unwrap_or(1)).sum()
}

fn moment(event: &Event) -> Option<Moment> {
    let reason = event.reason.as_deref().filter(|reason| !BEFORE.contains(reason))?;
    let named = event.metadata.name.as_deref()?.rsplit_once('.')?.1;
    let at = i128::from_str_radix(named, 16).ok().and_then(|nanos| Timestamp::from_nanosecond(nanos).ok())?;
    let message = event.message.as_deref().unwrap_or_default();
    Some(Moment { at, what: format!("{reason:15} {message}").trim_end().to_owned() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn event(pod: &str, at_ms: i64, reason: &str) -> Event {
        let mut event = Event { reason: Some(reason.to_owned()), message: Some("so".to_owned()), ..Event::default() };
        event.metadata.name = Some(format!("{pod}.{:x}", at_ms * 1_000_000));
        event.involved_object.name = Some(pod.to_owned());
        event
    }

    #[test]
    fn timeline_merges_events_and_notes_by_millisecond_and_leaves_out_the_beginning() {
        let noted = vec![Moment { at: Timestamp::from_millisecond(1_002).unwrap(), what: "kill -9".to_owned() }];
        let story = Story { pod: "web".to_owned(), title: "deleted".to_owned(), noted };
        let events = [
            event("web", 1_003, "StopSignalSent"),
            event("web", 1_000, "Killing"),
            event("web", 1, "Started"),
            event("x", 5, "Killing"),
        ];
        let expected = "\
web: deleted
    0.000 s  Killing         so
    0.002 s  kill -9
    0.003 s  StopSignalSent  so
";
        assert_eq!(story.show(&events), expected);
        assert_eq!(count(&events, "web", "Killing"), 1);
    }
}
