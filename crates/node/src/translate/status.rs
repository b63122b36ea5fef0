//! What the rules say of a pod, in the API's words.

use k8s_openapi::api::core::v1::{
    ContainerState as ApiState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus as ApiContainer, HostIP, Pod, PodCondition, PodIP, PodStatus as ApiStatus, ResourceRequirements,
    VolumeMount, VolumeMountStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use lifecycle::{
    Condition, ContainerState, ContainerStatus, Instance, PodPhase, PodStatus, Role, Terminated, Wall, message,
};
use runtime_api::{ContainerId, PodUid};

use super::{api_time, find_container};
use crate::images::name_the_image;
use crate::record::{PodRecord, RanImage, whole_name};

/// The status to store. `before` is the last one stored; it keeps the times of conditions that did not change.
pub fn api_status(status: &PodStatus, record: &PodRecord, before: Option<&ApiStatus>, now: Wall) -> ApiStatus {
    let (init, main): (Vec<_>, Vec<_>) =
        status.containers.iter().partition(|c| matches!(c.role, Role::Init | Role::Sidecar));
    let to_api = |containers: Vec<&ContainerStatus>| -> Option<Vec<ApiContainer>> {
        let words_most = message::share(status.containers.len());
        let told = StatusSources { record, before, words_most };
        (!containers.is_empty()).then(|| containers.into_iter().map(|c| container(c, &told)).collect())
    };
    let (ephemeral, main): (Vec<_>, Vec<_>) = main.into_iter().partition(|c| c.role == Role::Ephemeral);
    // A phase that is over stays what it is, whoever wrote it. A mirror is not the pod: its pod may run anew.
    let over = before
        .and_then(|b| b.phase.as_deref())
        .filter(|phase| api::pod::is_terminal_phase(phase) && !api::pod::is_static(&*record.pod));
    let (ours, told) = (phase(status.phase), over.unwrap_or(phase(status.phase)));
    // Reason and message belong to a phase: while it stays, whoever wrote it, so do they.
    let stored = before.filter(|b| b.phase.as_deref() == Some(told));
    let own = |text: &Option<String>| text.clone().filter(|_| told == ours);
    let mut main_statuses = to_api(main);
    if let Some(list) = &mut main_statuses {
        list.sort_by(|a, b| a.name.cmp(&b.name));
    }
    let init_statuses = to_api(init);
    // The address of a pod whose sandbox is gone is told as it was.
    let ip = record.pod_ip.clone().or_else(|| before.and_then(|b| b.pod_ip.clone()));
    ApiStatus {
        phase: Some(told.to_owned()),
        reason: own(&status.reason).or_else(|| stored.and_then(|b| b.reason.clone())),
        message: own(&status.message).or_else(|| stored.and_then(|b| b.message.clone())),
        ephemeral_container_statuses: to_api(ephemeral),
        conditions: Some(conditions(status, record, before, now)),
        container_statuses: main_statuses,
        init_container_statuses: init_statuses,
        host_ip: Some(record.host_ip.clone()),
        host_ips: Some(vec![HostIP { ip: record.host_ip.clone() }]),
        pod_ips: ip.clone().map(|ip| vec![PodIP { ip }]),
        pod_ip: ip,
        start_time: before.and_then(|b| b.start_time.clone()).or_else(|| record.start.and_then(api_time)),
        observed_generation: status.observed_generation.or(record.pod.metadata.generation),
        qos_class: record.pod.status.as_ref().and_then(|s| s.qos_class.clone()),
        ..ApiStatus::default()
    }
}

fn phase(phase: PodPhase) -> &'static str {
    match phase {
        PodPhase::Pending => "Pending",
        PodPhase::Running => "Running",
        PodPhase::Succeeded => "Succeeded",
        PodPhase::Failed => "Failed",
    }
}

/// What was told last, by us or, before that, by others.
fn stored_conditions<'a>(record: &'a PodRecord, before: Option<&'a ApiStatus>) -> Option<&'a Vec<PodCondition>> {
    before.and_then(|b| b.conditions.as_ref()).or_else(|| record.pod.status.as_ref()?.conditions.as_ref())
}

