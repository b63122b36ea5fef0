//! A script as its shell runs it, in virtual time: what is in the foreground when the stop signal comes, which trap is
//! set then, what it does, and how the shell ends.
//!
//! Nobody knows when a pod is deleted. The signal is therefore made to come where the script stays for long: a first
//! run without it collects all places where the shell waits, one of them is chosen, and a second run has the signal
//! come there. Programs that are not known are taken to end at once with 0, except the one in whose time the signal
//! comes and those in the background, which go on until they are asked to end. A condition that cannot be evaluated is
//! answered by `Answers`, the same way each time until the signal has come; whoever calls tries all answers.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use super::children::{Child, Lasts, Program};
use super::{Command, Item, Kind, List, Script, Then};

/// More commands than this are not run: the script turns in a loop.
const MOST_STEPS: usize = 1_000;
/// Calls and brackets within each other.
const DEEPEST: u32 = 60;
/// A sleep as long as this is taken for what a script is about.
const LONG: Duration = Duration::from_secs(30);
/// Commands that take the names of signals.
pub(super) const TRAP: &str = "trap";
pub(super) const KILL: &str = "kill";

/// What conditions that do not show come to: by what they say, before the signal and after it.
pub(in crate::plan) type Answers = BTreeMap<CommandQuestion, bool>;
/// A condition, and whether the signal has come.
pub(in crate::plan) type CommandQuestion = (String, bool);

/// What a script runs in.
#[derive(Clone, Copy, Debug)]
pub(in crate::plan) struct Setting<'a> {
    /// By which shell.
    pub(in crate::plan) kind: Kind,
    /// The shell is the first process, which the kernel protects from signals it has no handler for.
    pub(in crate::plan) first: bool,
    /// The stop signal as a trap would name it: `TERM`.
    pub(in crate::plan) signal: &'a str,
    /// Its number.
    pub(in crate::plan) number: u8,
    /// It ends nobody who has no handler for it.
    pub(in crate::plan) harmless: bool,
    /// What follows the script on the command line: `$0`, `$1`, …
    pub(in crate::plan) arguments: &'a [&'a str],
}

/// How a shell ends once its stop signal has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::plan) enum End {
    /// It had become that program before; `said` by `exec`, whether programs ran before it, whether it starts out
    /// ignoring the signal, and whether others run beside it that nobody asks.
    Became { words: Vec<String>, said: bool, prepared: bool, ignoring: bool, abandons: bool },
    /// It exits so long after the signal; `abandons` programs that are then killed; `trapped` if a trap ran, and `held`
    /// by what it had to wait for before that.
    Exits { after: Duration, code: u8, abandons: bool, trapped: bool, held: Option<Held> },
    /// It dies of the signal.
    Dies { abandons: bool },
    /// It does not end.
    Never(Never),
    /// It was over before anybody could ask it to leave, with that code.
    Over(u8),
    /// It does not show.
    Unclear(&'static str),
}

/// What keeps a trap from being run: a command in the foreground, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::plan) struct Held {
    pub(in crate::plan) by: String,
    pub(in crate::plan) wait: Duration,
}

/// How a program stands in its script, and with it what would bring the signal to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::plan) enum Stands {
    /// Nothing is run after it.
    Last,
    /// Something is.
    Followed,
    /// In a pipeline.
    Piped,
    /// In the background.
    Behind,
    /// In a loop, which starts it again.
    Repeated,
}

/// Why a shell does not end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::plan) enum Never {
    /// It has no trap, and stands in front of a program.
    Swallows(Stands),
    /// It does not understand the name of the signal in that command of its script.
    Refuses(&'static str),
    /// It has no trap, and runs nothing that would be missed.
    NoHandler,
    /// It ignores the signal.
    Ignores,
    /// Its trap runs, then it goes on.
    TrapGoesOn,
    /// Its trap waits for that.
    TrapWaits(String),
}

