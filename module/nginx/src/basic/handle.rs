//! How nginx's structs are seen: by reference, through cells.
//!
//! A handle is one of nginx's structs behind an `UnsafeCell`, so `&Request` and the like may exist while nginx, a module
//! or another handle changes what is behind them. Fields are read and written by copy (`peek`, `poke`), and never lent: so
//! no reference into a struct can be outdated. All of it happens on one thread, and handles are neither `Send` nor
//! `Sync`.
//!
//! Whoever makes a handle, by `from_ptr`, promises once that the struct is alive. What is read of it afterwards needs no
//! promise of its own: the pointers in a live struct lead to what nginx keeps as long as the struct.

use crate::sys::{ngx_array_t, ngx_list_part_t, ngx_list_push, ngx_list_t};
use std::marker::PhantomData;

/// One of nginx's structs, seen through a cell.
///
/// # Safety
/// It is transparent over a cell of `Raw`, or has no value.
pub unsafe trait Handle: Sized {
    /// nginx's own type.
    type Raw;

    /// As the handle's `from_nullable`.
    ///
    /// # Safety
    /// It is null, or leads to a live struct until `'a` is over; and this is the event loop's thread.
    unsafe fn nullable<'a>(raw: *mut Self::Raw) -> Option<&'a Self>;
}

