//! Thousands of writers, each with one object and a plan that anybody can check: what they did, and what watchers saw.
//!
//! Step `n` of a plan stores `n` in the object, or removes the object if `n` is a multiple of five. So whatever number was
//! reached last, every event before it is known, and a stream of events is right or wrong as a whole.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures::StreamExt;
use kube::api::{Api, DeleteParams, DynamicObject, PostParams, WatchEvent, WatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::pods::SOON;

/// Where they work.
pub const NAMESPACE: &str = "crowd";

const REMOVE_EVERY: u64 = 5;
/// How long to wait before a server that does not answer is asked again, and for how long it is asked.
const AGAIN: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(120);

/// What a writer writes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// Removed in one step.
    ConfigMap,
    /// Marked and removed in one write of two steps; never scheduled, so that nothing but the API has a part in it.
    Pod,
}

impl Kind {
    /// The kind's objects in [`NAMESPACE`].
    pub fn api(self, client: &kube::Client) -> Api<DynamicObject> {
        let kind = match self {
            Self::ConfigMap => "ConfigMap",
            Self::Pod => "Pod",
        };
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind));
        Api::namespaced_with(client.clone(), NAMESPACE, &resource)
    }

    fn object(self, name: &str, n: u64) -> Result<DynamicObject> {
        let metadata = json!({ "name": name, "annotations": { "n": n.to_string() } });
        Ok(serde_json::from_value(match self {
            Self::ConfigMap => json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata }),
            Self::Pod => json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
                "spec": { "schedulerName": "nobody", "containers": [{ "name": "app", "image": "busybox" }] },
            }),
        })?)
    }
}

/// When the server is up: raised each time it comes up. Writers and watchers that lost it wait for the next life.
pub type Lives = watch::Receiver<usize>;

/// A writer and how far it has come.
pub struct Writer {
    kind: Kind,
    name: String,
    /// The last step known to be done.
    done: u64,
    /// The resourceVersion that each acknowledged step was given, as far as its answer says.
    acknowledged: BTreeMap<u64, u64>,
}

impl Writer {
    /// A writer that has done nothing.
    pub fn new(kind: Kind, number: usize) -> Self {
        Self { kind, name: format!("w-{number}"), done: 0, acknowledged: BTreeMap::new() }
    }

    /// Steps until `enough` says so.
    pub async fn work(
        mut self,
        client: kube::Client,
        mut lives: Lives,
        enough: impl Fn() -> bool,
        acknowledged: impl Fn(),
    ) -> Result<Self> {
        let api = self.kind.api(&client);
        let mut version = None;
        while !enough() {
            let life = *lives.borrow_and_update();
            match self.step(&api, version.as_deref()).await {
                Ok(now) => {
                    if let Some(revision) = now.as_deref().map(str::parse).transpose()? {
                        self.acknowledged.insert(self.done + 1, revision);
                    }
                    self.done += 1;
                    version = now;
                    acknowledged();
                }
                Err(error) => version = self.find_out(&api, &error, life, &mut lives).await?,
            }
        }
        Ok(self)
    }

    /// Does the next step; answers the version the object has then.
    async fn step(&self, api: &Api<DynamicObject>, version: Option<&str>) -> kube::Result<Option<String>> {
        let n = self.done + 1;
        if removes(n) {
            let params = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
            return api.delete(&self.name, &params).await.map(|_| None);
        }
        let mut object = self.kind.object(&self.name, n).map_err(|error| kube::Error::Service(error.into()))?;
        let stored = match version {
            None => api.create(&PostParams::default(), &object).await?,
            Some(version) => {
                // A pod may not change much, and its annotations may.
                if self.kind == Kind::Pod {
                    object = api.get(&self.name).await?;
                    object.metadata.annotations = Some([("n".to_owned(), n.to_string())].into());
                }
                object.metadata.resource_version = Some(version.to_owned());
                api.replace(&self.name, &PostParams::default(), &object).await?
            }
        };
        Ok(stored.metadata.resource_version)
    }

