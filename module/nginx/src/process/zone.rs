//! Zones of shared memory: made by the master, inherited by every worker, kept by a reload.

use crate::basic::guard::contain;
use crate::basic::handle::{fields, handle, on_event_loop};
use crate::basic::log::{self, Level};
use crate::conf::Conf;
use crate::conf::module::CoreModule;
use crate::cycle::Cycle;
use crate::sys;
use crate::sys::{
    global, ngx_int_t, ngx_shm_zone_t, ngx_shmtx_trylock, ngx_shmtx_unlock, ngx_slab_alloc,
    ngx_slab_pool_t, ngx_str_t,
};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

handle! {
    /// A zone of a cycle.
    Zone of ngx_shm_zone_t
}

on_event_loop!(Zone);

fields! { Zone {
    /// A later cycle makes a zone of its own, whose name and size are these.
    get noreuse: usize = noreuse;
}}

/// All of a zone in one block, which a module divides as it likes. nginx's own division, slabs, stays broken when a
/// process is killed within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Block {
    start: NonNull<u8>,
    bytes: usize,
}

impl Block {
    /// Where it begins, at a page.
    pub fn start(self) -> NonNull<u8> {
        self.start
    }

    /// How long it is: whole pages.
    pub fn bytes(self) -> usize {
        self.bytes
    }

    /// The block as words, which all processes share.
    ///
    /// # Safety
    /// They are used while the zone is mapped: until its cycle has been replaced. Nobody looks at the block in another way.
    pub unsafe fn words(self) -> &'static [AtomicU64] {
        let count = self.bytes / size_of::<AtomicU64>();
        // SAFETY: whole pages, zeroed when they were new and mapped as long as the caller promises; any bytes are a value of an
        // atomic.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), count) }
    }

    /// Keeps it out of core files. It is advice, so a refusal is no error.
    pub fn hide_from_core_files(self) {
        // SAFETY: whole pages of the mapping.
        unsafe { libc::madvise(self.start.as_ptr().cast(), self.bytes, libc::MADV_DONTDUMP) };
    }
}

/// What tells the zones of one module from those of others: the address of such a static.
#[derive(Debug)]
pub struct Tag(#[allow(dead_code, reason = "it has an address of its own")] u8);

impl Tag {
    /// Of a static.
    pub const fn new() -> Self {
        Tag(0)
    }
}

impl Default for Tag {
    fn default() -> Self {
        Self::new()
    }
}

/// A zone that is one block.
pub trait BlockZone: 'static {
    /// The module whose configuration, of the cycle that the zone is for, is told.
    type Module: CoreModule;
    /// For the error log: the directive.
    const NAME: &'static str;
    /// Of all zones of this kind, and of no other kind.
    fn tag() -> &'static Tag;
    /// Nobody has the same memory; made by `create`. The memory is zeroed.
    fn create(zone: &Zone, main: &Main<Self>, block: Block) -> Result<(), String>;
    /// The zone of the last cycle is this cycle's too.
    fn adopt(zone: &Zone, main: &Main<Self>, block: Block) -> Result<(), String>;
}

/// What a zone's module keeps for a cycle.
pub type Main<Z> = <<Z as BlockZone>::Module as CoreModule>::Main;

fields! { Cycle {
    /// Its zones of shared memory; none at the first start.
    list zones: Zone = shared_memory;
}}

impl Cycle {
    /// This cycle is about to be taken over: nginx unmaps what the running one has in the place of `zone`, which it would keep
    /// where the sizes are equal. Has `look` look at what that is. `None`, and nothing happens, where this cycle runs already,
    /// `zone` is not its own, or one of its zones has that memory.
    pub fn retire_last<T>(&self, zone: &Zone, look: impl FnOnce(&Zone) -> T) -> Option<T> {
        let running = Cycle::current(self.event_loop());
        let is_own = self.zones().any(|own| std::ptr::eq(own, zone));
        if std::ptr::eq(running, self) || !is_own {
            return None;
        }
        let last = running.zones().find(|old| old.is_other_of(zone))?;
        let place = |zone: &Zone| zone.peek(|raw| raw.shm.addr);
        if self.zones().any(|own| place(own) == place(last)) {
            return None;
        }
        // nginx looks at the old one's flag when it frees zones, and asked the new one's when it made it.
        last.poke(|raw| raw.noreuse = 1);
        Some(look(last))
    }
}

impl Conf {
    /// Asks for a zone, which is made or taken over when the configuration has been read; `None`, and a line in the log,
    /// when nginx refuses it. Zones of one kind are told apart by name.
    pub fn add_zone<Z: BlockZone>(
        &self,
        name: &[u8],
        size: usize,
    ) -> Option<NonNull<ngx_shm_zone_t>> {
        let (tag, least) = (std::ptr::from_ref(Z::tag()).cast_mut(), 8 * page_bytes());
        if size < least {
            // nginx would divide what is not there.
            self.refuse(format_args!("the zone of \"{}\" needs {least} bytes or more", Z::NAME));
            return None;
        }
        let mut name = ngx_str_t::of(self.pool().concat(&[name])?);
        // SAFETY: a live configuration; the name lies in the cycle's pool. nginx makes the zone, or gives one of the same tag, which
        // no module of nginx's own has, and nobody else refers to it. There is one pointer a module in the cycle, and what it leads
        // to lives as long as the zone.
        unsafe {
            let zone = sys::ngx_shared_memory_add(self.as_ptr(), &raw mut name, size, tag.cast());
            let zone = NonNull::new(zone)?;
            (*zone.as_ptr()).init = Some(init::<Z>);
            let all = (*(*self.as_ptr()).cycle).conf_ctx;
            (*zone.as_ptr()).data = (*all.add(Z::Module::index())).cast();
            Some(zone)
        }
    }
}

