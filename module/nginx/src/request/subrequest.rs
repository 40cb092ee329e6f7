//! Subrequests: what a request asks of another location, with a head of its own.

use super::Request;
use crate::basic::callback::with_and;
use crate::basic::code::Code;
use crate::basic::guard::contain;
use crate::basic::handle::{fields, handle};
use crate::basic::text::hash_key;
use crate::request::header::Header;
use crate::sys;
use crate::sys::{
    HeaderField, ngx_http_post_subrequest_t, ngx_http_request_body_t, ngx_http_subrequest,
    ngx_int_t, ngx_list_init, ngx_str_t, ngx_table_elt_t,
};
use std::ptr::null_mut;

/// Who waits for a subrequest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The request does, in a phase: it runs the phase again when the subrequest has ended.
    Waited,
    /// Nobody does; but the request ends only when it has.
    Background,
}

/// What is told when a subrequest has ended; it lies in the request's pool.
pub trait Ended {
    /// For the error log.
    const NAME: &'static str;
    /// Looks at what came back; answers what nginx makes of it, which ends the main request too if it is an error.
    fn ended(&self, subrequest: &Request, code: Code) -> Code;
}

impl Request {
    /// Begins a subrequest to the location of this name. It runs when the callback has returned; until then its head can
    /// be changed. Its list of headers is its own, and empty. `ended`, which is kept in the pool, is told when it has ended.
    /// `None` when memory is out, there are too many, the name is empty, or nginx is about to free the request.
    pub fn subrequest<E: Ended + 'static>(
        &self,
        location: &[u8],
        with_args: bool,
        kind: Kind,
        ended: E,
    ) -> Option<(&Request, &E)> {
        location.first().filter(|_| !self.is_over())?;
        let ended = self.pool().keep(ended)?;
        let after = ngx_http_post_subrequest_t {
            handler: Some(with_and(post_subrequest::<E>)),
            data: std::ptr::from_ref(ended).cast_mut().cast(),
        };
        let after = self.pool().alloc(after)?;
        let mut location = self.pool().text(&[location])?;
        let mut args = ngx_str_t::of(if with_args { self.args() } else { b"" });
        let flags = match kind {
            Kind::Waited => sys::NGX_HTTP_SUBREQUEST_WAITED,
            Kind::Background => sys::NGX_HTTP_SUBREQUEST_BACKGROUND,
        };
        let args = if with_args { &raw mut args } else { null_mut() };
        let mut subrequest = null_mut();
        let (location, flags, made) = (&raw mut location, flags as usize, &raw mut subrequest);
        // SAFETY: a live request; name, arguments and what is told lie in its pool, which nginx keeps until both end, and where
        // it makes the subrequest.
        let subrequest = unsafe {
            let code = ngx_http_subrequest(self.as_ptr(), location, args, made, after, flags);
            (Code(code) == Code::OK).then(|| Request::from_ptr(subrequest))
        };
        let subrequest = subrequest?;
        subrequest.own_headers()?;
        Some((subrequest, ended))
    }

    /// Another method; `None` when memory is out.
    pub fn set_method_name(&self, method: &[u8]) -> Option<()> {
        let method = self.pool().text(&[method])?;
        self.poke(|raw| raw.method_name = method);
        Some(())
    }

    /// The same method as another request of the same pool.
    pub fn copy_method(&self, from: &Request) -> Option<()> {
        self.set_method_bit(from.method_bit());
        self.set_method_name(from.method())
    }

    /// What is asked for, path and query, as it is sent on; `None` when memory is out.
    pub fn set_target(&self, target: &[u8]) -> Option<()> {
        let target = self.pool().text(&[target])?;
        self.poke(|raw| raw.unparsed_uri = target);
        self.set_valid_target(true);
        Some(())
    }

    /// It has no body, whatever its main request has; `None` when memory is out, and of a main request: nginx may be reading
    /// into what would be replaced.
    pub fn set_no_body(&self) -> Option<()> {
        if self.is_main() {
            return None;
        }
        let body = self.pool().alloc(ngx_http_request_body_t::default())?;
        self.poke(|raw| {
            raw.request_body = body;
            raw.headers_in.content_length = null_mut();
            raw.headers_in.content_length_n = -1;
            raw.headers_in.set_chunked(0);
        });
        Some(())
    }

    /// An endpoint that offers another protocol is not listened to: it would take the client's connection.
    pub fn forget_upgrade(&self) {
        self.poke(|raw| raw.headers_in.upgrade = null_mut());
    }

    /// Gives a new subrequest a list of headers of its own, and headers of its own where pointers lead to them: nginx has given
    /// it those of its main request, which come and go there. `None` when memory is out.
    pub(super) fn own_headers(&self) -> Option<()> {
        // SAFETY: a live request, whose copy of the list's head nobody else uses. A pointer of it leads to a header of the main
        // request, whose link nginx has written, or to the copy of one in the pool; what ends a chain is null.
        let code = unsafe {
            for field in HeaderField::all() {
                let mut link = self.field(field);
                while !(*link).is_null() {
                    *link = self.pool().alloc(**link)?;
                    link = &raw mut (**link).next;
                }
            }
            let list = &raw mut (*self.as_ptr()).headers_in.headers;
            ngx_list_init(list, self.pool().as_ptr(), 32, size_of::<ngx_table_elt_t>())
        };
        (Code(code) == Code::OK).then_some(())
    }

    /// Adds a header to a subrequest, outside of what nginx looks up by name; `None` when memory is out, and of a main request.
    pub fn push_own_header(&self, name: &[u8], value: &[u8]) -> Option<()> {
        let (mut short, mut long) = ([0; 64], Vec::new());
        let lower = match short.get_mut(..name.len()) {
            Some(lower) => lower,
            None => {
                long.resize(name.len(), 0);
                long.as_mut_slice()
            }
        };
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        let copy = self.pool().concat(&[name, lower, value, b"\0"])?;
        let (key, rest) = copy.split_at_checked(name.len())?;
        let lowcase_key = rest.as_ptr().cast_mut();
        let value = ngx_str_t { len: value.len(), data: lowcase_key.wrapping_add(name.len()) };
        let (hash, key) = (hash_key(lower), ngx_str_t::of(key));
        self.push_own(ngx_table_elt_t { hash, key, value, lowcase_key, next: null_mut() })
    }
}

