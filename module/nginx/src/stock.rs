//! What modules of nginx's own say of locations and upstreams, as far as their files keep it to themselves.

use crate::basic::handle::{Handle, fields, handle};
use crate::basic::text::bytes;
use crate::conf::kept::NamedModule;
use crate::conf::{Conf, UpstreamBlock};
use crate::request::Request;
use crate::sys;
use crate::sys::{NGX_OK, ngx_http_complex_value, ngx_int_t, ngx_str_t};
use std::ffi::CStr;

/// Says what a module of nginx's own keeps.
macro_rules! named {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $server:ty, $location:ty;)*) => {$(
        $(#[$doc])*
        pub enum $name {}

        // SAFETY: types of the very file that this module is compiled from, for the nginx at hand.
        unsafe impl NamedModule for $name {
            const NAME: &'static CStr = $text;
            type Server = $server;
            type Location = $location;
        }
    )*};
}

named! {
    /// `proxy_pass`
    Proxy = c"ngx_http_proxy_module", Nothing, ProxyConf;
    /// `grpc_pass`
    Grpc = c"ngx_http_grpc_module", Nothing, GrpcConf;
    /// `fastcgi_pass`
    Fastcgi = c"ngx_http_fastcgi_module", Nothing, FastcgiConf;
    /// `uwsgi_pass`
    Uwsgi = c"ngx_http_uwsgi_module", Nothing, UwsgiConf;
    /// `access_log`
    AccessLog = c"ngx_http_log_module", Nothing, LogConf;
    /// `keepalive`
    UpstreamKeepalive = c"ngx_http_upstream_keepalive_module", KeepaliveConf, Nothing;
}

/// A module keeps nothing there.
pub enum Nothing {}

// SAFETY: it has no value.
unsafe impl Handle for Nothing {
    type Raw = ();

    unsafe fn nullable<'a>(_: *mut ()) -> Option<&'a Self> {
        None
    }
}

handle! {
    /// What a location says about its way to endpoints.
    UpstreamConf of ngx_http_upstream_conf_t
}

fields! { UpstreamConf {
    /// `proxy_next_upstream_tries`
    get tries: usize = next_upstream_tries;
    /// The upstream of a fixed name.
    option block: UpstreamBlock = upstream;
    /// `proxy_ssl_name`
    option tls_name: ComplexValue = ssl_name;
    /// `proxy_ssl_certificate`
    option certificate: ComplexValue = ssl_certificate;
    /// `proxy_ssl_certificate_key`
    option certificate_key: ComplexValue = ssl_certificate_key;
    /// `proxy_ssl_verify`
    get verify: isize = ssl_verify;
    /// `proxy_ssl_server_name`
    get server_name: isize = ssl_server_name;
    /// `proxy_cache_valid`
    has has_cache_times = cache_valid;
    /// `proxy_read_timeout`, in milliseconds.
    get read_timeout: usize = read_timeout;
    /// `proxy_connect_timeout`, in milliseconds.
    get connect_timeout: usize = connect_timeout;
    /// `proxy_send_timeout`, in milliseconds.
    get send_timeout: usize = send_timeout;
    /// `proxy_connect_timeout`, in milliseconds.
    set set_connect_timeout: usize = connect_timeout;
    /// `proxy_send_timeout`, in milliseconds.
    set set_send_timeout: usize = send_timeout;
    /// `proxy_read_timeout`, in milliseconds.
    set set_read_timeout: usize = read_timeout;
    /// `proxy_next_upstream_timeout`, in milliseconds.
    get next_upstream_timeout: usize = next_upstream_timeout;
    /// `proxy_next_upstream_timeout`, in milliseconds.
    set set_next_upstream_timeout: usize = next_upstream_timeout;
    /// `proxy_next_upstream_tries`
    set set_next_upstream_tries: usize = next_upstream_tries;
    /// `proxy_next_upstream`: bits, `NGX_HTTP_UPSTREAM_FT_ERROR` and the like.
    get next_upstream: usize = next_upstream;
    /// `proxy_next_upstream`: bits, `NGX_HTTP_UPSTREAM_FT_ERROR` and the like.
    set set_next_upstream: usize = next_upstream;
    /// `proxy_buffering`
    set set_buffering: isize = buffering;
    /// `proxy_request_buffering`
    set set_request_buffering: isize = request_buffering;
    /// `proxy_intercept_errors`
    set set_intercept_errors: isize = intercept_errors;
    /// `proxy_buffer_size`, in bytes.
    get head_buffer_bytes: usize = buffer_size;
    /// `proxy_buffer_size`, in bytes.
    set set_head_buffer_bytes: usize = buffer_size;
    /// The bytes of each of `proxy_buffers`.
    get buffer_bytes: usize = bufs.size;
    /// The bytes of each of `proxy_buffers`.
    set set_buffer_bytes: usize = bufs.size;
    /// How many `proxy_buffers` there are.
    get buffer_count: isize = bufs.num;
    /// How many `proxy_buffers` there are.
    set set_buffer_count: isize = bufs.num;
    /// `proxy_busy_buffers_size`, in bytes.
    set set_busy_buffers_bytes: usize = busy_buffers_size;
    /// `proxy_temp_file_write_size`, in bytes.
    get temp_file_write_bytes: usize = temp_file_write_size;
    /// `proxy_temp_file_write_size`, in bytes.
    set set_temp_file_write_bytes: usize = temp_file_write_size;
    /// `proxy_max_temp_file_size`, in bytes.
    get max_temp_file_bytes: usize = max_temp_file_size;
    /// `proxy_max_temp_file_size`, in bytes.
    set set_max_temp_file_bytes: usize = max_temp_file_size;
    /// `proxy_ignore_headers`: bits, `NGX_HTTP_UPSTREAM_IGN_XA_REDIRECT` and the like.
    get ignored_headers: usize = ignore_headers;
    /// `proxy_ignore_headers`: bits, `NGX_HTTP_UPSTREAM_IGN_XA_REDIRECT` and the like.
    set set_ignored_headers: usize = ignore_headers;
}}

