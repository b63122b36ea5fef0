//! What outlives whom: agents die and return, shims die, hooks go on.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common;
use std::time::Instant;

use crate::common::{eventually, on_a_machine};
use runtime::verbs::*;
use runtime::{Delivery, HookRecord, PodUid, RuntimeError};

const HUP: u8 = 1;
const TERM: u8 = 15;

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn a_running_container_is_untouched_by_a_restart_of_the_agent() {
    on_a_machine(|mut machine| async {
        let pod = machine.sandbox("pod-1").await;
        let script = "trap 'exit 3' TERM; echo ready; while :; do sleep 0.02; done";
        let id = machine.start(&pod, "app", script).await;
        machine.logged(&pod, &id, "ready").await;
        let before = machine.report(&pod).await.unwrap();
        let shim = machine.shim_of(&pod);
        machine.agent_dies();
        machine.agent_returns().await;
        assert_eq!(machine.report(&pod).await.unwrap(), before);
        assert!(before.alive);
        assert_eq!(machine.shim_of(&pod), shim);
        assert_eq!(machine.exec(&pod, &id, "echo still here").await, ("still here\n".to_owned(), 0));
        machine.runtime().signal(&pod, &id, TERM).await.unwrap();
        let exit = machine.exit(&pod, &id).await;
        assert_eq!((exit.code, exit.seen), (3, true));
        machine
    });
}

/// An agent that did not live to hear what became of its signal has a successor, which is told when it was sent: whoever
/// suffers it has its notice from then, and is not disturbed again.
#[test]
fn a_signal_is_sent_once_and_dated_when_it_is_asked_for_again() {
    on_a_machine(|mut machine| async {
        let pod = machine.sandbox("pod-1").await;
        let script = "trap 'echo asked' TERM; trap 'exit 4' HUP; echo ready; while :; do sleep 0.02; done";
        let id = machine.start(&pod, "app", script).await;
        machine.logged(&pod, &id, "ready").await;
        assert_eq!(machine.runtime().signal(&pod, &id, TERM).await.unwrap(), Delivery::Delivered);
        machine.logged(&pod, &id, "asked").await;
        let first = machine.runtime().signal(&pod, &id, TERM).await.unwrap();
        let Delivery::DeliveredBefore { boot_ms } = first else { panic!("{first:?}") };
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        assert!((1..=u64::try_from(now.tv_sec + 1).unwrap() * 1000).contains(&boot_ms), "{boot_ms}");
        machine.agent_dies();
        machine.agent_returns().await;
        assert_eq!(machine.runtime().signal(&pod, &id, TERM).await.unwrap(), first);
        // Another one is news, and comes after whatever was sent before it.
        assert_eq!(machine.runtime().signal(&pod, &id, HUP).await.unwrap(), Delivery::Delivered);
        let exit = machine.exit(&pod, &id).await;
        assert_eq!(exit.code, 4);
        let log = std::fs::read_to_string(machine.runtime().log_path(&pod, &id)).unwrap();
        assert_eq!(log.matches("asked").count(), 1, "{log}");
        machine
    });
}

/// [NT-149]
#[test]
fn an_exit_that_happened_while_the_agent_was_away_is_known_and_told() {
    on_a_machine(|mut machine| async {
        let pod = machine.sandbox("pod-1").await;
        let (go, mount) = machine.signpost();
        let mut spec = machine.spec("app", "while ! [ -e /signpost/go ]; do sleep 0.01; done; exit 6").await;
        spec.mounts.push(mount);
        machine.runtime().start_container(&pod, &spec).await.unwrap();
        machine.agent_dies();
        std::fs::write(go, "").unwrap();
        let exit_file = machine.dir.path().join("pods/pod-1/containers/app.0/exit.json");
        eventually("the exit on disk", || exit_file.exists()).await;
        machine.agent_returns().await;
        let exit = machine.exit(&pod, &spec.id).await;
        assert_eq!((exit.code, exit.seen), (6, true));
        assert_eq!(machine.report(&pod).await.unwrap().containers[0].exit, Some(exit));
        machine
    });
}

