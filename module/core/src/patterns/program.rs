//! A pattern with look-around or back-references as a program for [`super::backtrack`].
//!
//! Source:  `fancy-regex` parses the text. Its own engine is not used: it counts how often it backtracks, and not the
//!          work that it delegates in between, so a pattern of 30 bytes could take seconds.
//! Errors:  a construct that is not served is named.

use super::MAX_COMPILED_BYTES;
use super::text::scan;
use crate::model::Invalid;
use fancy_regex::{Assertion, Expr, LookAround};
use regex_syntax::hir::{Class, HirKind};
use std::fmt;

/// Instructions of a program.
const MAX_INSTRUCTIONS: usize = MAX_COMPILED_BYTES / size_of::<Instruction>();
/// Parts of a pattern that are written out, repetitions included.
const MAX_VISITS: usize = 4 * MAX_INSTRUCTIONS;
/// The flag of `fancy-regex` for upper and lower case alike.
const CASE_INSENSITIVE: u32 = 1;

/// A set of bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Bytes([u64; 4]);

/// A place in the list of instructions.
pub type Place = usize;

/// What the matcher does at a place.
#[derive(Clone, Debug)]
pub enum Instruction {
    /// Takes one byte of the set with this index.
    One(usize),
    /// Takes these bytes; upper and lower case of ASCII alike if told so.
    Text {
        bytes: Box<[u8]>,
        ignores_case: bool,
    },
    /// Goes on if the assertion holds.
    Assert(Assert),
    /// Tries the first place, then the second.
    Split(Place, Place),
    Jump(Place),
    /// Notes the position in a slot.
    Save(usize),
    /// Ends the loop if its round, which began at the position in the slot, took nothing.
    Progress {
        began: usize,
        out: Place,
    },
    /// Takes what the group took.
    Same {
        group: usize,
        ignores_case: bool,
    },
    /// Goes to the place if the group took nothing.
    Unless {
        group: usize,
        to: Place,
    },
    /// Looks whether the instructions behind it, which end with [`Instruction::Done`], hold here.
    Ahead {
        is_negative: bool,
        next: Place,
    },
    /// Looks whether they hold for `shortest` to `longest` bytes that end here.
    Behind {
        is_negative: bool,
        shortest: usize,
        longest: usize,
        next: Place,
    },
    /// Takes what they take first, and nothing else.
    Atomic {
        next: Place,
    },
    /// A part, or all of it, was found.
    Done,
}

/// A condition on a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assert {
    Start,
    End,
    EndOrNewlines,
    LineStart,
    LineEnd,
    WordBoundary,
    NoWordBoundary,
    WordStart,
    WordEnd,
    WordStartHalf,
    WordEndHalf,
}

/// A pattern that can be run.
#[derive(Clone, Debug, Default)]
pub struct Program {
    pub instructions: Vec<Instruction>,
    pub sets: Vec<Bytes>,
    /// Two for each group, the whole included, and one for each loop.
    pub slots: usize,
    /// Groups, the whole included.
    pub groups: usize,
    /// Parts that were written out.
    visits: usize,
}

impl Bytes {
    fn of(bytes: impl IntoIterator<Item = u8>) -> Self {
        let mut words = [0; 4];
        for byte in bytes {
            if let Some(word) = words.get_mut(usize::from(byte >> 6)) {
                *word |= 1 << (byte & 63);
            }
        }
        Bytes(words)
    }

    /// Whether the byte is in the set.
    pub fn has(&self, byte: u8) -> bool {
        self.0.get(usize::from(byte >> 6)).is_some_and(|word| word >> (byte & 63) & 1 == 1)
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries((0..=255).filter(|byte| self.has(*byte))).finish()
    }
}

