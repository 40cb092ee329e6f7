//! What listeners speak, and on which ports of nginx.

use crate::Options;
use oxigress_core::model::StreamPort;
use oxigress_objects::Kind;
use oxigress_objects::gateway::Listener;
use oxigress_objects::gateway_status::Condition;
use oxigress_settings::conf_input::{self, HttpListener};
use std::num::NonZeroU16;

/// What a listener speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Requests.
    Http,
    /// Requests, over TLS that ends here.
    Https,
    /// TLS that is passed through.
    Passthrough,
    /// TLS that ends here, with whatever in it.
    Terminate,
    /// Bytes.
    Tcp,
    /// Datagrams.
    Udp,
}

/// What one port speaks: listeners that differ in it cannot share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Requests.
    Http,
    /// Requests over TLS, with `--enable-ssl-passthrough` beside TLS that is passed through.
    Https,
    /// Sessions over TLS.
    Tls,
    /// Bytes.
    Tcp,
    /// Datagrams.
    Udp,
}

impl Protocol {
    /// What a listener asks for, or why it cannot be had.
    pub fn of(spec: &Listener) -> Result<Self, Condition> {
        let mode = spec.tls.as_ref().and_then(|tls| tls.mode.as_deref());
        let refuse = |reason, message: String| Err(Condition::no("Accepted", reason, message));
        match (&*spec.protocol, mode) {
            ("HTTP", _) => Ok(Protocol::Http),
            ("HTTPS", None | Some("Terminate")) => Ok(Protocol::Https),
            ("HTTPS", _) => {
                refuse("UnsupportedValue", "tls.mode: HTTPS has Terminate alone".into())
            }
            ("TLS", Some("Passthrough")) => Ok(Protocol::Passthrough),
            ("TLS", None | Some("Terminate")) => Ok(Protocol::Terminate),
            ("TLS", Some(mode)) => {
                let message = format!("tls.mode {mode} is unknown: use Terminate or Passthrough");
                refuse("UnsupportedValue", message)
            }
            ("TCP", _) => Ok(Protocol::Tcp),
            ("UDP", _) => Ok(Protocol::Udp),
            (other, _) => {
                let message =
                    format!("protocol {other} is not served: use HTTP, HTTPS, TLS, TCP or UDP");
                refuse("UnsupportedProtocol", message)
            }
        }
    }

