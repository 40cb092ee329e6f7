//! The ACCESS phase, and what its decision leaves for the rest of the request.
#![allow(unsafe_code)]

use crate::access;
use crate::access::AccessOutcome;
use crate::access::Refusal;
use crate::access::auth_subrequest;
use crate::access::auth_subrequest::{AuthSubrequest, Sent};
use crate::access::kept::KeptFor;
use crate::access::password;
use crate::request::Request;
use nginx::{Code, Next, PhaseHandler};
use oxigress_core::decision::asking::Asking;
use oxigress_core::policy::access::{Answer, Password};
use oxigress_core::policy::auth::{self, parts};
use std::borrow::Cow;
use std::cell::Cell;
use std::ptr::{NonNull, null};

/// How far a request has come, in its pool.
#[derive(Default)]
pub struct Progress {
    is_granted: Cell<bool>,
    password: Cell<Password>,
    /// The status with which steps, or an answer that was kept, have answered in the auth server's place.
    answered: Cell<Option<u16>>,
    /// The request's pool has the answer that was kept.
    is_kept: Cell<bool>,
    auth: Cell<Option<NonNull<AuthSubrequest>>>,
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
    pub fn password(&self) -> Password {
        self.password.get()
    }

    pub(crate) fn set_password(&self, to: Password) {
        self.password.set(to);
    }

    pub(crate) fn set_auth(&self, to: &AuthSubrequest) {
        self.auth.set(Some(NonNull::from(to)));
    }

    pub(crate) fn auth(&self) -> Option<&AuthSubrequest> {
        // SAFETY: of the pool that this is in, too.
        self.auth.get().map(|auth| unsafe { auth.as_ref() })
    }

    /// The auth server.
    pub fn answer(&self) -> Answer {
        match (self.auth(), self.answered.get()) {
            (Some(auth), _) => auth.answer(),
            (None, Some(status)) => Answer::Status(status),
            (None, None) => Answer::Unasked,
        }
    }
}

/// What comes of asking an auth server.
pub enum Asked {
    /// The server answers later.
    Waits,
    /// Steps, or an answer that was kept, have answered in its place.
    Answered,
}

/// Where the progress of a request is, in its pool; null: it was not in ACCESS.
#[derive(Clone, Copy)]
pub struct ProgressPointer(*const Progress);

impl Default for ProgressPointer {
    fn default() -> Self {
        ProgressPointer(null())
    }
}

/// Says who may come in; subrequests have no such phase.
pub struct Access;

impl PhaseHandler for Access {
    const NAME: &'static str = "access";

    fn run(raw: &nginx::Request) -> Next<'_> {
        let Some(request) = Request::of(raw) else { return Code::DECLINED.into() };
        if request.policies().is_none() {
            return Code::DECLINED.into();
        }
        decide(raw, &request).into()
    }
}

/// Not in line: a request without policies does not pay for its frame.
#[inline(never)]
fn decide(raw: &nginx::Request, request: &Request<'_>) -> Code {
    // nginx runs the phases once more for the answer of an error backend.
    if request.is_error() {
        return Code::DECLINED;
    }
    match access::decide(request) {
        AccessOutcome::Granted => Code::DECLINED,
        AccessOutcome::Waits => Code::AGAIN,
        AccessOutcome::Refused(refusal) => refuse(raw, request, &refusal),
    }
}

fn refuse(raw: &nginx::Request, request: &Request<'_>, refusal: &Refusal) -> Code {
    // As if an error page had been shown already: none takes the answer's place.
    raw.set_error_page(true);
    match refusal {
        Refusal::Status(status) => Code::status(*status),
        Refusal::Challenge(challenge) => {
            // Out of memory: the status says it too.
            raw.set_challenge(challenge);
            Code::status(401)
        }
        Refusal::Theirs(status) => {
            for (name, value) in request.answer_headers() {
                if *status == 401 && name.eq_ignore_ascii_case(b"www-authenticate") {
                    raw.push_response_header(b"WWW-Authenticate", value);
                }
            }
            Code::status(*status)
        }
        Refusal::SignIn(location) => match raw.set_location(location) {
            Some(()) => Code::status(302),
            None => Code::INTERNAL_ERROR,
        },
    }
}

