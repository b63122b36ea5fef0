//! The machine was booted anew: moments of the old boot become moments of the new one.
//!
//! A moment counts from the boot, so after another boot it means nothing by itself. Whoever reads the journal knows from
//! the wall clock how much time went by, and says which old moment is the present one; everything else is moved by the
//! same distance. What then lies before the boot lies at the boot: it is past, and that is all that matters of it.

use core::time::Duration;

use crate::container::Run;
use crate::phase::Phase;
use crate::{Moment, PodWorker};

/// From one boot's clock to another's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shift {
    pub(crate) was: Moment,
    pub(crate) is: Moment,
}

impl Shift {
    pub(crate) fn apply(self, moment: &mut Moment) {
        let Self { was, is } = self;
        *moment = if *moment >= was { is + moment.since(was) } else { is.before(was.since(*moment)) };
    }

    /// How long before the new boot an old moment lies.
    pub(crate) fn lost(self, moment: Moment) -> Duration {
        self.was.since(moment).saturating_sub(self.is.since(Moment::default()))
    }
}

impl PodWorker {
    /// Moves everything that is remembered of time. What became of the containers is told separately.
    pub(crate) fn rebase(&mut self, shift: Shift) {
        if let Some(began) = &mut self.began_at {
            self.active_before += shift.lost(*began);
            shift.apply(began);
        }
        self.detour.rebase(shift);
        self.waiters.iter_mut().for_each(|waiter| waiter.rebase(shift));
        for container in &mut self.containers {
            container.image.rebase(shift);
            match &mut container.run {
                Run::Waiting { until, then, .. } => {
                    shift.apply(until);
                    then.iter_mut().for_each(|(at, _)| shift.apply(at));
                }
                Run::Running(running) => running.rebase(shift),
                Run::Asked(asked) => asked.rebase(shift),
                Run::Unstarted | Run::Ended => {}
            }
        }
        if let Some(termination) = self.phase.termination_mut() {
            termination.rebase(shift);
        }
        match &mut self.phase {
            Phase::Clearing { removal: errand, .. } | Phase::Deleting { delete: errand, .. } => errand.rebase(shift),
            // Whoever reports what came through the boot makes errands about a sandbox begin anew.
            Phase::New | Phase::Living { .. } | Phase::Ending { .. } | Phase::Resting { .. } | Phase::Gone { .. } => {}
        }
    }
}
