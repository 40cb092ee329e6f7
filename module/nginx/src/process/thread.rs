//! Work on threads of nginx's pools.

use crate::basic::code::Code;
use crate::basic::event_loop::EventLoop;
use crate::basic::guard::contain;
use crate::basic::log::{Level, Log};
use crate::conf::Conf;
use crate::process::Role;
use crate::request::{Pieces, Request};
use crate::ssl;
use crate::sys;
use crate::sys::{
    global, ngx_cycle_t, ngx_event_t, ngx_http_finalize_request, ngx_http_request_t,
    ngx_http_run_posted_requests, ngx_int_t, ngx_log_t, ngx_msec_t, ngx_thread_pool_t,
    ngx_thread_task_t,
};
use std::ffi::c_void;
use std::mem::offset_of;
use std::ptr::{NonNull, null_mut};

/// A pool of threads. It is kept with the configuration that named it, and goes with the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadPool {
    pool: NonNull<ngx_thread_pool_t>,
    /// Whose pool it lies in.
    cycle: NonNull<ngx_cycle_t>,
}

impl ThreadPool {
    /// The pool, while its cycle runs in a process that has threads: one that serves.
    fn running(self) -> Option<*mut ngx_thread_pool_t> {
        let is_running = std::ptr::eq(global!(ngx_cycle), self.cycle.as_ptr());
        let has_threads = super::handles_events() && super::role() != Role::Helper;
        (is_running && has_threads).then_some(self.pool.as_ptr())
    }
}

impl Conf {
    /// The pool of threads named `default`, which nginx makes with 32 threads unless told otherwise; `None` when memory
    /// is out.
    pub fn default_threads(&self) -> Option<ThreadPool> {
        // SAFETY: a live configuration; null names that pool.
        let pool = NonNull::new(unsafe { sys::ngx_thread_pool_add(self.as_ptr(), null_mut()) })?;
        Some(ThreadPool { pool, cycle: NonNull::new(self.cycle().as_ptr())? })
    }
}

/// A thread that takes longer is logged; as nginx's own users of pools have it.
const LATE_MILLISECONDS: ngx_msec_t = 60_000;

/// How a request goes on after its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterWork {
    /// It ends, as a content handler's answer says.
    Finalize(Code),
    /// It runs its phase again.
    Resume,
}

/// Work for a request: what a thread does, and what the event loop does with the result.
pub trait Work: Send + 'static {
    /// What the thread finds out.
    type Result: Send + 'static;
    /// For the error log.
    const NAME: &'static str;
    /// On a thread: touches nothing of nginx but what it is given. `body` is the request's, if it was read.
    fn work(&self, body: Pieces<'_>, log: &Log) -> Self::Result;
}

/// What the event loop does when a thread is done; `None`: the thread's work panicked. `is_gone`: the request ends,
/// whatever the answer.
pub type Done<W> = fn(&Request, &W, Option<<W as Work>::Result>, is_gone: bool) -> AfterWork;

struct Task<W: Work> {
    request: *mut ngx_http_request_t,
    /// Made on the event loop: a thread sees nothing of the request itself, which the event loop goes on changing.
    body: Pieces<'static>,
    work: W,
    /// Written by the thread, taken after it.
    result: Option<W::Result>,
    done: Done<W>,
}

impl Request {
    /// Gives work to a thread, and blocks the request until it is done; `false` when no thread takes it.
    ///
    /// # Safety
    /// After `true` the request waits: its handler answers so, and until `done` nobody ends it or reads, changes or drops
    /// its body, at which the thread looks. No other work of it is under way.
    pub unsafe fn run_on_thread<W: Work>(&self, pool: ThreadPool, work: W, done: Done<W>) -> bool {
        // SAFETY: a live request, whose body stays until `done`, as the caller promises; and its pool.
        let (body, raw) = unsafe {
            let body = Request::from_ptr(self.as_ptr()).body_pieces();
            (body, sys::ngx_thread_task_alloc(self.pool().as_ptr(), 0))
        };
        let task = Task { request: self.as_ptr(), body, work, result: None, done };
        let task = Box::into_raw(Box::new(task));
        if raw.is_null() || !self.post(pool, raw, task) {
            // SAFETY: made above, and no thread has it.
            drop(unsafe { Box::from_raw(task) });
            return false;
        }
        true
    }