/// Part of the header filter: the cookies of the auth server, and how long an answer of it is kept.
pub fn filter_header(raw: &nginx::Request) {
    let Some(request) = Request::of(raw) else { return };
    if raw.is_main() && request.policies().is_none() {
        return;
    }
    if let Some(auth) = request.auth() {
        // An answer of an auth server, as it comes in.
        auth.keep(raw);
        return;
    }
    let Some(progress) = request.begun_progress() else { return };
    let always_sets_cookie = match (progress.auth(), request.kept_answer()) {
        (Some(auth), _) => auth.always_sets_cookie(),
        (None, Some(kept)) => kept.always_sets_cookie,
        (None, None) => return,
    };
    if !always_sets_cookie && !auth::carries_cookies(raw.status() as u16) {
        return;
    }
    for (name, value) in request.answer_headers() {
        if name.eq_ignore_ascii_case(b"set-cookie") {
            // Out of memory: a cookie less.
            raw.push_response_header(b"Set-Cookie", value);
        }
    }
}

/// What [`access::decide`] asks of a request.
impl<'r> Request<'r> {
    /// How far it has come in the ACCESS phase; `None`: it was not there.
    pub fn begun_progress(&self) -> Option<&'r Progress> {
        // SAFETY: null, or in the request's pool.
        unsafe { self.part_of_route::<ProgressPointer>()?.0.as_ref() }
    }

    /// How far it has come, kept from now on; `None` when memory is out.
    pub fn progress(&self) -> Option<&'r Progress> {
        if let Some(progress) = self.begun_progress() {
            return Some(progress);
        }
        let progress = &*self.nginx().pool().alloc(Progress::default())?;
        self.set_part_of_route(ProgressPointer(progress)).then_some(progress)
    }

    /// The answer that was kept and by which this request was let in or refused.
    fn kept_answer(&self) -> Option<&'r KeptFor> {
        self.begun_progress().filter(|progress| progress.is_kept.get())?;
        self.nginx().pool().kept::<KeptFor>().next()
    }

    /// The auth server has answered this request, or another one whose answer was kept.
    pub fn has_answer(&self) -> bool {
        let has_asked = self.begun_progress().and_then(Progress::auth).is_some();
        has_asked || self.kept_answer().is_some()
    }

    /// The headers of the auth server's answer; none before there is one.
    pub fn answer_headers(&self) -> impl Iterator<Item = (&'r [u8], &'r [u8])> {
        let auth = self.begun_progress().and_then(Progress::auth);
        let kept = self.kept_answer().into_iter().flat_map(|kept| kept.answer.headers());
        auth.into_iter().flat_map(AuthSubrequest::headers).chain(kept)
    }

    /// What the auth server says in a header, repeated ones joined; `None`: nothing.
    pub fn answer_header(&self, name: &[u8]) -> Option<Cow<'r, [u8]>> {
        parts::joined(self.answer_headers().filter(|(key, _)| key.eq_ignore_ascii_case(name)))
    }

    /// Takes the password from what the endpoint gets. nginx's `$remote_user` still has the name.
    pub fn hide_password(&self) {
        self.nginx().hide_authorization();
    }

    /// Name and password, as nginx reads them; `None`: there are none.
    pub fn credentials(&self) -> Option<(&'r [u8], &'r [u8])> {
        self.nginx().credentials()
    }

    /// Has a password looked at; `false`: there are too many already.
    pub fn check_password(
        &self,
        hash: &oxigress_core::policy::passwords::Hash,
        password: &[u8],
        is_known: bool,
        name: u128,
        file: &[u8; 32],
    ) -> bool {
        let texts = self.route_names().map(|names| names.texts).unwrap_or_default();
        let [_, tenant, ..] = texts;
        let line = password::Line { tenant, file };
        let asked = password::PasswordCheck { hash, password, is_known, name, line };
        password::begin(self.nginx(), self.worker(), &asked)
    }

    /// Asks the auth server, unless steps answer in its place; `None`: it cannot be asked.
    pub fn ask(
        &self,
        progress: &'r Progress,
        external: &'r crate::access::External,
    ) -> Option<Asked> {
        let variables = match external.before_asking(self) {
            Asking::Server(variables) => variables,
            Asking::Answer(status) => {
                progress.answered.set(Some(status));
                return Some(Asked::Answered);
            }
        };
        let sent =
            auth_subrequest::send(self, external, variables, |auth| progress.set_auth(auth))?;
        let Sent::Kept(answer) = sent else { return Some(Asked::Waits) };
        progress.answered.set(Some(answer.status()));
        let always_sets_cookie = external.source.always_sets_cookie;
        self.nginx().pool().keep(KeptFor { answer, always_sets_cookie })?;
        progress.is_kept.set(true);
        Some(Asked::Answered)
    }

    /// Says in the error log that the auth server said neither yes nor no.
    pub fn log_unexpected_answer(&self, status: u16) {
        let line = format_args!(
            "auth server answered with unexpected status {status}: request denied with 500"
        );
        self.log_error(line);
    }
}
