//! Who keeps upstream connections: the directive `ingress_keepalive`, and what nginx's own `keepalive` may do.
//!
//! In router mode the module does ([`crate::balancer::idle`]), and nginx must not. With a variable nginx does, and knows a
//! connection by its address alone: a request could go over one that was opened with another server name,
//! certificate or trust. So TLS and nginx's `keepalive` are refused together, when the configuration is read
//! if the scheme is known then, else when a request comes. What nginx 1.29.7 and later does without being asked,
//! `local`, keeps locations apart: it is right wherever all requests of a location make the same handshake.

use crate::conf::directive::refuse;
use crate::conf::{Http, KeptByNginx, SrvConf};
use crate::system::log;
use nginx::stock::{KeepaliveConf, Proxy, UpstreamKeepalive};
use nginx::sys::{
    NGX_HTTP_UPSTREAM_IGN_XA_BUFFERING, NGX_HTTP_UPSTREAM_IGN_XA_CHARSET,
    NGX_HTTP_UPSTREAM_IGN_XA_LIMIT_RATE, NGX_HTTP_UPSTREAM_IGN_XA_REDIRECT, ngx_msec_t, ngx_uint_t,
};
use nginx::{Conf, NewUpstream, Refused, Request, UpstreamConf, parse_milliseconds, parse_number};

/// ingress-nginx's values of nginx's four directives.
const CONNECTIONS: u32 = 320;
const TIME_MSEC: ngx_msec_t = 3_600_000;
const TIMEOUT_MSEC: ngx_msec_t = 60_000;
const REQUESTS: ngx_uint_t = 10_000;
/// The room for them is taken with the first one: 64 bytes each.
const MAX_CONNECTIONS: u32 = 1 << 16;

/// `ingress_keepalive CONNECTIONS [time=1h] [timeout=60s] [requests=10000];`
pub fn ingress_keepalive(conf: &mut Conf) -> Result<(), Refused> {
    let server = conf.server::<Http>();
    if server.has_keepalive {
        return Err(Refused::DUPLICATE);
    }
    server.has_keepalive = true;
    set_defaults(server);
    let arguments = conf.arguments();
    let [_, connections, parameters @ ..] = arguments.as_slice() else { return Err(Refused::Told) };
    let count = parse_number(connections.bytes()).and_then(|count| u32::try_from(count).ok());
    let Some(count) = count.filter(|count| *count <= MAX_CONNECTIONS) else {
        let shown = connections.bytes().escape_ascii();
        let reason = format_args!("invalid value \"{shown}\" in \"ingress_keepalive\" directive");
        return Err(refuse(conf, reason));
    };
    conf.server::<Http>().keep.connections = count;
    for parameter in parameters {
        if set(conf.server::<Http>(), parameter.bytes()).is_none() {
            let shown = parameter.bytes().escape_ascii();
            return Err(refuse(conf, format_args!("invalid parameter \"{shown}\"")));
        }
    }
    Ok(())
}

fn set_defaults(conf: &mut SrvConf) {
    conf.keep.connections = CONNECTIONS;
    conf.keep.time_msec = TIME_MSEC;
    conf.keep.timeout_msec = TIMEOUT_MSEC;
    conf.keep.requests = REQUESTS;
}

/// Sets what `name=value` says; `None` if that is nothing.
fn set(conf: &mut SrvConf, parameter: &[u8]) -> Option<()> {
    let at = parameter.iter().position(|byte| *byte == b'=')?;
    let (name, value) = (parameter.get(..at)?, parameter.get(at + 1..)?);
    match name {
        b"time" => conf.keep.time_msec = parse_milliseconds(value)?,
        b"timeout" => conf.keep.timeout_msec = parse_milliseconds(value)?,
        b"requests" => conf.keep.requests = parse_number(value).filter(|n| *n != 0)?,
        _ => return None,
    }
    Some(())
}

/// Decides who keeps the connections of an upstream with `ingress_balancer`; nginx's own directives have been
/// read. Says why it cannot be.
pub fn decide_keeper(upstream: &mut NewUpstream<'_>) -> Result<(), Refused> {
    let name = upstream.block().name().to_vec();
    let name = name.escape_ascii();
    let kept = stock(upstream).map(|stock| {
        let said = [stock.time(), stock.timeout(), stock.requests()];
        Stock { said, max_cached: stock.max_cached(), is_by_location: stock.keeps_by_location() }
    });
    let ours = upstream.server::<Http>().ok_or(Refused::Told)?;
    let decided = decide(ours, kept, &name).map_err(|reason| refuse(upstream.conf(), reason))?;
    if let (true, Some(stock)) = (decided, stock(upstream)) {
        // From nginx 1.29.7 on it would keep them without being asked, around ours. This is what
        // "keepalive 0" writes; before, it is 0 already.
        stock.keep_none();
    }
    Ok(())
}

/// What nginx's own module keeps for it.
fn stock<'u>(upstream: &'u NewUpstream<'_>) -> Option<&'u KeepaliveConf> {
    upstream.conf_of::<UpstreamKeepalive>()
}

/// What nginx's own directives say of an upstream.
struct Stock {
    /// Times and requests; -1: nothing.
    said: [ngx_uint_t; 3],
    max_cached: ngx_uint_t,
    is_by_location: bool,
}

