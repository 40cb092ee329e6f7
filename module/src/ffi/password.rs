//! Passwords, looked at by nginx's own `ngx_crypt`, on threads: what makes a hash safe makes it slow.
//!
//! Few at once for each worker, so that whoever sends wrong passwords takes neither all threads, which writes of the
//! configuration need too, nor all processors. The others wait, those of each namespace and password file in a line
//! of their own, and the lines take turns: a flood of passwords for one host delays no other tenant's logins.

use super::access::{Passwords, Progress};
use super::memory::{self, now_seconds};
use super::worker::{self, Worker};
use super::{directives, guard, log};
use nginx::sys::{
    NGX_OK, ngx_add_timer, ngx_create_pool, ngx_del_timer, ngx_destroy_pool, ngx_event_t,
    ngx_http_auth_basic_user, ngx_http_request_t, ngx_http_run_posted_requests, ngx_int_t,
    ngx_log_t, ngx_msec_t, ngx_pool_cleanup_add, ngx_pool_t, ngx_thread_task_alloc,
    ngx_thread_task_post,
};
use oxigress_core::policy::fair_queue::FairQueue;
use oxigress_core::policy::passwords::Hash;
use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// A quarter of nginx's threads.
const MAX_AT_WORK: usize = 8;
/// A thread that takes longer is logged; as nginx's own users of the pool have it.
const THREAD_MSEC: ngx_msec_t = 60_000;

unsafe extern "C" {
    /// `ngx_crypt.h`, which `nginx-sys` has no bindings for.
    fn ngx_crypt(
        pool: *mut ngx_pool_t,
        key: *mut u8,
        salt: *mut u8,
        encrypted: *mut *mut u8,
    ) -> ngx_int_t;
}

/// The passwords that one worker looks at.
#[derive(Default)]
pub struct Checks {
    at_work: Cell<usize>,
    waiting: RefCell<FairQueue<*mut Check>>,
}

/// One password. Freed with its request's pool.
pub struct Check {
    request: *mut ngx_http_request_t,
    progress: *const Progress,
    /// With a NUL.
    hash: Vec<u8>,
    /// With a NUL.
    password: Vec<u8>,
    /// Another user's hash takes as long, and lets nobody in.
    is_known: bool,
    name: u128,
    /// The namespace of the route.
    tenant: Vec<u8>,
    /// The digest of the password file.
    file: [u8; 32],
    /// Written by the thread, read after it.
    is_right: AtomicBool,
}

/// The line that a password waits in.
#[derive(Clone, Copy)]
pub struct Line<'a> {
    /// Namespace of the route.
    pub tenant: &'a [u8],
    /// Digest of the password file.
    pub file: &'a [u8; 32],
}

impl Check {
    pub fn new(
        request: *mut ngx_http_request_t,
        progress: &Progress,
        hash: &Hash,
        password: &[u8],
        is_known: bool,
        name: u128,
        line: Line<'_>,
    ) -> Box<Self> {
        Box::new(Check {
            request,
            progress,
            hash: hash.with_nul().into(),
            password: [password, b"\0"].concat(),
            is_known,
            name,
            tenant: line.tenant.into(),
            file: *line.file,
            is_right: AtomicBool::new(false),
        })
    }
}

impl Check {
    fn line(&self) -> Line<'_> {
        Line { tenant: &self.tenant, file: &self.file }
    }
}

impl Drop for Check {
    fn drop(&mut self) {
        wipe(&mut self.password);
    }
}

fn wipe(text: &mut [u8]) {
    // SAFETY: the slice's own bytes.
    unsafe { libc::explicit_bzero(text.as_mut_ptr().cast(), text.len()) };
}

/// Name and password of a request.
///
/// # Safety
/// The request is alive during `'r`.
pub unsafe fn credentials<'r>(raw: *mut ngx_http_request_t) -> Option<(&'r [u8], &'r [u8])> {
    // SAFETY: vouched for by the caller; nginx decodes into the request's pool.
    unsafe {
        if ngx_http_auth_basic_user(raw) != NGX_OK as ngx_int_t {
            return None;
        }
        let headers = &(*raw).headers_in;
        Some((memory::bytes(headers.user), memory::bytes(headers.passwd)))
    }
}

