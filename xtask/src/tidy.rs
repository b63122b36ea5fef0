//! Keeps the papers honest: every test and file they name exists, and nothing in the tree speaks of a machine.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use crate::{reference, scenarios, sources};

/// The walk of one request through the code.
const WALK: &str = "docs/one-delete.md";

/// No file of code may be longer than this.
const LINES_MOST: usize = 800;

/// Checks the tree below `root`.
pub(crate) fn run(root: &Path) -> Result<()> {
    let sources = sources::rust_files(root)?;
    let mut complaints = Vec::new();
    let tests: BTreeSet<String> = sources.iter().flat_map(|(_, text)| sources::test_names(text)).collect();
    named_tests(root, &tests, &mut complaints)?;
    for (path, text) in &sources {
        let lines = text.lines().count();
        let generated = text.lines().take(3).any(|line| line.contains("written by `cargo xtask"));
        if lines > LINES_MOST && !generated {
            complaints.push(format!("{} has {lines} lines; look for its second noun", path.display()));
        }
        if !text.starts_with("//!") && !text.starts_with("// Generated") {
            complaints.push(format!("{} does not open with //! and what it is for", path.display()));
        }
    }
    for paper in ["README.md", "ARCHITECTURE.md", "GUARANTEES.md", "CHANGELOG.md", "CONTRIBUTING.md"] {
        let text = fs::read_to_string(root.join(paper))?;
        complaints.extend(links(root, paper, &text));
        if text.contains("@@") {
            complaints.push(format!("{paper} has a place that was never filled in"));
        }
    }
    for page in sources::pages(root)? {
        complaints.extend(links(root, &page, &fs::read_to_string(root.join(&page))?));
    }
    complaints.extend(reference::check(&sources, &fs::read_to_string(root.join(reference::PAGE))?));
    let walk = fs::read_to_string(root.join(WALK))?;
    complaints.extend(hops(&walk, |file| fs::read_to_string(root.join(file)).ok()));
    complaints.extend(scenarios::check(root)?);
    complaints.extend(planted_flaws(root)?);
    ensure!(complaints.is_empty(), "the tree is untidy:\n  {}", complaints.join("\n  "));
    println!("tidy: {} files, {} tests, GUARANTEES.md names only tests that exist", sources.len(), tests.len());
    Ok(())
}

/// Bugs are planted for the simulation alone: no other crate may ask for them, and none by default.
fn planted_flaws(root: &Path) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for (path, text) in sources::manifests(root)? {
        let asks = |line: &str| line.contains("flaws\"") && !line.trim_start().starts_with('#');
        let allowed = path.ends_with("simulation/Cargo.toml");
        for line in text.lines().filter(|line| asks(line)) {
            if !allowed || line.trim_start().starts_with("default") {
                complaints.push(format!("{} asks for planted flaws: {}", path.display(), line.trim()));
            }
        }
    }
    Ok(complaints)
}

/// The last cell of each row names files in backticks, each followed by the functions or types in it; whatever is not there is a
/// complaint.
fn hops(page: &str, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut complaints = Vec::new();
    for hop in page.lines().filter_map(|line| line.strip_suffix(" |")?.rsplit(" | ").next()) {
        let mut file = None;
        for name in hop.split('`').skip(1).step_by(2) {
            if name.ends_with(".rs") {
                file = read(name).map(|text| (name, text));
                if file.is_none() {
                    complaints.push(format!("{WALK} names {name}, which is not there"));
                }
            } else if let Some((path, text)) = &file
                && !defines(text, name)
            {
                complaints.push(format!("{WALK} names {name} of {path}, which is not there"));
            }
        }
    }
    complaints
}

/// Whether a function or a type of that name is in the text of a file.
fn defines(text: &str, name: &str) -> bool {
    ["fn ", "trait ", "struct "].iter().any(|kind| {
        let definition = format!("{kind}{name}");
        text.match_indices(&definition).any(|(at, _)| text[at + definition.len()..].starts_with(['(', '<', ' ', ':']))
    })
}

/// Links to files that are not there. They are relative to the paper.
fn links(root: &Path, paper: &str, text: &str) -> Vec<String> {
    let folder = root.join(paper).parent().map_or_else(|| root.to_owned(), Path::to_owned);
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    let local = targets.filter(|target| !target.contains("://") && !target.starts_with('#'));
    local
        .filter(|target| !folder.join(target.split('#').next().unwrap_or(target)).exists())
        .map(|target| format!("{paper} links to {target}, which is not there"))
        .collect()
}

/// GUARANTEES.md names its proofs as `` `crate::a_test_name` ``; each must be a test of this tree.
fn named_tests(root: &Path, tests: &BTreeSet<String>, complaints: &mut Vec<String>) -> Result<()> {
    let path: PathBuf = root.join("GUARANTEES.md");
    let text = fs::read_to_string(&path)?;
    let mut count = 0;
    for name in text.split('`').skip(1).step_by(2).filter_map(|quoted| quoted.split_once("::")) {
        count += 1;
        let test = name.1.rsplit("::").next().unwrap_or(name.1);
        if !tests.contains(test) {
            complaints.push(format!("GUARANTEES.md names {test}, which is no test"));
        }
    }
    if count == 0 {
        complaints.push("GUARANTEES.md names no test at all".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::hops;

    #[test]
    fn hop_that_names_a_function_or_file_that_is_not_there_is_a_complaint() {
        let read =
            |file: &str| (file == "crates/a.rs").then(|| "pub async fn go<T>(x: T) {}\ntrait Way: Send {}".to_owned());
        let complaints = |hop: &str| hops(&format!("| 1 | what, `x` | {hop} |\n"), read).len();
        assert_eq!(complaints("`crates/a.rs` `go`, `Way`"), 0);
        assert_eq!(complaints("`crates/a.rs` `g`, `gone`"), 2);
        assert_eq!(complaints("`crates/b.rs` `go`"), 1);
    }
}
