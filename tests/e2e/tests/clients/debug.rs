//! Ephemeral containers, as `kubectl debug` adds them to a pod that runs.
#![allow(clippy::unwrap_used, reason = "tests")]

use anyhow::{Context, Result, ensure};
use e2e::pods::{PodWatch, SOON, busybox, is_ready};
use e2e::{Instance, Kubectl, Shared, complaints};
use k8s_openapi::api::core::v1::{ContainerState, Pod};
use kube::api::{Api, PostParams};
use serde_json::json;

/// What the pod shows of an ephemeral container.
fn shown<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerState> {
    let all = pod.status.as_ref()?.ephemeral_container_statuses.as_ref()?;
    all.iter().find(|status| status.name == name)?.state.as_ref()
}

fn exit_code(pod: &Pod, name: &str) -> Option<i32> {
    Some(shown(pod, name)?.terminated.as_ref()?.exit_code)
}

/// [NT-105] A guest sees the processes of the container it is meant for, ends without a trace, is there through a crash of
/// the agent, and gets TERM with the others when the pod leaves.
#[tokio::test(flavor = "multi_thread")]
async fn kubectl_debug_looks_into_a_running_pod() -> Result<()> {
    let mut instance = Instance::start().await?;
    let shared = Shared::new()?;
    let script = "trap 'echo app >> /shared/log; exit 0' TERM; echo up >> /shared/log; sleep 4321 & wait";
    for kubectl in Kubectl::all(&instance)? {
        // Before that the command was another, for an API that nobody serves any more.
        if kubectl.minor().await? < 25 {
            continue;
        }
        let client = instance.client().await?;
        let mut watch = PodWatch::on(&client, "web").await?;
        kubectl.apply(&busybox("web", 30, script, &shared)).await?;
        watch.ready().await?;
        shared.wait_lines("log", 1).await?;

        let debug = ["debug", "-i", "web", "--image=busybox", "--image-pull-policy=IfNotPresent", "--target=app"];
        let asked = [&debug[..], &["-c", "looks", "--", "sh"]].concat();
        let seen = kubectl.run_with(&asked, "ps; hostname; cat /proc/1/root/shared/log; exit 5\n").await;
        let seen = seen.with_context(|| kubectl.name())?;
        for words in ["sleep 4321", "web\n", "up\n"] {
            ensure!(seen.contains(words), "{}: no {words:?} in {seen}", kubectl.name());
        }
        watch.until("a guest that left", |pod| exit_code(pod, "looks") == Some(5)).await?;

        let stays = "trap 'exit 7' TERM; echo here; sleep 1000 & wait";
        let asked = ["debug", "web", "--image=busybox", "-c", "stays", "--", "sh", "-c", stays];
        kubectl.run(&asked).await?;
        watch.until("a guest that stays", |pod| shown(pod, "stays").is_some_and(|s| s.running.is_some())).await?;
        assert_eq!(kubectl.follow(&["logs", "-f", "web", "-c", "stays"])?.next().await?, "here");
        assert_eq!(kubectl.run(&["exec", "web", "-c", "stays", "--", "hostname"]).await?, "web\n");

        instance.kill_9().await?;
        instance.up().await?;
        let client = instance.client().await?;
        let mut watch = PodWatch::on(&client, "web").await?;
        let api: Api<Pod> = Api::namespaced(client.clone(), "default");
        watch.until("back", |pod| shown(pod, "stays").is_some_and(|s| s.running.is_some())).await?;
        let pod = api.get("web").await?;
        ensure!(is_ready(&pod), "guests do not count");
        let guests = pod.status.as_ref().unwrap().ephemeral_container_statuses.as_ref().unwrap();
        ensure!(guests.iter().all(|guest| guest.restart_count == 0), "{guests:?}");
        let described = kubectl.run(&["describe", "pod", "web"]).await?;
        ensure!(described.contains("Ephemeral Containers:") && described.contains("Exit Code:    5"), "{described}");
        changes(&api, &pod).await?;

        kubectl.run(&["delete", "pod", "web", "--wait=false"]).await?;
        let (_, last) = watch.gone(SOON).await?;
        assert_eq!(exit_code(&last, "stays"), Some(7), "{}: {:?}", kubectl.name(), last.status);
        assert_eq!(shared.wait_lines("log", 2).await?, ["up", "app"]);
        std::fs::remove_file(shared.path().join("log"))?;
    }
    complaints::ensure_none(&instance, &[])?;
    instance.down().await?;
    Ok(())
}

/// A guest may come, and is not changed or taken back. What else the pod says stays as it is.
async fn changes(api: &Api<Pod>, pod: &Pod) -> Result<()> {
    let put = async |pod: &Pod| api.replace_ephemeral_containers("web", &PostParams::default(), pod).await;
    let refused = |answer: kube::Result<Pod>| match answer {
        Err(kube::Error::Api(status)) if status.code == 422 => Ok(status.message),
        other => anyhow::bail!("not refused: {other:?}"),
    };
    let guests = |pod: &mut Pod| pod.spec.as_mut().unwrap().ephemeral_containers.take().unwrap();
    let mut fewer = pod.clone();
    guests(&mut fewer);
    let told = refused(put(&fewer).await)?;
    ensure!(told.contains("existing ephemeral containers \"looks\" may not be removed"), "{told}");
    let mut other = pod.clone();
    other.spec.as_mut().unwrap().ephemeral_containers.as_mut().unwrap()[0].image = Some("other".into());
    let told = refused(put(&other).await)?;
    ensure!(told.contains("existing ephemeral containers \"looks\" may not be changed"), "{told}");
    let mut lost = pod.clone();
    let stray = json!({ "name": "lost", "image": "busybox", "targetContainerName": "nobody" });
    lost.spec.as_mut().unwrap().ephemeral_containers.as_mut().unwrap().push(serde_json::from_value(stray)?);
    let told = refused(put(&lost).await)?;
    ensure!(told.contains("spec.ephemeralContainers[2].targetContainerName: Not found: \"nobody\""), "{told}");
    let mut more = pod.clone();
    more.metadata.labels = None;
    let added = json!({ "name": "third", "image": "busybox", "command": ["false"] });
    more.spec.as_mut().unwrap().ephemeral_containers.as_mut().unwrap().push(serde_json::from_value(added)?);
    let stored = put(&more).await?;
    ensure!(stored.metadata.labels == pod.metadata.labels, "{:?}", stored.metadata.labels);
    assert_eq!(stored.metadata.generation, pod.metadata.generation.map(|before| before + 1));
    Ok(())
}