/// How `script` ends, and which conditions were asked about that `answers` did not know; they were taken to hold.
pub(in crate::plan) fn predict(script: &Script, setting: Setting<'_>, answers: Answers) -> (End, Vec<CommandQuestion>) {
    let mut first = Run::new(script, setting, answers);
    first.whole(script);
    let Some(moment) = first.moment() else {
        let end = match first.end.take() {
            Some(end @ End::Unclear(_)) => end,
            Some(_) | None if first.reads => End::Unclear("how long its script reads does not show"),
            Some(_) | None => End::Over(first.status),
        };
        return (end, first.asked);
    };
    let mut second = Run::new(script, setting, std::mem::take(&mut first.answers));
    second.moment = Some(moment);
    second.whole(script);
    let end = second.end.take().unwrap_or(End::Unclear("its script does not show what it does"));
    (end, first.asked.into_iter().chain(second.asked).collect())
}

/// What happens after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// The next one.
    On,
    /// So many loops end.
    Break(u32),
    /// So many loops end but one, which turns again.
    Continue(u32),
    /// The function ends.
    Return,
    /// The shell, or the subshell, ends.
    Exit,
    /// There is nothing more to tell.
    Stop,
}

/// What is done on a signal.
#[derive(Clone, Debug)]
pub(super) enum Action {
    Ignore,
    Run(String),
}

/// A place where the shell waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// For something in its foreground, or in `wait`.
    For(Lasts),
    /// It does not wait, it turns.
    Turn,
}

/// A shell at work.
pub(super) struct Run<'a> {
    pub(super) setting: Setting<'a>,
    answers: Answers,
    asked: Vec<CommandQuestion>,
    /// Values of variables; nothing if they do not show.
    pub(super) variables: BTreeMap<String, Option<String>>,
    pub(super) functions: BTreeMap<String, Rc<Command>>,
    pub(super) arguments: Vec<Option<String>>,
    pub(super) traps: BTreeMap<String, Action>,
    /// Those of the shell while a subshell runs.
    traps_of_shell: BTreeMap<String, Action>,
    pub(super) children: Vec<Child>,
    pub(super) status: u8,
    pub(super) now: Duration,
    steps: usize,
    depth: u32,
    /// How many brackets around: what runs there is not the first process.
    pub(super) inside: u32,
    /// How many conditions around: what fails there ends nothing.
    pub(super) conditions: u32,
    pub(super) exits_on_failure: bool,
    rests: Vec<Rest>,
    /// At which of them the signal comes.
    moment: Option<usize>,
    pub(super) arrived: Option<Duration>,
    /// A trap is to be run.
    pending: bool,
    /// What was before each trap that is being run.
    pub(super) before_trap: Vec<u8>,
    pub(super) trapped: bool,
    /// The command in the foreground when a trap was asked for.
    pub(super) held_by: Option<String>,
    held: Option<Held>,
    /// The command of the script in which the stop signal has a name that the shell does not know.
    pub(super) refused: Option<&'static str>,
    /// How many commands around what runs have others behind them, are pipelines, are loops.
    pub(super) followed: u32,
    piped: u32,
    looping: u32,
    ran_programs: bool,
    /// It turned until nobody looked any more.
    turned: bool,
    /// It is about to exit.
    leaving: bool,
    /// It reads what somebody gives to it.
    pub(super) reads: bool,
    pub(super) end: Option<End>,
}

impl<'a> Run<'a> {
    fn new(script: &Script, setting: Setting<'a>, answers: Answers) -> Self {
        let mut names = BTreeSet::new();
        super::expand::names_set_in(&script.list, &mut names);
        Self {
            setting,
            answers,
            asked: Vec::new(),
            // What the script itself sets is empty before; everything else is the environment's.
            variables: names.into_iter().map(|name| (name, Some(String::new()))).collect(),
            functions: BTreeMap::new(),
            arguments: setting.arguments.iter().skip(1).map(|word| Some((*word).to_owned())).collect(),
            traps: BTreeMap::new(),
            traps_of_shell: BTreeMap::new(),
            children: Vec::new(),
            status: 0,
            now: Duration::ZERO,
            steps: 0,
            depth: 0,
            inside: 0,
            conditions: 0,
            exits_on_failure: false,
            rests: Vec::new(),
            moment: None,
            arrived: None,
            pending: false,
            before_trap: Vec::new(),
            trapped: false,
            held_by: None,
            held: None,
            refused: None,
            followed: 0,
            piped: 0,
            looping: 0,
            ran_programs: false,
            turned: false,
            leaving: false,
            reads: false,
            end: None,
        }
    }

