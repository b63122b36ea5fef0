//! The tables as they are in the kernel, and how they become what is wanted without a moment in which they are less.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use nft::{Batch, Nftables, Rule, Table, TableSpec};

use crate::model::{FROM_PODS, MAY_ENTER, MAY_LEAVE, TO_ITSELF, TO_PODS};
use crate::render::{FAMILIES, Name, Rendered, octets};
use crate::skeleton::{Settings, comment, fixed_set, is_fixed, skeleton, table};
use crate::wanted::{Content, Tables, Touched};

/// What is wanted of a difference, in two transactions: what is there first is whole without the second.
#[derive(Debug)]
pub(crate) struct Difference {
    pub(crate) changes: Batch,
    /// What nothing leads to any more.
    pub(crate) removals: Batch,
    /// Whether somebody who was allowed may be allowed no longer, for all that can be told from this.
    pub(crate) takes_away: bool,
}

/// Elements that are left as they are: of pods of which nothing is known yet.
pub(crate) fn is_kept(kept: &BTreeSet<IpAddr>, set: &str, key: &[u8]) -> bool {
    kept.iter().any(|address| {
        let own = octets(*address);
        match set {
            TO_PODS | MAY_ENTER | MAY_LEAVE => key == own,
            FROM_PODS | TO_ITSELF => key.len() > own.len() && key.ends_with(&own),
            _ => false,
        }
    })
}

/// What makes `applied` be `wanted`, as far as they were touched.
pub(crate) fn difference(
    settings: &Settings,
    wanted: &Tables,
    applied: &Tables,
    touched: &Touched,
    kept: &BTreeSet<IpAddr>,
) -> Difference {
    let (mut changes, mut removals) = (Batch::new(), Batch::new());
    let mut takes_away = false;
    let of = |name: &Name| table(settings, name.0);
    let new_chains = wanted.chains.iter().filter(|(name, _)| touched.chains.contains(*name));
    let new_chains: Vec<_> = new_chains.filter(|(name, _)| !applied.chains.contains_key(*name)).collect();
    for (name, _) in &new_chains {
        changes.add_chain(&of(name), &nft::Chain::inner(name.1.clone()));
    }
    for name in &touched.sets {
        if let (Some(Some(set)), false) = (wanted.sets.get(name), applied.sets.contains_key(name)) {
            changes.add_set(&of(name), set);
        }
    }
    let (mut added, mut deleted) = (BTreeMap::<&Name, Vec<_>>::new(), BTreeMap::<&Name, Vec<_>>::new());
    for (name, key) in &touched.elements {
        // Those of a set that goes, go with it.
        if !is_fixed(&name.1) && !wanted.sets.contains_key(name) {
            continue;
        }
        let content = |tables: &Tables| tables.elements.get(name).and_then(|of_set| of_set.get(key)).cloned();
        let (is, was) = (content(wanted), content(applied));
        if is == was || (is.is_none() && is_kept(kept, &name.1, key)) {
            continue;
        }
        if let Some(was) = was {
            takes_away = true;
            deleted.entry(name).or_default().push(was.element(key));
        }
        if let Some(is) = is {
            takes_away |= matches!(is, Content::Jump(_));
            added.entry(name).or_default().push(is.element(key));
        }
    }
    let set_of = |name: &Name| match wanted.sets.get(name) {
        Some(Some(set)) => set.clone(),
        _ => fixed_set(name.0, &name.1),
    };
    // Ahead of the chains that look into them are the sets, and ahead of what leads to chains their rules.
    for (name, rules) in &new_chains {
        rules.iter().for_each(|rule| changes.add_rule(&of(name), &name.1, rule));
    }
    for (name, elements) in &deleted {
        changes.delete_elements(&of(name), &set_of(name), elements);
    }
    for (name, elements) in &added {
        changes.add_elements(&of(name), &set_of(name), elements);
    }
    // Of pods that are not known yet the verdicts may lead to any chain.
    if kept.is_empty() {
        for name in touched.chains.iter().filter(|name| applied.chains.contains_key(*name)) {
            if !wanted.chains.contains_key(name) {
                removals.delete_chain(&of(name), &name.1);
            }
        }
        for name in touched.sets.iter().filter(|name| applied.sets.contains_key(*name) && !is_fixed(&name.1)) {
            if !wanted.sets.contains_key(name) {
                removals.delete_set(&of(name), &name.1);
            }
        }
    }
    Difference { changes, removals, takes_away }
}

/// Takes note that the changes were made, and the removals if `with_removals`.
pub(crate) fn note(
    wanted: &Tables,
    applied: &mut Tables,
    touched: &Touched,
    with_removals: bool,
    kept: &BTreeSet<IpAddr>,
) {
    for name in &touched.chains {
        match wanted.chains.contains_key(name) {
            true => drop(applied.chains.insert(name.clone(), Vec::new())),
            false if with_removals => drop(applied.chains.remove(name)),
            false => {}
        }
    }
    for name in &touched.sets {
        match wanted.sets.contains_key(name) {
            true => drop(applied.sets.insert(name.clone(), None)),
            false if with_removals && !is_fixed(&name.1) => {
                applied.sets.remove(name);
                applied.elements.remove(name);
            }
            false => {}
        }
    }
    for (name, key) in &touched.elements {
        if !is_fixed(&name.1) && !wanted.sets.contains_key(name) {
            continue;
        }
        match wanted.elements.get(name).and_then(|of_set| of_set.get(key)) {
            Some(content) => {
                applied.elements.entry(name.clone()).or_default().insert(key.clone(), content.clone());
            }
            None if is_kept(kept, &name.1, key) => {}
            None => {
                applied.elements.get_mut(name).map(|of_set| of_set.remove(key));
            }
        }
    }
}

