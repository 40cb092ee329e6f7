//! nginx.conf's `stream` block: TCP and UDP listeners, and the one that passes TLS through.
//!
//! Numbers and flags alone go in. What a port or a server name leads to is data in the zone.

use super::{Machine, keys};
use crate::options::Options;
use crate::runtime::Runtime;
use oxigress_core::model::StreamPort;
use oxigress_settings::StaticConfig;
use oxigress_settings::conf_input::{ConfInput, Listener};

/// The block; nothing where nothing listens.
pub fn block(options: &Options, runtime: &Runtime, machine: &Machine, input: &ConfInput) -> String {
    let listeners = || input.listeners.iter().filter(|(_, listener)| listener.http.is_none());
    if listeners().next().is_none() && options.ssl_passthrough_port.is_none() {
        return String::new();
    }
    let keys = &input.settings;
    let format = match keys.text("log-format-stream") {
        text if text.is_empty() => FORMAT.to_owned(),
        text => text,
    };
    let log = keys::stream_log(machine, keys);
    let timeout = keys.text("proxy-stream-timeout");
    let next = keys.value("proxy-stream-next-upstream").conf();
    let next_timeout = keys.text("proxy-stream-next-upstream-timeout");
    let tries = keys.number("proxy-stream-next-upstream-tries");
    let real_ip = match keys.flag("enable-real-ip") || keys.flag("use-proxy-protocol") {
        true => keys::real_ip(keys),
        false => String::new(),
    };
    let mut text = format!(
        "stream {{
    log_format log_stream {format};
    access_log {log};

    proxy_timeout {timeout};
    proxy_next_upstream {next};
    proxy_next_upstream_timeout {next_timeout};
    proxy_next_upstream_tries {tries};
    {real_ip}

    upstream ingress {{
        # nginx wants a server; the balancer never asks it.
        server 0.0.0.1:1;
        ingress_balancer;
    }}
"
    );
    if let Some(inside) = options.ssl_passthrough_port {
        text += &passthrough(options.https_port, inside, machine, keys);
    }
    for (port, listener) in listeners() {
        text += &match (port, listener.has_server_names) {
            (StreamPort::Tcp(port), true) => by_server_name(port.get(), runtime, machine, keys),
            _ => server(*port, *listener, machine, keys),
        };
    }
    if listeners().any(|(_, listener)| listener.has_server_names) {
        text += &decrypting(runtime, keys);
    }
    text + "}"
}

const FORMAT: &str = "'[$remote_addr] [$time_local] $protocol $status $bytes_sent '
        '$bytes_received $session_time'";

fn passthrough(port: u16, inside: u16, machine: &Machine, keys: &StaticConfig) -> String {
    let listen = listen(port, machine, keys, &tls_parameters(machine, keys));
    format!(
        "
    # TLS that is passed through, by server name; all else goes on to http.
    server {{
{listen}        ssl_preread on;
        preread_timeout 10s;
        proxy_pass ingress;
        ingress_passthrough;
        pass 127.0.0.1:{inside};
    }}
"
    )
}

fn tls_parameters(machine: &Machine, keys: &StaticConfig) -> String {
    let reuseport = if keys.flag("reuse-port") { "reuseport " } else { "" };
    let proxy = if keys.flag("use-proxy-protocol") { "proxy_protocol " } else { "" };
    format!("{proxy}{reuseport}backlog={}", machine.backlog)
}

/// A port of Gateways' TLS listeners.
fn by_server_name(port: u16, runtime: &Runtime, machine: &Machine, keys: &StaticConfig) -> String {
    let listen = listen(port, machine, keys, &tls_parameters(machine, keys));
    let decrypting = runtime.decrypting();
    let socket = decrypting.display();
    format!(
        "
    # TLS that is passed through, by server name; all else goes on to where it ends.
    server {{
{listen}        ssl_preread on;
        preread_timeout 10s;
        proxy_pass ingress;
        ingress_passthrough;
        pass unix:{socket};
    }}
"
    )
}

