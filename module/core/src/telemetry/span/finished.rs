//! A request that has ended, as it waits for the exporter.
//!
//! Layout: [`Head`], the bytes of seven texts and of the namespace, then each call: [`CallHead`] and its address. Texts and calls that have no
//! room are cut, so that a record never exceeds [`MAX_BYTES`].

use super::{Context, SpanId, TraceId};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The most bytes of a record: the slots of the ring have so many.
pub const MAX_BYTES: usize = super::ring::SLOT_BYTES;
/// The most bytes of a text in a record.
const MAX_TEXT_BYTES: usize = 200;
/// The most calls in a record. Those beyond it are left out: the first say what went wrong, the last who answered, so it is
/// the ones before the last that go.
const MAX_CALLS: usize = 6;

/// A request that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The trace, and the id of the request's server span.
    pub context: Context,
    /// The span of the client that it belongs to.
    pub parent: Option<SpanId>,
    /// Whether the request came over TLS.
    pub is_https: bool,
    /// The status that the client got; 0: none.
    pub status: u16,
    /// The port that the client connected to; 0: unknown.
    pub port: u16,
    /// Milliseconds since the Unix epoch when its first byte was read.
    pub start_ms: u64,
    /// How long the request or call took, in milliseconds.
    pub duration_ms: u32,
    /// The namespace of the Ingress that served it.
    pub namespace: Vec<u8>,
    /// Texts, in the order of [`Finished::NAMES`].
    pub texts: [Vec<u8>; 7],
    /// The requests that it caused.
    pub calls: Vec<Call>,
}

/// A request to an endpoint, an auth server or a mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Whether the call went to an endpoint, an auth server or a mirror.
    pub kind: CallKind,
    /// The id of the call's client span.
    pub span: SpanId,
    /// Milliseconds between the start of the request and its own.
    pub after_ms: u32,
    /// How long the request or call took, in milliseconds.
    pub duration_ms: u32,
    /// The status that came back; 0: none.
    pub status: u16,
    /// The address and port of the server.
    pub address: Vec<u8>,
}

/// The kind of server that a call of a request went to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// An endpoint of the route: one of several where the request was tried again.
    Endpoint,
    /// The call went to the external auth server.
    Auth,
    /// The call was a copy for the mirror.
    Mirror,
}

#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    trace: [u8; 16],
    span: [u8; 8],
    /// The id of the client's span; zeroes: it sent none.
    parent: [u8; 8],
    start_ms: U64,
    duration_ms: U32,
    status: U16,
    port: U16,
    is_https: u8,
    calls: u8,
    namespace: u8,
    lengths: [u8; 7],
}

#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct CallHead {
    span: [u8; 8],
    after_ms: U32,
    duration_ms: U32,
    status: U16,
    kind: u8,
    length: u8,
}

const fn fits() -> bool {
    let texts = 7 * MAX_TEXT_BYTES + MAX_NAMESPACE_BYTES;
    size_of::<Head>() + texts + MAX_CALLS * (size_of::<CallHead>() + MAX_ADDRESS_BYTES) <= MAX_BYTES
}

/// Kubernetes takes no longer name.
const MAX_NAMESPACE_BYTES: usize = 63;
/// An IPv6 address with a port has 47.
const MAX_ADDRESS_BYTES: usize = 64;
const _: () = assert!(fits() && MAX_TEXT_BYTES <= u8::MAX as usize);

impl Finished {
    /// What each of the texts says of the request, in their order.
    pub const NAMES: [&str; 7] =
        ["operation", "method", "host", "target", "route", "client", "user agent"];

