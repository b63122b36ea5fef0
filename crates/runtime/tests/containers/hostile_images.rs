//! Images and volumes made to lead the runtime astray while it sets up a container, each looked at from both sides: nothing
//! of it starts, or nothing is gained, and the machine is as it was.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Machine, mount, on_a_machine, processes_in, sandbox_spec};
use crate::image_support::{Layer, docker};
use runtime::image::ImageStore;
use runtime::verbs::*;
use runtime::{ContainerId, ContainerSpec, Mount, MountSource, PodUid, Propagation, Seccomp};
use serde_json::json;
use tar::EntryType;

/// Loads busybox with a layer on top; returns the id.
async fn load(machine: &Machine, name: &str, top: Layer) -> String {
    let archive = docker(&[name], &[common::busybox_layer(), top.tar()], json!({ "Cmd": ["sh"] }));
    machine.runtime().image_store().load(archive.as_slice()).unwrap();
    machine.runtime().ensure_image(name).await.unwrap().id
}

fn link(path: &str, target: &str) -> Layer {
    Layer::new().link(EntryType::Symlink, path, target)
}

async fn start(machine: &Machine, pod: &PodUid, name: &str, change: impl FnOnce(&mut ContainerSpec)) -> ContainerId {
    let mut spec = machine.spec(name, "sleep 1000").await;
    change(&mut spec);
    machine.runtime().start_container(pod, &spec).await.unwrap();
    spec.id
}

/// Why a container does not start, and that nothing of it is left.
async fn refusal(machine: &Machine, pod: &PodUid, change: impl FnOnce(&mut ContainerSpec)) -> String {
    let mut spec = machine.spec("refused", "sleep 1000").await;
    change(&mut spec);
    let error = machine.runtime().start_container(pod, &spec).await.expect_err("it must not start").to_string();
    let report = machine.report(pod).await.unwrap();
    assert!(report.containers.iter().all(|container| container.id != spec.id), "{error}: it is there all the same");
    let group = format!("/adieu-{}/{}/refused", machine.instance, pod.0);
    assert_eq!(processes_in(&group), Vec::<i32>::new(), "{error}: it runs all the same");
    error
}

/// What an image may want to change of its machine.
#[derive(PartialEq, Debug)]
struct Host {
    core_pattern: String,
    mounts: Vec<String>,
    names: Vec<String>,
}

impl Host {
    fn look(machine: &Machine) -> Self {
        // The number of a mount and its parent's are new every time, the rest is not. What other tests mount in their own folders
        // is no concern of this one.
        let (folders, own) = (std::env::temp_dir(), machine.dir.path());
        let mounts = std::fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
        let is_foreign = |line: &str| {
            let at = std::path::Path::new(line.split(' ').nth(4).unwrap());
            at.starts_with(&folders) && !at.starts_with(own)
        };
        let mut names = Vec::new();
        for directory in ["/", "/etc", "/dev"] {
            for entry in std::fs::read_dir(directory).unwrap().flatten() {
                names.push(entry.path().display().to_string());
            }
        }
        names.sort();
        Self {
            core_pattern: std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap(),
            mounts: mounts
                .lines()
                .filter(|line| !is_foreign(line))
                .map(|line| line.splitn(3, ' ').nth(2).unwrap().to_owned())
                .collect(),
            names,
        }
    }
}

/// [SE-12] With procfs over its root, a container would see all of it unmasked and writable by going up from there.
#[test]
fn image_whose_proc_sys_or_dev_is_no_directory_does_not_start() {
    on_a_machine(|machine| async {
        let pod = machine.sandbox("pod-1").await;
        let before = Host::look(&machine);
        let cases = [
            ("proc", "/"),
            ("proc", "."),
            ("proc", ".."),
            ("proc", "/x"),
            ("proc", "../../../.."),
            ("proc", "nowhere"),
            ("sys", "/"),
            ("sys", "/etc"),
            ("dev", "/"),
            ("dev", "/etc"),
            ("dev", "../../../x"),
            ("dev", "/proc"),
        ];
        for (number, (name, target)) in cases.into_iter().enumerate() {
            let image = load(&machine, &format!("test/link:{number}"), link(name, target)).await;
            for privileged in [false, true] {
                let why = refusal(&machine, &pod, |spec| {
                    spec.image_id.clone_from(&image);
                    spec.privileged = privileged;
                    spec.command[2] = "(: >>/../sys/kernel/core_pattern) && echo escaped; sleep 1000".to_owned();
                })
                .await;
                assert!(why.contains(&format!("/{name} of the image is a symbolic link")), "{target}: {why}");
            }
        }
        for name in ["proc", "sys", "dev"] {
            let image = load(&machine, &format!("test/file-{name}:1"), Layer::new().file(name, "")).await;
            let why = refusal(&machine, &pod, |spec| spec.image_id = image).await;
            assert!(why.contains(&format!("/{name} of the image is not a directory")), "{why}");
        }
        assert_eq!(Host::look(&machine), before);
        machine
    });
}

