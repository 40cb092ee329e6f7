//! Texts with many variables that are written in one piece: a line of the access log, the headers for an endpoint.
//!
//! nginx evaluates such a text variable by variable, and each value twice: once for its length. Here the variables that
//! every request has are read from the request itself; the others are asked of nginx by their index.

use crate::logging::variable::UPSTREAM_NAME;
use crate::logging::variable::VARIABLES;
use crate::logging::variable::Value;
use crate::logging::variable::upstream_name_parts;
use crate::logging::variables::Variables;
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

/// A header of [`Text::Headers`]: its name and the pieces of its value.
pub struct Header {
    /// What stands before its value: a line break, its name and a colon; empty for the first.
    before: Vec<u8>,
    value: Vec<Piece>,
}

/// A part of a text.
pub enum Piece {
    /// The text as it stands in the format.
    Literal(Vec<u8>),
    /// The value of a variable of this module, which is read without nginx's lookup.
    Own(Value),
    /// `$proxy_upstream_name`, without putting it together elsewhere first.
    UpstreamName,
    /// Read from the request, if it is not one that only nginx knows.
    Known(Known, VariableIndex),
    /// A variable of this module that has one value for the whole request, its subrequests included, which nginx keeps.
    Lasting(VariableIndex),
    /// Such a variable that only requests over TLS have.
    OfTls(VariableIndex),
    /// nginx's variable with this index.
    Nginx(VariableIndex),
}

/// What the names of the variables begin with that only requests over TLS have.
const OF_TLS: &str = "ingress_client_";

/// A variable of nginx that is read from the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// A header that the client sent once, or not at all.
    Header(Sole),
    /// A header that few clients send, whose name has so many bytes: the client sent none as long as that.
    Rare(usize),
    /// `$request_uri`
    Target,
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

const KNOWN: [(&[u8], Known); 18] = [
    (b"http_referer", Known::Header(Sole::Referer)),
    (b"http_upgrade", Known::Header(Sole::Upgrade)),
    (b"http_user_agent", Known::Header(Sole::UserAgent)),
    (b"http_x_forwarded_for", Known::Header(Sole::ForwardedFor)),
    (b"http_x_forwarded_host", Known::Rare(b"x-forwarded-host".len())),
    (b"remote_addr", Known::ClientAddress),
    (b"remote_user", Known::User),
    (b"time_local", Known::LocalTime),
    (b"request", Known::RequestLine),
    (b"request_uri", Known::Target),
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
        let own = VARIABLES.iter().find(|own| own.name.as_bytes() == name);
        if let Some(own) = own.filter(|own| !own.is_lasting) {
            return Some(Piece::Own(own.value));
        }
        let index = index(name)?;
        if let Some(own) = own {
            let is_of_tls = own.name.starts_with(OF_TLS);
            return Some(if is_of_tls { Piece::OfTls(index) } else { Piece::Lasting(index) });
        }
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
            [Piece::Lasting(index)] => Some(lasting(request, *index).map(Cow::Borrowed)),
            [Piece::OfTls(index)] => Some(of_tls(request, *index).map(Cow::Borrowed)),
            [Piece::Nginx(index)] => Some(request.variable_at(*index).map(Cow::Borrowed)),
            [Piece::Known(Known::Header(header), _)] => {
                request.sole_header(*header).map(|value| value.map(Cow::Borrowed))
            }
            [Piece::Known(Known::Target, _)] => Some(Some(Cow::Borrowed(request.target()))),
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
    /// In one piece with the loop around it: most pieces are shorter than a call.
    #[inline(always)]
    fn write(&self, out: &mut Vec<u8>, request: &Request<'_>, escape: Escape) {
        let value = match self {
            Piece::Literal(text) => return out.extend_from_slice(text),
            Piece::UpstreamName => return escape.write_parts(out, &upstream_name_parts(request)),
            Piece::Own(value) => match value(request) {
                Some(value) => return escape.write(out, &value),
                None => None,
            },
            Piece::Known(known, index) => match known.find(out, request) {
                ValueSource::Written => return,
                ValueSource::Value(value) => value,
                ValueSource::Unknown => request.variable_at(*index),
            },
            Piece::Lasting(index) => lasting(request, *index),
            Piece::OfTls(index) => of_tls(request, *index),
            Piece::Nginx(index) => request.variable_at(*index),
        };
        match value {
            Some(value) => escape.write(out, value),
            None => escape.write_absent(out),
        }
    }
}

/// The value of a lasting variable of this module.
#[inline]
fn lasting<'r>(request: &Request<'r>, index: VariableIndex) -> Option<&'r [u8]> {
    request.nginx().lasting_variable::<Variables>(index)
}

/// The value of one that only requests over TLS have. Others are not asked, unless a configuration has `set` it.
#[inline]
fn of_tls<'r>(request: &Request<'r>, index: VariableIndex) -> Option<&'r [u8]> {
    let may_be = request.is_https() || request.nginx().knows_variable(index);
    if may_be { lasting(request, index) } else { None }
}

/// What the request itself says of a variable.
enum ValueSource<'r> {
    /// A number, a time or an address, which was appended.
    Written,
    /// The value, if there is one.
    Value(Option<&'r [u8]>),
    /// Only nginx can say it.
    Unknown,
}

impl Known {
    #[inline(always)]
    fn find<'r>(self, out: &mut Vec<u8>, request: &Request<'r>) -> ValueSource<'r> {
        let value = match self {
            Known::Header(header) => return request.sole_header(header).into(),
            Known::Rare(length) => {
                let is_sent = request.headers().any(|(name, _)| name.len() == length);
                return if is_sent { ValueSource::Unknown } else { ValueSource::Value(None) };
            }
            Known::User => {
                let is_sent = request.sole_header(Sole::Authorization) != Some(None);
                return if is_sent { ValueSource::Unknown } else { ValueSource::Value(None) };
            }
            Known::Target => request.target(),
            // There is nothing to escape in these.
            Known::ClientAddress => {
                out.extend_from_slice(request.client_text());
                return ValueSource::Written;
            }
            Known::LocalTime => {
                request.write_local_time(out);
                return ValueSource::Written;
            }
            Known::RequestLine => match request.request_line() {
                Some(line) => line,
                None => return ValueSource::Unknown,
            },
            Known::AttemptAddress => match request.only_attempt() {
                Some(attempt) => attempt.address,
                None => return ValueSource::Unknown,
            },
            number => {
                let is_written = number.write(out, request).is_some();
                return if is_written { ValueSource::Written } else { ValueSource::Unknown };
            }
        };
        ValueSource::Value(Some(value))
    }

    /// Appends a number or a time; `None`: only nginx can say it.
    #[inline(always)]
    fn write(self, out: &mut Vec<u8>, request: &Request<'_>) -> Option<()> {
        match self {
            Known::Status => {
                let status = request.status().filter(|status| *status >= 100)?;
                write_number(out, status.into());
            }
            Known::SentBody => write_number(out, request.sent_body()),
            Known::Length => write_number(out, request.length()),
            Known::Time => write_seconds(out, request.elapsed_ms()),
            Known::AttemptLength => write_number(out, request.only_attempt()?.length),
            Known::AttemptTime => write_seconds(out, request.only_attempt()?.response_ms?),
            Known::AttemptStatus => write_number(out, request.only_attempt()?.status?),
            _ => return None,
        }
        Some(())
    }
}

impl<'r> From<Option<Option<&'r [u8]>>> for ValueSource<'r> {
    #[inline]
    fn from(value: Option<Option<&'r [u8]>>) -> Self {
        value.map_or(ValueSource::Unknown, ValueSource::Value)
    }
}
