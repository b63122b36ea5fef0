//! Who owns whom, and what follows from it: pure, fed by watches of every kind.
//!
//! Things are known by UID, so that a name that is used again is another thing. A change answers which things deserve a
//! look; a look ([`Graph::need`]) answers what is to be done, without asking anyone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use client::WatchUpdate;
use frame::{Controller, Now, Plan};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{DynamicObject, PartialObjectMeta};

use super::effects::to_thing;
use super::resources::ResourceId;

/// An object's UID.
pub(super) type Uid = Arc<str>;

/// One object, as far as the collector cares.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Thing {
    pub(super) resource: ResourceId,
    /// Empty for cluster-scoped kinds.
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) uid: Uid,
    pub(super) owners: Vec<Owner>,
    pub(super) leaving: Leaving,
}

impl Thing {
    /// The thing as events name it.
    pub(super) fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some(self.resource.0.api.api_version.clone()),
            kind: Some(self.resource.0.api.kind.clone()),
            name: Some(self.name.to_string()),
            namespace: Some(self.namespace.to_string()).filter(|namespace| !namespace.is_empty()),
            uid: Some(self.uid.to_string()),
            ..ObjectReference::default()
        }
    }
}

/// A reference to an owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Owner {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) uid: Uid,
    /// Whether an owner that leaves in the foreground waits for this dependent.
    pub(super) blocks: bool,
}

/// Whether a thing is on its way out, and what of the collector it waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Leaving {
    /// It stays.
    No,
    /// It leaves, and the collector has no part in that.
    ByItself,
    /// It goes when nothing that blocks it is left.
    AfterDependents,
    /// It goes when nothing calls it its owner any more.
    AfterOrphaning,
}

/// What the graph knows about an owner that a thing names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// It is there and stays, or leaves without caring for its dependents.
    Solid,
    /// It waits for its dependents to go.
    Waiting,
    /// Not known (yet): only the server can tell.
    Unknown,
    /// Something with this UID lives where the reference cannot reach it.
    Elsewhere,
}

/// What a thing needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Need {
    /// Nothing.
    Nothing,
    /// Its dependents are to forget it; then it may go.
    Orphaning,
    /// Nothing outside `circle` (itself, and those that wait for each other with it) holds it: it may go.
    LettingGo {
        /// All of them leave in the foreground, each waiting for another.
        circle: BTreeSet<Uid>,
    },
    /// Some of its owners may be gone, or want it gone.
    Judging {
        /// What is known of each owner it names.
        owners: Vec<(Owner, Standing)>,
        /// Whether anything names it as an owner.
        has_dependents: bool,
    },
}

/// All things, and the way from an owner to its dependents.
#[derive(Default, Debug)]
pub(super) struct Graph {
    things: BTreeMap<Uid, Thing>,
    dependents: BTreeMap<Uid, BTreeSet<Uid>>,
}

impl Graph {
    pub(super) fn get(&self, uid: &str) -> Option<&Thing> {
        self.things.get(uid)
    }

    /// Takes in a thing as it is. Answers who deserves a look.
    pub(super) fn put(&mut self, thing: Thing) -> BTreeSet<Uid> {
        let uid = thing.uid.clone();
        let mut look = BTreeSet::from([uid.clone()]);
        if let Some(old) = self.things.remove(&uid) {
            look.extend(self.unlink(&old));
            if old.leaving != thing.leaving {
                look.extend(self.dependents_of(&uid).cloned());
            }
        }
        for owner in &thing.owners {
            self.dependents.entry(owner.uid.clone()).or_default().insert(uid.clone());
        }
        look.extend(self.waiting_owners(&thing));
        self.things.insert(uid, thing);
        look
    }

    /// Takes in that a thing is gone. Answers who deserves a look.
    pub(super) fn remove(&mut self, uid: &str) -> BTreeSet<Uid> {
        let Some(old) = self.things.remove(uid) else { return BTreeSet::new() };
        let mut look = self.unlink(&old);
        look.extend(self.dependents_of(uid).cloned());
        look
    }

    /// Takes in everything there is of one resource. Answers who deserves a look.
    pub(super) fn replace(&mut self, resource: ResourceId, things: Vec<Thing>) -> BTreeSet<Uid> {
        let now: BTreeSet<&Uid> = things.iter().map(|thing| &thing.uid).collect();
        let here = self.things.values().filter(|thing| thing.resource == resource);
        let gone: Vec<Uid> = here.map(|thing| thing.uid.clone()).filter(|uid| !now.contains(uid)).collect();
        let mut look: BTreeSet<Uid> = gone.iter().flat_map(|uid| self.remove(uid)).collect();
        for thing in things {
            look.extend(self.put(thing));
        }
        look
    }

