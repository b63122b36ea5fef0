//! What a ruleset is made of: tables, chains, sets, maps, elements, verdicts.

use std::fmt;

use crate::wire::Attributes;
use crate::{Error, Rule};

/// Which packets a table sees.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Family {
    /// IPv4 and IPv6.
    Inet,
    /// IPv4.
    Ip,
    /// IPv6.
    Ip6,
    /// Another one, by the kernel's number: only ever read.
    Other(u8),
}

impl Family {
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Inet => 1,
            Self::Ip => 2,
            Self::Ip6 => 10,
            Self::Other(number) => number,
        }
    }

    pub(crate) fn read(number: u8) -> Self {
        match number {
            1 => Self::Inet,
            2 => Self::Ip,
            10 => Self::Ip6,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet => f.write_str("inet"),
            Self::Ip => f.write_str("ip"),
            Self::Ip6 => f.write_str("ip6"),
            Self::Other(number) => write!(f, "family {number}"),
        }
    }
}

/// A table, which everything else is in.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Table {
    /// Which packets it sees.
    pub family: Family,
    /// Unique within its family.
    pub name: String,
}

impl Table {
    /// The table of that name.
    pub fn new(family: Family, name: impl Into<String>) -> Self {
        Self { family, name: name.into() }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table {} {}", self.family, self.name)
    }
}

/// What kinds of things a table has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ObjectKind {
    /// The table itself.
    Table,
    /// Rules in an order.
    Chain,
    /// A rule of a chain.
    Rule,
    /// A set or a map.
    Set,
    /// An element of either.
    Element,
    /// Something that is not made here: a counter, a quota, a flow table.
    Other,
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Table => "table",
            Self::Chain => "chain",
            Self::Rule => "rule",
            Self::Set => "set",
            Self::Element => "element",
            Self::Other => "object",
        })
    }
}

/// What a chain that packets pass can do to them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChainKind {
    /// Accept, drop, refuse.
    Filter,
    /// Change addresses, once per connection.
    Nat,
}

impl ChainKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Nat => "nat",
        }
    }
}

/// Where on its way through the machine a packet meets a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hook {
    /// As it comes in, before it is routed.
    Prerouting,
    /// For this machine.
    Input,
    /// For another.
    Forward,
    /// From this machine.
    Output,
    /// As it leaves, behind routing.
    Postrouting,
}

impl Hook {
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Prerouting => 0,
            Self::Input => 1,
            Self::Forward => 2,
            Self::Output => 3,
            Self::Postrouting => 4,
        }
    }
}

/// Where a chain stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placement {
    /// What it can do.
    pub kind: ChainKind,
    /// Where.
    pub hook: Hook,
    /// In which order with others there, the lowest first.
    pub priority: i32,
}

/// Rules in an order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chain {
    /// Unique within its table.
    pub name: String,
    /// Where packets meet it; `None` if only other rules lead here.
    pub placement: Option<Placement>,
}

impl Chain {
    /// A chain that packets pass.
    pub fn at(name: impl Into<String>, kind: ChainKind, hook: Hook, priority: i32) -> Self {
        Self { name: name.into(), placement: Some(Placement { kind, hook, priority }) }
    }

    /// A chain that rules and maps lead to.
    pub fn inner(name: impl Into<String>) -> Self {
        Self { name: name.into(), placement: None }
    }
}

/// What a part of a key, or of what it leads to, is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Field {
    /// Four bytes in network order.
    Ipv4Address,
    /// Sixteen bytes in network order.
    Ipv6Address,
    /// The number of a protocol above IP, one byte.
    Protocol,
    /// A port, two bytes in network order.
    Port,
    /// A 32-bit number in the machine's order.
    Number,
    /// The name of a link, filled up with zeros to sixteen bytes.
    LinkName,
}

impl Field {
    fn bytes(self) -> usize {
        match self {
            Self::Ipv4Address | Self::Number => 4,
            Self::Ipv6Address | Self::LinkName => 16,
            Self::Protocol => 1,
            Self::Port => 2,
        }
    }