/// nginx's callback when a subrequest has ended.
extern "C" fn post_subrequest<E: Ended>(
    subrequest: &Request,
    ended: &E,
    code: ngx_int_t,
) -> ngx_int_t {
    contain(E::NAME, Code::OK, || ended.ended(subrequest, Code(code))).0
}

impl Request {
    /// Adds those headers of the main request to a subrequest that `is_passed` accepts; `None` when memory is out, and of
    /// a main request.
    pub fn pass_headers(&self, is_passed: impl Fn(&Header) -> bool) -> Option<()> {
        let headers = self.main().headers();
        headers.filter(|header| is_passed(header)).try_for_each(|header| self.push_copy(header))
    }

    fn push_copy(&self, header: &Header) -> Option<()> {
        // Texts stay where they are, in the memory of the main request.
        let new = header.peek(|raw| ngx_table_elt_t {
            hash: raw.hash,
            key: raw.key,
            value: raw.value,
            lowcase_key: raw.lowcase_key,
            // nginx writes it for headers that it knows only.
            next: null_mut(),
        });
        self.push_own(new)
    }

    /// A main request's headers are nginx's, which finds some by pointers.
    fn push_own(&self, new: ngx_table_elt_t) -> Option<()> {
        (!self.is_main()).then(|| self.headers())?.push(new).map(|_| ())
    }

    /// Until when nginx's cache keeps the answer that comes in, in seconds since 1970; 0: as long as the configuration
    /// says. `None`: it is not looked for in a cache.
    pub fn cache_valid_until(&self) -> Option<i64> {
        self.cache().map(Cached::valid_until)
    }

    /// When the answer that nginx's cache keeps came from a server, in seconds since 1970; 0: it is not kept. `None`: it is not
    /// looked for in a cache.
    pub fn cache_date(&self) -> Option<i64> {
        self.cache().map(Cached::date)
    }

    /// Another end.
    pub fn set_cache_valid_until(&self, seconds: i64) {
        self.cache().into_iter().for_each(|cache| cache.set_valid_until(seconds));
    }
}

handle! {
    /// What nginx keeps in the request's pool while it looks for an answer in its cache.
    Cached of ngx_http_cache_t
}

fields! { Cached {
    /// Until when it is kept, in seconds since 1970; 0: as long as the configuration says.
    get valid_until: i64 = valid_sec;
    /// Another end.
    set set_valid_until: i64 = valid_sec;
    /// When it came from a server, in seconds since 1970; 0: it is not known.
    get date: i64 = date;
}}
