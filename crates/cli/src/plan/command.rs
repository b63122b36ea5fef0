//! What a container's command line tells about stop signals. It reads, it does not run; when in doubt it says so.
//!
//! What shells do with signals was measured with dash 0.5.12, bash 5.2 and busybox 1.35 as first processes. A shell runs
//! a trap only when the command in its foreground is over. If no trap is set, busybox becomes the last command of `-c`
//! by itself, and bash (5.1 and later) does if that command is plain: no redirection, nothing in the background, no
//! brackets around it. dash, the `sh` of Debian and Ubuntu, stays in front of it.

use std::time::Duration;

use super::pause::{self, Pause};
use super::shell::{self, Command, Item, List, Then};
use super::trap::{self, Handler};

/// What becomes of a stop signal that is sent to a container's first process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Hears {
    /// Nothing says otherwise.
    Presumably,
    /// What runs is written elsewhere, and nobody looked: in the image, in a script file, in words not understood.
    Unknown(&'static str),
    /// Nothing says otherwise once a script has come to its last command; until then its shell swallows the signal.
    OnceReached,
    /// A shell that stays in front of its program and keeps the signal to itself; `all` shells do, or only some.
    ShellSwallows { all: bool },
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
    /// A shell that runs its trap and exits, after at most so long.
    TrapExits { after: Duration, code: u8 },
    /// A shell that leaves at once; what it started is killed unasked.
    Abandons,
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
    /// The stop signal as a trap would name it: `TERM`.
    pub(super) signal: &'a str,
    /// The image, whose name may tell which shell it has.
    pub(super) image: &'a str,
}

const SHELLS: [&str; 6] = ["sh", "bash", "ash", "dash", "zsh", "ksh"];
/// Programs people keep containers alive with; none of them handles a signal.
const DEAF: [&str; 4] = ["sleep", "tail", "cat", "yes"];
/// Programs that become the one they are given, after so many words of their own.
const BECOMES: [(&str, usize); 3] = [("gosu", 1), ("su-exec", 1), ("exec", 0)];
/// First processes that pass signals on to their child.
const INITS: [&str; 3] = ["tini", "catatonit", "docker-init"];
/// What takes no time in a script.
pub(super) const BRIEF: [&str; 26] = [
    "cd", "echo", "printf", "set", "export", "umask", "ulimit", "mkdir", "chmod", "chown", "touch", "true", "false",
    ":", "[", "[[", "test", "unset", "shift", "rm", "ln", "date", "shopt", "local", "trap", "kill",
];
/// Signals that end nobody who has no handler for them.
const HARMLESS: [&str; 4] = ["CHLD", "CONT", "URG", "WINCH"];

/// Reads `command` and `args` of a container.
pub(super) fn hears(command: &[String], args: &[String], around: Circumstances<'_>) -> Hears {
    if command.is_empty() {
        return Hears::Unknown("what it runs is in its image, which is not looked into");
    }
    let words: Vec<&str> = command.iter().chain(args).map(String::as_str).collect();
    words_hear(&words, around)
}

fn words_hear(words: &[&str], around: Circumstances<'_>) -> Hears {
    let Some((program, rest)) = words.split_first() else { return Hears::Presumably };
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
            Hears::Presumably
        } else {
            words_hear(&rest[own..], Circumstances { first: false, ..around })
        };
    }
    if name == "busybox" && !rest.is_empty() {
        return words_hear(rest, Circumstances { image: "busybox", ..around });
    }
    if SHELLS.contains(&name) {
        return match script_of(rest) {
            Some(script) => match shell::parse(script) {
                Some(list) => Shell { name, around, list: &list }.hears(),
                None => Hears::Unknown("its script is not understood here"),
            },
            None if rest.iter().any(|word| !word.starts_with('-')) => {
                Hears::Unknown("its script is in a file, which is not looked into")
            }
            // A shell without a script waits for somebody to type, and ignores the signal as long as nobody does.
            None => program_hears(name, around),
        };
    }
    if name.ends_with(".sh") {
        return Hears::Unknown("its script is in a file, which is not looked into");
    }
    if DEAF.contains(&name) { program_hears(name, around) } else { Hears::Presumably }
}

/// A program without a handler.
fn program_hears(name: &str, around: Circumstances<'_>) -> Hears {
    if around.first || HARMLESS.contains(&around.signal) { Hears::NoHandler(name.to_owned()) } else { Hears::Dies }
}

/// The script of `sh -c SCRIPT`, however it is spelled.
fn script_of<'a>(words: &[&'a str]) -> Option<&'a str> {
    let is_flag = |word: &&&str| word.starts_with(['-', '+']) && !word.starts_with("--");
    let flags: Vec<&&str> = words.iter().take_while(is_flag).collect();
    // `-o pipefail -c`: an option that takes a word hides the flags behind it.
    match flags.iter().position(|flag| flag.contains('c')) {
        Some(_) => words.get(flags.len()).copied(),
        None if flags.iter().any(|flag| flag.ends_with('o')) => script_of(words.get(flags.len() + 1..)?),
        None => None,
    }
}

