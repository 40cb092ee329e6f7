//! Timers and posted events, with closures.

use crate::basic::guard::contain;
use crate::basic::log::Log;
use crate::process::event_loop::EventLoop;
use crate::sys;
use crate::sys::{global, ngx_connection_t, ngx_event_t};
use std::cell::UnsafeCell;

/// What nginx keeps of an event of ours; it stays where it is.
#[repr(C)]
struct Inner {
    event: UnsafeCell<ngx_event_t>,
    /// nginx's debug log wants every event to belong to a connection.
    connection: UnsafeCell<ngx_connection_t>,
    callback: Box<dyn Fn(EventLoop) -> Option<usize>>,
}

/// A timer of the process, which calls a closure again and again. It is taken back when it is dropped, and a worker that
/// shuts down does not wait for it.
pub struct Timer(*mut Inner);

/// An event that runs a closure at the end of the turn in which it was posted. It is taken back when it is dropped.
pub struct Posted(*mut Inner);

fn make(_: EventLoop, callback: Box<dyn Fn(EventLoop) -> Option<usize>>) -> *mut Inner {
    let (handler, log) = (Some(happened as _), Log::of_cycle().as_ptr());
    let event = UnsafeCell::new(ngx_event_t { handler, log, ..ngx_event_t::default() });
    let connection = UnsafeCell::new(ngx_connection_t { fd: -1, ..ngx_connection_t::default() });
    let inner = Box::into_raw(Box::new(Inner { event, connection, callback }));
    // SAFETY: made above, and nobody else has it. The event comes first, so its handler finds the rest.
    unsafe {
        (*(*inner).connection.get()).data = inner.cast();
        (*(*inner).event.get()).data = (*inner).connection.get().cast();
    }
    inner
}

unsafe extern "C" fn happened(event: *mut ngx_event_t) {
    // SAFETY: the event of a live `Inner`, whose connection leads back to it; on the event loop.
    let inner = unsafe { &*(*(*event).data.cast::<ngx_connection_t>()).data.cast::<Inner>() };
    // SAFETY: nginx handles events on the event loop.
    let here = unsafe { EventLoop::here() };
    let after = contain("event", Some(AFTER_PANIC), || (inner.callback)(here));
    if let Some(milliseconds) = after {
        // SAFETY: the event stays until its owner takes it back.
        unsafe { sys::ngx_add_timer(event, milliseconds) };
    }
}

/// A timer whose closure panicked comes again after so many milliseconds.
const AFTER_PANIC: usize = 1_000;

impl Timer {
    /// Calls `callback` after so many milliseconds, and then each time after as many as it answers; `None` ends it.
    ///
    /// The closure may not drop its own timer.
    pub fn start(
        here: EventLoop,
        milliseconds: usize,
        callback: impl Fn(EventLoop) -> Option<usize> + 'static,
    ) -> Self {
        let inner = make(here, Box::new(callback));
        // SAFETY: made above; it stays until the timer is dropped, which takes the event back.
        unsafe {
            (*(*inner).event.get()).set_cancelable(1);
            sys::ngx_add_timer((*inner).event.get(), milliseconds);
        }
        Timer(inner)
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: made by `start`, dropped once; a timer is neither `Send` nor `Sync`, so this is the event loop's thread.
        unsafe {
            let event = (*self.0).event.get();
            if (*event).timer_set() != 0 {
                sys::ngx_del_timer(event);
            }
            drop(Box::from_raw(self.0));
        }
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
        // SAFETY: made by `new`; it stays until this is dropped, which takes the event back.
        unsafe { sys::ngx_post_event((*self.0).event.get(), &raw mut sys::ngx_posted_events) };
    }
}

impl Drop for Posted {
    fn drop(&mut self) {
        // SAFETY: made by `new`, dropped once, on the event loop's thread.
        unsafe {
            let event = (*self.0).event.get();
            if (*event).posted() != 0 {
                sys::ngx_delete_posted_event(event);
            }
            drop(Box::from_raw(self.0));
        }
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
