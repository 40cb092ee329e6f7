//! Timers and posted events, which are inline functions and macros in `ngx_event_timer.h` and `ngx_event_posted.h`.

use super::{
    NGX_TIMER_LAZY_DELAY, ngx_current_msec, ngx_event_t, ngx_event_timer_rbtree, ngx_msec_t,
    ngx_queue_t, ngx_rbtree_delete, ngx_rbtree_insert,
};
use core::ptr::null_mut;

/// Calls an event's handler after `after` milliseconds.
///
/// # Safety
/// `event` is one of nginx's or zeroed, stays where it is while the timer is set, and this is the event loop's thread.
#[inline]
pub unsafe fn ngx_add_timer(event: *mut ngx_event_t, after: ngx_msec_t) {
    let key = ngx_current_msec.wrapping_add(after);
    if (*event).timer_set() != 0 {
        // A timer that would move by less stays where it is in the tree.
        if key.abs_diff((*event).timer.key) < NGX_TIMER_LAZY_DELAY as ngx_msec_t {
            return;
        }
        ngx_del_timer(event);
    }
    (*event).timer.key = key;
    ngx_rbtree_insert(&raw mut ngx_event_timer_rbtree, &raw mut (*event).timer);
    (*event).set_timer_set(1);
}

/// Takes a timer back.
///
/// # Safety
/// The event's timer is set, on the event loop's thread.
#[inline]
pub unsafe fn ngx_del_timer(event: *mut ngx_event_t) {
    let timer = &raw mut (*event).timer;
    ngx_rbtree_delete(&raw mut ngx_event_timer_rbtree, timer);
    ((*timer).left, (*timer).right, (*timer).parent) = (null_mut(), null_mut(), null_mut());
    (*event).set_timer_set(0);
}

/// Calls an event's handler when nginx comes to that queue, unless it waits in one already.
///
/// # Safety
/// As for [`ngx_add_timer`]; `queue` is one of nginx's queues of posted events.
#[inline]
pub unsafe fn ngx_post_event(event: *mut ngx_event_t, queue: *mut ngx_queue_t) {
    if (*event).posted() == 0 {
        (*event).set_posted(1);
        let link = &raw mut (*event).queue;
        (*link).prev = (*queue).prev;
        (*(*link).prev).next = link;
        (*link).next = queue;
        (*queue).prev = link;
    }
}

/// Takes an event out of the queue that it waits in.
///
/// # Safety
/// The event is posted, on the event loop's thread.
#[inline]
pub unsafe fn ngx_delete_posted_event(event: *mut ngx_event_t) {
    (*event).set_posted(0);
    let link = &raw mut (*event).queue;
    (*(*link).next).prev = (*link).prev;
    (*(*link).prev).next = (*link).next;
    ((*link).prev, (*link).next) = (null_mut(), null_mut());
}
