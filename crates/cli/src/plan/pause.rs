//! How long a command surely takes, as far as its sleeps tell.

use std::time::Duration;

use super::command::{self, base};
use super::shell::{self, Command, Item, List, Then, Word};

/// How long a command takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// Its sleeps come to that; everything else in it is taken for brief.
    For(Duration),
    /// That long, or longer: how often it sleeps does not show.
    AtLeast(Duration),
    /// It does not end.
    Endless,
}

/// Longer than any grace: centuries.
const LONGEST: Duration = Duration::from_secs(10_000_000_000);

/// Of a whole command line, shell or not; nothing if it never sleeps.
pub(super) fn of_command(command: &[String]) -> Option<Pause> {
    let pause = match command::script(command) {
        Some(script) => of_list(&shell::parse(script)?.list),
        None => of_words(command)?,
    };
    (pause != Pause::For(Duration::ZERO)).then_some(pause)
}

/// Of a simple command; nothing if it is no sleep.
pub(super) fn of_words(words: &[String]) -> Option<Pause> {
    let words =
        if words.first().is_some_and(|word| base(word) == "busybox" || word == "exec") { &words[1..] } else { words };
    let (program, lengths) = words.split_first()?;
    match base(program) {
        "sleep" if lengths.iter().any(|length| matches!(length.as_str(), "infinity" | "inf")) => Some(Pause::Endless),
        "sleep" if !lengths.is_empty() => {
            let sum = lengths
                .iter()
                .map(|length| self::length(length))
                .try_fold(Duration::ZERO, |sum, length| Some(sum.saturating_add(length?).min(LONGEST)));
            // `sleep $DELAY`: it sleeps, for how long does not show.
            Some(sum.map_or(Pause::AtLeast(Duration::ZERO), Pause::For))
        }
        "tail" if lengths.iter().any(|flag| flag.starts_with('-') && flag.to_ascii_lowercase().contains('f')) => {
            Some(Pause::Endless)
        }
        _ => None,
    }
}

/// Of a command of a script.
pub(super) fn of(command: &Command) -> Pause {
    match command {
        Command::Simple { .. } => {
            command.words().and_then(|words| of_words(&words)).unwrap_or(Pause::For(Duration::ZERO))
        }
        Command::Subshell(list) | Command::Group(list) => of_list(list),
        Command::If(parts, otherwise) => {
            let parts = parts.iter().flat_map(|(condition, body)| [condition, body]).chain(otherwise);
            whichever(parts.map(of_list))
        }
        Command::Case(_, parts) => whichever(parts.iter().map(|(_, body)| of_list(body))),
        Command::Loop { .. } if never_ends(command) => Pause::Endless,
        Command::Loop { condition, body, .. } => match of_list(condition).and(of_list(body)) {
            Pause::For(Duration::ZERO) => Pause::For(Duration::ZERO),
            // It turns at least once, or not at all.
            Pause::For(_) | Pause::AtLeast(_) | Pause::Endless => Pause::AtLeast(Duration::ZERO),
        },
        Command::For { words, body, .. } => match (turns(words), of_list(body)) {
            (Some(turns), Pause::For(length)) => Pause::For(length.saturating_mul(turns).min(LONGEST)),
            (Some(turns), Pause::AtLeast(length)) => Pause::AtLeast(length.saturating_mul(turns).min(LONGEST)),
            (Some(0), Pause::Endless) | (None, Pause::For(Duration::ZERO)) => Pause::For(Duration::ZERO),
            (Some(_), Pause::Endless) => Pause::Endless,
            (None, _) => Pause::AtLeast(Duration::ZERO),
        },
        Command::Function { .. } => Pause::For(Duration::ZERO),
    }
}

/// Which part is run does not show: at least the shortest.
fn whichever(mut parts: impl Iterator<Item = Pause>) -> Pause {
    match parts.all(|pause| pause == Pause::For(Duration::ZERO)) {
        true => Pause::For(Duration::ZERO),
        false => Pause::AtLeast(Duration::ZERO),
    }
}

/// How often a `for` turns. How many words come of a pattern or a substitution does not show.
fn turns(words: &[Word]) -> Option<u32> {
    let fixed = words.iter().all(|word| !word.raw.contains(['$', '`', '*', '?', '{']));
    u32::try_from(words.len()).ok().filter(|count| fixed && *count > 0)
}

fn of_list(list: &List) -> Pause {
    let items = list.iter().filter(|item| item.then != Then::Background);
    // Everybody in a pipeline runs at once.
    items
        .map(|item| item.pipeline.iter().map(of).fold(Pause::For(Duration::ZERO), Pause::longer))
        .fold(Pause::For(Duration::ZERO), Pause::and)
}

/// `while true` without a way out.
pub(super) fn never_ends(command: &Command) -> bool {
    let Command::Loop { condition, until, body } = command else { return false };
    let always = if *until { "false" } else { "true" };
    let first = |list: &List| match list.as_slice() {
        [item] => match item.pipeline.as_slice() {
            [command] => command.words().and_then(|words| words.first().cloned()).unwrap_or_default(),
            _ => String::new(),
        },
        _ => String::new(),
    };
    let condition = first(condition);
    (condition == always || (!until && (condition == ":" || condition == "sleep"))) && !leaves(body)
}

