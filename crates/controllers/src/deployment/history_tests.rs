//! What sets are told, and which are forgotten.
#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::super::fixtures::{Set, deployment, family, set, views};
use super::*;

fn change(deployment: &DeploymentView, sets: &[Set], name: &str) -> BTreeMap<String, Option<String>> {
    let views = views(sets);
    let family = family(deployment, &views);
    let set = family.all().find(|set| set.name() == name).unwrap();
    handed_down(&family, set).annotations
}

fn revised(name: &'static str, revision: i64, history: Option<&str>) -> Set {
    let mut set = set(name, 0, 0);
    set.revision = revision;
    set.extra = json!({ "metadata": { "annotations": { REVISION_HISTORY: history } } });
    set
}

/// [WL-28] [WL-33]
#[test]
fn revision_of_the_new_set_is_above_all_others() {
    let web = deployment(3, &json!({}));
    let next = |sets: &[Set]| change(&web, sets, "new");
    let annotation = |text: &str| Some(text.to_owned());
    assert!(next(&[revised("old", 1, None), revised("new", 2, None)]).is_empty());
    let back = next(&[revised("old", 2, None), revised("new", 1, None)]);
    assert_eq!((&back[REVISION], &back[REVISION_HISTORY]), (&annotation("3"), &annotation("1")));
    let again = next(&[revised("old", 9, None), revised("new", 3, Some("1"))]);
    assert_eq!(again[REVISION_HISTORY], annotation("1,3"));
    let large = next(&[revised("old", 3_546_343_826_724_305_832, None), revised("new", 1, None)]);
    assert_eq!(large[REVISION], annotation("3546343826724305833"), "no float");
    let largest = next(&[revised("old", i64::MAX, None), revised("new", 1, None)]);
    assert_eq!(largest[REVISION], Some(i64::MAX.to_string()), "no overflow");
    let long: Vec<String> = (1000..1400).map(|revision| revision.to_string()).collect();
    let cut = next(&[revised("old", 5000, None), revised("new", 4000, Some(&long.join(",")))]);
    let history = cut[REVISION_HISTORY].clone().unwrap();
    assert!(history.len() <= HISTORY_MAX && history.ends_with(",1399,4000"), "{history}");
    let mut odd = set("new", 0, 0);
    odd.extra = json!({ "metadata": { "annotations": { REVISION: "seven" } } });
    assert!(next(&[odd]).is_empty(), "what somebody wrote stays");
}

/// [WL-31] [WL-49]
#[test]
fn new_set_gets_the_annotations_of_its_deployment_and_keeps_its_own() {
    let annotations = json!({ "kubernetes.io/change-cause": "why", "a": "b", REVISION: "9", DESIRED_REPLICAS: "9",
        ROLLBACK_TO: "9", "adieu.dev/max-terminating": "2" });
    let extra = json!({ "metadata": { "annotations": annotations }, "spec": { "minReadySeconds": 7 } });
    let web = deployment(3, &extra);
    let mut braked = set("old", 1, 1);
    braked.extra =
        json!({ "metadata": { "annotations": { "adieu.dev/pod-replacement-policy": "TerminationComplete" } } });
    let mut new = revised("new", 2, None);
    new.extra = json!({ "metadata": { "annotations": { "stays": "x" } } });
    let views = views(&[set("gone", 0, 0), braked, new]);
    let family = family(&web, &views);
    let of = |name: &str| handed_down(&family, family.all().find(|set| set.name() == name).unwrap());
    let text = |text: &str| Some(text.to_owned());
    let told = of("new");
    let expected =
        [("a", text("b")), ("adieu.dev/max-terminating", text("2")), ("kubernetes.io/change-cause", text("why"))];
    assert_eq!(told.annotations, expected.map(|(key, value)| (key.to_owned(), value)).into());
    assert_eq!(told.min_ready_seconds, Some(7));
    // Brakes hold for old sets as well, and are let go where the Deployment has none.
    let expected = [("adieu.dev/max-terminating", text("2")), ("adieu.dev/pod-replacement-policy", None)];
    assert_eq!(of("old").annotations, expected.map(|(key, value)| (key.to_owned(), value)).into());
    assert!(of("gone").is_nothing());
}

