//! What is wrong with what was read: every mistake, each with its place.

use std::fmt;

use serde::Serialize;

/// Where something is written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SourceLocation {
    /// The file as it was named, or `standard input`.
    pub(super) file: String,
    /// Counted from 1; 0 if nobody knows.
    pub(super) line: u64,
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 { f.write_str(&self.file) } else { write!(f, "{}:{}", self.file, self.line) }
    }
}

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Mistake {
    /// The file as it was named; nothing if it is about none.
    #[serde(skip_serializing_if = "String::is_empty")]
    file: String,
    /// The line, as far as anybody knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    /// The field of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    field: String,
    /// What is wrong with it.
    message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.file.is_empty() {
            let place = SourceLocation { file: self.file.clone(), line: self.line.unwrap_or(0) };
            write!(f, "{place}: ")?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)
    }
}

impl Mistake {
    pub(super) fn file(&self) -> &str {
        &self.file
    }

    pub(super) fn line(&self) -> Option<u64> {
        self.line
    }

    /// Without its place.
    pub(super) fn sentence(&self) -> String {
        if self.field.is_empty() { self.message.clone() } else { format!("{}: {}", self.field, self.message) }
    }
}

/// Everything that is wrong.
#[derive(Debug, Default, thiserror::Error)]
pub(super) struct Mistakes(Vec<Mistake>);

impl Mistakes {
    /// One that is about no file.
    pub(super) fn one(message: impl Into<String>) -> Self {
        Self(vec![Mistake { file: String::new(), line: None, field: String::new(), message: message.into() }])
    }

    /// Two ways of looking may find the same thing; it is said once.
    pub(super) fn add(&mut self, place: SourceLocation, field: &str, message: impl Into<String>) {
        let line = Some(place.line).filter(|line| *line > 0);
        let mistake = Mistake { file: place.file, line, field: field.to_owned(), message: message.into() };
        if !self.0.contains(&mistake) {
            self.0.push(mistake);
        }
    }

    /// As somebody who reads the files would come across them.
    pub(super) fn sorted(mut self) -> Self {
        let files: Vec<String> = self.0.iter().map(|mistake| mistake.file.clone()).collect();
        let first = |mistake: &Mistake| files.iter().position(|file| *file == mistake.file);
        self.0.sort_by_cached_key(|mistake| (first(mistake), mistake.line));
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn all(&self) -> &[Mistake] {
        &self.0
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            // What is about no file needs no list.
            [only] if only.file.is_empty() => only.fmt(f),
            all => {
                let plural = if all.len() == 1 { "mistake" } else { "mistakes" };
                write!(f, "{} {plural} in the manifests", all.len())?;
                all.iter().try_for_each(|mistake| write!(f, "\n  {mistake}"))
            }
        }
    }
}
