//! What is asked of running pods: containers, signals, execs, hooks.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use rustix::pipe::PipeFlags;

use super::link::{ExecAnswer, Link, NoAnswer};
use super::pod::{Pod, system};
use super::{BASE, Inner, Result, blocking};
use crate::container::plan::ContainerPlan;
use crate::contract::{
    ContainerId, ContainerSpec, Delivery, ExecSession, ExecSpec, PodUid, Resources, RuntimeError, Seccomp, Started,
    Tether,
};
use crate::shim::protocol::{Answer, Request};
use crate::shim::records::{self, SandboxRecord, directory_name, is_plain};
use file_tree::delete_tree;

impl Inner {
    fn link_of(&self, uid: &PodUid) -> Result<Arc<Link>> {
        self.find(uid)?.link().ok_or_else(|| RuntimeError::NoSandbox { pod: uid.0.clone() })
    }

    async fn ask(&self, uid: &PodUid, id: &ContainerId, request: Request) -> Result<Answer> {
        let link = self.link_of(uid)?;
        let answer = link.ask(request).await;
        meant(uid, id, answer)
    }

    pub(super) async fn start_container(self: &Arc<Self>, uid: &PodUid, spec: &ContainerSpec) -> Result<Started> {
        check_names(&[&spec.id.name])?;
        let pod = self.find(uid)?;
        let dir = pod.dir.container(&spec.id);
        if let Some(started) = dir.begun() {
            return Ok(Started { wall_ms: started.wall_ms, warnings: started.warnings });
        }
        let (inner, of, asked) = (self.clone(), pod.clone(), spec.clone());
        let written = blocking(move || Ok(inner.write_plan(&of, &asked)));
        written.await.map_err(system("cannot plan the container"))??;
        // A shim that has hung up on us may live on: whether its sandbox is lost is known once it was looked for.
        if pod.link().is_none_or(|link| link.is_closed()) {
            self.clone().shim_lost(&pod).await;
        }
        let link = self.link_of(uid)?;
        let answer = link.ask(Request::Start { id: spec.id.clone() }).await;
        if answer == Err(NoAnswer::Gone) {
            self.clone().shim_lost(&pod).await;
            if self.link_of(uid).is_ok() {
                let why = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
                let doing = "the pod's shim hung up before it answered".to_owned();
                return Err(RuntimeError::Unanswered { doing, source: why.into() });
            }
        }
        if answer == Err(NoAnswer::TooLate) {
            // What is stuck on its way into the container is ended, so that another attempt does not meet it.
            self.kill_by(&link, &pod, &spec.id).await?;
        }
        let answer = match answer {
            Ok(Answer::Refused { message }) => Err(RuntimeError::Start { message }),
            answer => meant(uid, &spec.id, answer),
        };
        match answer {
            Ok(Answer::Started { wall_ms, warnings }) => {
                self.forget_former_runs(&pod, &spec.id).await;
                Ok(Started { wall_ms, warnings })
            }
            Ok(answer) => Err(unexpected(&answer)),
            Err(error) => {
                // It never ran: nothing of it is to be found by an inventory or to be in the way of the next attempt.
                if matches!(error, RuntimeError::Start { .. } | RuntimeError::NoContainer { .. }) {
                    let _ = blocking(move || delete_tree(&dir.path)).await;
                }
                Err(error)
            }
        }
    }

    /// Writes everything the shim needs before it is asked.
    fn write_plan(&self, pod: &Pod, spec: &ContainerSpec) -> Result<()> {
        // Held until the plan, which tells that the image is in use, is on disk.
        let using = self.images.begin_use(&spec.image_id)?;
        let image = &using.stored;
        let record: SandboxRecord =
            records::read(&pod.dir.sandbox()).ok_or_else(|| RuntimeError::NoSandbox { pod: pod.uid.0.clone() })?;
        let mut plan = ContainerPlan::merge(spec, &image.config, &image.layers, &record.spec.hostname);
        plan.base = self.data_dir.join(BASE);
        if plan.argv.is_empty() {
            return Err(RuntimeError::Start { message: "no command specified".to_owned() });
        }
        let system = |error: std::io::Error| system("cannot write the container's plan")(error.into());
        if !spec.privileged && spec.seccomp == Seccomp::Default {
            plan.seccomp = self.filters.for_capabilities(plan.capabilities).map_err(system)?;
        }
        let dir = pod.dir.container(&spec.id);
        if spec.termination_message_path.is_some() {
            let file = dir.termination_message();
            records::make_dir(&dir.path)
                .and_then(|()| fs::write(&file, ""))
                .and_then(|()| fs::set_permissions(&file, fs::Permissions::from_mode(0o666)))
                .map_err(system)?;
        }
        records::make_dir(&dir.path).and_then(|()| records::write(&dir.plan(), &plan)).map_err(system)
    }

