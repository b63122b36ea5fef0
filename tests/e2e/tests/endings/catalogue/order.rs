//! Who in a pod leaves when: main containers side by side, sidecars after them and one after the other, hooks all at once.

use anyhow::{Result, ensure};
use e2e::pods::{phase, waits_for};
use e2e::stage::Stage;
use e2e::stories;
use e2e::story::{DEAF, POLITE, SLOW};

#[tokio::test(flavor = "multi_thread")]
async fn the_containers_of_a_pod_leave_in_their_order() -> Result<()> {
    let stage = &Stage::set().await?;
    let stories = stories![stage;
        mains_leave_side_by_side, sidecars_leave_in_reverse_order, all_hooks_begin_at_once,
        endless_hooks_of_sidecars_end_together, a_failing_sidecar_does_not_fail_its_pod,
        a_hook_of_a_failing_sidecar_does_not_fail_its_pod, a_main_that_overruns_fails_its_pod,
        a_sidecar_that_overruns_does_not_fail_its_pod, a_main_whose_hook_overruns_fails_its_pod,
        a_sidecar_whose_hook_overruns_is_killed_alone, a_turn_is_not_waited_for_beyond_the_grace,
        a_sidecar_leaves_after_a_running_init_container, a_gap_in_the_sidecars_does_not_break_their_order,
    ];
    stage.tell(stories, &[]).await
}

/// Both are asked before either has ended.
async fn mains_leave_side_by_side(stage: &Stage) -> Result<()> {
    // Each waits for the other to be asked: one after the other would take forever.
    let waits = |other: &str| {
        format!(
            "trap 'say TERM; until grep -q \"{other} TERM\" /shared/log; do sleep 0.1; done; exit 0' TERM; \
             say up; sleep 1000 & wait"
        )
    };
    let mut pod = stage.pod("pair")?.main("a", &waits("b")).main("b", &waits("a")).run().await?;
    pod.delete(&[]).await?;
    pod.gone().await?.was("Succeeded", &[("a", 0, "Completed"), ("b", 0, "Completed")])
}

/// [NT-92] Main, then s3, s2, s1: each when the one before it is gone.
async fn sidecars_leave_in_reverse_order(stage: &Stage) -> Result<()> {
    let draft = stage.pod("reverse")?.sidecar("s1", SLOW).sidecar("s2", SLOW).sidecar("s3", SLOW);
    let mut pod = draft.main("app", SLOW).run().await?;
    pod.delete(&[]).await?;
    let all = ["app", "s3", "s2", "s1"];
    pod.gone().await?.was("Succeeded", &all.map(|name| (name, 0, "Completed")))?;
    let order: Vec<String> = all.iter().flat_map(|name| [format!("{name} TERM"), format!("{name} out")]).collect();
    ensure!(pod.said()[4..] == order, "{:?}", pod.said());
    Ok(())
}

/// [NT-94] Every hook has begun before any has ended, those of sidecars with those of the mains.
async fn all_hooks_begin_at_once(stage: &Stage) -> Result<()> {
    // Each waits for the others to begin.
    let hook = "say hook; until [ $(grep -c hook /shared/log) -ge 3 ]; do sleep 0.1; done; say done";
    let draft = stage.pod("at-once")?.sidecar("s1", POLITE).pre_stop(hook).sidecar("s2", POLITE).pre_stop(hook);
    let mut pod = draft.main("app", POLITE).pre_stop(hook).run().await?;
    pod.delete(&[]).await?;
    pod.gone().await?.was("Succeeded", &["app", "s2", "s1"].map(|name| (name, 0, "Completed")))?;
    pod.said_in_order(&["app done", "app TERM", "s2 TERM", "s1 TERM"])
}

