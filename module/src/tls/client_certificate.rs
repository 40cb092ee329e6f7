//! The TLS policy of a host: what a handshake asks of clients, and what their requests have shown.
//!
//! A handshake is for a server name and a request for a host, which need not be the same: a client may name another
//! host, none at all, or put requests for several hosts on one HTTP/2 connection; and it may go on with a session
//! of another host. So a handshake writes into its session what certificate it asked for ([`Handshake::context`]):
//! OpenSSL resumes no session of another context, and a request whose host asks for something else than its
//! connection did gets 421 (`oxigress_core::decision`). That holds for connections that live through a change of the policy
//! too.

use crate::request::{Request, local_address, local_port};
use crate::tls::bundles;
use crate::tls::handshake::{Handshake, begin_without_policy};
use crate::worker::Worker;
use crate::zone::records::GuardedRecords;
use nginx::Connection;
use nginx::ssl::handshake::{Beginning, ClientHello};
use oxigress_core::cache::Cache;
use oxigress_core::decision::{CompiledHostPolicy, Unusable};
use oxigress_core::model::policy::TlsPolicy;
use oxigress_core::record::{Kind, SettingsView, decode_tls, has_all, listener_policy};
use oxigress_core::router::{Arrival, ServerMatch, tls};
use oxigress_store::{Guard, Record};
use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;

/// What one worker keeps, beside the authorities that policies share.
const MAX_BYTES: usize = 8 * 1024 * 1024;
/// What a policy takes that cannot be used: that is remembered.
const UNUSABLE_BYTES: usize = 256;
/// A policy beside the texts of its record, about.
const POLICY_BYTES: usize = 1024;

/// The policies of hosts that a worker has read; `None` within: one that cannot be used.
pub type Parsed = RefCell<Cache<Option<Rc<HostPolicy>>>>;

/// None so far.
pub fn parsed() -> Parsed {
    RefCell::new(Cache::new(MAX_BYTES))
}

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
        if let Some(client) = &source.client {
            // A handshake looks for them again, so that policies keep none.
            bundles::find(worker, guard, &client.authorities, client.revoked.as_ref())?;
        }
        let handshake = Handshake::new(&source).ok()?;
        Some(HostPolicy { source, payer: [b"host ", host].concat(), handshake })
    }
}

impl CompiledHostPolicy for HostPolicy {
    fn source(&self) -> &TlsPolicy {
        &self.source
    }

    fn asks(&self) -> [u8; 16] {
        self.handshake.asks()
    }

    fn payer(&self) -> &[u8] {
        &self.payer
    }
}

/// The policy of a server name or of a request's host. `or_default`: that of all hosts, if it has none.
pub fn find(
    worker: &Worker,
    guard: &Guard<'_>,
    name: Option<&[u8]>,
    or_default: bool,
) -> Result<Option<Rc<HostPolicy>>, Unusable> {
    if guard.count(Kind::Tls as u8) == 0 {
        return Ok(None);
    }
    let look = |kind: Kind, key: &[u8]| guard.get(kind as u8, key);
    let Some(record) = tls::find_policy(name, or_default, look) else { return Ok(None) };
    compiled(worker, guard, &record, record.value()).map(Some)
}

/// What the listener that has a host asks of its connections, by the record of that host.
pub fn find_of_listener(
    worker: &Worker,
    guard: &Guard<'_>,
    host: &Record<'_>,
) -> Result<Option<Rc<HostPolicy>>, Unusable> {
    let policy = listener_policy(host.value());
    policy.map(|policy| compiled(worker, guard, host, policy)).transpose()
}

/// The policy that a record has in these bytes, as the worker keeps it. No two kinds of records have keys that are alike.
fn compiled(
    worker: &Worker,
    guard: &Guard<'_>,
    record: &Record<'_>,
    value: &[u8],
) -> Result<Rc<HostPolicy>, Unusable> {
    let mut cache = worker.part::<Parsed>().try_borrow_mut().map_err(|_| Unusable)?;
    // A bundle may have gone since, or not be there yet.
    let is_whole = |policy: &TlsPolicy| has_all(&GuardedRecords(guard), policy.bundles());
    let made = cache.get(record.key(), record.generation(), || {
        let source = decode_tls(value).filter(&is_whole)?;
        let bytes = POLICY_BYTES + value.len();
        let policy = HostPolicy::new(worker, guard, record.key(), source).map(Rc::new);
        let bytes = if policy.is_some() { bytes } else { UNUSABLE_BYTES };
        Some((policy, bytes))
    });
    let made = made.and_then(|made| made.as_ref());
    made.filter(|policy| is_whole(&policy.source)).cloned().ok_or(Unusable)
}

