//! SPDY/3.1 frames, to and from bytes.
//!
//! ```text
//!  control  |1| version 15 | type 16 |   flags 8 | length 24 |   payload
//!  data     |0| stream id 31         |   flags 8 | length 24 |   payload
//! ```
//!
//! Header blocks stay compressed here, see [`headers`](super::headers). A data frame may be 16 MiB long, so it is
//! handed on in pieces as they arrive; a control frame is held whole and therefore limited.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The longest payload of a control frame.
pub(crate) const CONTROL_MAX: usize = 64 * 1024;
/// The longest piece of a data frame that is handed on at once.
pub(crate) const PIECE_MAX: usize = 32 * 1024;
/// A data frame's length has 24 bits.
pub(crate) const DATA_MAX: usize = (1 << 24) - 1;

const HEAD: usize = 8;
const VERSION: u16 = 3;
const CONTROL: u32 = 1 << 31;
const ID: u32 = CONTROL - 1;
const FIN: u8 = 1;

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const SETTINGS: u16 = 4;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;
const WINDOW_UPDATE: u16 = 9;

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Frame {
    /// Opens a stream.
    SynStream { id: u32, fin: bool, block: Bytes },
    /// Accepts a stream.
    SynReply { id: u32, fin: bool, block: Bytes },
    /// Ends a stream at once.
    Reset { id: u32, status: u32 },
    /// Wishes about the session, none of which concerns us.
    Settings,
    /// Asks for the same back.
    Ping { id: u32 },
    /// Says that no more streams will be accepted.
    GoAway { last: u32, status: u32 },
    /// More headers for a stream.
    Headers { id: u32, fin: bool, block: Bytes },
    /// Allows the peer to send more.
    WindowUpdate { id: u32, delta: u32 },
    /// A piece of a stream; `fin` on its last.
    Data { id: u32, fin: bool, bytes: Bytes },
    /// A control frame of a type unknown here, to be ignored.
    Unknown { kind: u16 },
}

/// Bytes that are no SPDY/3.1.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum FrameError {
    #[error("control frame of version {version}, not 3")]
    Version { version: u16 },
    #[error("control frame of {length} bytes is too long")]
    TooLong { length: usize },
    #[error("control frame of type {kind} is too short")]
    TooShort { kind: u16 },
    #[error("data for stream 0")]
    DataForNobody,
}

/// The rest of a data frame that is handed on in pieces.
#[derive(Debug)]
struct Partial {
    id: u32,
    fin: bool,
    left: usize,
}

/// Finds frames in a stream of bytes.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    partial: Option<Partial>,
}

impl Decoder {
    /// Takes the next frame (or piece of one) from the front of `buffer`; `None` if more bytes are needed.
    pub(crate) fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
        if let Some(partial) = self.partial.take() {
            return Ok(self.piece(partial, buffer));
        }
        let Some((head, payload)) = buffer.split_at_checked(HEAD) else { return Ok(None) };
        let mut head = head;
        let (word, tail) = (head.get_u32(), head.get_u32());
        let (flags, length) = (tail.to_be_bytes()[0], (tail & 0x00ff_ffff) as usize);
        if word & CONTROL == 0 {
            if word == 0 {
                return Err(FrameError::DataForNobody);
            }
            buffer.advance(HEAD);
            return Ok(self.piece(Partial { id: word, fin: flags & FIN != 0, left: length }, buffer));
        }
        let [high, low, kind @ ..] = word.to_be_bytes();
        let (version, kind) = (u16::from_be_bytes([high & 0x7f, low]), u16::from_be_bytes(kind));
        if version != VERSION {
            return Err(FrameError::Version { version });
        }
        if length > CONTROL_MAX {
            return Err(FrameError::TooLong { length });
        }
        if payload.len() < length {
            return Ok(None);
        }
        buffer.advance(HEAD);
        control(kind, flags & FIN != 0, buffer.split_to(length).freeze()).map(Some)
    }

    fn piece(&mut self, partial: Partial, buffer: &mut BytesMut) -> Option<Frame> {
        let Partial { id, fin, left } = partial;
        let length = left.min(buffer.len()).min(PIECE_MAX);
        if length == 0 && left > 0 {
            self.partial = Some(Partial { id, fin, left });
            return None;
        }
        let bytes = buffer.split_to(length).freeze();
        let left = left - length;
        if left > 0 {
            self.partial = Some(Partial { id, fin, left });
        }
        Some(Frame::Data { id, fin: fin && left == 0, bytes })
    }
}