/// [NT-93] Nobody is sequenced when the grace is spent: all are asked then, and killed two seconds later.
async fn endless_hooks_of_sidecars_end_together(stage: &Stage) -> Result<()> {
    let (hook, names) = ("say hook; sleep 1000", ["s1", "s2", "s3"]);
    let draft = stage.pod("endless")?.grace(3).main("app", POLITE);
    let draft = names.iter().fold(draft, |draft, name| draft.sidecar(name, DEAF).pre_stop(hook));
    let mut pod = draft.run().await?;
    let asked = pod.delete(&[]).await?;
    let end = pod.gone().await?;
    for name in names {
        end.came(pod.hears(&format!("{name} hook")).await?, asked, 0.0)?;
        end.came(pod.hears(&format!("{name} TERM")).await?, asked, 3.0)?;
    }
    end.stayed(asked, 5.0)?;
    end.was("Succeeded", &[("app", 0, "Completed"), ("s1", 137, "Error"), ("s2", 137, "Error"), ("s3", 137, "Error")])
}

const FAILS: &str = "trap 'say TERM; exit 5' TERM; say up; sleep 1000 & wait";

/// [NT-97]
async fn a_failing_sidecar_does_not_fail_its_pod(stage: &Stage) -> Result<()> {
    let draft = stage.pod("bad-side")?.never_restarts().sidecar("s1", FAILS).sidecar("s2", FAILS);
    let mut pod = draft.main("app", "say up; read word < /shared/gate").run().await?;
    pod.shared.open_gate().await?;
    pod.watch.until("Succeeded", |pod| phase(pod) == Some("Succeeded")).await?;
    pod.said_in_order(&["s2 TERM", "s1 TERM"])?;
    pod.delete(&[]).await?;
    pod.gone().await?.was("Succeeded", &[("app", 0, "Completed"), ("s1", 5, "Error"), ("s2", 5, "Error")])
}

/// [NT-97] The same when it is the hook that ends it.
async fn a_hook_of_a_failing_sidecar_does_not_fail_its_pod(stage: &Stage) -> Result<()> {
    let script = "trap 'say told; exit 5' USR1; trap 'say TERM' TERM; say up; while :; do sleep 1000 & wait $!; done";
    let draft = stage.pod("bad-hook")?.never_restarts().sidecar("s1", script).pre_stop("kill -USR1 1; sleep 1000");
    let mut pod = draft.main("app", POLITE).run().await?;
    pod.delete(&[]).await?;
    pod.gone().await?.was("Succeeded", &[("app", 0, "Completed"), ("s1", 5, "Error")])?;
    ensure!(!pod.said().contains(&"s1 TERM".to_owned()), "{:?}", pod.said());
    Ok(())
}

/// [NT-98] A main that takes too long costs the pod its success, and the sidecars their time.
async fn a_main_that_overruns_fails_its_pod(stage: &Stage) -> Result<()> {
    let draft = stage.pod("slow-main")?.grace(3).sidecar("s1", DEAF).sidecar("s2", POLITE);
    let mut pod = draft.main("app", DEAF).run().await?;
    let asked = pod.delete(&[]).await?;
    let end = pod.gone().await?;
    end.stayed(asked, 5.0)?;
    end.was("Failed", &[("app", 137, "Error"), ("s1", 137, "Error"), ("s2", 0, "Completed")])
}

/// [NT-99]
async fn a_sidecar_that_overruns_does_not_fail_its_pod(stage: &Stage) -> Result<()> {
    let draft = stage.pod("slow-side")?.grace(4).sidecar("s1", POLITE).sidecar("s2", DEAF).sidecar("s3", POLITE);
    let mut pod = draft.main("app", POLITE).run().await?;
    let asked = pod.delete(&[]).await?;
    let end = pod.gone().await?;
    end.stayed(asked, 4.0)?;
    pod.said_in_order(&["app TERM", "s3 TERM", "s2 TERM", "s1 TERM"])?;
    end.was(
        "Succeeded",
        &[("app", 0, "Completed"), ("s1", 0, "Completed"), ("s2", 137, "Error"), ("s3", 0, "Completed")],
    )
}

