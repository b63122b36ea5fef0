//! So much of each resource: what a container asks for, what a pod comes to, what a quota counts. What a pod comes to is
//! reckoned in [`crate::pod`].

use std::borrow::Cow;
use std::fmt;

use serde_json::{Map, Value, json};

use crate::pod::ResourceList;
use crate::quantity::Quantity;

/// The name of a resource; those that everybody has cost nothing to keep.
pub type ResourceName = Cow<'static, str>;

const KNOWN: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pods"];

fn name_of(word: &str) -> ResourceName {
    let known = KNOWN.into_iter().find(|known| *known == word);
    known.map_or_else(|| Cow::Owned(word.to_owned()), Cow::Borrowed)
}

/// Amounts by the name of their resource, in the order of names. A name that is not there is not the same as none of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Amounts(Vec<(ResourceName, Quantity)>);

impl Amounts {
    /// The amounts in a JSON map; what is no quantity is left out.
    pub fn of(map: &Value) -> Self {
        let mut amounts = Self::default();
        amounts.add_list(ResourceList::from(map));
        amounts
    }

    fn position(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(own, _)| own.as_ref().cmp(name))
    }

    /// The amount of `name`, if it is there.
    pub fn get(&self, name: &str) -> Option<Quantity> {
        self.position(name).ok().map(|at| self.0[at].1)
    }

    /// Whether nothing is there.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// In the order of names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Quantity)> {
        self.0.iter().map(|(name, amount)| (name.as_ref(), *amount))
    }

    /// Only those that `keep` wants.
    #[must_use]
    pub fn only(&self, mut keep: impl FnMut(&str, Quantity) -> bool) -> Self {
        Self(self.0.iter().filter(|(name, amount)| keep(name, *amount)).cloned().collect())
    }

    /// Sets one amount.
    pub fn put(&mut self, name: &str, amount: Quantity) {
        match self.position(name) {
            Ok(at) => self.0[at].1 = amount,
            Err(at) => self.0.insert(at, (name_of(name), amount)),
        }
    }

    /// Adds to one amount.
    pub(crate) fn add_one(&mut self, name: &str, amount: Quantity) {
        match self.position(name) {
            Ok(at) => self.0[at].1 = self.0[at].1.plus(amount),
            Err(at) => self.0.insert(at, (name_of(name), amount)),
        }
    }

    /// Brings one amount up to `amount`.
    pub fn raise_one(&mut self, name: &str, amount: Quantity) {
        match self.position(name) {
            Ok(at) if self.0[at].1 < amount => self.0[at].1 = amount,
            Ok(_) => {}
            Err(at) => self.0.insert(at, (name_of(name), amount)),
        }
    }

    /// Adds all of a list.
    pub fn add_list(&mut self, list: ResourceList<'_>) {
        list.iter().for_each(|(name, amount)| self.add_one(name, amount));
    }

    /// Adds all of `other`.
    pub fn add(&mut self, other: &Self) {
        other.iter().for_each(|(name, amount)| self.add_one(name, amount));
    }

    /// Takes all of `other` away.
    pub fn subtract(&mut self, other: &Self) {
        other.iter().for_each(|(name, amount)| self.add_one(name, Quantity::ZERO.minus(amount)));
    }

    /// Brings every amount up to that of `other`.
    pub fn raise(&mut self, other: &Self) {
        other.iter().for_each(|(name, amount)| self.raise_one(name, amount));
    }

    /// As a JSON map.
    pub fn to_json(&self) -> Value {
        Value::Object(
            self.iter().map(|(name, amount)| (name.to_owned(), json!(amount.to_string()))).collect::<Map<_, _>>(),
        )
    }
}

impl IntoIterator for Amounts {
    type Item = (ResourceName, Quantity);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl fmt::Display for Amounts {
    /// `cpu=1,memory=2Gi`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, amount)) in self.iter().enumerate() {
            write!(f, "{}{name}={amount}", if at > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}
