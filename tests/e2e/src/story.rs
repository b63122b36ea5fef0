//! The words in which an end is told: a pod is written, runs, is asked to leave, and what it says of itself is compared with
//! what everybody else sees.
//!
//! Containers speak through `say`, which appends `UPTIME NAME WORDS` to one log of the pod: the order of its lines is the order
//! of events in all containers and hooks, and their times are the kernel's.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::Shared;
use crate::pods::{PodWatch, phase, status};
use crate::stage::{PATIENCE, Stage};

/// Exits with 0 when it is asked to leave.
pub const POLITE: &str = "trap 'say TERM; exit 0' TERM; say up; sleep 1000 & wait";
/// Hears that it is asked to leave, and stays.
pub const DEAF: &str = "trap 'say TERM' TERM; say up; while :; do sleep 1000 & wait $!; done";
/// Takes a second to leave.
pub const SLOW: &str = "trap 'say TERM; sleep 1; say out; exit 0' TERM; say up; sleep 1000 & wait";
/// Leaves when the gate is opened.
pub const GATED: &str = "trap 'say TERM; read word < /shared/gate; say out; exit 0' TERM; say up; sleep 1000 & wait";

const LOG: &str = "log";
/// What the kernel tells of the time since it started has so many seconds in its last digit.
const DIGIT: f64 = 0.01;

/// A script that can `say` things in the name of a container.
fn spoken(name: &str, script: &str) -> Value {
    json!([
        "sh",
        "-c",
        format!("say() {{ read t rest < /proc/uptime; echo \"$t {name} $*\" >> /shared/log; }}; {script}")
    ])
}

/// Seconds since the machine was started, as containers see them.
pub fn uptime() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    #[expect(clippy::cast_precision_loss, reason = "a millisecond is enough")]
    let seconds = now.tv_sec as f64 + now.tv_nsec as f64 / 1e9;
    seconds
}

/// A pod that is being written.
pub struct Draft<'a> {
    stage: &'a Stage,
    shared: Shared,
    manifest: Value,
    name: String,
    /// Containers that are to say `up` before the pod is taken for running.
    speakers: Vec<String>,
    /// Where the container is that was written last.
    newest: String,
}

impl<'a> Draft<'a> {
    pub(crate) fn new(stage: &'a Stage, name: &str) -> Result<Self> {
        let shared = Shared::new()?;
        let spec = json!({
            "terminationGracePeriodSeconds": 600,
            "containers": [],
            "initContainers": [],
            "volumes": [{ "name": "shared", "hostPath": { "path": shared.path() } }],
        });
        let manifest = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": spec });
        Ok(Self { stage, shared, manifest, name: name.to_owned(), speakers: Vec::new(), newest: String::new() })
    }

    /// The pod's grace; without this it has ten minutes, so that whoever waits for its end is not seen to be content.
    pub fn grace(self, seconds: i64) -> Self {
        self.spec("terminationGracePeriodSeconds", seconds.into())
    }

    /// Sets a field of the pod's spec.
    pub fn spec(mut self, field: &str, value: Value) -> Self {
        self.manifest["spec"][field] = value;
        self
    }

    /// One more volume.
    pub fn volume(mut self, volume: Value) -> Self {
        self.manifest["spec"]["volumes"].as_array_mut().expect("a draft has every list").push(volume);
        self
    }

    /// Sets a field of the pod's metadata.
    pub fn metadata(mut self, field: &str, value: Value) -> Self {
        self.manifest["metadata"][field] = value;
        self
    }

    /// No container is restarted.
    pub fn never_restarts(self) -> Self {
        self.spec("restartPolicy", "Never".into())
    }

    fn container(mut self, list: &str, name: &str, script: &str) -> Self {
        let container = json!({
            "name": name,
            "image": "busybox",
            "imagePullPolicy": "IfNotPresent",
            "command": spoken(name, script),
            "volumeMounts": [{ "name": "shared", "mountPath": "/shared" }],
        });
        let all = self.manifest["spec"][list].as_array_mut().expect("a draft has every list");
        all.push(container);
        self.newest = format!("/spec/{list}/{}", all.len() - 1);
        self
    }

    fn speaker(mut self, name: &str, script: &str) -> Self {
        if script.contains("say up") {
            self.speakers.push(name.to_owned());
        }
        self
    }

    /// One more main container.
    pub fn main(self, name: &str, script: &str) -> Self {
        self.speaker(name, script).container("containers", name, script)
    }

