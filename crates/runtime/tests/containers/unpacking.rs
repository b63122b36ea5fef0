//! Who unpacks layers: a process that can do nothing else, and whose end costs the pull and nothing more.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::image_support::{Layer, config, docker, docker_with, gzip, program};
use runtime::image::{ImageError, ImageStore};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tar::EntryType;

const PATIENCE: Duration = Duration::from_secs(60);
const ARCHIVE: &str = "ADIEU_TEST_ARCHIVE";
const STORE: &str = "ADIEU_TEST_STORE";

/// An archive that keeps whoever unpacks it busy for a moment.
fn large() -> Vec<u8> {
    let content = vec![7; 32 << 20];
    let layer = Layer::new().file("first", "content").entry(EntryType::Regular, "large", "", &content, |_| {}).tar();
    docker(&["test/large:1"], &[layer], json!({}))
}

/// The process that unpacks into a store, once it reads the layer.
fn unpacking(store: &Path) -> Option<Pid> {
    let place = store.to_str().unwrap();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let found = pids.into_iter().find(|pid| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words);
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        words.contains("unpack-layer") && words.contains(place) && status.contains("\nSeccomp:\t2")
    });
    found.and_then(Pid::from_raw)
}

fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}");
    }
}

fn ingests(store: &Path) -> usize {
    std::fs::read_dir(store.join("ingest")).unwrap().count()
}

/// [SE-51] It is caught in the act, looked at from the host, and killed.
#[test]
fn layer_is_unpacked_by_a_process_that_can_do_nothing_else_and_whose_end_fails_the_load() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("images");
    let store = ImageStore::open(&place, program()).unwrap();
    let archive = large();
    let (refused, confinement) = std::thread::scope(|scope| {
        let loading = scope.spawn(|| store.load(archive.as_slice()));
        let pid = eventually("somebody to unpack", || unpacking(&place));
        kill_process(pid, Signal::STOP).unwrap();
        let confinement = Confinement::of(pid);
        kill_process(pid, Signal::KILL).unwrap();
        (loading.join().unwrap().unwrap_err(), confinement)
    });
    confinement.is_tight(&place);
    let said = refused.to_string();
    assert!(
        said.starts_with("layer sha256:") && said.contains("was killed by signal 9, perhaps for want of memory"),
        "{said}"
    );
    assert_eq!((ingests(&place), store.list().len()), (0, 0), "nothing stays of it");
    store.load(archive.as_slice()).unwrap();
    let files = store.find("test/large:1").unwrap().layers[0].clone();
    assert_eq!(std::fs::read_to_string(files.join("first")).unwrap(), "content");
}

/// What the host sees of a process.
struct Confinement {
    status: String,
    limits: String,
    mounts: String,
    root: BTreeSet<String>,
    /// Its namespaces, and ours.
    namespaces: Vec<(String, PathBuf, PathBuf)>,
    open: Vec<PathBuf>,
}

impl Confinement {
    fn of(pid: Pid) -> Self {
        let proc = PathBuf::from(format!("/proc/{}", pid.as_raw_nonzero()));
        let read = |name: &str| std::fs::read_to_string(proc.join(name)).unwrap();
        let names = |directory: PathBuf| std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let namespace = |name: &str| {
            let of = |process: &Path| std::fs::read_link(process.join("ns").join(name)).unwrap();
            (name.to_owned(), of(&proc), of(Path::new("/proc/self")))
        };
        Self {
            status: read("status"),
            limits: read("limits"),
            mounts: read("mountinfo"),
            root: names(proc.join("root")).map(|path| path.file_name().unwrap().to_string_lossy().into()).collect(),
            namespaces: ["net", "mnt", "ipc", "uts", "cgroup"].map(namespace).to_vec(),
            open: names(proc.join("fd")).map(|fd| std::fs::read_link(fd).unwrap()).collect(),
        }
    }

