//! What is mounted inside a container.
//!
//! `/proc`, `/sys` and `/dev` are mounted on directories of the root itself, through no link, and are looked at again when
//! everything is mounted: a container that did not get them as they must be does not start. Every other target is resolved
//! once, inside the new root, to a descriptor that is then mounted upon: a symbolic link in an image or volume cannot lead a
//! mount out of the container, nor into the kernel's own file systems.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, FsWord};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, OpenTreeFlags};

use super::create::Surroundings;
use super::file_system::{self, FileSystem};
use super::plan::ContainerPlan;
use super::root::{MountedInode, Root, directory_in, open_same_mount};
use super::rootfs::attach;
use super::{Doing, SetupError, devices, masked_paths, stdio, volume};
use crate::cgroup::ContainerCgroup;
use crate::contract::{Mount, MountSource, Propagation};
use crate::sys::descriptors;
use crate::sys::mount::set_attributes;

/// Files of `/proc` that a volume may cover, as upstream lets it: what they tell of the machine may be told otherwise.
const PROC_FILES: [&str; 9] =
    ["cpuinfo", "diskstats", "loadavg", "meminfo", "net/dev", "slabinfo", "stat", "swaps", "uptime"];

const CLONE: OpenTreeFlags = OpenTreeFlags::OPEN_TREE_CLONE.union(OpenTreeFlags::OPEN_TREE_CLOEXEC);

pub(super) const NOTHING_SPECIAL: MountAttrFlags =
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
    let proc = mount_new("proc", root.own_directory("/proc")?, "/proc", NOTHING_SPECIAL, &[])?;
    let (dev, null) = mount_dev(root, around, privileged)?;
    let read_only = if privileged { MountAttrFlags::empty() } else { MountAttrFlags::MOUNT_ATTR_RDONLY };
    let sys = mount_new("sysfs", root.own_directory("/sys")?, "/sys", NOTHING_SPECIAL | read_only, &[])?;
    show_cgroups(&sys, cgroup, privileged)?;
    verify_mounted(root, "/dev", &dev, file_system::TMPFS)?;
    verify_mounted(root, "/sys", &sys, file_system::SYSFS)?;

    let inside = Inside { root, proc: &proc, dev: &dev, sys: &sys, privileged };
    // As read-only as the root that they are files of.
    let of_root = if plan.spec.read_only_root { libc::MOUNT_ATTR_RDONLY } else { 0 };
    for (source, target) in
        [(pod.hosts(), "/etc/hosts"), (pod.hostname(), "/etc/hostname"), (pod.resolv_conf(), "/etc/resolv.conf")]
    {
        inside.bind(&source, target, libc::MOUNT_ATTR_NODEV | of_root)?;
    }
    if let Some(target) = &plan.spec.termination_message_path {
        inside.bind(&pod.container(&plan.spec.id).termination_message(), target, libc::MOUNT_ATTR_NODEV)?;
    }
    // Shorter paths first: a mount must not cover what was mounted below it.
    let mut mounts: Vec<&Mount> = plan.spec.mounts.iter().collect();
    mounts.sort_by_key(|mount| mount.target.split('/').filter(|part| !part.is_empty()).count());
    for mount in mounts {
        inside.mount_volume(mount, around)?;
    }
    if !privileged && !plan.spec.unmasked_proc {
        masked_paths::apply(root, null.as_fd())?;
    }
    verify_mounted(root, "/proc", &proc, file_system::PROC)?;
    // Once more, as volumes were mounted since: only one that is meant for them may cover these.
    for (path, mount, kind) in [("/dev", &dev, file_system::TMPFS), ("/sys", &sys, file_system::SYSFS)] {
        if !plan.spec.mounts.iter().any(|mount| is_same_path(&mount.target, path)) {
            verify_mounted(root, path, mount, kind)?;
        }
    }
    verify_uncovered(root)?;
    Ok(null)
}

/// `/dev` with all that is in it. Returns its mount, and its `null`.
fn mount_dev(root: &Root, around: &Surroundings<'_>, privileged: bool) -> Result<(OwnedFd, OwnedFd), SetupError> {
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_STRICTATIME;
    let options = [("mode", "755"), ("size", "65536k")];
    let dev = mount_new("tmpfs", root.own_directory("/dev")?, "/dev", flags, &options)?;
    let no_suid_no_exec = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let options = [("mode", "0620"), ("ptmxmode", "0666"), ("gid", "5")];
    mount_new("devpts", directory_in(&dev, "pts", "/dev/pts")?, "/dev/pts", no_suid_no_exec, &options)?;
    mount_new("mqueue", directory_in(&dev, "mqueue", "/dev/mqueue")?, "/dev/mqueue", NOTHING_SPECIAL, &[])?;
    let shm = if around.sandbox.host_ipc { PathBuf::from("/dev/shm") } else { around.pod.shm() };
    attach(bound(&shm, "/dev/shm", 0)?, directory_in(&dev, "shm", "/dev/shm")?, "/dev/shm")?;
    let null = devices::make(&dev, privileged)?;
    Ok((dev, null))
}

