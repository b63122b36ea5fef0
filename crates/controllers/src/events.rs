//! Events that a controller tells about objects: stored by a task of its own, so that nobody waits for them.

use std::sync::Arc;

use client::{Grade, Recorder, Wall};
use frame::Clock;
use k8s_openapi::api::core::v1::ObjectReference;
use tokio::task::JoinSet;

/// What dates events.
pub(crate) fn wall(clock: Clock) -> Wall {
    Arc::new(move || clock.now().timestamp)
}

/// Tells events in the name of one controller. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct EventRecorder(Recorder);

impl EventRecorder {
    /// A recorder called `name`; what it tells is stored by one of `tasks`.
    pub(crate) fn start(client: kube::Client, name: &'static str, clock: Clock, tasks: &mut JoinSet<()>) -> Self {
        let (recorder, recording) = Recorder::start(client, name, None, wall(clock));
        tasks.spawn(recording);
        Self(recorder)
    }

    /// Something a person should know about.
    pub(crate) fn warn(&self, about: ObjectReference, reason: &str, message: &str) {
        self.0.tell(about, Grade::Warning, reason, message.to_owned());
    }

    /// Something that happened as it should.
    pub(crate) fn tell(&self, about: ObjectReference, reason: &str, message: &str) {
        self.0.tell(about, Grade::Normal, reason, message.to_owned());
    }
}
