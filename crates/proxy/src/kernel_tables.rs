//! The tables as they are in the kernel, and how they become what is wanted without a moment in which they are less.
//!
//! What changed is written as a difference, in parts that are whole each. Whoever does not know what is there (after a start, a
//! failure, a foreign change, once an hour) reads it, and writes what differs. Only tables of another version are replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Range;

use nft::{Batch, Family, Nftables};

use crate::inner_chains::{InnerChain, maps};
use crate::rules::{Diff, Key, Ruleset, read_address_key};
use crate::skeleton::{SETS, Settings, skeleton, table};
use crate::wanted::{Backend, Frontend, Space, Wanted};

const FAMILIES: [Family; 2] = [Family::Ip, Family::Ip6];
/// How many elements one transaction changes, if it can be helped: the kernel lets nobody else in meanwhile.
const PART_ELEMENTS_MAX: usize = 4_000;

/// What became of changes.
#[derive(Default, Debug)]
pub(crate) struct Written {
    /// Who cannot have what they want, and why. What they had before stays.
    pub(crate) refused: BTreeMap<String, String>,
    /// Frontends whose flows may have to move, and who serves.
    pub(crate) flows: BTreeMap<Frontend, BTreeSet<Backend>>,
    /// How many elements were changed.
    pub(crate) elements: usize,
}

/// Writes what changed. If the kernel refuses it, what is there is read, and everybody gets theirs but those whom it refuses alone.
pub(crate) fn apply(
    nftables: &mut Nftables,
    ruleset: &mut Ruleset,
    settings: &Settings,
    changes: BTreeMap<String, Wanted>,
    inherited: &BTreeSet<IpAddr>,
) -> Result<Written, nft::Error> {
    let mut written = Written::default();
    let mut diff = Diff::default();
    let mut changes = changes.into_iter().peekable();
    while let Some((owner, wanted)) = changes.next() {
        ruleset.set(&owner, wanted, &mut diff);
        if changes.peek().is_some() && diff.len() < PART_ELEMENTS_MAX {
            continue;
        }
        if let Err(error) = commit(nftables, settings, &mut diff, &mut written) {
            tracing::warn!(
                error = supervision::error_chain(&error),
                "the kernel refused rules; who is at fault is looked for"
            );
            let mut all = ruleset.wanted().clone();
            all.extend(changes);
            return reconcile(nftables, ruleset, settings, all, inherited);
        }
    }
    remove_idle_chains(nftables, ruleset, settings);
    Ok(written)
}

fn commit(
    nftables: &mut Nftables,
    settings: &Settings,
    diff: &mut Diff,
    written: &mut Written,
) -> Result<(), nft::Error> {
    let diff = std::mem::take(diff);
    if !diff.is_empty() {
        if let Some(chains) = diff.chains(settings) {
            nftables.commit(chains)?;
        }
        nftables.commit(diff.elements(settings))?;
    }
    written.elements += diff.len();
    written.flows.extend(diff.flows);
    Ok(())
}

/// A failure costs memory of the kernel, nothing else.
fn remove_idle_chains(nftables: &mut Nftables, ruleset: &mut Ruleset, settings: &Settings) {
    let idle = ruleset.take_idle_chains();
    let mut batch = Batch::new();
    for (family, chain) in &idle {
        batch.delete_chain(&table(settings, *family), chain);
    }
    if let Err(error) = nftables.commit(batch) {
        tracing::debug!(error = supervision::error_chain(&error), "chains that nothing leads to stay");
    }
}

/// Reads what is there and writes what differs from what all owners want. Cuts of these addresses stay, whoever made them.
pub(crate) fn reconcile(
    nftables: &mut Nftables,
    ruleset: &mut Ruleset,
    settings: &Settings,
    all: BTreeMap<String, Wanted>,
    inherited: &BTreeSet<IpAddr>,
) -> Result<Written, nft::Error> {
    let mut known = match read(nftables, settings)? {
        Some(known) => known,
        None => {
            replace(nftables, settings, all.clone())?;
            read(nftables, settings)?.unwrap_or_default()
        }
    };
    let mut written = Written::default();
    let all: Vec<_> = all.into_iter().collect();
    // Parts that are yet to be tried, the next one last, and those that are in the kernel.
    let mut parts: Vec<Range<usize>> = std::iter::once(0..all.len()).collect();
    let mut applied: Vec<Range<usize>> = Vec::new();
    while let Some(part) = parts.pop() {
        let mut diff = Diff::default();
        let mut end = part.start;
        while let Some((owner, wanted)) = all[..part.end].get(end).filter(|_| diff.len() < PART_ELEMENTS_MAX) {
            known.set(owner, wanted.clone(), &mut diff);
            end += 1;
        }
        match commit(nftables, settings, &mut diff, &mut written) {
            Ok(()) => {
                applied.push(part.start..end);
                parts.push(end..part.end);
            }
            Err(error) => {
                // What is known includes what was refused: it is read anew.
                let Some(there) = read(nftables, settings)? else { return Err(error) };
                known = there;
                for (owner, wanted) in applied.iter().flat_map(|part| &all[part.clone()]) {
                    known.set(owner, wanted.clone(), &mut Diff::default());
                }
                let middle = part.start + (end - part.start) / 2;
                if middle > part.start {
                    parts.extend([middle..part.end, part.start..middle]);
                } else {
                    let Some((owner, _)) = all[..part.end].get(part.start) else { return Err(error) };
                    written.refused.insert(owner.clone(), supervision::error_chain(&error));
                    parts.push(part.start + 1..part.end);
                }
            }
        }
        parts.retain(|part| !part.is_empty());
    }
    // What those had whom the kernel refuses is nobody's, and stays.
    if written.refused.is_empty() {
        let mut diff = Diff::default();
        known.remove_leftovers(inherited, &mut diff);
        commit(nftables, settings, &mut diff, &mut written)?;
    }
    remove_idle_chains(nftables, &mut known, settings);
    *ruleset = known;
    Ok(written)
}

