//! A machine to run containers on: a directory, an instance id, a network namespace and an image of its own.
#![allow(clippy::unwrap_used, unreachable_pub, dead_code, reason = "shared by several test programs")]
#![allow(missing_docs, reason = "tests")]

use std::collections::VecDeque;
use std::future::Future;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use runtime::verbs::*;
use runtime::{
    ContainerId, ContainerSpec, Embedded, EmbeddedConfig, ExecSession, ExecSpec, ExitRecord, HookRecord, Mount,
    MountSource, PodReport, PodUid, Propagation, RuntimeEvent, SandboxSpec,
};
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc::UnboundedReceiver;

/// Generous: reached only when something is broken, and not while a disk is busy with what a compiler wrote.
pub const PATIENCE: Duration = Duration::from_secs(120);

pub const IMAGE: &str = "test/busybox:1";

pub struct Machine {
    pub dir: tempfile::TempDir,
    pub instance: String,
    runtime: Option<Embedded>,
    events: Option<UnboundedReceiver<RuntimeEvent>>,
    heard: VecDeque<RuntimeEvent>,
}

/// Runs a story on a machine of its own, and checks that nothing of it is left when it has ended.
pub fn on_a_machine<F, S>(story: S)
where
    F: Future<Output = Machine>,
    S: FnOnce(Machine) -> F,
{
    on_a_machine_in(&std::env::temp_dir(), story);
}

/// The same, with everything it keeps somewhere below `place`.
pub fn on_a_machine_in<F, S>(place: &Path, story: S)
where
    F: Future<Output = Machine>,
    S: FnOnce(Machine) -> F,
{
    leave_the_hosts_network();
    // Threads of this runtime are born into the namespace of the one that makes it.
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    tokio.block_on(async {
        let machine = Machine::new(place).await;
        let machine = story(machine).await;
        machine.leaves_nothing_behind().await;
    });
}

#[allow(unsafe_code, reason = "unshare of the network touches no memory")]
fn leave_the_hosts_network() {
    // SAFETY: only the network namespace of this thread changes; descriptors stay as they are.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }.expect("tests run as root");
}

impl Machine {
    async fn new(place: &Path) -> Self {
        let dir = tempfile::tempdir_in(place).unwrap();
        let mut random = [0u8; 4];
        std::fs::File::open("/dev/urandom").unwrap().read_exact(&mut random).unwrap();
        let instance = format!("t{:08x}", u32::from_ne_bytes(random));
        let mut machine = Self { dir, instance, runtime: None, events: None, heard: VecDeque::new() };
        machine.agent_returns().await;
        let store = machine.runtime().image_store().clone();
        store.load(busybox_archive(IMAGE, &json!({ "StopSignal": "SIGQUIT" })).as_slice()).unwrap();
        machine
    }

    pub fn runtime(&self) -> &Embedded {
        self.runtime.as_ref().expect("the agent is here")
    }

    /// The agent dies: nothing is told to anybody.
    pub fn agent_dies(&mut self) {
        self.runtime = None;
        self.events = None;
        self.heard.clear();
    }

    /// An agent starts on the same directory.
    pub async fn agent_returns(&mut self) {
        let runtime = Embedded::open(config(self.dir.path(), &self.instance)).await.unwrap();
        self.events = runtime.events();
        assert!(runtime.events().is_none(), "the events are given out once");
        self.runtime = Some(runtime);
    }

    pub async fn sandbox(&self, uid: &str) -> PodUid {
        let spec = sandbox_spec(uid);
        self.runtime().create_sandbox(&spec).await.unwrap();
        spec.uid
    }

    /// Starts `sh -c SCRIPT` as the first run of `name`.
    pub async fn start(&self, pod: &PodUid, name: &str, script: &str) -> ContainerId {
        let spec = self.spec(name, script).await;
        self.runtime().start_container(pod, &spec).await.unwrap();
        spec.id
    }

    pub async fn spec(&self, name: &str, script: &str) -> ContainerSpec {
        container_spec(self.runtime(), name, script).await
    }

