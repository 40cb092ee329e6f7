//! ACCESS: who may come in, which [`access::decide`] decides.
//!
//! Shape:   nginx runs the phase again when an answer has come, and everything is looked at again; what took time
//!          is in the request's [`Progress`].

pub mod auth_subrequest;
pub mod buffers;
pub mod kept;
pub mod limits;
pub mod password;
pub mod phase;
pub mod preaccess;
pub mod rules;

pub use rules::{External, Known, Rules};

use crate::access::phase::{Asked, Progress};
use crate::request::Request;
use crate::system::memory::now_seconds;
use oxigress_core::policy::access::{self, Answer, Password, Verdict};
use oxigress_core::policy::passwords::Hash;
use rules::Basic;

/// What becomes of the request.
pub enum AccessOutcome {
    /// It goes on.
    Granted,
    /// Somebody works on it, and nginx runs the phase again.
    Waits,
    /// It is answered.
    Refused(Refusal),
}

/// An answer that is final: no error page takes its place.
pub enum Refusal {
    /// The answer has this status.
    Status(u16),
    /// 401 with this `WWW-Authenticate`.
    Challenge(Vec<u8>),
    /// The auth server's 401 or 403, with its `WWW-Authenticate`.
    Theirs(u16),
    /// The answer is a 302 to this URL.
    SignIn(Vec<u8>),
}

/// Decides, or finds out.
pub fn decide(request: &Request<'_>) -> AccessOutcome {
    let rules = request.policies().and_then(|policies| policies.part::<Option<Rules>>().as_ref());
    let Some(rules) = rules else { return AccessOutcome::Granted };
    let Some(progress) = request.progress() else {
        return AccessOutcome::Refused(Refusal::Status(500));
    };
    if progress.is_granted() {
        return AccessOutcome::Granted;
    }
    let facts = Facts { request, progress, rules };
    match access::decide(rules.any, &facts) {
        Verdict::Granted => {
            if !know_answer(&facts) {
                return AccessOutcome::Refused(Refusal::Status(500));
            }
            grant(&facts);
            AccessOutcome::Granted
        }
        Verdict::Waits => AccessOutcome::Waits,
        Verdict::CheckPassword => check_password(&facts),
        Verdict::AskServer => {
            match rules.external.as_ref().and_then(|to| request.ask(progress, to)) {
                Some(Asked::Waits) => AccessOutcome::Waits,
                // What they have answered is known now.
                Some(Asked::Answered) => decide(request),
                None => AccessOutcome::Refused(Refusal::Status(500)),
            }
        }
        Verdict::Refused(refusal) => {
            // Out of memory: it is refused all the same.
            know_answer(&facts);
            AccessOutcome::Refused(answer(&facts, refusal))
        }
    }
}

/// A request of which ACCESS knows what is in its [`Progress`].
struct Facts<'a, 'r> {
    request: &'a Request<'r>,
    progress: &'r Progress,
    rules: &'r Rules,
}

impl access::Facts for Facts<'_, '_> {
    fn networks(&self) -> Option<bool> {
        self.rules.admits(self.request.client())
    }

    fn password(&self) -> Option<Password> {
        let basic = self.rules.basic.as_ref()?;
        Some(match self.progress.password() {
            Password::Unchecked => self.known_password(basic),
            found => found,
        })
    }

    fn answer(&self) -> Option<Answer> {
        self.rules.external.as_ref().map(|_| self.progress.answer())
    }

    fn signs_in(&self) -> bool {
        self.rules.external.as_ref().is_some_and(|external| external.source.signin.is_some())
    }
}

/// A password that may be checked.
struct Credentials<'a> {
    /// What it has to be tried on.
    hash: &'a Hash,
    password: &'a [u8],
    /// The user is in the file.
    is_known: bool,
    /// Of what came out lately.
    name: u128,
}

impl<'r> Facts<'_, 'r> {
    /// `None`: nobody is in the file, or C would see another text than we do.
    fn credentials(&self, basic: &'r Basic) -> Option<Credentials<'r>> {
        let (user, password) = self.request.credentials()?;
        let (hash, is_known) = basic.hash(user)?;
        if user.contains(&0) || password.contains(&0) || !hash.takes(password) {
            return None;
        }
        let name = self.request.worker().part::<Known>().name(basic, user, password);
        Some(Credentials { hash, password, is_known, name })
    }

    fn known_password(&self, basic: &'r Basic) -> Password {
        let Some(credentials) = self.credentials(basic) else { return Password::Wrong };
        match self.request.worker().part::<Known>().get(credentials.name, now_seconds()) {
            Some(true) => Password::Right,
            Some(false) => Password::Wrong,
            None => Password::Unchecked,
        }
    }
}

fn check_password(facts: &Facts<'_, '_>) -> AccessOutcome {
    let basic = facts.rules.basic.as_ref();
    let checked = basic.and_then(|basic| Some((facts.credentials(basic)?, basic.file())));
    let is_begun = checked.is_some_and(|(Credentials { hash, password, is_known, name }, file)| {
        facts.request.check_password(hash, password, is_known, name, file)
    });
    if is_begun { AccessOutcome::Waits } else { AccessOutcome::Refused(Refusal::Status(503)) }
}

/// Works out the variables of an auth server's answer; `false` when memory is out.
fn know_answer(facts: &Facts<'_, '_>) -> bool {
    let Facts { request, progress, rules } = facts;
    match (&rules.external, progress.answer()) {
        (Some(external), Answer::Status(status)) if external.has_answer_variables() => {
            // Steps that answer in the server's place have no answer of it.
            let status = request.has_answer().then_some(status);
            let known = external.with_answer(request, status);
            request.keep_variables(known)
        }
        _ => true,
    }
}

/// What the endpoint gets to know, whoever let the request in: nothing that the client says in the auth server's
/// place, and no password.
fn grant(facts: &Facts<'_, '_>) {
    let Facts { request, progress, rules } = facts;
    if rules.basic.is_some() {
        request.hide_password();
    }
    for name in rules.external.iter().flat_map(|external| &external.source.response_headers) {
        let value = request.answer_header(name.as_str().as_bytes()).unwrap_or_default();
        // A reserved name is nginx's to say, whatever client and auth server say.
        request.set_header(name.as_str().as_bytes(), &value);
    }
    progress.grant();
}

fn answer(facts: &Facts<'_, '_>, refusal: access::Refusal) -> Refusal {
    let Facts { request, rules, .. } = facts;
    match refusal {
        access::Refusal::Network => Refusal::Status(403),
        access::Refusal::Password => {
            let challenge = rules.basic.as_ref().map(|basic| basic.challenge.clone());
            Refusal::Challenge(challenge.unwrap_or_default())
        }
        access::Refusal::Server(status) => Refusal::Theirs(status),
        access::Refusal::SignIn => {
            let location = rules.external.as_ref().and_then(|external| external.signin(request));
            location.map_or(Refusal::Theirs(401), Refusal::SignIn)
        }
        access::Refusal::Unclear(status) => {
            request.log_unexpected_answer(status);
            Refusal::Status(500)
        }
    }
}
