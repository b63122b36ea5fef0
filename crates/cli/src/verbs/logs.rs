//! `adieu logs`: what containers have written.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, BufReader};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::pods::{self, container_names};
use super::requests::Call;
use super::select;
use crate::cluster::{Cluster, ClusterArgs};

/// So many streams are followed at a time.
const STREAMS_MOST: usize = 64;
/// So many lines wait to be printed.
const WAITING_MOST: usize = 1024;
/// Longer lines come in pieces.
const PIECE_BYTES: usize = 64 << 10;

/// `adieu logs`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  adieu logs web-1                            what it has written
  adieu logs -f web-1                         and what it writes from now on
  adieu logs deploy/web --tail=20             of one of its pods
  adieu logs -l app=web --prefix -f           of all of them
  adieu logs web-1 -c sidecar --previous      of the container before its last restart
  adieu logs web-1 --since=5m --timestamps")]
pub struct LogsArgs {
    /// A pod, or what has pods: NAME, pod/NAME, deploy/NAME
    #[arg(value_name = "POD", required_unless_present = "selector", conflicts_with = "selector")]
    pub what: Option<String>,
    /// Of which container
    #[arg(value_name = "CONTAINER", conflicts_with = "container")]
    pub stray_container: Option<String>,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Of which container [default: the only one, or the one that the pod names as its default]
    #[arg(short, long, value_name = "NAME")]
    pub container: Option<String>,
    /// Of all containers
    #[arg(long, conflicts_with = "container")]
    pub all_containers: bool,
    /// Of all pods with these labels
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub selector: Option<String>,
    /// Go on as more is written
    #[arg(short, long)]
    pub follow: bool,
    /// Of the container before its last restart
    #[arg(short, long)]
    pub previous: bool,
    /// Only so many lines, the last ones; -1 for all
    #[arg(long, value_name = "LINES", default_value_t = -1, allow_negative_numbers = true, hide_default_value = true)]
    pub tail: i64,
    /// Only what was written since then: 5m, 1h30m
    #[arg(long, value_name = "TIME", value_parser = super::duration, conflicts_with = "since_time")]
    pub since: Option<Duration>,
    /// Only what was written since this moment (RFC 3339)
    #[arg(long, value_name = "MOMENT")]
    pub since_time: Option<jiff::Timestamp>,
    /// With the moment of each line
    #[arg(long)]
    pub timestamps: bool,
    /// With pod and container before each line
    #[arg(long)]
    pub prefix: bool,
    /// No more than so many bytes
    #[arg(long, value_name = "BYTES")]
    pub limit_bytes: Option<u64>,
    /// So many streams at a time when several are followed
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub max_log_requests: usize,
}

/// Prints them.
pub(crate) async fn run(args: &LogsArgs, cluster: &Cluster, out: &mut dyn Write) -> Result<()> {
    let pods = match (&args.what, &args.selector) {
        (Some(what), _) => vec![pods::one_of(cluster, what).await?],
        (None, Some(labels)) => pods::with_labels(cluster, Some(labels)).await?,
        (None, None) => bail!("name a pod, or select some with -l"),
    };
    ensure!(!pods.is_empty(), "no pod has these labels in the namespace {}", cluster.namespace);
    let container = args.container.as_deref().or(args.stray_container.as_deref());
    let mut sources = Vec::new();
    for pod in &pods {
        for container in containers(args, pod, container)? {
            sources.push(Source::new(args, cluster, pod, &container)?);
        }
    }
    if let [source] = sources.as_slice() {
        return copy(args, cluster, source, out).await;
    }
    if !args.follow {
        for source in &sources {
            copy(args, cluster, source, out).await?;
        }
        return Ok(());
    }
    let most = args.max_log_requests.min(STREAMS_MOST);
    ensure!(sources.len() <= most, "{} containers would be followed; --max-log-requests allows {most}", sources.len());
    follow_all(args, cluster, sources, out).await
}

/// Whose logs are meant.
fn containers(args: &LogsArgs, pod: &Value, container: Option<&str>) -> Result<Vec<String>> {
    let all = container_names(pod);
    if args.all_containers {
        return Ok(all);
    }
    pods::container(pod, container).map(|container| vec![container])
}

/// The log of one container.
struct Source {
    call: Call,
    prefix: String,
}