    /// After a step whose answer did not come: either it was done or it was not; nothing else may be there.
    async fn find_out(
        &mut self,
        api: &Api<DynamicObject>,
        error: &kube::Error,
        mut life: usize,
        lives: &mut Lives,
    ) -> Result<Option<String>> {
        let since = Instant::now();
        loop {
            let found = match api.get_opt(&self.name).await {
                Ok(found) => found,
                Err(again) => {
                    // The server is away; or it is back, and the connection to the one before was not known to be dead.
                    ensure!(since.elapsed() < PATIENCE, "{}: {error}, then {again}", self.name);
                    if let Ok(next) = tokio::time::timeout(AGAIN, lives.wait_for(|now| *now != life)).await {
                        life = *next?;
                    }
                    continue;
                }
            };
            let number = found.as_ref().map(number).transpose()?;
            let after = |n: u64| (n > 0 && !removes(n)).then_some(n);
            let (done, not_done) = (number == after(self.done + 1), number == after(self.done));
            ensure!(done || not_done, "{}: {} steps acknowledged, {number:?} stored", self.name, self.done);
            if done {
                self.done += 1;
            } else if let kube::Error::Api(refusal) = error {
                bail!("{}: step {} was refused: {refusal:?}", self.name, self.done + 1);
            }
            return Ok(found.and_then(|object| object.metadata.resource_version));
        }
    }

    /// How many steps are done.
    pub fn done(&self) -> u64 {
        self.done
    }
}

fn removes(n: u64) -> bool {
    n.is_multiple_of(REMOVE_EVERY)
}

fn number(object: &DynamicObject) -> Result<u64> {
    let annotations = object.metadata.annotations.as_ref().context("annotations")?;
    Ok(annotations.get("n").context("a number")?.parse()?)
}

/// What one watcher saw.
#[derive(Default, Debug)]
pub struct Seen {
    /// By name, in order: `+3`, `~4`, `x4` (marked for removal), `-`, each with its revision.
    events: BTreeMap<String, Vec<(u64, String)>>,
    last: u64,
}

impl Seen {
    /// Watches until `enough` says so, across every crash.
    pub async fn watching(
        kind: Kind,
        client: kube::Client,
        from: String,
        mut lives: Lives,
        enough: impl Fn(&Self) -> bool,
    ) -> Result<Self> {
        let api = kind.api(&client);
        let mut seen = Self { last: from.parse()?, ..Self::default() };
        while !enough(&seen) {
            let life = *lives.borrow_and_update();
            let ended = match api.watch(&WatchParams::default(), &seen.last.to_string()).await {
                Ok(events) => seen.follow(events.boxed(), &enough).await?,
                Err(error) => error.to_string(),
            };
            if !enough(&seen) {
                let next = tokio::time::timeout(SOON, lives.wait_for(|now| *now != life)).await;
                next.with_context(|| format!("the watch ended without a crash: {ended}"))??;
            }
        }
        Ok(seen)
    }

    async fn follow(
        &mut self,
        mut events: futures::stream::BoxStream<'_, kube::Result<WatchEvent<DynamicObject>>>,
        enough: &impl Fn(&Self) -> bool,
    ) -> Result<String> {
        while !enough(self) {
            let next = tokio::time::timeout(SOON, events.next()).await.context("a quiet watch")?;
            match next {
                Some(Ok(event)) => self.take(event)?,
                Some(Err(error)) => return Ok(error.to_string()),
                None => return Ok("closed".to_owned()),
            }
        }
        Ok("enough".to_owned())
    }

