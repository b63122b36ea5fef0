//! Events are news, not records: they go an hour after they were last seen.

use std::sync::Arc;
use std::time::Duration;

use api::DeleteOptions;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::delete;
use crate::state::{State, core_kind};

const LIFE: SignedDuration = SignedDuration::from_hours(1);
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Most events removed in one look, so that a flood does not hold up other writers.
const BATCH: usize = 1000;

pub(crate) async fn expire(state: Arc<State>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK_EVERY) => expire_once(&state, Timestamp::now()).await,
        }
    }
}

async fn expire_once(state: &State, now: Timestamp) {
    let events = core_kind("events");
    let Ok(page) = state.store.list(events.collection(), "", None) else { return };
    let old = page.items.iter().filter(|event| now.duration_since(last_seen(&event.value())) > LIFE).take(BATCH);
    for event in old {
        if let Err(error) = delete::delete(state, events, &event.key, &DeleteOptions::default()).await
            && error.code != 404
        {
            tracing::warn!(%error, "cannot remove an old event");
            return;
        }
    }
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

    #[tokio::test]
    async fn events_go_an_hour_after_they_were_last_seen() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("store")).await.unwrap();
        let state = State::new(crate::ServerConfig {
            store: store.clone(),
            advertise: ([127, 0, 0, 1], 6443).into(),
            version: String::new(),
            nodes: Arc::new(crate::NoNodes),
            service_range: crate::ServiceRange::default(),
            token_key: crate::TokenKey::fresh(),
        });
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
        expire_once(&state, "2026-01-01T12:00:00Z".parse().unwrap()).await;
        let left = store.list("events", "", None).unwrap().items;
        let left: Vec<&str> = left.iter().map(|event| &*event.key.name).collect();
        assert_eq!(left, ["new", "recurring"]);
    }
}
