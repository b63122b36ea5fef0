//! Makes a story that breaks a law smaller, for as long as it breaks the same one.

use crate::laws::Law;
use crate::scenario::{ContainerPlan, Deed, Profile, Role, Scenario};

/// No more stories are tried.
const TRIES_MAX: usize = 200;

/// The smallest story found that breaks `law` as this one does. `play` answers the laws that a story breaks.
pub fn shrink(scenario: &Scenario, law: Law, mut play: impl FnMut(&Scenario) -> Vec<Law>) -> Scenario {
    let mut smallest = scenario.clone();
    let mut tries = 0;
    'again: loop {
        for smaller in candidates(&smallest) {
            tries += 1;
            if tries > TRIES_MAX {
                return smallest;
            }
            if play(&smaller).contains(&law) {
                smallest = smaller;
                continue 'again;
            }
        }
        return smallest;
    }
}

/// Stories with a little less in them, those with much less first.
fn candidates(scenario: &Scenario) -> Vec<Scenario> {
    let mut found = Vec::new();
    let mut add = |change: &dyn Fn(&mut Scenario)| {
        let mut smaller = scenario.clone();
        change(&mut smaller);
        if smaller != *scenario {
            found.push(smaller);
        }
    };
    for at in 0..scenario.pods.len().min(if scenario.pods.len() > 1 { usize::MAX } else { 0 }) {
        add(&|it| {
            let name = it.pods.remove(at).name;
            it.acts.retain(|act| act.deed.subject() != Some(&name));
        });
    }
    for at in 0..scenario.workloads.len() {
        let workload = &scenario.workloads[at];
        if scenario.workloads.len() > 1 {
            add(&|it| {
                let name = it.workloads.remove(at).pod.name;
                it.acts.retain(|act| act.deed.subject() != Some(&name));
            });
        }
        if workload.replicas > 1 {
            add(&|it| it.workloads[at].replicas = workload.replicas - 1);
        }
        for (main, container) in workload.pod.containers.iter().enumerate() {
            let plain =
                ContainerPlan { script: container.script, ..ContainerPlan::new(&container.name, container.role) };
            add(&|it| it.workloads[at].pod.containers[main] = plain.clone());
        }
    }
    for at in 2..scenario.nodes.len() {
        add(&|it| drop(it.nodes.remove(at)));
    }
    for at in 0..scenario.crashes.len() {
        add(&|it| drop(it.crashes.remove(at)));
        add(&|it| it.crashes[at].power = false);
    }
    for at in 0..scenario.faults.len() {
        add(&|it| drop(it.faults.remove(at)));
    }
    for at in 0..scenario.acts.len() {
        if !matches!(scenario.acts[at].deed, Deed::Create(_)) {
            add(&|it| drop(it.acts.remove(at)));
        }
    }
    add(&|it| it.profile = Profile::Fast);
    add(&|it| it.stumble = None);
    for pod in 0..scenario.pods.len() {
        let containers = &scenario.pods[pod].containers;
        for at in 0..containers.len() {
            // Without one that it is about it is no pod.
            let is_needed = |it: &ContainerPlan| it.role == Role::Main;
            if !containers.iter().enumerate().any(|(other, it)| other != at && is_needed(it)) {
                continue;
            }
            add(&|it| drop(it.pods[pod].containers.remove(at)));
        }
        add(&|it| (it.pods[pod].map, it.pods[pod].critical) = (false, false));
        for (at, container) in containers.iter().enumerate() {
            let plain = ContainerPlan::new(&container.name, container.role);
            let script = container.script;
            add(&|it| it.pods[pod].containers[at] = ContainerPlan { script, ..plain.clone() });
            add(&|it| it.pods[pod].containers[at].pre_stop = None);
            add(&|it| it.pods[pod].containers[at].post_start = None);
            add(&|it| (it.pods[pod].containers[at].ready_ms, it.pods[pod].containers[at].live_ms) = (None, None));
            add(&|it| (it.pods[pod].containers[at].quit, it.pods[pod].containers[at].pull_ms) = (false, None));
            add(&|it| (it.pods[pod].containers[at].start_ms, it.pods[pod].containers[at].refusals) = (0, 0));
        }
    }
    for at in 0..scenario.acts.len() {
        add(&|it| {
            it.acts[at].at = it.acts[at].at / 1000 * 1000;
            it.acts.sort_by_key(|act| act.at);
        });
    }
    found
}
