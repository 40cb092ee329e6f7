//! Passwords: what a client says, and what nginx makes of it.

use super::Request;
use crate::basic::log::Log;
use crate::basic::text::bytes;
use crate::sys;
use crate::sys::{ngx_crypt, ngx_http_auth_basic_user, ngx_int_t};
use std::ffi::CStr;
use std::ptr::null_mut;

impl Request {
    /// Name and password in `Authorization: Basic`, as nginx reads them; `None`: there are none.
    pub fn credentials(&self) -> Option<(&[u8], &[u8])> {
        // SAFETY: a live request; nginx decodes both into its pool.
        unsafe {
            if ngx_http_auth_basic_user(self.as_ptr()) != sys::NGX_OK as ngx_int_t {
                return None;
            }
            let headers = &(*self.as_ptr()).headers_in;
            Some((bytes(headers.user), bytes(headers.passwd)))
        }
    }
}

/// Hashes a password as `salt` says, a hash of any kind that nginx knows, and shows what came out, which is overwritten
/// then: of some kinds it is the password. `None`: nginx does not know the kind, or memory is out. On any thread, since it
/// takes tens of milliseconds.
pub fn crypt<T>(
    log: &Log,
    password: &CStr,
    salt: &CStr,
    look: impl FnOnce(&[u8]) -> T,
) -> Option<T> {
    // SAFETY: the thread's own log.
    let pool = unsafe { sys::ngx_create_pool(1024, log.as_ptr()) };
    if pool.is_null() {
        return None;
    }
    let mut encrypted: *mut u8 = null_mut();
    let (key, salt) = (password.as_ptr().cast_mut().cast(), salt.as_ptr().cast_mut().cast());
    // SAFETY: nginx reads both texts up to their NUL.
    let code = unsafe { ngx_crypt(pool, key, salt, &raw mut encrypted) };
    let mut seen = None;
    if code == sys::NGX_OK as ngx_int_t && !encrypted.is_null() {
        // SAFETY: a text in the pool that ends with a NUL, and nobody else has it; its own bytes are overwritten when `look` has
        // seen it.
        unsafe {
            let text = std::slice::from_raw_parts_mut(encrypted, libc::strlen(encrypted.cast()));
            seen = Some(look(text));
            crate::basic::wiping::wipe(text.as_mut_ptr(), text.len());
        }
    }
    // SAFETY: made above, and nothing of it is used any more.
    unsafe { sys::ngx_destroy_pool(pool) };
    seen
}
