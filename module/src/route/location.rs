//! Locations that no nginx.conf has: nginx's own settings for the requests of one set of policies.
//!
//! nginx.conf has a location for each protocol toward endpoints, its *target* (`ingress_target`). A routed request
//! goes on with the settings of that location, as if nginx had matched it, without a redirect. Where policies say
//! something else, it gets a copy of the target's settings in which that is changed: made once for a worker, target
//! and set of policies, and shared by all of its requests, which hold the policies.
//!
//! Rejected: copies a request, which cost 530 instructions each.
#![allow(unsafe_code)]

use crate::conf::{Declared, Target};
use crate::request::policies::Compiled;
use crate::tls::upstream;
use crate::worker;
use nginx::ssl::context::LocationTls;
use nginx::stock::{AccessLog, Fastcgi, Grpc, Proxy as ProxyModule};
use nginx::sys::{
    NGX_HTTP_UPSTREAM_FT_ERROR, NGX_HTTP_UPSTREAM_FT_HTTP_403, NGX_HTTP_UPSTREAM_FT_HTTP_404,
    NGX_HTTP_UPSTREAM_FT_HTTP_429, NGX_HTTP_UPSTREAM_FT_HTTP_500, NGX_HTTP_UPSTREAM_FT_HTTP_502,
    NGX_HTTP_UPSTREAM_FT_HTTP_503, NGX_HTTP_UPSTREAM_FT_HTTP_504,
    NGX_HTTP_UPSTREAM_FT_INVALID_HEADER, NGX_HTTP_UPSTREAM_FT_NON_IDEMPOTENT,
    NGX_HTTP_UPSTREAM_FT_OFF, NGX_HTTP_UPSTREAM_FT_TIMEOUT, NGX_HTTP_VERSION_10,
    NGX_HTTP_VERSION_11,
};
use nginx::{CoreLocation, Cycle, LocationCopy, NewLocation, Request, Settings, UpstreamConf};
use oxigress_core::model::policy::{Condition, HttpVersion, Policies, Protocol, Proxy};
use std::cell::OnceCell;

/// The locations of one set of policies, by target: a list that is only added to, so that what it has is lent as long as it.
#[derive(Default)]
pub struct Locations(OnceCell<Box<Location>>);

/// A target's settings with some of them changed.
struct Location {
    base: Settings,
    /// The configuration that `base` is of: after a reload of one process another's may stand there.
    cycle: u64,
    is_unlogged: bool,
    copy: LocationCopy,
    next: Locations,
}

impl Locations {
    /// The settings for `base`, made when first asked for. `None`: TLS toward endpoints cannot be as the policies want it.
    fn get(
        &self,
        cycle: &Cycle,
        base: Settings,
        purpose: Purpose<'_>,
        (policies, is_unlogged): (&Policies, bool),
    ) -> Option<&LocationCopy> {
        let (mut list, number) = (self, worker::cycle_number());
        while let Some(known) = list.0.get() {
            if (known.base, known.cycle, known.is_unlogged) == (base, number, is_unlogged) {
                return Some(&known.copy);
            }
            list = &known.next;
        }
        let copy = changed(cycle, base, purpose, (policies, is_unlogged))?;
        let next = Locations::default();
        let new = Box::new(Location { base, cycle: number, is_unlogged, copy, next });
        Some(&list.0.get_or_init(|| new).copy)
    }
}

/// What a location is for.
#[derive(Clone, Copy)]
enum Purpose<'a> {
    /// Endpoints of this protocol. Statuses that policies name go to the location of this name.
    Target(Target, Option<&'a [u8]>),
    /// The backend that answers in the place of a status, or nginx's own answer.
    Answer,
}

