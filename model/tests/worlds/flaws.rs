//! No law is vacuous: for each there is a worker, broken as others were before it, that breaks it, and the shipped
//! worker keeps it under the same bounds.

use std::collections::BTreeSet;
use std::time::Duration;

use lifecycle::{Hook, PodWorker, Role};
use model::bounds::Bounds;
use model::catalogue::{cold, container, hooked, restarts_all, routed, warm};
use model::check::{explore, hunt};
use model::flaw::Flaw;
use model::laws::Law;
use model::model::PodModel;
use model::traffic::Reach;
use model::worker::{Make, Worker};

/// The smallest pod and bounds under which a flaw shows.
fn stage<W: Worker>(flaw: Flaw, make: Make<W>) -> PodModel<W> {
    let plain = || vec![container("a", Role::Main)];
    let with_hook = || vec![hooked("a", Role::Main, Hook::Exec)];
    let with_sidecar = || vec![container("s", Role::Sidecar), container("a", Role::Main)];
    let calm = Bounds::CALM;
    match flaw {
        Flaw::KillsAtOnce | Flaw::SparesEverybody | Flaw::FreezesStatus | Flaw::DeletesEarly | Flaw::ShowsNothing => {
            warm("plain", plain(), calm, make)
        }
        Flaw::TalksOn => warm("plain", plain(), Bounds { exits: 1, ..calm }, make),
        Flaw::GivesNoNotice | Flaw::IgnoresHook | Flaw::LeaksHook | Flaw::WaitsForNothing => {
            warm("hook", with_hook(), calm, make)
        }
        Flaw::SwallowsExit => warm("hook", with_hook(), Bounds { exits: 1, ..calm }, make),
        Flaw::GraceBeginsAnew | Flaw::SignalsAgain => {
            warm("crash", plain(), Bounds { crashes: 1, pauses: 1, ..calm }, make)
        }
        Flaw::RunsHookAgain => warm("hook, crash", with_hook(), Bounds { crashes: 1, ..calm }, make),
        Flaw::IgnoresShrink => warm("shrink", plain(), Bounds { shrinks: 1, ..calm }, make),
        Flaw::ForgetsKill => warm("kill, crash", plain(), Bounds { shutdowns: 1, crashes: 1, ..calm }, make),
        Flaw::OverwritesKill => warm("kill, delete", plain(), Bounds { shutdowns: 1, ..calm }, make),
        Flaw::StartsAnyway | Flaw::RemovesTooSoon => cold("comes up", plain(), calm, make),
        Flaw::IgnoresBarrier => routed("barrier", plain(), calm, make),
        Flaw::IgnoresConnections => {
            let mut model = routed("drain", plain(), Bounds { traffic: 1, ..calm }, make);
            model.spec.drain.budget = Some(Duration::from_secs(1));
            model
        }
        Flaw::TakesOneForAll => PodModel { reach: Some(Reach::Acks), ..routed("acks", plain(), calm, make) },
        Flaw::TakesFromTheLast | Flaw::WaitsUnrouted => routed("last", plain(), Bounds { traffic: 1, ..calm }, make),
        Flaw::RestoresOnce => routed("last, crash", plain(), Bounds { traffic: 1, crashes: 1, ..calm }, make),
        Flaw::WaitsForNobody => routed("last", plain(), Bounds { traffic: 2, ..calm }, make),
        Flaw::AsksOnce => warm("lost", plain(), Bounds { lost: 1, ..calm }, make),
        Flaw::IsNeverForgotten | Flaw::StartsTwice => warm("crash", plain(), Bounds { crashes: 1, ..calm }, make),
        Flaw::CountsFromTheAsk => warm("late answer", with_hook(), Bounds { late: 2, pauses: 2, ..calm }, make),
        Flaw::GrantsNoticeAgain => {
            warm("late return", plain(), Bounds { crashes: 1, late: 1, pauses: 2, ..calm }, make)
        }
        Flaw::CallsItDiverted => PodModel { reach: Some(Reach::Acks), ..routed("acks", plain(), calm, make) },
        Flaw::KeepsFromTheLast => routed("last", plain(), Bounds { traffic: 1, ..calm }, make),
        Flaw::StartsMainFirst => {
            let containers = vec![container("i", Role::Init), container("a", Role::Main)];
            warm("boot", containers, Bounds { crashes: 1, reboots: 1, ..calm }, make)
        }
        Flaw::ForgetsActiveDeadline => {
            let mut model = warm("active deadline", plain(), Bounds { pauses: 1, ..calm }, make);
            model.spec.active_deadline = Some(Duration::from_secs(1));
            model
        }
        Flaw::SleepsAgain => {
            let sleep = Hook::Sleep(Duration::from_secs(1));
            warm("sleep, crash", vec![hooked("a", Role::Main, sleep)], Bounds { crashes: 1, ..calm }, make)
        }
        Flaw::HumoursOrphans => warm("orphan", plain(), Bounds { dismissals: 1, ..calm }, make),
        Flaw::IgnoresOrder => warm("sidecar", with_sidecar(), calm, make),
        Flaw::RestartsOneAlone => {
            let containers = vec![restarts_all("a"), container("b", Role::Main)];
            warm("all run again", containers, Bounds { exits: 1, ..calm }, make)
        }
    }
}

fn is_caught(flaw: Flaw) {
    let (_, law) = Flaw::ALL.into_iter().find(|(known, _)| *known == flaw).expect("listed");
    let healthy = explore(stage(flaw, PodWorker::new as Make<PodWorker>), 1);
    let broken_law = healthy.failures.iter().find(|failure| !failure.trace.is_empty());
    assert!(broken_law.is_none(), "the shipped worker: {broken_law:?}");
    let trace = hunt(stage(flaw, flaw.make()), law);
    assert!(trace.is_some_and(|trace| !trace.is_empty()), "{flaw:?} should break: {}", law.sentence());
}

