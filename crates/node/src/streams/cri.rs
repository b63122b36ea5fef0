//! The CRI log format, turned back into what the container wrote.
//!
//! ```text
//!  2026-08-01T12:00:00.000000001Z stdout F a whole line
//!  2026-08-01T12:00:00.000000002Z stderr P the beginning of a long line, and
//!  2026-08-01T12:00:00.000000003Z stderr F  its end
//! ```
//!
//! The renderer is fed in pieces cut anywhere and holds no more than the head of a line, so neither a large log
//! nor a line without end costs memory.

use std::mem;

use bytes::{BufMut, BytesMut};
use jiff::Timestamp;

use super::query::LogOptions;

/// No head is longer than this; what looks so is not a log line.
pub(super) const HEAD_MAX: usize = 128;

/// What stands before the text of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head<'a> {
    time: &'a str,
    stderr: bool,
    /// The text ends a line that the container wrote; otherwise the line goes on.
    pub(super) full: bool,
}

impl<'a> Head<'a> {
    /// Reads `TIME STREAM TAGS`, with or without what follows them.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut words = bytes.splitn(4, |byte| *byte == b' ');
        let time = str::from_utf8(words.next()?).ok()?;
        let stderr = match words.next()? {
            b"stdout" => false,
            b"stderr" => true,
            _ => return None,
        };
        let full = match words.next()?.split(|byte| matches!(byte, b':' | b'\n')).next()? {
            b"F" => true,
            b"P" => false,
            _ => return None,
        };
        Some(Self { time, stderr, full })
    }
}

#[derive(Debug)]
enum State {
    /// In the head of a line: what of it has been seen.
    Head(Vec<u8>),
    /// In the text of a line.
    Text { full: bool, wanted: bool },
    /// In something that is no log line: up to its end nothing is understood.
    Noise,
}

/// Turns log lines into output.
#[derive(Debug)]
pub(super) struct Renderer {
    timestamps: bool,
    since: Option<Timestamp>,
    left: Option<u64>,
    state: State,
    /// For each stream: whether a line is under way there, and if so, whether it is wanted.
    under_way: [Option<bool>; 2],
}

impl Renderer {
    pub(super) fn new(options: &LogOptions) -> Self {
        Self {
            timestamps: options.timestamps,
            since: options.since,
            left: options.limit_bytes,
            state: State::Head(Vec::new()),
            under_way: [None, None],
        }
    }

    /// True once as many bytes were given out as were asked for.
    pub(super) fn is_spent(&self) -> bool {
        self.left == Some(0)
    }

    /// Takes the next bytes of the log and appends to `out` what a reader is to see of them.
    pub(super) fn push(&mut self, mut bytes: &[u8], out: &mut BytesMut) {
        while !bytes.is_empty() && !self.is_spent() {
            bytes = match mem::replace(&mut self.state, State::Noise) {
                State::Head(seen) => self.head(seen, bytes, out),
                State::Text { full, wanted } => self.text(full, wanted, bytes, out),
                State::Noise => match bytes.iter().position(|byte| *byte == b'\n') {
                    None => &[],
                    Some(end) => {
                        self.state = State::Head(Vec::new());
                        &bytes[end + 1..]
                    }
                },
            };
        }
    }

