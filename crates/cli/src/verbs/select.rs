//! Which objects a command means: `pods`, `pod web`, `pod/web svc/web`, `-l app=web`, `--all`.

use anyhow::{Result, bail, ensure};
use serde_json::Value;

use super::requests::Call;
use super::resources::{Resource, Resources};
use crate::cluster::Cluster;

/// More words than this are not what somebody typed.
const WORDS_MOST: usize = 10_000;

/// Named objects of one kind, or all of it if none is named.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Selection {
    /// Which kind.
    pub resource: Resource,
    /// Their names; nothing for all.
    pub names: Vec<String>,
}

/// What the words of a command mean: kinds and then names, or kind/name each.
pub(crate) async fn selections(
    cluster: &Cluster,
    resources: &mut Resources,
    words: &[String],
) -> Result<Vec<Selection>> {
    ensure!(words.len() <= WORDS_MOST, "these are too many words; use -l");
    let mut selected: Vec<Selection> = Vec::new();
    match parsed(words)? {
        Words::Pairs(pairs) => {
            for (kind, name) in pairs {
                let resource = resources.find(cluster, &kind).await?;
                match selected.iter_mut().find(|selection| selection.resource == resource) {
                    Some(selection) => selection.names.push(name),
                    None => selected.push(Selection { resource, names: vec![name] }),
                }
            }
        }
        Words::Kinds(kinds, names) => {
            let found = resources.find_all(cluster, &kinds).await?;
            selected.extend(found.into_iter().map(|resource| Selection { resource, names: names.clone() }));
        }
    }
    Ok(selected)
}

#[derive(PartialEq, Debug)]
enum Words {
    Pairs(Vec<(String, String)>),
    Kinds(String, Vec<String>),
}

fn parsed(words: &[String]) -> Result<Words> {
    let Some(first) = words.first() else { bail!("say what you mean: for example pods, pod/NAME, or deploy NAME") };
    if !first.contains('/') {
        if let Some(odd) = words[1..].iter().find(|word| word.contains('/')) {
            bail!("{odd} names its kind, and so does {first}; write one of them only");
        }
        return Ok(Words::Kinds(first.clone(), words[1..].to_vec()));
    }
    let pair = |word: &String| match word.split_once('/') {
        Some((kind, name)) if !kind.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok((kind.to_owned(), name.to_owned()))
        }
        _ => bail!("{word:?} is not of the form KIND/NAME"),
    };
    words.iter().map(pair).collect::<Result<_>>().map(Words::Pairs)
}

/// Where objects are looked for.
#[derive(Clone, Debug)]
pub(crate) struct Scope<'a> {
    /// In which namespace; nothing for all.
    pub namespace: Option<&'a str>,
    /// With which labels.
    pub labels: Option<&'a str>,
    /// With which fields.
    pub fields: Option<&'a str>,
}

impl Scope<'_> {
    /// Asks for all objects of a kind.
    pub(crate) fn list(&self, resource: &Resource) -> Result<Call> {
        let call = Call::get(resource.path(self.namespace)?, format!("list {}", resource.full_name()));
        Ok(call.maybe("labelSelector", self.labels).maybe("fieldSelector", self.fields))
    }
}

/// The objects of a list, each with its kind, which lists leave out.
pub(crate) fn items(list: &Value, resource: &Resource) -> Vec<Value> {
    let mut items = list["items"].as_array().cloned().unwrap_or_default();
    for item in items.iter_mut().filter(|item| item.is_object()) {
        *item = with_kind(item.take(), resource);
    }
    items
}

fn with_kind(item: Value, resource: &Resource) -> Value {
    let mut whole = serde_json::Map::new();
    whole.insert("apiVersion".to_owned(), resource.api_version().into());
    whole.insert("kind".to_owned(), resource.kind.clone().into());
    if let Value::Object(fields) = item {
        whole.extend(fields);
    }
    Value::Object(whole)
}

/// The name of an object.
pub(crate) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn words(text: &str) -> Result<Words> {
        parsed(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn words_are_kinds_with_names_or_pairs_and_never_both() {
        assert_eq!(words("pods").unwrap(), Words::Kinds("pods".to_owned(), vec![]));
        assert_eq!(words("pod a b").unwrap(), Words::Kinds("pod".to_owned(), vec!["a".to_owned(), "b".to_owned()]));
        let pair = |kind: &str, name: &str| (kind.to_owned(), name.to_owned());
        assert_eq!(words("pod/a svc/b").unwrap(), Words::Pairs(vec![pair("pod", "a"), pair("svc", "b")]));
        for odd in ["", "pod a/b", "pod/a b", "pod/", "/a", "pod/a/b"] {
            assert!(words(odd).is_err(), "{odd}");
        }
    }
}
