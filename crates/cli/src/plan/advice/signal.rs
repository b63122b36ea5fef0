//! Advice on how a container takes its stop signal.

use std::time::Duration;

use super::{About, Advice, spent};
use crate::plan::bars::{Bar, On};
use crate::plan::behaviour::{Exits, brief, stop_signal};
use crate::plan::command::SignalOutcome;
use crate::plan::duration_text::{about as rounded, length};
use crate::plan::shell::Stands;

const USE_EXEC: &str = "start the program with `exec` as the last command of the script, or use no shell";
/// A trap that is held up for longer than this is worth a word.
const MOMENT: Duration = Duration::from_secs(2);

/// How the signal gets to a program that stands like this in its script.
fn to_reach(stands: Stands) -> &'static str {
    match stands {
        Stands::Last => USE_EXEC,
        Stands::Followed => {
            "`exec` would leave out what follows. Start the program in the background, pass the signal on, and go on when \
             it is over: trap 'kill $pid; wait $pid' TERM; program & pid=$!; wait $pid; ..."
        }
        Stands::Piped => {
            "`exec` does not reach out of a pipeline. Let the program write its output itself, and start it with `exec`; \
             or take the pipe apart: mkfifo /tmp/out; filter </tmp/out & program >/tmp/out & pid=$!; trap 'kill $pid; \
             wait' TERM; wait $pid; code=$?; wait; exit $code"
        }
        Stands::Behind => {
            "start a single program with `exec`, in the foreground; give several a container each, or pass the signal on \
             and wait: trap 'kill $pid; wait $pid; exit $?' TERM; program & pid=$!; wait $pid"
        }
        Stands::Repeated => {
            "start the program with `exec`, without the loop: a container that ends is restarted anyway. Where the loop \
             has to stay, pass the signal on and wait: trap 'kill $pid; wait $pid; exit $?' TERM; ... program & pid=$!; \
             wait $pid"
        }
    }
}

impl Advice<'_> {
    pub(super) fn on_signal(&mut self, about: &About<'_>, bar: Option<&Bar>) {
        let signal = stop_signal(about.container);
        if let Some(signal @ ("SIGKILL" | "SIGSTOP")) = signal {
            let reason = match signal {
                "SIGKILL" => {
                    "no program can handle it, so whatever was going on is lost at once; the grace is of no use"
                }
                _ => "it freezes the program, which then cannot exit, and is killed when the grace is spent",
            };
            self.container(
                about,
                "stop-signal-kill",
                &about.below("lifecycle.stopSignal"),
                (
                    &format!("{signal} as stop signal"),
                    reason,
                    "leave stopSignal out (SIGTERM), or name a signal that the program handles",
                ),
            );
            return;
        }
        let Some(behaviour) = self.plan.behaviours.get(&about.container.name) else { return };
        let told = match behaviour.told {
            true => " (the timeline follows --app instead)",
            false => "",
        };
        let Some((code, finding, reason, remedy)) = on_hearing(&behaviour.hears) else {
            self.on_kill(about, bar);
            return;
        };
        self.container(about, code, &about.below("command"), (&finding, &format!("{reason}{told}"), &remedy));
        // What comes after the wait may be too long as well.
        if let SignalOutcome::Exits { after, held: Some(held), .. } = &behaviour.hears
            && *after > held.wait.saturating_add(self.plan.story.budget())
        {
            self.on_kill(about, bar);
        }
    }

    /// Somebody who hears its signal, and needs longer than it has.
    fn on_kill(&mut self, about: &About<'_>, bar: Option<&Bar>) {
        // Where a hook took the time, that is what to say.
        let killed = bar.is_some_and(|bar| bar.end.is_some_and(|end| end.killed));
        if !killed || self.robbed(about, bar).is_some() || self.is_abandoned(about) {
            return;
        }
        let needs = self.plan.behaviours.get(&about.container.name).and_then(|behaviour| match behaviour.exits {
            Exits::After(needs) => Some(needs),
            Exits::Never => None,
        });
        let had = rounded(spent(bar, On::Stopping));
        let (reason, remedy) = match needs {
            Some(needs) => (
                format!(
                    "it needs {} after its stop signal and had {had}; whatever it was doing then is lost",
                    length(needs)
                ),
                if self.plan.grace_said {
                    "delete it with a longer grace".to_owned()
                } else {
                    let all = needs.saturating_add(spent(bar, On::PreStop)).as_secs();
                    format!("set terminationGracePeriodSeconds above {all}, or make it faster")
                },
            ),
            None => (
                format!("it had {had} from its stop signal, and whatever it was doing then is lost"),
                "handle the stop signal and exit when the work is done".to_owned(),
            ),
        };
        self.container(about, "killed", about.field, ("killed at the end of the grace", &reason, &remedy));
    }
}

