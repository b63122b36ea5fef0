//! What survives the worst: a writer killed in mid-write, a disk that takes no more, a file that is not what it was.
//!
//! The process that suffers is this test binary run again, with one of the ignored tests below as its role.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::*;
use rustix::process::{Resource, Rlimit};
use store::{Change, Expect, OpenError, Revision, Store, Window, WriteError};

const FOLDER: &str = "STORE_TEST_FOLDER";
/// How many bytes of nothing an object carries.
const FILLER: &str = "STORE_TEST_FILLER";
/// Small enough that rows are removed while the writers write.
const WINDOW: Window = Window { changes: 500, bytes: usize::MAX, age: Duration::MAX };
const WRITERS: u64 = 16;

fn role(name: &str, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", &format!("crash::{name}"), "--ignored", "--nocapture", "--test-threads=1"])
        .env(FOLDER, path);
    command
}

fn folder() -> PathBuf {
    std::env::var_os(FOLDER).expect("run by another test").into()
}

/// Writes until it is killed; tells each write once it is acknowledged.
#[test]
#[ignore = "a role of the tests below"]
fn writer() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let filler = "x".repeat(std::env::var(FILLER).unwrap().parse().unwrap());
    runtime.block_on(async {
        let store = Store::open_with(&folder(), WINDOW).await.unwrap();
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..WRITERS {
            let (store, filler) = (store.clone(), filler.clone());
            writers.spawn(async move {
                let key = pod("default", &format!("w{writer}"));
                let mut n = store.get(&key).map_or(0, |object| n_of(&object));
                loop {
                    n += 1;
                    let mut value = value(&key, n);
                    value["filler"] = filler.as_str().into();
                    let mut steps = vec![store::Step::Put { key: key.clone(), value }];
                    if n.is_multiple_of(5) {
                        // Two objects in one write: either both are there after a crash, or neither.
                        steps.extend(put(&twin(writer), n));
                    }
                    let expects = vec![(key.clone(), current(&store, &key))];
                    let changes = store.transact(expects, steps).await.unwrap();
                    let line = format!("acknowledged {writer} {n} {}\n", changes[0].revision());
                    std::io::stdout().write_all(line.as_bytes()).unwrap();
                }
            });
        }
        // Nobody listening any more ends a writer, and so the process.
        writers.join_next().await.unwrap().unwrap()
    });
}

/// What every fifth write of a writer changes besides.
fn twin(writer: u64) -> store::Key {
    store::Key::new("twins", "default", format!("w{writer}"))
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
        // Every other round writes so much that segments end and snapshots are made meanwhile.
        let filler = if round % 2 == 1 { "25000" } else { "0" };
        let child = role("writer", &path).env(FILLER, filler).stdout(Stdio::piped()).spawn().unwrap();
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
            let beside = store.get(&twin(*writer)).map_or(0, |twin| n_of(&twin));
            assert_eq!(beside, stored - stored % 5, "writer {writer}: both or neither");
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
    let snapshots = files(&path).into_iter().filter(|name| name.ends_with(".snapshot")).count();
    assert_eq!(snapshots, 1, "{:?}", files(&path));
}

/// Runs into the limit its parent set, and out of it again.
#[test]
#[ignore = "a role of the tests below"]
fn writer_on_a_full_disk() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Store::open(&folder()).await.unwrap();
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
        assert!(!store.takes_writes(), "and says so");
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
        assert!(store.takes_writes());
        assert!(matches!(soon(&mut watch).await, Change::Added(_)));
        let expected = names(&store.list("pods", "", None).unwrap().items);
        let revision = store.revision();
        drop((store, watch));
        let store = Store::open(&folder()).await.unwrap();
        assert_eq!(names(&store.list("pods", "", None).unwrap().items), expected);
        assert_eq!(store.revision(), revision);
    });
}

