//! The same container for runc: a bundle whose `config.json` says what a [`ContainerSpec`] says, in the words and with
//! the defaults that containerd gives to a Kubernetes container, and the stock seccomp profile.

use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

/// Debian's `golang-github-containers-common`, unpacked by `scripts/setup test`.
const PROFILE: &str = "../../target/tools/containers-common/usr/share/containers/seccomp.json";

pub const DEFAULT_CAPABILITIES: [&str; 14] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FSETID",
    "CAP_FOWNER",
    "CAP_MKNOD",
    "CAP_NET_RAW",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETFCAP",
    "CAP_SETPCAP",
    "CAP_NET_BIND_SERVICE",
    "CAP_SYS_CHROOT",
    "CAP_KILL",
    "CAP_AUDIT_WRITE",
];

/// What one container is asked to be; the rest is as always.
#[derive(Clone)]
pub struct ContainerSettings {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    pub capabilities: Vec<String>,
    pub no_new_privileges: bool,
    pub read_only_root: bool,
    pub tty: bool,
    pub privileged: bool,
    pub seccomp: bool,
}

/// A container of runc's; gone when dropped.
pub struct Runc {
    dir: tempfile::TempDir,
    id: String,
    child: Option<Child>,
}

impl Runc {
    /// Makes a bundle around an unpacked image, creates the container and starts it; returns what it says up to `end`.
    pub fn run(
        asked: &ContainerSettings,
        layer: &Path,
        volume: &Path,
        observe: &Path,
        id: &str,
        script: &str,
    ) -> (Self, String) {
        let dir = tempfile::tempdir().unwrap();
        for part in ["upper", "work", "rootfs", "shm", "state"] {
            std::fs::create_dir(dir.path().join(part)).unwrap();
        }
        for (file, text) in [("hosts", "127.0.0.1 localhost\n"), ("hostname", "story-host\n"), ("resolv.conf", "")] {
            std::fs::write(dir.path().join(file), text).unwrap();
        }
        std::fs::write(dir.path().join("termination-log"), "").unwrap();
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        std::fs::set_permissions(dir.path().join("termination-log"), all).unwrap();
        let runc = Self { dir, id: id.to_owned(), child: None };
        runc.mount_root(layer, asked.privileged);
        let config = config(asked, runc.dir.path(), volume, observe, id, script);
        std::fs::write(runc.path("config.json"), serde_json::to_vec_pretty(&config).unwrap()).unwrap();
        runc.start(asked)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn mount_root(&self, layer: &Path, privileged: bool) {
        use rustix::mount::{MountFlags, mount};
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            layer.display(),
            self.path("upper").display(),
            self.path("work").display()
        );
        let options = std::ffi::CString::new(options).unwrap();
        let flags = if privileged { MountFlags::empty() } else { MountFlags::NODEV };
        mount("overlay", self.path("rootfs"), "overlay", flags, options.as_c_str()).unwrap();
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount("tmpfs", self.path("shm"), "tmpfs", flags, c"mode=1777,size=65536k").unwrap();
    }

    fn command(&self) -> Command {
        let mut command = Command::new("runc");
        command.arg("--root").arg(self.path("state"));
        command
    }

    fn start(mut self, asked: &ContainerSettings) -> (Self, String) {
        let mut create = self.command();
        create.arg("create").arg("--bundle").arg(self.dir.path()).stdin(Stdio::null());
        let errors = std::fs::File::create(self.path("runc.err")).unwrap();
        let said: Box<dyn Read> = if asked.tty {
            let socket = std::os::unix::net::UnixListener::bind(self.path("console")).unwrap();
            create.arg("--console-socket").arg(self.path("console"));
            let status = create.arg(&self.id).stdout(Stdio::null()).stderr(errors).status().unwrap();
            assert!(status.success(), "{}", std::fs::read_to_string(self.path("runc.err")).unwrap());
            Box::new(std::fs::File::from(master(&socket)))
        } else {
            let mut child = create.arg(&self.id).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let said = Box::new(child.stdout.take().unwrap());
            let status = child.wait().unwrap();
            if !status.success() {
                let mut why = String::new();
                let _ = child.stderr.take().unwrap().read_to_string(&mut why);
                panic!("runc create: {why}");
            }
            self.child = Some(child);
            said
        };
        let started = self.command().arg("start").arg(&self.id).output().unwrap();
        assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
        let said = up_to_the_end(said);
        (self, said)
    }

