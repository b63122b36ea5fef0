//! Values that are encrypted on disk: what the files hold, keys that change, keys that are missing, and copies.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::*;
use serde_json::{Value, json};
use store::{Backup, Encryption, Key, Step, Store, Window, check, repair, restore};

/// As it is told, and as it is written.
const PASSWORD: &str = "correct horse battery staple";
const PATIENCE: Duration = Duration::from_secs(120);

struct Place {
    all: tempfile::TempDir,
    path: PathBuf,
}

impl Place {
    fn new() -> Self {
        let all = tempfile::tempdir().unwrap();
        Self { path: all.path().join("store"), all }
    }

    async fn open(&self, keys: &[(&str, u8)]) -> Store {
        Store::open_encrypted(&self.path, Window::default(), encryption(keys)).await.unwrap()
    }

    /// Waits until the store's files hold the password, or do not.
    async fn shows_password(&self, shows: bool) {
        let seen = async {
            while shows != holds(&self.path, PASSWORD) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, seen).await.expect("the files are written anew");
    }

    async fn is_written_with(&self, key: &str) {
        let (mark, others) = (format!("k8s:enc:aesgcm:v1:{key}:"), "k8s:enc:aesgcm:v1:");
        let seen = async {
            while count(&self.path, &mark) == 0 || count(&self.path, &mark) != count(&self.path, others) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, seen).await.expect("the files are written anew");
    }
}

/// The first of the keys writes; none at all writes plain.
fn encryption(keys: &[(&str, u8)]) -> Encryption {
    const DIGITS: &[u8] = b"ABCDEFGHIJ";
    let key = |(name, byte): &(&str, u8)| {
        // Some 32 bytes.
        let secret = format!("{}=", char::from(DIGITS[usize::from(*byte)]).to_string().repeat(42) + "A");
        json!({ "name": name, "secret": secret })
    };
    let all: Vec<_> = keys.iter().map(key).collect();
    let providers = match all.is_empty() {
        true => json!([{ "identity": {} }]),
        false => json!([{ "aesgcm": { "keys": all } }, { "identity": {} }]),
    };
    let config = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration",
        "resources": [{ "resources": ["secrets"], "providers": providers }],
    });
    Encryption::from_config(&config).unwrap()
}

fn count(folder: &Path, text: &str) -> usize {
    let in_file = |path: PathBuf| {
        // One that is being replaced may be gone by now.
        let bytes = fs::read(path).unwrap_or_default();
        bytes.windows(text.len()).filter(|window| *window == text.as_bytes()).count()
    };
    fs::read_dir(folder).unwrap().map(|entry| in_file(entry.unwrap().path())).sum()
}

fn holds(folder: &Path, text: &str) -> bool {
    count(folder, text) > 0
}

fn secret(name: &str) -> Key {
    Key::new("secrets", "default", name)
}

async fn set_password(store: &Store, name: &str) {
    let key = secret(name);
    let value = json!({ "metadata": { "name": name, "namespace": "default" }, "stringData": { "password": PASSWORD } });
    store.write(&key, current(store, &key), vec![Step::Put { key: key.clone(), value }]).await.unwrap();
}

fn password(store: &Store, name: &str) -> Value {
    store.get(&secret(name)).unwrap().value()["stringData"]["password"].clone()
}

