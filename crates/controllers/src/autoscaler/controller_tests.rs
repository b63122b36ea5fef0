//! Autoscalers whose targets, metrics and rivals come and go.
#![allow(clippy::unwrap_used, reason = "tests")]

use jiff::Timestamp;

use super::super::proposal::Usage;
use super::*;
use crate::woken::Watched;

fn scaler(uid: &str, status: Value) -> Arc<AutoscalerView> {
    let metrics =
        json!([{ "type": "Resource", "resource": { "name": "cpu", "target": { "averageUtilization": 50 } } }]);
    let spec = json!({ "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
        "minReplicas": 1, "maxReplicas": 20, "metrics": metrics });
    let metadata = json!({ "name": uid, "namespace": "ns", "uid": uid, "generation": 1, "resourceVersion": "1" });
    Arc::new(serde_json::from_value(json!({ "metadata": metadata, "spec": spec, "status": status })).unwrap())
}

fn pod(name: &str, used: i64, now: Timestamp) -> ScaledPod {
    let amounts = |cpu: i64| BTreeMap::from([("c".to_owned(), BTreeMap::from([("cpu".to_owned(), cpu)]))]);
    let long_ago = now - Duration::from_secs(3600);
    ScaledPod {
        name: name.to_owned(),
        started: Some(long_ago),
        ready: Some((true, Some(long_ago))),
        requests: amounts(1000),
        usage: Some(Usage { at: now, window: Duration::from_secs(15), containers: amounts(used) }),
        ..ScaledPod::default()
    }
}

struct World {
    watched: Watched<Autoscalers>,
    replicas: i32,
    used: i64,
    status: Value,
    conflict: bool,
    sizes: Vec<i32>,
}

fn key() -> Uid {
    "a".into()
}

impl World {
    fn new(replicas: i32, used: i64) -> Self {
        let mut watched = Watched::new(Autoscalers::default());
        watched.tell(WatchUpdate::Changed(scaler("a", json!({}))), [key()], 0);
        Self { watched, replicas, used, status: json!({}), conflict: false, sizes: Vec::new() }
    }

    fn measurement(&self) -> Measurement {
        let pods = (0..self.replicas).map(|it| pod(&format!("p{it}"), self.used, self.watched.now.timestamp)).collect();
        let scale = Scale {
            replicas: self.replicas,
            current: self.replicas,
            selector: "app=web".to_owned(),
            resource_version: "1".to_owned(),
        };
        Measurement { scale: Ok(scale), pods: Ok(pods) }
    }

    /// One period: everything that is planned is done.
    fn round(&mut self) {
        for _ in 0..10 {
            let Some(action) = self.watched.controller.plan(&key(), self.watched.now).actions.into_iter().next() else {
                break;
            };
            let answer = match &action {
                Action::Measure { .. } => Answer::Measured(Box::new(self.measurement())),
                Action::Rescale { .. } if std::mem::take(&mut self.conflict) => Answer::Conflict,
                Action::Rescale { replicas, .. } => {
                    self.replicas = *replicas;
                    self.sizes.push(*replicas);
                    Answer::Done
                }
                Action::Report { status, .. } => {
                    let fields = status.as_object().unwrap().iter().filter(|(_, value)| !value.is_null());
                    self.status = fields.map(|(key, value)| (key.clone(), value.clone())).collect();
                    self.watched.tell(WatchUpdate::Changed(scaler("a", self.status.clone())), [], 0);
                    Answer::Done
                }
            };
            self.watched.controller.ended(self.watched.now, &key(), action, Outcome::Done(answer));
        }
        assert!(
            self.watched.controller.plan(&key(), self.watched.now).actions.is_empty(),
            "it rests until the next time"
        );
        self.watched.pass(PERIOD);
    }

