//! What a container may try against its machine, tried from inside.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common;
use std::io::Write;

use crate::common::{Machine, on_a_machine, sandbox_spec};
use runtime::verbs::*;
use runtime::{ContainerId, ContainerSpec, HookRecord, Mount, MountSource, PodUid, Propagation, SandboxSpec, Seccomp};

async fn start(machine: &Machine, pod: &PodUid, change: impl FnOnce(&mut ContainerSpec)) -> ContainerId {
    let mut spec = machine.spec("app", "sleep 1000").await;
    change(&mut spec);
    machine.runtime().start_container(pod, &spec).await.unwrap();
    spec.id
}

/// Each attempt must fail, with these words.
async fn all_fail(machine: &Machine, pod: &PodUid, id: &ContainerId, attempts: &[(&str, &str)]) {
    for (script, words) in attempts {
        let (output, code) = machine.exec(pod, id, script).await;
        assert!(code != 0 && output.to_lowercase().contains(words), "{script}: {code} {output}");
    }
}

#[test]
fn root_in_a_container_is_not_root_of_the_machine() {
    on_a_machine(|machine| async {
        let pod = machine.sandbox("pod-1").await;
        let id = start(&machine, &pod, |_| {}).await;
        let attempts = [
            ("echo 1 > /proc/sys/vm/drop_caches", "read-only"),
            ("echo x > /proc/sys/kernel/core_pattern", "read-only"),
            ("mkdir /sys/kernel/evil", "read-only"),
            ("mount -t proc proc /tmp", "permi"),
            ("mount -o remount,rw /proc/sys", "permi"),
            ("unshare -U true", "permitted"),
            ("mknod /dev/disk b 254 0", "permitted"),
            ("hostname evil", "permitted"),
            ("cat /proc/kcore | head -c 1 | grep -q .", ""),
            ("cat /proc/keys /proc/timer_list | grep .", ""),
            ("ls /proc/acpi/* /sys/firmware/*", "no such file"),
        ];
        all_fail(&machine, &pod, &id, &attempts).await;
        let (bounding, _) = machine.exec(&pod, &id, "grep CapBnd /proc/self/status").await;
        assert_eq!(bounding, "CapBnd:\t00000000a80425fb\n");
        machine
    });
}

/// Whoever has a file open can change its mode and owner by way of `/proc`: what a container is given must be its own.
#[test]
fn container_streams_are_no_host_files() {
    on_a_machine(|mut machine| async {
        // Device and inode of the shell's own streams, without its being asked to write to one of them meanwhile.
        let look = "seen=$(busybox stat -L -c %d:%i /proc/$$/fd/0 /proc/$$/fd/1 /proc/$$/fd/2); echo $seen";
        let pod = machine.sandbox("pod-1").await;
        let id = start(&machine, &pod, |spec| spec.command[2] = format!("{look} > /tmp/first; sleep 1000")).await;
        let null = || rustix::fs::stat("/dev/null").unwrap();
        let of_host = format!("{}:{}", null().st_dev, null().st_ino);
        let own = machine.exec(&pod, &id, "busybox stat -c %d:%i /dev/null").await.0.trim().to_owned();
        assert_ne!(own, of_host);
        let hook = ["sh", "-c", &format!("{look} > /tmp/hook")].map(String::from);
        machine.runtime().run_hook(&pod, &id, "look", &hook).await.unwrap();
        assert_eq!(machine.hook(&pod, "look").await, HookRecord::Exited { code: 0, output: None });
        let read = async |script: &str| machine.exec(&pod, &id, script).await.0.trim().to_owned();
        let written = "until [ -s /tmp/first ]; do sleep 0.01; done; cat /tmp/first";
        let (first, hook, exec) = (read(written).await, read("cat /tmp/hook").await, read(look).await);
        assert_eq!(first.split(' ').next(), Some(own.as_str()), "of the first process");
        assert_eq!(exec.split(' ').next(), Some(own.as_str()), "of an exec");
        assert_eq!(hook.split(' ').next(), Some(own.as_str()), "of a hook");
        for seen in [&first, &exec, &hook] {
            assert!(!seen.contains(&of_host), "{seen}");
        }
        // Only now, as it is known whose it is.
        let before = null();
        assert_eq!(read("chmod 600 /proc/1/fd/0 && busybox stat -c %a /dev/null").await, "600");
        let after = null();
        assert_eq!(
            (after.st_mode, after.st_ctime, after.st_ctime_nsec),
            (before.st_mode, before.st_ctime, before.st_ctime_nsec)
        );
        // Whatever takes its place, and wherever that leads, an exec is not given it.
        assert_eq!(machine.exec(&pod, &id, "rm /dev/null && ln -s /etc/hosts /dev/null").await, (String::new(), 0));
        assert_eq!(read(look).await.split(' ').next(), Some(own.as_str()));
        assert_eq!(read("cat").await, "");
        machine
    });
}

