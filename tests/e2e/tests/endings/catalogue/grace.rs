//! How long a pod has: the deadline, what shortens it, and what is left after a hook.

use anyhow::{Result, ensure};
use e2e::stage::Stage;
use e2e::stories;
use e2e::story::{DEAF, HOLDS_THE_GATE, POLITE};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_has_its_grace_and_no_more() -> Result<()> {
    let stage = &Stage::set().await?;
    let stories = stories![stage;
        an_ignored_term_is_killed_at_the_deadline, a_shell_that_swallows_term_is_killed_at_the_deadline,
        a_longer_delete_changes_nothing, a_hook_that_hangs_is_given_up_at_the_deadline,
        a_hook_is_paid_for_by_the_grace, a_negative_grace_is_a_second, a_grace_of_zero_is_a_force_delete,
        a_forced_pod_gives_its_hook_a_second, a_sleep_that_fits_is_slept, a_shorter_delete_cuts_a_sleep_short,
        a_second_delete_cuts_a_running_hook_short, a_sleep_of_zero_is_no_delay, an_active_deadline_ends_a_pod,
        an_active_deadline_may_be_changed,
    ];
    stage.tell(stories, &[]).await
}

/// [NT-42] [NT-48] TERM at once, KILL at the deadline and not a moment before.
async fn an_ignored_term_is_killed_at_the_deadline(stage: &Stage) -> Result<()> {
    let mut pod = stage.pod("deaf")?.grace(4).main("app", DEAF).run().await?;
    let asked = pod.delete(&[]).await?;
    let end = pod.gone().await?;
    end.stayed(asked, 4.0)?;
    end.came(pod.hears("app TERM").await?, asked, 0.0)?;
    pod.said_only(&["app up", "app TERM"])?;
    end.was("Failed", &[("app", 137, "Error")])?;
    let told = stage.all_told("deaf").await?;
    let told = told.iter().map(String::as_str).filter(|event| event.contains("SIG") || event.starts_with("Killing"));
    let expected = [
        "Killing Stopping container app",
        "StopSignalSent Sent SIGTERM to container app, 4s before SIGKILL",
        "KillSent Sent SIGKILL to container app: it did not exit in time",
    ];
    ensure!(told.clone().eq(expected), "{:?}", told.collect::<Vec<_>>());
    Ok(())
}

/// The kernel keeps TERM from a first process that has no handler, and a shell does not pass it on.
async fn a_shell_that_swallows_term_is_killed_at_the_deadline(stage: &Stage) -> Result<()> {
    let script = "say up; sh -c 'trap \"echo 0 child TERM >> /shared/log\" TERM; sleep 1000 & wait'; say out";
    let mut pod = stage.pod("shell")?.grace(3).main("app", script).run().await?;
    let asked = pod.delete(&[]).await?;
    let end = pod.gone().await?;
    end.stayed(asked, 3.0)?;
    pod.said_only(&["app up"])?;
    end.was("Failed", &[("app", 137, "Error")])
}

/// [NT-24] Who asks for more gets what was promised before.
async fn a_longer_delete_changes_nothing(stage: &Stage) -> Result<()> {
    let mut pod = stage.pod("longer")?.grace(600).main("app", DEAF).run().await?;
    let asked = pod.delete(&["--grace-period=8"]).await?;
    pod.hears("app TERM").await?;
    // On a machine that takes eight seconds over this it comes too late, and changes nothing either.
    pod.delete(&["--grace-period=300", "--ignore-not-found"]).await?;
    let end = pod.gone().await?;
    end.stayed(asked, 8.0)?;
    pod.said_only(&["app up", "app TERM"])
}

