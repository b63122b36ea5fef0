//! The part of D-Bus needed to be notified of a shutdown: a connection to the system bus, calls, signals, descriptors.
//!
//! Written by hand because it is four calls and two signals: a client library brings a hundred crates for them.

use std::collections::VecDeque;
use std::env;
use std::io::{self, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags};

/// Where the system bus is unless the environment says otherwise.
const SOCKET: &str = "/run/dbus/system_bus_socket";
/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(10);
/// Longer than anything we are sent.
const LENGTH_MOST: usize = 1 << 20;
/// How many descriptors may come at once.
const DESCRIPTORS_MOST: usize = 4;

const CALL: u8 = 1;
const RETURN: u8 = 2;
const ERROR: u8 = 3;
const SIGNAL: u8 = 4;

/// Why the bus is of no use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DbusError {
    /// The connection.
    #[error("the connection to the system bus broke")]
    Io(#[from] io::Error),
    /// Someone answered, but not what was asked for.
    #[error("what was asked over the system bus is refused: {0}")]
    Refused(String),
    /// This is no D-Bus, or one we do not speak.
    #[error("the system bus says something that cannot be read: {0}")]
    Odd(&'static str),
    /// What it says brought a mistake of ours to light.
    #[error("the talk with the system bus broke: {0}")]
    Broke(supervision::Panic),
}

/// What is asked of whom.
pub(crate) struct Call<'a> {
    pub to: &'a str,
    pub path: &'a str,
    pub interface: &'a str,
    pub member: &'a str,
    /// All that we ask with are texts.
    pub words: &'a [&'a str],
}

/// Something that came.
#[derive(Debug, Default)]
pub(crate) struct Message {
    kind: u8,
    reply_to: Option<u32>,
    pub interface: String,
    pub member: String,
    /// The unique name of who sent it; the bus itself sees to that.
    pub sender: String,
    signature: String,
    body: Vec<u8>,
    pub descriptors: Vec<OwnedFd>,
}

impl Message {
    /// True for a signal of this name.
    pub(crate) fn is_signal(&self, interface: &str, member: &str) -> bool {
        self.kind == SIGNAL && self.interface == interface && self.member == member
    }

    /// The texts that it begins with.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut reader = Reader { bytes: &self.body, at: 0 };
        let mut signature = self.signature.bytes();
        let mut words = Vec::new();
        while matches!(signature.next(), Some(b's' | b'o'))
            && let Ok(word) = reader.text()
        {
            words.push(word);
        }
        words
    }

    /// The yes or no that it consists of.
    pub(crate) fn yes(&self) -> Option<bool> {
        let mut reader = Reader { bytes: &self.body, at: 0 };
        (self.signature == "b").then(|| reader.number().ok().map(|number| number != 0)).flatten()
    }

    /// The large number, of whatever kind, that it consists of.
    pub(crate) fn number_within(&self) -> Option<u64> {
        let mut reader = Reader { bytes: &self.body, at: 0 };
        if self.signature != "v" || reader.signature().ok()? != "t" {
            return None;
        }
        reader.align(8);
        let bytes = self.body.get(reader.at..)?.first_chunk()?;
        Some(u64::from_le_bytes(*bytes))
    }
}

/// A connection to the system bus.
pub(crate) struct SystemBus {
    stream: UnixStream,
    serial: u32,
    bytes: Vec<u8>,
    descriptors: VecDeque<OwnedFd>,
    /// What came while an answer was awaited.
    earlier: VecDeque<Message>,
}

