//! The store beside the simplest thing that could be one, through many random lives.
//!
//! `STORMS` says how many; a failure names its seed. The folder lies in memory where there is such a place: what a disk
//! does is another test's matter.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::*;
use store::{Change, Expect, HistoryError, Key, Revision, Step, Store, TransactError, Window};
use testkit::Dice;

/// Small, so that history is given up again and again.
const WINDOW: Window = Window { changes: 40, bytes: usize::MAX, age: std::time::Duration::MAX };
const STEPS: u64 = 120;

/// All there is to a store: what is there, and what happened.
#[derive(Default)]
struct Model {
    objects: BTreeMap<Key, (Revision, u64)>,
    /// Every change, oldest first: the key, and what it became.
    history: Vec<(Revision, Key, Option<u64>)>,
}

impl Model {
    fn revision(&self) -> Revision {
        self.history.last().map_or(Revision::FIRST, |(revision, ..)| *revision)
    }

    fn holds(&self, key: &Key, expect: Expect) -> bool {
        match expect {
            Expect::Absent => !self.objects.contains_key(key),
            Expect::Revision(revision) => self.objects.get(key).is_some_and(|(stored, _)| *stored == revision),
        }
    }

    fn perform(&mut self, key: &Key, n: Option<u64>) {
        let before = self.objects.get(key).map(|(_, n)| *n);
        if before == n {
            return;
        }
        let revision = Revision(self.revision().0 + 1);
        match n {
            Some(n) => drop(self.objects.insert(key.clone(), (revision, n))),
            None => drop(self.objects.remove(key)),
        }
        self.history.push((revision, key.clone(), n));
    }

    /// What a list at a revision holds.
    fn at(&self, collection: &str, namespace: &str, revision: Revision) -> Vec<(String, u64)> {
        let mut state: BTreeMap<&Key, u64> = BTreeMap::new();
        for (_, key, n) in self.history.iter().take_while(|(at, ..)| *at <= revision) {
            match n {
                Some(n) => drop(state.insert(key, *n)),
                None => drop(state.remove(key)),
            }
        }
        let is_meant =
            |key: &Key| *key.collection == *collection && (namespace.is_empty() || *key.namespace == *namespace);
        state.into_iter().filter(|(key, _)| is_meant(key)).map(|(key, n)| (key.to_string(), n)).collect()
    }
}

fn key(dice: &mut Dice, collection: &str) -> Key {
    Key::new(collection, dice.pick(&["a", "b"]), dice.pick(&["x", "y", "z"]))
}

fn step(key: &Key, n: Option<u64>) -> Step {
    match n {
        Some(n) => Step::Put { key: key.clone(), value: value(key, n) },
        None => Step::Delete { key: key.clone() },
    }
}

/// One or two keys of different collections, some expectations right and some not.
async fn write(dice: &mut Dice, store: &Store, model: &mut Model) {
    let collections = if dice.once_in(3) { vec!["pods", "nodes"] } else { vec![dice.pick(&["pods", "nodes"])] };
    let mut expects = Vec::new();
    let mut steps = Vec::new();
    let mut then_delete = None;
    for collection in collections {
        let key = key(dice, collection);
        let right = model.objects.get(&key).map_or(Expect::Absent, |(revision, _)| Expect::Revision(*revision));
        let wrong = dice.pick(&[Expect::Absent, Expect::Revision(model.revision()), Expect::Revision(Revision(3))]);
        expects.push((key.clone(), if dice.once_in(6) { wrong } else { right }));
        let n = (!dice.once_in(3)).then(|| dice.below(4));
        steps.push((key.clone(), n));
        if n.is_some() && dice.once_in(4) {
            then_delete = Some(key.clone());
        }
    }
    let stands = expects.iter().all(|(key, expect)| model.holds(key, *expect));
    let asked = steps.iter().map(|(key, n)| step(key, *n)).collect();
    let answer = match then_delete.clone() {
        Some(key) => store.transact_then_delete(expects, asked, key).await,
        None => store.transact(expects, asked).await,
    };
    match answer {
        Ok(changes) => {
            assert!(stands, "an expectation that does not hold is noticed");
            let before = model.history.len();
            steps.iter().for_each(|(key, n)| model.perform(key, *n));
            then_delete.iter().for_each(|key| model.perform(key, None));
            let told: Vec<_> = changes.iter().map(Change::revision).collect();
            let expected: Vec<_> = model.history[before..].iter().map(|(revision, ..)| *revision).collect();
            assert_eq!(told, expected);
        }
        Err(TransactError::Conflict { key, found }) => {
            assert!(!stands, "{key}");
            assert_eq!(found.map(|object| object.revision), model.objects.get(&key).map(|(revision, _)| *revision));
        }
        Err(error @ (TransactError::Refused(_) | TransactError::Log(_))) => panic!("{error:?}"),
    }
}

/// A list and a watch from somewhere in the past are right, or say that it is too long ago.
async fn look(dice: &mut Dice, store: &Store, model: &Model) {
    assert_eq!(store.revision(), model.revision());
    let (collection, namespace) = (dice.pick(&["pods", "nodes"]), dice.pick(&["", "a", "b"]));
    let at = Revision(Revision::FIRST.0 + dice.below(model.revision().0));
    let in_window = model.revision().0 - at.0 <= WINDOW.changes as u64;
    match store.list(collection, namespace, Some(at)) {
        Ok(page) => assert_eq!((page.revision, names(&page.items)), (at, model.at(collection, namespace, at))),
        Err(HistoryError::Compacted { .. }) => assert!(!in_window, "{at} is not so long ago"),
        Err(error @ HistoryError::Future { .. }) => panic!("{error:?}"),
    }
    let is_meant = |key: &Key| *key.collection == *collection && (namespace.is_empty() || *key.namespace == *namespace);
    match store.watch(collection, namespace, Some(at)) {
        Ok(mut watch) => {
            for (revision, key, n) in model.history.iter().filter(|(then, key, _)| *then > at && is_meant(key)) {
                let change = soon(&mut watch).await;
                let is_deletion = matches!(change, Change::Deleted { .. });
                assert_eq!((change.revision(), change.key(), is_deletion), (*revision, key, n.is_none()));
            }
            assert_eq!(watch.progress(), model.revision(), "and nothing else");
        }
        Err(HistoryError::Compacted { .. }) => assert!(!in_window, "{at} is not so long ago"),
        Err(error @ HistoryError::Future { .. }) => panic!("{error:?}"),
    }
    let now = store.list(collection, namespace, None).unwrap();
    assert_eq!(names(&now.items), model.at(collection, namespace, model.revision()));
    let future = Revision(model.revision().0 + 1);
    assert!(matches!(store.list(collection, namespace, Some(future)), Err(HistoryError::Future { .. })));
}

async fn live(path: &Path, seed: u64) {
    let mut dice = Dice::seeded(seed);
    let mut model = Model::default();
    let mut store = Store::open_with(path, WINDOW).await.unwrap();
    for _ in 0..STEPS {
        match dice.below(12) {
            0 => {
                drop(store);
                store = Store::open_with(path, WINDOW).await.unwrap();
            }
            1..=3 => look(&mut dice, &store, &model).await,
            _ => write(&mut dice, &store, &mut model).await,
        }
    }
    look(&mut dice, &store, &model).await;
}

#[tokio::test]
async fn store_behaves_like_a_versioned_map() {
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let directory = tempfile::tempdir_in(place).unwrap();
    for seed in 0..testkit::dice::storms() / 4 {
        println!("seed {seed}");
        live(&directory.path().join(format!("store-{seed}")), seed).await;
    }
}
