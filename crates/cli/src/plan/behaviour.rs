//! How the parts of a pod behave: what the command line says, what the manifest shows, and otherwise what is assumed.

use std::str::FromStr;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Pod};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::command::{self, Circumstances, Hears};
use super::pause::{self, Pause};
use super::words::length;

/// A program that says nothing about itself is assumed to need this long after its stop signal.
pub(super) const USUAL_EXIT: Duration = Duration::from_secs(1);
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
    /// With which code; none if it dies of the signal.
    pub(super) code: Option<u8>,
    /// Programs in it are killed unasked when its first process exits.
    pub(super) abandons: bool,
    /// How long it runs if nobody ends it, where its command says so.
    pub(super) runs_for: Option<Duration>,
    /// Its preStop hook.
    pub(super) pre_stop: HookRun,
    /// Its postStart hook.
    pub(super) post_start: HookRun,
    /// How its command takes signals.
    pub(super) hears: Hears,
    /// The command line said how it exits.
    pub(super) told: bool,
    /// That it exits at all is only hoped for.
    pub(super) hoped: bool,
    /// What of this nobody told us, in words.
    pub(super) assumed: Vec<String>,
}

impl Behaviour {
    /// Of a container of `pod`; `main` if it is no sidecar.
    pub(super) fn of(pod: &Pod, container: &Container, main: bool, apps: &[AppOption], hooks: &[HookOption]) -> Self {
        let name = &container.name;
        let hears = hears(pod, container);
        let told = |pick: &dyn Fn(&AppOption) -> bool| {
            let named = apps.iter().rev().find(|app| app.container.as_ref() == Some(name) && pick(app));
            named.or_else(|| apps.iter().rev().find(|app| main && app.container.is_none() && pick(app)))
        };
        let exits = told(&|app| app.exits.is_some()).and_then(|app| app.exits);
        let code = told(&|app| app.code.is_some()).and_then(|app| app.code);
        let usual = usual(container, &hears);
        let mut assumed = Vec::new();
        if exits.is_none() {
            assumed.push(format!("{name} {}", usual.words));
        }
        if let Some((image, signal)) = signal_of_image(container).filter(|_| stop_signal(container).is_none()) {
            assumed.push(format!(
                "{name} is asked with SIGTERM, though the {image} image names {signal}: it is not looked into"
            ));
        }
        let lifecycle = container.lifecycle.as_ref();
        let hook = hooks.iter().rev().find(|hook| hook.container.as_ref() == Some(name));
        let hook = hook.or_else(|| hooks.iter().rev().find(|hook| hook.container.is_none())).map(|hook| hook.hook);
        let pre_stop = lifecycle.and_then(|l| l.pre_stop.as_ref());
        let pre_stop = pre_stop.map(|handler| {
            let (run, guess) = match missing_port(handler, container) {
                Some(_) => (HookRun::Fails, None),
                None => hook_run(handler, hook),
            };
            assumed.extend(guess.map(|guess| format!("the preStop hook of {name} {guess}")));
            run
        });
        let post_start = lifecycle.and_then(|l| l.post_start.as_ref()).map(|handler| match hook_run(handler, None) {
            (run, None) => run,
            // How long it takes to come up has no part in how it leaves.
            (_, Some(_)) => HookRun::Takes(Duration::ZERO),
        });
        let none = HookRun::Takes(Duration::ZERO);
        let hoped = exits.is_none()
            && !matches!(stop_signal(container), Some("SIGKILL" | "SIGSTOP"))
            && matches!(hears, Hears::Presumably | Hears::Unknown(_) | Hears::OnceReached | Hears::ShellMaySwallow);
        Self {
            exits: exits.unwrap_or(usual.exits),
            code: code.or(if exits.is_some() { Some(0) } else { usual.code }),
            abandons: exits.is_none() && usual.abandons,
            runs_for: runs_for(container),
            pre_stop: pre_stop.unwrap_or(none),
            post_start: post_start.unwrap_or(none),
            hears,
            told: exits.is_some(),
            hoped,
            assumed,
        }
    }
}

