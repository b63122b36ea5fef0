//! The record of one pod on this node: its object, what the rules say of it, and what was learned of its runs.
//!
//! The pod's driver owns it ([`RecordKeeper`]) and changes it by one function, [`PodRecord::learn`]. All others (the publisher, effects,
//! probes, streams, the table of pods) hold a [`RecordReader`] and take snapshots, which nobody changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use lifecycle::{
    ContainerName, ContainerState, ContainerStatus, Instance, Moment, PodPhase, PodStatus, PodWorker, Wake, Wall,
};
use runtime_api::{ContainerReport, Image, Resources};
use tokio::sync::watch;

use crate::terminations::TerminationStory;
use crate::translate::find_container;
use crate::translate::resize::{Pending, Resize, amounts, granted_by};

/// What the node knows of a pod.
#[derive(Clone, Debug)]
pub struct PodRecord {
    /// The newest API object seen, the source of names, generation and foreign conditions.
    pub pod: Arc<Pod>,
    /// The newest status, as the rules see it.
    pub status: Arc<PodStatus>,
    /// Nothing of the pod runs, and its sandbox is gone.
    pub at_rest: bool,
    /// When it must be gone, once it is leaving.
    pub deadline: Option<Moment>,
    /// The pod's address, kept after the sandbox is gone.
    pub pod_ip: Option<String>,
    /// The node's address.
    pub host_ip: String,
    /// When the node first saw the pod.
    pub start: Option<Wall>,
    /// The image of each container.
    pub images: BTreeMap<String, KnownImage>,
    /// The newest two runs of each container.
    pub runs: BTreeMap<Instance, RunRecord>,
    /// Runs whose start was asked for and not answered.
    pub starting: BTreeSet<Instance>,
    /// What was granted to each container: by its spec, as it was when that was last possible.
    pub granted: BTreeMap<String, ResourceRequirements>,
    /// What the pod has as a whole, once its sandbox is made.
    pub whole: Option<Resources>,
    /// How far a change of that is.
    pub resize: Resize,
    /// How its end goes, once it is leaving.
    pub leaving: Option<Arc<Leaving>>,
}

/// How the end of a pod goes.
#[derive(Clone, PartialEq, Debug)]
pub struct Leaving {
    /// What it waits for, in words.
    pub waits_for: String,
    /// When something happens if nothing else does, and what.
    pub next: Option<Wake>,
    /// What happened so far.
    pub story: TerminationStory,
}

/// The image that a container runs, or is about to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KnownImage {
    /// Its id.
    pub id: String,
    /// As the API tells it: a repository and a digest where a registry gave one.
    pub reference: Option<String>,
    /// The user that it says it runs as, once that is known.
    pub user: Option<Option<String>>,
}

/// What was learned of one run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RunRecord {
    /// What it was made from. Of a run of an earlier agent, the API knows.
    pub image: Option<RanImage>,
    /// What it was given of cpu and memory. Of a run of an earlier agent, the API knows.
    pub given: Option<ResourceRequirements>,
    /// What it has of it, while it runs.
    pub has: Option<Resources>,
    /// When it was refused, which would have been its container's next.
    pub refused: Option<Wall>,
    /// What it left in its termination message file.
    pub termination_message: Option<String>,
}

/// The image of one run, as the API tells it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RanImage {
    /// Its name, whole.
    pub name: String,
    /// A repository and a digest, or its id.
    pub reference: String,
}

