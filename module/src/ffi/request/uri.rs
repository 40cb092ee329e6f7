//! The path and query of a request: what a pattern's groups matched, and another path in place of the client's.

use super::Request;
use crate::ffi::log::Seldom;
use crate::ffi::memory;
use nginx::sys::{ngx_http_set_exten, ngx_str_t};
use oxigress_core::text::template::Values;
use std::borrow::Cow;

impl<'r> Request<'r> {
    /// The query, without the question mark.
    pub fn args(&self) -> &'r [u8] {
        self.text(self.raw().args)
    }

    /// `scheme://` and the `Host` header as it was sent; `None` without one.
    pub fn origin(&self) -> Option<Vec<u8>> {
        let scheme: &[u8] = if self.is_https() { b"https://" } else { b"http://" };
        let host = self.host_header().unwrap_or(self.host());
        (!host.is_empty()).then(|| [scheme, host].concat())
    }

    /// Puts a path, decoded, and a query in place of the client's, as `rewrite` does; `false` when memory is out.
    pub fn set_uri(&self, path: &[u8], args: &[u8]) -> bool {
        // SAFETY: the request's pool is alive.
        let Some(copy) = (unsafe { memory::concat(self.raw().pool, &[path, args]) }) else {
            return false;
        };
        // SAFETY: alive, and no reference into the request is held; the copy has both parts.
        unsafe {
            (*self.raw).uri = ngx_str_t { len: path.len(), data: copy.data };
            (*self.raw).args = ngx_str_t { len: args.len(), data: copy.data.add(path.len()) };
            let flags = &mut *self.raw;
            // The endpoint gets what stands in `uri` now, with all escaped that has to be.
            flags.set_valid_unparsed_uri(0);
            flags.set_quoted_uri(1);
            flags.set_uri_changed(0);
            ngx_http_set_exten(self.raw);
        }
        true
    }

    /// Says that a pattern of this host had no answer: every ten seconds at most, since each request may.
    pub fn log_no_answer(&self) {
        static SELDOM: Seldom = Seldom::new();
        if SELDOM.is_due() {
            self.log_error(format_args!(
                "ingress: a pattern among the paths of this host takes too much work for this path: 500"
            ));
        }
    }
}

impl Values for Request<'_> {
    fn variable(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        match name {
            // nginx has it, but does not let it be looked up by its name.
            b"proxy_add_x_forwarded_for" => {
                let mut all: Vec<_> = self.all_headers(b"x-forwarded-for").collect();
                all.push(Request::variable(self, b"remote_addr").unwrap_or_default());
                Some(Cow::Owned(all.join(&b", "[..])))
            }
            name => Request::variable(self, name).map(Cow::Borrowed),
        }
    }

    fn capture(&self, number: u8) -> &[u8] {
        self.captured(number)
    }
}
