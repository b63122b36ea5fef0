//! `kill -9` of the agent at every point where it writes a termination down: before each record is in the journal, and
//! before each is durable. Enumerated, not sampled: a tracer kills the process as it enters its nth such call, for n from one
//! until a termination has no nth.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::complaints::{AFTER_A_CRASH, STORE_CUT};
use e2e::pace::Pace;
use e2e::pods::{PodWatch, SOON, busybox, status};
use e2e::stage::PATIENCE;
use e2e::{Instance, Shared, complaints};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

/// So many instances suffer at a time.
const AT_A_TIME: usize = 3;

/// What a restart may add to an end: the least that is left after it, and the least between a stop signal and KILL.
const AFTER_A_RESTART: Duration = Duration::from_secs(3);

/// A pod that is asked to leave, and what must be seen of that whatever happens to the agent.
struct Shape {
    grace: Duration,
    containers: &'static [Part],
    /// It stays that long: no less, and not much longer.
    stays: Duration,
    /// In which order its containers are asked to leave, if there is one.
    order: &'static [&'static str],
}

/// A container that notes in a file of its name what happens to it.
struct Part {
    name: &'static str,
    is_sidecar: bool,
    /// What it does on TERM.
    on_term: &'static str,
    has_hook: bool,
    exit_code: i32,
}

const POLITE: &str = "exit 7";
const DEAF: &str = "true";

/// One with a hook that leaves, and one that stays to the deadline.
const POLITE_AND_DEAF: Shape = Shape {
    grace: Duration::from_secs(4),
    containers: &[
        Part { name: "polite", is_sidecar: false, on_term: POLITE, has_hook: true, exit_code: 7 },
        Part { name: "deaf", is_sidecar: false, on_term: DEAF, has_hook: false, exit_code: 137 },
    ],
    stays: Duration::from_secs(4),
    order: &[],
};

/// A main container and its sidecar, both with hooks: the second is asked when the first is gone.
const WITH_A_SIDECAR: Shape = Shape {
    grace: Duration::from_secs(60),
    containers: &[
        Part { name: "main", is_sidecar: false, on_term: POLITE, has_hook: true, exit_code: 7 },
        Part { name: "side", is_sidecar: true, on_term: POLITE, has_hook: true, exit_code: 7 },
    ],
    stays: Duration::from_millis(300),
    order: &["main", "side"],
};

/// Nothing but a deadline.
const DEAF_ALONE: Shape = Shape {
    grace: Duration::from_secs(3),
    containers: &[Part { name: "deaf", is_sidecar: false, on_term: DEAF, has_hook: false, exit_code: 137 }],
    stays: Duration::from_secs(3),
    order: &["deaf"],
};

impl Shape {
    fn manifest(&self, shared: &Shared) -> Value {
        let mut pod = busybox("leaving", self.grace.as_secs(), "", shared);
        let blank = pod["spec"]["containers"][0].take();
        let (mut mains, mut sidecars) = (Vec::new(), Vec::new());
        for part in self.containers {
            let (mut container, note) = (blank.clone(), format!(">> /shared/{}", part.name));
            container["name"] = part.name.into();
            container["command"][2] = format!(
                "trap 'echo TERM {note}; echo {} >> /shared/order; {}' TERM; echo up {note}; \
                 while :; do sleep 1000 & wait $!; done",
                part.name, part.on_term
            )
            .into();
            if part.has_hook {
                let hook = format!("echo hook {note}; sleep 0.3; echo hooked {note}");
                container["lifecycle"] = json!({ "preStop": { "exec": { "command": ["sh", "-c", hook] } } });
            }
            if part.is_sidecar {
                container["restartPolicy"] = "Always".into();
                sidecars.push(container);
            } else {
                mains.push(container);
            }
        }
        pod["spec"]["containers"] = mains.into();
        pod["spec"]["initContainers"] = sidecars.into();
        pod
    }

