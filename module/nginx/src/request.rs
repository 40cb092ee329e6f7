//! Requests.

mod body;
mod context;
pub(crate) mod header;
mod headers;
mod password;
mod phase;
mod response;
mod subrequest;
mod variable;
mod weak;

pub use body::{AfterBody, BodyHandler, Pieces};
pub use password::crypt;
pub use phase::{HeaderFilter, NextFilter, Phase, PhaseHandler, content_handler};
pub(crate) use phase::{install, phase};
pub use subrequest::{Ended, Kind};
pub use variable::{Lookup, Value, VariableFlags, VariableIndex};
pub use weak::WeakRequest;

use crate::basic::handle::{fields, handle};
use crate::basic::log::{Level, Log};
use crate::basic::pool::Pool;
use crate::connection::Connection;
use crate::process::event_loop::EventLoop;
use crate::request::header::{Header, Headers};
use crate::sys::{ngx_http_request_body_t, ngx_http_set_exten, ngx_str_t};
use crate::upstream::Upstream;
use std::fmt::Arguments;

handle! {
    /// A request, or a subrequest of one, during a callback.
    Request of ngx_http_request_t
}

fields! { Request {
    /// Its connection, which for HTTP/2 and HTTP/3 is one of its own.
    link connection: Connection = connection;
    /// Its pool, which subrequests share.
    link pool: Pool = pool;
    /// The request that this is a subrequest of; itself, if it is none.
    link main: Request = main;
    /// Its way to an endpoint, if it goes to one.
    option upstream: Upstream = upstream;
    /// The host as nginx validated it: lower case, no port, no trailing dot; empty if there is none.
    text host = headers_in.server;
    /// The path as nginx normalised it: decoded, dot segments resolved, no query.
    text path = uri;
    /// The query, without the question mark.
    text args = args;
    /// The request target as it was sent: path and query.
    text target = unparsed_uri;
    /// The method as it was sent.
    text method = method_name;
    /// The request line as it was sent.
    text request_line = request_line;
    /// The bit of the method, `NGX_HTTP_GET` and the like.
    get method_bit: usize = method;
    /// The length of the body; negative, if the client does not say.
    get content_length_n: i64 = headers_in.content_length_n;
    /// Bytes of request line, headers and body.
    get length: i64 = request_length;
    /// Bytes of the response's head that were sent.
    get header_size: usize = header_size;
    /// The first `Authorization` header.
    option authorization_header: Header = headers_in.authorization;
    /// The first `Referer` header.
    option referer_header: Header = headers_in.referer;
    /// The first `User-Agent` header.
    option user_agent_header: Header = headers_in.user_agent;
    /// The first `X-Forwarded-For` header.
    option forwarded_for_header: Header = headers_in.x_forwarded_for;
    /// The status of the response, so far.
    get status: usize = headers_out.status;
    /// Another status.
    set set_status: usize = headers_out.status;
    /// The status for which an error page is shown; 0: none is.
    get error_status: usize = err_status;
    /// Another status for the error page.
    set set_error_status: usize = err_status;
    /// Seconds since 1970 when it began.
    get start_seconds: i64 = start_sec;
    /// The milliseconds to these.
    get start_milliseconds: u64 = start_msec;
    /// Bytes a second of the response.
    set set_limit_rate: usize = limit_rate;
    /// Bytes of the response that are sent without a limit.
    set set_limit_rate_after: usize = limit_rate_after;
    /// The rate is not the location's.
    set_flag set_limit_rate_is_set = set_limit_rate_set;
    /// The bytes without a limit are not the location's.
    set_flag set_limit_rate_after_is_set = set_limit_rate_after_set;
    /// The body comes in chunks.
    flag is_chunked = headers_in.chunked;
    /// The client is an old browser that wants a page for redirects.
    set_flag set_is_msie = headers_in.set_msie;
    /// Its connection is used for other requests.
    set_flag set_keepalive = set_keepalive;
    /// An error page has been shown: none is shown after it.
    set_flag set_error_page = set_error_page;
    /// Only the head of the response is sent.
    flag is_header_only = header_only;
    /// Only the head of the response is sent.
    set_flag set_header_only = set_header_only;
    /// Conditions such as `If-Match` are not looked at.
    set_flag set_disable_not_modified = set_disable_not_modified;
    /// The request target says the path: nginx sends it on as it is.
    set_flag set_valid_target = set_valid_unparsed_uri;
    /// The path has characters to escape.
    set_flag set_quoted_path = set_quoted_uri;
    /// The path was changed, and a location is to be found for it.
    set_flag set_path_changed = set_uri_changed;
    /// The client was told that it may send the body.
    set_flag set_expect_tested = set_expect_tested;
    /// The body is read and dropped.
    flag discards_body = discard_body;
    /// The body is being read.
    flag reads_body = reading_body;
    /// The body is kept until the request ends, for others who send it too.
    set_flag set_preserve_body = set_preserve_body;
    /// nginx sent it where it is, by an error page or an internal redirect.
    flag is_internal = internal;
    /// The header of the response was sent.
    flag is_header_sent = header_sent;
}}