    fn take(&mut self, event: WatchEvent<DynamicObject>) -> Result<()> {
        let (sign, object) = match event {
            WatchEvent::Added(object) => ("+", object),
            WatchEvent::Modified(object) if object.metadata.deletion_timestamp.is_some() => ("x", object),
            WatchEvent::Modified(object) => ("~", object),
            WatchEvent::Deleted(object) => ("-", object),
            WatchEvent::Bookmark(bookmark) => {
                self.last = bookmark.metadata.resource_version.parse()?;
                return Ok(());
            }
            WatchEvent::Error(status) => bail!("the watch broke after {}: {status:?}", self.last),
        };
        let revision = object.metadata.resource_version.as_deref().context("a version")?.parse()?;
        ensure!(revision > self.last, "{revision} was seen after {}", self.last);
        self.last = revision;
        let name = object.metadata.name.clone().context("a name")?;
        // What else lives in the namespace is not ours.
        if name.starts_with("w-") {
            let word = if sign == "-" { sign.to_owned() } else { format!("{sign}{}", number(&object)?) };
            self.events.entry(name).or_default().push((revision, word));
        }
        Ok(())
    }

    /// How many events there were.
    pub fn count(&self) -> usize {
        self.events.values().map(Vec::len).sum()
    }

    /// Whether the watcher saw exactly what `writer` did, at the revisions that it was told.
    pub fn agrees_with(&self, writer: &Writer) -> Result<()> {
        let expected = story(writer.kind, writer.done);
        let seen = self.events.get(&writer.name).map(Vec::as_slice).unwrap_or_default();
        let words: Vec<&str> = seen.iter().map(|(_, word)| word.as_str()).collect();
        ensure!(words == expected, "{}: {words:?} seen, {expected:?} happened", writer.name);
        for (n, revision) in &writer.acknowledged {
            let word = seen.iter().find(|(at, _)| at == revision).map(|(_, word)| &word[1..]);
            ensure!(word == Some(&n.to_string()), "{}: step {n} was given {revision}, {word:?} seen", writer.name);
        }
        Ok(())
    }
}

/// Every event of a plan's first `done` steps.
fn story(kind: Kind, done: u64) -> Vec<String> {
    let step = |n: u64| match (removes(n), kind) {
        (true, Kind::ConfigMap) => vec!["-".to_owned()],
        (true, Kind::Pod) => vec![format!("x{}", n - 1), "-".to_owned()],
        (false, _) if n == 1 || removes(n - 1) => vec![format!("+{n}")],
        (false, _) => vec![format!("~{n}")],
    };
    (1..=done).flat_map(step).collect()
}

/// How many events all these writers made of `kind`.
pub fn events_of(kind: Kind, writers: &[Writer]) -> usize {
    writers.iter().filter(|writer| writer.kind == kind).map(|writer| story(kind, writer.done).len()).sum()
}

/// Makes an object that is nobody's, so that whoever watches has something to see.
pub async fn touch(kind: Kind, client: &kube::Client, name: &str) -> Result<()> {
    kind.api(client).create(&PostParams::default(), &kind.object(name, 0)?).await?;
    Ok(())
}

/// Makes the namespace; answers the revision from which everything there can be watched.
pub async fn prepare(client: &kube::Client) -> Result<String> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Namespace"));
    let namespaces: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let made: Value = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
    let made = namespaces.create(&PostParams::default(), &serde_json::from_value(made)?).await?;
    made.metadata.resource_version.context("a version")
}

/// Checks that revisions were given out once, and every watcher's story.
pub fn check(writers: &[Writer], watchers: &[(Kind, Seen)]) -> Result<()> {
    let mut owners = BTreeMap::new();
    for writer in writers {
        for (n, revision) in &writer.acknowledged {
            if let Some(other) = owners.insert(*revision, (&writer.name, *n)) {
                bail!("revision {revision} was given to {other:?} and to {:?}", (&writer.name, n));
            }
        }
    }
    for (kind, seen) in watchers {
        for writer in writers.iter().filter(|writer| writer.kind == *kind) {
            seen.agrees_with(writer)?;
        }
    }
    Ok(())
}
