//! Pods that are deleted at every stage of their life, and what holds them back or does not.

use anyhow::{Context, Result, ensure};
use e2e::pods::{is_ready, phase, state, status, waits_for};
use e2e::stage::Stage;
use e2e::stories;
use e2e::story::{DEAF, GATED, HOLDS_THE_GATE, POLITE};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_can_be_deleted_at_any_time() -> Result<()> {
    let stage = &Stage::set().await?;
    let stories = stories![stage;
        a_finished_pod_is_gone_at_once, a_pod_without_a_node_is_gone_at_once, a_finalizer_shows_the_end,
        a_collection_leaves_together, a_delete_during_init_does_not_hang, an_init_container_has_its_grace_too,
        a_sidecar_does_not_wait_for_one_that_never_started, a_delete_during_post_start_is_heard_at_once,
        a_changed_image_restarts_nobody, a_changed_image_restarts_no_init_container, a_name_can_be_used_again_at_once,
        pod_with_a_terminal_phase_is_ended, termination_alone_does_not_unset_ready, a_completed_pod_stays,
        a_delete_during_a_back_off_is_heard_at_once,
    ];
    stage.tell(stories, &[]).await
}

/// [NT-53] Nobody has to be asked.
async fn a_finished_pod_is_gone_at_once(stage: &Stage) -> Result<()> {
    let mut pod = stage.pod("finished")?.never_restarts().main("app", "say up").create().await?;
    pod.watch.until("Succeeded", |pod| phase(pod) == Some("Succeeded")).await?;
    stage.kubectl(&["delete", "pod", "finished"]).await?;
    let end = pod.gone().await?;
    ensure!(end.pod.metadata.deletion_grace_period_seconds == Some(0), "{:?}", end.pod.metadata);
    end.was("Succeeded", &[("app", 0, "Completed")])?;
    let told = stage.all_told("finished").await?;
    ensure!(!told.iter().any(|event| event.starts_with("Killing")), "{told:?}");
    Ok(())
}

/// [NT-54] It waits for a node that never comes, says why, and leaves without one.
async fn a_pod_without_a_node_is_gone_at_once(stage: &Stage) -> Result<()> {
    let draft = stage.pod("homeless")?.spec("nodeSelector", json!({ "no": "such-node" })).main("app", POLITE);
    let mut pod = draft.create().await?;
    let why = stage.told("homeless", "FailedScheduling").await?;
    ensure!(why.contains("0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."), "{why}");
    stage.kubectl(&["delete", "pod", "homeless"]).await?;
    let end = pod.gone().await?;
    ensure!(end.pod.spec.as_ref().unwrap().node_name.is_none());
    ensure!(phase(&end.pod) == Some("Pending"), "{:?}", end.pod.status);
    pod.said_only(&[])
}