    /// A file that does not exist yet, and the mount that lets containers look for it at `/signpost/go`.
    pub fn signpost(&self) -> (PathBuf, Mount) {
        let directory = self.dir.path().join("signpost");
        std::fs::create_dir_all(&directory).unwrap();
        (directory.join("go"), Mount { read_only: true, ..mount(&directory, "/signpost") })
    }

    async fn event<T>(&mut self, mut wanted: impl FnMut(&RuntimeEvent) -> Option<T>) -> T {
        if let Some(found) = self.heard.iter().find_map(&mut wanted) {
            return found;
        }
        let events = self.events.as_mut().expect("the agent is here");
        loop {
            let event = tokio::time::timeout(PATIENCE, events.recv()).await.expect("an event").expect("a sender");
            let found = wanted(&event);
            self.heard.push_back(event);
            if let Some(found) = found {
                return found;
            }
        }
    }

    /// Waits until the run is told to have ended.
    pub async fn exit(&mut self, pod: &PodUid, id: &ContainerId) -> ExitRecord {
        self.event(|event| match event {
            RuntimeEvent::Exited { pod: of, id: which, exit } if (of, which) == (pod, id) => Some(*exit),
            RuntimeEvent::Exited { .. } | RuntimeEvent::HookEnded { .. } => None,
        })
        .await
    }

    /// Waits until the hook is told to have ended.
    pub async fn hook(&mut self, pod: &PodUid, hook: &str) -> HookRecord {
        self.event(|event| match event {
            RuntimeEvent::HookEnded { pod: of, hook: which, outcome, .. } if (of, which.as_str()) == (pod, hook) => {
                Some(outcome.clone())
            }
            RuntimeEvent::Exited { .. } | RuntimeEvent::HookEnded { .. } => None,
        })
        .await
    }

    /// What was told since somebody last waited for something.
    pub fn told_meanwhile(&mut self) -> Vec<RuntimeEvent> {
        let events = self.events.as_mut().expect("the agent is here");
        std::iter::from_fn(|| events.try_recv().ok()).collect()
    }

    pub async fn report(&self, pod: &PodUid) -> Option<PodReport> {
        self.runtime().inventory().await.unwrap().into_iter().find(|report| &report.spec.uid == pod)
    }

    /// What the run wrote, without times: `STREAM F LINE`.
    pub fn log(&self, pod: &PodUid, id: &ContainerId) -> String {
        let text = std::fs::read_to_string(self.runtime().log_path(pod, id)).unwrap_or_default();
        text.lines().map(|line| line.split_once(' ').unwrap().1.to_owned() + "\n").collect()
    }

    /// Waits until the run's log contains a text.
    pub async fn logged(&self, pod: &PodUid, id: &ContainerId, text: &str) {
        eventually(&format!("{text:?} in the log"), || self.log(pod, id).contains(text)).await;
    }

    /// Runs a script in a container to its end: what it wrote to both streams, and its code.
    pub async fn exec(&self, pod: &PodUid, id: &ContainerId, script: &str) -> (String, u8) {
        let spec = exec_spec(&["sh", "-c", script]);
        let session = self.runtime().exec(pod, id, &spec).await.unwrap();
        let output = read_all(session.stdout.unwrap()).await + &read_all(session.stderr.unwrap()).await;
        (output, session.exit.await.unwrap())
    }

    /// The processes that are in the control group of a pod, shim included.
    pub fn processes(&self, pod: &PodUid) -> Vec<i32> {
        let mut all = processes_in(&format!("/adieu-{}/{}/", self.instance, pod.0));
        all.extend(processes_in(&format!("/adieu-{}/besteffort/{}/", self.instance, pod.0)));
        all
    }

    pub fn shim_of(&self, pod: &PodUid) -> i32 {
        processes_in(&format!("/adieu-{}/{}/shim", self.instance, pod.0))[0]
    }

