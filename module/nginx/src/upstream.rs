//! A request's way to an endpoint: nginx's upstream, its states, its peers.

use crate::basic::address::RawAddress;
use crate::basic::handle::{fields, handle};
use crate::basic::log::Log;
use crate::basic::text::bytes;
use crate::request::header::Headers;
use crate::sys::{ngx_connection_t, ngx_http_upstream_state_t, ngx_msec_t, ngx_str_t};

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
    /// The state of the attempt that is under way.
    option state: State = state;
    /// The head of the answer is complete.
    flag is_header_sent = header_sent;
    /// TLS is spoken to the endpoint.
    flag is_tls = ssl;
    /// The answer may be kept.
    flag is_cacheable = cacheable;
    /// The answer may be kept.
    set_flag set_cacheable = set_cacheable;
    /// The endpoint lets the connection be used again.
    flag keeps_alive = keepalive;
    /// The whole request was sent.
    flag is_request_sent = request_body_sent;
}}

impl Upstream {
    /// The headers of the answer, once they are complete.
    #[inline]
    pub fn headers(&self) -> Headers<'_> {
        // SAFETY: nginx makes the list before it asks an endpoint, in the request's pool.
        unsafe { Headers::of(&raw const (*self.as_ptr()).headers_in.headers) }
    }

    /// The name of the endpoint that is asked.
    pub fn peer_name(&self) -> &[u8] {
        // SAFETY: null, or a name that whoever chose the endpoint keeps in the request's pool.
        unsafe { (*self.as_ptr()).peer.name.as_ref().map_or(&[], |name| bytes(*name)) }
    }

    /// How often `proxy_next_upstream_tries` lets a request try; 0: as often as there are endpoints.
    #[inline]
    pub fn tries(&self) -> usize {
        // SAFETY: nginx gives an upstream the settings of its location before it chooses an endpoint.
        unsafe { (*(*self.as_ptr()).conf).next_upstream_tries }
    }

    /// Tells the protocols apart: the function that writes requests. HTTP, HTTP/2, gRPC, FastCGI and the like each have
    /// their own, and it is never another's.
    #[inline]
    pub fn protocol(&self) -> u64 {
        // SAFETY: copies a pointer out of a live struct.
        unsafe { (*self.as_ptr()).create_request }.map_or(0, |function| function as usize as u64)
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
}}

impl State {
    /// Address and port of the endpoint; `None`: as for [`State::has_peer`].
    #[inline]
    pub fn peer_name(&self) -> Option<&[u8]> {
        // SAFETY: null, or a string of the configuration or the request's pool.
        unsafe { (*self.as_ptr()).peer.as_ref() }.map(|name| unsafe { bytes(*name) })
    }

    #[inline]
    fn time(&self, of: impl Fn(&ngx_http_upstream_state_t) -> ngx_msec_t) -> Option<u64> {
        // SAFETY: a live struct of numbers, to which nobody has an exclusive reference; this one is dropped at once.
        let time = of(unsafe { &*self.as_ptr() });
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

    /// There was an attempt: a state without a peer only divides those of two upstreams.
    #[inline]
    pub fn has_peer(&self) -> bool {
        // SAFETY: copies a pointer out of a live struct.
        unsafe { !(*self.as_ptr()).peer.is_null() }
    }
}

impl crate::Request {
    /// The states of all attempts.
    #[inline]
    pub fn upstream_states(&self) -> impl Iterator<Item = &State> {
        // SAFETY: null, or an array of these in the request's pool.
        let states = unsafe {
            let states = (*self.as_ptr()).upstream_states.as_ref();
            states.map_or(&[][..], |states| states.as_slice::<ngx_http_upstream_state_t>())
        };
        // SAFETY: of that array; a handle shares it.
        states.iter().map(|state| unsafe { State::from_ptr(std::ptr::from_ref(state).cast_mut()) })
    }
}

/// How nginx says that an attempt is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome(pub usize);

impl Outcome {
    /// nginx takes the attempt for failed.
    #[inline]
    pub fn is_failed(self) -> bool {
        self.0 & crate::sys::NGX_PEER_FAILED as usize != 0
    }
}

handle! {
    /// One attempt to reach an endpoint: where to, and over which connection.
    Attempt of ngx_peer_connection_t
}

fields! { Attempt {
    /// The log of the request or session.
    link log: Log = log;
    /// Its connection was kept from before.
    flag is_cached = cached;
    /// Its connection was kept from before.
    set_flag set_cached = set_cached;
    /// How many more attempts there may be, this one included.
    set set_tries: usize = tries;
}}

impl Attempt {
    /// Leads it to an address, under a name for logs. Both lie in the pool of the request or session, with the peer.
    ///
    /// # Safety
    /// Both stay where they are until the next attempt, or the end of the request or session.
    #[inline]
    pub unsafe fn lead_to(&self, address: *mut RawAddress, length: usize, name: *mut ngx_str_t) {
        // SAFETY: a live struct; the caller promises the rest.
        unsafe {
            (*self.as_ptr()).sockaddr = address.cast();
            (*self.as_ptr()).socklen = length as _;
            (*self.as_ptr()).name = name;
        }
    }

    /// Its connection; null before it is made, and when it was taken away.
    #[inline]
    pub fn connection(&self) -> *mut ngx_connection_t {
        // SAFETY: copies a pointer out of a live struct.
        unsafe { (*self.as_ptr()).connection }
    }

    /// Another connection, or none.
    ///
    /// # Safety
    /// It is null, or open and nobody else's.
    #[inline]
    pub unsafe fn set_connection(&self, connection: *mut ngx_connection_t) {
        // SAFETY: a live struct; the caller promises the rest.
        unsafe { (*self.as_ptr()).connection = connection };
    }
}
