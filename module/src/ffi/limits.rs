//! Limits: their directive, their shared memory, and the PREACCESS phase.
//!
//! A zone apart from `ingress_zone`: that one is copied when it changes its size, and its writers take it as a whole.
//! This one has no writer, a reload keeps it, and where it is new its counts begin at nothing.

use super::directives::{self, Answer, CoreConf, OK};
use super::memory::{self, monotonic_nanoseconds, random};
use super::{Request, guard, log, table};
use crate::limits;
use nginx::sys::{
    NGX_DECLINED, NGX_ERROR, NGX_HTTP_SERVICE_UNAVAILABLE, NGX_OK, ngx_command_t, ngx_conf_t,
    ngx_cycle_t, ngx_http_request_t, ngx_int_t, ngx_pagesize, ngx_parse_size,
    ngx_shared_memory_add, ngx_shm_zone_t, ngx_slab_alloc, ngx_slab_pool_t, ngx_str_t,
};
use oxigress_core::policy::limits::Counts;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Where the counts lie in the zone. Stands in the zone itself, for a reload to find.
#[repr(C)]
struct Place {
    start: *const AtomicU64,
    words: usize,
}

/// `ingress_limits SIZE;`
pub unsafe extern "C" fn ingress_limits(
    cf: *mut ngx_conf_t,
    _: *mut ngx_command_t,
    conf: *mut c_void,
) -> Answer {
    // SAFETY: nginx runs one directive at a time, with the configuration it reads; `conf` is the core module's.
    guard::contain("ingress_limits", directives::refused(), || unsafe {
        let conf = &mut *conf.cast::<CoreConf>();
        if !conf.limits.is_null() {
            return c"is duplicate".as_ptr().cast_mut();
        }
        let [_, size] = directives::arguments(cf) else { return directives::refused() };
        let mut text = *size;
        let parsed = usize::try_from(ngx_parse_size(&raw mut text)).ok();
        let Some(size) = parsed.filter(|size| *size >= 8 * ngx_pagesize) else {
            let (shown, least) = (memory::bytes(text).escape_ascii(), 8 * ngx_pagesize / 1024);
            let reason =
                format_args!("invalid size \"{shown}\": it is a number of at least {least}k");
            return directives::refuse(cf, reason);
        };
        let mut name = ngx_str_t { len: NAME.len(), data: NAME.as_ptr().cast_mut() };
        // Not the tag of `ingress_zone`, which looks for its last zone by that.
        let tag = &raw mut table::ngx_http_ingress_module as *mut c_void;
        let zone = ngx_shared_memory_add(cf, &raw mut name, size, tag);
        if zone.is_null() {
            return directives::refused();
        }
        (*zone).init = Some(init_zone);
        conf.limits = zone;
        OK
    })
}

const NAME: &str = "ingress_limits";

/// nginx's callback for a zone that is new (`data` null) or taken over from the last cycle.
unsafe extern "C" fn init_zone(zone: *mut ngx_shm_zone_t, data: *mut c_void) -> ngx_int_t {
    let place = guard::contain("init_zone", None, || {
        if data.is_null() {
            // SAFETY: nginx has mapped the zone and made a slab pool in it.
            return unsafe { create(zone) };
        }
        // SAFETY: what this function stored for the last cycle.
        let is_ours = unsafe { open(data.cast()) }.is_some();
        is_ours.then_some(data.cast())
    });
    let Some(place) = place else {
        log::cycle(log::ALERT, format_args!("ingress_limits: the zone is too small or damaged"));
        return NGX_ERROR as ngx_int_t;
    };
    // SAFETY: nginx gives the zone it is initialising.
    unsafe { (*zone).data = place.cast() };
    NGX_OK as ngx_int_t
}

/// # Safety
/// `zone` is mapped, with a fresh slab pool.
unsafe fn create(zone: *mut ngx_shm_zone_t) -> Option<*mut Place> {
    // SAFETY: the slab pool begins the mapping.
    let pool: *mut ngx_slab_pool_t = unsafe { (*zone).shm.addr }.cast();
    // SAFETY: a fresh pool, no worker runs yet.
    let place: *mut Place = unsafe { ngx_slab_alloc(pool, size_of::<Place>()) }.cast();
    // SAFETY: reads two numbers. All pages that are left, in one block.
    let bytes = unsafe { (*pool).pfree * ngx_pagesize };
    // SAFETY: as above.
    let start: *mut u8 = unsafe { ngx_slab_alloc(pool, bytes) }.cast();
    if place.is_null() || start.is_null() {
        return None;
    }
    let words = bytes / size_of::<AtomicU64>();
    // SAFETY: allocated above, whole pages; zeroes are a value of atomics.
    unsafe { start.write_bytes(0, bytes) };
    // SAFETY: as above, and nobody else's.
    unsafe { place.write(Place { start: start.cast(), words }) };
    // SAFETY: written above, in memory that stays mapped as long as the zone.
    let block = unsafe { words_of(place) }?;
    Counts::create(block, [random(), random()], monotonic_nanoseconds())?;
    // SAFETY: the pool is alive; nginx finds the data there when it re-attaches a zone.
    unsafe { (*pool).data = place.cast() };
    Some(place)
}

/// # Safety
/// `place` is null or was made by [`create`], and its zone stays mapped while the words are used.
unsafe fn words_of(place: *const Place) -> Option<&'static [AtomicU64]> {
    // SAFETY: vouched for by the caller.
    let Place { start, words } = unsafe { place.as_ref() }?;
    let start = NonNull::new(start.cast_mut())?;
    // SAFETY: the block that `create` allocated; atomics that all processes share.
    Some(unsafe { std::slice::from_raw_parts(start.as_ptr(), *words) })
}

/// # Safety
/// As for [`words_of`].
unsafe fn open(place: *const Place) -> Option<Counts<'static>> {
    // SAFETY: vouched for by the caller.
    Counts::open(unsafe { words_of(place) }?)
}

/// What all workers count together; `None` without `ingress_limits`.
///
/// # Safety
/// `cycle` runs, and its zones stay mapped while the counts are used.
pub unsafe fn counts_of(cycle: *mut ngx_cycle_t) -> Option<Counts<'static>> {
    // SAFETY: vouched for by the caller; `init_zone` stored the place.
    unsafe {
        let zone = directives::limits_zone_of(cycle).as_ref()?;
        open(zone.data.cast())
    }
}

/// nginx's callback for each request in its PREACCESS phase.
pub unsafe extern "C" fn preaccess_handler(raw: *mut ngx_http_request_t) -> ngx_int_t {
    // A limit that cannot be looked at closes.
    let closed = Some(NGX_HTTP_SERVICE_UNAVAILABLE as u16);
    let refused = guard::contain("preaccess", closed, || {
        // SAFETY: nginx runs this phase for a live request, on the event loop.
        let request = unsafe { Request::from_callback(raw) }?;
        // nginx runs the phases once more for the answer of an error backend.
        if request.is_error() {
            return None;
        }
        limits::decide(&request, request.policies()?)
    });
    match refused {
        None => NGX_DECLINED as ngx_int_t,
        Some(status) => ngx_int_t::from(status as i16),
    }
}
