//! Taking a pod away, and the runtime itself.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::pod::{Pod, system};
use super::reattach::LEAVING;
use super::{CGROUP_PATIENCE, Inner, LOGS, PODS, Result, blocking};
use crate::contract::{ContainerId, PodUid};
use crate::shim::logs;
use crate::shim::protocol::Request;
use crate::shim::records::{self, PodDir, directory_name, wall_ms};
use file_tree::delete_tree;
use supervision::BackoffPolicy;

/// A shim ends its containers and itself within milliseconds; afterwards the pod's group is killed as a whole.
const SHUTDOWN_WAIT_MAX: Duration = Duration::from_secs(2);

/// How soon files that could not be deleted are tried again, and how long at most between two attempts.
const DELETE_AGAIN: BackoffPolicy = BackoffPolicy::new(Duration::from_millis(100), Duration::from_secs(60));

impl Inner {
    pub(super) async fn remove_sandbox(self: &Arc<Self>, uid: &PodUid) -> Result<()> {
        let Ok(pod) = self.find(uid) else { return Ok(()) };
        let _changing = pod.changing.lock().await;
        if pod.is_removed() {
            return Ok(());
        }
        // From here on the removal is finished by whoever opens this directory next.
        let begun = std::fs::rename(pod.dir.removing_spare(), pod.dir.removing());
        match begun.or_else(|_| std::fs::write(pod.dir.removing(), "")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(system("cannot begin the removal of the pod")(error.into()));
            }
            _ => {}
        }
        if !self.await_delivery(&pod).await {
            tracing::debug!(uid = %uid.0, "answers of a pod may be lost: its clients have not acknowledged them");
        }
        self.end(&pod).await.map_err(|error| system("cannot end the pod's processes")(error.into()))?;
        let released = self.network.release(uid).await;
        released.map_err(|error| system("cannot release the pod's address")(error.into()))?;
        let of = pod.clone();
        let (kept, pods) = (self.kept_logs(uid), self.data_dir.join(PODS));
        let leaving = blocking(move || {
            of.group.remove(CGROUP_PATIENCE)?;
            keep_logs(&of, &kept)?;
            leave(&of.dir.path, &pods, &of.uid)
        });
        let leaving = leaving.await.map_err(system("cannot remove the pod's control groups and files"))?;
        pod.set_removed();
        pod.set_link(None);
        self.pods().remove(uid);
        if let Some(path) = leaving {
            self.delete_in_background(path);
        }
        Ok(())
    }

    /// Where the logs of a pod are once its sandbox is gone; laid out like the pod's own directory.
    pub(super) fn kept_logs(&self, uid: &PodUid) -> PathBuf {
        self.data_dir.join(LOGS).join(&uid.0)
    }

    pub(super) fn forget_logs(&self, uid: &PodUid) -> Result<()> {
        let left = leave(&self.kept_logs(uid), &self.data_dir.join(PODS), uid);
        if let Some(path) = left.map_err(|error| system("cannot delete the pod's logs")(error.into()))? {
            self.delete_in_background(path);
        }
        Ok(())
    }

    /// Forgets the runs of a container before its last one, now that another has begun: a container that fails again
    /// and again must not fill the disk. The last one stays, for its exit and its log are still asked for.
    pub(super) async fn forget_former_runs(&self, pod: &Arc<Pod>, begun: &ContainerId) {
        if begun.attempt < 2 {
            return;
        }
        let (of, begun, kept) = (pod.clone(), begun.clone(), PodDir { path: self.kept_logs(&pod.uid) });
        let pods = self.data_dir.join(PODS);
        let forgotten = blocking(move || {
            let mut former: Vec<_> = of.dir.containers();
            former.retain(|(id, _)| id.name == begun.name && id.attempt < begun.attempt);
            let last = former.pop().map(|(id, _)| id.attempt);
            // Whatever has no end on disk, or processes, is not over.
            former.retain(|(id, dir)| dir.exit().exists() && !of.group.below(&directory_name(id)).is_populated());
            let mut leaving = Vec::new();
            for (_, dir) in former {
                leaving.push(leave(&dir.path, &pods, &of.uid)?);
            }
            for place in [&of.dir, &kept] {
                for attempt in place.logged(&begun.name).into_iter().filter(|attempt| *attempt + 1 < begun.attempt) {
                    let id = ContainerId { attempt, ..begun.clone() };
                    if Some(attempt) != last && !of.dir.container(&id).path.exists() {
                        logs::remove(&place.log(&id))?;
                    }
                }
            }
            Ok(leaving)
        });
        match forgotten.await {
            Ok(leaving) => leaving.into_iter().flatten().for_each(|path| self.delete_in_background(path)),
            // The next run tries again.
            Err(error) => tracing::warn!(uid = %pod.uid.0, error, "cannot forget former runs of a container"),
        }
    }

    async fn end(&self, pod: &Arc<Pod>) -> io::Result<()> {
        if let Some(link) = pod.link() {
            // By its own shim first, which collects every process; what does not follow is killed below.
            let shutdown = tokio::time::timeout(SHUTDOWN_WAIT_MAX, async {
                let _ = link.ask(Request::Shutdown).await;
                link.closed().await;
            });
            if shutdown.await.is_err() {
                tracing::warn!(uid = %pod.uid.0, shim = link.pid(), "the pod's shim does not end; killing it with the pod");
                pod.end_all().await?;
                // Nobody else tells of these ends any more.
                pod.record_unseen_ends(wall_ms())?;
                self.tell_recorded(pod);
            }
        }
        pod.end_all().await
    }

    /// Deletes a directory that nobody needs any more.
    pub(super) fn delete_in_background(&self, path: PathBuf) {
        let deleted = self.deletion_worker.delete(path.clone());
        self.in_background(async move {
            if let Err(error) = deleted.await {
                tracing::warn!(path = %path.display(), error = %error, "cannot delete unneeded files yet");
                // Nobody waits for this, it may take for ever; the next runtime tries again too.
                tokio::spawn(delete_later(path));
            }
        });
    }

    pub(super) async fn tear_down(self: &Arc<Self>) -> Result<()> {
        self.deletion_worker.hurry().await;
        let mut background = std::mem::take(&mut *self.background.lock().unwrap_or_else(PoisonError::into_inner));
        while background.join_next().await.is_some() {}
        let network = self.network.tear_down().await;
        let (group, own_cgroup2) = (self.group.clone(), self.own_cgroup2.clone());
        let groups = blocking(move || {
            group.remove(CGROUP_PATIENCE)?;
            own_cgroup2.remove()
        });
        let groups = groups.await;
        // Both are tried whatever becomes of the other; the first failure is the answer.
        if let (Err(_), Err(error)) = (&network, &groups) {
            tracing::error!(error, "cannot remove the control groups");
        }
        network.map_err(|error| system("cannot tear the pod network down")(error.into()))?;
        groups.map_err(system("cannot remove the control groups"))
    }
}