/// Something that becomes known of a pod.
#[derive(Clone, Debug)]
pub enum PodFact {
    /// Its object looks like this.
    Seen(Arc<Pod>),
    /// The rules say this of it.
    Judged {
        /// Its status.
        status: Arc<PodStatus>,
        /// When it must be gone.
        deadline: Option<Moment>,
    },
    /// Its end goes like this.
    Leaving(Box<Leaving>),
    /// Whether anything of it is left.
    AtRest(bool),
    /// It was here under an earlier agent.
    Recovered {
        /// Its address, if it had one.
        pod_ip: Option<String>,
        /// What it has as a whole, if it has a sandbox.
        resources: Option<Resources>,
    },
    /// It has a sandbox.
    SandboxMade {
        /// The address of it.
        ip: String,
        /// What the pod has as a whole.
        resources: Resources,
    },
    /// The image of a container is present.
    ImageFound {
        /// Whose.
        container: String,
        /// The name under which it was looked for. If another is wanted by now, that is somebody else's to find.
        wanted: Option<String>,
        /// Which one.
        image: Image,
    },
    /// The id of the image that a container of an earlier agent runs; nothing else is known of it.
    ImageId {
        /// Whose.
        container: String,
        /// Which one.
        id: String,
    },
    /// A start was asked for.
    Starting(Instance),
    /// That start was answered.
    StartAnswered(Instance),
    /// No start is under way any more, answered or not.
    NothingStarts,
    /// A run was started.
    Started {
        /// Which.
        run: Instance,
        /// The name of its image.
        image: String,
        /// What it was given.
        resources: Option<ResourceRequirements>,
    },
    /// A run of an earlier agent was found.
    Found(Box<ContainerReport>),
    /// A run was refused.
    Refused {
        /// Which.
        run: Instance,
        /// When.
        at: Wall,
    },
    /// A run has ended.
    Ended {
        /// Which.
        run: Instance,
        /// Its container does not run again.
        is_last: bool,
    },
    /// What a run left for people.
    TerminationMessage {
        /// Which.
        run: Instance,
        /// Its words.
        text: String,
    },
    /// Everything that this object asks for is granted.
    Granted {
        /// The object.
        pod: Arc<Pod>,
        /// Runs that have to be given it: the generation that asks for it.
        in_progress: Option<i64>,
    },
    /// What it asks for is not granted; or it asks for nothing else.
    ResizePending(Option<Pending>),
    /// The pod as a whole has this.
    PodResources(Resources),
    /// A run has this by now.
    RunResources {
        /// Which.
        run: Instance,
        /// As it was granted.
        granted: ResourceRequirements,
        /// The same, as the runtime takes it.
        has: Resources,
    },
    /// A run ends because its container gets something by its next one.
    ResizeRestarts(Instance),
    /// It is looked at who has not got what was granted.
    ResizeLooked,
    /// What keeps a container from getting it, if anything does.
    ResizeError(Option<String>),
    /// Everybody has what was granted.
    ResizeCompleted,
}

impl PodRecord {
    /// A pod of which only its object is known, and what the rules say.
    pub fn new(pod: Arc<Pod>, worker: &PodWorker, host_ip: String, start: Option<Wall>) -> Self {
        Self {
            granted: granted_by(&pod),
            pod,
            status: Arc::new(worker.status()),
            at_rest: worker.is_at_rest(),
            deadline: worker.deadline(),
            pod_ip: None,
            host_ip,
            start,
            images: BTreeMap::new(),
            runs: BTreeMap::new(),
            starting: BTreeSet::new(),
            whole: None,
            resize: Resize::default(),
            leaving: None,
        }
    }

