//! How images leave: never one that is in use, never a layer that another needs, whatever happens at the same time.

#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(missing_docs, unreachable_pub, dead_code, reason = "tests")]

use crate::common;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::on_a_machine;
use crate::image_support::{Layer, docker};
use runtime::RuntimeError;
use runtime::image::{ImageError, ImageStore, Prune, Use};
use runtime::verbs::*;
use serde_json::json;

fn store() -> (tempfile::TempDir, ImageStore) {
    let dir = tempfile::tempdir().unwrap();
    let store = ImageStore::open(&dir.path().join("images"), crate::image_support::program()).unwrap();
    (dir, store)
}

fn nobody() -> std::io::Result<Vec<Use>> {
    Ok(Vec::new())
}

fn count(dir: &Path, part: &str) -> usize {
    fs::read_dir(dir.join("images").join(part)).unwrap().count()
}

/// Has all names say that a registry gave them.
fn as_if_pulled(dir: &Path) {
    for entry in fs::read_dir(dir.join("images/names")).unwrap() {
        let path = entry.unwrap().path();
        let mut record: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        record["origin"] = json!({ "registry": { "credentials": [] } });
        fs::write(path, record.to_string()).unwrap();
    }
}

/// Two images that share their lower layer.
fn load_two(store: &ImageStore) {
    let base = Layer::new().file("base", "shared by both").tar();
    for tag in ["1", "2"] {
        let layers = [base.clone(), Layer::new().file("top", tag).tar()];
        store.load(docker(&[&format!("app:{tag}")], &layers, json!({})).as_slice()).unwrap();
    }
}

#[test]
fn a_name_goes_and_the_image_with_its_last_one() {
    let (dir, store) = store();
    load_two(&store);
    let archive = docker(&["app:1", "app:also"], &[Layer::new().file("x", "1").tar()], json!({}));
    store.load(archive.as_slice()).unwrap();
    let removed = store.remove("app:1", &nobody).unwrap();
    assert_eq!((removed.names.as_slice(), removed.images.len()), (&["docker.io/library/app:1".to_owned()][..], 0));
    assert!(store.find("app:also").is_ok());
    let removed = store.remove("app:also", &nobody).unwrap();
    assert_eq!((removed.images.len(), removed.bytes), (1, 1), "what it did not share");
    assert!(matches!(store.remove("app:also", &nobody), Err(ImageError::Absent { .. })));
    assert!(matches!(store.remove("Not A Name", &nobody), Err(ImageError::Name { .. })));
    let id = store.find("app:2").unwrap().image.id;
    let removed = store.remove(&id, &nobody).unwrap();
    assert_eq!((removed.names.len(), removed.images), (1, vec![id]));
    assert_eq!(
        (count(dir.path(), "layers"), count(dir.path(), "images"), count(dir.path(), "blobs/sha256")),
        (2, 1, 1)
    );
}

#[test]
fn a_shared_layer_stays_until_nobody_needs_it() {
    let (dir, store) = store();
    load_two(&store);
    assert_eq!(count(dir.path(), "layers"), 3);
    store.remove("app:1", &nobody).unwrap();
    let left = store.find("app:2").unwrap();
    assert_eq!(fs::read_to_string(left.layers[1].join("base")).unwrap(), "shared by both");
    assert_eq!(count(dir.path(), "layers"), 2);
    store.remove("app:2", &nobody).unwrap();
    assert_eq!((count(dir.path(), "layers"), count(dir.path(), "ingest"), count(dir.path(), "names")), (0, 0, 0));
}

#[test]
fn pruning_takes_what_it_may() {
    let (dir, store) = store();
    load_two(&store);
    let newer = docker(&["app:1"], &[Layer::new().file("x", "newer").tar()], json!({}));
    store.load(newer.as_slice()).unwrap();
    let half = dir.path().join("images/downloads").join("0".repeat(64));
    fs::write(&half, "the beginning of a layer").unwrap();
    // What a killed pull left is not what someone may still go on with.
    let left_by_a_crash = dir.path().join("images/layers").join("1".repeat(64));
    fs::create_dir_all(left_by_a_crash.join("fs")).unwrap();
    let removed = store.prune(Prune::Leftovers, &nobody).unwrap();
    assert!(removed.images.is_empty() && !left_by_a_crash.exists() && half.exists());
    let removed = store.prune(Prune::Unnamed, &nobody).unwrap();
    assert_eq!((removed.images.len(), removed.names.len(), half.exists()), (1, 0, false));
    assert!(store.find("app:1").is_ok() && store.find("app:2").is_ok());

    let used = store.find("app:2").unwrap();
    let users = || Ok(vec![Use { image: used.image.id.clone(), layers: used.layers.clone(), by: "pod a/b".into() }]);
    let error = store.remove("app:2", &users).unwrap_err();
    assert!(matches!(&error, ImageError::InUse { by, .. } if by == "pod a/b"), "{error}");
    // An image that was here a moment ago may be about to start, and one that was loaded would not come back.
    let free = |unused_for| store.prune(Prune::Free { bytes: u64::MAX, unused_for }, &users).unwrap().images;
    assert_eq!(free(Duration::ZERO), Vec::<String>::new());
    as_if_pulled(dir.path());
    assert_eq!(free(Duration::from_secs(120)), Vec::<String>::new());
    assert_eq!(store.prune(Prune::Unused, &users).unwrap().images.len(), 1);
    assert_eq!(store.list().len(), 1);
    assert!(used.layers.iter().all(|layer| layer.is_dir()));
    // Who uses what cannot be told: nothing goes.
    let broken = || Err(std::io::Error::other("a plan does not read"));
    assert!(matches!(store.prune(Prune::Unused, &broken), Err(ImageError::Uses { .. })));
    assert!(store.find("app:2").is_ok());
    // Its record is damaged, but containers run from its layers.
    let hex = used.image.id.trim_start_matches("sha256:");
    fs::write(dir.path().join("images/images").join(hex).with_extension("json"), "{").unwrap();
    store.prune(Prune::Unused, &users).unwrap();
    assert!(used.layers.iter().all(|layer| layer.is_dir()));
}