impl Program {
    /// The program of a pattern.
    pub fn new(pattern: &str, ignores_case: bool) -> Result<Self, NoProgram> {
        if let Some(escape) = other_escape(pattern) {
            return Err(NoProgram::not_served(&format!("\\{escape}, of another meaning in PCRE")));
        }
        let flags = if ignores_case { CASE_INSENSITIVE } else { 0 };
        // Its flags would go on behind the group that they stand in.
        let text = scan(pattern).text;
        let tree = Expr::parse_tree_with_flags(&text, flags)
            .map_err(|error| NoProgram::Unread(error.to_string()))?;
        let mut builder = Builder::default();
        let node = builder.node(&tree.expr)?;
        if let Some(group) = builder.highest_reference
            && group > builder.groups
        {
            return Err(NoProgram::refused(format!(
                "pattern names group {group} and has {}: name one that it has",
                builder.groups
            )));
        }
        let mut program = Program { groups: builder.groups + 1, ..Program::default() };
        program.sets = builder.sets;
        program.slots = 2 * program.groups;
        program.emit(&node)?;
        program.put(Instruction::Done)?;
        Ok(program)
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        let texts = self.instructions.iter().map(|instruction| match instruction {
            Instruction::Text { bytes, .. } => bytes.len(),
            _ => 0,
        });
        size_of_val(&*self.instructions) + size_of_val(&*self.sets) + texts.sum::<usize>()
    }
}

/// An escape that `fancy-regex` takes otherwise than PCRE does.
fn other_escape(pattern: &str) -> Option<char> {
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        if c == '\\'
            && let Some(escaped) = chars.next()
            && "hHOuU<>".contains(escaped)
        {
            return Some(escaped);
        }
    }
    None
}

/// Why there is no program.
#[derive(Debug)]
pub enum NoProgram {
    /// It is no pattern, with the reason.
    Unread(String),
    Refused(Invalid),
}

impl NoProgram {
    fn refused(why: impl Into<String>) -> Self {
        NoProgram::Refused(Invalid::new(why))
    }

    fn not_served(what: &str) -> Self {
        Self::refused(format!("pattern has {what}, which is not served: write it without"))
    }
}

fn too_large() -> NoProgram {
    NoProgram::refused("pattern is too large when compiled: repeat less often")
}

/// A part of a pattern, with its groups numbered and its classes read.
enum Node {
    Empty,
    One(usize),
    Text { bytes: Box<[u8]>, ignores_case: bool },
    Assert(Assert),
    All(Vec<Node>),
    Any(Vec<Node>),
    Group(usize, Box<Node>),
    Look { is_negative: bool, is_behind: bool, node: Box<Node> },
    Repeat { node: Box<Node>, least: usize, most: Option<usize>, is_greedy: bool },
    Same { group: usize, ignores_case: bool },
    IfGroup { group: usize, then: Box<Node>, otherwise: Box<Node> },
    Atomic(Box<Node>),
}

impl Node {
    /// The least and the most bytes that it takes; no most where there is no bound.
    fn width(&self) -> (usize, Option<usize>) {
        let sum = |all: &[Node]| {
            all.iter().map(Node::width).fold((0_usize, Some(0_usize)), |(low, high), one| {
                let high = high.zip(one.1).and_then(|(a, b)| a.checked_add(b));
                (low.saturating_add(one.0), high)
            })
        };
        let widest = |a: (usize, Option<usize>), b: (usize, Option<usize>)| {
            (a.0.min(b.0), a.1.zip(b.1).map(|(a, b)| a.max(b)))
        };
        match self {
            Node::Empty | Node::Assert(_) | Node::Look { .. } => (0, Some(0)),
            Node::One(_) => (1, Some(1)),
            Node::Text { bytes, .. } => (bytes.len(), Some(bytes.len())),
            Node::All(all) => sum(all),
            Node::Any(all) => all.iter().map(Node::width).reduce(widest).unwrap_or_default(),
            Node::Group(_, node) | Node::Atomic(node) => node.width(),
            Node::Repeat { node, least, most, .. } => {
                let (low, high) = node.width();
                let high = if high == Some(0) {
                    Some(0)
                } else {
                    high.zip(*most).and_then(|(a, b)| a.checked_mul(b))
                };
                (low.saturating_mul(*least), high)
            }
            Node::Same { .. } => (0, None),
            Node::IfGroup { then, otherwise, .. } => widest(then.width(), otherwise.width()),
        }
    }
}