#[test]
fn every_law_has_a_worker_that_breaks_it() {
    let broken: BTreeSet<&str> = Flaw::ALL.iter().map(|(_, law)| law.sentence()).collect();
    let all: BTreeSet<&str> = Law::ALL.iter().map(|law| law.sentence()).collect();
    assert_eq!(broken, all);
}

#[test]
fn restart_of_one_container_instead_of_all_is_caught() {
    is_caught(Flaw::RestartsOneAlone);
}

#[test]
fn a_kill_right_after_the_stop_signal_is_caught() {
    is_caught(Flaw::KillsAtOnce);
}

#[test]
fn a_kill_together_with_the_stop_signal_is_caught() {
    is_caught(Flaw::GivesNoNotice);
}

#[test]
fn a_grace_that_begins_anew_with_the_agent_is_caught() {
    is_caught(Flaw::GraceBeginsAnew);
}

#[test]
fn a_shorter_deletion_that_changes_nothing_is_caught() {
    is_caught(Flaw::IgnoresShrink);
}

#[test]
fn a_kill_forgotten_with_the_agent_is_caught() {
    is_caught(Flaw::ForgetsKill);
}

#[test]
fn a_kill_overwritten_by_a_deletion_is_caught() {
    is_caught(Flaw::OverwritesKill);
}

#[test]
fn a_start_after_a_deletion_is_caught() {
    is_caught(Flaw::StartsAnyway);
}

#[test]
fn an_object_deleted_over_a_running_container_is_caught() {
    is_caught(Flaw::DeletesEarly);
}

#[test]
fn a_hook_that_is_run_again_is_caught() {
    is_caught(Flaw::RunsHookAgain);
}

#[test]
fn a_stop_signal_during_the_hook_is_caught() {
    is_caught(Flaw::IgnoresHook);
}

#[test]
fn a_hook_left_running_is_caught() {
    is_caught(Flaw::LeaksHook);
}

#[test]
fn a_stop_signal_sent_again_is_caught() {
    is_caught(Flaw::SignalsAgain);
}

#[test]
fn sidecars_signalled_with_the_mains_are_caught() {
    is_caught(Flaw::IgnoresOrder);
}

#[test]
fn a_kill_that_never_comes_is_caught() {
    is_caught(Flaw::SparesEverybody);
}

#[test]
fn an_exit_shown_too_late_is_caught() {
    is_caught(Flaw::FreezesStatus);
}

#[test]
fn a_swallowed_exit_is_caught() {
    is_caught(Flaw::SwallowsExit);
}

#[test]
fn worker_that_acts_after_its_end_is_caught() {
    is_caught(Flaw::TalksOn);
}

#[test]
fn a_stop_signal_before_the_barrier_is_released_is_caught() {
    is_caught(Flaw::IgnoresBarrier);
}

#[test]
fn a_stop_signal_over_open_connections_is_caught() {
    is_caught(Flaw::IgnoresConnections);
}

#[test]
fn one_proxy_taken_for_all_is_caught() {
    is_caught(Flaw::TakesOneForAll);
}

#[test]
fn connections_kept_from_the_last_endpoint_are_caught() {
    is_caught(Flaw::TakesFromTheLast);
}

#[test]
fn a_wait_for_a_replacement_that_was_called_off_is_caught() {
    is_caught(Flaw::WaitsForNobody);
}

#[test]
fn an_answer_waited_for_in_vain_is_caught() {
    is_caught(Flaw::AsksOnce);
}

#[test]
fn a_pod_that_is_never_forgotten_is_caught() {
    is_caught(Flaw::IsNeverForgotten);
}

#[test]
fn a_container_started_twice_is_caught() {
    is_caught(Flaw::StartsTwice);
}

#[test]
fn a_status_that_nobody_is_shown_is_caught() {
    is_caught(Flaw::ShowsNothing);
}

#[test]
fn a_hook_whose_end_is_not_noticed_is_caught() {
    is_caught(Flaw::WaitsForNothing);
}

#[test]
fn a_notice_that_counts_from_the_ask_is_caught() {
    is_caught(Flaw::CountsFromTheAsk);
}

#[test]
fn a_notice_that_a_restart_grants_again_is_caught() {
    is_caught(Flaw::GrantsNoticeAgain);
}

#[test]
fn a_withdrawal_that_is_called_a_detour_is_caught() {
    is_caught(Flaw::CallsItDiverted);
}

#[test]
fn connections_kept_from_the_last_after_the_release_are_caught() {
    is_caught(Flaw::KeepsFromTheLast);
}

#[test]
fn a_main_started_before_its_init_after_a_boot_is_caught() {
    is_caught(Flaw::StartsMainFirst);
}

#[test]
fn a_forgotten_active_deadline_is_caught() {
    is_caught(Flaw::ForgetsActiveDeadline);
}

#[test]
fn a_sleep_begun_anew_is_caught() {
    is_caught(Flaw::SleepsAgain);
}

#[test]
fn an_orphan_that_takes_its_time_is_caught() {
    is_caught(Flaw::HumoursOrphans);
}

#[test]
fn a_sandbox_removed_over_a_start_is_caught() {
    is_caught(Flaw::RemovesTooSoon);
}

#[test]
fn connections_that_are_not_given_back_after_a_crash_are_caught() {
    is_caught(Flaw::RestoresOnce);
}

#[test]
fn a_wait_for_evidence_about_no_traffic_is_caught() {
    is_caught(Flaw::WaitsUnrouted);
}
