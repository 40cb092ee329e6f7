//! Passwords, looked at by nginx's own `ngx_crypt`, on threads: what makes a hash safe makes it slow.
//!
//! Few at once for each worker, so that whoever sends wrong passwords takes neither all threads, which writes of the
//! configuration need too, nor all processors. The others wait, those of each namespace and password file in a line
//! of their own, and the lines take turns: a flood of passwords for one host delays no other tenant's logins.
#![allow(unsafe_code)]

use crate::access::Known;
use crate::conf::CoreConf;
use crate::system::memory::now_seconds;
use crate::worker;
use crate::worker::Worker;
use nginx::log::Log;
use nginx::thread::{AfterWork, Work};
use nginx::{EventLoop, Pieces, Request, WeakRequest};
use oxigress_core::policy::access::Password;
use oxigress_core::policy::fair_queue::FairQueue;
use oxigress_core::policy::passwords::{self, Hash};
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString};
use std::rc::Rc;

/// A quarter of nginx's threads.
const MAX_AT_WORK: usize = 8;
/// The passwords that one worker looks at.
#[derive(Default)]
pub struct Checks {
    at_work: Cell<usize>,
    waiting: RefCell<FairQueue<Waiting>>,
}

/// One password, until its request ends.
struct Check {
    request: WeakRequest,
    /// Taken by the thread that looks at it.
    secret: Cell<Option<Secret>>,
    /// The namespace of the route.
    tenant: Vec<u8>,
    /// The digest of the password file.
    file: [u8; 32],
}

/// What a thread compares.
struct Secret {
    hash: CString,
    /// With a NUL. What goes back to the allocator is overwritten (`system/allocator.rs`).
    password: Vec<u8>,
    /// Another user's hash takes as long, and lets nobody in.
    is_known: bool,
    name: u128,
}

/// The line that a password waits in.
#[derive(Clone, Copy)]
pub struct Line<'a> {
    /// Namespace of the route.
    pub tenant: &'a [u8],
    /// Digest of the password file.
    pub file: &'a [u8; 32],
}

/// In line, or about to be.
struct Waiting(Rc<Check>);

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

/// Takes a check out of its line when its request ends.
struct Ticket {
    here: EventLoop,
    check: Rc<Check>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(worker) = worker::current(self.here)
            && let Ok(mut waiting) = worker.part::<Checks>().waiting.try_borrow_mut()
        {
            let check = Waiting(Rc::clone(&self.check));
            waiting.remove(&self.check.tenant, &self.check.file, &check);
        }
    }
}

/// What a request asks to have looked at.
pub struct PasswordCheck<'a> {
    pub hash: &'a Hash,
    pub password: &'a [u8],
    /// The user is in the file.
    pub is_known: bool,
    /// What the answer is known under for a while.
    pub name: u128,
    pub line: Line<'a>,
}

/// Looks at a password, now or when others are done; `false`: too many wait in its line.
pub fn begin(request: &Request, worker: &Worker, asked: &PasswordCheck<'_>) -> bool {
    try_begin(request, worker, asked).is_some()
}

fn try_begin(request: &Request, worker: &Worker, asked: &PasswordCheck<'_>) -> Option<()> {
    let checks = worker.part::<Checks>();
    let secret = Secret {
        hash: CString::from_vec_with_nul(asked.hash.with_nul().into()).ok()?,
        password: [asked.password, b"\0"].concat(),
        is_known: asked.is_known,
        name: asked.name,
    };
    let check = Rc::new(Check {
        request: request.weak()?,
        secret: Cell::new(Some(secret)),
        tenant: asked.line.tenant.into(),
        file: *asked.line.file,
    });
    let here = request.event_loop();
    request.pool().keep(Ticket { here, check: Rc::clone(&check) })?;
    if checks.at_work.get() >= MAX_AT_WORK {
        let mut waiting = checks.waiting.try_borrow_mut().ok()?;
        let (tenant, file) = (asked.line.tenant, asked.line.file);
        waiting.push(tenant, file, Waiting(check)).then_some(())?;
    } else {
        post(request, checks, &check).then_some(())?;
    }
    set_password(request, Password::Checking);
    Some(())
}

/// Notes what is known of a request's password.
fn set_password(request: &Request, to: Password) {
    if let Some(progress) =
        crate::request::Request::of(request).and_then(|seen| seen.begun_progress())
    {
        progress.set_password(to);
    }
}

/// Gives a check to a thread.
fn post(request: &Request, checks: &Checks, check: &Check) -> bool {
    let Some(secret) = check.secret.take() else { return false };
    let threads = CoreConf::with_running(request.event_loop(), |core| core.password_pool).flatten();
    let is_posted = threads
        // SAFETY: the request waits in ACCESS, whose handler answers `AGAIN` until the check has come back, with no other work.
        // The work is its own text and looks at nothing of the request.
        .is_some_and(|threads| unsafe { request.run_on_thread(threads, secret, done) });
    if is_posted {
        checks.at_work.set(checks.at_work.get() + 1);
    }
    is_posted
}

impl Work for Secret {
    type Result = bool;

    const NAME: &'static str = "ingress: a password";

    fn work(&self, _: Pieces<'_>, log: &Log) -> bool {
        let Ok(password) = CStr::from_bytes_until_nul(&self.password) else { return false };
        let is_right = nginx::crypt(log, password, &self.hash, |text| {
            passwords::is_same(text, self.hash.to_bytes())
        });
        is_right == Some(true) && self.is_known
    }
}

/// On the event loop, when the thread is done: notes what it found, and sends the next one to work.
fn done(request: &Request, secret: &Secret, is_right: Option<bool>, _is_gone: bool) -> AfterWork {
    let is_right = is_right == Some(true);
    set_password(request, if is_right { Password::Right } else { Password::Wrong });
    if let Some(worker) = worker::current(request.event_loop()) {
        worker.part::<Known>().put(secret.name, is_right, now_seconds());
        let checks = worker.part::<Checks>();
        checks.at_work.set(checks.at_work.get().saturating_sub(1));
        post_next(checks);
    }
    // The ACCESS phase again.
    AfterWork::Resume
}

fn post_next(checks: &Checks) {
    while let Some(next) = checks.waiting.try_borrow_mut().ok().and_then(|mut all| all.pop()) {
        let next = next.0;
        if next.request.with(|request| post(request, checks, &next)) == Some(true) {
            break;
        }
        // No thread takes it: it is not let in.
        next.request.with(|request| set_password(request, Password::Wrong));
        // SAFETY: not the request whose callback this is: that one was not in line.
        unsafe { next.request.resume() };
    }
}
