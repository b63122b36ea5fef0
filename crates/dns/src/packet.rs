//! Packets: one question read, a reply written. The library knows the format; here is what a server is to take and to send.

use hickory_resolver::proto::ProtoError;
use hickory_resolver::proto::op::{
    Edns, EmitAndCount, Header, Message, MessageType, Metadata, OpCode, Query, ResponseCode, emit_message_parts,
};
use hickory_resolver::proto::rr::{RData, Record};
use hickory_resolver::proto::serialize::binary::{BinDecodable, BinDecoder, BinEncoder};

/// Most bytes of an answer by UDP, whatever a client says it takes: larger ones are fragments on the way.
pub const UDP_MAX: u16 = 1232;
/// What a client takes that says nothing.
const UDP_DEFAULT: u16 = 512;
/// What our own EDNS record takes at the end of an answer.
const EDNS_BYTES: u16 = 11;

/// Why a packet is no question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacketError {
    /// It ends too early, or a part of it is longer than it may be: not even answered.
    Malformed,
    /// It is a reply: answering it would begin a loop.
    NotAQuery,
}

/// A packet with a question.
#[derive(Clone, PartialEq, Debug)]
pub struct Request {
    metadata: Metadata,
    query: Option<Query>,
    edns: Option<Edns>,
}

impl Request {
    /// Reads a packet. Its header is looked at before anything behind it is, so that nobody gets room for questions that are only
    /// said to be there.
    pub fn read(packet: &[u8]) -> Result<Self, PacketError> {
        let mut decoder = BinDecoder::new(packet);
        let Header { metadata, counts } = Header::read(&mut decoder).map_err(|_| PacketError::Malformed)?;
        if metadata.message_type != MessageType::Query {
            return Err(PacketError::NotAQuery);
        }
        let mut request = Self { metadata, query: None, edns: None };
        if counts.queries != 1 || counts.answers != 0 || counts.authorities != 0 {
            return Ok(request);
        }
        let query = Query::read(&mut decoder).map_err(|_| PacketError::Malformed)?;
        let behind = Message::read_records(&mut decoder, counts.additionals.into(), true, metadata.op_code);
        if let Ok((_, edns, _)) = behind {
            request.query = Some(query);
            request.edns = edns;
        }
        Ok(request)
    }

    /// What is asked, or how it is refused.
    pub(crate) fn question(&self) -> Result<&Query, ResponseCode> {
        if self.metadata.op_code != OpCode::Query {
            return Err(ResponseCode::NotImp);
        }
        if self.edns.as_ref().is_some_and(|edns| edns.version() > 0) {
            return Err(ResponseCode::BADVERS);
        }
        self.query.as_ref().ok_or(ResponseCode::FormErr)
    }

    /// How long an answer by UDP may be.
    pub fn udp_limit(&self) -> u16 {
        self.edns.as_ref().map_or(UDP_DEFAULT, |edns| edns.max_payload().clamp(UDP_DEFAULT, UDP_MAX))
    }
}

/// An answer.
#[derive(Clone, PartialEq, Debug)]
pub struct Reply {
    /// How it ends.
    pub code: ResponseCode,
    /// Whether it is ours to say.
    pub authoritative: bool,
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
        Self { code, authoritative: true, answers: Vec::new(), authority: Vec::new(), additional: Vec::new() }
    }

    /// Puts another address first: many clients take the first, and each should have its turn.
    pub(crate) fn rotate(&mut self, turn: usize) {
        let aliases = self.answers.iter().take_while(|record| matches!(record.data, RData::CNAME(_))).count();
        let addresses = &mut self.answers[aliases..];
        if !addresses.is_empty() && addresses.iter().all(|record| record.record_type().is_ip_addr()) {
            addresses.rotate_left(turn % addresses.len());
        }
    }

    /// The packet that answers `request` in at most `limit` bytes. What does not fit is left out by whole records: additional ones
    /// in silence, answers with the bit that has clients ask again by TCP.
    pub fn write(&self, request: &Request, limit: u16) -> Vec<u8> {
        let mut metadata = Metadata::response_from_request(&request.metadata);
        metadata.authoritative = self.authoritative;
        metadata.response_code = self.code;
        // Whoever asks for names of the world gets them here, too.
        metadata.recursion_available = true;
        let edns = request.edns.as_ref().map(|_| {
            let mut own = Edns::new();
            own.set_max_payload(UDP_MAX);
            own
        });
        let room = limit.saturating_sub(if edns.is_some() { EDNS_BYTES } else { 0 });
        let mut packet = Vec::with_capacity(usize::from(UDP_DEFAULT));
        let mut encoder = BinEncoder::new(&mut packet);
        encoder.set_max_size(room);
        let written = emit_message_parts(
            &metadata,
            &mut request.query.iter(),
            &mut self.answers.iter(),
            &mut self.authority.iter(),
            &mut Additional { records: &self.additional, limit },
            edns.as_ref(),
            None,
            &mut encoder,
        );
        match written {
            Ok(_) => packet,
            Err(_) => failed(request),
        }
    }
}

/// Of a reply that cannot be written down, its header.
fn failed(request: &Request) -> Vec<u8> {
    let mut message = Message::error_msg(request.metadata.id, request.metadata.op_code, ResponseCode::ServFail);
    message.queries.extend(request.query.clone());
    message.to_vec().unwrap_or_default()
}

/// What may be left out without a word; then there is room for the record that says what we take.
struct Additional<'a> {
    records: &'a [Record],
    limit: u16,
}

impl EmitAndCount for Additional<'_> {
    fn emit(&mut self, encoder: &mut BinEncoder<'_>) -> Result<usize, ProtoError> {
        let written = match encoder.emit_all(self.records.iter()) {
            Err(ProtoError::NotAllRecordsWritten { count, .. }) => Ok(count),
            written => written,
        };
        encoder.set_max_size(self.limit);
        written
    }
}
