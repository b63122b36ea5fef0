//! What a shell runs: programs in its foreground, and children in the background that it can signal and wait for.

use std::time::Duration;

use super::builtins::has_prefix;
use super::run::{Flow, KILL, Rest, Run};
use super::{Command, Kind};
use crate::plan::behaviour::USUAL_EXIT;
use crate::plan::command::base;
use crate::plan::pause::{self, Pause};

/// How long something takes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lasts {
    /// No time.
    Brief,
    /// That long.
    For(Duration),
    /// Nobody knows.
    Unknown,
    /// It does not end.
    Ever,
}

impl Lasts {
    pub(super) fn length(self) -> Duration {
        match self {
            Self::For(length) => length,
            Self::Brief | Self::Unknown | Self::Ever => Duration::ZERO,
        }
    }
}

/// A program, as its words tell.
#[derive(Clone, Debug)]
pub(super) struct Program {
    /// Its words.
    pub(super) name: String,
    /// How long it runs unless somebody ends it.
    pub(super) lasts: Lasts,
    /// It handles no signal, and nobody misses it.
    pub(super) deaf: bool,
}

/// Somebody in the background.
#[derive(Clone, Debug)]
pub(super) struct Child {
    name: String,
    /// When it ends; nothing if it does not.
    ends: Option<Duration>,
    status: u8,
    /// It exits when it is asked to; others die of it.
    handles: bool,
    /// Somebody would miss it.
    precious: bool,
    /// It was killed in the middle of its work.
    lost: bool,
}

/// What takes no time, beside what the shell does itself.
const BRIEF: [&str; 39] = [
    "mkdir", "chmod", "chown", "touch", "rm", "ln", "date", "cp", "mv", "ls", "id", "hostname", "whoami", "uname",
    "grep", "sed", "awk", "head", "tr", "cut", "sort", "wc", "basename", "dirname", "seq", "sync", "logger", "stat",
    "mktemp", "env", "which", "dmesg", "install", "envsubst", "getent", "readlink", "expr", "mkfifo", "tee",
];
/// Programs that run others, after so many words of their own.
const AROUND: [(&str, usize); 6] =
    [("nohup", 0), ("nice", 0), ("setsid", 0), ("command", 0), ("exec", 0), ("busybox", 0)];
/// Process ids of children, as the script sees them, begin here.
const FIRST_PID: usize = 100;

impl Program {
    /// A program called with these words.
    pub(super) fn of(words: &[Option<String>], written: &str) -> Self {
        let known: Vec<String> = words.iter().map(|word| word.clone().unwrap_or_else(|| "$".to_owned())).collect();
        let (lasts, deaf) = Self::nature(&known);
        Self { name: written.to_owned(), lasts, deaf }
    }

    /// Whoever reads a file is done with it soon; whoever waits for somebody to type is not.
    pub(super) fn fed(mut self, redirected: bool) -> Self {
        if redirected && self.name.split(' ').next().map(base) == Some("cat") {
            self.lasts = Lasts::Brief;
        }
        self
    }

    fn nature(words: &[String]) -> (Lasts, bool) {
        let Some((first, rest)) = words.split_first() else { return (Lasts::Brief, true) };
        let name = base(first);
        if let Some((_, own)) = AROUND.iter().find(|(around, _)| *around == name && !rest.is_empty()) {
            return Self::nature(rest.get(*own..).unwrap_or_default());
        }
        match (pause::of_words(words), name) {
            (Some(Pause::For(length)), _) => (Lasts::For(length), true),
            (Some(Pause::Endless), _) => (Lasts::Ever, true),
            (Some(Pause::AtLeast(_)), _) => (Lasts::Unknown, true),
            (None, "cat" | "tail") if rest.iter().any(|word| !word.starts_with('-')) => (Lasts::Brief, true),
            (None, "cat" | "yes") => (Lasts::Ever, true),
            (None, "env") if !rest.is_empty() => {
                let own = rest.iter().take_while(|word| word.contains('=')).count();
                Self::nature(&rest[own..])
            }
            (None, name) if BRIEF.contains(&name) => (Lasts::Brief, true),
            (None, _) => (Lasts::Unknown, false),
        }
    }
}

