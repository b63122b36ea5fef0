//! Does with a packet what the kernel would do with it, for tests: takes the rules step by step.
//!
//! A transaction may be committed between any two steps. Each lookup sees the elements of its moment; the rules of a chain are those of
//! the moment in which the packet came to the base chain.

use std::cell::Cell;
use std::collections::BTreeMap;

use nft::{Direction, Expression, Family, Header, Inverted, MetaKey, Relation, Rule, Verdict};

use crate::judge::Packet;
use crate::model::LINK_BYTES;
use crate::ranges::{Ranges, has, number};
use crate::render::{Name, family_of, octets};
use crate::skeleton::{Settings, skeleton};
use crate::wanted::{Content, Tables};

/// A packet on its way through the node.
pub(crate) struct Passing {
    pub(crate) packet: Packet,
    /// The links by which it comes and leaves; none for the outside.
    pub(crate) input: String,
    pub(crate) output: String,
    pub(crate) direction: Direction,
}

pub(crate) struct Interpreter<'a> {
    before: &'a Tables,
    after: &'a Tables,
    /// How many steps there are before the commit.
    commit_at: usize,
    steps: Cell<usize>,
    fixed: BTreeMap<Name, Vec<Rule>>,
}

#[derive(PartialEq)]
enum Outcome {
    Accepted,
    Dropped,
    GoesOn,
}

impl<'a> Interpreter<'a> {
    pub(crate) fn new(settings: &Settings, tables: &'a Tables) -> Self {
        Self::with_commit(settings, tables, tables)
    }

    /// One set of tables becomes the other while packets pass.
    pub(crate) fn with_commit(settings: &Settings, before: &'a Tables, after: &'a Tables) -> Self {
        let mut fixed = BTreeMap::new();
        for family in [Family::Ip, Family::Ip6] {
            for (chain, rules) in skeleton(settings, family).chains {
                fixed.insert((family, chain.name), rules);
            }
        }
        Self { before, after, commit_at: 0, steps: Cell::new(0), fixed }
    }

    /// Whether there is a commit after so many steps with which it passes these chains.
    pub(crate) fn passes_amid(&mut self, chains: &[&str], passing: &Passing) -> bool {
        self.commit_at = 0;
        loop {
            if self.passes(chains, passing) {
                return true;
            }
            self.commit_at += 1;
            if self.commit_at > self.steps.get() {
                return false;
            }
        }
    }

