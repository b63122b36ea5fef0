//! The very last calls before a program runs.
#![allow(unsafe_code, reason = "seccomp and execve have no safe wrapper")]

use std::ffi::{CStr, CString};
use std::io;
use std::ptr;

/// Installs a seccomp filter for this process and all it becomes. Needs no-new-privileges or `CAP_SYS_ADMIN`.
pub(crate) fn install_filter(filter: &[u8]) -> io::Result<()> {
    let instructions = filter.len() / size_of::<libc::sock_filter>();
    // Bytes read from a file have no alignment; the kernel copies the filter, so a short-lived copy will do.
    let mut program: Vec<libc::sock_filter> = Vec::with_capacity(instructions);
    for bytes in filter.as_chunks::<{ size_of::<libc::sock_filter>() }>().0 {
        program.push(libc::sock_filter {
            code: u16::from_ne_bytes([bytes[0], bytes[1]]),
            jt: bytes[2],
            jf: bytes[3],
            k: u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        });
    }
    let length = u16::try_from(program.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let header = libc::sock_fprog { len: length, filter: program.as_mut_ptr() };
    // SAFETY: header and program outlive the call.
    let done = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const header) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Becomes the program at `path`; returns only with the reason why not.
pub(crate) fn execute(path: &CStr, arguments: &[CString], environment: &[CString]) -> io::Error {
    let argv: Vec<_> = arguments.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect();
    let envp: Vec<_> = environment.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect();
    // SAFETY: both vectors end in null and point to C strings that outlive the call.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
    io::Error::last_os_error()
}
