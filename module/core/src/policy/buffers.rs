//! What the buffers of requests take together, where policies make them large.
//!
//! Shape:   a sum for each namespace whose requests have large buffers, and one for all. Requests with buffers of ordinary
//!          sizes, at most [`FREE`] bytes, are bounded by the number of connections and not counted.
//! Units:   bytes that a request may take: its buffers when they are full.
//! Errors:  a request that would exceed the bound of its namespace or of all is refused.

use crate::model::policy::Proxy;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;

/// What is not counted: some twice the buffers of a location without policies.
pub const FREE: u64 = 64 * 1024;
/// nginx's buffers where policies say nothing, as in `conf/nginx.conf`: their size and number.
const ORDINARY: (u64, u64) = (4 * 1024, 4);
/// A namespace may have so much of the bound of all.
const SHARE: u64 = 2;

/// What the buffers of a worker's requests take.
pub struct Buffers {
    most: u64,
    total: Cell<u64>,
    by_namespace: RefCell<HashMap<Box<[u8]>, u64>>,
}

/// Whose buffered bodies exceed their bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// The requests of its namespace.
    Namespace,
    /// The requests of the whole worker.
    Worker,
}

/// What a request takes with buffers of a policy; 0: no more than any other. `body`: the length of its body; `None`:
/// nobody knows.
pub fn bytes_of(proxy: &Proxy, body: Option<u64>) -> u64 {
    let (size, count) = ORDINARY;
    let size = proxy.buffer_bytes.map_or(size, u64::from);
    let count = match proxy.buffering {
        Some(true) => proxy.buffer_count.map_or(count, u64::from),
        Some(false) | None => 0,
    };
    let buffer = proxy.body_buffer_bytes.map_or(0, u64::from);
    let all = size.saturating_mul(1 + count) + body.map_or(buffer, |bytes| bytes.min(buffer));
    if all > FREE { all } else { 0 }
}

impl Buffers {
    /// At most `most` bytes for all requests, and half of that for those of a namespace.
    pub fn new(most: u64) -> Self {
        Buffers { most, total: Cell::new(0), by_namespace: RefCell::default() }
    }

    /// The bound of all requests.
    pub fn most(&self) -> u64 {
        self.most
    }

    /// Counts a request of a namespace, until [`Buffers::end`].
    pub fn begin(&self, namespace: &[u8], bytes: u64) -> Result<(), Excess> {
        let total = self.total.get().saturating_add(bytes);
        let mut all = self.by_namespace.borrow_mut();
        let own = all.get(namespace).copied().unwrap_or(0).saturating_add(bytes);
        if own > self.most / SHARE {
            return Err(Excess::Namespace);
        }
        if total > self.most {
            return Err(Excess::Worker);
        }
        self.total.set(total);
        all.insert(namespace.into(), own);
        Ok(())
    }

    /// A request that was counted has ended.
    pub fn end(&self, namespace: &[u8], bytes: u64) {
        self.total.set(self.total.get().saturating_sub(bytes));
        let mut all = self.by_namespace.borrow_mut();
        if let Some(own) = all.get_mut(namespace) {
            *own = own.saturating_sub(bytes);
            if *own == 0 {
                all.remove(namespace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_buffers_count_and_ordinary_ones_do_not() {
        let mib = 1 << 20;
        let large = Proxy { buffer_bytes: Some(mib), buffer_count: Some(15), ..Proxy::default() };
        let buffered = Proxy { buffering: Some(true), ..large.clone() };
        let body = Proxy { body_buffer_bytes: Some(64 * mib), ..Proxy::default() };
        let (size, mib) = (4_096, u64::from(mib));
        assert_eq!(bytes_of(&Proxy::default(), None), 0);
        assert_eq!(bytes_of(&Proxy { buffering: Some(true), ..Proxy::default() }, None), 0);
        assert_eq!((bytes_of(&large, None), bytes_of(&buffered, Some(0))), (mib, 16 * mib));
        assert_eq!(bytes_of(&body, Some(1_000)), 0);
        assert_eq!(bytes_of(&body, Some(mib)), mib + size);
        assert_eq!(bytes_of(&body, Some(1 << 40)), 64 * mib + size);
        assert_eq!(bytes_of(&body, None), 64 * mib + size, "chunks");
    }

    #[test]
    fn a_namespace_has_half_and_all_have_the_whole() {
        let buffers = Buffers::new(100);
        assert_eq!((buffers.begin(b"a", 30), buffers.begin(b"a", 20)), (Ok(()), Ok(())));
        assert_eq!(buffers.begin(b"a", 1), Err(Excess::Namespace));
        assert_eq!(
            (buffers.begin(b"b", 40), buffers.begin(b"c", 11)),
            (Ok(()), Err(Excess::Worker))
        );
        buffers.end(b"a", 30);
        assert_eq!(
            (buffers.begin(b"c", 11), buffers.begin(b"a", 30)),
            (Ok(()), Err(Excess::Worker))
        );
        for (namespace, bytes) in [(&b"a"[..], 20), (b"b", 40), (b"c", 11)] {
            buffers.end(namespace, bytes);
        }
        assert!(buffers.total.get() == 0 && buffers.by_namespace.borrow().is_empty());
    }
}