/// `None`: TLS toward endpoints cannot be as the policies want it.
fn changed(
    cycle: &Cycle,
    base: Settings,
    purpose: Purpose<'_>,
    (policies, is_unlogged): (&Policies, bool),
) -> Option<LocationCopy> {
    // SAFETY: of a request, or of its server: both are of the running cycle.
    let mut copy = unsafe { NewLocation::of(base, cycle) };
    if let Purpose::Target(target, errors_to) = purpose {
        change_core(copy.core(), policies);
        if let Some((errors, to)) = policies.errors.as_ref().zip(errors_to) {
            copy.set_error_pages(&errors.codes, to);
        }
        let wanted = policies.proxy.as_ref().and_then(|proxy| proxy.tls.as_ref());
        let tls = match wanted.filter(|_| target.is_tls()) {
            Some(wanted) => {
                let is_h2 = matches!(target, Target::Grpc | Target::Grpcs);
                Some(upstream::of(cycle.event_loop(), wanted, is_h2)?)
            }
            None => None,
        };
        // Without the protocol in nginx there is nothing to change.
        let _ = change_protocol(&mut copy, target, policies);
        if let Some(tls) = tls {
            set_tls(&mut copy, target, tls)?;
        }
    }
    if is_unlogged {
        copy.change::<AccessLog>(|conf| conf.set_off(1));
    }
    Some(copy.finish())
}

/// `None`: nginx was built without the protocol.
fn set_tls(copy: &mut NewLocation<'_>, target: Target, tls: LocationTls) -> Option<()> {
    match target {
        Target::Http | Target::Https => copy.set_tls::<ProxyModule>(|conf| conf.upstream(), tls),
        Target::Grpc | Target::Grpcs => copy.set_tls::<Grpc>(|conf| conf.upstream(), tls),
        Target::Fastcgi => copy.set_tls::<Fastcgi>(|conf| conf.upstream(), tls),
    }
}

/// The protocol's settings with what the policies say; `None`: nginx was built without it.
fn change_protocol(copy: &mut NewLocation<'_>, target: Target, policies: &Policies) -> Option<()> {
    let proxy = policies.proxy.as_ref();
    match target {
        Target::Http | Target::Https => copy.change::<ProxyModule>(|conf| {
            change_upstream(conf.upstream(), policies);
            match proxy.and_then(|proxy| proxy.http_version) {
                Some(HttpVersion::V10) => conf.set_http_version(NGX_HTTP_VERSION_10 as usize),
                Some(HttpVersion::V11) => conf.set_http_version(NGX_HTTP_VERSION_11 as usize),
                None => {}
            }
        }),
        Target::Grpc | Target::Grpcs => {
            copy.change::<Grpc>(|conf| change_upstream(conf.upstream(), policies))
        }
        Target::Fastcgi => {
            copy.change::<Fastcgi>(|conf| change_upstream(conf.upstream(), policies))?;
            match proxy.and_then(|proxy| proxy.fastcgi_index.as_ref()) {
                Some(index) => copy.set_fastcgi_index(index.as_str().as_bytes()),
                None => Some(()),
            }
        }
    }
}

/// What the core module does about requests.
fn change_core(core: &CoreLocation, policies: &Policies) {
    if policies.relative_redirects {
        core.set_absolute_redirect(0);
    }
    if policies.redirect_port.is_some() {
        core.set_port_in_redirect(1);
    }
    let Some(proxy) = &policies.proxy else { return };
    if let Some(bytes) = proxy.max_body_bytes {
        core.set_max_body_bytes(i64::try_from(bytes).unwrap_or(i64::MAX));
    }
    if let Some(bytes) = proxy.body_buffer_bytes {
        core.set_body_buffer_bytes(bytes as usize);
    }
}