    /// Its bytes. Texts are cut at 200 bytes.
    pub fn encode(&self) -> Vec<u8> {
        let texts = self.texts.each_ref().map(|text| &text[..text.len().min(MAX_TEXT_BYTES)]);
        let namespace = &self.namespace[..self.namespace.len().min(MAX_NAMESPACE_BYTES)];
        let left_out = self.calls.len().saturating_sub(MAX_CALLS);
        let (first, last) = match left_out {
            0 => (&self.calls[..], &[][..]),
            _ => (&self.calls[..MAX_CALLS - 1], &self.calls[self.calls.len() - 1..]),
        };
        let head = Head {
            trace: self.context.trace.to_bytes(),
            span: self.context.span.to_bytes(),
            parent: self.parent.map_or([0; 8], SpanId::to_bytes),
            start_ms: self.start_ms.into(),
            duration_ms: self.duration_ms.into(),
            status: self.status.into(),
            port: self.port.into(),
            is_https: self.is_https.into(),
            calls: (first.len() + last.len()) as u8,
            namespace: namespace.len() as u8,
            lengths: texts.map(|text| text.len() as u8),
        };
        let mut bytes = head.as_bytes().to_vec();
        texts.iter().for_each(|text| bytes.extend_from_slice(text));
        bytes.extend_from_slice(namespace);
        for call in first.iter().chain(last) {
            let address = &call.address[..call.address.len().min(MAX_ADDRESS_BYTES)];
            let head = CallHead {
                span: call.span.to_bytes(),
                after_ms: call.after_ms.into(),
                duration_ms: call.duration_ms.into(),
                status: call.status.into(),
                kind: call.kind as u8,
                length: address.len() as u8,
            };
            bytes.extend_from_slice(head.as_bytes());
            bytes.extend_from_slice(address);
        }
        bytes
    }

    /// Reads one record from the beginning of `bytes` and moves past it; `None` for damaged bytes.
    pub fn decode(bytes: &mut &[u8]) -> Option<Finished> {
        let (head, mut rest) = Head::ref_from_prefix(bytes).ok()?;
        let mut take = |length: usize| {
            let (taken, after) = rest.split_at_checked(length)?;
            rest = after;
            Some(taken)
        };
        let mut texts = [const { Vec::new() }; 7];
        for (text, length) in texts.iter_mut().zip(head.lengths) {
            *text = take(length.into())?.to_vec();
        }
        let namespace = take(head.namespace.into())?.to_vec();
        let mut calls = Vec::with_capacity(head.calls.into());
        for _ in 0..head.calls {
            let call = CallHead::ref_from_bytes(take(size_of::<CallHead>())?).ok()?;
            calls.push(Call {
                kind: match call.kind {
                    0 => CallKind::Endpoint,
                    1 => CallKind::Auth,
                    _ => CallKind::Mirror,
                },
                span: SpanId::from_bytes(call.span)?,
                after_ms: call.after_ms.get(),
                duration_ms: call.duration_ms.get(),
                status: call.status.get(),
                address: take(call.length.into())?.to_vec(),
            });
        }
        let trace = TraceId::from_bytes(head.trace)?;
        let context = Context { trace, span: SpanId::from_bytes(head.span)?, is_sampled: true };
        let finished = Finished {
            context,
            parent: SpanId::from_bytes(head.parent),
            is_https: head.is_https != 0,
            status: head.status.get(),
            port: head.port.get(),
            start_ms: head.start_ms.get(),
            duration_ms: head.duration_ms.get(),
            namespace,
            texts,
            calls,
        };
        *bytes = rest;
        Some(finished)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn finished(texts: Vec<Vec<u8>>, calls: usize) -> Finished {
        let call = |number: usize| Call {
            kind: [CallKind::Endpoint, CallKind::Auth, CallKind::Mirror][number % 3],
            span: SpanId::new(number as u64 + 1),
            after_ms: 3,
            duration_ms: 4,
            status: 502,
            address: b"[2001:db8::1]:8080".to_vec(),
        };
        let mut texts = texts.into_iter();
        Finished {
            context: Context {
                trace: TraceId::new([1, 2]),
                span: SpanId::new(3),
                is_sampled: true,
            },
            parent: Some(SpanId::new(4)),
            is_https: true,
            status: 200,
            port: 443,
            start_ms: 1_700_000_000_000,
            duration_ms: 12,
            namespace: b"team-a".to_vec(),
            texts: std::array::from_fn(|_| texts.next().unwrap_or_default()),
            calls: (0..calls).map(call).collect(),
        }
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_was_written(
            texts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 7),
            calls in 0..9usize,
        ) {
            let mut expected = finished(texts, calls);
            let bytes = [expected.encode(), expected.encode()].concat();
            prop_assert!(bytes.len() <= 2 * MAX_BYTES);
            expected.texts.iter_mut().for_each(|text| text.truncate(MAX_TEXT_BYTES));
            if let Some(last) = expected.calls.pop() {
                expected.calls.truncate(MAX_CALLS - 1);
                expected.calls.push(last);
            }
            let mut rest = &bytes[..];
            for _ in 0..2 {
                prop_assert_eq!(Finished::decode(&mut rest), Some(expected.clone()));
            }
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn damaged_bytes_are_no_record(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = Finished::decode(&mut &bytes[..]);
        }
    }
}
