//! What survives the worst: a writer killed in mid-write, a disk that takes no more, a file that is not what it was.
//!
//! The process that suffers is this test binary run again, with one of the ignored tests below as its role.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use common::*;
use rustix::process::{Resource, Rlimit};
use store::{Change, Expect, OpenError, Revision, Store, Window, WriteError};

const FILE: &str = "STORE_TEST_FILE";
/// Small enough that rows are removed while the writers write.
const WINDOW: Window = Window { changes: 500, bytes: usize::MAX };
const WRITERS: u64 = 16;

fn role(name: &str, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"]).env(FILE, path);
    command
}

fn file() -> PathBuf {
    std::env::var_os(FILE).expect("run by another test").into()
}

/// Writes until it is killed; tells each write once it is acknowledged.
#[test]
#[ignore = "a role of the tests below"]
fn writer() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Store::open_with(&file(), WINDOW).await.unwrap();
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..WRITERS {
            let store = store.clone();
            writers.spawn(async move {
                let key = pod("default", &format!("w{writer}"));
                let mut n = store.get(&key).map_or(0, |object| n_of(&object));
                loop {
                    n += 1;
                    let mut steps = put(&key, n);
                    if n.is_multiple_of(5) {
                        // Gone and back in one write: either both are there after a crash, or neither.
                        steps.splice(0..0, delete(&key));
                    }
                    let changes = store.write(&key, current(&store, &key), steps).await.unwrap();
                    let line = format!("acknowledged {writer} {n} {}\n", changes.last().unwrap().revision());
                    std::io::stdout().write_all(line.as_bytes()).unwrap();
                }
            });
        }
        // Nobody listening any more ends a writer, and so the process.
        writers.join_next().await.unwrap().unwrap()
    });
}

/// Reads what the child acknowledges, kills it after `enough`, and reads on to the end of what it had said by then.
fn acknowledged(mut child: Child, enough: usize) -> Vec<(u64, u64, Revision)> {
    let mut heard = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        // The test harness of the child talks on the same pipe.
        let Some((_, words)) = line.split_once("acknowledged ") else { continue };
        let words: Vec<u64> = words.split(' ').map(|word| word.parse().unwrap()).collect();
        heard.push((words[0], words[1], Revision(words[2])));
        if heard.len() == enough {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    heard
}

#[tokio::test]
async fn a_writer_killed_in_mid_write_loses_nothing_it_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let mut newest: BTreeMap<u64, u64> = BTreeMap::new();
    let mut owners: BTreeMap<Revision, (u64, u64)> = BTreeMap::new();
    let mut seen_up_to = Revision::FIRST;
    let mut resumed = 0;
    for round in 0..12_usize {
        let child = role("writer", &path).stdout(Stdio::piped()).spawn().unwrap();
        let heard = acknowledged(child, 37 + 101 * round % 400);
        assert!(heard.len() >= 37, "the child was killed after it wrote: {}", heard.len());
        let store = Store::open_with(&path, WINDOW).await.unwrap();
        for &(writer, n, revision) in &heard {
            assert!(revision > seen_up_to, "{revision} was given out in an earlier life");
            assert_eq!(owners.insert(revision, (writer, n)), None, "{revision} was given out twice");
            newest.insert(writer, n);
        }
        for (writer, n) in &newest {
            let stored = n_of(&store.get(&pod("default", &format!("w{writer}"))).expect("acknowledged, so there"));
            assert!(stored == *n || stored == n + 1, "writer {writer}: {n} acknowledged, {stored} stored");
        }
        // A watch that resumes where it was before the crash is told everything since, once, in order.
        if let Ok(mut watch) = store.watch("pods", "", Some(seen_up_to)) {
            let mut told = BTreeMap::new();
            while watch.progress() < store.revision() {
                let change = soon(&mut watch).await;
                assert!(told.last_key_value().is_none_or(|(last, _)| *last < change.revision()));
                told.insert(change.revision(), change);
            }
            resumed += 1;
            for &(writer, n, revision) in &heard {
                let object = told[&revision].object();
                assert_eq!((&*object.key.name, n_of(object)), (&*format!("w{writer}"), n));
            }
        }
        seen_up_to = store.revision();
    }
    assert!(resumed > 6, "most rounds fit the window: {resumed}");
}

