//! Requests that nginx has not made, with as much of nginx as their headers need.

use super::Request;
use crate::request::header::Sole;
use crate::sys::{
    ngx_buf_t, ngx_chain_t, ngx_http_headers_in_t, ngx_http_request_body_t, ngx_http_request_t,
    ngx_list_init, ngx_list_t, ngx_pool_t, ngx_str_t, ngx_table_elt_t,
};
use std::ffi::c_void;
use std::ptr::{null_mut, without_provenance_mut};

/// Stands in the place of nginx's, and gives nothing back.
#[unsafe(no_mangle)]
extern "C" fn ngx_palloc(_: *mut ngx_pool_t, size: usize) -> *mut c_void {
    let mut room = std::mem::ManuallyDrop::new(Vec::<u128>::with_capacity(size.div_ceil(16)));
    room.as_mut_ptr().cast()
}

/// As [`ngx_palloc`].
#[unsafe(no_mangle)]
extern "C" fn ngx_pnalloc(pool: *mut ngx_pool_t, size: usize) -> *mut c_void {
    ngx_palloc(pool, size)
}

/// As nginx's, for lists of one part.
#[unsafe(no_mangle)]
extern "C" fn ngx_list_push(list: *mut ngx_list_t) -> *mut c_void {
    // SAFETY: a list that `ngx_list_init` has made.
    unsafe {
        let part = (*list).last;
        assert!((*part).nelts < (*list).nalloc, "the list is full");
        (*part).nelts += 1;
        (*part).elts.byte_add(((*part).nelts - 1) * (*list).size)
    }
}

type Field = fn(&mut ngx_http_headers_in_t) -> &mut *mut ngx_table_elt_t;

fn made(change: impl FnOnce(&mut ngx_http_request_t)) -> &'static Request {
    let raw = Box::leak(Box::new(ngx_http_request_t::default()));
    raw.set_count(1);
    change(raw);
    // SAFETY: it is never freed.
    unsafe { Request::from_ptr(raw) }
}

/// A main request without headers.
fn main_request() -> &'static Request {
    let pool = Box::leak(Box::new(ngx_pool_t::default()));
    let request = made(|raw| raw.pool = pool);
    request.poke(|raw| raw.main = request.as_ptr());
    let size = size_of::<ngx_table_elt_t>();
    // SAFETY: made above.
    unsafe { ngx_list_init(&raw mut (*request.as_ptr()).headers_in.headers, pool, 32, size) };
    request
}

/// What nginx makes of it for a subrequest.
fn subrequest(of: &Request) -> &'static Request {
    let (main, pool) = (of.as_ptr(), of.pool().as_ptr());
    // SAFETY: nginx copies the struct so, pointers included; here it is dropped nowhere.
    let headers_in = unsafe { (&raw const (*main).headers_in).read() };
    made(|raw| (raw.main, raw.pool, raw.headers_in) = (main, pool, headers_in))
}

/// As nginx reads a header; it writes no link where it keeps no pointer.
fn add(request: &Request, name: &'static [u8], value: &'static [u8], field: Option<Field>) {
    let (key, value) = (ngx_str_t::of(name), ngx_str_t::of(value));
    let next = if field.is_some() { null_mut() } else { without_provenance_mut(1) };
    let new = ngx_table_elt_t { hash: 1, key, value, lowcase_key: null_mut(), next };
    let header = request.headers().push(new).map_or(null_mut(), |header| header.as_ptr());
    let Some(field) = field else { return };
    let mut link = request.poke(|raw| std::ptr::from_mut(field(&mut raw.headers_in)));
    // SAFETY: the pointer of the request, or the link of a header that it leads to.
    unsafe {
        while !(*link).is_null() {
            link = &raw mut (**link).next;
        }
        *link = header;
    }
}

fn names(request: &Request) -> Vec<&[u8]> {
    request.headers().map(|header| header.name()).collect()
}

#[test]
fn a_subrequest_has_headers_of_its_own() {
    let main = main_request();
    add(main, b"X-One", b"1", None);
    add(main, b"Host", b"shop.test", Some(|headers| &mut headers.host));
    add(main, b"X-Two", b"2", None);
    add(main, b"X-Forwarded-For", b"::1", Some(|headers| &mut headers.x_forwarded_for));
    add(main, b"X-Forwarded-For", b"::2", Some(|headers| &mut headers.x_forwarded_for));
    let copy = subrequest(main);
    assert_eq!(copy.own_headers().and_then(|()| copy.pass_headers(|_| true)), Some(()));

    main.remove_headers(|name, value| name == b"X-One" || value == b"::1");
    assert_eq!(names(main), [&b"Host"[..], b"X-Two", b"X-Forwarded-For"]);
    let all = [&b"X-One"[..], b"Host", b"X-Two", b"X-Forwarded-For", b"X-Forwarded-For"];
    assert_eq!(names(copy), all);
    assert_eq!(copy.host_header().map(|header| header.value()), Some(&b"shop.test"[..]));
    assert!(copy.sole_header(Sole::ForwardedFor).is_none(), "it has lost one");
    let left = main.sole_header(Sole::ForwardedFor).expect("there is one").expect("it is there");
    assert_eq!(left.value(), b"::2");

    copy.remove_headers(|_, _| true);
    copy.hide_authorization();
    let first = copy.headers().next().expect("there are some");
    assert_eq!(copy.set_header_value(first, b"other"), None);
    assert_eq!((names(copy).len(), names(main).len()), (5, 3));
    assert_eq!((main.pass_headers(|_| true), names(main).len()), (None, 3));
}

#[test]
fn a_request_that_nginx_frees_is_over() {
    let request = main_request();
    let is_over = |count, done, post_action| {
        request.poke(|raw| {
            raw.set_count(count);
            raw.set_done(done);
            raw.set_post_action(post_action);
        });
        request.is_over()
    };
    assert!(!is_over(1, 0, 0));
    assert!(is_over(0, 0, 0), "its connection was closed");
    assert!(is_over(1, 1, 0), "its connection is kept");
    assert!(!is_over(1, 1, 1), "nginx sends it elsewhere once more");
    assert!(is_over(0, 1, 1));
    let copy = subrequest(request);
    assert!(copy.is_over(), "its main request is");
}

#[test]
fn what_lies_in_two_buffers_is_two_pieces() {
    let mut text = *b"onetwo";
    let start = text.as_mut_ptr();
    let (middle, end) = (start.wrapping_add(3), start.wrapping_add(6));
    let pieces = |end_of_first: *mut u8| -> Vec<Vec<u8>> {
        let buffer =
            |pos, last, end| ngx_buf_t { start: pos, pos, last, end, ..Default::default() };
        let mut buffers = [buffer(start, middle, end_of_first), buffer(middle, end, end)];
        let [first, second] = &mut buffers;
        let mut behind = ngx_chain_t { buf: second, next: null_mut() };
        let mut bufs = ngx_chain_t { buf: first, next: &raw mut behind };
        let mut body = ngx_http_request_body_t { bufs: &raw mut bufs, ..Default::default() };
        let request = made(|raw| raw.request_body = &raw mut body);
        request.body_pieces().map(|piece| piece.expect("in memory").to_vec()).collect()
    };
    assert_eq!(pieces(end), [b"onetwo".to_vec()]);
    assert_eq!(pieces(middle), [b"one".to_vec(), b"two".to_vec()]);
}