    fn head<'b>(&mut self, mut seen: Vec<u8>, bytes: &'b [u8], out: &mut BytesMut) -> &'b [u8] {
        let mut spaces = seen.iter().filter(|byte| **byte == b' ').count();
        for (index, byte) in bytes.iter().enumerate() {
            spaces += usize::from(*byte == b' ');
            if spaces == 3 || *byte == b'\n' {
                self.begin(&seen, out);
                // A line end belongs to the text, even where there is none.
                return &bytes[if *byte == b'\n' { index } else { index + 1 }..];
            }
            if seen.len() == HEAD_MAX {
                self.state = State::Noise;
                return &bytes[index..];
            }
            seen.push(*byte);
        }
        self.state = State::Head(seen);
        &[]
    }

    fn begin(&mut self, head: &[u8], out: &mut BytesMut) {
        let Some(head) = Head::parse(head) else { return self.state = State::Noise };
        let stream = usize::from(head.stderr);
        let wanted = match (self.under_way[stream], self.since) {
            (Some(wanted), _) => wanted,
            (None, None) => true,
            (None, Some(since)) => head.time.parse::<Timestamp>().is_ok_and(|time| time >= since),
        };
        if wanted && self.timestamps && self.under_way[stream].is_none() {
            self.give(head.time.as_bytes(), out);
            self.give(b" ", out);
        }
        self.under_way[stream] = (!head.full).then_some(wanted);
        self.state = State::Text { full: head.full, wanted };
    }

    fn text<'b>(&mut self, full: bool, wanted: bool, bytes: &'b [u8], out: &mut BytesMut) -> &'b [u8] {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let (text, rest) = match end {
            Some(end) => (&bytes[..if full { end + 1 } else { end }], &bytes[end + 1..]),
            None => (bytes, &[][..]),
        };
        if wanted {
            self.give(text, out);
        }
        self.state = if end.is_some() { State::Head(Vec::new()) } else { State::Text { full, wanted } };
        rest
    }

    fn give(&mut self, bytes: &[u8], out: &mut BytesMut) {
        let mut count = bytes.len();
        if let Some(left) = &mut self.left {
            count = count.min(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= count as u64;
        }
        out.put_slice(&bytes[..count]);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const LOG: &str = "\
2026-08-01T12:00:01.000000000Z stdout F one
2026-08-01T12:00:02.000000000Z stdout P tw
2026-08-01T12:00:03.000000000Z stderr F oops
2026-08-01T12:00:04.000000000Z stdout F o
this is no log line
2026-08-01T12:00:05.000000000Z stdout F 
2026-08-01T12:00:06.000000000Z stdout F
2026-08-01T12:00:07.000000000Z stdout F:tag with tag
";

    fn rendered(options: &LogOptions, piece: usize) -> String {
        let (mut renderer, mut out) = (Renderer::new(options), BytesMut::new());
        LOG.as_bytes().chunks(piece).for_each(|bytes| renderer.push(bytes, &mut out));
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn partial_lines_are_joined_and_noise_is_left_out_however_the_log_is_cut() {
        for piece in [1, 2, 3, 7, 50, 1000] {
            assert_eq!(rendered(&LogOptions::default(), piece), "one\ntwoops\no\n\n\nwith tag\n", "{piece}");
        }
    }

    #[test]
    fn times_stand_only_where_a_line_begins() {
        let options = LogOptions { timestamps: true, ..LogOptions::default() };
        let expected = "2026-08-01T12:00:01.000000000Z one\n\
            2026-08-01T12:00:02.000000000Z tw2026-08-01T12:00:03.000000000Z oops\no\n\
            2026-08-01T12:00:05.000000000Z \n2026-08-01T12:00:06.000000000Z \n\
            2026-08-01T12:00:07.000000000Z with tag\n";
        assert_eq!(rendered(&options, 5), expected);
    }

    #[test]
    fn lines_before_since_are_left_out_whole() {
        let since = |text: &str| LogOptions { since: Some(text.parse().unwrap()), ..LogOptions::default() };
        // The line that began in time stays whole, and the one that began too early is left out to its end.
        assert_eq!(rendered(&since("2026-08-01T12:00:02Z"), 9), "twoops\no\n\n\nwith tag\n");
        assert_eq!(rendered(&since("2026-08-01T12:00:02.5Z"), 9), "oops\n\n\nwith tag\n");
        assert_eq!(rendered(&since("2026-08-01T13:00:00+01:00"), 9), rendered(&LogOptions::default(), 9));
        assert_eq!(rendered(&since("2027-01-01T00:00:00Z"), 9), "");
    }

    #[test]
    fn no_more_bytes_are_given_than_were_asked_for() {
        for limit in 0..20 {
            let options = LogOptions { limit_bytes: Some(limit), ..LogOptions::default() };
            let all = rendered(&LogOptions::default(), 9);
            assert_eq!(rendered(&options, 9), all[..usize::try_from(limit).unwrap().min(all.len())]);
        }
    }

    #[test]
    fn a_head_without_end_is_not_kept() {
        let mut renderer = Renderer::new(&LogOptions::default());
        let mut out = BytesMut::new();
        renderer.push(&[b'x'; 10_000], &mut out);
        assert!(matches!(renderer.state, State::Noise));
        renderer.push(b"\n2026-08-01T12:00:01Z stdout F after\n", &mut out);
        assert_eq!(&out[..], b"after\n");
    }
}