/// Runs into the limit its parent set, and out of it again.
#[test]
#[ignore = "a role of the tests below"]
fn writer_on_a_full_disk() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Store::open(&file()).await.unwrap();
        let mut watch = store.watch("pods", "", None).unwrap();
        let big = |n: u64| {
            let key = pod("default", &format!("p{n}"));
            let mut value = value(&key, n);
            value["filler"] = "x".repeat(100_000).into();
            (key.clone(), vec![store::Step::Put { key, value }])
        };
        let mut written = 0;
        let failed = loop {
            let (key, steps) = big(written);
            match store.write(&key, Expect::Absent, steps).await {
                Ok(_) => written += 1,
                Err(error) => break error,
            }
            assert!(written < 1000, "the limit is felt");
        };
        assert!(matches!(failed, WriteError::Log(_)), "{failed:?}");
        assert!(std::error::Error::source(&failed).is_some());
        let newest = store.revision();
        assert_eq!(newest.0, Revision::FIRST.0 + written, "nothing of the failed write is visible");
        for n in 0..written {
            assert_eq!(soon(&mut watch).await.revision(), Revision(Revision::FIRST.0 + 1 + n));
        }
        assert_eq!(watch.progress(), newest);
        let (key, steps) = big(written);
        assert!(store.get(&key).is_none());
        // Still full: still refused.
        assert!(matches!(store.write(&key, Expect::Absent, steps).await, Err(WriteError::Log(_))));
        assert_eq!(store.list("pods", "", None).unwrap().items.len() as u64, written, "reads go on");

        let limit = rustix::process::getrlimit(Resource::Fsize);
        rustix::process::setrlimit(Resource::Fsize, Rlimit { current: limit.maximum, maximum: limit.maximum }).unwrap();
        let (key, steps) = big(written);
        let changes = store.write(&key, Expect::Absent, steps).await.unwrap();
        assert!(changes[0].revision().0 > newest.0 + 2, "a revision that failed is not used again");
        assert!(matches!(soon(&mut watch).await, Change::Added(_)));
        let expected = names(&store.list("pods", "", None).unwrap().items);
        let revision = store.revision();
        drop((store, watch));
        let store = Store::open(&file()).await.unwrap();
        assert_eq!(names(&store.list("pods", "", None).unwrap().items), expected);
        assert_eq!(store.revision(), revision);
    });
}

#[test]
fn a_full_disk_refuses_writes_shows_none_of_them_and_recovers() {
    let directory = tempfile::tempdir().unwrap();
    let inner = role("writer_on_a_full_disk", &directory.path().join("store"));
    // The kernel's own limit on the size of a file; its signal ignored, so that writes fail as on a full disk.
    let mut command = Command::new("sh");
    command.args(["-c", r#"trap "" XFSZ; ulimit -S -f 8192; exec "$0" "$@""#]).arg(inner.get_program());
    command.args(inner.get_args()).envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[tokio::test]
async fn a_second_opener_is_told_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = Store::open(&path).await.unwrap();
    let error = Store::open(&path).await.unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }), "{error:?}");
    assert!(error.to_string().contains("stop that one"), "{error}");
    let key = pod("default", "web");
    set(&store, &key, 1).await;
    drop(store);
    assert_eq!(n_of(&Store::open(&path).await.unwrap().get(&key).unwrap()), 1);
}

#[tokio::test]
async fn what_is_no_store_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    std::fs::write(&path, "a diary\n".repeat(1000)).unwrap();
    let error = Store::open(&path).await.unwrap_err();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error:?}");
    assert_eq!(std::fs::read(&path).unwrap(), "a diary\n".repeat(1000).as_bytes());
    let nowhere = Store::open(&directory.path().join("no/such/directory/store")).await.unwrap_err();
    assert!(matches!(nowhere, OpenError::Io { .. }), "{nowhere:?}");
}

/// Flips one byte at a time all over a store, after an orderly end and after a crash. Whatever opens afterwards must be
/// what was written: a damaged file may be refused, never misread. After a crash one thing cannot be told apart: damage in
/// the last commit, and a last commit that was never finished. Then it is taken back, and its revision passed over.
#[tokio::test]
async fn a_flipped_byte_is_never_believed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = Store::open(&path).await.unwrap();
    for n in 0..200 {
        set(&store, &pod("default", &format!("p{}", n % 50)), n).await;
    }
    let written = names(&store.list("pods", "", None).unwrap().items);
    let newest = store.revision();
    let without_last = names(&store.list("pods", "", Some(Revision(newest.0 - 1))).unwrap().items);
    let crashed = std::fs::read(&path).unwrap();
    drop(store);
    let clean = std::fs::read(&path).unwrap();
    let mut outcomes: BTreeMap<(bool, &str), usize> = BTreeMap::new();
    for (crash, bytes) in [(false, &clean), (true, &crashed)] {
        let used = bytes.iter().rposition(|byte| *byte != 0).unwrap();
        for at in (0..used).step_by(used / 60) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            let path = directory.path().join("damaged");
            std::fs::write(&path, &damaged).unwrap();
            let outcome = match Store::open(&path).await {
                Ok(store) => {
                    let read = names(&store.list("pods", "", None).unwrap().items);
                    assert!(store.revision() > newest || !crash, "byte {at}: {}", store.revision());
                    if read == written {
                        "intact"
                    } else {
                        assert!(crash && read == without_last, "crash: {crash}, byte {at}");
                        "last commit taken back"
                    }
                }
                Err(OpenError::Damaged { .. } | OpenError::Newer { .. }) => "refused",
                Err(other) => panic!("crash: {crash}, byte {at}: {other:?}"),
            };
            *outcomes.entry((crash, outcome)).or_default() += 1;
        }
    }
    assert!(outcomes[&(false, "refused")] > 0 && outcomes[&(true, "refused")] > 0, "some byte mattered: {outcomes:?}");
}