    fn whole(&mut self, script: &Script) {
        let last = self.setting.kind.becomes_last_of(script);
        match self.list(&script.list, last) {
            Flow::Stop => {}
            Flow::On | Flow::Break(_) | Flow::Continue(_) | Flow::Return | Flow::Exit => self.leave(),
        }
    }

    /// The shell exits with its status.
    fn leave(&mut self) {
        if let Some(Action::Run(action)) = self.traps.remove("EXIT") {
            let code = self.status;
            self.traps.clear();
            self.leaving = true;
            let flow = self.text(&action);
            match flow {
                Flow::Stop => return,
                Flow::Exit => {}
                Flow::On | Flow::Break(_) | Flow::Continue(_) | Flow::Return => self.status = code,
            }
        }
        if let Some(arrived) = self.arrived {
            let after = self.now.saturating_sub(arrived);
            self.end = Some(self.exits(after, self.status));
        }
    }

    /// It exits, so long after the signal.
    pub(super) fn exits(&self, after: Duration, code: u8) -> End {
        let (abandons, trapped, held) = (self.leaves_programs(), self.trapped, self.held.clone());
        End::Exits { after, code, abandons, trapped, held }
    }

    /// Where a script that was run without a signal waits for long.
    fn moment(&self) -> Option<usize> {
        if matches!(self.end, Some(End::Unclear(_))) {
            return None;
        }
        let last = |wanted: &dyn Fn(&Rest) -> bool| self.rests.iter().rposition(wanted);
        if self.rests.last() == Some(&Rest::For(Lasts::Ever)) {
            return Some(self.rests.len() - 1);
        }
        let length = |rest: &Rest| match rest {
            Rest::For(Lasts::For(length)) => *length,
            Rest::For(Lasts::Brief | Lasts::Unknown | Lasts::Ever) | Rest::Turn => Duration::ZERO,
        };
        let unknown = |rest: &Rest| *rest == Rest::For(Lasts::Unknown);
        if self.turned {
            // Nobody calls a program that a loop with a sleep calls again and again a server.
            let half = self.rests.len() / 2;
            let longest = self.rests[half..].iter().map(length).max().unwrap_or_default();
            return match longest.is_zero() {
                true => last(&unknown).or_else(|| last(&|rest| *rest == Rest::Turn)),
                false => self.rests[half..].iter().position(|rest| length(rest) == longest).map(|at| at + half),
            };
        }
        let longest = self.rests.iter().map(length).max().unwrap_or_default();
        last(&|rest| unknown(rest) || length(rest) >= LONG)
            .or_else(|| self.rests.iter().position(|rest| !longest.is_zero() && length(rest) == longest))
    }

    /// Answers a condition that does not show.
    pub(super) fn decide(&mut self, what: &str) -> bool {
        let key = (what.to_owned(), self.arrived.is_some());
        if let Some(answer) = self.answers.get(&key) {
            return *answer;
        }
        self.asked.push(key.clone());
        self.answers.insert(key, true);
        true
    }

    /// It does not show.
    pub(super) fn unclear(&mut self, why: &'static str) -> Flow {
        self.end = Some(End::Unclear(why));
        Flow::Stop
    }

    /// Runs a text that is a script: of `eval`, of a trap.
    pub(super) fn text(&mut self, text: &str) -> Flow {
        match super::parse(text) {
            Some(script) => self.list(&script.list, false),
            None => self.unclear("a part of its script is not understood here"),
        }
    }

    /// Runs a list; with `last`, the shell may become what its last command runs.
    pub(super) fn list(&mut self, list: &List, last: bool) -> Flow {
        self.depth += 1;
        if self.depth > DEEPEST {
            return self.unclear("its script calls itself");
        }
        let mut run = true;
        for (index, item) in list.iter().enumerate() {
            if run {
                let followed = u32::from(!list[index + 1..].iter().all(Item::only_ends));
                self.followed += followed;
                let flow = self.item(item, last && index + 1 == list.len());
                self.followed -= followed;
                if flow != Flow::On {
                    self.depth -= 1;
                    return flow;
                }
            }
            run = match item.then {
                Then::And => self.status == 0,
                Then::Or => self.status != 0,
                Then::Next | Then::Line | Then::Background => true,
            };
        }
        self.depth -= 1;
        Flow::On
    }

