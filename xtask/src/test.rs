//! Runs every test through `cargo nextest`, and gives a failed end-to-end test one more try, alone.
//!
//! Real containers on a busy machine are the one place where chance may break a sound test, so there, and only there, a failure is
//! tried again: it is then told as FLAKY with its first output. More than [`FLAKY_MOST`] of them, or one that fails
//! twice, is a failure. Unit, model and simulation tests get one try.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// How many tests may need a second try before the run counts as failed.
const FLAKY_MOST: usize = 3;

/// The package whose tests may be tried again.
const END_TO_END: &str = "e2e";

const REPORT: &str = "target/nextest/ci/junit.xml";

/// A test that failed.
#[derive(Debug, PartialEq, Eq)]
struct Failure {
    /// As nextest names the program: `e2e::endings`.
    binary: String,
    name: String,
    output: String,
}

impl Failure {
    fn may_be_tried_again(&self) -> bool {
        self.binary.split("::").next() == Some(END_TO_END)
    }
}

/// Runs the tests below `root`; further arguments go to `cargo nextest run`.
pub(crate) fn run(root: &Path, arguments: impl Iterator<Item = String>) -> Result<()> {
    let arguments: Vec<String> = arguments.collect();
    let report = root.join(REPORT);
    if report.exists() {
        fs::remove_file(&report)?;
    }
    let mut all = nextest(root);
    if all.args(&arguments).status().context("cannot run cargo nextest; scripts/setup installs it")?.success() {
        return Ok(());
    }
    let text = fs::read_to_string(&report).context("the tests did not run to their end")?;
    let failures = failures(&text);
    ensure!(!failures.is_empty(), "the tests failed, and the report names none that did");
    let names = |which: &[&Failure]| {
        which.iter().map(|it| format!("  {} {}", it.binary, it.name)).collect::<Vec<_>>().join("\n")
    };
    let (again, for_good): (Vec<&Failure>, Vec<&Failure>) = failures.iter().partition(|it| it.may_be_tried_again());
    ensure!(for_good.is_empty(), "failed, and not tried again:\n{}", names(&for_good));
    ensure!(
        again.len() <= FLAKY_MOST,
        "{} end-to-end tests failed, too many to be chance:\n{}",
        again.len(),
        names(&again)
    );
    for failure in &again {
        println!("== once more, alone: {} {}", failure.binary, failure.name);
        let filter = format!("binary_id(={}) & test(={})", failure.binary, failure.name);
        let passed = nextest(root).args(["-E", &filter]).status()?.success();
        ensure!(passed, "failed twice: {} {}", failure.binary, failure.name);
    }
    for failure in &again {
        println!("== FLAKY: {} {}: it failed once, and passed alone. Its first output:", failure.binary, failure.name);
        println!("{}", failure.output.trim_end());
    }
    println!("== {} flaky, at most {FLAKY_MOST} may be", again.len());
    Ok(())
}

fn nextest(root: &Path) -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(root).args(["nextest", "run", "--locked", "--workspace", "--profile", "ci"]);
    command
}

/// The failed tests of a JUnit report, as nextest writes it.
fn failures(report: &str) -> Vec<Failure> {
    let cases = report.split("<testcase ").skip(1);
    let cases = cases.map(|case| case.split_once("</testcase>").map_or(case, |(inside, _)| inside));
    let failed = cases.filter(|case| {
        let (head, inside) = case.split_once('>').unwrap_or((case, ""));
        !head.ends_with('/') && (inside.contains("<failure") || inside.contains("<error"))
    });
    let of = |case: &str, attribute: &str| {
        let (_, rest) = case.split_once(&format!("{attribute}=\""))?;
        Some(unescaped(rest.split_once('"')?.0))
    };
    let within = |case: &str, element: &str| {
        let (_, rest) = case.split_once(&format!("<{element}>"))?;
        Some(unescaped(rest.split_once(&format!("</{element}>"))?.0))
    };
    failed
        .map(|case| Failure {
            binary: of(case, "classname").unwrap_or_default(),
            name: of(case, " name").or_else(|| of(case, "name")).unwrap_or_default(),
            output: ["system-out", "system-err"].map(|it| within(case, it).unwrap_or_default()).concat(),
        })
        .collect()
}

fn unescaped(text: &str) -> String {
    let pairs = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&#10;", "\n"), ("&amp;", "&")];
    pairs.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

#[cfg(test)]
mod tests {
    use super::{Failure, failures};

    const REPORT: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="ci" tests="3" failures="1">
    <testsuite name="e2e::endings" tests="2">
        <testcase name="crash::pod_survives" classname="e2e::endings" timestamp="t" time="0.1">
        </testcase>
        <testcase name="storm::pods_leave" classname="e2e::endings" timestamp="t" time="0.2">
            <failure type="test failure">stderr</failure>
            <system-out>left &lt; right</system-out>
            <system-err>, told</system-err>
        </testcase>
    </testsuite>
    <testsuite name="api"><testcase name="quantity" classname="api" time="0.1"/></testsuite>
</testsuites>"#;

    #[test]
    fn failed_tests_are_read_from_a_report() {
        let expected = Failure {
            binary: "e2e::endings".into(),
            name: "storm::pods_leave".into(),
            output: "left < right, told".into(),
        };
        assert_eq!(failures(REPORT), [expected]);
    }

    #[test]
    fn only_end_to_end_tests_may_be_tried_again() {
        let of = |binary: &str| Failure { binary: binary.into(), name: "t".into(), output: String::new() };
        assert!(of("e2e::endings").may_be_tried_again());
        for binary in ["e2e_tools", "lifecycle::rules", "model", "api"] {
            assert!(!of(binary).may_be_tried_again(), "{binary}");
        }
    }
}
