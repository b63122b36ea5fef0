//! What others see of a pod: one writer per pod, the newest status wins, the final delete comes last.
//!
//! Never on the path of a signal: the driver leaves the newest status here and goes on.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::pod;
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::{Pod, PodStatus as ApiStatus};
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use lifecycle::{Input, PodStatus};
use serde::Deserialize;
use serde_json::{Value, json};
use supervision::BackoffPolicy;
use timeline::Clock;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::driver::Told;
use crate::flaws::{self, Flaw};
use crate::record::RecordReader;
use crate::statics::mirror;
use crate::translate::resize;
use crate::translate::status::api_status;

/// The status that the API should have.
#[derive(Clone, Default)]
struct DesiredStatus {
    status: Option<Arc<PodStatus>>,
    /// Counts the requests to delete; the worker asks again after a failure.
    deletes: u64,
    /// Counts how often somebody else has written what is ours to say.
    overwritten: u64,
    /// Counts every change, so that someone can wait until it is stored.
    version: u64,
}

/// The handle a driver holds.
#[derive(Debug)]
pub struct Publisher {
    wanted: watch::Sender<DesiredStatus>,
    stored: watch::Receiver<u64>,
    written: SharedWritten,
}

/// What a publisher has stored, so that others can tell whether it still stands.
#[derive(Clone, Debug, Default)]
struct Written {
    /// The version of the object that it was stored with.
    version: Option<u64>,
    status: Option<ApiStatus>,
    /// What is being stored: it may be seen before the answer that it is.
    coming: Option<ApiStatus>,
}

type SharedWritten = Arc<Mutex<Written>>;

impl std::fmt::Debug for DesiredStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wanted").field("deletes", &self.deletes).field("version", &self.version).finish()
    }
}

/// Somebody who says otherwise again and again is answered this often.
const REPAIR: Duration = Duration::from_secs(1);
/// What nobody waits for is stored with the next news, if that comes within this time.
const COMPANY: Duration = Duration::from_millis(100);
const RETRY: BackoffPolicy = BackoffPolicy::new(Duration::from_millis(200), Duration::from_secs(5));

impl Publisher {
    /// A publisher and the work of its task, which ends with the handle. `node` owns the mirrors of static pods.
    pub fn start(
        client: kube::Client,
        node: String,
        record: RecordReader,
        inbox: mpsc::Sender<Told>,
        clock: Clock,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (wanted, wanted_seen) = watch::channel(DesiredStatus::default());
        let (stored_told, stored) = watch::channel(0);
        let written = SharedWritten::default();
        let writer = Writer::new(client, node, record, written.clone(), clock);
        let state = (writer, inbox, wanted_seen, stored_told, Done::default());
        let running = supervision::keep_on("publisher", state, |(writer, inbox, wanted, stored, done)| {
            run(writer, inbox, wanted, stored, done).boxed()
        });
        (Self { wanted, stored, written }, running)
    }

    /// Let others see `status`.
    pub fn publish(&self, status: Arc<PodStatus>) {
        self.wanted.send_modify(|w| {
            w.status = Some(status);
            w.version += 1;
        });
    }

    /// Store the last status given, then delete the object; the answer goes to the worker.
    pub fn delete(&self) {
        self.wanted.send_modify(|w| {
            w.deletes += 1;
            w.version += 1;
        });
    }

    /// Someone else's way to wait until what was asked for is stored.
    pub fn flush(&self) -> Flush {
        Flush { wanted: self.wanted.clone(), stored: self.stored.clone(), written: self.written.clone() }
    }
}

/// Waits for a publisher to catch up, or tells it that there is more to say than the worker knows.
#[derive(Clone, Debug)]
pub struct Flush {
    wanted: watch::Sender<DesiredStatus>,
    stored: watch::Receiver<u64>,
    written: SharedWritten,
}

impl Flush {
    /// What the status is made of has changed outside the worker (a readiness gate): write it again if it differs.
    pub fn refresh(&self) {
        self.wanted.send_modify(|w| w.version += 1);
    }

    /// The object was seen like this. If somebody else has written what is ours to say, we say it again.
    pub fn seen(&self, pod: &Pod) {
        let is_overwritten = {
            let written = crate::effects::lock(&self.written);
            let (Some(version), Some(status)) = (number(&pod.metadata.resource_version), &pod.status) else { return };
            let stands = |ours: &ApiStatus| stands(ours, status);
            // What is older than our word says nothing of it.
            written.version.is_some_and(|ours| version > ours)
                && written.status.as_ref().is_some_and(|ours| !stands(ours))
                && !written.coming.as_ref().is_some_and(stands)
        };
        if is_overwritten {
            debug!(pod = pod.metadata.name, "another client changed the pod's status");
            self.overwritten();
        }
    }

