//! The whole state of a worker as one value, which replaces the inputs that led to it.
//!
//! Only a worker that waits for no answer has a snapshot: the sandbox is there, no image is on its way, no hook runs, and the pod is
//! not terminating.
//! A container that crashes for years has one between any two runs. A worker made from a snapshot is equal to the one it was taken
//! from.

use alloc::vec::Vec;
use core::time::Duration;

use crate::container::{Container, MadeFrom, Run, Running};
use crate::detour::Detour;
use crate::image::Image;
use crate::phase::{Phase, Sandbox};
use crate::restart::BackOff;
use crate::{ContainerSpec, Moment, PodSpec, PodWorker, Routes, Signal, Terminated, Waiting, Wall};

/// What a worker knows of a pod beyond the pod's first spec.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PodSnapshot {
    /// When it was begun.
    pub began_at: Option<Moment>,
    /// How long it was active before this boot.
    pub active_before: Duration,
    /// How long it may be active, as it was last said.
    pub active_deadline: Option<Duration>,
    /// Every init container has done its part.
    pub initialized: bool,
    /// Who routes to it.
    pub routes: Routes,
    /// The generation last seen.
    pub generation: Option<i64>,
    /// Its containers, those that came later among them.
    pub containers: Vec<ContainerSnapshot>,
}

/// One container in a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContainerSnapshot {
    /// What it asks for.
    pub spec: ContainerSpec,
    /// How many other images were asked for before its present one.
    pub edition: u32,
    /// What is known of that image.
    pub image: ImageSnapshot,
    /// That of the image which its latest run was made from, if that is known.
    pub made_from: Option<Option<Signal>>,
    /// Its latest run.
    pub attempt: u32,
    /// Where that stands.
    pub run: RunSnapshot,
    /// How long its next crash is waited for.
    pub back_off: Duration,
    /// How its newest ended run ended.
    pub newest: Option<Terminated>,
    /// And the one before that.
    pub before: Option<Terminated>,
}

/// An image in a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImageSnapshot {
    /// Nobody asked for it yet: its container's turn is still to come.
    Unwanted,
    /// It is there, and names this stop signal.
    Ready { stop_signal: Option<Signal> },
}

/// The state of a container's latest run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RunSnapshot {
    /// Not asked for yet.
    Unstarted,
    /// It will be asked for again.
    Waiting { until: Moment, shown: Waiting },
    /// It runs.
    Running { since: Wall, seen_at: Moment, probed_ready: bool, came_up: bool },
    /// It ended and will not run again.
    Ended,
}

impl PodWorker {
    /// The snapshot, if the worker waits for no answer.
    pub fn snapshot(&self) -> Option<PodSnapshot> {
        let Phase::Living { sandbox: Sandbox::Ready } = &self.phase else { return None };
        if self.is_blind() || self.restarting_all || self.detour != Detour::None || !self.waiters.is_empty() {
            return None;
        }
        Some(PodSnapshot {
            began_at: self.began_at,
            active_before: self.active_before,
            active_deadline: self.active_deadline,
            initialized: self.initialized,
            routes: self.routes,
            generation: self.generation,
            containers: self.containers.iter().map(Container::snapshot).collect::<Option<_>>()?,
        })
    }

    /// The worker of a pod with this first spec, restored from a snapshot.
    pub fn remembered(spec: PodSpec, snapshot: PodSnapshot) -> Self {
        let PodSnapshot { began_at, active_before, active_deadline, initialized, routes, generation, containers } =
            snapshot;
        let mut worker = Self::new(spec);
        worker.began_at = began_at;
        worker.active_before = active_before;
        worker.active_deadline = active_deadline;
        worker.initialized = initialized;
        worker.routes = routes;
        worker.generation = generation;
        worker.containers = containers.into_iter().map(Container::remembered).collect();
        worker.phase = Phase::Living { sandbox: Sandbox::Ready };
        worker.take_fingerprints();
        worker
    }
}

impl Container {
    fn snapshot(&self) -> Option<ContainerSnapshot> {
        let Self { spec, image, edition, made_from, attempt, run, back_off, newest, before } = self;
        let image = match image {
            Image::Unwanted => ImageSnapshot::Unwanted,
            Image::Ready { stop_signal } => ImageSnapshot::Ready { stop_signal: *stop_signal },
            Image::Pulling { .. } | Image::Failed(_) => return None,
        };
        Some(ContainerSnapshot {
            spec: spec.clone(),
            edition: *edition,
            image,
            made_from: made_from.map(|MadeFrom { stop_signal }| stop_signal),
            attempt: *attempt,
            run: match run {
                Run::Unstarted => RunSnapshot::Unstarted,
                Run::Waiting { until, shown, then: None } => {
                    RunSnapshot::Waiting { until: *until, shown: shown.clone() }
                }
                Run::Running(Running {
                    since,
                    seen_at,
                    post_start: None,
                    fell_short: false,
                    probed_ready,
                    came_up,
                    replaced: false,
                    blame: None,
                    stop: None,
                }) => RunSnapshot::Running {
                    since: *since,
                    seen_at: *seen_at,
                    probed_ready: *probed_ready,
                    came_up: *came_up,
                },
                Run::Asked(_) | Run::Running(_) | Run::Waiting { .. } => return None,
                Run::Ended => RunSnapshot::Ended,
            },
            back_off: back_off.next,
            newest: newest.clone(),
            before: before.clone(),
        })
    }

    fn remembered(snapshot: ContainerSnapshot) -> Self {
        let ContainerSnapshot { spec, edition, image, made_from, attempt, run, back_off, newest, before } = snapshot;
        Self {
            spec,
            image: match image {
                ImageSnapshot::Unwanted => Image::Unwanted,
                ImageSnapshot::Ready { stop_signal } => Image::Ready { stop_signal },
            },
            edition,
            made_from: made_from.map(|stop_signal| MadeFrom { stop_signal }),
            attempt,
            run: match run {
                RunSnapshot::Unstarted => Run::Unstarted,
                RunSnapshot::Waiting { until, shown } => Run::Waiting { until, shown, then: None },
                RunSnapshot::Running { since, seen_at, probed_ready, came_up } => Run::Running(Running {
                    since,
                    seen_at,
                    post_start: None,
                    fell_short: false,
                    probed_ready,
                    came_up,
                    replaced: false,
                    blame: None,
                    stop: None,
                }),
                RunSnapshot::Ended => Run::Ended,
            },
            back_off: BackOff { next: back_off },
            newest,
            before,
        }
    }
}
