//! Control groups: the v2 hierarchy says who belongs to a container and ends them all; limits go wherever this
//! kernel keeps the controllers.
//!
//! ```text
//! adieu-<instance>/<pod uid>/shim               the pod's shim
//! adieu-<instance>/<pod uid>/<name>.<attempt>   one run of a container; hooks have a group of their own below it
//! adieu-<instance>/besteffort/<pod uid>/..      the same of a pod that asks for nothing
//! ```

mod change;
mod pod;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use serde::{Deserialize, Serialize};

use crate::container::{Doing, SetupError, words};
use crate::contract::Resources;
pub(crate) use pod::BEST_EFFORT;

const V1_CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];
const CPU_PERIOD_US: u64 = 100_000;
/// What the source of an instance's own mount begins with.
const OURS: &str = "adieu-";
/// On every architecture this is built for.
const PAGE_BYTES: u64 = 4096;

/// Where this machine keeps its control groups.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Hierarchies {
    /// Where cgroup2 is mounted.
    v2: PathBuf,
    /// Where each v1 controller we use is mounted; empty on a machine with cgroup2 only.
    v1: BTreeMap<String, PathBuf>,
}

/// A mount of cgroup2 that an instance made for itself, on a machine that boots with v1 hierarchies alone.
///
/// Every kernel has that hierarchy, mounted or not, and every process is in it. Nobody else uses it there, and the v1
/// hierarchies keep their controllers.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct OwnMount {
    at: PathBuf,
    /// Names the instance in the list of mounts.
    source: String,
}

impl OwnMount {
    pub(crate) fn new(at: PathBuf, instance: &str) -> Self {
        Self { at, source: format!("{OURS}{instance}") }
    }

    fn make(&self) -> io::Result<()> {
        fs::create_dir_all(&self.at)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RELATIME;
        Ok(rustix::mount::mount(self.source.as_str(), &self.at, "cgroup2", flags, None)?)
    }

    fn is_made(&self) -> bool {
        rustix::fs::statfs(&self.at).is_ok_and(|stat| stat.f_type == libc::CGROUP2_SUPER_MAGIC)
    }

    /// Takes it away, if it was ever made. The hierarchy itself stays, as it is the kernel's.
    pub(crate) fn remove(&self) -> io::Result<()> {
        while self.is_made() {
            rustix::mount::unmount(&self.at, UnmountFlags::DETACH)?;
        }
        match fs::remove_dir(&self.at) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// What the list of mounts says of control groups.
#[derive(PartialEq, Default, Debug)]
struct Mounted {
    /// Where cgroup2 is mounted for everybody.
    v2: Option<PathBuf>,
    v1: BTreeMap<String, PathBuf>,
}

impl Mounted {
    /// Reads the mounts of this process.
    fn read() -> io::Result<Self> {
        Ok(Self::parse(&fs::read_to_string("/proc/self/mountinfo")?))
    }

    fn parse(mountinfo: &str) -> Self {
        let mut found = Self::default();
        for line in mountinfo.lines() {
            // ID PARENT DEV ROOT TARGET OPTIONS .. - TYPE SOURCE SUPER_OPTIONS
            let Some((left, right)) = line.split_once(" - ") else { continue };
            let (Some(target), mut right) = (left.split(' ').nth(4), right.split(' ')) else { continue };
            let (kind, source) = (right.next(), right.next().unwrap_or_default());
            match kind {
                // An instance's own, which goes with it.
                Some("cgroup2") if source.starts_with(OURS) => {}
                Some("cgroup2") => found.v2 = found.v2.or_else(|| Some(PathBuf::from(target))),
                Some("cgroup") => {
                    let options = right.next().unwrap_or_default();
                    for controller in options.split(',').filter(|option| V1_CONTROLLERS.contains(option)) {
                        found.v1.insert(controller.to_owned(), PathBuf::from(target));
                    }
                }
                _ => {}
            }
        }
        found
    }
}

impl Hierarchies {
    /// Looks at the mounts of this process; where cgroup2 is not among them, an own one is made.
    pub(crate) fn detect(own: &OwnMount) -> io::Result<Self> {
        let found = Mounted::read()?;
        let v2 = match found.v2 {
            Some(v2) => v2,
            None => {
                if !own.is_made() {
                    let explain = |error: io::Error| {
                        let at = own.at.display();
                        let words = format!(
                            "no cgroup2 hierarchy is mounted, and none can be at {at}: {}; mount one by hand: mount -t \
                             cgroup2 none /sys/fs/cgroup",
                            words(&error)
                        );
                        io::Error::new(error.kind(), words)
                    };
                    own.make().map_err(explain)?;
                }
                own.at.clone()
            }
        };
        Ok(Self { v2, v1: found.v1 })
    }

    /// The group of an instance: the parent of all its pods.
    pub(crate) fn instance(&self, instance: &str) -> Group {
        Group { hierarchies: self.clone(), path: PathBuf::from(format!("adieu-{instance}")) }
    }
}

/// One name in every hierarchy.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Group {
    hierarchies: Hierarchies,
    path: PathBuf,
}

impl Group {
    /// The group of this name below.
    pub(crate) fn below(&self, name: &str) -> Self {
        Self { hierarchies: self.hierarchies.clone(), path: self.path.join(name) }
    }

