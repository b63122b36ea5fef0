//! What of `/proc` and `/sys` a container does not see, and what it sees and cannot change: upstream's lists.
//!
//! Done when all else is mounted, and looked at again afterwards: a container in which one of these is not as it must be does
//! not start. No symbolic link is followed, and nothing that a container could have made is in the way, as no volume is
//! mounted inside procfs or sysfs.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Dir, FileType, Mode, OFlags};
use rustix::mount::MountAttrFlags;

use super::file_system::{self, FileSystem};
use super::mounts::{NOTHING_SPECIAL, clone_alone, clone_of, new_mount};
use super::root::Root;
use super::rootfs::attach;
use super::{Doing, SetupError, devices};
use crate::sys::mount::set_attributes;

const MASKED: [&str; 12] = [
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
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// Each processor's directory is in here, and how hot it gets tells what runs on it.
const PROCESSORS: &str = "/sys/devices/system/cpu";
const OF_PROCESSOR: &str = "thermal_throttle";

/// Hides and protects everything, with the container's own `/dev/null` as it was made, and makes sure of it.
pub(super) fn apply(root: &Root, null: BorrowedFd<'_>) -> Result<(), SetupError> {
    let masked = masked(root)?;
    READ_ONLY.iter().try_for_each(|path| make_read_only(root, path))?;
    Masks { root, null, empty: None }.hide_all(&masked)?;
    READ_ONLY.iter().try_for_each(|path| verify_read_only(root, path))?;
    masked.iter().try_for_each(|path| verify_masked(root, path))
}

/// The paths to be hidden on this machine.
fn masked(root: &Root) -> Result<Vec<String>, SetupError> {
    let doing = || format!("read {PROCESSORS}");
    let mut masked: Vec<String> = MASKED.map(str::to_owned).to_vec();
    let Some(processors) = root.find_without_links(PROCESSORS).doing(doing)? else { return Ok(masked) };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let listed = rustix::fs::openat(&processors, ".", flags, Mode::empty()).and_then(Dir::new).doing(doing)?;
    for entry in listed {
        let name = entry.doing(doing)?.file_name().to_string_lossy().into_owned();
        let number = name.strip_prefix("cpu").unwrap_or_default();
        if !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()) {
            masked.push(format!("{PROCESSORS}/{name}/{OF_PROCESSOR}"));
        }
    }
    Ok(masked)
}

/// Makes a part of the tree read-only by mounting it onto itself. What does not exist needs no protection.
fn make_read_only(root: &Root, path: &str) -> Result<(), SetupError> {
    let doing = || format!("make {path} read-only");
    let Some(target) = root.find_without_links(path).doing(doing)? else { return Ok(()) };
    let mount = clone_of(&target).doing(doing)?;
    set_attributes(&mount, libc::MOUNT_ATTR_RDONLY, 0, true).doing(doing)?;
    attach(mount, target, path)
}

struct Masks<'a> {
    root: &'a Root,
    null: BorrowedFd<'a>,
    /// Once there is one, all others are copies of it.
    empty: Option<OwnedFd>,
}

impl Masks<'_> {
    fn hide_all(mut self, paths: &[String]) -> Result<(), SetupError> {
        paths.iter().try_for_each(|path| self.hide(path))
    }

    /// Hides a file behind `/dev/null`, a directory behind an empty one.
    fn hide(&mut self, path: &str) -> Result<(), SetupError> {
        let doing = || format!("mask {path}");
        let Some(target) = self.root.find_without_links(path).doing(doing)? else { return Ok(()) };
        let stat = rustix::fs::fstat(&target).doing(doing)?;
        if !FileType::from_raw_mode(stat.st_mode).is_dir() {
            return attach(clone_alone(self.null).doing(doing)?, target, path);
        }
        if let Some(empty) = &self.empty {
            return attach(clone_of(empty).doing(doing)?, target, path);
        }
        let attributes = NOTHING_SPECIAL | MountAttrFlags::MOUNT_ATTR_RDONLY;
        let empty = new_mount("tmpfs", attributes, &[("nr_inodes", "2")]).doing(doing)?;
        attach(&empty, target, path)?;
        self.empty = Some(empty);
        Ok(())
    }
}