    /// Somebody else has written what is ours to say: it is not stored as we think it is.
    pub fn overwritten(&self) {
        self.wanted.send_modify(|w| {
            w.overwritten += 1;
            w.version += 1;
        });
    }

    /// Resolves when everything asked for until now is in the API, or the publisher is gone.
    pub async fn done(mut self) {
        let version = self.wanted.borrow().version;
        let _ = self.stored.wait_for(|stored| *stored >= version).await;
    }
}

/// What was done of what was asked for.
#[derive(Default)]
struct Done {
    deletes: u64,
    overwritten: u64,
    /// It is under way, and nobody waits for the next change before it is done.
    is_due: bool,
}

async fn run(
    writer: &mut Writer,
    inbox: &mpsc::Sender<Told>,
    wanted: &mut watch::Receiver<DesiredStatus>,
    stored: &watch::Sender<u64>,
    done: &mut Done,
) {
    // It broke over what it was asked for last: that is still to be done.
    if done.is_due {
        wanted.mark_changed();
        writer.last = None;
    }
    let mut failures = 1_u32;
    let mut repair_at = Instant::now();
    loop {
        let is_due = done.overwritten != wanted.borrow().overwritten;
        tokio::select! {
            changed = wanted.changed() => if changed.is_err() { return },
            () = tokio::time::sleep_until(repair_at), if is_due => {}
        }
        done.is_due = true;
        let mut no_later_than = None;
        loop {
            let want = wanted.borrow_and_update().clone();
            if done.overwritten != want.overwritten && Instant::now() >= repair_at {
                (done.overwritten, repair_at) = (want.overwritten, Instant::now() + REPAIR);
                writer.last = None;
            }
            let is_late = no_later_than.is_some_and(|at| Instant::now() >= at);
            let can_wait = want.deletes == done.deletes && !is_late;
            match writer.write(want.status.as_deref(), can_wait).await {
                Ok(Outcome::Stored) => {}
                Ok(Outcome::CanWait) => {
                    let at = *no_later_than.get_or_insert_with(|| Instant::now() + COMPANY);
                    tokio::select! {
                        () = tokio::time::sleep_until(at) => {}
                        changed = wanted.changed() => if changed.is_err() { return },
                    }
                    continue;
                }
                Err(_) if flaws::has(Flaw::GivesUpOnStatus) => {}
                Err(error) => {
                    warn!(%error, pod = writer.name, "cannot store a pod's status; trying again");
                    tokio::select! {
                        () = tokio::time::sleep(RETRY.pause(failures)) => failures = failures.saturating_add(1),
                        changed = wanted.changed() => if changed.is_err() { return },
                    }
                    continue;
                }
            }
            failures = 1;
            if want.deletes > done.deletes {
                done.deletes = want.deletes;
                let answer = match supervision::catch("publisher", writer.delete()).await {
                    Ok(Ok(())) => Input::ObjectDeleted,
                    Ok(Err(error)) => Input::ObjectDeleteFailed { message: error.to_string() },
                    Err(panic) => Input::ObjectDeleteFailed { message: panic.to_string() },
                };
                let failed = matches!(answer, Input::ObjectDeleteFailed { .. });
                if !(failed && flaws::has(Flaw::DropsDeleteFailure)) {
                    // A driver that is gone needs no answer.
                    let _ = inbox.send(Told::Input(answer)).await;
                }
            }
            stored.send_replace(want.version);
            done.is_due = false;
            break;
        }
    }
}

/// Writes to the object that shows a pod: its own, or the mirror of a static one.
struct Writer {
    client: kube::Client,
    api: Api<Pod>,
    node: String,
    record: RecordReader,
    name: String,
    /// The object's UID; of a mirror, that of the one seen last.
    uid: String,
    is_static: bool,
    /// What was stored last.
    last: Option<ApiStatus>,
    /// The version of the object as we last saw it.
    version: Option<String>,
    /// What others may know of this.
    written: SharedWritten,
    clock: Clock,
}

/// What became of a status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    /// It is stored, or there is nothing to store it in.
    Stored,
    /// Nobody waits for what is new in it.
    CanWait,
}