/// Whether a body holds a way out of its loop.
fn leaves(list: &List) -> bool {
    list.iter().flat_map(|item| &item.pipeline).any(|command| match command {
        Command::Simple { words, .. } => {
            words.first().is_some_and(|word| matches!(word.raw.as_str(), "break" | "exit" | "return" | "exec" | "kill"))
        }
        Command::Subshell(_) | Command::Function { .. } => false,
        Command::Group(list) | Command::For { body: list, .. } | Command::Loop { body: list, .. } => leaves(list),
        Command::If(parts, otherwise) => {
            parts.iter().any(|(condition, body)| leaves(condition) || leaves(body)) || otherwise.iter().any(leaves)
        }
        Command::Case(_, parts) => parts.iter().any(|(_, body)| leaves(body)),
    })
}

impl Pause {
    /// One after the other.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Endless, _) | (_, Self::Endless) => Self::Endless,
            (Self::For(a), Self::For(b)) => Self::For(a.saturating_add(b).min(LONGEST)),
            (Self::For(a) | Self::AtLeast(a), Self::For(b) | Self::AtLeast(b)) => {
                Self::AtLeast(a.saturating_add(b).min(LONGEST))
            }
        }
    }

    /// Both at once.
    pub(super) fn longer(self, other: Self) -> Self {
        match (self, other) {
            (Self::Endless, _) | (_, Self::Endless) => Self::Endless,
            (Self::For(a), Self::For(b)) => Self::For(a.max(b)),
            (Self::For(a) | Self::AtLeast(a), Self::For(b) | Self::AtLeast(b)) => Self::AtLeast(a.max(b)),
        }
    }
}

/// Whether a command does nothing but sleep.
pub(crate) fn only_sleeps(command: &[String]) -> bool {
    let sleeps = |words: &[String]| matches!(of_words(words), Some(Pause::For(_)));
    match command::script(command) {
        Some(script) => match shell::parse(script).as_ref().map(|script| script.list.as_slice()) {
            // In the background it is over at once.
            Some([Item { pipeline, then: Then::Next | Then::Line, .. }]) => {
                matches!(pipeline.as_slice(), [command] if command.words().is_some_and(|words| sleeps(&words)))
            }
            Some(_) | None => false,
        },
        None => sleeps(command),
    }
}

/// `5`, `0.5`, `2m`, `1d`: as `sleep` and our own options write it. `300ms` is understood too.
pub(super) fn length(text: &str) -> Option<Duration> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let seconds_each = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    let number: f64 = number.parse().ok()?;
    let length = Duration::try_from_secs_f64((number * seconds_each).min(LONGEST.as_secs_f64())).ok()?;
    // Nobody means less than a millisecond.
    Some(Duration::from_millis(u64::try_from(length.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn sleeps_are_found_wherever_they_are_written() {
        let secs = |secs: f64| Some(Pause::For(Duration::from_secs_f64(secs)));
        let least = |secs: u64| Some(Pause::AtLeast(Duration::from_secs(secs)));
        for (command, expected) in [
            (&["sleep", "15"][..], secs(15.0)),
            (&["sh", "-c", "sleep 5; nginx -s quit; sleep 2.5"], secs(7.5)),
            (&["sh", "-c", "(/bin/sleep 2m)"], secs(120.0)),
            (&["sh", "-c", "sleep 1m 30s # not 10m"], secs(90.0)),
            (&["sh", "-c", "echo 'sleep 9'; exec sleep 1"], secs(1.0)),
            (&["sh", "-c", "for i in 1 2 3; do sleep 5; done"], secs(15.0)),
            (&["sh", "-c", "sleep 9 & sleep 2"], secs(2.0)),
            (&["sh", "-c", "sleep 9 | sleep 2"], secs(9.0)),
            (&["sh", "-c", "while :; do sleep 1; done"], Some(Pause::Endless)),
            (&["sh", "-c", "while true; do ready || break; sleep 1; done; sleep 2"], least(2)),
            (&["sh", "-c", "while pgrep x; do sleep 1; done"], least(0)),
            (&["sh", "-c", "sleep $DELAY; sleep 3"], least(3)),
            (&["sleep", "infinity"], Some(Pause::Endless)),
            (&["busybox", "sh", "-c", "sleep 4"], secs(4.0)),
            (&["bash", "-euo", "pipefail", "-c", "sleep 4"], secs(4.0)),
            (&["nginx", "-s", "quit"], None),
            (&["sh", "-c", "nginx -s quit"], None),
            (&["sh", "-c", "sleep '"], None),
        ] {
            assert_eq!(of_command(&words(command)), expected, "{command:?}");
        }
    }

    #[test]
    fn a_hook_that_only_sleeps_is_told_from_one_that_does_something() {
        assert!(only_sleeps(&words(&["sleep", "15"])));
        assert!(only_sleeps(&words(&["/bin/sh", "-c", "sleep 15"])));
        assert!(only_sleeps(&words(&["/bin/sh", "-c", "exec sleep 15 # for the proxies"])));
        assert!(!only_sleeps(&words(&["sh", "-c", "nginx -s quit; sleep 15"])));
        assert!(!only_sleeps(&words(&["sh", "-c", "sleep 15; nginx -s quit"])));
    }

    #[test]
    fn lengths_are_read_as_people_write_them() {
        for (text, millis) in
            [("5", 5_000), ("0.5", 500), ("2m", 120_000), ("1d", 86_400_000), ("300ms", 300), ("0", 0)]
        {
            assert_eq!(length(text), Some(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(length("99999999999999999999d"), Some(LONGEST));
        for wrong in ["", "s", ".", "1.2.3", "-1", "5y", "1e3", "NaN", "٣"] {
            assert_eq!(length(wrong), None, "{wrong}");
        }
    }
}
