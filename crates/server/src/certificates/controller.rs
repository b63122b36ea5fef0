//! Approves what needs nobody to approve it, signs what was approved, and removes what is over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::{DeleteOptions, Kind, Status};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use frame::{Applied, Controller, Effects, Now, Plan, Wake};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use store::{Change, Key, Object};
use tokio_util::sync::CancellationToken;

use super::signing_request::{CLIENT, NODE_CLIENT, NODE_SERVING, SigningRequest};
use super::{COLLECTION, GROUP, approval};
use crate::background::{self, Seen};
use crate::bootstrap::known;
use crate::pki::Pki;
use crate::state::State;
use crate::{change, delete, request};

/// How long a request stays after it was decided, and while nobody decides.
const DECIDED_LIFE: SignedDuration = SignedDuration::from_hours(1);
const PENDING_LIFE: SignedDuration = SignedDuration::from_hours(24);
/// How long a certificate is good if nobody asks for less: of nodes, who renew theirs by themselves, and of others.
const NODE_LIFE: Duration = Duration::from_secs(30 * 24 * 60 * 60);
const CLIENT_LIFE: Duration = Duration::from_secs(365 * 24 * 60 * 60);
const LIFE_LEAST: u64 = 600;

/// Looks after requests until `stop`, from when it is known what to sign by.
pub(crate) async fn keep(state: Arc<State>, stop: CancellationToken) {
    let Some(authority) = stop.run_until_cancelled(state.authority.wait()).await.cloned() else { return };
    let sources = vec![
        background::source(&state.store, COLLECTION, "", Input::Requests),
        background::source(&state.store, "nodes", "", Input::Nodes),
    ];
    let effects = Sign { state: Arc::clone(&state), authority };
    background::run("certificates", (state.clock, stop), Requests::default(), effects, sources).await;
}

#[derive(Debug)]
enum Input {
    Requests(Seen),
    Nodes(Seen),
}

/// What is to be done about one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
    /// See whether anybody needs to be asked.
    Decide,
    Sign,
    Remove,
}

#[derive(Default)]
struct Requests {
    known: BTreeMap<Arc<str>, Arc<Object>>,
}

impl Controller for Requests {
    type Input = Input;
    type Key = Arc<str>;
    type Action = Action;
    type Answer = ();

    fn observe(&mut self, _: Now, input: Input) -> Vec<Arc<str>> {
        match input {
            Input::Requests(Seen::All(all)) => {
                let mut keys: Vec<Arc<str>> = self.known.keys().cloned().collect();
                self.known = all.into_iter().map(|object| (name(&object), object)).collect();
                keys.extend(self.known.keys().cloned());
                keys
            }
            Input::Requests(Seen::One(change)) => match change {
                Change::Added(object) | Change::Modified { after: object, .. } => {
                    let name = name(&object);
                    self.known.insert(Arc::clone(&name), object);
                    vec![name]
                }
                Change::Deleted { last, .. } => {
                    self.known.remove(&*last.key.name);
                    Vec::new()
                }
            },
            // Addresses of a node may be what its request waits for.
            Input::Nodes(Seen::All(_)) => self.pending(None),
            Input::Nodes(Seen::One(Change::Modified { before, after })) => {
                let addresses = |node: &Object| node.value()["status"]["addresses"].clone();
                match addresses(&before) == addresses(&after) {
                    true => Vec::new(),
                    false => self.pending(Some(&after.key.name)),
                }
            }
            Input::Nodes(Seen::One(Change::Added(node))) => self.pending(Some(&node.key.name)),
            Input::Nodes(Seen::One(Change::Deleted { .. })) => Vec::new(),
        }
    }

    fn plan(&self, key: &Arc<str>, now: Now) -> Plan<Action> {
        let Some(object) = self.known.get(key).map(|object| object.value()) else { return Plan::default() };
        let (action, end) = decide(&object);
        if end.is_some_and(|end| end <= now.timestamp) {
            return Plan::act(Action::Remove);
        }
        let wake = end.map(|end| Wake { at: now.at(end), why: "a request for a certificate has had its time" });
        Plan { actions: action.into_iter().collect(), wake }
    }
}

impl Requests {
    /// Requests of a node, or of any, that nobody has decided.
    fn pending(&self, node: Option<&str>) -> Vec<Arc<str>> {
        let of = |object: &Value| {
            let user = object["spec"]["username"].as_str().unwrap_or_default();
            node.is_none_or(|node| user.strip_prefix("system:node:") == Some(node))
        };
        let waits = |object: &Value| decide(object).0 == Some(Action::Decide) && of(object);
        self.known.iter().filter(|(_, object)| waits(&object.value())).map(|(name, _)| Arc::clone(name)).collect()
    }
}

fn name(object: &Object) -> Arc<str> {
    Arc::from(&*object.key.name)
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let all = object["status"]["conditions"].as_array().into_iter().flatten();
    all.into_iter().find(|condition| condition["type"] == kind && condition["status"] == "True")
}

/// What comes next for a request, and when it has had its time.
fn decide(object: &Value) -> (Option<Action>, Option<Timestamp>) {
    let created = api::meta::creation_timestamp(object);
    let after = |time: Timestamp, life: SignedDuration| time.saturating_add(life).ok();
    let pending = created.and_then(|created| after(created, PENDING_LIFE));
    // Whoever decides says when; it is never later than a request without a decision stays.
    let over = |condition: &Value| {
        let told = condition["lastUpdateTime"].as_str().and_then(api::time::parse).or(created);
        let told = told.into_iter().chain(pending).min();
        told.and_then(|told| after(told, DECIDED_LIFE))
    };
    let signer = object["spec"]["signerName"].as_str().unwrap_or_default();
    let is_ours = [CLIENT, NODE_CLIENT, NODE_SERVING].contains(&signer);
    let issued = object["status"]["certificate"].as_str().is_some_and(|text| !text.is_empty());
    match (condition(object, "Denied"), condition(object, "Failed"), condition(object, "Approved")) {
        (Some(ended), _, _) | (None, Some(ended), _) => (None, over(ended)),
        (None, None, Some(approved)) if issued => (None, over(approved)),
        (None, None, Some(_)) => (is_ours.then_some(Action::Sign), pending),
        (None, None, None) => (is_ours.then_some(Action::Decide), pending),
    }
}

