//! Plans of scripts beside what real shells do: each script is planned, and run as the first process of a pid namespace
//! of its own that gets a SIGTERM from outside. Needs root, and Debian's dash, bash, busybox-static and util-linux.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

#[path = "shells/table.rs"]
mod table;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use cli::plan::{Paint, run};
use serde_json::{Value, json};

const SHELLS: [(&str, &[&str]); 3] =
    [("dash", &["dash", "-c"]), ("bash", &["bash", "-c"]), ("busybox", &["busybox", "sh", "-c"])];
/// Nothing in the table ends later than this by itself, if it ends at all.
const LATEST: Duration = Duration::from_millis(3_500);
/// What should end has so long, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);
const AT_ONCE: usize = 96;

/// How it ended, as planned or as seen.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Ended {
    /// It exited with that code; a program that ran had been asked and was done.
    Exited(i64, Done),
    /// It was still there when everything that exits had exited.
    Not,
}

/// What became of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    /// Each was asked, and finished its work.
    Finished,
    /// One was killed in the middle of it.
    Killed,
}

#[derive(Debug)]
struct Planned {
    ended: Ended,
    /// The plan does not say that it is sure.
    unsure: bool,
}

/// Each script in each shell. A plan may be wrong nowhere, and unsure only where the table says so.
#[test]
fn shells_do_as_predicted() {
    let folder = tempfile::tempdir().unwrap();
    programs(folder.path());
    let cases: Vec<_> = table::SCRIPTS.iter().flat_map(|case| SHELLS.iter().map(move |shell| (case, shell))).collect();
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(((script, may_be_unsure), (shell, words))) =
                    cases.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    let marks = tempfile::tempdir_in(folder.path()).unwrap();
                    let planned = planned(words, script);
                    let excused = planned.unsure && may_be_unsure.contains(shell);
                    // What is said to exit has all the time of a busy machine; the others only have to be seen alive.
                    let patience = if planned.ended == Ended::Not || excused { LATEST } else { PATIENCE };
                    let seen = seen(words, script, folder.path(), marks.path(), patience);
                    if planned.ended != seen && !excused {
                        let line = format!("{shell} {script:?}\n    planned {planned:?}\n    seen    {seen:?}");
                        wrong.lock().unwrap().push(line);
                    }
                }
            });
        }
    });
    let mut wrong = wrong.into_inner().unwrap();
    wrong.sort();
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

/// What the plan says of a pod with that command.
fn planned(words: &[&str], script: &str) -> Planned {
    let command: Vec<&str> = words.iter().copied().chain([script]).collect();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" },
        "spec": { "restartPolicy": "Never", "containers": [{ "name": "app", "image": "example.com/app", "command": command }] },
    });
    let cli = cli::Cli::try_parse_from(["adieu", "plan", "-f", "-", "-o", "json", "--grace", "10"]).unwrap();
    let cli::Command::Plan(args) = cli.command else { panic!("`plan` is not `plan`") };
    let mut out = Vec::new();
    run(&args, &mut pod.to_string().as_bytes(), &mut out, Paint { colours: false }).unwrap();
    let report: Value = serde_json::from_slice(&out).unwrap();
    let pod = &report["pods"][0];
    // One that is over by itself is not there to be asked.
    let facts = pod["timeline"].as_array().unwrap();
    let end = facts.iter().rfind(|fact| fact["what"] == "exited").unwrap();
    let codes: Vec<String> = pod["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|warning| warning["code"].as_str().unwrap().to_owned())
        .collect();
    let killed = codes.iter().any(|code| code == "shell-does-not-wait");
    let ended = match end["byKill"] == true {
        true => Ended::Not,
        false => Ended::Exited(end["code"].as_i64().unwrap(), if killed { Done::Killed } else { Done::Finished }),
    };
    let unsure = codes.iter().any(|code| code == "cannot-tell" || code == "shell-may-swallow-signal");
    Planned { ended, unsure }
}