    fn post<W: Work>(
        &self,
        pool: ThreadPool,
        raw: *mut ngx_thread_task_t,
        task: *mut Task<W>,
    ) -> bool {
        let Some(pool) = pool.running() else { return false };
        // SAFETY: a new task, and a pool whose threads run. The request is blocked, so that nginx keeps it and its pool until the event; the timer
        // keeps a worker that shuts down until then.
        unsafe {
            (*raw).ctx = task.cast();
            (*raw).handler = Some(run::<W>);
            (*raw).event.handler = Some(finished::<W>);
            // An nginx with debug lines writes one about the timer, with the connection's descriptor, into the event's log.
            let connection = (*self.as_ptr()).connection;
            (*raw).event.data = connection.cast();
            (*raw).event.log = (*connection).log;
            if sys::ngx_thread_task_post(pool, raw) != sys::NGX_OK as ngx_int_t {
                return false;
            }
            sys::ngx_add_timer(&raw mut (*raw).event, LATE_MILLISECONDS);
            let main = self.main().as_ptr();
            (*main).set_blocked((*main).blocked() + 1);
            (*self.as_ptr()).set_aio(1);
        }
        true
    }

    /// Runs a request's phase again, from the outside: from a callback that is not about it.
    ///
    /// # Safety
    /// The request is alive; it may end now, and is not used any more.
    pub unsafe fn resume(raw: *mut ngx_http_request_t) {
        // SAFETY: the caller promises a live request; its connection outlives it.
        unsafe {
            let connection = (*raw).connection;
            if let Some(handler) = (*raw).write_event_handler {
                handler(raw);
            }
            ngx_http_run_posted_requests(connection);
        }
    }
}

/// On a thread of the pool.
unsafe extern "C" fn run<W: Work>(task: *mut c_void, log: *mut ngx_log_t) {
    let task = task.cast::<Task<W>>();
    let result = contain(W::NAME, None, || {
        // SAFETY: the request is blocked, so that it and the task live, and nothing of its body changes. The event loop
        // looks at nothing of the task but the request until the event. nginx gives the thread's log.
        let (work, body, log) =
            unsafe { (&(*task).work, (*task).body.clone(), Log::from_ptr(log)) };
        Some(work.work(body, log))
    });
    ssl::leave_thread();
    // SAFETY: the task lives until its event, which nginx posts after this has returned; nobody else looks at this field before.
    unsafe { (*task).result = result };
}

/// The task that an event belongs to.
///
/// # Safety
/// It is the event of a task of `run_on_thread`, with the same `W`.
unsafe fn task_of<W: Work>(event: *mut ngx_event_t) -> *mut Task<W> {
    // SAFETY: the event is a field of nginx's task, as the caller promises.
    unsafe {
        let task = event.byte_sub(offset_of!(ngx_thread_task_t, event));
        (*task.cast::<ngx_thread_task_t>()).ctx.cast()
    }
}

/// nginx's callback on the event loop when the thread is done, and when it takes too long.
unsafe extern "C" fn finished<W: Work>(event: *mut ngx_event_t) {
    // SAFETY: nginx gives the event of a live task, whose request is blocked.
    unsafe {
        if (*event).timedout() != 0 {
            (*event).set_timedout(0);
            let log = Request::from_ptr((*task_of::<W>(event)).request).log();
            log.write(
                Level::Alert,
                format_args!("{}: a thread takes longer than a minute", W::NAME),
            );
            return;
        }
        if (*event).timer_set() != 0 {
            sys::ngx_del_timer(event);
        }
    }
    // SAFETY: made by `run_on_thread`; the thread has done with it, and the event comes once. The request is blocked until
    // now, and so alive.
    let (mut task, is_gone) = unsafe {
        let task = Box::from_raw(task_of::<W>(event));
        let is_gone = unblock(task.request);
        (task, is_gone)
    };
    let raw = task.request;
    let after = contain(W::NAME, AfterWork::Finalize(Code::ERROR), || {
        let result = task.result.take();
        // SAFETY: alive: nobody has ended it since, and the handle is gone when this returns.
        let after = (task.done)(unsafe { Request::from_ptr(raw) }, &task.work, result, is_gone);
        drop(task);
        after
    });
    // SAFETY: alive, and not used any more below; its connection outlives it.
    unsafe {
        let connection = (*raw).connection;
        match after {
            // The client is gone: nginx ends the request.
            _ if is_gone => {
                if let Some(handler) = (*(*connection).write).handler {
                    handler((*connection).write);
                }
            }
            AfterWork::Finalize(code) => {
                ngx_http_finalize_request(raw, code.0);
                ngx_http_run_posted_requests(connection);
            }
            AfterWork::Resume => Request::resume(raw),
        }
    }
}

