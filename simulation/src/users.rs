//! What users do, one act after the other, and again if the platform died meanwhile.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::ResourceExt as _;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, EvictParams, GroupVersionKind, ListParams, Patch, PatchParams,
    PostParams,
};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::clock;
use crate::machine::{Life, Machine, plan_name};
use crate::scenario::{Act, Deed, PodPlan, Scenario};
use crate::trace::TraceEvent;
use crate::workload::{ROLLOUT, WorkloadPlan};
use crate::world::{LOOK, Order, is_excused, manifest, words_of};

/// How long a user asks for the end of the last pods of a node that is drained.
const DRAIN_MS: u64 = 30_000;
/// How long a user waits for a server.
const PATIENCE_MS: u64 = 30_000;

/// Users go on where they were when the agent died.
pub async fn act(life: &Life, admin: &kube::Client, agents: &[mpsc::Sender<Order>]) {
    let machine = &life.machine;
    for (number, act) in machine.scenario.acts.iter().enumerate().skip(machine.acts_done()) {
        let wait = act.at.saturating_sub(clock::now_ms());
        tokio::time::sleep(Duration::from_millis(wait)).await;
        machine.note(subject(act), TraceEvent::User(act.to_string()));
        // A server that cannot write says so, one that is down says nothing, and whoever wants something asks again.
        let patience = clock::now_ms() + PATIENCE_MS;
        let may_be_down = machine.scenario.crashes.iter().any(|crash| crash.server);
        while let Err(why) = perform(machine, admin, agents, number, act).await {
            if !(is_excused(machine) || may_be_down && clock::now_ms() < patience) {
                machine.note(subject(act), TraceEvent::NodeFailed(why));
                break;
            }
            tokio::time::sleep(LOOK).await;
        }
        machine.act_done();
    }
}

fn subject(act: &Act) -> &str {
    act.deed.subject().unwrap_or("-")
}

async fn perform(
    machine: &Machine,
    admin: &kube::Client,
    agents: &[mpsc::Sender<Order>],
    number: usize,
    act: &Act,
) -> Result<(), String> {
    if let Some(workload) = machine.scenario.workload(subject(act)) {
        return change_workload(machine, admin, workload, number, act).await;
    }
    let pods: Api<Pod> = Api::namespaced(admin.clone(), "default");
    let who = subject(act);
    let plan = machine.scenario.plan(who);
    let file = machine.disk.join("manifests").join(format!("{who}.json"));
    match (&act.deed, plan) {
        (Deed::Create(_), Some(plan)) if plan.is_static => write_manifest(&file, plan, false),
        (Deed::Create(_), Some(plan)) => {
            if plan.map {
                let map: ConfigMap =
                    serde_json::from_value(json!({ "metadata": { "name": "map" }, "data": { "k": "v" } }))
                        .expect("a map");
                let maps = Api::<ConfigMap>::namespaced(admin.clone(), "default");
                answered(maps.create(&PostParams::default(), &map).await, 409)?;
            }
            let pod: Pod = serde_json::from_value(manifest(&machine.scenario, plan, false)).expect("a pod");
            // After a crash it may be there already.
            answered(pods.create(&PostParams::default(), &pod).await, 409)?;
        }
        (Deed::Delete(name, grace), _) => {
            let grace_period_seconds = grace.and_then(|grace| u32::try_from(grace).ok());
            let params = DeleteParams { grace_period_seconds, ..DeleteParams::default() };
            answered(pods.delete(name, &params).await, 404)?;
        }
        (Deed::Edit(_), Some(plan)) => write_manifest(&file, plan, true),
        (Deed::Remove(_), _) => drop(std::fs::remove_file(&file)),
        (Deed::ShutDown, _) => {
            let (done, told) = oneshot::channel();
            if let Some(first) = agents.first()
                && first.send(done).await.is_ok()
                && told.await.is_ok()
            {
                machine.note("-", TraceEvent::ShutDown);
            }
        }
        (Deed::Drain(node), _) => drain(machine, admin, node).await?,
        (Deed::Uncordon(node), _) => cordon(admin, node, false).await?,
        (Deed::Create(_) | Deed::Edit(_) | Deed::Rollout(_) | Deed::Scale(..), None) => {}
        (Deed::Rollout(_) | Deed::Scale(..), Some(_)) => {}
    }
    Ok(())
}

