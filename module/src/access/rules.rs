//! Who may come in: [`Access`] as a worker uses it.

use crate::request::Request;
use crate::route::{Live, RequestFacts};
use crate::system::log;
use crate::tls::client_certificate;
use crate::tls::client_certificate::Told;
use nginx::ssl::sha256;
use oxigress_core::decision::asking::{self, Asking};
use oxigress_core::decision::defined;
use oxigress_core::decision::{Generation, Variable};
use oxigress_core::model::policy::defined::OF_DEFINITIONS;
use oxigress_core::model::policy::script::{OF_LOCATION, Set};
use oxigress_core::model::policy::{Access, BasicAuth, ExternalAuth, Policies, Template};
use oxigress_core::policy::auth::{self, parts};
use oxigress_core::policy::networks::Networks;
use oxigress_core::policy::passwords::{self, Hash, Passwords, Verdicts};
use oxigress_core::text::template::{self, Values};
use siphasher::sip128::{Hasher128, SipHasher24};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::hash_map::RandomState;
use std::hash::Hasher;

/// What is worked out of an [`Access`] once.
pub struct Rules {
    allow: Option<Networks>,
    deny: Networks,
    /// Name and password.
    pub basic: Option<Basic>,
    /// Another server.
    pub external: Option<External>,
    /// One of them is enough.
    pub any: bool,
}

/// A password file.
pub struct Basic {
    passwords: Passwords<RandomState>,
    /// Tells this file from all others.
    digest: [u8; 32],
    /// `WWW-Authenticate`
    pub challenge: Vec<u8>,
}

/// An auth server.
pub struct External {
    /// As it was written.
    pub source: ExternalAuth,
    /// Tells these settings from all others.
    digest: [u8; 32],
    needs_return_parameter: bool,
}

/// The parameter of a sign-in URL, unless the policy names another.
const RETURN_PARAMETER: &str = "rd";

/// The headers of an auth subrequest but for those that its policies name.
const MAX_OWN_HEADERS: usize = 13;

/// What the auth server gets to know of a client's certificate.
const CLIENT_CERTIFICATE: [(&[u8], Told); 4] = [
    (b"ssl-client-verify", Told::Verdict),
    (b"ssl-client-subject-dn", Told::Subject),
    (b"ssl-client-issuer-dn", Told::Issuer),
    (b"ssl-client-cert", Told::Certificate),
];

impl Rules {
    /// Of the policies of this id; `None`: they restrict no access.
    pub fn of(id: &[u8], policies: &Policies) -> Option<Self> {
        let rules = Self::new(policies.access.as_ref()?);
        let refused = rules.basic.as_ref().map_or(0, |basic| basic.passwords.refused());
        if refused > 0 {
            let shown = id.escape_ascii();
            log::warn(format_args!(
                "ingress: {} of the password file of policies \"{shown}\" left out: \
                 the hash is unknown or costs too much",
                oxigress_core::text::count(refused, "entry")
            ));
        }
        Some(rules)
    }

    /// Works everything out.
    fn new(source: &Access) -> Self {
        Rules {
            allow: source.allow.as_deref().map(Networks::new),
            deny: Networks::new(&source.deny),
            basic: source.basic.as_ref().map(Basic::new),
            external: source.external.as_ref().map(External::new),
            any: source.any,
        }
    }

    /// What the networks say of a client; `None`: nothing. A client without an address is in none of them.
    pub fn admits(&self, client: Option<std::net::IpAddr>) -> Option<bool> {
        let is_in = |list: &Networks| client.is_some_and(|address| list.contains(address));
        if is_in(&self.deny) {
            return Some(false);
        }
        self.allow.as_ref().map(is_in)
    }
}

impl Basic {
    fn new(source: &BasicAuth) -> Self {
        let file = source.users.as_bytes();
        Basic {
            passwords: Passwords::parse(file, RandomState::new()),
            digest: sha256(file),
            challenge: passwords::challenge(&source.realm),
        }
    }

    /// The digest of the file.
    pub fn file(&self) -> &[u8; 32] {
        &self.digest
    }

    /// What a password has to be tried on, and whether the user is known; `None`: nobody is.
    pub fn hash(&self, user: &[u8]) -> Option<(&Hash, bool)> {
        match self.passwords.of(user) {
            Some(hash) => Some((hash, true)),
            None => self.passwords.stand_in().map(|hash| (hash, false)),
        }
    }
}

