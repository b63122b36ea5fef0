//! The pod as it was last seen, kept on disk: after a restart it may be gone from the API while its containers live.

use std::io;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;

use crate::files::Files;
use crate::memory_volumes::MemoryVolumes;

/// The folder of everything the node keeps for its pods.
#[derive(Clone, Debug)]
pub struct Manifests {
    dir: PathBuf,
    memory: MemoryVolumes,
    files: Files,
}

impl Manifests {
    /// What is kept below `dir`, which is made if missing; what must reach no disk is kept in `memory`.
    pub async fn open(dir: &Path, memory: MemoryVolumes, files: Files) -> io::Result<Self> {
        let pods = dir.join("pods");
        files.make_dir(&pods).await?;
        file_tree::spread_below(&pods);
        Ok(Self { dir: pods, memory, files })
    }

    /// Everything kept on disk for one pod.
    fn pod_dir(&self, uid: &str) -> PathBuf {
        self.dir.join(uid)
    }

    /// Where the volumes of one pod are.
    pub fn volumes(&self, uid: &str) -> VolumeDirs {
        let own = self.pod_dir(uid);
        VolumeDirs { disk: own.join("volumes"), memory: self.memory.pod_dir(uid), claims: own.join("claims.json") }
    }

    /// Gives the memory back: no pod is left that needs what is in it.
    pub fn close(&self) -> io::Result<()> {
        self.memory.close()
    }

    /// Keeps `pod`, durably, before anything is done for it.
    pub async fn keep(&self, uid: &str, pod: &Pod) -> io::Result<()> {
        let dir = self.pod_dir(uid);
        self.files.make_dir(&dir).await?;
        let text = serde_json::to_vec(pod)?;
        self.files.replace(&dir.join("pod.json"), dir.join(".pod.json"), text, true).await
    }

    /// The pod as it was kept.
    pub async fn recall(&self, uid: &str) -> io::Result<Pod> {
        let text = self.files.read(&self.pod_dir(uid).join("pod.json")).await?;
        Ok(serde_json::from_slice(&text)?)
    }

    /// The UIDs of all pods that something is kept for.
    pub async fn all(&self) -> io::Result<Vec<String>> {
        self.files.list(vec![self.dir.clone(), self.memory.dir().to_owned()]).await
    }

    /// Removes the volumes of a pod that is over: nobody can read them any more, and others may need the room.
    pub async fn remove_volumes(&self, uid: &str) -> io::Result<()> {
        let VolumeDirs { disk, memory, .. } = self.volumes(uid);
        for dir in [memory, disk] {
            self.files.delete_tree(dir).await?;
        }
        Ok(())
    }

    /// Forgets a pod and its volumes. What is already gone stays gone.
    pub async fn forget(&self, uid: &str) -> io::Result<()> {
        // The disk last: it is where the next agent looks for what is left.
        for dir in [self.memory.pod_dir(uid), self.pod_dir(uid)] {
            self.files.delete_tree(dir).await?;
        }
        Ok(())
    }
}

/// The folders of a pod's volumes.
#[derive(Clone, Debug)]
pub struct VolumeDirs {
    /// What the pod writes.
    pub disk: PathBuf,
    /// What the API gives.
    pub memory: PathBuf,
    /// The file that says which persistent volumes it has.
    pub claims: PathBuf,
}
