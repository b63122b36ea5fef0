//! Simple commands: what the shell does itself, functions, and programs.

use lifecycle::Signal;
use runtime::signals::signal_from_name;

use super::children::{Lasts, Program};
use super::run::{Action, Flow, Rest, Run, TRAP};
use super::{Command, Word};

/// What the shell does itself without anybody noticing, and what succeeds at once.
const QUIET: [&str; 25] = [
    "cd", "echo", "printf", "umask", "ulimit", "true", ":", "shift", "shopt", "hash", "pwd", "type", "alias",
    "unalias", "times", "jobs", "disown", "getopts", "bg", "history", "enable", "complete", "let", "pushd", "popd",
];
/// What else the shell does itself.
const OTHERS: [&str; 27] = [
    "false", "[", "test", "[[", "set", "export", "readonly", "local", "declare", "typeset", "unset", "trap", "kill",
    "wait", "exit", "return", "break", "continue", "exec", "eval", "command", "builtin", "read", ".", "source", "fg",
    "suspend",
];
/// Whether a shell does that itself.
pub(super) fn is_builtin(name: &str) -> bool {
    QUIET.contains(&name) || OTHERS.contains(&name)
}

/// `TERM`, however it is written; a name that no signal has stays as it is.
pub(in crate::plan) fn signal_name(text: &str) -> String {
    let upper = text.to_ascii_uppercase();
    let name = signal_from_name(text).map_or_else(|| upper.clone(), |number| Signal(number).to_string());
    name.strip_prefix("SIG").unwrap_or(&name).to_owned()
}

/// 15, of `TERM`.
pub(in crate::plan) fn number_of(name: &str) -> u8 {
    signal_from_name(name).unwrap_or(0)
}

/// `SIGTERM` rather than `TERM`.
pub(super) fn has_prefix(signal: &str) -> bool {
    signal.to_ascii_uppercase().starts_with("SIG")
}