    /// Runs a script in the container, to its end.
    pub fn exec(&self, script: &str) -> String {
        let mut exec = self.command();
        // Detached: with the streams it is given, not with pipes of runc's.
        exec.args(["exec", "--detach"]).arg(&self.id).args(["sh", "-c", script]).stdin(Stdio::null());
        let mut child = exec.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let said = up_to_the_end(child.stdout.take().unwrap());
        assert!(child.wait().unwrap().success(), "runc exec");
        said
    }

    /// The first process, as the host numbers it.
    pub fn pid(&self) -> i32 {
        let state = self.command().arg("state").arg(&self.id).output().unwrap();
        let state: Value = serde_json::from_slice(&state.stdout).unwrap();
        i32::try_from(state["pid"].as_i64().unwrap()).unwrap()
    }
}

impl Drop for Runc {
    fn drop(&mut self) {
        let _ = self.command().args(["delete", "--force"]).arg(&self.id).output();
        for mounted in ["rootfs", "shm"] {
            let _ = rustix::mount::unmount(self.path(mounted), rustix::mount::UnmountFlags::DETACH);
        }
    }
}

/// Reads until the script says that it has nothing to add.
pub fn up_to_the_end(said: impl Read) -> String {
    let mut text = String::new();
    let mut lines = BufReader::new(said);
    while !text.contains("== end") {
        let mut line = String::new();
        if lines.read_line(&mut line).unwrap_or(0) == 0 {
            break;
        }
        text.push_str(&line);
    }
    text
}

/// The terminal that runc hands over.
fn master(socket: &std::os::unix::net::UnixListener) -> OwnedFd {
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
    let (stream, _) = socket.accept().unwrap();
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut buffer = RecvAncillaryBuffer::new(&mut space);
    let mut name = [0u8; 4096];
    recvmsg(&stream, &mut [std::io::IoSliceMut::new(&mut name)], &mut buffer, RecvFlags::CMSG_CLOEXEC).unwrap();
    let master = buffer
        .drain()
        .find_map(|message| if let RecvAncillaryMessage::ScmRights(mut fds) = message { fds.next() } else { None });
    master.expect("runc sends the terminal")
}

