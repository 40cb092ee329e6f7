//! Clients that show certificates: authorities, what they issue and revoke, and a client that decides about its TLS
//! handshakes and sessions itself.

use crate::certificate::{self, Issued, common_name, day};
use crate::client::TIMEOUT;
use anyhow::{Context as _, Result, bail, ensure};
use openssl::ssl::{
    NameType, Ssl, SslContext, SslMethod, SslOptions, SslSession, SslSessionCacheMode, SslStream,
    SslVerifyMode, SslVersion,
};
use openssl::x509::X509;
use rcgen::{CertificateParams, CertificateRevocationListParams, RevokedCertParams, SerialNumber};
use serde_json::{Value, json};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The id of a bundle.
pub fn bundle_id(pem: &str) -> String {
    let digest = openssl::sha::sha256(pem.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The table of the bundles that `fields` of `policies` hold as PEM, which get the ids in their place.
pub fn take_bundles(policies: &mut Value, fields: &[&str]) -> Value {
    let mut bundles = json!({});
    for policy in policies.as_object_mut().into_iter().flat_map(|all| all.values_mut()) {
        for field in fields {
            if let Some(held) = policy.pointer_mut(field)
                && let Some(pem) = held.as_str()
            {
                let id = bundle_id(pem);
                bundles[&id] = pem.into();
                *held = id.into();
            }
        }
    }
    bundles
}

/// A certificate with its key, and whoever issued it up to the root.
#[derive(Clone)]
pub struct Identity {
    /// The leaf first, without the root.
    chain: Vec<X509>,
    made: Issued,
    is_root: bool,
}

/// How long a certificate is valid, in days from now.
#[derive(Clone, Copy)]
pub struct Days(pub i64, pub i64);

/// From yesterday to 30 days on.
pub const VALID: Days = Days(-1, 30);
/// From 30 days ago to yesterday.
pub const EXPIRED: Days = Days(-30, -1);

impl Identity {
    pub fn root(name: &str) -> Result<Self> {
        Self::make(certificate::authority(name, VALID.0..VALID.1)?, None)
    }

    /// Makes a certificate that this authority signs.
    pub fn issue(&self, name: &str, days: Days) -> Result<Self> {
        Self::make(certificate::params(name, &[], days.0..days.1)?, Some(self))
    }

    /// Makes an authority that this one signs.
    pub fn intermediate(&self, name: &str) -> Result<Self> {
        Self::make(certificate::authority(name, VALID.0..VALID.1)?, Some(self))
    }

    fn make(params: CertificateParams, issuer: Option<&Identity>) -> Result<Self> {
        let made = Issued::new(params, issuer.map(|issuer| &issuer.made))?;
        let mut chain = vec![X509::from_pem(made.pem.as_bytes())?];
        // The root is not sent.
        chain.extend(issuer.iter().filter(|i| !i.is_root).flat_map(|i| i.chain.clone()));
        Ok(Identity { chain, made, is_root: issuer.is_none() })
    }

    fn leaf(&self) -> &X509 {
        &self.chain[0]
    }

    pub fn pem(&self) -> Result<String> {
        Ok(self.made.pem.clone())
    }

    pub fn key_pem(&self) -> Result<String> {
        self.made.key.pem()
    }

    /// A revocation list of this authority in PEM.
    pub fn revoke(&self, identities: &[&Identity]) -> Result<String> {
        let (before, after) = (day(-1)?, day(30)?);
        let revoked = |identity: &&Identity| RevokedCertParams {
            serial_number: SerialNumber::from_slice(&identity.made.serial()),
            revocation_time: before,
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: before,
            next_update: after,
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: identities.iter().map(revoked).collect(),
            key_identifier_method: self.made.params.key_identifier_method.clone(),
        };
        Ok(list.signed_by(&self.made.issuer())?.pem()?)
    }
}

/// How a client shakes hands. What is cloned of one shares its sessions.
#[derive(Clone)]
pub struct Caller<'i> {
    port: u16,
    context: SslContext,
    newest: Arc<Mutex<Option<SslSession>>>,
    /// SNI; none is sent without one.
    name: Option<String>,
    /// Shown if it is asked for.
    identity: Option<&'i Identity>,
    /// The one version that is spoken.
    pub version: SslVersion,
    /// The session that the next handshake resumes.
    session: Option<SslSession>,
    /// Ciphers that the client offers in TLS 1.2.
    pub ciphers: Option<String>,
    /// Whether the client offers HTTP/2.
    pub is_h2: bool,
}

impl<'i> Caller<'i> {
    /// TLS 1.3 with a new session, and nothing to show.
    pub fn new(port: u16, name: &str) -> Result<Self> {
        Self::with_tickets(port, name, true)
    }

    /// `false`: sessions of TLS 1.2 are ids.
    pub fn with_tickets(port: u16, name: &str, tickets: bool) -> Result<Self> {
        let mut context = SslContext::builder(SslMethod::tls_client())?;
        context.set_verify(SslVerifyMode::NONE);
        if !tickets {
            context.set_options(SslOptions::NO_TICKET);
        }
        let newest = Arc::new(Mutex::new(None));
        let slot = newest.clone();
        context.set_session_cache_mode(SslSessionCacheMode::CLIENT);
        context.set_new_session_callback(move |_, session| {
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
        });
        Ok(Caller {
            port,
            context: context.build(),
            newest,
            name: Some(name.into()),
            identity: None,
            version: SslVersion::TLS1_3,
            session: None,
            ciphers: None,
            is_h2: false,
        })
    }

    /// Sends another server name, or none.
    pub fn name(&self, name: Option<&str>) -> Self {
        Caller { name: name.map(Into::into), ..self.clone() }
    }

    /// Calls another nginx.
    pub fn to(&self, port: u16) -> Self {
        Caller { port, ..self.clone() }
    }

    pub fn showing(&self, identity: &'i Identity) -> Self {
        Caller { identity: Some(identity), ..self.clone() }
    }

    pub fn anonymous(&self) -> Self {
        Caller { identity: None, ..self.clone() }
    }

    /// Goes on with the newest session. TLS 1.3 gives it after the handshake, so ask for something first.
    pub fn resuming(&self) -> Result<Self> {
        let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(Caller { session: Some(newest.context("no session was given")?), ..self.clone() })
    }

    pub fn call(&self) -> Result<Call> {
        let mut ssl = Ssl::new(&self.context)?;
        ssl.set_min_proto_version(Some(self.version))?;
        ssl.set_max_proto_version(Some(self.version))?;
        if let Some(ciphers) = &self.ciphers {
            ssl.set_cipher_list(ciphers)?;
        }
        if let Some(identity) = self.identity {
            ssl.set_certificate(identity.leaf())?;
            ssl.set_private_key(&identity.made.key.private)?;
            for issuer in &identity.chain[1..] {
                ssl.add_chain_cert(issuer.clone())?;
            }
        }
        if self.is_h2 {
            ssl.set_alpn_protos(b"\x02h2")?;
        }
        if let Some(name) = &self.name {
            ssl.set_hostname(name)?;
        }
        if let Some(session) = &self.session {
            // SAFETY: the session came from `newest`, which only this context's callback fills.
            unsafe { ssl.set_session(session)? };
        }
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        let mut stream = SslStream::new(ssl, stream)?;
        stream.connect().context("TLS handshake")?;
        Ok(Call { stream })
    }

    /// A request on a connection of its own: its status.
    pub fn status(&self, host: &str) -> Result<u16> {
        Ok(self.call()?.get(host, "/")?.status)
    }
}

pub struct Call {
    stream: SslStream<TcpStream>,
}

impl Drop for Call {
    fn drop(&mut self) {
        // Or OpenSSL would take the session for a broken one, and go on with it no more.
        let _ = self.stream.shutdown();
    }
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Call {
    /// The connection goes on with the caller's session.
    pub fn is_resumed(&self) -> bool {
        self.stream.ssl().session_reused()
    }

    pub fn cipher(&self) -> String {
        self.stream.ssl().current_cipher().map_or("", |cipher| cipher.name()).into()
    }

    pub fn get(&mut self, host: &str, target: &str) -> Result<Answer> {
        self.send(&format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"))
    }

    /// Sends these bytes and reads an answer.
    pub fn send(&mut self, bytes: &str) -> Result<Answer> {
        self.stream.write_all(bytes.as_bytes())?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.byte()?);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let status = head.get(9..12).context("a status line")?.parse()?;
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("content-length").then(|| value.parse::<usize>())
        });
        let mut body = vec![0; length.context("Content-Length")??];
        self.stream.read_exact(&mut body)?;
        Ok(Answer { status, head, body: String::from_utf8_lossy(&body).into_owned() })
    }

    fn byte(&mut self) -> Result<u8> {
        let mut byte = [0];
        self.stream.read_exact(&mut byte).context("the connection ended")?;
        Ok(byte[0])
    }

    /// Whether the other side ends the connection, without an answer to anything.
    pub fn is_closed(&mut self) -> Result<bool> {
        match self.stream.read(&mut [0]) {
            Ok(0) => Ok(true),
            Ok(_) => bail!("bytes that nobody asked for"),
            Err(error) => Ok(error.kind() != ErrorKind::WouldBlock),
        }
    }

    /// HTTP/2: the statuses of `GET /` for these hosts, one after the other on this connection.
    pub fn h2_statuses(&mut self, hosts: &[&str]) -> Result<Vec<u16>> {
        self.stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")?;
        self.stream.write_all(&frame(4, 0, 0, &[]))?;
        let mut statuses = Vec::new();
        for (place, host) in hosts.iter().enumerate() {
            let stream = 2 * place as u32 + 1;
            // HPACK (RFC 7541): GET, https, /, and the authority as a literal.
            let mut head = vec![0x82, 0x87, 0x84, 0x01, host.len() as u8];
            head.extend(host.as_bytes());
            // The end of the headers and of the stream.
            self.stream.write_all(&frame(1, 5, stream, &head))?;
            statuses.push(self.h2_status(stream)?);
        }
        Ok(statuses)
    }

    fn h2_status(&mut self, wanted: u32) -> Result<u16> {
        loop {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head).context("an HTTP/2 frame")?;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let mut payload = vec![0; length];
            self.stream.read_exact(&mut payload)?;
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            match head[3] {
                1 if stream == wanted => return h2_status(&payload),
                3 if stream == wanted => bail!("the stream was reset"),
                7 => bail!("the connection goes away"),
                _ => {}
            }
        }
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let head = [length[1], length[2], length[3], kind, flags];
    [&head[..], &stream.to_be_bytes(), payload].concat()
}

