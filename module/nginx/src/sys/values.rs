//! First values of nginx's structs, which are macros in C, and arrays as slices.

use super::{
    NGX_ERROR, NGX_OK, ngx_http_conf_ctx_t, ngx_int_t, ngx_list_t, ngx_palloc, ngx_pool_t,
    ngx_stream_conf_ctx_t,
};
use super::{
    NGX_RS_ALIGNMENT, NGX_RS_MODULE_SIGNATURE, nginx_version, ngx_array_t, ngx_command_t,
    ngx_http_upstream_keepalive_srv_conf_t, ngx_module_t, ngx_str_t, ngx_uint_t,
};
use core::mem::offset_of;
use core::ptr::null_mut;

/// What every allocation from a pool is aligned to.
pub const NGX_ALIGNMENT: usize = NGX_RS_ALIGNMENT;

/// Where a directive's settings are in the context that nginx reads it in.
pub const NGX_HTTP_MAIN_CONF_OFFSET: usize = offset_of!(ngx_http_conf_ctx_t, main_conf);
/// As [`NGX_HTTP_MAIN_CONF_OFFSET`], for a server's.
pub const NGX_HTTP_SRV_CONF_OFFSET: usize = offset_of!(ngx_http_conf_ctx_t, srv_conf);
/// As [`NGX_HTTP_MAIN_CONF_OFFSET`], for a location's.
pub const NGX_HTTP_LOC_CONF_OFFSET: usize = offset_of!(ngx_http_conf_ctx_t, loc_conf);
/// As [`NGX_HTTP_MAIN_CONF_OFFSET`], for a server's in `stream`.
pub const NGX_STREAM_SRV_CONF_OFFSET: usize = offset_of!(ngx_stream_conf_ctx_t, srv_conf);

/// Makes a list with room for `count` elements of `size` bytes.
///
/// # Safety
/// `list` may be written, `pool` is alive.
#[inline]
pub unsafe fn ngx_list_init(
    list: *mut ngx_list_t,
    pool: *mut ngx_pool_t,
    count: ngx_uint_t,
    size: usize,
) -> ngx_int_t {
    (*list).part.elts = ngx_palloc(pool, count * size);
    if (*list).part.elts.is_null() {
        return NGX_ERROR as ngx_int_t;
    }
    (*list).part.nelts = 0;
    (*list).part.next = null_mut();
    (*list).last = &raw mut (*list).part;
    (*list).size = size;
    (*list).nalloc = count;
    (*list).pool = pool;
    NGX_OK as ngx_int_t
}

impl ngx_str_t {
    /// `ngx_null_string`
    pub const fn empty() -> Self {
        ngx_str_t { len: 0, data: null_mut() }
    }

    /// The string that is these bytes, without a copy: whoever keeps it keeps them.
    #[inline]
    pub const fn of(bytes: &[u8]) -> Self {
        ngx_str_t { len: bytes.len(), data: bytes.as_ptr().cast_mut() }
    }
}

impl ngx_array_t {
    /// What is in the array.
    ///
    /// # Safety
    /// It is initialised, its elements are of type `T`, and nothing is added meanwhile.
    pub unsafe fn as_slice<T>(&self) -> &[T] {
        debug_assert_eq!(size_of::<T>(), self.size);
        match self.nelts {
            0 => &[],
            count => core::slice::from_raw_parts(self.elts.cast(), count),
        }
    }
}

impl ngx_command_t {
    /// `ngx_null_command`
    pub const fn empty() -> Self {
        let name = ngx_str_t::empty();
        Self { name, type_: 0, set: None, conf: 0, offset: 0, post: null_mut() }
    }
}

impl ngx_module_t {
    /// `NGX_MODULE_V1` and `NGX_MODULE_V1_PADDING`
    pub const fn default() -> Self {
        Self {
            ctx_index: ngx_uint_t::MAX,
            index: ngx_uint_t::MAX,
            name: null_mut(),
            spare0: 0,
            spare1: 0,
            version: nginx_version as ngx_uint_t,
            signature: NGX_RS_MODULE_SIGNATURE.as_ptr(),
            ctx: null_mut(),
            commands: null_mut(),
            type_: 0,
            init_master: None,
            init_module: None,
            init_process: None,
            init_thread: None,
            exit_thread: None,
            exit_process: None,
            exit_master: None,
            spare_hook0: 0,
            spare_hook1: 0,
            spare_hook2: 0,
            spare_hook3: 0,
            spare_hook4: 0,
            spare_hook5: 0,
            spare_hook6: 0,
            spare_hook7: 0,
        }
    }
}

/// Whether nginx keeps the connections of this upstream apart by location: `keepalive N local`, and from
/// nginx 1.29.7 on what it does without the directive.
pub fn keeps_by_location(conf: &ngx_http_upstream_keepalive_srv_conf_t) -> bool {
    #[cfg(keepalive_local)]
    return conf.local != 0 || conf.max_cached == ngx_uint_t::MAX;
    #[cfg(not(keepalive_local))]
    {
        let _ = conf;
        false
    }
}
