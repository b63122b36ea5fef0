//! What others see of a pod: one writer per pod, the newest status wins, the final delete comes last.
//!
//! Never on the path of a signal: the driver leaves the newest status here and goes on.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus as ApiStatus};
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use lifecycle::{Input, PodStatus};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tracing::{debug, warn};

use crate::statics::{self, mirror};
use crate::translate::status::{Facts, api_status, is_over};

/// What the node knows of one pod beside its worker, shared by its driver and its publisher.
pub type SharedFacts = Arc<Mutex<Facts>>;

/// What should be true in the API.
#[derive(Clone, Default)]
struct Wanted {
    status: Option<PodStatus>,
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
    wanted: watch::Sender<Wanted>,
    stored: watch::Receiver<u64>,
}

impl std::fmt::Debug for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wanted").field("deletes", &self.deletes).field("version", &self.version).finish()
    }
}

const RETRY_LEAST: Duration = Duration::from_millis(200);
const RETRY_MOST: Duration = Duration::from_secs(5);

impl Publisher {
    /// A publisher and the work of its task, which ends with the handle. `node` owns the mirrors of static pods.
    pub fn start(
        client: kube::Client,
        node: String,
        facts: SharedFacts,
        inbox: mpsc::Sender<Input>,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (wanted, wanted_seen) = watch::channel(Wanted::default());
        let (stored_told, stored) = watch::channel(0);
        (Self { wanted, stored }, run(Writer::new(client, node, facts), inbox, wanted_seen, stored_told))
    }

    /// Let others see `status`.
    pub fn publish(&self, status: PodStatus) {
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
        Flush { wanted: self.wanted.clone(), stored: self.stored.clone() }
    }
}

/// Waits for a publisher to catch up, or tells it that there is more to say than the worker knows.
#[derive(Clone, Debug)]
pub struct Flush {
    wanted: watch::Sender<Wanted>,
    stored: watch::Receiver<u64>,
}

