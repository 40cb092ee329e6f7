//! What a module keeps with a request.

use super::Request;
use crate::conf::module::HttpModule;

impl Request {
    /// What module `M` keeps with this request; `None`: nothing yet. nginx forgets it when it redirects the request
    /// internally.
    #[inline]
    pub fn context<M: HttpModule>(&self) -> Option<&M::Request> {
        // SAFETY: nginx has a place for every http module, null or what `set_context` put into the pool.
        unsafe { (*(*self.as_ptr()).ctx.add(M::index())).cast::<M::Request>().as_ref() }
    }

    /// Keeps a new value with this request; `None` when memory is out.
    pub fn new_context<M: HttpModule>(&self, context: M::Request) -> Option<&M::Request> {
        // A pool drops nothing that was allocated in it.
        const { assert!(!std::mem::needs_drop::<M::Request>()) };
        let context = self.pool().alloc(context)?;
        // SAFETY: in the request's pool.
        Some(unsafe { self.set_context::<M>(context) })
    }

    /// Keeps a value that was kept before nginx has redirected the request.
    ///
    /// # Safety
    /// It lies in the request's pool.
    pub unsafe fn set_context<'r, M: HttpModule>(
        &'r self,
        context: &'r M::Request,
    ) -> &'r M::Request {
        // SAFETY: nginx has a place for every http module; the caller promises that the value stays.
        unsafe {
            *(*self.as_ptr()).ctx.add(M::index()) = std::ptr::from_ref(context).cast_mut().cast();
        }
        context
    }

    /// What module `M` keeps for `http`.
    #[inline]
    pub fn main_conf<M: HttpModule>(&self) -> &M::Main {
        // SAFETY: nginx has a configuration of every http module, made by `HttpModule`'s table; it lives as long as the
        // cycle, and so longer than its requests, and is only read when it has been merged.
        unsafe { &*(*(*self.as_ptr()).main_conf.add(M::index())).cast() }
    }

    /// What module `M` keeps for the server of the request.
    #[inline]
    pub fn server_conf<M: HttpModule>(&self) -> &M::Server {
        // SAFETY: nginx has a configuration of every http module for each server, made by `HttpModule`'s table; it lives
        // as long as the cycle, and so longer than its requests, and is only read when it has been merged.
        unsafe { &*(*(*self.as_ptr()).srv_conf.add(M::index())).cast() }
    }

    /// What module `M` keeps for the location of the request.
    #[inline]
    pub fn location_conf<M: HttpModule>(&self) -> &M::Location {
        // SAFETY: nginx has a configuration of every http module for each location, made by `HttpModule`'s table; it
        // lives as long as the cycle, and is only read when it has been merged.
        unsafe { &*(*(*self.as_ptr()).loc_conf.add(M::index())).cast() }
    }
}

impl Request {
    /// The settings of all modules for the location of the request: nginx's array, by the modules' places.
    #[inline]
    pub fn location_settings(&self) -> *mut *mut std::ffi::c_void {
        // SAFETY: copies a pointer out of a live struct.
        unsafe { (*self.as_ptr()).loc_conf }
    }

    /// Other settings in place of the location's.
    ///
    /// # Safety
    /// They are those of a location, for each module, and live as long as the request.
    pub unsafe fn set_location_settings(&self, settings: *mut *mut std::ffi::c_void) {
        // SAFETY: a live struct; the caller promises the rest.
        unsafe { (*self.as_ptr()).loc_conf = settings };
    }

    /// Goes on as if nginx had found the location of these settings, in a phase before its content.
    ///
    /// # Safety
    /// As for [`Request::set_location_settings`].
    pub unsafe fn enter_location(&self, settings: *mut *mut std::ffi::c_void) {
        // SAFETY: a live struct; the caller promises the rest.
        unsafe {
            (*self.as_ptr()).loc_conf = settings;
            (*self.as_ptr()).content_handler = None;
            crate::sys::ngx_http_update_location_config(self.as_ptr());
        }
    }

    /// `client_max_body_size`; 0: any.
    pub fn max_body_bytes(&self) -> i64 {
        // SAFETY: every location has settings of the core module, of this type.
        unsafe {
            let index = crate::sys::ngx_http_core_module.ctx_index;
            let core: *const crate::sys::ngx_http_core_loc_conf_t =
                (*self.location_settings().add(index)).cast();
            (*core).client_max_body_size
        }
    }
}
