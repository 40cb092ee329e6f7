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
    throttle: Throttle,
}

impl Counted {
    /// As the configuration bounds them.
    pub fn new(core: &CoreConf) -> Self {
        let most = core.buffers.unwrap_or(DEFAULT_BYTES);
        Counted { buffers: Rc::new(Buffers::new(most)), throttle: Throttle::default() }
    }
}

/// A request that is counted, until its pool goes.
struct CountedBuffers {
    buffers: Rc<Buffers>,
    namespace: Box<[u8]>,
    bytes: u64,
}

impl Drop for CountedBuffers {
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
    if bytes == 0 || nginx.pool().kept::<CountedBuffers>().next().is_some() {
        return None;
    }
    let counted = request.worker().part::<Counted>();
    let [_, namespace, ..] = request.route_names()?.texts;
    let begun = counted.buffers.begin(namespace, bytes).map(|()| CountedBuffers {
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
