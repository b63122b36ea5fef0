//! How well a pod left, in one word and one sentence.

use std::collections::BTreeMap;
use std::time::Duration;

use lifecycle::PodPhase;
use serde::Serialize;

use super::bars::{Bar, End};
use super::behaviour::Behaviour;
use super::duration_text::{about, length};
use super::story::{Fact, FactKind, HookName, Story};

/// How well a pod left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct PlanVerdict {
    /// In one word.
    pub(super) word: VerdictWord,
    /// In one sentence.
    pub(super) because: String,
    /// Containers that are only hoped to exit when they are asked to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) provided: Vec<String>,
    /// What it means to whoever used the pod.
    #[serde(skip)]
    pub(super) meaning: &'static str,
    /// It had time to finish what it was doing, and knew that it had to.
    #[serde(skip)]
    finished: bool,
}

/// How well, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum VerdictWord {
    /// Everything had the time it needed.
    Clean,
    /// Nothing was killed, but something was cut short.
    Hurried,
    /// Something had to be killed.
    Forced,
}

impl VerdictWord {
    fn of_record(verdict: lifecycle::TerminationVerdict) -> Self {
        match verdict {
            lifecycle::TerminationVerdict::Clean => Self::Clean,
            lifecycle::TerminationVerdict::Hurried => Self::Hurried,
            lifecycle::TerminationVerdict::Forced | lifecycle::TerminationVerdict::Lost => Self::Forced,
        }
    }

    /// As it is written.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Hurried => "hurried",
            Self::Forced => "forced",
        }
    }
}

/// Judges a story; `job` if its pod is there to be over one day.
pub(super) fn of(story: &Story, bars: &[Bar], behaviours: &BTreeMap<String, Behaviour>, job: bool) -> PlanVerdict {
    let names = |wanted: &dyn Fn(&Bar, &End) -> bool| -> Vec<&str> {
        let wanted = bars.iter().filter(|bar| bar.end.is_some_and(|end| wanted(bar, &end)));
        wanted.map(|bar| bar.name.as_str()).collect()
    };
    let is = |bar: &Bar, what: fn(&Behaviour) -> bool| behaviours.get(&bar.name).is_some_and(what);
    let killed = names(&|_, end| end.killed);
    let abandoned = names(&|bar, end| !end.killed && is(bar, |behaviour| behaviour.abandons));
    let died = names(&|_, end| !end.killed && end.signal.is_some());
    let unheard = names(&|bar, end| !end.killed && is(bar, |behaviour| behaviour.unheard));
    let ends = || bars.iter().filter_map(|bar| bar.end);
    let last = ends().map(|end| end.at_millis).max();
    let killed_at = ends().filter(|end| end.killed).map(|end| end.at_millis).max();
    let failed = failed_hooks(story);
    let (word, because) = if let Some(at) = killed_at {
        (VerdictWord::Forced, format!("{} had to be killed, {} after the delete", and(&killed), took(at)))
    } else if !abandoned.is_empty() {
        (
            VerdictWord::Forced,
            format!("what runs in {} was killed unasked, when its first process exited", and(&abandoned)),
        )
    } else if story.grace.is_zero() && last.is_some() {
        // The record of a force delete says so, however well it went.
        (VerdictWord::Forced, "deleted by force, and lucky: everything exited in time".to_owned())
    } else if let Some(cut) = cut_short(story) {
        (VerdictWord::Hurried, format!("nothing was killed, but {cut}"))
    } else if let Some(last) = last {
        let how = match (died.len(), unheard.len()) {
            (0, 0) => "everything exited by itself".to_owned(),
            (0, _) => format!("{} heard no stop signal, and was over by itself", and(&unheard)),
            (_, _) => format!("{} died of its stop signal, which it does not handle", and(&died)),
        };
        (VerdictWord::Clean, format!("{how}, {}", into_grace(story, last)))
    } else {
        (VerdictWord::Clean, nothing_ran(story))
    };
    let code = ends().map(|end| end.code).find(|code| *code != 0);
    // What the pod's own record would say is never made better.
    let word = word.max(story.verdict.map_or(VerdictWord::Clean, VerdictWord::of_record));
    let mut because = match (word, code) {
        (VerdictWord::Clean | VerdictWord::Hurried, Some(code)) if story.phase == PodPhase::Failed => {
            format!("{because}; the pod ends Failed, because of exit code {code}")
        }
        (VerdictWord::Clean | VerdictWord::Hurried | VerdictWord::Forced, _) => because,
    };
    let never: Vec<&str> = never_ran(story);
    if !never.is_empty() && last.is_some() {
        because += &format!("; {} never ran", and(&never));
    }
    if !failed.is_empty() {
        because += &format!("; the preStop hook of {} failed", and(&failed));
    }
    let harmed = killed_at.is_some() || !abandoned.is_empty();
    let hoped = |bar: &&Bar| behaviours.get(&bar.name).is_some_and(|behaviour| behaviour.hoped);
    let provided: Vec<String> = match word {
        VerdictWord::Clean | VerdictWord::Hurried => bars.iter().filter(hoped).map(|bar| bar.name.clone()).collect(),
        VerdictWord::Forced => Vec::new(),
    };
    let finished = word == VerdictWord::Clean && died.is_empty() && unheard.is_empty() && last.is_some();
    let meaning = match word {
        _ if !provided.is_empty() => {
            "nobody has looked whether it does: the first process of a container hears a stop signal only if it sets a \
             handler for it, and is otherwise killed when the grace is spent. If you know, say so with --app"
        }
        VerdictWord::Clean | VerdictWord::Hurried | VerdictWord::Forced if last.is_none() => {
            "hooks are run and signals are sent only where something runs"
        }
        VerdictWord::Clean if !died.is_empty() => {
            "it was asked to leave, and ended in the middle of whatever it was doing"
        }
        VerdictWord::Clean if !unheard.is_empty() => {
            "nothing reacted to the stop signal: longer work would have been killed"
        }
        VerdictWord::Clean if job => {
            "it left when it was asked to; the Job goes by the exit code, and takes 0 for work done"
        }
        VerdictWord::Clean if !failed.is_empty() => {
            "it was asked to leave and left; but what its hook is for was not done"
        }
        VerdictWord::Clean => "it was asked to leave, finished its work, and left: nothing is lost",
        VerdictWord::Hurried => "it left by itself, but something that wanted more time did not get it",
        VerdictWord::Forced if harmed => "whatever it was doing when it was killed is lost: requests, buffers, locks",
        VerdictWord::Forced => {
            "nobody waits for a pod that is deleted by force; with more to do, it would have been killed"
        }
    };
    PlanVerdict { word, because, provided, meaning, finished }
}

