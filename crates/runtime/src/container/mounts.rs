//! What is mounted inside a container, and what is hidden or read-only there.
//!
//! Every target is resolved once, inside the new root, to a descriptor that is then mounted upon: a symbolic
//! link in an image or volume cannot lead a mount out of the container.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, OpenTreeFlags};

use super::create::Surroundings;
use super::plan::ContainerPlan;
use super::rootfs::{attach, o_path};
use super::{Doing, SetupError, devices, stdio, volume};
use crate::cgroup::ContainerCgroup;
use crate::contract::{Mount, MountSource, Propagation};
use crate::sys::descriptors;
use crate::sys::mount::set_attributes;

const MASKED: [&str; 13] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
    "/sys/kernel/debug",
];
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// As many links in a row as the kernel follows.
const LINKS_MAX: usize = 40;

const CLONE: OpenTreeFlags = OpenTreeFlags::OPEN_TREE_CLONE.union(OpenTreeFlags::OPEN_TREE_CLOEXEC);

const NOTHING_SPECIAL: MountAttrFlags =
    MountAttrFlags::MOUNT_ATTR_NOSUID.union(MountAttrFlags::MOUNT_ATTR_NODEV).union(MountAttrFlags::MOUNT_ATTR_NOEXEC);

/// Mounts everything a container sees besides its image. Returns its `/dev/null`.
pub(crate) fn mount_all(
    root: &Root,
    around: &Surroundings<'_>,
    plan: &ContainerPlan,
    cgroup: &ContainerCgroup,
) -> Result<OwnedFd, SetupError> {
    let privileged = plan.spec.privileged;
    let pod = around.pod;
    root.mount_new("proc", "/proc", NOTHING_SPECIAL, &[])?;
    let dev = [("mode", "755"), ("size", "65536k")];
    let dev_flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_STRICTATIME;
    root.mount_new("tmpfs", "/dev", dev_flags, &dev)?;
    let no_suid_no_exec = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let pts = [("mode", "0620"), ("ptmxmode", "0666"), ("gid", "5")];
    root.mount_new("devpts", "/dev/pts", no_suid_no_exec, &pts)?;
    root.mount_new("mqueue", "/dev/mqueue", NOTHING_SPECIAL, &[])?;
    let shm = if around.sandbox.host_ipc { PathBuf::from("/dev/shm") } else { pod.shm() };
    root.bind(&shm, "/dev/shm", 0)?;
    let null = devices::make(root, privileged)?;
    let read_only = if privileged { MountAttrFlags::empty() } else { MountAttrFlags::MOUNT_ATTR_RDONLY };
    root.mount_new("sysfs", "/sys", NOTHING_SPECIAL | read_only, &[])?;
    if cgroup.is_unified() {
        root.mount_new("cgroup2", "/sys/fs/cgroup", NOTHING_SPECIAL | read_only, &[])?;
    } else if !cgroup.v1().is_empty() {
        root.show_v1(&cgroup.v1(), privileged)?;
    }
    for (source, target) in
        [(pod.hosts(), "/etc/hosts"), (pod.hostname(), "/etc/hostname"), (pod.resolv_conf(), "/etc/resolv.conf")]
    {
        root.bind(&source, target, libc::MOUNT_ATTR_NODEV)?;
    }
    if let Some(target) = &plan.spec.termination_message_path {
        root.bind(&pod.container(&plan.spec.id).termination_message(), target, libc::MOUNT_ATTR_NODEV)?;
    }
    // Shorter paths first: a mount must not cover what was mounted below it.
    let mut mounts: Vec<&Mount> = plan.spec.mounts.iter().collect();
    mounts.sort_by_key(|mount| mount.target.split('/').filter(|part| !part.is_empty()).count());
    for mount in mounts {
        root.mount_volume(mount, around, privileged)?;
    }
    if !privileged && !plan.spec.unmasked_proc {
        READ_ONLY.iter().try_for_each(|path| root.make_read_only(path))?;
        MASKED.iter().try_for_each(|path| root.mask(path))?;
    }
    Ok(null)
}

/// A container's root before it is entered.
#[derive(Debug)]
pub(crate) struct Root(pub(crate) OwnedFd);

impl Root {
    /// Opens a path inside the root; `..` and links stay inside it.
    pub(crate) fn find(&self, path: &str) -> rustix::io::Result<OwnedFd> {
        let path = path.trim_start_matches('/');
        let path = if path.is_empty() { "." } else { path };
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        loop {
            // The kernel answers EAGAIN when something was renamed during a `..`.
            match rustix::fs::openat2(&self.0, path, o_path(), Mode::empty(), resolve) {
                Err(Errno::AGAIN) => {}
                found => return found,
            }
        }
    }

