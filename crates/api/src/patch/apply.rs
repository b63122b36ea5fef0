//! Server-side apply: the body says how a manager wants the object to be (api-surface 15.3).
//!
//! ```text
//!  merge    what the document says goes over what is there
//!  prune    what this manager said before, says no longer, and nobody else says, goes
//!  compare  what changed that somebody else owns is a conflict; `force` takes it over
//!  record   the manager owns exactly what its document says
//! ```
//!
//! `check` refuses documents that do not fit the kind; `merge` puts values together and takes them apart. The
//! owners are kept in [`crate::managed_fields`].

mod check;
mod merge;

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::decode::{self, FieldValidation};
use crate::kinds::Kind;
use crate::managed_fields::set::FieldSet;
use crate::managed_fields::walk::{self, Node, Scope};
use crate::managed_fields::{self, Entry, Operation};
use crate::schema::Message;
use crate::status::{Cause, Details, Status};
use crate::time;

/// The owner of an object that nobody tracked before it was first applied.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Who applies, and how.
#[derive(Debug, Clone, Copy)]
pub struct ApplyOptions<'a> {
    /// The field manager; never empty.
    pub manager: &'a str,
    /// Take fields over from other managers instead of answering 409.
    pub force: bool,
    /// The version that is recorded with the fields.
    pub api_version: &'a str,
    /// `status`, where that is what is applied.
    pub subresource: Option<&'a str>,
    /// The time that is recorded when ownership or the object changes.
    pub now: Timestamp,
}

impl ApplyOptions<'_> {
    fn subresource(&self) -> &str {
        self.subresource.unwrap_or_default()
    }
}

/// Applies the document in `body` onto `current`; without one, the result is to be created.
///
/// The result holds the updated `metadata.managedFields`. Applying the same document again changes nothing at all.
pub fn apply(kind: &Kind, current: Option<&Value>, body: &[u8], options: &ApplyOptions<'_>) -> Result<Value, Status> {
    let scope = Scope::of(options.subresource);
    let message = kind.message.ok_or_else(Status::unsupported_patch_type)?;
    let document = document(kind, message, scope, body)?;
    let mut live = current.cloned().unwrap_or_else(|| Value::Object(Map::new()));
    let stored = managed_fields::take_raw(&mut live);
    let mut entries = managed_fields::read(stored.as_ref());
    if entries.is_empty() && current.is_some() {
        entries.extend(untracked(message, scope, &live, options));
    }

    let wanted = walk::fields_of(message, scope, &document);
    let before = take_own(&mut entries, options);
    let mut object = merge::merged(Node::Struct(message), Some(&live), &document);
    if let Some(before) = before.as_ref().filter(|before| !before.fields.is_empty()) {
        object = pruned(message, object, &before.fields, &wanted, &entries);
    }

    let change = walk::compare(message, scope, &live, &object);
    let mut taken = change.added.clone();
    taken.unite(&change.modified);
    if !options.force {
        refuse_conflicts(&entries, &taken)?;
    }
    for entry in &mut entries {
        entry.fields.subtract(&taken);
        entry.fields.subtract(&change.removed);
    }
    let is_same = |before: &Entry| before.fields == wanted && (change.is_empty() || is_stored(kind, &object, &live));
    let unchanged = before.filter(is_same);
    entries.push(unchanged.unwrap_or_else(|| own_entry(options, wanted)));
    managed_fields::write(&mut object, entries);
    Ok(object)
}

/// The document as a clean value: of the right kind, nothing out of scope, no nulls.
fn document(kind: &Kind, message: &'static Message, scope: Scope, body: &[u8]) -> Result<Value, Status> {
    let sent = decode::read_applied(body)?;
    let expected = kind.api_version();
    if sent.api_version != expected {
        return Err(Status::bad_request(format!(
            "incorrect version specified in apply patch. Specified patch version: {}, expected: {expected}",
            sent.api_version
        )));
    }
    if sent.kind != kind.kind {
        return Err(Status::bad_request(format!(
            "incorrect kind specified in apply patch. Specified patch kind: {}, expected: {}",
            sent.kind, kind.kind
        )));
    }
    let mut document = sent.value;
    check::drop_nulls(&mut document);
    if managed_fields::raw(&document).is_some() {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    let mistake = check::fits(message, &document).and_then(|()| decode::check_types(kind, &document));
    mistake.map_err(|mistake| {
        let (namespace, name) = (crate::meta::namespace(&document), crate::meta::name(&document));
        let text = format!(
            "failed to create typed patch object ({namespace}/{name}; {}/{}, Kind={}): {mistake}",
            kind.group, kind.version, kind.kind
        );
        // Upstream calls a client's mistake its own, 500. The words are what people look for; the blame can be right.
        Status::bad_request(text)
    })?;
    if let Some(object) = document.as_object_mut() {
        object.retain(|key, _| !scope.skips(key));
    }
    Ok(document)
}

/// Whether `object` is stored as `live` is: a document may spell a quantity or a zero in its own way.
fn is_stored(kind: &Kind, object: &Value, live: &Value) -> bool {
    decode::normalise(kind, object, FieldValidation::Ignore).is_ok_and(|stored| stored.value == *live)
}

/// Whether `new`, prepared for the store, is `old` but for the moment at which it was applied: a document may leave out
/// what defaults fill in, which only shows once they have.
pub fn only_applied_again(old: &Value, new: &Value) -> bool {
    let without_times = |object: &Value| {
        let mut object = object.clone();
        let managed = object.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut);
        for entry in managed.into_iter().flatten().filter_map(Value::as_object_mut) {
            entry.remove("time");
        }
        object
    };
    old["metadata"]["managedFields"] != new["metadata"]["managedFields"] && without_times(old) == without_times(new)
}

