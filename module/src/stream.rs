//! TCP and UDP: the directives of nginx's stream part.

pub mod open;
pub mod passthrough;
pub mod peer;
pub mod sessions;
pub mod tls;

use crate::conf::directive;
use crate::conf::directive::refuse;
use crate::system::log;
use crate::tls::Sessions;
use nginx::stream::divide::Undivided;
use nginx::stream::{Session, SessionVariable};
use nginx::{Conf, Refused};
use std::fmt::Arguments;

/// The part of the module in stream{}, under which nginx keeps [`SrvConf`] and a session's [`passthrough::SessionBackend`]. Its table
/// stands in `module/table.rs`.
pub struct Stream;

const NO_ZONE: &str = "needs an \"ingress_zone NAME SIZE;\" before stream";

/// Of an upstream or a server.
#[derive(Default)]
pub struct SrvConf {
    /// The variable that names the backend.
    variable: Option<SessionVariable>,
    /// The variable with the TLS server name.
    server_name: Option<SessionVariable>,
    /// The same of a server that ends TLS.
    decrypted_name: Option<SessionVariable>,
}

/// Writes an error line about a session; nginx adds whose it is.
fn say(session: &Session, line: Arguments<'_>) {
    log::write(log::ERROR, session.connection().log(), format_args!("ingress: {line}"));
}

/// `ingress_balancer [$variable];`
pub fn ingress_balancer(conf: &mut Conf) -> Result<(), Refused> {
    if !directive::has_zone(conf) {
        return Err(refuse(conf, format_args!("\"ingress_balancer\" {NO_ZONE}")));
    }
    if !conf.set_session_balancer::<peer::Sessions>() {
        let reason = "\"ingress_balancer\" must stand before any other balancing directive";
        return Err(refuse(conf, reason));
    }
    if conf.arguments().len() > 1 {
        let name = directive::variable_name(conf)?;
        let index = conf.session_variable::<Stream>(&name).ok_or(Refused::Told)?;
        conf.stream_server::<Stream>().variable = Some(index);
    }
    Ok(())
}

/// `ingress_passthrough;`
pub fn ingress_passthrough(conf: &mut Conf) -> Result<(), Refused> {
    if !directive::has_zone(conf) {
        return Err(refuse(conf, format_args!("\"ingress_passthrough\" {NO_ZONE}")));
    }
    if !cfg!(nginx_has_pass) {
        let version = nginx::sys::NGINX_VERSION.to_string_lossy();
        return Err(refuse(
            conf,
            format_args!(
                "\"ingress_passthrough\" needs nginx 1.25.5 or later, which has \"pass\"; this one is \
                 {version}: use a port of its own for passthrough"
            ),
        ));
    }
    match conf.begin_division::<Stream>() {
        Ok(()) => {}
        Err(Undivided::Already) => return Err(Refused::DUPLICATE),
        Err(_) => {
            let reason = "\"ingress_passthrough\" stands behind the \"proxy_pass\" of its server";
            return Err(refuse(conf, reason));
        }
    }
    let name = conf.session_variable::<Stream>(b"ssl_preread_server_name").ok_or(Refused::Told)?;
    conf.stream_server::<Stream>().server_name = Some(name);
    Ok(())
}

/// `ingress_decrypt;`
pub fn ingress_decrypt(conf: &mut Conf) -> Result<(), Refused> {
    if !directive::has_zone(conf) {
        return Err(refuse(conf, format_args!("\"ingress_decrypt\" {NO_ZONE}")));
    }
    let name = conf.session_variable::<Stream>(b"ssl_server_name").ok_or(Refused::Told)?;
    match conf.stream_server::<Stream>().decrypted_name.replace(name) {
        Some(_) => Err(Refused::DUPLICATE),
        None => Ok(()),
    }
}

/// Runs when stream{} has been read and merged: what stands behind `ingress_passthrough` is known now, and who speaks TLS.
pub fn postconfiguration(conf: &mut Conf) -> Result<(), Refused> {
    for server in conf.stream_servers() {
        let decrypts = server.conf::<Stream>().is_some_and(|conf| conf.decrypted_name.is_some());
        if decrypts && !server.ask_handshakes::<Sessions>(conf) {
            let (file, line) = (server.file(), server.line());
            let line = format_args!(
                "\"ingress_decrypt\" in {file}:{line} needs a \"listen\" with \"ssl\""
            );
            log::write(log::EMERG, conf.log(), line);
            return Err(Refused::Told);
        }
        let missing = match server.divide::<passthrough::Passthrough>(conf) {
            Ok(()) => continue,
            Err(Undivided::NoPreread) => "\"ssl_preread on\"",
            Err(_) => "a \"pass\" behind it",
        };
        let (file, line) = (server.file(), server.line());
        let line = format_args!("\"ingress_passthrough\" in {file}:{line} needs {missing}");
        log::write(log::EMERG, conf.log(), line);
        return Err(Refused::Told);
    }
    Ok(())
}
