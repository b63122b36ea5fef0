//! Chance that can be repeated: the seed is printed, and taken from `SEED` if that is set.

use std::time::Duration;

use anyhow::{Context, Result};

/// A xorshift generator.
pub struct Dice {
    state: u64,
}

impl Dice {
    /// Dice by the seed in `SEED`, or by the clock. Prints which.
    pub fn seeded() -> Result<Self> {
        let seed = match std::env::var("SEED") {
            Ok(seed) => seed.parse().context("SEED is a number")?,
            Err(_) => jiff::Timestamp::now().as_nanosecond().to_le_bytes()[..8].try_into().map(u64::from_le_bytes)?,
        };
        println!("chance is repeated with SEED={seed}");
        // Zero would stay zero for ever.
        Ok(Self { state: seed.max(1) })
    }

    /// Dice of its own for somebody else.
    pub fn split(&mut self) -> Self {
        self.below(Duration::MAX);
        Self { state: self.state.wrapping_mul(0x9E37_79B9_7F4A_7C15).max(1) }
    }

    /// A span of time below `limit`.
    pub fn below(&mut self, limit: Duration) -> Duration {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let micros = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX).max(1);
        Duration::from_micros(self.state % micros)
    }
}
