//! Small worlds walked whole: the laws hold in each of them, and every planted flaw is found.
#![allow(clippy::unwrap_used, unreachable_pub, missing_docs, reason = "tests")]

mod flaws;
mod small;
mod walks;
