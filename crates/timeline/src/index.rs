//! Which bytes of a journal are still needed: those of lives that are not over, from their last fold on.

use std::collections::HashMap;
use std::ops::Range;

use lifecycle::Wall;

use crate::record::{Entry, FILE_HEADER, Record};

/// What a record is, as far as its bytes are concerned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Mark {
    /// All that follow belong to another boot.
    Boot,
    /// Nothing.
    Padding,
    /// A life begins.
    Adopted(String),
    /// Something happened in it.
    Step(String),
    /// What happened before is not needed any more.
    Folded(String),
    /// It is over.
    Forgotten(String),
    /// It is over, and what is to be told of it is needed.
    Concluded(String, Wall),
    /// That is not needed any more.
    Stored(String, Wall),
}

impl Mark {
    pub(crate) fn of(entry: &Entry) -> Self {
        match entry {
            Entry::Boot { .. } => Self::Boot,
            Entry::Padding => Self::Padding,
            Entry::Of(record) => Self::of_record(record),
        }
    }

    pub(crate) fn of_record(record: &Record) -> Self {
        match record {
            Record::Adopted { uid, .. } => Self::Adopted(uid.clone()),
            Record::Step { uid, .. } => Self::Step(uid.clone()),
            Record::Folded { uid, .. } => Self::Folded(uid.clone()),
            Record::Forgotten { uid } => Self::Forgotten(uid.clone()),
            Record::Concluded { uid, wall, .. } => Self::Concluded(uid.clone(), *wall),
            Record::Stored { uid, wall } => Self::Stored(uid.clone(), *wall),
        }
    }
}

/// Where everything that is needed stands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    /// In the order of the file.
    parts: Vec<(Part, Range<usize>)>,
    /// The life a UID stands for.
    open: HashMap<String, usize>,
    /// What is to be told of lives that are over, each as a life of its own that nothing more happens in.
    concluded: HashMap<(String, Wall), usize>,
    /// Every life there was since this was made; `None` once it is over.
    lives: Vec<Option<Extent>>,
    /// How many bytes those lives need.
    needed: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Boot,
    Birth(usize),
    Step(usize),
}

/// What one life needs.
#[derive(Clone, Copy, Debug)]
struct Extent {
    birth: usize,
    /// Its fold and the steps after it.
    steps: usize,
    /// Steps before this place are not needed.
    from: usize,
}

impl Index {
    /// Takes in the record that stands at `at`.
    pub(crate) fn take(&mut self, mark: Mark, at: Range<usize>) {
        let length = at.len();
        match mark {
            Mark::Boot => self.parts.push((Part::Boot, at)),
            Mark::Padding => {}
            Mark::Adopted(uid) => {
                self.forget(&uid);
                self.open.insert(uid, self.lives.len());
                self.parts.push((Part::Birth(self.lives.len()), at));
                self.lives.push(Some(Extent { birth: length, steps: 0, from: 0 }));
                self.needed += length;
            }
            // A step of a life that is over came late, and is part of no life.
            Mark::Step(uid) => {
                if let Some((life, extent)) = self.life(&uid) {
                    extent.steps += length;
                    self.needed += length;
                    self.parts.push((Part::Step(life), at));
                }
            }
            Mark::Folded(uid) => {
                if let Some((life, extent)) = self.life(&uid) {
                    let before = extent.steps;
                    (extent.steps, extent.from) = (length, at.start);
                    self.needed = self.needed + length - before;
                    self.parts.push((Part::Step(life), at));
                }
            }
            Mark::Forgotten(uid) => self.forget(&uid),
            Mark::Concluded(uid, wall) => {
                self.forget(&uid);
                self.told(&(uid.clone(), wall));
                self.concluded.insert((uid, wall), self.lives.len());
                self.parts.push((Part::Birth(self.lives.len()), at));
                self.lives.push(Some(Extent { birth: length, steps: 0, from: 0 }));
                self.needed += length;
            }
            Mark::Stored(uid, wall) => self.told(&(uid, wall)),
        }
    }

    fn life(&mut self, uid: &str) -> Option<(usize, &mut Extent)> {
        let life = *self.open.get(uid)?;
        Some((life, self.lives[life].as_mut()?))
    }

    fn forget(&mut self, uid: &str) {
        if let Some(extent) = self.open.remove(uid).and_then(|life| self.lives[life].take()) {
            self.needed -= extent.birth + extent.steps;
        }
    }

    fn told(&mut self, which: &(String, Wall)) {
        if let Some(extent) = self.concluded.remove(which).and_then(|life| self.lives[life].take()) {
            self.needed -= extent.birth + extent.steps;
        }
    }

