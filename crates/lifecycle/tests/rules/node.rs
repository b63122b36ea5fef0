//! What the whole node does to its pods: shutdown by priority, eviction, preemption: node-termination 9.5, 9.6 and 11 K, L.

use std::time::Duration;

use lifecycle::eviction::{offender_message, threshold_message};
use lifecycle::shutdown::REJECTION;
use lifecycle::{
    Input, KillCause, LeavingPod, Moment, PodPhase, PodWorker, Pressure, PriorityBudget, RestartPolicy, Shutdown,
    ShutdownBudgets, ShutdownStep, TerminationVerdict,
};
use testkit::{Script, Script::IgnoresTerm, exits_on_term, given_pod, millis, secs};

const CRITICAL: i32 = 2_000_000_000;

const fn at(seconds: u64) -> Moment {
    Moment::from_millis(seconds * 1000)
}

fn pod(uid: &str, priority: i32, grace: u64) -> LeavingPod {
    LeavingPod { uid: uid.into(), priority, grace: secs(grace), controlled: false }
}

fn kill(uid: &str, grace: u64) -> ShutdownStep {
    ShutdownStep::Kill { uid: uid.into(), grace: secs(grace) }
}

fn flush(until: u64) -> ShutdownStep {
    ShutdownStep::Flush { until: at(until) }
}

const NO_TIME: Duration = Duration::ZERO;

/// [NT-150]: ordinary pods first, each with its grace or what is left for all; critical ones after them.
#[test]
fn critical_pods_leave_last() {
    let budgets = ShutdownBudgets::from_totals(secs(20), secs(10)).expect("there is time");
    assert_eq!(budgets.total(secs(3)), secs(25), "the last KILL may take two seconds more, and the flush three");
    let pods = vec![pod("long", 0, 120), pod("short", 0, 5), pod("vital", CRITICAL, 120), pod("brief", CRITICAL, 5)];
    let (mut shutdown, steps) = Shutdown::begin(at(0), budgets, secs(3), pods);
    assert_eq!(steps, [kill("long", 10), kill("short", 5)]);
    assert_eq!(shutdown.at_rest(at(2), "short"), []);
    assert_eq!(shutdown.next_wake(), Some(at(10)));
    assert_eq!(shutdown.at_rest(at(7), "long"), [kill("vital", 10), kill("brief", 5)], "nobody waits for nobody");
    assert_eq!(shutdown.at_rest(at(8), "brief"), []);
    assert_eq!(shutdown.at_rest(at(9), "vital"), [flush(12)]);
    assert!(!shutdown.takes_on_pods());
    assert_eq!(shutdown.flushed(at(10)), [ShutdownStep::LetGo]);
    assert_eq!((shutdown.next_wake(), shutdown.time_passed(at(99))), (None, vec![]));
}

/// [NT-151]: groups leave in the order of their priority; a pod belongs to the highest group it reaches.
#[test]
fn groups_leave_in_the_order_of_their_priority() {
    let group = |priority, seconds| PriorityBudget { priority, budget: secs(seconds) };
    let groups = vec![group(1_000, 30), group(0, 20), group(100_000, 5)];
    let budgets = ShutdownBudgets::from_groups(groups).expect("there is time");
    assert_eq!(budgets.total(NO_TIME), secs(57));
    let pods = vec![pod("a", 999, 60), pod("b", 1_000, 60), pod("c", -7, 60), pod("d", i32::MAX, 60)];
    let (mut shutdown, steps) = Shutdown::begin(at(0), budgets, NO_TIME, pods);
    assert_eq!(steps, [kill("a", 20), kill("c", 20)]);
    shutdown.at_rest(at(1), "a");
    assert_eq!(shutdown.at_rest(at(2), "c"), [kill("b", 30)]);
    assert_eq!(shutdown.at_rest(at(3), "b"), [kill("d", 5)]);
    assert_eq!(shutdown.at_rest(at(4), "d"), [flush(4), ShutdownStep::LetGo]);
}

