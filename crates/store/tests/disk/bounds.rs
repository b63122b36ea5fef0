//! What a store does not take, and what it makes of values that it never took: rows of an earlier version, or of nobody.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::PathBuf;

use crate::common::*;
use api::bounds::{DEPTH_MAX, SIZE_MAX, depth};
use serde_json::{Value, json};
use store::{Change, Expect, Key, Refusal, Revision, Step, Store, TransactError, Window, WriteError};
use tempfile::TempDir;
use testkit::rows::append_row;

struct StoreFolder {
    _directory: TempDir,
    path: PathBuf,
}

impl StoreFolder {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { path: directory.path().join("store"), _directory: directory }
    }

    async fn open(&self) -> Store {
        Store::open(&self.path).await.unwrap()
    }

    fn append(&self, name: &str, bytes: &[u8]) -> u64 {
        append_row(&self.path, ("pods", "default", name), bytes).unwrap()
    }
}

/// How long the key of the pod `web` is.
const KEY: usize = "pods".len() + "default".len() + "web".len();

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, _| Value::Array(vec![inner]))
}

/// An object of so many levels.
fn deep(levels: usize) -> Value {
    let mut object = json!({ "metadata": {} });
    object["spec"] = nested(levels - 1);
    object
}

/// The same, as an earlier version stored it.
fn deep_text(levels: usize) -> String {
    format!(r#"{{"metadata":{{"name":"x"}},"n":7,"spec":{}{}}}"#, "[".repeat(levels - 1), "]".repeat(levels - 1))
}

/// An object that is stored as so many bytes at a revision of one digit, with [`KEY`].
fn sized(size: usize) -> Value {
    let own = KEY + json!({ "metadata": { "resourceVersion": "2" }, "text": "" }).to_string().len();
    json!({ "metadata": {}, "text": "x".repeat(size - own) })
}

fn step(key: &Key, value: Value) -> Vec<Step> {
    vec![Step::Put { key: key.clone(), value }]
}

fn mark(key: &Key, value: Value) -> Vec<Step> {
    vec![Step::Mark { key: key.clone(), value }]
}

async fn write(store: &Store, key: &Key, value: Value) -> Result<Vec<Change>, WriteError> {
    store.write(key, current(store, key), step(key, value)).await
}

/// [SE-91] The thread of the store neither aborts nor ends, whatever it is given.
#[tokio::test]
async fn value_nested_beyond_the_bound_is_refused_with_its_path() {
    let place = StoreFolder::new();
    let store = place.open().await;
    let key = pod("default", "web");
    write(&store, &key, deep(DEPTH_MAX)).await.unwrap();
    let stored = store.revision();
    for levels in [DEPTH_MAX + 1, 127, 1000, 1_000_000] {
        for steps in [step(&key, deep(levels)), mark(&key, deep(levels))] {
            match store.write(&key, current(&store, &key), steps).await {
                Err(WriteError::Refused(Refusal::TooDeep { key: of, path, limit: DEPTH_MAX })) => {
                    assert_eq!(of, key);
                    assert!(path.starts_with("spec[0][0]"), "{path}");
                }
                other => panic!("{levels}: {other:?}"),
            }
        }
    }
    assert_eq!(store.revision(), stored);
    set(&store, &key, 7).await;
}

#[tokio::test]
async fn value_that_is_no_object_is_refused() {
    let place = StoreFolder::new();
    let store = place.open().await;
    let key = pod("default", "web");
    for value in [json!(null), json!([]), json!("text"), json!({ "metadata": [] }), json!({ "metadata": null })] {
        let refused = write(&store, &key, value).await;
        assert!(matches!(refused, Err(WriteError::Refused(Refusal::NotAnObject { .. }))), "{refused:?}");
    }
    set(&store, &key, 1).await;
}

#[tokio::test]
async fn value_larger_than_the_bound_is_refused_with_its_size() {
    let place = StoreFolder::new();
    let store = place.open().await;
    let key = pod("default", "web");
    match write(&store, &key, sized(SIZE_MAX + 1)).await {
        Err(WriteError::Refused(refusal)) => {
            assert_eq!(refusal, Refusal::TooLarge { key: key.clone(), size: SIZE_MAX + 1, limit: SIZE_MAX });
        }
        other => panic!("{other:?}"),
    }
    assert_eq!((store.get(&key).is_none(), store.revision()), (true, Revision::FIRST));
    write(&store, &key, sized(SIZE_MAX)).await.unwrap();
    assert_eq!(store.get(&key).unwrap().json.len() + KEY, SIZE_MAX);
    // One byte more, whatever is stored beside it.
    let other = Key::new("budgets", "default", "b");
    let steps = [put(&other, 1), step(&key, sized(SIZE_MAX + 1))].concat();
    let refused = store.transact(vec![(other.clone(), Expect::Absent)], steps).await;
    assert!(matches!(refused, Err(TransactError::Refused(Refusal::TooLarge { .. }))), "{refused:?}");
    assert!(store.get(&other).is_none());
}

/// Whatever is stored can be told to go, also if not a byte more of it could be stored.
#[tokio::test]
async fn object_at_the_bound_can_be_marked() {
    let place = StoreFolder::new();
    let store = place.open().await;
    let key = pod("default", "web");
    write(&store, &key, sized(SIZE_MAX)).await.unwrap();
    let mut marked = store.get(&key).unwrap().to_value();
    marked["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert!(write(&store, &key, marked.clone()).await.is_err());
    store.write(&key, current(&store, &key), mark(&key, marked.clone())).await.unwrap();
    // And what is marked can be written without getting larger.
    marked["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:01Z");
    write(&store, &key, marked.clone()).await.unwrap();
    marked["text"] = json!("x".repeat(SIZE_MAX + (1 << 20)));
    assert!(store.write(&key, current(&store, &key), mark(&key, marked)).await.is_err());
}

/// What an earlier version took stays readable, may shrink and stay as it is, and does not grow.
#[tokio::test]
async fn object_of_an_earlier_version_beyond_the_bounds_does_not_grow() {
    let place = StoreFolder::new();
    drop(place.open().await);
    let large = json!({ "metadata": { "name": "large", "resourceVersion": "2" }, "text": "x".repeat(2 << 20) });
    place.append("large", large.to_string().as_bytes());
    place.append("deep", deep_text(100).as_bytes());
    let store = place.open().await;
    assert_eq!(store.list("pods", "", None).unwrap().items.len(), 2);

    let key = pod("default", "large");
    let mut value = store.get(&key).unwrap().to_value();
    // Revisions become longer, which is nobody's doing.
    for n in 0..10 {
        set(&store, &pod("default", "other"), n).await;
    }
    value["text"] = json!("y".repeat(2 << 20));
    write(&store, &key, value.clone()).await.unwrap();
    let mut larger = value.clone();
    larger["text"] = json!("y".repeat((2 << 20) + 1));
    assert!(write(&store, &key, larger).await.is_err());
    value["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    store.write(&key, current(&store, &key), mark(&key, value)).await.unwrap();
    remove(&store, &key).await;

    let key = pod("default", "deep");
    let mut value = store.get(&key).unwrap().to_value();
    assert_eq!(depth(&value, 1000), 100);
    value["n"] = json!(8);
    write(&store, &key, value).await.unwrap();
    assert!(write(&store, &key, deep(101)).await.is_err());
    write(&store, &key, deep(70)).await.unwrap();
    assert!(write(&store, &key, deep(71)).await.is_err());
    remove(&store, &key).await;
}

/// Everything that bytes can be instead of an object.
const STRANGE: [(&str, &[u8]); 9] = [
    ("array", b"[]"),
    ("bits", b"\xff\x00\x01"),
    ("cut", br#"{"metadata":{"name":"cut"},"#),
    ("empty", b""),
    ("lone", br#"{"metadata":{},"a":"\ud800"}"#),
    ("metadata", br#"{"metadata":"none","n":1}"#),
    ("nothing", b"null"),
    ("number", br#"{"metadata":{},"n":1e999}"#),
    ("plain", br#"{"n":1}"#),
];

#[tokio::test]
async fn store_with_values_that_are_no_objects_opens_and_serves_the_rest() {
    let place = StoreFolder::new();
    let store = place.open().await;
    set(&store, &pod("default", "web"), 1).await;
    drop(store);
    let first = place.append(STRANGE[0].0, STRANGE[0].1);
    for (name, bytes) in &STRANGE[1..] {
        place.append(name, bytes);
    }
    let store = place.open().await;
    assert_eq!(names(&store.list("pods", "", None).unwrap().items), [("pods/default/web".to_owned(), 1)]);
    let past = store.list("pods", "default", Some(Revision(first + 3))).unwrap();
    assert_eq!(names(&past.items), [("pods/default/web".to_owned(), 1)]);
    let found: Vec<String> = store.unreadable("pods", "").iter().map(|object| object.key.name.to_string()).collect();
    assert_eq!(found, STRANGE.map(|(name, _)| name));
    assert!(store.unreadable("pods", "other").is_empty() && store.unreadable("nodes", "").is_empty());

    // A watch that begins before them does not tell of them, and goes on.
    let mut watch = store.watch("pods", "", Some(Revision(first - 1))).unwrap();
    let after = set(&store, &pod("default", "web"), 2).await;
    assert_eq!(told(&soon(&mut watch).await), format!("~web@{after}"));

    for (at, (name, _)) in STRANGE.iter().enumerate() {
        let key = pod("default", name);
        let object = store.get(&key).unwrap();
        assert!(object.unreadable().is_some(), "{name}");
        assert_eq!(object.value()["metadata"]["name"], *name);
        assert_eq!(object.value()["metadata"]["resourceVersion"], json!(object.revision.to_string()));
        // Half of them are deleted, the others replaced, one of those by what is shown of it.
        let change = match at % 2 {
            0 => store.write(&key, current(&store, &key), delete(&key)).await,
            _ if at == 1 => write(&store, &key, object.to_value()).await,
            _ => write(&store, &key, value(&key, 3)).await,
        };
        assert_eq!(change.unwrap().len(), 1, "{name}");
        assert_eq!(soon(&mut watch).await.key(), &key);
    }
    assert!(store.unreadable("pods", "").is_empty());
    drop((watch, store));
    let store = place.open().await;
    assert!(store.unreadable("pods", "").is_empty());
    assert_eq!(store.list("pods", "", None).unwrap().items.len(), 1 + STRANGE.len() / 2);
}

/// Nothing is lost by starting: what cannot be read today stays on disk as it is, also when the log is written anew.
#[tokio::test]
async fn unreadable_value_survives_a_snapshot_as_it_is() {
    let window = Window { changes: 4, ..Window::default() };
    let place = StoreFolder::new();
    drop(place.open().await);
    let strange = br#"{"metadata":"a word that nobody else would write"}"#;
    place.append("strange", strange);
    let deep = deep_text(500);
    place.append("deep", deep.as_bytes());
    let store = Store::open_with(&place.path, window).await.unwrap();
    let bulk = pod("default", "bulk");
    let has_snapshot = || {
        let mut entries = std::fs::read_dir(&place.path).unwrap().map(|entry| entry.unwrap().path());
        entries.any(|path| path.extension().is_some_and(|extension| extension == "snapshot"))
    };
    let mut n = 0;
    while !has_snapshot() {
        n += 1;
        write(&store, &bulk, json!({ "metadata": {}, "n": n, "text": "x".repeat(1 << 20) })).await.unwrap();
    }
    drop(store);
    let mut bytes = Vec::new();
    for entry in std::fs::read_dir(&place.path).unwrap() {
        bytes.extend(std::fs::read(entry.unwrap().path()).unwrap());
    }
    for kept in [&strange[..], deep.as_bytes()] {
        assert!(bytes.windows(kept.len()).any(|window| window == kept), "{:?}", String::from_utf8_lossy(kept));
    }
    let store = Store::open_with(&place.path, window).await.unwrap();
    assert!(store.get(&pod("default", "strange")).unwrap().unreadable().is_some());
    assert_eq!(n_of(&store.get(&pod("default", "deep")).unwrap()), 7);
}

/// [SE-91] An object as earlier versions stored it: deeper than any reader of ours can follow.
#[tokio::test]
async fn object_deeper_than_readers_follow_is_shown_without_its_deepest_levels() {
    let place = StoreFolder::new();
    drop(place.open().await);
    for (name, levels) in [("a", 121), ("b", 128), ("c", 5000), ("d", 700_000)] {
        place.append(name, deep_text(levels).as_bytes());
    }
    let store = place.open().await;
    let page = store.list("pods", "", None).unwrap();
    assert_eq!(page.items.len(), 4);
    for object in &page.items {
        assert_eq!((object.unreadable(), n_of(object)), (None, 7), "{}", object.key);
        assert_eq!(depth(&object.value(), 1000), DEPTH_MAX);
        assert_eq!(depth(&serde_json::from_slice(&object.json).unwrap(), 1000), DEPTH_MAX);
    }
    // It can be written, also if nothing is to change, and deleted.
    let key = pod("default", "c");
    let before = store.get(&key).unwrap();
    let changes = write(&store, &key, before.to_value()).await.unwrap();
    assert!(matches!(&changes[..], [Change::Modified { .. }]));
    remove(&store, &pod("default", "d")).await;
    drop((before, changes, page, store));
    let store = place.open().await;
    assert_eq!(store.list("pods", "", None).unwrap().items.len(), 3);
}

/// Values by chance, sound ones among them: a store over them opens, and what it lists can be read.
#[tokio::test]
async fn store_over_values_by_chance_lists_only_objects() {
    let mut dice = testkit::Dice::seeded(0x5eed);
    let place = StoreFolder::new();
    drop(place.open().await);
    let sound = deep_text(8).into_bytes();
    for n in 0..300 {
        let mut bytes = sound.clone();
        for _ in 0..dice.below(3) {
            let at = usize::try_from(dice.below(bytes.len() as u64)).unwrap();
            bytes[at] = u8::try_from(dice.below(256)).unwrap();
        }
        place.append(&format!("p{n}"), &bytes);
    }
    let store = place.open().await;
    let listed = store.list("pods", "", None).unwrap().items;
    let left_out = store.unreadable("pods", "");
    assert_eq!(listed.len() + left_out.len(), 300);
    assert!(!listed.is_empty() && !left_out.is_empty());
    for object in listed {
        assert!(object.value()["metadata"].is_object());
        assert_eq!(serde_json::from_slice::<Value>(&object.json).unwrap(), *object.value());
    }
    for object in left_out {
        remove(&store, &object.key).await;
    }
    assert!(store.unreadable("pods", "").is_empty());
}
