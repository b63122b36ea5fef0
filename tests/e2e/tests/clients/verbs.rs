//! Everyday commands of the program itself: one after the other, a person needs no kubectl.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::Write as _;
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::{Instance, adieu};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

/// How long any of them may take.
const SOON: Duration = Duration::from_secs(90);

/// The program, talking to an instance.
struct Adieu<'a>(&'a Instance);

impl Adieu<'_> {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(adieu());
        // Words after -- are the container's.
        let own = words.iter().position(|word| *word == "--").unwrap_or(words.len());
        command.args(&words[..own]).arg("--kubeconfig").arg(self.0.kubeconfig()).args(&words[own..]);
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    async fn output(&self, words: &[&str]) -> Result<Output> {
        tokio::time::timeout(SOON, self.command(words).output())
            .await
            .with_context(|| format!("{words:?}"))?
            .map_err(Into::into)
    }

    async fn run(&self, words: &[&str]) -> Result<String> {
        let output = self.output(words).await?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{words:?}: {} {said}", output.status);
        Ok(String::from_utf8(output.stdout)?)
    }

    /// What it says when it fails.
    async fn refused(&self, words: &[&str]) -> Result<String> {
        let output = self.output(words).await?;
        ensure!(!output.status.success(), "{words:?} is no failure");
        Ok(String::from_utf8(output.stderr)?)
    }

    async fn run_with(&self, words: &[&str], input: &str) -> Result<String> {
        let mut child =
            self.command(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        child.stdin.take().context("piped")?.write_all(input.as_bytes()).await?;
        let output = tokio::time::timeout(SOON, child.wait_with_output()).await??;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{words:?}: {} {said}", output.status);
        Ok(String::from_utf8(output.stdout)?)
    }
}

const WEB: &str = "\
apiVersion: v1
kind: Service
metadata: { name: web, labels: { app: web } }
spec: { selector: { app: web }, ports: [{ port: 80 }] }
---
apiVersion: apps/v1
kind: Deployment
metadata: { name: web, labels: { app: web } }
spec:
  replicas: 2
  selector: { matchLabels: { app: web } }
  template:
    metadata: { labels: { app: web } }
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - name: app
        image: busybox
        command: [sh, -c, 'trap \"exit 0\" TERM; echo hello; sleep 1000 & wait']
";

