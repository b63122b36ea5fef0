//! Unpacks one layer: a tar stream becomes a directory that overlayfs can use, hashed on its way.
//!
//! Runs in a process that can do nothing else; see `unpacking_process`.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Timespec};
use serde::{Deserialize, Serialize};
use tar::EntryType;

use super::compression;
use super::digest::{Digest, Hashing};
use super::error::ImageError;
use super::incoming::{Allowance, Limits, Spent};
use super::tree::{self, Attributes, Tree, TreeError};

/// The headers of one entry, long names and extended attributes included, are held in memory.
const HEADER_BYTES_MAX: u64 = 4 << 20;
/// How much of a path an error shows.
const SHOWN_MAX: usize = 256;
const WHITEOUT: &[u8] = b".wh.";
const XATTR: &[u8] = b"SCHILY.xattr.";
/// Holes that extended headers tell of, or the first bytes of the file itself: read as an ordinary file it would be another.
const SPARSE: &[u8] = b"GNU.sparse.";

/// How much is read or written before it is told.
const TOLD_BYTES: u64 = 8 << 20;
const TOLD_ENTRIES: u64 = 1000;

/// What was done since it was last told.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Advance {
    /// Of the blob as it travels.
    pub(super) read_bytes: u64,
    /// Of the layer once it is plain, holes included.
    pub(super) bytes: u64,
    pub(super) entries: u64,
}

/// A layer that became files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct UnpackedLayer {
    /// Of its files.
    pub(super) size_bytes: u64,
    /// Of the blob as it travels.
    pub(super) blob: Digest,
    /// Of the layer once it is plain.
    pub(super) diff_id: Digest,
}

/// What may be unpacked, and what has been.
struct Meter<'a> {
    limits: Limits,
    bytes: Allowance,
    entries: Allowance,
    untold: Cell<Advance>,
    tell: &'a dyn Fn(Advance),
}

impl Meter<'_> {
    fn advance(&self, add: impl FnOnce(&mut Advance)) {
        let mut untold = self.untold.get();
        add(&mut untold);
        let is_much = untold.read_bytes >= TOLD_BYTES || untold.bytes >= TOLD_BYTES || untold.entries >= TOLD_ENTRIES;
        self.untold.set(if is_much { Advance::default() } else { untold });
        if is_much {
            (self.tell)(untold);
        }
    }

    fn draw_bytes(&self, bytes: u64) -> io::Result<()> {
        self.bytes.draw(bytes)?;
        self.advance(|untold| untold.bytes += bytes);
        Ok(())
    }
}

/// Counts the blob as it is read.
struct BlobReader<'a, R> {
    inner: R,
    meter: &'a Meter<'a>,
}

impl<R: Read> Read for BlobReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.meter.advance(|untold| untold.read_bytes += count as u64);
        Ok(count)
    }
}

/// Draws what is read from the allowance.
struct PlainReader<'a, R> {
    inner: R,
    meter: &'a Meter<'a>,
}

impl<R: Read> Read for PlainReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.meter.draw_bytes(count as u64)?;
        Ok(count)
    }
}

/// Unpacks the layer `layer` from `blob` into `tree`, telling of every few megabytes. Whether it is what it should be is
/// for the caller to see by its digests.
pub(super) fn unpack(
    blob: impl Read,
    layer: Digest,
    tree: Tree,
    limits: Limits,
    tell: &dyn Fn(Advance),
) -> Result<UnpackedLayer, ImageError> {
    let meter = Meter {
        limits,
        bytes: Allowance::new(limits.bytes_max),
        entries: Allowance::new(limits.entries_max),
        untold: Cell::default(),
        tell,
    };
    let unpacking = Unpacking { layer, meter: &meter };
    let mut blob = Hashing::new(BlobReader { inner: blob, meter: &meter });
    let (size_bytes, diff_id) = {
        let plain = compression::plain(&mut blob).map_err(|error| unpacking.failed(error))?;
        let header_left = Cell::new(None);
        let plain = HeaderGate { inner: plain, left: &header_left };
        let mut stream = Hashing::new(PlainReader { inner: plain, meter: &meter });
        let size_bytes = unpacking.entries(&mut stream, &header_left, tree)?;
        header_left.set(None);
        (size_bytes, stream.finish().map_err(|error| unpacking.failed(error))?)
    };
    let blob = blob.finish().map_err(|error| unpacking.failed(error))?;
    tell(meter.untold.take());
    Ok(UnpackedLayer { size_bytes, blob, diff_id })
}

struct Unpacking<'a> {
    layer: Digest,
    meter: &'a Meter<'a>,
}

