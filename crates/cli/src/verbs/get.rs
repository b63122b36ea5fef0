//! `adieu get` and `adieu api-resources`: rows as the server makes them, or whole objects.

use std::io::Write;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _};

use super::format::Format;
use super::requests::{Call, TABLE};
use super::resources::Resources;
use super::select::{self, Scope, Selection, selections};
use crate::cluster::{Cluster, ClusterArgs};
use crate::table::{Look, Table, Widths, aligned};

/// A line of a watch is one object; none is larger.
const LINE_BYTES_MOST: usize = 64 << 20;

/// `adieu get`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  adieu get pods                              the pods of the namespace
  adieu get pods -A -o wide                   of all namespaces, with node and address
  adieu get deploy,svc -l app=web             by label
  adieu get pod web-1 -o yaml
  adieu get pod/web-1 svc/web
  adieu get pods -w                           and every change from now on
  adieu get node -o jsonpath='{.items[*].metadata.name}'
  adieu get all")]
pub struct GetArgs {
    /// Kinds and names: pods, pod NAME, pod/NAME, deploy,svc, all
    #[arg(value_name = "WHAT", required = true)]
    pub what: Vec<String>,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Of all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// With these labels: app=web,tier!=db,'env in (a,b)'
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub selector: Option<String>,
    /// With these fields: status.phase=Running
    #[arg(long, value_name = "FIELDS")]
    pub field_selector: Option<String>,
    /// wide, name, json, yaml, jsonpath=TEMPLATE, custom-columns=HEAD:.path,…
    #[arg(short, long, value_name = "FORMAT", default_value = "table", hide_default_value = true)]
    pub output: Format,
    /// Show every change from now on, until Ctrl-C
    #[arg(short, long)]
    pub watch: bool,
    /// The same, without what is there now
    #[arg(long)]
    pub watch_only: bool,
    /// Without the heads of the columns
    #[arg(long)]
    pub no_headers: bool,
    /// With the labels of each object
    #[arg(long)]
    pub show_labels: bool,
    /// What is not there is no failure
    #[arg(long)]
    pub ignore_not_found: bool,
}

/// Shows what was asked for.
pub(crate) async fn run(args: &GetArgs, cluster: &Cluster, out: &mut dyn Write) -> Result<()> {
    let mut resources = Resources::default();
    let selected = selections(cluster, &mut resources, &args.what).await?;
    let namespace = (!args.all_namespaces).then_some(cluster.namespace.as_str());
    let scope = Scope { namespace, labels: args.selector.as_deref(), fields: args.field_selector.as_deref() };
    let names_any = selected.iter().any(|selection| !selection.names.is_empty());
    ensure!(
        !names_any || (scope.labels.is_none() && scope.fields.is_none()),
        "a name and a selector say different things; give one of them"
    );
    ensure!(!names_any || !args.all_namespaces, "a name means an object of one namespace: -A cannot be used with it");
    if args.watch || args.watch_only {
        let [only] = selected.as_slice() else { bail!("only one kind can be watched at a time") };
        return watch(args, cluster, &scope, only, out).await;
    }
    match args.output.is_table() {
        true => tables(args, cluster, &scope, &selected, out).await,
        false => whole(args, cluster, &scope, &selected, out).await,
    }
}

fn look(args: &GetArgs, selection: &Selection) -> Look {
    Look {
        wide: args.output == Format::Wide,
        namespaces: args.all_namespaces && selection.resource.namespaced,
        labels: args.show_labels,
    }
}

/// A request for each named object, or one for all.
fn calls(scope: &Scope<'_>, selection: &Selection, namespace: &str) -> Result<Vec<Call>> {
    if selection.names.is_empty() {
        return Ok(vec![scope.list(&selection.resource)?]);
    }
    let one = |name: &String| {
        let path = selection.resource.object(namespace, name)?;
        Ok(Call::get(path, format!("get {}", selection.resource.object_name(name))))
    };
    selection.names.iter().map(one).collect()
}

