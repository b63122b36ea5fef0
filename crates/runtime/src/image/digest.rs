//! A reader that computes a content address while the bytes pass through it.

use std::io::{self, Read};

pub(super) use runtime_api::image::Digest;
use sha2::{Digest as _, Sha256};

/// The address of what was hashed.
pub(super) fn digest_of_hasher(hasher: Sha256) -> Digest {
    <[u8; 32]>::from(hasher.finalize()).into()
}

/// Hashes what is read through it.
pub(super) struct Hashing<R> {
    inner: R,
    hasher: Sha256,
}

impl<R: Read> Hashing<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner, hasher: Sha256::new() }
    }

    /// Reads what is left and tells the address of everything: a tar reader stops at its end marker, which may come
    /// before the end of the stream that the address covers.
    pub(super) fn finish(mut self) -> io::Result<Digest> {
        io::copy(&mut self, &mut io::sink())?;
        Ok(digest_of_hasher(self.hasher))
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..count]);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn hashing_covers_what_nobody_read() {
        let mut hashing = Hashing::new(&b"abcdef"[..]);
        hashing.read_exact(&mut [0; 2]).unwrap();
        assert_eq!(hashing.finish().unwrap(), Digest::of(b"abcdef"));
    }
}
