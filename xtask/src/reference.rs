//! Keeps docs/reference.md whole: every annotation, label and condition `adieu.dev/…`, every metric `adieu_…`, every event that the
//! rules and the node tell, and every flag of the program is on the page, and the page names no other.
//!
//! Names are found in the text of the sources, where they are written in full; tests are left out.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The page.
pub(crate) const PAGE: &str = "docs/reference.md";

/// Begins of names, as the code and the page have them.
const OURS: &str = "adieu.dev/";
const METRIC: &str = "adieu_";

/// The API group's versions are no names of this kind.
const GROUP: &str = "adieu.dev/v1";

/// What asks for an annotation by its name without `adieu.dev/`, in files that put it before.
const SHORT: [&str; 6] =
    ["said(\"", "seconds(\"", "seconds(pod, \"", "annotation(\"", "annotation(pod, \"", "annotation(&pod, \""];
const PUTS_BEFORE: [&str; 2] = ["adieu.dev/{name}", "routes::annotation"];

/// Flags of commands that nobody types: they run in the pods of `adieu demo` and `adieu drill`.
const UNSEEN: [&str; 2] = ["crates/cli/src/demo/app.rs", "crates/cli/src/drill/client.rs"];

/// What tells an event. Its reason is the first text in it that is one word with a capital.
const TELLS: [&str; 5] =
    ["Event::normal(", "Event::warning(", "Event::pod_normal(", "Event::pod_warning(", "record_own("];

/// Every name that the page lacks, and every one that it has and the code does not.
pub(crate) fn check(sources: &[(PathBuf, String)], page: &str) -> Vec<String> {
    let shipped: Vec<(&Path, &str)> = sources
        .iter()
        .filter(|(path, _)| is_shipped(path))
        .map(|(path, text)| (path.as_path(), without_tests(text)))
        .collect();
    let all = |find: fn(&str) -> BTreeSet<String>| {
        shipped.iter().flat_map(|(_, text)| find(text)).collect::<BTreeSet<String>>()
    };
    let of_pods =
        shipped.iter().filter(|(path, _)| path.starts_with("crates/lifecycle") || path.starts_with("crates/node"));
    let events: BTreeSet<String> = of_pods.flat_map(|(_, text)| events(text)).collect();
    // Events that others tell are on the page, too; they only have to be somewhere.
    let quoted = |name: &str| shipped.iter().any(|(_, text)| text.contains(&format!("\"{name}\"")));
    let typed = shipped.iter().filter(|(path, _)| !UNSEEN.iter().any(|unseen| *path == Path::new(unseen)));
    let flags: BTreeSet<String> = typed.flat_map(|(_, text)| flags(text)).collect();
    let mut complaints = differences("the name", &all(ours), &beginning_with(&page.replace(GROUP, ""), OURS, is_name));
    complaints.extend(differences("the metric", &all(metrics), &beginning_with(page, METRIC, is_metric)));
    complaints.extend(differences("the flag", &flags, &beginning_with(section(page, "Flags"), "--", is_flag)));
    let rows: BTreeSet<String> = section(page, "Events").lines().filter_map(first_cell).flat_map(backticked).collect();
    complaints.extend(events.difference(&rows).map(|name| format!("{PAGE} lacks the event {name}")));
    let gone = rows.iter().filter(|name| !quoted(name));
    complaints.extend(gone.map(|name| format!("{PAGE} has the event {name}, which nothing tells")));
    complaints
}

fn differences(kind: &str, code: &BTreeSet<String>, page: &BTreeSet<String>) -> Vec<String> {
    let lacks = code.difference(page).map(|name| format!("{PAGE} lacks {kind} {name}"));
    let gone = page.difference(code).map(|name| format!("{PAGE} has {kind} {name}, which no code has"));
    lacks.chain(gone).collect()
}

/// Whether what a file says reaches the program.
fn is_shipped(path: &Path) -> bool {
    let is_test =
        |part: &str| part == "tests" || part == "tests.rs" || part.ends_with("_tests.rs") || part == "testkit";
    let is_ours = path.starts_with("app") || path.starts_with("crates");
    is_ours && !path.iter().any(|part| is_test(&part.to_string_lossy()))
}

fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod ").next().unwrap_or(text)
}

/// Annotations, labels, conditions.
fn ours(text: &str) -> BTreeSet<String> {
    let code = lines_of_code(text).collect::<Vec<_>>().join("\n").replace(GROUP, "");
    let mut names = beginning_with(&code, OURS, is_name);
    let puts_before = PUTS_BEFORE.iter().any(|words| code.contains(words));
    for ask in SHORT.iter().filter(|_| puts_before) {
        let short = code.split(*ask).skip(1).filter_map(|rest| rest.split('"').next());
        names.extend(
            short.filter(|name| !name.is_empty() && name.chars().all(is_name)).map(|name| format!("{OURS}{name}")),
        );
    }
    names
}

fn metrics(text: &str) -> BTreeSet<String> {
    beginning_with(&lines_of_code(text).collect::<Vec<_>>().join("\n"), METRIC, is_metric)
}

fn lines_of_code(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.trim_start().starts_with("//"))
}

