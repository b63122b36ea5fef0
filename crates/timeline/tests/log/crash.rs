//! What the journal remembers of a writer that was killed, or whose file may not grow.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::common::*;
use lifecycle::Input;
use timeline::{Journal, JournalError};

const FILE: &str = "JOURNAL_TEST_FILE";

fn role(name: &str, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", &format!("crash::{name}"), "--ignored", "--nocapture", "--test-threads=1"])
        .env(FILE, path);
    command
}

fn file() -> PathBuf {
    std::env::var_os(FILE).expect("run by another test").into()
}

/// Appends until it is killed; tells each step once it is durable.
#[test]
#[ignore = "a role of the tests below"]
fn appender() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let (journal, lives) = Journal::open(&file(), BOOT).await.unwrap();
        let mut pods = tokio::task::JoinSet::new();
        for pod in 0..8_u64 {
            let uid = format!("u{pod}");
            let life = lives.iter().find(|life| life.uid == uid);
            let mut at = life.and_then(|life| life.steps.last()).map_or(0, |(at, ..)| at.as_millis());
            if life.is_none() {
                drop(journal.append(adopted(&uid)));
            }
            let journal = journal.clone();
            pods.spawn(async move {
                loop {
                    // One that nobody awaits, then one that is awaited.
                    drop(journal.append(step(&uid, at + 1, Input::TimePassed, vec![])));
                    at += 2;
                    journal.append(step(&uid, at, Input::TimePassed, effects())).await.unwrap();
                    std::io::stdout().write_all(format!("durable {pod} {at}\n").as_bytes()).unwrap();
                }
            });
        }
        // Nobody listening any more ends a pod, and so the process.
        pods.join_next().await.unwrap().unwrap()
    });
}

#[tokio::test]
async fn a_writer_killed_in_mid_write_loses_nothing_that_was_awaited() {
    let folder = Folder::new();
    let mut durable = [0_u64; 8];
    for round in 0..12_usize {
        let mut child = role("appender", &folder.path()).stdout(Stdio::piped()).spawn().unwrap();
        let mut heard = 0;
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            let Some((_, words)) = line.split_once("durable ") else { continue };
            let (pod, at) = words.split_once(' ').unwrap();
            durable[pod.parse::<usize>().unwrap()] = at.parse().unwrap();
            heard += 1;
            if heard == 29 + 53 * round % 300 {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(heard >= 29, "the child wrote before it was killed");
        for (pod, at) in durable.iter().enumerate().filter(|(_, at)| **at > 0) {
            let lives = folder.lives().await;
            let life = lives.iter().find(|life| life.uid == format!("u{pod}")).unwrap();
            let moments: Vec<_> = life.steps.iter().map(|(at, ..)| at.as_millis()).collect();
            assert!(moments.last() >= Some(at), "pod {pod}: {at} was durable, {:?} is there", moments.last());
            assert_eq!(moments, (1..=moments.len() as u64).collect::<Vec<_>>(), "nothing missing, nothing twice");
        }
    }
}

/// Runs into the limit its parent set.
#[test]
#[ignore = "a role of the tests below"]
fn appender_to_a_file_with_a_limit() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (journal, _) = Journal::open(&file(), BOOT).await.unwrap();
        journal.append(adopted("u")).await.unwrap();
        let mut durable = 0;
        let failure = loop {
            let written = journal.append(step("u", durable + 1, Input::TimePassed, effects()));
            match written.await {
                Ok(()) => durable += 1,
                Err(failure) => break failure,
            }
            assert!(durable < 10_000, "the limit is felt");
        };
        assert!(matches!(&*failure, JournalError::Io { .. }), "{failure:?}");
        let later = journal.append(step("u", 0, Input::TimePassed, vec![])).await.unwrap_err();
        assert!(Arc::ptr_eq(&failure, &later), "later appends fail for the same reason");
        let length = std::fs::metadata(file()).unwrap().len();
        drop(journal.append(step("u", 0, Input::TimePassed, vec![])));
        drop(journal);
        assert_eq!(std::fs::metadata(file()).unwrap().len(), length, "nothing is written after a failure");
        println!("durable {durable}");
    });
}

#[tokio::test]
async fn failure_that_does_not_pass_is_told_to_everyone_and_what_was_durable_stays() {
    let folder = Folder::new();
    let inner = role("appender_to_a_file_with_a_limit", &folder.path());
    // The kernel's own limit on the size of a file; its signal ignored, so that writes fail for good.
    let mut command = Command::new("sh");
    command.args(["-c", r#"trap "" XFSZ; ulimit -S -f 64; exec "$0" "$@""#]).arg(inner.get_program());
    command.args(inner.get_args()).envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let durable: usize = said.split("durable ").nth(1).unwrap().lines().next().unwrap().parse().unwrap();
    assert_eq!(folder.lives().await[0].steps.len(), durable);
}