impl Request {
    /// What a request says of the thread that it is seen on.
    #[inline]
    pub fn event_loop(&self) -> EventLoop {
        // SAFETY: handles exist on the event loop's thread only.
        unsafe { EventLoop::here() }
    }

    /// It is the client's own, and no subrequest.
    #[inline]
    pub fn is_main(&self) -> bool {
        std::ptr::eq(self, self.main())
    }

    /// It came over TLS.
    #[inline]
    pub fn is_https(&self) -> bool {
        self.connection().is_tls()
    }

    /// `Content-Length`; `None` without one.
    pub fn content_length(&self) -> Option<u64> {
        u64::try_from(self.content_length_n()).ok()
    }

    /// The log of its connection.
    #[inline]
    pub fn log(&self) -> &Log {
        self.connection().log()
    }

    /// Writes an error about it; nginx adds what it knows of the client. The line is written as it is.
    pub fn log_error(&self, line: Arguments<'_>) {
        self.log().write(Level::Error, line);
    }

    /// Its headers.
    #[inline]
    pub fn headers(&self) -> Headers<'_> {
        // SAFETY: nginx makes the list with the request, and it lives as long.
        unsafe { Headers::of(&raw const (*self.as_ptr()).headers_in.headers) }
    }

    /// The first `Host` header.
    #[inline]
    pub fn host_header(&self) -> Option<&Header> {
        // SAFETY: null, or one of its headers.
        unsafe { Header::from_nullable((*self.as_ptr()).headers_in.host) }
    }

    /// The first `Upgrade` header.
    #[inline]
    pub fn upgrade_header(&self) -> Option<&Header> {
        // SAFETY: null, or one of its headers.
        unsafe { Header::from_nullable((*self.as_ptr()).headers_in.upgrade) }
    }

    /// It is HTTP/2.
    #[inline]
    pub fn is_http2(&self) -> bool {
        // SAFETY: copies a pointer out of a live struct.
        unsafe { !(*self.as_ptr()).stream.is_null() }
    }

    /// The host of an absolute target or `:authority`, where it begins and ends in the request's buffers; `None` for a
    /// target that is a path.
    pub fn target_host(&self) -> Option<&[u8]> {
        // SAFETY: copies pointers out of a live struct.
        let (start, end) = unsafe { ((*self.as_ptr()).host_start, (*self.as_ptr()).host_end) };
        let length = end.addr().checked_sub(start.addr())?;
        // SAFETY: nginx found both in one of the request's buffers, which live as long as it.
        (!start.is_null()).then(|| unsafe { std::slice::from_raw_parts(start, length) })
    }

    /// Puts a path, decoded, and a query in place of the client's; nginx sends on what it makes of them. `None` when
    /// memory is out.
    pub fn set_path(&self, path: &[u8], args: &[u8]) -> Option<()> {
        let copy = self.pool().concat(&[path, args])?;
        let (path, args) = copy.split_at_checked(path.len())?;
        // SAFETY: a live request; both lie in its pool. Strings that were lent before stay where they are.
        unsafe {
            (*self.as_ptr()).uri = ngx_str_t::of(path);
            (*self.as_ptr()).args = ngx_str_t::of(args);
            ngx_http_set_exten(self.as_ptr());
        }
        self.set_valid_target(false);
        self.set_quoted_path(true);
        self.set_path_changed(false);
        Some(())
    }

    /// What nginx keeps of the body, once it has begun to read it.
    fn body(&self) -> Option<&ngx_http_request_body_t> {
        // SAFETY: null, or what nginx made in the request's pool. The reference is dropped before the next call to nginx.
        unsafe { (*self.as_ptr()).request_body.as_ref() }
    }
}

impl Request {
    /// The connections of the request's server take no more requests: HTTP/2 says GOAWAY with the next one. That holds for
    /// this process and configuration, and cannot be taken back.
    pub fn end_connections_of_server(&self) {
        // SAFETY: nginx gives each HTTP connection the context of its server, whose settings live as long as the cycle; the
        // type is the core module's, and nobody has a reference to it.
        unsafe {
            let context: *mut crate::sys::ngx_http_conf_ctx_t =
                (*(*self.as_ptr()).http_connection).conf_ctx;
            let index = crate::sys::ngx_http_core_module.ctx_index;
            let settings: *mut crate::sys::ngx_http_core_loc_conf_t =
                (*(*context).loc_conf.add(index)).cast();
            (*settings).keepalive_requests = 0;
        }
    }
}
