//! What an instance complains about in its log: something that went wrong although every test was content.

use std::fs;

use anyhow::{Result, ensure};

use crate::Instance;

/// A warning that belongs to a story, and why it does.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// A part of the line.
    pub text: &'static str,
    /// Why the story cannot be told without it.
    pub because: &'static str,
}

const JOURNAL_CUT: Expected = Expected {
    text: "the end of the journal was never finished; it is cut off",
    because: "it was killed while it wrote, before anybody was told",
};

/// For a test that checks by itself that what was answered is still there.
pub const STORE_CUT: Expected = Expected {
    text: "the last write was never finished; it is dropped",
    because: "it was killed while it stored an object, before anybody was answered",
};

/// What an instance may say after it was killed while its pods' sandboxes were whole.
pub const AFTER_A_CRASH: &[Expected] = &[JOURNAL_CUT];

/// What an instance may say after it was killed at any moment. Whether a pod suffered is for the test to see.
pub const IN_A_STORM: &[Expected] = &[
    JOURNAL_CUT,
    Expected {
        text: "a sandbox that nobody remembers is removed",
        because: "it was killed after the kernel had made the sandbox and before that was written down",
    },
    Expected {
        text: "the pod's shim is gone; ending the pod",
        because: "it was killed after it had made the shim's socket and before the shim had it",
    },
];

/// Fails if the log holds an error, a panic, or a warning that was not to be expected.
pub fn ensure_none(instance: &Instance, expected: &[Expected]) -> Result<()> {
    let log = fs::read_to_string(instance.log())?;
    let bad: Vec<&str> = log.lines().filter(|line| is_bad(line, expected)).collect();
    ensure!(bad.is_empty(), "the log complains: {bad:#?}\nexpected at most {expected:#?}");
    Ok(())
}

fn is_bad(line: &str, expected: &[Expected]) -> bool {
    let warns = line.contains("WARN") && !expected.iter().any(|it| line.contains(it.text));
    line.contains("ERROR") || line.contains("panicked") || warns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_expected_is_forgiven() {
        let cut = "2026-11-15T20:00:00Z  WARN the end of the journal was never finished; it is cut off bytes=7";
        assert!(is_bad(cut, &[]) && !is_bad(cut, AFTER_A_CRASH));
        for line in ["x  WARN another", "x ERROR the node cannot go on", "thread 'main' panicked at src/main.rs:1:1:"] {
            assert!(is_bad(line, AFTER_A_CRASH), "{line}");
        }
        assert!(!is_bad("x  INFO all is well", &[]));
    }
}
