//! The memory of a long-running process: how little it may keep, and when it gives back the rest.

use crate::sys::rest::{self, ProgramPages};

/// Keeps the allocator from keeping much. To be called before there are threads.
pub fn keep_heaps_small() {
    rest::keep_heaps_small();
}

/// Gives back what was freed, and the page tables of code that may not run again. What is needed comes back by itself.
pub fn give_back() {
    ProgramPages::find().give_back();
}