fn control(kind: u16, fin: bool, mut payload: Bytes) -> Result<Frame, FrameError> {
    let least = match kind {
        SYN_STREAM => 10,
        SYN_REPLY | HEADERS | PING => 4,
        RST_STREAM | GOAWAY | WINDOW_UPDATE => 8,
        _ => 0,
    };
    if payload.len() < least {
        return Err(FrameError::TooShort { kind });
    }
    Ok(match kind {
        SYN_STREAM => {
            let id = payload.get_u32() & ID;
            // The associated stream, the priority and a slot: all for servers that push.
            payload.advance(6);
            Frame::SynStream { id, fin, block: payload }
        }
        SYN_REPLY => Frame::SynReply { id: payload.get_u32() & ID, fin, block: payload },
        RST_STREAM => Frame::Reset { id: payload.get_u32() & ID, status: payload.get_u32() },
        SETTINGS => Frame::Settings,
        PING => Frame::Ping { id: payload.get_u32() },
        GOAWAY => Frame::GoAway { last: payload.get_u32() & ID, status: payload.get_u32() },
        HEADERS => Frame::Headers { id: payload.get_u32() & ID, fin, block: payload },
        WINDOW_UPDATE => Frame::WindowUpdate { id: payload.get_u32() & ID, delta: payload.get_u32() & ID },
        kind => Frame::Unknown { kind },
    })
}

impl Frame {
    /// Appends the frame's bytes. Data longer than [`DATA_MAX`] or a header block longer than [`CONTROL_MAX`] is
    /// the caller's mistake.
    pub(crate) fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::SynStream { id, fin, block } => {
                control_head(out, SYN_STREAM, *fin, 10 + block.len());
                out.put_u32(*id);
                out.put_bytes(0, 6);
                out.put_slice(block);
            }
            Self::SynReply { id, fin, block } => block_frame(out, SYN_REPLY, *id, *fin, block),
            Self::Headers { id, fin, block } => block_frame(out, HEADERS, *id, *fin, block),
            Self::Reset { id, status } => pair_frame(out, RST_STREAM, *id, *status),
            Self::GoAway { last, status } => pair_frame(out, GOAWAY, *last, *status),
            Self::WindowUpdate { id, delta } => pair_frame(out, WINDOW_UPDATE, *id, *delta),
            Self::Settings => {
                control_head(out, SETTINGS, false, 4);
                out.put_u32(0);
            }
            Self::Ping { id } => {
                control_head(out, PING, false, 4);
                out.put_u32(*id);
            }
            Self::Unknown { kind } => control_head(out, *kind, false, 0),
            Self::Data { id, fin, bytes } => encode_data(out, *id, *fin, bytes),
        }
    }
}

/// Appends a data frame without owning its bytes.
pub(crate) fn encode_data(out: &mut BytesMut, id: u32, fin: bool, bytes: &[u8]) {
    out.put_u32(id & ID);
    length(out, fin, bytes.len(), DATA_MAX);
    out.put_slice(bytes);
}

fn block_frame(out: &mut BytesMut, kind: u16, id: u32, fin: bool, block: &[u8]) {
    control_head(out, kind, fin, 4 + block.len());
    out.put_u32(id);
    out.put_slice(block);
}

fn pair_frame(out: &mut BytesMut, kind: u16, first: u32, second: u32) {
    control_head(out, kind, false, 8);
    out.put_u32(first);
    out.put_u32(second);
}

fn control_head(out: &mut BytesMut, kind: u16, fin: bool, payload: usize) {
    out.put_u32(CONTROL | u32::from(VERSION) << 16 | u32::from(kind));
    length(out, fin, payload, CONTROL_MAX);
}

