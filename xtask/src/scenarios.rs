//! Which scenarios of the specifications are shown by which tests, and why the others are not.
//!
//! A test carries the ids it shows in its doc comment, `/// [NT-12]`; a session of kubectl in a remark, `# [AD-80]`. NT is node termination, AD API deletion,
//! TR traffic and rollouts. `scenarios-left-out.txt` says of ids, or of ranges of them, what shows them instead or what
//! they wait for; an id that is neither shown nor explained is an error.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::sources;

/// How many scenarios each specification has.
const CATALOGUE: [(&str, usize); 3] = [("NT", 165), ("AD", 89), ("TR", 113)];
const LEFT_OUT: &str = "xtask/scenarios-left-out.txt";

type Id = (String, usize);

/// Prints every id with its tests or the reason why it has none, and how many of each catalogue are shown.
pub(crate) fn run(root: &Path) -> Result<()> {
    let shown = shown(root)?;
    let text = std::fs::read_to_string(root.join(LEFT_OUT)).with_context(|| format!("cannot read {LEFT_OUT}"))?;
    let left_out = left_out(&text)?;
    let mut unexplained = BTreeSet::new();
    for (kind, total) in CATALOGUE {
        for number in 1..=total {
            let id = (kind.to_owned(), number);
            match (shown.get(&id), left_out.get(&id)) {
                (Some(tests), _) => println!("{kind}-{number:<4} {}", tests.join(", ")),
                (None, Some(reason)) => println!("{kind}-{number:<4} left out: {reason}"),
                (None, None) => {
                    unexplained.insert(format!("{kind}-{number}"));
                }
            }
        }
    }
    for (kind, total) in CATALOGUE {
        let count = shown.keys().filter(|(k, _)| k == kind).count();
        println!("{kind}: {count} of {total} scenarios are shown by a test");
    }
    let stale: Vec<String> =
        left_out.keys().filter(|id| shown.contains_key(*id)).map(|(kind, number)| format!("{kind}-{number}")).collect();
    ensure!(unexplained.is_empty(), "neither shown nor explained in {LEFT_OUT}: {unexplained:?}");
    if !stale.is_empty() {
        println!("shown by now, and still explained in {LEFT_OUT}: {}", stale.join(", "));
    }
    Ok(())
}

fn shown(root: &Path) -> Result<BTreeMap<Id, Vec<String>>> {
    let mut shown: BTreeMap<Id, Vec<String>> = BTreeMap::new();
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
    for (path, text) in sources::session_files(root)? {
        for line in text.lines().filter(|line| line.starts_with('#')) {
            for id in ids_in(line) {
                shown.entry(id).or_default().push(path.display().to_string());
            }
        }
    }
    Ok(shown)
}

fn ids_in(line: &str) -> Vec<Id> {
    let bracketed = line.split('[').skip(1).filter_map(|rest| rest.split_once(']')).map(|(id, _)| id);
    bracketed
        .filter_map(|id| {
            let (kind, number) = id.split_once('-')?;
            CATALOGUE.iter().any(|(k, _)| *k == kind).then_some(())?;
            Some((kind.to_owned(), number.parse().ok()?))
        })
        .collect()
}

/// Lines of `NT-44 reason` or `TR-62..73 reason`; `#` begins a remark.
fn left_out(text: &str) -> Result<BTreeMap<Id, String>> {
    let mut left_out = BTreeMap::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let malformed = || format!("{LEFT_OUT}: {line:?} is not `ID reason`");
        let (ids, reason) = line.split_once(char::is_whitespace).with_context(malformed)?;
        let (kind, numbers) = ids.split_once('-').with_context(malformed)?;
        let (first, last) = numbers.split_once("..").unwrap_or((numbers, numbers));
        let (first, last): (usize, usize) =
            (first.parse().with_context(malformed)?, last.parse().with_context(malformed)?);
        for number in first..=last {
            left_out.insert((kind.to_owned(), number), reason.trim().to_owned());
        }
    }
    Ok(left_out)
}

#[cfg(test)]
mod tests {
    use super::{ids_in, left_out};

    #[test]
    fn ids_are_found_in_doc_comments() {
        let ids = ids_in("/// [NT-12] [AD-3] and [not an id] and [XX-1]");
        assert_eq!(ids, [("NT".to_owned(), 12), ("AD".to_owned(), 3)]);
    }

    #[test]
    fn reasons_are_read_for_ids_and_for_ranges() {
        let reasons = left_out("# why\nNT-4  the API's\n\nTR-7..9 the proxy's\n").expect("it is well formed");
        let told: Vec<_> = reasons.iter().map(|((kind, number), why)| (&**kind, *number, &**why)).collect();
        let proxy = "the proxy's";
        assert_eq!(told, [("NT", 4, "the API's"), ("TR", 7, proxy), ("TR", 8, proxy), ("TR", 9, proxy)]);
        assert!(left_out("NT-4").is_err() && left_out("NT-x why").is_err());
    }
}
