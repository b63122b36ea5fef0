//! `mount_setattr` and `unshare`, which rustix lacks or marks unsafe.
#![allow(unsafe_code, reason = "mount_setattr has no safe wrapper")]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::thread::UnshareFlags;

/// Changes attributes of a mount and, if asked, of all mounts below it.
///
/// `set` is made of `libc::MOUNT_ATTR_*`, `propagation` is 0 or one of `libc::MS_PRIVATE`, `MS_SLAVE`.
pub(crate) fn set_attributes(mount: impl AsFd, set: u64, propagation: u64, recursive: bool) -> io::Result<()> {
    let attributes = libc::mount_attr { attr_set: set, attr_clr: 0, propagation, userns_fd: 0 };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is a static C string and the struct outlives the call, with its true size.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Leaves namespaces behind. Never with `FILES`: a shared descriptor table must not change under Rust.
pub(crate) fn unshare(flags: UnshareFlags) -> io::Result<()> {
    debug_assert!(!flags.contains(UnshareFlags::FILES));
    // SAFETY: only `FILES` endangers the ownership of descriptors, and it is not asked for.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}
