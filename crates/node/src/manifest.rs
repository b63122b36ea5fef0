//! The pod as it was last seen, kept on disk: after a restart it may be gone from the API while its containers live.

use std::io;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;
use tokio::fs;
use tokio::io::AsyncWriteExt;

/// The folder of everything the node keeps for its pods.
#[derive(Clone, Debug)]
pub struct Manifests {
    dir: PathBuf,
}

impl Manifests {
    /// Manifests below `dir`, which is made if missing.
    pub async fn open(dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir).await?;
        Ok(Self { dir: dir.to_owned() })
    }

    /// Everything kept for one pod.
    pub fn pod_dir(&self, uid: &str) -> PathBuf {
        self.dir.join(uid)
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
        let mut uids = Vec::new();
        let mut entries = fs::read_dir(&self.dir).await?;
        while let Some(entry) = entries.next_entry().await? {
            uids.extend(entry.file_name().into_string());
        }
        Ok(uids)
    }

    /// Forgets a pod and its volumes. What is already gone stays gone.
    pub async fn forget(&self, uid: &str) -> io::Result<()> {
        match fs::remove_dir_all(self.pod_dir(uid)).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}
