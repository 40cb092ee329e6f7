//! The ACCESS phase, and what its decision leaves for the rest of the request.

use super::answer::add_header;
use super::question::{self, Question};
use super::{Request, guard, memory, password};
use crate::phase::access::{self, Outcome, Refusal};
use nginx::sys::{
    NGX_AGAIN, NGX_DECLINED, NGX_HTTP_INTERNAL_SERVER_ERROR, NGX_HTTP_MOVED_TEMPORARILY,
    NGX_HTTP_UNAUTHORIZED, ngx_http_request_t, ngx_int_t,
};
use oxigress_core::policy::auth;
use std::cell::Cell;

const INTERNAL_ERROR: ngx_int_t = NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;

/// How far a request has come, in its pool. Zeroes are "nothing yet".
#[repr(C)]
pub struct Progress {
    is_granted: Cell<bool>,
    password: Cell<Passwords>,
    question: Cell<*const Question>,
}

/// What is known of a request's password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Passwords {
    /// Nobody has looked.
    #[allow(dead_code, reason = "what zeroed memory says")]
    New = 0,
    /// A thread looks.
    Waits,
    /// It is the user's.
    Right,
    /// It is not.
    Wrong,
}

/// What is known of the auth server's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// It was not asked.
    Nothing,
    /// It was.
    Waits,
    /// It answered with this status; 0: there was no answer.
    Status(u16),
}

impl Progress {
    /// The request was let in.
    pub fn is_granted(&self) -> bool {
        self.is_granted.get()
    }

    /// The request is let in.
    pub fn grant(&self) {
        self.is_granted.set(true);
    }

    /// The password.
    pub fn password(&self) -> Passwords {
        self.password.get()
    }

    pub(super) fn set_password(&self, to: Passwords) {
        self.password.set(to);
    }

    pub(super) fn set_question(&self, to: *const Question) {
        self.question.set(to);
    }

    pub(super) fn question(&self) -> Option<&Question> {
        // SAFETY: null, or of the pool that this is in, too.
        unsafe { self.question.get().as_ref() }
    }

    /// The auth server.
    pub fn answer(&self) -> Answered {
        self.question().map_or(Answered::Nothing, Question::answer)
    }

    /// What the auth server says in a header, repeated ones joined; `None`: nothing.
    pub fn answer_header(&self, name: &[u8]) -> Option<Vec<u8>> {
        let mut values =
            self.question()?.headers().filter(|(key, _)| key.eq_ignore_ascii_case(name));
        let mut all = values.next()?.1.to_vec();
        for (_, value) in values {
            all.extend_from_slice(b", ");
            all.extend_from_slice(value);
        }
        Some(all)
    }
}

/// nginx's callback for each request in its ACCESS phase; subrequests have none.
pub unsafe extern "C" fn access_handler(raw: *mut ngx_http_request_t) -> ngx_int_t {
    guard::contain("access", INTERNAL_ERROR, || {
        // SAFETY: nginx runs this phase for a live request, on the event loop.
        let Some(request) = (unsafe { Request::from_callback(raw) }) else {
            return NGX_DECLINED as ngx_int_t;
        };
        // nginx runs the phases once more for the answer of an error backend.
        if request.is_error() {
            return NGX_DECLINED as ngx_int_t;
        }
        match access::decide(&request) {
            Outcome::Granted => NGX_DECLINED as ngx_int_t,
            Outcome::Waits => NGX_AGAIN as ngx_int_t,
            // SAFETY: alive, and nothing of the answer was sent.
            Outcome::Refused(refusal) => unsafe { refuse(raw, &request, &refusal) },
        }
    })
}

