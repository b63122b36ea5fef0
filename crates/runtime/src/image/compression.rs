//! Tells how a stream is compressed by its first bytes, and reads it plain.
//!
//! Media types are not consulted: writers disagree about them, and the diff id decides in the end.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

const BUFFER_BYTES: usize = 128 * 1024;

/// The same stream without gzip or zstd around it.
pub(super) fn plain<'a>(source: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut source = BufReader::with_capacity(BUFFER_BYTES, source);
    let start = first_bytes(&mut source)?;
    let source = io::Cursor::new(start.clone()).chain(source);
    match start.as_slice() {
        [0x1f, 0x8b, ..] => Ok(Box::new(MultiGzDecoder::new(source))),
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Ok(Box::new(Zstd::new(source))),
        [b'B', b'Z', b'h', ..] => Err(unsupported("bzip2")),
        [0xfd, b'7', b'z', b'X', ..] => Err(unsupported("xz")),
        _ => Ok(Box::new(source)),
    }
}

/// Up to four bytes; fewer only at the end of the stream.
fn first_bytes(source: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut start = Vec::with_capacity(4);
    source.take(4).read_to_end(&mut start)?;
    Ok(start)
}

fn unsupported(name: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        format!("it is compressed with {name}; compress it with gzip or zstd, or not at all"),
    )
}

/// Reads every frame of a zstd stream: writers cut layers into many frames, some of which are only remarks.
struct Zstd<R> {
    source: R,
    decoder: FrameDecoder,
    in_frame: bool,
}

impl<R: BufRead> Zstd<R> {
    fn new(source: R) -> Self {
        Self { source, decoder: FrameDecoder::new(), in_frame: false }
    }

    /// Enters the next frame that has content; false at the end of the stream.
    fn enter_frame(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.init(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    let length = u64::from(length);
                    if io::copy(&mut self.source.by_ref().take(length), &mut io::sink())? < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
            }
        }
        Ok(false)
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !buffer.is_empty() {
            if !self.in_frame && !self.enter_frame()? {
                return Ok(0);
            }
            self.in_frame = true;
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                self.decoder
                    .decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            }
            let count = self.decoder.read(buffer)?;
            if count > 0 {
                return Ok(count);
            }
            self.in_frame = false;
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::io::Write as _;

    use super::*;

    fn read_plain(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut read = Vec::new();
        plain(bytes)?.read_to_end(&mut read)?;
        Ok(read)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
    }

    #[test]
    fn plain_gzip_and_zstd_read_alike() {
        let text = "adieu ".repeat(100_000).into_bytes();
        assert_eq!(read_plain(&text).unwrap(), text);
        assert_eq!(read_plain(&gzip(&text)).unwrap(), text);
        assert_eq!(read_plain(&zstd(&text)).unwrap(), text);
        for short in [&b""[..], b"a", b"abc"] {
            assert_eq!(read_plain(short).unwrap(), short);
        }
    }

    #[test]
    fn several_members_and_frames_are_one_stream() {
        assert_eq!(read_plain(&[gzip(b"one "), gzip(b"two")].concat()).unwrap(), b"one two");
        let remark = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"???"].concat();
        let frames = [remark.clone(), zstd(b"one "), remark.clone(), zstd(b"two"), remark].concat();
        assert_eq!(read_plain(&frames).unwrap(), b"one two");
    }

    #[test]
    fn a_stream_that_ends_early_is_an_error() {
        let text = "adieu ".repeat(1000).into_bytes();
        for whole in [gzip(&text), zstd(&text)] {
            assert!(read_plain(&whole[..whole.len() - 8]).is_err());
        }
        assert!(read_plain(b"BZh91AY").unwrap_err().to_string().contains("bzip2"));
    }
}
