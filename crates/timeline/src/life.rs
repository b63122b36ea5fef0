//! What is read back: the lives that are not over, each with all that happened in it.

use std::collections::HashMap;
use std::ops::Range;

use lifecycle::{Effect, Input, Moment, PodIdentity, PodSpec, Wall};

use crate::record::{Entry, Record};

/// One pod's life so far.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Life {
    /// The pod's UID.
    pub uid: String,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// What it asks for.
    pub spec: PodSpec,
    /// When the node took it on.
    pub adopted_at: Moment,
    /// The boot that its newest record belongs to. In another boot its moments mean nothing until the worker is told
    /// (`Input::Rebooted`), which is itself a record of that boot.
    pub boot_id: String,
    /// What its worker was told and answered, in order: when, when for people, what, and the answer.
    pub steps: Vec<(Moment, Wall, Input, Vec<Effect>)>,
}

/// All lives of a journal while it is being read, and which bytes each one needs.
#[derive(Debug, Default)]
pub(crate) struct Lives {
    /// In the order they began; `None` once forgotten.
    lives: Vec<Option<Life>>,
    /// The life a UID stands for.
    open: HashMap<String, usize>,
    pub(crate) boot_id: Option<String>,
    parts: Vec<(Part, Range<usize>)>,
}

#[derive(Debug)]
enum Part {
    Boot,
    Of(usize),
}

impl Lives {
    /// Takes in the entry that stands at `at` in the file.
    pub(crate) fn take(&mut self, entry: Entry, at: Range<usize>) {
        let part = match entry {
            Entry::Boot { boot_id } => {
                self.boot_id = Some(boot_id);
                Some(Part::Boot)
            }
            Entry::Of(Record::Adopted { uid, namespace, name, mut spec, at }) => {
                spec.identity = PodIdentity { namespace: namespace.clone(), name: name.clone(), uid: uid.clone() };
                self.forget(&uid);
                self.open.insert(uid.clone(), self.lives.len());
                let boot_id = self.boot_id.clone().unwrap_or_default();
                let life = Life { uid, namespace, name, spec, adopted_at: at, boot_id, steps: Vec::new() };
                self.lives.push(Some(life));
                Some(Part::Of(self.lives.len() - 1))
            }
            Entry::Of(Record::Step { uid, at, wall, input, effects }) => {
                // A step of a life that is over came late, and is part of no life.
                self.open.get(&uid).copied().map(|index| {
                    if let Some(life) = &mut self.lives[index] {
                        life.boot_id = self.boot_id.clone().unwrap_or_default();
                        life.steps.push((at, wall, input, effects));
                    }
                    Part::Of(index)
                })
            }
            Entry::Of(Record::Forgotten { uid }) => {
                self.forget(&uid);
                None
            }
        };
        self.parts.extend(part.map(|part| (part, at)));
    }

    fn forget(&mut self, uid: &str) {
        if let Some(index) = self.open.remove(uid) {
            self.lives[index] = None;
        }
    }

    /// The bytes of the file that what goes on needs, in order. A boot nobody's moments belong to is left out.
    pub(crate) fn needed(&self) -> Vec<Range<usize>> {
        let mut needed = Vec::new();
        let mut boot = None;
        for (part, at) in &self.parts {
            match part {
                Part::Boot => boot = Some(at),
                Part::Of(index) if self.lives[*index].is_some() => {
                    needed.extend(boot.take().cloned());
                    needed.push(at.clone());
                }
                Part::Of(_) => {}
            }
        }
        needed.extend(boot.cloned());
        needed
    }

    pub(crate) fn into_lives(self) -> Vec<Life> {
        self.lives.into_iter().flatten().collect()
    }
}
