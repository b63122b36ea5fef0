//! What a pod may ask for beyond a program and an image, each seen from inside a real container.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::common::{Machine, mount, on_a_machine, sandbox_spec};
use runtime::verbs::*;
use runtime::{ContainerId, ContainerSpec, MemoryVolume, Mount, MountSource, PodUid, Propagation, SandboxSpec};

async fn sandbox(machine: &Machine, change: impl FnOnce(&mut SandboxSpec)) -> PodUid {
    let mut spec = sandbox_spec("pod-1");
    change(&mut spec);
    machine.runtime().create_sandbox(&spec).await.unwrap();
    spec.uid
}

async fn start(machine: &Machine, pod: &PodUid, name: &str, change: impl FnOnce(&mut ContainerSpec)) -> ContainerId {
    let mut spec = machine.spec(name, "echo ready; sleep 1000").await;
    change(&mut spec);
    machine.runtime().start_container(pod, &spec).await.unwrap();
    spec.id
}

#[test]
fn a_volume_in_memory_is_shared_by_containers_limited_in_size_and_outlives_a_restart() {
    on_a_machine(|machine| async {
        let volume = MemoryVolume { name: "cache".into(), size_bytes: Some(1 << 20), group: Some(2000) };
        let pod = sandbox(&machine, |spec| spec.memory_volumes = vec![volume]).await;
        let at = |target: &str, read_only| Mount {
            source: MountSource::Memory("cache".into()),
            read_only,
            ..mount("/".as_ref(), target)
        };
        let one = start(&machine, &pod, "one", |spec| spec.mounts = vec![at("/cache", false)]).await;
        let two = start(&machine, &pod, "two", |spec| spec.mounts = vec![at("/theirs", true)]).await;
        assert_eq!(machine.exec(&pod, &one, "echo kept > /cache/x; ls -ld /cache | head -c 10").await.0, "drwxrwsrwt");
        let (output, _) =
            machine.exec(&pod, &one, "dd if=/dev/zero of=/cache/big bs=1M count=2; rm -f /cache/big").await;
        assert!(output.contains("No space left on device"), "{output}");
        assert_eq!(machine.exec(&pod, &two, "cat /theirs/x").await.0, "kept\n");
        let (output, _) = machine.exec(&pod, &two, "touch /theirs/y").await;
        assert!(output.contains("Read-only file system"), "{output}");
        machine.runtime().kill(&pod, &one).await.unwrap();
        let again = start(&machine, &pod, "one", |spec| {
            spec.id.attempt = 1;
            spec.mounts = vec![at("/cache", false)];
        })
        .await;
        assert_eq!(
            machine.exec(&pod, &again, "cat /cache/x; id -g; ls -n /cache/x | grep -c 2000").await.0,
            "kept\n0\n1\n"
        );
        machine
    });
}

#[test]
fn a_sub_path_shows_only_its_part_and_no_link_leads_out_of_the_volume() {
    on_a_machine(|machine| async {
        let volume = machine.dir.path().join("volume");
        std::fs::create_dir_all(volume.join("parts/one")).unwrap();
        std::fs::write(volume.join("parts/one/file"), "one\n").unwrap();
        std::fs::write(machine.dir.path().join("secret"), "secret\n").unwrap();
        symlink("../secret", volume.join("out")).unwrap();
        symlink("/etc", volume.join("etc")).unwrap();
        let pod = machine.sandbox("pod-1").await;
        let at = |sub_path: &str, target: &str| Mount { sub_path: Some(sub_path.into()), ..mount(&volume, target) };
        let id = start(&machine, &pod, "app", |spec| {
            spec.mounts = vec![at("parts/one", "/dir"), at("parts/one/file", "/file"), at("new/deep", "/new")];
        })
        .await;
        assert_eq!(machine.exec(&pod, &id, "cat /dir/file /file; ls -A /new; touch /new/x").await.0, "one\none\n");
        assert!(volume.join("new/deep/x").exists());
        // Whoever may write to the volume may write to what was made in it.
        let open = std::fs::Permissions::from_mode(0o2777);
        std::fs::set_permissions(&volume, open).unwrap();
        std::os::unix::fs::chown(&volume, None, Some(2000)).unwrap();
        let user = start(&machine, &pod, "user", |spec| {
            spec.user = Some(1000);
            spec.mounts = vec![at("open/deep", "/open")];
        })
        .await;
        let written = machine.exec(&pod, &user, "touch /open/x && stat -c '%u %g %a' /open").await;
        assert_eq!(written, ("0 2000 2777\n".to_owned(), 0));
        for (attempt, escape) in ["out", "etc", "../secret", "etc/x"].into_iter().enumerate() {
            let mut spec = machine.spec(&format!("bad{attempt}"), "true").await;
            spec.mounts = vec![at(escape, "/x")];
            let error = machine.runtime().start_container(&pod, &spec).await.unwrap_err().to_string();
            assert!(error.contains("subPath") && error.contains("cross-device link"), "{escape}: {error}");
        }
        machine
    });
}

