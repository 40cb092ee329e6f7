//! Blocks of PEM (RFC 7468).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::ops::Range;

/// The DER of all blocks with one of these labels, one after the other, and where each stands; `None`: a block cannot be
/// read. What stands around blocks, and blocks of other labels, is passed over.
pub fn read(text: &[u8], labels: &[&str]) -> Option<(Vec<u8>, Vec<Range<usize>>)> {
    let (mut der, mut places) = (Vec::with_capacity(text.len() / 4 * 3), Vec::new());
    let (mut base64, mut open): (Vec<u8>, Option<&[u8]>) = (Vec::new(), None);
    for line in text.split(|byte| *byte == b'\n') {
        let line = line.trim_ascii();
        match open {
            None => open = label(line, b"-----BEGIN "),
            Some(begun) => match label(line, b"-----END ") {
                None => base64.extend_from_slice(line),
                Some(ended) if ended != begun => return None,
                Some(_) => {
                    if labels.iter().any(|label| label.as_bytes() == begun) {
                        let begin = der.len();
                        STANDARD.decode_vec(&base64, &mut der).ok()?;
                        places.push(begin..der.len());
                    }
                    base64.clear();
                    open = None;
                }
            },
        }
    }
    open.is_none().then_some((der, places))
}

fn label<'l>(line: &'l [u8], begin: &[u8]) -> Option<&'l [u8]> {
    line.strip_prefix(begin)?.strip_suffix(b"-----")
}
