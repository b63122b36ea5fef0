//! What a pod's driver is told, and by whom.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use lifecycle::Input;
use runtime_api::{ContainerId, ExitRecord};
use tokio::sync::{mpsc, oneshot};

use crate::record::{PodFact, PodRecord};
use crate::translate::resize::Pending;

/// How many messages may wait for one driver.
pub const INBOX: usize = 1024;

/// One message to a pod's driver.
#[derive(Debug)]
pub enum Told {
    /// A fact for the rules: from the table of pods, the publisher, or the node itself.
    Input(Input),
    /// The API, or a file, shows the pod like this.
    Seen {
        /// The object.
        pod: Arc<Pod>,
        /// It was seen to change, not found in a list.
        is_live: bool,
    },
    /// A run has ended. Its termination message is read before the rules are told.
    Exited {
        /// Which.
        id: ContainerId,
        /// How.
        exit: ExitRecord,
    },
    /// The pod may have what it asks for. That is kept on disk first.
    Grant(Grant),
    /// The pod does not get what it asks for.
    NotGranted {
        /// The object that asks for it.
        pod: Arc<Pod>,
        /// Why.
        pending: Pending,
    },
    /// Something for the record alone.
    Fact {
        /// What.
        fact: Box<PodFact>,
        /// Who wants the record with it.
        known: Option<oneshot::Sender<Arc<PodRecord>>>,
    },
    /// The answer to an effect.
    Answer {
        /// The life of the driver that asked for it.
        life: u32,
        /// What the record learns of it.
        fact: Option<Box<PodFact>>,
        /// What the rules are told.
        input: Input,
    },
}

/// Other resources that are granted to a pod.
#[derive(Debug)]
pub struct Grant {
    /// The object that asks for them.
    pub pod: Arc<Pod>,
    /// The pod has begun: its containers have to be given them, and people are told.
    pub has_begun: bool,
    /// Told whether that could be kept.
    pub is_kept: oneshot::Sender<bool>,
}

/// A way to answer the driver that asked for something.
///
/// A driver that broke begins another life. It asks the runtime what there is, and for everything anew that is still to be done: an
/// answer to what it asked for before comes too late.
#[derive(Clone, Debug)]
pub struct Answers {
    inbox: mpsc::Sender<Told>,
    life: u32,
}

impl Answers {
    /// Answers to the driver behind `inbox` in its first life.
    pub fn new(inbox: mpsc::Sender<Told>) -> Self {
        Self { inbox, life: 0 }
    }

    /// The life of the driver to whom these go.
    pub fn life(&self) -> u32 {
        self.life
    }

    /// The driver begins another life.
    pub fn begin_again(&mut self) {
        self.life += 1;
    }

    /// Answers. A driver that is gone needs no answer.
    pub async fn send(&self, input: Input) {
        let _ = self.inbox.send(Told::Answer { life: self.life, fact: None, input }).await;
    }

    /// Answers, with what the record learns of it.
    pub async fn send_with(&self, fact: PodFact, input: Input) {
        let _ = self.inbox.send(Told::Answer { life: self.life, fact: Some(Box::new(fact)), input }).await;
    }

    /// Tells something that is true whoever asked.
    pub async fn tell(&self, input: Input) {
        let _ = self.inbox.send(Told::Input(input)).await;
    }

    /// Has the record learn something.
    pub async fn learn(&self, fact: PodFact) {
        let _ = self.inbox.send(Told::Fact { fact: Box::new(fact), known: None }).await;
    }

    /// Has the record learn something; resolves to the record with it. `None` if the driver is gone.
    pub async fn learned(&self, fact: PodFact) -> Option<Arc<PodRecord>> {
        let (known, record) = oneshot::channel();
        self.inbox.send(Told::Fact { fact: Box::new(fact), known: Some(known) }).await.ok()?;
        record.await.ok()
    }
}
