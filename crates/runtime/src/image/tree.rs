//! The directory a layer is unpacked into, and the promise that nothing is written outside it.
//!
//! Every path is resolved by the kernel below one directory descriptor (`openat2`, `RESOLVE_BENEATH`), so a symbolic
//! link planted by an earlier entry can lead nowhere else, and the last component is never followed at all.
//! Whiteouts become what overlayfs understands: a 0:0 character device, or an "opaque" mark on a directory.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;

use crate::sys::lookup::retried;
use file_tree::delete_at;

const OPAQUE: &str = "trusted.overlay.opaque";
/// No tree of files that people use is deeper, and whoever copies or deletes one has to follow it.
const DEPTH_MAX: usize = 1024;
const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Why an entry was not made.
#[derive(Debug, thiserror::Error)]
pub(super) enum TreeError {
    /// The entry is out for mischief, or might as well be.
    #[error("{0}")]
    Refused(&'static str),
    /// The system said no.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl From<Errno> for TreeError {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

type Result<T> = std::result::Result<T, TreeError>;

/// What every kind of entry carries besides its content.
pub(super) struct Attributes {
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mtime: Timespec,
    pub(super) xattrs: Vec<(OsString, Vec<u8>)>,
}

/// An empty directory that is being filled.
pub(super) struct Tree {
    root: OwnedFd,
    /// The directory the last entry was made in: most entries follow their siblings.
    recent: Option<(PathBuf, OwnedFd)>,
    /// Directory times are set last, because every entry made inside changes them.
    directory_times: Vec<(PathBuf, Timespec)>,
}

/// Where an entry goes: a directory that is certainly inside the tree, and a name in it.
struct EntryPath<'a> {
    parent: &'a OwnedFd,
    name: &'a OsStr,
}

impl Tree {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let root = rustix::fs::openat(CWD, path, DIRECTORY, Mode::empty())?;
        Ok(Self { root, recent: None, directory_times: Vec::new() })
    }

    pub(super) fn directory(&mut self, path: &Path, attributes: &Attributes) -> Result<()> {
        self.directory_times.push((path.to_owned(), attributes.mtime));
        if path.as_os_str().is_empty() {
            let root = EntryPath { parent: &self.root, name: OsStr::new(".") };
            return root.dress(FileType::Directory, attributes);
        }
        let mut place = self.place(path)?;
        match place.look()? {
            Some(found) if kind(&found) == FileType::Directory => {}
            Some(found) => {
                self.recent = None;
                place = self.place(path)?;
                place.remove()?;
                place.make_directory()?;
                if is_whiteout(&found) {
                    place.make_opaque()?;
                }
            }
            None => place.make_directory()?,
        }
        place.dress(FileType::Directory, attributes)
    }

    /// Makes a regular file; returns its size.
    pub(super) fn file(&mut self, path: &Path, content: &mut impl Read, attributes: &Attributes) -> Result<u64> {
        let place = self.vacant(path)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(place.parent, place.name, flags, Mode::from_raw_mode(0o600))?;
        let size = io::copy(content, &mut std::fs::File::from(file))?;
        place.dress(FileType::RegularFile, attributes)?;
        Ok(size)
    }

    /// Makes a symbolic link. Its target may be anything: it is followed only inside a container.
    pub(super) fn symbolic_link(&mut self, path: &Path, target: &[u8], attributes: &Attributes) -> Result<()> {
        let place = self.vacant(path)?;
        rustix::fs::symlinkat(target, place.parent, place.name)?;
        place.dress(FileType::Symlink, attributes)
    }

    /// Makes another name for a file that is already in the tree.
    pub(super) fn hard_link(&mut self, path: &Path, target: &Path) -> Result<()> {
        let Some(target_name) = target.file_name() else {
            return Err(TreeError::Refused("is a hard link to the root directory"));
        };
        if path == target {
            return Err(TreeError::Refused("is a hard link to itself"));
        }
        let target_parent = match beneath(&self.root, target.parent().unwrap_or(Path::new(""))) {
            Err(TreeError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                return Err(TreeError::Refused("is a hard link to a file that this layer does not hold"));
            }
            other => other?,
        };
        let place = self.vacant(path)?;
        match rustix::fs::linkat(&target_parent, target_name, place.parent, place.name, AtFlags::empty()) {
            Err(Errno::NOENT) => Err(TreeError::Refused("is a hard link to a file that this layer does not hold")),
            Err(Errno::PERM) => Err(TreeError::Refused("is a hard link to a directory")),
            other => Ok(other?),
        }
    }

