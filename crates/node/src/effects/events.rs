//! Records the events of one pod in order, and each step's once.
//!
//! A worker rebuilt after a crash emits the events of unwritten steps again. So an event is recorded only after its step is in the
//! journal. An event that was journalled and not recorded when the agent died stays in the journal only.

use futures::FutureExt as _;
use lifecycle::Event;
use runtime_api::Runtime;
use timeline::Appended;
use tokio::sync::mpsc;

use super::context::{PodContext, Shared};
use crate::images;
use crate::translate::find_container;

enum QueuedEvents {
    /// The events of one step, and its record if that is not on disk yet.
    Step(Vec<Event>, Option<Appended>),
    /// An event that is not part of a step.
    Aside(Event),
}

/// Takes the events of a pod's steps.
pub(super) struct EventRecorder {
    queue: mpsc::UnboundedSender<QueuedEvents>,
}

/// Adds events to the queue for as long as its recorder exists.
pub(super) struct EventQueue(mpsc::WeakUnboundedSender<QueuedEvents>);

/// Events that are queued and not yet recorded.
pub(super) struct PendingEvents(mpsc::UnboundedReceiver<QueuedEvents>);

impl EventRecorder {
    pub(super) fn new() -> (Self, EventQueue, PendingEvents) {
        // The journal bounds it: no record stays off the disk for longer than a moment.
        let (queue, words) = mpsc::unbounded_channel();
        let event_queue = EventQueue(queue.downgrade());
        (Self { queue }, event_queue, PendingEvents(words))
    }

    /// Queues these events behind all earlier ones.
    pub(super) fn tell(&self, events: Vec<Event>, unwritten: Option<Appended>) {
        if !events.is_empty() {
            // It ends before us only when the journal cannot be written any more.
            let _ = self.queue.send(QueuedEvents::Step(events, unwritten));
        }
    }
}

/// Records queued events; ends when the recorder is gone and the queue is empty.
pub(super) async fn record_all<R: Runtime>(context: PodContext<R>, pending: PendingEvents) {
    supervision::keep_on("telling", (context, pending), |(context, pending)| tell_on(context, pending).boxed()).await;
}

async fn tell_on<R: Runtime>(context: &PodContext<R>, PendingEvents(words): &mut PendingEvents) {
    while let Some(words) = words.recv().await {
        let (events, unwritten) = match words {
            QueuedEvents::Step(events, unwritten) => (events, unwritten),
            QueuedEvents::Aside(event) => {
                context.tools.recorder.record(&context.pod(), event);
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

impl<R: Runtime> Shared<R> {
    /// Records an event that does not come from the rules, behind all queued ones.
    pub(super) fn say(&self, event: Event) {
        let pending = match self.event_queue.0.upgrade() {
            Some(queue) => queue.send(QueuedEvents::Aside(event)).err().map(|refused| refused.0),
            None => Some(QueuedEvents::Aside(event)),
        };
        // The pod's worker has gone, and with it all that would come before.
        if let Some(QueuedEvents::Aside(event)) = pending {
            self.tools.recorder.record(&self.record.pod(), event);
        }
    }

    fn record_lifecycle_event(&self, mut event: Event) {
        let pod = &self.record.pod();
        let container = event.container.as_ref().and_then(|name| find_container(pod, &name.0));
        if let Some(image) = container.as_ref().and_then(|container| container.image.as_deref()) {
            event.message = images::name_the_image(&event.message, image);
        }
        self.tools.recorder.record(pod, event);
    }
}
