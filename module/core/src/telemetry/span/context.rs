//! The context of a span, as headers carry it.

use crate::model::policy::Propagation;
use crate::text::hex;

/// The longest `tracestate` that is passed on, in bytes: W3C Trace Context asks for 512 at least.
const MAX_STATE_BYTES: usize = 4096;

/// Identifies a trace; never all zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceId([u8; 16]);

/// Identifies a span within its trace; never all zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanId([u8; 8]);

impl TraceId {
    /// From random numbers. Zeroes, which are no id, become another id.
    pub fn new([high, low]: [u64; 2]) -> TraceId {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&high.to_be_bytes());
        bytes[8..].copy_from_slice(&low.max(1).to_be_bytes());
        TraceId(bytes)
    }

    /// Reads an id in network order; `None` for all zeroes, which W3C Trace Context forbids.
    pub fn from_bytes(bytes: [u8; 16]) -> Option<TraceId> {
        (bytes != [0; 16]).then_some(TraceId(bytes))
    }

    /// The bytes of the id in network order.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// The lower 63 bits, which samplers by ratio compare.
    pub(crate) fn low_bits(self) -> u64 {
        let mut low = [0; 8];
        low.copy_from_slice(&self.0[8..]);
        u64::from_be_bytes(low) >> 1
    }
}

impl SpanId {
    /// From a random number. Zero, which is no id, becomes another id.
    pub fn new(random: u64) -> SpanId {
        SpanId(random.max(1).to_be_bytes())
    }

    /// Reads an id in network order; `None` for all zeroes, which W3C Trace Context forbids.
    pub fn from_bytes(bytes: [u8; 8]) -> Option<SpanId> {
        (bytes != [0; 8]).then_some(SpanId(bytes))
    }

    /// The bytes of the id in network order.
    pub fn to_bytes(self) -> [u8; 8] {
        self.0
    }
}

/// A span, as its trace's other members see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// The trace that it belongs to.
    pub trace: TraceId,
    /// The id of the span itself.
    pub span: SpanId,
    /// Whether the spans of this trace are recorded and exported.
    pub is_sampled: bool,
}

impl Context {
    /// Reads the context that a client sent: `traceparent`, else `b3`, else the `x-b3-` headers. `header` gives the value of
    /// the only header of a name in lower case.
    pub fn from_headers<'a>(header: impl Fn(&[u8]) -> Option<&'a [u8]>) -> Option<Context> {
        let w3c = header(b"traceparent").and_then(Self::from_traceparent);
        w3c.or_else(|| header(b"b3").and_then(Self::from_b3)).or_else(|| {
            let sampled = header(b"x-b3-sampled").unwrap_or_default();
            let is_sampled =
                matches!(sampled, b"1" | b"true") || header(b"x-b3-flags") == Some(b"1");
            let trace = b3_trace(header(b"x-b3-traceid")?)?;
            let span = hex::decode(header(b"x-b3-spanid")?).and_then(SpanId::from_bytes)?;
            Some(Context { trace, span, is_sampled })
        })
    }

    /// Reads `00-TRACE-SPAN-FLAGS`; `None` for what is no such header. A later version is read as far as this one goes.
    pub fn from_traceparent(text: &[u8]) -> Option<Context> {
        let (head, rest) = text.split_at_checked(55)?;
        let [v0, v1, b'-', ..] = head else { return None };
        let [version] = hex::decode(&[*v0, *v1])?;
        let is_whole = if version == 0 { rest.is_empty() } else { matches!(rest, [] | [b'-', ..]) };
        let has_dashes = head[35] == b'-' && head[52] == b'-';
        if version == 0xff || !is_whole || !has_dashes {
            return None;
        }
        let [flags] = hex::decode(&head[53..])?;
        Some(Context {
            trace: hex::decode(&head[3..35]).and_then(TraceId::from_bytes)?,
            span: hex::decode(&head[36..52]).and_then(SpanId::from_bytes)?,
            is_sampled: flags & 1 == 1,
        })
    }

    /// Reads `TRACE-SPAN`, `TRACE-SPAN-SAMPLED` or `TRACE-SPAN-SAMPLED-PARENT`; `None` for what is no such header.
    pub fn from_b3(text: &[u8]) -> Option<Context> {
        let mut parts = text.split(|byte| *byte == b'-');
        let trace = b3_trace(parts.next()?)?;
        let span = hex::decode(parts.next()?).and_then(SpanId::from_bytes)?;
        let is_sampled = match parts.next() {
            Some(b"1" | b"d") => true,
            Some(b"0") | None => false,
            Some(_) => return None,
        };
        Some(Context { trace, span, is_sampled })
    }

    /// The value of the header `traceparent`, as W3C Trace Context writes it.
    pub fn traceparent(&self) -> Vec<u8> {
        let flags: &[u8] = if self.is_sampled { b"-01" } else { b"-00" };
        [b"00-", &*hex::encode(&self.trace.0), b"-", &*hex::encode(&self.span.0), flags].concat()
    }

    /// The headers that carry it, and with an empty value those of other forms, which would say something else.
    pub fn headers(&self, propagation: Propagation) -> [(&'static str, Vec<u8>); 7] {
        let sampled: &[u8] = if self.is_sampled { b"1" } else { b"0" };
        let (trace, span) = (hex::encode(&self.trace.0), hex::encode(&self.span.0));
        let mut all = [
            ("traceparent", Vec::new()),
            ("b3", Vec::new()),
            ("x-b3-traceid", Vec::new()),
            ("x-b3-spanid", Vec::new()),
            ("x-b3-sampled", Vec::new()),
            ("x-b3-parentspanid", Vec::new()),
            ("x-b3-flags", Vec::new()),
        ];
        match propagation {
            Propagation::W3c => all[0].1 = self.traceparent(),
            Propagation::B3 => all[1].1 = [&*trace, b"-", &*span, b"-", sampled].concat(),
            Propagation::B3Multi => {
                (all[2].1, all[3].1, all[4].1) = (trace, span, sampled.to_vec());
            }
        }
        all
    }
}

