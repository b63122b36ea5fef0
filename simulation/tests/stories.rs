//! Stories that are told by name: each shows one thing, and no law is broken in it.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use simulation::player::{Player, StoryResult};
use simulation::scenario::Scenario;

/// Plays a story in which no law may be broken.
fn play(text: &str) -> StoryResult {
    let told = tell(text);
    let words: Vec<String> = told.broken.iter().map(ToString::to_string).collect();
    assert!(words.is_empty(), "{}\n{}\n{}", words.join("\n"), told.scenario, told.trace);
    told
}

fn tell(text: &str) -> StoryResult {
    let scenario: Scenario = text.parse().unwrap();
    Player::start(Path::new(env!("CARGO_BIN_EXE_simulate"))).unwrap().play(&scenario, None).unwrap()
}

/// When it happened, in milliseconds; each of these words is in its line.
fn at(told: &StoryResult, words: &str) -> Vec<u64> {
    let lines = told.trace.lines().filter(|line| words.split(" .. ").all(|word| line.contains(word)));
    lines.map(|line| line.split_whitespace().next().unwrap().replace('.', "").parse().unwrap()).collect()
}

#[test]
fn signal_whose_answer_is_lost_is_sent_once() {
    let told = play("pod p0 grace=3 app=term-900; delete p0 @1000; lost runtime.stop/p0/1");
    assert_eq!(at(&told, "app.0 gets signal 15").len(), 1, "{}", told.trace);
    assert_eq!(at(&told, "app.0 had signal 15 already").len(), 1, "{}", told.trace);
}

#[test]
fn kill_that_is_refused_is_asked_for_again() {
    let told = play("pod p0 grace=1 app=deaf; delete p0 @1000; refused runtime.kill/p0/1");
    assert_eq!(at(&told, "app.0 is killed").len(), 1, "{}", told.trace);
    assert_eq!(at(&told, "api: gone").len(), 1, "{}", told.trace);
}

#[test]
fn runtime_that_comes_back_tells_what_happened_meanwhile() {
    let told = play("pod p0 grace=9 app=self-1500-3; away @1000 for=2000; delete p0 @5000");
    let (exited, shown) = (at(&told, "app.0 exited with 3")[0], at(&told, "app.0 ended with 3")[0]);
    assert!(exited < 2_000 && shown >= 3_000, "{}", told.trace);
}

#[test]
fn agent_on_a_full_disk_lets_pods_leave_by_what_its_journal_has_reserved() {
    let told = play("pod p0 grace=2 app=term-200; delete p0 @1000; full node @900 for=5000");
    assert!(at(&told, "agent dies").is_empty(), "{}", told.trace);
    assert!(at(&told, "p0 .. api: gone")[0] < 2_000, "{}", told.trace);
}

#[test]
fn agent_on_a_full_disk_takes_on_pods_when_there_is_room_again() {
    let told = play("pod p0 app=term-200; create p0 @1000; full node @900 for=2000");
    assert!(at(&told, "app.0 started")[0] >= 2_900, "nothing is done for a pod that cannot be kept\n{}", told.trace);
}

/// A pod that came when the disk was full, and was deleted before there was room: nothing of it was begun, and nothing waits.
#[test]
fn pod_that_could_never_be_kept_leaves_on_a_full_disk() {
    let told = play("pod p0 grace=3 app=term-0; create p0 @400; delete p0 @700; full node @300 for=9000");
    assert!(at(&told, "app.0 started").is_empty(), "{}", told.trace);
    assert!(at(&told, "p0 .. api: gone")[0] < 2_000, "{}", told.trace);
}

#[test]
fn server_on_a_full_disk_goes_on_and_loses_nothing() {
    let told = play("pod p0 grace=2 app=term-200; delete p0 @1000; full store @900 for=2000");
    assert!(at(&told, "agent dies").is_empty(), "{}", told.trace);
    assert_eq!(at(&told, "p0 .. api: gone").len(), 1, "{}", told.trace);
}

#[test]
fn pod_of_a_machine_that_lost_its_power_is_started_again() {
    let told =
        play("pod p0 app=term-200; pod p1 app=term-0; create p1 @3000; power runtime.create_sandbox/p1/1 down=500");
    assert_eq!(at(&told, "app.0 ends with the power").len(), 1, "{}", told.trace);
    assert_eq!(at(&told, "app.1 started").len(), 1, "{}", told.trace);
}