fn verify_read_only(root: &Root, path: &str) -> Result<(), SetupError> {
    let doing = || format!("verify that {path} is read-only");
    let Some(found) = root.find_without_links(path).doing(doing)? else { return Ok(()) };
    match FileSystem::of(&found).doing(doing)?.read_only {
        true => Ok(()),
        false => Err(SetupError(format!("{path} did not become read-only"))),
    }
}

fn verify_masked(root: &Root, path: &str) -> Result<(), SetupError> {
    let doing = || format!("verify that {path} is masked");
    let Some(found) = root.find_without_links(path).doing(doing)? else { return Ok(()) };
    let stat = rustix::fs::fstat(&found).doing(doing)?;
    let file_system = FileSystem::of(&found).doing(doing)?;
    let is_directory = FileType::from_raw_mode(stat.st_mode).is_dir();
    let is_masked = match is_directory {
        true => file_system == FileSystem { kind: file_system::TMPFS, read_only: true },
        false => file_system.kind == file_system::TMPFS && devices::is_null(found.as_fd()).doing(doing)?,
    };
    if is_masked { Ok(()) } else { Err(SetupError(format!("{path} did not become masked"))) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::rootfs::o_path;
    use super::*;
    use std::os::unix::fs::symlink;

    fn root(path: &std::path::Path) -> Root {
        Root::new(rustix::fs::open(path, o_path(), Mode::empty()).unwrap()).unwrap()
    }

    fn null() -> OwnedFd {
        rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap()
    }

    #[test]
    fn masked_path_is_passed_over_only_if_it_is_not_there() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("proc")).unwrap();
        symlink("elsewhere", dir.path().join("proc/keys")).unwrap();
        symlink("/", dir.path().join("proc/bus")).unwrap();
        std::fs::write(dir.path().join("proc/elsewhere"), "").unwrap();
        std::fs::write(dir.path().join("sys"), "no directory").unwrap();
        let (root, null) = (root(dir.path()), null());
        let mask = |path: &str| Masks { root: &root, null: null.as_fd(), empty: None }.hide(path);
        for absent in ["/proc/acpi", "/dev/x/y"] {
            assert!(mask(absent).is_ok() && make_read_only(&root, absent).is_ok(), "{absent}");
            assert!(verify_masked(&root, absent).is_ok() && verify_read_only(&root, absent).is_ok(), "{absent}");
        }
        for unclear in ["/proc/keys", "/proc/bus", "/proc/bus/proc", "/sys/firmware"] {
            assert!(mask(unclear).is_err() && make_read_only(&root, unclear).is_err(), "{unclear}");
            assert!(verify_masked(&root, unclear).is_err() && verify_read_only(&root, unclear).is_err(), "{unclear}");
        }
    }

    #[test]
    fn masked_path_that_still_shows_something_is_found_out() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("proc/scsi")).unwrap();
        std::fs::write(dir.path().join("proc/keys"), "secret").unwrap();
        let root = root(dir.path());
        for path in ["/proc/scsi", "/proc/keys"] {
            let error = verify_masked(&root, path).unwrap_err().to_string();
            assert_eq!(error, format!("{path} did not become masked"));
            let error = verify_read_only(&root, path).unwrap_err().to_string();
            assert_eq!(error, format!("{path} did not become read-only"));
        }
    }

    /// [SE-31] No machine of the tests has these: a tree stands in for one that has.
    #[test]
    fn thermal_throttle_of_every_processor_is_among_the_masked_paths() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["cpu0", "cpu11", "cpufreq", "cpu", "cpuidle"] {
            std::fs::create_dir_all(dir.path().join("sys/devices/system/cpu").join(name)).unwrap();
        }
        let mut masked = masked(&root(dir.path())).unwrap();
        let mut of_processors = masked.split_off(MASKED.len());
        of_processors.sort();
        let path = |number: u32| format!("/sys/devices/system/cpu/cpu{number}/thermal_throttle");
        assert_eq!(of_processors, [path(0), path(11)]);
        assert_eq!(masked, MASKED);
    }
}