/// Declares a handle of one of nginx's structs.
macro_rules! handle {
    ($(#[$doc:meta])* $name:ident of $raw:ident) => {
        $(#[$doc])*
        #[repr(transparent)]
        pub struct $name(std::cell::UnsafeCell<$crate::sys::$raw>);

        #[allow(dead_code, reason = "not each handle needs each of them")]
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

            /// Copies something out of the struct.
            #[inline]
            pub(crate) fn peek<T>(&self, read: impl FnOnce(&$crate::sys::$raw) -> T) -> T {
                // SAFETY: alive, as whoever made the handle promised. Only this crate reads so, at once and by copy: what
                // it reads with calls nothing of nginx, and so nobody changes the struct meanwhile.
                read(unsafe { &*self.0.get() })
            }

            /// Changes fields of the struct. A pointer that is put there leads to what lives as long.
            #[inline]
            pub(crate) fn poke<T>(&self, write: impl FnOnce(&mut $crate::sys::$raw) -> T) -> T {
                // SAFETY: alive, as whoever made the handle promised. Only this crate writes so: what it writes with calls
                // nothing of nginx and looks at no other handle, and so nobody else refers to the struct meanwhile.
                write(unsafe { &mut *self.0.get() })
            }

        }

        // SAFETY: the struct is transparent over a cell of nginx's own, so that a pointer to the one is a pointer to the other.
        unsafe impl $crate::basic::handle::Handle for $name {
            type Raw = $crate::sys::$raw;

            #[inline]
            unsafe fn nullable<'a>(raw: *mut $crate::sys::$raw) -> Option<&'a Self> {
                // SAFETY: null, or alive for `'a` and on the thread of the event loop where the kind asks for it, as the caller
                // promises.
                unsafe { $name::from_nullable(raw) }
            }
        }
    };
}

/// Gives a handle a word about the thread that it is seen on. Logs, and what a thread works with, have none: they are seen on
/// other threads too.
macro_rules! on_event_loop {
    ($name:ident) => {
        impl $name {
            /// What the handle says of the thread that it is seen on.
            #[inline]
            pub fn event_loop(&self) -> $crate::basic::event_loop::EventLoop {
                // SAFETY: this handle exists on the event loop's thread only, as `from_ptr` asks.
                unsafe { $crate::basic::event_loop::EventLoop::here() }
            }
        }
    };
}

/// Accessors for fields of a handle: a line each.
///
/// `get` copies a number out, `set` writes one, `flag` and `set_flag` are bitfields, `has` says whether a pointer leads
/// anywhere. What follows is lent, since it stays as long as the struct: `text` is a string, `between` what lies from one
/// pointer to another, `link` a struct that is always there, `option` one that may be missing, `within` one that is a part,
/// `array` those of an array that a pointer leads to, `list` those of a list.
macro_rules! fields {
    ($handle:ident {}) => {};
    ($handle:ident { $(#[$doc:meta])* get $name:ident: $type:ty = $($field:ident).+; $($rest:tt)* }) => {
        impl $handle {
            $(#[$doc])*
            #[inline]
            pub fn $name(&self) -> $type {
                self.peek(|raw| raw.$($field).+ as $type)
            }
        }
        fields! { $handle { $($rest)* } }
    };
    ($handle:ident { $(#[$doc:meta])* set $name:ident: $type:ty = $($field:ident).+; $($rest:tt)* }) => {
        impl $handle {
            $(#[$doc])*
            #[inline]
            pub fn $name(&self, to: $type) {
                self.poke(|raw| raw.$($field).+ = to as _);
            }
        }
        fields! { $handle { $($rest)* } }
    };
    ($handle:ident { $(#[$doc:meta])* flag $name:ident = $($field:ident).+; $($rest:tt)* }) => {
        impl $handle {
            $(#[$doc])*
            #[inline]
            pub fn $name(&self) -> bool {
                self.peek(|raw| raw.$($field).+() != 0)
            }
        }
        fields! { $handle { $($rest)* } }
    };
    ($handle:ident { $(#[$doc:meta])* set_flag $name:ident = $($field:ident).+; $($rest:tt)* }) => {
        impl $handle {
            $(#[$doc])*
            #[inline]
            pub fn $name(&self, to: bool) {
                self.poke(|raw| raw.$($field).+(to.into()));
            }
        }
        fields! { $handle { $($rest)* } }
    };
    ($handle:ident { $(#[$doc:meta])* has $name:ident = $($field:ident).+; $($rest:tt)* }) => {
        impl $handle {
            $(#[$doc])*
            #[inline]
            pub fn $name(&self) -> bool {
                self.peek(|raw| !raw.$($field).+.is_null())
            }
        }
        fields! { $handle { $($rest)* } }
    };
    ($handle:ident { $(#[$doc:meta])* text $name:ident = $($field:ident).+; $($rest:tt)* }) => {
        impl $handle {
            $(#[$doc])*
            #[inline]
            pub fn $name(&self) -> &[u8] {
                let text = self.peek(|raw| raw.$($field).+);
                // SAFETY: a string of nginx's lies in a pool or a buffer that goes with the struct; nginx puts another
                // string in its place, and does not change the bytes of this one.
                unsafe { $crate::basic::text::bytes(text) }
            }
        }
        fields! { $handle { $($rest)* } }
    };
    ($handle:ident { $(#[$doc:meta])* between $name:ident = $start:ident, $end:ident; $($rest:tt)* }) => {
        impl $handle {
            $(#[$doc])*
            #[inline]
            pub fn $name(&self) -> Option<&[u8]> {
                let (start, end) = self.peek(|raw| (raw.$start, raw.$end));
                let length = end.addr().checked_sub(start.addr())?;
                // SAFETY: nginx has found or written both in one buffer, which stays as long as the struct.
                (!start.is_null()).then(|| unsafe { std::slice::from_raw_parts(start, length) })
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
                unsafe { $type::from_ptr(self.peek(|raw| raw.$($field).+)) }
            }
        }
        fields! { $handle { $($rest)* } }
    };
    ($handle:ident { $(#[$doc:meta])* option $name:ident: $type:ident = $($field:ident).+; $($rest:tt)* }) => {
        impl $handle {
            $(#[$doc])*
            #[inline]
            pub fn $name(&self) -> Option<&$type> {
                // SAFETY: null, or what nginx has put there: it lies in a pool that goes with the struct, or in the table of
                // connections, which stays as long as the process.
                unsafe { $type::from_nullable(self.peek(|raw| raw.$($field).+)) }
            }
        }
        fields! { $handle { $($rest)* } }
    };
    ($handle:ident { $(#[$doc:meta])* within $name:ident: $type:ident = $($field:ident).+; $($rest:tt)* }) => {
        impl $handle {
            $(#[$doc])*
            #[inline]
            pub fn $name(&self) -> &$type {
                // SAFETY: a part of a live struct; only its address is taken here.
                unsafe { $type::from_ptr(&raw mut (*self.as_ptr()).$($field).+) }
            }
        }
        fields! { $handle { $($rest)* } }
    };
    ($handle:ident { $(#[$doc:meta])* array $name:ident: $type:ident = $($field:ident).+; $($rest:tt)* }) => {
        impl $handle {
            $(#[$doc])*
            #[inline]
            pub fn $name(&self) -> $crate::basic::handle::Array<'_, $type> {
                // SAFETY: null, or an array that nginx fills with such structs, which stay as long as this one.
                unsafe { $crate::basic::handle::Array::of(self.peek(|raw| raw.$($field).+)) }
            }
        }
        fields! { $handle { $($rest)* } }
    };
    ($handle:ident { $(#[$doc:meta])* list $name:ident: $type:ident = $($field:ident).+; $($rest:tt)* }) => {
        impl $handle {
            $(#[$doc])*
            #[inline]
            pub fn $name(&self) -> $crate::basic::handle::List<'_, $type> {
                // SAFETY: nginx makes the list with the struct, fills it with such structs, and keeps it as long.
                unsafe { $crate::basic::handle::List::of(&raw mut (*self.as_ptr()).$($field).+) }
            }
        }
        fields! { $handle { $($rest)* } }
    };
}

pub(crate) use {fields, handle, on_event_loop};

/// The structs in an array of nginx's.
pub struct Array<'r, H: Handle> {
    next: *mut H::Raw,
    left: usize,
    array: PhantomData<&'r H>,
}

impl<H: Handle> Array<'_, H> {
    /// # Safety
    /// It is null, or an array whose elements are of type `H::Raw` and stay as long as this.
    #[inline]
    pub(crate) unsafe fn of(array: *const ngx_array_t) -> Self {
        // SAFETY: null or a live array, as the caller promises.
        let found = unsafe { array.as_ref() }.map(|array| (array.elts, array.nelts));
        let (elements, left) = found.unwrap_or((std::ptr::null_mut(), 0));
        Array { next: elements.cast(), left, array: PhantomData }
    }
}

impl<'r, H: Handle> Iterator for Array<'r, H> {
    type Item = &'r H;

    #[inline]
    fn next(&mut self) -> Option<&'r H> {
        self.left = self.left.checked_sub(1)?;
        let element = self.next;
        self.next = element.wrapping_add(1);
        // SAFETY: there are so many elements, which stay, as whoever called `of` promised.
        unsafe { H::nullable(element) }
    }
}

/// The structs in a list of nginx's, in their order.
pub struct List<'r, H> {
    list: *mut ngx_list_t,
    part: *const ngx_list_part_t,
    place: usize,
    element: PhantomData<&'r H>,
}

impl<'r, H: Handle> List<'r, H> {
    /// # Safety
    /// The elements of the list are of type `H::Raw`, and stay as long as this.
    #[inline]
    pub(crate) unsafe fn of(list: *mut ngx_list_t) -> Self {
        // SAFETY: the caller promises a live list; only an address is taken.
        let part = unsafe { &raw const (*list).part };
        List { list, part, place: 0, element: PhantomData }
    }

    /// Adds an element at the end; `None` when memory is out.
    pub(crate) fn push(self, element: H::Raw) -> Option<&'r H> {
        // SAFETY: a live list of such elements, as whoever called `of` promised; it is not looked at further. The new element is
        // written before it is lent, and stays as long as the list.
        unsafe {
            let place: *mut H::Raw = ngx_list_push(self.list).cast();
            if !place.is_null() {
                place.write(element);
            }
            H::nullable(place)
        }
    }

    /// How many there are from here on, with those that were taken out.
    #[inline]
    pub fn count_all(self) -> usize {
        let (mut part, mut count) = (self.part, 0);
        // SAFETY: a part of a live list; null after the last.
        while let Some(elements) = unsafe { part.as_ref() } {
            count += elements.nelts;
            part = elements.next;
        }
        // Some may have gone since.
        count.saturating_sub(self.place)
    }
}

impl<'r, H: Handle> Iterator for List<'r, H> {
    type Item = &'r H;

    #[inline]
    fn next(&mut self) -> Option<&'r H> {
        // SAFETY: a part of a live list, read anew each time since elements may have gone meanwhile; null after the last. It has
        // so many elements, whose memory stays as long as the list.
        unsafe {
            while let Some(part) = self.part.as_ref() {
                if self.place < part.nelts {
                    let element = part.elts.cast::<H::Raw>().wrapping_add(self.place);
                    self.place += 1;
                    return H::nullable(element);
                }
                (self.part, self.place) = (part.next, 0);
            }
        }
        None
    }
}
