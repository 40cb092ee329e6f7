//! How nginx's structs are seen: by reference, through cells.
//!
//! A handle is one of nginx's structs behind an `UnsafeCell`, so `&Request` and the like may exist while nginx, a module
//! or another handle changes what is behind them. Fields are read and written one at a time, by copy, and never lent: so
//! no reference into a struct can be outdated. All of it happens on one thread, and handles are neither `Send` nor
//! `Sync`.

/// Declares a handle of one of nginx's structs.
macro_rules! handle {
    ($(#[$doc:meta])* $name:ident of $raw:ident) => {
        $(#[$doc])*
        #[repr(transparent)]
        pub struct $name(std::cell::UnsafeCell<$crate::sys::$raw>);

        impl $name {
            /// What nginx's pointer leads to.
            ///
            /// # Safety
            /// It leads to a live struct, which is what nginx makes of one, until `'a` is over; and this is the event
            /// loop's thread.
            #[inline]
            pub unsafe fn from_ptr<'a>(raw: *mut $crate::sys::$raw) -> &'a Self {
                // SAFETY: alive during `'a`, as the caller promises, and the same layout: transparent over a cell.
                unsafe { &*raw.cast() }
            }

            /// As `from_ptr`, or nothing for a null pointer.
            ///
            /// # Safety
            /// As for `from_ptr`, unless it is null.
            #[inline]
            pub unsafe fn from_nullable<'a>(raw: *mut $crate::sys::$raw) -> Option<&'a Self> {
                // SAFETY: null, or alive during `'a`, as the caller promises.
                unsafe { raw.cast::<Self>().as_ref() }
            }

            /// nginx's own pointer.
            #[inline]
            pub fn as_ptr(&self) -> *mut $crate::sys::$raw {
                self.0.get()
            }
        }
    };
}

/// Accessors for fields of a handle: a line each.
///
/// `get` copies a number out, `set` writes one, `flag` and `set_flag` are bitfields, `text` is a string that stays as long
/// as the struct, `link` is a struct that is always there, `option` one that may be missing.
macro_rules! fields {
    ($handle:ident {}) => {};
    ($handle:ident { $(#[$doc:meta])* get $name:ident: $type:ty = $($field:ident).+; $($rest:tt)* }) => {
        impl $handle {
            $(#[$doc])*
            #[inline]
            pub fn $name(&self) -> $type {
                // SAFETY: copies a number out of a live struct, to which nobody has an exclusive reference.
                unsafe { (*self.as_ptr()).$($field).+ as $type }
            }
        }
        fields! { $handle { $($rest)* } }
    };
    ($handle:ident { $(#[$doc:meta])* set $name:ident: $type:ty = $($field:ident).+; $($rest:tt)* }) => {
        impl $handle {
            $(#[$doc])*
            #[inline]
            pub fn $name(&self, to: $type) {
                // SAFETY: writes a number, of which nginx takes any, into a live struct that nobody else refers to.
                unsafe { (*self.as_ptr()).$($field).+ = to as _ };
            }
        }
        fields! { $handle { $($rest)* } }
    };
    ($handle:ident { $(#[$doc:meta])* flag $name:ident = $($field:ident).+; $($rest:tt)* }) => {
        impl $handle {
            $(#[$doc])*
            #[inline]
            pub fn $name(&self) -> bool {
                // SAFETY: reads bits of a live struct, to which nobody has an exclusive reference.
                unsafe { (*self.as_ptr()).$($field).+() != 0 }
            }
        }
        fields! { $handle { $($rest)* } }
    };
    ($handle:ident { $(#[$doc:meta])* set_flag $name:ident = $($field:ident).+; $($rest:tt)* }) => {
        impl $handle {
            $(#[$doc])*
            #[inline]
            pub fn $name(&self, to: bool) {
                // SAFETY: writes a bit, of which nginx takes any, into a live struct that nobody else refers to.
                unsafe { (*self.as_ptr()).$($field).+(to.into()) };
            }
        }
        fields! { $handle { $($rest)* } }
    };
    ($handle:ident { $(#[$doc:meta])* text $name:ident = $($field:ident).+; $($rest:tt)* }) => {
        impl $handle {
            $(#[$doc])*
            #[inline]
            pub fn $name(&self) -> &[u8] {
                // SAFETY: a string of nginx's lies in a pool or a buffer that goes with the struct; nginx puts another
                // string in its place, and does not change the bytes of this one.
                unsafe { $crate::basic::text::bytes((*self.as_ptr()).$($field).+) }
            }
        }
        fields! { $handle { $($rest)* } }
    };
    ($handle:ident { $(#[$doc:meta])* link $name:ident: $type:ident = $($field:ident).+; $($rest:tt)* }) => {
        impl $handle {
            $(#[$doc])*
            #[inline]
            pub fn $name(&self) -> &$type {
                // SAFETY: nginx sets the pointer before it hands the struct out, and keeps what it leads to as long.
                unsafe { $type::from_ptr((*self.as_ptr()).$($field).+) }
            }
        }
        fields! { $handle { $($rest)* } }
    };
    ($handle:ident { $(#[$doc:meta])* option $name:ident: $type:ident = $($field:ident).+; $($rest:tt)* }) => {
        impl $handle {
            $(#[$doc])*
            #[inline]
            pub fn $name(&self) -> Option<&$type> {
                // SAFETY: null, or what nginx has put there, which lies in a pool that goes with the struct.
                unsafe { $type::from_nullable((*self.as_ptr()).$($field).+) }
            }
        }
        fields! { $handle { $($rest)* } }
    };
}

pub(crate) use {fields, handle};
