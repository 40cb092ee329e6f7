//! nginx's pools: memory that goes all at once, with the request, connection or configuration that it is for.

use crate::basic::guard::contain;
use crate::sys::{
    NGX_ALIGNMENT, ngx_palloc, ngx_pnalloc, ngx_pool_cleanup_add, ngx_pool_t, ngx_str_t,
};
use std::any::TypeId;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

crate::basic::handle::handle! {
    /// A pool. What is allocated from it lives as long as the pool; a reference to the pool is lent by what owns it.
    Pool of ngx_pool_t
}

/// What [`Pool::keep`] puts into a pool. The type comes first, so that whoever finds a clean-up can tell what it is of:
/// functions of several types may be merged into one by the compiler.
#[repr(C)]
struct Kept<T> {
    id: TypeId,
    value: T,
}

impl Pool {
    /// New memory for so many values, aligned as every allocation of a pool; `None` when memory is out.
    #[inline]
    #[allow(clippy::mut_from_ref, reason = "each call has memory of its own")]
    fn room<T>(
        &self,
        count: usize,
        allocate: unsafe extern "C" fn(*mut ngx_pool_t, usize) -> *mut c_void,
    ) -> Option<&mut [MaybeUninit<T>]> {
        const { assert!(align_of::<T>() <= NGX_ALIGNMENT) };
        let bytes = count.checked_mul(size_of::<T>())?;
        // SAFETY: the pool is alive; nginx's function allocates so many bytes of it, aligned, which nobody else has and which
        // stay as long as the pool.
        unsafe {
            let place = NonNull::new(allocate(self.as_ptr(), bytes).cast::<MaybeUninit<T>>())?;
            Some(std::slice::from_raw_parts_mut(place.as_ptr(), count))
        }
    }

    /// A copy of the concatenation of `parts`; `None` when memory is out.
    #[inline]
    pub fn concat(&self, parts: &[&[u8]]) -> Option<&[u8]> {
        let length = parts.iter().try_fold(0_usize, |all, part| all.checked_add(part.len()))?;
        let all = self.room::<u8>(length, ngx_pnalloc)?;
        // SAFETY: the parts, whose lengths add up to this one's, are written one after the other into new memory.
        unsafe {
            let mut at = all.as_mut_ptr().cast::<u8>();
            // Often one of them is empty, and copying nothing is a call, too.
            for part in parts.iter().filter(|part| !part.is_empty()) {
                at.copy_from_nonoverlapping(part.as_ptr(), part.len());
                at = at.add(part.len());
            }
            Some(planted(std::slice::from_raw_parts(all.as_ptr().cast(), length)))
        }
    }

    /// As [`Pool::concat`], as nginx's string.
    #[inline]
    pub fn text(&self, parts: &[&[u8]]) -> Option<ngx_str_t> {
        self.concat(parts).map(ngx_str_t::of)
    }

    /// Puts a value into the pool; `None` when memory is out. It is not dropped when the pool goes.
    #[inline]
    #[allow(clippy::mut_from_ref, reason = "each call has memory of its own")]
    pub fn alloc<T>(&self, value: T) -> Option<&mut T> {
        Some(self.room(1, ngx_palloc)?.first_mut()?.write(value))
    }

    /// A value that is made where it stays in the pool; `None` when there is none, or memory is out.
    #[inline]
    #[allow(clippy::mut_from_ref, reason = "each call has memory of its own")]
    pub fn alloc_with<T>(&self, value: impl FnOnce() -> Option<T>) -> Option<&mut T> {
        let place = self.room(1, ngx_palloc)?.first_mut()?;
        Some(place.write(value()?))
    }

