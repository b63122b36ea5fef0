//! What a registry is asked: manifests and blobs, by the OCI distribution protocol (Docker's v2).
//!
//! ```text
//!   settings (registries.yaml) ──▶ endpoints, mirrors first ─┐
//!   keyring (pull secrets, docker's config) ─▶ credentials ──┴─▶ session ──▶ transport (TLS, redirects, deadlines)
//! ```
//!
//! Credentials are for the registry and for the token server it names, never for where it redirects to.

pub(super) mod challenge;
pub(super) mod error;
pub(super) mod resolver;
pub(super) mod session;
pub(super) mod settings;
pub(super) mod tls;
pub(super) mod transport;

use std::time::Duration;

/// How long a registry may keep us waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// Until a connection stands.
    pub connect: Duration,
    /// Until an answer begins.
    pub answer: Duration,
    /// Between two pieces of an answer.
    pub stall: Duration,
    /// Before the first repetition of what failed for a moment; doubled for each one after.
    pub pause: Duration,
    /// Repetitions without any progress between them.
    pub repeats: u32,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            answer: Duration::from_secs(30),
            stall: Duration::from_secs(30),
            pause: Duration::from_millis(500),
            repeats: 5,
        }
    }
}

impl Patience {
    /// The pause before repetition number `repeat`, from 0; a registry that asks for more gets more, up to a minute.
    pub(super) fn pause_before(&self, repeat: u32, asked: Option<Duration>) -> Duration {
        const LONGEST: Duration = Duration::from_secs(60);
        self.pause.saturating_mul(1 << repeat.min(16)).max(asked.unwrap_or_default()).min(LONGEST)
    }
}