/// Tries again, ever less often, to delete what somebody mounts upon or has made immutable.
async fn delete_later(path: PathBuf) {
    let mut retries = DELETE_AGAIN.start();
    loop {
        tokio::time::sleep(retries.after_failure()).await;
        let tried = path.clone();
        let deleted = tokio::task::spawn_blocking(move || match delete_tree(&tried) {
            // By somebody else.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            deleted => deleted,
        });
        match deleted.await {
            Ok(Err(_)) => {}
            // A blocking task that does not run belongs to a runtime that is ending.
            Ok(Ok(())) | Err(_) => return,
        }
    }
}

/// Sets the pod's logs aside: people read them after the end. Logs of an earlier sandbox of the pod are joined, not lost.
///
/// What can be moved is not made: the disk may have no room for it.
fn keep_logs(pod: &Pod, kept: &Path) -> io::Result<()> {
    let (logs, former) = (pod.dir.path.join("logs"), kept.join("logs"));
    if !logs.try_exists()? {
        return Ok(());
    }
    if !former.try_exists()? {
        std::fs::rename(pod.dir.kept(), kept).or_else(|_| records::make_dir(kept))?;
        return std::fs::rename(logs, former);
    }
    for container in std::fs::read_dir(&logs)? {
        let container = container?;
        let target = former.join(container.file_name());
        if !target.try_exists()? {
            std::fs::rename(container.path(), target)?;
            continue;
        }
        for run in std::fs::read_dir(container.path())? {
            let run = run?;
            std::fs::rename(run.path(), target.join(run.file_name()))?;
        }
    }
    Ok(())
}

/// Frees the name of a directory of the pod; what is left to delete is then nobody's, and found among the `pods` by the next
/// agent if this one dies.
fn leave(path: &Path, pods: &Path, uid: &PodUid) -> io::Result<Option<PathBuf>> {
    let stamp = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
    let leaving = pods.join(format!("{LEAVING}{}-{stamp}", uid.0));
    match std::fs::rename(path, &leaving) {
        Ok(()) => Ok(Some(leaving)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
