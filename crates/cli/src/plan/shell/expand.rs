//! Words with their variables and substitutions replaced, where their values show.

use std::collections::BTreeSet;

use super::run::{Flow, Run};
use super::{Command, List, Piece, Word, arithmetic};

/// What a script says in place of what does not show.
const STANDS_FOR_IT: &str = "_";

/// More words than this come of no substitution.
const MOST_WORDS: i64 = 3_000;

impl Run<'_> {
    /// All words, each in as many as it falls apart into; nothing for those that do not show.
    pub(super) fn expanded_all(&mut self, words: &[Word]) -> Result<Vec<Option<String>>, Flow> {
        let mut all = Vec::new();
        for word in words {
            self.expand_into(word, &mut all)?;
        }
        Ok(all)
    }

    /// A word as one, whatever it holds.
    pub(super) fn expanded(&mut self, word: &Word) -> Result<Option<String>, Flow> {
        let mut all = Vec::new();
        self.expand_into(word, &mut all)?;
        let known: Option<Vec<String>> = all.into_iter().collect();
        Ok(known.map(|words| words.join(" ")))
    }

    /// A word in which nothing is to be replaced.
    pub(super) fn fixed(&self, word: &Word) -> Option<String> {
        word.pieces
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => Some(text.as_str()),
                Piece::Variable { .. } | Piece::Output { .. } | Piece::Arithmetic(_) | Piece::Unclear => None,
            })
            .collect()
    }

    /// A word in which something stands for whatever does not show; nothing if that is all of it.
    pub(super) fn as_far_as_it_shows(&self, word: &Word) -> Option<String> {
        let shown = word.pieces.iter().map(|piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Variable { name, .. } => self.variable(name).unwrap_or_else(|| STANDS_FOR_IT.to_owned()),
            Piece::Output { .. } | Piece::Arithmetic(_) | Piece::Unclear => STANDS_FOR_IT.to_owned(),
        });
        let has_text = word.pieces.iter().any(|piece| matches!(piece, Piece::Text(_)));
        has_text.then(|| shown.collect())
    }

    fn expand_into(&mut self, word: &Word, all: &mut Vec<Option<String>>) -> Result<(), Flow> {
        if let [Piece::Variable { name, .. }] = word.pieces.as_slice()
            && matches!(name.as_str(), "@" | "*")
        {
            all.extend(self.arguments.iter().cloned());
            return Ok(());
        }
        let mut current: Option<String> = None;
        let mut shows = true;
        for piece in &word.pieces {
            let (value, split) = self.value(piece)?;
            let Some(value) = value else {
                (shows, current) = (false, Some(current.unwrap_or_default()));
                continue;
            };
            if !split {
                current = Some(current.unwrap_or_default() + &value);
                continue;
            }
            // What is replaced without quotes falls apart at its blanks.
            let mut parts = value.split_whitespace();
            if let Some(first) = parts.next() {
                current = Some(current.unwrap_or_default() + first);
            }
            for part in parts {
                all.push(current.replace(part.to_owned()));
            }
        }
        if let Some(last) = current {
            all.push(shows.then_some(last));
        }
        Ok(())
    }

    fn value(&mut self, piece: &Piece) -> Result<(Option<String>, bool), Flow> {
        Ok(match piece {
            Piece::Text(text) => (Some(text.clone()), false),
            Piece::Variable { name, split } => (self.variable(name), *split),
            Piece::Output { script, split } => (self.output(script)?, *split),
            Piece::Arithmetic(sum) => {
                let value = arithmetic::evaluate(sum, &|name| self.variable(name));
                (value.map(|value| value.to_string()), false)
            }
            Piece::Unclear => (None, false),
        })
    }

    fn variable(&self, name: &str) -> Option<String> {
        match name {
            "$" => Some(self.own_pid().to_owned()),
            "?" => Some(self.status.to_string()),
            "#" => Some(self.arguments.len().to_string()),
            "@" | "*" => self.arguments.iter().cloned().collect::<Option<Vec<_>>>().map(|words| words.join(" ")),
            "!" => self.variables.get("!").cloned().unwrap_or_else(|| Some(String::new())),
            _ => match name.parse::<usize>() {
                Ok(index) => match index.checked_sub(1) {
                    Some(index) => self.arguments.get(index).cloned().unwrap_or_else(|| Some(String::new())),
                    None => None,
                },
                Err(_) => self.variables.get(name).cloned().flatten(),
            },
        }
    }

    /// What a substitution prints, where that shows. The shell waits for it as for anything in its foreground.
    fn output(&mut self, script: &str) -> Result<Option<String>, Flow> {
        let Some(parsed) = super::parse(script) else {
            return Err(self.unclear("a substitution in its script is not understood here"));
        };
        if let [item] = parsed.list.as_slice()
            && let [Command::Simple { assigns, words, redirected: false }] = item.pipeline.as_slice()
            && assigns.is_empty()
        {
            let words = self.expanded_all(words)?;
            let known: Option<Vec<&str>> = words.iter().map(Option::as_deref).collect();
            match known.as_deref() {
                Some(["jobs", "-p"]) if !self.setting.kind.lists_jobs_in_substitutions() => {
                    return Ok(Some(String::new()));
                }
                Some(["jobs", "-p"]) => return Ok(Some(self.pids())),
                Some(["echo", text @ ..]) => return Ok(Some(text.join(" "))),
                Some(["seq", numbers @ ..]) => return Ok(sequence(numbers)),
                Some(_) | None => {}
            }
        }
        // Whatever its output is for comes after it.
        self.followed += 1;
        let flow = self.within(|run| run.list(&parsed.list, false));
        self.followed -= 1;
        match flow {
            Flow::On => Ok(None),
            flow @ (Flow::Break(_) | Flow::Continue(_) | Flow::Return | Flow::Exit | Flow::Stop) => Err(flow),
        }
    }
}

