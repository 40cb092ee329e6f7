//! `GET /configuration/explain`: what the router and the policies make of a request.

use crate::configuration::StoreAccess;
use crate::configuration::answer::Answer;
use crate::system::memory::monotonic_milliseconds;
use crate::zone::ZoneLock;
use crate::zone::endpoints::statistics;
use oxigress_core::explain::{self, Counted, ExplainRequest};
use oxigress_core::patterns::Patterns;
use oxigress_core::record::{Kind, Records};
use oxigress_store::Transaction;

/// The records that a transaction found, which changes none of them.
struct Locked<'t>(&'t Transaction<'t, ZoneLock>);

impl<'t> Records<'t> for Locked<'t> {
    fn value(&self, kind: Kind, key: &[u8]) -> Option<&'t [u8]> {
        self.0.get(kind as u8, key).map(|record| record.value())
    }
}

/// Answers from the live generation; `None`: a writer is at work.
pub fn explain(asked: &ExplainRequest, shared: &StoreAccess<'_>) -> Option<Answer> {
    let transaction = shared.write()?;
    let (_, generation) = transaction.base();
    if generation == 0 {
        return Some(Answer::problem(
            503,
            "nothing was ever published: send a configuration first",
        ));
    }
    let now = monotonic_milliseconds();
    let counted = |backend: &[u8], index: usize| {
        let set = transaction.get(Kind::Endpoints as u8, backend)?;
        let cell = statistics(&set, index)?;
        let (_, ejected_ms) = cell.ejections(now);
        Some(Counted { in_flight: cell.in_flight(), ejected_ms })
    };
    // A worker's compiled patterns are its event loop's.
    let patterns = Patterns::default();
    let told = explain::explain(&Locked(&transaction), asked, &patterns, counted);
    Some(Answer::json(200, &told))
}