/// B3 has traces of 64 bits too.
fn b3_trace(text: &[u8]) -> Option<TraceId> {
    match text.len() {
        16 => {
            let mut bytes = [0; 16];
            bytes[8..].copy_from_slice(&hex::decode::<8>(text)?);
            TraceId::from_bytes(bytes)
        }
        _ => hex::decode(text).and_then(TraceId::from_bytes),
    }
}

/// Whether a `tracestate` that came with a trusted `traceparent` is passed on.
pub fn is_trace_state(value: &[u8]) -> bool {
    value.len() <= MAX_STATE_BYTES && value.iter().all(|byte| (0x20..0x7f).contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    fn read(text: &str) -> Option<Context> {
        Context::from_traceparent(text.as_bytes())
    }

    #[test]
    fn traceparent_is_read_as_the_standard_says() {
        let context = read(&format!("00-{TRACE}-{SPAN}-01")).unwrap();
        assert!(context.is_sampled);
        assert_eq!(context.traceparent(), format!("00-{TRACE}-{SPAN}-01").as_bytes());
        assert!(!read(&format!("00-{TRACE}-{SPAN}-02")).unwrap().is_sampled);
        assert!(read(&format!("cc-{TRACE}-{SPAN}-01-more")).is_some(), "a later version");
        for bad in [
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{}-{SPAN}-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{TRACE}-{SPAN}-0"),
            format!("00_{TRACE}-{SPAN}-01"),
            String::new(),
        ] {
            assert_eq!(read(&bad), None, "{bad}");
        }
    }

    #[test]
    fn b3_is_read_in_both_forms_and_written() {
        let context = Context::from_b3(format!("{TRACE}-{SPAN}-1").as_bytes()).unwrap();
        assert!(context.is_sampled);
        let short = Context::from_b3(format!("{}-{SPAN}", &TRACE[16..]).as_bytes()).unwrap();
        assert_eq!(short.trace.to_bytes()[..8], [0; 8]);
        assert_eq!(Context::from_b3(b"0"), None, "a decision without a trace");
        let sent = context.headers(Propagation::B3Multi);
        let find = |name: &[u8]| {
            let found = sent.iter().find(|(key, _)| key.as_bytes() == name);
            found.map(|(_, value)| &value[..]).filter(|value| !value.is_empty())
        };
        assert_eq!(Context::from_headers(find), Some(context));
        assert_eq!(find(b"traceparent"), None);
    }
}