/// Makes the tables be what is wanted, whatever was there, in one transaction.
pub(crate) fn replace(nftables: &mut Nftables, settings: &Settings, wanted: &Tables) -> Result<Tables, nft::Error> {
    let mut batch = Batch::new();
    for family in FAMILIES {
        let mut spec = TableSpec { comment: Some(comment(settings, family)), ..skeleton(settings, family) };
        let elements = |name: &Name| {
            let of_set = wanted.elements.get(name).into_iter().flatten();
            of_set.map(|(key, content)| content.element(key)).collect::<Vec<_>>()
        };
        for (set, into) in &mut spec.sets {
            *into = elements(&(family, set.name.clone()));
        }
        let own = wanted.sets.iter().filter(|(name, _)| name.0 == family);
        spec.sets.extend(own.filter_map(|(name, set)| Some((set.clone()?, elements(name)))));
        let own = wanted.chains.iter().filter(|(name, _)| name.0 == family);
        spec.chains.extend(own.map(|(name, rules)| (nft::Chain::inner(name.1.clone()), rules.clone())));
        batch.replace_table(&spec);
    }
    nftables.commit(batch)?;
    let mut applied = Tables::default();
    note(wanted, &mut applied, &Touched::all(wanted, wanted), true, &BTreeSet::new());
    Ok(applied)
}

/// What is in the tables; `None` if they are not there, of another version, or not whole.
pub(crate) fn read(
    nftables: &mut Nftables,
    settings: &Settings,
    wanted: &Tables,
) -> Result<Option<Tables>, nft::Error> {
    let listed = nftables.tables()?;
    let mut tables = Tables::default();
    for family in FAMILIES {
        let spec = skeleton(settings, family);
        let comment = Some(comment(settings, family));
        if !listed.iter().any(|it| it.table == spec.table && it.comment == comment) {
            return Ok(None);
        }
        let mut rules: BTreeMap<String, Vec<Vec<String>>> = BTreeMap::new();
        for rule in nftables.rules(&spec.table)? {
            rules.entry(rule.chain).or_default().push(rule.expressions);
        }
        let steps = |rules: &[Rule]| -> Vec<Vec<String>> {
            let steps = |rule: &Rule| rule.expressions.iter().map(|step| step.name().to_owned()).collect();
            rules.iter().map(steps).collect()
        };
        let mut is_as = |chain: &str, own: &[Rule]| rules.remove(chain).unwrap_or_default() == steps(own);
        if !spec.chains.iter().all(|(chain, own)| is_as(&chain.name, own)) {
            return Ok(None);
        }
        for chain in nftables.chains(&spec.table)? {
            if spec.chains.iter().any(|(own, _)| own.name == chain.name) {
                continue;
            }
            let name = (family, chain.name);
            if chain.is_base || wanted.chains.get(&name).is_some_and(|own| !is_as(&name.1, own)) {
                return Ok(None);
            }
            tables.chains.insert(name, Vec::new());
        }
        let there: Vec<_> = nftables.sets(&spec.table)?;
        if !spec.sets.iter().all(|(set, _)| there.iter().any(|it| it.name == set.name)) {
            return Ok(None);
        }
        for set in there.into_iter().map(|set| set.name).filter(|set| set != crate::skeleton::DENIED) {
            let name = (family, set);
            if !is_fixed(&name.1) {
                tables.sets.insert(name.clone(), None);
            }
            let elements = nftables.elements(&spec.table, &name.1)?;
            let known = elements.into_iter().filter_map(|it| Some((it.key.clone(), Content::of(&it)?)));
            tables.elements.insert(name, known.collect());
        }
    }
    Ok(Some(tables))
}

/// Writes what is always there, and takes it back: whether this kernel can do it.
pub(crate) fn trial_of_skeleton(settings: &Settings) -> Batch {
    let mut batch = Batch::new();
    for family in FAMILIES {
        let spec = TableSpec { table: trial_table(settings, family), ..skeleton(settings, family) };
        batch.replace_table(&spec);
        batch.delete_table(&spec.table);
    }
    batch
}

fn trial_table(settings: &Settings, family: nft::Family) -> Table {
    Table::new(family, format!("{}-trial", settings.prefix))
}

/// Writes what a policy needs, and takes it back: whether the kernel takes it.
pub(crate) fn trial(batch: &mut Batch, settings: &Settings, of: &[&Rendered]) {
    let name = |name: &str| format!("trial_{name}");
    for family in FAMILIES {
        let table = trial_table(settings, family);
        batch.remove_table(&table);
        batch.add_table(&table);
        for rendered in of {
            for (_, (set, elements)) in rendered.constant.iter().filter(|((of, _), _)| *of == family) {
                batch.add_set(&table, set);
                batch.add_elements(&table, set, elements);
            }
            rendered.dynamic.values().for_each(|set| batch.add_set(&table, &set.set(family)));
            for ((_, chain), rules) in rendered.chains.iter().filter(|((of, _), _)| *of == family) {
                batch.add_chain(&table, &nft::Chain::inner(name(chain)));
                rules.iter().for_each(|rule| batch.add_rule(&table, &name(chain), rule));
            }
        }
        batch.delete_table(&table);
    }
}
