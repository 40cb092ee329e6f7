//! A request's way to an endpoint: nginx's upstream, its states, its peers.

pub mod balancer;
pub mod discard;
pub mod head;
pub mod idle;
pub mod rewrite;
pub mod trailers;

use crate::basic::chain::{Buffer, Link};
use crate::basic::handle::{fields, handle};
use crate::basic::text::{Text, bytes};
use crate::request::Request;
use crate::request::header::Header;
use crate::stock::UpstreamConf;
use crate::sys::{ngx_http_upstream_state_t, ngx_msec_t, ngx_str_t};

fields! { Request {
    /// Its way to an endpoint, if it goes to one.
    option upstream: Upstream = upstream;
    /// The states of all attempts to reach endpoints.
    array upstream_states: State = upstream_states;
}}

impl Request {
    /// Puts another value in place of a header's, of the response or of what the endpoint has answered; `None` when memory is
    /// out, or for another's.
    pub fn set_response_value(&self, header: &Header, parts: &[&[u8]]) -> Option<()> {
        let answered = self.upstream().into_iter().flat_map(|upstream| upstream.headers());
        self.response_headers().chain(answered).find(|own| std::ptr::eq(*own, header))?;
        self.put_response_value(header, parts)
    }

    /// The same for a header that nginx has just handed over with this request: nobody looks for it among all of them.
    pub(crate) fn put_response_value(&self, header: &Header, parts: &[&[u8]]) -> Option<()> {
        let mut all = parts.to_vec();
        // nginx ends values with a NUL.
        all.push(b"\0");
        let value = self.pool().concat(&all)?.strip_suffix(b"\0")?;
        header.put_value(ngx_str_t::of(value));
        Some(())
    }
}

handle! {
    /// A request's way to an endpoint.
    Upstream of ngx_http_upstream_t
}

fields! { Upstream {
    /// The status that the endpoint has answered; 0: none yet.
    get status: usize = headers_in.status_n;
    /// The length of the body that it has announced; negative, if it has not.
    get content_length_n: i64 = headers_in.content_length_n;
    /// `http://`, `https://`, `fastcgi://` and the like.
    text schema = schema;
    /// The answer has `X-Accel-Redirect`: nginx sends the request to another path, unless the location ignores that.
    has redirects = headers_in.x_accel_redirect;
    /// The headers of the answer, once they are complete.
    list headers: Header = headers_in.headers;
    /// Its trailers, as they come; of gRPC alone.
    list trailers: Header = headers_in.trailers;
    /// The name of the endpoint that is asked, once one is.
    option peer_text: Text = peer.name;
    /// The settings of its location; `None` while the variables of `proxy_pass` are looked up.
    option conf: UpstreamConf = conf;
    /// What its attempts go out by, if `proxy_bind` says so.
    option local: LocalAddress = peer.local;
    /// They go out by the client's address.
    flag is_transparent = peer.transparent;
    /// The server name that nginx sends and verifies.
    text tls_name = ssl_name;
    /// What is sent.
    option request_link: Link = request_bufs;
    /// What is read of the answer.
    within buffer: Buffer = buffer;
    /// What has come out of the protocol's filter and was not sent yet.
    option out_link: Link = out_bufs;
    /// Bytes of the body that are to come; negative where nobody knows.
    get length_left: i64 = length;
    /// There is a connection to the endpoint.
    has has_connection = peer.connection;
    /// The body comes in chunks.
    flag is_chunked = headers_in.chunked;
    /// The endpoint closes the connection.
    flag closes = headers_in.connection_close;
    /// The answer is stored in a file.
    flag is_stored = store;
    /// Both speak another protocol from now on.
    flag is_upgraded = upgrade;
    /// The endpoint was named by a variable, and is looked up.
    has is_resolved = resolved;
    /// The state of the attempt that is under way.
    option state: State = state;
    /// The head of the answer is complete.
    flag is_header_sent = header_sent;
    /// TLS is spoken to the endpoint.
    flag is_tls = ssl;
    /// The answer may be kept.
    flag is_cacheable = cacheable;
    /// The endpoint lets the connection be used again.
    flag keeps_alive = keepalive;
    /// The whole request was sent.
    flag is_request_sent = request_body_sent;
    /// When its first attempt began, by nginx's clock.
    get start_milliseconds: usize = peer.start_time;
}}