    /// Its directory in the v2 hierarchy.
    pub(crate) fn v2(&self) -> PathBuf {
        self.hierarchies.v2.join(&self.path)
    }

    /// Makes it in the v2 hierarchy, with controllers for its children where cgroup2 has any.
    pub(crate) fn make(&self) -> io::Result<()> {
        let path = self.v2();
        fs::create_dir_all(&path)?;
        if self.hierarchies.v1.is_empty() {
            // From the top down, as each level can only pass on what it was given. A refusal shows as a limit
            // that cannot be applied.
            let mut level = self.hierarchies.v2.clone();
            for part in std::iter::once(Path::new("")).chain(self.path.iter().map(Path::new)) {
                level.push(part);
                for controller in V1_CONTROLLERS {
                    let _ = write_to(&level.join("cgroup.subtree_control"), &format!("+{controller}"));
                }
            }
        }
        Ok(())
    }

    /// Whether this kernel can end all of a group at once (since Linux 5.14). Without that nobody could be sure of the end
    /// of a container, and an absent file would look like an absent group.
    pub(crate) fn can_be_killed(&self) -> io::Result<bool> {
        self.v2().join("cgroup.kill").try_exists()
    }

    /// Kills every process in it and below it.
    pub(crate) fn kill(&self) -> io::Result<()> {
        kill(&self.v2())
    }

    /// Whether any process lives in it or below it.
    pub(crate) fn is_populated(&self) -> bool {
        is_populated(&self.v2())
    }

    /// The processes in it and below it.
    pub(crate) fn processes(&self) -> io::Result<Vec<u32>> {
        processes(&self.v2())
    }

    /// The names of the groups below it, in any hierarchy.
    pub(crate) fn names_below(&self) -> BTreeSet<String> {
        let roots = self.hierarchies.roots();
        let entries = roots.flat_map(|root| fs::read_dir(root.join(&self.path)).into_iter().flatten().flatten());
        let groups = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        groups.filter_map(|group| group.file_name().into_string().ok()).collect()
    }

    /// Removes it and everything below it, in every hierarchy; waits at most about `patience` for each to settle.
    pub(crate) fn remove(&self, patience: Duration) -> io::Result<()> {
        let mut first_error = None;
        for root in self.hierarchies.roots() {
            if let Err(error) = remove_tree(&root.join(&self.path), patience) {
                first_error = first_error.or(Some(error));
            }
        }
        first_error.map_or(Ok(()), Err)
    }
}

/// What the processes of a group use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Usage {
    pub(crate) cpu_nanos: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) processes: u64,
}

impl Group {
    /// What its processes, and those of the groups below it, use.
    ///
    /// Every v2 group counts processor time, whoever has the controller. Memory is counted where it is limited; where
    /// nobody counts it, it is the sum of what each process has.
    pub(crate) fn usage(&self) -> io::Result<Usage> {
        let v2 = self.v2();
        let cpu = field(&fs::read_to_string(v2.join("cpu.stat"))?, "usage_usec").unwrap_or(0);
        let pids = processes(&v2)?;
        let counted = match self.hierarchies.v1.get("memory") {
            Some(root) => working_set(&root.join(&self.path), "memory.usage_in_bytes", "total_inactive_file"),
            None => working_set(&v2, "memory.current", "inactive_file"),
        };
        let resident = || pids.iter().filter_map(|pid| resident(*pid)).sum();
        Ok(Usage {
            cpu_nanos: cpu * 1000,
            memory_bytes: counted.unwrap_or_else(resident),
            processes: pids.len() as u64,
        })
    }
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// Cached files that nobody looked at lately can be had back for nothing.
fn working_set(directory: &Path, usage: &str, reclaimable: &str) -> Option<u64> {
    let used: u64 = fs::read_to_string(directory.join(usage)).ok()?.trim().parse().ok()?;
    let stat = fs::read_to_string(directory.join("memory.stat")).ok()?;
    Some(used.saturating_sub(field(&stat, reclaimable).unwrap_or(0)))
}

fn processes(directory: &Path) -> io::Result<Vec<u32>> {
    let text = fs::read_to_string(directory.join("cgroup.procs"))?;
    let mut pids: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
    for entry in fs::read_dir(directory)?.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        pids.extend(processes(&entry.path())?);
    }
    Ok(pids)
}

