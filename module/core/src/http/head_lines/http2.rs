//! The fields of the header block of an HTTP/2 response, from the first byte of the connection or stream on.
//!
//! nginx's gRPC module has one stream on a connection at a time, and refuses a table of its own (`SETTINGS_HEADER_TABLE_SIZE`
//! 0), so where a field ends depends on lengths alone: no text is decoded.

use super::text::Counted;

/// The bytes before the payload of a frame: three of a length, type, flags, and four of a stream.
const HEADER: usize = 9;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 0x04;
const PADDED: u8 = 0x08;
const PRIORITY: u8 = 0x20;
/// The bytes of a priority: a stream and a weight.
const PRIORITY_BYTES: u32 = 5;

/// The fields of a header block, counted as its frames come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Http2 {
    header: [u8; HEADER],
    /// How many bytes of the header of a frame have come.
    begun: usize,
    /// Bytes of the payload that are to come.
    payload: u32,
    /// Bytes at the end of the payload that are padding.
    padding: u32,
    /// Bytes at the beginning of the payload that are no field.
    before: u32,
    field: Field,
    count: usize,
}

/// What the next byte of a header block is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Field {
    /// The first byte of a field.
    #[default]
    First,
    /// A further byte of an index, before so many texts.
    Index { texts: u8 },
    /// The first byte of a text's length, of so many texts.
    Length { texts: u8 },
    /// A further byte of a text's length.
    MoreLength { texts: u8, bytes: u32, shift: u32 },
    /// A byte of a text that has so many left.
    Text { texts: u8, bytes: u32 },
}

impl Http2 {
    pub(super) fn count(&mut self, mut bytes: &[u8], most: usize) -> Counted {
        loop {
            if self.begun == HEADER && self.payload == 0 {
                if self.is_of_block() && self.has(END_HEADERS) {
                    return Counted::End;
                }
                self.begun = 0;
            }
            let skipped = self.skip(bytes.len());
            bytes = bytes.get(skipped..).unwrap_or_default();
            if skipped > 0 {
                continue;
            }
            let Some((byte, rest)) = bytes.split_first() else { return Counted::More };
            bytes = rest;
            self.count += usize::from(self.take(*byte));
            if self.count > most {
                return Counted::TooMany;
            }
        }
    }

    fn is_of_block(&self) -> bool {
        matches!(self.header[3], HEADERS | CONTINUATION)
    }

    fn has(&self, flag: u8) -> bool {
        self.header[4] & flag != 0
    }

    fn length(&self) -> u32 {
        let [high, middle, low, ..] = self.header;
        u32::from_be_bytes([0, high, middle, low])
    }

    /// Passes over bytes of the payload in which no field begins, `most` at most; answers how many.
    fn skip(&mut self, most: usize) -> usize {
        if self.begun < HEADER {
            return 0;
        }
        let text = match self.field {
            Field::Text { bytes, .. } => bytes,
            _ => 0,
        };
        let of_fields = self.payload.saturating_sub(self.padding);
        let skipped = match self.is_of_block() {
            false => self.payload,
            true if self.before > 0 => 0,
            true if of_fields == 0 => self.payload,
            true => text.min(of_fields),
        };
        let skipped = skipped.min(u32::try_from(most).unwrap_or(u32::MAX));
        self.payload -= skipped;
        if let Field::Text { texts, bytes } = self.field
            && self.is_of_block()
            && of_fields > 0
        {
            self.field = Field::text(texts, bytes.saturating_sub(skipped));
        }
        skipped as usize
    }

    /// Takes one byte, of the header of a frame or of its payload; whether a field began with it.
    fn take(&mut self, byte: u8) -> bool {
        if let Some(place) = self.header.get_mut(self.begun) {
            *place = byte;
            self.begun += 1;
            if self.begun == HEADER {
                let priority = if self.has(PRIORITY) { PRIORITY_BYTES } else { 0 };
                let before = priority + u32::from(self.has(PADDED));
                self.before = if self.header[3] == HEADERS { before } else { 0 };
                (self.payload, self.padding) = (self.length(), 0);
            }
            return false;
        }
        let is_first = self.payload == self.length();
        self.payload = self.payload.saturating_sub(1);
        if self.before == 0 {
            return self.field.take(byte);
        }
        self.before -= 1;
        if is_first && self.has(PADDED) {
            self.padding = byte.into();
        }
        false
    }
}

impl Field {
    /// So many bytes of a text are to come.
    fn text(texts: u8, bytes: u32) -> Field {
        match (bytes, texts) {
            (0, 0 | 1) => Field::First,
            (0, _) => Field::Length { texts: texts - 1 },
            _ => Field::Text { texts, bytes },
        }
    }

    /// The field that begins after the index of its name.
    fn after_index(texts: u8) -> Field {
        if texts == 0 { Field::First } else { Field::Length { texts } }
    }

    /// Takes a byte; whether a field began with it.
    fn take(&mut self, byte: u8) -> bool {
        let is_last = byte & 0x80 == 0;
        let (next, begins) = match *self {
            Field::First => first(byte),
            Field::Index { texts } if is_last => (Field::after_index(texts), false),
            Field::Index { texts } => (Field::Index { texts }, false),
            Field::Length { texts } => match u32::from(byte & 0x7f) {
                0x7f => (Field::MoreLength { texts, bytes: 0x7f, shift: 0 }, false),
                bytes => (Field::text(texts, bytes), false),
            },
            Field::MoreLength { texts, bytes, shift } => {
                let more = u32::from(byte & 0x7f).checked_shl(shift).unwrap_or(u32::MAX);
                let bytes = bytes.saturating_add(more);
                match is_last {
                    true => (Field::text(texts, bytes), false),
                    false => (Field::MoreLength { texts, bytes, shift: shift + 7 }, false),
                }
            }
            Field::Text { texts, bytes } => (Field::text(texts, bytes.saturating_sub(1)), false),
        };
        *self = next;
        begins
    }
}

/// What follows the first byte of a field, and whether it is a header field and no change of the table's size.
fn first(byte: u8) -> (Field, bool) {
    let (index, all, texts) = match byte {
        0x80.. => (byte & 0x7f, 0x7f, 0),
        0x40.. => (byte & 0x3f, 0x3f, 1),
        0x20.. => (byte & 0x1f, 0x1f, 0),
        _ => (byte & 0x0f, 0x0f, 1),
    };
    let texts = if texts == 1 && index == 0 { 2 } else { texts };
    let next = match index == all {
        true => Field::Index { texts },
        false => Field::after_index(texts),
    };
    (next, !(0x20..0x40).contains(&byte))
}