    /// Fails unless each step was taken once, and in order.
    fn check_steps(&self, shared: &Shared) -> Result<()> {
        for part in self.containers {
            let expected: &[&str] = if part.has_hook { &["up", "hook", "hooked", "TERM"] } else { &["up", "TERM"] };
            let seen = shared.lines(part.name);
            ensure!(seen == expected, "{}: {seen:?}", part.name);
        }
        let order = shared.lines("order");
        ensure!(self.order.is_empty() || order == self.order, "asked in the order {order:?}");
        Ok(())
    }

    /// Fails if people were told twice of a stop signal, or that `asked`, who have had theirs when the agent died, were left
    /// another time than they had from the deletion on.
    async fn check_told(&self, client: &kube::Client, asked: &[&str]) -> Result<()> {
        let events: Api<Event> = Api::namespaced(client.clone(), "default");
        let about = ListParams::default().fields("involvedObject.name=leaving,reason=StopSignalSent");
        let told: Vec<String> = events.list(&about).await?.into_iter().filter_map(|event| event.message).collect();
        for part in self.containers {
            let start = format!("Sent SIGTERM to container {}, ", part.name);
            let about: Vec<&str> = told.iter().filter_map(|message| message.strip_prefix(&start)).collect();
            ensure!(about.len() <= 1, "{} was told again: {told:?}", part.name);
            // Whoever has a hook is asked when that is over.
            let left = format!("{:?} before SIGKILL", self.grace);
            let is_exact = asked.contains(&part.name) && !part.has_hook;
            ensure!(!is_exact || about.iter().all(|said| *said == left), "another time was granted: {told:?}");
        }
        Ok(())
    }

    /// Fails unless every container has ended as it does without a crash.
    fn check_ends(&self, last: &Pod) -> Result<()> {
        for part in self.containers {
            let status = status(last, part.name).with_context(|| format!("no status of {}", part.name))?;
            let end = status.state.as_ref().and_then(|state| state.terminated.as_ref());
            let end = end.with_context(|| format!("{} has not ended", part.name))?;
            let seen = (end.exit_code, end.reason.as_deref(), status.restart_count);
            ensure!(seen == (part.exit_code, Some("Error"), 0), "{} ended with {seen:?}", part.name);
        }
        Ok(())
    }
}

/// Kills the process when its journal's thread enters `call` for the nth time.
struct Tracer(Child);

impl Tracer {
    async fn attach(instance: &Instance, call: &str, number: usize) -> Result<Self> {
        let thread = instance.thread("journal")?;
        let tracer = Command::new("strace")
            .args(["-qq", "-e", &format!("trace={call}"), "-e", &format!("inject={call}:signal=KILL:when={number}")])
            .arg("-P")
            .arg(instance.journal())
            .args(["-p", &thread.to_string()])
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("cannot run strace; run scripts/setup test")?;
        let status = PathBuf::from(format!("/proc/{thread}/status"));
        let begun = Instant::now();
        // The kernel tells nobody when a tracer has come. One that came may have struck already: what the pod's readiness left to
        // be written counts as well.
        while std::fs::read_to_string(&status).is_ok_and(|status| status.contains("TracerPid:\t0\n")) {
            ensure!(begun.elapsed() < SOON, "strace does not attach");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(Self(tracer))
    }

    async fn detach(mut self) -> Result<()> {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.0.id().context("it runs")?)?).context("a pid")?;
        rustix::process::kill_process(pid, rustix::process::Signal::INT)?;
        self.0.wait().await?;
        Ok(())
    }
}

