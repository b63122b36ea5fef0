//! What goes in and out of running containers: attached streams, logs that are set aside, connections, figures.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use crate::common::{Machine, code_of, eventually, exec_spec, on_a_machine, read_all};
use runtime::verbs::*;
use runtime::{ConnectionFilter, Connections, ExecSpec, LogLimits, RuntimeError, SandboxSpec};

fn attach_spec() -> ExecSpec {
    ExecSpec { stdin: true, ..exec_spec(&[]) }
}

fn say(stdin: Option<&OwnedFd>, words: &str) {
    assert_eq!(rustix::io::write(stdin.unwrap(), words.as_bytes()).unwrap(), words.len());
}

#[test]
fn attached_client_reads_new_output_and_writes_to_the_first_process() {
    on_a_machine(|machine| async {
        let pod = machine.sandbox("pod-1").await;
        let mut spec =
            machine.spec("app", "echo early; while read word; do echo \"<$word>\"; echo e >&2; done; exit 6").await;
        (spec.stdin, spec.stdin_once) = (true, true);
        machine.runtime().start_container(&pod, &spec).await.unwrap();
        machine.logged(&pod, &spec.id, "early").await;
        let listener = machine.runtime().attach(&pod, &spec.id, &exec_spec(&[])).await.unwrap();
        let speaker = machine.runtime().attach(&pod, &spec.id, &attach_spec()).await.unwrap();
        say(speaker.stdin.as_ref(), "one\ntwo\n");
        machine.logged(&pod, &spec.id, "<two>").await;
        // Its input ends with the first who had it.
        drop(speaker.stdin);
        assert_eq!(read_all(listener.stdout.unwrap()).await, "<one>\n<two>\n", "what came before is in the log");
        assert_eq!(read_all(speaker.stdout.unwrap()).await, "<one>\n<two>\n", "everyone hears everything");
        assert_eq!(read_all(speaker.stderr.unwrap()).await, "e\ne\n");
        assert_eq!((speaker.exit.await.unwrap(), listener.exit.await.unwrap()), (6, 6));
        let gone = machine.runtime().attach(&pod, &spec.id, &attach_spec()).await.unwrap_err();
        assert!(matches!(gone, RuntimeError::NoContainer { .. }), "{gone:?}");
        assert_eq!(machine.log(&pod, &spec.id).matches('<').count(), 2, "the log has it too");
        machine
    });
}

#[test]
fn an_attached_terminal_has_its_size_and_outlives_those_who_leave() {
    on_a_machine(|machine| async {
        let pod = machine.sandbox("pod-1").await;
        let mut spec = machine.spec("app", "while read word; do echo \"<$word>\"; stty size; done").await;
        (spec.tty, spec.stdin) = (true, true);
        machine.runtime().start_container(&pod, &spec).await.unwrap();
        let tty = ExecSpec { tty: true, stderr: false, ..attach_spec() };
        for word in ["first", "second"] {
            let session = machine.runtime().attach(&pod, &spec.id, &tty).await.unwrap();
            machine.runtime().resize(&session, 99, 33).unwrap();
            say(session.stdin.as_ref(), &format!("{word}\n"));
            machine.logged(&pod, &spec.id, &format!("<{word}>")).await;
            machine.logged(&pod, &spec.id, "33 99").await;
        }
        let session = machine.runtime().attach(&pod, &spec.id, &tty).await.unwrap();
        machine.runtime().kill(&pod, &spec.id).await.unwrap();
        assert_eq!(code_of(session).await, 137);
        machine
    });
}

#[test]
fn a_listener_that_does_not_keep_up_is_sent_away_and_the_container_runs_on() {
    on_a_machine(|mut machine| async {
        let pod = machine.sandbox("pod-1").await;
        let (go, mount) = machine.signpost();
        let script =
            "until [ -e /signpost/go ]; do sleep 0.01; done; dd if=/dev/zero bs=1M count=4 2> /dev/null; exit 5";
        let mut spec = machine.spec("app", script).await;
        spec.mounts = vec![mount];
        machine.runtime().start_container(&pod, &spec).await.unwrap();
        let lazy = machine.runtime().attach(&pod, &spec.id, &exec_spec(&[])).await.unwrap();
        std::fs::write(go, "").unwrap();
        assert_eq!(machine.exit(&pod, &spec.id).await.code, 5, "it did not wait for its listener");
        assert!(lazy.exit.await.is_err(), "who missed something is not told that all is well");
        machine
    });
}

