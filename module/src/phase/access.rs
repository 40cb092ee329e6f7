//! ACCESS: the networks, then the password, then the auth server.
//!
//! Shape:   nginx runs the phase again when an answer has come, and everything is looked at again; what took time
//!          is in the request's [`Progress`].
//! Source:  ngx_http_core_access_phase for `any`: one that lets in is enough, and 401 comes before 403.

use crate::access::{Basic, External, Rules};
use crate::ffi::{Answered, Passwords, Progress, Request, now_seconds};
use oxigress_core::policy::auth::{self, Verdict};

/// What becomes of the request.
pub enum Outcome {
    /// It goes on.
    Granted,
    /// Somebody works on it, and nginx runs the phase again.
    Waits,
    /// It is answered.
    Refused(Refusal),
}

/// An answer that is final: no error page takes its place.
pub enum Refusal {
    /// This status.
    Status(u16),
    /// 401 with this `WWW-Authenticate`.
    Challenge(Vec<u8>),
    /// The auth server's 401 or 403, with its `WWW-Authenticate`.
    Theirs(u16),
    /// 302 to this place.
    SignIn(Vec<u8>),
}

impl Refusal {
    fn status(&self) -> u16 {
        match self {
            Refusal::Status(status) | Refusal::Theirs(status) => *status,
            Refusal::Challenge(_) | Refusal::SignIn(_) => 401,
        }
    }
}

/// What one of the three says.
enum Gate {
    Passed,
    Refused(Refusal),
    Waits,
    /// It cannot say: that is final, also where one is enough.
    Broken(u16),
}

/// Decides, or finds out.
pub fn decide(request: &Request<'_>) -> Outcome {
    let rules = request.policies().and_then(|policies| policies.access.as_ref());
    let Some(rules) = rules else { return Outcome::Granted };
    let Some(progress) = request.progress() else {
        return Outcome::Refused(Refusal::Status(500));
    };
    if progress.is_granted() {
        return Outcome::Granted;
    }
    let networks = || rules.admits(request.client()).map(of_networks);
    let basic = || rules.basic.as_ref().map(|basic| password(request, progress, basic));
    let external = || rules.external.as_ref().map(|external| question(request, progress, external));
    let gates: [&dyn Fn() -> Option<Gate>; 3] = [&networks, &basic, &external];
    let mut refusal: Option<Refusal> = None;
    for gate in gates {
        match gate() {
            None => {}
            Some(Gate::Passed) if rules.any => return grant(request, progress, rules),
            Some(Gate::Passed) => {}
            Some(Gate::Refused(other)) if !rules.any => return Outcome::Refused(other),
            Some(Gate::Refused(other)) => {
                let is_better = match &refusal {
                    None => true,
                    Some(first) => other.status() == 401 && first.status() != 401,
                };
                if is_better || matches!(other, Refusal::SignIn(_)) {
                    refusal = Some(other);
                }
            }
            Some(Gate::Waits) => return Outcome::Waits,
            Some(Gate::Broken(status)) => return Outcome::Refused(Refusal::Status(status)),
        }
    }
    match refusal {
        Some(refusal) => Outcome::Refused(refusal),
        None => grant(request, progress, rules),
    }
}

fn of_networks(is_admitted: bool) -> Gate {
    if is_admitted { Gate::Passed } else { Gate::Refused(Refusal::Status(403)) }
}

/// What the endpoint gets to know, whoever let the request in: nothing that the client says in the auth server's
/// place, and no password.
fn grant(request: &Request<'_>, progress: &Progress, rules: &Rules) -> Outcome {
    if rules.basic.is_some() {
        request.hide_password();
    }
    for name in rules.external.iter().flat_map(|external| &external.source.response_headers) {
        let value = progress.answer_header(name.as_str().as_bytes()).unwrap_or_default();
        // A reserved name is nginx's to say, whatever client and auth server say.
        request.set_header(name.as_str().as_bytes(), &value);
    }
    progress.grant();
    Outcome::Granted
}

fn password(request: &Request<'_>, progress: &Progress, basic: &Basic) -> Gate {
    let refused = || Gate::Refused(Refusal::Challenge(basic.challenge.clone()));
    match progress.password() {
        Passwords::Right => return Gate::Passed,
        Passwords::Wrong => return refused(),
        Passwords::Waits => return Gate::Waits,
        Passwords::New => {}
    }
    let Some((user, password)) = request.credentials() else { return refused() };
    // Nobody is in the file, or C would see another text than we do.
    let Some((hash, is_known)) = basic.hash(user) else { return refused() };
    if user.contains(&0) || password.contains(&0) || !hash.takes(password) {
        return refused();
    }
    let known = request.worker().known_passwords();
    let name = known.name(basic, user, password);
    match known.get(name, now_seconds()) {
        Some(true) => Gate::Passed,
        Some(false) => refused(),
        None => match request.check_password(hash, password, is_known, name, basic.file()) {
            true => Gate::Waits,
            false => Gate::Broken(503),
        },
    }
}

fn question(request: &Request<'_>, progress: &Progress, external: &External) -> Gate {
    let status = match progress.answer() {
        Answered::Nothing => {
            return match request.ask(progress, external) {
                true => Gate::Waits,
                false => Gate::Broken(500),
            };
        }
        Answered::Waits => return Gate::Waits,
        Answered::Status(status) => status,
    };
    match auth::verdict(status) {
        Verdict::Allowed => Gate::Passed,
        Verdict::Refused(401) => match external.signin(request) {
            Some(location) => Gate::Refused(Refusal::SignIn(location)),
            None => Gate::Refused(Refusal::Theirs(401)),
        },
        Verdict::Refused(status) => Gate::Refused(Refusal::Theirs(status)),
        Verdict::Broken => {
            request.log_unexpected_answer(status);
            Gate::Broken(500)
        }
    }
}