fn resident(pid: u32) -> Option<u64> {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * PAGE_BYTES)
}

/// The group of one run of a container, with its limits.
#[derive(Debug)]
pub(crate) struct ContainerCgroup {
    group: Group,
    /// v1 groups its processes have to join by themselves.
    v1: Vec<PathBuf>,
    memory_is_counted: Option<PathBuf>,
    /// Limits this machine could not apply, in words.
    pub(crate) warnings: Vec<String>,
}

impl ContainerCgroup {
    /// Makes the group and sets its limits; a limit that cannot be had is a warning, never a failed start.
    ///
    /// `pod_pids_max` is how many processes all containers of the pod may have together.
    pub(crate) fn make(group: Group, limits: &Resources, pod_pids_max: Option<u64>) -> Result<Self, SetupError> {
        fs::create_dir_all(group.v2()).doing(|| "make the container's cgroup".to_owned())?;
        let mut made = Self { group, v1: Vec::new(), memory_is_counted: None, warnings: Vec::new() };
        if let Some(most) = pod_pids_max {
            made.limit_pod(most);
        }
        made.count(limits);
        made.limit(limits);
        Ok(made)
    }

    /// Has it count beside the other containers of its pod, whatever it asks for: in a v1 hierarchy nobody is in its pod's groups
    /// who does not join them. Who asks for no time weighs the least.
    fn count(&mut self, limits: &Resources) {
        let told = self.warnings.len();
        if limits.cpu_request_millis.is_none() {
            self.weigh(None);
        }
        // Who has no limit may meet its pod's, or the machine's: it ends as a whole then, too.
        match self.group.hierarchies.v1.get("memory").map(|root| root.join(&self.group.path)) {
            Some(directory) => {
                if fs::create_dir_all(directory).is_ok() {
                    self.join("memory");
                }
            }
            None => self.set("memory", "memory.oom.group", "1"),
        }
        // Nobody asked for this.
        self.warnings.truncate(told);
    }

    /// Limits what the pod's group holds, this container's and all beside it. Set again by each container, to the same.
    fn limit_pod(&mut self, pids_max: u64) {
        let Some(pod) = self.group.path.parent().map(Path::to_owned) else { return };
        if !self.set_in(&pod, "pids", "pids.max", &pids_max.to_string()) {
            return;
        }
        // In a group of its own below the pod's, so that it counts there and sees nobody else's.
        let own = self.group.hierarchies.v1.get("pids").map(|root| root.join(&self.group.path));
        match own.map_or(Ok(()), fs::create_dir_all) {
            Ok(()) => self.join("pids"),
            Err(error) => self.warnings.push(format!("pids.max={pids_max} is not applied: {}", words(&error))),
        }
    }

    fn limit(&mut self, limits: &Resources) {
        let v1 = !self.group.hierarchies.v1.is_empty();
        if let Some(bytes) = limits.memory_bytes {
            self.set("memory", if v1 { "memory.limit_in_bytes" } else { "memory.max" }, &bytes.to_string());
            self.forbid_swap(bytes);
        }
        if let Some(millis) = limits.cpu_limit_millis {
            let quota = quota_us(millis);
            if v1 {
                self.set("cpu", "cpu.cfs_period_us", &CPU_PERIOD_US.to_string());
                self.set("cpu", "cpu.cfs_quota_us", &quota.to_string());
            } else {
                self.set("cpu", "cpu.max", &format!("{quota} {CPU_PERIOD_US}"));
            }
        }
        if limits.cpu_request_millis.is_some() {
            self.weigh(limits.cpu_request_millis);
        }
        if let Some(most) = limits.pids {
            self.set("pids", "pids.max", &most.to_string());
        }
    }

    /// Has it weigh as much as who asks for so much time.
    fn weigh(&mut self, millis: Option<u64>) {
        let (file, value) = weight(millis, self.is_unified());
        self.set("cpu", file, &value);
    }

    /// A limit of memory is one of all memory: what does not fit is not to be swapped out instead. Where the kernel does
    /// not count swap, that matters only if there is any.
    fn forbid_swap(&mut self, bytes: u64) {
        let told = self.warnings.len();
        match self.group.hierarchies.v1.is_empty() {
            true => self.set("memory", "memory.swap.max", "0"),
            // This one counts both, and is set after the limit of the one, below which it cannot be.
            false => self.set("memory", "memory.memsw.limit_in_bytes", &bytes.to_string()),
        }
        if !has_swap(&fs::read_to_string("/proc/swaps").unwrap_or_default()) {
            self.warnings.truncate(told);
        }
    }

