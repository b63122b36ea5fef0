//! Packets: one question read, a reply written. Whatever cannot be read is refused; nothing is ever read twice.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Most bytes of an answer by UDP, whatever a client says it takes: larger ones are fragments on the way.
pub const UDP_MAX: usize = 1232;
/// What a client takes that says nothing.
const UDP_DEFAULT: usize = 512;
const HEADER: usize = 12;
const NAME_MAX: usize = 255;
const LABEL_MAX: usize = 63;

/// Why a packet is no question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WireError {
    /// It ends too early, or a part of it is longer than it may be: not even answered.
    Malformed,
    /// It is a reply: answering it would begin a loop.
    NotAQuery,
}

/// A name: its labels from the first to the last, as the client wrote them.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Name(Vec<Vec<u8>>);

impl Name {
    /// The labels of a text such as `web.shop.svc.cluster.local`; `None` if it is no name.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_suffix('.').unwrap_or(text);
        if text.is_empty() {
            return Some(Self::default());
        }
        let labels: Vec<Vec<u8>> = text.split('.').map(|label| label.as_bytes().to_vec()).collect();
        let is_valid = labels.iter().all(|label| (1..=LABEL_MAX).contains(&label.len()));
        let name = Self(labels);
        (is_valid && name.bytes() <= NAME_MAX).then_some(name)
    }

    /// Its labels in small letters; those that are no text match nothing.
    pub fn labels(&self) -> Vec<String> {
        self.0.iter().map(|label| String::from_utf8_lossy(label).to_ascii_lowercase()).collect()
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(|label| label.len() + 1).sum::<usize>() + 1
    }

    fn write(&self, into: &mut Vec<u8>) {
        for label in &self.0 {
            into.push(u8::try_from(label.len()).unwrap_or(0));
            into.extend(label);
        }
        into.push(0);
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels: Vec<_> = self.0.iter().map(|label| String::from_utf8_lossy(label)).collect();
        write!(f, "{}.", labels.join("."))
    }
}

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordType {
    /// An IPv4 address.
    A,
    /// Another name.
    Cname,
    /// Who is responsible.
    Soa,
    /// The name of an address.
    Ptr,
    /// Text.
    Txt,
    /// An IPv6 address.
    Aaaa,
    /// Host and port of a service.
    Srv,
    /// Something else, by number.
    Other(u16),
}

impl RecordType {
    fn read(number: u16) -> Self {
        match number {
            1 => Self::A,
            5 => Self::Cname,
            6 => Self::Soa,
            12 => Self::Ptr,
            16 => Self::Txt,
            28 => Self::Aaaa,
            33 => Self::Srv,
            other => Self::Other(other),
        }
    }

    fn number(self) -> u16 {
        match self {
            Self::A => 1,
            Self::Cname => 5,
            Self::Soa => 6,
            Self::Ptr => 12,
            Self::Txt => 16,
            Self::Aaaa => 28,
            Self::Srv => 33,
            Self::Other(number) => number,
        }
    }
}

/// Which network a question is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// The one there is.
    Internet,
    /// Another, by number.
    Other(u16),
}

/// What a client wants to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Question {
    /// Of which name, as the client wrote it.
    pub name: Name,
    /// What.
    pub record_type: RecordType,
    /// Where.
    pub class: Class,
}

/// A packet with a question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Query {
    id: u16,
    recursion_desired: bool,
    /// What is to be done; 0 is to answer.
    pub opcode: u8,
    /// The one question; none if there are several or none, which nobody sends.
    pub question: Option<Question>,
    /// How many bytes the client takes by UDP, if it says so (EDNS).
    extended: Option<usize>,
}

