//! When a HorizontalPodAutoscaler measures, and what it makes of that: pure, told measurements and the time.
//!
//! Every 15 seconds the target and its pods are measured. What was measured is decided upon once, with what was recommended and
//! done lately; the decision is carried out, then reported. What is remembered is pace: a controller that begins anew takes
//! the present size as what was recommended, so it scales nothing down before a whole window has passed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use client::WatchUpdate;
use frame::{Controller, Now, Outcome, Plan};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::proposal::{NoProposal, Proposal, ScaledPod, Tolerance, propose};
use super::rates::{Normalized, Past, longest, normalize};
use super::view::{AutoscalerStatus, AutoscalerView, ScaleTarget};
use crate::controller_ref::Owner;

/// How often is measured.
const PERIOD: Duration = Duration::from_secs(15);

type Uid = Arc<str>;

/// What is told.
pub(crate) type Input = WatchUpdate<Arc<AutoscalerView>>;

/// What the target says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Scale {
    /// What it is asked to be, and what it is.
    pub(crate) replicas: i32,
    pub(crate) current: i32,
    pub(crate) selector: String,
    pub(crate) resource_version: String,
}

/// What was measured; or why it could not be.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Measurement {
    pub(crate) scale: Result<Scale, String>,
    pub(crate) pods: Result<Vec<ScaledPod>, String>,
}

/// Something to be told about an autoscaler.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ScalerEvent {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// What is to be done.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Ask the target and its pods.
    Measure { namespace: Arc<str>, target: ScaleTarget },
    /// Scale the target, of this version, and tell why.
    Rescale { owner: Owner, target: ScaleTarget, resource_version: String, replicas: i32, why: String },
    /// Report, to the autoscaler of this version: a merge patch of its status. Then warn.
    Report { owner: Owner, resource_version: String, status: Value, warnings: Vec<ScalerEvent> },
}

/// What can come of it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Answer {
    Done,
    Measured(Box<Measurement>),
    /// The target is another by now: it is measured again.
    Conflict,
    Refused(String),
}

/// What is to be made of a measurement.
#[derive(Clone, PartialEq, Debug)]
struct Decision {
    status: AutoscalerStatus,
    warnings: Vec<ScalerEvent>,
    /// From how many to how many, and why; none if that is done.
    rescale: Option<(Scale, i32, String)>,
}

#[derive(Clone, Debug, Default)]
struct Memory {
    past: Past,
    measured: Option<Instant>,
    /// The pods that were measured.
    pods: BTreeSet<String>,
    decision: Option<Decision>,
}

/// Everything known, and what follows from it.
#[derive(Default, Debug)]
pub(crate) struct Autoscalers {
    scalers: BTreeMap<Uid, Arc<AutoscalerView>>,
    memory: BTreeMap<Uid, Memory>,
}

/// Sets a condition; its time changes with its status alone.
fn set_condition(list: &mut Vec<Value>, kind: &str, is: bool, (reason, message): (&str, &str), now: Now) {
    let status = if is { "True" } else { "False" };
    let at = json!(api::time::seconds(now.timestamp));
    let mut new =
        json!({ "type": kind, "status": status, "lastTransitionTime": at, "reason": reason, "message": message });
    match list.iter_mut().find(|it| it["type"] == kind) {
        Some(old) => {
            if old["status"] == new["status"] {
                new["lastTransitionTime"] = old["lastTransitionTime"].clone();
            }
            *old = new;
        }
        None => list.push(new),
    }
}

impl Decision {
    fn set(&mut self, kind: &str, is: bool, reason: &str, message: &str, now: Now) {
        set_condition(&mut self.status.conditions, kind, is, (reason, message), now);
    }

    fn warn(&mut self, reason: &'static str, message: String) {
        self.warnings.push(ScalerEvent { reason, message });
    }
}

/// What the metrics ask for together: the most that any asks for.
fn proposed(
    scaler: &AutoscalerView,
    scale: &Scale,
    pods: Result<&[ScaledPod], &str>,
    now: Now,
) -> (Vec<Value>, Result<Proposal, (NoProposal, usize)>) {
    let behavior = scaler.spec.behavior.as_ref();
    let (down, up) = (behavior.and_then(|it| it.scale_down.as_ref()), behavior.and_then(|it| it.scale_up.as_ref()));
    let tolerance = Tolerance::of(down, up);
    let (mut shown, mut best, mut failures) = (Vec::new(), None::<Proposal>, Vec::new());
    for metric in &scaler.spec.metrics {
        match propose(metric, pods, scale.replicas, tolerance, now.timestamp) {
            Ok(proposal) => {
                shown.push(proposal.current.clone());
                if best.as_ref().is_none_or(|best| proposal.replicas > best.replicas) {
                    best = Some(proposal);
                }
            }
            Err(failure) => failures.push(failure),
        }
    }
    let failed = failures.len();
    let nothing = || ("FailedGetResourceMetric", "there is no metric".to_owned());
    let outcome = match best {
        // What is not known may be more: nobody is sent away for that.
        Some(best) if failed == 0 || best.replicas >= scale.replicas => Ok(best),
        _ => Err((failures.into_iter().next().unwrap_or_else(nothing), failed)),
    };
    (shown, outcome)
}