/// Shows the container its own control groups where programs look for their limits.
fn show_cgroups(sys: &OwnedFd, cgroup: &ContainerCgroup, privileged: bool) -> Result<(), SetupError> {
    const AT: &str = "/sys/fs/cgroup";
    let target = || open_same_mount(sys, "fs/cgroup").doing(|| format!("open {AT}"));
    let read_only = if privileged { MountAttrFlags::empty() } else { MountAttrFlags::MOUNT_ATTR_RDONLY };
    if cgroup.is_unified() {
        mount_new("cgroup2", target()?, AT, NOTHING_SPECIAL | read_only, &[])?;
        return Ok(());
    }
    if cgroup.v1().is_empty() {
        return Ok(());
    }
    let above = mount_new("tmpfs", target()?, AT, NOTHING_SPECIAL, &[("mode", "755")])?;
    let read_only = if privileged { 0 } else { libc::MOUNT_ATTR_RDONLY };
    let nothing_special = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOEXEC;
    for (hierarchy, group) in cgroup.v1() {
        let Some(name) = hierarchy.file_name().and_then(|name| name.to_str()) else { continue };
        let shown = format!("{AT}/{name}");
        attach(bound(group, &shown, nothing_special | read_only)?, directory_in(&above, name, &shown)?, &shown)?;
    }
    Ok(())
}

/// Makes sure that a path is where a mount of ours is, and what it must be.
fn verify_mounted(root: &Root, path: &str, mount: &OwnedFd, kind: FsWord) -> Result<(), SetupError> {
    let doing = || format!("verify the mount at {path}");
    let wrong = || SetupError(format!("what is mounted at {path} is not what was mounted there"));
    let found = root.find_without_links(path).doing(doing)?.ok_or_else(wrong)?;
    let (there, ours) = (MountedInode::of(&found).doing(doing)?, MountedInode::of(mount).doing(doing)?);
    let is_ours = there == ours && there.mount_id != root.place().mount_id;
    if is_ours && FileSystem::of(&found).doing(doing)?.kind == kind { Ok(()) } else { Err(wrong()) }
}

/// Makes sure that nothing is mounted over the root: whoever goes up from it would be there.
fn verify_uncovered(root: &Root) -> Result<(), SetupError> {
    let doing = || "verify the root".to_owned();
    let above = root.find("/..").doing(doing)?;
    match root.is_at(&above).doing(doing)? {
        true => Ok(()),
        false => Err(SetupError("something is mounted over the container's root".to_owned())),
    }
}

/// Makes a fresh file system; it is nowhere yet.
pub(super) fn new_mount(
    kind: &str,
    attributes: MountAttrFlags,
    options: &[(&str, &str)],
) -> rustix::io::Result<OwnedFd> {
    let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(context.as_fd(), "source", kind)?;
    for (key, value) in options {
        rustix::mount::fsconfig_set_string(context.as_fd(), *key, *value)?;
    }
    rustix::mount::fsconfig_create(context.as_fd())?;
    rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// Mounts a fresh file system. Returns its root, which no path leads to as surely.
fn mount_new(
    kind: &str,
    target: OwnedFd,
    shown: &str,
    attributes: MountAttrFlags,
    options: &[(&str, &str)],
) -> Result<OwnedFd, SetupError> {
    let mount = new_mount(kind, attributes, options).doing(|| format!("make {kind} for {shown}"))?;
    attach(&mount, target, shown)?;
    Ok(mount)
}

/// A detached copy of a file or directory of the host.
fn bound(source: &Path, target: &str, attributes: u64) -> Result<OwnedFd, SetupError> {
    let doing = || format!("bind {} to {target}", source.display());
    let mount = rustix::mount::open_tree(CWD, source, CLONE | OpenTreeFlags::AT_RECURSIVE).doing(doing)?;
    set_attributes(&mount, attributes, libc::MS_PRIVATE, true).doing(doing)?;
    Ok(mount)
}

/// Where volumes and files of the pod are mounted.
struct Inside<'a> {
    root: &'a Root,
    /// The container's own procfs.
    proc: &'a OwnedFd,
    /// Its `/dev` and `/sys`, as they were mounted.
    dev: &'a OwnedFd,
    sys: &'a OwnedFd,
    privileged: bool,
}

