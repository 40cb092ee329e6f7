//! The cost of compiling a pattern, estimated from its syntax tree before it is compiled.
//!
//! Units:   nanoseconds of CPU, as an upper bound on a machine of 2020 or later. The price depends on the pattern alone,
//!          so every replica and every restart decides the same.
//! Source:  the parser and the compiler of automata are linear in the text, but for classes of characters beyond ASCII:
//!          each has hundreds of ranges, and regardless of case each code point of a range is looked up.

use regex_syntax::ast::{
    Ast, ClassAsciiKind, ClassBracketed, ClassPerl, ClassSet, ClassSetItem, ClassUnicode,
    ClassUnicodeKind, Flag, FlagsItemKind,
};

/// Any pattern, also one that turns out to be none.
pub const OF_PATTERN: u64 = 20_000;
/// Parsing a byte of text, and building what it becomes.
const OF_BYTE: u64 = 300;
/// A named class of characters, such as `\p{L}`.
const OF_NAMED_CLASS: u64 = 400_000;
/// A class whose case folding walks through all of Unicode; it exceeds every budget.
const OF_WIDE_CLASS: u64 = 5_000_000;
/// `\w` as an automaton over UTF-8.
const OF_PERL_CLASS: u64 = 150_000;
/// Any other class as an automaton over UTF-8.
const OF_CLASS: u64 = 5_000;
/// A code point of a range.
const OF_CODE_POINT: u64 = 10;

/// A state of an automaton.
const OF_STATE: u64 = 300;

/// The price of a pattern with look-around or back-references, from its text: its classes have bytes only, and the
/// length of its program is bounded.
pub fn of_extended(pattern: &str) -> u64 {
    OF_PATTERN + OF_BYTE * pattern.len() as u64
}

/// The price of a pattern that becomes an automaton.
pub fn of_automaton(pattern: &str, ast: &Ast) -> u64 {
    let text = OF_PATTERN + OF_BYTE * pattern.len() as u64;
    text.saturating_add(of_classes(ast)).saturating_add(OF_STATE.saturating_mul(states(ast)))
}

/// The states that a pattern becomes, about: repeated parts are written out.
fn states(ast: &Ast) -> u64 {
    use regex_syntax::ast::{RepetitionKind, RepetitionRange};
    let of_all = |all: &[Ast]| all.iter().map(states).fold(1, u64::saturating_add);
    match ast {
        Ast::Repetition(repetition) => {
            let times = match &repetition.op.kind {
                RepetitionKind::Range(RepetitionRange::Bounded(least, most)) => *least.max(most),
                RepetitionKind::Range(
                    RepetitionRange::Exactly(times) | RepetitionRange::AtLeast(times),
                ) => times.saturating_add(1),
                _ => 1,
            };
            (states(&repetition.ast) + 1).saturating_mul(u64::from(times))
        }
        Ast::Group(group) => states(&group.ast).saturating_add(2),
        Ast::Alternation(all) => of_all(&all.asts),
        Ast::Concat(all) => of_all(&all.asts),
        _ => 1,
    }
}

/// The price of the classes in `ast`.
fn of_classes(ast: &Ast) -> u64 {
    // Without them, patterns are about bytes, whose classes have at most 256 members.
    if has_unicode(ast) { of_unicode(ast) } else { 0 }
}

/// It names characters: a class of Unicode, the flag `u`, or a class with a member beyond ASCII.
fn has_unicode(ast: &Ast) -> bool {
    let sets_unicode = |items: &[regex_syntax::ast::FlagsItem]| {
        items.iter().any(|item| matches!(item.kind, FlagsItemKind::Flag(Flag::Unicode)))
    };
    match ast {
        Ast::ClassUnicode(_) => true,
        Ast::ClassBracketed(class) => set_has_unicode(&class.kind),
        Ast::Flags(set) => sets_unicode(&set.flags.items),
        Ast::Group(group) => {
            group.flags().is_some_and(|flags| sets_unicode(&flags.items)) || has_unicode(&group.ast)
        }
        Ast::Repetition(repetition) => has_unicode(&repetition.ast),
        Ast::Alternation(all) => all.asts.iter().any(has_unicode),
        Ast::Concat(all) => all.asts.iter().any(has_unicode),
        _ => false,
    }
}

