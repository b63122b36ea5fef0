//! Sets of completion indexes, as `completedIndexes` and `failedIndexes` write them: `1,3-5,7,8`.

use std::fmt;

/// A set of indexes: runs without gaps, in order, neither touching nor overlapping.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct CompletionIndexes(Vec<(u32, u32)>);

impl CompletionIndexes {
    /// Reads what was written, up to the index `below`. What is no number or no run is left out.
    pub(crate) fn parse(text: &str, below: u32) -> Self {
        let run = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            (first <= last && first < below).then(|| (first, last.min(below.saturating_sub(1))))
        };
        Self::merged(text.split(',').filter_map(run).collect())
    }

    /// These indexes.
    pub(crate) fn of(indexes: impl IntoIterator<Item = u32>) -> Self {
        Self::merged(indexes.into_iter().map(|index| (index, index)).collect())
    }

    fn merged(mut runs: Vec<(u32, u32)>) -> Self {
        runs.sort_unstable();
        let mut merged: Vec<(u32, u32)> = Vec::new();
        for (first, last) in runs {
            match merged.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }

    /// Those of both.
    pub(crate) fn with(&self, others: &Self) -> Self {
        Self::merged([&self.0[..], &others.0[..]].concat())
    }

    pub(crate) fn contains(&self, index: u32) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= index);
        after.checked_sub(1).and_then(|at| self.0.get(at)).is_some_and(|(_, last)| index <= *last)
    }

    /// How many there are.
    pub(crate) fn total(&self) -> i64 {
        self.0.iter().map(|(first, last)| i64::from(*last) - i64::from(*first) + 1).sum()
    }

    /// How many there are in both.
    pub(crate) fn shared_with(&self, other: &Self) -> i64 {
        let overlap = |(first, last): &(u32, u32), (from, to): &(u32, u32)| {
            (i64::from(*last.min(to)) - i64::from(*first.max(from)) + 1).max(0)
        };
        let (mut ours, mut theirs, mut shared) = (self.0.iter().peekable(), other.0.iter().peekable(), 0);
        while let (Some(one), Some(two)) = (ours.peek(), theirs.peek()) {
            shared += overlap(one, two);
            let _ = if one.1 <= two.1 { ours.next() } else { theirs.next() };
        }
        shared
    }

    /// The lowest indexes below `below` that are not in it.
    pub(crate) fn missing(&self, below: u32) -> impl Iterator<Item = u32> {
        let begins = std::iter::once(0).chain(self.0.iter().map(|(_, last)| last.saturating_add(1)));
        let ends = self.0.iter().map(|(first, _)| *first).chain(std::iter::once(below));
        begins.zip(ends).flat_map(move |(begin, end)| begin..end.min(below))
    }
}

impl fmt::Display for CompletionIndexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            match last - first {
                0 => write!(f, "{first}")?,
                1 => write!(f, "{first},{last}")?,
                _ => write!(f, "{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::woken::Dice;

    #[test]
    fn completion_indexes_are_written_as_runs_and_read_back() {
        assert_eq!(CompletionIndexes::of([8, 3, 1, 4, 5, 7, 3]).to_string(), "1,3-5,7,8");
        assert_eq!(CompletionIndexes::parse("1,3-5,7,8", 100), CompletionIndexes::of([1, 3, 4, 5, 7, 8]));
        assert_eq!(CompletionIndexes::parse("1,3-5,7,8", 4).to_string(), "1,3", "indexes that are asked for no longer");
        for odd in ["", "x", "5-3", "-", "1--2", "4294967296", ",,", "-1"] {
            assert_eq!(CompletionIndexes::parse(odd, 10), CompletionIndexes::default(), "{odd}");
        }
        assert_eq!(CompletionIndexes::parse("0-4294967295", u32::MAX).total(), i64::from(u32::MAX));
        assert_eq!(CompletionIndexes::parse("3", 0).total(), 0);
    }

    #[test]
    fn completion_indexes_answer_as_a_plain_set_does() {
        for seed in 1..=200 {
            let mut dice = Dice::new(seed);
            let mut some = || (0..dice.roll(12)).map(|_| u32::try_from(dice.roll(20)).unwrap_or(0)).collect();
            let (one, two): (BTreeSet<u32>, BTreeSet<u32>) = (some(), some());
            let (runs, others) =
                (CompletionIndexes::of(one.iter().copied()), CompletionIndexes::of(two.iter().copied()));
            assert_eq!(runs.with(&others), CompletionIndexes::of(one.union(&two).copied()), "seed {seed}");
            assert_eq!(runs.total(), i64::try_from(one.len()).unwrap_or(0));
            assert_eq!(runs.shared_with(&others), i64::try_from(one.intersection(&two).count()).unwrap_or(0));
            assert!((0..22).all(|index| runs.contains(index) == one.contains(&index)), "seed {seed}");
            assert!(runs.missing(15).eq((0..15).filter(|index| !one.contains(index))), "seed {seed}");
            assert_eq!(CompletionIndexes::parse(&runs.to_string(), 20), runs, "seed {seed}");
        }
    }
}
