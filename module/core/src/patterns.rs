//! Regular expressions that users write, with bounded work.
//!
//! Shape:   compiled when first needed and kept, a worker each: for paths and for what is searched in other values.
//! Units:   work in steps of about a nanosecond: eight for one state of an automaton at one byte, or for one step of
//!          [`backtrack`]; compiling in nanoseconds, estimated from the pattern before it is compiled ([`price`]).
//! Errors:  a pattern that is too expensive or does not compile, or that exceeds its budget on a value, has no answer.
//! Source:  automata, whose time is linear; look-around and back-references on [`backtrack`], whose steps are counted.
//! Rejected: lazily built automata, which are faster on long texts and need 10 KiB and more for each pattern.

mod backtrack;
mod compile;
mod engine;
mod kept;
mod price;
mod program;
mod shares;
#[cfg(test)]
mod tests;
mod text;

pub use compile::{
    is_plain, leading_text, literal_prefix, plain_start, price_of, price_of_reading,
};

use crate::text::invalid::Invalid;
use compile::{Compiled, STATE_STEPS, compile};
use engine::{Engine, Scratch};
use kept::Kept;
use program::Program;
use regex_automata::util::primitives::NonMaxUsize;
use regex_automata::{Anchored, Input};
use shares::{Bill, FREE, Shares};
use std::cell::RefCell;

/// A longer pattern is refused.
pub const MAX_PATTERN_BYTES: usize = 1_024;
/// Longest value a pattern is searched in.
const MAX_VALUE_BYTES: usize = 1_024;
/// Steps of a pattern with look-around or back-references at one value.
const MAX_STEPS: u64 = 60_000;
/// The most bytes of one compiled pattern.
const MAX_COMPILED_BYTES: usize = 64 * 1_024;
/// Compiled patterns of a worker, of each kind: some five thousand of those that paths have.
const MAX_KEPT_BYTES: usize = 16 * 1_024 * 1_024;
/// The steps of any attempt: finding the compiled form and setting an engine up.
const TRY_STEPS: u64 = 100;
/// The number of groups that a template can name, counting the whole match.
const GROUPS: usize = 10;

/// Refuses a text that is no pattern by itself, though it may become one between other text: `a)|(?:b` within a group.
pub fn check_text(pattern: &str) -> Result<(), Invalid> {
    text::scan(pattern).refusal.map_or(Ok(()), Err)
}

/// The number of groups of a valid pattern that capture, without the whole match.
pub fn captures_of(pattern: &str) -> usize {
    text::scan(pattern).captures
}

/// The nanoseconds that compiling may cost. A caller that compiles a pattern passes an allowance, so that none
/// compiles without naming the budget that is charged.
#[derive(Debug)]
pub struct Allowance(u64);

impl Allowance {
    /// An allowance of so many nanoseconds.
    pub const fn of(nanoseconds: u64) -> Self {
        Allowance(nanoseconds)
    }

    /// For patterns of the operator, and for those that are charged elsewhere.
    pub const fn unlimited() -> Self {
        Allowance(u64::MAX)
    }

    /// The nanoseconds that are left.
    pub const fn left(&self) -> u64 {
        self.0
    }

    /// A part of the allowance; `None` if less is left.
    pub fn split(&mut self, nanoseconds: u64) -> Option<Allowance> {
        self.0 = self.0.checked_sub(nanoseconds)?;
        Some(Allowance(nanoseconds))
    }
}

/// The work that one request may cause.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    steps: u64,
    /// The part of the steps that namespaces over their shares have together.
    scarce: u64,
    may_compile: bool,
    bill: Bill,
}

impl Budget {
    /// The budget for the paths of one request, including patterns that it is the first to need. Together with
    /// [`Self::OF_VALUES`] and one pattern that is compiled when the budget is nearly exhausted, a request keeps a
    /// worker for less than 5 milliseconds.
    pub const OF_PATH: Budget = Budget::of(3_000_000);

    /// The budget for the header patterns of one request, or for the subject of one certificate.
    pub const OF_VALUES: Budget = Budget::of(1_000_000);

    /// The budget for the patterns of all scripts of one request.
    pub const OF_SCRIPTS: Budget = Budget::of(600_000);

    /// The budget for all paths that scripts give one request, including patterns that it is the first to need.
    pub const OF_MOVED_PATHS: Budget = Budget::of(300_000);

    /// The budget for the header patterns of such a request.
    pub const OF_MOVED_VALUES: Budget = Budget::of(100_000);

    /// What is left of the budget.
    pub fn left(&self) -> u64 {
        self.steps
    }

    /// A budget of so many steps.
    pub const fn of(steps: u64) -> Self {
        const EMPTY: Bill = Bill::empty();
        Budget { steps, scarce: FREE, may_compile: true, bill: EMPTY }
    }

