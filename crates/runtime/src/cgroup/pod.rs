//! What a pod is given as a whole: its weight among all pods, and a limit that holds for all its containers together.
//!
//! A pod weighs what it asks for. All those that ask for nothing have one group and together the least weight there is, or many of
//! them would outweigh one that asked: its children share what nobody else wants. Upstream has a second such group, for those
//! that ask for less than they may use; what that adds, time that one of them leaves is first of all the others', nobody asks for.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{CPU_PERIOD_US, Group, Hierarchies, quota_us, weight, working_set, write_to};
use crate::contract::Resources;

/// The group of all pods that ask for nothing; no UID, as those have no such name.
pub(crate) const BEST_EFFORT: &str = "besteffort";

/// Where cgroup2 has the controllers the shim counts in the pod's group. It takes nothing from its containers, and does not wait
/// until the next period when they have spent theirs.
const SHIM_MEMORY_BYTES: u64 = 16 << 20;
const SHIM_QUOTA_US: u64 = 10_000;
/// The most there is: within its pod the shim comes first.
const SHIM_WEIGHT: &str = "10000";

impl Group {
    /// The group of a pod below the instance's.
    pub(crate) fn pod(&self, uid: &str, is_best_effort: bool) -> Self {
        if is_best_effort { self.below(BEST_EFFORT).below(uid) } else { self.below(uid) }
    }

    /// The same place as `other`, which may have been written down when the machine had other hierarchies.
    pub(crate) fn at(&self, other: &Self) -> Self {
        Self { hierarchies: self.hierarchies.clone(), path: other.path.clone() }
    }

    /// The groups of pods below the instance's, by their UIDs.
    pub(crate) fn pods(&self) -> Vec<(String, Self)> {
        let within = |group: &Self| {
            let names = group.names_below().into_iter();
            names.map(|uid| (uid.clone(), group.below(&uid))).collect::<Vec<_>>()
        };
        let mut pods = within(self);
        pods.retain(|(name, _)| name != BEST_EFFORT);
        pods.extend(within(&self.below(BEST_EFFORT)));
        pods
    }

    /// Makes an instance's own groups: all its pods weigh as much as the machine has processors, and all that ask for nothing the
    /// least.
    pub(crate) fn make_for_pods(&self) -> io::Result<()> {
        self.make()?;
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.weigh(Some(1000 * processors as u64))?;
        let least = self.below(BEST_EFFORT);
        least.make()?;
        least.weigh(None)
    }

    /// Takes an instance's own groups away again, unless a pod is in them: the kernel keeps what holds another group. Tells
    /// whether they are gone.
    pub(crate) fn remove_without_pods(&self) -> bool {
        for group in [self.below(BEST_EFFORT), self.clone()] {
            for root in group.hierarchies.roots() {
                let _ = fs::remove_dir(root.join(&group.path));
            }
        }
        !self.v2().exists()
    }

    /// Gives a pod this, and no limit where it says none. Whatever the machine has no controller for is left out: each container
    /// tells of its own.
    ///
    /// Less memory than is in use is refused: the kernel would kill for it.
    pub(crate) fn give(&self, resources: &Resources) -> io::Result<()> {
        self.weigh(resources.cpu_request_millis)?;
        let is_unified = self.hierarchies.is_unified();
        let quota = resources.cpu_limit_millis.map(quota_us);
        if let Some(directory) = self.made_in("cpu")? {
            if is_unified {
                let most = quota.map_or("max".to_owned(), |quota| (quota + SHIM_QUOTA_US).to_string());
                write_where_any(&directory.join("cpu.max"), &format!("{most} {CPU_PERIOD_US}"))?;
            } else {
                let most = quota.map_or("-1".to_owned(), |quota| quota.to_string());
                write_where_any(&directory.join("cpu.cfs_period_us"), &CPU_PERIOD_US.to_string())?;
                write_where_any(&directory.join("cpu.cfs_quota_us"), &most)?;
            }
        }
        if let Some(directory) = self.made_in("memory")? {
            let (limit, used, reclaimable, none) = match is_unified {
                true => ("memory.max", "memory.current", "inactive_file", "max"),
                false => ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "-1"),
            };
            let most = resources.memory_bytes.map(|bytes| if is_unified { bytes + SHIM_MEMORY_BYTES } else { bytes });
            let in_use = working_set(&directory, used, reclaimable).unwrap_or(0);
            let has = fs::read_to_string(directory.join(limit)).ok().and_then(|text| text.trim().parse().ok());
            let shrinks = |most: &u64| has.is_none_or(|has: u64| *most < has);
            if let Some(most) = most.filter(|most| shrinks(most) && in_use >= *most) {
                let words = "cannot decrease memory limits: attempting to set pod memory limit";
                return Err(io::Error::other(format!("{words} ({most}) below current usage ({in_use})")));
            }
            write_where_any(&directory.join(limit), &most.map_or(none.to_owned(), |most| most.to_string()))?;
        }
        Ok(())
    }

    /// Within its pod the shim is the first to run, where it counts there at all: its pod's end waits for it.
    pub(crate) fn put_first(&self) {
        if self.hierarchies.is_unified() {
            // A machine that keeps the controller from us treats all alike.
            let _ = write_to(&self.v2().join("cpu.weight"), SHIM_WEIGHT);
        }
    }

    /// Weighs as much as who asks for so much time; who asks for none, the least.
    fn weigh(&self, millis: Option<u64>) -> io::Result<()> {
        let Some(directory) = self.made_in("cpu")? else { return Ok(()) };
        let (file, value) = weight(millis, self.hierarchies.is_unified());
        write_where_any(&directory.join(file), &value)
    }

    /// Its directory where this controller is, made if need be; `None` if the machine has no such controller.
    fn made_in(&self, controller: &str) -> io::Result<Option<PathBuf>> {
        let Some(directory) = self.hierarchies.place(controller, &self.path) else { return Ok(None) };
        fs::create_dir_all(&directory)?;
        Ok(Some(directory))
    }
}

impl Hierarchies {
    /// Whether cgroup2 holds all controllers of this machine.
    pub(super) fn is_unified(&self) -> bool {
        self.v1.is_empty()
    }

    /// Where each of them is mounted.
    pub(super) fn roots(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.v2).chain(self.v1.values())
    }

    /// Where a group of this path is for a controller; `None` if the machine has no such controller.
    pub(super) fn place(&self, controller: &str, path: &Path) -> Option<PathBuf> {
        match self.v1.get(controller) {
            Some(root) => Some(root.join(path)),
            None => self.is_unified().then(|| self.v2.join(path)),
        }
    }
}

/// A controller that is mounted and not passed on to us has no such file.
fn write_where_any(file: &Path, value: &str) -> io::Result<()> {
    match write_to(file, value) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        written => {
            written.map_err(|error| io::Error::new(error.kind(), format!("{}={value}: {error}", file.display())))
        }
    }
}