impl Source {
    fn new(args: &LogsArgs, cluster: &Cluster, pod: &Value, container: &str) -> Result<Self> {
        let name = select::name(pod);
        let path = pods::path(pod, &cluster.namespace, "log")?;
        let seconds = args.since.map(|since| since.as_secs().max(1).to_string());
        // Of many at once, the last lines only, as with kubectl.
        let tail = match args.tail {
            -1 if args.selector.is_some() => Some(10),
            -1 => None,
            lines if lines < 0 => bail!("--tail: {lines} lines are none; -1 is all"),
            lines => Some(lines),
        };
        let call = Call::get(path, format!("read the log of pod/{name} (container {container})"))
            .query("container", container)
            .maybe("follow", args.follow.then_some("true"))
            .maybe("previous", args.previous.then_some("true"))
            .maybe("timestamps", args.timestamps.then_some("true"))
            .maybe("tailLines", tail.map(|lines| lines.to_string()))
            .maybe("sinceSeconds", seconds)
            .maybe("sinceTime", args.since_time.map(|since| since.to_string()))
            .maybe("limitBytes", args.limit_bytes.map(|most| most.to_string()));
        Ok(Self { call, prefix: format!("[pod/{name}/{container}] ") })
    }
}

/// What containers write goes out byte for byte, as it comes.
async fn copy(args: &LogsArgs, cluster: &Cluster, source: &Source, out: &mut dyn Write) -> Result<()> {
    let mut stream = cluster.stream(&source.call).await?;
    if args.prefix {
        let mut lines = Lines::new(stream);
        while let Some(line) = lines.next().await? {
            out.write_all(source.prefix.as_bytes())?;
            out.write_all(&line)?;
            out.flush()?;
        }
        return Ok(());
    }
    let mut part = vec![0; PIECE_BYTES];
    loop {
        match stream.read(&mut part).await.context("the log broke off")? {
            0 => return Ok(()),
            count => {
                out.write_all(&part[..count])?;
                out.flush()?;
            }
        }
    }
}

/// Lines of several logs, each whole.
async fn follow_all(args: &LogsArgs, cluster: &Cluster, sources: Vec<Source>, out: &mut dyn Write) -> Result<()> {
    let (tell, mut told) = mpsc::channel::<Vec<u8>>(WAITING_MOST);
    let mut readers = JoinSet::new();
    for source in sources {
        let (tell, cluster) = (tell.clone(), cluster.clone());
        let prefix = if args.prefix { source.prefix.clone() } else { String::new() };
        readers.spawn(async move {
            let mut lines = Lines::new(cluster.stream(&source.call).await?);
            while let Some(line) = lines.next().await? {
                if tell.send([prefix.as_bytes(), &line].concat()).await.is_err() {
                    break;
                }
            }
            Ok::<_, anyhow::Error>(())
        });
    }
    drop(tell);
    while let Some(line) = told.recv().await {
        out.write_all(&line)?;
        out.flush()?;
    }
    while let Some(outcome) = readers.join_next().await {
        outcome??;
    }
    Ok(())
}

/// Lines with their ends; one that is too long comes in pieces.
struct Lines<R> {
    from: BufReader<R>,
}

impl<R: tokio::io::AsyncRead + Unpin> Lines<R> {
    fn new(from: R) -> Self {
        Self { from: BufReader::new(from) }
    }

    async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        use tokio::io::AsyncBufReadExt as _;
        let mut line = Vec::new();
        let mut limited = (&mut self.from).take(PIECE_BYTES as u64);
        limited.read_until(b'\n', &mut line).await.context("the log broke off")?;
        if line.is_empty() {
            return Ok(None);
        }
        if !line.ends_with(b"\n") {
            line.push(b'\n');
        }
        Ok(Some(line))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[tokio::test]
    async fn lines_are_whole_and_those_that_are_too_long_come_in_pieces() {
        let text = [b"a\n".as_slice(), &[b'x'; PIECE_BYTES + 1], b"\nlast"].concat();
        let mut lines = Lines::new(text.as_slice());
        let mut lengths = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            assert!(line.ends_with(b"\n"));
            lengths.push(line.len());
        }
        assert_eq!(lengths, [2, PIECE_BYTES + 1, 2, 5]);
    }
}