struct Sign {
    state: Arc<State>,
    authority: Pki,
}

impl Effects<Requests> for Sign {
    type Error = Status;

    async fn apply(&self, name: &Arc<str>, action: &Action) -> Result<Applied<()>, Status> {
        let kind = known(GROUP, "certificatesigningrequests");
        let key = request::key(kind, "", name);
        let Some(stored) = self.state.store.get(&key) else { return Ok(Applied::new(())) };
        let object = stored.value();
        match action {
            Action::Remove => match delete::delete(&self.state, kind, &key, &DeleteOptions::default()).await {
                Err(error) if error.code != 404 => return Err(error),
                Ok(_) | Err(_) => {}
            },
            Action::Decide => {
                let asked = SigningRequest::parse(object["spec"]["request"].as_str().unwrap_or_default());
                let reason = asked.ok().and_then(|asked| approval::approved(&self.state, &object, &asked));
                let Some(reason) = reason else { return Ok(Applied::new(())) };
                let approved = json!({ "type": "Approved", "status": "True", "reason": "AutoApproved",
                    "message": reason });
                self.write(kind, &key, Action::Decide, move |new, now| add_condition(new, &approved, now)).await?;
            }
            Action::Sign => {
                let outcome = self.certificate(&object);
                self.write(kind, &key, Action::Sign, move |new, now| match &outcome {
                    Ok(pem) => new["status"]["certificate"] = json!(STANDARD.encode(pem)),
                    Err(complaint) => {
                        let failed = json!({ "type": "Failed", "status": "True", "reason": "SignerValidationFailure",
                            "message": complaint });
                        add_condition(new, &failed, now);
                    }
                })
                .await?;
            }
        }
        Ok(Applied::new(()))
    }
}

impl Sign {
    /// The certificate that was asked for, or why there is none.
    fn certificate(&self, object: &Value) -> Result<String, String> {
        let spec = &object["spec"];
        let asked = SigningRequest::parse(spec["request"].as_str().unwrap_or_default())?;
        let usages: Vec<&str> = spec["usages"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let signer = spec["signerName"].as_str().unwrap_or_default();
        if let Some(complaint) = asked.complaint(signer, &usages) {
            return Err(complaint);
        }
        let most = if signer == CLIENT { CLIENT_LIFE } else { NODE_LIFE };
        let wanted = spec["expirationSeconds"].as_u64().map(|seconds| Duration::from_secs(seconds.max(LIFE_LEAST)));
        let life = wanted.map_or(most, |wanted| wanted.min(most));
        let issued = self.authority.issue(&asked, &usages, life, self.state.now().into());
        issued.map_err(|error| supervision::error_chain(&error).to_string())
    }

    /// Writes what came of `action`, if it is still what is to be done.
    async fn write(
        &self,
        kind: &Arc<Kind>,
        key: &Key,
        action: Action,
        write: impl Fn(&mut Value, &str),
    ) -> Result<(), Status> {
        let now = api::time::seconds(self.state.now());
        let written = change::modify(&self.state, kind, key, false, |current| {
            let mut new = current.to_value();
            if decide(&new).0 == Some(action) {
                write(&mut new, &now);
            }
            Ok(new)
        });
        match written.await {
            Err(error) if error.code != 404 => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

fn add_condition(object: &mut Value, condition: &Value, now: &str) {
    let mut condition = condition.clone();
    condition["lastUpdateTime"] = json!(now);
    condition["lastTransitionTime"] = json!(now);
    match object["status"]["conditions"].as_array_mut() {
        Some(all) => all.push(condition),
        None => object["status"]["conditions"] = json!([condition]),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn request(conditions: Value, certificate: &str, signer: &str) -> Value {
        json!({ "metadata": { "name": "r", "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "signerName": signer }, "status": { "conditions": conditions, "certificate": certificate } })
    }

    fn decided(kind: &str, at: &str) -> Value {
        json!([{ "type": kind, "status": "True", "lastUpdateTime": at }])
    }

    #[test]
    fn request_is_decided_signed_and_removed_in_its_time() {
        let plan = |conditions: Value, certificate: &str| {
            let (action, end) = decide(&request(conditions, certificate, CLIENT));
            (action, end.unwrap().to_string())
        };
        let (one, day) = ("2026-01-01T01:00:00Z", "2026-01-02T00:00:00Z");
        assert_eq!(plan(json!([]), ""), (Some(Action::Decide), day.into()));
        assert_eq!(plan(decided("Approved", one), ""), (Some(Action::Sign), day.into()));
        assert_eq!(plan(decided("Approved", one), "x"), (None, "2026-01-01T02:00:00Z".into()));
        for ended in ["Denied", "Failed"] {
            assert_eq!(plan(decided(ended, one), ""), (None, "2026-01-01T02:00:00Z".into()), "{ended}");
        }
        // A decision that says it is of the future keeps nothing for longer.
        assert_eq!(plan(decided("Denied", "2036-01-01T00:00:00Z"), "").1, "2026-01-02T01:00:00Z");
        let (action, end) = decide(&request(decided("Approved", one), "", "example.com/other"));
        assert_eq!((action, end.unwrap().to_string()), (None, day.into()), "somebody else signs that");
    }
}
