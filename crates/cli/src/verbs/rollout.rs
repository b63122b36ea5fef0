//! `adieu rollout` and `adieu scale`: what a workload is asked to become, and how far it is.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand};
use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::apply::FIELD_MANAGER;
use super::get::{eprint_line, next_line};
use super::pods;
use super::requests::{Call, MERGE_PATCH, path_segment};
use super::resources::{Resource, Resources};
use super::select::{self, Scope, Selection, selections};
use crate::cluster::{Cluster, ClusterArgs};
use crate::table::aligned;

const REVISION: &str = "deployment.kubernetes.io/revision";
const CHANGE_CAUSE: &str = "kubernetes.io/change-cause";
const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";
const TEMPLATE_HASH: &str = "pod-template-hash";
/// A watch that ends is begun again, but not faster.
const AGAIN: Duration = Duration::from_millis(200);

/// `adieu rollout`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  adieu rollout restart deploy/web            replace every pod
  adieu rollout status deploy/web             wait until that is done
  adieu rollout history deploy/web
  adieu rollout undo deploy/web               back to the revision before
  adieu rollout undo deploy/web --to-revision=3
  adieu rollout pause deploy/web
  adieu rollout resume deploy/web")]
pub struct RolloutArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: RolloutCommand,
}

/// What a rollout is asked for.
#[derive(Subcommand, Clone, Debug)]
pub enum RolloutCommand {
    /// Wait until a rollout is done
    Status {
        /// Which.
        #[command(flatten)]
        which: Workloads,
        /// Only look, do not wait
        #[arg(short, long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set)]
        watch: bool,
        /// How long to wait, such as 90s; 0 for ever
        #[arg(long, value_name = "TIME", value_parser = super::duration, default_value = "0")]
        timeout: Duration,
    },
    /// Replace every pod
    Restart {
        /// Which.
        #[command(flatten)]
        which: Workloads,
    },
    /// Go back to an earlier revision of a Deployment
    Undo {
        /// Which.
        #[command(flatten)]
        which: Workloads,
        /// To which [default: the one before]
        #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
        to_revision: u64,
    },
    /// List the revisions of a Deployment
    History {
        /// Which.
        #[command(flatten)]
        which: Workloads,
        /// Show the pods of this one
        #[arg(long, value_name = "N")]
        revision: Option<u64>,
    },
    /// Begin no rollout of a Deployment until it is resumed
    Pause {
        /// Which.
        #[command(flatten)]
        which: Workloads,
    },
    /// Roll out what was changed since a Deployment was paused
    Resume {
        /// Which.
        #[command(flatten)]
        which: Workloads,
    },
}

/// Which workloads are meant.
#[derive(Args, Clone, Debug)]
pub struct Workloads {
    /// deploy/NAME, sts/NAME, ds NAME
    #[arg(value_name = "WHAT", required = true)]
    pub what: Vec<String>,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// With these labels
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub selector: Option<String>,
}

impl RolloutCommand {
    /// Which workloads are meant.
    pub(crate) fn which(&self) -> &Workloads {
        match self {
            Self::Status { which, .. }
            | Self::Restart { which }
            | Self::Undo { which, .. }
            | Self::History { which, .. }
            | Self::Pause { which }
            | Self::Resume { which } => which,
        }
    }
}

/// Does it.
pub(crate) async fn run(args: &RolloutArgs, cluster: &Cluster, now: Timestamp, out: &mut dyn Write) -> Result<()> {
    for (resource, name) in workloads(args.command.which(), cluster).await? {
        let target = Target { cluster, resource, name };
        match &args.command {
            RolloutCommand::Status { watch, timeout: limit, .. } => match limit.is_zero() {
                true => target.status(*watch, out).await?,
                false => {
                    let waiting = target.status(*watch, out);
                    timeout(*limit, waiting).await.with_context(|| format!("not within {limit:?}"))??;
                }
            },
            RolloutCommand::Restart { .. } => {
                target.only(&["Deployment", "StatefulSet", "DaemonSet"], "restarted")?;
                target.restart(now).await?;
                writeln!(out, "{} restarted", target.shown())?;
            }
            RolloutCommand::Pause { .. } | RolloutCommand::Resume { .. } => {
                target.only(&["Deployment"], "paused")?;
                let pauses = matches!(args.command, RolloutCommand::Pause { .. });
                let was = target.read().await?["spec"]["paused"] == true;
                let word = if pauses { "paused" } else { "resumed" };
                ensure!(was != pauses, "{} is {word} already", target.shown());
                target.patch(&json!({ "spec": { "paused": pauses } })).await?;
                writeln!(out, "{} {word}", target.shown())?;
            }
            RolloutCommand::Undo { to_revision, .. } => target.undo(*to_revision, out).await?,
            RolloutCommand::History { revision, .. } => target.history(*revision, out).await?,
        }
    }
    Ok(())
}