/// Replaces the tables in one transaction: by all of what is wanted, or by nothing if that cannot be.
pub(crate) fn replace(
    nftables: &mut Nftables,
    settings: &Settings,
    all: BTreeMap<String, Wanted>,
) -> Result<(), nft::Error> {
    let mut ruleset = Ruleset::default();
    for (owner, wanted) in all {
        ruleset.set(&owner, wanted, &mut Diff::default());
    }
    let whole = |ruleset: &Ruleset| {
        let mut batch = Batch::new();
        ruleset.tables(settings).iter().for_each(|spec| batch.replace_table(spec));
        batch
    };
    match nftables.commit(whole(&ruleset)) {
        Ok(()) => Ok(()),
        Err(_) => nftables.commit(whole(&Ruleset::default())),
    }
}

/// The addresses that are cut; none if the tables are of another version.
pub(crate) fn cut_addresses(nftables: &mut Nftables, settings: &Settings) -> BTreeSet<IpAddr> {
    let mut addresses = BTreeSet::new();
    for family in FAMILIES {
        let cut = nftables.elements(&table(settings, family), maps(Space::Cut).verdicts).unwrap_or_default();
        addresses.extend(cut.iter().filter_map(|it| Some(read_address_key(family, &it.key)?.0)));
    }
    addresses
}

/// What is in the tables; nothing if they are not there, of another version, or not whole.
pub(crate) fn read(nftables: &mut Nftables, settings: &Settings) -> Result<Option<Ruleset>, nft::Error> {
    let listed = nftables.tables()?;
    let mut elements: BTreeMap<Key, _> = BTreeMap::new();
    let mut chains = Vec::new();
    for family in FAMILIES {
        let spec = skeleton(settings, family);
        if !listed.iter().any(|it| it.table == spec.table && it.comment == spec.comment) {
            return Ok(None);
        }
        let mut rules: BTreeMap<String, Vec<Vec<String>>> = BTreeMap::new();
        for rule in nftables.rules(&spec.table)? {
            rules.entry(rule.chain).or_default().push(rule.expressions);
        }
        let names = |rules: &[nft::Rule]| -> Vec<Vec<String>> {
            let steps = |rule: &nft::Rule| rule.expressions.iter().map(|step| step.name().to_owned()).collect();
            rules.iter().map(steps).collect()
        };
        let is_whole =
            spec.chains.iter().all(|(chain, own)| rules.remove(&chain.name).unwrap_or_default() == names(own));
        let there = nftables.sets(&spec.table)?;
        if !is_whole || !spec.sets.iter().all(|(set, _)| there.iter().any(|it| it.name == set.name)) {
            return Ok(None);
        }
        for chain in nftables.chains(&spec.table)? {
            if spec.chains.iter().any(|(own, _)| own.name == chain.name) {
                continue;
            }
            let own = rules.remove(&chain.name).unwrap_or_default();
            if !is_inner(&chain.name, &own, family, names) {
                return Ok(None);
            }
            chains.push((family, chain.name));
        }
        for set in SETS {
            let own = nftables.elements(&spec.table, set)?;
            elements.extend(own.into_iter().map(|it| ((family, set, it.key), it.value)));
        }
    }
    Ok(Some(Ruleset::adopt(elements, chains)))
}

/// Whether a chain has the rules that its name promises.
fn is_inner(
    name: &str,
    rules: &[Vec<String>],
    family: Family,
    names: impl Fn(&[nft::Rule]) -> Vec<Vec<String>>,
) -> bool {
    if name.starts_with("from_") {
        let (last, ranges) = match rules.split_last() {
            Some(split) => split,
            None => return false,
        };
        let range = ["payload", "bitwise", "cmp", "immediate"];
        return last == &["immediate"] && ranges.iter().all(|rule| rule == &range);
    }
    let spaces = [Space::Service, Space::Short, Space::NodePort, Space::ShortNodePort, Space::Cut];
    spaces.into_iter().any(|space| {
        let Some(rest) = name.strip_prefix(maps(space).verdicts) else { return false };
        let Some(rest) = rest.strip_prefix('_') else { return false };
        let chain = match rest.split_once("_for_") {
            Some((count, seconds)) => count
                .parse()
                .ok()
                .zip(seconds.parse().ok())
                .map(|(count, seconds)| InnerChain::Affinity { space, count, seconds }),
            None => rest.parse().ok().map(|count| InnerChain::Pick { space, count }),
        };
        chain.is_some_and(|chain| rules == names(&chain.rules(family)))
    })
}
