//! Requests.

mod body;
mod context;
pub(crate) mod filters;
pub(crate) mod header;
mod headers;
mod password;
mod phase;
mod response;
mod subrequest;
mod variable;
mod weak;

pub use body::{AfterBody, BodyHandler, Pieces};
pub use filters::NextFilters;
pub use password::crypt;
pub use phase::{HeaderFilter, Next, Phase, PhaseHandler};
pub use subrequest::{Ended, Kind};
pub use variable::{Lookup, Value, Variable, VariableFlags, VariableIndex};
pub use weak::WeakRequest;

use crate::basic::handle::{fields, handle, on_event_loop};
use crate::basic::log::{Level, Log};
use crate::basic::pool::Pool;
use crate::conf::kept::HttpCore;
use crate::conf::module::HttpModule;
use crate::connection::Connection;
use crate::request::header::Header;
use crate::sys::{ngx_http_set_exten, ngx_str_t};
use body::Body;
use std::fmt::Arguments;
use subrequest::Cached;

handle! {
    /// A request, or a subrequest of one, during a callback.
    Request of ngx_http_request_t
}

on_event_loop!(Request);

fields! { Request {
    /// Its connection, which for HTTP/2 and HTTP/3 is one of its own.
    link connection: Connection = connection;
    /// Its pool, which subrequests share.
    link pool: Pool = pool;
    /// The request that this is a subrequest of; itself, if it is none.
    link main: Request = main;
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
    /// The protocol as the request line names it; empty for HTTP/0.9.
    text protocol = http_protocol;
    /// The protocol as a number, `NGX_HTTP_VERSION_11` and the like. nginx sets that of HTTP/0.9 where an endpoint's answer has no
    /// status line, and sends no head then.
    get http_version: usize = http_version;
    /// Another number for the protocol.
    set set_http_version: usize = http_version;
    /// The bit of the method, `NGX_HTTP_GET` and the like.
    get method_bit: usize = method;
    /// The length of the body; negative, if the client does not say.
    get content_length_n: i64 = headers_in.content_length_n;
    /// Bytes of request line, headers and body.
    get length: i64 = request_length;
    /// Bytes of the response's head that were sent.
    get header_size: usize = header_size;
    /// Its headers.
    list headers: Header = headers_in.headers;
    /// The headers of the response so far, with those that were taken out.
    list response_headers: Header = headers_out.headers;
    /// The response's `Content-Length`, where an endpoint has sent one.
    option length_header: Header = headers_out.content_length;
    /// The first `Host` header.
    option host_header: Header = headers_in.host;
    /// The first `Upgrade` header.
    option upgrade_header: Header = headers_in.upgrade;
    /// It is HTTP/2.
    has is_http2 = stream;
    /// The host of an absolute target or `:authority`, where it begins and ends in the request's buffers; `None` for a
    /// target that is a path.
    between target_host = host_start, host_end;
    /// What nginx keeps of the body, once it has begun to read it.
    option body: Body = request_body;
    /// What nginx keeps while it looks for the answer in its cache.
    option cache: Cached = cache;
    /// Another method.
    set set_method_bit: usize = method;
    /// The body is to come in one buffer.
    set_flag set_request_body_in_single_buf = set_request_body_in_single_buf;
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
    /// The status for which an error page is shown; 0: none is.
    get error_status: usize = err_status;
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
    /// nginx redirects it internally no more: it would answer 500, as for one that leads in a circle.
    set_flag set_last_redirect = set_uri_changes;
    /// The client was told that it may send the body.
    set_flag set_expect_tested = set_expect_tested;
    /// The body is read and dropped.
    flag discards_body = discard_body;
    /// The body is being read.
    flag reads_body = reading_body;
    /// The body is sent on as it comes, so that it is sent once only.
    flag streams_body = request_body_no_buffering;
    /// The body is kept until the request ends, for others who send it too.
    set_flag set_preserve_body = set_preserve_body;
    /// nginx sent it where it is, by an error page or an internal redirect.
    flag is_internal = internal;
    /// The answer comes from nginx's cache.
    flag is_from_cache = cached;
    /// Filters get the response's body in memory.
    set_flag set_main_filter_need_in_memory = set_main_filter_need_in_memory;
    /// Other clients get another encoding: `gzip_vary` says whether the response tells so.
    set_flag set_gzip_vary = set_gzip_vary;
    /// nginx has looked whether the client takes gzip.
    set_flag set_gzip_tested = set_gzip_tested;
    /// It does.
    set_flag set_gzip_ok = set_gzip_ok;
    /// Parts of the response may be asked for.
    set_flag set_allow_ranges = set_allow_ranges;
    /// The type of the response's content, with its parameters.
    text content_type = headers_out.content_type;
    /// The length of the response's body; -1: nobody knows.
    get response_length: i64 = headers_out.content_length_n;
    /// The response's `Content-Encoding`, as far as nginx knows of it.
    option encoding_header: Header = headers_out.content_encoding;
    /// The response's `ETag`, as far as nginx knows of it.
    option etag_header: Header = headers_out.etag;
    /// The header of the response was sent.
    flag is_header_sent = header_sent;
}}

impl Request {
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

    /// nginx is about to free it: whatever is begun now would go on in memory that is another's.
    pub(crate) fn is_over(&self) -> bool {
        // A request that nginx sends elsewhere by `post_action` goes on after it was done.
        self.peek(|raw| raw.done() != 0 && raw.post_action() == 0)
            || self.main().peek(|raw| raw.count() == 0)
    }

    /// Puts a path, decoded, and a query in place of the client's; nginx sends on what it makes of them. `None` when
    /// memory is out, and for an empty path: nginx looks at the last letter.
    pub fn set_path(&self, path: &[u8], args: &[u8]) -> Option<()> {
        path.first()?;
        let copy = self.pool().concat(&[path, args])?;
        let (path, args) = copy.split_at_checked(path.len())?;
        // Both lie in its pool; strings that were lent before stay where they are.
        self.poke(|raw| (raw.uri, raw.args) = (ngx_str_t::of(path), ngx_str_t::of(args)));
        // SAFETY: a live request.
        unsafe { ngx_http_set_exten(self.as_ptr()) };
        self.set_valid_target(false);
        self.set_quoted_path(true);
        self.set_path_changed(false);
        Some(())
    }
}

impl Request {
    /// The connections of the request's server take no more requests: HTTP/2 says GOAWAY with the next one. That holds for
    /// this process and configuration, and cannot be taken back.
    pub fn end_connections_of_server(&self) {
        // nginx gives a subrequest its main request's stream, but not its HTTP connection.
        let (connection, index) = (self.main().peek(|raw| raw.http_connection), HttpCore::index());
        // SAFETY: nginx gives each HTTP connection the context of its server, whose settings live as long as the cycle; the
        // type is the core module's, and nobody has a reference to it.
        unsafe {
            let settings: *mut crate::sys::ngx_http_core_loc_conf_t =
                (*(*(*connection).conf_ctx).loc_conf.add(index)).cast();
            (*settings).keepalive_requests = 0;
        }
    }
}

#[cfg(test)]
mod tests;
