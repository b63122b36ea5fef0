//! How a process becomes a container.
//!
//! Everything here runs in the shim or in a child of it that is on its way to `execve`: one thread, no async.
//! [`create`] makes a container's first process, [`exec`] joins a running one; both end in the same
//! [`last_steps`], so that no way into a container skips its confinement.

pub(crate) mod capabilities;
pub(crate) mod create;
mod devices;
pub(crate) mod exec;
mod file_system;
pub(crate) mod identity;
mod keyring;
mod last_steps;
mod masked_paths;
mod mounts;
pub(crate) mod plan;
pub(crate) mod progress;
mod root;
mod rootfs;
pub(crate) mod seccomp;
mod stdio;
pub(crate) mod volume;

use std::io;

/// Why a container or an exec could not be set up, in words; text, because it crosses a process boundary.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct SetupError(pub(crate) String);

impl SetupError {
    /// What was being done, and the kernel's answer to it.
    pub(crate) fn new(doing: impl std::fmt::Display, answer: impl Into<io::Error>) -> Self {
        Self(format!("{doing}: {}", words(&answer.into())))
    }
}

/// The kernel's answer without its number, as part of a sentence.
pub(crate) fn words(answer: &io::Error) -> String {
    let text = answer.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().collect::<String>() + letters.as_str()).unwrap_or_default()
}

/// Adds what was being done to a failure.
pub(crate) trait Doing<T> {
    /// Describes the step that failed.
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, SetupError>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, SetupError> {
        self.map_err(|answer| SetupError::new(what(), answer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_answer_reads_as_part_of_a_sentence() {
        let error = SetupError::new("open /x", io::Error::from_raw_os_error(libc::ENOENT));
        assert_eq!(error.to_string(), "open /x: no such file or directory");
    }
}
