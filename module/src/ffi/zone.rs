//! The shared memory zone: made by the master, inherited by every worker, kept by a reload.

use super::memory::{monotonic_nanoseconds, random};
use super::{directives, log};
use crate::{journal, records};
use nginx::sys::{
    NGX_ERROR, NGX_OK, ngx_cycle, ngx_cycle_t, ngx_int_t, ngx_pagesize, ngx_shm_zone_t,
    ngx_shmtx_trylock, ngx_shmtx_unlock, ngx_slab_alloc, ngx_slab_pool_t, ngx_test_config,
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

/// nginx's callback for a zone that is new (`data` null, or `noreuse`) or taken over from the last cycle.
pub unsafe extern "C" fn init_zone(zone: *mut ngx_shm_zone_t, data: *mut c_void) -> ngx_int_t {
    let result = super::guard::contain("init_zone", Err("it panicked".into()), || {
        // SAFETY: until this callback ends, `data` is what the directive left there.
        records::set_counting(unsafe { directives::counts_requests((*zone).data) });
        // SAFETY: nginx gives the zone it is initialising.
        if data.is_null() || unsafe { (*zone).noreuse } != 0 {
            // SAFETY: nginx has mapped the zone and made a slab pool in it.
            unsafe { create(zone).and_then(|place| fill(zone, place).map(|()| place)) }
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

/// Fills a zone that was just made: from the zone that it replaces, else from the journal.
///
/// # Safety
/// `place` was made by [`create`] in `zone`, which belongs to the cycle that is being initialised; its `data` is still what the
/// directive left there.
unsafe fn fill(zone: *mut ngx_shm_zone_t, place: *mut Place) -> Result<(), String> {
    // SAFETY: a plain number.
    if unsafe { ngx_test_config } != 0 {
        return Ok(());
    }
    // SAFETY: vouched for by the caller.
    let Some((store, lock)) = (unsafe { parts(zone, place) }) else { return Ok(()) };
    store.set_birth(monotonic_nanoseconds());
    // SAFETY: nginx goes on with the last cycle until the new one is whole.
    if let Some((old, old_lock)) = unsafe { of_last_cycle(zone) } {
        // Refused, so that the last cycle goes on: nothing that is served may be lost.
        return journal::copy((&old, &old_lock), (&store, &lock), false)
            .map_err(|error| format!("what the last zone holds does not fit: {error}"));
    }
    // SAFETY: vouched for by the caller.
    if let Some(path) = unsafe { directives::journal_of_zone((*zone).data) } {
        let start = journal::load(&store, &lock, &path);
        if let Some(warning) = start.warning {
            log::cycle(log::WARN, format_args!("ingress_journal: {warning}"));
        }
    }
    Ok(())
}

/// nginx has taken a configuration over: what was written to the zone that was replaced, after it was copied, is
/// copied too, and it takes no more writes.
///
/// # Safety
/// `cycle` is about to replace the last cycle, whose zones are still mapped.
pub unsafe fn take_over(cycle: *mut ngx_cycle_t) {
    // SAFETY: vouched for by the caller.
    unsafe {
        let zone = directives::zone_of(cycle);
        let Some((store, lock)) = zone.as_mut().and_then(|zone| store(zone)) else { return };
        // The next cycle may keep it: nginx would unmap it all the same.
        (*zone).noreuse = 0;
        let Some((old, old_lock)) = of_last_cycle(zone) else { return };
        release_last_zone(zone);
        if let Err(error) = journal::copy((&old, &old_lock), (&store, &lock), true) {
            let line =
                format_args!("ingress_zone: the last writes to the old zone are lost: {error}");
            log::cycle(log::ALERT, line);
        }
    }
}

/// The store that the last cycle serves from, if it is another one.
///
/// # Safety
/// `zone` belongs to the cycle that follows the one in `ngx_cycle`.
unsafe fn of_last_cycle(zone: *mut ngx_shm_zone_t) -> Option<(Store, ZoneLock)> {
    // SAFETY: vouched for by the caller; of the last cycle, which still runs.
    unsafe { last_zone(zone).and_then(|old| store(old)) }
}

/// nginx would keep a zone of equal size mapped: it looks at the old one's flag, and asked the new one's when it
/// made it.
///
/// # Safety
/// As for [`of_last_cycle`], and the cycle that follows is complete.
unsafe fn release_last_zone(zone: *mut ngx_shm_zone_t) {
    // SAFETY: vouched for by the caller.
    if let Some(old) = unsafe { last_zone(zone) } {
        // SAFETY: as above.
        unsafe { (*old).noreuse = 1 };
    }
}

/// # Safety
/// As for [`of_last_cycle`].
unsafe fn last_zone(zone: *mut ngx_shm_zone_t) -> Option<*mut ngx_shm_zone_t> {
    // SAFETY: nginx sets it before it loads a module; a list of zones, empty at the first start.
    let mut part = unsafe { &raw const (*ngx_cycle).shared_memory.part };
    // SAFETY: as above: parts of the list, each with `nelts` zones.
    while let Some(zones) = unsafe { part.as_ref() } {
        let first: *mut ngx_shm_zone_t = zones.elts.cast();
        for place in 0..zones.nelts {
            // SAFETY: within the part.
            let old = unsafe { first.add(place) };
            // SAFETY: as above. The tag says that this library made the zone.
            let is_ours =
                unsafe { (*old).tag == (*zone).tag && (*old).shm.addr != (*zone).shm.addr };
            if is_ours {
                return Some(old);
            }
        }
        part = zones.next;
    }
    None
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
    // SAFETY: vouched for by the caller; `init_zone` stored the place.
    unsafe { parts(zone, (*zone).data.cast()) }
}

/// # Safety
/// `place` is null, or was made by [`create`] in `zone`, which is mapped.
unsafe fn parts(zone: *mut ngx_shm_zone_t, place: *mut Place) -> Option<(Store, ZoneLock)> {
    if place.is_null() {
        return None;
    }
    // SAFETY: vouched for by the caller.
    let (store, pool) = unsafe { (open(place).ok()?, (*zone).shm.addr) };
    Some((store, ZoneLock { pool: NonNull::new(pool.cast())? }))
}

/// The mutex of the zone's slab pool. Nobody else takes it, since the pool has nothing left to give; it is
/// the one lock that nginx's master frees when a worker dies with it.
#[derive(Clone, Copy, PartialEq, Eq)]
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

/// Whether a process runs.
pub fn is_alive(pid: u32) -> bool {
    let Ok(pid) = libc::pid_t::try_from(pid) else { return false };
    // SAFETY: signal 0 only asks.
    let answer = unsafe { libc::kill(pid, 0) };
    answer == 0 || std::io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
}
