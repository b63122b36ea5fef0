//! Objects that are nested too deeply, or too large: refused while they are sent, and survived where they are stored.
#![allow(clippy::unwrap_used, reason = "tests")]

use anyhow::{Context, Result, ensure};
use e2e::pods::{PodWatch, busybox};
use e2e::{Instance, Kubectl, Shared};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

const SCRIPT: &str = "trap 'echo TERM >> /shared/log; exit 0' TERM; echo up >> /shared/log; sleep 1000 & wait";

fn managed(fields: &Value) -> Value {
    json!([{ "manager": "someone", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1", "fieldsV1": fields }])
}

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!({}), |inner, _| json!({ "f:a": inner }))
}

/// What the server answers, which must be a refusal.
fn refusal<T>(answer: kube::Result<T>) -> Result<kube::core::Status> {
    match answer {
        Err(kube::Error::Api(status)) => Ok(*status),
        Err(error) => Err(error).context("no answer"),
        Ok(_) => anyhow::bail!("it is not refused"),
    }
}

async fn runs(instance: &Instance, shared: &Shared, name: &str) -> Result<()> {
    let client = instance.client().await?;
    let mut watch = PodWatch::on(&client, name).await?;
    let pod = serde_json::from_value(busybox(name, 30, SCRIPT, shared))?;
    Api::<Pod>::default_namespaced(client).create(&PostParams::default(), &pod).await?;
    watch.until("runs", |pod| pod.status.as_ref().and_then(|it| it.phase.as_deref()) == Some("Running")).await?;
    Ok(())
}

/// [SE-91] [SE-92] The pod that stopped a node for ever, and the workload that an editor grew until the store ended.
#[tokio::test(flavor = "multi_thread")]
async fn nested_and_growing_objects_are_refused_and_pods_go_on_running() -> Result<()> {
    let mut instance = Instance::start().await?;
    let shared = Shared::new()?;
    let client = instance.client().await?;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    for levels in [61, 100, 120] {
        let mut pod = busybox("nested", 30, SCRIPT, &shared);
        pod["metadata"]["managedFields"] = managed(&nested(levels));
        let status = refusal(pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await)?;
        ensure!(status.code == 422, "{levels}: {status:?}");
        let cause = status.details.context("details")?.causes.into_iter().next().context("a cause")?;
        ensure!(cause.field.starts_with("metadata.managedFields[0].fieldsV1"), "{cause:?}");
    }

    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let made = json!({ "metadata": { "name": "grows" }, "spec": { "replicas": 0,
        "selector": { "matchLabels": { "a": "b" } }, "template": { "metadata": { "labels": { "a": "b" } },
        "spec": { "containers": [{ "name": "c", "image": "busybox" }] } } } });
    deployments.create(&PostParams::default(), &serde_json::from_value(made)?).await?;
    let mut grown = 0;
    let status = loop {
        let variable = json!({ "name": format!("V{grown}"), "value": "x".repeat(100_000) });
        let container = json!({ "name": "c", "env": [variable] });
        let patch = json!({ "spec": { "template": { "spec": { "containers": [container] } } } });
        match deployments.patch("grows", &PatchParams::default(), &Patch::Strategic(patch)).await {
            Ok(_) => grown += 1,
            refused => break refusal(refused)?,
        }
        ensure!(grown < 100, "it grows without end");
    };
    ensure!((status.code, status.reason.as_str()) == (413, "RequestEntityTooLarge"), "{status:?}");
    ensure!(status.message.contains("1572864") && grown > 5, "{grown}: {}", status.message);
    // The same downwards.
    let kubectl = Kubectl::newest(&instance)?;
    let (mut path, mut deeper) = ("/metadata/managedFields/0/fieldsV1".to_owned(), 0);
    let said = loop {
        path.push_str("/f:a");
        let patch = json!([{ "op": "add", "path": path, "value": nested(1) }]).to_string();
        match kubectl.run(&["patch", "deployment", "grows", "--type=json", "-p", &patch]).await {
            Ok(_) => deeper += 1,
            Err(error) => break format!("{error:#}"),
        }
        ensure!(deeper < 100, "it deepens without end");
    };
    ensure!(said.contains("must not be nested deeper than 64 levels") && deeper > 20, "{deeper}: {said}");

    runs(&instance, &shared, "after").await?;
    deployments.delete("grows", &DeleteParams::default()).await?;
    instance.down().await?;
    assert_eq!(shared.lines("log"), ["up", "TERM"]);
    Ok(())
}

/// [SE-91] A folder of an earlier version, which took what stops every reader, and one row that was never an object.
#[tokio::test(flavor = "multi_thread")]
async fn data_directory_with_unreadable_objects_comes_up_runs_pods_and_goes_down() -> Result<()> {
    let mut instance = Instance::start().await?;
    let shared = Shared::new()?;
    let maps: Api<ConfigMap> = Api::default_namespaced(instance.client().await?);
    let sound = json!({ "metadata": { "name": "sound" }, "data": { "a": "1" } });
    maps.create(&PostParams::default(), &serde_json::from_value(sound)?).await?;
    instance.stop().await?;
    let store = instance.dir().join("store");
    for (levels, name) in [(127, "nested"), (4000, "abyss")] {
        let metadata = json!({ "name": name, "namespace": "default", "uid": format!("uid-{name}"),
            "creationTimestamp": "2026-01-01T00:00:00Z" })
        .to_string();
        let fields = format!("{}{{}}{}", r#"{"f:a":"#.repeat(levels), "}".repeat(levels));
        let metadata = metadata.strip_suffix('}').context("an object")?;
        let entry = format!(r#"{{"manager":"m","operation":"Update","fieldsType":"FieldsV1","fieldsV1":{fields}}}"#);
        let spec = r#"{"containers":[{"name":"app","image":"busybox"}],"nodeName":"elsewhere"}"#;
        let pod = format!(r#"{{"metadata":{metadata},"managedFields":[{entry}]}},"spec":{spec},"status":{{}}}}"#);
        testkit::rows::append_row(&store, ("pods", "default", name), pod.as_bytes())?;
    }
    testkit::rows::append_row(&store, ("configmaps", "default", "broken"), b"\x00 this was never an object")?;
    testkit::rows::append_row(&store, ("nodes", "", "broken"), b"[]")?;

    instance.up().await?;
    let client = instance.client().await?;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    ensure!(maps.get("sound").await?.data.is_some_and(|data| data["a"] == "1"));
    ensure!(
        maps.list(&ListParams::default()).await?.items.iter().all(|map| map.metadata.name.as_deref() != Some("broken"))
    );
    let status = refusal(maps.get("broken").await)?;
    ensure!((status.code, status.reason.as_str()) == (500, "StorageReadError"), "{status:?}");
    maps.delete("broken", &DeleteParams::default()).await?;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    ensure!(pods.get("abyss").await?.spec.is_some_and(|spec| spec.containers.len() == 1));
    runs(&instance, &shared, "one").await?;
    let said = std::fs::read_to_string(instance.log())?;
    for key in ["pods/default/nested", "pods/default/abyss", "configmaps/default/broken", "nodes/broken"] {
        ensure!(said.contains(key), "the log does not name {key}");
    }
    let force = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    pods.delete("nested", &force).await?;
    // Without the process, by itself: what is left is still in the store.
    instance.kill_9().await?;
    instance.down().await?;
    assert_eq!(shared.lines("log"), ["up", "TERM"]);
    instance.up().await?;
    ensure!(instance.client().await?.apiserver_version().await?.major == "1");
    instance.down().await?;
    Ok(())
}
