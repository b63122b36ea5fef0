//! The protobuf wire format: fields of a message, one after the other. Knows numbers and lengths, no names.

/// Why bytes are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    /// A length or a number reaches past the end.
    #[error("unexpected end of data")]
    Truncated,
    /// More than 64 bits.
    #[error("integer overflow")]
    Overflow,
    /// A wire type that does not exist, or that nobody sends (groups).
    #[error("illegal wire type {0}")]
    WireType(u8),
    /// Field number 0, or one past the largest.
    #[error("illegal field number")]
    FieldNumber,
    /// The field holds another kind of value than published.
    #[error("wrong wire type for a field")]
    Mismatch,
    /// A string that is not UTF-8.
    #[error("a string is not valid UTF-8")]
    NotText,
    /// A time no calendar has.
    #[error("a time is out of range")]
    NotATime,
    /// Embedded JSON that is not JSON.
    #[error("an embedded document is not valid JSON")]
    NotJson,
}

/// The value of one field, as the wire knows it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Payload<'a> {
    Varint(u64),
    /// Four or eight bytes, which no field of ours uses.
    Fixed,
    Bytes(&'a [u8]),
}

impl<'a> Payload<'a> {
    pub(super) fn varint(self) -> Result<u64, Malformed> {
        match self {
            Self::Varint(number) => Ok(number),
            Self::Fixed | Self::Bytes(_) => Err(Malformed::Mismatch),
        }
    }

    pub(super) fn bytes(self) -> Result<&'a [u8], Malformed> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Varint(_) | Self::Fixed => Err(Malformed::Mismatch),
        }
    }

    pub(super) fn text(self) -> Result<String, Malformed> {
        str::from_utf8(self.bytes()?).map(str::to_owned).map_err(|_not_text| Malformed::NotText)
    }
}

/// Walks the fields of one message. Ends after the first mistake.
pub(super) struct Wire<'a> {
    rest: &'a [u8],
}

impl<'a> Wire<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.rest.split_first().ok_or(Malformed::Truncated)?;
            self.rest = rest;
            // The tenth byte has room for one bit only.
            if shift == 63 && byte > 1 {
                return Err(Malformed::Overflow);
            }
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Malformed::Overflow)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Malformed::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    fn field(&mut self) -> Result<(u32, Payload<'a>), Malformed> {
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_too_large| Malformed::FieldNumber)?;
        if number == 0 || number >= 1 << 29 {
            return Err(Malformed::FieldNumber);
        }
        let payload = match tag & 7 {
            0 => Payload::Varint(self.varint()?),
            1 => self.take(8).map(|_eight| Payload::Fixed)?,
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_too_large| Malformed::Truncated)?;
                Payload::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_four| Payload::Fixed)?,
            other => return Err(Malformed::WireType(other.to_le_bytes()[0])),
        };
        Ok((number, payload))
    }
}

impl<'a> Iterator for Wire<'a> {
    type Item = Result<(u32, Payload<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

/// Numbers packed into one field, each told to `each`.
pub(super) fn packed(bytes: &[u8], mut each: impl FnMut(u64)) -> Result<(), Malformed> {
    let mut wire = Wire::new(bytes);
    while !wire.rest.is_empty() {
        each(wire.varint()?);
    }
    Ok(())
}
