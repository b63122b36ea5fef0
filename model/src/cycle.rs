//! Whether a life can go round in circles. Without circles, and without dead ends, every run reaches Gone.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use stateright::Model;

use crate::model::{PodModel, State};
use crate::worker::Worker;

/// States are large and there are many; two hashes of 64 bits stand for one.
type Name = (u64, u64);

enum Mark {
    OnTheWay,
    Done,
}

/// Walks every run of a model depth first; true if one comes back to a state it was in.
pub fn has_cycle<W: Worker>(model: &PodModel<W>) -> bool {
    let hasher = RandomState::new();
    let name = |state: &State<W>| -> Name { (hasher.hash_one(state), hasher.hash_one((state, 1_u8))) };
    let mut marks: HashMap<Name, Mark> = HashMap::new();
    let mut way: Vec<(Name, Vec<State<W>>)> = Vec::new();
    for first in model.init_states() {
        marks.insert(name(&first), Mark::OnTheWay);
        way.push((name(&first), model.next_states(&first)));
        while let Some((here, ahead)) = way.last_mut() {
            let Some(next) = ahead.pop() else {
                marks.insert(*here, Mark::Done);
                way.pop();
                continue;
            };
            let key = name(&next);
            match marks.get(&key) {
                Some(Mark::OnTheWay) => return true,
                Some(Mark::Done) => {}
                None => {
                    marks.insert(key, Mark::OnTheWay);
                    way.push((key, model.next_states(&next)));
                }
            }
        }
    }
    false
}