fn conditions(status: &PodStatus, record: &PodRecord, before: Option<&ApiStatus>, now: Wall) -> Vec<PodCondition> {
    let stored = stored_conditions(record, before);
    let scheduled = Condition { holds: true, reason: None, message: None };
    let ready = gated(&status.ready, &record.pod);
    let ours = [
        ("PodReadyToStartContainers", &status.ready_to_start_containers),
        ("Initialized", &status.initialized),
        ("Ready", &ready),
        ("ContainersReady", &status.containers_ready),
        ("PodScheduled", &scheduled),
    ];
    let of_some_pods = [
        ("DisruptionTarget", &status.disruption),
        ("adieu.dev/TrafficDrained", &status.traffic_drained),
        ("adieu.dev/TerminationBlocked", &status.blocked),
        ("AllContainersRestarting", &status.all_restarting),
    ];
    let of_some_pods = of_some_pods.into_iter().filter_map(|(kind, condition)| Some((kind, condition.as_ref()?)));
    let resize = record.resize.conditions();
    let resize = resize.iter().map(|(kind, condition)| (*kind, condition));
    let ours: Vec<_> = ours.into_iter().chain(of_some_pods).chain(resize).collect();
    // Conditions of others (readiness gates, DisruptionTarget) are theirs to change: a merge by type leaves them alone.
    ours.into_iter()
        .map(|(kind, condition)| {
            let word = if condition.holds { "True" } else { "False" };
            let old = stored.and_then(|list| list.iter().find(|c| c.type_ == kind));
            let since = old.filter(|c| c.status == word).and_then(|c| c.last_transition_time.clone());
            PodCondition {
                type_: kind.to_owned(),
                status: word.to_owned(),
                reason: condition.reason.clone(),
                message: condition.message.clone(),
                last_transition_time: since.or_else(|| api_time(now)),
                observed_generation: record.pod.metadata.generation,
                ..PodCondition::default()
            }
        })
        .collect()
}

/// Ready also waits for the conditions that the pod's readiness gates name.
fn gated(ready: &Condition, pod: &Pod) -> Condition {
    let gates = pod.spec.iter().flat_map(|s| s.readiness_gates.iter().flatten());
    let stored = pod.status.as_ref().and_then(|s| s.conditions.as_ref());
    let found = |kind: &str| stored.and_then(|list| list.iter().find(|c| c.type_ == kind));
    let closed = gates.filter_map(|gate| {
        let kind = &gate.condition_type;
        let said = found(kind).map(|condition| condition.status.as_str());
        let why = match said {
            Some("True") => return None,
            Some(status) => format!("the status of pod readiness gate {kind:?} is not \"True\", but {status}"),
            None => format!("corresponding condition of pod readiness gate {kind:?} does not exist."),
        };
        Some(why)
    });
    let closed: Vec<String> = closed.collect();
    if !ready.holds || closed.is_empty() {
        return ready.clone();
    }
    let message = closed.join(", ");
    Condition { holds: false, reason: Some("ReadinessGatesNotReady".to_owned()), message: Some(message) }
}

/// What container statuses are told with.
struct StatusSources<'a> {
    record: &'a PodRecord,
    /// What was told last.
    before: Option<&'a ApiStatus>,
    words_most: usize,
}

