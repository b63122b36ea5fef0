//! The pod's traffic: what was asked of whoever routes it, what was answered, and who else can take it.

use std::time::Duration;

use lifecycle::{BestEvidence, Cut, Effect, Input, Moment, Routes, TrafficNews};

use crate::step::StepKind;

/// How many proxies must let go.
pub const PROXIES: u8 = 2;

/// How the pod is reached.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reach {
    /// Its node can send new connections to a sibling.
    Divert,
    /// Every proxy has to let go of it.
    Acks,
    /// Not any more.
    Nobody,
}

/// Who else can take its connections.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Siblings {
    /// Somebody.
    #[default]
    There,
    /// Nobody yet: a replacement is on its way.
    Coming,
    /// Nobody, and nobody will come.
    None,
}

/// Where the traffic of a pod stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Traffic {
    /// How connections reach the pod, if they do.
    pub reach: Option<Reach>,
    /// Who else can take them, as the worker was told.
    pub siblings: Siblings,
    /// The pod was serving when it was first asked to leave, so that a barrier stands before its containers.
    pub guarded: bool,
    /// When the barrier was first free to open, as far as the worker was told.
    pub opened_at: Option<Moment>,
    /// New connections are to be kept away, as the worker has it.
    pub cutting: bool,
    /// They are being kept away, whatever the worker asked for since and nobody lived to do.
    pub in_force: bool,
    /// In which way.
    pub how: Option<CutKind>,
    /// Since when, if not since the request itself.
    pub cutting_since: Option<Moment>,
    /// They are kept away.
    pub cut: Answer,
    /// How many proxies let go, as the worker was told.
    pub acks: u8,
    /// Nobody came for a while, as the worker was told.
    pub quiet: bool,
    /// No connection waits to be accepted.
    pub settled: Answer,
    /// When that was first asked.
    pub settling_since: Option<Moment>,
    /// How many connections are open.
    pub connections: Connections,
    /// The application said that it has nothing left to wait for.
    pub app_done: bool,
    /// Nobody was waited for any more, once.
    pub drained: bool,
}

/// How connections are kept away; [`lifecycle::Cut`], hashed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CutKind {
    /// Sent to a sibling.
    Divert,
    /// Off every list, and no more.
    Withdraw,
    /// Refused.
    Refuse,
}

impl From<Cut> for CutKind {
    fn from(how: Cut) -> Self {
        match how {
            Cut::Divert => Self::Divert,
            Cut::Withdraw => Self::Withdraw,
            Cut::Refuse => Self::Refuse,
        }
    }
}

impl From<CutKind> for Cut {
    fn from(way: CutKind) -> Self {
        match way {
            CutKind::Divert => Self::Divert,
            CutKind::Withdraw => Self::Withdraw,
            CutKind::Refuse => Self::Refuse,
        }
    }
}

/// What became of a question.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Answer {
    /// Nobody asked, or nobody is there to be answered.
    #[default]
    Unasked,
    /// Asked.
    Asked,
    /// Answered, and told.
    Told,
    /// Answered, and the answer was lost.
    Lost,
}

/// Open connections, as the worker was told.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Connections {
    /// Nobody counts.
    #[default]
    Uncounted,
    /// They are being counted.
    Counting,
    /// There are some.
    Open,
    /// There are none since then.
    Empty(Moment),
}

impl Traffic {
    /// How the pod is reached, as the worker is told it.
    pub fn routes(&self) -> Routes {
        let best = match self.reach {
            None => BestEvidence::Unrouted,
            Some(Reach::Divert) => BestEvidence::Divert,
            Some(Reach::Acks) => BestEvidence::Acks,
            Some(Reach::Nobody) => BestEvidence::Unrouted,
        };
        let (last, replaced) = match self.siblings {
            Siblings::There => (false, true),
            Siblings::Coming => (true, true),
            Siblings::None => (true, false),
        };
        Routes { best, last, replaced, busy: true }
    }

    /// The worker asked for something, whether or not its agent lived to do it. `at_once` says that it did so when the
    /// pod was first asked to leave.
    pub fn asked(&mut self, now: Moment, effect: &Effect, at_once: bool) {
        #[allow(clippy::wildcard_enum_match_arm, reason = "the rest is not about traffic")]
        match effect {
            Effect::CutTraffic { how } => {
                let way = Some(CutKind::from(*how));
                if self.cutting && self.how != way {
                    // What was known of the other way says nothing of this one.
                    (self.cut, self.settled, self.settling_since) = (Answer::Unasked, Answer::Unasked, None);
                }
                if !self.cutting {
                    self.cutting = true;
                    self.cutting_since = (!at_once).then_some(now);
                }
                self.how = way;
            }
            Effect::AwaitSettled => self.settling_since = self.settling_since.or(Some(now)),
            Effect::RestoreTraffic => {
                let Self { reach, siblings, guarded, opened_at, in_force, connections, app_done, drained, .. } = *self;
                let kept = Self { reach, siblings, guarded, opened_at, in_force, ..Self::default() };
                // Who waits for connections goes on to wait for them.
                *self = match opened_at {
                    Some(_) => Self { connections, app_done, drained, ..kept },
                    None => kept,
                };
            }
            _ => {}
        }
    }