/// [NT-100]
async fn a_main_whose_hook_overruns_fails_its_pod(stage: &Stage) -> Result<()> {
    let draft = stage.pod("main-hook")?.grace(3).sidecar("s1", DEAF).sidecar("s2", POLITE);
    let mut pod = draft.main("app", DEAF).pre_stop("say hook; sleep 1000").run().await?;
    let asked = pod.delete(&[]).await?;
    let end = pod.gone().await?;
    end.stayed(asked, 5.0)?;
    end.was("Failed", &[("app", 137, "Error"), ("s1", 137, "Error"), ("s2", 0, "Completed")])
}

/// [NT-101]
async fn a_sidecar_whose_hook_overruns_is_killed_alone(stage: &Stage) -> Result<()> {
    let draft = stage.pod("side-hook")?.grace(3).sidecar("s1", POLITE);
    let draft = draft.sidecar("s2", DEAF).pre_stop("say hook; sleep 1000").sidecar("s3", POLITE);
    let mut pod = draft.main("app", POLITE).run().await?;
    let asked = pod.delete(&[]).await?;
    let end = pod.gone().await?;
    end.stayed(asked, 5.0)?;
    end.was(
        "Succeeded",
        &[("app", 0, "Completed"), ("s1", 0, "Completed"), ("s2", 137, "Error"), ("s3", 0, "Completed")],
    )
}

/// [NT-102] Whoever's turn has not come when the grace is spent is asked then, together with the others.
async fn a_turn_is_not_waited_for_beyond_the_grace(stage: &Stage) -> Result<()> {
    let draft = stage.pod("no-turn")?.grace(2).sidecar("s1", POLITE).sidecar("s2", DEAF).sidecar("s3", DEAF);
    let mut pod = draft.main("app", DEAF).run().await?;
    let asked = pod.delete(&[]).await?;
    let end = pod.gone().await?;
    end.came(pod.hears("app TERM").await?, asked, 0.0)?;
    for name in ["s1", "s2", "s3"] {
        end.came(pod.hears(&format!("{name} TERM")).await?, asked, 2.0)?;
    }
    end.stayed(asked, 4.0)
}

/// [NT-106] An init container counts as a main one.
async fn a_sidecar_leaves_after_a_running_init_container(stage: &Stage) -> Result<()> {
    let init = "trap 'say TERM; sleep 1; say out; exit 3' TERM; say up; sleep 1000 & wait";
    let draft = stage.pod("side-init")?.sidecar("s1", POLITE).init("setup", init).main("app", POLITE);
    let mut pod = draft.create().await?;
    for up in ["s1 up", "setup up"] {
        pod.hears(up).await?;
    }
    pod.delete(&[]).await?;
    let end = pod.gone().await?;
    pod.said_in_order(&["setup up", "setup TERM", "setup out", "s1 TERM"])?;
    end.was("Failed", &[("setup", 3, "Error"), ("s1", 0, "Completed")])
}

/// [NT-106] A sidecar that is down in the middle does not let the first one leave before the last.
async fn a_gap_in_the_sidecars_does_not_break_their_order(stage: &Stage) -> Result<()> {
    let crashes = "say here; until grep -q 'app up' /shared/log; do sleep 0.1; done; exit 1";
    let draft = stage.pod("gap")?.sidecar("s1", POLITE).sidecar("s2", crashes).sidecar("s3", SLOW);
    let mut pod = draft.main("app", POLITE).create().await?;
    for up in ["s1 up", "s3 up", "app up"] {
        pod.hears(up).await?;
    }
    pod.watch.until("a gap", |pod| waits_for(pod, "s2") == Some("CrashLoopBackOff")).await?;
    pod.delete(&[]).await?;
    let end = pod.gone().await?;
    pod.said_in_order(&["app TERM", "s3 TERM", "s3 out", "s1 TERM"])?;
    ensure!(phase(&end.pod) == Some("Succeeded"), "{:?}", end.pod.status);
    Ok(())
}
