//! POST to a collection.

use std::sync::Arc;

use api::{Kind, Status, bounds};
use http::{Response, StatusCode};
use serde_json::Value;
use store::{Expect, Key, Object, Step, TransactError};

use crate::body::Body;
use crate::change::after;
use crate::policies::{self, Arrival};
use crate::request::{Request, key};
use crate::respond::{self, Shown};
use crate::state::{State, core_kind, write_failure};
use crate::tickets::Held;
use crate::{account_secrets, admission, certificates, delete, node_rules, random, rbac, update};

/// How often a generated name may turn out to be taken, or the namespace to change in between.
const TRIES: usize = 8;

/// What a create needs to know besides the object.
pub(crate) struct Creation<'a> {
    pub(crate) kind: &'a Arc<Kind>,
    pub(crate) namespace: &'a str,
    /// Recorded as the owner of all fields; `None` when the object brings its managed fields along (apply).
    pub(crate) manager: Option<&'a str>,
    pub(crate) dry_run: bool,
    /// Whether the server makes it for itself: what every namespace needs is not a matter of quotas.
    pub(crate) is_own: bool,
}

/// What is worth a word besides the answer goes to `warnings`, whether the request is refused or not.
pub(crate) async fn handle(
    state: &State,
    request: &Request,
    warnings: &mut Vec<String>,
) -> Result<Response<Body>, Status> {
    let kind = &request.kind;
    let dry_run = request.dry_run()?;
    request.accept.for_objects()?;
    let decoded =
        api::decode_object(kind, request.content_type.as_deref(), &request.body, request.field_validation()?)?;
    warnings.extend(decoded.warnings);
    api::check_sent(kind, &decoded.value)?;
    let (kind, mut value) = (kind.stored_kind(), kind.to_stored(decoded.value));
    rbac::check_grant(state, request, None, &value)?;
    node_rules::check_create(state, &request.identity, kind, &value)?;
    certificates::admit_create(request, kind, &mut value)?;
    let mut manager = Some(request.field_manager());
    if request.kind.face.is_some() {
        update::track(request, None, &mut value);
        manager = None;
    }
    let creation = Creation { kind, namespace: &request.namespace, manager, dry_run, is_own: false };
    let shown = create(state, &creation, value, warnings).await?;
    respond::object(request, StatusCode::CREATED, &shown)
}

/// Makes `value` an object of its own: defaults, identity, validation, store.
pub(crate) async fn create(
    state: &State,
    creation: &Creation<'_>,
    value: Value,
    warnings: &mut Vec<String>,
) -> Result<Shown, Status> {
    let kind = creation.kind;
    let generated = api::meta::name(&value).is_empty() && !api::meta::generate_name(&value).is_empty();
    let mut taken = String::new();
    let mut held = Held::of(state, kind, creation.namespace, None, true).await;
    let mut tries = 0;
    while tries < TRIES {
        let tickets = if creation.dry_run { Vec::new() } else { held.expects(state).await? };
        let takes = check_namespace_takes(state, kind, creation.namespace, api::meta::name(&value))?;
        let mut object = value.clone();
        let now = state.now();
        // A writer owns what it sent. What the server adds belongs to nobody, so that a later apply without it does
        // not take it away.
        if let Some(manager) = creation.manager {
            api::track_update(kind, None, &mut object, manager, kind.api_version(), None, now);
        }
        admission::before_create(state, kind, creation.namespace, &mut object)?;
        let ranges = policies::fill(state, kind, creation.namespace, &mut object);
        warnings.extend(api::prepare_create(
            kind,
            &mut object,
            creation.namespace,
            now,
            random::uid(),
            random::suffix,
        )?);
        admission::allocate(state, kind, &mut object, None)?;
        admission::taint(state, kind, None, &mut object);
        account_secrets::admit(state, kind, &object)?;
        let (namespace, ranges) = (creation.namespace, ranges.as_ref());
        let arrival = Arrival { kind, namespace, subresource: None, old: None, new: &object, ranges };
        let _held = if creation.is_own { None } else { policies::admit(state, &arrival, warnings)? };
        if creation.dry_run {
            return dry_run(state, creation, object);
        }
        match store_new(state, creation, object, takes.into_iter().chain(tickets)).await? {
            Stored::Now(object) => return Ok(Shown::Stored(object)),
            Stored::Before(existing) if generated => taken = existing.key.name.to_string(),
            Stored::Before(existing) => {
                let leaving = api::meta::deletion_timestamp(&existing.value()).is_some();
                return Err(Status::already_exists(kind, &existing.key.name, leaving));
            }
            Stored::OtherChanged(key) if held.was_moved(&key) => continue,
            Stored::OtherChanged(_) => {}
        }
        tries += 1;
    }
    if taken.is_empty() {
        return Err(Status::conflict_modified(core_kind("namespaces"), creation.namespace));
    }
    Err(Status::no_free_name(kind, &taken))
}