    async fn leaves_nothing_behind(mut self) {
        if self.runtime.is_none() {
            self.agent_returns().await;
        }
        for report in self.runtime().inventory().await.unwrap() {
            self.runtime().remove_sandbox(&report.spec.uid).await.unwrap();
            assert_eq!(
                self.processes(&report.spec.uid),
                Vec::<i32>::new(),
                "processes when remove_sandbox has returned"
            );
        }
        self.runtime().tear_down().await.unwrap();
        assert_eq!(processes_in(&format!("/adieu-{}", self.instance)), Vec::<i32>::new(), "processes");
        assert_eq!(self.cgroups(), Vec::<PathBuf>::new(), "control groups");
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let ours = |line: &&str| line.contains(self.dir.path().to_str().unwrap()) || line.contains(&self.instance);
        assert_eq!(mounts.lines().filter(ours).collect::<Vec<_>>(), Vec::<&str>::new(), "mounts");
        assert_eq!(std::fs::read_dir(self.dir.path().join("pods")).unwrap().count(), 0, "files of pods");
        eventually("all links gone but the loopback", || {
            let links = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
            links.lines().skip(2).all(|line| line.trim_start().starts_with("lo:"))
        })
        .await;
    }

    pub fn cgroups(&self) -> Vec<PathBuf> {
        let hierarchies = std::fs::read_dir("/sys/fs/cgroup").unwrap().flatten().map(|entry| entry.path());
        let places = hierarchies.chain([PathBuf::from("/sys/fs/cgroup"), self.dir.path().join("cgroup2")]);
        places.map(|place| place.join(format!("adieu-{}", self.instance))).filter(|path| path.exists()).collect()
    }
}

impl Drop for Machine {
    /// A story that failed ends its processes too.
    fn drop(&mut self) {
        let begun = Instant::now();
        while let groups = self.cgroups()
            && !groups.is_empty()
            && begun.elapsed() < Duration::from_secs(2)
        {
            for group in groups {
                let _ = std::fs::write(group.join("cgroup.kill"), "1");
                remove_groups(&group);
            }
        }
    }
}

/// Removes empty control groups, the innermost first.
fn remove_groups(group: &Path) {
    for below in std::fs::read_dir(group).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir()) {
        remove_groups(&below.path());
    }
    let _ = std::fs::remove_dir(group);
}

pub fn config(directory: &Path, instance: &str) -> EmbeddedConfig {
    EmbeddedConfig {
        data_dir: directory.to_owned(),
        instance: instance.to_owned(),
        pod_cidr: "10.99.0.0/16".parse().unwrap(),
        service_cidr: "10.87.0.0/16".parse().unwrap(),
        shim_program: PathBuf::from(env!("CARGO_BIN_EXE_shim-for-tests")),
    }
}

/// `sh -c SCRIPT` as the first run of `name`.
pub async fn container_spec(runtime: &Embedded, name: &str, script: &str) -> ContainerSpec {
    ContainerSpec {
        id: ContainerId { name: name.into(), attempt: 0 },
        image_id: runtime.ensure_image(IMAGE).await.unwrap().id,
        command: ["sh", "-c", script].map(String::from).to_vec(),
        termination_message_path: Some("/dev/termination-log".into()),
        ..ContainerSpec::default()
    }
}

/// A directory of the host, shown at `target`.
pub fn mount(source: &Path, target: &str) -> Mount {
    Mount {
        source: MountSource::Host(source.to_owned()),
        sub_path: None,
        target: target.to_owned(),
        read_only: false,
        propagation: Propagation::None,
    }
}

pub fn sandbox_spec(uid: &str) -> SandboxSpec {
    SandboxSpec {
        uid: PodUid(uid.into()),
        name: "story".into(),
        namespace: "default".into(),
        hostname: "story-host".into(),
        resolv_conf: Some("nameserver 10.99.0.1\n".into()),
        ..SandboxSpec::default()
    }
}

pub fn exec_spec(command: &[&str]) -> ExecSpec {
    let command = command.iter().map(|word| (*word).to_owned()).collect();
    ExecSpec { command, tty: false, stdin: false, stdout: true, stderr: true, tethered: false }
}

/// Waits for a fact the system does not announce.
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub async fn read_all(fd: std::os::fd::OwnedFd) -> String {
    tokio::task::spawn_blocking(move || {
        let mut bytes = Vec::new();
        // A terminal ends with an error once its other side is closed.
        let _ = std::fs::File::from(fd).read_to_end(&mut bytes);
        String::from_utf8(bytes).unwrap()
    })
    .await
    .unwrap()
}

