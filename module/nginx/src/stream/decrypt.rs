//! Servers of `stream` where TLS ends.

use super::{Ssl, Stock, StreamServer};
use crate::conf::Conf;
use crate::ssl::handshake::{Handshakes, ask};

impl StreamServer {
    /// From now on every handshake asks `H`. `false`: the server has no TLS.
    pub fn ask_handshakes<H: Handshakes>(&self, conf: &Conf) -> bool {
        self.stock::<Ssl>(conf.cycle()).is_some_and(|server| ask::<H>(&server.peek(|raw| raw.ssl)))
    }
}
