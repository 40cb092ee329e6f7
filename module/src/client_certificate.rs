//! The TLS policy of a host: what a handshake asks of clients, and what their requests have shown.
//!
//! A handshake is for a server name and a request for a host, which need not be the same: a client may name another
//! host, none at all, or put requests for several hosts on one HTTP/2 connection; and it may go on with a session
//! of another host. So a handshake writes into its session what certificate it asked for ([`Handshake::context`]):
//! OpenSSL resumes no session of another context, and a request whose host asks for something else than its
//! connection did gets 421. That holds for connections that live through a change of the policy too.
//!
//! Source: statuses from ngx_http_process_request.

use crate::bundles;
use crate::ffi::{ClientHello, Handshake, Request, Shown, Worker};
use crate::forwarded;
use crate::phase::rewrite::Outcome;
use crate::records::Held;
use oxigress_core::model::policy::{ClientCertificates, TlsPolicy, VerifyClient};
use oxigress_core::patterns::Budget;
use oxigress_core::record::{Kind, Records, Route, decode_tls, has_all};
use oxigress_core::redirect;
use oxigress_core::router::{self, tls};
use oxigress_core::text::template;
use oxigress_store::{Guard, Record};
use std::borrow::Cow;
use std::cell::Cell;
use std::rc::Rc;

/// What one worker keeps, beside the authorities that policies share.
pub const MAX_BYTES: usize = 8 * 1024 * 1024;
/// What a policy takes that cannot be used: that is remembered.
const UNUSABLE_BYTES: usize = 256;
/// A policy beside the texts of its record, about.
const POLICY_BYTES: usize = 1024;
/// nginx's own statuses; the client sees 400, the page names the reason.
const CERTIFICATE_ERROR: u16 = 495;
const NO_CERTIFICATE: u16 = 496;
const MISDIRECTED: u16 = 421;
/// Challenges of certificate authorities come over plain HTTP.
const CHALLENGES: &[u8] = b"/.well-known/acme-challenge/";

/// A host's policy as a worker uses it.
pub struct HostPolicy {
    source: TlsPolicy,
    /// Who pays for its patterns: the record, which no namespace has the name of.
    payer: Vec<u8>,
    handshake: Handshake,
}

impl HostPolicy {
    /// The bundles that it names are there. `None`: it cannot be used.
    fn new(worker: &Worker, guard: &Guard<'_>, host: &[u8], source: TlsPolicy) -> Option<Self> {
        let authorities = match &source.client {
            Some(client) => {
                let revoked = client.revoked.as_ref();
                Some(bundles::find(worker, guard, &client.authorities, revoked)?)
            }
            None => None,
        };
        let handshake = Handshake::new(&source, authorities).ok()?;
        Some(HostPolicy { source, payer: [b"host ", host].concat(), handshake })
    }
}

/// A host's policy cannot be used, though it was checked before it was published.
struct Unusable;

/// The policy of a server name or of a request's host.
fn find(
    worker: &Worker,
    guard: &Guard<'_>,
    name: Option<&[u8]>,
) -> Result<Option<Rc<HostPolicy>>, Unusable> {
    if guard.count(Kind::Tls as u8) == 0 {
        return Ok(None);
    }
    let records = Noting { guard, policy: Cell::new(None) };
    if tls::policy(&records, name).is_none() {
        return Ok(None);
    }
    let record = records.policy.get().ok_or(Unusable)?;
    let mut cache = worker.host_policies().try_borrow_mut().map_err(|_| Unusable)?;
    // A bundle may have gone since, or not be there yet.
    let is_whole = |policy: &TlsPolicy| has_all(&Held(guard), policy.bundles());
    let made = cache.get(record.key(), record.generation(), || {
        let source = decode_tls(record.value()).filter(&is_whole)?;
        let bundles = crate::bundles::parsed_bytes(guard, source.bundles());
        let bytes = POLICY_BYTES + record.value().len() + bundles;
        let policy = HostPolicy::new(worker, guard, record.key(), source).map(Rc::new);
        let bytes = if policy.is_some() { bytes } else { UNUSABLE_BYTES };
        Some((policy, bytes))
    });
    let made = made.and_then(|made| made.as_ref());
    made.filter(|policy| is_whole(&policy.source)).cloned().map(Some).ok_or(Unusable)
}

/// Remembers the policy that was found.
struct Noting<'g> {
    guard: &'g Guard<'g>,
    policy: Cell<Option<Record<'g>>>,
}

impl<'g> Records<'g> for Noting<'g> {
    fn value(&self, kind: Kind, key: &[u8]) -> Option<&'g [u8]> {
        let record = self.guard.get(kind as u8, key)?;
        if kind == Kind::Tls {
            self.policy.set(Some(record));
        }
        Some(record.value())
    }
}

/// A handshake begins: asks the client for what the policy of its server name says. `false` ends the handshake.
pub fn begin(worker: &Worker, hello: &ClientHello<'_>) -> bool {
    let guard = worker.reader().read();
    match find(worker, &guard, hello.server_name()) {
        Ok(None) => true,
        Ok(Some(policy)) => hello.apply(&policy.handshake),
        // Its requests are refused; those for other hosts get 421.
        Err(Unusable) => true,
    }
}

/// What the TLS policy of the request's host answers; `None`: it goes on.
#[inline]
pub fn answer(request: &Request<'_>, guard: &Guard<'_>) -> Option<Outcome> {
    match guard.count(Kind::Tls as u8) {
        0 => None,
        _ => answer_by_policy(request, guard),
    }
}