/// The script of a command that is a shell with one.
pub(super) fn script(command: &[String]) -> Option<&str> {
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let (program, rest) = words.split_first()?;
    let rest = if base(program) == "busybox" { rest.split_first()?.1 } else { rest };
    (SHELLS.contains(&base(program)) || base(program) == "busybox").then(|| script_of(rest)).flatten()
}

pub(super) fn base(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// Whether a word is the name of a shell.
pub(super) fn is_shell(word: &str) -> bool {
    SHELLS.contains(&base(word))
}

/// What a script does for as long as its container runs.
enum Steady<'a> {
    /// It has become that program.
    Became(&'a [String]),
    /// It waits for a program in the foreground, the last command of the script; a `plain` one stands by itself.
    Last { words: &'a [String], plain: bool },
    /// It waits for something that no shell becomes.
    Behind(String),
    /// It turns in a loop that waits for nobody longer than that.
    Turns(Duration),
    /// It sits in `wait`; whether another `wait` follows.
    Waits { again: bool },
    /// It is through at once, or waits for something that does not show.
    Unclear,
}

struct Shell<'a> {
    name: &'a str,
    around: Circumstances<'a>,
    list: &'a List,
}

impl Shell<'_> {
    fn hears(&self) -> Hears {
        let steady = self.steady(self.list);
        if let Steady::Became(words) = steady {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let brief = |item: &Item| item.pipeline.iter().all(takes_no_time);
            let at_once = self.list.iter().filter(|item| !self.becomes(item)).all(brief);
            let hears = words_hear(&words, self.around);
            return if hears == Hears::Presumably && !at_once { Hears::OnceReached } else { hears };
        }
        match trap::on(self.around.signal, self.list) {
            Some(handler) => self.with_trap(&steady, handler),
            // bash minds its own exit trap when a signal comes; the others do not.
            None if self.name == "bash" && trap::on("EXIT", self.list).is_some() => Hears::ShellMaySwallow,
            None => self.without_trap(&steady),
        }
    }

    fn without_trap(&self, steady: &Steady<'_>) -> Hears {
        let harmless = HARMLESS.contains(&self.around.signal);
        let behind = |all: bool| match (self.around.first || harmless, all) {
            (true, all) => Hears::ShellSwallows { all },
            (false, _) => Hears::DiesInFront,
        };
        match steady {
            Steady::Became(_) | Steady::Unclear => Hears::Presumably,
            Steady::Last { words, .. } if words.first().is_some_and(|word| DEAF.contains(&base(word))) => {
                program_hears(base(&words[0]), self.around)
            }
            Steady::Last { plain, .. } => match self.name {
                _ if self.has_busybox() => Hears::Presumably,
                "bash" if *plain && self.list.len() == 1 => Hears::Presumably,
                "bash" if !plain => behind(true),
                "bash" | "zsh" | "ksh" => Hears::ShellMaySwallow,
                _ => behind(false),
            },
            Steady::Turns(_) => program_hears(self.name, self.around),
            Steady::Behind(_) => behind(true),
            Steady::Waits { .. } if self.starts_programs() => behind(true),
            Steady::Waits { .. } => program_hears(self.name, self.around),
        }
    }

    fn with_trap(&self, steady: &Steady<'_>, handler: Handler) -> Hears {
        let ends = |after: Duration, code: u8| match self.starts_programs() {
            true => Hears::Abandons,
            false => Hears::TrapExits { after, code },
        };
        match (steady, handler) {
            (Steady::Became(_) | Steady::Unclear, _) => Hears::Presumably,
            (_, Handler::Ignore) => Hears::Ignored,
            (Steady::Last { words, .. }, handler) => match (pause::of_words(words), handler) {
                (Some(Pause::For(length)), Handler::Exit(code)) => ends(length, code),
                // The script ends with its last command, trap or no trap.
                (Some(Pause::For(length)), _) => ends(length, 0),
                (Some(_) | None, _) => Hears::TrapWaits(words.join(" ")),
            },
            (Steady::Behind(program), _) => Hears::TrapWaits(program.clone()),
            (Steady::Turns(longest), Handler::Exit(code)) => ends(*longest, code),
            (Steady::Turns(_), Handler::Nothing) => Hears::TrapGoesOn,
            (Steady::Waits { .. }, Handler::Exit(code)) => ends(Duration::ZERO, code),
            // `wait` ends with the trap, and the script with it.
            (Steady::Waits { again: false }, Handler::Nothing) => ends(Duration::ZERO, 143),
            (Steady::Waits { again: false }, Handler::Forward) => Hears::Abandons,
            (Steady::Turns(_) | Steady::Waits { .. }, _) => Hears::Presumably,
        }
    }

    /// Which command the script is in once its container is up: the first that does not end, or the last.
    fn steady<'a>(&self, list: &'a List) -> Steady<'a> {
        let alone = !list.iter().any(|item| item.then == Then::Background);
        for (index, item) in list.iter().enumerate() {
            let last = list[index + 1..].iter().all(|item| !runs_anything(item));
            if item.then == Then::Background || !runs_anything(item) {
                continue;
            }
            let [command] = item.pipeline.as_slice() else {
                if last {
                    return Steady::Behind(words_of(&item.pipeline));
                }
                continue;
            };
            match command {
                Command::Simple { words, .. } if self.becomes(item) => return Steady::Became(&words[1..]),
                Command::Simple { words, .. } if words.first().is_some_and(|word| word == "wait") => {
                    let again = list[index + 1..].iter().any(|item| words_of(&item.pipeline).starts_with("wait"));
                    return Steady::Waits { again };
                }
                Command::Simple { words, redirected, .. } => {
                    let endless = pause::of_words(words) == Some(Pause::Endless);
                    if endless || (last && !takes_no_time(command)) {
                        return Steady::Last { words, plain: last && alone && !redirected };
                    }
                }
                Command::Group(inner) => match self.steady(inner) {
                    Steady::Unclear => {}
                    Steady::Last { words, .. } if last => return Steady::Last { words, plain: false },
                    Steady::Last { .. } => {}
                    steady @ (Steady::Became(_) | Steady::Behind(_) | Steady::Turns(_) | Steady::Waits { .. }) => {
                        return steady;
                    }
                },
                Command::Loop { condition, body, .. } if last || pause::never_ends(command) => {
                    return turns(condition.iter().chain(body));
                }
                Command::Subshell(_) if last && !self.has_busybox() => return Steady::Behind("( ... )".to_owned()),
                Command::Choice(parts) if last => return self.whichever(parts),
                Command::For { .. } if last => return Steady::Unclear,
                Command::Loop { .. }
                | Command::Subshell(_)
                | Command::Choice(_)
                | Command::For { .. }
                | Command::Function { .. } => {}
            }
        }
        Steady::Unclear
    }

    /// Whichever part is run, the shell stays in front of its last command, unless one of them says `exec`.
    fn whichever<'a>(&self, parts: &'a [List]) -> Steady<'a> {
        let mut found = Steady::Unclear;
        for part in parts {
            match self.steady(part) {
                Steady::Last { words, .. } => found = Steady::Last { words, plain: false },
                Steady::Unclear => {}
                Steady::Became(_) | Steady::Behind(_) | Steady::Turns(_) | Steady::Waits { .. } => {
                    return Steady::Unclear;
                }
            }
        }
        found
    }

    /// `exec PROGRAM` in the shell itself. Without a program it only redirects.
    fn becomes(&self, item: &Item) -> bool {
        let [Command::Simple { words, .. }] = item.pipeline.as_slice() else { return false };
        item.then != Then::Background && words.len() > 1 && words[0] == "exec"
    }

    /// Programs in the background that somebody would miss.
    fn starts_programs(&self) -> bool {
        let deaf = |words: &[String]| words.first().is_none_or(|word| DEAF.contains(&base(word)));
        let missed = |command: &Command| !command.words().is_some_and(deaf);
        self.list.iter().any(|item| item.then == Then::Background && item.pipeline.iter().any(missed))
    }

    /// `ash` is busybox's own; of images, the names tell.
    fn has_busybox(&self) -> bool {
        self.name == "ash"
            || self.name == "sh" && ["alpine", "busybox"].iter().any(|name| self.around.image.contains(name))
    }
}