#[test]
fn a_log_keeps_within_its_limits_and_whole_lines() {
    on_a_machine(|mut machine| async {
        let pod = machine.sandbox("pod-1").await;
        let mut spec = machine.spec("app", "for i in $(seq 20000); do echo line $i; done").await;
        spec.log = LogLimits { file_bytes_max: 100_000, files_max: 3 };
        machine.runtime().start_container(&pod, &spec).await.unwrap();
        machine.exit(&pod, &spec.id).await;
        let path = machine.runtime().log_path(&pod, &spec.id);
        let mut files: Vec<_> = std::fs::read_dir(path.parent().unwrap()).unwrap().map(|e| e.unwrap().path()).collect();
        files.sort_by_key(|file| file.extension().unwrap().to_str().unwrap().parse::<u64>().unwrap_or(u64::MAX));
        assert_eq!(files.len(), 3, "{files:?}");
        assert_eq!(files[2], path);
        let text: String = files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
        let numbers: Vec<u32> = text.lines().map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
        assert_eq!(*numbers.last().unwrap(), 20_000);
        assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]), "no line is lost or twice between files");
        machine.runtime().remove_sandbox(&pod).await.unwrap();
        let kept = machine.runtime().log_path(&pod, &spec.id);
        assert_eq!(std::fs::read_dir(kept.parent().unwrap()).unwrap().count(), 3, "all of it is kept after the end");
        machine
    });
}

/// SE-58: neither output without line ends nor a line on the other stream that is never ended keeps a log from being
/// set aside.
#[test]
fn log_stays_within_twice_its_bound_without_line_ends() {
    on_a_machine(|mut machine| async {
        let pod = machine.sandbox("pod-1").await;
        let endless = "dd if=/dev/zero bs=64k count=320 2> /dev/null";
        let beside = "dd if=/dev/zero bs=16384 count=1 2> /dev/null >&2; seq 1000000";
        for (name, script) in [("endless", endless), ("beside", beside)] {
            let mut spec = machine.spec(name, script).await;
            spec.log = LogLimits { file_bytes_max: 200_000, files_max: 3 };
            machine.runtime().start_container(&pod, &spec).await.unwrap();
            machine.exit(&pod, &spec.id).await;
            let path = machine.runtime().log_path(&pod, &spec.id);
            let sizes =
                || std::fs::read_dir(path.parent().unwrap()).unwrap().map(|e| e.unwrap().metadata().unwrap().len());
            assert_eq!(sizes().count(), 3, "{name} has as many files as it may");
            let total: u64 = sizes().sum();
            assert!(total <= 2 * 3 * 200_000, "the log of {name} takes {total} bytes");
        }
        machine
    });
}

#[test]
fn a_port_of_the_pods_own_loopback_can_be_connected_to_and_its_connections_counted() {
    on_a_machine(|machine| async {
        let pod = machine.sandbox("pod-1").await;
        let id = machine.start(&pod, "app", "echo ready; nc -l -p 8080 -e sh -c 'echo hello; cat'").await;
        machine.logged(&pod, &id, "ready").await;
        let runtime = machine.runtime();
        let refused = runtime.connect(&pod, 9).await.unwrap_err();
        assert_eq!(refused.to_string(), "cannot connect to port 9");
        let begun = std::time::Instant::now();
        let stream = loop {
            match runtime.connect(&pod, 8080).await {
                Ok(stream) => break stream,
                Err(error) => assert!(begun.elapsed() < common::PATIENCE, "{error}: {}", machine.log(&pod, &id)),
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        };
        let mut stream = TcpStream::from(stream);
        let mut answer = [0; 6];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"hello\n");
        assert_eq!(runtime.connections(&pod, &to_port(8080)).await.unwrap().established, 1);
        assert_eq!(runtime.connections(&pod, &to_port(8081)).await.unwrap().established, 0);
        stream.write_all(b"to and fro").unwrap();
        let mut back = [0; 10];
        stream.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"to and fro");
        machine
    });
}

fn to_port(port: u16) -> ConnectionFilter {
    ConnectionFilter { ports: vec![port], ..ConnectionFilter::default() }
}

