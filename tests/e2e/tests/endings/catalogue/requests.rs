//! Deletes that come at any moment, many at once, and what must never be seen of pods that end so.

use anyhow::{Result, ensure};
use e2e::dice::Dice;
use e2e::pods::{state, status};
use e2e::stage::Stage;
use e2e::stories;
use e2e::story::POLITE;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{ContainerState, Pod};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

const MANY: usize = 12;

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_heard_whenever_it_comes() -> Result<()> {
    let stage = &Stage::set().await?;
    let stories = stories![stage;
        a_kill_is_never_forgotten, a_failing_pod_never_reports_success, a_main_behind_a_failing_init_never_starts,
        a_restart_policy_says_who_comes_back, restart_rules_of_a_container_say_who_comes_back,
        restart_of_all_containers_begins_with_the_first_init_container, status_written_by_others_is_corrected,
    ];
    stage.tell(stories, &[]).await
}

/// [NT-10] Made, deleted and changed in one breath.
async fn a_kill_is_never_forgotten(stage: &Stage) -> Result<()> {
    let one = |number: usize| async move {
        let mut pod = stage.pod(&format!("breath-{number}"))?.grace(30).main("app", POLITE).create().await?;
        let api = stage.pods();
        api.delete(&pod.name, &DeleteParams::default()).await?;
        let label = Patch::Merge(json!({ "metadata": { "labels": { "changed": "yes" } } }));
        // It may be gone already.
        let _ = api.patch(&pod.name, &PatchParams::default(), &label).await;
        pod.gone().await?;
        let said = pod.said();
        // However far it came; TERM may come before it has said that it is up.
        let told: [&[&str]; 4] = [&[], &["app up"], &["app TERM"], &["app up", "app TERM"]];
        ensure!(told.contains(&&*said.iter().map(String::as_str).collect::<Vec<_>>()), "{said:?}");
        anyhow::Ok(())
    };
    try_join_all((0..MANY).map(one)).await.map(drop)
}

/// [NT-124] Who writes something else into a pod's status is corrected, again and again; what is theirs to say stays.
async fn status_written_by_others_is_corrected(stage: &Stage) -> Result<()> {
    let mut pod = stage.pod("slandered")?.main("app", POLITE).run().await?;
    let truth = pod.watch.last.clone().and_then(|pod| pod.status).unwrap();
    let restarts = |pod: &Pod| status(pod, "app").map(|app| app.restart_count);
    for lie in [8, 9] {
        let lies = json!({
            "phase": "Pending",
            "conditions": [{ "type": "Ready", "status": "False" }, { "type": "example.com/rumour", "status": "True" }],
            "containerStatuses": [{ "name": "app", "image": "", "imageID": "", "ready": false, "restartCount": lie }],
            "hostIPs": [{ "ip": "192.0.2.9" }],
        });
        let lies = Patch::Strategic(json!({ "status": lies }));
        stage.pods().patch_status(&pod.name, &PatchParams::default(), &lies).await?;
        pod.watch.until("the lie", |pod| restarts(pod) == Some(lie)).await?;
        pod.watch.until("the truth", |pod| restarts(pod) == Some(0)).await?;
        let now = pod.watch.last.clone().and_then(|pod| pod.status).unwrap();
        ensure!(now.phase == truth.phase && now.container_statuses == truth.container_statuses, "{now:?}");
        ensure!(now.host_ips == truth.host_ips, "{:?}", now.host_ips);
        let conditions = now.conditions.unwrap_or_default();
        let holds = |kind: &str| conditions.iter().any(|it| it.type_ == kind && it.status == "True");
        ensure!(holds("Ready") && holds("example.com/rumour"), "{conditions:?}");
    }
    pod.said_only(&["app up"])?;
    pod.delete(&[]).await?;
    pod.gone().await.map(drop)
}

fn ran(state: &ContainerState) -> bool {
    state.running.is_some() || state.terminated.as_ref().is_some_and(|end| end.started_at.is_some())
}

/// [NT-49] Whenever it is deleted: no exit with 0, and nobody who has ended runs again.
async fn a_failing_pod_never_reports_success(stage: &Stage) -> Result<()> {
    let mut dice = Dice::seeded()?;
    let delays: Vec<_> = (0..MANY).map(|_| dice.below(std::time::Duration::from_millis(400))).collect();
    let one = |(number, delay): (usize, std::time::Duration)| async move {
        let draft = stage.pod(&format!("fails-{number}"))?.never_restarts().main("app", "exit 1");
        let mut pod = draft.create().await?;
        tokio::time::sleep(delay).await;
        stage.pods().delete(&pod.name, &DeleteParams::default()).await?;
        let mut ended = false;
        for seen in pod.watch.to_the_end().await? {
            let Some(state) = state(&seen, "app") else { continue };
            ensure!(!(ended && state.terminated.is_none()), "{:?}", seen.status);
            ended = state.terminated.is_some();
            ensure!(state.terminated.as_ref().is_none_or(|end| end.exit_code != 0), "{:?}", seen.status);
        }
        anyhow::Ok(())
    };
    try_join_all(delays.into_iter().enumerate().map(one)).await.map(drop)
}

