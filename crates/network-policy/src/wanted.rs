//! What should be in the kernel beside what is always there, who wants it, and what changed since it was last written.

use std::collections::{BTreeMap, BTreeSet};

use nft::{Element, Rule, Set, Verdict};

use crate::render::Name;

/// What an element is, beside its key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Content {
    Member,
    /// The first key behind a range.
    RangeEnd,
    /// Packets pass.
    Accept,
    /// Packets go on in that chain, and come back if it says nothing.
    Jump(String),
}

impl Content {
    pub(crate) fn of(element: &Element) -> Option<Self> {
        match &element.value {
            None if element.ends_range => Some(Self::RangeEnd),
            None => Some(Self::Member),
            Some(nft::Value::Verdict(Verdict::Accept)) => Some(Self::Accept),
            Some(nft::Value::Verdict(Verdict::Jump(chain))) => Some(Self::Jump(chain.clone())),
            Some(_) => None,
        }
    }

    pub(crate) fn element(&self, key: &[u8]) -> Element {
        match self {
            Self::Member => Element::key(key.to_vec()),
            Self::RangeEnd => Element::range_end(key.to_vec()),
            Self::Accept => Element::verdict(key.to_vec(), Verdict::Accept),
            Self::Jump(chain) => Element::verdict(key.to_vec(), Verdict::Jump(chain.clone())),
        }
    }
}

/// Chains, sets and elements of both families.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Tables {
    /// A chain is what its name says: of those that are in the kernel only that is known.
    pub(crate) chains: BTreeMap<Name, Vec<Rule>>,
    /// `None` for those that are always there.
    pub(crate) sets: BTreeMap<Name, Option<Set>>,
    pub(crate) elements: BTreeMap<Name, BTreeMap<Vec<u8>, Content>>,
}

/// What may differ from what is in the kernel.
#[derive(Clone, Default, Debug)]
pub(crate) struct Touched {
    pub(crate) chains: BTreeSet<Name>,
    pub(crate) sets: BTreeSet<Name>,
    pub(crate) elements: BTreeSet<(Name, Vec<u8>)>,
}

impl Touched {
    /// All that is in one of both.
    pub(crate) fn all(one: &Tables, other: &Tables) -> Self {
        let mut touched = Self::default();
        for tables in [one, other] {
            touched.chains.extend(tables.chains.keys().cloned());
            touched.sets.extend(tables.sets.keys().cloned());
            for (name, elements) in &tables.elements {
                touched.elements.extend(elements.keys().map(|key| (name.clone(), key.clone())));
            }
        }
        touched
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.chains.is_empty() && self.sets.is_empty() && self.elements.is_empty()
    }
}

/// Who wants an element: of two that want different things the later one has it.
pub(crate) type Claimant = u64;

#[derive(Default, Debug)]
pub(crate) struct Wanted {
    pub(crate) tables: Tables,
    pub(crate) touched: Touched,
    chain_users: BTreeMap<Name, usize>,
    set_users: BTreeMap<Name, usize>,
    claims: BTreeMap<Name, BTreeMap<Vec<u8>, BTreeMap<Claimant, Content>>>,
}

impl Wanted {
    /// One more needs a chain.
    pub(crate) fn use_chain(&mut self, name: &Name, rules: &[Rule]) {
        let users = self.chain_users.entry(name.clone()).or_default();
        *users += 1;
        if *users == 1 {
            self.tables.chains.insert(name.clone(), rules.to_vec());
            self.touched.chains.insert(name.clone());
        }
    }

    pub(crate) fn leave_chain(&mut self, name: &Name) {
        if is_last(&mut self.chain_users, name) {
            self.tables.chains.remove(name);
            self.touched.chains.insert(name.clone());
        }
    }

    /// One more needs a set; whether it is the first.
    pub(crate) fn use_set(&mut self, name: &Name, set: &Set) -> bool {
        let users = self.set_users.entry(name.clone()).or_default();
        *users += 1;
        if *users > 1 {
            return false;
        }
        self.tables.sets.insert(name.clone(), Some(set.clone()));
        self.touched.sets.insert(name.clone());
        true
    }

