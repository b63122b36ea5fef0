//! How bytes in a file prove that they are what was written: frames, each with a checksum that continues the one before.
//!
//! ```text
//!  magic · length · sum of the payload, continuing the previous frame's · sum of these twelve bytes │ payload
//! ```
//!
//! One frame is one durable write, and the next is begun only when it is safe. So a file whose writer was cut off ends in
//! at most one unfinished frame. What else does not fit is damage, and the two are told apart: storage keeps or loses
//! whole sectors, so an unfinished frame is too short or has a sector of zeros, which no finished frame has.

/// Begins every frame.
const MAGIC: [u8; 4] = *b"\xadieu";

/// Bytes before the payload.
pub(crate) const HEADER: usize = 16;

/// No payload is longer. Also keeps text from looking like a header: four printable bytes would be a greater length.
pub(crate) const PAYLOAD_MAX: usize = 256 << 20;

/// What a disk writes whole or not at all.
const SECTOR: usize = 512;

/// The running checksum of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Chain(u32);

impl Chain {
    /// Completes a frame: the payload stands behind [`HEADER`] bytes of room. Answers the chain after it.
    #[must_use]
    pub(crate) fn seal(self, frame: &mut [u8]) -> Self {
        let (header, payload) = frame.split_at_mut(HEADER);
        let next = self.over(payload);
        let length = u32::try_from(payload.len()).expect("a frame is shorter than 4 GiB");
        assert!(payload.len() <= PAYLOAD_MAX, "a frame is short enough to be read back");
        header[..4].copy_from_slice(&MAGIC);
        header[4..8].copy_from_slice(&length.to_le_bytes());
        header[8..12].copy_from_slice(&next.0.to_le_bytes());
        let check = crc32fast::hash(&header[..12]);
        header[12..].copy_from_slice(&check.to_le_bytes());
        next
    }

    fn over(self, payload: &[u8]) -> Self {
        let mut hasher = crc32fast::Hasher::new_with_initial(self.0);
        hasher.update(payload);
        Self(hasher.finalize())
    }
}

/// Why the frames of a file end before the file does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum FrameError {
    /// The last write was not finished. Nobody was told that it was.
    #[error("the frame at byte {at} was never finished")]
    Unfinished {
        /// Where it begins.
        at: usize,
    },
    /// What was written is not what is there.
    #[error("the frame at byte {at} is not what was written")]
    Damaged {
        /// Where it begins.
        at: usize,
    },
}

/// The frames of a file, in order.
#[derive(Debug)]
pub(crate) struct Frames<'a> {
    bytes: &'a [u8],
    at: usize,
    chain: Chain,
}

impl<'a> Frames<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, chain: Chain::default() }
    }

    /// Where the next frame begins, and the chain it continues.
    pub(crate) fn end(&self) -> (usize, Chain) {
        (self.at, self.chain)
    }

    /// The payload of the next frame; `None` where the file ends.
    pub(crate) fn next(&mut self) -> Result<Option<&'a [u8]>, FrameError> {
        let rest = &self.bytes[self.at..];
        if rest.is_empty() {
            return Ok(None);
        }
        let whole = header(rest).and_then(|(length, chain)| Some((rest.get(HEADER..HEADER + length)?, chain)));
        match whole {
            Some((payload, chain)) if self.chain.over(payload) == chain => {
                self.at += HEADER + payload.len();
                self.chain = chain;
                Ok(Some(payload))
            }
            _ if self.is_unfinished(rest) => Err(FrameError::Unfinished { at: self.at }),
            _ => Err(FrameError::Damaged { at: self.at }),
        }
    }

    /// Whether `rest`, which does not begin with a sound frame, is what a write leaves that was cut off.
    fn is_unfinished(&self, rest: &[u8]) -> bool {
        let (is_incomplete, after) = match header(rest) {
            Some((length, _)) if rest.len() < HEADER + length => (true, &[][..]),
            Some((length, _)) => {
                let (frame, after) = rest.split_at(HEADER + length);
                (self.has_lost_sector(frame), after)
            }
            None => (rest.len() < HEADER || self.has_lost_sector(&rest[..HEADER]), &[][..]),
        };
        // Whatever was written later was written because this one was safe.
        let is_followed =
            after.iter().any(|byte| *byte != 0) || (1..rest.len()).any(|at| header(&rest[at..]).is_some());
        is_incomplete && !is_followed
    }

    /// Whether one of the sectors that `part`, which begins where the next frame would, touches holds only zeros of it.
    fn has_lost_sector(&self, part: &[u8]) -> bool {
        let first = (SECTOR - self.at % SECTOR).min(part.len());
        let (first, others) = part.split_at(first);
        std::iter::once(first).chain(others.chunks(SECTOR)).any(|chunk| chunk.iter().all(|byte| *byte == 0))
    }
}

/// A frame of a file that may be damaged.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Scanned<'a> {
    /// Where it begins.
    pub(crate) at: usize,
    pub(crate) payload: &'a [u8],
    /// Whether the payload is what was written.
    pub(crate) is_sound: bool,
    /// Whether the header is.
    pub(crate) has_header: bool,
}