    /// What the thing needs, as far as is known.
    pub(super) fn need(&self, uid: &str) -> Need {
        let Some(thing) = self.things.get(uid) else { return Need::Nothing };
        match thing.leaving {
            Leaving::ByItself => Need::Nothing,
            Leaving::AfterOrphaning => Need::Orphaning,
            Leaving::AfterDependents => {
                let circle = self.circle(&thing.uid);
                let held = circle.iter().any(|one| self.blockers_of(one).any(|blocker| !circle.contains(blocker)));
                if held { Need::Nothing } else { Need::LettingGo { circle } }
            }
            Leaving::No => {
                let owners: Vec<(Owner, Standing)> =
                    thing.owners.iter().map(|owner| (owner.clone(), self.standing(thing, owner))).collect();
                if owners.iter().all(|(_, standing)| *standing == Standing::Solid) {
                    return Need::Nothing;
                }
                Need::Judging { owners, has_dependents: self.dependents_of(uid).next().is_some() }
            }
        }
    }

    fn standing(&self, thing: &Thing, owner: &Owner) -> Standing {
        let Some(found) = self.things.get(&owner.uid) else { return Standing::Unknown };
        if !found.namespace.is_empty() && found.namespace != thing.namespace {
            return Standing::Elsewhere;
        }
        // A reference that has the UID right and the name wrong is for the server to judge.
        if *found.name != *owner.name || !found.resource.is(&owner.group, &owner.kind) {
            return Standing::Unknown;
        }
        if found.leaving == Leaving::AfterDependents { Standing::Waiting } else { Standing::Solid }
    }

    fn dependents_of(&self, uid: &str) -> impl Iterator<Item = &Uid> {
        self.dependents.get(uid).into_iter().flatten()
    }

    /// The dependents that a foreground deletion of `uid` waits for.
    fn blockers_of(&self, uid: &str) -> impl Iterator<Item = &Uid> {
        let owner = self.things.get(uid);
        self.dependents_of(uid).filter(move |dependent| {
            let Some(thing) = self.things.get(*dependent) else { return false };
            // One in another namespace is none of its own, whatever its references say.
            let is_elsewhere = owner.is_some_and(|it| !it.namespace.is_empty() && it.namespace != thing.namespace);
            !is_elsewhere && thing.owners.iter().any(|owner| &*owner.uid == uid && owner.blocks)
        })
    }

    /// `uid` and all that wait for it while it waits for them. They would wait for ever, so they count as one.
    fn circle(&self, uid: &Uid) -> BTreeSet<Uid> {
        let mut circle = self.waits_for(uid);
        circle.retain(|other| self.waits_for(other).contains(uid));
        circle.insert(uid.clone());
        circle
    }

    /// Everything in foreground deletion that `uid` waits for, directly or not.
    fn waits_for(&self, uid: &Uid) -> BTreeSet<Uid> {
        let mut found = BTreeSet::new();
        let mut open = vec![uid];
        while let Some(next) = open.pop() {
            for blocker in self.blockers_of(next) {
                let waits = self.things.get(blocker).is_some_and(|thing| thing.leaving == Leaving::AfterDependents);
                if waits && found.insert(blocker.clone()) {
                    open.push(blocker);
                }
            }
        }
        found
    }

    /// Takes the thing out of its owners' lists. Answers the owners that may have waited for it.
    fn unlink(&mut self, old: &Thing) -> BTreeSet<Uid> {
        for owner in &old.owners {
            if let Some(dependents) = self.dependents.get_mut(&owner.uid) {
                dependents.remove(&old.uid);
                if dependents.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
        }
        self.waiting_owners(old)
    }

    /// Owners in foreground deletion, with those that wait for them in a circle.
    fn waiting_owners(&self, thing: &Thing) -> BTreeSet<Uid> {
        let waiting = |uid: &Uid| self.things.get(uid).is_some_and(|owner| owner.leaving == Leaving::AfterDependents);
        let owners = thing.owners.iter().map(|owner| &owner.uid).filter(|uid| waiting(uid));
        owners.flat_map(|uid| self.circle(uid)).collect()
    }
}

/// A thing, and what it needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Collection {
    pub(super) thing: Thing,
    pub(super) need: Need,
}

impl Controller for Graph {
    type Input = (ResourceId, WatchUpdate<PartialObjectMeta<DynamicObject>>);
    type Key = Uid;
    type Action = Collection;
    type Answer = ();

    fn observe(&mut self, _: Now, (resource, sight): Self::Input) -> Vec<Uid> {
        let look = match sight {
            WatchUpdate::Listed(all) => {
                let things = all.iter().filter_map(|object| to_thing(&resource, object)).collect();
                self.replace(resource, things)
            }
            WatchUpdate::Changed(object) => {
                to_thing(&resource, &object).map(|thing| self.put(thing)).unwrap_or_default()
            }
            WatchUpdate::Removed(object) => self.remove(object.metadata.uid.as_deref().unwrap_or_default()),
        };
        look.into_iter().collect()
    }

    fn plan(&self, uid: &Uid, _: Now) -> Plan<Collection> {
        match (self.get(uid), self.need(uid)) {
            (None, _) | (_, Need::Nothing) => Plan::default(),
            (Some(thing), need) => Plan::act(Collection { thing: thing.clone(), need }),
        }
    }
}

#[cfg(test)]
#[path = "graph_tests.rs"]
mod tests;
