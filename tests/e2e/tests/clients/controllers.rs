//! What operators are made of, in Rust: kube's watchers, reflectors, Controller and finalizer, across a crash.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::pods::SOON;
use e2e::{Instance, complaints};
use futures::StreamExt;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::controller::Action;
use kube::runtime::finalizer::{Event as Finalizing, finalizer};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::utils::Backoff;
use kube::runtime::wait::{await_condition, conditions::is_deleted};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{Controller, WatchStreamExt as _};
use kube::{Client, Resource as _, ResourceExt as _};
use serde_json::json;
use tokio::sync::watch;

const NAMESPACE: &str = "default";

fn config_map(name: &str, value: &str) -> ConfigMap {
    let labels = BTreeMap::from([("watched".to_owned(), "yes".to_owned())]);
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([("value".to_owned(), value.to_owned())])),
        ..ConfigMap::default()
    }
}

/// Asks again ever so soon. The usual way waits longer with each crash, minutes in the end: that tells nothing of the server.
struct Unwearied;

impl Iterator for Unwearied {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(Duration::from_millis(500))
    }
}

impl Backoff for Unwearied {
    fn reset(&mut self) {}
}

/// A copy of what the server has, kept by a watch, and how often it had to be made anew.
struct Mirror {
    store: Store<ConfigMap>,
    made: watch::Receiver<usize>,
    changed: watch::Receiver<usize>,
    task: tokio::task::JoinHandle<()>,
}

impl Mirror {
    fn of(client: &Client, config: watcher::Config) -> Self {
        let (store, writer) = reflector::store();
        let (making, made) = watch::channel(0);
        let (changing, changed) = watch::channel(0);
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
        let events = watcher::watcher(api, config.labels("watched=yes")).backoff(Unwearied).reflect(writer);
        let task = tokio::spawn(async move {
            let mut events = std::pin::pin!(events);
            while let Some(event) = events.next().await {
                if let Ok(Event::Init) = event {
                    making.send_modify(|count| *count += 1);
                }
                // An error is the crash, seen from here; the watcher goes on by itself.
                changing.send_modify(|count| *count += 1);
            }
        });
        Self { store, made, changed, task }
    }

    /// Waits until the copy has `value` under `name`; `None` is an object that is not there.
    async fn sees(&mut self, name: &str, value: Option<&str>) -> Result<()> {
        let reference = ObjectRef::new(name).within(NAMESPACE);
        let seen = async {
            loop {
                let found = self.store.get(&reference);
                let data = found.as_ref().and_then(|map| map.data.as_ref()?.get("value").map(String::as_str));
                if data == value {
                    return true;
                }
                if self.changed.changed().await.is_err() {
                    return false;
                }
            }
        };
        let outcome = tokio::time::timeout(SOON, seen).await;
        ensure!(outcome.with_context(|| format!("{name} is not {value:?} in time"))?, "the watch ended");
        Ok(())
    }
}

/// Wire fact 21: a watch goes on where it was, also across `kill -9`, whichever way it began.
#[tokio::test(flavor = "multi_thread")]
async fn reflectors_outlive_the_server() -> Result<()> {
    let mut instance = Instance::start().await?;
    let client = instance.client().await?;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    api.create(&PostParams::default(), &config_map("before", "1")).await?;
    let listing = Mirror::of(&client, watcher::Config::default());
    let streaming = Mirror::of(&client, watcher::Config::default().streaming_lists());
    let paging = Mirror::of(&client, watcher::Config::default().page_size(1));
    let mut mirrors = [listing, streaming, paging];
    for mirror in &mut mirrors {
        mirror.sees("before", Some("1")).await?;
    }
    for round in 0..3 {
        let value = format!("{round}");
        api.create(&PostParams::default(), &config_map("during", &value)).await?;
        instance.kill_9().await?;
        instance.up().await?;
        let patch = Patch::Merge(json!({ "data": { "value": format!("{round} again") } }));
        api.patch("before", &PatchParams::default(), &patch).await?;
        for mirror in &mut mirrors {
            mirror.sees("during", Some(&value)).await?;
            mirror.sees("before", Some(&format!("{round} again"))).await?;
        }
        api.delete("during", &DeleteParams::default()).await?;
        for mirror in &mut mirrors {
            mirror.sees("during", None).await?;
        }
    }
    for (mirror, name) in mirrors.iter().zip(["listing", "streaming", "paging"]) {
        assert_eq!(*mirror.made.borrow(), 1, "{name}: nothing was lost, so nothing is listed again");
        mirror.task.abort();
    }
    complaints::ensure_none(&instance, complaints::AFTER_A_CRASH)
}