/// [NT-154]: a group that does not come to rest holds the next one no longer than its budget.
#[test]
fn a_stuck_group_does_not_hold_the_next_one() {
    let budgets = ShutdownBudgets::from_totals(secs(20), secs(10)).expect("there is time");
    let (mut shutdown, _) =
        Shutdown::begin(at(0), budgets, secs(2), vec![pod("stuck", 0, 60), pod("vital", CRITICAL, 60)]);
    assert_eq!(shutdown.time_passed(at(9)), []);
    assert_eq!(shutdown.time_passed(at(10)), [kill("vital", 10)]);
    assert_eq!(shutdown.time_passed(at(20)), [], "vital may have been signalled a moment ago");
    assert_eq!(shutdown.next_wake(), Some(at(22)));
    assert_eq!(shutdown.time_passed(at(22)), [flush(24)]);
    assert_eq!(shutdown.flushed(at(23)), [], "nothing is known of its end yet");
    assert_eq!(shutdown.time_passed(at(24)), [ShutdownStep::LetGo]);
}

/// Whoever is killed at the very end still has its last status stored.
#[test]
fn the_last_killed_are_waited_for_and_their_statuses_stored() {
    let budgets = || ShutdownBudgets::from_totals(secs(10), NO_TIME).expect("there is time");
    let late = || Shutdown::begin(at(0), budgets(), secs(3), vec![pod("late", 0, 60)]).0;
    let mut shutdown = late();
    assert_eq!(shutdown.time_passed(at(10)), []);
    assert_eq!(shutdown.at_rest(at(11), "late"), [flush(14)], "no longer than it takes");
    assert_eq!(shutdown.flushed(at(12)), [ShutdownStep::LetGo]);
    // Its exit is seen after its KILL: what is stored by then is not all.
    let mut shutdown = late();
    assert_eq!((shutdown.time_passed(at(10)), shutdown.time_passed(at(12))), (vec![], vec![flush(15)]));
    assert_eq!(shutdown.flushed(at(12)), []);
    assert_eq!(shutdown.at_rest(at(13), "nobody"), []);
    assert_eq!(shutdown.at_rest(at(13), "late"), [flush(15)]);
    assert_eq!(shutdown.flushed(at(14)), [ShutdownStep::LetGo]);
}

/// A group without any time still has the second that every pod has, and the two that every container has.
#[test]
fn a_group_without_time_is_killed_in_good_order() {
    let budgets = ShutdownBudgets::from_totals(secs(10), NO_TIME).expect("there is time");
    assert_eq!(budgets.total(secs(2)), secs(15));
    let (mut shutdown, steps) = Shutdown::begin(at(0), budgets, secs(2), vec![pod("vital", CRITICAL, 60)]);
    assert_eq!((steps, shutdown.next_wake()), (vec![kill("vital", 1)], Some(at(0))));
    assert_eq!((shutdown.time_passed(at(0)), shutdown.next_wake()), (vec![], Some(at(3))));
    assert_eq!(shutdown.time_passed(at(3)), [flush(5)]);
    // Nor is the object of one that will be replaced deleted by force.
    let budgets = ShutdownBudgets::from_totals(secs(10), secs(10)).expect("there is time");
    let replaced = LeavingPod { controlled: true, ..pod("web", 0, 60) };
    let (_, steps) = Shutdown::begin(at(0), budgets, secs(2), vec![replaced]);
    assert_eq!(steps, [ShutdownStep::Delete { uid: "web".into(), grace: secs(1) }]);
}

/// [NT-155]: without time, or with more for the critical ones than there is, nothing happens.
#[test]
fn a_shutdown_without_time_is_none() {
    assert_eq!(ShutdownBudgets::from_totals(secs(0), secs(0)), None);
    assert_eq!(ShutdownBudgets::from_totals(secs(10), secs(11)), None);
    assert_eq!(ShutdownBudgets::from_groups(vec![PriorityBudget { priority: 0, budget: NO_TIME }]), None);
    assert_eq!(ShutdownBudgets::from_groups(vec![]), None);
    assert!(ShutdownBudgets::from_totals(secs(10), secs(10)).is_some());
}

/// A shutdown that is called off lets those go who were asked, keeps the others, and the node is ready again.
#[test]
fn a_shutdown_may_be_called_off() {
    let budgets = ShutdownBudgets::from_totals(secs(20), secs(10)).expect("there is time");
    let (mut shutdown, _) =
        Shutdown::begin(at(0), budgets, NO_TIME, vec![pod("web", 0, 60), pod("vital", CRITICAL, 60)]);
    assert_eq!(shutdown.cancelled(at(3)), []);
    assert!(!shutdown.takes_on_pods(), "somebody is still leaving");
    assert_eq!(shutdown.at_rest(at(5), "web"), [flush(5), ShutdownStep::Resume]);
    assert!(shutdown.takes_on_pods());
    assert_eq!(shutdown.cancelled(at(6)), [], "it is ready already");
}

