//! What an instance has on this machine outside its files: nothing of it may stay after `adieu down`.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::Instance;

/// The mark on every route that an instance makes.
const ROUTE_PROTOCOL: &str = "173";

/// What the control group of every instance is called, before its id.
const GROUP_PREFIX: &str = "/adieu-";

/// What kind of thing was found.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// A process in a control group of the instance, or one whose command line names its folder.
    Process,
    /// A control group that carries the instance's id.
    ControlGroup,
    /// A mount that all of the machine sees.
    Mount,
    /// A pod's network namespace that somebody is in, or that is pinned.
    Namespace,
    /// The host's end of a pod's link.
    Link,
    /// The node's address in the pod range.
    Address,
    /// A route into the pod range.
    Route,
    /// A packet filter rule.
    Rule,
}

/// One thing that belongs to the instance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leftover {
    /// Its kind.
    pub kind: Kind,
    /// Which one it is, for messages.
    pub what: String,
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.what)
    }
}

/// How to recognise what belongs to an instance: by its names, and by what was noted of its pods while they ran,
/// because links and namespaces do not carry the instance's id.
pub struct Traces {
    id: String,
    dir: String,
    pod_cidr: String,
    links: BTreeSet<String>,
    namespaces: BTreeSet<String>,
}

impl Traces {
    /// Notes the names of the instance, and the links and namespaces of its running pods, which have `pod_ips`.
    pub fn of(instance: &Instance, pod_ips: &[String]) -> Result<Self> {
        Self::of_parts(instance.dir(), instance.pod_cidr(), pod_ips)
    }

    /// The same of whatever runs on the folder `dir` with pods in `pod_cidr`.
    pub fn of_parts(dir: &Path, pod_cidr: &str, pod_ips: &[String]) -> Result<Self> {
        let id = fs::read_to_string(dir.join("instance"))?.trim().to_owned();
        let links = pod_ips.iter().map(|ip| link_to(ip)).collect::<Result<_>>()?;
        let host = fs::read_link("/proc/self/ns/net")?.to_string_lossy().into_owned();
        let mut namespaces = BTreeSet::new();
        for process in Process::all()? {
            if process.is_in(&id) {
                namespaces.extend(process.network.filter(|namespace| *namespace != host));
            }
        }
        ensure!(namespaces.len() >= pod_ips.len(), "{} pods in namespaces {namespaces:?}", pod_ips.len());
        Ok(Self { id, dir: dir.to_string_lossy().into_owned(), pod_cidr: pod_cidr.to_owned(), links, namespaces })
    }

    /// Everything on the machine now that belongs to the instance.
    pub fn find(&self) -> Result<Vec<Leftover>> {
        let mut found = Vec::new();
        let mut note = |kind, what: &str| found.push(Leftover { kind, what: what.to_owned() });
        for process in Process::all()? {
            let shown = format!("{} {}", process.pid, process.words);
            if process.is_in(&self.id) || process.words.contains(&self.dir) {
                note(Kind::Process, &shown);
            }
            // The kernel gives the number of a namespace that is gone to another one: maybe to another instance's pod.
            let is_of_others = process.is_in(GROUP_PREFIX) && !process.is_in(&self.id);
            if !is_of_others && process.network.is_some_and(|network| self.namespaces.contains(&network)) {
                note(Kind::Namespace, &shown);
            }
        }
        for line in fs::read_to_string("/proc/self/mountinfo")?.lines() {
            if line.contains(&self.dir) {
                note(Kind::Mount, line);
            }
            if self.namespaces.iter().any(|namespace| line.contains(namespace)) {
                note(Kind::Namespace, line);
            }
        }
        control_groups(Path::new("/sys/fs/cgroup"), &self.id, &mut |path| note(Kind::ControlGroup, path));
        for link in self.links.iter().filter(|link| Path::new("/sys/class/net").join(link).exists()) {
            note(Kind::Link, link);
        }
        let node_address = format!(" {}1/", self.pod_cidr.trim_end_matches("0/16"));
        let addresses = run("ip", &["-o", "addr", "show", "dev", "lo"])?;
        addresses.lines().filter(|line| line.contains(&node_address)).for_each(|line| note(Kind::Address, line));
        let range = self.pod_cidr.trim_end_matches("0.0/16");
        let routes = run("ip", &["-o", "route", "show", "table", "all", "proto", ROUTE_PROTOCOL])?;
        let in_range = |line: &&str| line.split_whitespace().any(|word| word.starts_with(range));
        routes.lines().filter(in_range).for_each(|line| note(Kind::Route, line));
        let rules = run("nft", &["list", "ruleset"])?;
        rules.lines().filter(|line| line.contains(&self.id)).for_each(|line| note(Kind::Rule, line));
        Ok(found)
    }

    /// Fails, and tells what it is, if anything is left.
    pub fn ensure_none(&self) -> Result<()> {
        let found: Vec<String> = self.find()?.iter().map(ToString::to_string).collect();
        ensure!(found.is_empty(), "left behind: {found:#?}");
        Ok(())
    }
}

/// The link that the host reaches `ip` through.
fn link_to(ip: &str) -> Result<String> {
    let route = run("ip", &["-o", "route", "get", ip])?;
    let device = route.split_whitespace().skip_while(|word| *word != "dev").nth(1);
    device.map(str::to_owned).with_context(|| format!("no link in {route:?}"))
}

/// Runs a program that the tests need and answers what it printed.
fn run(program: &str, words: &[&str]) -> Result<String> {
    let output = Command::new(program).args(words).output();
    let output = output.with_context(|| format!("cannot run {program}; run scripts/setup test"))?;
    ensure!(output.status.success(), "{program} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// What `/proc` says of a process that has not ended.
struct Process {
    pid: u32,
    words: String,
    control_groups: String,
    network: Option<String>,
}

impl Process {
    /// Every process that is more than a zombie, whose parent merely has not looked at it yet.
    fn all() -> Result<Vec<Self>> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let entry = entry?;
            let Ok(pid) = entry.file_name().to_string_lossy().parse() else { continue };
            // Any of these may end while it is looked at: then it is not there.
            let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
            if stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')) {
                continue;
            }
            let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let network = fs::read_link(entry.path().join("ns/net"));
            found.push(Self {
                pid,
                words: String::from_utf8_lossy(&words).replace('\0', " "),
                control_groups: fs::read_to_string(entry.path().join("cgroup")).unwrap_or_default(),
                network: network.ok().map(|link| link.to_string_lossy().into_owned()),
            });
        }
        Ok(found)
    }

    fn is_in(&self, group: &str) -> bool {
        self.control_groups.contains(group)
    }
}

/// Whether any control group carries the instance's id in its name.
pub fn has_control_group(id: &str) -> bool {
    let mut found = false;
    control_groups(Path::new("/sys/fs/cgroup"), id, &mut |_| found = true);
    found
}

/// Control groups that carry the instance's id in their name.
fn control_groups(root: &Path, id: &str, note: &mut impl FnMut(&str)) {
    let Ok(entries) = fs::read_dir(root) else { return };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if entry.file_name().to_string_lossy().contains(id) {
                note(&entry.path().to_string_lossy());
            }
            control_groups(&entry.path(), id, note);
        }
    }
}
