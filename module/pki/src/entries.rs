//! The entries of a revocation list, sorted when the list is read: a list has up to 20,000, and a handshake looks a number up
//! for each certificate of its chain.

use crate::der::{self, Entry};
use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

/// Where the entries of a list stand.
pub struct Entries {
    /// A keyed hash of the serial number, and where the entry begins in the bytes of the bundle. Sorting numbers by their
    /// bytes takes ten times as long where they are long and begin alike, as their issuer chooses.
    sorted: Vec<(u64, u32)>,
    hash: RandomState,
    /// Where the last entry ends.
    end: usize,
    /// How many entries were looked at.
    looks: Cell<usize>,
}

impl Entries {
    /// Those of the list that stands there among the bytes; the error names the remedy.
    pub fn new(bytes: &[u8], list: Range<usize>) -> Result<Self, String> {
        let begin = list.start;
        let place = bytes.get(list).and_then(der::list).ok_or_else(unreadable)?.entries;
        Self::within(bytes, begin + place.start..begin + place.end)
    }

    /// Those that stand there, one after the other. An entry with a critical extension may be about another issuer's
    /// certificates (RFC 5280 §5.3.3), or mean something that nobody here knows.
    pub fn within(bytes: &[u8], place: Range<usize>) -> Result<Self, String> {
        let end = place.end;
        let mut rest = bytes.get(place).unwrap_or_default();
        let (mut sorted, hash) = (Vec::new(), RandomState::new());
        while !rest.is_empty() {
            let at = u32::try_from(end - rest.len()).map_err(|_| unreadable())?;
            let entry = der::entry(&mut rest).ok_or_else(unreadable)?;
            if entry.is_critical {
                return Err(
                    "an entry of a revocation list has a critical extension, as indirect lists have: send a list of \
                     its issuer's own certificates"
                        .into(),
                );
            }
            sorted.push((hash.hash_one(entry.serial), at));
        }
        sorted.sort_unstable();
        Ok(Entries { sorted, hash, end, looks: Cell::new(0) })
    }

    /// The entry of a serial number, as DER; of several the first.
    pub fn find<'d>(&self, bytes: &'d [u8], serial: &[u8]) -> Option<Entry<'d>> {
        let wanted = self.hash.hash_one(serial);
        let look = || self.looks.set(self.looks.get() + 1);
        let first = self.sorted.partition_point(|(hash, _)| {
            look();
            *hash < wanted
        });
        let alike = self.sorted.iter().skip(first).take_while(|(hash, _)| *hash == wanted);
        let mut entries = alike.filter_map(|(_, at)| {
            look();
            der::entry(&mut bytes.get(*at as usize..self.end)?)
        });
        entries.find(|entry| entry.serial == serial)
    }

    /// How many entries were looked at so far.
    pub fn looks(&self) -> usize {
        self.looks.get()
    }
}

fn unreadable() -> String {
    "an entry of a revocation list cannot be read: send PEM".into()
}