/// Whoever calls a shutdown off after the machine was let go finds the node ready again at once.
#[test]
fn a_shutdown_may_be_called_off_when_everybody_has_left() {
    let budgets = ShutdownBudgets::from_totals(secs(20), secs(10)).expect("there is time");
    let (mut shutdown, _) = Shutdown::begin(at(0), budgets, NO_TIME, vec![pod("web", 0, 60)]);
    assert_eq!(shutdown.at_rest(at(5), "web"), [flush(5), ShutdownStep::LetGo]);
    assert!(!shutdown.takes_on_pods());
    assert_eq!(shutdown.cancelled(at(9)), [ShutdownStep::Resume]);
    assert!(shutdown.takes_on_pods());
    assert_eq!(shutdown.cancelled(at(9)), []);
}

/// Pods that somebody will replace are deleted rather than killed: they leave their Services and the API (P26).
#[test]
fn controlled_pods_are_deleted_by_a_shutdown() {
    let budgets = ShutdownBudgets::from_totals(secs(20), NO_TIME).expect("there is time");
    let owned = LeavingPod { controlled: true, ..pod("owned", 0, 60) };
    let (_, steps) = Shutdown::begin(at(0), budgets, NO_TIME, vec![owned, pod("bare", 0, 60)]);
    assert_eq!(steps, [ShutdownStep::Delete { uid: "owned".into(), grace: secs(20) }, kill("bare", 20)]);
}

/// [NT-156]: a pod that comes during a shutdown is turned away.
#[test]
fn a_pod_that_comes_during_a_shutdown_is_turned_away() {
    let mut pod = PodWorker::new(given_pod().container("app", IgnoresTerm).spec());
    let (reason, message) = (REJECTION.0.to_owned(), REJECTION.1.to_owned());
    pod.handle(at(0), Input::Rejected { reason, message });
    let status = pod.status();
    assert_eq!((status.phase, status.reason.as_deref()), (PodPhase::Failed, Some("NodeShutdown")));
    let words = "Pod was rejected: Pod was rejected as the node is shutting down.";
    assert_eq!(status.message.as_deref(), Some(words));
    pod.handle(at(1), Input::Begin);
    assert!(pod.is_terminating(), "it is never begun");
}

/// [NT-152]: whoever the node ends for others' sake is Failed, with the condition that says so, told with the
/// phase and not before.
#[test]
fn a_disruption_is_told_with_the_end() {
    for (cause, reason, words) in [
        (KillCause::NodeShutdown, "Terminated", "Pod was terminated in response to imminent node shutdown."),
        (KillCause::Preempted, "Preempting", "Pod was preempted by Kubelet to accommodate a critical pod."),
    ] {
        let story = given_pod()
            .container("app", exits_on_term(secs(3)))
            .when_killed(cause, None)
            .told()
            .then_events(usize::from(reason == "Preempting"), reason, "Preempted in order to admit critical pod")
            .then_status_at(secs(2), |status| assert_eq!((&status.disruption, status.ready.holds), (&None, false)))
            .then_phase(PodPhase::Failed)
            .then_reason(Some(reason));
        let told = story.status().disruption.expect("it was disrupted");
        assert!(told.holds);
        assert_eq!((told.reason.as_deref(), told.message.as_deref()), (Some("TerminationByKubelet"), Some(words)));
    }
    let deleted = given_pod().container("app", exits_on_term(secs(1))).when_deleted(secs(9)).told();
    assert_eq!(deleted.status().disruption, None);
}

/// [NT-158]: a pod that is evicted for want of something is told of what, how much, and who used it.
#[test]
fn an_eviction_says_why() {
    let detail =
        format!("{}{}", threshold_message("100Mi", "80Mi"), offender_message("app", "900Mi", "100Mi", "memory"));
    let pressure = Pressure::Hard { resource: "memory".into(), detail };
    let story = given_pod()
        .container("app", exits_on_term(secs(1)))
        .when_killed(pressure.cause(), Some(pressure.grace(secs(30))))
        .told()
        .then_reason(Some("Evicted"));
    let words = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 80Mi. Container app was \
                 using 900Mi, request is 100Mi, has larger consumption of memory. ";
    let story = story.then_events(1, "Evicted", words);
    let status = story.status();
    assert_eq!(status.message.as_deref(), Some(words));
    assert_eq!(status.disruption.and_then(|told| told.message).as_deref(), Some(words));
}