/// A Deployment from its manifest to its end.
#[tokio::test(flavor = "multi_thread")]
async fn workload_is_applied_watched_changed_and_deleted_without_kubectl() -> Result<()> {
    let instance = Instance::start().await?;
    let adieu = Adieu(&instance);
    let created = adieu.run_with(&["apply", "-f", "-"], WEB).await?;
    ensure!(created == "service/web created\ndeployment.apps/web created\n", "{created}");
    let told = adieu.run(&["rollout", "status", "deploy/web", "--timeout=80s"]).await?;
    ensure!(told.ends_with("web successfully rolled out\n"), "{told}");
    let again = adieu.run_with(&["apply", "-f", "-"], WEB).await?;
    ensure!(again == "service/web unchanged\ndeployment.apps/web unchanged\n", "{again}");
    let table = adieu.run(&["get", "deploy,svc", "-l", "app=web"]).await?;
    ensure!(table.contains("deployment.apps/web   2/2") && table.contains("service/web   ClusterIP"), "{table}");
    let wide = adieu.run(&["get", "pods", "-A", "-o", "wide"]).await?;
    ensure!(wide.starts_with("NAMESPACE") && wide.contains(instance.node_name()), "{wide}");
    let names = adieu.run(&["get", "pods", "-o", "name"]).await?;
    let pods: Vec<&str> = names.lines().collect();
    ensure!(pods.len() == 2 && pods[0].starts_with("pod/web-"), "{names}");
    let phases = adieu.run(&["get", "pods", "-o", "jsonpath={.items[*].status.phase}"]).await?;
    ensure!(phases == "Running Running", "{phases}");
    let object: Value = serde_json::from_str(&adieu.run(&["get", pods[0], "-o", "json"]).await?)?;
    ensure!(object["kind"] == "Pod", "{object}");
    ensure!(adieu.run(&["get", "deploy", "web", "-o", "yaml"]).await?.contains("kind: Deployment"), "no YAML");

    let log = adieu.run(&["logs", "deploy/web", "--tail=1"]).await?;
    ensure!(log == "hello\n", "{log}");
    let both = adieu.run(&["logs", "-l", "app=web", "--prefix"]).await?;
    ensure!(both.lines().count() == 2 && both.starts_with("[pod/web-"), "{both}");
    let said = adieu.run(&["exec", pods[0], "--", "echo", "from inside"]).await?;
    ensure!(said == "from inside\n", "{said}");
    let passed = adieu.run_with(&["exec", "-i", "deploy/web", "--", "wc", "-c"], "12345").await?;
    ensure!(passed.trim() == "5", "{passed}");
    let failing = adieu.output(&["exec", pods[0], "--", "sh", "-c", "exit 7"]).await?;
    ensure!(failing.status.code() == Some(7), "{failing:?}");
    let described = adieu.run(&["describe", pods[0]]).await?;
    for part in ["Grace Period:        5s", "Controlled By:       ReplicaSet/web-", "Started", "Conditions:"] {
        ensure!(described.contains(part), "no {part:?} in {described}");
    }
    ensure!(adieu.run(&["describe", "deploy/web"]).await?.contains("2 wanted"), "no replicas");
    ensure!(adieu.run(&["events", "--for", pods[0]]).await?.contains("Started"), "no events");

    ensure!(
        adieu.run(&["scale", "deploy/web", "--replicas=3", "--current-replicas=2"]).await?
            == "deployment.apps/web scaled\n",
        "not scaled"
    );
    ensure!(
        adieu
            .refused(&["scale", "deploy/web", "--replicas=9", "--current-replicas=2"])
            .await?
            .contains("3 pods, not 2"),
        "scaled"
    );
    adieu.run(&["rollout", "status", "deploy/web", "--timeout=80s"]).await?;
    adieu.run(&["rollout", "restart", "deploy/web"]).await?;
    adieu.run(&["rollout", "status", "deploy/web", "--timeout=80s"]).await?;
    let history = adieu.run(&["rollout", "history", "deploy/web"]).await?;
    ensure!(history.lines().count() == 3, "{history}");
    ensure!(adieu.run(&["rollout", "undo", "deploy/web"]).await?.contains("rolled back to revision 1"), "not undone");
    adieu.run(&["rollout", "status", "deploy/web", "--timeout=80s"]).await?;
    adieu.run(&["rollout", "pause", "deploy/web"]).await?;
    ensure!(adieu.refused(&["rollout", "undo", "deploy/web"]).await?.contains("paused"), "undone while it is paused");
    adieu.run(&["rollout", "resume", "deploy/web"]).await?;

    let mut file = tempfile::NamedTempFile::with_suffix(".yaml")?;
    file.write_all(WEB.as_bytes())?;
    let path = file.path().to_string_lossy().into_owned();
    let deleted = adieu.run(&["delete", "-f", &path, "--cascade=foreground"]).await?;
    ensure!(deleted == "deployment.apps \"web\" deleted\nservice \"web\" deleted\n", "{deleted}");
    let left = adieu.output(&["get", "pods"]).await?;
    ensure!(left.stdout.is_empty() && String::from_utf8_lossy(&left.stderr).contains("nothing found"), "{left:?}");
    Ok(())
}

const STUBBORN: &str = "\
apiVersion: v1
kind: Pod
metadata: { name: stubborn }
spec:
  terminationGracePeriodSeconds: 210
  containers: [{ name: app, image: busybox, command: [sh, -c, 'trap : TERM; while :; do sleep 1; done'] }]
";

