//! What a container may try against its machine, tried from inside.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{Machine, on_a_machine, sandbox_spec};
use runtime::{ContainerId, ContainerSpec, Mount, MountSource, PodUid, Propagation, Runtime, Seccomp};

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

#[test]
fn without_a_filter_devices_stay_out_of_reach() {
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
fn who_may_mount_still_has_no_devices() {
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
fn who_sees_the_hosts_processes_cannot_look_into_them() {
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
fn a_fork_bomb_meets_its_limit_and_ends_with_its_container() {
    on_a_machine(|mut machine| async {
        let pod = machine.sandbox("pod-1").await;
        let beside = machine.start(&pod, "beside", "sleep 1000").await;
        let bomb = start(&machine, &pod, |spec| {
            spec.id.name = "bomb".into();
            spec.command[2] = "bomb() { bomb | bomb & }; bomb; while :; do sleep 0.01; done".into();
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
