//! One instance on one folder: its lock, and the id that is part of every name it uses on the machine.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};

use crate::data_dir;

/// How long a folder may be held by what a killed process left behind, and how often to look.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
pub(crate) const RETRY: Duration = Duration::from_millis(10);

/// Containers, networks and the folder itself are root's.
pub(crate) fn require_root() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("containers need root: run this as root, or with sudo");
    }
    Ok(())
}

/// The folder, locked for this process. The lock goes with the process, however it ends.
#[derive(Debug)]
pub(crate) struct Instance {
    /// The folder.
    pub dir: PathBuf,
    /// Random, made with the folder; short enough for the name of a network link.
    pub id: String,
    _lock: File,
}

impl Instance {
    /// Takes the folder, or says who has it.
    pub(crate) fn take(dir: &Path) -> Result<Self> {
        data_dir::secure(dir)?;
        // A process that was just killed may have left a child between its birth and its own program, which holds the
        // lock for a moment longer.
        let since = Instant::now();
        let mut taken = Self::try_take(dir)?;
        while taken.is_none() && since.elapsed() < PATIENCE {
            std::thread::sleep(RETRY);
            taken = Self::try_take(dir)?;
        }
        match taken {
            Some(instance) => Ok(instance),
            None => bail!(
                "another adieu runs on {}; stop it first, or use another --data-dir (with another --api, --pod-cidr and --node-name)",
                dir.display()
            ),
        }
    }

    /// True if a process has the folder.
    pub(crate) fn is_taken(dir: &Path) -> Result<bool> {
        Ok(dir.join("lock").exists() && Self::try_take(dir)?.is_none())
    }

    /// Takes the folder unless another process has it.
    pub(crate) fn try_take(dir: &Path) -> Result<Option<Self>> {
        let describe = || format!("cannot use the folder {}", dir.display());
        // Keys, secrets and sockets live here: nobody else's business.
        DirBuilder::new().recursive(true).mode(0o700).create(dir).with_context(describe)?;
        let path = dir.join("lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(path).with_context(describe)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(error).with_context(describe),
        }
        let id = id(dir).with_context(describe)?;
        Ok(Some(Self { dir: dir.to_owned(), id, _lock: lock }))
    }
}

fn id(dir: &Path) -> std::io::Result<String> {
    let path = dir.join("instance");
    let mut id = String::new();
    match File::open(&path) {
        Ok(mut file) => {
            file.read_to_string(&mut id)?;
            return Ok(id.trim().to_owned());
        }
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        Err(_) => {}
    }
    let id: String = uuid::Uuid::new_v4().simple().to_string().chars().take(8).collect();
    let temporary = dir.join(".instance");
    let mut file = File::create(&temporary)?;
    writeln!(file, "{id}")?;
    file.sync_all()?;
    fs::rename(temporary, path)?;
    Ok(id)
}