impl Flush {
    /// What the status is made of has changed outside the worker (a readiness gate): write it again if it differs.
    pub fn refresh(&self) {
        self.wanted.send_modify(|w| w.version += 1);
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

async fn run(
    mut writer: Writer,
    inbox: mpsc::Sender<Input>,
    mut wanted: watch::Receiver<Wanted>,
    stored: watch::Sender<u64>,
) {
    let (mut deletes_done, mut overwritten) = (0, 0);
    let mut retry = RETRY_LEAST;
    while wanted.changed().await.is_ok() {
        loop {
            let want = wanted.borrow_and_update().clone();
            if overwritten != want.overwritten {
                overwritten = want.overwritten;
                writer.last = None;
            }
            if let Err(error) = writer.write(want.status.as_ref()).await {
                warn!(%error, pod = writer.name, "cannot store a pod's status; trying again");
                tokio::select! {
                    () = tokio::time::sleep(retry) => retry = (retry * 2).min(RETRY_MOST),
                    changed = wanted.changed() => if changed.is_err() { return },
                }
                continue;
            }
            retry = RETRY_LEAST;
            if want.deletes > deletes_done {
                deletes_done = want.deletes;
                let answer = match writer.delete().await {
                    Ok(()) => Input::ObjectDeleted,
                    Err(error) => Input::ObjectDeleteFailed { message: error.to_string() },
                };
                // A driver that is gone needs no answer.
                let _ = inbox.send(answer).await;
            }
            stored.send_replace(want.version);
            break;
        }
    }
}

/// Writes to the object that shows a pod: its own, or the mirror of a static one.
struct Writer {
    client: kube::Client,
    api: Api<Pod>,
    node: String,
    facts: SharedFacts,
    name: String,
    /// The object's UID; of a mirror, that of the one seen last.
    uid: String,
    is_static: bool,
    /// What was stored last.
    last: Option<ApiStatus>,
    /// The version of the object as we last saw it.
    version: Option<String>,
}

/// How often somebody else may be quicker before we wait a little.
const CONFLICTS_MOST: u32 = 5;

impl Writer {
    fn new(client: kube::Client, node: String, facts: SharedFacts) -> Self {
        let pod = crate::hands::lock(&facts).pod.clone();
        let is_static = statics::is_static(&pod);
        let meta = pod.metadata;
        let api = Api::namespaced(client.clone(), meta.namespace.as_deref().unwrap_or_default());
        let (name, uid) = (meta.name.unwrap_or_default(), meta.uid.unwrap_or_default());
        Self { client, api, node, facts, name, uid, is_static, last: None, version: None }
    }

    async fn write(&mut self, status: Option<&PodStatus>) -> kube::Result<()> {
        let Some(status) = status else { return Ok(()) };
        if self.is_static && !self.reflect().await? {
            return Ok(());
        }
        for _ in 0..CONFLICTS_MOST {
            if self.last.is_none() {
                // After a restart the node remembers less than the API: times of conditions come from there.
                let Some(stored) = self.ours().await? else { return Ok(()) };
                self.version = stored.metadata.resource_version;
                self.last = Some(stored.status.unwrap_or_default());
            }
            let new = {
                let facts = crate::hands::lock(&self.facts);
                api_status(status, &facts, self.last.as_ref(), timeline::wall_now())
            };
            if self.last.as_ref() == Some(&new) {
                return Ok(());
            }
            let guard = self.guard(&new);
            let mut patch = patch(&self.uid, guard.as_deref(), &new);
            take_back(&mut patch, self.last.as_ref(), &new, self.is_static);
            match self.api.patch_status(&self.name, &PatchParams::default(), &Patch::Strategic(patch)).await {
                Ok(stored) => {
                    (self.last, self.version) = (Some(new), stored.metadata.resource_version);
                    return Ok(());
                }
                // Something was written meanwhile, perhaps that the pod is over: look again before saying so.
                Err(error) if guard.is_some() && is_conflict(&error) => self.last = None,
                Err(error) if is_refusal(&error) => {
                    if self.ours().await?.is_some() {
                        // Someone else was quicker, or the server will not have it: look again and try again, visibly.
                        self.last = None;
                        return Err(error);
                    }
                    debug!(%error, "the object is no longer ours to write");
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Err(kube::Error::Api(Box::new(
            kube::core::Status::failure("others keep writing the pod", "Conflict").with_code(409),
        )))
    }

    /// The version that the object must still have for a pod to be called over; others may call it so as well, and the
    /// first word stands (node-termination 6.1).
    fn guard(&self, new: &ApiStatus) -> Option<String> {
        let is_over = |status: &ApiStatus| status.phase.as_deref().is_some_and(is_over);
        let says_it_first = is_over(new) && !self.last.as_ref().is_some_and(is_over) && !self.is_static;
        if !says_it_first {
            return None;
        }
        let facts = crate::hands::lock(&self.facts);
        let seen = &facts.pod.metadata.resource_version;
        // Versions are numbers here; the later one will do as well if the pod was not over by then.
        let number = |version: &Option<String>| version.as_ref().and_then(|text| text.parse::<u64>().ok());
        let is_later = number(seen) > number(&self.version) && !facts.pod.status.as_ref().is_some_and(is_over);
        if is_later { seen.clone() } else { self.version.clone() }
    }

    /// Sees to it that there is a mirror to write to. False if the API has no place for one.
    async fn reflect(&mut self) -> kube::Result<bool> {
        let pod = crate::hands::lock(&self.facts).pod.clone();
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

/// A merge keeps the conditions and addresses that a patch leaves out. Conditions that only we write go when they are no
/// longer so, of a mirror that is all of them; an address goes with the sandbox that had it.
fn take_back(patch: &mut Value, before: Option<&ApiStatus>, new: &ApiStatus, is_mirror: bool) {
    let named = |status: &ApiStatus| -> Vec<String> {
        status.conditions.iter().flatten().map(|condition| condition.type_.clone()).collect()
    };
    let still = named(new);
    let ours = |kind: &String| is_mirror || kind.starts_with("adieu.dev/");
    let gone = before.map(named).unwrap_or_default().into_iter().filter(|kind| ours(kind) && !still.contains(kind));
    if let Some(list) = patch["status"]["conditions"].as_array_mut() {
        list.extend(gone.map(|kind| json!({ "$patch": "delete", "type": kind })));
    }
    let still: Vec<&str> = new.pod_ips.iter().flatten().map(|own| own.ip.as_str()).collect();
    let before = before.iter().flat_map(|status| status.pod_ips.iter().flatten());
    if let Some(list) = patch["status"]["podIPs"].as_array_mut() {
        let gone = before.filter(|own| !still.contains(&own.ip.as_str()));
        list.extend(gone.map(|own| json!({ "$patch": "delete", "ip": own.ip })));
    }
}

fn is_refusal(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 404 | 409 | 422))
}

fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodCondition;

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

    /// A pod whose sandbox was made anew has one address: that of before is not merged with it.
    #[test]
    fn addresses_of_sandboxes_before_are_taken_back() {
        let at = |ips: &[&str]| {
            let own = |ip: &&str| k8s_openapi::api::core::v1::PodIP { ip: (*ip).into() };
            ApiStatus { pod_ips: Some(ips.iter().map(own).collect()), ..ApiStatus::default() }
        };
        let mut told = json!({ "status": { "podIPs": [{ "ip": "10.86.0.7" }] } });
        take_back(&mut told, Some(&at(&["10.86.0.4", "10.86.0.7"])), &at(&["10.86.0.7"]), false);
        let gone = json!({ "$patch": "delete", "ip": "10.86.0.4" });
        assert_eq!(told["status"]["podIPs"], json!([{ "ip": "10.86.0.7" }, gone]));
    }

    /// What a static pod went through before it runs anew is not told of the new run; a pod's own conditions stay.
    #[test]
    fn conditions_that_only_we_write_are_taken_back() {
        let of = |kinds: &[&str]| {
            let condition = |kind: &&str| PodCondition { type_: (*kind).into(), ..PodCondition::default() };
            ApiStatus { conditions: Some(kinds.iter().map(condition).collect()), ..ApiStatus::default() }
        };
        let before = of(&["Ready", "DisruptionTarget", "adieu.dev/TrafficDrained"]);
        let removed = |is_mirror: bool| {
            let mut sent = patch("uid", None, &of(&["Ready"]));
            take_back(&mut sent, Some(&before), &of(&["Ready"]), is_mirror);
            let list = sent["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let deleted = list.iter().filter(|it| it["$patch"] == "delete");
            deleted.filter_map(|it| it["type"].as_str().map(str::to_owned)).collect::<Vec<_>>()
        };
        assert_eq!(removed(true), ["DisruptionTarget", "adieu.dev/TrafficDrained"]);
        assert_eq!(removed(false), ["adieu.dev/TrafficDrained"]);
    }
}