fn decide(scaler: &AutoscalerView, measured: &Measurement, rivals: &[String], past: &mut Past, now: Now) -> Decision {
    let mut status = scaler.status.clone();
    status.observed_generation = scaler.metadata.generation;
    let mut it = Decision { status, warnings: Vec::new(), rescale: None };
    let scale = match &measured.scale {
        Ok(scale) => scale,
        Err(error) => {
            let message = format!("the HPA controller was unable to get the target's current scale: {error}");
            it.set("AbleToScale", false, "FailedGetScale", &message, now);
            it.warn("FailedGetScale", error.clone());
            return it;
        }
    };
    let got = "the HPA controller was able to get the target's current scale";
    it.set("AbleToScale", true, "SucceededGetScale", got, now);
    it.status.current_replicas = scale.current;
    let (current, least, most) = (scale.replicas, scaler.min_replicas(), scaler.spec.max_replicas);
    if past.recommendations.is_empty() {
        past.recommendations.push((now.instant, current));
    }
    if current == 0 && least != 0 {
        it.status.desired_replicas = 0;
        let message = "scaling is disabled since the replica count of the target is zero";
        it.set("ScalingActive", false, "ScalingDisabled", message, now);
        return it;
    }
    if !rivals.is_empty() {
        let message =
            format!("pods by selector {} are controlled by multiple HPAs: [{}]", scale.selector, rivals.join(" "));
        it.set("ScalingActive", false, "AmbiguousSelector", &message, now);
        it.warn("AmbiguousSelector", message);
        it.status.desired_replicas = current;
        return it;
    }
    let (desired, why) = if current > most {
        (most, "Current number of replicas above Spec.MaxReplicas".to_owned())
    } else if current < least {
        (least, "Current number of replicas below Spec.MinReplicas".to_owned())
    } else {
        let pods = measured.pods.as_deref().map_err(String::as_str);
        let (shown, outcome) = proposed(scaler, scale, pods, now);
        it.status.current_metrics = shown;
        let proposal = match outcome {
            Ok(proposal) => proposal,
            Err(((reason, error), failed)) => {
                let message = format!("the HPA was unable to compute the replica count: {error}");
                it.set("ScalingActive", false, reason, &message, now);
                it.warn(reason, error.clone());
                let all = scaler.spec.metrics.len();
                let message = format!("invalid metrics ({failed} invalid out of {all}), first error is: {error}");
                it.warn("FailedComputeMetricsReplicas", message);
                it.status.desired_replicas = current;
                return it;
            }
        };
        let message = format!("the HPA was able to successfully calculate a replica count from {}", proposal.name);
        it.set("ScalingActive", true, "ValidMetricFound", &message, now);
        let Normalized { replicas, able_to_scale, scaling_limited } =
            normalize(scaler, current, proposal.replicas, past, now.instant);
        past.recommendations.push((now.instant, proposal.replicas));
        past.trim(longest(scaler), now.instant);
        it.set("AbleToScale", able_to_scale.0, able_to_scale.1, able_to_scale.2, now);
        it.set("ScalingLimited", scaling_limited.0, scaling_limited.1, scaling_limited.2, now);
        let why = if replicas > current {
            format!("{} above target", proposal.name)
        } else {
            "All metrics below target".to_owned()
        };
        (replicas, why)
    };
    it.status.desired_replicas = desired;
    if desired != current {
        it.rescale = Some((scale.clone(), desired, why));
    }
    it
}

impl Autoscalers {
    fn seen(&mut self, scaler: Arc<AutoscalerView>) -> Option<Uid> {
        let uid: Uid = scaler.uid()?.into();
        self.memory.entry(Arc::clone(&uid)).or_default();
        self.scalers.insert(Arc::clone(&uid), scaler);
        Some(uid)
    }

    fn gone(&mut self, uid: &str) {
        self.scalers.remove(uid);
        self.memory.remove(uid);
    }

    /// The names of all autoscalers of these pods, if this is not the only one.
    fn rivals(&self, uid: &Uid, pods: &BTreeSet<String>) -> Vec<String> {
        let Some(namespace) = self.scalers.get(uid).map(|scaler| scaler.namespace()) else { return Vec::new() };
        let shares = |(other, scaler): &(&Uid, &Arc<AutoscalerView>)| {
            let theirs = self.memory.get(*other).filter(|_| scaler.namespace() == namespace);
            *other == uid || theirs.is_some_and(|theirs| !theirs.pods.is_disjoint(pods))
        };
        let all: Vec<String> = self
            .scalers
            .iter()
            .filter(shares)
            .map(|(_, it)| format!("{}/{}", it.namespace().unwrap_or_default(), it.name_any()))
            .collect();
        if all.len() > 1 { all } else { Vec::new() }
    }

