//! Nothing that a reader can ask ends the platform: what is too long or odd is refused, and the same process goes on.
#![allow(clippy::unwrap_used, reason = "tests")]

use anyhow::{Context, Result, ensure};
use e2e::pods::{PodWatch, busybox};
use e2e::{Instance, Kubectl, Shared, complaints};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// As long as an argument may be that still fits into a URI with all that kubectl writes around it.
const LONG: usize = 60_000;

/// Somebody who may look at everything in the namespace, and change nothing.
async fn viewer(instance: &Instance, kubectl: &Kubectl) -> Result<kube::Client> {
    kubectl.run(&["create", "serviceaccount", "viewer"]).await?;
    kubectl.run(&["create", "rolebinding", "viewer", "--clusterrole=view", "--serviceaccount=default:viewer"]).await?;
    let token = kubectl.run(&["create", "token", "viewer"]).await?;
    let mut kubeconfig = Kubeconfig::read_from(instance.kubeconfig())?;
    for user in &mut kubeconfig.auth_infos {
        user.auth_info = Some(serde_json::from_value(json!({ "token": token.trim() }))?);
    }
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(kube::Client::try_from(config)?)
}

/// The code of the answer, and what it says.
async fn asked(client: &kube::Client, method: &str, path: &str) -> Result<(u16, String)> {
    let request = http::Request::builder().method(method).uri(path).body(kube::client::Body::empty())?;
    let response = client.send(request).await?;
    let code = response.status().as_u16();
    Ok((code, String::from_utf8_lossy(&response.into_body().collect_bytes().await?).into_owned()))
}

/// How many panics the program has counted.
async fn panics(kubectl: &Kubectl) -> Result<Vec<String>> {
    let page = kubectl.run(&["get", "--raw", "/metrics"]).await?;
    ensure!(page.contains("# TYPE adieu_panics_total counter"), "panics are counted");
    Ok(page.lines().filter(|line| line.starts_with("adieu_panics_total")).map(ToOwned::to_owned).collect())
}

/// [SE-90] and CVE-2024-0793: whoever may only view cannot end API, scheduler and agent with a long query.
#[tokio::test(flavor = "multi_thread")]
async fn a_viewer_cannot_end_the_platform_with_a_long_query() -> Result<()> {
    let instance = Instance::start().await?;
    let pid = instance.pid().context("it runs")?;
    let kubectl = Kubectl::newest(&instance)?;
    let shared = Shared::new()?;
    kubectl.apply(&busybox("p", 1, "echo hello; sleep 1000 & wait", &shared)).await?;
    PodWatch::on(&instance.client().await?, "p").await?.ready().await?;
    let viewer = viewer(&instance, &kubectl).await?;

    // Three bytes for each when they are encoded: more than a URI may have.
    let commas = ",".repeat(30_000);
    let (code, text) = asked(&viewer, "GET", &format!("{PODS}/p/log?stream={commas}")).await?;
    assert_eq!((code, text.as_str()), (200, "hello\n"), "the node does not care");
    for time in [&commas, &":".repeat(LONG)] {
        let (code, text) = asked(&viewer, "GET", &format!("{PODS}/p/log?sinceTime={time}")).await?;
        let status: Value = serde_json::from_str(&text)?;
        assert_eq!((code, &status["reason"]), (400, &json!("BadRequest")), "{text}");
    }
    for stream in ["exec?command", "attach?command", "portforward?ports"] {
        let (code, text) = asked(&viewer, "POST", &format!("{PODS}/p/{stream}={commas}")).await?;
        assert_eq!(code, 403, "{text}");
    }

    let admin = instance.client().await?;
    for stream in ["exec?command", "attach?command", "portforward?ports"] {
        let (code, text) = asked(&admin, "POST", &format!("{PODS}/p/{stream}={commas}")).await?;
        assert_eq!(code, 400, "{text}");
    }
    assert_eq!(instance.pid(), Some(pid));
    ensure!(std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok(), "the same process runs");
    assert_eq!(panics(&kubectl).await?, Vec::<String>::new());
    assert_eq!(kubectl.run(&["logs", "p"]).await?, "hello\n");
    complaints::ensure_none(&instance, &[])
}

/// A command as long as a URI takes runs, whichever way it is carried; a longer one is refused.
#[tokio::test(flavor = "multi_thread")]
async fn an_exec_of_sixty_kilobytes_runs_and_a_longer_one_is_refused() -> Result<()> {
    let instance = Instance::start().await?;
    let pid = instance.pid();
    let shared = Shared::new()?;
    let newest = Kubectl::newest(&instance)?;
    newest.apply(&busybox("p", 1, "sleep 1000 & wait", &shared)).await?;
    PodWatch::on(&instance.client().await?, "p").await?.ready().await?;
    for kubectl in Kubectl::all(&instance)? {
        // kubectl writes three bytes for a comma, and one for a letter.
        for word in ["a".repeat(LONG), ",".repeat(LONG / 3)] {
            let echoed = kubectl.run(&["exec", "p", "--", "echo", &word]).await.with_context(|| kubectl.name())?;
            ensure!(echoed.trim_end() == word, "{}: {} bytes came back", kubectl.name(), echoed.len());
        }
        let refused = kubectl.command(&["exec", "p", "--", "echo", &",".repeat(LONG)]).output().await?;
        ensure!(!refused.status.success(), "{}: nothing carries that", kubectl.name());
        assert_eq!(instance.pid(), pid);
    }
    assert_eq!(panics(&newest).await?, Vec::<String>::new());
    complaints::ensure_none(&instance, &[])
}