    pub(super) async fn signal(&self, uid: &PodUid, id: &ContainerId, signal: u8) -> Result<Delivery> {
        let pod = self.find(uid)?;
        if pod.dir.container(id).exit().exists() {
            return Ok(Delivery::AlreadyGone);
        }
        match self.ask(uid, id, Request::Signal { id: id.clone(), signal, dated: true }).await? {
            Answer::Signalled(delivery) => Ok(delivery),
            answer @ (Answer::Done
            | Answer::Started { .. }
            | Answer::Exec
            | Answer::ResourcesSet { .. }
            | Answer::NotRunning
            | Answer::Refused { .. }) => Err(unexpected(&answer)),
        }
    }

    pub(super) async fn set_resources(
        &self,
        uid: &PodUid,
        id: &ContainerId,
        resources: &Resources,
    ) -> Result<Vec<String>> {
        check_names(&[&id.name])?;
        let request = Request::SetResources { id: id.clone(), resources: resources.clone() };
        match self.ask(uid, id, request).await? {
            Answer::ResourcesSet { warnings } => Ok(warnings),
            answer @ (Answer::Done
            | Answer::Started { .. }
            | Answer::Exec
            | Answer::Signalled(_)
            | Answer::NotRunning
            | Answer::Refused { .. }) => Err(unexpected(&answer)),
        }
    }

    pub(super) async fn kill(self: &Arc<Self>, uid: &PodUid, id: &ContainerId) -> Result<()> {
        check_names(&[&id.name])?;
        let pod = self.find(uid)?;
        if pod.dir.container(id).exit().exists() {
            return Ok(());
        }
        let link = self.link_of(uid)?;
        self.kill_by(&link, &pod, id).await
    }

    /// Kills a run by its shim, or without it if it does not answer. A shim that stays silent is given up.
    async fn kill_by(self: &Arc<Self>, link: &Arc<Link>, pod: &Arc<Pod>, id: &ContainerId) -> Result<()> {
        let request = Request::Kill { id: id.clone() };
        let mut answer = link.ask(request.clone()).await;
        if answer == Err(NoAnswer::TooLate) {
            tracing::warn!(uid = %pod.uid.0, container = %id.name, "the pod's shim does not answer; killing without it");
            let killed = pod.group.below(&directory_name(id)).kill();
            killed.map_err(|error| system("cannot kill the container")(error.into()))?;
            // Nobody but the shim can tell of the end as it was: a slow one gets its chance, before it costs the pod.
            answer = link.ask(request).await;
        }
        if answer == Err(NoAnswer::TooLate) {
            self.give_up(pod, link).await;
            return Ok(());
        }
        meant(&pod.uid, id, answer).map(drop)
    }

    pub(super) async fn exec(&self, uid: &PodUid, id: &ContainerId, spec: &ExecSpec) -> Result<ExecSession> {
        let link = self.link_of(uid)?;
        // Ours from before it is asked for: whoever stops waiting has let go of a program that is still to come.
        let (held, tether) =
            if spec.tethered { tether().map(|(held, ours)| (Some(held), Some(ours)))? } else { (None, None) };
        let held: Vec<_> = held.iter().map(AsFd::as_fd).collect();
        let answered = link.exec(Request::Exec { id: id.clone(), spec: spec.clone() }, &held).await;
        let ExecAnswer { answer, streams, exit } = answered.map_err(|why| unanswered(uid, why))?;
        match answer {
            Answer::Exec => session(spec, streams, exit).map(|session| ExecSession { tether, ..session }),
            Answer::NotRunning => Err(RuntimeError::NoContainer { container: id.global(uid) }),
            Answer::Refused { message } => Err(RuntimeError::Start { message }),
            answer @ (Answer::Done | Answer::Started { .. } | Answer::Signalled(_) | Answer::ResourcesSet { .. }) => {
                Err(unexpected(&answer))
            }
        }
    }

