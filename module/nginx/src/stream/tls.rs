//! TLS to the endpoint of one session, in place of what `proxy_ssl` and its like say of its server.
//!
//! nginx reads these in what its server keeps, whenever it comes to them. So the session gets an array of its own for what
//! modules keep of its server, which has the server's but for a changed copy of what `proxy` keeps.

use super::{Functions, Main, OfServer, Session, StreamModule};
use crate::conf::kept::Keeper;
use crate::ssl::context::Context;
use crate::sys::{ngx_str_t, ngx_stream_complex_value_t, ngx_stream_proxy_srv_conf_t};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::rc::Rc;

/// What is said of the TLS to an endpoint.
pub struct EndpointTls<'a> {
    /// What decides the handshake.
    pub context: Rc<Context>,
    /// The name that is verified, and sent if it is to be.
    pub name: &'a str,
    /// The name is sent.
    pub server_name: bool,
    /// Whether an endpoint that is not trusted, or has another name, ends the attempt.
    pub verify: bool,
}

impl Session {
    /// Speaks TLS to the endpoint of a session that nginx is about to send to one. `None`, and nothing changes, when memory is out.
    pub fn speak_tls<M: StreamModule>(&self, tls: EndpointTls<'_>) -> Option<()> {
        // Places and their number are those of the configuration that the session is of, which may not be the newest.
        let &Functions { proxy, count, .. } = self.kept::<Main<M>>()?;
        let pool = self.pool();
        let modules = pool.alloc_slice(count, null_mut::<c_void>())?;
        // SAFETY: nginx's array has so many places; in this one its proxy module keeps such a struct, of numbers and pointers, for
        // each server.
        let server = unsafe {
            let array = Keeper::<OfServer>::array(self);
            modules.copy_from_slice(std::slice::from_raw_parts(array, count));
            *modules.get(proxy)?.cast::<ngx_stream_proxy_srv_conf_t>().as_ref()?
        };
        // A value without `lengths` is a plain text.
        let value = ngx_str_t::of(pool.concat(&[tls.name.as_bytes()])?);
        let name = ngx_stream_complex_value_t { value, ..ngx_stream_complex_value_t::default() };
        let (name, server) = (pool.alloc(name)?, pool.alloc(server)?);
        // The session's pool goes after the connection to its endpoint.
        let context = pool.keep(tls.context)?;
        server.ssl_enable = 1;
        server.ssl = context.as_nginx();
        server.ssl_name = name;
        server.ssl_server_name = tls.server_name.into();
        server.ssl_verify = tls.verify.into();
        server.ssl_session_reuse = 0;
        server.ssl_certificate = null_mut();
        server.ssl_certificate_key = null_mut();
        *modules.get_mut(proxy)? = std::ptr::from_mut(server).cast();
        self.poke(|raw| raw.srv_conf = modules.as_mut_ptr());
        Some(())
    }
}
