//! Brakes for long drains: annotations of a ReplicaSet, or of the Deployment that hands them down. All are off unless they are written.

use std::collections::BTreeMap;

/// `TerminationComplete`: a pod has its place until it has ended, and its successor waits for that.
pub(crate) const POD_REPLACEMENT_POLICY: &str = "adieu.dev/pod-replacement-policy";
/// How many pods may be terminating at once before no more are asked to leave.
pub(crate) const MAX_TERMINATING: &str = "adieu.dev/max-terminating";
/// All of them.
pub(crate) const BRAKES: [&str; 2] = [POD_REPLACEMENT_POLICY, MAX_TERMINATING];

/// What was written, as far as it can be read: anything else is no brake.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Brakes {
    /// Pods count until they have ended.
    pub(crate) waits_for_termination: bool,
    /// So many may be terminating at once.
    pub(crate) max_terminating: Option<i64>,
}

impl Brakes {
    /// The brakes among `annotations`.
    pub(crate) fn of(annotations: Option<&BTreeMap<String, String>>) -> Self {
        let written = |key: &str| annotations.and_then(|all| all.get(key)).map(|text| text.trim());
        let most = written(MAX_TERMINATING).and_then(|text| text.parse::<i64>().ok());
        Self {
            waits_for_termination: written(POD_REPLACEMENT_POLICY) == Some("TerminationComplete"),
            max_terminating: most.filter(|most| *most > 0),
        }
    }

    /// How many more may be asked to leave while `leaving` do.
    pub(crate) fn may_leave(&self, leaving: i64) -> i64 {
        self.max_terminating.map_or(i64::MAX, |most| (most - leaving).max(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brakes_that_cannot_be_read_are_off() {
        let annotations = |policy: &str, most: &str| {
            BTreeMap::from([
                (POD_REPLACEMENT_POLICY.to_owned(), policy.to_owned()),
                (MAX_TERMINATING.to_owned(), most.to_owned()),
            ])
        };
        let on = Brakes::of(Some(&annotations("TerminationComplete", "2")));
        assert_eq!(on, Brakes { waits_for_termination: true, max_terminating: Some(2) });
        assert_eq!((on.may_leave(0), on.may_leave(2), on.may_leave(9)), (2, 0, 0));
        for odd in ["", "0", "-1", "two", "1.5", "99999999999999999999"] {
            assert_eq!(Brakes::of(Some(&annotations("Failed", odd))), Brakes::default(), "{odd}");
        }
        assert_eq!(Brakes::of(None).may_leave(i64::MAX), i64::MAX);
    }
}
