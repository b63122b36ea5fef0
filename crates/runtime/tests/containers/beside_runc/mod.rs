//! The same containers under this runtime and under runc, seen from inside, field by field. Every difference stands in
//! the table of `docs/runtime.md` with its reason, and nothing stands there that does not differ.
#![allow(clippy::unwrap_used, unreachable_pub, missing_docs, reason = "tests")]

mod oci;
mod seen;
mod table;

use crate::common;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Machine, mount, on_a_machine, processes_in};
use oci::{ContainerSettings, Runc};
use runtime::verbs::*;
use runtime::{ContainerSpec, Mount};
use seen::Seen;
use table::Differences;

const OBSERVE: &str = include_str!("observe.sh");

/// Every capability the kernel has a name for, in its order.
const ALL_CAPABILITIES: &str = "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP \
    LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT \
    SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE \
    AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE";

fn usual() -> ContainerSettings {
    ContainerSettings {
        uid: 0,
        gid: 0,
        groups: vec![0],
        capabilities: oci::DEFAULT_CAPABILITIES.map(String::from).to_vec(),
        no_new_privileges: false,
        read_only_root: false,
        tty: false,
        privileged: false,
        seccomp: true,
    }
}

fn confined() -> ContainerSettings {
    ContainerSettings {
        uid: 1000,
        gid: 1000,
        groups: vec![1000, 2000],
        capabilities: vec!["CAP_NET_BIND_SERVICE".to_owned()],
        no_new_privileges: true,
        read_only_root: true,
        ..usual()
    }
}

fn privileged() -> ContainerSettings {
    // runc refuses to promise what it does not hold itself.
    let held = rustix::thread::capabilities(None).unwrap().permitted.bits();
    let capabilities = ALL_CAPABILITIES.split_whitespace().enumerate();
    let capabilities =
        capabilities.filter(|(number, _)| held & 1 << number != 0).map(|(_, name)| format!("CAP_{name}")).collect();
    ContainerSettings { privileged: true, seccomp: false, capabilities, ..usual() }
}

#[test]
fn the_same_container_sees_what_it_sees_under_runc() {
    ignore_a_signal();
    on_a_machine(|machine| async {
        let place = TestPaths::new(&machine);
        let mut differences = Differences::new();
        let containers = [
            ("usual", usual()),
            ("confined", confined()),
            ("terminal", ContainerSettings { tty: true, ..usual() }),
            ("privileged", privileged()),
        ];
        for (name, asked) in containers {
            let ours = here(&machine, &place, name, &asked).await;
            let theirs = under_runc(&machine, &place, name, &asked);
            for (ours, theirs) in ours.iter().zip(&theirs) {
                table::compare(ours, theirs, &mut differences);
            }
        }
        let complaints = table::complaints(&differences);
        assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
        machine
    });
}

/// Whoever starts an agent may have signals ignored that its C library hides; a container must not notice.
#[allow(unsafe_code, reason = "the C library does not let this signal be set")]
fn ignore_a_signal() {
    const HIDDEN: i64 = 32;
    // Handler, flags, restorer, mask.
    let ignored = [libc::SIG_IGN, 0, 0, 0];
    // SAFETY: ignoring a signal runs no code; the kernel reads as much as is given.
    let done = unsafe { libc::syscall(libc::SYS_rt_sigaction, HIDDEN, ignored.as_ptr(), 0usize, 8usize) };
    assert_eq!(done, 0);
}

/// What both kinds of container are given.
struct TestPaths {
    volume: PathBuf,
    observe: PathBuf,
    layer: PathBuf,
}

impl TestPaths {
    fn new(machine: &Machine) -> Self {
        let at = |name: &str| machine.dir.path().join(name);
        let place = Self { volume: at("volume"), observe: at("observe"), layer: at("layer") };
        for directory in [&place.volume, &place.observe, &place.layer] {
            std::fs::create_dir(directory).unwrap();
        }
        std::os::unix::fs::chown(&place.volume, Some(1000), Some(1000)).unwrap();
        let compiled = Command::new("cc")
            .args(["-static", "-O1", "-o"])
            .arg(place.observe.join("calls"))
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/containers/beside_runc/calls.c"))
            .status();
        assert!(compiled.unwrap().success(), "a C compiler is there, Rust links with it");
        let mut layer = tar::Archive::new(std::io::Cursor::new(common::busybox_layer()));
        layer.set_preserve_permissions(true);
        layer.unpack(&place.layer).unwrap();
        place
    }

