//! `adieu events`: what was told of objects, the oldest first.

use std::io::Write;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use jiff::Timestamp;
use serde_json::Value;

use super::format::Format;
use super::get::{eprint_line, next_line};
use super::requests::{Call, path_segment};
use super::resources::Resources;
use crate::cluster::{Cluster, ClusterArgs, ObjectName};
use crate::table::{Widths, age, plain};

/// `adieu events`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  adieu events
  adieu events --for pod/web-1 -w
  adieu events -A --types=Warning")]
pub struct EventsArgs {
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Of all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// Of one object only: pod/NAME
    #[arg(long = "for", value_name = "OBJECT")]
    pub about: Option<ObjectName>,
    /// Only of these types: Normal, Warning
    #[arg(long, value_name = "TYPES", value_delimiter = ',')]
    pub types: Vec<String>,
    /// And what is told from now on, until Ctrl-C
    #[arg(short, long)]
    pub watch: bool,
    /// Without the heads of the columns
    #[arg(long)]
    pub no_headers: bool,
    /// json or yaml
    #[arg(short, long, value_name = "FORMAT", default_value = "table", hide_default_value = true)]
    pub output: Format,
}

/// Shows them.
pub(crate) async fn run(
    args: &EventsArgs,
    cluster: &Cluster,
    now: fn() -> Timestamp,
    out: &mut dyn Write,
) -> Result<()> {
    let path = match args.all_namespaces {
        true => "/api/v1/events".to_owned(),
        false => format!("/api/v1/namespaces/{}/events", path_segment(&cluster.namespace)?),
    };
    let mut fields = Vec::new();
    if let Some(about) = &args.about {
        let resource = Resources::default().find(cluster, &about.resource).await?;
        fields.push(format!("involvedObject.kind={},involvedObject.name={}", resource.kind, about.name));
    }
    let fields = Some(fields.join(",")).filter(|fields| !fields.is_empty());
    let call = Call::get(path, "list events").maybe("fieldSelector", fields);
    let mut list = cluster.ask(&call).await?.value;
    if !args.output.is_table() {
        return Ok(out.write_all(args.output.print(&list)?.as_bytes())?);
    }
    let version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    let mut events: Vec<Value> = list["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
    events.retain(|event| is_meant(event, args));
    sort(&mut events);
    if events.is_empty() && !args.watch {
        eprint_line(&format!("no events in the namespace {}", cluster.namespace));
        return Ok(());
    }
    let mut widths = Widths::default();
    let mut rows: Vec<Vec<String>> = Vec::new();
    if !args.no_headers {
        rows.push(heads(args.all_namespaces));
    }
    rows.extend(events.iter().map(|event| row(event, now(), args.all_namespaces)));
    widths.fit(&rows);
    for row in &rows {
        writeln!(out, "{}", widths.line(row))?;
    }
    if !args.watch {
        return Ok(());
    }
    out.flush()?;
    let mut lines = cluster.stream(&call.query("watch", "true").query("resourceVersion", version)).await?;
    while let Some(line) = next_line(&mut lines).await? {
        let event: Value = serde_json::from_slice(&line).context("the server's watch cannot be read")?;
        match event["type"].as_str() {
            Some("ADDED" | "MODIFIED") if is_meant(&event["object"], args) => {
                let row = row(&event["object"], now(), args.all_namespaces);
                widths.fit([&row]);
                writeln!(out, "{}", widths.line(&row))?;
                out.flush()?;
            }
            Some("ERROR") => {
                bail!("the watch ended: {}", event["object"]["message"].as_str().unwrap_or("no reason is given"))
            }
            _ => {}
        }
    }
    Ok(())
}

fn is_meant(event: &Value, args: &EventsArgs) -> bool {
    let kind = event["type"].as_str().unwrap_or_default();
    args.types.is_empty() || args.types.iter().any(|wanted| wanted.eq_ignore_ascii_case(kind))
}

/// The oldest first; of one moment in the order in which they were told, which their names end with.
pub(crate) fn sort(events: &mut [Value]) {
    events.sort_by_cached_key(|event| {
        let told =
            event["metadata"]["name"].as_str().and_then(|name| name.rsplit_once('.')).map_or("", |(_, told)| told);
        (last_seen(event), told.to_owned())
    });
}

fn last_seen(event: &Value) -> Option<Timestamp> {
    let moments = [
        &event["series"]["lastObservedTime"],
        &event["lastTimestamp"],
        &event["eventTime"],
        &event["metadata"]["creationTimestamp"],
    ];
    moments.into_iter().find_map(|moment| moment.as_str()?.parse().ok())
}

fn heads(namespaces: bool) -> Vec<String> {
    let own = ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"].map(str::to_owned);
    namespaces.then(|| "NAMESPACE".to_owned()).into_iter().chain(own).collect()
}

fn row(event: &Value, now: Timestamp, namespaces: bool) -> Vec<String> {
    let text = |value: &Value| plain(value.as_str().unwrap_or_default());
    let about = &event["involvedObject"];
    let object = format!("{}/{}", text(&about["kind"]).to_lowercase(), text(&about["name"]));
    let seen = last_seen(event).map_or_else(|| "<unknown>".to_owned(), |seen| age(now.duration_since(seen)));
    let count = event["series"]["count"].as_i64().or(event["count"].as_i64()).unwrap_or(1);
    let seen = if count > 1 { format!("{seen} (x{count})") } else { seen };
    let own = [seen, text(&event["type"]), text(&event["reason"]), object, text(&event["message"])];
    namespaces.then(|| text(&event["metadata"]["namespace"])).into_iter().chain(own).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_of_one_second_keep_the_order_in_which_they_were_told() {
        let event = |name: &str, at: &str| json!({ "metadata": { "name": name }, "lastTimestamp": at });
        let mut events = vec![
            event("p.18a2", "2026-01-01T00:00:01Z"),
            event("p.18a1", "2026-01-01T00:00:01Z"),
            event("p.18a3", "2026-01-01T00:00:00Z"),
        ];
        sort(&mut events);
        let names: Vec<_> = events.iter().map(|event| event["metadata"]["name"].as_str()).collect();
        assert_eq!(names, [Some("p.18a3"), Some("p.18a1"), Some("p.18a2")]);
    }

    #[test]
    fn row_of_an_event_shows_its_object_and_how_often_it_was_told() {
        let now = "2026-01-01T00:01:00Z".parse().expect("a moment");
        let event = json!({ "type": "Normal", "reason": "Killing", "message": "Stopping", "count": 3,
            "lastTimestamp": "2026-01-01T00:00:50Z", "involvedObject": { "kind": "Pod", "name": "web" } });
        assert_eq!(row(&event, now, false), ["10s (x3)", "Normal", "Killing", "pod/web", "Stopping"]);
    }
}
