//! How long a change takes to reach everybody who watches a collection, and how many changes a second that bears.
//!
//! A thousand watchers stand for as many machines, and have to share this one with the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use memchr::memmem;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::mpsc;

use super::ApiArgs;
use super::creates::NAMESPACE;
use super::report::{Report, Row};
use super::server::{Server, own_cpu};

const MARK: &[u8] = br#""seq":"n"#;
/// Digits after the mark.
const DIGITS: usize = 10;
/// Nobody is waited for longer than this.
const PATIENCE: Duration = Duration::from_secs(60);

/// When each write was asked for, in microseconds since the beginning, by its number.
struct Times {
    begun: Instant,
    asked: Vec<AtomicU64>,
}

impl Times {
    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

fn object(seq: usize) -> Bytes {
    let data = json!({ "seq": format!("n{seq:0DIGITS$}"), "filler": "x".repeat(300) });
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "watched" }, "data": data })
        .to_string()
        .into()
}

pub(crate) async fn measure(args: &ApiArgs, server: &Server, report: &mut Report) -> Result<()> {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    let mut writer = server.target.connect().await?;
    writer.ask("POST", &path, object(0)).await?;
    let most = 200_000;
    let times = Arc::new(Times { begun: Instant::now(), asked: (0..most).map(|_| AtomicU64::new(0)).collect() });
    let (told, mut heard) = mpsc::unbounded_channel();
    for _ in 0..args.watchers {
        let events = server.target.follow(&format!("{path}?watch=1")).await?;
        let (times, told) = (Arc::clone(&times), told.clone());
        tokio::spawn(async move { follow(events, &times, &told).await });
    }
    stand_back()?;
    let mut seq = 0;
    let (mut delivered_rate, mut at_fifty) = (0.0, None);
    for rate in [50_u32, 100, 150, 200, 300, 400, 600, 800] {
        let count = usize::try_from(rate)? * usize::try_from(args.seconds.max(5))?;
        let (served, spent) = (server.cpu()?, own_cpu()?);
        let begun = Instant::now();
        let mut answered = Vec::with_capacity(count);
        for n in 0..count {
            // Asked for on time or late, never early; a late one counts from when it was due.
            let due = begun + Duration::from_secs_f64(n as f64 / f64::from(rate));
            tokio::time::sleep_until(due.into()).await;
            seq += 1;
            let due = u64::try_from(due.saturating_duration_since(times.begun).as_micros())?;
            times.asked[seq].store(due, Ordering::Relaxed);
            writer.ask("PUT", &format!("{path}/watched"), object(seq)).await?;
            answered.push(times.now() - due);
        }
        let mut latencies = Vec::with_capacity(count * args.watchers);
        while latencies.len() < count * args.watchers {
            let latency = tokio::time::timeout(PATIENCE, heard.recv()).await.context("a watcher misses an event")?;
            latencies.push(latency.context("every watcher ended")?);
        }
        let took = begun.elapsed().as_secs_f64();
        latencies.sort_unstable();
        answered.sort_unstable();
        let at = |percent| at(&latencies, percent);
        let deliveries = latencies.len() as f64;
        let cost = format!(
            "{:.1} µs server, {:.1} µs client per delivery",
            (server.cpu()? - served).as_secs_f64() * 1e6 / deliveries,
            (own_cpu()? - spent).as_secs_f64() * 1e6 / deliveries
        );
        eprintln!(
            "{rate} writes/s: p50 {:.1} ms, p99 {:.1} ms, {:.0} deliveries/s, {cost}; answer to the writer p99 {:.1} ms",
            at(50),
            at(99),
            deliveries / took,
            self::at(&answered, 99)
        );
        if rate == 50 {
            let what = format!("write -> {} watchers, 50 writes/s, p99", args.watchers);
            at_fifty = Some(Row::new(what).ours(at(99), "ms").at_most(20.0).cost(cost));
        }
        let kept_up = took < 1.1 * count as f64 / f64::from(rate) && at(99) < 100.0;
        delivered_rate = f64::max(delivered_rate, deliveries / took);
        if !kept_up {
            break;
        }
    }
    report.add(at_fifty.context("the first rate")?);
    let what = format!("deliveries/s to {} watchers where it saturates", args.watchers);
    let row = Row::new(what).ours(delivered_rate, "/s");
    report.add(row.cost(format!("{:.0} writes/s", delivered_rate / args.watchers as f64)));
    Ok(())
}

/// Whoever is woken elsewhere takes no processor away from the server; nor do our threads when an event wakes them.
fn stand_back() -> Result<()> {
    let pid = std::process::id().to_string();
    let done = std::process::Command::new("chrt").args(["--all-tasks", "--batch", "--pid", "0", &pid]).status()?;
    ensure!(done.success(), "chrt: {done}");
    Ok(())
}

/// In milliseconds, of sorted microseconds.
fn at(sorted: &[u64], percent: usize) -> f64 {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)] as f64 / 1000.0
}

/// Tells how long each event took to come.
async fn follow(mut events: impl AsyncRead + Unpin, times: &Times, told: &mpsc::UnboundedSender<u64>) -> Result<()> {
    let mut unread = vec![0; 8 * 1024];
    let mut filled = 0;
    loop {
        let read = events.read(&mut unread[filled..]).await?;
        ensure!(read > 0, "a watch ended");
        let now = times.now();
        filled += read;
        let mut at = 0;
        while let Some(found) = find(&unread[at..filled]) {
            let digits = at + found + MARK.len();
            let seq: usize = std::str::from_utf8(&unread[digits..digits + DIGITS])?.parse()?;
            if seq > 0 {
                told.send(now.saturating_sub(times.asked[seq].load(Ordering::Relaxed)))?;
            }
            at = digits + DIGITS;
        }
        // A mark may have come in part.
        let keep = (filled - at).min(MARK.len() + DIGITS);
        unread.copy_within(filled - keep..filled, 0);
        filled = keep;
    }
}

/// Where the next whole mark with its digits begins.
fn find(bytes: &[u8]) -> Option<usize> {
    let searched = bytes.get(..bytes.len().checked_sub(DIGITS)?)?;
    memmem::find(searched, MARK)
}