/// A directory of its own in the machine's folder, to be mounted as a volume.
fn volume(machine: &Machine, name: &str) -> std::path::PathBuf {
    let path = machine.dir.path().join(name);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// Whoever shares mounts with the node changes the node's own.
#[test]
fn volume_shares_its_mounts_with_the_node_for_privileged_containers_alone() {
    on_a_machine(|machine| async {
        let pod = machine.sandbox("pod-1").await;
        let before = Host::look(&machine);
        let shared = volume(&machine, "shared");
        let why = refusal(&machine, &pod, |spec| {
            spec.mounts = vec![Mount { propagation: Propagation::Bidirectional, ..mount(&shared, "/v") }];
        })
        .await;
        assert!(why.contains("Bidirectional mount propagation is available only to privileged containers"), "{why}");
        assert_eq!(Host::look(&machine), before);
        machine
    });
}

/// [SE-13] [SE-14] [SE-16] What counts is where a target leads, not how it is written.
#[test]
fn volume_whose_target_leads_into_proc_is_refused() {
    on_a_machine(|machine| async {
        let layer = link("foo", "/proc")
            .link(EntryType::Symlink, "bar", "proc/sys")
            .link(EntryType::Symlink, "loop", "loop")
            .file("file", "");
        let image = load(&machine, "test/into-proc:1", layer).await;
        let pod = machine.sandbox("pod-1").await;
        let before = Host::look(&machine);
        let data = volume(&machine, "data");
        std::fs::write(data.join("told"), "of the volume\n").unwrap();
        let targets =
            ["/foo", "/foo/sys", "/bar", "/bar/kernel", "/proc", "/proc/sys", "/proc/../proc/sys", "//proc//sys/"];
        for target in targets {
            for privileged in [false, true] {
                let why = refusal(&machine, &pod, |spec| {
                    spec.image_id.clone_from(&image);
                    spec.privileged = privileged;
                    spec.mounts = vec![mount(&data, target)];
                })
                .await;
                assert!(why.contains(&format!("{target:?}: it is inside /proc")), "{why}");
            }
        }
        let file = |target: &str| Mount { sub_path: Some("told".into()), ..mount(&data, target) };
        for target in ["/foo/version", "/proc/sys/kernel/core_pattern", "/proc/self/oom_score_adj", "/proc/version"] {
            let why = refusal(&machine, &pod, |spec| {
                spec.image_id.clone_from(&image);
                spec.mounts = vec![file(target)];
            })
            .await;
            assert!(why.contains(&format!("{target:?}: it is inside /proc")), "{why}");
        }
        let why = refusal(&machine, &pod, |spec| {
            spec.image_id.clone_from(&image);
            spec.mounts = vec![mount(&data, "/loop")];
        })
        .await;
        assert!(why.contains("make mount point /loop"), "{why}");
        // What upstream lets a volume tell in the kernel's place, by whatever name.
        let allowed = start(&machine, &pod, "told", |spec| {
            spec.image_id.clone_from(&image);
            spec.mounts = vec![file("/proc/meminfo"), file("/foo/uptime")];
        })
        .await;
        let (said, _) = machine.exec(&pod, &allowed, "cat /proc/meminfo /proc/uptime").await;
        assert_eq!(said, "of the volume\n".repeat(2));
        assert_eq!(Host::look(&machine), before);
        machine
    });
}

/// [SE-15] Over `/sys` only the kernel's own file systems are shown, and the masks hold for those too.
#[test]
fn volume_whose_target_leads_into_sys_is_refused_unless_it_is_a_view_of_the_kernel() {
    on_a_machine(|machine| async {
        let image = load(&machine, "test/into-sys:1", link("foo", "/sys/kernel")).await;
        let pod = machine.sandbox("pod-1").await;
        let data = volume(&machine, "data");
        for target in ["/sys", "/sys/firmware", "/sys/kernel", "/foo", "/foo/../devices/virtual"] {
            let why = refusal(&machine, &pod, |spec| {
                spec.image_id.clone_from(&image);
                spec.mounts = vec![mount(&data, target)];
            })
            .await;
            assert!(why.contains(&format!("{target:?}: it is inside /sys")), "{why}");
        }
        let inside = start(&machine, &pod, "inside", |spec| spec.mounts = vec![mount(&data, "/sys/fs/cgroup")]).await;
        let written =
            machine.exec(&pod, &inside, "touch /sys/fs/cgroup/x; mkdir /sys/kernel/x 2>&-; ls /sys/firmware").await;
        assert_eq!(written, (String::new(), 0));
        assert_eq!(std::fs::read_dir(&data).unwrap().count(), 1, "what was written is in the volume");
        let of_host = start(&machine, &pod, "of-host", |spec| {
            spec.mounts = vec![Mount { read_only: true, ..mount("/sys".as_ref(), "/sys") }];
        })
        .await;
        let masked = machine.exec(&pod, &of_host, "ls /sys/class >/dev/null && ls /sys/firmware").await;
        assert_eq!(masked, (String::new(), 0));
        machine
    });
}

/// A volume over the root would cover everything that was mounted, and be above it.
#[test]
fn volume_whose_target_leads_to_the_root_is_refused() {
    on_a_machine(|machine| async {
        let image = load(&machine, "test/up:1", link("up", "/")).await;
        let pod = machine.sandbox("pod-1").await;
        let data = volume(&machine, "data");
        symlink("/", data.join("root")).unwrap();
        symlink("../../..", data.join("above")).unwrap();
        for targets in [&["/up"][..], &["/"], &["/tmp/.."], &["/data", "/data/root"], &["/data", "/data/above"]] {
            let why = refusal(&machine, &pod, |spec| {
                spec.image_id.clone_from(&image);
                spec.mounts = targets.iter().map(|target| mount(&data, target)).collect();
            })
            .await;
            assert!(why.contains("it is the container's root"), "{targets:?}: {why}");
        }
        machine
    });
}

/// [SE-6] [SE-7] [SE-8] What is masked is masked by a `/dev/null` that no volume has a say in.
#[test]
fn masks_hold_whatever_a_volume_has_for_dev_null() {
    on_a_machine(|machine| async {
        let pod = machine.sandbox("pod-1").await;
        let beside = start(&machine, &pod, "beside", |_| {}).await;
        let looks = "busybox stat -c %t:%T /proc/keys /proc/timer_list /proc/interrupts; cat /proc/keys";
        let masked = ("1:3\n".repeat(3), 0);
        assert_eq!(machine.exec(&pod, &beside, looks).await, masked);
        for (number, null) in
            [Some("/proc/keys"), Some("/etc/passwd"), Some("/proc/kcore"), None].into_iter().enumerate()
        {
            let dev = volume(&machine, &format!("dev-{number}"));
            if let Some(target) = null {
                symlink(target, dev.join("null")).unwrap();
            }
            let id = start(&machine, &pod, &format!("app-{number}"), |spec| {
                spec.termination_message_path = None;
                spec.mounts = vec![mount(&dev, "/dev")];
            })
            .await;
            assert_eq!(machine.exec(&pod, &id, looks).await, masked, "{null:?}");
        }
        machine
    });
}

/// [SE-31] Upstream's lists, tried one by one.
#[test]
fn masked_path_shows_nothing_and_read_only_path_takes_nothing() {
    on_a_machine(|machine| async {
        let pod = machine.sandbox("pod-1").await;
        let id = start(&machine, &pod, "app", |spec| spec.seccomp = Seccomp::Unconfined).await;
        let masked = "acpi asound interrupts kcore keys latency_stats sched_debug scsi timer_list timer_stats";
        let masked = format!(
            "for at in $(for name in {masked}; do echo /proc/$name; done) /sys/firmware /sys/devices/virtual/powercap \
             /sys/devices/system/cpu/cpu*/thermal_throttle; do \
             if [ -d $at ]; then ls -A $at; touch $at/x 2>&- && echo wrote; \
             elif [ -e $at ]; then [ $(busybox stat -c %t:%T $at) = 1:3 ] || echo $at; fi; done; echo end"
        );
        assert_eq!(machine.exec(&pod, &id, &masked).await.0, "end\n");
        // Opened to be written, and left as it is.
        let read_only = "for at in /proc/sysrq-trigger /proc/sys/kernel/core_pattern /proc/sys/vm/swappiness; do \
                         [ ! -e $at ] || (: >>$at) 2>&1 | grep -qi 'read-only' || echo $at; done; echo end";
        assert_eq!(machine.exec(&pod, &id, read_only).await.0, "end\n");
        let mounts = machine.exec(&pod, &id, "cat /proc/self/mountinfo").await.0;
        for path in ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"] {
            let line = mounts.lines().find(|line| line.split(' ').nth(4) == Some(path));
            assert!(!Path::new(path).exists() || line.is_some_and(|line| line.contains(" ro,")), "{path}: {mounts}");
        }
        machine
    });
}

