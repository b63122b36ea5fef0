//! Shell scripts as manifests hold them: what is written (`parse`), and what a shell does with it when a stop signal
//! comes (`run`). Nothing is run; whatever does not show is asked of nobody and answered with "cannot tell".

mod arithmetic;
mod builtins;
mod children;
mod expand;
mod kind;
mod parse;
mod run;
mod test;
mod tokens;

pub(super) use builtins::{number_of, signal_name};
pub(super) use kind::Kind;
pub(super) use parse::parse;
pub(super) use run::{Answers, End, Held, Never, Setting, Stands, predict};

/// A whole script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Script {
    /// Its commands.
    pub(super) list: List,
    /// How many line ends follow the last of them.
    newlines: usize,
}

/// Commands in a row.
pub(super) type List = Vec<Item>;

/// One pipeline of a list and how it is joined to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// More than one if they are joined by pipes.
    pub(super) pipeline: Vec<Command>,
    /// `!`.
    negated: bool,
    /// `time`.
    timed: bool,
    /// What follows it.
    pub(super) then: Then,
    /// It is the last of its line: a shell runs a line before it reads the next.
    ends_line: bool,
}

/// How a command is joined to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// `;`, or the end.
    Next,
    /// The end of a line: what was read so far is run before the rest is read.
    Line,
    /// `&&`.
    And,
    /// `||`.
    Or,
    /// `&`.
    Background,
}

/// One command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// A program, a builtin or a function, with its arguments; nothing but assignments leaves no words.
    Simple { assigns: Vec<(String, Word)>, words: Vec<Word>, redirected: bool },
    /// `( … )`.
    Subshell(List),
    /// `{ … }`.
    Group(List),
    /// `if`: conditions and what follows from each; the last without a condition is `else`.
    If(Vec<(List, List)>, Option<List>),
    /// `case`: patterns and what follows from each.
    Case(Word, Vec<(Vec<Word>, List)>),
    /// `while` or `until`.
    Loop { condition: List, until: bool, body: List },
    /// `for`, over those words.
    For { name: String, words: Vec<Word>, body: List },
    /// `name() …`; or `function name …`, which not every shell knows.
    Function { name: String, body: Box<Command>, keyword: bool },
}

/// One word before anything in it is replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    /// What it is made of.
    pieces: Vec<Piece>,
    /// As it is written, without quotes.
    pub(super) raw: String,
    /// Nothing of it is quoted, so it may be a keyword.
    plain: bool,
}

/// A part of a word; a `split` one that is replaced falls apart at its blanks.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// `$name`, `${name}`, `$!`.
    Variable {
        name: String,
        split: bool,
    },
    /// `$(…)`.
    Output {
        script: String,
        split: bool,
    },
    /// `$((…))`.
    Arithmetic(String),
    /// What is not understood here, such as `${name%.*}`; or names of files that are not known.
    Unclear,
}

impl Item {
    /// A command by itself.
    fn alone(command: Command) -> Self {
        Self { pipeline: vec![command], negated: false, timed: false, then: Then::Next, ends_line: false }
    }
}

impl Item {
    /// Nothing comes of it but the end of the script, which would come anyway.
    fn only_ends(&self) -> bool {
        let ends = |command: &Command| {
            command
                .words()
                .and_then(|words| words.first().cloned())
                .is_some_and(|word| matches!(word.as_str(), "exit" | "true" | ":"))
        };
        self.pipeline.iter().all(ends)
    }
}

impl Command {
    /// The words of a simple command, as they are written.
    pub(super) fn words(&self) -> Option<Vec<String>> {
        let Self::Simple { words, .. } = self else { return None };
        Some(words.iter().map(|word| word.raw.clone()).collect())
    }
}

#[cfg(test)]
mod tests;
