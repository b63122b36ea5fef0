//! The first process of a pid namespace that all containers of a pod share (`shareProcessNamespace`).
//!
//! A namespace needs a first process that collects orphans and outlives every container. This one is a copy of the
//! shim that gave everything up: it stands in an empty root, as nobody, without capabilities or descriptors, so that
//! a container which may trace its neighbours finds nothing in it.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Gid, Uid};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};

use super::records::{PodDir, make_dir};
use crate::cgroup::{self, Group};
use crate::container::capabilities::Capabilities;
use crate::container::{Doing, SetupError};
use crate::sys::process::{self, Spawned, collect_any};
use crate::sys::{descriptors, signal};

const NOBODY: u32 = 65_534;

/// Starts it, in the shim's own control group: it lives and dies with the shim.
pub(super) fn start(pod: &PodDir, group: &Group) -> Result<Spawned, SetupError> {
    let directory = cgroup::open(&group.below("shim").v2()).doing(|| "open the shim's cgroup".to_owned())?;
    let namespaces = libc::CLONE_NEWPID | libc::CLONE_NEWNS;
    process::clone_into(namespaces, directory.as_fd(), || match give_everything_up(pod) {
        Ok(signals) => collect_for_ever(&signals),
        Err(error) => {
            super::say(&format_args!("cannot make the first process of the pod: {error}"));
            1
        }
    })
    .doing(|| "clone the first process of the pod".to_owned())
}

fn give_everything_up(pod: &PodDir) -> Result<std::os::fd::OwnedFd, SetupError> {
    descriptors::close_from(3).doing(|| "close descriptors".to_owned())?;
    signal::reset_all().doing(|| "reset signals".to_owned())?;
    signal::block_only(&[libc::SIGCHLD]).doing(|| "block SIGCHLD".to_owned())?;
    let signals = signal::descriptor(&[libc::SIGCHLD]).doing(|| "watch SIGCHLD".to_owned())?;
    rustix::process::setsid().doing(|| "make a session".to_owned())?;
    rustix::mount::mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)
        .doing(|| "make the mount namespace private".to_owned())?;
    let root = pod.memory_volume(".first");
    make_dir(&root).doing(|| "make an empty root".to_owned())?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RDONLY;
    rustix::mount::mount("none", &root, "tmpfs", flags, c"mode=555,size=4k")
        .doing(|| "mount an empty root".to_owned())?;
    rustix::process::chdir(&root).doing(|| "enter the empty root".to_owned())?;
    rustix::process::pivot_root(".", ".").doing(|| "pivot root".to_owned())?;
    rustix::mount::unmount(".", UnmountFlags::DETACH).doing(|| "leave the old root".to_owned())?;
    // The host's /dev/null and the shim's log were kept to tell of a failure until here.
    for dup in [rustix::stdio::dup2_stdin, rustix::stdio::dup2_stdout, rustix::stdio::dup2_stderr] {
        dup(&signals).doing(|| "give the streams up".to_owned())?;
    }
    let nothing = Capabilities(0);
    nothing.limit()?;
    let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    rustix::thread::set_thread_groups(&[]).doing(|| "leave all groups".to_owned())?;
    rustix::thread::set_thread_res_gid(gid, gid, gid).doing(|| "set group".to_owned())?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).doing(|| "set user".to_owned())?;
    nothing.assume()?;
    rustix::thread::set_no_new_privs(true).doing(|| "forbid new privileges".to_owned())?;
    let _ = rustix::thread::set_name(c"adieu-pod");
    Ok(signals)
}

fn collect_for_ever(signals: &std::os::fd::OwnedFd) -> u8 {
    let mut buffer = [0u8; 1024];
    loop {
        while collect_any().is_some() {}
        let _ = rustix::event::poll(&mut [PollFd::new(signals, PollFlags::IN)], None);
        // One wake-up may stand for many children, all of which are collected above.
        while rustix::io::read(signals, &mut buffer).is_ok_and(|count| count == buffer.len()) {}
    }
}
