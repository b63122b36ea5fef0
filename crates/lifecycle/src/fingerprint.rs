//! Whether anything changed, without keeping a copy: a number that differs when what it was made of differs.

use core::hash::{Hash, Hasher};

/// The fingerprint of anything that can be hashed. The same everywhere and always, unlike the standard hashers'.
pub(crate) fn fingerprint(of: &impl Hash) -> u64 {
    let mut mixer = Mixer(0x9e37_79b9_7f4a_7c15);
    of.hash(&mut mixer);
    mixer.finish()
}

/// Mixes eight bytes at a time; fast, and good enough where nobody tries to fool it.
struct Mixer(u64);

impl Mixer {
    fn mix(&mut self, word: u64) {
        const FACTOR: u64 = 0x4385_df64_9fcc_f645;
        let product = (u128::from(self.0 ^ word) * u128::from(FACTOR)).to_le_bytes();
        let (low, high) = (half(&product[..8]), half(&product[8..]));
        self.0 = (low ^ high).rotate_left(23).wrapping_add(word);
    }
}

/// Up to eight bytes as a number.
fn half(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for word in bytes.chunks(8) {
            self.mix(half(word));
        }
        self.mix(bytes.len() as u64);
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
        let seen: Vec<u64> =
            texts.map(|text: String| fingerprint(&text)).chain(pairs.map(|pair| fingerprint(&pair))).collect();
        assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), seen.len());
        assert_eq!(fingerprint(&"same"), fingerprint(&"same"));
        assert_ne!(fingerprint(&(Some(1u8), None::<u8>)), fingerprint(&(None::<u8>, Some(1u8))));
    }
}
