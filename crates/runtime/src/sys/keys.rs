//! Keyrings of the kernel, which rustix has no calls for.
#![allow(unsafe_code, reason = "keyctl has no safe wrapper")]

use std::ptr;

use rustix::io::Errno;

/// Gives this process a session keyring of its own, without a name.
pub(crate) fn join_new_session_keyring() -> rustix::io::Result<()> {
    // SAFETY: a null name asks for an anonymous keyring; no memory is read or written.
    let done = unsafe {
        libc::syscall(
            libc::SYS_keyctl,
            libc::KEYCTL_JOIN_SESSION_KEYRING,
            ptr::null::<libc::c_char>(),
            0usize,
            0usize,
            0usize,
        )
    };
    if done < 0 { Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)) } else { Ok(()) }
}
