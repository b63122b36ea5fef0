//! `/version`, `/healthz`, `/livez`, `/readyz`.

use http::{Response, StatusCode};
use serde_json::json;

use crate::body::Body;
use crate::query::Query;
use crate::respond;
use crate::state::State;

/// What is checked: that it answers at all, and that the last write to the store succeeded. A server whose store takes no
/// writes is alive, as it still answers questions, but not ready.
fn checks(endpoint: &str) -> &'static [&'static str] {
    if endpoint == "livez" { &["ping"] } else { &["ping", "store"] }
}

pub(crate) fn version(state: &State, pretty: bool) -> Response<Body> {
    let mut numbers = state.version.trim_start_matches('v').split('.');
    let major = numbers.next().unwrap_or("1");
    let minor = numbers.next().unwrap_or("0");
    let document = json!({
        "major": major, "minor": minor,
        "emulationMajor": major, "emulationMinor": minor,
        "minCompatibilityMajor": major, "minCompatibilityMinor": minor,
        "gitVersion": state.version, "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "", "compiler": "rustc", "platform": format!("linux/{}", architecture()),
    });
    respond::json(StatusCode::OK, respond::prettied(pretty, respond::to_bytes(&document)))
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Answers `path`, one of the health endpoints or a single check below one.
pub(crate) fn check(state: &State, path: &str, query: &Query) -> Option<Response<Body>> {
    let mut parts = path.trim_matches('/').split('/');
    let endpoint = parts.next()?;
    let checks = checks(endpoint);
    let holds = |name: &str| name != "store" || state.store.takes_writes();
    match (parts.next(), parts.next()) {
        (None, _) => {}
        (Some(single), None) if checks.contains(&single) && holds(single) => {
            return Some(respond::plain(StatusCode::OK, "ok"));
        }
        (Some(single), None) if checks.contains(&single) => {
            let text = "internal server error: the store takes no writes\n";
            return Some(respond::plain(StatusCode::INTERNAL_SERVER_ERROR, text));
        }
        (Some(_), _) => return None,
    }
    let excluded = |name: &str| query.all("exclude").any(|excluded| excluded == name);
    let passes = checks.iter().all(|name| excluded(name) || holds(name));
    if passes && !query.flag("verbose") {
        return Some(respond::plain(StatusCode::OK, "ok"));
    }
    let mut text = String::new();
    for name in checks {
        text.push_str(&match (excluded(name), holds(name)) {
            (true, _) => format!("[+]{name} excluded: ok\n"),
            (false, true) => format!("[+]{name} ok\n"),
            (false, false) => format!("[-]{name} failed: reason withheld\n"),
        });
    }
    let strangers: Vec<String> =
        query.all("exclude").filter(|name| !checks.contains(name)).map(|name| format!("{name:?}")).collect();
    if !strangers.is_empty() {
        text.push_str(&format!(
            "warn: some health checks cannot be excluded: no matches for {}\n",
            strangers.join(",")
        ));
    }
    text.push_str(&format!("{endpoint} check {}\n", if passes { "passed" } else { "failed" }));
    Some(respond::plain(if passes { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR }, text))
}
