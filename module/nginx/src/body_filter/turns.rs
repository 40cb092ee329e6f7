//! Turns of the event loop: how much of one the encoders of a worker may take together, and who is
//! next.
//!
//! What stops for want of time waits in a queue, and is called in another turn; who comes meanwhile
//! waits behind. A filter of nginx's stops only where the socket is full, and nginx calls it again
//! and again where it is not: so the socket seems full until it is the response's turn.

use super::Resume;
use crate::basic::event_loop::ForProcess;
use crate::process::event::Posted;
use crate::request::{Request, WeakRequest};
use crate::sys::global;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

static TURNS: ForProcess<Turns> = ForProcess::new();

/// What the encoders of a worker have taken of this turn, and who waits for another.
#[derive(Default)]
struct Turns {
    /// nginx looks at the clock once in a turn: the same time is the same turn, or one right behind
    /// it.
    at_msec: Cell<usize>,
    spent: Cell<usize>,
    /// What all may take in a turn.
    most: Cell<usize>,
    waiting: RefCell<VecDeque<Rc<Waiter>>>,
    /// Whose turn it was last.
    called: RefCell<Option<Rc<Waiter>>>,
    event: OnceCell<Posted>,
}

/// A response that waits.
struct Waiter {
    request: WeakRequest,
    resume: Resume,
    is_queued: Cell<bool>,
    /// It is its turn.
    is_called: Cell<bool>,
}

/// A response's place among those of its worker.
#[derive(Default)]
pub struct Place(OnceCell<Rc<Waiter>>);

impl Place {
    /// How many bytes may be given to an encoder in this turn, of `most` for all.
    pub fn left(&self, request: &Request, most: usize) -> usize {
        let turns = Turns::get(request);
        let is_called = self.0.get().is_some_and(|waiter| waiter.is_called.get());
        if !is_called && !turns.waiting.borrow().is_empty() {
            return 0;
        }
        turns.most.set(most);
        most.saturating_sub(turns.spent_now())
    }

    /// So many were given.
    pub fn spend(&self, request: &Request, bytes: usize) {
        let turns = Turns::get(request);
        turns.spent.set(turns.spent_now().saturating_add(bytes));
    }

    /// The response needs no other turn, for now.
    pub fn leave(&self) {
        self.0.get().into_iter().for_each(|waiter| waiter.is_called.set(false));
    }

    /// Has nginx go on with the response in another turn; `None` when memory is out.
    pub fn wait(&self, request: &Request, resume: Resume) -> Option<()> {
        if self.0.get().is_none() {
            let (is_queued, is_called) = (Cell::new(false), Cell::new(false));
            let waiter = Waiter { request: request.weak()?, resume, is_queued, is_called };
            let _ = self.0.set(Rc::new(waiter));
        }
        let waiter = self.0.get()?;
        waiter.is_called.set(false);
        hold(request, true);
        let turns = Turns::get(request);
        if !waiter.is_queued.replace(true) {
            turns.waiting.borrow_mut().push_back(Rc::clone(waiter));
        }
        let here = request.event_loop();
        let call = |here| TURNS.get(here).into_iter().for_each(Turns::call_next);
        turns.event.get_or_init(|| Posted::new(here, call)).post_for_next_turn();
        Some(())
    }
}

/// Has a client's socket seem full, or no longer.
fn hold(request: &Request, is_held: bool) {
    let event = request.connection().write_event();
    event.set_ready(!is_held);
    // HTTP/2's copy of a connection says so itself where a stream has no room: nginx would have the
    // kernel tell about a descriptor that it knows by the connection.
    if request.is_http2() {
        event.set_active(is_held);
    }
}

impl Turns {
    fn get(request: &Request) -> &'static Turns {
        let here = request.event_loop();
        TURNS.get(here).unwrap_or_else(|| TURNS.set(here, Turns::default()))
    }

    /// Has the last that was called go on where its write event did not: what nginx has received
    /// and not handed on it looks at when more comes, and not because there is room to write.
    fn make_sure(&self) {
        let Some(waiter) = self.called.take().filter(|waiter| waiter.is_called.get()) else {
            return;
        };
        waiter.request.with(|request| {
            (waiter.resume)(request);
            // Where the client takes no more, nginx has the kernel tell when it does.
            request.connection().write_event().post(false);
        });
    }

    /// What was spent in this turn.
    fn spent_now(&self) -> usize {
        let now = global!(ngx_current_msec);
        if self.at_msec.replace(now) != now {
            self.spent.set(0);
        }
        self.spent.get()
    }

    /// The first that waits goes on, and then the next as long as there is time left in this turn,
    /// else in another.
    fn call_next(&self) {
        self.make_sure();
        let Some(event) = self.event.get().filter(|_| !self.waiting.borrow().is_empty()) else {
            return;
        };
        if self.spent_now() >= self.most.get() {
            return event.post_for_next_turn();
        }
        loop {
            let Some(waiter) = self.waiting.borrow_mut().pop_front() else { return };
            waiter.is_queued.set(false);
            let called = waiter.request.with(|request| {
                waiter.is_called.set(true);
                hold(request, false);
                request.connection().write_event().post(false);
            });
            // Some have ended meanwhile.
            if called.is_some() {
                self.called.replace(Some(waiter));
                break;
            }
        }
        // Behind that of the request.
        event.post();
    }
}
