//! The web timeline: who gets a link, what a session may do, for how long, and what a browser is told.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http::header::SET_COOKIE;
use serde_json::{Value, json};
use server::{Identity, Server};

use crate::harness::{Answer, Api, config, configmap, pod};

const PODS: &str = "/api/v1/namespaces/default/pods";
const NONE: &[(&str, &str)] = &[];

impl Api {
    /// A request as a browser sends it: nobody but the cookie says whose it is.
    async fn browse(&self, method: Method, path: &str, cookie: &str, headers: &[(&str, &str)]) -> Answer {
        let mut all = vec![("host", "127.0.0.1:6443"), ("cookie", cookie)];
        all.extend(headers);
        self.send_as(self.server.service(), method, path, &all, Bytes::new()).await
    }

    async fn link(&self, user: &Identity) -> String {
        let told = self.ask_as(user, Method::POST, "/ui/links", &Value::Null).await.expect(201);
        told["path"].as_str().unwrap().to_owned()
    }

    /// Opens a link in a browser without a session.
    async fn open(&self, link: &str) -> Answer {
        self.send_as(self.server.service(), Method::GET, link, &[("sec-fetch-site", "none")], Bytes::new()).await
    }

    /// The cookie of a new session.
    async fn session(&self, user: &Identity) -> String {
        cookie(&self.open(&self.link(user).await).await)
    }
}

/// `name=value` of the cookie that an answer sets.
#[track_caller]
fn cookie(answer: &Answer) -> String {
    assert_eq!(answer.code, 303, "{}", answer.text);
    let line = answer.headers[SET_COOKIE].to_str().unwrap();
    line.split(';').next().unwrap().to_owned()
}

#[tokio::test]
async fn link_opens_one_session_and_works_once() {
    let api = Api::start().await;
    let link = api.link(&Identity::admin()).await;
    let opened = api.open(&link).await;
    assert_eq!((opened.headers["location"].to_str().unwrap(), opened.text.as_str()), ("/ui", ""));
    let line = opened.headers[SET_COOKIE].to_str().unwrap();
    for word in ["__Host-adieu-6443=", "; Path=/", "; Secure", "; HttpOnly", "; SameSite=Strict", "; Max-Age=28800"] {
        assert!(line.contains(word) && !line.contains("Domain"), "{word} in {line}");
    }
    let again = api.open(&link).await;
    assert_eq!((again.code, again.headers.get(SET_COOKIE)), (401, None));
    assert!(again.text.contains("used before") && again.text.contains("adieu ui"), "{}", again.text);
    let session = cookie(&opened);
    api.browse(Method::GET, PODS, &session, NONE).await.expect(200);
    let told = api.browse(Method::GET, "/ui/session", &session, NONE).await.expect(200);
    assert_eq!(told["user"], "kubernetes-admin");
    for odd in ["/ui/open", "/ui/open?link=", "/ui/open?link=x", &link[..link.len() - 1]] {
        assert_eq!(api.open(odd).await.code, 401, "{odd}");
    }
}

/// The clock is simulated: both ends are exact.
#[tokio::test(start_paused = true)]
async fn link_ends_after_a_minute_and_session_after_eight_hours() {
    let dir = tempfile::tempdir().unwrap();
    // What opens the store waits for a disk, which no simulated time does.
    tokio::time::resume();
    let store = store::Store::open(&dir.path().join("store")).await.unwrap();
    let clock = frame::Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap());
    let server = Server::with_clock(config(store, std::sync::Arc::new(server::NoNodes)), clock).await.unwrap();
    tokio::time::pause();
    let send = async |service, method: Method, path: &str, cookie: &str| {
        let request = http::Request::builder().method(method).uri(path).header("cookie", cookie);
        let body = http_body_util::Full::new(Bytes::new());
        tower::ServiceExt::oneshot(service, request.body(body).unwrap()).await.unwrap()
    };
    let link = async || {
        let answer = send(server.service_as(Identity::admin()), Method::POST, "/ui/links", "").await;
        let body = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
        let told: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(told["expiresInSeconds"], 60);
        told["path"].as_str().unwrap().to_owned()
    };
    let old = link().await;
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(send(server.service(), Method::GET, &old, "").await.status(), 401);
    let fresh = link().await;
    tokio::time::advance(Duration::from_millis(59_900)).await;
    let opened = send(server.service(), Method::GET, &fresh, "").await;
    assert_eq!(opened.status(), 303);
    let session = opened.headers()[SET_COOKIE].to_str().unwrap().split(';').next().unwrap().to_owned();
    tokio::time::advance(Duration::from_secs(8 * 3600 - 1)).await;
    assert_eq!(send(server.service(), Method::GET, "/ui/session", &session).await.status(), 200);
    tokio::time::advance(Duration::from_secs(1)).await;
    for path in ["/ui/session", PODS, "/version"] {
        assert_eq!(send(server.service(), Method::GET, path, &session).await.status(), 401, "{path}");
    }
    let page = send(server.service(), Method::GET, "/ui", &session).await;
    assert_eq!(
        (page.status().as_u16(), page.headers()["content-type"].to_str().unwrap()),
        (401, "text/html; charset=utf-8")
    );
}

