//! The disk under everything that the agent and the store write: the same calls of the C library, on files in memory, with the
//! habits of a real one.
//!
//! What was written and not synced is there until power is lost. Then every sector of 512 bytes that was not synced has landed or has
//! not, and of the names that were made, changed or removed without a sync of their folder only the first few are. A full disk
//! takes what has its place already, and nothing else. [`crate::stand_in`] leads the calls of a simulated thread here; those of all
//! others, and all that are about other files, go to the kernel. Folders, and what is deleted by `file-tree`, are durable at once.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use testkit::Dice;

use crate::dice::dice;
use crate::faults::Fault;
use crate::flaws::{self, WorldFlaw};
use crate::scenario::Scenario;

/// What lands or does not, as a whole.
const SECTOR: usize = 512;

/// The disk of this thread's world.
pub struct Disk {
    root: PathBuf,
    /// Names that were taken away, so that they can be given back.
    stash: PathBuf,
    seed: u64,
    /// Whether power is ever lost: otherwise nobody asks what was synced.
    loses_power: bool,
    faults: Vec<Fault>,
    files: BTreeMap<u64, Unsynced>,
    names: Vec<NameChange>,
    stashed: u64,
    losses: u64,
}

/// A file whose newest writes are not durable.
struct Unsynced {
    file: File,
    durable: Vec<u8>,
    changes: Vec<Change>,
}

enum Change {
    Write(u64, Vec<u8>),
    Length(u64),
}

/// A change of a folder that is not durable.
struct NameChange {
    folder: PathBuf,
    what: Named,
}

enum Named {
    Made(PathBuf),
    /// From where, to where, and what was there.
    Moved(PathBuf, PathBuf, Option<PathBuf>),
    /// What had the name.
    Removed(PathBuf, PathBuf),
}

/// What becomes of a write.
pub enum Taken {
    /// All of it is written by the kernel.
    All,
    /// So many bytes of it are.
    Part(usize),
    /// Nothing is: the disk is full.
    Nothing,
}

thread_local! {
    static DISK: RefCell<Option<Disk>> = const { RefCell::new(None) };
}

/// This thread's world has a disk from now on.
pub fn enter(root: &Path, scenario: &Scenario) {
    let disk = Disk {
        root: root.to_owned(),
        stash: root.join("stash"),
        seed: scenario.seed,
        loses_power: scenario.crashes.iter().any(|crash| crash.power),
        faults: scenario.faults.iter().filter(|fault| matches!(fault, Fault::Full(..))).cloned().collect(),
        files: BTreeMap::new(),
        names: Vec::new(),
        stashed: 0,
        losses: 0,
    };
    if !disk.loses_power && disk.faults.is_empty() {
        return;
    }
    fs::create_dir_all(&disk.stash).expect("a folder in memory");
    DISK.set(Some(disk));
}

/// It has none any more.
pub fn leave() {
    DISK.set(None);
}

/// Power is lost: what was not synced is there or is not.
pub fn lose_power() {
    // Taken out, so that what is done here is the kernel's.
    let Some(mut disk) = DISK.take() else { return };
    disk.losses += 1;
    let mut dice = dice(disk.seed, "power", "-", disk.losses);
    disk.lose_names(&mut dice);
    disk.lose_writes(&mut dice);
    DISK.set(Some(disk));
}

/// Asks the disk of this thread, if it has one and is not being asked already.
fn with<T>(ask: impl FnOnce(&mut Disk) -> T) -> Option<T> {
    DISK.try_with(|disk| disk.try_borrow_mut().ok()?.as_mut().map(ask)).ok().flatten()
}

/// Which file of the disk this descriptor is of.
fn file_of(disk: &Disk, descriptor: i32) -> Option<PathBuf> {
    let path = fs::read_link(format!("/proc/self/fd/{descriptor}")).ok()?;
    disk.is_ours(&path).then_some(path)
}

/// Something is about to be written; `at` is where, or nowhere in particular.
pub fn writing(descriptor: i32, bytes: &[u8], at: Option<u64>, now_ms: u64) -> Taken {
    let taken = with(|disk| {
        let path = file_of(disk, descriptor)?;
        let at = at.or_else(|| position(descriptor))?;
        if disk.is_full(&path, now_ms) {
            let room = usize::try_from(allocated(descriptor)?.saturating_sub(at)).unwrap_or(usize::MAX);
            if room < bytes.len() {
                return Some(if room == 0 { Taken::Nothing } else { Taken::Part(room) });
            }
        }
        if disk.loses_power {
            disk.unsynced(descriptor)?.changes.push(Change::Write(at, bytes.to_owned()));
        }
        Some(Taken::All)
    });
    taken.flatten().unwrap_or(Taken::All)
}

/// The length of a file is about to be changed.
pub fn cutting(descriptor: i32, length: u64) {
    with(|disk| {
        file_of(disk, descriptor)?;
        if disk.loses_power {
            disk.unsynced(descriptor)?.changes.push(Change::Length(length));
        }
        Some(())
    });
}

