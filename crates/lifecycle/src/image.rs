//! The image of one container: wanted, there, or not to be had for the moment.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use crate::reboot::Shift;
use crate::restart::{BackOff, ERROR_SHOWN};
use crate::wake::Soonest;
use crate::{ContainerName, Effect, Event, EventKind, Moment, Signal, Waiting, WakeReason};

/// Said of a pull that is put off. Which image, whoever knows its name adds.
pub const BACK_OFF_PULLING: &str = "Back-off pulling image";

/// The edition of an image that was told by somebody who did not say which: it is the one that is wanted.
pub const ANY_EDITION: u32 = u32::MAX;

/// Where the image of a container stands.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Image {
    /// Nobody asks for it: its container's turn is still to come, or its pod is leaving.
    Unwanted,
    /// `PullImage` was asked, and is asked again if nobody answered by `until`; `failed` remembers the try before.
    Pulling { failed: Option<PullFailure>, until: Moment },
    /// It is there.
    Ready { stop_signal: Option<Signal> },
    /// It could not be had; tried again later.
    Failed(PullFailure),
}

/// A pull that failed.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct PullFailure {
    reason: String,
    message: String,
    delay: Duration,
    retry_at: Moment,
    /// When the error will be shown as a back-off; `None` once it is, or if this reason never turns into one.
    back_off_at: Option<Moment>,
    backing_off: bool,
}

impl PullFailure {
    fn waiting(&self) -> Waiting {
        match self.backing_off {
            true => Waiting {
                reason: "ImagePullBackOff".into(),
                message: Some(format!("{}: {}: {}", BACK_OFF_PULLING, self.reason, self.message)),
            },
            false => Waiting { reason: self.reason.clone(), message: Some(self.message.clone()) },
        }
    }
}

/// Which image of which container.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WantedImage<'a> {
    pub(crate) container: &'a ContainerName,
    pub(crate) edition: u32,
}

impl WantedImage<'_> {
    fn pull(self) -> Effect {
        Effect::PullImage { container: self.container.clone(), edition: self.edition }
    }
}

impl Image {
    /// How long an answer is waited for. A large image takes its time; asking again for one on its way changes nothing.
    pub(crate) const PATIENCE: Duration = Duration::from_secs(3600);

    /// Asks for the image.
    pub(crate) fn pull(&mut self, wanted: WantedImage<'_>, now: Moment, out: &mut Vec<Effect>) {
        *self = Self::Pulling { failed: None, until: now + Self::PATIENCE };
        out.push(wanted.pull());
    }

    /// Nobody will start this container any more.
    pub(crate) fn give_up(&mut self, container: &ContainerName, out: &mut Vec<Effect>) {
        match self {
            Self::Pulling { .. } => {
                out.push(Effect::CancelPull { container: container.clone() });
                *self = Self::Unwanted;
            }
            Self::Failed(_) => *self = Self::Unwanted,
            Self::Unwanted | Self::Ready { .. } => {}
        }
    }

    /// It is there.
    pub(crate) fn ready(&mut self, stop_signal: Option<Signal>) {
        match self {
            // Before its turn, if an agent of an earlier version asked for it.
            Self::Pulling { .. } | Self::Failed(_) | Self::Unwanted => *self = Self::Ready { stop_signal },
            // Told twice: what was started with stays in force.
            Self::Ready { .. } => {}
        }
    }

    /// It could not be had.
    pub(crate) fn failed(
        &mut self,
        container: &ContainerName,
        now: Moment,
        reason: String,
        message: String,
        out: &mut Vec<Effect>,
    ) {
        let Self::Pulling { failed, .. } = self else { return };
        let delay = failed.as_ref().map_or(BackOff::FIRST, |before| BackOff::following(before.delay));
        // An image that may not be pulled, or has no valid name, is not being backed off from: it is just wrong.
        let turns = !matches!(reason.as_str(), "ErrImageNeverPull" | "InvalidImageName");
        // What went wrong in detail was told by whoever tried.
        out.push(Effect::Emit(Event::warning(container, "Failed", format!("Error: {reason}"))));
        *self = Self::Failed(PullFailure {
            reason,
            message,
            delay,
            retry_at: now + delay,
            back_off_at: turns.then_some(now + ERROR_SHOWN),
            backing_off: false,
        });
    }

    /// Does what time has made due.
    pub(crate) fn advance(&mut self, wanted: WantedImage<'_>, now: Moment, out: &mut Vec<Effect>) {
        let container = wanted.container;
        if let Self::Pulling { until, .. } = self
            && now >= *until
        {
            *until = now + Self::PATIENCE;
            out.push(wanted.pull());
        }
        let Self::Failed(failure) = self else { return };
        if failure.back_off_at.is_some_and(|at| now >= at) {
            failure.back_off_at = None;
            failure.backing_off = true;
            out.push(Effect::Emit(Event {
                container: Some(container.clone()),
                kind: EventKind::Normal,
                reason: "BackOff".into(),
                message: BACK_OFF_PULLING.into(),
            }));
            out.push(Effect::Emit(Event::warning(container, "Failed", "Error: ImagePullBackOff".into())));
        }
        if now >= failure.retry_at {
            *self = Self::Pulling { failed: Some(failure.clone()), until: now + Self::PATIENCE };
            out.push(wanted.pull());
        }
    }

    /// The agent that pulled is gone.
    pub(crate) fn reattach(&self, wanted: WantedImage<'_>, out: &mut Vec<Effect>) {
        match self {
            Self::Pulling { .. } => out.push(wanted.pull()),
            Self::Unwanted | Self::Ready { .. } | Self::Failed(_) => {}
        }
    }

    pub(crate) fn rebase(&mut self, shift: Shift) {
        if let Self::Pulling { until, .. } = self {
            shift.apply(until);
        }
        if let Self::Pulling { failed: Some(failure), .. } | Self::Failed(failure) = self {
            shift.apply(&mut failure.retry_at);
            failure.back_off_at.iter_mut().for_each(|at| shift.apply(at));
        }
    }

    /// When there is something to do about it.
    pub(crate) fn wakes(&self, container: &ContainerName, wakes: &mut Soonest) {
        if let Self::Pulling { until, .. } = self {
            wakes.consider(*until, || WakeReason::PullUnanswered(container.clone()));
        }
        let Self::Failed(failure) = self else { return };
        if let Some(at) = failure.back_off_at {
            wakes.consider(at, || WakeReason::PullBackOffShown(container.clone()));
        }
        wakes.consider(failure.retry_at, || WakeReason::PullRetry(container.clone()));
    }

    /// What it makes its container wait for, if there is more to say than "creating".
    pub(crate) fn waiting(&self) -> Option<Waiting> {
        match self {
            Self::Pulling { failed: Some(failure), .. } | Self::Failed(failure) => Some(failure.waiting()),
            Self::Unwanted | Self::Pulling { failed: None, .. } | Self::Ready { .. } => None,
        }
    }

    /// The stop signal the image names.
    pub(crate) fn stop_signal(&self) -> Option<Signal> {
        match self {
            Self::Ready { stop_signal } => *stop_signal,
            Self::Unwanted | Self::Pulling { .. } | Self::Failed(_) => None,
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        matches!(self, Self::Ready { .. })
    }

    /// On its way for the first time: neither there nor refused.
    pub(crate) fn is_coming(&self) -> bool {
        matches!(self, Self::Pulling { failed: None, .. })
    }
}
