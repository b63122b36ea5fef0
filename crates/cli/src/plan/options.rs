//! What the command line says of programs, hooks and lengths of time.

use std::str::FromStr;
use std::time::Duration;

use super::behaviour::{Exits, HookRun};
use super::pause;

/// `--app [CONTAINER=]WORD[,WORD]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppOption {
    /// For which container; all main containers if it does not say.
    pub(super) container: Option<String>,
    pub(super) exits: Option<Exits>,
    pub(super) code: Option<u8>,
}

/// `--hook [CONTAINER=]WORD`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookOption {
    /// For which container; all of them if it does not say.
    pub(super) container: Option<String>,
    pub(super) hook: HookRun,
}

impl FromStr for AppOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const WORDS: [&str; 5] = ["exits-after", "exits-at-once", "ignores-term", "hangs", "exit-code"];
        let (container, words) = addressed(text, &WORDS);
        let mut option = Self { container, exits: None, code: None };
        for word in words.split(',') {
            let about_exit = !word.starts_with("exit-code");
            if about_exit && option.exits.is_some() {
                return Err(format!("{words:?} says two things about how it exits; choose one"));
            }
            match word.split_once('=').unwrap_or((word, "")) {
                ("exits-after", value) => option.exits = Some(Exits::After(duration(value)?)),
                ("exits-at-once", "") => option.exits = Some(Exits::After(Duration::ZERO)),
                ("ignores-term" | "hangs", "") => option.exits = Some(Exits::Never),
                ("exit-code", value) => {
                    option.code = Some(value.parse().map_err(|_| format!("{value:?} is no exit code (0 to 255)"))?);
                }
                _ => {
                    return Err(format!(
                        "{word:?} is not one of: exits-after=3s, {}, exit-code=1",
                        WORDS[1..4].join(", ")
                    ));
                }
            }
        }
        Ok(option)
    }
}

impl FromStr for HookOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (container, word) = addressed(text, &["takes", "hangs", "fails"]);
        let hook = match word.split_once('=').unwrap_or((word, "")) {
            ("takes", value) => HookRun::Takes(duration(value)?),
            ("hangs", "") => HookRun::Hangs,
            ("fails", "") => HookRun::Fails,
            _ => return Err(format!("{word:?} is not one of: takes=2s, hangs, fails")),
        };
        Ok(Self { container, hook })
    }
}

/// `[CONTAINER=]REST`, where REST begins with one of `words`.
fn addressed<'a>(text: &'a str, words: &[&str]) -> (Option<String>, &'a str) {
    match text.split_once('=') {
        Some((first, rest)) if !words.contains(&first) && !first.contains(',') => (Some(first.to_owned()), rest),
        Some(_) | None => (None, text),
    }
}

/// A duration as people type it: `3s`, `5`, `1h30m`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    // Each part ends where the next number begins.
    let begins = |(at, pair): (usize, &[u8])| (!is_digit(pair[0]) && is_digit(pair[1])).then_some(at + 1);
    let cuts = text.as_bytes().windows(2).enumerate().filter_map(begins);
    let (mut parts, mut from) = (Vec::new(), 0);
    for cut in cuts.chain([text.len()]) {
        parts.push(&text[from..cut]);
        from = cut;
    }
    let sum = parts.iter().try_fold(Duration::ZERO, |sum, part| Some(sum.saturating_add(pause::length(part)?)));
    sum.ok_or_else(|| format!("{text:?} is no duration; write 3s, 500ms, 2m or 1h30m"))
}

fn is_digit(byte: u8) -> bool {
    byte.is_ascii_digit() || byte == b'.'
}

/// A grace as people type it: whole seconds, none, or some.
pub(super) fn whole_seconds(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is no grace: write whole seconds, such as 30 or 30s; 0 is a force delete");
    if let Ok(seconds) = text.parse::<u128>() {
        return u64::try_from(seconds).ok().filter(|seconds| i64::try_from(*seconds).is_ok()).ok_or_else(wrong);
    }
    let length = duration(text).map_err(|_| wrong())?;
    let seconds =
        Some(length.as_secs()).filter(|seconds| length.subsec_nanos() == 0 && i64::try_from(*seconds).is_ok());
    seconds.ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apps_are_told_apart_by_container() {
        let app = |text: &str| text.parse::<AppOption>();
        let three = Some(Exits::After(Duration::from_secs(3)));
        assert_eq!(app("exits-after=3s"), Ok(AppOption { container: None, exits: three, code: None }));
        assert_eq!(
            app("web=exits-after=3s,exit-code=1"),
            Ok(AppOption { container: Some("web".into()), exits: three, code: Some(1) })
        );
        assert_eq!(
            app("web=ignores-term"),
            Ok(AppOption { container: Some("web".into()), exits: Some(Exits::Never), code: None })
        );
        for wrong in ["", "web", "web=", "exits-after", "exits-after=soon", "exit-code=256", "web=sings"] {
            assert!(app(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn hooks_are_told_apart_by_container() {
        let hook = |text: &str| text.parse::<HookOption>();
        assert_eq!(hook("hangs"), Ok(HookOption { container: None, hook: HookRun::Hangs }));
        let takes = HookRun::Takes(Duration::from_millis(500));
        assert_eq!(hook("web=takes=500ms"), Ok(HookOption { container: Some("web".into()), hook: takes }));
        assert!(hook("web=takes").is_err() && hook("sleeps=3").is_err());
    }
}
