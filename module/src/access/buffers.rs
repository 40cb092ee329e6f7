//! PREACCESS: whether the buffers that a request may take are too much beside those of others.

use crate::access::limits::Throttle;
use crate::conf::CoreConf;
use crate::request::Request;
use crate::request::policies::Compiled;
use oxigress_core::policy::buffers::{self, Buffers, Excess};
use std::rc::Rc;

/// Without `ingress_buffers`.
const DEFAULT_BYTES: u64 = 512 * 1024 * 1024;

/// What a worker counts, and what it has told of it.
pub struct Counted {
    buffers: Rc<Buffers>,
    encoders: Rc<Buffers>,
    throttle: Throttle,
}

impl Counted {
    /// As the configuration bounds them.
    pub fn new(core: &CoreConf) -> Self {
        let most = core.buffers.unwrap_or(DEFAULT_BYTES);
        let (buffers, encoders) = (Buffers::new(most), Buffers::new(most / ENCODERS_SHARE));
        let (buffers, encoders) = (Rc::new(buffers), Rc::new(encoders));
        Counted { buffers, encoders, throttle: Throttle::default() }
    }
}

/// Encoders of bodies have a bound of their own, of that of buffers divided by this: they refuse nobody's request, and what is not
/// compressed is served all the same.
const ENCODERS_SHARE: u64 = 4;

/// The memory of encoders of bodies.
pub enum Encoders {}

impl Encoders {
    /// Counts an encoder of a request's answer; `None`: those of its namespace, or of all, would take too much.
    pub fn reserve(request: &Request<'_>, bytes: u64) -> Option<Reserved> {
        let buffers = request.worker().part::<Counted>().encoders.clone();
        // nginx's own pages are nobody's.
        let namespace = request.route_names().map_or(&b""[..], |names| names.texts[1]);
        buffers.begin(namespace, bytes).ok()?;
        Some(Reserved { buffers, namespace: namespace.into(), bytes })
    }
}

/// Memory that is counted, until this goes.
pub struct Reserved {
    buffers: Rc<Buffers>,
    namespace: Box<[u8]>,
    bytes: u64,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.buffers.end(&self.namespace, self.bytes);
    }
}

/// Counts the buffers of a request; the status of a refusal.
pub fn decide(request: &Request<'_>, policies: &Compiled) -> Option<u16> {
    let proxy = policies.source.proxy.as_ref().filter(|_| request.is_main())?;
    let nginx = request.nginx();
    let body = match (u64::try_from(nginx.content_length_n()), nginx.is_chunked()) {
        (Ok(length), _) => Some(length),
        (Err(_), true) => None,
        (Err(_), false) => Some(0),
    };
    let bytes = buffers::bytes_of(proxy, body);
    if bytes == 0 || nginx.pool().kept::<Reserved>().next().is_some() {
        return None;
    }
    let counted = request.worker().part::<Counted>();
    let [_, namespace, ..] = request.route_names()?.texts;
    let begun = counted.buffers.begin(namespace, bytes).map(|()| Reserved {
        buffers: counted.buffers.clone(),
        namespace: namespace.into(),
        bytes,
    });
    match begun {
        Ok(begun) => nginx.pool().keep(begun).map_or(Some(503), |_| None),
        Err(excess) => {
            let (of, share) = match excess {
                Excess::Namespace => ("of the namespace", "half of "),
                Excess::Worker => ("of all namespaces", ""),
            };
            let (most, namespace) = (counted.buffers.most(), namespace.escape_ascii());
            let what = format_args!(
                "request of namespace \"{namespace}\" answered 503: large buffers {of} would exceed {share}the {most} bytes \
                 of ingress_buffers; use smaller proxy buffers"
            );
            counted.throttle.log(request, what);
            Some(503)
        }
    }
}