/// Runs `role` in a child after `setup`, which may take things away from it.
fn run_with(setup: &str, name: &str, path: &Path) {
    let inner = role(name, path);
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-ec", &format!(r#"{setup}; exec "$0" "$@""#)]).arg(inner.get_program());
    command.args(inner.get_args()).envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_full_disk_refuses_writes_shows_none_of_them_and_recovers() {
    let directory = tempfile::tempdir().unwrap();
    // The kernel's own limit on the size of a file; its signal ignored, so that writes fail as on a full disk.
    let setup = r#"trap "" XFSZ; ulimit -S -f 8192"#;
    run_with(setup, "writer_on_a_full_disk", &directory.path().join("store"));
}

/// A filesystem of its own that runs full, snapshots and all, and is made larger again.
#[test]
#[ignore = "a role of the tests below"]
fn writer_on_a_small_filesystem() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Store::open_with(&folder(), WINDOW).await.unwrap();
        let write = async |n: u64| {
            let key = pod("default", &format!("p{n}"));
            let mut value = value(&key, n);
            value["filler"] = "x".repeat(25_000).into();
            store.write(&key, Expect::Absent, vec![store::Step::Put { key: key.clone(), value }]).await
        };
        let (mut written, mut refused) = (0, 0);
        // A snapshot that did not fit gives its room back, so that a few writes may fit in between.
        while refused < 20 {
            match write(written).await {
                Ok(_) => written += 1,
                Err(WriteError::Log(source)) => {
                    assert!(source.to_string().contains("No space left"), "{source}");
                    refused += 1;
                }
                Err(error @ (WriteError::Conflict(_) | WriteError::Refused(_))) => panic!("{error:?}"),
            }
        }
        let listed = names(&store.list("pods", "", None).unwrap().items);
        assert_eq!(listed.len() as u64, written, "reads go on, and show what was acknowledged");
        // What is there may be changed, until the reserve is used up as well.
        let (mut rewritten, mut failed) = (0, 0);
        while failed < 20 {
            let found = store.get(&pod("default", "p0")).unwrap();
            let mut value = found.to_value();
            value["n"] = (1000 + rewritten).into();
            let step = store::Step::Put { key: found.key.clone(), value };
            match store.write(&found.key, Expect::Revision(found.revision), vec![step]).await {
                Ok(_) => rewritten += 1,
                Err(WriteError::Log(source)) => {
                    assert!(source.to_string().contains("No space left"), "{source}");
                    failed += 1;
                }
                Err(error @ (WriteError::Conflict(_) | WriteError::Refused(_))) => panic!("{error:?}"),
            }
        }
        let disk = folder().parent().unwrap().to_owned();
        let remount = |size: &str| {
            let status = Command::new("mount").args(["-o", &format!("remount,size={size}")]).arg(&disk).status();
            assert!(status.unwrap().success());
        };
        remount("200m");
        let changes = write(written).await.unwrap();
        assert!(
            changes[0].revision().0 > Revision::FIRST.0 + written + rewritten + 1,
            "a revision that failed is not used again"
        );
        let listed = names(&store.list("pods", "", None).unwrap().items);
        let revision = store.revision();
        drop(store);
        let store = Store::open_with(&folder(), WINDOW).await.unwrap();
        assert_eq!(names(&store.list("pods", "", None).unwrap().items), listed);
        assert_eq!(store.revision(), revision);
    });
}

#[test]
fn a_filesystem_that_runs_full_loses_nothing_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    // Large enough for a segment to end, too small for the snapshot that would let it go.
    let setup = format!("mount -t tmpfs -o size=14m none {}", directory.path().display());
    run_with(&setup, "writer_on_a_small_filesystem", &directory.path().join("store"));
}

