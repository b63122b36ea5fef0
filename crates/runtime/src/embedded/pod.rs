//! One pod as the agent sees it: its directory, its control group, the connection to its shim.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{WaitId, WaitIdOptions};
use tokio::io::Interest;

use super::link::Link;
use crate::cgroup::Group;
use crate::container::plan::ContainerPlan;
use crate::contract::{
    ContainerReport, ContainerSpec, ExitRecord, HookRecord, HookReport, PodReport, PodUid, RuntimeError, RuntimeEvent,
    Sandbox, SandboxSpec,
};
use crate::shim::records::{self, PodDir, SandboxRecord, StartedRecord};
use crate::shim::spares::{self, Spare};
use crate::sys::watch::watch;

/// Killed processes are gone within milliseconds; only one stuck in the kernel takes this long.
const DEATH_WAIT_MAX: Duration = Duration::from_secs(10);
/// The kernel tells when a group is empty; this is how long a missed word may cost.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A pod with a directory.
#[derive(Debug)]
pub(super) struct Pod {
    pub(super) uid: PodUid,
    pub(super) dir: PodDir,
    pub(super) group: Group,
    /// Held by whoever makes, mends or removes the sandbox.
    pub(super) changing: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    link: Option<Arc<Link>>,
    /// The shim, if it is a child of this process and has to be collected.
    child: Option<OwnedFd>,
    removed: bool,
}

impl Pod {
    pub(super) fn new(uid: PodUid, path: PathBuf, group: Group) -> Self {
        Self { uid, dir: PodDir { path }, group, changing: tokio::sync::Mutex::default(), state: Mutex::default() }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection to a shim that answers.
    pub(super) fn link(&self) -> Option<Arc<Link>> {
        self.state().link.clone()
    }

    pub(super) fn set_link(&self, link: Option<Link>) {
        self.state().link = link.map(Arc::new);
    }

    pub(super) fn set_child(&self, pidfd: OwnedFd) {
        self.state().child = Some(pidfd);
    }

    pub(super) fn is_removed(&self) -> bool {
        self.state().removed
    }

    pub(super) fn set_removed(&self) {
        self.state().removed = true;
    }

    /// The sandbox if it was completed.
    pub(super) fn ready(&self) -> Option<Sandbox> {
        records::read(&self.dir.ready())
    }

    /// Writes what was asked for and the files containers will see, before anything is made.
    pub(super) fn prepare(&self, spec: &SandboxSpec) -> io::Result<()> {
        records::make_dir(&self.dir.path.join("containers"))?;
        // What its removal needs is there before it, whatever becomes of the disk.
        records::make_dir(&self.dir.kept())?;
        fs::write(self.dir.removing_spare(), "")?;
        // Of a former shim, whose network is gone: nobody is to find this sandbox complete before it is.
        match fs::remove_file(self.dir.ready()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        records::write(&self.dir.sandbox(), &SandboxRecord { spec: spec.clone(), cgroup: self.group.clone() })?;
        fs::write(self.dir.hostname(), format!("{}\n", spec.hostname))?;
        let resolv_conf = match &spec.resolv_conf {
            Some(text) => text.clone(),
            None => fs::read_to_string("/etc/resolv.conf").unwrap_or_default(),
        };
        fs::write(self.dir.resolv_conf(), resolv_conf)?;
        self.group.make()?;
        // A limit that this machine refuses keeps nobody from running.
        self.group.give(&spec.resources).unwrap_or_else(|error| {
            tracing::warn!(uid = %self.uid.0, %error, "the pod's own group does not get what it should");
        });
        Ok(())
    }

    /// Writes the last facts of a sandbox: from then on it is complete.
    pub(super) fn complete(&self, spec: &SandboxSpec, ips: Vec<IpAddr>) -> io::Result<Sandbox> {
        // A pod may be called by its full name; the short one is known beside it all the same.
        let full = spec.fqdn.as_ref().filter(|fqdn| **fqdn == spec.hostname);
        let short = full.and_then(|fqdn| fqdn.split('.').next()).unwrap_or(&spec.hostname);
        let names = format!("{}{short}", spec.fqdn.as_ref().map(|fqdn| format!("{fqdn}\t")).unwrap_or_default());
        let own = ips.iter().map(|ip| format!("{ip}\t{names}\n")).collect::<String>();
        let hosts = match ips.is_empty() {
            true => format!(
                "# Kubernetes-managed hosts file (host network).\n{}",
                fs::read_to_string("/etc/hosts").unwrap_or_default()
            ),
            false => format!(
                "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\n\
                 fe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n{own}"
            ),
        };
        let aliases = spec.host_aliases.iter().map(|(address, names)| format!("{address}\t{}\n", names.join("\t")));
        let aliases = match aliases.collect::<String>() {
            none if none.is_empty() => none,
            some => format!("\n# Entries added by HostAliases.\n{some}"),
        };
        fs::write(self.dir.hosts(), hosts + &aliases)?;
        let sandbox = Sandbox { ips };
        records::write(&self.dir.ready(), &sandbox)?;
        Ok(sandbox)
    }

    /// Everything the disk and the connection say; `None` if nothing readable was ever asked for.
    pub(super) fn report(&self) -> Option<PodReport> {
        let record: SandboxRecord = records::read(&self.dir.sandbox())?;
        let ready = self.ready();
        let mut report = PodReport {
            spec: record.spec,
            // A shim whose sandbox was not completed has no network and no hosts: nothing could start in it.
            alive: self.link().is_some() && ready.is_some(),
            sandbox: ready.unwrap_or_default(),
            containers: Vec::new(),
            hooks: Vec::new(),
        };
        for (id, dir) in self.dir.containers() {
            let exit: Option<ExitRecord> = records::read(&dir.exit());
            let started = records::read::<StartedRecord>(&dir.started()).map(|started| started.wall_ms);
            let Some(started_wall_ms) = started.or(exit.map(|exit| exit.wall_ms)) else { continue };
            let plan: Option<ContainerPlan> = records::read(&dir.plan());
            let ContainerSpec { image_id, resources, .. } = plan.map(|plan| plan.spec).unwrap_or_default();
            report.containers.push(ContainerReport { id: id.clone(), image_id, resources, started_wall_ms, exit });
            for hook in dir.hooks() {
                let outcome = records::read(&dir.hook_outcome(&hook));
                report.hooks.push(HookReport { id: id.clone(), hook, outcome });
            }
        }
        Some(report)
    }

    /// Every end that is on disk, as it would have been told.
    pub(super) fn recorded_events(&self) -> Vec<RuntimeEvent> {
        let Some(report) = self.report() else { return Vec::new() };
        let hooks = report.hooks.into_iter().filter_map(|HookReport { id, hook, outcome }| {
            Some(RuntimeEvent::HookEnded { pod: self.uid.clone(), id, hook, outcome: outcome? })
        });
        let exits = report.containers.into_iter().filter_map(|ContainerReport { id, exit, .. }| {
            Some(RuntimeEvent::Exited { pod: self.uid.clone(), id, exit: exit? })
        });
        hooks.chain(exits).collect()
    }

    /// Gives every run and hook an end on disk, for a pod whose shim died and whose processes were killed at that time.
    pub(super) fn record_unseen_ends(&self, wall_ms: i64) -> io::Result<()> {
        for (_, dir) in self.dir.containers() {
            if !dir.exit().exists() {
                let exit = ExitRecord { code: 137, signal: Some(9), oom: false, wall_ms, seen: false };
                spares::write_durably(&dir, Spare::Exit, &dir.exit(), &exit)?;
            }
            for hook in dir.hooks() {
                if !dir.hook_outcome(&hook).exists() {
                    let message = "its outcome was lost with the pod's shim".to_owned();
                    let outcome = HookRecord::Failed { message };
                    spares::write_durably(&dir, Spare::Hook, &dir.hook_outcome(&hook), &outcome)?;
                }
            }
        }
        Ok(())
    }

    /// Kills whatever is left of the pod, its shim included, and waits until nothing is.
    pub(super) async fn end_all(&self) -> io::Result<()> {
        self.group.kill()?;
        tokio::time::timeout(DEATH_WAIT_MAX, self.emptied())
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "processes of the pod do not die"))??;
        self.collect_shim().await;
        Ok(())
    }