impl SystemBus {
    /// Connects, and says who we are. `None` if this machine has no system bus.
    pub(crate) fn system() -> Result<Option<Self>, DbusError> {
        let address = env::var("DBUS_SYSTEM_BUS_ADDRESS").unwrap_or_default();
        let named = address.split(';').find_map(|one| one.strip_prefix("unix:path=")?.split(',').next());
        let stream = match UnixStream::connect(named.unwrap_or(SOCKET)) {
            Ok(stream) => stream,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut bus =
            Self { stream, serial: 0, bytes: Vec::new(), descriptors: VecDeque::new(), earlier: VecDeque::new() };
        bus.stream.set_read_timeout(Some(ANSWER))?;
        let user = rustix::process::geteuid().as_raw().to_string();
        let user: String = user.bytes().map(|byte| format!("{byte:02x}")).collect();
        bus.say(&format!("\0AUTH EXTERNAL {user}\r\n"), "OK ")?;
        bus.say("NEGOTIATE_UNIX_FD\r\n", "AGREE_UNIX_FD")?;
        bus.stream.write_all(b"BEGIN\r\n")?;
        bus.call(&bus_call("Hello", &[]))?;
        Ok(Some(bus))
    }

    /// One line of the greeting, and its answer.
    fn say(&mut self, line: &str, expected: &str) -> Result<(), DbusError> {
        self.stream.write_all(line.as_bytes())?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n") {
            let mut byte = [0];
            self.stream.read_exact(&mut byte)?;
            answer.push(byte[0]);
            if answer.len() > 1024 {
                return Err(DbusError::Odd("an endless greeting"));
            }
        }
        let understood = answer.starts_with(expected.as_bytes());
        understood.then_some(()).ok_or(DbusError::Odd("it does not let us in"))
    }

    /// Asks, and waits for the answer.
    pub(crate) fn call(&mut self, call: &Call<'_>) -> Result<Message, DbusError> {
        self.serial += 1;
        let serial = self.serial;
        let bytes = encode(call, serial);
        self.stream.write_all(&bytes)?;
        self.stream.set_read_timeout(Some(ANSWER))?;
        loop {
            let message = self.read()?;
            match (message.reply_to, message.kind) {
                (Some(to), RETURN) if to == serial => return Ok(message),
                (Some(to), ERROR) if to == serial => {
                    return Err(DbusError::Refused(message.words().first().cloned().unwrap_or_default()));
                }
                _ => self.earlier.push_back(message),
            }
        }
    }

    /// Waits for the next thing that nobody asked for.
    pub(crate) fn next(&mut self) -> Result<Message, DbusError> {
        if let Some(message) = self.earlier.pop_front() {
            return Ok(message);
        }
        self.stream.set_read_timeout(None)?;
        self.read()
    }

    fn read(&mut self) -> Result<Message, DbusError> {
        loop {
            if let Some(length) = length(&self.bytes)?
                && self.bytes.len() >= length
            {
                let bytes: Vec<u8> = self.bytes.drain(..length).collect();
                return decode(&bytes, &mut self.descriptors);
            }
            self.receive()?;
        }
    }

    fn receive(&mut self) -> Result<(), DbusError> {
        let mut buffer = vec![0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MOST))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received =
            rustix::io::retry_on_intr(|| rustix::net::recvmsg(&self.stream, &mut parts, &mut ancillary, flags))
                .map_err(io::Error::from)?;
        if received.flags.contains(ReturnFlags::CTRUNC) {
            return Err(DbusError::Odd("more descriptors than anyone asked for"));
        }
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                self.descriptors.extend(rights);
            }
        }
        if received.bytes == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        self.bytes.extend_from_slice(&buffer[..received.bytes]);
        Ok(())
    }
}

/// A call to the bus itself.
pub(crate) fn bus_call<'a>(member: &'a str, words: &'a [&'a str]) -> Call<'a> {
    let name = "org.freedesktop.DBus";
    Call { to: name, path: "/org/freedesktop/DBus", interface: name, member, words }
}

