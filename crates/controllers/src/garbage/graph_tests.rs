//! Small families of things.

use kube::core::ApiResource;

use super::*;
use crate::garbage::resources::Resource;

fn resource(kind: &str) -> ResourceId {
    let api = ApiResource {
        group: String::new(),
        version: "v1".into(),
        api_version: "v1".into(),
        kind: kind.into(),
        plural: kind.to_lowercase(),
    };
    ResourceId(Arc::new(Resource { api, namespaced: true }))
}

/// A thing called like its UID, with owners given as `uid` or `uid!` (it blocks them).
fn thing(uid: &str, owners: &[&str], leaving: Leaving) -> Thing {
    let owner = |word: &&str| {
        let name = word.trim_end_matches('!');
        Owner {
            group: String::new(),
            version: "v1".into(),
            kind: "Kind".into(),
            name: name.into(),
            uid: name.into(),
            blocks: word.ends_with('!'),
        }
    };
    Thing {
        resource: resource("Kind"),
        namespace: "ns".into(),
        name: uid.into(),
        uid: uid.into(),
        owners: owners.iter().map(owner).collect(),
        leaving,
    }
}

fn set(words: &[&str]) -> BTreeSet<Uid> {
    words.iter().map(|word| Uid::from(*word)).collect()
}

fn standings(need: Need) -> Vec<Standing> {
    let Need::Judging { owners, .. } = need else { panic!("{need:?}") };
    owners.into_iter().map(|(_, standing)| standing).collect()
}

#[test]
fn dependents_are_looked_at_when_their_owner_goes_and_owners_when_a_blocker_goes() {
    let mut graph = Graph::default();
    graph.put(thing("owner", &[], Leaving::No));
    assert_eq!(graph.put(thing("a", &["owner!"], Leaving::No)), set(&["a"]));
    assert_eq!(graph.put(thing("b", &["owner"], Leaving::No)), set(&["b"]));
    assert_eq!(graph.need("a"), Need::Nothing);
    // Leaving in the foreground: everyone is looked at, and only the blocker holds it.
    let look = graph.put(thing("owner", &[], Leaving::AfterDependents));
    assert_eq!(look, set(&["owner", "a", "b"]));
    assert_eq!(graph.need("owner"), Need::Nothing);
    assert_eq!(standings(graph.need("a")), [Standing::Waiting]);
    assert_eq!(graph.remove("a"), set(&["owner"]));
    assert_eq!(graph.need("owner"), Need::LettingGo { circle: set(&["owner"]) });
    assert_eq!(graph.remove("owner"), set(&["b"]));
    assert_eq!(standings(graph.need("b")), [Standing::Unknown]);
}

#[test]
fn a_list_forgets_what_it_does_not_hold() {
    let mut graph = Graph::default();
    graph.put(thing("owner", &[], Leaving::No));
    graph.put(thing("a", &["owner"], Leaving::No));
    let look = graph.replace(resource("Kind"), vec![thing("a", &["owner"], Leaving::No)]);
    assert!(look.contains("a") && graph.get("owner").is_none());
    assert_eq!(standings(graph.need("a")), [Standing::Unknown]);
}

#[test]
fn an_owner_is_where_the_reference_says_or_it_is_not_taken_for_granted() {
    let mut graph = Graph::default();
    let mut far = thing("far", &[], Leaving::No);
    far.namespace = "other".into();
    graph.put(far);
    let mut renamed = thing("renamed", &[], Leaving::No);
    renamed.name = "something-else".into();
    graph.put(renamed);
    let mut cluster = thing("cluster", &[], Leaving::No);
    cluster.namespace = "".into();
    graph.put(cluster);
    graph.put(thing("a", &["far", "renamed", "cluster"], Leaving::No));
    assert_eq!(standings(graph.need("a")), [Standing::Elsewhere, Standing::Unknown, Standing::Solid]);
}

