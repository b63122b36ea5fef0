//! What a pod has as a whole: its weight among pods, limits for all its containers together, and others later.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::common::{Machine, config, on_a_machine, sandbox_spec};
use runtime::verbs::*;
use runtime::{ContainerId, Embedded, PodUid, Resources, RuntimeError, SandboxSpec};

fn asks(millis: u64) -> Resources {
    Resources { cpu_request_millis: Some(millis), ..Resources::default() }
}

/// A group's file, which one of the hierarchies has.
fn file_of(machine: &Machine, group: &str, file: &str) -> Option<PathBuf> {
    machine.cgroups().into_iter().map(|top| top.join(group).join(file)).find(|path| path.exists())
}

/// Its text.
fn file(machine: &Machine, group: &str, file: &str) -> Option<String> {
    let text = std::fs::read_to_string(file_of(machine, group, file)?).ok()?;
    Some(text.trim().to_owned())
}

/// Looks at the weight of a group, as v1 hierarchies or cgroup2 count it.
fn weighs(machine: &Machine, group: &str, shares: u64, weight: u64) {
    let found = file(machine, group, "cpu.shares").map(|found| (found, shares));
    let found = found.or_else(|| file(machine, group, "cpu.weight").map(|found| (found, weight)));
    let (found, wanted) = found.expect("the group of a pod has a weight");
    assert_eq!(found, wanted.to_string(), "{group}");
}

/// Its limits: microseconds of each tenth of a second, and bytes. What cgroup2 adds for the shim is taken off.
fn limits(machine: &Machine, group: &str) -> (Option<u64>, Option<u64>) {
    let number = |text: String| text.parse::<u64>().ok().filter(|number| *number < 1 << 60);
    let v1 = file(machine, group, "cpu.cfs_quota_us").zip(file(machine, group, "memory.limit_in_bytes"));
    match v1 {
        Some((quota, memory)) => (number(quota), number(memory)),
        None => {
            let quota = file(machine, group, "cpu.max").unwrap();
            let quota = number(quota.split(' ').next().unwrap().to_owned());
            let memory = number(file(machine, group, "memory.max").unwrap());
            (quota.map(|it| it - 10_000), memory.map(|it| it - (16 << 20)))
        }
    }
}

async fn pod(machine: &Machine, uid: &str, resources: Resources) -> PodUid {
    let best_effort = resources == Resources::default();
    let spec = SandboxSpec { resources, best_effort, ..sandbox_spec(uid) };
    machine.runtime().create_sandbox(&spec).await.unwrap();
    spec.uid
}

/// The control groups of a container's first process.
fn groups_of(machine: &Machine, pod: &PodUid, id: &ContainerId) -> String {
    let is_own = |pid: &i32| machine.processes(pod).contains(pid);
    let group = format!("/{}/{}.{}", pod.0, id.name, id.attempt);
    let pid = common::processes_in(&group).into_iter().find(is_own).expect("it runs");
    std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap()
}

#[test]
fn a_pod_weighs_what_it_asks_for_and_all_that_ask_for_nothing_weigh_the_least() {
    on_a_machine(|mut machine| async {
        let much = pod(&machine, "much", asks(900)).await;
        let little = pod(&machine, "little", asks(10)).await;
        let nothing = pod(&machine, "nothing", Resources::default()).await;
        weighs(&machine, "much", 921, 36);
        weighs(&machine, "little", 10, 1);
        weighs(&machine, "besteffort/nothing", 2, 1);
        weighs(&machine, "besteffort", 2, 1);
        let processors = std::thread::available_parallelism().unwrap().get() as u64;
        weighs(&machine, "", 1024 * processors, 1 + (1024 * processors - 2) * 9999 / 262_142);
        // Everybody counts in its pod's groups, whatever it asks for.
        for (pod, below) in [(&much, "much"), (&little, "little"), (&nothing, "besteffort/nothing")] {
            let id = machine.start(pod, "app", "sleep 1000").await;
            let groups = groups_of(&machine, pod, &id);
            let path = format!("/adieu-{}/{below}/app.0", machine.instance);
            for line in groups.lines() {
                let (controllers, group) = line.split_once(':').unwrap().1.split_once(':').unwrap();
                if ["", "cpu", "memory", "cpu,cpuacct"].contains(&controllers) {
                    assert_eq!(group, path, "{groups}");
                }
            }
            weighs(&machine, &format!("{below}/app.0"), 2, 1);
        }
        // An agent that comes back finds all of them where they are, and takes nobody for a stranger.
        machine.agent_dies();
        machine.agent_returns().await;
        for uid in [&much, &little, &nothing] {
            let report = machine.report(uid).await.unwrap();
            assert!(report.alive && report.containers[0].exit.is_none(), "{report:?}");
        }
        machine.runtime().remove_sandbox(&nothing).await.unwrap();
        assert_eq!(file(&machine, "besteffort/nothing", "cgroup.procs"), None);
        machine
    });
}

/// Whose range is another's does not begin, and nobody comes to tear it down.
#[test]
fn runtime_that_cannot_open_leaves_no_cgroups() {
    on_a_machine(|machine| async {
        let dir = tempfile::tempdir().unwrap();
        let other = format!("{}-other", machine.instance);
        let refused = Embedded::open(config(dir.path(), &other)).await;
        assert!(refused.is_err_and(|error| error.to_string().contains("network")), "the range is taken");
        let places = std::fs::read_dir("/sys/fs/cgroup").unwrap().flatten().map(|entry| entry.path());
        let places = places.chain(["/sys/fs/cgroup".into(), dir.path().join("cgroup2")]);
        let left: Vec<PathBuf> = places.map(|place| place.join(format!("adieu-{other}"))).collect();
        assert!(!left.iter().any(|group| group.exists()), "{left:?}");
        machine
    });
}

