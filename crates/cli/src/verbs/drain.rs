//! `adieu cordon`, `uncordon` and `drain`: a node that takes no new pods, and whose pods are evicted within their disruption budgets.

use std::io::Write;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::Args;
use http::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::get::eprint_line;
use super::pods;
use super::requests::{Call, MERGE_PATCH, path_segment};
use super::select;
use crate::cluster::{Cluster, ClusterArgs};

/// How long a refused eviction waits for its next try, as with kubectl.
const AGAIN: Duration = Duration::from_secs(5);
/// How often to look whether pods are gone.
const LOOK: Duration = Duration::from_millis(500);
/// Whose pods the kubelet itself keeps.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// `adieu cordon` and `adieu uncordon`.
#[derive(Args, Clone, Debug)]
pub struct CordonArgs {
    /// The nodes
    #[arg(value_name = "NODE", required = true)]
    pub nodes: Vec<String>,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

/// `adieu drain`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  adieu drain node-1 --ignore-daemonsets
  adieu drain node-1 --ignore-daemonsets --delete-emptydir-data --timeout=5m
  adieu drain node-1 --dry-run
  adieu uncordon node-1                       takes pods again")]
pub struct DrainArgs {
    /// The node
    #[arg(value_name = "NODE")]
    pub node: String,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Leave the pods of DaemonSets, which would come back
    #[arg(long)]
    pub ignore_daemonsets: bool,
    /// Evict pods whose emptyDir volumes are lost with them
    #[arg(long)]
    pub delete_emptydir_data: bool,
    /// Evict pods that nobody will replace
    #[arg(long)]
    pub force: bool,
    /// How many seconds they have to leave [default: their own]
    #[arg(long, value_name = "SECONDS", default_value_t = -1, allow_negative_numbers = true, hide_default_value = true)]
    pub grace_period: i64,
    /// How long to wait, such as 5m; 0 for ever
    #[arg(long, value_name = "TIME", value_parser = super::duration, default_value = "0")]
    pub timeout: Duration,
    /// Only pods with these labels
    #[arg(long, value_name = "LABELS")]
    pub pod_selector: Option<String>,
    /// Delete pods although a disruption budget forbids it
    #[arg(long)]
    pub disable_eviction: bool,
    /// Show which pods would leave, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Lets a node take pods, or no longer.
pub(crate) async fn cordon(args: &CordonArgs, cordons: bool, cluster: &Cluster, out: &mut dyn Write) -> Result<()> {
    for node in &args.nodes {
        let node = node.strip_prefix("node/").unwrap_or(node);
        set_unschedulable(cluster, node, cordons, out).await?;
    }
    Ok(())
}

async fn set_unschedulable(cluster: &Cluster, node: &str, cordons: bool, out: &mut dyn Write) -> Result<()> {
    let path = format!("/api/v1/nodes/{}", path_segment(node)?);
    let found = cluster.ask(&Call::get(&path, format!("get node/{node}"))).await?.value;
    let word = if cordons { "cordoned" } else { "uncordoned" };
    if (found["spec"]["unschedulable"] == true) == cordons {
        return Ok(writeln!(out, "node/{node} {word} already")?);
    }
    let patch = json!({ "spec": { "unschedulable": if cordons { json!(true) } else { Value::Null } } });
    cluster.ask(&Call::new(Method::PATCH, path, format!("change node/{node}")).body(MERGE_PATCH, &patch)).await?;
    Ok(writeln!(out, "node/{node} {word}")?)
}

/// What becomes of a pod of a node that is drained.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Fate {
    Leaves,
    /// For which reason.
    Stays(&'static str),
    /// Which flag lets it leave, and why it is needed.
    Refuses(&'static str),
}

fn fate(pod: &Value, args: &DrainArgs) -> Fate {
    if !pod["metadata"]["annotations"][MIRROR].is_null() {
        return Fate::Stays("is kept by its node");
    }
    let is_over = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let owners = pod["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    let controller = owners.into_iter().find(|owner| owner["controller"] == true);
    match controller.and_then(|owner| owner["kind"].as_str()) {
        Some("DaemonSet") if !is_over && args.ignore_daemonsets => return Fate::Stays("is a DaemonSet's"),
        Some("DaemonSet") if !is_over => {
            return Fate::Refuses("is a DaemonSet's and would come back (--ignore-daemonsets leaves it)");
        }
        None if !is_over && !args.force => {
            return Fate::Refuses("has no controller that would replace it (--force evicts it)");
        }
        _ => {}
    }
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let has_data = volumes.into_iter().any(|volume| volume["emptyDir"].is_object());
    if has_data && !is_over && !args.delete_emptydir_data {
        return Fate::Refuses("has an emptyDir volume, which is lost with it (--delete-emptydir-data evicts it)");
    }
    Fate::Leaves
}

fn full_name(pod: &Value) -> String {
    format!("{}/{}", pod["metadata"]["namespace"].as_str().unwrap_or_default(), select::name(pod))
}

/// Empties a node.
pub(crate) async fn drain(args: &DrainArgs, cluster: &Cluster, out: &mut dyn Write) -> Result<()> {
    let node = args.node.strip_prefix("node/").unwrap_or(&args.node);
    let call = Call::get("/api/v1/pods", format!("list the pods of node/{node}"));
    let call =
        call.query("fieldSelector", format!("spec.nodeName={node}")).maybe("labelSelector", args.pod_selector.clone());
    if args.dry_run {
        cluster.ask(&Call::get(format!("/api/v1/nodes/{}", path_segment(node)?), format!("get node/{node}"))).await?;
    } else {
        set_unschedulable(cluster, node, true, out).await?;
    }
    let list = cluster.ask(&call).await?.value;
    let mut leaving = Vec::new();
    let mut refused = Vec::new();
    for pod in list["items"].as_array().into_iter().flatten() {
        match fate(pod, args) {
            Fate::Leaves => leaving.push(pod.clone()),
            Fate::Stays(why) => eprint_line(&format!("pod/{} stays: it {why}", full_name(pod))),
            Fate::Refuses(why) => refused.push(format!("  pod/{} {why}", full_name(pod))),
        }
    }
    ensure!(refused.is_empty(), "node/{node} cannot be drained; nothing was evicted:\n{}", refused.join("\n"));
    if args.dry_run {
        leaving.iter().try_for_each(|pod| writeln!(out, "pod/{} would be evicted", full_name(pod)))?;
        return Ok(());
    }
    let deadline = (!args.timeout.is_zero()).then(|| Instant::now() + args.timeout);
    evict_all(args, cluster, leaving, deadline, out).await?;
    Ok(writeln!(out, "node/{node} drained")?)
}

/// Evicts all at once; those whose budget forbids it are asked again until it allows it.
async fn evict_all(
    args: &DrainArgs,
    cluster: &Cluster,
    pods: Vec<Value>,
    deadline: Option<Instant>,
    out: &mut dyn Write,
) -> Result<()> {
    let mut waiting = pods;
    let mut leaving: Vec<Value> = Vec::new();
    let mut told = Vec::new();
    let mut next_try = Instant::now();
    loop {
        if Instant::now() >= next_try {
            let mut refused = Vec::new();
            for pod in std::mem::take(&mut waiting) {
                match evict(args, cluster, &pod).await? {
                    None => {
                        writeln!(out, "pod/{} asked to leave", full_name(&pod))?;
                        leaving.push(pod);
                    }
                    Some(why) => {
                        let line = format!("pod/{} may not leave yet: {why}", full_name(&pod));
                        if !told.contains(&line) {
                            eprint_line(&line);
                            told.push(line);
                        }
                        refused.push(pod);
                    }
                }
            }
            waiting = refused;
            next_try = Instant::now() + AGAIN;
        }
        let mut here = Vec::new();
        for pod in leaving {
            let call = Call::get(pods::path(&pod, "", "")?, format!("get pod/{}", full_name(&pod)));
            let is_there =
                cluster.find(&call).await?.is_some_and(|now| now.value["metadata"]["uid"] == pod["metadata"]["uid"]);
            if is_there {
                here.push(pod);
            } else {
                writeln!(out, "pod/{} has left", full_name(&pod))?;
            }
        }
        leaving = here;
        if waiting.is_empty() && leaving.is_empty() {
            return Ok(());
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            let left: Vec<String> = waiting.iter().chain(&leaving).map(full_name).collect();
            bail!("not in time; still here: {}", left.join(", "));
        }
        sleep(LOOK).await;
    }
}

/// Asks a pod to leave; answers why it may not, if its budget says so.
async fn evict(args: &DrainArgs, cluster: &Cluster, pod: &Value) -> Result<Option<String>> {
    let doing = format!("evict pod/{}", full_name(pod));
    let mut options = json!({ "preconditions": { "uid": pod["metadata"]["uid"] } });
    if args.grace_period >= 0 {
        options["gracePeriodSeconds"] = args.grace_period.into();
    }
    let call = if args.disable_eviction {
        Call::new(Method::DELETE, pods::path(pod, "", "")?, &doing).body("application/json", &options)
    } else {
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction", "deleteOptions": options,
            "metadata": { "name": select::name(pod), "namespace": pod["metadata"]["namespace"] },
        });
        Call::new(Method::POST, pods::path(pod, "", "eviction")?, &doing).body("application/json", &eviction)
    };
    match cluster.try_ask(&call).await {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) if status.code == 429 => Ok(Some(status.message.clone())),
        // Gone, or another in its place.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(None),
        Err(error) => Err(cluster.explain(error, &doing)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: DrainArgs,
    }

    fn fate_of(pod: &Value, flags: &[&str]) -> Fate {
        let words = ["drain", "n"].iter().chain(flags);
        fate(pod, &Line::try_parse_from(words).unwrap().args)
    }

    #[test]
    fn pods_that_would_be_lost_stop_a_drain_until_a_flag_lets_them_go() {
        let owned = |kind: &str| json!({ "metadata": { "ownerReferences": [{ "kind": kind, "controller": true }] } });
        let bare = json!({ "metadata": {} });
        assert!(matches!(fate_of(&bare, &[]), Fate::Refuses(_)));
        assert_eq!(fate_of(&bare, &["--force"]), Fate::Leaves);
        assert!(matches!(fate_of(&owned("DaemonSet"), &["--force"]), Fate::Refuses(_)));
        assert!(matches!(fate_of(&owned("DaemonSet"), &["--ignore-daemonsets"]), Fate::Stays(_)));
        assert_eq!(fate_of(&owned("ReplicaSet"), &[]), Fate::Leaves);
        let mut with_data = owned("ReplicaSet");
        with_data["spec"]["volumes"] = json!([{ "name": "a", "emptyDir": {} }]);
        assert!(matches!(fate_of(&with_data, &[]), Fate::Refuses(_)));
        assert_eq!(fate_of(&with_data, &["--delete-emptydir-data"]), Fate::Leaves);
        with_data["status"]["phase"] = "Succeeded".into();
        assert_eq!(fate_of(&with_data, &[]), Fate::Leaves, "what has ended loses nothing");
        let mirror = json!({ "metadata": { "annotations": { MIRROR: "x" } } });
        assert!(matches!(fate_of(&mirror, &["--force"]), Fate::Stays(_)));
    }
}
