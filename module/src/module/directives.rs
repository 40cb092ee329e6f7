//! The directives, and what they set up when the configuration has been read.

use crate::balancer::keepalive;
use crate::balancer::peer;
use crate::conf::directive::{core_conf, file, has_zone, need_zone, refuse, variable};
use crate::conf::{CoreConf, Http, LocConf, Locations, Scheme, SrvConf, Target};
use crate::configuration;
use crate::route::rewrite;
use crate::system::log;
use crate::system::memory;
use crate::tls;
use crate::zone::StoreZone;
use nginx::zone::page_bytes;
use nginx::{Conf, Cycle, Phase, Refused};
use oxigress_core::text::line::Escaped;

/// `ingress_forwarded_headers $variable;`
pub fn ingress_forwarded_headers(conf: &mut Conf) -> Result<(), Refused> {
    if conf.server::<Http>().trust.is_some() {
        return Err(Refused::DUPLICATE);
    }
    let index = variable(conf)?;
    conf.server::<Http>().trust = Some(index);
    Ok(())
}

/// nginx runs an `if` or a `limit_except` inside of a location as a location of its own, with the outer one's
/// handler: it gets the outer one's settings too.
pub fn merge_location(conf: &mut Conf, outer: &LocConf) -> Result<(), Refused> {
    let core = conf.core_location();
    let is_limit_except = core.is_limit_except();
    if core.is_unnamed() || is_limit_except {
        if is_limit_except && !core.has_content() && outer.pool.is_some() {
            core.set_content::<configuration::Content>();
        }
        let inner = conf.location::<Http>();
        inner.is_router = outer.is_router;
        inner.is_error = outer.is_error;
        inner.pool = outer.pool;
    }
    // Modules of this library come last, so all others have merged this location.
    let inner = conf.location::<Http>();
    if inner.is_auth || inner.is_mirror {
        keepalive::ignore_accelerators(conf);
    }
    keepalive::check_location(conf)
}

/// `ingress_zone NAME SIZE;`
pub fn ingress_zone(conf: &mut Conf) -> Result<(), Refused> {
    if has_zone(conf) {
        return Err(Refused::DUPLICATE);
    }
    let arguments = conf.arguments();
    let [_, name, size] = &arguments[..] else { return Err(Refused::Told) };
    // The header of a zone takes 70 KiB; less than 1m serves nobody.
    let Some(bytes) = size.size().filter(|size| *size >= 8 * page_bytes().max(32768)) else {
        let shown = size.bytes().escape_ascii();
        let reason = format_args!("invalid zone size \"{shown}\": it is a number of at least 256k");
        return Err(refuse(conf, reason));
    };
    let zone = conf.add_zone::<StoreZone>(name.bytes(), bytes);
    core_conf(conf)?.zone = Some(zone.ok_or(Refused::Told)?);
    Ok(())
}

/// `ingress_limits SIZE;`
pub fn ingress_limits(conf: &mut Conf) -> Result<(), Refused> {
    if core_conf(conf)?.limits.is_some() {
        return Err(Refused::DUPLICATE);
    }
    let size = conf.argument();
    let Some(bytes) = size.size().filter(|size| *size >= 8 * page_bytes()) else {
        let (shown, least) = (size.bytes().escape_ascii(), 8 * page_bytes() / 1024);
        let reason = format_args!("invalid size \"{shown}\": it is a number of at least {least}k");
        return Err(refuse(conf, reason));
    };
    let zone = conf.add_zone::<crate::zone::limits::CountsZone>(b"ingress_limits", bytes);
    core_conf(conf)?.limits = Some(zone.ok_or(Refused::Told)?);
    Ok(())
}

/// `ingress_journal PATH;`
pub fn ingress_journal(conf: &mut Conf) -> Result<(), Refused> {
    if !core_conf(conf)?.journal.is_empty() {
        return Err(Refused::DUPLICATE);
    }
    let path = file(conf, "ingress_journal")?;
    let threads = conf.default_threads().ok_or(Refused::Told)?;
    let shown = path.bytes().escape_ascii();
    if !memory::is_memory_backed(path.bytes()) {
        conf.warn(Escaped(format_args!(
            "\"ingress_journal\" {shown} holds private keys, and its folder is not memory-backed: use a tmpfs"
        )));
    }
    let core = core_conf(conf)?;
    (core.journal, core.journal_pool) = (path, Some(threads));
    Ok(())
}

