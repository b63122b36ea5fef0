//! What holds for every object and every body, tried with many: nothing panics, nothing is our own fault (no 500), and the
//! laws of patching and applying. `STORMS` says how many; a failure names its seed.
#![allow(clippy::unwrap_used, reason = "tests")]

mod arbitrary;

use jiff::Timestamp;
use serde_json::{Value, json};
use testkit::Dice;
use testkit::dice::storms;

use crate::decode::{FieldValidation, decode_object, normalise};
use crate::kinds::Kind;
use crate::patch::{ApplyOptions, PatchType, apply, patch};
use crate::quantity::Quantity;
use crate::selector::{FieldSelector, LabelSelector};
use crate::status::Status;
use crate::{managed_fields, meta, protobuf, rules, table};

/// Runs `each` with many dice; a panic says with which.
fn for_many(each: impl Fn(&mut Dice) + std::panic::RefUnwindSafe) {
    for seed in 0..storms() {
        let ran = std::panic::catch_unwind(|| each(&mut Dice::seeded(seed)));
        assert!(ran.is_ok(), "seed {seed}");
    }
}

/// A refusal is the client's fault.
fn fair<T>(outcome: Result<T, Status>) -> Option<T> {
    match outcome {
        Ok(value) => Some(value),
        Err(status) => {
            assert!(matches!(status.code, 400..500), "{status:?}");
            None
        }
    }
}

fn body(kind: &Kind, object: &Value) -> Vec<u8> {
    let mut body = object.clone();
    body["apiVersion"] = json!(kind.api_version());
    body["kind"] = json!(kind.kind);
    body.to_string().into_bytes()
}

/// The same as a body of protobuf.
fn written(kind: &Kind, object: &Value) -> Vec<u8> {
    let named = serde_json::from_slice(&body(kind, object)).unwrap();
    protobuf::encode_envelope(&named).unwrap().expect("every kind has a message")
}

/// An object as the server takes it over from a client; `None` if its values make no sense.
fn decoded(kind: &Kind, object: &Value) -> Option<Value> {
    fair(decode_object(kind, None, &body(kind, object), FieldValidation::Ignore)).map(|decoded| decoded.value)
}

/// The same, made ready for the store.
fn created(kind: &'static Kind, object: &Value) -> Option<Value> {
    let mut object = decoded(kind, object)?;
    let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
    managed_fields::track_update(kind, None, &mut object, "maker", kind.api_version(), None, now);
    let uid = "5f0c6a5e-0000-4000-8000-000000000000".to_owned();
    fair(rules::prepare_create(kind, &mut object, "default", now, uid, || "x".to_owned()))?;
    Some(object)
}

#[test]
fn random_object_of_any_kind_is_decoded_validated_and_printed() {
    for_many(|dice| {
        let kind = arbitrary::kind(dice);
        let sent = arbitrary::object(dice, kind);
        if let Some(value) = decoded(kind, &sent) {
            let again = decoded(kind, &value);
            assert_eq!(again.as_ref(), Some(&value), "decoding twice is decoding once");
            let _ = table::cells(kind, &value, Timestamp::UNIX_EPOCH);
            let _ = table::row_conditions(kind, &value);
        }
        let (Some(old), Some(mut new)) = (created(kind, &sent), decoded(kind, &arbitrary::object(dice, kind))) else {
            return;
        };
        let subresource = dice.pick(&[None, Some("status")]);
        meta::set_name(&mut new, meta::name(&old));
        if kind.update_needs_version {
            meta::set_resource_version(&mut new, meta::resource_version(&old));
        }
        fair(rules::prepare_update(kind, subresource, &old, &mut new));
        managed_fields::track_update(
            kind,
            Some(&old),
            &mut new,
            "other",
            kind.api_version(),
            subresource,
            Timestamp::UNIX_EPOCH,
        );
    });
}

