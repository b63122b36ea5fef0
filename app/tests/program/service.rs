//! What service managers and people are told of a process: ready, how it is, stopping, down.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead as _, BufReader};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn adieu(command: &str, dir: &Path) -> Command {
    let mut adieu = Command::new(env!("CARGO_BIN_EXE_adieu"));
    adieu.arg(command).arg("--data-dir").arg(dir).stdin(Stdio::null()).env_remove("NOTIFY_SOCKET");
    adieu
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Who listens as a service manager does.
struct Manager(UnixDatagram);

impl Manager {
    fn at(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(socket)
    }

    fn hear(&self) -> String {
        let mut buffer = [0; 4096];
        let length = self.0.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }
}

#[test]
fn a_service_manager_hears_when_it_is_ready_and_when_it_stops() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("notify");
    let manager = Manager::at(&socket);
    let dir = folder.path().join("data");
    let mut server = adieu("server", &dir);
    server.args(["--api", "127.0.0.1:0"]).env("NOTIFY_SOCKET", &socket).stdout(Stdio::null());
    let mut server = Process(server.spawn().unwrap());
    let ready = manager.hear();
    assert!(ready.starts_with("READY=1\nSTATUS=API at https://127.0.0.1:"), "{ready}");

    let pid = rustix::process::Pid::from_child(&server.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(manager.hear(), "STOPPING=1\nSTATUS=connections end");
    assert!(server.0.wait().unwrap().success());
}

#[test]
fn status_tells_what_runs_and_down_ends_it() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("data");
    let absent = adieu("status", &dir).output().unwrap();
    assert_eq!(absent.status.code(), Some(3));
    assert!(said(&absent).contains("adieu is not up: there is no"), "{absent:?}");
    assert!(!dir.exists(), "to ask changes nothing");

    let mut server = adieu("server", &dir);
    let mut server = Process(server.args(["--api", "127.0.0.1:0"]).stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("adieu server is ready"), "{line}");

    let status = adieu("status", &dir).output().unwrap();
    assert!(status.status.success(), "{status:?}");
    let text = said(&status);
    assert!(text.starts_with("adieu is up for ") && text.contains("  node  none in this process"), "{text}");
    assert!(text.contains("  pods  none"), "{text}");
    let json = adieu("status", &dir).args(["-o", "json"]).output().unwrap();
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["pid"], server.0.id());
    assert_eq!(PathBuf::from(json["kubeconfig"].as_str().unwrap()), dir.join("admin.kubeconfig"));

    let down = adieu("down", &dir).output().unwrap();
    assert!(down.status.success() && said(&down).contains("adieu is down"), "{down:?}");
    assert!(server.0.wait().unwrap().success());
    let after = adieu("status", &dir).output().unwrap();
    assert_eq!(after.status.code(), Some(3));
    assert!(said(&after).contains("adieu is down on"), "{after:?}");
}

/// Nobody else looks after the pods of a machine, so no number of failures leaves it without an agent.
#[test]
fn unit_has_no_start_limit_and_leaves_pods_alone() {
    let unit = include_str!("../../../packaging/adieu.service");
    let section = |name: &str| {
        let rest = unit.split(&format!("[{name}]\n")).nth(1).unwrap();
        rest.split("\n[").next().unwrap().lines().collect::<Vec<_>>()
    };
    assert!(section("Unit").contains(&"StartLimitIntervalSec=0"), "{unit}");
    for line in ["Restart=on-failure", "KillMode=process"] {
        assert!(section("Service").contains(&line), "{line}");
    }
}
