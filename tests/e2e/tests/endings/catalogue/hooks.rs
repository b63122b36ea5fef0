//! Hooks of every kind, on main containers and on sidecars: that they run, what failing costs, and what ends them early.

use anyhow::{Result, ensure};
use e2e::listener::Listener;
use e2e::pods::{phase, waits_for};
use e2e::stage::Stage;
use e2e::stories;
use e2e::story::{Draft, POLITE};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn hooks_run_and_never_block_a_termination() -> Result<()> {
    let stage = &Stage::set().await?;
    let stories = stories![stage;
        hooks_by_exec_run, hooks_by_http_run, hooks_by_https_run, a_request_is_built_as_it_is_written,
        a_failing_hook_does_not_prevent_the_stop, a_request_that_is_refused_is_a_failure_and_a_bad_answer_is_none,
        a_secure_hook_falls_back_to_plain_text, a_hook_by_tcp_always_fails, a_hook_longer_than_the_grace_is_refused,
        a_container_that_ends_by_itself_has_no_hook, a_container_that_exits_ends_its_sleep,
        a_hook_that_stops_its_container_is_no_failure, a_post_start_hook_holds_back_the_next_container,
        a_failed_post_start_ends_its_container,
    ];
    stage.tell(stories, &[]).await
}

/// A main container and a sidecar with the same two hooks each.
fn hooked<'a>(draft: Draft<'a>, post_start: &Value, pre_stop: &Value) -> Draft<'a> {
    let both = |draft: Draft<'a>| draft.hook("postStart", post_start.clone()).hook("preStop", pre_stop.clone());
    both(both(draft.sidecar("side", POLITE)).main("app", POLITE))
}

fn get(scheme: &str, port: u16, path: &str) -> Value {
    json!({ "httpGet": { "host": "127.0.0.1", "port": port, "path": path, "scheme": scheme } })
}

/// [NT-63] postStart before anybody is ready, preStop before the signal; on both kinds of containers.
async fn hooks_by_exec_run(stage: &Stage) -> Result<()> {
    let (post_start, pre_stop) = ("say begins", "say hook");
    let draft = stage.pod("by-exec")?.sidecar("side", POLITE).post_start(post_start).pre_stop(pre_stop);
    let mut pod = draft.main("app", POLITE).post_start(post_start).pre_stop(pre_stop).run().await?;
    pod.delete(&[]).await?;
    pod.gone().await?.was("Succeeded", &[("app", 0, "Completed"), ("side", 0, "Completed")])?;
    for name in ["app", "side"] {
        for words in [["begins", "TERM"], ["up", "TERM"], ["hook", "TERM"]] {
            pod.said_in_order(&words.map(|word| format!("{name} {word}")).each_ref().map(String::as_str))?;
        }
    }
    pod.said_in_order(&["side begins", "app up", "app hook", "app TERM", "side TERM"])
}

/// The server is asked for each hook, in its time.
async fn asks(stage: &Stage, name: &str, scheme: &str, mut server: Listener) -> Result<()> {
    let draft = hooked(stage.pod(name)?, &get(scheme, server.port, "/begins"), &get(scheme, server.port, "/hook"));
    let mut pod = draft.run().await?;
    for _ in 0..2 {
        let request = server.hears().await?;
        ensure!(request.starts_with("GET /begins HTTP/1.1\r\n"), "{request}");
        ensure!(request.contains("user-agent: kube-lifecycle/"), "{request}");
    }
    ensure!(server.heard().is_none(), "no hook runs before its time");
    pod.delete(&[]).await?;
    for _ in 0..2 {
        let request = server.hears().await?;
        ensure!(request.starts_with("GET /hook HTTP/1.1\r\n"), "{request}");
    }
    pod.gone().await?.was("Succeeded", &[("app", 0, "Completed"), ("side", 0, "Completed")])?;
    ensure!(server.heard().is_none(), "no hook runs twice");
    let told = stage.all_told(name).await?;
    ensure!(!told.iter().any(|event| event.contains("Hook")), "{told:?}");
    Ok(())
}

/// [NT-64] [NT-65] [NT-66] in plain text.
async fn hooks_by_http_run(stage: &Stage) -> Result<()> {
    asks(stage, "by-http", "HTTP", Listener::answering("200 OK").await?).await
}

/// [NT-64] [NT-65] [NT-66] by TLS, whoever signed the certificate.
async fn hooks_by_https_run(stage: &Stage) -> Result<()> {
    asks(stage, "by-https", "HTTPS", Listener::secure(&stage.instance.dir().join("pki")).await?).await
}