impl Inside<'_> {
    /// Shows a file or directory of the host at `target`.
    fn bind(&self, source: &Path, target: &str, attributes: u64) -> Result<(), SetupError> {
        self.attach(bound(source, target, attributes)?, target)
    }

    fn mount_volume(&self, mount: &Mount, around: &Surroundings<'_>) -> Result<(), SetupError> {
        let source = match &mount.source {
            MountSource::Host(path) => path.clone(),
            MountSource::Memory(name) => around.pod.memory_volume(name),
        };
        let open = || volume::open(&source, mount.sub_path.as_deref());
        let (tree, propagation) = match mount.propagation {
            Propagation::None => (open()?, libc::MS_PRIVATE),
            Propagation::HostToContainer => (open()?, libc::MS_SLAVE),
            Propagation::Bidirectional if !self.privileged => {
                let why = "Bidirectional mount propagation is available only to privileged containers";
                return Err(SetupError(format!("mount {}: {why}", mount.target)));
            }
            // Memory is mounted for this pod alone: at its path the host has an empty directory on its disk.
            Propagation::Bidirectional if matches!(mount.source, MountSource::Memory(_)) => (open()?, libc::MS_PRIVATE),
            // Only the host's own mount has the host for a peer; this process sees a follower of it.
            Propagation::Bidirectional => {
                (volume::in_mount_namespace(descriptors::agreed(stdio::HOST_MOUNTS), open)??, 0)
            }
        };
        let read_only = if mount.read_only { libc::MOUNT_ATTR_RDONLY } else { 0 };
        // The device cgroup says which of them may be used.
        let has_devices = self.privileged || (around.devices_are_confined && volume::shows_devices(mount));
        let no_devices = if has_devices { 0 } else { libc::MOUNT_ATTR_NODEV };
        let attributes = read_only | no_devices;
        if attributes != 0 || propagation != 0 {
            set_attributes(&tree, attributes, propagation, true).doing(|| format!("mount {}", mount.target))?;
        }
        self.attach(tree, &mount.target)
    }

    fn attach(&self, mount: OwnedFd, target: &str) -> Result<(), SetupError> {
        let doing = || format!("mount {target}");
        let stat = rustix::fs::fstat(&mount).doing(doing)?;
        let directory = FileType::from_raw_mode(stat.st_mode).is_dir();
        let found = self.root.find_or_make(target, directory)?;
        let there = rustix::fs::fstat(&found).doing(doing)?;
        if FileType::from_raw_mode(there.st_mode).is_dir() != directory {
            let why = if directory {
                "a directory is not mounted onto a file"
            } else {
                "a file is not mounted onto a directory"
            };
            return Err(SetupError(format!("nothing can be mounted at {target:?}: {why}")));
        }
        match self.why_not(&mount, &found, target).doing(doing)? {
            None => attach(mount, found, target),
            Some(why) => Err(SetupError(format!("nothing can be mounted at {target:?}: {why}"))),
        }
    }

    /// Why nothing may be mounted at a place, however it was reached. What covered a part of `/proc` could pretend to be the
    /// kernel's; over `/sys`, only what is the kernel's own may be shown.
    fn why_not(&self, mount: &OwnedFd, target: &OwnedFd, path: &str) -> rustix::io::Result<Option<&'static str>> {
        if self.root.is_at(target)? {
            return Ok(Some("it is the container's root"));
        }
        // Whoever shares a volume with this container can make a link in it; what it leads to is not what was asked for.
        let place = MountedInode::of(target)?;
        if place.mount_id == MountedInode::of(self.dev)?.mount_id && !is_below(path, "/dev") {
            return Ok(Some("a link leads from there into /dev"));
        }
        if place == MountedInode::of(self.sys)? && !is_same_path(path, "/sys") {
            return Ok(Some("a link leads from there to /sys"));
        }
        let kind = FileSystem::of(target)?.kind;
        if kind == file_system::PROC && !self.is_proc_file(target)? {
            return Ok(Some("it is inside /proc"));
        }
        if kind == file_system::SYSFS && !self.privileged && !FileSystem::of(mount)?.is_view_of_the_kernel() {
            return Ok(Some("it is inside /sys"));
        }
        Ok(None)
    }

    /// Whether it is one of [`PROC_FILES`], as the container's own procfs has them.
    fn is_proc_file(&self, target: &OwnedFd) -> rustix::io::Result<bool> {
        let target = MountedInode::of(target)?;
        for name in PROC_FILES {
            // `net` is a link of procfs itself, to the process that looks.
            let name = if name == "net/dev" { "thread-self/net/dev" } else { name };
            match rustix::fs::openat(self.proc, name, super::rootfs::o_path(), rustix::fs::Mode::empty()) {
                Ok(file) if MountedInode::of(&file)? == target => return Ok(true),
                Ok(_) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(false)
    }
}

/// Whether a path names a place as it is written, whatever links there are.
fn is_same_path(path: &str, place: &str) -> bool {
    parts(path).eq(parts(place))
}

/// The same for a place or anything below it.
fn is_below(path: &str, place: &str) -> bool {
    let mut path_parts = parts(path);
    parts(place).all(|part| path_parts.next() == Some(part)) && path_parts.all(|part| part != "..")
}

fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty() && *part != ".")
}

/// A detached copy of what a descriptor refers to, without anything that is mounted over it.
pub(super) fn clone_alone(file: impl AsFd) -> rustix::io::Result<OwnedFd> {
    rustix::mount::open_tree(file, "", CLONE | OpenTreeFlags::AT_EMPTY_PATH)
}

/// A detached copy of what a descriptor refers to, with all that is mounted below it.
pub(super) fn clone_of(tree: impl AsFd) -> rustix::io::Result<OwnedFd> {
    rustix::mount::open_tree(tree, "", CLONE | OpenTreeFlags::AT_EMPTY_PATH | OpenTreeFlags::AT_RECURSIVE)
}
