//! Listening, addresses, and whom to believe who a client is.

use crate::form::{Form, header_name, kept_header, listen_address, network, stripped_header};
use crate::key::{How, Key, key};
use oxigress_core::http::paths::Refused;

#[rustfmt::skip]
pub const KEYS: &[Key] = &[
    key("bind-address", Form::List("IP addresses", listen_address), "", How::Conf),
    key("disable-ipv6", Form::Flag, "false", How::Conf),
    key("disable-ipv6-dns", Form::Flag, "false", How::NoEffect("names are looked up by the controller, IPv6 addresses only where there are no others")),
    key("use-proxy-protocol", Form::Flag, "false", How::Conf),
    key("proxy-protocol-header-timeout", Form::Time, "5s", How::NoEffect("the PROXY header has to come within client-header-timeout")),
    key("use-forwarded-headers", Form::Flag, "false", How::Conf),
    key("enable-real-ip", Form::Flag, "false", How::Conf),
    key("proxy-real-ip-cidr", Form::List("networks", network), "0.0.0.0/0", How::Conf),
    key("forwarded-for-header", Form::Text("a header name", header_name), "X-Forwarded-For", How::Conf),
    key("forwarded-for-proxy-protocol-header", Form::Text("a header name", header_name), "X-Forwarded-For-Proxy-Protocol", How::Conf),
    key("forwarded-host-header", Form::Text("a header name", header_name), "X-Forwarded-Host", How::Conf),
    key("keep-forwarded-headers", Form::List("Forwarded, or names that begin with X-Forwarded-", kept_header), "", How::Conf),
    key("strip-request-headers", Form::List("header names, beginnings of names that end with -, or common", stripped_header), "", How::Conf),
    key("refuse-ambiguous-paths", Form::Words(&Refused::WORDS), "", How::Conf),
    key("compute-full-forwarded-for", Form::Flag, "false", How::Conf),
    key("generate-request-id", Form::Flag, "true", How::Conf),
    key("proxy-add-original-uri-header", Form::Flag, "false", How::Conf),
    key("nginx-status-ipv4-whitelist", Form::List("networks", network), "127.0.0.1", How::NoEffect("nginx_status is on a socket in the runtime folder only")),
    key("nginx-status-ipv6-whitelist", Form::List("networks", network), "::1", How::NoEffect("nginx_status is on a socket in the runtime folder only")),
];
