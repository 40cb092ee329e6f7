//! The configuration endpoint's content handler: reads the body, hands the work to the safe code, on a
//! thread of nginx's pool when it is much, and sends the answer.

use super::zone::ZoneLock;
use super::{Request, allocator, answer, directives, guard, log};
use crate::configuration::{self, Answer, Job, Patience, Step};
use nginx::sys::{
    NGX_DONE, NGX_ERROR, NGX_HTTP_INTERNAL_SERVER_ERROR, NGX_HTTP_SERVICE_UNAVAILABLE,
    NGX_HTTP_SPECIAL_RESPONSE, NGX_OK, ngx_add_timer, ngx_chain_t, ngx_del_timer, ngx_event_t,
    ngx_http_discard_request_body, ngx_http_finalize_request, ngx_http_read_client_request_body,
    ngx_http_request_t, ngx_http_run_posted_requests, ngx_int_t, ngx_log_t, ngx_msec_t,
    ngx_pool_cleanup_add, ngx_thread_task_alloc, ngx_thread_task_post,
};
use oxigress_store::Store;
use std::borrow::Cow;
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr::null_mut;

/// Who asks for what, as far as the endpoint cares.
pub struct Head<'r> {
    /// Method.
    pub method: &'r [u8],
    /// Path, normalised.
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
            peer_uid: request.is_unix().then(|| peer_uid(request.socket())),
            // SAFETY: only asks.
            own_uid: unsafe { libc::geteuid() },
            max_body_bytes: directives::MAX_BODY_BYTES as u64,
        }
    }
}

