//! Warnings and mistakes as SARIF 2.1.0, which code hosts and editors show beside the line.
//!
//! A warning is a result of level `warning` under its short name; a mistake one of level `error`, under `mistake`.

use serde_json::{Value, json};

use super::Plan;
use super::advice::Warning;
use super::mistakes::Mistakes;

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";
const PAGE: &str = "https://github.com/adieu-dev/adieu/blob/main/docs/plan.md";
/// The rule of everything that keeps a manifest from being planned.
const MISTAKE: &str = "mistake";

/// One result before rules have numbers.
struct Finding<'a> {
    rule: &'a str,
    level: &'static str,
    /// Why such a thing matters, and what to do about it.
    about: (&'a str, &'a str),
    text: String,
    file: &'a str,
    line: Option<u64>,
    /// The object, and the field of it.
    object: Option<String>,
}

/// The warnings of these plans.
pub(super) fn of(plans: &[Plan<'_>]) -> serde_json::Result<String> {
    let findings = plans.iter().flat_map(|plan| plan.warnings.iter().map(|warning| of_warning(plan, warning)));
    log(&findings.collect::<Vec<_>>())
}

/// Everything that is wrong.
pub(super) fn of_mistakes(mistakes: &Mistakes) -> serde_json::Result<String> {
    let findings = mistakes.all().iter().map(|mistake| Finding {
        rule: MISTAKE,
        level: "error",
        about: ("A manifest with a mistake is not planned.", "Correct it."),
        text: mistake.sentence(),
        file: mistake.file(),
        line: mistake.line(),
        object: None,
    });
    log(&findings.collect::<Vec<_>>())
}

fn of_warning<'a>(plan: &'a Plan<'_>, warning: &'a Warning) -> Finding<'a> {
    let of_container = warning.container.as_ref().map(|name| format!("{name}: ")).unwrap_or_default();
    let object = format!("{} {}", plan.pod.kind, plan.pod.name);
    Finding {
        rule: warning.code,
        level: "warning",
        about: (&warning.reason, &warning.remedy),
        text: format!("{object}: {of_container}{}: {}. {}.", warning.finding, warning.reason, warning.remedy),
        file: &plan.pod.place.file,
        // What the command line said is about the pod as a whole.
        line: warning.line.or(Some(plan.pod.place.line)),
        object: Some(format!("{object}/{}", warning.field)),
    }
}

fn log(findings: &[Finding<'_>]) -> serde_json::Result<String> {
    let mut rules: Vec<&Finding<'_>> = Vec::new();
    for finding in findings {
        if rules.iter().all(|rule| rule.rule != finding.rule) {
            rules.push(finding);
        }
    }
    let results = findings.iter().map(|finding| {
        let index = rules.iter().position(|rule| rule.rule == finding.rule);
        let mut result = json!({
            "ruleId": finding.rule, "ruleIndex": index, "level": finding.level, "message": { "text": finding.text },
        });
        // A mistake may be about no file; `adieu plan` without pods is.
        if !finding.file.is_empty() {
            let mut place = json!({ "artifactLocation": { "uri": uri(finding.file) } });
            if let Some(line) = finding.line.filter(|line| *line > 0) {
                place["region"] = json!({ "startLine": line });
            }
            let mut location = json!({ "physicalLocation": place });
            if let Some(object) = &finding.object {
                location["logicalLocations"] = json!([{ "fullyQualifiedName": object }]);
            }
            result["locations"] = json!([location]);
        }
        result
    });
    let described: Vec<Value> = rules.iter().map(|rule| described(rule)).collect();
    let log = json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "adieu plan", "semanticVersion": env!("CARGO_PKG_VERSION"), "informationUri": PAGE, "rules": described,
            } },
            "columnKind": "unicodeCodePoints",
            "results": results.collect::<Vec<_>>(),
        }],
    });
    Ok(serde_json::to_string_pretty(&log)? + "\n")
}

fn described(rule: &Finding<'_>) -> Value {
    let (reason, remedy) = rule.about;
    json!({
        "id": rule.rule,
        "shortDescription": { "text": rule.rule.replace('-', " ") },
        "fullDescription": { "text": reason },
        "help": { "text": remedy },
        "helpUri": PAGE,
        "defaultConfiguration": { "level": rule.level },
    })
}

/// A file's name as a reference that a URI can be made of: relative as long as the name is.
fn uri(file: &str) -> String {
    let mut uri = if file.starts_with('/') { "file://".to_owned() } else { String::new() };
    for byte in file.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => uri.push(char::from(byte)),
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::uri;

    #[test]
    fn uri_of_a_file_is_relative_as_the_file_is_and_has_no_odd_letters() {
        assert_eq!(uri("deploy/web.yaml"), "deploy/web.yaml");
        assert_eq!(uri("/srv/a b.yaml"), "file:///srv/a%20b.yaml");
        assert_eq!(uri("standard input"), "standard%20input");
        assert_eq!(uri("ä:1"), "%C3%A4%3A1");
    }
}
