//! JSON patch (RFC 6902): operations, one after the other, all or nothing.

use json_patch::{Patch, PatchOperation, patch_unsafe};
use serde_json::Value;

use super::unprocessable;
use crate::bounds::{self, DEPTH_MAX};
use crate::decode::syntax;
use crate::status::{Cause, Status};

/// More operations than this are refused (api-surface, appendix).
const MOST_OPERATIONS: usize = 10_000;

/// What all copies of one patch may add, in bytes of JSON. Without a bound, few operations could double an object often
/// enough to fill the memory.
const MOST_COPIED: usize = 3 << 20;

/// How many values are looked at in all that one patch moves further down.
const MOST_WALKED: usize = 1 << 20;

/// Applies the operations in `body`. After an error `document` is in no particular state.
pub(super) fn patch(document: &mut Value, body: &[u8]) -> Result<(), Status> {
    let Patch(operations) = serde_json::from_slice(body).map_err(|error| {
        // A list of objects is a patch, even if one of them is no operation that anybody knows.
        let refused = |cause: String| Status::bad_request(format!("error decoding patch: {cause}"));
        match serde_json::from_slice::<Value>(body) {
            Err(_) => refused(syntax::words(body, &error)),
            Ok(Value::Array(steps)) => match steps.iter().find(|step| !step.is_object()) {
                Some(step) => refused(syntax::not_an_object(step, "jsonpatch.Operation")),
                None => unprocessable(),
            },
            Ok(other) => refused(syntax::not_an_object(&other, "jsonpatch.Patch")),
        }
    })?;
    if operations.len() > MOST_OPERATIONS {
        let text = format!(
            "Request entity is too large: The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {}",
            operations.len()
        );
        return Err(Status::new(413, "RequestEntityTooLarge", text));
    }
    let mut copied = 0;
    let mut depth = Depth::of(document);
    for operation in &operations {
        depth.check(document, operation)?;
        if let PatchOperation::Copy(copy) = operation {
            copied += document.pointer(copy.from.as_str()).map_or(0, |source| source.to_string().len());
            if copied > MOST_COPIED {
                return Err(unprocessable());
            }
        }
        if !holds_by_absence(document, operation) {
            patch_unsafe(document, std::slice::from_ref(operation)).map_err(|_failed| unprocessable())?;
        }
    }
    Ok(())
}

/// Keeps a document shallow from operation to operation: few of them could stack what each brings along, and a document that
/// is deep enough cannot even be dropped.
struct Depth {
    /// What was stored deeper than it may be is not made deeper.
    most: usize,
    /// How many values may still be looked at.
    budget: usize,
}

impl Depth {
    fn of(document: &Value) -> Self {
        /// Nothing that could be read is deeper.
        const READABLE: usize = 256;
        Self { most: bounds::depth(document, READABLE).max(DEPTH_MAX), budget: MOST_WALKED }
    }

    /// Refuses an operation that puts something too deep into the document.
    fn check(&mut self, document: &Value, operation: &PatchOperation) -> Result<(), Status> {
        let steps = |pointer: &str| pointer.bytes().filter(|byte| *byte == b'/').count();
        let (path, from) = match operation {
            PatchOperation::Add(add) => (add.path.as_str(), Some(&add.value)),
            PatchOperation::Replace(replace) => (replace.path.as_str(), Some(&replace.value)),
            PatchOperation::Copy(copy) => (copy.path.as_str(), document.pointer(copy.from.as_str())),
            PatchOperation::Move(moved) if steps(moved.path.as_str()) > steps(moved.from.as_str()) => {
                (moved.path.as_str(), document.pointer(moved.from.as_str()))
            }
            PatchOperation::Move(_) | PatchOperation::Remove(_) | PatchOperation::Test(_) => return Ok(()),
        };
        let Some(value) = from else { return Ok(()) };
        let fits = match self.most.checked_sub(steps(path)) {
            Some(left) => bounds::is_within_budget(value, left, &mut self.budget).ok_or_else(unprocessable)?,
            None => false,
        };
        if fits {
            return Ok(());
        }
        let field = path.chars().take(LONGEST_PATH).collect::<String>();
        Err(Status::invalid_of("", "", "", vec![Cause::too_deep(field, self.most)]))
    }
}