    /// What `nft` calls it, by number; the kernel only keeps it.
    fn code(self) -> u32 {
        match self {
            Self::Number => 19,
            Self::LinkName => 41,
            Self::Ipv4Address => 7,
            Self::Ipv6Address => 8,
            Self::Protocol => 12,
            Self::Port => 13,
        }
    }
}

/// Joins the parts of a key: each begins at a multiple of four bytes. A key of one part is that part.
pub fn concatenated(parts: &[&[u8]]) -> Vec<u8> {
    if let [part] = parts {
        return part.to_vec();
    }
    let mut key = Vec::with_capacity(parts.len() * 4);
    for part in parts {
        key.extend(*part);
        key.resize(key.len().next_multiple_of(4), 0);
    }
    key
}

fn joined_bytes(fields: &[Field]) -> usize {
    match fields {
        [field] => field.bytes(),
        fields => fields.iter().map(|field| field.bytes().next_multiple_of(4)).sum(),
    }
}

fn joined_code(fields: &[Field]) -> u32 {
    const BITS_PER_FIELD: u32 = 6;
    fields.iter().fold(0, |code, field| code << BITS_PER_FIELD | field.code())
}

/// What the elements of a set lead to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ValueKind {
    /// Nothing: they are in it or not.
    None,
    /// Values: a map.
    Fields(Vec<Field>),
    /// What becomes of the packet: a verdict map.
    Verdict,
}

/// A set or a map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Set {
    /// Unique within its table.
    pub name: String,
    /// What its keys consist of.
    pub key: Vec<Field>,
    /// What they lead to.
    pub value: ValueKind,
    /// Whether its elements are where ranges begin and end.
    pub has_ranges: bool,
    /// Whether each element counts the packets that find it.
    pub counts: bool,
    /// For sets that packets add elements to: how many milliseconds those stay, and how many there can be.
    pub remembers: Option<(u64, u32)>,
}

impl Set {
    /// A set of keys.
    pub fn of(name: impl Into<String>, key: &[Field]) -> Self {
        Self {
            name: name.into(),
            key: key.to_vec(),
            value: ValueKind::None,
            has_ranges: false,
            counts: false,
            remembers: None,
        }
    }

    /// A map from keys to values.
    pub fn map(name: impl Into<String>, key: &[Field], value: &[Field]) -> Self {
        Self { value: ValueKind::Fields(value.to_vec()), ..Self::of(name, key) }
    }

    /// A map from keys to verdicts.
    pub fn verdict_map(name: impl Into<String>, key: &[Field]) -> Self {
        Self { value: ValueKind::Verdict, ..Self::of(name, key) }
    }

    /// The same with ranges for keys.
    pub fn with_ranges(self) -> Self {
        Self { has_ranges: true, ..self }
    }

    /// The same with a counter for each element.
    pub fn with_counters(self) -> Self {
        Self { counts: true, ..self }
    }

    /// The same, filled by packets: each element stays for so long after the last packet that added it.
    pub fn remembering(self, milliseconds: u64, elements_max: u32) -> Self {
        Self { remembers: Some((milliseconds, elements_max)), ..self }
    }