fn length(out: &mut BytesMut, fin: bool, length: usize, most: usize) {
    assert!(length <= most, "a frame of {length} bytes");
    let length = u32::try_from(length).expect("a frame's length has 24 bits");
    out.put_u32(u32::from(fin) << 24 | length);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn all_of(bytes: &[u8]) -> Result<Vec<Frame>, FrameError> {
        let (mut decoder, mut buffer, mut frames) = (Decoder::default(), BytesMut::from(bytes), vec![]);
        while let Some(frame) = decoder.decode(&mut buffer)? {
            frames.push(frame);
        }
        Ok(frames)
    }

    fn samples() -> Vec<Frame> {
        let block = Bytes::from_static(b"block");
        vec![
            Frame::SynStream { id: 1, fin: false, block: block.clone() },
            Frame::SynReply { id: 1, fin: false, block: block.clone() },
            Frame::Headers { id: 1, fin: true, block },
            Frame::Data { id: 1, fin: false, bytes: Bytes::from_static(b"hello") },
            Frame::Data { id: 1, fin: true, bytes: Bytes::new() },
            Frame::Reset { id: 3, status: 5 },
            Frame::Settings,
            Frame::Ping { id: 7 },
            Frame::GoAway { last: 9, status: 0 },
            Frame::WindowUpdate { id: 0, delta: 65536 },
            Frame::Unknown { kind: 77 },
        ]
    }

    #[test]
    fn every_frame_survives_the_wire() {
        let mut wire = BytesMut::new();
        samples().iter().for_each(|frame| frame.encode(&mut wire));
        assert_eq!(all_of(&wire).unwrap(), samples());
    }

    #[test]
    fn frames_are_found_however_the_bytes_are_cut() {
        let mut wire = BytesMut::new();
        samples().iter().for_each(|frame| frame.encode(&mut wire));
        let (mut decoder, mut buffer, mut joined) = (Decoder::default(), BytesMut::new(), BytesMut::new());
        for byte in &wire {
            buffer.put_u8(*byte);
            while let Some(frame) = decoder.decode(&mut buffer).unwrap() {
                frame.encode(&mut joined);
            }
        }
        // A data frame arrives in pieces of one byte, so compare what the pieces say.
        let text = |frames: &[Frame]| -> (Vec<u8>, usize) {
            let data = frames
                .iter()
                .filter_map(|frame| if let Frame::Data { bytes, .. } = frame { Some(bytes.to_vec()) } else { None });
            (data.flatten().collect(), frames.iter().filter(|frame| !matches!(frame, Frame::Data { .. })).count())
        };
        assert_eq!(text(&all_of(&joined).unwrap()), text(&samples()));
        assert!(all_of(&joined).unwrap().contains(&Frame::Data { id: 1, fin: true, bytes: Bytes::new() }));
    }

    #[test]
    fn a_long_data_frame_comes_in_pieces_and_only_the_last_ends_the_stream() {
        let mut wire = BytesMut::new();
        let sent = vec![42; 3 * PIECE_MAX + 1];
        encode_data(&mut wire, 5, true, &sent);
        let frames = all_of(&wire).unwrap();
        assert_eq!(frames.len(), 4);
        for (index, frame) in frames.iter().enumerate() {
            assert!(
                matches!(frame, Frame::Data { id: 5, fin, bytes } if *fin == (index == 3) && bytes.len() <= PIECE_MAX)
            );
        }
    }

    #[test]
    fn spdy_frame_that_is_malformed_is_refused_at_once() {
        let mut long = BytesMut::new();
        control_head(&mut long, SETTINGS, false, CONTROL_MAX);
        long[5] = 0xff;
        assert_eq!(all_of(&long), Err(FrameError::TooLong { length: 0x00ff_0000 | (CONTROL_MAX & 0xffff) }));
        assert_eq!(all_of(&[0x80, 2, 0, 1, 0, 0, 0, 0]), Err(FrameError::Version { version: 2 }));
        assert_eq!(all_of(&[0x80, 3, 0, 3, 0, 0, 0, 4, 0, 0, 0, 1]), Err(FrameError::TooShort { kind: RST_STREAM }));
        assert_eq!(all_of(&[0, 0, 0, 0, 0, 0, 0, 0]), Err(FrameError::DataForNobody));
    }

    /// A small generator of our own keeps the test repeatable without a dependency.
    fn random(seed: &mut u64) -> u8 {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        seed.to_be_bytes()[0]
    }

    #[test]
    fn random_bytes_never_panic_and_never_pile_up() {
        for seed in 1..=3000_u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let (mut decoder, mut buffer) = (Decoder::default(), BytesMut::new());
            'stream: for round in 0..40 {
                // Half of the seeds look like control frames more often than chance would have it.
                if seed % 2 == 0 && round % 4 == 0 {
                    buffer.put_slice(&[0x80, 3, 0, random(&mut state) % 12, 0, 0, 0, random(&mut state) % 16]);
                }
                for _ in 0..random(&mut state) % 32 {
                    buffer.put_u8(random(&mut state));
                }
                loop {
                    match decoder.decode(&mut buffer) {
                        Ok(Some(_)) => {}
                        Ok(None) => break,
                        Err(_) => break 'stream,
                    }
                }
                assert!(buffer.len() <= HEAD + CONTROL_MAX, "seed {seed}");
            }
        }
    }
}