#[test]
fn later_mounts_pass_between_host_and_container_as_asked() {
    on_a_machine(|machine| async {
        let shared = Shared::new(&machine.dir.path().join("shared"));
        let pod = machine.sandbox("pod-1").await;
        let at = |target: &str, propagation| Mount { propagation, ..mount(&shared.0, target) };
        let id = start(&machine, &pod, "app", |spec| {
            spec.privileged = true;
            spec.mounts = vec![
                at("/none", Propagation::None),
                at("/in", Propagation::HostToContainer),
                at("/both", Propagation::Bidirectional),
            ];
        })
        .await;
        shared.mount("from-host");
        let (seen, _) = machine.exec(&pod, &id, "for d in none in both; do cat /$d/from-host/mounted; done 2>&1").await;
        assert_eq!(seen, "cat: can't open '/none/from-host/mounted': No such file or directory\nyes\nyes\n");
        let mount_inside = "mkdir /both/from-pod /in/private && mount -t tmpfs x /both/from-pod && touch /both/from-pod/here \
                            && mount -t tmpfs x /in/private && touch /in/private/here";
        assert_eq!(machine.exec(&pod, &id, mount_inside).await, (String::new(), 0));
        assert!(shared.0.join("from-pod/here").exists(), "a mount of the container is seen on the host");
        assert!(!shared.0.join("private/here").exists(), "unless it was not asked for");
        machine
    });
}

#[test]
fn host_namespaces_are_joined_only_by_pods_that_ask() {
    on_a_machine(|machine| async {
        let pod = sandbox(&machine, |spec| (spec.host_pid, spec.host_ipc) = (true, true)).await;
        let id = start(&machine, &pod, "app", |_| {}).await;
        let link = |name: &str| std::fs::read_link(format!("/proc/self/ns/{name}")).unwrap().display().to_string();
        let (spaces, _) = machine.exec(&pod, &id, "for n in pid ipc net; do readlink /proc/self/ns/$n; done").await;
        let spaces: Vec<_> = spaces.lines().map(str::to_owned).collect();
        assert_eq!(spaces[..2], [link("pid"), link("ipc")]);
        assert_ne!(spaces[2], link("net"));
        let (comm, _) = machine.exec(&pod, &id, &format!("cat /proc/{}/comm", std::process::id())).await;
        let own = std::fs::read_to_string("/proc/self/comm").unwrap();
        assert_eq!(comm.trim_end(), own.trim_end(), "this very program is seen");
        // The first process is no first process here: what it leaves behind is ended all the same.
        let left = machine.start(&pod, "leaves", "sleep 1000 & sleep 1000 & exit 3").await;
        let mut machine = machine;
        assert_eq!(machine.exit(&pod, &left).await.code, 3);
        assert_eq!(machine.processes(&pod).len(), 2, "the shim and one container");
        machine
    });
}

#[test]
fn containers_that_share_processes_see_each_other_and_end_alone() {
    on_a_machine(|mut machine| async {
        let pod = sandbox(&machine, |spec| spec.share_pids = true).await;
        let one = start(&machine, &pod, "one", |_| {}).await;
        let script = "sh -c 'sleep 0.05 & exit 0'; trap 'exit 4' TERM; echo ready; while :; do sleep 0.02; done";
        let two = machine.start(&pod, "two", script).await;
        machine.logged(&pod, &two, "ready").await;
        let (seen, _) =
            machine.exec(&pod, &one, "cat /proc/1/comm; ps | grep -c 'trap .exit 4. TERM'; ls /proc/1/root").await;
        assert!(seen.starts_with("adieu-pod\n") && seen.contains("ermission denied"), "{seen}");
        assert!(!seen.contains("etc"), "nothing of the host is behind the first process: {seen}");
        machine.runtime().signal(&pod, &two, 15).await.unwrap();
        assert_eq!(machine.exit(&pod, &two).await.code, 4);
        let orphans = "for i in $(seq 500); do cat /proc/[0-9]*/status 2>&- | grep -q 'State:.Z' || exec echo none; sleep 0.01; done";
        assert_eq!(machine.exec(&pod, &one, orphans).await.0, "none\n", "orphans are collected");
        machine.runtime().kill(&pod, &one).await.unwrap();
        assert_eq!(machine.exit(&pod, &one).await.code, 137);
        let again = start(&machine, &pod, "one", |spec| spec.id.attempt = 1).await;
        assert_eq!(machine.exec(&pod, &again, "cat /proc/1/comm").await.0, "adieu-pod\n");
        machine
    });
}

