//! Objects by UID, found by what they have in common: their owner, their node, their namespace.
//!
//! An owner is in the namespace of what it owns. A reference is written by whoever makes the object, and the UID in it proves
//! nothing about the namespace, so an index of owners has both in its word ([`owner_word`]) and never finds an object of another
//! namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The word of the owner with this UID among the objects of this namespace.
pub(crate) fn owner_word(namespace: &str, uid: &str) -> Arc<str> {
    format!("{namespace}/{uid}").into()
}

/// The word by which an object is found, if by any.
type Index<T> = fn(&T) -> Option<Arc<str>>;

/// Objects, and the ways to find them. What is kept is whatever the controller needs of each: an excerpt, or an `Arc` that others
/// have too.
#[derive(Clone, Debug)]
pub(crate) struct Objects<T, const INDICES: usize> {
    objects: BTreeMap<Arc<str>, T>,
    /// For each index, whom it finds under which word.
    found: [BTreeMap<Arc<str>, BTreeSet<Arc<str>>>; INDICES],
    words: [Index<T>; INDICES],
}

impl<T, const INDICES: usize> Objects<T, INDICES> {
    /// Nothing yet. Each index finds an object by the word it answers, if any.
    pub(crate) fn new(words: [Index<T>; INDICES]) -> Self {
        Self { objects: BTreeMap::new(), found: std::array::from_fn(|_| BTreeMap::new()), words }
    }

    /// The object with this UID.
    pub(crate) fn get(&self, uid: &str) -> Option<&T> {
        self.objects.get(uid)
    }

    /// Every object, with its UID.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &T)> {
        self.objects.iter()
    }

    /// Those whom the index of this number finds under `word`.
    pub(crate) fn under<'a>(
        &'a self,
        index: usize,
        word: &str,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a T)> + use<'a, T, INDICES> {
        let uids = self.found.get(index).and_then(|found| found.get(word)).into_iter().flatten();
        uids.filter_map(|uid| self.objects.get_key_value(uid))
    }

    /// Those in this namespace whom the index of this number finds under the owner with this UID.
    pub(crate) fn owned<'a>(
        &'a self,
        index: usize,
        namespace: &str,
        uid: &str,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a T)> + use<'a, T, INDICES> {
        self.under(index, &owner_word(namespace, uid))
    }

    /// Takes in an object as it is. Answers what it was before.
    pub(crate) fn put(&mut self, uid: Arc<str>, object: T) -> Option<T> {
        let old = self.remove(&uid);
        for (found, word) in self.found.iter_mut().zip(self.words) {
            if let Some(word) = word(&object) {
                found.entry(word).or_default().insert(Arc::clone(&uid));
            }
        }
        self.objects.insert(uid, object);
        old
    }

    /// Changes what is known of an object besides what it is found by.
    pub(crate) fn get_mut(&mut self, uid: &str) -> Option<&mut T> {
        self.objects.get_mut(uid)
    }

    /// An object is gone. Answers what it was.
    pub(crate) fn remove(&mut self, uid: &str) -> Option<T> {
        let object = self.objects.remove(uid)?;
        for (found, word) in self.found.iter_mut().zip(self.words) {
            let Some(word) = word(&object) else { continue };
            if let Some(uids) = found.get_mut(&word) {
                uids.remove(uid);
                if uids.is_empty() {
                    found.remove(&word);
                }
            }
        }
        Some(object)
    }

    /// Who is here and not in a list of everything.
    pub(crate) fn missing_from(&self, listed: &BTreeSet<Arc<str>>) -> Vec<Arc<str>> {
        self.objects.keys().filter(|uid| !listed.contains(*uid)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_found_by_what_they_have_in_common() {
        let words: [Index<(&'static str, &'static str)>; 2] =
            [|it| Some(it.0.into()), |it| (!it.1.is_empty()).then(|| it.1.into())];
        let mut objects = Objects::new(words);
        objects.put("1".into(), ("ns", "owner"));
        objects.put("2".into(), ("ns", ""));
        objects.put("3".into(), ("other", "owner"));
        let under = |objects: &Objects<_, 2>, index, word: &str| -> Vec<String> {
            objects.under(index, word).map(|(uid, _)| uid.to_string()).collect()
        };
        assert_eq!(under(&objects, 0, "ns"), ["1", "2"]);
        assert_eq!(under(&objects, 1, "owner"), ["1", "3"]);
        assert_eq!(objects.put("1".into(), ("ns", "second")), Some(("ns", "owner")));
        assert_eq!((under(&objects, 1, "owner"), under(&objects, 1, "second")), (vec!["3".into()], vec!["1".into()]));
        let owned = |namespace, uid| -> Vec<String> {
            let mut objects = Objects::<(&str, &str), 1>::new([|it| Some(owner_word(it.0, it.1))]);
            objects.put("1".into(), ("ns", "owner"));
            objects.put("2".into(), ("other", "owner"));
            objects.owned(0, namespace, uid).map(|(uid, _)| uid.to_string()).collect()
        };
        assert_eq!((owned("ns", "owner"), owned("ns", "other")), (vec!["1".to_owned()], vec![]));
        objects.remove("2");
        assert_eq!(under(&objects, 0, "ns"), ["1"]);
        assert_eq!(objects.missing_from(&BTreeSet::from(["3".into()])), ["1".into()]);
    }
}
