//! What other programs read of a plan: SARIF and JUnit.

use super::*;

const SWALLOWS: &str = "examples/plan/ignores-term.yaml";

/// What `adieu plan` prints although it fails.
fn printed(arguments: &[&str], input: &str) -> String {
    let cli = Cli::try_parse_from(["adieu", "plan"].iter().chain(arguments)).unwrap();
    let Command::Plan(args) = cli.command else { panic!("`plan` is not `plan`") };
    let mut out = Vec::new();
    let _ = run(&args, &mut input.as_bytes(), &mut out, Paint { colours: false });
    String::from_utf8(out).unwrap()
}

/// What the schema of SARIF 2.1.0 requires, and what code hosts require besides.
fn check_sarif(text: &str) -> Value {
    let log: Value = serde_json::from_str(text).unwrap();
    assert_eq!(log["version"], "2.1.0");
    assert!(log["$schema"].as_str().unwrap().contains("sarif-2.1.0"));
    let [run] = log["runs"].as_array().unwrap().as_slice() else { panic!("one run: {log}") };
    let driver = &run["tool"]["driver"];
    assert_eq!(driver["name"], "adieu plan");
    let rules = driver["rules"].as_array().unwrap();
    for rule in rules {
        for text in ["shortDescription", "fullDescription", "help"] {
            assert!(rule[text]["text"].as_str().is_some_and(|text| !text.is_empty()), "{rule}");
        }
    }
    for result in run["results"].as_array().unwrap() {
        assert!(result["message"]["text"].as_str().is_some_and(|text| !text.is_empty()), "{result}");
        assert!(["warning", "error"].contains(&result["level"].as_str().unwrap()), "{result}");
        let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
        assert_eq!(rules[index]["id"], result["ruleId"]);
        for location in result["locations"].as_array().into_iter().flatten() {
            let place = &location["physicalLocation"];
            let uri = place["artifactLocation"]["uri"].as_str().unwrap();
            assert!(!uri.is_empty() && !uri.contains(' '), "{uri}");
            assert!(place["region"].is_null() || place["region"]["startLine"].as_u64().unwrap() >= 1, "{place}");
        }
    }
    run["results"].clone()
}

#[test]
fn sarif_of_a_warning_has_its_rule_file_and_line() {
    let file = format!("{ROOT}{SWALLOWS}");
    let results = check_sarif(&printed(&["-f", &file, "-o", "sarif"], ""));
    assert_eq!(results[0]["ruleId"], "shell-swallows-signal");
    assert_eq!(results[0]["level"], "warning");
    let place = &results[0]["locations"][0]["physicalLocation"];
    assert!(place["artifactLocation"]["uri"].as_str().unwrap().ends_with(SWALLOWS));
    assert_eq!(place["region"]["startLine"], 19);
}

#[test]
fn sarif_of_a_plan_without_warnings_has_no_results_and_accepted_ones_are_none() {
    let file = format!("{ROOT}{SWALLOWS}");
    let accepted = ["-f", &file, "-o", "sarif", "--accept", "shell-swallows-signal,killed"];
    assert_eq!(check_sarif(&printed(&accepted, "")), json!([]));
}

#[test]
fn sarif_and_junit_of_mistakes_have_each_with_its_line() {
    let wrong = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers: 7\n";
    let results = check_sarif(&printed(&["-f", "-", "-o", "sarif"], wrong));
    assert_eq!((&results[0]["ruleId"], &results[0]["level"]), (&json!("mistake"), &json!("error")));
    assert_eq!(results[0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"], "standard%20input");
    assert_eq!(results[0]["locations"][0]["physicalLocation"]["region"]["startLine"], 5);
    let report = printed(&["-f", "-", "-o", "junit"], wrong);
    assert!(report.contains("<error type=\"mistake\"") && report.contains("line=\"5\""), "{report}");
    // No pods at all is a mistake without a place.
    let results =
        check_sarif(&printed(&["-f", "-", "-o", "sarif"], "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n"));
    assert!(results[0]["locations"].is_null(), "{results}");
}

#[test]
fn junit_has_a_test_for_each_pod_which_fails_if_there_are_warnings() {
    let manifest = [
        pod(&json!({}), &json!({ "name": "a<b>\"&", "command": ["sleep", "1d"] })),
        pod(&json!({}), &json!({ "command": ["/app"] })),
    ]
    .join("\n---\n");
    let named = manifest.replace("a<b>\\\"&", "quoted");
    let report = printed(&["-f", "-", "-o", "junit"], &named);
    assert!(report.starts_with("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites "), "{report}");
    assert!(report.contains("tests=\"2\" failures=\"1\" errors=\"0\""), "{report}");
    assert_eq!(report.matches("<testcase ").count(), 2);
    assert_eq!(report.matches("</testcase>").count(), 1, "the one without warnings has nothing inside");
    assert!(report.contains("<failure type=\"no-handler\" message=\""), "{report}");
}

#[test]
fn junit_of_what_xml_cannot_hold_is_still_xml() {
    let odd = pod(&json!({}), &json!({ "command": ["sh", "-c", "echo '<&\">' \u{1}; sleep 1d"] }));
    let report = printed(&["-f", "-", "-o", "junit"], &odd);
    assert!(!report.contains('\u{1}'), "{report}");
    let inside = report.split_once("?>").unwrap().1;
    // Every & begins one of our references, and every < a tag of ours.
    let references =
        ["&amp;", "&lt;", "&gt;", "&quot;"].iter().map(|known| inside.matches(known).count()).sum::<usize>();
    assert_eq!(inside.matches('&').count(), references);
    let tags = ["testsuite", "testcase", "failure"];
    for tag in inside.split('<').skip(1) {
        assert!(tags.iter().any(|known| tag.trim_start_matches('/').starts_with(known)), "<{tag}");
    }
}

/// The table of worked examples in docs/life-of-a-termination.md.
#[test]
fn worked_examples_of_the_life_of_a_termination_are_as_planned() {
    let page = fs::read_to_string(Path::new(ROOT).join("docs/life-of-a-termination.md")).unwrap();
    let manifest = format!("{ROOT}examples/plan/slow-prestop.yaml");
    let mut rows = 0;
    for row in page.lines().filter(|line| line.starts_with("| `--grace ")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [options, signal, end, code, ..] = cells.as_slice() else { panic!("{row}") };
        let options = options.trim_matches('`').split(' ');
        let arguments: Vec<&str> = ["-f", &manifest, "-o", "json"].into_iter().chain(options).collect();
        let report: Value = serde_json::from_str(&planned(&arguments, "").unwrap().0).unwrap();
        let timeline = report["pods"][0]["timeline"].as_array().unwrap();
        let seconds = |what: &str| {
            let fact = timeline.iter().find(|fact| fact["what"] == what).unwrap_or_else(|| panic!("no {what}: {row}"));
            fact["atMillis"].as_f64().unwrap() / 1000.0
        };
        assert!((seconds("signalled") - signal.trim_end_matches(" s").parse::<f64>().unwrap()).abs() < 0.1, "{row}");
        assert!((seconds("exited") - end.trim_end_matches(" s").parse::<f64>().unwrap()).abs() < 0.1, "{row}");
        let exited = timeline.iter().find(|fact| fact["what"] == "exited").unwrap();
        assert_eq!(exited["code"].to_string(), *code, "{row}");
        rows += 1;
    }
    assert!(rows >= 6, "{rows} examples");
}