/// [NT-77] A port by its name, a query, a path without its slash, headers, and another host's name.
async fn a_request_is_built_as_it_is_written(stage: &Stage) -> Result<()> {
    let mut server = Listener::answering("200 OK").await?;
    let headers = json!([{ "name": "X-Who", "value": "me" }, { "name": "Host", "value": "shop.example" }]);
    let get = json!({ "host": "127.0.0.1", "port": "web", "path": "bye?soft=1&x=%20", "httpHeaders": headers });
    let ports = json!([{ "name": "web", "containerPort": server.port }]);
    let draft = stage.pod("built")?.main("app", POLITE).with("ports", ports);
    let mut pod = draft.hook("preStop", json!({ "httpGet": get })).run().await?;
    pod.delete(&[]).await?;
    let request = server.hears().await?;
    ensure!(request.starts_with("GET /bye?soft=1&x=%20 HTTP/1.1\r\n"), "{request}");
    ensure!(request.contains("x-who: me\r\n") && request.contains("\nhost: shop.example\r\n"), "{request}");
    ensure!(request.matches("host:").count() == 1, "{request}");
    pod.gone().await?.was("Succeeded", &[("app", 0, "Completed")])
}

/// [NT-74] People are told, and the container is asked all the same.
async fn a_failing_hook_does_not_prevent_the_stop(stage: &Stage) -> Result<()> {
    let mut pod = stage.pod("fails")?.main("app", POLITE).pre_stop("say hook; exit 1").run().await?;
    pod.delete(&[]).await?;
    pod.gone().await?.was("Succeeded", &[("app", 0, "Completed")])?;
    pod.said_only(&["app up", "app hook", "app TERM"])?;
    let told = stage.told("fails", "FailedPreStopHook").await?;
    ensure!(told == "PreStopHook failed: it ended with exit code 1", "{told}");
    Ok(())
}

/// [NT-75]
async fn a_request_that_is_refused_is_a_failure_and_a_bad_answer_is_none(stage: &Stage) -> Result<()> {
    let mut bad = Listener::answering("500 Internal Server Error").await?;
    // A port that is held and not listened to refuses, and none of the other stories can come to listen there.
    let held = tokio::net::TcpSocket::new_v4()?;
    held.bind("127.0.0.1:0".parse()?)?;
    let nobody = held.local_addr()?.port();
    let draft = stage.pod("answers")?.main("refused", POLITE).hook("preStop", get("HTTP", nobody, "/"));
    let mut pod = draft.main("bad", POLITE).hook("preStop", get("HTTP", bad.port, "/")).run().await?;
    pod.delete(&[]).await?;
    pod.gone().await?.was("Succeeded", &[("refused", 0, "Completed"), ("bad", 0, "Completed")])?;
    bad.hears().await?;
    let selector = "--field-selector=involvedObject.name=answers,reason=FailedPreStopHook";
    stage.all_told("answers").await?;
    let about = ["get", "events", selector, "-o", "jsonpath={.items[*].involvedObject.fieldPath}"];
    let about = stage.kubectl(&about).await?;
    ensure!(about == "spec.containers{refused}", "{about}");
    let told = stage.told("answers", "FailedPreStopHook").await?;
    ensure!(told.starts_with("PreStopHook failed: ") && told.to_lowercase().contains("connection refused"), "{told}");
    Ok(())
}

/// [NT-76] Asked once more in plain text, without the secret; and people are told.
async fn a_secure_hook_falls_back_to_plain_text(stage: &Stage) -> Result<()> {
    let mut server = Listener::answering("200 OK").await?;
    let mut hook = get("HTTPS", server.port, "/bye");
    hook["httpGet"]["httpHeaders"] =
        json!([{ "name": "Authorization", "value": "Bearer s3cret" }, { "name": "X-Who", "value": "me" }]);
    let mut pod = stage.pod("plain")?.main("app", POLITE).hook("preStop", hook).run().await?;
    pod.delete(&[]).await?;
    let request = server.hears().await?;
    ensure!(request.starts_with("GET /bye ") && request.contains("x-who: me"), "{request}");
    ensure!(!request.contains("s3cret"), "{request}");
    pod.gone().await?.was("Succeeded", &[("app", 0, "Completed")])?;
    let words = format!(
        "request to HTTPS lifecycle hook 127.0.0.1:{} got HTTP response, retry with HTTP succeeded",
        server.port
    );
    let told = stage.told("plain", "LifecycleHTTPFallback").await?;
    ensure!(told == words, "{told}");
    Ok(())
}

/// [NT-78] Nobody can write a hook without a handler; this one can be written, and fails.
async fn a_hook_by_tcp_always_fails(stage: &Stage) -> Result<()> {
    let server = Listener::answering("200 OK").await?;
    let handler = json!({ "tcpSocket": { "host": "127.0.0.1", "port": server.port } });
    let mut pod = stage.pod("by-tcp")?.main("app", POLITE).hook("preStop", handler).run().await?;
    pod.delete(&[]).await?;
    pod.gone().await?.was("Succeeded", &[("app", 0, "Completed")])?;
    let told = stage.told("by-tcp", "FailedPreStopHook").await?;
    ensure!(told == "PreStopHook failed: invalid handler", "{told}");
    let nothing = stage.pod("no-handler")?.main("app", POLITE).hook("preStop", json!({}));
    let refused = stage.apply(nothing.manifest()).await.map_err(|error| format!("{error:#}"));
    ensure!(refused.as_ref().is_err_and(|why| why.contains("must specify a handler type")), "{refused:?}");
    Ok(())
}

