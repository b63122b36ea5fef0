//! What becomes of a thing whose owners have been looked at: pure.

use super::graph::Uid;
use crate::flaws::{self, Flaw};

/// How an owner that a thing names really stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum GarbageDecision {
    /// There, and not waiting for its dependents.
    Solid,
    /// There, and waiting for its dependents to go.
    Waiting,
    /// Gone: nothing of that name, or something else under it.
    Absent,
    /// Nobody can tell: its kind is not served, or the thing cannot have such an owner.
    Unknowable,
}

/// What to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Plan {
    /// Leave it alone.
    Keep,
    /// It has an owner that stays: take away the references to these others.
    Forget(Vec<Uid>),
    /// Nobody needs it: ask it to leave, its own dependents first.
    DeleteAfterDependents,
    /// Nobody needs it: ask it to leave.
    Delete,
}

/// Decides over one thing.
pub(super) fn plan(owners: &[(Uid, GarbageDecision)], has_dependents: bool) -> Plan {
    let any = |verdict: GarbageDecision| owners.iter().any(|(_, found)| *found == verdict);
    // What cannot be judged is never collected.
    if owners.is_empty() || any(GarbageDecision::Unknowable) {
        return Plan::Keep;
    }
    if any(GarbageDecision::Solid) {
        let others = owners.iter().filter(|(_, verdict)| *verdict != GarbageDecision::Solid);
        let others: Vec<Uid> = others.map(|(uid, _)| uid.clone()).collect();
        return if others.is_empty() { Plan::Keep } else { Plan::Forget(others) };
    }
    if flaws::has(Flaw::KeepsGarbage) {
        return Plan::Keep;
    }
    if any(GarbageDecision::Waiting) && has_dependents { Plan::DeleteAfterDependents } else { Plan::Delete }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners(verdicts: &[GarbageDecision]) -> Vec<(Uid, GarbageDecision)> {
        verdicts.iter().enumerate().map(|(at, verdict)| (Uid::from(at.to_string()), *verdict)).collect()
    }

    #[test]
    fn a_thing_goes_when_no_owner_is_left_and_stays_with_the_one_that_is() {
        use GarbageDecision::{Absent, Solid, Unknowable, Waiting};
        assert_eq!(plan(&[], true), Plan::Keep);
        assert_eq!(plan(&owners(&[Solid]), true), Plan::Keep);
        assert_eq!(plan(&owners(&[Solid, Absent, Waiting]), true), Plan::Forget(vec!["1".into(), "2".into()]));
        assert_eq!(plan(&owners(&[Absent]), true), Plan::Delete);
        assert_eq!(plan(&owners(&[Waiting, Absent]), false), Plan::Delete);
        assert_eq!(plan(&owners(&[Waiting, Absent]), true), Plan::DeleteAfterDependents);
        assert_eq!(plan(&owners(&[Absent, Unknowable]), false), Plan::Keep);
    }
}
