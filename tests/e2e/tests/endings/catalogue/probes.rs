//! Who is still asked how it is while it leaves, and who is made to leave by the answer.

use anyhow::{Result, ensure};
use e2e::pods::{is_ready, phase, state, status};
use e2e::stage::Stage;
use e2e::stories;
use e2e::story::{DEAF, POLITE, RequestWindow};
use k8s_openapi::api::core::v1::Pod;

#[tokio::test(flavor = "multi_thread")]
async fn readiness_is_probed_during_termination_and_liveness_is_not() -> Result<()> {
    let stage = &Stage::set().await?;
    let stories = stories![stage;
        readiness_can_be_lost_during_termination, readiness_of_a_sidecar_can_be_lost_during_termination,
        a_failing_liveness_restarts_nobody_who_leaves, a_failing_liveness_restarts_no_sidecar_that_leaves,
        readiness_is_asked_during_a_hook_and_liveness_is_not, a_liveness_failure_has_its_own_grace,
        a_startup_failure_has_its_own_grace, a_sidecars_liveness_failure_has_its_own_grace,
        a_liveness_failure_runs_the_hook, a_startup_failure_runs_the_hook,
    ];
    stage.tell(stories, &[]).await
}

/// Sick from the moment it is asked to leave, until it is let go.
const SICKENS: &str = "trap 'touch /tmp/sick; say TERM; read word < /shared/gate; exit 0' TERM; \
                       rm -f /tmp/sick; say up; sleep 1000 & wait";
const WELL: &str = "test ! -e /tmp/sick";

/// [NT-107]
async fn readiness_can_be_lost_during_termination(stage: &Stage) -> Result<()> {
    let mut pod = stage.pod("unready")?.main("app", SICKENS).probe("readinessProbe", WELL).run().await?;
    pod.delete(&[]).await?;
    pod.watch.until("not Ready", |pod| !is_ready(pod)).await?;
    let seen = pod.watch.last.clone().unwrap();
    let runs = state(&seen, "app").is_some_and(|state| state.running.is_some());
    ensure!(runs && phase(&seen) == Some("Running") && seen.metadata.deletion_timestamp.is_some(), "{:?}", seen.status);
    pod.shared.open_gate().await?;
    pod.gone().await?.was("Succeeded", &[("app", 0, "Completed")])
}

/// [NT-107] A sidecar counts as well, and is asked when the main container is gone.
async fn readiness_of_a_sidecar_can_be_lost_during_termination(stage: &Stage) -> Result<()> {
    let draft = stage.pod("unready-side")?.sidecar("side", SICKENS).probe("readinessProbe", WELL);
    let mut pod = draft.main("app", POLITE).run().await?;
    pod.delete(&[]).await?;
    let lost =
        |pod: &Pod| status(pod, "side").is_some_and(|it| !it.ready && it.state.as_ref().unwrap().running.is_some());
    pod.watch.until("the sidecar is not ready", lost).await?;
    pod.shared.open_gate().await?;
    pod.gone().await?.was("Succeeded", &[("app", 0, "Completed"), ("side", 0, "Completed")])
}

/// Nobody asked whether it lives after it was asked to leave, although others went on asking.
async fn only_readiness_is_asked(stage: &Stage, name: &str, speaker: &str) -> Result<()> {
    let told = stage.all_told(name).await?;
    let unhealthy = |probe: &str| told.iter().any(|event| event.starts_with(&format!("Unhealthy {probe}")));
    ensure!(unhealthy("Readiness") && !unhealthy("Liveness"), "{speaker}: {told:?}");
    Ok(())
}

/// [NT-108]
async fn a_failing_liveness_restarts_nobody_who_leaves(stage: &Stage) -> Result<()> {
    let draft = stage.pod("sick")?.main("app", SICKENS);
    let draft = draft.probe("readinessProbe", &format!("say asked; {WELL}")).probe("livenessProbe", WELL);
    let mut pod = draft.run().await?;
    pod.delete(&[]).await?;
    pod.hears("app TERM").await?;
    let asked = pod.said().iter().filter(|line| *line == "app asked").count();
    pod.hears_times("app asked", asked + 4).await?;
    pod.shared.open_gate().await?;
    pod.gone().await?.was("Succeeded", &[("app", 0, "Completed")])?;
    only_readiness_is_asked(stage, "sick", "app").await
}

/// [NT-108] [NT-110] The sidecar is sick while it waits for its turn, in its hook and behind it.
async fn a_failing_liveness_restarts_no_sidecar_that_leaves(stage: &Stage) -> Result<()> {
    let draft = stage.pod("sick-side")?.sidecar("side", POLITE).pre_stop("touch /tmp/sick; say hook");
    let draft = draft.probe("readinessProbe", &format!("say asked; {WELL}")).probe("livenessProbe", WELL);
    let gated = "trap 'say TERM; read word < /shared/gate; exit 0' TERM; say up; sleep 1000 & wait";
    let mut pod = draft.main("app", gated).run().await?;
    pod.delete(&[]).await?;
    pod.hears("side hook").await?;
    let asked = pod.said().iter().filter(|line| *line == "side asked").count();
    pod.hears_times("side asked", asked + 4).await?;
    pod.shared.open_gate().await?;
    pod.gone().await?.was("Succeeded", &[("app", 0, "Completed"), ("side", 0, "Completed")])?;
    only_readiness_is_asked(stage, "sick-side", "side").await
}

