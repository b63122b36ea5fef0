//! Secrets of type `kubernetes.io/service-account-token`: a token of an account that does not expire, for those who cannot ask
//! for one. Each is filled once it is made, put right when it is changed, and goes with its account.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::{Cause, DeleteOptions, Kind, Status};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use frame::{Applied, Controller, Effects, Now, Plan};
use serde_json::{Value, json};
use store::{Change, Key, Object};
use tokio_util::sync::CancellationToken;

use crate::background::{Seen, run, source};
use crate::request::key;
use crate::state::{State, core_kind};
use crate::tokens::{self, Grant, ISSUER};
use crate::{change, delete};

const TYPE: &str = "kubernetes.io/service-account-token";
const NAME: &str = "kubernetes.io/service-account.name";
const UID: &str = "kubernetes.io/service-account.uid";
/// A token must say when it ends; a century is long enough.
const SECONDS: i64 = 100 * 365 * 24 * 3600;

/// Refuses a new secret, if it is one of these, whose account is not there. It is filled later: whoever may only make secrets
/// is not told what comes into them.
pub(crate) fn admit(state: &State, kind: &Kind, secret: &Value) -> Result<(), Status> {
    if kind.collection() != "secrets" || secret["type"] != TYPE {
        return Ok(());
    }
    if account_of(state, secret).is_some() {
        return Ok(());
    }
    let cause = Cause::not_found(format!("metadata.annotations[{NAME}]"), annotation(secret, NAME));
    Err(Status::invalid(kind, api::meta::name(secret), vec![cause]))
}

/// Keeps these secrets as they should be until `stop`.
pub(crate) async fn keep(state: Arc<State>, stop: CancellationToken) {
    let sources = vec![
        source(&state.store, "serviceaccounts", "", Input::Accounts),
        source(&state.store, "secrets", "", Input::Secrets),
    ];
    run("tokens-controller", (state.clock, stop), AccountSecrets::default(), Fill(state), sources).await;
}

/// What of accounts and secrets is told.
#[derive(Debug)]
enum Input {
    Accounts(Seen),
    Secrets(Seen),
}

/// The secrets of this type, which are few.
#[derive(Default, Debug)]
struct AccountSecrets {
    known: BTreeSet<Key>,
}

impl AccountSecrets {
    fn seen(&mut self, secret: &Object) -> Option<Key> {
        if secret.value()["type"] != TYPE {
            return None;
        }
        self.known.insert(secret.key.clone());
        Some(secret.key.clone())
    }
}

impl Controller for AccountSecrets {
    type Input = Input;
    type Key = Key;
    type Action = ();
    type Answer = ();

    fn observe(&mut self, _: Now, input: Input) -> Vec<Key> {
        match input {
            Input::Secrets(Seen::All(all)) => {
                self.known.clear();
                all.iter().filter_map(|secret| self.seen(secret)).collect()
            }
            Input::Secrets(Seen::One(Change::Added(secret) | Change::Modified { after: secret, .. })) => {
                self.seen(&secret).into_iter().collect()
            }
            Input::Secrets(Seen::One(Change::Deleted { last, .. })) => {
                self.known.remove(&last.key);
                Vec::new()
            }
            Input::Accounts(Seen::One(Change::Deleted { last, .. })) => {
                self.known.iter().filter(|secret| secret.namespace == last.key.namespace).cloned().collect()
            }
            // An account that is gone may have been missed.
            Input::Accounts(Seen::All(_)) => self.known.iter().cloned().collect(),
            Input::Accounts(Seen::One(Change::Added(_) | Change::Modified { .. })) => Vec::new(),
        }
    }

    fn plan(&self, secret: &Key, _: Now) -> Plan<()> {
        if self.known.contains(secret) { Plan::act(()) } else { Plan::default() }
    }
}

struct Fill(Arc<State>);

impl Effects<AccountSecrets> for Fill {
    type Error = Status;

    async fn apply(&self, secret: &Key, (): &()) -> Result<Applied<()>, Status> {
        consider(&self.0, secret).await.map(Applied::new)
    }
}

/// Fills what is missing; removes a secret whose account is gone.
async fn consider(state: &State, secret: &Key) -> Result<(), Status> {
    let kind = core_kind("secrets");
    // What is stored by now counts.
    let Some(secret) = state.store.get(secret).filter(|secret| secret.value()["type"] == TYPE) else { return Ok(()) };
    let outcome = match account_of(state, &secret.value()) {
        None => {
            let uid = Some(api::meta::uid(&secret.value()).to_owned());
            let options = DeleteOptions { uid, ..DeleteOptions::default() };
            delete::delete(state, kind, &secret.key, &options).await.map(|_| ())
        }
        Some(account) if is_filled(state, &account, &secret.value()) => Ok(()),
        Some(account) => {
            let filled = change::modify(state, kind, &secret.key, false, |current| {
                let mut new = current.to_value();
                if !is_filled(state, &account, &new) {
                    fill(state, &account, &mut new);
                }
                Ok(new)
            });
            filled.await.map(|_| ())
        }
    };
    match outcome {
        // Gone, or made anew: that is told as well.
        Err(status) if matches!(status.code, 404 | 409) => Ok(()),
        outcome => outcome,
    }
}

/// The account that the secret names: the one it was made for, if that was written down.
fn account_of(state: &State, secret: &Value) -> Option<Arc<Object>> {
    let name = annotation(secret, NAME);
    let account = state.store.get(&key(core_kind("serviceaccounts"), api::meta::namespace(secret), &name))?;
    let uid = annotation(secret, UID);
    (uid.is_empty() || uid == api::meta::uid(&account.value())).then_some(account)
}

fn annotation(secret: &Value, name: &str) -> String {
    api::meta::annotations(secret).find(|(own, _)| *own == name).map(|(_, value)| value.to_owned()).unwrap_or_default()
}

/// What the secret must hold besides the token.
fn contents(state: &State, secret: &Value) -> Vec<(&'static str, String)> {
    let namespace = ("namespace", STANDARD.encode(api::meta::namespace(secret)));
    let ca = state.root_ca.get().map(|pem| ("ca.crt", STANDARD.encode(pem)));
    ca.into_iter().chain([namespace]).collect()
}

fn is_filled(state: &State, account: &Object, secret: &Value) -> bool {
    let token = secret["data"]["token"].as_str().unwrap_or_default();
    let others = contents(state, secret);
    !token.is_empty()
        && annotation(secret, UID) == api::meta::uid(&account.value())
        && others.iter().all(|(name, value)| secret["data"][*name] == **value)
}

fn fill(state: &State, account: &Arc<Object>, secret: &mut Value) {
    let contents = contents(state, secret);
    for part in ["/metadata/annotations", "/data"] {
        let (parent, name) = part.rsplit_once('/').expect("a path has a parent");
        if let Some(parent) = secret.pointer_mut(parent).and_then(Value::as_object_mut)
            && !parent.get(name).is_some_and(Value::is_object)
        {
            parent.insert(name.to_owned(), json!({}));
        }
    }
    secret["metadata"]["annotations"][UID] = json!(api::meta::uid(&account.value()));
    for (name, value) in contents {
        secret["data"][name] = json!(value);
    }
    if secret["data"]["token"].as_str().is_none_or(str::is_empty) {
        let bound = Some((core_kind("secrets"), Arc::new(secret.clone())));
        let audiences = [ISSUER.to_owned()];
        let grant = Grant { account, audiences: &audiences, seconds: SECONDS, bound };
        let (token, _) = tokens::issue(state, &grant, state.now());
        secret["data"]["token"] = json!(STANDARD.encode(token));
    }
}
