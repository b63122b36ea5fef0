//! Changes that the kernel makes all together or not at all.

use crate::object::{Chain, Element, Family, ObjectKind, Set, Table, TableSpec};
use crate::wire::{self, Attributes, MESSAGE_BYTES, write_message};
use crate::{Error, Rule};

/// How much is sent at once at most. Some 500,000 elements; a thousand times what a node with a thousand host ports needs.
pub const BATCH_BYTES_MAX: usize = 64 << 20;

/// Where a list of elements goes on in the next message: well below the 65,535 bytes that an attribute may have, with room for
/// one more element.
const ELEMENTS_BYTES: usize = 32 << 10;

pub(crate) const SUBSYSTEM: u16 = 10;
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;

pub(crate) const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const CREATE: u16 = 0x400;
const APPEND: u16 = 0x800;

/// What nftables messages are about, as the kernel numbers them. Each kind has three numbers: new, get, delete.
pub(crate) mod kind {
    pub(crate) const NEW_TABLE: u16 = 0;
    pub(crate) const GET_TABLE: u16 = 1;
    pub(crate) const DELETE_TABLE: u16 = 2;
    pub(crate) const NEW_CHAIN: u16 = 3;
    pub(crate) const GET_CHAIN: u16 = 4;
    pub(crate) const DELETE_CHAIN: u16 = 5;
    pub(crate) const NEW_RULE: u16 = 6;
    pub(crate) const GET_RULE: u16 = 7;
    pub(crate) const DELETE_RULE: u16 = 8;
    pub(crate) const NEW_SET: u16 = 9;
    pub(crate) const GET_SET: u16 = 10;
    pub(crate) const DELETE_SET: u16 = 11;
    pub(crate) const NEW_ELEMENT: u16 = 12;
    pub(crate) const GET_ELEMENT: u16 = 13;
    pub(crate) const DELETE_ELEMENT: u16 = 14;
    pub(crate) const NEW_GENERATION: u16 = 15;
    pub(crate) const GET_GENERATION: u16 = 16;
}

/// Changes that are made all together or not at all, in the order in which they were asked for.
///
/// A change that cannot be written down (a name or a list that is too long) spoils the batch: nothing of it is ever sent, and
/// [`Nftables::commit`](crate::Nftables::commit) says why.
#[derive(Default, Debug)]
pub struct Batch {
    bytes: Vec<u8>,
    /// Where each change begins.
    starts: Vec<usize>,
    sets: u32,
    generation: Option<u32>,
    spoiled: Option<Error>,
}

impl Batch {
    /// No changes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the changes only if the ruleset is still of that generation.
    pub fn at_generation(&mut self, generation: u32) {
        self.generation = Some(generation);
    }