/// [NT-147] A hook runs on while the agent is away; its outcome is there when it returns, and it is not run again.
#[test]
fn a_hook_goes_on_without_the_agent_and_is_never_run_twice() {
    on_a_machine(|mut machine| async {
        let pod = machine.sandbox("pod-1").await;
        let (go, mount) = machine.signpost();
        let mut spec = machine.spec("app", "sleep 1000").await;
        spec.mounts.push(mount);
        machine.runtime().start_container(&pod, &spec).await.unwrap();
        let id = spec.id;
        let script = "echo ran >> /tmp/count; while ! [ -e /signpost/go ]; do sleep 0.01; done; exit 4";
        let script = words(&["sh", "-c", script]);
        machine.runtime().run_hook(&pod, &id, "preStop", &script).await.unwrap();
        machine.runtime().run_hook(&pod, &id, "preStop", &script).await.unwrap();
        let report = machine.report(&pod).await.unwrap();
        assert_eq!((report.hooks.len(), &report.hooks[0].outcome), (1, &None));
        machine.agent_dies();
        std::fs::write(go, "").unwrap();
        let outcome = machine.dir.path().join("pods/pod-1/containers/app.0/hooks/preStop.json");
        eventually("the outcome on disk", || outcome.exists()).await;
        machine.agent_returns().await;
        assert_eq!(machine.hook(&pod, "preStop").await, HookRecord::Exited { code: 4, output: None });
        machine.runtime().run_hook(&pod, &id, "preStop", &script).await.unwrap();
        assert_eq!(machine.exec(&pod, &id, "cat /tmp/count").await.0, "ran\n");
        assert_eq!(
            machine.report(&pod).await.unwrap().hooks[0].outcome,
            Some(HookRecord::Exited { code: 4, output: None })
        );
        machine
    });
}

#[test]
fn failed_hook_record_has_its_last_output_and_its_children_run_on() {
    on_a_machine(|mut machine| async {
        let pod = machine.sandbox("pod-1").await;
        let (go, mount) = machine.signpost();
        let mut spec = machine.spec("app", "sleep 1000").await;
        spec.mounts.push(mount);
        machine.runtime().start_container(&pod, &spec).await.unwrap();
        let id = spec.id;
        // More than a pipe holds while nobody reads it, before the hook's end and after it.
        let script = "(while ! [ -e /signpost/go ]; do sleep 0.01; done; seq 1 100000; echo alive > /tmp/left) & \
                      seq 1 100000; echo sorry >&2; exit 3";
        machine.runtime().run_hook(&pod, &id, "bad", &words(&["sh", "-c", script])).await.unwrap();
        let HookRecord::Exited { code: 3, output: Some(said) } = machine.hook(&pod, "bad").await else {
            panic!("it failed, and said why")
        };
        assert!(said.ends_with("99999\n100000\nsorry") && said.len() <= 2048, "{said:?}");
        std::fs::write(go, "").unwrap();
        assert_eq!(machine.exec(&pod, &id, "while ! [ -e /tmp/left ]; do sleep 0.01; done").await.1, 0);
        machine.runtime().run_hook(&pod, &id, "good", &words(&["echo", "fine"])).await.unwrap();
        assert_eq!(machine.hook(&pod, "good").await, HookRecord::Exited { code: 0, output: None });
        machine
    });
}

#[test]
fn a_cancelled_hook_ends_with_all_it_started_and_nothing_else() {
    on_a_machine(|mut machine| async {
        let pod = machine.sandbox("pod-1").await;
        let id = machine.start(&pod, "app", "sleep 1000").await;
        let quiet = machine.processes(&pod).len();
        let script = words(&["sh", "-c", "setsid sleep 1000 & setsid sleep 1000 & wait"]);
        machine.runtime().run_hook(&pod, &id, "slow", &script).await.unwrap();
        eventually("the hook's children", || machine.processes(&pod).len() == quiet + 3).await;
        machine.runtime().cancel_hook(&pod, &id, "slow").await.unwrap();
        assert_eq!(machine.hook(&pod, "slow").await, HookRecord::Cancelled);
        eventually("the hook's children gone", || machine.processes(&pod).len() == quiet).await;
        assert_eq!(machine.report(&pod).await.unwrap().containers[0].exit, None);
        machine.runtime().cancel_hook(&pod, &id, "slow").await.unwrap();
        machine
    });
}

