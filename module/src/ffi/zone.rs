//! The shared memory zone: made by the master, inherited by every worker, kept by a reload.

use super::log;
use super::memory::random;
use nginx_sys::{
    NGX_ERROR, NGX_OK, ngx_int_t, ngx_pagesize, ngx_shm_zone_t, ngx_shmtx_trylock,
    ngx_shmtx_unlock, ngx_slab_alloc, ngx_slab_pool_t,
};
use oxigress_store::{Store, WriterLock};
use std::ffi::c_void;
use std::ptr::NonNull;

/// Where the store's memory lies in the zone. Stands in the zone itself, for a reload to find.
#[repr(C)]
struct Place {
    start: *mut u8,
    bytes: usize,
}

/// nginx's callback for a zone that is new (`data` null) or taken over from the last cycle.
pub unsafe extern "C" fn init_zone(zone: *mut ngx_shm_zone_t, data: *mut c_void) -> ngx_int_t {
    let result = super::guard::contain("init_zone", Err("it panicked".into()), || {
        if data.is_null() {
            // SAFETY: nginx has mapped the zone and made a slab pool in it.
            unsafe { create(zone) }
        } else {
            // SAFETY: `data` is what this function stored for the last cycle.
            unsafe { adopt(data.cast()) }
        }
    });
    match result {
        Ok(place) => {
            // SAFETY: nginx gives the zone it is initialising.
            unsafe { (*zone).data = place.cast() };
            NGX_OK as ngx_int_t
        }
        Err(reason) => {
            log::cycle(log::ALERT, format_args!("ingress_zone: {reason}"));
            NGX_ERROR as ngx_int_t
        }
    }
}

/// # Safety
/// `zone` is mapped, with a fresh slab pool.
unsafe fn create(zone: *mut ngx_shm_zone_t) -> Result<*mut Place, String> {
    // SAFETY: the slab pool begins the mapping.
    let pool: *mut ngx_slab_pool_t = unsafe { (*zone).shm.addr }.cast();
    // SAFETY: a fresh pool, no worker runs yet.
    let place: *mut Place = unsafe { ngx_slab_alloc(pool, size_of::<Place>()) }.cast();
    // All pages that are left, in one block: the store manages them itself, since nginx's slab stays broken
    // when a process is killed inside it.
    // SAFETY: reads two numbers.
    let bytes = unsafe { (*pool).pfree * ngx_pagesize };
    // SAFETY: as above.
    let start: *mut u8 = unsafe { ngx_slab_alloc(pool, bytes) }.cast();
    let (Some(start), false) = (NonNull::new(start), place.is_null()) else {
        return Err("the zone is too small: give it 1m or more".into());
    };
    // The zone holds private keys: they stay out of core files. Advice, so a refusal is no error.
    // SAFETY: whole pages of the mapping.
    unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_DONTDUMP) };
    // SAFETY: page-aligned, mapped as long as the zone, and nobody else's.
    unsafe { Store::create(start, bytes, [random(), random()], random(), is_alive) }
        .map_err(|error| error.to_string())?;
    // SAFETY: allocated above.
    unsafe { place.write(Place { start: start.as_ptr(), bytes }) };
    // SAFETY: the pool is alive; nginx finds the data there when it re-attaches a zone.
    unsafe { (*pool).data = place.cast() };
    Ok(place)
}

/// # Safety
/// `place` was made by [`create`] in a zone that is mapped.
unsafe fn adopt(place: *mut Place) -> Result<*mut Place, String> {
    // SAFETY: vouched for by the caller.
    unsafe { open(place) }.map(|_| place)
}

/// # Safety
/// As for [`adopt`].
unsafe fn open(place: *mut Place) -> Result<Store, String> {
    // SAFETY: vouched for by the caller.
    let Place { start, bytes } = unsafe { place.read() };
    let start = NonNull::new(start).ok_or("the zone has no store")?;
    // SAFETY: the block that `create` allocated.
    unsafe { Store::open(start, bytes, is_alive) }.map_err(|error| error.to_string())
}

/// The store in a zone and the lock of its writers; `None` if the zone was never initialised.
///
/// # Safety
/// `zone` belongs to the running cycle.
pub unsafe fn store(zone: *mut ngx_shm_zone_t) -> Option<(Store, ZoneLock)> {
    // SAFETY: vouched for by the caller.
    let (place, pool) = unsafe { ((*zone).data.cast::<Place>(), (*zone).shm.addr) };
    if place.is_null() {
        return None;
    }
    // SAFETY: `init_zone` stored it.
    let store = unsafe { open(place) }.ok()?;
    Some((store, ZoneLock { pool: NonNull::new(pool.cast())? }))
}

/// The mutex of the zone's slab pool. Nobody else takes it, since the pool has nothing left to give; it is
/// the one lock that nginx's master frees when a worker dies with it.
#[derive(Clone, Copy)]
pub struct ZoneLock {
    pool: NonNull<ngx_slab_pool_t>,
}

// SAFETY: the mutex is an atomic word in shared memory, made for this.
unsafe impl Send for ZoneLock {}
// SAFETY: as above.
unsafe impl Sync for ZoneLock {}

// SAFETY: ngx_shmtx is a compare-and-swap on a word that all processes share; it also excludes two threads
// of one process, since a taken lock is never 0.
unsafe impl WriterLock for ZoneLock {
    fn try_lock(&self) -> bool {
        // SAFETY: the pool lives as long as the zone.
        unsafe { ngx_shmtx_trylock(&raw mut (*self.pool.as_ptr()).mutex) != 0 }
    }

    fn unlock(&self) {
        // SAFETY: as above; this process holds it.
        unsafe { ngx_shmtx_unlock(&raw mut (*self.pool.as_ptr()).mutex) }
    }
}

fn is_alive(pid: u32) -> bool {
    let Ok(pid) = libc::pid_t::try_from(pid) else { return false };
    // SAFETY: signal 0 only asks.
    let answer = unsafe { libc::kill(pid, 0) };
    answer == 0 || std::io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
}
