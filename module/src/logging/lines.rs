//! Texts with many variables that are written in one piece: a line of the access log, the headers for an endpoint.
//!
//! nginx evaluates such a text variable by variable, and each value twice: once for its length. Here the variables that
//! every request has are read from the request itself; the others are asked of nginx by their index.

use crate::logging::variable::UPSTREAM_NAME;
use crate::logging::variable::VARIABLES;
use crate::logging::variable::Value;
use crate::logging::variable::upstream_name_parts;
use crate::request::Request;
use crate::request::log::Sole;
use nginx::VariableIndex;
use oxigress_core::http::header;
use oxigress_core::model::policy::RequestHeader;
use oxigress_core::text::log::{Escape, write_number, write_seconds};
use oxigress_core::text::template::{self, Part};
use std::borrow::Cow;

/// What a directive has described, read once.
pub enum Text {
    /// A line of the access log.
    Line(Vec<Piece>, Escape),
    /// Headers: the value of the first, whatever it is, then each that has a value on a line of its own.
    Headers(Vec<Header>),
}

/// A header of [`Text::Headers`].
pub struct Header {
    /// What stands before its value: a line break, its name and a colon; empty for the first.
    before: Vec<u8>,
    value: Vec<Piece>,
}

/// A part of a text.
pub enum Piece {
    /// As it stands.
    Literal(Vec<u8>),
    /// Of this module.
    Own(Value),
    /// `$proxy_upstream_name`, without putting it together elsewhere first.
    UpstreamName,
    /// Read from the request, if it is not one that only nginx knows.
    Known(Known, VariableIndex),
    /// nginx's variable with this index.
    Nginx(VariableIndex),
}

/// A variable of nginx that is read from the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// A header that the client sent once, or not at all.
    Header(Sole),
    /// `$remote_addr`
    ClientAddress,
    /// `$remote_user` of a client that sent no credentials.
    User,
    /// `$time_local`
    LocalTime,
    /// `$request`
    RequestLine,
    /// `$status`
    Status,
    /// `$body_bytes_sent`
    SentBody,
    /// `$request_length`
    Length,
    /// `$request_time`
    Time,
    /// `$upstream_addr` of a request with one attempt, as the following.
    AttemptAddress,
    /// `$upstream_response_length`
    AttemptLength,
    /// `$upstream_response_time`
    AttemptTime,
    /// `$upstream_status`
    AttemptStatus,
}

const KNOWN: [(&[u8], Known); 16] = [
    (b"http_referer", Known::Header(Sole::Referer)),
    (b"http_upgrade", Known::Header(Sole::Upgrade)),
    (b"http_user_agent", Known::Header(Sole::UserAgent)),
    (b"http_x_forwarded_for", Known::Header(Sole::ForwardedFor)),
    (b"remote_addr", Known::ClientAddress),
    (b"remote_user", Known::User),
    (b"time_local", Known::LocalTime),
    (b"request", Known::RequestLine),
    (b"status", Known::Status),
    (b"body_bytes_sent", Known::SentBody),
    (b"request_length", Known::Length),
    (b"request_time", Known::Time),
    (b"upstream_addr", Known::AttemptAddress),
    (b"upstream_response_length", Known::AttemptLength),
    (b"upstream_response_time", Known::AttemptTime),
    (b"upstream_status", Known::AttemptStatus),
];

impl Header {
    /// The header that a text begins with: its value only.
    pub fn first(value: Vec<Piece>) -> Self {
        Header { before: Vec::new(), value }
    }

    /// A header on a line of its own.
    pub fn next(name: &[u8], value: Vec<Piece>) -> Self {
        Header { before: [b"\r\n", name, b": "].concat(), value }
    }
}

/// Reads a text with variables. `index` is nginx's index of the variable of a name; `None`: nginx has refused it.
pub fn parse(
    text: &[u8],
    mut index: impl FnMut(&[u8]) -> Option<VariableIndex>,
) -> Option<Vec<Piece>> {
    let piece = |part: Part<'_>| {
        let name = match part {
            Part::Literal(text) => return Some(Piece::Literal(text.to_vec())),
            Part::Capture(number) => &[b'0' + number][..],
            Part::Variable(UPSTREAM_NAME) => return Some(Piece::UpstreamName),
            Part::Variable(name) => name,
        };
        // A lasting one has one value for the whole request, its subrequests included, which nginx keeps.
        let own = VARIABLES.iter().find(|own| own.name.as_bytes() == name);
        if let Some(own) = own.filter(|own| !own.is_lasting) {
            return Some(Piece::Own(own.value));
        }
        let index = index(name)?;
        let known = KNOWN.iter().find(|(known, _)| *known == name);
        Some(known.map_or(Piece::Nginx(index), |(_, known)| Piece::Known(*known, index)))
    };
    template::parts(text).map(piece).collect()
}