    fn item(&mut self, item: &Item, last: bool) -> Flow {
        if item.then == Then::Background {
            self.start(&item.pipeline);
            self.status = 0;
            return Flow::On;
        }
        let condition = item.negated || matches!(item.then, Then::And | Then::Or);
        self.conditions += u32::from(condition);
        let mut flow = match item.pipeline.as_slice() {
            [command] => self.command(command, last && !item.negated && !item.timed),
            commands => {
                self.piped += 1;
                let flow = self.pipeline(commands);
                self.piped -= 1;
                flow
            }
        };
        self.conditions -= u32::from(condition);
        if flow == Flow::On {
            flow = self.run_trap();
        }
        if flow == Flow::On && item.negated {
            self.status = u8::from(self.status == 0);
        }
        flow
    }

    /// All at once, each in a shell of its own.
    fn pipeline(&mut self, commands: &[Command]) -> Flow {
        let (begin, mut end) = (self.now, self.now);
        for command in commands {
            self.now = begin;
            let flow = self.within(|run| run.command(command, false));
            if flow != Flow::On {
                return flow;
            }
            end = end.max(self.now);
        }
        self.now = end;
        Flow::On
    }

    /// In a shell of its own: what it sets is forgotten, its traps are its own, its end is not ours.
    pub(super) fn within(&mut self, body: impl FnOnce(&mut Self) -> Flow) -> Flow {
        let kept = (self.variables.clone(), self.traps.clone(), self.children.len());
        if self.inside == 0 {
            self.traps_of_shell = self.traps.clone();
        }
        self.inside += 1;
        self.traps.retain(|_, action| matches!(action, Action::Ignore));
        let flow = body(self);
        self.inside -= 1;
        (self.variables, self.traps) = (kept.0, kept.1);
        self.children.truncate(kept.2);
        if flow == Flow::Stop { Flow::Stop } else { Flow::On }
    }

    fn command(&mut self, command: &Command, last: bool) -> Flow {
        let inner = last && self.setting.kind.becomes_inner();
        match command {
            Command::Simple { assigns, words, redirected } => self.simple(assigns, words, *redirected, last),
            Command::Group(list) => self.list(list, inner),
            // A shell that is about to become the last command needs no second one for the brackets.
            Command::Subshell(list) if inner && !self.has_traps() => match self.list(list, true) {
                Flow::Stop => Flow::Stop,
                Flow::On | Flow::Break(_) | Flow::Continue(_) | Flow::Return | Flow::Exit => Flow::Exit,
            },
            Command::Subshell(list) => self.within(|run| run.list(list, false)),
            Command::If(parts, otherwise) => {
                for (condition, body) in parts {
                    match self.condition(condition) {
                        Ok(true) => return self.list(body, inner),
                        Ok(false) => {}
                        Err(flow) => return flow,
                    }
                }
                self.status = 0;
                otherwise.as_ref().map_or(Flow::On, |list| self.list(list, inner))
            }
            Command::Case(subject, parts) => self.case(subject, parts, inner),
            Command::Loop { condition, until, body } => self.repeated(|run| run.loops(condition, *until, body)),
            Command::For { name, words, body } => self.repeated(|run| run.turns(name, words, body)),
            Command::Function { keyword: true, .. } if !self.setting.kind.knows_more_than_posix() => {
                self.status = 2;
                Flow::Exit
            }
            Command::Function { name, body, .. } => {
                self.functions.insert(name.clone(), Rc::new(body.as_ref().clone()));
                self.status = 0;
                Flow::On
            }
        }
    }

    fn condition(&mut self, list: &List) -> Result<bool, Flow> {
        self.conditions += 1;
        self.followed += 1;
        let flow = self.list(list, false);
        self.followed -= 1;
        self.conditions -= 1;
        if flow == Flow::On { Ok(self.status == 0) } else { Err(flow) }
    }

    fn case(&mut self, subject: &super::Word, parts: &[(Vec<super::Word>, List)], last: bool) -> Flow {
        let value = match self.expanded(subject) {
            Ok(value) => value,
            Err(flow) => return flow,
        };
        for (patterns, body) in parts {
            for pattern in patterns {
                let fixed = self.fixed(pattern);
                let matches = match (&value, fixed) {
                    _ if pattern.raw == "*" => true,
                    (Some(value), Some(pattern)) => *value == pattern,
                    _ => self.decide(&format!("{} is {}", subject.raw, pattern.raw)),
                };
                if matches {
                    return self.list(body, last);
                }
            }
        }
        self.status = 0;
        Flow::On
    }

