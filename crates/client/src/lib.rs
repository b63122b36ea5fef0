//! What every part that speaks the Kubernetes API to the server needs beside `kube` itself.
//!
//! [`follow`] is a list and a watch joined without a gap (and the same of metadata alone); [`lean_metadata`] keeps what is
//! followed small; [`Recorder`] tells people what happened.

mod events;
mod follow;
mod lean;

pub use events::{Grade, Recorder, about_node, about_pod};
pub use follow::{Change, Sight, follow, follow_changes, follow_metadata};
pub use lean::lean_metadata;