    /// Whether there is nothing to change.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty() && self.spoiled.is_none()
    }

    /// Adds a table, unless it is there.
    pub fn add_table(&mut self, table: &Table) {
        self.add_table_with_comment(table, None);
    }

    /// Adds a table that tells people and programs something, unless it is there.
    pub fn add_table_with_comment(&mut self, table: &Table, comment: Option<&str>) {
        self.change(kind::NEW_TABLE, CREATE, table.family, |attributes| {
            attributes.put_name(1, &table.name)?;
            comment.map_or(Ok(()), |comment| attributes.put(6, &comment_bytes(comment)?))
        });
    }

    /// Removes a table and all that is in it. One that is not there spoils the batch.
    pub fn delete_table(&mut self, table: &Table) {
        self.change(kind::DELETE_TABLE, 0, table.family, |attributes| attributes.put_name(1, &table.name));
    }

    /// Removes a table and all that is in it, if it is there.
    pub fn remove_table(&mut self, table: &Table) {
        // Kernels before 6.3 have no such request. What is added first is there to be removed.
        self.add_table(table);
        self.delete_table(table);
    }

    /// Adds a chain, unless it is there.
    pub fn add_chain(&mut self, table: &Table, chain: &Chain) {
        self.change(kind::NEW_CHAIN, CREATE, table.family, |attributes| {
            attributes.put_name(1, &table.name)?;
            attributes.put_name(3, &chain.name)?;
            let Some(placement) = &chain.placement else { return Ok(()) };
            attributes.nest(4, |hook| {
                hook.put_number(1, placement.hook.number())?;
                hook.put_number(2, placement.priority.cast_unsigned())
            })?;
            attributes.put_name(7, placement.kind.name())
        });
    }

    /// Removes a chain that nothing leads to.
    pub fn delete_chain(&mut self, table: &Table, chain: &str) {
        self.change(kind::DELETE_CHAIN, 0, table.family, |attributes| {
            attributes.put_name(1, &table.name)?;
            attributes.put_name(3, chain)
        });
    }

    /// Adds a rule at the end of a chain.
    pub fn add_rule(&mut self, table: &Table, chain: &str, rule: &Rule) {
        self.change(kind::NEW_RULE, CREATE | APPEND, table.family, |attributes| {
            attributes.put_name(1, &table.name)?;
            attributes.put_name(2, chain)?;
            attributes.nest(4, |list| rule.expressions.iter().try_for_each(|expression| expression.write(list)))
        });
    }

    /// Removes the rule with that handle.
    pub fn delete_rule(&mut self, table: &Table, chain: &str, handle: u64) {
        self.change(kind::DELETE_RULE, 0, table.family, |attributes| {
            attributes.put_name(1, &table.name)?;
            attributes.put_name(2, chain)?;
            attributes.put(3, &handle.to_be_bytes())
        });
    }

    /// Removes all rules of a chain.
    pub fn flush_chain(&mut self, table: &Table, chain: &str) {
        self.change(kind::DELETE_RULE, 0, table.family, |attributes| {
            attributes.put_name(1, &table.name)?;
            attributes.put_name(2, chain)
        });
    }

    /// Adds a set or a map, unless it is there.
    pub fn add_set(&mut self, table: &Table, set: &Set) {
        self.sets += 1;
        let id = self.sets;
        self.change(kind::NEW_SET, CREATE, table.family, |attributes| {
            attributes.put_name(1, &table.name)?;
            set.write(id, attributes)
        });
    }

    /// Removes a set or a map that no rule uses.
    pub fn delete_set(&mut self, table: &Table, set: &str) {
        self.change(kind::DELETE_SET, 0, table.family, |attributes| {
            attributes.put_name(1, &table.name)?;
            attributes.put_name(2, set)
        });
    }

    /// Adds elements. One that is there with another value spoils the batch: remove it before, in the same one.
    pub fn add_elements<'a>(&mut self, table: &Table, set: &Set, elements: impl IntoIterator<Item = &'a Element>) {
        self.elements(kind::NEW_ELEMENT, table, set, elements);
    }

    /// Removes elements, by their keys. One that is not there spoils the batch.
    pub fn delete_elements<'a>(&mut self, table: &Table, set: &Set, elements: impl IntoIterator<Item = &'a Element>) {
        self.elements(kind::DELETE_ELEMENT, table, set, elements);
    }

    /// Removes all elements.
    pub fn flush_set(&mut self, table: &Table, set: &str) {
        self.change(kind::DELETE_ELEMENT, 0, table.family, |attributes| {
            attributes.put_name(1, &table.name)?;
            attributes.put_name(2, set)
        });
    }

    /// Makes the table be this and nothing else, whatever was there before.
    pub fn replace_table(&mut self, spec: &TableSpec) {
        let table = &spec.table;
        self.remove_table(table);
        self.add_table_with_comment(table, spec.comment.as_deref());
        // Elements may lead to chains, and rules to both.
        for (chain, _) in &spec.chains {
            self.add_chain(table, chain);
        }
        for (set, elements) in &spec.sets {
            self.add_set(table, set);
            self.add_elements(table, set, elements);
        }
        for (chain, rules) in &spec.chains {
            for rule in rules {
                self.add_rule(table, &chain.name, rule);
            }
        }
    }

    fn elements<'a>(&mut self, kind: u16, table: &Table, set: &Set, elements: impl IntoIterator<Item = &'a Element>) {
        let mut elements = elements.into_iter().peekable();
        let is_added = kind == kind::NEW_ELEMENT;
        while elements.peek().is_some() && self.spoiled.is_none() {
            self.change(kind, if is_added { CREATE } else { 0 }, table.family, |attributes| {
                attributes.put_name(1, &table.name)?;
                attributes.put_name(2, &set.name)?;
                attributes.nest(3, |list| {
                    let start = list.len();
                    while list.len() - start < ELEMENTS_BYTES
                        && let Some(element) = elements.next()
                    {
                        set.check(element, is_added)?;
                        list.nest(1, |item| element.write(item))?;
                    }
                    Ok(())
                })
            });
        }
    }

    fn change(
        &mut self,
        kind: u16,
        flags: u16,
        family: Family,
        write: impl FnOnce(&mut Attributes) -> Result<(), Error>,
    ) {
        if self.spoiled.is_some() {
            return;
        }
        let mut attributes = Attributes::default();
        let start = self.bytes.len();
        let sequence = u32::try_from(self.starts.len() + 1).unwrap_or(u32::MAX);
        let written = write(&mut attributes).and_then(|()| {
            let message = (SUBSYSTEM << 8 | kind, REQUEST | flags);
            let about = (family.number(), 0);
            write_message(&mut self.bytes, message.0, message.1, sequence, about, attributes.bytes())?;
            match self.bytes.len() {
                bytes if bytes > BATCH_BYTES_MAX => Err(Error::BatchTooLong { bytes, max: BATCH_BYTES_MAX }),
                _ => Ok(()),
            }
        });
        match written {
            Ok(()) => self.starts.push(start),
            Err(error) => self.spoiled = Some(error),
        }
    }

    /// The batch as it is sent, and what is needed to tell which change an answer is about.
    pub(crate) fn encode(self) -> Result<Encoded, Error> {
        if let Some(error) = self.spoiled {
            return Err(error);
        }
        let mut begin = Attributes::default();
        if let Some(generation) = self.generation {
            begin.put_number(1, generation)?;
        }
        let mut bytes = Vec::with_capacity(self.bytes.len() + 3 * MESSAGE_BYTES);
        write_message(&mut bytes, BATCH_BEGIN, REQUEST, 0, (0, SUBSYSTEM), begin.bytes())?;
        let shift = bytes.len();
        bytes.extend(&self.bytes);
        let last = u32::try_from(self.starts.len()).unwrap_or(u32::MAX);
        write_message(&mut bytes, BATCH_END, REQUEST, last.saturating_add(1), (0, SUBSYSTEM), &[])?;
        let starts: Vec<_> = self.starts.iter().map(|start| start + shift).collect();
        if let Some(last) = starts.last() {
            // Kernels differ in whether they answer to the end of a batch. One answer is enough, and a thousand do not fit.
            let flags = flags_of(&bytes[*last..]) | ACKNOWLEDGE;
            bytes[last + 6..last + 8].copy_from_slice(&flags.to_ne_bytes());
        }
        Ok(Encoded { bytes, starts })
    }
}