/// `ingress_draining FILE;`
pub fn ingress_draining(conf: &mut Conf) -> Result<(), Refused> {
    if !core_conf(conf)?.draining.is_empty() {
        return Err(Refused::DUPLICATE);
    }
    let path = file(conf, "ingress_draining")?;
    core_conf(conf)?.draining = path;
    Ok(())
}

/// `ingress_buffers SIZE;`
pub fn ingress_buffers(conf: &mut Conf) -> Result<(), Refused> {
    if core_conf(conf)?.buffers.is_some() {
        return Err(Refused::DUPLICATE);
    }
    let size = conf.argument();
    let Some(bytes) = size.size() else {
        let shown = size.bytes().escape_ascii();
        return Err(refuse(
            conf,
            format_args!("invalid size \"{shown}\": write a number such as 512m"),
        ));
    };
    core_conf(conf)?.buffers = Some(bytes as u64);
    Ok(())
}

/// `ingress_configuration;`
pub fn ingress_configuration(conf: &mut Conf) -> Result<(), Refused> {
    need_zone(conf, "ingress_configuration")?;
    let core = conf.core_location();
    core.set_content::<configuration::Content>();
    // A body holds private keys: it stays in memory, in one piece, however large. The handler itself
    // refuses one that is too large, with a reason.
    core.set_body_buffer_bytes(configuration::MAX_BODY_BYTES + 1);
    core.set_max_body_bytes(0);
    core.set_body_timeout(30_000);
    conf.location::<Http>().pool = Some(conf.default_threads().ok_or(Refused::Told)?);
    conf.server::<Http>().has_configuration = true;
    Ok(())
}

/// `ingress_router;`
pub fn ingress_router(conf: &mut Conf) -> Result<(), Refused> {
    need_zone(conf, "ingress_router")?;
    core_conf(conf)?.password_pool = Some(conf.default_threads().ok_or(Refused::Told)?);
    conf.location::<Http>().is_router = true;
    conf.server::<Http>().has_router = true;
    Ok(())
}

/// `ingress_target PROTOCOL;`
pub fn ingress_target(conf: &mut Conf) -> Result<(), Refused> {
    let name = conf.argument();
    let Some((_, target)) = Target::ALL.iter().find(|(known, _)| *known == name.bytes()) else {
        let shown = name.bytes().escape_ascii();
        let reason =
            format_args!("invalid protocol \"{shown}\": it is http, https, grpc, grpcs or fastcgi");
        return Err(refuse(conf, reason));
    };
    let settings = conf.location_settings();
    let place = conf.server::<Http>().targets.get_mut(*target as usize).ok_or(Refused::Told)?;
    if place.is_some() {
        return Err(Refused::Because(c"is duplicate in this server"));
    }
    *place = settings;
    Ok(())
}

/// `ingress_error;`
pub fn ingress_error(conf: &mut Conf) -> Result<(), Refused> {
    need_zone(conf, "ingress_error")?;
    let name = conf.location_name();
    if !name.bytes().starts_with(b"@") {
        return Err(refuse(conf, "\"ingress_error\" stands in a named location"));
    }
    let server = conf.server::<Http>();
    if !server.error_location.is_empty() {
        return Err(Refused::Because(c"is duplicate in this server"));
    }
    server.error_location = name;
    conf.location::<Http>().is_error = true;
    Ok(())
}

/// `ingress_auth PROTOCOL;`
pub fn ingress_auth(conf: &mut Conf) -> Result<(), Refused> {
    take_location(conf, "ingress_auth", |server| &mut server.auth_locations)?;
    conf.location::<Http>().is_auth = true;
    Ok(())
}

/// `ingress_mirror PROTOCOL;`
pub fn ingress_mirror(conf: &mut Conf) -> Result<(), Refused> {
    take_location(conf, "ingress_mirror", |server| &mut server.mirror_locations)?;
    // The request itself was measured.
    conf.core_location().set_max_body_bytes(0);
    conf.location::<Http>().is_mirror = true;
    Ok(())
}

/// Makes the location of a directive `NAME PROTOCOL;` that of requests which the module makes itself.
fn take_location(
    conf: &mut Conf,
    directive: &str,
    locations: fn(&mut SrvConf) -> &mut Locations,
) -> Result<(), Refused> {
    let protocol = conf.argument();
    let scheme = match protocol.bytes() {
        b"http" => Scheme::Http,
        b"https" => Scheme::Https,
        other => {
            let shown = other.escape_ascii();
            let reason = format_args!("invalid protocol \"{shown}\": it is http or https");
            return Err(refuse(conf, reason));
        }
    };
    if !conf.core_location().is_exact() {
        let reason = format_args!("\"{directive}\" stands in a \"location = NAME\"");
        return Err(refuse(conf, reason));
    }
    let name = conf.location_name();
    let place = locations(conf.server::<Http>()).get_mut(scheme as usize).ok_or(Refused::Told)?;
    if !place.is_empty() {
        return Err(Refused::Because(c"is duplicate in this server"));
    }
    *place = name;
    // Nobody comes here from outside.
    conf.core_location().set_internal(1);
    Ok(())
}