    /// The same for what need not be there. Anything but its absence is an error: who cannot look cannot hide.
    fn find_if_there(&self, path: &str) -> rustix::io::Result<Option<OwnedFd>> {
        match self.find(path) {
            Err(Errno::NOENT) => Ok(None),
            found => found.map(Some),
        }
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

    /// Mounts a fresh file system.
    fn mount_new(
        &self,
        kind: &str,
        target: &str,
        attributes: MountAttrFlags,
        options: &[(&str, &str)],
    ) -> Result<(), SetupError> {
        let made = || -> rustix::io::Result<OwnedFd> {
            let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
            rustix::mount::fsconfig_set_string(context.as_fd(), "source", kind)?;
            for (key, value) in options {
                rustix::mount::fsconfig_set_string(context.as_fd(), *key, *value)?;
            }
            rustix::mount::fsconfig_create(context.as_fd())?;
            rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
        };
        let mount = made().doing(|| format!("make {kind} for {target}"))?;
        attach(mount, self.find_or_make(target, true)?)
    }

    /// Shows the container's own v1 groups where programs look for their limits.
    fn show_v1(&self, groups: &[(&Path, &Path)], privileged: bool) -> Result<(), SetupError> {
        const AT: &str = "/sys/fs/cgroup";
        self.mount_new("tmpfs", AT, NOTHING_SPECIAL, &[("mode", "755")])?;
        let read_only = if privileged { 0 } else { libc::MOUNT_ATTR_RDONLY };
        let nothing_special = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOEXEC;
        for (hierarchy, group) in groups {
            let Some(name) = hierarchy.file_name().and_then(|name| name.to_str()) else { continue };
            self.bind(group, &format!("{AT}/{name}"), nothing_special | read_only)?;
        }
        Ok(())
    }

    /// Shows a file or directory of the host at `target`.
    fn bind(&self, source: &Path, target: &str, attributes: u64) -> Result<(), SetupError> {
        let doing = || format!("bind {} to {target}", source.display());
        let mount = rustix::mount::open_tree(CWD, source, CLONE | OpenTreeFlags::AT_RECURSIVE).doing(doing)?;
        self.attach_bound(mount, target, attributes, libc::MS_PRIVATE)
    }

    fn mount_volume(&self, mount: &Mount, around: &Surroundings<'_>, privileged: bool) -> Result<(), SetupError> {
        let source = match &mount.source {
            MountSource::Host(path) => path.clone(),
            MountSource::Memory(name) => around.pod.memory_volume(name),
        };
        let open = || volume::open(&source, mount.sub_path.as_deref());
        let (tree, propagation) = match mount.propagation {
            Propagation::None => (open()?, libc::MS_PRIVATE),
            Propagation::HostToContainer => (open()?, libc::MS_SLAVE),
            // Only the host's own mount has the host for a peer; this process sees a follower of it.
            Propagation::Bidirectional => {
                (volume::in_mount_namespace(descriptors::agreed(stdio::HOST_MOUNTS), open)??, 0)
            }
        };
        let read_only = if mount.read_only { libc::MOUNT_ATTR_RDONLY } else { 0 };
        let no_devices = if privileged { 0 } else { libc::MOUNT_ATTR_NODEV };
        self.attach_bound(tree, &mount.target, read_only | no_devices, propagation)
    }

    fn attach_bound(&self, mount: OwnedFd, target: &str, attributes: u64, propagation: u64) -> Result<(), SetupError> {
        let doing = || format!("mount {target}");
        let stat = rustix::fs::fstat(&mount).doing(doing)?;
        if attributes != 0 || propagation != 0 {
            set_attributes(&mount, attributes, propagation, true).doing(doing)?;
        }
        let directory = FileType::from_raw_mode(stat.st_mode).is_dir();
        attach(mount, self.find_or_make(target, directory)?)
    }

    /// Makes a part of the tree read-only by mounting it onto itself. What does not exist needs no protection.
    fn make_read_only(&self, path: &str) -> Result<(), SetupError> {
        let doing = || format!("make {path} read-only");
        let Some(target) = self.find_if_there(path).doing(doing)? else { return Ok(()) };
        let mount = clone_of(&target).doing(doing)?;
        set_attributes(&mount, libc::MOUNT_ATTR_RDONLY, 0, true).doing(doing)?;
        attach(mount, target)
    }

    /// Hides a file behind `/dev/null`, a directory behind an empty one.
    fn mask(&self, path: &str) -> Result<(), SetupError> {
        let doing = || format!("mask {path}");
        let Some(target) = self.find_if_there(path).doing(doing)? else { return Ok(()) };
        let stat = rustix::fs::fstat(&target).doing(doing)?;
        if FileType::from_raw_mode(stat.st_mode).is_dir() {
            return self.mount_new("tmpfs", path, NOTHING_SPECIAL | MountAttrFlags::MOUNT_ATTR_RDONLY, &[]);
        }
        let null = self.find("/dev/null").doing(doing)?;
        attach(clone_of(&null).doing(doing)?, target)
    }
}

/// A detached copy of what a descriptor refers to, with all that is mounted below it.
pub(super) fn clone_of(tree: impl AsFd) -> rustix::io::Result<OwnedFd> {
    rustix::mount::open_tree(tree, "", CLONE | OpenTreeFlags::AT_EMPTY_PATH | OpenTreeFlags::AT_RECURSIVE)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_what_is_not_there_need_not_be_hidden() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("proc")).unwrap();
        symlink("keys", dir.path().join("proc/keys")).unwrap();
        std::fs::write(dir.path().join("sys"), "no directory").unwrap();
        let root = Root(rustix::fs::open(dir.path(), o_path(), Mode::empty()).unwrap());
        for absent in ["/proc/acpi", "/dev/x/y"] {
            assert!(root.mask(absent).is_ok() && root.make_read_only(absent).is_ok(), "{absent}");
        }
        for unclear in ["/proc/keys", "/sys/firmware"] {
            assert!(root.mask(unclear).is_err() && root.make_read_only(unclear).is_err(), "{unclear}");
        }
    }
}
