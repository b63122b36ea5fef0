//! A store that was cut, emptied or damaged: it is told apart from a new one, checked, repaired, and brought back from a backup.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::*;
use serde_json::Value;
use store::{
    Backup, BackupError, Encryption, Expect, HistoryError, Key, OpenError, RebuildError, Revision, Step, Store, Window,
    check, repair, restore,
};

struct Place {
    all: tempfile::TempDir,
    path: PathBuf,
}

impl Place {
    /// A store with some sixty objects in two collections, closed.
    async fn new() -> (Self, BTreeMap<Key, Value>) {
        let all = tempfile::tempdir().unwrap();
        let place = Self { path: all.path().join("store"), all };
        let store = place.open().await;
        for n in 0..90 {
            let key = if n % 3 == 0 {
                Key::new("nodes", "", format!("n{n}"))
            } else {
                pod("default", &format!("p{}", n % 40))
            };
            set(&store, &key, n).await;
        }
        remove(&store, &pod("default", "p1")).await;
        let hidden = Key::new("/adieu/ticket", "", "x");
        set(&store, &hidden, 1).await;
        let objects = objects(&store);
        (place, objects)
    }

    async fn open(&self) -> Store {
        Store::open(&self.path).await.unwrap()
    }

    fn segment(&self) -> PathBuf {
        self.path.join("00000000000000000001.log")
    }

    /// Names of what is beside the store.
    fn beside(&self) -> BTreeSet<String> {
        let names = fs::read_dir(self.all.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).collect()
    }
}

fn objects(store: &Store) -> BTreeMap<Key, Value> {
    let collections = ["pods", "nodes"].into_iter();
    let items = collections.flat_map(|collection| store.list(collection, "", None).unwrap().items);
    items.map(|object| (object.key.clone(), object.to_value())).collect()
}

fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(path).unwrap())).collect()
}

/// Nobody who watched before is told a part of what happened.
fn assert_revisions_go_on(store: &Store, before: Revision) {
    assert!(store.revision() > before, "{} after {before}", store.revision());
    for from in [Revision(1), before] {
        let told = store.watch("pods", "", Some(from));
        assert!(matches!(told, Err(HistoryError::Compacted { .. })), "{told:?}");
    }
    store.watch("pods", "", None).unwrap();
}

#[tokio::test]
async fn store_that_was_cut_or_emptied_is_refused_until_loss_is_accepted() {
    type Harm = fn(&Place);
    let harms: [(&str, Harm, bool); 4] = [
        (
            "cut to half",
            |place| {
                let file = fs::OpenOptions::new().write(true).open(place.segment()).unwrap();
                file.set_len(file.metadata().unwrap().len() / 2).unwrap();
            },
            true,
        ),
        ("emptied", |place| fs::remove_file(place.segment()).unwrap(), false),
        ("file cut to nothing", |place| fs::write(place.segment(), b"").unwrap(), false),
        ("folder removed", |place| fs::remove_dir_all(&place.path).unwrap(), false),
    ];
    for (what, harm, keeps_some) in harms {
        let (place, all) = Place::new().await;
        let known = place.open().await.revision();
        harm(&place);
        for _ in 0..2 {
            let error = Store::open(&place.path).await.expect_err(what);
            match &error {
                OpenError::Behind { known: told, .. } => assert_eq!(*told, known, "{what}"),
                OpenError::Damaged { .. } => assert_eq!(what, "file cut to nothing"),
                error @ (OpenError::InUse { .. } | OpenError::Newer { .. } | OpenError::Io { .. }) => {
                    panic!("{what}: {error:?}")
                }
            }
            assert!(error.to_string().contains("`adieu store repair"), "{what}: {error}");
        }
        assert_eq!(check(&place.path, &Encryption::default()).unwrap().known, Some(known), "{what}");
        match repair(&place.path, false, &Encryption::default()) {
            Err(error @ RebuildError::Behind { .. }) => assert!(error.to_string().contains("--accept-loss"), "{error}"),
            other => panic!("{what}: {other:?}"),
        }
        let (_, rebuilt) = repair(&place.path, true, &Encryption::default()).unwrap();
        let rebuilt = rebuilt.expect(what);
        let store = place.open().await;
        let left = objects(&store);
        assert!(left.len() < all.len() && left.is_empty() != keeps_some, "{what}: {}", left.len());
        assert!(left.keys().all(|key| all.contains_key(key) || *key.name == *"p1"), "{what}");
        assert_revisions_go_on(&store, known);
        assert_eq!(rebuilt.aside.is_some(), place.beside().contains("store.damaged-1"), "{what}");
        set(&store, &pod("default", "next"), 1).await;
        drop(store);
        assert!(check(&place.path, &Encryption::default()).unwrap().is_sound());
    }
}

