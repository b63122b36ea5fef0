//! A container's root before it is entered: finding and making what is mounted upon.
//!
//! A path is resolved once, inside the root, to a descriptor, and all that follows uses the descriptor. What belongs to an
//! image or a volume may hold any symbolic link: a volume's target may pass through them, as it stays inside the root and
//! what it resolved to is looked at afterwards. `/proc`, `/sys`, `/dev` and what is below them may not.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;

use super::rootfs::o_path;
use super::{Doing, SetupError};
use crate::sys::lookup::retried;

/// As many links in a row as the kernel follows.
const LINKS_MAX: usize = 40;

/// What a descriptor refers to: a place in the tree of mounts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MountedInode {
    pub(crate) mount_id: u64,
    device: (u32, u32),
    inode: u64,
}

impl MountedInode {
    /// Asks the kernel.
    pub(crate) fn of(fd: impl AsFd) -> rustix::io::Result<Self> {
        let asked = StatxFlags::MNT_ID | StatxFlags::INO;
        let seen = rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, asked)?;
        if seen.stx_mask & asked.bits() != asked.bits() {
            return Err(Errno::NOSYS);
        }
        let device = (seen.stx_dev_major, seen.stx_dev_minor);
        Ok(Self { mount_id: seen.stx_mnt_id, device, inode: seen.stx_ino })
    }
}

/// A container's root before it is entered.
#[derive(Debug)]
pub(crate) struct Root {
    directory: OwnedFd,
    place: MountedInode,
}

impl AsFd for Root {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

impl Root {
    /// The root that an `O_PATH` descriptor refers to.
    pub(crate) fn new(directory: OwnedFd) -> Result<Self, SetupError> {
        let place = MountedInode::of(&directory).doing(|| "look at the new root".to_owned())?;
        Ok(Self { directory, place })
    }

    /// Where it is.
    pub(crate) fn place(&self) -> MountedInode {
        self.place
    }

    /// Opens a path inside the root; `..` and links stay inside it.
    pub(crate) fn find(&self, path: &str) -> rustix::io::Result<OwnedFd> {
        open(&self.directory, path, ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS)
    }

    /// Opens a path inside the root that leads through no symbolic link, the last part included. `None` if it is not
    /// there; anything but its absence is an error: who cannot look cannot hide.
    pub(crate) fn find_without_links(&self, path: &str) -> rustix::io::Result<Option<OwnedFd>> {
        match open(&self.directory, path, ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS) {
            Err(Errno::NOENT) => Ok(None),
            found => found.map(Some),
        }
    }

    /// A directory right below the root, made if it is missing. What an image has in its place, a symbolic link above
    /// all, is refused: whatever is mounted there would be somewhere else, or over the root itself.
    pub(crate) fn own_directory(&self, path: &str) -> Result<OwnedFd, SetupError> {
        let name = path.trim_start_matches('/');
        let found = directory_in(&self.directory, name, path)?;
        let place = MountedInode::of(&found).doing(|| format!("look at {path}"))?;
        if place.mount_id != self.place.mount_id || place == self.place {
            return Err(SetupError(format!("{path} of the image is not a directory of its own")));
        }
        Ok(found)
    }

    /// Whether a descriptor refers to the root itself.
    pub(crate) fn is_at(&self, fd: impl AsFd) -> rustix::io::Result<bool> {
        Ok(MountedInode::of(fd)? == self.place)
    }

    /// Opens a path inside the root, making it (and what leads there) if it is missing.
    pub(crate) fn find_or_make(&self, path: &str, directory: bool) -> Result<OwnedFd, SetupError> {
        self.make(path, directory, LINKS_MAX).doing(|| format!("make mount point {path}"))
    }

