//! Surge on evict: a pod whose eviction its owner can bridge leaves when a successor is there, and not before. Pure.
//!
//! ```text
//!  eviction ─▶ 429, the pod is marked ─▶ its set makes one pod more ─▶ ready ─▶ eviction is asked for again ─▶ the pod leaves
//! ```
//!
//! The mark is an annotation of the pod: when its eviction last waited. It lapses ([`WAITS`]) if nobody asks again, so an eviction that
//! was given up leaves no pod too many. While it holds, the pod's ReplicaSet counts it as one that is about to be missing.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};

use super::word;
use crate::status::{Cause, Status};
use crate::{meta, pod, time};

/// Of a Deployment or ReplicaSet: `"true"`, every eviction waits for a successor; `"false"`, none does. Otherwise those wait that a
/// disruption budget refuses, if the Deployment may surge.
pub const EVICT_SURGE: &str = "adieu.dev/evict-surge";
/// Of a pod: when its eviction last waited for a successor.
pub const SURGE_ASKED_AT: &str = "adieu.dev/surge-asked-at";
/// How long a mark holds after its eviction was last asked for.
const WAITS: SignedDuration = SignedDuration::from_secs(120);
/// A mark that is older than this is renewed when it is asked again: whoever drains a node asks every few seconds.
const RENEWED_AFTER: SignedDuration = SignedDuration::from_secs(30);

/// Until when a pod with this mark counts as about to be missing. A mark from the future is one of now.
pub fn surges_until(asked_at: &str, now: Timestamp) -> Option<Timestamp> {
    time::parse(asked_at)?.min(now).checked_add(WAITS).ok()
}

/// Whether the pod waits for a successor by now.
fn is_marked(pod: &Value, now: Timestamp) -> bool {
    let asked_at = pod["metadata"]["annotations"][SURGE_ASKED_AT].as_str();
    asked_at.and_then(|at| surges_until(at, now)).is_some_and(|until| until > now)
}

/// What an eviction has to do with a successor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Surge {
    /// Nothing: the budget alone decides.
    No,
    /// It is refused until the successor is there. `mark`: and the pod is to be marked, for the first time or anew.
    Waits {
        /// The pod says so from then on.
        mark: bool,
    },
}

/// The owners of a pod that is to be evicted, as far as they are there.
#[derive(Debug, Clone, Copy)]
pub struct SurgeOwners<'a> {
    /// The ReplicaSet that controls it.
    pub set: &'a Value,
    /// The Deployment that controls the set.
    pub deployment: Option<&'a Value>,
}

impl SurgeOwners<'_> {
    /// What was written, on the Deployment before the set.
    fn wish(&self) -> Option<&str> {
        let both = self.deployment.into_iter().chain([self.set]);
        both.filter_map(|it| it["metadata"]["annotations"][EVICT_SURGE].as_str()).next()
    }

    /// How many pods more than it wants a Deployment may have.
    fn may_have_more(&self) -> i64 {
        let Some(deployment) = self.deployment else { return 0 };
        let strategy = &deployment["spec"]["strategy"];
        if word(strategy, "type") == "Recreate" {
            return 0;
        }
        let replicas = deployment["spec"]["replicas"].as_i64().unwrap_or(1);
        let surge = &strategy["rollingUpdate"]["maxSurge"];
        let percent = surge.as_str().and_then(|text| text.strip_suffix('%')?.parse::<i64>().ok());
        match (surge.as_i64(), percent) {
            (Some(number), _) => number,
            (None, Some(percent)) => replicas.saturating_mul(percent).saturating_add(99).div_euclid(100),
            (None, None) => replicas.saturating_add(3).div_euclid(4),
        }
    }
}

