//! Numbers that look random and come again with the same seed.

/// A xorshift generator: small, fast, and the same everywhere.
#[derive(Clone, Debug)]
pub struct Dice {
    state: u64,
}

impl Dice {
    /// Dice that fall the same way for the same seed.
    pub fn seeded(seed: u64) -> Self {
        // Xorshift stays at zero for ever, and small seeds start out alike: spread them first.
        Self { state: seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 }
    }

    /// A number below `sides`.
    pub fn below(&mut self, sides: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) % sides
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of these.
    pub fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        let index = usize::try_from(self.below(choices.len() as u64)).expect("an index fits");
        choices[index].clone()
    }
}

/// How many storms to weather: a few on every save, as many as `STORMS` says at night.
pub fn storms() -> u64 {
    std::env::var("STORMS").ok().and_then(|storms| storms.parse().ok()).unwrap_or(300)
}
