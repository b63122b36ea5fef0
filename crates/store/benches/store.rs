//! Durable writes per second, beside the least the same disk can do: append a record and `fdatasync`, one at a time.
//!
//! Run with `cargo bench -p store`. Only the ratios travel between machines.
#![allow(clippy::unwrap_used, reason = "a benchmark has nobody to answer to")]

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use store::{Expect, Key, Step, Store};

const LASTS: Duration = Duration::from_secs(3);

fn main() {
    let directory = tempfile::tempdir_in(std::env::var_os("STORE_BENCH_DIR").unwrap_or_else(|| ".".into())).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let raw = raw_appends(directory.path());
    println!("raw append + fdatasync, 1 KiB  {raw:8.0}/s   1.00");
    for writers in [1, 64] {
        let path = directory.path().join(format!("store-{writers}"));
        let rate = runtime.block_on(store_writes(&path, writers));
        println!("store, {writers:2} writer(s), 1 KiB      {rate:8.0}/s   {:.2}", rate / raw);
    }
    let path = directory.path().join("store-removals");
    let (apart, together) = runtime.block_on(removals(&path));
    println!("mark and removal, two writes     {apart:8.0}/s   1.00");
    println!("mark and removal, one trip       {together:8.0}/s   {:.2}", together / apart);
}

/// Deletes without grace per second, one at a time: the mark and the removal as two writes, and handed over together.
async fn removals(path: &Path) -> (f64, f64) {
    let store = Store::open(path).await.unwrap();
    let key = Key::new("pods", "default", "web");
    let mut rates = Vec::new();
    for together in [false, true] {
        let (mut busy, mut count) = (Duration::ZERO, 0_u32);
        while busy < LASTS {
            let put = |n| Step::Put { key: key.clone(), value: about_a_kibibyte(n) };
            let made = store.write(&key, Expect::Absent, vec![put(0)]).await.unwrap()[0].revision();
            let (start, expects) = (Instant::now(), vec![(key.clone(), Expect::Revision(made))]);
            if together {
                store.transact_then_delete(expects, vec![put(1)], key.clone()).await.unwrap();
            } else {
                let marked = store.transact(expects, vec![put(1)]).await.unwrap()[0].revision();
                store.write(&key, Expect::Revision(marked), vec![Step::Delete { key: key.clone() }]).await.unwrap();
            }
            busy += start.elapsed();
            count += 1;
        }
        rates.push(f64::from(count) / busy.as_secs_f64());
    }
    (rates[0], rates[1])
}

fn raw_appends(directory: &Path) -> f64 {
    let mut file = File::create(directory.join("raw")).unwrap();
    let record = [7_u8; 1024];
    let start = Instant::now();
    let mut count = 0_u32;
    while start.elapsed() < LASTS {
        file.write_all(&record).unwrap();
        file.sync_data().unwrap();
        count += 1;
    }
    f64::from(count) / start.elapsed().as_secs_f64()
}

async fn store_writes(path: &Path, writers: usize) -> f64 {
    let store = Store::open(path).await.unwrap();
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..writers {
        let store = store.clone();
        tasks.spawn(async move {
            let mut count = 0_u32;
            while start.elapsed() < LASTS {
                let key = Key::new("pods", "default", format!("w{writer}-{}", count % 1000));
                let expect = store.get(&key).map_or(Expect::Absent, |object| Expect::Revision(object.revision));
                let step = Step::Put { key: key.clone(), value: about_a_kibibyte(count) };
                store.write(&key, expect, vec![step]).await.unwrap();
                count += 1;
            }
            count
        });
    }
    let mut total = 0;
    while let Some(count) = tasks.join_next().await {
        total += count.unwrap();
    }
    f64::from(total) / start.elapsed().as_secs_f64()
}

fn about_a_kibibyte(n: u32) -> Value {
    json!({ "metadata": { "name": "web", "labels": { "n": n.to_string() } }, "filler": "x".repeat(900) })
}