    fn repeated(&mut self, body: impl FnOnce(&mut Self) -> Flow) -> Flow {
        self.looping += 1;
        let flow = body(self);
        self.looping -= 1;
        flow
    }

    fn loops(&mut self, condition: &List, until: bool, body: &List) -> Flow {
        let mut status = 0;
        loop {
            if let Err(flow) = self.turn() {
                return flow;
            }
            match self.condition(condition) {
                Ok(holds) if holds == until => {
                    self.status = status;
                    return Flow::On;
                }
                Ok(_) => {}
                Err(flow) => match self.around(flow) {
                    Some(flow) => return flow,
                    None => continue,
                },
            }
            let flow = self.list(body, false);
            status = self.status;
            if let Some(flow) = self.around(flow) {
                return flow;
            }
        }
    }

    fn turns(&mut self, name: &str, words: &[super::Word], body: &List) -> Flow {
        let values = match self.expanded_all(words) {
            Ok(values) => values,
            Err(flow) => return flow,
        };
        // How often it turns does not show: as good as for ever.
        let endless = values.iter().any(Option::is_none);
        let mut values = values.into_iter();
        while let Some(value) = if endless { Some(None) } else { values.next() } {
            if let Err(flow) = self.turn() {
                return flow;
            }
            self.variables.insert(name.to_owned(), value);
            let flow = self.list(body, false);
            if let Some(flow) = self.around(flow) {
                return flow;
            }
            if endless && self.arrived.is_some() && self.decide(&format!("for {name} is over")) {
                break;
            }
        }
        Flow::On
    }

    /// What a loop makes of how its body ended; nothing if it turns again.
    fn around(&mut self, flow: Flow) -> Option<Flow> {
        match flow {
            Flow::On | Flow::Continue(1) => None,
            Flow::Break(1) => {
                self.status = 0;
                Some(Flow::On)
            }
            Flow::Break(more) => Some(Flow::Break(more - 1)),
            Flow::Continue(more) => Some(Flow::Continue(more - 1)),
            Flow::Return | Flow::Exit | Flow::Stop => Some(flow),
        }
    }

    /// A loop begins to turn.
    fn turn(&mut self) -> Result<(), Flow> {
        self.step()?;
        let mut flow = self.rest(Rest::Turn, None);
        if flow == Flow::On {
            flow = self.run_trap();
        }
        self.around(flow).map_or(Ok(()), Err)
    }

    /// Counts, so that nothing is run for ever.
    pub(super) fn step(&mut self) -> Result<(), Flow> {
        self.steps += 1;
        if self.steps < MOST_STEPS {
            return Ok(());
        }
        self.turned = true;
        if self.arrived.is_some() {
            self.stuck(None);
        }
        Err(Flow::Stop)
    }

    /// The shell waits here. If this is where the signal comes, it comes.
    pub(super) fn rest(&mut self, rest: Rest, for_what: Option<&Program>) -> Flow {
        // What is left to do at the end is not what a script is about.
        if self.leaving && self.arrived.is_none() {
            return Flow::On;
        }
        self.rests.push(rest);
        let precious = for_what.is_some_and(|program| !program.deaf);
        self.ran_programs |= precious;
        if self.moment != Some(self.rests.len() - 1) {
            return Flow::On;
        }
        self.arrived = Some(self.now);
        let abandons = precious || self.leaves_programs();
        match self.action(self.setting.signal) {
            Some(Action::Run(_)) => self.pending = true,
            Some(Action::Ignore) => {}
            None if self.setting.kind.minds_exit_trap() && self.action("EXIT").is_some() => {
                let code = 128_u8.saturating_add(self.setting.number);
                self.end = Some(End::Exits { after: Duration::ZERO, code, abandons, trapped: true, held: None });
                return Flow::Stop;
            }
            None if self.setting.first || self.setting.harmless => {}
            None => {
                self.end = Some(End::Dies { abandons });
                return Flow::Stop;
            }
        }
        Flow::On
    }

