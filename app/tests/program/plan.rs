//! `adieu plan` as it ships: what comes out where, exit codes, colours.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const GOOD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: a, image: x}]}\n";
const ZERO: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {terminationGracePeriodSeconds: 0, containers: [{name: a, image: x}]}\n";
const WRONG: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: a, imagge: x}]}\n";

/// `adieu plan -f - ARGUMENTS` with that on its standard input.
fn plan(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_adieu"))
        .args(["plan", "-f", "-"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn exit_codes_tell_plans_warnings_and_mistakes_apart() {
    let planned = plan(&[], GOOD);
    assert_eq!(planned.status.code(), Some(0));
    assert!(text(&planned.stdout).contains("verdict: clean") && planned.stderr.is_empty());
    assert_eq!(plan(&["--strict"], GOOD).status.code(), Some(0));
    assert_eq!(plan(&[], ZERO).status.code(), Some(0));
    assert_eq!(plan(&["--strict"], ZERO).status.code(), Some(3));
    let wrong = plan(&[], WRONG);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(wrong.stdout.is_empty());
    assert!(text(&wrong.stderr).contains("standard input:4: spec.containers[0].imagge: no such field"));
}

#[test]
fn a_program_always_gets_a_document() {
    let wrong = plan(&["-o", "json"], WRONG);
    assert_eq!(wrong.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&wrong.stdout).unwrap();
    assert_eq!(report["mistakes"][0]["field"], "spec.containers[0].imagge");
    assert!(text(&wrong.stderr).starts_with("adieu: 2 mistakes in the manifests"));
    let planned: Value = serde_json::from_slice(&plan(&["-o", "json"], GOOD).stdout).unwrap();
    assert_eq!(planned["pods"][0]["verdict"]["word"], "clean");
}

/// On a terminal of its own, which `script` makes.
#[test]
fn colours_are_for_terminals_that_want_them() {
    let file = std::env::temp_dir().join(format!("adieu-plan-colours-{}.yaml", std::process::id()));
    std::fs::write(&file, GOOD).unwrap();
    let command = format!("{} plan -f {}", env!("CARGO_BIN_EXE_adieu"), file.display());
    let on_terminal = |no_color: &str| {
        let output = Command::new("script")
            .args(["-qec", &command, "/dev/null"])
            .env("NO_COLOR", no_color)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        text(&output.stdout)
    };
    let (wanted, unwanted) = (on_terminal(""), on_terminal("1"));
    std::fs::remove_file(&file).unwrap();
    assert!(wanted.contains("\u{1b}[32mclean\u{1b}[0m"), "{wanted}");
    assert!(unwanted.contains("verdict: clean") && !unwanted.contains("\u{1b}["), "{unwanted}");
    assert!(!text(&plan(&[], GOOD).stdout).contains('\u{1b}'));
}