/// What is read of the answer to a write.
#[derive(Deserialize)]
struct Stored {
    metadata: StoredMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredMeta {
    resource_version: Option<String>,
}

/// How often somebody else may be quicker before we wait a little.
const CONFLICTS_MOST: u32 = 5;

impl Writer {
    fn new(client: kube::Client, node: String, record: RecordReader, written: SharedWritten, clock: Clock) -> Self {
        let pod = record.pod();
        let is_static = api::pod::is_static(&*pod);
        let meta = &pod.metadata;
        let api = Api::namespaced(client.clone(), meta.namespace.as_deref().unwrap_or_default());
        let (name, uid) = (meta.name.clone().unwrap_or_default(), meta.uid.clone().unwrap_or_default());
        Self { client, api, node, record, name, uid, is_static, last: None, version: None, written, clock }
    }

    /// Stores a status. If it `can_wait`, only what somebody may be waiting for.
    async fn write(&mut self, status: Option<&PodStatus>, can_wait: bool) -> kube::Result<Outcome> {
        let Some(status) = status else { return Ok(Outcome::Stored) };
        if self.is_static && !self.reflect().await? {
            return Ok(Outcome::Stored);
        }
        for _ in 0..CONFLICTS_MOST {
            if self.last.is_none() {
                // After a restart the node remembers less than the API: times of conditions come from there.
                let Some(stored) = self.ours().await? else { return Ok(Outcome::Stored) };
                self.version = stored.metadata.resource_version;
                self.last = Some(stored.status.unwrap_or_default());
            }
            let new = api_status(status, &self.record.get(), self.last.as_ref(), self.clock.wall_now());
            if self.last.as_ref() == Some(&new) {
                // What an earlier agent stored is our word, too.
                let mut written = crate::effects::lock(&self.written);
                if written.version.is_none() {
                    *written = Written { version: number(&self.version), status: Some(new), coming: None };
                }
                return Ok(Outcome::Stored);
            }
            if can_wait && self.last.as_ref().is_some_and(|last| pressing(last) == pressing(&new)) {
                return Ok(Outcome::CanWait);
            }
            crate::effects::lock(&self.written).coming = Some(new.clone());
            let guard = self.guard(&new);
            let mut patch = patch(&self.uid, guard.as_deref(), &new);
            take_back(&mut patch, self.last.as_ref(), &new, self.is_static);
            match self.store(patch).await {
                Ok(stored) => {
                    let version = number(&stored.metadata.resource_version);
                    *crate::effects::lock(&self.written) = Written { version, status: Some(new.clone()), coming: None };
                    (self.last, self.version) = (Some(new), stored.metadata.resource_version);
                    return Ok(Outcome::Stored);
                }
                // Something was written meanwhile, perhaps that the pod is over: look again before saying so.
                Err(error) if guard.is_some() && is_conflict(&error) => self.last = None,
                Err(error) if is_too_large(&error) => {
                    // No later try would fit. The pod lives, and leaves, without its status being told.
                    warn!(%error, pod = self.name, "a pod's status does not fit into its object; it is not stored");
                    self.last = Some(new);
                    return Ok(Outcome::Stored);
                }
                Err(error) if is_refusal(&error) => {
                    if self.ours().await?.is_some() {
                        // Someone else was quicker, or the server will not have it: look again and try again, visibly.
                        self.last = None;
                        return Err(error);
                    }
                    debug!(%error, "the object is no longer ours to write");
                    return Ok(Outcome::Stored);
                }
                Err(error) => return Err(error),
            }
        }
        Err(kube::Error::Api(Box::new(
            kube::core::Status::failure("others keep writing the pod", "Conflict").with_code(409),
        )))
    }

    async fn store(&self, patch: Value) -> kube::Result<Stored> {
        let to = kube::core::Request::new(self.api.resource_url());
        let request = to.patch_subresource("status", &self.name, &PatchParams::default(), &Patch::Strategic(patch));
        // The whole object is in the answer, and nothing else in it is news to us.
        self.client.request(request.map_err(kube::Error::BuildRequest)?).await
    }

