//! Whoever waits for a kill to be over: eviction, preemption, shutdown.
//!
//! They are always answered: at once if there is nothing to wait for, when no process remains, or when that takes longer
//! than they should have to wait; the kill itself goes on then (node-termination 2.7).

use alloc::vec::Vec;
use core::time::Duration;

use crate::reboot::Shift;
use crate::wake::Soonest;
use crate::{Effect, Event, KillOutcome, Moment, PodWorker, WakeReason};

/// Nobody gives up waiting sooner than this.
const LEAST_PATIENCE: Duration = Duration::from_secs(10);

/// One who waits.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Waiter {
    ticket: u64,
    until: Moment,
}

impl Waiter {
    pub(crate) fn rebase(&mut self, shift: Shift) {
        shift.apply(&mut self.until);
    }
}

impl PodWorker {
    /// Somebody begins to wait.
    pub(crate) fn kill_awaited(&mut self, now: Moment, ticket: u64, out: &mut Vec<Effect>) {
        let Some(termination) = self.phase.termination() else {
            out.push(Effect::KillAnswered { ticket, outcome: KillOutcome::NotAsked });
            return;
        };
        let left = termination.budget.left(now);
        let until = now + (left + left / 2).max(LEAST_PATIENCE);
        self.waiters.push(Waiter { ticket, until });
    }

    /// Answers those who need not, or should not, wait any longer.
    pub(crate) fn advance_waiters(&mut self, now: Moment, out: &mut Vec<Effect>) {
        if self.waiters.is_empty() {
            return;
        }
        let stopped = self.no_process_remains();
        let overran = self.waiters.iter().any(|waiter| now >= waiter.until) && !stopped;
        self.waiters.retain(|waiter| {
            let outcome = match (stopped, now >= waiter.until) {
                (true, _) => KillOutcome::Stopped,
                (false, true) => KillOutcome::Overran,
                (false, false) => return true,
            };
            out.push(Effect::KillAnswered { ticket: waiter.ticket, outcome });
            false
        });
        if overran {
            let message = "Container runtime did not kill the pod within specified grace period.";
            out.push(Effect::Emit(Event::pod_warning("ExceededGracePeriod", message.into())));
        }
    }

    pub(crate) fn waiter_wakes(&self, wakes: &mut Soonest) {
        for waiter in &self.waiters {
            wakes.consider(waiter.until, || WakeReason::KillWaitEnds);
        }
    }
}