/// Takes this manager's entry of an earlier apply out of the list.
fn take_own(entries: &mut Vec<Entry>, options: &ApplyOptions<'_>) -> Option<Entry> {
    let own =
        |entry: &Entry| entry.is_of(options.manager, Operation::Apply, options.api_version, options.subresource());
    let at = entries.iter().position(own)?;
    Some(entries.remove(at))
}

fn own_entry(options: &ApplyOptions<'_>, fields: FieldSet) -> Entry {
    Entry {
        manager: options.manager.to_owned(),
        operation: Operation::Apply,
        api_version: options.api_version.to_owned(),
        subresource: options.subresource().to_owned(),
        time: time::seconds(options.now),
        fields,
    }
}

/// Everything an untracked object holds, as somebody's.
fn untracked(message: &'static Message, scope: Scope, live: &Value, options: &ApplyOptions<'_>) -> Option<Entry> {
    let fields = walk::compare(message, scope, &Value::Null, live).added;
    (!fields.is_empty()).then(|| Entry {
        manager: BEFORE_FIRST_APPLY.to_owned(),
        operation: Operation::Update,
        subresource: String::new(),
        ..own_entry(options, fields)
    })
}

/// `merged` without what this manager said `before` and nobody says now. Parts of a dropped object that the manager
/// never mentioned go with it only if nothing else keeps the object.
fn pruned(message: &'static Message, merged: Value, before: &FieldSet, wanted: &FieldSet, others: &[Entry]) -> Value {
    let root = Node::Struct(message);
    let known = |set: FieldSet| walk::with_known_fields(set, root);
    let before = known(before.clone());
    let everything = known(walk::fields(root, &merged));

    let mut kept = known(walk::fields(root, &merge::without(root, merged.clone(), &before)));
    kept.unite(&known(wanted.clone()));
    others.iter().for_each(|entry| kept.unite(&known(entry.fields.clone())));
    let mut unowned = everything.clone();
    unowned.subtract(&kept);

    let left = known(walk::fields(root, &merge::without(root, merged.clone(), &unowned)));
    let mut gone = everything;
    gone.subtract(&left);
    merge::without(root, merged, &gone.intersection(&before))
}

/// 409 if a field in `taken` is somebody else's.
fn refuse_conflicts(entries: &[Entry], taken: &FieldSet) -> Result<(), Status> {
    let mut conflicts: Vec<(String, Vec<String>)> = entries
        .iter()
        .map(|entry| (shown(entry), entry.fields.intersection(taken).paths()))
        .filter(|(_, paths)| !paths.is_empty())
        .collect();
    conflicts.sort();
    let count: usize = conflicts.iter().map(|(_, paths)| paths.len()).sum();
    let text = match (count, conflicts.as_slice()) {
        (0, _) => return Ok(()),
        (1, [(manager, paths)]) => format!("1 conflict: conflict with {manager}: {}", paths.concat()),
        _ => {
            let lines = conflicts.iter().flat_map(|(manager, paths)| {
                let head = format!("conflicts with {manager}:");
                std::iter::once(head).chain(paths.iter().map(|path| format!("- {path}")))
            });
            format!("{count} conflicts: {}", lines.collect::<Vec<_>>().join("\n"))
        }
    };
    let causes = conflicts.into_iter().flat_map(|(manager, paths)| {
        paths.into_iter().map(move |field| Cause {
            reason: "FieldManagerConflict",
            message: format!("conflict with {manager}"),
            field,
        })
    });
    let details = Details { causes: causes.collect(), ..Details::default() };
    Err(Status {
        details: Some(Box::new(details)),
        ..Status::new(409, "Conflict", format!("Apply failed with {text}"))
    })
}

/// A manager as conflict messages name it.
fn shown(entry: &Entry) -> String {
    let mut text = format!("{:?}", entry.manager);
    if !entry.subresource.is_empty() {
        text.push_str(&format!(" with subresource {:?}", entry.subresource));
    }
    if entry.operation == Operation::Update {
        text.push_str(&format!(" using {}", entry.api_version));
    }
    text
}

#[cfg(test)]
mod tests;
