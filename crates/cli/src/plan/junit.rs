//! Plans as a JUnit report, which CI systems show as tests: one for each pod, failed if there are warnings of it.
//!
//! A mistake is a test that could not be run (`error`).

use std::fmt::Write as _;

use super::Plan;
use super::mistakes::Mistakes;
use crate::xml::{escaped, escaped_line};

/// One test.
struct Case<'a> {
    name: String,
    file: &'a str,
    line: u64,
    /// `failure` or `error`, its type, its first line, all of it.
    fault: Option<(&'static str, String, String, String)>,
}

/// A test for each of these plans.
pub(super) fn of(plans: &[Plan<'_>]) -> String {
    let cases = plans.iter().map(|plan| {
        let told = plan.warnings.iter().map(|warning| {
            let container = warning.container.as_ref().map(|name| format!("{name}: ")).unwrap_or_default();
            let line = warning.line.unwrap_or(plan.pod.place.line);
            let place = format!("{}:{line}", plan.pod.place.file);
            let head = format!("{container}{} [{}] {place}", warning.finding, warning.code);
            format!("{head}\n  why {}\n  do  {}\n", warning.reason, warning.remedy)
        });
        let fault = plan.warnings.first().map(|first| {
            let more = match plan.warnings.len() - 1 {
                0 => String::new(),
                more => format!(", and {more} more"),
            };
            ("failure", first.code.to_owned(), format!("{}{more}", first.finding), told.collect::<Vec<_>>().join("\n"))
        });
        let name = format!("{} {}: {}", plan.pod.kind, plan.pod.name, plan.verdict.because);
        Case { name, file: &plan.pod.place.file, line: plan.pod.place.line, fault }
    });
    suite(&cases.collect::<Vec<_>>())
}

/// A test for each mistake.
pub(super) fn of_mistakes(mistakes: &Mistakes) -> String {
    let cases = mistakes.all().iter().map(|mistake| Case {
        name: "manifest".to_owned(),
        file: mistake.file(),
        line: mistake.line().unwrap_or(0),
        fault: Some(("error", "mistake".to_owned(), mistake.sentence(), mistake.to_string())),
    });
    suite(&cases.collect::<Vec<_>>())
}

fn suite(cases: &[Case<'_>]) -> String {
    let faults =
        |kind: &str| cases.iter().filter(|case| case.fault.as_ref().is_some_and(|fault| fault.0 == kind)).count();
    let counts = format!("tests=\"{}\" failures=\"{}\" errors=\"{}\"", cases.len(), faults("failure"), faults("error"));
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "<testsuites name=\"adieu plan\" {counts}>\n<testsuite name=\"adieu plan\" {counts} skipped=\"0\">"
    );
    for case in cases {
        let (name, file) = (escaped_line(&case.name), escaped_line(case.file));
        let line = if case.line > 0 { format!(" line=\"{}\"", case.line) } else { String::new() };
        let _ = write!(out, "<testcase classname=\"{file}\" name=\"{name}\" file=\"{file}\"{line} time=\"0\"");
        let Some((kind, code, head, all)) = &case.fault else {
            let _ = writeln!(out, "/>");
            continue;
        };
        let (code, head, all) = (escaped_line(code), escaped_line(head), escaped(all));
        let _ = writeln!(out, ">\n<{kind} type=\"{code}\" message=\"{head}\">{all}</{kind}>\n</testcase>");
    }
    out.push_str("</testsuite>\n</testsuites>\n");
    out
}
