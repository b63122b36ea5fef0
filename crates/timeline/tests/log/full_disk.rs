//! The journal on a disk that others fill to the last byte.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use lifecycle::Input;
use rustix::mount::{MountFlags, UnmountFlags};
use timeline::{Appended, Journal};

use crate::common::*;

/// A file system of its own in memory.
struct Disk {
    dir: tempfile::TempDir,
}

impl Disk {
    fn of_mebibytes(mebibytes: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = std::ffi::CString::new(format!("size={mebibytes}m")).unwrap();
        let mounted =
            rustix::mount::mount("journal-test", dir.path(), "tmpfs", MountFlags::empty(), options.as_c_str());
        mounted.expect("these tests run as root");
        Self { dir }
    }

    fn journal(&self) -> PathBuf {
        self.dir.path().join("journal")
    }

    /// Takes every byte that is left.
    fn fill(&self) -> PathBuf {
        let path = self.dir.path().join("filler");
        let mut file = File::create(&path).unwrap();
        for size in [64 << 10, 4096, 1] {
            let block = vec![7; size];
            let refused = loop {
                if let Err(error) = file.write_all(&block) {
                    break error;
                }
            };
            assert_eq!(refused.kind(), ErrorKind::StorageFull);
        }
        path
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.dir.path(), UnmountFlags::DETACH);
    }
}

/// A journal of one pod with its first step, and how long a step is in the file.
async fn journal_on(disk: &Disk) -> (Journal, u64) {
    let (journal, _) = Journal::open(&disk.journal(), BOOT).await.unwrap();
    journal.append(adopted("u")).await.unwrap();
    let length = || fs::metadata(disk.journal()).unwrap().len();
    let before = length();
    journal.append(step("u", 1, Input::TimePassed, effects())).await.unwrap();
    (journal, length() - before)
}

/// Appends the steps from the second to this one; answers the last.
fn append_up_to(journal: &Journal, last: u64) -> Appended {
    (2..last).for_each(|at| drop(journal.append(step("u", at, Input::TimePassed, effects()))));
    journal.append(step("u", last, Input::TimePassed, effects()))
}

fn is_pending(appended: &mut Appended) -> bool {
    Pin::new(appended).poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

async fn moments(path: &Path) -> Vec<u64> {
    let (_journal, lives) = Journal::open(path, BOOT).await.unwrap();
    lives[0].steps.iter().map(|(at, ..)| at.as_millis()).collect()
}

#[tokio::test]
async fn full_disk_still_takes_the_records_of_pods_that_end() {
    let disk = Disk::of_mebibytes(4);
    let (journal, step_bytes) = journal_on(&disk).await;
    let filler = disk.fill();
    let last = (256 << 10) / step_bytes;
    let durable = append_up_to(&journal, last);
    tokio::time::timeout(Duration::from_secs(60), durable).await.expect("there is a reserve").unwrap();
    drop(journal);
    // Begun anew while nothing is free.
    assert_eq!(moments(&disk.journal()).await, (1..=last).collect::<Vec<_>>());
    assert!(fs::metadata(filler).is_ok());
}

#[tokio::test]
async fn records_beyond_the_reserve_wait_for_room_and_are_then_durable() {
    let disk = Disk::of_mebibytes(4);
    let (journal, step_bytes) = journal_on(&disk).await;
    let filler = disk.fill();
    let last = (2 << 20) / step_bytes;
    let mut durable = append_up_to(&journal, last);
    assert!(is_pending(&mut durable));
    // As much as fits is there; the rest is not, and nobody was told otherwise.
    wait_until(|| fs::metadata(disk.journal()).unwrap().len() >= 1 << 20).await;
    assert!(is_pending(&mut durable), "the disk is full");
    fs::remove_file(filler).unwrap();
    tokio::time::timeout(Duration::from_secs(60), durable).await.expect("room was made").unwrap();
    drop(journal);
    assert_eq!(moments(&disk.journal()).await, (1..=last).collect::<Vec<_>>());
}

/// Closing does not wait for a disk that stays full, and what was durable before is there.
#[tokio::test]
async fn journal_closed_on_a_full_disk_ends_at_once_with_what_was_durable() {
    let disk = Disk::of_mebibytes(4);
    let (journal, step_bytes) = journal_on(&disk).await;
    let filler = disk.fill();
    let mut durable = append_up_to(&journal, (2 << 20) / step_bytes);
    assert!(is_pending(&mut durable));
    drop(journal);
    tokio::time::timeout(Duration::from_secs(60), durable).await.expect("everyone is answered").unwrap_err();
    fs::remove_file(filler).unwrap();
    assert_eq!(moments(&disk.journal()).await[0], 1);
}

/// An agent that is killed in the middle of a write, on a disk that is full, opens its journal and keeps what is reserved.
#[tokio::test]
async fn torn_end_on_a_full_disk_is_covered_and_the_reserve_stays() {
    let disk = Disk::of_mebibytes(4);
    let (journal, step_bytes) = journal_on(&disk).await;
    drop(journal);
    let _filler = disk.fill();
    let whole = fs::read(disk.journal()).unwrap();
    let record = &whole[whole.len() - usize::try_from(step_bytes).unwrap()..];
    for (torn, last) in [(4, 2), (record.len() - 3, 3)] {
        let file = File::options().write(true).open(disk.journal()).unwrap();
        file.write_all_at(&record[..torn], file.metadata().unwrap().len()).unwrap();
        let blocks = file.metadata().unwrap().blocks();
        let (journal, _) = Journal::open(&disk.journal(), BOOT).await.unwrap();
        assert_eq!(file.metadata().unwrap().blocks(), blocks, "nothing is given back");
        journal.append(step("u", last, Input::TimePassed, effects())).await.unwrap();
    }
    let (journal, _) = Journal::open(&disk.journal(), BOOT).await.unwrap();
    let last = (256 << 10) / step_bytes;
    let appended = (4..=last).map(|at| journal.append(step("u", at, Input::TimePassed, effects())));
    let durable = appended.reduce(|_, later| later).unwrap();
    tokio::time::timeout(Duration::from_secs(60), durable).await.expect("the reserve is there").unwrap();
    drop(journal);
    assert_eq!(moments(&disk.journal()).await, (1..=last).collect::<Vec<_>>());
}

async fn wait_until(holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("it comes to hold");
}
