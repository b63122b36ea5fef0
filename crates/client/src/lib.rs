//! What every part that speaks the Kubernetes API to the server needs beside `kube` itself.
//!
//! [`follow`] is a list and a watch joined without a gap (and the same of metadata alone), [`list_readable`] the list alone; [`lean_metadata`] keeps what is
//! followed small; [`Recorder`] tells people what happened.

mod events;
mod follow;
mod lean;
mod lenient;

pub use events::{Grade, Recorder, about_node, about_pod};
pub use follow::{Change, Sight, follow, follow_changes, follow_metadata, list_readable};
pub use lean::lean_metadata;
