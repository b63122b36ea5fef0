//! Which file system a descriptor is on. Names lie, as images and volumes can link them; the kernel does not.

use std::os::fd::AsFd;

use rustix::fs::FsWord;

pub(crate) const OVERLAY: FsWord = 0x794c_7630;
pub(crate) const PROC: FsWord = 0x9fa0;
pub(crate) const SYSFS: FsWord = 0x6265_6572;
pub(crate) const TMPFS: FsWord = 0x0102_1994;
pub(crate) const DEVPTS: FsWord = 0x1cd1;

/// Views of the kernel that are mounted below `/sys`, and `/sys` itself: sysfs, bpf, cgroup, cgroup2, configfs, debugfs,
/// efivarfs, fusectl, pstore, securityfs, tracefs, selinuxfs, smackfs, resctrl.
const VIEWS_OF_THE_KERNEL: [FsWord; 14] = [
    SYSFS,
    0xcafe_4a11,
    0x0027_e0eb,
    0x6367_7270,
    0x6265_6570,
    0x6462_6720,
    0xde5e_81e4,
    0x6573_5543,
    0x6165_676c,
    0x7363_6673,
    0x7472_6163,
    0xf97c_ff8c,
    0x4341_5d53,
    0x0765_5821,
];

/// What the kernel says of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FileSystem {
    pub(crate) kind: FsWord,
    /// By its mount or as a whole.
    pub(crate) read_only: bool,
}

impl FileSystem {
    /// Of what a descriptor refers to; `O_PATH` will do.
    pub(crate) fn of(fd: impl AsFd) -> rustix::io::Result<Self> {
        let seen = rustix::fs::fstatfs(fd)?;
        // The first flag is ST_RDONLY.
        Ok(Self { kind: seen.f_type, read_only: seen.f_flags & 1 == 1 })
    }

    /// Whether it shows the kernel's own state, as all that belongs below `/sys` does.
    pub(crate) fn is_view_of_the_kernel(self) -> bool {
        VIEWS_OF_THE_KERNEL.contains(&self.kind)
    }
}