#[test]
fn a_hook_that_cannot_run_has_failed_and_one_is_not_run_in_a_container_that_ended() {
    on_a_machine(|mut machine| async {
        let pod = machine.sandbox("pod-1").await;
        let id = machine.start(&pod, "app", "sleep 1000").await;
        machine.runtime().run_hook(&pod, &id, "bad", &words(&["nope"])).await.unwrap();
        let HookRecord::Failed { message } = machine.hook(&pod, "bad").await else { panic!("it failed") };
        assert!(message.contains("executable file not found"), "{message}");
        machine.runtime().run_hook(&pod, &id, "own-end", &words(&["sh", "-c", "kill -9 $$"])).await.unwrap();
        assert_eq!(
            machine.hook(&pod, "own-end").await,
            HookRecord::Exited { code: 137, output: None },
            "nobody ended it"
        );
        let hook = words(&["sh", "-c", "touch /tmp/begun; sleep 1000"]);
        machine.runtime().run_hook(&pod, &id, "cut-short", &hook).await.unwrap();
        assert_eq!(machine.exec(&pod, &id, "while ! [ -e /tmp/begun ]; do sleep 0.01; done").await.1, 0);
        machine.runtime().kill(&pod, &id).await.unwrap();
        assert_eq!(machine.exit(&pod, &id).await.code, 137);
        assert_eq!(machine.hook(&pod, "cut-short").await, HookRecord::Cancelled, "it ended with its container");
        let late = machine.runtime().run_hook(&pod, &id, "late", &words(&["true"])).await.unwrap_err();
        assert!(matches!(late, RuntimeError::NoContainer { .. }), "{late:?}");
        machine
    });
}

/// A request to begin it may be on its way still: what is not wanted any more is not begun by that.
#[test]
fn hook_that_was_cancelled_before_it_was_begun_never_is() {
    on_a_machine(|mut machine| async {
        let pod = machine.sandbox("pod-1").await;
        let id = machine.start(&pod, "app", "sleep 1000").await;
        machine.runtime().cancel_hook(&pod, &id, "preStop").await.unwrap();
        assert_eq!(machine.hook(&pod, "preStop").await, HookRecord::Cancelled);
        machine.runtime().run_hook(&pod, &id, "preStop", &words(&["touch", "/tmp/begun"])).await.unwrap();
        assert_eq!(machine.hook(&pod, "preStop").await, HookRecord::Cancelled);
        assert_eq!(machine.exec(&pod, &id, "[ -e /tmp/begun ]").await.1, 1);
        machine
    });
}

#[test]
fn pod_of_a_killed_shim_ends_with_an_unseen_exit() {
    on_a_machine(|mut machine| async {
        let pod = machine.sandbox("pod-1").await;
        let id = machine.start(&pod, "app", "sleep 1000").await;
        let done = machine.start(&pod, "done", "exit 2").await;
        machine.exit(&pod, &done).await;
        machine.runtime().run_hook(&pod, &id, "preStop", &words(&["sleep", "1000"])).await.unwrap();
        kill(machine.shim_of(&pod));
        let exit = machine.exit(&pod, &id).await;
        assert_eq!((exit.code, exit.seen), (137, false));
        assert!(matches!(machine.hook(&pod, "preStop").await, HookRecord::Failed { .. }));
        eventually("no process left", || machine.processes(&pod).is_empty()).await;
        let report = machine.report(&pod).await.unwrap();
        assert!(!report.alive);
        let codes: Vec<_> = report.containers.iter().map(|one| one.exit.unwrap()).map(|e| (e.code, e.seen)).collect();
        assert_eq!(codes, [(137, false), (2, true)]);
        let refused = machine.runtime().signal(&pod, &id, TERM).await;
        assert_eq!(refused.unwrap(), runtime::Delivery::AlreadyGone);
        // The pod may be given a new sandbox; what ended stays known.
        machine.sandbox("pod-1").await;
        let again = runtime::ContainerSpec {
            id: runtime::ContainerId { name: "app".into(), attempt: 1 },
            ..machine.spec("app", "exit 0").await
        };
        machine.runtime().start_container(&pod, &again).await.unwrap();
        assert_eq!(machine.exit(&pod, &again.id).await.code, 0);
        assert_eq!(machine.report(&pod).await.unwrap().containers.len(), 3);
        machine
    });
}

