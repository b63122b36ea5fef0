//! The folder of manifests: what its files ask for, told whenever that changes.
//!
//! The kernel tells of every change; nothing is looked at in intervals. A file counts once its writer has closed it or
//! moved it into place, so a half-written manifest is never run, and a file that cannot be used changes nothing: the pod
//! that an earlier version asked for stays.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::pod::View as _;
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::Pod;
use lifecycle::{Event, EventKind};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use timeline::Clock;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tracing::{debug, info, warn};

use super::{FILE, HASH, full_name, read};
use crate::events::Recorder;

/// Changes that come this close together count as one: an editor that moves the old file away and writes a new one
/// does not mean to end the pod.
const QUIET: Duration = Duration::from_millis(40);
/// But nobody waits longer than this for a folder that never rests.
const QUIET_MOST: Duration = Duration::from_millis(400);
/// How long to wait before a folder that cannot be watched is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// The largest manifest that is read.
const SIZE_MOST: u64 = 10 << 20;

/// The pods of all manifests, at most one of each name.
#[derive(Debug)]
pub struct ManifestPods(pub Vec<Pod>);

/// The folder, watched from the moment this is made.
#[derive(Debug)]
pub struct Folder {
    dir: PathBuf,
    node: String,
    recorder: Recorder,
    clock: Clock,
    watch: AsyncFd<OwnedFd>,
    /// What each file asked for when it could last be used.
    pods: BTreeMap<String, ManifestEntry>,
    /// How many have come so far.
    arrivals: u64,
    /// What is wrong with each file, so that it is told once.
    complaints: BTreeMap<String, String>,
    /// Files that somebody has made and not closed yet.
    open: BTreeSet<String>,
}

/// The pod of one manifest, and its arrival among those of the same name.
#[derive(Debug)]
struct ManifestEntry {
    arrival: u64,
    pod: Pod,
}

/// Which files have to be looked at again.
#[derive(Debug, Default)]
struct Changes {
    names: BTreeSet<String>,
    everything: bool,
    /// The folder itself is gone.
    lost: bool,
}

impl Folder {
    /// The folder at `dir`, which is made if it is missing. `before` are the static pods of an earlier start: what they
    /// were made of stays in force while their files cannot be used.
    pub fn open(dir: PathBuf, node: String, recorder: Recorder, clock: Clock, before: Vec<Pod>) -> io::Result<Self> {
        let watch = watch(&dir)?;
        let before = before.into_iter().filter_map(|pod| Some((pod.annotation(FILE)?.to_owned(), pod)));
        let pods = before.map(|(file, pod)| (file, ManifestEntry { arrival: 0, pod })).collect();
        let (complaints, open) = (BTreeMap::new(), BTreeSet::new());
        let mut folder = Self { dir, node, recorder, clock, watch, pods, arrivals: 0, complaints, open };
        folder.scan();
        Ok(folder)
    }

    /// What the files ask for now.
    pub fn wanted(&mut self) -> ManifestPods {
        let mut names = BTreeSet::new();
        let mut wanted = Vec::new();
        let mut doubles = Vec::new();
        // Who was there first stays.
        let mut pods: Vec<(&String, &ManifestEntry)> = self.pods.iter().collect();
        pods.sort_by_key(|(file, asked)| (asked.arrival, *file));
        for (file, ManifestEntry { pod, .. }) in pods {
            if names.insert(full_name(pod)) {
                wanted.push(pod.clone());
            } else {
                doubles.push((file.clone(), pod.clone()));
            }
        }
        for (file, pod) in doubles {
            let name = pod.metadata.name.clone().unwrap_or_default();
            let shown = format!("{}({})", full_name(&pod), pod.metadata.uid.as_deref().unwrap_or_default());
            let words = format!("Error validating pod {shown} from file due to duplicate pod name {name:?}, ignoring");
            if self.complaints.get(&file) != Some(&words) {
                warn!(file, name, "two manifests have one pod name; the later one is ignored");
                self.recorder.record(&pod, Event::pod_warning("FailedValidation", words.clone()));
                self.complaints.insert(file, words);
            }
        }
        ManifestPods(wanted)
    }

    /// Tells what the files ask for whenever that changes, until nobody listens.
    pub async fn follow(self, out: mpsc::Sender<ManifestPods>) {
        supervision::keep_on("static-pods", (self, out, false), |(folder, out, broke)| {
            // What it broke on may have come with other changes, which nobody would tell of again.
            if std::mem::replace(broke, true) {
                folder.scan();
            }
            folder.follow_on(out).boxed()
        })
        .await;
    }

    async fn follow_on(&mut self, out: &mpsc::Sender<ManifestPods>) {
        loop {
            let changes = tokio::select! {
                changes = self.changes() => changes,
                () = out.closed() => return,
            };
            if changes.lost {
                match watch(&self.dir) {
                    Ok(watch) => self.watch = watch,
                    Err(error) => {
                        warn!(dir = %self.dir.display(), %error, "the folder of manifests cannot be watched");
                        tokio::time::sleep(TRY_AGAIN).await;
                        continue;
                    }
                }
            }
            if changes.everything || changes.lost {
                self.scan();
            } else {
                let links: Vec<String> = self.pods.keys().filter(|name| self.is_link(name)).cloned().collect();
                for name in changes.names.into_iter().chain(links) {
                    self.look(&name);
                }
            }
            if out.send(self.wanted()).await.is_err() {
                return;
            }
        }
    }

