//! Room on the disk that images do not take: what runs beside them needs some to go on, and to end.

use std::path::Path;

use rustix::fs::StatVfs;

use super::error::ImageError;

/// A twentieth of the disk stays free, and of its inodes, but no more than this.
const RESERVE_BYTES_MAX: u64 = 512 << 20;
const RESERVE_PART: u64 = 20;

/// How much of the disk that `path` is on may be taken.
pub(super) fn left_bytes(path: &Path) -> Result<u64, ImageError> {
    let found = look(path)?;
    Ok(free_bytes(&found).saturating_sub(reserve_bytes(&found)))
}

/// Refuses to take `bytes` more of the disk that `path` is on, if too little would be left.
pub(super) fn check(path: &Path, bytes: u64, what: &str) -> Result<(), ImageError> {
    let found = look(path)?;
    // Some file systems make inodes as they are needed, and count none.
    let has_inodes = found.f_files == 0 || found.f_favail >= found.f_files / RESERVE_PART;
    let has_bytes = free_bytes(&found).saturating_sub(bytes) >= reserve_bytes(&found);
    if has_bytes && has_inodes { Ok(()) } else { Err(refusal(path, what)) }
}

/// What to say of somebody who would take more.
pub(super) fn refusal(path: &Path, what: &str) -> ImageError {
    let reserve_bytes = look(path).map_or(RESERVE_BYTES_MAX, |found| reserve_bytes(&found));
    ImageError::NoRoom { what: what.to_owned(), path: path.to_owned(), reserve_bytes }
}

fn look(path: &Path) -> Result<StatVfs, ImageError> {
    rustix::fs::statvfs(path).map_err(|errno| ImageError::store("look at the disk of", path)(errno.into()))
}

fn free_bytes(disk: &StatVfs) -> u64 {
    disk.f_bavail.saturating_mul(disk.f_frsize)
}

fn reserve_bytes(disk: &StatVfs) -> u64 {
    (disk.f_blocks.saturating_mul(disk.f_frsize) / RESERVE_PART).min(RESERVE_BYTES_MAX)
}