/// The status that a header block begins with, as nginx writes it: from the static table, or in digits.
fn h2_status(block: &[u8]) -> Result<u16> {
    // A change of the table's size may stand first.
    let block = match block {
        [first, rest @ ..] if first & 0xe0 == 0x20 => rest,
        other => other,
    };
    match block {
        [indexed @ 0x88..=0x8e, ..] => {
            Ok([200, 204, 206, 304, 400, 404, 500][usize::from(indexed - 0x88)])
        }
        [0x48, 0x03, digits @ ..] => {
            let digits = digits.get(..3).context("three digits")?;
            Ok(std::str::from_utf8(digits)?.parse()?)
        }
        other => bail!("a header block that begins with {:x?}", other.get(..8)),
    }
}

/// An endpoint over TLS that asks for a certificate and takes any. Its answers say what it was shown.
pub struct TlsEndpoint {
    pub address: SocketAddr,
    is_stopped: Arc<AtomicBool>,
}

/// What an endpoint over TLS saw.
#[derive(Debug, PartialEq, Eq)]
pub struct Seen {
    /// The client's subject; empty without a certificate.
    pub subject: String,
    /// The server name that the client sent; empty without one.
    pub name: String,
    /// The version of TLS, such as `TLSv1.2`.
    pub version: String,
    pub cipher: String,
    /// Requests on the connection so far.
    pub requests: u32,
}