    /// Changes with what becomes known. Nothing else changes a record.
    pub fn learn(&mut self, fact: PodFact) {
        match fact {
            PodFact::Seen(pod) => self.pod = pod,
            PodFact::Judged { status, deadline } => (self.status, self.deadline) = (status, deadline),
            PodFact::Leaving(leaving) => self.leaving = Some(Arc::from(leaving)),
            PodFact::AtRest(at_rest) => self.at_rest = at_rest,
            PodFact::Recovered { pod_ip, resources } => (self.pod_ip, self.whole) = (pod_ip, resources),
            PodFact::SandboxMade { ip, resources } => (self.pod_ip, self.whole) = (Some(ip), Some(resources)),
            PodFact::ImageFound { container, wanted, image } => self.image_found(container, wanted.as_ref(), image),
            PodFact::ImageId { container, id } => self.images.entry(container).or_default().id = id,
            PodFact::Starting(run) => _ = self.starting.insert(run),
            PodFact::StartAnswered(run) => _ = self.starting.remove(&run),
            PodFact::NothingStarts => self.starting.clear(),
            PodFact::Started { run, image, resources } => self.started(run, &image, resources),
            PodFact::Found(container) => self.found(*container),
            PodFact::Refused { run, at } => {
                self.forget_older_than(&run);
                self.runs.entry(run).or_default().refused = Some(at);
            }
            PodFact::Ended { run, is_last } => {
                if let Some(ended) = self.runs.get_mut(&run) {
                    ended.has = None;
                }
                // No other run of it is waited for that will never come.
                if is_last {
                    self.resize.restarting.remove(&run.name.0);
                }
            }
            PodFact::TerminationMessage { run, text } => {
                self.runs.entry(run).or_default().termination_message = Some(text);
            }
            PodFact::Granted { pod, in_progress } => {
                (self.granted, self.resize.pending, self.resize.error) = (granted_by(&pod), None, None);
                self.resize.granted = in_progress.or(self.resize.granted);
            }
            PodFact::ResizePending(pending) => self.resize.pending = pending,
            PodFact::PodResources(resources) => self.whole = Some(resources),
            PodFact::RunResources { run, granted, has } => {
                // One that has ended meanwhile has nothing.
                if let Some(known) = self.runs.get_mut(&run).filter(|known| known.has.is_some()) {
                    (known.has, known.given) = (Some(has), Some(granted));
                }
            }
            PodFact::ResizeRestarts(run) => {
                // One that has just ended is not there to be told.
                if self.has(&run) {
                    self.resize.restarting.insert(run.name.0, run.attempt);
                }
            }
            PodFact::ResizeLooked => self.resize_looked(),
            PodFact::ResizeError(error) => self.resize.error = error,
            PodFact::ResizeCompleted => self.resize.granted = None,
        }
    }

    /// What is known of a run.
    pub fn run(&self, run: &Instance) -> Option<&RunRecord> {
        self.runs.get(run)
    }

    /// Whether a run is there and has something.
    pub fn has(&self, run: &Instance) -> bool {
        self.runs.get(run).is_some_and(|known| known.has.is_some())
    }

    /// A container of the pod, as the rules see it.
    pub fn container(&self, name: &str) -> Option<&ContainerStatus> {
        self.status.containers.iter().find(|container| container.name.0 == name)
    }

    /// The pod is on its way out: nothing is started any more.
    pub fn is_leaving(&self) -> bool {
        self.deadline.is_some()
    }

    /// The rules say that it is over.
    pub fn is_over(&self) -> bool {
        matches!(self.status.phase, PodPhase::Succeeded | PodPhase::Failed)
    }

    /// No process of the pod remains, and none will start: its resources are free.
    pub fn has_freed_resources(&self) -> bool {
        // A phase that somebody else has written says nothing of what still runs.
        let runs = |container: &ContainerStatus| matches!(container.state, ContainerState::Running { .. });
        self.at_rest || (self.is_over() && !self.status.containers.iter().any(runs))
    }

    fn image_found(&mut self, container: String, wanted: Option<&String>, image: Image) {
        let asked = find_container(&self.pod, &container).and_then(|own| own.image.clone());
        if wanted.is_none_or(|wanted| asked.as_ref() == Some(wanted)) {
            let reference = Some(image.reference(&asked.unwrap_or_default()));
            self.images.insert(container, KnownImage { reference, id: image.id, user: Some(image.user) });
        }
    }

    fn started(&mut self, run: Instance, image: &str, resources: Option<ResourceRequirements>) {
        let known = self.images.get(&run.name.0);
        let reference = known.map(|image| image.reference.as_ref().unwrap_or(&image.id).clone()).unwrap_or_default();
        self.forget_older_than(&run);
        let has = amounts(resources.as_ref());
        let known = self.runs.entry(run).or_default();
        known.image = Some(RanImage { name: whole_name(image), reference });
        (known.given, known.has) = (Some(resources.unwrap_or_default()), Some(has));
    }