/// Looks at a password, now or when others are done; `false`: too many wait in its line.
///
/// # Safety
/// `raw` is alive, in its ACCESS phase, and `check` is about it.
pub unsafe fn begin(raw: *mut ngx_http_request_t, worker: &Worker, check: Box<Check>) -> bool {
    let checks = worker.password_checks();
    let is_full = checks.at_work.get() >= MAX_AT_WORK;
    // SAFETY: the request's pool is alive.
    let Some(cleanup) = (unsafe { ngx_pool_cleanup_add((*raw).pool, 0).as_mut() }) else {
        return false;
    };
    let progress = check.progress;
    let check = Box::into_raw(check);
    cleanup.data = check.cast();
    cleanup.handler = Some(free);
    if is_full {
        let Ok(mut waiting) = checks.waiting.try_borrow_mut() else { return false };
        // SAFETY: made above; the pool has it until the request ends.
        let line = unsafe { (*check).line() };
        if !waiting.push(line.tenant, line.file, check) {
            return false;
        }
    // SAFETY: alive.
    } else if !unsafe { post(checks, check) } {
        return false;
    }
    // SAFETY: of the same request.
    unsafe { (*progress).set_password(Passwords::Waits) };
    true
}

/// nginx's callback when the pool of a request goes: not while a thread has the check.
unsafe extern "C" fn free(check: *mut c_void) {
    guard::contain("password_free", (), || {
        let check: *mut Check = check.cast();
        // SAFETY: on the event loop.
        if let Some(worker) = unsafe { worker::current() }
            && let Ok(mut waiting) = worker.password_checks().waiting.try_borrow_mut()
        {
            // SAFETY: freed below.
            let line = unsafe { (*check).line() };
            waiting.remove(line.tenant, line.file, &check);
        }
        // SAFETY: made by `begin`; the pool calls this once.
        drop(unsafe { Box::from_raw(check) });
    });
}

/// Gives a check to a thread.
///
/// # Safety
/// Its request is alive.
unsafe fn post(checks: &Checks, check: *mut Check) -> bool {
    // SAFETY: vouched for by the caller.
    let raw = unsafe { (*check).request };
    // SAFETY: the request's pool is alive.
    let Some(task) = (unsafe { ngx_thread_task_alloc((*raw).pool, 0).as_mut() }) else {
        return false;
    };
    task.ctx = check.cast();
    task.handler = Some(run);
    task.event.handler = Some(done);
    task.event.data = check.cast();
    // SAFETY: alive; blocked, so that nginx keeps it until the event. The timer keeps a worker that shuts
    // down until then.
    unsafe {
        let pool = directives::password_pool();
        if pool.is_null() || ngx_thread_task_post(pool, task) != NGX_OK as ngx_int_t {
            return false;
        }
        ngx_add_timer(&raw mut task.event, THREAD_MSEC);
        let main = (*raw).main;
        (*main).set_blocked((*main).blocked() + 1);
        (*raw).set_aio(1);
    }
    checks.at_work.set(checks.at_work.get() + 1);
    true
}

/// On a thread of the pool: touches nothing of nginx but a pool of its own.
unsafe extern "C" fn run(check: *mut c_void, log: *mut ngx_log_t) {
    guard::contain("password thread", (), || {
        // SAFETY: the request is blocked, so that it and the check live; nobody writes to it until the event.
        let check = unsafe { &*check.cast::<Check>() };
        // SAFETY: the thread's log, and texts that end with a NUL.
        let is_right = unsafe { is_right(check, log) };
        check.is_right.store(is_right && check.is_known, Relaxed);
    });
}

