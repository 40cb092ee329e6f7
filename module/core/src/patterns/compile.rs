//! From the text of a pattern to an engine that runs it.

use super::engine::Engine;
use super::program::{NoProgram, Program};
use super::text::scan;
use super::{Allowance, GROUPS, MAX_COMPILED_BYTES, Meaning, check_length, price};
use crate::text::invalid::Invalid;
use regex_automata::dfa::onepass;
use regex_automata::nfa::thompson::backtrack::BoundedBacktracker;
use regex_automata::nfa::thompson::pikevm::PikeVM;
use regex_automata::nfa::thompson::{self, NFA};
use regex_syntax::ast::Ast;
use regex_syntax::hir::{Hir, HirKind};

/// The highest price of a pattern, in nanoseconds.
const MAX_PRICE: u64 = 1_000_000;
/// One state of an automaton at one byte.
pub const STATE_STEPS: u64 = 8;
/// Beyond so many, a path of nginx's longest line could cost more than a request may.
const MANY_STATES: u64 = 32;
/// The deepest nesting of groups and classes.
const MAX_NESTING: u32 = 64;

/// A pattern that can be run.
pub struct Compiled {
    pub engine: Engine,
    /// Steps at one byte, at most; none for an engine that counts its own.
    pub weight: u64,
    /// What compiling it cost, in nanoseconds.
    pub price: u64,
    /// Slots of its groups, as far as templates can name them.
    pub slots: usize,
    pub bytes: usize,
}

/// It has letters, digits and `._/-` only: a pattern without being parsed.
pub fn is_plain(pattern: &str) -> bool {
    pattern.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._/-".contains(&byte))
}

/// The text, in lower case, that every path begins with that a pattern matches.
pub fn literal_prefix(pattern: &str) -> Vec<u8> {
    let mut literal = match is_plain(pattern) {
        true => leading_text(pattern).as_bytes().to_vec(),
        false => match read(pattern, Meaning::Search) {
            Ok(Read::Automaton(hir, _)) => leading_literal(&hir).to_vec(),
            Ok(Read::Extended(..)) | Err(_) => leading_text(pattern).as_bytes().to_vec(),
        },
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

/// The letters that a pattern begins with, which every match begins with too, even for a pattern that is refused.
pub fn leading_text(pattern: &str) -> &str {
    if pattern.contains('|') && scan(pattern).has_alternatives {
        return "";
    }
    let end = plain_start(pattern).len();
    // What is repeated may be absent.
    let is_repeated = pattern.as_bytes().get(end).is_some_and(|byte| b"*?+{".contains(byte));
    pattern.get(..end - usize::from(is_repeated && end > 0)).unwrap_or_default()
}

/// The first letters of a text that mean themselves as a pattern, too.
pub fn plain_start(text: &str) -> &str {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/_-".contains(&byte);
    let end = text.bytes().position(|byte| !is_plain(byte)).unwrap_or(text.len());
    text.get(..end).unwrap_or_default()
}

/// A pattern that was read, and its price.
enum Read {
    Automaton(Hir, u64),
    /// `regex-syntax` does not know it; with the reason.
    Extended(u64, String),
}

/// Parses a pattern and refuses one that is too expensive before anything is built.
fn read(pattern: &str, meaning: Meaning) -> Result<Read, Invalid> {
    let extended = |reason| {
        let price = price::of_extended(pattern);
        check_price(price)?;
        Ok(Read::Extended(price, reason))
    };
    let ast = match parse(pattern)? {
        Ok(ast) => ast,
        Err(reason) => return extended(reason),
    };
    let price = price::of_automaton(pattern, &ast);
    check_price(price)?;
    // Patterns match bytes, as PCRE's without its UTF flag; a class of other letters needs characters.
    let hir = translate(pattern, &ast, meaning, false)
        .or_else(|_| translate(pattern, &ast, meaning, true));
    match hir {
        Ok(hir) => Ok(Read::Automaton(hir, price)),
        Err(error) => extended(last_line(&error.into())),
    }
}

/// The syntax tree of a pattern; or why it is no pattern of an automaton.
fn parse(pattern: &str) -> Result<Result<Ast, String>, Invalid> {
    let scanned = scan(pattern);
    if let Some(refusal) = scanned.refusal {
        return Err(refusal);
    }
    if scanned.is_possessive {
        // `regex-syntax` reads `a++` as `(?:a+)+`.
        return Ok(Err("repetition that gives nothing back is not supported".into()));
    }
    let mut parser = regex_syntax::ast::parse::ParserBuilder::new();
    let parsed = parser.nest_limit(MAX_NESTING).build().parse(pattern);
    Ok(parsed.map_err(|error| last_line(&error.into())))
}

/// What compiling a pattern costs, in nanoseconds (see [`price`]); the reason why it is not even tried.
pub fn price_of(pattern: &str) -> Result<u64, Invalid> {
    check_length(pattern)?;
    let price = match parse(pattern)? {
        Ok(ast) => price::of_automaton(pattern, &ast),
        Err(_) => price::of_extended(pattern),
    };
    check_price(price).map(|()| price)
}

/// What reading a pattern costs, also where that shows that it is not served.
pub fn price_of_reading(pattern: &str) -> u64 {
    price::of_extended(pattern)
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
             characters beyond ASCII, such as \\p{{L}}, less look-around, and repeat less often",
            price / 1_000,
            MAX_PRICE / 1_000
        ))),
    }
}

