//! The thread that takes the journal's steps: one of nginx's pool, posted by the worker's timer.

use super::{directives, guard, log};
use crate::ffi::ZoneLock;
use crate::journal::Agent;
use nginx::sys::{
    NGX_OK, ngx_current_msec, ngx_cycle_t, ngx_event_t, ngx_log_t, ngx_msec_t, ngx_thread_pool_t,
    ngx_thread_task_alloc, ngx_thread_task_post, ngx_thread_task_t,
};
use oxigress_store::Store;
use parking_lot::Mutex;
use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::sync::Arc;

/// The same complaint is logged this often.
const REPEAT_MSEC: ngx_msec_t = 10_000;

/// A worker's journal.
pub struct Journal {
    store: Store,
    pid: u32,
    agent: Arc<Mutex<Agent>>,
    pool: *mut ngx_thread_pool_t,
    task: *mut ngx_thread_task_t,
    /// A step is under way.
    is_busy: Cell<bool>,
    /// No more steps are taken.
    is_over: Cell<bool>,
    /// The last complaint, and when it was logged.
    complaint: RefCell<(String, ngx_msec_t)>,
}

impl Journal {
    /// `None` without `ingress_journal`, or when memory is out.
    ///
    /// # Safety
    /// `cycle` is the running cycle, and `store` and `lock` are its zone's.
    pub unsafe fn of(
        cycle: *mut ngx_cycle_t,
        store: Store,
        lock: ZoneLock,
        pid: u32,
    ) -> Option<Self> {
        // SAFETY: vouched for by the caller.
        let (path, pool) = unsafe { directives::journal_of(cycle) }?;
        // SAFETY: the cycle's pool lives as long as the worker.
        let task = unsafe { ngx_thread_task_alloc((*cycle).pool, 0) };
        if task.is_null() {
            return None;
        }
        let agent = Arc::new(Mutex::new(Agent::new(store, lock, path, pid)));
        let (is_busy, is_over) = (Cell::new(false), Cell::new(false));
        let complaint = RefCell::default();
        Some(Journal { store, pid, agent, pool, task, is_busy, is_over, complaint })
    }

    /// Asks for a step, unless one is under way or another worker takes them.
    pub fn post(&self) {
        if self.is_over.get() || !self.store.become_agent(self.pid) || self.is_busy.replace(true) {
            return;
        }
        // Alive until [`done`] has it back, whatever becomes of the worker meanwhile.
        let agent = Arc::into_raw(Arc::clone(&self.agent)).cast_mut().cast();
        // SAFETY: the task is free; the pool belongs to the running cycle.
        unsafe {
            (*self.task).ctx = agent;
            (*self.task).handler = Some(run);
            (*self.task).event.handler = Some(done);
            (*self.task).event.data = agent;
            if ngx_thread_task_post(self.pool, self.task) != NGX_OK as isize {
                drop(Arc::from_raw(agent.cast::<Mutex<Agent>>()));
                self.is_busy.set(false);
            }
        }
    }

    /// Takes no more steps.
    pub fn end(&self) {
        if !self.is_over.replace(true) {
            self.finish();
        }
    }

    /// Lets another worker take the steps: this one is about to end, which may take hours.
    pub fn leave(&self) {
        if !self.is_busy.get() {
            self.finish();
        }
    }

    /// Writes what is left, when the worker ends. Waits for a step that is under way.
    pub fn finish(&self) {
        let mut agent = self.agent.lock();
        agent.finish();
        let (messages, complaint) = agent.report();
        self.report(messages, complaint);
    }

    fn report(&self, messages: Vec<String>, complaint: Option<String>) {
        for message in messages {
            log::cycle(log::NOTICE, format_args!("ingress_journal: {message}"));
        }
        let Some(complaint) = complaint else { return };
        // SAFETY: a number that nginx's event loop sets.
        let now = unsafe { ngx_current_msec };
        let mut last = self.complaint.borrow_mut();
        if last.0 != complaint || now.wrapping_sub(last.1) >= REPEAT_MSEC {
            log::cycle(log::ERROR, format_args!("ingress_journal: {complaint}"));
            *last = (complaint, now);
        }
    }
}

/// On a thread of the pool: touches nothing of nginx.
unsafe extern "C" fn run(agent: *mut c_void, _: *mut ngx_log_t) {
    // SAFETY: `post` keeps it alive for this task.
    let agent = unsafe { &*agent.cast::<Mutex<Agent>>() };
    guard::contain("ingress_journal thread", (), || agent.lock().step());
}

/// nginx's callback on the event loop when the thread is done.
unsafe extern "C" fn done(event: *mut ngx_event_t) {
    guard::contain("ingress_journal", (), || {
        // SAFETY: `post` made it from an `Arc`; this is the one callback of the task.
        let agent = unsafe { Arc::from_raw((*event).data.cast::<Mutex<Agent>>()) };
        // SAFETY: on the event loop.
        let Some(journal) = (unsafe { super::worker::current() }).and_then(|w| w.journal()) else {
            return;
        };
        journal.is_busy.set(false);
        let (messages, complaint) = agent.lock().report();
        journal.report(messages, complaint);
    });
}
