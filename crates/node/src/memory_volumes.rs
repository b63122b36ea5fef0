//! A tmpfs in the node's directory for volumes that must not reach a disk: Secrets, tokens, ConfigMaps and the downward API.
//!
//! It outlives the agent, as the pods that read it do, and ends with the machine.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags};

/// The mounted tmpfs.
#[derive(Clone, Debug)]
pub struct MemoryVolumes {
    dir: PathBuf,
}

impl MemoryVolumes {
    /// Mounts it at `dir`, unless an earlier agent has.
    pub fn open(dir: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        if !is_mounted(dir)? {
            // Programs may be run from it: many a script is kept in a ConfigMap.
            rustix::mount::mount("adieu", dir, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, c"mode=0700")?;
        }
        Ok(Self { dir: dir.to_owned() })
    }

    /// A directory as it is: what it is made of, and when it ends, is somebody else's care.
    pub fn of_dir(dir: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        Ok(Self { dir: dir.to_owned() })
    }

    /// Where it is mounted.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The directory of one pod.
    pub fn pod_dir(&self, uid: &str) -> PathBuf {
        self.dir.join(uid)
    }

    /// Unmounts it, with all that is in it.
    pub fn close(&self) -> io::Result<()> {
        if is_mounted(&self.dir)? {
            rustix::mount::unmount(&self.dir, UnmountFlags::DETACH)?;
        }
        Ok(())
    }
}

/// A mounted directory is on another device than the one above it.
fn is_mounted(dir: &Path) -> io::Result<bool> {
    let above = dir.parent().unwrap_or(dir);
    Ok(fs::metadata(dir)?.dev() != fs::metadata(above)?.dev())
}