/// Well-known images that name another stop signal than SIGTERM.
fn signal_of_image(container: &Container) -> Option<(&'static str, &'static str)> {
    const IMAGES: [(&str, &str); 5] = [
        ("nginx", "SIGQUIT"),
        ("httpd", "SIGWINCH"),
        ("postgres", "SIGINT"),
        ("haproxy", "SIGUSR1"),
        ("php", "SIGQUIT"),
    ];
    let image = container.image.as_deref()?;
    let name = command::base(image).split([':', '@']).next()?;
    IMAGES.into_iter().find(|(known, _)| *known == name)
}

/// How long a container runs that only sleeps and does what takes no time.
fn runs_for(container: &Container) -> Option<Duration> {
    let words: Vec<String> = container.command.iter().chain(&container.args).flatten().cloned().collect();
    match pause::of_command(&words)? {
        Pause::For(length) => Some(length),
        Pause::AtLeast(_) | Pause::Endless => None,
    }
}

/// What a container does if nobody says otherwise.
struct Usual {
    exits: Exits,
    code: Option<u8>,
    abandons: bool,
    words: String,
}

fn usual(container: &Container, hears: &Hears) -> Usual {
    let never = |words: String| Usual { exits: Exits::Never, code: None, abandons: false, words };
    let after = |after: Duration, code: u8, words: String| Usual {
        exits: Exits::After(after),
        code: Some(code),
        abandons: false,
        words,
    };
    let dies = |abandons: bool, words: &str| Usual {
        exits: Exits::After(Duration::ZERO),
        code: None,
        abandons,
        words: words.to_owned(),
    };
    match stop_signal(container) {
        Some("SIGKILL") => return dies(false, "is killed by its own stop signal"),
        Some("SIGSTOP") => return never("is frozen by its own stop signal".to_owned()),
        Some(_) | None => {}
    }
    let usual = format!("exits {} after its stop signal", length(USUAL_EXIT));
    match hears {
        Hears::Presumably | Hears::ShellMaySwallow => after(USUAL_EXIT, 0, usual),
        Hears::Unknown(why) => after(USUAL_EXIT, 0, format!("{usual}: {why}")),
        Hears::OnceReached => after(
            USUAL_EXIT,
            0,
            format!("{usual}: its script has come to `exec`; before that, its shell hears nothing"),
        ),
        Hears::ShellSwallows { all: true } => never("does not react: the stop signal ends at its shell".to_owned()),
        Hears::ShellSwallows { all: false } => {
            never("does not react: its sh stays in front of the program, as that of Debian and Ubuntu does".to_owned())
        }
        Hears::NoHandler(program) => never(format!("does not react: {program} handles no signal")),
        Hears::Ignored => never("does not react: its shell ignores the signal".to_owned()),
        Hears::TrapGoesOn => never("does not exit: its trap is run, then its shell goes on".to_owned()),
        Hears::TrapWaits(program) => {
            never(format!("does not react: its shell runs the trap only when `{}` is over", brief(program)))
        }
        Hears::Exits { after: Duration::ZERO, code, .. } => {
            after(Duration::ZERO, *code, "exits at once: its trap does".to_owned())
        }
        Hears::Exits { after: most, code, trapped: true } => {
            after(*most, *code, format!("exits up to {} after its stop signal: its trap does", length(*most)))
        }
        Hears::Exits { after: most, code, trapped: false } => after(
            *most,
            *code,
            format!("does not react: its shell handles no signal; but its script is over within {}", length(*most)),
        ),
        Hears::Over(code) => after(Duration::ZERO, *code, "is over by itself: its script waits for nothing".to_owned()),
        Hears::CannotTell(why) => never(format!("does not react: {why}, so the worst is played")),
        Hears::NoProgram => never("cannot even start: no program has that name".to_owned()),
        Hears::Abandons { after: when, code } => Usual {
            exits: Exits::After(*when),
            code: Some(*code),
            abandons: true,
            words: "exits before what it started: its shell does not wait for it".to_owned(),
        },
        Hears::Dies => dies(false, "dies of its stop signal: it handles none"),
        Hears::DiesInFront => {
            dies(true, "exits at once: the stop signal ends its shell, and the program is killed with it")
        }
    }
}