/// [NT-50] Whenever it is deleted: no main container claims to have started.
async fn a_main_behind_a_failing_init_never_starts(stage: &Stage) -> Result<()> {
    let mut dice = Dice::seeded()?;
    let delays: Vec<_> = (0..MANY).map(|_| dice.below(std::time::Duration::from_millis(600))).collect();
    let one = |(number, delay): (usize, std::time::Duration)| async move {
        let draft = stage.pod(&format!("init-{number}"))?.init("setup", "exit 1").main("app", POLITE);
        let mut pod = draft.create().await?;
        tokio::time::sleep(delay).await;
        stage.pods().delete(&pod.name, &DeleteParams::default()).await?;
        for seen in pod.watch.to_the_end().await? {
            let app = status(&seen, "app");
            let states = app.into_iter().flat_map(|app| app.state.iter().chain(&app.last_state));
            ensure!(!states.into_iter().any(ran), "{:?}", seen.status);
        }
        pod.said_only(&[])
    };
    try_join_all(delays.into_iter().enumerate().map(one)).await.map(drop)
}

/// Always comes back, OnFailure after a failure, Never not at all.
async fn a_restart_policy_says_who_comes_back(stage: &Stage) -> Result<()> {
    let one = |(policy, code, phase): (&'static str, i32, &'static str)| async move {
        let draft = stage.pod(&format!("{}-{code}", policy.to_lowercase()))?.spec("restartPolicy", policy.into());
        let mut pod = draft.main("app", &format!("say up; exit {code}")).create().await?;
        let restarted = |pod: &Pod| status(pod, "app").is_some_and(|app| app.restart_count > 0);
        let over = |pod: &Pod| e2e::pods::phase(pod) == Some(phase);
        if phase == "Running" {
            pod.watch.until("a restart", restarted).await?;
            pod.hears_times("app up", 2).await?;
        } else {
            pod.watch.until("the end", over).await?;
            pod.said_only(&["app up"])?;
        }
        pod.delete(&[]).await?;
        pod.gone().await.map(drop)
    };
    let cases = [
        ("Always", 0, "Running"),
        ("Always", 1, "Running"),
        ("OnFailure", 0, "Succeeded"),
        ("OnFailure", 1, "Running"),
        ("Never", 0, "Succeeded"),
        ("Never", 1, "Failed"),
    ];
    try_join_all(cases.map(one)).await.map(drop)
}

/// A rule about an exit code of one container, and what happens (`Restart`, `RestartAllContainers`).
fn rule(code: i32, action: &str) -> serde_json::Value {
    json!([{ "action": action, "exitCodes": { "operator": "In", "values": [code] } }])
}

/// A container's own rules are asked before its policy, and that before its pod's.
async fn restart_rules_of_a_container_say_who_comes_back(stage: &Stage) -> Result<()> {
    let script = "say up; [ -e /shared/again ] && exit 3; touch /shared/again; exit 42";
    let draft = stage.pod("by-rule")?.spec("restartPolicy", "Always".into()).main("app", script);
    let draft = draft.with("restartPolicy", "Never".into()).with("restartPolicyRules", rule(42, "Restart"));
    let mut pod = draft.create().await?;
    pod.watch.until("the end", |pod| e2e::pods::phase(pod) == Some("Failed")).await?;
    pod.said_only(&["app up", "app up"])?;
    let last = pod.watch.last.clone().unwrap();
    let app = status(&last, "app").unwrap();
    let code = |state: &Option<ContainerState>| state.as_ref()?.terminated.as_ref().map(|end| end.exit_code);
    ensure!((app.restart_count, code(&app.last_state), code(&app.state)) == (1, Some(42), Some(3)), "{app:?}");
    pod.delete(&[]).await?;
    pod.gone().await.map(drop)
}

/// The others are asked to exit first, and whoever had done its part does it again.
async fn restart_of_all_containers_begins_with_the_first_init_container(stage: &Stage) -> Result<()> {
    let source = format!(
        "[ -e /shared/again ] || {{ touch /shared/again; say first; read word < /shared/gate; exit 42; }}; {POLITE}"
    );
    let draft = stage.pod("all-again")?.never_restarts().init("setup", "say done").main("source", &source);
    let draft = draft.with("restartPolicy", "Never".into());
    let draft = draft.with("restartPolicyRules", rule(42, "RestartAllContainers")).main("other", POLITE);
    let mut pod = draft.pre_stop("say hook").create().await?;
    pod.hears("source first").await?;
    pod.hears("other up").await?;
    pod.shared.open_gate().await?;
    let restarting = |pod: &Pod, holds: &str| {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|it| it.type_ == "AllContainersRestarting" && it.status == holds)
    };
    pod.watch.until("the restart", |pod| restarting(pod, "True")).await?;
    let all_again = |pod: &Pod| {
        let again = |name: &str| status(pod, name).is_some_and(|it| it.restart_count == 1);
        ["setup", "source", "other"].into_iter().all(again) && e2e::pods::is_ready(pod) && restarting(pod, "False")
    };
    pod.watch.until("all of them again", all_again).await?;
    pod.hears("source up").await?;
    pod.hears_times("other up", 2).await?;
    pod.said_in_order(&["setup done", "other up", "other TERM", "setup done", "other up"])?;
    ensure!(!pod.said().contains(&"other hook".to_owned()), "{:?}", pod.said());
    pod.delete(&[]).await?;
    pod.gone().await.map(drop)
}
