//! Typed nftables batches over netlink.
//!
//! A [`Batch`] holds changes of tables, chains, rules, sets, maps and their elements, in the order in which the kernel makes
//! them. [`Nftables::commit`] sends it in one piece, and the kernel makes all of the changes or none of them: when the call
//! returns, packets meet the new rules. [`Nftables`] lists what is there, too, and a [`Monitor`] tells what anybody changes.
//!
//! ```text
//! use nft::{Batch, Family, Nftables, Table};
//!
//! let mut nftables = Nftables::open()?;
//! let table = Table::new(Family::Ip, "example");
//! let mut batch = Batch::new();
//! batch.add_table(&table);
//! nftables.commit(batch)?;
//! # Ok::<(), nft::Error>(())
//! ```
//!
//! # What is bounded
//!
//! - An attribute has at most 65,535 bytes: its length is a 16-bit number in the kernel's format. Lists of elements are spread
//!   over as many messages as they need; anything else that is longer is an [`Error::AttributeTooLong`] of the whole batch.
//! - A batch has at most [`BATCH_BYTES_MAX`] bytes, some 500,000 elements. It is never split, because only what is sent in one
//!   piece is made in one piece; the send buffer of the socket grows instead. That takes `CAP_NET_ADMIN` on the machine, without
//!   which `net.core.wmem_max` is the limit.
//! - What can be tried again is, at most [`TRIES_MAX`] times: answers that were interrupted, lists during which the ruleset
//!   changed, and changes that depend on a generation of it ([`Nftables::update`]).
//!
//! What is not here: what the rules mean, async, and any other program. Calls are answered in the thread that makes them,
//! within a lock that the whole machine shares.

#![warn(missing_docs)]

mod batch;
mod conntrack;
mod error;
mod expression;
mod list;
mod monitor;
mod object;
mod rule;
mod socket;
mod wire;

pub use self::batch::{BATCH_BYTES_MAX, Batch};
pub use self::conntrack::{Conntrack, Flow, FlowEnd};
pub use self::error::Error;
pub use self::expression::{
    ConnectionKey, Direction, Expression, Header, Inverted, MetaKey, NatKind, Register, RejectWith, Relation, Side,
};
pub use self::list::{ListedChain, ListedElement, ListedRule, ListedSet, ListedTable};
pub use self::monitor::{Action, Change, Monitor, Notification, Process, Transaction};
pub use self::object::{
    Chain, ChainKind, Element, Family, Field, Hook, ObjectKind, Placement, Set, Table, TableSpec, Value, ValueKind,
    Verdict, concatenated,
};
pub use self::rule::Rule;
pub use self::socket::{Nftables, Port, TRIES_MAX};