impl Text {
    /// Appends the text for a request.
    pub fn write(&self, out: &mut Vec<u8>, request: &Request<'_>) {
        match self {
            Text::Line(pieces, escape) => {
                for piece in pieces {
                    piece.write(out, request, *escape);
                }
            }
            Text::Headers(headers) => {
                for header in headers {
                    header.write(out, request);
                }
                if let Some(policies) = request.policies() {
                    write_further(out, request, &policies.source.beside_own_headers);
                }
            }
        }
    }
}

/// Appends what policies say beside the headers that the gateway sends of itself.
fn write_further(out: &mut Vec<u8>, request: &Request<'_>, headers: &[RequestHeader]) {
    for header in headers {
        let name = header.name.as_str().as_bytes();
        let value = template::expand(header.value.parts(), request).unwrap_or_default();
        if !value.is_empty() && !header::is_reserved(name) {
            for part in [b"\r\n", name, b": ", &value] {
                out.extend_from_slice(part);
            }
        }
    }
}

impl Header {
    #[inline]
    fn write(&self, out: &mut Vec<u8>, request: &Request<'_>) {
        // Most of them are empty for most requests.
        let only = match &self.value[..] {
            [Piece::Own(value)] => Some(value(request)),
            [Piece::Nginx(index)] => Some(request.variable_at(*index).map(Cow::Borrowed)),
            _ => None,
        };
        if let Some(value) = only {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                out.extend_from_slice(&self.before);
                out.extend_from_slice(&value);
            }
            return;
        }
        let start = out.len();
        out.extend_from_slice(&self.before);
        let empty = out.len();
        for piece in &self.value {
            piece.write(out, request, Escape::None);
        }
        if out.len() == empty {
            out.truncate(start);
        }
    }
}

impl Piece {
    #[inline]
    fn write(&self, out: &mut Vec<u8>, request: &Request<'_>, escape: Escape) {
        let index = match self {
            Piece::Literal(text) => return out.extend_from_slice(text),
            Piece::UpstreamName => {
                for part in upstream_name_parts(request) {
                    escape.write(out, part);
                }
                return;
            }
            Piece::Own(value) => {
                return match value(request) {
                    Some(value) => escape.write(out, &value),
                    None => escape.write_absent(out),
                };
            }
            Piece::Known(known, index) => match known.write(out, request, escape) {
                Some(()) => return,
                None => index,
            },
            Piece::Nginx(index) => index,
        };
        match request.variable_at(*index) {
            Some(value) => escape.write(out, value),
            None => escape.write_absent(out),
        }
    }
}

impl Known {
    /// Appends the value; `None`: only nginx can say it.
    #[inline]
    fn write(self, out: &mut Vec<u8>, request: &Request<'_>, escape: Escape) -> Option<()> {
        match self {
            Known::Header(header) => match request.sole_header(header)? {
                Some(value) => escape.write(out, value),
                None => escape.write_absent(out),
            },
            Known::User => match request.sole_header(Sole::Authorization)? {
                Some(_) => return None,
                None => escape.write_absent(out),
            },
            Known::ClientAddress => out.extend_from_slice(request.client_text()),
            Known::LocalTime => out.extend_from_slice(request.local_time()),
            Known::RequestLine => escape.write(out, request.request_line()?),
            Known::Status => {
                let status = request.status().filter(|status| *status >= 100)?;
                write_number(out, status.into());
            }
            Known::SentBody => write_number(out, request.sent_body()),
            Known::Length => write_number(out, request.length()),
            Known::Time => write_seconds(out, request.elapsed_ms()),
            Known::AttemptAddress => escape.write(out, request.only_attempt()?.address),
            Known::AttemptLength => write_number(out, request.only_attempt()?.length),
            Known::AttemptTime => write_seconds(out, request.only_attempt()?.response_ms?),
            Known::AttemptStatus => write_number(out, request.only_attempt()?.status?),
        }
        Some(())
    }
}