#[derive(Default)]
struct Builder {
    sets: Vec<Bytes>,
    /// The groups that the part is in.
    open: Vec<usize>,
    groups: usize,
    highest_reference: Option<usize>,
}

impl Builder {
    fn node(&mut self, expr: &Expr) -> Result<Node, NoProgram> {
        Ok(match expr {
            Expr::Empty => Node::Empty,
            Expr::Any { newline: true, .. } => self.set(0..=255),
            Expr::Any { newline: false, crlf: false } => {
                self.set((0..=255).filter(|b| *b != b'\n'))
            }
            Expr::Any { .. } => self.set((0..=255).filter(|b| !b"\r\n".contains(b))),
            Expr::Assertion(assertion) => Node::Assert(assert(assertion)?),
            Expr::GeneralNewline { .. } => Node::Atomic(Box::new(Node::Any(vec![
                Node::Text { bytes: Box::from(*b"\r\n"), ignores_case: false },
                self.set((b'\n'..=b'\r').chain([0x85])),
            ]))),
            Expr::Literal { val, casei } => {
                Node::Text { bytes: val.as_bytes().into(), ignores_case: *casei }
            }
            Expr::LiteralBytes { bytes } => {
                Node::Text { bytes: bytes.as_slice().into(), ignores_case: false }
            }
            Expr::Concat(all) => Node::All(self.nodes(all)?),
            Expr::Alt(all) => Node::Any(self.nodes(all)?),
            Expr::Group(inner) => {
                self.groups += 1;
                let number = self.groups;
                self.open.push(number);
                let inner = self.node(inner);
                self.open.pop();
                Node::Group(number, Box::new(inner?))
            }
            Expr::LookAround(inner, look) => {
                use LookAround::{LookAhead, LookAheadNeg, LookBehind, LookBehindNeg};
                Node::Look {
                    is_negative: matches!(look, LookAheadNeg | LookBehindNeg),
                    is_behind: match look {
                        LookAhead | LookAheadNeg => false,
                        LookBehind | LookBehindNeg => true,
                    },
                    node: Box::new(self.node(inner)?),
                }
            }
            Expr::Repeat { lo, hi, .. } if lo > hi => {
                return Err(NoProgram::refused(
                    "pattern repeats from more to less times: swap them",
                ));
            }
            Expr::Repeat { child, lo, hi, greedy } => Node::Repeat {
                node: Box::new(self.node(child)?),
                least: *lo,
                most: (*hi != usize::MAX).then_some(*hi),
                is_greedy: *greedy,
            },
            Expr::Delegate { inner, casei } => self.class(inner, *casei)?,
            Expr::Backref { group, casei } => {
                Node::Same { group: self.reference(*group)?, ignores_case: *casei }
            }
            Expr::AtomicGroup(inner) => Node::Atomic(Box::new(self.node(inner)?)),
            Expr::Conditional { condition, true_branch, false_branch } => match &**condition {
                Expr::BackrefExistsCondition { group, relative_recursion_level: None } => {
                    let group = self.reference(*group)?;
                    let then = Box::new(self.node(true_branch)?);
                    Node::IfGroup { group, then, otherwise: Box::new(self.node(false_branch)?) }
                }
                _ => return Err(NoProgram::not_served("a condition that is no group")),
            },
            Expr::KeepOut => return Err(NoProgram::not_served("\\K")),
            Expr::ContinueFromPreviousMatchEnd => return Err(NoProgram::not_served("\\G")),
            Expr::SubroutineCall(_) | Expr::DefineGroup { .. } => {
                return Err(NoProgram::not_served("a call of a group"));
            }
            Expr::BackrefWithRelativeRecursionLevel { .. }
            | Expr::BackrefExistsCondition { .. } => {
                return Err(NoProgram::not_served("a reference to a level of recursion"));
            }
            Expr::BacktrackingControlVerb(_) => {
                return Err(NoProgram::not_served("a verb such as (*FAIL)"));
            }
            Expr::Absent(_) => return Err(NoProgram::not_served("an absence operator (?~)")),
            Expr::AstNode(..) => return Err(NoProgram::not_served("a reference to no group")),
        })
    }

