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
    one_container_under_all_requests: "one container, all requests", 46_300;
    one_container_in_all_troubles: "one container, all troubles", 225_501;
    an_exec_hook_under_all_requests: "exec hook, all requests", 161_195;
    an_exec_hook_in_all_troubles: "exec hook, all troubles", 75_082;
    a_request_hook: "request hook", 69_617;
    a_sleep_hook: "sleep hook", 53_217;
    two_mains_with_one_hook: "two mains, one hook", 52_843;
    a_main_and_a_sidecar: "main and sidecar", 165_860;
    a_main_and_two_sidecars: "main and two sidecars", 33_300;
    a_pod_that_comes_up: "comes up", 178_687;
    restarts_and_probes: "restarts, probes", 98_878;
    a_barrier_under_all_requests: "barrier, all requests", 85_546;
    a_barrier_and_a_sidecar: "barrier and sidecar", 26_627;
    a_barrier_and_a_drain: "barrier and drain", 125_059;
}

/// Without dead ends (a law) and without circles, every run is finite and ends in Gone.
#[test]
fn no_life_goes_round_in_circles() {
    let names = [
        "exec hook, all troubles",
        "sleep hook",
        "two mains, one hook",
        "main and two sidecars",
        "restarts, probes",
        "barrier and sidecar",
        "barrier and drain",
    ];
    for name in names {
        assert!(!has_cycle(&model(name)), "{name}");
    }
}