fn encode(call: &Call<'_>, serial: u32) -> Vec<u8> {
    let mut body = Vec::new();
    for word in call.words {
        put_text(&mut body, word);
    }
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).expect("what we ask is short").to_le_bytes();
    let mut fields = Vec::new();
    for (code, kind, text) in
        [(1, b'o', call.path), (2, b's', call.interface), (3, b's', call.member), (6, b's', call.to)]
    {
        pad(&mut fields, 8);
        fields.extend_from_slice(&[code, 1, kind, 0]);
        put_text(&mut fields, text);
    }
    if !call.words.is_empty() {
        pad(&mut fields, 8);
        fields.extend_from_slice(&[8, 1, b'g', 0, u8::try_from(call.words.len()).expect("a few words")]);
        fields.extend(std::iter::repeat_n(b's', call.words.len()));
        fields.push(0);
    }
    let mut message = vec![b'l', CALL, 0, 1];
    message.extend_from_slice(&length(&body));
    message.extend_from_slice(&serial.to_le_bytes());
    message.extend_from_slice(&length(&fields));
    message.extend_from_slice(&fields);
    pad(&mut message, 8);
    message.extend_from_slice(&body);
    message
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    pad(out, 4);
    out.extend_from_slice(&u32::try_from(text.len()).expect("what we say is short").to_le_bytes());
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

fn pad(out: &mut Vec<u8>, to: usize) {
    out.resize(out.len().next_multiple_of(to), 0);
}

/// How long the message is that begins here, once that can be known.
fn length(bytes: &[u8]) -> Result<Option<usize>, DbusError> {
    let Some(fixed) = bytes.first_chunk::<16>() else { return Ok(None) };
    // Everyone on a machine writes numbers as the machine does.
    if fixed[0] != b'l' || fixed[3] != 1 {
        return Err(DbusError::Odd("not little-endian, or not version 1"));
    }
    let number = |at: usize| u32::from_le_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
    let (body, fields) = (number(4) as usize, number(12) as usize);
    let length = (16 + fields).next_multiple_of(8).saturating_add(body);
    if length > LENGTH_MOST { Err(DbusError::Odd("a message of a mebibyte")) } else { Ok(Some(length)) }
}

fn decode(bytes: &[u8], descriptors: &mut VecDeque<OwnedFd>) -> Result<Message, DbusError> {
    let mut message = Message { kind: bytes[1], ..Message::default() };
    let mut reader = Reader { bytes, at: 12 };
    let end = reader.number()? as usize + 16;
    let mut count = 0;
    while reader.at < end {
        reader.align(8);
        let code = reader.byte()?;
        let kind = reader.signature()?;
        match (code, kind.as_str()) {
            (2, "s") => message.interface = reader.text()?,
            (3, "s") => message.member = reader.text()?,
            (5, "u") => message.reply_to = Some(reader.number()?),
            (7, "s") => message.sender = reader.text()?,
            (8, "g") => message.signature = reader.signature()?,
            (9, "u") => count = reader.number()? as usize,
            (_, "s" | "o") => drop(reader.text()?),
            (_, "u") => _ = reader.number()?,
            (_, "g") => drop(reader.signature()?),
            _ => return Err(DbusError::Odd("a field of an unknown kind")),
        }
    }
    message.body = bytes.get(end.next_multiple_of(8)..).unwrap_or_default().to_vec();
    message.descriptors = descriptors.drain(..count.min(descriptors.len())).collect();
    Ok(message)
}

/// Reads what is aligned to its own beginning.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn align(&mut self, to: usize) {
        self.at = self.at.next_multiple_of(to);
    }

    fn take(&mut self, count: usize) -> Result<&[u8], DbusError> {
        let taken = self.bytes.get(self.at..).and_then(|rest| rest.get(..count));
        self.at = self.at.saturating_add(count);
        taken.ok_or(DbusError::Odd("it ends too early"))
    }

    fn byte(&mut self) -> Result<u8, DbusError> {
        Ok(self.take(1)?[0])
    }

    fn number(&mut self) -> Result<u32, DbusError> {
        self.align(4);
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn text(&mut self) -> Result<String, DbusError> {
        let length = self.number()? as usize;
        self.words(length)
    }

    fn signature(&mut self) -> Result<String, DbusError> {
        let length = self.byte()?.into();
        self.words(length)
    }

    fn words(&mut self, length: usize) -> Result<String, DbusError> {
        let text = String::from_utf8(self.take(length)?.to_vec()).map_err(|_| DbusError::Odd("a text is not UTF-8"))?;
        self.take(1)?;
        Ok(text)
    }
}