/// A pod that is leaving already is said to be evicted only if that hurries it; its reason stays the first one.
#[test]
fn an_eviction_of_a_leaving_pod_is_told_if_it_changes_anything() {
    let evicted = |seconds| {
        given_pod()
            .container("app", IgnoresTerm)
            .when_deleted(secs(30))
            .killed_at(secs(5), KillCause::Evicted { message: "low".into() }, Some(secs(seconds)))
            .told()
            .then_reason(None)
    };
    evicted(1).then_events(1, "Evicted", "low").then_at(secs(6), "KILL to app");
    evicted(60).then_no_event("Evicted").then_at(secs(30), "KILL to app");
}

/// [NT-159]: a hard threshold grants a second; a soft one what is configured, and a minute at most if nothing is.
#[test]
fn an_eviction_grants_what_its_threshold_says() {
    let hard = Pressure::Hard { resource: "memory".into(), detail: String::new() };
    let soft = |most| Pressure::Soft { resource: "memory".into(), detail: String::new(), most };
    assert_eq!(hard.grace(secs(600)), secs(1));
    assert_eq!(soft(Some(60)).grace(secs(600)), secs(60));
    assert_eq!(soft(Some(60)).grace(secs(30)), secs(30));
    assert_eq!(soft(Some(0)).grace(secs(30)), secs(1));
    assert_eq!(soft(None).grace(secs(600)), secs(60));
    assert_eq!(soft(None).grace(secs(30)), secs(30));
    assert_eq!(soft(Some(-1)).grace(secs(600)), secs(600));
    assert_eq!(soft(None).grace(secs(0)), secs(1));
    assert!(matches!(soft(None).cause(), KillCause::Evicted { .. }));
}

/// Who used more than it may is evicted with a second, and it is nobody else's doing.
#[test]
fn a_pod_over_its_limit_is_not_disrupted() {
    let over = Pressure::Limit { what: r#"Usage of EmptyDir volume "cache" exceeds the limit "1Gi"."#.into() };
    let story = given_pod()
        .container("app", IgnoresTerm)
        .when_killed(over.cause(), Some(over.grace(secs(600))))
        .told()
        .then_at(secs(2), "KILL to app")
        .then_phase(PodPhase::Failed)
        .then_reason(Some("Evicted"));
    let words = r#"Usage of EmptyDir volume "cache" exceeds the limit "1Gi". "#;
    let story = story.then_events(1, "Evicted", words);
    assert_eq!((story.status().message.as_deref(), story.status().disruption), (Some(words), None));
}

/// [NT-161]: static and critical pods are never chosen.
#[test]
fn static_and_critical_pods_are_not_evicted() {
    assert!(Pressure::may_evict(false, 0) && Pressure::may_evict(false, CRITICAL - 1));
    assert!(!Pressure::may_evict(false, CRITICAL) && !Pressure::may_evict(true, 0));
}

/// A pod that is done keeps its own word when the node stops (node-termination 6.7).
#[test]
fn a_completed_pod_stays_succeeded_through_a_shutdown() {
    given_pod()
        .restart(RestartPolicy::Never)
        .sidecar("proxy", exits_on_term(secs(9)))
        .container("app", Script::ExitsByItself { after: secs(1), code: 0 })
        .when_left_alone()
        .killed_at(secs(2), KillCause::NodeShutdown, Some(secs(4)))
        .told()
        .then_at(secs(6), "KILL to proxy")
        .then_phase(PodPhase::Succeeded)
        .then_reason(None)
        .then_status_at(millis(6_100), |status| assert_eq!(status.disruption, None));
}

/// Words that people read: signals by their names, verdicts and releases by theirs.
#[test]
fn signal_verdict_and_release_names_are_the_known_ones() {
    let names: Vec<String> =
        [1, 15, 31, 32, 33, 34, 35, 64, 0].into_iter().map(|number| lifecycle::Signal(number).to_string()).collect();
    let expected =
        ["SIGHUP", "SIGTERM", "SIGSYS", "signal 32", "signal 33", "SIGRTMIN", "SIGRTMIN+1", "SIGRTMIN+30", "signal 0"];
    assert_eq!(names, expected);
    let verdicts =
        [TerminationVerdict::Clean, TerminationVerdict::Hurried, TerminationVerdict::Forced, TerminationVerdict::Lost]
            .map(|verdict| verdict.to_string());
    assert_eq!(verdicts, ["clean", "hurried", "forced", "lost"]);
    assert_eq!(Moment::from_millis(61_007).to_string(), "61.007");
}