/// [SE-32] Files of the pod are as read-only as the root that they are in.
#[test]
fn files_of_the_pod_are_read_only_where_the_root_is() {
    on_a_machine(|machine| async {
        let pod = machine.sandbox("pod-1").await;
        let tries = "for at in /etc/hosts /etc/hostname /etc/resolv.conf; do (: >>$at) 2>&1 && echo wrote; done";
        let open = start(&machine, &pod, "open", |_| {}).await;
        assert_eq!(machine.exec(&pod, &open, tries).await.0, "wrote\n".repeat(3));
        let closed = start(&machine, &pod, "closed", |spec| spec.read_only_root = true).await;
        let (said, _) = machine.exec(&pod, &closed, tries).await;
        assert_eq!(said.matches("Read-only file system").count(), 3, "{said}");
        assert!(!said.contains("wrote"), "{said}");
        let (said, _) =
            machine.exec(&pod, &closed, "echo last > /dev/termination-log && cat /dev/termination-log").await;
        assert_eq!(said, "last\n", "its last words are still its own");
        machine
    });
}

/// [SE-24] A terminal is made by the file system of terminals, whatever is at `/dev/ptmx`.
#[test]
fn terminal_of_an_exec_does_not_depend_on_what_the_container_made_of_ptmx() {
    on_a_machine(|machine| async {
        let pod = machine.sandbox("pod-1").await;
        let id = start(&machine, &pod, "app", |spec| spec.cap_add = vec!["SYS_ADMIN".to_owned()]).await;
        let mut tty = common::exec_spec(&["tty"]);
        (tty.tty, tty.stdin, tty.stderr) = (true, true, false);
        for replaced in ["ln -s full /dev/ptmx", "busybox mkfifo /dev/ptmx", "touch /dev/ptmx", "true"] {
            assert_eq!(machine.exec(&pod, &id, &format!("rm -f /dev/ptmx; {replaced}")).await, (String::new(), 0));
            let session = machine.runtime().exec(&pod, &id, &tty).await.unwrap();
            assert_eq!(common::code_of(session).await, 0, "{replaced}");
        }
        // Whoever may mount can cover the file, or all of it.
        for (covered, why) in [
            ("busybox mkfifo /tmp/fifo && mount -o bind /tmp/fifo /dev/pts/ptmx", "open /dev/pts/ptmx"),
            ("mount -t tmpfs none /dev/pts && busybox mkfifo /dev/pts/ptmx", "no file system of terminals"),
        ] {
            assert_eq!(machine.exec(&pod, &id, covered).await, (String::new(), 0), "{covered}");
            let refused = machine.runtime().exec(&pod, &id, &tty).await.unwrap_err().to_string();
            assert!(refused.contains(why), "{covered}: {refused}");
        }
        machine
    });
}