impl Unpacking<'_> {
    fn entries(
        &self,
        stream: &mut impl Read,
        header_left: &Cell<Option<u64>>,
        mut tree: Tree,
    ) -> Result<u64, ImageError> {
        let mut archive = tar::Archive::new(stream);
        let mut entries = archive.entries().map_err(|error| self.failed(error))?;
        let mut size_bytes = 0;
        loop {
            header_left.set(Some(HEADER_BYTES_MAX));
            let Some(entry) = entries.next() else { break };
            let mut entry = entry.map_err(|error| self.failed(error))?;
            header_left.set(None);
            self.meter.entries.draw(1).map_err(|_| ImageError::TooLarge {
                what: format!("the number of files in layer {}", self.layer),
                limit_bytes: self.meter.limits.entries_max,
            })?;
            self.meter.advance(|untold| untold.entries += 1);
            let path = entry.path_bytes().into_owned();
            size_bytes += self.entry(&mut tree, &path, &mut entry).map_err(|error| self.at(&path, error))?;
            // Content that nobody asked for must not count as part of the next header.
            io::copy(&mut entry, &mut io::sink()).map_err(|error| self.failed(error))?;
        }
        tree.finish().map_err(|error| self.at(b".", error))?;
        Ok(size_bytes)
    }

    fn entry<R: Read>(&self, tree: &mut Tree, path: &[u8], entry: &mut tar::Entry<'_, R>) -> Result<u64, TreeError> {
        let kind = entry.header().entry_type();
        if matches!(kind, EntryType::XGlobalHeader) {
            return Ok(0);
        }
        let path = tree::relative(path)?;
        if let Some(hidden) = Hidden::by(&path)? {
            match hidden {
                Hidden::One(path) => tree.whiteout(&path)?,
                Hidden::All(folder) => tree.opaque(&folder)?,
                Hidden::Nothing => {}
            }
            return Ok(0);
        }
        let attributes = attributes(entry)?;
        match kind {
            EntryType::Regular | EntryType::Continuous => return tree.file(&path, entry, &attributes),
            EntryType::GNUSparse => {
                // Holes cost nothing in the stream, so they are drawn here.
                self.meter.draw_bytes(entry.header().size()?)?;
                return tree.file(&path, entry, &attributes);
            }
            EntryType::Directory => tree.directory(&path, &attributes)?,
            EntryType::Symlink => tree.symbolic_link(&path, &link_target(entry)?, &attributes)?,
            EntryType::Link => tree.hard_link(&path, &tree::relative(&link_target(entry)?)?)?,
            EntryType::Char => match device(entry)? {
                // To overlayfs it would hide a file of another layer, and tools that read the layer would not see that.
                (0, 0) => return Err(TreeError::Refused("is a whiteout in disguise")),
                device => tree.node(&path, FileType::CharacterDevice, device, &attributes)?,
            },
            EntryType::Block => tree.node(&path, FileType::BlockDevice, device(entry)?, &attributes)?,
            EntryType::Fifo => tree.node(&path, FileType::Fifo, (0, 0), &attributes)?,
            // Headers for other entries were read with those entries; one that stands alone is as odd as an unknown kind.
            EntryType::GNULongName | EntryType::GNULongLink | EntryType::XGlobalHeader | EntryType::XHeader => {
                return Err(TreeError::Refused("is a header of nothing"));
            }
            _ => return Err(TreeError::Refused("is of a kind that no layer should hold")),
        }
        Ok(0)
    }

    fn at(&self, path: &[u8], error: TreeError) -> ImageError {
        // As much as people read: one of an archive may be megabytes long.
        let path: String = String::from_utf8_lossy(path).chars().take(SHOWN_MAX).collect();
        match error {
            TreeError::Refused(why) => ImageError::Hostile { layer: self.layer, path, why: why.to_owned() },
            TreeError::Io(error) if Spent::in_error(&error).is_some() => self.failed(error),
            TreeError::Io(error) => ImageError::Layer { layer: self.layer, why: format!("entry {path:?}: {error}") },
        }
    }

    fn failed(&self, error: io::Error) -> ImageError {
        match Spent::in_error(&error) {
            Some(spent) if spent.limit == HEADER_BYTES_MAX => ImageError::TooLarge {
                what: format!("a header in layer {}", self.layer),
                limit_bytes: HEADER_BYTES_MAX,
            },
            Some(spent) => ImageError::TooLarge { what: format!("layer {}", self.layer), limit_bytes: spent.limit },
            None => ImageError::Layer { layer: self.layer, why: error.to_string() },
        }
    }
}

/// What a whiteout entry hides of the layers below.
enum Hidden {
    One(PathBuf),
    All(PathBuf),
    /// Bookkeeping of the file system that invented whiteouts.
    Nothing,
}

impl Hidden {
    fn by(path: &Path) -> Result<Option<Self>, TreeError> {
        let (Some(name), Some(folder)) = (path.file_name(), path.parent()) else { return Ok(None) };
        let Some(hidden) = name.as_bytes().strip_prefix(WHITEOUT) else { return Ok(None) };
        Ok(Some(match hidden {
            b".wh..opq" => Self::All(folder.to_owned()),
            b"" | b"." | b".." => return Err(TreeError::Refused("is a whiteout of no file")),
            _ if hidden.starts_with(WHITEOUT) => Self::Nothing,
            _ => Self::One(folder.join(OsStr::from_bytes(hidden))),
        }))
    }
}

