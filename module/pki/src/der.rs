//! As much of DER as finds the parts of certificates and of revocation lists (X.690 §8.1, RFC 5280 §4.1 and §5.1).

use std::ops::Range;

/// `INTEGER`
const INTEGER: u8 = 0x02;
/// `BIT STRING`
const BIT_STRING: u8 = 0x03;
/// `BOOLEAN`
const BOOLEAN: u8 = 0x01;
/// `SEQUENCE`
pub const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The version of a certificate, explicitly tagged.
const VERSION: u8 = 0xa0;

/// One element of DER.
pub struct Element<'d> {
    /// What it is.
    pub tag: u8,
    /// What it holds.
    pub content: &'d [u8],
    /// Its header and what it holds.
    pub whole: &'d [u8],
}

/// Takes the first element off; `None` at the end and where there is no element.
pub fn next<'d>(rest: &mut &'d [u8]) -> Option<Element<'d>> {
    let (tag, after) = rest.split_first()?;
    // Numbers of more than one byte stand in neither.
    if tag & 0x1f == 0x1f {
        return None;
    }
    let (length, after) = match after.split_first()? {
        (short @ 0..=0x7f, after) => (usize::from(*short), after),
        (long @ 0x81..=0x84, after) => {
            let (digits, after) = after.split_at_checked(usize::from(long & 0x7f))?;
            (digits.iter().fold(0, |number, digit| number << 8 | usize::from(*digit)), after)
        }
        _ => return None,
    };
    let (content, after) = after.split_at_checked(length)?;
    let whole = rest.get(..rest.len() - after.len())?;
    *rest = after;
    Some(Element { tag: *tag, content, whole })
}

fn sequence<'d>(rest: &mut &'d [u8]) -> Option<Element<'d>> {
    next(rest).filter(|element| element.tag == SEQUENCE)
}

fn peek(rest: &[u8]) -> u8 {
    rest.first().copied().unwrap_or(0)
}

/// The subject of a certificate, as DER.
pub fn subject(certificate: &[u8]) -> Option<&[u8]> {
    let mut body = sequence(&mut sequence(&mut { certificate })?.content)?.content;
    if peek(body) == VERSION {
        next(&mut body)?;
    }
    next(&mut body).filter(|serial| serial.tag == INTEGER)?;
    let (_algorithm, _issuer) = (sequence(&mut body)?, sequence(&mut body)?);
    let _validity = sequence(&mut body)?;
    Some(sequence(&mut body)?.whole)
}

/// How many attributes a name has; `None`: it is no name.
pub fn name_parts(name: &[u8]) -> Option<usize> {
    let mut sets = sequence(&mut { name })?.content;
    let mut count = 0;
    while !sets.is_empty() {
        let mut parts = next(&mut sets)?.content;
        while !parts.is_empty() {
            sequence(&mut parts)?;
            count += 1;
        }
    }
    Some(count)
}

/// Where the parts of a revocation list stand.
pub struct List {
    /// Its issuer's name.
    pub issuer: Range<usize>,
    /// What is signed.
    pub signed: Range<usize>,
    /// The entries, without the header around them; empty: there are none.
    pub entries: Range<usize>,
    /// The signature, without the count of unused bits, which are none.
    pub signature: Range<usize>,
    /// The list without its entries, encoded anew.
    pub head: Vec<u8>,
}