/// Waits for the exit of an exec.
pub async fn code_of(session: ExecSession) -> u8 {
    tokio::time::timeout(PATIENCE, session.exit).await.expect("an exit").expect("a code")
}

/// The processes that live in a control group of the v2 hierarchy; a zombie has ended and only waits to be collected.
pub fn processes_in(cgroup: &str) -> Vec<i32> {
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let reads = |pid: i32, file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    pids.filter(|pid| {
        let member = reads(*pid, "cgroup").lines().any(|line| line.starts_with("0::") && line.contains(cgroup));
        // Nothing is told of one that was collected between the two looks.
        let status = reads(*pid, "status");
        member && !status.is_empty() && !["State:\tZ", "State:\tX"].iter().any(|ended| status.contains(ended))
    })
    .collect()
}

/// A docker archive of one layer: busybox and its links.
fn busybox_archive(name: &str, config: &serde_json::Value) -> Vec<u8> {
    let layer = busybox_layer();
    let diff_id = format!("sha256:{}", hex(&Sha256::digest(&layer)));
    let mut process = json!({ "Env": ["FROM_IMAGE=yes"], "Cmd": ["sh"], "WorkingDir": "/work" });
    process.as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
    let config = json!({
        "architecture": if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" },
        "os": "linux", "config": process, "rootfs": { "type": "layers", "diff_ids": [diff_id] },
    });
    let config = serde_json::to_vec(&config).unwrap();
    let config_name = format!("{}.json", hex(&Sha256::digest(&config)));
    let manifest = json!([{ "Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"] }]);
    let mut archive = tar::Builder::new(Vec::new());
    for (path, bytes) in
        [("layer.tar", &layer), (&config_name, &config), ("manifest.json", &serde_json::to_vec(&manifest).unwrap())]
    {
        file(&mut archive, path, bytes, 0o644);
    }
    archive.into_inner().unwrap()
}

pub fn busybox_layer() -> Vec<u8> {
    let busybox = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).exists());
    let busybox = std::fs::read(busybox.expect("busybox-static is installed")).unwrap();
    let mut layer = tar::Builder::new(Vec::new());
    for directory in ["bin", "etc", "tmp", "work"] {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Directory);
        header.set_mode(if directory == "tmp" { 0o1777 } else { 0o755 });
        header.set_size(0);
        layer.append_data(&mut header, directory, std::io::empty()).unwrap();
    }
    file(&mut layer, "bin/busybox", &busybox, 0o755);
    for applet in [
        "cat", "chmod", "dd", "echo", "env", "false", "grep", "head", "hostname", "id", "kill", "ln", "ls", "mkdir",
        "mknod", "mount", "nc", "ps", "pwd", "readlink", "rm", "seq", "setsid", "sh", "sleep", "sort", "stty", "touch",
        "true", "tty", "unshare", "wc",
    ] {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        layer.append_link(&mut header, format!("bin/{applet}"), "busybox").unwrap();
    }
    let mut dangling = tar::Header::new_gnu();
    dangling.set_entry_type(tar::EntryType::Symlink);
    dangling.set_size(0);
    layer.append_link(&mut dangling, "etc/resolv.conf", "../run/stub/resolv.conf").unwrap();
    file(&mut layer, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n", 0o644);
    file(&mut layer, "etc/group", b"root:x:0:\nuser:x:1000:\nextra:x:2000:user\n", 0o644);
    file(&mut layer, "bin/no-interpreter", b"#!/nowhere\n", 0o755);
    file(&mut layer, "bin/not-executable", b"#!/bin/sh\n", 0o644);
    layer.into_inner().unwrap()
}

fn file(archive: &mut tar::Builder<Vec<u8>>, path: &str, bytes: &[u8], mode: u32) {
    let mut header = tar::Header::new_gnu();
    header.set_mode(mode);
    header.set_size(bytes.len() as u64);
    archive.append_data(&mut header, path, bytes).unwrap();
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
