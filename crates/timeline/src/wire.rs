//! A small codec: little-endian numbers, lengths in front, explicit tags.
//!
//! The macros list every field and every variant by name, so that a field added to the vocabulary does not compile until
//! someone has decided how it is written, and a tag once given out stays what it was.

use std::time::Duration;

/// Something that can be written and read back.
pub(crate) trait Wire: Sized {
    fn put(&self, out: &mut Vec<u8>);
    /// Takes one from the front of `input`.
    fn take(input: &mut &[u8]) -> Result<Self, WireError>;
}

/// Why bytes are not what they should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum WireError {
    #[error("it ends too early")]
    Short,
    #[error("it has {0} bytes too many")]
    Long(usize),
    #[error("{what} has no meaning for the tag {tag}")]
    Tag { what: &'static str, tag: u8 },
    #[error("a text is not UTF-8")]
    Text,
    #[error("a duration has more than a second of nanoseconds")]
    Duration,
}

/// Reads all of `bytes` as one `T`.
pub(crate) fn whole<T: Wire>(mut bytes: &[u8]) -> Result<T, WireError> {
    let value = T::take(&mut bytes)?;
    if bytes.is_empty() { Ok(value) } else { Err(WireError::Long(bytes.len())) }
}

macro_rules! wire_numbers {
    ($($number:ty),*) => { $(
        impl Wire for $number {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn take(input: &mut &[u8]) -> Result<Self, WireError> {
                let (bytes, rest) = input.split_first_chunk().ok_or(WireError::Short)?;
                *input = rest;
                Ok(Self::from_le_bytes(*bytes))
            }
        }
    )* };
}
wire_numbers!(u8, u32, u64, i32, i64);

impl Wire for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn take(input: &mut &[u8]) -> Result<Self, WireError> {
        match u8::take(input)? {
            0 => Ok(false),
            1 => Ok(true),
            tag => Err(WireError::Tag { what: "bool", tag }),
        }
    }
}

/// Lengths and counts.
fn put_length(length: usize, out: &mut Vec<u8>) {
    u32::try_from(length).expect("nothing in a journal has 4 Gi parts").put(out);
}

fn take_length(input: &mut &[u8]) -> Result<usize, WireError> {
    usize::try_from(u32::take(input)?).map_err(|_| WireError::Short)
}

impl Wire for String {
    fn put(&self, out: &mut Vec<u8>) {
        put_length(self.len(), out);
        out.extend_from_slice(self.as_bytes());
    }
    fn take(input: &mut &[u8]) -> Result<Self, WireError> {
        let length = take_length(input)?;
        let (bytes, rest) = input.split_at_checked(length).ok_or(WireError::Short)?;
        *input = rest;
        Self::from_utf8(bytes.to_vec()).map_err(|_| WireError::Text)
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        put_length(self.len(), out);
        for item in self {
            item.put(out);
        }
    }
    fn take(input: &mut &[u8]) -> Result<Self, WireError> {
        // Not allocated ahead: the count is only believed item by item.
        (0..take_length(input)?).map(|_| T::take(input)).collect()
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            None => out.push(0),
            Some(value) => {
                out.push(1);
                value.put(out);
            }
        }
    }
    fn take(input: &mut &[u8]) -> Result<Self, WireError> {
        match u8::take(input)? {
            0 => Ok(None),
            1 => Ok(Some(T::take(input)?)),
            tag => Err(WireError::Tag { what: "Option", tag }),
        }
    }
}

impl Wire for Duration {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_secs().put(out);
        self.subsec_nanos().put(out);
    }
    fn take(input: &mut &[u8]) -> Result<Self, WireError> {
        match (u64::take(input)?, u32::take(input)?) {
            (seconds, nanos @ 0..1_000_000_000) => Ok(Self::new(seconds, nanos)),
            _ => Err(WireError::Duration),
        }
    }
}

/// `wire_struct!(Instance { name, attempt })`, or `wire_struct!(Signal(number))` with a name for each part.
macro_rules! wire_struct {
    ($name:ident { $($field:ident),* }) => {
        impl $crate::wire::Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                let Self { $($field),* } = self;
                $( $crate::wire::Wire::put($field, out); )*
            }
            fn take(input: &mut &[u8]) -> Result<Self, $crate::wire::WireError> {
                Ok(Self { $($field: $crate::wire::Wire::take(input)?),* })
            }
        }
    };
    ($name:ident ( $($part:ident),* )) => {
        impl $crate::wire::Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                let Self($($part),*) = self;
                $( $crate::wire::Wire::put($part, out); )*
            }
            fn take(input: &mut &[u8]) -> Result<Self, $crate::wire::WireError> {
                $( let $part = $crate::wire::Wire::take(input)?; )*
                Ok(Self($($part),*))
            }
        }
    };
}

/// `wire_enum!(Hook { 1 Exec; 2 HttpGet; 3 Sleep(span); })`: every variant with the tag it keeps for ever. `before`
/// names a function that reads what was once written under tags that nobody writes any more.
macro_rules! wire_enum {
    ($name:ident { $( $tag:literal $variant:ident $({ $($field:ident),* })? $(( $($part:ident),* ))? ; )* }
        $(before $before:ident)?) => {
        impl $crate::wire::Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $( Self::$variant $({ $($field),* })? $(( $($part),* ))? => {
                        out.push($tag);
                        $( $( $crate::wire::Wire::put($field, out); )* )?
                        $( $( $crate::wire::Wire::put($part, out); )* )?
                    } )*
                }
            }
            fn take(input: &mut &[u8]) -> Result<Self, $crate::wire::WireError> {
                let tag = <u8 as $crate::wire::Wire>::take(input)?;
                $( if let Some(read) = $before(tag, input) {
                    return read;
                } )?
                match tag {
                    $( $tag => {
                        $( $( let $field = $crate::wire::Wire::take(input)?; )* )?
                        $( $( let $part = $crate::wire::Wire::take(input)?; )* )?
                        Ok(Self::$variant $({ $($field),* })? $(( $($part),* ))?)
                    } )*
                    tag => Err($crate::wire::WireError::Tag { what: stringify!($name), tag }),
                }
            }
        }
    };
}

pub(crate) use {wire_enum, wire_struct};