impl Query {
    /// Reads a packet.
    pub fn read(packet: &[u8]) -> Result<Self, WireError> {
        let word = |at: usize| packet.get(at..at + 2).and_then(|two| two.try_into().ok()).map(u16::from_be_bytes);
        let at = |at: usize| word(at).ok_or(WireError::Malformed);
        let (id, flags, questions, answers, authorities, additional) =
            (at(0)?, at(2)?, at(4)?, at(6)?, at(8)?, at(10)?);
        if flags & 0x8000 != 0 {
            return Err(WireError::NotAQuery);
        }
        let opcode = u8::try_from(flags >> 11 & 0xf).unwrap_or(u8::MAX);
        let mut query = Self { id, recursion_desired: flags & 0x0100 != 0, opcode, question: None, extended: None };
        if questions != 1 || answers != 0 || authorities != 0 {
            return Ok(query);
        }
        let (name, behind) = read_name(packet, HEADER)?;
        let class = match at(behind + 2)? {
            1 => Class::Internet,
            other => Class::Other(other),
        };
        query.question = Some(Question { name, record_type: RecordType::read(at(behind)?), class });
        // Of what comes behind only the first is looked at: an OPT record has the root for its name.
        let opt = behind + 4;
        if additional > 0 && packet.get(opt) == Some(&0) && word(opt + 1) == Some(41) {
            query.extended = word(opt + 3).map(usize::from);
        }
        Ok(query)
    }

    /// How long an answer by UDP may be.
    pub fn udp_limit(&self) -> usize {
        self.extended.map_or(UDP_DEFAULT, |asked| asked.clamp(UDP_DEFAULT, UDP_MAX))
    }
}

/// A name that is written out: a question has nothing before it that it could point at, so what points is refused.
fn read_name(packet: &[u8], from: usize) -> Result<(Name, usize), WireError> {
    let (mut labels, mut at) = (Vec::new(), from);
    loop {
        let length = usize::from(*packet.get(at).ok_or(WireError::Malformed)?);
        at += 1;
        if length == 0 {
            return Ok((Name(labels), at));
        }
        if length > LABEL_MAX || at + length - from >= NAME_MAX {
            return Err(WireError::Malformed);
        }
        labels.push(packet.get(at..at + length).ok_or(WireError::Malformed)?.to_vec());
        at += length;
    }
}

/// What a record says.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "fields are named as in RFC 1035 and RFC 2782")]
pub enum Data {
    /// An address.
    A(Ipv4Addr),
    /// An address.
    Aaaa(Ipv6Addr),
    /// Another name.
    Cname(Name),
    /// The name of an address.
    Ptr(Name),
    /// Text of at most 255 bytes.
    Txt(String),
    /// Host and port of a service.
    Srv { priority: u16, weight: u16, port: u16, target: Name },
    /// Who is responsible, and for how long it is remembered that there is nothing.
    Soa { zone: Name, serial: u32, minimum: u32 },
}

/// A line of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Whose.
    pub name: Name,
    /// For how many seconds it may be remembered.
    pub ttl: u32,
    /// What it says.
    pub data: Data,
}

/// How an answer ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResponseCode {
    /// The name is there; what was asked of it may not be.
    NoError,
    /// The question cannot be understood.
    FormErr,
    /// Nobody can say now.
    ServFail,
    /// There is no such name.
    NxDomain,
    /// Nothing but questions is answered.
    NotImp,
    /// Not by us.
    Refused,
}

impl ResponseCode {
    fn number(self) -> u16 {
        match self {
            Self::NoError => 0,
            Self::FormErr => 1,
            Self::ServFail => 2,
            Self::NxDomain => 3,
            Self::NotImp => 4,
            Self::Refused => 5,
        }
    }
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// How it ends.
    pub code: ResponseCode,
    /// What was asked for.
    pub answers: Vec<Record>,
    /// Who says so, if there is nothing.
    pub authority: Vec<Record>,
    /// What the client would ask next.
    pub additional: Vec<Record>,
}

impl Reply {
    /// One with nothing in it.
    pub fn empty(code: ResponseCode) -> Self {
        Self { code, answers: Vec::new(), authority: Vec::new(), additional: Vec::new() }
    }

