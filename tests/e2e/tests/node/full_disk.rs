//! A crowd of pods on a disk that somebody fills to its last byte, or to its last inode, and keeps full: all of them leave as
//! they should, whatever is killed meanwhile.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::pods::{busybox, is_ready, with_pre_stop};
use e2e::{Instance, Shared};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, PostParams};

/// Long enough for a crowd on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// What is used up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Supply {
    Bytes,
    Inodes,
}

/// Takes whatever there is, again and again, until it is dropped.
struct Filler {
    enough: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Filler {
    fn start(dir: PathBuf, supply: Supply) -> Result<Self> {
        std::fs::create_dir(&dir)?;
        let enough = Arc::new(AtomicBool::new(false));
        let (stop, (full, filled)) = (enough.clone(), std::sync::mpsc::channel());
        let thread = std::thread::spawn(move || {
            let mut file = File::create(dir.join("bytes")).unwrap();
            let mut number = 0;
            while !stop.load(Ordering::Relaxed) {
                match supply {
                    Supply::Bytes => {
                        [1 << 20, 4096, 1].iter().for_each(|size| while file.write_all(&vec![1; *size]).is_ok() {})
                    }
                    Supply::Inodes => {
                        while File::create_new(dir.join(number.to_string())).is_ok() {
                            number += 1
                        }
                    }
                }
                let _ = full.send(());
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        filled.recv().context("it fills")?;
        Ok(Self { enough, thread: Some(thread) })
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        self.enough.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn until(what: &str, pods: &Api<Pod>, wanted: impl Fn(&[Pod]) -> bool) -> Result<()> {
    let looking = async {
        // The server may be away for a moment.
        while !pods.list(&ListParams::default()).await.is_ok_and(|list| wanted(&list.items)) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.with_context(|| what.to_owned())
}

async fn crowd_leaves_a_disk_without(supply: Supply, crowd: usize) -> Result<()> {
    let mut instance = Instance::start_on_small_disk(256, &[]).await?;
    let (shared, pods) = (Shared::new()?, Api::<Pod>::namespaced(instance.client().await?, "default"));
    let name = |number: usize| format!("p{number}");
    for number in 0..crowd {
        let name = name(number);
        let script = format!("trap 'echo {name} >> /shared/term; exit 0' TERM; while :; do sleep 0.1; done");
        let pod = with_pre_stop(busybox(&name, 60, &script, &shared), &format!("echo {name} >> /shared/hook"));
        pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    }
    until("all are ready", &pods, |list| list.len() == crowd && list.iter().all(is_ready)).await?;

    let filler = Filler::start(instance.dir().join("filler"), supply)?;
    for number in 0..crowd {
        if number == crowd / 2 {
            instance.kill_9().await?;
            instance.up().await.context("the agent starts on a full disk")?;
        }
        let pods = Api::<Pod>::namespaced(instance.client().await?, "default");
        pods.delete(&name(number), &DeleteParams::default()).await.context("a delete is taken")?;
    }
    let pods = Api::<Pod>::namespaced(instance.client().await?, "default");
    until("all have left although the disk is full", &pods, <[Pod]>::is_empty).await?;
    ensure!(std::fs::write(instance.dir().join("more"), "x").is_err(), "the disk is kept full");
    for file in ["hook", "term"] {
        let lines = shared.lines(file);
        let distinct: BTreeSet<_> = lines.iter().collect();
        ensure!((lines.len(), distinct.len()) == (crowd, crowd), "{supply:?}: once each in {file}: {lines:?}");
    }

    drop(filler);
    std::fs::remove_dir_all(instance.dir().join("filler"))?;
    let after = busybox("after", 1, "sleep 1000", &shared);
    pods.create(&PostParams::default(), &serde_json::from_value(after)?)
        .await
        .context("a pod comes when there is room")?;
    until("the next pod runs", &pods, |list| list.iter().any(is_ready)).await?;
    instance.down().await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn crowd_leaves_a_disk_without_a_byte_of_room() -> Result<()> {
    crowd_leaves_a_disk_without(Supply::Bytes, 100).await
}

#[tokio::test(flavor = "multi_thread")]
async fn crowd_leaves_a_disk_without_a_free_inode() -> Result<()> {
    crowd_leaves_a_disk_without(Supply::Inodes, 30).await
}