    fn measured(&mut self, uid: &Uid, measurement: &Measurement, now: Now) {
        let pods: BTreeSet<String> = match &measurement.pods {
            Ok(pods) => pods.iter().filter(|pod| !pod.is_over).map(|pod| pod.name.clone()).collect(),
            Err(_) => BTreeSet::new(),
        };
        let rivals = self.rivals(uid, &pods);
        let (Some(scaler), Some(memory)) = (self.scalers.get(uid), self.memory.get_mut(uid)) else { return };
        memory.pods = pods;
        memory.measured = Some(now.instant);
        memory.decision = Some(decide(scaler, measurement, &rivals, &mut memory.past, now));
    }
}

impl Controller for Autoscalers {
    type Input = Input;
    type Key = Uid;
    type Action = Action;
    type Answer = Answer;

    fn observe(&mut self, _: Now, input: Input) -> Vec<Uid> {
        match input {
            WatchUpdate::Listed(all) => {
                let here: BTreeSet<Uid> = all.iter().filter_map(|scaler| scaler.uid().map(Uid::from)).collect();
                let gone: Vec<Uid> = self.scalers.keys().filter(|uid| !here.contains(*uid)).cloned().collect();
                gone.iter().for_each(|uid| self.gone(uid));
                all.into_iter().filter_map(|scaler| self.seen(scaler)).collect()
            }
            WatchUpdate::Changed(scaler) => self.seen(scaler).into_iter().collect(),
            WatchUpdate::Removed(scaler) => {
                self.gone(&scaler.uid().unwrap_or_default());
                Vec::new()
            }
        }
    }

    fn plan(&self, key: &Uid, now: Now) -> Plan<Action> {
        let (Some(scaler), Some(memory)) = (self.scalers.get(key), self.memory.get(key)) else {
            return Plan::default();
        };
        if scaler.metadata.deletion_timestamp.is_some() {
            return Plan::default();
        }
        let owner = scaler.owner();
        let target = scaler.spec.scale_target_ref.clone();
        let due = memory.measured.map_or(now.instant, |at| at + PERIOD);
        let Some(decision) = memory.decision.as_ref().filter(|_| due > now.instant) else {
            return Plan::act(Action::Measure { namespace: owner.namespace, target });
        };
        if let Some((scale, replicas, why)) = decision.rescale.clone() {
            return Plan::act(Action::Rescale {
                owner,
                target,
                resource_version: scale.resource_version,
                replicas,
                why,
            });
        }
        let wait = Plan::wait(due, "it is measured again");
        if decision.status == scaler.status {
            return wait;
        }
        let resource_version = scaler.resource_version().unwrap_or_default();
        let (status, warnings) = (decision.status.to_patch(), decision.warnings.clone());
        Plan { actions: vec![Action::Report { owner, resource_version, status, warnings }], ..wait }
    }

    fn ended(&mut self, now: Now, key: &Uid, action: Action, outcome: Outcome<Answer>) -> Vec<Uid> {
        let Outcome::Done(answer) = outcome else { return Vec::new() };
        match answer {
            Answer::Measured(measurement) => self.measured(key, &measurement, now),
            Answer::Conflict => {
                if let Some(memory) = self.memory.get_mut(key) {
                    (memory.measured, memory.decision) = (None, None);
                }
            }
            Answer::Done | Answer::Refused(_) => {
                let Action::Rescale { replicas, .. } = action else { return Vec::new() };
                let Some(memory) = self.memory.get_mut(key) else { return Vec::new() };
                let Some(decision) = &mut memory.decision else { return Vec::new() };
                let Some((scale, ..)) = decision.rescale.take() else { return Vec::new() };
                if let Answer::Refused(error) = answer {
                    let message = format!("the HPA controller was unable to update the target scale: {error}");
                    decision.set("AbleToScale", false, "FailedUpdateScale", &message, now);
                    decision.status.desired_replicas = scale.replicas;
                } else {
                    let message = format!("the HPA controller was able to update the target scale to {replicas}");
                    decision.set("AbleToScale", true, "SucceededRescale", &message, now);
                    let at = api::time::parse(&api::time::seconds(now.timestamp)).unwrap_or(now.timestamp);
                    decision.status.last_scale_time = Some(Time(at));
                    memory.past.changes.push((now.instant, replicas.saturating_sub(scale.replicas)));
                }
            }
        }
        vec![Arc::clone(key)]
    }
}

#[cfg(test)]
#[path = "controller_tests.rs"]
mod tests;