impl StatusSources<'_> {
    /// What a run left for people. Once its sandbox is gone a new agent finds it only where the last one stored it.
    fn termination_message(&self, run: &Instance, id: Option<&str>) -> Option<String> {
        let ours = self.record.run(run).and_then(|known| known.termination_message.clone());
        ours.or_else(|| self.ended_before(id?)?.message.clone())
    }

    /// When a start was refused.
    fn refused_at(&self, run: &Instance, id: Option<&str>) -> Option<Time> {
        let ours = self.record.run(run).and_then(|known| api_time(known.refused?));
        ours.or_else(|| self.ended_before(id?)?.finished_at.clone())
    }

    /// What the run was made from: as we know it, as it was told, or as it would be told of a run to come.
    fn image_of(&self, run: &Instance, id: Option<&str>, wanted: &str) -> RanImage {
        let told = || {
            let same = |container: &&ApiContainer| {
                id.is_some() && container.container_id.as_deref() == id && !container.image_id.is_empty()
            };
            let found = self.containers_before().find(same)?;
            Some(RanImage { name: found.image.clone(), reference: found.image_id.clone() })
        };
        self.record.run(run).and_then(|known| known.image.clone()).or_else(told).unwrap_or_else(|| {
            let known = self.record.images.get(&run.name.0);
            let reference = known.map(|image| image.reference.as_ref().unwrap_or(&image.id).clone());
            let reference = reference.unwrap_or_default();
            RanImage { name: if id.is_some() { whole_name(wanted) } else { wanted.to_owned() }, reference }
        })
    }

    /// What a run was given of cpu and memory: as we know it, or as it was told.
    fn given(&self, run: &Instance, id: Option<&str>) -> Option<ResourceRequirements> {
        let same = |container: &&ApiContainer| id.is_some() && container.container_id.as_deref() == id;
        let told = || self.containers_before().find(same)?.resources.clone();
        self.record.run(run).and_then(|known| known.given.clone()).or_else(told)
    }

    /// A run that had ended when the status was told last.
    fn ended_before(&self, id: &str) -> Option<&ContainerStateTerminated> {
        let states = self.containers_before().flat_map(|container| [&container.state, &container.last_state]);
        let mut ended = states.flatten().filter_map(|state| state.terminated.as_ref());
        ended.find(|ended| ended.container_id.as_deref() == Some(id))
    }

    fn containers_before(&self) -> impl Iterator<Item = &ApiContainer> {
        let lists = self.before.map(|before| {
            [&before.init_container_statuses, &before.container_statuses, &before.ephemeral_container_statuses]
        });
        lists.into_iter().flatten().flatten().flatten()
    }
}

fn container(status: &ContainerStatus, told: &StatusSources<'_>) -> ApiContainer {
    let (name, record) = (&status.name.0, told.record);
    let id = |attempt: u32| Some(container_id(record, name, attempt));
    let container = find_container(&record.pod, name);
    let image = container.as_ref().and_then(|c| c.image.as_deref()).unwrap_or_default();
    let (state, ever_ran) = match &status.state {
        ContainerState::Waiting(waiting) => (
            ApiState {
                waiting: Some(ContainerStateWaiting {
                    reason: Some(waiting.reason.clone()),
                    message: waiting.message.as_deref().map(|message| name_the_image(message, image)),
                }),
                ..ApiState::default()
            },
            false,
        ),
        ContainerState::Running { since } => (
            ApiState { running: Some(ContainerStateRunning { started_at: api_time(*since) }), ..ApiState::default() },
            true,
        ),
        ContainerState::Terminated(ended) => (terminated(name, ended, told), was_made(ended)),
    };
    let made_before = status.last.as_ref().filter(|last| was_made(last)).map(|last| last.attempt);
    let run = if ever_ran { Some(status.attempt) } else { made_before };
    let container_id = run.and_then(id);
    let was_ever_made = container_id.is_some();
    let asked = container.as_ref().and_then(|c| c.resources.as_ref());
    let instance = Instance { name: status.name.clone(), attempt: run.unwrap_or(status.attempt) };
    let ran = told.image_of(&instance, container_id.as_deref(), image);
    let given = told.given(&instance, container_id.as_deref());
    ApiContainer {
        name: name.clone(),
        image: ran.name,
        image_id: ran.reference,
        container_id,
        ready: status.ready,
        started: Some(status.started),
        restart_count: i32::try_from(status.attempt).unwrap_or(i32::MAX),
        state: Some(state),
        last_state: Some(status.last.as_ref().map_or_else(ApiState::default, |l| terminated(name, l, told))),
        stop_signal: status.stop_signal.map(|signal| signal.to_string()),
        allocated_resources: record.granted.get(name).or(asked).and_then(|granted| granted.requests.clone()),
        resources: given.or_else(|| was_ever_made.then(|| asked.cloned().unwrap_or_default())),
        volume_mounts: container.as_ref().and_then(|c| mounted(c.volume_mounts.as_deref()?)),
        ..ApiContainer::default()
    }
}

