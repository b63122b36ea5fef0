//! `/version`, `/healthz`, `/livez`, `/readyz`.

use http::{Response, StatusCode};
use serde_json::json;

use crate::body::Body;
use crate::query::Query;
use crate::respond;
use crate::state::State;

/// What is checked. The server serves only once its store is open, so each of these holds while it answers at all.
const CHECKS: [&str; 2] = ["ping", "store"];

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
pub(crate) fn check(path: &str, query: &Query) -> Option<Response<Body>> {
    let mut parts = path.trim_matches('/').split('/');
    let endpoint = parts.next()?;
    match (parts.next(), parts.next()) {
        (None, _) => {}
        (Some(single), None) if CHECKS.contains(&single) => return Some(respond::plain(StatusCode::OK, "ok")),
        (Some(_), _) => return None,
    }
    if !query.flag("verbose") {
        return Some(respond::plain(StatusCode::OK, "ok"));
    }
    let mut text = String::new();
    for name in CHECKS {
        let excluded = query.all("exclude").any(|excluded| excluded == name);
        text.push_str(&if excluded { format!("[+]{name} excluded: ok\n") } else { format!("[+]{name} ok\n") });
    }
    let strangers: Vec<String> =
        query.all("exclude").filter(|name| !CHECKS.contains(name)).map(|name| format!("{name:?}")).collect();
    if !strangers.is_empty() {
        text.push_str(&format!(
            "warn: some health checks cannot be excluded: no matches for {}\n",
            strangers.join(",")
        ));
    }
    text.push_str(&format!("{endpoint} check passed\n"));
    Some(respond::plain(StatusCode::OK, text))
}