    /// One more sidecar.
    pub fn sidecar(self, name: &str, script: &str) -> Self {
        self.speaker(name, script).container("initContainers", name, script).with("restartPolicy", "Always".into())
    }

    /// One more init container.
    pub fn init(self, name: &str, script: &str) -> Self {
        self.container("initContainers", name, script)
    }

    /// Sets a field of the container that was written last.
    pub fn with(mut self, field: &str, value: Value) -> Self {
        *self.newest_field(field) = value;
        self
    }

    fn newest_field(&mut self, field: &str) -> &mut Value {
        let container = self.manifest.pointer_mut(&self.newest).expect("a container was written");
        &mut container[field]
    }

    /// A field of the container that was written last.
    pub fn field(&mut self, field: &str) -> Value {
        self.newest_field(field).clone()
    }

    /// Gives the container that was written last a hook, `preStop` or `postStart`, of any kind.
    pub fn hook(mut self, kind: &str, handler: Value) -> Self {
        self.newest_field("lifecycle")[kind] = handler;
        self
    }

    /// The handler of a hook that runs a script, which speaks for the container that was written last.
    fn exec(&mut self, script: &str) -> Value {
        let name = self.newest_field("name").as_str().unwrap_or_default().to_owned();
        json!({ "exec": { "command": spoken(&name, script) } })
    }

    /// Has the container that was written last run a script before it is asked to leave.
    pub fn pre_stop(mut self, script: &str) -> Self {
        let handler = self.exec(script);
        self.hook("preStop", handler)
    }

    /// Has the container that was written last run a script once it has been started.
    pub fn post_start(mut self, script: &str) -> Self {
        let handler = self.exec(script);
        self.hook("postStart", handler)
    }

    /// Gives the container that was written last a probe that runs a script every second and fails at once.
    pub fn probe(mut self, kind: &str, script: &str) -> Self {
        let mut probe = self.exec(script);
        for (field, value) in [("periodSeconds", 1), ("failureThreshold", 1), ("timeoutSeconds", 30)] {
            probe[field] = value.into();
        }
        self.with(kind, probe)
    }

    /// The manifest as it is so far.
    pub fn manifest(&self) -> &Value {
        &self.manifest
    }

    /// Has the pod made, and waits for nothing.
    pub async fn create(self) -> Result<Actor<'a>> {
        let watch = PodWatch::on(&self.stage.client, &self.name).await?.patient(PATIENCE);
        let pod: Pod = serde_json::from_value(self.manifest)?;
        self.stage.pods().create(&PostParams::default(), &pod).await?;
        Ok(Actor { stage: self.stage, name: self.name, shared: self.shared, watch })
    }

    /// Has the pod made, and waits until it is Ready and each of its containers has said `up`.
    pub async fn run(self) -> Result<Actor<'a>> {
        let speakers = self.speakers.clone();
        let mut actor = self.create().await?;
        actor.watch.ready().await?;
        for name in speakers {
            actor.hears(&format!("{name} up")).await?;
        }
        Ok(actor)
    }
}

/// When somebody asked: the request was made after `from`, and answered before `to`.
#[derive(Clone, Copy, Debug)]
pub struct RequestWindow {
    /// Nothing had happened yet.
    pub from: f64,
    /// Everybody knew.
    pub to: f64,
}

/// A pod that lives and leaves.
pub struct Actor<'a> {
    stage: &'a Stage,
    /// What it is called.
    pub name: String,
    /// What it shares with the test.
    pub shared: Shared,
    /// What everybody can see of it, from before it was made.
    pub watch: PodWatch,
}

