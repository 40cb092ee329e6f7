//! The hosts of Gateways' listeners, by port.

use super::definition::Record;
use super::server::{Servers, encode_server};
use crate::model::{ListenerHost, Server};

/// The kind of record that holds a host on one port, and its rules; the same bytes as those of [`Servers`].
pub enum ListenerServers {}

impl Record for ListenerServers {
    type Key = ListenerHost;
    type Value = Server;

    fn encode(_: &ListenerHost, server: &Server) -> Option<Vec<u8>> {
        Some(encode_server(server))
    }

    /// As of any other server.
    fn closed() -> Option<Server> {
        Servers::closed()
    }
}
