//! How many header lines the head of a response has, counted in its bytes before nginx reads them.
//!
//! Shape:   one [`HeadLines`] for each attempt; a byte is looked at once.
//! Units:   lines; in HTTP/2 each field of the header block is one, and may take a single byte.
//! Errors:  none: what is no head has no lines, and nginx refuses it.
//! Source:  RFC 9112 §2.1; RFC 9113 §4.1, §6.2, §6.10; RFC 7541 §5, §6; the FastCGI specification, §3.3.

mod fastcgi;
mod http2;
mod text;

pub use text::Counted;

use fastcgi::FastCgi;
use http2::Http2;
use text::Http1;

/// The lines of a head, counted as it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadLines {
    /// Of HTTP/1: nginx reads nothing before the head is here as a whole.
    Http1(Http1),
    /// Of FastCGI: nginx reads what comes.
    FastCgi(FastCgi),
    /// Of HTTP/2: nginx reads what comes.
    Http2(Http2),
}

impl Default for HeadLines {
    fn default() -> Self {
        HeadLines::Http1(Http1::default())
    }
}

impl HeadLines {
    /// The counter for the scheme of an upstream, as nginx's modules name it (`grpc://`).
    pub fn of_scheme(scheme: &[u8]) -> Self {
        match scheme {
            b"fastcgi://" => HeadLines::FastCgi(FastCgi::default()),
            b"grpc://" | b"grpcs://" => HeadLines::Http2(Http2::default()),
            _ => HeadLines::default(),
        }
    }

    /// Counts on in the bytes that nginx has not read.
    pub fn count(&mut self, unread: &[u8], most: usize) -> Counted {
        match self {
            HeadLines::Http1(lines) => lines.count(unread, most),
            HeadLines::FastCgi(lines) => lines.count(unread, most),
            HeadLines::Http2(lines) => lines.count(unread, most),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives all bytes in pieces of `step`, as nginx does that reads what comes; what is known in the end, and after how many
    /// bytes.
    fn in_pieces(mut lines: HeadLines, bytes: &[u8], step: usize, most: usize) -> (Counted, usize) {
        let mut read = 0;
        for piece in bytes.chunks(step) {
            read += piece.len();
            let counted = lines.count(piece, most);
            if counted != Counted::More {
                return (counted, read);
            }
        }
        (Counted::More, read)
    }

    #[test]
    fn the_lines_of_a_head_are_counted_however_it_comes() {
        let head = b"HTTP/1.1 200 OK\r\nA: b\nC: d\r\n\r\nbody\n\n";
        let length = head.len() - b"body\n\n".len();
        for step in 1..=head.len() {
            let mut lines = Http1::default();
            let ends = (1..=head.len()).filter(|end| end % step == 0 || *end == head.len());
            let found = ends.map(|end| (end, lines.count(&head[..end], 3)));
            let (end, found) =
                found.into_iter().find(|(_, found)| *found != Counted::More).unwrap();
            assert!(found == Counted::End && end >= length && end < length + step, "{step}: {end}");
        }
        assert_eq!(Http1::default().count(head, 2), Counted::TooMany);
        assert_eq!(Http1::default().count(b"no head at all", 2), Counted::End);
    }

    fn record(kind: u8, content: &[u8], padding: u8) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        let head = [1, kind, 0, 1, length[0], length[1], padding, 0];
        [&head[..], content, &vec![b'\n'; padding.into()]].concat()
    }

    #[test]
    fn the_lines_of_fastcgi_are_those_of_its_output() {
        let all = [
            record(7, b"a warning\n\n\n", 3),
            record(6, b"Status: 200\r\nA", 1),
            record(6, b": b\nC: d\r\n\r", 0),
            record(6, b"\nbody\n\n", 0),
        ];
        let whole = all.concat();
        let length = whole.len() - b"body\n\n".len();
        for step in 1..=whole.len() {
            let lines = || HeadLines::of_scheme(b"fastcgi://");
            let (counted, read) = in_pieces(lines(), &whole, step, 3);
            assert!(counted == Counted::End && read >= length && read < length + step, "{step}");
            assert_eq!(in_pieces(lines(), &whole, step, 2).0, Counted::TooMany, "{step}");
        }
    }

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let head = [length[1], length[2], length[3], kind, flags, 0, 0, 0, 1];
        [&head[..], payload].concat()
    }

    #[test]
    fn the_lines_of_http2_are_the_fields_of_its_header_block() {
        // `:status: 200`; a table size; an indexed name with an empty value; two texts; a name by a long index and a value
        // of 200 bytes, whose length takes two bytes.
        let fields = [
            &b"\x88\x3f\xe1\x1f"[..],
            b"\x40\x01a\x00",
            b"\x00\x02bc\x83xyz",
            b"\x0f\x28\x7f\x49",
            &[b'v'; 200],
            b"\xff\x00",
        ]
        .concat();
        let (first, rest) = fields.split_at(7);
        let padded = [&[3][..], &[0; 5], first, &[0x82; 3]].concat();
        let all = [
            frame(4, 0, &[0x82; 18]),
            frame(8, 0, &[0; 4]),
            frame(1, 0x08 | 0x20, &padded),
            frame(9, 0x04, rest),
            frame(0, 0, &[0x82; 40]),
        ];
        let whole = all.concat();
        let length = whole.len() - 49;
        let lines = || HeadLines::of_scheme(b"grpc://");
        for step in 1..=whole.len() {
            let (counted, read) = in_pieces(lines(), &whole, step, 5);
            assert!(counted == Counted::End && read >= length && read < length + step, "{step}");
            assert_eq!(in_pieces(lines(), &whole, step, 4).0, Counted::TooMany, "{step}");
        }
    }

    #[test]
    fn a_head_of_3000_cookies_has_too_many_lines() {
        let block = [&b"\x88"[..], &b"\x1f\x28\x00".repeat(3_000)].concat();
        let all =
            [frame(4, 0, &[0; 18]), frame(8, 0, &[0; 4]), frame(4, 1, b""), frame(1, 4, &block)];
        for step in [1, 100, 100_000] {
            let lines = HeadLines::of_scheme(b"grpc://");
            assert_eq!(in_pieces(lines, &all.concat(), step, 2_000).0, Counted::TooMany, "{step}");
        }
    }

    #[test]
    fn a_head_that_ends_without_a_field_ends() {
        let lines = HeadLines::of_scheme(b"grpcs://");
        assert_eq!(in_pieces(lines, &frame(1, 0x04, b""), 9, 0).0, Counted::End);
        let padded = frame(1, 0x04 | 0x08, &[4, 0, 0, 0, 0]);
        assert_eq!(in_pieces(lines, &padded, 2, 0).0, Counted::End);
    }
}