/// [WL-27]
#[test]
fn new_set_has_the_hash_in_its_name_labels_and_selector() {
    let expressions = json!([{ "key": "tier", "operator": "DoesNotExist" }]);
    let web = deployment(10, &json!({ "spec": { "selector": { "matchExpressions": expressions } } }));
    let views = views(&[revised("old", 4, None)]);
    let (name, set) = new_set(&family(&web, &views), 3);
    let hash = name.strip_prefix("web-").unwrap();
    let labels = json!({ "app": "web", POD_TEMPLATE_HASH: hash });
    assert_eq!(set["metadata"]["labels"], labels);
    assert_eq!(set["spec"]["template"]["metadata"]["labels"], labels);
    assert_eq!(set["spec"]["selector"], json!({ "matchLabels": labels, "matchExpressions": expressions }));
    let annotations = json!({ REVISION: "5", DESIRED_REPLICAS: "10", MAX_REPLICAS: "13" });
    assert_eq!(set["metadata"]["annotations"], annotations);
    assert_eq!((&set["spec"]["replicas"], &set["metadata"]["ownerReferences"][0]["uid"]), (&json!(3), &json!("d")));
    let collided = deployment(10, &json!({ "status": { "collisionCount": 1 } }));
    assert_ne!(new_set(&family(&collided, &views), 3).0, name);
}

fn forgotten_names(limit: Value, sets: &[Set]) -> Vec<String> {
    let web = deployment(3, &json!({ "spec": { "revisionHistoryLimit": limit } }));
    let views = views(sets);
    forgotten(&family(&web, &views)).iter().map(|set| set.name().to_owned()).collect()
}

/// [WL-47] [WL-48] [TR-85]
#[test]
fn history_forgets_the_oldest_revisions_that_have_no_pods() {
    let mut sets = [revised("c", 3, None), revised("a", 1, None), revised("b", 2, None), set("new", 3, 3)];
    assert_eq!(forgotten_names(json!(1), &sets), ["a", "b"]);
    assert_eq!(forgotten_names(json!(0), &sets), ["a", "b", "c"]);
    assert!(forgotten_names(json!(3), &sets).is_empty());
    assert!(forgotten_names(json!(i32::MAX), &sets).is_empty());
    assert!(forgotten_names(Value::Null, &sets).is_empty());
    sets[1].spec = 1;
    assert_eq!(forgotten_names(json!(1), &sets), ["b"], "nobody goes in place of one that cannot");
    sets[2].terminating = Some(1);
    assert!(forgotten_names(json!(1), &sets).is_empty(), "its pods have not ended");
    sets[2].terminating = Some(0);
    sets[2].unheard = 1;
    assert!(forgotten_names(json!(1), &sets).is_empty());
    sets[2].unheard = 0;
    sets[2].extra = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
    assert!(forgotten_names(json!(1), &sets).is_empty(), "it goes already, and no longer counts");
}

/// [WL-34] [WL-35]
#[test]
fn rollback_that_an_old_client_asks_for_finds_its_revision() {
    let asked = |to: &str, sets: &[Set]| {
        let annotations = json!({ ROLLBACK_TO: to, REVISION: "3" });
        let web = deployment(3, &json!({ "metadata": { "annotations": annotations } }));
        let views = views(sets);
        rollback(&family(&web, &views))
    };
    let mut one = revised("one", 1, None);
    one.extra = json!({ "metadata": { "annotations": { "kubernetes.io/change-cause": "first" } },
        "spec": { "template": { "metadata": { "labels": { POD_TEMPLATE_HASH: "x" } } } } });
    let sets = [one, revised("two", 2, None), revised("new", 3, None)];
    for (to, revision, image) in [("1", 1, "one"), ("0", 2, "two")] {
        let Some(Rollback::To { revision: found, template, annotations }) = asked(to, &sets) else { panic!("{to}") };
        assert_eq!((found, &template["spec"]["containers"][0]["image"]), (revision, &json!(image)));
        assert_eq!(template["metadata"]["labels"], json!({ "app": "web" }), "without the hash");
        assert_eq!(annotations[REVISION], "3", "the Deployment keeps its own");
        assert_eq!(annotations.contains_key("kubernetes.io/change-cause"), revision == 1);
    }
    assert_eq!(asked("3", &sets), Some(Rollback::Unchanged));
    assert_eq!(asked("8", &sets), Some(Rollback::NotFound(8)));
    assert_eq!(asked("0", &sets[2..]), Some(Rollback::NotFound(0)));
    assert_eq!(asked("-1", &sets), Some(Rollback::NotFound(-1)));
    assert_eq!(asked("soon", &sets), None);
}
