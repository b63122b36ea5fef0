//! What is read back: the lives that are not over, each with all that happened in it.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use lifecycle::{Effect, Input, Moment, PodIdentity, PodSnapshot, PodSpec, PodWorker, Wall};

use crate::index::{Index, Mark};
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
    /// What stands for all that happened before the first of the steps, if anything did.
    pub fold: Option<Fold>,
    /// What its worker was told and answered, in order: when, when for people, what, and the answer.
    pub steps: Vec<(Moment, Wall, Input, Vec<Effect>)>,
}

/// A life up to some moment, put down in one piece.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fold {
    /// When that was.
    pub at: Moment,
    /// The same for people.
    pub wall: Wall,
    /// When the first step was.
    pub start: Wall,
    /// What its worker knew.
    pub snapshot: PodSnapshot,
}

/// What is still to be told of a life that is over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Concluded {
    /// The pod's UID.
    pub uid: String,
    /// When it was concluded.
    pub wall: Wall,
    /// What is to be told, as it was given.
    pub record: String,
}

impl Life {
    /// The worker as it was before the first of the steps.
    pub fn begin(&self) -> PodWorker {
        match &self.fold {
            Some(fold) => PodWorker::remembered(self.spec.clone(), fold.snapshot.clone()),
            None => PodWorker::new(self.spec.clone()),
        }
    }

    /// The worker as it was when the last of this was written.
    pub fn worker(&self) -> PodWorker {
        let mut worker = self.begin();
        for (at, _, input, _) in &self.steps {
            worker.handle(*at, input.clone());
        }
        worker
    }

    /// When its first step was, for people.
    pub fn start(&self) -> Option<Wall> {
        let fold = self.fold.as_ref().map(|fold| fold.start);
        fold.or_else(|| self.steps.first().map(|(_, wall, ..)| *wall))
    }

    /// When the last of this was written.
    pub fn last(&self) -> Option<(Moment, Wall)> {
        let step = self.steps.last().map(|(at, wall, ..)| (*at, *wall));
        step.or_else(|| self.fold.as_ref().map(|fold| (fold.at, fold.wall)))
    }
}

/// All lives of a journal while it is being read, and which bytes they need.
#[derive(Debug, Default)]
pub(crate) struct Lives {
    /// In the order they began; `None` once forgotten.
    lives: Vec<Option<Life>>,
    /// The life a UID stands for.
    open: HashMap<String, usize>,
    /// What is still to be told of lives that are over.
    concluded: BTreeMap<(String, Wall), String>,
    pub(crate) boot_id: Option<String>,
    pub(crate) index: Index,
}

impl Lives {
    /// Takes in the entry that stands at `at` in the file.
    pub(crate) fn take(&mut self, entry: Entry, at: Range<usize>) {
        self.index.take(Mark::of(&entry), at);
        match entry {
            Entry::Boot { boot_id } => self.boot_id = Some(boot_id),
            Entry::Padding => {}
            Entry::Of(Record::Adopted { uid, namespace, name, mut spec, at }) => {
                spec.identity = PodIdentity { namespace: namespace.clone(), name: name.clone(), uid: uid.clone() };
                self.forget(&uid);
                self.open.insert(uid.clone(), self.lives.len());
                let boot_id = self.boot_id.clone().unwrap_or_default();
                let steps = Vec::new();
                self.lives.push(Some(Life { uid, namespace, name, spec, adopted_at: at, boot_id, fold: None, steps }));
            }
            Entry::Of(Record::Step { uid, at, wall, input, effects }) => {
                if let Some(life) = self.life(&uid) {
                    life.steps.push((at, wall, input, effects));
                }
            }
            Entry::Of(Record::Folded { uid, at, wall, start, snapshot }) => {
                if let Some(life) = self.life(&uid) {
                    (life.fold, life.steps) = (Some(Fold { at, wall, start, snapshot }), Vec::new());
                }
            }
            Entry::Of(Record::Forgotten { uid }) => self.forget(&uid),
            Entry::Of(Record::Concluded { uid, wall, record }) => {
                self.forget(&uid);
                self.concluded.insert((uid, wall), record);
            }
            Entry::Of(Record::Stored { uid, wall }) => _ = self.concluded.remove(&(uid, wall)),
        }
    }

    /// A life that goes on in the present boot. What comes late for one that is over is part of none.
    fn life(&mut self, uid: &str) -> Option<&mut Life> {
        let life = self.open.get(uid).and_then(|&index| self.lives[index].as_mut())?;
        life.boot_id = self.boot_id.clone().unwrap_or_default();
        Some(life)
    }

    fn forget(&mut self, uid: &str) {
        if let Some(index) = self.open.remove(uid) {
            self.lives[index] = None;
        }
    }

    pub(crate) fn into_parts(self) -> (Vec<Life>, Vec<Concluded>, Index) {
        let concluded = self.concluded.into_iter().map(|((uid, wall), record)| Concluded { uid, wall, record });
        (self.lives.into_iter().flatten().collect(), concluded.collect(), self.index)
    }
}