impl Run<'_> {
    /// Runs a program in the foreground: the shell waits, and no trap is run before it is over.
    pub(super) fn foreground(&mut self, program: &Program) -> Flow {
        let asked_before = self.arrived.is_some();
        if program.lasts != Lasts::Brief {
            let flow = self.rest(Rest::For(program.lasts), Some(program));
            if flow != Flow::On {
                return flow;
            }
        }
        let asked_now = !asked_before && self.arrived.is_some();
        if asked_now {
            self.held_by = Some(program.name.clone());
        }
        self.status = 0;
        match program.lasts {
            Lasts::Ever => return self.stuck(Some((&program.name, !program.deaf))),
            Lasts::Unknown if asked_now => return self.stuck(Some((&program.name, !program.deaf))),
            Lasts::Brief | Lasts::For(_) | Lasts::Unknown => self.now += program.lasts.length(),
        }
        // What a trap calls may end what runs in the background, such as `nginx -s quit`.
        let may_ask = !program.deaf && !self.before_trap.is_empty() && self.leaves_programs();
        if may_ask && self.decide(&format!("{} ends what runs", program.name)) {
            for index in 0..self.children.len() {
                self.signal_child(index, "TERM", 15);
            }
        }
        Flow::On
    }

    /// Starts something in the background.
    pub(super) fn start(&mut self, pipeline: &[Command]) {
        let name = pipeline.iter().filter_map(Command::words).map(|words| words.join(" ")).collect::<Vec<_>>();
        let called = match pipeline {
            [Command::Simple { words, .. }] => words.first().and_then(|word| self.functions.get(&word.raw)).cloned(),
            _ => None,
        };
        let child = match (pipeline, called) {
            ([Command::Simple { words, redirected, .. }], None) => {
                let words = self.expanded_all(words).unwrap_or_default();
                let program = Program::of(&words, &name.join(" ")).fed(*redirected);
                let ends = match program.lasts {
                    Lasts::Brief | Lasts::For(_) => Some(self.now + program.lasts.length()),
                    Lasts::Unknown | Lasts::Ever => None,
                };
                Child {
                    name: program.name,
                    ends,
                    status: 0,
                    handles: !program.deaf,
                    precious: !program.deaf,
                    lost: false,
                }
            }
            (commands, called) => {
                // A shell of its own, which dies of the signal, and with it loses what it runs.
                let commands: Vec<&Command> =
                    called.as_deref().map_or_else(|| commands.iter().collect(), |it| vec![it]);
                let precious = commands.iter().any(|command| runs_programs(command));
                let ends = match commands
                    .iter()
                    .map(|command| pause::of(command))
                    .fold(Pause::For(Duration::ZERO), Pause::longer)
                {
                    Pause::For(length) if !precious => Some(self.now + length),
                    Pause::For(_) | Pause::AtLeast(_) | Pause::Endless => None,
                };
                Child { name: name.join(" | "), ends, status: 0, handles: false, precious, lost: false }
            }
        };
        self.children.push(child);
        let pid = (FIRST_PID + self.children.len() - 1).to_string();
        self.variables.insert("!".to_owned(), Some(pid));
    }

    fn is_alive(&self, child: &Child) -> bool {
        child.ends.is_none_or(|ends| ends > self.now)
    }

    /// Whether something runs in the background that would be missed, or was killed there.
    pub(super) fn leaves_programs(&self) -> bool {
        self.children.iter().any(|child| child.precious && (child.lost || self.is_alive(child)))
    }

    /// The process ids of everybody in the background.
    pub(super) fn pids(&self) -> String {
        let alive = self.children.iter().enumerate().filter(|(_, child)| self.is_alive(child));
        alive.map(|(index, _)| (FIRST_PID + index).to_string()).collect::<Vec<_>>().join(" ")
    }

    pub(super) fn own_pid(&self) -> &'static str {
        if self.setting.first { "1" } else { "50" }
    }

    /// The child that a process id or a job number names.
    fn child_of(&self, text: &str) -> Option<usize> {
        let index = match text.strip_prefix('%') {
            Some(_) if !self.setting.kind.knows_more_than_posix() => return None,
            Some("" | "%" | "+") => self.children.len().checked_sub(1)?,
            Some(number) => number.parse::<usize>().ok()?.checked_sub(1)?,
            None => text.parse::<usize>().ok()?.checked_sub(FIRST_PID)?,
        };
        (index < self.children.len()).then_some(index)
    }

    /// `wait`.
    pub(super) fn wait(&mut self, words: &[Option<String>]) -> Flow {
        let any = words.iter().flatten().any(|word| word == "-n");
        if any && !self.setting.kind.knows_more_than_posix() {
            self.status = 2;
            return Flow::Exit;
        }
        let named: Vec<&Option<String>> =
            words.iter().filter(|word| word.as_deref().is_none_or(|word| !word.starts_with('-'))).collect();
        let everybody = named.is_empty() || named.iter().any(|word| word.is_none());
        let whom: Vec<usize> = match everybody {
            true => (0..self.children.len()).collect(),
            false => named.iter().filter_map(|word| self.child_of(word.as_deref()?)).collect(),
        };
        let Some(last) = whom.last().copied() else {
            self.status = if everybody { 0 } else { 127 };
            return Flow::On;
        };
        let ends: Vec<_> = whom.iter().map(|index| self.children[*index].ends).collect();
        let until = match any {
            true => ends.into_iter().flatten().min(),
            // Nobody ends if somebody does not.
            false => ends.into_iter().try_fold(Duration::ZERO, |until, ends| Some(until.max(ends?))),
        };
        let length = until.map(|until| until.saturating_sub(self.now));
        if length != Some(Duration::ZERO) {
            let flow = self.rest(Rest::For(length.map_or(Lasts::Ever, Lasts::For)), None);
            if flow != Flow::On {
                return flow;
            }
            if self.is_interrupted() {
                self.status = 128_u8.saturating_add(self.setting.number);
                return Flow::On;
            }
        }
        match length {
            Some(length) => {
                self.now += length;
                self.status = if everybody && !any { 0 } else { self.children[last].status };
                Flow::On
            }
            None => {
                let endless = whom.iter().find(|index| self.children[**index].ends.is_none()).copied().unwrap_or(last);
                let (name, precious) = (self.children[endless].name.clone(), self.children[endless].precious);
                self.stuck(Some((&name, precious)))
            }
        }
    }

    /// `kill`, and what people use instead.
    pub(super) fn kill(&mut self, words: &[Option<String>], program: &str) -> Flow {
        let (mut signal, mut targets) = ("TERM".to_owned(), Vec::new());
        let (mut words, mut options) = (words.iter(), true);
        while let Some(word) = words.next() {
            match word.as_deref() {
                Some("--") if options => options = false,
                Some("-s" | "-n") if options => signal = words.next().cloned().flatten().unwrap_or_default(),
                Some(word) if options && targets.is_empty() && word.len() > 1 && word.starts_with('-') => {
                    signal = word[1..].to_owned();
                }
                _ => targets.push(word.clone()),
            }
        }
        if program == "kill" && has_prefix(&signal) && !self.setting.kind.knows_sig_names() {
            self.refused = self.refused.or(Some(KILL));
            self.status = 2;
            return Flow::On;
        }
        let signal = super::builtins::signal_name(&signal);
        let number = super::builtins::number_of(&signal);
        self.status = 0;
        for target in targets {
            let group = target.as_deref().and_then(|target| target.strip_prefix('-'));
            let everybody = match (program, target.as_deref()) {
                ("kill", Some("0" | "-1")) => true,
                ("kill", Some(_)) => group == Some(self.own_pid()),
                // Who is meant does not show: the programs, presumably.
                (_, None) => true,
                (_, Some(_)) => false,
            };
            let own = matches!(target.as_deref(), Some("0"))
                || (everybody && group.is_some_and(|group| group != "1" || self.setting.first));
            let own = own || target.as_deref() == Some(self.own_pid());
            let named = |child: &Child| {
                let wanted = target.as_deref().map(base).unwrap_or_default();
                child.name.split_whitespace().any(|word| base(word) == wanted)
            };
            let hit: Vec<usize> = match (program, target.as_deref()) {
                _ if everybody => (0..self.children.len()).collect(),
                ("kill", Some(target)) => self.child_of(group.unwrap_or(target)).into_iter().collect(),
                _ => (0..self.children.len()).filter(|index| named(&self.children[*index])).collect(),
            };
            let alive = hit.iter().any(|index| self.is_alive(&self.children[*index]));
            self.status = u8::from(!alive && !own);
            for index in hit {
                self.signal_child(index, &signal, number);
            }
            if own && program == "kill" && target.as_deref() != Some("-1") {
                let flow = self.signal_self(&signal, number);
                if flow != Flow::On {
                    return flow;
                }
            }
        }
        Flow::On
    }

    /// A shell that signals itself.
    fn signal_self(&mut self, signal: &str, number: u8) -> Flow {
        let Some(arrived) = self.arrived.filter(|_| self.inside == 0 && signal != "0") else { return Flow::On };
        let after = self.now.saturating_sub(arrived);
        match self.traps.get(signal) {
            // A trap that calls itself, until the shell breaks down.
            Some(super::run::Action::Run(_)) if signal == self.setting.signal => {
                self.end = Some(self.exits(after, 128 + 11));
                Flow::Stop
            }
            Some(_) => Flow::On,
            // The kernel keeps it from the first process.
            None if self.setting.first => Flow::On,
            None => {
                self.end = Some(self.exits(after, 128_u8.saturating_add(number)));
                Flow::Stop
            }
        }
    }

    fn signal_child(&mut self, index: usize, signal: &str, number: u8) {
        let now = self.now;
        let ends = matches!(signal, "TERM" | "INT" | "QUIT" | "HUP") || signal == self.setting.signal;
        let alive = self.is_alive(&self.children[index]);
        let child = &mut self.children[index];
        if !alive || signal == "0" {
            return;
        }
        if signal == "KILL" || (!child.handles && !matches!(signal, "CHLD" | "CONT" | "URG" | "WINCH")) {
            (child.ends, child.status, child.lost) = (Some(now), 128_u8.saturating_add(number), true);
        } else if child.handles && ends {
            let answered = now + USUAL_EXIT;
            child.ends = Some(child.ends.map_or(answered, |ends| ends.min(answered)));
        }
    }
}

/// Whether something in it is a program that would be missed.
fn runs_programs(command: &Command) -> bool {
    let any = |list: &super::List| list.iter().flat_map(|item| &item.pipeline).any(runs_programs);
    match command {
        Command::Simple { words, .. } => {
            let words: Vec<Option<String>> = words.iter().map(|word| Some(word.raw.clone())).collect();
            let builtin = words.first().and_then(Option::as_deref).is_none_or(super::builtins::is_builtin);
            !builtin && !Program::of(&words, "").deaf
        }
        Command::Subshell(list) | Command::Group(list) | Command::For { body: list, .. } => any(list),
        Command::If(parts, otherwise) => {
            parts.iter().any(|(condition, body)| any(condition) || any(body)) || otherwise.as_ref().is_some_and(any)
        }
        Command::Case(_, parts) => parts.iter().any(|(_, body)| any(body)),
        Command::Loop { condition, body, .. } => any(condition) || any(body),
        Command::Function { .. } => false,
    }
}

impl Kind {
    /// Whether a command substitution knows the children of the shell it stands in.
    pub(super) fn lists_jobs_in_substitutions(self) -> bool {
        self != Self::Dash
    }
}