#[tokio::test]
async fn session_reads_as_its_user_and_changes_nothing() {
    let api = Api::start().await;
    api.post(PODS, &pod("p")).await.expect(201);
    let session = api.session(&Identity::admin()).await;
    let p = format!("{PODS}/p");
    let list = api.browse(Method::GET, PODS, &session, NONE).await;
    assert_eq!(list.headers["x-content-type-options"], "nosniff");
    assert_eq!(list.headers["cache-control"], "no-store");
    assert_eq!(list.expect(200)["items"][0]["metadata"]["name"], "p");
    for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
        for path in [PODS, &p, "/ui/links", "/api/v1/namespaces"] {
            let refused = api.browse(method.clone(), path, &session, NONE).await;
            assert_eq!(refused.code, 403, "{method} {path}");
            assert!(refused.text.contains("only reads"), "{}", refused.text);
        }
    }
    for path in ["/api/v1/secrets", "/api/v1/namespaces/default/secrets", "/api/v1/watch/secrets", "/api/v1/configmaps"]
    {
        assert_eq!(api.browse(Method::GET, path, &session, NONE).await.code, 403, "{path}");
    }
    for part in ["log", "exec?command=id", "attach", "portforward", "proxy/"] {
        assert_eq!(api.browse(Method::GET, &format!("{p}/{part}"), &session, NONE).await.code, 403, "{part}");
    }
    let upgrade = [("connection", "Upgrade"), ("upgrade", "websocket"), ("sec-websocket-version", "13")];
    assert_eq!(api.browse(Method::GET, &format!("{PODS}?watch=1"), &session, &upgrade).await.code, 403);
    assert_eq!(api.browse(Method::GET, PODS, &session, &[("impersonate-user", "bob")]).await.code, 403);
    assert_eq!(api.get(&p).await.code, 200, "it is still there");
}

/// Roles and bindings judge every request of a session, and who may have one.
#[tokio::test]
async fn session_has_the_rights_of_its_user_and_loses_them_with_the_binding() {
    let api = Api::start().await;
    let bob = Identity::new("bob", &[]);
    assert_eq!(api.ask_as(&bob, Method::POST, "/ui/links", &Value::Null).await.code, 403);
    let anonymous = api.send_as(api.server.service(), Method::POST, "/ui/links", NONE, Bytes::new()).await;
    assert_eq!(anonymous.code, 403);
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role =
        json!({ "metadata": { "name": "looks" }, "rules": [{ "verbs": ["post"], "nonResourceURLs": ["/ui/links"] }] });
    api.post(&format!("{rbac}/clusterroles"), &role).await.expect(201);
    let binding = json!({ "metadata": { "name": "looks" }, "subjects": [{ "kind": "User", "name": "bob" }],
        "roleRef": { "kind": "ClusterRole", "name": "looks" } });
    api.post(&format!("{rbac}/clusterrolebindings"), &binding).await.expect(201);
    let session = api.session(&bob).await;
    assert_eq!(api.browse(Method::GET, PODS, &session, NONE).await.code, 403);
    api.bind("b", "view", "bob").await;
    assert_eq!(api.browse(Method::GET, PODS, &session, NONE).await.code, 200);
    assert_eq!(api.browse(Method::GET, "/api/v1/pods", &session, NONE).await.code, 403);
    api.delete(&format!("{rbac}/namespaces/default/rolebindings/b")).await.expect(200);
    assert_eq!(api.browse(Method::GET, PODS, &session, NONE).await.code, 403);
    assert_eq!(api.browse(Method::GET, "/ui", &session, NONE).await.code, 200);
}

