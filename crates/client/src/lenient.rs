//! Reading lists and watches so that an object that cannot be read costs nobody the others.
//!
//! Whatever is fine is read in one go. Only when that fails is the text taken apart: an object that its type does not fit, or
//! that is nested deeper than the parser follows, is named and left out.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::api::WatchEvent;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Error, json};

/// A list, read without a copy of it in between, which is what `kube`'s own type makes.
#[derive(Deserialize)]
pub(crate) struct List<T> {
    #[serde(default)]
    pub(crate) metadata: ListMeta,
    pub(crate) items: Vec<T>,
    /// What is not among the items because it cannot be read.
    #[serde(skip)]
    pub(crate) unreadable: Vec<Unreadable>,
}

/// One line of a watch.
#[derive(Debug)]
pub(crate) enum WatchLine<T> {
    Event(WatchEvent<T>),
    /// An object was added or changed into something that cannot be read.
    Unreadable(Unreadable),
    /// An object that cannot be read is gone. As much of it as its metadata tell, if that makes a `T`.
    Removed(Unreadable, Option<T>),
}

/// An object that cannot be read.
#[derive(Debug)]
pub(crate) struct Unreadable {
    pub(crate) identity: Identity,
    pub(crate) error: Error,
}

/// What is read of an object in any case.
#[derive(Deserialize, Debug, Default)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Identity {
    pub(crate) name: Option<String>,
    pub(crate) namespace: Option<String>,
    uid: Option<String>,
    pub(crate) resource_version: Option<String>,
}

/// An object of which only this is read; the rest is skipped, however deep it is.
#[derive(Deserialize, Default)]
struct Named {
    #[serde(default)]
    metadata: Identity,
}

#[derive(Deserialize)]
struct NamedEvent {
    r#type: String,
    object: Named,
}

/// A list without its items.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    metadata: ListMeta,
}

impl Identity {
    /// `namespace/name`, as far as it is known.
    pub(crate) fn key(&self) -> String {
        let name = self.name.as_deref().unwrap_or("?");
        match self.namespace.as_deref() {
            None | Some("") => name.to_owned(),
            Some(namespace) => format!("{namespace}/{name}"),
        }
    }

    fn to_object<T: DeserializeOwned>(&self) -> Option<T> {
        let Self { name, namespace, uid, resource_version } = self;
        let metadata = json!({ "name": name, "namespace": namespace, "uid": uid, "resourceVersion": resource_version });
        serde_json::from_value(json!({ "metadata": metadata })).ok()
    }
}

/// Reads a list. Fails only if it is none.
pub(crate) fn read_list<T: DeserializeOwned>(text: &str) -> Result<List<T>, Error> {
    let error = match serde_json::from_str(text) {
        Ok(list) => return Ok(list),
        Err(error) => error,
    };
    let Head { metadata } = serde_json::from_str(text)?;
    let mut list = List { metadata, items: Vec::new(), unreadable: Vec::new() };
    for item in items(text).ok_or(error)? {
        match serde_json::from_str(item) {
            Ok(item) => list.items.push(item),
            Err(error) => list.unreadable.push(Unreadable { identity: identity(item), error }),
        }
    }
    Ok(list)
}

fn identity(object: &str) -> Identity {
    serde_json::from_str::<Named>(object).unwrap_or_default().metadata
}

/// Reads a line of a watch. Fails only if it is no event, or one of an object without metadata.
pub(crate) fn read_line<T: DeserializeOwned>(line: &str) -> Result<WatchLine<T>, Error> {
    let error = match serde_json::from_str(line) {
        Ok(event) => return Ok(WatchLine::Event(event)),
        Err(error) => error,
    };
    let Ok(NamedEvent { r#type, object: Named { metadata: identity } }) = serde_json::from_str(line) else {
        return Err(error);
    };
    if identity.resource_version.is_none() {
        return Err(error);
    }
    match &*r#type {
        "ADDED" | "MODIFIED" => Ok(WatchLine::Unreadable(Unreadable { identity, error })),
        "DELETED" => {
            let object = identity.to_object();
            Ok(WatchLine::Removed(Unreadable { identity, error }, object))
        }
        _ => Err(error),
    }
}