/// A command cut to a few words.
pub(super) fn brief(text: &str) -> String {
    const MOST: usize = 34;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.chars().count() <= MOST { text } else { text.chars().take(MOST - 3).chain("...".chars()).collect() }
}

/// How a hook goes: as it says itself, as the command line says, or as is assumed, which is then told in words.
fn hook_run(handler: &LifecycleHandler, told: Option<HookRun>) -> (HookRun, Option<String>) {
    if let Some(sleep) = &handler.sleep {
        return (HookRun::Takes(reading::seconds(sleep.seconds)), None);
    }
    if handler.tcp_socket.is_some() {
        return (HookRun::Fails, None);
    }
    if let Some(told) = told {
        return (told, None);
    }
    let command = handler.exec.as_ref().and_then(|exec| exec.command.as_deref()).unwrap_or_default();
    if splits_badly(command) {
        return (HookRun::Fails, None);
    }
    match pause::of_command(command) {
        Some(Pause::For(length)) => (HookRun::Takes(length), None),
        Some(Pause::Endless) => (HookRun::Hangs, None),
        Some(Pause::AtLeast(least)) => {
            let least = least.max(USUAL_HOOK);
            (HookRun::Takes(least), Some(format!("takes {}: how long it sleeps does not show", length(least))))
        }
        None => (HookRun::Takes(USUAL_HOOK), Some(format!("takes {}", length(USUAL_HOOK)))),
    }
}

/// A port that an httpGet hook names and the container does not have. A text that is a number is one.
pub(super) fn missing_port<'a>(handler: &'a LifecycleHandler, container: &Container) -> Option<&'a str> {
    let IntOrString::String(name) = &handler.http_get.as_ref()?.port else { return None };
    let known = container.ports.iter().flatten().any(|port| port.name.as_ref() == Some(name));
    (!known && name.parse::<u16>().is_err()).then_some(name)
}

/// A command that nobody but a shell could run, without one: the words of its program in one, or operators among its
/// arguments.
pub(super) fn splits_badly(command: &[String]) -> bool {
    let Some((program, rest)) = command.split_first() else { return false };
    let operator = |word: &String| matches!(word.as_str(), "&&" | "||" | ";" | "|");
    program.trim().contains(char::is_whitespace) || (!command::is_shell(program) && rest.iter().any(operator))
}

/// `lifecycle.stopSignal`, if it is written; what the image says is not known.
pub(super) fn stop_signal(container: &Container) -> Option<&str> {
    container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.stop_signal.as_deref())
}

/// Only the first process of a namespace is deaf to signals it does not handle.
fn hears(pod: &Pod, container: &Container) -> Hears {
    let spec = pod.spec.as_ref();
    let shared = spec.is_some_and(|spec| spec.share_process_namespace == Some(true) || spec.host_pid == Some(true));
    let words = |words: &Option<Vec<String>>| words.clone().unwrap_or_default();
    let signal = stop_signal(container).unwrap_or("SIGTERM");
    if matches!(signal, "SIGKILL" | "SIGSTOP") {
        return Hears::Presumably;
    }
    let around = Circumstances {
        first: !shared,
        signal: signal.strip_prefix("SIG").unwrap_or(signal),
        image: container.image.as_deref().unwrap_or_default(),
    };
    command::hears(&words(&container.command), &words(&container.args), around)
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