fn answer_by_policy(request: &Request<'_>, guard: &Guard<'_>) -> Option<Outcome> {
    let host = Some(request.host()).filter(|host| !host.is_empty());
    let policy = match find(request.worker(), guard, host) {
        Ok(policy) => policy,
        Err(Unusable) => return Some(Outcome::Status(503)),
    };
    if policy.as_ref().is_some_and(|policy| policy.source.denied) {
        return Some(Outcome::Status(403));
    }
    if request.is_https() {
        let wanted = policy.as_ref().map_or([0; 16], |policy| policy.handshake.asks());
        if request.asked_for_certificate() != wanted {
            // Whoever asks again has to shake hands again.
            request.close_after_answer();
            return Some(Outcome::Status(MISDIRECTED));
        }
    }
    let policy = policy?;
    let client = policy.source.client.as_ref()?;
    if !request.is_https() && may_come_without_tls(request, guard) {
        return None;
    }
    if let Some(status) = fault(client, request.certificate_shown()) {
        request.forget_session();
        return refuse(request, client, status);
    }
    let subject = client.subject.as_ref()?;
    let shown = request.certificate_subject().unwrap_or_default();
    // A pattern that cannot be tried on a subject does not match it.
    let (patterns, mut budget) = (request.worker().patterns(), Budget::OF_VALUES);
    let is_match =
        patterns.of(&policy.payer).is_match(subject.as_str().as_bytes(), shown, &mut budget);
    (is_match != Some(true)).then_some(Outcome::Status(403))
}

/// Plain HTTP shows no certificate. What goes on to be sent to HTTPS may come, and so may what certificate
/// authorities ask for, if a rule of its own takes it.
fn may_come_without_tls(request: &Request<'_>, guard: &Guard<'_>) -> bool {
    let records = Held(guard);
    let patterns = request.worker().patterns();
    let Ok(Some(Route { rule, .. })) =
        router::route(&records, request.host(), request.path(), patterns)
    else {
        return false;
    };
    let [.., path] = rule.texts();
    let has_certificate = || tls::has_certificate(&records, request.host());
    // Exactly as REWRITE decides it: what it would not send elsewhere, it would serve. A trusted proxy in front may
    // say that its client came over HTTPS, and a client that names no host cannot be sent anywhere.
    let is_https = forwarded::scheme(request) != b"http";
    (path.starts_with(CHALLENGES) && request.path().starts_with(CHALLENGES))
        || !forwarded::host(request).is_empty()
            && redirect::is_redirected(rule.https_redirect(), is_https, has_certificate)
}

/// nginx's status for what a client has shown, where it is not enough.
fn fault(client: &ClientCertificates, shown: Shown) -> Option<u16> {
    match (client.verify, shown) {
        (VerifyClient::Off, _) | (_, Shown::Valid) => None,
        (VerifyClient::On, Shown::Nothing) => Some(NO_CERTIFICATE),
        (VerifyClient::Optional | VerifyClient::OptionalNoCa, Shown::Nothing)
        | (VerifyClient::OptionalNoCa, Shown::Unvouched) => None,
        (_, Shown::Unvouched | Shown::Invalid) => Some(CERTIFICATE_ERROR),
    }
}

/// The error page, if there is one and it can be made, else nginx's own.
fn refuse(request: &Request<'_>, client: &ClientCertificates, status: u16) -> Option<Outcome> {
    let own = Some(Outcome::Status(status));
    let Some(page) = &client.error_page else { return own };
    match page.as_str().as_bytes() {
        // It was sent here by the line below.
        [b'/', ..] if request.is_internal() && is_path(page.as_str(), request.path()) => None,
        // A name of nginx.conf's, which has none for users.
        [b'@', ..] => own,
        [b'/', ..] => Some(Outcome::Internal(page.as_str().into())),
        _ => {
            match template::expand(page.parts(), request).filter(|location| !location.is_empty()) {
                Some(location) => Some(Outcome::Redirect { code: 302, location }),
                None => own,
            }
        }
    }
}

fn is_path(page: &str, path: &[u8]) -> bool {
    page.split('?').next().is_some_and(|page| page.as_bytes() == path)
}

/// What an endpoint is told about a client's certificate.
#[derive(Clone, Copy)]
pub enum Told {
    /// `SUCCESS`, `NONE` or `FAILED:reason`.
    Verdict,
    /// Its subject.
    Subject,
    /// Its issuer.
    Issuer,
    /// The certificate itself, URL-encoded PEM.
    Certificate,
}

/// The value of a header for endpoints: `None` where the connection was not asked for a certificate. REWRITE has
/// seen to it that the connection was asked for what the request's host wants.
pub fn told<'r>(request: &'r Request<'r>, what: Told) -> Option<Cow<'r, [u8]>> {
    if !request.is_https() || request.asked_for_certificate() == [0; 16] {
        return None;
    }
    let value = match what {
        Told::Verdict => request.certificate_verdict(),
        Told::Subject => request.certificate_subject(),
        Told::Issuer => request.certificate_issuer(),
        Told::Certificate if passes_certificate(request) => request.certificate_escaped(),
        Told::Certificate => None,
    };
    value.map(Cow::Borrowed)
}

fn passes_certificate(request: &Request<'_>) -> bool {
    let guard = request.worker().reader().read();
    let host = Some(request.host()).filter(|host| !host.is_empty());
    let policy = find(request.worker(), &guard, host).ok().flatten();
    policy.and_then(|policy| Some(policy.source.client.as_ref()?.passes_certificate)) == Some(true)
}
