//! Signals and kills that meet a runtime in trouble (node-termination 2.5, 3.4).

use lifecycle::{
    ContainerName, DeleteSighting, Delivery, Effect, Input, Instance, Moment, PodWorker, Signal, TerminationVerdict,
    Wall,
};
use testkit::{Script::IgnoresTerm, exits_on_term, given_pod, millis, secs};

fn app() -> Instance {
    Instance { name: ContainerName("app".into()), attempt: 0 }
}

fn answered(delivery: Delivery) -> Input {
    Input::SignalAnswered { instance: app(), signal: Signal::TERM, delivery }
}

/// A pod that was deleted at 0 with a grace of 30 s.
fn leaving() -> PodWorker {
    let mut pod = PodWorker::new(given_pod().container("app", IgnoresTerm).spec());
    for input in [
        Input::Begin,
        Input::SandboxReady,
        Input::ImageReady { container: app().name, edition: 0, stop_signal: None },
        Input::Started { instance: app(), wall: Wall(0) },
        Input::DeleteRequested { grace: secs(30), sighting: DeleteSighting::Live },
    ] {
        pod.handle(Moment::from_millis(0), input);
    }
    pod
}

/// A stop signal that could not be delivered at first gives its two seconds from its delivery, not from the ask; only
/// the first answer counts, and one that found nobody gives nothing.
#[test]
fn the_two_seconds_of_notice_count_from_the_delivery() {
    let at = Moment::from_millis;
    let kill = Effect::KillContainer { instance: app() };
    let mut pod = leaving();
    pod.handle(at(29_900), answered(Delivery::Delivered));
    assert!(pod.handle(at(30_000), Input::TimePassed).is_empty(), "it was told a tenth of a second ago");
    pod.handle(at(31_000), answered(Delivery::Delivered));
    assert_eq!(pod.next_wake().map(|wake| wake.at), Some(at(31_900)));
    assert!(pod.handle(at(31_900), Input::TimePassed).contains(&kill));
    let mut pod = leaving();
    pod.handle(at(29_900), answered(Delivery::AlreadyGone));
    assert!(pod.handle(at(30_000), Input::TimePassed).contains(&kill));
}

/// The same seen from outside: a runtime that answers again just before the deadline.
#[test]
fn a_runtime_that_comes_back_at_the_last_moment_still_gives_notice() {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .pre_stop_sleep(secs(1))
        .when_deleted(secs(10))
        .runtime_away(millis(500), millis(9_900))
        .told()
        .then_at(secs(1), "TERM to app")
        .then_never("KILL to app")
        .then_at(millis(10_900), "app exited 0")
        .then_verdict(TerminationVerdict::Clean);
}

/// A KILL that could not be sent is tried again from 200 ms up to 5 s, and said each time (2.5).
#[test]
fn a_kill_that_cannot_be_sent_is_tried_again_and_told() {
    let at = Moment::from_millis;
    let kill = Effect::KillContainer { instance: app() };
    let mut pod = leaving();
    let mut now = 30_000;
    assert!(pod.handle(at(now), Input::TimePassed).contains(&kill));
    let mut waits = Vec::new();
    for _ in 0..6 {
        let failed = pod.handle(at(now), Input::KillFailed { instance: app(), message: "no shim".into() });
        let told = failed.iter().any(|effect| {
            matches!(effect, Effect::Emit(event) if event.reason == "FailedKillPod" && event.message.contains("no shim"))
        });
        assert!(told && !failed.contains(&kill), "{failed:?}");
        let due = pod.next_wake().filter(|wake| wake.at > at(now)).expect("it is tried again").at.as_millis();
        let due = if pod.handle(at(due), Input::TimePassed).contains(&kill) {
            due
        } else {
            // Something else was due first: that it should have been gone by now.
            let due = pod.next_wake().expect("it is tried again").at.as_millis();
            assert!(pod.handle(at(due), Input::TimePassed).contains(&kill));
            due
        };
        waits.push(due - now);
        now = due;
    }
    assert_eq!(waits, [200, 400, 800, 1600, 3200, 5000]);
    // The answer to a KILL that nobody asked for any more changes nothing.
    let mut young = leaving();
    let before = young.clone();
    assert!(young.handle(at(1), Input::KillFailed { instance: app(), message: "".into() }).is_empty());
    assert_eq!(young.next_wake(), before.next_wake());
}