/// The host's programs, lent to a container: Debian's perl can call the kernel by number.
fn lent() -> Mount {
    Mount {
        source: MountSource::Host("/".into()),
        sub_path: None,
        target: "/host".to_owned(),
        read_only: true,
        propagation: Propagation::default(),
    }
}

fn perl(program: &str) -> String {
    format!("echo '{program}' | chroot /host /usr/bin/perl")
}

/// [SE-26] The numbers are those of this architecture.
#[cfg(target_arch = "x86_64")]
#[test]
fn sockets_of_the_kernels_ciphers_and_of_the_hypervisor_are_refused() {
    on_a_machine(|machine| async {
        let pod = machine.sandbox("pod-1").await;
        let id = start(&machine, &pod, "app", |spec| spec.mounts = vec![lent()]).await;
        let socket =
            |family: i32, kind: i32| perl(&format!("print syscall(41, {family}, {kind}, 0) < 0 ? $! + 0 : \"made\""));
        let not_permitted = libc::EPERM.to_string();
        for (family, kind) in [(libc::AF_ALG, libc::SOCK_SEQPACKET), (libc::AF_VSOCK, libc::SOCK_STREAM)] {
            assert_eq!(machine.exec(&pod, &id, &socket(family, kind)).await.0, not_permitted, "{family}");
        }
        assert_eq!(machine.exec(&pod, &id, &socket(libc::AF_UNIX, libc::SOCK_STREAM)).await.0, "made");
        machine
    });
}

