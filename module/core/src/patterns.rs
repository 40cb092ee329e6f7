//! Regular expressions that users write, with bounded work.
//!
//! Shape:   compiled when first needed and kept, a worker each: for paths and for what is searched in other values.
//! Units:   work in steps of about a nanosecond, eight for one state of an automaton at one byte; compiling in
//!          nanoseconds, told from the pattern before it is compiled ([`price`]).
//! Errors:  a pattern that is too dear or cannot be compiled, or that exceeds its budget on a value, gives no answer.
//! Source:  design.md §5 "Regexes": automata, whose time is linear; look-around and back-references on
//!          `fancy-regex` with a limit. security.md §4 for the lengths.
//! Rejected: lazily built automata, which are faster on long texts and take 10 KiB and more for each pattern.

mod price;

use crate::model::Invalid;
use regex_automata::dfa::onepass;
use regex_automata::nfa::thompson::backtrack::{self, BoundedBacktracker};
use regex_automata::nfa::thompson::pikevm::{self, PikeVM};
use regex_automata::nfa::thompson::{self, NFA};
use regex_automata::util::primitives::NonMaxUsize;
use regex_automata::{Anchored, Input};
use regex_syntax::ast::Ast;
use regex_syntax::hir::{Hir, HirKind};
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

/// Longest pattern (security.md §4).
pub const MAX_PATTERN_BYTES: usize = 1_024;
/// The highest price of a pattern, in nanoseconds.
const MAX_PRICE: u64 = 1_000_000;
/// Longest value a pattern is searched in, and longest path a backtracking one is tried on.
const MAX_VALUE_BYTES: usize = 1_024;
/// Steps of a backtracking pattern.
const MAX_STEPS: usize = 10_000;
/// A compiled pattern.
const MAX_COMPILED_BYTES: usize = 64 * 1_024;
/// Compiled patterns of a worker, of each kind: some five thousand of those that paths have.
const MAX_KEPT_BYTES: usize = 16 * 1_024 * 1_024;
/// What a kept pattern takes beside itself: its places in the map and in the queue.
const KEPT_OVERHEAD: usize = 256;
/// A try, however short: finding the compiled form and setting an engine up.
const TRY_STEPS: u64 = 100;
/// Compiling a pattern, and what each of its states adds.
const COMPILE_STEPS: u64 = 20_000;
const COMPILE_STEPS_OF_STATE: u64 = 500;
/// One state of an automaton at one byte.
const STATE_STEPS: u64 = 8;
/// Of a backtracking pattern, whose steps read any number of bytes.
const BACKTRACKING_WEIGHT: u64 = 1_000;
/// Brackets within brackets.
const MAX_NESTING: u32 = 64;
/// The groups a template can name, and the whole.
const GROUPS: usize = 10;

/// The work that one request may ask for.
#[derive(Clone, Copy, Debug)]
pub struct Budget(u64);

impl Budget {
    /// What the paths of one request may cost. Ten thousand patterns of twenty states without a common beginning
    /// on a path of 80 bytes, all of which read it to its end, are as much; so are two hundred that were not
    /// compiled yet.
    pub const OF_PATH: Budget = Budget(16_000_000);

    /// What the header patterns of one request, or the subject of one certificate, may cost.
    pub const OF_VALUES: Budget = Budget(4_000_000);

    fn spend(&mut self, steps: u64) -> Option<()> {
        self.0 = self.0.checked_sub(steps)?;
        Some(())
    }
}

/// What a pattern's groups matched, as places in the path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Captures([(u32, u32); GROUPS]);

impl Captures {
    /// What group `number` matched in `path`, that the pattern was tried on; empty if it matched nothing.
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

/// A pattern could not be compiled or had too much work to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoAnswer;

/// How a pattern is meant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// Somewhere in the value.
    Search,
    /// From the beginning of a path, upper and lower case alike, with captures.
    Path,
}