    pub(super) async fn attach(&self, uid: &PodUid, id: &ContainerId, spec: &ExecSpec) -> Result<ExecSession> {
        check_names(&[&id.name])?;
        let pod = self.find(uid)?;
        let plan: Option<ContainerPlan> = records::read(&pod.dir.container(id).plan());
        let gone = || RuntimeError::NoContainer { container: id.global(uid) };
        let tty = plan.ok_or_else(gone)?.spec.tty;
        let link = self.link_of(uid)?;
        let answered = link.exec(Request::Attach { id: id.clone(), spec: spec.clone() }, &[]).await;
        let ExecAnswer { answer, streams, exit } = answered.map_err(|why| unanswered(uid, why))?;
        match answer {
            Answer::Exec => {
                let mut streams = streams.into_iter();
                let mut take = |wanted: bool| if wanted { streams.next() } else { None };
                let (stdin, stdout) = (take(spec.stdin), take(spec.stdout));
                Ok(ExecSession { stdin, stdout, stderr: take(spec.stderr && !tty), exit, tether: None })
            }
            Answer::NotRunning => Err(gone()),
            Answer::Refused { message } => Err(RuntimeError::Start { message }),
            answer @ (Answer::Done | Answer::Started { .. } | Answer::Signalled(_) | Answer::ResourcesSet { .. }) => {
                Err(unexpected(&answer))
            }
        }
    }

    pub(super) async fn run_hook(&self, uid: &PodUid, id: &ContainerId, hook: &str, command: &[String]) -> Result<()> {
        check_names(&[hook])?;
        let request = Request::RunHook { id: id.clone(), hook: hook.to_owned(), command: command.to_vec() };
        self.ask(uid, id, request).await.map(drop)
    }

    pub(super) async fn cancel_hook(&self, uid: &PodUid, id: &ContainerId, hook: &str) -> Result<()> {
        check_names(&[hook])?;
        self.ask(uid, id, Request::CancelHook { id: id.clone(), hook: hook.to_owned() }).await.map(drop)
    }
}

/// What an answer, or none, means to whoever asked.
fn meant(uid: &PodUid, id: &ContainerId, answer: std::result::Result<Answer, NoAnswer>) -> Result<Answer> {
    match answer {
        Ok(Answer::NotRunning) => Err(RuntimeError::NoContainer { container: id.global(uid) }),
        Ok(Answer::Refused { message }) => Err(system("the pod's shim could not do it")(message.into())),
        Ok(answer) => Ok(answer),
        Err(why) => Err(unanswered(uid, why)),
    }
}

fn unanswered(uid: &PodUid, why: NoAnswer) -> RuntimeError {
    match why {
        NoAnswer::Gone => RuntimeError::NoSandbox { pod: uid.0.clone() },
        NoAnswer::TooLate => {
            tracing::warn!(uid = %uid.0, "the pod's shim does not answer");
            let source = std::io::Error::from(std::io::ErrorKind::TimedOut).into();
            RuntimeError::Unanswered { doing: "the pod's shim does not answer".to_owned(), source }
        }
    }
}

fn session(spec: &ExecSpec, streams: Vec<OwnedFd>, exit: tokio::sync::oneshot::Receiver<u8>) -> Result<ExecSession> {
    let mut streams = streams.into_iter();
    if spec.tty {
        let master = streams.next();
        let copy = master.as_ref().map(OwnedFd::try_clone).transpose();
        let stdin = copy.map_err(|error| system("cannot keep the terminal")(error.into()))?;
        return Ok(ExecSession { stdin, stdout: master, stderr: None, exit, tether: None });
    }
    let mut take = |wanted: bool| if wanted { streams.next() } else { None };
    let (stdin, stdout, stderr) = (take(spec.stdin), take(spec.stdout), take(spec.stderr));
    Ok(ExecSession { stdin, stdout, stderr, exit, tether: None })
}

/// The shim's end of a new tether, and ours.
fn tether() -> Result<(OwnedFd, Tether)> {
    let made = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK);
    let (held, ours) = made.map_err(|errno| system("cannot make a pipe")(std::io::Error::from(errno).into()))?;
    Ok((held, Tether::new(ours)))
}

pub(super) fn check_names(names: &[&str]) -> Result<()> {
    names.iter().try_for_each(|name| {
        if is_plain(name) {
            Ok(())
        } else {
            Err(system(format!("name {name:?} cannot be used"))("it cannot be part of a path".into()))
        }
    })
}

fn unexpected(answer: &Answer) -> RuntimeError {
    system("the shim answered something else")(format!("{answer:?}").into())
}
