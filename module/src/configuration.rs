//! The configuration endpoint's content handler: reads the body, hands the work to the safe code, on a
//! thread of nginx's pool when it is much, and sends the answer.
#![allow(unsafe_code)]

mod access;
mod answer;
mod dispatch;
mod effort;
mod explain;
mod read;
pub mod reserve;
mod statistics;
mod write;

use crate::conf::Declared;
use crate::configuration::answer::Answer;
use crate::configuration::dispatch::{Job, Step};
use crate::request::Request;
use crate::system::log;
use crate::zone::{Patience, ZoneLock};
use nginx::log::Log;
use nginx::process::give_memory_back;
use nginx::thread::{AfterWork, Work};
use nginx::{AfterBody, BodyHandler, Code, Next, PhaseHandler, Pieces};
use oxigress_store::{Store, Transaction};
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use std::borrow::Cow;
use std::cell::RefCell;

/// The longest body that is taken.
pub const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;

/// Who asks for what, as far as the endpoint cares.
pub struct Head<'r> {
    /// The method of the request.
    pub method: &'r [u8],
    /// The path as nginx normalised it.
    pub path: &'r [u8],
    /// Query, without the question mark.
    pub query: &'r [u8],
    /// `If-Match`.
    pub if_match: Option<&'r [u8]>,
    /// `Content-Type`.
    pub content_type: Option<&'r [u8]>,
    /// `Content-Length`.
    pub content_length: Option<u64>,
    /// The body comes in chunks.
    pub is_chunked: bool,
    /// `Host`.
    pub host: Option<&'r [u8]>,
    /// The port it came to; `None` over a Unix socket.
    pub local_port: Option<u16>,
    /// The client is on this machine, over TCP.
    pub is_from_loopback: bool,
    /// A browser sent it: it has `Origin` or a `Sec-Fetch-` header.
    pub is_from_browser: bool,
    /// Over a Unix socket: the uid of the other end. `None`: over TCP.
    pub peer_uid: Option<u32>,
    /// The uid of this process.
    pub own_uid: u32,
    /// The longest body that is taken.
    pub max_body_bytes: u64,
}

impl<'r> Head<'r> {
    fn of(request: &Request<'r>) -> Self {
        let target = request.target();
        let query =
            target.iter().position(|byte| *byte == b'?').and_then(|at| target.get(at + 1..));
        Head {
            method: request.method(),
            path: request.path(),
            query: query.unwrap_or_default(),
            if_match: request.header(b"if-match"),
            content_type: request.header(b"content-type"),
            content_length: request.content_length(),
            is_chunked: request.is_chunked(),
            host: request.host_header(),
            local_port: request.local_port(),
            is_from_loopback: request.is_from_loopback(),
            is_from_browser: request.header(b"origin").is_some()
                || request.has_header_prefix(b"sec-fetch-"),
            peer_uid: request.is_unix().then(|| peer_uid(request)),
            own_uid: geteuid().as_raw(),
            max_body_bytes: MAX_BODY_BYTES as u64,
        }
    }
}

/// The uid at the other end of a Unix socket; one that nobody has if the kernel does not say.
fn peer_uid(request: &Request<'_>) -> u32 {
    let socket = request.nginx().connection().descriptor();
    let peer = socket.and_then(|socket| socket_peercred(socket).ok());
    peer.map_or(u32::MAX, |peer| peer.uid.as_raw())
}

/// A request whose body is being read or worked on, until its pool goes.
struct Pending(RefCell<Option<PendingJob>>);

/// A job of a request, with the store that it works on and the lock of the store's writers.
struct PendingJob {
    job: Job,
    store: Store,
    lock: ZoneLock,
}

/// The content handler of `ingress_configuration`.
pub struct Content;

impl PhaseHandler for Content {
    const NAME: &'static str = "ingress_configuration";

    fn run(raw: &nginx::Request) -> Next<'_> {
        let Some(request) = Request::of(raw) else { return Code::status(503).into() };
        let worker = request.worker();
        match dispatch::begin(&Head::of(&request), worker) {
            Step::Answer(answer) => match raw.discard_body() {
                Code::OK => send(raw, answer).into(),
                failed => failed.into(),
            },
            Step::Work(job) => {
                let write = PendingJob { job, store: worker.reader().store(), lock: worker.lock() };
                read_body(raw, write).unwrap_or_else(|| Code::INTERNAL_ERROR.into())
            }
        }
    }
}

