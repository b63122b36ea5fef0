//! Time, chance and the disk for everything on this thread, dependencies included: a dozen C functions, put in the place of the
//! library's.
//!
//! While a thread is in a simulation, `clock_gettime` tells what tokio's paused clock tells, `getrandom` what dice tell, and writes,
//! syncs and changes of names go by way of the simulated [`disk`]; on every other thread all are the kernel's. What asks the
//! kernel without the C library is not reached: `rustix`, which the node's own clock therefore does not use here, and `ring`, whose
//! bytes must stay out of every trace.

#![allow(unsafe_code, reason = "the C library's own signatures")]

use std::cell::Cell;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use testkit::Dice;
use tokio::time::Instant;

use crate::disk::{self, Taken};

/// When the simulated world begins: 2026-11-18 00:00:00 UTC.
pub const EPOCH_SECONDS: u64 = 1_795_000_000;
/// How long its machine has been up by then.
const UPTIME_SECONDS: u64 = 100_000;

thread_local! {
    static RANDOM: Cell<Option<u64>> = const { Cell::new(None) };
    /// Milliseconds of the world at the beginning of the current life, and the instant that was.
    static BEGUN: Cell<Option<(Duration, Option<Instant>)>> = const { Cell::new(None) };
    static LAST: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// This thread is in a simulation from now on.
pub fn enter(seed: u64) {
    RANDOM.set(Some(Dice::seeded(seed).below(u64::MAX)));
    BEGUN.set(Some((Duration::ZERO, None)));
    LAST.set(Duration::ZERO);
}

/// This thread is in no simulation any more.
pub fn leave() {
    RANDOM.set(None);
    BEGUN.set(None);
}

/// A life begins, on the runtime that calls, this long after the world did.
pub fn begin_life(at: Duration) {
    LAST.set(at);
    BEGUN.set(Some((at, Some(Instant::now()))));
}

/// No runtime tells the time until the next life: it stands still.
pub fn end_life() {
    let now = elapsed();
    BEGUN.set(Some((now, None)));
}

/// How old the world is.
pub fn elapsed() -> Duration {
    if let Some((at, Some(begun))) = BEGUN.get()
        && tokio::runtime::Handle::try_current().is_ok()
    {
        LAST.set(at + Instant::now().saturating_duration_since(begun));
    }
    LAST.get()
}

/// # Safety
///
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(
    buffer: *mut libc::c_void,
    length: libc::size_t,
    flags: libc::c_uint,
) -> libc::ssize_t {
    let Some(state) = RANDOM.get() else {
        // SAFETY: the caller's buffer, passed on as it came.
        let answer = unsafe { libc::syscall(libc::SYS_getrandom, buffer, length, flags) };
        return libc::ssize_t::try_from(answer).unwrap_or(-1);
    };
    // SAFETY: the caller gives a buffer of so many bytes.
    let bytes = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), length) };
    let mut dice = Dice::seeded(state);
    for byte in &mut *bytes {
        *byte = u8::try_from(dice.below(256)).unwrap_or(0);
    }
    RANDOM.set(Some(state.wrapping_add(0x9e37_79b9)));
    libc::ssize_t::try_from(length).unwrap_or(0)
}

/// # Safety
///
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> libc::c_int {
    // Whoever computes the simulated time may ask for the time.
    if BEGUN.get().is_none() || INSIDE.replace(true) {
        // SAFETY: the caller's pointer, passed on as it came.
        let answer = unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) };
        return libc::c_int::try_from(answer).unwrap_or(-1);
    }
    let age = elapsed();
    INSIDE.set(false);
    let base = if clock == libc::CLOCK_REALTIME { EPOCH_SECONDS } else { UPTIME_SECONDS };
    let seconds = libc::time_t::try_from(base + age.as_secs()).unwrap_or(libc::time_t::MAX);
    // SAFETY: the caller gives a place for the answer.
    unsafe { time.write(libc::timespec { tv_sec: seconds, tv_nsec: i64::from(age.subsec_nanos()) }) };
    0
}

/// What the C library answers when the kernel says no.
fn answer(of_kernel: libc::c_long) -> libc::c_int {
    libc::c_int::try_from(of_kernel).unwrap_or(-1)
}

fn is_simulated() -> bool {
    BEGUN.get().is_some()
}

