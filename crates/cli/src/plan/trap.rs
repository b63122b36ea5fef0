//! What a script's traps do when their signal comes.

use super::command::{BRIEF, base};
use super::shell::{self, Command, List};

/// What a trap does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handler {
    /// The signal is ignored.
    Ignore,
    /// The shell exits with that code.
    Exit(u8),
    /// It signals somebody else.
    Forward,
    /// Nothing that ends anything.
    Nothing,
    /// Something else, which may end what is going on.
    Something,
}

/// What the script does on that signal; nothing if it sets no trap for it.
pub(super) fn on(signal: &str, script: &List) -> Option<Handler> {
    let mut found = None;
    each(script, &mut |words, _| {
        let [trap, action, signals @ ..] = words else { return };
        let action = action.as_str();
        if trap == "trap" && signals.iter().any(|named| is(named, signal)) {
            found = (action != "-").then(|| handler(action, script));
        }
    });
    found
}

fn handler(action: &str, script: &List) -> Handler {
    if action.is_empty() {
        return Handler::Ignore;
    }
    let Some(list) = shell::parse(action) else { return Handler::Something };
    let mut body = list;
    // Functions of the script that it calls belong to it.
    let mut called = Vec::new();
    each(&body, &mut |words, _| called.extend(words.first().and_then(|name| function(name, script))));
    body.extend(called.into_iter().flatten());
    let (mut exits, mut forwards, mut waits, mut other, mut sets) = (None, false, false, false, false);
    each(&body, &mut |words, assigns| {
        let used = |assign: &String| assign.split_once('=').is_some_and(|(name, _)| mentions(script, name));
        sets |= assigns.iter().any(used);
        match words.first().map(|word| base(word)) {
            Some("exit") => exits = Some(words.get(1).and_then(|code| code.parse().ok()).unwrap_or(0)),
            Some("kill" | "pkill" | "killall") => forwards = true,
            Some("wait") => waits = true,
            Some("sleep" | "logger" | "sync") | None => {}
            Some(name) if BRIEF.contains(&name) || function(name, script).is_some() => {}
            Some(_) => other = true,
        }
    });
    match exits {
        // Whoever signals its programs before it exits has thought of them, if it also waits.
        Some(_) if forwards && waits => Handler::Something,
        Some(_) if forwards => Handler::Forward,
        Some(code) => Handler::Exit(code),
        None if other || sets || (forwards && waits) => Handler::Something,
        None if forwards => Handler::Forward,
        None => Handler::Nothing,
    }
}

/// `TERM`, `SIGTERM` and `15` are one.
fn is(named: &str, signal: &str) -> bool {
    const NUMBERS: [(&str, &str); 7] =
        [("0", "EXIT"), ("1", "HUP"), ("2", "INT"), ("3", "QUIT"), ("10", "USR1"), ("12", "USR2"), ("15", "TERM")];
    let upper = named.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    name == signal || NUMBERS.contains(&(name, signal))
}

fn function(name: &str, script: &List) -> Option<List> {
    script.iter().flat_map(|item| &item.pipeline).find_map(|command| {
        let Command::Function { name: own, body } = command else { return None };
        let whole = || vec![shell::Item { pipeline: vec![body.as_ref().clone()], then: shell::Then::Next }];
        (own == name).then(whole)
    })
}

fn mentions(script: &List, variable: &str) -> bool {
    let mut found = false;
    each(script, &mut |words, _| {
        // The trap itself does not count, only whoever looks at what it set.
        let looks = |word: &String| word.contains(&format!("${variable}")) || word.contains(&format!("${{{variable}"));
        found |= words.first().is_none_or(|word| word != "trap") && words.iter().any(looks);
    });
    found
}

/// Every simple command of a script, wherever it is, but not those of functions.
fn each(list: &List, tell: &mut dyn FnMut(&[String], &[String])) {
    for command in list.iter().flat_map(|item| &item.pipeline) {
        match command {
            Command::Simple { assigns, words, .. } => tell(words, assigns),
            Command::Group(list) | Command::Subshell(list) | Command::For { body: list, .. } => each(list, tell),
            Command::Choice(parts) => parts.iter().for_each(|part| each(part, tell)),
            Command::Loop { condition, body, .. } => {
                each(condition, tell);
                each(body, tell);
            }
            Command::Function { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trap_is_told_by_what_it_does() {
        for (script, expected) in [
            ("trap 'exit 0' TERM", Some(Handler::Exit(0))),
            ("trap 'echo bye; exit 3' INT SIGTERM", Some(Handler::Exit(3))),
            ("trap \"exit\" 15", Some(Handler::Exit(0))),
            ("trap 'echo not yet' TERM", Some(Handler::Nothing)),
            ("trap : TERM", Some(Handler::Nothing)),
            ("trap '' TERM", Some(Handler::Ignore)),
            ("trap - TERM", None),
            ("trap 'exit 0' TERM; trap - TERM", None),
            ("trap 'exit 0' INT HUP", None),
            ("trap 'exit 0' EXIT", None),
            ("trap 'kill $pid' TERM", Some(Handler::Forward)),
            ("trap 'kill $pid; wait $pid' TERM", Some(Handler::Something)),
            ("trap 'kill $pid; exit' TERM", Some(Handler::Forward)),
            ("trap 'nginx -s quit' TERM", Some(Handler::Something)),
            ("stop() { echo x; exit 2; }; trap stop TERM", Some(Handler::Exit(2))),
            ("stop() { echo x; }; trap stop TERM", Some(Handler::Nothing)),
            ("trap 'go=' TERM; go=1; while [ $go ]; do sleep 1; done", Some(Handler::Something)),
            ("trap 'go=' TERM; go=1; while :; do sleep 1; done", Some(Handler::Nothing)),
            ("server", None),
        ] {
            assert_eq!(on("TERM", &shell::parse(script).expect(script)), expected, "{script}");
        }
    }
}