/// What nginx does about endpoints, whatever their protocol.
fn change_upstream(conf: &UpstreamConf, policies: &Policies) {
    if let Some(errors) = &policies.errors {
        // Without pages for statuses it has no effect.
        conf.set_intercept_errors(isize::from(!errors.own_only));
    }
    let Some(proxy) = &policies.proxy else { return };
    let timeout = |from: Option<u32>, set: fn(&UpstreamConf, usize)| {
        if let Some(seconds) = from {
            set(conf, seconds as usize * 1_000);
        }
    };
    timeout(proxy.connect_timeout_seconds, UpstreamConf::set_connect_timeout);
    timeout(proxy.send_timeout_seconds, UpstreamConf::set_send_timeout);
    timeout(proxy.read_timeout_seconds, UpstreamConf::set_read_timeout);
    timeout(proxy.next_upstream_timeout_seconds, UpstreamConf::set_next_upstream_timeout);
    if let Some(ms) = proxy.timeout_ms {
        conf.set_connect_timeout(ms as usize);
        conf.set_send_timeout(ms as usize);
        conf.set_read_timeout(ms as usize);
        conf.set_next_upstream_timeout(ms as usize);
    }
    if let Some(ms) = proxy.total_timeout_ms {
        conf.set_next_upstream_timeout(ms as usize);
    }
    if let Some(is_on) = proxy.buffering {
        conf.set_buffering(is_on.into());
    }
    if let Some(is_on) = proxy.request_buffering {
        conf.set_request_buffering(is_on.into());
    }
    if let Some(tries) = proxy.next_upstream_tries {
        conf.set_next_upstream_tries(tries as usize);
    }
    if let Some(conditions) = &proxy.next_upstream {
        let flags = conditions.iter().fold(0, |all, one| all | flag(*one));
        let none = NGX_HTTP_UPSTREAM_FT_OFF;
        conf.set_next_upstream(if conditions.is_empty() { none } else { flags } as usize);
    }
    change_buffers(conf, proxy);
}

/// nginx refuses some of these together when it reads them; here the smaller one gives way.
fn change_buffers(conf: &UpstreamConf, proxy: &Proxy) {
    if let Some(bytes) = proxy.buffer_bytes {
        conf.set_head_buffer_bytes(bytes as usize);
        conf.set_buffer_bytes(bytes as usize);
    }
    if let Some(count) = proxy.buffer_count {
        // nginx's own least.
        conf.set_buffer_count((count as isize).max(2));
    }
    if proxy.buffer_bytes.is_none()
        && proxy.buffer_count.is_none()
        && proxy.busy_buffers_bytes.is_none()
        && proxy.max_temp_file_bytes.is_none()
    {
        return;
    }
    let one = conf.head_buffer_bytes().max(conf.buffer_bytes());
    let all_but_one = (conf.buffer_count() as usize).saturating_sub(1) * conf.buffer_bytes();
    let busy = proxy.busy_buffers_bytes.map_or(2 * one, |bytes| bytes as usize);
    conf.set_busy_buffers_bytes(busy.min(all_but_one).max(one));
    conf.set_temp_file_write_bytes(conf.temp_file_write_bytes().max(2 * one));
    if let Some(bytes) = proxy.max_temp_file_bytes {
        conf.set_max_temp_file_bytes(match usize::try_from(bytes).unwrap_or(usize::MAX) {
            0 => 0,
            // nginx.conf knows how much room there is for all of them.
            bytes => bytes.max(one).min(conf.max_temp_file_bytes()),
        });
    }
}

fn flag(condition: Condition) -> u32 {
    match condition {
        Condition::Error => NGX_HTTP_UPSTREAM_FT_ERROR,
        Condition::Timeout => NGX_HTTP_UPSTREAM_FT_TIMEOUT,
        Condition::InvalidHeader => NGX_HTTP_UPSTREAM_FT_INVALID_HEADER,
        Condition::Http500 => NGX_HTTP_UPSTREAM_FT_HTTP_500,
        Condition::Http502 => NGX_HTTP_UPSTREAM_FT_HTTP_502,
        Condition::Http503 => NGX_HTTP_UPSTREAM_FT_HTTP_503,
        Condition::Http504 => NGX_HTTP_UPSTREAM_FT_HTTP_504,
        Condition::Http403 => NGX_HTTP_UPSTREAM_FT_HTTP_403,
        Condition::Http404 => NGX_HTTP_UPSTREAM_FT_HTTP_404,
        Condition::Http429 => NGX_HTTP_UPSTREAM_FT_HTTP_429,
        Condition::NonIdempotent => NGX_HTTP_UPSTREAM_FT_NON_IDEMPOTENT,
    }
}

/// Whether a location of their own is needed.
fn has_own(policies: &Policies) -> bool {
    // All are named, so that a new one is put on one side or the other.
    let Policies {
        proxy,
        relative_redirects,
        redirect_port,
        errors,
        is_unlogged,
        denied: _,
        redirect: _,
        redirect_to: _,
        path_edit: _,
        keeps_trailing_slash: _,
        rewrite: _,
        script: _,
        definitions: _,
        upstream_host: _,
        cors: _,
        access: _,
        limits: _,
        response_headers: _,
        request_headers: _,
        added_request_headers: _,
        added_response_headers: _,
        removed_response_headers: _,
        response_edits: _,
        input_edits: _,
        beside_own_headers: _,
        fallback: _,
        mirror: _,
        more_mirrors: _,
        tracing: _,
    } = policies;
    proxy.is_some()
        || *relative_redirects
        || redirect_port.is_some()
        || errors.is_some()
        || *is_unlogged
}

