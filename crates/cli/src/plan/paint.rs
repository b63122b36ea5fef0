//! Colours for terminals, nothing elsewhere.

use std::fmt::Display;

/// Paints, or does not.
#[derive(Clone, Copy, Debug)]
pub struct Paint {
    /// Whether there is anyone to see colours.
    pub colours: bool,
}

/// What a piece of text means; the colour follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ink {
    /// The thing itself.
    Strong,
    /// Beside the point.
    Faint,
    /// As it should be.
    Good,
    /// Worth a look.
    Doubtful,
    /// Not as it should be.
    Bad,
    /// User code at work.
    Hook,
}

impl Paint {
    /// `text` in that ink.
    pub(super) fn ink(self, ink: Ink, text: impl Display) -> String {
        let code = match ink {
            Ink::Strong => "1",
            Ink::Faint => "2",
            Ink::Good => "32",
            Ink::Doubtful => "33",
            Ink::Bad => "31",
            Ink::Hook => "36",
        };
        let text = text.to_string();
        if self.colours && !text.is_empty() { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text }
    }
}