/// nginx's callback for a zone that is new (`data` null) or taken over from the last cycle.
unsafe extern "C" fn init<Z: BlockZone>(zone: *mut ngx_shm_zone_t, data: *mut c_void) -> ngx_int_t {
    let result = contain(Z::NAME, Err("it panicked".into()), || {
        // SAFETY: nginx gives the zone that it makes, mapped, and `add_zone` left the module's configuration in it. That was
        // read before, and is only read from now on.
        let (zone, main) = unsafe { (Zone::from_ptr(zone), &*(*zone).data.cast::<Main<Z>>()) };
        if data.is_null() || zone.noreuse() != 0 {
            let block = zone.take_all().ok_or("the zone is too small: give it 1m or more")?;
            Z::create(zone, main, block)
        } else {
            let block = zone.block::<Z>().ok_or("the zone has no block")?;
            Z::adopt(zone, main, block)
        }
    });
    match result {
        Ok(()) => sys::NGX_OK as ngx_int_t,
        Err(reason) => {
            log::write(Level::Alert, format_args!("{}: {reason}", Z::NAME));
            sys::NGX_ERROR as ngx_int_t
        }
    }
}

impl Zone {
    fn slabs(&self) -> Option<NonNull<ngx_slab_pool_t>> {
        // Null until it is mapped, and then the slab pool begins the mapping.
        NonNull::new(self.peek(|raw| raw.shm.addr).cast())
    }

    /// Whether another zone of the same kind has other memory.
    pub fn is_other_of(&self, other: &Zone) -> bool {
        let facts = |zone: &Zone| zone.peek(|raw| (raw.tag, raw.shm.addr));
        let ((tag, place), (other_tag, other_place)) = (facts(self), facts(other));
        tag == other_tag && place != other_place
    }

    /// The zone that is about to be made does not take the last one's memory over; nothing happens once it is mapped.
    pub fn begin_anew(&self) {
        if self.slabs().is_none() {
            self.poke(|raw| raw.noreuse = 1);
        }
    }

    /// A later cycle may take its memory over.
    pub fn allow_reuse(&self) {
        self.poke(|raw| raw.noreuse = 0);
    }

    /// The block of a zone of `Z` that was made; `None` before, and of another's zone.
    pub fn block<Z: BlockZone>(&self) -> Option<Block> {
        let ours: unsafe extern "C" fn(*mut ngx_shm_zone_t, *mut c_void) -> ngx_int_t = init::<Z>;
        self.peek(|raw| raw.init).filter(|init| std::ptr::fn_addr_eq(*init, ours))?;
        // SAFETY: a mapped zone of `add_zone`, as its callback says; null, or what `take_all` put there, in the zone itself.
        // Were the callbacks of two kinds one function, both would keep such a block there.
        unsafe { (*self.slabs()?.as_ptr()).data.cast::<Block>().as_ref().copied() }
    }

    /// Takes all pages of a new zone.
    fn take_all(&self) -> Option<Block> {
        let slabs = self.slabs()?.as_ptr();
        // SAFETY: a fresh pool, and no worker runs yet. All pages that are left, in one block, are nobody else's; nginx keeps the
        // pointer for whoever adopts the zone.
        unsafe {
            let place = NonNull::new(ngx_slab_alloc(slabs, size_of::<Block>()).cast::<Block>())?;
            let bytes = (*slabs).pfree * sys::ngx_pagesize;
            let start = NonNull::new(ngx_slab_alloc(slabs, bytes).cast::<u8>())?;
            start.write_bytes(0, bytes);
            place.write(Block { start, bytes });
            (*slabs).data = place.as_ptr().cast();
            Some(Block { start, bytes })
        }
    }

    /// The zone's lock; `None` before it is mapped.
    ///
    /// # Safety
    /// The zone stays mapped while the lock is used.
    pub unsafe fn mutex(&self) -> Option<ZoneMutex> {
        self.slabs().map(ZoneMutex)
    }
}

/// The mutex of a zone's slab pool: the one lock that nginx's master frees when a worker dies with it. A zone that is one
/// block does not use it otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneMutex(NonNull<ngx_slab_pool_t>);

// SAFETY: the mutex is an atomic word in shared memory, made to be used by many.
unsafe impl Send for ZoneMutex {}
// SAFETY: it is changed by compare-and-swap only.
unsafe impl Sync for ZoneMutex {}

impl ZoneMutex {
    /// Takes it, unless somebody has it: another process, or another thread of this one. What [`Zone::mutex`] asks holds for
    /// the answer too.
    pub fn try_lock(&self) -> Option<ZoneHeld> {
        // SAFETY: the zone is mapped, as whoever called `Zone::mutex` promised.
        let is_taken = unsafe { ngx_shmtx_trylock(&raw mut (*self.0.as_ptr()).mutex) != 0 };
        is_taken.then(|| ZoneHeld(*self))
    }
}

/// A zone's mutex, held until this is dropped. Nothing else gives it back: nginx's function does so for whoever is in the
/// process that has it, another thread included.
#[derive(Debug)]
pub struct ZoneHeld(ZoneMutex);

impl Drop for ZoneHeld {
    fn drop(&mut self) {
        // SAFETY: `try_lock` took it; the zone is mapped, as whoever called `Zone::mutex` promised.
        unsafe { ngx_shmtx_unlock(&raw mut (*self.0.0.as_ptr()).mutex) }
    }
}

/// The bytes of a page of memory.
pub fn page_bytes() -> usize {
    global!(ngx_pagesize)
}

/// nginx only tests a configuration.
pub fn is_test() -> bool {
    global!(ngx_test_config) != 0
}