    /// The packet that answers `query` in at most `limit` bytes. What does not fit is left out by whole records: additional ones in
    /// silence, answers with the bit that has clients ask again by TCP.
    pub fn write(&self, query: &Query, limit: usize) -> Vec<u8> {
        const OPT: usize = 11;
        let limit = limit.min(usize::from(u16::MAX)).saturating_sub(if query.extended.is_some() { OPT } else { 0 });
        let mut packet = vec![0; HEADER];
        if let Some(question) = &query.question {
            question.name.write(&mut packet);
            let class = match question.class {
                Class::Internet => 1,
                Class::Other(other) => other,
            };
            packet.extend(question.record_type.number().to_be_bytes());
            packet.extend(class.to_be_bytes());
        }
        let mut counts = [0_u16; 3];
        let mut is_cut = false;
        for (section, records) in [&self.answers, &self.authority, &self.additional].into_iter().enumerate() {
            for record in records {
                let before = packet.len();
                record.write(query, &mut packet);
                if packet.len() > limit || counts[section] == u16::MAX {
                    packet.truncate(before);
                    is_cut |= section == 0;
                    break;
                }
                counts[section] += 1;
            }
            if is_cut {
                break;
            }
        }
        if query.extended.is_some() {
            packet.extend([0, 0, 41]);
            packet.extend(u16::try_from(UDP_MAX).unwrap_or(u16::MAX).to_be_bytes());
            packet.extend([0; 6]);
            counts[2] = counts[2].saturating_add(1);
        }
        let mut flags = 0x8400 | u16::from(query.opcode) << 11 | self.code.number();
        if is_cut {
            flags |= 0x0200;
        }
        if query.recursion_desired {
            // Whoever asks for names of the world gets them here, too.
            flags |= 0x0180;
        }
        let questions = u16::from(query.question.is_some());
        for (place, word) in [query.id, flags, questions, counts[0], counts[1], counts[2]].into_iter().enumerate() {
            packet[place * 2..place * 2 + 2].copy_from_slice(&word.to_be_bytes());
        }
        packet
    }
}

impl Record {
    fn write(&self, query: &Query, packet: &mut Vec<u8>) {
        match &query.question {
            // The name of the question, in the question's own letters: it is right behind the header.
            Some(question) if question.name == self.name => packet.extend([0xc0, 12]),
            _ => self.name.write(packet),
        }
        let (number, mut data) = (self.data.record_type().number(), Vec::new());
        self.data.write(&mut data);
        packet.extend(number.to_be_bytes());
        packet.extend(1_u16.to_be_bytes());
        packet.extend(self.ttl.to_be_bytes());
        packet.extend(u16::try_from(data.len()).unwrap_or(u16::MAX).to_be_bytes());
        packet.extend(data);
    }
}

impl Data {
    fn record_type(&self) -> RecordType {
        match self {
            Self::A(_) => RecordType::A,
            Self::Aaaa(_) => RecordType::Aaaa,
            Self::Cname(_) => RecordType::Cname,
            Self::Ptr(_) => RecordType::Ptr,
            Self::Txt(_) => RecordType::Txt,
            Self::Srv { .. } => RecordType::Srv,
            Self::Soa { .. } => RecordType::Soa,
        }
    }

    fn write(&self, into: &mut Vec<u8>) {
        match self {
            Self::A(address) => into.extend(address.octets()),
            Self::Aaaa(address) => into.extend(address.octets()),
            Self::Cname(name) | Self::Ptr(name) => name.write(into),
            Self::Txt(text) => {
                let text = text.as_bytes().get(..255).unwrap_or(text.as_bytes());
                into.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
                into.extend(text);
            }
            Self::Srv { priority, weight, port, target } => {
                for word in [priority, weight, port] {
                    into.extend(word.to_be_bytes());
                }
                target.write(into);
            }
            Self::Soa { zone, serial, minimum } => {
                for label in ["ns", "hostmaster"] {
                    into.push(u8::try_from(label.len()).unwrap_or(0));
                    into.extend(label.as_bytes());
                    into.extend([3, b'd', b'n', b's']);
                    zone.write(into);
                }
                for number in [*serial, 7200, 1800, 86_400, *minimum] {
                    into.extend(number.to_be_bytes());
                }
            }
        }
    }
}
