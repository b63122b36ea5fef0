//! A terminal session with stock kubectl, written down as it would be seen: commands, and what they must print.
//!
//! ```text
//! # What follows is for people.
//! $ kubectl get configmap colours
//! NAME      DATA   AGE
//! colours   1      …
//!
//! [since 1.24]
//! $ kubectl delete configmap absent
//! ! Error from server (NotFound): configmaps "absent" not found
//! [exit 1]
//! ```
//!
//! A command is a line for the shell, with `kubectl` on its path; lines that begin with `>` continue it. Everything that
//! it prints must be listed, in order, standard error behind `!`; nothing else may be printed, and it must end with 0
//! unless `[exit N]` says otherwise. `…` stands for anything within a line, alone on a line for any number of lines; how
//! wide a gap is does not matter, nor do empty lines. `$NS` is the session's own namespace. `[since 1.24]` and
//! `[until 1.24]` leave a command to the kubectls that can do it, and the others say so.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::Kubectl;

/// How long one command may take: on a busy machine, with a pod's whole end or forty kubectls in it.
const LIMIT: Duration = Duration::from_secs(240);

const ANYTHING: char = '…';

/// A session as it is written down.
pub struct Session {
    /// The file's name without its ending.
    pub name: String,
    steps: Vec<Step>,
}

#[derive(Default)]
struct Step {
    line: usize,
    command: String,
    out: Vec<String>,
    err: Vec<String>,
    exit: i32,
    since: u32,
    until: Option<u32>,
}

impl Session {
    /// Every session in a folder, by name.
    pub fn all(folder: &Path) -> Result<Vec<Self>> {
        let mut sessions = Vec::new();
        for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let path = entry?.path();
            let name = path.file_stem().context("a name")?.to_string_lossy().into_owned();
            let steps = parse(&std::fs::read_to_string(&path)?).with_context(|| name.clone())?;
            sessions.push(Self { name, steps });
        }
        sessions.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(sessions)
    }

    /// Plays it with one kubectl in the namespace `namespace`, which is made for it and deleted in the end. Answers
    /// the commands that this kubectl cannot do.
    pub async fn play(&self, kubectl: &Kubectl, namespace: &str) -> Result<Vec<String>> {
        let minor = kubectl.minor().await?;
        let folder = tempfile::tempdir()?;
        let mut skipped = Vec::new();
        kubectl.run(&["create", "namespace", namespace]).await?;
        let mut problems = Vec::new();
        for step in &self.steps {
            if minor < step.since || step.until.is_some_and(|until| minor >= until) {
                skipped.push(step.command.clone());
                continue;
            }
            let outcome = step.play(kubectl, namespace, folder.path()).await;
            problems.extend(outcome.err().map(|problem| format!("{}.txt:{}: {problem:#}", self.name, step.line)));
        }
        kubectl.run(&["delete", "namespace", namespace]).await?;
        ensure!(problems.is_empty(), "{}", problems.join("\n"));
        Ok(skipped)
    }
}

impl Step {
    async fn play(&self, kubectl: &Kubectl, namespace: &str, folder: &Path) -> Result<()> {
        let mut shell = kubectl.shell(namespace)?;
        shell.arg("-c").arg(&self.command).current_dir(folder).stdin(Stdio::null());
        let output = tokio::time::timeout(LIMIT, shell.output()).await.with_context(|| self.command.clone())??;
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let expected =
            |lines: &[String]| -> Vec<String> { lines.iter().map(|l| l.replace("$NS", namespace)).collect() };
        let mut wrong = Vec::new();
        if !matches(&expected(&self.out), &lines(&out)) {
            wrong.push("output");
        }
        if !matches(&expected(&self.err), &lines(&err)) {
            wrong.push("complaints");
        }
        if output.status.code() != Some(self.exit) {
            wrong.push("exit code");
        }
        if !wrong.is_empty() {
            let shown = [out, err].map(|text| text.trim_end().replace('\n', "\n      "));
            bail!(
                "unexpected {}\n    $ {}\n      {}\n    ! {}\n    {}",
                wrong.join(" and "),
                self.command,
                shown[0],
                shown[1],
                output.status
            );
        }
        Ok(())
    }
}

