//! `adieu delete`: asks objects to leave, and waits until they have.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::Args;
use http::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::get::{eprint_line, next_line};
use super::manifests;
use super::requests::Call;
use super::resources::{Resource, Resources};
use super::select::{self, Scope, selections};
use crate::cluster::{Cluster, ClusterArgs};

/// A watch that ends is begun again, but not faster.
const AGAIN: Duration = Duration::from_millis(200);

/// `adieu delete`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  adieu delete pod web-1                      asks it to leave, and waits until it has left
  adieu delete pod web-1 --grace-period=5     with five seconds of grace; also shortens a delete under way
  adieu delete pod/a svc/b --wait=false
  adieu delete deploy,svc -l app=web
  adieu delete -f app.yaml
  adieu delete pod web-1 --force              takes its object away at once; its processes end as fast as they can")]
pub struct DeleteArgs {
    /// Kinds and names: pod NAME, pod/NAME, deploy,svc -l app=web
    #[arg(value_name = "WHAT", required_unless_present = "files", conflicts_with = "files")]
    pub what: Vec<String>,
    /// What a manifest, a folder of them, or standard input (-) names
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// With these labels
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub selector: Option<String>,
    /// With these fields
    #[arg(long, value_name = "FIELDS")]
    pub field_selector: Option<String>,
    /// Everything of these kinds
    #[arg(long)]
    pub all: bool,
    /// In all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// How many seconds they have to leave [default: their own]
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub grace_period: Option<i64>,
    /// With one second of grace
    #[arg(long, conflicts_with = "grace_period")]
    pub now: bool,
    /// Take the object away at once, and wait for nobody
    #[arg(long)]
    pub force: bool,
    /// Wait until they are gone
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub wait: bool,
    /// How long to wait, such as 30s; 0 for ever
    #[arg(long, value_name = "TIME", value_parser = super::duration, default_value = "0")]
    pub timeout: Duration,
    /// What becomes of what it owns: background, foreground or orphan
    #[arg(long, value_name = "HOW", default_value = "background")]
    pub cascade: Cascade,
    /// What is not there is no failure
    #[arg(long)]
    pub ignore_not_found: bool,
    /// `name` prints names only
    #[arg(short, long, value_name = "FORMAT", value_parser = ["name"])]
    pub output: Option<String>,
}

/// What becomes of what an object owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Cascade {
    /// It is deleted afterwards.
    Background,
    /// It is deleted first.
    Foreground,
    /// It stays.
    Orphan,
}

/// An object that was asked to leave.
struct Asked {
    resource: Resource,
    namespace: Option<String>,
    name: String,
    uid: String,
}