/// A handshake begins: asks the client for what the policy of its server name says.
pub fn begin(worker: &Worker, hello: &ClientHello<'_>) -> Beginning {
    let guard = worker.reader().read();
    let name = hello.server_name_extension().and_then(tls::server_name);
    if SettingsView::of(&GuardedRecords(&guard)).rejects_unknown_names()
        && !is_of_ours(&guard, hello.connection(), name)
    {
        return Beginning::EndsAsUnrecognized;
    }
    let goes_on = match policy_at(worker, &guard, hello.connection(), name) {
        // No certificate opens a listener that is closed.
        Ok((Some(policy), true)) if policy.source.denied => false,
        Ok((None, _)) => begin_without_policy(hello),
        Ok((Some(policy), _)) => {
            let client = policy.source.client.as_ref().filter(|_| policy.handshake.is_mutual());
            let authorities = client.and_then(|client| {
                bundles::find(worker, &guard, &client.authorities, client.revoked.as_ref())
            });
            policy.handshake.apply(hello, authorities.as_deref())
        }
        // Its requests are refused; those for other hosts get 421.
        Err(Unusable) => true,
    };
    goes_on.into()
}

/// Whether a host that is served where the connection has arrived has this server name.
#[cold]
fn is_of_ours(guard: &Guard<'_>, connection: Option<&Connection>, name: Option<&[u8]>) -> bool {
    let has_listeners = guard.count(Kind::Listener as u8) != 0;
    let at = connection.filter(|_| has_listeners).map(|connection| {
        let port = local_port(connection).unwrap_or_default();
        Arrival::of(&GuardedRecords(guard), port, || local_address(connection))
    });
    tls::is_of_ours(&GuardedRecords(guard), at.as_ref(), name)
}

/// The policy of a connection's server name, or of the host of a request on it, and whether it is the listener's that has it.
fn policy_at(
    worker: &Worker,
    guard: &Guard<'_>,
    connection: Option<&Connection>,
    name: Option<&[u8]>,
) -> Result<(Option<Rc<HostPolicy>>, bool), Unusable> {
    let has_listeners = guard.count(Kind::Listener as u8) != 0;
    let found = match connection.filter(|_| has_listeners) {
        Some(connection) => at_listener(worker, guard, connection, name.unwrap_or_default())?,
        None => AtListener { policy: None, is_named: false, is_shared: true },
    };
    match found.policy {
        Some(policy) => Ok((Some(policy), true)),
        // What Ingresses say about a host is for the ports on which they are served.
        None if !found.is_shared => Ok((None, false)),
        None => Ok((find(worker, guard, name, !found.is_named)?, false)),
    }
}

/// What is found for a server name where Gateways listen.
struct AtListener {
    /// What the listener that has the name asks of its connections.
    policy: Option<Rc<HostPolicy>>,
    /// A listener has the name, and not as one of all hosts.
    is_named: bool,
    /// Hosts of Ingresses are served there too.
    is_shared: bool,
}

#[cold]
fn at_listener(
    worker: &Worker,
    guard: &Guard<'_>,
    connection: &Connection,
    name: &[u8],
) -> Result<AtListener, Unusable> {
    let port = local_port(connection).unwrap_or_default();
    let at = Arrival::of(&GuardedRecords(guard), port, || local_address(connection));
    let look = |kind: Kind, key: &[u8]| guard.get(kind as u8, key);
    let (policy, is_named) = match tls::find_by_name(&at, name, look) {
        Some((Kind::Listener, host, how)) => {
            (find_of_listener(worker, guard, &host)?, how != ServerMatch::Default)
        }
        _ => (None, false),
    };
    Ok(AtListener { policy, is_named, is_shared: at.is_shared })
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
pub fn told<'r>(request: &Request<'r>, what: Told) -> Option<Cow<'r, [u8]>> {
    if !request.is_https() || request.asked_for_certificate() == [0; 16] {
        return None;
    }
    let value = match what {
        Told::Verdict => request.nginx().certificate_verdict(),
        Told::Subject => request.nginx().certificate_subject(),
        Told::Issuer => request.nginx().certificate_issuer(),
        Told::Certificate if passes_certificate(request) => request.nginx().certificate_escaped(),
        Told::Certificate => None,
    };
    value.map(Cow::Borrowed)
}

fn passes_certificate(request: &Request<'_>) -> bool {
    let guard = request.worker().reader().read();
    let host = Some(request.host()).filter(|host| !host.is_empty());
    let found = policy_at(request.worker(), &guard, Some(request.nginx().connection()), host);
    let policy = found.ok().and_then(|(policy, _)| policy);
    policy.and_then(|policy| Some(policy.source.client.as_ref()?.passes_certificate)) == Some(true)
}
