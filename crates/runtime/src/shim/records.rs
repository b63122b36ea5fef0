//! The files of a pod: where they are, and how a fact gets onto disk before anyone is told.
//!
//! ```text
//! pods/<uid>/
//!   sandbox.json      what was asked for; written before anything is made
//!   ready.json        what it turned out to be
//!   removing          its removal has begun and will be finished; `removing.spare` until then
//!   kept/             becomes the place of its logs when it is removed
//!   shim.sock  shim.log  hosts  hostname  resolv.conf  shm/  memory/<volume>/
//!   containers/<name>.<attempt>/
//!     plan.json       written before the shim is asked to start it
//!     started.json  exit.json  termination-message  upper/  work/  *.spare
//!     hooks/<hook>.asked  hooks/<hook>.json
//!   logs/<name>/<attempt>.log
//! ```
//!
//! Nobody but their owner may read them. What containers see of them is mounted, past the closed directories above.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::cgroup::Group;
use crate::contract::{ContainerId, ExitRecord, SandboxSpec};

/// A sandbox as it was asked for.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct SandboxRecord {
    pub(crate) spec: SandboxSpec,
    /// The pod's group; the shim and each container have one below it.
    pub(crate) cgroup: Group,
}

/// A container's program was seen to run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct StartedRecord {
    /// Wall clock, milliseconds.
    pub(crate) wall_ms: i64,
    /// What could not be applied.
    #[serde(default)]
    pub(crate) warnings: Vec<String>,
}

/// A pod's directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PodDir {
    pub(crate) path: PathBuf,
}

impl PodDir {
    pub(crate) fn sandbox(&self) -> PathBuf {
        self.path.join("sandbox.json")
    }
    pub(crate) fn ready(&self) -> PathBuf {
        self.path.join("ready.json")
    }
    pub(crate) fn removing(&self) -> PathBuf {
        self.path.join("removing")
    }
    /// An empty file that gets the name of the one above: on a disk without inodes none can be made.
    pub(crate) fn removing_spare(&self) -> PathBuf {
        self.path.join("removing.spare")
    }
    /// An empty directory for the same reason: the logs go into it, and it leaves with them.
    pub(crate) fn kept(&self) -> PathBuf {
        self.path.join("kept")
    }
    pub(crate) fn shim_log(&self) -> PathBuf {
        self.path.join("shim.log")
    }
    pub(crate) fn hosts(&self) -> PathBuf {
        self.path.join("hosts")
    }
    pub(crate) fn hostname(&self) -> PathBuf {
        self.path.join("hostname")
    }
    pub(crate) fn resolv_conf(&self) -> PathBuf {
        self.path.join("resolv.conf")
    }
    /// The pod's shared memory; a tmpfs in the shim's mount namespace, an empty directory outside it.
    pub(crate) fn shm(&self) -> PathBuf {
        self.path.join("shm")
    }
    /// A volume in memory: like the shared memory, only in the shim's mount namespace more than an empty directory.
    pub(crate) fn memory_volume(&self, name: &str) -> PathBuf {
        self.path.join("memory").join(name)
    }
    pub(crate) fn log(&self, id: &ContainerId) -> PathBuf {
        self.path.join("logs").join(&id.name).join(format!("{}.log", id.attempt))
    }
    /// The runs of a container that have a log.
    pub(crate) fn logged(&self, container: &str) -> Vec<u32> {
        let attempt = |name: String| name.strip_suffix(".log")?.parse().ok();
        names_in(&self.path.join("logs").join(container)).filter_map(attempt).collect()
    }
    pub(crate) fn container(&self, id: &ContainerId) -> ContainerDir {
        ContainerDir { path: self.path.join("containers").join(directory_name(id)) }
    }

    /// Every run that has a directory, in order.
    pub(crate) fn containers(&self) -> Vec<(ContainerId, ContainerDir)> {
        let mut found: Vec<_> = names_in(&self.path.join("containers"))
            .filter_map(|name| {
                let (container, attempt) = name.rsplit_once('.')?;
                let id = ContainerId { name: container.to_owned(), attempt: attempt.parse().ok()? };
                Some((id.clone(), self.container(&id)))
            })
            .collect();
        found.sort_by(|left, right| left.0.cmp(&right.0));
        found
    }
}

/// The directory of one run of a container.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ContainerDir {
    pub(crate) path: PathBuf,
}

