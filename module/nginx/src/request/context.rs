//! What a module keeps with a request.

use super::Request;
use crate::conf::kept::{self, HttpCore, Keeper, OfHttp, OfLocation, OfRequest, OfServer};
use crate::conf::module::HttpModule;
use std::ffi::c_void;

impl Request {
    /// What module `M` keeps with this request; `None`: nothing yet. nginx forgets it when it redirects the request
    /// internally.
    #[inline]
    pub fn context<M: HttpModule>(&self) -> Option<&M::Request> {
        self.kept::<kept::Context<M>>()
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
        self.kept::<kept::Main<M>>().expect(MERGED)
    }

    /// What module `M` keeps for the server of the request.
    #[inline]
    pub fn server_conf<M: HttpModule>(&self) -> &M::Server {
        self.kept::<kept::Server<M>>().expect(MERGED)
    }

    /// What module `M` keeps for the location of the request.
    #[inline]
    pub fn location_conf<M: HttpModule>(&self) -> &M::Location {
        self.kept::<kept::Location<M>>().expect(MERGED)
    }
}

impl Request {
    /// `client_max_body_size`; 0: any.
    pub fn max_body_bytes(&self) -> i64 {
        self.location_conf::<HttpCore>().client_max_body_size
    }
}

/// Why something is there that modules keep.
const MERGED: &str = "nginx makes what modules keep for each server and location that it has read";

/// nginx has these arrays for each request, and they stay as long as it.
macro_rules! keeper {
    ($($level:ty = $field:ident;)*) => {$(
        // SAFETY: nginx's array for that level, which stays as long as the request.
        unsafe impl Keeper<$level> for Request {
            #[inline]
            fn array(&self) -> *mut *mut c_void {
                self.peek(|raw| raw.$field)
            }
        }
    )*};
}

keeper! {
    OfHttp = main_conf;
    OfServer = srv_conf;
    OfLocation = loc_conf;
    OfRequest = ctx;
}