struct Compiled {
    engine: Engine,
    /// Steps at one byte, at most.
    weight: u64,
    /// Steps that compiling it took, about.
    compile_steps: u64,
    /// Slots of its groups, as far as templates can name them.
    slots: usize,
    bytes: usize,
}

enum Engine {
    /// Of one way at each byte, anchored.
    OnePass(Box<onepass::DFA>),
    /// The first notes where it was, as long as there is room for that.
    Linear(BoundedBacktracker, PikeVM),
    Backtracking(fancy_regex::Regex),
}

/// Places where groups begin and end.
type Slots = [Option<NonMaxUsize>; 2 * GROUPS];

/// Compiled patterns by their text.
pub struct Patterns {
    searched: RefCell<Kept>,
    of_paths: RefCell<Kept>,
}

impl Default for Patterns {
    fn default() -> Self {
        Patterns {
            searched: RefCell::new(Kept::new(Meaning::Search, MAX_KEPT_BYTES)),
            of_paths: RefCell::new(Kept::new(Meaning::Path, MAX_KEPT_BYTES)),
        }
    }
}

impl Patterns {
    /// Whether a pattern of the operator is found in `value`; `None` if it cannot be told.
    pub fn is_match(&self, pattern: &[u8], value: &[u8]) -> Option<bool> {
        self.is_match_within(pattern, value, &mut Budget(u64::MAX))
    }

    /// Whether a pattern of a user is found in `value`; `None` if it cannot be told within the budget.
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
        let (entry, scratch) = kept.get(pattern, budget)?;
        let compiled = entry.compiled.as_ref()?;
        budget.spend(TRY_STEPS + compiled.weight.saturating_mul(value.len() as u64))?;
        match &compiled.engine {
            Engine::Backtracking(regex) => regex.is_match(value).ok(),
            engine => Some(scratch.search(engine, &Input::new(value), &mut [])),
        }
    }

    /// How many patterns of paths are compiled.
    #[cfg(test)]
    pub(crate) fn of_paths_kept(&self) -> usize {
        self.of_paths.borrow().entries.len()
    }

    /// What the groups of `pattern` match in a path that begins with a match of it.
    pub fn captures(
        &self,
        pattern: &[u8],
        path: &[u8],
        budget: &mut Budget,
    ) -> Result<Option<Captures>, NoAnswer> {
        self.answer(pattern, path, budget).ok_or(NoAnswer)
    }

    fn answer(&self, pattern: &[u8], path: &[u8], budget: &mut Budget) -> Option<Option<Captures>> {
        let mut kept = self.of_paths.try_borrow_mut().ok()?;
        let (entry, scratch) = kept.get(pattern, budget)?;
        let compiled = entry.compiled.as_ref()?;
        budget.spend(TRY_STEPS + compiled.weight.saturating_mul(path.len() as u64))?;
        match &compiled.engine {
            Engine::Backtracking(_) if path.len() > MAX_VALUE_BYTES => None,
            Engine::Backtracking(regex) => {
                let found = regex.captures(path).ok()?;
                let span = |found: &fancy_regex::Captures<'_, [u8]>, group| {
                    found.get(group).map(|found| (found.start(), found.end()))
                };
                Some(found.map(|found| Captures::new(|group| span(&found, group))))
            }
            engine => {
                let mut slots: Slots = [None; 2 * GROUPS];
                let input = Input::new(path).anchored(Anchored::Yes);
                // An engine takes no more slots than its pattern has.
                let own = slots.get_mut(..compiled.slots)?;
                let is_found = scratch.search(engine, &input, own);
                let place = |slot: usize| Some(slots.get(slot)?.as_ref()?.get());
                let span = |group| Some((place(2 * group)?, place(2 * group + 1)?));
                Some(is_found.then(|| Captures::new(span)))
            }
        }
    }
}

