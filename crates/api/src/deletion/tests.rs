//! Scenarios of api-deletion 20 that the pure decision can tell.
#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;
use crate::{Registry, built_in};

fn pods() -> &'static Kind {
    built_in("", "v1", "pods").unwrap()
}

fn at(clock: &str) -> Timestamp {
    time::parse(&format!("2026-11-15T{clock}Z")).unwrap()
}

/// A bound, running pod with a grace of 30 s.
fn running() -> Value {
    json!({
        "metadata": {"name": "p1", "uid": "u1", "resourceVersion": "235", "generation": 1},
        "spec": {"nodeName": "w1", "terminationGracePeriodSeconds": 30},
        "status": {"phase": "Running"},
    })
}

/// The same, asked to leave at `asked` with a grace of 30 s.
fn terminating(asked: &str) -> Value {
    let DeleteDecision::Mark(pod) = delete(&running(), None, asked) else { panic!("a running pod is marked") };
    pod
}

fn with_finalizer(mut object: Value) -> Value {
    meta::set_finalizers(&mut object, &["x/y".to_owned()]);
    object
}

fn delete(pod: &Value, grace: Option<i64>, now: &str) -> DeleteDecision {
    decide_delete(pods(), pod, &DeleteOptions { grace_seconds: grace, ..DeleteOptions::default() }, at(now)).unwrap()
}

/// `(deletionTimestamp, deletionGracePeriodSeconds, generation)`.
fn marks(pod: &Value) -> (String, i64, i64) {
    let deadline = time::seconds(meta::deletion_timestamp(pod).unwrap());
    (deadline[11..19].to_owned(), meta::deletion_grace_seconds(pod).unwrap(), meta::generation(pod))
}

fn marked(decision: DeleteDecision) -> (String, i64, i64) {
    let DeleteDecision::Mark(pod) = decision else { panic!("expected a mark that stays, not {decision:?}") };
    marks(&pod)
}

fn removed_after(decision: DeleteDecision) -> (String, i64, i64) {
    let DeleteDecision::MarkThenRemove(pod) = decision else {
        panic!("expected a mark, then the removal, not {decision:?}")
    };
    marks(&pod)
}

/// [AD-1] [AD-2] [AD-4]
#[test]
fn the_first_delete_marks_and_the_pod_stays() {
    assert_eq!(marked(delete(&running(), None, "17:58:21.7")), ("17:58:51".to_owned(), 30, 2));
    assert_eq!(marked(delete(&running(), Some(60), "17:58:21")), ("17:59:21".to_owned(), 60, 2));
    assert_eq!(marked(delete(&running(), Some(-5), "17:58:21")), ("17:58:22".to_owned(), 1, 2));
    let mut pending = running();
    pending["status"]["phase"] = json!("Pending");
    assert_eq!(marked(delete(&pending, None, "17:58:21")).1, 30);
}

/// [AD-5] [AD-6] [AD-9]
#[test]
fn delete_without_grace_marks_and_removes_in_one_step() {
    let now = ("17:58:21".to_owned(), 0, 2);
    assert_eq!(removed_after(delete(&running(), Some(0), "17:58:21")), now);
    let mut unscheduled = running();
    unscheduled["spec"].as_object_mut().unwrap().remove("nodeName");
    assert_eq!(removed_after(delete(&unscheduled, Some(45), "17:58:21")), now);
    let mut finished = running();
    finished["status"]["phase"] = json!("Succeeded");
    assert_eq!(removed_after(delete(&finished, Some(45), "17:58:21")), now);
    let mut impatient = running();
    impatient["spec"]["terminationGracePeriodSeconds"] = json!(0);
    assert_eq!(removed_after(delete(&impatient, None, "17:58:21")), now);
}

/// [AD-7]
#[test]
fn a_finished_pod_with_a_finalizer_stays_without_grace() {
    let mut failed = with_finalizer(running());
    failed["status"]["phase"] = json!("Failed");
    assert_eq!(marked(delete(&failed, None, "17:58:21")), ("17:58:21".to_owned(), 0, 2));
}