/// What a container finds mounted.
fn mounted(mounts: &[VolumeMount]) -> Option<Vec<VolumeMountStatus>> {
    let each = mounts.iter().map(|mount| VolumeMountStatus {
        name: mount.name.clone(),
        mount_path: mount.mount_path.clone(),
        read_only: mount.read_only,
        recursive_read_only: mount.read_only.filter(|only| *only).map(|_| {
            let is_asked_for = matches!(mount.recursive_read_only.as_deref(), Some("Enabled" | "IfPossible"));
            if is_asked_for { "Enabled" } else { "Disabled" }.to_owned()
        }),
        ..VolumeMountStatus::default()
    });
    Some(each.collect())
}

fn terminated(name: &str, ended: &Terminated, told: &StatusSources<'_>) -> ApiState {
    let instance = Instance { name: lifecycle::ContainerName(name.to_owned()), attempt: ended.attempt };
    let id = was_made(ended).then(|| container_id(told.record, name, ended.attempt));
    let words = told.termination_message(&instance, id.as_deref());
    let refused_at = told.refused_at(&instance, id.as_deref()).filter(|_| ended.exit.is_none());
    // What never ran began when time did: clients expect a moment here.
    let never = refused_at.as_ref().and_then(|_| api_time(Wall(0)));
    ApiState {
        terminated: Some(ContainerStateTerminated {
            container_id: id,
            exit_code: ended.exit_code,
            reason: Some(ended.reason.clone()),
            message: ended.message.clone().or(words).map(|text| message::cut(&text, told.words_most).to_owned()),
            started_at: ended.started.and_then(api_time).or(never),
            finished_at: ended.exit.and_then(|e| api_time(e.wall)).or(refused_at),
            ..ContainerStateTerminated::default()
        }),
        ..ApiState::default()
    }
}

/// Whether there was a container: it was seen to run or to end, or its program was refused.
fn was_made(ended: &Terminated) -> bool {
    ended.started.is_some() || ended.exit.is_some() || ended.reason == "StartError"
}

