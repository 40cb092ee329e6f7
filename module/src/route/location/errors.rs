//! `error_page` of a set of policies: its statuses lead to the server's `ingress_error` location.

use nginx::sys::{
    ngx_array_t, ngx_http_complex_value_t, ngx_http_complex_value_t__bindgen_ty_1,
    ngx_http_err_page_t, ngx_int_t, ngx_str_t,
};
use oxigress_core::model::policy::Errors;
use std::ptr::null_mut;

/// What nginx keeps for `error_page`, as an array of its own that nobody adds to.
pub struct ErrorPages {
    array: ngx_array_t,
    /// What `array` points to.
    _pages: Box<[ngx_http_err_page_t]>,
}

impl ErrorPages {
    /// All statuses to the named location `to`, which decides what becomes of them.
    pub fn new(errors: &Errors, to: ngx_str_t) -> Box<Self> {
        let page = |code: &u16| ngx_http_err_page_t {
            status: *code as ngx_int_t,
            // nginx keeps the status it came from, for the location to look at.
            overwrite: -1,
            value: ngx_http_complex_value_t {
                value: to,
                flushes: null_mut(),
                lengths: null_mut(),
                values: null_mut(),
                u: ngx_http_complex_value_t__bindgen_ty_1 { size: 0 },
            },
            args: ngx_str_t { len: 0, data: null_mut() },
        };
        let mut pages: Box<[_]> = errors.codes.iter().map(page).collect();
        let array = ngx_array_t {
            elts: pages.as_mut_ptr().cast(),
            nelts: pages.len(),
            size: size_of::<ngx_http_err_page_t>(),
            nalloc: pages.len(),
            pool: null_mut(),
        };
        Box::new(ErrorPages { array, _pages: pages })
    }

    /// For `error_pages` of a location.
    pub fn as_ptr(&self) -> *mut ngx_array_t {
        (&raw const self.array).cast_mut()
    }
}