    /// Makes a device node or a named pipe.
    pub(super) fn node(
        &mut self,
        path: &Path,
        kind: FileType,
        device: (u32, u32),
        attributes: &Attributes,
    ) -> Result<()> {
        let place = self.vacant(path)?;
        let device = rustix::fs::makedev(device.0, device.1);
        rustix::fs::mknodat(place.parent, place.name, kind, Mode::from_raw_mode(0o600), device)?;
        place.dress(kind, attributes)
    }

    /// Hides what lower layers have at `path`. What this layer itself has there stays.
    pub(super) fn whiteout(&mut self, path: &Path) -> Result<()> {
        let place = self.place(path)?;
        match place.look()? {
            Some(found) if kind(&found) == FileType::Directory => place.make_opaque(),
            Some(_) => Ok(()),
            None => Ok(rustix::fs::mknodat(place.parent, place.name, FileType::CharacterDevice, Mode::empty(), 0)?),
        }
    }

    /// Hides everything lower layers have in the directory `path`.
    pub(super) fn opaque(&mut self, path: &Path) -> Result<()> {
        let inside = path.join("x");
        let parent = self.place(&inside)?.parent;
        EntryPath { parent, name: OsStr::new(".") }.make_opaque()
    }

    /// Sets the times of the directories, deepest last entry first. Those that were replaced since are passed over.
    pub(super) fn finish(self) -> Result<()> {
        for (path, mtime) in self.directory_times.iter().rev() {
            if let Ok(directory) = beneath(&self.root, path) {
                EntryPath { parent: &directory, name: OsStr::new(".") }.set_times(*mtime)?;
            }
        }
        Ok(())
    }

    /// Where a new entry goes, with nothing there: of two entries with one name the later counts.
    fn vacant<'a>(&'a mut self, path: &'a Path) -> Result<EntryPath<'a>> {
        if self.place(path)?.look()?.is_some() {
            // What is removed may be the directory that was used last.
            self.recent = None;
            self.place(path)?.remove()?;
        }
        self.place(path)
    }

    /// Where an entry goes. Directories that the layer did not mention are made on the way.
    fn place<'a>(&'a mut self, path: &'a Path) -> Result<EntryPath<'a>> {
        let (Some(name), Some(folder)) = (path.file_name(), path.parent()) else {
            return Err(TreeError::Refused("would replace the root directory"));
        };
        if self.recent.as_ref().is_none_or(|(recent, _)| recent != folder) {
            let opened = match beneath(&self.root, folder) {
                Err(TreeError::Io(error))
                    if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
                {
                    self.make_folder(folder)?
                }
                other => other?,
            };
            self.recent = Some((folder.to_owned(), opened));
        }
        let (_, parent) = self.recent.as_ref().expect("set just above");
        Ok(EntryPath { parent, name })
    }

    fn make_folder(&self, folder: &Path) -> Result<OwnedFd> {
        let mut so_far = PathBuf::new();
        let mut parent = beneath(&self.root, &so_far)?;
        for name in folder {
            so_far.push(name);
            let place = EntryPath { parent: &parent, name };
            let is_link = match place.look()? {
                None => {
                    place.make_directory()?;
                    false
                }
                Some(found) if is_whiteout(&found) => {
                    place.remove()?;
                    place.make_directory()?;
                    place.make_opaque()?;
                    false
                }
                Some(found) => kind(&found) == FileType::Symlink,
            };
            // Step by step, as from the top each time would be a walk of walks. Only a link may lead elsewhere, and only
            // from the top can be told whether that is inside.
            let next = match is_link {
                true => beneath(&self.root, &so_far),
                false => beneath(&parent, Path::new(name)),
            };
            parent = match next {
                Err(TreeError::Io(error)) if error.kind() == io::ErrorKind::NotADirectory => {
                    return Err(TreeError::Refused("lies below something that is not a directory"));
                }
                Err(TreeError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(TreeError::Refused("lies below a symbolic link that leads nowhere"));
                }
                other => other?,
            };
        }
        Ok(parent)
    }
}

