//! Limits on requests in flight. A request over the limit waits a little, then gets 429.
//!
//! Watches and streams are not counted: they mostly wait. Administrators, nodes and our own controllers are exempt, so that a flood
//! of other requests cannot stop them.

use std::sync::Arc;
use std::time::Duration;

use api::Status;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::identity::Identity;
use crate::rbac;
use crate::request::Verb;

const READERS: usize = 400;
const WRITERS: usize = 200;
/// How long a request may wait for a permit.
const PATIENCE: Duration = Duration::from_secs(1);
/// `Retry-After` of a refused request.
const AGAIN_AFTER_SECONDS: u32 = 1;

pub(crate) struct InflightLimits {
    readers: Arc<Semaphore>,
    writers: Arc<Semaphore>,
}

impl Default for InflightLimits {
    fn default() -> Self {
        Self { readers: Arc::new(Semaphore::new(READERS)), writers: Arc::new(Semaphore::new(WRITERS)) }
    }
}

impl InflightLimits {
    /// A permit to be held during the request, or `None` for an exempt one. 429 if none becomes free in time.
    pub(crate) async fn take(&self, identity: &Identity, verb: Verb) -> Result<Option<OwnedSemaphorePermit>, Status> {
        let inflight = match verb {
            Verb::Watch => return Ok(None),
            _ if is_exempt(identity) => return Ok(None),
            Verb::Get | Verb::List => &self.readers,
            Verb::Create | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection => &self.writers,
        };
        match tokio::time::timeout(PATIENCE, Arc::clone(inflight).acquire_owned()).await {
            Ok(seat) => Ok(seat.ok()),
            Err(_) => {
                let text = "Too many requests, please try again later.";
                Err(Status::too_many_requests(text, AGAIN_AFTER_SECONDS))
            }
        }
    }
}

fn is_exempt(identity: &Identity) -> bool {
    let groups = ["system:masters", "system:nodes"];
    let account = identity.user.strip_prefix("system:serviceaccount:kube-system:");
    groups.iter().any(|group| identity.is_in(group))
        || identity.user.starts_with("system:kube-")
        || account.is_some_and(rbac::is_controller)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[tokio::test]
    async fn request_flood_gets_429_and_leaves_system_identities_unlimited() {
        let inflight = InflightLimits::default();
        let bob = Identity::new("bob", &[]);
        let mut held = Vec::new();
        for _ in 0..WRITERS {
            held.push(inflight.take(&bob, Verb::Create).await.unwrap().unwrap());
        }
        let refused = inflight.take(&bob, Verb::Delete).await.unwrap_err();
        assert_eq!((refused.code, refused.reason, refused.retry_after()), (429, "TooManyRequests", Some(1)));
        assert!(inflight.take(&bob, Verb::Get).await.unwrap().is_some(), "readers have seats of their own");
        assert!(inflight.take(&bob, Verb::Watch).await.unwrap().is_none());
        let collector = Identity::service_account("kube-system", "pod-garbage-collector");
        for free in [Identity::admin(), Identity::node("n1"), Identity::new("system:kube-scheduler", &[]), collector] {
            assert!(inflight.take(&free, Verb::Create).await.unwrap().is_none());
        }
        for other in [("kube-system", "default"), ("default", "pod-garbage-collector")] {
            assert!(inflight.take(&Identity::service_account(other.0, other.1), Verb::Create).await.is_err());
        }
        held.pop();
        assert!(inflight.take(&bob, Verb::Delete).await.unwrap().is_some());
    }
}
