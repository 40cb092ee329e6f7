//! The thread that takes the journal's steps: one of nginx's pool, posted by the worker's timer.

use crate::conf::CoreConf;
use crate::system::log;
use crate::zone::ZoneLock;
use crate::zone::journal::Agent;
use nginx::thread::Background;
use nginx::{EventLoop, now_milliseconds};
use oxigress_store::Store;
use parking_lot::Mutex;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// The same complaint is logged this often.
const REPEAT_MSEC: u64 = 10_000;

/// A worker's journal.
pub struct Journal {
    store: Store,
    pid: u32,
    agent: Arc<Mutex<Agent>>,
    steps: Background<Arc<Mutex<Agent>>>,
    /// A step is under way.
    is_busy: Cell<bool>,
    /// The last complaint, and when it was logged.
    complaint: RefCell<(String, u64)>,
}

impl Journal {
    /// `None` without `ingress_journal`, or when memory is out. `store` and `lock` are those of the cycle's zone.
    pub fn of(
        here: EventLoop,
        core: &CoreConf,
        store: Store,
        lock: ZoneLock,
        pid: u32,
    ) -> Option<Self> {
        let (path, threads) = core.journal_with_threads()?;
        let steps = Background::new(here, threads, |agent| agent.lock().step(), done)?;
        let agent = Arc::new(Mutex::new(Agent::new(store, lock, path, pid)));
        let is_busy = Cell::new(false);
        let complaint = RefCell::default();
        Some(Journal { store, pid, agent, steps, is_busy, complaint })
    }

    /// Asks for a step, unless one is under way or another worker takes them.
    pub fn post(&self) {
        if !self.store.become_agent(self.pid) || self.is_busy.replace(true) {
            return;
        }
        // The thread has its own count, whatever becomes of the worker meanwhile.
        if self.steps.post(Arc::clone(&self.agent)).is_err() {
            self.is_busy.set(false);
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
        let now = now_milliseconds();
        let mut last = self.complaint.borrow_mut();
        if last.0 != complaint || now.wrapping_sub(last.1) >= REPEAT_MSEC {
            log::cycle(log::ERROR, format_args!("ingress_journal: {complaint}"));
            *last = (complaint, now);
        }
    }
}

/// A thread has taken a step.
fn done(here: EventLoop, agent: Arc<Mutex<Agent>>) {
    let Some(journal) = crate::worker::current(here).and_then(|worker| worker.journal()) else {
        return;
    };
    journal.is_busy.set(false);
    let (messages, complaint) = agent.lock().report();
    journal.report(messages, complaint);
}