/// What a user makes of an answer; this code is as good as any other.
fn answered<T>(answer: kube::Result<T>, fine: u16) -> Result<(), String> {
    match answer {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == fine => Ok(()),
        Err(error) => Err(words_of(&error)),
    }
}

fn write_manifest(file: &Path, plan: &PodPlan, edited: bool) {
    let text = manifest(&Scenario::default(), plan, edited).to_string();
    let draft = file.with_file_name(format!(".{}", plan.name));
    // The node has made the folder.
    if std::fs::write(&draft, text).is_ok() {
        let _ = std::fs::rename(draft, file);
    }
}

/// A workload is made, changed or deleted; another time does no harm.
async fn change_workload(
    machine: &Machine,
    admin: &kube::Client,
    plan: &WorkloadPlan,
    number: usize,
    act: &Act,
) -> Result<(), String> {
    let (group, version, kind, plural) = plan.kind.resource();
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
    let api: Api<DynamicObject> = Api::namespaced_with(admin.clone(), "default", &resource);
    let name = plan.name();
    let patch = |patch: Value| {
        let (api, name) = (api.clone(), name.to_owned());
        async move { answered(api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await, 404) }
    };
    match &act.deed {
        Deed::Create(_) => {
            let object = serde_json::from_value(plan.manifest(&machine.scenario)).map_err(|error| words_of(&error))?;
            answered(api.create(&PostParams::default(), &object).await, 409)
        }
        Deed::Delete(..) => answered(api.delete(name, &DeleteParams::background()).await, 404),
        Deed::Scale(_, replicas) => patch(json!({ "spec": { "replicas": replicas } })).await,
        Deed::Rollout(_) => {
            let before = machine.scenario.acts.iter().take(number).filter(|before| before.deed == act.deed).count();
            let rollout = json!({ ROLLOUT: (before + 1).to_string() });
            patch(json!({ "spec": { "template": { "metadata": { "annotations": rollout } } } })).await
        }
        Deed::Edit(_) | Deed::Remove(_) | Deed::ShutDown | Deed::Drain(_) | Deed::Uncordon(_) => Ok(()),
    }
}

async fn cordon(admin: &kube::Client, node: &str, unschedulable: bool) -> Result<(), String> {
    let patch = Patch::Merge(json!({ "spec": { "unschedulable": unschedulable } }));
    answered(Api::<Node>::all(admin.clone()).patch(node, &PatchParams::default(), &patch).await, 404)
}

/// As `kubectl drain` does: who has an owner is evicted, and asked for again while that is refused.
async fn drain(machine: &Machine, admin: &kube::Client, node: &str) -> Result<(), String> {
    cordon(admin, node, true).await?;
    let pods: Api<Pod> = Api::namespaced(admin.clone(), "default");
    let until = clock::now_ms() + DRAIN_MS;
    while clock::now_ms() < until {
        let here = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let here = pods.list(&here).await.map_err(|error| words_of(&error))?;
        let mut refused = false;
        for pod in here.items.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
            if machine.scenario.workload(plan_name(&pod.name_any())).is_none() {
                continue;
            }
            let label = machine.label(&pod.uid().unwrap_or_default(), &pod.name_any());
            machine.note(&label, TraceEvent::Evicted);
            match pods.evict(&pod.name_any(), &EvictParams::default()).await {
                Err(kube::Error::Api(status)) if status.code == 429 => refused = true,
                answer => answered(answer, 404)?,
            }
        }
        if !refused {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}
