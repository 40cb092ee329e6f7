//! What endpoints say of themselves, as clients are to see it: nginx's two callbacks for that.

use crate::basic::callback::{two, two_and};
use crate::basic::code::Code;
use crate::basic::guard::contain;
use crate::request::Request;
use crate::request::header::Header;
use crate::sys::ngx_int_t;
use crate::upstream::Upstream;

/// What becomes of a header.
pub enum Rewritten {
    /// It stays as it is.
    Not,
    /// This takes the place of what the callback was shown.
    To(Vec<u8>),
}

/// Rewrites headers of answers.
pub trait Rewriter: 'static {
    /// A `Set-Cookie`.
    fn cookie(request: &Request, value: &[u8]) -> Rewritten;
    /// The URL in `Location`, or in `Refresh`.
    fn redirect(request: &Request, url: &[u8]) -> Rewritten;
}

impl Upstream {
    /// Each `Set-Cookie` of the answer is rewritten, in place of what nginx.conf says.
    pub fn rewrite_cookies<R: Rewriter>(&self) {
        self.poke(|raw| raw.rewrite_cookie = Some(two(rewrite_cookie::<R>)));
    }

    /// `Location` and `Refresh` of the answer are rewritten, in place of what nginx.conf says.
    pub fn rewrite_redirects<R: Rewriter>(&self) {
        self.poke(|raw| raw.rewrite_redirect = Some(two_and(rewrite_redirect::<R>)));
    }

    /// `Location` and `Refresh` of the answer stay as they are.
    pub fn keep_redirects(&self) {
        self.poke(|raw| raw.rewrite_redirect = None);
    }
}

/// nginx's callback for each `Set-Cookie` of an endpoint.
extern "C" fn rewrite_cookie<R: Rewriter>(request: &Request, header: &Header) -> ngx_int_t {
    rewrite(request, header, 0, R::cookie)
}

/// nginx's callback for `Location`, and for the URL in `Refresh`, which begins at `start`.
extern "C" fn rewrite_redirect<R: Rewriter>(
    request: &Request,
    header: &Header,
    start: usize,
) -> ngx_int_t {
    rewrite(request, header, start, R::redirect)
}

fn rewrite(
    request: &Request,
    header: &Header,
    start: usize,
    how: fn(&Request, &[u8]) -> Rewritten,
) -> ngx_int_t {
    contain("rewrite_header", Code::ERROR, || {
        let Some((before, value)) = header.value().split_at_checked(start) else {
            return Code::DECLINED;
        };
        match how(request, value) {
            Rewritten::Not => Code::DECLINED,
            Rewritten::To(value) => {
                let done = request.put_response_value(header, &[before, &value]);
                done.map_or(Code::ERROR, |()| Code::OK)
            }
        }
    })
    .0
}