#[test]
fn random_bytes_never_break_a_decoder() {
    let types = [None, Some("application/yaml"), Some("application/vnd.kubernetes.protobuf"), Some("text/plain")];
    for_many(|dice| {
        let kind = arbitrary::kind(dice);
        let object = arbitrary::object(dice, kind);
        let bodies = [body(kind, &object), written(kind, &decoded(kind, &object).unwrap_or(json!({})))];
        for body in bodies {
            let hurt = arbitrary::hurt(dice, &body);
            for content_type in types {
                fair(decode_object(
                    kind,
                    content_type,
                    &hurt,
                    dice.pick(&[FieldValidation::Warn, FieldValidation::Strict]),
                ));
            }
            fair(crate::decode_delete_options(dice.pick(&types), &hurt, &[]));
        }
        let noise: Vec<u8> = (0..dice.below(60)).map(|_| u8::try_from(dice.below(256)).unwrap()).collect();
        for content_type in types {
            fair(decode_object(kind, content_type, &noise, FieldValidation::Strict));
        }
        fair(protobuf::decode_envelope(&[b"k8s\0", &noise[..]].concat()));
    });
}

#[test]
fn protobuf_says_what_json_says() {
    let mut compared = 0_u32;
    for seed in 0..storms() {
        let mut dice = Dice::seeded(seed);
        let kind = arbitrary::kind(&mut dice);
        let Some(object) = decoded(kind, &arbitrary::object(&mut dice, kind)) else { continue };
        let bytes = written(kind, &object);
        let media = Some("application/vnd.kubernetes.protobuf");
        let read =
            decode_object(kind, media, &bytes, FieldValidation::Strict).unwrap_or_else(|e| panic!("{seed}: {e:?}"));
        assert_eq!(read.value, object, "seed {seed}, {}", kind.kind);
        compared += 1;
    }
    assert!(compared > 50, "{compared} objects were compared");
}

#[test]
fn patches_obey_their_laws() {
    for_many(|dice| {
        let kind = arbitrary::kind(dice);
        let (a, b) = (arbitrary::object(dice, kind), arbitrary::object(dice, kind));
        let (Some(a), Some(b)) = (decoded(kind, &a), decoded(kind, &b)) else { return };
        let plain = |value: Value| fair(normalise(kind, &value, FieldValidation::Ignore)).map(|decoded| decoded.value);
        for of in [PatchType::Merge, PatchType::Strategic] {
            // Nothing changes nothing; an object laid over itself is itself.
            for nothing in [b"{}".to_vec(), body(kind, &a)] {
                let same = plain(fair(patch(kind, of, &a, &nothing)).unwrap());
                assert_eq!(same.as_ref(), Some(&a), "{of:?} {}", kind.kind);
            }
            // What a patch says is said once and for all.
            if let Some(once) = fair(patch(kind, of, &a, &body(kind, &b))) {
                let twice = fair(patch(kind, of, &once, &body(kind, &b)));
                assert_eq!(twice.as_ref(), Some(&once), "{of:?} {}", kind.kind);
            }
        }
        // RFC 7386: a patch without nulls over nothing is the patch itself.
        assert_eq!(plain(patch(kind, PatchType::Merge, &json!({}), &body(kind, &b)).unwrap()), Some(b.clone()));
        let replace = json!([
            { "op": "test", "path": "/metadata/name", "value": meta::name(&a) },
            { "op": "replace", "path": "/metadata", "value": b["metadata"] },
        ]);
        let replaced = patch(kind, PatchType::Json, &a, replace.to_string().as_bytes()).unwrap();
        assert_eq!(replaced["metadata"], b["metadata"]);
        // Whatever else is sent as a patch is taken or refused.
        let hurt = arbitrary::hurt(dice, &body(kind, &b));
        for of in [PatchType::Merge, PatchType::Strategic, PatchType::Json] {
            if let Some(value) = fair(patch(kind, of, &a, &hurt)) {
                plain(value);
            }
        }
        let hurt = arbitrary::hurt(dice, replace.to_string().as_bytes());
        fair(patch(kind, PatchType::Json, &a, &hurt));
    });
}