/// How much of the grace was needed, and what becomes of the rest.
fn into_grace(story: &Story, last: i64) -> String {
    let unused = story.budget().saturating_sub(Duration::from_millis(last.unsigned_abs()));
    let rest = match unused > Duration::from_secs(1) {
        true => format!("; nobody waits for the {} that are left", about(unused)),
        false => String::new(),
    };
    format!("{} into {} of grace{rest}", took(last), length(story.budget()))
}

/// Why nobody had to be asked.
fn nothing_ran(story: &Story) -> String {
    let killed = |fact: &&Fact| matches!(fact.what, FactKind::Exited { by_kill: true, .. });
    let killed: Vec<&str> = story.facts.iter().filter(killed).filter_map(|fact| fact.container.as_deref()).collect();
    if !killed.is_empty() {
        format!("it was over before it was deleted; {} had to be killed then", and(&killed))
    } else if !never_ran(story).is_empty() {
        "nothing of it ever ran".to_owned()
    } else if story.facts.iter().any(|fact| matches!(fact.what, FactKind::RemovedAtOnce)) {
        "it was over before it was deleted".to_owned()
    } else {
        "nothing was running".to_owned()
    }
}

/// The containers that could not start.
fn never_ran(story: &Story) -> Vec<&str> {
    let never = |fact: &&Fact| matches!(fact.what, FactKind::CannotStart { .. });
    story.facts.iter().filter(never).filter_map(|fact| fact.container.as_deref()).collect()
}

/// The containers whose preStop hooks failed.
fn failed_hooks(story: &Story) -> Vec<&str> {
    let failed =
        |what: &FactKind| matches!(what, FactKind::HookFinished { hook: HookName::PreStop, succeeded: false, .. });
    story.facts.iter().filter(|fact| failed(&fact.what)).filter_map(|fact| fact.container.as_deref()).collect()
}

impl PlanVerdict {
    /// Connections still came while it exited.
    pub(super) fn refuses(&mut self) {
        if self.finished && self.provided.is_empty() {
            self.meaning = "it finished its work and left; but connections that came while it did so were refused";
        }
    }

    /// On what it rests.
    pub(super) fn condition(&self) -> String {
        let names: Vec<&str> = self.provided.iter().map(String::as_str).collect();
        match names.len() {
            0 => String::new(),
            1 => format!(", if {} does exit when it is asked to", and(&names)),
            _ => format!(", if {} do exit when they are asked to", and(&names)),
        }
    }
}

fn took(millis: i64) -> String {
    about(Duration::from_millis(millis.unsigned_abs()))
}

/// What did not get the time it needed.
fn cut_short(story: &Story) -> Option<String> {
    let of = |fact: &Fact| fact.container.clone().unwrap_or_default();
    let hook = |what: &FactKind| matches!(what, FactKind::HookAbandoned { hook: HookName::PreStop, .. });
    if let Some(fact) = story.facts.iter().find(|fact| hook(&fact.what)) {
        return Some(format!("the preStop hook of {} was cut short", of(fact)));
    }
    let waited = story.facts.iter().any(|fact| matches!(fact.what, FactKind::DrainAnnounced { .. }));
    if waited && !story.facts.iter().any(|fact| matches!(fact.what, FactKind::ConnectionsEnded)) {
        return Some("somebody was still connected when it was asked to exit".to_owned());
    }
    let opened = |what: &FactKind| matches!(what, FactKind::BarrierOpened { reason, .. } if reason == "Deadline");
    if story.facts.iter().any(|fact| opened(&fact.what)) {
        return Some("nobody could say in time that new connections go elsewhere".to_owned());
    }
    let late =
        |fact: &Fact| u128::from(fact.at_millis.unsigned_abs()) >= story.budget().as_millis() && fact.at_millis > 0;
    let fact = story.facts.iter().find(|fact| matches!(fact.what, FactKind::Signalled { .. }) && late(fact))?;
    Some(format!("{} was asked to exit only when the grace was spent", of(fact)))
}

/// `a`, `a and b`, `a, b and c`.
fn and(names: &[&str]) -> String {
    match names {
        [rest @ .., last] if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        names => names.join(""),
    }
}
