//! Whether anything changed, without keeping a copy: a number that differs when what it was made of differs.

use core::hash::{Hash, Hasher};

/// The fingerprint of anything that can be hashed. The same everywhere and always, unlike the standard hashers'.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Fingerprint(u64);

impl Fingerprint {
    pub(crate) fn of(what: &impl Hash) -> Self {
        let mut mixer = Mixer(0x9e37_79b9_7f4a_7c15);
        what.hash(&mut mixer);
        Self(mixer.finish())
    }
}

/// It follows from the rest of what it belongs to, and so adds nothing to a fingerprint of the whole.
impl Hash for Fingerprint {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// Mixes eight bytes at a time; fast, and good enough where nobody tries to fool it.
struct Mixer(u64);

impl Mixer {
    #[allow(clippy::cast_possible_truncation, reason = "both halves are wanted, one at a time")]
    fn mix(&mut self, word: u64) {
        const FACTOR: u64 = 0x4385_df64_9fcc_f645;
        let product = u128::from(self.0 ^ word) * u128::from(FACTOR);
        let (low, high) = (product as u64, (product >> 64) as u64);
        self.0 = (low ^ high).rotate_left(23).wrapping_add(word);
    }
}

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        let tail = rest.iter().fold(bytes.len() as u64, |tail, byte| (tail << 8) + u64::from(*byte));
        self.mix(tail);
    }
    fn write_u8(&mut self, value: u8) {
        self.mix(u64::from(value));
    }
    fn write_u32(&mut self, value: u32) {
        self.mix(u64::from(value));
    }
    fn write_u64(&mut self, value: u64) {
        self.mix(value);
    }
    fn write_usize(&mut self, value: usize) {
        self.mix(value as u64);
    }
    fn write_isize(&mut self, value: isize) {
        self.write_usize(value.cast_unsigned());
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::string::String;
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn different_things_have_different_fingerprints() {
        let texts = (0..64).map(|length| "x".repeat(length));
        let pairs = (0..64u32).flat_map(|a| (0..64u32).map(move |b| (a, b)));
        let seen: Vec<u64> = texts
            .map(|text: String| Fingerprint::of(&text).0)
            .chain(pairs.map(|pair| Fingerprint::of(&pair).0))
            .collect();
        assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), seen.len());
        assert_eq!(Fingerprint::of(&"same"), Fingerprint::of(&"same"));
        assert_ne!(Fingerprint::of(&(Some(1u8), None::<u8>)), Fingerprint::of(&(None::<u8>, Some(1u8))));
        assert_ne!(Fingerprint::of(&1u64), Fingerprint::of(&2u64));
    }

    /// Every kind of word has its part in it, and it is the same on every machine and in every version.
    #[test]
    fn a_fingerprint_is_the_same_for_ever() {
        let of = |what: &dyn Fn(&mut Mixer)| {
            let mut mixer = Mixer(1);
            what(&mut mixer);
            mixer.finish()
        };
        let seen = [
            of(&|mixer| mixer.write(b"a text of more than two words, and a rest")),
            of(&|mixer| mixer.write_u8(0xa5)),
            of(&|mixer| mixer.write_u32(0xdead_beef)),
            of(&|mixer| mixer.write_u64(0x0123_4567_89ab_cdef)),
            of(&|mixer| mixer.write_usize(0x0fed_cba9)),
            of(&|mixer| mixer.write_isize(-3)),
        ];
        let expected = [
            0xa1f4_9874_c2a1_c13c,
            0x3b2f_a6e2_0fa0_e233,
            0x9c65_a761_b45b_a9fb,
            0x41c9_d43f_02ee_d9b5,
            0xf735_4c62_8b04_8dd4,
            0x848f_8068_57d9_36ab,
        ];
        assert_eq!(seen, expected);
    }
}
