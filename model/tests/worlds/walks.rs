//! Random lives through the same models, with a journal: replaying it gives the same worker at every crash and at the
//! end, and the laws that scenarios and storms obey hold here, too.

use lifecycle::{Effect, Input, Moment, PodSpec, PodWorker};
use model::catalogue::small;
use model::model::PodModel;
use model::worker::{Make, Worker};
use stateright::Model;
use testkit::{Dice, Laws};

/// A worker that keeps its journal.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Journalled {
    worker: PodWorker,
    spec: PodSpec,
    journal: Vec<(Moment, Input)>,
}

impl Worker for Journalled {
    fn handle(&mut self, now: Moment, input: Input) -> Vec<Effect> {
        self.journal.push((now, input.clone()));
        self.worker.handle(now, input)
    }

    fn inner(&self) -> &PodWorker {
        &self.worker
    }

    fn rebuilt(self) -> Self {
        let mut laws = Laws::default();
        let mut again = PodWorker::new(self.spec.clone());
        for (at, input) in &self.journal {
            let effects = again.handle(*at, input.clone());
            laws.observe(*at, input, &effects, &again);
        }
        assert_eq!(again, self.worker, "the journal tells the same life again");
        Self { worker: again, ..self }
    }
}

#[test]
fn a_worker_rebuilt_from_its_journal_is_the_worker_that_wrote_it() {
    let make: Make<Journalled> = |spec| Journalled { worker: PodWorker::new(spec.clone()), spec, journal: Vec::new() };
    let (mut crashes, mut ends) = (0, 0);
    for model in small() {
        let model = PodModel {
            name: model.name,
            spec: model.spec,
            bounds: model.bounds,
            cold: model.cold,
            reach: model.reach,
            make,
        };
        for seed in 0..300 {
            let mut dice = Dice::seeded(seed);
            let mut state = model.init_states().remove(0);
            loop {
                let mut steps = Vec::new();
                model.actions(&state, &mut steps);
                if steps.is_empty() {
                    break;
                }
                let Some(next) = model.next_state(&state, dice.pick(&steps)) else { continue };
                crashes += u32::from(state.world.agent && !next.world.agent);
                state = next;
            }
            assert!(state.worker.inner().is_finished(), "seed {seed} of {} did not end: {state:#?}", model.name);
            let _ = state.worker.rebuilt();
            ends += 1;
        }
    }
    assert!(crashes > ends / 4, "walks should meet crashes: {crashes} in {ends}");
}
