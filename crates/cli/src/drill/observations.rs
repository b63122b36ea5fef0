//! What was seen of a drill: plain facts, gathered by `course` and judged by `report`.

use api::TerminationRecord;
use api::termination::ProcessSignals;
use k8s_openapi::api::core::v1::Pod;

use crate::load::Counts;
use crate::plan::PodAdvice;

/// How pods are made to leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// The workload is restarted, which replaces every pod.
    Restart,
    /// Pods are deleted, one after the other.
    Kill,
}

/// How the drill itself ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    /// Everything was done.
    Done,
    /// Not in time; what was waited for.
    TimedOut(String),
    /// Somebody called it off, with the signal of this number.
    Interrupted(u8),
    /// It could not go on, for this reason.
    Broken(String),
}

/// Everything that was seen.
#[derive(Clone, Debug)]
pub(super) struct Observations {
    /// `deployment.apps/web`.
    pub workload: String,
    /// Where that is.
    pub namespace: String,
    /// How its pods were made to leave.
    pub way: Way,
    /// How the drill ended.
    pub ending: Ending,
    /// The requests, if any were sent.
    pub load: Option<LoadSeen>,
    /// The pods that were to leave.
    pub pods: Vec<PodSeen>,
    /// How many pods were ready at its begin.
    pub ready: usize,
    /// Whether the cluster keeps records of ends.
    pub keeps_records: bool,
    /// What could not be known, and why.
    pub unknown: Vec<String>,
}

/// The requests of a drill.
#[derive(Clone, Debug)]
pub(super) struct LoadSeen {
    /// Where they came from, in words.
    pub from: String,
    /// Where they went, in words.
    pub to: String,
    /// How many a second.
    pub rate: u32,
    /// What became of them. Not final if the last counts did not arrive.
    pub counts: Counts,
    /// What its clock showed when that of the drill began.
    pub clock_ms: i64,
}

/// A pod that was to leave.
#[derive(Clone, Debug, Default)]
pub(super) struct PodSeen {
    /// Its last state.
    pub pod: Pod,
    /// When it was seen to be asked to leave, by the clock of the drill.
    pub asked_ms: Option<u64>,
    /// When it was seen to be gone.
    pub gone_ms: Option<u64>,
    /// How it ended, if the cluster keeps that.
    pub record: Option<TerminationRecord>,
    /// What its first processes made of their stop signals while it was well.
    pub processes: Vec<ProcessSignals>,
    /// What its manifest says about its end.
    pub written: Vec<PodAdvice>,
}

impl PodSeen {
    /// What it is called.
    pub(super) fn name(&self) -> &str {
        self.pod.metadata.name.as_deref().unwrap_or_default()
    }

    /// Which one of that name.
    pub(super) fn uid(&self) -> &str {
        self.pod.metadata.uid.as_deref().unwrap_or_default()
    }

    /// The grace it asks for; of the record, the grace it had.
    pub(super) fn grace_seconds(&self) -> i64 {
        let own = self.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(30);
        self.record.as_ref().and_then(|record| record.grace_period_seconds).unwrap_or(own)
    }

    /// How long it took from the request to its end.
    pub(super) fn took_ms(&self) -> Option<u64> {
        let recorded = self.record.as_ref().and_then(|record| u64::try_from(record.took_milliseconds?).ok());
        recorded.or_else(|| Some(self.gone_ms?.saturating_sub(self.asked_ms?)))
    }

    /// How long it took from the request to the first stop signal.
    pub(super) fn to_signal_ms(&self) -> Option<u64> {
        let phases = self.record.as_ref()?.phases.as_ref()?;
        u64::try_from(phases.to_signal_milliseconds?).ok()
    }
}
