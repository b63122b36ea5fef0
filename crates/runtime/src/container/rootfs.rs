//! The root file system: layers under a writable top, mounted in the child's own mount namespace only.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags,
};

use super::file_system::{self, FileSystem};
use super::root::Root;
use super::{Doing, SetupError};
use crate::shim::records::make_dir;
use crate::sys::mount::set_attributes;

/// Where the new root is mounted before it becomes the root: over the overlay's own work, which nobody else looks at.
const ROOT: &str = WORK;
const UPPER: &str = "upper";
const WORK: &str = "work";
/// Without this the end of a container writes out all that anybody has left unwritten on its disk, and waits for that:
/// the kernel syncs what is under an overlay before it takes it down. Nothing in a container's own layer is read again
/// once it has ended, so nothing in it needs to outlive the machine; volumes are no part of it.
const VOLATILE: &str = "volatile";

/// Cuts the mounts of this process off from the host's, and mounts the layers in `dir`. Returns the new root.
///
/// `dir` becomes the working directory: the overlay's own directories are then short relative names, which matters
/// because `fsconfig` takes at most 255 bytes.
pub(crate) fn mount(dir: &Path, layers: &[&PathBuf], privileged: bool) -> Result<Root, SetupError> {
    rustix::mount::mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM)
        .doing(|| "make the mount namespace private".to_owned())?;
    rustix::process::chdir(dir).doing(|| format!("enter {}", dir.display()))?;
    make_dir(Path::new(WORK)).doing(|| format!("make {WORK}"))?;
    // An earlier try to start this container has left a mark here, which forbids to use what may not be whole.
    let _ = fs::remove_dir_all(Path::new(WORK).join("work"));
    // The root of the container has the mode of this one, and its users may enter it; nobody else comes this far.
    fs::create_dir_all(UPPER).doing(|| format!("make {UPPER}"))?;
    // Device nodes an image brings along are not to be opened; /dev has the ones a container may have.
    let attributes = if privileged { MountAttrFlags::empty() } else { MountAttrFlags::MOUNT_ATTR_NODEV };
    match overlay(layers, attributes) {
        Ok(mount) => attach(&mount, rustix::fs::open(ROOT, o_path(), rustix::fs::Mode::empty()).doing(root)?, "/")?,
        // Kernels before 6.7 know no `lowerdir+`, and long paths do not fit into it.
        Err(_) => overlay_by_mount(layers, privileged)?,
    }
    let opened = rustix::fs::open(ROOT, o_path(), rustix::fs::Mode::empty()).doing(root)?;
    match FileSystem::of(&opened).doing(root)?.kind {
        file_system::OVERLAY => Root::new(opened),
        _ => Err(SetupError("the new root is not the overlay that was mounted".to_owned())),
    }
}

fn root() -> String {
    "open the new root".to_owned()
}

pub(crate) fn o_path() -> rustix::fs::OFlags {
    rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC
}

fn overlay(layers: &[&PathBuf], attributes: MountAttrFlags) -> rustix::io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(context.as_fd(), "source", "overlay")?;
    for layer in layers {
        rustix::mount::fsconfig_set_string(context.as_fd(), "lowerdir+", layer.as_path())?;
    }
    rustix::mount::fsconfig_set_string(context.as_fd(), "upperdir", UPPER)?;
    rustix::mount::fsconfig_set_string(context.as_fd(), "workdir", WORK)?;
    rustix::mount::fsconfig_set_flag(context.as_fd(), VOLATILE)?;
    rustix::mount::fsconfig_create(context.as_fd())?;
    rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

fn overlay_by_mount(layers: &[&PathBuf], privileged: bool) -> Result<(), SetupError> {
    let lower: Vec<_> = layers
        .iter()
        .map(|layer| layer.to_string_lossy().replace('\\', "\\\\").replace(':', "\\:").replace(',', "\\,"))
        .collect();
    let options = format!("lowerdir={},upperdir={UPPER},workdir={WORK},{VOLATILE}", lower.join(":"));
    let options = std::ffi::CString::new(options).map_err(|_| SetupError("zero byte in a layer's path".to_owned()))?;
    let flags = if privileged { MountFlags::empty() } else { MountFlags::NODEV };
    rustix::mount::mount("overlay", ROOT, "overlay", flags, options.as_c_str()).doing(|| "mount overlay".to_owned())
}

/// Puts a detached mount onto what `target` refers to; no path is resolved again. `shown` is what people call it.
pub(crate) fn attach(mount: impl AsFd, target: impl AsFd, shown: &str) -> Result<(), SetupError> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(mount, "", target, "", flags).doing(|| format!("mount onto {shown}"))
}

/// Makes `root` the root of this process, with nothing of the host behind it.
///
/// The working directory of the container, `cwd`, is made if it is missing.
pub(crate) fn enter(root: &Root, read_only: bool, cwd: &str) -> Result<(), SetupError> {
    rustix::process::fchdir(root).doing(|| "enter the new root".to_owned())?;
    rustix::process::pivot_root(".", ".").doing(|| "pivot root".to_owned())?;
    // The old root now covers the new one: detaching it uncovers the container.
    rustix::mount::unmount(".", UnmountFlags::DETACH).doing(|| "leave the old root".to_owned())?;
    rustix::process::chdir("/").doing(|| "enter /".to_owned())?;
    // Where nothing can be made any more it is too late for it, as elsewhere.
    make_directories(cwd);
    for path in ["/", "/.."] {
        let doing = || format!("verify {path}");
        let entered = rustix::fs::open(path, o_path(), rustix::fs::Mode::empty()).doing(doing)?;
        if !root.is_at(&entered).doing(doing)? {
            return Err(SetupError(format!("{path} is not the root that was mounted")));
        }
    }
    if read_only {
        set_attributes(root, libc::MOUNT_ATTR_RDONLY, 0, false).doing(|| "make the root read-only".to_owned())?;
    }
    Ok(())
}

/// Makes a directory, and what leads there, inside the root that this process is in. Failing is told by whoever enters it.
fn make_directories(path: &str) {
    let mut so_far = String::new();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        so_far = format!("{so_far}/{part}");
        let _ = rustix::fs::mkdirat(CWD, so_far.as_str(), Mode::from_raw_mode(0o755));
    }
}
