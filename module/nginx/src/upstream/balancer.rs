//! Balancers: what an upstream asks where its requests, or sessions, go.

use crate::basic::address::RawAddress;
use crate::basic::callback::{changing, changing_and, two};
use crate::basic::code::Code;
use crate::basic::guard::contain;
use crate::basic::handle::{fields, handle};
use crate::basic::log::Log;
use crate::basic::pool::Pool;
use crate::basic::text::Text;
use crate::conf::kept::{self, Keeper, NamedModule};
use crate::conf::module::HttpModule;
use crate::conf::{Conf, Refused, UpstreamBlock};
use crate::connection::Connection;
use crate::request::Request;
use crate::sys::{
    NGX_ERROR, NGX_HTTP_UPSTREAM_CREATE, NGX_OK, ngx_conf_t, ngx_event_t,
    ngx_http_upstream_init_pt, ngx_http_upstream_srv_conf_t, ngx_int_t, ngx_peer_connection_t,
    ngx_str_t, ngx_uint_t,
};
use crate::upstream::idle::{Idle, Open};
use std::cell::Cell;
use std::ffi::c_void;
use std::net::SocketAddr;
use std::ptr::null_mut;

/// Balances the requests of an `upstream` block.
pub trait Balancer: 'static {
    /// For the error log.
    const NAME: &'static str;
    /// What it keeps for a request, in the request's pool. It is not dropped.
    type Peer<'r>: Peer<'r>;
    /// When the block has been read: nginx's settings for it are known now.
    fn init(upstream: &mut NewUpstream<'_>) -> Result<(), Refused>;
    /// When a request is about to be sent to the block; `None`: it cannot be sent.
    fn peer<'r>(request: &'r Request, block: &'r UpstreamBlock) -> Option<Self::Peer<'r>>;
}

/// An upstream that is initialised: meanwhile the one way to what modules keep for it.
pub struct NewUpstream<'c> {
    conf: &'c mut Conf,
    block: &'c UpstreamBlock,
}

impl NewUpstream<'_> {
    /// The configuration that is read.
    pub fn conf(&self) -> &Conf {
        self.conf
    }

    /// nginx's side of it.
    pub fn block(&self) -> &UpstreamBlock {
        self.block
    }

    /// What a module of nginx's own keeps for it; `None` where nginx was built without it.
    pub fn conf_of<N: NamedModule>(&self) -> Option<&N::Server> {
        self.block.conf_of::<N>(self.conf.cycle())
    }

    /// What module `M` keeps for it.
    pub fn server<M: HttpModule>(&mut self) -> Option<&mut M::Server> {
        let array = Keeper::array(self.block);
        self.conf.exclusive::<kept::Server<M>>(array)
    }
}

/// Chooses where a request or session goes, attempt by attempt.
pub trait Peer<'r> {
    /// Where to: [`Code::OK`] after [`Attempt::lead_to`]; [`Code::DONE`] with a connection that was kept, too. Else there is
    /// no attempt: [`Code::BUSY`] of a request, [`Code::DECLINED`] of a session, [`Code::ERROR`].
    fn get(&mut self, attempt: &Attempt<'r>) -> Code;
    /// The attempt is over. nginx calls it once for each that `get` has begun.
    fn free(&mut self, attempt: &Attempt<'r>, outcome: Outcome);
    /// The attempt has connected; of sessions only.
    fn connected(&mut self) {}
}

/// How nginx says that an attempt is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome(pub usize);

impl Outcome {
    /// It went well, or there was none.
    pub const WELL: Outcome = Outcome(0);

    /// nginx takes the attempt for failed.
    #[inline]
    pub fn is_failed(self) -> bool {
        self.0 & crate::sys::NGX_PEER_FAILED as usize != 0
    }
}

handle! {
    /// nginx's side of an attempt.
    PeerConnection of ngx_peer_connection_t
}

fields! { PeerConnection {
    /// The log of the request or session.
    link log: Log = log;
    /// Its connection was kept from before.
    flag is_cached = cached;
    /// Its connection was kept from before.
    set_flag set_cached = set_cached;
    /// How many attempts there may be.
    get tries: usize = tries;
    /// How many more attempts there may be, this one included.
    set set_tries: usize = tries;
    /// Its connection; none before it is made, and when it was taken away.
    option connection: Connection = connection;
}}

impl PeerConnection {
    /// Has the kernel tell what comes over its connection, one to an endpoint; `false` when it cannot.
    #[inline]
    pub fn watch(&self) -> bool {
        self.connection().is_some_and(|connection| connection.read_event().watch())
    }
}

/// One attempt to reach an endpoint: where to, and over which connection.
pub struct Attempt<'r> {
    raw: &'r PeerConnection,
    /// In the pool of the request or session.
    address: &'r Cell<RawAddress>,
    /// nginx makes and closes the connection of a session by itself.
    is_of_session: bool,
}