#[test]
fn dependent_in_another_namespace_does_not_hold_its_owner() {
    let mut graph = Graph::default();
    graph.put(thing("owner", &[], Leaving::AfterDependents));
    let mut far = thing("far", &["owner!"], Leaving::No);
    far.namespace = "other".into();
    graph.put(far);
    assert_eq!(graph.need("owner"), Need::LettingGo { circle: set(&["owner"]) });
    let mut node = thing("node", &[], Leaving::AfterDependents);
    node.namespace = "".into();
    graph.put(node);
    graph.put(thing("near", &["node!"], Leaving::No));
    assert_eq!(graph.need("node"), Need::Nothing, "who is in no namespace owns in any");
}

#[test]
fn owner_cycle_is_collected_when_nothing_else_holds_it() {
    let mut graph = Graph::default();
    for (uid, owner) in [("a", "c!"), ("b", "a!"), ("c", "b!")] {
        graph.put(thing(uid, &[owner], Leaving::AfterDependents));
    }
    graph.put(thing("pod", &["b!"], Leaving::No));
    for uid in ["a", "b", "c"] {
        assert_eq!(graph.need(uid), Need::Nothing, "{uid} waits for the pod");
    }
    assert_eq!(graph.remove("pod"), set(&["a", "b", "c"]));
    for uid in ["a", "b", "c"] {
        assert_eq!(graph.need(uid), Need::LettingGo { circle: set(&["a", "b", "c"]) }, "{uid}");
    }
}

#[test]
fn a_thing_that_leaves_by_itself_is_left_to_it() {
    let mut graph = Graph::default();
    graph.put(thing("a", &["gone"], Leaving::ByItself));
    assert_eq!(graph.need("a"), Need::Nothing);
    graph.put(thing("a", &["gone"], Leaving::AfterOrphaning));
    assert_eq!(graph.need("a"), Need::Orphaning);
}

/// For any order of facts: whatever needs something was woken, and a start from a list finds the same needs.
#[test]
fn graph_wakes_everything_that_needs_something_and_a_restart_finds_the_same() {
    use crate::woken::{Dice, Watched};

    const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    let object = |name: &str, dice: &mut Dice| -> kube::api::PartialObjectMeta<DynamicObject> {
        let owners: Vec<_> = (0..dice.roll(3))
            .map(|_| {
                let owner = dice.pick(&NAMES);
                serde_json::json!({ "apiVersion": "v1", "kind": "Kind", "name": owner, "uid": owner,
                    "blockOwnerDeletion": dice.flip() })
            })
            .collect();
        let mut metadata =
            serde_json::json!({ "name": name, "namespace": "ns", "uid": name, "ownerReferences": owners });
        if dice.roll(3) == 0 {
            metadata["deletionTimestamp"] = serde_json::json!("2026-01-01T00:00:00Z");
            metadata["finalizers"] = serde_json::json!([dice.pick(&["foregroundDeletion", "orphan", "other"])]);
        }
        serde_json::from_value(serde_json::json!({ "metadata": metadata })).expect("an object")
    };
    let mut needy = 0;
    for seed in 1..=300 {
        let (mut dice, mut watched) = (Dice::new(seed), Watched::new(Graph::default()));
        let mut stored = BTreeMap::new();
        for _ in 0..40 {
            let name = dice.pick(&NAMES);
            let sight = match (dice.roll(3), stored.remove(name)) {
                (0, Some(old)) => WatchUpdate::Removed(old),
                _ => {
                    let object = object(name, &mut dice);
                    stored.insert(name, object.clone());
                    WatchUpdate::Changed(object)
                }
            };
            watched.tell((resource("Kind"), sight), NAMES.map(Uid::from), seed);
        }
        needy += watched.pending();
        let mut fresh = Graph::default();
        fresh.observe(watched.now, (resource("Kind"), WatchUpdate::Listed(stored.into_values().collect())));
        for name in NAMES {
            assert_eq!(fresh.need(name), watched.controller.need(name), "seed {seed}: {name}");
        }
    }
    assert!(needy > 100, "the dice never asked for anything: {needy}");
}
