//! Netlink's format: messages, and attributes within them. Lengths are checked both ways.

use crate::Error;

pub(crate) const HEADER_BYTES: usize = 16;
/// The header and what nftables has behind it: family, version, resource.
pub(crate) const MESSAGE_BYTES: usize = HEADER_BYTES + 4;
const ATTRIBUTE_BYTES: usize = 4;
const NESTED: u16 = 0x8000;
/// The bits that tell the kind of an attribute; the others are flags.
const KIND: u16 = 0x3fff;
/// Names are compared with their end, so they carry it.
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// Attributes as they are written, one behind the other.
#[derive(Clone, Default, Debug)]
pub(crate) struct Attributes(Vec<u8>);

impl Attributes {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn put(&mut self, kind: u16, value: &[u8]) -> Result<(), Error> {
        let bytes = ATTRIBUTE_BYTES + value.len();
        let length = u16::try_from(bytes).map_err(|_| Error::AttributeTooLong { bytes })?;
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        Ok(())
    }

    pub(crate) fn put_number(&mut self, kind: u16, number: u32) -> Result<(), Error> {
        self.put(kind, &number.to_be_bytes())
    }

    /// A name, as the kernel compares it: with a zero at its end.
    pub(crate) fn put_name(&mut self, kind: u16, name: &str) -> Result<(), Error> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains('\0') {
            return Err(Error::InvalidName { name: name.to_owned(), max: NAME_BYTES_MAX });
        }
        self.put(kind, &[name.as_bytes(), &[0]].concat())
    }

    /// Attributes that are written already.
    pub(crate) fn extend(&mut self, written: &[u8]) -> Result<(), Error> {
        self.0.extend(written);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        Ok(())
    }

    /// An attribute that consists of others.
    pub(crate) fn nest(&mut self, kind: u16, write: impl FnOnce(&mut Self) -> Result<(), Error>) -> Result<(), Error> {
        let start = self.0.len();
        self.0.extend([0; ATTRIBUTE_BYTES]);
        write(self)?;
        let bytes = self.0.len() - start;
        let length = u16::try_from(bytes).map_err(|_| Error::AttributeTooLong { bytes })?;
        self.0[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.0[start + 2..start + 4].copy_from_slice(&(kind | NESTED).to_ne_bytes());
        Ok(())
    }
}

/// One attribute that was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attribute<'a> {
    pub(crate) kind: u16,
    pub(crate) value: &'a [u8],
    /// Where it begins, from the start of what is read.
    pub(crate) at: usize,
}

impl<'a> Attribute<'a> {
    /// A text up to its first zero, if it is one.
    pub(crate) fn text(&self) -> Option<&'a str> {
        let end = self.value.iter().position(|byte| *byte == 0).unwrap_or(self.value.len());
        std::str::from_utf8(&self.value[..end]).ok()
    }

    pub(crate) fn number(&self) -> Option<u32> {
        self.value.try_into().ok().map(u32::from_be_bytes)
    }

    pub(crate) fn long_number(&self) -> Option<u64> {
        self.value.try_into().ok().map(u64::from_be_bytes)
    }
}

/// Reads attributes; stops at the first that is longer than what is left.
pub(crate) fn attributes(bytes: &[u8]) -> impl Iterator<Item = Attribute<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = bytes.get(at..)?;
        let [a, b, c, d] = *rest.first_chunk()?;
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let value = rest.get(ATTRIBUTE_BYTES..length)?;
        let attribute = Attribute { kind: u16::from_ne_bytes([c, d]) & KIND, value, at };
        at += length.next_multiple_of(4);
        Some(attribute)
    })
}

pub(crate) fn find(bytes: &[u8], kind: u16) -> Option<Attribute<'_>> {
    attributes(bytes).find(|attribute| attribute.kind == kind)
}

/// One netlink message that was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    /// Of the socket whose request this tells of.
    pub(crate) port: u32,
    pub(crate) payload: &'a [u8],
}

impl<'a> Message<'a> {
    /// The family that an nftables message is about, and its attributes.
    pub(crate) fn nftables(&self) -> Option<(u8, &'a [u8])> {
        Some((*self.payload.first()?, self.payload.get(MESSAGE_BYTES - HEADER_BYTES..)?))
    }
}