#[test]
fn the_longest_unused_goes_first_and_only_as_much_as_is_needed() {
    let (dir, store) = store();
    let mut ids = Vec::new();
    for tag in ["a", "b", "c"] {
        let archive = docker(&[&format!("{tag}:1")], &[Layer::new().file("x", &tag.repeat(1000)).tar()], json!({}));
        ids.push(store.load(archive.as_slice()).unwrap().remove(0).id);
    }
    // As if they had last been used three, one and two hours ago.
    for (id, hours) in ids.iter().zip([3, 1, 2]) {
        let record = dir.path().join("images/images").join(id.trim_start_matches("sha256:")).with_extension("json");
        let then = std::time::SystemTime::now() - Duration::from_hours(hours);
        fs::File::open(record).unwrap().set_modified(then).unwrap();
    }
    as_if_pulled(dir.path());
    let some = Prune::Free { bytes: 1500, unused_for: Duration::from_secs(120) };
    let removed = store.prune(some, &nobody).unwrap();
    assert_eq!((removed.images, removed.bytes), (vec![ids[0].clone(), ids[2].clone()], 2000));
    assert!(store.find("b:1").is_ok());
}

#[test]
fn loading_and_removing_at_the_same_time_leaves_every_image_whole() {
    let (dir, store) = store();
    let over = AtomicBool::new(false);
    let base = Layer::new().file("base", &"x".repeat(10_000)).tar();
    let archive =
        |tag: &str| docker(&[&format!("{tag}:1")], &[base.clone(), Layer::new().file("top", tag).tar()], json!({}));
    std::thread::scope(|scope| {
        let pruner = scope.spawn(|| {
            let other = ImageStore::open(&dir.path().join("images"), crate::image_support::program()).unwrap();
            let mut removed = 0;
            while !over.load(Ordering::Relaxed) {
                removed += other.prune(Prune::Unused, &nobody).unwrap().images.len();
            }
            removed
        });
        let loaders: Vec<_> = ["a", "b"]
            .map(|tag| {
                let (store, archive) = (store.clone(), archive(tag));
                scope.spawn(move || (0..40).for_each(|_| drop(store.load(archive.as_slice()).unwrap())))
            })
            .into_iter()
            .collect();
        loaders.into_iter().for_each(|loader| loader.join().unwrap());
        over.store(true, Ordering::Relaxed);
        assert!(pruner.join().unwrap() > 0);
    });
    for tag in ["a", "b"] {
        store.load(archive(tag).as_slice()).unwrap();
        let stored = store.find(&format!("{tag}:1")).unwrap();
        assert_eq!(fs::read_to_string(stored.layers[0].join("top")).unwrap(), tag);
        assert_eq!(fs::read_to_string(stored.layers[1].join("base")).unwrap().len(), 10_000);
    }
    assert_eq!((count(dir.path(), "layers"), count(dir.path(), "ingest")), (3, 0));
}

#[test]
fn an_image_in_use_stays_until_its_pod_is_gone() {
    on_a_machine(|machine| async move {
        let pod = machine.sandbox("user").await;
        machine.start(&pod, "app", "sleep 1000").await;
        let archive = docker(&["other:1"], &[Layer::new().file("x", "1").tar()], json!({}));
        machine.runtime().image_store().load(archive.as_slice()).unwrap();
        let removed = machine.runtime().prune_images(Prune::Unused).await.unwrap();
        assert_eq!(removed.images.len(), 1, "{removed:?}");
        assert!(machine.runtime().ensure_image(common::IMAGE).await.is_ok());
        // What the image holds can still be run.
        machine.start(&pod, "again", "sleep 1000").await;
        machine.runtime().remove_sandbox(&pod).await.unwrap();
        assert_eq!(machine.runtime().prune_images(Prune::Unused).await.unwrap().images.len(), 1);
        let gone = machine.runtime().ensure_image(common::IMAGE).await;
        assert!(matches!(gone, Err(RuntimeError::ImageAbsent { .. })), "{gone:?}");
        machine
    });
}
