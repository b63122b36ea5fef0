//! How deep and how large a stored object may be, and the walk that counts.
//!
//! Every reader of ours, and many of others, gives up on JSON that nests deeper than about a hundred levels, and a list or a
//! watch puts levels of its own around an object. So depth is bounded well below that, where objects are written. Nothing
//! here recurses deeper than the bound it is given.

use std::io;

use serde_json::Value;

use crate::kinds::Kind;
use crate::status::{Cause, Status};

/// Most objects and lists inside one another, the object itself included.
pub const DEPTH_MAX: usize = 64;

/// Most bytes of an object as it is stored: what etcd takes for one request.
pub const SIZE_MAX: usize = 3 << 19;

/// How many steps of the way to a value that is too deep are told.
const PATH_STEPS: usize = 8;

/// Whether no more than `most` objects and lists are inside one another.
pub fn is_within(value: &Value, most: usize) -> bool {
    match value {
        Value::Array(list) => most > 0 && list.iter().all(|item| is_within(item, most - 1)),
        Value::Object(fields) => most > 0 && fields.values().all(|field| is_within(field, most - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

/// The same, for a walk that may look at no more than `budget` values; `None` when it is spent.
pub(crate) fn is_within_budget(value: &Value, most: usize, budget: &mut usize) -> Option<bool> {
    *budget = budget.checked_sub(1)?;
    let mut all = |values: &mut dyn Iterator<Item = &Value>| {
        for value in values {
            if most == 0 || !is_within_budget(value, most - 1, budget)? {
                return Some(false);
            }
        }
        Some(most > 0)
    };
    match value {
        Value::Array(list) => all(&mut list.iter()),
        Value::Object(fields) => all(&mut fields.values()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(true),
    }
}

/// How many objects and lists are inside one another; of more than `most`, one more than that.
pub fn depth(value: &Value, most: usize) -> usize {
    let below = |values: &mut dyn Iterator<Item = &Value>| {
        if most == 0 { 1 } else { 1 + values.map(|value| depth(value, most - 1)).max().unwrap_or(0) }
    };
    match value {
        Value::Array(list) => below(&mut list.iter()),
        Value::Object(fields) => below(&mut fields.values()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// The beginning of the way to the first value that stands below `most` others: `metadata.managedFields[0].fieldsV1...`.
pub fn path_beyond(value: &Value, most: usize) -> Option<String> {
    let mut steps = Vec::new();
    if !walk_beyond(value, most, &mut steps) {
        return None;
    }
    let mut path = String::new();
    for step in steps.iter().rev().take(PATH_STEPS) {
        match step {
            Step::Index(index) => path.push_str(&format!("[{index}]")),
            Step::Key(key) => {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(key);
            }
        }
    }
    if steps.len() > PATH_STEPS {
        path.push_str("...");
    }
    Some(path)
}

enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

/// Whether something stands too deep; the way to it, its end first.
fn walk_beyond<'a>(value: &'a Value, most: usize, steps: &mut Vec<Step<'a>>) -> bool {
    let found = match value {
        Value::Array(_) | Value::Object(_) if most == 0 => return true,
        Value::Array(list) => {
            let mut items = list.iter().enumerate();
            items.find(|(_, item)| walk_beyond(item, most - 1, steps)).map(|(index, _)| Step::Index(index))
        }
        Value::Object(fields) => {
            fields.iter().find(|(_, field)| walk_beyond(field, most - 1, steps)).map(|(key, _)| Step::Key(key))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    };
    match found {
        Some(step) => {
            steps.push(step);
            true
        }
        None => false,
    }
}

/// Drops a value of any depth. The usual way takes a piece of the stack for every level.
pub fn discard(value: Value) {
    let mut left = vec![value];
    while let Some(value) = left.pop() {
        match value {
            Value::Array(list) => left.extend(list),
            Value::Object(fields) => left.extend(fields.into_iter().map(|(_, field)| field)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

/// 422: nested too deeply at `path`.
pub fn too_deep(kind: &Kind, name: &str, path: &str, most: usize) -> Status {
    Status::invalid(kind, name, vec![Cause::too_deep(path, most)])
}

/// Refuses what the store would refuse, for those who only ask whether it would.
pub fn check(kind: &Kind, name: &str, value: &Value) -> Result<(), Status> {
    if let Some(path) = path_beyond(value, DEPTH_MAX) {
        return Err(too_deep(kind, name, &path, DEPTH_MAX));
    }
    let mut count = Count(0);
    // Neither counting nor a value with string keys fails.
    let _ = serde_json::to_writer(&mut count, value);
    if count.0 > SIZE_MAX {
        return Err(Status::object_too_large(kind, name, count.0, SIZE_MAX));
    }
    Ok(())
}

/// Counts what is written to it.
struct Count(usize);

impl io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;
    use crate::kinds::built_in;

    /// `levels` containers inside one another; every third is a list.
    fn nested(levels: usize) -> Value {
        (0..levels)
            .fold(json!("leaf"), |inner, level| if level % 3 == 0 { json!([inner]) } else { json!({ "f:a": inner }) })
    }

    #[test]
    fn depth_counts_containers_and_stops_at_its_bound() {
        for levels in 0..100 {
            let value = nested(levels);
            assert_eq!(depth(&value, 1000), levels);
            assert_eq!(depth(&value, 64), levels.min(65));
            assert_eq!(is_within(&value, 64), levels <= 64, "{levels}");
            assert_eq!(is_within_budget(&value, 64, &mut 1000), Some(levels <= 64), "{levels}");
            assert_eq!(path_beyond(&value, 64).is_some(), levels > 64, "{levels}");
        }
        for empty in [json!({}), json!([])] {
            assert_eq!(depth(&empty, 9), 1);
            assert!(is_within(&empty, 1) && !is_within(&empty, 0));
            assert_eq!(is_within_budget(&empty, 0, &mut 9), Some(false));
        }
        // The deepest counts, wherever it stands.
        let wide = json!({ "a": 1, "b": [{}, { "c": nested(70) }, []], "d": {} });
        assert_eq!(depth(&wide, 1000), 73);
    }

    #[test]
    fn walk_ends_when_its_budget_is_spent() {
        let wide = json!({ "list": vec![1; 100] });
        assert_eq!(is_within_budget(&wide, 64, &mut 102), Some(true));
        assert_eq!(is_within_budget(&wide, 64, &mut 101), None);
    }

    #[test]
    fn path_names_the_field_in_which_the_nesting_begins() {
        let pod = json!({ "metadata": { "name": "p", "managedFields": [{}, { "fieldsV1": nested(80) }] } });
        let path = path_beyond(&pod, DEPTH_MAX).unwrap();
        assert!(path.starts_with("metadata.managedFields[1].fieldsV1.f:a"), "{path}");
        assert!(path.ends_with("..."), "{path}");
        assert_eq!(path_beyond(&json!({ "a": [[{}]] }), 3).unwrap(), "a[0][0]");
    }

    #[test]
    fn value_of_a_million_levels_is_judged_and_dropped_without_a_stack_for_each() {
        let mut value = json!(1);
        for _ in 0..1_000_000 {
            value = Value::Array(vec![value]);
        }
        assert!(!is_within(&value, DEPTH_MAX));
        assert_eq!(depth(&value, DEPTH_MAX), DEPTH_MAX + 1);
        assert!(path_beyond(&value, DEPTH_MAX).unwrap().starts_with("[0][0]"));
        discard(value);
    }

    #[test]
    fn check_refuses_what_is_one_beyond_a_bound() {
        let maps = built_in("", "v1", "configmaps").unwrap();
        assert_eq!(check(maps, "m", &nested(64)), Ok(()));
        let refusal = check(maps, "m", &nested(65)).unwrap_err();
        assert_eq!((refusal.code, refusal.reason), (422, "Invalid"));
        assert!(refusal.message.ends_with("Invalid value: must not be nested deeper than 64 levels"), "{refusal}");

        let sized = |size: usize| json!({ "a": "x".repeat(size - r#"{"a":""}"#.len()) });
        assert_eq!(check(maps, "m", &sized(SIZE_MAX)), Ok(()));
        let refusal = check(maps, "m", &sized(SIZE_MAX + 1)).unwrap_err();
        assert_eq!((refusal.code, refusal.reason), (413, "RequestEntityTooLarge"));
        assert!(refusal.message.contains("1572865") && refusal.message.contains("1572864"), "{refusal}");
    }
}
