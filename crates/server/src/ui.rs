//! The web timeline at `/ui`: one-time links, sessions, and the files of the page.
//!
//! ```text
//!  adieu ui ── POST /ui/links ──▶ a link, good once and for a minute       (as whoever asks; RBAC: `post` on `/ui/links`)
//!  browser ─── GET /ui/open ────▶ a session in a cookie, and on to /ui
//!  page ────── GET /api… ───────▶ the ordinary API, as the session's user  ([`guard`]: reading only, RBAC as always)
//! ```
//!
//! The page is made of files that are part of this program. It asks nobody else, and neither may it: see [`POLICY`].

mod guard;
mod sessions;

use std::time::Duration;

use api::Status;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode, Uri};
use jiff::Timestamp;
use serde_json::json;

use crate::body::Body;
use crate::identity::Identity;
use crate::pki::Pki;
use crate::query::Query;
use crate::request::Verb;
use crate::respond;
use crate::state::State;
use sessions::{Full, Grant, LINK_LIFE};

pub(crate) use sessions::Sessions;

/// Nothing but files of ours is loaded, run or asked, and no other page shows this one.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      frame-ancestors 'none'; base-uri 'none'; form-action 'none'";
/// A watch of a session is begun anew this often, so that it ends soon after its session.
const WATCH_LONGEST: Duration = Duration::from_secs(600);
/// When somebody who found no place may try again.
const AGAIN_AFTER_SECONDS: u32 = 60;

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The files of the page.
const FILES: [(&str, &str, &str); 9] = [
    ("style.css", "text/css; charset=utf-8", include_str!("ui/page/style.css")),
    ("theme.js", SCRIPT, include_str!("ui/page/theme.js")),
    ("app.js", SCRIPT, include_str!("ui/page/app.js")),
    ("dom.js", SCRIPT, include_str!("ui/page/dom.js")),
    ("follow.js", SCRIPT, include_str!("ui/page/follow.js")),
    ("ends.js", SCRIPT, include_str!("ui/page/ends.js")),
    ("chart.js", SCRIPT, include_str!("ui/page/chart.js")),
    ("details.js", SCRIPT, include_str!("ui/page/details.js")),
    ("icon.svg", "image/svg+xml", include_str!("ui/page/icon.svg")),
];
const PAGE: &str = include_str!("ui/page/index.html");
const SIGN_IN: &str = include_str!("ui/page/signin.html");
/// Where a sentence is put into it.
const SENTENCE: &str = "{sentence}";

/// The bearer token by which a request was authenticated.
#[derive(Clone)]
pub(crate) struct ByToken(pub(crate) String);

/// When the certificate of a connection ends.
#[derive(Clone, Copy)]
pub(crate) struct CertificateEnds(pub(crate) Timestamp);

/// The session by which a request was authenticated.
#[derive(Clone)]
struct InSession {
    secret: String,
    left: Duration,
}

/// Cookies do not tell ports apart, so the port of this server is part of the name.
fn cookie_name(state: &State) -> String {
    format!("__Host-adieu-{}", state.advertise.port())
}

/// Whether the request comes from a browser that has a session, or had one.
pub(crate) fn has_cookie(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::COOKIE)
        .iter()
        .any(|line| String::from_utf8_lossy(line.as_bytes()).contains("__Host-adieu-"))
}

fn is_page(path: &str) -> bool {
    path == "/ui" || path.starts_with("/ui/")
}

/// Takes the session out of a request that shows nothing else, and tells whose it is. A session that is over is refused, except by the
/// page, which says how to begin another.
pub(crate) fn session(state: &State, parts: &mut Parts, cookie: Option<String>) -> Result<Option<Identity>, Status> {
    let Some(secret) = cookie else { return Ok(None) };
    let path = parts.uri.path();
    let Some((identity, left)) = state.ui.find(state, &secret) else {
        return if is_page(path) { Ok(None) } else { Err(Status::unauthorized()) };
    };
    // Files and the page itself say nothing of anybody. Whoever ends a session is looked at there.
    let reads = matches!(parts.method, Method::GET | Method::HEAD);
    let is_free = if reads { is_page(path) && path != "/ui/session" } else { path == "/ui/end" };
    if !is_free {
        guard::check(parts)?;
    }
    parts.extensions.insert(InSession { secret, left });
    Ok(Some(identity))
}

/// Takes the cookie of a session out of the headers, whatever becomes of it.
pub(crate) fn take_cookie(state: &State, headers: &mut HeaderMap) -> Option<String> {
    guard::take_cookie(headers, &cookie_name(state))
}

/// A watch of a session ends soon after it.
pub(crate) fn limit_watch(parts: &Parts, verb: Verb, query: &mut Query) {
    let Some(session) = parts.extensions.get::<InSession>().filter(|_| verb == Verb::Watch) else { return };
    let most = session.left.min(WATCH_LONGEST).as_secs().max(1);
    let asked = query.number("timeoutSeconds").ok().flatten().and_then(|asked| u64::try_from(asked).ok());
    let seconds = asked.filter(|asked| *asked > 0).map_or(most, |asked| asked.min(most));
    query.put("timeoutSeconds", seconds.to_string());
}

/// An address as it may be written down: without the secret of a link.
pub(crate) fn without_secret(uri: &Uri) -> &str {
    let whole = uri.path_and_query().map_or("", http::uri::PathAndQuery::as_str);
    if is_page(uri.path()) { uri.path() } else { whole }
}