    /// Waits until no process lives in the pod's group.
    async fn emptied(&self) -> io::Result<()> {
        let Ok(events) = fs::File::open(self.group.v2().join("cgroup.events")) else { return Ok(()) };
        let events = watch(events.into(), Interest::PRIORITY)?;
        while self.group.is_populated() {
            if let Ok(Ok(mut ready)) = tokio::time::timeout(LOOK_AGAIN, events.ready(Interest::PRIORITY)).await {
                ready.clear_ready();
            }
        }
        Ok(())
    }

    /// Collects the shim if it is this process's child; others are collected by their own parent.
    async fn collect_shim(&self) {
        let child = self.state().child.take();
        if let Some(child) = child
            && let Ok(child) = watch(child, Interest::READABLE)
            && let Ok(Ok(_)) = tokio::time::timeout(DEATH_WAIT_MAX, child.readable()).await
        {
            use std::os::fd::AsFd;
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            let _ = rustix::process::waitid(WaitId::PidFd(child.get_ref().as_fd()), options);
        }
    }

    /// The end of what the shim last wrote to its log: why it could not serve.
    pub(super) fn last_output(&self) -> Option<String> {
        let text = fs::read_to_string(self.dir.shim_log()).ok()?;
        text.lines().next_back().map(str::to_owned)
    }
}

/// An error that says what was being done to which pod.
pub(super) fn system(
    doing: impl Into<String>,
) -> impl FnOnce(Box<dyn std::error::Error + Send + Sync>) -> RuntimeError {
    let doing = doing.into();
    move |source| RuntimeError::System { doing, source }
}
