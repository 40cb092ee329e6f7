//! Interim responses of endpoints, such as 103 Early Hints, are read over: nginx would take them for the response. A head of too
//! many lines is no response.
//!
//! nginx keeps lines such as Set-Cookie in a list, and goes through all of it at each: some 100 000 of them, within a buffer of
//! 1m, take a worker seconds. So lines are counted before nginx reads them.
//!
//! nginx's gRPC module refuses interim responses, and so does this one for FastCGI, which has none: after a head with such a
//! status no other comes, and a client would wait for one.

use crate::request::Request;
use nginx::{Buffer, Head, HeadCallbacks, HeadReader, TrailerBounds};
use oxigress_core::http::head_lines::{Counted, HeadLines};
use oxigress_core::http::interim::{First, first, is_response};
use std::cell::Cell;

/// An endpoint that sends more of them than this in one attempt is broken.
const MAX: u8 = 16;
/// The longest interim head, in bytes: each read looks at it from its beginning.
const MAX_HEAD: usize = 16 * 1024;
/// The most lines of a response head that nginx reads.
const MAX_LINES: usize = 2_000;
/// nginx keeps trailers as long as the request lasts.
const TRAILERS: TrailerBounds =
    TrailerBounds { lines: MAX_LINES, bytes: MAX_TRAILER_BYTES, exceeded: say_trailers };
/// The most bytes of trailers.
const MAX_TRAILER_BYTES: usize = 1024 * 1024;
/// A buffer of so many bytes has no room for more lines of text than that which nginx looks at, so they are not counted. In
/// HTTP/2 a line may take one byte.
const SMALL: usize = 8 * 1024;

/// What the log says of an answer that is none.
pub const NO_STATUS_LINE: &str = "ingress: the endpoint's answer has no valid status line: 502";

/// What is kept with a request.
#[derive(Default)]
pub struct Interim {
    callbacks: Cell<HeadCallbacks>,
    /// Interim responses of this attempt.
    count: Cell<u8>,
    /// The lines of the response head of this attempt.
    lines: Cell<HeadLines>,
}

impl Interim {
    fn begin(&self, scheme: &[u8]) {
        self.count.set(0);
        self.lines.set(HeadLines::of_scheme(scheme));
    }
}

/// Reads over what comes before the response of an HTTP endpoint, which was not asked yet; `None` when memory is out.
pub fn install(request: &Request<'_>) -> Option<()> {
    let raw = request.nginx();
    let scheme = raw.upstream()?.schema();
    request.interim()?.begin(scheme);
    match scheme {
        b"http://" | b"https://" => raw.read_heads::<Heads>(),
        b"fastcgi://" => raw.check_heads::<Heads>(),
        b"grpc://" | b"grpcs://" => {
            raw.bound_trailers(TRAILERS)?;
            raw.check_heads::<Heads>()
        }
        _ => Some(()),
    }
}

struct Heads;

impl HeadReader for Heads {
    const NAME: &'static str = "process_header";

    fn place(request: &nginx::Request) -> Option<&Cell<HeadCallbacks>> {
        Some(&Request::of(request)?.interim()?.callbacks)
    }

    fn come(request: &nginx::Request, buffer: &Buffer) -> Head {
        let Some(request) = Request::of(request) else { return Head::Invalid };
        let Some(interim) = request.interim() else { return Head::Invalid };
        if matches!(interim.lines.get(), HeadLines::Http1(_)) {
            // As nearly every response: nothing of it is counted.
            if buffer.capacity() <= SMALL && buffer.look(is_response) {
                return Head::Begins;
            }
            return read_over(&request, interim, buffer);
        }
        match count_lines(&request, interim, buffer) {
            // nginx reads what comes: no whole head is waited for.
            Head::Unfinished => Head::Begins,
            head => head,
        }
    }

    fn again(request: &nginx::Request) {
        let scheme = request.upstream().map_or(&b""[..], |upstream| upstream.schema());
        if let Some(interim) = Request::of(request).and_then(|request| request.interim()) {
            interim.begin(scheme);
        }
    }

    fn has_read(request: &nginx::Request, status: usize) -> Head {
        if !(100..200).contains(&status) {
            return Head::Begins;
        }
        if let Some(request) = Request::of(request) {
            let line =
                format_args!("ingress: status {status} is no response of a FastCGI endpoint");
            request.log_error(line);
        }
        Head::Invalid
    }
}

fn say_trailers(request: &nginx::Request) {
    if let Some(request) = Request::of(request) {
        let line = format_args!(
            "ingress: an answer has more than {MAX_LINES} trailers, or {MAX_TRAILER_BYTES} bytes of them"
        );
        request.log_error(line);
    }
}

/// Whether another protocol may follow: the client has asked for one, and its connection has no other requests.
pub fn may_switch(request: &nginx::Request) -> bool {
    request.upgrade_header().is_some() && request.protocol().starts_with(b"HTTP/1.")
}

/// Waits for a head as a whole where it may have too many lines.
fn count_lines(request: &Request<'_>, interim: &Interim, buffer: &Buffer) -> Head {
    let mut lines = interim.lines.get();
    if buffer.capacity() <= SMALL && !matches!(lines, HeadLines::Http2(_)) {
        return Head::Begins;
    }
    let counted = buffer.look(|bytes| lines.count(bytes, MAX_LINES));
    interim.lines.set(lines);
    match counted {
        Counted::End => Head::Begins,
        Counted::More => Head::Unfinished,
        Counted::TooMany => {
            let line = format_args!("ingress: a response head has more than {MAX_LINES} lines");
            request.log_error(line);
            Head::Invalid
        }
    }
}

fn read_over(request: &Request<'_>, interim: &Interim, buffer: &Buffer) -> Head {
    loop {
        let (found, length) = buffer.look(|bytes| {
            let seen = bytes.get(..MAX_HEAD).unwrap_or(bytes);
            (first(seen), seen.len())
        });
        match found {
            First::Unknown if length == MAX_HEAD => {
                let line =
                    format_args!("ingress: an interim response is longer than {MAX_HEAD} bytes");
                request.log_error(line);
                return Head::Invalid;
            }
            First::Unknown => return Head::Unfinished,
            First::Response => return count_lines(request, interim, buffer),
            // Where nobody has asked for it, what follows would be the client's next answer.
            First::Switch if may_switch(request.nginx()) => {
                return count_lines(request, interim, buffer);
            }
            First::Switch => {
                request.log_error(format_args!(
                    "ingress: the endpoint answers 101 to a request without Upgrade: 502"
                ));
                return Head::Invalid;
            }
            First::Nothing => {
                request.log_error(format_args!("{NO_STATUS_LINE}"));
                return Head::Invalid;
            }
            First::Interim(head) => {
                interim.count.set(interim.count.get() + 1);
                if interim.count.get() > MAX {
                    let line = format_args!("ingress: more than {MAX} interim responses");
                    request.log_error(line);
                    return Head::Invalid;
                }
                // What follows takes its place: the buffer stays as large as it was.
                buffer.take_front(head);
            }
        }
    }
}

impl<'r> Request<'r> {
    /// What is kept for its endpoint's answers; `None` when memory is out.
    fn interim(&self) -> Option<&'r Interim> {
        self.part_or_new()
    }
}