fn flags_of(message: &[u8]) -> u16 {
    message.get(6..8).and_then(|flags| flags.try_into().ok()).map_or(0, u16::from_ne_bytes)
}

/// A batch as it is sent.
#[derive(Debug)]
pub(crate) struct Encoded {
    pub(crate) bytes: Vec<u8>,
    starts: Vec<usize>,
}

impl Encoded {
    /// The number of the change that is answered if all goes well.
    pub(crate) fn last(&self) -> u32 {
        u32::try_from(self.starts.len()).unwrap_or(u32::MAX)
    }

    /// What a change was to do, in words. `at` is the byte of it that the kernel points at.
    pub(crate) fn describe(&self, sequence: u32, at: Option<u32>) -> String {
        let whole = || "make the changes".to_owned();
        let Some(index) = (sequence as usize).checked_sub(1) else { return whole() };
        let Some(bytes) = self.starts.get(index).and_then(|start| self.bytes.get(*start..)) else { return whole() };
        let Some(Ok(message)) = wire::messages(bytes).next() else { return whole() };
        let Some((family, attributes)) = message.nftables() else { return whole() };
        let number = message.kind & 0xff;
        let Some((is_added, kind, name)) = subject(number) else { return whole() };
        let text = |kind| wire::find(attributes, kind).and_then(|found| found.text()).unwrap_or("?");
        let verb = if is_added { "add" } else { "remove" };
        let table = format!("table {} {}", Family::read(family), text(1));
        match (kind, name) {
            (ObjectKind::Table, _) => format!("{verb} {table}"),
            (ObjectKind::Rule, Some(chain)) => format!("{verb} a rule of chain {} in {table}", text(chain)),
            (ObjectKind::Element, Some(set)) => {
                let element = at.and_then(|at| element_at(attributes, (at as usize).checked_sub(MESSAGE_BYTES)?));
                let which = element.map_or_else(|| "elements".to_owned(), |key| format!("element {key}"));
                format!("{verb} {which} of {} in {table}", text(set))
            }
            (kind, name) => format!("{verb} {kind} {} in {table}", name.map(text).unwrap_or("?")),
        }
    }
}

