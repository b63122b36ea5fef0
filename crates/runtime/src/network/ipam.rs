//! IP address management: a durable log of leases and releases.
//!
//! Addresses that were never used are leased first, then the ones released longest ago, so that a late packet for a dead pod reaches
//! no other pod. A released address rests for at least [`REST`]; if all free addresses rest, the caller is told until when. An address
//! released before the log was opened rests from then. The address of a pod that clients may still know is kept from others for
//! longer (quarantine), while there are others. The log has one JSON line per change. It is rewritten when opened, and when it
//! has grown far beyond its content. Room behind its end is kept for releases: pods leave on a full disk, and none come.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use disk::Reserve;
use serde::{Deserialize, Serialize};

use super::cidr::PodCidr;
use super::error::NetworkError;
use crate::contract::PodUid;

/// Lines that may be appended before the log is written whole again.
const LINES_MAX: usize = 100_000;

/// Room for the releases of a thousand pods.
const RESERVE_BYTES: u64 = 64 << 10;

/// How long a released address rests at least: longer than a pod's link may outlive it.
pub(super) const REST: Duration = Duration::from_secs(2);

/// The answer to a request for an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Lease {
    /// The pod has this address.
    Given(IpAddr),
    /// The pod has this address, which was still in quarantine after that other pod: there is no other left.
    Recycled { address: IpAddr, of: PodUid },
    /// All free addresses rest; the first is available at `until`.
    Resting { until: Instant },
}

/// Leases and releases, in the order they happened.
#[derive(Debug)]
pub(super) struct Ipam {
    path: PathBuf,
    file: File,
    reserve: Reserve,
    range: PodCidr,
    state: State,
    lines_appended: usize,
    /// Counts changes, so that a sync can tell which ones it covered.
    changes: u64,
}

#[derive(Debug)]
struct State {
    leases: HashMap<PodUid, IpAddr>,
    /// Oldest first, and since when.
    released: VecDeque<(IpAddr, Instant)>,
    /// Addresses that clients of these pods may still use, from before they are released until that is known to be over.
    quarantined: HashMap<PodUid, IpAddr>,
    /// The lowest address that was never held.
    unused_from: IpAddr,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum LeaseRecord {
    Range(PodCidr),
    UnusedFrom(IpAddr),
    Lease { address: IpAddr, pod: PodUid },
    Release(IpAddr),
}

impl Ipam {
    /// Opens the log, or starts one.
    pub(super) fn open(path: &Path, range: PodCidr, now: Instant) -> Result<Self, NetworkError> {
        let text = match fs::read(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            other => other.map_err(log_error("read", path))?,
        };
        let state = State::replay(&text, range, path, now)?;
        let file = match write_whole(path, range, &state) {
            Ok(file) => file,
            // A full disk has no room for a second file. The first is as good, only longer.
            Err(error) if !text.is_empty() => {
                tracing::warn!(error = supervision::error_chain(&error), "the log of addresses could not be rewritten");
                go_on_with(path, &text)?
            }
            Err(error) => return Err(error),
        };
        let reserve = Reserve::of_bytes(RESERVE_BYTES);
        let mut ipam = Self { path: path.to_owned(), file, reserve, range, state, lines_appended: 0, changes: 0 };
        ipam.renew_reserve()?;
        Ok(ipam)
    }

    fn renew_reserve(&mut self) -> Result<(), NetworkError> {
        let end = self.file.stream_position().map_err(log_error("write", &self.path))?;
        self.reserve.renew(&self.file, end);
        Ok(())
    }

    /// The pod's address, from now on if it had none. Not durable before a sync.
    pub(super) fn lease(&mut self, pod: &PodUid, now: Instant) -> Result<Lease, NetworkError> {
        if let Some(address) = self.address(pod) {
            return Ok(Lease::Given(address));
        }
        self.renew_reserve()?;
        if self.reserve.is_short() {
            return Err(log_error("write", &self.path)(std::io::ErrorKind::StorageFull.into()));
        }
        let picked = self.state.pick(self.range, now).ok_or(NetworkError::Exhausted { range: self.range })?;
        match &picked {
            Lease::Given(address) => self.append(LeaseRecord::Lease { address: *address, pod: pod.clone() }, now)?,
            Lease::Recycled { address, of } => {
                self.append(LeaseRecord::Lease { address: *address, pod: pod.clone() }, now)?;
                self.state.quarantined.remove(of);
            }
            Lease::Resting { .. } => {}
        }
        Ok(picked)
    }

    /// The pod's address goes to nobody else until the quarantine ends, or no other is left. A restart ends it.
    pub(super) fn quarantine(&mut self, pod: &PodUid) {
        if let Some(address) = self.address(pod) {
            self.state.quarantined.insert(pod.clone(), address);
        }
    }