/// What the shell does, as first process.
fn seen(words: &[&str], script: &str, folder: &Path, marks: &Path, patience: Duration) -> Ended {
    // Whoever runs the tests in the background may ignore SIGINT, and a shell that finds a signal ignored leaves it so.
    let mut unshare = Command::new("env")
        .args(["--default-signal", "unshare", "--fork", "--pid", "--kill-child", "setsid"])
        .args(words)
        .arg(script)
        .current_dir(folder)
        .env("MARK", marks)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let first = settled(&mut unshare);
    let Some(first) = first else {
        let status = unshare.wait().unwrap();
        return Ended::Exited(code(status), Done::Finished);
    };
    let started: BTreeSet<String> = names(marks, "started");
    signal("TERM", first);
    let asked = Instant::now();
    let ended = loop {
        match unshare.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if asked.elapsed() > patience => break None,
            None => thread::sleep(Duration::from_millis(40)),
        }
    };
    match ended {
        Some(status) => {
            // Whoever was asked to leave has said so when it was done; the namespace leaves nobody behind.
            let all = started.is_subset(&names(marks, "done"));
            Ended::Exited(code(status), if all { Done::Finished } else { Done::Killed })
        }
        None => {
            signal("KILL", first);
            unshare.wait().unwrap();
            Ended::Not
        }
    }
}

/// Waits until the script has come to where it stays: everybody in its namespace sleeps, the programs are ready to be
/// asked, and nothing has changed for a while. Nothing if it is over.
fn settled(unshare: &mut Child) -> Option<u32> {
    let (begun, mut same, mut before) = (Instant::now(), 0, Vec::new());
    loop {
        if unshare.try_wait().unwrap().is_some() {
            return None;
        }
        let tree = tree(unshare.id());
        let quiet = match tree.first() {
            Some(first) => {
                let ready = |process: &Process| {
                    !matches!(process.name.as_str(), "server" | "worker")
                        || tree.iter().any(|other| other.parent == process.pid && other.name == "sleep")
                };
                !matches!(first.name.as_str(), "unshare" | "setsid")
                    && (tree.len() > 1 || matches!(first.name.as_str(), "sleep" | "tail"))
                    && tree.iter().all(|process| process.sleeps && ready(process))
            }
            None => false,
        };
        same = if quiet && tree == before { same + 1 } else { 0 };
        if same >= 6 {
            return Some(tree[0].pid);
        }
        if begun.elapsed() > PATIENCE {
            // Its children go with it.
            unshare.kill().unwrap();
            panic!("it does not come to rest: {tree:?}");
        }
        before = tree;
        thread::sleep(Duration::from_millis(30));
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Process {
    pid: u32,
    parent: u32,
    name: String,
    sleeps: bool,
}

/// Everybody below a process, its children first.
fn tree(of: u32) -> Vec<Process> {
    let mut found: Vec<Process> = Vec::new();
    let mut open = vec![of];
    while let Some(parent) = open.pop() {
        let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
        for pid in children.split_whitespace().filter_map(|pid| pid.parse().ok()) {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            // 12 (name) S …
            let Some((name, rest)) = stat.split_once('(').and_then(|(_, rest)| rest.rsplit_once(')')) else { continue };
            found.push(Process { pid, parent, name: name.to_owned(), sleeps: rest.trim_start().starts_with('S') });
            open.push(pid);
        }
    }
    found
}

fn signal(signal: &str, pid: u32) {
    // It may be gone already.
    let _ = Command::new("kill").args(["-s", signal, &pid.to_string()]).stderr(Stdio::null()).status().unwrap();
}

fn code(status: ExitStatus) -> i64 {
    status.code().map_or_else(|| 128 + i64::from(status.signal().unwrap_or(0)), i64::from)
}

fn names(marks: &Path, what: &str) -> BTreeSet<String> {
    let files = fs::read_dir(marks).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    files.filter_map(|name| name.strip_suffix(&format!(".{what}")).map(str::to_owned)).collect()
}

/// The programs of the table, made of a shell.
fn programs(folder: &Path) {
    let server = "#!/bin/dash\n\
                  trap 'kill $!; sleep 1; : > $MARK/${0##*/}.done; exit 0' TERM INT QUIT\n\
                  : > $MARK/${0##*/}.started\n\
                  sleep 1000 & wait\n";
    for (name, text) in [("server", server), ("worker", server), ("migrate", "#!/bin/dash\nexit 0\n")] {
        let path: PathBuf = folder.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
}
