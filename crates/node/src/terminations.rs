//! Records of how pods ended: told while they leave ([`story`]), kept in the journal, stored in the API ([`writer`]), counted
//! ([`metrics`]).
//!
//! Exactly one record comes of an end, whatever is killed: a driver that finishes appends the record to the journal in place of the
//! life that is over, and the writer takes it out when the API has it. Storing it again comes to the same.

pub mod metrics;
pub mod story;
pub mod writer;

use std::sync::Arc;

use api::TerminationRecord;
use lifecycle::Wall;
use serde_json::Value;
use timeline::Journal;
use tokio::sync::mpsc;

pub use metrics::TerminationMetrics;
pub use story::TerminationStory;

/// A record on its way to the API.
#[derive(Clone, Debug)]
pub struct PendingRecord {
    /// Where it belongs.
    pub namespace: String,
    /// What it is called.
    pub name: String,
    /// The whole object.
    pub object: Value,
    /// Where the journal keeps it; nowhere for a pod that is over but still has a life there.
    pub journalled: Option<(String, Wall)>,
}

/// Takes records, counts them and has them stored.
#[derive(Clone, Debug)]
pub struct Terminations {
    queue: mpsc::UnboundedSender<PendingRecord>,
    metrics: Arc<TerminationMetrics>,
}

impl Terminations {
    /// What takes records, and the work that stores them.
    pub fn start(client: kube::Client, journal: Journal) -> (Self, impl Future<Output = ()> + Send) {
        let (queue, queued) = mpsc::unbounded_channel();
        let metrics = Arc::new(TerminationMetrics::default());
        for concluded in journal.take_concluded() {
            match PendingRecord::read(&concluded.record) {
                Some(mut pending) => {
                    pending.journalled = Some((concluded.uid, concluded.wall));
                    // The receiver is right here.
                    let _ = queue.send(pending);
                }
                None => tracing::error!(uid = concluded.uid, "a record in the journal cannot be read, and is left out"),
            }
        }
        let writing = writer::run(client, journal, queued, Arc::clone(&metrics));
        (Self { queue, metrics }, writing)
    }

    /// Takes nothing, for tests of drivers.
    pub fn nowhere() -> Self {
        Self { queue: mpsc::unbounded_channel().0, metrics: Arc::default() }
    }

    /// Has a record stored.
    pub fn store(&self, pending: PendingRecord) {
        // A node that ends finds it in the journal when it starts again.
        let _ = self.queue.send(pending);
    }

    /// Counts an end.
    pub fn count(&self, record: &TerminationRecord) {
        self.metrics.count(record);
    }

    /// What was counted.
    pub fn metrics(&self) -> Arc<TerminationMetrics> {
        Arc::clone(&self.metrics)
    }
}

impl PendingRecord {
    /// A record that is in no journal.
    pub fn new(record: &TerminationRecord) -> Option<Self> {
        let mut object = serde_json::to_value(record).ok()?;
        object["apiVersion"] = Value::from(api::termination::API_VERSION);
        object["kind"] = Value::from(api::termination::KIND);
        Self::of_object(object)
    }

    /// As it stands in the journal.
    pub fn to_text(&self) -> String {
        self.object.to_string()
    }

    fn read(text: &str) -> Option<Self> {
        Self::of_object(serde_json::from_str(text).ok()?)
    }

    fn of_object(object: Value) -> Option<Self> {
        let word = |key: &str| object["metadata"][key].as_str().filter(|word| !word.is_empty()).map(str::to_owned);
        let (namespace, name) = (word("namespace")?, word("name")?);
        Some(Self { namespace, name, object, journalled: None })
    }
}
