//! A disk without room, for bytes or for files: pods end on it, are told of and are removed, by what was set aside for that.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::common::{eventually, on_a_machine_in, processes_in};
use runtime::verbs::*;
use runtime::{ContainerId, HookRecord, PodUid};
use rustix::mount::{MountFlags, UnmountFlags};

const TERM: u8 = 15;
const STAYS_UNTIL_TOLD: &str = "trap 'exit 3' TERM; echo ready; while :; do sleep 0.02; done";

/// A small disk.
struct Disk(tempfile::TempDir);

impl Disk {
    fn new() -> Self {
        let at = tempfile::tempdir().unwrap();
        rustix::mount::mount("tmpfs", at.path(), "tmpfs", MountFlags::empty(), c"size=48m,nr_inodes=4000").unwrap();
        Self(at)
    }

    /// Takes all files there can be.
    fn fill_inodes(&self) {
        let ballast = self.path().join("many");
        std::fs::create_dir(&ballast).unwrap();
        let refused = (0..).find_map(|n| std::fs::File::create_new(ballast.join(format!("{n}"))).err()).unwrap();
        assert_eq!(refused.kind(), std::io::ErrorKind::StorageFull);
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }

    /// Takes all room there is.
    fn fill(&self) {
        let mut ballast = std::fs::File::create(self.ballast()).unwrap();
        for size in [1 << 20, 4096] {
            while ballast.write_all(&vec![1; size]).is_ok() {}
        }
        assert!(std::fs::write(self.path().join("more"), "x").is_err(), "there is no room");
    }

    fn make_room(&self) {
        std::fs::remove_file(self.ballast()).unwrap();
    }
}

/// Containers as they were made before there were spares, or on a disk that was full then.
fn remove_spares(machine: &common::Machine) {
    let containers = std::fs::read_dir(machine.dir.path().join("pods/pod-1/containers")).unwrap();
    for file in containers.flat_map(|container| std::fs::read_dir(container.unwrap().path()).unwrap()) {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "spare") {
            std::fs::remove_file(path).unwrap();
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.path(), UnmountFlags::DETACH);
    }
}

async fn gone(machine: &common::Machine, pod: &PodUid, id: &ContainerId) {
    let group = format!("/adieu-{}/{}/{}.{}", machine.instance, pod.0, id.name, id.attempt);
    eventually("its processes gone", || processes_in(&group).is_empty()).await;
}

/// Hooks that were asked for before and after, ends and the removal itself: none of it waits for room.
fn pod_ends_on_a_disk_filled_by(fill: impl Fn(&Disk)) {
    let disk = Disk::new();
    on_a_machine_in(disk.path(), |mut machine| async {
        let pod = machine.sandbox("pod-1").await;
        let (go, mount) = machine.signpost();
        let mut spec = machine.spec("stays", STAYS_UNTIL_TOLD).await;
        spec.mounts.push(mount);
        machine.runtime().start_container(&pod, &spec).await.unwrap();
        let (stays, leaves) = (spec.id, machine.start(&pod, "leaves", STAYS_UNTIL_TOLD).await);
        machine.logged(&pod, &leaves, "ready").await;
        machine.logged(&pod, &stays, "ready").await;

        std::fs::write(&go, "").unwrap();
        fill(&disk);
        machine.agent_dies();
        machine.agent_returns().await;
        let hook = ["sh", "-c", "cat /signpost/go && exit 4"].map(String::from);
        machine.runtime().run_hook(&pod, &stays, "late", &hook).await.unwrap();
        assert_eq!(machine.hook(&pod, "late").await, HookRecord::Exited { code: 4, output: None });
        for id in [&leaves, &stays] {
            machine.runtime().signal(&pod, id, TERM).await.unwrap();
            assert_eq!(machine.exit(&pod, id).await.code, 3);
        }
        let report = machine.report(&pod).await.unwrap();
        assert!(report.containers.iter().all(|container| container.exit.is_some()), "{report:?}");
        assert!(std::fs::write(disk.path().join("more"), "x").is_err(), "there is still no room");
        machine.runtime().remove_sandbox(&pod).await.unwrap();
        assert_eq!(machine.log(&pod, &leaves), "stdout F ready\n", "its logs are kept");
        machine
    });
}

#[test]
fn pod_ends_and_is_removed_on_a_disk_without_room() {
    pod_ends_on_a_disk_filled_by(Disk::fill);
}

#[test]
fn pod_ends_and_is_removed_on_a_disk_without_inodes() {
    pod_ends_on_a_disk_filled_by(Disk::fill_inodes);
}