/// A thread has done with the request; answers whether nginx wants to end it.
///
/// # Safety
/// The request is alive, and blocked once for the thread.
unsafe fn unblock(raw: *mut ngx_http_request_t) -> bool {
    // SAFETY: the request is alive, and with it its main request, whose count of threads `run_on_thread` has raised by one.
    unsafe {
        let main = (*raw).main;
        (*main).set_blocked((*main).blocked() - 1);
        (*raw).set_aio(0);
        #[cfg(nginx_has_terminated)]
        let is_terminated = (*main).terminated() != 0;
        // Until 1.25.4 nginx marks the connection only. While a thread has the request nothing is sent, so there is no
        // other reason for an error.
        #[cfg(not(nginx_has_terminated))]
        let is_terminated = (*(*raw).connection).error() != 0;
        is_terminated || (*raw).done() != 0
    }
}

/// A task that belongs to no request, and is posted again and again, one at a time.
pub struct Background<T: Send + 'static> {
    pool: ThreadPool,
    task: NonNull<ngx_thread_task_t>,
    work: fn(&T),
    done: fn(EventLoop, T),
}

struct Posted<T> {
    value: T,
    work: fn(&T),
    done: fn(EventLoop, T),
}

impl<T: Send + 'static> Background<T> {
    /// A task whose `work` a thread does, and whose `done` the event loop; `None` when memory is out. It lies in the
    /// running cycle's pool, and so does the pool of threads: `None` for another's.
    pub fn new(
        here: EventLoop,
        pool: ThreadPool,
        work: fn(&T),
        done: fn(EventLoop, T),
    ) -> Option<Self> {
        pool.running()?;
        let place = crate::cycle::Cycle::current(here).pool()?;
        // SAFETY: the pool of the running cycle.
        let task = unsafe { sys::ngx_thread_task_alloc(place.as_ptr(), 0) };
        NonNull::new(task).map(|task| Background { pool, task, work, done })
    }

    /// Gives it to a thread; gives the value back when it is under way already, or no thread takes it.
    pub fn post(&self, value: T) -> Result<(), T> {
        let Some(pool) = self.pool.running() else { return Err(value) };
        let task = self.task.as_ptr();
        // SAFETY: alive as long as the cycle, which runs; an active task is not touched.
        unsafe {
            if (*task).event.active() != 0 {
                return Err(value);
            }
            let posted = Box::new(Posted { value, work: self.work, done: self.done });
            let posted = Box::into_raw(posted);
            (*task).ctx = posted.cast();
            (*task).handler = Some(run_background::<T>);
            (*task).event.handler = Some(finished_background::<T>);
            (*task).event.data = posted.cast();
            if sys::ngx_thread_task_post(pool, task) != sys::NGX_OK as ngx_int_t {
                return Err(Box::from_raw(posted).value);
            }
        }
        Ok(())
    }
}

unsafe extern "C" fn run_background<T>(posted: *mut c_void, _: *mut ngx_log_t) {
    // SAFETY: made by `post`; until the event nobody else looks at it.
    let posted = unsafe { &*posted.cast::<Posted<T>>() };
    contain("background thread", (), || (posted.work)(&posted.value));
    ssl::leave_thread();
}

unsafe extern "C" fn finished_background<T>(event: *mut ngx_event_t) {
    // SAFETY: made by `post`; the thread has done with it, and the event comes once.
    let posted = unsafe { Box::from_raw((*event).data.cast::<Posted<T>>()) };
    contain("background", (), || {
        // SAFETY: nginx handles events on the event loop.
        (posted.done)(unsafe { EventLoop::here() }, posted.value);
    });
}
