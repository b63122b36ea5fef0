//! Reading lists and watches so that an object that cannot be read costs nobody the others.
//!
//! A text is first taken apart into its objects, which works for sound JSON of any depth; then each object is read by itself. One that
//! its type does not fit, or that is nested deeper than the parser follows, is named and left out. The code that reads a type is large,
//! so there is one copy of it: every object is read from text, by the one function that is handed in.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::api::WatchEvent;
use serde::Deserialize;
use serde::de::Error as _;
use serde_json::value::RawValue;
use serde_json::{Error, json};

/// Reads one object.
pub(crate) type ReadObject<T> = fn(&str) -> Result<T, Error>;

/// A list, as far as it can be read.
pub(crate) struct List<T> {
    pub(crate) metadata: ListMeta,
    pub(crate) items: Vec<T>,
    /// What is not among the items because it cannot be read.
    pub(crate) unreadable: Vec<Unreadable>,
}

/// A list whose items are still text.
#[derive(Deserialize)]
struct ListText<'a> {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}

/// A line of a watch whose object is still text.
#[derive(Deserialize)]
struct EventText<'a> {
    r#type: String,
    #[serde(borrow)]
    object: &'a RawValue,
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

impl Identity {
    /// `namespace/name`, as far as it is known.
    pub(crate) fn key(&self) -> String {
        let name = self.name.as_deref().unwrap_or("?");
        match self.namespace.as_deref() {
            None | Some("") => name.to_owned(),
            Some(namespace) => format!("{namespace}/{name}"),
        }
    }

    fn to_object<T>(&self, read: ReadObject<T>) -> Option<T> {
        let Self { name, namespace, uid, resource_version } = self;
        let metadata = json!({ "name": name, "namespace": namespace, "uid": uid, "resourceVersion": resource_version });
        read(&json!({ "metadata": metadata }).to_string()).ok()
    }
}

/// Reads a list. Fails only if it is none.
pub(crate) fn read_list<T>(text: &str, read: ReadObject<T>) -> Result<List<T>, Error> {
    let ListText { metadata, items } = serde_json::from_str(text)?;
    let mut list = List { metadata, items: Vec::with_capacity(items.len()), unreadable: Vec::new() };
    for item in items {
        match read(item.get()) {
            Ok(item) => list.items.push(item),
            Err(error) => list.unreadable.push(Unreadable { identity: identity(item.get()), error }),
        }
    }
    Ok(list)
}

fn identity(object: &str) -> Identity {
    serde_json::from_str::<Named>(object).unwrap_or_default().metadata
}

/// Reads a line of a watch. Fails only if it is no event, or one of an object without metadata.
pub(crate) fn read_line<T>(line: &str, read: ReadObject<T>) -> Result<WatchLine<T>, Error> {
    let EventText { r#type, object } = serde_json::from_str(line)?;
    let object = object.get();
    let event = match &*r#type {
        "ADDED" => read(object).map(WatchEvent::Added),
        "MODIFIED" => read(object).map(WatchEvent::Modified),
        "DELETED" => read(object).map(WatchEvent::Deleted),
        "BOOKMARK" => return Ok(WatchLine::Event(WatchEvent::Bookmark(serde_json::from_str(object)?))),
        "ERROR" => return Ok(WatchLine::Event(WatchEvent::Error(serde_json::from_str(object)?))),
        other => return Err(Error::custom(format_args!("a watch has no events of type {other:?}"))),
    };
    let error = match event {
        Ok(event) => return Ok(WatchLine::Event(event)),
        Err(error) => error,
    };
    let identity = identity(object);
    if identity.resource_version.is_none() {
        return Err(error);
    }
    if r#type == "DELETED" {
        let last = identity.to_object(read);
        return Ok(WatchLine::Removed(Unreadable { identity, error }, last));
    }
    Ok(WatchLine::Unreadable(Unreadable { identity, error }))
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

    fn read_pod(text: &str) -> Result<Pod, Error> {
        serde_json::from_str(text)
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
        let read = read_list(&list(&items), read_pod).unwrap();
        let (there, not) = names(&read);
        assert_eq!(there, ["a", "b"]);
        assert_eq!(not, ["n/deep", "n/typed", "?", "?", "n/c"]);
        assert_eq!(read.metadata.resource_version.as_deref(), Some("9"));

        let sound = read_list(&list(&[pod("a", 1), pod("b", 1)]), read_pod).unwrap();
        assert_eq!(names(&sound).0, ["a", "b"]);
        assert!(read_list(&list(&[]), read_pod).unwrap().items.is_empty());
    }

    #[test]
    fn text_that_is_no_list_is_an_error() {
        for text in ["", "[]", "{", r#"{"metadata":{}}"#, r#"{"items":{}}"#, r#"{"items":[{]}"#] {
            assert!(read_list(text, read_pod).is_err(), "{text}");
        }
    }

    #[test]
    fn event_of_an_object_that_cannot_be_read_names_it() {
        let line = |r#type: &str, object: &str| format!(r#"{{"type":"{type}","object":{object}}}"#);
        assert!(matches!(
            read_line(&line("ADDED", &pod("a", 1)), read_pod).unwrap(),
            WatchLine::Event(WatchEvent::Added(pod)) if pod.name_any() == "a"
        ));
        for r#type in ["ADDED", "MODIFIED"] {
            for deep in [pod("a", 127), pod("a", 90_000)] {
                let WatchLine::Unreadable(read) = read_line(&line(r#type, &deep), read_pod).unwrap() else {
                    panic!("{deep}")
                };
                assert_eq!(read.identity.key(), "n/a");
                assert_eq!(read.identity.resource_version.as_deref(), Some("7"));
            }
        }
        let WatchLine::Removed(_, Some(gone)) = read_line(&line("DELETED", &pod("a", 127)), read_pod).unwrap() else {
            panic!()
        };
        assert_eq!((gone.name_any(), gone.resource_version().as_deref()), ("a".to_owned(), Some("7")));
        for text in ["", "{", "7", &line("ADDED", "[]"), &line("ADDED", r#"{"spec":1}"#), &line("NEWS", &pod("a", 127))]
        {
            assert!(read_line(text, read_pod).is_err(), "{text}");
        }
    }
}
