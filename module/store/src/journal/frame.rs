//! Frames and the changes in them.
//!
//! Shape:   a file begins with `MAGIC, version u64`. A frame: `length u64, sequence u32, crc u32`, then `length` bytes
//!          of changes. The base has sequence 0. The CRC is over the changes, then length and sequence.
//!          A change: `kind u8, key length u32, value length u32`, key, value; a value length of `REMOVED`
//!          has no value.
//! Units:   bytes, little-endian.

use crate::record::Record;

/// "oxijrnl", and the number of this layout of frames.
pub(super) const MAGIC: [u8; 8] = *b"oxijrnl\x01";
/// Bytes before the first frame.
pub(super) const FILE_HEAD: u64 = 16;
/// Bytes before the changes of a frame.
pub(super) const FRAME_HEAD: u64 = 16;

const CHANGE_HEAD: usize = 9;
const REMOVED: u32 = u32::MAX;

pub(super) fn file_head(version: u64) -> [u8; FILE_HEAD as usize] {
    let mut head = [0; FILE_HEAD as usize];
    head[..8].copy_from_slice(&MAGIC);
    head[8..].copy_from_slice(&version.to_le_bytes());
    head
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub length: u64,
    pub sequence: u32,
    pub crc: u32,
}

impl Head {
    /// The head of a frame with `length` bytes of changes, whose CRC so far is in `crc`.
    pub(super) fn seal(length: u64, sequence: u32, mut crc: crc32fast::Hasher) -> Head {
        crc.update(&length.to_le_bytes());
        crc.update(&sequence.to_le_bytes());
        Head { length, sequence, crc: crc.finalize() }
    }

    pub(super) fn to_bytes(self) -> [u8; FRAME_HEAD as usize] {
        let mut bytes = [0; FRAME_HEAD as usize];
        bytes[..8].copy_from_slice(&self.length.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[12..].copy_from_slice(&self.crc.to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8; FRAME_HEAD as usize]) -> Head {
        let [a, b, c, d, e, f, g, h, s0, s1, s2, s3, c0, c1, c2, c3] = *bytes;
        Head {
            length: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            sequence: u32::from_le_bytes([s0, s1, s2, s3]),
            crc: u32::from_le_bytes([c0, c1, c2, c3]),
        }
    }
}

/// One record written, or removed when it has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change<'a> {
    pub kind: u8,
    pub key: &'a [u8],
    pub value: Option<&'a [u8]>,
}

impl<'a> Change<'a> {
    pub(super) fn written(record: &Record<'a>) -> Self {
        Change { kind: record.kind(), key: record.key(), value: Some(record.value()) }
    }

    pub(super) fn removed(record: &Record<'a>) -> Self {
        Change { kind: record.kind(), key: record.key(), value: None }
    }

    /// The bytes that [`Change::push`] appends to a frame.
    pub(super) fn bytes(&self) -> usize {
        CHANGE_HEAD + self.key.len() + self.value.map_or(0, <[u8]>::len)
    }

    pub(super) fn push(&self, to: &mut Vec<u8>) {
        // Keys and values of records are shorter than these fields can hold.
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(REMOVED - 1);
        to.push(self.kind);
        to.extend(length(self.key).to_le_bytes());
        to.extend(self.value.map_or(REMOVED, length).to_le_bytes());
        to.extend(self.key);
        to.extend(self.value.unwrap_or_default());
    }

    /// Takes the first change of `bytes`; `None` if it is not whole.
    pub(super) fn take(bytes: &mut &'a [u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<CHANGE_HEAD>()?;
        let [kind, k0, k1, k2, k3, v0, v1, v2, v3] = *head;
        let (key, rest) = rest.split_at_checked(u32::from_le_bytes([k0, k1, k2, k3]) as usize)?;
        let (value, rest) = match u32::from_le_bytes([v0, v1, v2, v3]) {
            REMOVED => (None, rest),
            length => {
                let (value, rest) = rest.split_at_checked(length as usize)?;
                (Some(value), rest)
            }
        };
        *bytes = rest;
        Some(Change { kind, key, value })
    }
}
