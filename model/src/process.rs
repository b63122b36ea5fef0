//! One container as it really is, whatever the worker knows of it.

use lifecycle::{
    ContainerReport, Exit, HookKind, HookOutcome, HookReport, Instance, Moment, SeenContainer, Signal, Wall,
};

/// Wall-clock labels are shown and never reckoned with; one for all keeps the states few.
pub const WALL: Wall = Wall(0);

/// A container, in its newest run.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Process {
    /// Which run.
    pub attempt: u32,
    /// Whether it runs.
    pub life: Life,
    /// Its image.
    pub image: Image,
    /// Its preStop hook.
    pub pre_stop: HookLife,
    /// Its postStart hook.
    pub post_start: HookLife,
    /// What was asked and answered of its stop signal.
    pub signal: SignalAsked,
    /// When the stop signal reached it.
    pub signalled_at: Option<Moment>,
    /// When it was last asked for, while the worker does not know what became of that.
    pub asked_at: Option<Moment>,
    /// When the worker was told that it did, if that was later.
    pub noticed_at: Option<Moment>,
    /// A KILL reached it.
    pub killed: bool,
    /// By when it must end although its pod lives, if a probe or its postStart hook failed.
    pub own_deadline: Option<Moment>,
    /// The worker was told that it runs.
    pub start_told: bool,
    /// The worker was told that it ended.
    pub exit_told: bool,
    /// How the newest run ended that did, whatever came after it.
    pub last_exit: Option<u8>,
    /// The worker asked for it, and heard nothing of it yet.
    pub unanswered: bool,
    /// It was asked for when its pod was leaving already.
    pub asked_too_late: bool,
    /// It ran to its end and ended well, in the sandbox that is there.
    pub did_its_part: bool,
}

/// Whether a container runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Life {
    /// It never ran.
    Absent,
    /// The runtime was asked to start it.
    Starting,
    /// It runs.
    Running,
    /// It ended with that code, and the runtime knows.
    Exited(u8),
    /// It ended with its sandbox, and nobody knows how.
    Lost,
}

/// Whether an image is there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Image {
    /// Nobody asks.
    Unasked,
    /// On its way.
    Pulling,
    /// There.
    There,
}

/// Whether a hook runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HookLife {
    /// It did not begin, or nobody can know that it did.
    Idle,
    /// It runs since then.
    Running(Moment),
    /// A sleep that began then, and whose agent died: it goes on, but nobody will tell.
    Alone(Moment),
    /// It ended in that way; `told` once the worker knows.
    Ended(Ending, bool),
}

/// How a hook ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Ending {
    /// It did what it was for.
    Well,
    /// It failed.
    Failed,
    /// It was cancelled.
    Cancelled,
}

/// What the worker can know of a signal it asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SignalAsked {
    /// Never asked.
    No,
    /// Asked, the answer is on its way.
    Yes,
    /// Asked and answered.
    Answered,
    /// Asked, and the answer was lost with the agent.
    Doubtful,
}

impl Process {
    /// From when its notice counts: its stop signal reached it then, or the worker was told so for the first time; or was
    /// asked for then, if nobody was told yet.
    pub fn had_notice_since(&self) -> Option<Moment> {
        self.signalled_at.max(self.noticed_at).max(self.asked_at)
    }

    /// A container that never ran.
    pub const ABSENT: Self = Self {
        attempt: 0,
        life: Life::Absent,
        image: Image::Unasked,
        pre_stop: HookLife::Idle,
        post_start: HookLife::Idle,
        signal: SignalAsked::No,
        signalled_at: None,
        asked_at: None,
        noticed_at: None,
        killed: false,
        own_deadline: None,
        start_told: false,
        exit_told: false,
        last_exit: None,
        unanswered: false,
        asked_too_late: false,
        did_its_part: false,
    };

    /// It runs, or will as soon as the runtime gets to it.
    pub fn may_be_alive(&self) -> bool {
        matches!(self.life, Life::Starting | Life::Running)
    }

    /// The runtime is asked for run number `attempt`. One that is there already is not started twice.
    pub fn asked_to_start(&mut self, attempt: u32) {
        if !self.is_there(attempt) {
            let Self { image, last_exit, .. } = *self;
            *self = Self { attempt, life: Life::Starting, image, last_exit, ..Self::ABSENT };
        }
    }

    /// That run is there, or was.
    pub fn is_there(&self, attempt: u32) -> bool {
        self.attempt == attempt && !matches!(self.life, Life::Absent)
    }

    /// That hook of it.
    pub fn hook(&self, kind: HookKind) -> HookLife {
        match kind {
            HookKind::PreStop => self.pre_stop,
            HookKind::PostStart => self.post_start,
        }
    }

    /// The same, to be changed.
    pub fn hook_mut(&mut self, kind: HookKind) -> &mut HookLife {
        match kind {
            HookKind::PreStop => &mut self.pre_stop,
            HookKind::PostStart => &mut self.post_start,
        }
    }

    /// What the runtime reports of it.
    pub fn report(&self, instance: Instance) -> Option<ContainerReport> {
        let seen = match self.life {
            Life::Running => SeenContainer::Running { wall: WALL },
            Life::Exited(code) => SeenContainer::Exited { exit: exit(code) },
            Life::Absent | Life::Starting | Life::Lost => return None,
        };
        Some(ContainerReport { instance, seen })
    }

    /// What the runtime reports of a hook that it runs itself.
    pub fn hook_report(&self, instance: Instance, kind: HookKind) -> Option<HookReport> {
        let outcome = match self.hook(kind) {
            HookLife::Idle => return None,
            HookLife::Running(_) | HookLife::Alone(_) => None,
            HookLife::Ended(ending, _) => Some(ending.outcome()),
        };
        Some(HookReport { instance, kind, outcome })
    }
}

impl Ending {
    /// As the worker is told it.
    pub fn outcome(self) -> HookOutcome {
        match self {
            Self::Well => HookOutcome::Succeeded,
            Self::Failed => HookOutcome::failed(""),
            Self::Cancelled => HookOutcome::Cancelled,
        }
    }
}

/// An exit with that code, seen as it happened.
pub fn exit(code: u8) -> Exit {
    let signal = (code > 128).then(|| Signal(code - 128));
    Exit { code, signal, oom: false, wall: WALL, seen: true }
}