/// A file or a folder was synced.
pub fn synced(descriptor: i32) {
    with(|disk| {
        let path = file_of(disk, descriptor)?;
        let is_store = path.starts_with(disk.root.join("store"));
        let is_forgotten = flaws::has(WorldFlaw::SyncsNoStore) && is_store
            || flaws::has(WorldFlaw::SyncsNoJournal) && !is_store
            || flaws::has(WorldFlaw::SyncsNoFolder) && path.is_dir();
        if is_forgotten {
            return None;
        }
        if path.is_dir() {
            disk.names.retain(|change| change.folder != path);
        } else {
            let inode = File::open(format!("/proc/self/fd/{descriptor}")).and_then(|file| file.metadata()).ok()?.ino();
            disk.files.remove(&inode);
        }
        Some(())
    });
}

/// A file is about to be opened, and made if it is not there.
pub fn making(path: &Path) {
    with(|disk| {
        if disk.loses_power && disk.is_ours(path) && !path.exists() {
            disk.note(path, Named::Made(path.to_owned()));
        }
    });
}

/// A file is about to be renamed.
pub fn moving(from: &Path, to: &Path) {
    with(|disk| {
        if disk.loses_power && disk.is_ours(to) {
            let before = disk.keep(to);
            disk.note(to, Named::Moved(from.to_owned(), to.to_owned(), before));
        }
    });
}

/// A name is about to be removed.
pub fn removing(path: &Path) {
    with(|disk| {
        if disk.loses_power && disk.is_ours(path) {
            let kept = disk.keep(path)?;
            disk.note(path, Named::Removed(path.to_owned(), kept));
        }
        Some(())
    });
}

/// How much of a file has its place on the disk, whether it was written or only reserved.
fn allocated(descriptor: i32) -> Option<u64> {
    fs::metadata(format!("/proc/self/fd/{descriptor}")).ok().map(|metadata| metadata.blocks() * SECTOR as u64)
}

fn position(descriptor: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("pos:"))?.trim().parse().ok()
}

impl Disk {
    fn is_ours(&self, path: &Path) -> bool {
        let folder = path.strip_prefix(&self.root).ok().and_then(|rest| rest.iter().next());
        folder.and_then(|name| name.to_str()).is_some_and(|name| name == "store" || name.starts_with("node"))
    }

    fn is_full(&self, path: &Path, now_ms: u64) -> bool {
        let Some(folder) = path.strip_prefix(&self.root).ok().and_then(|rest| rest.iter().next()?.to_str()) else {
            return false;
        };
        self.faults.iter().any(|fault| match fault {
            Fault::Full(part, span) => span.covers(now_ms) && part.holds(folder),
            Fault::Lost(_) | Fault::Refused(_) | Fault::Late(..) | Fault::Away(_) => false,
        })
    }

    fn unsynced(&mut self, descriptor: i32) -> Option<&mut Unsynced> {
        let file = OpenOptions::new().read(true).write(true).open(format!("/proc/self/fd/{descriptor}")).ok()?;
        let inode = file.metadata().ok()?.ino();
        match self.files.entry(inode) {
            Entry::Occupied(known) => Some(known.into_mut()),
            Entry::Vacant(place) => {
                let durable = fs::read(format!("/proc/self/fd/{descriptor}")).ok()?;
                Some(place.insert(Unsynced { file, durable, changes: Vec::new() }))
            }
        }
    }

    fn note(&mut self, path: &Path, what: Named) {
        let folder = path.parent().unwrap_or(path).to_owned();
        self.names.push(NameChange { folder, what });
    }

    /// A second name for what has this one.
    fn keep(&mut self, path: &Path) -> Option<PathBuf> {
        self.stashed += 1;
        let kept = self.stash.join(self.stashed.to_string());
        fs::hard_link(path, &kept).ok().map(|()| kept)
    }

    /// Changes of names become durable in their order.
    fn lose_names(&mut self, dice: &mut Dice) {
        let kept = usize::try_from(dice.below(self.names.len() as u64 + 1)).unwrap_or(0);
        for change in self.names.drain(..).skip(kept).collect::<Vec<_>>().into_iter().rev() {
            // What somebody has removed since, a whole folder perhaps, is gone.
            let _ = match change.what {
                Named::Made(path) => fs::remove_file(path),
                Named::Removed(path, kept) => fs::hard_link(kept, path),
                Named::Moved(from, to, before) => {
                    fs::rename(&to, from).and_then(|()| before.map_or(Ok(()), |before| fs::hard_link(before, to)))
                }
            };
        }
    }

    fn lose_writes(&mut self, dice: &mut Dice) {
        for (_, Unsynced { file, durable, changes }) in std::mem::take(&mut self.files) {
            let mut content = durable;
            for change in changes {
                match change {
                    Change::Length(length) if dice.once_in(2) => content.truncate(usize::try_from(length).unwrap_or(0)),
                    Change::Length(_) => {}
                    Change::Write(at, bytes) => land(&mut content, usize::try_from(at).unwrap_or(0), &bytes, dice),
                }
            }
            let _ = file.set_len(content.len() as u64).and_then(|()| file.write_all_at(&content, 0));
        }
    }
}

/// Some sectors of a write land; what was never written between them is empty.
fn land(content: &mut Vec<u8>, at: usize, bytes: &[u8], dice: &mut Dice) {
    let mut offset = 0;
    while offset < bytes.len() {
        let sector_end = ((at + offset) / SECTOR + 1) * SECTOR - at;
        let end = sector_end.min(bytes.len());
        if dice.once_in(2) {
            if content.len() < at + end {
                content.resize(at + end, 0);
            }
            content[at + offset..at + end].copy_from_slice(&bytes[offset..end]);
        }
        offset = end;
    }
}