/// The texts of the items of a list, which is sound JSON of any depth; `None` if it has none.
fn items(list: &str) -> Option<Vec<&str>> {
    let mut found = Vec::new();
    let mut depth = 0_usize;
    let (mut in_string, mut is_escaped, mut string_from, mut last_string) = (false, false, 0, "");
    let (mut is_items, mut item_from) = (false, None);
    for (at, byte) in list.bytes().enumerate() {
        if in_string {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' => is_escaped = true,
                b'"' => (in_string, last_string) = (false, list.get(string_from..at).unwrap_or_default()),
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => (in_string, string_from) = (true, at + 1),
            b':' if depth == 1 => is_items = last_string == "items",
            b'{' | b'[' => {
                depth += 1;
                if depth == 2 && is_items && byte == b'[' {
                    item_from = Some(at + 1);
                }
            }
            b',' | b']' if depth == 2 && item_from.is_some() => {
                let item = item_from.and_then(|from| list.get(from..at)).unwrap_or_default().trim();
                if !item.is_empty() {
                    found.push(item);
                }
                if byte == b']' {
                    return Some(found);
                }
                item_from = Some(at + 1);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use k8s_openapi::api::core::v1::Pod;
    use kube::ResourceExt;

    use super::*;

    fn nested(levels: usize) -> String {
        format!("{}1{}", r#"{"f:a":"#.repeat(levels), "}".repeat(levels))
    }

    fn pod(name: &str, levels: usize) -> String {
        let managed = format!(r#"[{{"manager":"]}},{{","fieldsV1":{}}}]"#, nested(levels));
        format!(r#"{{"metadata":{{"name":"{name}","namespace":"n","resourceVersion":"7","managedFields":{managed}}}}}"#)
    }

    fn list(items: &[String]) -> String {
        format!(r#"{{"metadata":{{"resourceVersion":"9","x":[[]]}},"items":[ {} ],"kind":"items"}}"#, items.join(" , "))
    }

    fn names(list: &List<Pod>) -> (Vec<String>, Vec<String>) {
        let unreadable = list.unreadable.iter().map(|object| object.identity.key()).collect();
        (list.items.iter().map(ResourceExt::name_any).collect(), unreadable)
    }

    #[test]
    fn list_with_items_that_cannot_be_read_has_the_others() {
        let mistyped = r#"{"metadata":{"name":"typed","namespace":"n"},"spec":"\"],[{"}"#.to_owned();
        let stranger = r#"{"metadata":{"name":7}}"#.to_owned();
        let items =
            [pod("a", 1), pod("deep", 127), mistyped, pod("b", 100), stranger, "[]".to_owned(), pod("c", 90_000)];
        let read: List<Pod> = read_list(&list(&items)).unwrap();
        let (there, not) = names(&read);
        assert_eq!(there, ["a", "b"]);
        assert_eq!(not, ["n/deep", "n/typed", "?", "?", "n/c"]);
        assert_eq!(read.metadata.resource_version.as_deref(), Some("9"));

        let sound: List<Pod> = read_list(&list(&[pod("a", 1), pod("b", 1)])).unwrap();
        assert_eq!(names(&sound).0, ["a", "b"]);
        assert!(read_list::<Pod>(&list(&[])).unwrap().items.is_empty());
    }

    #[test]
    fn text_that_is_no_list_is_an_error() {
        for text in ["", "[]", "{", r#"{"metadata":{}}"#, r#"{"items":{}}"#, r#"{"items":[{]}"#] {
            assert!(read_list::<Pod>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn event_of_an_object_that_cannot_be_read_names_it() {
        let line = |r#type: &str, object: &str| format!(r#"{{"type":"{type}","object":{object}}}"#);
        assert!(matches!(
            read_line::<Pod>(&line("ADDED", &pod("a", 1))).unwrap(),
            WatchLine::Event(WatchEvent::Added(pod)) if pod.name_any() == "a"
        ));
        for r#type in ["ADDED", "MODIFIED"] {
            for deep in [pod("a", 127), pod("a", 90_000)] {
                let WatchLine::Unreadable(read) = read_line::<Pod>(&line(r#type, &deep)).unwrap() else {
                    panic!("{deep}")
                };
                assert_eq!(read.identity.key(), "n/a");
                assert_eq!(read.identity.resource_version.as_deref(), Some("7"));
            }
        }
        let WatchLine::Removed(_, Some(gone)) = read_line::<Pod>(&line("DELETED", &pod("a", 127))).unwrap() else {
            panic!()
        };
        assert_eq!((gone.name_any(), gone.resource_version().as_deref()), ("a".to_owned(), Some("7")));
        for text in ["", "{", "7", &line("ADDED", "[]"), &line("ADDED", r#"{"spec":1}"#), &line("NEWS", &pod("a", 127))]
        {
            assert!(read_line::<Pod>(text).is_err(), "{text}");
        }
    }
}
