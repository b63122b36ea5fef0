//! Jobs that have finished are deleted when their `ttlSecondsAfterFinished` is over, in the foreground: their pods go first.
//!
//! The date is the wall's: a Job that finished "in the future", because the clock was put back, waits until that is over.

use std::collections::BTreeSet;
use std::sync::Arc;

use client::WatchUpdate;
use frame::{Applied, Controller, Effects, Limits, Now, Plan};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Preconditions, PropagationPolicy};

use super::view::JobView;
use crate::clients::Clients;
use crate::controller_ref::Owner;
use crate::feed::Feed;
use crate::objects::Objects;
use crate::pod_deletion::unless_gone;
use crate::settings::Settings;

const ACCOUNT: &str = "ttl-after-finished-controller";

/// Deletes Jobs that have been kept for long enough, until its feed ends.
pub(crate) fn run(
    clients: &Clients,
    settings: Settings,
    jobs: &mut Feed<JobView>,
) -> impl Future<Output = ()> + Send + use<> {
    let sources = vec![jobs.source(|update| update)];
    let effects = TtlEffects { client: clients.act(ACCOUNT) };
    frame::run(ACCOUNT, TtlAfterFinished::new(), effects, sources, Limits::default(), settings.clock)
}

/// When a Job that has finished is to be deleted.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Expiry {
    owner: Owner,
    resource_version: String,
    at: Timestamp,
}

impl Expiry {
    fn of(job: &JobView) -> Option<Self> {
        let ttl = SignedDuration::from_secs(job.spec.ttl_seconds_after_finished?);
        let finished = job.finished().filter(|_| !job.leaves())?.at?;
        let at = finished.saturating_add(ttl).unwrap_or(Timestamp::MAX);
        Some(Self { owner: job.owner(), resource_version: job.resource_version().unwrap_or_default(), at })
    }
}

/// The Jobs that are to be deleted one day.
struct TtlAfterFinished {
    expiries: Objects<Expiry, 0>,
}

/// Delete this Job.
#[derive(Clone, Debug)]
struct DeleteJob(Expiry);

impl TtlAfterFinished {
    fn new() -> Self {
        Self { expiries: Objects::new([]) }
    }

    fn seen(&mut self, job: &JobView) -> Option<Arc<str>> {
        let uid: Arc<str> = job.uid()?.into();
        match Expiry::of(job) {
            Some(expiry) => drop(self.expiries.put(Arc::clone(&uid), expiry)),
            None => drop(self.expiries.remove(&uid)?),
        }
        Some(uid)
    }
}

impl Controller for TtlAfterFinished {
    type Input = WatchUpdate<Arc<JobView>>;
    type Key = Arc<str>;
    type Action = DeleteJob;
    type Answer = ();

    fn observe(&mut self, _: Now, input: Self::Input) -> Vec<Arc<str>> {
        match input {
            WatchUpdate::Listed(all) => {
                let here: BTreeSet<Arc<str>> = all.iter().filter_map(|job| job.uid().map(Arc::from)).collect();
                self.expiries.missing_from(&here).iter().for_each(|uid| drop(self.expiries.remove(uid)));
                all.iter().filter_map(|job| self.seen(job)).collect()
            }
            WatchUpdate::Changed(job) => self.seen(&job).into_iter().collect(),
            WatchUpdate::Removed(job) => {
                self.expiries.remove(&job.uid().unwrap_or_default());
                Vec::new()
            }
        }
    }

    fn plan(&self, key: &Arc<str>, now: Now) -> Plan<DeleteJob> {
        match self.expiries.get(key) {
            None => Plan::default(),
            Some(expiry) if expiry.at <= now.timestamp => Plan::act(DeleteJob(expiry.clone())),
            Some(expiry) => Plan::wait(now.at(expiry.at), "the Job has been kept for long enough"),
        }
    }
}

struct TtlEffects {
    client: kube::Client,
}

impl Effects<TtlAfterFinished> for TtlEffects {
    type Error = kube::Error;

    async fn apply(&self, _: &Arc<str>, DeleteJob(job): &DeleteJob) -> Result<Applied<()>, kube::Error> {
        let api: Api<JobView> = Api::namespaced(self.client.clone(), &job.owner.namespace);
        // The version is the one that was judged: whoever lengthens the time a moment before is heard.
        let preconditions = Some(Preconditions {
            uid: Some(job.owner.uid.to_string()),
            resource_version: Some(job.resource_version.clone()),
        });
        let propagation_policy = Some(PropagationPolicy::Foreground);
        let params = DeleteParams { preconditions, propagation_policy, ..DeleteParams::default() };
        unless_gone(api.delete(&job.owner.name, &params).await)?;
        Ok(Applied::new(()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::woken::Watched;

    fn job(ttl: Option<i64>, finished: Option<Timestamp>, leaves: bool) -> WatchUpdate<Arc<JobView>> {
        let condition =
            |at: Timestamp| json!([{ "type": "Failed", "status": "True", "lastTransitionTime": at.to_string() }]);
        let job = json!({ "metadata": { "name": "j", "namespace": "ns", "uid": "u",
                "deletionTimestamp": leaves.then_some("2026-01-01T00:00:00Z") },
            "spec": { "ttlSecondsAfterFinished": ttl },
            "status": { "conditions": finished.map_or(json!([]), condition) } });
        WatchUpdate::Changed(Arc::new(serde_json::from_value::<JobView>(job as Value).unwrap()))
    }

    /// [WL-138] [WL-139] in part: when.
    #[test]
    fn finished_job_is_deleted_when_its_time_is_over_and_not_before() {
        let key: Arc<str> = "u".into();
        let is_due =
            |watched: &Watched<TtlAfterFinished>| !watched.controller.plan(&key, watched.now).actions.is_empty();
        let mut watched = Watched::new(TtlAfterFinished::new());
        let now = watched.now.timestamp;
        for unending in [job(None, Some(now), false), job(Some(0), None, false), job(Some(0), Some(now), true)] {
            watched.tell(unending, [Arc::clone(&key)], 0);
            assert!(!is_due(&watched));
        }
        watched.tell(job(Some(10), Some(now + Duration::from_secs(5)), false), [Arc::clone(&key)], 0);
        watched.pass(Duration::from_secs(14));
        assert!(!is_due(&watched), "it finished in the future");
        watched.pass(Duration::from_secs(1));
        assert!(is_due(&watched));
        watched.tell(job(Some(100), Some(now), false), [Arc::clone(&key)], 0);
        assert!(!is_due(&watched), "it has been given more time");
        watched.tell(job(Some(0), Some(now), false), [Arc::clone(&key)], 0);
        assert!(is_due(&watched));
    }
}
