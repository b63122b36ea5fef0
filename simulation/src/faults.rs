//! What goes wrong beside the agent: verbs of its runtime, the runtime as a whole, its disk.
//!
//! ```text
//! lost runtime.stop/p0/1               the verb is done, and its answer is an error
//! refused runtime.kill/p0/1            it is not done
//! late runtime.stop/p0/1 by=3000       it is done, and its answer takes so long
//! away @1500 for=800                   the runtime does nothing for so long, and tells what happened meanwhile behind that
//! full store @1500 for=800             nothing can be written; `node`: the agent's files; `disk`: both
//! ```

use std::fmt;

use testkit::Dice;

use crate::scenario::PodPlan;

/// Something goes wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The verb of this seam is done, and its answer is lost.
    Lost(String),
    /// The verb of this seam is not done.
    Refused(String),
    /// The verb of this seam is done, and its answer takes so many milliseconds.
    Late(String, u64),
    /// The runtime is away, from then and for so long.
    Away(Span),
    /// Nothing can be written to this part of the disk, from then and for so long.
    Full(DiskPart, Span),
}

/// A part of the world's time, in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// When it begins.
    pub at: u64,
    /// How long it is.
    pub ms: u64,
}

impl Span {
    /// Whether it has begun and is not over.
    pub fn covers(self, now: u64) -> bool {
        now >= self.at && now < self.end()
    }

    /// When it is over.
    pub fn end(self) -> u64 {
        self.at + self.ms
    }
}

/// Whose files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskPart {
    /// The store's.
    Store,
    /// The agent's: its journal and what it keeps of pods.
    Node,
    /// All of them.
    Whole,
}

const PARTS: [(DiskPart, &str); 3] = [(DiskPart::Store, "store"), (DiskPart::Node, "node"), (DiskPart::Whole, "disk")];

impl DiskPart {
    /// Whether the files in this folder of the disk are meant.
    pub fn holds(self, folder: &str) -> bool {
        match self {
            Self::Store => folder == "store",
            Self::Node => folder.starts_with("node"),
            Self::Whole => true,
        }
    }
}

impl Fault {
    /// The seam at which it happens, if it happens at one.
    pub fn seam(&self) -> Option<&str> {
        match self {
            Self::Lost(seam) | Self::Refused(seam) | Self::Late(seam, _) => Some(seam),
            Self::Away(_) | Self::Full(..) => None,
        }
    }

    /// Whether this verb of the runtime goes wrong by it.
    pub fn is_of(&self, verb: &str) -> bool {
        match self.seam() {
            Some(seam) => seam.strip_prefix("runtime.").and_then(|rest| rest.split('/').next()) == Some(verb),
            None => matches!(self, Self::Away(_)),
        }
    }

    /// How long things take that it makes slow.
    pub fn ms(&self) -> u64 {
        match self {
            Self::Lost(_) | Self::Refused(_) => 0,
            Self::Late(_, ms) => *ms,
            Self::Away(span) | Self::Full(_, span) => span.ms,
        }
    }

    /// Reads what [`Display`](fmt::Display) writes.
    pub fn read(words: &[&str]) -> Option<Self> {
        let number = |name: &str| words.iter().find_map(|word| word.strip_prefix(name))?.parse::<u64>().ok();
        let span = || Some(Span { at: number("@")?, ms: number("for=")? });
        match words {
            ["lost", seam] => Some(Self::Lost((*seam).to_owned())),
            ["refused", seam] => Some(Self::Refused((*seam).to_owned())),
            ["late", seam, _] => Some(Self::Late((*seam).to_owned(), number("by=")?)),
            ["away", ..] => Some(Self::Away(span()?)),
            ["full", part, ..] => {
                let (part, _) = PARTS.iter().find(|(_, name)| name == part)?;
                Some(Self::Full(*part, span()?))
            }
            _ => None,
        }
    }

    /// One that may well happen in a story of these pods.
    pub fn random(dice: &mut Dice, pods: &[PodPlan]) -> Self {
        let pod = dice.pick(pods).name;
        let verbs = ["create_sandbox", "stop", "kill", "kill", "remove_sandbox", "start", "run_hook", "cancel_hook"];
        let seam =
            |verbs: &[&str], dice: &mut Dice| format!("runtime.{}/{pod}/{}", dice.pick(verbs), 1 + dice.below(2));
        let span = Span { at: 300 + dice.below(5000), ms: 100 + dice.below(2500) };
        match dice.below(8) {
            0 | 1 => Self::Lost(seam(&verbs, dice)),
            2 | 3 => Self::Refused(seam(&verbs, dice)),
            4 => Self::Late(seam(&verbs, dice), 200 + dice.below(4000)),
            5 => Self::Away(span),
            // What a full disk of the agent's does to a pod that is removed before it is taken on is told there as well.
            _ => Self::Full(DiskPart::Store, span),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(seam) => write!(f, "lost {seam}"),
            Self::Refused(seam) => write!(f, "refused {seam}"),
            Self::Late(seam, ms) => write!(f, "late {seam} by={ms}"),
            Self::Away(Span { at, ms }) => write!(f, "away @{at} for={ms}"),
            Self::Full(part, Span { at, ms }) => {
                let name = PARTS.iter().find(|(known, _)| known == part).map_or("disk", |(_, name)| name);
                write!(f, "full {name} @{at} for={ms}")
            }
        }
    }
}
