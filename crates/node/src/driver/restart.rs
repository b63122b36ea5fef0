//! A driver that broke begins again: from what the journal knows of its worker, and what the runtime has.

use std::sync::Arc;
use std::time::Duration;

use lifecycle::Input;
use runtime_api::Runtime;
use supervision::Panic;
use timeline::JournalError;
use tracing::error;

use super::{Acts, Driver, Told};
use crate::record::PodFact;

/// So many messages may wait while a driver rests.
const WAITING_MAX: usize = 512;

/// The longest rest of a driver that breaks on a request to leave.
const URGENT_REST: Duration = Duration::from_secs(1);

impl<R: Runtime> Driver<R> {
    /// Goes back to what the journal knows, and asks the runtime what has happened since. True when the pod's life is over.
    ///
    /// Everything that was told to the former life, answers included, happened before the runtime is asked: the worker hears it before
    /// the report, and asks for what is still to be done because of the report. What comes after is no answer to this life.
    pub(super) async fn begin_again(&mut self, panic: &Panic) -> Result<bool, Arc<JournalError>> {
        self.worker = self.remembered.clone();
        let left = self.worker.deadline().map(|deadline| deadline.since(self.clock.now()));
        let wait = rest(self.backoff.after_panic(tokio::time::Instant::now().into_std()), left);
        let in_a_row = self.backoff.in_a_row();
        error!(%panic, in_a_row, ?wait, input = ?self.in_hand, "the pod's driver broke; it begins again");
        self.executor.tell_broken(format!("the node broke on this pod, {in_a_row} times in a row; its log says how"));
        let retried = self.in_hand.take().filter(is_told_once);
        // Whoever is asked to leave leaves: nobody would ask again.
        let is_owed = retried.as_ref().is_some_and(asks_to_leave) && !self.remembered.is_terminating();
        if retried.is_some() && retried == self.suspect && !is_owed {
            error!(input = ?self.suspect, "the driver broke on the same fact again, which is left out");
            self.suspect = None;
        } else if let Some(input) = retried {
            self.suspect = Some(input.clone());
            self.pending.push_front(input);
        }
        let is_urgent = self.pending.iter().any(asks_to_leave) || self.waiting.iter().any(is_request_to_leave);
        self.rest(if is_urgent { wait.min(URGENT_REST) } else { wait }).await;
        self.executor.drop_all().await;
        self.record.learn(PodFact::NothingStarts);
        self.held.clear();
        // Whoever was to answer has been ended; what they answered is here.
        while let Ok(told) = self.inbox.try_recv() {
            self.waiting.push_back(told);
        }
        let report = self.executor.report().await;
        if self.hear_the_former().await? {
            return Ok(true);
        }
        self.executor.begin_again();
        self.pending.push_front(Input::AgentRestarted { report });
        Ok(false)
    }

    /// Tells the worker what its former life was told. True when its life is over.
    async fn hear_the_former(&mut self) -> Result<bool, Arc<JournalError>> {
        loop {
            if let Some(input) = self.pending.pop_front() {
                // Of what the runtime has the driver hears by itself, later.
                if is_told_once(&input) && self.step(input, Acts::WhenReported).await? {
                    return Ok(true);
                }
            } else if let Some(told) = self.waiting.pop_front() {
                self.receive(told);
            } else {
                return Ok(false);
            }
        }
    }

    /// Waits, but not when the pod is asked to leave: its time runs. Messages are taken meanwhile, so that nobody waits with them.
    async fn rest(&mut self, wait: Duration) {
        let over = tokio::time::sleep(wait);
        tokio::pin!(over);
        while self.waiting.len() < WAITING_MAX {
            tokio::select! {
                () = &mut over => return,
                told = self.inbox.recv() => {
                    let Some(told) = told else { return };
                    let is_urgent = is_request_to_leave(&told);
                    self.waiting.push_back(told);
                    if is_urgent {
                        return;
                    }
                }
            }
        }
    }
}

/// How long a driver rests that broke: never beyond the pod's deadline, if that is still to come.
pub(super) fn rest(backoff: Duration, left: Option<Duration>) -> Duration {
    left.filter(|left| !left.is_zero()).map_or(backoff, |left| backoff.min(left))
}

/// Whether nobody else tells it again: of time and of what the runtime has the driver hears by itself.
fn is_told_once(input: &Input) -> bool {
    !matches!(input, Input::TimePassed | Input::AgentRestarted { .. })
}

pub(super) fn asks_to_leave(input: &Input) -> bool {
    matches!(input, Input::DeleteRequested { .. } | Input::KillRequested { .. })
}

fn is_request_to_leave(told: &Told) -> bool {
    match told {
        Told::Input(input) => asks_to_leave(input),
        Told::Seen { pod, .. } => pod.metadata.deletion_timestamp.is_some(),
        Told::Exited { .. } | Told::Grant(_) | Told::NotGranted { .. } | Told::Fact { .. } | Told::Answer { .. } => {
            false
        }
    }
}
