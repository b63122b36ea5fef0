//! What pods, and the runs of their containers, are called.

use serde::{Deserialize, Serialize};

/// The UID of a pod: the name of its sandbox.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct PodUid(pub String);

/// One run of one container: `NAME.ATTEMPT` inside its pod.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ContainerId {
    /// Container name.
    pub name: String,
    /// 0 for the first run.
    pub attempt: u32,
}

impl ContainerId {
    /// The stable, globally unique text form used in `containerID: adieu://…`.
    pub fn global(&self, pod: &PodUid) -> String {
        format!("{}.{}.{}", pod.0, self.name, self.attempt)
    }
}
