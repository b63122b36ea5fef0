//! What people read.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::time::Duration;

use crate::common::*;
use lifecycle::{DeleteSighting, Effect, HookKind, HookOutcome, Input, Moment, Signal, Wall};
use timeline::render::{effect_text, input_text};
use timeline::{Life, render};

#[test]
fn a_termination_reads_like_a_story() {
    let app = instance(0);
    let moment = |millis: u64| Moment::from_millis(5_000 + millis);
    let steps = vec![
        (
            moment(0),
            Wall(0),
            Input::DeleteRequested { grace: Duration::from_secs(30), sighting: DeleteSighting::Live },
            vec![Effect::RunHook { instance: app.clone(), kind: HookKind::PreStop }],
        ),
        (
            moment(40),
            Wall(0),
            Input::HookFinished { instance: app.clone(), kind: HookKind::PreStop, outcome: HookOutcome::Succeeded },
            vec![Effect::SendSignal { instance: app.clone(), signal: Signal::TERM }],
        ),
        (moment(30_000), Wall(0), Input::TimePassed, vec![Effect::KillContainer { instance: app.clone() }]),
        (moment(30_001), Wall(0), Input::Exited { instance: app, exit: exit() }, vec![Effect::RemoveSandbox]),
    ];
    let life = Life {
        uid: "u".to_owned(),
        namespace: "default".to_owned(),
        name: "web".to_owned(),
        spec: spec(),
        adopted_at: moment(0),
        boot_id: BOOT.to_owned(),
        fold: None,
        steps,
    };
    let expected = "
         0.000  delete requested, grace 30s
         0.000    -> run the preStop hook of app
         0.040  preStop hook of app succeeded
         0.040    -> TERM to app
        30.000  time passed
        30.000    -> KILL to app
        30.001  app ended by TERM, exit code 143
        30.001    -> remove the sandbox
";
    let lines = |text: &str| text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
    let (rendered, expected): (Vec<String>, Vec<String>) = (lines(&render(&life)), lines(expected));
    assert_eq!(rendered, expected);
    let columns: BTreeSet<_> = render(&life).lines().map(|line| line.find('.').unwrap()).collect();
    assert_eq!(columns.len(), 1, "times stand below each other");
}

#[test]
fn every_word_has_words_of_its_own_on_one_line() {
    let inputs: Vec<_> = inputs().iter().map(input_text).collect();
    let effects: Vec<_> = effects().iter().map(effect_text).collect();
    for words in [&inputs, &effects] {
        assert!(words.iter().all(|words| !words.is_empty() && !words.contains('\n')));
        assert_eq!(words.iter().collect::<BTreeSet<_>>().len(), words.len(), "{words:#?}");
    }
}