#[test]
fn pod_with_no_node_is_bound_by_the_scheduler_and_runs_there() {
    let told = play("node n1; node n2; pod p0 grace=2 app=term-200; delete p0 @1000");
    assert_eq!(at(&told, "sandbox made on").len(), 1, "{}", told.trace);
}

#[test]
fn pods_of_a_node_leave_while_the_agent_of_another_is_dead() {
    let text = "node n1; node n2; pod p0 grace=2 on=n2 app=term-900; pod p1 grace=2 on=n1 app=term-300; \
                delete p0 @1000; delete p1 @1200; crash runtime.stop.answered/p0/1 down=3000 node";
    let told = play(text);
    let again = at(&told, "agent of n2 starts again")[0];
    assert!(at(&told, "p1 .. api: gone")[0] < again && again < at(&told, "p0 .. api: gone")[0], "{}", told.trace);
}

#[test]
fn pod_of_a_silent_node_is_evicted_when_its_toleration_is_over() {
    let text = "node n1; node n2; pod p0 grace=2 on=n2 tolerates=3 app=term-200; pod p1 on=n1 app=term-300; \
                crash journal.written/n2/3 down=90000 node";
    let told = play(text);
    let asked = at(&told, "p0 .. to be gone at")[0];
    assert!(asked > 50_000 && asked < at(&told, "agent of n2 starts again")[0], "{}", told.trace);
    assert!(at(&told, "p1 .. to be gone at").is_empty(), "{}", told.trace);
}

#[test]
fn exit_of_one_container_is_shown_while_the_other_still_runs() {
    let told = play("pod p0 grace=60 app=term-5000 quick=term-0; delete p0 @1000");
    let shown = at(&told, "app.0 runs .. quick.0 ended with 0")[0];
    assert!(shown < at(&told, "app.0 exited with 0")[0], "{}", told.trace);
    assert!(shown - at(&told, "quick.0 exited with 0")[0] < 500, "{}", told.trace);
}

/// A pod that could not be kept is tried again, but not when its object was removed meanwhile.
#[test]
fn pod_removed_before_it_could_be_kept_is_never_started() {
    let told = play("pod p0 grace=3 app=term-0; create p0 @400; delete p0 @700 grace=0; full node @300 for=1200");
    assert!(at(&told, "app.0 started").is_empty(), "{}", told.trace);
}

/// Nothing is started for it that would have to be remembered first: the next image is pulled.
#[test]
fn exit_that_was_shown_is_the_same_after_a_loss_of_power() {
    let story = "profile lossy; seed 638; pod p0 grace=3 init:init=self-200-0 app=deaf aux=term-1893; create p0 @0";
    play(&format!("{story}; power store.commit/-/33 down=0"));
}

/// What was begun and not answered is asked for again, under its own name.
#[test]
fn hook_whose_begin_is_not_answered_ends_before_the_signal() {
    let told = play("pod p0 grace=3 app=term-200,pre-700; delete p0 @1000; lost runtime.run_hook/p0/1");
    assert_eq!(at(&told, "app.0 preStop begins").len(), 1, "{}", told.trace);
}

#[test]
fn run_whose_start_is_not_answered_gets_its_signal() {
    let told = play("pod p0 grace=2 app=term-900; delete p0 @1000; lost runtime.start/p0/1");
    assert_eq!(at(&told, "app.0 started").len(), 1, "{}", told.trace);
    assert_eq!(at(&told, "app.0 gets signal 15").len(), 1, "{}", told.trace);
}

/// Nothing is begun for a pod that leaves, also not to find out whether it was begun before.
#[test]
fn run_whose_start_is_not_answered_before_its_pod_leaves_is_found_running() {
    let told = play("pod p0 grace=2 app=term-900,start-500; delete p0 @400; lost runtime.start/p0/1");
    assert_eq!(at(&told, "app.0 gets signal 15").len(), 1, "{}", told.trace);
}

#[test]
fn run_that_was_not_begun_before_its_pod_leaves_never_is() {
    let told = play("pod p0 grace=30 app=term-900; delete p0 @400; away @0 for=800");
    assert!(at(&told, "app.0 started").is_empty(), "{}", told.trace);
    assert!(at(&told, "p0 .. api: gone")[0] < 5_000, "{}", told.trace);
}

