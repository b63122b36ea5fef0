//! Who may enter the data directory: this user alone.
//!
//! Keys and secrets are in it, and what pods write: a set-user-id program in an emptyDir or a layer makes whoever reaches it
//! from the host that user. So the directory and those in it that pods write to are closed before anything is put there, and
//! one that somebody else could have prepared, or could exchange, is refused.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rustix::fs::{Mode, OFlags};

/// What an instance keeps in the directory, and what people put there for it.
const OURS: [&str; 22] = [
    "admin.kubeconfig",
    "base",
    "cgroup2",
    "config.json",
    "control.sock",
    "images",
    "instance",
    "kubeconfig",
    "lock",
    "logs",
    "lost+found",
    "manifests",
    "network",
    "node",
    "pki",
    "pods",
    "registries.yaml",
    "reserve",
    "seccomp",
    "service-cidr",
    "store",
    "store.mark",
];
/// Directories in it, each closed by itself as well. Of those that are not there yet, whoever makes them closes them; those of
/// the node are made here, before a pod's volumes are.
const DIRECTORIES: [&str; 11] =
    ["base", "images", "logs", "manifests", "network", "node", "node/pods", "pki", "pods", "seccomp", "store"];

const CLOSED: u32 = 0o700;
const STICKY: u32 = 0o1000;

/// What decides whether a directory can be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Access {
    owner: u32,
    group: u32,
    mode: u32,
}

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct User {
    uid: u32,
    gid: u32,
}

impl Access {
    /// Whether somebody besides its owner may put things into it.
    fn is_writable_by_others(self, user: User) -> bool {
        let by_group = self.mode & 0o020 != 0 && self.group != 0 && self.group != user.gid;
        by_group || self.mode & 0o002 != 0
    }

    fn is_closed(self) -> bool {
        self.mode & 0o077 == 0
    }
}

