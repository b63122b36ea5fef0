//! Who owns which field: `metadata.managedFields` (api-surface 14.5).
//!
//! Every write leaves a trace. A plain write ([`track_update`]) owns what it changed and takes it from everybody else; an
//! apply ([`crate::patch::apply`]) owns what its document lists. This file keeps the entries: how they are read,
//! written, ordered and bounded. `set` is the sets of fields they hold, `walk` finds fields in objects.

pub(crate) mod set;
pub(crate) mod walk;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::kinds::Kind;
use crate::time;
use set::FieldSet;
use walk::Scope;

/// More entries of plain writes than this are folded together, the oldest first.
const MOST_UPDATERS: usize = 10;
/// The manager that stands for the folded ones.
const ANCIENT: &str = "ancient-changes";

/// How a manager came to own fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Apply,
    Update,
}

/// One manager and what it owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) manager: String,
    pub(crate) operation: Operation,
    pub(crate) api_version: String,
    pub(crate) subresource: String,
    /// As written; a second is as fine as it gets.
    pub(crate) time: String,
    pub(crate) fields: FieldSet,
}

impl Entry {
    /// Whether the entry belongs to this writer. An applier is the same at every version, an updater is not.
    pub(crate) fn is_of(&self, manager: &str, operation: Operation, api_version: &str, subresource: &str) -> bool {
        self.manager == manager
            && self.operation == operation
            && self.subresource == subresource
            && (operation == Operation::Apply || self.api_version == api_version)
    }

    fn read(value: &Value) -> Option<Self> {
        let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let operation = match value.get("operation")?.as_str()? {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return None,
        };
        (text("fieldsType") == "FieldsV1").then_some(())?;
        let fields = FieldSet::from_json(value.get("fieldsV1").unwrap_or(&Value::Null))?;
        let (manager, api_version, subresource) = (text("manager"), text("apiVersion"), text("subresource"));
        Some(Self { manager, operation, api_version, subresource, time: text("time"), fields })
    }

    fn write(self) -> Value {
        let operation = match self.operation {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        };
        let mut entry = Map::from_iter([
            ("apiVersion".to_owned(), json!(self.api_version)),
            ("fieldsType".to_owned(), json!("FieldsV1")),
            ("fieldsV1".to_owned(), self.fields.into_json()),
            ("operation".to_owned(), json!(operation)),
        ]);
        for (key, text) in [("manager", &self.manager), ("subresource", &self.subresource), ("time", &self.time)] {
            if !text.is_empty() {
                entry.insert(key.to_owned(), json!(text));
            }
        }
        Value::Object(entry)
    }
}

/// Records `manager` as the owner of whatever differs between `old` and `new`. No `old` means that `new` was created.
///
/// Call it after every write that is not an apply, with `metadata.managedFields` of `new` as the client sent it: a
/// client may edit the entries, `[{}]` forgets them all, and leaving them out keeps the stored ones.
pub fn track_update(
    kind: &Kind,
    old: Option<&Value>,
    new: &mut Value,
    manager: &str,
    api_version: &str,
    subresource: Option<&str>,
    now: Timestamp,
) {
    let Some(message) = kind.message else { return };
    let change = walk::compare(message, Scope::of(subresource), old.unwrap_or(&Value::Null), new);
    let sent = take_raw(new);
    let stored = old.and_then(raw);
    let keep_stored = sent.is_none() || sent.as_ref() == stored || subresource.is_some();
    if change.is_empty() && keep_stored {
        if let Some(stored) = stored {
            put_raw(new, stored.clone());
        }
        return;
    }
    let mut entries = if keep_stored { read(stored) } else { chosen(sent.as_ref(), stored) };
    let mut taken = change.added;
    taken.unite(&change.modified);
    for entry in &mut entries {
        entry.fields.subtract(&taken);
        entry.fields.subtract(&change.removed);
    }
    if !taken.is_empty() {
        let (subresource, time) = (subresource.unwrap_or_default(), time::seconds(now));
        let own = |entry: &&mut Entry| entry.is_of(manager, Operation::Update, api_version, subresource);
        if let Some(entry) = entries.iter_mut().find(own) {
            entry.fields.unite(&taken);
            entry.time = time;
        } else {
            entries.push(Entry {
                manager: manager.to_owned(),
                operation: Operation::Update,
                api_version: api_version.to_owned(),
                subresource: subresource.to_owned(),
                time,
                fields: taken,
            });
        }
    }
    write(new, entries);
}

/// The entries an update starts from: those it brings, unless it brings none that can be read.
fn chosen(sent: Option<&Value>, stored: Option<&Value>) -> Vec<Entry> {
    let is_reset = sent
        .and_then(Value::as_array)
        .is_some_and(|sent| !sent.is_empty() && sent.iter().all(|entry| entry.as_object().is_some_and(Map::is_empty)));
    let brought = read(sent);
    if brought.is_empty() && !is_reset { read(stored) } else { brought }
}

/// Reads entries; one that cannot be read spoils them all, as there is no telling what it owned.
pub(crate) fn read(raw: Option<&Value>) -> Vec<Entry> {
    let list = raw.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    list.iter().map(Entry::read).collect::<Option<_>>().unwrap_or_default()
}

/// Writes entries into an object: without empty ones, not too many, in their published order.
pub(crate) fn write(object: &mut Value, mut entries: Vec<Entry>) {
    entries.retain(|entry| !entry.fields.is_empty());
    fold_oldest(&mut entries);
    entries.sort_by(|a, b| {
        let key = |e: &Entry| (e.operation, e.time.clone(), e.manager.clone(), e.api_version.clone());
        key(a).cmp(&key(b)).then_with(|| a.subresource.cmp(&b.subresource))
    });
    if entries.is_empty() {
        take_raw(object);
    } else {
        put_raw(object, entries.into_iter().map(Entry::write).collect());
    }
}

/// The entries as stored.
pub(crate) fn raw(object: &Value) -> Option<&Value> {
    object.get("metadata")?.get("managedFields")
}

/// Takes the entries out of an object.
pub(crate) fn take_raw(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

fn put_raw(object: &mut Value, entries: Value) {
    crate::meta::meta_mut(object).insert("managedFields".to_owned(), entries);
}

/// Folds the oldest plain writers of each version into one entry, until few enough are left.
fn fold_oldest(entries: &mut Vec<Entry>) {
    let (mut updaters, appliers): (Vec<_>, Vec<_>) =
        entries.drain(..).partition(|entry| entry.operation == Operation::Update);
    *entries = appliers;
    updaters.sort_by(|a, b| (&a.time, &a.manager).cmp(&(&b.time, &b.manager)));
    let mut excess = updaters.len().saturating_sub(MOST_UPDATERS);
    // Where the oldest writer of a version stands; younger ones of that version are folded into it.
    let mut oldest: BTreeMap<String, usize> = BTreeMap::new();
    for entry in updaters {
        if excess > 0 {
            if let Some(&at) = oldest.get(&entry.api_version) {
                fold(&mut entries[at], &entry);
                excess -= 1;
                continue;
            }
            oldest.insert(entry.api_version.clone(), entries.len());
        }
        entries.push(entry);
    }
}

fn fold(older: &mut Entry, younger: &Entry) {
    ANCIENT.clone_into(&mut older.manager);
    older.subresource.clear();
    older.time.clone_from(&younger.time);
    older.fields.unite(&younger.fields);
}

#[cfg(test)]
mod tests;