impl External {
    fn new(source: &ExternalAuth) -> Self {
        let parameter = source.signin_parameter.as_deref().unwrap_or(RETURN_PARAMETER);
        let asks = |url: &Template| auth::needs_return_parameter(url.as_str(), parameter);
        // Cannot fail: it came from JSON. If it did, answers would be told apart by everything else.
        let digest = sha256(&serde_json::to_vec(source).unwrap_or_default());
        External {
            needs_return_parameter: source.signin.as_ref().is_some_and(asks),
            source: source.clone(),
            digest,
        }
    }

    /// Where a client signs in; `None`: nowhere.
    pub fn signin(&self, request: &Request<'_>) -> Option<Vec<u8>> {
        let url = template::bytes(self.source.signin.as_ref()?.parts(), request);
        let parameter = self.source.signin_parameter.as_deref().unwrap_or(RETURN_PARAMETER);
        let back = [scheme(request), authority(request), request.target()];
        Some(auth::signin(&url, self.needs_return_parameter.then_some((parameter, back))))
    }

    /// The target of the auth subrequest.
    pub fn target(&self, request: &Request<'_>) -> Vec<u8> {
        auth::target(&template::bytes(self.source.target.parts(), request))
    }

    /// Adds the headers of the auth subrequest beside the client's, in place of the client's of the same name.
    pub fn headers<'a>(
        &'a self,
        request: &'a Request<'_>,
        variables: &[Variable],
        all: &mut Vec<(&'a [u8], Cow<'a, [u8]>)>,
    ) {
        let url = [scheme(request), b"://", authority(request), request.target()].concat();
        let address = request.client_text();
        let redirect = match &self.source.request_redirect {
            Some(text) => template::bytes(text.parts(), request).into(),
            None => Cow::from(request.target()),
        };
        let request_id = request.header(b"x-request-id").filter(|id| !id.is_empty());
        let request_id = request_id.or_else(|| request.id()).unwrap_or_default();
        all.reserve(MAX_OWN_HEADERS + self.source.headers.len());
        let known: [(&[u8], Cow<'_, [u8]>); 7] = [
            (b"X-Original-URL", url.into()),
            (b"X-Original-Method", request.method().into()),
            (b"X-Sent-From", b"nginx-ingress-controller"[..].into()),
            (b"X-Real-IP", address.into()),
            (b"X-Forwarded-For", address.into()),
            (b"X-Auth-Request-Redirect", redirect),
            (b"X-Request-ID", request_id.into()),
        ];
        all.extend(known);
        // In place of the client's own; nothing where its host asks for no certificate.
        for (name, told) in CLIENT_CERTIFICATE {
            let value = client_certificate::told(request, told).unwrap_or_default();
            all.push((name, value));
        }
        if self.source.method.is_some() {
            all.push((b"X-Original-URI", request.target().into()));
            all.push((b"X-Scheme", scheme(request).into()));
        }
        let values = AskingValues { request, variables };
        for header in &self.source.headers {
            all.push((
                header.name.as_str().as_bytes(),
                template::bytes(header.value.parts(), &values).into(),
            ));
        }
    }

    /// Takes the steps that come before the server is asked.
    pub fn before_asking(&self, request: &Request<'_>) -> Asking {
        let Some(script) = &self.source.script else { return Asking::Server(Vec::new()) };
        let texts = request.route_names().map(|names| names.texts).unwrap_or_default();
        let [_, namespace, ..] = texts;
        let guard = request.worker().reader().read();
        let live = Live::new(request.worker(), &guard);
        let known = request.script_variables().iter();
        let known = known
            .filter(|(name, _)| name.starts_with(OF_LOCATION) || name.starts_with(OF_DEFINITIONS))
            .cloned()
            .collect();
        asking::before_asking(
            script,
            &RequestFacts::of(request),
            live.patterns().of(script.payer(namespace)),
            &defined::OfGeneration { generation: &live, namespace },
            known,
        )
    }

    /// Texts have variables of the answer.
    pub fn has_answer_variables(&self) -> bool {
        !self.source.answer_variables.is_empty()
    }

    /// The variables of the request's steps with those of the answer, which has this status; `None`: there is none.
    #[cold]
    pub fn with_answer(&self, request: &Request<'_>, status: Option<u16>) -> Vec<Variable> {
        let mut known = request.script_variables().to_vec();
        for Set { name, value } in &self.source.answer_variables {
            let values = AnswerValues { request, status, variables: &known };
            let value = template::bytes(value.parts(), &values);
            known.retain(|(other, _)| **other != **name);
            known.push((name.as_str().into(), value));
        }
        known
    }

    /// What tells the answer from all others that are kept; `None`: none is. Two Ingresses have no answer in
    /// common, whatever they write.
    pub fn tells_apart(&self, request: &Request<'_>, target: &[u8]) -> Option<Vec<u8>> {
        let cache = self.source.cache.as_ref()?;
        let key = template::bytes(cache.key.parts(), request);
        let texts = request.route_names().map(|names| names.texts).unwrap_or_default();
        let [_, namespace, ingress, _, _, path] = texts;
        let mut all = self.digest.to_vec();
        for part in [namespace, ingress, path, request.host(), target, &key] {
            all.extend_from_slice(&(part.len() as u64).to_le_bytes());
            all.extend_from_slice(part);
        }
        Some(all)
    }

    /// How long an answer of this status is kept, unless it says so itself.
    pub fn kept_seconds(&self, status: u16) -> Option<u32> {
        let valid = &self.source.cache.as_ref()?.valid;
        let valid = valid.iter().find(|valid| valid.statuses.contains(&status))?;
        Some(valid.seconds).filter(|seconds| *seconds > 0)
    }
}

