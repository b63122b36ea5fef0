//! What holds for every sequence of writes by people who may write roles and bindings, and hold some rights: whatever is let
//! through, nobody comes to have what its writer did not have, neither at once, nor when the gathered rules are written down, nor
//! after the next start. `STORMS` says how many sequences; a failure names its seed.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use api::rbac::{RequestedAccess, grants};
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use serde_json::{Value, json};
use store::Store;
use testkit::Dice;
use testkit::dice::storms;
use tower::ServiceExt as _;

use super::{GROUP, aggregate, bootstrap, judge, rules_of};
use crate::identity::Identity;
use crate::service::ApiService;
use crate::state::State;

/// Writes of one sequence, after those of an administrator who sets the stage.
const WRITES: usize = 15;
const USERS: [&str; 4] = ["ann", "ben", "cat", "dan"];
const NAMESPACES: [&str; 2] = ["default", "kube-public"];
const ROLES: [&str; 7] = ["one", "two", "whole", "edit", "view", "cluster-admin", "system:monitoring"];
const LABELS: [&str; 3] =
    ["rbac.authorization.k8s.io/aggregate-to-edit", "rbac.authorization.k8s.io/aggregate-to-view", "part-of"];

#[tokio::test]
async fn writes_that_are_allowed_give_nobody_more_than_their_writer_has() {
    for seed in 0..storms().div_ceil(6) {
        let mut tried = Tried::default();
        sequence(&mut Dice::seeded(seed), seed, &mut tried).await;
    }
}

/// The storm is one in which something happens: of the writes of its first sequences some are allowed and some refused.
#[tokio::test]
async fn sequences_of_writes_have_allowed_and_refused_ones() {
    let mut tried = Tried::default();
    for seed in 0..3 {
        sequence(&mut Dice::seeded(seed), seed, &mut tried).await;
    }
    assert!(tried.allowed >= 3 && tried.refused >= 3, "{} allowed, {} refused", tried.allowed, tried.refused);
}

#[derive(Default)]
struct Tried {
    allowed: usize,
    refused: usize,
}

async fn sequence(dice: &mut Dice, seed: u64, tried: &mut Tried) {
    let dir = tempfile::tempdir().unwrap();
    let state = Arc::new(State::new(
        crate::ServerConfig {
            store: Store::open(&dir.path().join("store")).await.unwrap(),
            advertise: ([127, 0, 0, 1], 6443).into(),
            version: String::new(),
            nodes: Arc::new(crate::NoNodes),
            service_range: crate::ServiceRange::default(),
            token_key: crate::TokenKey::fresh(),
        },
        frame::Clock::system(),
    ));
    crate::bootstrap::run(&state).await.unwrap();
    stage(&state, dice).await;
    let mut before = settled(&state).await;
    for step in 0..WRITES {
        let writer = dice.pick(&USERS);
        let identity = Identity::new(writer, &[]);
        let exceeds = may_exceed(&state, &identity);
        let (method, path, body) = write(dice);
        let code = send(&state, &identity, &method, &path, &body).await;
        assert!(code < 500, "seed {seed}, step {step}: {method} {path} {body}: {code}");
        let after = settled(&state).await;
        if code >= 300 {
            tried.refused += usize::from(code == 403);
            assert_eq!(before, after, "seed {seed}, step {step}: a refused write changed something");
            continue;
        }
        tried.allowed += 1;
        let held = USERS.iter().position(|user| *user == writer).unwrap();
        for (user, name) in USERS.iter().enumerate().filter(|_| !exceeds) {
            for (right, what) in asks().iter().enumerate() {
                let gained = after[user][right] && !before[user][right] && !before[held][right];
                assert!(
                    !gained,
                    "seed {seed}, step {step}: {name} gains {what:?} by {writer}'s {method} {path} {body}"
                );
            }
        }
        before = after;
    }
}

