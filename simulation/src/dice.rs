//! Chance, one stream per purpose: what is left of a scenario that is made smaller falls as it fell before.

use testkit::Dice;

/// Dice for one place, one subject and one count.
pub fn dice(seed: u64, place: &str, who: &str, count: u64) -> Dice {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let bytes = place.bytes().chain([b'/']).chain(who.bytes()).chain([b'/']).chain(count.to_le_bytes());
    for byte in bytes {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    let mut dice = Dice::seeded(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ hash);
    // The first numbers of near seeds are near.
    dice.below(2);
    dice.below(2);
    dice
}