impl EntryPath<'_> {
    fn look(&self) -> Result<Option<Stat>> {
        match rustix::fs::statat(self.parent, self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn remove(&self) -> Result<()> {
        Ok(remove(self.parent.as_fd(), self.name)?)
    }

    fn make_directory(&self) -> Result<()> {
        rustix::fs::mkdirat(self.parent, self.name, Mode::from_raw_mode(0o755))?;
        // The mask of this process must not show in an image.
        Ok(rustix::fs::chmodat(self.parent, self.name, Mode::from_raw_mode(0o755), AtFlags::empty())?)
    }

    fn make_opaque(&self) -> Result<()> {
        self.set_xattr(OsStr::new(OPAQUE), b"y")
    }

    /// Owner before mode and attributes, because a change of owner clears set-user-id bits and capabilities.
    fn dress(&self, kind: FileType, attributes: &Attributes) -> Result<()> {
        let (uid, gid) = (Uid::from_raw(attributes.uid), Gid::from_raw(attributes.gid));
        rustix::fs::chownat(self.parent, self.name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        if kind != FileType::Symlink {
            let mode = Mode::from_raw_mode(attributes.mode & 0o7777);
            rustix::fs::chmodat(self.parent, self.name, mode, AtFlags::empty())?;
        }
        for (name, value) in &attributes.xattrs {
            self.set_xattr(name, value)?;
        }
        self.set_times(attributes.mtime)
    }

    fn set_times(&self, mtime: Timespec) -> Result<()> {
        let times = Timestamps { last_access: mtime, last_modification: mtime };
        Ok(rustix::fs::utimensat(self.parent, self.name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// There is no call that takes a directory and a name, so the directory is entered: this process has one thread, and
    /// no path of its own.
    fn set_xattr(&self, name: &OsStr, value: &[u8]) -> Result<()> {
        rustix::process::fchdir(self.parent)?;
        match rustix::fs::lsetxattr(self.name, name, value, XattrFlags::empty()) {
            // Labels of a security module that is not here mean nothing here.
            Err(Errno::NOTSUP) if name.as_bytes() != OPAQUE.as_bytes() => Ok(()),
            other => Ok(other?),
        }
    }
}

fn kind(found: &Stat) -> FileType {
    FileType::from_raw_mode(found.st_mode)
}

fn is_whiteout(found: &Stat) -> bool {
    kind(found) == FileType::CharacterDevice && found.st_rdev == 0
}

/// Opens a directory below `root`, following only links that stay below it.
fn beneath(root: &OwnedFd, path: &Path) -> Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    match retried(|| rustix::fs::openat2(root, path, DIRECTORY, Mode::empty(), resolve)) {
        Err(Errno::AGAIN) => Err(TreeError::Refused("lies behind links that take too long to follow")),
        Err(Errno::XDEV | Errno::LOOP) => {
            Err(TreeError::Refused("lies behind a symbolic link that leads out of the layer"))
        }
        Err(Errno::NAMETOOLONG) => Err(TreeError::Refused("has a path that is longer than any can be")),
        other => Ok(other?),
    }
}

/// Removes an entry and all below it, following nothing.
fn remove(parent: impl AsFd, name: &OsStr) -> io::Result<()> {
    match rustix::fs::unlinkat(&parent, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => {}
        other => return Ok(other?),
    }
    delete_at(parent, name)
}

/// Reads a path of an archive: relative, and never upwards. The empty path is the root directory itself.
pub(super) fn relative(bytes: &[u8]) -> Result<PathBuf> {
    let mut path = PathBuf::new();
    let components = Path::new(OsStr::from_bytes(bytes)).components();
    if components.clone().nth(DEPTH_MAX).is_some() {
        return Err(TreeError::Refused("is more than 1024 directories deep"));
    }
    for component in components {
        match component {
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            Component::ParentDir => return Err(TreeError::Refused("leads out of the layer")),
            Component::RootDir | Component::Prefix(_) => return Err(TreeError::Refused("is an absolute path")),
        }
    }
    Ok(path)
}
