//! Sees to it that every container that runs has what was granted to it: at once where its policy allows that, by another run
//! of it where not.
//!
//! Nothing of this is in the way of a termination: a pod that leaves does so with what it has.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use lifecycle::{Event, Input, Instance, SpecChange};
use runtime_api::{Resources, Runtime, RuntimeError};
use tracing::{info, warn};

use super::{EffectExecutor, PodContext, container_id, error_chain};
use crate::publisher::Flush;
use crate::record::{PodFact, PodRecord};
use crate::translate::resize::{OutdatedRun, Pending, enough_for_both, message};

/// How soon a container that could not be given something, for it uses more, is looked at again.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// Who could not be given something, the pod as a whole if it is none of its runs, and why.
type Refused = (Option<Instance>, String);

impl<R: Runtime> EffectExecutor<R> {
    /// Somebody may have something else than was granted.
    pub fn resources_granted(&self) {
        self.context.granted.notify_one();
    }

    /// What `pod` asks for is granted, to a pod whose containers have to be given it if it is of a generation `in_progress`.
    pub fn resize_granted(&self, pod: &Pod, in_progress: Option<i64>) {
        if let Some(generation) = in_progress {
            self.resources_granted();
            let message = message("Pod resize started", pod, generation, None);
            self.context.tools.recorder.record(pod, Event::pod_normal("ResizeStarted", message));
        }
        self.refresh();
    }

    /// What `pod` asks for is not granted. People are told unless they were `before`.
    pub fn resize_refused(
        &self,
        pod: &Pod,
        before: Option<&Pending>,
        Pending { reason, message: why, generation }: &Pending,
    ) {
        if before.is_some_and(|before| (before.reason, before.generation) == (*reason, *generation)) {
            return;
        }
        let message = message(&format!("Pod resize {reason}"), pod, *generation, Some(why));
        self.context.tools.recorder.record(pod, Event::pod_warning(&format!("Resize{reason}"), message));
    }

    /// A changed manifest is not on disk.
    pub fn manifest_not_kept(&self, error: &std::io::Error) {
        let uid = &self.context.uid.0;
        warn!(uid, %error, "a changed manifest cannot be kept; after a restart it counts as changed again");
    }
}

impl<R: Runtime> PodContext<R> {
    /// Works until the pod leaves. `flush` lets others see how far it is.
    pub(super) async fn keep_resources(&self, flush: Flush) {
        loop {
            let record = self.record.get();
            // One that was deleted under an earlier agent is not known to leave yet.
            if record.is_leaving() || record.pod.metadata.deletion_timestamp.is_some() {
                return;
            }
            drop(record);
            let is_done = self.give_resources(&flush).await;
            tokio::select! {
                () = self.granted.notified() => {}
                () = tokio::time::sleep(TRY_AGAIN), if !is_done => {}
                () = self.leaving() => return,
            }
        }
    }

    /// Has the record learn something, and takes it with that. Of a driver that is gone, as it was.
    async fn learned(&self, fact: PodFact) -> Arc<PodRecord> {
        self.answers.learned(fact).await.unwrap_or_else(|| self.record.get())
    }

    /// Tells whether nothing has to be tried again.
    async fn give_resources(&self, flush: &Flush) -> bool {
        let (mut behind, changed) = self.behind().await;
        let (mut errors, mut all_given): (Vec<Refused>, bool) = (Vec::new(), true);
        // The pod as a whole grows before its containers and shrinks after them: theirs has to fit at any time.
        if let Err(error) = self.widen().await {
            errors.push((None, error));
            behind.clear();
        }
        let is_news = changed || !behind.is_empty();
        for one in behind {
            if one.is_restarted {
                let container = one.run.name.clone();
                let record = self.learned(PodFact::ResizeRestarts(one.run.clone())).await;
                // One that has just ended is not there to be told.
                if record.has(&one.run) {
                    self.answers.tell(Input::SpecChanged { change: SpecChange::Resources { container } }).await;
                }
            } else {
                match self.give(one).await {
                    Ok(given) => all_given &= given,
                    Err(error) => errors.push(error),
                }
            }
        }
        if errors.is_empty()
            && all_given
            && let Err(error) = self.narrow().await
        {
            errors.push((None, error));
        }
        let is_done = errors.is_empty() && all_given;
        if is_news || !errors.is_empty() {
            self.settle(errors).await;
            flush.refresh();
        }
        is_done
    }