/// The first process of a namespace that containers share is nobody's, and holds nothing.
#[test]
fn the_first_process_of_shared_processes_holds_no_file_of_the_machine() {
    on_a_machine(|machine| async {
        let mut spec = sandbox_spec("pod-1");
        spec.share_pids = true;
        machine.runtime().create_sandbox(&spec).await.unwrap();
        start(&machine, &spec.uid, |_| {}).await;
        let shim_group = format!("/adieu-{}/pod-1/shim", machine.instance);
        // The shim is its parent; which of the two has the higher number is chance.
        let both = common::processes_in(&shim_group);
        let parent = |pid: &i32| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
            status.lines().find_map(|line| line.strip_prefix("PPid:\t")).unwrap().parse::<i32>().unwrap()
        };
        let first = both.iter().find(|pid| both.contains(&parent(pid))).unwrap();
        // One that is closed between the two looks is not held.
        let held = || {
            let fds = std::fs::read_dir(format!("/proc/{first}/fd")).unwrap().flatten();
            fds.filter_map(|fd| Some(std::fs::read_link(fd.path()).ok()?.display().to_string())).collect::<Vec<_>>()
        };
        common::eventually("nothing but signals held", || held().iter().all(|file| file == "anon_inode:[signalfd]"))
            .await;
        machine
    });
}

#[test]
fn devices_stay_out_of_reach_without_a_cgroup_filter() {
    on_a_machine(|machine| async {
        let pod = machine.sandbox("pod-1").await;
        let id = start(&machine, &pod, |spec| spec.seccomp = Seccomp::Unconfined).await;
        // The number of whatever holds this machine's root, and of its memory.
        let disk = rustix::fs::stat("/").unwrap().st_dev;
        let (major, minor) = (rustix::fs::major(disk), rustix::fs::minor(disk));
        let made = format!("mknod /dev/disk b {major} {minor} && mknod /dev/memory c 1 1 && echo made");
        assert_eq!(machine.exec(&pod, &id, &made).await.0, "made\n", "a node by itself opens nothing");
        let attempts = [
            ("head -c 1 /dev/disk", "permitted"),
            ("echo x > /dev/disk", "permitted"),
            ("head -c 1 /dev/memory", "permitted"),
        ];
        all_fail(&machine, &pod, &id, &attempts).await;
        let harmless = "head -c 4 /dev/zero | wc -c; head -c 4 /dev/urandom | wc -c; echo x > /dev/null && echo well";
        assert_eq!(machine.exec(&pod, &id, harmless).await.0, "4\n4\nwell\n");
        let mut spec = common::exec_spec(&["tty"]);
        (spec.tty, spec.stdin, spec.stderr) = (true, true, false);
        let session = machine.runtime().exec(&pod, &id, &spec).await.unwrap();
        assert_eq!(common::code_of(session).await, 0, "terminals are among them");
        machine
    });
}

#[test]
fn container_with_sys_admin_cannot_reach_devices() {
    on_a_machine(|machine| async {
        let pod = machine.sandbox("pod-1").await;
        let id = start(&machine, &pod, |spec| spec.cap_add = vec!["SYS_ADMIN".to_owned()]).await;
        let mounted = machine.exec(&pod, &id, "mkdir /d && mount -t devtmpfs dev /d && echo mounted").await;
        assert_eq!(mounted.0, "mounted\n");
        all_fail(&machine, &pod, &id, &[("head -c 1 /d/kmsg", "permitted"), ("echo x > /d/kmsg", "permitted")]).await;
        machine
    });
}

#[test]
fn container_in_the_host_pid_namespace_cannot_read_host_processes() {
    on_a_machine(|machine| async {
        let mut spec = sandbox_spec("pod-1");
        spec.host_pid = true;
        machine.runtime().create_sandbox(&spec).await.unwrap();
        let id = start(&machine, &spec.uid, |_| {}).await;
        let (agent, shim) = (std::process::id(), machine.shim_of(&spec.uid));
        for pid in [1, i32::try_from(agent).unwrap(), shim] {
            for file in ["environ", "root/etc/passwd", "cwd/x", "mem", "fd/0"] {
                let (output, code) = machine.exec(&spec.uid, &id, &format!("head -c 1 /proc/{pid}/{file}")).await;
                assert!(code != 0 && output.to_lowercase().contains("permission denied"), "{pid}/{file}: {output}");
            }
        }
        machine
    });
}

