//! Starting shims: our own program, run again from a read-only view of its file.

use std::ffi::CString;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::CWD;
use rustix::mount::OpenTreeFlags;
use rustix::process::Rlimit;

use crate::cgroup::{self, Group};
use crate::shim;
use crate::shim::records::PodDir;
use crate::sys::mount::set_attributes;
use crate::sys::process::{self, Program, Spawned};

/// Descriptors handed to a shim are kept clear of the numbers they will have there.
const FIRST_FREE: i32 = 10;

/// The program every shim runs.
#[derive(Debug)]
pub(super) struct ShimProgram {
    file: OwnedFd,
    /// What shims, and so containers, get: what this process was started with.
    descriptors: Rlimit,
}

impl ShimProgram {
    /// Opens a detached, read-only clone of the mount that holds the program.
    ///
    /// A container that gets hold of `/proc/PID/exe` of a process on its way into it meets a read-only file system,
    /// while the host's file can still be replaced by an upgrade.
    pub(super) fn open(path: &Path, descriptors: Rlimit) -> io::Result<Self> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = rustix::mount::open_tree(CWD, path, flags)?;
        set_attributes(&tree, libc::MOUNT_ATTR_RDONLY, 0, false)?;
        Ok(Self { file: out_of_the_way(&tree)?, descriptors })
    }

    /// Starts a shim in its own group below the pod's, with a socket that is already listening.
    pub(super) fn start(&self, pod: &PodDir, group: &Group, listener: &OwnedFd) -> io::Result<Spawned> {
        let shim_group = group.below("shim");
        std::fs::create_dir_all(shim_group.v2())?;
        shim_group.put_first();
        let directory = cgroup::open(&shim_group.v2())?;
        let null = OpenOptions::new().read(true).open("/dev/null")?;
        let log = OpenOptions::new().create(true).append(true).mode(0o600).open(pod.shim_log())?;
        let (null, log, listener) = (out_of_the_way(&null)?, out_of_the_way(&log)?, out_of_the_way(listener)?);
        let arguments = [b"adieu".as_slice(), shim::COMMAND.as_bytes(), pod.path.as_os_str().as_bytes()];
        let program = Program {
            file: self.file.as_fd(),
            arguments: arguments.into_iter().map(CString::new).collect::<Result<_, _>>()?,
            stdin: null.as_fd(),
            output: log.as_fd(),
            listener: listener.as_fd(),
            descriptors: self.descriptors,
        };
        process::spawn(&program, directory.as_fd())
    }
}

fn out_of_the_way(fd: impl AsFd) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, FIRST_FREE)?)
}