    fn is_tight(&self, store: &Path) {
        let line = |name: &str| {
            let found = self.status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            found.trim_start_matches(':').trim().to_owned()
        };
        assert_eq!((line("NoNewPrivs"), line("Seccomp")), ("1".into(), "2".into()));
        // CHOWN, DAC_OVERRIDE, FOWNER, FSETID, SYS_ADMIN, MKNOD, SETFCAP
        let files_alone = "000000008820001b";
        for set in ["CapEff", "CapPrm", "CapBnd"] {
            assert_eq!(line(set), files_alone, "{set}");
        }
        assert_eq!((line("CapInh"), line("CapAmb")), ("0".repeat(16), "0".repeat(16)));
        assert_eq!(line("Threads"), "1");
        for (name, its, ours) in &self.namespaces {
            assert_ne!(its, ours, "namespace {name}");
        }
        assert_eq!(self.mounts.lines().count(), 1, "{}", self.mounts);
        assert!(self.mounts.contains("nosuid,nodev,noexec"), "{}", self.mounts);
        let of_layer: BTreeSet<String> = ["first", "large"].map(String::from).into();
        assert!(self.root.is_subset(&of_layer), "its root shows {:?}", self.root);
        for (name, most) in [("Max data size", 256 << 20), ("Max open files", 128), ("Max core file size", 0)] {
            let limit = self.limits.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim_start();
            assert_eq!(limit.split_whitespace().next().unwrap(), most.to_string(), "{name}");
        }
        let outside =
            |path: &&PathBuf| path.is_absolute() && !path.starts_with(store) && *path != Path::new("/dev/null");
        let outside: Vec<_> = self.open.iter().filter(outside).collect();
        // Of its own root, which the host has below the store, it knows no other name.
        let own = ["/", "/first", "/large"].map(PathBuf::from);
        assert!(outside.iter().all(|path| own.contains(path)), "it has open {outside:?}");
    }
}

/// The process of [`layer_is_not_unpacked_any_more_when_the_process_that_wants_it_is_killed`].
#[test]
#[ignore = "a part of another test, in a process of its own"]
fn loads_an_archive() {
    let (store, archive) = (std::env::var(STORE).unwrap(), std::env::var(ARCHIVE).unwrap());
    let store = ImageStore::open(Path::new(&store), program()).unwrap();
    store.load(std::fs::File::open(archive).unwrap()).unwrap();
}

#[test]
fn layer_is_not_unpacked_any_more_when_the_process_that_wants_it_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let (place, archive) = (dir.path().join("images"), dir.path().join("archive"));
    std::fs::write(&archive, large()).unwrap();
    let mut loader = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "unpacking::loads_an_archive"])
        .env(STORE, &place)
        .env(ARCHIVE, &archive)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = eventually("somebody to unpack", || unpacking(&place));
    // It stands still: if it is gone, that is not because it was done.
    kill_process(pid, Signal::STOP).unwrap();
    loader.kill().unwrap();
    loader.wait().unwrap();
    eventually("it gone", || unpacking(&place).is_none().then_some(()));
    let store = ImageStore::open(&place, program()).unwrap();
    assert_eq!((ingests(&place), store.list().len()), (0, 0), "whoever comes next sweeps up");
}

/// A disk of 24 MiB.
struct Disk(tempfile::TempDir);

impl Disk {
    fn new() -> Self {
        let at = tempfile::tempdir().unwrap();
        rustix::mount::mount("tmpfs", at.path(), "tmpfs", MountFlags::empty(), c"size=24m").unwrap();
        Self(at)
    }

    fn free_bytes(&self) -> u64 {
        let disk = rustix::fs::statvfs(self.0.path()).unwrap();
        disk.f_bavail * disk.f_frsize
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0.path(), UnmountFlags::DETACH);
    }
}

/// Two gibibytes of zeros, as gzip members that are all alike.
fn zeros() -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    header.set_path("zeros").unwrap();
    header.set_size(2 << 30);
    header.set_mode(0o644);
    header.set_cksum();
    let mut blob = gzip(header.as_bytes());
    let mebibyte = gzip(&vec![0; 1 << 20]);
    (0..2049).for_each(|_| blob.extend_from_slice(&mebibyte));
    blob
}

/// [SE-43] [SE-50] A layer of two gibibytes that is small on its way takes none of the room that others need.
#[test]
fn layer_that_would_fill_the_disk_is_refused_with_room_to_spare_and_leaves_none_of_it() {
    let disk = Disk::new();
    let store = ImageStore::open(&disk.0.path().join("images"), program()).unwrap();
    let free = disk.free_bytes();
    let plain = vec![Layer::new().file("other", "").tar()];
    let archive = docker_with(&["test/zeros:1"], &plain, &[zeros()], &config(&plain, json!({})));
    let (refused, least) = std::thread::scope(|scope| {
        let loading = scope.spawn(|| store.load(archive.as_slice()));
        let mut least = free;
        while !loading.is_finished() {
            least = least.min(disk.free_bytes());
            std::thread::sleep(Duration::from_millis(1));
        }
        (loading.join().unwrap().unwrap_err(), least)
    });
    assert!(matches!(refused, ImageError::NoRoom { .. }), "{refused}");
    assert!(refused.to_string().contains("adieu image prune"), "{refused}");
    assert!(least > 0, "at one time the disk was full");
    assert!(disk.free_bytes() + (1 << 20) > free, "{} of {free} bytes are free again", disk.free_bytes());
}