/// What `seq` prints.
fn sequence(numbers: &[&str]) -> Option<String> {
    let numbers: Option<Vec<i64>> = numbers.iter().map(|number| number.parse().ok()).collect();
    let (from, step, to) = match numbers?.as_slice() {
        [to] => (1, 1, *to),
        [from, to] => (*from, 1, *to),
        [from, step, to] if *step > 0 => (*from, *step, *to),
        _ => return None,
    };
    let count = (to.checked_sub(from)? / step).min(MOST_WORDS);
    Some((0..=count).map(|turn| (from + turn * step).to_string()).collect::<Vec<_>>().join(" "))
}

/// The variables that a script sets, also in its traps and functions: before that they are empty.
pub(super) fn names_set_in(list: &List, names: &mut BTreeSet<String>) {
    for command in list.iter().flat_map(|item| &item.pipeline) {
        match command {
            Command::Simple { assigns, words, .. } => {
                names.extend(assigns.iter().map(|(name, _)| name.clone()));
                names.extend(words.iter().filter_map(|word| word.assignment().map(|(name, _)| name)));
                let trap = words.first().is_some_and(|word| word.raw == "trap");
                for action in words.iter().skip(1).filter(|_| trap) {
                    if let Some(action) = super::parse(&action.raw) {
                        names_set_in(&action.list, names);
                    }
                }
            }
            Command::Subshell(list) | Command::Group(list) => names_set_in(list, names),
            Command::If(parts, otherwise) => {
                for (condition, body) in parts {
                    names_set_in(condition, names);
                    names_set_in(body, names);
                }
                otherwise.iter().for_each(|list| names_set_in(list, names));
            }
            Command::Case(_, parts) => parts.iter().for_each(|(_, body)| names_set_in(body, names)),
            Command::Loop { condition, body, .. } => {
                names_set_in(condition, names);
                names_set_in(body, names);
            }
            Command::For { name, body, .. } => {
                names.insert(name.clone());
                names_set_in(body, names);
            }
            Command::Function { body, .. } => {
                names_set_in(&vec![super::Item::alone(body.as_ref().clone())], names);
            }
        }
    }
}
