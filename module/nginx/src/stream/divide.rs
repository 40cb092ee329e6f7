//! Servers of `stream` with two handlers, `proxy_pass` and a `pass` behind it: something decides for each session.
//!
//! `ssl_preread` ends the PREREAD phase with its answer, so no phase handler would run behind it: the content
//! handler is wrapped instead.

use super::{Core, Preread, Proxy, Server, Session, Stock, StreamModule, StreamServer};
use crate::basic::callback::one;
use crate::basic::guard::contain;
use crate::conf::Conf;
use crate::conf::kept::Keeper;
use crate::sys::ngx_stream_content_handler_pt;
use std::cell::Cell;

/// Decides for the sessions of a server.
pub trait Divide: 'static {
    /// The module that the servers are divided for.
    type Module: StreamModule;
    /// For the error log.
    const NAME: &'static str;
    /// Whether a session is for `proxy_pass`; after a panic it is not.
    fn is_proxied(session: &Session) -> bool;
}

/// nginx's two handlers of a server; none: it is not divided.
#[derive(Default)]
pub(super) struct Handlers {
    proxy: Cell<ngx_stream_content_handler_pt>,
    pass: Cell<ngx_stream_content_handler_pt>,
}

/// Why a server cannot be divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undivided {
    /// It is, already.
    Already,
    /// There is no `proxy_pass` so far.
    NoProxy,
    /// There is no `pass` behind it.
    NoPass,
    /// `ssl_preread` is not on.
    NoPreread,
}

impl Conf {
    /// The server that is read is to be divided, for `M`: what follows is its other handler. Of two directives that set a
    /// server's handler the later one wins.
    pub fn begin_division<M: StreamModule>(&self) -> Result<(), Undivided> {
        let handlers = self.kept::<Server<M>>().map(|kept| &kept.handlers);
        let handlers = handlers.ok_or(Undivided::NoProxy)?;
        if handlers.proxy.get().is_some() {
            return Err(Undivided::Already);
        }
        let proxy = self.stock::<Proxy>(self.cycle());
        let is_proxy = proxy.is_some_and(|proxy| proxy.has_upstream() || proxy.has_variable());
        let core = self.stock::<Core>(self.cycle()).filter(|_| is_proxy);
        let handler = core.and_then(|core| core.peek(|raw| raw.handler));
        handlers.proxy.set(Some(handler.ok_or(Undivided::NoProxy)?));
        Ok(())
    }
}

impl StreamServer {
    /// Has `D` decide for its sessions, if its division was begun; all of it has been read.
    pub fn divide<D: Divide>(&self, conf: &Conf) -> Result<(), Undivided> {
        let handlers = self.kept::<Server<D::Module>>().map(|kept| &kept.handlers);
        let Some((handlers, proxy)) = handlers.and_then(|it| Some((it, it.proxy.get()?))) else {
            return Ok(());
        };
        let handler = self.peek(|raw| raw.handler);
        let pass = handler.filter(|handler| !std::ptr::fn_addr_eq(*handler, proxy));
        let preread = self.stock::<Preread>(conf.cycle());
        if pass.is_none() {
            return Err(Undivided::NoPass);
        }
        if preread.is_none_or(|preread| preread.enabled() != 1) {
            return Err(Undivided::NoPreread);
        }
        handlers.pass.set(pass);
        self.poke(|raw| raw.handler = Some(one(handle::<D>)));
        Ok(())
    }
}

/// nginx's callback when the preread is over.
extern "C" fn handle<D: Divide>(session: &Session) {
    let is_proxied = contain(D::NAME, false, || D::is_proxied(session));
    let handlers = session.kept::<Server<D::Module>>().map(|kept| &kept.handlers);
    let chosen = |it: &Handlers| if is_proxied { it.proxy.get() } else { it.pass.get() };
    if let Some(handler) = handlers.and_then(chosen) {
        // SAFETY: nginx's own for this server, with the session it gave, of which no handle is used from here on.
        unsafe { handler(session.as_ptr()) };
    }
}
