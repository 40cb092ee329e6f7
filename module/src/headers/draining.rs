//! `ingress_draining FILE`: nginx is about to end. While the file is there clients are told to use their connections no
//! more, so that few are idle when nginx closes them: a request that meets the close on its way is lost.
//!
//! A file, because its writer, the nginx role, speaks to no endpoint, and stock nginx sees it too (`if (-f FILE)`). Each
//! worker looks on its timer, not for each request.

use crate::conf::CoreConf;
use nginx::Request;
use std::cell::Cell;
use std::path::PathBuf;

/// What a worker knows of the file.
pub struct Draining {
    /// The file whose presence means draining; `None` without `ingress_draining`.
    file: Option<PathBuf>,
    is_there: Cell<bool>,
}

impl Draining {
    /// As the configuration names it; it was not looked at yet.
    pub fn new(core: &CoreConf) -> Self {
        Draining { file: core.draining(), is_there: Cell::new(false) }
    }

    /// Looks whether it is there.
    pub fn look(&self) {
        if let Some(file) = &self.file {
            self.is_there.set(file.exists());
        }
    }

    /// nginx is about to end: its clients should use their connections no more.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_there.get()
    }
}

/// The answer to this request is the last one of its connection: `Connection: close`. One of HTTP/2 gets a GOAWAY
/// with the next request, which is answered too.
pub fn send_away(request: &Request) {
    request.set_keepalive(false);
    if request.is_http2() {
        // nginx compares the requests of a connection with this setting of its server, and says GOAWAY above it. The
        // worker's own copy, of a configuration that has nothing before it but its end.
        request.end_connections_of_server();
    }
}
