//! Which probes a run of a container gets, and where their news goes.
//!
//! [`crate::probes`] knows how to ask; this file knows whom, and tells the pod's worker.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, HTTPGetAction, Probe as ApiProbe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use lifecycle::{Event, EventKind, Input, Instance, Probe};
use runtime_api::{ContainerId, ExecSpec, PodUid, Runtime};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::driver::Answers;
use crate::probes::{
    Attempt, ExecAnswer, GrpcCheck, HookAnswer, HttpGet, ProbeAction, ProbeNews, ProbeTiming, attempt, hook_http_get,
    run_probe_loop,
};

/// How much of what a probe's program writes is kept.
const OUTPUT_MOST: u64 = 10 * 1024;

/// Where a run is to be asked.
pub struct Target<R: Runtime> {
    /// Who can run a program in it.
    pub runtime: Arc<R>,
    /// Its pod.
    pub pod: PodUid,
    /// Its run.
    pub id: ContainerId,
    /// Where it listens.
    pub pod_ip: String,
}

/// The probes of one run; dropped, they end.
pub struct Running {
    /// Only held: a pod that leaves is still asked whether traffic may come.
    _readiness: JoinSet<()>,
    others: JoinSet<()>,
}

impl Running {
    /// A pod that leaves is asked whether traffic may come, and nothing else. What has not started by then never will.
    pub fn keep_only_readiness(&mut self) {
        self.others.abort_all();
    }
}

/// Starts the probes of a run; `None` if it has none. A run that `came_up` before is not asked again whether it has. `tell`
/// takes an event for people.
pub fn start<R: Runtime>(
    container: &Container,
    (instance, came_up): (&Instance, bool),
    target: Target<R>,
    answers: Answers,
    tell: impl Fn(Event) + Clone + Send + Sync + 'static,
) -> Option<Running> {
    let target = Arc::new(target);
    let asked = |kind: Probe, probe: &Option<ApiProbe>| {
        let probe = probe.as_ref()?;
        let action = action(probe, container, &target.pod_ip)?;
        Some(Watch {
            kind,
            timing: timing(probe),
            action,
            target: target.clone(),
            instance: instance.clone(),
            answers: answers.clone(),
        })
    };
    let startup = asked(Probe::Startup, &container.startup_probe).filter(|_| !came_up);
    let liveness = asked(Probe::Liveness, &container.liveness_probe);
    let readiness = asked(Probe::Readiness, &container.readiness_probe);
    if startup.is_none() && liveness.is_none() && readiness.is_none() {
        return None;
    }
    let (has_started, started) = watch::channel(startup.is_none());
    let mut running = Running { _readiness: JoinSet::new(), others: JoinSet::new() };
    if let Some(startup) = startup {
        let tell = tell.clone();
        running.others.spawn(async move {
            if startup.run(tell).await {
                has_started.send_replace(true);
            }
        });
    }
    if let Some(liveness) = liveness {
        running.others.spawn(liveness.run_once(started.clone(), tell.clone()));
    }
    if let Some(readiness) = readiness {
        running._readiness.spawn(readiness.run_once(started, tell));
    }
    Some(running)
}

struct Watch<R: Runtime> {
    kind: Probe,
    timing: ProbeTiming,
    action: ProbeAction,
    target: Arc<Target<R>>,
    instance: Instance,
    answers: Answers,
}

impl<R: Runtime> Watch<R> {
    /// Until it has started, a container is asked nothing else.
    async fn run_once(self, mut started: watch::Receiver<bool>, tell: impl Fn(Event)) {
        if started.wait_for(|started| *started).await.is_ok() {
            self.run(tell).await;
        }
    }

    /// Asks until there is nothing more to learn; answers what was learned last.
    async fn run(self, tell: impl Fn(Event)) -> bool {
        let mut last = false;
        let (told, mut news) = mpsc::channel(4);
        let asking = run_probe_loop(self.kind, self.timing, || self.ask(), told);
        let hearing = async {
            while let Some(news) = news.recv().await {
                if let ProbeNews::Changed { passing } = news {
                    last = passing;
                }
                self.hear(news, &tell).await;
            }
        };
        tokio::join!(asking, hearing);
        last
    }

    async fn hear(&self, news: ProbeNews, tell: &impl Fn(Event)) {
        let word = match self.kind {
            Probe::Readiness => "Readiness",
            Probe::Liveness => "Liveness",
            Probe::Startup => "Startup",
        };
        let unhealthy = |message: String| Event {
            container: Some(self.instance.name.clone()),
            kind: EventKind::Warning,
            reason: "Unhealthy".to_owned(),
            message,
        };
        match news {
            ProbeNews::Changed { passing } => {
                let input = Input::ProbeChanged { instance: self.instance.clone(), probe: self.kind, passing };
                self.answers.send(input).await;
            }
            ProbeNews::Failed { output } => tell(unhealthy(format!("{word} probe failed: {output}"))),
            ProbeNews::Errored { message } => {
                tell(unhealthy(format!("{word} probe errored and resulted in unknown state: {message}")));
            }
        }
    }

