//! What the journal remembers, and what it refuses to believe.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use crate::common::*;
use lifecycle::{Effect, Input, Moment, Wall};
use timeline::{Journal, JournalError, Life, Record};

#[tokio::test]
async fn every_word_reads_back_as_it_was_written() {
    let folder = Folder::new();
    let (journal, lives) = folder.open().await;
    assert!(lives.is_empty());
    drop(journal.append(adopted("u")));
    for (at, input) in (2000..).zip(inputs()) {
        drop(journal.append(step("u", at, input, effects())));
    }
    journal.append(step("u", 3000, Input::TimePassed, vec![])).await.unwrap();
    drop(journal);
    let lives = folder.lives().await;
    let [life] = &lives[..] else { panic!("{lives:?}") };
    assert_eq!((&*life.uid, &*life.namespace, &*life.name, &*life.boot_id), ("u", "default", "web", BOOT));
    assert_eq!((&life.spec, life.adopted_at), (&spec(), Moment::from_millis(1000)));
    let mut expected: Vec<_> =
        (2000..).zip(inputs()).map(|(at, input)| (Moment::from_millis(at), Wall(1), input, effects())).collect();
    expected.push((Moment::from_millis(3000), Wall(1), Input::TimePassed, vec![]));
    assert_eq!(life.steps, expected);
}

#[tokio::test]
async fn lives_come_back_in_the_order_they_began_without_those_that_are_over() {
    let folder = Folder::new();
    let (journal, _) = folder.open().await;
    for uid in ["a", "b", "c"] {
        drop(journal.append(adopted(uid)));
    }
    drop(journal.append(step("c", 2000, Input::Begin, vec![])));
    drop(journal.append(step("a", 2001, Input::Begin, vec![])));
    drop(journal.append(forgotten("b")));
    drop(journal.append(step("b", 2002, Input::TimePassed, vec![])));
    drop(journal.append(forgotten("c")));
    drop(journal.append(adopted("c")));
    drop(journal);
    let lives = folder.lives().await;
    let told: Vec<_> = lives.iter().map(|life| (&*life.uid, life.steps.len())).collect();
    assert_eq!(told, [("a", 1), ("c", 0)], "a life begun again starts empty");
}

#[tokio::test]
async fn a_record_nobody_awaits_is_written_soon() {
    let folder = Folder::new();
    let (journal, _) = folder.open().await;
    let before = folder.bytes().len();
    drop(journal.append(adopted("u")));
    let written = async {
        while folder.bytes().len() == before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), written).await.unwrap();
}

