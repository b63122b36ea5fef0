//! The throwaway platform: `adieu up` as a process of its own, in a folder that is removed with everything in it.
//!
//! It has its own port, range of addresses and node name, so it disturbs no other instance on the machine.

use std::fs::{self, DirBuilder, File};
use std::io::{self, BufRead, BufReader};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::image;
use crate::cluster::{Cluster, ClusterArgs, Environment};

/// How long the platform may take until it is ready.
const READY: Duration = Duration::from_secs(30);
/// How long a command of ours may take.
const COMMAND: Duration = Duration::from_secs(60);
/// How long the end of everything may take, and how often it is tried.
const DOWN: Duration = Duration::from_secs(40);
const DOWN_TRIES: usize = 3;
/// How often to look whether a process has ended.
const LOOK: Duration = Duration::from_millis(10);
/// What `adieu up` says of a range that somebody else has.
const RANGE_TAKEN: &str = "is not free";
/// The ranges that are tried: 10.FIRST.0.0/16 and those behind it.
const RANGE_FIRST: u32 = 90;
const RANGES: u32 = 160;
/// So many folders of that name may be there already.
const FOLDERS: u32 = 100;
/// How much of a log is shown.
const LINES_SHOWN: usize = 15;

/// A platform of this process, removed by [`Self::remove`].
pub(super) struct Platform {
    program: PathBuf,
    root: PathBuf,
    node: String,
    range: u32,
    up: Option<Process>,
    /// What else runs: it ends with this.
    command: Option<Process>,
    /// The image on its way to a file: it cannot be called off, but is soon done.
    writing: Option<JoinHandle<Result<u64>>>,
}

impl Platform {
    /// Makes its folder in `parent`. `program` is this one.
    pub(super) fn new(program: &Path, parent: &Path) -> Result<Self> {
        let own = std::process::id();
        for number in 0..FOLDERS {
            let root = parent.join(format!("adieu-demo-{own}-{number}"));
            match DirBuilder::new().mode(0o700).create(&root) {
                Ok(()) => {
                    let (program, node) = (program.to_owned(), format!("demo-{own}"));
                    return Ok(Self {
                        program,
                        root,
                        node,
                        range: own % RANGES,
                        up: None,
                        command: None,
                        writing: None,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    let doing = format!("cannot make a folder in {}; name another with --dir", parent.display());
                    return Err(error).context(doing);
                }
            }
        }
        bail!("{} is full of folders of former demos; remove them with `adieu down --data-dir`", parent.display())
    }

    /// The folder that holds everything.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// What the node is called.
    pub(super) fn node(&self) -> &str {
        &self.node
    }

    fn data_dir(&self) -> PathBuf {
        self.root.join("data")
    }

    fn log(&self) -> PathBuf {
        self.root.join("up.log")
    }

    /// This program with these words, in a process group of its own: Ctrl-C is for the demo, which ends it in good order.
    fn spawn(&self, words: &[&str], out: Stdio, log: &Path) -> Result<Process> {
        let log = File::options().create(true).append(true).open(log)?;
        let mut command = Command::new(&self.program);
        command.arg0("adieu").args(words).arg("--data-dir").arg(self.data_dir());
        command.stdin(Stdio::null()).stdout(out).stderr(log).process_group(0);
        let child = command.spawn().with_context(|| format!("cannot run {}", self.program.display()))?;
        Ok(Process { child: Some(child) })
    }

    /// Makes an image of this program and loads it; answers the size of the program.
    pub(super) async fn load_image(&mut self) -> Result<u64> {
        let archive = self.root.join("image.tar");
        let (program, to) = (self.program.clone(), archive.clone());
        let writing =
            self.writing.insert(tokio::task::spawn_blocking(move || image::write(&program, image::NAME, &to)));
        let written = writing.await;
        self.writing = None;
        let size = written??;
        let shown = archive.to_str().context("the folder's name is no text")?;
        self.run(&["image", "load", shown]).await?;
        fs::remove_file(&archive)?;
        Ok(size)
    }

    /// Runs a command to its end.
    async fn run(&mut self, words: &[&str]) -> Result<()> {
        let log = self.root.join("command.log");
        let process = self.command.insert(self.spawn(words, Stdio::null(), &log)?);
        let status = timeout(COMMAND, process.ended()).await;
        let status = status.with_context(|| format!("`adieu {}` takes too long", words.join(" ")))??;
        self.command = None;
        ensure!(status.success(), "`adieu {}` ended with {status}:\n{}", words.join(" "), tail(&log));
        Ok(())
    }

    /// Starts it (again), and waits until it is ready. At the first start it looks for a range that nobody has.
    pub(super) async fn start(&mut self) -> Result<()> {
        let is_first = !self.data_dir().join("config.json").exists();
        for _ in 0..RANGES {
            if is_first && is_in_use(self.range) {
                self.range = (self.range + 1) % RANGES;
                continue;
            }
            let said = fs::metadata(self.log()).map_or(0, |log| log.len());
            match self.start_once().await {
                Err(_) if is_first && said_since(&self.log(), said).contains(RANGE_TAKEN) => {
                    self.range = (self.range + 1) % RANGES;
                }
                outcome => return outcome,
            }
        }
        bail!("no range of addresses from 10.{RANGE_FIRST}.0.0/16 on is free on this machine")
    }

    async fn start_once(&mut self) -> Result<()> {
        let range = format!("10.{}.0.0/16", RANGE_FIRST + self.range);
        // What else is on the machine's disks, and when it goes down, is no concern of a demo.
        let words = [
            &["up", "--api", "127.0.0.1:0", "--pod-cidr", &range, "--node-name", &self.node][..],
            &["--eviction-hard", "", "--image-gc-high-threshold", "100"],
            &["--shutdown-grace", "0", "--shutdown-grace-critical", "0"],
        ];
        let mut process = self.spawn(&words.concat(), Stdio::piped(), &self.log())?;
        let lines = process.child.as_mut().and_then(|child| child.stdout.take()).context("its output is piped")?;
        self.up = Some(process);
        let (tell, told) = oneshot::channel();
        // Reads on until the process ends, so that it can always write.
        std::thread::spawn(move || {
            let mut tell = Some(tell);
            for line in BufReader::new(lines).lines().map_while(Result::ok) {
                if let Some(tell) = tell.take_if(|_| line.contains("ready")) {
                    let _ = tell.send(());
                }
            }
        });
        match timeout(READY, told).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => bail!("the platform ended before it was ready:\n{}", tail(&self.log())),
            Err(_) => bail!("the platform is not ready in time:\n{}", tail(&self.log())),
        }
    }

    /// Ends its process as a crash would.
    pub(super) async fn kill_9(&mut self) -> Result<()> {
        let mut process = self.up.take().context("the platform runs")?;
        process.kill();
        process.ended().await?;
        Ok(())
    }

    /// A client that speaks as the administrator.
    pub(super) async fn connect(&self) -> Result<Cluster> {
        let args = ClusterArgs { data_dir: Some(self.data_dir()), ..ClusterArgs::default() };
        args.connect(&Environment::default()).await
    }

    /// Ends every pod and the platform, and removes everything, whatever state it is in. Says what stays if that fails.
    pub(super) async fn remove(mut self) -> Result<()> {
        if let Some(writing) = self.writing.take() {
            let _ = writing.await;
        }
        // Its child, which unpacks an image, ends with it.
        if let Some(mut command) = self.command.take() {
            command.kill();
            command.ended().await?;
        }
        let mut outcome = Ok(());
        if self.data_dir().exists() {
            for _ in 0..DOWN_TRIES {
                outcome = self.down().await;
                if outcome.is_ok() {
                    break;
                }
                // It does not do as it is told: the next one does it alone.
                if let Some(mut up) = self.up.take() {
                    up.kill();
                    up.ended().await?;
                }
            }
        }
        let (place, data) = (self.root.display().to_string(), self.data_dir());
        outcome
            .with_context(|| format!("cannot end the demo's pods; run `adieu down --data-dir {}`", data.display()))?;
        fs::remove_dir_all(&self.root).with_context(|| format!("cannot remove {place}"))
    }

    async fn down(&mut self) -> Result<()> {
        let log = self.root.join("down.log");
        let mut process = self.spawn(&["down", "--now"], Stdio::null(), &log)?;
        let Ok(status) = timeout(DOWN, process.ended()).await else {
            process.kill();
            process.ended().await?;
            bail!("`adieu down` takes too long");
        };
        let status = status?;
        ensure!(status.success(), "`adieu down` ended with {status}:\n{}", tail(&log));
        if let Some(up) = &mut self.up {
            timeout(DOWN, up.ended()).await.context("`adieu up` does not end")??;
        }
        self.up = None;
        Ok(())
    }
}

/// A child of ours.
struct Process {
    /// Until it is reaped.
    child: Option<Child>,
}

impl Process {
    fn kill(&mut self) {
        if let Some(child) = &mut self.child {
            // One that has ended is not reaped yet, so nobody else has its number.
            let _ = child.kill();
        }
    }