impl Seen {
    /// Of the body of an answer.
    pub fn parse(body: &str) -> Result<Self> {
        let parts: Vec<_> = body.trim().split('|').collect();
        let &[subject, name, version, cipher, requests] = parts.as_slice() else {
            bail!("not what it answers: {body}")
        };
        let requests = requests.parse()?;
        let [subject, name, version, cipher] = [subject, name, version, cipher].map(str::to_owned);
        Ok(Seen { subject, name, version, cipher, requests })
    }
}

impl TlsEndpoint {
    pub fn start(identity: &Identity) -> Result<Self> {
        let mut context = SslContext::builder(SslMethod::tls_server())?;
        context.set_certificate(identity.leaf())?;
        context.set_private_key(&identity.made.key.private)?;
        for issuer in &identity.chain[1..] {
            context.add_extra_chain_cert(issuer.clone())?;
        }
        context.set_session_id_context(b"tests")?;
        context.set_verify_callback(SslVerifyMode::PEER, |_, _| true);
        let context = context.build();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let (address, is_stopped) = (listener.local_addr()?, Arc::new(AtomicBool::new(false)));
        let stopped = is_stopped.clone();
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let context = context.clone();
                // A client that goes away ends it, which the client's side tells.
                std::thread::spawn(move || answer_all(&context, stream));
            }
        });
        Ok(TlsEndpoint { address, is_stopped })
    }

    /// As the native dialect writes it.
    pub fn native(&self) -> serde_json::Value {
        serde_json::json!({"address": self.address.ip(), "port": self.address.port()})
    }
}

impl Drop for TlsEndpoint {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

fn answer_all(context: &SslContext, stream: TcpStream) -> Result<()> {
    let mut stream = SslStream::new(Ssl::new(context)?, stream)?;
    stream.accept()?;
    let ssl = stream.ssl();
    let subject = ssl.peer_certificate().map(|shown| common_name(&shown)).unwrap_or_default();
    let name = ssl.servername(NameType::HOST_NAME).unwrap_or_default().to_owned();
    let version = ssl.version_str().to_owned();
    let cipher = ssl.current_cipher().map_or("", |cipher| cipher.name()).to_owned();
    for requests in 1.. {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        let body = format!("{subject}|{name}|{version}|{cipher}|{requests}");
        let length = body.len();
        stream.write_all(
            format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}").as_bytes(),
        )?;
    }
    Ok(())
}

/// Fails with what was done if it is not this status.
pub fn expect(what: &str, status: u16, expected: u16) -> Result<()> {
    ensure!(status == expected, "{what}: {status} and not {expected}");
    Ok(())
}