/// Ends a pod and dies at the nth `call`; `false` if the pod had left before that. What is seen of the end is the same.
async fn dies_at(shape: &Shape, call: &str, number: usize) -> Result<bool> {
    let mut instance = Instance::start().await?;
    let (shared, pace) = (Shared::new()?, Pace::start()?);
    let mut watch = PodWatch::on(&instance.client().await?, "leaving").await?.patient(PATIENCE);
    let pods: Api<Pod> = Api::namespaced(instance.client().await?, "default");
    pods.create(&PostParams::default(), &serde_json::from_value(shape.manifest(&shared))?).await?;
    watch.ready().await?;
    for part in shape.containers {
        shared.wait_lines(part.name, 1).await?;
    }

    let tracer = Tracer::attach(&instance, call, number).await?;
    let asked = Instant::now();
    let answered = pods.delete("leaving", &DeleteParams::default()).await;
    let mut due = Instant::now() + shape.stays;
    let mut asked_before = Vec::new();
    let (struck, (gone, last)) = match watch.gone(PATIENCE).await {
        Ok(seen) => {
            tracer.detach().await?;
            (false, (seen.0, Some(seen.1)))
        }
        // The watch has died with the process.
        Err(_) => {
            tokio::time::timeout(SOON, instance.killed()).await.context("the pod did not leave, and nobody died")??;
            let has_been_asked = |name: &&str| shared.lines(name).iter().any(|line| line == "TERM");
            asked_before.extend(shape.containers.iter().map(|part| part.name).filter(has_been_asked));
            instance.up().await?;
            due = due.max(Instant::now()) + AFTER_A_RESTART;
            let client = instance.client().await?;
            let mut again = PodWatch::on(&client, "leaving").await?;
            let pods: Api<Pod> = Api::namespaced(client, "default");
            // Whoever got no answer asks again.
            if answered.is_err() {
                let _ = pods.delete("leaving", &DeleteParams::default()).await;
                due = due.max(Instant::now() + shape.stays);
            }
            // Its last act may have been the last of all, and nobody can see the object any more.
            match pods.get_opt("leaving").await? {
                None => (true, (Instant::now(), None)),
                Some(_) => (true, again.gone(PATIENCE).await.map(|(gone, last)| (gone, Some(last)))?),
            }
        }
    };
    shape.check_steps(&shared)?;
    ensure!(gone - asked >= shape.stays, "gone before its time, after {:?}", gone - asked);
    let late = gone.saturating_duration_since(due);
    ensure!(late <= pace.forgives(), "gone {late:?} after its time");
    // Who lived to see the pod go may yet be struck over forgetting it: then nobody is there to be asked.
    if struck {
        shape.check_told(&instance.client().await?, &asked_before).await?;
    }
    complaints::ensure_none(&instance, &[AFTER_A_CRASH, &[STORE_CUT]].concat())?;
    last.iter().try_for_each(|last| shape.check_ends(last))?;
    Ok(struck)
}

/// `least`: the request, each hook's end, each signal's answer, each end, and the object's, are written down at least.
async fn every(shape: &Shape, call: &str, least: usize) -> Result<()> {
    let mut points = 0;
    loop {
        let numbers = points + 1..=points + AT_A_TIME;
        let named = |number| async move {
            dies_at(shape, call, number).await.with_context(|| format!("{call} number {number}"))
        };
        let struck = try_join_all(numbers.map(named)).await?;
        points += struck.iter().filter(|struck| **struck).count();
        if struck.contains(&false) {
            println!("{points} points before {call}");
            ensure!(points >= least, "a termination is written down in {points} steps only");
            return Ok(());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_killed_before_any_record_is_written_changes_nothing() -> Result<()> {
    every(&POLITE_AND_DEAF, "pwrite64", 5).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_killed_before_any_record_is_durable_changes_nothing() -> Result<()> {
    every(&POLITE_AND_DEAF, "fdatasync", 5).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_order_of_a_sidecar_survives_every_record() -> Result<()> {
    every(&WITH_A_SIDECAR, "pwrite64", 5).await?;
    every(&WITH_A_SIDECAR, "fdatasync", 5).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_survives_every_record() -> Result<()> {
    every(&DEAF_ALONE, "pwrite64", 3).await?;
    every(&DEAF_ALONE, "fdatasync", 3).await
}
