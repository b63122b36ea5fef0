//! The journal on a real disk: records, crashes, compaction, and how it is drawn.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, unreachable_pub, missing_docs, reason = "tests")]

mod common;
mod crash;
mod full_disk;
mod journal;
mod long;
mod render;