/// Everybody writes roles and bindings, each has a little more, and one role gathers.
async fn stage(state: &Arc<State>, dice: &mut Dice) {
    let admin = Identity::admin();
    let writes = json!({ "verbs": ["create", "update", "patch", "delete"], "apiGroups": [GROUP],
        "resources": ["roles", "rolebindings", "clusterroles", "clusterrolebindings"] });
    for user in USERS {
        let mut rules = vec![writes.clone()];
        rules.extend((0..dice.below(3)).map(|_| rule(dice)));
        let role = json!({ "metadata": { "name": user }, "rules": rules });
        send(state, &admin, &Method::POST, &cluster("clusterroles"), &role).await;
        let mut bound = binding(dice, user);
        bound["metadata"]["name"] = json!(user);
        bound["subjects"] = json!([{ "kind": "User", "name": user }]);
        send(state, &admin, &Method::POST, &cluster("clusterrolebindings"), &bound).await;
    }
    let whole = json!({ "metadata": { "name": "whole" },
        "aggregationRule": { "clusterRoleSelectors": [{ "matchLabels": { "part-of": "true" } }] } });
    send(state, &admin, &Method::POST, &cluster("clusterroles"), &whole).await;
    for (index, role) in ["one", "two"].into_iter().enumerate() {
        let made = json!({ "metadata": { "name": role }, "rules": [rule(dice)] });
        send(state, &admin, &Method::POST, &cluster("clusterroles"), &made).await;
        let bound_to = dice.pick(&ROLES);
        let mut bound = binding(dice, bound_to);
        bound["metadata"]["name"] = json!(format!("staged-{index}"));
        send(state, &admin, &Method::POST, &cluster("clusterrolebindings"), &bound).await;
    }
    let mut editor = binding(dice, "edit");
    editor["metadata"]["name"] = json!("editor");
    send(state, &admin, &Method::POST, &local("rolebindings", "default"), &editor).await;
}

fn cluster(plural: &str) -> String {
    format!("/apis/{GROUP}/v1/{plural}")
}

fn local(plural: &str, namespace: &str) -> String {
    format!("/apis/{GROUP}/v1/namespaces/{namespace}/{plural}")
}

fn rule(dice: &mut Dice) -> Value {
    match dice.below(8) {
        0 => json!({ "verbs": ["get"], "nonResourceURLs": [dice.pick(&["/metrics", "/metrics/*", "*"])] }),
        1 => json!({ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }),
        2 => {
            json!({ "verbs": [dice.pick(&["bind", "escalate"])], "apiGroups": [GROUP], "resources": ["clusterroles"] })
        }
        _ => {
            let mut rule = json!({ "verbs": [dice.pick(&["get", "delete", "*"])], "apiGroups": [dice.pick(&["", "*"])],
                "resources": [dice.pick(&["pods", "secrets", "pods/exec", "*/exec"])] });
            if dice.once_in(3) {
                rule["resourceNames"] = json!(["a"]);
            }
            rule
        }
    }
}

fn binding(dice: &mut Dice, role: &str) -> Value {
    json!({ "metadata": { "name": dice.pick(&["b1", "b2", "b3", "b4", "b5", "b6"]) },
        "subjects": [{ "kind": "User", "name": dice.pick(&USERS) }],
        "roleRef": { "kind": "ClusterRole", "name": role } })
}

