//! The thread that everything of nginx belongs to.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ptr::null_mut;

/// Says that this is the event loop's thread: callbacks get it, and it cannot be sent to another thread.
#[derive(Clone, Copy, Debug)]
pub struct EventLoop(PhantomData<*mut ()>);

impl EventLoop {
    /// For a callback of nginx that has nothing else to show for it.
    ///
    /// # Safety
    /// This is the event loop's thread.
    #[inline]
    pub const unsafe fn here() -> Self {
        EventLoop(PhantomData)
    }
}

/// One value for the process, which only the event loop sees: what a worker keeps.
pub struct ForProcess<T>(UnsafeCell<*mut T>);

// SAFETY: it is read and written with an `EventLoop` at hand, and so on one thread.
unsafe impl<T> Sync for ForProcess<T> {}

impl<T> Default for ForProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> ForProcess<T> {
    /// Nothing, so far.
    pub const fn new() -> Self {
        ForProcess(UnsafeCell::new(null_mut()))
    }

    /// The value, if there is one.
    #[inline]
    pub fn get(&self, _: EventLoop) -> Option<&'static T> {
        // SAFETY: on the event loop's thread, where it is written too. What `set` leaked stays until `take`, whose caller
        // promises that nobody refers to it any more.
        unsafe { (*self.0.get()).as_ref() }
    }

    /// Puts a value there. One that is there already stays in memory, since somebody may refer to it.
    pub fn set(&self, _: EventLoop, value: T) -> &'static T {
        let value = Box::into_raw(Box::new(value));
        // SAFETY: on the event loop's thread, and no reference to the pointer itself is ever lent; the value is leaked.
        unsafe {
            *self.0.get() = value;
            &*value
        }
    }

    /// Takes the value out.
    ///
    /// # Safety
    /// No reference that [`ForProcess::get`] or [`ForProcess::set`] has lent is used any more.
    pub unsafe fn take(&self, _: EventLoop) -> Option<Box<T>> {
        // SAFETY: on the event loop's thread, and no reference to the pointer itself is ever lent. Null, or leaked from a box by
        // `set`; nobody refers to the value, as the caller promises.
        unsafe {
            let value = self.0.get().replace(null_mut());
            (!value.is_null()).then(|| Box::from_raw(value))
        }
    }
}