/// Whatever byte is changed: what is not named is what it was, the damaged files are kept, and the store opens.
#[tokio::test]
async fn repair_keeps_every_object_that_can_be_read_and_names_the_others() {
    let (place, all) = Place::new().await;
    let sound = fs::read(place.segment()).unwrap();
    let known = place.open().await.revision();
    let mark = fs::read(place.all.path().join("store.mark")).unwrap();
    let (mut named, mut whole) = (0, 0);
    for at in (0..sound.len()).step_by(97) {
        let _ = fs::remove_dir_all(&place.path);
        fs::create_dir(&place.path).unwrap();
        fs::write(place.all.path().join("store.mark"), &mark).unwrap();
        let mut damaged = sound.clone();
        damaged[at] ^= 0x11;
        fs::write(place.segment(), &damaged).unwrap();
        assert!(matches!(Store::open(&place.path).await, Err(OpenError::Damaged { .. })), "byte {at}");
        let report = check(&place.path, &Encryption::default()).unwrap();
        assert!(!report.is_sound() && !report.problems.is_empty(), "byte {at}");
        let (report, rebuilt) = repair(&place.path, true, &Encryption::default()).unwrap();
        let aside = rebuilt.unwrap().aside.unwrap();
        assert_eq!(fs::read(aside.join("00000000000000000001.log")).unwrap(), damaged, "byte {at}: a copy is kept");
        fs::remove_dir_all(aside).unwrap();
        let store = place.open().await;
        assert_revisions_go_on(&store, known);
        let left = objects(&store);
        let told: BTreeSet<&Key> = report.lost.iter().map(|lost| &lost.key).chain(&report.doubtful).collect();
        let either = all.keys().chain(left.keys()).collect::<BTreeSet<_>>().into_iter();
        let unnamed: Vec<&Key> = either.filter(|key| left.get(*key) != all.get(*key) && !told.contains(key)).collect();
        // The name of what is lost may be what is damaged: then that name is told, or how much is lost.
        let is_told = report.problems.iter().any(|problem| problem.contains("are lost"))
            || told.iter().any(|key| !all.contains_key(key));
        assert!(unnamed.is_empty() || (unnamed.len() == 1 && is_told), "byte {at}: {unnamed:?}\n{:?}", report.problems);
        assert!(all.len().abs_diff(left.len()) <= 1, "byte {at}: one write was damaged, {} are left", left.len());
        named += usize::from(!told.is_empty());
        whole += usize::from(left == all);
        drop(store);
    }
    assert!(named > 50 && whole > 20, "{named} named, {whole} whole");
}

#[tokio::test]
async fn repair_leaves_a_sound_store_as_it_is_and_check_changes_nothing() {
    let (place, all) = Place::new().await;
    let before = files(&place.path);
    let report = check(&place.path, &Encryption::default()).unwrap();
    assert!(report.is_sound(), "{report:?}");
    assert_eq!((report.objects, report.revision), (all.len() + 1, place.open().await.revision()));
    assert!(repair(&place.path, true, &Encryption::default()).unwrap().1.is_none());
    assert_eq!(files(&place.path), before);
    let open = place.open().await;
    assert!(matches!(check(&place.path, &Encryption::default()), Err(OpenError::InUse { .. })));
    drop(open);
    let nothing = place.all.path().join("never");
    assert!(check(&nothing, &Encryption::default()).unwrap().is_sound() && !nothing.exists());
}

/// [CL-35] Exactly what was there, and no revision comes twice.
#[tokio::test]
async fn backup_brings_back_what_was_there_and_revisions_go_on() {
    let (place, all) = Place::new().await;
    let odd = br#"{"metadata":[1]}"#;
    testkit::rows::append_row(&place.path, ("pods", "default", "odd"), odd).unwrap();
    let store = place.open().await;
    let mut file = Vec::new();
    store.backup().write(&mut file).unwrap();
    // A store that has come on since, and lost something.
    for n in 0..500 {
        set(&store, &pod("default", "later"), n).await;
    }
    remove(&store, &pod("default", "p2")).await;
    let newest = store.revision();
    drop(store);

    for length in (0..file.len()).step_by(509).chain([file.len() - 1]) {
        let cut = Backup::read(&mut &file[..length]);
        assert!(matches!(cut, Err(BackupError::Damaged(_) | BackupError::NotABackup(_))), "{length}: {cut:?}");
    }
    for at in (0..file.len()).step_by(509) {
        let mut changed = file.clone();
        changed[at] ^= 1;
        assert!(Backup::read(&mut &changed[..]).is_err(), "byte {at}");
    }
    assert!(matches!(Backup::read(&mut &[&file[..], b"{}\n"].concat()[..]), Err(BackupError::Damaged(_))));

    let backup = Backup::read(&mut &file[..]).unwrap();
    assert_eq!(backup.len(), all.len() + 1, "what servers keep for themselves is left out");
    let rebuilt = restore(&place.path, backup).unwrap();
    assert!(place.beside().contains("store.before-restore-1"));
    let store = place.open().await;
    assert_eq!((objects(&store), rebuilt.objects), (all.clone(), all.len() + 1));
    assert_eq!(store.unreadable("pods", "").len(), 1, "what nobody can read is brought back as it was");
    assert_revisions_go_on(&store, newest);
    // Whoever still has an object of the lost time does not overwrite.
    let stale = Step::Put { key: pod("default", "p2"), value: value(&pod("default", "p2"), 9) };
    assert!(store.write(&pod("default", "p2"), Expect::Revision(newest), vec![stale]).await.is_err());
    drop(store);
    // On a machine that has nothing.
    let elsewhere = place.all.path().join("elsewhere");
    assert_eq!(restore(&elsewhere, Backup::read(&mut &file[..]).unwrap()).unwrap().aside, None);
    let store = Store::open_with(&elsewhere, Window::default()).await.unwrap();
    assert_eq!(objects(&store), all);
}