    /// Nobody sends anything to the pod's former address any more.
    pub(super) fn end_quarantine(&mut self, pod: &PodUid) {
        self.state.quarantined.remove(pod);
    }

    /// How many addresses are kept from others.
    pub(super) fn quarantined(&self) -> usize {
        self.state.quarantined.len()
    }

    /// Takes the pod's address back; tells which it was.
    pub(super) fn release(&mut self, pod: &PodUid, now: Instant) -> Result<Option<IpAddr>, NetworkError> {
        let Some(address) = self.address(pod) else { return Ok(None) };
        self.append(LeaseRecord::Release(address), now)?;
        Ok(Some(address))
    }

    pub(super) fn address(&self, pod: &PodUid) -> Option<IpAddr> {
        self.state.leases.get(pod).copied()
    }

    pub(super) fn is_leased(&self, address: IpAddr) -> bool {
        self.state.leases.values().any(|&leased| leased == address)
    }

    pub(super) fn pods(&self) -> Vec<PodUid> {
        self.state.leases.keys().cloned().collect()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// How many changes there were, and the file that a sync makes them durable in.
    pub(super) fn unsynced(&self) -> Result<(u64, File), NetworkError> {
        Ok((self.changes, self.file.try_clone().map_err(log_error("sync", &self.path))?))
    }

    /// Writes first and believes second: a full disk must not leave the two apart.
    fn append(&mut self, line: LeaseRecord, now: Instant) -> Result<(), NetworkError> {
        let before = self.file.stream_position().map_err(log_error("write", &self.path))?;
        if let Err(error) = self.file.write_all(&encode(&line)) {
            // Half a line must not stay in the way of the next.
            let undone = self.file.set_len(before).and_then(|()| self.file.seek(SeekFrom::Start(before)));
            // The room behind the end went with it.
            self.reserve = Reserve::of_bytes(RESERVE_BYTES);
            self.renew_reserve()?;
            return Err(log_error("write", &self.path)(undone.err().unwrap_or(error)));
        }
        self.state.apply(line, now);
        self.changes += 1;
        self.lines_appended += 1;
        // Not on a full disk: what is needed now is in the file.
        if self.lines_appended > LINES_MAX && !self.reserve.is_short() {
            self.file = write_whole(&self.path, self.range, &self.state)?;
            self.reserve = Reserve::of_bytes(RESERVE_BYTES);
            self.lines_appended = 0;
        }
        self.renew_reserve()
    }
}

impl State {
    fn new(range: PodCidr) -> Self {
        Self {
            leases: HashMap::new(),
            released: VecDeque::new(),
            quarantined: HashMap::new(),
            unused_from: *range.pod_addresses().start(),
        }
    }

    fn replay(text: &[u8], range: PodCidr, path: &Path, now: Instant) -> Result<Self, NetworkError> {
        let mut state = Self::new(range);
        let mut held = range;
        // What follows the last line end was cut off in the middle of a write: nobody was told of it.
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(&text[..0], |end| &text[..end]);
        for (number, line) in
            whole.split(|&byte| byte == b'\n').enumerate().filter(|(_, line)| !line.trim_ascii().is_empty())
        {
            let damaged = |_| NetworkError::BookDamaged { path: path.to_owned(), line: number + 1 };
            match serde_json::from_slice(line).map_err(damaged)? {
                LeaseRecord::Range(range) => held = range,
                line @ (LeaseRecord::UnusedFrom(_) | LeaseRecord::Lease { .. } | LeaseRecord::Release(_)) => {
                    state.apply(line, now)
                }
            }
        }
        match (held == range, state.leases.len()) {
            (true, _) => Ok(state),
            (false, 0) => Ok(Self::new(range)),
            (false, pods) => Err(NetworkError::RangeChanged { asked: range, held, pods }),
        }
    }

    fn apply(&mut self, line: LeaseRecord, now: Instant) {
        match line {
            LeaseRecord::Range(_) => {}
            LeaseRecord::UnusedFrom(address) => self.unused_from = address,
            LeaseRecord::Lease { address, pod } => {
                match self.released.front().is_some_and(|(released, _)| *released == address) {
                    true => _ = self.released.pop_front(),
                    false => self.released.retain(|(released, _)| *released != address),
                }
                self.unused_from = self.unused_from.max(next(address));
                self.leases.insert(pod, address);
            }
            LeaseRecord::Release(address) => {
                self.leases.retain(|_, leased| *leased != address);
                self.released.push_back((address, now));
            }
        }
    }

