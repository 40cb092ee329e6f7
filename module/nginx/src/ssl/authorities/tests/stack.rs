//! What OpenSSL gets is all or nothing.

use crate::ssl::authorities::stack;
use libc::{c_int, c_void};
use openssl_sys as sys;
use std::cell::Cell;
use std::rc::Rc;

thread_local! {
    /// How many more objects there is memory for.
    static ROOM: Cell<usize> = const { Cell::new(0) };
}

/// # Safety
/// As `OPENSSL_sk_push`.
unsafe extern "C" fn push(stack: *mut sys::OPENSSL_STACK, object: *const c_void) -> c_int {
    match ROOM.get().checked_sub(1) {
        None => 0,
        Some(room) => {
            ROOM.set(room);
            // SAFETY: a stack and an object as `OPENSSL_sk_push` wants them, as the contract says.
            unsafe { sys::OPENSSL_sk_push(stack, object) }
        }
    }
}

#[test]
fn a_stack_has_all_objects_or_there_is_none() {
    let object = Rc::new(());
    let fill = |room| {
        ROOM.set(room);
        stack(vec![object.clone(); 3], |one| Rc::as_ptr(one).cast(), push)
    };
    for room in 0..3 {
        assert_eq!(fill(room), None, "room for {room} of 3");
        assert_eq!(Rc::strong_count(&object), 1, "each is freed once");
    }
    let full = fill(3).unwrap();
    assert_eq!(Rc::strong_count(&object), 4, "the stack counts them");
    // SAFETY: frees the stack, not what it names.
    unsafe { sys::OPENSSL_sk_free(full) };
}