/// # Safety
/// `log` is the thread's.
unsafe fn is_right(check: &Check, log: *mut ngx_log_t) -> bool {
    // SAFETY: vouched for by the caller.
    let pool = unsafe { ngx_create_pool(1024, log) };
    if pool.is_null() {
        return false;
    }
    let mut encrypted: *mut u8 = null_mut();
    let (key, salt) = (check.password.as_ptr().cast_mut(), check.hash.as_ptr().cast_mut());
    // SAFETY: nginx reads both texts up to their NUL.
    let rc = unsafe { ngx_crypt(pool, key, salt, &raw mut encrypted) };
    let mut is_right = false;
    if rc == NGX_OK as ngx_int_t && !encrypted.is_null() {
        // SAFETY: a text in the pool that ends with a NUL, and nobody else has it.
        let text =
            unsafe { std::slice::from_raw_parts_mut(encrypted, libc::strlen(encrypted.cast())) };
        is_right = oxigress_core::policy::passwords::is_same(
            text,
            check.hash.split_last().map_or(&[], |(_, hash)| hash),
        );
        // Of some kinds it is the password.
        wipe(text);
    }
    // SAFETY: made above.
    unsafe { ngx_destroy_pool(pool) };
    is_right
}

/// nginx's callback on the event loop when the thread is done.
unsafe extern "C" fn done(event: *mut ngx_event_t) {
    // SAFETY: `post` set it; the request is blocked and so alive.
    let check = unsafe { &*(*event).data.cast::<Check>() };
    let raw = check.request;
    // SAFETY: as above; its connection outlives it.
    unsafe {
        let connection = (*raw).connection;
        let flags = event;
        if (*flags).timedout() != 0 {
            (*flags).set_timedout(0);
            let line = format_args!("ingress: a password takes longer than a minute");
            log::write(log::ALERT, (*connection).log, line);
            return;
        }
        if (*flags).timer_set() != 0 {
            ngx_del_timer(event);
        }
        guard::contain("password", (), || settle(check));
        let main = (*raw).main;
        (*main).set_blocked((*main).blocked() - 1);
        (*raw).set_aio(0);
        #[cfg(nginx_has_terminated)]
        let is_terminated = (*main).terminated() != 0;
        #[cfg(not(nginx_has_terminated))]
        let is_terminated = (*connection).error() != 0;
        if is_terminated || (*raw).done() != 0 {
            // The client is gone: nginx ends the request.
            if let Some(handler) = (*(*connection).write).handler {
                handler((*connection).write);
            }
            return;
        }
        // The ACCESS phase again.
        if let Some(handler) = (*raw).write_event_handler {
            handler(raw);
        }
        ngx_http_run_posted_requests(connection);
    }
}

/// Notes what the thread found, and sends the next one to work.
///
/// # Safety
/// On the event loop; the request of the check is alive.
unsafe fn settle(check: &Check) {
    let is_right = check.is_right.load(Relaxed);
    // SAFETY: the request's pool holds it.
    let progress = unsafe { &*check.progress };
    progress.set_password(if is_right { Passwords::Right } else { Passwords::Wrong });
    // SAFETY: vouched for by the caller.
    let Some(worker) = (unsafe { worker::current() }) else { return };
    worker.known_passwords().put(check.name, is_right, now_seconds());
    let checks = worker.password_checks();
    checks.at_work.set(checks.at_work.get().saturating_sub(1));
    while let Some(next) = checks.waiting.try_borrow_mut().ok().and_then(|mut all| all.pop()) {
        // SAFETY: `free` takes those out of the line whose request has ended.
        if unsafe { post(checks, next) } {
            break;
        }
        // No thread takes it: it is not let in.
        // SAFETY: as above; on the event loop.
        unsafe {
            (*(*next).progress).set_password(Passwords::Wrong);
            let raw = (*next).request;
            let connection = (*raw).connection;
            if let Some(handler) = (*raw).write_event_handler {
                handler(raw);
            }
            ngx_http_run_posted_requests(connection);
        }
    }
}
