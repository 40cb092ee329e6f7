//! Requests that are found again from outside of their callbacks, as long as they are there.

use super::Request;
use crate::sys::ngx_http_request_t;
use std::cell::Cell;
use std::ptr::null_mut;
use std::rc::Rc;

/// A request that may have ended.
pub struct WeakRequest(Rc<Cell<*mut ngx_http_request_t>>);

/// Ends what leads to a request.
struct Forget(Rc<Cell<*mut ngx_http_request_t>>);

impl Drop for Forget {
    fn drop(&mut self) {
        self.0.set(null_mut());
    }
}

impl Request {
    /// A way to find it again; `None` of a subrequest, and when memory is out.
    pub fn weak(&self) -> Option<WeakRequest> {
        // nginx takes the pool away from the main request alone before it cleans up, by which `alive` knows that it has ended.
        if !self.is_main() {
            return None;
        }
        let place = Rc::new(Cell::new(self.as_ptr()));
        self.pool().keep(Forget(Rc::clone(&place)))?;
        Some(WeakRequest(place))
    }
}

impl WeakRequest {
    /// Looks at the request; `None`: it has ended.
    pub fn with<T>(&self, look: impl FnOnce(&Request) -> T) -> Option<T> {
        self.alive().map(look)
    }

    /// nginx's request; null when it has ended. nginx takes the pool away from a request before it runs what the pool has
    /// to clean up: from then on it has ended for everybody.
    fn alive(&self) -> Option<&Request> {
        // SAFETY: null, or a struct in a pool that is there until its clean-ups have run: those take the pointer away. A request
        // is ended by nginx only, from callbacks, and by unsafe functions, and so not while it is looked at.
        let request = unsafe { Request::from_nullable(self.0.get()) };
        request.filter(|request| request.peek(|raw| !raw.pool.is_null()))
    }

    /// Runs the request's phase again, if it has not ended.
    ///
    /// # Safety
    /// It may end by that: the caller has no reference to it, and this is not one of its callbacks.
    pub unsafe fn resume(&self) {
        if let Some(raw) = self.alive().map(Request::as_ptr) {
            // SAFETY: alive, as its pool has not gone; nothing refers to it and no callback of it is on the stack, as the
            // contract says.
            unsafe { Request::resume(raw) };
        }
    }
}