/// [AD-17]
#[test]
fn orphan_dependents_and_propagation_policy_together_are_refused() {
    let options = DeleteOptions {
        propagation: Some(Propagation::Background),
        orphan_dependents: Some(true),
        ..DeleteOptions::default()
    };
    assert_eq!(decide_delete(pods(), &running(), &options, at("17:58:21")).unwrap_err().code, 422);
}

/// [AD-22]
#[test]
fn a_precondition_that_does_not_hold_is_a_conflict() {
    let asked = |uid: Option<&str>, version: Option<&str>| {
        let options = DeleteOptions {
            grace_seconds: Some(0),
            uid: uid.map(str::to_owned),
            resource_version: version.map(str::to_owned),
            ..DeleteOptions::default()
        };
        decide_delete(pods(), &running(), &options, at("17:58:21"))
    };
    let error = asked(Some("u0"), None).unwrap_err();
    assert_eq!((error.code, error.reason), (409, "Conflict"));
    assert_eq!(
        error.message,
        "Operation cannot be fulfilled on Pod \"p1\": the UID in the precondition (u0) does not match the UID in \
         record (u1). The object might have been deleted and then recreated"
    );
    assert_eq!(error.to_json()["details"], json!({"name": "p1", "kind": "Pod"}));
    let error = asked(None, Some("1")).unwrap_err();
    assert_eq!(
        error.message,
        "Operation cannot be fulfilled on Pod \"p1\": the ResourceVersion in the precondition (1) does not match \
         the ResourceVersion in record (235). The object might have been modified"
    );
    // [AD-21]: the decision is one, so its own first write cannot trip the precondition.
    assert!(matches!(asked(Some("u1"), Some("235")).unwrap(), DeleteDecision::MarkThenRemove(_)));
}

/// [AD-23] [AD-24]
#[test]
fn a_repeated_delete_never_lengthens() {
    let pod = terminating("17:58:21");
    for grace in [None, Some(30), Some(60)] {
        assert_eq!(delete(&pod, grace, "17:58:25"), DeleteDecision::Pending);
    }
}

/// [AD-25]
#[test]
fn a_shorter_grace_counts_from_the_first_request() {
    let pod = terminating("17:58:21");
    assert_eq!(marked(delete(&pod, Some(10), "17:58:24")), ("17:58:31".to_owned(), 10, 2));
    assert_eq!(marked(delete(&pod, Some(10), "17:58:33")), ("17:58:33".to_owned(), 1, 2));
}

/// The observed run of api-deletion 3.2, request by request.
#[test]
fn the_observed_run() {
    let mut pod = terminating("17:58:21.4");
    assert_eq!(marks(&pod), ("17:58:51".to_owned(), 30, 2));
    let mut step = |grace, now: &str| match delete(&pod, grace, now) {
        DeleteDecision::Pending => None,
        DeleteDecision::Mark(next) => {
            pod = next;
            Some(marks(&pod))
        }
        DeleteDecision::MarkThenRemove(last) => Some(marks(&last)),
        DeleteDecision::Remove => panic!("there is grace left"),
    };
    assert_eq!(step(None, "17:58:21.5"), None);
    assert_eq!(step(Some(60), "17:58:21.6"), None);
    assert_eq!(step(Some(10), "17:58:21.7"), Some(("17:58:31".to_owned(), 10, 2)));
    assert_eq!(step(Some(1), "17:58:24.1"), Some(("17:58:24".to_owned(), 1, 2)));
    assert_eq!(step(Some(-5), "17:58:24.2"), None);
    assert_eq!(step(Some(0), "17:58:24.3"), Some(("17:58:24".to_owned(), 0, 2)));
}

