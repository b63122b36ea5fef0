//! SPDY/3 header blocks: names and values, in one zlib stream per direction that starts from a shared dictionary.
//!
//! The zlib state runs on from block to block, so every block must be read, wanted or not, and a block that cannot
//! be read ends the connection.

use std::sync::LazyLock;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// The longest block taken, unpacked: a few short names and values is all that Kubernetes sends.
const BLOCK_MAX: usize = 64 * 1024;

/// Names and values in the order they came; names in lower case.
pub(crate) type Headers = Vec<(String, String)>;

/// A header block that cannot be read. The connection cannot go on after it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HeaderError {
    #[error("cannot unpack a header block")]
    Unpack { source: flate2::DecompressError },
    #[error("a header block ends too early")]
    Truncated,
    #[error("a header block is longer than {BLOCK_MAX} bytes")]
    TooLong,
}

/// What the dictionary of SPDY/3 begins with: words a header block is likely to hold, each behind its length.
#[rustfmt::skip] // packed: it is one fact, not sixty-five
const WORDS: [&str; 65] = [
    "options", "head", "post", "put", "delete", "trace", "accept", "accept-charset", "accept-encoding",
    "accept-language", "accept-ranges", "age", "allow", "authorization", "cache-control", "connection",
    "content-base", "content-encoding", "content-language", "content-length", "content-location", "content-md5",
    "content-range", "content-type", "date", "etag", "expect", "expires", "from", "host", "if-match",
    "if-modified-since", "if-none-match", "if-range", "if-unmodified-since", "last-modified", "location",
    "max-forwards", "pragma", "proxy-authenticate", "proxy-authorization", "range", "referer", "retry-after",
    "server", "te", "trailer", "transfer-encoding", "upgrade", "user-agent", "vary", "via", "warning",
    "www-authenticate", "method", "get", "status", "200 OK", "version", "HTTP/1.1", "url", "public", "set-cookie",
    "keep-alive", "origin",
];

/// What it ends with: parts of values, without lengths.
const TAIL: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505\
    203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized\
    403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable\
    Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT\
    chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,\
    text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.";

/// The dictionary of SPDY/3 (draft-mbelshe-httpbis-spdy-00, 2.6.10.1).
static DICTIONARY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut dictionary = Vec::new();
    for word in WORDS {
        put_text(&mut dictionary, word);
    }
    dictionary.extend_from_slice(TAIL.as_bytes());
    dictionary
});

fn put_text(out: &mut impl BufMut, text: &str) {
    out.put_u32(u32::try_from(text.len()).expect("a header fits into memory many times over"));
    out.put_slice(text.as_bytes());
}

/// Reads the blocks of one direction.
#[derive(Debug)]
pub(crate) struct HeaderReader(Decompress);

impl HeaderReader {
    pub(crate) fn new() -> Self {
        Self(Decompress::new(true))
    }

    /// Reads one block.
    pub(crate) fn read(&mut self, block: &[u8]) -> Result<Headers, HeaderError> {
        let unpacked = self.unpack(block)?;
        let mut rest = unpacked.as_slice();
        let count = rest.try_get_u32().map_err(|_| HeaderError::Truncated)?;
        let mut headers = Headers::new();
        for _ in 0..count {
            let name = take_text(&mut rest)?.to_ascii_lowercase();
            headers.push((name, take_text(&mut rest)?));
        }
        Ok(headers)
    }

    fn unpack(&mut self, mut block: &[u8]) -> Result<Vec<u8>, HeaderError> {
        let mut unpacked = Vec::with_capacity(1024);
        loop {
            let (taken, given) = (self.0.total_in(), self.0.total_out());
            let mut found_dictionary = false;
            match self.0.decompress_vec(block, &mut unpacked, FlushDecompress::Sync) {
                Ok(Status::Ok | Status::BufError) => {}
                // The stream of headers never ends by itself.
                Ok(Status::StreamEnd) => return Err(HeaderError::Truncated),
                Err(error) if error.needs_dictionary().is_some() => {
                    self.0.set_dictionary(&DICTIONARY).map_err(|source| HeaderError::Unpack { source })?;
                    found_dictionary = true;
                }
                Err(source) => return Err(HeaderError::Unpack { source }),
            }
            let taken = usize::try_from(self.0.total_in() - taken).expect("no more than the block");
            block = &block[taken..];
            if unpacked.len() > BLOCK_MAX {
                return Err(HeaderError::TooLong);
            }
            if unpacked.len() == unpacked.capacity() {
                unpacked.reserve(unpacked.capacity());
            } else if block.is_empty() {
                return Ok(unpacked);
            } else if taken == 0 && given == self.0.total_out() && !found_dictionary {
                return Err(HeaderError::Truncated);
            }
        }
    }
}

