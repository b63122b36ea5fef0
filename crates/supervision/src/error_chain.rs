//! An error in one line.

use std::error::Error;
use std::fmt::Write as _;

/// The error and everything that it came from, in one line. Some errors repeat the words of their cause; those are said once.
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let words = cause.to_string();
        if !text.ends_with(&words) {
            let _ = write!(text, ": {words}");
        }
        source = cause.source();
    }
    text
}