    async fn ask(&self) -> Attempt {
        let asking = attempt(&self.action, self.timing.timeout, |command| self.exec(command));
        supervision::catch("probe", asking).await.unwrap_or_else(|panic| Attempt::Error(panic.to_string()))
    }

    async fn exec(&self, command: Vec<String>) -> Result<ExecAnswer, String> {
        let spec = ExecSpec { command, tty: false, stdin: false, stdout: true, stderr: true, tethered: true };
        let session = self
            .target
            .runtime
            .exec(&self.target.pod, &self.target.id, &spec)
            .await
            .map_err(|error| supervision::error_chain(&error))?;
        // Giving up on it, in time or for good, drops this and ends all the program started.
        let tether = session.tether;
        let (stdout, stderr) = tokio::join!(drain(session.stdout), drain(session.stderr));
        let output = [stdout?, stderr?].concat();
        let code = session.exit.await.map_err(|_| "the program's exit was lost".to_owned())?;
        if let Some(tether) = tether {
            tether.let_go();
        }
        Ok(ExecAnswer { code, output: String::from_utf8_lossy(&output).into_owned() })
    }
}

/// Reads a stream to its end and keeps the beginning: whoever writes more than anybody wants to know is not ended by that.
async fn drain(end: Option<OwnedFd>) -> Result<Vec<u8>, String> {
    let Some(end) = end else { return Ok(Vec::new()) };
    let mut receiver = pipe::Receiver::from_owned_fd(end).map_err(|error| error.to_string())?;
    let mut kept = Vec::new();
    let read = (&mut receiver).take(OUTPUT_MOST).read_to_end(&mut kept).await;
    read.map_err(|error| error.to_string())?;
    tokio::io::copy(&mut receiver, &mut tokio::io::sink()).await.map_err(|error| error.to_string())?;
    Ok(kept)
}

fn timing(probe: &ApiProbe) -> ProbeTiming {
    let seconds = |value: Option<i32>, default: u64| {
        Duration::from_secs(value.and_then(|v| u64::try_from(v).ok()).unwrap_or(default))
    };
    let count = |value: Option<i32>, default: u32| value.and_then(|v| u32::try_from(v).ok()).unwrap_or(default);
    ProbeTiming {
        initial_delay: seconds(probe.initial_delay_seconds, 0),
        period: seconds(probe.period_seconds, 10),
        timeout: seconds(probe.timeout_seconds, 1),
        success_threshold: count(probe.success_threshold, 1),
        failure_threshold: count(probe.failure_threshold, 3),
    }
}

fn action(probe: &ApiProbe, container: &Container, pod_ip: &str) -> Option<ProbeAction> {
    if let Some(exec) = &probe.exec {
        return Some(ProbeAction::Exec(exec.command.clone().unwrap_or_default()));
    }
    if let Some(get) = &probe.http_get {
        return http_get(get, container, pod_ip).map(ProbeAction::HttpGet);
    }
    if let Some(grpc) = &probe.grpc {
        let port = u16::try_from(grpc.port).ok().filter(|port| *port > 0)?;
        let service = grpc.service.clone().unwrap_or_default();
        return Some(ProbeAction::Grpc(GrpcCheck { host: pod_ip.to_owned(), port, service }));
    }
    let socket = probe.tcp_socket.as_ref()?;
    let host = socket.host.clone().filter(|h| !h.is_empty()).unwrap_or_else(|| pod_ip.to_owned());
    Some(ProbeAction::TcpSocket { host, port: port(&socket.port, container)? })
}

fn http_get(get: &HTTPGetAction, container: &Container, pod_ip: &str) -> Option<HttpGet> {
    Some(HttpGet {
        host: get.host.clone().filter(|h| !h.is_empty()).unwrap_or_else(|| pod_ip.to_owned()),
        port: port(&get.port, container)?,
        path: get.path.clone().unwrap_or_else(|| "/".to_owned()),
        scheme: get.scheme.clone().unwrap_or_default(),
        headers: get.http_headers.iter().flatten().map(|h| (h.name.clone(), h.value.clone())).collect(),
    })
}

/// A port by number, or by the name the container gave it.
fn port(port: &IntOrString, container: &Container) -> Option<u16> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => match name.parse() {
            Ok(number) => number,
            Err(_) => container.ports.iter().flatten().find(|p| p.name.as_ref() == Some(name))?.container_port,
        },
    };
    u16::try_from(number).ok().filter(|n| *n > 0)
}

/// Sends the request of a lifecycle hook; any answer at all is a success. Tells what people should know of it, if anything.
pub async fn hook_request(get: &HTTPGetAction, container: &Container, pod_ip: &str) -> Result<Option<String>, String> {
    let get = http_get(get, container, pod_ip).ok_or_else(|| "the hook's port is not valid".to_owned())?;
    match hook_http_get(&get).await {
        Ok(HookAnswer::AsAsked(_)) => Ok(None),
        Ok(HookAnswer::InPlainText(_)) => {
            let (host, port) = (&get.host, get.port);
            let to = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
            Ok(Some(format!("request to HTTPS lifecycle hook {to} got HTTP response, retry with HTTP succeeded")))
        }
        Err(error) => Err(supervision::error_chain(&error)),
    }
}