fn take_text(rest: &mut &[u8]) -> Result<String, HeaderError> {
    let length = rest.try_get_u32().map_err(|_| HeaderError::Truncated)? as usize;
    let (text, after) = rest.split_at_checked(length).ok_or(HeaderError::Truncated)?;
    *rest = after;
    Ok(String::from_utf8_lossy(text).into_owned())
}

/// Writes the blocks of one direction.
#[derive(Debug)]
pub(crate) struct HeaderWriter(Compress);

impl HeaderWriter {
    pub(crate) fn new() -> Self {
        let mut zlib = Compress::new(Compression::fast(), true);
        zlib.set_dictionary(&DICTIONARY).expect("a fresh stream takes a dictionary");
        Self(zlib)
    }

    /// Writes one block.
    pub(crate) fn write(&mut self, headers: &[(&str, &str)]) -> Bytes {
        let mut plain = BytesMut::new();
        plain.put_u32(u32::try_from(headers.len()).expect("a handful of headers"));
        for (name, value) in headers {
            put_text(&mut plain, name);
            put_text(&mut plain, value);
        }
        let mut block = Vec::with_capacity(plain.len() + 64);
        let start = self.0.total_in();
        loop {
            let taken = usize::try_from(self.0.total_in() - start).expect("no more than was given");
            self.0.compress_vec(&plain[taken..], &mut block, FlushCompress::Sync).expect("zlib was set up by us");
            // Room left over means that all of it, the flush included, is out.
            if block.len() < block.capacity() {
                return block.into();
            }
            block.reserve(block.capacity());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn the_dictionary_is_the_one_of_the_draft() {
        assert_eq!(DICTIONARY.len(), 1423);
        // Its Adler-32 stands at the front of every header stream there is.
        assert_eq!(Compress::new(Compression::fast(), true).set_dictionary(&DICTIONARY).unwrap(), 0xe3c6_a7c2);
    }

    /// The three header blocks of `kubectl` 1.20 running `exec POD -- echo hi`, as captured.
    #[test]
    fn the_blocks_of_a_real_client_are_read() {
        let blocks: [&[u8]; 3] = [
            b"\x78\xf9\xe3\xc6\xa7\xc2\x62\x60\x60\x60\x04\xa7\xb3\x92\xa2\xd4\xc4\x5c\x68\x51\xc2\x9a\x0a\x0a\x68\0\0\0\0\xff\xff",
            b"\xc2\x2a\xc5\x56\x5c\x92\x92\x5f\x5a\x02\0\0\0\xff\xff",
            b"\xc2\x29\x97\x5a\x54\x04\0\0\0\xff\xff",
        ];
        let mut reader = HeaderReader::new();
        for (block, name) in blocks.iter().zip(["error", "stdout", "stderr"]) {
            assert_eq!(reader.read(block).unwrap(), [("streamtype".to_owned(), name.to_owned())]);
        }
    }

    #[test]
    fn blocks_survive_the_wire_one_after_the_other() {
        let (mut writer, mut reader) = (HeaderWriter::new(), HeaderReader::new());
        let long = "x".repeat(5000);
        for headers in [vec![("streamType", "error")], vec![], vec![("streamType", "stdin"), ("a", long.as_str())]] {
            let read = reader.read(&writer.write(&headers)).unwrap();
            let sent: Headers =
                headers.iter().map(|(name, value)| (name.to_lowercase(), (*value).to_owned())).collect();
            assert_eq!(read, sent);
        }
    }

    #[test]
    fn a_block_without_our_dictionary_is_read_too() {
        let mut zlib = Compress::new(Compression::best(), true);
        let mut block = Vec::with_capacity(256);
        zlib.compress_vec(b"\0\0\0\x01\0\0\0\x01a\0\0\0\x01b", &mut block, FlushCompress::Sync).unwrap();
        assert_eq!(HeaderReader::new().read(&block).unwrap(), [("a".to_owned(), "b".to_owned())]);
    }

    #[test]
    fn a_block_that_unpacks_without_end_is_refused() {
        let mut writer = HeaderWriter::new();
        let bomb = writer.write(&[("a", &"x".repeat(BLOCK_MAX))]);
        assert!(bomb.len() < 2000);
        assert!(matches!(HeaderReader::new().read(&bomb), Err(HeaderError::TooLong)));
    }

    #[test]
    fn counts_and_lengths_that_lie_are_refused() {
        for lie in [&b"\xff\xff\xff\xff"[..], b"\0\0\0\x01\xff\xff\xff\xff", b"\0\0", b""] {
            let mut zlib = Compress::new(Compression::fast(), true);
            let mut block = Vec::with_capacity(256);
            zlib.compress_vec(lie, &mut block, FlushCompress::Sync).unwrap();
            assert!(HeaderReader::new().read(&block).is_err(), "{lie:?}");
        }
        assert!(HeaderReader::new().read(b"not zlib").is_err());
    }
}
