//! Who holds which address: a log of leases and releases that outlives the agent.
//!
//! Addresses that were never used go first, then the ones released longest ago, so that a late packet for a dead pod
//! meets nobody for as long as possible. The log is one JSON line per change; it is written whole again when opened
//! and when it has grown far beyond what it says.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::cidr::PodCidr;
use super::error::NetworkError;
use crate::contract::PodUid;

/// Lines that may be appended before the log is written whole again.
const LINES_MAX: usize = 100_000;

/// Leases and releases, in the order they happened.
#[derive(Debug)]
pub(super) struct AddressBook {
    path: PathBuf,
    file: File,
    range: PodCidr,
    state: State,
    lines_appended: usize,
    /// Counts changes, so that a sync can tell which ones it covered.
    changes: u64,
}

#[derive(Debug)]
struct State {
    leases: HashMap<PodUid, Ipv4Addr>,
    /// Oldest first.
    released: VecDeque<Ipv4Addr>,
    /// The lowest address that was never held.
    unused_from: Ipv4Addr,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Range(PodCidr),
    UnusedFrom(Ipv4Addr),
    Lease { address: Ipv4Addr, pod: PodUid },
    Release(Ipv4Addr),
}

impl AddressBook {
    /// Opens the log, or starts one.
    pub(super) fn open(path: &Path, range: PodCidr) -> Result<Self, NetworkError> {
        let text = match fs::read(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            other => other.map_err(book("read", path))?,
        };
        let state = State::replay(&text, range, path)?;
        let file = write_whole(path, range, &state)?;
        Ok(Self { path: path.to_owned(), file, range, state, lines_appended: 0, changes: 0 })
    }

    /// The pod's address, from now on if it had none. Not durable before a sync.
    pub(super) fn lease(&mut self, pod: &PodUid) -> Result<Ipv4Addr, NetworkError> {
        if let Some(address) = self.address(pod) {
            return Ok(address);
        }
        let address = self.state.pick(self.range).ok_or(NetworkError::Exhausted { range: self.range })?;
        self.append(Line::Lease { address, pod: pod.clone() })?;
        Ok(address)
    }

    /// Takes the pod's address back; tells which it was.
    pub(super) fn release(&mut self, pod: &PodUid) -> Result<Option<Ipv4Addr>, NetworkError> {
        let Some(address) = self.address(pod) else { return Ok(None) };
        self.append(Line::Release(address))?;
        Ok(Some(address))
    }

    pub(super) fn address(&self, pod: &PodUid) -> Option<Ipv4Addr> {
        self.state.leases.get(pod).copied()
    }

    pub(super) fn is_leased(&self, address: Ipv4Addr) -> bool {
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
        Ok((self.changes, self.file.try_clone().map_err(book("sync", &self.path))?))
    }

    /// Writes first and believes second: a full disk must not leave the two apart.
    fn append(&mut self, line: Line) -> Result<(), NetworkError> {
        let before = self.file.stream_position().map_err(book("write", &self.path))?;
        if let Err(error) = self.file.write_all(&encode(&line)) {
            // Half a line must not stay in the way of the next.
            let undone = self.file.set_len(before).and_then(|()| self.file.seek(SeekFrom::Start(before)));
            return Err(book("write", &self.path)(undone.err().unwrap_or(error)));
        }
        self.state.apply(line);
        self.changes += 1;
        self.lines_appended += 1;
        if self.lines_appended > LINES_MAX {
            self.file = write_whole(&self.path, self.range, &self.state)?;
            self.lines_appended = 0;
        }
        Ok(())
    }
}

impl State {
    fn new(range: PodCidr) -> Self {
        Self { leases: HashMap::new(), released: VecDeque::new(), unused_from: *range.pod_addresses().start() }
    }

    fn replay(text: &[u8], range: PodCidr, path: &Path) -> Result<Self, NetworkError> {
        let mut state = Self::new(range);
        let mut held = range;
        // What follows the last line end was cut off in the middle of a write: nobody was told of it.
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(&text[..0], |end| &text[..end]);
        for (number, line) in whole.split(|&byte| byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty()) {
            let damaged = |_| NetworkError::BookDamaged { path: path.to_owned(), line: number + 1 };
            match serde_json::from_slice(line).map_err(damaged)? {
                Line::Range(range) => held = range,
                line @ (Line::UnusedFrom(_) | Line::Lease { .. } | Line::Release(_)) => state.apply(line),
            }
        }
        match (held == range, state.leases.len()) {
            (true, _) => Ok(state),
            (false, 0) => Ok(Self::new(range)),
            (false, pods) => Err(NetworkError::RangeChanged { asked: range, held, pods }),
        }
    }

    fn apply(&mut self, line: Line) {
        match line {
            Line::Range(_) => {}
            Line::UnusedFrom(address) => self.unused_from = address,
            Line::Lease { address, pod } => {
                match self.released.front() == Some(&address) {
                    true => _ = self.released.pop_front(),
                    false => self.released.retain(|&released| released != address),
                }
                self.unused_from = self.unused_from.max(next(address));
                self.leases.insert(pod, address);
            }
            Line::Release(address) => {
                self.leases.retain(|_, leased| *leased != address);
                self.released.push_back(address);
            }
        }
    }