    /// Does what the worker asked for.
    pub fn perform(&mut self, effect: &Effect) {
        #[allow(clippy::wildcard_enum_match_arm, reason = "the rest is not about traffic")]
        match effect {
            Effect::CutTraffic { .. } => {
                self.in_force = true;
                self.cut.ask();
            }
            Effect::RestoreTraffic => self.in_force = false,
            Effect::AwaitSettled => self.settled.ask(),
            Effect::WatchConnections if self.connections == Connections::Uncounted => {
                self.connections = Connections::Counting;
            }
            _ => {}
        }
    }

    /// What may be answered next; `more` says that something nobody asked for may happen as well.
    pub fn answers(&self, refusal: bool, more: bool) -> Vec<StepKind> {
        let mut all = Vec::new();
        let mut may = |possible: bool, what: StepKind| {
            if possible {
                all.push(what);
            }
        };
        let waits = self.guarded && self.opened_at.is_none();
        let counted = self.connections != Connections::Uncounted;
        may(self.cut == Answer::Asked, StepKind::CutDone);
        may(self.cut == Answer::Asked && refusal, StepKind::CutRefused);
        let asked = self.cutting && self.in_force;
        may(asked && self.reach == Some(Reach::Acks) && self.acks < PROXIES, StepKind::Acked);
        may(self.cutting && more && waits && !self.quiet, StepKind::Quiet);
        may(self.settled == Answer::Asked, StepKind::Settled);
        // Who is connected to a pod that waits for nobody makes no difference.
        let counts = !self.drained;
        may(counts && matches!(self.connections, Connections::Counting | Connections::Open), StepKind::Drained);
        let empty = matches!(self.connections, Connections::Counting | Connections::Empty(_));
        may(counts && more && empty, StepKind::Connected);
        may(counts && more && counted && !self.app_done, StepKind::AppDone);
        // Also after the release: nothing may be taken from the last one as long as it serves.
        for siblings in [Siblings::There, Siblings::Coming, Siblings::None] {
            may(
                more && self.reach.is_some() && self.guarded && siblings != self.siblings,
                StepKind::Rerouted(siblings),
            );
        }
        for reach in [Reach::Divert, Reach::Acks, Reach::Nobody] {
            let other = self.reach.is_some_and(|known| known != reach);
            may(more && other && waits, StepKind::Reached(reach));
        }
        all
    }

    /// One of them is given. `lost` says that the worker will not hear of it.
    pub fn answer(&mut self, now: Moment, what: StepKind, lost: bool) -> Option<Input> {
        let told = if lost { Answer::Lost } else { Answer::Told };
        #[allow(clippy::wildcard_enum_match_arm, reason = "the rest is not about traffic")]
        let news = match what {
            StepKind::CutDone => {
                self.cut = told;
                TrafficNews::CutDone { how: self.how.map_or(Cut::Withdraw, Cut::from), revision: 1 }
            }
            StepKind::CutRefused => {
                self.cut = Answer::Lost;
                TrafficNews::Failed { message: String::new() }
            }
            StepKind::Acked => {
                self.acks += u8::from(!lost);
                TrafficNews::Acked { acked: self.acks.into(), required: PROXIES.into() }
            }
            StepKind::Quiet => {
                self.quiet |= !lost;
                TrafficNews::Quiet
            }
            StepKind::Settled => {
                self.settled = told;
                TrafficNews::Settled
            }
            StepKind::Drained => {
                if !lost {
                    self.connections = Connections::Empty(now);
                }
                TrafficNews::Connections { open: 0 }
            }
            StepKind::Connected => {
                if !lost {
                    self.connections = Connections::Open;
                }
                TrafficNews::Connections { open: 1 }
            }
            StepKind::AppDone => {
                self.app_done |= !lost;
                TrafficNews::AppDone
            }
            StepKind::Rerouted(siblings) => {
                if !lost {
                    self.siblings = siblings;
                }
                TrafficNews::Routed(Self { siblings, ..*self }.routes())
            }
            StepKind::Reached(reach) => {
                self.reach = Some(reach);
                TrafficNews::Routed(self.routes())
            }
            _ => return None,
        };
        Some(Input::Traffic(news))
    }

    /// Whoever asked is gone.
    pub fn agent_dies(&mut self) {
        for answer in [&mut self.cut, &mut self.settled] {
            if matches!(*answer, Answer::Asked | Answer::Lost) {
                *answer = Answer::Unasked;
            }
        }
        if self.connections == Connections::Counting {
            self.connections = Connections::Uncounted;
        }
    }

    /// Whether there is evidence that new connections go elsewhere, as far as the worker was told.
    pub fn has_evidence(&self, now: Moment, settle_cap: Duration) -> bool {
        let settled =
            self.settled == Answer::Told || self.settling_since.is_some_and(|since| now >= since + settle_cap);
        // Only what the node itself does tells where connections go; a pod off the lists may still get some.
        let local = matches!(self.how, Some(CutKind::Divert | CutKind::Refuse)) && self.cut == Answer::Told;
        let cut = local || self.acks == PROXIES;
        self.quiet || (cut && settled)
    }
}

impl Answer {
    /// What was told once stays told.
    fn ask(&mut self) {
        if matches!(*self, Self::Unasked | Self::Lost) {
            *self = Self::Asked;
        }
    }
}