/// Others fill the filesystem to its last byte.
#[test]
#[ignore = "a role of the tests below"]
fn writer_beside_a_filler() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Store::open_with(&folder(), WINDOW).await.unwrap();
        let put = async |n: u64, size: usize, expect: Expect| {
            let key = pod("default", &format!("p{n}"));
            let mut value = value(&key, n);
            value["filler"] = "x".repeat(size).into();
            store.write(&key, expect, vec![store::Step::Put { key: key.clone(), value }]).await
        };
        let is_full = |outcome: Result<Vec<store::Change>, WriteError>| match outcome {
            Err(WriteError::Log(source)) => assert!(source.to_string().contains("No space left"), "{source}"),
            other => panic!("{other:?}"),
        };
        for n in 0..100 {
            put(n, 10_000, Expect::Absent).await.unwrap();
        }
        let filler = folder().parent().unwrap().join("filler");
        let mut file = std::fs::File::create(&filler).unwrap();
        for size in [1 << 16, 1] {
            while file.write_all(&vec![7; size]).is_ok() {}
        }
        // The reserve is the first to be used up by half; from then on nothing new is taken.
        let mut n = 100;
        while put(n, 100_000, Expect::Absent).await.is_ok() {
            n += 1;
            assert!(n < 200, "the disk is full");
        }
        is_full(put(n, 10, Expect::Absent).await);
        let revision = |n: u64| Expect::Revision(store.get(&pod("default", &format!("p{n}"))).unwrap().revision);
        is_full(put(0, 100_000, revision(0)).await);
        for n in 0..100 {
            put(n, 10_500, revision(n)).await.unwrap();
            remove(&store, &pod("default", &format!("p{n}"))).await;
        }
        drop((file, std::fs::remove_file(&filler)));
        put(0, 100_000, Expect::Absent).await.unwrap();
        let listed = names(&store.list("pods", "", None).unwrap().items);
        drop(store);
        let store = Store::open_with(&folder(), WINDOW).await.unwrap();
        assert_eq!(names(&store.list("pods", "", None).unwrap().items), listed);
    });
}

#[test]
fn full_disk_takes_statuses_and_removals_and_no_new_objects_until_it_has_room() {
    let directory = tempfile::tempdir().unwrap();
    let setup = format!("mount -t tmpfs -o size=32m none {}", directory.path().display());
    run_with(&setup, "writer_beside_a_filler", &directory.path().join("store"));
}

/// Others fill the filesystem, and take whatever is given back; the writer was killed in the middle of a write, and its segment is long
/// enough for another to begin.
#[test]
#[ignore = "a role of the tests below"]
fn writer_cut_off_beside_a_filler() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let put = async |store: &Store, n: u64| {
            let key = pod("default", &format!("p{}", n % 300));
            let mut value = value(&key, n);
            value["filler"] = "x".repeat(9_000).into();
            let expect = store.get(&key).map_or(Expect::Absent, |stored| Expect::Revision(stored.revision));
            store.write(&key, expect, vec![store::Step::Put { key: key.clone(), value }]).await.unwrap();
        };
        let store = Store::open_with(&folder(), WINDOW).await.unwrap();
        for n in 0..300 {
            put(&store, n).await;
        }
        drop(store);
        let mut filler = std::fs::File::create(folder().parent().unwrap().join("filler")).unwrap();
        let mut fill = || {
            for size in [1 << 16, 1] {
                while filler.write_all(&vec![7; size]).is_ok() {}
            }
        };
        fill();
        let segment = folder().join(FIRST_SEGMENT);
        let (whole, file) = (std::fs::read(&segment).unwrap(), std::fs::File::options().append(true).open(&segment));
        // The front of a frame as it might have been, had there been time for the rest.
        file.unwrap().write_all(&whole[..40]).unwrap();
        let store = Store::open_with(&folder(), WINDOW).await.unwrap();
        for n in 300..650 {
            fill();
            put(&store, n).await;
        }
        for n in 0..300 {
            fill();
            remove(&store, &pod("default", &format!("p{n}"))).await;
        }
        drop(store);
        let store = Store::open_with(&folder(), WINDOW).await.unwrap();
        assert_eq!(store.list("pods", "", None).unwrap().items.len(), 0);
    });
}