async fn tables(
    args: &GetArgs,
    cluster: &Cluster,
    scope: &Scope<'_>,
    selected: &[Selection],
    out: &mut dyn Write,
) -> Result<()> {
    let (mut shown, mut failed) = (0, Vec::new());
    for selection in selected {
        let mut rows = Vec::new();
        for call in calls(scope, selection, &cluster.namespace)? {
            // A server that makes no rows answers with the object itself.
            let answer = match cluster.find(&call.clone().accept(TABLE)).await {
                Ok(Some(answer)) => answer.value,
                Ok(None) if args.ignore_not_found => continue,
                Ok(None) => {
                    failed.push(
                        cluster
                            .ask(&call)
                            .await
                            .err()
                            .map_or_else(|| "it came late".to_owned(), |error| error.to_string()),
                    );
                    continue;
                }
                Err(error) if selected.len() > 1 => {
                    failed.push(format!("{error:#}"));
                    continue;
                }
                Err(error) => return Err(error),
            };
            let table = table(answer, selection)?;
            let look = look(args, selection);
            if rows.is_empty() && !args.no_headers && !table.rows.is_empty() {
                rows.push(table.heads(look));
            }
            let prefix = if selected.len() > 1 { selection.resource.object_name("") } else { String::new() };
            rows.extend(table.rows.iter().map(|row| named(table.cells(row, look), &prefix, look)));
        }
        if rows.is_empty() {
            continue;
        }
        if shown > 0 {
            writeln!(out)?;
        }
        shown += rows.len();
        out.write_all(aligned(&rows).as_bytes())?;
    }
    if !failed.is_empty() {
        bail!("{}", failed.join("\n"));
    }
    if shown == 0 && !args.ignore_not_found {
        let place = match scope.namespace {
            Some(namespace) if selected.iter().any(|selection| selection.resource.namespaced) => {
                format!(" in the namespace {namespace}")
            }
            _ => String::new(),
        };
        eprint_line(&format!("nothing found{place}"));
    }
    Ok(())
}

/// Among several kinds a name tells its own.
fn named(mut cells: Vec<String>, prefix: &str, look: Look) -> Vec<String> {
    if let Some(name) = cells.get_mut(usize::from(look.namespaces)) {
        name.insert_str(0, prefix);
    }
    cells
}

fn table(answer: Value, selection: &Selection) -> Result<Table> {
    if answer["kind"] == "Table" {
        return serde_json::from_value(answer).context("the server's rows cannot be read");
    }
    // Name and age alone, from whoever knows no rows.
    let items = match answer["items"].is_array() {
        true => select::items(&answer, &selection.resource),
        false => vec![answer],
    };
    let rows: Vec<Value> = items
        .iter()
        .map(|item| json!({ "cells": [select::name(item), item["metadata"]["creationTimestamp"]], "object": item }))
        .collect();
    let columns = json!([{ "name": "Name" }, { "name": "Created" }]);
    Ok(serde_json::from_value(json!({ "columnDefinitions": columns, "rows": rows }))?)
}

async fn whole(
    args: &GetArgs,
    cluster: &Cluster,
    scope: &Scope<'_>,
    selected: &[Selection],
    out: &mut dyn Write,
) -> Result<()> {
    let mut found: Vec<(Value, String)> = Vec::new();
    let is_one = selected.iter().map(|selection| selection.names.len()).eq([1]);
    for selection in selected {
        for call in calls(scope, selection, &cluster.namespace)? {
            let answer = match args.ignore_not_found {
                true => cluster.find(&call).await?,
                false => Some(cluster.ask(&call).await?),
            };
            let Some(answer) = answer else { continue };
            let items = match selection.names.is_empty() {
                true => select::items(&answer.value, &selection.resource),
                false => vec![answer.value],
            };
            found.extend(items.into_iter().map(|item| {
                let name = selection.resource.object_name(select::name(&item));
                (item, name)
            }));
        }
    }
    if args.output == Format::Name {
        for (_, name) in &found {
            writeln!(out, "{name}")?;
        }
        return Ok(());
    }
    let value = match (is_one, found.len()) {
        (true, 0) => return Ok(()),
        (true, _) => found.swap_remove(0).0,
        (false, _) => {
            let items: Vec<Value> = found.into_iter().map(|(item, _)| item).collect();
            json!({ "apiVersion": "v1", "items": items, "kind": "List", "metadata": { "resourceVersion": "" } })
        }
    };
    Ok(out.write_all(args.output.print(&value)?.as_bytes())?)
}