#[test]
fn a_tracer_gets_hold_of_its_own_processes_only() {
    on_a_machine(|machine| async {
        let mut spec = sandbox_spec("pod-1");
        spec.host_pid = true;
        machine.runtime().create_sandbox(&spec).await.unwrap();
        // Without a filter: the kernel's own rules must suffice. The host's programs are lent to it; Debian's perl can call
        // the kernel by number (101 is ptrace, 16 its PTRACE_ATTACH).
        let id = start(&machine, &spec.uid, |spec| {
            spec.seccomp = Seccomp::Unconfined;
            spec.mounts = vec![Mount {
                source: MountSource::Host("/".into()),
                target: "/host".to_owned(),
                sub_path: None,
                read_only: true,
                propagation: Propagation::default(),
            }];
        })
        .await;
        let attach = |pid: &str| {
            format!(
                r#"echo 'syscall(101, 16, {pid}, 0, 0) == 0 ? print "held" : die "$!"' | chroot /host /usr/bin/perl"#
            )
        };
        let (agent, shim) = (std::process::id().to_string(), machine.shim_of(&spec.uid).to_string());
        for pid in ["1", &agent, &shim] {
            let (output, code) = machine.exec(&spec.uid, &id, &attach(pid)).await;
            assert!(code != 0 && output.contains("Operation not permitted"), "{pid}: {code} {output}");
        }
        let own = format!("sleep 100 > /dev/null 2>&1 & {}; kill -9 $!", attach("'$!'"));
        assert_eq!(machine.exec(&spec.uid, &id, &own).await, ("held".to_owned(), 0));
        machine
    });
}

#[test]
fn a_fork_bomb_meets_the_limit_of_its_pod_which_all_its_containers_share() {
    on_a_machine(|mut machine| async {
        let spec = SandboxSpec { pids_max: Some(30), ..sandbox_spec("pod-1") };
        machine.runtime().create_sandbox(&spec).await.unwrap();
        let other = machine.sandbox("pod-2").await;
        let elsewhere = machine.start(&other, "app", "sleep 1000").await;
        let quiet = machine.start(&spec.uid, "quiet", "sleep 1000 & sleep 1000 & echo all; wait").await;
        machine.logged(&spec.uid, &quiet, "stdout F all").await;
        let started = machine.spec("bomb", "while n=$((n + 1)); do sleep 1000 & echo $n; done").await;
        let told = machine.runtime().start_container(&spec.uid, &started).await.unwrap();
        assert_eq!(told.warnings, Vec::<String>::new());
        // A shell that is refused a process says so and ends, and all it started with it.
        assert_eq!(machine.exit(&spec.uid, &started.id).await.code, 2);
        let log = machine.log(&spec.uid, &started.id);
        assert!(log.contains("can't fork"), "{log}");
        // Three of the other container and one shell, and the shim where it is counted with them.
        let most = log.lines().filter_map(|line| line.strip_prefix("stdout F ")?.parse::<u64>().ok()).max();
        assert!(most.is_some_and(|most| (20..=26).contains(&most)), "{most:?}");
        for (pod, id) in [(&spec.uid, &quiet), (&other, &elsewhere)] {
            assert_eq!(machine.exec(pod, id, "(true); echo well").await, ("well\n".to_owned(), 0));
        }
        machine
    });
}

#[test]
fn a_fork_bomb_meets_its_limit_and_ends_with_its_container() {
    on_a_machine(|mut machine| async {
        let pod = machine.sandbox("pod-1").await;
        let beside = machine.start(&pod, "beside", "sleep 1000").await;
        let bomb = start(&machine, &pod, |spec| {
            spec.id.name = "bomb".into();
            // The first shell waits without a process of its own: one that is refused to it would end it.
            spec.command[2] =
                "mkfifo /gate; exec 3<>/gate; bomb() { bomb | bomb & }; bomb; while :; do read -r _ <&3; done".into();
            spec.resources.pids = Some(30);
        })
        .await;
        // Whatever it does, it never has more.
        for _ in 0..20 {
            let stats = machine.runtime().stats(&pod).await.unwrap();
            let processes = stats.iter().find(|one| one.id == bomb).map_or(0, |one| one.processes);
            assert!(processes <= 30, "{processes}");
            assert_eq!(machine.exec(&pod, &beside, "echo well").await.0, "well\n");
        }
        machine.runtime().kill(&pod, &bomb).await.unwrap();
        assert_eq!(machine.exit(&pod, &bomb).await.code, 137);
        assert_eq!(machine.processes(&pod).len(), 2, "the shim and the other container");
        machine
    });
}

#[test]
fn container_ends_although_another_process_keeps_its_output_open() {
    on_a_machine(|mut machine| async {
        let pod = machine.sandbox("pod-1").await;
        let id = machine.start(&pod, "app", "echo ready; exec sleep 1000").await;
        machine.logged(&pod, &id, "ready").await;
        let first = common::processes_in(&format!("/adieu-{}/pod-1/app.0", machine.instance))[0];
        // As a neighbour does that was handed it.
        let mut output = std::fs::File::options().write(true).open(format!("/proc/{first}/fd/1")).unwrap();
        let writer = std::thread::spawn(move || while output.write_all(&[b'x'; 4096]).is_ok() {});
        machine.runtime().kill(&pod, &id).await.unwrap();
        assert_eq!(machine.exit(&pod, &id).await.code, 137);
        // Nobody reads it any more, which ends the writer.
        tokio::task::spawn_blocking(|| writer.join().unwrap()).await.unwrap();
        machine
    });
}