/// Longest path of an operation that a refusal repeats.
const LONGEST_PATH: usize = 256;

/// Whether it is a test for null of a field that is not there: to Kubernetes an absent field is null. Controllers add
/// their first finalizer this way.
fn holds_by_absence(document: &Value, operation: &PatchOperation) -> bool {
    let PatchOperation::Test(test) = operation else { return false };
    let Some((parent, field)) = test.path.as_str().rsplit_once('/').filter(|_| test.value.is_null()) else {
        return false;
    };
    let field = field.replace("~1", "/").replace("~0", "~");
    document.pointer(parent).and_then(Value::as_object).is_some_and(|fields| !fields.contains_key(&field))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    fn patched(mut document: Value, operations: &Value) -> Result<Value, Status> {
        patch(&mut document, operations.to_string().as_bytes())?;
        Ok(document)
    }

    #[test]
    fn operations_are_applied_in_order() {
        let operations = json!([
            {"op": "test", "path": "/a", "value": 1},
            {"op": "add", "path": "/list/-", "value": "c"},
            {"op": "copy", "from": "/a", "path": "/b"},
            {"op": "replace", "path": "/a", "value": 2},
            {"op": "move", "from": "/b", "path": "/c~1d"},
            {"op": "remove", "path": "/list/0"},
        ]);
        let result = patched(json!({"a": 1, "list": ["a", "b"]}), &operations).unwrap();
        assert_eq!(result, json!({"a": 2, "c/d": 1, "list": ["b", "c"]}));
    }

    #[test]
    fn a_failed_test_and_a_missing_path_are_unprocessable() {
        for operations in [
            json!([{"op": "test", "path": "/a", "value": 2}]),
            json!([{"op": "remove", "path": "/nowhere"}]),
            json!([{"op": "replace", "path": "/x/y", "value": 1}]),
            json!([{"op": "add", "path": "/a/b/c", "value": 1}]),
            json!([{"op": "add", "path": "/list/7", "value": 1}]),
            json!([{"op": "remove", "path": "/list/-"}]),
            json!([{"op": "fly", "path": "/a"}]),
            json!([{"op": "remove"}]),
        ] {
            let refusal = patched(json!({"a": 1, "list": []}), &operations).unwrap_err();
            assert_eq!((refusal.code, refusal.reason), (422, "Invalid"), "{operations}");
            assert_eq!(refusal.message, "the server rejected our request due to an error in our request");
        }
    }

    #[test]
    fn an_absent_field_is_null_to_a_test() {
        let first = json!([
            {"op": "test", "path": "/metadata/finalizers", "value": null},
            {"op": "add", "path": "/metadata/finalizers", "value": ["a"]},
        ]);
        let held = patched(json!({"metadata": {}}), &first).unwrap();
        assert_eq!(held, json!({"metadata": {"finalizers": ["a"]}}));
        assert_eq!(patched(held, &first).unwrap_err().code, 422, "somebody was first");
        assert_eq!(patched(json!({}), &first).unwrap_err().code, 422, "what would hold it is not there");
        let there = json!([{"op": "test", "path": "/metadata/finalizers", "value": []}]);
        assert_eq!(patched(json!({"metadata": {}}), &there).unwrap_err().code, 422);
    }

    #[test]
    fn json_patch_that_is_no_list_of_operations_is_a_bad_request() {
        for body in [json!({"a": 1}), json!(["add"])] {
            assert_eq!(patched(json!({}), &body).unwrap_err().code, 400, "{body}");
        }
        assert_eq!(patch(&mut json!({}), b"[").unwrap_err().code, 400);
    }

    /// Every way to put something somewhere: exactly as deep as allowed, and one deeper.
    #[test]
    fn operation_that_nests_deeper_than_the_bound_is_refused_with_its_path() {
        fn nested(levels: usize) -> Value {
            (0..levels).fold(json!(1), |inner, _| json!({ "f": inner }))
        }
        let path = |levels: usize| "/f".repeat(levels);
        // What is stored deeper than the bound may stay as deep as it is.
        for (document, most) in [(nested(44), 64), (nested(80), 80)] {
            let document_depth = bounds::depth(&document, 1000);
            let place = path(document_depth - 1);
            for op in ["add", "replace"] {
                let fits = json!([{ "op": op, "path": place, "value": nested(most - document_depth + 1) }]);
                let mut made = document.clone();
                patch(&mut made, fits.to_string().as_bytes()).unwrap();
                assert_eq!(bounds::depth(&made, 1000), most);
                let deeper = json!([{ "op": op, "path": place, "value": nested(most - document_depth + 2) }]);
                let refusal = patched(document.clone(), &deeper).unwrap_err();
                assert_eq!((refusal.code, refusal.reason), (422, "Invalid"), "{op}");
                assert_eq!(refusal.details.unwrap().causes[0].field, place);
            }
        }
        for op in ["copy", "move"] {
            let document = |levels| json!({ "from": nested(levels), "f": nested(43) });
            let operation = json!([{ "op": op, "from": "/from", "path": path(44) }]);
            assert_eq!(bounds::depth(&patched(document(20), &operation).unwrap(), 1000), 64, "{op}");
            assert_eq!(patched(document(21), &operation).unwrap_err().code, 422, "{op}");
        }
    }

    /// Ten thousand operations that each go on where the last one ended would make a million levels.
    #[test]
    fn operations_cannot_stack_what_each_brings_along() {
        let deep = (0..10).fold(json!({}), |inner, _| json!({ "f": inner }));
        let stacked = |count: usize| -> Vec<Value> {
            (0..count).map(|n| json!({ "op": "add", "path": "/f".repeat(1 + n * 11), "value": deep })).collect()
        };
        assert_eq!(bounds::depth(&patched(json!({}), &Value::Array(stacked(5))).unwrap(), 1000), 56);
        assert_eq!(patched(json!({}), &Value::Array(stacked(1000))).unwrap_err().code, 422);
        let moves = |n: usize| json!({ "op": "move", "from": format!("/m{n}"), "path": format!("/m{}/m{n}", n + 1) });
        let mut document = json!({});
        for n in 0..500 {
            document[format!("m{n}")] = json!({});
        }
        let all: Vec<Value> = (0..499).map(moves).collect();
        assert_eq!(patched(document.clone(), &Value::Array(all)).unwrap_err().code, 422);
        let few: Vec<Value> = (0..62).map(moves).collect();
        assert_eq!(bounds::depth(&patched(document, &Value::Array(few)).unwrap(), 1000), 64);
    }

    /// [SE-92]
    #[test]
    fn moves_of_something_large_are_refused_before_they_take_long() {
        let large = json!({ "a": vec![1; 200_000], "b": {} });
        let there = json!({ "op": "move", "from": "/a", "path": "/b/a" });
        let back = json!({ "op": "move", "from": "/b/a", "path": "/a" });
        let few: Vec<Value> = [there.clone(), back.clone()].into_iter().cycle().take(4).collect();
        patched(large.clone(), &Value::Array(few)).unwrap();
        let many: Vec<Value> = [there, back].into_iter().cycle().take(10_000).collect();
        assert_eq!(patched(large, &Value::Array(many)).unwrap_err().code, 422);
    }

    #[test]
    fn too_many_operations_and_exploding_copies_are_refused() {
        let add = json!({"op": "add", "path": "/a", "value": 1});
        let most = Value::Array(vec![add.clone(); 10_000]);
        assert_eq!(patched(json!({}), &most).unwrap(), json!({"a": 1}));
        let more = Value::Array(vec![add; 10_001]);
        let refusal = patched(json!({}), &more).unwrap_err();
        assert_eq!(refusal.code, 413);
        assert!(refusal.message.ends_with("The allowed maximum operations in a JSON patch is 10000, got 10001"));

        let doubling: Vec<Value> =
            (0..40).map(|n| json!({"op": "copy", "from": "", "path": format!("/copy{n}")})).collect();
        assert_eq!(patched(json!({"a": "x"}), &Value::Array(doubling)).unwrap_err().code, 422);
    }
}
