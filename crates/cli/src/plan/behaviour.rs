//! How the parts of a pod behave: what the command line says, what the manifest shows, and otherwise what is assumed.

use std::str::FromStr;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Pod};

use super::command::{self, Hears};
use super::words::length;

/// A program that says nothing about itself is assumed to need this long after its stop signal.
const USUAL_EXIT: Duration = Duration::from_secs(1);
/// A hook that says nothing about itself is assumed to take this long.
const USUAL_HOOK: Duration = Duration::from_secs(1);

/// `--app [CONTAINER=]WORD[,WORD]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppOption {
    /// For which container; all main containers if it does not say.
    pub(super) container: Option<String>,
    exits: Option<Exits>,
    code: Option<u8>,
}

/// `--hook [CONTAINER=]WORD`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookOption {
    /// For which container; all of them if it does not say.
    pub(super) container: Option<String>,
    hook: HookRun,
}

/// How a program answers its stop signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exits {
    /// It exits so long after it.
    After(Duration),
    /// It does not.
    Never,
}

/// How a hook goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HookRun {
    /// It succeeds after that long.
    Takes(Duration),
    /// It fails at once.
    Fails,
    /// It never ends.
    Hangs,
}

/// How one container behaves.
#[derive(Clone, Debug)]
pub(super) struct Behaviour {
    /// When it exits.
    pub(super) exits: Exits,
    /// With which code.
    pub(super) code: u8,
    /// Its preStop hook.
    pub(super) pre_stop: HookRun,
    /// Its postStart hook.
    pub(super) post_start: HookRun,
    /// How its command takes signals.
    pub(super) hears: Hears,
    /// What of this nobody told us, in words.
    pub(super) assumed: Vec<String>,
}

impl Behaviour {
    /// Of a container of `pod`; `main` if it is no sidecar.
    pub(super) fn of(pod: &Pod, container: &Container, main: bool, apps: &[AppOption], hooks: &[HookOption]) -> Self {
        let name = &container.name;
        let mut assumed = Vec::new();
        let hears = hears(pod, container);
        let told = |pick: &dyn Fn(&AppOption) -> bool| {
            let named = apps.iter().rev().find(|app| app.container.as_ref() == Some(name) && pick(app));
            named.or_else(|| apps.iter().rev().find(|app| main && app.container.is_none() && pick(app)))
        };
        let exits = told(&|app| app.exits.is_some()).and_then(|app| app.exits);
        let code = told(&|app| app.code.is_some()).and_then(|app| app.code).unwrap_or(0);
        let exits = exits.unwrap_or_else(|| match hears {
            Hears::NotBehindShell => {
                assumed.push(format!("{name} does not react: the stop signal ends at its shell"));
                Exits::Never
            }
            Hears::NoHandler(program) => {
                assumed.push(format!("{name} does not react: {program} handles no signal"));
                Exits::Never
            }
            Hears::Presumably | Hears::PerhapsBehindShell => {
                assumed.push(format!("{name} exits {} after its stop signal", length(USUAL_EXIT)));
                Exits::After(USUAL_EXIT)
            }
        });
        let lifecycle = container.lifecycle.as_ref();
        let hook = hooks.iter().rev().find(|hook| hook.container.as_ref() == Some(name));
        let hook = hook.or_else(|| hooks.iter().rev().find(|hook| hook.container.is_none())).map(|hook| hook.hook);
        let pre_stop = lifecycle.and_then(|l| l.pre_stop.as_ref());
        let pre_stop = pre_stop.map(|handler| {
            hook_run(handler, hook).unwrap_or_else(|| {
                assumed.push(format!("the preStop hook of {name} takes {}", length(USUAL_HOOK)));
                HookRun::Takes(USUAL_HOOK)
            })
        });
        let post_start = lifecycle.and_then(|l| l.post_start.as_ref());
        let post_start = post_start.and_then(|handler| hook_run(handler, None));
        let none = HookRun::Takes(Duration::ZERO);
        Self { exits, code, pre_stop: pre_stop.unwrap_or(none), post_start: post_start.unwrap_or(none), hears, assumed }
    }
}

/// How a hook goes, if the manifest or the command line says. A sleep says so itself.
fn hook_run(handler: &LifecycleHandler, told: Option<HookRun>) -> Option<HookRun> {
    if let Some(sleep) = &handler.sleep {
        return Some(HookRun::Takes(reading::seconds(sleep.seconds)));
    }
    if handler.tcp_socket.is_some() {
        return Some(HookRun::Fails);
    }
    let command = handler.exec.as_ref().and_then(|exec| exec.command.as_deref());
    told.or_else(|| command.and_then(command::sleeps).map(HookRun::Takes))
}

/// Only the first process of a namespace is deaf to signals it does not handle.
fn hears(pod: &Pod, container: &Container) -> Hears {
    let spec = pod.spec.as_ref();
    let shared = spec.is_some_and(|spec| spec.share_process_namespace == Some(true) || spec.host_pid == Some(true));
    let words = |words: &Option<Vec<String>>| words.clone().unwrap_or_default();
    match command::hears(&words(&container.command), &words(&container.args)) {
        Hears::NoHandler(_) if shared => Hears::Presumably,
        hears @ (Hears::NoHandler(_) | Hears::Presumably | Hears::NotBehindShell | Hears::PerhapsBehindShell) => hears,
    }
}

impl FromStr for AppOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const WORDS: [&str; 4] = ["exits-after", "exits-at-once", "ignores-term", "exit-code"];
        let (container, words) = addressed(text, &WORDS);
        let mut option = Self { container, exits: None, code: None };
        for word in words.split(',') {
            match word.split_once('=').unwrap_or((word, "")) {
                ("exits-after", value) => option.exits = Some(Exits::After(duration(value)?)),
                ("exits-at-once", "") => option.exits = Some(Exits::After(Duration::ZERO)),
                ("ignores-term", "") => option.exits = Some(Exits::Never),
                ("exit-code", value) => {
                    option.code = Some(value.parse().map_err(|_| format!("{value:?} is no exit code (0 to 255)"))?);
                }
                _ => {
                    return Err(format!(
                        "{word:?} is not one of: exits-after=3s, {}, exit-code=1",
                        WORDS[1..3].join(", ")
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

/// A duration as people type it.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    command::length(text).ok_or_else(|| format!("{text:?} is no duration; write 3s, 500ms, 2m or 1h"))
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
