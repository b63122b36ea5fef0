//! `adieu apply -f`: the server is told what is wanted, and merges it (server-side apply).

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;
use http::{Method, StatusCode};
use serde_json::Value;

use super::format::Format;
use super::get::eprint_line;
use super::manifests;
use super::requests::{APPLY_PATCH, Call};
use super::resources::Resources;
use crate::cluster::{Cluster, ClusterArgs};

/// Who owns the fields that are written here.
pub(crate) const FIELD_MANAGER: &str = "adieu";

/// `adieu apply`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  adieu apply -f app.yaml
  adieu apply -f manifests/ -n shop
  helm template web ./chart | adieu apply -f -
  adieu apply -f app.yaml --dry-run=server    what would be refused or warned of")]
pub struct ApplyArgs {
    /// A manifest, YAML or JSON, a folder of them, or - for standard input; may be given several times
    #[arg(short = 'f', long = "filename", value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Take over fields that somebody else has written
    #[arg(long)]
    pub force_conflicts: bool,
    /// server: the server says what would happen, and stores nothing
    #[arg(long, value_name = "WHERE", value_parser = ["none", "server"], default_value = "none", hide_default_value = true)]
    pub dry_run: String,
    /// Who owns the fields
    #[arg(long, value_name = "NAME", default_value = FIELD_MANAGER)]
    pub field_manager: String,
    /// name, json or yaml
    #[arg(short, long, value_name = "FORMAT", default_value = "table", hide_default_value = true)]
    pub output: Format,
    /// Said for kubectl's sake: the server always merges.
    #[arg(long, hide = true)]
    pub server_side: bool,
}

/// Applies everything; an object that is refused hides no other.
pub(crate) async fn run(args: &ApplyArgs, cluster: &Cluster, out: &mut dyn Write) -> Result<()> {
    let mut resources = Resources::default();
    let mut failed = Vec::new();
    for object in manifests::read(&args.files)? {
        match apply(args, cluster, &mut resources, &object).await {
            Ok((said, applied)) => {
                match &args.output {
                    Format::Table | Format::Wide => writeln!(out, "{said}")?,
                    Format::Name => writeln!(out, "{}", said.split(' ').next().unwrap_or_default())?,
                    format @ (Format::Json | Format::Yaml | Format::JsonPath(_) | Format::Columns(_)) => {
                        out.write_all(format.print(&applied)?.as_bytes())?
                    }
                }
                out.flush()?;
            }
            Err(error) => failed.push(format!("{error:#}")),
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

async fn apply(
    args: &ApplyArgs,
    cluster: &Cluster,
    resources: &mut Resources,
    object: &Value,
) -> Result<(String, Value)> {
    let (resource, namespace, name) = manifests::place(cluster, resources, object).await?;
    let shown = resource.object_name(&name);
    let path = resource.object(namespace.as_deref().unwrap_or_default(), &name)?;
    let mut wanted = object.clone();
    if let Some(namespace) = &namespace {
        wanted["metadata"]["namespace"] = namespace.as_str().into();
    }
    let before = cluster.find(&Call::get(&path, format!("get {shown}"))).await?;
    let mut call = Call::new(Method::PATCH, &path, format!("apply {shown}")).body(APPLY_PATCH, &wanted);
    call = call.query("fieldManager", args.field_manager.as_str());
    if args.force_conflicts {
        call = call.query("force", "true");
    }
    let is_dry = args.dry_run == "server";
    if is_dry {
        call = call.query("dryRun", "All");
    }
    let answer = match cluster.try_ask(&call).await {
        Ok(answer) => answer,
        Err(kube::Error::Api(status)) if status.code == 409 && !args.force_conflicts => {
            let error = cluster.explain(kube::Error::Api(status), &format!("apply {shown}"));
            return Err(error.context("others own some of these fields; --force-conflicts takes them over"));
        }
        Err(error) => return Err(cluster.explain(error, &format!("apply {shown}"))),
    };
    answer.warnings.iter().for_each(|warning| eprint_line(&format!("Warning: {warning}")));
    let version = |value: &Value| value["metadata"]["resourceVersion"].as_str().map(str::to_owned);
    let verb = match (answer.status, before.and_then(|before| version(&before.value))) {
        (StatusCode::CREATED, _) | (_, None) => "created",
        (_, was) if was == version(&answer.value) => "unchanged",
        _ => "configured",
    };
    let dry = if is_dry { " (server dry run)" } else { "" };
    Ok((format!("{shown} {verb}{dry}"), answer.value))
}
