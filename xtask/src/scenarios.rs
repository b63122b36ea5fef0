//! Which scenarios of the specifications are shown by which tests.
//!
//! A test carries the ids it shows in its doc comment, `/// [NT-12]`. NT is node termination, AD API deletion,
//! TR traffic and rollouts.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;

use crate::sources;

/// How many scenarios each specification has.
const CATALOGUE: [(&str, usize); 3] = [("NT", 165), ("AD", 89), ("TR", 112)];

/// Prints every id with its tests, and how many of each catalogue are shown.
pub(crate) fn run(root: &Path) -> Result<()> {
    let mut shown: BTreeMap<(String, usize), Vec<String>> = BTreeMap::new();
    for (path, text) in sources::rust_files(root)? {
        let mut ids = Vec::new();
        for line in text.lines().map(str::trim) {
            if line.starts_with("///") {
                ids.extend(ids_in(line));
            } else if let Some(name) = sources::function_name(line) {
                for id in ids.drain(..) {
                    shown.entry(id).or_default().push(format!("{}::{name}", path.display()));
                }
            } else if !line.starts_with("#[") {
                ids.clear();
            }
        }
    }
    for ((kind, number), tests) in &shown {
        println!("{kind}-{number:<4} {}", tests.join(", "));
    }
    for (kind, total) in CATALOGUE {
        let count = shown.keys().filter(|(k, _)| k == kind).count();
        println!("{kind}: {count} of {total} scenarios are shown by a test");
    }
    Ok(())
}

fn ids_in(line: &str) -> Vec<(String, usize)> {
    let bracketed = line.split('[').skip(1).filter_map(|rest| rest.split_once(']')).map(|(id, _)| id);
    bracketed
        .filter_map(|id| {
            let (kind, number) = id.split_once('-')?;
            CATALOGUE.iter().any(|(k, _)| *k == kind).then_some(())?;
            Some((kind.to_owned(), number.parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::ids_in;

    #[test]
    fn ids_are_found_in_doc_comments() {
        let ids = ids_in("/// [NT-12] [AD-3] and [not an id] and [XX-1]");
        assert_eq!(ids, [("NT".to_owned(), 12), ("AD".to_owned(), 3)]);
    }
}