#[test]
fn store_cut_off_on_a_full_disk_keeps_its_reserve_beside_whoever_fills_it() {
    let directory = tempfile::tempdir().unwrap();
    let setup = format!("mount -t tmpfs -o size=32m none {}", directory.path().display());
    run_with(&setup, "writer_cut_off_beside_a_filler", &directory.path().join("store"));
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

/// The names of what is in a folder, in order.
fn files(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "lock")
        .collect();
    names.sort();
    names
}

/// A copy of a store's folder, to be hurt.
fn copy(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir(to).unwrap();
    for name in files(from) {
        std::fs::copy(from.join(&name), to.join(&name)).unwrap();
    }
}

/// The one file of a log that is being written.
const FIRST_SEGMENT: &str = "00000000000000000001.log";

#[tokio::test]
async fn file_that_is_no_store_is_refused_and_left_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let diary = "a diary\n".repeat(1000);
    std::fs::write(&path, &diary).unwrap();
    let error = Store::open(&path).await.unwrap_err();
    assert!(matches!(error, OpenError::Io { .. }), "{error:?}");
    assert_eq!(std::fs::read(&path).unwrap(), diary.as_bytes());
    let folder = directory.path().join("folder");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join(FIRST_SEGMENT), &diary).unwrap();
    let error = Store::open(&folder).await.unwrap_err();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error:?}");
    assert_eq!(std::fs::read(folder.join(FIRST_SEGMENT)).unwrap(), diary.as_bytes());
    let nowhere = Store::open(&directory.path().join("no/such/directory/store")).await.unwrap_err();
    assert!(matches!(nowhere, OpenError::Io { .. }), "{nowhere:?}");
}

/// A store with a history, and what its lists were at every revision.
async fn history(path: &Path) -> BTreeMap<Revision, Vec<(String, u64)>> {
    let store = Store::open(path).await.unwrap();
    let mut states = BTreeMap::from([(store.revision(), Vec::new())]);
    for n in 0..60 {
        let key = pod("default", &format!("p{}", n % 7));
        if n % 5 == 4 && store.get(&key).is_some() {
            remove(&store, &key).await
        } else {
            set(&store, &key, n).await
        };
        states.insert(store.revision(), names(&store.list("pods", "", None).unwrap().items));
    }
    states
}

/// Flips bytes all over a store. Whatever was changed, the store is refused: never misread, never silently shortened.
#[tokio::test]
async fn a_flipped_byte_is_never_believed() {
    let directory = tempfile::tempdir().unwrap();
    let (path, hurt) = (directory.path().join("store"), directory.path().join("hurt"));
    history(&path).await;
    copy(&path, &hurt);
    let bytes = std::fs::read(path.join(FIRST_SEGMENT)).unwrap();
    for at in (0..bytes.len()).step_by(61) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        std::fs::write(hurt.join(FIRST_SEGMENT), &damaged).unwrap();
        let error = Store::open(&hurt).await.expect_err("a flipped byte is noticed");
        assert!(matches!(error, OpenError::Damaged { .. }), "byte {at}: {error:?}");
        assert!(error.to_string().contains("`adieu store restore`"), "{error}");
        assert!(std::error::Error::source(&error).is_some());
        assert_eq!(std::fs::read(hurt.join(FIRST_SEGMENT)).unwrap(), damaged, "and it is left as it was");
    }
}

