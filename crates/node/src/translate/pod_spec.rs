//! An API pod reduced to what the rules of life need: see the `reading` crate, which `adieu plan` shares.

pub use reading::{SpecError, hook_of, pod_spec, seconds, spec_changes};
