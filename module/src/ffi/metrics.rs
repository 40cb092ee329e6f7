//! Metrics: the directive, and the LOG phase, where a request has ended and is counted.

use super::directives::{self, Answer, CoreConf, OK};
use super::{Request, guard, log, memory};
use crate::metrics;
use nginx::sys::{
    NGX_OK, ngx_array_t, ngx_command_t, ngx_conf_t, ngx_cycle, ngx_cycle_t, ngx_http_request_t,
    ngx_http_upstream_state_t, ngx_int_t, ngx_msec_t,
};
use oxigress_core::metrics::{Attempts, Buckets, Observation};
use std::ffi::{c_char, c_void};

/// `ingress_metrics [time=SECONDS,...] [length=BYTES,...] [size=BYTES,...];`
pub unsafe extern "C" fn ingress_metrics(
    cf: *mut ngx_conf_t,
    _: *mut ngx_command_t,
    conf: *mut c_void,
) -> Answer {
    // SAFETY: as for `ingress_zone`; `conf` is the core module's.
    guard::contain("ingress_metrics", directives::refused(), || unsafe {
        let conf = &mut *conf.cast::<CoreConf>();
        if conf.has_metrics {
            return c"is duplicate".as_ptr().cast_mut();
        }
        let arguments = directives::arguments(cf).iter().skip(1);
        match buckets(arguments.map(|argument| memory::bytes(*argument))) {
            Ok(buckets) => (conf.has_metrics, conf.buckets) = (true, buckets),
            Err(reason) => return directives::refuse(cf, reason),
        }
        OK
    })
}

fn buckets<'a>(arguments: impl Iterator<Item = &'a [u8]>) -> Result<Buckets, String> {
    let mut buckets = Buckets::default();
    for argument in arguments {
        let text = String::from_utf8_lossy(argument);
        let taken = match text.split_once('=') {
            Some(("time", bounds)) => buckets.with_time(bounds),
            Some(("length", bounds)) => buckets.with_length(bounds),
            Some(("size", bounds)) => buckets.with_size(bounds),
            _ => {
                let shown = text.escape_debug();
                return Err(format!(
                    "invalid parameter \"{shown}\": write time=, length= or size="
                ));
            }
        };
        buckets = taken.map_err(|error| error.to_string())?;
    }
    Ok(buckets)
}

/// nginx's callback when the configuration outside of http{} has been read.
///
/// Cells have the form that the configuration says: with another one the zone is not kept over a reload. A new
/// one is made, and filled from it.
pub unsafe extern "C" fn init_conf(_: *mut ngx_cycle_t, conf: *mut c_void) -> *mut c_char {
    guard::contain("init_conf", directives::refused(), || {
        // SAFETY: nginx gives what `create_core_conf` made.
        let conf = unsafe { &mut *conf.cast::<CoreConf>() };
        if conf.has_metrics && conf.zone.is_null() {
            let reason = "\"ingress_metrics\" needs an \"ingress_zone NAME SIZE;\"";
            log::cycle(log::EMERG, format_args!("{reason}"));
            return directives::refused();
        }
        // SAFETY: nginx sets it before it loads a module; the last cycle, or an empty one.
        let last = unsafe { directives::conf_of_last_cycle(ngx_cycle) };
        // SAFETY: null, or of the last cycle, which still runs.
        let is_other =
            unsafe { last.as_ref() }.is_some_and(|last| last.metrics() != conf.metrics());
        // SAFETY: null, or made by `ingress_zone`.
        if let Some(zone) = unsafe { conf.zone.as_mut() }
            && is_other
        {
            zone.noreuse = 1;
        }
        OK
    })
}

/// nginx's callback for each request in its LOG phase.
pub unsafe extern "C" fn log_handler(raw: *mut ngx_http_request_t) -> ngx_int_t {
    guard::contain("log", (), || {
        // SAFETY: nginx runs this phase for a live request, on the event loop.
        let Some(request) = (unsafe { Request::from_callback(raw) }) else { return };
        let Some(counter) = request.counter() else { return };
        // SAFETY: alive.
        metrics::observe(request.worker(), &counter, &unsafe { observation(raw) });
    });
    NGX_OK as ngx_int_t
}

/// # Safety
/// `raw` is alive, and has ended.
#[inline]
unsafe fn observation(raw: *mut ngx_http_request_t) -> Observation {
    // SAFETY: vouched for by the caller.
    let request = unsafe { &*raw };
    let status = match request.err_status {
        0 => request.headers_out.status,
        status => status,
    };
    // SAFETY: nginx keeps this pointer at a time that it does not change any more.
    let now = unsafe { &*nginx::sys::ngx_cached_time };
    let seconds = now.sec - request.start_sec;
    let elapsed = seconds * 1_000 + now.msec as i64 - request.start_msec as i64;
    // SAFETY: a request has a connection until it is freed.
    let sent = unsafe { (*request.connection).sent };
    Observation {
        method_mask: request.method,
        status: u16::try_from(status).unwrap_or(0),
        request_ms: u64::try_from(elapsed).unwrap_or(0),
        request_bytes: u64::try_from(request.request_length).unwrap_or(0),
        response_bytes: u64::try_from(sent).unwrap_or(0),
        // SAFETY: null, or what nginx keeps of the request's attempts.
        attempts: unsafe { attempts(request.upstream_states) },
    }
}

/// # Safety
/// `states` is null or a request's `upstream_states`.
#[inline]
unsafe fn attempts(states: *const ngx_array_t) -> Attempts {
    // SAFETY: vouched for by the caller.
    let Some(states) = (unsafe { states.as_ref() }) else { return Attempts::default() };
    // SAFETY: nginx fills the array with these.
    let states = unsafe { states.as_slice::<ngx_http_upstream_state_t>() };
    let mut all = Attempts::default();
    let add = |sum: &mut Option<u64>, time: ngx_msec_t| {
        // nginx's -1: it did not come to that.
        if time != ngx_msec_t::MAX {
            *sum = Some(sum.unwrap_or(0).saturating_add(time as u64));
        }
    };
    // Without a peer a state only divides those of two upstreams.
    for state in states.iter().filter(|state| !state.peer.is_null()) {
        add(&mut all.response_ms, state.response_time);
        add(&mut all.connect_ms, state.connect_time);
        add(&mut all.header_ms, state.header_time);
    }
    all
}