    async fn ended(&mut self) -> Result<ExitStatus> {
        let child = self.child.as_mut().context("it was started")?;
        let since = Instant::now();
        loop {
            if let Some(status) = child.try_wait()? {
                self.child = None;
                return Ok(status);
            }
            // Short commands are not waited for long.
            sleep(if since.elapsed() < LOOK { Duration::from_millis(1) } else { LOOK }).await;
        }
    }
}

impl Drop for Process {
    /// Nobody waits for it any more.
    fn drop(&mut self) {
        self.kill();
        if let Some(child) = &mut self.child {
            let _ = child.wait();
        }
    }
}

/// Whether an instance has the range: its first address is the instance's own then.
fn is_in_use(range: u32) -> bool {
    let Ok(range) = u8::try_from(RANGE_FIRST + range) else { return true };
    UdpSocket::bind((Ipv4Addr::new(10, range, 0, 1), 0)).is_ok()
}

fn said_since(log: &Path, before: u64) -> String {
    let text = fs::read(log).unwrap_or_default();
    let before = usize::try_from(before).unwrap_or(0).min(text.len());
    String::from_utf8_lossy(&text[before..]).into_owned()
}

/// The end of a log.
fn tail(log: &Path) -> String {
    let text = said_since(log, 0);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn folder_of_a_demo_is_new_and_closed_to_others() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let (one, two) =
            (Platform::new(Path::new("a"), dir.path()).unwrap(), Platform::new(Path::new("a"), dir.path()).unwrap());
        assert_ne!(one.root(), two.root());
        assert_eq!(fs::metadata(one.root()).unwrap().permissions().mode() & 0o777, 0o700);
        let refused = Platform::new(Path::new("a"), &dir.path().join("absent")).err().unwrap().to_string();
        assert!(refused.contains("--dir"), "{refused}");
    }

    #[tokio::test]
    async fn platform_that_ends_at_once_says_why_and_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let mut platform = Platform::new(Path::new("/bin/false"), dir.path()).unwrap();
        let refused = platform.start().await.unwrap_err().to_string();
        assert!(refused.contains("before it was ready"), "{refused}");
        assert!(platform.run(&["image", "load"]).await.unwrap_err().to_string().contains("adieu image load"));
        let root = platform.root().to_owned();
        platform.remove().await.unwrap();
        assert!(!root.exists());
    }
}