    /// The tables of the next step.
    fn step(&self) -> &'a Tables {
        let steps = self.steps.get();
        self.steps.set(steps + 1);
        if steps < self.commit_at { self.before } else { self.after }
    }

    /// Whether it passes these chains, one after the other.
    pub(crate) fn passes(&self, chains: &[&str], passing: &Passing) -> bool {
        let family = family_of(passing.packet.source);
        self.steps.set(0);
        chains.iter().all(|chain| self.run(family, chain, passing, self.step()) != Outcome::Dropped)
    }

    fn run(&self, family: Family, chain: &str, passing: &Passing, tables: &Tables) -> Outcome {
        let name = (family, chain.to_owned());
        let rules = self.fixed.get(&name).or_else(|| tables.chains.get(&name));
        assert!(rules.is_some() || self.after.chains.contains_key(&name), "no chain {chain}");
        for rule in rules.into_iter().flatten() {
            match self.take(family, rule, passing) {
                None | Some(Verdict::Continue) => {}
                Some(Verdict::Accept) => return Outcome::Accepted,
                Some(Verdict::Drop) => return Outcome::Dropped,
                Some(Verdict::Goto(chain)) => return self.run(family, &chain, passing, tables),
                Some(Verdict::Jump(chain)) => match self.run(family, &chain, passing, tables) {
                    Outcome::GoesOn => {}
                    decided @ (Outcome::Accepted | Outcome::Dropped) => return decided,
                },
                Some(verdict @ (Verdict::Return | Verdict::Other(_))) => panic!("{verdict:?} is not used"),
            }
        }
        Outcome::GoesOn
    }

    /// The verdict of a rule; `None` if a step finds what it does not look for.
    #[allow(clippy::wildcard_enum_match_arm, reason = "the steps that these rules are made of, and no others")]
    fn take(&self, family: Family, rule: &Rule, passing: &Passing) -> Option<Verdict> {
        let mut registers = [0_u8; 64];
        let mut verdict = None;
        let packet = &passing.packet;
        for step in &rule.expressions {
            let mut load = |to: nft::Register, bytes: &[u8]| {
                let at = usize::from(to.index()) * 4;
                registers[at..at + bytes.len().next_multiple_of(4)].fill(0);
                registers[at..at + bytes.len()].copy_from_slice(bytes);
            };
            match step {
                Expression::Payload { header: Header::Network, at: 12 | 8, to, .. } => {
                    load(*to, &octets(packet.source))
                }
                Expression::Payload { header: Header::Network, to, .. } => load(*to, &octets(packet.destination)),
                Expression::Payload { header: Header::Transport, at: 2, to, .. } => {
                    load(*to, &packet.port.to_be_bytes())
                }
                Expression::Payload { header: Header::Transport, to, .. } => load(*to, &[0]),
                Expression::Meta { key, to } => match key {
                    MetaKey::Protocol => load(*to, &[packet.protocol]),
                    MetaKey::InputName => load(*to, &link(&passing.input)),
                    MetaKey::OutputName => load(*to, &link(&passing.output)),
                    MetaKey::Mark => load(*to, &[0; 4]),
                },
                Expression::ConnectionDirection { to } => load(*to, &[u8::from(passing.direction == Direction::Reply)]),
                Expression::Connection { to, .. } => load(*to, &8_u32.to_ne_bytes()),
                Expression::Mask { register, mask } => {
                    let at = usize::from(register.index()) * 4;
                    registers[at..].iter_mut().zip(mask).for_each(|(byte, mask)| *byte &= mask);
                }
                Expression::Compare { register, relation, value } => {
                    let at = usize::from(register.index()) * 4;
                    if (registers[at..at + value.len()] == **value) != (*relation == Relation::Equal) {
                        return None;
                    }
                }
                Expression::InSet { set, inverted, .. } => {
                    if self.find(family, set, &registers).is_some() != (*inverted == Inverted::No) {
                        return None;
                    }
                }
                Expression::VerdictMap { map, .. } => match self.find(family, map, &registers)? {
                    Content::Accept => verdict = Some(Verdict::Accept),
                    Content::Jump(chain) => verdict = Some(Verdict::Jump(chain)),
                    Content::Member | Content::RangeEnd => panic!("no verdict in {map}"),
                },
                Expression::Verdict(it) => verdict = Some(it.clone()),
                Expression::Counter | Expression::Remember { .. } => {}
                other => panic!("{} is not used", other.name()),
            }
        }
        verdict
    }

    /// What is found under the key at the first register.
    fn find(&self, family: Family, set: &str, registers: &[u8]) -> Option<Content> {
        let elements = self.step().elements.get(&(family, set.to_owned()))?;
        if !elements.values().any(|content| *content == Content::RangeEnd)
            && !set.starts_with("blocks")
            && !set.starts_with("ports")
        {
            return elements.iter().find(|(key, _)| registers.starts_with(key)).map(|(_, content)| content.clone());
        }
        let bytes = elements.keys().next()?.len();
        let value = |key: &[u8]| key.iter().fold(0_u128, |value, byte| value << 8 | u128::from(*byte));
        let mut ranges = Ranges::new();
        for (key, content) in elements {
            match content {
                Content::RangeEnd => ranges.last_mut()?.1 = value(key) - 1,
                Content::Member | Content::Accept | Content::Jump(_) => ranges.push((value(key), u128::MAX)),
            }
        }
        has(&ranges, value(&registers[..bytes])).then_some(Content::Member)
    }
}

fn link(name: &str) -> Vec<u8> {
    let mut name = name.as_bytes().to_vec();
    name.resize(LINK_BYTES, 0);
    name
}

/// The link of a pod, as tests name it.
pub(crate) fn link_of(address: std::net::IpAddr) -> String {
    format!("adtest{}", number(address) & 0xff)
}