#[test]
fn a_shim_that_died_while_the_agent_was_away_is_noticed_at_once() {
    on_a_machine(|mut machine| async {
        let pod = machine.sandbox("pod-1").await;
        let id = machine.start(&pod, "app", "sleep 1000").await;
        let shim = machine.shim_of(&pod);
        machine.agent_dies();
        kill(shim);
        eventually("its end", || !machine.processes(&pod).contains(&shim)).await;
        machine.agent_returns().await;
        let report = machine.report(&pod).await.unwrap();
        assert!(!report.alive);
        let exit = report.containers[0].exit.unwrap();
        assert_eq!((exit.code, exit.seen), (137, false));
        assert_eq!(machine.exit(&pod, &id).await, exit);
        eventually("no process left", || machine.processes(&pod).is_empty()).await;
        machine
    });
}

#[test]
fn a_shim_that_does_not_answer_protects_nobody_from_being_killed() {
    on_a_machine(|mut machine| async {
        let pod = machine.sandbox("pod-1").await;
        let id = machine.start(&pod, "app", "trap '' TERM; echo ready; while :; do sleep 0.02; done").await;
        machine.logged(&pod, &id, "ready").await;
        freeze_shim(&machine, &pod);
        let begun = Instant::now();
        let unheard = machine.runtime().signal(&pod, &id, TERM).await.unwrap_err();
        assert!(matches!(unheard, RuntimeError::Unanswered { .. }), "{unheard:?}");
        machine.runtime().kill(&pod, &id).await.unwrap();
        let exit = machine.exit(&pod, &id).await;
        assert_eq!((exit.code, exit.seen), (137, false));
        assert_eq!(machine.processes(&pod), Vec::<i32>::new());
        assert!(!machine.report(&pod).await.unwrap().alive);
        assert!(begun.elapsed() < common::PATIENCE, "{:?}", begun.elapsed());
        // The pod can be given another sandbox, and that one answers.
        machine.sandbox("pod-1").await;
        assert!(machine.report(&pod).await.unwrap().alive);
        machine
    });
}

#[test]
fn pod_whose_shim_does_not_answer_is_removed_and_its_ends_are_told() {
    on_a_machine(|mut machine| async {
        let pod = machine.sandbox("pod-1").await;
        let id = machine.start(&pod, "app", "sleep 1000").await;
        freeze_shim(&machine, &pod);
        let removed = machine.runtime().remove_sandbox(&pod);
        tokio::time::timeout(common::PATIENCE, removed).await.expect("an end").unwrap();
        assert_eq!(machine.processes(&pod), Vec::<i32>::new());
        let exit = machine.exit(&pod, &id).await;
        assert_eq!((exit.code, exit.seen), (137, false));
        machine
    });
}

#[test]
fn half_made_or_half_removed_pod_is_completed_after_a_restart() {
    on_a_machine(|mut machine| async {
        let pod = machine.sandbox("pod-1").await;
        let leaving = machine.sandbox("pod-2").await;
        machine.start(&leaving, "app", "sleep 1000").await;
        machine.agent_dies();
        let pods = machine.dir.path().join("pods");
        // As if the agent had died before the network was there, in the middle of a removal, and before any record.
        std::fs::remove_file(pods.join("pod-1/ready.json")).unwrap();
        std::fs::write(pods.join("pod-2/removing"), "").unwrap();
        std::fs::create_dir(pods.join("pod-3")).unwrap();
        std::fs::create_dir(pods.join(".leaving-pod-4-1")).unwrap();
        machine.agent_returns().await;
        let known: Vec<_> = machine.runtime().inventory().await.unwrap().into_iter().map(|r| r.spec.uid).collect();
        assert_eq!(known, std::slice::from_ref(&pod));
        assert_eq!(machine.processes(&leaving), Vec::<i32>::new());
        assert!(!machine.report(&pod).await.unwrap().alive, "what is half made is not reported as a sandbox");
        machine.sandbox("pod-1").await;
        assert!(machine.report(&pod).await.unwrap().alive);
        let id = machine.start(&pod, "app", "exit 0").await;
        assert_eq!(machine.exit(&pod, &id).await.code, 0);
        machine
    });
}

