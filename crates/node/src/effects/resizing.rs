//! Sees to it that every container that runs has what was granted to it: at once where its policy allows that, by another run
//! of it where not.
//!
//! Nothing of this is in the way of a termination: a pod that leaves does so with what it has.

use lifecycle::{Event, Input, Instance, SpecChange};
use runtime_api::{Resources, Runtime, RuntimeError};
use std::time::Duration;
use supervision::error_chain;
use tracing::{info, warn};

use super::{PodContext, container_id, lock};
use crate::publisher::Flush;
use crate::translate::resize::{OutdatedRun, enough_for_both, message};

/// How soon a container that could not be given something, for it uses more, is looked at again.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// Who could not be given something, the pod as a whole if it is none of its runs, and why.
type Refused = (Option<Instance>, String);

impl<R: Runtime> PodContext<R> {
    /// Works until the pod leaves. `flush` lets others see how far it is.
    pub(super) async fn keep_resources(&self, flush: Flush) {
        let mut leaving = self.leaving.subscribe();
        loop {
            // One that was deleted under an earlier agent is not known to leave yet.
            if *leaving.borrow() || api::pod::is_terminating(&*lock(&self.facts).pod) {
                return;
            }
            let is_done = self.give_resources(&flush).await;
            tokio::select! {
                () = self.granted.notified() => {}
                () = tokio::time::sleep(TRY_AGAIN), if !is_done => {}
                // The sender is ours: it cannot be gone.
                _ = leaving.wait_for(|leaving| *leaving) => return,
            }
        }
    }

    /// Tells whether nothing has to be tried again.
    async fn give_resources(&self, flush: &Flush) -> bool {
        let (mut behind, changed) = self.behind();
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
                {
                    let mut facts = lock(&self.facts);
                    // One that has just ended is not there to be told.
                    if !facts.has.contains_key(&one.run) {
                        continue;
                    }
                    facts.resize.restarting.insert(container.0.clone(), one.run.attempt);
                }
                self.tell(Input::SpecChanged { change: SpecChange::Resources { container } }).await;
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
            self.settle(errors);
            flush.refresh();
        }
        is_done
    }

    /// Has the pod as a whole have enough for what its containers have and for what was granted to them.
    pub(super) async fn widen(&self) -> Result<(), String> {
        let Some((has, wants)) = lock(&self.facts).whole() else { return Ok(()) };
        self.give_whole(&has, enough_for_both(&has, &wants)).await
    }

    /// Has the pod as a whole have no more than was granted, once every container has its part. One that is being started may have
    /// been asked for with more; whoever starts it has this looked at again.
    async fn narrow(&self) -> Result<(), String> {
        let whole = {
            let facts = lock(&self.facts);
            let all_have_theirs = facts.behind().is_empty() && facts.resize.restarting.is_empty();
            facts.whole().filter(|_| all_have_theirs && lock(&self.starting).is_empty())
        };
        let Some((has, wants)) = whole else { return Ok(()) };
        self.give_whole(&has, wants).await
    }

    async fn give_whole(&self, has: &Resources, gets: Resources) -> Result<(), String> {
        if *has == gets {
            return Ok(());
        }
        match self.tools.runtime.set_pod_resources(&self.uid, &gets).await {
            Ok(()) => {
                lock(&self.facts).whole = Some(gets);
                Ok(())
            }
            // The next one is made with what was granted.
            Err(RuntimeError::NoSandbox { .. }) => Ok(()),
            Err(error) => Err(error_chain(&error)),
        }
    }

    /// Who is behind and was not told to end for it, and whether somebody is not behind any more.
    fn behind(&self) -> (Vec<OutdatedRun>, bool) {
        let mut facts = lock(&self.facts);
        let mut behind = facts.behind();
        let had = facts.resize.restarting.len();
        let has = facts.has.clone();
        let came_back = |name: &String, run: u32| has.keys().any(|it| it.name.0 == *name && it.attempt > run);
        facts.resize.restarting.retain(|name, run| !came_back(name, *run));
        let changed = facts.resize.restarting.len() != had || facts.resize.granted.is_some();
        if !behind.is_empty() && facts.resize.granted.is_none() {
            facts.resize.granted = Some(facts.pod.metadata.generation.unwrap_or_default());
        }
        behind.retain(|one| facts.resize.restarting.get(&one.run.name.0) != Some(&one.run.attempt));
        // The rules are told of a start before anything else of that run: they would not end one that they do not know to run.
        // Whoever tells them looks again.
        let starting = lock(&self.starting);
        behind.retain(|one| !starting.contains_key(&one.run));
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
                let mut facts = lock(&self.facts);
                if let Some(has) = facts.has.get_mut(&run) {
                    *has = wants;
                    facts.know_resources(&run, Some(granted));
                }
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
    fn settle(&self, errors: Vec<Refused>) {
        let mut facts = lock(&self.facts);
        let all = errors.iter().map(|(_, error)| error.as_str()).collect::<Vec<_>>();
        let error = (!errors.is_empty()).then(|| all.join(", "));
        // How much of something is in use is another number at every look, and no news.
        let told = |error: &Option<String>| error.as_ref().map(|text| text.replace(|c: char| c.is_ascii_digit(), ""));
        let is_news = told(&error) != told(&facts.resize.error);
        if is_news {
            facts.resize.error.clone_from(&error);
            let meta = &facts.pod.metadata;
            let (namespace, name) =
                (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
            for (run, error) in &errors {
                let container = run.as_ref().map(ToString::to_string);
                warn!(pod = format!("{namespace}/{name}"), uid = %self.uid.0, container, error, "other resources cannot be given yet");
            }
        }
        let Some(generation) = facts.resize.granted else { return };
        let event = match error {
            Some(error) if is_news => {
                let message = message("Pod resize error", &facts.pod, generation, Some(&error));
                Event::pod_warning("ResizeError", message)
            }
            Some(_) => return,
            None if !facts.resize.restarting.is_empty() || !facts.behind().is_empty() => return,
            None => {
                facts.resize.granted = None;
                Event::pod_normal("ResizeCompleted", message("Pod resize completed", &facts.pod, generation, None))
            }
        };
        drop(facts);
        self.say(event);
    }
}
