//! What pods use of the machine.

use crate::ContainerId;

/// What a running container uses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContainerStats {
    /// Which run.
    pub id: ContainerId,
    /// Processor time since it was started, nanoseconds.
    pub cpu_nanos: u64,
    /// Memory that cannot be taken back without harm.
    pub memory_bytes: u64,
    /// Processes.
    pub processes: u64,
}

/// TCP connections of a pod at one moment, as its kernel counts them.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Connections {
    /// Open, or closing with data still owed.
    pub established: usize,
    /// Being opened: the last packet of the handshake is not in yet.
    pub opening: usize,
    /// Opened, and not yet accepted by the program, over all listening sockets.
    pub unaccepted: usize,
}

/// What one run of a container uses of the machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContainerUsage {
    /// Which run.
    pub id: ContainerId,
    /// Bytes of memory, what is shared counted in part.
    pub memory: u64,
    /// Processes.
    pub processes: u64,
    /// Bytes on disk: what it wrote to its root, and its log.
    pub disk: u64,
    /// Files and directories there.
    pub inodes: u64,
}

/// What a run of a container has on disk: what it wrote to its root, and its log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContainerStored {
    /// Which run.
    pub id: ContainerId,
    /// Bytes.
    pub bytes: u64,
    /// Files and directories.
    pub inodes: u64,
}
