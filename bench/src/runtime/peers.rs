//! The others: command lines, timed from their start to their end.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// Somebody else who runs containers.
pub(crate) trait Peer {
    fn name(&self) -> &str;
    /// The part of its time in which we want to have a container running.
    fn most(&self) -> f64;
    /// Runs a container; returns, with the milliseconds it took, when it runs.
    fn start(&self, round: usize) -> Result<f64>;
    /// Kills and removes it.
    fn end(&self, round: usize) -> Result<f64>;
}

/// A runtime with the command line of the OCI: a bundle is created, started, and deleted with force.
pub(crate) struct Oci {
    program: &'static str,
    dir: PathBuf,
}

impl Oci {
    /// Fails with its own words if it cannot run a container here.
    pub(crate) fn new(program: &'static str, scratch: &Path) -> Result<Self> {
        let dir = scratch.join(program);
        let bin = dir.join("rootfs/bin");
        std::fs::create_dir_all(&bin)?;
        std::fs::copy("/bin/busybox", bin.join("busybox")).context("busybox-static is needed")?;
        std::os::unix::fs::symlink("busybox", bin.join("sleep"))?;
        run(Command::new(program).arg("spec").current_dir(&dir))?;
        let mut config: Value = serde_json::from_slice(&std::fs::read(dir.join("config.json"))?)?;
        config["process"]["args"] = json!(["/bin/sleep", "1000000"]);
        config["process"]["terminal"] = json!(false);
        // Not every machine lets these be raised.
        config["process"]["rlimits"] = json!([]);
        std::fs::write(dir.join("config.json"), serde_json::to_vec(&config)?)?;
        let peer = Self { program, dir };
        let tried = peer.start(usize::MAX).and_then(|_| peer.end(usize::MAX));
        tried.map(|_| peer)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.program);
        command.arg("--root").arg(self.dir.join("state"));
        command
    }

    fn id(round: usize) -> String {
        format!("bench-{}-{round}", std::process::id())
    }
}

impl Peer for Oci {
    fn name(&self) -> &str {
        self.program
    }

    fn most(&self) -> f64 {
        1.0 / 3.0
    }

    fn start(&self, round: usize) -> Result<f64> {
        let id = Self::id(round);
        let begun = Instant::now();
        run(self.command().arg("create").arg("--bundle").arg(&self.dir).arg(&id))?;
        run(self.command().arg("start").arg(&id))?;
        Ok(millis(begun))
    }

    fn end(&self, round: usize) -> Result<f64> {
        let begun = Instant::now();
        run(self.command().args(["delete", "--force"]).arg(Self::id(round)))?;
        Ok(millis(begun))
    }
}

/// podman, with runc below it: its own choice refuses machines with both kinds of control groups.
pub(crate) struct Podman {
    /// Apart from all else: it takes no path of more than fifty characters.
    dir: tempfile::TempDir,
}

impl Podman {
    pub(crate) fn new(image: &Path) -> Result<Self> {
        let peer = Self { dir: tempfile::tempdir()? };
        run(peer.command().args(["load", "--quiet", "--input"]).arg(image))?;
        peer.start(usize::MAX).and_then(|_| peer.end(usize::MAX))?;
        Ok(peer)
    }

    fn command(&self) -> Command {
        let mut command = Command::new("podman");
        for (option, name) in [("--root", "root"), ("--runroot", "run"), ("--tmpdir", "tmp")] {
            command.arg(option).arg(self.dir.path().join(name));
        }
        command.args(["--runtime", "runc", "--cgroup-manager", "cgroupfs", "--events-backend", "none"]);
        command
    }
}

impl Peer for Podman {
    fn name(&self) -> &'static str {
        "podman"
    }

    fn most(&self) -> f64 {
        1.0 / 20.0
    }

    fn start(&self, round: usize) -> Result<f64> {
        let begun = Instant::now();
        let mut command = self.command();
        // Its own limits need a privilege that not every machine gives.
        command.args(["run", "--detach", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096", "--name"]);
        run(command.arg(Oci::id(round)).args(["docker.io/library/busybox:latest", "sleep", "1000000"]))?;
        Ok(millis(begun))
    }

    fn end(&self, round: usize) -> Result<f64> {
        let begun = Instant::now();
        run(self.command().args(["rm", "--force", "--time", "0"]).arg(Oci::id(round)))?;
        Ok(millis(begun))
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        // Its storage is mounted; nothing can be deleted below it until it is not.
        let _ = run(self.command().args(["system", "reset", "--force"]));
    }
}

fn run(command: &mut Command) -> Result<()> {
    let log = tempfile::tempfile()?;
    // A file, not a pipe: a container keeps its streams, and a pipe would never end.
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.try_clone()?).status();
    let status = status.with_context(|| format!("cannot run {}", command.get_program().display()))?;
    if !status.success() {
        use std::io::{Read, Seek};
        let (mut log, mut said) = (log, String::new());
        log.rewind()?;
        log.read_to_string(&mut said)?;
        ensure!(status.success(), "{}", said.trim());
    }
    Ok(())
}

pub(super) fn millis(begun: Instant) -> f64 {
    begun.elapsed().as_secs_f64() * 1000.0
}