    /// The version that the object must still have for a pod to be called over; others may call it so as well, and the
    /// first word stands (node-termination 6.1).
    fn guard(&self, new: &ApiStatus) -> Option<String> {
        let is_over = |status: &ApiStatus| status.phase.as_deref().is_some_and(pod::is_terminal_phase);
        let says_it_first = is_over(new) && !self.last.as_ref().is_some_and(is_over) && !self.is_static;
        if !says_it_first {
            return None;
        }
        let pod = self.record.pod();
        let seen = &pod.metadata.resource_version;
        // The later one will do as well if the pod was not over by then.
        let is_later = number(seen) > number(&self.version) && !pod.status.as_ref().is_some_and(is_over);
        if is_later { seen.clone() } else { self.version.clone() }
    }

    /// Sees to it that there is a mirror to write to. False if the API has no place for one.
    async fn reflect(&mut self) -> kube::Result<bool> {
        let pod = self.record.pod();
        let Some(mirror) = mirror::ensure(&self.client, &pod, &self.node).await? else { return Ok(false) };
        let uid = mirror.metadata.uid.unwrap_or_default();
        if uid != self.uid {
            (self.uid, self.last) = (uid, None);
        }
        Ok(true)
    }

    /// The stored object, if it is still the pod we look after.
    async fn ours(&self) -> kube::Result<Option<Pod>> {
        Ok(self.api.get_opt(&self.name).await?.filter(|pod| pod.metadata.uid.as_ref() == Some(&self.uid)))
    }

    /// Gone is gone, whoever did it: not found, or another pod under our name.
    async fn delete(&self) -> kube::Result<()> {
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions { uid: Some(self.uid.clone()), resource_version: None }),
            ..DeleteParams::default()
        };
        match self.api.delete(&self.name, &params).await {
            Ok(_) => Ok(()),
            // Not found, or the precondition met another UID.
            Err(error) if is_refusal(&error) => match self.ours().await? {
                None => Ok(()),
                Some(_) => Err(error),
            },
            Err(error) => Err(error),
        }
    }
}

/// What somebody may be waiting for in a status: whether it is ready, what its containers do, how it ended. Left out is what
/// is true of every pod at this stage, and soon followed by more.
fn pressing(status: &ApiStatus) -> ApiStatus {
    let mut pressing = status.clone();
    (pressing.observed_generation, pressing.pod_ip, pressing.pod_ips) = (None, None, None);
    let conditions = pressing.conditions.get_or_insert_default();
    conditions.retain(|condition| match condition.type_.as_str() {
        "PodReadyToStartContainers" => false,
        // Where there was no traffic nobody waits for its end.
        "adieu.dev/TrafficDrained" => condition.reason.as_deref() != Some("NotSelected"),
        _ => true,
    });
    for condition in conditions {
        (condition.observed_generation, condition.last_transition_time) = (None, None);
    }
    let lists = [&mut pressing.init_container_statuses, &mut pressing.container_statuses];
    for container in lists.into_iter().flatten().flatten().filter(|container| container.container_id.is_none()) {
        container.image_id.clear();
        container.stop_signal = None;
    }
    pressing
}

/// Versions are numbers here.
fn number(version: &Option<String>) -> Option<u64> {
    version.as_ref()?.parse().ok()
}

/// Whether everything that we said of a pod still stands in what is stored. Others have conditions of their own.
fn stands(ours: &ApiStatus, stored: &ApiStatus) -> bool {
    let kept = stored.conditions.as_deref().unwrap_or_default();
    ours.conditions.iter().flatten().all(|condition| kept.contains(condition))
        && (&ours.phase, &ours.reason, &ours.message) == (&stored.phase, &stored.reason, &stored.message)
        && (&ours.start_time, ours.observed_generation) == (&stored.start_time, stored.observed_generation)
        && (&ours.pod_ip, &ours.pod_ips) == (&stored.pod_ip, &stored.pod_ips)
        && (&ours.host_ip, &ours.host_ips) == (&stored.host_ip, &stored.host_ips)
        && ours.container_statuses == stored.container_statuses
        && ours.init_container_statuses == stored.init_container_statuses
        && ours.ephemeral_container_statuses == stored.ephemeral_container_statuses
}

/// What is sent to store a status, for an object that must be ours and perhaps unchanged.
fn patch(uid: &str, version: Option<&str>, status: &ApiStatus) -> Value {
    let mut patch = json!({ "metadata": { "uid": uid }, "status": with_removals(status) });
    if let Some(version) = version {
        patch["metadata"]["resourceVersion"] = json!(version);
    }
    patch
}