const CLEANUP: &str = "e2e.example.com/cleanup";

/// What the controller below does, as `reconcile` is told.
struct Operator {
    client: Client,
    cleaned: watch::Sender<Vec<String>>,
}

#[derive(Debug, thiserror::Error)]
enum OperatorError {
    #[error("cannot write the child")]
    Write(#[from] kube::Error),
    #[error("cannot finalize")]
    Finalize(#[from] Box<kube::runtime::finalizer::Error<OperatorError>>),
}

/// Every watched ConfigMap has a Secret of its own, made by server-side apply, taken away by a finalizer.
async fn reconcile(parent: Arc<ConfigMap>, operator: Arc<Operator>) -> Result<Action, OperatorError> {
    let maps: Api<ConfigMap> = Api::namespaced(operator.client.clone(), NAMESPACE);
    let outcome = finalizer(&maps, CLEANUP, parent, |event| async {
        let secrets: Api<Secret> = Api::namespaced(operator.client.clone(), NAMESPACE);
        match event {
            Finalizing::Apply(parent) => {
                let value = parent.data.as_ref().and_then(|data| data.get("value")).cloned().unwrap_or_default();
                let child = json!({
                    "apiVersion": "v1", "kind": "Secret",
                    "metadata": { "name": parent.name_any(), "ownerReferences": [parent.controller_owner_ref(&())] },
                    "stringData": { "value": value },
                });
                let params = PatchParams::apply("operator").force();
                secrets.patch(&parent.name_any(), &params, &Patch::Apply(child)).await?;
            }
            Finalizing::Cleanup(parent) => {
                secrets.delete(&parent.name_any(), &DeleteParams::default()).await?;
                operator.cleaned.send_modify(|names| names.push(parent.name_any()));
            }
        }
        Ok(Action::await_change())
    });
    outcome.await.map_err(|error| OperatorError::from(Box::new(error)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_keeps_its_children_and_cleans_up() -> Result<()> {
    let mut instance = Instance::start().await?;
    let client = instance.client().await?;
    let (cleaned, mut seen_clean) = watch::channel(Vec::new());
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let operator = Arc::new(Operator { client: client.clone(), cleaned });
    let retry = |_: Arc<ConfigMap>, _: &OperatorError, _: Arc<Operator>| Action::requeue(Duration::from_millis(100));
    let running = Controller::new(maps.clone(), watcher::Config::default().labels("watched=yes"))
        .owns(secrets.clone(), watcher::Config::default().streaming_lists())
        .run(reconcile, retry, operator);
    let running = tokio::spawn(running.for_each(|_| async {}));

    let parent = maps.create(&PostParams::default(), &config_map("parent", "1")).await?;
    let child = holds(&secrets, "parent", "1").await?;
    assert_eq!(child.owner_references()[0].uid, parent.uid().unwrap());
    assert_eq!(child.type_.as_deref(), Some("Opaque"));

    // Somebody meddles; the owner is told and puts it right.
    let meddled = Patch::Merge(json!({ "stringData": { "value": "2" } }));
    secrets.patch("parent", &PatchParams::default(), &meddled).await?;
    holds(&secrets, "parent", "1").await?;
    secrets.delete("parent", &DeleteParams::default()).await?;
    holds(&secrets, "parent", "1").await?;

    // Across a crash nothing is forgotten, and nobody has to start again.
    instance.kill_9().await?;
    instance.up().await?;
    maps.patch("parent", &PatchParams::default(), &Patch::Merge(json!({ "data": { "value": "3" } }))).await?;
    holds(&secrets, "parent", "3").await?;

    let leaving = maps.delete("parent", &DeleteParams::default()).await?;
    assert_eq!(leaving.left().unwrap().finalizers(), [CLEANUP], "it stays until the controller has let go");
    let clean = tokio::time::timeout(SOON, seen_clean.wait_for(|names| names.contains(&"parent".to_owned())));
    clean.await.context("not cleaned up in time")??;
    let uid = parent.uid().context("it has one")?;
    let gone = await_condition(maps.clone(), "parent", is_deleted(&uid));
    tokio::time::timeout(SOON, gone).await.context("not gone in time")??;
    assert!(secrets.get_opt("parent").await?.is_none());
    running.abort();
    complaints::ensure_none(&instance, complaints::AFTER_A_CRASH)
}

/// Waits until the secret called `name` holds `value`.
async fn holds(secrets: &Api<Secret>, name: &str, value: &str) -> Result<Secret> {
    let wanted = |secret: Option<&Secret>| {
        let data = secret.and_then(|secret| secret.data.as_ref()?.get("value"));
        data.is_some_and(|bytes| bytes.0 == value.as_bytes())
    };
    let waiting = await_condition(secrets.clone(), name, wanted);
    let found = tokio::time::timeout(SOON, waiting).await.with_context(|| format!("{name} is not {value} in time"))?;
    found?.context("it is there")
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_that_collide_are_told_so() -> Result<()> {
    let instance = Instance::start().await?;
    let client = instance.client().await?;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let stale = maps.create(&PostParams::default(), &config_map("contested", "1")).await?;
    maps.patch("contested", &PatchParams::default(), &Patch::Merge(json!({ "data": { "value": "2" } }))).await?;
    let refused = status(maps.replace("contested", &PostParams::default(), &stale).await)?;
    assert_eq!((refused.code, refused.reason.as_str()), (409, "Conflict"));
    assert!(refused.message.ends_with("please apply your changes to the latest version and try again"), "{refused:?}");

    let applied = |value: &str| {
        Patch::Apply(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "applied" }, "data": { "value": value },
        }))
    };
    maps.patch("applied", &PatchParams::apply("one"), &applied("1")).await?;
    let refused = status(maps.patch("applied", &PatchParams::apply("two"), &applied("2")).await)?;
    let cause = &refused.details.context("details")?.causes[0];
    assert_eq!((cause.reason.as_str(), cause.field.as_str()), ("FieldManagerConflict", ".data.value"));
    assert_eq!(cause.message, "conflict with \"one\"");
    maps.patch("applied", &PatchParams::apply("two").force(), &applied("2")).await?;

    // An election: everybody reads the free lease, one writes it.
    let leases: Api<Lease> = Api::namespaced(client, NAMESPACE);
    let free =
        Lease { metadata: ObjectMeta { name: Some("chair".into()), ..ObjectMeta::default() }, ..Lease::default() };
    let free = leases.create(&PostParams::default(), &free).await?;
    let mut elected = Vec::new();
    for candidate in ["ann", "bob", "cid"] {
        let spec = LeaseSpec { holder_identity: Some(candidate.to_owned()), ..LeaseSpec::default() };
        let wanted = Lease { spec: Some(spec), ..free.clone() };
        match leases.replace("chair", &PostParams::default(), &wanted).await {
            Ok(_) => elected.push(candidate),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error.into()),
        }
    }
    assert_eq!(elected, ["ann"]);
    complaints::ensure_none(&instance, &[])
}

fn status<T: std::fmt::Debug>(outcome: kube::Result<T>) -> Result<kube::core::Status> {
    match outcome {
        Err(kube::Error::Api(status)) => Ok(*status),
        other => anyhow::bail!("not refused: {other:?}"),
    }
}
