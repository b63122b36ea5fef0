//! What the files of the log say, beyond their frames: a head that names them, rows, and a snapshot's end.

use crate::Revision;
use crate::directory::Holds;
use crate::frame::HEADER;

/// Raised when an older program could not read what this one writes.
pub(crate) const FORMAT: u32 = 2;

const HEAD: u8 = b'H';
const ROWS: u8 = b'R';
const END: u8 = b'E';

/// The first frame of every file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub(crate) holds: Holds,
    pub(crate) number: u64,
    /// The newest revision when the file was begun.
    pub(crate) revision: Revision,
    /// In a snapshot: rows up to here say what was, rows after it what happened.
    pub(crate) floor: Revision,
}

/// A payload, understood.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Payload<'a> {
    Head(Head),
    /// A head of a format that is not ours, whatever else it says.
    Newer(u32),
    Rows(&'a [u8]),
    /// A snapshot ends here, after so many rows.
    End(u64),
}

impl Head {
    /// The head as a frame with room for its header.
    pub(crate) fn encode(self) -> Vec<u8> {
        let mut out = vec![0; HEADER];
        out.push(HEAD);
        out.extend_from_slice(&FORMAT.to_le_bytes());
        out.push(match self.holds {
            Holds::Changes => 1,
            Holds::Snapshot => 2,
        });
        for number in [self.number, self.revision.0, self.floor.0] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out
    }

    fn decode(bytes: &[u8]) -> Option<Payload<'_>> {
        let (format, rest) = bytes.split_first_chunk::<4>()?;
        let format = u32::from_le_bytes(*format);
        if format > FORMAT {
            return Some(Payload::Newer(format));
        }
        let (holds, rest) = rest.split_first()?;
        let holds = match holds {
            1 => Holds::Changes,
            2 => Holds::Snapshot,
            _ => return None,
        };
        let numbers = rest.first_chunk::<24>().filter(|_| rest.len() == 24)?;
        let number = |at: usize| numbers[at..at + 8].try_into().map(u64::from_le_bytes).expect("eight bytes");
        Some(Payload::Head(Self {
            holds,
            number: number(0),
            revision: Revision(number(8)),
            floor: Revision(number(16)),
        }))
    }
}

/// Begins a frame of rows.
pub(crate) fn begin_rows(out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&[0; HEADER]);
    out.push(ROWS);
}

/// The last frame of a snapshot.
pub(crate) fn end(rows: u64) -> Vec<u8> {
    let mut out = vec![0; HEADER];
    out.push(END);
    out.extend_from_slice(&rows.to_le_bytes());
    out
}

/// What a sound frame says; `None` if we never wrote such a thing.
pub(crate) fn read(payload: &[u8]) -> Option<Payload<'_>> {
    let (tag, rest) = payload.split_first()?;
    match *tag {
        HEAD => Head::decode(rest),
        ROWS => Some(Payload::Rows(rest)),
        END => Some(Payload::End(u64::from_le_bytes(rest.try_into().ok()?))),
        _ => None,
    }
}
