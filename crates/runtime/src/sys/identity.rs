//! Which users and groups this process is, all three of each kind.
#![allow(unsafe_code, reason = "getresuid and getresgid have no safe wrapper")]

/// Real, effective and saved user.
pub(crate) fn users() -> [u32; 3] {
    let mut ids = [u32::MAX; 3];
    let [real, effective, saved] = &mut ids;
    // SAFETY: the three numbers outlive the call. It cannot fail then; if it did, no id would equal one that was asked for.
    unsafe { libc::getresuid(real, effective, saved) };
    ids
}

/// Real, effective and saved group.
pub(crate) fn groups() -> [u32; 3] {
    let mut ids = [u32::MAX; 3];
    let [real, effective, saved] = &mut ids;
    // SAFETY: as above.
    unsafe { libc::getresgid(real, effective, saved) };
    ids
}
