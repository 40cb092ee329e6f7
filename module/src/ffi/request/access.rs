//! What the ACCESS phase keeps with a request.

use super::Request;
use crate::ffi::access::Progress;
use crate::ffi::memory;
use crate::ffi::question::Question;
use nginx::sys::{ngx_http_request_t, ngx_pool_t, ngx_table_elt_t};

impl<'r> Request<'r> {
    /// nginx's own.
    pub(in crate::ffi) fn as_raw(&self) -> *mut ngx_http_request_t {
        self.raw
    }

    /// Its pool.
    pub(in crate::ffi) fn pool(&self) -> *mut ngx_pool_t {
        self.raw().pool
    }

    /// Takes the password from what the endpoint gets. nginx's `$remote_user` still has the name.
    pub fn hide_password(&self) {
        // SAFETY: null, or an element of the header list.
        let header = unsafe { self.raw().headers_in.authorization.as_ref() }.copied();
        self.remove_header(b"authorization");
        let Some(header) = header else { return };
        // SAFETY: the request's pool is alive; zeroes are a value.
        let copy = unsafe { memory::zeroed::<ngx_table_elt_t>(self.pool()).as_mut() };
        let Some(copy) = copy else { return };
        *copy = ngx_table_elt_t { next: std::ptr::null_mut(), ..header };
        // SAFETY: alive, and there is no reference to its headers.
        unsafe { (*self.raw).headers_in.authorization = copy };
    }

    /// How far it has come in the ACCESS phase; `None`: it was not there.
    pub fn begun_progress(&self) -> Option<&'r Progress> {
        // SAFETY: null, or in the request's pool.
        unsafe { self.route()?.progress.as_ref() }
    }

    /// Keeps how far it has come; `false` when memory is out.
    pub(in crate::ffi) fn set_progress(&self, progress: &'r Progress) -> bool {
        self.change_route_or_none(|route| route.progress = progress)
    }

    /// The question to an auth server that this subrequest is; `None`: it is none.
    pub fn question(&self) -> Option<&'r Question> {
        // SAFETY: null, or in the request's pool.
        unsafe { self.context()?.question.get().as_ref() }
    }

    /// Makes a question of a subrequest; `false` when memory is out.
    pub(in crate::ffi) fn set_question(&self, question: &'r Question) -> bool {
        self.context_or_new().map(|context| context.question.set(question)).is_some()
    }
}