/// Decides for a pod; `pods` answers all of its set, itself among them, and `is_refused` says whether a budget refuses the eviction.
pub fn decide_surge(
    pod: &Value,
    owners: SurgeOwners<'_>,
    pods: impl FnOnce() -> Vec<Arc<Value>>,
    is_refused: bool,
    now: Timestamp,
) -> Surge {
    let wanted = owners.set["spec"]["replicas"].as_i64().unwrap_or(1);
    let most = match owners.wish() {
        Some("true") => owners.may_have_more().max(1),
        Some("false") => return Surge::No,
        // What cannot be read is nothing.
        Some(_) | None if is_refused => owners.may_have_more(),
        Some(_) | None => return Surge::No,
    };
    // A pod that serves nobody leaves no gap, nor does one that nobody wants.
    if most <= 0 || wanted <= 0 || pod::is_terminating(pod) || pod::is_terminal(pod) || !pod::is_ready(pod) {
        return Surge::No;
    }
    let min_ready = owners.set["spec"]["minReadySeconds"].as_i64().unwrap_or(0);
    let (mut successors, mut marked) = (0, 0);
    for other in pods().iter().filter(|other| meta::uid(other) != meta::uid(pod)) {
        if pod::is_terminating(&**other) || pod::is_terminal(&**other) {
            continue;
        }
        match is_marked(other, now) {
            true => marked += 1,
            false => successors += i64::from(is_available(other, min_ready, now)),
        }
    }
    // As many others as are wanted serve: it can go, unless the budget has not counted them yet.
    if successors >= wanted && !is_refused {
        return Surge::No;
    }
    if is_marked(pod, now) {
        let asked_at = pod["metadata"]["annotations"][SURGE_ASKED_AT].as_str().and_then(time::parse);
        return Surge::Waits { mark: asked_at.is_some_and(|at| now.duration_since(at) >= RENEWED_AFTER) };
    }
    match marked < most {
        true => Surge::Waits { mark: successors < wanted },
        // Others go first.
        false => Surge::Waits { mark: false },
    }
}

/// Ready for so long that it counts.
fn is_available(pod: &Value, min_ready_seconds: i64, now: Timestamp) -> bool {
    if !pod::is_ready(pod) {
        return false;
    }
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let mut since = conditions.filter(|it| it["type"] == "Ready").filter_map(|it| it["lastTransitionTime"].as_str());
    let wait = SignedDuration::from_secs(min_ready_seconds.max(0));
    min_ready_seconds <= 0 || since.any(|at| time::parse(at).is_some_and(|at| now.duration_since(at) >= wait))
}

/// The pod with the mark.
pub fn mark_surge(pod: &Value, now: Timestamp) -> Value {
    let mut marked = pod.clone();
    let annotations = meta::meta_mut(&mut marked).entry("annotations").or_insert(Value::Null);
    if !annotations.is_object() {
        *annotations = Value::Object(Map::new());
    }
    annotations[SURGE_ASKED_AT] = time::seconds(now).into();
    marked
}

