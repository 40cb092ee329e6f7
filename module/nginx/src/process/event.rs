//! Timers and posted events, with closures.

use crate::basic::event_loop::EventLoop;
use crate::basic::guard::contain;
use crate::basic::log::Log;
use crate::connection::Event;
use crate::sys;
use crate::sys::{global, ngx_connection_t, ngx_event_t};
use std::cell::UnsafeCell;
use std::rc::Rc;

/// What nginx keeps of an event of ours; it stays where it is.
struct Inner {
    event: Event,
    /// nginx's debug log wants every event to belong to a connection.
    connection: UnsafeCell<ngx_connection_t>,
    callback: Box<dyn Fn(EventLoop) -> Option<usize>>,
}

/// Owns an event of ours, and takes it back when it is dropped: by the event's own closure, too.
struct Owned(Rc<Inner>);

/// A timer of the process, which calls a closure again and again. It is taken back when it is dropped, and a worker that
/// shuts down does not wait for it.
pub struct Timer {
    _event: Owned,
}

/// An event that runs a closure at the end of the turn in which it was posted. It is taken back when it is dropped.
pub struct Posted(Owned);

fn make(_: EventLoop, callback: Box<dyn Fn(EventLoop) -> Option<usize>>) -> Owned {
    assert!(super::handles_events(), "this process handles no events yet: begin in init_process");
    let (handler, log) = (Some(happened as _), Log::of_cycle().as_ptr());
    let event = Event::of(ngx_event_t { handler, log, ..ngx_event_t::default() });
    let connection = UnsafeCell::new(ngx_connection_t { fd: -1, ..ngx_connection_t::default() });
    let inner = Rc::new(Inner { event, connection, callback });
    // SAFETY: made above, and nobody else has it.
    unsafe {
        (*inner.connection.get()).data = Rc::as_ptr(&inner).cast_mut().cast();
        (*inner.event.as_ptr()).data = inner.connection.get().cast();
    }
    Owned(inner)
}

unsafe extern "C" fn happened(event: *mut ngx_event_t) {
    // SAFETY: the event of an `Inner` that is owned, whose connection leads back to it; nginx handles events on the event loop.
    // It is counted once more meanwhile, since its closure may drop the owner.
    let (inner, here) = unsafe {
        let inner = (*(*event).data.cast::<ngx_connection_t>()).data.cast::<Inner>().cast_const();
        Rc::increment_strong_count(inner);
        (Rc::from_raw(inner), EventLoop::here())
    };
    let after = contain("event", Some(AFTER_PANIC), || (inner.callback)(here));
    // Nobody would take it back again if its owner is gone.
    if let Some(milliseconds) = after.filter(|_| Rc::strong_count(&inner) > 1) {
        // SAFETY: the event stays until its owner takes it back.
        unsafe { sys::ngx_add_timer(event, milliseconds) };
    }
    // The last one drops the closure, and with it what that has.
    contain("event", (), || drop(inner));
}

impl Drop for Owned {
    fn drop(&mut self) {
        let event = self.0.event.as_ptr();
        // SAFETY: alive; an owner is neither `Send` nor `Sync`, so this is the event loop's thread.
        unsafe {
            if (*event).timer_set() != 0 {
                sys::ngx_del_timer(event);
            }
            if (*event).posted() != 0 {
                sys::ngx_delete_posted_event(event);
            }
        }
    }
}

/// A timer whose closure panicked comes again after so many milliseconds.
const AFTER_PANIC: usize = 1_000;

impl Timer {
    /// Calls `callback` after so many milliseconds, and then each time after as many as it answers; `None` ends it.
    pub fn start(
        here: EventLoop,
        milliseconds: usize,
        callback: impl Fn(EventLoop) -> Option<usize> + 'static,
    ) -> Self {
        let owned = make(here, Box::new(callback));
        let event = owned.0.event.as_ptr();
        // SAFETY: made above; it stays until its owner is dropped, which takes the event back.
        unsafe {
            (*event).set_cancelable(1);
            sys::ngx_add_timer(event, milliseconds);
        }
        Timer { _event: owned }
    }
}

impl Posted {
    /// An event that is not posted yet.
    pub fn new(here: EventLoop, callback: impl Fn(EventLoop) + 'static) -> Self {
        // A panic ends here: whatever `happened` answers for one would arm a timer, which only a `Timer` takes back.
        Posted(make(
            here,
            Box::new(move |here| {
                contain("event", (), || callback(here));
                None
            }),
        ))
    }

    /// Runs the closure at the end of this turn of the event loop, once.
    #[inline]
    pub fn post(&self) {
        self.0.0.event.post(false);
    }

    /// Runs the closure at the beginning of the next turn, once; nginx does not wait before that.
    #[inline]
    pub fn post_for_next_turn(&self) {
        self.0.0.event.post(true);
    }
}

/// nginx ends when its last connections have.
pub fn is_exiting(_: EventLoop) -> bool {
    global!(ngx_exiting) != 0
}

/// nginx ends at once.
pub fn is_terminating(_: EventLoop) -> bool {
    global!(ngx_terminate) != 0
}