#[test]
fn a_sandbox_being_made_anew_does_not_pass_for_the_former_one() {
    on_a_machine(|mut machine| async {
        let pod = machine.sandbox("pod-1").await;
        let id = machine.start(&pod, "app", "sleep 1000").await;
        kill(machine.shim_of(&pod));
        machine.exit(&pod, &id).await;
        // Something in the way of the new shim's socket stops the making halfway.
        let files = machine.dir.path().join("pods/pod-1");
        std::fs::remove_file(files.join("shim.sock")).unwrap();
        std::fs::create_dir(files.join("shim.sock")).unwrap();
        machine.runtime().create_sandbox(&common::sandbox_spec("pod-1")).await.unwrap_err();
        assert!(!files.join("ready.json").exists(), "an agent that returns now would take it for complete");
        std::fs::remove_dir(files.join("shim.sock")).unwrap();
        machine.sandbox("pod-1").await;
        assert!(machine.report(&pod).await.unwrap().alive);
        machine
    });
}

#[test]
fn the_program_of_a_shim_cannot_be_written_through_the_shim() {
    on_a_machine(|machine| async {
        let pod = machine.sandbox("pod-1").await;
        let open = || std::fs::OpenOptions::new().write(true).open(format!("/proc/{}/exe", machine.shim_of(&pod)));
        let refused = open().unwrap_err().kind();
        let read_only = [std::io::ErrorKind::ReadOnlyFilesystem, std::io::ErrorKind::ExecutableFileBusy];
        assert!(read_only.contains(&refused), "{refused}");
        machine
    });
}

fn kill(pid: i32) {
    send(pid, rustix::process::Signal::KILL);
}

fn stop(pid: i32) {
    send(pid, rustix::process::Signal::STOP);
}

/// Keeps a shim from doing anything, whoever tells it to go on.
fn freeze_shim(machine: &common::Machine, pod: &PodUid) {
    let groups = machine.cgroups().into_iter().map(|group| group.join(&pod.0).join("shim/cgroup.freeze"));
    let group = groups.into_iter().find(|file| file.exists()).expect("a group of the shim");
    std::fs::write(group, "1").unwrap();
}

/// [SE-66] Whoever may stop a shim, a container on the host's processes among them, stops nothing else with it.
#[test]
fn stopped_shim_goes_on_when_it_is_asked_and_its_container_gets_its_stop_signal() {
    on_a_machine(|mut machine| async {
        let pod = machine.sandbox("pod-1").await;
        let id = machine.start(&pod, "app", "trap 'exit 3' TERM; echo ready; while :; do sleep 0.02; done").await;
        machine.logged(&pod, &id, "ready").await;
        stop(machine.shim_of(&pod));
        assert_eq!(machine.exec(&pod, &id, "echo well").await, ("well\n".to_owned(), 0));
        stop(machine.shim_of(&pod));
        assert_eq!(machine.runtime().signal(&pod, &id, TERM).await.unwrap(), Delivery::Delivered);
        let exit = machine.exit(&pod, &id).await;
        assert_eq!((exit.code, exit.seen), (3, true));
        stop(machine.shim_of(&pod));
        machine.runtime().remove_sandbox(&pod).await.unwrap();
        machine
    });
}