/// A random write: a role or a binding made, changed, labelled, annotated, emptied or deleted.
fn write(dice: &mut Dice) -> (Method, String, Value) {
    let name = dice.pick(&ROLES);
    let role = format!("{}/{name}", cluster("clusterroles"));
    match dice.below(13) {
        0 => (Method::POST, cluster("clusterroles"), json!({ "metadata": { "name": name }, "rules": [rule(dice)] })),
        1 => (Method::PUT, role, json!({ "metadata": { "name": name }, "rules": [rule(dice)] })),
        2 | 9 | 10 => {
            let label = dice.pick(&LABELS);
            (
                Method::PATCH,
                role,
                json!({ "metadata": { "labels": { label: dice.pick(&[json!("true"), json!(null)]) } } }),
            )
        }
        3 | 11 => {
            let rules = if dice.once_in(2) { json!([]) } else { json!([rule(dice)]) };
            let mut change = json!({ "rules": rules });
            if dice.once_in(2) {
                let kept = dice.pick(&["true", "false"]);
                change["metadata"] = json!({ "annotations": { "rbac.authorization.kubernetes.io/autoupdate": kept },
                    "labels": { dice.pick(&LABELS): "true" } });
            }
            (Method::PATCH, role, change)
        }
        4 => {
            let selectors = json!([{ "matchLabels": { dice.pick(&LABELS): "true" } }]);
            let gathering = json!({ "clusterRoleSelectors": selectors });
            (Method::PATCH, role, json!({ "aggregationRule": dice.pick(&[gathering, json!(null)]) }))
        }
        5 => (Method::DELETE, role, json!({})),
        6 | 12 => (Method::POST, cluster("clusterrolebindings"), binding(dice, name)),
        7 => (Method::POST, local("rolebindings", dice.pick(&NAMESPACES)), binding(dice, name)),
        _ => {
            let path = format!("{}/{}", cluster("clusterrolebindings"), dice.pick(&["b1", "b2", "staged-0", "ann"]));
            let subject = json!({ "kind": "User", "name": dice.pick(&USERS), "apiGroup": GROUP });
            (Method::PATCH, path, json!({ "subjects": [subject] }))
        }
    }
}

async fn send(state: &Arc<State>, identity: &Identity, method: &Method, path: &str, body: &Value) -> u16 {
    let media = if *method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("content-type", media);
    let request = request.body(Full::new(Bytes::from(body.to_string()))).unwrap();
    let service = ApiService { state: Arc::clone(state), identity: Some(identity.clone()) };
    service.oneshot(request).await.unwrap().status().as_u16()
}

/// Everything that anybody could do, once all that follows from what is stored has come about. Which right is whose.
async fn settled(state: &State) -> Vec<Vec<bool>> {
    bootstrap(state).await.unwrap();
    // Twice: what a role gathers may be gathered by another.
    aggregate::gather(state).await.unwrap();
    aggregate::gather(state).await.unwrap();
    USERS.iter().map(|user| rights(state, user)).collect()
}

/// Which of the rights that are looked at `user` has.
fn rights(state: &State, user: &str) -> Vec<bool> {
    let identity = Identity::new(user, &[]);
    let places = PLACES.map(|place| rules_of(state, &identity, place));
    let has = |asked: &Ask| {
        let place = PLACES.iter().position(|place| *place == asked.place).unwrap();
        places[place].iter().any(|rule| grants(rule, asked.verb, asked.what))
    };
    asks().iter().map(has).collect()
}

/// The whole cluster, and namespaces.
const PLACES: [&str; 3] = ["", NAMESPACES[0], NAMESPACES[1]];

#[derive(Debug)]
struct Ask {
    verb: &'static str,
    what: RequestedAccess<'static>,
    place: &'static str,
}

/// The rights that are looked at.
fn asks() -> Vec<Ask> {
    let paths = ["/metrics", "/metrics/slis", "/debug"];
    let mut all = Vec::from(paths.map(|path| Ask { verb: "get", what: RequestedAccess::Path(path), place: "" }));
    let core = [("pods", ""), ("pods", "exec"), ("secrets", "")];
    let others = [("apps", "deployments", ""), (GROUP, "clusterroles", "")];
    for (group, resource, subresource) in core.map(|(resource, part)| ("", resource, part)).into_iter().chain(others) {
        for verb in ["get", "delete", "impersonate", "bind", "escalate"] {
            for (place, name) in PLACES.into_iter().flat_map(|place| ["", "a", "b"].map(|name| (place, name))) {
                all.push(Ask { verb, what: RequestedAccess::Resource { group, resource, subresource, name }, place });
            }
        }
    }
    all
}

/// Whether `identity` may give more than it has.
fn may_exceed(state: &State, identity: &Identity) -> bool {
    let may = |verb, place, name| {
        let asked = RequestedAccess::Resource { group: GROUP, resource: "clusterroles", subresource: "", name };
        judge(state, identity, verb, asked, place).allowed.is_some()
    };
    PLACES.iter().any(|place| ROLES.iter().any(|name| may("bind", place, name) || may("escalate", place, name)))
}
