//! How one pod ended, from its record or, on a cluster that keeps none, from the exit codes of its last status.

use api::termination::step;
use k8s_openapi::api::core::v1::ContainerStateTerminated;
use serde::Serialize;

use super::observations::PodSeen;

/// 128 + 9: what is told of a process that was killed.
const KILLED: i32 = 137;

/// How well a pod left.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum PodVerdict {
    /// Everything it asked for was given, and every process left by itself.
    Clean,
    /// Every process left by itself, but something was cut short.
    Hurried,
    /// A process had to be killed.
    Forced,
    /// Of a process it is not known how it ended.
    Lost,
    /// Every process left by itself; whether something was cut short is not known.
    Exited,
    /// It is gone, and nothing tells how.
    Unknown,
    /// It was asked to leave, and is there.
    Leaving,
    /// Nobody asked it to leave.
    Untouched,
}

impl PodVerdict {
    /// For people.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Hurried => "hurried",
            Self::Forced => "forced",
            Self::Lost => "lost",
            Self::Exited => "exited",
            Self::Unknown => "unknown",
            Self::Leaving => "leaving",
            Self::Untouched => "untouched",
        }
    }
}

/// How well it left.
pub(super) fn verdict(seen: &PodSeen) -> PodVerdict {
    if let Some(record) = &seen.record {
        match record.verdict.as_str() {
            "clean" => return PodVerdict::Clean,
            "hurried" => return PodVerdict::Hurried,
            "forced" => return PodVerdict::Forced,
            "lost" => return PodVerdict::Lost,
            _ => {}
        }
    }
    if seen.gone_ms.is_none() {
        return if seen.asked_ms.is_some() { PodVerdict::Leaving } else { PodVerdict::Untouched };
    }
    let told = terminated(seen).count();
    match terminated(seen).any(|(_, ended)| is_kill(ended)) {
        true => PodVerdict::Forced,
        false if told == 0 || told < containers(seen) => PodVerdict::Unknown,
        false => PodVerdict::Exited,
    }
}

/// The containers that had to be killed, and how long after the first request, where that is known.
pub(super) fn killed(seen: &PodSeen) -> Vec<(String, Option<i64>)> {
    match &seen.record {
        Some(record) => {
            let mut killed: Vec<(String, Option<i64>)> = Vec::new();
            for asked in record.steps.iter().filter(|asked| asked.type_ == step::KILL_ASKED) {
                if killed.iter().all(|(name, _)| *name != asked.container) {
                    killed.push((asked.container.clone(), Some(asked.after_milliseconds)));
                }
            }
            killed
        }
        None => {
            let took = || seen.took_ms().and_then(|took| i64::try_from(took).ok());
            terminated(seen).filter(|(_, ended)| is_kill(ended)).map(|(name, _)| (name.to_owned(), took())).collect()
        }
    }
}

/// How many connections came after the pod was told to stop, by its record.
pub(super) fn late_connections(seen: &PodSeen) -> u64 {
    let steps = seen.record.iter().flat_map(|record| &record.steps);
    let warned = steps.filter(|told| told.type_ == step::WARNING);
    let count = |message: &str| {
        let told = message.strip_prefix("LateConnections:")?;
        // Of a sentence without a number it is known that there was one.
        Some(told.split_whitespace().find_map(|word| word.parse().ok()).unwrap_or(1))
    };
    warned.filter_map(|told| count(&told.message)).max().unwrap_or(0)
}

/// Containers and the code with which they ended.
pub(super) fn exit_codes(seen: &PodSeen) -> Vec<(String, Option<i64>)> {
    match &seen.record {
        Some(record) => record.containers.iter().map(|own| (own.name.clone(), own.exit_code)).collect(),
        None => terminated(seen).map(|(name, ended)| (name.to_owned(), Some(i64::from(ended.exit_code)))).collect(),
    }
}

/// In a few words: `app 0, sidecar 137 (SIGKILL)`.
pub(super) fn how(seen: &PodSeen) -> String {
    let codes: Vec<String> = exit_codes(seen)
        .into_iter()
        .map(|(name, code)| match code {
            Some(code @ 129..=159) => {
                let signal = match code {
                    130 => "SIGINT",
                    134 => "SIGABRT",
                    137 => "SIGKILL",
                    139 => "SIGSEGV",
                    143 => "SIGTERM",
                    _ => return format!("{name} {code} (signal {})", code - 128),
                };
                format!("{name} {code} ({signal})")
            }
            Some(code) => format!("{name} {code}"),
            None => format!("{name} unknown"),
        })
        .collect();
    codes.join(", ")
}

/// Main containers and sidecars that ended by the pod's last status.
fn terminated(seen: &PodSeen) -> impl Iterator<Item = (&str, &ContainerStateTerminated)> {
    let statuses = seen.pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    statuses.filter_map(|own| Some((own.name.as_str(), own.state.as_ref()?.terminated.as_ref()?)))
}

fn containers(seen: &PodSeen) -> usize {
    seen.pod.spec.as_ref().map_or(0, |spec| spec.containers.len())
}

/// The kernel's own kills for want of memory are another matter.
fn is_kill(ended: &ContainerStateTerminated) -> bool {
    ended.exit_code == KILLED && ended.reason.as_deref() != Some("OOMKilled")
}
