//! The module's variables, added to nginx's.

use super::{Request, guard, memory};
use crate::variable::{VARIABLES, Variable};
use nginx::sys::{
    NGX_ERROR, NGX_HTTP_VAR_CHANGEABLE, NGX_HTTP_VAR_NOCACHEABLE, NGX_OK, ngx_conf_t,
    ngx_http_add_variable, ngx_http_request_t, ngx_http_variable_value_t, ngx_int_t, ngx_str_t,
    ngx_uint_t,
};
use std::borrow::Cow;

/// Runs before http{} is read.
pub unsafe extern "C" fn add(cf: *mut ngx_conf_t) -> ngx_int_t {
    guard::contain("variables", NGX_ERROR as ngx_int_t, || {
        for (place, Variable { name, is_lasting, .. }) in VARIABLES.iter().enumerate() {
            let mut name = ngx_str_t { len: name.len(), data: name.as_ptr().cast_mut() };
            // Changeable, so that a hand-written configuration may `set` one of these names itself.
            let lasting = if *is_lasting { 0 } else { NGX_HTTP_VAR_NOCACHEABLE };
            let flags = (NGX_HTTP_VAR_CHANGEABLE | lasting) as ngx_uint_t;
            // SAFETY: nginx calls this inside of http{}; it copies the name.
            let variable = unsafe { ngx_http_add_variable(cf, &raw mut name, flags).as_mut() };
            let Some(variable) = variable else { return NGX_ERROR as ngx_int_t };
            variable.get_handler = Some(get);
            variable.data = place;
        }
        NGX_OK as ngx_int_t
    })
}

/// nginx's callback when somebody asks for a variable.
unsafe extern "C" fn get(
    request: *mut ngx_http_request_t,
    value: *mut ngx_http_variable_value_t,
    place: usize,
) -> ngx_int_t {
    guard::contain("variable", NGX_ERROR as ngx_int_t, || {
        // SAFETY: nginx gives the value to fill.
        let value = unsafe { &mut *value };
        // SAFETY: nginx gives a live request, on the event loop.
        let safe = unsafe { Request::from_callback(request) };
        let text = match (&safe, VARIABLES.get(place)) {
            (Some(request), Some(variable)) => (variable.value)(request),
            _ => None,
        };
        let text = match text {
            Some(Cow::Borrowed(text)) => {
                // Borrowed texts lie in the request's buffers or pool, or in the program.
                Some(ngx_str_t { len: text.len(), data: text.as_ptr().cast_mut() })
            }
            // SAFETY: the request's pool is alive.
            Some(Cow::Owned(text)) => unsafe { memory::concat((*request).pool, &[&text]) },
            None => None,
        };
        value.set_valid(u32::from(text.is_some()));
        value.set_not_found(u32::from(text.is_none()));
        value.set_no_cacheable(0);
        if let Some(text) = text {
            value.set_len(text.len as u32);
            value.data = text.data;
        }
        NGX_OK as ngx_int_t
    })
}