/// What a message is about: whether something comes or goes, what it is, and which attribute has its name (or its chain's, or
/// its set's).
pub(crate) fn subject(kind: u16) -> Option<(bool, ObjectKind, Option<u16>)> {
    Some(match kind {
        kind::NEW_TABLE => (true, ObjectKind::Table, None),
        kind::DELETE_TABLE => (false, ObjectKind::Table, None),
        kind::NEW_CHAIN => (true, ObjectKind::Chain, Some(3)),
        kind::DELETE_CHAIN => (false, ObjectKind::Chain, Some(3)),
        kind::NEW_RULE => (true, ObjectKind::Rule, Some(2)),
        kind::DELETE_RULE => (false, ObjectKind::Rule, Some(2)),
        kind::NEW_SET => (true, ObjectKind::Set, Some(2)),
        kind::DELETE_SET => (false, ObjectKind::Set, Some(2)),
        kind::NEW_ELEMENT => (true, ObjectKind::Element, Some(2)),
        kind::DELETE_ELEMENT => (false, ObjectKind::Element, Some(2)),
        // Objects and flow tables, new and gone.
        18 | 22 => (true, ObjectKind::Other, Some(2)),
        20 | 24 => (false, ObjectKind::Other, Some(2)),
        _ => return None,
    })
}