    /// Waits for changes, and until they have settled.
    async fn changes(&mut self) -> Changes {
        let mut changes = Changes::default();
        self.take(&mut changes).await;
        let settled = async { while tokio::time::timeout(QUIET, self.take(&mut changes)).await.is_ok() {} };
        // Either it rests, or it has been waited for long enough.
        let _ = tokio::time::timeout(QUIET_MOST, settled).await;
        changes
    }

    /// Takes in whatever the kernel has to tell, once there is something.
    async fn take(&mut self, changes: &mut Changes) {
        let mut told = Vec::new();
        let taken = self.watch.async_io(Interest::READABLE, |inotify| {
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let mut reader = Reader::new(inotify, &mut buffer);
            loop {
                match reader.next() {
                    Ok(event) => {
                        let name = event.file_name().map(|name| name.to_string_lossy().into_owned());
                        told.push((event.events(), name));
                    }
                    Err(Errno::WOULDBLOCK) if !told.is_empty() => return Ok(()),
                    Err(error) => return Err(error.into()),
                }
            }
        });
        if let Err(error) = taken.await {
            warn!(%error, "the watch on the manifests broke");
            changes.lost = true;
        }
        for (what, name) in told {
            self.note(what, name, changes);
        }
    }

    fn note(&mut self, what: ReadFlags, name: Option<String>, changes: &mut Changes) {
        if what.intersects(ReadFlags::QUEUE_OVERFLOW) {
            changes.everything = true;
        }
        if what.intersects(ReadFlags::IGNORED | ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT) {
            changes.lost = true;
        }
        let Some(name) = name else { return };
        if what.intersects(ReadFlags::CREATE) && self.is_being_written(&name) {
            self.open.insert(name);
            return;
        }
        if !what.intersects(ReadFlags::CREATE) {
            self.open.remove(&name);
        }
        changes.names.insert(name);
    }

    /// A new file of one name is still in its writer's hands; a link is whole as soon as it is there.
    fn is_being_written(&self, name: &str) -> bool {
        std::fs::symlink_metadata(self.dir.join(name)).is_ok_and(|meta| meta.is_file() && meta.nlink() == 1)
    }

    fn is_link(&self, name: &str) -> bool {
        std::fs::symlink_metadata(self.dir.join(name)).is_ok_and(|meta| meta.is_symlink())
    }

    /// Looks at every file, and at those that are gone.
    fn scan(&mut self) {
        let listed = std::fs::read_dir(&self.dir).and_then(|entries| {
            entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect::<io::Result<Vec<_>>>()
        });
        let listed = match listed {
            Ok(listed) => listed,
            Err(error) => return warn!(dir = %self.dir.display(), %error, "the manifests cannot be listed"),
        };
        let known: BTreeSet<String> = self.pods.keys().cloned().chain(listed).collect();
        for name in known {
            self.look(&name);
        }
    }

    /// Takes in what the file called `name` asks for now.
    fn look(&mut self, name: &str) {
        if !is_manifest(name) || self.open.contains(name) {
            return;
        }
        let text = match read_file(&self.dir.join(name)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.complaints.remove(name);
                if self.pods.remove(name).is_some() {
                    info!(file = name, "a manifest is gone");
                }
                return;
            }
            Err(error) => return self.complain(name, &error.to_string()),
        };
        if text.trim_ascii().is_empty() {
            return debug!(file = name, "a manifest is empty; nothing changes");
        }
        match read::pod(&text, name, &self.node, crate::timestamp(&self.clock)) {
            Ok((pod, warnings)) => {
                self.complaints.remove(name);
                let old = self.pods.get(name);
                // The hash covers all of the text, a UID of its own included.
                if old.is_some_and(|old| old.pod.annotation(HASH) == pod.annotation(HASH)) {
                    return;
                }
                for warning in warnings {
                    warn!(file = name, warning, "a manifest says something that is not used");
                }
                let kept = old.filter(|old| full_name(&old.pod) == full_name(&pod)).map(|old| old.arrival);
                let arrival = kept.unwrap_or(self.arrivals + 1);
                self.arrivals = self.arrivals.max(arrival);
                self.pods.insert(name.to_owned(), ManifestEntry { arrival, pod });
            }
            Err(error) => self.complain(name, &error.to_string()),
        }
    }

    fn complain(&mut self, name: &str, why: &str) {
        if self.complaints.get(name).map(String::as_str) == Some(why) {
            return;
        }
        warn!(file = name, why, "a manifest cannot be used; nothing changes");
        let message = format!("{}: {why}", self.dir.join(name).display());
        self.recorder.record_own(EventKind::Warning, "InvalidManifest", message);
        self.complaints.insert(name.to_owned(), why.to_owned());
    }
}

/// Hidden files are somebody's temporary ones, and editors keep old versions under a name with `~`.
fn is_manifest(name: &str) -> bool {
    !name.starts_with('.') && !name.ends_with('~')
}

/// The bytes of a regular file; what is neither that nor a link to one is nobody's manifest.
fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let meta = std::fs::metadata(path)?;
    if !meta.is_file() {
        return Ok(Vec::new());
    }
    if meta.len() > SIZE_MOST {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "a manifest may have 10 MiB at most"));
    }
    std::fs::read(path)
}

/// Makes the folder if need be and watches it.
fn watch(dir: &Path) -> io::Result<AsyncFd<OwnedFd>> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
    let flags = WatchFlags::CREATE
        | WatchFlags::CLOSE_WRITE
        | WatchFlags::MOVED_TO
        | WatchFlags::MOVED_FROM
        | WatchFlags::DELETE
        | WatchFlags::DELETE_SELF
        | WatchFlags::MOVE_SELF
        | WatchFlags::ONLYDIR;
    inotify::add_watch(&inotify, dir, flags)?;
    crate::streams::registered(inotify, Interest::READABLE)
}
