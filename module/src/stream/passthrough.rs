//! TLS passthrough: the server name decides between nginx's own two handlers, `proxy_pass` and `pass`.
//!
//! `ssl_preread` ends the PREREAD phase with its answer, so no phase handler of ours would run behind it: the content
//! handler is wrapped instead.
#![allow(unsafe_code)]

use crate::module::table::stream_index;
use crate::stream::SrvConf;
use crate::stream::sessions as stream;
use crate::stream::{concat, variable, zeroed};
use crate::system::guard;
use crate::system::log;
use crate::system::log::Seldom;
use crate::worker;
use crate::worker::Worker;
use nginx::EventLoop;
use nginx::log::Log;
use nginx::sys::{ngx_pool_cleanup_add, ngx_str_t, ngx_stream_session_t};
use oxigress_core::router::session::{RANDOM, client_random};
use std::ffi::c_void;

/// A backend's id as a session keeps it, in its pool.
#[repr(transparent)]
pub struct Decision(pub ngx_str_t);

// SAFETY: the only one that is shared is `NOWHERE`, which nobody writes.
unsafe impl Sync for Decision {}

/// More than the records that a ClientHello's `random` ends in, also where each has one byte.
const PEEKED: usize = 512;

/// The session is to end, not to be terminated here: it goes to a backend that does not exist.
static NOWHERE: Decision = Decision(ngx_str_t::empty());

/// nginx's callback when the server name has been read, or could not be.
pub unsafe extern "C" fn handler(session: *mut ngx_stream_session_t) {
    // SAFETY: nginx runs this server's handler, so `postconfiguration` has set both.
    let conf = unsafe { &*(*(*session).srv_conf.add(stream_index())).cast::<SrvConf>() };
    let is_passed_through = guard::contain("passthrough", false, || {
        // SAFETY: nginx gives a live session, on the event loop.
        unsafe { decide(session, conf) }
    });
    if let Some(handler) = if is_passed_through { conf.proxy } else { conf.pass } {
        // SAFETY: nginx's own, with the session it gave; it may free it.
        unsafe { handler(session) };
    }
}

/// # Safety
/// `session` is alive, `conf` its server's, and this is the event loop's thread.
unsafe fn decide(session: *mut ngx_stream_session_t, conf: &SrvConf) -> bool {
    // SAFETY: the caller has a live session, on the event loop.
    let Some(worker) = (unsafe { worker::current(EventLoop::here()) }) else { return false };
    // SAFETY: as above.
    let Some(name) = (unsafe { variable(session, conf.server_name) }) else { return false };
    // SAFETY: nginx keeps the value in the session's pool.
    let name = unsafe { nginx::bytes(name) };
    let decision = stream::passthrough(worker, name, |backend| {
        // SAFETY: the pool is alive, and zeroes are a decision.
        unsafe {
            let pool = (*(*session).connection).pool;
            let decision: *mut Decision = zeroed(pool);
            match (decision.as_mut(), concat(pool, &[backend])) {
                (Some(place), Some(text)) => place.0 = text,
                _ => return &raw const NOWHERE,
            }
            decision.cast_const()
        }
    });
    let Some(mut decision) = decision else { return false };
    // SAFETY: the caller has a live session, on the event loop.
    if unsafe { is_in_a_circle(session, worker) } {
        let name = String::from_utf8_lossy(name);
        let line = format_args!(
            "ingress: a TLS connection for \"{name}\" has come back to this nginx, or ended early, and is closed: let the Service \
             of its ssl-passthrough lead to the endpoints, not to this gateway's address"
        );
        static SELDOM: Seldom = Seldom::new();
        if SELDOM.is_due() {
            // SAFETY: a session has a connection with a log.
            unsafe { log::write(log::ERROR, Log::from_ptr((*(*session).connection).log), line) };
        }
        decision = &raw const NOWHERE;
    }
    // SAFETY: nginx makes one pointer a module for each session.
    unsafe { *(*session).ctx.add(stream_index()) = decision.cast_mut().cast() };
    true
}

/// Whether the connection is one that this worker passes through already, and came back over the backend. Counts it as
/// passed through until it ends, where it is not.
///
/// # Safety
/// `session` is alive, and this is the event loop's thread.
unsafe fn is_in_a_circle(session: *mut ngx_stream_session_t, worker: &Worker) -> bool {
    let mut peeked = [0; PEEKED];
    // SAFETY: a session has a connection.
    let read = unsafe { read_ahead(session, &mut peeked) };
    // Nothing else has a server name.
    let Some(random) = client_random(read) else { return true };
    if !worker.pass_through(random) {
        return true;
    }
    // SAFETY: the pool of the connection is alive; the handler that reads the data is set after it is written.
    unsafe {
        let cleanup = ngx_pool_cleanup_add((*(*session).connection).pool, RANDOM);
        let Some(cleanup) = cleanup.as_mut() else {
            worker.end_passed_through(&random);
            return true;
        };
        cleanup.data.cast::<[u8; RANDOM]>().write(random);
        cleanup.handler = Some(end);
    }
    false
}

/// What has been read of the client's bytes, or lies in the socket: nginx reads ahead there, if nothing asked for more.
///
/// # Safety
/// `session` is alive, and nothing else is read from it while the answer is used.
unsafe fn read_ahead(session: *mut ngx_stream_session_t, peeked: &mut [u8; PEEKED]) -> &[u8] {
    // SAFETY: nginx's own buffer has what was read from `pos` to `last`; the socket is open, and `peeked` has its length.
    unsafe {
        let connection = &*(*session).connection;
        if let Some(buffer) = connection.buffer.as_ref().filter(|buffer| buffer.last > buffer.pos) {
            let length = buffer.last.offset_from_unsigned(buffer.pos);
            return std::slice::from_raw_parts(buffer.pos, length);
        }
        let count = libc::recv(connection.fd, peeked.as_mut_ptr().cast(), PEEKED, libc::MSG_PEEK);
        peeked.get(..usize::try_from(count).unwrap_or(0)).unwrap_or_default()
    }
}

/// nginx's callback when the pool of a connection that was passed through goes.
unsafe extern "C" fn end(data: *mut c_void) {
    guard::contain("end of passthrough", (), || {
        // SAFETY: what `is_in_a_circle` has put there; a connection ends on the event loop.
        let (random, worker) =
            unsafe { (data.cast::<[u8; RANDOM]>().read(), worker::current(EventLoop::here())) };
        if let Some(worker) = worker {
            worker.end_passed_through(&random);
        }
    });
}
