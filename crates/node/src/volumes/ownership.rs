//! Gives a volume to the group of a pod (`fsGroup`): everything in it, reached by descriptors and through no link.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// What the group may do with a directory; what is made in it is the group's too.
const DIRECTORY_MODE: u32 = 0o2770;
/// What it may do with a file.
const FILE_MODE: u32 = 0o660;

/// Whether the top of the volume is as it would be afterwards: then so is what is in it, unless somebody changed it.
fn is_given(top: BorrowedFd<'_>, group: u32) -> io::Result<bool> {
    let stat = rustix::fs::fstat(top)?;
    Ok(stat.st_gid == group && stat.st_mode & DIRECTORY_MODE == DIRECTORY_MODE)
}

/// Gives everything below `top` to `group`; with `only_on_mismatch`, unless the top says that it was.
pub(super) fn give(top: &OwnedFd, group: u32, only_on_mismatch: bool) -> io::Result<()> {
    if only_on_mismatch && is_given(top.as_fd(), group)? {
        return Ok(());
    }
    let mut left: Vec<CString> = vec![c".".to_owned()];
    while let Some(path) = left.pop() {
        let directory = match below(top.as_fd(), &path) {
            Ok(directory) => directory,
            // Gone, or something else by now; or deeper than any path reaches.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::NAMETOOLONG) => continue,
            Err(errno) => return Err(errno.into()),
        };
        for entry in Dir::read_from(directory.as_fd())? {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            if give_one(directory.as_fd(), name, group)? == Some(FileType::Directory) {
                let mut inside = path.to_bytes().to_vec();
                inside.push(b'/');
                inside.extend(name.to_bytes());
                left.extend(CString::new(inside));
            }
        }
    }
    // Last: whoever finds it done may rely on the rest.
    change(top.as_fd(), group)
}

fn below(top: BorrowedFd<'_>, path: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    rustix::fs::openat2(top, path, flags, Mode::empty(), resolve)
}

/// Gives one entry of a directory, and tells what it is.
fn give_one(directory: BorrowedFd<'_>, name: &CStr, group: u32) -> io::Result<Option<FileType>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let entry = match rustix::fs::openat(directory, name, flags, Mode::empty()) {
        Ok(entry) => entry,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&entry)?.st_mode);
    change(entry.as_fd(), group)?;
    Ok(Some(kind))
}

/// Changes what a descriptor refers to. Links, devices and the like get the group and keep their mode.
fn change(entry: BorrowedFd<'_>, group: u32) -> io::Result<()> {
    let stat = rustix::fs::fstat(entry)?;
    let (kind, mode) = (FileType::from_raw_mode(stat.st_mode), stat.st_mode & 0o7777);
    if stat.st_gid != group {
        rustix::fs::chownat(entry, "", None, Some(Gid::from_raw(group)), AtFlags::EMPTY_PATH)?;
    }
    let wanted = match kind {
        FileType::Directory => mode | DIRECTORY_MODE,
        FileType::RegularFile => mode | FILE_MODE,
        FileType::Symlink
        | FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => return Ok(()),
    };
    // A new group takes away the bits that follow from it.
    let now = rustix::fs::fstat(entry)?.st_mode & 0o7777;
    if now == wanted {
        return Ok(());
    }
    // A descriptor that only names its file cannot change it; the kernel's own link to it leads nowhere else.
    let link = format!("/proc/self/fd/{}", entry.as_raw_fd());
    Ok(rustix::fs::chmod(link, Mode::from_raw_mode(wanted))?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::path::Path;

    use super::*;

    fn seen(path: &Path) -> (u32, u32) {
        let found = fs::symlink_metadata(path).unwrap();
        (found.gid(), found.permissions().mode() & 0o7777)
    }

    #[test]
    fn ownership_is_given_inside_the_volume_and_through_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let (top, outside) = (dir.path().join("volume"), dir.path().join("outside"));
        fs::create_dir_all(top.join("a/b")).unwrap();
        fs::create_dir(&outside).unwrap();
        for file in [top.join("a/b/file"), outside.join("secret")] {
            fs::write(&file, "").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        }
        symlink(&outside, top.join("a/link")).unwrap();
        symlink("../outside/secret", top.join("file-link")).unwrap();
        let own = fs::metadata(&top).unwrap().gid();
        // Only root gives to others; the modes are given by everybody.
        let group = if rustix::process::geteuid().is_root() { 4242 } else { own };
        let before = seen(&outside.join("secret"));
        let opened = rustix::fs::open(&top, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        give(&opened, group, true).unwrap();
        assert_eq!(seen(&top.join("a/b/file")), (group, 0o660));
        assert_eq!(seen(&top.join("a/b")).1 & 0o2770, 0o2770);
        assert_eq!(seen(&top).0, group);
        assert_eq!(seen(&outside.join("secret")), before);
        assert_eq!(seen(&outside).1 & 0o2000, 0);
        // What was given is not looked through again, unless that is asked for.
        fs::write(top.join("late"), "").unwrap();
        fs::set_permissions(top.join("late"), fs::Permissions::from_mode(0o600)).unwrap();
        give(&opened, group, true).unwrap();
        assert_eq!(seen(&top.join("late")).1, 0o600);
        give(&opened, group, false).unwrap();
        assert_eq!(seen(&top.join("late")).1, 0o660);
    }
}