    /// Whether a trap cuts short what the shell waits for.
    pub(super) fn is_interrupted(&self) -> bool {
        self.pending && self.inside == 0
    }

    /// What the shell itself does on that signal, whatever a subshell does.
    fn action(&self, signal: &str) -> Option<&Action> {
        if self.inside == 0 { self.traps.get(signal) } else { self.traps_of_shell.get(signal) }
    }

    /// Whether a trap is set that keeps a shell from becoming its last command.
    pub(super) fn has_traps(&self) -> bool {
        self.traps.values().any(|action| matches!(action, Action::Run(_)))
    }

    /// Runs the trap that a signal asked for.
    pub(super) fn run_trap(&mut self) -> Flow {
        if !self.is_interrupted() {
            return Flow::On;
        }
        self.pending = false;
        let Some(Action::Run(action)) = self.traps.get(self.setting.signal).cloned() else { return Flow::On };
        self.trapped = true;
        if let (Some(by), Some(arrived)) = (self.held_by.take(), self.arrived) {
            self.held = Some(Held { by, wait: self.now.saturating_sub(arrived) });
        }
        self.before_trap.push(self.status);
        let flow = self.text(&action);
        let before = self.before_trap.pop().unwrap_or(0);
        match flow {
            Flow::On => self.status = before,
            Flow::Return if !self.setting.kind.return_ends_script() => {
                self.status = before;
                return Flow::On;
            }
            Flow::Return | Flow::Break(_) | Flow::Continue(_) | Flow::Exit | Flow::Stop => {}
        }
        flow
    }

    /// The shell waits for something that never ends, or turns for ever.
    pub(super) fn stuck(&mut self, on: Option<(&str, bool)>) -> Flow {
        if self.arrived.is_none() {
            return Flow::Stop;
        }
        let precious = on.is_some_and(|(_, precious)| precious) || self.leaves_programs();
        let why = match self.action(self.setting.signal) {
            // Whatever comes of it, this is where it went wrong.
            _ if self.refused.is_some_and(|command| self.trapped || command == TRAP) => {
                Never::Refuses(self.refused.unwrap_or(TRAP))
            }
            _ if self.pending => Never::TrapWaits(on.map_or_else(String::new, |(name, _)| name.to_owned())),
            _ if self.trapped && !self.before_trap.is_empty() => match on {
                Some((name, _)) => Never::TrapWaits(name.to_owned()),
                None => Never::TrapGoesOn,
            },
            _ if self.trapped => Never::TrapGoesOn,
            Some(Action::Ignore) => Never::Ignores,
            Some(Action::Run(_)) | None if precious || (on.is_none() && self.ran_programs) => {
                Never::Swallows(self.stands())
            }
            Some(Action::Run(_)) | None => Never::NoHandler,
        };
        self.end = Some(End::Never(why));
        Flow::Stop
    }

    /// How the program stands that the shell waits for.
    fn stands(&self) -> Stands {
        match () {
            () if self.leaves_programs() => Stands::Behind,
            () if self.piped > 0 => Stands::Piped,
            () if self.looping > 0 => Stands::Repeated,
            () if self.followed > 0 => Stands::Followed,
            () => Stands::Last,
        }
    }

    /// The shell has become a program.
    pub(super) fn became(&mut self, program: &Program, words: Vec<String>, said: bool) -> Flow {
        let prepared = self.rests.iter().any(|rest| matches!(rest, Rest::For(_)));
        if let Some(arrived) = self.arrived {
            // Called by a trap: it does what it is called for.
            self.now += program.lasts.length();
            self.end = Some(match program.lasts {
                Lasts::Ever => End::Never(Never::TrapWaits(program.name.clone())),
                Lasts::Brief | Lasts::For(_) | Lasts::Unknown => self.exits(self.now.saturating_sub(arrived), 0),
            });
            return Flow::Stop;
        }
        self.rests.push(Rest::For(program.lasts));
        if self.moment == Some(self.rests.len() - 1) {
            let ignoring = matches!(self.traps.get(self.setting.signal), Some(Action::Ignore));
            self.end = Some(End::Became { words, said, prepared, ignoring, abandons: self.leaves_programs() });
        }
        Flow::Stop
    }
}