impl<'r> Attempt<'r> {
    /// nginx's side of it. It is lent for the callback: its connection may be closed before the request ends, and its pool goes
    /// then.
    #[inline]
    pub fn nginx(&self) -> &PeerConnection {
        self.raw
    }

    /// Leads it to an address, under a name for logs.
    #[inline]
    pub fn lead_to(&self, to: SocketAddr, name: &'r PeerName) {
        let (address, length) = RawAddress::new(to);
        self.address.set(address);
        self.raw.poke(|raw| {
            raw.sockaddr = self.address.as_ptr().cast();
            raw.socklen = length as _;
        });
        self.name(name);
    }

    /// A name for logs.
    #[inline]
    pub fn name(&self, name: &'r PeerName) {
        self.raw.poke(|raw| raw.name = (&raw const name.text).cast_mut());
    }

    /// Another name for logs: one of the configuration.
    pub fn name_text(&self, name: &'r Text) {
        self.raw.poke(|raw| raw.name = name.as_ptr());
    }

    /// Goes over a connection that was kept.
    #[inline]
    pub fn go_over(&self, kept: Idle) {
        if self.is_of_session {
            return;
        }
        let connection = kept.resume(self.raw.log()).into_raw();
        self.raw.poke(|raw| raw.connection = connection);
        self.raw.set_cached(true);
    }

    /// No connection, so that nginx makes one. One that is there is closed.
    #[inline]
    pub fn forget_connection(&self) {
        if self.is_of_session {
            return;
        }
        drop(self.take_connection());
        self.raw.set_cached(false);
    }

    /// Takes the connection of an attempt that is over: nginx has done with it, and would close it.
    #[inline]
    pub fn take_connection(&self) -> Option<Open> {
        // nginx still closes that of a session, which is used once.
        let connection = self.raw.connection().filter(|_| !self.is_of_session)?;
        self.raw.poke(|raw| raw.connection = null_mut());
        // Until it waits for something, nothing of the request is called any more.
        connection.poke(|raw| raw.data = null_mut());
        for event in [connection.read_event(), connection.write_event()] {
            event.poke(|raw| raw.handler = Some(nothing_happens));
        }
        // That of the request goes with its client's connection.
        connection.log_to(Log::of_cycle());
        // SAFETY: of this attempt, and taken away from it: nobody else has it.
        Some(unsafe { Open::from_raw(connection.as_ptr()) })
    }
}

unsafe extern "C" fn nothing_happens(_: *mut ngx_event_t) {}

/// The longest name of an address, of IPv6 in brackets with its port, has 47 bytes.
const NAME_BYTES: usize = 47;

/// The name of an attempt's endpoint. nginx logs it for each attempt, so each has its own.
#[repr(C)]
pub struct PeerName {
    text: ngx_str_t,
    bytes: [u8; NAME_BYTES],
}

impl PeerName {
    /// A copy in a pool, cut to what an address may have; `None` when memory is out.
    #[inline]
    pub fn copy<'p>(pool: &'p Pool, text: &[u8]) -> Option<&'p PeerName> {
        let name = pool.alloc(PeerName { text: ngx_str_t::empty(), bytes: [0; NAME_BYTES] })?;
        let length = text.len().min(NAME_BYTES);
        if let (Some(place), Some(text)) = (name.bytes.get_mut(..length), text.get(..length)) {
            place.copy_from_slice(text);
            name.text = ngx_str_t::of(place);
        }
        Some(name)
    }

    /// nginx's own string.
    pub fn as_ptr(&self) -> *mut ngx_str_t {
        (&raw const self.text).cast_mut()
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.text.len).unwrap_or_default()
    }
}

/// What nginx gets for a peer: the peer, and the address that its attempt is led to.
pub(crate) struct Slot<P> {
    pub peer: P,
    address: Cell<RawAddress>,
    is_of_session: bool,
}

impl<P> Slot<P> {
    /// A peer of a request or session, made in its pool: it is too large to be moved for every request.
    #[inline]
    pub(crate) fn of(
        pool: &Pool,
        is_of_session: bool,
        peer: impl FnOnce() -> Option<P>,
    ) -> Option<*mut c_void> {
        let slot = pool.alloc_with(|| {
            let (peer, address) = (peer()?, Cell::new(RawAddress::none()));
            Some(Slot { peer, address, is_of_session })
        })?;
        Some(std::ptr::from_mut(slot).cast())
    }
}

impl Conf {
    /// Has `B` balance the upstream that is read; `false`, and nothing changes, when another directive does already.
    pub fn set_balancer<B: Balancer>(&mut self) -> bool {
        let Some(upstream) = self.upstream() else { return false };
        if upstream.peer.init_upstream.is_some() {
            return false;
        }
        upstream.peer.init_upstream = Some(init_upstream::<B>);
        upstream.flags = NGX_HTTP_UPSTREAM_CREATE as ngx_uint_t;
        true
    }