#[tokio::test]
async fn secret_is_on_no_disk_as_it_is_and_is_read_back() {
    let place = Place::new();
    let store = place.open(&[("one", 1)]).await;
    set_password(&store, "a").await;
    set(&store, &pod("default", "p"), 1).await;
    assert!(!holds(&place.path, PASSWORD) && holds(&place.path, "\"n\":1"), "pods are plain");
    assert_eq!(password(&store, "a"), PASSWORD);
    let has_snapshot = || {
        let mut entries = fs::read_dir(&place.path).unwrap();
        entries.any(|entry| entry.unwrap().path().extension().is_some_and(|it| it == "snapshot"))
    };
    let (since, large) = (std::time::Instant::now(), pod("default", "large"));
    for n in 0.. {
        if has_snapshot() {
            break;
        }
        assert!(since.elapsed() < PATIENCE, "no snapshot");
        let value = json!({ "metadata": {}, "n": n, "x": "x".repeat(100_000) });
        store.write(&large, current(&store, &large), vec![Step::Put { key: large.clone(), value }]).await.unwrap();
    }
    assert!(!holds(&place.path, PASSWORD));
    drop(store);
    let store = place.open(&[("one", 1)]).await;
    assert_eq!(password(&store, "a"), PASSWORD);
    let report = check_closed(&place, store, &encryption(&[("one", 1)]));
    assert!(report.is_sound() && report.locked.is_empty(), "{report:?}");
    assert_eq!(report.encrypted.into_iter().collect::<Vec<_>>(), [("aesgcm:v1:one".to_owned(), 1)]);
}

fn check_closed(place: &Place, store: Store, keys: &Encryption) -> store::Report {
    drop(store);
    check(&place.path, keys).unwrap()
}

/// From plain to a key, to another key, and back to plain: the files are written anew at the start, and nobody has to touch the objects.
#[tokio::test]
async fn store_is_written_anew_when_its_first_key_changes() {
    let place = Place::new();
    let store = place.open(&[]).await;
    set_password(&store, "a").await;
    set_password(&store, "gone").await;
    remove(&store, &secret("gone")).await;
    let revision = store.revision();
    place.shows_password(true).await;
    drop(store);
    let store = place.open(&[("one", 1)]).await;
    place.shows_password(false).await;
    assert_eq!((password(&store, "a"), store.revision()), (PASSWORD.into(), revision), "no client sees a change");
    drop(store);
    let store = place.open(&[("two", 2), ("one", 1)]).await;
    place.is_written_with("two").await;
    drop(store);
    let store = place.open(&[("two", 2)]).await;
    assert_eq!(password(&store, "a"), PASSWORD, "the old key is not needed any more");
    set_password(&store, "b").await;
    drop(store);
    let store = place.open(&[]).await;
    assert_eq!(store.unreadable("secrets", "").len(), 2, "and the new one is");
    drop(store);
    let config = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration",
        "resources": [{ "resources": ["secrets"], "providers": [{ "identity": {} }, { "aesgcm": { "keys": [
            { "name": "two", "secret": format!("{}A=", "C".repeat(42)) },
        ] } }] }],
    });
    let plain = Encryption::from_config(&config).unwrap();
    let store = Store::open_encrypted(&place.path, Window::default(), plain).await.unwrap();
    place.shows_password(true).await;
    drop(store);
    assert_eq!(password(&Store::open(&place.path).await.unwrap(), "b"), PASSWORD);
}

/// Nothing is lost while a key is not there, whatever is written meanwhile, and what nobody can read can be deleted.
#[tokio::test]
async fn secret_whose_key_is_missing_is_known_by_its_name_until_the_key_is_back() {
    let place = Place::new();
    let store = place.open(&[("one", 1)]).await;
    set_password(&store, "a").await;
    set_password(&store, "b").await;
    drop(store);
    for wrong in [&[("one", 7)][..], &[("other", 1)], &[]] {
        let store = place.open(wrong).await;
        let object = store.get(&secret("a")).unwrap();
        assert!(
            object.lacks_key() && object.unreadable().unwrap().contains("key \"one\""),
            "{:?}",
            object.unreadable()
        );
        assert!(store.list("secrets", "", None).unwrap().items.is_empty());
        assert_eq!(store.unreadable("secrets", "").len(), 2);
        set(&store, &pod("default", "meanwhile"), u64::from(wrong.first().map_or(0, |key| key.1))).await;
        set_password(&store, "c").await;
        remove(&store, &secret("c")).await;
        let report = check_closed(&place, store, &encryption(wrong));
        assert!(report.is_sound(), "{report:?}");
        assert_eq!(report.locked.len(), if wrong.is_empty() { 0 } else { 2 });
    }
    let store = place.open(&[("new", 2)]).await;
    remove(&store, &secret("b")).await;
    drop(store);
    let store = place.open(&[("new", 2), ("one", 1)]).await;
    assert_eq!(password(&store, "a"), PASSWORD);
    assert!(store.get(&secret("b")).is_none() && store.unreadable("secrets", "").is_empty());
}