    /// Writes everything but the table it is in.
    pub(crate) fn write(&self, id: u32, attributes: &mut Attributes) -> Result<(), Error> {
        const RANGES: u32 = 4;
        const MAP: u32 = 8;
        const TIMEOUT: u32 = 0x10;
        const DYNAMIC: u32 = 0x20;
        const VERDICT: u32 = 0xffff_ff00;
        const VERDICT_BYTES: u32 = 16;
        let bytes = |fields: &[Field]| {
            let bytes = joined_bytes(fields);
            u32::try_from(bytes).map_err(|_| Error::AttributeTooLong { bytes })
        };
        let is_map = self.value != ValueKind::None;
        let flags = if is_map { MAP } else { 0 } | if self.has_ranges { RANGES } else { 0 };
        let flags = flags | if self.remembers.is_some() { TIMEOUT | DYNAMIC } else { 0 };
        attributes.put_name(2, &self.name)?;
        attributes.put_number(3, flags)?;
        attributes.put_number(4, joined_code(&self.key))?;
        attributes.put_number(5, bytes(&self.key)?)?;
        match &self.value {
            ValueKind::None => {}
            ValueKind::Fields(fields) => {
                attributes.put_number(6, joined_code(fields))?;
                attributes.put_number(7, bytes(fields)?)?;
            }
            ValueKind::Verdict => {
                attributes.put_number(6, VERDICT)?;
                attributes.put_number(7, VERDICT_BYTES)?;
            }
        }
        if let Some((milliseconds, elements_max)) = self.remembers {
            attributes.nest(9, |description| description.put_number(1, elements_max))?;
            attributes.put(11, &milliseconds.to_be_bytes())?;
        }
        if self.counts {
            attributes.nest(17, |expression| {
                expression.put_name(1, "counter")?;
                expression.nest(2, |_| Ok(()))
            })?;
        }
        attributes.put_number(10, id)
    }

    /// Whether the element can be in the set at all.
    pub(crate) fn check(&self, element: &Element, is_added: bool) -> Result<(), Error> {
        let wrong = |what, bytes: usize, expected: usize| {
            Err(Error::ElementLength { set: self.name.clone(), what, bytes, expected })
        };
        let key = joined_bytes(&self.key);
        if element.key.len() != key {
            return wrong("a key", element.key.len(), key);
        }
        // A key is enough to say which element goes, and where a range ends.
        if !is_added || element.ends_range {
            return Ok(());
        }
        match (&self.value, &element.value) {
            (ValueKind::None, None) | (ValueKind::Verdict, Some(Value::Verdict(_))) => Ok(()),
            (ValueKind::Fields(fields), Some(Value::Bytes(value))) => match joined_bytes(fields) {
                expected if expected == value.len() => Ok(()),
                expected => wrong("a value", value.len(), expected),
            },
            (ValueKind::None, Some(_)) => wrong("a value", 1, 0),
            (ValueKind::Fields(fields), _) => wrong("a value", 0, joined_bytes(fields)),
            (ValueKind::Verdict, _) => wrong("no verdict, but a value", 0, 0),
        }
    }
}

/// What becomes of a packet.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Verdict {
    /// It passes this chain.
    Accept,
    /// It is lost.
    Drop,
    /// The next rule looks at it.
    Continue,
    /// Back to the chain that led here.
    Return,
    /// That chain looks at it, and then the next rule here.
    Jump(String),
    /// That chain looks at it.
    Goto(String),
    /// Another one, by the kernel's number: only ever read.
    Other(i32),
}

impl Verdict {
    pub(crate) fn write(&self, attributes: &mut Attributes) -> Result<(), Error> {
        let (code, chain) = match self {
            Self::Drop => (0, None),
            Self::Accept => (1, None),
            Self::Continue => (-1, None),
            Self::Jump(chain) => (-3, Some(chain)),
            Self::Goto(chain) => (-4, Some(chain)),
            Self::Return => (-5, None),
            Self::Other(code) => (*code, None),
        };
        attributes.nest(2, |verdict| {
            verdict.put_number(1, code.cast_unsigned())?;
            chain.map_or(Ok(()), |chain| verdict.put_name(2, chain))
        })
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let code = crate::wire::find(bytes, 1)?.number()?.cast_signed();
        let chain = || crate::wire::find(bytes, 2)?.text().map(str::to_owned);
        Some(match code {
            0 => Self::Drop,
            1 => Self::Accept,
            -1 => Self::Continue,
            -3 => Self::Jump(chain()?),
            -4 => Self::Goto(chain()?),
            -5 => Self::Return,
            other => Self::Other(other),
        })
    }
}

