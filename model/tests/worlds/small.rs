//! The small models, explored to their last state. The numbers are pinned: a change of the rules, of the world or of
//! the bounds shows here, and whoever changes them should be able to say why.

use lifecycle::PodWorker;
use model::catalogue::small;
use model::check::explore;
use model::cycle::has_cycle;
use model::model::PodModel;

fn model(name: &str) -> PodModel<PodWorker> {
    small().into_iter().find(|model| model.name == name).expect("a model of that name")
}

fn holds(name: &str, states: usize) {
    let findings = explore(model(name), 1);
    assert!(findings.failures.is_empty(), "{name}: {:#?}", findings.failures);
    assert_eq!(findings.states, states, "{name}: the number of reachable states");
}

macro_rules! pinned {
    ($($test:ident: $name:literal, $states:literal;)*) => {
        $(#[test]
        fn $test() {
            holds($name, $states);
        })*

        #[test]
        fn every_small_model_is_pinned() {
            let names: Vec<&str> = small().iter().map(|model| model.name).collect();
            assert_eq!(names, [$($name),*]);
        }
    };
}

pinned! {
    one_container_under_all_requests: "one container, all requests", 52_557;
    one_container_in_all_troubles: "one container, all troubles", 376_202;
    an_exec_hook_under_all_requests: "exec hook, all requests", 183_662;
    an_exec_hook_in_all_troubles: "exec hook, all troubles", 106_992;
    a_request_hook: "request hook", 100_925;
    a_sleep_hook: "sleep hook", 74_225;
    two_mains_with_one_hook: "two mains, one hook", 95_815;
    a_main_and_a_sidecar: "main and sidecar", 290_790;
    a_main_and_two_sidecars: "main and two sidecars", 48_872;
    a_pod_that_comes_up: "comes up", 187_609;
    restarts_and_probes: "restarts, probes", 142_485;
    a_barrier_under_all_requests: "barrier, all requests", 121_908;
    a_barrier_and_a_sidecar: "barrier and sidecar", 13_150;
    a_barrier_and_a_drain: "barrier and drain", 152_754;
    a_barrier_of_acks: "barrier of acks", 78_046;
    siblings_that_come_and_go: "siblings come and go", 96_495;
    a_last_endpoint_that_is_held: "last endpoint, hold", 69_618;
    a_last_endpoint_that_refuses: "last endpoint, reject", 121_539;
    a_drain_with_calls: "drain, calls", 367_346;
    answers_that_are_lost: "answers lost", 166_665;
    a_pod_whose_sandbox_dies_as_it_comes_up: "comes up, sandbox dies", 26_304;
    a_pod_that_comes_up_though_answers_are_lost: "comes up, answers lost", 200_084;
    a_pod_that_is_dismissed: "dismissed", 413_115;
    a_machine_that_boots: "machine boots", 86_350;
    an_active_deadline: "active deadline", 48_518;
    all_containers_that_run_again: "all run again", 27_047;
}

/// Without dead ends (a law) and without circles, every run is finite and ends in Gone. In three parts, so that no core
/// waits for another.
fn no_circles(part: usize) {
    for model in small().into_iter().skip(part).step_by(3) {
        assert!(!has_cycle(&model), "{}", model.name);
    }
}

#[test]
fn small_models_first_third_have_no_cycles() {
    no_circles(0);
}

#[test]
fn small_models_second_third_have_no_cycles() {
    no_circles(1);
}

#[test]
fn small_models_last_third_have_no_cycles() {
    no_circles(2);
}