/// Compiles a pattern; the reason why it is not served.
pub fn compile(pattern: &str, meaning: Meaning, allowance: Allowance) -> Result<Compiled, Invalid> {
    check_length(pattern)?;
    let read = read(pattern, meaning)?;
    let (Read::Automaton(_, price) | Read::Extended(price, _)) = read;
    if price > allowance.left() {
        return Err(Invalid::new(format!(
            "pattern takes about {} microseconds to compile, and {} are left: use fewer or simpler ones",
            price / 1_000,
            allowance.left() / 1_000
        )));
    }
    match read {
        Read::Automaton(hir, price) => linear(pattern, &hir, meaning, price),
        Read::Extended(price, reason) => backtracking(pattern, meaning, price, &reason),
    }
}

fn linear(pattern: &str, hir: &Hir, meaning: Meaning, price: u64) -> Result<Compiled, Invalid> {
    let too_large = || Invalid::new("pattern is too large when compiled: repeat less often");
    let limits = thompson::Config::new().utf8(false).nfa_size_limit(Some(MAX_COMPILED_BYTES));
    let nfa = NFA::compiler().configure(limits).build_from_hir(hir).map_err(|_| too_large())?;
    let states = nfa.states().len() as u64;
    let weight = states * STATE_STEPS;
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
            price,
            slots,
            bytes,
        });
    }
    let backtracker = BoundedBacktracker::new_from_nfa(nfa.clone()).map_err(|_| too_large())?;
    let pike = PikeVM::new_from_nfa(nfa).map_err(|_| too_large())?;
    let program = counted(pattern, meaning, states);
    let bytes = bytes + program.as_ref().map_or(0, Program::bytes);
    let engine = Engine::Linear(backtracker, pike, program);
    Ok(Compiled { engine, weight, price, slots, bytes })
}

/// The program of a path's pattern that has many states, where both parsers surely read it alike: without flags.
fn counted(pattern: &str, meaning: Meaning, states: u64) -> Option<Program> {
    let is_alike = pattern.split("(?").skip(1).all(|rest| rest.starts_with(':'));
    if meaning != Meaning::Path || states < MANY_STATES || !is_alike {
        return None;
    }
    Program::new(pattern, true).ok()
}

fn backtracking(
    pattern: &str,
    meaning: Meaning,
    price: u64,
    reason: &str,
) -> Result<Compiled, Invalid> {
    if has_large_group_number(pattern) {
        return Err(Invalid::new("pattern names a group beyond 999: name one that it has"));
    }
    let program = Program::new(pattern, meaning == Meaning::Path).map_err(|error| match error {
        NoProgram::Unread(other) => {
            // The first reader does not know look-around at all.
            let why = if reason.ends_with("not supported") { &*other } else { reason };
            Invalid::new(format!("pattern is no regular expression: {why}"))
        }
        NoProgram::Refused(why) => why,
    })?;
    Ok(Compiled {
        bytes: program.bytes(),
        slots: 2 * GROUPS,
        // Its steps are counted while it runs.
        weight: 0,
        price,
        engine: Engine::Backtracking(program),
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
