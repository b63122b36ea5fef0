//! What is sent to whom: the signal, its receiver, and those who outlive the first process.

use anyhow::{Result, ensure};
use e2e::pods::status;
use e2e::stage::Stage;
use e2e::stories;
use e2e::story::{HOLDS_THE_GATE, POLITE};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn the_right_process_gets_the_right_signal() -> Result<()> {
    let stage = &Stage::set().await?;
    let stories = stories![stage;
        the_signal_of_the_spec_is_sent_and_shown, a_signal_needs_to_know_its_system, only_the_first_process_is_asked,
        shared_pid_namespace_ends_with_its_first_process, an_open_exec_ends_with_its_container,
        kill_as_a_stop_signal_is_told_as_it_was,
    ];
    stage.tell(stories, &[]).await
}

/// [NT-86] The one that was asked for, and not TERM.
async fn the_signal_of_the_spec_is_sent_and_shown(stage: &Stage) -> Result<()> {
    let script = "trap 'say USR1; exit 0' USR1; trap 'say TERM' TERM; say up; while :; do sleep 1000 & wait $!; done";
    let draft = stage.pod("usr1")?.spec("os", json!({ "name": "linux" })).main("app", script);
    let mut pod = draft.hook("stopSignal", "SIGUSR1".into()).run().await?;
    let shown = status(pod.watch.last.as_ref().unwrap(), "app").and_then(|status| status.stop_signal.clone());
    ensure!(shown.as_deref() == Some("SIGUSR1"), "{shown:?}");
    pod.delete(&[]).await?;
    pod.gone().await?.was("Succeeded", &[("app", 0, "Completed")])?;
    pod.said_only(&["app up", "app USR1"])
}

/// [NT-87]
async fn a_signal_needs_to_know_its_system(stage: &Stage) -> Result<()> {
    let draft = stage.pod("no-system")?.main("app", POLITE).hook("stopSignal", "SIGUSR1".into());
    let refusal = stage.apply(draft.manifest()).await.map_err(|error| format!("{error:#}"));
    let Err(refusal) = refusal else { anyhow::bail!("it is not refused") };
    ensure!(refusal.contains("spec.containers[0].lifecycle.stopSignal"), "{refusal}");
    Ok(())
}

/// [NT-90] A child that would say that it was asked is not asked; it goes with its parent.
async fn only_the_first_process_is_asked(stage: &Stage) -> Result<()> {
    let child = "trap 'say child; exit 0' TERM; say ready; while :; do sleep 0.1; done";
    // The parent gives the child time to speak, and then leaves.
    let script = format!(
        "{HOLDS_THE_GATE} ( {child} ) & trap 'say TERM; sleep 1; say out; exit 0' TERM; say up; \
         while :; do sleep 1000 & wait $!; done"
    );
    let mut pod = stage.pod("parent")?.main("app", &script).run().await?;
    pod.hears("app ready").await?;
    pod.delete(&[]).await?;
    pod.gone().await?.was("Succeeded", &[("app", 0, "Completed")])?;
    pod.dies().await?;
    pod.said_in_order(&["app up", "app TERM", "app out"])?;
    ensure!(!pod.said().contains(&"app child".to_owned()), "{:?}", pod.said());
    Ok(())
}

/// [NT-89] In a shared namespace the first process is not the last, and nobody is left all the same.
async fn shared_pid_namespace_ends_with_its_first_process(stage: &Stage) -> Result<()> {
    let script = format!(
        "{HOLDS_THE_GATE} ( trap '' TERM HUP; say child; while :; do sleep 1000; done ) & \
         trap 'say TERM; exit 0' TERM; say up; while :; do sleep 1000 & wait $!; done"
    );
    let draft = stage.pod("family")?.spec("shareProcessNamespace", true.into());
    let mut pod = draft.main("app", &script).run().await?;
    pod.hears("app child").await?;
    pod.delete(&[]).await?;
    pod.gone().await?.was("Succeeded", &[("app", 0, "Completed")])?;
    pod.dies().await?;
    pod.said_in_order(&["app up", "app TERM"])
}

/// [NT-91] The stream ends, kubectl with it, and no process remains.
async fn an_open_exec_ends_with_its_container(stage: &Stage) -> Result<()> {
    let mut pod = stage.pod("visited")?.main("app", POLITE).run().await?;
    let visit = format!("{HOLDS_THE_GATE} echo hello; echo 0 visitor up >> /shared/log; cat");
    let typing = e2e::Kubectl::newest(&stage.instance)?;
    let mut exec = typing.command(&["exec", "-i", "visited", "--", "sh", "-c", &visit]);
    // It has nobody to hear from, and does not end because of that.
    let mut exec = exec.stdin(std::process::Stdio::piped()).spawn()?;
    let input = exec.stdin.take();
    pod.hears("visitor up").await?;
    pod.delete(&[]).await?;
    let output = tokio::time::timeout(e2e::stage::PATIENCE, exec.wait_with_output()).await??;
    drop(input);
    ensure!(output.stdout == b"hello\n" && !output.status.success(), "{output:?}");
    pod.gone().await?.was("Succeeded", &[("app", 0, "Completed")])?;
    pod.dies().await.map(drop)
}

/// Whoever wants to be killed is, at once.
async fn kill_as_a_stop_signal_is_told_as_it_was(stage: &Stage) -> Result<()> {
    let draft = stage.pod("kill")?.spec("os", json!({ "name": "linux" })).main("app", POLITE);
    let mut pod = draft.hook("stopSignal", "SIGKILL".into()).run().await?;
    pod.delete(&[]).await?;
    pod.gone().await?.was("Failed", &[("app", 137, "Error")])?;
    pod.said_only(&["app up"])
}