/// The long options that a file declares, unless they are hidden.
fn flags(text: &str) -> BTreeSet<String> {
    let mut flags = BTreeSet::new();
    for declared in text.split("#[arg(").skip(1) {
        let Some((attribute, rest)) = declared.split_once(")]\n") else { continue };
        let mut words =
            outside_quotes(attribute).split(',').map(str::trim).map(str::to_owned).collect::<Vec<_>>().into_iter();
        if attribute.contains("hide = true") {
            continue;
        }
        let Some(long) = words.find(|word| word == "long" || word.starts_with("long =")) else { continue };
        let name = match long.contains('=') {
            true => attribute.split("long = \"").nth(1).and_then(|rest| rest.split('"').next()).map(str::to_owned),
            false => field(rest).map(|field| field.replace('_', "-")),
        };
        flags.extend(name.map(|name| format!("--{name}")));
    }
    flags
}

/// The text without what it quotes, so that a comma or a word in a quote is none of the text's own.
fn outside_quotes(text: &str) -> String {
    text.split('"').step_by(2).collect()
}

/// The name of the field that a declaration begins with.
fn field(text: &str) -> Option<&str> {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with(['#', '/']))?;
    line.trim_start_matches("pub ").split(':').next()
}

/// The reasons of the events that a file tells.
fn events(text: &str) -> BTreeSet<String> {
    let is_reason =
        |word: &&str| word.starts_with(|c: char| c.is_ascii_uppercase()) && word.chars().all(char::is_alphanumeric);
    let told = TELLS.iter().flat_map(|tell| text.split(tell).skip(1));
    // A call that takes its reason from elsewhere ends before the next quote that is one word.
    let call = |rest: &str| rest.split(';').next().unwrap_or(rest).to_owned();
    told.filter_map(|rest| call(rest).split('"').nth(1).filter(is_reason).map(str::to_owned)).collect()
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-'
}

fn is_metric(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'
}

fn is_flag(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'
}

/// The words of a text that begin like this and go on with such letters.
fn beginning_with(text: &str, begin: &str, goes_on: fn(char) -> bool) -> BTreeSet<String> {
    let rests = text.split(begin).skip(1);
    let words = rests.map(|rest| &rest[..rest.find(|c| !goes_on(c)).unwrap_or(rest.len())]);
    words
        .filter(|word| word.starts_with(|c: char| c.is_ascii_alphabetic()))
        .map(|word| format!("{begin}{word}"))
        .collect()
}

/// What is below the heading of that name, to the next of its kind.
fn section<'a>(page: &'a str, name: &str) -> &'a str {
    let below = page.split_once(&format!("\n## {name}\n")).map_or("", |(_, below)| below);
    below.split("\n## ").next().unwrap_or(below)
}

fn first_cell(line: &str) -> Option<&str> {
    line.strip_prefix("| ")?.split(" | ").next()
}

fn backticked(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = r#"
//! Speaks of adieu.dev/nothing.
const UNSTICK: &str = "adieu.dev/unstick";
const GROUP: &str = "adieu.dev/v1alpha1";
fn read() { let said = |name: &str| pod.get(&format!("adieu.dev/{name}")); let a = said("drain-barrier"); let b = annotation(pod, "redirect"); }
const METRIC: &str = "adieu_panics_total";
struct Args {
    /// Where
    #[arg(short, long, value_name = "DIR, long", default_value = "x")]
    pub data_dir: PathBuf,
    #[arg(long = "for", value_name = "OBJECT")]
    pub object: String,
    #[arg(value_name = "long")]
    pub name: String,
    #[arg(long, hide = true)]
    pub secret: bool,
}
fn tell() { out.push(Event::warning(&name, "KillSent", message)); out.push(Event::pod_warning(&reason, "Not this".into())); }
#[cfg(test)]
mod tests { const X: &str = "adieu.dev/only-a-test"; }
"#;

    const PAGE: &str = "# Reference\n\n`adieu.dev/unstick` `adieu.dev/drain-barrier` `adieu.dev/redirect`\n\n## Events\n\n| reason | says |\n\
                        |---|---|\n| `KillSent` | killed |\n\n## Metrics\n\n`adieu_panics_total`\n\n## Flags\n\n`--data-dir DIR`, `--for OBJECT`\n";

    fn complaints(page: &str) -> Vec<String> {
        check(&[(PathBuf::from("crates/node/src/a.rs"), CODE.to_owned())], page)
    }

    #[test]
    fn reference_that_names_everything_and_nothing_else_is_whole() {
        assert_eq!(complaints(PAGE), [] as [String; 0]);
    }

    #[test]
    fn reference_that_lacks_a_name_or_has_one_too_many_is_a_complaint() {
        for name in ["adieu.dev/unstick", "adieu.dev/redirect", "adieu_panics_total", "--for", "KillSent"] {
            let renamed = complaints(&PAGE.replace(name, &format!("{name}x")));
            assert_eq!(renamed.len(), 2, "{name}: {renamed:?}");
            assert!(renamed[0].contains("lacks the ") && renamed[0].ends_with(name), "{renamed:?}");
            assert!(renamed[1].contains(&format!("{name}x")), "{renamed:?}");
        }
    }

    #[test]
    fn name_that_only_a_test_has_need_not_be_in_the_reference() {
        let of_test = [(PathBuf::from("crates/node/tests/a.rs"), CODE.to_owned())];
        assert!(check(&of_test, "# Reference\n").is_empty());
    }
}