    fn found(&mut self, container: ContainerReport) {
        let granted = self.granted.get(&container.id.name).cloned();
        let (wants, mut has) = (amounts(granted.as_ref()), container.resources);
        // Runtimes of old did not write that down, and nothing is made of it.
        has.memory_request_bytes = has.memory_request_bytes.or(wants.memory_request_bytes);
        let run = Instance { name: ContainerName(container.id.name), attempt: container.id.attempt };
        let known = self.runs.entry(run).or_default();
        if wants == has {
            known.given = Some(granted.unwrap_or_default());
        }
        if container.exit.is_none() {
            known.has = Some(has);
        }
    }

    fn resize_looked(&mut self) {
        let came_back = |name: &String, run: u32| {
            let mut runs = self.runs.iter().filter(|(_, known)| known.has.is_some());
            runs.any(|(it, _)| it.name.0 == *name && it.attempt > run)
        };
        let still: BTreeMap<String, u32> =
            self.resize.restarting.iter().filter(|(name, run)| !came_back(name, **run)).map(owned).collect();
        if self.resize.granted.is_none() && !self.behind().is_empty() {
            self.resize.granted = Some(self.pod.metadata.generation.unwrap_or_default());
        }
        self.resize.restarting = still;
    }

    /// Two runs of a container are shown at most.
    fn forget_older_than(&mut self, run: &Instance) {
        self.runs.retain(|known, _| known.name != run.name || known.attempt + 1 >= run.attempt);
    }
}

fn owned((name, run): (&String, &u32)) -> (String, u32) {
    (name.clone(), *run)
}

/// An image's name with its registry and tag, as the runtime knows it.
pub fn whole_name(name: &str) -> String {
    name.parse::<runtime_api::image::ImageName>().map_or_else(|_| name.to_owned(), |whole| whole.to_string())
}

/// The driver's hold on its pod's record.
#[derive(Debug)]
pub struct RecordKeeper(watch::Sender<Arc<PodRecord>>);

/// Takes snapshots of a pod's record.
#[derive(Clone, Debug)]
pub struct RecordReader(watch::Receiver<Arc<PodRecord>>);

impl RecordKeeper {
    /// Keeps this record.
    pub fn new(record: PodRecord) -> (Self, RecordReader) {
        let (keeper, reader) = watch::channel(Arc::new(record));
        (Self(keeper), RecordReader(reader))
    }

    /// Changes the record, in place unless somebody still looks at it as it was.
    pub fn learn(&self, fact: PodFact) {
        self.0.send_modify(|record| Arc::make_mut(record).learn(fact));
    }

    /// The record as it is.
    pub fn get(&self) -> Arc<PodRecord> {
        self.0.borrow().clone()
    }
}

impl RecordReader {
    /// The record as it is. Cheap; it stays as it is however long it is held.
    pub fn get(&self) -> Arc<PodRecord> {
        self.0.borrow().clone()
    }

    /// The newest object seen.
    pub fn pod(&self) -> Arc<Pod> {
        self.0.borrow().pod.clone()
    }

    /// Hands on the newest object whenever there is another, until the driver is gone.
    pub async fn hand_on_pods(mut self, pods: watch::Sender<Arc<Pod>>) {
        while self.0.changed().await.is_ok() {
            let newest = self.0.borrow_and_update().pod.clone();
            pods.send_if_modified(|known| {
                let differs = !Arc::ptr_eq(known, &newest);
                *known = newest;
                differs
            });
        }
    }

    /// Resolves when this is true of the pod, or its driver is gone.
    pub async fn wait_until(&mut self, is_true: impl Fn(&PodRecord) -> bool) {
        let _ = self.0.wait_for(|record| is_true(record)).await;
    }
}
