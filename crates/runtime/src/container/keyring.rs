//! A session keyring for every process of a container that this runtime starts.
//!
//! Keys are not divided by namespace: without one of its own, a container without a system call filter would find what is in
//! the session keyring of the shim.

use rustix::io::Errno;

use super::SetupError;
use crate::sys::keys;

/// Leaves whatever session keyring was inherited for a new one that has no name, so that nobody else can join it.
pub(super) fn leave_inherited() -> Result<(), SetupError> {
    match keys::join_new_session_keyring() {
        // A kernel without keys, or one that keeps this whole machine from them, and so the container, too.
        Ok(()) | Err(Errno::NOSYS | Errno::PERM) => Ok(()),
        Err(errno) => Err(SetupError::new("make a session keyring", errno)),
    }
}