impl ContainerDir {
    pub(crate) fn plan(&self) -> PathBuf {
        self.path.join("plan.json")
    }
    pub(crate) fn started(&self) -> PathBuf {
        self.path.join("started.json")
    }
    pub(crate) fn exit(&self) -> PathBuf {
        self.path.join("exit.json")
    }
    /// That its program ran, if it did; what has ended has run, also where the disk had no room for its beginning.
    pub(crate) fn begun(&self) -> Option<StartedRecord> {
        let ended = || read::<ExitRecord>(&self.exit());
        read(&self.started()).or_else(|| Some(StartedRecord { wall_ms: ended()?.wall_ms, warnings: Vec::new() }))
    }
    pub(crate) fn termination_message(&self) -> PathBuf {
        self.path.join("termination-message")
    }
    /// Present once a hook was asked for: it is never started again.
    pub(crate) fn hook_asked(&self, hook: &str) -> PathBuf {
        self.path.join("hooks").join(format!("{hook}.asked"))
    }
    pub(crate) fn hook_outcome(&self, hook: &str) -> PathBuf {
        self.path.join("hooks").join(format!("{hook}.json"))
    }

    /// The hooks that were asked for.
    pub(crate) fn hooks(&self) -> Vec<String> {
        let mut found: Vec<_> = names_in(&self.path.join("hooks"))
            .filter_map(|name| name.strip_suffix(".asked").map(str::to_owned))
            .collect();
        found.sort();
        found
    }
}

/// `NAME.ATTEMPT`: the name of a run's directory and of its control group.
pub(crate) fn directory_name(id: &ContainerId) -> String {
    format!("{}.{}", id.name, id.attempt)
}

/// Whether a name given from outside can be part of a path.
pub(crate) fn is_plain(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 200
        && !name.starts_with('.')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

fn names_in(directory: &Path) -> impl Iterator<Item = String> {
    fs::read_dir(directory).into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok())
}

/// Makes a directory, and those above it, for this user alone: plans hold secrets, logs may.
pub(crate) fn make_dir(directory: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// The record in a file; `None` if there is none or it cannot be read as one.
pub(crate) fn read<T: DeserializeOwned>(file: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(file).ok()?).ok()
}

/// Puts a record in place in one step. Survives the death of any process, not of the machine.
pub(crate) fn write<T: Serialize>(file: &Path, record: &T) -> io::Result<()> {
    replace(file, &serde_json::to_vec(record)?)
}

/// Puts a record in place in one step and returns once it is on disk to stay.
pub(crate) fn write_durably<T: Serialize>(file: &Path, record: &T) -> io::Result<()> {
    put(file, &serde_json::to_vec(record)?, true)
}

/// Replaces a file's content in one step.
pub(crate) fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    put(file, bytes, false)
}

fn put(file: &Path, bytes: &[u8], durably: bool) -> io::Result<()> {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    // Two writers of one file must not meet in the temporary one.
    name.push(format!(".new-{}", rustix::thread::gettid().as_raw_nonzero()));
    let temporary = file.with_file_name(name);
    let written = || {
        let mut writer = File::options().create(true).write(true).truncate(true).mode(0o600).open(&temporary)?;
        writer.write_all(bytes)?;
        if durably {
            writer.sync_data()?;
        }
        fs::rename(&temporary, file)
    };
    written().inspect_err(|_| {
        // On a full disk what was begun would only take room from the next attempt.
        let _ = fs::remove_file(&temporary);
    })?;
    if durably && let Some(directory) = file.parent() {
        File::open(directory)?.sync_all()?;
    }
    Ok(())
}

/// The wall clock, milliseconds: a label for people and for the API.
pub(crate) fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The boot clock, milliseconds: goes on while the machine sleeps, and is never set.
pub(crate) fn boot_ms() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    let millis = |count: i64| u64::try_from(count).unwrap_or_default();
    millis(time.tv_sec) * 1000 + millis(time.tv_nsec / 1_000_000)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn names_that_could_leave_the_directory_are_not_plain() {
        for name in ["", "..", ".hidden", "a/b", "a\0b", "ü"] {
            assert!(!is_plain(name), "{name:?}");
        }
        assert!(is_plain("app") && is_plain("3f1c-77_a.0"));
    }

    #[test]
    fn a_record_is_read_back_and_replaced_whole() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("started.json");
        assert_eq!(read::<StartedRecord>(&file), None);
        write(&file, &StartedRecord { wall_ms: 1, warnings: vec![] }).unwrap();
        write_durably(&file, &StartedRecord { wall_ms: 2, warnings: vec![] }).unwrap();
        assert_eq!(read(&file), Some(StartedRecord { wall_ms: 2, warnings: vec![] }));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn runs_are_found_by_their_directories() {
        let dir = tempfile::tempdir().unwrap();
        let pod = PodDir { path: dir.path().to_owned() };
        for name in ["web.10", "web.9", "side.car.0", "nonsense"] {
            fs::create_dir_all(dir.path().join("containers").join(name)).unwrap();
        }
        let ids: Vec<_> = pod.containers().into_iter().map(|(id, _)| (id.name, id.attempt)).collect();
        assert_eq!(ids, [("side.car".to_owned(), 0), ("web".to_owned(), 9), ("web".to_owned(), 10)]);
    }
}
