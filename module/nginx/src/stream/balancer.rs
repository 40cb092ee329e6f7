//! Balancers of sessions.

use super::{Session, Stock, StreamBlock, UpstreamOfStream};
use crate::basic::callback::{changing_and, two};
use crate::basic::code::Code;
use crate::basic::guard::contain;
use crate::conf::{Conf, Refused};
use crate::sys::{
    NGX_STREAM_UPSTREAM_CREATE, NGX_STREAM_UPSTREAM_NOTIFY_CONNECT, ngx_int_t, ngx_uint_t,
};
use crate::upstream::balancer::{Peer, PeerConnection, Slot, prepare};

/// Balances the sessions of an `upstream` block.
pub trait SessionBalancer: 'static {
    /// For the error log.
    const NAME: &'static str;
    /// What it keeps for a session, in the session's pool. It is not dropped.
    type Peer<'s>: Peer<'s>;
    /// When the block has been read: nginx's settings for it are known now.
    fn init(block: &StreamBlock) -> Result<(), Refused>;
    /// When a session is about to be sent to the block; `None`: it cannot be sent.
    fn peer<'s>(session: &'s Session, block: &'s StreamBlock) -> Option<Self::Peer<'s>>;
}

impl Conf {
    /// Has `B` balance the upstream of `stream` that is read; `false`, and nothing changes, when another directive does
    /// already.
    pub fn set_session_balancer<B: SessionBalancer>(&mut self) -> bool {
        let block = self.stock::<UpstreamOfStream>(self.cycle());
        let block = block.filter(|block| block.peek(|raw| raw.peer.init_upstream.is_none()));
        let change = |block: &StreamBlock| {
            block.poke(|raw| {
                raw.peer.init_upstream = Some(two(init_upstream::<B>));
                raw.flags = NGX_STREAM_UPSTREAM_CREATE as ngx_uint_t;
            });
        };
        block.map(change).is_some()
    }
}

/// nginx's callback for an upstream block: says what to call for each session.
extern "C" fn init_upstream<B: SessionBalancer>(_: &Conf, block: &StreamBlock) -> ngx_int_t {
    let decided = contain(B::NAME, Err(Refused::Told), || {
        B::init(block)?;
        block.poke(|raw| raw.peer.init = Some(two(init_peer::<B>)));
        Ok(())
    });
    decided.map_or(Code::ERROR.0, |()| Code::OK.0)
}

/// nginx's callback when a session is about to be sent to this upstream.
extern "C" fn init_peer<B: SessionBalancer>(session: &Session, block: &StreamBlock) -> ngx_int_t {
    contain(B::NAME, Code::ERROR, || {
        let pool = session.pool();
        let peer = Slot::of(pool, true, || B::peer(session, block));
        let (Some(data), Some(upstream)) = (peer, session.upstream()) else { return Code::ERROR };
        upstream.poke(|raw| {
            prepare::<B::Peer<'static>>(&mut raw.peer, data);
            raw.peer.notify = Some(changing_and(notify_peer::<B::Peer<'static>>));
            // nginx makes `proxy_next_upstream_tries` of it, which no header says.
            raw.peer.tries = ngx_uint_t::MAX;
        });
        Code::OK
    })
    .0
}

/// nginx's callback when an attempt has connected, and from nginx 1.31.0 on also when its first byte has come.
extern "C" fn notify_peer<P: Peer<'static> + 'static>(
    _: &PeerConnection,
    slot: &mut Slot<P>,
    what: ngx_uint_t,
) {
    if what == NGX_STREAM_UPSTREAM_NOTIFY_CONNECT as ngx_uint_t {
        contain("notify_peer", (), || slot.peer.connected());
    }
}