/// Where TLS ends. The folder is its owner's alone, and who connects to the socket himself has come to no port: that leads
/// nowhere.
fn decrypting(runtime: &Runtime, keys: &StaticConfig) -> String {
    let (socket, folder) = (runtime.decrypting(), runtime.folder().display());
    let socket = socket.display();
    let (protocols, ciphers) =
        (keys.value("ssl-protocols").conf(), keys.value("ssl-ciphers").conf());
    let curve = keys.value("ssl-ecdh-curve").conf();
    format!(
        "
    # Sessions of Gateways' listeners that terminate TLS.
    server {{
        listen unix:{socket} ssl;
        ssl_protocols {protocols};
        ssl_ciphers {ciphers};
        ssl_prefer_server_ciphers on;
        ssl_ecdh_curve {curve};
        # Shown to clients whose server name has no certificate of its own.
        ssl_certificate {folder}/default.crt;
        ssl_certificate_key {folder}/default.key;
        ssl_handshake_timeout 10s;
        ingress_decrypt;
        proxy_pass ingress;
    }}
"
    )
}

fn server(port: StreamPort, listener: Listener, machine: &Machine, keys: &StaticConfig) -> String {
    let Listener { takes_proxy, sends_proxy, has_server_names: _, http: _ } = listener;
    let (number, parameters, more) = match port {
        StreamPort::Tcp(number) => {
            let takes = if takes_proxy { "proxy_protocol" } else { "" };
            let mut more = String::new();
            if takes_proxy {
                // Who may connect at all is the operator's: all who do begin with the PROXY protocol, so the
                // client it names is the client.
                more += "        set_real_ip_from 0.0.0.0/0;\n        set_real_ip_from ::/0;\n";
            }
            if sends_proxy {
                more += "        proxy_protocol on;\n";
            }
            (number, takes, more)
        }
        // The kernel gives all datagrams of a client to one worker, which knows the session.
        StreamPort::Udp(number) => {
            let responses = keys.number("proxy-stream-responses");
            (number, "udp reuseport", format!("        proxy_responses {responses};\n"))
        }
    };
    let listen = listen(number.get(), machine, keys, parameters);
    format!("\n    server {{\n{listen}{more}        proxy_pass ingress;\n    }}\n")
}

fn listen(port: u16, machine: &Machine, keys: &StaticConfig, parameters: &str) -> String {
    let line = |address: &String| {
        let line = format!("        listen {address}{port} {parameters}");
        format!("{};\n", line.trim_end())
    };
    keys::addresses(machine, keys).iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(options: &Options, input: &ConfInput) -> String {
        let folder = tempfile::tempdir().unwrap();
        let runtime = Runtime::open(folder.path()).unwrap();
        block(options, &runtime, &Machine { has_ipv6: true, ..Machine::default() }, input)
    }

    #[test]
    fn nothing_stands_where_nothing_listens() {
        assert_eq!(rendered(&Options::default(), &ConfInput::default()), "");
        let passing = Options { ssl_passthrough_port: Some(442), ..Options::default() };
        assert!(rendered(&passing, &ConfInput::default()).contains("pass 127.0.0.1:442;"));
    }

    #[test]
    fn each_port_has_its_listeners_and_flags() {
        let port = |text| StreamPort::parse(text).unwrap();
        let both = Listener { takes_proxy: true, sends_proxy: true, ..Listener::default() };
        let named = Listener { has_server_names: true, ..Listener::default() };
        let listeners = [
            (port("tcp/9000"), both),
            (port("udp/53"), Listener::default()),
            (port("tcp/8443"), named),
        ];
        let input = ConfInput { listeners: listeners.into(), ..ConfInput::default() };
        let text = rendered(&Options::default(), &input);
        for line in [
            "listen 9000 proxy_protocol;",
            "listen [::]:9000 proxy_protocol;",
            "proxy_protocol on;",
            "set_real_ip_from 0.0.0.0/0;",
            "listen 53 udp reuseport;",
            "proxy_responses 1;",
            "proxy_timeout 600s;",
            "listen 8443 reuseport backlog=0;",
            "ingress_decrypt;",
        ] {
            assert!(text.lines().any(|l| l.trim() == line), "{line} in {text}");
        }
    }
}