    fn spend(&mut self, steps: u64) -> Option<()> {
        self.steps = self.steps.checked_sub(steps)?;
        Some(())
    }
}

/// The ranges of the path that a pattern's groups matched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Captures([(u32, u32); GROUPS]);

impl Captures {
    /// The text that group `number` matched in `path`, which must be the path that the pattern was matched with;
    /// empty for a group without a match.
    pub fn get<'p>(&self, number: u8, path: &'p [u8]) -> &'p [u8] {
        let (start, end) = self.0.get(usize::from(number)).copied().unwrap_or_default();
        path.get(start as usize..end as usize).unwrap_or_default()
    }

    fn new(span: impl Fn(usize) -> Option<(usize, usize)>) -> Self {
        // A path has less than 4 GiB.
        Captures(std::array::from_fn(|group| {
            span(group).map_or((0, 0), |(start, end)| (start as u32, end as u32))
        }))
    }
}

/// A pattern does not compile, or exceeds its budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoAnswer;

/// What a pattern captures, where that can be decided; `None`: it does not match.
pub type Decided = Result<Option<Captures>, NoAnswer>;

/// Where a pattern has to match.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// The pattern may match anywhere in the value.
    Search,
    /// The pattern matches from the beginning of a path, in any case, with captures.
    Path,
}

/// Places where groups begin and end.
type Slots = [Option<NonMaxUsize>; 2 * GROUPS];

/// Compiled patterns by their text.
pub struct Patterns {
    searched: RefCell<Kept>,
    of_paths: RefCell<Kept>,
    shares: Shares,
}

impl Default for Patterns {
    fn default() -> Self {
        Patterns {
            searched: RefCell::new(Kept::new(Meaning::Search, MAX_KEPT_BYTES)),
            of_paths: RefCell::new(Kept::new(Meaning::Path, MAX_KEPT_BYTES)),
            shares: Shares::default(),
        }
    }
}

impl Patterns {
    /// Whether a pattern of the operator is found in `value`; `None` if that cannot be decided.
    pub fn is_match(&self, pattern: &[u8], value: &[u8]) -> Option<bool> {
        self.is_match_within(pattern, value, &mut Budget::of(u64::MAX))
    }

    /// Whether a pattern of a user is found in `value`; `None` if that cannot be decided within the budget.
    pub fn is_match_within(
        &self,
        pattern: &[u8],
        value: &[u8],
        budget: &mut Budget,
    ) -> Option<bool> {
        if value.len() > MAX_VALUE_BYTES {
            return None;
        }
        let mut kept = self.searched.try_borrow_mut().ok()?;
        let (compiled, scratch) = kept.get(pattern, budget)?;
        budget.spend(TRY_STEPS + compiled.weight.saturating_mul(value.len() as u64))?;
        match &compiled.engine {
            Engine::Backtracking(program) => run(program, value, false, scratch, budget),
            engine => Some(scratch.search(engine, &Input::new(value), &mut [])),
        }
    }

    /// The captures of a pattern of a user that is found in `value`, which may be as long as a header line.
    fn search_captures(&self, pattern: &[u8], value: &[u8], budget: &mut Budget) -> Decided {
        let mut kept = self.searched.try_borrow_mut().map_err(|_| NoAnswer)?;
        let (compiled, scratch) = kept.get(pattern, budget).ok_or(NoAnswer)?;
        captures(compiled, value, Anchored::No, scratch, budget).ok_or(NoAnswer)
    }

    /// These patterns for a namespace, which has its share of the worker's time.
    pub fn of<'p>(&'p self, namespace: &'p [u8]) -> NamespacePatterns<'p> {
        NamespacePatterns { patterns: self, namespace }
    }

    /// How many patterns of paths are compiled.
    #[cfg(test)]
    pub(crate) fn of_paths_kept(&self) -> usize {
        self.of_paths.borrow().len()
    }

    /// The captures of `pattern` in a path that begins with a match of it.
    pub fn captures(&self, pattern: &[u8], path: &[u8], budget: &mut Budget) -> Decided {
        let mut kept = self.of_paths.try_borrow_mut().map_err(|_| NoAnswer)?;
        let (compiled, scratch) = kept.get(pattern, budget).ok_or(NoAnswer)?;
        captures(compiled, path, Anchored::Yes, scratch, budget).ok_or(NoAnswer)
    }
}

