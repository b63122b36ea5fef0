//! A SPDY/3.1 connection whose streams the client opens.
//!
//! It is driven by whoever asks it for the next [`Event`]; pings, windows and settings are dealt with on the way.
//! Nothing is queued for slow readers: while nobody asks, nothing is read, and the client has to wait.

use std::collections::BTreeMap;
use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::frame::{DATA_MAX, Decoder, Frame, FrameError, encode_data};
use super::headers::{HeaderError, HeaderReader, HeaderWriter, Headers};

/// More streams than any protocol of ours opens at once.
const STREAMS_MAX: usize = 256;
/// How much is asked of the connection at a time.
const READ: usize = 16 * 1024;

/// RST_STREAM: there is no such stream.
const INVALID_STREAM: u32 = 2;
/// RST_STREAM: not this one, perhaps another time.
const REFUSED_STREAM: u32 = 3;
/// GOAWAY: the peer broke the protocol.
const PROTOCOL_ERROR: u32 = 1;

/// What happened on a connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The client opened a stream. It waits for a reply.
    Opened { id: u32, headers: Headers, fin: bool },
    /// The client sent something; with `fin` for the last time.
    Data { id: u32, bytes: Bytes, fin: bool },
    /// The client wants nothing more of this stream.
    Reset { id: u32 },
    /// The client hung up.
    Closed,
}

