//! The compiled patterns of a worker.

use super::compile::{Compiled, compile};
use super::engine::Scratch;
use super::price::OF_PATTERN;
use super::{Allowance, Budget, Meaning};
use crate::cache::Cache;

/// The bytes of an entry beside the compiled pattern, in the map and in the queue.
const OVERHEAD_BYTES: usize = 256;

/// Compiled patterns of one meaning, and the working memory that they share.
pub struct Kept {
    meaning: Meaning,
    /// A pattern that does not compile is remembered too.
    cache: Cache<Option<Compiled>>,
    scratch: Scratch,
}

impl Kept {
    /// No patterns, with room for `max_bytes`.
    pub fn new(meaning: Meaning, max_bytes: usize) -> Self {
        Kept { meaning, cache: Cache::new(max_bytes), scratch: Scratch::default() }
    }

    /// A pattern, compiled now if it is not cached; `None` if it does not compile or the budget is exceeded.
    pub fn get(
        &mut self,
        pattern: &[u8],
        budget: &mut Budget,
    ) -> Option<(&Compiled, &mut Scratch)> {
        let compiled = self.cache.get(pattern, 0, || {
            budget.spend(OF_PATTERN).filter(|()| budget.may_compile)?;
            let text = str::from_utf8(pattern).ok();
            let compiled = text.and_then(|text| {
                // The request is charged below, and the controller has charged the namespace of the pattern.
                compile(text, self.meaning, Allowance::unlimited()).ok()
            });
            if let Some(compiled) = &compiled {
                // A pattern over the budget stays compiled for the next request.
                budget.steps = budget.steps.saturating_sub(compiled.price - OF_PATTERN);
            }
            let bytes = compiled.as_ref().map_or(0, |compiled| compiled.bytes);
            Some((compiled, OVERHEAD_BYTES + pattern.len() + bytes))
        })?;
        Some((compiled.as_ref()?, &mut self.scratch))
    }
}

#[cfg(test)]
impl Kept {
    pub fn len(&self) -> usize {
        self.cache.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_keeps_bounded_bytes_and_the_patterns_that_are_used() {
        let mut kept = Kept::new(Meaning::Path, 100_000);
        let mut often = 0;
        for n in 0..1_000 {
            let mut budget = Budget::OF_PATH;
            kept.get(format!("/a{n}/(.*)").as_bytes(), &mut budget).unwrap();
            let before = budget.steps;
            kept.get(b"/often", &mut budget).unwrap();
            often += usize::from(budget.steps < before);
            assert!(kept.cache.bytes() <= 100_000);
        }
        assert!(kept.len() > 10);
        assert_eq!(often, 1, "compiled once");
    }
}
