//! What every part that speaks the Kubernetes API to the server needs beside `kube` itself.
//!
//! Today that is one thing: [`follow`], a list and a watch joined without a gap (and the same of metadata alone).

mod follow;

pub use follow::{Sight, follow, follow_metadata};