#[test]
fn kernel_settings_are_the_pods_own_and_those_of_the_machine_are_refused() {
    on_a_machine(|machine| async {
        let settings = [("net.ipv4.ip_local_port_range", "20000 20010"), ("kernel.shm_rmid_forced", "1")];
        let pod = sandbox(&machine, |spec| {
            spec.sysctls = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        })
        .await;
        let id = start(&machine, &pod, "app", |_| {}).await;
        let read = "cat /proc/sys/net/ipv4/ip_local_port_range /proc/sys/kernel/shm_rmid_forced";
        assert_eq!(machine.exec(&pod, &id, read).await.0, "20000\t20010\n1\n");
        assert_eq!(std::fs::read_to_string("/proc/sys/kernel/shm_rmid_forced").unwrap(), "0\n");
        let mut spec = sandbox_spec("pod-2");
        spec.sysctls = vec![("kernel.pid_max".into(), "5".into())];
        let error = machine.runtime().create_sandbox(&spec).await.unwrap_err();
        assert!(error.to_string().contains(r#"sysctl "kernel.pid_max" belongs to the whole machine"#), "{error}");
        machine
    });
}

#[test]
fn hosts_have_the_aliases_that_were_asked_for() {
    on_a_machine(|machine| async {
        let alias = ("10.1.2.3".to_owned(), vec!["db.internal".to_owned(), "db".to_owned()]);
        let pod = sandbox(&machine, |spec| spec.host_aliases = vec![alias]).await;
        let id = start(&machine, &pod, "app", |_| {}).await;
        assert_eq!(machine.exec(&pod, &id, "grep -e 10.1.2.3 /etc/hosts").await.0, "10.1.2.3\tdb.internal\tdb\n");
        machine
    });
}

#[test]
fn setting_that_the_machine_lacks_is_reported_and_the_rest_applied() {
    on_a_machine(|machine| async {
        let pod = machine.sandbox("pod-1").await;
        let mut spec = machine.spec("app", "cat /proc/self/oom_score_adj; sleep 1000").await;
        spec.oom_score_adj = Some(321);
        let started = machine.runtime().start_container(&pod, &spec).await.unwrap();
        assert_eq!(started.warnings, Vec::<String>::new());
        machine.logged(&pod, &spec.id, "321").await;
        assert_eq!(machine.exec(&pod, &spec.id, "cat /proc/self/oom_score_adj").await.0, "321\n", "of an exec too");
        let mut protected = machine.spec("protected", "cat /proc/self/oom_score_adj; sleep 1000").await;
        protected.oom_score_adj = Some(-997);
        let started = machine.runtime().start_container(&pod, &protected).await.unwrap();
        if may_lower_oom_scores() {
            machine.logged(&pod, &protected.id, "-997").await;
        } else {
            assert_eq!(started.warnings, ["oom_score_adj=-997 is not applied: permission denied"]);
            let again = machine.runtime().start_container(&pod, &protected).await.unwrap();
            assert_eq!(again, started, "told again to whoever did not live to hear it");
        }
        machine
    });
}

#[test]
fn proc_can_be_asked_for_unmasked_and_seccomp_unconfined() {
    on_a_machine(|machine| async {
        let pod = machine.sandbox("pod-1").await;
        let id = start(&machine, &pod, "app", |spec| {
            (spec.unmasked_proc, spec.seccomp) = (true, runtime::Seccomp::Unconfined);
        })
        .await;
        let (seen, _) = machine.exec(&pod, &id, "grep Seccomp: /proc/self/status; grep -c /proc/ /proc/mounts").await;
        assert_eq!(seen, "Seccomp:\t0\n0\n");
        machine
    });
}

#[test]
fn a_container_that_lost_a_process_for_want_of_memory_ends_as_a_whole() {
    on_a_machine(|mut machine| async {
        let pod = machine.sandbox("pod-1").await;
        // Its first process needs no memory, and would wait for ever for one that is gone.
        let script = "dd if=/dev/zero of=/dev/null bs=200M count=1 & sleep 1000";
        let mut spec = machine.spec("app", script).await;
        spec.resources.memory_bytes = Some(32 << 20);
        machine.runtime().start_container(&pod, &spec).await.unwrap();
        let exit = machine.exit(&pod, &spec.id).await;
        assert_eq!((exit.code, exit.signal, exit.oom), (137, Some(9), true), "{}", machine.log(&pod, &spec.id));
        machine
    });
}

/// A kernel that counts no swap has neither file, and the container sees neither.
#[test]
fn a_limit_of_memory_leaves_no_way_out_into_swap() {
    on_a_machine(|machine| async {
        let pod = machine.sandbox("pod-1").await;
        let mut spec = machine.spec("app", "sleep 1000").await;
        spec.resources.memory_bytes = Some(32 << 20);
        machine.runtime().start_container(&pod, &spec).await.unwrap();
        let groups = std::path::Path::new("/sys/fs/cgroup");
        let counted =
            |file: &str| machine.cgroups().iter().chain([&groups.join("memory")]).any(|g| g.join(file).exists());
        let mut expected = String::new();
        for (file, limit) in [("memory.swap.max", "0\n"), ("memory.memsw.limit_in_bytes", "33554432\n")] {
            expected += if counted(file) { limit } else { "" };
        }
        let script = "cd /sys/fs/cgroup; cat memory.swap.max memory/memory.memsw.limit_in_bytes 2>&-";
        assert_eq!(machine.exec(&pod, &spec.id, script).await.0, expected);
        machine
    });
}

/// A directory that passes mounts on, as `/` does on most machines.
struct Shared(std::path::PathBuf);

impl Shared {
    fn new(path: &std::path::Path) -> Self {
        use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
        std::fs::create_dir_all(path).unwrap();
        mount("tmpfs", path, "tmpfs", MountFlags::empty(), None).unwrap();
        mount_change(path, MountPropagationFlags::SHARED).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        Self(path.to_owned())
    }

    /// Mounts something that can be recognised.
    fn mount(&self, name: &str) {
        let at = self.0.join(name);
        std::fs::create_dir(&at).unwrap();
        rustix::mount::mount("tmpfs", &at, "tmpfs", rustix::mount::MountFlags::empty(), None).unwrap();
        std::fs::write(at.join("mounted"), "yes\n").unwrap();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        for entry in std::fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let _ = rustix::mount::unmount(entry.path(), rustix::mount::UnmountFlags::DETACH);
        }
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

fn may_lower_oom_scores() -> bool {
    let held = rustix::thread::capabilities(None).unwrap().effective;
    held.contains(rustix::thread::CapabilitySet::SYS_RESOURCE)
}

/// A device of the host in a directory of its own.
struct HostDevice(PathBuf);

impl HostDevice {
    fn make(name: &str) -> Self {
        let directory = Path::new("/dev").join(name);
        std::fs::create_dir_all(directory.join("below")).unwrap();
        let (kind, mode) = (rustix::fs::FileType::CharacterDevice, rustix::fs::Mode::from_raw_mode(0o640));
        let device = rustix::fs::makedev(1, 5);
        rustix::fs::mknodat(rustix::fs::CWD, directory.join("below/zero"), kind, mode, device).unwrap();
        Self(directory)
    }
}

impl Drop for HostDevice {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_privileged_container_has_the_hosts_devices_also_those_in_directories() {
    on_a_machine(|machine| async {
        let name = format!("adieu-{}", machine.instance);
        let _device = HostDevice::make(&name);
        let pod = machine.sandbox("pod-1").await;
        let mut spec = machine.spec("app", "sleep 1000").await;
        spec.privileged = true;
        machine.runtime().start_container(&pod, &spec).await.unwrap();
        let looks = format!("ls -ln /dev/{name}/below; head -c 3 /dev/{name}/below/zero | wc -c");
        let (output, code) = machine.exec(&pod, &spec.id, &looks).await;
        assert!(code == 0 && output.starts_with("total") && output.ends_with("\n3\n"), "{output}");
        assert!(output.contains("crw-r-----") && output.contains("1,   5"), "{output}");
        // Those of the container are its own.
        let (output, _) = machine.exec(&pod, &spec.id, "ls /dev/shm /dev/mqueue | wc -l; ls /dev/pts").await;
        assert!(output.ends_with("\nptmx\n"), "{output}");
        // Nobody else has any of it.
        let plain = machine.start(&pod, "plain", "sleep 1000").await;
        assert_eq!(machine.exec(&pod, &plain, &format!("ls -d /dev/{name}")).await.1, 1);
        machine
    });
}
