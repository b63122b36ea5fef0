//! Which scenarios of the specifications are shown by which tests, and why the others are not.
//!
//! A test carries the ids it shows in its doc comment, `/// [NT-12]`, and so does a story that a test tells (`stories![..]`); a
//! session of kubectl in a remark, `# [AD-80]`. NT is node
//! termination, AD API deletion, TR traffic and rollouts, SE security, WL workloads, NP network policy, DN DNS, LB load balancers. `scenarios-left-out.txt` says of ids, or of ranges of them, what shows them instead or what
//! they wait for; an id that is neither shown nor explained is an error.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::sources;

/// How many scenarios each specification has.
const CATALOGUE: [(&str, usize); 8] =
    [("NT", 165), ("AD", 89), ("TR", 113), ("SE", 120), ("WL", 173), ("NP", 60), ("DN", 50), ("LB", 25)];
/// Specifications of which every scenario must be shown or explained. The others are only counted, until their parts are built.
const COMPLETE: [&str; 3] = ["NT", "AD", "TR"];
const LEFT_OUT: &str = "xtask/scenarios-left-out.txt";

type Id = (String, usize);

/// Prints every id with its tests or the reason why it has none, and how many of each catalogue are shown.
pub(crate) fn run(root: &Path) -> Result<()> {
    let (shown, left_out) = read(root)?;
    for (kind, total) in CATALOGUE {
        for number in 1..=total {
            let id = (kind.to_owned(), number);
            match (shown.get(&id), left_out.get(&id)) {
                (None, None) if !COMPLETE.contains(&kind) => {}
                (Some(tests), _) => println!("{kind}-{number:<4} {}", tests.join(", ")),
                (None, Some(reason)) => println!("{kind}-{number:<4} left out: {reason}"),
                (None, None) => println!("{kind}-{number:<4} neither shown nor explained"),
            }
        }
    }
    for (kind, total) in CATALOGUE {
        let count = shown.keys().filter(|(k, _)| k == kind).count();
        println!("{kind}: {count} of {total} scenarios are shown by a test");
    }
    let complaints = complaints(&shown, &left_out);
    ensure!(complaints.is_empty(), "{}", complaints.join("\n"));
    Ok(())
}

/// What is wrong about the ids in the tree; nothing if all is well.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let (shown, left_out) = read(root)?;
    Ok(complaints(&shown, &left_out))
}

type Shown = BTreeMap<Id, Vec<String>>;
type LeftOut = BTreeMap<Id, String>;

fn read(root: &Path) -> Result<(Shown, LeftOut)> {
    let text = std::fs::read_to_string(root.join(LEFT_OUT)).with_context(|| format!("cannot read {LEFT_OUT}"))?;
    let mut shown = Shown::new();
    for (path, text) in sources::rust_files(root)? {
        for (id, test) in shown_in(&text) {
            shown.entry(id).or_default().push(format!("{}::{test}", path.display()));
        }
    }
    for (path, text) in sources::session_files(root)? {
        for line in text.lines().filter(|line| line.starts_with('#')) {
            for id in ids_in(line) {
                shown.entry(id).or_default().push(path.display().to_string());
            }
        }
    }
    Ok((shown, left_out(&text)?))
}

/// Every id is shown by a test that runs, or explained, and not both; and every id is one.
fn complaints(shown: &Shown, left_out: &LeftOut) -> Vec<String> {
    let all: BTreeSet<Id> =
        CATALOGUE.iter().flat_map(|(kind, total)| (1..=*total).map(|number| ((*kind).to_owned(), number))).collect();
    let told = |(kind, number): &Id| format!("{kind}-{number}");
    let mut complaints = Vec::new();
    for id in &all {
        match (shown.get(id), left_out.contains_key(id)) {
            (None, false) if !COMPLETE.contains(&id.0.as_str()) => {}
            (None, false) => {
                complaints.push(format!("{} is neither shown by a test nor explained in {LEFT_OUT}", told(id)));
            }
            (Some(tests), true) => {
                let tests = tests.join(", ");
                complaints.push(format!("{} is explained in {LEFT_OUT} and shown by {tests}", told(id)));
            }
            (Some(_), false) | (None, true) => {}
        }
    }
    for id in shown.keys().chain(left_out.keys()).filter(|id| !all.contains(*id)) {
        complaints.push(format!("{} is no scenario", told(id)));
    }
    complaints
}

