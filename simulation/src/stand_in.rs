//! Time and chance for everything on this thread, dependencies included: two C functions, put in the place of the library's.
//!
//! While a thread is in a simulation, `clock_gettime` tells what tokio's paused clock tells, and `getrandom` what dice tell; on
//! every other thread both are the kernel's. What asks the kernel without the C library is not reached: `rustix`, which the
//! node's own clock therefore does not use here, and `ring`, whose bytes must stay out of every trace.

#![allow(unsafe_code, reason = "the C library's own signatures")]

use std::cell::Cell;
use std::time::Duration;

use testkit::Dice;
use tokio::time::Instant;

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
