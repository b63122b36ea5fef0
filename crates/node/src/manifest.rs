//! The pod as it was last seen, kept on disk: after a restart it may be gone from the API while its containers live.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;
use tokio::fs;
use tokio::io::AsyncWriteExt;

use crate::memory::Memory;

/// The folder of everything the node keeps for its pods.
#[derive(Clone, Debug)]
pub struct Manifests {
    dir: PathBuf,
    memory: Memory,
}

impl Manifests {
    /// What is kept below `dir`, which is made if missing.
    pub async fn open(dir: &Path) -> io::Result<Self> {
        let pods = dir.join("pods");
        fs::create_dir_all(&pods).await?;
        runtime::spread_below(&pods);
        Ok(Self { dir: pods, memory: Memory::open(&dir.join("memory"))? })
    }

    /// The same in a plain folder, for tests: nothing is mounted.
    #[cfg(test)]
    pub fn in_folder(dir: &Path) -> Self {
        Self { dir: dir.join("pods"), memory: Memory::in_folder(&dir.join("memory")) }
    }

    /// Everything kept on disk for one pod.
    fn pod_dir(&self, uid: &str) -> PathBuf {
        self.dir.join(uid)
    }

    /// Where the volumes of one pod are.
    pub fn volumes(&self, uid: &str) -> VolumeDirs {
        VolumeDirs { disk: self.pod_dir(uid).join("volumes"), memory: self.memory.pod_dir(uid) }
    }

    /// Gives the memory back: no pod is left that needs what is in it.
    pub fn close(&self) -> io::Result<()> {
        self.memory.close()
    }

    /// Keeps `pod`, durably, before anything is done for it.
    pub async fn keep(&self, uid: &str, pod: &Pod) -> io::Result<()> {
        let dir = self.pod_dir(uid);
        fs::create_dir_all(&dir).await?;
        let text = serde_json::to_vec(pod)?;
        let temporary = dir.join(".pod.json");
        let mut file = fs::File::create(&temporary).await?;
        file.write_all(&text).await?;
        file.sync_data().await?;
        fs::rename(&temporary, dir.join("pod.json")).await
    }

    /// The pod as it was kept.
    pub async fn recall(&self, uid: &str) -> io::Result<Pod> {
        let text = fs::read(self.pod_dir(uid).join("pod.json")).await?;
        Ok(serde_json::from_slice(&text)?)
    }

    /// The UIDs of all pods that something is kept for.
    pub async fn all(&self) -> io::Result<Vec<String>> {
        let mut uids = BTreeSet::new();
        for dir in [self.dir.as_path(), self.memory.dir()] {
            let mut entries = fs::read_dir(dir).await?;
            while let Some(entry) = entries.next_entry().await? {
                uids.extend(entry.file_name().into_string());
            }
        }
        Ok(uids.into_iter().collect())
    }

    /// Forgets a pod and its volumes. What is already gone stays gone.
    pub async fn forget(&self, uid: &str) -> io::Result<()> {
        // The disk last: it is where the next agent looks for what is left.
        for dir in [self.memory.pod_dir(uid), self.pod_dir(uid)] {
            let deleted = tokio::task::spawn_blocking(move || runtime::delete_tree(&dir)).await;
            match deleted.map_err(io::Error::other).and_then(|deleted| deleted) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
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
}