/// The bytes of a write, and how many of them the disk of this thread takes.
///
/// # Safety
///
/// `buffer` must have `length` bytes.
unsafe fn taken(
    descriptor: libc::c_int,
    buffer: *const libc::c_void,
    length: libc::size_t,
    at: Option<u64>,
) -> Option<libc::size_t> {
    if !is_simulated() {
        return Some(length);
    }
    // SAFETY: the caller of this function says so.
    let bytes = unsafe { std::slice::from_raw_parts(buffer.cast::<u8>(), length) };
    match disk::writing(descriptor, bytes, at, crate::clock::now_ms()) {
        Taken::All => Some(length),
        Taken::Part(part) => Some(part),
        Taken::Nothing => {
            // SAFETY: the place is this thread's own.
            unsafe { *libc::__errno_location() = libc::ENOSPC };
            None
        }
    }
}

/// # Safety
///
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(
    descriptor: libc::c_int,
    buffer: *const libc::c_void,
    length: libc::size_t,
) -> libc::ssize_t {
    // SAFETY: the caller gives a buffer of so many bytes.
    let Some(length) = (unsafe { taken(descriptor, buffer, length, None) }) else { return -1 };
    // SAFETY: the caller's arguments, passed on as they came.
    let answer = unsafe { libc::syscall(libc::SYS_write, descriptor, buffer, length) };
    libc::ssize_t::try_from(answer).unwrap_or(-1)
}

/// # Safety
///
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite64(
    descriptor: libc::c_int,
    buffer: *const libc::c_void,
    length: libc::size_t,
    at: libc::off64_t,
) -> libc::ssize_t {
    // SAFETY: the caller gives a buffer of so many bytes.
    let taken = unsafe { taken(descriptor, buffer, length, u64::try_from(at).ok()) };
    let Some(length) = taken else { return -1 };
    // SAFETY: the caller's arguments, passed on as they came.
    let answer = unsafe { libc::syscall(libc::SYS_pwrite64, descriptor, buffer, length, at) };
    libc::ssize_t::try_from(answer).unwrap_or(-1)
}

/// # Safety
///
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftruncate64(descriptor: libc::c_int, length: libc::off64_t) -> libc::c_int {
    if is_simulated() {
        disk::cutting(descriptor, u64::try_from(length).unwrap_or(0));
    }
    // SAFETY: the caller's arguments, passed on as they came.
    answer(unsafe { libc::syscall(libc::SYS_ftruncate, descriptor, length) })
}

/// # Safety
///
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fsync(descriptor: libc::c_int) -> libc::c_int {
    if is_simulated() {
        disk::synced(descriptor);
        return 0;
    }
    // SAFETY: the caller's argument, passed on as it came.
    answer(unsafe { libc::syscall(libc::SYS_fsync, descriptor) })
}

/// # Safety
///
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdatasync(descriptor: libc::c_int) -> libc::c_int {
    if is_simulated() {
        disk::synced(descriptor);
        return 0;
    }
    // SAFETY: the caller's argument, passed on as it came.
    answer(unsafe { libc::syscall(libc::SYS_fdatasync, descriptor) })
}

/// # Safety
///
/// `path` must be a C string.
unsafe fn path_of<'a>(path: *const libc::c_char) -> &'a Path {
    // SAFETY: the caller of this function says so.
    Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()))
}

/// # Safety
///
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const libc::c_char, flags: libc::c_int, mode: libc::mode_t) -> libc::c_int {
    if is_simulated() && flags & libc::O_CREAT != 0 {
        // SAFETY: the caller gives a C string.
        disk::making(unsafe { path_of(path) });
    }
    // SAFETY: the caller's arguments, passed on as they came; without O_CREAT the last is not looked at.
    answer(unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, flags | libc::O_LARGEFILE, mode) })
}

/// # Safety
///
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rename(from: *const libc::c_char, to: *const libc::c_char) -> libc::c_int {
    if is_simulated() {
        // SAFETY: the caller gives C strings.
        let (from, to) = unsafe { (path_of(from), path_of(to)) };
        disk::moving(from, to);
    }
    // SAFETY: the caller's arguments, passed on as they came.
    answer(unsafe { libc::syscall(libc::SYS_rename, from, to) })
}

/// # Safety
///
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlink(path: *const libc::c_char) -> libc::c_int {
    if is_simulated() {
        // SAFETY: the caller gives a C string.
        disk::removing(unsafe { path_of(path) });
    }
    // SAFETY: the caller's argument, passed on as it came.
    answer(unsafe { libc::syscall(libc::SYS_unlink, path) })
}

/// The lock of a file dies with the agent that holds it, and an agent that is dead may still have it open here.
///
/// # Safety
///
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flock(descriptor: libc::c_int, operation: libc::c_int) -> libc::c_int {
    if is_simulated() {
        return 0;
    }
    // SAFETY: the caller's arguments, passed on as they came.
    answer(unsafe { libc::syscall(libc::SYS_flock, descriptor, operation) })
}