impl Actor<'_> {
    /// `kubectl delete pod NAME`, which does not wait for it.
    pub async fn delete(&mut self, options: &[&str]) -> Result<RequestWindow> {
        let from = uptime();
        let words = [&["delete", "pod", &self.name, "--wait=false"], options].concat();
        self.stage.kubectl(&words).await?;
        Ok(RequestWindow { from, to: uptime() })
    }

    /// Waits until somebody in the pod has said this; answers when it was said.
    pub async fn hears(&self, words: &str) -> Result<f64> {
        let said = |lines: &[String]| lines.iter().find_map(|line| when(line, words));
        let lines = self.shared.wait_until(LOG, PATIENCE, |lines| said(lines).is_some()).await;
        said(&lines.with_context(|| format!("nobody says {words:?}"))?).context("it was said")
    }

    /// Waits until this has been said so often.
    pub async fn hears_times(&self, words: &str, times: usize) -> Result<()> {
        let enough = |lines: &[String]| lines.iter().filter(|line| when(line, words).is_some()).count() >= times;
        let lines = self.shared.wait_until(LOG, PATIENCE, enough).await;
        lines.map(drop).with_context(|| format!("nobody says {words:?} {times} times"))
    }

    /// What was said so far, without the times.
    pub fn said(&self) -> Vec<String> {
        let words = |line: String| line.split_once(' ').map(|(_, words)| words.to_owned()).unwrap_or(line);
        self.shared.lines(LOG).into_iter().map(words).collect()
    }

    /// Fails unless exactly this was said, in this order.
    pub fn said_only(&self, words: &[&str]) -> Result<()> {
        let said = self.said();
        ensure!(said == words, "said {said:?} instead of {words:?}");
        Ok(())
    }

    /// Fails unless these were said in this order, whatever was said besides.
    pub fn said_in_order(&self, words: &[&str]) -> Result<()> {
        let said = self.said();
        let mut rest = said.iter();
        for word in words {
            ensure!(rest.any(|line| line == word), "{word:?} is not in its place in {said:?}, of {words:?}");
        }
        Ok(())
    }

    /// Waits until no process of the pod has the gate open any more; scripts that begin with [`HOLDS_THE_GATE`] have.
    pub async fn dies(&self) -> Result<f64> {
        self.shared.deserted(PATIENCE).await?;
        Ok(uptime())
    }

    /// Waits until the pod is gone; answers how it looked in the end.
    pub async fn gone(&mut self) -> Result<End> {
        let (_, pod) = self.watch.gone(PATIENCE).await?;
        Ok(End { pod, at: uptime(), forgiven: self.stage.pace.forgives().as_secs_f64() })
    }
}

/// The beginning of a script whose pod is to be heard dying: see [`Actor::dies`].
pub const HOLDS_THE_GATE: &str = "exec 9<> /shared/gate; ";

/// When a line of the log was said, if it says this.
fn when(line: &str, words: &str) -> Option<f64> {
    let (at, said) = line.split_once(' ')?;
    (said == words).then(|| at.parse().ok())?
}

/// A pod that is gone.
pub struct End {
    /// Its last state.
    pub pod: Pod,
    /// When that was seen.
    pub at: f64,
    forgiven: f64,
}

impl End {
    /// Fails unless the pod ended in this phase and each of these containers with this exit code and reason, never
    /// restarted.
    pub fn was(&self, expected: &str, containers: &[(&str, i32, &str)]) -> Result<()> {
        ensure!(phase(&self.pod) == Some(expected), "{:?}", self.pod.status);
        for (name, code, reason) in containers {
            let status = status(&self.pod, name).with_context(|| format!("no status of {name}"))?;
            let end = status.state.as_ref().and_then(|state| state.terminated.as_ref());
            let end = end.with_context(|| format!("{name} has not ended: {status:?}"))?;
            let seen = (end.exit_code, end.reason.as_deref(), status.restart_count);
            ensure!(seen == (*code, Some(reason), 0), "{name} ended with {seen:?}, not {code} {reason}");
        }
        Ok(())
    }

    /// Fails unless the pod stayed for all of these seconds since somebody asked, and not much longer.
    pub fn stayed(&self, asked: RequestWindow, seconds: f64) -> Result<()> {
        came(self.at, asked, seconds, self.forgiven).context("the pod's end")
    }

    /// Fails unless something happened so many seconds after somebody asked, and not much later.
    pub fn came(&self, at: f64, asked: RequestWindow, seconds: f64) -> Result<()> {
        came(at, asked, seconds, self.forgiven)
    }
}

fn came(at: f64, asked: RequestWindow, seconds: f64, forgiven: f64) -> Result<()> {
    ensure!(at + DIGIT >= asked.from + seconds, "after {:.3} s instead of {seconds}", at - asked.from);
    let late = at - asked.to - seconds;
    ensure!(late <= forgiven, "{late:.3} s later than {seconds} s; {forgiven:.3} s are forgiven");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_time_a_speaker_and_words() {
        assert_eq!(when("12.34 app TERM", "app TERM"), Some(12.34));
        assert_eq!(when("12.34 app TERM", "app"), None);
    }

    #[test]
    fn story_line_outside_its_time_window_is_an_error() {
        let asked = RequestWindow { from: 10.0, to: 10.5 };
        assert!(came(11.999, asked, 2.0, 1.0).is_ok() && came(13.4, asked, 2.0, 1.0).is_ok());
        assert!(came(11.9, asked, 2.0, 1.0).is_err() && came(13.6, asked, 2.0, 1.0).is_err());
    }
}