/// `None` when memory is out.
fn read_body(request: &nginx::Request, write: PendingJob) -> Option<Next<'_>> {
    // It may hold private keys.
    request.wipe_body_at_end()?;
    request.pool().keep(Pending(RefCell::new(Some(write))))?;
    request.read_body_in_single_buffer();
    Some(request.reading::<Body>())
}

/// Runs when the body is there.
struct Body;

impl BodyHandler for Body {
    const NAME: &'static str = "ingress_configuration body";

    fn run(request: &nginx::Request) -> AfterBody {
        work(request).unwrap_or(AfterBody::Finalize(Code::INTERNAL_ERROR))
    }
}

/// `None`: the body is not in memory, or memory is out.
fn work(request: &nginx::Request) -> Option<AfterBody> {
    let write = request.pool().kept::<Pending>().next()?.0.try_borrow_mut().ok()?.take()?;
    let pieces = request.body_pieces().collect::<Option<Vec<_>>>()?;
    let length = pieces.iter().map(|piece| piece.len()).sum();
    let mut answer = None;
    if !dispatch::is_long(&write.job, length, &write.store) {
        let (store, lock) = (&write.store, &write.lock);
        answer = dispatch::work(&write.job, &joined(&pieces)?, store, lock, Patience::NONE);
    }
    if answer.is_none() {
        // Long, or another writer is at work: a thread may wait for it.
        // SAFETY: the whole body was read, and the request waits from here on.
        let run = |threads| unsafe { request.run_on_thread(threads, write, finish) };
        let is_taken = request.threads().is_some_and(run);
        if is_taken {
            return Some(AfterBody::Wait);
        }
    }
    Some(AfterBody::Finalize(send(request, answer.unwrap_or_else(Answer::busy))))
}

/// The body in one piece; `None` when memory is out.
fn joined<'r>(pieces: &[&'r [u8]]) -> Option<Cow<'r, [u8]>> {
    if let [] | [_] = pieces {
        return Some(Cow::Borrowed(pieces.first().copied().unwrap_or_default()));
    }
    let mut all = Vec::new();
    all.try_reserve_exact(pieces.iter().map(|piece| piece.len()).sum()).ok()?;
    pieces.iter().for_each(|piece| all.extend_from_slice(piece));
    Some(Cow::Owned(all))
}

impl Work for PendingJob {
    type Result = Option<Answer>;

    const NAME: &'static str = "ingress_configuration thread";

    fn work(&self, body: Pieces<'_>, _: &Log) -> Option<Answer> {
        let pieces = body.collect::<Option<Vec<_>>>()?;
        let (store, lock) = (&self.store, &self.lock);
        let answer = dispatch::work(&self.job, &joined(&pieces)?, store, lock, Patience::THREAD);
        // The parsed document of a large cluster takes tens of megabytes, which the allocator would keep.
        give_memory_back();
        Some(answer.unwrap_or_else(Answer::busy))
    }
}

/// The write is done, also if the client is gone.
fn finish(
    request: &nginx::Request,
    _: &PendingJob,
    answer: Option<Option<Answer>>,
    is_gone: bool,
) -> AfterWork {
    AfterWork::Finalize(match answer.flatten() {
        Some(answer) if !is_gone => send(request, answer),
        _ => Code::INTERNAL_ERROR,
    })
}

/// Sends a whole answer; answers what a content handler answers.
fn send(raw: &nginx::Request, answer: Answer) -> Code {
    for line in &answer.log {
        log::write(log::WARN, raw.log(), format_args!("ingress_configuration: {line}"));
    }
    raw.set_status(answer.status);
    let mut is_complete = raw.set_content_type(answer.content_type.as_bytes()).is_some();
    for (name, value) in &answer.headers {
        is_complete &= raw.push_response_header(name.as_bytes(), value.as_bytes()).is_some();
    }
    if !is_complete {
        return Code::INTERNAL_ERROR;
    }
    if answer.is_last {
        raw.set_keepalive(false);
    }
    // nginx would compare If-Match with the ETag of this answer, which is already the next one.
    raw.set_disable_not_modified(true);
    raw.send(answer.body.as_slice())
}

/// The store, as far as a job may use it.
struct StoreAccess<'s> {
    store: &'s Store,
    lock: &'s ZoneLock,
    patience: Patience,
}

impl<'s> StoreAccess<'s> {
    fn write(&self) -> Option<Transaction<'s, ZoneLock>> {
        self.patience.write(self.store, self.lock)
    }
}
