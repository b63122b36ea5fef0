//! The web timeline in a browser: a link is opened, a pod leaves while the page looks on, and a person without a mouse reads it.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use e2e::browser::Browser;
use e2e::pods::{busybox, with_pre_stop};
use e2e::{Instance, Kubectl, Shared, complaints, workspace};
use serde_json::{Value, json};
use sha2::Digest as _;

/// What a pod says to whoever shows its output without care.
const HOSTILE: &str = "<img src=x onerror=document.title=1><script>alert(1)</script>";

fn picture(name: &str) -> PathBuf {
    workspace().join("target/ui").join(format!("{name}.png"))
}

async fn link(instance: &Instance) -> Result<Value> {
    let output = instance.adieu(&["ui", "-o", "json"]).output().await?;
    ensure!(output.status.success(), "adieu ui: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).context("adieu ui -o json")
}

/// The row of the list that names this, if it is there.
fn row(name: &str) -> String {
    format!("[...document.querySelectorAll('[role=option]')].find((own) => own.textContent.includes('{name}'))")
}

/// What the steps of the page say, time by time.
const STEPS: &str = "[...document.querySelectorAll('#details .steps tbody tr')].map((own) => \
                     [own.cells[0].textContent, own.cells[1].firstChild.textContent])";

#[tokio::test(flavor = "multi_thread")]
async fn page_shows_a_pod_leave_and_is_read_without_a_mouse() -> Result<()> {
    let mut instance = Instance::start().await?;
    let kubectl = Kubectl::newest(&instance)?;
    let shared = Shared::new()?;
    let script = "trap '' TERM; while :; do sleep 1; done";
    let leaver = with_pre_stop(busybox("leaver", 50, script, &shared), &format!("echo '{HOSTILE}'; exit 3"));
    kubectl.apply(&leaver).await?;
    kubectl.apply(&deployment("one")).await?;
    kubectl.run(&["wait", "--for=condition=Ready", "pod/leaver", "--timeout=80s"]).await?;
    kubectl.run(&["rollout", "status", "deploy/web", "--timeout=80s"]).await?;

    let mut browser = Browser::start(instance.api().parse()?).await?;
    browser.resize(1280, 860).await?;
    let told = link(&instance).await?;
    ensure!(told["certificateSha256"] == fingerprint(&instance)?, "{told}");
    let url = told["link"].as_str().context("a link")?;
    browser.open(url).await?;
    browser.wait(&format!("location.pathname === '/ui' && {} !== undefined", row("leaver"))).await?;
    browser.wait("document.querySelector('#link').textContent === 'live'").await?;
    browser.wait("document.querySelector('#user').textContent === 'kubernetes-admin'").await?;

    // It leaves while the page looks on.
    kubectl.run(&["delete", "pod", "leaver", "--wait=false"]).await?;
    browser.wait(&format!("{}?.dataset.state === 'leaving'", row("leaver"))).await?;
    browser.wait(&format!("/ s left/.test({}?.textContent)", row("leaver"))).await?;
    browser.press("/").await?;
    browser.wait("document.activeElement.id === 'filter'").await?;
    browser.write("leaver").await?;
    browser.wait("document.querySelectorAll('[role=option]').length === 1").await?;
    browser.press("ArrowDown").await?;
    browser.wait("document.activeElement.getAttribute('role') === 'option'").await?;
    browser.press("Enter").await?;
    browser.wait("document.activeElement === document.querySelector('#details h2')").await?;
    browser.wait(&format!("{STEPS}.some(([, words]) => words === '-> SIGTERM to app')")).await?;
    browser.wait("/Waits for: app has its stop signal/.test(document.querySelector('#details').textContent)").await?;
    browser.wait("/stop app/.test(document.querySelector('#details svg').getAttribute('aria-label'))").await?;
    browser.picture(&picture("leaving")).await?;

    // The theme is chosen by a switch, and stays.
    for theme in ["dark", "light", "auto", "dark"] {
        browser.eval("document.querySelector('#theme').click()").await?;
        browser.wait(&format!("(document.documentElement.dataset.theme ?? 'auto') === '{theme}'")).await?;
    }
    browser.picture(&picture("leaving-dark")).await?;
    browser.resize(400, 800).await?;
    browser.wait("document.documentElement.scrollWidth <= 400 && innerWidth === 400").await?;
    browser.picture(&picture("leaving-narrow")).await?;
    browser.resize(1280, 860).await?;

    // It is over: the record takes the place of what was seen, and says what the command line says.
    kubectl.run(&["delete", "pod", "leaver", "--grace-period=1"]).await?;
    browser.wait("document.querySelector('#details .badge.forced') !== null").await?;
    let drawn = instance.adieu(&["timeline", "leaver"]).output().await?;
    let drawn = String::from_utf8(drawn.stdout)?;
    let steps = browser.wait(STEPS).await?;
    let steps = steps.as_array().context("steps")?;
    ensure!(steps.len() > 6, "{steps:?}");
    for step in steps {
        let (when, words) = (step[0].as_str().unwrap_or_default(), step[1].as_str().unwrap_or_default());
        let line = format!("{when:>10}  {words}");
        ensure!(drawn.lines().any(|own| own == line), "{line:?} is not in\n{drawn}");
    }
    // What the hook wrote is a text like any other.
    let shown = browser.eval("document.querySelector('#details pre').textContent").await?;
    ensure!(shown.as_str().is_some_and(|shown| shown.contains(HOSTILE)), "{shown}");
    ensure!(browser.eval("document.querySelectorAll('#details img, #details script').length").await? == 0);
    browser.picture(&picture("ended")).await?;
    browser.press("Escape").await?;
    browser.wait("!document.body.classList.contains('has-details') && document.title === 'Adieu'").await?;

    // A rollout: old and new pods on one axis.
    kubectl.apply(&deployment("two")).await?;
    kubectl.run(&["rollout", "status", "deploy/web", "--timeout=80s"]).await?;
    browser.eval("document.querySelector('#filter').value = ''; document.querySelector('#tab-pods').focus()").await?;
    browser.eval("document.querySelector('#filter').dispatchEvent(new Event('input'))").await?;
    browser.press("ArrowRight").await?;
    browser.wait("document.querySelector('#tab-workloads').getAttribute('aria-selected') === 'true'").await?;
    browser.wait(&row("Deployment").replacen("[...", "!![...", 1)).await?;
    browser.eval(&format!("{}.click()", row("Deployment"))).await?;
    browser.wait("/revision 2 \\(new\\)2 here/.test(document.querySelector('#details svg')?.textContent)").await?;
    browser.wait("document.querySelectorAll('#details .steps .badge.clean').length === 2").await?;
    browser.eval("document.querySelector('#theme').click()").await?;
    browser.picture(&picture("rollout")).await?;

    // The link was used, the session goes on until it is ended.
    browser.open(url).await?;
    browser.wait("/used before/.test(document.body.textContent)").await?;
    browser.picture(&picture("no-session")).await?;
    let page = format!("https://{}/ui", instance.api());
    browser.open(&page).await?;
    browser.wait("document.querySelector('#link')?.textContent === 'live'").await?;
    browser.eval("document.querySelector('#end').click()").await?;
    browser.wait("/have no session/.test(document.body.textContent)").await?;

    // Nobody answers, then somebody who knows of no session any more: the page says so.
    browser.open(link(&instance).await?["link"].as_str().context("a link")?).await?;
    browser.wait("document.querySelector('#link')?.textContent === 'live'").await?;
    instance.stop().await?;
    browser.wait("document.querySelector('#link').textContent === 'disconnected'").await?;
    instance.up().await?;
    ensure!(page.contains(instance.api()), "it came back at another port, which the page cannot know");
    browser.eval("document.querySelector('#retry').click()").await?;
    browser.wait("/session is over/.test(document.querySelector('#notice').textContent)").await?;
    // Nothing was loaded from elsewhere, run in line or thrown. Answers 401 and connections that broke were wanted.
    browser.complaints.retain(|own| !own.contains("status of 401") && !own.contains("net::ERR_"));
    ensure!(browser.complaints.is_empty(), "{:?}", browser.complaints);
    complaints::ensure_none(&instance, &[])
}

/// Two pods that leave by themselves after a moment.
fn deployment(version: &str) -> Value {
    let script = "trap 'sleep 1; exit 0' TERM; while :; do sleep 0.1; done";
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web" },
        "spec": { "replicas": 2, "selector": { "matchLabels": { "app": "web" } }, "template": {
            "metadata": { "labels": { "app": "web" }, "annotations": { "version": version } },
            "spec": { "terminationGracePeriodSeconds": 30, "containers": [
                { "name": "app", "image": "busybox", "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", script] }] } } },
    })
}

/// Of the certificate that the instance has, as browsers write it.
fn fingerprint(instance: &Instance) -> Result<String> {
    use rustls::pki_types::pem::PemObject as _;
    let certificate = rustls::pki_types::CertificateDer::from_pem_file(instance.dir().join("pki/server.crt"))?;
    let digest = sha2::Sha256::digest(&certificate);
    Ok(digest.iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":"))
}
