//! What people are told of the steps of a pod's life: in order, and no step twice.
//!
//! A worker that is rebuilt after a crash says again what it does not remember to have said. So nothing is told before it is
//! written down; what was written down and not told when the agent died is in the journal only.

use std::sync::Arc;

use lifecycle::Event;
use runtime::Runtime;
use timeline::Appended;
use tokio::sync::mpsc;

use super::{Body, lock};
use crate::images;
use crate::translate::find_container;

/// The events of one step, and its record if that is not on disk yet.
type Words = (Vec<Event>, Option<Appended>);

/// Takes what people are to be told.
pub(super) struct Teller {
    queue: mpsc::UnboundedSender<Words>,
}

impl Teller {
    /// A teller, and the telling: it ends when the teller is gone and all is said.
    pub(super) fn new<R: Runtime>(body: Arc<Body<R>>) -> (Self, impl Future<Output = ()> + Send) {
        // The journal bounds it: no record stays off the disk for longer than a moment.
        let (queue, words) = mpsc::unbounded_channel();
        (Self { queue }, tell_all(body, words))
    }

    /// Tells people these events, behind all before them.
    pub(super) fn tell(&self, events: Vec<Event>, unwritten: Option<Appended>) {
        if !events.is_empty() {
            // It ends before us only when the journal cannot be written any more.
            let _ = self.queue.send((events, unwritten));
        }
    }
}

async fn tell_all<R: Runtime>(body: Arc<Body<R>>, mut words: mpsc::UnboundedReceiver<Words>) {
    while let Some((events, unwritten)) = words.recv().await {
        // Events are not worth a write of their own.
        if let Some(record) = unwritten
            && record.patiently().await.is_err()
        {
            return;
        }
        for event in events {
            body.told_by_the_rules(event);
        }
    }
}

impl<R: Runtime> Body<R> {
    fn told_by_the_rules(&self, mut event: Event) {
        let pod = &lock(&self.facts).pod;
        let container = event.container.as_ref().and_then(|name| find_container(pod, &name.0));
        if let Some(image) = container.as_ref().and_then(|container| container.image.as_deref()) {
            event.message = images::name_the_image(&event.message, image);
        }
        self.tools.recorder.record(pod, event);
    }
}
