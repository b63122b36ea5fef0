//! Kinds that are added while the server runs: what is said about one, and what it may be called.

use std::borrow::Cow;
use std::sync::Arc;

use super::{Kind, KindRules, Names, Subresource, table};
use crate::rules::custom::CustomRules;
use crate::rules::names;

/// How many short names, and how many categories, one kind may have.
const WORDS_MAX: usize = 32;

/// What is said about a kind that is added.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CustomKind {
    /// What it is called.
    pub names: Names,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Whether `status` is written apart from the rest, which `metadata.generation` then counts.
    pub has_status: bool,
}

/// A name that a kind cannot have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {word:?} is no name of a kind: {reason}")]
pub struct DefinitionError {
    /// Which of the names.
    pub field: &'static str,
    word: String,
    reason: String,
}

impl CustomKind {
    /// The kind, to be added to a registry. Its objects may hold whatever they like beside their metadata.
    pub fn into_kind(self) -> Result<Kind, DefinitionError> {
        let Self { names, namespaced, has_status } = self;
        check(&names)?;
        let status = Subresource {
            name: Cow::Borrowed("status"),
            kind: Cow::Owned(names.kind.clone()),
            group: Cow::Owned(names.group.clone()),
            version: Cow::Owned(names.version.clone()),
            verbs: table::STATUS_VERBS,
        };
        let collection = format!("{}.{}", names.plural, names.group);
        let rules = KindRules::Added(Arc::new(CustomRules { has_status }));
        Ok(Kind {
            namespaced,
            subresources: if has_status { vec![status] } else { Vec::new() },
            has_generation: true,
            // As upstream: without it, a PUT could undo what its author has never seen.
            update_needs_version: true,
            message: None,
            ..Kind::plain(names, &collection, rules)
        })
    }
}

/// Names stand in paths, in keys of the store and, unescaped, in front of every object.
fn check(names: &Names) -> Result<(), DefinitionError> {
    let refuse = |field, word: &str, reason: String| Err(DefinitionError { field, word: word.to_owned(), reason });
    if !names.group.contains('.') {
        return refuse("group", &names.group, "must be a domain with more than one segment".to_owned());
    }
    let kind = names.kind.to_ascii_lowercase();
    let fields = [
        ("version", &names.version, label(&names.version)),
        ("group", &names.group, names::subdomain(&names.group)),
        ("kind", &names.kind, label(&kind)),
        ("plural", &names.plural, label(&names.plural)),
        ("singular", &names.singular, label(&names.singular)),
    ];
    for (field, word, reason) in fields {
        if let Some(reason) = reason {
            return refuse(field, word, reason);
        }
    }
    for (field, words) in [("short_names", &names.short_names), ("categories", &names.categories)] {
        if words.len() > WORDS_MAX {
            return refuse(field, &words[WORDS_MAX], format!("must have at most {WORDS_MAX} items"));
        }
        if let Some((word, reason)) = words.iter().find_map(|word| Some((word, label(word)?))) {
            return refuse(field, word, reason);
        }
    }
    Ok(())
}

/// A DNS-1035 label: it begins with a letter.
fn label(word: &str) -> Option<String> {
    let digit = || word.starts_with(|first: char| first.is_ascii_digit());
    names::label(word).or_else(|| digit().then(|| "must start with an alphabetic character".to_owned()))
}
