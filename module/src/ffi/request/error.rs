//! A request that another backend answers in the place of a status.

use super::Request;
use crate::ffi::location;
use crate::ffi::memory;
use crate::ffi::request::Found;
use nginx::sys::ngx_str_t;
use oxigress_store::KeyHash;
use std::ptr::null_mut;

impl Request<'_> {
    /// The status for which nginx has sent the request to an error page, once: from then on the status is what the
    /// page says.
    pub fn take_error_status(&self) -> Option<u16> {
        // SAFETY: alive.
        unsafe {
            let status = std::mem::take(&mut (*self.raw).err_status);
            let flags = &mut *self.raw;
            if (*self.raw).request_body.is_null() && flags.discard_body() == 0 {
                // nginx thinks that the body is of no use, so that a client who waits to be asked for it would wait.
                flags.set_expect_tested(0);
            } else if flags.reading_body() != 0 && !(*self.raw).request_body.is_null() {
                // The endpoint answered before it had all: what it had is gone.
                (*(*self.raw).request_body).bufs = null_mut();
            }
            u16::try_from(status).ok().filter(|status| *status != 0).map(|status| {
                // Every endpoint was busy, which nginx calls a bad gateway.
                let context = self.context().filter(|context| context.is_busy.take());
                if context.is_some() { 503 } else { status }
            })
        }
    }

    /// Notes that ACCESS has let the request in.
    pub fn let_in(&self) {
        if let Some(context) = self.context() {
            context.is_let_in.set(true);
        }
    }

    /// ACCESS has let the request in.
    pub fn is_let_in(&self) -> bool {
        self.context().is_some_and(|context| context.is_let_in.get())
    }

    /// Keeps the status that another backend answers.
    pub fn note_error(&self, status: u16) {
        if let Some(context) = self.context_or_new() {
            context.error.set(status);
        }
    }

    /// The status that another backend answers.
    pub fn error_status(&self) -> Option<u16> {
        self.context().map(|context| context.error.get()).filter(|status| *status != 0)
    }

    /// The request is in the `ingress_error` location.
    pub fn is_error(&self) -> bool {
        // SAFETY: alive.
        unsafe { crate::ffi::directives::is_error(self.raw) }
    }

    /// What the client sent is there to be sent on.
    pub fn has_body(&self) -> bool {
        // SAFETY: null, or what nginx read into the request's pool.
        unsafe { self.raw().request_body.as_ref() }.is_some_and(|body| !body.bufs.is_null())
    }

    /// nginx's settings for the location are those of the policies too.
    pub fn enter_error_location(&self) {
        if let Some(policies) = self.policies() {
            // SAFETY: alive, in the REWRITE phase of that location, and holds the policies.
            unsafe { location::enter_error(self.raw, policies) };
        }
    }

    /// Another backend serves, with the rule's own names; `false` when memory is out.
    pub fn serve_by(&self, backend: &[u8], found: Found) -> bool {
        let Some(context) = self.context_or_new() else { return false };
        let [a, b, c, d, e, f, _] = context.lengths.get();
        let length = [a, b, c, d, e, f].iter().map(|length| usize::from(*length)).sum();
        let texts = self.text(ngx_str_t { len: length, data: context.texts.get().cast_mut() });
        // SAFETY: the request's pool is alive.
        let Some(copy) = (unsafe { memory::concat(self.raw().pool, &[texts, backend]) }) else {
            return false;
        };
        context.texts.set(copy.data);
        // An id has 512 bytes at most.
        context.lengths.set([a, b, c, d, e, f, backend.len() as u16]);
        context.hash.set(found.hash.map_or(0, KeyHash::to_bits));
        context.place.set(found.place);
        context.is_plain.set(found.is_plain);
        context.is_decided.set(true);
        true
    }
}
