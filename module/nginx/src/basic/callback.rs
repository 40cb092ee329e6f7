//! nginx's forms of callbacks that get handles.
//!
//! nginx calls through unsafe function pointers, with pointers to its structs. A callback itself can be safe, and take
//! handles: each adapter makes nginx's form of one shape. What was to be believed of each callback is believed here once.

use crate::basic::handle::Handle;
use std::ffi::c_void;

/// Adapters: a function for each shape of callbacks.
macro_rules! callbacks {
    ($($(#[$doc:meta])* $name:ident [$($generic:tt)*] ($($safe:ty),*) of ($($raw:ty),*);)*) => {$(
        $(#[$doc])*
        pub(crate) const fn $name<$($generic)*, R>(
            callback: extern "C" fn($($safe),*) -> R,
        ) -> unsafe extern "C" fn($($raw),*) -> R {
            // SAFETY: one ABI, since a handle is its struct behind a cell, and so a reference to the one is a pointer to the
            // other, never null but where it may be missing. Who calls the answer promises what it gets: live structs, during the call, as `from_ptr` asks,
            // and values of these very types. nginx does, since each adapter's answer is put only where it passes those.
            unsafe {
                std::mem::transmute::<
                    extern "C" fn($($safe),*) -> R,
                    unsafe extern "C" fn($($raw),*) -> R,
                >(callback)
            }
        }
    )*};
}

callbacks! {
    /// Of one struct.
    one [H: Handle] (&H) of (*mut H::Raw);
    /// Of one struct that nobody else refers to meanwhile.
    alone [H: Handle] (&mut H) of (*mut H::Raw);
    /// Of one struct that nobody else refers to meanwhile, and two values that modules keep, of which one is looked at.
    alone_with [H: Handle, T] (&mut H, &T, *mut c_void) of (*mut H::Raw, *mut c_void, *mut c_void);
    /// Of two structs.
    two [A: Handle, B: Handle] (&A, &B) of (*mut A::Raw, *mut B::Raw);
    /// Of two structs, of which the second may be missing.
    two_at_most [A: Handle, B: Handle] (&A, Option<&B>) of (*mut A::Raw, *mut B::Raw);
    /// Of two structs and a number.
    two_and [A: Handle, B: Handle, X] (&A, &B, X) of (*mut A::Raw, *mut B::Raw, X);
    /// Of a struct and what was given with the callback.
    with [H: Handle, T] (&H, &T) of (*mut H::Raw, *mut c_void);
    /// Of a struct, what was given with the callback, and a number.
    with_and [H: Handle, T, X] (&H, &T, X) of (*mut H::Raw, *mut c_void, X);
    /// Of a struct and what was given with the callback, which nobody else refers to meanwhile.
    changing [H: Handle, T] (&H, &mut T) of (*mut H::Raw, *mut c_void);
    /// Of a struct, what was given with the callback, which nobody else refers to meanwhile, and a number.
    changing_and [H: Handle, T, X] (&H, &mut T, X) of (*mut H::Raw, *mut c_void, X);
    /// Of what was given with the callback.
    given [T] (&T) of (*mut c_void);
    /// Of what was given with the callback, and a number.
    given_and [T, X] (&T, X) of (*mut c_void, X);
}