    fn reason(&self, kind: &str) -> String {
        let all = self.status["conditions"].as_array().unwrap();
        let found = all.iter().find(|it| it["type"] == kind).unwrap();
        format!("{}={}", found["status"].as_str().unwrap(), found["reason"].as_str().unwrap())
    }
}

/// [WL-144] [WL-145] [WL-146] [WL-149]
#[test]
fn autoscaler_goes_up_by_doubling_keeps_its_size_for_a_window_and_recomputes_after_a_conflict() {
    let mut world = World::new(2, 1100);
    world.conflict = true;
    (0..4).for_each(|_| world.round());
    assert_eq!(world.sizes, [4, 8, 16, 20]);
    assert_eq!(world.reason("AbleToScale"), "True=SucceededRescale");
    assert_eq!(world.reason("ScalingActive"), "True=ValidMetricFound");
    assert_eq!(world.reason("ScalingLimited"), "True=TooManyReplicas");
    world.used = 10;
    (0..19).for_each(|_| world.round());
    assert_eq!((world.replicas, world.reason("AbleToScale")), (20, "True=ScaleDownStabilized".to_owned()));
    // Another controller knows nothing of what was recommended, and waits for a window of its own.
    world.watched.controller = Autoscalers::default();
    world.watched.tell(WatchUpdate::Listed(vec![scaler("a", world.status.clone())]), [key()], 0);
    (0..19).for_each(|_| world.round());
    assert_eq!(world.replicas, 20);
    (0..3).for_each(|_| world.round());
    assert_eq!(world.replicas, 1);
    assert_eq!(world.status["currentMetrics"][0]["resource"]["current"]["averageUtilization"], 1);
}

/// [WL-143] [WL-147]
#[test]
fn autoscaler_of_a_target_at_zero_or_without_metrics_changes_nothing_and_says_why() {
    let mut world = World::new(0, 900);
    world.round();
    assert_eq!((world.sizes.len(), world.reason("ScalingActive")), (0, "False=ScalingDisabled".to_owned()));
    let now = world.watched.now;
    let view = scaler("a", json!({}));
    let mut measured = World::new(3, 10).measurement();
    measured.pods = Err("nobody measures".to_owned());
    let decision = decide(&view, &measured, &[], &mut Past::default(), now);
    assert_eq!((decision.rescale, decision.warnings[0].reason), (None, "FailedGetResourceMetric"));
    let mut two = (*view).clone();
    let custom = json!({ "type": "Pods", "pods": {} });
    two.spec.metrics.push(serde_json::from_value(custom).unwrap());
    let decision = decide(&two, &World::new(3, 10).measurement(), &[], &mut Past::default(), now);
    assert_eq!(
        (decision.rescale, decision.warnings[0].reason),
        (None, "FailedGetPodsMetric"),
        "the other asks for fewer"
    );
    let decision = decide(&two, &World::new(3, 900).measurement(), &[], &mut Past::default(), now);
    assert_eq!(decision.rescale.map(|it| it.1), Some(6), "the other asks for more");
}

/// [WL-148]
#[test]
fn autoscalers_of_the_same_pods_do_nothing() {
    let mut world = World::new(2, 900);
    world.watched.tell(WatchUpdate::Changed(scaler("b", json!({}))), [], 0);
    let measured = world.measurement();
    for uid in ["a", "b", "a"] {
        world.watched.controller.measured(&uid.into(), &measured, world.watched.now);
    }
    for uid in ["a", "b"] {
        let decision = world.watched.controller.memory[uid].decision.clone().unwrap();
        assert_eq!(decision.rescale, None, "{uid}");
        let active = decision.status.conditions.iter().find(|it| it["type"] == "ScalingActive").unwrap().clone();
        assert_eq!(active["reason"], "AmbiguousSelector");
    }
}

#[test]
fn autoscaler_brings_its_target_within_its_bounds_without_asking_for_metrics() {
    let mut world = World::new(30, 500);
    world.round();
    assert_eq!(world.sizes, [20]);
}