    /// So many copies of a value in the pool; `None` when memory is out.
    #[allow(clippy::mut_from_ref, reason = "each call has memory of its own")]
    pub fn alloc_slice<T: Copy>(&self, count: usize, value: T) -> Option<&mut [T]> {
        let all = self.room(count, ngx_palloc)?;
        for place in all.iter_mut() {
            place.write(value);
        }
        // SAFETY: all of them were written.
        Some(unsafe { std::slice::from_raw_parts_mut(all.as_mut_ptr().cast(), count) })
    }

    /// Puts a value into the pool, and drops it when the pool goes; `None`, and it is dropped at once, when memory is
    /// out. Pools go on the event loop, newest values first.
    pub fn keep<T: 'static>(&self, value: T) -> Option<&T> {
        self.clean_up(Kept { id: TypeId::of::<T>(), value }).ok()
    }

    /// Drops a value when the pool goes; `false`, and it is not dropped at all, when memory is out.
    pub(crate) fn on_end<T>(&self, value: T) -> bool {
        // The id is nobody's that `kept` looks for.
        self.clean_up(Kept { id: TypeId::of::<()>(), value }).map_err(std::mem::forget).is_ok()
    }

    /// Has a value dropped when the pool goes; gives it back when memory is out.
    fn clean_up<T>(&self, kept: Kept<T>) -> Result<&T, Kept<T>> {
        const { assert!(align_of::<Kept<T>>() <= NGX_ALIGNMENT) };
        // SAFETY: the pool is alive; null, or a new clean-up, with so many bytes of data that nobody else has, aligned as every
        // allocation of a pool.
        let new = unsafe {
            let cleanup = ngx_pool_cleanup_add(self.as_ptr(), size_of::<Kept<T>>()).as_mut();
            cleanup.map(|it| (&mut *it.data.cast::<MaybeUninit<Kept<T>>>(), &mut it.handler))
        };
        let Some((place, handler)) = new else { return Err(kept) };
        let kept = place.write(kept);
        // It is written, so it may be dropped from now on.
        *handler = Some(drop_kept::<T>);
        Ok(&kept.value)
    }

    /// What [`Pool::keep`] has put into this pool of a type, the newest first.
    pub fn kept<T: 'static>(&self) -> impl Iterator<Item = &T> {
        // A list that ends with null.
        let mut next = self.peek(|raw| raw.cleanup);
        let ours: unsafe extern "C" fn(*mut c_void) = drop_kept::<T>;
        std::iter::from_fn(move || {
            // SAFETY: null, or a clean-up of this pool: none is taken out before the pool goes. `drop_kept`, of whatever type, has
            // data that begins with the type's id; with this very type's it was written by `keep`, and stays as long.
            unsafe {
                while let Some(cleanup) = next.as_ref() {
                    next = cleanup.next;
                    if cleanup.handler.is_some_and(|it| std::ptr::fn_addr_eq(it, ours))
                        && *cleanup.data.cast::<TypeId>() == TypeId::of::<T>()
                    {
                        return Some(&(*cleanup.data.cast::<Kept<T>>()).value);
                    }
                }
            }
            None
        })
    }
}

/// nginx's callback when a pool goes.
unsafe extern "C" fn drop_kept<T>(data: *mut c_void) {
    // SAFETY: what `keep` wrote; nginx calls a clean-up once.
    contain("drop_kept", (), || unsafe { data.cast::<Kept<T>>().drop_in_place() });
}

/// The copy as it is; with a fault that a checker is to find, a copy that is written behind, or ends too late.
#[inline]
fn planted(copy: &[u8]) -> &[u8] {
    #[cfg(feature = "planted-faults")]
    match std::env::var("OXIGRESS_PLANTED_FAULT").as_deref() {
        // SAFETY: none, that is the fault.
        Ok("pool-overrun") => unsafe { copy.as_ptr_range().end.cast_mut().write(0) },
        // SAFETY: none, that is the fault.
        Ok("long-string") => unsafe {
            return std::slice::from_raw_parts(copy.as_ptr(), copy.len() + 1);
        },
        _ => {}
    }
    copy
}
