//! One-time links and the sessions that they begin: in memory only, few, and soon over.
//!
//! Both are secrets of 256 random bits, of which only a digest is kept, so that a look-up tells nothing by the time it takes. A session
//! stands for whoever asked for its link, and for no longer than what they showed for that: not past the end of their certificate, nor
//! past that of their token.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::time::Instant;

use crate::authenticate;
use crate::identity::Identity;
use crate::inflight;
use crate::state::State;

/// How long a link may be opened.
pub(super) const LINK_LIFE: Duration = Duration::from_secs(60);
/// How long a session lasts.
pub(super) const SESSION_LIFE: Duration = Duration::from_secs(8 * 3600);
/// Links and sessions of one user. One more takes the place of the user's own oldest.
const LINKS_PER_USER: usize = 4;
const SESSIONS_PER_USER: usize = 8;
/// Links and sessions of all. With as many, somebody new has to wait.
const LINKS_MAX: usize = 256;
const SESSIONS_MAX: usize = 256;
/// Random bytes of a secret, and the letters that they are written with.
const SECRET_BYTES: usize = 32;
const SECRET_LETTERS: usize = 43;

/// For whom a link or a session stands, and on what grounds.
#[derive(Clone)]
pub(super) struct Grant {
    pub(super) identity: Identity,
    /// The bearer token that was shown, which has to stay good.
    pub(super) token: Option<String>,
    /// When the certificate that was shown ends.
    pub(super) certificate_ends: Option<Timestamp>,
}

impl Grant {
    /// Whether what was shown for it is still good.
    fn is_good(&self, state: &State) -> bool {
        self.certificate_ends.is_none_or(|end| state.now() < end)
            && self.token.as_ref().is_none_or(|token| authenticate::holder(state, token).is_some())
    }
}

/// There are too many already.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

/// All links and sessions.
pub(crate) struct Sessions {
    links: Secrets,
    sessions: Secrets,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            links: Secrets::new(LINK_LIFE, LINKS_PER_USER, LINKS_MAX),
            sessions: Secrets::new(SESSION_LIFE, SESSIONS_PER_USER, SESSIONS_MAX),
        }
    }
}

impl Sessions {
    /// A link for whoever `grant` stands for: its secret.
    pub(super) fn new_link(&self, state: &State, grant: Grant) -> Result<String, Full> {
        self.links.add(state.clock.now().instant, grant)
    }

    /// Uses a link up and begins a session; its secret. `None` if there is no such link, or it is too old, or was used.
    pub(super) fn open(&self, state: &State, link: &str) -> Option<Result<String, Full>> {
        let now = state.clock.now().instant;
        let (grant, _) = self.links.take(now, link)?;
        grant.is_good(state).then(|| self.sessions.add(now, grant))
    }

    /// For whom a session stands, and for how much longer.
    pub(super) fn find(&self, state: &State, session: &str) -> Option<(Identity, Duration)> {
        let (grant, left) = self.sessions.find(state.clock.now().instant, session)?;
        if !grant.is_good(state) {
            self.end(state, session);
            return None;
        }
        Some((grant.identity, left))
    }

    /// Ends a session.
    pub(super) fn end(&self, state: &State, session: &str) {
        self.sessions.take(state.clock.now().instant, session);
    }
}

/// Secrets that end by themselves.
struct Secrets {
    life: Duration,
    per_user: usize,
    most: usize,
    held: Mutex<HashMap<[u8; 32], Held>>,
}

struct Held {
    grant: Grant,
    /// Accounts of one namespace count as one user, as they do everywhere.
    user: String,
    ends: Instant,
}

impl Secrets {
    fn new(life: Duration, per_user: usize, most: usize) -> Self {
        Self { life, per_user, most, held: Mutex::default() }
    }

