//! How pods leave, whatever happens meanwhile: deletes, crashes, shutdowns, storms.
#![allow(clippy::unwrap_used, unreachable_pub, missing_docs, reason = "tests")]

mod catalogue;
mod churn;
mod crash;
mod ends;
mod points;
mod records;
mod shutdown;
mod statics;
mod storm;
mod stuck;
mod survival;
mod termination;
mod termination_message;
mod upgrade;
