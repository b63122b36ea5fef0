//! Trees of files that containers may have made: measured and deleted, however deep.

mod deletion;
mod spread;
mod usage;

pub use deletion::{delete_at, delete_part, delete_tree};
pub use spread::spread_below;
pub use usage::{DiskUsage, disk_usage};