    /// `B` balances the upstream that is read.
    pub fn is_balanced_by<B: Balancer>(&mut self) -> bool {
        let init = self.upstream().and_then(|upstream| upstream.peer.init_upstream);
        let ours: ngx_http_upstream_init_pt = Some(init_upstream::<B>);
        init.zip(ours).is_some_and(|(init, ours)| std::ptr::fn_addr_eq(init, ours))
    }
}

/// nginx's callback for an upstream block: says what to call for each request.
unsafe extern "C" fn init_upstream<B: Balancer>(
    cf: *mut ngx_conf_t,
    upstream: *mut ngx_http_upstream_srv_conf_t,
) -> ngx_int_t {
    let decided = contain(B::NAME, Err(Refused::Told), || {
        // SAFETY: nginx gives the configuration that it reads, to which nobody else refers meanwhile, and one of its upstreams.
        let (conf, block) = unsafe { (Conf::reading(cf), UpstreamBlock::from_ptr(upstream)) };
        B::init(&mut NewUpstream { conf, block })?;
        block.poke(|raw| raw.peer.init = Some(two(init_peer::<B>)));
        Ok(())
    });
    decided.map_or(NGX_ERROR as ngx_int_t, |()| NGX_OK as ngx_int_t)
}

/// nginx's callback when a request is about to be sent to this upstream.
extern "C" fn init_peer<B: Balancer>(request: &Request, block: &UpstreamBlock) -> ngx_int_t {
    contain(B::NAME, NGX_ERROR as ngx_int_t, || {
        let peer = Slot::of(request.pool(), false, || B::peer(request, block));
        let (Some(data), Some(upstream)) = (peer, request.upstream()) else {
            return NGX_ERROR as ngx_int_t;
        };
        upstream.poke(|raw| prepare::<B::Peer<'static>>(&mut raw.peer, data));
        NGX_OK as ngx_int_t
    })
}

/// Says what to call for each attempt. The lifetime of the peer's type is that of its request, for which alone nginx calls.
pub(crate) fn prepare<P: Peer<'static> + 'static>(
    attempt: &mut ngx_peer_connection_t,
    data: *mut c_void,
) {
    attempt.data = data;
    attempt.get = Some(changing(get_peer::<P>));
    attempt.free = Some(changing_and(free_peer::<P>));
    // The first attempt sets it to what there is.
    attempt.tries = 1;
    // nginx calls these unchecked where TLS is spoken to endpoints.
    attempt.set_session = Some(set_session);
    attempt.save_session = Some(save_session);
}

/// nginx's callback for an attempt, with what `prepare` set: where to connect to.
extern "C" fn get_peer<P: Peer<'static> + 'static>(
    raw: &PeerConnection,
    slot: &mut Slot<P>,
) -> ngx_int_t {
    contain("get_peer", NGX_ERROR as ngx_int_t, || {
        let code = slot.called(raw, |peer, attempt| peer.get(attempt));
        let (has_address, has_connection) =
            raw.peek(|raw| (!raw.sockaddr.is_null(), !raw.connection.is_null()));
        // nginx would look at what is not there.
        match code {
            Code::OK if has_address => code.0,
            Code::DONE if has_address && has_connection => code.0,
            Code::BUSY | Code::DECLINED => code.0,
            _ => Code::ERROR.0,
        }
    })
}

/// nginx's callback after an attempt; `state` is 0 if it went well. nginx calls it once for each.
extern "C" fn free_peer<P: Peer<'static> + 'static>(
    raw: &PeerConnection,
    slot: &mut Slot<P>,
    state: ngx_uint_t,
) {
    contain("free_peer", (), || {
        slot.called(raw, |peer, attempt| peer.free(attempt, Outcome(state)));
    });
}

impl<P: Peer<'static> + 'static> Slot<P> {
    /// Calls the peer about an attempt, in the callback that nginx makes about it, while the request or session is alive.
    #[inline]
    fn called<T>(
        &mut self,
        raw: &PeerConnection,
        call: impl FnOnce(&mut P, &Attempt<'static>) -> T,
    ) -> T {
        let (peer, address) = (&mut self.peer, &raw const self.address);
        // SAFETY: what nginx gives, and the slot, which is in the pool, live as long as the request or session. What the peer
        // gets with a longer lifetime it cannot keep for longer: it is written for any, and goes with its request or session.
        let (raw, address) = unsafe { (PeerConnection::from_ptr(raw.as_ptr()), &*address) };
        call(peer, &Attempt { raw, address, is_of_session: self.is_of_session })
    }
}

unsafe extern "C" fn set_session(_: *mut ngx_peer_connection_t, _: *mut c_void) -> ngx_int_t {
    NGX_OK as ngx_int_t
}

unsafe extern "C" fn save_session(_: *mut ngx_peer_connection_t, _: *mut c_void) {}
