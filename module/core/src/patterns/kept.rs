//! Compiled patterns that a worker keeps.

use super::compile::{Compiled, compile};
use super::engine::Scratch;
use super::price::OF_PATTERN;
use super::{Allowance, Budget, Meaning};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

/// What a kept pattern takes beside itself: its places in the map and in the queue.
const KEPT_OVERHEAD: usize = 256;

/// Compiled patterns, the oldest of which make room: those that were asked for since they came stay once more.
pub struct Kept {
    meaning: Meaning,
    max_bytes: usize,
    entries: HashMap<Rc<[u8]>, Entry>,
    /// The keys of all entries, the next to go first.
    queue: VecDeque<Rc<[u8]>>,
    bytes: usize,
    scratch: Scratch,
}

pub struct Entry {
    pub compiled: Option<Compiled>,
    bytes: usize,
    was_asked_for: bool,
}

impl Kept {
    /// Old entries that may stay once more when a new one comes: bounds its cost.
    const MAX_SPARED: usize = 8;

    /// Nothing, with room for `max_bytes`.
    pub fn new(meaning: Meaning, max_bytes: usize) -> Self {
        Kept {
            meaning,
            max_bytes,
            entries: HashMap::new(),
            queue: VecDeque::new(),
            bytes: 0,
            scratch: Scratch::default(),
        }
    }

    /// The entry of a pattern, compiled when it is not there; `None`: the budget is used up.
    pub fn get(&mut self, pattern: &[u8], budget: &mut Budget) -> Option<(&Entry, &mut Scratch)> {
        if !self.entries.contains_key(pattern) {
            budget.spend(OF_PATTERN).filter(|()| budget.may_compile)?;
            let text = str::from_utf8(pattern).ok();
            let compiled = text.and_then(|text| {
                // The request is charged below, and the controller has charged whoever wrote the pattern.
                compile(text, self.meaning, Allowance::unlimited()).ok()
            });
            if let Some(compiled) = &compiled {
                // What is over the budget stays compiled for the next request.
                budget.steps = budget.steps.saturating_sub(compiled.price - OF_PATTERN);
            }
            self.insert(pattern, compiled);
        }
        let entry = self.entries.get_mut(pattern)?;
        entry.was_asked_for = true;
        Some((entry, &mut self.scratch))
    }

    fn insert(&mut self, pattern: &[u8], compiled: Option<Compiled>) {
        let compiled_bytes = compiled.as_ref().map_or(0, |compiled| compiled.bytes);
        let bytes = KEPT_OVERHEAD + pattern.len() + compiled_bytes;
        let mut spared = 0;
        while self.bytes + bytes > self.max_bytes {
            let Some(oldest) = self.queue.pop_front() else { break };
            match self.entries.get_mut(&oldest) {
                Some(entry) if entry.was_asked_for && spared < Self::MAX_SPARED => {
                    (entry.was_asked_for, spared) = (false, spared + 1);
                    self.queue.push_back(oldest);
                }
                _ => {
                    self.bytes -= self.entries.remove(&oldest).map_or(0, |entry| entry.bytes);
                }
            }
        }
        self.bytes += bytes;
        let key: Rc<[u8]> = pattern.into();
        self.queue.push_back(Rc::clone(&key));
        self.entries.insert(key, Entry { compiled, bytes, was_asked_for: false });
    }
}

#[cfg(test)]
impl Kept {
    /// How many patterns there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_keeps_bounded_bytes_and_what_is_asked_for() {
        let mut kept = Kept::new(Meaning::Path, 100_000);
        let mut often = 0;
        for n in 0..1_000 {
            let mut budget = Budget::OF_PATH;
            kept.get(format!("/a{n}/(.*)").as_bytes(), &mut budget).unwrap();
            let before = budget.steps;
            kept.get(b"/often", &mut budget).unwrap();
            often += usize::from(budget.steps < before);
            assert!(kept.bytes <= kept.max_bytes);
            assert_eq!(kept.entries.len(), kept.queue.len());
            assert_eq!(kept.entries.values().map(|entry| entry.bytes).sum::<usize>(), kept.bytes);
        }
        assert!(kept.entries.len() > 10);
        assert_eq!(often, 1, "compiled once");
    }
}