/// The captures of a pattern; the outer `None` if they cannot be decided within the budget.
fn captures(
    compiled: &Compiled,
    path: &[u8],
    anchored: Anchored,
    scratch: &mut Scratch,
    budget: &mut Budget,
) -> Option<Option<Captures>> {
    let cost = TRY_STEPS + compiled.weight.saturating_mul(path.len() as u64);
    let counted = match &compiled.engine {
        Engine::Backtracking(program) => Some(program),
        Engine::Linear(_, _, program) if cost > budget.steps => program.as_ref(),
        _ => None,
    };
    if let Some(program) = counted {
        budget.spend(TRY_STEPS)?;
        let is_found = run(program, path, anchored == Anchored::Yes, scratch, budget)?;
        let memory = &scratch.backtracking;
        // The slots behind the groups' are the loops'.
        let span = |group| memory.group(group).filter(|_| group < program.groups);
        return Some(is_found.then(|| Captures::new(span)));
    }
    budget.spend(cost)?;
    let mut slots: Slots = [None; 2 * GROUPS];
    let input = Input::new(path).anchored(anchored);
    // An engine accepts no more slots than its pattern has.
    let own = slots.get_mut(..compiled.slots)?;
    let is_found = scratch.search(&compiled.engine, &input, own);
    let place = |slot: usize| Some(slots.get(slot)?.as_ref()?.get());
    let span = |group| Some((place(2 * group)?, place(2 * group + 1)?));
    Some(is_found.then(|| Captures::new(span)))
}

/// The patterns as one namespace uses them.
#[derive(Clone, Copy)]
pub struct NamespacePatterns<'p> {
    patterns: &'p Patterns,
    namespace: &'p [u8],
}

impl NamespacePatterns<'_> {
    /// As [`Patterns::is_match_within`], with a small budget where the namespace has exhausted its share.
    pub fn is_match(&self, pattern: &[u8], value: &[u8], budget: &mut Budget) -> Option<bool> {
        self.charged(budget, |budget| self.patterns.is_match_within(pattern, value, budget))
    }

    /// As [`Patterns::captures`], with a small budget where the namespace has exhausted its share.
    pub fn captures(&self, pattern: &[u8], path: &[u8], budget: &mut Budget) -> Decided {
        self.charged(budget, |budget| self.patterns.captures(pattern, path, budget))
    }

    /// The captures of a pattern that is found in a value, with a small budget where the namespace has exhausted its share.
    pub fn search(&self, pattern: &[u8], value: &[u8], budget: &mut Budget) -> Decided {
        self.charged(budget, |budget| self.patterns.search_captures(pattern, value, budget))
    }

    fn charged<T>(&self, budget: &mut Budget, run: impl FnOnce(&mut Budget) -> T) -> T {
        let shares = &self.patterns.shares;
        let payer = shares.payer(self.namespace);
        let before = budget.steps;
        let answer = if shares.has_more(payer) {
            run(budget)
        } else {
            let steps = budget.scarce.min(before);
            let mut little = Budget { steps, may_compile: false, ..*budget };
            let answer = run(&mut little);
            let spent = steps - little.steps;
            (budget.steps, budget.scarce) = (before - spent, budget.scarce - spent);
            answer
        };
        shares.charge(payer, before - budget.steps, &mut budget.bill);
        answer
    }
}

/// Runs a program and charges its steps; `None` if it needs too many.
fn run(
    program: &Program,
    value: &[u8],
    is_anchored: bool,
    scratch: &mut Scratch,
    budget: &mut Budget,
) -> Option<bool> {
    let limit = MAX_STEPS.min(budget.steps / STATE_STEPS);
    let mut left = limit;
    let found = backtrack::find(program, value, is_anchored, &mut scratch.backtracking, &mut left);
    budget.spend((limit - left) * STATE_STEPS)?;
    found.ok()
}

/// The longest value in which all of these patterns may be searched by the scripts of one request; `None`: one is refused.
pub fn longest_value<'p>(patterns: impl Iterator<Item = &'p str>) -> Option<u64> {
    let (mut fixed, mut of_byte) = (0, 0);
    for pattern in patterns {
        let compiled = compile(pattern, Meaning::Search, Allowance::unlimited()).ok()?;
        fixed += TRY_STEPS;
        // How far one of the counted ones comes depends on the value.
        of_byte += compiled.weight.max(STATE_STEPS);
    }
    Budget::OF_SCRIPTS.steps.saturating_sub(fixed).checked_div(of_byte)
}

/// Refuses a pattern for values that could not be served, with the reason.
pub fn pattern_is_valid(pattern: &str, allowance: Allowance) -> Result<(), Invalid> {
    compile(pattern, Meaning::Search, allowance).map(drop)
}

/// Refuses a pattern of paths that could not be served, with the reason.
pub fn path_is_valid(pattern: &str, allowance: Allowance) -> Result<(), Invalid> {
    compile(pattern, Meaning::Path, allowance).map(drop)
}

/// Refuses a pattern that is too long to be looked at.
pub fn check_length(pattern: &str) -> Result<(), Invalid> {
    match pattern.len() <= MAX_PATTERN_BYTES {
        true => Ok(()),
        false => Err(Invalid::new(format!(
            "pattern of {} bytes, at most {MAX_PATTERN_BYTES} are served: shorten it",
            pattern.len()
        ))),
    }
}
