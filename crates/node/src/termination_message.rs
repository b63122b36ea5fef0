//! The termination message of a container: its message file, or the end of its log (node-termination 6.5).

use k8s_openapi::api::core::v1::Pod;
use lifecycle::message;
use runtime_api::{ContainerId, ExitRecord, PodUid, Runtime};
use tracing::warn;

use crate::files::Files;
use crate::streams::last_lines;
use crate::translate::find_container;

/// The termination message of an ended run; `None` if it left none.
pub(crate) async fn termination_message<R: Runtime>(
    runtime: &R,
    pod: &Pod,
    id: &ContainerId,
    exit: &ExitRecord,
    files: &Files,
) -> Option<String> {
    let uid = PodUid(pod.metadata.uid.clone().unwrap_or_default());
    if let Some(words) = runtime.termination_message(&uid, id).await {
        return Some(words);
    }
    if exit.code == 0 || !falls_back(pod, &id.name) {
        return None;
    }
    let log = runtime.log_path(&uid, id);
    match files.run("files.last_lines", move || last_lines(&log)).await {
        Ok(text) => Some(message::of_log(&text).to_owned()).filter(|words| !words.is_empty()),
        Err(error) => {
            warn!(%error, container = id.name, "the end of a log cannot be read");
            Some(format!("Error on reading termination message from logs: {error}"))
        }
    }
}

/// Whether the end of the log is used for a container that failed without a message.
fn falls_back(pod: &Pod, container: &str) -> bool {
    let container = find_container(pod, container);
    container.is_some_and(|c| c.termination_message_policy.as_deref() == Some("FallbackToLogsOnError"))
}