/// [SE-119] The number of a session keyring is the machine's; without a filter it can be asked for.
#[cfg(target_arch = "x86_64")]
#[test]
fn every_container_has_a_session_keyring_of_its_own() {
    on_a_machine(|machine| async {
        let pod = machine.sandbox("pod-1").await;
        let own = perl("print syscall(250, 0, -3, 0), \"\\n\"");
        let mut seen = Vec::new();
        for name in ["one", "two"] {
            let id = start(&machine, &pod, name, |spec| {
                (spec.seccomp, spec.mounts) = (Seccomp::Unconfined, vec![lent()]);
                spec.command[2] = format!("{own}; sleep 1000");
            })
            .await;
            machine.logged(&pod, &id, "stdout F ").await;
            seen.push(machine.log(&pod, &id).lines().next().unwrap().replace("stdout F ", ""));
            seen.push(machine.exec(&pod, &id, &own).await.0.trim().to_owned());
        }
        assert!(seen.iter().all(|keyring| keyring.parse::<i32>().is_ok_and(|number| number > 0)), "{seen:?}");
        let mut different = seen.clone();
        different.sort();
        different.dedup();
        assert_eq!(different.len(), seen.len(), "{seen:?}");
        machine
    });
}

/// [SE-23] Whoever can look into a process that is being set up finds no way to the machine in its descriptors.
#[test]
fn process_on_its_way_into_a_container_holds_no_mount_namespace_of_the_host() {
    on_a_machine(|machine| async {
        let pod = machine.sandbox("pod-1").await;
        let group = format!("/adieu-{}/{}/app-", machine.instance, pod.0);
        let (done, group_seen) = (Arc::new(AtomicBool::new(false)), group.clone());
        let stop = done.clone();
        let files = |pid: i32| -> Vec<_> {
            let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
            fds.filter_map(|fd| Some(std::fs::read_link(fd.path()).ok()?.display().to_string())).collect()
        };
        let watcher = std::thread::spawn(move || {
            let mut held = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                for pid in processes_in(&group_seen) {
                    // A copy of its shim has what that has until it closes it, signals among them: then look again.
                    let is_shims = files(pid).iter().any(|file| file == "anon_inode:[signalfd]");
                    held.extend(if is_shims { Vec::new() } else { files(pid) });
                }
            }
            held
        });
        for number in 0..40 {
            start(&machine, &pod, &format!("app-{number}"), |_| {}).await;
        }
        done.store(true, Ordering::Relaxed);
        let held = watcher.join().unwrap();
        assert!(!held.is_empty(), "the watcher saw processes of {group}");
        let of_host: Vec<_> = held.iter().filter(|file| file.starts_with("mnt:[")).collect();
        assert_eq!(of_host, Vec::<&String>::new());
        machine
    });
}

