//! What became of requests: how many were answered, and how each of the others was lost, by the kind of its connection.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::DOWNLOAD_TAKES;

/// What the counts are called in a folder.
const COUNTS: &str = "counts.json";
/// So many reasons are told apart.
pub(super) const REASONS_MOST: usize = 16;
/// So many losses are kept with their moments.
const LOSSES_MOST: usize = 64;

/// How a client uses its connections.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ConnectionKind {
    /// One for every request.
    New,
    /// One for as many requests as it lasts.
    Kept,
    /// One for every answer that takes seconds.
    Download,
}

/// How a request was lost.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Loss {
    /// Nobody took the connection.
    Refused,
    /// The connection ended before the answer was whole.
    Reset,
    /// No whole answer in time.
    TimedOut,
    /// The answer was a 5xx.
    ServerError,
    /// The answer was not the one that was given before.
    WrongAnswer,
    /// Anything else.
    Other,
}

impl Loss {
    /// Every one, in the order in which they are told.
    pub(crate) const ALL: [Self; 6] =
        [Self::Refused, Self::Reset, Self::TimedOut, Self::ServerError, Self::WrongAnswer, Self::Other];

    /// For people.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Reset => "reset",
            Self::TimedOut => "timed out",
            Self::ServerError => "5xx",
            Self::WrongAnswer => "wrong answer",
            Self::Other => "other",
        }
    }
}

/// What became of the requests of one kind of connection.
#[derive(Serialize, Deserialize, Clone, Default, PartialEq, Eq, Debug)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct KindCounts {
    /// Answered whole.
    pub answered: u64,
    /// Lost, in which way.
    pub lost: BTreeMap<Loss, u64>,
    /// Connections that the server closed while nothing was asked on them. That loses nothing.
    pub idle_closes: u64,
}

impl KindCounts {
    /// How many were lost in any way.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.values().sum()
    }
}

/// A lost request.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LostRequest {
    /// When its fate was known, by the clock of the load.
    pub at_ms: u64,
    /// On which kind of connection.
    pub kind: ConnectionKind,
    /// How.
    pub loss: Loss,
    /// Why, in the words of the system.
    pub reason: String,
}

/// What became of the requests so far.
#[derive(Serialize, Deserialize, Clone, Default, PartialEq, Eq, Debug)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Counts {
    /// By the kind of connection.
    pub kinds: BTreeMap<ConnectionKind, KindCounts>,
    /// Lost, for which reason.
    pub lost: BTreeMap<String, u64>,
    /// The first that were lost.
    pub first_lost: Vec<LostRequest>,
    /// The status of the first answer, which every other has to have.
    pub status: Option<u16>,
    /// How long the slowest answer took to begin.
    pub slowest_ms: u64,
    /// Downloads under way: when they began by the client's clock, by the pod that serves them.
    pub downloads: BTreeMap<String, Vec<u64>>,
    /// That clock.
    pub now_ms: u64,
    /// True once nothing is asked any more and nothing is waited for.
    pub is_final: bool,
}

impl Counts {
    /// How many were answered whole.
    pub(crate) fn answered(&self) -> u64 {
        self.kinds.values().map(|kind| kind.answered).sum()
    }

    /// How many were lost.
    pub(crate) fn lost(&self) -> u64 {
        self.kinds.values().map(KindCounts::lost).sum()
    }

    /// Every request whose fate is known.
    pub(crate) fn asked(&self) -> u64 {
        self.answered() + self.lost()
    }

    pub(super) fn note_answered(&mut self, kind: ConnectionKind, took_ms: u64) {
        self.kinds.entry(kind).or_default().answered += 1;
        self.slowest_ms = self.slowest_ms.max(took_ms);
    }

    pub(super) fn note_lost(&mut self, at_ms: u64, kind: ConnectionKind, loss: Loss, reason: String) {
        *self.kinds.entry(kind).or_default().lost.entry(loss).or_default() += 1;
        if self.first_lost.len() < LOSSES_MOST {
            self.first_lost.push(LostRequest { at_ms, kind, loss, reason: reason.clone() });
        }
        let known = self.lost.contains_key(&reason) || self.lost.len() < REASONS_MOST;
        *self.lost.entry(if known { reason } else { "for other reasons".to_owned() }).or_default() += 1;
    }

    /// The pod whose last download ends last, if that is at least so far away.
    pub(crate) fn busiest(&self, at_least: Duration) -> Option<&str> {
        let latest = self.downloads.iter().filter_map(|(pod, began)| Some((began.iter().max()?, pod))).max()?;
        let takes = u64::try_from(DOWNLOAD_TAKES.as_millis()).unwrap_or(u64::MAX);
        let left = latest.0.saturating_add(takes).saturating_sub(self.now_ms);
        (u128::from(left) >= at_least.as_millis()).then_some(latest.1.as_str())
    }

    /// What is known by now; nothing if nobody has begun to ask.
    pub(crate) fn read(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(folder.join(COUNTS)).ok()?).ok()
    }

    /// Keeps them in a folder, where [`Self::read`] finds them.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        let part = folder.join(".counts.json");
        fs::write(&part, serde_json::to_vec(self)?)?;
        fs::rename(part, folder.join(COUNTS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_with_the_longest_download_left_is_the_busiest_unless_it_is_nearly_done() {
        let downloads = [("a", vec![500, 100]), ("b", vec![900]), ("c", vec![])];
        let downloads = downloads.map(|(pod, began)| (pod.to_owned(), began));
        let mut counts = Counts { downloads: downloads.into(), now_ms: 1000, ..Counts::default() };
        assert_eq!(counts.busiest(Duration::from_secs(2)), Some("b"), "2.9 s are left");
        counts.now_ms = 2000;
        assert_eq!(counts.busiest(Duration::from_secs(2)), None, "1.9 s are left");
        assert_eq!(Counts::default().busiest(Duration::ZERO), None);
    }

    #[test]
    fn lost_request_is_counted_once_by_kind_and_way_and_reason_and_few_reasons_and_moments_are_kept() {
        let mut counts = Counts::default();
        counts.note_answered(ConnectionKind::New, 7);
        for number in 0..100 {
            counts.note_lost(number, ConnectionKind::Kept, Loss::Reset, format!("reason {number}"));
        }
        counts.note_lost(100, ConnectionKind::New, Loss::Refused, "connection refused".to_owned());
        assert_eq!((counts.answered(), counts.lost(), counts.asked()), (1, 101, 102));
        assert_eq!(counts.kinds[&ConnectionKind::Kept].lost[&Loss::Reset], 100);
        assert_eq!(counts.lost.values().sum::<u64>(), 101);
        assert!(counts.lost.len() <= REASONS_MOST + 1 && counts.first_lost.len() == LOSSES_MOST);
        let read: Counts = serde_json::from_str(&serde_json::to_string(&counts).expect("JSON")).expect("the same");
        assert_eq!(read, counts);
    }
}