/// The ids that the tests of a file carry. Nothing but a test, or a story that one tells, shows anything, and one that is
/// ignored does not.
fn shown_in(text: &str) -> Vec<(Id, String)> {
    let stories = told_in(text);
    let mut shown = Vec::new();
    let (mut ids, mut is_test, mut is_ignored) = (Vec::new(), false, false);
    for line in text.lines().map(str::trim) {
        if line.starts_with("///") {
            ids.extend(ids_in(line));
        } else if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if line.starts_with("#[ignore") {
            is_ignored = true;
        } else if !line.starts_with("#[") {
            if let Some(name) = sources::function_name(line)
                && (is_test || stories.contains(name))
                && !is_ignored
            {
                shown.extend(ids.drain(..).map(|id| (id, name.to_owned())));
            }
            ids.clear();
            (is_test, is_ignored) = (false, false);
        }
    }
    shown
}

/// The names in the lists of stories of a file.
fn told_in(text: &str) -> BTreeSet<&str> {
    let lists = text.split("stories![").skip(1).filter_map(|rest| rest.split_once("];"));
    let names = lists.filter_map(|(list, _)| list.split_once(';')).flat_map(|(_, names)| names.split(','));
    names.map(str::trim).filter(|name| !name.is_empty()).collect()
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
fn left_out(text: &str) -> Result<LeftOut> {
    let mut left_out = LeftOut::new();
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
    use super::{complaints, ids_in, left_out, shown_in};

    #[test]
    fn ids_are_found_in_doc_comments() {
        let ids = ids_in("/// [NT-12] [AD-3] and [not an id] and [XX-1]");
        assert_eq!(ids, [("NT".to_owned(), 12), ("AD".to_owned(), 3)]);
    }

    #[test]
    fn only_tests_that_run_show_anything() {
        let text = "/// [NT-1]\n#[test]\nfn a() {}\n/// [NT-2]\nfn helper() {}\n/// [NT-3]\n#[test]\n#[ignore = \"slow\"]\n\
                    fn b() {}\n/// [NT-4]\nconst C: u8 = 1;\n#[test]\nfn c() {}\n/// [NT-5]\n#[tokio::test]\nasync fn d() {}\n";
        let shown: Vec<_> = shown_in(text).into_iter().map(|((_, number), test)| (number, test)).collect();
        assert_eq!(shown, [(1, "a".to_owned()), (5, "d".to_owned())]);
    }

    #[test]
    fn a_story_that_a_test_tells_shows_what_it_carries() {
        let text = "#[tokio::test]\nasync fn all() {\nlet stories = stories![stage;\n  a, b,\n];\n}\n/// [NT-1]\nasync fn a() {}\n\
                    /// [NT-2]\nasync fn b() {}\n/// [NT-3]\nasync fn untold() {}\n";
        let shown: Vec<_> = shown_in(text).into_iter().map(|((_, number), test)| (number, test)).collect();
        assert_eq!(shown, [(1, "a".to_owned()), (2, "b".to_owned())]);
    }

    #[test]
    fn every_id_is_shown_or_explained_and_not_both() {
        let all = left_out("NT-2..165 why\nAD-1..89 why\nTR-1..113 why\n").expect("it is well formed");
        let shown = |numbers: &[usize]| {
            numbers.iter().map(|number| (("NT".to_owned(), *number), vec!["t".to_owned()])).collect()
        };
        assert!(complaints(&shown(&[1]), &all).is_empty());
        assert_eq!(complaints(&shown(&[]), &all).len(), 1, "NT-1 is missing");
        assert_eq!(complaints(&shown(&[1, 2, 166]), &all).len(), 2, "NT-2 is both, NT-166 is nothing");
        let security = |number| (("SE".to_owned(), number), vec!["t".to_owned()]);
        let with = |number| shown(&[1]).into_iter().chain([security(number)]).collect();
        assert!(complaints(&with(7), &all).is_empty(), "an open catalogue may be shown in part");
        assert_eq!(complaints(&with(121), &all).len(), 1, "SE-121 is nothing");
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