/// The key of the element that has this byte, in hexadecimal.
fn element_at(attributes: &[u8], at: usize) -> Option<String> {
    const ATTRIBUTE_BYTES: usize = 4;
    let list = wire::find(attributes, 3)?;
    let within = at.checked_sub(list.at + ATTRIBUTE_BYTES)?;
    let element = wire::attributes(list.value).take_while(|element| element.at <= within).last()?;
    let key = wire::find(wire::find(element.value, 1)?.value, 1)?;
    Some(key.value.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A comment as `nft` reads it: its kind, its length, its text and a zero.
fn comment_bytes(comment: &str) -> Result<Vec<u8>, Error> {
    const COMMENT: u8 = 0;
    const COMMENT_BYTES_MAX: usize = 128;
    if comment.len() > COMMENT_BYTES_MAX || comment.contains('\0') {
        return Err(Error::InvalidName { name: comment.to_owned(), max: COMMENT_BYTES_MAX });
    }
    let length = u8::try_from(comment.len() + 1).map_err(|_| Error::AttributeTooLong { bytes: comment.len() })?;
    Ok([&[COMMENT, length], comment.as_bytes(), &[0]].concat())
}

/// The comment of a table, as `nft` writes it.
pub(crate) fn read_comment(bytes: &[u8]) -> Option<String> {
    let mut rest = bytes;
    while let [kind, length, behind @ ..] = rest {
        let value = behind.get(..usize::from(*length))?;
        if *kind == 0 {
            return std::str::from_utf8(value).ok().map(|text| text.trim_end_matches('\0').to_owned());
        }
        rest = &behind[value.len()..];
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::{Expression, Field, Register};

    fn table() -> Table {
        Table::new(Family::Ip, "t")
    }

    fn numbers(count: u32) -> Vec<Element> {
        (0..count).map(|number| Element::key(number.to_be_bytes().to_vec())).collect()
    }

    #[test]
    fn elements_beyond_one_attribute_go_on_in_the_next_message_of_the_same_batch() {
        let set = Set::of("s", &[Field::Ipv4Address]);
        let mut batch = Batch::new();
        batch.add_elements(&table(), &set, &numbers(10_000));
        let encoded = batch.encode().unwrap();
        let mut found = 0;
        for message in wire::messages(&encoded.bytes).map(Result::unwrap).filter(|it| it.kind > 0xff) {
            let list = wire::find(message.nftables().unwrap().1, 3).unwrap();
            assert!(list.value.len() <= 65_531);
            found += wire::attributes(list.value).count();
        }
        assert_eq!(found, 10_000);
        assert!(encoded.last() > 1);
    }

    #[test]
    fn batch_asks_for_one_answer_however_many_changes_it_has() {
        let mut batch = Batch::new();
        for number in 0..100 {
            batch.add_chain(&table(), &Chain::inner(format!("c{number}")));
        }
        let encoded = batch.encode().unwrap();
        let asking: Vec<_> = wire::messages(&encoded.bytes)
            .map(Result::unwrap)
            .filter(|message| message.flags & ACKNOWLEDGE != 0)
            .map(|message| message.sequence)
            .collect();
        assert_eq!(asking, [100]);
    }

    #[test]
    fn mistake_spoils_the_whole_batch() {
        let mut batch = Batch::new();
        batch.add_table(&table());
        batch.add_chain(&table(), &Chain::inner("c".repeat(300)));
        batch.delete_table(&table());
        assert!(!batch.is_empty());
        assert!(matches!(batch.encode(), Err(Error::InvalidName { .. })));
    }

    #[test]
    fn batch_longer_than_may_be_sent_is_refused_and_does_not_grow_on() {
        let long = Rule::new().with(Expression::Immediate { value: vec![0; 60_000], to: Register::FIRST });
        let mut batch = Batch::new();
        for _ in 0..2_000 {
            batch.add_rule(&table(), "c", &long);
        }
        assert!(batch.bytes.len() < BATCH_BYTES_MAX + (1 << 16));
        assert!(matches!(batch.encode(), Err(Error::BatchTooLong { .. })));
    }

    #[test]
    fn changes_are_named_by_what_they_were_to_do() {
        let set = Set::of("s", &[Field::Ipv4Address]);
        let mut batch = Batch::new();
        batch.add_table(&table());
        batch.add_chain(&table(), &Chain::inner("c"));
        batch.delete_rule(&table(), "c", 7);
        batch.add_elements(&table(), &set, &numbers(3));
        let encoded = batch.encode().unwrap();
        assert_eq!(encoded.describe(1, None), "add table ip t");
        assert_eq!(encoded.describe(2, None), "add chain c in table ip t");
        assert_eq!(encoded.describe(3, None), "remove a rule of chain c in table ip t");
        assert_eq!(encoded.describe(4, None), "add elements of s in table ip t");
        // Behind header, table and set (8 each) comes the list; each element of it has 16 bytes.
        assert_eq!(encoded.describe(4, Some(20 + 16 + 4 + 16)), "add element 00000001 of s in table ip t");
        for nothing in [0, 5, 6, u32::MAX] {
            assert_eq!(encoded.describe(nothing, Some(u32::MAX)), "make the changes");
        }
        encoded.describe(4, Some(u32::MAX));
    }

    #[test]
    fn comment_reads_back_and_others_data_before_it_is_passed_over() {
        let mut bytes = vec![1, 2, 9, 9];
        bytes.extend(comment_bytes("hello").unwrap());
        assert_eq!(read_comment(&bytes).as_deref(), Some("hello"));
        assert_eq!(read_comment(&bytes[..3]), None);
        assert_eq!(read_comment(&[0, 200, 1]), None);
    }
}
