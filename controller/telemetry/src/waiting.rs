//! Spans that wait for the collector, of each namespace no more than its share.

use opentelemetry_sdk::trace::SpanData;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The spans in the order in which they came, with the namespaces that they belong to.
#[derive(Default)]
pub struct Waiting {
    spans: VecDeque<(Arc<[u8]>, SpanData)>,
    by_namespace: HashMap<Arc<[u8]>, usize>,
}

impl Waiting {
    /// Adds a span, unless its namespace has as many as there are places left of twice `most`: one alone has `most`.
    pub fn push(&mut self, namespace: &Arc<[u8]>, span: SpanData, most: usize) -> bool {
        let own = self.by_namespace.get(namespace).copied().unwrap_or_default();
        if own >= (2 * most).saturating_sub(self.spans.len()) {
            return false;
        }
        self.by_namespace.insert(namespace.clone(), own + 1);
        self.spans.push_back((namespace.clone(), span));
        true
    }

    /// Takes the oldest ones out.
    pub fn take(&mut self, most: usize) -> Vec<SpanData> {
        let taken: Vec<_> = self.spans.drain(..most.min(self.spans.len())).collect();
        for (namespace, _) in &taken {
            if let Some(count) = self.by_namespace.get_mut(namespace) {
                *count -= 1;
                if *count == 0 {
                    self.by_namespace.remove(namespace);
                }
            }
        }
        taken.into_iter().map(|(_, span)| span).collect()
    }

    /// How many spans wait to be exported.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether no span waits to be exported.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spans::tests::span;

    #[test]
    fn a_busy_namespace_leaves_room_for_others() {
        let (busy, calm): (Arc<[u8]>, Arc<[u8]>) = (b"busy"[..].into(), b"calm"[..].into());
        let mut waiting = Waiting::default();
        let kept = (0..200).filter(|_| waiting.push(&busy, span("busy"), 100)).count();
        assert_eq!(kept, 100);
        let kept = (0..10).filter(|_| waiting.push(&calm, span("calm"), 100)).count();
        assert_eq!((kept, waiting.len()), (10, 110));
        assert_eq!(waiting.take(105).len(), 105);
        let names: Vec<_> = waiting.take(105).into_iter().map(|span| span.name).collect();
        assert_eq!(names, ["calm"; 5]);
        assert!(waiting.is_empty() && waiting.by_namespace.is_empty());
    }
}