/// [TR-17]
#[test]
fn a_connection_that_is_being_opened_is_told_from_one_that_is_open() {
    on_a_machine(|machine| async {
        let pod = machine.sandbox("pod-1").await;
        let id = machine.start(&pod, "app", "nc -ll -p 8080 -e cat").await;
        let address = machine.report(&pod).await.unwrap().sandbox.ip().unwrap();
        let counted = async || machine.runtime().connections(&pod, &to_port(8080)).await.unwrap();
        while machine.exec(&pod, &id, "nc 127.0.0.1 8080 < /dev/null").await.1 != 0 {}
        until("nothing is open", async || counted().await == Connections::default()).await;
        // The last packet of the handshake does not come in: the pod knows that somebody is about to connect, no more.
        let shim = machine.shim_of(&pod);
        nft_in(
            shim,
            "add table ip lossy; add chain ip lossy in { type filter hook input priority 0; }; \
            add rule ip lossy in tcp dport 8080 tcp flags & (syn | ack) == ack drop",
        );
        let client = TcpStream::connect((address, 8080)).unwrap();
        let opening = Connections { opening: 1, ..Connections::default() };
        until("it is being opened", async || counted().await == opening).await;
        let settled = async |within| machine.runtime().settled(&pod, Duration::from_millis(5), within).await.unwrap();
        assert!(!settled(Duration::from_millis(200)).await, "somebody is about to connect");
        nft_in(shim, "delete table ip lossy");
        until("it is open", async || counted().await.established == 1).await;
        assert_eq!(counted().await.opening, 0);
        assert!(settled(common::PATIENCE).await, "nobody waits to be accepted");
        drop(client);
        machine
    });
}