/// # Safety
/// `raw` is alive, `request` is its safe side, and its header was not sent.
unsafe fn refuse(
    raw: *mut ngx_http_request_t,
    request: &Request<'_>,
    refusal: &Refusal,
) -> ngx_int_t {
    // As if an error page had been shown already: none takes the answer's place.
    // SAFETY: alive.
    unsafe { (*raw).set_error_page(1) };
    match refusal {
        Refusal::Status(status) => ngx_int_t::from(*status as i16),
        Refusal::Challenge(challenge) => {
            // SAFETY: alive. Out of memory: the status says it too.
            unsafe {
                (*raw).headers_out.www_authenticate =
                    add_header(raw, "WWW-Authenticate", challenge);
            }
            NGX_HTTP_UNAUTHORIZED as ngx_int_t
        }
        Refusal::Theirs(status) => {
            let question = request.progress().and_then(Progress::question);
            for (name, value) in question.into_iter().flat_map(Question::headers) {
                if *status == NGX_HTTP_UNAUTHORIZED as u16
                    && name.eq_ignore_ascii_case(b"www-authenticate")
                {
                    // SAFETY: as above.
                    unsafe { add_header(raw, "WWW-Authenticate", value) };
                }
            }
            ngx_int_t::from(*status as i16)
        }
        Refusal::SignIn(location) => {
            // SAFETY: alive; nginx writes the page for the status.
            unsafe {
                let header = add_header(raw, "Location", location);
                if header.is_null() {
                    return INTERNAL_ERROR;
                }
                (*raw).headers_out.location = header;
            }
            NGX_HTTP_MOVED_TEMPORARILY as ngx_int_t
        }
    }
}

/// Part of the header filter: the cookies of the auth server, and how long an answer of it is kept.
///
/// # Safety
/// `raw` is alive, on the event loop, and its header was not sent.
pub unsafe fn filter_header(raw: *mut ngx_http_request_t) {
    // SAFETY: vouched for by the caller.
    let Some(request) = (unsafe { Request::from_callback(raw) }) else { return };
    if let Some(question) = request.question() {
        // SAFETY: an answer of an auth server, as it comes in.
        unsafe { question.keep(raw) };
        return;
    }
    let Some(question) = request.begun_progress().and_then(Progress::question) else { return };
    // SAFETY: alive.
    let status = unsafe { (*raw).headers_out.status } as u16;
    let Answered::Status(_) = question.answer() else { return };
    if !question.always_sets_cookie() && !auth::carries_cookies(status) {
        return;
    }
    for (name, value) in question.headers() {
        if name.eq_ignore_ascii_case(b"set-cookie") {
            // SAFETY: alive. Out of memory: a cookie less.
            unsafe { add_header(raw, "Set-Cookie", value) };
        }
    }
}

/// What [`access::decide`] asks of a request.
impl<'r> Request<'r> {
    /// How far it has come, kept from now on; `None` when memory is out.
    pub fn progress(&self) -> Option<&'r Progress> {
        if let Some(progress) = self.begun_progress() {
            return Some(progress);
        }
        // SAFETY: the request's pool is alive; zeroes are a value.
        let progress = unsafe { memory::zeroed::<Progress>(self.pool()) };
        // SAFETY: null, or zeroed, in the request's pool.
        let progress = unsafe { progress.as_ref() }?;
        self.set_progress(progress).then_some(progress)
    }

    /// Name and password, as nginx reads them; `None`: there are none.
    pub fn credentials(&self) -> Option<(&'r [u8], &'r [u8])> {
        // SAFETY: alive; the texts lie in its pool.
        unsafe { password::credentials(self.as_raw()) }
    }

    /// Has a password looked at; `false`: there are too many already.
    pub fn check_password(
        &self,
        progress: &'r Progress,
        hash: &oxigress_core::policy::passwords::Hash,
        password: &[u8],
        is_known: bool,
        name: u128,
        file: &[u8; 32],
    ) -> bool {
        let texts = self.decision().map(|decision| decision.texts).unwrap_or_default();
        let [_, tenant, ..] = texts;
        let line = password::Line { tenant, file };
        let check =
            password::Check::new(self.as_raw(), progress, hash, password, is_known, name, line);
        // SAFETY: alive, in its ACCESS phase, and the progress is its own.
        unsafe { password::begin(self.as_raw(), self.worker(), check) }
    }

    /// Asks the auth server; `false`: it cannot be asked.
    pub fn ask(&self, progress: &'r Progress, external: &'r crate::access::External) -> bool {
        // SAFETY: alive, in its ACCESS phase; it holds its policies until it ends.
        unsafe { question::ask(self.as_raw(), self, progress, external) }.is_some()
    }

    /// Says in the error log that the auth server said neither yes nor no.
    pub fn log_unexpected_answer(&self, status: u16) {
        let line = format_args!("auth server: unexpected status {status}, so nobody comes in");
        // SAFETY: a request has a connection with a log.
        unsafe { super::log::write(super::log::ERROR, (*(*self.as_raw()).connection).log, line) };
    }
}
