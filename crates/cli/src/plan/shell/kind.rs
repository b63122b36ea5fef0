//! Which shell, and what it does otherwise than the others. Measured with dash 0.5.12, bash 5.2.15 and busybox 1.35 as
//! first processes; the test `shells_do_as_predicted` measures again.

use super::{Command, Item, Script, Then};

/// A family of shells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::plan) enum Kind {
    /// The `sh` of Debian and Ubuntu.
    Dash,
    /// bash since 5.1.
    Bash,
    /// The `sh` of Alpine.
    Busybox,
}

impl Kind {
    /// `trap … SIGTERM`, `kill -SIGTERM`.
    pub(super) fn knows_sig_names(self) -> bool {
        self != Self::Dash
    }

    /// `function name`, `[[`, `source`, `wait -n`, `set -o pipefail`, `exec -a name`, `kill %1` in scripts.
    pub(super) fn knows_more_than_posix(self) -> bool {
        self != Self::Dash
    }

    /// A signal without a trap of its own ends the shell if it has one for its exit.
    pub(super) fn minds_exit_trap(self) -> bool {
        self == Self::Bash
    }

    /// `exit` in a trap means what was before the trap.
    pub(super) fn exit_looks_before_trap(self) -> bool {
        self != Self::Bash
    }

    /// `return` in a trap ends the script; bash calls it a mistake and goes on.
    pub(super) fn return_ends_script(self) -> bool {
        self != Self::Bash
    }

    /// Whether the shell becomes what the last command of a script runs, as far as the script's outside tells.
    pub(super) fn becomes_last_of(self, script: &Script) -> bool {
        match self {
            Self::Dash => false,
            // Only if the text ends right there.
            Self::Busybox => script.newlines == 0,
            Self::Bash => script.newlines <= 1 && bash_becomes(&script.list),
        }
    }

    /// Whether that also holds for a last command that stands in brackets, in `if` or the like.
    pub(super) fn becomes_inner(self) -> bool {
        self == Self::Busybox
    }
}

/// bash looks at the last line: a plain command, or one that `;`, `&&` or `||` joins to everything before it.
fn bash_becomes(list: &[Item]) -> bool {
    let Some((last, before)) = list.split_last() else { return false };
    let plain = matches!(last.pipeline.as_slice(), [Command::Simple { redirected: false, .. }]);
    let line: Vec<Then> = before.iter().rev().take_while(|item| !item.ends_line).map(|item| item.then).collect();
    let joint = match line.first() {
        None | Some(Then::Next) => true,
        Some(Then::And | Then::Or) => line.iter().all(|then| matches!(then, Then::And | Then::Or)),
        Some(Then::Background | Then::Line) => false,
    };
    plain && joint && !last.negated && !last.timed
}
