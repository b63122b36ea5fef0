//! The part of a volume that a container is to see, found without trusting what containers put into it.
//!
//! A `subPath` is looked up in a tree that a running container may be changing. So it is walked by the kernel in one
//! go, never leaving the volume, and what was found is mounted by its descriptor: no path is looked at twice.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::mounts::clone_of;
use super::rootfs::o_path;
use super::{Doing, SetupError};
use crate::contract::{Mount, MountSource};
use crate::sys::lookup::retried;

/// A detached copy of the volume, or of what is at `sub_path` in it; missing directories are made.
pub(super) fn open(source: &Path, sub_path: Option<&str>) -> Result<OwnedFd, SetupError> {
    let root = rustix::fs::open(source, o_path(), Mode::empty()).doing(|| format!("open {}", source.display()))?;
    match sub_path {
        None => clone_of(&root).doing(|| format!("copy the mount of {}", source.display())),
        Some(sub_path) => {
            let found = beneath(root.as_fd(), sub_path).doing(|| format!("open subPath {sub_path:?}"))?;
            clone_of(&found).doing(|| format!("copy the mount of subPath {sub_path:?}"))
        }
    }
}

/// Whether a volume is a part of the host's `/dev`.
pub(crate) fn shows_devices(mount: &Mount) -> bool {
    let MountSource::Host(path) = &mount.source else { return false };
    let device = |path: &Path| std::fs::metadata(path).map(|found| found.dev()).ok();
    path.starts_with("/dev") || device(path).is_some_and(|found| Some(found) == device(Path::new("/dev")))
}

/// Opens a path below `root`, making directories that are missing. Whatever would lead out of `root` is an error.
fn beneath(root: BorrowedFd<'_>, path: &str) -> rustix::io::Result<OwnedFd> {
    match look(root, path) {
        Err(Errno::NOENT) => {}
        found => return found,
    }
    let mut walked = String::new();
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        let above = look(root, &walked)?;
        match make(&above, part, mode_of(root)?) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        if !walked.is_empty() {
            walked.push('/');
        }
        walked.push_str(part);
    }
    look(root, &walked)
}

/// Makes a directory with all of a mode, of which the mask of a container on its way would take a part.
fn make(above: &OwnedFd, name: &str, mode: Mode) -> rustix::io::Result<()> {
    let mask = rustix::process::umask(Mode::empty());
    let made = rustix::fs::mkdirat(above, name, mode);
    rustix::process::umask(mask);
    made
}

fn look(root: BorrowedFd<'_>, path: &str) -> rustix::io::Result<OwnedFd> {
    let path = if path.is_empty() { "." } else { path };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    retried(|| rustix::fs::openat2(root, path, o_path(), Mode::empty(), resolve))
}

/// New directories are as open as the volume itself.
fn mode_of(root: BorrowedFd<'_>) -> rustix::io::Result<Mode> {
    Ok(Mode::from_raw_mode(rustix::fs::fstat(root)?.st_mode & 0o7777))
}

/// Does something in another mount namespace, and returns to this process's own.
pub(super) fn in_mount_namespace<T>(namespace: BorrowedFd<'_>, act: impl FnOnce() -> T) -> Result<T, SetupError> {
    let own = rustix::fs::open("/proc/self/ns/mnt", OFlags::CLOEXEC, Mode::empty())
        .doing(|| "open own mount namespace".to_owned())?;
    let enter = |space: BorrowedFd<'_>| move_into_link_name_space(space, Some(LinkNameSpaceType::Mount));
    enter(namespace).doing(|| "enter the host's mount namespace".to_owned())?;
    let done = act();
    enter(own.as_fd()).doing(|| "return to own mount namespace".to_owned())?;
    Ok(done)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::os::unix::fs::symlink;

    fn found(root: &Path, path: &str) -> Result<std::path::PathBuf, Errno> {
        let root = rustix::fs::open(root, o_path(), Mode::empty()).unwrap();
        let fd = beneath(root.as_fd(), path)?;
        use std::os::fd::AsRawFd;
        Ok(std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap())
    }

    #[test]
    fn a_sub_path_is_made_and_never_leads_out_of_its_volume() {
        let dir = tempfile::tempdir().unwrap();
        let (volume, secret) = (dir.path().join("volume"), dir.path().join("secret"));
        std::fs::create_dir_all(volume.join("..one")).unwrap();
        std::fs::create_dir(&secret).unwrap();
        std::fs::write(volume.join("..one/key"), "value").unwrap();
        symlink("..one", volume.join("..data")).unwrap();
        symlink("..data/key", volume.join("key")).unwrap();
        symlink(&secret, volume.join("absolute")).unwrap();
        symlink("../secret", volume.join("relative")).unwrap();
        assert_eq!(found(&volume, "key").unwrap(), volume.join("..one/key"), "links inside are followed");
        assert_eq!(found(&volume, "a/b/./c").unwrap(), volume.join("a/b/c"));
        for escape in ["absolute", "relative", "absolute/x", "relative/x/y", "..", "a/../../secret", "/etc"] {
            assert_eq!(found(&volume, escape), Err(Errno::XDEV), "{escape}");
        }
        assert_eq!(std::fs::read_dir(&secret).unwrap().count(), 0, "nothing was made outside");
        assert_eq!(found(&volume, "key/below"), Err(Errno::NOTDIR));
    }
}