/// Why a connection cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error("the client's bytes are no SPDY/3.1")]
    Frame(#[from] FrameError),
    #[error("the client's headers cannot be read")]
    Header(#[from] HeaderError),
    #[error("the client opened stream {id} out of order")]
    Order { id: u32 },
    #[error("the connection broke")]
    Io(#[from] io::Error),
}

impl From<ConnectionError> for io::Error {
    fn from(error: ConnectionError) -> Self {
        if let ConnectionError::Io(error) = error { error } else { Self::other(error) }
    }
}

/// Which halves of a stream are still open.
#[derive(Debug, Clone, Copy)]
struct Halves {
    theirs: bool,
    ours: bool,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection<S> {
    stream: S,
    incoming: BytesMut,
    outgoing: BytesMut,
    decoder: Decoder,
    reader: HeaderReader,
    writer: HeaderWriter,
    streams: BTreeMap<u32, Halves>,
    last_opened: u32,
    last_ping: u32,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Takes over an upgraded connection.
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            incoming: BytesMut::new(),
            outgoing: BytesMut::new(),
            decoder: Decoder::default(),
            reader: HeaderReader::new(),
            writer: HeaderWriter::new(),
            streams: BTreeMap::new(),
            last_opened: 0,
            last_ping: 0,
        }
    }

    /// Waits for the next event. Dropping it while it waits loses nothing: what is half read or half written
    /// stays in the buffers.
    pub(crate) async fn next(&mut self) -> Result<Event, ConnectionError> {
        loop {
            match self.buffered() {
                Ok(Some(event)) => return Ok(event),
                Ok(None) => {}
                Err(error) => {
                    self.say(&Frame::GoAway { last: self.last_opened, status: PROTOCOL_ERROR });
                    self.flush().await?;
                    return Err(error);
                }
            }
            self.flush().await?;
            self.incoming.reserve(READ);
            if self.stream.read_buf(&mut self.incoming).await? == 0 {
                return Ok(Event::Closed);
            }
        }
    }

    fn buffered(&mut self) -> Result<Option<Event>, ConnectionError> {
        while let Some(frame) = self.decoder.decode(&mut self.incoming)? {
            if let Some(event) = self.heed(frame)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    fn heed(&mut self, frame: Frame) -> Result<Option<Event>, ConnectionError> {
        Ok(match frame {
            Frame::SynStream { id, fin, block } => {
                let headers = self.reader.read(&block)?;
                self.opened(id, headers, fin)?
            }
            Frame::Data { id, fin, bytes } => self.data(id, bytes, fin),
            Frame::Reset { id, .. } => self.streams.remove(&id).map(|_| Event::Reset { id }),
            Frame::Headers { id, fin, block } => {
                // Nobody of ours looks at late headers, but reading them keeps the zlib stream in step.
                self.reader.read(&block)?;
                if fin { self.data(id, Bytes::new(), true) } else { None }
            }
            Frame::SynReply { block, .. } => {
                self.reader.read(&block)?;
                None
            }
            // Even ids are answers to our own pings.
            Frame::Ping { id } if id % 2 == 1 => {
                self.say(&Frame::Ping { id });
                None
            }
            Frame::Ping { .. }
            | Frame::Settings
            | Frame::GoAway { .. }
            | Frame::WindowUpdate { .. }
            | Frame::Unknown { .. } => None,
        })
    }

    fn opened(&mut self, id: u32, headers: Headers, fin: bool) -> Result<Option<Event>, ConnectionError> {
        if id.is_multiple_of(2) || id <= self.last_opened {
            return Err(ConnectionError::Order { id });
        }
        self.last_opened = id;
        if self.streams.len() >= STREAMS_MAX {
            self.say(&Frame::Reset { id, status: REFUSED_STREAM });
            return Ok(None);
        }
        self.streams.insert(id, Halves { theirs: !fin, ours: true });
        Ok(Some(Event::Opened { id, headers, fin }))
    }

    fn data(&mut self, id: u32, bytes: Bytes, fin: bool) -> Option<Event> {
        let Some(halves) = self.streams.get_mut(&id).filter(|halves| halves.theirs) else {
            if !bytes.is_empty() {
                self.say(&Frame::Reset { id, status: INVALID_STREAM });
            }
            return None;
        };
        halves.theirs = !fin;
        if fin && !halves.ours {
            self.streams.remove(&id);
        }
        if !bytes.is_empty() {
            let delta = u32::try_from(bytes.len()).expect("a piece of a frame is small");
            self.say(&Frame::WindowUpdate { id: 0, delta });
            if !fin {
                self.say(&Frame::WindowUpdate { id, delta });
            }
        }
        Some(Event::Data { id, bytes, fin })
    }

    fn say(&mut self, frame: &Frame) {
        frame.encode(&mut self.outgoing);
    }

    async fn flush(&mut self) -> io::Result<()> {
        while !self.outgoing.is_empty() {
            if self.stream.write_buf(&mut self.outgoing).await? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        self.stream.flush().await
    }

    /// Accepts a stream that was opened.
    pub(crate) async fn reply(&mut self, id: u32) -> io::Result<()> {
        let block = self.writer.write(&[]);
        self.say(&Frame::SynReply { id, fin: false, block });
        self.flush().await
    }

    /// Refuses or ends a stream at once.
    pub(crate) async fn reset(&mut self, id: u32) -> io::Result<()> {
        self.streams.remove(&id);
        self.say(&Frame::Reset { id, status: REFUSED_STREAM });
        self.flush().await
    }

    /// Sends bytes on a stream; with `fin` for the last time. A stream that the client has reset takes nothing.
    pub(crate) async fn send(&mut self, id: u32, bytes: &[u8], fin: bool) -> io::Result<()> {
        let Some(halves) = self.streams.get_mut(&id).filter(|halves| halves.ours) else { return Ok(()) };
        halves.ours = !fin;
        if fin && !halves.theirs {
            self.streams.remove(&id);
        }
        let mut chunks = bytes.chunks(DATA_MAX).peekable();
        if chunks.peek().is_none() {
            encode_data(&mut self.outgoing, id, fin, &[]);
        }
        while let Some(chunk) = chunks.next() {
            encode_data(&mut self.outgoing, id, fin && chunks.peek().is_none(), chunk);
        }
        self.flush().await
    }

    /// Sends a ping, to see whether there is still a connection to write to.
    pub(crate) async fn ping(&mut self) -> io::Result<()> {
        self.last_ping = self.last_ping.checked_add(2).unwrap_or(2);
        self.say(&Frame::Ping { id: self.last_ping });
        self.flush().await
    }

    /// Says goodbye and closes.
    pub(crate) async fn close(mut self) -> io::Result<()> {
        self.say(&Frame::GoAway { last: self.last_opened, status: 0 });
        self.flush().await?;
        self.stream.shutdown().await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use tokio::io::DuplexStream;

    use super::*;

    fn pair() -> (Connection<DuplexStream>, DuplexStream) {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        (Connection::new(ours), theirs)
    }

    async fn tell(theirs: &mut DuplexStream, frames: &[Frame]) {
        let mut wire = BytesMut::new();
        frames.iter().for_each(|frame| frame.encode(&mut wire));
        theirs.write_all(&wire).await.unwrap();
    }

    async fn heard(theirs: &mut DuplexStream, count: usize) -> Vec<Frame> {
        let (mut decoder, mut buffer, mut frames) = (Decoder::default(), BytesMut::new(), vec![]);
        while frames.len() < count {
            if let Some(frame) = decoder.decode(&mut buffer).unwrap() {
                frames.push(frame);
            } else {
                assert_ne!(theirs.read_buf(&mut buffer).await.unwrap(), 0, "closed after {frames:?}");
            }
        }
        frames
    }

    fn syn(writer: &mut HeaderWriter, id: u32) -> Frame {
        Frame::SynStream { id, fin: false, block: writer.write(&[("streamType", "stdin")]) }
    }

    #[tokio::test]
    async fn pings_are_answered_and_received_data_widens_both_windows() {
        let (mut connection, mut theirs) = pair();
        let mut writer = HeaderWriter::new();
        let hello = Frame::Data { id: 1, fin: false, bytes: Bytes::from_static(b"hello") };
        tell(&mut theirs, &[Frame::Settings, Frame::Ping { id: 1 }, syn(&mut writer, 1), hello]).await;
        assert!(matches!(connection.next().await.unwrap(), Event::Opened { id: 1, .. }));
        assert!(matches!(connection.next().await.unwrap(), Event::Data { id: 1, fin: false, .. }));
        let reading = tokio::spawn(async move { connection.next().await.map(|event| event == Event::Closed) });
        let expected =
            [Frame::Ping { id: 1 }, Frame::WindowUpdate { id: 0, delta: 5 }, Frame::WindowUpdate { id: 1, delta: 5 }];
        assert_eq!(heard(&mut theirs, 3).await, expected);
        drop(theirs);
        assert!(reading.await.unwrap().unwrap());
    }

    #[tokio::test]
    async fn a_stream_closes_one_half_at_a_time() {
        let (mut connection, mut theirs) = pair();
        tell(&mut theirs, &[syn(&mut HeaderWriter::new(), 1), Frame::Data { id: 1, fin: true, bytes: Bytes::new() }])
            .await;
        assert!(matches!(connection.next().await.unwrap(), Event::Opened { .. }));
        assert_eq!(connection.next().await.unwrap(), Event::Data { id: 1, bytes: Bytes::new(), fin: true });
        connection.send(1, b"still open", false).await.unwrap();
        connection.send(1, b"", true).await.unwrap();
        connection.send(1, b"too late", true).await.unwrap();
        connection.close().await.unwrap();
        let expected = [
            Frame::Data { id: 1, fin: false, bytes: Bytes::from_static(b"still open") },
            Frame::Data { id: 1, fin: true, bytes: Bytes::new() },
            Frame::GoAway { last: 1, status: 0 },
        ];
        assert_eq!(heard(&mut theirs, 3).await, expected);
    }

    #[tokio::test]
    async fn streams_out_of_order_end_the_connection_with_a_goaway() {
        for frames in [[1, 1], [3, 1], [1, 2]] {
            let (mut connection, mut theirs) = pair();
            let mut writer = HeaderWriter::new();
            tell(&mut theirs, &frames.map(|id| syn(&mut writer, id))).await;
            assert!(matches!(connection.next().await.unwrap(), Event::Opened { .. }));
            assert!(matches!(connection.next().await, Err(ConnectionError::Order { .. })));
            let goaway = heard(&mut theirs, 1).await;
            assert!(matches!(goaway[..], [Frame::GoAway { status: PROTOCOL_ERROR, .. }]));
        }
    }

    #[tokio::test]
    async fn streams_beyond_the_limit_are_refused_and_the_connection_goes_on() {
        let (mut connection, mut theirs) = pair();
        let mut writer = HeaderWriter::new();
        let count = u32::try_from(STREAMS_MAX).unwrap() + 1;
        let frames: Vec<_> = (0..count).map(|index| syn(&mut writer, 2 * index + 1)).collect();
        tell(&mut theirs, &frames).await;
        tell(&mut theirs, &[Frame::Reset { id: 1, status: 5 }]).await;
        for _ in 0..STREAMS_MAX {
            assert!(matches!(connection.next().await.unwrap(), Event::Opened { .. }));
        }
        assert_eq!(connection.next().await.unwrap(), Event::Reset { id: 1 });
        connection.ping().await.unwrap();
        assert_eq!(heard(&mut theirs, 1).await, [Frame::Reset { id: 2 * count - 1, status: REFUSED_STREAM }]);
    }
}