/// [SE-40] [SE-41] What only the owner of a machine may say about a file is not an image's to say.
#[test]
fn layer_with_marks_of_the_machine_loses_them_and_one_with_a_disguised_whiteout_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = ImageStore::open(dir.path(), crate::image_support::program()).unwrap();
    let dropped = [
        "trusted.overlay.redirect",
        "trusted.overlay.metacopy",
        "trusted.mine",
        "user.overlay.whiteout",
        "security.selinux",
        "security.ima",
        "security.evm",
    ];
    let names: Vec<String> = dropped.iter().chain(&["user.kept"]).map(|name| format!("SCHILY.xattr.{name}")).collect();
    let records: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &b"value"[..])).collect();
    let layer = Layer::new().pax(&records).file("file", "content").tar();
    store.load(docker(&["test/marks:1"], &[layer], json!({})).as_slice()).unwrap();
    let file = store.find("test/marks:1").unwrap().layers[0].join("file");
    let value = |name: &str| rustix::fs::lgetxattr(&file, name, &mut [0u8; 64][..]).is_ok();
    assert!(value("user.kept"));
    for name in dropped {
        assert!(!value(name), "{name}");
    }
    let device = |minor: u32| {
        Layer::new().entry(EntryType::Char, "bin", "", b"", |header| {
            header.set_device_major(0).unwrap();
            header.set_device_minor(minor).unwrap();
        })
    };
    let refused = store.load(docker(&["test/disguised:1"], &[device(0).tar()], json!({})).as_slice()).unwrap_err();
    assert!(refused.to_string().contains("entry \"bin\" is a whiteout in disguise"), "{refused}");
    store.load(docker(&["test/device:1"], &[device(7).tar()], json!({})).as_slice()).unwrap();
}

/// A root without any of the directories that are mounted upon: they are made, and are the container's own.
#[test]
fn image_without_proc_sys_and_dev_gets_them() {
    on_a_machine(|machine| async {
        let whiteouts = ["proc", "sys", "dev"].map(|name| format!(".wh.{name}"));
        let layer = whiteouts.iter().fold(Layer::new(), |layer, name| layer.file(name, ""));
        let image = load(&machine, "test/bare:1", layer).await;
        let pod = machine.sandbox("pod-1").await;
        let id = start(&machine, &pod, "app", |spec| spec.image_id = image).await;
        let looks = "busybox stat -f -c %t / /.. /proc /sys; busybox stat -c %t:%T /dev/null; (: >>/../sys/kernel/core_pattern)";
        let (said, code) = machine.exec(&pod, &id, looks).await;
        assert!(code != 0 && said.starts_with("794c7630\n794c7630\n9fa0\n62656572\n1:3\n"), "{said}");
        // The same container, and nothing shared by two: its mounts are its own.
        let mut sandbox = sandbox_spec("pod-2");
        sandbox.host_pid = true;
        machine.runtime().create_sandbox(&sandbox).await.unwrap();
        let shared = start(&machine, &sandbox.uid, "app", |_| {}).await;
        let (said, _) = machine.exec(&sandbox.uid, &shared, "busybox stat -f -c %t /.. /proc /sys").await;
        assert_eq!(said, "794c7630\n9fa0\n62656572\n");
        machine
    });
}

