//! What people are told of the steps of a pod's life: in order, and no step twice.
//!
//! A worker that is rebuilt after a crash says again what it does not remember to have said. So nothing is told before it is
//! written down; what was written down and not told when the agent died is in the journal only.

use std::sync::Arc;

use futures::FutureExt as _;
use lifecycle::Event;
use runtime_api::Runtime;
use timeline::Appended;
use tokio::sync::mpsc;

use super::{PodContext, lock};
use crate::images;
use crate::translate::find_container;

enum QueuedEvents {
    /// The events of one step, and its record if that is not on disk yet.
    Step(Vec<Event>, Option<Appended>),
    /// What was noticed besides.
    Aside(Event),
}

/// Takes what people are to be told.
pub(super) struct EventRecorder {
    queue: mpsc::UnboundedSender<QueuedEvents>,
}

/// A way to say something in its turn, for as long as there is a teller.
pub(super) struct EventQueue(mpsc::WeakUnboundedSender<QueuedEvents>);

/// What nobody was told yet.
pub(super) struct PendingEvents(mpsc::UnboundedReceiver<QueuedEvents>);

impl EventRecorder {
    pub(super) fn new() -> (Self, EventQueue, PendingEvents) {
        // The journal bounds it: no record stays off the disk for longer than a moment.
        let (queue, words) = mpsc::unbounded_channel();
        let event_queue = EventQueue(queue.downgrade());
        (Self { queue }, event_queue, PendingEvents(words))
    }

    /// Tells people these events, behind all before them.
    pub(super) fn tell(&self, events: Vec<Event>, unwritten: Option<Appended>) {
        if !events.is_empty() {
            // It ends before us only when the journal cannot be written any more.
            let _ = self.queue.send(QueuedEvents::Step(events, unwritten));
        }
    }
}

/// Ends when the teller is gone and all is said.
pub(super) async fn record_all<R: Runtime>(context: Arc<PodContext<R>>, pending: PendingEvents) {
    supervision::keep_on("telling", (context, pending), |(context, pending)| tell_on(context, pending).boxed()).await;
}

async fn tell_on<R: Runtime>(context: &PodContext<R>, PendingEvents(words): &mut PendingEvents) {
    while let Some(words) = words.recv().await {
        let (events, unwritten) = match words {
            QueuedEvents::Step(events, unwritten) => (events, unwritten),
            QueuedEvents::Aside(event) => {
                context.tools.recorder.record(&lock(&context.facts).pod, event);
                continue;
            }
        };
        // Events are not worth a write of their own.
        if let Some(record) = unwritten
            && record.patiently().await.is_err()
        {
            return;
        }
        for event in events {
            context.record_lifecycle_event(event);
        }
    }
}

impl<R: Runtime> PodContext<R> {
    /// Tells people something that the rules do not know of, behind all that they were told to say before it.
    pub(super) fn say(&self, event: Event) {
        let pending = match self.event_queue.0.upgrade() {
            Some(queue) => queue.send(QueuedEvents::Aside(event)).err().map(|refused| refused.0),
            None => Some(QueuedEvents::Aside(event)),
        };
        // The pod's worker has gone, and with it all that would come before.
        if let Some(QueuedEvents::Aside(event)) = pending {
            self.tools.recorder.record(&lock(&self.facts).pod, event);
        }
    }

    fn record_lifecycle_event(&self, mut event: Event) {
        let pod = &lock(&self.facts).pod;
        let container = event.container.as_ref().and_then(|name| find_container(pod, &name.0));
        if let Some(image) = container.as_ref().and_then(|container| container.image.as_deref()) {
            event.message = images::name_the_image(&event.message, image);
        }
        self.tools.recorder.record(pod, event);
    }
}
