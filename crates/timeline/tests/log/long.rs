//! A node that runs for months: its journal stays as long as what it has to remember, whenever it is killed.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::*;
use lifecycle::{
    ContainerName, ContainerSpec, Exit, Input, Instance, Moment, PodSnapshot, PodSpec, PodWorker, RestartPolicy, Role,
    Routes, Wall,
};
use timeline::{Journal, Life, Record};

const FILE: &str = "JOURNAL_TEST_FILE";
/// What a journal may be long when little is to be remembered: as much as is not worth a copy, and as much again.
const SHORT: u64 = 160 << 10;
const SOON: Duration = Duration::from_secs(60);

fn length(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().len()
}

/// The writer shortens the file when it comes to it, which nobody waits for.
async fn until_short(path: &Path) {
    let begun = Instant::now();
    while length(path) > SHORT {
        assert!(begun.elapsed() < SOON, "still {} bytes", length(path));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn churn(journal: &Journal, number: u64) {
    let uid = format!("u{number}");
    drop(journal.append(adopted(&uid)));
    drop(journal.append(step(&uid, number, Input::Begin, effects())));
    journal.append(forgotten(&uid)).await.unwrap();
}

#[tokio::test]
async fn a_journal_under_churn_stays_short() {
    let folder = Folder::new();
    let (journal, _) = folder.open().await;
    journal.append(adopted("stays")).await.unwrap();
    let mut written = 0;
    for number in 0..3_000 {
        churn(&journal, number).await;
        if number % 10 == 0 {
            journal.append(step("stays", number, Input::TimePassed, vec![])).await.unwrap();
            written += 1;
        }
    }
    until_short(&folder.path()).await;
    assert!(matches!(Journal::open(&folder.path(), BOOT).await, Err(timeline::JournalError::InUse { .. })), "locked");
    drop(journal);
    let lives = folder.lives().await;
    assert_eq!(lives.iter().map(|life| (&*life.uid, life.steps.len())).collect::<Vec<_>>(), [("stays", written)]);
}

/// One pod whose container crashes again and again, as the rules see it, folded when it is calm as its driver does.
#[tokio::test]
async fn a_container_that_crashes_for_months_is_remembered_in_one_piece() {
    let folder = Folder::new();
    let (journal, _) = folder.open().await;
    let name = ContainerName("app".to_owned());
    let mut spec =
        PodSpec { restart: RestartPolicy::Always, ..PodSpec::new(vec![ContainerSpec::new("app", Role::Main)]) };
    let at = Moment::from_millis(1);
    let (namespace, pod) = ("default".to_owned(), "web".to_owned());
    let adopted = Record::Adopted { uid: "u".to_owned(), namespace, name: pod, spec: spec.clone(), at };
    drop(journal.append(adopted));
    spec.identity.namespace = "default".to_owned();
    spec.identity.name = "web".to_owned();
    spec.identity.uid = "u".to_owned();
    let mut worker = PodWorker::new(spec);
    let (mut now, mut steps, mut folds) = (1, 0, 0);
    let mut tell = |worker: &mut PodWorker, now: u64, input: Input| {
        let at = Moment::from_millis(now);
        let effects = worker.handle(at, input.clone());
        drop(journal.append(Record::Step { uid: "u".to_owned(), at, wall: Wall(1), input, effects }));
        steps += 1;
        if steps >= 200
            && let Some(snapshot) = worker.snapshot()
        {
            drop(journal.append(Record::Folded { uid: "u".to_owned(), at, wall: Wall(2), start: Wall(1), snapshot }));
            (steps, folds) = (0, folds + 1);
        }
        folds
    };
    tell(&mut worker, now, Input::Begin);
    tell(&mut worker, now, Input::ImageReady { container: name.clone(), edition: 0, stop_signal: None });
    tell(&mut worker, now, Input::SandboxReady);
    let mut folded = 0;
    for attempt in 0..2_000 {
        let instance = Instance { name: name.clone(), attempt };
        tell(&mut worker, now, Input::Started { instance: instance.clone(), wall: Wall(3) });
        now += 1_000;
        let exit = Exit { code: 1, signal: None, oom: false, wall: Wall(4), seen: true };
        tell(&mut worker, now, Input::Exited { instance, exit });
        now = now.max(worker.next_wake().map_or(now, |wake| wake.at.as_millis()));
        folded = tell(&mut worker, now, Input::TimePassed);
    }
    assert!(folded >= 25, "{folded}");
    until_short(&folder.path()).await;
    drop(journal);
    let lives = folder.lives().await;
    let life: &Life = &lives[0];
    assert!(life.steps.len() <= 200 && life.fold.is_some(), "{}", life.steps.len());
    assert_eq!(life.start(), Some(Wall(1)));
    assert_eq!(life.worker(), worker, "whoever comes after a crash knows what the one before knew");
}

fn snapshot(generation: i64) -> PodSnapshot {
    PodSnapshot {
        began_at: None,
        active_before: Duration::ZERO,
        active_deadline: None,
        initialized: true,
        routes: Routes::default(),
        generation: Some(generation),
        containers: Vec::new(),
    }
}

/// How often the journal is shortened while a process is about to be killed.
const COMPACTIONS: usize = 3;

fn inode(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().ino()
}

/// Lives come and go beside one that stays and is folded now and then; tells what is durable. The journal is shortened
/// several times meanwhile.
#[test]
#[ignore = "a role of the test below"]
fn churner() {
    let path: PathBuf = std::env::var_os(FILE).expect("run by another test").into();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (journal, lives) = Journal::open(&path, BOOT).await.unwrap();
        let mut last = lives.iter().find(|life| life.uid == "stays").map_or(0, last_of);
        if last == 0 {
            drop(journal.append(adopted("stays")));
        }
        let (mut file, mut compactions) = (inode(&path), 0);
        for number in 0.. {
            if inode(&path) != file {
                (file, compactions) = (inode(&path), compactions + 1);
            }
            if compactions == COMPACTIONS {
                return;
            }
            churn(&journal, number).await;
            last += 1;
            let at = u64::try_from(last).unwrap();
            journal.append(step("stays", at, Input::TimePassed, vec![])).await.unwrap();
            if last % 50 == 0 {
                let (uid, at) = ("stays".to_owned(), Moment::from_millis(at));
                let fold = Record::Folded { uid, at, wall: Wall(0), start: Wall(0), snapshot: snapshot(last) };
                journal.append(fold).await.unwrap();
            }
            std::io::stdout().write_all(format!("durable {last}\n").as_bytes()).unwrap();
        }
    });
}

