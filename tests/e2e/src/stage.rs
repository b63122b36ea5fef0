//! One instance that many stories share: pods mostly sleep, so dozens of them leave at the same time.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use futures::future::{FutureExt, LocalBoxFuture, join_all};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use tokio::sync::Semaphore;

use crate::complaints::{self, Expected};
use crate::pace::Pace;
use crate::story::{Draft, POLITE};
use crate::{Instance, Kubectl};

/// How long a story waits for something that should come at once: all others are told at the same time.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// Many people type at the same time, and the machine runs their kubectls in turn.
const KUBECTLS: usize = 4;

/// A story's title, and the story.
pub type Story<'a> = (&'static str, LocalBoxFuture<'a, Result<()>>);

/// The stories of a file, by the names of the functions that tell them.
#[macro_export]
macro_rules! stories {
    [$stage:expr; $($story:ident),+ $(,)?] => {
        vec![$((stringify!($story), futures::future::FutureExt::boxed_local($story($stage)))),+]
    };
}

/// The instance, and who looks at it.
pub struct Stage {
    /// Where the stories happen.
    pub instance: Instance,
    /// Sees what kubectl shows of no pod that is gone.
    pub client: kube::Client,
    /// What can be forgiven.
    pub pace: Pace,
    kubectl: Kubectl,
    typing: Semaphore,
}

impl Stage {
    /// Starts an instance.
    pub async fn set() -> Result<Self> {
        Self::on(Instance::start().await?).await
    }

    /// The same, on an instance that is already there.
    pub async fn on(instance: Instance) -> Result<Self> {
        Ok(Self {
            client: instance.client().await?,
            pace: Pace::start()?,
            kubectl: Kubectl::newest(&instance)?,
            typing: Semaphore::new(KUBECTLS),
            instance,
        })
    }

    /// Begins to write a pod.
    pub fn pod(&self, name: &str) -> Result<Draft<'_>> {
        Draft::new(self, name)
    }

    /// The pods.
    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Runs stock kubectl.
    pub async fn kubectl(&self, words: &[&str]) -> Result<String> {
        let _turn = self.typing.acquire().await?;
        self.kubectl.run(words).await
    }

    /// Runs stock kubectl, which must be refused; answers what it complains about.
    pub async fn refused(&self, words: &[&str]) -> Result<String> {
        match self.kubectl(words).await {
            Ok(said) => anyhow::bail!("kubectl {words:?} is not refused: {said}"),
            Err(error) => Ok(format!("{error:#}")),
        }
    }

    /// `kubectl apply -f -`.
    pub async fn apply(&self, manifest: &serde_json::Value) -> Result<String> {
        let _turn = self.typing.acquire().await?;
        self.kubectl.apply(manifest).await
    }

    /// Waits for an event with this reason about the pod called `name`; answers its message.
    pub async fn told(&self, name: &str, reason: &str) -> Result<String> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), "default");
        let fields = format!("involvedObject.name={name},reason={reason}");
        let mut events = api.watch(&WatchParams::default().fields(&fields), "0").await?.boxed();
        let hearing = async {
            loop {
                match events.next().await.context("the watch ended")?? {
                    WatchEvent::Added(event) | WatchEvent::Modified(event) => {
                        return Ok(event.message.unwrap_or_default());
                    }
                    WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => {}
                    WatchEvent::Error(status) => anyhow::bail!("the watch broke: {status:?}"),
                }
            }
        };
        let heard = tokio::time::timeout(PATIENCE, hearing).await;
        heard.with_context(|| format!("no event {reason} about {name}"))?
    }

    /// Everything that has been told about the pod called `name`, as `REASON MESSAGE`: the node tells things in order, so
    /// nothing of what happened before is missing once it has told of a pod that came afterwards.
    pub async fn all_told(&self, name: &str) -> Result<Vec<String>> {
        let after = format!("{name}-afterwards");
        let mut later = self.pod(&after)?.main("app", POLITE).create().await?;
        self.told(&after, "Started").await?;
        later.delete(&["--force", "--grace-period=0"]).await?;
        let api: Api<Event> = Api::namespaced(self.client.clone(), "default");
        let list = api.list(&ListParams::default().fields(&format!("involvedObject.name={name}"))).await?;
        let words =
            |event: Event| format!("{} {}", event.reason.unwrap_or_default(), event.message.unwrap_or_default());
        Ok(list.items.into_iter().map(words).collect())
    }

    /// Tells all stories at the same time, each to its end even if another one fails, and fails with every failure.
    pub async fn tell(&self, stories: Vec<Story<'_>>, expected: &[Expected]) -> Result<()> {
        let told = stories.into_iter().map(|(title, story)| async move {
            match AssertUnwindSafe(story).catch_unwind().await {
                Ok(outcome) => outcome.err().map(|error| format!("{title}: {error:#}")),
                Err(_) => Some(format!("{title}: an assertion failed, see above")),
            }
        });
        let failed: Vec<String> = join_all(told).await.into_iter().flatten().collect();
        ensure!(failed.is_empty(), "{} stories end badly:\n{}", failed.len(), failed.join("\n"));
        complaints::ensure_none(&self.instance, expected)
    }
}

impl Drop for Stage {
    /// Whoever is left, because a story broke off, may have minutes to leave; nobody waits for that.
    fn drop(&mut self) {
        let words = ["delete", "pods", "--all", "--force", "--grace-period=0", "--wait=false", "--request-timeout=10s"];
        let _ = self.kubectl.command(&words).as_std_mut().output();
    }
}