/// Answers whether nginx is to keep none, or why the directives do not go together.
fn decide(
    ours: &mut SrvConf,
    stock: Option<Stock>,
    name: &dyn std::fmt::Display,
) -> Result<bool, String> {
    if ours.backend_variable().is_some() {
        if ours.has_keepalive {
            return Err(format!(
                "\"ingress_keepalive\" in upstream \"{name}\" goes with \"ingress_balancer\" without a \
                 variable: with one, nginx's \"keepalive\" keeps connections"
            ));
        }
        ours.kept_by_nginx = stock.map_or(KeptByNginx::Not, |stock| {
            match (stock.max_cached, stock.is_by_location) {
                (0, _) => KeptByNginx::Not,
                (_, true) => KeptByNginx::ByLocation,
                (_, false) => KeptByNginx::ByAddress,
            }
        });
        return Ok(false);
    }
    if !ours.has_keepalive {
        set_defaults(ours);
    }
    let Some(stock) = stock else { return Ok(false) };
    let is_set = stock.said.iter().any(|value| *value != ngx_uint_t::MAX)
        || !matches!(stock.max_cached, 0 | ngx_uint_t::MAX);
    if is_set {
        return Err(format!(
            "\"ingress_balancer\" without a variable keeps connections itself: in upstream \"{name}\" \
             write \"ingress_keepalive CONNECTIONS [time=1h] [timeout=60s] [requests=10000]\" in place of \
             \"keepalive\" and what begins with \"keepalive_\""
        ));
    }
    Ok(true)
}

/// Refuses `ingress_keepalive` where there is no balancer to heed it.
pub fn check_upstreams(conf: &Conf) -> Result<(), Refused> {
    for upstream in conf.upstreams() {
        let ours = upstream.conf::<Http>();
        if ours.has_keepalive && !ours.has_balancer {
            let name = upstream.name().escape_ascii();
            let reason = format_args!(
                "\"ingress_keepalive\" in upstream \"{name}\" needs \"ingress_balancer\""
            );
            return Err(refuse(conf, reason));
        }
    }
    Ok(())
}

/// Refuses a location that speaks TLS through connections that nginx keeps by address.
pub fn check_location(conf: &mut Conf) -> Result<(), Refused> {
    let mut refused = None;
    for (directive, settings) in conf.tls_passes() {
        let Some(block) = settings.block().filter(|block| block.is_explicit()) else { continue };
        if !is_separate(block.conf::<Http>().kept_by_nginx, settings) {
            refused = Some((directive, block.name().to_vec()));
            break;
        }
    }
    let Some((directive, name)) = refused else { return Ok(()) };
    let (remedy, name) = (REMEDY, name.escape_ascii());
    Err(refuse(
        conf,
        format_args!(
            "\"{directive}\" does not go with \"keepalive\" in upstream \"{name}\", {REASON}: {remedy}"
        ),
    ))
}

const REASON: &str = "which knows connections by their address alone: a request could go over one that was opened with another \
                      server name, certificate or trust";
const REMEDY: &str = "remove \"keepalive\" (write \"keepalive 0\" from nginx 1.29.7 on), or use \"ingress_router\" and \
                      \"ingress_balancer\" without a variable";

/// What an answer says in `X-Accel-` headers about where its request goes on and how fast has no effect at a location,
/// whatever its `proxy_ignore_headers`: nobody but the module asks through it.
pub fn ignore_accelerators(conf: &mut Conf) {
    const IGNORED: u32 = NGX_HTTP_UPSTREAM_IGN_XA_REDIRECT
        | NGX_HTTP_UPSTREAM_IGN_XA_LIMIT_RATE
        | NGX_HTTP_UPSTREAM_IGN_XA_BUFFERING
        | NGX_HTTP_UPSTREAM_IGN_XA_CHARSET;
    if let Some(proxy) = conf.location_of::<Proxy>() {
        let upstream = proxy.upstream();
        upstream.set_ignored_headers(upstream.ignored_headers() | IGNORED as ngx_uint_t);
    }
}

/// Whether nginx gives a request only connections that were opened with its own handshake.
fn is_separate(kept: KeptByNginx, conf: &UpstreamConf) -> bool {
    match kept {
        KeptByNginx::Not => true,
        KeptByNginx::ByAddress => false,
        KeptByNginx::ByLocation => {
            let values = [conf.tls_name(), conf.certificate(), conf.certificate_key()];
            values.into_iter().flatten().all(|value| !value.has_variables())
        }
    }
}

/// Whether a request would mix its TLS connections with others'. Says so in the log.
#[inline]
pub fn mixes_handshakes(request: &Request, kept: KeptByNginx) -> bool {
    if kept == KeptByNginx::Not {
        return false;
    }
    let Some(upstream) = request.upstream().filter(|upstream| upstream.is_tls()) else {
        return false;
    };
    // With a variable in `proxy_pass` the server name is the variable's unless it is written out.
    let Some(conf) = upstream.conf() else { return true };
    let is_fixed = !upstream.is_resolved() || conf.tls_name().is_some();
    if is_fixed && is_separate(kept, conf) {
        return false;
    }
    let line =
        format_args!("TLS does not go with \"keepalive\" in this upstream, {REASON}: {REMEDY}");
    log::write(log::ERROR, request.log(), line);
    true
}
