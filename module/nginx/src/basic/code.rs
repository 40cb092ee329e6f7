//! What callbacks answer.

use crate::sys;

/// An answer of a callback to nginx, or of nginx to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Code(pub sys::ngx_int_t);

impl Code {
    /// It is done.
    pub const OK: Code = Code(sys::NGX_OK as sys::ngx_int_t);
    /// It failed.
    pub const ERROR: Code = Code(sys::NGX_ERROR as sys::ngx_int_t);
    /// More is to come, and an event will call again.
    pub const AGAIN: Code = Code(sys::NGX_AGAIN as sys::ngx_int_t);
    /// There is nothing left.
    pub const BUSY: Code = Code(sys::NGX_BUSY as sys::ngx_int_t);
    /// Somebody else goes on with it.
    pub const DONE: Code = Code(sys::NGX_DONE as sys::ngx_int_t);
    /// Not this one: nginx goes on.
    pub const DECLINED: Code = Code(sys::NGX_DECLINED as sys::ngx_int_t);
    /// 500
    pub const INTERNAL_ERROR: Code = Code::status(500);

    /// The response has this status; nginx writes a page for it.
    pub const fn status(status: u16) -> Self {
        Code(status as sys::ngx_int_t)
    }

    /// It is a status from 300 on, which ends a request as an error does.
    pub const fn is_special(self) -> bool {
        self.0 >= sys::NGX_HTTP_SPECIAL_RESPONSE as sys::ngx_int_t
    }
}
