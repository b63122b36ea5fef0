//! Making a sandbox: records first, then the shim that is it, then its network.

use std::sync::{Arc, Weak};

use super::link::{self, Link};
use super::pod::{Pod, system};
use super::run::check_names;
use super::{CGROUP_PATIENCE, Inner, Result, blocking};
use crate::contract::{PodUid, Resources, RuntimeError, RuntimeEvent, Sandbox, SandboxSpec};
use crate::shim::protocol::ShimMessage;
use crate::shim::records::{self, SandboxRecord, wall_ms};

impl Inner {
    /// Makes the sandbox, completes a half-made one, or answers with the one that is there.
    pub(super) async fn create_sandbox(self: &Arc<Self>, spec: &SandboxSpec) -> Result<Sandbox> {
        let volumes = spec.memory_volumes.iter().map(|volume| volume.name.as_str());
        check_names(&volumes.collect::<Vec<_>>())?;
        let pod = self.find_or_add(&spec.uid, || self.group.pod(&spec.uid.0, spec.best_effort))?;
        let _changing = pod.changing.lock().await;
        let link = match (pod.link(), pod.ready()) {
            (Some(_), Some(sandbox)) => {
                give(&pod, &spec.resources).await?;
                return Ok(sandbox);
            }
            (Some(link), None) => link,
            (None, _) => {
                self.start_shim(&pod, spec).await?;
                pod.link().ok_or_else(|| system("the shim ended at once")("connection lost".into()))?
            }
        };
        let ips = if spec.host_network {
            Vec::new()
        } else {
            let failed = || system("cannot connect the pod to the network");
            let namespace = link.network_namespace().map_err(|error| failed()(error.into()))?;
            let addresses = self.network.attach_to(&spec.uid, namespace).await;
            let addresses = addresses.map_err(|error| failed()(error.into()))?;
            let published = self.network.publish(&spec.uid, &spec.host_ports).await;
            published.map_err(|error| failed()(error.into()))?;
            addresses
        };
        pod.complete(spec, ips).map_err(|error| system("cannot record the sandbox")(error.into()))
    }

    pub(super) async fn set_pod_resources(&self, uid: &PodUid, resources: &Resources) -> Result<()> {
        let pod = self.find(uid)?;
        let _changing = pod.changing.lock().await;
        if pod.is_removed() || pod.ready().is_none() {
            return Err(RuntimeError::NoSandbox { pod: uid.0.clone() });
        }
        give(&pod, resources).await
    }

    async fn start_shim(self: &Arc<Self>, pod: &Arc<Pod>, spec: &SandboxSpec) -> Result<()> {
        // A former shim of this pod may have left processes behind.
        pod.end_all().await.map_err(|error| system("cannot end what is left of the pod")(error.into()))?;
        let (inner, of, asked) = (self.clone(), pod.clone(), spec.clone());
        let started = blocking(move || {
            // Made anew: the kernel kills whatever is cloned into a group that was killed before its parent was.
            of.group.remove(CGROUP_PATIENCE)?;
            // What ended with the former shim, should the disk have been full then: it must not pass for the new one's.
            of.record_unseen_ends(wall_ms())?;
            of.prepare(&asked)?;
            let listener = link::listen(&of.dir.path)?;
            inner.program.start(&of.dir, &of.group, &listener)
        });
        let shim = started.await.map_err(system("cannot start the pod's shim"))?;
        pod.set_child(shim.pidfd);
        let connected = self.connect(pod).await;
        connected.map_err(|error| match pod.last_output() {
            Some(words) => system(format!("cannot make the sandbox: {words}"))(error.into()),
            None => system("cannot make the sandbox")(error.into()),
        })
    }

    /// Connects to a pod's shim and passes on what it tells.
    pub(super) async fn connect(self: &Arc<Self>, pod: &Arc<Pod>) -> std::io::Result<()> {
        let (inner, of) = (Arc::downgrade(self), Arc::downgrade(pod));
        let link = Link::connect(&pod.dir.path, &pod.group, move |told| hear(&inner, &of, told)).await?;
        pod.set_link(Some(link));
        Ok(())
    }
}

/// Gives a pod other resources as a whole, if these are others. Written down afterwards: whoever comes after one that died in
/// between finds what was there before, and gives it again.
async fn give(pod: &Arc<Pod>, resources: &Resources) -> Result<()> {
    let (of, resources) = (pod.clone(), resources.clone());
    let given = blocking(move || {
        let Some(mut record) = records::read::<SandboxRecord>(&of.dir.sandbox()) else { return Ok(()) };
        if record.spec.resources != resources {
            of.group.give(&resources)?;
            record.spec.resources = resources;
            records::write(&of.dir.sandbox(), &record)?;
        }
        Ok(())
    });
    given.await.map_err(system("cannot give the pod other resources"))
}

fn hear(inner: &Weak<Inner>, pod: &Weak<Pod>, told: Option<ShimMessage>) {
    let (Some(inner), Some(of)) = (inner.upgrade(), pod.upgrade()) else { return };
    let pod = of.uid.clone();
    let event = match told {
        Some(ShimMessage::Exited { id, exit }) => RuntimeEvent::Exited { pod, id, exit },
        Some(ShimMessage::HookEnded { id, hook, outcome }) => RuntimeEvent::HookEnded { pod, id, hook, outcome },
        Some(
            ShimMessage::Hello { .. }
            | ShimMessage::Answer { .. }
            | ShimMessage::ExecEnded { .. }
            | ShimMessage::Detached { .. },
        ) => return,
        None => {
            let mending = inner.clone();
            return inner.in_background(async move { mending.shim_lost(&of).await });
        }
    };
    // Nobody listening is fine: the disk remembers.
    let _ = inner.events.send(event);
}