/// A container that has no limit and meets its pod's ends as a whole, is told to have ended for want of memory, and takes neither the
/// sandbox nor its neighbour along.
#[test]
fn container_that_meets_its_pods_memory_limit_ends_whole_and_alone() {
    on_a_machine(|mut machine| async {
        let limit = Resources { memory_bytes: Some(48 << 20), ..asks(100) };
        let uid = pod(&machine, "limited", limit).await;
        let beside = machine.start(&uid, "beside", "sleep 1000").await;
        let greedy = "sleep 1000 & dd if=/dev/zero of=/dev/null bs=200M";
        let mut spec = machine.spec("greedy", greedy).await;
        spec.oom_score_adj = Some(900);
        let told = machine.runtime().start_container(&uid, &spec).await.unwrap();
        assert_eq!(told.warnings, Vec::<String>::new());
        let exit = machine.exit(&uid, &spec.id).await;
        assert_eq!((exit.code, exit.oom), (137, true), "{}", machine.log(&uid, &spec.id));
        assert_eq!(common::processes_in("/limited/greedy.0"), Vec::<i32>::new());
        assert_eq!(machine.exec(&uid, &beside, "echo well").await.0, "well\n");
        let of = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
        assert_eq!(machine.exec(&uid, &beside, "cat /proc/1/oom_score_adj").await.0, "0\n", "not its shim's");
        let shim = of(machine.shim_of(&uid));
        assert!(shim == "-999\n" || shim == of(std::process::id().cast_signed()), "{shim}");
        machine
    });
}

/// By more than could be chance, and far less than the sixteen times that it is.
#[test]
fn cpu_is_shared_between_pods_by_their_requests() {
    on_a_machine(|machine| async {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
        let first: u32 = allowed.trim().split([',', '-']).next().unwrap().parse().unwrap();
        let script = format!("exec taskset {:x} sh -c 'while :; do :; done'", 1u128 << first);
        let mut both = Vec::new();
        for (uid, millis) in [("much", 800), ("little", 50)] {
            let uid = pod(&machine, uid, asks(millis)).await;
            let mut spec = machine.spec("app", &script).await;
            spec.resources = asks(millis);
            machine.runtime().start_container(&uid, &spec).await.unwrap();
            both.push(uid);
        }
        let used = async || {
            let mut used = Vec::new();
            for pod in &both {
                used.push(machine.runtime().stats(pod).await.unwrap()[0].cpu_nanos);
            }
            used
        };
        let patience = Instant::now() + Duration::from_secs(120);
        let until = async |what: &str, holds: &dyn Fn(&[u64]) -> bool| {
            loop {
                let used = used().await;
                if holds(&used) {
                    return used;
                }
                assert!(Instant::now() < patience, "waited in vain for {what}: {used:?}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let begun = until("both to run", &|used| used.iter().all(|nanos| *nanos > 20_000_000)).await;
        let more = |used: &[u64], at: usize| used[at] - begun[at];
        let ended = until("a second of work", &|used| more(used, 0) + more(used, 1) > 1_000_000_000).await;
        let (much, little) = (more(&ended, 0), more(&ended, 1));
        assert!(much > 4 * little, "{much} and {little}");
        machine
    });
}

#[test]
fn a_pod_has_the_limits_of_all_its_containers_and_others_later_also_under_another_agent() {
    on_a_machine(|mut machine| async {
        let of = |memory: u64, cpu: u64| Resources {
            memory_bytes: Some(memory << 20),
            cpu_limit_millis: Some(cpu),
            cpu_request_millis: Some(cpu),
            ..Resources::default()
        };
        let uid = pod(&machine, "limited", of(64, 500)).await;
        let is = |machine: &Machine, memory: u64, quota: u64| {
            assert_eq!(limits(machine, "limited"), (Some(quota), Some(memory << 20)));
        };
        is(&machine, 64, 50_000);
        let mut spec = machine.spec("app", "head -c 41943040 /dev/zero > /dev/shm/big; echo full; sleep 1000").await;
        spec.resources = of(64, 500);
        let told = machine.runtime().start_container(&uid, &spec).await.unwrap();
        assert_eq!(told.warnings, Vec::<String>::new());
        machine.logged(&uid, &spec.id, "stdout F full").await;
        // More to the pod first: nobody may have more than it.
        machine.runtime().set_pod_resources(&uid, &of(96, 800)).await.unwrap();
        is(&machine, 96, 80_000);
        weighs(&machine, "limited", 819, 1 + 817 * 9999 / 262_142);
        let given = machine.runtime().set_resources(&uid, &spec.id, &of(96, 800)).await.unwrap();
        assert_eq!(given, Vec::<String>::new());
        let refused = machine.runtime().set_pod_resources(&uid, &of(20, 800)).await.unwrap_err();
        let RuntimeError::System { source, .. } = refused else { panic!("{refused:?}") };
        assert!(source.to_string().contains("below current usage"), "{source}");
        is(&machine, 96, 80_000);
        machine.agent_dies();
        // As if it had died after it had given something and before it wrote that down.
        let place = |file: &str| file_of(&machine, "limited", file);
        let (path, other) = match place("cpu.cfs_quota_us") {
            Some(v1) => (v1, "90000"),
            None => (place("cpu.max").unwrap(), "90000 100000"),
        };
        std::fs::write(path, other).unwrap();
        machine.agent_returns().await;
        is(&machine, 96, 80_000);
        assert_eq!(machine.report(&uid).await.unwrap().spec.resources, of(96, 800));
        machine.runtime().set_pod_resources(&uid, &Resources::default()).await.unwrap();
        assert_eq!(limits(&machine, "limited"), (None, None));
        weighs(&machine, "limited", 2, 1);
        machine
    });
}
