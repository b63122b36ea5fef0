//! What the node asks of policies: let a pod's packets pass under its rules, and forget a pod.

use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use tokio::sync::{mpsc, oneshot};

use crate::facts::PodFacts;

/// How long a pod waits for its rules before its start is tried again.
pub const IN_FORCE_WITHIN: Duration = Duration::from_secs(10);

/// Why the rules of a pod are not in force. It can neither open nor accept a connection meanwhile.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// Nothing was lost: whoever asks again may find it done.
    #[error("NetworkPolicies are not in force for this pod after {after:?}: {reason}")]
    TooLate {
        /// How long that was waited for.
        after: Duration,
        /// What is missing.
        reason: &'static str,
    },
    /// What was there before is in force, and it is tried again.
    #[error("the kernel did not take the rules of NetworkPolicies: {reason}")]
    NotApplied {
        /// What it said.
        reason: String,
    },
    /// They have ended, or begin again after they broke.
    #[error("NetworkPolicies are not looked after")]
    NotRunning,
}

pub(crate) type Answer = oneshot::Sender<Result<(), PolicyError>>;

/// What policies are asked.
#[derive(Debug)]
pub(crate) enum Request {
    Admit {
        uid: String,
        facts: Box<PodFacts>,
        version: u64,
        addresses: Vec<IpAddr>,
        link: String,
        answer: Option<Answer>,
    },
    Release {
        uid: String,
    },
    /// Who tells people.
    TellBy(client::Recorder),
    /// The tables are removed, and their owner ends.
    Close {
        answer: Answer,
    },
    #[cfg(test)]
    Break,
}

/// Speaks to the policies of this node. Clones speak to the same.
#[derive(Clone, Debug)]
pub struct PolicyHandle {
    requests: mpsc::UnboundedSender<Request>,
}

impl PolicyHandle {
    pub(crate) fn new(requests: mpsc::UnboundedSender<Request>) -> Self {
        Self { requests }
    }

    /// Lets the packets of a pod pass that has got these addresses behind that link, as policies say. Answered when they are in force.
    ///
    /// It is asked for when this is called, not when the future is polled first.
    pub fn admit(
        &self,
        uid: &str,
        pod: &Pod,
        addresses: &[IpAddr],
        link: &str,
    ) -> impl Future<Output = Result<(), PolicyError>> + Send + use<> {
        let (answer, answered) = oneshot::channel();
        let is_asked = self.send_admission(uid, pod, addresses, link, Some(answer));
        async move {
            if !is_asked {
                return Err(PolicyError::NotRunning);
            }
            match tokio::time::timeout(IN_FORCE_WITHIN, answered).await {
                Ok(answer) => answer.unwrap_or(Err(PolicyError::NotRunning)),
                Err(_) => Err(PolicyError::TooLate {
                    after: IN_FORCE_WITHIN,
                    reason: "the API has not listed namespaces, pods and policies yet",
                }),
            }
        }
    }

    /// Takes note of what is known of a pod that has these addresses already.
    pub fn know(&self, uid: &str, pod: &Pod, addresses: &[IpAddr], link: &str) {
        self.send_admission(uid, pod, addresses, link, None);
    }

    fn send_admission(&self, uid: &str, pod: &Pod, addresses: &[IpAddr], link: &str, answer: Option<Answer>) -> bool {
        let request = Request::Admit {
            uid: uid.to_owned(),
            facts: Box::new(PodFacts::of(pod)),
            version: version(pod.metadata.resource_version.as_ref()),
            addresses: addresses.to_vec(),
            link: link.to_owned(),
            answer,
        };
        self.requests.send(request).is_ok()
    }

    /// The pod has no address any more.
    pub fn release(&self, uid: &str) {
        // Whoever does not run has nothing to forget.
        let _ = self.requests.send(Request::Release { uid: uid.to_owned() });
    }

    pub(crate) fn tell_by(&self, recorder: client::Recorder) {
        let _ = self.requests.send(Request::TellBy(recorder));
    }

    pub(crate) async fn close(&self) -> Result<(), PolicyError> {
        let (answer, answered) = oneshot::channel();
        self.requests.send(Request::Close { answer }).map_err(|_| PolicyError::NotRunning)?;
        answered.await.unwrap_or(Err(PolicyError::NotRunning))
    }

    /// Ends the owner of the tables in the middle of its work.
    #[cfg(test)]
    pub(crate) fn break_owner(&self) {
        let _ = self.requests.send(Request::Break);
    }
}

pub(crate) fn version(text: Option<&String>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}
