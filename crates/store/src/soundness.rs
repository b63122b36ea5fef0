//! Whether stored bytes are an object that everybody can read; and what stands in for those that are not.
//!
//! A row of the log is what was written, so what is no object here was written by a program with other bounds, or by hand.
//! That must cost nobody the other objects. Three things are told apart:
//!
//! - An object, as everything written by this program is.
//! - One that is nested deeper than readers can follow: shown without what is inside its deepest levels.
//! - Anything else, what is encrypted by a key that is not there, too: known by its key alone. It is in no list, and can be deleted.
//!
//! The bytes on disk stay as they are until somebody writes the object anew.

use std::fmt;

use api::bounds::DEPTH_MAX;
use bytes::Bytes;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::json;

use crate::{Key, Revision};

/// The deepest nesting that readers can follow: parsers give up at 128 levels, of which lists and watches take some. What
/// earlier versions stored between [`DEPTH_MAX`] and this is left alone.
pub(crate) const READABLE_DEPTH_MAX: usize = 120;

/// Stored bytes that are not shown as they are.
#[derive(Debug)]
pub(crate) struct Damage {
    /// As they are on disk.
    pub(crate) stored: Bytes,
    /// What is wrong with them.
    pub(crate) reason: String,
    /// Whether nothing but the key is known.
    pub(crate) is_unreadable: bool,
}

/// What is shown of `stored`, and what is wrong with it, if anything is.
pub(crate) fn examine(key: &Key, revision: Revision, stored: Bytes) -> (Bytes, Option<Damage>) {
    let reason = match check(&stored) {
        Ok(()) => return (stored, None),
        Err(error) => error.to_string(),
    };
    // Whoever ignores values follows any depth.
    if serde_json::from_slice::<IgnoredAny>(&stored).is_ok() {
        let cut = cut(&stored, DEPTH_MAX - 1);
        if cut.len() < stored.len() && check(&cut).is_ok() {
            return (cut.into(), Some(Damage { stored, reason, is_unreadable: false }));
        }
    }
    let (stand_in, damage) = unreadable(key, revision, stored, reason);
    (stand_in, Some(damage))
}

/// What stands in for `stored`, of which nothing but the key is known.
pub(crate) fn unreadable(key: &Key, revision: Revision, stored: Bytes, reason: String) -> (Bytes, Damage) {
    let mut stand_in = json!({ "metadata": { "name": &*key.name, "resourceVersion": revision.to_string() } });
    if !key.namespace.is_empty() {
        stand_in["metadata"]["namespace"] = (&*key.namespace).into();
    }
    (stand_in.to_string().into(), Damage { stored, reason, is_unreadable: true })
}

/// Reads `json` without keeping anything of it, as strictly as one who keeps it would. What passes here can be parsed.
fn check(json: &[u8]) -> Result<(), serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    Whole.deserialize(&mut deserializer)?;
    deserializer.end()
}

/// An object that has metadata, if any, in the form of an object.
struct Whole;

impl<'de> DeserializeSeed<'de> for Whole {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Whole {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut has_metadata = false;
        while let Some(key) = map.next_key_seed(IsMetadata)? {
            let is_map = map.next_value_seed(Levels { left: READABLE_DEPTH_MAX - 1 })?;
            if key && !is_map {
                return Err(A::Error::custom("its metadata is no object"));
            }
            has_metadata |= key;
        }
        if has_metadata { Ok(()) } else { Err(A::Error::custom("it has no metadata")) }
    }
}

/// Reads a key; answers whether it is `metadata`.
struct IsMetadata;