/// Compiled patterns, the oldest of which make room: those that were asked for since they came stay once more.
struct Kept {
    meaning: Meaning,
    max_bytes: usize,
    entries: HashMap<Rc<[u8]>, Entry>,
    /// The keys of all entries, the next to go first.
    queue: VecDeque<Rc<[u8]>>,
    bytes: usize,
    scratch: Scratch,
}

struct Entry {
    compiled: Option<Compiled>,
    bytes: usize,
    was_asked_for: bool,
}

impl Kept {
    /// Old entries that may stay once more when a new one comes: bounds its cost.
    const MAX_SPARED: usize = 8;

    fn new(meaning: Meaning, max_bytes: usize) -> Self {
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
    fn get(&mut self, pattern: &[u8], budget: &mut Budget) -> Option<(&Entry, &mut Scratch)> {
        if !self.entries.contains_key(pattern) {
            budget.spend(COMPILE_STEPS)?;
            let text = str::from_utf8(pattern).ok();
            let compiled = text.and_then(|text| compile(text, self.meaning).ok());
            if let Some(compiled) = &compiled {
                // What is over the budget stays compiled for the next request.
                budget.0 = budget.0.saturating_sub(compiled.compile_steps);
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

/// Memory of the engines while they run: one for all patterns, since each would keep its own otherwise.
#[derive(Default)]
struct Scratch {
    one_pass: Option<onepass::Cache>,
    backtrack: Option<backtrack::Cache>,
    pike: Option<pikevm::Cache>,
}

impl Scratch {
    fn search(
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
            Engine::Linear(engine, _) if input.haystack().len() <= engine.max_haystack_len() => {
                let cache = self.backtrack.get_or_insert_with(|| engine.create_cache());
                cache.reset(engine);
                engine.try_search_slots(cache, input, slots).is_ok_and(|found| found.is_some())
            }
            Engine::Linear(_, engine) => {
                let cache = self.pike.get_or_insert_with(|| engine.create_cache());
                cache.reset(engine);
                engine.search_slots(cache, input, slots).is_some()
            }
            // Has memory of its own, and an answer that may be missing.
            Engine::Backtracking(_) => false,
        }
    }
}

/// Refuses a pattern for values that could not be served, with the reason.
pub fn pattern_is_valid(pattern: &str) -> Result<(), Invalid> {
    compile(pattern, Meaning::Search).map(drop)
}

/// Refuses a pattern of paths that could not be served, with the reason.
pub fn path_is_valid(pattern: &str) -> Result<(), Invalid> {
    compile(pattern, Meaning::Path).map(drop)
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

/// What every path that a pattern takes begins with, in lower case.
pub fn literal_prefix(pattern: &str) -> Vec<u8> {
    let mut literal = match parse(pattern, Meaning::Search) {
        Ok((hir, _)) => leading_literal(&hir).to_vec(),
        Err(_) => leading_text(pattern).to_vec(),
    };
    literal.make_ascii_lowercase();
    literal
}

fn leading_literal(hir: &Hir) -> &[u8] {
    match hir.kind() {
        HirKind::Literal(literal) => &literal.0,
        HirKind::Concat(parts) => parts.first().map_or(&[], leading_literal),
        HirKind::Capture(group) => leading_literal(&group.sub),
        _ => &[],
    }
}

/// As [`leading_literal`], of a pattern that only `fancy-regex` reads: with no more than what is surely a literal.
fn leading_text(pattern: &str) -> &[u8] {
    let pattern = pattern.as_bytes();
    if pattern.contains(&b'|') {
        return &[];
    }
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/_-".contains(byte);
    let end = pattern.iter().position(|byte| !is_plain(byte)).unwrap_or(pattern.len());
    let is_repeated = pattern.get(end).is_some_and(|byte| b"*?+{".contains(byte));
    pattern.get(..end - usize::from(is_repeated && end > 0)).unwrap_or_default()
}

/// Why a pattern is not read as an automaton.
enum Unread {
    /// It is too dear to be compiled in any way.
    TooDear(Invalid),
    /// `regex-syntax` does not know it.
    Unknown(Box<regex_syntax::Error>),
}

/// The pattern, and its price.
fn parse(pattern: &str, meaning: Meaning) -> Result<(Hir, u64), Unread> {
    let mut parser = regex_syntax::ast::parse::ParserBuilder::new();
    let parsed = parser.nest_limit(MAX_NESTING).build().parse(pattern);
    let ast = parsed.map_err(|error| Unread::Unknown(Box::new(error.into())))?;
    // Before anything is built of it, which takes most of the time.
    let price = price::of_classes(&ast).saturating_add(price::OF_BYTE * pattern.len() as u64);
    check_price(price).map_err(Unread::TooDear)?;
    // Bytes, as PCRE takes them without its UTF flag; a class of other letters needs characters.
    translate(pattern, &ast, meaning, false)
        .or_else(|_| translate(pattern, &ast, meaning, true))
        .map(|hir| (hir, price))
        .map_err(|error| Unread::Unknown(Box::new(error.into())))
}

fn translate(
    pattern: &str,
    ast: &Ast,
    meaning: Meaning,
    is_unicode: bool,
) -> Result<Hir, regex_syntax::hir::Error> {
    let mut translator = regex_syntax::hir::translate::TranslatorBuilder::new();
    let translator = translator.unicode(is_unicode).utf8(false);
    translator.case_insensitive(meaning == Meaning::Path).build().translate(pattern, ast)
}

fn check_price(price: u64) -> Result<(), Invalid> {
    match price {
        0..=MAX_PRICE => Ok(()),
        _ => Err(Invalid::new(format!(
            "pattern takes about {} microseconds to compile, at most {} are served: use fewer or simpler classes of \
             characters beyond ASCII, such as \\p{{L}}, and less look-around",
            price / 1_000,
            MAX_PRICE / 1_000
        ))),
    }
}

fn compile(pattern: &str, meaning: Meaning) -> Result<Compiled, Invalid> {
    check_length(pattern)?;
    match parse(pattern, meaning) {
        Ok((hir, price)) => linear(&hir, meaning, price),
        Err(Unread::TooDear(why)) => Err(why),
        Err(Unread::Unknown(error)) => backtracking(pattern, meaning, &error),
    }
}

fn linear(hir: &Hir, meaning: Meaning, price: u64) -> Result<Compiled, Invalid> {
    let too_large = || Invalid::new("pattern is too large when compiled: repeat less often");
    let limits = thompson::Config::new().utf8(false).nfa_size_limit(Some(MAX_COMPILED_BYTES));
    let nfa = NFA::compiler().configure(limits).build_from_hir(hir).map_err(|_| too_large())?;
    let states = nfa.states().len() as u64;
    let (weight, compile_steps) = (states * STATE_STEPS, price + states * COMPILE_STEPS_OF_STATE);
    let slots = nfa.group_info().slot_len().min(2 * GROUPS);
    let bytes = nfa.memory_usage();
    if meaning == Meaning::Path
        && let limits = onepass::Config::new().size_limit(Some(MAX_COMPILED_BYTES / 4))
        && let Ok(dfa) = onepass::Builder::new().configure(limits).build_from_nfa(nfa.clone())
    {
        let bytes = bytes + dfa.memory_usage();
        return Ok(Compiled {
            engine: Engine::OnePass(Box::new(dfa)),
            weight: STATE_STEPS,
            compile_steps,
            slots,
            bytes,
        });
    }
    let backtracker = BoundedBacktracker::new_from_nfa(nfa.clone()).map_err(|_| too_large())?;
    let pike = PikeVM::new_from_nfa(nfa).map_err(|_| too_large())?;
    let engine = Engine::Linear(backtracker, pike);
    Ok(Compiled { engine, weight, compile_steps, slots, bytes })
}

fn backtracking(
    pattern: &str,
    meaning: Meaning,
    error: &regex_syntax::Error,
) -> Result<Compiled, Invalid> {
    if has_large_group_number(pattern) {
        return Err(Invalid::new("pattern names a group beyond 999: name one that it has"));
    }
    check_price(price::of_text(pattern))?;
    let build = |pattern: &str, mode| {
        fancy_regex::RegexBuilder::new(pattern)
            .bytes_mode(mode)
            .case_insensitive(meaning == Meaning::Path)
            .backtrack_limit(MAX_STEPS)
            .delegate_size_limit(MAX_COMPILED_BYTES)
            .delegate_dfa_size_limit(MAX_COMPILED_BYTES)
            .max_prog_size(MAX_COMPILED_BYTES / 16)
            .build()
    };
    let of_bytes_or_characters = |pattern: &str| {
        build(pattern, fancy_regex::BytesMode::Ascii)
            .or_else(|_| build(pattern, fancy_regex::BytesMode::UnicodeBytes))
    };
    let refused =
        |_| Invalid::new(format!("pattern is no regular expression: {}", last_line(error)));
    let mut regex = of_bytes_or_characters(pattern).map_err(refused)?;
    if meaning == Meaning::Path {
        // It stands for itself, so that what is around it closes no group of it.
        regex = of_bytes_or_characters(&format!(r"\A(?:{pattern})")).map_err(refused)?;
    }
    Ok(Compiled {
        engine: Engine::Backtracking(regex),
        weight: BACKTRACKING_WEIGHT,
        compile_steps: MAX_PRICE,
        slots: 2 * GROUPS,
        bytes: MAX_COMPILED_BYTES,
    })
}

/// Whether it may name a group (`\1000`, `\g<1000>`, `(?1000)`, `(?(1000)`) by more than three digits. `fancy-regex`
/// makes room for a group of any number before it looks whether there is one, and that can end the process.
fn has_large_group_number(pattern: &str) -> bool {
    let bytes = pattern.as_bytes();
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let begins = |at: &usize| is_digit(*at) && (*at == 0 || !is_digit(at - 1));
    (0..bytes.len()).filter(begins).any(|at| {
        let before = bytes.get(..at).unwrap_or_default();
        let before = before.strip_suffix(b"+").or(before.strip_suffix(b"-")).unwrap_or(before);
        let named = [&b"\\"[..], b"\\g", b"\\k", b"<", b"'", b"{", b"(?", b"(?("];
        (at..at + 4).all(is_digit) && named.iter().any(|start| before.ends_with(start))
    })
}

/// The reason; the lines before it show the pattern.
fn last_line(error: &regex_syntax::Error) -> String {
    let text = error.to_string();
    text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn found(pattern: &str, value: &[u8]) -> Option<bool> {
        Patterns::default().is_match(pattern.as_bytes(), value)
    }

    #[test]
    fn patterns_are_searched_for_in_bytes() {
        assert_eq!(found("^(beta|gamma)$", b"gamma"), Some(true));
        assert_eq!(found("^(beta|gamma)$", b"gammas"), Some(false));
        assert_eq!(found("et", b"beta"), Some(true));
        assert_eq!(found("^caf.$", b"caf\xe9"), Some(true));
        assert_eq!(found("^[äö]$", "ö".as_bytes()), Some(true));
    }

    #[test]
    fn the_patterns_of_a_user_have_a_budget() {
        let (patterns, mut budget) = (Patterns::default(), Budget::OF_VALUES);
        let value = [b'1'; MAX_VALUE_BYTES];
        let mut tell = || patterns.is_match_within(b"(1?){50}2", &value, &mut budget);
        assert_eq!(tell(), Some(false));
        assert!((0..1_000).any(|_| tell().is_none()), "it may be asked for ever");
    }

    #[test]
    fn look_around_and_back_references_are_served() {
        assert_eq!(found("^(?!old)", b"old-1"), Some(false));
        assert_eq!(found("^(?!old)", b"new-1"), Some(true));
        assert_eq!(found(r"^(\w+)-\1$", b"ab-ab"), Some(true));
        assert_eq!(found(r"^(\w+)-\1$", b"ab-ac"), Some(false));
    }

    #[test]
    fn what_cannot_be_compiled_has_no_answer_and_a_reason() {
        for pattern in ["(", "[a", "*a", "a{9999}{9999}", r"\p{nothing}", &"a".repeat(1_025)] {
            assert_eq!(found(pattern, b"a"), None, "{pattern:.20}");
            assert!(!pattern_is_valid(pattern).unwrap_err().to_string().is_empty());
        }
        assert_eq!(Patterns::default().is_match(b"\xff", b"a"), None);
        pattern_is_valid("^(?!old)").unwrap();
    }

    #[test]
    fn a_group_that_cannot_be_there_takes_no_memory() {
        for group in [
            "\\g88888888888888881",
            "\\g<99999999999>",
            "\\g{99999999999}",
            "\\g'+99999999999'",
            "\\99999999999",
            "\\k<99999999999>",
            "\\k<-99999999999>",
            "(?99999999999)",
            "(?(99999999999)a|b)",
            "\\g-99999999999",
        ] {
            pattern_is_valid(&format!("(?=a){group}")).unwrap_err();
            path_is_valid(&format!("/(a){group}")).unwrap_err();
        }
        path_is_valid("/(?!old)(a)\\1/20240101-20250101").unwrap();
    }

    #[test]
    fn a_dear_pattern_is_refused_before_it_is_compiled() {
        for dear in [
            format!("/[{}]x", r"\pL\PL".repeat(165)),
            format!("/(?u)[{}]x", r"\pL\PL".repeat(165)),
            format!("/(?=a)[{}]x", r"\pL\PL".repeat(165)),
            "/(?=a)[é-\u{10fff0}]x".to_owned(),
            r"/(?=a)(?u:\w)\1x".to_owned(),
            format!("/{}x", "(?=[a-z])".repeat(100)),
        ] {
            let refused = path_is_valid(&dear).unwrap_err().to_string();
            assert!(refused.contains("to compile, at most"), "{dear:.40}: {refused}");
            assert!(pattern_is_valid(&dear).unwrap_err().to_string().contains("to compile"));
        }
        for fine in [r"/\p{L}+", r"/(?!old)\w+", "/(?=ä)(.*)", "/[äöü]", r"/(?i)shop(/|$)(.*)"]
        {
            path_is_valid(fine).unwrap();
        }
    }

    #[test]
    fn captures_of_a_long_path_are_right_and_charged() {
        let locales: Vec<_> = (0..60).map(|n| format!("l{n}")).collect();
        let few = format!("/({})(/|$)(.*)", locales.join("|"));
        for pattern in [few.as_str(), "/(?:a|ab)(?:c|bcd)(.*)", "/(?:a|ab)*", "/(a)(b)?(.*)"] {
            for length in [0, 10, 1_000, 3_000, 5_000, 7_900, 8_100, 32_000] {
                let path = format!("/l59/{}", "ab".repeat(length / 2));
                let mut budget = Budget(u64::MAX);
                let patterns = Patterns::default();
                let found = patterns.captures(pattern.as_bytes(), path.as_bytes(), &mut budget);
                let other = regex::bytes::Regex::new(&format!("(?i-u)^(?:{pattern})")).unwrap();
                let other = other.captures(path.as_bytes());
                let found = found.unwrap();
                assert_eq!(found.is_some(), other.is_some(), "{pattern}");
                if let (Some(found), Some(other)) = (found, other) {
                    for group in 0..10 {
                        let expected = other.get(group).map_or(&b""[..], |group| group.as_bytes());
                        assert_eq!(found.get(group as u8, path.as_bytes()), expected, "{pattern}");
                    }
                }
            }
        }
        let mut budget = Budget(u64::MAX);
        let path = format!("/{}c", "a".repeat(7_900));
        let many = b"/(?:a?){150}b";
        assert_eq!(Patterns::default().captures(many, path.as_bytes(), &mut budget), Ok(None));
        assert!(u64::MAX - budget.0 > 16_000_000, "300 states took 19 milliseconds");
    }

    #[test]
    fn an_exhausted_budget_has_no_answer() {
        let value = "a".repeat(1_000) + "!";
        assert_eq!(found(r"^(?=a)(a|a)*b\1$", value.as_bytes()), None);
        assert_eq!(found("b", &[b'a'; 1_025]), None);
        assert_eq!(found("(?=b)b", &[b'a'; 1_025]), None);
    }

    #[test]
    fn a_worker_keeps_bounded_bytes_and_what_is_asked_for() {
        let mut kept = Kept::new(Meaning::Path, 100_000);
        let mut often = 0;
        for n in 0..1_000 {
            let mut budget = Budget::OF_PATH;
            kept.get(format!("/a{n}/(.*)").as_bytes(), &mut budget).unwrap();
            let before = budget.0;
            kept.get(b"/often", &mut budget).unwrap();
            often += usize::from(budget.0 < before);
            assert!(kept.bytes <= kept.max_bytes);
            assert_eq!(kept.entries.len(), kept.queue.len());
            assert_eq!(kept.entries.values().map(|entry| entry.bytes).sum::<usize>(), kept.bytes);
        }
        assert!(kept.entries.len() > 10);
        assert_eq!(often, 1, "compiled once");
    }

    #[test]
    fn a_budget_is_of_all_patterns_and_counts_bytes_and_compiling() {
        let patterns = Patterns::default();
        let tried = |path: &[u8]| {
            let mut budget = Budget::OF_PATH;
            (0..10_000)
                .take_while(|n| {
                    let pattern = format!("/(?:[a-y]|[b-z])*{}(x|y)?x", n % 100);
                    patterns.captures(pattern.as_bytes(), path, &mut budget) == Ok(None)
                })
                .count()
        };
        assert!(tried(b"/abc") > 100);
        assert_eq!(tried(b"/abc"), 10_000);
        assert!(tried(&[b'a'; 60_000]) < 100);
    }

    /// Not a test: `cargo test -p oxigress-core --release -- --ignored --nocapture the_worst`.
    #[test]
    #[ignore = "prints times"]
    fn the_worst_patterns_known() {
        // Bits that do not repeat, so that each byte is another state of the automaton.
        let bit = |n: u32| b'a' + (n.wrapping_mul(n).wrapping_mul(0x9e37_79b9) >> 31) as u8;
        let linear: Vec<_> = (1..MAX_VALUE_BYTES as u32).map(bit).chain([b'c']).collect();
        let backtracked = vec![b'a'; MAX_VALUE_BYTES];
        for (pattern, value) in [
            ("[ab]*a[ab]{40}[cd]x", &linear),
            ("a[ab]{60}[cd][^x]", &linear),
            ("(a|b)*a(a|b){60}c", &linear),
            ("(?i)(a*)*b", &linear),
            ("(?:a?){300}b", &linear),
            ("[ab]*a[ab]{90}c.*[ab]*a[ab]{90}c", &linear),
            (r"^(a+)+\1b", &backtracked),
            (r"(?=(a|aa)*b)a*b", &backtracked),
            (r"^(?:(?!b).)*b", &backtracked),
            (r"(?:a(?=.*b))*c", &backtracked),
            (r"(.*)(.*)(.*)\1b", &backtracked),
        ] {
            let patterns = Patterns::default();
            let first = patterns.is_match(pattern.as_bytes(), value);
            let start = Instant::now();
            let answer = patterns.is_match(pattern.as_bytes(), value);
            let took: Duration = start.elapsed();
            println!("{pattern}: {first:?} {answer:?} in {took:?}");
        }
    }
}
