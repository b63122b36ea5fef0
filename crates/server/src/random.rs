//! Small random things: name suffixes and jitter. Nothing here guards a secret.

use std::time::Duration;

/// Letters and digits that make no words and are not mistaken for one another.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Five characters for `generateName`.
pub(crate) fn suffix() -> String {
    let mut bits = uuid::Uuid::new_v4().as_u64_pair().1 >> 4;
    let mut out = String::with_capacity(5);
    for _ in 0..5 {
        let at = usize::try_from(bits % ALPHABET.len() as u64).expect("below 27");
        out.push(char::from(ALPHABET[at]));
        bits /= ALPHABET.len() as u64;
    }
    out
}

/// A duration between `low` and twice `low`.
pub(crate) fn jittered(low: Duration) -> Duration {
    let fraction = uuid::Uuid::new_v4().as_u64_pair().1 % 1000;
    low + low.mul_f64(fraction as f64 / 1000.0)
}

/// Any number.
pub(crate) fn number() -> u32 {
    uuid::Uuid::new_v4().as_fields().0
}

/// A fresh uid.
pub(crate) fn uid() -> String {
    uuid::Uuid::new_v4().to_string()
}