/// [AD-27] [AD-74]
#[test]
fn the_final_delete_marks_and_removes_and_keeps_the_deadline_of_a_finished_pod() {
    let pod = terminating("17:58:21");
    assert_eq!(removed_after(delete(&pod, Some(0), "17:58:24")), ("17:58:24".to_owned(), 0, 2));
    let mut finished = pod;
    finished["status"]["phase"] = json!("Failed");
    assert_eq!(removed_after(delete(&finished, Some(0), "17:58:24")), ("17:58:51".to_owned(), 0, 2));
    // A node that was killed after it sends it again; what a finalizer holds does not change by that.
    let DeleteDecision::Mark(held) = delete(&with_finalizer(finished), Some(0), "17:58:24") else { panic!("held") };
    assert_eq!(delete(&held, Some(0), "17:58:30"), DeleteDecision::Pending);
}

#[test]
fn a_policy_on_a_repeated_delete_changes_nothing() {
    let options = DeleteOptions { propagation: Some(Propagation::Foreground), ..DeleteOptions::default() };
    let decision = decide_delete(pods(), &terminating("17:58:21"), &options, at("17:58:25")).unwrap();
    assert_eq!(decision, DeleteDecision::Pending);
}

/// [AD-30]
#[test]
fn half_deleted_pod_is_removed_by_the_next_delete_or_update() {
    let DeleteDecision::MarkThenRemove(left) = delete(&running(), Some(0), "17:58:21") else {
        panic!("grace 0 removes");
    };
    assert_eq!(delete(&left, Some(30), "17:58:40"), DeleteDecision::Remove);
    let mut labelled = left.clone();
    meta::set_label(&mut labelled, "a", "b");
    assert!(update_removes(pods(), &left, &labelled));
}

/// [AD-32]
#[test]
fn a_finalizer_holds_the_pod_until_the_last_one_goes() {
    let pod = with_finalizer(terminating("17:58:21"));
    let DeleteDecision::Mark(held) = delete(&pod, Some(0), "17:58:24") else { panic!("a finalizer holds") };
    assert_eq!(marks(&held), ("17:58:24".to_owned(), 0, 2));
    assert_eq!(delete(&held, Some(0), "17:58:30"), DeleteDecision::Pending);
    let without = |pod: &Value| {
        let mut pod = pod.clone();
        meta::set_finalizers(&mut pod, &[]);
        pod
    };
    assert!(update_removes(pods(), &held, &without(&held)));
    assert!(!update_removes(pods(), &held, &held));
    // While grace is left the node has the last word.
    assert!(!update_removes(pods(), &pod, &without(&pod)));
    assert!(!update_removes(pods(), &running(), &running()));
}

/// [AD-41] [AD-42]
#[test]
fn object_other_than_a_pod_is_removed_at_once_unless_a_finalizer_holds_it() {
    let config_maps = built_in("", "v1", "configmaps").unwrap();
    let object = json!({"metadata": {"name": "c", "uid": "u"}});
    let options = DeleteOptions { grace_seconds: Some(30), ..DeleteOptions::default() };
    let decide = |object: &Value| decide_delete(config_maps, object, &options, at("17:58:21")).unwrap();
    assert_eq!(decide(&object), DeleteDecision::Remove);
    let DeleteDecision::Mark(held) = decide(&with_finalizer(object)) else { panic!("a finalizer holds") };
    assert_eq!(marks(&held), ("17:58:21".to_owned(), 0, 0));
    assert_eq!(decide(&held), DeleteDecision::Pending);
}

