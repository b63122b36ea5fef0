//! `kill -9` of the agent at every step of a pod's life.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::common::{Machine, PATIENCE, container_spec, exec_spec, on_a_machine, read_all, sandbox_spec};
use runtime::verbs::*;
use runtime::{ContainerId, Embedded, PodUid};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

const DIRECTORY: &str = "ADIEU_TEST_AGENT_DIRECTORY";
const INSTANCE: &str = "ADIEU_TEST_AGENT_INSTANCE";
/// More steps than a life has; reached only if it never ends.
const STEPS_MAX: usize = 200;

/// One life, from the sandbox to its removal.
async fn live(runtime: &Embedded) {
    let sandbox = sandbox_spec("pod-1");
    let pod = sandbox.uid.clone();
    let spec = container_spec(runtime, "app", "trap 'exit 3' TERM; while :; do sleep 0.01; done").await;
    runtime.create_sandbox(&sandbox).await.unwrap();
    runtime.start_container(&pod, &spec).await.unwrap();
    let session = runtime.exec(&pod, &spec.id, &exec_spec(&["true"])).await.unwrap();
    assert_eq!(session.exit.await.unwrap(), 0);
    runtime.run_hook(&pod, &spec.id, "preStop", &["true".to_owned()]).await.unwrap();
    runtime.signal(&pod, &spec.id, 15).await.unwrap();
    runtime.kill(&pod, &spec.id).await.unwrap();
    runtime.remove_sandbox(&pod).await.unwrap();
    runtime.forget_logs(&pod).await.unwrap();
}

/// Not a test: the agent that the next one kills.
#[test]
#[ignore = "run by the test below, in a process of its own"]
fn agent() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    tokio.block_on(async {
        let config = common::config(Path::new(&directory), &std::env::var(INSTANCE).unwrap());
        live(&Embedded::open(config).await.unwrap()).await;
    });
}

#[test]
fn an_agent_killed_at_any_step_leaves_what_the_next_one_completes_or_removes() {
    on_a_machine(|mut machine| async {
        let mut killed = 0;
        for step in 1..STEPS_MAX {
            machine.agent_dies();
            let outcome = kill_at(machine.dir.path(), &machine.instance, step);
            machine.agent_returns().await;
            recover(&mut machine, step).await;
            match outcome {
                Outcome::Killed => killed += 1,
                Outcome::Finished => break,
            }
        }
        println!("killed at {killed} steps");
        assert!(killed >= 10, "a life has more steps than {killed}");
        machine
    });
}

/// Whatever was left is consistent: asking again completes it, and removing it removes all.
async fn recover(machine: &mut Machine, step: usize) {
    let pod = PodUid("pod-1".into());
    let id = ContainerId { name: "app".into(), attempt: 0 };
    if let Some(report) = machine.report(&pod).await {
        machine.sandbox("pod-1").await;
        let spec = machine.spec("app", "trap 'exit 3' TERM; while :; do sleep 0.01; done").await;
        machine.runtime().start_container(&pod, &spec).await.unwrap();
        let ended = machine.report(&pod).await.unwrap().containers[0].exit.is_some();
        let well = ended || !report.alive || says_well(machine, &pod, &id).await;
        machine.runtime().kill(&pod, &id).await.unwrap();
        let code = machine.exit(&pod, &id).await.code;
        assert!([3, 137].contains(&code), "step {step}: {code}");
        // One that was asked to leave before the crash may do so while it is spoken to.
        assert!(well || code == 3, "step {step}");
    }
    machine.runtime().remove_sandbox(&pod).await.unwrap();
    assert_eq!(machine.processes(&pod), Vec::<i32>::new(), "step {step}");
    assert!(machine.runtime().network().addresses(&pod).is_empty(), "step {step}");
    machine.runtime().forget_logs(&pod).await.unwrap();
    let pods = machine.dir.path().join("pods");
    common::eventually("its files deleted", || std::fs::read_dir(&pods).unwrap().count() == 0).await;
}

async fn says_well(machine: &Machine, pod: &PodUid, id: &ContainerId) -> bool {
    match machine.runtime().exec(pod, id, &exec_spec(&["echo", "well"])).await {
        Ok(session) => read_all(session.stdout.unwrap()).await == "well\n",
        Err(_) => false,
    }
}

enum Outcome {
    Killed,
    Finished,
}

/// Runs an agent through a whole life and kills it when the `step`th thing has changed on its disk.
fn kill_at(directory: &Path, instance: &str, step: usize) -> Outcome {
    let mut watch = Watch::on(&[directory.join("pods"), directory.join("network"), directory.join("logs")]);
    let mut agent = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crashes::agent", "--ignored", "--nocapture"])
        .env(DIRECTORY, directory)
        .env(INSTANCE, instance)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while watch.seen < step {
        if let Some(status) = agent.try_wait().unwrap() {
            assert!(status.success(), "the agent failed: {status}");
            return Outcome::Finished;
        }
        assert!(begun.elapsed() < PATIENCE, "the agent is stuck after {} steps", watch.seen);
        watch.wait();
    }
    kill(&mut agent);
    Outcome::Killed
}

fn kill(agent: &mut Child) {
    agent.kill().unwrap();
    agent.wait().unwrap();
}

/// Changes in directories, and in those made in them.
struct Watch {
    inotify: OwnedFd,
    paths: std::collections::BTreeMap<i32, PathBuf>,
    seen: usize,
}

impl Watch {
    fn on(directories: &[PathBuf]) -> Self {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        let mut watch = Self { inotify, paths: std::collections::BTreeMap::new(), seen: 0 };
        directories.iter().for_each(|directory| watch.add(directory.clone()));
        watch
    }

    fn add(&mut self, directory: PathBuf) {
        let flags = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::MODIFY | WatchFlags::DELETE;
        if let Ok(number) = inotify::add_watch(&self.inotify, &directory, flags) {
            self.paths.insert(number, directory);
        }
    }

    /// Waits a moment for changes and counts them.
    fn wait(&mut self) {
        let a_moment = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
        let _ = rustix::event::poll(&mut [PollFd::new(&self.inotify, PollFlags::IN)], Some(&a_moment));
        let mut made = Vec::new();
        let mut buffer = [MaybeUninit::uninit(); 8192];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        while let Ok(event) = reader.next() {
            self.seen += 1;
            if event.events().contains(ReadFlags::CREATE | ReadFlags::ISDIR)
                && let (Some(above), Some(name)) = (self.paths.get(&event.wd()), event.file_name())
            {
                made.push(above.join(name.to_str().unwrap()));
            }
        }
        made.into_iter().for_each(|directory| self.add(directory));
    }
}
