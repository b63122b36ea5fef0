//! Deleting what containers left behind, however deep they made it.
//!
//! A container may make directories in each other by the hundred thousand. Whoever follows them by recursion runs out of
//! stack, and whoever follows them by paths, out of path. So they are followed a few levels at a time: what is deeper is
//! moved up to the top first. Links are not followed, and neither are mounts: what is mounted there is somebody else's.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;

/// So many levels are followed at a time, with two descriptors for each.
const LEVELS_MAX: usize = 32;

/// Deletes a directory and all below it. Whoever adds to it meanwhile may find it staying.
pub fn delete_tree(path: &Path) -> io::Result<()> {
    delete_at(CWD, path)
}

/// Goes on deleting a directory and all below it, and tells whether it is gone; if not, so many files of it are. One that is
/// not gone has become smaller, so that asking again leads to an end.
pub fn delete_part(path: &Path, files_max: u64) -> io::Result<bool> {
    delete_some(CWD, path, files_max)
}

/// Deletes the directory called `name` in `parent`.
pub fn delete_at(parent: impl AsFd, name: impl rustix::path::Arg + Copy) -> io::Result<()> {
    delete_some(parent, name, u64::MAX).map(drop)
}

fn delete_some(parent: impl AsFd, name: impl rustix::path::Arg + Copy, files_max: u64) -> io::Result<bool> {
    let top = open(&parent, name)?;
    let mut tree = Tree { top: top.as_fd(), moved: 0, left: files_max };
    loop {
        let before = tree.moved;
        let emptied = tree.empty(top.as_fd(), 0);
        // What could not be deleted meets whoever goes on.
        if tree.left == 0 {
            return Ok(false);
        }
        if tree.moved == before {
            emptied?;
            rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR)?;
            return Ok(true);
        }
    }
}

struct Tree<'a> {
    top: BorrowedFd<'a>,
    /// How many directories were moved up.
    moved: u64,
    /// How many more may be deleted.
    left: u64,
}

impl Tree<'_> {
    /// Deletes everything in a directory, or moves it up. What cannot be deleted keeps nothing else from it; the first
    /// refusal is the answer.
    fn empty(&mut self, directory: BorrowedFd<'_>, level: usize) -> io::Result<()> {
        let mut done = Ok(());
        for entry in Dir::read_from(directory)? {
            if self.left == 0 {
                break;
            }
            let entry = entry?;
            let name = entry.file_name();
            if name != c"." && name != c".." {
                let deleted = self.delete(directory, name, entry.file_type(), level);
                self.left -= u64::from(deleted.is_ok() && self.left > 0);
                done = done.and(deleted);
            }
        }
        done
    }

    fn delete(&mut self, directory: BorrowedFd<'_>, name: &CStr, kind: FileType, level: usize) -> io::Result<()> {
        if kind != FileType::Directory {
            match gone(rustix::fs::unlinkat(directory, name, AtFlags::empty())) {
                // Not every file system tells what its entries are.
                Err(Errno::ISDIR) => {}
                deleted => return Ok(deleted?),
            }
        }
        match rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) if level < LEVELS_MAX => {
                let below = open_below(directory, name)?;
                self.empty(below.as_fd(), level + 1)?;
                if self.left == 0 {
                    return Ok(());
                }
                Ok(gone(rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR))?)
            }
            Err(Errno::NOTEMPTY | Errno::EXIST) => self.move_up(directory, name),
            deleted => Ok(gone(deleted)?),
        }
    }

    fn move_up(&mut self, directory: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
        loop {
            self.moved += 1;
            let place = format!(".moved-up-{}", self.moved);
            match rustix::fs::renameat_with(directory, name, self.top, place.as_str(), RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) => {}
                moved => return Ok(moved?),
            }
        }
    }
}

fn open(parent: impl AsFd, name: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

/// The same for a directory that must be of the same mount.
fn open_below(parent: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(parent, name, flags, Mode::empty(), ResolveFlags::NO_XDEV)
}

/// What somebody else has deleted is as good as deleted.
fn gone(deleted: rustix::io::Result<()>) -> rustix::io::Result<()> {
    match deleted {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn directory_tree_deeper_than_stack_and_path_limits_is_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("top");
        fs::create_dir(&top).unwrap();
        let mut directory = open(CWD, &top).unwrap();
        for level in 0..40_000 {
            rustix::fs::mkdirat(&directory, c"d", Mode::RWXU).unwrap();
            if level % 1000 == 0 {
                // Names like those that are used on the way.
                rustix::fs::mkdirat(&directory, format!(".moved-up-{}", level / 1000), Mode::RWXU).unwrap();
            }
            directory = open(&directory, c"d").unwrap();
        }
        drop(directory);
        let small = std::thread::Builder::new().stack_size(256 * 1024);
        small.spawn(move || delete_tree(&top)).unwrap().join().unwrap().unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn part_of_a_tree_is_deleted_at_a_time_and_at_last_all_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("top");
        for n in 0..10 {
            fs::create_dir_all(top.join(format!("{n}/deep"))).unwrap();
            (0..10).for_each(|file| fs::write(top.join(format!("{n}/deep/{file}")), "").unwrap());
        }
        let count = || {
            let below = |n: usize| fs::read_dir(top.join(format!("{n}/deep"))).map_or(0, Iterator::count);
            (0..10).map(below).sum::<usize>()
        };
        let mut parts = 1;
        while !delete_part(&top, 7).unwrap() {
            assert!(count() + 7 * parts >= 100, "no more than asked for");
            parts += 1;
        }
        assert!(!top.exists() && (100 / 7..40).contains(&parts), "{parts}");
        assert_eq!(delete_part(&top, 7).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn links_are_deleted_and_not_what_they_lead_to() {
        let dir = tempfile::tempdir().unwrap();
        let (top, other) = (dir.path().join("top"), dir.path().join("other"));
        fs::create_dir_all(top.join("a/b")).unwrap();
        fs::create_dir(&other).unwrap();
        fs::write(other.join("kept"), "").unwrap();
        symlink(&other, top.join("a/link")).unwrap();
        symlink("nowhere", top.join("a/b/dangling")).unwrap();
        delete_tree(&top).unwrap();
        assert!(!top.exists() && other.join("kept").exists());
        assert_eq!(delete_tree(&top).unwrap_err().kind(), io::ErrorKind::NotFound);
        symlink(&other, &top).unwrap();
        assert!(delete_tree(&top).is_err(), "a link is not a directory");
        assert!(other.join("kept").exists());
    }
}