    fn mounts(&self) -> Vec<Mount> {
        vec![
            Mount { read_only: true, ..mount(&self.observe, "/observe") },
            mount(&self.volume, "/volume"),
            Mount { read_only: true, ..mount(&self.volume, "/volume-ro") },
        ]
    }
}

/// Calls are tried in containers that have a filter, as those of a privileged one could harm the machine; and once per
/// filter, as there are many.
fn script(asked: &ContainerSettings) -> String {
    if asked.seccomp && !asked.tty { OBSERVE.to_owned() } else { format!("SKIP_CALLS=yes\n{OBSERVE}") }
}

/// Of the first process, of an exec, and from outside.
async fn here(machine: &Machine, place: &TestPaths, name: &str, asked: &ContainerSettings) -> [Seen; 3] {
    let pod = machine.sandbox(&format!("pod-{name}")).await;
    let script = script(asked);
    let mut spec = machine.spec("app", &format!("{script}\nexec sleep 1000")).await;
    spec.mounts = place.mounts();
    spec.env = vec![("OF_POD".to_owned(), "yes".to_owned())];
    ask(&mut spec, asked);
    machine.runtime().start_container(&pod, &spec).await.unwrap();
    machine.logged(&pod, &spec.id, "== end").await;
    let log = machine.log(&pod, &spec.id);
    let said: String =
        log.lines().map(|line| line.splitn(3, ' ').nth(2).unwrap_or_default().to_owned() + "\n").collect();
    let exec = machine.exec(&pod, &spec.id, &script).await.0;
    let pid = processes_in(&format!("/adieu-{}/{}/app.0", machine.instance, pod.0))[0];
    let seen = [seen::read(&said, &of_host), seen::read(&exec, &of_host), from_outside(pid)];
    machine.runtime().remove_sandbox(&pod).await.unwrap();
    machine.runtime().forget_logs(&pod).await.unwrap();
    seen
}

fn ask(spec: &mut ContainerSpec, asked: &ContainerSettings) {
    if asked.uid != 0 {
        (spec.user, spec.group) = (Some(asked.uid), Some(asked.gid));
        spec.cap_drop = vec!["ALL".into()];
        spec.cap_add = asked.capabilities.clone();
    }
    (spec.tty, spec.privileged) = (asked.tty, asked.privileged);
    (spec.no_new_privileges, spec.read_only_root) = (asked.no_new_privileges, asked.read_only_root);
    spec.oom_score_adj = Some(321);
    spec.resources.memory_bytes = Some(64 << 20);
    spec.resources.pids = Some(100);
    (spec.resources.cpu_limit_millis, spec.resources.cpu_request_millis) = (Some(2000), Some(250));
}

fn under_runc(machine: &Machine, place: &TestPaths, name: &str, asked: &ContainerSettings) -> [Seen; 3] {
    let script = script(asked);
    let id = format!("runc-{}-{name}", machine.instance);
    let whole = format!("{script}\nexec sleep 1000");
    let (runc, said) = Runc::run(asked, &place.layer, &place.volume, &place.observe, &id, &whole);
    let exec = runc.exec(&script);
    [seen::read(&said, &of_host), seen::read(&exec, &of_host), from_outside(runc.pid())]
}

fn of_host(name: &str) -> String {
    std::fs::read_link(format!("/proc/thread-self/ns/{name}")).unwrap().display().to_string()
}

/// The limits of the control groups a process is in, whichever hierarchy keeps them.
fn from_outside(pid: i32) -> Seen {
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let mut seen = Seen::new();
    for (controllers, path) in groups.lines().filter_map(|line| line.split_once(':')?.1.split_once(':')) {
        let files: &[&str] = match controllers {
            "memory" => &["memory.limit_in_bytes", "memory.soft_limit_in_bytes", "memory.swappiness"],
            "cpu" | "cpu,cpuacct" => &["cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.shares"],
            "pids" => &["pids.max"],
            "" => &["memory.max", "cpu.max", "cpu.weight", "pids.max", "memory.oom.group"],
            _ => &[],
        };
        let roots = if controllers.is_empty() {
            vec!["unified".to_owned(), String::new()]
        } else {
            vec![controllers.to_owned()]
        };
        for root in roots {
            let directory = Path::new("/sys/fs/cgroup").join(root).join(path.trim_start_matches('/'));
            for file in files {
                if let Ok(value) = std::fs::read_to_string(directory.join(file)) {
                    seen.insert(format!("group {file}"), value.trim().to_owned());
                }
            }
        }
    }
    seen
}