/// What the headers of an auth subrequest are made of: the request, and the variables of the steps before it.
struct AskingValues<'a, 'r> {
    request: &'a Request<'r>,
    variables: &'a [Variable],
}

impl Values for AskingValues<'_, '_> {
    fn variable(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        looked_up(self.request, self.variables, name)
    }

    fn capture(&self, number: u8) -> &[u8] {
        self.request.capture(number)
    }
}

/// The value of one of these variables, or of the request's.
fn looked_up<'a>(
    request: &'a Request<'_>,
    variables: &'a [Variable],
    name: &[u8],
) -> Option<Cow<'a, [u8]>> {
    match variables.iter().find(|(known, _)| known.as_bytes() == name) {
        Some((_, value)) => Some(Cow::Borrowed(value)),
        None => Values::variable(request, name),
    }
}

/// What variables of an answer are made of: the answer, and what is known of the request.
struct AnswerValues<'a, 'r> {
    request: &'a Request<'r>,
    status: Option<u16>,
    variables: &'a [Variable],
}

impl Values for AnswerValues<'_, '_> {
    fn variable(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        let part = |status| parts::part(name, status, self.request.answer_headers());
        self.status.and_then(part).or_else(|| looked_up(self.request, self.variables, name))
    }

    fn capture(&self, _: u8) -> &[u8] {
        &[]
    }

    fn spend(&self, bytes: usize) -> bool {
        self.request.spend(bytes)
    }
}

fn scheme<'r>(request: &Request<'r>) -> &'r [u8] {
    crate::request::forwarded::scheme(request)
}

fn authority<'r>(request: &Request<'r>) -> &'r [u8] {
    let host = Some(crate::request::forwarded::host(request)).filter(|host| !host.is_empty());
    oxigress_core::http::forwarded::authority(request.host(), host)
}

/// What a worker found out about passwords lately.
pub struct Known {
    key: [u64; 2],
    verdicts: RefCell<Verdicts>,
}

impl Known {
    /// `key` is random.
    pub fn new(key: [u64; 2]) -> Self {
        Known { key, verdicts: RefCell::default() }
    }

    /// The name of a password of a user of a file: a keyed hash.
    pub fn name(&self, basic: &Basic, user: &[u8], password: &[u8]) -> u128 {
        let mut hasher = SipHasher24::new_with_keys(self.key[0], self.key[1]);
        hasher.write(&basic.digest);
        hasher.write_usize(user.len());
        hasher.write(user);
        hasher.write(password);
        hasher.finish128().as_u128()
    }

    /// Whether it is right; `None`: not known.
    pub fn get(&self, name: u128, now_seconds: u64) -> Option<bool> {
        self.verdicts.try_borrow().ok()?.get(name, now_seconds)
    }

    /// Notes whether it is right.
    pub fn put(&self, name: u128, is_right: bool, now_seconds: u64) {
        if let Ok(mut verdicts) = self.verdicts.try_borrow_mut() {
            verdicts.put(name, is_right, now_seconds);
        }
    }
}