impl Upstream {
    /// The name of the endpoint that is asked.
    pub fn peer_name(&self) -> &[u8] {
        self.peer_text().map_or(&[], Text::bytes)
    }

    /// How often `proxy_next_upstream_tries` lets a request try; 0: as often as there are endpoints.
    #[inline]
    pub fn tries(&self) -> usize {
        self.conf().map_or(0, UpstreamConf::tries)
    }

    /// Looks at the beginning of the request as nginx has written it and not begun to send it: all of its head, and of
    /// FastCGI its parameters. `None`: there is none.
    pub fn look_at_request<T>(&self, look: impl FnOnce(&[u8]) -> T) -> Option<T> {
        Some(self.request_link()?.buffer().look(look))
    }

    /// The answer is not kept.
    pub fn keep_out_of_cache(&self) {
        self.poke(|raw| raw.set_cacheable(0));
    }

    /// Tells the protocols apart: the function that writes requests. HTTP, HTTP/2, gRPC, FastCGI and the like each have
    /// their own, and it is never another's.
    #[inline]
    pub fn protocol(&self) -> u64 {
        self.peek(|raw| raw.create_request).map_or(0, |function| function as usize as u64)
    }
}

impl Request {
    /// Gives the request settings of its own for its way to endpoints, to be changed; `None` when memory is out, or it goes to
    /// none.
    pub fn own_upstream_conf(&self) -> Option<&UpstreamConf> {
        let upstream = self.upstream()?;
        let copy = self.pool().alloc(upstream.conf()?.peek(|raw| *raw))?;
        upstream.poke(|raw| raw.conf = copy);
        upstream.conf()
    }

    /// Another beginning in place of what [`Upstream::look_at_request`] has shown of its upstream; `None` when memory is out,
    /// or there is none.
    pub fn replace_request(&self, begin: &[u8]) -> Option<()> {
        let copy = self.pool().concat(&[begin])?;
        // nginx goes back to the buffer's start for another attempt.
        self.upstream()?.request_link()?.buffer().lead_to(copy);
        Some(())
    }
}

handle! {
    /// What an attempt goes out by, of `proxy_bind`.
    LocalAddress of ngx_addr_t
}

impl LocalAddress {
    /// The address in the kernel's form.
    pub fn bytes(&self) -> &[u8] {
        let (len, data) = self.peek(|raw| (raw.socklen as usize, raw.sockaddr.cast()));
        // SAFETY: nginx's addresses are as long as they say.
        unsafe { bytes(ngx_str_t { len, data }) }
    }
}

handle! {
    /// What is known of one attempt.
    State of ngx_http_upstream_state_t
}

fields! { State {
    /// Bytes of the answer's body.
    get response_length: i64 = response_length;
    /// The answer's status; 0: there was none.
    get status: usize = status;
    /// Address and port of the endpoint; `None`: as for [`State::has_peer`].
    option peer_text: Text = peer;
    /// There was an attempt: a state without a peer only divides those of two upstreams.
    has has_peer = peer;
}}

impl State {
    /// Address and port of the endpoint; `None`: as for [`State::has_peer`].
    #[inline]
    pub fn peer_name(&self) -> Option<&[u8]> {
        self.peer_text().map(Text::bytes)
    }

    #[inline]
    fn time(&self, of: impl FnOnce(&ngx_http_upstream_state_t) -> ngx_msec_t) -> Option<u64> {
        let time = self.peek(of);
        // nginx's -1: it did not come to that.
        (time != ngx_msec_t::MAX).then_some(time as u64)
    }

    /// Milliseconds until it was connected.
    #[inline]
    pub fn connect_milliseconds(&self) -> Option<u64> {
        self.time(|state| state.connect_time)
    }

    /// Milliseconds until the head of the answer was there.
    #[inline]
    pub fn header_milliseconds(&self) -> Option<u64> {
        self.time(|state| state.header_time)
    }

    /// Milliseconds until the answer was there.
    #[inline]
    pub fn response_milliseconds(&self) -> Option<u64> {
        self.time(|state| state.response_time)
    }
}
