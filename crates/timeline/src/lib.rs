//! The node's journal: one append-only log of what every pod's worker was told and what it answered.
//!
//! Written before acting, synced before anything that matters, read back after a restart; the same lines drawn for people
//! are a pod's timeline. This crate owns the format, since `lifecycle` knows no codec.
//!
//! Reading order: [`record`] (what is written, and how one record is framed), [`journal`] (the writer), [`life`] (what is
//! read back), [`mod@render`] (what people read); `wire` and `words` are the codec, `file` the care for the file,
//! `index` and `compaction` keep it from growing.

pub mod clock;
mod compaction;
mod encoding;
mod file;
mod index;
pub mod journal;
pub mod life;
mod record;
pub mod render;
mod wire;

pub use clock::{Clock, TimeSource, boot_id};
pub use journal::{Appended, Journal, JournalError, Pause, Serving};
pub use life::{Concluded, Fold, Life};
pub use record::Record;
pub use render::render;
