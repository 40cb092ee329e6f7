//! nginx's pools: memory that goes all at once, with the request, connection or configuration that it is for.

use crate::basic::guard::contain;
use crate::sys::{NGX_ALIGNMENT, ngx_palloc, ngx_pnalloc, ngx_pool_cleanup_add, ngx_str_t};
use std::any::TypeId;
use std::ffi::c_void;

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
    /// A copy of the concatenation of `parts`; `None` when memory is out.
    #[inline]
    pub fn concat(&self, parts: &[&[u8]]) -> Option<&[u8]> {
        let length = parts.iter().map(|part| part.len()).sum();
        // SAFETY: the pool is alive.
        let data: *mut u8 = unsafe { ngx_pnalloc(self.as_ptr(), length) }.cast();
        if data.is_null() {
            return None;
        }
        let mut at = data;
        for part in parts {
            // SAFETY: the parts fill the allocation, which has their length, one after the other.
            unsafe { at.copy_from_nonoverlapping(part.as_ptr(), part.len()) };
            at = at.wrapping_add(part.len());
        }
        // SAFETY: so many bytes were written above, and nobody else has them.
        Some(unsafe { std::slice::from_raw_parts(data, length) })
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
        const { assert!(align_of::<T>() <= NGX_ALIGNMENT) };
        // SAFETY: the pool is alive.
        let place: *mut T = unsafe { ngx_palloc(self.as_ptr(), size_of::<T>()) }.cast();
        if place.is_null() {
            return None;
        }
        // SAFETY: new memory of that size, aligned as every allocation of a pool.
        unsafe { place.write(value) };
        // SAFETY: written above, nobody else has it, and it stays as long as the pool.
        Some(unsafe { &mut *place })
    }

    /// So many copies of a value in the pool; `None` when memory is out.
    #[allow(clippy::mut_from_ref, reason = "each call has memory of its own")]
    pub fn alloc_slice<T: Copy>(&self, count: usize, value: T) -> Option<&mut [T]> {
        const { assert!(align_of::<T>() <= NGX_ALIGNMENT) };
        let bytes = count.checked_mul(size_of::<T>())?;
        // SAFETY: the pool is alive.
        let first: *mut T = unsafe { ngx_palloc(self.as_ptr(), bytes) }.cast();
        if first.is_null() {
            return None;
        }
        for place in 0..count {
            // SAFETY: within the new memory, which is aligned as every allocation of a pool.
            unsafe { first.add(place).write(value) };
        }
        // SAFETY: written above, nobody else has it, and it stays as long as the pool.
        Some(unsafe { std::slice::from_raw_parts_mut(first, count) })
    }

    /// Puts a value into the pool, and drops it when the pool goes; `None`, and it is dropped at once, when memory is
    /// out. Pools go on the event loop, newest values first.
    pub fn keep<T: 'static>(&self, value: T) -> Option<&T> {
        const { assert!(align_of::<Kept<T>>() <= NGX_ALIGNMENT) };
        // SAFETY: the pool is alive.
        let cleanup = unsafe { ngx_pool_cleanup_add(self.as_ptr(), size_of::<Kept<T>>()) };
        if cleanup.is_null() {
            return None;
        }
        // SAFETY: nginx made the clean-up with so many bytes of data, aligned as every allocation.
        let place: *mut Kept<T> = unsafe { (*cleanup).data }.cast();
        // SAFETY: as above; nobody else has them.
        unsafe { place.write(Kept { id: TypeId::of::<T>(), value }) };
        // SAFETY: the clean-up is new; its data is written, so it may be dropped from now on.
        unsafe { (*cleanup).handler = Some(drop_kept::<T>) };
        // SAFETY: written above, and stays until the pool goes.
        Some(unsafe { &(*place).value })
    }

    /// Drops a value when the pool goes; `false`, and it is not dropped at all, when memory is out.
    pub(crate) fn on_end<T>(&self, value: T) -> bool {
        // SAFETY: the pool is alive.
        let cleanup = unsafe { ngx_pool_cleanup_add(self.as_ptr(), size_of::<Kept<T>>()) };
        if cleanup.is_null() {
            std::mem::forget(value);
            return false;
        }
        // SAFETY: nginx made the clean-up with so many bytes of data; it is dropped once they are written. The id is
        // nobody's that `kept` looks for.
        unsafe {
            (*cleanup).data.cast::<Kept<T>>().write(Kept { id: TypeId::of::<()>(), value });
            (*cleanup).handler = Some(drop_kept::<T>);
        }
        true
    }

    /// What [`Pool::keep`] has put into this pool of a type, the newest first.
    pub fn kept<T: 'static>(&self) -> impl Iterator<Item = &T> {
        // SAFETY: the list of clean-ups of a live pool, which ends with null.
        let mut next = unsafe { (*self.as_ptr()).cleanup };
        let ours: unsafe extern "C" fn(*mut c_void) = drop_kept::<T>;
        std::iter::from_fn(move || {
            // SAFETY: null, or a clean-up of this pool: none is taken out before the pool goes.
            while let Some(cleanup) = unsafe { next.as_ref() } {
                next = cleanup.next;
                if cleanup.handler.is_some_and(|it| std::ptr::fn_addr_eq(it, ours)) {
                    // SAFETY: `drop_kept`, of whatever type, has data that begins with the type's id.
                    let is_it = unsafe { *cleanup.data.cast::<TypeId>() } == TypeId::of::<T>();
                    if is_it {
                        // SAFETY: it is of this very type, written by `keep`, and stays until the pool goes.
                        return Some(unsafe { &(*cleanup.data.cast::<Kept<T>>()).value });
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