    fn make(&self, path: &str, directory: bool, links_left: usize) -> rustix::io::Result<OwnedFd> {
        match self.find(path) {
            Err(Errno::NOENT) => {}
            found => return found,
        }
        let (above, name) = path.trim_end_matches('/').rsplit_once('/').unwrap_or(("", path));
        if matches!(name, "" | "." | "..") {
            return Err(Errno::INVAL);
        }
        let parent = self.make(above, true, links_left)?;
        let made = if directory {
            rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755))
        } else {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::WRONLY;
            rustix::fs::openat(&parent, name, flags, Mode::from_raw_mode(0o644)).map(drop)
        };
        match made {
            // A link that leads nowhere, such as an image's /etc/resolv.conf: what it names is made, inside the root.
            Err(Errno::EXIST) if links_left > 0 => {
                let link = rustix::fs::readlinkat(&parent, name, Vec::new())?;
                let link = link.to_str().map_err(|_| Errno::INVAL)?;
                let named = if link.starts_with('/') { link.to_owned() } else { format!("{above}/{link}") };
                self.make(&named, directory, links_left - 1)
            }
            made => made.and_then(|()| rustix::fs::openat(&parent, name, o_path() | OFlags::NOFOLLOW, Mode::empty())),
        }
    }
}

/// Opens a path below `from`, which is not left but for what `resolve` allows.
fn open(from: impl AsFd, path: &str, resolve: ResolveFlags) -> rustix::io::Result<OwnedFd> {
    let path = path.trim_start_matches('/');
    let path = if path.is_empty() { "." } else { path };
    retried(|| rustix::fs::openat2(&from, path, o_path(), Mode::empty(), resolve))
}

/// Opens a path that leads through no symbolic link and over no other mount.
pub(super) fn open_same_mount(from: impl AsFd, path: &str) -> rustix::io::Result<OwnedFd> {
    open(from, path, ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV)
}

/// The directory `name` in another one, made if it is missing; anything else of that name is refused. `shown` is what
/// people call it.
pub(super) fn directory_in(above: impl AsFd, name: &str, shown: &str) -> Result<OwnedFd, SetupError> {
    let doing = || format!("open {shown}");
    // Of the link itself, so that the refusal can say what it is.
    let look = || rustix::fs::openat(&above, name, o_path() | OFlags::NOFOLLOW, Mode::empty());
    let found = match look() {
        Err(Errno::NOENT) => {
            let made = rustix::fs::mkdirat(&above, name, Mode::from_raw_mode(0o755));
            made.doing(|| format!("make {shown}"))?;
            look()
        }
        found => found,
    };
    let found = found.doing(doing)?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&found).doing(doing)?.st_mode);
    if kind.is_dir() {
        return Ok(found);
    }
    let what =
        if kind.is_symlink() { "a symbolic link, and nothing is mounted through one" } else { "not a directory" };
    Err(SetupError(format!("{shown} of the image is {what}")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::os::unix::fs::symlink;

    fn root(path: &std::path::Path) -> Root {
        Root::new(rustix::fs::open(path, o_path(), Mode::empty()).unwrap()).unwrap()
    }

    #[test]
    fn own_directory_is_made_or_found_and_never_reached_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("sys")).unwrap();
        std::fs::write(dir.path().join("dev"), "").unwrap();
        symlink("/", dir.path().join("root")).unwrap();
        symlink(".", dir.path().join("here")).unwrap();
        symlink("sys", dir.path().join("beside")).unwrap();
        let root = root(dir.path());
        let missing = root.own_directory("/proc").unwrap();
        assert_eq!(MountedInode::of(&missing).unwrap(), MountedInode::of(root.find("/proc").unwrap()).unwrap());
        assert!(root.own_directory("/sys").is_ok() && !root.is_at(root.find("/sys").unwrap()).unwrap());
        for link in ["/root", "/here", "/beside"] {
            let refused = root.own_directory(link).unwrap_err().to_string();
            assert!(refused.starts_with(&format!("{link} of the image is a symbolic link")), "{refused}");
        }
        assert_eq!(root.own_directory("/dev").unwrap_err().to_string(), "/dev of the image is not a directory");
        assert!(root.own_directory("/.").is_err(), "the root is none of its directories");
        assert!(root.is_at(root.find("/here/root/..").unwrap()).unwrap());
    }
}