/// [NT-43] [NT-85] The hook has the grace, the container two seconds after that, and people are told why.
async fn a_hook_that_hangs_is_given_up_at_the_deadline(stage: &Stage) -> Result<()> {
    let mut pod = stage.pod("hangs")?.grace(3).main("app", DEAF).pre_stop("say hook; sleep 1000").run().await?;
    let asked = pod.delete(&[]).await?;
    let end = pod.gone().await?;
    end.came(pod.hears("app TERM").await?, asked, 3.0)?;
    end.stayed(asked, 5.0)?;
    pod.said_only(&["app up", "app hook", "app TERM"])?;
    end.was("Failed", &[("app", 137, "Error")])?;
    let told = stage.told("hangs", "FailedPreStopHook").await?;
    ensure!(told == "PreStopHook timed out: it was still running when the grace period ended", "{told}");
    Ok(())
}

/// Two seconds in the hook are two seconds less for the container.
async fn a_hook_is_paid_for_by_the_grace(stage: &Stage) -> Result<()> {
    let hook = "say hook; sleep 2; say hooked";
    let mut pod = stage.pod("paid")?.grace(5).main("app", DEAF).pre_stop(hook).run().await?;
    let asked = pod.delete(&[]).await?;
    let end = pod.gone().await?;
    end.stayed(asked, 5.0)?;
    pod.said_only(&["app up", "app hook", "app hooked", "app TERM"])
}

/// [NT-44]
async fn a_negative_grace_is_a_second(stage: &Stage) -> Result<()> {
    let draft = stage.pod("negative")?.grace(-1).main("app", POLITE);
    stage.apply(draft.manifest()).await?;
    let words = ["get", "pod", "negative", "-o", "jsonpath={.spec.terminationGracePeriodSeconds}"];
    let stored = stage.kubectl(&words).await?;
    ensure!(stored == "1", "stored as {stored}");
    stage.kubectl(&["delete", "pod", "negative"]).await.map(drop)
}

/// [NT-56] The object goes at once; the process has its two seconds.
async fn a_grace_of_zero_is_a_force_delete(stage: &Stage) -> Result<()> {
    let script = format!("{HOLDS_THE_GATE}{DEAF}");
    let mut pod = stage.pod("zero")?.grace(0).main("app", &script).run().await?;
    let asked = pod.delete(&[]).await?;
    let end = pod.gone().await?;
    let died = pod.dies().await?;
    end.came(died, asked, 2.0)?;
    pod.said_only(&["app up", "app TERM"])
}

/// [NT-57] A second for the hook, two for the container.
async fn a_forced_pod_gives_its_hook_a_second(stage: &Stage) -> Result<()> {
    let draft = stage.pod("forced")?.main("app", &format!("{HOLDS_THE_GATE}{DEAF}"));
    let mut pod = draft.hook("preStop", json!({ "sleep": { "seconds": 500 } })).run().await?;
    let asked = pod.delete(&["--force", "--grace-period=0"]).await?;
    let end = pod.gone().await?;
    let died = pod.dies().await?;
    end.came(pod.hears("app TERM").await?, asked, 1.0)?;
    end.came(died, asked, 3.0)
}

/// [NT-68] Not less, and not until the grace is over.
async fn a_sleep_that_fits_is_slept(stage: &Stage) -> Result<()> {
    let draft = stage.pod("sleeps")?.main("app", POLITE).hook("preStop", json!({ "sleep": { "seconds": 3 } }));
    let mut pod = draft.run().await?;
    let asked = pod.delete(&[]).await?;
    let end = pod.gone().await?;
    end.came(pod.hears("app TERM").await?, asked, 3.0)?;
    end.was("Succeeded", &[("app", 0, "Completed")])
}

/// [NT-69] Asked for with less than the hook takes, the pod ends when it was asked to.
async fn a_shorter_delete_cuts_a_sleep_short(stage: &Stage) -> Result<()> {
    let draft = stage.pod("cut")?.main("app", DEAF).hook("preStop", json!({ "sleep": { "seconds": 500 } }));
    let mut pod = draft.run().await?;
    let asked = pod.delete(&["--grace-period=2"]).await?;
    let end = pod.gone().await?;
    end.came(pod.hears("app TERM").await?, asked, 2.0)?;
    end.stayed(asked, 4.0)
}

