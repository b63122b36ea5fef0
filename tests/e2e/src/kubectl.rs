//! Stock kubectl, in every version this machine has.

use std::fs;
use std::path::{Path, PathBuf};
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
    /// Three generations, the oldest first: see `scripts/setup`.
    pub fn all(instance: &Instance) -> Result<Vec<Self>> {
        Self::all_by(&instance.kubeconfig())
    }

    /// The same, pointed at whatever `kubeconfig` names.
    pub fn all_by(kubeconfig: &Path) -> Result<Vec<Self>> {
        let generations = ["kubectl-1.20", "kubectl-1.32", "kubectl-newest"];
        generations.iter().map(|name| Self::of(workspace().join("target/tools").join(name), kubeconfig)).collect()
    }

    /// The newest one there is.
    pub fn newest(instance: &Instance) -> Result<Self> {
        Self::newest_by(&instance.kubeconfig())
    }

    /// The same, pointed at whatever `kubeconfig` names.
    pub fn newest_by(kubeconfig: &Path) -> Result<Self> {
        Self::all_by(kubeconfig)?.pop().context("there are three")
    }

    fn of(folder: PathBuf, kubeconfig: &Path) -> Result<Self> {
        let program = folder.join("usr/bin/kubectl");
        ensure!(program.exists(), "{} is missing; run scripts/setup test", program.display());
        Ok(Self { program, kubeconfig: kubeconfig.to_owned(), cache: tempfile::tempdir()? })
    }

    /// Which one this is, for messages.
    pub fn name(&self) -> String {
        self.program.display().to_string()
    }

    /// `20` of 1.20.
    pub async fn minor(&self) -> Result<u32> {
        let text = self.run(&["version", "--client", "--output=json"]).await?;
        let version: serde_json::Value = serde_json::from_str(&text)?;
        let minor = version["clientVersion"]["minor"].as_str().context("a version")?;
        Ok(minor.trim_end_matches('+').parse()?)
    }

    /// A shell that finds this kubectl, whose commands speak of `namespace` unless they name another.
    pub fn shell(&self, namespace: &str) -> Result<Command> {
        let kubeconfig = self.cache.path().join(format!("{namespace}.kubeconfig"));
        if !kubeconfig.exists() {
            let text = fs::read_to_string(&self.kubeconfig)?;
            let mut config: serde_json::Value = serde_json::from_str(&text).context("our kubeconfig is JSON")?;
            config["contexts"][0]["context"]["namespace"] = namespace.into();
            fs::write(&kubeconfig, config.to_string())?;
        }
        let folder = self.program.parent().context("a folder")?;
        let path = std::env::var("PATH").context("a path")?;
        let mut shell = Command::new("sh");
        shell
            .env("PATH", format!("{}:{path}", folder.display()))
            .env("KUBECONFIG", kubeconfig)
            .env("HOME", self.cache.path())
            .env("NS", namespace)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        Ok(shell)
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
