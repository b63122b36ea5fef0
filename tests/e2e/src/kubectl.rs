//! Stock kubectl, in every version this machine has.

use std::path::PathBuf;
use std::process::{Output, Stdio};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::pods::SOON;
use crate::{Instance, workspace};

/// One kubectl, pointed at one instance.
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    /// kubectl caches discovery here; fresh for each.
    cache: TempDir,
}

impl Kubectl {
    /// Debian's kubectl 1.20, and the machine's own if it has another.
    pub fn all(instance: &Instance) -> Result<Vec<Self>> {
        let debian = workspace().join("target/tools/kubectl-1.20/usr/bin/kubectl");
        ensure!(debian.exists(), "{} is missing; run scripts/setup test", debian.display());
        let others = ["/usr/bin/kubectl", "/usr/local/bin/kubectl"].map(PathBuf::from);
        let found = std::iter::once(debian).chain(others.into_iter().filter(|path| path.exists()));
        found.map(|program| Self::of(program, instance)).collect()
    }

    /// The newest one there is.
    pub fn newest(instance: &Instance) -> Result<Self> {
        Self::all(instance)?.pop().context("there is at least Debian's")
    }

    fn of(program: PathBuf, instance: &Instance) -> Result<Self> {
        Ok(Self { program, kubeconfig: instance.kubeconfig(), cache: tempfile::tempdir()? })
    }

    /// Which one this is, for messages.
    pub fn name(&self) -> String {
        self.program.display().to_string()
    }

    /// A command, not yet run.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(words)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", self.cache.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Runs and answers what it printed; fails with what it complained about.
    pub async fn run(&self, words: &[&str]) -> Result<String> {
        let output = self.command(words).output().await?;
        check(words, &output)?;
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Runs with text on standard input.
    pub async fn run_with(&self, words: &[&str], input: &str) -> Result<String> {
        let mut child = self.command(words).stdin(Stdio::piped()).spawn()?;
        let mut stdin = child.stdin.take().context("piped")?;
        stdin.write_all(input.as_bytes()).await?;
        drop(stdin);
        let output = child.wait_with_output().await?;
        check(words, &output)?;
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Runs on a terminal of its own, which `script` makes; answers what was shown there.
    pub async fn run_in_terminal(&self, words: &[&str]) -> Result<String> {
        let line = format!("{} {}", self.program.display(), words.join(" "));
        let mut command = Command::new("script");
        command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
        command.env("KUBECONFIG", &self.kubeconfig).env("HOME", self.cache.path()).stdin(Stdio::null());
        let output = command.kill_on_drop(true).output().await?;
        check(words, &output)?;
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Starts and leaves it running (`get -w`, `logs -f`).
    pub fn follow(&self, words: &[&str]) -> Result<Following> {
        let mut child = self.command(words).spawn()?;
        let lines = BufReader::new(child.stdout.take().context("piped")?).lines();
        Ok(Following { child, lines })
    }

    /// `kubectl apply -f -`.
    pub async fn apply(&self, manifest: &serde_json::Value) -> Result<String> {
        self.run_with(&["apply", "-f", "-"], &manifest.to_string()).await
    }
}

/// A kubectl that runs on.
pub struct Following {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Following {
    /// The next line that it prints.
    pub async fn next(&mut self) -> Result<String> {
        let line = tokio::time::timeout(SOON, self.lines.next_line()).await.context("no line in time")?;
        line?.context("the output ended")
    }

    /// The rest that it prints until it ends by itself, which it must do well.
    pub async fn rest(mut self) -> Result<Vec<String>> {
        let reading = async {
            let mut rest = Vec::new();
            while let Some(line) = self.lines.next_line().await? {
                rest.push(line);
            }
            let status = self.child.wait().await?;
            ensure!(status.success(), "it ended with {status}");
            Ok(rest)
        };
        tokio::time::timeout(SOON, reading).await.context("it does not end")?
    }
}

fn check(words: &[&str], output: &Output) -> Result<()> {
    ensure!(
        output.status.success(),
        "kubectl {}: {}\n{}{}",
        words.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
