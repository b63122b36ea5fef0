//! How well a pod left, in one word and one sentence.

use std::time::Duration;

use lifecycle::PodPhase;
use serde::Serialize;

use super::bars::Bar;
use super::story::{Fact, HookName, Story, What};
use super::words::{about, length};

/// How well a pod left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Verdict {
    /// In one word.
    pub(super) word: Word,
    /// In one sentence.
    pub(super) because: String,
}

/// How well, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Word {
    /// Everything had the time it needed.
    Clean,
    /// Nothing was killed, but something was cut short.
    Hurried,
    /// Something had to be killed.
    Forced,
}

impl Word {
    /// As it is written.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Hurried => "hurried",
            Self::Forced => "forced",
        }
    }
}

/// Judges a story.
pub(super) fn of(story: &Story, bars: &[Bar]) -> Verdict {
    let killed: Vec<&Bar> = bars.iter().filter(|bar| bar.end.is_some_and(|end| end.killed)).collect();
    let last = bars.iter().filter_map(|bar| bar.end).map(|end| end.at_millis).max();
    let killed_at = killed.iter().filter_map(|bar| bar.end).map(|end| end.at_millis).max();
    let (word, because) = if let Some(at) = killed_at {
        let names: Vec<&str> = killed.iter().map(|bar| bar.name.as_str()).collect();
        (Word::Forced, format!("{} had to be killed, {} after the delete", and(&names), took(at)))
    } else if let Some(cut) = cut_short(story) {
        (Word::Hurried, format!("nothing was killed, but {cut}"))
    } else if let Some(last) = last {
        let budget = length(story.budget());
        (Word::Clean, format!("everything exited by itself, {} into {budget} of grace", took(last)))
    } else {
        (Word::Clean, "nothing was running".to_owned())
    };
    let code = bars.iter().filter_map(|bar| bar.end).map(|end| end.code).find(|code| *code != 0);
    let because = match (word, code) {
        (Word::Clean | Word::Hurried, Some(code)) if story.phase == PodPhase::Failed => {
            format!("{because}; the pod ends Failed, because of exit code {code}")
        }
        (Word::Clean | Word::Hurried | Word::Forced, _) => because,
    };
    Verdict { word, because }
}

fn took(millis: i64) -> String {
    about(Duration::from_millis(millis.unsigned_abs()))
}

/// What did not get the time it needed.
fn cut_short(story: &Story) -> Option<String> {
    let of = |fact: &Fact| fact.container.clone().unwrap_or_default();
    let hook = |what: &What| matches!(what, What::HookAbandoned { hook: HookName::PreStop, .. });
    if let Some(fact) = story.facts.iter().find(|fact| hook(&fact.what)) {
        return Some(format!("the preStop hook of {} was cut short", of(fact)));
    }
    let late =
        |fact: &Fact| u128::from(fact.at_millis.unsigned_abs()) >= story.budget().as_millis() && fact.at_millis > 0;
    let fact = story.facts.iter().find(|fact| matches!(fact.what, What::Signalled { .. }) && late(fact))?;
    Some(format!("{} was asked to exit only when the grace was spent", of(fact)))
}

/// `a`, `a and b`, `a, b and c`.
fn and(names: &[&str]) -> String {
    match names {
        [rest @ .., last] if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        names => names.join(""),
    }
}