    fn set(&mut self, controller: &str, file: &str, value: &str) {
        let own = self.group.path.clone();
        if self.set_in(&own, controller, file, value) {
            self.join(controller);
        }
    }

    /// Sets a limit of a group, wherever the controller is; tells whether that was possible.
    fn set_in(&mut self, group: &Path, controller: &str, file: &str, value: &str) -> bool {
        let Some(directory) = self.group.hierarchies.place(controller, group) else {
            self.warnings.push(format!("{file}={value} is not applied: no {controller} controller"));
            return false;
        };
        let written = fs::create_dir_all(&directory).and_then(|()| write_to(&directory.join(file), value));
        if let Err(error) = &written {
            self.warnings.push(format!("{file}={value} is not applied: {}", words(error)));
        }
        written.is_ok()
    }

    /// Has the container's processes count in this controller.
    fn join(&mut self, controller: &str) {
        let v1 = self.group.hierarchies.v1.get(controller).map(|root| root.join(&self.group.path));
        if controller == "memory" {
            self.memory_is_counted = Some(v1.clone().unwrap_or_else(|| self.group.v2()));
        }
        self.v1.extend(v1.filter(|directory| !self.v1.contains(directory)));
    }

    /// Keeps its processes from all devices but the harmless ones. Filtered system calls do that too; this is for
    /// containers without a filter, and for those whose capabilities lead past it.
    pub(crate) fn confine_devices(&self) -> Result<(), SetupError> {
        let group = rustix::fs::open(self.group.v2(), OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .doing(|| "open the container's cgroup".to_owned())?;
        crate::sys::devices::confine(group).doing(|| "confine the container's devices".to_owned())
    }

    /// Its v2 directory, to be cloned into.
    pub(crate) fn open(&self) -> io::Result<OwnedFd> {
        open(&self.group.v2())
    }

    /// Its directory in the v2 hierarchy.
    pub(crate) fn v2(&self) -> PathBuf {
        self.group.v2()
    }

    /// Moves the calling process, which has one thread, into the v1 groups that carry limits.
    ///
    /// By `tasks`: a thread that moves itself holds up nobody, while whoever moves a process (`cgroup.procs`) waits until no
    /// processor of the machine is within a fork or an end, for milliseconds.
    pub(crate) fn join_v1(&self) -> Result<(), SetupError> {
        self.v1.iter().try_for_each(|directory| {
            write_to(&directory.join("tasks"), "0").doing(|| format!("join {}", directory.display()))
        })
    }

    /// The v1 groups that carry its limits, by where their hierarchy is mounted and where they are in it.
    pub(crate) fn v1(&self) -> Vec<(&Path, &Path)> {
        let root = |group: &PathBuf| self.group.hierarchies.v1.values().find(|root| group.starts_with(root));
        self.v1.iter().filter_map(|group| Some((root(group)?.as_path(), group.as_path()))).collect()
    }

    /// Whether cgroup2 holds all controllers of this machine.
    pub(crate) fn is_unified(&self) -> bool {
        self.group.hierarchies.is_unified()
    }

    /// Kills every process in it.
    pub(crate) fn kill(&self) -> io::Result<()> {
        self.group.kill()
    }

    /// Whether any process lives in it.
    pub(crate) fn is_populated(&self) -> bool {
        self.group.is_populated()
    }

    /// Whether the kernel killed something in it for want of memory.
    pub(crate) fn met_oom(&self) -> bool {
        let Some(directory) = &self.memory_is_counted else { return false };
        let file = if self.is_unified() { "memory.events" } else { "memory.oom_control" };
        let text = fs::read_to_string(directory.join(file)).unwrap_or_default();
        text.lines().filter_map(|line| line.strip_prefix("oom_kill ")).any(|count| count.trim() != "0")
    }

    /// Becomes readable when the kernel runs out of memory in a v1 group, a moment before it kills something there.
    ///
    /// With cgroup2 the kernel is told to kill the whole container, and nobody has to listen.
    pub(crate) fn oom_events(&self) -> Option<OwnedFd> {
        let directory = self.memory_is_counted.as_ref().filter(|_| !self.is_unified())?;
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let events = rustix::event::eventfd(0, flags).ok()?;
        let control = fs::File::open(directory.join("memory.oom_control")).ok()?;
        let registration = format!("{} {}", events.as_raw_fd(), control.as_raw_fd());
        write_to(&directory.join("cgroup.event_control"), &registration).ok().map(|()| events)
    }

    /// Removes it; what is still settling is left to the removal of the pod.
    pub(crate) fn remove(&self) {
        let _ = self.group.remove(Duration::ZERO);
    }
}

/// The file of a group's weight, and what stands there of who asks for so many thousandths of a processor; who asks for none
/// weighs the least.
fn weight(millis: Option<u64>, is_unified: bool) -> (&'static str, String) {
    let shares = (millis.unwrap_or(0).saturating_mul(1024) / 1000).clamp(2, 262_144);
    match is_unified {
        true => ("cpu.weight", (1 + (shares - 2) * 9999 / 262_142).to_string()),
        false => ("cpu.shares", shares.to_string()),
    }
}

/// So many thousandths of a processor in each period. The kernel refuses less than a thousandth of a second.
fn quota_us(millis: u64) -> u64 {
    (millis.saturating_mul(CPU_PERIOD_US) / 1000).max(1000)
}

/// Opens a group's directory, to be cloned into.
pub(crate) fn open(directory: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(directory, flags, Mode::empty())?)
}