fn parse(text: &str) -> Result<Vec<Step>> {
    let mut steps: Vec<Step> = Vec::new();
    let (mut since, mut until) = (0, None);
    for (at, line) in text.lines().enumerate() {
        let step = steps.last_mut();
        if line.is_empty() || line.starts_with('#') {
            continue;
        } else if let Some(version) = marked(line, "since") {
            since = minor(version)?;
        } else if let Some(version) = marked(line, "until") {
            until = Some(minor(version)?);
        } else if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step { line: at + 1, command: command.to_owned(), since, until, ..Step::default() });
            (since, until) = (0, None);
        } else {
            let step = step.with_context(|| format!("line {}: no command before it", at + 1))?;
            if let Some(code) = marked(line, "exit") {
                step.exit = code.parse()?;
            } else if let Some(more) = line.strip_prefix("> ") {
                step.command.push('\n');
                step.command.push_str(more);
            } else if let Some(complaint) = line.strip_prefix("! ") {
                step.err.push(squeezed(complaint));
            } else {
                step.out.push(squeezed(line));
            }
        }
    }
    Ok(steps)
}

/// `3` of `[exit 3]`.
fn marked<'a>(line: &'a str, word: &str) -> Option<&'a str> {
    line.strip_prefix('[')?.strip_prefix(word)?.strip_prefix(' ')?.strip_suffix(']')
}

fn minor(version: &str) -> Result<u32> {
    Ok(version.strip_prefix("1.").context("1.something")?.parse()?)
}

fn squeezed(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(squeezed).filter(|line| !line.is_empty()).collect()
}

/// Whether `lines` are what is expected, from the first to the last.
fn matches(expected: &[String], lines: &[String]) -> bool {
    match (expected.split_first(), lines.split_first()) {
        (None, None) => true,
        (Some((first, rest)), _) if first.trim() == ANYTHING.to_string() => {
            (0..=lines.len()).any(|skip| matches(rest, &lines[skip..]))
        }
        (Some((wanted, rest)), Some((line, more))) => line_matches(wanted, line) && matches(rest, more),
        (None, Some(_)) | (Some(_), None) => false,
    }
}

fn line_matches(wanted: &str, line: &str) -> bool {
    let Some((before, after)) = wanted.split_once(ANYTHING) else { return wanted == line };
    let Some(rest) = line.strip_prefix(before) else { return false };
    rest.char_indices().map(|(at, _)| at).chain([rest.len()]).any(|at| line_matches(after, &rest[at..]))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn fits(expected: &[&str], text: &str) -> bool {
        matches(&expected.iter().map(|line| squeezed(line)).collect::<Vec<_>>(), &lines(text))
    }

    #[test]
    fn session_output_must_be_listed_completely() {
        assert!(fits(&["NAME  AGE", "a  …"], "NAME     AGE\na        3s\n"));
        assert!(!fits(&["NAME  AGE"], "NAME     AGE\na        3s\n"));
        assert!(!fits(&["NAME  AGE", "a …", "b …"], "NAME     AGE\na        3s\n"));
        assert!(!fits(&[], "Warning: something"));
    }

    #[test]
    fn an_ellipsis_stands_for_lines_or_for_a_part_of_one() {
        assert!(fits(&["…", "Status: Running", "…"], "Name: a\n\nStatus: Running\nIP: 1\n"));
        assert!(!fits(&["…", "Status: Running", "…"], "Name: a\nStatus: Pending\n"));
        assert!(fits(&["a…c…"], "abcd") && !fits(&["a…c"], "abcd"));
    }

    #[test]
    fn a_step_has_a_command_output_complaints_and_an_end() {
        let steps = parse("# words\n[since 1.24]\n$ cat <<E\n> x\n> E\nx\n! oh\n[exit 3]\n\n$ true\n").unwrap();
        let [first, second] = steps.as_slice() else { panic!("two commands") };
        assert_eq!((first.command.as_str(), first.exit, first.since), ("cat <<E\nx\nE", 3, 24));
        assert_eq!((&first.out[..], &first.err[..]), (&["x".to_owned()][..], &["oh".to_owned()][..]));
        assert_eq!((second.line, second.since, second.exit), (10, 0, 0));
        assert!(parse("words without a command").is_err());
    }
}