#[test]
fn applying_twice_is_applying_once() {
    let applied = std::sync::atomic::AtomicU32::new(0);
    for_many(|dice| {
        let kind = arbitrary::kind(dice);
        let object = arbitrary::object(dice, kind);
        let options = |manager: &'static str, second: u32, force| ApplyOptions {
            manager,
            force,
            api_version: "v1",
            subresource: None,
            now: format!("2026-01-02T03:04:{second:02}Z").parse().unwrap(),
        };
        let document = body(kind, &object);
        let Some(once) = fair(apply(kind, None, &document, &options("a", 1, false))) else { return };
        let twice = apply(kind, Some(&once), &document, &options("a", 2, false)).unwrap();
        assert_eq!(twice, once, "{}: not even the time changes", kind.kind);
        // Who agrees with an owner shares, and takes nothing away by leaving again.
        let shared = apply(kind, Some(&once), &document, &options("b", 3, false)).unwrap();
        let values = |value: &Value| {
            let mut value = value.clone();
            value["metadata"].as_object_mut().unwrap().remove("managedFields");
            value
        };
        assert_eq!(values(&shared), values(&once), "{}", kind.kind);
        let name = json!({ "metadata": { "name": meta::name(&object) } });
        let left = apply(kind, Some(&shared), &body(kind, &name), &options("b", 4, false)).unwrap();
        assert_eq!(values(&left), values(&once), "{}", kind.kind);
        // A hurt document, and one by somebody who insists.
        fair(apply(kind, Some(&once), &arbitrary::hurt(dice, &document), &options("c", 5, false)));
        let other = arbitrary::object(dice, kind);
        fair(apply(kind, Some(&once), &body(kind, &other), &options("c", 6, true)));
        applied.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(applied.into_inner() > 20, "some documents were fit to be applied");
}

#[test]
fn selectors_mean_what_they_say() {
    for_many(|dice| {
        let (key, value, other) = (dice.pick(&["app", "a.b/c"]), dice.pick(&["x", "y", ""]), dice.pick(&["x", "z"]));
        let labels = if dice.once_in(3) { json!({}) } else { json!({ key: dice.pick(&["x", "y", "z", ""]) }) };
        let object = json!({ "metadata": { "labels": labels } });
        let is = |text: String| LabelSelector::parse(&text).unwrap().matches(&object);
        assert_eq!(is(format!("{key}={value}")), is(format!("{key}=={value}")));
        assert_eq!(is(format!("{key}={value}")), !is(format!("{key}!={value}")));
        assert_eq!(is(key.to_owned()), !is(format!("!{key}")));
        assert_eq!(is(format!("{key} in ({value},{other})")), !is(format!("{key} notin ({value},{other})")));
        let either = is(format!("{key}={value}")) || is(format!("{key}={other}"));
        assert_eq!(is(format!("{key} in ({value}, {other})")), either);
        let both = is(format!("{key}={value}")) && is(key.to_owned());
        assert_eq!(is(format!("{key}={value},{key}")), both);
        let kind = arbitrary::kind(dice);
        let text = dice.pick(&["a in (x,y)", "metadata.name=web,status.phase!=Running", "!a,b notin (c)", "a gt 1"]);
        let hurt = arbitrary::hurt(dice, text.as_bytes());
        let hurt = String::from_utf8_lossy(&hurt);
        if let Some(selector) = fair(LabelSelector::parse(&hurt)) {
            selector.matches(&object);
        }
        if let Some(selector) = fair(FieldSelector::parse(kind, &hurt)) {
            selector.matches(&object);
        }
    });
}

#[test]
fn a_quantity_has_one_spelling() {
    for_many(|dice| {
        let digits = u32::try_from(dice.below(12)).unwrap();
        let number = format!("{}{}", dice.pick(&["", "-", "+"]), dice.below(10_u64.pow(digits)));
        let fraction = if dice.once_in(3) { format!(".{}", dice.below(1000)) } else { String::new() };
        let suffix = dice.pick(&["", "m", "u", "n", "k", "M", "G", "Ki", "Mi", "Gi", "e3", "E-2"]);
        let text = format!("{number}{fraction}{suffix}");
        let quantity: Quantity = text.parse().unwrap_or_else(|_| panic!("{text}"));
        let spelt = quantity.to_string();
        let again: Quantity = spelt.parse().unwrap_or_else(|_| panic!("{text} -> {spelt}"));
        assert_eq!(again.to_string(), spelt, "{text}");
        assert!(again == quantity, "{text} -> {spelt}");
        assert!(quantity.ceil() >= 0 || quantity.is_negative(), "{text}");
        let hurt = arbitrary::hurt(dice, text.as_bytes());
        if let Ok(quantity) = String::from_utf8_lossy(&hurt).parse::<Quantity>() {
            let _ = (quantity.to_string(), quantity.ceil(), quantity.milli_ceil());
        }
    });
}
