//! Loops that make the cluster as it was asked to be: each one plans (pure), then applies.

pub mod scheduler;
