//! What is kept of a pod's end: the kind `TerminationRecord` (`adieu.dev/v1alpha1`), and who asked for the end.
//!
//! A record is written once, by the pod's node when the pod is over, or by the server for a pod that never had a node. It outlives
//! the pod. [`requests`] is what the server notes on a pod with every delete: the node copies it into the record.

pub mod requests;

pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use serde::{Deserialize, Serialize};

pub use requests::{DELETION_REQUESTS, DeletionRequest, Requester};

/// The API group of what Kubernetes has no word for.
pub const GROUP: &str = "adieu.dev";
/// Its version.
pub const VERSION: &str = "v1alpha1";
/// The word in the path.
pub const PLURAL: &str = "terminationrecords";
/// `apiVersion` of a record.
pub const API_VERSION: &str = "adieu.dev/v1alpha1";
/// `kind` of a record.
pub const KIND: &str = "TerminationRecord";
/// The store's collection.
pub const COLLECTION: &str = "terminationrecords.adieu.dev";

/// How many characters of the pod's UID are part of a record's name.
const UID_PART: usize = 8;
/// No name is longer.
const NAME_MOST: usize = 253;
/// More steps are not kept; how many there were is said.
pub const STEPS_MAX: usize = 256;
/// More requests are not kept.
pub const REQUESTS_MAX: usize = 16;
/// A pod has no more containers than fit here.
pub const CONTAINERS_MAX: usize = 256;
/// The longest text in a record: what a hook wrote, with a sentence around it.
pub const TEXT_BYTES_MAX: usize = 2048 + 512;

/// What became of a pod, from the first request to the end of its object.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TerminationRecord {
    /// Named `<pod>-<first 8 of its UID>`, in the pod's namespace.
    pub metadata: ObjectMeta,
    /// Whose end it was.
    pub pod: EndedPod,
    /// The node that the pod was on; empty if it never had one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node_name: String,
    /// `clean`, `hurried`, `forced` or `lost`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub verdict: String,
    /// Why it ended: `Deleted`, `Completed`, `Evicted`, `NodeShutdown`, …
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cause: String,
    /// Who asked first: the user of the delete, or the node.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub asked_by: String,
    /// The story in one sentence.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub summary: String,
    /// Every request that said something new: the first, and each that brought the deadline forward.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<TerminationRequest>,
    /// The grace of the first request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_period_seconds: Option<i64>,
    /// When it was first asked to leave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<MicroTime>,
    /// By when it had to be gone, after the last request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<MicroTime>,
    /// When it was over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_time: Option<MicroTime>,
    /// How long that took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub took_milliseconds: Option<i64>,
    /// How long each part of it took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phases: Option<TerminationPhases>,
    /// What let hooks and stop signals begin: the reason of the condition `adieu.dev/TrafficDrained`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub barrier: String,
    /// Everything that happened, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<TerminationStep>,
    /// How many steps there were no room for.
    #[serde(skip_serializing_if = "is_zero")]
    pub omitted_steps: i64,
    /// How each container ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<EndedContainer>,
}

/// The pod of a record.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndedPod {
    /// Its name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its UID.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Its controller, `ReplicaSet/web-5d8`; empty if it had none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub owner: String,
}

/// One request to leave.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TerminationRequest {
    /// Who: the user of a delete, `node`, or nothing if that is not known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// How: `Delete`, `Eviction`, or the node's reason.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub via: String,
    /// When, counted from the first request.
    pub after_milliseconds: i64,
    /// The grace that it gives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_period_seconds: Option<i64>,
    /// The deadline that holds from then on, counted from the first request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_milliseconds: Option<i64>,
}

/// How long the parts of an end took. What did not happen has no length.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TerminationPhases {
    /// From the first request until new connections went elsewhere and open ones had their time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_milliseconds: Option<i64>,
    /// From the begin of the first hook to the end of the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hooks_milliseconds: Option<i64>,
    /// From the first request to the first stop signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_signal_milliseconds: Option<i64>,
    /// From the first stop signal to the last exit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_milliseconds: Option<i64>,
    /// From the last exit until nothing was left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cleanup_milliseconds: Option<i64>,
}

/// One thing that happened.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TerminationStep {
    /// When, counted from the first request.
    pub after_milliseconds: i64,
    /// What: one of [`step`].
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub type_: String,
    /// Which container it concerns.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub container: String,
    /// The signal's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub signal: String,
    /// `preStop` or `postStart`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hook: String,
    /// How a hook or a delivery went.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub result: String,
    /// The exit code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    /// How many connections were open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<i64>,
    /// In words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The last of what a hook wrote, at most 2 KiB.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub output: String,
}

