//! What a command line in a manifest tells about signals and time. It reads, it does not run; when in doubt it says so.

use std::time::Duration;

/// What becomes of a stop signal that is sent to a command as the first process of its container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Hears {
    /// Nothing in the manifest says otherwise.
    Presumably,
    /// A shell that stays around with its program as a child: the signal reaches the shell and goes no further.
    NotBehindShell,
    /// A shell with one simple command: most become that command, old ones stay around.
    PerhapsBehindShell,
    /// A program that sets no handler, which the kernel protects from signals while it is first.
    NoHandler(&'static str),
}

const SHELLS: [&str; 7] = ["sh", "bash", "ash", "dash", "zsh", "ksh", "busybox"];
/// Programs people keep containers alive with; none of them handles a signal.
const DEAF: [&str; 4] = ["sleep", "tail", "cat", "yes"];

/// Reads `command` and `args` of a container.
pub(super) fn hears(command: &[String], args: &[String]) -> Hears {
    // Without a command, the image decides what runs, and the image is not here.
    if command.is_empty() {
        return Hears::Presumably;
    }
    let words: Vec<&str> = command.iter().chain(args).map(String::as_str).collect();
    match script(&words) {
        Some(script) => script_hears(script),
        None => deaf(words[0]).map_or(Hears::Presumably, Hears::NoHandler),
    }
}

/// The script of `sh -c SCRIPT`, however it is spelled.
fn script<'a>(words: &[&'a str]) -> Option<&'a str> {
    let (first, rest) = words.split_first()?;
    if !SHELLS.contains(&base(first)) {
        return None;
    }
    let flag = rest.iter().position(|word| word.starts_with('-') && !word.starts_with("--") && word.ends_with('c'))?;
    rest.get(flag + 1).copied()
}

fn script_hears(script: &str) -> Hears {
    let commands: Vec<&str> =
        script.split([';', '\n', '|', '&']).map(str::trim).filter(|command| !command.is_empty()).collect();
    let Some(last) = commands.last() else { return Hears::Presumably };
    let starts_with = |command: &str, word: &str| command.split_whitespace().next() == Some(word);
    if starts_with(last, "exec") || commands.iter().any(|command| starts_with(command, "trap")) {
        return Hears::Presumably;
    }
    match commands.as_slice() {
        [only] => {
            deaf(only.split_whitespace().next().unwrap_or_default()).map_or(Hears::PerhapsBehindShell, Hears::NoHandler)
        }
        _ => Hears::NotBehindShell,
    }
}

fn deaf(program: &str) -> Option<&'static str> {
    DEAF.into_iter().find(|name| *name == base(program))
}

fn base(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// How long a hook's command sleeps: all its `sleep N` together, or nothing if there is none.
pub(super) fn sleeps(command: &[String]) -> Option<Duration> {
    let text = command.join(" ");
    let words: Vec<&str> = text.split(|c: char| c.is_whitespace() || ";|&()'\"".contains(c)).collect();
    let lengths: Vec<Duration> =
        words.windows(2).filter(|pair| base(pair[0]) == "sleep").filter_map(|pair| length(pair[1])).collect();
    (!lengths.is_empty()).then(|| lengths.iter().sum())
}

/// Whether a hook does nothing but sleep.
pub(super) fn only_sleeps(command: &[String]) -> bool {
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let script = script(&words).map_or_else(|| command.join(" "), str::to_owned);
    let mut words = script.split_whitespace().skip_while(|word| *word == "exec");
    let is_sleep = words.next().is_some_and(|word| base(word) == "sleep");
    is_sleep && words.next().is_some_and(|word| length(word).is_some()) && words.next().is_none()
}

/// `5`, `0.5`, `2m`: as `sleep` and our own options write it. `300ms` is understood too.
pub(super) fn length(text: &str) -> Option<Duration> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let millis_each = match unit {
        "ms" => 1.0,
        "" | "s" => 1_000.0,
        "m" => 60_000.0,
        "h" => 3_600_000.0,
        _ => return None,
    };
    let number: f64 = number.parse().ok()?;
    // A day is more than any grace; whatever is longer comes to the same.
    Some(Duration::from_secs_f64((number * millis_each / 1_000.0).min(86_400.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn a_shell_that_stays_around_keeps_the_signal_to_itself() {
        for (command, hears_it) in [
            (&["sh", "-c", "migrate && server"][..], Hears::NotBehindShell),
            (&["/bin/bash", "-ec", "echo hi\nserver\n"], Hears::NotBehindShell),
            (&["sh", "-c", "migrate && exec server"], Hears::Presumably),
            (&["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1; done"], Hears::Presumably),
            (&["sh", "-c", "server --flag"], Hears::PerhapsBehindShell),
            (&["sh", "-c", "sleep 3600"], Hears::NoHandler("sleep")),
            (&["sleep", "infinity"], Hears::NoHandler("sleep")),
            (&["/usr/bin/tail", "-f", "/dev/null"], Hears::NoHandler("tail")),
            (&["server", "-c", "config; yes"], Hears::Presumably),
            (&["sh", "/start.sh"], Hears::Presumably),
        ] {
            assert_eq!(hears(&words(command), &[]), hears_it, "{command:?}");
        }
        assert_eq!(hears(&words(&["sh", "-c"]), &words(&["a; b"])), Hears::NotBehindShell);
        assert_eq!(hears(&[], &words(&["sleep", "5"])), Hears::Presumably, "arguments of whatever the image runs");
    }

    #[test]
    fn sleeps_are_found_wherever_they_are_written() {
        for (command, seconds) in [
            (&["sleep", "15"][..], Some(15.0)),
            (&["sh", "-c", "sleep 5; nginx -s quit; sleep 2.5"], Some(7.5)),
            (&["sh", "-c", "(/bin/sleep 2m)"], Some(120.0)),
            (&["nginx", "-s", "quit"], None),
            (&["sh", "-c", "sleep $DELAY"], None),
        ] {
            assert_eq!(sleeps(&words(command)).map(|length| length.as_secs_f64()), seconds, "{command:?}");
        }
    }

    #[test]
    fn a_hook_that_only_sleeps_is_told_from_one_that_does_something() {
        assert!(only_sleeps(&words(&["sleep", "15"])));
        assert!(only_sleeps(&words(&["/bin/sh", "-c", "sleep 15"])));
        assert!(!only_sleeps(&words(&["sh", "-c", "nginx -s quit; sleep 15"])));
        assert!(!only_sleeps(&words(&["sh", "-c", "sleep 15; nginx -s quit"])));
    }
}