/// The uid at the other end of a Unix socket; one that nobody has if the kernel does not say.
fn peer_uid(socket: i32) -> u32 {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the buffer is as long as it says.
    let answer = unsafe {
        libc::getsockopt(
            socket,
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    if answer == 0 { peer.uid } else { u32::MAX }
}

/// A request whose body is being read or worked on. Freed with the request's pool.
struct Pending {
    request: *mut ngx_http_request_t,
    job: Job,
    body: Body,
    store: Store,
    lock: ZoneLock,
    /// Written by the thread, read after it.
    answer: UnsafeCell<Option<Answer>>,
}

/// nginx's callback for a request in an `ingress_configuration` location.
pub unsafe extern "C" fn content_handler(raw: *mut ngx_http_request_t) -> ngx_int_t {
    guard::contain("ingress_configuration", NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t, || {
        // SAFETY: nginx gives a live request, on the event loop.
        let Some(request) = (unsafe { Request::from_callback(raw) }) else {
            return NGX_HTTP_SERVICE_UNAVAILABLE as ngx_int_t;
        };
        let worker = request.worker();
        match configuration::begin(&Head::of(&request), worker) {
            Step::Answer(answer) => {
                // SAFETY: alive; the body has not been read.
                unsafe {
                    let discarded = ngx_http_discard_request_body(raw);
                    if discarded != NGX_OK as ngx_int_t {
                        return discarded;
                    }
                    answer::send(raw, answer)
                }
            }
            Step::Work(job) => {
                let pending = Box::new(Pending {
                    request: raw,
                    job,
                    body: Body::default(),
                    store: worker.reader().store(),
                    lock: worker.lock(),
                    answer: UnsafeCell::new(None),
                });
                // SAFETY: alive.
                unsafe { read_body(&request, raw, pending) }
            }
        }
    })
}

/// # Safety
/// `raw` is alive, and `request` is its safe side.
unsafe fn read_body(
    request: &Request<'_>,
    raw: *mut ngx_http_request_t,
    pending: Box<Pending>,
) -> ngx_int_t {
    // SAFETY: the request's pool is alive.
    let cleanup = unsafe { ngx_pool_cleanup_add((*raw).pool, 0).as_mut() };
    let Some(cleanup) = cleanup else { return NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t };
    cleanup.data = Box::into_raw(pending).cast();
    cleanup.handler = Some(free_pending);
    if !request.set_pending(cleanup.data) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;
    }
    // SAFETY: alive.
    let rc = unsafe {
        (*raw).set_request_body_in_single_buf(1);
        ngx_http_read_client_request_body(raw, Some(body_handler))
    };
    if rc >= NGX_HTTP_SPECIAL_RESPONSE as ngx_int_t { rc } else { NGX_DONE as ngx_int_t }
}

unsafe extern "C" fn free_pending(pending: *mut c_void) {
    guard::contain("free_pending", (), || {
        // SAFETY: made by `read_body`; the pool calls this once.
        let pending = unsafe { Box::from_raw(pending.cast::<Pending>()) };
        // SAFETY: a pool frees nothing before its clean-ups have run, and the request is in it; nobody reads its body
        // now.
        unsafe { wipe_body(pending.request) };
    });
}

/// Overwrites what has come of a body, all or a part: it may hold private keys, and neither nginx nor the allocator
/// clears what they give back.
///
/// # Safety
/// `raw` is alive, and nobody reads its body any more.
unsafe fn wipe_body(raw: *mut ngx_http_request_t) {
    // SAFETY: null, or nginx's record of the body.
    let Some(body) = (unsafe { (*raw).request_body.as_ref() }) else { return };
    // SAFETY: null, or the buffer that nginx reads into.
    if let Some(buffer) = unsafe { body.buf.as_ref() } {
        // SAFETY: what was read is between these two, in memory of the request's pool.
        unsafe { wipe_between(buffer.start, buffer.last) };
    }
    let mut chain = body.bufs;
    // SAFETY: a chain of buffers in the request's pool; the first may be in the connection's buffer of heads, which is
    // freed after the request, and what follows the body there is not of these pieces.
    while let Some(link) = unsafe { chain.as_ref() } {
        // SAFETY: each link has a buffer, in memory: one in a file has null pointers.
        unsafe { wipe_between((*link.buf).pos, (*link.buf).last) };
        chain = link.next;
    }
}

/// # Safety
/// Both are null, or point into one block that may be written.
unsafe fn wipe_between(start: *mut u8, end: *mut u8) {
    if let Some(length) = end.addr().checked_sub(start.addr())
        && !start.is_null()
    {
        // SAFETY: vouched for by the caller.
        unsafe { allocator::wipe(start, length) };
    }
}

/// nginx's callback when the body is there.
unsafe extern "C" fn body_handler(raw: *mut ngx_http_request_t) {
    let rc = guard::contain("body_handler", NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t, || {
        // SAFETY: alive, on the event loop.
        let pending =
            unsafe { Request::from_callback(raw) }.map_or(null_mut(), |request| request.pending());
        // SAFETY: null, or what `read_body` stored.
        let Some(pending) = (unsafe { pending.cast::<Pending>().as_mut() }) else {
            return NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;
        };
        // SAFETY: the body was read.
        match unsafe { body(raw) } {
            Some(body) => pending.body = body,
            None => return NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t,
        }
        let mut answer = None;
        if !configuration::is_long(&pending.job, pending.body.len(), &pending.store) {
            // SAFETY: alive.
            let Some(bytes) = (unsafe { pending.body.joined() }) else {
                return NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;
            };
            let (store, lock) = (&pending.store, &pending.lock);
            answer = configuration::work(&pending.job, &bytes, store, lock, Patience::NONE);
        }
        // Long, or another writer is at work: a thread may wait for it.
        // SAFETY: alive until the task's event.
        if answer.is_none() && unsafe { post(raw, pending) } {
            return NGX_DONE as ngx_int_t;
        }
        // SAFETY: alive.
        unsafe { answer::send(raw, answer.unwrap_or_else(Answer::busy)) }
    });
    // SAFETY: alive; for NGX_DONE the task's event goes on.
    unsafe {
        if rc != NGX_DONE as ngx_int_t {
            ngx_http_finalize_request(raw, rc);
        }
    }
}

/// A request's body: where nginx put it, in the request's pool and the connection's header buffer, unchanged
/// until the request ends. Mostly two pieces: what came with the header, and the rest.
#[derive(Default)]
struct Body(Vec<(*const u8, usize)>);

impl Body {
    fn len(&self) -> usize {
        self.0.iter().map(|(_, length)| length).sum()
    }

    /// The body in one piece; `None` when memory is out.
    ///
    /// # Safety
    /// The request is alive.
    unsafe fn joined(&self) -> Option<Cow<'_, [u8]>> {
        // SAFETY: vouched for by the caller.
        let mut pieces = self
            .0
            .iter()
            .map(|(start, length)| unsafe { std::slice::from_raw_parts(*start, *length) });
        if self.0.len() < 2 {
            return Some(Cow::Borrowed(pieces.next().unwrap_or_default()));
        }
        let mut all = Vec::new();
        all.try_reserve_exact(self.len()).ok()?;
        pieces.for_each(|piece| all.extend_from_slice(piece));
        Some(Cow::Owned(all))
    }
}

