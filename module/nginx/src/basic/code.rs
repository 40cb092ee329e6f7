//! What callbacks answer.

use crate::sys;

/// An answer of a callback to nginx, or of nginx to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Code(pub(crate) sys::ngx_int_t);

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

    /// The response has this status, of three digits; nginx writes a page for it.
    pub const fn status(status: u16) -> Self {
        Code(Self::three_digits(status) as sys::ngx_int_t)
    }

    /// A status, or the last one that there is: for HTTP/2 and HTTP/3 nginx makes room for three digits, and writes all.
    pub(crate) const fn three_digits(status: u16) -> sys::ngx_uint_t {
        if status > 999 { 999 } else { status as sys::ngx_uint_t }
    }

    /// It is a status from 300 on, which ends a request as an error does.
    pub const fn is_special(self) -> bool {
        self.0 >= sys::NGX_HTTP_SPECIAL_RESPONSE as sys::ngx_int_t
    }
}

#[cfg(test)]
mod tests {
    use super::Code;

    #[test]
    fn a_status_has_three_digits() {
        let of = |status| Code::three_digits(status);
        assert_eq!([of(0), of(200), of(999), of(1000), of(u16::MAX)], [0, 200, 999, 999, 999]);
        assert_eq!(Code::status(60_000), Code(999));
    }
}