async fn watch(
    args: &GetArgs,
    cluster: &Cluster,
    scope: &Scope<'_>,
    selection: &Selection,
    out: &mut dyn Write,
) -> Result<()> {
    let fields = match selection.names.as_slice() {
        [] => scope.fields.map(str::to_owned),
        [name] => Some(format!("metadata.name={name}")),
        _ => bail!("only one name can be watched at a time"),
    };
    let scope = Scope { fields: fields.as_deref(), ..scope.clone() };
    let list = scope.list(&selection.resource)?;
    let accept = if args.output.is_table() { TABLE } else { "application/json" };
    let mut printer = Printer {
        args,
        look: look(args, selection),
        selection,
        table: Table::default(),
        widths: Widths::default(),
        out,
    };
    let answer = cluster.ask(&list.clone().accept(accept)).await?.value;
    let version = answer["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    if let ([name], Some(0)) = (selection.names.as_slice(), count(&answer)) {
        bail!("cannot watch {}: it is not there", selection.resource.object_name(name));
    }
    printer.list(answer)?;
    let watching = list.accept(accept).query("watch", "true").query("resourceVersion", version);
    let mut lines = cluster.stream(&watching).await?;
    while let Some(line) = next_line(&mut lines).await? {
        let event: Value = serde_json::from_slice(&line).context("the server's watch cannot be read")?;
        match event["type"].as_str() {
            Some("ADDED" | "MODIFIED" | "DELETED") => printer.event(event["object"].clone())?,
            Some("ERROR") => {
                bail!("the watch ended: {}", event["object"]["message"].as_str().unwrap_or("no reason is given"))
            }
            _ => {}
        }
    }
    Ok(())
}

fn count(answer: &Value) -> Option<usize> {
    answer["rows"].as_array().or(answer["items"].as_array()).map(Vec::len)
}

/// The next line of a watch; nothing at its end.
pub(crate) async fn next_line(lines: &mut (impl AsyncBufRead + Unpin)) -> Result<Option<Vec<u8>>> {
    use tokio::io::AsyncReadExt as _;
    let mut line = Vec::new();
    lines.take(LINE_BYTES_MOST as u64).read_until(b'\n', &mut line).await.context("the connection broke")?;
    ensure!(line.len() < LINE_BYTES_MOST, "the server sends too long a line");
    Ok((!line.is_empty()).then_some(line))
}

/// Prints what a watch shows, with columns that grow.
struct Printer<'a> {
    args: &'a GetArgs,
    look: Look,
    selection: &'a Selection,
    table: Table,
    widths: Widths,
    out: &'a mut dyn Write,
}

impl Printer<'_> {
    fn list(&mut self, answer: Value) -> Result<()> {
        if !self.args.output.is_table() {
            let items = select::items(&answer, &self.selection.resource);
            for item in items.into_iter().filter(|_| !self.args.watch_only) {
                self.whole(&item)?;
            }
            return Ok(());
        }
        self.table = table(answer, self.selection)?;
        let mut rows = Vec::new();
        if !self.args.no_headers {
            rows.push(self.table.heads(self.look));
        }
        if !self.args.watch_only {
            rows.extend(self.table.rows.iter().map(|row| self.table.cells(row, self.look)));
        }
        self.widths.fit(&rows);
        self.lines(&rows)
    }

    fn event(&mut self, object: Value) -> Result<()> {
        if !self.args.output.is_table() {
            return self.whole(&object);
        }
        let table = table(object, self.selection)?;
        if !table.column_definitions.is_empty() {
            self.table.column_definitions = table.column_definitions;
        }
        let rows: Vec<_> = table.rows.iter().map(|row| self.table.cells(row, self.look)).collect();
        self.widths.fit(&rows);
        self.lines(&rows)
    }

    fn whole(&mut self, item: &Value) -> Result<()> {
        let text = match self.args.output {
            Format::Name => format!("{}\n", self.selection.resource.object_name(select::name(item))),
            Format::Yaml => format!("---\n{}", self.args.output.print(item)?),
            Format::Table | Format::Wide | Format::Json | Format::JsonPath(_) | Format::Columns(_) => {
                self.args.output.print(item)?
            }
        };
        self.out.write_all(text.as_bytes())?;
        Ok(self.out.flush()?)
    }

    fn lines(&mut self, rows: &[Vec<String>]) -> Result<()> {
        for row in rows {
            writeln!(self.out, "{}", self.widths.line(row))?;
        }
        Ok(self.out.flush()?)
    }
}

/// To standard error: what is no answer.
pub(crate) fn eprint_line(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// `adieu api-resources`.
#[derive(Args, Clone, Debug)]
pub struct ApiResourcesArgs {
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

/// Shows which kinds a cluster serves.
pub(crate) async fn api_resources(cluster: &Cluster, out: &mut dyn Write) -> Result<()> {
    let mut resources = Resources::default();
    // The core first.
    resources.find(cluster, "pods").await?;
    resources.read_all(cluster).await?;
    let heads = ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"].map(str::to_owned).to_vec();
    let mut rows = vec![heads];
    rows.extend(resources.rows());
    Ok(out.write_all(aligned(&rows).as_bytes())?)
}