#[tokio::test]
async fn backup_holds_what_is_encrypted_and_is_restored_without_a_key() {
    let place = Place::new();
    let store = place.open(&[("one", 1)]).await;
    set_password(&store, "a").await;
    set(&store, &pod("default", "p"), 5).await;
    let mut file = Vec::new();
    store.backup().write(&mut file).unwrap();
    drop(store);
    let shows = |file: &[u8]| String::from_utf8_lossy(file).contains(PASSWORD);
    assert!(!shows(&file));
    // The same by somebody who has no key.
    let mut closed = Vec::new();
    Store::open(&place.path).await.unwrap().backup().write(&mut closed).unwrap();
    assert!(!shows(&closed));
    for backup in [file, closed] {
        restore(&place.path, Backup::read(&mut &backup[..]).unwrap()).unwrap();
        assert!(!holds(&place.path, PASSWORD));
        let store = place.open(&[("one", 1)]).await;
        assert_eq!((password(&store, "a"), n_of(&store.get(&pod("default", "p")).unwrap())), (PASSWORD.into(), 5));
    }
    assert!(!holds(place.all.path().join("store.before-restore-1").as_path(), PASSWORD));
}

/// Of a damaged part, what is encrypted is kept if a key opens it; it stays encrypted.
#[tokio::test]
async fn repair_keeps_what_is_encrypted_and_believes_a_key() {
    let place = Place::new();
    let keys = [("one", 1)];
    let store = place.open(&keys).await;
    set_password(&store, "a").await;
    // Both in one frame.
    let (secret_b, pod_x) = (secret("b"), pod("default", "x"));
    let password_of_b =
        json!({ "metadata": { "name": "b", "namespace": "default" }, "stringData": { "password": PASSWORD } });
    let steps = [(&secret_b, password_of_b), (&pod_x, value(&pod_x, 1))];
    let steps = steps.map(|(key, value)| Step::Put { key: key.clone(), value });
    store.transact(Vec::new(), steps.into()).await.unwrap();
    set_password(&store, "c").await;
    drop(store);
    let segment = place.path.join("00000000000000000001.log");
    let sound = fs::read(&segment).unwrap();
    let mark = fs::read(place.all.path().join("store.mark")).unwrap();
    let at = |text: &[u8]| sound.windows(text.len()).position(|window| window == text).unwrap();
    let (value_of_x, value_of_b) = (at(b"\x01\0\0\0x{") + 5, at(b"\x01\0\0\0bk8s:enc:") + 60);
    for (what, byte, with, is_kept) in [
        ("a byte of the pod beside it", value_of_x, encryption(&keys), true),
        ("the same without a key", value_of_x, Encryption::default(), false),
        ("a byte of it", value_of_b, encryption(&keys), false),
    ] {
        let _ = fs::remove_dir_all(&place.path);
        fs::create_dir(&place.path).unwrap();
        fs::write(place.all.path().join("store.mark"), &mark).unwrap();
        let mut damaged = sound.clone();
        damaged[byte] ^= 1;
        fs::write(&segment, damaged).unwrap();
        assert!(Store::open_encrypted(&place.path, Window::default(), with.clone()).await.is_err(), "{what}");
        let (report, rebuilt) = repair(&place.path, true, &with).unwrap();
        fs::remove_dir_all(rebuilt.unwrap().aside.unwrap()).unwrap();
        assert!(!holds(&place.path, PASSWORD));
        let store = place.open(&keys).await;
        assert_eq!(store.get(&secret_b).is_some(), is_kept, "{what}: {report:?}");
        assert_eq!(report.lost.iter().any(|lost| lost.key == secret_b), !is_kept, "{what}");
        assert_eq!((password(&store, "a"), password(&store, "c")), (PASSWORD.into(), PASSWORD.into()));
    }
}