/// Where a request goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entered {
    /// In the location of its protocol.
    Target,
    /// Nowhere: nginx.conf has no location for the protocol.
    NoTarget,
    /// Nowhere: its body is larger than the location takes.
    TooLarge,
}

/// Gives a routed request, in its REWRITE phase, the settings of its protocol and its policies, which it holds.
///
/// `is_unlogged`: it is left out of the access log, whatever its policies say.
pub fn enter<'r>(
    request: &'r Request,
    policies: Option<&'r Compiled>,
    is_unlogged: bool,
) -> Entered {
    let source = policies.map(|policies| &policies.source);
    let protocol = source.and_then(|p| p.proxy.as_ref()?.protocol).unwrap_or_default();
    let target = match protocol {
        Protocol::Http => Target::Http,
        Protocol::AutoHttp if !request.is_https() => Target::Http,
        Protocol::AutoHttp | Protocol::Https => Target::Https,
        Protocol::Grpc => Target::Grpc,
        Protocol::Grpcs => Target::Grpcs,
        Protocol::Fastcgi => Target::Fastcgi,
    };
    let has_body = has_body(request);
    let own = policies.filter(|policies| is_unlogged || has_own(&policies.source));
    if target == Target::Http && own.is_none() && !has_body {
        return Entered::Target;
    }
    let base = match request.target_settings(target) {
        Some(base) => base,
        // The router's own location, which nginx has matched.
        None if target == Target::Http => request.location_settings(),
        None => return Entered::NoTarget,
    };
    match own {
        Some(own) => {
            let purpose = Purpose::Target(target, request.error_location());
            let copy = Cycle::with_current(request.event_loop(), |cycle| {
                let is_unlogged = is_unlogged || own.source.is_unlogged;
                own.part::<Locations>().get(cycle, base, purpose, (&own.source, is_unlogged))
            });
            let Some(copy) = copy else { return Entered::NoTarget };
            // SAFETY: of the request's cycle, whose number `Locations::get` compares, and of the policies, which the request
            // holds:
            // whoever lets go of them last gives them to `policies::Cache`, which frees them in a later turn.
            unsafe { request.enter_copy(copy) };
        }
        // SAFETY: of the request's own location or server.
        None => unsafe { request.enter_location(base) },
    }
    let (limit, length) = (request.max_body_bytes(), request.content_length_n());
    // A request that was redirected internally has come in with its body.
    if !request.is_internal() && limit != 0 && length > limit {
        // As nginx does where it finds a location: the client may send what it has announced.
        request.set_expect_tested(true);
        request.discard_body();
        return Entered::TooLarge;
    }
    Entered::Target
}

/// Gives a request, in its REWRITE phase in the `ingress_error` location, or where nginx itself answers, what its policies, which it
/// holds, say of every answer.
pub fn enter_answer<'r>(request: &'r Request, policies: &'r Compiled, is_unlogged: bool) {
    if !is_unlogged && !policies.source.is_unlogged {
        return;
    }
    let own = Cycle::with_current(request.event_loop(), |cycle| {
        let base = request.location_settings();
        policies.part::<Locations>().get(cycle, base, Purpose::Answer, (&policies.source, true))
    });
    if let Some(own) = own {
        // SAFETY: of the request's cycle, whose number `Locations::get` compares, and of the policies, which the request holds:
        // whoever lets go of them last gives them to `policies::Cache`, which frees them in a later turn.
        unsafe { request.set_location_copy(own) };
    }
}

/// A body may follow: nginx takes its limits from the location.
fn has_body(request: &Request) -> bool {
    let length = request.content_length_n();
    // HTTP/2 and 3 need not say it.
    length > 0 || request.is_chunked() || length < 0 && request.is_http2()
}