impl Run<'_> {
    /// One simple command; with `last`, the shell may become what it runs.
    pub(super) fn simple(&mut self, assigns: &[(String, Word)], words: &[Word], redirected: bool, last: bool) -> Flow {
        if let Err(flow) = self.step() {
            return flow;
        }
        let written = words.iter().map(|word| word.raw.as_str()).collect::<Vec<_>>().join(" ");
        let action = words.get(1).filter(|_| written.starts_with("trap "));
        let mut words = match self.expanded_all(words) {
            Ok(words) => words,
            Err(flow) => return flow,
        };
        // Of a trap it matters what it does in the end, not every word that it says.
        if let (Some(action), Some(unknown @ None)) = (action, words.get_mut(1)) {
            *unknown = self.as_far_as_it_shows(action);
        }
        for (name, value) in assigns {
            match self.expanded(value) {
                Ok(value) if words.is_empty() => drop(self.variables.insert(name.clone(), value)),
                Ok(_) => {}
                Err(flow) => return flow,
            }
        }
        if words.is_empty() {
            self.status = 0;
            return Flow::On;
        }
        let flow = self.call(&words, &written, redirected, last);
        let flow = if flow == Flow::On { self.run_trap() } else { flow };
        if flow == Flow::On && self.exits_on_failure && self.conditions == 0 && self.status != 0 {
            return Flow::Exit;
        }
        flow
    }

    fn call(&mut self, words: &[Option<String>], written: &str, redirected: bool, last: bool) -> Flow {
        let (name, rest) = (words[0].as_deref().unwrap_or_default(), &words[1..]);
        if let Some(body) = self.functions.get(name).cloned() {
            return self.function(&body, rest);
        }
        match name {
            "false" => self.status = 1,
            "exit" | "return" => {
                let before = self.before_trap.last().copied().filter(|_| self.setting.kind.exit_looks_before_trap());
                let code =
                    rest.first().map(|code| code.as_deref().and_then(|code| code.parse::<i64>().ok()).unwrap_or(0));
                let code = code.map(|code| u8::try_from(code.rem_euclid(256)).unwrap_or(0));
                self.status = code.or(before).unwrap_or(self.status);
                return if name == "exit" { Flow::Exit } else { Flow::Return };
            }
            "break" | "continue" => {
                let loops = rest.first().and_then(|count| count.as_deref()?.parse().ok()).unwrap_or(1).max(1);
                return if name == "break" { Flow::Break(loops) } else { Flow::Continue(loops) };
            }
            "[" | "test" | "[[" => return self.test(name, rest, written),
            "set" => return self.set(rest),
            "export" | "readonly" | "local" | "declare" | "typeset" | "unset" => {
                for word in rest.iter().flatten() {
                    let (name, value) =
                        word.split_once('=').map_or((word.as_str(), None), |(name, value)| (name, Some(value)));
                    if value.is_some() || matches!(words[0].as_deref(), Some("unset")) {
                        self.variables.insert(name.to_owned(), Some(value.unwrap_or_default().to_owned()));
                    }
                }
                self.status = 0;
            }
            "trap" => self.trap(rest),
            "kill" => return self.kill(rest, "kill"),
            "pkill" | "killall" => return self.kill(rest, name),
            "wait" => return self.wait(rest),
            "exec" => return self.exec(rest, written),
            "eval" => {
                let Some(text) = rest.iter().cloned().collect::<Option<Vec<String>>>() else {
                    return self.unclear("what its script runs with `eval` does not show");
                };
                return self.text(&text.join(" "));
            }
            "command" | "builtin"
                if rest.first().and_then(Option::as_deref).is_some_and(|word| word.starts_with('-')) =>
            {
                self.status = 0;
            }
            "command" | "builtin" if !rest.is_empty() => {
                let written = written.split_once(' ').map_or(written, |(_, rest)| rest);
                return self.call(rest, written, redirected, last);
            }
            // Nobody types anything into a container, as a rule.
            "read" if !redirected => (self.status, self.reads) = (1, self.reads || self.conditions > 0),
            "read" | "fg" | "suspend" => return self.unclear("what its script waits for does not show"),
            "source" if !self.setting.kind.knows_more_than_posix() => self.status = 127,
            "." | "source" => {
                // It may hold anything; nothing, as a rule, that takes long.
                let before = self.arrived.is_some();
                let flow = self.rest(Rest::For(Lasts::Unknown), None);
                if flow != Flow::On {
                    return flow;
                }
                if !before && self.arrived.is_some() {
                    return self.unclear("its script goes on in a file, which is not looked into");
                }
                self.status = 0;
            }
            name if QUIET.contains(&name) => self.status = 0,
            _ => {
                let program = Program::of(words, written).fed(redirected);
                if last && self.inside == 0 && !self.has_traps() {
                    return self.became(&program, known(words), false);
                }
                return self.foreground(&program);
            }
        }
        Flow::On
    }

    fn function(&mut self, body: &Command, arguments: &[Option<String>]) -> Flow {
        let outer = std::mem::replace(&mut self.arguments, arguments.to_vec());
        let flow = self.list(&vec![super::Item::alone(body.clone())], false);
        self.arguments = outer;
        if flow == Flow::Return { Flow::On } else { flow }
    }

    fn test(&mut self, name: &str, words: &[Option<String>], written: &str) -> Flow {
        if name == "[[" && !self.setting.kind.knows_more_than_posix() {
            self.status = 127;
            return Flow::On;
        }
        let words = match words {
            [inner @ .., _] if name != "test" => inner,
            words => words,
        };
        let holds = super::test::holds(words).unwrap_or_else(|| self.decide(written));
        self.status = u8::from(!holds);
        Flow::On
    }

    fn set(&mut self, words: &[Option<String>]) -> Flow {
        self.status = 0;
        for (index, word) in words.iter().enumerate() {
            match word.as_deref() {
                Some("--") => {
                    self.arguments = words[index + 1..].to_vec();
                    break;
                }
                Some("pipefail") if !self.setting.kind.knows_more_than_posix() => {
                    self.status = 2;
                    return Flow::Exit;
                }
                Some(word) if word.starts_with('-') && word.contains('e') => self.exits_on_failure = true,
                Some(word) if word.starts_with('+') && word.contains('e') => self.exits_on_failure = false,
                Some("errexit") => self.exits_on_failure = true,
                Some(_) | None => {}
            }
        }
        Flow::On
    }

    fn trap(&mut self, words: &[Option<String>]) {
        let words = match words {
            [first, rest @ ..] if first.as_deref() == Some("--") => rest,
            words => words,
        };
        self.status = 0;
        let (action, signals) = match words {
            [] => return,
            [signal] => (Some("-"), std::slice::from_ref(signal)),
            [action, signals @ ..] => match action.as_deref() {
                Some(number) if number.parse::<u8>().is_ok() => (Some("-"), words),
                action => (action, signals),
            },
        };
        for (index, signal) in signals.iter().enumerate() {
            let Some(signal) = signal.as_deref() else { continue };
            let name = if signal == "0" { "EXIT".to_owned() } else { signal_name(signal) };
            if has_prefix(signal) && !self.setting.kind.knows_sig_names() {
                // Neither this one nor those behind it are set.
                let meant = |signal: &str| signal_name(signal) == self.setting.signal;
                let ours = signals[index..].iter().flatten().any(|signal| meant(signal));
                self.refused = self.refused.or(ours.then_some(TRAP));
                self.status = 1;
                return;
            }
            match action {
                Some("-") => drop(self.traps.remove(&name)),
                Some("") => drop(self.traps.insert(name, Action::Ignore)),
                // What does not show is run and does nothing that shows.
                action => drop(self.traps.insert(name, Action::Run(action.unwrap_or(":").to_owned()))),
            }
        }
    }

    /// `exec`: without words it only redirects.
    fn exec(&mut self, words: &[Option<String>], written: &str) -> Flow {
        let words = match words.first().and_then(Option::as_deref) {
            Some(option) if option.starts_with('-') => {
                if !self.setting.kind.knows_more_than_posix() {
                    self.status = 127;
                    return Flow::Exit;
                }
                words.get(if option == "-a" { 2 } else { 1 }..).unwrap_or_default()
            }
            Some(_) | None => words,
        };
        if words.is_empty() {
            self.status = 0;
            return Flow::On;
        }
        let written = written.split_once(' ').map_or(written, |(_, rest)| rest);
        let program = Program::of(words, written);
        if self.inside == 0 {
            return self.became(&program, known(words), true);
        }
        match self.foreground(&program) {
            Flow::On => Flow::Exit,
            flow @ (Flow::Break(_) | Flow::Continue(_) | Flow::Return | Flow::Exit | Flow::Stop) => flow,
        }
    }
}

/// Words for whoever reads the program itself; what does not show stays a `$`.
fn known(words: &[Option<String>]) -> Vec<String> {
    words.iter().map(|word| word.clone().unwrap_or_else(|| "$".to_owned())).collect()
}