fn set_has_unicode(set: &ClassSet) -> bool {
    match set {
        ClassSet::BinaryOp(op) => set_has_unicode(&op.lhs) || set_has_unicode(&op.rhs),
        ClassSet::Item(item) => item_has_unicode(item),
    }
}

fn item_has_unicode(item: &ClassSetItem) -> bool {
    match item {
        ClassSetItem::Unicode(_) => true,
        ClassSetItem::Literal(literal) => !literal.c.is_ascii(),
        ClassSetItem::Range(range) => !range.start.c.is_ascii() || !range.end.c.is_ascii(),
        ClassSetItem::Bracketed(class) => set_has_unicode(&class.kind),
        ClassSetItem::Union(union) => union.items.iter().any(item_has_unicode),
        ClassSetItem::Empty(_) | ClassSetItem::Ascii(_) | ClassSetItem::Perl(_) => false,
    }
}

fn of_unicode(ast: &Ast) -> u64 {
    let of_all = |all: &[Ast]| all.iter().map(of_unicode).fold(0, u64::saturating_add);
    match ast {
        Ast::Dot(_) => OF_CLASS,
        Ast::ClassUnicode(class) => of_named(class),
        Ast::ClassPerl(_) => OF_PERL_CLASS,
        Ast::ClassBracketed(class) => of_bracketed(class),
        Ast::Repetition(repetition) => of_unicode(&repetition.ast),
        Ast::Group(group) => of_unicode(&group.ast),
        Ast::Alternation(all) => of_all(&all.asts),
        Ast::Concat(all) => of_all(&all.asts),
        _ => 0,
    }
}

fn of_bracketed(class: &ClassBracketed) -> u64 {
    let inner = match &class.kind {
        // Each operation folds both of its sides anew.
        ClassSet::BinaryOp(_) => OF_WIDE_CLASS,
        ClassSet::Item(item) => of_item(item),
    };
    inner.saturating_add(OF_CLASS)
}

fn of_item(item: &ClassSetItem) -> u64 {
    match item {
        ClassSetItem::Range(range) => {
            let span = u32::from(range.end.c).saturating_sub(u32::from(range.start.c));
            u64::from(span).saturating_mul(OF_CODE_POINT)
        }
        ClassSetItem::Ascii(class) if class.negated => OF_WIDE_CLASS,
        ClassSetItem::Ascii(class) => match class.kind {
            ClassAsciiKind::Ascii => OF_CLASS,
            _ => 0,
        },
        ClassSetItem::Unicode(class) => of_named(class),
        ClassSetItem::Perl(ClassPerl { negated: true, .. }) => OF_WIDE_CLASS,
        ClassSetItem::Perl(_) => OF_NAMED_CLASS,
        // Whatever is put together with it is folded again.
        ClassSetItem::Bracketed(_) => OF_WIDE_CLASS,
        ClassSetItem::Union(union) => union.items.iter().map(of_item).fold(0, u64::saturating_add),
        ClassSetItem::Empty(_) | ClassSetItem::Literal(_) => 0,
    }
}

fn of_named(class: &ClassUnicode) -> u64 {
    let is_any = |name: &str| {
        let letters = name.chars().filter(|c| c.is_ascii_alphanumeric());
        letters.map(|c| c.to_ascii_lowercase()).eq("any".chars())
    };
    match &class.kind {
        ClassUnicodeKind::OneLetter(_) => OF_NAMED_CLASS,
        ClassUnicodeKind::Named(name) if is_any(name) => OF_WIDE_CLASS,
        ClassUnicodeKind::Named(_) => OF_NAMED_CLASS,
        ClassUnicodeKind::NamedValue { value, .. } if is_any(value) => OF_WIDE_CLASS,
        ClassUnicodeKind::NamedValue { .. } => OF_NAMED_CLASS,
    }
}
