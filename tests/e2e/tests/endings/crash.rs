//! `kill -9` of the server again and again, at moments that chance chooses, while thousands write and some watch.
//!
//! `CRASHES` says how often (the default fits into every test run), `SEED` repeats a run's moments.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::crowd::{self, Kind, Seen, Writer};
use e2e::dice::Dice;
use e2e::pods::SOON;
use e2e::{Instance, instance};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

/// All of them have a request under way at the same time.
const WRITERS: usize = 2000;
/// A server takes a thousand requests at once on each.
const CONNECTIONS: usize = 4;
const WATCHERS: usize = 3;
const CRASHES: usize = 6;

/// How many writes the server acknowledges at most before it is killed, in as much time as it may take, and how long it
/// lives beyond that.
const WRITES: u64 = 1500;
const LIFE: Duration = Duration::from_secs(3);
const BEYOND: Duration = Duration::from_millis(20);

/// Whatever was acknowledged is there, whatever was not is there whole or not at all, no revision is given out twice, and
/// watchers that resume miss nothing and see nothing twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_crash_loses_or_repeats_a_write() -> Result<()> {
    let crashes =
        std::env::var("CRASHES").map_or(Ok(CRASHES), |number| number.parse().context("CRASHES is a number"))?;
    let mut dice = Dice::seeded()?;
    let mut instance = Instance::start().await?;
    let client = instance.client().await?;
    let from = crowd::prepare(&client).await?;
    let (came_up, lives) = watch::channel(0);
    let (stop, heard) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let told = Arc::new(Notify::new());
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(instance::crowded_client(&instance.kubeconfig()).await?);
    }

    let mut writing = JoinSet::new();
    for number in 0..WRITERS {
        let kind = if number % 4 == 0 { Kind::Pod } else { Kind::ConfigMap };
        let (stop, heard, told) = (Arc::clone(&stop), Arc::clone(&heard), Arc::clone(&told));
        writing.spawn(Writer::new(kind, number).work(
            connections[number % CONNECTIONS].clone(),
            lives.clone(),
            move || stop.load(Ordering::Relaxed),
            move || {
                heard.fetch_add(1, Ordering::Relaxed);
                told.notify_one();
            },
        ));
    }
    // How many events there are to see; not known before the writers have ended.
    let totals = Arc::new([AtomicUsize::new(usize::MAX), AtomicUsize::new(usize::MAX)]);
    let mut watching = JoinSet::new();
    for kind in [Kind::ConfigMap, Kind::Pod] {
        for _ in 0..WATCHERS {
            let (client, from, lives, totals) = (client.clone(), from.clone(), lives.clone(), Arc::clone(&totals));
            watching.spawn(async move {
                let total = &totals[kind as usize];
                let enough = |seen: &Seen| seen.count() >= total.load(Ordering::Relaxed);
                Seen::watching(kind, client, from, lives, enough).await.map(|seen| (kind, seen))
            });
        }
    }

    for crash in 1..=crashes {
        let before = heard.load(Ordering::Relaxed);
        let more = async |writes: usize| {
            while heard.load(Ordering::Relaxed) < before + writes {
                told.notified().await;
            }
        };
        tokio::time::timeout(SOON, more(1)).await.context("nobody can write")?;
        // A busy machine may not get that far; then the time is up.
        let writes = usize::try_from(dice.below(Duration::from_micros(WRITES)).as_micros())?;
        let _ = tokio::time::timeout(LIFE, more(writes)).await;
        tokio::time::sleep(dice.below(BEYOND)).await;
        instance.kill_9().await?;
        println!("crash {crash}: {} writes acknowledged so far", heard.load(Ordering::Relaxed));
        instance.up().await?;
        came_up.send_replace(crash);
        if let Some(ended) = writing.try_join_next() {
            ended??;
        }
    }
    stop.store(true, Ordering::Relaxed);
    let mut writers = Vec::new();
    while let Some(writer) = writing.join_next().await {
        writers.push(writer??);
    }
    // The watchers end with the event that makes their number full; one more write wakes those that have it already.
    for kind in [Kind::ConfigMap, Kind::Pod] {
        totals[kind as usize].store(crowd::events_of(kind, &writers), Ordering::Relaxed);
    }
    for kind in [Kind::ConfigMap, Kind::Pod] {
        crowd::touch(kind, &client, "wake").await?;
    }
    let mut watchers = Vec::new();
    while let Some(watcher) = watching.join_next().await {
        watchers.push(watcher??);
    }
    crowd::check(&writers, &watchers)?;
    let done: u64 = writers.iter().map(Writer::done).sum();
    ensure!(done >= heard.load(Ordering::Relaxed) as u64, "{done} done, {heard:?} acknowledged");
    println!("{done} writes by {WRITERS} writers, {crashes} crashes, {} watchers agree", watchers.len());
    instance.down().await?;
    Ok(())
}