    fn pick(&self, range: PodCidr, now: Instant) -> Option<Lease> {
        if range.pod_addresses().contains(&self.unused_from) {
            return Some(Lease::Given(self.unused_from));
        }
        let holder = |address| self.quarantined.iter().find(|(_, held)| **held == address).map(|(pod, _)| pod.clone());
        // One in quarantine is better than none.
        let free = self.released.iter().find(|(address, _)| holder(*address).is_none());
        let (address, since) = *free.or(self.released.front())?;
        let until = since + REST;
        Some(match holder(address) {
            _ if until > now => Lease::Resting { until },
            Some(of) => Lease::Recycled { address, of },
            None => Lease::Given(address),
        })
    }

    fn lines(&self, range: PodCidr) -> impl Iterator<Item = LeaseRecord> {
        let released = self.released.iter().map(|(address, _)| LeaseRecord::Release(*address));
        let leases = self.leases.iter().map(|(pod, &address)| LeaseRecord::Lease { address, pod: pod.clone() });
        [LeaseRecord::Range(range), LeaseRecord::UnusedFrom(self.unused_from)].into_iter().chain(released).chain(leases)
    }
}

fn next(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits().saturating_add(1)).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits().saturating_add(1)).into(),
    }
}

fn encode(line: &LeaseRecord) -> Vec<u8> {
    let mut text = serde_json::to_vec(line).expect("addresses and names always have a JSON form");
    text.push(b'\n');
    text
}

/// Replaces the log by one that says only how things stand.
fn write_whole(path: &Path, range: PodCidr, state: &State) -> Result<File, NetworkError> {
    let temporary = path.with_extension("new");
    let text: Vec<u8> = state.lines(range).flat_map(|line| encode(&line)).collect();
    let mut file = File::create(&temporary).map_err(log_error("create", &temporary))?;
    file.write_all(&text).and_then(|()| file.sync_all()).map_err(log_error("write", &temporary))?;
    fs::rename(&temporary, path).map_err(log_error("create", path))?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(log_error("sync", folder))?;
    Ok(file)
}

/// Opens the log as it is, behind its last whole line. What may follow that is overwritten by blanks, for cutting it off would give
/// away the room that is kept behind it.
fn go_on_with(path: &Path, text: &[u8]) -> Result<File, NetworkError> {
    let end = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
    let mut file = File::options().write(true).open(path).map_err(log_error("open", path))?;
    let mut rest = vec![b' '; text.len() - end];
    if let Some(last) = rest.last_mut() {
        *last = b'\n';
    }
    let written = file.seek(SeekFrom::Start(end as u64)).and_then(|_| file.write_all(&rest));
    written.and_then(|()| file.sync_all()).map_err(log_error("write", path))?;
    Ok(file)
}