/// [NT-72]
async fn a_hook_longer_than_the_grace_is_refused(stage: &Stage) -> Result<()> {
    let draft = stage.pod("too-long")?.grace(5).main("app", POLITE);
    let draft = draft.hook("preStop", json!({ "sleep": { "seconds": 6 } }));
    let refused = stage.apply(draft.manifest()).await.map_err(|error| format!("{error:#}"));
    ensure!(refused.as_ref().is_err_and(|why| why.contains("lifecycle.preStop.sleep")), "{refused:?}");
    Ok(())
}

/// [NT-70] Nobody asked it to leave, so there is nothing to prepare.
async fn a_container_that_ends_by_itself_has_no_hook(stage: &Stage) -> Result<()> {
    let draft = stage.pod("by-itself")?.never_restarts().main("app", "say up; read word < /shared/gate");
    let mut pod = draft.hook("preStop", json!({ "sleep": { "seconds": 500 } })).run().await?;
    pod.shared.open_gate().await?;
    pod.watch.until("Succeeded", |pod| phase(pod) == Some("Succeeded")).await?;
    pod.delete(&[]).await?;
    pod.gone().await?.was("Succeeded", &[("app", 0, "Completed")])
}

/// [NT-83] Nobody sleeps for somebody who is gone.
async fn a_container_that_exits_ends_its_sleep(stage: &Stage) -> Result<()> {
    let script = "trap 'say TERM; exit 0' TERM; say up; read word < /shared/gate; say out; exit 3";
    let draft = stage.pod("sleepless")?.main("app", script);
    let mut pod = draft.hook("preStop", json!({ "sleep": { "seconds": 500 } })).run().await?;
    pod.delete(&[]).await?;
    stage.told("sleepless", "Killing").await?;
    pod.shared.open_gate().await?;
    pod.gone().await?.was("Failed", &[("app", 3, "Error")])?;
    pod.said_only(&["app up", "app out"])
}

/// [NT-84]
async fn a_hook_that_stops_its_container_is_no_failure(stage: &Stage) -> Result<()> {
    let script = "trap 'say told; exit 0' USR1; trap 'say TERM' TERM; say up; while :; do sleep 1000 & wait $!; done";
    let draft = stage.pod("by-hook")?.main("app", script).pre_stop("say hook; kill -USR1 1; sleep 1000");
    let mut pod = draft.run().await?;
    pod.delete(&[]).await?;
    pod.gone().await?.was("Succeeded", &[("app", 0, "Completed")])?;
    pod.said_only(&["app up", "app hook", "app told"])?;
    let told = stage.all_told("by-hook").await?;
    ensure!(!told.iter().any(|event| event.starts_with("FailedPreStopHook")), "{told:?}");
    Ok(())
}

/// [NT-79]
async fn a_post_start_hook_holds_back_the_next_container(stage: &Stage) -> Result<()> {
    let hook = "say begins; read word < /shared/gate; say begun";
    let draft = stage.pod("in-turn")?.main("first", POLITE).post_start(hook).main("second", POLITE);
    let mut pod = draft.create().await?;
    pod.hears("first up").await?;
    pod.hears("first begins").await?;
    pod.shared.open_gate().await?;
    pod.watch.ready().await?;
    pod.hears("second up").await?;
    pod.said_in_order(&["first begins", "first begun", "second up"])?;
    pod.delete(&[]).await?;
    pod.gone().await?.was("Succeeded", &[("first", 0, "Completed"), ("second", 0, "Completed")])
}

/// [NT-80] The container is stopped as any other, hook included, and tried again after a while.
async fn a_failed_post_start_ends_its_container(stage: &Stage) -> Result<()> {
    let draft = stage.pod("bad-start")?.main("app", POLITE).pre_stop("say hook");
    let mut pod = draft.post_start("until grep -q up /shared/log; do sleep 0.1; done; exit 1").create().await?;
    let waits = |pod: &k8s_openapi::api::core::v1::Pod| {
        matches!(waits_for(pod, "app"), Some("PostStartHookError" | "CrashLoopBackOff"))
    };
    pod.watch.until("PostStartHookError", waits).await?;
    pod.said_in_order(&["app up", "app hook", "app TERM"])?;
    let told = stage.told("bad-start", "FailedPostStartHook").await?;
    ensure!(told == "PostStartHook failed: it ended with exit code 1", "{told}");
    ensure!(stage.told("bad-start", "Killing").await? == "FailedPostStartHook");
    stage.told("bad-start", "BackOff").await?;
    pod.delete(&[]).await?;
    pod.gone().await.map(drop)
}