/// A merge keeps what a patch leaves out, so fields that were cleared are said to be null.
fn with_removals(status: &ApiStatus) -> Value {
    let mut value = serde_json::to_value(status).unwrap_or_else(|_| json!({}));
    let explained = |value: &mut Value| {
        let Some(fields) = value.as_object_mut() else { return };
        for name in ["reason", "message"] {
            fields.entry(name).or_insert(Value::Null);
        }
    };
    explained(&mut value);
    // A condition is merged with the one of its type, which may have had its reasons.
    value.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten().for_each(explained);
    value
}

/// A merge keeps the conditions that a patch leaves out. Those that only we write go when they are no longer so; of a mirror
/// that is all of them.
fn take_back(patch: &mut Value, before: Option<&ApiStatus>, new: &ApiStatus, is_mirror: bool) {
    let named = |status: &ApiStatus| -> Vec<String> {
        status.conditions.iter().flatten().map(|condition| condition.type_.clone()).collect()
    };
    let still = named(new);
    let is_resize = |kind: &str| [resize::PENDING, resize::IN_PROGRESS].contains(&kind);
    let ours = |kind: &String| is_mirror || kind.starts_with("adieu.dev/") || is_resize(kind);
    let gone = before.map(named).unwrap_or_default().into_iter().filter(|kind| ours(kind) && !still.contains(kind));
    if let Some(list) = patch["status"]["conditions"].as_array_mut() {
        list.extend(gone.map(|kind| json!({ "$patch": "delete", "type": kind })));
    }
    // So it is with addresses.
    let pod_ips = |status: &ApiStatus| status.pod_ips.iter().flatten().map(|it| it.ip.clone()).collect::<Vec<_>>();
    let host_ips = |status: &ApiStatus| status.host_ips.iter().flatten().map(|it| it.ip.clone()).collect::<Vec<_>>();
    let known = |of: &dyn Fn(&ApiStatus) -> Vec<String>| (before.map(of).unwrap_or_default(), of(new));
    for (name, (before, still)) in [("podIPs", known(&pod_ips)), ("hostIPs", known(&host_ips))] {
        if let Some(list) = patch["status"][name].as_array_mut() {
            let gone = before.into_iter().filter(|ip| !still.contains(ip));
            list.extend(gone.map(|ip| json!({ "$patch": "delete", "ip": ip })));
        }
    }
}

fn is_refusal(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 404 | 409 | 422))
}

fn is_too_large(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 413)
}

fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ContainerStatus, HostIP, PodCondition, PodIP};

    use super::*;

    #[test]
    fn a_condition_that_holds_loses_the_reason_for_which_it_did_not() {
        let ready = PodCondition { type_: "Ready".into(), status: "True".into(), ..PodCondition::default() };
        let status =
            ApiStatus { conditions: Some(vec![ready]), reason: Some("Evicted".into()), ..ApiStatus::default() };
        let condition = json!({ "type": "Ready", "status": "True", "reason": null, "message": null });
        let expected = json!({ "conditions": [condition], "reason": "Evicted", "message": null });
        assert_eq!(with_removals(&status), expected);
        assert_eq!(with_removals(&ApiStatus::default()), json!({ "reason": null, "message": null }));
    }

    /// Conditions of others, and what only they write, leave ours as it is.
    #[test]
    fn own_status_stands_until_another_client_changes_it() {
        let condition = |kind: &str, status: &str| PodCondition {
            type_: kind.into(),
            status: status.into(),
            last_transition_time: crate::translate::api_time(lifecycle::Wall(1_999)),
            ..PodCondition::default()
        };
        let ours = ApiStatus {
            phase: Some("Running".into()),
            conditions: Some(vec![condition("Ready", "True")]),
            ..ApiStatus::default()
        };
        let read: ApiStatus = serde_json::from_value(json!(ours)).expect("it can be read");
        assert_eq!(ours, read, "fractions of a second would be lost on the way");
        let with = |change: fn(&mut ApiStatus)| {
            let mut stored = ours.clone();
            change(&mut stored);
            stands(&ours, &stored)
        };
        assert!(with(|_| {}));
        assert!(with(|it| it.nominated_node_name = Some("n1".into())));
        let mut more = ours.clone();
        more.conditions.get_or_insert_default().push(condition("DisruptionTarget", "True"));
        assert!(stands(&ours, &more));
        assert!(!with(|it| it.phase = Some("Pending".into())));
        assert!(!with(|it| it.conditions = None));
        assert!(!with(|it| it.conditions.iter_mut().flatten().for_each(|it| it.status = "False".into())));
        assert!(!with(|it| it.pod_ip = Some("10.0.0.1".into())));
        assert!(!with(|it| it.container_statuses = Some(Vec::new())));
    }

    /// What waits for company, and what does not.
    #[test]
    fn status_change_that_clients_wait_for_is_written_at_once() {
        let condition = |kind: &str, status: &str| PodCondition {
            type_: kind.into(),
            status: status.into(),
            ..PodCondition::default()
        };
        let container = ContainerStatus { name: "app".into(), ..ContainerStatus::default() };
        let before = ApiStatus {
            phase: Some("Pending".into()),
            conditions: Some(vec![condition("PodReadyToStartContainers", "False"), condition("Ready", "False")]),
            container_statuses: Some(vec![container]),
            ..ApiStatus::default()
        };
        let is_pressing = |change: fn(&mut ApiStatus)| {
            let mut new = before.clone();
            change(&mut new);
            assert_ne!(new, before);
            pressing(&new) != pressing(&before)
        };
        let app = |status: &mut ApiStatus, change: fn(&mut ContainerStatus)| {
            status.container_statuses.iter_mut().flatten().for_each(change);
        };
        assert!(!is_pressing(|it| it.observed_generation = Some(2)));
        assert!(!is_pressing(|it| it.pod_ip = Some("10.0.0.1".into())));
        assert!(!is_pressing(|it| it.conditions.get_or_insert_default()[0].status = "True".into()));
        assert!(!is_pressing(|it| it.conditions.get_or_insert_default()[1].observed_generation = Some(2)));
        assert!(is_pressing(|it| it.conditions.get_or_insert_default()[1].status = "True".into()));
        let drained = |reason: &str| {
            let mut new = before.clone();
            let condition =
                PodCondition { reason: Some(reason.into()), ..condition("adieu.dev/TrafficDrained", "True") };
            new.conditions.get_or_insert_default().push(condition);
            pressing(&new) != pressing(&before)
        };
        assert!(drained("LocalCut") && !drained("NotSelected"));
        assert!(is_pressing(|it| it.phase = Some("Running".into())));
        assert!(is_pressing(|it| it.reason = Some("Evicted".into())));
        let with = |change: fn(&mut ContainerStatus)| {
            let mut new = before.clone();
            app(&mut new, change);
            pressing(&new) != pressing(&before)
        };
        assert!(!with(|it| it.image_id = "sha256:1".into()));
        assert!(with(|it| it.ready = true));
        assert!(with(|it| {
            it.container_id = Some("adieu://1".into());
            it.image_id = "sha256:1".into();
        }));
    }

    /// What a static pod went through before it runs anew is not told of the new run; a pod's own conditions stay.
    #[test]
    fn conditions_that_only_we_write_are_taken_back() {
        let of = |kinds: &[&str]| {
            let condition = |kind: &&str| PodCondition { type_: (*kind).into(), ..PodCondition::default() };
            ApiStatus { conditions: Some(kinds.iter().map(condition).collect()), ..ApiStatus::default() }
        };
        let before = of(&["Ready", "DisruptionTarget", "adieu.dev/TrafficDrained", "PodResizePending"]);
        let removed = |is_mirror: bool| {
            let mut sent = patch("uid", None, &of(&["Ready"]));
            take_back(&mut sent, Some(&before), &of(&["Ready"]), is_mirror);
            let list = sent["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let deleted = list.iter().filter(|it| it["$patch"] == "delete");
            deleted.filter_map(|it| it["type"].as_str().map(str::to_owned)).collect::<Vec<_>>()
        };
        assert_eq!(removed(true), ["DisruptionTarget", "adieu.dev/TrafficDrained", "PodResizePending"]);
        assert_eq!(removed(false), ["adieu.dev/TrafficDrained", "PodResizePending"]);
        let at = |ip: &str| ApiStatus {
            pod_ips: Some(vec![PodIP { ip: ip.into() }]),
            host_ips: Some(vec![HostIP { ip: ip.into() }]),
            ..ApiStatus::default()
        };
        let mut sent = patch("uid", None, &at("10.0.0.1"));
        take_back(&mut sent, Some(&at("192.0.2.1")), &at("10.0.0.1"), false);
        let list = json!([{ "ip": "10.0.0.1" }, { "$patch": "delete", "ip": "192.0.2.1" }]);
        assert_eq!((&sent["status"]["podIPs"], &sent["status"]["hostIPs"]), (&list, &list));
    }
}