fn log_error(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> NetworkError {
    let path = path.to_owned();
    move |source| NetworkError::LeaseLog { doing, path, source }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn pod(name: &str) -> PodUid {
        PodUid(name.to_owned())
    }

    fn address(last: u8) -> IpAddr {
        [10, 86, 0, last].into()
    }

    fn small() -> PodCidr {
        "10.86.0.0/29".parse().unwrap()
    }

    /// Asks long after everything that happened before.
    fn leased(ipam: &mut Ipam, name: &str) -> IpAddr {
        match ipam.lease(&pod(name), Instant::now() + REST).unwrap() {
            Lease::Given(address) => address,
            Lease::Recycled { .. } | Lease::Resting { .. } => panic!("no address for {name}"),
        }
    }

    fn open(path: &Path, range: PodCidr) -> Result<Ipam, NetworkError> {
        Ipam::open(path, range, Instant::now())
    }

    fn released(ipam: &mut Ipam, name: &str) -> Option<IpAddr> {
        ipam.release(&pod(name), Instant::now()).unwrap()
    }

    #[test]
    fn addresses_rest_as_long_as_possible_before_they_are_used_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut ipam = open(&dir.path().join("addresses"), small()).unwrap();
        for (name, last) in [("a", 2), ("b", 3), ("c", 4)] {
            assert_eq!(leased(&mut ipam, name), address(last));
        }
        assert_eq!(released(&mut ipam, "b"), Some(address(3)));
        assert_eq!(released(&mut ipam, "a"), Some(address(2)));
        assert_eq!(released(&mut ipam, "a"), None, "released once");
        for (name, last) in [("d", 5), ("e", 6), ("f", 3), ("g", 2)] {
            assert_eq!(leased(&mut ipam, name), address(last), "{name}");
            assert_eq!(leased(&mut ipam, name), address(last), "asked twice");
        }
        assert!(matches!(ipam.lease(&pod("h"), Instant::now()), Err(NetworkError::Exhausted { .. })));
    }

    #[test]
    fn an_address_rests_even_if_there_is_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("addresses");
        let begin = Instant::now();
        let after = |millis| begin + Duration::from_millis(millis);
        let tiny = "10.86.0.0/30".parse().unwrap();
        let mut ipam = Ipam::open(&path, tiny, begin).unwrap();
        assert_eq!(ipam.lease(&pod("a"), begin).unwrap(), Lease::Given(address(2)));
        ipam.release(&pod("a"), after(100)).unwrap();
        let until = after(100) + REST;
        assert_eq!(ipam.lease(&pod("b"), after(101)).unwrap(), Lease::Resting { until });
        assert_eq!(ipam.address(&pod("b")), None);
        // Nobody knows when it was released once the log is opened again.
        let mut ipam = Ipam::open(&path, tiny, after(200)).unwrap();
        assert_eq!(ipam.lease(&pod("b"), until).unwrap(), Lease::Resting { until: after(200) + REST });
        assert_eq!(ipam.lease(&pod("b"), after(200) + REST).unwrap(), Lease::Given(address(2)));
    }

    #[test]
    fn quarantined_address_is_used_again_only_when_the_quarantine_ends_or_no_other_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let mut ipam = open(&dir.path().join("addresses"), small()).unwrap();
        for name in ["a", "b", "c", "d", "e"] {
            leased(&mut ipam, name);
        }
        ipam.quarantine(&pod("a"));
        ipam.quarantine(&pod("b"));
        ipam.quarantine(&pod("nobody"));
        assert_eq!(ipam.quarantined(), 2);
        for name in ["a", "b", "c"] {
            released(&mut ipam, name);
        }
        assert_eq!(leased(&mut ipam, "f"), address(4), "a and b were released before, and are still used");
        ipam.end_quarantine(&pod("b"));
        assert_eq!(leased(&mut ipam, "g"), address(3));
        let recycled = Lease::Recycled { address: address(2), of: pod("a") };
        assert_eq!(ipam.lease(&pod("h"), Instant::now() + REST).unwrap(), recycled);
        assert_eq!(ipam.lease(&pod("h"), Instant::now()).unwrap(), Lease::Given(address(2)), "asked twice");
        assert_eq!(ipam.quarantined(), 0);
    }

    #[test]
    fn ipam_restart_changes_no_lease() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("addresses");
        let mut ipam = open(&path, small()).unwrap();
        for name in ["a", "b", "c", "d", "e"] {
            leased(&mut ipam, name);
        }
        for name in ["d", "b"] {
            released(&mut ipam, name);
        }
        for _ in 0..3 {
            ipam = open(&path, small()).unwrap();
        }
        assert_eq!(ipam.address(&pod("c")), Some(address(4)));
        assert!(ipam.is_leased(address(4)) && !ipam.is_leased(address(3)));
        assert_eq!(leased(&mut ipam, "f"), address(5));
        assert_eq!(leased(&mut ipam, "g"), address(3));
    }

    #[test]
    fn a_line_cut_off_by_a_crash_is_forgotten_and_damage_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("addresses");
        leased(&mut open(&path, small()).unwrap(), "a");
        let whole = fs::read(&path).unwrap();
        fs::write(&path, [&whole[..], br#"{"lease":{"addr"#].concat()).unwrap();
        let ipam = open(&path, small()).unwrap();
        assert_eq!(ipam.pods(), [pod("a")]);
        fs::write(&path, [b"nonsense\n", &whole[..]].concat()).unwrap();
        assert!(matches!(open(&path, small()), Err(NetworkError::BookDamaged { line: 1, .. })));
    }

    #[test]
    fn the_range_may_change_only_when_no_pod_holds_an_address() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("addresses");
        let other = "10.99.0.0/16".parse().unwrap();
        leased(&mut open(&path, small()).unwrap(), "a");
        let error = open(&path, other).unwrap_err();
        assert!(error.to_string().contains("1 pods still hold addresses of 10.86.0.0/29"), "{error}");
        released(&mut open(&path, small()).unwrap(), "a");
        let mut ipam = open(&path, other).unwrap();
        assert_eq!(leased(&mut ipam, "b"), IpAddr::from([10, 99, 0, 2]));
    }

    #[test]
    fn ipv4_and_ipv6_leases_are_kept() {
        let line = LeaseRecord::Lease { address: "fd00::ff".parse().unwrap(), pod: pod("a") };
        let read: LeaseRecord = serde_json::from_slice(&encode(&line)).unwrap();
        let mut state = State::new(small());
        state.apply(read, Instant::now());
        assert_eq!(state.leases[&pod("a")], "fd00::ff".parse::<IpAddr>().unwrap());
        assert_eq!(state.unused_from, "fd00::100".parse::<IpAddr>().unwrap());
    }
}