/// The last step of the life that stays; all of them must be there.
fn last_of(life: &Life) -> i64 {
    let folded = life.fold.as_ref().map_or(0, |fold| fold.snapshot.generation.unwrap());
    let moments: Vec<_> = life.steps.iter().map(|(at, ..)| i64::try_from(at.as_millis()).unwrap()).collect();
    let expected: Vec<_> = (folded + 1..).take(moments.len()).collect();
    assert_eq!(moments, expected, "nothing missing, nothing twice");
    folded + i64::try_from(moments.len()).unwrap()
}

/// Kills a process as it enters the nth of every kind of call that it makes on the new file or on the folder, for n from
/// one until it makes no nth; what it was told to be durable must be there, and what is over must stay over.
#[tokio::test]
async fn compaction_killed_at_any_step_loses_nothing() {
    // How often each can be hit: calls are counted by thread, every copy is made by a new one, and the folder is opened and
    // synced once by whoever opens the journal. What a kill leaves of a file does not depend on whether it was synced.
    for (call, on_folder, least) in [
        ("openat", false, 1),
        ("flock", false, 1),
        ("write", false, 1),
        ("fsync", false, 1),
        ("rename", false, COMPACTIONS),
        ("openat", true, COMPACTIONS),
        ("fsync", true, COMPACTIONS),
    ] {
        let mut killed = 0;
        for number in 1..=COMPACTIONS {
            let folder = Folder::new();
            let path = if on_folder {
                folder.path().parent().unwrap().to_owned()
            } else {
                folder.path().with_file_name("journal.new")
            };
            assert!(folder.path().ends_with("journal"), "the name that the draft is derived from");
            let mut strace = Command::new("strace");
            strace.args(["-f", "-qq", "-e", &format!("trace={call}"), "-P"]).arg(path);
            strace.args(["-e", &format!("inject={call}:signal=KILL:when={number}")]);
            strace.arg(std::env::current_exe().unwrap());
            strace.args(["--exact", "long::churner", "--ignored", "--nocapture", "--test-threads=1"]);
            strace.env(FILE, folder.path()).stdout(Stdio::piped()).stderr(Stdio::null());
            let mut child = strace.spawn().expect("strace; run scripts/setup test");
            let mut durable = 0;
            for line in BufReader::new(child.stdout.take().unwrap()).lines() {
                let line = line.unwrap();
                if let Some((_, number)) = line.split_once("durable ") {
                    durable = number.parse().unwrap();
                }
            }
            let survived = child.wait().unwrap().success();
            let lives = folder.lives().await;
            let at = format!("{call} {number} on {}", if on_folder { "the folder" } else { "the new file" });
            let last = lives.iter().find(|life| life.uid == "stays").map_or(0, last_of);
            assert!(last >= durable, "{at}: {durable} was durable, {last} is there");
            assert!(lives.len() <= 2, "{at}: at most the one that stays and the one that was under way");
            if survived {
                break;
            }
            killed += 1;
        }
        assert!(killed >= least, "{call} (of the folder: {on_folder}) was hit {killed} times");
    }
}
