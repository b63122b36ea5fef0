//! The directories of persistent volumes that this node makes: `<volume>_<namespace>_<claim>` below one directory of its own.
//!
//! Everything is reached from one descriptor, by plain file names and through no link, so whatever containers put into their volumes,
//! nothing outside of it is made, moved or removed. A volume that is given up is first moved away, which is one step, and emptied later.
//!
//! The directory has a mark in it. Where the mark is missing that was there before, its disk is not mounted: then nothing is made there
//! and nothing removed.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

/// The mark, in the directory.
const MARK: &str = ".adieu-volumes";
/// Where volumes are moved that are given up.
const TRASH: &str = ".trash";

/// The directory of this node's volumes.
#[derive(Debug)]
pub struct LocalDirectories {
    path: PathBuf,
    top: OwnedFd,
}

fn directory() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

impl LocalDirectories {
    /// Opens `path`, which is made if it never was. `memory` is a file elsewhere that remembers its mark; a new one is `fresh`.
    pub fn open(path: &Path, memory: &Path, fresh: &str) -> io::Result<Self> {
        let known = match std::fs::read_to_string(memory) {
            Ok(known) => Some(known),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if known.is_none() {
            std::fs::create_dir_all(path)?;
        }
        let top = rustix::fs::open(path, directory(), Mode::empty())?;
        let found =
            match rustix::fs::openat(&top, MARK, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
                Ok(file) => Some(io::read_to_string(std::fs::File::from(file))?),
                Err(Errno::NOENT) => None,
                Err(errno) => return Err(errno.into()),
            };
        match (known, found) {
            (Some(known), Some(found)) if known == found => {}
            (Some(_), _) => {
                let why = format!("{} is not the directory that it was: is its disk mounted?", path.display());
                return Err(io::Error::other(why));
            }
            // Marked just before a crash, or of a node that lost its own folder.
            (None, Some(found)) => remember(memory, &found)?,
            (None, None) => {
                rustix::fs::fchmod(&top, Mode::RWXU)?;
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let mut file = std::fs::File::from(rustix::fs::openat(&top, MARK, flags, Mode::RUSR | Mode::WUSR)?);
                io::Write::write_all(&mut file, fresh.as_bytes())?;
                file.sync_all()?;
                rustix::fs::fsync(&top)?;
                remember(memory, fresh)?;
            }
        }
        Ok(Self { path: path.to_owned(), top })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the directory of a volume, open to everybody who gets it mounted. One that is there stays as it is.
    pub fn make(&self, name: &str) -> io::Result<()> {
        match rustix::fs::mkdirat(&self.top, name, Mode::RWXU) {
            Ok(()) => {
                let made = self.open_one(name)?;
                rustix::fs::fchmod(&made, Mode::from_raw_mode(0o777))?;
            }
            Err(Errno::EXIST) => drop(self.open_one(name)?),
            Err(errno) => return Err(errno.into()),
        }
        Ok(rustix::fs::fsync(&self.top)?)
    }

    /// The directory of a volume.
    pub fn open_one(&self, name: &str) -> io::Result<OwnedFd> {
        Ok(rustix::fs::openat(&self.top, name, directory(), Mode::empty())?)
    }

    /// Moves the directory of a volume away, for ever. One that is not there is as good as moved.
    pub fn give_up(&self, name: &str) -> io::Result<()> {
        let trash = self.trash()?;
        for number in 0_u32.. {
            let place = format!("{number}.{name}");
            // The longest names leave no room for a number.
            let place = place.get(..255).unwrap_or(&place);
            match rustix::fs::renameat_with(&self.top, name, &trash, place, RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) => {}
                Ok(()) | Err(Errno::NOENT) => break,
                Err(errno) => return Err(errno.into()),
            }
        }
        rustix::fs::fsync(&trash)?;
        Ok(rustix::fs::fsync(&self.top)?)
    }

    fn trash(&self) -> io::Result<OwnedFd> {
        match rustix::fs::mkdirat(&self.top, TRASH, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => self.open_one(TRASH),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Removes what was given up. What cannot be removed keeps nothing else from it; the first refusal is the answer.
    pub fn empty_trash(&self) -> io::Result<()> {
        let trash = self.trash()?;
        let mut done = Ok(());
        for entry in Dir::read_from(trash.as_fd())? {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let removed = match file_tree::delete_at(&trash, name) {
                // No directory: whoever put it here has made something else of it.
                Err(error) if is_no_directory(&error) => {
                    rustix::fs::unlinkat(&trash, name, AtFlags::empty()).map_err(io::Error::from)
                }
                removed => removed,
            };
            done = done.and(removed);
        }
        done
    }
}

fn is_no_directory(error: &io::Error) -> bool {
    let errno = error.raw_os_error();
    [Errno::NOTDIR, Errno::LOOP].iter().any(|known| errno == Some(known.raw_os_error()))
}

fn remember(memory: &Path, mark: &str) -> io::Result<()> {
    let mut file = std::fs::File::create(memory)?;
    io::Write::write_all(&mut file, mark.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn opened(dir: &Path) -> io::Result<LocalDirectories> {
        LocalDirectories::open(&dir.join("volumes"), &dir.join("mark"), "mine")
    }

    /// [WL-163] Whatever is repeated after a crash, there is one directory, and nothing of one that was given up.
    #[test]
    fn local_directory_is_made_once_given_up_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let volumes = opened(dir.path()).unwrap();
        let one = dir.path().join("volumes/pvc-1_ns_c");
        volumes.make("pvc-1_ns_c").unwrap();
        assert_eq!(fs::metadata(&one).unwrap().permissions().mode() & 0o7777, 0o777);
        assert_eq!(fs::metadata(dir.path().join("volumes")).unwrap().permissions().mode() & 0o7777, 0o700);
        fs::write(one.join("file"), "kept").unwrap();
        volumes.make("pvc-1_ns_c").unwrap();
        assert_eq!(fs::read_to_string(one.join("file")).unwrap(), "kept");
        volumes.give_up("pvc-1_ns_c").unwrap();
        volumes.give_up("pvc-1_ns_c").unwrap();
        assert!(!one.exists());
        volumes.make("pvc-1_ns_c").unwrap();
        volumes.give_up("pvc-1_ns_c").unwrap();
        let long = "p".repeat(255);
        volumes.make(&long).unwrap();
        volumes.give_up(&long).unwrap();
        assert_eq!(fs::read_dir(dir.path().join("volumes/.trash")).unwrap().count(), 3);
        drop(volumes);
        opened(dir.path()).unwrap().empty_trash().unwrap();
        assert_eq!(fs::read_dir(dir.path().join("volumes/.trash")).unwrap().count(), 0);
    }

    #[test]
    fn local_directory_that_is_a_link_leads_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("secret"), "").unwrap();
        let volumes = opened(dir.path()).unwrap();
        symlink(&outside, dir.path().join("volumes/pvc-1_ns_c")).unwrap();
        assert!(volumes.make("pvc-1_ns_c").is_err() && volumes.open_one("pvc-1_ns_c").is_err());
        volumes.give_up("pvc-1_ns_c").unwrap();
        // And one that is full of links.
        volumes.make("pvc-2_ns_c").unwrap();
        let two = dir.path().join("volumes/pvc-2_ns_c");
        symlink(&outside, two.join("absolute")).unwrap();
        symlink("../../outside", two.join("relative")).unwrap();
        fs::create_dir(two.join("sub")).unwrap();
        symlink(outside.join("secret"), two.join("sub/file")).unwrap();
        volumes.give_up("pvc-2_ns_c").unwrap();
        volumes.empty_trash().unwrap();
        assert!(outside.join("secret").exists());
        assert_eq!(fs::read_dir(dir.path().join("volumes/.trash")).unwrap().count(), 0);
    }

    /// [WL-164] A directory whose disk is not mounted is not taken for an empty one.
    #[test]
    fn local_directories_without_their_mark_are_not_used() {
        let dir = tempfile::tempdir().unwrap();
        opened(dir.path()).unwrap().make("pvc-1_ns_c").unwrap();
        fs::rename(dir.path().join("volumes"), dir.path().join("away")).unwrap();
        assert!(opened(dir.path()).is_err());
        assert!(!dir.path().join("volumes").exists());
        fs::create_dir(dir.path().join("volumes")).unwrap();
        let error = opened(dir.path()).unwrap_err();
        assert!(error.to_string().contains("is its disk mounted?"), "{error}");
        fs::remove_dir(dir.path().join("volumes")).unwrap();
        fs::rename(dir.path().join("away"), dir.path().join("volumes")).unwrap();
        assert!(opened(dir.path()).unwrap().open_one("pvc-1_ns_c").is_ok());
        // A crash between the two marks: the one that is there is taken.
        fs::remove_file(dir.path().join("mark")).unwrap();
        assert!(opened(dir.path()).is_ok() && opened(dir.path()).is_ok());
    }
}