    /// How long a file would be that held only what is needed, give or take the notes of boots.
    pub(crate) fn needed(&self) -> usize {
        FILE_HEADER + self.needed
    }

    /// Leaves out what is not needed. Answers where the rest stood, in order; from now on this speaks of a file that holds
    /// just that behind its header. A boot nobody's moments belong to is left out, but not the last.
    pub(crate) fn compact(&mut self) -> Vec<Range<usize>> {
        let (mut kept, mut boot) = (Vec::new(), None);
        for (part, at) in std::mem::take(&mut self.parts) {
            let is_needed = match part {
                Part::Boot => {
                    boot = Some(at);
                    continue;
                }
                Part::Birth(life) => self.lives[life].is_some(),
                Part::Step(life) => self.lives[life].is_some_and(|extent| at.start >= extent.from),
            };
            if is_needed {
                kept.extend(boot.take().map(|at| (Part::Boot, at)));
                kept.push((part, at));
            }
        }
        kept.extend(boot.map(|at| (Part::Boot, at)));
        // Lives get new numbers, or those that are over would be counted for ever.
        let mut numbers = HashMap::new();
        let mut lives = Vec::new();
        let (mut stood, mut end) = (Vec::new(), FILE_HEADER);
        for (part, at) in kept {
            let stands = end..end + at.len();
            end = stands.end;
            let part = match part {
                Part::Boot => Part::Boot,
                Part::Birth(life) => {
                    numbers.insert(life, lives.len());
                    lives.push(self.lives[life]);
                    Part::Birth(lives.len() - 1)
                }
                Part::Step(life) => {
                    let number = numbers[&life];
                    if let Some(extent) = &mut lives[number]
                        && extent.from == at.start
                    {
                        extent.from = stands.start;
                    }
                    Part::Step(number)
                }
            };
            self.parts.push((part, stands));
            stood.push(at);
        }
        self.lives = lives;
        self.open.values_mut().chain(self.concluded.values_mut()).for_each(|life| *life = numbers[life]);
        stood
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A journal of marks, ten bytes each, and what of it is needed.
    fn needed(marks: &[Mark]) -> (Vec<usize>, Index) {
        let mut index = Index::default();
        for (number, mark) in marks.iter().enumerate() {
            let start = FILE_HEADER + number * 10;
            index.take(mark.clone(), start..start + 10);
        }
        let before = index.needed();
        let stood: Vec<usize> = index.compact().iter().map(|at| (at.start - FILE_HEADER) / 10).collect();
        assert_eq!(index.needed(), before, "leaving out what is not needed changes nothing");
        let boots = index.parts.iter().filter(|(part, _)| *part == Part::Boot).count();
        assert_eq!(FILE_HEADER + 10 * (stood.len() - boots), before, "and what is left is what was counted");
        (stood, index)
    }

    fn marks(words: &str) -> Vec<Mark> {
        let mark = |word: &str| {
            let uid = word[1..].to_owned();
            match &word[..1] {
                "+" => Mark::Adopted(uid),
                "." => Mark::Step(uid),
                "=" => Mark::Folded(uid),
                "-" => Mark::Forgotten(uid),
                "?" => Mark::Concluded(uid, Wall(1)),
                "x" => Mark::Stored(uid, Wall(1)),
                _ => Mark::Boot,
            }
        };
        words.split_whitespace().map(mark).collect()
    }

    #[test]
    fn lives_that_are_over_and_steps_before_a_fold_are_not_needed() {
        for (words, expected) in [
            ("! +a .a .a +b -a .b", vec![0, 4, 6]),
            ("! +a .a =a .a", vec![0, 1, 3, 4]),
            ("! +a .a =a .a =a =a .a", vec![0, 1, 6, 7]),
            ("! +a ! .a ! +b -b", vec![0, 1, 2, 3, 4]),
            ("! ! +a .a +a .a", vec![1, 4, 5]),
            (".a +a -a .a =a -a", vec![]),
            ("! +a .a ?a +b", vec![0, 3, 4]),
            ("! +a .a ?a +a .a", vec![0, 3, 4, 5]),
            ("! +a ?a +a xa", vec![0, 3]),
            ("! +a ?a xa xa", vec![0]),
        ] {
            assert_eq!(needed(&marks(words)).0, expected, "{words}");
        }
    }

    #[test]
    fn index_after_compaction_tracks_later_records() {
        let (_, mut index) = needed(&marks("! +a .a +b .b =b .b +c -c"));
        let end = index.parts.last().expect("parts").1.end;
        index.take(Mark::Folded("a".to_owned()), end..end + 10);
        index.take(Mark::Forgotten("b".to_owned()), end + 10..end + 20);
        assert_eq!(index.needed(), FILE_HEADER + 20);
        assert_eq!(index.compact().len(), 3);
    }
}
