//! Hundreds of pods that leave nothing behind. A program of its own, as descriptors are counted per process.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::{Machine, PATIENCE, on_a_machine, sandbox_spec};
use futures::StreamExt;
use runtime::verbs::*;

#[test]
fn two_hundred_pods_leave_nothing_behind() {
    on_a_machine(|machine| async {
        // The loopback, and whatever else this kernel puts into every network.
        let links = Counted::of(&machine).links;
        // What is made once and kept is made by the first.
        one_life(&machine, 0).await;
        let before = Counted::at_rest(&machine, links).await;
        let lives = futures::stream::iter(1..=200).map(|number| one_life(&machine, number)).buffer_unordered(8);
        lives.collect::<Vec<()>>().await;
        let after = Counted::at_rest(&machine, links).await;
        assert_eq!(after, before);
        machine
    });
}

async fn one_life(machine: &Machine, number: u32) {
    let spec = sandbox_spec(&format!("pod-{number}"));
    let runtime = machine.runtime();
    runtime.create_sandbox(&spec).await.unwrap();
    let container = machine.spec("app", "sleep 1000").await;
    runtime.start_container(&spec.uid, &container).await.unwrap();
    runtime.remove_sandbox(&spec.uid).await.unwrap();
    runtime.forget_logs(&spec.uid).await.unwrap();
}

/// Everything a pod brings into the world.
#[derive(PartialEq, Eq, Debug)]
struct Counted {
    mounts: usize,
    cgroups: usize,
    processes: usize,
    descriptors: usize,
    links: usize,
    /// Network namespaces that have a number here, as those do that a link once led to, until they end.
    namespaces: usize,
    /// Of the node and its pods: in the book, and in the kernel with their routes.
    addresses: usize,
    files: usize,
}

impl Counted {
    /// Namespaces, links and files go in the background, and their descriptors with them: counted once these are gone and
    /// nothing has changed for a while.
    async fn at_rest(machine: &Machine, links: usize) -> Self {
        const A_WHILE: Duration = Duration::from_millis(300);
        let begun = Instant::now();
        let (mut counted, mut since) = (Self::of(machine), Instant::now());
        let settling = |counted: &Self| counted.files > 0 || counted.namespaces > 0 || counted.links > links;
        while settling(&counted) || since.elapsed() < A_WHILE {
            assert!(begun.elapsed() < PATIENCE, "{counted:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
            let again = Self::of(machine);
            if again != counted {
                (counted, since) = (again, Instant::now());
            }
        }
        counted
    }

    fn of(machine: &Machine) -> Self {
        let lines = |path: &str| std::fs::read_to_string(path).unwrap().lines().count();
        let entries = |path: &Path| std::fs::read_dir(path).map_or(0, Iterator::count);
        Self {
            mounts: mounts(machine),
            cgroups: machine.cgroups().iter().map(|group| groups_below(group)).sum(),
            processes: common::processes_in(&format!("/adieu-{}", machine.instance)).len(),
            descriptors: entries(Path::new("/proc/self/fd")),
            links: lines("/proc/thread-self/net/dev"),
            namespaces: ip(&["netns", "list-id"]),
            addresses: machine.runtime().network().holders().len() + ip(&["-o", "address"]) + ip(&["route", "show"]),
            files: entries(&machine.dir.path().join("pods")) + entries(&machine.dir.path().join("logs")),
        }
    }
}

/// The mounts that have anything to do with the machine: others come and go on the host.
fn mounts(machine: &Machine) -> usize {
    let (dir, all) = (machine.dir.path().to_str().unwrap(), std::fs::read_to_string("/proc/self/mountinfo").unwrap());
    all.lines().filter(|line| line.contains(dir) || line.contains(&machine.instance)).count()
}

/// How many lines the `ip` program answers.
fn ip(question: &[&str]) -> usize {
    let output = Command::new("ip").args(question).output().unwrap();
    assert!(output.status.success(), "{question:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout.iter().filter(|byte| **byte == b'\n').count()
}

fn groups_below(group: &Path) -> usize {
    let below = std::fs::read_dir(group).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir());
    below.map(|entry| 1 + groups_below(&entry.path())).sum()
}