/// The body; `None` if a part is not in memory.
///
/// # Safety
/// `raw` is alive and its body was read.
unsafe fn body(raw: *mut ngx_http_request_t) -> Option<Body> {
    let mut pieces: Vec<(*const u8, usize)> = Vec::new();
    // SAFETY: nginx made it when it began to read.
    let body = unsafe { (*raw).request_body.as_ref() }?;
    let mut chain: *mut ngx_chain_t = body.bufs;
    // SAFETY: a chain of buffers in the request's pool.
    while let Some(link) = unsafe { chain.as_ref() } {
        let buffer = link.buf;
        // SAFETY: nginx gives a live struct.
        let is_in_file = unsafe { (*buffer).in_file() != 0 };
        if is_in_file {
            return None;
        }
        // SAFETY: `pos` and `last` are of one allocation.
        let (start, length) = unsafe { ((*buffer).pos, (*buffer).last.offset_from((*buffer).pos)) };
        let length = usize::try_from(length).ok()?;
        match pieces.last_mut() {
            // nginx adds a link for each piece it received, one after the other in one buffer.
            Some((first, before)) if first.wrapping_add(*before) == start.cast_const() => {
                *before += length;
            }
            _ if length > 0 => pieces.push((start, length)),
            _ => {}
        }
        chain = link.next;
    }
    Some(Body(pieces))
}

/// Gives the work to a thread of the pool; answers whether it was taken.
///
/// # Safety
/// `raw` is alive, and `pending` is its own.
unsafe fn post(raw: *mut ngx_http_request_t, pending: *mut Pending) -> bool {
    // SAFETY: the request's pool is alive.
    let Some(task) = (unsafe { ngx_thread_task_alloc((*raw).pool, 0).as_mut() }) else {
        return false;
    };
    task.ctx = pending.cast();
    task.handler = Some(run);
    task.event.handler = Some(done);
    task.event.data = pending.cast();
    // SAFETY: alive; blocked, so that nginx keeps it until the event. The timer keeps a worker that shuts
    // down until then.
    unsafe {
        let pool = directives::thread_pool(raw);
        if pool.is_null() || ngx_thread_task_post(pool, task) != NGX_OK as ngx_int_t {
            return false;
        }
        ngx_add_timer(&raw mut task.event, THREAD_MSEC);
        let main = (*raw).main;
        (*main).set_blocked((*main).blocked() + 1);
        (*raw).set_aio(1);
    }
    true
}

/// A thread that takes longer is logged; as nginx's own users of the pool have it.
const THREAD_MSEC: ngx_msec_t = 60_000;

/// On a thread of the pool: touches nothing of nginx.
unsafe extern "C" fn run(pending: *mut c_void, _: *mut ngx_log_t) {
    // SAFETY: the request is blocked, so that it lives; until the event nobody else looks at the answer.
    let pending = unsafe { &*pending.cast::<Pending>() };
    let answer = guard::contain("ingress_configuration thread", None, || {
        // SAFETY: as above, the request is alive.
        let bytes = unsafe { pending.body.joined() }?;
        let (store, lock) = (&pending.store, &pending.lock);
        let answer = configuration::work(&pending.job, &bytes, store, lock, Patience::THREAD);
        Some(answer.unwrap_or_else(Answer::busy))
    });
    // SAFETY: as above.
    unsafe { *pending.answer.get() = answer };
    // The parsed document of a large cluster takes tens of megabytes, which the allocator would keep.
    // SAFETY: gives free pages back, on any thread.
    unsafe { libc::malloc_trim(0) };
}

/// nginx's callback on the event loop when the thread is done.
unsafe extern "C" fn done(event: *mut ngx_event_t) {
    // SAFETY: `post` set it; the request is blocked and so alive.
    let pending = unsafe { &*(*event).data.cast::<Pending>() };
    let raw = pending.request;
    // SAFETY: alive until it is finalised below; its connection outlives it.
    unsafe {
        let connection = (*raw).connection;
        let flags = event;
        if (*flags).timedout() != 0 {
            (*flags).set_timedout(0);
            let line = format_args!("ingress_configuration: a thread takes longer than a minute");
            log::write(log::ALERT, (*connection).log, line);
            return;
        }
        if (*flags).timer_set() != 0 {
            ngx_del_timer(event);
        }
        let main = (*raw).main;
        (*main).set_blocked((*main).blocked() - 1);
        (*raw).set_aio(0);
        #[cfg(nginx_has_terminated)]
        let is_terminated = (*main).terminated() != 0;
        // Until 1.25.4 nginx marks the connection only. While a thread has the request nothing is
        // sent, so there is no other reason for an error.
        #[cfg(not(nginx_has_terminated))]
        let is_terminated = (*connection).error() != 0;
        if is_terminated || (*raw).done() != 0 {
            // The client is gone; the write was done all the same. nginx ends the request.
            if let Some(handler) = (*(*connection).write).handler {
                handler((*connection).write);
            }
            return;
        }
        let rc = guard::contain("answer", NGX_ERROR as ngx_int_t, || {
            match (*pending.answer.get()).take() {
                Some(answer) => answer::send(raw, answer),
                None => NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t,
            }
        });
        ngx_http_finalize_request(raw, rc);
        ngx_http_run_posted_requests(connection);
    }
}

const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<(Job, Store, ZoneLock, Answer)>();
};