/// [SE-9] [SE-13] Whoever shares a volume can make a link in it, where another container has something mounted.
#[test]
fn volume_whose_target_a_neighbour_has_linked_to_dev_or_sys_is_refused() {
    on_a_machine(|machine| async {
        let pod = machine.sandbox("pod-1").await;
        let (shared, other) = (machine.dir.path().join("shared"), machine.dir.path().join("other"));
        std::fs::create_dir_all(&shared).unwrap();
        std::fs::create_dir_all(&other).unwrap();
        std::fs::write(machine.dir.path().join("file"), "covers").unwrap();
        let file = machine.dir.path().join("file");
        for (number, (leads_to, source, told)) in [
            ("/dev", other.as_path(), "a link leads from there into /dev"),
            ("../../dev", &other, "a link leads from there into /dev"),
            ("/dev/null", &file, "a link leads from there into /dev"),
            ("/sys", Path::new("/sys"), "a link leads from there to /sys"),
        ]
        .into_iter()
        .enumerate()
        {
            let name = format!("x{number}");
            std::os::unix::fs::symlink(leads_to, shared.join(&name)).unwrap();
            let target = format!("/data/{name}");
            let refused = refusal(&machine, &pod, |spec| {
                spec.mounts = vec![common::mount(&shared, "/data"), common::mount(source, &target)];
            })
            .await;
            assert!(refused.contains(&target) && refused.contains(told), "{leads_to}: {refused}");
        }
        // As it is written, it may.
        let id = start(&machine, &pod, "app", |spec| spec.mounts = vec![common::mount(&other, "/dev//./mine")]).await;
        assert_eq!(
            machine.exec(&pod, &id, "busybox stat -c %t:%T /dev/null; ls -d /dev/mine").await.0,
            "1:3\n/dev/mine\n"
        );
        machine
    });
}

/// [SE-27] [SE-28] A container that is shown the host's devices may use those that every container has.
#[test]
fn volume_of_the_hosts_dev_has_the_usual_devices_and_no_others() {
    on_a_machine(|machine| async {
        let pod = machine.sandbox("pod-1").await;
        let id =
            start(&machine, &pod, "app", |spec| spec.mounts = vec![common::mount(Path::new("/dev"), "/host")]).await;
        let (said, code) = machine.exec(&pod, &id, "echo x > /host/null && head -c 3 /host/zero | wc -c").await;
        assert_eq!((said.as_str(), code), ("3\n", 0));
        let others = ["kmsg", "mem", "fuse", "loop-control", "vda", "sda", "net/tun"];
        let others: Vec<_> = others.iter().filter(|name| Path::new("/dev").join(name).exists()).collect();
        assert!(!others.is_empty(), "this machine has a device to try");
        for name in others {
            let (said, code) = machine.exec(&pod, &id, &format!(": < /host/{name}")).await;
            assert!(code != 0 && said.contains("Operation not permitted"), "{name}: {said}");
        }
        machine
    });
}

/// What a child tells on its way may be larger than a socket holds by default.
#[test]
fn container_in_sixty_thousand_groups_starts_and_one_with_a_huge_name_is_refused_in_words() {
    on_a_machine(|machine| async {
        let pod = machine.sandbox("pod-1").await;
        let id = start(&machine, &pod, "app", |spec| spec.groups = (1_000_000..1_060_000).collect()).await;
        let (groups, _) = machine.exec(&pod, &id, "grep ^Groups /proc/self/status | wc -w").await;
        assert_eq!(groups, "60002\n", "with its own, and the word before them");
        let refused = refusal(&machine, &pod, |spec| spec.command = vec!["x".repeat(300 << 10)]).await;
        assert!(
            refused.contains("executable file not found in $PATH") && refused.len() < 20_000,
            "{} bytes",
            refused.len()
        );
        machine
    });
}

#[test]
fn mount_that_fails_is_told_with_its_path() {
    on_a_machine(|machine| async {
        let pod = machine.sandbox("pod-1").await;
        let directory = machine.dir.path().join("directory");
        std::fs::create_dir(&directory).unwrap();
        let mounts = vec![common::mount(&directory, "/etc/passwd")];
        let refused = refusal(&machine, &pod, |spec| spec.mounts = mounts).await;
        assert!(refused.contains("\"/etc/passwd\": a directory is not mounted onto a file"), "{refused}");
        machine
    });
}

#[test]
fn working_directory_is_made_under_a_read_only_root() {
    on_a_machine(|machine| async {
        let pod = machine.sandbox("pod-1").await;
        let id = start(&machine, &pod, "app", |spec| {
            spec.read_only_root = true;
            spec.working_dir = Some("/made/for/it".into());
        })
        .await;
        let (said, code) = machine.exec(&pod, &id, "pwd; touch here").await;
        assert!(code != 0 && said.starts_with("/made/for/it\n") && said.contains("Read-only file system"), "{said}");
        machine
    });
}