#[test]
fn host_network_pod_counts_only_its_own_connections() {
    on_a_machine(|machine| async {
        let spec = SandboxSpec { host_network: true, ..common::sandbox_spec("pod-1") };
        machine.runtime().create_sandbox(&spec).await.unwrap();
        let counted = async || machine.runtime().connections(&spec.uid, &ConnectionFilter::default()).await.unwrap();
        // Somebody else's, on the same network: listened, connected, accepted and not.
        let others = TcpListener::bind("127.0.0.1:0").unwrap();
        let _connected: Vec<_> = (0..3).map(|_| TcpStream::connect(others.local_addr().unwrap()).unwrap()).collect();
        let _accepted = others.accept().unwrap();
        machine.start(&spec.uid, "app", "nc -ll -p 8080 -e cat").await;
        let begun = std::time::Instant::now();
        let mut stream = loop {
            match TcpStream::connect("127.0.0.1:8080") {
                Ok(stream) => break stream,
                Err(error) => assert!(begun.elapsed() < common::PATIENCE, "{error}"),
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        };
        stream.write_all(b"hello").unwrap();
        stream.read_exact(&mut [0; 5]).unwrap();
        assert_eq!(counted().await, Connections { established: 1, opening: 0, unaccepted: 0 });
        drop(stream);
        until("it is closed", async || counted().await == Connections::default()).await;
        machine
    });
}

/// Runs the `nft` program in the network of a process.
fn nft_in(process: i32, commands: &str) {
    let namespace = std::fs::File::open(format!("/proc/{process}/ns/net")).unwrap();
    let commands = commands.to_owned();
    let run = move || {
        let network = Some(rustix::thread::LinkNameSpaceType::Network);
        rustix::thread::move_into_link_name_space(namespace.as_fd(), network).unwrap();
        std::process::Command::new("nft").arg(commands).output().unwrap()
    };
    let output = std::thread::spawn(run).join().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < common::PATIENCE, "waited in vain: {what}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[test]
fn container_stats_report_cpu_and_memory() {
    on_a_machine(|machine| async {
        let pod = machine.sandbox("pod-1").await;
        let busy = machine
            .start(&pod, "busy", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo done; sleep 1000; true")
            .await;
        let mut limited = machine.spec("limited", "sleep 1000 & echo up; sleep 1000; true").await;
        limited.resources.memory_bytes = Some(64 << 20);
        machine.runtime().start_container(&pod, &limited).await.unwrap();
        machine.logged(&pod, &busy, "done").await;
        machine.logged(&pod, &limited.id, "up").await;
        let stats = machine.runtime().stats(&pod).await.unwrap();
        let of = |name: &str| stats.iter().find(|one| one.id.name == name).unwrap();
        assert!(of("busy").cpu_nanos > 1_000_000, "{stats:?}");
        // Each has a shell that goes on, and with it the pages that it wrote.
        for used in ["busy", "limited"].map(|name| of(name).memory_bytes) {
            assert!(used > 10_000 && used < 64 << 20, "{stats:?}");
        }
        // A shell, what it left behind and what it waits for.
        assert!((2..=3).contains(&of("limited").processes), "{stats:?}");
        machine.runtime().kill(&pod, &busy).await.unwrap();
        machine
    });
}

/// The groups of tethered programs of all pods.
fn tether_groups(machine: &Machine) -> usize {
    fn below(group: &Path) -> usize {
        let entries = std::fs::read_dir(group).into_iter().flatten().flatten();
        let groups = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        groups
            .map(|entry| usize::from(entry.file_name().to_string_lossy().contains("exec-")) + below(&entry.path()))
            .sum()
    }
    machine.cgroups().iter().map(|group| below(group)).sum()
}

#[test]
fn a_tethered_program_ends_with_whoever_asked_and_so_does_all_it_started() {
    on_a_machine(|machine| async {
        let pod = machine.sandbox("pod-1").await;
        let id = machine.start(&pod, "app", "sleep 1000 & echo ready; wait").await;
        machine.logged(&pod, &id, "ready").await;
        let quiet = machine.processes(&pod).len();
        let tethered = |script: &str| ExecSpec { tethered: true, ..exec_spec(&["sh", "-c", script]) };
        for _ in 0..3 {
            let spec = tethered("setsid sleep 1000 & setsid sleep 1000 & wait");
            let session = machine.runtime().exec(&pod, &id, &spec).await.unwrap();
            eventually("all of it", || machine.processes(&pod).len() == quiet + 3).await;
            drop(session);
            eventually("none of it", || machine.processes(&pod).len() == quiet).await;
        }
        // Given up before it ran: polled once, it is on its way. On a busy machine it may have arrived by then, and is given
        // up all the same.
        let spec = tethered("sleep 1000");
        drop(tokio::time::timeout(Duration::ZERO, machine.runtime().exec(&pod, &id, &spec)).await);
        // Asked later, answered later.
        assert_eq!(machine.exec(&pod, &id, "true").await.1, 0);
        eventually("none of it", || machine.processes(&pod).len() == quiet).await;
        let none = ExecSpec { tethered: true, ..exec_spec(&["nope"]) };
        machine.runtime().exec(&pod, &id, &none).await.unwrap_err();
        assert_eq!(machine.exec(&pod, &id, "true").await.1, 0);
        assert_eq!(tether_groups(&machine), 0, "groups");

        // What a program that ended by itself left behind is its container's, and so is one that nobody tethered.
        let session = machine.runtime().exec(&pod, &id, &tethered("setsid sleep 1000 & exit 3")).await.unwrap();
        assert_eq!(session.exit.await.unwrap(), 3);
        session.tether.unwrap().let_go();
        drop(machine.runtime().exec(&pod, &id, &exec_spec(&["sleep", "1000"])).await.unwrap());
        assert_eq!(machine.exec(&pod, &id, "true").await.1, 0);
        assert_eq!(machine.processes(&pod).len(), quiet + 2);
        assert_eq!(machine.report(&pod).await.unwrap().containers[0].exit, None, "the container noticed nothing");
        machine
    });
}

/// [SE-57] Those who come and go while a container says nothing leave no pipe behind.
#[test]
fn attaching_to_a_silent_container_again_and_again_holds_no_descriptors() {
    on_a_machine(|machine| async {
        let pod = machine.sandbox("pod-1").await;
        let id = machine.start(&pod, "app", "sleep 1000").await;
        let open = || std::fs::read_dir(format!("/proc/{}/fd", machine.shim_of(&pod))).unwrap().count();
        let before = open();
        for _ in 0..200 {
            drop(machine.runtime().attach(&pod, &id, &exec_spec(&[])).await.unwrap());
        }
        assert!(open() <= before + 8, "{} descriptors, {before} before", open());
        assert_eq!(machine.exec(&pod, &id, "echo well").await.0, "well\n");
        machine
    });
}

/// [SE-53] CVE-2020-8557: what is written to the pod's own files counts as the container's.
#[test]
fn hosts_file_of_a_pod_counts_as_what_its_containers_have_on_disk() {
    on_a_machine(|machine| async {
        let pod = machine.sandbox("pod-1").await;
        let id = machine.start(&pod, "app", "sleep 1000").await;
        let stored = async || machine.runtime().stored(&pod).await.unwrap().iter().map(|run| run.bytes).sum::<u64>();
        let before = stored().await;
        let (said, code) = machine.exec(&pod, &id, "dd if=/dev/zero of=/etc/hosts bs=1M count=3 2>&1").await;
        assert_eq!(code, 0, "{said}");
        // The file had a block before.
        assert!(stored().await + 8192 >= before + (3 << 20), "{} bytes, {before} before", stored().await);
        machine
    });
}