    /// Has the pod as a whole have enough for what its containers have and for what was granted to them.
    pub(super) async fn widen(&self) -> Result<(), String> {
        let Some((has, wants)) = self.record.get().has_and_wants() else { return Ok(()) };
        self.give_whole(&has, enough_for_both(&has, &wants)).await
    }

    /// Has the pod as a whole have no more than was granted, once every container has its part. One that is being started may have
    /// been asked for with more; whoever starts it has this looked at again.
    async fn narrow(&self) -> Result<(), String> {
        let record = self.record.get();
        let all_have_theirs =
            record.behind().is_empty() && record.resize.restarting.is_empty() && record.starting.is_empty();
        let Some((has, wants)) = record.has_and_wants().filter(|_| all_have_theirs) else { return Ok(()) };
        self.give_whole(&has, wants).await
    }

    async fn give_whole(&self, has: &Resources, gets: Resources) -> Result<(), String> {
        if *has == gets {
            return Ok(());
        }
        match self.tools.runtime.set_pod_resources(&self.uid, &gets).await {
            Ok(()) => {
                self.learned(PodFact::PodResources(gets)).await;
                Ok(())
            }
            // The next one is made with what was granted.
            Err(RuntimeError::NoSandbox { .. }) => Ok(()),
            Err(error) => Err(error_chain(&error)),
        }
    }

    /// Who is behind and was not told to end for it, and whether somebody is not behind any more.
    async fn behind(&self) -> (Vec<OutdatedRun>, bool) {
        let before = self.record.get();
        let record = self.learned(PodFact::ResizeLooked).await;
        let (had, restarting) = (&before.resize.restarting, &record.resize.restarting);
        let changed = had.len() != restarting.len() || before.resize.granted.is_some();
        let mut behind = record.behind();
        behind.retain(|one| restarting.get(&one.run.name.0) != Some(&one.run.attempt));
        // The rules are told of a start before anything else of that run: they would not end one that they do not know to run.
        // Whoever tells them looks again.
        behind.retain(|one| !record.starting.contains(&one.run));
        (behind, changed)
    }

    /// False if it has to be tried again for no fault of the container's.
    async fn give(&self, one: OutdatedRun) -> Result<bool, Refused> {
        let OutdatedRun { run, granted, wants, .. } = one;
        let given = self.tools.runtime.set_resources(&self.uid, &container_id(&run), &wants).await;
        match given {
            Ok(warnings) => {
                info!(container = %run, ?wants, "a running container has other resources");
                for message in warnings {
                    self.emit(Some(&run.name), lifecycle::EventKind::Warning, "SettingNotApplied", message);
                }
                self.learned(PodFact::RunResources { run, granted, has: wants }).await;
                Ok(true)
            }
            // It has ended; the next run is started with what was granted.
            Err(RuntimeError::NoContainer { .. }) => Ok(true),
            // So it may have, or its shim is not found again yet.
            Err(RuntimeError::NoSandbox { .. }) => Ok(false),
            Err(error) => Err((Some(run), error_chain(&error))),
        }
    }

    /// Tells people how it went: that it is done, or what is in the way.
    async fn settle(&self, errors: Vec<Refused>) {
        let mut record = self.record.get();
        let all = errors.iter().map(|(_, error)| error.as_str()).collect::<Vec<_>>();
        let error = (!errors.is_empty()).then(|| all.join(", "));
        // How much of something is in use is another number at every look, and no news.
        let told = |error: &Option<String>| error.as_ref().map(|text| text.replace(|c: char| c.is_ascii_digit(), ""));
        let is_news = told(&error) != told(&record.resize.error);
        if is_news {
            record = self.learned(PodFact::ResizeError(error.clone())).await;
            let meta = &record.pod.metadata;
            let (namespace, name) =
                (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
            for (run, error) in &errors {
                let container = run.as_ref().map(ToString::to_string);
                warn!(pod = format!("{namespace}/{name}"), uid = %self.uid.0, container, error, "other resources cannot be given yet");
            }
        }
        let Some(generation) = record.resize.granted else { return };
        let event = match error {
            Some(error) if is_news => {
                let message = message("Pod resize error", &record.pod, generation, Some(&error));
                Event::pod_warning("ResizeError", message)
            }
            Some(_) => return,
            None if !record.resize.restarting.is_empty() || !record.behind().is_empty() => return,
            None => {
                self.learned(PodFact::ResizeCompleted).await;
                Event::pod_normal("ResizeCompleted", message("Pod resize completed", &record.pod, generation, None))
            }
        };
        self.say(event);
    }
}
