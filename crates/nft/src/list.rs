//! What is there: tables, chains, rules, sets and elements as the kernel tells of them.

use crate::batch::{kind, read_comment};
use crate::object::{Element, Family, Table, Value, Verdict};
use crate::wire::{self, Attributes};
use crate::{Error, Nftables};

/// A table that is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedTable {
    /// Which one.
    pub table: Table,
    /// The number that the kernel gave it: another one if it was removed and added again.
    pub handle: u64,
    /// What it tells people and programs.
    pub comment: Option<String>,
}

/// A chain that is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedChain {
    /// Its name.
    pub name: String,
    /// Its number.
    pub handle: u64,
    /// Whether packets pass it without being led here.
    pub is_base: bool,
}

/// A rule that is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedRule {
    /// The chain it is in.
    pub chain: String,
    /// Its number, by which it can be removed.
    pub handle: u64,
    /// What its steps are called.
    pub expressions: Vec<String>,
}

/// A set or a map that is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedSet {
    /// Its name.
    pub name: String,
    /// Its number.
    pub handle: u64,
    /// Whether its elements lead to something.
    pub is_map: bool,
}

/// An element that is there.
pub type ListedElement = Element;

impl Nftables {
    /// The tables of all families.
    pub fn tables(&mut self) -> Result<Vec<ListedTable>, Error> {
        self.list(kind::GET_TABLE, Family::Other(0), &[], |family, attributes, found| {
            let comment = wire::find(attributes, 6).and_then(|comment| read_comment(comment.value));
            let name = text(attributes, 1)?;
            found.push(ListedTable { table: Table::new(family, name), handle: handle(attributes, 4)?, comment });
            Some(())
        })
    }

    /// The chains of a table.
    pub fn chains(&mut self, table: &Table) -> Result<Vec<ListedChain>, Error> {
        // The kernel tells those of all tables of the family.
        self.list(kind::GET_CHAIN, table.family, &[], |_, attributes, found| {
            if text(attributes, 1)? == table.name {
                let is_base = wire::find(attributes, 4).is_some();
                found.push(ListedChain { name: text(attributes, 3)?, handle: handle(attributes, 2)?, is_base });
            }
            Some(())
        })
    }

    /// The rules of a table, those of each chain in their order.
    pub fn rules(&mut self, table: &Table) -> Result<Vec<ListedRule>, Error> {
        let of_table = named(table)?;
        self.list(kind::GET_RULE, table.family, of_table.bytes(), |_, attributes, found| {
            // Kernels that do not look at the question tell those of all tables.
            if text(attributes, 1)? != table.name {
                return Some(());
            }
            let steps = wire::find(attributes, 4).map(|list| list.value).unwrap_or_default();
            let expressions = wire::attributes(steps).filter_map(|step| text(step.value, 1)).collect();
            found.push(ListedRule { chain: text(attributes, 2)?, handle: handle(attributes, 3)?, expressions });
            Some(())
        })
    }

    /// The sets and maps of a table.
    pub fn sets(&mut self, table: &Table) -> Result<Vec<ListedSet>, Error> {
        const MAP: u32 = 8;
        let of_table = named(table)?;
        self.list(kind::GET_SET, table.family, of_table.bytes(), |_, attributes, found| {
            if text(attributes, 1)? == table.name {
                let flags = wire::find(attributes, 3).and_then(|flags| flags.number()).unwrap_or(0);
                let is_map = flags & MAP != 0;
                found.push(ListedSet { name: text(attributes, 2)?, handle: handle(attributes, 16)?, is_map });
            }
            Some(())
        })
    }

    /// How many packets found each element of a set that counts them.
    pub fn counters(&mut self, table: &Table, set: &str) -> Result<Vec<(Vec<u8>, u64)>, Error> {
        let mut of_set = named(table)?;
        of_set.put_name(2, set)?;
        self.list(kind::GET_ELEMENT, table.family, of_set.bytes(), |_, attributes, found| {
            let list = wire::find(attributes, 3).map(|list| list.value).unwrap_or_default();
            for element in wire::attributes(list) {
                let key = wire::find(wire::find(element.value, 1)?.value, 1)?.value.to_vec();
                let counter = wire::find(element.value, 7).and_then(|it| wire::find(it.value, 2));
                let packets = counter.and_then(|it| wire::find(it.value, 2)?.long_number());
                found.push((key, packets.unwrap_or(0)));
            }
            Some(())
        })
    }

    /// The elements of a set or a map, in no order.
    pub fn elements(&mut self, table: &Table, set: &str) -> Result<Vec<ListedElement>, Error> {
        let mut of_set = named(table)?;
        of_set.put_name(2, set)?;
        self.list(kind::GET_ELEMENT, table.family, of_set.bytes(), |_, attributes, found| {
            let list = wire::find(attributes, 3).map(|list| list.value).unwrap_or_default();
            for element in wire::attributes(list) {
                found.push(read_element(element.value)?);
            }
            Some(())
        })
    }
}

fn named(table: &Table) -> Result<Attributes, Error> {
    let mut attributes = Attributes::default();
    attributes.put_name(1, &table.name)?;
    Ok(attributes)
}

fn text(attributes: &[u8], kind: u16) -> Option<String> {
    wire::find(attributes, kind)?.text().map(str::to_owned)
}

fn handle(attributes: &[u8], kind: u16) -> Option<u64> {
    wire::find(attributes, kind)?.long_number()
}

fn read_element(attributes: &[u8]) -> Option<Element> {
    const ENDS_RANGE: u32 = 1;
    let key = wire::find(wire::find(attributes, 1)?.value, 1)?.value.to_vec();
    let flags = wire::find(attributes, 3).and_then(|flags| flags.number()).unwrap_or(0);
    let value = match wire::find(attributes, 2) {
        None => None,
        Some(data) => Some(match (wire::find(data.value, 1), wire::find(data.value, 2)) {
            (Some(bytes), _) => Value::Bytes(bytes.value.to_vec()),
            (None, Some(verdict)) => Value::Verdict(Verdict::read(verdict.value)?),
            (None, None) => return None,
        }),
    };
    Some(Element { key, value, ends_range: flags & ENDS_RANGE != 0 })
}