/// `ingress_balancer [$variable];`
pub fn ingress_balancer(conf: &mut Conf) -> Result<(), Refused> {
    need_zone(conf, "ingress_balancer")?;
    if conf.is_balanced_by::<peer::Requests>() {
        return Err(Refused::DUPLICATE);
    }
    if !conf.set_balancer::<peer::Requests>() {
        // Up to nginx 1.29.6 `keepalive` wraps what stands before it: the other way round it would be
        // lost without a word.
        return Err(refuse(
            conf,
            "\"ingress_balancer\" must stand before \"keepalive\" and any other balancing directive",
        ));
    }
    if conf.arguments().len() > 1 {
        let index = variable(conf)?;
        conf.server::<Http>().variable = Some(index);
    }
    let core = core_conf(conf)?;
    let number = core.balancers;
    core.balancers += 1;
    let server = conf.server::<Http>();
    (server.has_balancer, server.keep.number) = (true, number);
    Ok(())
}

/// Runs when http{} has been read and merged.
pub fn postconfiguration(conf: &mut Conf) -> Result<(), Refused> {
    // First of all: nginx has begun its chain of filters anew, and keeps it when this configuration is refused. Workers that are
    // started afterwards serve the configuration before through it.
    conf.add_header_filter::<crate::headers::filter::Filter>();
    keepalive::check_upstreams(conf)?;
    add_handlers(conf).ok_or(Refused::Told)?;
    for server in conf.servers() {
        if !server.conf::<Http>().has_router {
            continue;
        }
        if server.has_variable_certificate() {
            let reason = "\"ssl_certificate\" with a variable does not go with \"ingress_router\"";
            return Err(refuse(conf, reason));
        }
        server.ask_handshakes::<tls::Clients>();
    }
    Ok(())
}

/// What runs in which phase.
fn add_handlers(conf: &mut Conf) -> Option<()> {
    conf.add_handler::<rewrite::Rewrite>(Phase::Rewrite)?;
    // Policies are of routes: a configuration that only balances pays for none of these.
    if conf.servers().iter().any(|server| server.conf::<Http>().has_router) {
        conf.add_handler::<crate::access::preaccess::Preaccess>(Phase::Preaccess)?;
        conf.add_handler::<crate::access::phase::Access>(Phase::Access)?;
        // nginx runs the later ones of a phase first: a copy has the headers that its request goes on with.
        conf.add_handler::<crate::route::mirror::Precontent>(Phase::Precontent)?;
        conf.add_handler::<crate::headers::precontent::Precontent>(Phase::Precontent)?;
    }
    conf.add_handler::<crate::logging::observe::Log>(Phase::Log)?;
    let is_proxied = |server: &&nginx::Server| !server.conf::<Http>().proxied_client[0].is_empty();
    if conf.servers().iter().any(is_proxied) {
        // It runs before nginx's realip looks where a client is.
        conf.add_handler::<crate::headers::directives::PostRead>(Phase::PostRead)?;
    }
    Some(())
}

/// Runs when the configuration outside of http{} has been read.
///
/// Cells have the form that the configuration says: with another one the zone is not kept over a reload. A new
/// one is made, and filled from it.
pub fn init_core(cycle: &Cycle, core: &CoreConf) -> Result<(), Refused> {
    // A master has no worker. One process that does everything would take its zones and threads away from the requests
    // that are under way.
    if crate::worker::current(cycle.event_loop()).is_some() {
        let reason =
            "with \"master_process off\" the module takes no other configuration: restart nginx";
        log::cycle(log::EMERG, format_args!("{reason}"));
        return Err(Refused::Told);
    }
    if core.metrics.is_some() && core.zone.is_none() {
        let reason = "\"ingress_metrics\" needs an \"ingress_zone NAME SIZE;\"";
        log::cycle(log::EMERG, format_args!("{reason}"));
        return Err(Refused::Told);
    }
    let is_other = |last: &CoreConf| last.metrics != core.metrics;
    if let Some(zone) = core.zone(cycle)
        && CoreConf::with_running(cycle.event_loop(), is_other) == Some(true)
    {
        zone.begin_anew();
    }
    Ok(())
}