/// [NT-109] In the hook of a container that is about to be restarted.
async fn readiness_is_asked_during_a_hook_and_liveness_is_not(stage: &Stage) -> Result<()> {
    let draft = stage.pod("examined")?.main("app", POLITE).pre_stop("say hook; read word < /shared/gate; say done");
    let draft = draft.probe("readinessProbe", "say ready");
    let mut pod = draft.probe("livenessProbe", "say alive; test ! -e /shared/dead").run().await?;
    std::fs::write(pod.shared.path().join("dead"), "")?;
    pod.hears("app hook").await?;
    let asked = pod.said().iter().filter(|line| *line == "app ready").count();
    pod.hears_times("app ready", asked + 3).await?;
    std::fs::remove_file(pod.shared.path().join("dead"))?;
    pod.shared.open_gate().await?;
    pod.hears_times("app up", 2).await?;
    let said = pod.said();
    let at = |words: &str| said.iter().position(|line| line == words).unwrap();
    ensure!(!said[at("app hook")..at("app done")].contains(&"app alive".to_owned()), "{said:?}");
    pod.said_in_order(&["app hook", "app ready", "app done", "app TERM", "app up"])?;
    pod.delete(&["--grace-period=1"]).await?;
    pod.gone().await.map(drop)
}

/// A container that fails a probe with a grace of its own is killed by that one, and restarted.
async fn killed_by_its_probe(stage: &Stage, name: &str, probe: &str, is_sidecar: bool) -> Result<()> {
    let draft = stage.pod(name)?;
    let draft = if is_sidecar { draft.main("other", POLITE).sidecar("app", DEAF) } else { draft.main("app", DEAF) };
    let script = "until grep -q 'app up' /shared/log; do sleep 0.1; done; test -e /shared/well || { say ill; false; }";
    let mut draft = draft.probe(probe, script);
    let mut timed = draft.field(probe);
    timed["terminationGracePeriodSeconds"] = 3.into();
    draft = draft.with(probe, timed);
    let mut pod = draft.create().await?;
    let asked = RequestWindow { from: pod.hears("app ill").await?, to: pod.hears("app TERM").await? };
    std::fs::write(pod.shared.path().join("well"), "")?;
    pod.watch.until("restarted", |pod| status(pod, "app").is_some_and(|it| it.restart_count == 1)).await?;
    let end = status(pod.watch.last.as_ref().unwrap(), "app").and_then(|it| it.last_state.clone()?.terminated);
    ensure!(end.is_some_and(|end| end.exit_code == 137), "{:?}", pod.watch.last);
    pod.hears_times("app up", 2).await?;
    let again = pod.shared.lines("log").iter().rev().find(|line| line.ends_with("app up")).cloned().unwrap();
    let again: f64 = again.split(' ').next().unwrap().parse()?;
    let end = {
        pod.delete(&["--grace-period=1"]).await?;
        pod.gone().await?
    };
    end.came(again, asked, 3.0)
}

/// [NT-111]
async fn a_liveness_failure_has_its_own_grace(stage: &Stage) -> Result<()> {
    killed_by_its_probe(stage, "not-alive", "livenessProbe", false).await?;
    let told = stage.told("not-alive", "Killing").await?;
    ensure!(told == "Container app failed liveness probe, will be restarted", "{told}");
    Ok(())
}

/// [NT-111]
async fn a_startup_failure_has_its_own_grace(stage: &Stage) -> Result<()> {
    killed_by_its_probe(stage, "not-started", "startupProbe", false).await?;
    let told = stage.told("not-started", "Killing").await?;
    ensure!(told == "Container app failed startup probe, will be restarted", "{told}");
    Ok(())
}

/// [NT-111]
async fn a_sidecars_liveness_failure_has_its_own_grace(stage: &Stage) -> Result<()> {
    killed_by_its_probe(stage, "side-not-alive", "livenessProbe", true).await
}

/// The hook comes before the signal, whoever asks for the end.
async fn hook_before_the_kill(stage: &Stage, name: &str, probe: &str) -> Result<()> {
    let draft = stage.pod(name)?.main("app", POLITE).pre_stop("touch /shared/well; say hook");
    let script = "until grep -q 'app up' /shared/log; do sleep 0.1; done; test -e /shared/well";
    let mut pod = draft.probe(probe, script).create().await?;
    pod.hears_times("app up", 2).await?;
    pod.said_only(&["app up", "app hook", "app TERM", "app up"])?;
    pod.delete(&[]).await?;
    pod.gone().await.map(drop)
}

/// [NT-82]
async fn a_liveness_failure_runs_the_hook(stage: &Stage) -> Result<()> {
    hook_before_the_kill(stage, "dies-well", "livenessProbe").await
}

/// [NT-81]
async fn a_startup_failure_runs_the_hook(stage: &Stage) -> Result<()> {
    hook_before_the_kill(stage, "starts-ill", "startupProbe").await
}