#[tokio::test]
async fn session_of_a_token_ends_with_the_token() {
    let api = Api::start().await;
    let admin = json!({ "metadata": { "name": "a" }, "roleRef": { "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "kind": "ServiceAccount", "name": "default", "namespace": "default" }] });
    api.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &admin).await.expect(201);
    let made = api.token("default", &json!({})).await.expect(201);
    let bearer = format!("Bearer {}", made["status"]["token"].as_str().unwrap());
    let headers = [("authorization", bearer.as_str())];
    let told = api.send_as(api.server.service(), Method::POST, "/ui/links", &headers, Bytes::new()).await.expect(201);
    let session = cookie(&api.open(told["path"].as_str().unwrap()).await);
    assert_eq!(api.browse(Method::GET, PODS, &session, NONE).await.code, 200);
    api.delete("/api/v1/namespaces/default/serviceaccounts/default").await.expect(200);
    assert_eq!(api.browse(Method::GET, PODS, &session, NONE).await.code, 401);
}

#[tokio::test]
async fn request_of_another_site_is_refused_and_uses_up_no_link() {
    let api = Api::start().await;
    let session = api.session(&Identity::admin()).await;
    for (name, value, code) in [
        ("sec-fetch-site", "same-origin", 200),
        ("origin", "https://127.0.0.1:6443", 200),
        ("sec-fetch-site", "cross-site", 403),
        ("sec-fetch-site", "same-site", 403),
        ("sec-fetch-site", "none", 403),
        ("origin", "https://evil.example", 403),
        ("origin", "https://127.0.0.1:8443", 403),
        ("origin", "null", 403),
    ] {
        for path in [PODS, "/ui/session"] {
            assert_eq!(api.browse(Method::GET, path, &session, &[(name, value)]).await.code, code, "{name}: {value}");
        }
        let preflight = api.browse(Method::OPTIONS, PODS, &session, &[(name, value)]).await;
        assert!(preflight.code == 403 && preflight.headers.get("access-control-allow-origin").is_none());
    }
    let link = api.link(&Identity::admin()).await;
    for (name, value) in [("sec-fetch-site", "cross-site"), ("sec-purpose", "prefetch"), ("sec-fetch-dest", "image")] {
        let refused = api.send_as(api.server.service(), Method::GET, &link, &[(name, value)], Bytes::new()).await;
        assert_eq!((refused.code, refused.headers.get(SET_COOKIE)), (401, None), "{name}: {value}");
    }
    let head = api.send_as(api.server.service(), Method::HEAD, &link, NONE, Bytes::new()).await;
    assert_eq!((head.code, head.headers.get(SET_COOKIE)), (404, None));
    assert_eq!(api.open(&link).await.code, 303, "it is as good as before");
}

#[tokio::test]
async fn session_is_ended_by_its_page_alone() {
    let api = Api::start().await;
    let session = api.session(&Identity::admin()).await;
    for headers in [&[][..], &[("sec-fetch-site", "same-site")], &[("origin", "https://evil.example")]] {
        assert_eq!(api.browse(Method::POST, "/ui/end", &session, headers).await.code, 403, "{headers:?}");
    }
    assert_eq!(api.browse(Method::GET, PODS, &session, NONE).await.code, 200);
    let ended = api.browse(Method::POST, "/ui/end", &session, &[("sec-fetch-site", "same-origin")]).await;
    assert!(ended.code == 200 && ended.headers[SET_COOKIE].to_str().unwrap().contains("Max-Age=0"));
    assert_eq!(api.browse(Method::GET, PODS, &session, NONE).await.code, 401);
}

#[tokio::test]
async fn sessions_of_a_user_are_bounded_and_the_oldest_ends() {
    let api = Api::start().await;
    let mut sessions = Vec::new();
    for _ in 0..9 {
        sessions.push(api.session(&Identity::admin()).await);
    }
    let code = async |session: &String| api.browse(Method::GET, PODS, session, NONE).await.code;
    assert_eq!((code(&sessions[0]).await, code(&sessions[1]).await, code(&sessions[8]).await), (401, 200, 200));
}

#[tokio::test]
async fn page_needs_nothing_from_elsewhere_and_says_so_to_the_browser() {
    let api = Api::start().await;
    let session = api.session(&Identity::admin()).await;
    let page = api.browse(Method::GET, "/ui", &session, &[("sec-fetch-site", "none")]).await;
    assert_eq!(page.code, 200);
    let mut bytes = page.text.len();
    let files: Vec<&str> =
        page.text.split(['"', '\'']).filter(|word| word.starts_with("/ui/") && word.contains('.')).collect();
    assert!(files.contains(&"/ui/app.js") && files.contains(&"/ui/style.css"), "{files:?}");
    let modules = ["/ui/dom.js", "/ui/follow.js", "/ui/ends.js", "/ui/chart.js", "/ui/details.js"];
    let anonymous = api.browse(Method::GET, "/ui", "", NONE).await;
    assert!(anonymous.code == 401 && anonymous.text.contains("adieu ui") && !anonymous.text.contains("{sentence}"));
    for answer in [&page, &anonymous] {
        let policy = answer.headers["content-security-policy"].to_str().unwrap();
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "connect-src 'self'",
            "img-src 'self' data:",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "form-action 'none'",
        ] {
            assert!(policy.split(';').any(|own| own.trim() == part), "{part} in {policy}");
        }
        for (name, value) in
            [("x-content-type-options", "nosniff"), ("referrer-policy", "no-referrer"), ("cache-control", "no-store")]
        {
            assert_eq!(answer.headers[name], value);
        }
        // Nothing in line, nothing from elsewhere.
        let is_handler = |word: &str| word.starts_with("on") && word.contains('=');
        assert!(!answer.text.contains("<script>") && !answer.text.contains("style="));
        assert!(!answer.text.split_whitespace().any(is_handler));
    }
    for file in files.into_iter().chain(modules) {
        let answer = api.browse(Method::GET, file, "", NONE).await;
        assert_eq!(
            (answer.code, answer.headers["x-content-type-options"].to_str().unwrap()),
            (200, "nosniff"),
            "{file}"
        );
        for word in ["http://", "https://", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
            let own = answer.text.replace("http://www.w3.org/", "");
            assert!(!own.contains(word), "{word} in {file}");
        }
        bytes += answer.text.len();
    }
    assert!(bytes < 96 * 1024, "{bytes} bytes");
    for odd in ["/ui/x.js", "/ui/../state.rs", "/ui//app.js", "/uix", "/ui/app.js/"] {
        assert!(matches!(api.browse(Method::GET, odd, &session, NONE).await.code, 403 | 404), "{odd}");
    }
}

/// Whoever has a certificate in the browser is who it says, and their session's secret goes to nobody.
#[tokio::test]
async fn other_credentials_count_before_a_session() {
    let api = Api::start().await;
    let session = api.session(&Identity::admin()).await;
    let headers = [("cookie", session.as_str()), ("content-type", "application/json")];
    let bob = api.server.service_as(Identity::new("bob", &[]));
    assert_eq!(api.send_as(bob, Method::GET, PODS, &headers, Bytes::new()).await.code, 403);
    let path = "/api/v1/namespaces/default/configmaps";
    let made = api.send_as(api.service(), Method::POST, path, &headers, configmap("c").to_string()).await;
    assert_eq!(made.code, 201);
    let bearer = [("cookie", session.as_str()), ("authorization", "Bearer rubbish")];
    assert_eq!(api.send_as(api.server.service(), Method::GET, PODS, &bearer, Bytes::new()).await.code, 401);
}