fn container_id(record: &PodRecord, name: &str, attempt: u32) -> String {
    let uid = PodUid(record.pod.metadata.uid.clone().unwrap_or_default());
    format!("adieu://{}", ContainerId { name: name.to_owned(), attempt }.global(&uid))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::{Container, PodSpec as ApiSpec};
    use lifecycle::{
        ContainerName, ContainerSpec, DeleteSighting, Exit, Input, KillCause, Moment, PodSpec, PodWorker, Signal,
    };

    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
    use serde_json::json;

    use super::super::resize::{Pending, amounts};
    use super::*;
    use crate::record::PodFact;

    fn record() -> PodRecord {
        let app = Container { name: "app".into(), ..Container::default() };
        let spec = Some(ApiSpec { containers: vec![app], ..ApiSpec::default() });
        record_of(Pod { spec, ..Pod::default() })
    }

    fn record_of(pod: Pod) -> PodRecord {
        let worker = PodWorker::new(PodSpec::new(vec![ContainerSpec::new("app", Role::Main)]));
        PodRecord::new(Arc::new(pod), &worker, String::new(), None)
    }

    /// A pod whose only container runs, and was told these things.
    fn running(inputs: impl IntoIterator<Item = Input>) -> PodWorker {
        let instance = Instance { name: ContainerName("app".into()), attempt: 0 };
        let app = ContainerSpec { stop_signal: Some(Signal(10)), ..ContainerSpec::new("app", Role::Main) };
        let mut pod = PodWorker::new(PodSpec::new(vec![app]));
        let up = [
            Input::Begin,
            Input::SandboxReady,
            Input::ImageReady { container: instance.name.clone(), edition: 0, stop_signal: Some(Signal(3)) },
            Input::Started { instance, wall: Wall(1) },
        ];
        for input in up.into_iter().chain(inputs) {
            pod.handle(Moment::from_millis(0), input);
        }
        pod
    }

    fn gone() -> [Input; 2] {
        let instance = Instance { name: ContainerName("app".into()), attempt: 0 };
        let exit = Exit { code: 0, signal: None, oom: false, wall: Wall(2), seen: true };
        [Input::Exited { instance, exit }, Input::SandboxRemoved]
    }

    /// [NT-86]: the stop signal in force is what the pod's spec says, and is told.
    #[test]
    fn the_stop_signal_in_force_is_told() {
        let told = api_status(&running([]).status(), &record(), None, Wall(0));
        let containers = told.container_statuses.expect("there is one");
        assert_eq!(containers[0].stop_signal.as_deref(), Some("SIGUSR1"));
    }

    /// [NT-126]: reason and message are kept while the phase stays, whoever wrote them, and go with it.
    #[test]
    fn reason_and_message_belong_to_a_phase() {
        let before = |phase: &str| ApiStatus {
            phase: Some(phase.into()),
            reason: Some("TheirReason".into()),
            message: Some("their message".into()),
            ..ApiStatus::default()
        };
        let told = |before: &ApiStatus| api_status(&running([]).status(), &record(), Some(before), Wall(0));
        let kept = told(&before("Running"));
        assert_eq!((kept.reason.as_deref(), kept.message.as_deref()), (Some("TheirReason"), Some("their message")));
        let cleared = told(&before("Pending"));
        assert_eq!((cleared.phase.as_deref(), cleared.reason, cleared.message), (Some("Running"), None, None));
    }

    /// A new agent finds neither the file nor the log of a pod whose sandbox is gone; what was told stays.
    #[test]
    fn termination_message_outlives_the_sandbox_and_the_agent() {
        let over = running(gone()).status();
        let mut record = record();
        let message = |status: &ApiStatus| {
            let container = &status.container_statuses.as_ref().expect("there is one")[0];
            container.last_state.as_ref()?.terminated.clone().or(container.state.clone()?.terminated)?.message
        };
        let app = Instance { name: ContainerName("app".into()), attempt: 0 };
        record.learn(PodFact::TerminationMessage { run: app, text: "goodbye".into() });
        let told = api_status(&over, &record, None, Wall(0));
        record.runs.clear();
        assert_eq!(message(&api_status(&over, &record, Some(&told), Wall(0))).as_deref(), Some("goodbye"));
        assert_eq!(message(&api_status(&over, &record, None, Wall(0))), None);
    }

    /// So do its addresses, all of them.
    #[test]
    fn addresses_outlive_the_sandbox_and_the_agent() {
        let over = running(gone()).status();
        let mut record = PodRecord { pod_ip: Some("10.0.0.7".into()), ..record() };
        let told = api_status(&over, &record, None, Wall(0));
        record.pod_ip = None;
        let again = api_status(&over, &record, Some(&told), Wall(0));
        assert_eq!((again.pod_ip.as_deref(), again.pod_ips), (Some("10.0.0.7"), told.pod_ips));
    }

    fn shown(status: &ApiStatus) -> ApiContainer {
        status.container_statuses.as_ref().expect("there is one")[0].clone()
    }

    /// A container shows the image that it runs, whole, also when another is asked for and to an agent that does not know.
    #[test]
    fn a_container_shows_the_image_that_it_was_made_from() {
        let asks_for = |record: &mut PodRecord, image: &str| {
            Arc::make_mut(&mut record.pod).spec.as_mut().expect("it has one").containers[0].image = Some(image.into());
        };
        let app = Instance { name: ContainerName("app".into()), attempt: 0 };
        let mut record = record();
        asks_for(&mut record, "busybox");
        record.learn(PodFact::ImageId { container: "app".into(), id: "sha256:1".into() });
        record.learn(PodFact::Started { run: app, image: "busybox".into(), resources: None });
        asks_for(&mut record, "busybox:2");
        record.learn(PodFact::ImageId { container: "app".into(), id: "sha256:2".into() });
        let running = running([]).status();
        let told = api_status(&running, &record, None, Wall(0));
        let of = |status: &ApiStatus| (shown(status).image, shown(status).image_id);
        let first = ("docker.io/library/busybox:latest".to_owned(), "sha256:1".to_owned());
        assert_eq!(of(&told), first);
        // The next agent finds a pod that is over; nobody has its images any more.
        let (mut next, over) = (super::tests::record(), super::tests::running(gone()).status());
        asks_for(&mut next, "busybox:2");
        assert_eq!(of(&api_status(&over, &next, Some(&told), Wall(0))), first);
    }

    /// What nobody is shown any more is forgotten, however often a container is run.
    #[test]
    fn record_keeps_the_newest_two_runs_of_each_container() {
        let mut record = record();
        let run = |attempt| Instance { name: ContainerName("app".into()), attempt };
        for attempt in 0..5 {
            record.learn(PodFact::Started { run: run(attempt), image: String::new(), resources: None });
            record.learn(PodFact::TerminationMessage { run: run(attempt), text: "goodbye".into() });
            record.learn(PodFact::Ended { run: run(attempt), is_last: false });
        }
        assert_eq!(record.runs.keys().map(|run| run.attempt).collect::<Vec<_>>(), [3, 4]);
        assert!(record.runs.values().all(|known| known.has.is_none() && known.termination_message.is_some()));
    }

    /// A program that was refused had a container, and an end.
    #[test]
    fn a_refused_start_has_a_container_and_an_end() {
        let app = Instance { name: ContainerName("app".into()), attempt: 0 };
        let spec = ContainerSpec::new("app", Role::Main);
        let mut pod = PodWorker::new(PodSpec { restart: lifecycle::RestartPolicy::Never, ..PodSpec::new(vec![spec]) });
        for input in [
            Input::Begin,
            Input::SandboxReady,
            Input::ImageReady { container: app.name.clone(), edition: 0, stop_signal: None },
            Input::StartFailed { instance: app.clone(), reason: "StartError".into(), message: "no such file".into() },
        ] {
            pod.handle(Moment::from_millis(0), input);
        }
        let mut record = record();
        record.learn(PodFact::Refused { run: app, at: Wall(86_400_000) });
        let told = api_status(&pod.status(), &record, None, Wall(0));
        let look = |status: &ApiStatus| {
            let (container, end) = (shown(status), shown(status).state.and_then(|state| state.terminated));
            let end = end.expect("it has ended");
            assert_eq!((end.exit_code, end.reason.as_deref()), (128, Some("StartError")));
            assert!(end.container_id.is_some() && end.container_id == container.container_id);
            end.finished_at.expect("it has an end").0.to_string()
        };
        assert_eq!(look(&told), "1970-01-02T00:00:00Z");
        record.runs.clear();
        assert_eq!(look(&api_status(&pod.status(), &record, Some(&told), Wall(0))), "1970-01-02T00:00:00Z");
    }

    /// A phase that is over stays, with its reasons, though the rules came to another; before that, ours counts.
    #[test]
    fn a_phase_that_is_over_is_not_written_over() {
        let killed = Input::KillRequested { cause: KillCause::NodeShutdown, grace: None };
        let deleted = Input::DeleteRequested { grace: std::time::Duration::ZERO, sighting: DeleteSighting::Live };
        let ours = running([killed, deleted].into_iter().chain(gone())).status();
        assert_eq!((ours.phase, ours.reason.as_deref()), (PodPhase::Failed, Some("Terminated")));
        let theirs = ApiStatus { phase: Some("Succeeded".into()), ..ApiStatus::default() };
        let told = api_status(&ours, &record(), Some(&theirs), Wall(0));
        assert_eq!((told.phase.as_deref(), told.reason), (Some("Succeeded"), None));
        let told = api_status(&ours, &record(), None, Wall(0));
        assert_eq!((told.phase.as_deref(), told.reason.as_deref()), (Some("Failed"), Some("Terminated")));
    }

    /// What a container has is told, to the next agent, too, and what was granted to it beside that.
    #[test]
    fn a_resize_is_told_until_it_is_done() {
        let asks_for = |record: &mut PodRecord, cpu: &str| {
            let requests = Some(BTreeMap::from([("cpu".to_owned(), Quantity(cpu.to_owned()))]));
            let container = &mut Arc::make_mut(&mut record.pod).spec.as_mut().expect("it has one").containers[0];
            container.resources = Some(ResourceRequirements { requests, ..ResourceRequirements::default() });
            container.resources.clone()
        };
        let told = |status: &ApiStatus| -> Vec<_> {
            let all = status.conditions.iter().flatten().filter(|c| c.type_.starts_with("PodResize"));
            all.map(|c| (c.type_.clone(), c.reason.clone().unwrap_or_default())).collect()
        };
        let app = Instance { name: ContainerName("app".into()), attempt: 0 };
        let mut record = record();
        let first = asks_for(&mut record, "1");
        record.learn(PodFact::Granted { pod: record.pod.clone(), in_progress: None });
        record.learn(PodFact::Started { run: app.clone(), image: String::new(), resources: first.clone() });
        let running = running([]).status();
        let calm = api_status(&running, &record, None, Wall(0));
        assert_eq!((shown(&calm).resources, told(&calm)), (first.clone(), vec![]));
        asks_for(&mut record, "1000m");
        assert!(!record.asks_for_other_resources(), "the same in other words");
        let second = asks_for(&mut record, "2");
        assert!(record.asks_for_other_resources() && record.behind().is_empty(), "it is not granted yet");
        assert_eq!(record.as_granted(&record.pod).spec.expect("it has one").containers[0].resources, first);
        let (reason, message) = ("Deferred", "no room".to_owned());
        record.learn(PodFact::ResizePending(Some(Pending { reason, message, generation: 2 })));
        // The next agent does not know what the run was given.
        record.runs.get_mut(&app).expect("it runs").given = None;
        let waits = api_status(&running, &record, Some(&calm), Wall(0));
        assert_eq!(
            (shown(&waits).resources, shown(&waits).allocated_resources),
            (first.clone(), first.and_then(|it| it.requests))
        );
        assert_eq!(told(&waits), [("PodResizePending".to_owned(), "Deferred".to_owned())]);
        record.learn(PodFact::Granted { pod: record.pod.clone(), in_progress: Some(2) });
        let [behind] = &record.behind()[..] else { panic!("the one that runs is behind") };
        assert_eq!((&behind.run, behind.is_restarted), (&app, false));
        let granted = api_status(&running, &record, Some(&waits), Wall(0));
        assert_eq!(told(&granted), [("PodResizeInProgress".to_owned(), String::new())]);
        assert_eq!(shown(&granted).allocated_resources, second.clone().and_then(|it| it.requests));
        let (given, has) = (second.clone().expect("it asks for it"), amounts(second.as_ref()));
        record.learn(PodFact::RunResources { run: app, granted: given, has });
        record.learn(PodFact::ResizeCompleted);
        let done = api_status(&running, &record, Some(&granted), Wall(0));
        assert_eq!((shown(&done).resources, told(&done), record.behind().len()), (second, vec![], 0));
    }

    /// A change of what the policy names ends the run; a run to completion is never ended for it.
    #[test]
    fn a_restart_is_asked_for_what_the_policy_says() {
        let spec = |cpu: &str, memory: &str| {
            let resources = json!({ "limits": { "cpu": cpu, "memory": memory } });
            let policy = json!([{ "resourceName": "memory", "restartPolicy": "RestartContainer" }]);
            let own = |name: &str| json!({ "name": name, "resources": resources, "resizePolicy": policy });
            let pod = json!({ "spec": { "initContainers": [own("init")], "containers": [own("app")] } });
            serde_json::from_value::<Pod>(pod).expect("it is a pod")
        };
        let mut record = record_of(spec("1", "1Gi"));
        for name in ["init", "app"] {
            let run = Instance { name: ContainerName(name.into()), attempt: 0 };
            let resources = record.granted.get(name).cloned();
            record.learn(PodFact::Started { run, image: String::new(), resources });
        }
        let mut restarted = |cpu: &str, memory: &str| {
            record.learn(PodFact::Granted { pod: Arc::new(spec(cpu, memory)), in_progress: None });
            record.behind().into_iter().map(|one| (one.run.name.0, one.is_restarted)).collect::<Vec<_>>()
        };
        let both = |app: bool| vec![("app".to_owned(), app), ("init".to_owned(), false)];
        assert_eq!(restarted("1000m", "1024Mi"), []);
        assert_eq!(restarted("2", "1Gi"), both(false));
        assert_eq!(restarted("1", "2Gi"), both(true));
    }
}