/// 429: it has to wait for the successor, and, if there is such an answer, for what the budget says.
pub fn surge_in_progress(budget: Option<Status>) -> Status {
    let cause = Cause {
        reason: "SurgeInProgress",
        message: "A successor is started first; the pod may leave when it is ready.".to_owned(),
        field: String::new(),
    };
    let text = "Cannot evict pod before its successor is ready.";
    budget.unwrap_or_else(|| Status::too_many_requests(text, 0)).with_cause(cause)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    const NOW: &str = "2026-01-01T00:10:00Z";

    fn now() -> Timestamp {
        time::parse(NOW).unwrap()
    }

    fn pod(uid: &str, ready: bool, asked_at: Option<&str>) -> Value {
        let ready = if ready { "True" } else { "False" };
        json!({"metadata": {"name": uid, "uid": uid, "annotations": {SURGE_ASKED_AT: asked_at}}, "status": {"phase": "Running",
            "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:09:50Z"}]}})
    }

    fn set(replicas: i64) -> Value {
        json!({"metadata": {"name": "web-1"}, "spec": {"replicas": replicas}})
    }

    fn deployment(surge: Value, wish: Option<&str>) -> Value {
        json!({"metadata": {"name": "web", "annotations": {EVICT_SURGE: wish}},
            "spec": {"replicas": 1, "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge}}}})
    }

    fn all(pods: &[Value]) -> impl FnOnce() -> Vec<Arc<Value>> {
        || pods.iter().cloned().map(Arc::new).collect()
    }

    fn decide(pods: &[Value], replicas: i64, deployment: &Value, is_refused: bool) -> Surge {
        let set = set(replicas);
        let owners = SurgeOwners { set: &set, deployment: Some(deployment) };
        decide_surge(&pods[0], owners, all(pods), is_refused, now())
    }

    /// [TR-87] in part: when an eviction waits, and when it passes.
    #[test]
    fn eviction_waits_for_a_successor_if_the_owner_can_make_one() {
        let (quarter, always) = (deployment(json!("25%"), None), deployment(json!("25%"), Some("true")));
        let alone = [pod("a", true, None)];
        assert_eq!(decide(&alone, 1, &quarter, true), Surge::Waits { mark: true });
        assert_eq!(decide(&alone, 1, &quarter, false), Surge::No, "nothing is in its way");
        assert_eq!(decide(&alone, 1, &always, false), Surge::Waits { mark: true }, "the owner asks for it");
        for never in [deployment(json!(0), None), deployment(json!(1), Some("false"))] {
            assert_eq!(decide(&alone, 1, &never, true), Surge::No);
        }
        let recreate = json!({"metadata": {"name": "web"}, "spec": {"strategy": {"type": "Recreate"}}});
        assert_eq!(decide(&alone, 1, &recreate, true), Surge::No);
        let unready = [pod("a", false, None)];
        assert_eq!(decide(&unready, 1, &always, false), Surge::No, "it serves nobody");
        assert_eq!(decide(&alone, 0, &always, false), Surge::No, "nobody wants it");
        let owners = SurgeOwners { set: &set(1), deployment: None };
        assert_eq!(
            decide_surge(&alone[0], owners, all(&alone), true, now()),
            Surge::No,
            "a set of its own says nothing"
        );
        let mut own = set(1);
        own["metadata"]["annotations"] = json!({EVICT_SURGE: "true"});
        let owners = SurgeOwners { set: &own, deployment: None };
        assert_eq!(decide_surge(&alone[0], owners, all(&alone), false, now()), Surge::Waits { mark: true });
    }

    /// [TR-87] in part.
    #[test]
    fn eviction_passes_when_its_successor_is_ready_and_counted() {
        let always = deployment(json!(1), Some("true"));
        let marked = || pod("a", true, Some("2026-01-01T00:09:40Z"));
        assert_eq!(decide(&[marked(), pod("b", false, None)], 1, &always, false), Surge::Waits { mark: false });
        assert_eq!(decide(&[marked(), pod("b", true, None)], 1, &always, false), Surge::No);
        assert_eq!(
            decide(&[marked(), pod("b", true, None)], 1, &always, true),
            Surge::Waits { mark: false },
            "the budget is behind"
        );
        let mut slow = set(1);
        slow["spec"]["minReadySeconds"] = json!(11);
        let owners = SurgeOwners { set: &slow, deployment: Some(&always) };
        let both = [marked(), pod("b", true, None)];
        assert_eq!(decide_surge(&both[0], owners, all(&both), false, now()), Surge::Waits { mark: false });
    }

    #[test]
    fn marks_are_renewed_lapse_and_are_no_more_than_the_surge() {
        let one = deployment(json!(1), None);
        let at = |at: &str| pod("a", true, Some(at));
        assert_eq!(decide(&[at("2026-01-01T00:09:25Z")], 1, &one, true), Surge::Waits { mark: true }, "to be renewed");
        assert_eq!(decide(&[at("2026-01-01T00:09:45Z")], 1, &one, true), Surge::Waits { mark: false });
        assert_eq!(decide(&[at("2026-01-01T00:07:59Z")], 1, &one, true), Surge::Waits { mark: true }, "it had lapsed");
        let other = |at: &str| pod("b", true, Some(at));
        let two = |asked_at: &str| decide(&[pod("a", true, None), other(asked_at)], 2, &one, true);
        assert_eq!(two("2026-01-01T00:09:45Z"), Surge::Waits { mark: false }, "the other goes first");
        assert_eq!(two("2026-01-01T00:07:59Z"), Surge::Waits { mark: true }, "nobody waits for the other any more");
        assert_eq!(surges_until("2026-01-01T00:09:00Z", now()), time::parse("2026-01-01T00:11:00Z"));
        assert_eq!(surges_until("2126-01-01T00:00:00Z", now()), time::parse("2026-01-01T00:12:00Z"), "not for ever");
        assert_eq!(surges_until("soon", now()), None);
        let marked = mark_surge(&json!({"metadata": {"annotations": "odd"}}), now());
        assert_eq!(marked["metadata"]["annotations"], json!({SURGE_ASKED_AT: NOW}));
        assert_eq!(surge_in_progress(None).code, 429);
    }
}