/// Answers whatever is below `/ui`.
pub(crate) fn handle(
    state: &State,
    identity: &Identity,
    parts: &Parts,
    path: &str,
    query: &Query,
) -> Result<Response<Body>, Status> {
    let reads = matches!(parts.method, Method::GET | Method::HEAD);
    let session = parts.extensions.get::<InSession>();
    let answer = match path.strip_prefix("/ui").unwrap_or_default() {
        "/links" if parts.method == Method::POST => link(state, identity, parts)?,
        "/end" if parts.method == Method::POST => end(state, parts, session)?,
        "/links" | "/end" => return Err(Status::method_not_allowed()),
        _ if !reads => return Err(Status::method_not_allowed()),
        "/open" if parts.method == Method::GET => open(state, &parts.headers, query),
        "" | "/" if session.is_some() => respond::with_type(StatusCode::OK, HTML, PAGE),
        "" | "/" => sign_in("You have no session here, or it is over."),
        "/session" => match session {
            Some(session) => {
                let told = json!({ "user": identity.user, "endsInSeconds": session.left.as_secs() });
                respond::json(StatusCode::OK, respond::to_bytes(&told))
            }
            None => return Err(Status::unauthorized()),
        },
        file => {
            let found = FILES.iter().find(|(name, ..)| file.strip_prefix('/') == Some(*name));
            let (_, media, text) = found.ok_or_else(Status::no_such_path)?;
            respond::with_type(StatusCode::OK, media, *text)
        }
    };
    Ok(answer)
}

/// A link for whoever asks.
fn link(state: &State, identity: &Identity, parts: &Parts) -> Result<Response<Body>, Status> {
    let grant = Grant {
        identity: identity.clone(),
        token: parts.extensions.get::<ByToken>().map(|token| token.0.clone()),
        certificate_ends: parts.extensions.get::<CertificateEnds>().map(|end| end.0),
    };
    let secret = state.ui.new_link(state, grant).map_err(|Full| too_many("links"))?;
    let told = json!({
        "kind": "WebTimelineLink", "apiVersion": api::termination::API_VERSION,
        "path": format!("/ui/open?link={secret}"), "expiresInSeconds": LINK_LIFE.as_secs(),
        "certificateSha256": state.authority.get().and_then(Pki::fingerprint),
    });
    Ok(respond::json(StatusCode::CREATED, respond::to_bytes(&told)))
}

fn too_many(what: &str) -> Status {
    let message = format!("too many {what} of the web timeline are open, try again in a minute");
    Status::too_many_requests(message, AGAIN_AFTER_SECONDS)
}

/// Turns a link into a session.
fn open(state: &State, headers: &HeaderMap, query: &Query) -> Response<Body> {
    // Nobody uses up a link by leading a browser to it, and no browser by looking ahead.
    if !guard::is_opened_by_a_person(headers) {
        return sign_in("This link works from the address bar only, not from another page: copy it there.");
    }
    let secret = match state.ui.open(state, query.get("link").unwrap_or_default()) {
        None => return sign_in("This link was used before, or is older than a minute."),
        Some(Err(Full)) => return sign_in("Too many sessions are open. Try again later."),
        Some(Ok(secret)) => secret,
    };
    let cookie = format!(
        "{}={secret}; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age={}",
        cookie_name(state),
        sessions::SESSION_LIFE.as_secs()
    );
    let mut answer = respond::plain(StatusCode::SEE_OTHER, "");
    answer.headers_mut().insert(header::LOCATION, HeaderValue::from_static("/ui"));
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        answer.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    answer
}

/// Ends the session that asks for it.
fn end(state: &State, parts: &Parts, session: Option<&InSession>) -> Result<Response<Body>, Status> {
    if !guard::is_surely_of_the_page(&parts.headers, &parts.uri) {
        return Err(Status::new(403, "Forbidden", "only the page itself ends its session"));
    }
    if let Some(session) = session {
        state.ui.end(state, &session.secret);
    }
    let mut answer = respond::json(StatusCode::OK, "{}");
    let cookie = format!("{}=; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=0", cookie_name(state));
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        answer.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(answer)
}

/// The page for whoever has no session. The sentence is ours, never a client's.
fn sign_in(sentence: &'static str) -> Response<Body> {
    respond::with_type(StatusCode::UNAUTHORIZED, HTML, SIGN_IN.replace(SENTENCE, sentence))
}

/// What a browser must know of an answer of the page, or to it.
pub(crate) fn harden(headers: &mut HeaderMap) {
    let mut set = |name: HeaderName, value| headers.insert(name, HeaderValue::from_static(value));
    set(header::CACHE_CONTROL, "no-store");
    set(header::CONTENT_SECURITY_POLICY, POLICY);
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::X_FRAME_OPTIONS, "DENY");
    set(header::REFERRER_POLICY, "no-referrer");
    set(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    set(HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    set(HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()");
}

/// Whether an answer is for a browser: one of the page, or to it.
pub(crate) fn is_for_a_browser<B>(request: &http::Request<B>) -> bool {
    is_page(request.uri().path()) || has_cookie(request.headers())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_written_down_without_the_secret_of_a_link() {
        let written = |uri: &'static str| without_secret(&Uri::from_static(uri)).to_owned();
        assert_eq!(written("/ui/open?link=secret"), "/ui/open");
        assert_eq!(written("https://127.0.0.1:6443/ui/open?link=secret"), "/ui/open");
        assert_eq!(written("/api/v1/pods?watch=1"), "/api/v1/pods?watch=1");
    }
}
