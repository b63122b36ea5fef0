//! Why the kernel's packet rules could not be changed or read.

use std::io;

/// Why the kernel's packet rules could not be changed or read.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message of each variant tells what its fields are")]
pub enum Error {
    /// Netlink has 16 bits for the length of an attribute.
    #[error("an attribute would be {bytes} bytes long, and netlink carries at most 65535")]
    AttributeTooLong { bytes: usize },
    /// The kernel would take a part of it for the whole, or nothing.
    #[error("{name:?} is no name: it must have 1 to {max} bytes, none of them zero")]
    InvalidName { name: String, max: usize },
    /// It would be refused without a word about which.
    #[error("an element of {set} has {what} of {bytes} bytes, and the set has {expected}")]
    ElementLength { set: String, what: &'static str, bytes: usize, expected: usize },
    /// A batch is made in one piece, so it is sent in one piece.
    #[error("a batch has {bytes} bytes, and at most {max} can be sent at once")]
    BatchTooLong { bytes: usize, max: usize },
    /// The socket itself.
    #[error("cannot {doing}")]
    Socket { doing: &'static str, source: io::Error },
    /// The kernel refused a change, and with it the whole batch.
    #[error("the kernel refused to {object}{}{}", told(message.as_deref()), and_more(*others))]
    Refused {
        /// The first change that was refused.
        object: String,
        /// What the kernel said beside its error number.
        message: Option<String>,
        /// How many more of the batch were refused.
        others: usize,
        source: io::Error,
    },
    /// The batch was made for a generation of the ruleset that is over. Nothing was changed.
    #[error("somebody else changed the ruleset meanwhile")]
    GenerationChanged,
    /// The ruleset kept changing.
    #[error("the ruleset was changed by somebody else {tries} times while it was being read")]
    Contested { tries: u32 },
    /// Every request is answered before it returns.
    #[error("the kernel did not answer")]
    NoAnswer,
    /// An answer is shorter than it says, or lacks what it must have.
    #[error("the kernel's answer makes no sense: {what}")]
    Malformed { what: &'static str },
}

impl Error {
    /// The kernel's error number, if it gave one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Socket { source, .. } | Self::Refused { source, .. } => source.raw_os_error(),
            Self::AttributeTooLong { .. }
            | Self::InvalidName { .. }
            | Self::ElementLength { .. }
            | Self::BatchTooLong { .. }
            | Self::GenerationChanged
            | Self::Contested { .. }
            | Self::NoAnswer
            | Self::Malformed { .. } => None,
        }
    }
}

fn told(message: Option<&str>) -> String {
    message.map(|message| format!(" ({message})")).unwrap_or_default()
}

fn and_more(count: usize) -> String {
    match count {
        0 => String::new(),
        count => format!(", and {count} more of the batch"),
    }
}