/// A second delete with a shorter grace, as people give it.
#[tokio::test(flavor = "multi_thread")]
async fn delete_waits_until_its_pod_is_gone_and_a_shorter_grace_hurries_it() -> Result<()> {
    let instance = Instance::start().await?;
    let adieu = Adieu(&instance);
    let mut watch = adieu.command(&["get", "pods", "-w"]).stdout(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(watch.stdout.take().context("piped")?).lines();
    adieu.run_with(&["apply", "-f", "-"], STUBBORN).await?;
    let running = async {
        while let Some(line) = lines.next_line().await? {
            if line.starts_with("stubborn") && line.contains("Running") {
                return Ok::<_, anyhow::Error>(());
            }
        }
        anyhow::bail!("the watch ended")
    };
    tokio::time::timeout(SOON, running).await??;
    watch.kill().await?;
    ensure!(
        adieu.run(&["delete", "pod", "stubborn", "--wait=false"]).await? == "pod \"stubborn\" deleted\n",
        "not deleted"
    );
    ensure!(adieu.run(&["get", "pod", "stubborn"]).await?.contains("Terminating"), "it does not leave");
    let described = adieu.run(&["describe", "pod/stubborn"]).await?;
    ensure!(described.contains("Terminating (") && described.contains("of its grace left)"), "{described}");
    let late = adieu.refused(&["delete", "pod", "stubborn", "--timeout=1s"]).await?;
    ensure!(late.contains("still there"), "{late}");
    adieu.run(&["delete", "pod/stubborn", "--now"]).await?;
    let gone = adieu.refused(&["get", "pod", "stubborn"]).await?;
    ensure!(gone.contains("not found"), "{gone}");
    ensure!(adieu.refused(&["delete", "pod", "stubborn"]).await?.contains("not there"), "deleted twice");
    adieu.run(&["delete", "pod", "stubborn", "--ignore-not-found"]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn drain_evicts_what_may_leave_and_says_what_may_not() -> Result<()> {
    let instance = Instance::start().await?;
    let adieu = Adieu(&instance);
    let node = instance.node_name();
    adieu.run_with(&["apply", "-f", "-"], STUBBORN).await?;
    let refused = adieu.refused(&["drain", node]).await?;
    ensure!(refused.contains("no controller") && refused.contains("--force"), "{refused}");
    ensure!(adieu.run(&["get", "node", node]).await?.contains("SchedulingDisabled"), "not cordoned");
    let drained = adieu.run(&["drain", node, "--force", "--grace-period=1", "--timeout=80s"]).await?;
    ensure!(drained.contains("pod/default/stubborn has left") && drained.ends_with("drained\n"), "{drained}");
    adieu.run(&["uncordon", node]).await?;
    ensure!(!adieu.run(&["get", "node", node]).await?.contains("SchedulingDisabled"), "still cordoned");
    ensure!(adieu.run(&["describe", "node", node]).await?.contains("Pods:                (0)"), "pods are left");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_are_told_in_a_sentence_with_a_way_out() -> Result<()> {
    let instance = Instance::start().await?;
    let adieu = Adieu(&instance);
    for (words, told) in [
        (&["get", "cows"][..], "adieu api-resources"),
        (&["get", "pod", "nobody"], "\"nobody\" not found"),
        (&["delete", "pods"], "say --all"),
        (&["exec", "nobody", "--", "true"], "not found"),
        (&["logs", "nobody"], "not found"),
        (&["rollout", "status", "svc/kubernetes"], "cannot be watched"),
        (&["get", "pods", "-o", "xml"], "custom-columns"),
    ] {
        let said = adieu.refused(words).await?;
        ensure!(said.contains(told), "{words:?}: {said}");
    }
    let version: Value = serde_json::from_str(&adieu.run(&["version", "-o", "json"]).await?)?;
    ensure!(version["clientVersion"]["gitVersion"] == version["serverVersion"]["gitVersion"], "{version}");
    ensure!(adieu.run(&["api-resources"]).await?.contains("deployments"), "no kinds");
    // A reader who has seen enough is no failure.
    let words = format!(
        "{} api-resources --kubeconfig {} | head -n 1",
        e2e::adieu().display(),
        instance.kubeconfig().display()
    );
    let output = Command::new("bash").args(["-o", "pipefail", "-c", &words]).output().await?;
    ensure!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    Ok(())
}