/// Makes the directory if it is missing, and closes it to others; refuses one that cannot be trusted.
pub(crate) fn secure(dir: &Path) -> Result<()> {
    let shown = dir.display();
    let doing = || format!("cannot use the folder {shown}");
    DirBuilder::new().recursive(true).mode(CLOSED).create(dir).with_context(doing)?;
    let user = User { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() };
    let link = fs::symlink_metadata(dir).with_context(doing)?;
    check_link(dir, link.is_symlink(), link.uid(), user)?;
    let real = fs::canonicalize(dir).with_context(doing)?;
    for above in dir.ancestors().skip(1).chain(real.ancestors().skip(1)).filter(|path| !path.as_os_str().is_empty()) {
        // Whoever gives such a path may know who its owner is; everybody else is to hear of it.
        if let Err(why) = check_above(above, access(&fs::metadata(above).with_context(doing)?), user) {
            tracing::warn!("{why}");
        }
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(&real, flags, Mode::empty()).with_context(doing)?;
    let found = fs::File::from(opened);
    let before = access(&found.metadata().with_context(doing)?);
    let names = fs::read_dir(dir).and_then(Iterator::collect::<io::Result<Vec<_>>>).with_context(doing)?;
    let names: Vec<String> = names.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    check(dir, before, &names, user)?;
    if let Some(name) = foreign(&names).filter(|_| !before.is_closed()) {
        tracing::warn!(
            dir = %shown, name, "the data directory holds files of others and stays open to them; what is Adieu's in it is closed"
        );
    } else if !before.is_closed() {
        rustix::fs::fchmod(&found, Mode::from_raw_mode(CLOSED)).with_context(doing)?;
        tracing::info!(dir = %shown, mode = format!("{:o}", before.mode & 0o7777), "closed the data directory to others");
    }
    for name in DIRECTORIES {
        close(&dir.join(name), user)?;
    }
    Ok(())
}

/// Makes the directories that hold volumes of pods, closed to others.
pub(crate) fn make_node_directories(dir: &Path) -> Result<()> {
    let path = dir.join("node/pods");
    let made = DirBuilder::new().recursive(true).mode(CLOSED).create(&path);
    made.with_context(|| format!("cannot make {}", path.display()))
}

fn access(found: &fs::Metadata) -> Access {
    Access { owner: found.uid(), group: found.gid(), mode: found.mode() }
}

/// Whoever can change a symbolic link decides where keys and pods are.
fn check_link(dir: &Path, is_link: bool, owner: u32, user: User) -> Result<()> {
    let shown = dir.display();
    ensure!(
        !is_link || owner == 0 || owner == user.uid,
        "{shown} is a symbolic link of user {owner}, who decides where keys and pods are; give --data-dir what it leads to"
    );
    Ok(())
}

/// Whoever can write to a directory above can put another in the place of ours.
fn check_above(above: &Path, found: Access, user: User) -> Result<()> {
    let shown = above.display();
    ensure!(
        found.owner == 0 || found.owner == user.uid,
        "{shown} belongs to user {}, who could exchange the data directory in it; choose another --data-dir",
        found.owner
    );
    ensure!(
        !found.is_writable_by_others(user) || found.mode & STICKY != 0,
        "{shown} can be written to by others, who could exchange the data directory in it; \
         run `chmod go-w {shown}`, or choose another --data-dir"
    );
    Ok(())
}

/// Why the directory itself cannot be used, with these entries in it.
fn check(dir: &Path, found: Access, names: &[String], user: User) -> Result<()> {
    let shown = dir.display();
    ensure!(
        found.owner == user.uid,
        "{shown} belongs to user {}, not to user {}, whose keys and pods would be in it; look at what is in it, then run \
         `chown {2} {shown} && chmod 700 {shown}`, or choose another --data-dir",
        found.owner,
        user.uid,
        user.uid
    );
    ensure!(found.mode & STICKY == 0, "{shown} is a directory for everybody's files; choose another --data-dir");
    ensure!(
        names.is_empty() || !found.is_writable_by_others(user),
        "{shown} can be written to by others, and what is in it may be theirs; look at it, then run `chmod 700 {shown}`, \
         or choose another --data-dir"
    );
    Ok(())
}

/// What of somebody else's is in a directory that has been no instance's yet. Closing it could take away from others what they
/// use, the whole machine's programs if somebody writes `--data-dir /var/lib`.
fn foreign(names: &[String]) -> Option<&String> {
    if names.iter().any(|name| name == "instance") {
        return None;
    }
    names.iter().find(|name| !name.starts_with('.') && !OURS.contains(&name.as_str()))
}

/// Closes a directory of ours, if it is there.
fn close(path: &Path, user: User) -> Result<()> {
    let doing = || format!("cannot use {}", path.display());
    // What a link leads to is somebody's own place, `/etc/kubernetes/manifests` for one.
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) {
        return Ok(());
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = match rustix::fs::open(path, flags, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        opened => fs::File::from(opened.with_context(doing)?),
    };
    let found = access(&opened.metadata().with_context(doing)?);
    ensure!(
        found.owner == user.uid,
        "{} belongs to user {}, not to user {}; look at what is in it, then change its owner or remove it",
        path.display(),
        found.owner,
        user.uid
    );
    if !found.is_closed() {
        rustix::fs::fchmod(&opened, Mode::from_raw_mode(CLOSED)).with_context(doing)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    const ROOT: User = User { uid: 0, gid: 0 };
    const SOMEBODY: User = User { uid: 1000, gid: 1000 };

    fn judged(owner: u32, group: u32, mode: u32, names: &[&str], user: User) -> String {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        check(Path::new("/d"), Access { owner, group, mode }, &names, user)
            .map_or_else(|error| error.to_string(), |()| "usable".to_owned())
    }

    /// [SE-109]
    #[test]
    fn directory_that_somebody_else_could_have_prepared_is_refused_with_a_way_out() {
        for usable in [
            judged(0, 0, 0o700, &["anything"], ROOT),
            judged(0, 0, 0o755, &[], ROOT),
            judged(0, 0, 0o755, &["lost+found", "registries.yaml", "manifests"], ROOT),
            judged(0, 0, 0o755, &["anything"], ROOT),
            judged(0, 0, 0o777, &[], ROOT),
            judged(1000, 1000, 0o775, &["store", "instance"], SOMEBODY),
        ] {
            assert_eq!(usable, "usable");
        }
        for (refused, why, way_out) in [
            (judged(1000, 0, 0o700, &[], ROOT), "belongs to user 1000", "chown 0 /d && chmod 700 /d"),
            (judged(0, 0, 0o700, &[], SOMEBODY), "belongs to user 0", "chown 1000 /d"),
            (judged(0, 0, 0o1777, &[], ROOT), "everybody's files", "another --data-dir"),
            (judged(0, 0, 0o777, &["instance"], ROOT), "written to by others", "chmod 700 /d"),
            (judged(0, 50, 0o770, &["instance"], ROOT), "written to by others", "chmod 700 /d"),
        ] {
            assert!(refused.contains(why) && refused.contains(way_out), "{refused}");
        }
    }

    #[test]
    fn directory_above_that_others_can_write_to_is_refused_unless_it_is_sticky() {
        let above = |owner, group, mode| {
            check_above(Path::new("/above"), Access { owner, group, mode }, ROOT)
                .map_or_else(|error| error.to_string(), |()| "usable".to_owned())
        };
        assert_eq!(above(0, 0, 0o1777), "usable");
        assert_eq!(above(0, 0, 0o775), "usable");
        assert!(above(0, 0, 0o777).contains("chmod go-w /above"));
        assert!(above(0, 50, 0o775).contains("exchange the data directory"));
        assert!(above(1000, 0, 0o755).contains("belongs to user 1000"));
    }

    #[test]
    fn open_directory_is_closed_with_all_that_pods_write_to() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        for name in ["", "images", "node", "node/pods", "pods", "logs", "store"] {
            fs::create_dir(data.join(name)).unwrap();
            fs::set_permissions(data.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        secure(&data).unwrap();
        for name in ["", "images", "node", "node/pods", "pods", "logs", "store"] {
            assert_eq!(fs::metadata(data.join(name)).unwrap().mode() & 0o7777, 0o700, "{name}");
        }
        let used = dir.path().join("used");
        fs::create_dir(&used).unwrap();
        fs::write(used.join("theirs"), "").unwrap();
        for name in ["", "pods"] {
            let _ = fs::create_dir(used.join(name));
            fs::set_permissions(used.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        secure(&used).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!((mode(&used), mode(&used.join("pods"))), (0o755, 0o700), "others keep what they have in it");
        fs::write(used.join("instance"), "").unwrap();
        secure(&used).unwrap();
        assert_eq!(mode(&used), 0o700, "it is an instance's now");
        let fresh = dir.path().join("a/b");
        secure(&fresh).unwrap();
        make_node_directories(&fresh).unwrap();
        assert_eq!(fs::metadata(fresh.join("node/pods")).unwrap().mode() & 0o7777, 0o700);
    }

    #[test]
    fn symbolic_link_of_somebody_else_is_refused_and_our_own_is_followed() {
        let judged = |owner| check_link(Path::new("/d"), true, owner, SOMEBODY).is_ok();
        assert_eq!([judged(0), judged(1000), judged(1001)], [true, true, false]);
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("real")).unwrap();
        fs::set_permissions(dir.path().join("real"), fs::Permissions::from_mode(0o755)).unwrap();
        symlink(dir.path().join("real"), dir.path().join("link")).unwrap();
        fs::create_dir(dir.path().join("theirs")).unwrap();
        fs::set_permissions(dir.path().join("theirs"), fs::Permissions::from_mode(0o755)).unwrap();
        symlink(dir.path().join("theirs"), dir.path().join("real/manifests")).unwrap();
        secure(&dir.path().join("link")).unwrap();
        let mode = |name: &str| fs::metadata(dir.path().join(name)).unwrap().mode() & 0o7777;
        assert_eq!((mode("real"), mode("theirs")), (0o700, 0o755));
    }
}
