//! Who has to go so that a more important pod finds a node: pure, tried out in the world as it is known.
//!
//! On every node all who matter less are thought away; if the pod fits then, they come back one by one, the most important
//! first, for as long as the pod still fits. Who cannot come back has to go. Of the nodes the one is taken where that does
//! the least harm.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use api::pod;
use jiff::Timestamp;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;

use super::affinity;
use super::fit::{obstacles, refusal};
use super::resources::Amounts;
use super::spread::Spread;
use super::world::{NodeState, Nominees, Resident, Uid, World};
use crate::pod::PodView;
use crate::selector::is_empty;

/// A budget, as far as it may be overdrawn.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    namespace: String,
    selector: Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector>,
    allowed: i32,
    /// Who was counted already, by name.
    disrupted: BTreeSet<String>,
}

impl Budget {
    pub(super) fn of(object: &PodDisruptionBudget) -> Self {
        let status = object.status.as_ref();
        let disrupted = status.and_then(|status| status.disrupted_pods.as_ref()).into_iter().flatten();
        Self {
            namespace: object.namespace().unwrap_or_default(),
            selector: object.spec.as_ref().and_then(|spec| spec.selector.clone()),
            allowed: status.and_then(|status| status.disruptions_allowed).unwrap_or(0),
            disrupted: disrupted.map(|(name, _)| name.clone()).collect(),
        }
    }

    fn counts(&self, resident: &Resident) -> bool {
        let speaks = |selector| !is_empty(selector) && affinity::speaks_of(selector, resident);
        *self.namespace == *resident.namespace
            && self.selector.as_ref().is_some_and(speaks)
            && !self.disrupted.contains(&*resident.name)
    }
}

/// A node for a pod, and who has to leave it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Choice {
    pub(super) node: Arc<str>,
    /// Nobody, if those who are leaving anyway are enough.
    pub(super) victims: Vec<Uid>,
}

/// The least harm first: budgets overdrawn; how important the most important victim is, and all of them together; how many
/// they are; and how long the most important of them has been there.
type Harm = (usize, i32, i64, usize, Reverse<Option<Timestamp>>);

/// What is tried out.
pub(super) struct Attempt<'a> {
    pub(super) pod: &'a PodView,
    pub(super) asked: &'a Amounts,
    /// How it is to be spread.
    pub(super) spread: &'a Spread<'a>,
    /// Others who wait for room that was made for them.
    pub(super) nominees: &'a Nominees,
    pub(super) budgets: Vec<Budget>,
    /// Who leaves already.
    pub(super) leaving: &'a dyn Fn(&str, &Resident) -> bool,
}

impl Attempt<'_> {
    /// Whether anybody matters less.
    pub(super) fn is_worth_it(&self, world: &World) -> bool {
        let own = pod::priority(self.pod);
        world.residents().any(|(resident, _)| resident.priority < own)
    }

    /// Where the pod would find room, and who has to go for that, tried out in a world of its own.
    pub(super) fn choose(&self, mut world: World) -> Option<Choice> {
        let own = pod::priority(self.pod);
        let nodes: Vec<Arc<str>> = world
            .places()
            .filter(|place| refusal(self.pod, &place.node).is_none())
            .map(|place| Arc::clone(&place.node.name))
            .collect();
        let choices = nodes.into_iter().filter_map(|node| self.on(&node, own, &mut world));
        choices
            .min_by(|(a, one), (b, other)| a.cmp(b).then_with(|| one.node.cmp(&other.node)))
            .map(|(_, choice)| choice)
    }

    /// The same for one node.
    fn on(&self, node: &Arc<str>, own: i32, world: &mut World) -> Option<(Harm, Choice)> {
        let (mut away, mut spread): (Vec<(Uid, Resident)>, _) = (Vec::new(), self.spread.clone());
        let facts = world.place(node)?.node.clone();
        for uid in world.residents_on(node) {
            if world.resident(&uid).is_some_and(|resident| resident.priority < own) {
                away.extend(world.take(&uid).map(|resident| (uid, resident)));
            }
        }
        away.iter().for_each(|(_, resident)| spread.think(resident, &facts, false));
        let fits = self.fits(node, world, &spread);
        let (leaving, staying): (Vec<_>, Vec<_>) =
            away.into_iter().partition(|(uid, resident)| (self.leaving)(uid, resident));
        let mut harm: Harm = (0, i32::MIN, 0, 0, Reverse(None));
        let mut victims = Vec::new();
        for (overdraws, uid, resident) in self.in_order(staying) {
            let (priority, since) = (resident.priority, resident.since);
            spread.think(&resident, &facts, true);
            world.put(&uid, resident);
            if !fits || self.fits(node, world, &spread) {
                continue;
            }
            let Some(resident) = world.take(&uid) else { continue };
            spread.think(&resident, &facts, false);
            harm.0 += usize::from(overdraws);
            if priority > harm.1 {
                (harm.1, harm.4) = (priority, Reverse(since));
            }
            harm.2 += i64::from(priority) + i64::from(i32::MAX) + 1;
            harm.3 += 1;
            victims.push((uid, resident));
        }
        let choice =
            Choice { node: Arc::clone(node), victims: victims.iter().map(|(uid, _)| Arc::clone(uid)).collect() };
        for (uid, resident) in victims.into_iter().chain(leaving) {
            world.put(&uid, resident);
        }
        fits.then_some((harm, choice))
    }

    fn fits(&self, node: &str, world: &World, spread: &Spread<'_>) -> bool {
        let fits = |place: &NodeState| obstacles(self.pod, self.asked, place, world, self.nominees, spread).is_empty();
        world.place(node).is_some_and(fits)
    }

    /// In the order in which they come back: first those whose leaving would overdraw a budget, then the most important, then
    /// who has been there longest.
    fn in_order(&self, mut residents: Vec<(Uid, Resident)>) -> Vec<(bool, Uid, Resident)> {
        residents.sort_by(|(a, one), (b, other)| {
            Reverse(one.priority).cmp(&Reverse(other.priority)).then(one.since.cmp(&other.since)).then(a.cmp(b))
        });
        let mut left: Vec<i32> = self.budgets.iter().map(|budget| budget.allowed).collect();
        let overdraws = |(uid, resident): (Uid, Resident)| {
            let mut overdrawn = false;
            for (_, left) in self.budgets.iter().zip(&mut left).filter(|(budget, _)| budget.counts(&resident)) {
                *left -= 1;
                overdrawn |= *left < 0;
            }
            (overdrawn, uid, resident)
        };
        let mut all: Vec<_> = residents.into_iter().map(overdraws).collect();
        all.sort_by_key(|(overdraws, ..)| !overdraws);
        all
    }
}
