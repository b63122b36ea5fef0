//! What is read of scripts. What shells do with them is measured in `tests/shells.rs`.

use super::*;

/// The words of every simple command, pipes and lists flattened.
fn flat(script: &str) -> Vec<String> {
    fn of(list: &List, told: &mut Vec<String>) {
        for command in list.iter().flat_map(|item| &item.pipeline) {
            match command {
                Command::Simple { .. } => told.extend(command.words().map(|words| words.join(" "))),
                Command::Subshell(list) | Command::Group(list) => of(list, told),
                Command::If(parts, otherwise) => {
                    for (condition, body) in parts {
                        of(condition, told);
                        of(body, told);
                    }
                    otherwise.iter().for_each(|list| of(list, told));
                }
                Command::Case(_, parts) => parts.iter().for_each(|(_, body)| of(body, told)),
                Command::Loop { condition, body, .. } => {
                    of(condition, told);
                    of(body, told);
                }
                Command::For { body, .. } => of(body, told),
                Command::Function { name, .. } => told.push(format!("{name}()")),
            }
        }
    }
    let mut told = Vec::new();
    of(&parse(script).expect(script).list, &mut told);
    told
}

#[test]
fn quotes_and_comments_hide_what_they_should() {
    for (script, commands) in [
        ("server --say 'a; b' \"c && d\"", &["server --say a; b c && d"][..]),
        ("# first; second\nserver # exec no\n", &["server"]),
        ("echo a#b; c", &["echo a#b", "c"]),
        ("echo \"it's $(date; true) \\\" ok\" | tee", &["echo it's $(date; true) \" ok", "tee"]),
        ("a \\\n  --long; b", &["a --long", "b"]),
        ("server >log 2>&1 </dev/null", &["server"]),
        ("server &> log; b 2>&-", &["server", "b"]),
        ("cat <<EOF > f\nexec nothing; here\nEOF\nserver", &["cat", "server"]),
        ("X=1 Y='a b' server", &["server"]),
        ("for i in 1 2 3; do ping; done", &["ping"]),
        ("if [ -f x ]; then a; elif b; then c; else d; fi; e", &["[ -f x ]", "a", "b", "c", "d", "e"]),
        ("case $1 in a|b) x ;; *) y;; esac; z", &["x", "y", "z"]),
        ("stop() { kill $1; exit 0; }\nwait", &["stop()", "wait"]),
        ("while true; do\n  sleep 1\ndone", &["true", "sleep 1"]),
        ("{ a; b; } && (c)", &["a", "b", "c"]),
        ("! a || b", &["a", "b"]),
    ] {
        assert_eq!(flat(script), commands, "{script}");
    }
}

#[test]
fn shell_command_separators_are_kept() {
    let script = |text: &str| parse(text).expect("it is a script");
    let joints = |text: &str| script(text).list.iter().map(|item| item.then).collect::<Vec<_>>();
    assert_eq!(
        joints("a & b && c || d; e\nf"),
        [Then::Background, Then::And, Then::Or, Then::Next, Then::Line, Then::Next]
    );
    assert_eq!(script("a | b").list[0].pipeline.len(), 2);
    assert_eq!((script("a").newlines, script("a; # b").newlines, script("a # b\n\n").newlines), (0, 0, 2));
}

#[test]
fn shell_script_with_syntax_errors_is_not_parsed() {
    let deep = "(".repeat(10_000);
    for script in ["'", "a (b", "if a; then", "done", "{ a", "case x in", ") a", "$(", "a | ", "((a))", deep.as_str()] {
        assert_eq!(parse(script), None, "{}", &script[..script.len().min(20)]);
    }
    assert_eq!(parse(""), Some(Script::default()));
}

#[test]
fn shell_loop_counters_are_evaluated() {
    let value = |name: &str| (name == "i").then(|| "7".to_owned());
    for (sum, expected) in
        [("i+1", Some(8)), ("$i - 2 * 3", Some(1)), ("2 * i", Some(14)), ("j", None), ("i / 2", None), ("", None)]
    {
        assert_eq!(arithmetic::evaluate(sum, &value), expected, "{sum}");
    }
}