handle! {
    /// A value with variables.
    ComplexValue of ngx_http_complex_value_t
}

fields! { ComplexValue {
    /// There are variables in it.
    has has_variables = lengths;
}}

impl ComplexValue {
    /// The value for a request; `None` when memory is out.
    pub fn evaluate<'r>(&self, request: &'r Request) -> Option<&'r [u8]> {
        let mut text = ngx_str_t::empty();
        // SAFETY: a value of the configuration, and a live request of it; nginx makes a text in the request's pool, or it is the
        // configuration's.
        unsafe {
            let code = ngx_http_complex_value(request.as_ptr(), self.as_ptr(), &raw mut text);
            (code == NGX_OK as ngx_int_t).then(|| bytes(text))
        }
    }
}

handle! {
    /// What `proxy_pass` and its like say of a location.
    ProxyConf of ngx_http_proxy_loc_conf_t
}

fields! { ProxyConf {
    /// `proxy_pass https://`
    get ssl: usize = ssl;
    /// Of all protocols.
    within upstream: UpstreamConf = upstream;
    /// `proxy_http_version`, as `NGX_HTTP_VERSION_11` and the like.
    set set_http_version: usize = http_version;
}}

handle! {
    /// What `grpc_pass` and its like say of a location.
    GrpcConf of ngx_http_grpc_loc_conf_t
}

fields! { GrpcConf {
    /// `grpc_pass grpcs://`
    get ssl: usize = ssl;
    /// Of all protocols.
    within upstream: UpstreamConf = upstream;
}}

handle! {
    /// What `fastcgi_pass` and its like say of a location.
    FastcgiConf of ngx_http_fastcgi_loc_conf_t
}

fields! { FastcgiConf {
    /// Of all protocols.
    within upstream: UpstreamConf = upstream;
}}

handle! {
    /// What `uwsgi_pass` and its like say of a location.
    UwsgiConf of ngx_http_uwsgi_loc_conf_t
}

fields! { UwsgiConf {
    /// `uwsgi_pass suwsgi://`
    get ssl: usize = ssl;
    /// Of all protocols.
    within upstream: UpstreamConf = upstream;
}}

handle! {
    /// What `access_log` says of a location.
    LogConf of ngx_http_log_loc_conf_t
}

fields! { LogConf {
    /// Nothing is logged.
    set set_off: usize = off;
}}

handle! {
    /// What `keepalive` says of an upstream.
    KeepaliveConf of ngx_http_upstream_keepalive_srv_conf_t
}

fields! { KeepaliveConf {
    /// How many connections are kept; -1: nothing is said.
    get max_cached: usize = max_cached;
    /// How long one is used, in milliseconds; -1: nothing is said.
    get time: usize = time;
    /// How long one waits, in milliseconds; -1: nothing is said.
    get timeout: usize = timeout;
    /// For how many requests one is used; -1: nothing is said.
    get requests: usize = requests;
}}

impl KeepaliveConf {
    /// None is kept.
    pub fn keep_none(&self) {
        self.poke(|raw| raw.max_cached = 0);
    }

    /// Whether nginx keeps the connections of this upstream apart by location: `keepalive N local`, and from nginx 1.29.7 on
    /// what it does without the directive.
    pub fn keeps_by_location(&self) -> bool {
        self.peek(sys::keeps_by_location)
    }
}

impl Conf {
    /// What of the location that is read speaks TLS to endpoints: the directive, and what it says.
    pub fn tls_passes(&self) -> impl Iterator<Item = (&'static str, &UpstreamConf)> {
        let proxy = self.location_of::<Proxy>();
        let grpc = self.location_of::<Grpc>();
        let uwsgi = self.location_of::<Uwsgi>();
        let all = [
            proxy.map(|it| ("proxy_pass https://", it.ssl(), it.upstream())),
            grpc.map(|it| ("grpc_pass grpcs://", it.ssl(), it.upstream())),
            uwsgi.map(|it| ("uwsgi_pass suwsgi://", it.ssl(), it.upstream())),
        ];
        let with_tls = all.into_iter().flatten().filter(|(_, ssl, _)| *ssl != 0);
        with_tls.map(|(directive, _, conf)| (directive, conf))
    }
}