fn config(asked: &ContainerSettings, dir: &Path, volume: &Path, observe: &Path, id: &str, script: &str) -> Value {
    let at = |name: &str| dir.join(name).display().to_string();
    let bind = |source: String, target: &str, more: &[&str]| {
        let options: Vec<&str> = ["rbind", "rprivate"].iter().chain(more).copied().collect();
        json!({ "destination": target, "type": "bind", "source": source, "options": options })
    };
    let fresh = |kind: &str, target: &str, options: &[&str]| json!({ "destination": target, "type": kind, "source": kind, "options": options });
    let sys: &[&str] =
        if asked.privileged { &["nosuid", "noexec", "nodev", "rw"] } else { &["nosuid", "noexec", "nodev", "ro"] };
    let nodev: &[&str] = if asked.privileged { &["rw"] } else { &["rw", "nodev"] };
    let nodev_ro: &[&str] = if asked.privileged { &["ro"] } else { &["ro", "nodev"] };
    let mut env = vec![
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOSTNAME=story-host",
        "FROM_IMAGE=yes",
        "OF_POD=yes",
    ];
    if asked.tty {
        env.insert(2, "TERM=xterm");
    }
    let capabilities = json!({
        "bounding": asked.capabilities, "permitted": asked.capabilities, "effective": asked.capabilities,
    });
    let spaces = ["pid", "network", "ipc", "uts", "mount", "cgroup"].map(|kind| json!({ "type": kind }));
    let mut linux = json!({
        "namespaces": spaces,
        "cgroupsPath": format!("/{id}"),
        "resources": {
            "memory": { "limit": 64 << 20 }, "pids": { "limit": 100 },
            "cpu": { "quota": 200_000, "period": 100_000, "shares": 256 },
            "devices": [{ "allow": asked.privileged, "access": "rwm" }],
        },
        "sysctl": { "net.ipv4.ip_unprivileged_port_start": "0", "net.ipv4.ping_group_range": "0 2147483647" },
    });
    if asked.privileged {
        linux["devices"] = host_devices();
    }
    if asked.seccomp {
        linux["seccomp"] = profile(&asked.capabilities);
    }
    if !asked.privileged {
        linux["maskedPaths"] = json!([
            "/proc/acpi",
            "/proc/asound",
            "/proc/kcore",
            "/proc/keys",
            "/proc/latency_stats",
            "/proc/timer_list",
            "/proc/timer_stats",
            "/proc/sched_debug",
            "/proc/scsi",
            "/sys/firmware",
            "/sys/devices/virtual/powercap"
        ]);
        linux["readonlyPaths"] = json!(["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]);
    }
    // As containerd does: read-only with the root.
    let of_pod: &[&str] = if asked.read_only_root { &["ro", "nodev"] } else { &["rw", "nodev"] };
    json!({
        "ociVersion": "1.0.2",
        "hostname": "story-host",
        "root": { "path": at("rootfs"), "readonly": asked.read_only_root },
        "process": {
            "terminal": asked.tty,
            "user": { "uid": asked.uid, "gid": asked.gid, "additionalGids": asked.groups },
            "args": ["sh", "-c", script],
            "env": env,
            "cwd": "/work",
            "capabilities": capabilities,
            "noNewPrivileges": asked.no_new_privileges,
            "oomScoreAdj": 321,
        },
        "mounts": [
            fresh("proc", "/proc", &["nosuid", "noexec", "nodev"]),
            fresh("tmpfs", "/dev", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
            fresh("devpts", "/dev/pts", &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]),
            fresh("mqueue", "/dev/mqueue", &["nosuid", "noexec", "nodev"]),
            fresh("sysfs", "/sys", sys),
            fresh("cgroup", "/sys/fs/cgroup", &["nosuid", "noexec", "nodev", "relatime", if asked.privileged { "rw" } else { "ro" }]),
            bind(at("hosts"), "/etc/hosts", of_pod),
            bind(at("hostname"), "/etc/hostname", of_pod),
            bind(at("resolv.conf"), "/etc/resolv.conf", of_pod),
            bind(at("termination-log"), "/dev/termination-log", &["rw", "nodev"]),
            bind(at("shm"), "/dev/shm", &["rw"]),
            bind(observe.display().to_string(), "/observe", nodev_ro),
            bind(volume.display().to_string(), "/volume", nodev),
            bind(volume.display().to_string(), "/volume-ro", nodev_ro),
        ],
        "linux": linux,
    })
}

/// Everything in the host's `/dev`, which whoever writes a privileged container's configuration has to list.
fn host_devices() -> Value {
    let mut devices = Vec::new();
    devices_in(std::path::Path::new("/dev"), &mut devices);
    json!(devices)
}

fn devices_in(directory: &std::path::Path, devices: &mut Vec<Value>) {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let usual = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx"];
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        let (meta, path) = (entry.metadata().unwrap(), entry.path().to_str().unwrap().to_owned());
        let kind = meta.file_type();
        if kind.is_dir() && !["pts", "shm", "fd", "mqueue"].iter().any(|own| entry.file_name() == *own) {
            devices_in(&entry.path(), devices);
        }
        if (kind.is_char_device() || kind.is_block_device()) && !usual.contains(&path.as_str()) {
            let (major, minor) = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
            devices.push(json!({
                "path": path, "type": if kind.is_block_device() { "b" } else { "c" },
                "major": major, "minor": minor, "fileMode": meta.mode() & 0o777, "uid": 0, "gid": 0,
            }));
        }
    }
}

/// The stock profile as podman would hand it to runc: what is for other capabilities and machines is left out.
fn profile(capabilities: &[String]) -> Value {
    let text = std::fs::read_to_string(PROFILE).expect("scripts/setup test has unpacked the stock profile");
    let stock: Value = serde_json::from_str(&text).unwrap();
    let architecture = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
    let names = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().map(|name| name.as_str().unwrap().to_owned()).collect()
    };
    let held = |value: &Value| names(value).iter().all(|name| capabilities.contains(name));
    let applies = |rule: &&Value| {
        let (only, not) = (&rule["includes"], &rule["excludes"]);
        let here = names(&only["arches"]);
        (here.is_empty() || here.iter().any(|name| name == architecture))
            && held(&only["caps"])
            && (names(&not["caps"]).is_empty() || !held(&not["caps"]))
    };
    let rules = stock["syscalls"].as_array().unwrap().iter().filter(applies).map(|rule| {
        let mut kept = json!({ "names": rule["names"], "action": rule["action"] });
        for key in ["args", "errnoRet"] {
            if !rule[key].is_null() {
                kept[key] = rule[key].clone();
            }
        }
        kept
    });
    json!({
        "defaultAction": stock["defaultAction"], "defaultErrnoRet": stock["defaultErrnoRet"],
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
        "syscalls": rules.collect::<Vec<_>>(),
    })
}
