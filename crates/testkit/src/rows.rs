//! A store whose log holds what no program of today writes: rows, put behind the last one of a closed store.
//!
//! Says again, on purpose, how the files of the log look: what an earlier version wrote is read by the next.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

const MAGIC: [u8; 4] = *b"\xadieu";
const HEADER: usize = 16;

/// Stores `bytes`, whatever they are, under a key of the closed store in the folder `store`. Answers their revision.
pub fn append_row(store: &Path, (collection, namespace, name): (&str, &str, &str), bytes: &[u8]) -> io::Result<u64> {
    let segment = last_segment(store)?;
    let (chain, newest) = end(&std::fs::read(&segment)?).ok_or_else(|| io::Error::other("no log"))?;
    let revision = newest + 1;
    let mut row = revision.to_le_bytes().to_vec();
    row.push(1);
    for word in [collection, namespace, name] {
        row.extend(length(word.as_bytes()));
        row.extend(word.as_bytes());
    }
    row.extend(bytes);
    let payload = [&b"R"[..], &length(&row), &row].concat();
    let mut sum = crc32fast::Hasher::new_with_initial(chain);
    sum.update(&payload);
    let mut header = [&MAGIC[..], &length(&payload), &sum.finalize().to_le_bytes()].concat();
    header.extend(crc32fast::hash(&header).to_le_bytes());
    let mut file = std::fs::OpenOptions::new().append(true).open(segment)?;
    file.write_all(&[header, payload].concat())?;
    file.sync_all()?;
    Ok(revision)
}

fn length(bytes: &[u8]) -> [u8; 4] {
    u32::try_from(bytes.len()).expect("a test writes less").to_le_bytes()
}

fn last_segment(store: &Path) -> io::Result<PathBuf> {
    let mut segments: Vec<PathBuf> =
        std::fs::read_dir(store)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    segments.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    segments.sort();
    segments.pop().ok_or_else(|| io::Error::other("the store has no segment"))
}

/// The sum that the next frame continues, and the newest revision.
fn end(mut file: &[u8]) -> Option<(u32, u64)> {
    let (mut chain, mut newest) = (0, 0);
    while let Some((header, rest)) = file.split_at_checked(HEADER) {
        chain = u32::from_le_bytes(header.get(8..12)?.try_into().ok()?);
        let (payload, rest) = rest.split_at_checked(word(header.get(4..)?)?)?;
        file = rest;
        match payload.split_first()? {
            (b'H', head) => newest = number(head.get(13..)?)?,
            (b'R', mut rows) => {
                while !rows.is_empty() {
                    let (row, rest) = rows.get(4..)?.split_at_checked(word(rows)?)?;
                    newest = number(row)?;
                    rows = rest;
                }
            }
            _ => return None,
        }
    }
    Some((chain, newest))
}

fn word(bytes: &[u8]) -> Option<usize> {
    usize::try_from(u32::from_le_bytes(*bytes.first_chunk()?)).ok()
}

fn number(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.first_chunk()?))
}