/// [NT-55] All of the end is there to be read for as long as somebody holds the object.
async fn a_finalizer_shows_the_end(stage: &Stage) -> Result<()> {
    let draft = stage.pod("held")?.metadata("finalizers", json!(["example.com/hold"]));
    let mut pod = draft.main("app", "trap 'say TERM; exit 7' TERM; say up; sleep 1000 & wait").run().await?;
    pod.delete(&[]).await?;
    pod.watch.until("Failed", |pod| phase(pod) == Some("Failed")).await?;
    let held = |pod: &Pod| {
        let end = state(pod, "app").and_then(|state| state.terminated.as_ref());
        end.is_some_and(|end| end.exit_code == 7 && end.finished_at.is_some())
            && !is_ready(pod)
            && pod.metadata.deletion_grace_period_seconds == Some(0)
    };
    pod.watch.until("all that is to be said", held).await?;
    let before = pod.watch.last.clone().unwrap();
    ensure!(before.metadata.finalizers.as_ref().is_some_and(|all| all == &["example.com/hold"]));
    stage.kubectl(&["patch", "pod", "held", "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#]).await?;
    let end = pod.gone().await?;
    ensure!(end.pod.status == before.status, "nothing is said after the end");
    pod.said_only(&["app up", "app TERM"])
}

/// [NT-58] One request, three pods, each asked once.
async fn a_collection_leaves_together(stage: &Stage) -> Result<()> {
    let mut pods = Vec::new();
    for name in ["one", "two", "three"] {
        let draft = stage.pod(&format!("collected-{name}"))?.metadata("labels", json!({ "group": "collected" }));
        pods.push(draft.main("app", POLITE).run().await?);
    }
    let path = "/api/v1/namespaces/default/pods?labelSelector=group%3Dcollected";
    stage.kubectl(&["delete", "--raw", path]).await?;
    for pod in &mut pods {
        pod.gone().await?.was("Succeeded", &[("app", 0, "Completed")])?;
        pod.said_only(&["app up", "app TERM"])?;
    }
    Ok(())
}

/// [NT-95] The init container is asked, nobody is waited for who never came, and no main container claims to have run.
async fn a_delete_during_init_does_not_hang(stage: &Stage) -> Result<()> {
    let init = "trap 'say TERM; exit 3' TERM; say up; sleep 1000 & wait";
    let draft = stage.pod("initializing")?.init("first", init).init("second", "say up").main("app", POLITE);
    let mut pod = draft.create().await?;
    pod.hears("first up").await?;
    pod.delete(&[]).await?;
    let end = pod.gone().await?;
    end.was("Failed", &[("first", 3, "Error")])?;
    pod.said_only(&["first up", "first TERM"])?;
    let started = |name: &str| state(&end.pod, name).is_some_and(|it| it.running.is_some() || it.terminated.is_some());
    ensure!(!started("second") && !started("app"), "{:?}", end.pod.status);
    Ok(())
}

/// An init container that does not hear has until the deadline, as any other.
async fn an_init_container_has_its_grace_too(stage: &Stage) -> Result<()> {
    let mut pod = stage.pod("deaf-init")?.grace(3).init("first", DEAF).main("app", POLITE).create().await?;
    pod.hears("first up").await?;
    let asked = pod.delete(&[]).await?;
    let end = pod.gone().await?;
    end.stayed(asked, 3.0)?;
    end.was("Failed", &[("first", 137, "Error")])?;
    pod.said_only(&["first up", "first TERM"])
}

/// [NT-96]
async fn a_sidecar_does_not_wait_for_one_that_never_started(stage: &Stage) -> Result<()> {
    let draft = stage.pod("half-up")?.sidecar("s1", POLITE).probe("startupProbe", "exit 1");
    let draft = draft.with("startupProbe", json!({ "exec": { "command": ["false"] }, "failureThreshold": 1000 }));
    let mut pod = draft.sidecar("s2", POLITE).main("app", POLITE).create().await?;
    pod.hears("s1 up").await?;
    pod.delete(&[]).await?;
    let end = pod.gone().await?;
    end.was("Failed", &[("s1", 0, "Completed")])?;
    pod.said_only(&["s1 up", "s1 TERM"])
}

/// [NT-60] The hook is ended, the container asked at once; nothing waits for the hook.
async fn a_delete_during_post_start_is_heard_at_once(stage: &Stage) -> Result<()> {
    let draft = stage.pod("starting")?.main("app", POLITE).post_start("say starting; sleep 1000");
    let mut pod = draft.create().await?;
    pod.hears("app up").await?;
    pod.hears("app starting").await?;
    let asked = pod.delete(&[]).await?;
    let end = pod.gone().await?;
    end.came(pod.hears("app TERM").await?, asked, 0.0)?;
    end.was("Succeeded", &[("app", 0, "Completed")])
}

/// [NT-52] [NT-103] Whatever the policy: who is asked to leave is not replaced, and keeps its grace.
async fn a_changed_image_restarts_nobody(stage: &Stage) -> Result<()> {
    let mut pods = Vec::new();
    for policy in ["Always", "OnFailure", "Never"] {
        let draft = stage.pod(&format!("changed-{}", policy.to_lowercase()))?.spec("restartPolicy", policy.into());
        pods.push(draft.sidecar("side", POLITE).main("app", GATED).run().await?);
    }
    for pod in &mut pods {
        pod.delete(&[]).await?;
        pod.hears("app TERM").await?;
        stage.kubectl(&["set", "image", &format!("pod/{}", pod.name), "app=nginx", "side=nginx"]).await?;
        let seen = |pod: &Pod| pod.status.as_ref().unwrap().observed_generation == pod.metadata.generation;
        let new = |pod: &Pod| pod.spec.as_ref().unwrap().containers[0].image.as_deref() == Some("nginx");
        pod.watch.until("the node knows the new image", |pod| new(pod) && seen(pod)).await?;
        pod.shared.open_gate().await?;
        pod.gone().await?.was("Succeeded", &[("app", 0, "Completed"), ("side", 0, "Completed")])?;
        pod.said_in_order(&["app up", "app TERM", "app out", "side TERM"])?;
        ensure!(pod.said().len() == 5, "{:?}", pod.said());
    }
    Ok(())
}

/// [NT-104]
async fn a_changed_image_restarts_no_init_container(stage: &Stage) -> Result<()> {
    let init = "trap 'say TERM; read word < /shared/gate; exit 3' TERM; say up; sleep 1000 & wait";
    let mut pod = stage.pod("changed-init")?.init("first", init).main("app", POLITE).create().await?;
    pod.hears("first up").await?;
    pod.delete(&[]).await?;
    pod.hears("first TERM").await?;
    stage.kubectl(&["set", "image", "pod/changed-init", "first=nginx"]).await?;
    let seen = |pod: &Pod| pod.status.as_ref().unwrap().observed_generation == pod.metadata.generation;
    let new = |pod: &Pod| {
        let init = pod.spec.as_ref().unwrap().init_containers.as_ref();
        init.is_some_and(|all| all[0].image.as_deref() == Some("nginx"))
    };
    pod.watch.until("the node knows the new image", |pod| new(pod) && seen(pod)).await?;
    pod.shared.open_gate().await?;
    pod.gone().await?.was("Failed", &[("first", 3, "Error")])?;
    pod.said_only(&["first up", "first TERM"])
}

/// [NT-119] Nothing of the old one's end, is written on the new one.
async fn a_name_can_be_used_again_at_once(stage: &Stage) -> Result<()> {
    let mut old = stage.pod("again")?.main("app", &format!("{HOLDS_THE_GATE}{DEAF}")).run().await?;
    old.delete(&["--force", "--grace-period=0"]).await?;
    old.gone().await?;
    let new = stage.pod("again")?.main("app", POLITE).run().await?;
    old.dies().await?;
    let before = stage.pods().get("again").await?;
    ensure!(is_ready(&before) && status(&before, "app").is_some_and(|it| it.restart_count == 0), "{before:?}");
    // Something that happens to another pod afterwards is told after whatever there was to tell of the old one.
    stage.all_told("again").await?;
    let after = stage.pods().get("again").await?;
    ensure!(before == after, "{before:?} became {after:?}");
    new.said_only(&["app up"])?;
    stage.kubectl(&["delete", "pod", "again"]).await.map(drop)
}

/// Somebody else may call a pod over: then it is ended, with its grace.
async fn pod_with_a_terminal_phase_is_ended(stage: &Stage) -> Result<()> {
    let mut pod = stage.pod("over")?.main("app", POLITE).run().await?;
    let patch = r#"{"status":{"phase":"Failed"}}"#;
    stage.kubectl(&["patch", "pod", "over", "--subresource=status", "--type=merge", "-p", patch]).await?;
    pod.hears("app TERM").await?;
    let ended = |pod: &Pod| state(pod, "app").is_some_and(|state| state.terminated.is_some());
    pod.watch.until("the end", ended).await?;
    ensure!(phase(pod.watch.last.as_ref().unwrap()) == Some("Failed"), "a phase that is terminal stays");
    pod.delete(&[]).await?;
    pod.gone().await?.was("Failed", &[("app", 0, "Completed")])
}

/// [NT-113] It serves until it has ended; that no new requests come is for those who send them.
async fn termination_alone_does_not_unset_ready(stage: &Stage) -> Result<()> {
    let mut pod = stage.pod("serves")?.main("app", GATED).run().await?;
    pod.delete(&[]).await?;
    pod.hears("app TERM").await?;
    let table = stage.kubectl(&["get", "pod", "serves"]).await?;
    ensure!(table.contains("1/1     Terminating"), "{table}");
    pod.shared.open_gate().await?;
    for seen in pod.watch.to_the_end().await? {
        let runs = state(&seen, "app").is_some_and(|state| state.running.is_some());
        ensure!(is_ready(&seen) == runs, "{:?}", seen.status);
    }
    Ok(())
}

/// [NT-12] A pod that has done its work is over, its sidecars leave then, and it stays to be read.
async fn a_completed_pod_stays(stage: &Stage) -> Result<()> {
    let draft = stage.pod("done")?.spec("restartPolicy", "OnFailure".into()).sidecar("side", POLITE);
    let mut pod = draft.main("app", "say up; read word < /shared/gate; say out").run().await?;
    pod.shared.open_gate().await?;
    pod.watch.until("Succeeded", |pod| phase(pod) == Some("Succeeded")).await?;
    pod.said_in_order(&["app up", "app out", "side TERM"])?;
    ensure!(pod.said().len() == 4, "{:?}", pod.said());
    let table = stage.kubectl(&["get", "pod", "done"]).await?;
    ensure!(table.contains("0/2     Completed"), "{table}");
    let seen = stage.pods().get("done").await?;
    ensure!(seen.metadata.deletion_timestamp.is_none(), "nobody deleted it");
    pod.delete(&[]).await?;
    pod.gone().await?.was("Succeeded", &[("app", 0, "Completed"), ("side", 0, "Completed")])
}

/// Nothing runs, so nothing is waited for; and it does not come back.
async fn a_delete_during_a_back_off_is_heard_at_once(stage: &Stage) -> Result<()> {
    let mut pod = stage.pod("crashes")?.main("app", "say up; exit 3").create().await?;
    pod.watch.until("CrashLoopBackOff", |pod| waits_for(pod, "app") == Some("CrashLoopBackOff")).await?;
    pod.delete(&[]).await?;
    let end = pod.gone().await?;
    // The back-off may have been over before the request came; whoever started is counted then.
    let status = status(&end.pod, "app").context("a status")?;
    let starts = usize::try_from(status.restart_count)? + 1;
    let last = status.state.as_ref().and_then(|state| state.terminated.as_ref());
    ensure!(last.is_some_and(|end| end.exit_code == 3), "it ended as it last ended: {status:?}");
    ensure!(phase(&end.pod) == Some("Failed"), "{:?}", end.pod.status);
    stage.all_told("crashes").await?;
    ensure!(pod.said().len() == starts, "{starts} starts are counted of {:?}", pod.said());
    Ok(())
}