/// Takes a revocation list apart; `None`: it is none.
pub fn list(der: &[u8]) -> Option<List> {
    let place = |part: &[u8]| {
        let begin = part.as_ptr().addr() - der.as_ptr().addr();
        begin..begin + part.len()
    };
    let mut outer = sequence(&mut { der })?.content;
    let signed = sequence(&mut outer)?;
    let mut body = signed.content;
    if peek(body) == INTEGER {
        next(&mut body)?;
    }
    sequence(&mut body)?;
    let issuer = place(sequence(&mut body)?.whole);
    while matches!(peek(body), UTC_TIME | GENERALIZED_TIME) {
        next(&mut body)?;
    }
    let before = signed.content.get(..signed.content.len() - body.len())?;
    let entries = match peek(body) {
        SEQUENCE => place(next(&mut body)?.content),
        _ => 0..0,
    };
    let head = wrap(&[&wrap(&[before, body]), outer]);
    let _algorithm = sequence(&mut outer)?;
    let (0, signature) =
        next(&mut outer).filter(|it| it.tag == BIT_STRING)?.content.split_first()?
    else {
        return None;
    };
    let (signed, signature) = (place(signed.whole), place(signature));
    Some(List { issuer, signed, entries, signature, head })
}

/// A `SEQUENCE` of these parts.
pub fn wrap(parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut der = vec![SEQUENCE];
    match u8::try_from(length) {
        Ok(short @ 0..=0x7f) => der.push(short),
        _ => {
            let digits = (length as u32).to_be_bytes();
            der.push(0x84);
            der.extend(digits);
        }
    }
    parts.iter().for_each(|part| der.extend_from_slice(part));
    der
}

/// An entry of a revocation list.
pub struct Entry<'d> {
    /// The serial number, as DER.
    pub serial: &'d [u8],
    /// All of it.
    pub whole: &'d [u8],
    /// It says something that must be understood.
    pub is_critical: bool,
}

/// Takes the first entry off; `None` at the end and where there is none. Numbers are compared as bytes, so one that is not
/// written the one way that DER has is refused.
pub fn entry<'d>(rest: &mut &'d [u8]) -> Option<Entry<'d>> {
    let entry = sequence(rest)?;
    let mut parts = entry.content;
    let serial = next(&mut parts).filter(is_minimal)?.whole;
    next(&mut parts)?;
    let mut is_critical = false;
    if !parts.is_empty() {
        let mut extensions = sequence(&mut parts)?.content;
        while !extensions.is_empty() {
            let mut extension = sequence(&mut extensions)?.content;
            next(&mut extension)?;
            if peek(extension) == BOOLEAN {
                is_critical |= next(&mut extension)?.content != [0];
            }
        }
    }
    Some(Entry { serial, whole: entry.whole, is_critical })
}

/// Whether it is an integer as DER writes it (X.690 §8.3.2, §10.1), of at most 127 bytes: serial numbers have 20.
fn is_minimal(number: &Element<'_>) -> bool {
    let is_padded = match number.content {
        [] => true,
        [0, next, ..] => *next < 0x80,
        [0xff, next, ..] => *next >= 0x80,
        _ => false,
    };
    number.tag == INTEGER
        && !is_padded
        && number.whole.len() == 2 + number.content.len()
        && number.content.len() < 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_its_number_as_der_writes_it() {
        let critical = |serial: &[u8], extensions: &[u8]| {
            let time = [&[UTC_TIME, 13][..], b"260101000000Z"].concat();
            let whole = wrap(&[serial, &time, extensions]);
            entry(&mut &whole[..]).map(|entry| {
                assert_eq!(entry.serial, serial);
                entry.is_critical
            })
        };
        for serial in [&[2, 1, 5][..], &[2, 1, 0], &[2, 2, 0, 0x80], &[2, 2, 0xff, 0x7f]] {
            assert_eq!(critical(serial, &[]), Some(false), "{serial:x?}");
        }
        for serial in
            [&[2, 2, 0, 5][..], &[2, 0x81, 1, 5], &[2, 0], &[2, 2, 0xff, 0x80], &[3, 1, 5]]
        {
            assert_eq!(critical(serial, &[]), None, "{serial:x?}");
        }
        for (value, is_critical) in [(0xff, true), (1, true), (0, false)] {
            let extension = wrap(&[&[6, 1, 42], &[BOOLEAN, 1, value], &[4, 0]]);
            assert_eq!(critical(&[2, 1, 5], &wrap(&[&extension])), Some(is_critical), "{value}");
        }
    }
}
