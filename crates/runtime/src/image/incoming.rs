//! An image on its way into the store, wherever it comes from, and how much of it is taken.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::config::Document;
use super::digest::Digest;
use crate::contract::image::ImageName;

/// How much one load may bring. Generous: it is there to end a decompression bomb, not to ration disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of the archive, and bytes of all its layers unpacked.
    pub bytes_max: u64,
    /// Files, directories and links in all its layers.
    pub entries_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes_max: 64 << 30, entries_max: 4_000_000 }
    }
}

/// An image whose configuration is in hand and whose layers can be opened.
pub(super) struct Incoming {
    pub(super) names: Vec<ImageName>,
    pub(super) document: Document,
    /// Lowest first, one per diff id of the configuration.
    pub(super) layers: Vec<IncomingLayer>,
}

/// A layer as it travels, perhaps compressed.
#[derive(Clone)]
pub(super) struct IncomingLayer {
    /// The address of the layer once it is a plain tar stream.
    pub(super) diff_id: Digest,
    /// The address of the blob as it travels; docker archives do not tell one.
    pub(super) blob_digest: Option<Digest>,
    pub(super) blob: Section,
}

/// A range of a file, read without moving anyone else's position.
#[derive(Clone)]
pub(super) struct Section {
    file: Arc<File>,
    start: u64,
    length: u64,
    position: u64,
}

impl Section {
    pub(super) fn new(file: Arc<File>, start: u64, length: u64) -> Self {
        Self { file, start, length, position: 0 }
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn start(&self) -> u64 {
        self.start
    }
}

impl Read for Section {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.length.saturating_sub(self.position)).unwrap_or(usize::MAX);
        let wanted = buffer.len().min(left);
        let count = self.file.read_at(&mut buffer[..wanted], self.start + self.position)?;
        if count == 0 && wanted > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for Section {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
            SeekFrom::End(offset) => self.length.checked_add_signed(offset),
        };
        self.position = position.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}

/// What is left of a limit, shared by everyone who draws on it.
pub(super) struct Allowance {
    left: AtomicU64,
    limit: u64,
}

impl Allowance {
    pub(super) fn new(limit: u64) -> Self {
        Self { left: AtomicU64::new(limit), limit }
    }

    pub(super) fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    /// Draws `amount`, or fails with [`Spent`] inside.
    pub(super) fn draw(&self, amount: u64) -> io::Result<()> {
        self.left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(amount))
            .map(|_| ())
            .map_err(|_| io::Error::other(Spent { limit: self.limit }))
    }
}

/// The reason inside an [`io::Error`] when an [`Allowance`] is used up.
#[derive(Debug, thiserror::Error)]
#[error("more than {limit} of it")]
pub(super) struct Spent {
    pub(super) limit: u64,
}

impl Spent {
    /// Whether that is why an operation failed.
    pub(super) fn in_error(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

/// Draws what is read through it from an allowance.
pub(super) struct Metered<'a, R> {
    pub(super) inner: R,
    pub(super) allowance: &'a Allowance,
}

impl<R: Read> Read for Metered<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.allowance.draw(count as u64)?;
        Ok(count)
    }
}

impl<R: Seek> Seek for Metered<'_, R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.inner.seek(to)
    }
}