/// Whoever waits patiently hears of it when it is written for another reason: that its time has come, somebody else who does
/// not wait, or the end.
#[tokio::test]
async fn a_record_that_is_awaited_patiently_is_there_when_that_is_told() {
    let folder = Folder::new();
    let (journal, _) = folder.open().await;
    let before = folder.bytes().len();
    journal.append(adopted("u")).patiently().await.unwrap();
    assert!(folder.bytes().len() > before);
    let (first, second) = (journal.append(adopted("v")).patiently(), journal.append(adopted("w")));
    let (first, second) = tokio::join!(first, second);
    assert!(first.is_ok() && second.is_ok());
    let last = journal.append(adopted("x")).patiently();
    let ending = tokio::task::spawn_blocking(move || drop(journal));
    last.await.unwrap();
    ending.await.unwrap();
    assert_eq!(folder.lives().await.len(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_appends_are_awaited_together() {
    let folder = Folder::new();
    let (journal, _) = folder.open().await;
    let mut pods = tokio::task::JoinSet::new();
    for pod in 0..500_u64 {
        let journal = journal.clone();
        pods.spawn(async move {
            let uid = format!("u{pod}");
            journal.append(adopted(&uid)).await.unwrap();
            for at in 0..10 {
                journal.append(step(&uid, at, Input::TimePassed, vec![Effect::PublishStatus])).await.unwrap();
            }
        });
    }
    while pods.join_next().await.transpose().unwrap().is_some() {}
    drop(journal);
    let lives = folder.lives().await;
    assert_eq!(lives.len(), 500);
    for life in lives {
        let moments: Vec<_> = life.steps.iter().map(|(at, ..)| at.as_millis()).collect();
        assert_eq!(moments, (0..10).collect::<Vec<_>>(), "each pod's own order is kept");
    }
}

#[tokio::test]
async fn an_append_can_be_awaited_late_or_by_someone_else() {
    let folder = Folder::new();
    let (journal, _) = folder.open().await;
    let first = journal.append(adopted("a"));
    let second = journal.append(adopted("b"));
    second.await.unwrap();
    drop(journal);
    tokio::spawn(first).await.unwrap().unwrap();
}

/// Two lives; the second one's only step is the last record.
async fn two_lives(folder: &Folder) -> (Vec<u8>, usize) {
    let (journal, _) = folder.open().await;
    drop(journal.append(adopted("a")));
    drop(journal.append(adopted("b")));
    journal.append(step("a", 2000, Input::Begin, effects())).await.unwrap();
    let before = folder.bytes().len();
    journal.append(step("b", 2000, Input::Begin, effects())).await.unwrap();
    drop(journal);
    (folder.bytes(), before)
}

#[tokio::test]
async fn a_record_cut_anywhere_is_as_if_never_written() {
    let folder = Folder::new();
    let (bytes, last) = two_lives(&folder).await;
    for length in last..bytes.len() {
        std::fs::write(folder.path(), &bytes[..length]).unwrap();
        let (journal, lives) = folder.open().await;
        let steps: Vec<_> = lives.iter().map(|life| life.steps.len()).collect();
        assert_eq!(steps, [1, 0], "cut at {length}");
        journal.append(step("b", 2001, Input::TimePassed, vec![])).await.unwrap();
        drop(journal);
        let lives = folder.lives().await;
        assert_eq!(lives[1].steps[0].2, Input::TimePassed, "and the journal goes on after the cut at {length}");
    }
}

#[tokio::test]
async fn a_journal_cut_in_its_first_bytes_is_empty() {
    let folder = Folder::new();
    let (bytes, _) = two_lives(&folder).await;
    for length in 0..16 {
        std::fs::write(folder.path(), &bytes[..length]).unwrap();
        let (journal, lives) = folder.open().await;
        assert!(lives.is_empty());
        journal.append(adopted("u")).await.unwrap();
        drop(journal);
        assert_eq!(folder.lives().await.len(), 1, "cut at {length}");
    }
}

#[tokio::test]
async fn sectors_that_were_never_written_are_as_if_cut() {
    let folder = Folder::new();
    let (bytes, last) = two_lives(&folder).await;
    // The length reached the disk, the last sectors did not.
    let mut unwritten = bytes.clone();
    unwritten.resize(bytes.len().next_multiple_of(4096) + 4096, 0);
    std::fs::write(folder.path(), &unwritten).unwrap();
    assert_eq!(folder.lives().await[1].steps.len(), 1);
    unwritten[last..].fill(0);
    std::fs::write(folder.path(), &unwritten).unwrap();
    assert_eq!(folder.lives().await[1].steps.len(), 0);
    assert_eq!(folder.bytes().len(), last);
}

#[tokio::test]
async fn a_flipped_bit_is_never_believed() {
    let folder = Folder::new();
    let (bytes, _) = two_lives(&folder).await;
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(folder.path(), &flipped).unwrap();
        match Journal::open(&folder.path(), BOOT).await {
            Err(JournalError::Damaged { offset, .. }) => assert!(offset <= bit / 8, "bit {bit}: {offset}"),
            Err(JournalError::Foreign { .. }) => assert!(bit < 16 * 8, "bit {bit}"),
            other => panic!("bit {bit}: {other:?}"),
        }
        assert_eq!(folder.bytes(), flipped, "a file that is not believed is left alone");
    }
}

#[tokio::test]
async fn a_newer_version_is_refused_with_a_way_out() {
    let folder = Folder::new();
    let (bytes, last) = two_lives(&folder).await;
    let mut newer_file = bytes.clone();
    newer_file[8] = 2;
    let sum = crc32fast::hash(&newer_file[..12]).to_le_bytes();
    newer_file[12..16].copy_from_slice(&sum);
    let mut newer_record = bytes;
    newer_record[last + 4] = 7;
    let check = crc32fast::hash(&newer_record[last..last + 5]).to_le_bytes();
    newer_record[last + 5..last + 7].copy_from_slice(&check[..2]);
    for newer in [newer_file, newer_record] {
        std::fs::write(folder.path(), &newer).unwrap();
        let error = Journal::open(&folder.path(), BOOT).await.unwrap_err();
        assert!(matches!(error, JournalError::Newer { version: 2 | 7, .. }), "{error:?}");
        assert!(error.to_string().contains("use the version that wrote it"), "{error}");
        assert_eq!(folder.bytes(), newer);
    }
}

#[tokio::test]
async fn file_that_is_no_journal_is_refused_and_left_unchanged() {
    let folder = Folder::new();
    std::fs::write(folder.path(), "a diary, not a journal").unwrap();
    let error = Journal::open(&folder.path(), BOOT).await.unwrap_err();
    assert!(matches!(error, JournalError::Foreign { .. }), "{error:?}");
    assert_eq!(folder.bytes(), b"a diary, not a journal");
}

#[tokio::test]
async fn a_second_opener_is_told_what_to_do() {
    let folder = Folder::new();
    let (journal, _) = folder.open().await;
    let error = Journal::open(&folder.path(), BOOT).await.unwrap_err();
    assert!(matches!(error, JournalError::InUse { .. }), "{error:?}");
    assert!(error.to_string().contains("stop that one"), "{error}");
    drop(journal);
    folder.open().await;
}

#[tokio::test]
async fn a_life_knows_the_boot_its_moments_belong_to() {
    let folder = Folder::new();
    for (boot, uid) in [("one", "a"), ("two", "b"), ("two", "c"), ("one", "d")] {
        let (journal, _) = Journal::open(&folder.path(), boot).await.unwrap();
        journal.append(adopted(uid)).await.unwrap();
    }
    let boots = |lives: &[Life]| lives.iter().map(|life| (life.uid.clone(), life.boot_id.clone())).collect::<Vec<_>>();
    let expected = [("a", "one"), ("b", "two"), ("c", "two"), ("d", "one")];
    let expected = expected.map(|(uid, boot)| (uid.to_owned(), boot.to_owned()));
    assert_eq!(boots(&folder.lives().await), expected);
    let length = folder.bytes().len();
    assert_eq!(boots(&folder.lives().await), expected, "and opening again in the same boot");
    assert_eq!(folder.bytes().len(), length, "writes nothing");
}

#[tokio::test]
async fn compaction_drops_finished_pods_when_they_are_most_of_the_file() {
    let folder = Folder::new();
    let (journal, _) = Journal::open(&folder.path(), "one").await.unwrap();
    drop(journal.append(adopted("keeps")));
    drop(journal);
    let (journal, _) = Journal::open(&folder.path(), "two").await.unwrap();
    for pod in 0..400 {
        let uid = format!("u{pod}");
        drop(journal.append(adopted(&uid)));
        drop(journal.append(step(&uid, 2000, Input::Begin, effects())));
        drop(journal.append(forgotten(&uid)));
    }
    drop(journal.append(step("keeps", 2000, Input::Begin, effects())));
    drop(journal.append(adopted("stays")));
    drop(journal);
    let before = folder.bytes().len();
    let (journal, lives) = Journal::open(&folder.path(), "two").await.unwrap();
    let after = folder.bytes().len();
    assert!(after * 20 < before, "{before} bytes became {after}");
    assert!(matches!(Journal::open(&folder.path(), "two").await, Err(JournalError::InUse { .. })), "still locked");
    journal.append(step("stays", 2001, Input::Begin, vec![])).await.unwrap();
    drop(journal);
    let (_journal, again) = Journal::open(&folder.path(), "two").await.unwrap();
    let told: Vec<_> = again.iter().map(|life| (&*life.uid, &*life.boot_id, life.steps.len())).collect();
    assert_eq!(told, [("keeps", "two", 1), ("stays", "two", 1)]);
    assert_eq!(lives[0], again[0]);
}

#[tokio::test]
async fn a_small_journal_is_left_as_it_is() {
    let folder = Folder::new();
    let (journal, _) = folder.open().await;
    drop(journal.append(adopted("a")));
    drop(journal.append(forgotten("a")));
    drop(journal);
    let before = folder.bytes();
    assert!(folder.lives().await.is_empty());
    assert_eq!(folder.bytes(), before);
}

/// What is to be told of a pod that is gone outlives its life, and a later life of the same pod, until it is told.
#[tokio::test]
async fn conclusion_is_kept_until_it_is_stored_and_not_longer() {
    let folder = Folder::new();
    let concluded = |uid: &str, wall: i64| Record::Concluded {
        uid: uid.to_owned(),
        wall: Wall(wall),
        record: format!("{{\"of\":\"{uid}\"}}"),
    };
    let (journal, _) = folder.open().await;
    assert!(journal.take_concluded().is_empty());
    for uid in ["a", "b", "c"] {
        drop(journal.append(adopted(uid)));
    }
    drop(journal.append(concluded("a", 1)));
    drop(journal.append(adopted("a")));
    drop(journal.append(concluded("b", 2)));
    drop(journal.append(Record::Stored { uid: "b".to_owned(), wall: Wall(1) }));
    drop(journal.append(concluded("c", 3)));
    journal.append(Record::Stored { uid: "c".to_owned(), wall: Wall(3) }).await.unwrap();
    drop(journal);
    let (journal, lives) = folder.open().await;
    assert_eq!(lives.iter().map(|life| &*life.uid).collect::<Vec<_>>(), ["a"], "it lives again");
    let left = journal.take_concluded();
    let left: Vec<_> = left.iter().map(|it| (&*it.uid, it.wall.0, &*it.record)).collect();
    assert_eq!(left, [("a", 1, "{\"of\":\"a\"}"), ("b", 2, "{\"of\":\"b\"}")]);
    assert!(journal.take_concluded().is_empty(), "it is answered once");
    drop(journal);
    let (journal, _) = folder.open().await;
    assert_eq!(journal.take_concluded().len(), 2, "nobody has stored them yet");
}