    fn nodes(&mut self, all: &[Expr]) -> Result<Vec<Node>, NoProgram> {
        all.iter().map(|one| self.node(one)).collect()
    }

    fn set(&mut self, bytes: impl IntoIterator<Item = u8>) -> Node {
        let set = Bytes::of(bytes);
        let known = self.sets.iter().position(|known| *known == set);
        Node::One(known.unwrap_or_else(|| {
            self.sets.push(set);
            self.sets.len() - 1
        }))
    }

    fn reference(&mut self, group: usize) -> Result<usize, NoProgram> {
        if group == 0 || self.open.contains(&group) {
            return Err(NoProgram::not_served("a reference to a group within itself"));
        }
        self.highest_reference = self.highest_reference.max(Some(group));
        Ok(group)
    }

    /// A class of bytes, which `regex-syntax` reads.
    fn class(&mut self, text: &str, ignores_case: bool) -> Result<Node, NoProgram> {
        let mut parser = regex_syntax::ParserBuilder::new();
        let parser = parser.unicode(false).utf8(false).case_insensitive(ignores_case);
        let beyond =
            || NoProgram::not_served("a class of characters beyond ASCII beside look-around");
        let hir = parser.build().parse(text).map_err(|_| beyond())?;
        match hir.kind() {
            HirKind::Class(Class::Bytes(class)) => {
                Ok(self.set(class.iter().flat_map(|range| range.start()..=range.end())))
            }
            HirKind::Literal(literal) if literal.0.len() == 1 => {
                Ok(self.set(literal.0.iter().copied()))
            }
            _ => Err(beyond()),
        }
    }
}

fn assert(assertion: &Assertion) -> Result<Assert, NoProgram> {
    Ok(match assertion {
        Assertion::StartText => Assert::Start,
        Assertion::EndText => Assert::End,
        Assertion::EndTextIgnoreTrailingNewlines { crlf: false } => Assert::EndOrNewlines,
        Assertion::StartLine { crlf: false } => Assert::LineStart,
        Assertion::EndLine { crlf: false } => Assert::LineEnd,
        Assertion::WordBoundary => Assert::WordBoundary,
        Assertion::NotWordBoundary => Assert::NoWordBoundary,
        Assertion::LeftWordBoundary => Assert::WordStart,
        Assertion::RightWordBoundary => Assert::WordEnd,
        Assertion::LeftWordHalfBoundary => Assert::WordStartHalf,
        Assertion::RightWordHalfBoundary => Assert::WordEndHalf,
        Assertion::EndTextIgnoreTrailingNewlines { crlf: true }
        | Assertion::StartLine { crlf: true }
        | Assertion::StartLineOniguruma { .. }
        | Assertion::EndLine { crlf: true } => return Err(NoProgram::not_served("the flag R")),
    })
}

impl Program {
    fn put(&mut self, instruction: Instruction) -> Result<Place, NoProgram> {
        if self.instructions.len() >= MAX_INSTRUCTIONS {
            return Err(too_large());
        }
        self.instructions.push(instruction);
        Ok(self.instructions.len() - 1)
    }

    /// Where the next instruction comes.
    fn here(&self) -> Place {
        self.instructions.len()
    }

    fn set(&mut self, place: Place, instruction: Instruction) {
        if let Some(at) = self.instructions.get_mut(place) {
            *at = instruction;
        }
    }