    /// The kinds of routes that may attach.
    pub fn kinds(self) -> &'static [Kind] {
        match self {
            Protocol::Http | Protocol::Https => &[Kind::HTTPRoute, Kind::GRPCRoute],
            Protocol::Passthrough | Protocol::Terminate => &[Kind::TLSRoute],
            Protocol::Tcp => &[Kind::TCPRoute],
            Protocol::Udp => &[Kind::UDPRoute],
        }
    }

    /// Host names tell its routes apart.
    pub fn has_hosts(self) -> bool {
        !matches!(self, Protocol::Tcp | Protocol::Udp)
    }

    /// What it carries are requests.
    pub fn is_http(self) -> bool {
        matches!(self, Protocol::Http | Protocol::Https)
    }

    /// What it carries are sessions that server names tell apart.
    pub fn is_tls_sessions(self) -> bool {
        matches!(self, Protocol::Passthrough | Protocol::Terminate)
    }

    /// It shows a certificate.
    pub fn has_certificate(self) -> bool {
        matches!(self, Protocol::Https | Protocol::Terminate)
    }

    /// What its port speaks.
    pub fn transport(self, options: &Options, port: NonZeroU16) -> Transport {
        match self {
            Protocol::Http => Transport::Http,
            Protocol::Https => Transport::Https,
            Protocol::Passthrough if port.get() == options.tls_port => Transport::Https,
            Protocol::Passthrough | Protocol::Terminate => Transport::Tls,
            Protocol::Tcp => Transport::Tcp,
            Protocol::Udp => Transport::Udp,
        }
    }

    /// Its port among those of TCP and UDP.
    pub fn at(self, port: NonZeroU16) -> StreamPort {
        match self {
            Protocol::Udp => StreamPort::Udp(port),
            _ => StreamPort::Tcp(port),
        }
    }

    /// What stands in nginx.conf of its port.
    pub fn listener(self) -> conf_input::Listener {
        let none = conf_input::Listener::default();
        match self {
            Protocol::Http => conf_input::Listener { http: Some(HttpListener::Http), ..none },
            Protocol::Https => conf_input::Listener { http: Some(HttpListener::Https), ..none },
            Protocol::Passthrough | Protocol::Terminate => {
                conf_input::Listener { has_server_names: true, ..none }
            }
            Protocol::Tcp | Protocol::Udp => none,
        }
    }

    /// The port of nginx that a listener asks for beside those of the flags; `None`: it needs none of its own, or cannot have it.
    pub fn own_port(options: &Options, spec: &Listener) -> Option<StreamPort> {
        let protocol = Protocol::of(spec).ok()?;
        let port = protocol.port(options, spec).ok()?;
        let is_of_flags = [options.http_port, options.tls_port].contains(&port.get());
        let at = protocol.at(port);
        (!is_of_flags || protocol == Protocol::Udp).then_some(at)
    }

    /// The port that clients reach: 80 and 443 are those of the flags.
    pub fn number(self, options: &Options, spec: &Listener) -> Option<NonZeroU16> {
        let number = u16::try_from(spec.port).ok()?;
        NonZeroU16::new(match (number, self) {
            (_, Protocol::Udp) => number,
            (80, _) => options.http_port,
            (443, _) => options.https_port,
            (number, _) => number,
        })
    }

    /// The port of nginx: 80 and 443 are those of the flags, where a Service may map them. That of HTTPS has another number
    /// inside where TLS is passed through.
    pub fn port(self, options: &Options, spec: &Listener) -> Result<NonZeroU16, String> {
        let odd = || format!("port {} is not from 1 to 65535", spec.port);
        let mapped = self.number(options, spec).ok_or_else(odd)?.get();
        let (is_http, is_https) = (mapped == options.http_port, mapped == options.https_port);
        let inside = || NonZeroU16::new(options.tls_port).ok_or_else(odd);
        match self {
            Protocol::Udp => {}
            Protocol::Http if is_http => return NonZeroU16::new(mapped).ok_or_else(odd),
            _ if is_http => return Err(format!("port {} speaks plain HTTP here", spec.port)),
            Protocol::Https if is_https => return inside(),
            Protocol::Passthrough if is_https && options.ssl_passthrough => return inside(),
            Protocol::Passthrough if is_https => {
                return Err(format!(
                    "port {} is that of HTTPS, which passes TLS through with --enable-ssl-passthrough alone: set the flag, or use \
                     another port",
                    spec.port
                ));
            }
            Protocol::Terminate if is_https => {
                return Err(format!(
                    "port {} is that of HTTPS, where TLS ends for requests alone: use another port",
                    spec.port
                ));
            }
            _ if is_https => return Err(format!("port {} speaks TLS here", spec.port)),
            _ => {}
        }
        match options.reserved_ports.get(&mapped) {
            Some(flag) => Err(format!("{flag} has port {mapped}: choose another one")),
            None => NonZeroU16::new(mapped).ok_or_else(odd),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ports_of_the_flags_speak_what_they_speak() {
        let mut options = Options {
            http_port: 8080,
            https_port: 8443,
            tls_port: 8443,
            reserved_ports: [(8080, "--http-port"), (8443, "--https-port")].into(),
            ..Options::default()
        };
        let port = |options: &Options, protocol: Protocol, port| {
            let spec = Listener { port, ..Listener::default() };
            protocol.port(options, &spec).ok().map(NonZeroU16::get)
        };
        use Protocol::{Http, Https, Passthrough, Tcp, Terminate, Udp};
        for (protocol, number, expected) in [
            (Http, 80, Some(8080)),
            (Http, 443, None),
            (Https, 443, Some(8443)),
            (Https, 80, None),
            (Passthrough, 443, None),
            (Passthrough, 9443, Some(9443)),
            (Passthrough, 80, None),
            (Terminate, 443, None),
            (Terminate, 9443, Some(9443)),
            (Tcp, 80, None),
            (Tcp, 443, None),
            (Tcp, 8443, None),
            (Tcp, 5432, Some(5432)),
            (Tcp, 0, None),
            (Udp, 443, Some(443)),
            (Udp, 8443, None),
            (Udp, 65536, None),
        ] {
            assert_eq!(port(&options, protocol, number), expected, "{protocol:?} {number}");
        }
        options = Options { ssl_passthrough: true, tls_port: 442, ..options };
        for (protocol, expected) in
            [(Https, Some(442)), (Passthrough, Some(442)), (Terminate, None), (Tcp, None)]
        {
            assert_eq!(port(&options, protocol, 443), expected, "{protocol:?}");
        }
    }
}
