//! An input that changes nothing costs no memory.
#![allow(unsafe_code, reason = "counting allocations takes a global allocator, and that trait is unsafe")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;

use lifecycle::{
    ContainerName, ContainerSpec, Delivery, Effect, Hook, Input, Instance, Moment, PodSpec, PodWorker, Role, Signal,
    Wall,
};

/// Counts what it passes on, thread by thread: what others do meanwhile is not our memory.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    ALLOCATIONS.with(|allocations| allocations.set(allocations.get() + 1));
}

// SAFETY: every call is passed on unchanged to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are the system's.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are the system's.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are the system's.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn an_input_that_changes_nothing_allocates_nothing() {
    let app = || Instance { name: ContainerName("app".into()), attempt: 0 };
    let spec = ContainerSpec { pre_stop: Some(Hook::Exec), ..ContainerSpec::new("app", Role::Main) };
    let mut pod = PodWorker::new(PodSpec::new(vec![spec]));
    let up = [
        Input::Begin,
        Input::SandboxReady,
        Input::ImageReady { container: app().name, edition: 0, stop_signal: None },
        Input::Started { instance: app(), wall: Wall(0) },
    ];
    for input in up {
        pod.handle(Moment::from_millis(1_000), input);
    }
    // Made beforehand: their makers pay for them.
    let inputs: Vec<Input> = (0..1_000)
        .flat_map(|_| {
            let answered =
                Input::SignalAnswered { instance: app(), signal: Signal::TERM, delivery: Delivery::Delivered };
            [Input::TimePassed, Input::SandboxReady, Input::ObjectDeleted, answered]
        })
        .collect();
    let (asked, before): (usize, u64) = (inputs.len(), ALLOCATIONS.get());
    let mut effects = 0;
    for input in inputs {
        effects += black_box(pod.handle(Moment::from_millis(2_000), input)).len();
    }
    assert_eq!((effects, ALLOCATIONS.get() - before), (0, 0), "of {asked} inputs");
    // And the counter counts: something that changes asks for something.
    let asked = pod.handle(Moment::from_millis(3_000), Input::ObjectGone);
    assert!(asked.iter().any(|effect| matches!(effect, Effect::RunHook { .. })) && ALLOCATIONS.get() > before);
}
