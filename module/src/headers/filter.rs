//! The header filter: the last word on a response's head, whoever made it, endpoint or nginx.
//!
//! It runs before nginx's own filters, once for a response. Interim responses (1xx) do not come here, and those of
//! subrequests are nobody's.

use crate::conf::Declared;
use crate::headers::draining;
use crate::headers::draining::Draining;
use crate::headers::interim::{self, NO_STATUS_LINE};
use crate::headers::responses;
use crate::request::Request;
use nginx::sys::{
    NGX_HTTP_VERSION_9, NGX_HTTP_VERSION_10, NGX_HTTP_VERSION_11, NGX_HTTP_VERSION_20,
    NGX_HTTP_VERSION_30,
};
use nginx::{HeaderFilter, NextFilters};

/// The most header lines of an answer: each change of headers that policies make, up to some hundreds, looks at all of
/// them. Within a buffer of 16m an endpoint could send millions. nginx has read them by then.
const MAX_HEADERS: usize = 1_000;

/// The filter in front of nginx's.
pub struct Filter;

static NEXT: NextFilters = NextFilters::new();

impl HeaderFilter for Filter {
    const NAME: &'static str = "header_filter";

    fn next() -> &'static NextFilters {
        &NEXT
    }

    fn before(request: &nginx::Request) -> bool {
        if !run(request) {
            return false;
        }
        crate::access::phase::filter_header(request);
        true
    }

    fn after(request: &nginx::Request) {
        if request.is_main() {
            return;
        }
        let Some(seen) = Request::of(request) else { return };
        // The answers of auth servers and mirrors: nobody needs their bodies.
        let is_copy = seen.mirror().is_some();
        if is_copy || seen.auth().is_some() {
            request.discard_answer(is_copy);
        }
    }
}

/// The steps, in their order; `false`: this response cannot be sent.
fn run(raw: &nginx::Request) -> bool {
    if !raw.is_main() {
        return true;
    }
    // Also of requests that are refused before they are routed.
    if raw.hides_server() && raw.hide_server().is_none() {
        return false;
    }
    let Some(request) = Request::of(raw) else { return true };
    let lines = raw.response_headers().count_all();
    if lines > MAX_HEADERS && !answer_too_many(&request, lines) {
        return false;
    }
    match raw.status() {
        502 if request.is_busy() => answer_busy(raw),
        // It came in parts, so that nobody has seen the whole line before nginx.
        101 if raw.upstream().is_some() && !interim::may_switch(raw) => return false,
        _ => {}
    }
    if raw.http_version() == NGX_HTTP_VERSION_9 as usize && !raw.protocol().is_empty() {
        answer_without_head(&request);
    }
    if let Some(policies) = request.policies()
        && !responses::finish(&request, policies)
    {
        return false;
    }
    let is_draining = request.worker().part::<Draining>().is_on();
    if !is_draining && !request.is_https() {
        return true;
    }
    if !request.is_decided() && !raw.is_router() {
        return true;
    }
    if is_draining {
        draining::send_away(raw);
    }
    !request.is_https() || responses::secure(&request)
}

/// 502 in place of an answer with so many header lines; `false`: it goes on with another protocol, and nothing can stand in
/// its place.
fn answer_too_many(request: &Request<'_>, lines: usize) -> bool {
    request.log_error(format_args!(
        "ingress: the endpoint's answer has {lines} header lines, at most {MAX_HEADERS} are taken: 502; let it send fewer"
    ));
    let raw = request.nginx();
    if raw.status() == 101 {
        return false;
    }
    raw.remove_response_headers(|_| true);
    replace_by(raw, 502);
    !raw.hides_server() || raw.hide_server().is_some()
}

/// 502 in place of an answer without a status line, which nginx would send as it is and keep the client's connection.
fn answer_without_head(request: &Request<'_>) {
    request.log_error(format_args!("{NO_STATUS_LINE}"));
    let raw = request.nginx();
    let version = match raw.protocol() {
        b"HTTP/1.0" => NGX_HTTP_VERSION_10,
        b"HTTP/2.0" => NGX_HTTP_VERSION_20,
        b"HTTP/3.0" => NGX_HTTP_VERSION_30,
        _ => NGX_HTTP_VERSION_11,
    };
    raw.set_http_version(version as usize);
    replace_by(raw, 502);
}

/// Another status and no body in place of a response.
fn replace_by(request: &nginx::Request, status: u16) {
    request.replace_status(status);
    request.set_response_length(0);
    request.set_header_only(true);
}

/// 503 where every endpoint is busy up to its limit.
///
/// REWRITE answers so when it sees that nobody can take a request. Other workers may take the last places between
/// that and the attempt; nginx has one answer to "no endpoint", 502, which becomes the other here.
fn answer_busy(request: &nginx::Request) {
    request.push_response_header(b"Retry-After", b"1");
    // The page at hand is that of 502: there is none.
    replace_by(request, 503);
    // What logs and metrics tell.
    if request.error_status() != 0 {
        request.set_error_status(503);
    }
}