/// [NT-23] A hook that has minutes is ended a second after somebody asks for less.
async fn a_second_delete_cuts_a_running_hook_short(stage: &Stage) -> Result<()> {
    let draft = stage.pod("shrunk")?.grace(210).main("app", DEAF).pre_stop("say hook; sleep 1000");
    let mut pod = draft.run().await?;
    pod.delete(&[]).await?;
    pod.hears("app hook").await?;
    let asked = pod.delete(&["--grace-period=1"]).await?;
    let end = pod.gone().await?;
    // Both count from the first request; a second is always left, and two after the stop signal.
    end.came(pod.hears("app TERM").await?, asked, 1.0)?;
    end.stayed(asked, 3.0)?;
    end.was("Failed", &[("app", 137, "Error")])
}

/// [NT-71]
async fn a_sleep_of_zero_is_no_delay(stage: &Stage) -> Result<()> {
    let draft = stage.pod("no-sleep")?.main("app", POLITE).hook("preStop", json!({ "sleep": { "seconds": 0 } }));
    let mut pod = draft.run().await?;
    let asked = pod.delete(&[]).await?;
    let end = pod.gone().await?;
    end.came(pod.hears("app TERM").await?, asked, 0.0)?;
    end.was("Succeeded", &[("app", 0, "Completed")])
}

/// [NT-163] The deadline ends it with all of its grace; it is not ready meanwhile, and not over before it is over.
async fn an_active_deadline_ends_a_pod(stage: &Stage) -> Result<()> {
    let words = "Pod was active on the node longer than the specified deadline";
    let made = e2e::story::uptime();
    // Long enough to be up before, with all the other stories beside it.
    let draft = stage.pod("expires")?.grace(2).spec("activeDeadlineSeconds", 20.into()).main("app", DEAF);
    let mut pod = draft.run().await?;
    let up = pod.hears("app up").await?;
    pod.watch.until("not Ready", |pod| !e2e::pods::is_ready(pod)).await?;
    let seen = pod.watch.last.clone().unwrap();
    ensure!(e2e::pods::phase(&seen) == Some("Running"), "{:?}", seen.status);
    pod.watch.until("Failed", |pod| e2e::pods::phase(pod) == Some("Failed")).await?;
    let over = e2e::story::uptime();
    let status = pod.watch.last.clone().and_then(|pod| pod.status).unwrap();
    ensure!((status.reason.as_deref(), status.message.as_deref()) == (Some("DeadlineExceeded"), Some(words)));
    ensure!(stage.told("expires", "DeadlineExceeded").await? == words);
    let term = pod.hears("app TERM").await?;
    // It has been active since before its container was; since when is told in whole seconds.
    ensure!(over >= made + 21.0, "over {:.3} s after it was made, of 20 and 2", over - made);
    ensure!(term - up < 20.0 + stage.pace.forgives().as_secs_f64(), "asked {:.3} s after it was up", term - up);
    pod.delete(&[]).await?;
    pod.gone().await?.was("Failed", &[("app", 137, "Error")])
}

/// A deadline that is brought closer counts at once.
async fn an_active_deadline_may_be_changed(stage: &Stage) -> Result<()> {
    let draft = stage.pod("hurried")?.spec("activeDeadlineSeconds", 600.into()).main("app", POLITE);
    let mut pod = draft.run().await?;
    stage.kubectl(&["patch", "pod", "hurried", "-p", r#"{"spec":{"activeDeadlineSeconds":1}}"#]).await?;
    pod.watch.until("Failed", |pod| e2e::pods::phase(pod) == Some("Failed")).await?;
    pod.said_only(&["app up", "app TERM"])?;
    pod.delete(&[]).await?;
    pod.gone().await?.was("Failed", &[("app", 0, "Completed")])
}