/// The frames of a file, those behind a damaged one too; and where a last one begins that was never finished.
///
/// A frame whose payload changed is known by its header. One whose header changed ends where the next begins, and is what was
/// written if that one continues it.
pub(crate) fn scan(bytes: &[u8]) -> (Vec<Scanned<'_>>, Option<usize>) {
    let mut frames = Frames::new(bytes);
    let mut found = Vec::new();
    loop {
        let (at, chain) = frames.end();
        match frames.next() {
            Ok(None) => return (found, None),
            Ok(Some(payload)) => found.push(Scanned { at, payload, is_sound: true, has_header: true }),
            Err(FrameError::Unfinished { at }) => return (found, Some(at)),
            Err(FrameError::Damaged { .. }) => {
                let rest = &bytes[at..];
                let own = header(rest).and_then(|(length, next)| Some((rest.get(HEADER..HEADER + length)?, next)));
                let (payload, next, is_sound) = own.map_or_else(
                    || {
                        let end = (HEADER..rest.len()).find(|end| header(&rest[*end..]).is_some());
                        let payload = rest.get(HEADER..end.unwrap_or(rest.len())).unwrap_or_default();
                        let sum = chain.over(payload);
                        let continues = |end| Frames { bytes: rest, at: end, chain: sum }.next().is_ok();
                        (payload, sum, end.is_some_and(continues))
                    },
                    |(payload, next)| (payload, next, false),
                );
                found.push(Scanned { at, payload, is_sound, has_header: own.is_some() });
                (frames.at, frames.chain) = ((at + HEADER + payload.len()).min(bytes.len()), next);
            }
        }
    }
}

/// The length of the payload and the chain after it, if `bytes` begin with a sound header.
fn header(bytes: &[u8]) -> Option<(usize, Chain)> {
    let header = bytes.first_chunk::<HEADER>()?;
    if header[..4] != MAGIC {
        return None;
    }
    let word = |at: usize| header[at..at + 4].try_into().map(u32::from_le_bytes).expect("four bytes");
    if word(12) != crc32fast::hash(&header[..12]) {
        return None;
    }
    let length = usize::try_from(word(4)).ok().filter(|length| *length <= PAYLOAD_MAX)?;
    Some((length, Chain(word(8))))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn file(payloads: &[&[u8]]) -> Vec<u8> {
        let mut file = Vec::new();
        let mut chain = Chain::default();
        for payload in payloads {
            let mut frame = [&[0; HEADER][..], payload].concat();
            chain = chain.seal(&mut frame);
            file.extend(frame);
        }
        file
    }

    fn read(bytes: &[u8]) -> (usize, Option<FrameError>) {
        let mut frames = Frames::new(bytes);
        let mut count = 0;
        loop {
            match frames.next() {
                Ok(Some(_)) => count += 1,
                Ok(None) => return (count, None),
                Err(error) => return (count, Some(error)),
            }
        }
    }

    const BIG: &[u8] = &[b'x'; 3000];

    #[test]
    fn frames_read_back() {
        let bytes = file(&[b"one", BIG, b"three"]);
        let mut frames = Frames::new(&bytes);
        assert_eq!(frames.next(), Ok(Some(&b"one"[..])));
        assert_eq!(frames.next(), Ok(Some(BIG)));
        assert_eq!(frames.next(), Ok(Some(&b"three"[..])));
        assert_eq!(frames.next(), Ok(None));
        assert_eq!(frames.end().0, bytes.len());
    }

    #[test]
    fn a_file_cut_anywhere_has_one_unfinished_frame() {
        let bytes = file(&[b"one", BIG, b"three"]);
        let ends = [19, 19 + 16 + 3000, bytes.len()];
        for length in 0..bytes.len() {
            let whole = ends.iter().filter(|end| **end <= length).count();
            let at = ends[..whole].last().copied().unwrap_or(0);
            let expected = (length > at).then_some(FrameError::Unfinished { at });
            assert_eq!(read(&bytes[..length]), (whole, expected), "cut at {length}");
        }
    }

    #[test]
    fn any_flipped_bit_is_damage() {
        let bytes = file(&[b"one", BIG, b"three"]);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let (_, error) = read(&damaged);
            assert!(matches!(error, Some(FrameError::Damaged { .. })), "bit {bit}: {error:?}");
        }
    }

    #[test]
    fn a_lost_sector_is_unfinished_at_the_end_and_damage_before() {
        let bytes = file(&[b"one", BIG]);
        for sector in 0..bytes.len().div_ceil(SECTOR) {
            let mut lost = bytes.clone();
            let range = (sector * SECTOR).max(19)..((sector + 1) * SECTOR).min(bytes.len());
            lost[range.clone()].fill(0);
            assert_eq!(read(&lost), (1, Some(FrameError::Unfinished { at: 19 })), "sector {sector}");
            // The same with a frame behind it that was written later.
            let mut lost = file(&[b"one", BIG, b"three"]);
            lost[range].fill(0);
            assert_eq!(read(&lost), (1, Some(FrameError::Damaged { at: 19 })), "sector {sector}");
        }
    }

    #[test]
    fn frames_in_another_order_or_from_another_file_do_not_fit() {
        let (a, b) = (file(&[b"one", b"two"]), file(&[b"uno", b"two"]));
        assert_eq!(read(&[&a[..19], &b[19..]].concat()).0, 1);
        assert_eq!(read(&[&a[19..], &a[..19]].concat()).0, 0);
    }
}