#[test]
fn an_end_on_a_full_disk_is_told_when_there_is_room_and_harms_nobody_else() {
    let disk = Disk::new();
    on_a_machine_in(disk.path(), |mut machine| async {
        let pod = machine.sandbox("pod-1").await;
        let (go, mount) = machine.signpost();
        let mut spec = machine.spec("stays", "sleep 1000").await;
        spec.mounts.push(mount);
        machine.runtime().start_container(&pod, &spec).await.unwrap();
        let (stays, leaves) = (spec.id, machine.start(&pod, "leaves", STAYS_UNTIL_TOLD).await);
        machine.logged(&pod, &leaves, "ready").await;
        let hook = ["sh", "-c", "while ! [ -e /signpost/go ]; do sleep 0.02; done; touch /tmp/done; exit 4"];
        machine.runtime().run_hook(&pod, &stays, "slow", &hook.map(String::from)).await.unwrap();
        let (shim, containers) = (machine.shim_of(&pod), machine.dir.path().join("pods/pod-1/containers"));

        remove_spares(&machine);
        disk.fill();
        machine.runtime().signal(&pod, &leaves, TERM).await.unwrap();
        std::fs::write(go, "").unwrap();
        gone(&machine, &pod, &leaves).await;
        let hooks = format!("/adieu-{}/pod-1/stays.0/hook-slow", machine.instance);
        eventually("the hook ended", || processes_in(&hooks).is_empty()).await;
        // Each of these is answered by the shim, after it looked at what has ended.
        for _ in 0..5 {
            assert_eq!(machine.exec(&pod, &stays, "echo well").await, ("well\n".to_owned(), 0));
        }
        assert_eq!(machine.shim_of(&pod), shim);
        assert_eq!(machine.told_meanwhile(), [], "nothing is told that is not on disk");
        assert!(!containers.join("leaves.0/exit.json").exists());
        let report = machine.report(&pod).await.unwrap();
        assert!(report.alive && report.containers.iter().all(|container| container.exit.is_none()), "{report:?}");

        disk.make_room();
        let exit = machine.exit(&pod, &leaves).await;
        assert_eq!((exit.code, exit.seen), (3, true));
        assert_eq!(machine.hook(&pod, "slow").await, HookRecord::Exited { code: 4, output: None });
        let report = machine.report(&pod).await.unwrap();
        let recorded: Vec<_> = report.containers.iter().map(|container| container.exit).collect();
        assert_eq!(recorded, [Some(exit), None]);
        assert_eq!(machine.exec(&pod, &stays, "echo well").await, ("well\n".to_owned(), 0));
        assert_eq!(machine.shim_of(&pod), shim);
        machine
    });
}

#[test]
fn a_pod_that_lost_its_shim_on_a_full_disk_ends_when_there_is_room() {
    let disk = Disk::new();
    on_a_machine_in(disk.path(), |mut machine| async {
        let pod = machine.sandbox("pod-1").await;
        let stays = machine.start(&pod, "stays", "sleep 1000").await;
        let leaves = machine.start(&pod, "leaves", STAYS_UNTIL_TOLD).await;
        machine.logged(&pod, &leaves, "ready").await;

        remove_spares(&machine);
        disk.fill();
        machine.runtime().signal(&pod, &leaves, TERM).await.unwrap();
        gone(&machine, &pod, &leaves).await;
        let shim = rustix::process::Pid::from_raw(machine.shim_of(&pod)).unwrap();
        rustix::process::kill_process(shim, rustix::process::Signal::KILL).unwrap();
        eventually("the pod's processes gone", || machine.processes(&pod).is_empty()).await;
        assert_eq!(machine.told_meanwhile(), [], "nothing is told that is not on disk");

        disk.make_room();
        for id in [&stays, &leaves] {
            let exit = machine.exit(&pod, id).await;
            assert_eq!((exit.code, exit.seen), (137, false), "what the shim saw is lost with it");
        }
        let report = machine.report(&pod).await.unwrap();
        assert!(report.containers.iter().all(|container| container.exit.is_some()), "{report:?}");
        machine
    });
}

#[test]
fn a_start_that_the_disk_did_not_take_is_answered_all_the_same_and_never_done_twice() {
    common::on_a_machine(|mut machine| async {
        let pod = machine.sandbox("pod-1").await;
        // Nothing can be put in the place of a directory.
        let container = machine.dir.path().join("pods/pod-1/containers/app.0");
        std::fs::create_dir_all(container.join("started.json")).unwrap();
        let spec = machine.spec("app", STAYS_UNTIL_TOLD).await;
        let first = machine.runtime().start_container(&pod, &spec).await.unwrap();
        machine.logged(&pod, &spec.id, "ready").await;
        let asked_again = machine.runtime().start_container(&pod, &spec);
        let again = tokio::time::timeout(common::PATIENCE, asked_again).await.expect("an answer").unwrap();
        assert_eq!(again, first);
        machine.runtime().signal(&pod, &spec.id, TERM).await.unwrap();
        assert_eq!(machine.exit(&pod, &spec.id).await.code, 3);
        machine.runtime().start_container(&pod, &spec).await.unwrap();
        assert_eq!(machine.log(&pod, &spec.id), "stdout F ready\n", "it ran once");
        machine
    });
}