/// How a container ended.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndedContainer {
    /// Its name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its exit code; none of one whose end nobody saw.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    /// The signal that ended it, if one did.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub signal: String,
    /// `Completed`, `Error`, `OOMKilled`, `ContainerStatusUnknown`, …
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// How the end of a pod goes, as its node tells it while it goes on (`/terminations/NAMESPACE/POD` of the node's API).
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TerminationProgress {
    /// What it waits for, in words.
    pub waits_for: String,
    /// What happens next if nothing else does.
    pub next: String,
    /// In how many milliseconds that is.
    pub next_in_milliseconds: Option<i64>,
    /// In how many milliseconds its grace is spent; negative when it is.
    pub deadline_in_milliseconds: Option<i64>,
    /// Its record as far as it has come; none of a pod that does not leave.
    pub record: Option<TerminationRecord>,
    /// The first process of each container that runs.
    pub processes: Vec<ProcessSignals>,
}

/// What a container's first process makes of the signal that it is stopped with.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProcessSignals {
    /// The container.
    pub container: String,
    /// The name of the process.
    pub name: String,
    /// Its number in its own namespace.
    pub pid: u32,
    /// The stop signal.
    pub signal: String,
    /// `Caught`, `Blocked`, `Ignored`, or `Default` if it has no handler.
    pub disposition: String,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands in references")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// The words of [`TerminationStep::type_`].
pub mod step {
    /// It was asked to leave, or to leave sooner.
    pub const REQUESTED: &str = "Requested";
    /// New connections are to be kept away.
    pub const CUT_ASKED: &str = "CutAsked";
    /// New connections go elsewhere.
    pub const CUT: &str = "Cut";
    /// Something else became known of its traffic.
    pub const TRAFFIC: &str = "Traffic";
    /// So many connections were open.
    pub const CONNECTIONS: &str = "Connections";
    /// Hooks and stop signals may begin, for this reason.
    pub const DRAINED: &str = "Drained";
    /// A hook was begun.
    pub const HOOK_STARTED: &str = "HookStarted";
    /// It ended.
    pub const HOOK_ENDED: &str = "HookEnded";
    /// Its time was over, and it is ended.
    pub const HOOK_CANCELLED: &str = "HookCancelled";
    /// A stop signal is to be sent.
    pub const SIGNAL_ASKED: &str = "SignalAsked";
    /// The kernel took it, or there was nobody left to take it.
    pub const SIGNAL_DELIVERED: &str = "SignalDelivered";
    /// KILL is to be sent.
    pub const KILL_ASKED: &str = "KillAsked";
    /// It could not be sent.
    pub const KILL_FAILED: &str = "KillFailed";
    /// A container's first process ended.
    pub const EXITED: &str = "Exited";
    /// The sandbox is to be removed.
    pub const SANDBOX_REMOVAL_ASKED: &str = "SandboxRemovalAsked";
    /// It is gone.
    pub const SANDBOX_REMOVED: &str = "SandboxRemoved";
    /// It could not be removed.
    pub const SANDBOX_REMOVAL_FAILED: &str = "SandboxRemovalFailed";
    /// The object is to be deleted.
    pub const DELETE_ASKED: &str = "DeleteAsked";
    /// It is gone.
    pub const DELETED: &str = "Deleted";
    /// It could not be deleted.
    pub const DELETE_FAILED: &str = "DeleteFailed";
    /// The node's agent was started again.
    pub const AGENT_RESTARTED: &str = "AgentRestarted";
    /// The machine was booted anew.
    pub const REBOOTED: &str = "Rebooted";
    /// Something people should look at.
    pub const WARNING: &str = "Warning";
}

/// The words of [`TerminationRecord::verdict`], from the best to the worst.
pub const VERDICTS: [&str; 4] = ["clean", "hurried", "forced", "lost"];

/// What the record of a pod is called.
pub fn record_name(pod: &str, uid: &str) -> String {
    let part: String = uid.chars().filter(char::is_ascii_alphanumeric).take(UID_PART).collect();
    let part = part.to_ascii_lowercase();
    // A name does not end in a dot or a dash where it is cut.
    let most = NAME_MOST - 1 - UID_PART;
    let cut: String = pod.chars().take(most).collect();
    format!("{}-{part}", cut.trim_end_matches(['.', '-']))
}

/// The first so many bytes of a text, cut between letters.
pub fn bounded(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_is_named_after_the_pod_and_the_first_eight_of_its_uid() {
        assert_eq!(record_name("web-0", "5d8e90e1-7a37-4c55"), "web-0-5d8e90e1");
        assert_eq!(record_name("web", "ABCDEF-0123456"), "web-abcdef01");
        let long = record_name(&format!("{}.x", "a".repeat(243)), "5d8e90e1-7a37");
        assert!(long.len() <= NAME_MOST && long.ends_with("aa-5d8e90e1"), "{long}");
    }

    #[test]
    fn text_is_cut_between_letters() {
        assert_eq!(bounded("über", 1), "");
        assert_eq!(bounded("über", 3), "üb");
        assert_eq!(bounded("über", 100), "über");
    }

    #[test]
    fn record_that_says_nothing_is_read_and_written_as_nothing() {
        let read: TerminationRecord = serde_json::from_str("{}").expect("everything may be left out");
        assert_eq!(read, TerminationRecord::default());
        assert_eq!(serde_json::to_value(&read).expect("JSON"), serde_json::json!({ "metadata": {}, "pod": {} }));
    }
}