#[test]
fn stopped_shim_goes_on_when_the_agent_returns() {
    on_a_machine(|mut machine| async {
        let pod = machine.sandbox("pod-1").await;
        let id = machine.start(&pod, "app", "trap 'exit 3' TERM; echo ready; while :; do sleep 0.02; done").await;
        machine.logged(&pod, &id, "ready").await;
        machine.agent_dies();
        stop(machine.shim_of(&pod));
        machine.agent_returns().await;
        assert!(machine.report(&pod).await.unwrap().alive);
        machine.runtime().signal(&pod, &id, TERM).await.unwrap();
        assert_eq!(machine.exit(&pod, &id).await.code, 3);
        machine
    });
}

fn send(pid: i32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

#[test]
fn a_shim_at_rest_gives_memory_back_and_answers_as_before() {
    on_a_machine(|mut machine| async {
        let pod = machine.sandbox("pod-1").await;
        let id = machine.start(&pod, "app", "trap 'exit 3' TERM; while :; do sleep 0.01; done").await;
        let rollup = format!("/proc/{}/smaps_rollup", machine.shim_of(&pod));
        let resident = || -> u64 {
            let text = std::fs::read_to_string(&rollup).unwrap();
            let line = text.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap();
            line.split_whitespace().next().unwrap().parse().unwrap()
        };
        let busy = resident();
        common::eventually("most of its memory given back", || resident() * 2 < busy).await;
        assert_eq!(machine.exec(&pod, &id, "echo well").await, ("well\n".to_owned(), 0));
        machine.runtime().signal(&pod, &id, 15).await.unwrap();
        assert_eq!(machine.exit(&pod, &id).await.code, 3);
        machine
    });
}

#[test]
fn cgroup_or_address_without_a_pod_is_ended_and_removed() {
    on_a_machine(|mut machine| async {
        let lost = machine.sandbox("lost").await;
        machine.start(&lost, "app", "sleep 1000").await;
        let kept = machine.sandbox("kept").await;
        let id = machine.start(&kept, "app", "sleep 1000").await;
        machine.agent_dies();
        file_tree::delete_tree(&machine.dir.path().join("pods/lost")).unwrap();
        machine.agent_returns().await;
        assert_eq!(machine.processes(&lost), Vec::<i32>::new());
        for group in machine.cgroups() {
            assert!(!group.join("lost").exists(), "{}", group.display());
        }
        assert!(machine.runtime().network().addresses(&lost).is_empty());
        assert_eq!(machine.runtime().network().addresses(&kept).len(), 1);
        assert_eq!(machine.exec(&kept, &id, "echo well").await.0, "well\n");
        // Its name is free for another.
        machine.sandbox("lost").await;
        machine.start(&lost, "app", "sleep 1000").await;
        machine
    });
}

#[test]
fn files_that_somebody_holds_are_deleted_once_they_are_let_go() {
    on_a_machine(|machine| async {
        let pod = machine.sandbox("pod-1").await;
        let id = machine.start(&pod, "app", "sleep 1000").await;
        let pods = machine.dir.path().join("pods");
        let inside = pods.join("pod-1/containers/app.0/upper");
        // Refused the name of a directory that is mounted upon, and never looked into.
        let held = tempfile::tempdir().unwrap();
        std::fs::write(held.path().join("theirs"), "kept").unwrap();
        let at = inside.join("mounted");
        std::fs::create_dir(&at).unwrap();
        rustix::mount::mount_bind(held.path(), &at).unwrap();
        machine.runtime().kill(&pod, &id).await.unwrap();
        machine.runtime().remove_sandbox(&pod).await.unwrap();
        let leaving = || std::fs::read_dir(&pods).unwrap().flatten().map(|entry| entry.path()).next();
        eventually("only the mount is in the way", || {
            let mounted = leaving().map(|path| path.join("containers/app.0/upper/mounted"));
            mounted.is_some_and(|path| path.exists()) && !leaving().unwrap().join("sandbox.json").exists()
        })
        .await;
        let mounted = leaving().unwrap().join("containers/app.0/upper/mounted");
        assert_eq!(std::fs::read_to_string(held.path().join("theirs")).unwrap(), "kept");
        rustix::mount::unmount(&mounted, rustix::mount::UnmountFlags::empty()).unwrap();
        eventually("all of it deleted", || leaving().is_none()).await;
        machine
    });
}