/// Deletes what was named.
pub(crate) async fn run(args: &DeleteArgs, cluster: &Cluster, out: &mut dyn Write) -> Result<()> {
    let victims = victims(args, cluster).await?;
    if victims.is_empty() && args.files.is_empty() {
        eprint_line("nothing found");
        return Ok(());
    }
    let options = options(args)?;
    let (mut asked, mut failed) = (Vec::new(), Vec::new());
    for (resource, namespace, name) in victims {
        let shown = resource.object_name(&name);
        let path = resource.object(namespace.as_deref().unwrap_or_default(), &name)?;
        let call = Call::new(Method::DELETE, path, format!("delete {shown}")).body("application/json", &options);
        match cluster.find(&call).await {
            Ok(Some(answer)) => {
                answer.warnings.iter().for_each(|warning| eprint_line(&format!("Warning: {warning}")));
                match args.output {
                    Some(_) => writeln!(out, "{shown}")?,
                    None => {
                        let how = if args.force { " by force" } else { "" };
                        let kind = shown.split_once('/').map_or("", |(kind, _)| kind);
                        writeln!(out, "{kind} \"{name}\" deleted{how}")?;
                    }
                }
                out.flush()?;
                // The answer is the object, or only that it is gone.
                let meta = &answer.value["metadata"];
                let uid =
                    meta["uid"].as_str().or(answer.value["details"]["uid"].as_str()).unwrap_or_default().to_owned();
                asked.push(Asked { resource, namespace, name, uid });
            }
            Ok(None) if args.ignore_not_found => {}
            Ok(None) => failed.push(format!("cannot delete {shown}: it is not there")),
            Err(error) => failed.push(format!("{error:#}")),
        }
    }
    if args.wait && !args.force {
        let deadline = (!args.timeout.is_zero()).then(|| Instant::now() + args.timeout);
        for asked in &asked {
            if let Err(error) = until_gone(cluster, asked, deadline).await {
                failed.push(format!("{error:#}"));
            }
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

type Victim = (Resource, Option<String>, String);

async fn victims(args: &DeleteArgs, cluster: &Cluster) -> Result<Vec<Victim>> {
    let mut resources = Resources::default();
    if !args.files.is_empty() {
        let mut victims = Vec::new();
        let mut objects = manifests::read(&args.files)?;
        // What was made last leaves first.
        objects.reverse();
        for object in objects {
            let (resource, namespace, name) = manifests::place(cluster, &mut resources, &object).await?;
            victims.push((resource, namespace, name));
        }
        return Ok(victims);
    }
    let selected = selections(cluster, &mut resources, &args.what).await?;
    let named = selected.iter().any(|selection| !selection.names.is_empty());
    let selects = args.selector.is_some() || args.field_selector.is_some();
    match (named, selects, args.all) {
        (true, false, false) => {
            ensure!(!args.all_namespaces, "a name means an object of one namespace: -A cannot be used with it");
            let victims = selected.into_iter().flat_map(|selection| {
                let namespace = selection.resource.namespaced.then(|| cluster.namespace.clone());
                let resource = selection.resource;
                selection.names.into_iter().map(move |name| (resource.clone(), namespace.clone(), name))
            });
            Ok(victims.collect())
        }
        (true, ..) => bail!("a name and a selector say different things; give one of them"),
        (false, false, false) => bail!("name what is to be deleted, select it with -l, or say --all"),
        (false, ..) => {
            let namespace = (!args.all_namespaces).then_some(cluster.namespace.as_str());
            let scope = Scope { namespace, labels: args.selector.as_deref(), fields: args.field_selector.as_deref() };
            let mut victims = Vec::new();
            for selection in selected {
                let list = cluster.ask(&scope.list(&selection.resource)?).await?.value;
                victims.extend(select::items(&list, &selection.resource).iter().map(|item| {
                    let namespace = item["metadata"]["namespace"].as_str().map(str::to_owned);
                    (selection.resource.clone(), namespace, select::name(item).to_owned())
                }));
            }
            Ok(victims)
        }
    }
}

/// What is said of the deletion. A forced one leaves no time; `--now` leaves a second, as with kubectl.
fn options(args: &DeleteArgs) -> Result<Value> {
    let grace = match (args.force, args.now, args.grace_period) {
        (true, _, None | Some(0)) => Some(0),
        (true, ..) => bail!("--force leaves no time: a --grace-period other than 0 cannot be used with it"),
        (false, true, _) => Some(1),
        (false, false, Some(0)) => {
            eprint_line(
                "a grace of 0 seconds would take the object away before its processes have ended; 1 is used \
                 (--force takes it away)",
            );
            Some(1)
        }
        (false, false, grace) => grace.filter(|grace| *grace >= 0),
    };
    let cascade = match args.cascade {
        Cascade::Background => "Background",
        Cascade::Foreground => "Foreground",
        Cascade::Orphan => "Orphan",
    };
    let mut options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": cascade });
    if let Some(grace) = grace {
        options["gracePeriodSeconds"] = grace.into();
    }
    Ok(options)
}

/// Waits until the object is not there, or another is in its place.
async fn until_gone(cluster: &Cluster, asked: &Asked, deadline: Option<Instant>) -> Result<()> {
    let waiting = async {
        while !is_gone(cluster, asked).await? {
            tokio::time::sleep(AGAIN).await;
        }
        Ok(())
    };
    match deadline {
        None => waiting.await,
        Some(deadline) => match timeout(deadline.saturating_duration_since(Instant::now()), waiting).await {
            Ok(outcome) => outcome,
            Err(_) => bail!("{} is still there; see why: adieu why {0}", asked.resource.object_name(&asked.name)),
        },
    }
}

/// Looks, and follows its changes until it is gone or the watch ends.
async fn is_gone(cluster: &Cluster, asked: &Asked) -> Result<bool> {
    let shown = asked.resource.object_name(&asked.name);
    let path = asked.resource.object(asked.namespace.as_deref().unwrap_or_default(), &asked.name)?;
    let Some(answer) = cluster.find(&Call::get(path, format!("get {shown}"))).await? else { return Ok(true) };
    let is_other = |object: &Value| !asked.uid.is_empty() && object["metadata"]["uid"] != asked.uid.as_str();
    if is_other(&answer.value) {
        return Ok(true);
    }
    let version = answer.value["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    let fields = format!("metadata.name={}", asked.name);
    let scope = Scope { namespace: asked.namespace.as_deref(), labels: None, fields: Some(&fields) };
    let call = scope.list(&asked.resource)?.query("watch", "true").query("resourceVersion", version);
    let Ok(mut lines) = cluster.stream(&call).await else { return Ok(false) };
    while let Ok(Some(line)) = next_line(&mut lines).await {
        let Ok(event) = serde_json::from_slice::<Value>(&line) else { return Ok(false) };
        match event["type"].as_str() {
            Some("DELETED") => return Ok(true),
            Some("ADDED" | "MODIFIED") if is_other(&event["object"]) => return Ok(true),
            Some("ERROR") => return Ok(false),
            _ => {}
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: DeleteArgs,
    }

    fn options_of(line: &str) -> Result<Value> {
        let words = ["delete", "pod", "web"].into_iter().chain(line.split_whitespace());
        options(&Line::try_parse_from(words)?.args)
    }

    #[test]
    fn grace_of_a_delete_is_what_kubectl_makes_of_its_flags() {
        let grace = |line: &str| options_of(line).unwrap()["gracePeriodSeconds"].as_i64();
        assert_eq!(grace(""), None);
        assert_eq!(grace("--grace-period=-1"), None);
        assert_eq!(grace("--grace-period=210"), Some(210));
        assert_eq!(grace("--grace-period=0"), Some(1), "without --force nothing is taken away under its processes");
        assert_eq!(grace("--now"), Some(1));
        assert_eq!(grace("--force"), Some(0));
        assert_eq!(grace("--force --grace-period=0"), Some(0));
        assert!(options_of("--force --grace-period=5").is_err());
        assert!(options_of("--now --grace-period=5").is_err());
        assert_eq!(options_of("--cascade=orphan").unwrap()["propagationPolicy"], "Orphan");
    }

    #[test]
    fn wait_is_on_unless_it_is_said_to_be_off() {
        let wait = |line: &[&str]| Line::try_parse_from(line).map(|line| line.args.wait);
        assert!(wait(&["delete", "pod", "web"]).unwrap());
        assert!(!wait(&["delete", "pod", "web", "--wait=false"]).unwrap());
        assert!(wait(&["delete", "pod", "--wait", "web"]).unwrap());
    }
}