fn link_target<R: Read>(entry: &tar::Entry<'_, R>) -> Result<Vec<u8>, TreeError> {
    match entry.link_name_bytes() {
        Some(target) if !target.is_empty() => Ok(target.into_owned()),
        _ => Err(TreeError::Refused("is a link to nothing")),
    }
}

fn device<R: Read>(entry: &tar::Entry<'_, R>) -> Result<(u32, u32), TreeError> {
    let header = entry.header();
    let ustar = header.as_ustar().map(|fields| (fields.dev_major, fields.dev_minor));
    let gnu = || header.as_gnu().map(|fields| (fields.dev_major, fields.dev_minor));
    let Some((major, minor)) = ustar.or_else(gnu) else {
        return Err(TreeError::Refused("is a device without a number"));
    };
    let major = or_blank(&major, || Ok(header.device_major()?.unwrap_or_default()))?;
    let minor = or_blank(&minor, || Ok(header.device_minor()?.unwrap_or_default()))?;
    Ok((major, minor))
}

/// Some writers leave a number out where they mean zero.
fn or_blank<T: Default>(field: &[u8], read: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    if field.iter().all(|&byte| byte == 0 || byte == b' ') { Ok(T::default()) } else { read() }
}

fn attributes<R: Read>(entry: &mut tar::Entry<'_, R>) -> Result<Attributes, TreeError> {
    // The highest number means "leave the owner alone" to the kernel, so no file can belong to it.
    let owner = |id: u64| match u32::try_from(id) {
        Ok(id) if id != u32::MAX => Ok(id),
        _ => Err(TreeError::Refused("belongs to a user or group that cannot exist")),
    };
    let header = entry.header();
    let fields = header.as_old();
    let mtime = or_blank(&fields.mtime, || header.mtime())?;
    let mut attributes = Attributes {
        mode: or_blank(&fields.mode, || header.mode())?,
        uid: owner(or_blank(&fields.uid, || header.uid())?)?,
        gid: owner(or_blank(&fields.gid, || header.gid())?)?,
        mtime: Timespec { tv_sec: i64::try_from(mtime).unwrap_or(0), tv_nsec: 0 },
        xattrs: Vec::new(),
    };
    let Some(extensions) = entry.pax_extensions()? else { return Ok(attributes) };
    for extension in extensions {
        let extension = extension?;
        if extension.key_bytes().starts_with(SPARSE) {
            return Err(TreeError::Refused("is a sparse file of a kind that is not read"));
        }
        if extension.key_bytes() == b"mtime" {
            attributes.mtime = extension.value().ok().and_then(moment).unwrap_or(attributes.mtime);
        } else if let Some(name) = extension.key_bytes().strip_prefix(XATTR)
            && !is_ours_to_set(name)
        {
            attributes.xattrs.push((OsString::from_vec(name.to_vec()), extension.value_bytes().to_vec()));
        }
    }
    Ok(attributes)
}

/// Whether an extended attribute is no image's business. With marks of overlayfs one could show other files than it holds;
/// everything else that is trusted, and the labels and signatures of this machine's own rules, say what only its owner may.
fn is_ours_to_set(name: &[u8]) -> bool {
    const OURS: [&[u8]; 2] = [b"trusted.", b"user.overlay."];
    const LABELS: [&[u8]; 6] = [
        b"security.selinux",
        b"security.ima",
        b"security.evm",
        b"security.SMACK64",
        b"security.apparmor",
        b"security.sehash",
    ];
    OURS.iter().any(|prefix| name.starts_with(prefix)) || LABELS.iter().any(|label| name.starts_with(label))
}

/// Seconds with a fraction, perhaps before 1970.
fn moment(text: &str) -> Option<Timespec> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let nanoseconds: i64 = digits.parse().ok()?;
    Some(match whole.starts_with('-') && nanoseconds > 0 {
        true => Timespec { tv_sec: seconds - 1, tv_nsec: 1_000_000_000 - nanoseconds },
        false => Timespec { tv_sec: seconds, tv_nsec: nanoseconds },
    })
}

/// While a header is read, only so much passes: the tar reader would keep a long name of any length in memory.
struct HeaderGate<'a, R> {
    inner: R,
    left: &'a Cell<Option<u64>>,
}

impl<R: Read> Read for HeaderGate<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        if let Some(left) = self.left.get() {
            let spent = || io::Error::other(Spent { limit: HEADER_BYTES_MAX });
            self.left.set(Some(left.checked_sub(count as u64).ok_or_else(spent)?));
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn times_keep_their_fraction_on_both_sides_of_1970() {
        let at = |tv_sec, tv_nsec| Some(Timespec { tv_sec, tv_nsec });
        assert_eq!(moment("12"), at(12, 0));
        assert_eq!(moment("12.5"), at(12, 500_000_000));
        assert_eq!(moment("12.1234567891"), at(12, 123_456_789));
        assert_eq!(moment("-1.25"), at(-2, 750_000_000));
        assert_eq!(moment("-0.25"), at(-1, 750_000_000));
        assert_eq!(moment("x"), None);
    }
}
