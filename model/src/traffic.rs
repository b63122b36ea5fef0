//! The pod's traffic: what was asked of whoever routes it, and what was answered.

use lifecycle::{Effect, Input, Moment, TrafficNews};

use crate::step::What;

/// Where the traffic of a pod stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Traffic {
    /// Connections reach the pod, and a sibling can take them.
    pub routed: bool,
    /// The pod was serving when it was first asked to leave, so that a barrier stands before its containers.
    pub guarded: bool,
    /// New connections are kept away.
    pub cut: Answer,
    /// No connection waits to be accepted.
    pub settled: Answer,
    /// No connection is open.
    pub drained: Answer,
    /// When `AwaitSettled` was first asked.
    pub settling_since: Option<Moment>,
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
}

impl Traffic {
    /// Does what the worker asked for.
    pub fn perform(&mut self, now: Moment, effect: &Effect) {
        #[allow(clippy::wildcard_enum_match_arm, reason = "the rest is not about traffic")]
        match effect {
            Effect::CutTraffic { .. } => self.cut.ask(),
            Effect::AwaitSettled => {
                self.settled.ask();
                self.settling_since = self.settling_since.or(Some(now));
            }
            Effect::WatchConnections => self.drained.ask(),
            Effect::RestoreTraffic => self.cut = Answer::Unasked,
            _ => {}
        }
    }

    /// What may be answered next.
    pub fn answers(&self) -> impl Iterator<Item = What> {
        let asked = |answer: Answer, what: What| (answer == Answer::Asked).then_some(what);
        let all =
            [asked(self.cut, What::CutDone), asked(self.settled, What::Settled), asked(self.drained, What::Drained)];
        all.into_iter().flatten()
    }

    /// The cut is in force.
    pub fn cut_done(&mut self) -> Input {
        self.cut = Answer::Told;
        Input::Traffic(TrafficNews::CutDone { revision: 1 })
    }

    /// Nobody waits to be accepted.
    pub fn settle(&mut self) -> Input {
        self.settled = Answer::Told;
        Input::Traffic(TrafficNews::Settled)
    }

    /// Nobody is connected.
    pub fn drain(&mut self) -> Input {
        self.drained = Answer::Told;
        Input::Traffic(TrafficNews::Connections { open: 0 })
    }

    /// Whoever asked is gone.
    pub fn agent_dies(&mut self) {
        for answer in [&mut self.cut, &mut self.settled, &mut self.drained] {
            if *answer == Answer::Asked {
                *answer = Answer::Unasked;
            }
        }
    }
}

impl Answer {
    /// What was told once stays told.
    fn ask(&mut self) {
        if *self == Self::Unasked {
            *self = Self::Asked;
        }
    }
}
