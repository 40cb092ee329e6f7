//! Counts the sessions that a worker has open, and closes those that are too many.

use crate::stream::say;
use crate::system::log::Seldom;
use crate::worker;
use crate::worker::Worker;
use nginx::stream::Session;
use nginx::{Cycle, EventLoop};
use oxigress_core::balancer::sessions::{OpenSessions, SessionOwner};
use std::cell::RefCell;

/// The sessions that a worker has open.
#[derive(Default)]
pub struct Open(RefCell<OpenSessions>);

/// Counts a session until its pool goes; false: it is to be closed, which the log says.
pub fn begin(worker: &Worker, session: &Session, owner: SessionOwner) -> bool {
    let here = session.event_loop();
    let connections = Cycle::with_current(here, Cycle::connections);
    let Ok(mut open) = worker.part::<Open>().0.try_borrow_mut() else { return false };
    if let Err(why) = open.begin(connections, &owner) {
        static SELDOM: Seldom = Seldom::new();
        if SELDOM.is_due() {
            say(session, format_args!("session closed: {why}"));
        }
        return false;
    }
    drop(open);
    // Without memory it is dropped, and so no longer counted.
    session.pool().keep(Counted { here, owner }).is_some()
}

/// A session that is counted.
struct Counted {
    here: EventLoop,
    owner: SessionOwner,
}

impl Drop for Counted {
    fn drop(&mut self) {
        let Some(worker) = worker::current(self.here) else { return };
        if let Ok(mut open) = worker.part::<Open>().0.try_borrow_mut() {
            open.end(&self.owner);
        }
    }
}
