//! Names of pods, chosen by whoever creates them: `owner-x7k2q`, in an order that the owner's UID alone decides.
//!
//! A create whose answer was lost, or whose pod has not been seen yet, is repeated under the same name and so creates nothing
//! twice. Each name has a number; what is handed out is the lowest number that was never seen. Nothing of this has to survive
//! a restart: a list of what there is says what is taken.

use std::collections::BTreeSet;

/// Without vowels and look-alikes, so that no name is a word.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const LENGTH: u32 = 5;
/// How many endings there are: 27^5.
const ENDINGS: u64 = 27u64.pow(LENGTH);
/// How long the name of a pod may be before its ending, so that it is also a host name.
const PREFIX_MAX: usize = 63 - 5;

/// FNV-1a with 64 bits.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// All endings, once each, in the order of one owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameOrder {
    /// No multiple of 3, so every number has its own ending.
    step: u64,
    first: u64,
}

impl NameOrder {
    /// The order that belongs to the owner with this UID.
    pub(crate) fn of(uid: &str) -> Self {
        let hash = fnv1a(uid.as_bytes());
        let step = (hash >> 32) % ENDINGS;
        let step = if step.is_multiple_of(3) { step + 1 } else { step };
        Self { step, first: (hash & 0xffff_ffff) % ENDINGS }
    }

    /// The ending with this number.
    pub(crate) fn ending(&self, number: u32) -> String {
        let mut rest = (u64::from(number) % ENDINGS * self.step + self.first) % ENDINGS;
        let mut ending = String::new();
        for _ in 0..LENGTH {
            let letter = usize::try_from(rest % 27).ok().and_then(|at| LETTERS.get(at));
            ending.push(char::from(letter.copied().unwrap_or(b'b')));
            rest /= 27;
        }
        ending
    }

    /// The number of an ending. Every ending has one, also one that came about otherwise.
    pub(crate) fn number(&self, ending: &str) -> Option<u32> {
        if ending.len() != 5 {
            return None;
        }
        let mut value = 0;
        for byte in ending.bytes().rev() {
            let digit = LETTERS.iter().position(|letter| *letter == byte)?;
            value = value * 27 + u64::try_from(digit).ok()?;
        }
        let distance = (value + ENDINGS - self.first) % ENDINGS;
        u32::try_from(distance * inverse(self.step) % ENDINGS).ok()
    }
}

/// What `step` is to be multiplied with to come back to one, by Euler: it has no factor 3, and 27^5 no other.
fn inverse(step: u64) -> u64 {
    let (mut base, mut exponent, mut result) = (step % ENDINGS, ENDINGS / 3 * 2 - 1, 1);
    while exponent > 0 {
        if exponent % 2 == 1 {
            result = result * base % ENDINGS;
        }
        base = base * base % ENDINGS;
        exponent /= 2;
    }
    result
}

/// What the names of an owner's pods begin with.
pub(crate) fn prefix(owner: &str) -> String {
    let cut: String = owner.chars().take(PREFIX_MAX - 1).collect();
    format!("{}-", cut.trim_end_matches(['.', '-']))
}

/// The numbers of one owner that were seen.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct UsedNumbers {
    /// All below.
    floor: u32,
    /// Those above.
    above: BTreeSet<u32>,
}

impl UsedNumbers {
    /// What is used when `there` are all that there are: whoever has gone before is below them.
    pub(crate) fn starting(there: impl Iterator<Item = u32>) -> Self {
        // An adopted pod may have any number; it must not use up those below.
        let mut used = Self::default();
        there.for_each(|number| used.seen(number));
        used
    }

    /// One more is used.
    pub(crate) fn seen(&mut self, number: u32) {
        if number >= self.floor {
            self.above.insert(number);
        }
        while self.above.remove(&self.floor) {
            self.floor += 1;
        }
    }

    /// The lowest that are not.
    pub(crate) fn free(&self) -> impl Iterator<Item = u32> {
        (self.floor..).filter(|number| !self.above.contains(number))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn pod_name_endings_have_a_number_each_whatever_the_owner() {
        for uid in ["", "a", "5b1f7a2e-0000-4000-8000-000000000001", "x".repeat(400).as_str()] {
            let order = NameOrder::of(uid);
            let endings: BTreeSet<String> = (0..5000).map(|number| order.ending(number)).collect();
            assert_eq!(endings.len(), 5000);
            for number in [0, 1, 2, 77, 4999, 1_000_000] {
                assert_eq!(order.number(&order.ending(number)), Some(number), "{uid}");
            }
            assert_eq!((order.number("abcde"), order.number("bcdf"), order.number("bcdfgh")), (None, None, None));
        }
        assert_ne!(NameOrder::of("a").ending(0), NameOrder::of("b").ending(0));
    }

    #[test]
    fn used_numbers_hand_out_the_lowest_that_was_never_seen() {
        let mut used = UsedNumbers::starting([1, 4_000_000].into_iter());
        assert_eq!(used.free().take(3).collect::<Vec<_>>(), [0, 2, 3]);
        [0, 2].into_iter().for_each(|number| used.seen(number));
        assert_eq!((used.floor, used.free().next()), (3, Some(3)));
        used.seen(1);
        assert_eq!(used.above.len(), 1, "what is below the floor costs nothing");
    }

    #[test]
    fn pod_name_prefix_leaves_room_for_an_ending() {
        assert_eq!(prefix("web"), "web-");
        assert_eq!(prefix(&"w".repeat(253)).len() + 5, 63);
        assert_eq!(prefix(&format!("{}.x", "w".repeat(56))), format!("{}-", "w".repeat(56)));
    }
}