/// Reads the messages of one answer.
pub(crate) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Result<Message<'_>, Error>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let read = message(bytes);
        bytes = match &read {
            Ok((_, length)) => bytes.get(length.next_multiple_of(4)..).unwrap_or_default(),
            Err(_) => &[],
        };
        Some(read.map(|(message, _)| message))
    })
}

fn message(bytes: &[u8]) -> Result<(Message<'_>, usize), Error> {
    let short = Error::Malformed { what: "a message is shorter than it says" };
    let Some(&[l0, l1, l2, l3, k0, k1, f0, f1, s0, s1, s2, s3, p0, p1, p2, p3]) = bytes.first_chunk() else {
        return Err(short);
    };
    let length = u32::from_ne_bytes([l0, l1, l2, l3]) as usize;
    let Some(payload) = bytes.get(HEADER_BYTES..length) else { return Err(short) };
    let message = Message {
        kind: u16::from_ne_bytes([k0, k1]),
        flags: u16::from_ne_bytes([f0, f1]),
        sequence: u32::from_ne_bytes([s0, s1, s2, s3]),
        port: u32::from_ne_bytes([p0, p1, p2, p3]),
        payload,
    };
    Ok((message, length))
}

/// Appends a message with its header. Its length is a 32-bit number, far beyond what a batch may have.
pub(crate) fn write_message(
    bytes: &mut Vec<u8>,
    kind: u16,
    flags: u16,
    sequence: u32,
    (family, resource): (u8, u16),
    attributes: &[u8],
) -> Result<(), Error> {
    let length = MESSAGE_BYTES + attributes.len();
    let length =
        u32::try_from(length).map_err(|_| Error::BatchTooLong { bytes: length, max: crate::BATCH_BYTES_MAX })?;
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend([family, 0]);
    bytes.extend(resource.to_be_bytes());
    bytes.extend(attributes);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// A length that does not fit in its 16 bits would wrap around, and the rest of the value would be read as attributes of
    /// its own (CVE-2021-43784).
    #[test]
    fn attribute_longer_than_its_length_field_is_refused() {
        let mut attributes = Attributes::default();
        attributes.put(1, &vec![0; 65_531]).unwrap();
        assert!(matches!(attributes.put(1, &vec![0; 65_532]), Err(Error::AttributeTooLong { bytes: 65_536 })));
        let nested = attributes.nest(2, |inner| {
            inner.put(1, &vec![0; 40_000])?;
            inner.put(1, &vec![0; 40_000])
        });
        assert!(matches!(nested, Err(Error::AttributeTooLong { .. })), "{nested:?}");
    }

    #[test]
    fn names_that_the_kernel_would_cut_are_refused() {
        let mut attributes = Attributes::default();
        attributes.put_name(1, &"n".repeat(255)).unwrap();
        for name in ["", "a\0b", &"n".repeat(256)] {
            assert!(matches!(attributes.put_name(1, name), Err(Error::InvalidName { .. })), "{name:?}");
        }
    }

    #[test]
    fn attributes_read_back_as_they_were_written() {
        let mut written = Attributes::default();
        written.put_name(1, "abc").unwrap();
        written.nest(2, |inner| inner.put_number(3, 70_000)).unwrap();
        let read: Vec<_> = attributes(written.bytes()).collect();
        assert_eq!((read[0].kind, read[0].text(), read[0].at), (1, Some("abc"), 0));
        assert_eq!((read[1].kind, read[1].at), (2, 8));
        assert_eq!(find(read[1].value, 3).and_then(|it| it.number()), Some(70_000));
        // What is cut off anywhere reads as less, never as something else.
        for length in 0..written.len() {
            assert!(attributes(&written.bytes()[..length]).count() < 2);
        }
    }

    #[test]
    fn message_that_is_cut_off_is_an_error() {
        let mut bytes = Vec::new();
        write_message(&mut bytes, 7, 1, 3, (2, 0), &[]).unwrap();
        let read: Vec<_> = messages(&bytes).map(Result::unwrap).collect();
        assert_eq!((read.len(), read[0].kind, read[0].sequence), (1, 7, 3));
        assert!(messages(&bytes[..19]).next().unwrap().is_err());
        assert!(messages(&bytes[..3]).next().unwrap().is_err());
        // One whose length is less than its own header ends the reading.
        bytes[0] = 4;
        assert!(messages(&bytes).next().unwrap().is_err());
        assert_eq!(messages(&bytes).count(), 1);
    }
}