async fn workloads(which: &Workloads, cluster: &Cluster) -> Result<Vec<(Resource, String)>> {
    let mut resources = Resources::default();
    let mut found = Vec::new();
    for Selection { resource, names } in selections(cluster, &mut resources, &which.what).await? {
        if !names.is_empty() {
            found.extend(names.into_iter().map(|name| (resource.clone(), name)));
            continue;
        }
        let scope = Scope { namespace: Some(&cluster.namespace), labels: which.selector.as_deref(), fields: None };
        let list = cluster.ask(&scope.list(&resource)?).await?.value;
        found.extend(
            select::items(&list, &resource).iter().map(|item| (resource.clone(), select::name(item).to_owned())),
        );
    }
    ensure!(!found.is_empty(), "nothing found in the namespace {}", cluster.namespace);
    Ok(found)
}

/// One workload.
pub(crate) struct Target<'a> {
    pub cluster: &'a Cluster,
    pub resource: Resource,
    pub name: String,
}

impl Target<'_> {
    fn shown(&self) -> String {
        self.resource.object_name(&self.name)
    }

    fn only(&self, kinds: &[&str], what: &str) -> Result<()> {
        ensure!(
            kinds.contains(&self.resource.kind.as_str()),
            "{} cannot be {what}: only {} can",
            self.shown(),
            kinds.join(", ")
        );
        Ok(())
    }

    fn path(&self) -> Result<String> {
        self.resource.object(&self.cluster.namespace, &self.name)
    }

    async fn read(&self) -> Result<Value> {
        Ok(self.cluster.ask(&Call::get(self.path()?, format!("get {}", self.shown()))).await?.value)
    }

    async fn patch(&self, patch: &Value) -> Result<Value> {
        let call = Call::new(Method::PATCH, self.path()?, format!("change {}", self.shown())).body(MERGE_PATCH, patch);
        let answer = self.cluster.ask(&call.query("fieldManager", FIELD_MANAGER)).await?;
        answer.warnings.iter().for_each(|warning| eprint_line(&format!("Warning: {warning}")));
        Ok(answer.value)
    }

    /// Has every pod replaced.
    pub(crate) async fn restart(&self, now: Timestamp) -> Result<()> {
        let annotations = json!({ RESTARTED_AT: now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string() });
        self.patch(&json!({ "spec": { "template": { "metadata": { "annotations": annotations } } } })).await?;
        Ok(())
    }

    /// Says how far it is each time that changes, until it is done.
    pub(crate) async fn status(&self, watch: bool, out: &mut dyn Write) -> Result<()> {
        self.only(&["Deployment", "StatefulSet", "DaemonSet"], "watched")?;
        let mut said = String::new();
        loop {
            let object = self.read().await?;
            if self.tell(&object, &mut said, out)? || !watch {
                return Ok(());
            }
            let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
            let fields = format!("metadata.name={}", self.name);
            let scope = Scope { namespace: Some(&self.cluster.namespace), labels: None, fields: Some(&fields) };
            let call = scope.list(&self.resource)?.query("watch", "true").query("resourceVersion", version);
            let mut lines = self.cluster.stream(&call).await?;
            while let Ok(Some(line)) = next_line(&mut lines).await {
                let event: Value = serde_json::from_slice(&line).context("the server's watch cannot be read")?;
                match event["type"].as_str() {
                    Some("ADDED" | "MODIFIED") if self.tell(&event["object"], &mut said, out)? => return Ok(()),
                    Some("DELETED") => bail!("{} was deleted", self.shown()),
                    Some("ERROR") => break,
                    _ => {}
                }
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    fn tell(&self, object: &Value, said: &mut String, out: &mut dyn Write) -> Result<bool> {
        let (text, is_done) = progress(object, &self.name)?;
        if text != *said {
            writeln!(out, "{text}")?;
            out.flush()?;
            *said = text;
        }
        Ok(is_done)
    }

    /// The ReplicaSets of a Deployment by revision, the oldest first.
    async fn revisions(&self) -> Result<Vec<(u64, Value)>> {
        self.only(&["Deployment"], "rolled back")?;
        let object = self.read().await?;
        let labels = pods::labels_of(&object);
        let path = format!("/apis/apps/v1/namespaces/{}/replicasets", path_segment(&self.cluster.namespace)?);
        let call = Call::get(path, "list replicasets.apps").maybe("labelSelector", labels);
        let list = self.cluster.ask(&call).await?.value;
        let uid = &object["metadata"]["uid"];
        let is_own = |set: &&Value| {
            let owners = set["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            owners.into_iter().any(|owner| &owner["uid"] == uid)
        };
        let sets = list["items"].as_array().into_iter().flatten().filter(is_own);
        let revision = |set: &Value| set["metadata"]["annotations"][REVISION].as_str()?.parse::<u64>().ok();
        let mut revisions: Vec<_> = sets.filter_map(|set| Some((revision(set)?, set.clone()))).collect();
        revisions.sort_by_key(|(revision, _)| *revision);
        Ok(revisions)
    }

    async fn undo(&self, to: u64, out: &mut dyn Write) -> Result<()> {
        let revisions = self.revisions().await?;
        let object = self.read().await?;
        ensure!(object["spec"]["paused"] != true, "{} is paused; resume it first", self.shown());
        let wanted = match to {
            0 => revisions.iter().rev().nth(1),
            to => revisions.iter().find(|(revision, _)| *revision == to),
        };
        let Some((revision, set)) = wanted else {
            let known: Vec<String> = revisions.iter().map(|(revision, _)| revision.to_string()).collect();
            bail!(
                "{} has no {}; there are: {}",
                self.shown(),
                if to == 0 { "earlier revision".to_owned() } else { format!("revision {to}") },
                known.join(", ")
            );
        };
        let mut template = set["spec"]["template"].clone();
        if let Some(labels) = template["metadata"]["labels"].as_object_mut() {
            labels.remove(TEMPLATE_HASH);
        }
        // All of it, so that nothing of the present one stays.
        let patch = json!([{ "op": "replace", "path": "/spec/template", "value": template }]);
        let call = Call::new(Method::PATCH, self.path()?, format!("change {}", self.shown()));
        self.cluster
            .ask(&call.body("application/json-patch+json", &patch).query("fieldManager", FIELD_MANAGER))
            .await?;
        Ok(writeln!(out, "{} rolled back to revision {revision}", self.shown())?)
    }

    async fn history(&self, revision: Option<u64>, out: &mut dyn Write) -> Result<()> {
        let revisions = self.revisions().await?;
        if let Some(wanted) = revision {
            let Some((_, set)) = revisions.iter().find(|(revision, _)| *revision == wanted) else {
                bail!("{} has no revision {wanted}", self.shown());
            };
            return Ok(out.write_all(super::format::yaml(&set["spec"]["template"])?.as_bytes())?);
        }
        let mut rows = vec![["REVISION", "CHANGE-CAUSE"].map(str::to_owned).to_vec()];
        for (revision, set) in &revisions {
            let cause = set["metadata"]["annotations"][CHANGE_CAUSE].as_str().unwrap_or("<none>");
            rows.push(vec![revision.to_string(), crate::table::plain(cause)]);
        }
        Ok(out.write_all(aligned(&rows).as_bytes())?)
    }
}

/// How far a workload is, in a sentence, and whether it is done.
pub(crate) fn progress(object: &Value, name: &str) -> Result<(String, bool)> {
    let count = |field: &str| object["status"][field].as_i64().unwrap_or(0);
    let wanted = object["spec"]["replicas"].as_i64().unwrap_or(1);
    let kind = object["kind"].as_str().unwrap_or_default();
    if count("observedGeneration") < object["metadata"]["generation"].as_i64().unwrap_or(0) {
        return Ok(("waiting until the change is seen".to_owned(), false));
    }
    let strategy = object["spec"]["updateStrategy"]["type"].as_str();
    ensure!(
        strategy != Some("OnDelete"),
        "{name} is rolled out by deleting its pods (OnDelete): there is no progress to watch"
    );
    let (wanted, updated, available) = match kind {
        "DaemonSet" => (count("desiredNumberScheduled"), count("updatedNumberScheduled"), count("numberAvailable")),
        "StatefulSet" => (wanted, count("updatedReplicas"), count("readyReplicas")),
        _ => (wanted, count("updatedReplicas"), count("availableReplicas")),
    };
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    if conditions
        .into_iter()
        .any(|condition| condition["type"] == "Progressing" && condition["reason"] == "ProgressDeadlineExceeded")
    {
        bail!("{name} made no progress within its deadline (progressDeadlineSeconds)");
    }
    if kind == "StatefulSet" {
        let partition = object["spec"]["updateStrategy"]["rollingUpdate"]["partition"].as_i64().unwrap_or(0);
        if partition > 0 {
            let asked = (wanted - partition).max(0);
            return Ok(match updated < asked {
                true => (format!("{name}: {updated} of {asked} pods above the partition are replaced"), false),
                false => (format!("{name}: every pod above the partition is replaced"), true),
            });
        }
    }
    if updated < wanted {
        return Ok((format!("{name}: {updated} of {wanted} new pods are there"), false));
    }
    let old = count("replicas") - updated;
    if kind == "Deployment" && old > 0 {
        return Ok((format!("{name}: {old} old pods are leaving"), false));
    }
    if available < wanted {
        return Ok((format!("{name}: {available} of {wanted} new pods are available"), false));
    }
    let behind = object["status"]["updateRevision"] != object["status"]["currentRevision"];
    if kind == "StatefulSet" && behind && count("currentReplicas") != wanted {
        return Ok((format!("{name}: waiting until the new revision is the current one"), false));
    }
    Ok((format!("{name} successfully rolled out"), true))
}

/// `adieu scale`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  adieu scale deploy/web --replicas=4
  adieu scale deploy/web --current-replicas=2 --replicas=4   only if it has two now")]
pub struct ScaleArgs {
    /// Which.
    #[command(flatten)]
    pub which: Workloads,
    /// How many pods it is to have
    #[arg(long, value_name = "N")]
    pub replicas: u32,
    /// Only if it is asked to have so many now
    #[arg(long, value_name = "N")]
    pub current_replicas: Option<u32>,
}

/// Asks for so many.
pub(crate) async fn scale(args: &ScaleArgs, cluster: &Cluster, out: &mut dyn Write) -> Result<()> {
    for (resource, name) in workloads(&args.which, cluster).await? {
        let target = Target { cluster, resource, name };
        let path = format!("{}/scale", target.path()?);
        let mut patch = json!({ "spec": { "replicas": args.replicas } });
        if let Some(current) = args.current_replicas {
            let now = cluster.ask(&Call::get(&path, format!("get the scale of {}", target.shown()))).await?.value;
            let has = now["spec"]["replicas"].as_u64().unwrap_or(0);
            ensure!(has == u64::from(current), "{} is asked to have {has} pods, not {current}", target.shown());
            // Nobody may change it in between.
            patch["metadata"] = json!({ "resourceVersion": now["metadata"]["resourceVersion"] });
        }
        let call = Call::new(Method::PATCH, path, format!("scale {}", target.shown())).body(MERGE_PATCH, &patch);
        cluster.ask(&call.query("fieldManager", FIELD_MANAGER)).await?;
        writeln!(out, "{} scaled", target.shown())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn deployment(observed: i64, replicas: i64, updated: i64, available: i64) -> Value {
        json!({ "kind": "Deployment", "metadata": { "generation": 2 }, "spec": { "replicas": 4 }, "status": {
            "observedGeneration": observed, "replicas": replicas, "updatedReplicas": updated, "availableReplicas": available,
        } })
    }

    #[test]
    fn progress_of_a_rollout_is_told_until_every_old_pod_is_gone_and_every_new_one_available() {
        let told = |object: Value| progress(&object, "web").unwrap();
        assert!(!told(deployment(1, 4, 4, 4)).1, "the change was not seen");
        assert_eq!(told(deployment(2, 5, 2, 4)), ("web: 2 of 4 new pods are there".to_owned(), false));
        assert_eq!(told(deployment(2, 5, 4, 4)), ("web: 1 old pods are leaving".to_owned(), false));
        assert_eq!(told(deployment(2, 4, 4, 3)), ("web: 3 of 4 new pods are available".to_owned(), false));
        assert_eq!(told(deployment(2, 4, 4, 4)), ("web successfully rolled out".to_owned(), true));
        let mut stuck = deployment(2, 5, 2, 4);
        stuck["status"]["conditions"] = json!([{ "type": "Progressing", "reason": "ProgressDeadlineExceeded" }]);
        assert!(progress(&stuck, "web").is_err());
    }

    #[test]
    fn progress_of_sets_counts_what_each_calls_it() {
        let set = json!({ "kind": "StatefulSet", "spec": { "replicas": 3, "updateStrategy": { "rollingUpdate": { "partition": 2 } } },
            "status": { "updatedReplicas": 1, "readyReplicas": 3 } });
        assert!(progress(&set, "db").unwrap().1);
        let daemon = json!({ "kind": "DaemonSet", "status": { "desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 1 } });
        assert_eq!(progress(&daemon, "agent").unwrap(), ("agent: 1 of 2 new pods are available".to_owned(), false));
        let by_hand = json!({ "kind": "DaemonSet", "spec": { "updateStrategy": { "type": "OnDelete" } } });
        assert!(progress(&by_hand, "agent").is_err());
    }
}
