//! What the cookie of the web timeline is good for: reading what the page shows, asked for by the page itself.
//!
//! A browser sends cookies whoever makes it ask, and not only to the port that set them. So a cookie counts for nothing but what is on
//! the list here, and not when the browser says that another page asks. Roles and bindings decide afterwards, as for any request.

use api::Status;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Uri};

use crate::request::{Address, Verb};

const SEC_FETCH_SITE: &str = "sec-fetch-site";
const SEC_FETCH_DEST: &str = "sec-fetch-dest";
const SEC_PURPOSE: [&str; 3] = ["sec-purpose", "purpose", "x-moz"];

/// What the page reads, by group. Nothing that holds secrets.
const READABLE: [(&str, &[&str]); 4] = [
    ("", &["pods", "events", "namespaces"]),
    ("apps", &["deployments", "replicasets", "statefulsets", "daemonsets"]),
    ("batch", &["jobs"]),
    (api::termination::GROUP, &[api::termination::PLURAL]),
];

/// Takes the session's secret out of the headers: nobody behind this server may see it. Of several with its name none counts.
pub(super) fn take_cookie(headers: &mut HeaderMap, name: &str) -> Option<String> {
    if !headers.contains_key(header::COOKIE) {
        return None;
    }
    let lines = headers.get_all(header::COOKIE).iter();
    let lines: Vec<_> = lines.map(|line| String::from_utf8_lossy(line.as_bytes()).into_owned()).collect();
    let all = lines.iter().flat_map(|line| line.split(';')).map(str::trim).filter(|pair| !pair.is_empty());
    let is_ours = |pair: &&str| pair.split_once('=').is_some_and(|(own, _)| own.trim() == name);
    let (ours, others): (Vec<&str>, Vec<&str>) = all.partition(is_ours);
    if ours.is_empty() {
        return None;
    }
    match HeaderValue::from_str(&others.join("; ")) {
        Ok(line) if !others.is_empty() => _ = headers.insert(header::COOKIE, line),
        _ => _ = headers.remove(header::COOKIE),
    }
    let [only] = ours.as_slice() else { return None };
    only.split_once('=').map(|(_, value)| value.trim().to_owned())
}

/// Whether a session may do this at all.
pub(super) fn check(parts: &Parts) -> Result<(), Status> {
    let refused = |why: &str| Err(Status::new(403, "Forbidden", format!("a session of the web timeline {why}")));
    let headers = &parts.headers;
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return refused("only reads; use kubectl for the rest");
    }
    if !is_of_the_page(headers, &parts.uri) {
        return refused("counts only for requests of its own page");
    }
    if headers.contains_key(header::UPGRADE) || headers.keys().any(is_impersonation) {
        return refused("changes neither the protocol nor the user");
    }
    let (address, query) = Address::of(&parts.uri);
    // Paths that are no objects (health, discovery) hold nothing of anybody; roles say who reads them.
    let Address::Resource(address) = address else { return Ok(()) };
    let reads = matches!(address.verb(&parts.method, &query), Ok(Verb::Get | Verb::List | Verb::Watch));
    let listed = READABLE
        .iter()
        .any(|(group, resources)| *group == address.group && resources.contains(&address.resource.as_str()));
    if !reads || !listed || !address.subresource.is_empty() || address.deeper {
        return refused("reads pods, their events, their workloads and how they ended, and nothing else");
    }
    Ok(())
}

/// Whether the browser says nothing of who makes it ask, or says that it is a page of ours.
fn is_of_the_page(headers: &HeaderMap, uri: &Uri) -> bool {
    let site = headers.get(SEC_FETCH_SITE).is_none_or(|site| site == "same-origin");
    site && headers.get(header::ORIGIN).is_none_or(|origin| is_own(origin, headers, uri))
}

/// Whether the browser says that a page of ours asks: for what more depends on than reading.
pub(super) fn is_surely_of_the_page(headers: &HeaderMap, uri: &Uri) -> bool {
    let says = headers.contains_key(SEC_FETCH_SITE) || headers.contains_key(header::ORIGIN);
    says && is_of_the_page(headers, uri)
}

/// Whether a person opens this address: no other site leads there, and the browser does not only look ahead.
pub(super) fn is_opened_by_a_person(headers: &HeaderMap) -> bool {
    let is =
        |name: &str, allowed: &[&str]| headers.get(name).is_none_or(|value| allowed.iter().any(|own| value == own));
    is(SEC_FETCH_SITE, &["none", "same-origin"])
        && is(SEC_FETCH_DEST, &["document"])
        && SEC_PURPOSE.iter().all(|name| !headers.contains_key(*name))
}

/// Whether an origin is the one that was asked.
fn is_own(origin: &HeaderValue, headers: &HeaderMap, uri: &Uri) -> bool {
    // In HTTP/2 it is part of the address.
    let named = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = uri.authority().map(http::uri::Authority::as_str).or(named);
    let origin = origin.to_str().ok().and_then(|origin| origin.strip_prefix("https://"));
    host.is_some() && origin == host
}

