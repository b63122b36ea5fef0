//! How the parts of a pod behave: what the command line says, what the manifest shows, and otherwise what is assumed.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Pod};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use lifecycle::Signal;

use super::command::{self, Circumstances, SignalOutcome};
use super::duration_text::length;
use super::options::{AppOption, HookOption};
use super::pause::{self, Pause};
use super::{ender, image, shell};

/// A program that says nothing about itself is assumed to need this long after its stop signal.
pub(super) const USUAL_EXIT: Duration = Duration::from_secs(1);
/// A hook that says nothing about itself is assumed to take this long.
const USUAL_HOOK: Duration = Duration::from_secs(1);

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
    /// It asks the program to end, which it does so long after the hook began, and the hook with it.
    EndsProgram {
        /// When it asks.
        asks: Duration,
        /// When the program exits.
        exits: Duration,
    },
}

/// How one container behaves.
#[derive(Clone, Debug)]
pub(super) struct Behaviour {
    /// When it exits.
    pub(super) exits: Exits,
    /// With which code; none if it dies of the signal.
    pub(super) code: Option<u8>,
    /// That code is no guess.
    pub(super) code_known: bool,
    /// Programs in it are killed unasked when its first process exits.
    pub(super) abandons: bool,
    /// It exits because it is over by itself, not because of its stop signal.
    pub(super) unheard: bool,
    /// It cannot start, for that reason.
    pub(super) cannot_start: Option<String>,
    /// It is over as soon as it has begun, with that code.
    pub(super) over: Option<u8>,
    /// The stop signal that its image is known to name.
    pub(super) image_signal: Option<Signal>,
    /// How long it runs if nobody ends it, where its command says so.
    pub(super) runs_for: Option<Duration>,
    /// Its preStop hook.
    pub(super) pre_stop: HookRun,
    /// Its postStart hook.
    pub(super) post_start: HookRun,
    /// How its command takes signals.
    pub(super) hears: SignalOutcome,
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
        let lifecycle = container.lifecycle.as_ref();
        let hook = hooks.iter().rev().find(|hook| hook.container.as_ref() == Some(name));
        let hook = hook.or_else(|| hooks.iter().rev().find(|hook| hook.container.is_none())).map(|hook| hook.hook);
        let handler = lifecycle.and_then(|l| l.pre_stop.as_ref());
        let ended = handler.filter(|_| hook.is_none() && may_exit(&hears)).and_then(ender::ends_after);
        let ended = match (ended, exits.unwrap_or(Exits::After(USUAL_EXIT))) {
            (Some(asks), Exits::After(needs)) => Some((asks, asks.saturating_add(needs))),
            (_, _) => None,
        };
        let mut assumed = Vec::new();
        if exits.is_none() && ended.is_none() {
            assumed.push(format!("{name} {}", usual.words));
        }
        let image_signal = signal_of_image(container);
        if let Some((image, signal)) = image_signal.filter(|_| ended.is_none()) {
            assumed.push(format!("{name} is asked with {signal}: the {image} image names it, as far as is known"));
        }
        let pre_stop = handler.map(|handler| {
            let (run, guess) = match (missing_port(handler, container), hook_run(handler, container, hook)) {
                (Some(_), _) | (None, (HookRun::Fails, _)) => (HookRun::Fails, None),
                (None, run) => match ended {
                    Some((asks, exits)) => {
                        let guess = format!("ends it: {name} exits {} after the hook began", length(exits));
                        (HookRun::EndsProgram { asks, exits }, Some(guess))
                    }
                    None => run,
                },
            };
            assumed.extend(guess.map(|guess| format!("the preStop hook of {name} {guess}")));
            run
        });
        let post_start = lifecycle.and_then(|l| l.post_start.as_ref()).map(|handler| {
            match (missing_port(handler, container), hook_run(handler, container, None)) {
                (Some(_), _) => HookRun::Fails,
                (None, (run, None)) => run,
                // How long it takes to come up has no part in how it leaves.
                (None, (_, Some(_))) => HookRun::Takes(Duration::ZERO),
            }
        });
        let none = HookRun::Takes(Duration::ZERO);
        let hoped = exits.is_none()
            && ended.is_none()
            && !matches!(stop_signal(container), Some("SIGKILL" | "SIGSTOP"))
            && may_exit(&hears)
            && !matches!(hears, SignalOutcome::Handles { .. });
        Self {
            exits: exits.unwrap_or(usual.exits),
            code: code.or(if exits.is_some() { Some(0) } else { usual.code }),
            code_known: code.is_some()
                || (exits.is_none() && matches!(hears, SignalOutcome::Exits { trapped: true, .. })),
            abandons: exits.is_none() && usual.abandons,
            unheard: exits.is_none() && matches!(hears, SignalOutcome::Exits { trapped: false, .. }),
            cannot_start: cannot_start(&hears).filter(|_| exits.is_none()),
            over: over(&hears).filter(|_| exits.is_none()),
            image_signal: image_signal.map(|(_, signal)| signal),
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

/// The image and the stop signal it is known to name, unless the manifest names one, which then counts.
fn signal_of_image(container: &Container) -> Option<(&'static str, Signal)> {
    let known = image::stop_signal(container.image.as_deref()?);
    known.filter(|(_, signal)| stop_signal(container).is_none() && *signal != Signal::TERM)
}

/// Whether a program may well exit when it is asked to, by whatever.
fn may_exit(hears: &SignalOutcome) -> bool {
    matches!(
        hears,
        SignalOutcome::Presumably
            | SignalOutcome::Unknown(_)
            | SignalOutcome::OnceReached
            | SignalOutcome::ShellMaySwallow
            | SignalOutcome::Handles { .. }
    )
}

/// The exit code of a program that is over as soon as it has begun.
fn over(hears: &SignalOutcome) -> Option<u8> {
    let SignalOutcome::Over(code) = hears else { return None };
    Some(*code)
}

/// Why a container never runs.
fn cannot_start(hears: &SignalOutcome) -> Option<String> {
    if let SignalOutcome::NotInImage(program) = hears {
        return Some(format!("its image holds no {program}"));
    }
    (*hears == SignalOutcome::NoProgram).then(|| "no program has that name".to_owned())
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

fn usual(container: &Container, hears: &SignalOutcome) -> Usual {
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
        SignalOutcome::Presumably | SignalOutcome::ShellMaySwallow => after(USUAL_EXIT, 0, usual),
        SignalOutcome::Unknown(why) => after(USUAL_EXIT, 0, format!("{usual}: {why}")),
        SignalOutcome::OnceReached => after(
            USUAL_EXIT,
            0,
            format!("{usual}: its script has come to `exec`; before that, its shell hears nothing"),
        ),
        SignalOutcome::Handles { code } => after(
            USUAL_EXIT,
            *code,
            format!("exits {} after its stop signal, with {code}: that is what a JVM does", length(USUAL_EXIT)),
        ),
        SignalOutcome::ShellSwallows { all: true, .. } => {
            never("does not react: the stop signal ends at its shell".to_owned())
        }
        SignalOutcome::ShellRefuses { command: "kill", .. } => {
            never("does not exit: its trap signals nobody, `kill` does not know the signal by that name".to_owned())
        }
        SignalOutcome::ShellRefuses { .. } => {
            never("does not react: its trap is not set, its shell does not know the signal by that name".to_owned())
        }
        SignalOutcome::RunnerLoses(runner) => Usual {
            exits: Exits::After(Duration::ZERO),
            code: Some(1),
            abandons: true,
            words: format!("exits before its program: {runner} tells a shell, which does not pass it on"),
        },
        SignalOutcome::ShellSwallows { all: false, .. } => {
            never("does not react: its sh stays in front of the program, as that of Debian and Ubuntu does".to_owned())
        }
        SignalOutcome::NoHandler(program) => never(format!("does not react: {program} handles no signal")),
        SignalOutcome::Ignored => never("does not react: its shell ignores the signal".to_owned()),
        SignalOutcome::TrapGoesOn => never("does not exit: its trap is run, then its shell goes on".to_owned()),
        SignalOutcome::TrapWaits(program) => {
            never(format!("does not react: its shell runs the trap only when `{}` is over", brief(program)))
        }
        SignalOutcome::Exits { after: Duration::ZERO, code, .. } => {
            after(Duration::ZERO, *code, "exits at once: its trap does".to_owned())
        }
        SignalOutcome::Exits { after: most, code, trapped: true, held: None } => {
            after(*most, *code, format!("exits up to {} after its stop signal: its trap does", length(*most)))
        }
        SignalOutcome::Exits { after: most, code, trapped: true, held: Some(held) } => after(
            *most,
            *code,
            format!(
                "exits up to {} after its stop signal: its trap does, once `{}` is over",
                length(*most),
                brief(&held.by)
            ),
        ),
        SignalOutcome::Exits { after: most, code, trapped: false, .. } => after(
            *most,
            *code,
            format!("does not react: its shell handles no signal; but its script is over within {}", length(*most)),
        ),
        SignalOutcome::Over(code) => after(Duration::ZERO, *code, "is over by itself: it waits for nothing".to_owned()),
        SignalOutcome::CannotTell(why) => never(format!("does not react: {why}, so the worst is played")),
        SignalOutcome::NoProgram | SignalOutcome::NotInImage(_) => {
            never(format!("never runs: {}", cannot_start(hears).unwrap_or_default()))
        }
        SignalOutcome::Abandons { after: when, code } => Usual {
            exits: Exits::After(*when),
            code: Some(*code),
            abandons: true,
            words: "exits before what it started: its shell does not wait for it".to_owned(),
        },
        SignalOutcome::Dies => dies(false, "dies of its stop signal: it handles none"),
        SignalOutcome::DiesInFront => {
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
fn hook_run(handler: &LifecycleHandler, container: &Container, told: Option<HookRun>) -> (HookRun, Option<String>) {
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
    if splits_badly(command) || lacks_program(command, container) {
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

/// Whether a command's program is known not to be in the image.
pub(super) fn lacks_program(command: &[String], container: &Container) -> bool {
    let image = container.image.as_deref().unwrap_or_default();
    command.first().is_some_and(|program| image::lacks(image, program))
}

/// `lifecycle.stopSignal`, if it is written; what the image says is not known.
pub(super) fn stop_signal(container: &Container) -> Option<&str> {
    container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.stop_signal.as_deref())
}

/// Only the first process of a namespace is deaf to signals it does not handle.
fn hears(pod: &Pod, container: &Container) -> SignalOutcome {
    let spec = pod.spec.as_ref();
    let shared = spec.is_some_and(|spec| spec.share_process_namespace == Some(true) || spec.host_pid == Some(true));
    let words = |words: &Option<Vec<String>>| words.clone().unwrap_or_default();
    let signal = match (stop_signal(container), signal_of_image(container)) {
        (Some(written), _) => written.to_owned(),
        (None, Some((_, known))) => known.to_string(),
        (None, None) => Signal::TERM.to_string(),
    };
    if matches!(signal.as_str(), "SIGKILL" | "SIGSTOP") {
        return SignalOutcome::Presumably;
    }
    let signal = shell::signal_name(&signal);
    let around = Circumstances {
        fed: container.stdin == Some(true) || container.tty == Some(true),
        first: !shared,
        signal: &signal,
        image: container.image.as_deref().unwrap_or_default(),
    };
    command::hears(&words(&container.command), &words(&container.args), around)
}
