//! New connections go elsewhere while one container of a living pod is restarted, if somebody can take them.

use alloc::vec::Vec;
use core::time::Duration;

use crate::container::Run;
use crate::reboot::Shift;
use crate::wake::Soonest;
use crate::{BarrierMode, BestEvidence, Cut, Effect, Moment, PodWorker, Role, TrafficNews, WakeReason};

/// How long a detour is waited for at most.
const CAP: Duration = Duration::from_secs(5);

/// Where a living pod's detour stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) enum Detour {
    /// Traffic comes as usual.
    #[default]
    None,
    /// It was asked for. Left when it is there, or at the cap.
    Asked { until: Moment },
    /// It is there, or may be. Left when the pod is ready again.
    There,
    /// Traffic was asked to come as usual again. That is never answered, so a new agent asks again. Left with the next one.
    Over,
}

impl Detour {
    /// Whether a container must still wait before it may be stopped.
    pub(crate) fn holds(self, now: Moment) -> bool {
        matches!(self, Self::Asked { until } if now < until)
    }

    pub(crate) fn rebase(&mut self, shift: Shift) {
        if let Self::Asked { until } = self {
            shift.apply(until);
        }
    }

    pub(crate) fn wakes(self, wakes: &mut Soonest) {
        if let Self::Asked { until } = self {
            wakes.consider(until, || WakeReason::DetourCap);
        }
    }
}

impl PodWorker {
    /// A container of a living pod is about to be stopped: asks for a detour if there is anybody to take it.
    pub(crate) fn ask_for_detour(&mut self, now: Moment, grace: Duration, out: &mut Vec<Effect>) {
        let wanted = self.drain.restart_barrier
            && matches!(self.drain.barrier, BarrierMode::Auto | BarrierMode::Local)
            && self.routes.best == BestEvidence::Divert
            && !self.routes.last;
        if wanted && matches!(self.detour, Detour::None | Detour::Over) {
            out.push(Effect::CutTraffic { how: Cut::Divert });
            self.detour = Detour::Asked { until: now + CAP.min(grace / 2) };
        }
    }

    /// Whoever routes traffic of a living pod tells something.
    pub(crate) fn living_traffic(&mut self, news: TrafficNews) {
        match news {
            TrafficNews::Routed(routes) => self.routes = routes,
            TrafficNews::CutDone { .. } | TrafficNews::Failed { .. } => {
                if let Detour::Asked { .. } = self.detour {
                    self.detour = Detour::There;
                }
            }
            // Nobody asked a living pod for these.
            TrafficNews::Acked { .. }
            | TrafficNews::Quiet
            | TrafficNews::Settled
            | TrafficNews::Connections { .. }
            | TrafficNews::AppDone
            | TrafficNews::Late { .. } => {}
        }
    }

    /// Whoever was to take the connections is gone: nothing may be taken from the last one.
    pub(crate) fn give_up_detour_of_the_last(&mut self, out: &mut Vec<Effect>) {
        if matches!(self.detour, Detour::Asked { .. } | Detour::There) && self.routes.last {
            out.push(Effect::RestoreTraffic);
            self.detour = Detour::Over;
        }
    }

    /// The agent came back: what was not answered is asked again.
    pub(crate) fn reattach_detour(&self, out: &mut Vec<Effect>) {
        match self.detour {
            // Who makes detours came back as well, and does not know of this one.
            Detour::Asked { .. } | Detour::There => out.push(Effect::CutTraffic { how: Cut::Divert }),
            Detour::Over => out.push(Effect::RestoreTraffic),
            Detour::None => {}
        }
    }

    /// Ends a detour that has done its part.
    pub(crate) fn advance_detour(&mut self, now: Moment, out: &mut Vec<Effect>) {
        if let Detour::Asked { until } = self.detour
            && now >= until
        {
            self.detour = Detour::There;
        }
        let well = |container: &crate::container::Container| match &container.run {
            Run::Running(running) => running.stop.is_none() && container.is_ready(),
            Run::Unstarted | Run::Asked(_) | Run::Waiting { .. } | Run::Ended => {
                !matches!(container.spec.role, Role::Main | Role::Sidecar)
            }
        };
        if self.detour == Detour::There && self.containers.iter().all(well) {
            out.push(Effect::RestoreTraffic);
            self.detour = Detour::Over;
        }
    }
}