fn is_impersonation(name: &HeaderName) -> bool {
    name.as_str().starts_with("impersonate-")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn code(method: Method, uri: &str, headers: &[(&str, &str)]) -> u16 {
        let mut request = http::Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        check(&request.body(()).unwrap().into_parts().0).map_or_else(|refused| refused.code, |()| 200)
    }

    #[test]
    fn session_reads_what_the_page_shows() {
        for path in [
            "/api/v1/pods?watch=1",
            "/api/v1/namespaces/a/pods/p",
            "/api/v1/namespaces",
            "/api/v1/namespaces/a/events",
            "/apis/apps/v1/deployments",
            "/apis/apps/v1/namespaces/a/replicasets",
            "/apis/batch/v1/jobs",
            "/apis/adieu.dev/v1alpha1/terminationrecords",
            "/readyz",
        ] {
            assert_eq!(code(Method::GET, path, &[]), 200, "{path}");
        }
    }

    /// However the path is written.
    #[test]
    fn session_reads_nothing_else_and_writes_nothing() {
        for path in [
            "/api/v1/secrets",
            "/api/v1/namespaces/a/secrets/s",
            "/api/v1/watch/secrets",
            "/api/v1/namespaces/a/%73ecrets",
            "//api//v1//namespaces/a/secrets",
            "/api/v1/configmaps",
            "/api/v1/namespaces/a/pods/p/log",
            "/api/v1/namespaces/a/pods/p/exec?command=id",
            "/api/v1/namespaces/a/pods/p/attach",
            "/api/v1/namespaces/a/pods/p/portforward",
            "/api/v1/namespaces/a/pods/p/proxy/",
            "/api/v1/namespaces/a/pods/p/%70roxy/",
            "/api/v1/nodes/n/proxy/terminations/a/p",
            "/api/v1/namespaces/a/services/s/proxy/",
            "/apis/authentication.k8s.io/v1/tokenreviews",
            "/apis/example.com/v1/pods",
        ] {
            assert_eq!(code(Method::GET, path, &[]), 403, "{path}");
        }
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS, Method::CONNECT] {
            assert_eq!(code(method.clone(), "/api/v1/namespaces/a/pods/p", &[]), 403, "{method}");
        }
    }

    #[test]
    fn session_counts_for_its_own_page_only() {
        let pods = |headers: &[(&str, &str)]| code(Method::GET, "/api/v1/pods", headers);
        let host = ("host", "127.0.0.1:6443");
        assert_eq!(pods(&[host, ("sec-fetch-site", "same-origin"), ("origin", "https://127.0.0.1:6443")]), 200);
        for odd in [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
            ("sec-fetch-site", "none"),
            ("sec-fetch-site", ""),
            ("origin", "https://127.0.0.1:8443"),
            ("origin", "http://127.0.0.1:6443"),
            ("origin", "https://evil.example"),
            ("origin", "null"),
            ("upgrade", "websocket"),
            ("impersonate-user", "bob"),
            ("impersonate-extra-x", "y"),
        ] {
            assert_eq!(pods(&[host, odd]), 403, "{odd:?}");
        }
        // In HTTP/2 the host is part of the address.
        let h2 = |origin| code(Method::GET, "https://127.0.0.1:6443/api/v1/pods", &[("origin", origin)]);
        assert_eq!((h2("https://127.0.0.1:6443"), h2("https://127.0.0.1:1")), (200, 403));
        assert_eq!(pods(&[("origin", "https://127.0.0.1:6443")]), 403, "no host to compare with");
    }

    #[test]
    fn link_is_opened_by_people_only() {
        let opened = |name: &'static str, value: &'static str| {
            is_opened_by_a_person(&HeaderMap::from_iter([(name.parse().unwrap(), HeaderValue::from_static(value))]))
        };
        assert!(is_opened_by_a_person(&HeaderMap::new()));
        assert!(opened("sec-fetch-site", "none") && opened("sec-fetch-dest", "document"));
        for (name, value) in [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
            ("sec-fetch-dest", "image"),
            ("sec-fetch-dest", "iframe"),
            ("sec-purpose", "prefetch;prerender"),
            ("purpose", "prefetch"),
        ] {
            assert!(!opened(name, value), "{name}: {value}");
        }
    }

    #[test]
    fn cookie_is_taken_out_and_others_stay() {
        let taken = |lines: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(header::COOKIE, HeaderValue::from_static(line));
            }
            let cookie = take_cookie(&mut headers, "ours");
            (cookie, headers.get(header::COOKIE).map(|line| line.to_str().unwrap().to_owned()))
        };
        let word = |text: &str| Some(text.to_owned());
        assert_eq!(taken(&["a=1; ours=x; b=2"]), (word("x"), word("a=1; b=2")));
        assert_eq!(taken(&["a=1", "ours=x"]), (word("x"), word("a=1")), "HTTP/2 splits them");
        assert_eq!(taken(&["ours=x"]), (word("x"), None));
        assert_eq!(taken(&["ours=x; ours=y; a=1"]), (None, word("a=1")), "who set the other one?");
        assert_eq!(taken(&["oursx=1"]), (None, word("oursx=1")));
        assert_eq!(taken(&[]), (None, None));
    }
}
