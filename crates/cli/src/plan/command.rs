//! What a container's command line tells about stop signals. It reads, it does not run; when in doubt it says so.
//!
//! Scripts are played by `shell`, in every shell that the image may have, and with every answer to what does not show.
//! Where that comes to different ends, the worst of them counts.

use std::time::Duration;

use super::behaviour::{USUAL_EXIT, splits_badly};
use super::image;
use super::shell::{self, Answers, End, Held, Kind, Never, Setting, Stands};

/// What becomes of a stop signal that is sent to a container's first process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SignalOutcome {
    /// Nothing says otherwise.
    Presumably,
    /// What runs is written elsewhere, and nobody looked: in the image, in a script file, in words not understood.
    Unknown(&'static str),
    /// Nothing says otherwise once a script has come to its last command; until then its shell swallows the signal.
    OnceReached,
    /// A program that handles the signal, and makes that exit code of it.
    Handles { code: u8 },
    /// A command that no program can be started with.
    NoProgram,
    /// A program that images like this one do not hold.
    NotInImage(String),
    /// A shell that stays in front of its program and keeps the signal to itself; `all` shells do, or only some.
    ShellSwallows { all: bool, stands: Stands },
    /// A shell that does not know the name of the signal in that command of its script; `all` shells do not, or some.
    ShellRefuses { command: &'static str, all: bool },
    /// A program that starts its own through a shell, which dies of the signal and leaves what it started to be killed.
    RunnerLoses(String),
    /// A shell that only old versions of stay in front of their program.
    ShellMaySwallow,
    /// A program that sets no handler, which the kernel protects from signals while it is first.
    NoHandler(String),
    /// A shell that was told to ignore the signal.
    Ignored,
    /// A shell that runs its trap and then goes on with what it was doing.
    TrapGoesOn,
    /// A shell that runs its trap only when that program, which hears nothing, is over.
    TrapWaits(String),
    /// A shell that exits, after at most so long; because of a trap, which something may have held up, or because its
    /// script is over by then.
    Exits { after: Duration, code: u8, trapped: bool, held: Option<Held> },
    /// A shell that exits before what it started, which is then killed.
    Abandons { after: Duration, code: u8 },
    /// A script that is over before anybody could ask it to leave, with that code.
    Over(u8),
    /// What a script does with the signal does not show.
    CannotTell(&'static str),
    /// A process that is not first, and has no handler: it dies of the signal.
    Dies,
    /// The same with a program behind it, which is killed unasked.
    DiesInFront,
}

/// What a command runs in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Circumstances<'a> {
    /// It is the first process of its namespace, which the kernel protects from signals it has no handler for.
    pub(super) first: bool,
    /// Somebody can type something into it.
    pub(super) fed: bool,
    /// The stop signal as a trap would name it: `TERM`.
    pub(super) signal: &'a str,
    /// The image, whose name may tell which shell it has.
    pub(super) image: &'a str,
}

const SHELLS: [&str; 6] = ["sh", "bash", "ash", "dash", "zsh", "ksh"];
/// Programs people keep containers alive with; none of them handles a signal.
const DEAF: [&str; 4] = ["sleep", "tail", "cat", "yes"];
/// Programs that people try a container with, and that are over at once.
const BRIEF: [&str; 9] = ["echo", "date", "true", "false", "ls", "id", "hostname", "printf", "pwd"];
/// Programs that become the one they are given, after so many words of their own.
const BECOMES: [(&str, usize); 3] = [("gosu", 1), ("su-exec", 1), ("exec", 0)];
/// First processes that pass signals on to their child.
const INITS: [&str; 3] = ["tini", "catatonit", "docker-init"];
/// Signals that end nobody who has no handler for them.
const HARMLESS: [&str; 4] = ["CHLD", "CONT", "URG", "WINCH"];

/// Reads `command` and `args` of a container.
pub(super) fn hears(command: &[String], args: &[String], around: Circumstances<'_>) -> SignalOutcome {
    let own;
    let command = match (command, image::command(around.image)) {
        ([], Some(usual)) if args.is_empty() => {
            own = [usual.to_owned()];
            &own[..]
        }
        ([], None) => return SignalOutcome::Unknown("what it runs is in its image, which is not looked into"),
        (command, _) => command,
    };
    let words: Vec<&str> = command.iter().chain(args).map(String::as_str).collect();
    if splits_badly(if command.is_empty() { args } else { command }) {
        return SignalOutcome::NoProgram;
    }
    if let Some(program) = words.first().filter(|program| image::lacks(around.image, program)) {
        return SignalOutcome::NotInImage(base(program).to_owned());
    }
    words_hear(&words, around)
}

fn words_hear(words: &[&str], around: Circumstances<'_>) -> SignalOutcome {
    let Some((program, rest)) = words.split_first() else { return SignalOutcome::Presumably };
    let name = base(program);
    if let Some((_, own)) = BECOMES.iter().find(|(becomes, _)| *becomes == name) {
        return words_hear(rest.get(*own..).unwrap_or_default(), around);
    }
    if name == "env" {
        let own = rest.iter().take_while(|word| word.contains('=')).count();
        return words_hear(&rest[own..], around);
    }
    if INITS.contains(&name) && around.first {
        // With -g everybody gets the signal, not only the child.
        let own = rest.iter().take_while(|word| word.starts_with('-')).count();
        let to_all = rest[..own].iter().any(|word| *word == "-g" || word.contains('g') && !word.starts_with("--"));
        return if to_all {
            SignalOutcome::Presumably
        } else {
            words_hear(&rest[own..], Circumstances { first: false, ..around })
        };
    }
    if name == "busybox" && !rest.is_empty() {
        return words_hear(rest, Circumstances { image: "busybox", ..around });
    }
    if SHELLS.contains(&name) {
        return match script_of(rest) {
            Some(at) => script_hears(name, rest[at], &rest[at + 1..], around),
            None if rest.iter().any(|word| !word.starts_with('-')) => {
                SignalOutcome::Unknown("its script is in a file, which is not looked into")
            }
            // A shell without a script waits for somebody to type, and ignores the signal as long as nobody does.
            None if around.fed => program_hears(name, around),
            // Where nobody can, it is over.
            None => SignalOutcome::Over(0),
        };
    }
    if name.ends_with(".sh") {
        return SignalOutcome::Unknown("its script is in a file, which is not looked into");
    }
    match name {
        name if BRIEF.contains(&name) => SignalOutcome::Over(u8::from(name == "false")),
        "cat" if rest.is_empty() && !around.fed => SignalOutcome::Over(0),
        name if DEAF.contains(&name) => program_hears(name, around),
        // Measured with npm 11: `npm start` runs `sh -c SCRIPT` and passes the signal on to that shell.
        "npm" if kinds("sh", around.image).contains(&Kind::Dash) => SignalOutcome::RunnerLoses(name.to_owned()),
        // A JVM ends its threads, runs its shutdown hooks, and says so.
        "java" if matches!(around.signal, "TERM" | "INT" | "HUP") && !rest.contains(&"-Xrs") => {
            SignalOutcome::Handles { code: 128_u8.saturating_add(shell::number_of(around.signal)) }
        }
        _ => SignalOutcome::Presumably,
    }
}

/// A program without a handler.
fn program_hears(name: &str, around: Circumstances<'_>) -> SignalOutcome {
    if around.first || HARMLESS.contains(&around.signal) {
        SignalOutcome::NoHandler(name.to_owned())
    } else {
        SignalOutcome::Dies
    }
}

/// Where the script of `sh -c SCRIPT` stands, however it is spelled.
fn script_of(words: &[&str]) -> Option<usize> {
    let is_flag = |word: &&&str| word.starts_with(['-', '+']) && !word.starts_with("--");
    let flags = words.iter().take_while(is_flag).count();
    let has = |letter: char| words[..flags].iter().any(|flag| flag.contains(letter));
    // `-o pipefail -c`: an option that takes a word hides the flags behind it.
    match has('c') {
        // `-c -- SCRIPT`
        true if words.get(flags) == Some(&"--") => (flags + 1 < words.len()).then_some(flags + 1),
        true => (flags < words.len()).then_some(flags),
        false if has('o') => Some(flags + 1 + script_of(words.get(flags + 1..)?)?),
        false => None,
    }
}

/// The script of a command that is a shell with one.
pub(super) fn script(command: &[String]) -> Option<&str> {
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let (program, rest) = words.split_first()?;
    let rest = if base(program) == "busybox" { rest.split_first()?.1 } else { rest };
    let shell = SHELLS.contains(&base(program)) || base(program) == "busybox";
    script_of(rest).filter(|_| shell).map(|at| rest[at])
}

/// The shells that may be meant by a name, the likeliest first.
fn kinds(name: &str, image: &str) -> Vec<Kind> {
    let image_is = |names: &[&str]| names.iter().any(|name| image.contains(name));
    match name {
        "bash" => vec![Kind::Bash],
        "ash" => vec![Kind::Busybox],
        "dash" => vec![Kind::Dash],
        "sh" if image_is(&["alpine", "busybox"]) => vec![Kind::Busybox],
        "sh" if image_is(&["debian", "ubuntu", "bookworm", "bullseye", "trixie"]) => vec![Kind::Dash],
        "sh" if image_is(&["fedora", "centos", "rockylinux", "almalinux", "amazonlinux", "redhat", "ubi8", "ubi9"]) => {
            vec![Kind::Bash]
        }
        // zsh and ksh are somewhere in between.
        _ => vec![Kind::Dash, Kind::Busybox, Kind::Bash],
    }
}

fn script_hears(name: &str, script: &str, arguments: &[&str], around: Circumstances<'_>) -> SignalOutcome {
    let Some(script) = shell::parse(script) else {
        return SignalOutcome::CannotTell("its script is not understood here");
    };
    let each: Vec<SignalOutcome> = kinds(name, around.image)
        .into_iter()
        .map(|kind| {
            let setting = Setting {
                kind,
                first: around.first,
                signal: around.signal,
                number: shell::number_of(around.signal),
                harmless: HARMLESS.contains(&around.signal),
                arguments,
            };
            let image = if kind == Kind::Busybox { "busybox" } else { around.image };
            in_one_shell(name, &script, setting, Circumstances { image, ..around })
        })
        .collect();
    let differs = each.iter().any(|hears| *hears != each[0]);
    let mut worst = each.into_iter().max_by_key(SignalOutcome::harm).unwrap_or(SignalOutcome::Presumably);
    if let SignalOutcome::ShellSwallows { all, .. } | SignalOutcome::ShellRefuses { all, .. } = &mut worst {
        *all = !differs;
    }
    worst
}

/// Every answer to every question that the script leaves open.
fn in_one_shell(name: &str, script: &shell::Script, setting: Setting<'_>, around: Circumstances<'_>) -> SignalOutcome {
    const MOST: usize = 64;
    let (mut open, mut ends): (Vec<Answers>, Vec<SignalOutcome>) = (vec![Answers::new()], Vec::new());
    while let Some(answers) = open.pop() {
        if ends.len() == MOST {
            return SignalOutcome::CannotTell("its script can go too many ways");
        }
        let (end, asked) = shell::predict(script, setting, answers.clone());
        for (index, question) in asked.iter().enumerate() {
            let mut other = answers.clone();
            other.extend(asked[..index].iter().cloned().map(|question| (question, true)));
            other.insert(question.clone(), false);
            open.push(other);
        }
        ends.push(heard(name, end, around));
    }
    // A way on which the script is soon over is not the one on which somebody has to end it.
    let over = |hears: &SignalOutcome| matches!(hears, SignalOutcome::Over(_));
    if !ends.iter().all(over) {
        ends.retain(|hears| !over(hears));
    }
    let harms: Vec<u32> = ends.iter().map(SignalOutcome::harm).collect();
    let (least, most) = (harms.iter().min().copied().unwrap_or(0), harms.iter().max().copied().unwrap_or(0));
    match (least < HARM, most >= HARM) {
        (true, true) => SignalOutcome::CannotTell("whether its script ends depends on what does not show in it"),
        _ => ends.into_iter().max_by_key(SignalOutcome::harm).unwrap_or(SignalOutcome::Over(0)),
    }
}

/// What the end of a shell comes to for its container.
fn heard(name: &str, end: End, around: Circumstances<'_>) -> SignalOutcome {
    match end {
        End::Became { ignoring: true, .. } => SignalOutcome::CannotTell(
            "its program begins with the signal ignored (`trap \'\'`); one that sets a handler of its own hears it, others \
             do not",
        ),
        End::Became { words, said, prepared, abandons, .. } => {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let hears = words_hear(&words, around);
            if abandons
                && matches!(
                    hears,
                    SignalOutcome::Presumably | SignalOutcome::Unknown(_) | SignalOutcome::Handles { .. }
                )
            {
                // Others run beside it, whom nobody asks.
                return SignalOutcome::Abandons { after: USUAL_EXIT, code: 0 };
            }
            match (matches!(hears, SignalOutcome::Presumably | SignalOutcome::Handles { .. }) && prepared, said) {
                (true, true) if hears != SignalOutcome::Presumably => hears,
                (true, true) => SignalOutcome::OnceReached,
                // Whoever does not say `exec` leaves it to the shell, and to nothing coming after it.
                (true, false) => SignalOutcome::ShellMaySwallow,
                (false, _) => hears,
            }
        }
        End::Exits { after, code, abandons: true, .. } => SignalOutcome::Abandons { after, code },
        End::Exits { after, code, abandons: false, trapped, held } => {
            SignalOutcome::Exits { after, code, trapped, held }
        }
        End::Dies { abandons: true } => SignalOutcome::DiesInFront,
        End::Dies { abandons: false } => SignalOutcome::Dies,
        End::Never(Never::Swallows(stands)) => SignalOutcome::ShellSwallows { all: true, stands },
        End::Never(Never::Refuses(command)) => SignalOutcome::ShellRefuses { command, all: true },
        End::Never(Never::NoHandler) => program_hears(name, around),
        End::Never(Never::Ignores) => SignalOutcome::Ignored,
        End::Never(Never::TrapGoesOn) => SignalOutcome::TrapGoesOn,
        End::Never(Never::TrapWaits(program)) => SignalOutcome::TrapWaits(program),
        End::Over(code) => SignalOutcome::Over(code),
        End::Unclear(why) => SignalOutcome::CannotTell(why),
    }
}

/// From here on a program is killed.
const HARM: u32 = 100;

impl SignalOutcome {
    /// How bad it is, to tell the worst of several.
    fn harm(&self) -> u32 {
        match self {
            Self::Over(_) => 0,
            Self::Presumably | Self::Unknown(_) | Self::Handles { .. } => 1,
            Self::OnceReached => 2,
            Self::ShellMaySwallow => 3,
            Self::Dies => 4,
            Self::Exits { after, code, .. } => {
                let seconds = u32::try_from(after.as_secs()).unwrap_or(u32::MAX).min(80);
                10 + seconds + u32::from(*code != 0)
            }
            Self::CannotTell(_) => HARM,
            Self::Abandons { .. } | Self::DiesInFront | Self::RunnerLoses(_) => HARM + 1,
            Self::NoHandler(_) | Self::Ignored | Self::TrapGoesOn | Self::TrapWaits(_) | Self::ShellRefuses { .. } => {
                HARM + 2
            }
            Self::ShellSwallows { .. } => HARM + 3,
            Self::NoProgram | Self::NotInImage(_) => HARM + 4,
        }
    }
}

pub(super) fn base(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// Whether a word is the name of a shell.
pub(super) fn is_shell(word: &str) -> bool {
    SHELLS.contains(&base(word))
}