    fn pick(&self, range: PodCidr) -> Option<Ipv4Addr> {
        match range.pod_addresses().contains(&self.unused_from) {
            true => Some(self.unused_from),
            false => self.released.front().copied(),
        }
    }

    fn lines(&self, range: PodCidr) -> impl Iterator<Item = Line> {
        let released = self.released.iter().copied().map(Line::Release);
        let leases = self.leases.iter().map(|(pod, &address)| Line::Lease { address, pod: pod.clone() });
        [Line::Range(range), Line::UnusedFrom(self.unused_from)].into_iter().chain(released).chain(leases)
    }
}

fn next(address: Ipv4Addr) -> Ipv4Addr {
    Ipv4Addr::from_bits(address.to_bits().saturating_add(1))
}

fn encode(line: &Line) -> Vec<u8> {
    let mut text = serde_json::to_vec(line).expect("addresses and names always have a JSON form");
    text.push(b'\n');
    text
}

/// Replaces the log by one that says only how things stand.
fn write_whole(path: &Path, range: PodCidr, state: &State) -> Result<File, NetworkError> {
    let temporary = path.with_extension("new");
    let text: Vec<u8> = state.lines(range).flat_map(|line| encode(&line)).collect();
    let mut file = File::create(&temporary).map_err(book("create", &temporary))?;
    file.write_all(&text).and_then(|()| file.sync_all()).map_err(book("write", &temporary))?;
    fs::rename(&temporary, path).map_err(book("create", path))?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(book("sync", folder))?;
    Ok(file)
}

fn book(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> NetworkError {
    let path = path.to_owned();
    move |source| NetworkError::Book { doing, path, source }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn pod(name: &str) -> PodUid {
        PodUid(name.to_owned())
    }

    fn address(last: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 86, 0, last)
    }

    fn small() -> PodCidr {
        "10.86.0.0/29".parse().unwrap()
    }

    #[test]
    fn addresses_rest_as_long_as_possible_before_they_are_used_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut book = AddressBook::open(&dir.path().join("addresses"), small()).unwrap();
        for (name, last) in [("a", 2), ("b", 3), ("c", 4)] {
            assert_eq!(book.lease(&pod(name)).unwrap(), address(last));
        }
        assert_eq!(book.release(&pod("b")).unwrap(), Some(address(3)));
        assert_eq!(book.release(&pod("a")).unwrap(), Some(address(2)));
        assert_eq!(book.release(&pod("a")).unwrap(), None, "released once");
        for (name, last) in [("d", 5), ("e", 6), ("f", 3), ("g", 2)] {
            assert_eq!(book.lease(&pod(name)).unwrap(), address(last), "{name}");
            assert_eq!(book.lease(&pod(name)).unwrap(), address(last), "asked twice");
        }
        assert!(matches!(book.lease(&pod("h")), Err(NetworkError::Exhausted { .. })));
    }

    #[test]
    fn a_restart_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("addresses");
        let mut book = AddressBook::open(&path, small()).unwrap();
        for name in ["a", "b", "c", "d", "e"] {
            book.lease(&pod(name)).unwrap();
        }
        for name in ["d", "b"] {
            book.release(&pod(name)).unwrap();
        }
        for _ in 0..3 {
            book = AddressBook::open(&path, small()).unwrap();
        }
        assert_eq!(book.address(&pod("c")), Some(address(4)));
        assert!(book.is_leased(address(4)) && !book.is_leased(address(3)));
        assert_eq!(book.lease(&pod("f")).unwrap(), address(5));
        assert_eq!(book.lease(&pod("g")).unwrap(), address(3));
    }

    #[test]
    fn a_line_cut_off_by_a_crash_is_forgotten_and_damage_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("addresses");
        AddressBook::open(&path, small()).unwrap().lease(&pod("a")).unwrap();
        let whole = fs::read(&path).unwrap();
        fs::write(&path, [&whole[..], br#"{"lease":{"addr"#].concat()).unwrap();
        let book = AddressBook::open(&path, small()).unwrap();
        assert_eq!(book.pods(), [pod("a")]);
        fs::write(&path, [b"nonsense\n", &whole[..]].concat()).unwrap();
        assert!(matches!(AddressBook::open(&path, small()), Err(NetworkError::BookDamaged { line: 1, .. })));
    }

    #[test]
    fn the_range_may_change_only_when_no_pod_holds_an_address() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("addresses");
        let other = "10.99.0.0/16".parse().unwrap();
        AddressBook::open(&path, small()).unwrap().lease(&pod("a")).unwrap();
        let error = AddressBook::open(&path, other).unwrap_err();
        assert!(error.to_string().contains("1 pods still hold addresses of 10.86.0.0/29"), "{error}");
        AddressBook::open(&path, small()).unwrap().release(&pod("a")).unwrap();
        let mut book = AddressBook::open(&path, other).unwrap();
        assert_eq!(book.lease(&pod("b")).unwrap(), Ipv4Addr::new(10, 99, 0, 2));
    }
}
