//! The engines that run a compiled pattern, and the memory that they share.

use super::backtrack;
use super::program::Program;
use regex_automata::Input;
use regex_automata::dfa::onepass;
use regex_automata::nfa::thompson::backtrack::{BoundedBacktracker, Cache as BoundedCache};
use regex_automata::nfa::thompson::pikevm::{self, PikeVM};
use regex_automata::util::primitives::NonMaxUsize;

/// The matcher of a compiled pattern.
pub enum Engine {
    /// Of one way at each byte, anchored.
    OnePass(Box<onepass::DFA>),
    /// The first notes where it was, as long as there is room for that. The program is for values on which all states at
    /// each byte would cost too much: it counts those that there are.
    Linear(BoundedBacktracker, PikeVM, Option<Program>),
    /// The matcher of patterns with look-around or back-references.
    Backtracking(Program),
}

/// Memory of the engines while they run: one for all patterns, since each would keep its own otherwise.
#[derive(Default)]
pub struct Scratch {
    /// Of patterns with look-around and back-references.
    pub backtracking: backtrack::Memory,
    one_pass: Option<onepass::Cache>,
    bounded: Option<BoundedCache>,
    pike: Option<pikevm::Cache>,
}

impl Scratch {
    /// Searches with an engine that always has an answer.
    pub fn search(
        &mut self,
        engine: &Engine,
        input: &Input<'_>,
        slots: &mut [Option<NonMaxUsize>],
    ) -> bool {
        match engine {
            Engine::OnePass(engine) => {
                let cache = self.one_pass.get_or_insert_with(|| engine.create_cache());
                cache.reset(engine);
                engine.try_search_slots(cache, input, slots).is_ok_and(|found| found.is_some())
            }
            Engine::Linear(engine, ..) if input.haystack().len() <= engine.max_haystack_len() => {
                let cache = self.bounded.get_or_insert_with(|| engine.create_cache());
                cache.reset(engine);
                engine.try_search_slots(cache, input, slots).is_ok_and(|found| found.is_some())
            }
            Engine::Linear(_, engine, _) => {
                let cache = self.pike.get_or_insert_with(|| engine.create_cache());
                cache.reset(engine);
                engine.search_slots(cache, input, slots).is_some()
            }
            // Counts its steps, and its answer may be missing: `backtrack::find`.
            Engine::Backtracking(_) => false,
        }
    }
}
