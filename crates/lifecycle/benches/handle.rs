//! How many inputs a second one core handles, and that an input which changes nothing costs no memory.
//!
//! `cargo bench -p lifecycle` prints inputs per second for three kinds of load, of a core's own time; a million is the aim.
//! That the quiet one does not allocate is a test (`tests/quiet.rs`); how fast a machine is, is not.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock; the rules do not")]
#![allow(unsafe_code, reason = "counting allocations takes a global allocator, and that trait is unsafe")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lifecycle::{
    ContainerName, ContainerSpec, DeleteSighting, Delivery, Effect, Exit, Hook, HookKind, HookOutcome, Input, Instance,
    Moment, PodSpec, PodWorker, Probe, Role, Signal, Wall,
};

/// Counts what it passes on.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed on unchanged to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are the system's.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are the system's.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are the system's.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const AIM: f64 = 1_000_000.0;

fn main() {
    let quiet = quiet();
    let probes = probes();
    let lives = lives();
    println!("nothing changes      {:>12.0} inputs/s  {:.2} allocations per input", quiet.0, quiet.1);
    println!("readiness flips      {:>12.0} inputs/s  {:.2} allocations per input", probes.0, probes.1);
    println!("whole lives          {:>12.0} inputs/s  {:.2} allocations per input", lives.0, lives.1);
    let slowest = [quiet, probes, lives].into_iter().map(|(rate, _)| rate).fold(f64::INFINITY, f64::min);
    println!("the aim of {AIM:.0} inputs/s is {}", if slowest >= AIM { "met" } else { "not met on this machine" });
}

/// Runs `batch`, which answers how many inputs it handled, for a second of a core's time; inputs per second and
/// allocations per input.
fn measure(mut batch: impl FnMut() -> u64) -> (f64, f64) {
    batch();
    let mut cpu = CpuClock::open();
    let (begun, before) = (cpu.now(), ALLOCATIONS.load(Ordering::Relaxed));
    let (mut inputs, mut reading) = (0, 0);
    loop {
        for _ in 0..20 {
            inputs += batch();
        }
        let reads = ALLOCATIONS.load(Ordering::Relaxed);
        let took = cpu.now().saturating_sub(begun);
        reading += ALLOCATIONS.load(Ordering::Relaxed) - reads;
        if took > Duration::from_secs(1) {
            let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before - reading;
            return (inputs as f64 / took.as_secs_f64(), allocations as f64 / inputs as f64);
        }
    }
}

/// How long this thread was on a core, as the kernel counts it: what others do meanwhile is not our speed.
struct CpuClock {
    started: Instant,
}

impl CpuClock {
    fn open() -> Self {
        Self { started: Instant::now() }
    }

    fn now(&mut self) -> Duration {
        let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
        let nanos = told.and_then(|told| told.split_whitespace().next()?.parse().ok());
        nanos.map_or_else(|| self.started.elapsed(), Duration::from_nanos)
    }
}

fn app() -> Instance {
    Instance { name: ContainerName("app".into()), attempt: 0 }
}

fn pod() -> PodWorker {
    let app = ContainerSpec { pre_stop: Some(Hook::Exec), ..ContainerSpec::new("app", Role::Main) };
    PodWorker::new(PodSpec::new(vec![app]))
}

fn running() -> PodWorker {
    let mut pod = pod();
    for input in beginning() {
        pod.handle(Moment::from_millis(1_000), input);
    }
    pod
}

fn beginning() -> [Input; 4] {
    [
        Input::Begin,
        Input::SandboxReady,
        Input::ImageReady { container: app().name, edition: 0, stop_signal: None },
        Input::Started { instance: app(), wall: Wall(0) },
    ]
}

/// What a running pod hears most of the time: nothing new. Inputs are made beforehand, as their makers pay for them.
fn quiet() -> (f64, f64) {
    let mut pod = running();
    let mut inputs: Vec<Input> = Vec::new();
    measure(|| {
        inputs.clear();
        for _ in 0..250 {
            inputs.extend([Input::TimePassed, Input::SandboxReady, Input::ObjectDeleted]);
        }
        let count = inputs.len() as u64;
        for input in inputs.drain(..) {
            black_box(pod.handle(Moment::from_millis(2_000), input));
        }
        count
    })
}

/// Something changes each time, and others are shown.
fn probes() -> (f64, f64) {
    let app_spec =
        ContainerSpec { readiness: lifecycle::Readiness::WhenProbed, ..ContainerSpec::new("app", Role::Main) };
    let mut pod = PodWorker::new(PodSpec::new(vec![app_spec]));
    for input in beginning() {
        pod.handle(Moment::from_millis(1_000), input);
    }
    let mut passing = false;
    measure(|| {
        for _ in 0..1_000 {
            passing = !passing;
            let input = Input::ProbeChanged { instance: app(), probe: Probe::Readiness, passing };
            let effects = pod.handle(Moment::from_millis(2_000), input);
            assert_eq!(effects, [Effect::PublishStatus]);
        }
        1_000
    })
}

/// From `Begin` to `Finish`: everything allocates something here.
fn lives() -> (f64, f64) {
    measure(|| {
        let mut inputs = 0;
        for _ in 0..100 {
            let mut pod = pod();
            let exit = Exit { code: 0, signal: None, oom: false, wall: Wall(9), seen: true };
            let end = [
                Input::DeleteRequested { grace: Duration::from_secs(30), sighting: DeleteSighting::Live },
                Input::HookFinished { instance: app(), kind: HookKind::PreStop, outcome: HookOutcome::Succeeded },
                Input::SignalAnswered { instance: app(), signal: Signal::TERM, delivery: Delivery::Delivered },
                Input::Exited { instance: app(), exit },
                Input::SandboxRemoved,
                Input::ObjectDeleted,
            ];
            for input in beginning().into_iter().chain(end) {
                black_box(pod.handle(Moment::from_millis(1_000), input));
                inputs += 1;
            }
            assert!(pod.is_finished());
        }
        inputs
    })
}