    fn emit(&mut self, node: &Node) -> Result<(), NoProgram> {
        self.visits += 1;
        // What becomes no instruction may be repeated as often as one likes.
        if self.visits > MAX_VISITS {
            return Err(too_large());
        }
        match node {
            Node::Empty => {}
            Node::One(set) => drop(self.put(Instruction::One(*set))?),
            Node::Text { bytes, ignores_case } => {
                let (bytes, ignores_case) = (bytes.clone(), *ignores_case);
                self.put(Instruction::Text { bytes, ignores_case })?;
            }
            Node::Assert(assert) => drop(self.put(Instruction::Assert(*assert))?),
            Node::All(all) => all.iter().try_for_each(|one| self.emit(one))?,
            Node::Any(all) => self.emit_any(all)?,
            Node::Group(number, inner) => {
                self.put(Instruction::Save(2 * number))?;
                self.emit(inner)?;
                self.put(Instruction::Save(2 * number + 1))?;
            }
            Node::Look { is_negative, is_behind, node } => {
                self.emit_look(*is_negative, *is_behind, node)?;
            }
            Node::Repeat { node, least, most, is_greedy } => {
                for _ in 0..*least {
                    self.emit(node)?;
                }
                match most {
                    None => self.emit_loop(node, *is_greedy)?,
                    Some(most) => {
                        self.emit_optional(node, most.saturating_sub(*least), *is_greedy)?;
                    }
                }
            }
            Node::Same { group, ignores_case } => {
                self.put(Instruction::Same { group: *group, ignores_case: *ignores_case })?;
            }
            Node::IfGroup { group, then, otherwise } => {
                let branch = self.put(Instruction::Done)?;
                self.emit(then)?;
                let leave = self.put(Instruction::Done)?;
                self.set(branch, Instruction::Unless { group: *group, to: self.here() });
                self.emit(otherwise)?;
                self.set(leave, Instruction::Jump(self.here()));
            }
            Node::Atomic(inner) => {
                let begin = self.put(Instruction::Done)?;
                self.emit(inner)?;
                self.put(Instruction::Done)?;
                self.set(begin, Instruction::Atomic { next: self.here() });
            }
        }
        Ok(())
    }

    fn emit_any(&mut self, all: &[Node]) -> Result<(), NoProgram> {
        let mut leaving = Vec::new();
        for (index, one) in all.iter().enumerate() {
            if index + 1 == all.len() {
                self.emit(one)?;
                break;
            }
            let split = self.put(Instruction::Done)?;
            self.emit(one)?;
            leaving.push(self.put(Instruction::Done)?);
            self.set(split, Instruction::Split(split + 1, self.here()));
        }
        for place in leaving {
            self.set(place, Instruction::Jump(self.here()));
        }
        Ok(())
    }

    fn emit_look(
        &mut self,
        is_negative: bool,
        is_behind: bool,
        node: &Node,
    ) -> Result<(), NoProgram> {
        let begin = self.put(Instruction::Done)?;
        self.emit(node)?;
        self.put(Instruction::Done)?;
        let next = self.here();
        let (shortest, longest) = node.width();
        let look = match is_behind {
            false => Instruction::Ahead { is_negative, next },
            true => {
                let longest = longest.unwrap_or(usize::MAX);
                Instruction::Behind { is_negative, shortest, longest, next }
            }
        };
        self.set(begin, look);
        Ok(())
    }

    fn emit_loop(&mut self, node: &Node, is_greedy: bool) -> Result<(), NoProgram> {
        let split = self.put(Instruction::Done)?;
        let out = if node.width().0 > 0 {
            self.emit(node)?;
            self.put(Instruction::Jump(split))? + 1
        } else {
            let began = self.slots;
            self.slots += 1;
            self.put(Instruction::Save(began))?;
            self.emit(node)?;
            let progress = self.put(Instruction::Done)?;
            let out = self.put(Instruction::Jump(split))? + 1;
            self.set(progress, Instruction::Progress { began, out });
            out
        };
        self.set(split, Self::branch(is_greedy, split + 1, out));
        Ok(())
    }

    fn emit_optional(
        &mut self,
        node: &Node,
        times: usize,
        is_greedy: bool,
    ) -> Result<(), NoProgram> {
        let mut splits = Vec::new();
        for _ in 0..times {
            splits.push(self.put(Instruction::Done)?);
            self.emit(node)?;
        }
        let out = self.here();
        for split in splits {
            self.set(split, Self::branch(is_greedy, split + 1, out));
        }
        Ok(())
    }

    fn branch(is_greedy: bool, body: Place, out: Place) -> Instruction {
        if is_greedy { Instruction::Split(body, out) } else { Instruction::Split(out, body) }
    }
}
