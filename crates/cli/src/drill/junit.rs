//! A report as JUnit XML, which build servers show: a case for the requests and one for each pod.

use std::fmt::Write as _;

use super::findings::Finding;
use super::report::Report;
use super::show;
use crate::xml::escaped;

/// A case of a suite.
struct Case {
    name: String,
    took_ms: u64,
    failures: Vec<String>,
    skipped: Option<String>,
}

/// All of it.
pub(super) fn xml(report: &Report) -> String {
    let cases = cases(report);
    let failed = cases.iter().filter(|case| !case.failures.is_empty()).count();
    let skipped = cases.iter().filter(|case| case.skipped.is_some()).count();
    let suite = escaped(&format!("adieu drill {} -n {}", report.workload, report.namespace));
    let class = escaped(&report.workload);
    let seconds: u64 = cases.iter().map(|case| case.took_ms).sum();
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    let _ = writeln!(
        xml,
        "  <testsuite name=\"{suite}\" tests=\"{}\" failures=\"{failed}\" errors=\"0\" skipped=\"{skipped}\" time=\"{}\">",
        cases.len(),
        in_seconds(seconds)
    );
    for case in &cases {
        let (name, time) = (escaped(&case.name), in_seconds(case.took_ms));
        let _ = writeln!(xml, "    <testcase classname=\"{class}\" name=\"{name}\" time=\"{time}\">");
        for failure in &case.failures {
            let first = escaped(failure.lines().next().unwrap_or_default());
            let _ = writeln!(xml, "      <failure message=\"{first}\">{}</failure>", escaped(failure));
        }
        if let Some(why) = &case.skipped {
            let _ = writeln!(xml, "      <skipped message=\"{}\"/>", escaped(why));
        }
        let _ = writeln!(xml, "    </testcase>");
    }
    let _ = writeln!(xml, "    <system-out>{}</system-out>", escaped(&show::text(report)));
    xml.push_str("  </testsuite>\n</testsuites>\n");
    xml
}

fn cases(report: &Report) -> Vec<Case> {
    let told = |of: &dyn Fn(&Finding) -> bool| -> Vec<String> {
        report.findings.iter().filter(|finding| of(finding)).map(in_words).collect()
    };
    let mut cases = Vec::new();
    if let Some(requests) = &report.requests {
        let name = format!("requests are answered: {} {}", requests.from, requests.to);
        cases.push(Case {
            name,
            took_ms: 0,
            failures: told(&|finding| finding.code == "requests-lost"),
            skipped: None,
        });
    }
    for pod in &report.pods {
        let failures = told(&|finding| finding.pods.contains(&pod.name));
        let is_over = pod.to_gone_ms.is_some();
        let skipped = (!is_over && failures.is_empty()).then(|| format!("it is {}", pod.verdict.text()));
        cases.push(Case {
            name: format!("{} leaves well", pod.name),
            took_ms: pod.to_gone_ms.unwrap_or(0),
            failures,
            skipped,
        });
    }
    let of_all = |finding: &Finding| finding.pods.is_empty() && finding.code != "requests-lost";
    cases.push(Case {
        name: "the drill comes to its end".to_owned(),
        took_ms: 0,
        failures: told(&of_all),
        skipped: report.incomplete_because.map(str::to_owned),
    });
    cases
}

fn in_words(finding: &Finding) -> String {
    let advice: String = finding.advice.iter().map(|advice| format!("\n{advice}")).collect();
    format!("{}{advice}", finding.sentence())
}

fn in_seconds(ms: u64) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
}