#[test]
fn hook_that_is_not_cut_off_at_once_is_cut_off_again() {
    let told = play("pod p0 grace=1 app=deaf,prenever; delete p0 @1000; refused runtime.cancel_hook/p0/1");
    assert!(at(&told, "preStop is cut off")[0] < at(&told, "app.0 is killed")[0], "{}", told.trace);
}

/// Pods of a former revision leave when others are available, and are not counted meanwhile.
#[test]
fn rollout_makes_a_pod_before_it_takes_one_away() {
    let told = play(
        "deploy web replicas=2 surge=1 unavailable=0 grace=2 app=term-900,ready-300; rollout web @3000; node n1; node n2",
    );
    let made = at(&told, "of rollout 1 @")[0];
    let ready = at(&told, "ready, app.0 runs .. of rollout 1 @")[0];
    let leaves = at(&told, "to be gone .. of rollout 0 @")[0];
    assert!(made < ready && ready < leaves, "{}", told.trace);
    let (second, gone) = (at(&told, "web#4 .. api: Pending")[0], at(&told, "api: gone")[0]);
    assert!(leaves < second && second < gone, "who leaves does not count\n{}", told.trace);
}

/// The control plane dies between the creation of a pod and its answer: the next one finds the pod.
#[test]
fn pod_whose_creation_was_not_answered_is_not_made_twice() {
    let told = play(
        "replicaset rs replicas=3 app=term-100; crash plane.create.answered/replicaset-controller/2 down=1500 server",
    );
    assert_eq!(at(&told, "agent of server: it dies").len(), 1, "{}", told.trace);
    assert_eq!(at(&told, "app.0 started").len(), 3, "{}", told.trace);
}

/// Its node is silent, so nobody knows whether it still runs.
#[test]
fn stateful_pod_on_a_silent_node_is_waited_for() {
    let told = play(
        "statefulset db replicas=2 grace=1 tolerates=5 app=term-100; node n1; node n2; \
         crash journal.written/n2/3 down=90000 node",
    );
    let (died, back) = (at(&told, "agent of n2: it dies")[0], at(&told, "agent of n2 starts again")[0]);
    let asked = at(&told, "to be gone")[0];
    assert!(died < asked && asked < back, "it is asked to leave while its node is silent\n{}", told.trace);
    let starts = at(&told, "app.0 started");
    assert_eq!(starts.len(), 3, "{}", told.trace);
    assert!(starts[2] > back, "its successor waits for its end\n{}", told.trace);
}

#[test]
fn drained_node_is_left_by_every_pod_of_a_workload() {
    let told = play("deploy web replicas=4 surge=1 unavailable=1 app=term-200; drain n1 @3000; node n1; node n2");
    let evicted = at(&told, "user: evict").len();
    assert!(evicted >= 1, "{}", told.trace);
    assert_eq!(at(&told, "api: gone").len(), evicted, "{}", told.trace);
    let late = at(&told, "sandbox made on n1").into_iter().filter(|at| *at > 3_000).count();
    assert_eq!(late, 0, "{}", told.trace);
}

#[test]
fn indexed_job_runs_each_index_once_although_its_server_dies() {
    let told = play(
        "job work completions=3 parallelism=2 indexed app=self-300-0; \
         crash plane.patch.answered/job-controller/3 down=1000 server",
    );
    assert_eq!(at(&told, "app.0 started").len(), 3, "{}", told.trace);
    assert_eq!(at(&told, "job: 3 succeeded, complete").len(), 1, "{}", told.trace);
}

/// Its sets go, and whoever keeps it has not heard yet that it is gone: nobody makes a set for it again.
#[test]
fn deployment_that_is_deleted_makes_no_new_set() {
    let told = play(
        "seed 1262; profile echo; deploy web replicas=2 surge=0 unavailable=1 grace=3 app=term-597,start-77; \
         create web @244; rollout web @1337; rollout web @2297; rollout web @4223; delete web @7028; node n1; node n2; \
         node n3; crash plane.create.answered/replicaset-controller/6 down=4000 server",
    );
    let deleted = at(&told, "user: delete web")[0];
    let made = at(&told, "create /apis/apps/v1/namespaces/default/replicasets -> 201");
    assert!(made.iter().all(|at| *at < deleted), "{}", told.trace);
}
