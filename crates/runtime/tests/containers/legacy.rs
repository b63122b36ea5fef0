//! A machine where nobody has mounted cgroup2, as those that boot with v1 hierarchies alone. A program of its own, as it
//! runs itself again where the mounts are so.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common;
use std::process::Command;

use crate::common::{Machine, eventually, on_a_machine, sandbox_spec};
use runtime::verbs::*;
use runtime::{PodUid, SandboxSpec};

/// Says that this is the second time.
const AGAIN: &str = "ADIEU_WITHOUT_CGROUP2";

/// Takes every cgroup2 away in a mount namespace of its own, then becomes the program it is given.
const WITHOUT_CGROUP2: &str = "grep -E ' - cgroup2 ' /proc/self/mountinfo | cut -d' ' -f5 | \
                               while read -r at; do umount -l \"$at\" || exit 1; done; exec \"$0\" \"$@\"";

fn mounts_of_cgroup2() -> Vec<String> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.lines().filter(|line| line.contains(" - cgroup2 ")).map(str::to_owned).collect()
}

#[test]
fn containers_live_and_end_where_nobody_has_mounted_cgroup2() {
    if std::env::var_os(AGAIN).is_none() {
        let program = std::env::current_exe().unwrap();
        let mut again = Command::new("unshare");
        again.args(["--mount", "--propagation", "private", "sh", "-c", WITHOUT_CGROUP2]).arg(program);
        again.args(["--exact", "legacy::containers_live_and_end_where_nobody_has_mounted_cgroup2", "--nocapture"]);
        let output = again.env(AGAIN, "yes").output().unwrap();
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        assert!(output.status.success() && said[0].contains("1 passed"), "{}\n{}", said[0], said[1]);
        return;
    }
    assert_eq!(mounts_of_cgroup2(), Vec::<String>::new());
    on_a_machine(|mut machine| async {
        let own = mounts_of_cgroup2();
        assert!(own.len() == 1 && own[0].contains(&machine.instance), "{own:?}");
        limits_hold(&mut machine).await;
        all_of_a_container_ends_with_it(&mut machine).await;
        the_agent_finds_everything_again(&mut machine).await;
        machine
    });
    assert_eq!(mounts_of_cgroup2(), Vec::<String>::new(), "what was mounted is taken away again");
}

async fn limits_hold(machine: &mut Machine) {
    let pod = machine.sandbox("limits").await;
    let mut hog = machine.spec("hog", "dd if=/dev/zero of=/dev/null bs=200M count=1; sleep 1000").await;
    hog.resources.memory_bytes = Some(32 << 20);
    hog.resources.cpu_limit_millis = Some(500);
    hog.resources.cpu_request_millis = Some(100);
    let started = machine.runtime().start_container(&pod, &hog).await.unwrap();
    assert_eq!(started.warnings, Vec::<String>::new());
    let exit = machine.exit(&pod, &hog.id).await;
    assert!(exit.oom, "{exit:?} {}", machine.log(&pod, &hog.id));
    let mut bomb = machine.spec("bomb", "while n=$((n + 1)); do sleep 1000 & echo $n; done").await;
    bomb.resources.pids = Some(30);
    machine.runtime().start_container(&pod, &bomb).await.unwrap();
    assert_eq!(machine.exit(&pod, &bomb.id).await.code, 2);
    assert!(machine.log(&pod, &bomb.id).contains("can't fork"));
    let busy = "sleep 1000 & i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo done; wait";
    let busy = machine.start(&pod, "busy", busy).await;
    machine.logged(&pod, &busy, "done").await;
    let stats = machine.runtime().stats(&pod).await.unwrap();
    let used = stats.iter().find(|one| one.id == busy).unwrap();
    assert!(used.cpu_nanos > 1_000_000 && used.memory_bytes > 10_000 && used.processes == 2, "{stats:?}");
}

/// Also what left its session and its parents, and where processes are the host's or those of the pod.
async fn all_of_a_container_ends_with_it(machine: &mut Machine) {
    let of = |uid: &str| SandboxSpec { ..sandbox_spec(uid) };
    let kinds = [
        of("own-pids"),
        SandboxSpec { host_pid: true, ..of("host-pids") },
        SandboxSpec { share_pids: true, ..of("shared-pids") },
    ];
    for spec in kinds {
        machine.runtime().create_sandbox(&spec).await.unwrap();
        let escapes = "(setsid sh -c 'sleep 1000 & setsid sleep 1000 &' &); echo out; exec sleep 1000";
        let id = machine.start(&spec.uid, "app", escapes).await;
        machine.logged(&spec.uid, &id, "stdout F out").await;
        let group = format!("/adieu-{}/{}/app.0", machine.instance, spec.uid.0);
        eventually("all that it starts", || common::processes_in(&group).len() == 3).await;
        machine.runtime().kill(&spec.uid, &id).await.unwrap();
        assert_eq!(machine.exit(&spec.uid, &id).await.code, 137);
        assert_eq!(common::processes_in(&group), Vec::<i32>::new(), "{}", spec.uid.0);
    }
}

async fn the_agent_finds_everything_again(machine: &mut Machine) {
    let pod = PodUid("limits".to_owned());
    let id = machine.start(&pod, "later", "sleep 1000").await;
    machine.agent_dies();
    machine.agent_returns().await;
    assert_eq!(mounts_of_cgroup2().len(), 1, "it is used again");
    let report = machine.report(&pod).await.unwrap();
    assert!(report.alive && report.containers.iter().any(|run| run.id == id && run.exit.is_none()), "{report:?}");
    machine.runtime().kill(&pod, &id).await.unwrap();
    assert_eq!(machine.exit(&pod, &id).await.code, 137);
}
