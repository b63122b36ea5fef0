//! Events are news, not records: they go an hour after they were last seen.

use std::sync::Arc;

use api::{DeleteOptions, Status};
use frame::{Applied, Controller, Effects, Now, Outcome, Plan, Source, SourceUpdate};
use futures::{StreamExt as _, stream};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::state::{State, core_kind};
use crate::{background, delete};

const LIFE: SignedDuration = SignedDuration::from_hours(1);
/// Those whose hour is over within this time go together.
const TOGETHER: SignedDuration = SignedDuration::from_secs(60);
/// Most events removed in one go, so that a flood does not hold up other writers.
const BATCH: usize = 1000;

/// Removes old events until `stop`.
pub(crate) async fn expire(state: Arc<State>, stop: CancellationToken) {
    // Nothing that happens brings a deadline forward: what comes later goes later.
    let start = stream::iter([SourceUpdate::listed((), None)]).chain(stream::pending());
    let sources = vec![Source::new("events", start)];
    background::run("event-expiry", (state.clock, stop), Expiry::default(), Remove(state), sources).await;
}

/// When the next look is due; at once, at first.
#[derive(Default, Debug)]
struct Expiry {
    due: Option<Timestamp>,
}

impl Controller for Expiry {
    type Input = ();
    type Key = ();
    type Action = Timestamp;
    /// When the oldest event that is left has had its hour.
    type Answer = Timestamp;

    fn observe(&mut self, _: Now, (): ()) -> Vec<()> {
        vec![()]
    }

    fn plan(&self, (): &(), now: Now) -> Plan<Timestamp> {
        match self.due {
            Some(due) if due > now.timestamp => Plan::wait(now.at(due), "an event has had its hour"),
            Some(_) | None => Plan::act(now.timestamp),
        }
    }

    fn ended(&mut self, now: Now, (): &(), _: Timestamp, outcome: Outcome<Timestamp>) -> Vec<()> {
        let Outcome::Done(oldest) = outcome else { return Vec::new() };
        let after = |wait: SignedDuration| now.timestamp.saturating_add(wait).unwrap_or(Timestamp::MAX);
        // A new event is due in an hour at the soonest, and one that says it is of the future holds up nobody else.
        self.due = Some(oldest.max(after(TOGETHER)).min(after(LIFE)));
        vec![()]
    }
}

struct Remove(Arc<State>);

impl Effects<Expiry> for Remove {
    type Error = Status;

    async fn apply(&self, (): &(), now: &Timestamp) -> Result<Applied<Timestamp>, Status> {
        expire_once(&self.0, *now).await.map(Applied::new)
    }
}

/// Removes what is old. Answers when more will be.
async fn expire_once(state: &State, now: Timestamp) -> Result<Timestamp, Status> {
    let events = core_kind("events");
    let all = state.store.list(events.collection(), "", None).map(|page| page.items).unwrap_or_default();
    let (mut oldest, mut removed): (Option<Timestamp>, usize) = (None, 0);
    for event in &all {
        let seen = last_seen(&event.value());
        if now.duration_since(seen) <= LIFE || removed >= BATCH {
            oldest = Some(oldest.map_or(seen, |oldest| oldest.min(seen)));
            continue;
        }
        removed += 1;
        match delete::delete(state, events, &event.key, &DeleteOptions::default()).await {
            Err(error) if error.code != 404 => return Err(error),
            _ => {}
        }
    }
    Ok(oldest.unwrap_or(now).saturating_add(LIFE).unwrap_or(Timestamp::MAX))
}

fn last_seen(event: &Value) -> Timestamp {
    let times = [&event["series"]["lastObservedTime"], &event["lastTimestamp"], &event["eventTime"]];
    let told = times.iter().filter_map(|time| time.as_str()).filter_map(api::time::parse).max();
    told.max(api::meta::creation_timestamp(event)).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;
    use store::{Expect, Step, Store};

    use super::*;
    use crate::request::key;

    #[test]
    fn event_of_the_future_does_not_hold_up_the_expiry_of_others() {
        let now = Now { instant: tokio::time::Instant::now(), timestamp: "2026-01-01T12:00:00Z".parse().unwrap() };
        for oldest in [Timestamp::MAX, "2036-01-01T00:00:00Z".parse().unwrap()] {
            let mut expiry = Expiry::default();
            expiry.ended(now, &(), now.timestamp, Outcome::Done(oldest));
            assert_eq!(expiry.due.unwrap().to_string(), "2026-01-01T13:00:00Z", "a new event may be due then");
        }
    }

    #[tokio::test]
    async fn events_go_an_hour_after_they_were_last_seen() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("store")).await.unwrap();
        let state = State::new(
            crate::ServerConfig {
                store: store.clone(),
                advertise: ([127, 0, 0, 1], 6443).into(),
                version: String::new(),
                nodes: Arc::new(crate::NoNodes),
                service_range: crate::ServiceRange::default(),
                token_key: crate::TokenKey::fresh(),
            },
            frame::Clock::system(),
        );
        for (name, created, seen) in [
            ("old", "2026-01-01T10:00:00Z", "2026-01-01T10:00:00Z"),
            ("recurring", "2026-01-01T10:00:00Z", "2026-01-01T11:30:00Z"),
            ("new", "2026-01-01T11:30:00Z", "2026-01-01T11:30:00Z"),
        ] {
            let key = key(core_kind("events"), "default", name);
            let value = json!({ "metadata": { "name": name, "creationTimestamp": created }, "lastTimestamp": seen });
            let put = Step::Put { key: key.clone(), value };
            store.write(&key, Expect::Absent, vec![put]).await.unwrap();
        }
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let due = expire_once(&state, now).await.unwrap();
        assert_eq!(due.to_string(), "2026-01-01T12:30:00Z", "when the oldest that is left has had its hour");
        let left = store.list("events", "", None).unwrap().items;
        let left: Vec<&str> = left.iter().map(|event| &*event.key.name).collect();
        assert_eq!(left, ["new", "recurring"]);
    }
}
