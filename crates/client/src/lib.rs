//! What every part that speaks the Kubernetes API to the server needs beside `kube` itself.
//!
//! [`follow`] is a list and a watch joined without a gap (and the same of metadata alone), [`list_readable`] the list alone; [`trimmed_metadata`] keeps what is
//! followed small; [`Recorder`] tells people what happened.

mod events;
mod follow;
mod lenient;
mod metadata;

pub use events::{Grade, Recorder, Wall, about_node, about_pod};
pub use follow::{Change, WatchUpdate, follow, follow_changes, follow_labelled, follow_metadata, list_readable};
pub use metadata::trimmed_metadata;
