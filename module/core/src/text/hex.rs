//! Lower-case hexadecimal digits, as trace headers and affinity cookies have them.

/// Writes each byte as two lower-case digits.
pub fn encode(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().flat_map(|byte| pair(*byte)).collect()
}

/// The digits of 16 bytes, without an allocation.
pub fn digits(digest: [u8; 16]) -> [u8; 32] {
    let mut digits = [0; 32];
    for (place, byte) in digits.as_chunks_mut::<2>().0.iter_mut().zip(digest) {
        *place = pair(byte);
    }
    digits
}

fn pair(byte: u8) -> [u8; 2] {
    [byte >> 4, byte & 15].map(|digit| digit + if digit < 10 { b'0' } else { b'a' - 10 })
}

/// `None` unless the text is exactly two lower-case digits a byte.
pub fn decode<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let (pairs, []) = text.as_chunks::<2>() else { return None };
    if pairs.len() != N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = value(*high)? << 4 | value(*low)?;
    }
    Some(bytes)
}

fn value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}
