//! Chains that maps lead to: each picks a backend, or judges where packets come from. Services of the same shape share them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use nft::{Expression, Family, Header, MetaKey, NatKind, Register, Relation, Rule, Side, Verdict};
use sha2::{Digest as _, Sha256};

use crate::addresses::Network;
use crate::wanted::Space;

/// A chain that a map leads to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum InnerChain {
    /// Picks one of so many backends, each as often as any other.
    Pick { space: Space, count: usize },
    /// Picks the backend that the client had within the last seconds, or one of so many, and remembers it.
    Affinity { space: Space, count: usize, seconds: u32 },
    /// Drops what does not come from one of these networks.
    From(BTreeSet<Network>),
}

/// The maps of a space. Those of affinity are empty for Services without.
pub(crate) struct SpaceMaps {
    /// Where a frontend's chain is.
    pub(crate) verdicts: &'static str,
    /// The backend in each slot.
    pub(crate) slots: &'static str,
    /// The number of the backend in each slot.
    pub(crate) ids: &'static str,
    /// The backend of each number.
    pub(crate) by_id: &'static str,
    /// The number of the backend that a client had; filled by packets.
    pub(crate) clients: &'static str,
}

pub(crate) fn maps(space: Space) -> SpaceMaps {
    let of = |verdicts, slots, ids, by_id, clients| SpaceMaps { verdicts, slots, ids, by_id, clients };
    match space {
        Space::Service => of("svc", "svc_eps", "svc_ids", "svc_by_id", "svc_clients"),
        Space::Short => of("sh", "sh_eps", "sh_ids", "sh_by_id", "sh_clients"),
        Space::NodePort => of("np", "np_eps", "np_ids", "np_by_id", "np_clients"),
        Space::ShortNodePort => of("sh_np", "sh_np_eps", "sh_np_ids", "sh_np_by_id", "sh_np_clients"),
        // Whoever dials a pod has no affinity to another.
        Space::Cut => of("cut", "cut_eps", "", "", ""),
    }
}

impl InnerChain {
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Pick { space, count } => format!("{}_{count}", maps(*space).verdicts),
            Self::Affinity { space, count, seconds } => format!("{}_{count}_for_{seconds}", maps(*space).verdicts),
            Self::From(networks) => {
                let mut digest = Sha256::new();
                networks.iter().for_each(|(address, length)| digest.update(format!("{address}/{length} ")));
                let digest: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
                format!("from_{digest}")
            }
        }
    }

    pub(crate) fn rules(&self, family: Family) -> Vec<Rule> {
        match self {
            Self::Pick { space, count } => picks(family, *space, *count),
            Self::Affinity { space, count, seconds } => affinity(family, *space, *count, *seconds),
            Self::From(networks) => from(networks),
        }
    }
}

/// Picks one of so many, or the first. A packet that was led here just before a commit looks into slots as they are after it: there
/// may be fewer, and the one that it picked may be gone. The first is there as long as any is.
fn picks(family: Family, space: Space, count: usize) -> Vec<Rule> {
    vec![pick(family, space, count), pick(family, space, 1)]
}

/// Picks one of so many, each as often as any other.
fn pick(family: Family, space: Space, count: usize) -> Rule {
    let words = if family == Family::Ip6 { 6 } else { 3 };
    let (key, slot) = match space.is_of_node() {
        true => (Rule::new().load_protocol_and_port(), 2),
        false => (Rule::new().load_destination(family), words),
    };
    key.with(random(count, Register::word(slot))).destination_from_map(family, maps(space).slots)
}

fn random(count: usize, to: Register) -> Expression {
    Expression::Random { modulus: u32::try_from(count).unwrap_or(1), to }
}

/// Backends have numbers that stay when they change their slots. A client's number that leads to nobody any more is replaced.
///
/// ```text
/// registers:  source | [destination] protocol port | number | backend
///             `-- key of clients ---------------'
///                      `-- key of by_id and ids -----------'
/// ```
fn affinity(family: Family, space: Space, count: usize, seconds: u32) -> Vec<Rule> {
    let words = if family == Family::Ip6 { 4 } else { 1 };
    let frontend = words;
    let protocol = if space.is_of_node() { frontend } else { frontend + words };
    let id = protocol + 2;
    let backend = id + 1;
    let maps = maps(space);
    let register = Register::word;
    let lookup = |map: &str, key, to| Expression::Lookup { map: map.into(), key: register(key), to: register(to) };
    let loaded = || {
        let rule = Rule::new().with(address(family, Side::Source, Register::FIRST));
        let rule = match space.is_of_node() {
            true => rule,
            false => rule.with(address(family, Side::Destination, register(frontend))),
        };
        let port = Expression::Payload { header: Header::Transport, at: 2, bytes: 2, to: register(protocol + 1) };
        rule.with(Expression::Meta { key: MetaKey::Protocol, to: register(protocol) }).with(port)
    };
    let remember = Expression::Remember {
        set: maps.clients.into(),
        key: Register::FIRST,
        value: Some(register(id)),
        milliseconds: u64::from(seconds) * 1000,
    };
    let forget = Expression::Forget { map: maps.clients.into(), key: Register::FIRST, value: register(id) };
    let send = Expression::Nat {
        kind: NatKind::Destination,
        family,
        address: register(backend),
        port: Some(register(backend + words)),
    };
    let found = [
        loaded()
            .with(lookup(maps.clients, 0, id))
            .with(lookup(maps.by_id, frontend, backend))
            .with(remember.clone())
            .with(send.clone()),
        loaded()
            .with(random(count, register(id)))
            .with(lookup(maps.ids, frontend, id))
            .with(forget)
            .with(lookup(maps.by_id, frontend, backend))
            .with(remember)
            .with(send),
    ];
    // So many clients that one more cannot be remembered.
    found.into_iter().chain(picks(family, space, count)).collect()
}

fn from(networks: &BTreeSet<Network>) -> Vec<Rule> {
    let mut rules: Vec<_> = networks
        .iter()
        .map(|(address, length)| {
            let rule = Rule::new().address_in(Side::Source, Relation::Equal, masked(*address, *length), *length);
            rule.verdict(Verdict::Return)
        })
        .collect();
    rules.push(Rule::new().verdict(Verdict::Drop));
    rules
}

fn masked(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(length.into())).unwrap_or(0);
            IpAddr::V4((address.to_bits() & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(length.into())).unwrap_or(0);
            IpAddr::V6((address.to_bits() & mask).into())
        }
    }
}

pub(crate) fn address(family: Family, side: Side, to: Register) -> Expression {
    let (at, bytes) = match (family == Family::Ip6, side) {
        (false, Side::Source) => (12, 4),
        (false, Side::Destination) => (16, 4),
        (true, Side::Source) => (8, 16),
        (true, Side::Destination) => (24, 16),
    };
    Expression::Payload { header: Header::Network, at, bytes, to }
}