/// api-deletion 11.2.
#[test]
fn the_policy_comes_from_the_request_else_from_a_finalizer_else_from_the_kind() {
    let held_by = |kind: &str, own: &[&str], options: &DeleteOptions| {
        let kind = Registry::built_in().kinds().iter().find(|row| row.kind == kind).unwrap();
        let mut object = json!({"metadata": {"name": "o", "uid": "u"}});
        meta::set_finalizers(&mut object, &own.iter().map(|f| (*f).to_owned()).collect::<Vec<_>>());
        match decide_delete(kind, &object, options, at("17:58:21")).unwrap() {
            DeleteDecision::Mark(marked) => meta::finalizers(&marked).join(","),
            DeleteDecision::Remove => String::new(),
            other @ (DeleteDecision::Pending | DeleteDecision::MarkThenRemove(_)) => panic!("{other:?}"),
        }
    };
    let unsaid = DeleteOptions::default();
    let asked = |policy| DeleteOptions { propagation: Some(policy), ..DeleteOptions::default() };
    let old_way = |orphan| DeleteOptions { orphan_dependents: Some(orphan), ..DeleteOptions::default() };
    assert_eq!(held_by("Deployment", &[], &unsaid), "");
    assert_eq!(held_by("Job", &[], &unsaid), "orphan");
    assert_eq!(held_by("ReplicationController", &[], &unsaid), "orphan");
    assert_eq!(held_by("Job", &[], &asked(Propagation::Background)), "");
    assert_eq!(held_by("Job", &[], &old_way(false)), "");
    assert_eq!(held_by("Deployment", &[], &old_way(true)), "orphan");
    assert_eq!(held_by("Deployment", &[], &asked(Propagation::Foreground)), "foregroundDeletion");
    assert_eq!(held_by("Deployment", &["foregroundDeletion"], &unsaid), "foregroundDeletion");
    assert_eq!(held_by("Deployment", &["x.io/y", "foregroundDeletion"], &asked(Propagation::Orphan)), "x.io/y,orphan");
    assert_eq!(held_by("Deployment", &["orphan"], &asked(Propagation::Background)), "");
    assert_eq!(held_by("Event", &[], &asked(Propagation::Foreground)), "", "events have no dependents");
}

#[test]
fn a_bare_pod_waits_for_the_collector_too() {
    let foreground = DeleteOptions {
        grace_seconds: Some(0),
        propagation: Some(Propagation::Foreground),
        ..DeleteOptions::default()
    };
    let DeleteDecision::Mark(held) = decide_delete(pods(), &running(), &foreground, at("17:58:21")).unwrap() else {
        panic!("the finalizer holds");
    };
    assert_eq!(meta::finalizers(&held), ["foregroundDeletion"]);
    // The node's last word names no policy and keeps the one that was asked for.
    assert_eq!(delete(&held, Some(0), "17:58:22"), DeleteDecision::Pending);
}

/// [AD-72]
#[test]
fn system_namespaces_cannot_be_deleted() {
    let namespaces = built_in("", "v1", "namespaces").unwrap();
    for name in ["default", "kube-system", "kube-public"] {
        let object = json!({"metadata": {"name": name}});
        let error = decide_delete(namespaces, &object, &DeleteOptions::default(), at("17:58:21")).unwrap_err();
        assert_eq!(error.code, 403);
        assert_eq!(error.message, format!("namespaces {name:?} is forbidden: this namespace may not be deleted"));
    }
}

/// [AD-73]
#[test]
fn a_namespace_terminates_until_its_finalizers_are_gone() {
    let namespaces = built_in("", "v1", "namespaces").unwrap();
    let decide = |object: &Value| decide_delete(namespaces, object, &DeleteOptions::default(), at("17:58:21")).unwrap();
    let object = json!({
        "metadata": {"name": "n"}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
    });
    let DeleteDecision::Mark(leaving) = decide(&object) else { panic!("a namespace is marked first") };
    assert_eq!(leaving["status"]["phase"], "Terminating");
    assert!(meta::deletion_timestamp(&leaving).is_some() && meta::deletion_grace_seconds(&leaving).is_none());
    assert_eq!(decide(&leaving), DeleteDecision::Pending);
    let mut finalized = leaving.clone();
    finalized["spec"] = json!({});
    assert!(update_removes(namespaces, &leaving, &finalized));
    assert!(!update_removes(namespaces, &leaving, &leaving));
    assert_eq!(decide(&finalized), DeleteDecision::Remove);
}