/// How long a loop waits at most for what it runs; what it waits for if that may be for ever.
fn turns<'a>(items: impl Iterator<Item = &'a Item>) -> Steady<'a> {
    let mut longest = Duration::ZERO;
    for item in items.filter(|item| item.then != Then::Background) {
        for command in &item.pipeline {
            match command.words().map(|words| (words, pause::of_words(words))) {
                Some((_, Some(Pause::For(length)))) => longest = longest.max(length),
                Some((words, None)) if takes_no_time(command) || words[0] == "wait" => {}
                Some((words, _)) => return Steady::Behind(words.join(" ")),
                None if pause::of(command) == Pause::For(Duration::ZERO) => {}
                None => return Steady::Unclear,
            }
        }
    }
    Steady::Turns(longest)
}

fn runs_anything(item: &Item) -> bool {
    let prepares =
        |words: &[String]| words.first().is_none_or(|word| word == "trap" || (word == "exec" && words.len() == 1));
    let nothing =
        |command: &Command| matches!(command, Command::Function { .. }) || command.words().is_some_and(prepares);
    !item.pipeline.iter().all(nothing)
}

/// Whether a command is over as soon as it has begun.
fn takes_no_time(command: &Command) -> bool {
    let brief = |words: &[String]| words.first().is_none_or(|word| BRIEF.contains(&base(word)));
    matches!(command, Command::Function { .. }) || command.words().is_some_and(brief)
}

fn words_of(pipeline: &[Command]) -> String {
    let words = pipeline.iter().filter_map(|command| Some(command.words()?.join(" ")));
    words.collect::<Vec<_>>().join(" | ")
}
