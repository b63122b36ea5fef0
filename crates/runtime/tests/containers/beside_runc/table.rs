//! The table of differences in `docs/runtime.md`: what is in it is explained, what is not must not differ.

use std::collections::{BTreeMap, BTreeSet};

use super::seen::Seen;

const PAPER: &str = "../../docs/runtime.md";
/// What a container is said to have where it has nothing of the name.
const ABSENT: &str = "absent";

/// One field that differs, and how, in each container that was looked at.
pub type Differences = BTreeMap<String, BTreeSet<(String, String)>>;

/// Adds the fields in which two containers differ.
pub fn compare(ours: &Seen, theirs: &Seen, into: &mut Differences) {
    let fields: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
    for field in fields {
        let value = |seen: &Seen| seen.get(field).cloned().unwrap_or_else(|| ABSENT.to_owned());
        let pair = (value(ours), value(theirs));
        if pair.0 != pair.1 {
            into.entry(field.clone()).or_default().insert(pair);
        }
    }
}

/// A line of the table.
#[derive(Debug)]
struct ComparisonRow {
    fields: Vec<String>,
    /// Differs only where control groups of the first and second kind live side by side.
    hybrid_only: bool,
    ours: String,
    theirs: String,
}

fn lines() -> Vec<ComparisonRow> {
    let paper = std::fs::read_to_string(PAPER).unwrap();
    let table = paper.lines().skip_while(|line| !line.starts_with("| seen inside |")).skip(2);
    let lines = table.take_while(|line| line.starts_with('|')).map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        assert!(cells.len() == 4 && !cells[3].is_empty(), "a line without a reason: {line}");
        let fields = cells[0].split('`').skip(1).step_by(2).map(str::to_owned).collect();
        let hybrid_only = cells[3].starts_with("hybrid:");
        ComparisonRow { fields, hybrid_only, ours: cells[1].to_owned(), theirs: cells[2].to_owned() }
    });
    lines.collect()
}

/// Everything that is wrong with the table, in words.
pub fn complaints(differences: &Differences) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut explained = BTreeSet::new();
    let hybrid = std::fs::exists("/sys/fs/cgroup/unified").unwrap();
    for line in lines() {
        for field in &line.fields {
            explained.insert(field.clone());
            let Some(pairs) = differences.get(field) else {
                if line.hybrid_only && !hybrid {
                    continue;
                }
                complaints.push(format!("{field:?} is in the table and does not differ"));
                continue;
            };
            for (ours, theirs) in pairs {
                for (cell, value) in [(&line.ours, ours), (&line.theirs, theirs)] {
                    // Words explain; what stands as code is what is seen.
                    let said = cell.strip_prefix('`').and_then(|cell| cell.strip_suffix('`'));
                    if said.is_some_and(|said| said != value) {
                        complaints.push(format!("{field:?} is {value:?}, not {cell}"));
                    }
                }
            }
        }
    }
    for (field, pairs) in differences {
        if !explained.contains(field) {
            for (ours, theirs) in pairs {
                complaints.push(format!("{field:?} is {ours:?} here and {theirs:?} under runc, and nobody says why"));
            }
        }
    }
    complaints
}