/// What an element leads to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Value {
    /// A value, in the parts that the map declares ([`concatenated`]).
    Bytes(Vec<u8>),
    /// What becomes of the packet.
    Verdict(Verdict),
}

/// An element of a set or a map.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Element {
    /// In the parts that the set declares ([`concatenated`]).
    pub key: Vec<u8>,
    /// What it leads to, in a map.
    pub value: Option<Value>,
    /// Whether a range ends before it, where others are where ranges begin.
    pub ends_range: bool,
}

impl Element {
    /// An element of a set, or one of a map that is to go.
    pub fn key(key: Vec<u8>) -> Self {
        Self { key, value: None, ends_range: false }
    }

    /// An element of a map.
    pub fn value(key: Vec<u8>, value: Vec<u8>) -> Self {
        Self { value: Some(Value::Bytes(value)), ..Self::key(key) }
    }

    /// An element of a verdict map.
    pub fn verdict(key: Vec<u8>, verdict: Verdict) -> Self {
        Self { value: Some(Value::Verdict(verdict)), ..Self::key(key) }
    }

    /// The first key behind a range.
    pub fn range_end(key: Vec<u8>) -> Self {
        Self { ends_range: true, ..Self::key(key) }
    }

    pub(crate) fn write(&self, attributes: &mut Attributes) -> Result<(), Error> {
        const ENDS_RANGE: u32 = 1;
        attributes.nest(1, |key| key.put(1, &self.key))?;
        match &self.value {
            None => {}
            Some(Value::Bytes(value)) => attributes.nest(2, |data| data.put(1, value))?,
            Some(Value::Verdict(verdict)) => attributes.nest(2, |data| verdict.write(data))?,
        }
        if self.ends_range {
            attributes.put_number(3, ENDS_RANGE)?;
        }
        Ok(())
    }
}

/// A whole table, to be written in one piece whatever was there before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableSpec {
    /// Which one.
    pub table: Table,
    /// What people and other programs are told of it.
    pub comment: Option<String>,
    /// Its chains with their rules.
    pub chains: Vec<(Chain, Vec<Rule>)>,
    /// Its sets and maps with their elements.
    pub sets: Vec<(Set, Vec<Element>)>,
}

impl TableSpec {
    /// A table with nothing in it.
    pub fn new(table: Table) -> Self {
        Self { table, comment: None, chains: Vec::new(), sets: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_of_one_part_is_not_padded_and_parts_of_several_are() {
        assert_eq!(concatenated(&[&[6]]), [6]);
        assert_eq!(concatenated(&[&[6], &80u16.to_be_bytes()]), [6, 0, 0, 0, 0, 80, 0, 0]);
        assert_eq!(joined_bytes(&[Field::Protocol]), 1);
        assert_eq!(joined_bytes(&[Field::Protocol, Field::Port, Field::Ipv6Address]), 24);
    }

    #[test]
    fn element_of_another_shape_is_refused_before_the_kernel_sees_it() {
        let map = Set::map("ports", &[Field::Protocol, Field::Port], &[Field::Ipv4Address]);
        assert!(map.check(&Element::value(vec![0; 8], vec![0; 4]), true).is_ok());
        assert!(map.check(&Element::key(vec![0; 8]), false).is_ok(), "a key is enough to remove it");
        for wrong in [
            Element::key(vec![0; 8]),
            Element::key(vec![0; 7]),
            Element::value(vec![0; 8], vec![0; 5]),
            Element::verdict(vec![0; 8], Verdict::Drop),
        ] {
            assert!(map.check(&wrong, true).is_err(), "{wrong:?}");
        }
        let verdicts = Set::verdict_map("services", &[Field::Port]);
        assert!(verdicts.check(&Element::verdict(vec![0; 2], Verdict::Drop), true).is_ok());
        assert!(verdicts.check(&Element::value(vec![0; 2], vec![0; 4]), true).is_err());
    }
}