    fn add(&self, now: Instant, grant: Grant) -> Result<String, Full> {
        let user = inflight::flow(&grant.identity).to_owned();
        let mut bytes = [0; SECRET_BYTES];
        SystemRandom::new().fill(&mut bytes).expect("the system gives random numbers");
        let secret = URL_SAFE_NO_PAD.encode(bytes);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|_, own| own.ends > now);
        let of_user = || held.iter().filter(|(_, own)| own.user == user);
        if of_user().count() >= self.per_user {
            let oldest = of_user().min_by_key(|(_, own)| own.ends).map(|(digest, _)| *digest);
            oldest.map(|digest| held.remove(&digest));
        }
        if held.len() >= self.most {
            return Err(Full);
        }
        held.insert(digest_of(&secret), Held { grant, user, ends: now + self.life });
        Ok(secret)
    }

    fn find(&self, now: Instant, secret: &str) -> Option<(Grant, Duration)> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.get(&checked(secret)?).filter(|own| own.ends > now).map(|own| (own.grant.clone(), own.ends - now))
    }

    fn take(&self, now: Instant, secret: &str) -> Option<(Grant, Duration)> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.remove(&checked(secret)?).filter(|own| own.ends > now).map(|own| (own.grant, own.ends - now))
    }
}

fn digest_of(secret: &str) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, secret.as_bytes()).as_ref());
    out
}

/// Nothing of another length is looked for.
fn checked(secret: &str) -> Option<[u8; 32]> {
    (secret.len() == SECRET_LETTERS).then(|| digest_of(secret))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn grant(user: &str) -> Grant {
        Grant { identity: Identity::new(user, &[]), token: None, certificate_ends: None }
    }

    fn few() -> Secrets {
        Secrets::new(LINK_LIFE, 2, 3)
    }

    #[tokio::test(start_paused = true)]
    async fn secret_is_long_and_never_the_same() {
        let (secrets, now) = (few(), Instant::now());
        let (one, two) = (secrets.add(now, grant("a")).unwrap(), secrets.add(now, grant("a")).unwrap());
        assert_ne!(one, two);
        assert_eq!((one.len(), two.len()), (SECRET_LETTERS, SECRET_LETTERS));
        const { assert!(SECRET_BYTES * 8 >= 128) };
        assert!(secrets.find(now, "").is_none() && secrets.find(now, &one[1..]).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn secret_is_taken_once_and_ends_with_its_time() {
        let (secrets, now) = (few(), Instant::now());
        let secret = secrets.add(now, grant("a")).unwrap();
        assert_eq!(secrets.find(now, &secret).unwrap().1, LINK_LIFE);
        assert!(secrets.take(now, &secret).is_some());
        assert!(secrets.take(now, &secret).is_none() && secrets.find(now, &secret).is_none());
        let secret = secrets.add(now, grant("a")).unwrap();
        assert!(secrets.find(now + LINK_LIFE - Duration::from_millis(1), &secret).is_some());
        assert!(secrets.find(now + LINK_LIFE, &secret).is_none());
        assert!(secrets.take(now + LINK_LIFE, &secret).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn user_with_too_many_loses_the_own_oldest_and_nobody_elses() {
        let (secrets, now) = (few(), Instant::now());
        let later = |seconds| now + Duration::from_secs(seconds);
        let of_b = secrets.add(now, grant("b")).unwrap();
        let first = secrets.add(later(1), grant("a")).unwrap();
        let second = secrets.add(later(2), grant("a")).unwrap();
        assert_eq!(secrets.add(later(3), grant("c")), Err(Full), "three are the most");
        let third = secrets.add(later(3), grant("a")).unwrap();
        let there = [&of_b, &first, &second, &third].map(|secret| secrets.find(later(3), secret).is_some());
        assert_eq!(there, [true, false, true, true]);
        assert!(secrets.add(later(61), grant("c")).is_ok(), "what is over makes room");
        assert_eq!(secrets.held.lock().unwrap().len(), 3);
    }
}