/// Kills everything in a v2 group and below it; an absent group has nobody left to kill.
pub(crate) fn kill(directory: &Path) -> io::Result<()> {
    match write_to(&directory.join("cgroup.kill"), "1") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Whether any process lives in a v2 group or below it.
pub(crate) fn is_populated(directory: &Path) -> bool {
    fs::read_to_string(directory.join("cgroup.events")).is_ok_and(|text| text.contains("populated 1"))
}

/// Whether `/proc/swaps` lists any, below its headings.
fn has_swap(swaps: &str) -> bool {
    swaps.lines().nth(1).is_some()
}

fn write_to(file: &Path, value: &str) -> io::Result<()> {
    fs::OpenOptions::new().write(true).open(file)?.write_all(value.as_bytes())
}

/// Removes a group and the groups below it. The kernel may call one busy for a few milliseconds after the last exit.
fn remove_tree(directory: &Path, patience: Duration) -> io::Result<()> {
    let mut wait = Duration::from_micros(200);
    // Containers take their groups with them, so that mostly nobody is below: to try costs less than to look.
    let mut below = true;
    loop {
        match fs::remove_dir(directory) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && std::mem::take(&mut below) => {
                // Who has gone meanwhile is not found by the next try.
                for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                    if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                        remove_tree(&entry.path(), patience)?;
                    }
                }
            }
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && wait < patience => {
                std::thread::sleep(wait);
                wait *= 2;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const HYBRID: &str = "\
24 1 0:22 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
25 24 0:23 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
26 24 0:24 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
27 24 0:25 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
";

    #[test]
    fn hybrid_unified_and_legacy_machines_are_told_apart() {
        let hybrid = Mounted::parse(HYBRID);
        assert_eq!(hybrid.v2.as_deref(), Some(Path::new("/sys/fs/cgroup/unified")));
        assert_eq!(hybrid.v1["cpu"], Path::new("/sys/fs/cgroup/cpu,cpuacct"));
        assert_eq!(hybrid.v1.len(), 2);
        let unified = Mounted::parse("30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        assert_eq!((unified.v2.is_some(), unified.v1.is_empty()), (true, true));
        assert_eq!(Mounted::parse("30 1 0:26 / /proc rw - proc proc rw\n"), Mounted::default());
        let legacy = HYBRID.replace("cgroup2 cgroup2 rw", "cgroup2 adieu-x rw");
        let legacy = Mounted::parse(&legacy);
        assert_eq!((legacy.v2, legacy.v1.len()), (None, 2), "an instance's own mount is nobody else's to use");
    }

    #[test]
    fn a_limit_without_its_controller_is_a_warning_also_if_it_is_the_pods() {
        let hierarchies = Hierarchies { v2: "/nowhere".into(), v1: [("cpu".into(), "/nowhere/cpu".into())].into() };
        let group = hierarchies.instance("x");
        let mut cgroup = ContainerCgroup { group, v1: vec![], memory_is_counted: None, warnings: vec![] };
        cgroup.limit(&Resources { pids: Some(7), ..Resources::default() });
        cgroup.limit_pod(9);
        let missing = |most| format!("pids.max={most} is not applied: no pids controller");
        assert_eq!(cgroup.warnings, [missing(7), missing(9)]);
        assert!(cgroup.v1.is_empty(), "nothing to join");
        assert!(!has_swap("Filename Type Size Used Priority\n"));
        assert!(has_swap("Filename Type Size Used Priority\n/dev/sda2 partition 1 0 -2\n"));
    }
}
