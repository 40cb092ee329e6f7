//! TLS passthrough: the server name decides between nginx's own two handlers, `proxy_pass` and `pass`.
//!
//! `ssl_preread` ends the PREREAD phase with its answer, so no phase handler of ours would run behind it: the content
//! handler is wrapped instead.

use super::{SrvConf, variable};
use crate::ffi::table::stream_index;
use crate::ffi::{guard, memory, worker};
use crate::stream;
use nginx_sys::{ngx_str_t, ngx_stream_session_t};

/// A backend's id as a session keeps it, in its pool.
#[repr(transparent)]
pub struct Decision(pub ngx_str_t);

// SAFETY: the only one that is shared is `OUT_OF_MEMORY`, which nobody writes.
unsafe impl Sync for Decision {}

/// The session is to end, not to be terminated here: it goes to a backend that does not exist.
static OUT_OF_MEMORY: Decision = Decision(ngx_str_t::empty());

/// nginx's callback when the server name has been read, or could not be.
pub unsafe extern "C" fn handler(session: *mut ngx_stream_session_t) {
    // SAFETY: nginx runs this server's handler, so `postconfiguration` has set both.
    let conf = unsafe { &*(*(*session).srv_conf.add(stream_index())).cast::<SrvConf>() };
    let is_passed_through = guard::contain("passthrough", false, || {
        // SAFETY: nginx gives a live session, on the event loop.
        unsafe { decide(session, conf) }
    });
    if let Some(handler) = if is_passed_through { conf.proxy } else { conf.pass } {
        // SAFETY: nginx's own, with the session it gave; it may free it.
        unsafe { handler(session) };
    }
}

/// # Safety
/// `session` is alive, `conf` its server's, and this is the event loop's thread.
unsafe fn decide(session: *mut ngx_stream_session_t, conf: &SrvConf) -> bool {
    // SAFETY: vouched for by the caller.
    let Some(worker) = (unsafe { worker::current() }) else { return false };
    // SAFETY: as above.
    let Some(name) = (unsafe { variable(session, conf.server_name) }) else { return false };
    // SAFETY: nginx keeps the value in the session's pool.
    let name = unsafe { memory::bytes(name) };
    let decision = stream::passthrough(worker, name, |backend| {
        // SAFETY: the pool is alive, and zeroes are a decision.
        unsafe {
            let pool = (*(*session).connection).pool;
            let decision: *mut Decision = memory::zeroed(pool);
            match (decision.as_mut(), memory::concat(pool, &[backend])) {
                (Some(place), Some(text)) => place.0 = text,
                _ => return &raw const OUT_OF_MEMORY,
            }
            decision.cast_const()
        }
    });
    let Some(decision) = decision else { return false };
    // SAFETY: nginx makes one pointer a module for each session.
    unsafe { *(*session).ctx.add(stream_index()) = decision.cast_mut().cast() };
    true
}