/// Cuts the log at every length: what a crash leaves of its last write. Every write before it is there, none is there in
/// part, and the store goes on.
#[tokio::test]
async fn a_log_cut_anywhere_is_what_it_was_after_some_write() {
    let directory = tempfile::tempdir().unwrap();
    let (path, hurt) = (directory.path().join("store"), directory.path().join("hurt"));
    let states = history(&path).await;
    copy(&path, &hurt);
    let bytes = std::fs::read(path.join(FIRST_SEGMENT)).unwrap();
    let head = 16 + 30;
    let mut seen = std::collections::BTreeSet::new();
    for length in (head..=bytes.len()).step_by(37).chain([bytes.len()]) {
        std::fs::write(hurt.join(FIRST_SEGMENT), &bytes[..length]).unwrap();
        // A crash leaves nothing that says that there was more.
        std::fs::remove_file(directory.path().join("hurt.mark")).or_else(missing).unwrap();
        let store = Store::open(&hurt).await.unwrap();
        assert_eq!(names(&store.list("pods", "", None).unwrap().items), states[&store.revision()], "cut at {length}");
        seen.insert(store.revision());
        let next = set(&store, &pod("default", "next"), 1).await;
        drop(store);
        let store = Store::open(&hurt).await.unwrap();
        assert_eq!((store.revision(), n_of(&store.get(&pod("default", "next")).unwrap())), (next, 1));
    }
    assert_eq!(seen.len(), states.len(), "every write was the last one once");
}

fn missing(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// Enough to end two segments. Answers what is listed in the end, when the last snapshot has replaced what was before it: a store that is
/// closed earlier gives that snapshot up.
async fn a_long_history(path: &Path) -> Vec<(String, u64)> {
    let store = Store::open_with(path, WINDOW).await.unwrap();
    for n in 0..400 {
        let key = pod("default", &format!("p{}", n % 100));
        let mut value = value(&key, n);
        value["filler"] = "x".repeat(25_000).into();
        let steps = vec![store::Step::Put { key: key.clone(), value }];
        store.write(&key, current(&store, &key), steps).await.unwrap();
    }
    let begun = Instant::now();
    while !is_one_snapshot_and_its_segment(&files(path)) {
        assert!(begun.elapsed() < Duration::from_secs(60), "the snapshot is not written: {:?}", files(path));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    names(&store.list("pods", "", None).unwrap().items)
}

fn is_one_snapshot_and_its_segment(files: &[String]) -> bool {
    let [segment, snapshot] = files else { return false };
    segment.strip_suffix(".log").is_some_and(|number| snapshot.strip_suffix(".snapshot") == Some(number))
}

#[tokio::test]
async fn a_log_does_not_grow_for_ever_and_loses_nothing_by_it() {
    let directory = tempfile::tempdir().unwrap();
    let (path, hurt) = (directory.path().join("store"), directory.path().join("hurt"));
    let expected = a_long_history(&path).await;
    let found = files(&path);
    assert!(!found.contains(&FIRST_SEGMENT.to_owned()), "{found:?}");
    let snapshot = found.iter().find(|name| name.ends_with(".snapshot")).expect("a snapshot").clone();
    let store = Store::open_with(&path, WINDOW).await.unwrap();
    assert_eq!(names(&store.list("pods", "", None).unwrap().items), expected);
    // All of it is in the window, so all of it can be watched again.
    let mut watch = store.watch("pods", "", Some(Revision::FIRST)).unwrap();
    for revision in Revision::FIRST.0 + 1..=store.revision().0 {
        assert_eq!(soon(&mut watch).await.revision(), Revision(revision));
    }
    drop((watch, store));
    // A snapshot is believed as little as a log.
    let bytes = std::fs::read(path.join(&snapshot)).unwrap();
    let refused = async |hurt: &Path, why: &str| match Store::open(hurt).await {
        Err(OpenError::Damaged { .. }) => {}
        other => panic!("{why}: {other:?}"),
    };
    for at in [0, 5, 17, 40, bytes.len() / 2, bytes.len() - 1] {
        copy(&path, &hurt);
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        std::fs::write(hurt.join(&snapshot), &damaged).unwrap();
        refused(&hurt, &format!("byte {at}")).await;
        std::fs::write(hurt.join(&snapshot), &bytes[..at]).unwrap();
        refused(&hurt, &format!("cut at {at}")).await;
    }
    // Nor is a folder with a file missing.
    for name in found {
        copy(&path, &hurt);
        std::fs::remove_file(hurt.join(&name)).unwrap();
        refused(&hurt, &format!("without {name}")).await;
    }
}
