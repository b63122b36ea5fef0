//! How long ago each revision was reached, told in steps of half a minute.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::Revision;

/// Revisions reached within this of each other share a mark.
const STEP: Duration = Duration::from_secs(30);

/// Marks over time, oldest first; as many as steps fit into what is asked about.
#[derive(Debug, Default)]
pub(crate) struct Ages {
    marks: VecDeque<Mark>,
}

#[derive(Debug)]
struct Mark {
    began: Instant,
    /// The newest revision of this step, and when it was reached.
    reached: Instant,
    revision: Revision,
}

impl Ages {
    /// Notes that `revision` is the newest at `now`. Marks that lie further back than `kept` are told by the newest of
    /// them.
    pub(crate) fn note(&mut self, revision: Revision, now: Instant, kept: Duration) {
        match self.marks.back_mut() {
            Some(last) if now.duration_since(last.began) < STEP => {
                (last.reached, last.revision) = (now, revision);
            }
            Some(_) | None => self.marks.push_back(Mark { began: now, reached: now, revision }),
        }
        while self.marks.get(1).is_some_and(|next| now.duration_since(next.reached) > kept) {
            self.marks.pop_front();
        }
    }

    /// The newest revision that was reached longer than `age` ago, if there is one.
    pub(crate) fn older_than(&self, age: Duration, now: Instant) -> Option<Revision> {
        self.marks.iter().rev().find(|mark| now.duration_since(mark.reached) > age).map(|mark| mark.revision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revision_older_than_an_age_is_found_and_older_marks_are_dropped() {
        let (start, age) = (Instant::now(), Duration::from_secs(300));
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut ages = Ages::default();
        ages.note(Revision(5), at(0), age);
        ages.note(Revision(9), at(20), age);
        assert_eq!(ages.older_than(age, at(310)), None, "revision 9 was reached 290 s ago");
        assert_eq!(ages.older_than(age, at(321)), Some(Revision(9)));
        for second in 40..4000 {
            ages.note(Revision(second), at(second), age);
        }
        assert!(ages.marks.len() <= 12, "{}", ages.marks.len());
        let told = ages.older_than(age, at(4000)).map(|revision| revision.0);
        assert!(told.is_some_and(|revision| (3660..3700).contains(&revision)), "{told:?}");
    }
}