fn dry_run(state: &State, creation: &Creation<'_>, object: Value) -> Result<Shown, Status> {
    let name = api::meta::name(&object);
    match state.store.get(&key(creation.kind, creation.namespace, name)) {
        None => bounds::check(creation.kind, name, &object).map(|()| Shown::made(object)),
        Some(existing) => {
            let leaving = api::meta::deletion_timestamp(&existing.value()).is_some();
            Err(Status::already_exists(creation.kind, name, leaving))
        }
    }
}

/// What became of a prepared object.
enum Stored {
    Now(Arc<Object>),
    /// This one has the name already.
    Before(Arc<Object>),
    /// This is not what it was when it was asked: the namespace, whether it takes new content, or a ticket.
    OtherChanged(Key),
}

/// Stores a prepared object, in the same breath as the namespace still `takes` it, and as the tickets are still held:
/// nothing can be left behind in a namespace that went, or began to go, meanwhile.
async fn store_new(
    state: &State,
    creation: &Creation<'_>,
    object: Value,
    takes: impl IntoIterator<Item = (Key, Expect)>,
) -> Result<Stored, Status> {
    let key = key(creation.kind, creation.namespace, api::meta::name(&object));
    let mut expects = vec![(key.clone(), Expect::Absent)];
    expects.extend(takes);
    match state.store.transact(expects, vec![Step::Put { key, value: object }]).await {
        Ok(changes) => match changes.last().and_then(after) {
            Some(stored) => Ok(Stored::Now(stored)),
            None => Err(Status::internal("a new object changed nothing")),
        },
        Err(TransactError::Conflict { key, found: Some(existing) })
            if *key.collection == *creation.kind.collection() =>
        {
            Ok(Stored::Before(existing))
        }
        Err(TransactError::Conflict { key, .. }) => Ok(Stored::OtherChanged(key)),
        Err(error @ (TransactError::Refused(_) | TransactError::Log(_))) => Err(write_failure(state, error.into())),
    }
}

pub(crate) fn namespace(state: &State, name: &str) -> Option<Arc<Object>> {
    state.store.get(&key(core_kind("namespaces"), "", name))
}

/// New content needs a namespace that exists and is not on its way out. Answers what must still hold when it is stored.
pub(crate) fn check_namespace_takes(
    state: &State,
    kind: &Kind,
    name: &str,
    object: &str,
) -> Result<Option<(Key, Expect)>, Status> {
    if !kind.namespaced {
        return Ok(None);
    }
    let namespaces = core_kind("namespaces");
    let found = namespace(state, name).ok_or_else(|| Status::not_found(namespaces, name))?;
    // Pods that leave with their namespace may still say what happens to them.
    let may_speak = || kind.collection() == "events" && delete::any_left(state, core_kind("pods"), name);
    if api::meta::deletion_timestamp(&found.value()).is_none() || may_speak() {
        return Ok(Some((found.key.clone(), Expect::Revision(found.revision))));
    }
    Err(Status::namespace_terminating(kind, object, name))
}