/// Code, finding, reason and remedy.
fn on_hearing(hears: &SignalOutcome) -> Option<(&'static str, String, String, String)> {
    let said = |code, finding: &str, reason: &str, remedy: &str| {
        Some((code, finding.to_owned(), reason.to_owned(), remedy.to_owned()))
    };
    match hears {
        SignalOutcome::Presumably
        | SignalOutcome::Unknown(_)
        | SignalOutcome::OnceReached
        | SignalOutcome::Handles { .. }
        | SignalOutcome::Over(_) => None,
        SignalOutcome::Exits { held: Some(held), trapped: true, .. } if held.wait > MOMENT => Some((
            "trap-waits",
            format!("a trap that waits for `{}`", brief(&held.by)),
            format!(
                "a shell runs a trap only when the command in its foreground is over: here up to {} after the stop signal",
                length(held.wait)
            ),
            format!("put it into the background: a trap interrupts `wait`. {} & wait $!", brief(&held.by)),
        )),
        SignalOutcome::Exits { .. } => None,
        SignalOutcome::CannotTell(why) => said(
            "cannot-tell",
            "a script that does not show what it does with its stop signal",
            &format!("{why}; it may go on until it is killed at the end of the grace"),
            "start the program with `exec` as the last command of the script, or say what it does with --app",
        ),
        SignalOutcome::NoProgram => said(
            "command-without-shell",
            "a command that only a shell could run",
            "the words of a command are not split and operators mean nothing: there is no program of that name, and the \
             container never starts",
            "write each word on its own ([\"sleep\", \"100\"]), or [\"sh\", \"-c\", \"...\"]",
        ),
        SignalOutcome::NotInImage(program) => said(
            "command-needs-shell",
            &format!("{program} in an image without it"),
            "such an image holds its program, and neither shells nor tools: the container never starts",
            "name the program itself in `command`, or leave `command` to the image",
        ),
        SignalOutcome::ShellSwallows { all: true, stands } => said(
            "shell-swallows-signal",
            "a shell as first process, with the program as its child",
            "the stop signal goes to the first process only; the shell does not pass it on, so the program never hears it \
             and is killed when the grace is spent",
            to_reach(*stands),
        ),
        SignalOutcome::ShellSwallows { all: false, stands } => said(
            "shell-swallows-signal",
            "sh as first process, without `exec`",
            "the stop signal goes to the first process only. The sh of Debian and Ubuntu images stays in front of the \
             program and does not pass it on, so the program never hears it and is killed when the grace is spent. (That \
             of Alpine, and bash since 5.1, would get out of the way)",
            to_reach(*stands),
        ),
        SignalOutcome::ShellMaySwallow => said(
            "shell-may-swallow-signal",
            "a shell as first process, without `exec`",
            "this shell becomes the last command of its script by itself, so that the signal arrives; but only as long as \
             that command is the one that runs, and nothing follows it (in Alpine, not even the end of a line). bash \
             before 5.1 and the sh of Debian and Ubuntu never do",
            USE_EXEC,
        ),
        SignalOutcome::ShellRefuses { command, all } => {
            let others = if *all { "" } else { ". (That of Alpine, and bash, do understand it)" };
            let outcome = match *command {
                "kill" => "so `kill` signals nobody, what it was meant for goes on, and all are killed",
                _ => "calls it a bad trap and sets none, so its shell is deaf to the signal and is killed",
            };
            said(
                "signal-name-refused",
                &format!("`{command}` with a name that begins with SIG"),
                &format!(
                    "the sh of Debian and Ubuntu (dash) knows signals by their short names only: it {outcome} when the \
                     grace is spent{others}"
                ),
                "leave SIG out, which every shell understands: TERM",
            )
        }
        SignalOutcome::RunnerLoses(runner) => said(
            "runner-in-front",
            &format!("{runner} as first process"),
            &format!(
                "{runner} starts the program through sh and passes the stop signal on to that. The sh of Debian and Ubuntu \
                 images dies of it without telling the program, {runner} exits, and the program is killed unasked, \
                 whatever grace is left. (That of Alpine gets out of the way)"
            ),
            "start the program itself, such as [\"node\", \"server.js\"], and handle the stop signal in it",
        ),
        SignalOutcome::NoHandler(program) => {
            let reason = "the kernel gives the first process of a container no signal that it does not handle, so this \
                          one is always killed, when the grace is spent";
            let remedy = match crate::plan::command::is_shell(program) {
                true => "handle the signal: trap 'exit 0' TERM",
                false => {
                    "run a program that handles SIGTERM, or an init such as tini in front of it (`shareProcessNamespace: \
                     true` does it too)"
                }
            };
            said("no-handler", &format!("{program} as first process"), reason, remedy)
        }
        SignalOutcome::Ignored => said(
            "signal-ignored",
            "a shell that ignores its stop signal",
            "`trap ''` makes it, and the programs it starts, deaf to the signal: all are killed when the grace is spent",
            "exit in the trap: trap 'exit 0' TERM",
        ),
        SignalOutcome::TrapGoesOn => said(
            "trap-goes-on",
            "a trap that does not end its shell",
            "the shell runs the trap and then goes on where it was, until it is killed at the end of the grace",
            "end the trap with `exit`",
        ),
        SignalOutcome::TrapWaits(program) => said(
            "trap-waits",
            &format!("a trap that waits for `{}`", brief(program)),
            "a shell runs a trap only when the command in its foreground is over, and that command never hears the signal",
            "start it in the background, pass the signal on, and exit as it does: trap 'kill $pid; wait $pid; exit $?' TERM; \
             program & pid=$!; wait $pid",
        ),
        SignalOutcome::Abandons { .. } => said(
            "shell-does-not-wait",
            "programs that outlive the first process of their container",
            "when the first process exits, everything else in the container is killed in the middle of its work, whatever \
             grace is left. `wait` ends as soon as a trap has run, and what `exec` runs waits for nobody",
            "ask each of them, wait for it in the trap, and exit as it did: trap 'kill $pid; wait $pid; exit $?' TERM",
        ),
        SignalOutcome::Dies => None,
        SignalOutcome::DiesInFront => said(
            "shell-dies-first",
            "a shell in front of the program, in a shared process namespace",
            "there the stop signal ends the shell at once, and with it the container: the program is killed without \
             having been asked, whatever grace is left",
            USE_EXEC,
        ),
    }
}