impl<'de> DeserializeSeed<'de> for IsMetadata {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for IsMetadata {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<bool, E> {
        Ok(key == "metadata")
    }
}

/// A value with at most so many levels; answers whether it is an object.
#[derive(Clone, Copy)]
struct Levels {
    left: usize,
}

impl Levels {
    fn below<E: serde::de::Error>(self) -> Result<Self, E> {
        let error = || E::custom(format_args!("it is nested deeper than {READABLE_DEPTH_MAX} levels"));
        self.left.checked_sub(1).map(|left| Self { left }).ok_or_else(error)
    }
}

impl<'de> DeserializeSeed<'de> for Levels {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Levels {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_bool<E>(self, _: bool) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_i64<E>(self, _: i64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_u64<E>(self, _: u64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_f64<E>(self, _: f64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_str<E>(self, _: &str) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<bool, A::Error> {
        let below = self.below()?;
        while seq.next_element_seed(below)?.is_some() {}
        Ok(false)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        let below = self.below()?;
        while map.next_key_seed(IsMetadata)?.is_some() {
            map.next_value_seed(below)?;
        }
        Ok(true)
    }
}

/// `json` with every object and list that stands below `most` others emptied. `json` is sound, but for its depth.
fn cut(json: &[u8], most: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len());
    let (mut depth, mut in_string, mut is_escaped) = (0_usize, false, false);
    for &byte in json {
        if !in_string && matches!(byte, b'}' | b']') {
            depth = depth.saturating_sub(1);
        }
        // The brackets of what is emptied count as outside of it.
        if depth <= most {
            out.push(byte);
        }
        if !in_string && matches!(byte, b'{' | b'[') {
            depth += 1;
        }
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            _ => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::Value;

    use super::*;

    fn key() -> Key {
        Key::new("pods", "default", "a")
    }

    /// An object with so many levels, some of them lists, and with brackets and quotes in its strings.
    fn nested(levels: usize) -> String {
        let pairs = [(r#"{"a]":"#, r#","b":"\\"}"#), ("[", ",1]")];
        let open: String = (1..levels).map(|level| pairs[level % 2].0).collect();
        let close: String = (1..levels).rev().map(|level| pairs[level % 2].1).collect();
        format!(r#"{{"metadata":{{"name":"a"}},"spec":{open}"}}]\"{{["{close}}}"#)
    }

    #[test]
    fn damaged_stored_object_is_shown_as_valid_json() {
        let sound = |json: &str| assert_eq!(examine(&key(), Revision(7), json.to_owned().into()).0, json);
        sound(r#"{"metadata":{}}"#);
        sound(&nested(2));
        sound(&nested(READABLE_DEPTH_MAX));
        for (bytes, reason) in [
            (&b""[..], "EOF"),
            (b"null", "invalid type: null, expected an object"),
            (b"[]", "expected an object"),
            (b"{", "EOF"),
            (b"{}", "it has no metadata"),
            (br#"{"metadata":[]}"#, "its metadata is no object"),
            (br#"{"metadata":{}} x"#, "trailing characters"),
            (br#"{"metadata":{},"a":1e999}"#, "number out of range"),
            (br#"{"metadata":{},"a":"\ud800"}"#, "hex escape"),
            (b"{\"metadata\":{},\"a\":\"\xff\"}", "invalid unicode"),
            (b"{\"metadata\":{},\"\xff\":1}", "invalid unicode"),
            (b"\x00\x01\x02", "expected value"),
        ] {
            let (shown, damage) = examine(&key(), Revision(7), Bytes::copy_from_slice(bytes));
            let shown: Value = serde_json::from_slice(&shown).unwrap();
            let stand_in = json!({ "metadata": { "name": "a", "namespace": "default", "resourceVersion": "7" } });
            assert_eq!(shown, stand_in);
            let damage = damage.unwrap();
            assert!(damage.is_unreadable && damage.reason.contains(reason), "{bytes:?}: {}", damage.reason);
            assert_eq!(damage.stored, bytes);
        }
    }

    #[test]
    fn object_that_is_too_deep_is_shown_without_its_deepest_levels() {
        for levels in [READABLE_DEPTH_MAX + 1, 127, 128, 129, 500, 300_000] {
            let json = nested(levels);
            let (shown, damage) = examine(&key(), Revision(7), json.clone().into());
            let damage = damage.unwrap();
            assert!(!damage.is_unreadable && damage.reason.contains("deeper than 120"), "{levels}: {}", damage.reason);
            assert_eq!(damage.stored, json);
            let shown: Value = serde_json::from_slice(&shown).unwrap();
            assert_eq!(shown["metadata"]["name"], "a");
            assert_eq!(api::bounds::depth(&shown, 1000), DEPTH_MAX);
        }
    }

    /// What the check lets pass, the parser reads; what it does not, the parser would not, or it is no object of ours. Over
    /// every cut and every flipped bit of an object.
    #[test]
    fn check_agrees_with_the_parser() {
        let json = br#"{"metadata":{"name":"\u00e4\n"},"a":[1,-2.5e3,true,null,{"b":"c"}]}"#;
        let agree = |bytes: &[u8]| {
            let parsed = serde_json::from_slice::<Value>(bytes);
            let is_object = parsed.as_ref().is_ok_and(|value| value["metadata"].is_object());
            assert_eq!(check(bytes).is_ok(), is_object, "{:?}", String::from_utf8_lossy(bytes));
        };
        for length in 0..=json.len() {
            agree(&json[..length]);
        }
        for bit in 0..json.len() * 8 {
            let mut flipped = json.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            agree(&flipped);
        }
    }
}