    /// Whoever leaves last takes the set along, with all that is in it.
    pub(crate) fn leave_set(&mut self, name: &Name) {
        if is_last(&mut self.set_users, name) {
            self.tables.sets.remove(name);
            let gone = self.tables.elements.remove(name).unwrap_or_default();
            self.claims.remove(name);
            self.touched.sets.insert(name.clone());
            // Of a set that comes back before this is written, the elements are compared one by one.
            self.touched.elements.extend(gone.into_keys().map(|key| (name.clone(), key)));
        }
    }

    pub(crate) fn claim(&mut self, name: &Name, key: &[u8], content: Content, by: Claimant) {
        let claims = self.claims.entry(name.clone()).or_default().entry(key.to_vec()).or_default();
        claims.insert(by, content);
        self.settle(name, key);
    }

    pub(crate) fn unclaim(&mut self, name: &Name, key: &[u8], by: Claimant) {
        if let Some(claims) = self.claims.get_mut(name).and_then(|claims| claims.get_mut(key)) {
            claims.remove(&by);
            self.settle(name, key);
        }
    }

    fn settle(&mut self, name: &Name, key: &[u8]) {
        let Some(of_set) = self.claims.get_mut(name) else { return };
        let content = of_set.get(key).and_then(|claims| claims.last_key_value()).map(|(_, content)| content.clone());
        let elements = self.tables.elements.entry(name.clone()).or_default();
        let before = match &content {
            Some(content) => elements.insert(key.to_vec(), content.clone()),
            None => {
                of_set.remove(key);
                elements.remove(key)
            }
        };
        if elements.is_empty() {
            self.tables.elements.remove(name);
        }
        if before != content {
            self.touched.elements.insert((name.clone(), key.to_vec()));
        }
    }
}

fn is_last(users: &mut BTreeMap<Name, usize>, name: &Name) -> bool {
    let Some(count) = users.get_mut(name) else { return false };
    *count -= 1;
    let is_last = *count == 0;
    if is_last {
        users.remove(name);
    }
    is_last
}

#[cfg(test)]
mod tests {
    use nft::{Family, Field};

    use super::*;

    fn name(text: &str) -> Name {
        (Family::Ip, text.to_owned())
    }

    #[test]
    fn element_that_two_want_stays_until_both_let_go_and_the_later_one_has_its_way() {
        let mut wanted = Wanted::default();
        let map = name("may_enter");
        wanted.claim(&map, b"k", Content::Jump("first".into()), 1);
        wanted.claim(&map, b"k", Content::Jump("second".into()), 2);
        let now = |wanted: &Wanted| wanted.tables.elements.get(&map)?.get(b"k".as_slice()).cloned();
        assert_eq!(now(&wanted), Some(Content::Jump("second".into())));
        wanted.touched = Touched::default();
        wanted.unclaim(&map, b"k", 1);
        assert!(wanted.touched.is_empty(), "nothing changed");
        wanted.claim(&map, b"k", Content::Jump("first".into()), 1);
        wanted.unclaim(&map, b"k", 2);
        assert_eq!(now(&wanted), Some(Content::Jump("first".into())));
        wanted.unclaim(&map, b"k", 1);
        assert_eq!(now(&wanted), None);
        assert_eq!(wanted.touched.elements.len(), 1);
    }

    #[test]
    fn set_goes_with_its_last_user_and_takes_its_elements_along() {
        let mut wanted = Wanted::default();
        let set = Set::of("s", &[Field::Port]);
        assert!(wanted.use_set(&name("s"), &set));
        assert!(!wanted.use_set(&name("s"), &set));
        wanted.claim(&name("s"), b"k", Content::Member, 1);
        wanted.leave_set(&name("s"));
        assert_eq!(wanted.tables.elements[&name("s")].len(), 1);
        wanted.leave_set(&name("s"));
        assert_eq!(wanted.tables, Tables::default());
        wanted.use_chain(&name("c"), &[]);
        wanted.use_chain(&name("c"), &[]);
        wanted.leave_chain(&name("c"));
        assert!(wanted.tables.chains.contains_key(&name("c")));
        wanted.leave_chain(&name("c"));
        assert!(wanted.tables.chains.is_empty());
    }
}
