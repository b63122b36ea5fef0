//! The calls no safe wrapper exists for: processes made with `clone3`, signal state, mount attributes, `execve`.
//!
//! All `unsafe` of the runtime's core is in this folder, each block with the reason why it is sound.

pub(crate) mod descriptors;
pub(crate) mod devices;
pub(crate) mod identity;
pub(crate) mod keys;
pub(crate) mod lookup;
pub(crate) mod mount;
pub(crate) mod process;
pub(crate) mod program;
pub(crate) mod rest;
pub(crate) mod signal;
pub(crate) mod watch;
